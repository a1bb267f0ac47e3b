//! `maxmemory`: when this worker evicts, and how much of it.
//!
//! ```text
//!   excess   = (used by the others - limit, as of the last look) + used by this thread, at any moment
//!   share    = this worker's evictable bytes / all workers'         debt = share * what all have evicted - what this one has
//!   due here = share * excess + debt                                or excess, if that is far over
//! ```
//!
//! Each thread counts its own bytes (`alloc`), so nobody waits for a figure and what is stale is at most what the others have taken
//! since this worker's turn began. The debt makes a worker that has slept catch up, and one that was busy wait for the others a
//! little, so that shards are evicted in proportion to their bytes whoever receives the writes.
//!
//! Evicted are: a few keys before a command that may need memory, and the rest in slices between turns, both by key count; the worker
//! cuts slices by time. What was evicted and is too large to be freed at once is freed before more is evicted.
//! A command is refused only if no worker has a key left to evict.

use std::sync::atomic::Ordering::Relaxed;

use super::Node;
use crate::alloc;
use crate::evict::Rules;
use crate::server::WorkerStats;

/// Keys that go before one command.
const KEYS_PER_COMMAND: usize = 4;
/// Elements freed at a time of what was evicted.
const FREE_SLICE: usize = 128;
/// When used memory is over the limit by more than one part in so many, nobody waits for the others' share.
const WAIT_SHARE: i64 = 256;

/// When it is over by more than one part in so many, and nothing is left to evict here, commands wait for the others; for so
/// long at most.
const FAR_SHARE: i64 = 16;
const MAX_WAIT_MS: i64 = 20;

/// Whether a command that may need memory has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// The other workers have much to evict and are about to.
    Soon,
    None,
}

/// What a worker knows of `maxmemory`.
#[derive(Default)]
pub(super) struct MemoryLimit {
    /// There is a `maxmemory`.
    pub(super) is_limited: bool,
    limit: i64,
    /// `None`: nothing is evicted.
    rules: Option<Rules>,
    /// What the other threads use, less the limit, when this worker last looked.
    base: i64,
    /// Of what all evict.
    share: f64,
    /// Bytes that the others have evicted for this worker.
    debt: i64,
    /// What the others had evicted at the last look.
    seen_of_others: u64,
    /// Since when commands have waited for the others.
    waits_since_ms: Option<i64>,
}

impl Node {
    /// What a new configuration says.
    pub(super) fn take_memory_limit(&mut self) {
        let config = &self.config;
        let memory = &mut self.memory;
        alloc::limit_kept_large(config.maxmemory);
        memory.limit = config.maxmemory.min(i64::MAX as u64) as i64;
        memory.is_limited = config.maxmemory > 0;
        memory.rules = Rules::of(config);
        self.look_at_memory();
    }

    /// Reads the others' counters, and tells them what may be evicted here. Nothing without a limit.
    #[inline]
    pub fn look_at_memory(&mut self) {
        if self.memory.is_limited {
            self.compare_memory();
        }
    }

    #[cold]
    fn compare_memory(&mut self) {
        let own = alloc::own_used_bytes();
        let mut limit = self.memory.limit;
        if self.memory.rules.is_some() {
            limit -= self.server.withheld_memory.load(Relaxed) as i64;
        }
        self.memory.base = alloc::used_memory() as i64 - own - limit;
        self.tell_evictable();
        let evictable = self.server.sum(|worker| &worker.evictable_bytes).max(1);
        self.memory.share = self.own_stats().evictable_bytes.load(Relaxed) as f64 / evictable as f64;
        let all = self.server.sum(|worker| &worker.evicted_bytes);
        let own = self.own_stats().evicted_bytes.load(Relaxed);
        let by_others = (all - own.min(all)).saturating_sub(self.memory.seen_of_others);
        self.memory.seen_of_others = all - own.min(all);
        let far = self.memory.limit / WAIT_SHARE;
        let more = (by_others as f64 * self.memory.share) as i64;
        self.memory.debt = (self.memory.debt + more).clamp(-far, far);
    }

    pub(super) fn own_stats(&self) -> &WorkerStats {
        &self.server.workers[usize::from(self.id.0)]
    }

