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

use crate::config::Config;
use crate::error::CommandError;
use crate::keyspace::{NewValue, Object, View};
use crc64::crc64;
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

/// The payload of a value, for DUMP.
pub fn dump(view: View<'_>, compression: Compression) -> Result<Vec<u8>, CommandError> {
    let mut writer = Writer::new(compression);
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
        View::Vector(value) => vectorset::write(value, &mut writer)?,
        View::List(_) | View::Set(_) | View::Hash(_) | View::Zset(_) | View::Lent => {
            return Err(CommandError::text("ERR DUMP of this type is not supported yet by Skerry"));
        }
    }
    let mut payload = writer.into_bytes();
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let sum = crc64(&payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    Ok(payload)
}

/// A payload whose footer is right: type and body.
#[derive(Clone, Copy)]
pub struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, CommandError> {
        let (body, footer) =
            bytes.split_at_checked(bytes.len().wrapping_sub(FOOTER_LEN)).ok_or(WRONG_FOOTER)?;
        let (version, sum) = footer.split_at(2);
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version > VERSION || crc64(&bytes[..bytes.len() - 8]).to_le_bytes() != *sum {
            return Err(WRONG_FOOTER);
        }
        Ok(Self(body))
    }

    /// The value.
    pub fn value(self, made_with: MadeWith<'_>) -> Result<Value<'a>, CommandError> {
        let mut reader = Reader::new(self.0);
        let value = read_value(&mut reader, made_with).map_err(|Malformed| BAD_FORMAT)?;
        if reader.is_done() { Ok(value) } else { Err(BAD_FORMAT) }
    }
}

fn read_value<'a>(reader: &mut Reader<'a>, made_with: MadeWith<'_>) -> Result<Value<'a>, Malformed> {
    match reader.byte()? {
        kind::STRING => Ok(Value::String(reader.string()?)),
        kind::MODULE_2 => {
            let set = vectorset::read(reader, made_with)?;
            Ok(Value::Object(Object::Vector(Box::new(set))))
        }
        _ => Err(Malformed),
    }
}

/// What a value is made with that its payload does not say.
#[derive(Clone, Copy)]
pub struct MadeWith<'a> {
    pub config: &'a Config,
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
mod tests {
    use super::*;

    fn dump_of(text: &[u8]) -> Vec<u8> {
        dump(View::Str(text), Compression::Lzf).expect("strings are dumped")
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
        let config = Config::default();
        let made_with = MadeWith { config: &config, seed: 1 };
        for text in texts {
            let payload = dump_of(text);
            let value = Payload::open(&payload).and_then(|payload| payload.value(made_with));
            let Ok(Value::String(back)) = value else { panic!("{text:?} is not restored") };
            assert_eq!(back, text);
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let payload = dump_of(b"hello world");
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(Payload::open(&changed).err(), Some(WRONG_FOOTER), "byte {at}");
            assert_eq!(Payload::open(&payload[..at]).err(), Some(WRONG_FOOTER), "length {at}");
        }
    }
}
