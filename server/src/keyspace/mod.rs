//! `Keyspace`: one database of one shard. Keys, values, deadlines; it is given hashes and the time, and reads neither clock
//! nor socket.
//!
//! ```text
//!  Keyspace ── Table<Entry> (table, segment) ── Entry (key, value, deadline, clock: one allocation) ── Object (large values)
//!     │                                            └─ the links of ─┐
//!     ├── ExpiryIndex (timing wheel over the entries with a deadline; the hashes whose fields have some)
//!     └── LazyFree (large things already deleted, freed in slices)
//! ```
//!
//! Invariants: an entry of the table is in the expiry index if and only if it has a deadline, and a hash if a field has; so
//! whatever moves, frees or hands out an entry goes through this file, which tells the index. The caller computes each key's hash once.
//! Expiry is exact on access: `lookup` never shows a dead key. A key that is lent keeps a stub, which is counted and
//! scanned, and which neither expiry nor a lookup's deadline touches.
//! No call is longer than one segment's split (some 10 us) plus the caller's own bytes, but for the budgeted ones.

use std::ptr::NonNull;

use bytes::{Bytes, BytesMut};

pub mod access_clock;
pub mod block;
pub mod entry;
mod expire;
mod fields;
pub mod hash;
mod lazyfree;
pub mod loose;
pub mod object;
pub mod table;
pub mod thin;

pub use access_clock::{AccessClock, Touch, Tracking};
pub use entry::{Entry, EntryMut, EntryRef};
pub use fields::FieldsLeft;
pub use hash::HashSeed;
pub use loose::Loose;
pub use object::{INLINE_BYTES, NewValue, Object, View};
pub use table::{ScanPosition, Table};

use entry::Payload;
use expire::{Budget, ExpiryIndex, Node};
use lazyfree::LazyFree;
use table::SlotMut;

/// A key and its hash, which is computed once, by whoever parses the request.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

impl<'a> Key<'a> {
    #[inline(always)]
    pub fn new(bytes: &'a [u8], seed: HashSeed) -> Key<'a> {
        Key { bytes, hash: seed.hash_key(bytes) }
    }
}

/// What a lookup found.
pub enum Lookup<T> {
    Absent,
    /// It was there and its time was over: it has just been removed, and the event `expired` is the caller's to publish.
    Expired,
    /// The entry, which may be a stub (`View::Lent`).
    Found(T),
}

impl<T> Lookup<T> {
    pub fn found(self) -> Option<T> {
        match self {
            Lookup::Found(entry) => Some(entry),
            Lookup::Absent | Lookup::Expired => None,
        }
    }
}

/// What becomes of a key's deadline when its value is replaced. Deadlines are Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    Keep,
    Clear,
    At(i64),
}

/// Whether `set` made a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    New,
    Overwritten,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The string has this many bytes now.
    Done(usize),
    Absent,
    /// The key holds no string.
    WrongType,
    /// Nothing was changed.
    TooLong,
}

/// Which keys eviction may choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    AllKeys,
    /// Those with a deadline.
    Volatile,
}

/// If fewer keys than one in so many have a deadline, they are looked for in the expiry index.
const MIN_VOLATILE_SHARE: usize = 64;
/// So many zeros at the end of a string, if they are more than the string, are had from the system, not written.
const ZEROED_BYTES: usize = 1 << 20;

/// Dead keys that active expiry removes together, so that their buckets are fetched in parallel.
const EXPIRE_BATCH: usize = 16;

/// One database of one shard.
pub struct Keyspace {
    table: Table<Entry>,
    expiry: ExpiryIndex,
    lazyfree: LazyFree,
    access: AccessClock,
    /// Names of new keys, while somebody records them.
    births: Option<Vec<Box<[u8]>>>,
}

impl Keyspace {
    pub fn new(seed: HashSeed) -> Keyspace {
        Keyspace {
            table: Table::new(seed),
            expiry: ExpiryIndex::default(),
            lazyfree: LazyFree::default(),
            births: None,
            access: AccessClock::default(),
        }
    }

