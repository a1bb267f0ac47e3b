//! What the producers of a stream have sent: idempotent IDs (XADD's IDMP and IDMPAUTO of Redis 8.6), so that a message that is sent
//! again gets the ID of its entry instead of a second entry.
//!
//! ```text
//!   producer ──► sent: (ID, when), the oldest first     at most `max_ids`
//!                by_id: ID -> the entry's
//! ```
//!
//! IDs are forgotten when `duration_ms` have gone since, or as the oldest of more than `max_ids`. That happens when their producer is
//! asked for, and to one other producer at every addition, so that those that never come again go as well.
//!
//! Knows no clock. Source: the command pages of XADD and XCFGSET, <https://redis.io/docs/latest/develop/data-types/streams/idempotency/>.
//! Invariant (`check`): `sent` and `by_id` hold the same IDs; no producer is without one.
//! Cost: O(log producers + log IDs), and the IDs that are forgotten meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use super::StreamId;

/// IDs that are forgotten at most for each that comes, beyond the producer's own.
const SWEPT: usize = 16;
/// What an ID costs beside its bytes: its two counters, its place in line, two thirds full nodes of the tree.
const ID_ENTRY_BYTES: usize = 16 + 24 + 48;
const PRODUCER_ENTRY_BYTES: usize = 150;
/// Producers whose memory is looked at; the others count as these on average.
const WEIGHED_PRODUCERS: usize = 64;

/// How long and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotenceLimits {
    pub duration_s: u32,
    pub max_ids: u32,
}

impl IdempotenceLimits {
    fn is_expired(self, at_ms: i64, now_ms: i64) -> bool {
        now_ms.saturating_sub(at_ms) >= i64::from(self.duration_s) * 1000
    }
}

#[derive(Clone, Default)]
struct Producer {
    sent: VecDeque<(Arc<[u8]>, i64)>,
    by_id: BTreeMap<Arc<[u8]>, StreamId>,
}

#[derive(Clone)]
pub struct Idempotence {
    limits: IdempotenceLimits,
    producers: BTreeMap<Box<[u8]>, Producer>,
    /// The producer that was swept last.
    swept: Box<[u8]>,
    /// What IDs made of contents depend on beside these.
    seed: u64,
    n_added: u64,
    n_duplicates: u64,
}

impl Idempotence {
    pub fn new(limits: IdempotenceLimits, seed: u64) -> Self {
        Self { limits, producers: BTreeMap::new(), swept: Box::default(), seed, n_added: 0, n_duplicates: 0 }
    }

    pub fn limits(&self) -> IdempotenceLimits {
        self.limits
    }

    /// Other limits forget all IDs, and the counts stay. What was remembered so far, to be freed.
    pub fn set_limits(&mut self, limits: IdempotenceLimits) -> Self {
        let mut forgotten = Self::new(self.limits, self.seed);
        if limits != self.limits {
            self.limits = limits;
            std::mem::swap(&mut self.producers, &mut forgotten.producers);
        }
        forgotten
    }

    /// Entries that were ever added with an ID.
    pub fn n_added(&self) -> u64 {
        self.n_added
    }

    /// Entries that were not added, as they were there.
    pub fn n_duplicates(&self) -> u64 {
        self.n_duplicates
    }

    /// Producers and IDs that are remembered at `now_ms`.
    pub fn n_tracked(&self, now_ms: i64) -> (usize, usize) {
        let living = |producer: &Producer| {
            let expired =
                producer.sent.iter().take_while(|(_, at_ms)| self.limits.is_expired(*at_ms, now_ms)).count();
            producer.sent.len() - expired
        };
        let counts = self.producers.values().map(living).filter(|n| *n > 0);
        counts.fold((0, 0), |(n_producers, n_ids), n| (n_producers + 1, n_ids + n))
    }

    /// The entry that `producer` has sent under this ID, if that is remembered.
    pub fn known(&mut self, producer: &[u8], id: &[u8], now_ms: i64) -> Option<StreamId> {
        self.forget_expired(producer, usize::MAX, now_ms);
        self.producers.get(producer)?.by_id.get(id).copied()
    }

