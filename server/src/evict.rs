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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{HashSeed, NewValue, Ttl};
    use crate::shard::ShardId;

    const N: i64 = 3000;
    const NOW_MS: i64 = 1_700_000_000_000;

    /// Keys 0, 1, 2 and so on; every `step`th has a deadline, the later the greater its number.
    fn filled(step: i64) -> Shard {
        let mut shard = Shard::new(ShardId(0), 2, HashSeed::from_u64(3), 3);
        shard.tell_time(NOW_MS);
        for n in 0..N {
            let name = n.to_string();
            let keyspace = shard.keyspace(DbIndex(1));
            let ttl = if n % step == 0 { Ttl::At(NOW_MS + 1000 * (n + 1)) } else { Ttl::Clear };
            let key = Key::new(name.as_bytes(), keyspace.seed());
            keyspace.set(&key, NewValue::Int(n), ttl);
        }
        shard
    }

    fn rules(scope: Scope, order: Order) -> Rules {
        Rules { scope, order, n_samples: 5 }
    }

    /// However rare they are, all volatile keys are found and no others, one a call.
    #[test]
    fn each_call_finds_a_key_while_there_is_one() {
        for order in [Order::Oldest, Order::Rarest, Order::Soonest, Order::Random] {
            for step in [1, 2, 15, 50, 100, 1500] {
                let mut shard = filled(step);
                let n_volatile = shard.n_evictable(Scope::Volatile);
                assert_eq!(n_volatile as i64, N / step);
                for left in (0..n_volatile).rev() {
                    assert!(
                        shard.evict_one(&rules(Scope::Volatile, order), NOW_MS),
                        "{order:?}, {step}, {left}"
                    );
                    assert_eq!(shard.n_evictable(Scope::Volatile), left, "{order:?}");
                }
                assert!(!shard.evict_one(&rules(Scope::Volatile, order), NOW_MS));
                assert_eq!(shard.n_evictable(Scope::AllKeys) as i64, N - N / step);
                assert_eq!(shard.stats.evicted_keys as i64, N / step);
            }
        }
    }

    /// Of a thousand keys evicted from three thousand, nearly all are of the older half.
    #[test]
    fn old_keys_go_before_new_ones() {
        let mut shard = filled(2);
        for second in 1..=10 {
            let now_ms = NOW_MS + second * 1000;
            shard.tell_time(now_ms);
            for n in (N / 2..N).filter(|n| n % 10 == second % 10) {
                let name = n.to_string();
                let keyspace = shard.keyspace(DbIndex(1));
                keyspace.touch(&Key::new(name.as_bytes(), keyspace.seed()));
            }
        }
        for _ in 0..1000 {
            assert!(shard.evict_one(&rules(Scope::AllKeys, Order::Oldest), NOW_MS + 10_000));
        }
        let is_old = |entry: &EntryRef<'_>| matches!(entry.view(), View::Int(n) if n < N / 2);
        let n_old = shard.keyspaces()[1].iter().filter(is_old).count();
        assert!(n_old < 550, "{n_old} old keys are left");
    }

    /// Nothing that is lent or read from elsewhere goes.
    #[test]
    fn what_is_away_stays() {
        let mut shard = filled(1);
        let keyspace = shard.keyspace(DbIndex(1));
        let seed = keyspace.seed();
        let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let lent: Vec<_> =
            names[..10].iter().map(|name| keyspace.take(&Key::new(name.as_bytes(), seed))).collect();
        let shared: Vec<_> =
            names[10..].iter().map(|name| keyspace.share(&Key::new(name.as_bytes(), seed), NOW_MS)).collect();
        assert!(lent.iter().chain(&shared).all(Option::is_some));
        while shard.evict_one(&rules(Scope::AllKeys, Order::Oldest), NOW_MS) {}
        assert_eq!(shard.keyspaces()[1].len(), 20);
    }
}
