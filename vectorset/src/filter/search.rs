//! A search whose hits have to match a filter, in slices.
//!
//! ```text
//!   TRUTH, or a small set:   scan of the members, each asked
//!   otherwise the cheaper of
//!     walk:  as without a filter, by an EF that allows for those that do not match; the nearest are asked
//!     list:  of all that match, remembered or made;  scanned
//!   a walk that found fewer than COUNT:  list;  if that is too long, a walk by two hops
//! ```
//!
//! Both are estimated from the share that matches, which is sampled and remembered. By default COUNT hits are
//! found whenever COUNT elements match. `SearchOptions::max_measured` (FILTER-EF) bounds the effort instead:
//! then a walk ends when it has measured as many nodes, and no longer list is made or scanned. Departure from
//! Redis, whose default FILTER-EF of 100 x COUNT finds fewer hits where few elements match.

use super::compile::{ASK_COST, Filter, STEP_COST};
use super::matches::{Found, HOT, Known, Making, Sample, fetch_attributes, is_match};
use crate::admission::{Admit, Hops};
use crate::epoch::Guard;
use crate::error::Error;
use crate::exact::{self, Precision};
use crate::graph::NodeId;
use crate::hnsw::{Block, Probe, Progress};
use crate::pool::{Candidate, Pool, Role};
use crate::scratch::{ActivePool, SearchScratch};
use crate::search::{SearchOptions, State, Way};
use crate::set::{Hits, Query, VectorSet};

/// What a unit of EF costs a walk, in distances of a scan, and the EF that makes it dearer by one, because a
/// longer pool is moved. Measured on text384, 20,000 and 60,000 rows: 0.7 to 1.7 us, and 13 ns.
const WALK_COST: f64 = 70.0;
const EF_PER_COST: f64 = 30.0;
/// What a listed element costs, if its code does not lie beside those of the others.
const SCATTERED_COST: f64 = 2.0;
/// Uses after which a list is worth making even for a walk to ask.
const VERY_HOT: u64 = 16;
/// How many matches a walk is to meet for each that is wanted: the last of COUNT lies about where COUNT over the share are
/// nearer, give or take its root, the share is a guess, and the far end of a pool is not complete.
const MET_PER_HIT: f64 = 1.75;
/// An expression of more steps is asked of as few elements as possible, and each time of few: no walk asks at every node.
const LONG_PROGRAM: usize = 500;
/// A walk that is repeated takes the share for so many times less than it has seen.
const CAUTION: f64 = 1.5;
/// What `begin` may spend on its own.
const BEGIN_BUDGET: usize = 4096;

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

    /// Distances since `begin`, and what else was done, in the time of distances.
    pub fn spent(&self) -> usize {
        self.state.state.spent() + self.state.spent
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
    /// How many match is still to be found out.
    Sample(Sample),
    /// The members or the graph, the attributes asked.
    Ask(Hops),
    /// The graph, the list asked.
    AskList(Known, Hops),
    Make(Making),
    /// The listed from this place on.
    Scan(Known, usize),
    Done,
}

/// Where a search stands, apart from its buffers.
pub(crate) struct FilteredState {
    pub(crate) state: State,
    stage: Stage,
    /// EF as it was given, or COUNT if that is more.
    ef: usize,
    uses: u64,
    /// There was a list, and writes have outrun it.
    is_too_old: bool,
    /// A walk found too few.
    is_short: bool,
    /// A walk was repeated with a larger EF.
    is_repeated: bool,
    /// Beside what `state` has spent.
    spent: usize,
}

impl FilteredState {
    fn idle() -> FilteredState {
        FilteredState::new(State::idle(), 0)
    }

    fn new(state: State, ef: usize) -> FilteredState {
        FilteredState {
            state,
            stage: Stage::Done,
            ef,
            uses: 0,
            is_too_old: false,
            is_short: false,
            is_repeated: false,
            spent: 0,
        }
    }

