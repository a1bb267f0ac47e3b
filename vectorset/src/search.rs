//! A search from question to answer, in slices.
//!
//! ```text
//!   begin:  query -> probe;  choose a way:  scan | graph (descend, level 0)
//!   step:   walk or scan until the budget of distances is spent, again and again;  rescore
//!   hits:   without the dead, the duplicates of a concurrent update, and what lies beyond the radius
//! ```
//!
//! Between slices all state lies in the search: it owns its visited marks and its pool. The caller keeps the
//! guard from `begin` until it has read the hits. Codes estimate: where rows are there too, the nearest few
//! times COUNT are measured anew by them before they are told.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::admission::{ASKED_TOGETHER, Admit, All, Hops};
use crate::epoch::Guard;
use crate::error::Error;
use crate::exact::{self, Precision, Scan};
use crate::hnsw::{MAX_TIES, Probe, Progress};
use crate::params::Metric;
use crate::scratch::SearchScratch;
use crate::set::{Hits, Query, VectorSet};

/// Hits that a scan gathers beyond COUNT.
const SPARE_HITS: usize = 8;

/// Candidates that a scan of codes measures exactly beyond a multiple of COUNT, for small COUNT.
const MORE_SCANNED: usize = 32;

/// Deviations of the estimates by which candidates may be behind and are still measured exactly. A walk
/// misses more by itself (2 cost 0.0005 of recall at EF 80 on 20,000 x 1536, and saved 15 us of 105); small
/// sets are to be exact.
const WALK_CAUTION: f32 = 2.0;
const SCAN_CAUTION: f32 = 5.0;

/// How a search goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Through the graph; a scan where that is cheaper.
    #[default]
    Graph,
    /// Every element, exactly (TRUTH).
    Scan,
}

/// What is wanted of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// Hits at most.
    pub count: usize,
    /// Nodes that a graph search keeps in mind.
    pub ef: usize,
    pub way: Way,
    /// No hit beyond this distance (the cosine's: 0 to 2). If `count` exceeds `ef`, the graph search finds all
    /// within it; otherwise it only cuts.
    pub radius: Option<f32>,
    /// A graph search ends when it has measured this many nodes.
    pub max_measured: usize,
}

impl SearchOptions {
    pub fn new(count: usize, ef: usize) -> SearchOptions {
        SearchOptions { count, ef, way: Way::Graph, radius: None, max_measured: usize::MAX }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Scan(Scan),
    /// All within `reach` are gathered; members below `upto` are still to come.
    Within {
        upto: u32,
        reach: f32,
    },
    /// The walk through level 0 is to be begun: the first step knows what is admitted.
    Enter {
        ef: usize,
        reach: Option<f32>,
    },
    Level0,
    /// Of the candidates before `at`, the first `n_kept` places hold those that are admitted.
    Sift {
        at: usize,
        n_kept: usize,
    },
    /// Candidates before `at` have their exact distance.
    Rescore {
        at: usize,
        caution: f32,
    },
    Done,
}

/// Where a search stands, apart from its buffers.
#[derive(Debug)]
pub(crate) struct State {
    stage: Stage,
    options: SearchOptions,
    changes: u64,
    /// Nodes measured on level 0: what `max_measured` bounds.
    measured: usize,
    /// Distances of any kind so far.
    spent: usize,
    /// Nodes that were asked about after a walk that did not ask.
    n_asked: usize,
}

/// A search that can be suspended.
pub struct Search {
    scratch: SearchScratch,
    state: State,
}

impl Default for Search {
    fn default() -> Search {
        Search::new(SearchScratch::new())
    }
}

impl Search {
    /// A search with these buffers, which has yet to begin.
    pub fn new(scratch: SearchScratch) -> Search {
        Search { scratch, state: State::idle() }
    }

    /// Begins anew: prepares the query and descends to level 0.
    pub fn begin(
        &mut self,
        set: &VectorSet,
        query: Query<'_>,
        options: SearchOptions,
        guard: &Guard,
    ) -> Result<(), Error> {
        self.state = State::begin(set, query, options, &mut self.scratch, guard)?;
        Ok(())
    }

