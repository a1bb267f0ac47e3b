//! A consumer group: how far it has read, who reads, and what is pending.
//!
//! ```text
//!   Group      last_id, entries_read | Members (nothing until the first consumer)
//!   Members    pending: Sorted<Nack>           by ID: when, how often and to whom delivered
//!              consumers: slots, by name       each with the IDs of its own pending entries
//! ```
//!
//! A pending entry that XNACK has released is nobody's (`ConsumerSlot::NOBODY`): it stands in the group's list alone. In the place
//! of the time when it was delivered it has its turn among the released ones, as the first released is the first to be claimed;
//! `Nack::told_ms` and `idle_ms` say 0 for it, as Redis does.
//!
//! Invariant (`check`): an ID is in one consumer's list exactly if it is in the group's, under that consumer; `n_released` entries are
//! nobody's.
//! Cost: an entry pending takes 40 + 16 bytes and little more, for the chunks are full where entries are read in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::StreamId;
use super::sorted::{Keyed, Place, Sorted};

/// Which consumer of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerSlot(u32);

impl ConsumerSlot {
    /// No consumer of any group: the entry was released.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// A pending entry: delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    pub id: StreamId,
    pub delivered_ms: i64,
    pub n_deliveries: u64,
    pub consumer: ConsumerSlot,
}

impl Nack {
    pub fn is_released(&self) -> bool {
        self.consumer == ConsumerSlot::NOBODY
    }

    /// When it was delivered, as clients are told: 0 of a released one.
    pub fn told_ms(&self) -> i64 {
        if self.is_released() { 0 } else { self.delivered_ms }
    }

    pub fn idle_ms(&self, now_ms: i64) -> i64 {
        now_ms.wrapping_sub(self.told_ms())
    }

    /// Deliveries so far and one more; who has given up on an entry (XNACK FATAL) has done so for good.
    pub fn n_deliveries_with_one_more(&self) -> u64 {
        match self.n_deliveries {
            GIVEN_UP => GIVEN_UP,
            n_deliveries => n_deliveries.wrapping_add(1),
        }
    }
}

/// Deliveries of an entry that is not to be tried again.
pub const GIVEN_UP: u64 = i64::MAX as u64;

impl Keyed for Nack {
    #[inline]
    fn id(&self) -> StreamId {
        self.id
    }
}

#[derive(Clone)]
pub struct Consumer {
    pub name: Arc<[u8]>,
    /// When it last asked.
    pub seen_ms: i64,
    /// When it was last given something; none: never.
    pub active_ms: Option<i64>,
    pending: Sorted<StreamId>,
}

impl Consumer {
    pub fn new(name: &[u8], now_ms: i64) -> Self {
        Self { name: name.into(), seen_ms: now_ms, active_ms: None, pending: Sorted::default() }
    }

    pub fn pending(&self) -> &Sorted<StreamId> {
        &self.pending
    }
}

#[derive(Clone, Default)]
struct Members {
    pending: Sorted<Nack>,
    slots: Vec<Option<Consumer>>,
    free: Vec<u32>,
    by_name: BTreeMap<Arc<[u8]>, u32>,
    /// Entries that are nobody's, and how many were ever released.
    n_released: usize,
    n_ever_released: i64,
}

/// The reads counter of a group that does not know how many entries lie behind it.
pub const READS_UNKNOWN: i64 = -1;

#[derive(Clone)]
pub struct Group {
    pub last_id: StreamId,
    /// Entries of the stream up to `last_id`, or `READS_UNKNOWN`.
    pub entries_read: i64,
    members: Option<Box<Members>>,
}

static NOTHING_PENDING: Sorted<Nack> = Sorted::EMPTY;

impl Group {
    pub fn new(last_id: StreamId, entries_read: i64) -> Self {
        Self { last_id, entries_read, members: None }
    }

    pub fn pending(&self) -> &Sorted<Nack> {
        self.members.as_ref().map_or(&NOTHING_PENDING, |members| &members.pending)
    }

