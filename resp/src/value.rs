//! The client's side: replies as a tree, requests as bytes. For load generators and tests; the server never uses it.
//!
//! | what | for |
//! | --- | --- |
//! | [`Scan`] | finds where a reply ends, and whether it is an error, without building it; remembers how far it came |
//! | [`Decoder`] | builds a [`Value`] of a whole reply |
//! | [`encode_command`] | writes a request |
//!
//! A client that reads large replies in pieces scans until the end is known and decodes once: linear time.
//! Depth, sizes and line lengths are bounded, so that a broken peer cannot exhaust stack or memory.

mod scan;

use crate::number::parse_i64;
use crate::reply::{push_bulk, push_length};
use std::fmt;

pub use scan::{Scan, Scanned};

/// One reply, as it came. RESP2's two nulls and RESP3's one are kept apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(Vec<u8>),
    /// With its code word, without the minus.
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    /// RESP2's `$-1`.
    NullBulk,
    /// RESP2's `*-1`.
    NullArray,
    /// RESP3's `_`.
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Double(f64),
    Boolean(bool),
    BigNumber(Vec<u8>),
    Verbatim {
        format: [u8; 3],
        text: Vec<u8>,
    },
    /// RESP3's `!`: an error that may hold any byte.
    BulkError(Vec<u8>),
    Attributed {
        attributes: Vec<(Value, Value)>,
        value: Box<Value>,
    },
}

impl Value {
    /// An error of either form.
    pub fn is_error(&self) -> bool {
        match self {
            Value::Error(_) | Value::BulkError(_) => true,
            Value::Attributed { value, .. } => value.is_error(),
            Value::Simple(_) | Value::Integer(_) | Value::Bulk(_) | Value::NullBulk | Value::NullArray => {
                false
            }
            Value::Null | Value::Array(_) | Value::Map(_) | Value::Set(_) | Value::Push(_) => false,
            Value::Double(_) | Value::Boolean(_) | Value::BigNumber(_) | Value::Verbatim { .. } => false,
        }
    }
}

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    UnknownType { byte: u8 },
    InvalidLength,
    InvalidNumber,
    InvalidBoolean,
    InvalidVerbatim,
    LineTooLong,
    TooDeep,
    TooLarge,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnknownType { byte } => write!(f, "unknown reply type byte 0x{byte:02x}"),
            DecodeError::InvalidLength => f.write_str("invalid length in a reply"),
            DecodeError::InvalidNumber => f.write_str("invalid number in a reply"),
            DecodeError::InvalidBoolean => f.write_str("invalid boolean in a reply"),
            DecodeError::InvalidVerbatim => f.write_str("invalid verbatim string in a reply"),
            DecodeError::LineTooLong => f.write_str("line too long in a reply"),
            DecodeError::TooDeep => f.write_str("reply nested too deep"),
            DecodeError::TooLarge => f.write_str("reply too large"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Builds values. The fields are its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder {
    pub max_depth: usize,
    pub max_bulk_len: usize,
    /// Elements of one aggregate.
    pub max_elements: usize,
    pub max_line: usize,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { max_depth: 128, max_bulk_len: 512 << 20, max_elements: 1 << 30, max_line: 1 << 20 }
    }
}

