//! Name -> id: an open-addressing table of atomics, changed by the writer and probed by readers without a
//! lock.
//!
//! A slot is one u64: the name's 32-bit hash and the id. The name itself stands in the node; it is compared
//! only when the hashes agree. Growth is incremental: a larger table is published beside the old one and
//! every write carries a few slots over, so no single write pays for the whole table.
//!
//! ```text
//!   lookup: newest table, then the old one, if there is one
//!   carry:  copies old slots into the newest; the old keep their content, so no lookup falls between the two
//! ```
//!
//! Invariant: a name in both tables has the same id in both (a change writes the newest first).

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;

use crate::epoch::Guard;
use crate::graph::NodeId;
use crate::shared::{Shared, Unlinked};

const MIN_SLOTS: usize = 16;
const SLOTS_CARRIED_PER_WRITE: usize = 32;

const FREE: u64 = 0;
const TOMBSTONE: u64 = 1;
/// Added to the id, so that no entry looks like FREE or TOMBSTONE whatever its hash.
const ID_OFFSET: u64 = 2;

fn slot_of(hash: u32, id: NodeId) -> u64 {
    u64::from(hash) << 32 | (u64::from(id.0) + ID_OFFSET)
}

fn id_of(slot: u64) -> NodeId {
    NodeId(((slot & 0xFFFF_FFFF) - ID_OFFSET) as u32)
}

struct Table {
    slots: Box<[AtomicU64]>,
}

impl Table {
    fn new(n_slots: usize) -> Arc<Table> {
        // Zeroed by the system where it can be: a table of millions of slots costs nothing before it is used.
        // SAFETY: an AtomicU64 of zero bytes is FREE.
        Arc::new(Table { slots: unsafe { Box::new_zeroed_slice(n_slots).assume_init() } })
    }

    fn probe(&self, hash: u32) -> impl Iterator<Item = &AtomicU64> {
        let mask = self.slots.len() - 1;
        (0..self.slots.len()).map(move |step| &self.slots[(hash as usize + step) & mask])
    }

    fn find(&self, hash: u32, is_name: impl Fn(NodeId) -> bool) -> Option<(&AtomicU64, NodeId)> {
        for slot in self.probe(hash) {
            match slot.load(Ordering::Acquire) {
                FREE => return None,
                TOMBSTONE => {}
                entry if (entry >> 32) as u32 == hash && is_name(id_of(entry)) => {
                    return Some((slot, id_of(entry)));
                }
                _ => {}
            }
        }
        None
    }

    /// Writer only: takes the first free slot. Tombstones are not reused: they are gone with the next growth.
    fn insert(&self, hash: u32, id: NodeId) {
        let free = self.probe(hash).find(|slot| slot.load(Ordering::Relaxed) == FREE);
        free.expect("the load factor leaves free slots").store(slot_of(hash, id), Ordering::Release);
    }
}

#[derive(Clone)]
struct Tables {
    newest: Arc<Table>,
    old: Option<Arc<Table>>,
}

impl Tables {
    fn each(&self) -> impl Iterator<Item = &Table> {
        [Some(&self.newest), self.old.as_ref()].into_iter().flatten().map(|table| &**table)
    }
}

/// What readers share.
pub(crate) struct Names {
    hasher: FixedState,
    tables: Shared<Tables>,
}

impl Names {
    pub(crate) fn new(seed: u64) -> (Names, NamesWriter) {
        let tables = Tables { newest: Table::new(MIN_SLOTS), old: None };
        let names = Names { hasher: FixedState::with_seed(seed), tables: Shared::new(Some(tables)) };
        (names, NamesWriter { n_live: 0, n_used: 0, carried: 0 })
    }

    /// The id of a name; `is_name` compares the name of a node.
    pub(crate) fn find(
        &self,
        name: &[u8],
        is_name: impl Fn(NodeId) -> bool,
        guard: &Guard,
    ) -> Option<NodeId> {
        find_in(self.tables.load(guard)?, self.hash(name), is_name)
    }

    /// Writer only.
    pub(crate) fn find_as_writer(&self, name: &[u8], is_name: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        find_in(self.tables.load_unguarded()?, self.hash(name), is_name)
    }

    pub(crate) fn memory_bytes_unguarded(&self) -> usize {
        let bytes = |tables: &Tables| tables.each().map(|table| size_of_val(&*table.slots)).sum();
        self.tables.load_unguarded().map_or(0, bytes)
    }

    fn hash(&self, name: &[u8]) -> u32 {
        (self.hasher.hash_one(name) >> 32) as u32
    }
}

fn find_in(tables: &Tables, hash: u32, is_name: impl Fn(NodeId) -> bool) -> Option<NodeId> {
    tables.each().find_map(|table| table.find(hash, &is_name)).map(|(_, id)| id)
}

/// Tables that were replaced and wait for the readers' epochs.
pub(crate) struct RetiredTables(Unlinked<Tables>);

impl RetiredTables {
    pub(crate) fn free(self) {
        self.0.free();
    }
}

