//! Which elements an expression matches: kept for expressions that come again.
//!
//! ```text
//!   Matches  [ at | one bit per node id | ids, if few | their codes side by side, if hot and few enough ]
//!   Known  = Matches + what changed since `at`
//! ```
//!
//! Lists are made by one pass over the members, in slices, and published in one of a few slots per set; a
//! later writer leaves them alone: the log of changes says which bits no longer hold, and a reader that finds
//! many such publishes a patched copy. Readers take no lock: a slot is a pointer under the epoch domain.
//! Memory: at most `MAX_SHARE` of the set's own, the least used list goes first.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::attribute::Attribute;
use super::compile::Filter;
use super::log::{ChangeLog, Position};
use crate::admission::ASKED_TOGETHER;
use crate::epoch::{Guard, Limbo};
use crate::graph::NodeId;
use crate::hnsw::{Block, Index};
use crate::ladder::Rung;
use crate::set::VectorSet;
use crate::shared::{Shared, Unlinked};

/// Lists kept per set.
const N_SLOTS: usize = 24;
/// Expressions whose uses are counted.
const N_COUNTED: usize = 128;
/// Matches up to which their ids are kept beside the bits: more are better found by the graph.
const MAX_LISTED: usize = 1 << 17;
/// Of the set's own memory: what all lists together may take.
const MAX_SHARE: usize = 16;
/// Lists below this size are always worth their memory.
const MIN_BUDGET_BYTES: usize = 1 << 18;
/// Changes since a list was made, from which on a patched copy is published.
const MAX_CHANGES: usize = 64;
/// Steps of the expression that may be spent on what changed, in one go: some 0.3 ms.
const MAX_CHANGE_STEPS: usize = 60_000;
/// Elements asked to find out how many match, and matches that make more of them needless.
const SAMPLE: u32 = 96;
const MATCHES_ENOUGH: u32 = 16;
/// Attributes fetched at a time.
const BATCH: usize = ASKED_TOGETHER;
/// Uses of other lists after which a list counts as forgotten.
const FORGOTTEN_AGE: u32 = 4096;
/// Uses after which an expression counts as one that comes again.
pub(super) const HOT: u64 = 3;

/// The elements that an expression matched at a position of the log.
pub(super) struct Matches {
    source: Box<[u8]>,
    hash: u64,
    at: Position,
    bits: Box<[u64]>,
    n: usize,
    /// In ascending order, so that a scan reads memory in order; empty if there are too many.
    ids: Box<[NodeId]>,
    /// Codes of `ids`, in their order.
    block: Option<Block>,
}

impl Matches {
    fn new(filter: &Filter, at: Position, bits: Box<[u64]>) -> Matches {
        let n = bits.iter().map(|word| word.count_ones() as usize).sum();
        let ids = if n <= MAX_LISTED { ids_of(&bits, n) } else { Box::default() };
        Matches { source: filter.source().into(), hash: filter.hash(), at, bits, n, ids, block: None }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Matches>()
            + self.source.len()
            + size_of_val(&*self.bits)
            + size_of_val(&*self.ids)
            + self.block.as_ref().map_or(0, Block::memory_bytes)
    }

    fn patched(&self, filter: &Filter, changes: &Changes) -> Matches {
        let mut bits = self.bits.to_vec();
        for &(id, is_match) in &changes.verdicts {
            set_bit(&mut bits, id, is_match);
        }
        Matches::new(filter, changes.upto, bits.into())
    }
}

fn ids_of(bits: &[u64], n: usize) -> Box<[NodeId]> {
    let mut ids = Vec::with_capacity(n);
    for (i, &word) in bits.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            ids.push(NodeId(i as u32 * 64 + rest.trailing_zeros()));
            rest &= rest - 1;
        }
    }
    ids.into()
}

fn set_bit(bits: &mut Vec<u64>, id: NodeId, is_set: bool) {
    let (word, bit) = ((id.0 / 64) as usize, 1 << (id.0 % 64));
    if bits.len() <= word && is_set {
        bits.resize(word + 1, 0);
    }
    match bits.get_mut(word) {
        Some(word) if is_set => *word |= bit,
        Some(word) => *word &= !bit,
        None => {}
    }
}