    pub(crate) fn begin(
        set: &VectorSet,
        query: Query<'_>,
        mut options: SearchOptions,
        filter: &Filter,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Result<FilteredState, Error> {
        let is_radial = options.radius.is_some() && options.count > options.ef;
        if is_radial && filter.n_steps() > LONG_PROGRAM {
            // It would ask at every node.
            options.way = Way::Scan;
        }
        let state = State::prepare(set, query, options, scratch, guard)?;
        let mut search = FilteredState::new(state, options.ef.max(options.count));
        // Without an attribute nothing matches.
        if options.count == 0 || set.attributes_count() == 0 {
            return Ok(search);
        }
        let Some(cache) = set.matches.get().filter(|_| options.way == Way::Graph) else {
            search.state.choose(set, scratch);
            search.stage = Stage::Ask(Hops::One);
            return Ok(search);
        };
        let usage = cache.note_use(filter);
        search.uses = usage.n;
        match cache.find(set, filter, usage.n, scratch.probe.rung(), guard) {
            Found::Known(known) => {
                search.enter(set, known, scratch);
                return Ok(search);
            }
            Found::TooOld => search.is_too_old = true,
            Found::No => {}
        }
        match usage.share {
            Some(share) => search.choose(set, filter, share, scratch),
            None => {
                let mut left = BEGIN_BUDGET;
                search.sample(set, filter, Sample::begin(filter, usage.n), &mut left, scratch);
                search.spent = BEGIN_BUDGET - left;
            }
        }
        Ok(search)
    }

    /// Finds out how many match, as far as the budget goes; then chooses.
    fn sample(
        &mut self,
        set: &VectorSet,
        filter: &Filter,
        mut sample: Sample,
        budget: &mut usize,
        scratch: &mut SearchScratch,
    ) {
        match sample.step(set, filter, budget) {
            None => self.stage = Stage::Sample(sample),
            Some(share) => {
                if let Some(cache) = set.matches.get() {
                    cache.note_share(filter, share);
                }
                self.choose(set, filter, share, scratch);
            }
        }
    }

    /// Chooses between walk and list when there is no list.
    fn choose(&mut self, set: &VectorSet, filter: &Filter, share: f64, scratch: &mut SearchScratch) {
        let is_list_cheaper = self.list_cost(set, filter, share) < self.walk_cost(share)
            || (self.uses >= VERY_HOT && !self.is_too_old);
        let max_measured = self.state.options().max_measured;
        match set.matches.get() {
            Some(cache) if is_list_cheaper && set.len() <= max_measured => {
                self.stage = Stage::Make(Making::begin(set, cache));
            }
            _ => {
                let hops = self.begin_walk(set, share, scratch);
                self.stage = Stage::Ask(hops);
            }
        }
    }

    /// What it costs to make the list and to scan it. A list pays for itself if it comes again, unless writes outrun it.
    fn list_cost(&self, set: &VectorSet, filter: &Filter, share: f64) -> f64 {
        let len = set.len() as f64;
        let ask_cost = ASK_COST + STEP_COST * filter.n_steps() as f64;
        let make_cost = if self.uses >= HOT && !self.is_too_old { 0.0 } else { len * ask_cost };
        make_cost + share * len
    }

    /// The EF of a walk that does not ask.
    fn walk_ef(&self, share: f64) -> f64 {
        (MET_PER_HIT * self.state.options().count as f64 / share).max(self.ef as f64)
    }

    fn walk_cost(&self, share: f64) -> f64 {
        let ef = self.walk_ef(share);
        ef * (WALK_COST + ef / EF_PER_COST)
    }

    fn is_radial(&self) -> bool {
        let options = self.state.options();
        options.radius.is_some() && options.count > options.ef
    }

    fn begin_walk(&mut self, set: &VectorSet, share: f64, scratch: &mut SearchScratch) -> Hops {
        let hops = if self.is_radial() { Hops::One } else { Hops::Unasked };
        if hops == Hops::Unasked {
            self.state.widen(self.walk_ef(share) as usize);
        }
        self.state.choose(set, scratch);
        hops
    }

    /// Chooses between walk and scan, when it is known what matches.
    fn enter(&mut self, set: &VectorSet, known: Known, scratch: &mut SearchScratch) {
        let n = known.len() as f64;
        let share = n.max(0.5) / set.len().max(1) as f64;
        let cost = if known.block(scratch.probe.rung()).is_some() { 1.0 } else { SCATTERED_COST };
        let is_scan_cheaper = self.is_short || cost * n < self.walk_cost(share);
        if is_scan_cheaper && known.is_listed() && known.len() <= self.state.options().max_measured {
            self.begin_scan(set, known, scratch);
        } else {
            let hops = self.begin_walk(set, share, scratch);
            self.stage = Stage::AskList(known, hops);
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
                Stage::Sample(sample) => {
                    let before = left;
                    self.sample(set, filter, sample, &mut left, scratch);
                    self.spent += before - left;
                }
                Stage::Ask(hops) => {
                    let admission = Asking { set, filter, hops };
                    if self.search(set, &admission, &mut left, scratch, guard) == Progress::Unfinished {
                        self.stage = Stage::Ask(hops);
                        return Progress::Unfinished;
                    }
                    if self.is_incomplete(usize::MAX, scratch) {
                        self.begin_again(set, filter, scratch);
                    }
                }
                Stage::AskList(known, hops) => {
                    let admission = AskingList { known: &known, hops };
                    if self.search(set, &admission, &mut left, scratch, guard) == Progress::Unfinished {
                        self.stage = Stage::AskList(known, hops);
                        return Progress::Unfinished;
                    }
                    if self.is_incomplete(known.len(), scratch) && hops != Hops::Two {
                        self.is_short = true;
                        if known.is_listed() {
                            self.begin_scan(set, known, scratch);
                        } else {
                            self.state.widen(self.ef);
                            self.state.choose(set, scratch);
                            self.stage = Stage::AskList(known, Hops::Two);
                        }
                    }
                }
                Stage::Make(mut making) => {
                    let cost = 1 + filter.ask_cost();
                    let asked = (left / cost).max(1);
                    let n_before = making.n_left();
                    let is_made = making.step(set, filter, asked);
                    let spent = (n_before - making.n_left()) as usize * cost;
                    self.spent += spent;
                    left = left.saturating_sub(spent);
                    if !is_made {
                        self.stage = Stage::Make(making);
                        return Progress::Unfinished;
                    }
                    self.finish_making(set, filter, making, scratch);
                }
                Stage::Scan(known, at) => {
                    let upto = known.listed().len().min(at.saturating_add(left));
                    scan(set, &known, at, upto, scratch);
                    left -= upto - at;
                    self.spent += upto - at;
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

    /// Goes on with the search itself, and takes what it has used off `left`.
    fn search<A: Admit>(
        &mut self,
        set: &VectorSet,
        admission: &A,
        left: &mut usize,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Progress {
        let before = self.state.spent();
        let progress = self.state.step(set, admission, *left, scratch, guard);
        *left = left.saturating_sub(self.state.spent() - before);
        progress
    }

    /// A walk found too few: the share was a worse guess than what it has seen itself. Once more, farther, or by a list.
    fn begin_again(&mut self, set: &VectorSet, filter: &Filter, scratch: &mut SearchScratch) {
        let n_asked = self.state.n_asked();
        let share = (scratch.walk.found.len() as f64).max(0.5) / n_asked.max(1) as f64 / CAUTION;
        let is_list_cheaper = self.list_cost(set, filter, share) < self.walk_cost(share);
        // Who was asked about nobody has seen all elements.
        if n_asked > 0 && !self.is_repeated && !is_list_cheaper && set.matches.get().is_some() {
            self.is_repeated = true;
            let hops = self.begin_walk(set, share, scratch);
            self.stage = Stage::Ask(hops);
            return;
        }
        self.is_short = true;
        if let Some(cache) = set.matches.get() {
            self.stage = Stage::Make(Making::begin(set, cache));
        }
    }

    /// Whether a walk found fewer than it has to: COUNT, if so many match. A bounded effort has to find
    /// nothing, and one for all within a radius knows no COUNT.
    fn is_incomplete(&self, n_matches: usize, scratch: &SearchScratch) -> bool {
        let options = self.state.options();
        let is_bound = options.max_measured != usize::MAX || options.way == Way::Scan || self.is_radial();
        !is_bound && scratch.walk.found.len() < options.count.min(n_matches)
    }

    fn finish_making(
        &mut self,
        set: &VectorSet,
        filter: &Filter,
        making: Making,
        scratch: &mut SearchScratch,
    ) {
        let cache = set.matches.get().expect("lists are made where there is a cache");
        match making.finish(set, cache, filter, self.uses, scratch.probe.rung()) {
            Some(known) => self.enter(set, known, scratch),
            // Everything changed meanwhile: ask as we go.
            None => {
                self.state.choose(set, scratch);
                self.stage = Stage::Ask(Hops::One);
            }
        }
    }
}

/// Offers the listed from place `at` up to `upto`.
fn scan(set: &VectorSet, known: &Known, at: usize, upto: usize, scratch: &mut SearchScratch) {
    let ids = &known.listed()[at..upto];
    let SearchScratch { probe, walk, .. } = scratch;
    let Some(block) = known.block(probe.rung()) else {
        let fresh = ids.iter().enumerate().filter_map(|(i, &id)| {
            if let Some(&ahead) = ids.get(i + NODES_AHEAD) {
                set.index.prefetch(probe, ahead);
            }
            (!known.is_changed(id)).then_some(id)
        });
        return exact::offer(Precision::Walk, &set.index, probe, fresh, walk);
    };
    match walk.pool {
        ActivePool::Sorted => scan_block(&mut walk.sorted, set, known, block, at, upto, probe),
        ActivePool::Heaps => scan_block(&mut walk.heaps, set, known, block, at, upto, probe),
    }
}

fn scan_block<P: Pool>(
    pool: &mut P,
    set: &VectorSet,
    known: &Known,
    block: &Block,
    at: usize,
    upto: usize,
    probe: &Probe,
) {
    let mut bound = pool.bound();
    let mut offer = |id, distance| {
        if distance < bound && !known.is_changed(id) {
            pool.insert(Candidate { distance, id }, Role::Answer);
            bound = pool.bound();
        }
    };
    let (fours, rest) = known.listed()[at..upto].as_chunks::<4>();
    for (i, ids) in fours.iter().enumerate() {
        let [a, b, c, d] = block.distance4(&set.index, probe, (at + i * 4) as u32);
        offer(ids[0], a);
        offer(ids[1], b);
        offer(ids[2], c);
        offer(ids[3], d);
    }
    for (i, &id) in rest.iter().enumerate() {
        offer(id, block.distance(&set.index, probe, (at + fours.len() * 4 + i) as u32));
    }
}

/// Asks each node's attribute.
struct Asking<'a> {
    set: &'a VectorSet,
    filter: &'a Filter,
    hops: Hops,
}

impl Admit for Asking<'_> {
    fn admits(&self, id: NodeId) -> bool {
        is_match(&self.set.index, self.filter, id)
    }

    fn ask_cost(&self) -> usize {
        self.filter.ask_cost()
    }

    fn fetch(&self, ids: impl Iterator<Item = NodeId>) {
        fetch_attributes(&self.set.index, ids);
    }

    fn hops(&self) -> Hops {
        self.hops
    }
}

/// Asks the list.
struct AskingList<'a> {
    known: &'a Known,
    hops: Hops,
}

impl Admit for AskingList<'_> {
    #[inline(always)]
    fn admits(&self, id: NodeId) -> bool {
        self.known.has(id)
    }

    fn hops(&self) -> Hops {
        self.hops
    }
}

/// For the steps of a search that asks no more.
struct Nothing;

impl Admit for Nothing {
    fn admits(&self, _id: NodeId) -> bool {
        false
    }
}
