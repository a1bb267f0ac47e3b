//! Eviction: which key goes when memory is short.
//!
//! As Redis: a few random keys are looked at, the best of them and of those met before stay in a pool of sixteen, and the
//! best of all goes (<https://redis.io/docs/latest/develop/reference/eviction/>). Departures: 1. A key that was used since
//! it was met is forgotten, and not evicted. 2. `volatile-ttl` asks the expiry index for the deadlines that come first
//! instead of guessing. 3. Keys that are lent or read from elsewhere are never chosen.
//!
//! It knows neither how much memory there is nor when to begin. Cost: five misses of the cache or so for a key.

use smallvec::SmallVec;

use crate::config::{Config, MaxmemoryPolicy};
use crate::keyspace::{AccessClock, EntryRef, Key, Keyspace, Scope, Tracking, View};
use crate::shard::{DbIndex, EventClass, Shard};

/// By what keys are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The oldest access clock first: LRU, and LRM, whose clocks move with changes alone.
    Oldest,
    /// The smallest counter first.
    Rarest,
    /// The deadline that comes first.
    Soonest,
    Random,
}

/// A policy that evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub scope: Scope,
    order: Order,
    n_samples: usize,
}

impl Rules {
    /// `None`: nothing is evicted.
    pub fn of(config: &Config) -> Option<Rules> {
        use MaxmemoryPolicy::{
            AllkeysLfu, AllkeysLrm, AllkeysLru, AllkeysRandom, NoEviction, VolatileLfu, VolatileLrm,
            VolatileLru, VolatileRandom, VolatileTtl,
        };
        let (scope, order) = match config.maxmemory_policy {
            NoEviction => return None,
            AllkeysLru | AllkeysLrm => (Scope::AllKeys, Order::Oldest),
            AllkeysLfu => (Scope::AllKeys, Order::Rarest),
            AllkeysRandom => (Scope::AllKeys, Order::Random),
            VolatileLru | VolatileLrm => (Scope::Volatile, Order::Oldest),
            VolatileLfu => (Scope::Volatile, Order::Rarest),
            VolatileRandom => (Scope::Volatile, Order::Random),
            VolatileTtl => (Scope::Volatile, Order::Soonest),
        };
        Some(Rules { scope, order, n_samples: config.maxmemory_samples as usize })
    }
}

/// What the policy wants access clocks to mean.
pub fn tracking(policy: MaxmemoryPolicy) -> Tracking {
    match policy {
        MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu => Tracking::Frequency,
        MaxmemoryPolicy::AllkeysLrm | MaxmemoryPolicy::VolatileLrm => Tracking::Modified,
        MaxmemoryPolicy::AllkeysLru
        | MaxmemoryPolicy::VolatileLru
        | MaxmemoryPolicy::AllkeysRandom
        | MaxmemoryPolicy::VolatileRandom
        | MaxmemoryPolicy::VolatileTtl
        | MaxmemoryPolicy::NoEviction => Tracking::Used,
    }
}

/// Keys that the pool holds, as in Redis.
const POOL: usize = 16;
/// Names that need no allocation.
const SHORT_NAME: usize = 64;
/// Candidates that may turn out to be gone or used before a call gives up.
const TRIES: usize = 64;

/// A key that was met, with all by which it was judged.
struct Candidate {
    /// The greater the sooner it goes; of no age, so that keys met at other times compare.
    score: u64,
    clock: u32,
    deadline_ms: Option<i64>,
    db: DbIndex,
    hash: u64,
    name: SmallVec<[u8; SHORT_NAME]>,
}

/// The best candidates so far, the best one last.
#[derive(Default)]
pub struct Candidates(Vec<Candidate>);

impl Candidates {
    fn offer(
        &mut self,
        rules: &Rules,
        (db, keyspace): (DbIndex, &Keyspace),
        now_ms: i64,
        entry: EntryRef<'_>,
    ) {
        let access = keyspace.access();
        let clock = clock_of(entry, access, now_ms);
        let score = match rules.order {
            Order::Oldest => u64::MAX - (now_ms / 1000 - i64::from(access.idle_s(clock))).max(0) as u64,
            Order::Rarest => u64::from(u8::MAX - access.frequency(clock)),
            Order::Soonest => u64::MAX - entry.expire_at().unwrap_or(i64::MAX).max(0) as u64,
            Order::Random => 0,
        };
        let is_full = self.0.len() >= POOL;
        if is_full && score <= self.0[0].score {
            return;
        }
        let hash = keyspace.seed().hash_key(entry.key());
        if self.0.iter().any(|known| known.hash == hash && known.db == db) {
            return;
        }
        if is_full {
            self.0.remove(0);
        }
        let at = self.0.partition_point(|known| known.score < score);
        let name = SmallVec::from_slice(entry.key());
        let (clock, deadline_ms) = (entry.clock(), entry.expire_at());
        self.0.insert(at, Candidate { score, clock, deadline_ms, db, hash, name });
    }

