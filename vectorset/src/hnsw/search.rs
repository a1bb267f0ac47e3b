//! SEARCH-LAYER, and the descent from the entry point.
//!
//! A hop has three phases: drop the neighbors already visited, ask the cache for the codes (or rows) of the
//! rest, compute. The first keeps the second short, and the second lets the misses of a hop overlap instead
//! of following each other. A layer search is begun, walked in slices of a budget of distances, and finished;
//! between slices all its state lies in `Walk`.

use super::{Index, Probe};
use crate::admission::{Admit, All, Hops};
use crate::codes::Codes;
use crate::graph::NodeId;
use crate::pool::{Candidate, MAX_SORTED, Pool, Role};
use crate::scratch::{ActivePool, Visited, Walk};
use crate::sync::Ordering;

/// Nodes at exactly one distance that a search keeps, if it is not asked for more.
pub(crate) const MAX_TIES: usize = 32;
/// Rows that one kernel call takes.
const LANES: usize = 4;
/// Nodes asked for ahead of the one computed.
const NODES_AHEAD: usize = 8;

/// Whether a piece of work is done or wants another slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Unfinished,
    Done,
}

impl Index {
    /// Goes greedily down to the level above `level`, from the tallest node and, on the levels that they have,
    /// from the nearest of the other entry points; leaves the entry for `level` in `walk.found`. Returns the
    /// level it began on. A few hundred distances at most.
    pub(crate) fn descend(&self, probe: &Probe, level: usize, walk: &mut Walk) -> Option<usize> {
        let entry = self.graph.entry()?;
        let top = self.graph.node(entry).level();
        let mut entries = std::mem::take(&mut walk.entries);
        self.measure_entries(probe, &mut entries);
        walk.found.clear();
        walk.found.push(Candidate { distance: self.distance(probe, entry), id: entry });
        for level in (level + 1..=top).rev() {
            let reaches = |entry: &&Candidate| self.graph.node(entry.id).level() >= level;
            for entry in entries.iter().filter(reaches) {
                if entry.distance < walk.found[0].distance {
                    walk.found[0] = *entry;
                }
            }
            self.search_layer(probe, 1, 1, level, walk);
        }
        walk.entries = entries;
        Some(top)
    }

    /// The entry points, in no order.
    fn measure_entries(&self, probe: &Probe, entries: &mut Vec<Candidate>) {
        entries.clear();
        let mut four = [NodeId(0); LANES];
        let mut n = 0;
        for id in self.graph.entries() {
            four[n] = id;
            n += 1;
            if n == LANES {
                self.distances(probe, &four, |id, distance| entries.push(Candidate { distance, id }));
                n = 0;
            }
        }
        self.distances(probe, &four[..n], |id, distance| entries.push(Candidate { distance, id }));
    }

    /// SEARCH-LAYER: from the entry points in `walk.found` to the `ef` nearest of the level, which replace
    /// them.
    pub(crate) fn search_layer(
        &self,
        probe: &Probe,
        ef: usize,
        max_ties: usize,
        level: usize,
        walk: &mut Walk,
    ) {
        self.begin_layer(ef, max_ties, level, walk);
        let mut unlimited = usize::MAX;
        self.walk_layer(probe, &All, &mut unlimited, walk);
        self.finish_layer(walk);
    }

    /// Begins a layer search without a filter from the entry points in `walk.found`.
    pub(crate) fn begin_layer(&self, ef: usize, max_ties: usize, level: usize, walk: &mut Walk) {
        if ef <= MAX_SORTED {
            walk.pool = ActivePool::Sorted;
            walk.sorted.begin(ef, max_ties);
        } else {
            walk.pool = ActivePool::Heaps;
            walk.heaps.begin(ef, f32::NEG_INFINITY);
        }
        self.enter(level, &All, walk);
    }

    /// Begins a search of level 0 whose answers a filter admits, or that finds all within `reach` (minus
    /// infinity: only the nearest `ef`).
    pub(crate) fn begin_wide<F: Admit>(&self, ef: usize, reach: f32, filter: &F, walk: &mut Walk) {
        walk.pool = ActivePool::Heaps;
        walk.heaps.begin(ef, reach);
        self.enter(0, filter, walk);
    }

