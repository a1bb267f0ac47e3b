//! Ziplists, which Redis wrote before 7.0 and still reads: the small encoding of lists, hashes and sorted sets.
//!
//! ```text
//!   bytes in all (4, LE) | offset of the last entry (4, LE) | entries (2, LE; 65535: count them) | entry | ... | 0xff
//!   entry:    length of the entry before (1, or 0xfe and 4, LE) | encoding | string
//!   encoding: 00LLLLLL | 01LLLLLL L | 10...... LLLL (BE): strings
//!             0xc0 0xd0 0xe0: integers of 2, 4, 8 bytes | 0xf0: 3 bytes | 0xfe: 1 byte | 0xf1..=0xfd: 0 to 12
//! ```
//!
//! Read only, into the packed buffer that took their place. Everything the format says twice is compared.

use super::{Malformed, listpack, reader::Reader};
use crate::types::Element;
use crate::types::packed::Packed;

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
const LONG_LENGTH: u8 = 0xfe;
const UNCOUNTED: u16 = u16::MAX;

/// A string that is a ziplist; its elements may be none.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Packed, Malformed> {
    let ziplist = reader.string()?;
    let mut header = Reader::new(&ziplist);
    let n_bytes = u32::from_le_bytes(header.array()?);
    let last_at = u32::from_le_bytes(header.array()?);
    let count = u16::from_le_bytes(header.array()?);
    let (end, entries) = ziplist[HEADER_BYTES..].split_last().ok_or(Malformed)?;
    if n_bytes as usize != ziplist.len() || *end != END {
        return Err(Malformed);
    }
    let mut packed = Packed::with_capacity(entries.len());
    let mut rest = Reader::new(entries);
    let (mut at, mut n_before) = (HEADER_BYTES, 0);
    while !rest.is_done() {
        if before_len(&mut rest)? != n_before {
            return Err(Malformed);
        }
        listpack::push(&mut packed, element(&mut rest)?);
        at += n_before;
        n_before = entries.len() - rest.left() - (at - HEADER_BYTES);
    }
    let counts_right = count == UNCOUNTED || usize::from(count) == packed.len();
    if last_at as usize != at || !counts_right {
        return Err(Malformed);
    }
    packed.give_back();
    Ok(packed)
}

fn before_len(rest: &mut Reader<'_>) -> Result<usize, Malformed> {
    match rest.byte()? {
        LONG_LENGTH => Ok(u32::from_le_bytes(rest.array()?) as usize),
        END => Err(Malformed),
        short => Ok(usize::from(short)),
    }
}

fn element<'a>(rest: &mut Reader<'a>) -> Result<Element<'a>, Malformed> {
    let encoding = rest.byte()?;
    let len = match encoding {
        0..0x40 => u64::from(encoding),
        0x40..0x80 => u64::from(encoding & 0x3f) << 8 | u64::from(rest.byte()?),
        0x80..0xc0 => u64::from(u32::from_be_bytes(rest.array()?)),
        _ => return integer(encoding, rest).map(Element::Integer),
    };
    rest.bytes(len).map(Element::Bytes)
}

fn integer(encoding: u8, rest: &mut Reader<'_>) -> Result<i64, Malformed> {
    Ok(match encoding {
        0xc0 => i64::from(i16::from_le_bytes(rest.array()?)),
        0xd0 => i64::from(i32::from_le_bytes(rest.array()?)),
        0xe0 => i64::from_le_bytes(rest.array()?),
        0xf0 => {
            let [a, b, c] = rest.array()?;
            i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
        }
        0xfe => i64::from(i8::from_le_bytes(rest.array()?)),
        0xf1..=0xfd => i64::from(encoding - 0xf1),
        _ => return Err(Malformed),
    })
}
