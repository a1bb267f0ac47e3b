//! Sorted sets: written as they are encoded (a listpack, or members with binary scores, highest first), read in these forms,
//! with scores as text, and as a ziplist.

use skerry_resp::number::parse_f64;

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, kind, listpack};
use crate::types::element::{Digits, Element};
use crate::types::packed::Packed;
use crate::types::zset::Direction;
use crate::types::{Limits, Zset};

pub(super) fn write(zset: &Zset, writer: &mut Writer) {
    if let Some(packed) = zset.packed() {
        writer.byte(kind::ZSET_LISTPACK);
        listpack::write(packed, writer);
        return;
    }
    writer.byte(kind::ZSET_2);
    writer.length(zset.len() as u64);
    // As in Redis: a list of that order is filled from one end.
    for (member, score) in zset.range(0..zset.len(), Direction::Descending) {
        writer.string(member.as_bytes(&mut Digits::new()));
        writer.bytes(&score.to_le_bytes());
    }
}

/// How a score stands in a payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scores {
    /// Type 3.
    Text,
    /// Type 5.
    Binary,
}

/// Types 3 and 5: members and scores in any order.
pub(super) fn read_members(
    reader: &mut Reader<'_>,
    scores: Scores,
    limits: &Limits,
) -> Result<Zset, Malformed> {
    let members = (0..reader.length()?).map(|_| {
        let member = reader.string().ok()?;
        let score = match scores {
            Scores::Text => text_score(reader).ok()?,
            Scores::Binary => f64::from_le_bytes(reader.array().ok()?),
        };
        Some((member, score))
    });
    let zset = Zset::of_unordered(members, limits).ok_or(Malformed)?;
    if zset.is_empty() {
        return Err(Malformed);
    }
    match zset.len() <= limits.zset_max_listpack_entries {
        true => Ok(Zset::of_ascending(&zset.iter().collect::<Vec<_>>(), limits)),
        false => Ok(zset),
    }
}

/// A length and a number's text; lengths above 252 are infinities and NaN.
fn text_score(reader: &mut Reader<'_>) -> Result<f64, Malformed> {
    match reader.byte()? {
        255 => Ok(f64::NEG_INFINITY),
        254 => Ok(f64::INFINITY),
        253 => Err(Malformed),
        len => parse_f64(reader.bytes(u64::from(len))?).ok_or(Malformed),
    }
}

/// Types 12 and 17: what a ziplist or a listpack held.
pub(super) fn of_packed(packed: &Packed, limits: &Limits) -> Result<Zset, Malformed> {
    listpack::check_distinct::<2>(packed)?;
    let mut entries = packed.iter();
    let mut is_sound = true;
    let scored = std::iter::from_fn(|| {
        let (member, score) = (entries.next()?, entries.next()?);
        let score = match score {
            Element::Integer(integer) => Some(integer as f64),
            Element::Bytes(text) => parse_f64(text),
        };
        is_sound &= score.is_some();
        Some((member, score?))
    });
    let zset = Zset::of_checked(scored, packed.len() / 2, limits);
    zset.filter(|_| is_sound).ok_or(Malformed)
}