    /// Measures candidates, which are sorted by their estimates, exactly and in place, from `at` on, until
    /// all are, or until the rest is by `margin` too far for the nearest `wanted`, or until the budget is
    /// spent. `at` is left where it ends.
    pub(crate) fn rescore(
        &self,
        probe: &Probe,
        candidates: &mut [Candidate],
        at: &mut usize,
        wanted: usize,
        margin: f32,
        budget: &mut usize,
    ) -> Progress {
        candidates[*at..].iter().take(LANES).for_each(|candidate| self.prefetch_exact(candidate.id));
        while *at < candidates.len() {
            if *budget == 0 {
                return Progress::Unfinished;
            }
            let (done, rest) = candidates.split_at_mut(*at);
            if done.len() >= wanted && rest[0].distance > kth_nearest(done, wanted) + margin {
                return Progress::Done;
            }
            let (four, ahead) = rest.split_at_mut(LANES.min(rest.len()));
            ahead.iter().take(LANES).for_each(|candidate| self.prefetch_exact(candidate.id));
            let mut ids = [NodeId(0); LANES];
            ids.iter_mut().zip(four.iter()).for_each(|(to, candidate)| *to = candidate.id);
            let mut places = four.iter_mut();
            self.exact_distances(probe, &ids[..places.len()], |_, distance| {
                if let Some(candidate) = places.next() {
                    candidate.distance = distance;
                }
            });
            *at += four.len();
            *budget = budget.saturating_sub(four.len());
        }
        Progress::Done
    }

    fn enter<F: Admit>(&self, level: usize, filter: &F, walk: &mut Walk) {
        let Walk { pool, visited, sorted, heaps, found, .. } = walk;
        walk.level = level;
        visited.begin(self.bound());
        for &entry in found.iter() {
            visited.insert(entry.id);
            match pool {
                ActivePool::Sorted => sorted.insert(entry, Role::Answer),
                ActivePool::Heaps => heaps.insert(entry, role_of(filter, entry.id)),
            };
        }
    }

    /// Goes on with a layer search until it is done or `budget` distances are spent.
    pub(crate) fn walk_layer<F: Admit>(
        &self,
        probe: &Probe,
        filter: &F,
        budget: &mut usize,
        walk: &mut Walk,
    ) -> Progress {
        match walk.pool {
            ActivePool::Sorted => {
                let mut pool = std::mem::take(&mut walk.sorted);
                let progress = self.walk_pool(probe, &mut pool, filter, budget, walk);
                walk.sorted = pool;
                progress
            }
            ActivePool::Heaps => {
                let mut pool = std::mem::take(&mut walk.heaps);
                let progress = self.walk_pool(probe, &mut pool, filter, budget, walk);
                walk.heaps = pool;
                progress
            }
        }
    }

    /// Leaves the answers of a layer search in `walk.found`, nearest first.
    pub(crate) fn finish_layer(&self, walk: &mut Walk) {
        match walk.pool {
            ActivePool::Sorted => walk.sorted.finish(&mut walk.found),
            ActivePool::Heaps => walk.heaps.finish(&mut walk.found),
        }
    }

    fn walk_pool<P: Pool, F: Admit>(
        &self,
        probe: &Probe,
        pool: &mut P,
        filter: &F,
        budget: &mut usize,
        walk: &mut Walk,
    ) -> Progress {
        if !F::SELECTIVE
            && let Some(codes) = self.codes.at(probe.rung())
        {
            return self.walk_codes(probe, codes, pool, budget, walk);
        }
        let Walk { level, visited, fresh, roles, .. } = walk;
        let level = *level;
        while *budget > 0 {
            let Some(nearest) = pool.next() else { return Progress::Done };
            self.gather(nearest, level, visited, fresh, roles, filter);
            *budget = budget.saturating_sub(fresh.len().max(1));
            fresh.iter().take(NODES_AHEAD).for_each(|&id| self.prefetch(probe, id));
            let mut rest = fresh.as_slice();
            while !rest.is_empty() {
                let (four, ahead) = rest.split_at(LANES.min(rest.len()));
                ahead.iter().skip(NODES_AHEAD - LANES).take(LANES).for_each(|&id| self.prefetch(probe, id));
                let mut role = roles.iter().skip(fresh.len() - rest.len());
                self.distances(probe, four, |id, distance| {
                    let role = if F::SELECTIVE { role.next() } else { None };
                    let role = role.copied().unwrap_or(Role::Answer);
                    if pool.insert(Candidate { distance, id }, role) && level == 0 {
                        // It is likely to be expanded soon.
                        self.graph.prefetch_level0(id);
                    }
                });
                rest = ahead;
            }
        }
        Progress::Unfinished
    }

