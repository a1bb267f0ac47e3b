//! How handlers change hashes whose fields may have deadlines: what they owe the expiry index, and what happens to a dead
//! field that a command meets. Methods of `Shard`, as in `access`.
//!
//! A handler that changes a hash in place asks it for its earliest deadline before and after, and files the difference
//! ([`Shard::refile_fields`]) before it removes the key of an emptied hash. Reads never show a dead field; those that look for
//! one by name remove it as well ([`Shard::expire_fields`]), as Redis does, unless others are reading the hash.

use crate::access::At;
use crate::keyspace::{Key, Object};
use crate::shard::{EventClass, Shard};

/// Dead fields that one command removes beside its work.
const SOME: usize = 512;

impl Shard {
    /// The hash under `key` was changed in place: its earliest deadline was `before_ms` and is `after_ms`.
    #[inline]
    pub fn refile_fields(&mut self, at: At, key: &Key<'_>, before_ms: Option<i64>, after_ms: Option<i64>) {
        if before_ms != after_ms {
            self.keyspace(at.db).refile_fields(key, before_ms, after_ms);
        }
    }

    /// Removes those of `fields` that are dead, and the key with the last field; reports both.
    #[cold]
    pub fn expire_fields<'f>(&mut self, at: At, key: &Key<'_>, fields: impl Iterator<Item = &'f [u8]>) {
        let Some(entry) = self.edit(at, key) else { return };
        if entry.as_ref().is_held() {
            return;
        }
        let Some(Object::Hash(hash)) = entry.into_object_mut() else { return };
        let before_ms = hash.earliest_ms();
        let mut n_dead = 0;
        for field in fields {
            if hash.is_dead(field, at.now_ms) {
                hash.remove(field);
                n_dead += 1;
            }
        }
        let (after_ms, is_empty) = (hash.earliest_ms(), hash.is_empty());
        self.refile_fields(at, key, before_ms, after_ms);
        self.report_expired(at, key, n_dead, is_empty);
    }

    /// Removes the fields of the hash under `key` that are dead, a bounded number of them; reports them as `expire_fields` does.
    pub fn expire_some_fields(&mut self, at: At, key: &Key<'_>) {
        if self.keyspace(at.db).n_timed_hashes() == 0 {
            return;
        }
        let Some(entry) = self.edit(at, key) else { return };
        if entry.as_ref().is_held() {
            return;
        }
        let Some(Object::Hash(hash)) = entry.into_object_mut() else { return };
        let before_ms = hash.earliest_ms();
        let n_dead = hash.remove_dead(at.now_ms, SOME);
        let (after_ms, is_empty) = (hash.earliest_ms(), hash.is_empty());
        self.refile_fields(at, key, before_ms, after_ms);
        self.report_expired(at, key, n_dead as u64, is_empty);
    }

    fn report_expired(&mut self, at: At, key: &Key<'_>, n_dead: u64, is_empty: bool) {
        if n_dead > 0 {
            self.stats.expired_subkeys += n_dead;
            self.changed(at.db, key.bytes, EventClass::Hash, "hexpired");
        }
        if is_empty {
            self.remove(at, key);
            self.changed(at.db, key.bytes, EventClass::Generic, "del");
        }
    }
}
