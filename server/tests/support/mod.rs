//! What every black-box test shares: a server process of its own, a raw socket with a strict decoder, the
//! notation in which replies are written down, and a seeded source of randomness.
//!
//! Nothing here knows a type of the server: a test sees bytes on a socket, as any client does, and the same code
//! drives a real Redis, so that every expectation can be checked against the original.
//!
//! Each integration test is a crate of its own and uses a part of this module, hence the `allow`.
#![allow(dead_code, unreachable_pub)]

pub mod conn;
pub mod crc64;
pub mod dialogue;
pub mod notation;
pub mod peer;
pub mod reply;
pub mod rng;
pub mod server;
pub mod setting;
pub mod shrink;
pub mod vectors;
pub mod words;