    /// The walk of those that have codes and no filter.
    fn walk_codes<P: Pool>(
        &self,
        probe: &Probe,
        codes: &Codes,
        pool: &mut P,
        budget: &mut usize,
        walk: &mut Walk,
    ) -> Progress {
        let Walk { level, visited, fresh, places, distances, .. } = walk;
        let level = *level;
        while *budget > 0 {
            let Some(nearest) = pool.next() else { return Progress::Done };
            let slots = self.graph.slots(nearest, level);
            fresh.resize(slots.len(), NodeId(0));
            let n = visited.sift(slots.iter().map(|slot| NodeId(slot.load(Ordering::Acquire))), fresh);
            *budget = budget.saturating_sub(n.max(1));
            places.clear();
            places.extend(fresh[..n].iter().map(|&id| codes.approach(id)));
            distances.resize(slots.len(), 0.0);
            codes.distances_at(&probe.code, places, self.kernels, &mut distances[..n]);
            let mut bound = pool.bound();
            for (&id, &distance) in fresh.iter().zip(&distances[..n]) {
                if distance < bound && pool.insert(Candidate { distance, id }, Role::Answer) {
                    bound = pool.bound();
                    if level == 0 {
                        // It is likely to be expanded soon.
                        self.graph.prefetch_level0(id);
                    }
                }
            }
        }
        Progress::Unfinished
    }

    /// The unvisited neighbors of a node, marked as visited, and their roles if the filter is selective.
    #[inline(always)]
    fn gather<F: Admit>(
        &self,
        node: NodeId,
        level: usize,
        visited: &mut Visited,
        fresh: &mut Vec<NodeId>,
        roles: &mut Vec<Role>,
        filter: &F,
    ) {
        if F::SELECTIVE && filter.hops() == Hops::Two {
            return self.gather_two_hops(node, level, visited, fresh, roles, filter);
        }
        // All slots: those that end the list are beyond every bound, and so count as seen.
        let slots = self.graph.slots(node, level);
        fresh.resize(slots.len(), NodeId(0));
        let n = visited.sift(slots.iter().map(|slot| NodeId(slot.load(Ordering::Acquire))), fresh);
        fresh.truncate(n);
        if F::SELECTIVE {
            roles.clear();
            roles.extend(fresh.iter().map(|&id| role_of(filter, id)));
        }
    }

    /// Admitted neighbors, and admitted neighbors of the others; if there is none at all, the others too, so
    /// that the walk leads on.
    fn gather_two_hops<F: Admit>(
        &self,
        node: NodeId,
        level: usize,
        visited: &mut Visited,
        fresh: &mut Vec<NodeId>,
        roles: &mut Vec<Role>,
        filter: &F,
    ) {
        fresh.clear();
        roles.clear();
        let mut passed = Vec::new();
        for neighbor in self.graph.neighbors(node, level) {
            if !visited.insert(neighbor) {
                continue;
            }
            if filter.admits(neighbor) {
                fresh.push(neighbor);
                continue;
            }
            passed.push(neighbor);
            for second in self.graph.neighbors(neighbor, level) {
                if !visited.contains(second) && filter.admits(second) && visited.insert(second) {
                    fresh.push(second);
                }
            }
        }
        roles.resize(fresh.len(), Role::Answer);
        if fresh.is_empty() {
            roles.resize(passed.len(), Role::Waypoint);
            fresh.extend(passed);
        }
    }
}

#[inline(always)]
fn role_of<F: Admit>(filter: &F, id: NodeId) -> Role {
    if !F::SELECTIVE || filter.admits(id) { Role::Answer } else { Role::Waypoint }
}

/// The distance of the `k`-th nearest of candidates in any order, of which there are at least `k`.
fn kth_nearest(candidates: &[Candidate], k: usize) -> f32 {
    let mut distances: Vec<f32> = candidates.iter().map(|candidate| candidate.distance).collect();
    *distances.select_nth_unstable_by(k - 1, f32::total_cmp).1
}
