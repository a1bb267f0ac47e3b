//! The candidates of one layer search whose distances are counts of bits: a list for each count.
//!
//! ```text
//!   bit d of `filled`: list d holds something       of `open`: something that was not expanded
//!   open_heads[d]    ─► entry ─► entry              the newest first: it is expanded next, or makes room
//!   expanded_heads[d] ─► entry
//! ```
//!
//! Many nodes are equally far there, and a node is kept, expanded or given up in constant time, whatever `ef`
//! is: the sorted pool moves its tail for each. What a list's places hold means nothing while its bit is not
//! set, so beginning anew costs a bit a list. Invariant: `len` is the sum of all counts and at most `ef`.

use crate::codes::hamming_distance;
use crate::graph::NodeId;
use crate::pool::{Candidate, Pool, Role};

/// The end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    id: NodeId,
    next: u32,
}

/// The nodes at one distance.
#[derive(Clone, Copy)]
struct List {
    open: u32,
    expanded: u32,
    len: u32,
}

const EMPTY: List = List { open: NONE, expanded: NONE, len: 0 };

#[derive(Default)]
pub(crate) struct BucketPool {
    ef: usize,
    max_ties: u32,
    len: usize,
    /// The largest count.
    n_bits: usize,
    /// What `Pool::bound` tells.
    bound: f32,
    lists: Vec<List>,
    filled: Vec<u64>,
    open: Vec<u64>,
    /// No word of `open` before it has a bit.
    cursor: usize,
    /// The farthest list that is filled, if any is.
    farthest: usize,
    entries: Vec<Entry>,
    /// A place in `entries` that was given up.
    vacant: u32,
}

impl BucketPool {
    /// Empties the pool, for the distances between vectors of `n_bits` bits. Of nodes at one distance it keeps
    /// only the first `max_ties`, as the sorted pool does.
    pub(crate) fn begin(&mut self, ef: usize, max_ties: usize, n_bits: usize) {
        (self.ef, self.max_ties) = (ef, u32::try_from(max_ties).unwrap_or(u32::MAX));
        (self.n_bits, self.bound) = (n_bits, if ef == 0 { f32::NEG_INFINITY } else { f32::INFINITY });
        (self.len, self.cursor, self.farthest, self.vacant) = (0, 0, 0, NONE);
        let n_words = n_bits / 64 + 1;
        for bits in [&mut self.filled, &mut self.open] {
            bits.clear();
            bits.resize(n_words, 0);
        }
        self.lists.resize(n_bits + 1, EMPTY);
        self.entries.clear();
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        (self.filled.capacity() + self.open.capacity()) * size_of::<u64>()
            + self.lists.capacity() * size_of::<List>()
            + self.entries.capacity() * size_of::<Entry>()
    }

