//! The values behind lists, sets and hashes, as plain data structures.
//!
//! Reading order: `element` (what is stored), `packed` (the small encoding), `list` over `quicklist`, `set` over
//! `intset` and `hash`, whose big encodings are tables of `member`s; `algebra` combines sets.
//!
//! They know no key, no reply, no clock and draw no randomness: a caller passes random numbers in. Encodings
//! change exactly where Redis 8.2.3 changes them (`OBJECT ENCODING` is observable); a changing call is given the
//! `Limits` in force.

pub mod element;
pub mod list;
pub mod packed;
mod quicklist;

pub use element::{Digits, Element};
pub use list::List;

/// The encoding thresholds, by their directives' names.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Positive: elements a node; -1..=-5: 4, 8, 16, 32, 64 KiB a node.
    pub list_max_listpack_size: i32,
    pub set_max_intset_entries: usize,
    pub set_max_listpack_entries: usize,
    pub set_max_listpack_value: usize,
    pub hash_max_listpack_entries: usize,
    pub hash_max_listpack_value: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            list_max_listpack_size: -2,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
        }
    }
}

/// A packed set or hash never grows beyond this, whatever the entry limits say (`lpSafeToAdd`).
const PACKED_MAX_BYTES: usize = 1 << 30;

/// The usable size of an allocation of `n_bytes`: the allocator's size class, eight to a doubling and multiples
/// of 16. A buffer that takes the whole class loses nothing and grows later.
const fn good_size(n_bytes: usize) -> usize {
    if n_bytes <= 128 {
        return n_bytes.next_multiple_of(16);
    }
    let class = 1 << (usize::BITS - 1 - (n_bytes - 1).leading_zeros());
    n_bytes.next_multiple_of(class / 8)
}
