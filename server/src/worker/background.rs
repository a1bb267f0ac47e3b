//! What no client asks for: jobs, freeing, expiry, eviction and timeouts, a bounded part of each turn.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{FIRST_LISTENER, TURN_NS, Worker};
use crate::alloc::huge;
use crate::client::ClientId;
use crate::config::Config;
use crate::evict::Rules;
use crate::listener::Left;
use crate::vector::upkeep_slice;

/// Elements freed or expired per slice.
const SLICE: usize = 128;
/// Time that background work (jobs, freeing, expiry, eviction) may take of a turn.
const BACKGROUND_NS: u64 = 250_000;
/// Keys evicted per slice.
const EVICT_SLICE: usize = 32;
/// How often workers that sleep are woken to evict their share.
const WAKE_TO_EVICT: Duration = Duration::from_millis(10);

impl Worker {
    /// Workers that sleep have their share to evict, too.
    pub(super) fn wake_to_evict(&mut self, now: Instant) {
        if now < self.next_wake_to_evict || !self.node.needs_others_to_evict() {
            return;
        }
        self.next_wake_to_evict = now + WAKE_TO_EVICT;
        let own = usize::from(self.node.id.0);
        (0..self.mesh.n_peers()).filter(|peer| *peer != own).for_each(|peer| self.mesh.knock(peer));
    }

    /// Long commands, freeing and expiry: a bounded part of each turn.
    pub(super) fn background(&mut self) {
        self.node.look_at_memory();
        let must_evict = self.node.must_evict();
        if !must_evict && !self.node.has_work() && !self.has_expired_more && !huge::has_garbage() {
            return;
        }
        let started = Instant::now();
        let budget_ns = if must_evict { eviction_ns(&self.node.config) } else { BACKGROUND_NS };
        while started.elapsed().as_nanos() as u64 <= budget_ns {
            let mut is_busy = huge::has_garbage();
            huge::free_slice();
            if let Some(id) = self.node.run_vector_slice() {
                self.look_again(id);
                is_busy = true;
            }
            if self.node.has_jobs() {
                self.node.run_job_slice();
                is_busy = true;
            }
            if must_evict && self.node.evict_slice(EVICT_SLICE) {
                is_busy = true;
            }
            if self.node.shard.has_garbage() {
                is_busy |= self.node.shard.free_slice(SLICE);
            }
            if !self.node.shard.upkeep.is_empty() {
                upkeep_slice(&mut self.node.shard);
                is_busy = true;
            }
            if self.node.shard.keysizes.is_walking() {
                self.node.shard.keysizes_slice(self.node.now_ms, SLICE);
                is_busy = true;
            }
            if self.has_expired_more && !self.node.is_paused() {
                self.has_expired_more = self.node.expire_slice(SLICE);
                is_busy |= self.has_expired_more;
            }
            if !is_busy {
                break;
            }
        }
    }

