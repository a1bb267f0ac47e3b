//! The values behind lists, sets, hashes and sorted sets, as plain data structures.
//!
//! Reading order: `element` (what is stored), `packed` (the small encoding), `list` over `quicklist`, `set` over
//! `intset` and `hash`, whose big encoding is `members`; `deadlines` says which of a hash's fields end when; `zset` keeps a
//! table of them beside its `ranking` (`runs` brings items in order that come in none); `stream` is a directory of its own; `algebra` combines sets. `bitmap`, `hyperloglog` and `lcs` are what commands do with the
//! bytes of strings.
//!
//! They know no key, no reply, no clock and draw no randomness: a caller passes random numbers in. Encodings
//! change exactly where Redis 8.2.3 changes them (`OBJECT ENCODING` is observable); a changing call is given the
//! `Limits` in force.

pub mod aggregate;
pub mod algebra;
pub mod bitmap;
pub mod deadlines;
pub mod element;
pub mod geohash;
pub mod hash;
pub mod hyperloglog;
mod intset;
pub mod lcs;
pub mod list;
pub mod member;
mod members;
mod node;
pub mod packed;
mod quicklist;
mod ranking;
mod runs;
pub mod set;
pub mod stream;
pub mod zset;

pub use element::{Digits, Element};
pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use stream::Stream;
pub use zset::Zset;

use crate::keyspace::hash::HashSeed;

/// The encoding thresholds, by their directives' names, and the seed of the tables that are made when they are passed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Positive: elements a node; -1..=-5: 4, 8, 16, 32, 64 KiB a node.
    pub list_max_listpack_size: i32,
    pub set_max_intset_entries: usize,
    pub set_max_listpack_entries: usize,
    pub set_max_listpack_value: usize,
    pub hash_max_listpack_entries: usize,
    pub hash_max_listpack_value: usize,
    pub zset_max_listpack_entries: usize,
    pub zset_max_listpack_value: usize,
    pub seed: HashSeed,
}

impl Limits {
    /// Redis's defaults.
    pub fn new(seed: HashSeed) -> Self {
        Self {
            list_max_listpack_size: -2,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            seed,
        }
    }
}

/// A packed set or hash never grows beyond this, whatever the entry limits say (`lpSafeToAdd`).
const PACKED_MAX_BYTES: usize = 1 << 30;

/// One of three iterators over the same items: an encoding each.
enum OneOf<A, B, C> {
    First(A),
    Second(B),
    Third(C),
}

impl<T, A: Iterator<Item = T>, B: Iterator<Item = T>, C: Iterator<Item = T>> Iterator for OneOf<A, B, C> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match self {
            OneOf::First(items) => items.next(),
            OneOf::Second(items) => items.next(),
            OneOf::Third(items) => items.next(),
        }
    }

    /// One look at which it is instead of one an item: `for_each` and what is made of it come here.
    #[inline]
    fn fold<R, F: FnMut(R, T) -> R>(self, init: R, fold: F) -> R {
        match self {
            OneOf::First(items) => items.fold(init, fold),
            OneOf::Second(items) => items.fold(init, fold),
            OneOf::Third(items) => items.fold(init, fold),
        }
    }
}

/// Hands `n` of the `len` items to `take` and the others to `leave`, each subset with the same chance, in order
/// (Knuth's selection sampling).
fn choose<T>(
    items: impl Iterator<Item = T>,
    len: usize,
    n: usize,
    random: &mut impl FnMut() -> u64,
    mut take: impl FnMut(T),
    mut leave: impl FnMut(T),
) {
    let mut left = n;
    for (i, item) in items.enumerate() {
        if left > 0 && below(len - i, random) < left {
            take(item);
            left -= 1;
        } else {
            leave(item);
        }
    }
}

/// A number below `n` from 64 random bits; the bias of 2^-64 * n is nobody's concern.
#[inline]
fn below(n: usize, random: &mut impl FnMut() -> u64) -> usize {
    ((u128::from(random()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests;
