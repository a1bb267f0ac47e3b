//! Sets: written as they are encoded (an intset, a listpack, or members one by one), read in the same three forms.
//!
//! An intset is `bytes an integer (4, LE) | integers (4, LE) | integer | ...`, each LE, ascending.

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, kind, listpack};
use crate::types::element::{Digits, Element};
use crate::types::{Limits, Set};

pub(super) fn write(set: &Set, writer: &mut Writer) {
    if let Some((width, integers)) = set.integers() {
        let mut intset = Vec::with_capacity(8 + integers.len());
        intset.extend_from_slice(&(width as u32).to_le_bytes());
        intset.extend_from_slice(&(set.len() as u32).to_le_bytes());
        intset.extend_from_slice(integers);
        writer.byte(kind::SET_INTSET);
        writer.string(&intset);
    } else if let Some(packed) = set.packed() {
        writer.byte(kind::SET_LISTPACK);
        listpack::write(packed, writer);
    } else {
        writer.byte(kind::SET);
        writer.length(set.len() as u64);
        set.iter().for_each(|member| writer.string(member.as_bytes(&mut Digits::new())));
    }
}

/// Type 2: the members.
pub(super) fn read_members(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, Malformed> {
    let n_members = reader.length()?;
    let is_small = usize::try_from(n_members).is_ok_and(|n| n <= limits.set_max_intset_entries);
    let mut set = if is_small { Set::of_ascending(std::iter::empty()) } else { Set::new_table() };
    for _ in 0..n_members {
        if !set.add(&reader.string()?, limits) {
            return Err(Malformed);
        }
    }
    if set.is_empty() { Err(Malformed) } else { Ok(set) }
}

/// Type 11: an intset.
pub(super) fn read_intset(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, Malformed> {
    let intset = reader.string()?;
    let mut rest = Reader::new(&intset);
    let width = u32::from_le_bytes(rest.array()?);
    let len = u32::from_le_bytes(rest.array()?);
    let integers = &intset[8..];
    if !matches!(width, 2 | 4 | 8) || len == 0 || u64::from(width) * u64::from(len) != integers.len() as u64 {
        return Err(Malformed);
    }
    let integers = integers.chunks_exact(width as usize).map(|bytes| {
        let mut wide = [if bytes[bytes.len() - 1] < 0x80 { 0 } else { 0xff }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    });
    if !integers.clone().is_sorted_by(|a, b| a < b) {
        return Err(Malformed);
    }
    if len as usize <= limits.set_max_intset_entries {
        return Ok(Set::of_ascending(integers));
    }
    let mut set = Set::new_table();
    for integer in integers {
        set.add_element(Element::Integer(integer), limits);
    }
    Ok(set)
}

/// Type 20: a listpack.
pub(super) fn read_listpack(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, Malformed> {
    let packed = listpack::read(reader)?;
    listpack::check_distinct::<1>(&packed)?;
    let mut set = Set::of_packed(packed);
    set.announce(set.len(), limits);
    Ok(set)
}
