//! The candidates of one layer search: the nearest `ef` seen so far, and which of them are still to be
//! expanded.
//!
//! The paper keeps two heaps (candidates, and the nearest found). Up to `MAX_SORTED` one sorted array serves
//! as both: insertion by binary search, a cursor at the nearest entry not yet expanded. Above it moving the
//! array's tail would cost more than the distances, and the two heaps of the paper take over. Both are
//! bounded by `ef`: nothing is cut short.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::graph::NodeId;

/// A node and its distance to the query (or to the node whose neighbors are chosen).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) distance: f32,
    pub(crate) id: NodeId,
}

impl Candidate {
    /// Ordered as candidates are, in one comparison.
    pub(crate) fn key(&self) -> u64 {
        let bits = self.distance.to_bits();
        // As `total_cmp`: of negative ones all bits are turned, of the others the sign.
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        u64::from(ordered) << 32 | u64::from(self.id.0)
    }
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The largest `ef` for which the sorted array is used.
pub(crate) const MAX_SORTED: usize = 2048;

/// What a node is to the search that meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It may be an answer.
    Answer,
    /// It only leads on: the filter does not admit it.
    Waypoint,
}

pub(crate) trait Pool {
    /// Offers a node seen for the first time; true if it is among the nearest so far, and so may be expanded.
    fn insert(&mut self, candidate: Candidate, role: Role) -> bool;
    /// The nearest node not yet expanded, now counted as expanded; `None` when the nearest `ef` all are.
    fn next(&mut self) -> Option<NodeId>;
    /// A distance from which on no node is kept; infinite as long as any is.
    fn bound(&self) -> f32;
    /// Writes the answers, the nearest first.
    fn finish(&mut self, found: &mut Vec<Candidate>);
}

const EXPANDED: u32 = 1 << 31;

/// Distances that are compared together.
const BLOCK: usize = 16;

/// Distances and ids lie apart, so that a place is found by comparing whole blocks of distances: halving them one
/// after the other waits for each comparison.
#[derive(Default)]
pub(crate) struct SortedPool {
    ef: usize,
    max_ties: usize,
    len: usize,
    /// Ascending; infinite from `len` on, up to a whole block.
    distances: Vec<f32>,
    /// The top bit says whether the node was expanded.
    ids: Vec<u32>,
    /// All entries before it are expanded.
    cursor: usize,
}

impl SortedPool {
    /// Empties the pool. Of nodes at exactly one distance it keeps only the first `max_ties`: otherwise a
    /// group of equal vectors could fill it and hide all that lies behind the group.
    pub(crate) fn begin(&mut self, ef: usize, max_ties: usize) {
        (self.ef, self.max_ties, self.len, self.cursor) = (ef, max_ties, 0, 0);
        self.distances.clear();
        self.ids.clear();
    }

    /// How many entries are not farther than `distance`.
    #[inline(always)]
    fn place_of(&self, distance: f32) -> usize {
        let (blocks, _) = self.distances.as_chunks::<BLOCK>();
        let Some(at) = blocks.iter().position(|block| block[BLOCK - 1] > distance) else { return self.len };
        let n_before = blocks[at].iter().map(|&other| u32::from(other <= distance)).sum::<u32>();
        at * BLOCK + n_before as usize
    }

    /// Makes room for one more entry.
    fn grow(&mut self) {
        if self.len == self.distances.len() {
            self.distances.resize(self.len + BLOCK, f32::INFINITY);
            self.ids.resize(self.len + BLOCK, 0);
        }
        self.len += 1;
    }
}

impl Pool for SortedPool {
    /// Knows no waypoints: searches with a filter use the heaps.
    #[inline]
    fn insert(&mut self, candidate: Candidate, _role: Role) -> bool {
        let Candidate { distance, id } = candidate;
        if distance >= self.bound() || self.ef == 0 {
            return false;
        }
        let at = self.place_of(distance);
        if at >= self.max_ties && self.distances[at - self.max_ties] == distance {
            return false;
        }
        if self.len < self.ef {
            self.grow();
        }
        let last = self.len - 1;
        self.distances.copy_within(at..last, at + 1);
        self.ids.copy_within(at..last, at + 1);
        (self.distances[at], self.ids[at]) = (distance, id.0);
        self.cursor = self.cursor.min(at);
        true
    }

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        for id in &mut self.ids[self.cursor..self.len] {
            self.cursor += 1;
            if *id & EXPANDED == 0 {
                *id |= EXPANDED;
                return Some(NodeId(*id & !EXPANDED));
            }
        }
        None
    }

    #[inline]
    fn bound(&self) -> f32 {
        if self.len == self.ef && self.len > 0 { self.distances[self.len - 1] } else { f32::INFINITY }
    }

    fn finish(&mut self, found: &mut Vec<Candidate>) {
        let entries = self.distances[..self.len].iter().zip(&self.ids);
        let nearest = |(&distance, &id): (&f32, &u32)| Candidate { distance, id: NodeId(id & !EXPANDED) };
        found.clear();
        found.extend(entries.map(nearest));
    }
}