    /// Goes on for about `budget` distances.
    ///
    /// `set`, and what `admission` admits, are the same in all steps; the guard of `begin` is still held.
    pub fn step<A: Admit>(
        &mut self,
        set: &VectorSet,
        admission: &A,
        budget: usize,
        guard: &Guard,
    ) -> Progress {
        self.state.step(set, admission, budget, &mut self.scratch, guard)
    }

    /// The hits of a search that is done.
    pub fn hits<'a>(&'a mut self, set: &'a VectorSet, guard: &'a Guard) -> Hits<'a> {
        self.state.hits(set, &mut self.scratch, guard)
    }

    /// Gives the buffers back.
    pub fn into_scratch(self) -> SearchScratch {
        self.scratch
    }

    /// Distances since `begin`.
    pub fn spent(&self) -> usize {
        self.state.spent
    }
}

impl State {
    /// A search that is done and found nothing.
    pub(crate) fn idle() -> State {
        State {
            stage: Stage::Done,
            options: SearchOptions::new(0, 0),
            changes: 0,
            measured: 0,
            spent: 0,
            n_asked: 0,
        }
    }

    pub(crate) fn begin(
        set: &VectorSet,
        query: Query<'_>,
        options: SearchOptions,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Result<State, Error> {
        let mut state = State::prepare(set, query, options, scratch, guard)?;
        state.choose(set, scratch);
        Ok(state)
    }

    /// A search that knows its query, and has yet to choose its way: until then it finds nothing.
    pub(crate) fn prepare(
        set: &VectorSet,
        query: Query<'_>,
        options: SearchOptions,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Result<State, Error> {
        guard.assert_guards(&set.domain);
        let changes = set.changes.load(Ordering::Acquire);
        set.prepare(query, &mut scratch.probe, guard)?;
        scratch.walk.found.clear();
        Ok(State { stage: Stage::Done, options, changes, measured: 0, spent: 0, n_asked: 0 })
    }

    /// Chooses between graph and scan.
    pub(crate) fn choose(&mut self, set: &VectorSet, scratch: &mut SearchScratch) {
        let options = self.options;
        let len = set.members.len();
        let SearchScratch { probe, walk, .. } = scratch;
        let is_radial = options.radius.is_some() && options.count > options.ef;
        let ef = if is_radial { options.ef } else { options.ef.max(options.count) }.min(len as usize);
        if options.count == 0 || len == 0 {
            return;
        }
        self.stage = match options.way {
            Way::Scan => {
                let wanted = options.count.min(len as usize);
                Stage::Scan(exact::begin(len, wanted, Precision::Exact, walk))
            }
            Way::Graph if !is_radial && exact::is_cheaper(len as usize, ef) => {
                // A few more than wanted, because some may be removed meanwhile.
                let wanted = options.count.saturating_add(SPARE_HITS);
                let wanted = self.n_scanned(set, probe, wanted).min(len as usize);
                Stage::Scan(exact::begin(len, wanted, Precision::Walk, walk))
            }
            Way::Graph => {
                let radius = options.radius.filter(|_| is_radial);
                let reach = radius.map(|radius| set.index.widened(probe, radius));
                let is_scan_cheaper = |&reach: &f32| {
                    exact::is_cheaper_within(&set.index, &set.members, probe, reach, options.ef)
                };
                match reach.filter(is_scan_cheaper) {
                    Some(reach) => {
                        walk.found.clear();
                        Stage::Within { upto: len, reach }
                    }
                    None => match set.index.descend(probe, 0, walk) {
                        None => Stage::Done,
                        Some(_) => Stage::Enter { ef, reach },
                    },
                }
            }
        };
    }

    /// Makes ready for nodes that the caller offers to the walk's pool, instead of a way of its own.
    pub(crate) fn begin_offers(&mut self, set: &VectorSet, n_offers: usize, scratch: &mut SearchScratch) {
        let wanted = self.n_scanned(set, &scratch.probe, self.options.count.saturating_add(SPARE_HITS));
        exact::begin(0, wanted.min(n_offers).max(1), Precision::Walk, &mut scratch.walk);
    }

    /// All nodes were offered: the next steps tell their exact distances.
    pub(crate) fn finish_offers(&mut self, set: &VectorSet, scratch: &mut SearchScratch) {
        set.index.finish_layer(&mut scratch.walk);
        self.stage = Stage::Rescore { at: 0, caution: SCAN_CAUTION };
    }

    /// Makes a search that has yet to choose its way keep so many nodes in mind.
    pub(crate) fn widen(&mut self, ef: usize) {
        self.options.ef = ef;
    }

    pub(crate) fn spent(&self) -> usize {
        self.spent
    }

    pub(crate) fn n_asked(&self) -> usize {
        self.n_asked
    }

    pub(crate) fn options(&self) -> &SearchOptions {
        &self.options
    }

    pub(crate) fn step<A: Admit>(
        &mut self,
        set: &VectorSet,
        admission: &A,
        budget: usize,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Progress {
        guard.assert_guards(&set.domain);
        let mut left = budget;
        let progress = self.go_on(set, admission, &mut left, scratch);
        self.spent += budget - left;
        progress
    }

    fn go_on<A: Admit>(
        &mut self,
        set: &VectorSet,
        admission: &A,
        left: &mut usize,
        scratch: &mut SearchScratch,
    ) -> Progress {
        let SearchScratch { probe, walk, .. } = scratch;
        let index = &set.index;
        loop {
            match &mut self.stage {
                Stage::Scan(scan) => {
                    if exact::step(scan, index, &set.members, probe, admission, left, walk)
                        == Progress::Unfinished
                    {
                        break;
                    }
                    let is_exact = scan.precision == Precision::Exact;
                    index.finish_layer(walk);
                    self.stage =
                        if is_exact { Stage::Done } else { Stage::Rescore { at: 0, caution: SCAN_CAUTION } };
                }
                Stage::Within { upto, reach } => {
                    let members = &set.members;
                    if exact::step_within(upto, *reach, index, members, probe, admission, left, walk)
                        == Progress::Unfinished
                    {
                        break;
                    }
                    // In the order of memory: all are measured anew, and sorted after that.
                    self.stage = match index.is_coded(probe) {
                        true => Stage::Rescore { at: 0, caution: SCAN_CAUTION },
                        false => {
                            walk.found.sort_unstable();
                            Stage::Done
                        }
                    };
                }
                Stage::Enter { ef, reach } => {
                    match reach {
                        Some(reach) => {
                            index.begin_wide(*ef, *reach, admission, walk);
                        }
                        None if A::SELECTIVE && admission.hops() != Hops::Unasked => {
                            index.begin_wide(*ef, f32::NEG_INFINITY, admission, walk)
                        }
                        None => index.begin_layer(*ef, self.options.count.max(MAX_TIES), 0, walk),
                    }
                    self.stage = Stage::Level0;
                }
                Stage::Level0 => {
                    let allowed = self.options.max_measured.saturating_sub(self.measured);
                    let slice = (*left).min(allowed);
                    let mut rest = slice;
                    let is_unasked = A::SELECTIVE && admission.hops() == Hops::Unasked;
                    let progress = if is_unasked {
                        index.walk_layer(probe, &All, &mut rest, walk)
                    } else {
                        index.walk_layer(probe, admission, &mut rest, walk)
                    };
                    let spent = slice - rest;
                    *left -= spent;
                    self.measured += spent;
                    if progress == Progress::Unfinished && self.measured < self.options.max_measured {
                        break;
                    }
                    index.finish_layer(walk);
                    self.stage = match is_unasked {
                        true => Stage::Sift { at: 0, n_kept: 0 },
                        false => Stage::Rescore { at: 0, caution: WALK_CAUTION },
                    };
                }
                Stage::Sift { at, n_kept } => {
                    // Nearest first: no more are measured anew, unless all within a radius are.
                    let n_wanted = match self.options.radius {
                        Some(_) => usize::MAX,
                        None => self
                            .options
                            .count
                            .saturating_add(SPARE_HITS)
                            .saturating_mul(index.rescored_per_hit(probe)),
                    };
                    let cost = 1 + admission.ask_cost();
                    while *at < walk.found.len() && *n_kept < n_wanted && *left > 0 {
                        let n = (*left / cost).clamp(1, ASKED_TOGETHER);
                        let upto = walk.found.len().min(*at + n);
                        *left = left.saturating_sub((upto - *at) * cost);
                        admission.fetch(walk.found[*at..upto].iter().map(|candidate| candidate.id));
                        for place in *at..upto {
                            if *n_kept < n_wanted && admission.admits(walk.found[place].id) {
                                walk.found.swap(*n_kept, place);
                                *n_kept += 1;
                            }
                        }
                        *at = upto;
                    }
                    if *at < walk.found.len() && *n_kept < n_wanted {
                        break;
                    }
                    self.n_asked = *at;
                    walk.found.truncate(*n_kept);
                    self.stage = Stage::Rescore { at: 0, caution: WALK_CAUTION };
                }
                Stage::Rescore { at, caution } => {
                    if !index.is_coded(probe) {
                        self.stage = Stage::Done;
                        continue;
                    }
                    if *at == 0 && self.options.radius.is_none() && *caution == WALK_CAUTION {
                        let kept = self.options.count.saturating_mul(index.rescored_per_hit(probe));
                        walk.found.truncate(kept);
                    }
                    let margin = *caution * index.estimate_deviation(probe);
                    // Without a radius the nearest `count` are wanted, and what is far behind them is not
                    // measured; with one all that is found is.
                    let wanted = self.options.radius.map_or(self.options.count, |_| usize::MAX);
                    if index.rescore(probe, &mut walk.found, at, wanted, margin, left) == Progress::Unfinished
                    {
                        break;
                    }
                    walk.found.truncate(*at);
                    walk.found.sort_unstable();
                    self.stage = Stage::Done;
                }
                Stage::Done => return Progress::Done,
            }
        }
        Progress::Unfinished
    }

    /// Candidates that a scan of codes keeps for `count` hits.
    fn n_scanned(&self, set: &VectorSet, probe: &Probe, count: usize) -> usize {
        if set.index.is_coded(probe) {
            count.saturating_mul(2 * set.index.rescored_per_hit(probe)).saturating_add(MORE_SCANNED)
        } else {
            count
        }
    }

    pub(crate) fn hits<'a>(
        &mut self,
        set: &'a VectorSet,
        scratch: &'a mut SearchScratch,
        guard: &'a Guard,
    ) -> Hits<'a> {
        assert!(matches!(self.stage, Stage::Done), "the search is not done");
        let SearchScratch { probe, walk, .. } = scratch;
        let found = &mut walk.found;
        let radius = self.options.radius.unwrap_or(f32::INFINITY);
        found.retain(|found| found.distance <= radius && !set.index.graph.node(found.id).is_dead());
        if self.changes % 2 == 1 || set.changes.load(Ordering::Acquire) != self.changes {
            // An element replaced (or removed and added again) during the search may have been met as both.
            let mut seen = HashSet::new();
            found.retain(|candidate| seen.insert(set.name(candidate.id, guard)));
        }
        set.index.settle_ties(probe, found, self.options.count);
        found.truncate(self.options.count);
        Hits::new(set, found, guard)
    }
}

/// The score of a distance: the larger, the more similar. 1 - d/2 under the cosine (Redis's), 1 / (1 + d)
/// under the squared Euclidean distance, the inner product itself under that.
pub(crate) fn score(metric: Metric, distance: f32) -> f64 {
    match metric {
        Metric::Cosine => 1.0 - f64::from(distance) / 2.0,
        Metric::L2 => 1.0 / (1.0 + f64::from(distance)),
        Metric::Ip => -f64::from(distance),
    }
}
