//! Hashes: written as they are encoded (a listpack, or fields and values one by one; with deadlines or without), read in
//! these forms and as a ziplist or a zipmap. A field that is dead when it is read stays until it is met, as in Redis.

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, kind, listpack};
use crate::types::element::Digits;
use crate::types::hash::{DEADLINES_MS, Stored};
use crate::types::packed::Packed;
use crate::types::{Hash, Limits};

pub(super) fn write(hash: &Hash, writer: &mut Writer) {
    if let Some(packed) = hash.packed() {
        writer.byte(kind::HASH_LISTPACK);
        listpack::write(packed, writer);
        return;
    }
    let earliest_ms = hash.earliest_ms();
    if let Some(packed) = hash.timed_packed() {
        writer.byte(kind::HASH_LISTPACK_EX);
        writer.bytes(&earliest_ms.unwrap_or(0).to_le_bytes());
        listpack::write(packed, writer);
        return;
    }
    if let Some(earliest_ms) = earliest_ms {
        writer.byte(kind::HASH_DEADLINES);
        writer.bytes(&earliest_ms.to_le_bytes());
        writer.length(hash.len() as u64);
        for ((field, value), deadline_ms) in hash.timed_iter() {
            // One more than the distance: 0 is no deadline.
            writer.length(deadline_ms.map_or(0, |ms| (ms - earliest_ms + 1) as u64));
            writer.string(field.as_bytes(&mut Digits::new()));
            writer.string(value.as_bytes(&mut Digits::new()));
        }
        return;
    }
    writer.byte(kind::HASH);
    writer.length(hash.len() as u64);
    for (field, value) in hash.iter(i64::MIN) {
        writer.string(field.as_bytes(&mut Digits::new()));
        writer.string(value.as_bytes(&mut Digits::new()));
    }
}

/// Type 4: fields and values.
pub(super) fn read_fields(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, Malformed> {
    let n_fields = reader.length()?;
    let is_small = usize::try_from(n_fields).is_ok_and(|n| n <= limits.hash_max_listpack_entries);
    let mut hash = if is_small { Hash::new() } else { Hash::new_table() };
    for _ in 0..n_fields {
        let (field, value) = (reader.string()?, reader.string()?);
        if hash.set(&field, &value, limits) == Stored::Replaced {
            return Err(Malformed);
        }
    }
    if hash.is_empty() { Err(Malformed) } else { Ok(hash) }
}

/// Types 22 and 24: deadlines, fields and values; a deadline counts from `earliest_ms`, if there is one.
pub(super) fn read_timed_fields(
    reader: &mut Reader<'_>,
    earliest_ms: Option<u64>,
    limits: &Limits,
) -> Result<Hash, Malformed> {
    let n_fields = reader.length()?;
    let mut fields = (0..n_fields).map(|_| {
        let deadline_ms = deadline(reader.length()?, earliest_ms)?;
        Ok((reader.string()?, reader.string()?, deadline_ms))
    });
    let hash = if usize::try_from(n_fields).is_ok_and(|n| n <= limits.hash_max_listpack_entries) {
        let mut hash = Hash::new();
        hash.track_deadlines(limits.seed);
        fields.try_for_each(|read| {
            let (field, value, deadline_ms) = read?;
            if hash.set(&field, &value, limits) == Stored::Replaced {
                return Err(Malformed);
            }
            if deadline_ms.is_some() {
                hash.set_deadline(&field, deadline_ms);
            }
            Ok(())
        })?;
        hash
    } else {
        Hash::of_timed_fields(fields.map(Result::ok), limits).ok_or(Malformed)?
    };
    if hash.is_empty() { Err(Malformed) } else { Ok(hash) }
}

fn deadline(stored: u64, earliest_ms: Option<u64>) -> Result<Option<i64>, Malformed> {
    let deadline = match earliest_ms {
        _ if stored == 0 => return Ok(None),
        // One more than the distance: 0 is no deadline.
        Some(earliest_ms) => earliest_ms.checked_add(stored - 1).ok_or(Malformed)?,
        None => stored,
    };
    let deadline_ms = i64::try_from(deadline).map_err(|_| Malformed)?;
    if DEADLINES_MS.contains(&deadline_ms) { Ok(Some(deadline_ms)) } else { Err(Malformed) }
}

/// Types 23 and 25: a listpack of fields, values and deadlines, first due first.
pub(super) fn read_timed_listpack(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, Malformed> {
    let packed = listpack::read(reader)?;
    listpack::check_distinct::<3>(&packed)?;
    Hash::of_timed_packed(packed, limits).ok_or(Malformed)
}

/// Type 9: what a zipmap held. Long values make a table of it at once.
pub(super) fn of_zipmap(packed: &Packed, limits: &Limits) -> Result<Hash, Malformed> {
    listpack::check_distinct::<2>(packed)?;
    let mut hash = Hash::new();
    let mut elements = packed.iter();
    while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
        hash.set(field.as_bytes(&mut Digits::new()), value.as_bytes(&mut Digits::new()), limits);
    }
    Ok(hash)
}

/// Types 13 and 16: what a ziplist or a listpack held.
pub(super) fn of_packed(packed: Packed, limits: &Limits) -> Result<Hash, Malformed> {
    listpack::check_distinct::<2>(&packed)?;
    Ok(Hash::of_packed(packed, limits))
}
