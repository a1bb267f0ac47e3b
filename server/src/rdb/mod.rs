//! Redis's serialised values: what DUMP writes and RESTORE reads, and what the files of RDB are made of.
//!
//! ```text
//!   payload:  type (1) | body ... | version (2, LE) | CRC-64 of all before it (8, LE)
//!   body:     lengths, strings, binary numbers, as `reader` and `writer` know them; one file per type of value
//! ```
//!
//! A payload is a client's bytes and believed in nothing: every length is checked against what is left before anything
//! is made of it, and what is malformed is refused as a whole. Source: the format of Redis 8.2's rdb.c, version 12.

mod crc64;
mod hash;
mod libraries;
mod list;
mod listpack;
mod lzf;
mod reader;
mod set;
mod stream;
mod vectorset;
mod writer;
mod ziplist;
mod zipmap;
mod zset;

use std::borrow::Cow;

use bytes::Bytes;

use crate::config::Config;
use crate::error::CommandError;
use crate::keyspace::{Loose, NewValue, Object, View};
use crate::types::Limits;
pub use libraries::{LibraryTexts, dump_libraries};
use reader::Reader;
use writer::Writer;
use zset::Scores;

/// The version of the format that Redis 8.2 writes. Later ones are refused, earlier ones read.
const VERSION: u16 = 12;
const FOOTER_LEN: usize = 2 + 8;

/// Numbers of the types of values.
mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    /// Scores as text.
    pub(super) const ZSET: u8 = 3;
    pub(super) const HASH: u8 = 4;
    /// Scores as binary doubles.
    pub(super) const ZSET_2: u8 = 5;
    /// A module's value: the module's id, then values with a tag each.
    pub(super) const MODULE_2: u8 = 7;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const ZSET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_QUICKLIST: u8 = 14;
    /// Of Redis 5.
    pub(super) const STREAM_1: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const ZSET_LISTPACK: u8 = 17;
    pub(super) const LIST_QUICKLIST_2: u8 = 18;
    /// Of Redis 7.0.
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    /// Deadlines as they are: what versions before 7.4 was finished wrote.
    pub(super) const HASH_DEADLINES_OLD: u8 = 22;
    pub(super) const HASH_LISTPACK_EX_OLD: u8 = 23;
    /// Deadlines by their distance from the earliest, which stands before them.
    pub(super) const HASH_DEADLINES: u8 = 24;
    /// The earliest deadline, then a listpack of fields, values and deadlines.
    pub(super) const HASH_LISTPACK_EX: u8 = 25;
}

const WRONG_FOOTER: CommandError = CommandError::text("ERR DUMP payload version or checksum are wrong");
const BAD_FORMAT: CommandError = CommandError::text("ERR Bad data format");

/// The bytes are no sound value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// How strings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lzf,
}

/// The payload of a value in the making, for DUMP. The value rests meanwhile.
pub struct Dump {
    writer: Writer,
    sum: crc64::Sum,
    /// Bytes that are in the sum.
    n_summed: usize,
    /// What is written in slices.
    vector: Option<vectorset::Writing>,
}

impl Dump {
    pub fn begin(view: View<'_>, compression: Compression) -> Result<Self, CommandError> {
        let mut writer = Writer::new(compression);
        let mut vector = None;
        match view {
            View::Int(value) => {
                writer.byte(kind::STRING);
                writer.string(itoa::Buffer::new().format(value).as_bytes());
            }
            View::Str(bytes) => {
                writer.byte(kind::STRING);
                writer.string(bytes);
            }
            View::Shared(bytes) => {
                writer.byte(kind::STRING);
                writer.string(bytes);
            }
            View::Vector(value) => vector = Some(vectorset::Writing::begin(value, &mut writer)?),
            View::List(value) => list::write(value, &mut writer),
            View::Set(value) => set::write(value, &mut writer),
            View::Hash(value) => hash::write(value, &mut writer),
            View::Zset(value) => zset::write(value, &mut writer),
            View::Stream(value) => stream::write(value, &mut writer),
            View::Lent => return Err(CommandError::WrongType),
        }
        Ok(Self { writer, sum: crc64::sum(), n_summed: 0, vector })
    }

