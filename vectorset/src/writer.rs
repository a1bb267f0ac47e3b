//! The writing side of a set. There is one `Writer` per set; it alone changes the graph, and it alone frees.
//!
//! Order of publication: an added node is linked first and named last; a removed one loses its name first and
//! its links after. So who finds a name finds a linked node. What was removed waits in limbo; every change
//! collects a little.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::epoch::Limbo;
use crate::error::Error;
use crate::filter::{Attribute, MatchCache};
use crate::graph::{MAX_LEVEL, MAX_NODES, NodeId};
use crate::hnsw::{Entries, Index, Plan, Probe};
use crate::insertion::{Planned, level_of};
use crate::ladder::Rung;
use crate::names::{NamesWriter, RetiredTables};
use crate::remains::Remains;
use crate::scratch::SearchScratch;
use crate::set::VectorSet;
use crate::shared::Unlinked;
use crate::width::Width;

/// Things freed with every change, if their time has come: more than a change retires, so limbo does not
/// grow.
const COLLECTED_PER_CHANGE: usize = 8;

/// Nodes remembered for plans that do not know them. More plans than that are seldom under way at once.
const MAX_RECENT: usize = 32;
/// Sets below this are scanned anyway: no list of matches is kept for them.
const MIN_LISTED_SET: usize = 1024;

/// What became of an added element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    New,
    Updated,
}

/// The right to change a set.
pub struct Writer {
    pub(crate) set: Arc<VectorSet>,
    names: NamesWriter,
    limbo: Limbo<Retired>,
    /// Ids to use again, the lowest first: high chunks empty and can be released.
    free_ids: BinaryHeap<Reverse<u32>>,
    next_id: u32,
    /// Ids in use or in limbo, per chunk.
    chunk_users: Vec<u32>,
    /// `towers[level]`: the nodes whose highest level it is, for levels above 0.
    pub(crate) towers: Vec<Vec<NodeId>>,
    entries: Entries,
    random: u64,
    /// The nodes linked last, the newest at the back: a plan that is older does not know them.
    recent: VecDeque<NodeId>,
    /// Chunks that were found without users.
    emptied: Vec<usize>,
    /// Rungs that nobody reads, and from which chunk on they still have memory.
    unused_rungs: Vec<(Rung, usize)>,
    pub(crate) width: Width,
}

/// A node to be inserted.
struct Arrival<'a> {
    /// Prepared from its vector, measuring what the graph is built by.
    probe: &'a Probe,
    l2: f64,
    level: usize,
    ef: usize,
    /// A plan, and how many of `Writer::recent` are newer.
    plan: Option<(&'a Plan, usize)>,
}

/// Something that no new reader can find.
pub(crate) enum Retired {
    Node(NodeId),
    Attribute(Unlinked<Attribute>),
    Names(RetiredTables),
    /// Codes that probes of searches under way may still measure with.
    Rung(Rung),
}

impl Retired {
    /// Frees it. The caller knows that no reader has it any more.
    pub(crate) fn free(self, index: &Index) {
        match self {
            // SAFETY: the node was initialised and left the members when it was retired; the caller vouches
            // for the readers.
            Retired::Node(id) => unsafe { index.graph.destroy(id) },
            Retired::Attribute(attribute) => attribute.free(),
            Retired::Names(tables) => tables.free(),
            // Its memory is the slab's.
            Retired::Rung(_) => {}
        }
    }
}

impl Writer {
    pub(crate) fn new(set: Arc<VectorSet>, names: NamesWriter) -> Writer {
        let random = set.params.seed;
        Writer {
            set,
            names,
            limbo: Limbo::new(),
            free_ids: BinaryHeap::new(),
            next_id: 0,
            chunk_users: Vec::new(),
            towers: vec![Vec::new(); MAX_LEVEL + 1],
            entries: Entries::default(),
            random,
            recent: VecDeque::new(),
            emptied: Vec::new(),
            unused_rungs: Vec::new(),
            width: Width::new(),
        }
    }

