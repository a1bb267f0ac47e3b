//! Hashes without field deadlines: written as they are encoded (a listpack, or fields and values one by one), read in these
//! forms and as a ziplist or a zipmap.

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, kind, listpack};
use crate::types::element::Digits;
use crate::types::hash::Stored;
use crate::types::packed::Packed;
use crate::types::{Hash, Limits};

pub(super) fn write(hash: &Hash, writer: &mut Writer) {
    if let Some(packed) = hash.packed() {
        writer.byte(kind::HASH_LISTPACK);
        listpack::write(packed, writer);
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
