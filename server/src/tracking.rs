//! Server-assisted client-side caching (<https://redis.io/docs/latest/develop/reference/client-side-caching/>): who has read which keys, and
//! what a client asked for by CLIENT TRACKING.
//!
//! ```text
//!   read by a client that tracks ──► the key's owner notes (key, client)          `TrackingTable`, one a shard
//!   write, expiry, eviction      ──► the owner forgets the key and tells those clients' workers
//!   client's worker              ──► its options decide: NOLOOP, another mode by now, REDIRECT    `Tracking`
//!   BCAST: prefixes are known to all workers; each tells which keys changed in a turn        `Prefixes`
//! ```
//!
//! As in Redis, a key is one for all databases, and clients that are gone stay in the table until the key changes. The table is cut
//! into shelves, so that none grows by more than a fraction of a millisecond's work.
//! Cost: a key with one reader takes 32 bytes and its name on the heap, and some 7 bytes of the index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use hashbrown::{HashSet, HashTable};

use crate::client::ClientId;
use crate::keyspace::{HashSeed, Key};

/// Shelves of a table.
const N_SHELVES: usize = 1024;

/// Flushes of this process: only their order counts.
static N_FLUSHES: AtomicU64 = AtomicU64::new(0);

/// Who has read a key since it last changed.
enum Readers {
    One(ClientId),
    Many(Box<HashSet<ClientId>>),
}

struct Tracked {
    key: Box<[u8]>,
    readers: Readers,
}

#[derive(Default)]
struct Shelf {
    keys: Vec<Tracked>,
    index: HashTable<u32>,
}

/// The keys of one shard that clients may have in their caches.
pub struct TrackingTable {
    shelves: Box<[Shelf]>,
    seed: HashSeed,
    n_keys: usize,
    /// Keys times readers.
    n_items: usize,
    /// The shelf that the next key to be given up is sought on.
    next_shelf: usize,
}

fn shelf_of(hash: u64) -> usize {
    // The index uses the lowest and the highest bits.
    (hash >> 40) as usize % N_SHELVES
}

impl TrackingTable {
    pub fn new(seed: HashSeed) -> Self {
        let shelves = (0..N_SHELVES).map(|_| Shelf::default()).collect();
        Self { shelves, seed, n_keys: 0, n_items: 0, next_shelf: 0 }
    }

    pub fn n_keys(&self) -> usize {
        self.n_keys
    }

    pub fn n_items(&self) -> usize {
        self.n_items
    }

    /// `client` has read `key`.
    pub fn remember(&mut self, key: &Key<'_>, client: ClientId) {
        let shelf = &mut self.shelves[shelf_of(key.hash)];
        let Shelf { keys, index } = shelf;
        if let Some(at) = index.find(key.hash, |at| *keys[*at as usize].key == *key.bytes) {
            let readers = &mut keys[*at as usize].readers;
            match readers {
                Readers::One(reader) if *reader == client => {}
                Readers::One(reader) => {
                    *readers = Readers::Many(Box::new([*reader, client].into_iter().collect()));
                    self.n_items += 1;
                }
                Readers::Many(all) => self.n_items += usize::from(all.insert(client)),
            }
            return;
        }
        if keys.len() == keys.capacity() {
            keys.reserve_exact(keys.len() / 8 + 4);
        }
        let at = keys.len() as u32;
        keys.push(Tracked { key: key.bytes.into(), readers: Readers::One(client) });
        let seed = self.seed;
        index.insert_unique(key.hash, at, |at| seed.hash_key(&keys[*at as usize].key));
        self.n_keys += 1;
        self.n_items += 1;
    }

    /// Forgets `key`; who had read it.
    pub fn take(&mut self, key: &Key<'_>) -> Vec<ClientId> {
        let shelf = &mut self.shelves[shelf_of(key.hash)];
        let keys = &shelf.keys;
        match shelf.index.find_entry(key.hash, |at| *keys[*at as usize].key == *key.bytes) {
            Ok(entry) => {
                let at = entry.remove().0;
                let tracked = self.pull(shelf_of(key.hash), at);
                self.note_gone(tracked).1
            }
            Err(_) => Vec::new(),
        }
    }