    /// Goes on for about `budget` distances of the vectors in it; true when all is written. `view` is of the same value.
    pub fn step(&mut self, view: View<'_>, budget: usize) -> bool {
        let is_done = match (&mut self.vector, view) {
            (Some(writing), View::Vector(value)) => writing.step(value, &mut self.writer, budget),
            _ => true,
        };
        self.sum.update(&self.writer.written()[self.n_summed..]);
        self.n_summed = self.writer.written().len();
        is_done
    }

    /// The payload, when all is written.
    pub fn finish(self) -> Vec<u8> {
        sealed(self.writer, self.sum)
    }
}

/// What was written, whose checksum is `sum`, and its footer.
fn sealed(writer: Writer, mut sum: crc64::Sum) -> Vec<u8> {
    let version = VERSION.to_le_bytes();
    sum.update(&version);
    let mut payload = writer.into_bytes();
    payload.extend_from_slice(&version);
    payload.extend_from_slice(&sum.finalize().to_le_bytes());
    payload
}

/// Whether a footer is right. `sum` is of all before the checksum.
fn check_footer(footer: &[u8], sum: crc64::Sum) -> Result<(), CommandError> {
    let (version, checksum) = footer.split_at(2);
    let version = u16::from_le_bytes([version[0], version[1]]);
    if version > VERSION || sum.finalize().to_le_bytes() != *checksum {
        return Err(WRONG_FOOTER);
    }
    Ok(())
}

/// A payload on its way in, in slices.
pub struct Restoring {
    payload: Bytes,
    stage: Stage,
}

enum Stage {
    /// The checksum of the bytes before this one.
    Sum(crc64::Sum, usize),
    Vector(Box<vectorset::Reading>),
}

/// What a slice has come to.
pub enum Restored {
    More,
    /// The footer is right, and what it is the footer of is read at once.
    Sound,
    Object(Object),
}

/// Bytes whose checksum costs as much as a distance.
const SUMMED_PER_DISTANCE: usize = 64;

impl Restoring {
    pub fn begin(payload: Bytes) -> Self {
        Self { payload, stage: Stage::Sum(crc64::sum(), 0) }
    }

    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Goes on for about `budget` distances. What was made of a payload that is refused then is put into `refuse`: it is to be
    /// freed.
    pub fn step(
        &mut self,
        made_with: MadeWith<'_>,
        budget: usize,
        refused: &mut Option<Object>,
    ) -> Result<Restored, CommandError> {
        let body_len = self.payload.len().checked_sub(FOOTER_LEN).ok_or(WRONG_FOOTER)?;
        match &mut self.stage {
            Stage::Sum(sum, at) => {
                let upto = at.saturating_add(budget.saturating_mul(SUMMED_PER_DISTANCE)).min(body_len + 2);
                sum.update(&self.payload[*at..upto]);
                *at = upto;
                if upto < body_len + 2 {
                    return Ok(Restored::More);
                }
                check_footer(&self.payload[body_len..], sum.clone())?;
                if self.payload.first() != Some(&kind::MODULE_2) || body_len == 0 {
                    return Ok(Restored::Sound);
                }
                let body = self.payload.slice(..body_len);
                let reading = vectorset::Reading::begin(body, 1).map_err(|Malformed| BAD_FORMAT)?;
                self.stage = Stage::Vector(Box::new(reading));
                Ok(Restored::More)
            }
            Stage::Vector(reading) => match reading.step(made_with, budget) {
                None => Ok(Restored::More),
                Some(vectorset::Outcome::Set(set)) => Ok(Restored::Object(Object::Vector(set.into()))),
                Some(vectorset::Outcome::Malformed(made)) => {
                    *refused = made.map(|set| Object::Vector(set.into()));
                    Err(BAD_FORMAT)
                }
            },
        }
    }
}

/// The value in a payload whose footer is right: one that is read at once.
pub fn value<'a>(payload: &'a [u8], made_with: MadeWith<'_>) -> Result<Value<'a>, CommandError> {
    let mut reader = Reader::new(&payload[..payload.len() - FOOTER_LEN]);
    let value = read_value(&mut reader, made_with);
    value.ok().filter(|_| reader.is_done()).ok_or(BAD_FORMAT)
}

/// The payload of a value, in one go.
pub fn dump(view: View<'_>, compression: Compression) -> Result<Vec<u8>, CommandError> {
    let mut dump = Dump::begin(view, compression)?;
    while !dump.step(view, usize::MAX) {}
    Ok(dump.finish())
}

