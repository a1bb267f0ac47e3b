//! Zipmaps, the small hashes of Redis before 2.6, which it still reads.
//!
//! ```text
//!   fields (1; from 254 on: count them) | length field | length free value free bytes | ... | 0xff
//!   length: 1 byte below 254, or 0xfe and 4 (LE)      free: 1 byte, how many unused bytes follow the value
//! ```

use super::{Malformed, listpack, reader::Reader};
use crate::types::Element;
use crate::types::packed::Packed;

const LONG_LENGTH: u8 = 0xfe;
const END: u8 = 0xff;
/// From here on the first byte says nothing.
const UNCOUNTED: u8 = 254;

/// A string that is a zipmap, as fields and values in turn.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Packed, Malformed> {
    let zipmap = reader.string()?;
    let mut rest = Reader::new(&zipmap);
    let count = rest.byte()?;
    let mut packed = Packed::with_capacity(zipmap.len());
    while let Some(len) = length(&mut rest)? {
        let field = rest.bytes(len)?;
        let len = length(&mut rest)?.ok_or(Malformed)?;
        let n_free = rest.byte()?;
        let value = rest.bytes(len)?;
        rest.bytes(u64::from(n_free))?;
        listpack::push(&mut packed, Element::Bytes(field));
        listpack::push(&mut packed, Element::Bytes(value));
    }
    let counts_right = count >= UNCOUNTED || usize::from(count) == packed.len() / 2;
    if !rest.is_done() || !counts_right {
        return Err(Malformed);
    }
    packed.give_back();
    Ok(packed)
}

/// A length, or the end.
fn length(rest: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    Ok(match rest.byte()? {
        END => None,
        LONG_LENGTH => Some(u64::from(u32::from_le_bytes(rest.array()?))),
        short => Some(u64::from(short)),
    })
}