    /// Takes a key out of a shelf whose index has lost it already: the last one comes into its place.
    fn pull(&mut self, shelf: usize, at: u32) -> Tracked {
        let Shelf { keys, index } = &mut self.shelves[shelf];
        let tracked = keys.swap_remove(at as usize);
        if let Some(moved) = keys.get(at as usize) {
            let was_at = keys.len() as u32;
            let hash = self.seed.hash_key(&moved.key);
            if let Some(place) = index.find_mut(hash, |place| *place == was_at) {
                *place = at;
            }
        }
        if keys.is_empty() {
            self.shelves[shelf] = Shelf::default();
        }
        tracked
    }

    fn note_gone(&mut self, tracked: Tracked) -> (Box<[u8]>, Vec<ClientId>) {
        let readers = match tracked.readers {
            Readers::One(reader) => vec![reader],
            Readers::Many(all) => all.into_iter().collect(),
        };
        self.n_keys -= 1;
        self.n_items -= readers.len();
        (tracked.key, readers)
    }

    /// Forgets some key, by chance; the key and who had read it.
    pub fn take_any(&mut self, random: u64) -> Option<(Box<[u8]>, Vec<ClientId>)> {
        if self.n_keys == 0 {
            return None;
        }
        while self.shelves[self.next_shelf].keys.is_empty() {
            self.next_shelf = (self.next_shelf + 1) % N_SHELVES;
        }
        let shelf = self.next_shelf;
        self.next_shelf = (shelf + 1) % N_SHELVES;
        let Shelf { keys, index } = &mut self.shelves[shelf];
        let at = (random % keys.len() as u64) as u32;
        let hash = self.seed.hash_key(&keys[at as usize].key);
        if let Ok(entry) = index.find_entry(hash, |place| *place == at) {
            entry.remove();
        }
        let tracked = self.pull(shelf, at);
        Some(self.note_gone(tracked))
    }

    /// Frees about `budget` keys without telling anybody; true if more are left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let mut left = budget;
        while self.n_keys > 0 && left > 0 {
            let shelf = std::mem::take(&mut self.shelves[self.next_shelf]);
            self.next_shelf = (self.next_shelf + 1) % N_SHELVES;
            self.n_keys -= shelf.keys.len();
            left = left.saturating_sub(shelf.keys.len().max(1));
        }
        self.n_keys > 0
    }
}

/// Which of its reads a client wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    All,
    OptIn,
    OptOut,
    /// Of no reads, but of all writes of keys with its prefixes.
    Broadcast,
}

/// What a client asked for by CLIENT TRACKING ON.
#[derive(Clone, Debug)]
pub struct Tracking {
    pub mode: Mode,
    pub is_noloop: bool,
    /// CLIENT ID of the connection that gets the messages; 0: this one.
    pub redirect: u64,
    pub is_redirect_broken: bool,
    /// CLIENT CACHING was called for the next request.
    pub is_caching_chosen: bool,
    pub prefixes: BTreeSet<Box<[u8]>>,
    /// When it began, by `flush_clock`: of earlier flushes it is not told.
    pub since: u64,
}

/// What the clock of flushes shows.
pub fn flush_clock() -> u64 {
    N_FLUSHES.load(SeqCst)
}

impl Tracking {
    /// Whether reads are noted now.
    pub fn notes_reads(&self) -> bool {
        match self.mode {
            Mode::All => true,
            Mode::OptIn => self.is_caching_chosen,
            Mode::OptOut => !self.is_caching_chosen,
            Mode::Broadcast => false,
        }
    }
}

/// Prefix by prefix, the clients that are told of every write (BCAST).
pub type PrefixList = Vec<(Box<[u8]>, Vec<ClientId>)>;

/// The prefixes of all clients.
#[derive(Default)]
pub struct Prefixes {
    all: Mutex<BTreeMap<Box<[u8]>, BTreeSet<ClientId>>>,
    n: AtomicUsize,
    /// Clients that track.
    pub n_clients: AtomicUsize,
}

impl Prefixes {
    pub fn len(&self) -> usize {
        self.n.load(Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn add(&self, prefix: &[u8], client: ClientId) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(prefix.into()).or_default().insert(client);
        self.n.store(all.len(), Relaxed);
    }

    pub fn remove(&self, prefix: &[u8], client: ClientId) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = all.get_mut(prefix) {
            clients.remove(&client);
            if clients.is_empty() {
                all.remove(prefix);
            }
        }
        self.n.store(all.len(), Relaxed);
    }

    /// All of them now, in their order.
    pub fn list(&self) -> PrefixList {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(prefix, clients)| (prefix.clone(), clients.iter().copied().collect())).collect()
    }
}

