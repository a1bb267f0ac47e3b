//! SEARCH-LAYER, and the descent from the entry point.
//!
//! A hop has three phases: drop the neighbors already visited, ask the cache for the rows of the rest,
//! compute. The first keeps the second short, and the second lets the misses of a hop overlap instead of
//! following each other.

use super::Index;
use crate::distance::Block;
use crate::graph::NodeId;
use crate::pool::{Candidate, MAX_SORTED, Pool};
use crate::scratch::{Visited, Walk};

/// Lines of a row asked for ahead; the processor's own prefetcher follows from there. Measured at 384
/// dimensions (24 lines): 0 lines 162 us a search, 4 to 8 lines 148, 24 lines 160 (avx512f; the same shape
/// with avx2).
const LINES_AHEAD: usize = 6;
/// Nodes at exactly one distance that a search keeps, if it is not asked for more.
pub(super) const MAX_TIES: usize = 32;
/// Rows that one kernel call takes.
const LANES: usize = 4;

impl Index {
    /// The `ef` nearest that the graph leads to, in `walk.found`, nearest first, of which `count` are wanted.
    /// Empty if the set is.
    pub(crate) fn search(&self, query: &[Block], count: usize, ef: usize, walk: &mut Walk) {
        walk.found.clear();
        if self.descend(query, 0, walk).is_some() {
            self.search_layer(query, ef, count.max(MAX_TIES), 0, walk);
        }
    }

    /// Goes greedily from the entry point down to the level above `level`; leaves the entry for it in
    /// `walk.found`. Returns the level it began on.
    pub(super) fn descend(&self, query: &[Block], level: usize, walk: &mut Walk) -> Option<usize> {
        let entry = self.graph.entry()?;
        let top = self.graph.node(entry).level();
        walk.found.clear();
        walk.found.push(Candidate { distance: self.distance(query, entry), id: entry });
        for level in (level + 1..=top).rev() {
            self.search_layer(query, 1, 1, level, walk);
        }
        Some(top)
    }

    /// SEARCH-LAYER: from the entry points in `walk.found` to the `ef` nearest of the level, which replace
    /// them.
    pub(crate) fn search_layer(
        &self,
        query: &[Block],
        ef: usize,
        max_ties: usize,
        level: usize,
        walk: &mut Walk,
    ) {
        let Walk { visited, sorted, heaps, fresh, found } = walk;
        if ef <= MAX_SORTED {
            sorted.begin(ef, max_ties);
            self.walk_layer(query, level, sorted, visited, fresh, found);
        } else {
            heaps.begin(ef, max_ties);
            self.walk_layer(query, level, heaps, visited, fresh, found);
        }
    }

    fn walk_layer<P: Pool>(
        &self,
        query: &[Block],
        level: usize,
        pool: &mut P,
        visited: &mut Visited,
        fresh: &mut Vec<NodeId>,
        found: &mut Vec<Candidate>,
    ) {
        visited.begin(self.bound());
        for &entry in found.iter() {
            visited.insert(entry.id);
            pool.insert(entry);
        }
        while let Some(nearest) = pool.next() {
            fresh.clear();
            fresh.extend(self.graph.neighbors(nearest, level).filter(|&id| visited.insert(id)));
            fresh.iter().take(LANES).for_each(|&id| self.rows.prefetch(id, LINES_AHEAD));
            let mut rest = fresh.as_slice();
            while !rest.is_empty() {
                let (four, ahead) = rest.split_at(LANES.min(rest.len()));
                ahead.iter().take(LANES).for_each(|&id| self.rows.prefetch(id, LINES_AHEAD));
                self.distances(query, four, |id, distance| {
                    if pool.insert(Candidate { distance, id }) && level == 0 {
                        // It is likely to be expanded soon.
                        self.graph.prefetch_level0(id);
                    }
                });
                rest = ahead;
            }
        }
        pool.finish(found);
    }
}
