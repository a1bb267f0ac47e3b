//! A shard: the databases that one worker owns, and the one call by which a write reports itself.
//!
//! A shard is a plain value: no clock, socket, lock, thread or global inside; the worker passes `now` and bytes in and takes bytes
//! out. So one function serves production, tests, fuzzing and the seeded simulation of n shards in one thread.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::blocked::{Awaited, Blocked};
use crate::client::ClientId;
use crate::config::KeyspaceEvents;
use crate::events::{Event, EventSinks};
use crate::evict::Candidates;
use crate::keysizes::{Bin, Keysizes};
use crate::keyspace::{AccessClock, FieldsLeft, HashSeed, Key, Keyspace, Tracking};
use crate::tracking::{TrackingNews, TrackingTable};

/// Which shard (= which worker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u8);

/// Which database (SELECT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DbIndex(pub u16);

/// Above any number of a database.
const ONLY_WAKING: u16 = 1 << 15;

impl DbIndex {
    /// Among the changes of entries that were elsewhere: the value is as it was, but who waits for the key is to look again.
    fn only_waking(self) -> Self {
        Self(self.0 | ONLY_WAKING)
    }

    fn woken(self) -> Option<Self> {
        (self.0 & ONLY_WAKING != 0).then_some(Self(self.0 & !ONLY_WAKING))
    }
}

/// The class of a keyspace event, as `notify-keyspace-events` tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventClass {
    Generic,
    String,
    List,
    Set,
    Hash,
    SortedSet,
    Stream,
    Expired,
    Evicted,
    Module,
    /// A read that found no key; asked for apart from the others.
    KeyMiss,
    /// A key that was not there before; asked for apart from the others.
    New,
}

impl EventClass {
    /// The letter of `notify-keyspace-events`.
    pub fn letter(self) -> char {
        match self {
            EventClass::Generic => 'g',
            EventClass::String => '$',
            EventClass::List => 'l',
            EventClass::Set => 's',
            EventClass::Hash => 'h',
            EventClass::SortedSet => 'z',
            EventClass::Stream => 't',
            EventClass::Expired => 'x',
            EventClass::Evicted => 'e',
            EventClass::Module => 'd',
            EventClass::KeyMiss => 'm',
            EventClass::New => 'n',
        }
    }
}

/// Stamps of writes: more make false alarms rarer.
const N_STAMPS: usize = 4096;

/// A counter block of one shard; summed by INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub keyspace_hits: u64,
    pub keyspace_misses: u64,
    pub expired_keys: u64,
    /// Fields of hashes.
    pub expired_subkeys: u64,
    pub evicted_keys: u64,
    /// Changes since start (`rdb_changes_since_last_save`).
    pub dirty: u64,
}

impl Stats {
    pub fn add(&mut self, other: &Self) {
        self.keyspace_hits += other.keyspace_hits;
        self.keyspace_misses += other.keyspace_misses;
        self.expired_keys += other.expired_keys;
        self.expired_subkeys += other.expired_subkeys;
        self.evicted_keys += other.evicted_keys;
        self.dirty += other.dirty;
    }
}

/// What a command on a whole database does to one of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Unchanged,
    Removed,
    Changed,
}

/// A key of one of the databases.
type KeyName = (DbIndex, Box<[u8]>);

/// One client's interest in one key.
struct Watch {
    client: ClientId,
    /// The key was already past its deadline at WATCH time: its removal is no change.
    was_expired: bool,
}

/// Where reads count what they found.
pub struct Lookups<'a> {
    db: DbIndex,
    stats: &'a mut Stats,
    events: &'a mut EventSinks,
}

impl Lookups<'_> {
    #[inline]
    pub fn hit(&mut self) {
        self.stats.keyspace_hits += 1;
    }

    /// No living key was there, and nobody is told.
    #[inline]
    pub fn miss_untold(&mut self) {
        self.stats.keyspace_misses += 1;
    }

    /// No living key was there.
    #[inline]
    pub fn miss(&mut self, key: &[u8]) {
        self.miss_untold();
        if self.events.is_open() {
            self.events.push(Event {
                db: self.db,
                class: EventClass::KeyMiss,
                name: "keymiss",
                key: key.into(),
            });
        }
    }
}

