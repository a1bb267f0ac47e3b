//! The fields of hashes that have deadlines (HEXPIRE): which hash is due next, and the removal of dead fields in slices.
//!
//! The expiry index keeps each hash of the table by the earliest deadline of its fields. What enters or leaves the table is
//! filed by `mod.rs`; who changes a hash in place tells how its earliest deadline has moved ([`Keyspace::refile_fields`]).
//! An item of the index names the key's hash, so an entry may move; its hash is found again by both numbers.
//!
//! Invariant (`check_fields`): the index has the earliest deadline of every hash of the table that has one, and nothing else.

use super::{EntryRef, Key, Keyspace, Object, entry_mut, remove_slot};
use crate::types::deadlines::Due;

/// What became of a hash whose dead fields were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldsLeft {
    Some,
    /// The hash had no other field: it is gone, and its key with it.
    None,
}

/// The earliest deadline of the fields, if the value is a hash that has one.
#[inline]
pub(super) fn earliest_ms(object: Option<&Object>) -> Option<i64> {
    match object {
        Some(Object::Hash(hash)) => hash.earliest_ms(),
        Some(
            Object::Shared(_)
            | Object::List(_)
            | Object::Set(_)
            | Object::Zset(_)
            | Object::Stream(_)
            | Object::Vector(_)
            | Object::Alias(_),
        )
        | None => None,
    }
}

impl Keyspace {
    /// The hash under `key` was changed in place: its earliest deadline was `before_ms` and is `after_ms`.
    #[inline]
    pub fn refile_fields(&mut self, key: &Key<'_>, before_ms: Option<i64>, after_ms: Option<i64>) {
        self.expiry.refile_hash(key.hash, before_ms, after_ms);
    }

    /// Removes up to `budget` fields that are dead at `now_ms`. Tells of each hash that lost some: its entry, still alive
    /// or just taken out, how many, and whether others are left. Returns how much of the budget was spent (in fields, and
    /// one a hash); all of it means that there may be more.
    pub fn expire_fields(
        &mut self,
        now_ms: i64,
        budget: usize,
        mut on_expired: impl FnMut(EntryRef<'_>, usize, FieldsLeft),
    ) -> usize {
        let mut spent = 0;
        // Hashes that are read from elsewhere just now: back into the index, for the next call.
        let mut held: Vec<Due> = Vec::new();
        while spent < budget
            && let Some(due) = self.expiry.hashes().first().filter(|due| due.deadline_ms < now_ms)
        {
            spent += 1;
            let is_due = |entry: EntryRef<'_>| earliest_ms(entry.object()) == Some(due.deadline_ms);
            let Some(slot) = self.table.find_where(due.hash, is_due) else {
                debug_assert!(false, "what is due is in the table");
                self.expiry.refile_hash(due.hash, Some(due.deadline_ms), None);
                continue;
            };
            if slot.get().is_held() {
                self.expiry.refile_hash(due.hash, Some(due.deadline_ms), None);
                held.push(due);
                continue;
            }
            let mut entry = entry_mut(slot);
            let Some(Object::Hash(hash)) = entry.object_mut() else { unreachable!("it is a hash") };
            let n_dead = hash.remove_dead(now_ms, budget - spent + 1);
            spent += n_dead - 1;
            self.expiry.refile_hash(due.hash, Some(due.deadline_ms), hash.earliest_ms());
            if !hash.is_empty() {
                on_expired(entry.as_ref(), n_dead, FieldsLeft::Some);
                continue;
            }
            let is_it =
                |entry: EntryRef<'_>| matches!(entry.object(), Some(Object::Hash(hash)) if hash.is_empty());
            let Some(slot) = self.table.find_where(due.hash, is_it) else {
                unreachable!("it was just there")
            };
            remove_slot(slot, due.hash, &mut self.expiry, |entry| {
                on_expired(entry.as_ref(), n_dead, FieldsLeft::None);
                self.lazyfree.give_entry(entry);
            });
        }
        for due in held {
            self.expiry.refile_hash(due.hash, None, Some(due.deadline_ms));
        }
        spent
    }
}

#[cfg(test)]
impl Keyspace {
    /// Panics unless the index and the table agree.
    pub(super) fn check_fields(&self) {
        let mut due: Vec<Due> = Vec::new();
        for entry in self.table.iter() {
            let hash = self.table.hash(entry.key());
            due.extend(earliest_ms(entry.object()).map(|deadline_ms| Due { deadline_ms, hash }));
        }
        due.sort_unstable();
        self.expiry.hashes().check();
        assert!(self.expiry.hashes().iter().eq(due), "a hash is filed wrongly");
    }
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
