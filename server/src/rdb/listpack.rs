//! Listpacks: what a packed buffer (`types::packed`) is when it is written, with Redis's header and end mark.
//!
//! ```text
//!   bytes in all (4, LE) | elements (2, LE; 65535: count them) | entry | entry | ... | 0xff
//! ```
//!
//! A packed buffer holds the same entries, so writing is copying. What is read is checked entry by entry (lengths, the
//! length behind each entry, the count, the end) and stored anew in the shortest encodings.

use super::{Malformed, reader::Reader, writer::Writer};
use crate::types::element::{Element, Encoded, decode_untrusted, n_entry_at};
use crate::types::packed::{Growth, LISTPACK_FRAME_BYTES, Packed};

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// The count of a listpack that has more than fit the field.
const UNCOUNTED: u16 = u16::MAX;

/// The buffer as a string.
pub(super) fn write(packed: &Packed, writer: &mut Writer) {
    let n_bytes = packed.listpack_bytes();
    let mut listpack = Vec::with_capacity(n_bytes);
    listpack.extend_from_slice(&(n_bytes as u32).to_le_bytes());
    listpack.extend_from_slice(&u16::try_from(packed.len()).unwrap_or(UNCOUNTED).to_le_bytes());
    listpack.extend_from_slice(packed.payload());
    listpack.push(END);
    writer.string(&listpack);
}

/// A string that is a listpack; its elements may be none.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Packed, Malformed> {
    let listpack = reader.string()?;
    let (header, rest) = listpack.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
    let [a, b, c, d, low, high] = *header;
    let (count, mut entries) = match rest.split_last() {
        Some((&END, entries)) => (u16::from_le_bytes([low, high]), entries),
        Some(_) | None => return Err(Malformed),
    };
    if u32::from_le_bytes([a, b, c, d]) as usize != entries.len() + LISTPACK_FRAME_BYTES {
        return Err(Malformed);
    }
    let mut packed = Packed::with_capacity(entries.len());
    while !entries.is_empty() {
        let (element, n_entry) = decode_untrusted(entries).ok_or(Malformed)?;
        push(&mut packed, element);
        entries = &entries[n_entry..];
    }
    if count != UNCOUNTED && usize::from(count) != packed.len() {
        return Err(Malformed);
    }
    packed.give_back();
    Ok(packed)
}

/// Appends an element, an integer in its text as an integer.
pub(super) fn push(packed: &mut Packed, element: Element<'_>) {
    packed.push_back(&Encoded::new(element.canonical()), Growth::Tight);
}

/// Refuses a buffer whose elements number 0, STRIDE, 2 * STRIDE ... are none, not all different, or do not end with it.
pub(super) fn check_distinct<const STRIDE: usize>(packed: &Packed) -> Result<(), Malformed> {
    if packed.is_empty() || !packed.len().is_multiple_of(STRIDE) {
        return Err(Malformed);
    }
    let entries = packed.payload();
    let mut places = Vec::with_capacity(packed.len() / STRIDE);
    let mut at = 0;
    while at < entries.len() {
        places.push(at as u32);
        (0..STRIDE).for_each(|_| at += n_entry_at(&entries[at..]));
    }
    // Each element has one encoding, so equal elements are equal bytes.
    let entry = |at: u32| {
        let entry = &entries[at as usize..];
        &entry[..n_entry_at(entry)]
    };
    places.sort_unstable_by(|a, b| entry(*a).cmp(entry(*b)));
    let are_distinct = places.is_sorted_by(|a, b| entry(*a) != entry(*b));
    if are_distinct { Ok(()) } else { Err(Malformed) }
}
