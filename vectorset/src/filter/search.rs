//! A search whose hits have to match a filter, in slices.
//!
//! ```text
//!   TRUTH, or a small set:  scan of the members, each asked
//!   list known?  few matches:   scan of the listed, side by side or in memory order
//!                many:          walk by two hops, asking the list
//!   unknown:     sample; many and not asked for often:  walk, asking the attributes
//!                otherwise:     make the list, then as above
//!   a walk that found fewer than COUNT:  make the list (if it is unknown) and scan it
//! ```
//!
//! So by default COUNT hits are found whenever COUNT elements match. `SearchOptions::max_measured` (FILTER-EF)
//! bounds the effort instead: then a walk ends when it has measured as many nodes, and lists are scanned only
//! if they are no longer than that. Departure from Redis, whose default FILTER-EF of 100 x COUNT finds fewer
//! hits where few elements match.

use super::compile::Filter;
use super::matches::{HOT, Known, Making, is_match};
use crate::admission::{Admit, Hops};
use crate::epoch::Guard;
use crate::error::Error;
use crate::exact::{self, Precision};
use crate::graph::NodeId;
use crate::hnsw::Progress;
use crate::pool::{Candidate, Pool, Role};
use crate::scratch::{ActivePool, SearchScratch};
use crate::search::{SearchOptions, State, Way};
use crate::set::{Hits, Query, VectorSet};

/// Elements asked to find out how many match.
const SAMPLE: u32 = 256;
/// Matches per unit of EF up to which a scan of them costs less than a walk.
const SCANNED_PER_EF: usize = 48;
/// The same where their codes lie side by side.
const SCANNED_PER_EF_IN_BLOCK: usize = 80;
/// Elements asked in the time in which a walk gains a unit of EF, if all match: making a list costs less than
/// one walk up to that many elements, times EF, over the share that matches.
const ASKED_PER_EF: f64 = 25.0;
/// Questions of a filter that cost about as much as a distance.
const QUESTIONS_PER_DISTANCE: usize = 1;
/// Nodes asked ahead of the one measured.
const NODES_AHEAD: usize = 8;

/// A search with a filter that can be suspended.
pub struct FilteredSearch {
    scratch: SearchScratch,
    state: FilteredState,
}

impl FilteredSearch {
    /// A search with these buffers, which has yet to begin.
    pub fn new(scratch: SearchScratch) -> FilteredSearch {
        FilteredSearch { scratch, state: FilteredState::idle() }
    }

    /// Begins anew: prepares the query and chooses a way.
    pub fn begin(
        &mut self,
        set: &VectorSet,
        query: Query<'_>,
        options: SearchOptions,
        filter: &Filter,
        guard: &Guard,
    ) -> Result<(), Error> {
        self.state = FilteredState::begin(set, query, options, filter, &mut self.scratch, guard)?;
        Ok(())
    }

    /// Goes on for about `budget` distances. `set` and `filter` are those of `begin`, whose guard is still
    /// held.
    pub fn step(&mut self, set: &VectorSet, filter: &Filter, budget: usize, guard: &Guard) -> Progress {
        self.state.step(set, filter, budget, &mut self.scratch, guard)
    }

    /// The hits of a search that is done.
    pub fn hits<'a>(&'a mut self, set: &'a VectorSet, guard: &'a Guard) -> Hits<'a> {
        self.state.state.hits(set, &mut self.scratch, guard)
    }

    /// Gives the buffers back.
    pub fn into_scratch(self) -> SearchScratch {
        self.scratch
    }
}

enum Stage {
    /// The members or the graph, the attributes asked as they are met.
    Direct,
    /// The graph, the list asked.
    Walk(Known),
    Make(Making),
    /// The listed from this place on.
    Scan(Known, usize),
    Done,
}

/// Where a search stands, apart from its buffers.
pub(crate) struct FilteredState {
    pub(crate) state: State,
    stage: Stage,
    uses: u64,
}

impl FilteredState {
    fn idle() -> FilteredState {
        FilteredState { state: State::idle(), stage: Stage::Done, uses: 0 }
    }