    pub fn set(&self) -> &Arc<VectorSet> {
        &self.set
    }

    /// Adds an element or replaces the vector of one. `vector` is as the client gave it. Without `attribute`
    /// a replaced element keeps its own; an empty one removes it.
    pub fn add(
        &mut self,
        name: &[u8],
        vector: &[f32],
        attribute: Option<&[u8]>,
        ef: usize,
        scratch: &mut SearchScratch,
    ) -> Result<Added, Error> {
        let set = self.set.clone();
        set.check_dim(vector)?;
        let mut probe = std::mem::take(&mut scratch.probe);
        let added = set.index.prepare(vector, &mut probe).and_then(|l2| {
            set.index.measure_structure(&mut probe);
            let level = self.draw_level();
            self.insert(name, Arrival { probe: &probe, l2, level, ef, plan: None }, attribute, scratch)
        });
        scratch.probe = probe;
        added
    }

    /// `add` with a plan that a reader has made. What has changed since is planned again; `ef` serves if that
    /// is everything.
    ///
    /// # Panics
    /// If the plan was made for another set.
    pub fn commit(
        &mut self,
        name: &[u8],
        planned: &Planned,
        attribute: Option<&[u8]>,
        ef: usize,
        scratch: &mut SearchScratch,
    ) -> Result<Added, Error> {
        assert!(planned.is_for(&self.set), "a plan for another set is committed");
        let n_since = self.set.max_node_uid.load(Ordering::Relaxed) - planned.n_linked_before;
        let n_recent = n_since.min(self.recent.len() as u64) as usize;
        // If a good part of the set is newer than the plan, little of it is right.
        let is_outdated = n_since > MAX_RECENT as u64 && n_since * 4 > self.set.len() as u64;
        let Planned { probe, l2, level, plan, .. } = planned;
        if probe.rung() != self.set.index.codes.walked() {
            let mut probe = std::mem::take(&mut scratch.probe);
            self.set.index.prepare_again(&planned.probe, &mut probe);
            self.set.index.measure_structure(&mut probe);
            let arrival = Arrival { probe: &probe, l2: *l2, level: *level, ef, plan: None };
            let added = self.insert(name, arrival, attribute, scratch);
            scratch.probe = probe;
            return added;
        }
        let plan = (!is_outdated).then_some((plan, n_recent));
        self.insert(name, Arrival { probe, l2: *l2, level: *level, ef, plan }, attribute, scratch)
    }

    /// Puts a new node in the place of a member's, with the same vector, length, level and attribute: its links
    /// are chosen by what walks read now.
    pub(crate) fn insert_anew(
        &mut self,
        id: NodeId,
        ef: usize,
        scratch: &mut SearchScratch,
    ) -> Result<(), Error> {
        let set = self.set.clone();
        let node = set.index.graph.node(id);
        let name = node.name.text().to_vec();
        let mut probe = std::mem::take(&mut scratch.probe);
        let inserted = set.index.prepare_stored(id, &mut probe).and_then(|()| {
            set.index.measure_structure(&mut probe);
            let arrival = Arrival { probe: &probe, l2: node.l2(), level: node.level(), ef, plan: None };
            self.insert(&name, arrival, None, scratch)
        });
        scratch.probe = probe;
        inserted.map(drop)
    }

