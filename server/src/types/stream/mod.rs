//! A stream: entries in the order of their IDs, and the groups that read them.
//!
//! ```text
//!   Stream   history: how many entries there are and were, first, last and greatest deleted ID
//!            nodes: Sorted<Node>, each some 4 KiB of entries
//!            groups by name
//!            idempotence: what producers have sent, if any of them says so
//! ```
//!
//! Reading order: `id`, `node` (entries in one allocation), `sorted` (what holds nodes and pending entries in order), `group`,
//! `trim`, `radix` (the size of the tree that Redis would keep). Source: the behaviour of Redis 8.2's streams.
//!
//! Knows no clock, no reply and no option's text.
//! Invariants (`check`): nodes ascend and do not overlap; `history.length` is the number of living entries, `first_id` the
//! least of them (0-0 if there is none); no living entry is above `last_id`.
//! Cost: append O(1); find and seek O(log nodes + entries of a node); a range its entries.

mod group;
mod id;
mod idempotence;
mod node;
mod radix;
mod range;
mod sorted;
mod trim;

use std::collections::BTreeMap;

pub use group::{Consumer, ConsumerSlot, GIVEN_UP, Group, Nack, READS_UNKNOWN};
pub use id::{IdText, StreamId};
pub use idempotence::{Idempotence, IdempotenceLimits};
pub use node::{Entry, Node};
pub use range::{Range, RangeBackward};
pub use sorted::{Keyed, Place, Sorted};
pub use trim::{Garbage, References, Threshold, Trim};

use range::{range, range_backward};

/// Redis lets no node grow beyond this.
const NODE_MAX_BYTES: usize = 1 << 30;

/// When a node is full, by the directives' names; 0: never.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    pub stream_node_max_bytes: usize,
    pub stream_node_max_entries: u64,
}

/// How many entries there are and have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Entries that live.
    pub length: u64,
    /// Entries that were ever added.
    pub entries_added: u64,
    /// The first living entry, or 0-0.
    pub first_id: StreamId,
    /// The last ID that was given, or set.
    pub last_id: StreamId,
    /// The greatest ID that XDEL and its like have deleted. Trimming does not count.
    pub max_deleted_id: StreamId,
}

impl History {
    /// The ID of an entry that comes at `now_ms`, if there is one left.
    pub fn next_id(&self, now_ms: u64) -> Option<StreamId> {
        if now_ms > self.last_id.ms { Some(StreamId::new(now_ms, 0)) } else { self.last_id.next() }
    }

    /// Whether an entry was deleted from `start` on.
    pub fn has_tombstones_from(&self, start: StreamId) -> bool {
        self.length > 0 && !self.max_deleted_id.is_zero() && start <= self.max_deleted_id
    }

    /// How many entries were ever added up to `id`, where that can be told.
    pub fn distance_from_first_ever(&self, id: StreamId) -> Option<i64> {
        let (added, length) = (self.entries_added as i64, self.length as i64);
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last_id {
            return Some(added);
        }
        // Entries may be missing between `id` and the end.
        if !id.is_zero() && id < self.max_deleted_id || id > self.last_id {
            return None;
        }
        if id == self.last_id {
            return Some(added);
        }
        if self.max_deleted_id.is_zero() || self.max_deleted_id < self.first_id {
            if id < self.first_id {
                return Some(added.wrapping_sub(length));
            }
            if id == self.first_id {
                return Some(added.wrapping_sub(length).wrapping_add(1));
            }
        }
        None
    }

    /// How many entries a group has before it, where that can be told.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 || self.length == 0 {
            return Some(0);
        }
        if group.last_id < self.first_id && self.max_deleted_id < self.first_id {
            return Some(self.length as i64);
        }
        let added = self.entries_added as i64;
        if group.entries_read != READS_UNKNOWN && !self.has_tombstones_from(group.last_id) {
            return Some(added.wrapping_sub(group.entries_read));
        }
        self.distance_from_first_ever(group.last_id).map(|read| added.wrapping_sub(read))
    }

    /// `group` has been given the entry `id`.
    fn advance(&self, group: &mut Group, id: StreamId) {
        if id <= group.last_id {
            return;
        }
        let is_counted = group.entries_read != READS_UNKNOWN && group.last_id >= self.first_id;
        if is_counted && !self.has_tombstones_from(group.last_id) {
            group.entries_read = group.entries_read.wrapping_add(1);
        } else if self.entries_added > 0 {
            group.entries_read = self.distance_from_first_ever(id).unwrap_or(READS_UNKNOWN);
        }
        group.last_id = id;
    }
}

/// Whether a delivered entry waits to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledging {
    Needed,
    /// NOACK
    Spared,
}

#[derive(Clone, Default)]
pub struct Stream {
    pub history: History,
    nodes: Sorted<Node>,
    groups: BTreeMap<Box<[u8]>, Group>,
    pub idempotence: Option<Box<Idempotence>>,
}

impl Stream {
    // ---- entries

    pub fn len(&self) -> u64 {
        self.history.length
    }