    /// Forgets all: another policy judges otherwise.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The access clock of a key, with what other cores have read of a vector set.
fn clock_of(entry: EntryRef<'_>, access: &AccessClock, now_ms: i64) -> u32 {
    let clock = entry.clock();
    if let View::Vector(vector) = entry.view()
        && access.tracking() == Tracking::Used
    {
        let idle_s = (now_ms / 1000 - vector.handle.last_used_s()).max(0) as u64;
        if idle_s < u64::from(access.idle_s(clock)) {
            return access.clock_of_idle(idle_s);
        }
    }
    clock
}

/// Whether a candidate is still what it was judged as.
fn is_unchanged(candidate: &Candidate, keyspace: &Keyspace, key: &Key<'_>) -> bool {
    keyspace.peek(key).is_some_and(|entry| {
        let is_free = !entry.is_lent() && !entry.is_held();
        is_free && entry.clock() == candidate.clock && entry.expire_at() == candidate.deadline_ms
    })
}

impl Shard {
    /// Keys that the policy may evict here.
    pub fn n_evictable(&self, scope: Scope) -> usize {
        self.keyspaces().iter().map(|keyspace| keyspace.n_evictable(scope)).sum()
    }

    /// Evicts one key; false if none was found.
    pub fn evict_one(&mut self, rules: &Rules, now_ms: i64) -> bool {
        if self.n_evictable(rules.scope) == 0 {
            return false;
        }
        for _ in 0..TRIES {
            let Some(candidate) = self.next_candidate(rules, now_ms) else { continue };
            let key = Key { bytes: &candidate.name, hash: candidate.hash };
            let keyspace = self.keyspace(candidate.db);
            if !is_unchanged(&candidate, keyspace, &key) {
                continue;
            }
            let Some(entry) = keyspace.remove(&key) else { continue };
            keyspace.discard(entry);
            self.stats.evicted_keys += 1;
            self.changed(candidate.db, &candidate.name, EventClass::Evicted, "evicted");
            return true;
        }
        false
    }

    /// Meets some more keys, and takes the best candidate out.
    fn next_candidate(&mut self, rules: &Rules, now_ms: i64) -> Option<Candidate> {
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut random = self.random_source();
        if rules.order == Order::Random {
            // A database is drawn by its keys, so that each has the same chance.
            candidates.clear();
            let mut at = ((u128::from(random()) * self.n_evictable(rules.scope) as u128) >> 64) as usize;
            let drawn = self.keyspaces().iter().position(|keyspace| {
                let n = keyspace.n_evictable(rules.scope);
                let is_drawn = at < n;
                at = at.saturating_sub(n);
                is_drawn
            });
            if let Some(db) = drawn {
                meet(&mut candidates, rules, (db, &self.keyspaces()[db]), 1, now_ms, &mut random);
            }
        } else {
            for (db, keyspace) in self.keyspaces().iter().enumerate() {
                if keyspace.n_evictable(rules.scope) > 0 {
                    meet(&mut candidates, rules, (db, keyspace), rules.n_samples, now_ms, &mut random);
                }
            }
        }
        let best = candidates.0.pop();
        self.candidates = candidates;
        best
    }
}

/// Offers some keys of a database to the pool.
fn meet(
    candidates: &mut Candidates,
    rules: &Rules,
    (db, keyspace): (usize, &Keyspace),
    n: usize,
    now_ms: i64,
    random: &mut impl FnMut() -> u64,
) {
    let offer = |entry: EntryRef<'_>| candidates.offer(rules, (DbIndex(db as u16), keyspace), now_ms, entry);
    match rules.order {
        Order::Soonest => keyspace.soonest(n, offer),
        Order::Oldest | Order::Rarest | Order::Random => keyspace.sample(rules.scope, n, random, offer),
    }
}