    fn insert(
        &mut self,
        name: &[u8],
        arrival: Arrival<'_>,
        attribute: Option<&[u8]>,
        scratch: &mut SearchScratch,
    ) -> Result<Added, Error> {
        let set = self.set.clone();
        let old = self.find(name);
        let kept = old.and_then(|old| set.index.graph.node(old).attribute.load_unguarded());
        let attribute = match attribute {
            Some(given) => Some(given).filter(|given| !given.is_empty()),
            None => kept.map(Attribute::text),
        };
        let id = self.take_id().ok_or(Error::Full)?;
        set.index.write(id, arrival.probe);
        set.index.graph.create(id, arrival.level, name, attribute, arrival.l2);
        self.count_bytes(set.index.graph.node(id).heap_bytes() as isize);
        set.attributes_count.fetch_add(u32::from(attribute.is_some()), Ordering::Relaxed);
        self.log_changed(id);
        let added = match old {
            Some(old) => {
                set.changes.fetch_add(1, Ordering::AcqRel);
                self.link_node(id, &arrival, scratch);
                let member_index = set.index.graph.node(old).member_index.load(Ordering::Relaxed);
                set.index.graph.node(id).member_index.store(member_index, Ordering::Relaxed);
                set.members.replace(member_index, id);
                self.names.replace(&set.names, name, old, id);
                self.retire_node(old, scratch);
                set.changes.fetch_add(1, Ordering::AcqRel);
                Added::Updated
            }
            None => {
                self.link_node(id, &arrival, scratch);
                self.make_member(name, id);
                Added::New
            }
        };
        self.collect(COLLECTED_PER_CHANGE);
        Ok(added)
    }