/// What changed since a list was made.
struct Changes {
    /// By id: whether the element matches now.
    verdicts: Vec<(NodeId, bool)>,
    upto: Position,
    /// A bit for `id % 1024` of each changed id: most questions end here.
    may_have: [u64; 16],
}

impl Changes {
    fn since(set: &VectorSet, log: &ChangeLog, at: Position, filter: &Filter) -> Option<Changes> {
        let (changed, upto) = log.since(at)?;
        if changed.len() * filter.n_steps() > MAX_CHANGE_STEPS {
            return None;
        }
        let mut changes = Changes { verdicts: Vec::with_capacity(changed.len()), upto, may_have: [0; 16] };
        for change in changed {
            let id = change.id;
            changes.may_have[(id.0 / 64 % 16) as usize] |= 1 << (id.0 % 64);
            changes.verdicts.push((id, !change.is_removed && is_match(&set.index, filter, id)));
        }
        Some(changes)
    }

    #[inline(always)]
    fn verdict(&self, id: NodeId) -> Option<bool> {
        if self.may_have[(id.0 / 64 % 16) as usize] & 1 << (id.0 % 64) == 0 {
            return None;
        }
        let found = self.verdicts.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.verdicts[found].1)
    }
}

/// Whether a node that the caller may look at matches.
#[inline]
pub(super) fn is_match(index: &Index, filter: &Filter, id: NodeId) -> bool {
    let attribute = index.graph.node(id).attribute.load_unguarded();
    attribute.is_some_and(|attribute| filter.matches(attribute))
}

/// A list that holds for the set as it was when it was asked for.
pub(super) struct Known {
    matches: Arc<Matches>,
    changes: Changes,
    n: usize,
}

impl Known {
    /// How many elements match.
    pub(super) fn len(&self) -> usize {
        self.n
    }

    #[inline(always)]
    pub(super) fn has(&self, id: NodeId) -> bool {
        if let Some(verdict) = self.changes.verdict(id) {
            return verdict;
        }
        let word = self.matches.bits.get((id.0 / 64) as usize).copied().unwrap_or(0);
        word >> (id.0 % 64) & 1 == 1
    }

    /// Whether `listed` tells all matches.
    pub(super) fn is_listed(&self) -> bool {
        self.matches.n == self.matches.ids.len()
    }

    /// Places of the list and what stands there; those of changed elements are to be left out.
    pub(super) fn listed(&self) -> &[NodeId] {
        &self.matches.ids
    }

    pub(super) fn is_changed(&self, id: NodeId) -> bool {
        !self.changes.verdicts.is_empty() && self.changes.verdict(id).is_some()
    }

    /// Matches among the changed elements.
    pub(super) fn newly(&self) -> impl Iterator<Item = NodeId> {
        self.changes.verdicts.iter().filter(|(_, is_match)| *is_match).map(|&(id, _)| id)
    }

    /// The codes of the listed, if they are those that probes of this rung measure.
    pub(super) fn block(&self, rung: Rung) -> Option<&Block> {
        self.matches.block.as_ref().filter(|block| block.is_for(rung))
    }

    fn new(matches: Arc<Matches>, changes: Changes) -> Known {
        let had =
            |id: NodeId| matches.bits.get((id.0 / 64) as usize).is_some_and(|w| w >> (id.0 % 64) & 1 == 1);
        let mut n = matches.n;
        for &(id, is_match) in &changes.verdicts {
            n = n + usize::from(is_match) - usize::from(had(id));
        }
        Known { matches, changes, n }
    }
}

/// Whether the list of an expression is known.
pub(super) enum Found {
    Known(Known),
    /// It was made, and so much changed since that it says nothing.
    TooOld,
    No,
}

/// Begins to fetch the attributes of nodes, all of them before the first is read.
#[inline]
pub(super) fn fetch_attributes(index: &Index, ids: impl Iterator<Item = NodeId>) {
    let mut attributes = [None; ASKED_TOGETHER];
    for (place, id) in attributes.iter_mut().zip(ids) {
        *place = index.graph.node(id).attribute.load_unguarded();
    }
    let touched = attributes.iter().flatten().fold(0, |touched, attribute| touched ^ attribute.touch());
    std::hint::black_box(touched);
}

