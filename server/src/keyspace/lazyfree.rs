//! `LazyFree`: what was deleted and is too large to be freed at once. The worker frees a slice of it per turn.

use super::entry::Entry;
use super::object::Object;
use super::table::Table;
use crate::types::deadlines::Deadlines;

/// Elements that are freed on the spot.
const AT_ONCE: usize = 64;
/// What one small object counts for against the budget.
const OBJECT_COST: usize = 16;

/// Deleted values and tables on their way back to the allocator.
#[derive(Default)]
pub(super) struct LazyFree {
    objects: Vec<Object>,
    tables: Vec<Table<Entry>>,
    deadlines: Vec<Deadlines>,
}

impl LazyFree {
    /// Frees a small object now and keeps a large one for later.
    pub(super) fn give_object(&mut self, mut object: Object) {
        if !object.free_slice(AT_ONCE) {
            self.objects.push(object);
        }
    }

    pub(super) fn give_entry(&mut self, mut entry: Entry) {
        if let Some(object) = entry.take_object() {
            self.give_object(object);
        }
    }

    pub(super) fn give_table(&mut self, table: Table<Entry>) {
        if !table.is_empty() {
            self.tables.push(table);
        }
    }

    pub(super) fn give_deadlines(&mut self, mut deadlines: Deadlines) {
        if !deadlines.free_slice(AT_ONCE) {
            self.deadlines.push(deadlines);
        }
    }

    pub(super) fn has_garbage(&self) -> bool {
        !self.objects.is_empty() || !self.tables.is_empty() || !self.deadlines.is_empty()
    }

    /// Frees about `budget` elements and entries; true when nothing is left. An entry costs some 60 ns, but up to 3 us near
    /// the end of a table, where most of them are the last of their page: so slices are cut by time, a hundred or so a call.
    pub(super) fn slice(&mut self, budget: usize) -> bool {
        let mut left = budget;
        while let Some(deadlines) = self.deadlines.last_mut() {
            if left == 0 {
                return false;
            }
            let chunk = left.min(AT_ONCE);
            left -= chunk;
            if deadlines.free_slice(chunk) {
                self.deadlines.pop();
            }
        }
        loop {
            while let Some(object) = self.objects.last_mut() {
                if left == 0 {
                    return false;
                }
                let chunk = left.min(AT_ONCE);
                let done = object.free_slice(chunk);
                left -= chunk.min(if done { OBJECT_COST } else { chunk });
                if done {
                    self.objects.pop();
                }
            }
            let Some(table) = self.tables.last_mut() else {
                self.objects = Vec::new();
                return true;
            };
            if left == 0 {
                return false;
            }
            // A few at a time, so that their objects are freed before the next ones are taken out.
            let chunk = left.min(AT_ONCE);
            left -= chunk;
            let objects = &mut self.objects;
            let done = table.drain(chunk, |mut entry| objects.extend(entry.take_object()));
            if done {
                self.tables.pop();
            }
        }
    }
}