    /// The same of a message that is sent again, which counts.
    pub fn find(&mut self, producer: &[u8], id: &[u8], now_ms: i64) -> Option<StreamId> {
        let entry = self.known(producer, id, now_ms);
        self.n_duplicates += u64::from(entry.is_some());
        entry
    }

    /// Remembers an entry that was not there.
    pub fn add(&mut self, producer: &[u8], id: &[u8], entry: StreamId, now_ms: i64) {
        self.n_added += 1;
        let max_ids = self.limits.max_ids as usize;
        let of_producer = match self.producers.get_mut(producer) {
            Some(of_producer) => of_producer,
            None => self.producers.entry(producer.into()).or_default(),
        };
        while of_producer.sent.len() >= max_ids.max(1) {
            of_producer.forget_oldest();
        }
        let id: Arc<[u8]> = id.into();
        let before = of_producer.by_id.insert(id.clone(), entry);
        debug_assert!(before.is_none());
        of_producer.sent.push_back((id, now_ms));
        self.sweep(now_ms);
    }

    /// Forgets what has expired of one producer, another one each time.
    pub fn sweep(&mut self, now_ms: i64) {
        let after = (Bound::Excluded(&*self.swept), Bound::Unbounded);
        let next = self.producers.range::<[u8], _>(after).next().or_else(|| self.producers.first_key_value());
        let Some((name, _)) = next else { return };
        let name = name.clone();
        self.forget_expired(&name, SWEPT, now_ms);
        self.swept = name;
    }

    fn forget_expired(&mut self, producer: &[u8], most: usize, now_ms: i64) {
        let limits = self.limits;
        let Some(of_producer) = self.producers.get_mut(producer) else { return };
        for _ in 0..most {
            match of_producer.sent.front() {
                Some((_, at_ms)) if limits.is_expired(*at_ms, now_ms) => of_producer.forget_oldest(),
                Some(_) | None => break,
            }
        }
        if of_producer.sent.is_empty() {
            self.producers.remove(producer);
        }
    }

    /// An ID made of an entry's fields and values, whatever their order.
    pub fn id_of_content<'a>(&self, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> [u8; 16] {
        let mut sum = 0_u128;
        for (field, value) in pairs {
            let half = |which: u64| {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(self.seed ^ which);
                // Where the field ends counts.
                hasher.write_usize(field.len());
                hasher.write(field);
                hasher.write(value);
                u128::from(hasher.finish())
            };
            sum = sum.wrapping_add(half(0) << 64 | half(u64::MAX));
        }
        sum.to_be_bytes()
    }

    /// Drops about `budget` items; true when none is left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let mut left = budget;
        while let Some(mut producer) = self.producers.last_entry() {
            if left == 0 {
                return false;
            }
            let n = producer.get().sent.len().min(left);
            (0..n).for_each(|_| producer.get_mut().forget_oldest());
            left -= n;
            if producer.get().sent.is_empty() {
                producer.remove();
            }
        }
        true
    }

    pub fn memory_bytes(&self) -> usize {
        let weighed = self.producers.iter().take(WEIGHED_PRODUCERS);
        let bytes: usize = weighed
            .map(|(name, producer)| {
                let n_ids = producer.sent.len();
                let id_bytes = producer.sent.front().map_or(0, |(id, _)| id.len());
                PRODUCER_ENTRY_BYTES + name.len() + n_ids * (ID_ENTRY_BYTES + id_bytes)
            })
            .sum();
        let n_weighed = self.producers.len().clamp(1, WEIGHED_PRODUCERS);
        size_of::<Self>() + bytes * self.producers.len() / n_weighed
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        for producer in self.producers.values() {
            assert!(!producer.sent.is_empty());
            assert!(producer.sent.len() <= self.limits.max_ids as usize);
            assert_eq!(producer.sent.len(), producer.by_id.len());
            assert!(producer.sent.iter().all(|(id, _)| producer.by_id.contains_key(id)));
        }
    }
}

impl Producer {
    fn forget_oldest(&mut self) {
        if let Some((id, _)) = self.sent.pop_front() {
            self.by_id.remove(&id);
        }
    }
}
