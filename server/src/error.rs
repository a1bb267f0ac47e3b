//! The errors of a command and their exact wire text, in one place.
//!
//! A client's mistake is a value of `CommandError`; its `Display` is the text after the `-` of the error reply, as Redis 8.2.3
//! words it. A bug is a panic and never passes through here. Knows nothing of connections or keys.

use std::borrow::Cow;
use std::fmt;

/// What a handler answers: the reply is already written, or the mistake is told.
pub type Outcome = Result<(), CommandError>;

/// A client's mistake. The dispatcher drops whatever the handler had written and sends this instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    WrongType,
    Syntax,
    NotInteger,
    NotFloat,
    OutOfRange,
    NotPositive,
    NotBetween(i64, i64),
    NoSuchKey,
    IndexOutOfRange,
    /// The command's full name (`get`, `client|list`).
    WrongArity(&'static str),
    StringTooLong,
    InvalidExpire(&'static str),
    Overflow,
    NanOrInfinity,
    DbIndexOutOfRange,
    InvalidDbIndex,
    OutOfMemory,
    NoAuth,
    InvalidCursor,
    MinOrMaxNotFloat,
    /// Any other text, with its code word (`ERR ...`).
    Text(Cow<'static, str>),
    /// A text that carries bytes of the client's own. CR and LF are blanked by the reply writer.
    Bytes(Vec<u8>),
}

impl CommandError {
    /// An error with a fixed text, code word included.
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// An error with a text made at run time, code word included.
    pub fn format(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }

    /// The bytes after the `-`.
    pub fn wire(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Text(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
            Self::Text(Cow::Owned(text)) => Cow::Borrowed(text.as_bytes()),
            other => Cow::Owned(other.to_string().into_bytes()),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::Syntax => "ERR syntax error",
            Self::NotInteger => "ERR value is not an integer or out of range",
            Self::NotFloat => "ERR value is not a valid float",
            Self::OutOfRange => "ERR value is out of range",
            Self::NotPositive => "ERR value is out of range, must be positive",
            Self::NotBetween(min, max) => {
                return write!(f, "ERR value is out of range, value must between {min} and {max}");
            }
            Self::NoSuchKey => "ERR no such key",
            Self::IndexOutOfRange => "ERR index out of range",
            Self::WrongArity(name) => {
                return write!(f, "ERR wrong number of arguments for '{name}' command");
            }
            Self::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Self::InvalidExpire(name) => return write!(f, "ERR invalid expire time in '{name}' command"),
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::NanOrInfinity => "ERR increment would produce NaN or Infinity",
            Self::DbIndexOutOfRange => "ERR DB index is out of range",
            Self::InvalidDbIndex => "ERR invalid DB index",
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::NoAuth => "NOAUTH Authentication required.",
            Self::InvalidCursor => "ERR invalid cursor",
            Self::MinOrMaxNotFloat => "ERR min or max is not a float",
            Self::Text(text) => text,
            Self::Bytes(bytes) => return f.write_str(&String::from_utf8_lossy(bytes)),
        };
        f.write_str(text)
    }
}