    pub fn is_empty(&self) -> bool {
        self.history.length == 0
    }

    /// Adds an entry of a greater ID than all before.
    pub fn append<'a, P>(&mut self, id: StreamId, pairs: P, limits: NodeLimits)
    where
        P: ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        assert!(id > self.history.last_id, "IDs ascend");
        let n_bytes = pairs.clone().map(|(field, value)| field.len() + value.len()).sum();
        match self.nodes.last_mut() {
            Some(node) if limits.have_room(node, n_bytes) => node.append(id, pairs),
            last => {
                if let Some(node) = last {
                    node.close();
                }
                let mut node = Node::new(id, pairs.clone().map(|(field, _)| field));
                node.append(id, pairs);
                self.nodes.push(node);
            }
        }
        let history = &mut self.history;
        history.length += 1;
        history.entries_added = history.entries_added.wrapping_add(1);
        history.last_id = id;
        if history.length == 1 {
            history.first_id = id;
        }
    }

    /// The living entries from `start` to `end`, ascending.
    pub fn range(&self, start: StreamId, end: StreamId) -> Range<'_> {
        range(&self.nodes, start, end)
    }

    /// The same, descending.
    pub fn range_backward(&self, start: StreamId, end: StreamId) -> RangeBackward<'_> {
        range_backward(&self.nodes, start, end)
    }

    /// The living entry of this ID.
    pub fn find(&self, id: StreamId) -> Option<Entry<'_>> {
        self.nodes.get(self.nodes.floor(id)?)?.find(id)
    }

    /// Deletes an entry; false if it is not there. Tombstones are the caller's: see `note_deleted`.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some(place) = self.nodes.floor(id) else { return false };
        let Some(node) = self.nodes.get_mut(place) else { return false };
        let Some(deletion) = node.find(id).map(|entry| entry.deletion()) else { return false };
        if node.n_live == 1 {
            self.nodes.remove_at(place);
        } else {
            node.delete(deletion);
        }
        self.history.length -= 1;
        true
    }

    /// Deletes an entry as XDEL does; false if it is not there.
    pub fn delete_for_good(&mut self, id: StreamId) -> bool {
        if !self.delete(id) {
            return false;
        }
        let history = &mut self.history;
        history.max_deleted_id = history.max_deleted_id.max(id);
        if history.length == 0 || history.first_id == id {
            self.find_first_id();
        }
        true
    }

    fn find_first_id(&mut self) {
        let first = self.range(StreamId::MIN, StreamId::MAX).next();
        self.history.first_id = first.map_or(StreamId::MIN, |entry| entry.id);
    }

    /// The greatest living ID, or 0-0.
    pub fn last_living_id(&self) -> StreamId {
        self.range_backward(StreamId::MIN, StreamId::MAX).next().map_or(StreamId::MIN, |entry| entry.id)
    }

    pub fn nodes(&self) -> &Sorted<Node> {
        &self.nodes
    }

    /// Nodes of the radix tree that Redis would keep the same nodes in.
    pub fn n_radix_nodes(&self) -> usize {
        radix::n_nodes(self.nodes.iter().map(|node| node.master))
    }

    /// A stream of nodes that came from elsewhere; none if `history` does not fit them. Nodes ascend and do not overlap.
    pub fn of_nodes(history: History, nodes: Sorted<Node>) -> Option<Self> {
        let n_live: u64 = nodes.iter().map(|node| u64::from(node.n_live)).sum();
        let mut stream = Self { history, nodes, ..Self::default() };
        if n_live != history.length || stream.last_living_id() > history.last_id {
            return None;
        }
        stream.drop_dead_tail();
        stream.find_first_id();
        Some(stream)
    }

    /// Drops deleted entries at the end that are above the last ID: one may come again.
    pub fn drop_dead_tail(&mut self) {
        while let Some(node) = self.nodes.last_mut() {
            if node.entries().next_back().is_some_and(|last| last.id <= self.history.last_id) {
                return;
            }
            if node.n_live > 0 {
                return node.drop_dead_tail();
            }
            let master = node.master;
            self.nodes.remove(master);
        }
    }

    // ---- groups

    /// Gives a stream without groups these; false if two have one name.
    pub fn set_groups(&mut self, groups: Vec<(Box<[u8]>, Group)>) -> bool {
        let n = groups.len();
        self.groups = groups.into_iter().collect();
        self.groups.len() == n
    }

    pub fn groups(&self) -> &BTreeMap<Box<[u8]>, Group> {
        &self.groups
    }

    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.groups.get_mut(name)
    }

    /// Adds a group that is not there yet.
    pub fn add_group(&mut self, name: &[u8], group: Group) {
        self.groups.insert(name.into(), group);
    }

    pub fn remove_group(&mut self, name: &[u8]) -> Option<Group> {
        self.groups.remove(name)
    }

    /// Gives a consumer of a group up to `count` entries that the group has not had, for each of which `visit` says yes; it stops at
    /// the first no.
    pub fn deliver(
        &mut self,
        group: &[u8],
        consumer: ConsumerSlot,
        delivery: Delivery,
        mut visit: impl FnMut(&Entry<'_>) -> bool,
    ) -> usize {
        let Some(group) = self.groups.get_mut(group) else { return 0 };
        let Some(start) = group.last_id.next() else { return 0 };
        let mut n = 0;
        for entry in range(&self.nodes, start, StreamId::MAX).take(delivery.count) {
            if !visit(&entry) {
                break;
            }
            self.history.advance(group, entry.id);
            if delivery.acknowledging == Acknowledging::Needed {
                group.set_pending(Nack {
                    id: entry.id,
                    delivered_ms: delivery.now_ms,
                    n_deliveries: 1,
                    consumer,
                });
                group.consumer_mut(consumer).active_ms = Some(delivery.now_ms);
            }
            n += 1;
        }
        n
    }

    /// Whether an entry must stay for some group: pending there, or not yet read.
    pub fn is_referenced(&self, id: StreamId) -> bool {
        self.groups.values().any(|group| group.last_id < id || group.find_pending(id).is_some())
    }

    /// Takes an entry off every group's pending list.
    pub fn remove_references(&mut self, id: StreamId) {
        self.groups.values_mut().for_each(|group| {
            group.remove_pending(id);
        });
    }

    // ---- memory

    /// What was trimmed, on its way to be freed.
    pub fn of_garbage(garbage: Garbage) -> Self {
        let mut nodes = Sorted::default();
        garbage.into_iter().for_each(|node| nodes.push(node));
        Self { nodes, ..Self::default() }
    }

    /// A group that was removed, on its way to be freed.
    pub fn of_group(group: Group) -> Self {
        Self { groups: BTreeMap::from([(Box::default(), group)]), ..Self::default() }
    }

    /// What producers had sent and is forgotten, on its way to be freed.
    pub fn of_idempotence(forgotten: Idempotence) -> Self {
        Self { idempotence: Some(Box::new(forgotten)), ..Self::default() }
    }

    /// Drops about `budget` items; true when the rest costs nothing to drop.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let mut left = budget;
        while let Some(mut group) = self.groups.last_entry() {
            if left == 0 || !group.get_mut().free_slice(left) {
                return false;
            }
            group.remove();
            left = left.saturating_sub(budget / 4 + 1);
        }
        if let Some(idempotence) = &mut self.idempotence
            && !idempotence.free_slice(left)
        {
            return false;
        }
        self.nodes.free_slice(left)
    }

    /// Heap bytes; estimated by the first thousand nodes and the first groups where there are more.
    pub fn memory_bytes(&self) -> usize {
        let of_nodes: usize = self.nodes.iter().take(WEIGHED_NODES).map(Node::memory_bytes).sum();
        let of_groups: usize = self
            .groups
            .iter()
            .take(WEIGHED_GROUPS)
            .map(|(name, group)| name.len() + group.memory_bytes())
            .sum();
        size_of::<Self>()
            + self.nodes.memory_bytes()
            + scaled(of_nodes, self.nodes.len(), WEIGHED_NODES)
            + self.groups.len() * size_of::<(Box<[u8]>, Group)>() * 3 / 2
            + scaled(of_groups, self.groups.len(), WEIGHED_GROUPS)
            + self.idempotence.as_ref().map_or(0, |idempotence| idempotence.memory_bytes())
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        self.nodes.check();
        let mut living = Vec::new();
        let mut last = None;
        for node in self.nodes.iter() {
            node.check();
            for entry in node.entries() {
                assert!(last < Some(entry.id), "nodes overlap");
                last = Some(entry.id);
                if !entry.is_deleted {
                    living.push(entry.id);
                }
            }
        }
        assert_eq!(self.history.length, living.len() as u64);
        assert_eq!(self.history.first_id, living.first().copied().unwrap_or_default());
        assert!(living.last().is_none_or(|last| *last <= self.history.last_id));
        self.groups.values().for_each(Group::check);
        self.idempotence.iter().for_each(|idempotence| idempotence.check());
    }
}

/// How XREADGROUP delivers.
#[derive(Clone, Copy)]
pub struct Delivery {
    pub count: usize,
    pub acknowledging: Acknowledging,
    pub now_ms: i64,
}

/// Nodes and groups whose memory is looked at; the others count as these on average.
const WEIGHED_NODES: usize = 1024;
const WEIGHED_GROUPS: usize = 64;

fn scaled(bytes: usize, n: usize, n_weighed: usize) -> usize {
    if n <= n_weighed { bytes } else { (bytes as u128 * n as u128 / n_weighed as u128) as usize }
}

impl NodeLimits {
    fn have_room(self, node: &Node, n_bytes: usize) -> bool {
        let max_bytes = match self.stream_node_max_bytes {
            0 => NODE_MAX_BYTES,
            max_bytes => max_bytes.min(NODE_MAX_BYTES),
        };
        node.listpack_bytes() + n_bytes < max_bytes
            && (self.stream_node_max_entries == 0 || node.n_entries() < self.stream_node_max_entries)
    }
}
