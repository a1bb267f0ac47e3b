//! The Redis wire protocol, both directions. This crate knows no command, does no I/O and has no `unsafe`.
//!
//! | module | direction | for |
//! | --- | --- | --- |
//! | [`request`] | bytes -> argument ranges | the server: an incremental, zero-copy request parser |
//! | [`reply`] | values -> bytes | the server: the only place where RESP2 and RESP3 part |
//! | [`value`] | bytes -> values, arguments -> bytes | clients: load generator and tests |
//! | [`number`] | text <-> numbers | integers, doubles and 80-bit floats exactly as Redis reads and prints them |
//!
//! Texts, limits and edge cases are those of Redis 8.2.3, probed on a live server; where this crate departs from
//! it, the module's first comment numbers the departures.

#![forbid(unsafe_code)]

pub mod number;
pub mod reply;
pub mod request;
pub mod value;

pub use number::{LongDouble, format_f64, parse_f64, parse_i64, parse_u64};
pub use reply::{Proto, Reply};
pub use request::{ArgRange, Limits, Parsed, Parser, ProtocolError};
pub use value::{DecodeError, Decoder, Scan, Scanned, Value, encode_command};