impl Decoder {
    /// The reply at the head of `buf` and its length in bytes; `None` while it is incomplete.
    ///
    /// ```
    /// use skerry_resp::{Decoder, Value};
    /// assert_eq!(Decoder::default().decode(b":7\r\n+"), Ok(Some((Value::Integer(7), 4))));
    /// assert_eq!(Decoder::default().decode(b":7"), Ok(None));
    /// ```
    pub fn decode(&self, buf: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
        let mut at = 0;
        match self.value(buf, &mut at, 0) {
            Ok(value) => Ok(Some((value, at))),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Broken(error)) => Err(error),
        }
    }

    fn value(&self, buf: &[u8], at: &mut usize, depth: usize) -> Result<Value, Stop> {
        if depth > self.max_depth {
            return Err(DecodeError::TooDeep.into());
        }
        let kind = *buf.get(*at).ok_or(Stop::Incomplete)?;
        let text = line(buf, at, self.max_line)?;
        Ok(match kind {
            b'+' => Value::Simple(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Integer(parse_i64(text).ok_or(DecodeError::InvalidNumber)?),
            b',' => Value::Double(double(text)?),
            b'#' => Value::Boolean(boolean(text)?),
            b'(' => Value::BigNumber(big_number(text)?),
            b'_' if text.is_empty() => Value::Null,
            b'$' if text == b"-1" => Value::NullBulk,
            b'*' if text == b"-1" => Value::NullArray,
            b'$' => Value::Bulk(self.body(buf, at, text)?.to_vec()),
            b'!' => Value::BulkError(self.body(buf, at, text)?.to_vec()),
            b'=' => match self.body(buf, at, text)? {
                [a, b, c, b':', text @ ..] => Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() },
                _ => return Err(DecodeError::InvalidVerbatim.into()),
            },
            b'*' => Value::Array(self.elements(buf, at, text, depth)?),
            b'~' => Value::Set(self.elements(buf, at, text, depth)?),
            b'>' => Value::Push(self.elements(buf, at, text, depth)?),
            b'%' => Value::Map(self.pairs(buf, at, text, depth)?),
            b'|' => {
                let attributes = self.pairs(buf, at, text, depth)?;
                // One deeper, so that a chain of attributes is bounded too.
                let value = Box::new(self.value(buf, at, depth + 1)?);
                Value::Attributed { attributes, value }
            }
            byte => return Err(DecodeError::UnknownType { byte }.into()),
        })
    }

    fn body<'b>(&self, buf: &'b [u8], at: &mut usize, text: &[u8]) -> Result<&'b [u8], Stop> {
        let len = length(text, self.max_bulk_len)?;
        let body = buf[*at..].get(..len).ok_or(Stop::Incomplete)?;
        match &buf[*at + len..] {
            [b'\r', b'\n', ..] => *at += len + 2,
            [] | [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(DecodeError::InvalidLength.into()),
        }
        Ok(body)
    }

    fn elements(&self, buf: &[u8], at: &mut usize, text: &[u8], depth: usize) -> Result<Vec<Value>, Stop> {
        let n = length(text, self.max_elements)?;
        let mut all = Vec::with_capacity(n.min((buf.len() - *at) / MIN_REPLY_LEN));
        for _ in 0..n {
            all.push(self.value(buf, at, depth + 1)?);
        }
        Ok(all)
    }

    fn pairs(
        &self,
        buf: &[u8],
        at: &mut usize,
        text: &[u8],
        depth: usize,
    ) -> Result<Vec<(Value, Value)>, Stop> {
        let n = length(text, self.max_elements)?;
        let mut all = Vec::with_capacity(n.min((buf.len() - *at) / (2 * MIN_REPLY_LEN)));
        for _ in 0..n {
            let key = self.value(buf, at, depth + 1)?;
            all.push((key, self.value(buf, at, depth + 1)?));
        }
        Ok(all)
    }
}

/// Appends a request.
///
/// ```
/// let mut out = Vec::new();
/// skerry_resp::encode_command(&["GET", "k"], &mut out);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// ```
pub fn encode_command(args: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    push_length(out, b'*', args.len());
    for arg in args {
        push_bulk(out, arg.as_ref());
    }
}

/// `_\r\n`.
const MIN_REPLY_LEN: usize = 3;

/// Why a value was not built.
enum Stop {
    Incomplete,
    Broken(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Stop {
        Stop::Broken(error)
    }
}

/// The text between the type byte at `at` and CR LF; `at` moves behind it.
fn line<'b>(buf: &'b [u8], at: &mut usize, max_line: usize) -> Result<&'b [u8], Stop> {
    let rest = &buf[*at + 1..];
    let window = &rest[..rest.len().min(max_line + 1)];
    let Some(cr) = memchr::memchr(b'\r', window) else {
        return Err(if rest.len() > max_line { DecodeError::LineTooLong.into() } else { Stop::Incomplete });
    };
    match rest.get(cr + 1) {
        None => Err(Stop::Incomplete),
        Some(b'\n') => {
            *at += cr + 3;
            Ok(&rest[..cr])
        }
        Some(_) => Err(DecodeError::InvalidLength.into()),
    }
}

fn length(text: &[u8], max: usize) -> Result<usize, Stop> {
    let length = parse_i64(text).and_then(|length| usize::try_from(length).ok());
    match length.ok_or(DecodeError::InvalidLength)? {
        length if length > max => Err(DecodeError::TooLarge.into()),
        length => Ok(length),
    }
}

/// RESP3's own float syntax, `nan` included.
fn double(text: &[u8]) -> Result<f64, DecodeError> {
    let text = str::from_utf8(text).map_err(|_| DecodeError::InvalidNumber)?;
    text.parse().map_err(|_| DecodeError::InvalidNumber)
}

fn boolean(text: &[u8]) -> Result<bool, DecodeError> {
    match text {
        b"t" => Ok(true),
        b"f" => Ok(false),
        _ => Err(DecodeError::InvalidBoolean),
    }
}

fn big_number(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecodeError::InvalidNumber);
    }
    Ok(text.to_vec())
}