pub(crate) struct HeapPool {
    ef: usize,
    /// Up to this distance every node is kept and expanded, beyond `ef` too.
    reach: f32,
    candidates: BinaryHeap<Reverse<Candidate>>,
    answers: BinaryHeap<Candidate>,
}

impl Default for HeapPool {
    fn default() -> HeapPool {
        HeapPool {
            ef: 0,
            reach: f32::NEG_INFINITY,
            candidates: BinaryHeap::new(),
            answers: BinaryHeap::new(),
        }
    }
}

impl HeapPool {
    /// Empties the pool. It holds the nearest `ef` answers, and all within `reach` (minus infinity for none).
    pub(crate) fn begin(&mut self, ef: usize, reach: f32) {
        (self.ef, self.reach) = (ef, reach);
        self.candidates.clear();
        self.answers.clear();
    }

    /// The distance up to which a node is worth knowing.
    fn limit(&self) -> f32 {
        if self.answers.len() < self.ef {
            return f32::INFINITY;
        }
        self.answers.peek().map_or(self.reach, |worst| worst.distance.max(self.reach))
    }
}

impl Pool for HeapPool {
    fn insert(&mut self, candidate: Candidate, role: Role) -> bool {
        let is_near = candidate.distance <= self.reach || self.answers.len() < self.ef;
        if !is_near && self.answers.peek().is_none_or(|worst| candidate.distance >= worst.distance) {
            return false;
        }
        self.candidates.push(Reverse(candidate));
        if role == Role::Answer {
            self.answers.push(candidate);
            let is_surplus = |worst: &Candidate| worst.distance > self.reach;
            if self.answers.len() > self.ef && self.answers.peek().is_some_and(is_surplus) {
                self.answers.pop();
            }
        }
        true
    }

    fn next(&mut self) -> Option<NodeId> {
        let Reverse(candidate) = self.candidates.pop()?;
        (candidate.distance <= self.limit()).then_some(candidate.id)
    }

    fn bound(&self) -> f32 {
        if self.reach > f32::NEG_INFINITY { f32::INFINITY } else { self.limit() }
    }

    fn finish(&mut self, found: &mut Vec<Candidate>) {
        found.clear();
        found.extend(self.answers.drain());
        found.sort_unstable();
        self.candidates.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_beyond_the_limit_leave_room_for_what_lies_behind() {
        let mut pool = SortedPool::default();
        pool.begin(6, 3);
        let distances = [2.0, 2.0, 2.0, 2.0, 1.0, 3.0, 2.0, 4.0];
        for (id, distance) in distances.into_iter().enumerate() {
            pool.insert(Candidate { distance, id: NodeId(id as u32) }, Role::Answer);
        }
        let mut found = Vec::new();
        pool.finish(&mut found);
        let ids: Vec<u32> = found.iter().map(|candidate| candidate.id.0).collect();
        assert_eq!(ids, [4, 0, 1, 2, 5, 7]);
    }

    /// Feeds both pools the same stream, expanding now and then.
    #[test]
    fn both_pools_keep_the_nearest_and_expand_the_same_nodes() {
        for seed in 1..50_u64 {
            let (mut sorted, mut heaps) = (SortedPool::default(), HeapPool::default());
            let ef = 1 + (seed as usize * 7) % 40;
            sorted.begin(ef, usize::MAX);
            heaps.begin(ef, f32::NEG_INFINITY);
            let mut state = seed;
            let mut all = Vec::new();
            for id in 0..300 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Distances are distinct, so that ties cannot order the two differently.
                let distance = (state >> 44) as f32 + id as f32 / 1024.0;
                let candidate = Candidate { distance, id: NodeId(id) };
                all.push(candidate);
                sorted.insert(candidate, Role::Answer);
                heaps.insert(candidate, Role::Answer);
                if id % 3 == 0 {
                    assert_eq!(sorted.next(), heaps.next(), "seed {seed}");
                }
            }
            while let Some(id) = sorted.next() {
                assert_eq!(heaps.next(), Some(id), "seed {seed}");
            }
            assert_eq!(heaps.next(), None, "seed {seed}");
            all.sort();
            all.truncate(ef);
            let (mut a, mut b) = (Vec::new(), Vec::new());
            sorted.finish(&mut a);
            heaps.finish(&mut b);
            assert_eq!((&a, &b), (&all, &all), "seed {seed}");
        }
    }
}