/// Which of at most `BATCH` members match, by place in `ids`. Their attributes are fetched first, so that the
/// misses overlap.
#[inline]
fn ask_batch(
    index: &Index,
    filter: &Filter,
    ids: impl Iterator<Item = NodeId>,
    mut each: impl FnMut(NodeId),
) {
    let mut batch = [(NodeId(0), None); BATCH];
    let mut n = 0;
    for (place, id) in batch.iter_mut().zip(ids) {
        *place = (id, index.graph.node(id).attribute.load_unguarded());
        n += 1;
    }
    let mut touched = 0;
    for (_, attribute) in &batch[..n] {
        touched ^= attribute.map_or(0, Attribute::touch);
    }
    std::hint::black_box(touched);
    for &(id, attribute) in &batch[..n] {
        if attribute.is_some_and(|attribute| filter.matches(attribute)) {
            each(id);
        }
    }
}

/// How many of the members match, as a sample tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    seed: u64,
    n_asked: u32,
    n_matches: u32,
}

impl Sample {
    /// Each expression, and each use of it, asks others: a sample that is wrong for one is right for the next.
    pub(super) fn begin(filter: &Filter, uses: u64) -> Sample {
        Sample { seed: (filter.hash() % 1_000_003) + uses * 7919, n_asked: 0, n_matches: 0 }
    }

    /// Asks for about `budget` distances, which it takes what it has used of. The share of the members that match, at
    /// least one in twice the sample, when enough are asked: it ends early where many match.
    pub(super) fn step(&mut self, set: &VectorSet, filter: &Filter, budget: &mut usize) -> Option<f64> {
        let len = set.members.len();
        let n = SAMPLE.min(len).max(1);
        // The golden ratio, so that any first part of the sample is spread over all.
        let place = |i: u64| ((i as f64 * 0.618_033_988_749_895).fract() * f64::from(len)) as u32;
        while self.n_asked < n && self.n_matches < MATCHES_ENOUGH {
            if *budget == 0 {
                return None;
            }
            let n_batch = (*budget / (1 + filter.ask_cost())).clamp(1, BATCH);
            *budget = budget.saturating_sub(n_batch * (1 + filter.ask_cost()));
            let first = self.seed + u64::from(self.n_asked);
            let ids = (first..first + n_batch as u64).filter_map(|i| set.members.get(place(i)));
            ask_batch(&set.index, filter, ids, |_| self.n_matches += 1);
            self.n_asked += n_batch as u32;
        }
        Some(f64::from(self.n_matches).max(0.5) / f64::from(self.n_asked))
    }
}

/// A list in the making.
pub(super) struct Making {
    at: Position,
    bits: Vec<u64>,
    /// Members from here to the front are still to be asked.
    upto: u32,
}

impl Making {
    pub(super) fn begin(set: &VectorSet, cache: &MatchCache) -> Making {
        // The position before the members: what changes meanwhile is in the log behind it.
        let at = cache.log.head();
        let n_words = set.index.bound().div_ceil(64) as usize;
        Making { at, bits: vec![0; n_words], upto: set.members.len() }
    }

    /// Members still to be asked, at most.
    pub(super) fn n_left(&self) -> u32 {
        self.upto
    }

    /// Asks about at most `budget` members; true when all were asked.
    pub(super) fn step(&mut self, set: &VectorSet, filter: &Filter, budget: usize) -> bool {
        let mut upto = self.upto.min(set.members.len());
        let end = upto.saturating_sub(u32::try_from(budget).unwrap_or(u32::MAX));
        while upto > end {
            let from = upto.saturating_sub(BATCH as u32).max(end);
            let ids = (from..upto).rev().filter_map(|place| set.members.get(place));
            ask_batch(&set.index, filter, ids, |id| set_bit(&mut self.bits, id, true));
            upto = from;
        }
        self.upto = end;
        end == 0
    }

    /// The list, published if there is room for it; `None` if so much changed meanwhile that it is worth
    /// nothing.
    pub(super) fn finish(
        self,
        set: &VectorSet,
        cache: &MatchCache,
        filter: &Filter,
        uses: u64,
        rung: Rung,
    ) -> Option<Known> {
        let matches = Matches::new(filter, self.at, self.bits.into());
        let changes = Changes::since(set, &cache.log, self.at, filter)?;
        Some(Known::new(cache.publish(set, matches, uses, rung), changes))
    }
}

