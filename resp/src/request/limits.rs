//! What a request may ask for at most, and the error texts for those that ask for more.
//!
//! Every protocol error of this crate stands here, in Redis's words. After one of them the connection is closed.

use std::fmt;

/// Bounds on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `proto-max-bulk-len`.
    pub max_bulk_len: u64,
    pub max_args: i64,
    /// Bytes of an inline request, and of a header line.
    pub max_inline: usize,
    /// As `max_bulk_len`, with the error for those who have not authenticated.
    pub unauthenticated_max_bulk_len: u64,
    /// As `max_args`, with the error for those who have not authenticated.
    pub unauthenticated_max_args: i64,
}

impl Default for Limits {
    /// Redis's defaults for a client that is authenticated or need not be.
    fn default() -> Limits {
        Limits {
            max_bulk_len: 512 << 20,
            max_args: i32::MAX as i64,
            max_inline: 64 << 10,
            unauthenticated_max_bulk_len: u64::MAX,
            unauthenticated_max_args: i64::MAX,
        }
    }
}

impl Limits {
    /// Redis's defaults for a client that must authenticate first.
    pub fn unauthenticated() -> Limits {
        Limits { unauthenticated_max_bulk_len: 16384, unauthenticated_max_args: 10, ..Limits::default() }
    }
}

/// Why a connection's bytes are no requests. `Display` is Redis's text without `-ERR `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    InvalidMultibulkLength,
    InvalidBulkLength,
    UnauthenticatedMultibulkLength,
    UnauthenticatedBulkLength,
    TooBigMultibulkCount,
    TooBigBulkCount,
    TooBigInline,
    TooBigRequest,
    UnbalancedQuotes,
    ExpectedDollar { got: u8 },
}

impl ProtocolError {
    /// The text for the wire, without `-ERR `. A byte that is no ASCII stands in it as it came.
    pub fn text(&self) -> Vec<u8> {
        match self {
            ProtocolError::ExpectedDollar { got } => {
                let mut text = b"Protocol error: expected '$', got '?'".to_vec();
                let at = text.len() - 2;
                text[at] = *got;
                text
            }
            other => other.to_string().into_bytes(),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::TooBigMultibulkCount => "too big mbulk count string",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::TooBigInline => "too big inline request",
            ProtocolError::TooBigRequest => "too big request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::ExpectedDollar { got } => {
                return write!(f, "Protocol error: expected '$', got '{}'", char::from(*got));
            }
        };
        write!(f, "Protocol error: {what}")
    }
}

impl std::error::Error for ProtocolError {}