    /// Puts a new node into the graph, as planned if that still serves.
    fn link_node(&mut self, id: NodeId, arrival: &Arrival<'_>, scratch: &mut SearchScratch) {
        let set = self.set.clone();
        let index = &set.index;
        let SearchScratch { walk, plan, selection, .. } = scratch;
        let is_linked = arrival.plan.is_some_and(|(plan, n_recent)| {
            let recent = self.recent.iter().rev().take(n_recent).copied();
            index.commit_plan(id, plan, recent, selection)
        });
        if !is_linked {
            let ef = arrival.ef.clamp(1, set.len().max(1));
            index.link_node(id, arrival.probe, ef, walk, plan, selection);
        }
        self.put_in_tower(id, arrival.level);
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
        // Counted when it is linked: a plan that sees the count finds the node.
        set.max_node_uid.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn put_in_tower(&mut self, id: NodeId, level: usize) {
        if level > 0 {
            let tower_index = self.towers[level].len() as u32;
            self.set.index.graph.node(id).tower_index.store(tower_index, Ordering::Relaxed);
            self.towers[level].push(id);
            self.entries.consider(&self.set.index, id);
        }
    }

    /// Lists and names a node that has a new name.
    pub(crate) fn make_member(&mut self, name: &[u8], id: NodeId) {
        let set = self.set.clone();
        let (member_index, bytes) = set.members.push(id);
        set.index.graph.node(id).member_index.store(member_index, Ordering::Relaxed);
        self.count_bytes(bytes as isize);
        let retired = self.names_changed(|names| names.insert(&set.names, name, id));
        self.retire(retired.map(Retired::Names));
    }

    /// Removes an element; false if there is none of that name.
    pub fn remove(&mut self, name: &[u8], scratch: &mut SearchScratch) -> bool {
        let set = self.set.clone();
        let Some(id) = self.find(name) else { return false };
        // Odd until the members are in order again: a scan that begins meanwhile may meet the moved one twice.
        set.changes.fetch_add(1, Ordering::AcqRel);
        let retired = self.names_changed(|names| names.remove(&set.names, name, id));
        self.retire(retired.map(Retired::Names));
        let member_index = set.index.graph.node(id).member_index.load(Ordering::Relaxed);
        if let Some(moved) = set.members.swap_remove(member_index) {
            set.index.graph.node(moved).member_index.store(member_index, Ordering::Relaxed);
        }
        self.retire_node(id, scratch);
        set.changes.fetch_add(1, Ordering::AcqRel);
        self.collect(COLLECTED_PER_CHANGE);
        true
    }

    /// Sets or (with `None` or an empty text) removes an element's attribute; false if there is no such
    /// element.
    pub fn set_attribute(&mut self, name: &[u8], attribute: Option<&[u8]>) -> bool {
        let Some(id) = self.find(name) else { return false };
        let set = self.set.clone();
        let node = set.index.graph.node(id);
        let attribute = attribute.filter(|text| !text.is_empty());
        let before = node.heap_bytes();
        let old = node.attribute.swap(attribute.map(Attribute::parse));
        self.count_bytes(node.heap_bytes() as isize - before as isize);
        set.attributes_count.fetch_add(u32::from(attribute.is_some()), Ordering::Relaxed);
        set.attributes_count.fetch_sub(u32::from(old.is_some()), Ordering::Relaxed);
        self.log_changed(id);
        self.retire(old.map(Retired::Attribute));
        self.collect(COLLECTED_PER_CHANGE);
        true
    }

    /// Frees at most `budget` retired things that no reader can hold any more. Every change calls it with a
    /// small budget; an owner calls it in idle turns. Returns how many wait.
    pub fn collect(&mut self, budget: usize) -> usize {
        let set = self.set.clone();
        let mut limbo = std::mem::replace(&mut self.limbo, Limbo::new());
        limbo.collect(&set.domain, budget, |retired| self.free(retired));
        self.limbo = limbo;
        self.release_one_chunk();
        self.limbo.len() + self.emptied.len() + self.unused_rungs.len()
    }

    /// Empties the set for good, for an owner that deletes it. From now on new readers find nothing; those
    /// that still search keep what they can see. Cheap: the memory goes with `Remains::free_slice`, or at
    /// once when the last holder drops the set.
    pub fn close(mut self) -> Remains {
        let set = self.set.clone();
        let n_members = set.members.len();
        set.changes.fetch_add(2, Ordering::AcqRel);
        set.index.graph.set_entry(None);
        let retired = self.names_changed(|names| names.clear(&set.names));
        self.retire(retired.map(Retired::Names));
        set.members.clear();
        if let Some(cache) = set.matches.get() {
            cache.log.forget_all();
        }
        set.attributes_count.store(0, Ordering::Relaxed);
        let mut closed = Limbo::new();
        closed.push(&set.domain, ());
        Remains::new(self, n_members, closed)
    }

    /// Takes a node, which is no member any more, out of the graph.
    fn retire_node(&mut self, id: NodeId, scratch: &mut SearchScratch) {
        let set = self.set.clone();
        let node = set.index.graph.node(id);
        node.mark_dead();
        if let Some(cache) = set.matches.get() {
            cache.log.append_removed(id);
        }
        let had_attribute = node.attribute.load_unguarded().is_some();
        set.attributes_count.fetch_sub(u32::from(had_attribute), Ordering::Relaxed);
        if node.level() > 0 {
            let tower = &mut self.towers[node.level()];
            let tower_index = node.tower_index.load(Ordering::Relaxed);
            tower.swap_remove(tower_index as usize);
            if let Some(moved) = tower.get(tower_index as usize) {
                set.index.graph.node(*moved).tower_index.store(tower_index, Ordering::Relaxed);
            }
        }
        if self.entries.forget(&set.index, id) {
            self.find_another_entry();
        }
        // A new entry before the old one is unlinked: a search always begins in the graph.
        if set.index.graph.entry() == Some(id) {
            let tallest = self.towers.iter().rev().find_map(|tower| tower.first().copied());
            set.index.graph.set_entry(tallest.or_else(|| set.members.get(0)));
        }
        self.recent.retain(|&recent| recent != id);
        set.index.unlink_node(id, &mut scratch.walk, &mut scratch.selection);
        self.retire(Some(Retired::Node(id)));
    }

    /// Considers one node of the upper levels for the place of an entry that went.
    fn find_another_entry(&mut self) {
        let random = self.next_random() as usize;
        let Some(tower) = self.towers.iter().find(|tower| !tower.is_empty()) else { return };
        let id = tower[random % tower.len()];
        if !self.set.index.graph.entries().any(|entry| entry == id) {
            self.entries.consider(&self.set.index, id);
        }
    }

    /// Tells the lists of matches that a node is new, or its attribute. Its memory can be read.
    pub(crate) fn log_changed(&self, id: NodeId) {
        let set = &*self.set;
        if let Some(cache) = set.matches.get() {
            cache.log.append_changed(id);
        } else if set.len() >= MIN_LISTED_SET && set.attributes_count() > 0 {
            let cache = set.matches.get_or_init(|| Box::new(MatchCache::new()));
            self.count_bytes(cache.base_bytes() as isize);
        }
    }

    fn find(&self, name: &[u8]) -> Option<NodeId> {
        let graph = &self.set.index.graph;
        let is_name = |id| graph.node(id).name.text() == name;
        self.set.names.find_as_writer(name, is_name)
    }

    fn names_changed<R>(&mut self, change: impl FnOnce(&mut NamesWriter) -> R) -> R {
        let before = self.set.names.memory_bytes_unguarded() as isize;
        let result = change(&mut self.names);
        self.count_bytes(self.set.names.memory_bytes_unguarded() as isize - before);
        result
    }

    pub(crate) fn retire(&mut self, what: Option<Retired>) {
        if let Some(what) = what {
            self.limbo.push(&self.set.domain, what);
        }
    }

    pub(crate) fn free(&mut self, retired: Retired) {
        let set = self.set.clone();
        let id = match retired {
            Retired::Node(id) => id,
            Retired::Rung(rung) => return self.give_up(rung),
            Retired::Attribute(_) | Retired::Names(_) => return retired.free(&set.index),
        };
        self.count_bytes(-(set.index.graph.node(id).heap_bytes() as isize));
        retired.free(&set.index);
        self.free_ids.push(Reverse(id.0));
        let (chunk, _) = set.index.geometry.locate(id.0);
        self.chunk_users[chunk] -= 1;
        if self.chunk_users[chunk] == 0 {
            self.emptied.push(chunk);
        }
    }

    /// Gives the memory of one unused chunk back: one at a time, for the system takes its time over 8 MiB.
    fn release_one_chunk(&mut self) {
        let Some(chunk) = self.emptied.pop() else { return self.release_of_rung() };
        if self.chunk_users[chunk] > 0 {
            return;
        }
        // SAFETY: no id of the chunk is in use or in limbo, so no reader can know one, and all its nodes were
        // destroyed.
        let bytes = unsafe { self.set.index.release(chunk) };
        self.count_bytes(-(bytes as isize));
    }

    /// Codes of this rung are written no longer, and read by nobody. Their memory goes in slices.
    pub(crate) fn give_up(&mut self, rung: Rung) {
        self.set.index.codes.end(rung);
        self.unused_rungs.push((rung, 0));
    }

    fn release_of_rung(&mut self) {
        let Some((rung, chunk)) = self.unused_rungs.pop() else { return };
        if chunk < self.chunk_users.len() {
            // SAFETY: the rung was given up: no probe belongs to it, and it is not written.
            let bytes = unsafe { self.set.index.codes.release_rung(rung, chunk) };
            self.count_bytes(-(bytes as isize));
            self.unused_rungs.push((rung, chunk + 1));
        }
    }

    pub(crate) fn take_id(&mut self) -> Option<NodeId> {
        let id = match self.free_ids.pop() {
            Some(Reverse(id)) => NodeId(id),
            None if self.next_id < MAX_NODES => {
                self.next_id += 1;
                NodeId(self.next_id - 1)
            }
            None => return None,
        };
        let bytes = self.set.index.ensure(id);
        self.count_bytes(bytes as isize);
        let (chunk, _) = self.set.index.geometry.locate(id.0);
        if self.chunk_users.len() <= chunk {
            self.chunk_users.resize(chunk + 1, 0);
        }
        self.chunk_users[chunk] += 1;
        Some(id)
    }

    fn draw_level(&mut self) -> usize {
        level_of(self.next_random(), self.set.params.m)
    }

    pub(crate) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn count_bytes(&self, change: isize) {
        self.set.memory_bytes.fetch_add(change as usize, Ordering::Relaxed);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let limbo = std::mem::replace(&mut self.limbo, Limbo::new());
        // Readers may still hold what is in limbo; the set outlives them, so it takes it over.
        if let Ok(mut left_behind) = self.set.left_behind.lock() {
            left_behind.extend(limbo.into_remaining());
        }
    }
}