    fn entry(&mut self, entry: Entry) -> u32 {
        if self.vacant != NONE {
            let at = std::mem::replace(&mut self.vacant, NONE);
            self.entries[at as usize] = entry;
            return at;
        }
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Gives up one of the farthest, rather one that was not expanded.
    fn give_up(&mut self) {
        let at = self.farthest;
        let list = &mut self.lists[at];
        let head = if list.open != NONE { &mut list.open } else { &mut list.expanded };
        self.vacant = *head;
        *head = self.entries[*head as usize].next;
        list.len -= 1;
        self.len -= 1;
        if list.open == NONE {
            self.open[at / 64] &= !(1 << (at % 64));
        }
        if list.len == 0 {
            self.filled[at / 64] &= !(1 << (at % 64));
            self.farthest = self.filled[..=at / 64]
                .iter()
                .enumerate()
                .rev()
                .find(|(_, bits)| **bits != 0)
                .map_or(0, |(word, bits)| word * 64 + bits.ilog2() as usize);
        }
    }
}

impl Pool for BucketPool {
    /// Knows no waypoints, as the sorted pool.
    #[inline]
    fn insert(&mut self, candidate: Candidate, _role: Role) -> bool {
        let Candidate { distance, id } = candidate;
        if distance >= self.bound {
            return false;
        }
        let at = (distance * self.n_bits as f32 * 0.5).round_ties_even() as usize;
        let (word, bit) = (at / 64, 1 << (at % 64));
        if self.filled[word] & bit == 0 {
            self.lists[at] = EMPTY;
        }
        let List { open, len, .. } = self.lists[at];
        if len >= self.max_ties {
            return false;
        }
        if self.len == self.ef {
            // Of a list that is nearer than the farthest one.
            self.give_up();
        }
        let entry = self.entry(Entry { id, next: open });
        let list = &mut self.lists[at];
        (list.open, list.len) = (entry, len + 1);
        self.len += 1;
        self.filled[word] |= bit;
        self.open[word] |= bit;
        self.cursor = self.cursor.min(word);
        self.farthest = self.farthest.max(at);
        if self.len == self.ef {
            self.bound = hamming_distance(self.farthest as i32, self.n_bits);
        }
        true
    }

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        let skipped = self.open[self.cursor..].iter().position(|&bits| bits != 0)?;
        self.cursor += skipped;
        let bits = &mut self.open[self.cursor];
        let list = &mut self.lists[self.cursor * 64 + bits.trailing_zeros() as usize];
        let at = list.open;
        let entry = &mut self.entries[at as usize];
        list.open = std::mem::replace(&mut entry.next, list.expanded);
        list.expanded = at;
        if list.open == NONE {
            *bits &= *bits - 1;
        }
        Some(entry.id)
    }

    #[inline]
    fn bound(&self) -> f32 {
        self.bound
    }

    fn finish(&mut self, found: &mut Vec<Candidate>) {
        found.clear();
        for (word, &bits) in self.filled.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let at = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let distance = hamming_distance(at as i32, self.n_bits);
                let List { open, expanded, .. } = self.lists[at];
                for mut entry in [expanded, open] {
                    while let Some(&Entry { id, next }) = self.entries.get(entry as usize) {
                        found.push(Candidate { distance, id });
                        entry = next;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SortedPool;

    /// Feeds both pools the same stream: whatever they keep among equals, their distances are the same.
    #[test]
    fn it_keeps_the_same_distances_as_the_sorted_pool() {
        for seed in 1..200_u64 {
            let (mut sorted, mut buckets) = (SortedPool::default(), BucketPool::default());
            let ef = 1 + (seed as usize * 7) % 60;
            let max_ties = if seed % 3 == 0 { 4 } else { usize::MAX };
            sorted.begin(ef, max_ties);
            buckets.begin(ef, max_ties, 130);
            let (mut state, mut n_expanded) = (seed, 0);
            for id in 0..400 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let distance = hamming_distance(((state >> 40) % 131) as i32, 130);
                let candidate = Candidate { distance, id: NodeId(id) };
                assert_eq!(sorted.bound(), buckets.bound(), "seed {seed}");
                let is_kept = sorted.insert(candidate, Role::Answer);
                assert_eq!(buckets.insert(candidate, Role::Answer), is_kept, "seed {seed}");
                if id % 40 == 39 {
                    n_expanded += usize::from(buckets.next().is_some());
                }
            }
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let mut expanded = Vec::new();
            while let Some(id) = buckets.next() {
                expanded.push(id);
            }
            sorted.finish(&mut a);
            buckets.finish(&mut b);
            let distances = |found: &[Candidate]| found.iter().map(|c| c.distance).collect::<Vec<f32>>();
            assert_eq!(distances(&a), distances(&b), "seed {seed}");
            assert!(expanded.len() + n_expanded >= b.len(), "seed {seed}: not all were expanded");
            let mut ids: Vec<NodeId> = b.iter().map(|candidate| candidate.id).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), b.len(), "seed {seed}: one is there twice");
        }
    }
}