/// The value of a payload, in one go.
pub fn restore<'a>(payload: &'a [u8], made_with: MadeWith<'_>) -> Result<Value<'a>, CommandError> {
    let mut restoring = Restoring::begin(Bytes::copy_from_slice(payload));
    loop {
        match restoring.step(made_with, usize::MAX, &mut None)? {
            Restored::More => {}
            Restored::Sound => return value(payload, made_with),
            Restored::Object(object) => return Ok(Value::Object(object)),
        }
    }
}

/// All types but vector sets, which are read in slices.
fn read_value<'a>(reader: &mut Reader<'a>, made_with: MadeWith<'_>) -> Result<Value<'a>, Malformed> {
    let limits = made_with.limits;
    let object = match reader.byte()? {
        kind::STRING => return Ok(Value::String(reader.string()?)),
        kind::LIST => Object::List(list::read_elements(reader, limits)?),
        kind::SET => Object::Set(set::read_members(reader, limits)?),
        kind::ZSET => Object::Zset(zset::read_members(reader, Scores::Text, limits)?),
        kind::HASH => Object::Hash(hash::read_fields(reader, limits)?),
        kind::ZSET_2 => Object::Zset(zset::read_members(reader, Scores::Binary, limits)?),
        kind::HASH_ZIPMAP => Object::Hash(hash::of_zipmap(&zipmap::read(reader)?, limits)?),
        kind::LIST_ZIPLIST => Object::List(list::read_ziplist(reader, limits)?),
        kind::SET_INTSET => Object::Set(set::read_intset(reader, limits)?),
        kind::ZSET_ZIPLIST => Object::Zset(zset::of_packed(&ziplist::read(reader)?, limits)?),
        kind::HASH_ZIPLIST => Object::Hash(hash::of_packed(ziplist::read(reader)?, limits)?),
        kind::LIST_QUICKLIST => Object::List(list::read_quicklist(reader, limits)?),
        kind::HASH_LISTPACK => Object::Hash(hash::of_packed(listpack::read(reader)?, limits)?),
        kind::ZSET_LISTPACK => Object::Zset(zset::of_packed(&listpack::read(reader)?, limits)?),
        kind::LIST_QUICKLIST_2 => Object::List(list::read_quicklist_2(reader, limits)?),
        kind::SET_LISTPACK => Object::Set(set::read_listpack(reader, limits)?),
        kind::STREAM_1 => Object::Stream(Loose::new(stream::read(reader, stream::Version::V1)?)),
        kind::STREAM_2 => Object::Stream(Loose::new(stream::read(reader, stream::Version::V2)?)),
        kind::STREAM_3 => Object::Stream(Loose::new(stream::read(reader, stream::Version::V3)?)),
        kind::HASH_DEADLINES_OLD => Object::Hash(hash::read_timed_fields(reader, None, limits)?),
        kind::HASH_LISTPACK_EX_OLD => Object::Hash(hash::read_timed_listpack(reader, limits)?),
        kind::HASH_DEADLINES => {
            let earliest_ms = u64::from_le_bytes(reader.array()?);
            Object::Hash(hash::read_timed_fields(reader, Some(earliest_ms), limits)?)
        }
        kind::HASH_LISTPACK_EX => {
            // Redis does not keep it exact; the listpack says it again.
            let _earliest_ms: [u8; 8] = reader.array()?;
            Object::Hash(hash::read_timed_listpack(reader, limits)?)
        }
        _ => return Err(Malformed),
    };
    Ok(Value::Object(object))
}

/// What a value is made with that its payload does not say.
#[derive(Clone, Copy)]
pub struct MadeWith<'a> {
    pub config: &'a Config,
    /// The thresholds of the small encodings.
    pub limits: &'a Limits,
    /// For values that need randomness.
    pub seed: u64,
}

/// What a payload held.
pub enum Value<'a> {
    String(Cow<'a, [u8]>),
    Object(Object),
}

impl<'a> Value<'a> {
    /// The value as the keyspace takes it; the string, if it is one, stays with `text`.
    pub fn into_new<'b>(self, text: &'b mut Cow<'a, [u8]>) -> NewValue<'b> {
        match self {
            Value::String(bytes) => {
                *text = bytes;
                NewValue::of_bytes(text)
            }
            Value::Object(object) => NewValue::Object(object),
        }
    }
}

#[cfg(test)]
mod tests;