/// The databases of one worker.
pub struct Shard {
    pub id: ShardId,
    keyspaces: Vec<Keyspace>,
    watches: HashMap<(DbIndex, Box<[u8]>), Vec<Watch>>,
    watched_by: HashMap<ClientId, Vec<KeyName>>,
    /// Clients with a watched key that changed.
    touched: HashMap<ClientId, ()>,
    /// Who waits for a key to be filled.
    pub blocked: Blocked,
    /// While entries of other shards are here: the keys that changed, to be told to their owners.
    guest_changes: Option<Vec<(DbIndex, Box<[u8]>)>>,
    /// Reads over two shards may be in flight (`dispatch::halves`): writes leave stamps.
    is_stamping: bool,
    /// Counts writes while they are watched.
    write_clock: u64,
    /// By the low bits of a key's hash: the clock of the last write. Empty until first needed.
    stamps: Vec<u64>,
    /// A flush or a swap: everything was written then.
    all_written_at: u64,
    hash_seed: HashSeed,
    /// Who is told of events.
    events: EventSinks,
    /// Clients that cache keys of this shard.
    pub tracking: TrackingNews,
    /// Whether `changed` has more to do than count.
    is_observed: bool,
    /// Names of vector sets whose codes want to be looked after (`vector::upkeep_slice`).
    pub upkeep: VecDeque<(DbIndex, Box<[u8]>)>,
    /// A change moves the key's access clock (LRM).
    is_modification_tracked: bool,
    pub stats: Stats,
    random: u64,
    /// The best keys to evict that were met so far.
    pub(crate) candidates: Candidates,
    /// How large the keys are, where somebody asks.
    pub keysizes: Keysizes,
    /// The second that the keyspaces' access clocks show.
    clock_s: i64,
}

impl Shard {
    pub fn new(id: ShardId, n_databases: usize, hash_seed: HashSeed, seed: u64) -> Self {
        Self {
            id,
            keyspaces: (0..n_databases).map(|_| Keyspace::new(hash_seed)).collect(),
            watches: HashMap::new(),
            watched_by: HashMap::new(),
            touched: HashMap::new(),
            blocked: Blocked::default(),
            guest_changes: None,
            is_stamping: false,
            write_clock: 0,
            stamps: Vec::new(),
            all_written_at: 0,
            hash_seed,
            events: EventSinks::default(),
            tracking: TrackingNews::default(),
            is_observed: false,
            upkeep: VecDeque::new(),
            is_modification_tracked: false,
            stats: Stats::default(),
            random: seed | 1,
            candidates: Candidates::default(),
            keysizes: Keysizes::default(),
            clock_s: i64::MIN,
        }
    }

    #[inline]
    pub fn keyspace(&mut self, db: DbIndex) -> &mut Keyspace {
        &mut self.keyspaces[db.0 as usize]
    }

    #[inline]
    pub fn keyspace_and_lookups(&mut self, db: DbIndex) -> (&mut Keyspace, Lookups<'_>) {
        if self.is_observed {
            // A key can be new without another event (BITFIELD whose OVERFLOW FAIL refuses): what is missed next comes behind it.
            self.record_births();
        }
        let Self { keyspaces, stats, events, .. } = self;
        (&mut keyspaces[db.0 as usize], Lookups { db, stats, events })
    }

    /// Counts a lookup that was not made in this keyspace: a published vector set is at hand everywhere.
    pub fn looked_up(&mut self, db: DbIndex, key: &[u8], is_hit: bool) {
        let (_, mut lookups) = self.keyspace_and_lookups(db);
        if is_hit { lookups.hit() } else { lookups.miss(key) }
    }

