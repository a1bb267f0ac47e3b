//! What one search needs besides the graph: a worker keeps one and lends it to every search and insert it
//! runs.
//!
//! Its size is bounded by the largest set searched with it (two bytes a node for the visited marks) and by
//! the largest `ef` in use, never by a number that a client merely declared. `shrink` gives memory back.

use crate::codes::Place;
use crate::graph::NodeId;
use crate::hnsw::{Plan, Probe, Selection};
use crate::pool::{Candidate, HeapPool, Role, SortedPool};

/// Buffers of a search; reusable for any set.
#[derive(Default)]
pub struct SearchScratch {
    /// The query.
    pub(crate) probe: Probe,
    pub(crate) walk: Walk,
    pub(crate) plan: Plan,
    pub(crate) selection: Selection,
}

impl SearchScratch {
    pub fn new() -> SearchScratch {
        SearchScratch::default()
    }

    /// Gives back what only big sets or big `ef` need.
    pub fn shrink(&mut self) {
        *self = SearchScratch::default();
    }

    /// Bytes held between searches.
    pub fn memory_bytes(&self) -> usize {
        self.walk.visited.marks.capacity() * size_of::<u16>()
            + self.walk.found.capacity() * size_of::<Candidate>()
            + self.probe.capacity_bytes()
    }
}

/// The state of a walk through the graph, apart from the query that it walks towards.
#[derive(Default)]
pub(crate) struct Walk {
    pub(crate) level: usize,
    pub(crate) pool: ActivePool,
    pub(crate) visited: Visited,
    pub(crate) sorted: SortedPool,
    pub(crate) heaps: HeapPool,
    /// Neighbors of the node being expanded that were not visited before.
    pub(crate) fresh: Vec<NodeId>,
    /// Where their codes lie, and how far they are.
    pub(crate) places: Vec<Place>,
    pub(crate) distances: Vec<f32>,
    /// What they are, where a filter decides.
    pub(crate) roles: Vec<Role>,
    /// Entry points before a layer search, its result after it: nearest first.
    pub(crate) found: Vec<Candidate>,
    /// Where the descent may begin.
    pub(crate) entries: Vec<Candidate>,
}

/// Which pool a walk is using.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ActivePool {
    #[default]
    Sorted,
    Heaps,
}

/// Which nodes a search has seen: a stamp per node, so that a new search costs nothing.
#[derive(Default)]
pub(crate) struct Visited {
    /// One for each id below `bound`, and one that is always seen, for all others.
    marks: Vec<u16>,
    current: u16,
    bound: u32,
}

impl Visited {
    /// Forgets all marks and covers ids below `bound`.
    pub(crate) fn begin(&mut self, bound: u32) {
        if self.marks.len() <= bound as usize {
            self.marks.resize(bound as usize + 1, 0);
        }
        self.bound = bound;
        self.current = self.current.wrapping_add(1);
        if self.current == 0 {
            self.marks.fill(0);
            self.current = 1;
        }
        self.marks[bound as usize] = self.current;
    }

    /// Marks a node; true if it had no mark. Nodes made after `begin` lie beyond the marks and count as seen:
    /// the search answers for the set as it was when it began.
    #[inline(always)]
    pub(crate) fn insert(&mut self, id: NodeId) -> bool {
        let mark = &mut self.marks[id.0.min(self.bound) as usize];
        let is_fresh = *mark != self.current;
        *mark = self.current;
        is_fresh
    }

    #[inline(always)]
    pub(crate) fn contains(&self, id: NodeId) -> bool {
        self.marks[id.0.min(self.bound) as usize] == self.current
    }

    /// Marks all of `ids` and copies those that had no mark to `fresh`, in order; returns how many. `fresh` is
    /// as long as `ids`. No branch depends on a mark: which neighbors were seen is beyond any prediction.
    #[inline(always)]
    pub(crate) fn sift(&mut self, ids: impl Iterator<Item = NodeId>, fresh: &mut [NodeId]) -> usize {
        let marks = &mut self.marks[..=self.bound as usize];
        let mut n = 0;
        for id in ids {
            let mark = &mut marks[id.0.min(self.bound) as usize];
            fresh[n] = id;
            n += usize::from(*mark != self.current);
            *mark = self.current;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_forgotten_even_when_the_stamp_wraps() {
        let mut visited = Visited::default();
        for round in 0..70_000 {
            visited.begin(3);
            assert!(visited.insert(NodeId(1)), "round {round}");
            assert!(!visited.insert(NodeId(1)));
            assert!(!visited.insert(NodeId(3)), "beyond the bound");
        }
    }
}