    /// A shard that is away as a whole has a stand-in without keys here: what was told before still holds.
    fn tell_evictable(&self) {
        let Some(rules) = &self.memory.rules else { return };
        if self.unwatches_while_away.is_none() {
            let is_any = self.shard.n_evictable(rules.scope) > 0;
            let bytes = if is_any { alloc::own_used_bytes().max(1) as u64 } else { 0 };
            self.own_stats().evictable_bytes.store(bytes, Relaxed);
            self.own_stats().evictable_generation.store(self.config_generation, Relaxed);
        }
    }

    /// Bytes over the limit.
    #[inline]
    fn excess(&self) -> i64 {
        self.memory.base + alloc::own_used_bytes()
    }

    #[inline]
    pub(super) fn is_over_memory(&self) -> bool {
        self.excess() > 0
    }

    /// Before a command that may need memory: evicts a little if it is short.
    #[cold]
    pub(super) fn make_room(&mut self) -> Room {
        if !self.is_over_memory() || self.is_paused() {
            self.memory.waits_since_ms = None;
            return Room::Enough;
        }
        if self.memory.rules.is_none() {
            return Room::None;
        }
        self.evict_slice(KEYS_PER_COMMAND);
        if !self.is_over_memory() || self.shard.has_garbage() {
            return Room::Enough;
        }
        self.tell_evictable();
        let is_own_evictable = self.own_stats().evictable_bytes.load(Relaxed) > 0;
        // Who has not seen the configuration has not told what it has.
        let is_any_evictable = self.server.workers.iter().any(|worker| {
            worker.evictable_bytes.load(Relaxed) > 0
                || worker.evictable_generation.load(Relaxed) != self.config_generation
        });
        if !is_any_evictable {
            return Room::None;
        }
        let since_ms = *self.memory.waits_since_ms.get_or_insert(self.now_ms);
        let is_far_over = self.excess() > self.memory.limit / FAR_SHARE;
        match is_far_over && !is_own_evictable && self.now_ms - since_ms < MAX_WAIT_MS {
            true => Room::Soon,
            false => Room::Enough,
        }
    }

    /// Whether clients wait for the others to evict: the next turn looks again.
    pub fn waits_for_memory(&self) -> bool {
        self.memory.waits_since_ms.is_some() && !self.paused.is_empty()
    }

    /// Whether this worker has to evict now.
    #[inline]
    pub fn must_evict(&self) -> bool {
        self.memory.is_limited && !self.is_paused() && self.bytes_due() > 0
    }

    /// Whether memory is over the limit and other workers have to evict as well.
    pub fn needs_others_to_evict(&self) -> bool {
        self.n_shards() > 1 && self.memory.is_limited && self.memory.rules.is_some() && self.is_over_memory()
    }

    fn bytes_due(&self) -> i64 {
        let memory = &self.memory;
        let excess = self.excess();
        if excess <= 0 || memory.rules.is_none() || memory.share == 0.0 {
            return 0;
        }
        let due = (excess as f64 * memory.share).ceil() as i64;
        if excess > memory.limit / WAIT_SHARE { due.max(due + memory.debt) } else { due + memory.debt }
    }

    /// Evicts up to `n` keys that are due here; true if more are.
    pub fn evict_slice(&mut self, n: usize) -> bool {
        let is_more = self.evict_some(n);
        self.serve_blocked();
        is_more
    }

    fn evict_some(&mut self, n: usize) -> bool {
        for _ in 0..n {
            if self.bytes_due() <= 0 {
                return false;
            }
            let Some(rules) = self.memory.rules else { return false };
            let before = alloc::own_used_bytes();
            let has_evicted = match self.shard.has_garbage() {
                true => {
                    self.shard.free_slice(FREE_SLICE);
                    true
                }
                false => self.shard.evict_one(&rules, self.now_ms),
            };
            let freed = before - alloc::own_used_bytes();
            WorkerStats::add(&self.own_stats().evicted_bytes, freed.max(0) as u64);
            // Its own part of that is paid.
            self.memory.debt -= (freed as f64 * (1.0 - self.memory.share)) as i64;
            if !has_evicted {
                self.tell_evictable();
                return false;
            }
        }
        true
    }
}
