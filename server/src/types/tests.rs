//! The values against plain models, and against what Redis 8.2.3 answered.
//!
//! `recorded/*.txt` hold random programs that a live Redis 8.2.3 ran, with the length and OBJECT ENCODING after each
//! command. The models are std's collections; after each step the invariants are checked.

mod aggregate_model;
mod bitmap_model;
mod encodings;
mod hash_model;
mod hyperloglog_model;
mod idempotence_model;
mod list_model;
mod memory;
mod set_model;
mod stream_model;
mod zset_model;

use super::{Element, Limits};
use crate::keyspace::hash::HashSeed;

fn limits() -> Limits {
    Limits::new(HashSeed::from_u64(1))
}

/// A small generator of random bits (splitmix64): a failing seed can be run again.
fn bits_from(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

fn owned(element: Option<Element<'_>>) -> Option<Vec<u8>> {
    element.map(|element| element.to_vec())
}