    /// How uses of keys are kept.
    pub fn access(&self) -> &AccessClock {
        &self.access
    }

    pub fn access_mut(&mut self) -> &mut AccessClock {
        &mut self.access
    }

    pub fn seed(&self) -> HashSeed {
        self.table.seed()
    }

    /// Number of keys; dead ones that nobody has met yet and lent ones count.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Number of hashes that have fields with a deadline.
    pub fn n_timed_hashes(&self) -> usize {
        self.expiry.hashes().len()
    }

    /// Number of keys with a deadline.
    pub fn n_expires(&self) -> usize {
        self.expiry.len()
    }

    /// The average time to live, 0 without deadlines. Exact.
    pub fn avg_ttl_ms(&self, now_ms: i64) -> i64 {
        self.expiry.average_ms().map_or(0, |deadline| deadline.saturating_sub(now_ms).max(0))
    }

    /// Bytes of the table alone, without entries.
    pub fn table_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// First wave of a batch: fetches the bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: u64) {
        self.table.prefetch_bucket(hash);
    }

    /// Second wave of a batch: fetches the entry.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64) {
        self.table.prefetch_entry(hash);
    }

    /// Further waves, for values behind pointers: fetches level `wave` of what the entry leads to; whether another follows.
    #[inline(always)]
    pub fn prefetch_value(&self, hash: u64, wave: usize) -> bool {
        let Some(entry) = self.table.candidate(hash) else { return false };
        match entry.object() {
            Some(object) => object.prefetch(wave),
            None => {
                entry.prefetch_end();
                false
            }
        }
    }

    /// The entry of a key, dead or alive.
    #[inline]
    pub fn peek(&self, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.table.find(key.hash, key.bytes)
    }

    /// The same, which marks the key as used now.
    #[inline]
    pub fn touch(&mut self, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.touch_mut(key).map(EntryMut::into_ref)
    }

    /// The same for change on the spot.
    #[inline]
    pub fn touch_mut(&mut self, key: &Key<'_>) -> Option<EntryMut<'_>> {
        let raw = self.table.find_raw(key.hash, key.bytes)?;
        // SAFETY: the entry lives in the table, which is borrowed exclusively for as long as the result lives.
        let mut entry = unsafe { EntryMut::of(raw) };
        entry.touch(&mut self.access);
        Some(entry)
    }

    /// The entry of a key, dead or alive, for change on the spot. Its access clock stays.
    #[inline]
    pub fn get_mut(&mut self, key: &Key<'_>) -> Option<EntryMut<'_>> {
        self.table.find_mut(key.hash, key.bytes).map(entry_mut)
    }

    /// The entry of a living key; a dead one is removed.
    #[inline]
    pub fn lookup(&mut self, key: &Key<'_>, now_ms: i64) -> Lookup<EntryRef<'_>> {
        let Some(slot) = self.table.find_mut(key.hash, key.bytes) else { return Lookup::Absent };
        if slot.get().is_expired(now_ms) {
            remove_slot(slot, key.hash, &mut self.expiry, |entry| self.lazyfree.give_entry(entry));
            return Lookup::Expired;
        }
        Lookup::Found(slot.into_ref())
    }

    /// The same for change on the spot.
    #[inline]
    pub fn lookup_mut(&mut self, key: &Key<'_>, now_ms: i64) -> Lookup<EntryMut<'_>> {
        let Some(slot) = self.table.find_mut(key.hash, key.bytes) else { return Lookup::Absent };
        if slot.get().is_expired(now_ms) {
            remove_slot(slot, key.hash, &mut self.expiry, |entry| self.lazyfree.give_entry(entry));
            return Lookup::Expired;
        }
        Lookup::Found(entry_mut(slot))
    }

    /// Gives a key a value, whatever it held. In place, without an allocation, where the new value fits the old one's.
    #[inline]
    pub fn set(&mut self, key: &Key<'_>, value: NewValue<'_>, ttl: Ttl) -> Stored {
        let payload = Payload::of(value);
        match self.table.find_mut(key.hash, key.bytes) {
            Some(mut slot) => {
                let expiry = &mut self.expiry;
                let access = &mut self.access;
                let after_ms = fields::earliest_ms(payload.object());
                let old = slot.update(|entry| {
                    entry.as_mut().touch(access);
                    overwrite(entry, payload, ttl, expiry)
                });
                self.expiry.refile_hash(key.hash, fields::earliest_ms(old.as_ref()), after_ms);
                if let Some(object) = old {
                    self.lazyfree.give_object(object);
                }
                Stored::Overwritten
            }
            None => {
                let deadline = match ttl {
                    Ttl::At(deadline_ms) => Some(deadline_ms),
                    Ttl::Keep | Ttl::Clear => None,
                };
                self.adopt_new(key.hash, Entry::build(key.bytes, payload, deadline));
                Stored::New
            }
        }
    }

    /// Gives a key that is absent a value, without looking for it once more.
    #[inline]
    pub fn add(&mut self, key: &Key<'_>, value: NewValue<'_>, deadline_ms: Option<i64>) {
        debug_assert!(self.peek(key).is_none(), "the caller has just looked");
        self.adopt_new(key.hash, Entry::new(key.bytes, value, deadline_ms));
    }

    /// The entry of a key for change on the spot, dead or alive and marked as used, or a new one with the value `new` gives. One probe.
    #[inline]
    pub fn get_or_insert<'v>(&mut self, key: &Key<'_>, new: impl FnOnce() -> NewValue<'v>) -> EntryMut<'_> {
        if let Some(raw) = self.table.find_raw(key.hash, key.bytes) {
            // SAFETY: the entry lives in the table, which is borrowed exclusively for as long as the result lives.
            let mut entry = unsafe { EntryMut::of(raw) };
            entry.touch(&mut self.access);
            return entry;
        }
        let entry = Entry::build(key.bytes, Payload::of(new()), None);
        let raw = entry.raw();
        self.adopt_new(key.hash, entry);
        // SAFETY: as above.
        unsafe { EntryMut::of(raw) }
    }

    /// Files the entry of a key that is new to the clients and has never been used.
    #[inline]
    pub fn adopt_new(&mut self, hash: u64, mut entry: Entry) {
        entry.as_mut().set_clock(self.access.fresh());
        self.bear(hash, entry);
    }

    /// Marks a key as one that has never been used before.
    pub fn mark_new(&mut self, key: &Key<'_>) {
        let clock = self.access.fresh();
        self.set_clock(key, clock);
    }

    /// Gives a key an access clock (RESTORE's IDLETIME and FREQ, by way of [`AccessClock`]).
    pub fn set_clock(&mut self, key: &Key<'_>, clock: u32) {
        if let Some(mut entry) = self.get_mut(key)
            && !entry.as_ref().is_held()
        {
            entry.set_clock(clock);
        }
    }

    /// Files the entry of a key that is new to the clients.
    pub fn bear(&mut self, hash: u64, entry: Entry) {
        if let Some(births) = &mut self.births {
            births.push(entry.as_ref().key().into());
        }
        self.adopt(hash, entry);
    }

    /// Whether the names of new keys are noted for `take_births` from here on.
    pub fn note_births(&mut self, is_noting: bool) {
        match is_noting {
            true => drop(self.births.get_or_insert_default()),
            false => self.births = None,
        }
    }

    /// The keys that are new since the last call.
    pub fn take_births(&mut self) -> Vec<Box<[u8]>> {
        self.births.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Files an entry whose key is absent, with its deadline if it has one.
    pub fn adopt(&mut self, hash: u64, entry: Entry) {
        if entry.as_ref().has_ttl() {
            // SAFETY: an owned entry is in no list; from here on it is moved and removed by way of this file only.
            unsafe { self.expiry.insert(entry.node()) };
        }
        self.expiry.refile_hash(hash, None, fields::earliest_ms(entry.as_ref().object()));
        self.table.insert(hash, entry);
    }

    /// Removes a key, dead or alive, and returns its entry, deadline and all.
    pub fn remove(&mut self, key: &Key<'_>) -> Option<Entry> {
        let slot = self.table.find_mut(key.hash, key.bytes)?;
        Some(remove_slot(slot, key.hash, &mut self.expiry, |entry| entry))
    }

    /// Frees an entry: at once if it is small, else in the slices of [`Keyspace::free_slice`].
    pub fn discard(&mut self, entry: Entry) {
        self.lazyfree.give_entry(entry);
    }

    /// Frees a value that has left its entry, in the same way.
    pub fn discard_object(&mut self, object: Object) {
        self.lazyfree.give_object(object);
    }

    /// Takes a key's entry out and leaves a stub, which keeps the key counted, scanned and found (as lent).
    pub fn take(&mut self, key: &Key<'_>) -> Option<Entry> {
        let mut slot = self.table.find_mut(key.hash, key.bytes)?;
        assert!(!slot.get().is_lent(), "an entry is lent once");
        let entry = slot.replace(Entry::stub(key.bytes));
        withdraw(entry.as_ref());
        unlink(&entry, key.hash, &mut self.expiry);
        Some(entry)
    }

    /// Puts what comes home into the stub's place: the entry, or nothing if the key was deleted meanwhile.
    pub fn give_back(&mut self, key: &Key<'_>, entry: Option<Entry>) {
        let Some(mut slot) = self.table.find_mut(key.hash, key.bytes) else { unreachable!("a stub stays") };
        assert!(slot.get().is_lent(), "only a lent entry comes home");
        match entry {
            Some(entry) => {
                if entry.as_ref().has_ttl() {
                    // SAFETY: an owned entry is in no list.
                    unsafe { self.expiry.insert(entry.node()) };
                }
                self.expiry.refile_hash(key.hash, None, fields::earliest_ms(entry.as_ref().object()));
                drop(slot.replace(entry));
            }
            None => drop(slot.remove()),
        }
    }

    /// An alias of a living key's entry: it reads the owner's value in place, and may be sent to another thread. Whoever
    /// asks keeps the entry from being changed, moved or freed until `end_sharing`; expiry leaves it alone by itself.
    pub fn share(&mut self, key: &Key<'_>, now_ms: i64) -> Option<Entry> {
        let entry = self.peek(key)?;
        if entry.is_expired(now_ms) || entry.is_lent() {
            return None;
        }
        if !entry.is_held() {
            // Written by the first share only: later ones find it read from elsewhere.
            self.touch_mut(key)?.hold();
        }
        self.peek(key).map(Entry::alias)
    }

    /// The last alias of a key's entry is dropped: it may be changed again.
    pub fn end_sharing(&mut self, key: &Key<'_>) {
        if let Some(mut entry) = self.get_mut(key)
            && entry.as_ref().is_held()
        {
            entry.release();
        }
    }

    /// Puts an entry in its place: over the stub it left, or as a new key; `None` ends the stub, if there is one.
    pub fn take_home(&mut self, key: &Key<'_>, entry: Option<Entry>) {
        if self.peek(key).is_some_and(EntryRef::is_lent) {
            self.give_back(key, entry);
        } else if let Some(entry) = entry {
            self.adopt(key.hash, entry);
        }
    }

    /// Whether the key is there and past its deadline.
    pub fn is_expired(&self, key: &Key<'_>, now_ms: i64) -> bool {
        self.peek(key).is_some_and(|entry| entry.is_expired(now_ms))
    }

    /// A key's deadline, in Unix milliseconds.
    pub fn expire_at(&self, key: &Key<'_>) -> Option<i64> {
        self.peek(key)?.expire_at()
    }

    /// Gives a key a deadline; false if the key is absent.
    pub fn set_expire(&mut self, key: &Key<'_>, deadline_ms: i64) -> bool {
        let Some(mut slot) = self.table.find_mut(key.hash, key.bytes) else { return false };
        let expiry = &mut self.expiry;
        withdraw(slot.get());
        slot.update(|entry| {
            if entry.as_ref().has_ttl() {
                // SAFETY: entries of the table with a deadline are in a list.
                unsafe { expiry.set_deadline(entry.node(), deadline_ms) };
            } else {
                entry.set_ttl(true);
                // SAFETY: the node is new and in no list.
                unsafe {
                    entry.node().write(Node::unlinked(deadline_ms));
                    expiry.insert(entry.node());
                }
            }
        });
        true
    }

    /// Takes a key's deadline away; false if there is none.
    pub fn persist(&mut self, key: &Key<'_>) -> bool {
        let Some(mut slot) = self.table.find_mut(key.hash, key.bytes) else { return false };
        if !slot.get().has_ttl() {
            return false;
        }
        let expiry = &mut self.expiry;
        withdraw(slot.get());
        slot.update(|entry| {
            unlink_deadline(entry, expiry);
            entry.set_ttl(false);
        });
        true
    }

    /// Appends to a string that gets at most `max_len` bytes long. Amortised constant time per byte.
    pub fn append(&mut self, key: &Key<'_>, bytes: &[u8], max_len: usize) -> Appended {
        let Some(slot) = self.table.find_mut(key.hash, key.bytes) else { return Appended::Absent };
        let Some(len) = string_len(slot.get()) else { return Appended::WrongType };
        let new_len = len.saturating_add(bytes.len());
        if new_len > max_len {
            return Appended::TooLong;
        }
        let edited = edit_slot(slot, (&mut self.expiry, &mut self.access), new_len, |string| {
            string[len..].copy_from_slice(bytes);
            (string.len(), string.len())
        });
        edited.map_or(Appended::WrongType, Appended::Done)
    }

    /// Writes into a string at `offset`, zeros before it if it is shorter, and returns its new length; None as
    /// `edit_string`. The caller keeps the sum below `proto-max-bulk-len`.
    pub fn set_range(&mut self, key: &Key<'_>, offset: usize, bytes: &[u8]) -> Option<usize> {
        self.edit_string(key, offset + bytes.len(), |string| {
            string[offset..offset + bytes.len()].copy_from_slice(bytes);
            string.len()
        })
    }

    /// Shows the bytes of a string, made at least `min_len` long with zeros, to be edited on the spot; None if the key is
    /// absent or holds no string. The encoding becomes raw, and no integer again. A long string that a socket still sends
    /// is copied first.
    pub fn edit_string<R>(
        &mut self,
        key: &Key<'_>,
        min_len: usize,
        edit: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let slot = self.table.find_mut(key.hash, key.bytes)?;
        edit_slot(slot, (&mut self.expiry, &mut self.access), min_len, |string| (string.len(), edit(string)))
    }

    /// The same for an edit that changes the length: it is shown the string with `n_spare` zero bytes behind it, and the
    /// string's length, and first answers how long the string is from then on.
    pub fn resize_string<R>(
        &mut self,
        key: &Key<'_>,
        n_spare: usize,
        edit: impl FnOnce(&mut [u8], usize) -> (usize, R),
    ) -> Option<R> {
        let slot = self.table.find_mut(key.hash, key.bytes)?;
        let len = string_len(slot.get())?;
        edit_slot(slot, (&mut self.expiry, &mut self.access), len + n_spare, |string| edit(string, len))
    }

    /// One step of a scan, see [`Table::scan`]. Dead keys and lent ones are shown too.
    pub fn scan<'k>(&'k self, at: ScanPosition, visit: impl FnMut(EntryRef<'k>)) -> ScanPosition {
        self.table.scan(at, visit)
    }

    /// All entries, at once: for tests and digests.
    pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.table.iter()
    }

    /// A random entry, each with the same chance; `random` gives 64 random bits a call. Dead and lent ones are drawn too.
    pub fn random(&self, random: impl FnMut() -> u64) -> Option<EntryRef<'_>> {
        self.table.random(random)
    }

    /// Number of keys of a kind that eviction may choose from; some may be away or held just now.
    pub fn n_evictable(&self, scope: Scope) -> usize {
        match scope {
            Scope::AllKeys => self.table.len(),
            Scope::Volatile => self.expiry.len(),
        }
    }

    /// Shows about `n` random keys of a kind, none that is away or held.
    pub fn sample(
        &self,
        scope: Scope,
        n: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(EntryRef<'_>),
    ) {
        if scope == Scope::AllKeys {
            return self.table.sample(n, random, |entry| show_if_free(entry, &mut visit));
        }
        if self.expiry.len() * MIN_VOLATILE_SHARE < self.table.len() {
            return self.expiry.sample(n, random, |node| show_if_free(entry_of_node(node), &mut visit));
        }
        let mut n_shown = 0;
        for _ in 0..MIN_VOLATILE_SHARE {
            if n_shown >= n || self.expiry.len() == 0 {
                return;
            }
            self.table.sample(n, random, |entry| {
                if entry.has_ttl() && n_shown < n {
                    n_shown += 1;
                    show_if_free(entry, &mut visit);
                }
            });
        }
    }

    /// Shows up to `n` of the keys whose deadlines come first, none that is away or held.
    pub fn soonest(&self, n: usize, mut visit: impl FnMut(EntryRef<'_>)) {
        self.expiry.soonest(n, |node| show_if_free(entry_of_node(node), &mut visit));
    }

    /// Removes keys whose deadline is before `now_ms`, and tells each before it is gone. Returns how much of the budget
    /// (in keys looked at) was spent; all of it means that there may be more.
    pub fn active_expire(
        &mut self,
        now_ms: i64,
        budget: usize,
        mut on_expired: impl FnMut(EntryRef<'_>),
    ) -> usize {
        let mut budget_left = Budget { left: budget };
        // Dead ones that are read from elsewhere just now: back into the index, for the next call.
        let mut held: Vec<NonNull<Node>> = Vec::new();
        let spent = loop {
            let mut batch: [Option<Entry>; EXPIRE_BATCH] = [const { None }; EXPIRE_BATCH];
            let mut dead: [Option<(u64, NonNull<u8>)>; EXPIRE_BATCH] = [None; EXPIRE_BATCH];
            let mut n_dead = 0;
            while n_dead < EXPIRE_BATCH
                && let Some(node) = self.expiry.next_dead(now_ms, &mut budget_left)
            {
                let raw = Entry::of_node(node);
                // SAFETY: the node was in the index, so its entry lives in the table.
                let entry = unsafe { EntryMut::of(raw) };
                if entry.as_ref().is_held() {
                    held.push(node);
                    continue;
                }
                let hash = self.table.hash(entry.as_ref().key());
                self.table.prefetch_bucket(hash);
                dead[n_dead] = Some((hash, raw));
                n_dead += 1;
            }
            for (entry, dead) in batch.iter_mut().zip(dead) {
                // Out of the index already, so out of the table as well, before anybody is told.
                *entry = dead.and_then(|(hash, raw)| self.table.find_address(hash, raw)).map(SlotMut::remove);
            }
            for (entry, dead) in batch.into_iter().zip(dead) {
                let (Some(entry), Some((hash, _))) = (entry, dead) else { continue };
                withdraw(entry.as_ref());
                self.expiry.refile_hash(hash, fields::earliest_ms(entry.as_ref().object()), None);
                on_expired(entry.as_ref());
                self.lazyfree.give_entry(entry);
            }
            if n_dead < EXPIRE_BATCH {
                break budget - budget_left.left;
            }
        };
        for node in held {
            // SAFETY: the entry still lives in the table, and `next_dead` took it out of its list.
            unsafe { self.expiry.insert(node) };
        }
        spent
    }

    /// Removes all keys. Costs nothing; the memory comes back by [`Keyspace::free_slice`].
    pub fn clear(&mut self) {
        let empty = Table::new(self.seed());
        let table = std::mem::replace(&mut self.table, empty);
        self.lazyfree.give_table(table);
        self.lazyfree.give_deadlines(std::mem::take(&mut self.expiry).into_hashes());
    }

    /// Whether something deleted waits to be freed.
    pub fn has_garbage(&self) -> bool {
        self.lazyfree.has_garbage()
    }

    /// Frees about `budget` entries and elements of what was deleted; true when nothing is left to free. Call it with a
    /// hundred or so until the turn's time is over.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        self.lazyfree.slice(budget)
    }
}

/// The entry of a node in the index, which lives as long as the keyspace is borrowed.
fn entry_of_node<'k>(node: NonNull<Node>) -> EntryRef<'k> {
    // SAFETY: a node in the index is part of an entry of the table; the callers show it while the keyspace is borrowed.
    unsafe { EntryMut::of(Entry::of_node(node)) }.into_ref()
}

fn show_if_free(entry: EntryRef<'_>, visit: &mut impl FnMut(EntryRef<'_>)) {
    if !entry.is_lent() && !entry.is_held() {
        visit(entry);
    }
}

#[inline(always)]
fn entry_mut<'t>(mut slot: SlotMut<'t, Entry>) -> EntryMut<'t> {
    let raw = slot.update(|entry| entry.raw());
    // SAFETY: the entry lives in the table, which the slot borrows exclusively for 't; the slot is given up for this.
    unsafe { EntryMut::of(raw) }
}

/// Shows the bytes of a string in the table for an edit, which first answers the new length, see [`Keyspace::edit_string`].
#[inline]
fn edit_slot<R>(
    mut slot: SlotMut<'_, Entry>,
    (expiry, access): (&mut ExpiryIndex, &mut AccessClock),
    min_len: usize,
    edit: impl FnOnce(&mut [u8]) -> (usize, R),
) -> Option<R> {
    if matches!(slot.get().object(), Some(Object::Alias(_))) {
        // Another shard's, lent for reading.
        return None;
    }
    slot.update(|entry| entry.as_mut().touch(access));
    let mut long = match slot.get().view() {
        View::Int(_) | View::Str(_) if min_len <= INLINE_BYTES => {
            return slot.update(|entry| {
                let place = entry.raw();
                entry.edit_inline(min_len)?;
                tell_moved(entry, place, expiry);
                let (len, result) = edit(entry.edit_inline(0)?);
                entry.truncate_inline(len);
                Some(result)
            });
        }
        View::Int(int) => zero_extended(itoa::Buffer::new().format(int).as_bytes(), min_len),
        View::Str(bytes) => zero_extended(bytes, min_len),
        View::Shared(_) => BytesMut::from(take_shared(&mut slot)),
        View::List(_)
        | View::Set(_)
        | View::Hash(_)
        | View::Zset(_)
        | View::Stream(_)
        | View::Vector(_)
        | View::Lent => {
            return None;
        }
    };
    if min_len - long.len().min(min_len) >= long.len().max(ZEROED_BYTES) {
        long = zero_extended(&long, min_len);
    } else if long.len() < min_len {
        long.resize(min_len, 0);
    }
    let (len, result) = edit(&mut long);
    long.truncate(len);
    let payload = Payload::of(NewValue::Shared(long.freeze()));
    drop(slot.update(|entry| overwrite(entry, payload, Ttl::Keep, expiry)));
    Some(result)
}

/// A copy of `bytes` with zeros behind it up to `len`. The zeros come from the allocator, which need not write them.
fn zero_extended(bytes: &[u8], len: usize) -> BytesMut {
    let mut long = BytesMut::zeroed(len.max(bytes.len()));
    long[..bytes.len()].copy_from_slice(bytes);
    long
}

fn string_len(entry: EntryRef<'_>) -> Option<usize> {
    match entry.view() {
        View::Int(int) => Some(itoa::Buffer::new().format(int).len()),
        View::Str(bytes) => Some(bytes.len()),
        View::Shared(bytes) => Some(bytes.len()),
        View::List(_)
        | View::Set(_)
        | View::Hash(_)
        | View::Zset(_)
        | View::Stream(_)
        | View::Vector(_)
        | View::Lent => None,
    }
}

/// The bytes of a long string, so that they can be edited without a copy if nobody else has them; the caller puts them back.
fn take_shared(slot: &mut SlotMut<'_, Entry>) -> Bytes {
    slot.update(|entry| match entry.as_mut().into_object_mut() {
        Some(Object::Shared(bytes)) => std::mem::take(&mut **bytes),
        Some(
            Object::List(_)
            | Object::Set(_)
            | Object::Hash(_)
            | Object::Zset(_)
            | Object::Stream(_)
            | Object::Vector(_)
            | Object::Alias(_),
        )
        | None => Bytes::new(),
    })
}

/// Tells readers on other cores that a vector set is no longer where they found it: they ask the owner again.
#[inline(always)]
fn withdraw(entry: EntryRef<'_>) {
    if let View::Vector(vector) = entry.view() {
        vector.withdraw();
    }
}

/// Takes an entry out of the index, that is about to leave the table.
fn unlink(entry: &Entry, hash: u64, expiry: &mut ExpiryIndex) {
    unlink_deadline(entry, expiry);
    expiry.refile_hash(hash, fields::earliest_ms(entry.as_ref().object()), None);
}

/// Takes an entry's deadline, if it has one, out of the index.
fn unlink_deadline(entry: &Entry, expiry: &mut ExpiryIndex) {
    if entry.as_ref().has_ttl() {
        // SAFETY: entries of the table with a deadline are in a list; the caller is taking this one out of the table, or
        // its deadline away.
        unsafe { expiry.remove(entry.node()) };
    }
}

/// Tells the index if an entry, which was at `place`, lies elsewhere now.
fn tell_moved(entry: &Entry, place: NonNull<u8>, expiry: &mut ExpiryIndex) {
    if entry.raw() != place && entry.as_ref().has_ttl() {
        // SAFETY: the node is the copy that went with the entry; the old place is freed.
        unsafe { expiry.moved(entry.node()) };
    }
}

#[inline]
fn remove_slot<R>(
    slot: SlotMut<'_, Entry>,
    hash: u64,
    expiry: &mut ExpiryIndex,
    give: impl FnOnce(Entry) -> R,
) -> R {
    let entry = slot.remove();
    withdraw(entry.as_ref());
    unlink(&entry, hash, expiry);
    give(entry)
}

/// Gives an entry of the table another value and deadline; returns the old value if it was an object.
#[inline]
fn overwrite(entry: &mut Entry, payload: Payload<'_>, ttl: Ttl, expiry: &mut ExpiryIndex) -> Option<Object> {
    debug_assert!(!entry.as_ref().is_lent(), "a lent key is written where it is");
    withdraw(entry.as_ref());
    let had_ttl = entry.as_ref().has_ttl();
    let has_ttl = match ttl {
        Ttl::Keep => had_ttl,
        Ttl::Clear => false,
        Ttl::At(_) => true,
    };
    if had_ttl && !has_ttl {
        unlink_deadline(entry, expiry);
    }
    let place = entry.raw();
    let old = entry.set_value(payload, has_ttl);
    if had_ttl {
        tell_moved(entry, place, expiry);
    }
    if let Ttl::At(deadline_ms) = ttl {
        // SAFETY: with a deadline before, the node is in a list; without, it is new and in none.
        unsafe {
            if had_ttl {
                expiry.set_deadline(entry.node(), deadline_ms);
            } else {
                entry.node().write(Node::unlinked(deadline_ms));
                expiry.insert(entry.node());
            }
        }
    }
    old
}

#[cfg(test)]
#[path = "keyspace_tests.rs"]
mod tests;
