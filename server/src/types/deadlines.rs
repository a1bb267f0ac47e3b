//! `Deadlines`: what is due when. A hash keeps its fields' deadlines in one, a keyspace those of its hashes.
//!
//! An item is a deadline and a hash, by which the owner finds what it stands for again: nothing here points anywhere. Few
//! items are a sorted vector, more a [`Ranking`].
//!
//! Two things with the same hash and the same deadline are two equal items; whichever is taken out, the other one is left.
//! It knows no clock. Cost: O(log n), first item O(log n); 14 to 21 bytes an item.

use std::cmp::Ordering;

use super::member::{DEADLINE_BYTES, DEADLINE_MAX_MS};
use super::ranking::Ranking;
use super::runs::Runs;

/// More items than this are ranked: what a ranking's least memory has room for.
const FEW_MAX: usize = 36;

/// Something that ends at `deadline_ms` (Unix time); ordered by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    pub deadline_ms: i64,
    pub hash: u64,
}

impl Due {
    fn filed(self) -> Filed {
        debug_assert!((0..=DEADLINE_MAX_MS).contains(&self.deadline_ms));
        let bytes = self.deadline_ms.to_le_bytes();
        Filed { deadline_ms: *bytes.first_chunk().expect("eight bytes hold six"), hash: self.hash }
    }
}

/// The same as it is kept: the six bytes that a deadline has.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Filed {
    deadline_ms: [u8; DEADLINE_BYTES],
    hash: u64,
}

impl Filed {
    #[inline]
    fn due(&self) -> Due {
        let mut bytes = [0; size_of::<i64>()];
        bytes[..DEADLINE_BYTES].copy_from_slice(&self.deadline_ms);
        Due { deadline_ms: i64::from_le_bytes(bytes), hash: self.hash }
    }
}

pub struct Deadlines(Order);

enum Order {
    Few(Vec<Filed>),
    Many(Ranking<Filed>),
}

impl Default for Deadlines {
    fn default() -> Self {
        Self(Order::Few(Vec::new()))
    }
}

impl Deadlines {
    /// All these, in whatever order they come.
    pub fn of_unordered(all: impl Iterator<Item = Due>) -> Self {
        let mut runs = Runs::new();
        all.for_each(|due| runs.push(due.filed(), by_deadline));
        let ranking = runs.rank(by_deadline);
        if ranking.len() > FEW_MAX {
            return Self(Order::Many(ranking));
        }
        let mut few = Vec::with_capacity(ranking.len());
        few.extend(ranking.ascending(0..ranking.len()).copied());
        Self(Order::Few(few))
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Order::Few(few) => few.len(),
            Order::Many(ranking) => ranking.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item that is due first.
    #[inline]
    pub fn first(&self) -> Option<Due> {
        match &self.0 {
            Order::Few(few) => few.first().map(Filed::due),
            Order::Many(ranking) => ranking.get(0).map(Filed::due),
        }
    }

    /// Item number `rank`.
    pub fn get(&self, rank: usize) -> Option<Due> {
        match &self.0 {
            Order::Few(few) => few.get(rank).map(Filed::due),
            Order::Many(ranking) => ranking.get(rank).map(Filed::due),
        }
    }

    /// Number of items whose deadline is before `now_ms`.
    pub fn n_before(&self, now_ms: i64) -> usize {
        match &self.0 {
            Order::Few(few) => few.partition_point(|filed| filed.due().deadline_ms < now_ms),
            Order::Many(ranking) => ranking.partition_point(|filed| filed.due().deadline_ms < now_ms),
        }
    }

    pub fn insert(&mut self, due: Due) {
        match &mut self.0 {
            Order::Few(few) if few.len() < FEW_MAX => {
                if few.len() == few.capacity() {
                    few.reserve_exact((few.len() + 1).next_power_of_two().min(FEW_MAX) - few.len());
                }
                few.insert(few.partition_point(|other| other.due() < due), due.filed());
            }
            Order::Few(few) => {
                let mut ranking = Ranking::new();
                few.iter().for_each(|filed| ranking.insert(*filed, by_deadline));
                ranking.insert(due.filed(), by_deadline);
                self.0 = Order::Many(ranking);
            }
            Order::Many(ranking) => ranking.insert(due.filed(), by_deadline),
        }
    }

    /// Takes one such item out; false if there is none.
    pub fn remove(&mut self, due: Due) -> bool {
        match &mut self.0 {
            Order::Few(few) => few.binary_search_by_key(&due, Filed::due).map(|at| few.remove(at)).is_ok(),
            Order::Many(ranking) => {
                let is_there = ranking.remove(&due.filed(), by_deadline);
                if ranking.len() == 0 {
                    *self = Self::default();
                }
                is_there
            }
        }
    }

    /// All items, first due first.
    pub fn iter(&self) -> impl Iterator<Item = Due> {
        let (few, many) = match &self.0 {
            Order::Few(few) => (Some(few.iter()), None),
            Order::Many(ranking) => (None, Some(ranking.ascending(0..ranking.len()))),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten()).map(Filed::due)
    }

    /// Bytes allocated below this value.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Order::Few(few) => few.capacity() * size_of::<Filed>(),
            Order::Many(ranking) => ranking.memory_bytes(),
        }
    }

    /// Frees about `budget` items; true when none is left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let is_empty = match &mut self.0 {
            Order::Few(_) => true,
            Order::Many(ranking) => ranking.free_slice(budget),
        };
        if is_empty {
            *self = Self::default();
        }
        is_empty
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        match &self.0 {
            Order::Few(few) => assert!(few.is_sorted_by_key(Filed::due) && few.capacity() <= FEW_MAX),
            Order::Many(ranking) => ranking.check(by_deadline),
        }
    }
}

impl Clone for Deadlines {
    fn clone(&self) -> Self {
        Self::of_unordered(self.iter())
    }
}

fn by_deadline(a: &Filed, b: &Filed) -> Ordering {
    a.due().cmp(&b.due())
}
