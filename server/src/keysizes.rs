//! How many keys of each type are how large, for INFO's section Keysizes: bins of powers of two.
//!
//! Redis counts at every write. Here nothing is done at writes: the keys are walked when somebody asks. Few keys are walked at once and
//! told as they are. Of more, INFO tells what the last walk has found, and begins another one, in slices, if that is some time ago.
//!
//! Knows no reply. Cost: a look at each key a walk, at most one walk in `REST_MS`; a few KiB once somebody has asked.

use crate::keyspace::{Keyspace, ScanPosition, View};

/// Keys of a shard that are walked as soon as they are asked for.
const WALKED_AT_ONCE: usize = 8192;
/// How long what a walk has found is good enough.
const REST_MS: i64 = 10_000;

/// The names of the types' fields, in Redis's order.
pub(crate) const FIELDS: [&str; 5] =
    ["strings_sizes", "lists_items", "sets_items", "zsets_items", "hashes_items"];

const N_BINS: usize = 64;

type Counts = [[u64; N_BINS]; FIELDS.len()];

/// One bin that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    pub db: u16,
    pub field: u8,
    /// 0 of size 0, else one more than the size's binary logarithm.
    pub bin: u8,
    pub n_keys: u64,
}

#[derive(Default)]
pub struct Keysizes {
    /// What the last walk has found; none: there was none.
    found: Vec<Bin>,
    ended_ms: Option<i64>,
    walk: Option<Walk>,
}

struct Walk {
    db: usize,
    at: ScanPosition,
    counts: Box<Counts>,
    found: Vec<Bin>,
}

impl Walk {
    fn begin() -> Self {
        Self {
            db: 0,
            at: ScanPosition::default(),
            counts: Box::new([[0; N_BINS]; FIELDS.len()]),
            found: Vec::new(),
        }
    }

    /// Looks at about `budget` keys; true at the end.
    fn step(&mut self, keyspaces: &[Keyspace], budget: usize) -> bool {
        let mut n = 0;
        while n < budget {
            let Some(keyspace) = keyspaces.get(self.db) else { return true };
            if !keyspace.is_empty() {
                let counts = &mut self.counts;
                self.at = keyspace.scan(self.at, |entry| {
                    n += 1;
                    if let Some((field, size)) = size_of_view(&entry.view()) {
                        counts[field][bin_of(size)] += 1;
                    }
                });
            }
            if keyspace.is_empty() || self.at == ScanPosition::default() {
                self.end_database();
            }
        }
        false
    }

    fn end_database(&mut self) {
        for (field, bins) in self.counts.iter_mut().enumerate() {
            for (bin, n_keys) in bins.iter_mut().enumerate().filter(|(_, n_keys)| **n_keys > 0) {
                let n_keys = std::mem::take(n_keys);
                self.found.push(Bin { db: self.db as u16, field: field as u8, bin: bin as u8, n_keys });
            }
        }
        self.db += 1;
        self.at = ScanPosition::default();
    }
}

impl Keysizes {
    /// What there is to tell.
    pub fn look(&mut self, keyspaces: &[Keyspace], now_ms: i64) -> &[Bin] {
        let n_keys: usize = keyspaces.iter().map(Keyspace::len).sum();
        if n_keys <= WALKED_AT_ONCE {
            let mut walk = Walk::begin();
            while !walk.step(keyspaces, usize::MAX) {}
            *self = Self { found: walk.found, ..Self::default() };
        } else if self.walk.is_none() && self.ended_ms.is_none_or(|ended_ms| now_ms - ended_ms >= REST_MS) {
            self.walk = Some(Walk::begin());
        }
        &self.found
    }

    pub fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Goes on with a walk that was begun.
    pub fn step(&mut self, keyspaces: &[Keyspace], now_ms: i64, budget: usize) {
        if let Some(walk) = &mut self.walk
            && walk.step(keyspaces, budget)
        {
            self.found = std::mem::take(&mut walk.found);
            self.walk = None;
            self.ended_ms = Some(now_ms);
        }
    }
}

/// Which field counts a value, and its size there.
fn size_of_view(view: &View<'_>) -> Option<(usize, usize)> {
    Some(match view {
        View::Int(number) => (0, itoa::Buffer::new().format(*number).len()),
        View::Str(bytes) => (0, bytes.len()),
        View::Shared(bytes) => (0, bytes.len()),
        View::List(list) => (1, list.len()),
        View::Set(set) => (2, set.len()),
        View::Zset(zset) => (3, zset.len()),
        View::Hash(hash) => (4, hash.len()),
        View::Stream(_) | View::Vector(_) | View::Lent => return None,
    })
}

fn bin_of(size: usize) -> usize {
    size.checked_ilog2().map_or(0, |log| log as usize + 1).min(N_BINS - 1)
}

/// How Redis writes the size at which a bin begins: `0`, `1`, `512`, `8K`.
pub(crate) fn bin_name(bin: u8) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    match bin.checked_sub(1) {
        None => "0".to_owned(),
        Some(log) => format!("{}{}", 1_u64 << (log % 10), UNITS[usize::from(log / 10).min(UNITS.len() - 1)]),
    }
}

/// Bins as numbers, for a part of a reply, and back.
impl Bin {
    pub fn to_numbers(self) -> [i64; 2] {
        let which = i64::from(self.db) << 16 | i64::from(self.field) << 8 | i64::from(self.bin);
        [which, self.n_keys as i64]
    }

    pub fn of_numbers([which, n_keys]: [i64; 2]) -> Self {
        Self { db: (which >> 16) as u16, field: (which >> 8) as u8, bin: which as u8, n_keys: n_keys as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_redis_s_names() {
        let cases =
            [(0, "0"), (1, "1"), (2, "2"), (3, "2"), (5, "4"), (1000, "512"), (1024, "1K"), (8751, "8K")];
        for (size, name) in cases {
            assert_eq!(bin_name(bin_of(size) as u8), name, "{size}");
        }
        assert_eq!(bin_name(bin_of(1 << 29) as u8), "512M");
        assert_eq!(bin_name(bin_of(usize::MAX) as u8), "4E");
    }

    #[test]
    fn numbers_are_the_bin() {
        let bin = Bin { db: 300, field: 4, bin: 63, n_keys: 1 << 40 };
        assert_eq!(Bin::of_numbers(bin.to_numbers()), bin);
    }
}