/// What is remembered of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Uses, this one included; 255 for more.
    pub(super) n: u64,
    /// Which share of the elements matched when they were asked last, unless that is long ago.
    pub(super) share: Option<f64>,
}

const TAG: u64 = !0 << 24;
const SHARE: u64 = 0xFF_FF00;
const SHARE_SHIFT: u32 = 8;
const SHARE_STEPS: f64 = 65_535.0;
const USES: u64 = 0xFF;
/// One use in 32 asks anew, and the frequent ones now and then, when the counter was taken down.
const USES_OF_A_SHARE: u64 = 0x1F;

struct Slot {
    /// Of the expression; 0 if the slot is empty.
    hash: AtomicU64,
    /// The clock of its last use.
    used: AtomicU32,
    matches: Shared<Arc<Matches>>,
}

/// The lists of a set, and its log of changes.
pub(crate) struct MatchCache {
    pub(crate) log: ChangeLog,
    slots: Box<[Slot]>,
    /// Per expression: the top of its hash, the share of the elements that matches, the number of uses.
    usage: Box<[AtomicU64]>,
    clock: AtomicU32,
    bytes: AtomicUsize,
    /// What was taken out of slots and may still be read. Only who publishes locks it, and never waits.
    retired: Mutex<Limbo<Unlinked<Arc<Matches>>>>,
}

impl MatchCache {
    pub(crate) fn new() -> MatchCache {
        let slot = || Slot { hash: AtomicU64::new(0), used: AtomicU32::new(0), matches: Shared::new(None) };
        MatchCache {
            log: ChangeLog::new(),
            slots: (0..N_SLOTS).map(|_| slot()).collect(),
            usage: (0..N_COUNTED).map(|_| AtomicU64::new(0)).collect(),
            clock: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            retired: Mutex::new(Limbo::new()),
        }
    }

    /// Bytes without those of the lists.
    pub(crate) fn base_bytes(&self) -> usize {
        size_of::<MatchCache>()
            + size_of_val(&*self.slots)
            + size_of_val(&*self.usage)
            + super::log::CAPACITY as usize * size_of::<u32>()
    }

    /// Notes a use of the expression, and tells what is known of it.
    pub(super) fn note_use(&self, filter: &Filter) -> Usage {
        let (tag, counter) = self.counter(filter);
        let seen = counter.load(Ordering::Relaxed);
        let uses = seen & USES;
        let next = if seen & TAG == tag {
            seen + u64::from(uses < USES)
        } else if uses > 1 {
            // Another expression's counter: what is used more often stays.
            counter.store(seen - 1, Ordering::Relaxed);
            return Usage { n: 1, share: None };
        } else {
            tag | 1
        };
        counter.store(next, Ordering::Relaxed);
        let share = (next & SHARE) >> SHARE_SHIFT;
        let is_fresh = share > 0 && next & USES_OF_A_SHARE != 0;
        Usage { n: next & USES, share: is_fresh.then(|| share as f64 / SHARE_STEPS) }
    }

    /// Remembers which share of the elements matches.
    pub(super) fn note_share(&self, filter: &Filter, share: f64) {
        let (tag, counter) = self.counter(filter);
        let seen = counter.load(Ordering::Relaxed);
        if seen & TAG == tag {
            let share = (share * SHARE_STEPS).max(1.0) as u64;
            counter.store(seen & !SHARE | share << SHARE_SHIFT & SHARE, Ordering::Relaxed);
        }
    }

    fn counter(&self, filter: &Filter) -> (u64, &AtomicU64) {
        let hash = filter.hash();
        (hash & TAG, &self.usage[(hash & !TAG) as usize % N_COUNTED])
    }

