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
mod lzf;
mod reader;
mod vectorset;
mod writer;

use std::borrow::Cow;

use bytes::Bytes;

use crate::config::Config;
use crate::error::CommandError;
use crate::keyspace::{Object, View};
use reader::Reader;
use writer::Writer;

/// The version of the format that Redis 8.2 writes. Later ones are refused, earlier ones read.
const VERSION: u16 = 12;
const FOOTER_LEN: usize = 2 + 8;

/// Numbers of the types of values.
mod kind {
    pub(super) const STRING: u8 = 0;
    /// A module's value: the module's id, then values with a tag each.
    pub(super) const MODULE_2: u8 = 7;
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
            View::List(_) | View::Set(_) | View::Hash(_) | View::Zset(_) | View::Lent => {
                return Err(CommandError::text("ERR DUMP of this type is not supported yet by Skerry"));
            }
        }
        Ok(Self { writer, sum: crc64::sum(), n_summed: 0, vector })
    }

    /// Goes on for about `budget` distances of the vectors in it; true when all is written. `view` is of the same value.
    pub fn step(&mut self, view: View<'_>, budget: usize) -> bool {
        let is_done = match (&mut self.vector, view) {
            (Some(writing), View::Vector(value)) => writing.step(value, &mut self.writer, budget),
            _ => true,
        };
        self.sum.update(&self.writer.bytes()[self.n_summed..]);
        self.n_summed = self.writer.bytes().len();
        is_done
    }

    /// The payload, when all is written.
    pub fn finish(self) -> Vec<u8> {
        let Self { writer, mut sum, .. } = self;
        let version = VERSION.to_le_bytes();
        sum.update(&version);
        let mut payload = writer.into_bytes();
        payload.extend_from_slice(&version);
        payload.extend_from_slice(&sum.finalize().to_le_bytes());
        payload
    }
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
                let (version, footer) = self.payload[body_len..].split_at(2);
                let version = u16::from_le_bytes([version[0], version[1]]);
                if version > VERSION || sum.clone().finalize().to_le_bytes() != *footer {
                    return Err(WRONG_FOOTER);
                }
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
                Some(vectorset::Outcome::Set(set)) => Ok(Restored::Object(Object::Vector(set))),
                Some(vectorset::Outcome::Malformed(made)) => {
                    *refused = made.map(Object::Vector);
                    Err(BAD_FORMAT)
                }
            },
        }
    }
}

/// The value in a payload whose footer is right: one that is read at once.
pub fn value(payload: &[u8]) -> Result<Cow<'_, [u8]>, CommandError> {
    let body = &payload[..payload.len() - FOOTER_LEN];
    let mut reader = Reader::new(body);
    let value = match reader.byte() {
        Ok(kind::STRING) => reader.string(),
        Ok(_) | Err(Malformed) => Err(Malformed),
    };
    value.ok().filter(|_| reader.is_done()).ok_or(BAD_FORMAT)
}

/// What a value is made with that its payload does not say.
#[derive(Clone, Copy)]
pub struct MadeWith<'a> {
    pub config: &'a Config,
    /// For values that need randomness.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump_of(text: &[u8]) -> Vec<u8> {
        let mut dump = Dump::begin(View::Str(text), Compression::Lzf).expect("strings are dumped");
        assert!(dump.step(View::Str(text), 1));
        dump.finish()
    }

    /// The string in a payload that is checked `budget` distances a step.
    fn restored(payload: &[u8], budget: usize) -> Result<Vec<u8>, CommandError> {
        let config = Config::default();
        let mut restoring = Restoring::begin(Bytes::copy_from_slice(payload));
        loop {
            match restoring.step(MadeWith { config: &config, seed: 1 }, budget, &mut None)? {
                Restored::More => {}
                Restored::Sound => return value(payload).map(Cow::into_owned),
                Restored::Object(_) => panic!("no string"),
            }
        }
    }

    /// Written by Redis 8.2.3.
    #[test]
    fn strings_as_redis_dumps_them() {
        assert_eq!(dump_of(b"hello"), b"\x00\x05hello\x0c\x00\xa8\x04\xeb\xb6\x9f\x1e\xbeC");
        assert_eq!(dump_of(b"10"), b"\x00\xc0\n\x0c\x00\xa5\xe9c\x85\xf4\x84\xfd\xf2");
    }

    #[test]
    fn what_is_dumped_is_restored() {
        let texts: [&[u8]; 8] =
            [b"", b"-1", b"127", b"-32769", b"2147483648", b"007", &[0; 100], &[7; 70_000]];
        for text in texts {
            let payload = dump_of(text);
            assert_eq!(restored(&payload, 1).as_deref(), Ok(text));
            assert_eq!(restored(&payload, 1000).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let payload = dump_of(b"hello world");
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(restored(&changed, 9), Err(WRONG_FOOTER), "byte {at}");
            assert_eq!(restored(&payload[..at], 9), Err(WRONG_FOOTER), "length {at}");
        }
    }
}