/// What only the writer knows about the tables.
pub(crate) struct NamesWriter {
    n_live: usize,
    /// Slots of the newest table that are not FREE, tombstones included.
    n_used: usize,
    /// Slots of the old table already carried over.
    carried: usize,
}

impl NamesWriter {
    /// Adds a name that is not in the table.
    pub(crate) fn insert(&mut self, names: &Names, name: &[u8], id: NodeId) -> Option<RetiredTables> {
        let retired = self.make_progress(names);
        self.tables(names).newest.insert(names.hash(name), id);
        self.n_live += 1;
        self.n_used += 1;
        retired
    }

    /// Gives a name that is in the table another id, in one store per table.
    pub(crate) fn replace(&mut self, names: &Names, name: &[u8], old: NodeId, new: NodeId) {
        let hash = names.hash(name);
        self.rewrite(names, hash, old, slot_of(hash, new));
    }

    pub(crate) fn remove(&mut self, names: &Names, name: &[u8], id: NodeId) -> Option<RetiredTables> {
        self.rewrite(names, names.hash(name), id, TOMBSTONE);
        self.n_live -= 1;
        self.make_progress(names)
    }

    /// No new reader finds a name, and the memory goes as soon as the old ones are gone.
    pub(crate) fn clear(&mut self, names: &Names) -> Option<RetiredTables> {
        *self = NamesWriter { n_live: 0, n_used: 0, carried: 0 };
        names.tables.swap(Some(Tables { newest: Table::new(MIN_SLOTS), old: None })).map(RetiredTables)
    }

    fn tables<'a>(&self, names: &'a Names) -> &'a Tables {
        names.tables.load_unguarded().expect("there is always a table")
    }

    fn rewrite(&self, names: &Names, hash: u32, id: NodeId, with: u64) {
        for table in self.tables(names).each() {
            if let Some((slot, _)) = table.find(hash, |other| other == id) {
                slot.store(with, Ordering::Release);
            }
        }
    }

    /// Carries a few slots over, or begins or ends a growth.
    fn make_progress(&mut self, names: &Names) -> Option<RetiredTables> {
        let tables = self.tables(names);
        let n_slots = tables.newest.slots.len();
        let Some(old) = &tables.old else {
            let is_full = (self.n_used + 1) * 4 > n_slots * 3;
            let is_sparse = n_slots > MIN_SLOTS && self.n_live * 16 < n_slots;
            if !is_full && !is_sparse {
                return None;
            }
            // At most half full when all live slots are carried, and room for the writes until then.
            let newest = Table::new(((self.n_live + 1) * 2).next_power_of_two().max(MIN_SLOTS));
            let grown = Tables { newest, old: Some(tables.newest.clone()) };
            (self.n_used, self.carried) = (0, 0);
            let retired = names.tables.swap(Some(grown)).map(RetiredTables);
            return retired;
        };
        let upto = (self.carried + SLOTS_CARRIED_PER_WRITE).min(old.slots.len());
        for slot in &old.slots[self.carried..upto] {
            let entry = slot.load(Ordering::Relaxed);
            if entry != FREE && entry != TOMBSTONE {
                let (hash, id) = ((entry >> 32) as u32, id_of(entry));
                tables.newest.insert(hash, id);
                self.n_used += 1;
            }
        }
        self.carried = upto;
        if upto < old.slots.len() {
            return None;
        }
        let alone = Tables { newest: tables.newest.clone(), old: None };
        names.tables.swap(Some(alone)).map(RetiredTables)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::epoch::Domain;

    #[test]
    fn a_random_program_over_names_agrees_with_a_hash_map() {
        for seed in 1..20_u64 {
            let (names, mut writer) = Names::new(seed);
            let guard = Domain::new(1).register().unwrap().pin();
            let mut model: HashMap<u64, NodeId> = HashMap::new();
            // The name of an id, as the nodes would tell it.
            let mut name_of: Vec<u64> = Vec::new();
            let mut state = seed;
            for step in 0..20_000_u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = (state >> 33) % if step < 10_000 { 4_000 } else { 100 };
                let name = key.to_le_bytes();
                let found = names.find(&name, |id| name_of[id.0 as usize] == key, &guard);
                assert_eq!(found, model.get(&key).copied(), "seed {seed} step {step}");
                let retired = match (found, (state >> 20) % 3) {
                    (Some(id), 0) => {
                        model.remove(&key);
                        writer.remove(&names, &name, id)
                    }
                    (Some(id), _) => {
                        let new = NodeId(name_of.len() as u32);
                        name_of.push(key);
                        model.insert(key, new);
                        writer.replace(&names, &name, id, new);
                        None
                    }
                    (None, _) => {
                        let id = NodeId(name_of.len() as u32);
                        name_of.push(key);
                        model.insert(key, id);
                        writer.insert(&names, &name, id)
                    }
                };
                retired.into_iter().for_each(RetiredTables::free);
            }
            for key in 0..4_000_u64 {
                let found = names.find(&key.to_le_bytes(), |id| name_of[id.0 as usize] == key, &guard);
                assert_eq!(found, model.get(&key).copied(), "seed {seed}");
            }
            assert_eq!(writer.n_live, model.len());
        }
    }
}