    /// The list of the expression, for a search whose probe belongs to `rung`.
    pub(super) fn find(
        &self,
        set: &VectorSet,
        filter: &Filter,
        uses: u64,
        rung: Rung,
        guard: &Guard,
    ) -> Found {
        let hash = filter.hash();
        let slot = self.slots.iter().find(|slot| slot.hash.load(Ordering::Relaxed) == hash);
        let Some(slot) = slot else { return Found::No };
        let matches = slot.matches.load(guard).filter(|matches| &*matches.source == filter.source());
        let Some(matches) = matches.cloned() else { return Found::No };
        let Some(changes) = Changes::since(set, &self.log, matches.at, filter) else { return Found::TooOld };
        slot.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let has_block = matches.block.as_ref().is_some_and(|block| block.is_for(rung));
        let lacks_block = uses >= HOT && !has_block && self.may_have_block(set, &matches, rung);
        if changes.verdicts.len() <= MAX_CHANGES && !lacks_block {
            return Found::Known(Known::new(matches, changes));
        }
        let patched = matches.patched(filter, &changes);
        let upto = changes.upto;
        let changes = Changes { verdicts: Vec::new(), upto, may_have: [0; 16] };
        Found::Known(Known::new(self.publish(set, patched, uses, rung), changes))
    }

    fn budget_bytes(&self, set: &VectorSet) -> usize {
        (set.memory_bytes() / MAX_SHARE).max(MIN_BUDGET_BYTES)
    }

    fn may_have_block(&self, set: &VectorSet, matches: &Matches, rung: Rung) -> bool {
        let bytes = Block::bytes_of(&set.index, rung, matches.ids.len());
        matches.n == matches.ids.len()
            && matches.n > 0
            && bytes.is_some_and(|b| b <= self.budget_bytes(set) / 4)
    }

    /// Puts a list into a slot, if it is worth one and nobody else publishes just now.
    fn publish(&self, set: &VectorSet, mut matches: Matches, uses: u64, rung: Rung) -> Arc<Matches> {
        if uses >= HOT && self.may_have_block(set, &matches, rung) {
            matches.block = Block::gather(&set.index, rung, &matches.ids);
        }
        let matches = Arc::new(matches);
        let Ok(mut retired) = self.retired.try_lock() else { return matches };
        retired.collect(&set.domain, usize::MAX, Unlinked::free);
        let own = self.slots.iter().find(|slot| slot.hash.load(Ordering::Relaxed) == matches.hash);
        let budget = self.budget_bytes(set);
        if let Some(slot) = own {
            self.put(set, slot, None, &mut retired);
        }
        while self.bytes.load(Ordering::Relaxed) + matches.memory_bytes() > budget
            || self.empty_slot().is_none()
        {
            let Some(oldest) = self.dispensable_slot(uses) else { return matches };
            self.put(set, oldest, None, &mut retired);
        }
        if let Some(slot) = self.empty_slot() {
            slot.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            self.put(set, slot, Some(matches.clone()), &mut retired);
        }
        matches
    }

    /// The slot used longest ago, if its list may go for an expression used so often: one that is seldom used
    /// takes nobody's place who is not forgotten.
    fn dispensable_slot(&self, uses: u64) -> Option<&Slot> {
        let clock = self.clock.load(Ordering::Relaxed);
        let age = |slot: &Slot| clock.wrapping_sub(slot.used.load(Ordering::Relaxed));
        let in_use = self.slots.iter().filter(|slot| slot.hash.load(Ordering::Relaxed) != 0);
        let oldest = in_use.max_by_key(|slot| age(slot))?;
        (uses >= HOT || age(oldest) > FORGOTTEN_AGE).then_some(oldest)
    }

    fn empty_slot(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.hash.load(Ordering::Relaxed) == 0)
    }

    /// Changes what a slot holds. Only under the lock of `retired`.
    fn put(
        &self,
        set: &VectorSet,
        slot: &Slot,
        matches: Option<Arc<Matches>>,
        retired: &mut Limbo<Unlinked<Arc<Matches>>>,
    ) {
        let old_bytes = slot.matches.load_unguarded().map_or(0, |old| old.memory_bytes());
        let bytes = matches.as_ref().map_or(0, |matches| matches.memory_bytes());
        slot.hash.store(matches.as_ref().map_or(0, |matches| matches.hash), Ordering::Relaxed);
        if let Some(old) = slot.matches.swap(matches) {
            retired.push(&set.domain, old);
        }
        for counter in [&self.bytes, &set.memory_bytes] {
            counter.fetch_add(bytes.wrapping_sub(old_bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for MatchCache {
    fn drop(&mut self) {
        if let Ok(retired) = self.retired.get_mut() {
            // The set is dropped, so nobody reads it any more.
            std::mem::replace(retired, Limbo::new()).into_remaining().for_each(Unlinked::free);
        }
    }
}