    /// Pending entries that are nobody's.
    pub fn n_released(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members.n_released)
    }

    pub fn n_consumers(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members.by_name.len())
    }

    /// Consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.members.iter().flat_map(|members| {
            members.by_name.values().filter_map(|slot| members.slots[*slot as usize].as_ref())
        })
    }

    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerSlot> {
        self.members.as_ref()?.by_name.get(name).copied().map(ConsumerSlot)
    }

    pub fn consumer(&self, slot: ConsumerSlot) -> &Consumer {
        let members = self.members.as_ref().expect("a slot belongs to a consumer");
        members.slots[slot.0 as usize].as_ref().expect("a slot belongs to a consumer")
    }

    /// What the consumer is called; nobody has an empty name.
    pub fn name_of(&self, slot: ConsumerSlot) -> &[u8] {
        if slot == ConsumerSlot::NOBODY { b"" } else { &self.consumer(slot).name }
    }

    pub fn consumer_mut(&mut self, slot: ConsumerSlot) -> &mut Consumer {
        let members = self.members.as_mut().expect("a slot belongs to a consumer");
        members.slots[slot.0 as usize].as_mut().expect("a slot belongs to a consumer")
    }

    /// Room for so many consumers more: they will come.
    pub fn reserve_consumers(&mut self, n: usize) {
        if n > 0 {
            self.members.get_or_insert_default().slots.reserve_exact(n);
        }
    }

    /// Adds a consumer that is not there yet.
    pub fn add_consumer(&mut self, consumer: Consumer) -> ConsumerSlot {
        let members = self.members.get_or_insert_default();
        let name = consumer.name.clone();
        let slot = match members.free.pop() {
            Some(slot) => {
                members.slots[slot as usize] = Some(consumer);
                slot
            }
            None => {
                if members.slots.is_empty() {
                    members.slots.reserve_exact(1);
                }
                members.slots.push(Some(consumer));
                members.slots.len() as u32 - 1
            }
        };
        let before = members.by_name.insert(name, slot);
        debug_assert!(before.is_none());
        ConsumerSlot(slot)
    }

    /// Removes a consumer with all that is pending for it; its list, which may be long.
    pub fn remove_consumer(&mut self, slot: ConsumerSlot) -> Sorted<StreamId> {
        let Some(members) = &mut self.members else { return Sorted::default() };
        let Some(consumer) = members.slots[slot.0 as usize].take() else { return Sorted::default() };
        members.by_name.remove(&consumer.name);
        members.free.push(slot.0);
        for id in consumer.pending.iter() {
            members.pending.remove(*id);
        }
        consumer.pending
    }

    /// Makes `nack` pending, whoever it was pending for.
    pub fn set_pending(&mut self, nack: Nack) {
        let members = self.members.get_or_insert_default();
        let is_new = members.pending.insert(nack);
        if !is_new && let Some(place) = members.pending.find(nack.id) {
            let old = members.pending.get_mut(place).expect("found");
            let owner = std::mem::replace(old, nack).consumer;
            if owner == nack.consumer {
                return;
            }
            members.disown(owner, nack.id);
        }
        match members.owned_by(nack.consumer) {
            Some(owned) => drop(owned.insert(nack.id)),
            None => members.n_released += 1,
        }
    }

    /// Makes the entry `id` pending for nobody, behind those that already are.
    pub fn release(&mut self, id: StreamId, n_deliveries: u64) {
        let members = self.members.get_or_insert_default();
        members.n_ever_released += 1;
        let turn = members.n_ever_released;
        self.set_pending(Nack { id, delivered_ms: turn, n_deliveries, consumer: ConsumerSlot::NOBODY });
    }

    /// A change of an entry that is pending and stays with its consumer.
    pub fn pending_mut(&mut self, id: StreamId) -> Option<&mut Nack> {
        let members = self.members.as_mut()?;
        let place = members.pending.find(id)?;
        members.pending.get_mut(place)
    }

    /// Takes a pending entry off the lists.
    pub fn remove_pending(&mut self, id: StreamId) -> Option<Nack> {
        let members = self.members.as_mut()?;
        let nack = members.pending.remove(id)?;
        members.disown(nack.consumer, id);
        Some(nack)
    }

    pub fn find_pending(&self, id: StreamId) -> Option<&Nack> {
        let pending = self.pending();
        pending.get(pending.find(id)?)
    }

    pub fn pending_at(&self, place: Place) -> Option<&Nack> {
        self.pending().get(place)
    }

    /// Drops about `budget` items; true when nothing is left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let Some(members) = &mut self.members else { return true };
        if !members.pending.free_slice(budget) {
            return false;
        }
        let mut left = budget;
        while let Some(slot) = members.slots.last_mut() {
            if let Some(consumer) = slot {
                let n = consumer.pending.len();
                if left == 0 || !consumer.pending.free_slice(left) {
                    return false;
                }
                members.by_name.remove(&consumer.name);
                left = left.saturating_sub(n + 1);
            }
            members.slots.pop();
        }
        true
    }

    pub fn memory_bytes(&self) -> usize {
        let Some(members) = &self.members else { return 0 };
        let of_consumers: usize = self
            .consumers()
            .take(WEIGHED_CONSUMERS)
            .map(|consumer| consumer.name.len() + ARC_BYTES + consumer.pending.memory_bytes())
            .sum();
        let n_weighed = members.by_name.len().clamp(1, WEIGHED_CONSUMERS);
        size_of::<Members>()
            + members.pending.memory_bytes()
            + members.slots.capacity() * size_of::<Option<Consumer>>()
            + members.free.capacity() * size_of::<u32>()
            + members.by_name.len() * NAME_ENTRY_BYTES
            + of_consumers * members.by_name.len() / n_weighed
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        let Some(members) = &self.members else { return };
        members.pending.check();
        let mut n = 0;
        for (name, slot) in &members.by_name {
            let consumer = members.slots[*slot as usize].as_ref().expect("named");
            assert_eq!(*name, consumer.name);
            consumer.pending.check();
            n += consumer.pending.len();
            for id in consumer.pending.iter() {
                assert_eq!(self.find_pending(*id).expect("pending").consumer, ConsumerSlot(*slot));
            }
        }
        assert_eq!(n + members.n_released, members.pending.len());
        assert_eq!(members.n_released, members.pending.iter().filter(|nack| nack.is_released()).count());
        assert_eq!(members.by_name.len() + members.free.len(), members.slots.len());
    }
}

/// Consumers whose memory is looked at; the others count as these on average.
const WEIGHED_CONSUMERS: usize = 64;
/// The two counters before a shared name.
const ARC_BYTES: usize = 16;
/// A name in the tree, whose nodes are two thirds full.
const NAME_ENTRY_BYTES: usize = 36;

impl Members {
    /// The list of a consumer; nobody has none.
    fn owned_by(&mut self, slot: ConsumerSlot) -> Option<&mut Sorted<StreamId>> {
        if slot == ConsumerSlot::NOBODY {
            return None;
        }
        Some(&mut self.slots[slot.0 as usize].as_mut().expect("a slot belongs to a consumer").pending)
    }

    fn disown(&mut self, slot: ConsumerSlot, id: StreamId) {
        match self.owned_by(slot) {
            Some(owned) => drop(owned.remove(id)),
            None => self.n_released -= 1,
        }
    }
}