    pub fn keyspaces(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    /// A name with its hash, for work that no request has brought.
    pub fn key_of<'k>(&self, name: &'k [u8]) -> Key<'k> {
        Key::new(name, self.hash_seed)
    }

    pub fn n_databases(&self) -> usize {
        self.keyspaces.len()
    }

    /// Tells the access clocks the time, once a second.
    #[inline]
    pub fn tell_time(&mut self, now_ms: i64) {
        if now_ms.div_euclid(1000) != self.clock_s {
            self.tell_second(now_ms);
        }
    }

    #[cold]
    fn tell_second(&mut self, now_ms: i64) {
        self.clock_s = now_ms.div_euclid(1000);
        for at in 0..self.keyspaces.len() {
            let random = self.random();
            self.keyspaces[at].access_mut().set_time(now_ms, random);
        }
    }

    /// Other rules for the access clocks from here on.
    pub fn set_access_rules(&mut self, now_ms: i64, set_rules: impl Fn(&mut AccessClock)) {
        self.keyspaces.iter_mut().for_each(|keyspace| set_rules(keyspace.access_mut()));
        self.is_modification_tracked =
            self.keyspaces.iter().any(|keyspace| keyspace.access().tracking() == Tracking::Modified);
        self.is_observed = self.has_observers();
        self.tell_second(now_ms);
    }

    /// A pseudo-random number (splitmix64); the seed comes from the worker.
    pub fn random(&mut self) -> u64 {
        splitmix64(&mut self.random)
    }

    /// A generator of its own, for a handler that draws while it holds a value.
    pub fn random_source(&mut self) -> impl FnMut() -> u64 + use<> {
        let mut state = self.random();
        move || splitmix64(&mut state)
    }

    /// **The one call by which a write reports itself**: `key` of `db` has changed, by what Redis calls `event`.
    ///
    /// WATCH, notifications, blocked clients and tracking hang here; propagation will.
    #[inline]
    pub fn changed(&mut self, db: DbIndex, key: &[u8], class: EventClass, event: &'static str) {
        self.stats.dirty += 1;
        if self.is_observed {
            self.tell_observers(db, key, class, event);
        }
    }

    /// The same of a change that a client's command has made: its own tracking may not want to know.
    #[inline]
    pub fn changed_by(
        &mut self,
        writer: ClientId,
        db: DbIndex,
        key: &[u8],
        class: EventClass,
        event: &'static str,
    ) {
        self.stats.dirty += 1;
        if self.is_observed {
            self.tracking.writer = Some(writer);
            self.tell_observers(db, key, class, event);
            self.tracking.writer = None;
        }
    }

    /// A change of `key` that Redis does not count as one of its value (a consumer group's): its event is told, but who watches
    /// the key is not disturbed.
    #[inline]
    pub fn told(&mut self, db: DbIndex, key: &[u8], class: EventClass, event: &'static str) {
        self.stats.dirty += 1;
        if self.is_observed && self.events.is_open() {
            self.record_births();
            self.events.push(Event { db, class, name: event, key: key.into() });
        }
    }

    /// Has those who wait for `key` look again, although its value has not changed.
    pub fn wake_waiters(&mut self, db: DbIndex, key: &Key<'_>) {
        if let Some(changes) = &mut self.guest_changes {
            changes.push((db.only_waking(), key.bytes.into()));
        }
        if !self.blocked.is_empty() {
            self.blocked.note(db, key);
        }
    }

    /// What became of `key` while its entry was elsewhere; whether its value has changed.
    pub fn take_guest_change(&mut self, db: DbIndex, key: &[u8]) -> bool {
        match db.woken() {
            Some(db) => {
                self.wake_waiters(db, &Key::new(key, self.hash_seed));
                false
            }
            None => {
                self.touch_watchers(db, key, false);
                true
            }
        }
    }

    /// No change, but WATCH is to take it for one: Redis's modules touch every key that they open for writing.
    #[inline]
    pub fn touched(&mut self, writer: ClientId, db: DbIndex, key: &[u8]) {
        if self.is_observed {
            self.tracking.writer = Some(writer);
            self.note_write(db, key, false);
            self.tracking.writer = None;
        }
    }

    /// Somebody tracks what it reads from here on.
    pub fn begin_tracking(&mut self) {
        self.tracking.table = Some(Box::new(TrackingTable::new(self.hash_seed)));
        self.is_observed = true;
    }

    /// Whether somebody tracks by prefix.
    pub fn set_broadcasting(&mut self, is_broadcasting: bool) {
        self.tracking.is_broadcasting = is_broadcasting;
        self.is_observed = self.has_observers();
    }

    /// FLUSHALL and FLUSHDB: clients that track are to forget everything.
    pub fn flush_tracking(&mut self) {
        self.tracking.flush();
        self.is_observed = self.has_observers();
    }

    #[cold]
    fn tell_observers(&mut self, db: DbIndex, key: &[u8], class: EventClass, event: &'static str) {
        if self.events.is_open() {
            // Behind the events of the keys that are new since the last.
            self.record_births();
            self.events.push(Event { db, class, name: event, key: key.into() });
        }
        self.note_write(db, key, class == EventClass::Expired);
    }

    /// A write of `key`, without its event.
    fn note_write(&mut self, db: DbIndex, key: &[u8], is_expiry: bool) {
        if self.is_modification_tracked {
            self.keyspaces[db.0 as usize].mark_new(&Key::new(key, self.hash_seed));
        }
        if let Some(changes) = &mut self.guest_changes {
            changes.push((db, key.into()));
        }
        if self.tracking.is_on() {
            self.tracking.note(&Key::new(key, self.hash_seed), self.tracking.writer);
        }
        self.touch_watchers(db, key, is_expiry);
    }

    #[cold]
    fn record_births(&mut self) {
        if !self.events.wants(EventClass::New) {
            return;
        }
        for (db, keyspace) in self.keyspaces.iter_mut().enumerate() {
            for key in keyspace.take_births() {
                self.events.push(Event { db: DbIndex(db as u16), class: EventClass::New, name: "new", key });
            }
        }
    }

    /// The events since the last call; the first begins the record.
    pub fn take_events(&mut self) -> std::collections::VecDeque<Event> {
        self.record_births();
        let events = self.events.take_record();
        self.keyspaces.iter_mut().for_each(|keyspace| keyspace.note_births(true));
        self.is_observed = true;
        events
    }

    /// Chooses the classes of events that are published from here on.
    #[inline]
    pub fn set_notified(&mut self, classes: KeyspaceEvents) {
        if self.events.notified() != classes {
            self.events.notify(classes);
            let is_noting = self.events.wants(EventClass::New);
            self.keyspaces.iter_mut().for_each(|keyspace| keyspace.note_births(is_noting));
            self.is_observed = self.has_observers();
        }
    }

    /// Whether events wait to be published.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.events.has_notices()
    }

    pub fn take_notices(&mut self) -> Vec<Event> {
        self.record_births();
        self.events.take_notices()
    }

    /// Marks the clients that watch `key`, and the line of those that wait for it.
    pub fn touch_watchers(&mut self, db: DbIndex, key: &[u8], is_expiry: bool) {
        self.stamp(key);
        if !self.blocked.is_empty() {
            self.blocked.note(db, &Key::new(key, self.hash_seed));
        }
        if self.watches.is_empty() {
            return;
        }
        let Some(watches) = self.watches.get(&(db, Box::from(key))) else { return };
        for watch in watches {
            if !(is_expiry && watch.was_expired) {
                self.touched.insert(watch.client, ());
            }
        }
    }

    /// Marks the clients that watch a key of `db` of which `fate` says that it changes: FLUSHDB and SWAPDB.
    pub fn touch_database(&mut self, db: DbIndex, mut fate: impl FnMut(&mut Self, &[u8]) -> Fate) {
        let keys: Vec<KeyName> = self.watches.keys().filter(|(d, _)| *d == db).cloned().collect();
        for (db, key) in keys {
            match fate(self, &key) {
                Fate::Unchanged => {}
                // Of a key that was dead when it was watched: no change.
                Fate::Removed => self.touch_watchers(db, &key, true),
                Fate::Changed => self.touch_watchers(db, &key, false),
            }
        }
    }

    /// Puts a client into the lines of `keys`: it is served when one of them holds what it waits for.
    pub fn block<'k>(
        &mut self,
        client: ClientId,
        db: DbIndex,
        awaited: Awaited,
        keys: impl Iterator<Item = Key<'k>>,
    ) {
        self.blocked.add(client, db, awaited, keys);
        self.is_observed = true;
    }

    /// Takes a client out of the lines here; whether it was in any.
    pub fn unblock(&mut self, client: ClientId) -> bool {
        let was_there = self.blocked.remove(client);
        self.is_observed = self.has_observers();
        was_there
    }

    /// Registers `client`'s interest in `key`.
    pub fn watch(&mut self, client: ClientId, db: DbIndex, key: Key<'_>, now_ms: i64) {
        let was_expired = self.keyspaces[db.0 as usize].is_expired(&key, now_ms);
        let watches = self.watches.entry((db, Box::from(key.bytes))).or_default();
        if watches.iter().all(|watch| watch.client != client) {
            watches.push(Watch { client, was_expired });
            self.watched_by.entry(client).or_default().push((db, Box::from(key.bytes)));
        }
        self.is_observed = true;
    }

    /// Keys that are watched here, and clients that watch.
    pub fn n_watched(&self) -> (usize, usize) {
        (self.watches.len(), self.watched_by.len())
    }

    /// Whether one of the keys that `client` watches here has changed (or has expired by `now_ms`).
    pub fn is_touched(&self, client: ClientId, now_ms: i64) -> bool {
        if self.touched.contains_key(&client) {
            return true;
        }
        self.watched_by.get(&client).into_iter().flatten().any(|place| {
            let keyspace = &self.keyspaces[place.0.0 as usize];
            let is_expired = || keyspace.is_expired(&Key::new(&place.1, keyspace.seed()), now_ms);
            let watches = self.watches.get(place).into_iter().flatten();
            watches.into_iter().any(|watch| watch.client == client && !watch.was_expired) && is_expired()
        })
    }

    /// Ends all of `client`'s watches here.
    pub fn unwatch(&mut self, client: ClientId) {
        self.touched.remove(&client);
        for place in self.watched_by.remove(&client).unwrap_or_default() {
            let Some(list) = self.watches.get_mut(&place) else { continue };
            list.retain(|watch| watch.client != client);
            if list.is_empty() {
                self.watches.remove(&place);
            }
        }
        self.is_observed = self.has_observers();
    }

    /// A read that watches for writes begins; the clock to compare with later.
    pub fn begin_write_watch(&mut self) -> u64 {
        if self.stamps.is_empty() {
            self.stamps = vec![0; N_STAMPS];
        }
        self.is_stamping = true;
        self.is_observed = true;
        self.write_clock
    }

    /// No such read is in flight any more.
    pub fn end_write_watches(&mut self) {
        self.is_stamping = false;
        self.is_observed = self.has_observers();
    }

    /// Whether none of the keys with these hashes was written since `clock` (or one that shares its stamp).
    pub fn is_unwritten_since(&self, clock: u64, hashes: &[u64]) -> bool {
        self.all_written_at <= clock
            && hashes
                .iter()
                .all(|hash| self.stamps.get(*hash as usize % N_STAMPS).is_none_or(|at| *at <= clock))
    }

    /// Leaves the mark of a write.
    pub fn stamp(&mut self, key: &[u8]) {
        if self.is_stamping {
            self.write_clock += 1;
            let at = self.hash_seed.hash_key(key) as usize % N_STAMPS;
            if let Some(stamp) = self.stamps.get_mut(at) {
                *stamp = self.write_clock;
            }
        }
    }

    fn stamp_all(&mut self) {
        self.write_clock += 1;
        self.all_written_at = self.write_clock;
    }

    fn has_observers(&self) -> bool {
        !self.watches.is_empty()
            || !self.blocked.is_empty()
            || self.guest_changes.is_some()
            || self.is_stamping
            || self.events.is_open()
            || self.tracking.is_on()
            || self.is_modification_tracked
    }

    /// From here on, changes are noted as well: entries of other shards are about to come in.
    pub fn begin_guests(&mut self) {
        self.guest_changes = Some(Vec::new());
        self.is_observed = true;
    }

    /// The changes since `begin_guests`.
    pub fn end_guests(&mut self) -> Vec<(DbIndex, Box<[u8]>)> {
        let changes = self.guest_changes.take().unwrap_or_default();
        self.is_observed = self.has_observers();
        changes
    }

    /// Exchanges two databases (SWAPDB).
    pub fn swap_databases(&mut self, a: DbIndex, b: DbIndex) {
        self.stamp_all();
        self.keyspaces.swap(a.0 as usize, b.0 as usize);
        self.blocked.note_database(a);
        self.blocked.note_database(b);
    }

    /// Empties one database; its contents are freed in slices.
    pub fn flush(&mut self, db: DbIndex) {
        self.stamp_all();
        self.keyspace(db).clear();
        self.blocked.note_database(db);
    }

    /// How large the keys are, as far as that is known.
    pub fn look_at_keysizes(&mut self, now_ms: i64) -> &[Bin] {
        self.keysizes.look(&self.keyspaces, now_ms)
    }

    /// Goes on with finding out.
    pub fn keysizes_slice(&mut self, now_ms: i64, budget: usize) {
        self.keysizes.step(&self.keyspaces, now_ms, budget);
    }

    /// Whether something deleted waits to be freed.
    pub fn has_garbage(&self) -> bool {
        !self.tracking.garbage.is_empty() || self.keyspaces.iter().any(Keyspace::has_garbage)
    }

    /// Frees about `budget` elements of what was deleted; true if more is left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        if !self.tracking.garbage.is_empty() && self.tracking.free_slice(budget) {
            return true;
        }
        for keyspace in self.keyspaces.iter_mut().filter(|keyspace| keyspace.has_garbage()) {
            if !keyspace.free_slice(budget) {
                return true;
            }
        }
        false
    }

    /// Removes about `budget` dead keys and dead fields of hashes each; true if there may be more.
    pub fn expire_slice(&mut self, now_ms: i64, budget: usize) -> bool {
        let mut is_more = false;
        for db in 0..self.keyspaces.len() {
            if self.keyspaces[db].n_timed_hashes() > 0 {
                is_more |= self.expire_fields_slice(DbIndex(db as u16), now_ms, budget);
            }
            if self.keyspaces[db].n_expires() == 0 {
                continue;
            }
            let is_observed = self.is_observed;
            let mut n = 0;
            let mut names: Vec<Box<[u8]>> = Vec::new();
            let spent = self.keyspaces[db].active_expire(now_ms, budget, |entry| {
                n += 1;
                if is_observed {
                    names.push(entry.key().into());
                }
            });
            self.stats.expired_keys += n;
            self.stats.dirty += n;
            for name in names {
                self.tell_observers(DbIndex(db as u16), &name, EventClass::Expired, "expired");
            }
            is_more |= spent >= budget;
        }
        is_more
    }

    fn expire_fields_slice(&mut self, db: DbIndex, now_ms: i64, budget: usize) -> bool {
        let is_observed = self.is_observed;
        let mut n = 0;
        let mut names: Vec<(Box<[u8]>, FieldsLeft)> = Vec::new();
        let spent = self.keyspace(db).expire_fields(now_ms, budget, |entry, n_dead, left| {
            n += n_dead as u64;
            if is_observed {
                names.push((entry.key().into(), left));
            }
        });
        self.stats.expired_subkeys += n;
        self.stats.dirty += n;
        for (name, left) in names {
            self.tell_observers(db, &name, EventClass::Hash, "hexpired");
            if left == FieldsLeft::None {
                self.tell_observers(db, &name, EventClass::Generic, "del");
            }
        }
        spent >= budget
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a lend or a watching read has switched on is off again when it has ended: every later write would pay for it.
    #[test]
    fn nothing_is_observed_when_lends_and_reads_have_ended() {
        let mut shard = Shard::new(ShardId(0), 1, HashSeed::from_u64(7), 7);
        shard.begin_guests();
        shard.changed(DbIndex(0), b"k", EventClass::String, "set");
        assert_eq!(shard.end_guests().len(), 1);
        assert!(!shard.is_observed);
        let clock = shard.begin_write_watch();
        shard.begin_guests();
        shard.end_guests();
        assert!(shard.is_observed, "the read still watches");
        shard.changed(DbIndex(0), b"k", EventClass::String, "set");
        assert!(!shard.is_unwritten_since(clock, &[shard.hash_seed.hash_key(b"k")]));
        shard.end_write_watches();
        assert!(!shard.is_observed);
    }
}