/// A key that clients have to forget.
#[derive(Debug)]
pub struct Invalidation {
    pub key: Box<[u8]>,
    pub readers: Vec<ClientId>,
    /// Who changed it, if a client did.
    pub writer: Option<ClientId>,
}

/// What a shard has to tell clients that track.
#[derive(Default)]
pub struct TrackingNews {
    /// Who has read what; `None` until somebody tracks.
    pub table: Option<Box<TrackingTable>>,
    /// Tables of before a flush, freed in slices.
    pub garbage: Vec<TrackingTable>,
    pub invalidations: Vec<Invalidation>,
    /// Somebody tracks by prefix: changed keys are collected.
    pub is_broadcasting: bool,
    pub changed: Vec<(Box<[u8]>, Option<ClientId>)>,
    /// Everything is to be forgotten: the flush, by `flush_clock`. A shard that was lent comes home, and tells, a moment after FLUSHALL
    /// was answered.
    pub flushed_at: Option<u64>,
    /// The client whose command runs, for NOLOOP; set where it matters.
    pub writer: Option<ClientId>,
}

impl TrackingNews {
    /// Whether writes have to report themselves.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.table.is_some() || self.is_broadcasting
    }

    /// Whether anybody is to be told of anything.
    #[inline]
    pub fn is_any(&self) -> bool {
        !self.invalidations.is_empty() || !self.changed.is_empty() || self.flushed_at.is_some()
    }

    /// `key` has changed.
    pub fn note(&mut self, key: &Key<'_>, writer: Option<ClientId>) {
        if self.is_broadcasting {
            self.changed.push((key.bytes.into(), writer));
        }
        self.invalidate(key, writer);
    }

    /// The same for those alone who have read it.
    pub fn invalidate(&mut self, key: &Key<'_>, writer: Option<ClientId>) {
        let Some(table) = &mut self.table else { return };
        let readers = table.take(key);
        if !readers.is_empty() {
            self.invalidations.push(Invalidation { key: key.bytes.into(), readers, writer });
        }
    }

    /// Everything is gone: a flush.
    pub fn flush(&mut self) {
        self.flushed_at = Some(N_FLUSHES.fetch_add(1, SeqCst) + 1);
        self.invalidations.clear();
        self.garbage.extend(self.table.take().map(|table| *table));
    }

    /// Frees a part of the old tables; true if more is left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        if let Some(table) = self.garbage.last_mut()
            && !table.free_slice(budget)
        {
            self.garbage.pop();
        }
        !self.garbage.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Against a plain map: the same readers whatever comes, and nothing is left at the end.
    #[test]
    fn the_table_holds_what_a_map_holds() {
        let seed = HashSeed::from_u64(5);
        let mut table = TrackingTable::new(seed);
        let mut model: BTreeMap<Vec<u8>, BTreeSet<ClientId>> = BTreeMap::new();
        let mut state = 12345u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..40_000 {
            let name = format!("key:{}", random() % 3000).into_bytes();
            let key = Key { bytes: &name, hash: seed.hash_key(&name) };
            if random() % 3 > 0 {
                let client = ClientId(random() % 5);
                table.remember(&key, client);
                model.entry(name.clone()).or_default().insert(client);
            } else {
                let got: BTreeSet<ClientId> = table.take(&key).into_iter().collect();
                assert_eq!(got, model.remove(&name).unwrap_or_default());
            }
            assert_eq!(table.n_keys(), model.len());
        }
        assert_eq!(table.n_items(), model.values().map(BTreeSet::len).sum::<usize>());
        while let Some((name, readers)) = table.take_any(random()) {
            assert_eq!(Some(readers.into_iter().collect()), model.remove(&*name));
        }
        assert!(model.is_empty());
        assert_eq!((table.n_keys(), table.n_items()), (0, 0));
    }

    #[test]
    fn a_flushed_table_goes_in_slices() {
        let seed = HashSeed::from_u64(5);
        let mut news = TrackingNews { table: Some(Box::new(TrackingTable::new(seed))), ..Default::default() };
        for n in 0..10_000u32 {
            let name = n.to_le_bytes();
            let key = Key { bytes: &name, hash: seed.hash_key(&name) };
            news.table.as_mut().expect("made above").remember(&key, ClientId(1));
        }
        news.flush();
        assert!(news.table.is_none() && news.is_any());
        let mut n_slices = 1;
        while news.free_slice(100) {
            n_slices += 1;
        }
        assert!(n_slices > 50, "{n_slices}");
    }
}