    pub(crate) fn begin(
        set: &VectorSet,
        query: Query<'_>,
        options: SearchOptions,
        filter: &Filter,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Result<FilteredState, Error> {
        let mut state = State::prepare(set, query, options, scratch, guard)?;
        // Without an attribute nothing matches.
        if options.count == 0 || set.attributes_count() == 0 {
            return Ok(FilteredState { state, stage: Stage::Done, uses: 0 });
        }
        let ef = options.ef.max(options.count);
        let cache = set.matches.get().filter(|_| options.way == Way::Graph);
        let Some(cache) = cache else {
            state.choose(set, scratch);
            return Ok(FilteredState { state, stage: Stage::Direct, uses: 0 });
        };
        let uses = cache.note_use(filter);
        let mut search = FilteredState { state, stage: Stage::Done, uses };
        if let Some(known) = cache.find(set, filter, uses, guard) {
            search.enter(set, known, scratch);
            return Ok(search);
        }
        let len = set.len();
        let share = sampled_share(set, filter, uses);
        let is_list_cheaper = (len as f64) < ASKED_PER_EF * ef as f64 / share || uses >= HOT;
        if is_list_cheaper && len <= options.max_measured {
            search.stage = Stage::Make(Making::begin(set, cache));
        } else {
            search.state.choose(set, scratch);
            search.stage = Stage::Direct;
        }
        Ok(search)
    }

    /// Chooses between walk and scan, when it is known what matches.
    fn enter(&mut self, set: &VectorSet, known: Known, scratch: &mut SearchScratch) {
        let options = *self.state.options();
        let ef = options.ef.max(options.count);
        let per_ef = if known.block().is_some() { SCANNED_PER_EF_IN_BLOCK } else { SCANNED_PER_EF };
        let n = known.len();
        let is_scanned = n <= ef.saturating_mul(per_ef) && n <= options.max_measured;
        if known.is_listed() && is_scanned {
            self.begin_scan(set, known, scratch);
        } else {
            self.state.choose(set, scratch);
            self.stage = Stage::Walk(known);
        }
    }

    fn begin_scan(&mut self, set: &VectorSet, known: Known, scratch: &mut SearchScratch) {
        if known.len() == 0 {
            self.stage = Stage::Done;
            return;
        }
        self.state.begin_offers(set, known.len(), scratch);
        self.stage = Stage::Scan(known, 0);
    }

    pub(crate) fn step(
        &mut self,
        set: &VectorSet,
        filter: &Filter,
        budget: usize,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Progress {
        guard.assert_guards(&set.domain);
        let mut left = budget;
        while left > 0 {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Done => return self.state.step(set, &Nothing, left, scratch, guard),
                Stage::Direct => {
                    let admission = Asking { set, filter };
                    if self.state.step(set, &admission, left, scratch, guard) == Progress::Unfinished {
                        self.stage = Stage::Direct;
                        return Progress::Unfinished;
                    }
                    self.make_if_too_few(set, scratch);
                    left /= 2;
                }
                Stage::Walk(known) => {
                    if self.state.step(set, &known, left, scratch, guard) == Progress::Unfinished {
                        self.stage = Stage::Walk(known);
                        return Progress::Unfinished;
                    }
                    let n_wanted = self.state.options().count.min(known.len());
                    if self.is_to_be_complete() && scratch.walk.found.len() < n_wanted && known.is_listed() {
                        self.begin_scan(set, known, scratch);
                    }
                    left /= 2;
                }
                Stage::Make(mut making) => {
                    let asked = left.saturating_mul(QUESTIONS_PER_DISTANCE);
                    let asked = (asked / filter.n_steps().div_ceil(8)).max(16);
                    if !making.step(set, filter, asked) {
                        self.stage = Stage::Make(making);
                        return Progress::Unfinished;
                    }
                    self.finish_making(set, filter, making, scratch);
                    left /= 2;
                }
                Stage::Scan(known, at) => {
                    let upto = known.listed().len().min(at.saturating_add(left));
                    scan(set, &known, at, upto, scratch);
                    left -= upto - at;
                    if upto < known.listed().len() {
                        self.stage = Stage::Scan(known, upto);
                        return Progress::Unfinished;
                    }
                    exact::offer(
                        Precision::Walk,
                        &set.index,
                        &scratch.probe,
                        known.newly(),
                        &mut scratch.walk,
                    );
                    self.state.finish_offers(set, scratch);
                }
            }
        }
        Progress::Unfinished
    }

    /// Whether COUNT hits are due, if so many match: not if the effort is bounded, nor if a radius asks for all
    /// that lies within it.
    fn is_to_be_complete(&self) -> bool {
        let options = self.state.options();
        let is_radial = options.radius.is_some() && options.count > options.ef;
        options.max_measured == usize::MAX && !is_radial
    }

    /// After a walk that did not know what matches.
    fn make_if_too_few(&mut self, set: &VectorSet, scratch: &SearchScratch) {
        let options = self.state.options();
        let is_short = scratch.walk.found.len() < options.count && options.way == Way::Graph;
        if let Some(cache) = set.matches.get()
            && is_short
            && self.is_to_be_complete()
        {
            self.stage = Stage::Make(Making::begin(set, cache));
        }
    }

    fn finish_making(
        &mut self,
        set: &VectorSet,
        filter: &Filter,
        making: Making,
        scratch: &mut SearchScratch,
    ) {
        let cache = set.matches.get().expect("lists are made where there is a cache");
        match making.finish(set, cache, filter, self.uses) {
            Some(known) => self.enter(set, known, scratch),
            // Everything changed meanwhile: ask as we go.
            None => {
                self.state.choose(set, scratch);
                self.stage = Stage::Direct;
            }
        }
    }
}

/// The share of the members that match, at least one in twice the sample.
fn sampled_share(set: &VectorSet, filter: &Filter, seed: u64) -> f64 {
    let len = set.members.len();
    let n = SAMPLE.min(len).max(1);
    let stride = len as f64 / f64::from(n);
    // The golden ratio: each use samples other members.
    let phase = (seed as f64 * 0.618_033_988_749_895).fract();
    let place = |i: u32| ((f64::from(i) + phase) * stride) as u32;
    let ids = (0..n).filter_map(|i| set.members.get(place(i)));
    let n_matches = ids.filter(|&id| is_match(&set.index, filter, id)).count();
    (n_matches as f64).max(0.5) / f64::from(n)
}

/// Offers the listed from place `at` up to `upto`.
fn scan(set: &VectorSet, known: &Known, at: usize, upto: usize, scratch: &mut SearchScratch) {
    let ids = &known.listed()[at..upto];
    let SearchScratch { probe, walk, .. } = scratch;
    let Some(block) = known.block() else {
        let fresh = ids.iter().enumerate().filter_map(|(i, &id)| {
            if let Some(&ahead) = ids.get(i + NODES_AHEAD) {
                set.index.prefetch(ahead);
            }
            (!known.is_changed(id)).then_some(id)
        });
        return exact::offer(Precision::Walk, &set.index, probe, fresh, walk);
    };
    let mut offer = |id, distance| {
        if !known.is_changed(id) {
            let candidate = Candidate { distance, id };
            match walk.pool {
                ActivePool::Sorted => walk.sorted.insert(candidate, Role::Answer),
                ActivePool::Heaps => walk.heaps.insert(candidate, Role::Answer),
            };
        }
    };
    let (fours, rest) = ids.as_chunks::<4>();
    for (i, four) in fours.iter().enumerate() {
        let distances = block.distance4(&set.index, probe, (at + i * 4) as u32);
        four.iter().zip(distances).for_each(|(&id, distance)| offer(id, distance));
    }
    for (i, &id) in rest.iter().enumerate() {
        offer(id, block.distance(&set.index, probe, (at + fours.len() * 4 + i) as u32));
    }
}

/// Asks each node's attribute.
struct Asking<'a> {
    set: &'a VectorSet,
    filter: &'a Filter,
}

impl Admit for Asking<'_> {
    fn admits(&self, id: NodeId) -> bool {
        is_match(&self.set.index, self.filter, id)
    }
}

impl Admit for Known {
    #[inline(always)]
    fn admits(&self, id: NodeId) -> bool {
        self.has(id)
    }

    fn hops(&self) -> Hops {
        Hops::Two
    }
}

/// For the steps of a search that asks no more.
struct Nothing;

impl Admit for Nothing {
    fn admits(&self, _id: NodeId) -> bool {
        false
    }
}