    /// Ten times a second and more: expiry, timeouts, counters.
    pub(super) fn tick(&mut self, now: Instant) {
        let hz = u64::from(self.node.config.hz.clamp(1, 500));
        self.next_tick = now + Duration::from_millis(1000 / hz.max(10));
        if self.server.is_expiring_actively.load(Ordering::Relaxed) && !self.node.is_paused() {
            self.has_expired_more = self.node.expire_slice(SLICE);
        }
        if let Some(listeners) = &mut self.listeners
            && let Some(fresh) =
                self.server.new_listeners.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            listeners.replace_tcp(fresh, self.poll.registry(), FIRST_LISTENER);
        }
        if self.left == Left::Refused {
            self.accept_left();
        }
        // Those that a busy worker has handed back come without a ring.
        self.admit_arrivals();
        self.node.follow_flushes();
        self.watch_resident_memory();
        if now >= self.next_second {
            self.next_second = now + Duration::from_secs(1);
            self.each_second();
        }
    }

    /// Holds used memory so far below `maxmemory` that resident memory does not go far beyond it: what fragmentation costs is
    /// evicted, after all free pages have gone. Worker 0 does this; the others follow.
    fn watch_resident_memory(&mut self) {
        let (limit, is_evicting) = (self.node.config.maxmemory, Rules::of(&self.node.config).is_some());
        let Some(purging) = &mut self.purging else { return };
        let is_watched = limit > 0 && is_evicting;
        let resident = if is_watched { crate::process::resident_bytes() } else { 0 };
        let sparsity = if is_watched { sparsity(resident, limit) } else { 0.0 };
        purging.tick(crate::alloc::used_memory(), sparsity);
        let withheld = if purging.is_purged_and_sparse() { withhold(resident, limit) } else { 0 };
        self.server.withheld_memory.store(withheld, Ordering::Relaxed);
    }

    pub(super) fn each_second(&mut self) {
        self.node.each_second();
        self.mesh.trim(&mut self.node.outboxes);
        self.close_deaf();
        let timeout_ms = i64::from(self.node.config.timeout) * 1000;
        if timeout_ms > 0 {
            let now_ms = self.node.now_ms;
            let idle: Vec<ClientId> = self
                .node
                .clients
                .iter()
                .filter(|client| {
                    now_ms - client.last_active_ms > timeout_ms
                        && client.pending.is_empty()
                        && client.subscribed.is_none()
                })
                .map(|client| client.id)
                .collect();
            for id in idle {
                crate::log::verbose("Closing idle client");
                self.close(id);
            }
        }
    }
}

/// The time that eviction may take of a turn: `maxmemory-eviction-tenacity`, as in Redis half a millisecond at 10 and longer by
/// 15 % a step beyond; half of that, and never more than a turn.
fn eviction_ns(config: &Config) -> u64 {
    match config.maxmemory_eviction_tenacity {
        tenacity @ 0..=10 => (u64::from(tenacity) * BACKGROUND_NS / 10).max(BACKGROUND_NS / 10),
        tenacity => (BACKGROUND_NS as f64 * 1.15f64.powi(tenacity as i32 - 10)).min(TURN_NS as f64) as u64,
    }
}

/// The program itself counts for a server of small `maxmemory`.
const PROGRAM_BYTES: u64 = 24 << 20;

/// How much of the pages within free blocks is to go: none up to a sixteenth above the limit, all from an eighth on. In steps: with one
/// threshold memory swings between both states (256 MiB of mixed values: between 1.09 and 1.17 of them).
fn sparsity(resident: u64, limit: u64) -> f64 {
    let none = limit + (limit / 16).max(PROGRAM_BYTES / 3 * 2);
    let all = limit + (limit / 8).max(PROGRAM_BYTES);
    (resident.saturating_sub(none) as f64 / (all - none) as f64).min(1.0)
}

/// What to withhold of `maxmemory`: twice what resident memory is above an eighth more than that. Evicting more is a dear way to
/// pages, as few become free as a whole: so no more of it than the excess asks for.
fn withhold(resident: u64, limit: u64) -> u64 {
    let excess = resident.saturating_sub(limit + (limit / 8).max(PROGRAM_BYTES));
    (excess * 2).min(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Pages within free blocks begin to go before memory is withheld, and all go when it is.
    #[test]
    fn pages_go_before_memory_is_withheld() {
        for limit in [1, 10, 64, 256, 1000, 100_000].map(|mib| mib * MIB) {
            let mut before = (0.0, 0);
            for resident in (0..200).map(|part| limit / 100 * part + 60 * MIB * part / 200) {
                let now = (sparsity(resident, limit), withhold(resident, limit));
                assert!(now.0 >= before.0 && now.1 >= before.1 && now.0 <= 1.0 && now.1 <= limit / 2);
                assert!(now.1 == 0 || now.0 > 0.0, "limit {limit}, resident {resident}");
                before = now;
            }
            assert_eq!(before.0, 1.0);
            assert_eq!(sparsity(limit + limit / 20, limit), 0.0);
        }
    }
}
