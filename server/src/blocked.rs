//! Who is blocked on which key of a shard: one line per key, first come first served.
//!
//! ```text
//!   (db, key) ──► Line { queue: arrival ─► waiter, ... }        ready: keys that changed since their line was last walked
//! ```
//!
//! A part of the shard, so that it travels with a shard that is lent as a whole, and a change made elsewhere is noted all the same.
//! `note` is called by every write while anybody waits; the dispatcher walks the lines of ready keys when the command, transaction or
//! lend that changed them has ended, in the order in which they became ready (Redis's handleClientsBlockedOnKeys).
//!
//! Invariants: a client waits once, on any number of keys; its place in all its lines is its arrival, and it keeps it until it is
//! removed; a line without waiters does not exist. Knows no request, reply, deadline or hold.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::{HashMap, HashSet, HashTable};

use crate::client::ClientId;
use crate::keyspace::Key;
use crate::shard::DbIndex;

/// What a waiter waits for: a key that holds a value of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    List,
    SortedSet,
    Stream,
    /// A stream, or that the key is gone or holds something else: its waiter is told that its group is no more (XREADGROUP).
    StreamOrLoss,
}

impl Awaited {
    const ALL: [Self; 4] = [Self::List, Self::SortedSet, Self::Stream, Self::StreamOrLoss];

    /// As messages carry it.
    pub fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Self {
        Self::ALL[usize::from(code)]
    }
}

/// A place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub client: ClientId,
    pub awaited: Awaited,
    pub arrival: Arrival,
}

/// The order in which waiters came to this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Arrival(u64);

impl Arrival {
    pub const FIRST: Self = Self(0);

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A key of one of the databases, with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub db: DbIndex,
    pub name: Box<[u8]>,
    pub hash: u64,
}

impl Place {
    pub fn key(&self) -> Key<'_> {
        Key { bytes: &self.name, hash: self.hash }
    }
}

struct Line {
    place: Place,
    queue: BTreeMap<Arrival, (ClientId, Awaited)>,
    /// In `ready`.
    is_ready: bool,
    /// This waiter is about to be served and the line stands until it has been.
    engaged: Option<ClientId>,
    /// Where the next walk begins.
    from: Arrival,
}

/// All lines of a shard.
#[derive(Default)]
pub struct Blocked {
    lines: HashTable<Line>,
    places: HashMap<ClientId, (Arrival, Vec<Place>)>,
    /// Clients for whom lines stand.
    engaged: HashSet<ClientId>,
    ready: VecDeque<Place>,
    next: Arrival,
    n_on_loss: usize,
}

impl Blocked {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether lines wait to be walked.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lines, and those with a waiter that is told of the loss of its key.
    pub fn n_keys(&self) -> (usize, usize) {
        if self.n_on_loss == 0 {
            return (self.lines.len(), 0);
        }
        let on_loss = |line: &&Line| line.queue.values().any(|(_, it)| *it == Awaited::StreamOrLoss);
        (self.lines.len(), self.lines.iter().filter(on_loss).count())
    }

    /// Whether anybody waits who is told of the loss of a key.
    pub fn is_loss_awaited(&self) -> bool {
        self.n_on_loss > 0
    }

    /// Clients that wait here.
    pub fn n_waiters(&self) -> usize {
        self.places.len()
    }

    /// Puts a client at the end of the lines of `keys` (each counts once).
    pub fn add<'k>(
        &mut self,
        client: ClientId,
        db: DbIndex,
        awaited: Awaited,
        keys: impl Iterator<Item = Key<'k>>,
    ) {
        debug_assert!(!self.places.contains_key(&client), "a client waits once");
        let arrival = self.next;
        self.next = arrival.next();
        let mut places: Vec<Place> = Vec::new();
        for key in keys {
            if places.iter().any(|place| *place.name == *key.bytes) {
                continue;
            }
            let place = Place { db, name: key.bytes.into(), hash: key.hash };
            match self.lines.find_mut(place.hash, |line| line.place == place) {
                Some(line) => {
                    line.queue.insert(arrival, (client, awaited));
                }
                None => {
                    let queue = BTreeMap::from([(arrival, (client, awaited))]);
                    let from = Arrival::FIRST;
                    let line = Line { place: place.clone(), queue, is_ready: false, engaged: None, from };
                    self.lines.insert_unique(place.hash, line, |line| line.place.hash);
                }
            }
            places.push(place);
        }
        self.n_on_loss += usize::from(awaited == Awaited::StreamOrLoss);
        self.places.insert(client, (arrival, places));
    }

    /// Takes a client out of all its lines; whether it was there. A line that stood for it goes on.
    pub fn remove(&mut self, client: ClientId) -> bool {
        let Some((arrival, places)) = self.places.remove(&client) else { return false };
        self.engaged.remove(&client);
        for (nth, place) in places.iter().enumerate() {
            let is_line = |line: &Line| line.place == *place;
            let Ok(mut line) = self.lines.find_entry(place.hash, is_line) else { continue };
            let gone = line.get_mut().queue.remove(&arrival);
            if nth == 0 && gone.is_some_and(|(_, awaited)| awaited == Awaited::StreamOrLoss) {
                self.n_on_loss -= 1;
            }
            if line.get().queue.is_empty() {
                line.remove();
            } else {
                disengage(line.get_mut(), client, &mut self.ready);
            }
        }
        true
    }

    /// The waiter was tried and goes on waiting: what stood for it goes on behind it.
    pub fn pass(&mut self, client: ClientId) {
        let Some((_, places)) = self.places.get(&client) else { return };
        self.engaged.remove(&client);
        for place in places {
            if let Some(line) = self.lines.find_mut(place.hash, |line| line.place == *place) {
                disengage(line, client, &mut self.ready);
            }
        }
    }

    /// `key` may hold what somebody waits for.
    pub fn note(&mut self, db: DbIndex, key: &Key<'_>) {
        let is_line = |line: &Line| line.place.db == db && *line.place.name == *key.bytes;
        if let Some(line) = self.lines.find_mut(key.hash, is_line) {
            line.from = Arrival::FIRST;
            mark_ready(line, &mut self.ready);
        }
    }

    /// Every key of `db` may (SWAPDB, FLUSHDB).
    pub fn note_database(&mut self, db: DbIndex) {
        // In the order of arrival: a table's own order would depend on its seed.
        let mut lines: Vec<&mut Line> = self.lines.iter_mut().filter(|line| line.place.db == db).collect();
        lines.sort_unstable_by_key(|line| line.queue.keys().next().copied());
        for line in lines {
            line.from = Arrival::FIRST;
            mark_ready(line, &mut self.ready);
        }
    }

    /// The next line to walk, unless it stands; from where on.
    pub fn next_ready(&mut self) -> Option<(Place, Arrival)> {
        while let Some(place) = self.ready.pop_front() {
            let Some(line) = self.lines.find_mut(place.hash, |line| line.place == place) else { continue };
            line.is_ready = false;
            if line.engaged.is_none() {
                return Some((place, line.from));
            }
        }
        None
    }

    /// The first waiter in a line from `from` on.
    pub fn next_waiter(&self, place: &Place, from: Arrival) -> Option<Waiter> {
        let line = self.lines.find(place.hash, |line| line.place == *place)?;
        let (arrival, (client, awaited)) = line.queue.range(from..).next()?;
        Some(Waiter { client: *client, awaited: *awaited, arrival: *arrival })
    }

    /// The line stands until `waiter` is removed or passed.
    pub fn engage(&mut self, place: &Place, waiter: &Waiter) {
        if let Some(line) = self.lines.find_mut(place.hash, |line| line.place == *place) {
            line.engaged = Some(waiter.client);
            line.from = waiter.arrival.next();
            self.engaged.insert(waiter.client);
        }
    }

    /// Whether a line stands for this client.
    pub fn is_engaged(&self, client: ClientId) -> bool {
        self.engaged.contains(&client)
    }

    /// What a client waits for here: the keys, and what they are to hold.
    pub fn awaited_by(&self, client: ClientId) -> Option<(Awaited, &[Place])> {
        let (arrival, places) = self.places.get(&client)?;
        let first = places.first()?;
        let line = self.lines.find(first.hash, |line| line.place == *first)?;
        Some((line.queue.get(arrival)?.1, places))
    }
}

fn mark_ready(line: &mut Line, ready: &mut VecDeque<Place>) {
    if !std::mem::replace(&mut line.is_ready, true) {
        ready.push_back(line.place.clone());
    }
}

fn disengage(line: &mut Line, client: ClientId, ready: &mut VecDeque<Place>) {
    if line.engaged == Some(client) {
        line.engaged = None;
        mark_ready(line, ready);
    }
}

/// Decides who ends a wait: the owner of its keys that serves it, or its own worker (timeout, UNBLOCK, the end of the connection).
/// One for each blocked request that waits at another worker.
#[derive(Debug, Default)]
pub struct Claim(AtomicU8);

const WAITING: u8 = 0;
/// The owner runs the command again; it may yet give the claim back.
const TAKEN: u8 = 1;
const SERVED: u8 = 2;
const ENDED: u8 = 3;

/// What became of an attempt to end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfWait {
    Ended,
    /// The owner is trying to serve it just now.
    Undecided,
    /// It is over already: it was served, and its reply is on its way, or somebody else has ended it.
    Over,
}

impl Claim {
    /// The owner is about to serve it; false if it has ended.
    pub fn take(&self) -> bool {
        self.0.compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// There was nothing for it; false if it has ended meanwhile.
    pub fn give_back(&self) -> bool {
        self.0.compare_exchange(TAKEN, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It was served.
    pub fn serve(&self) {
        let _ = self.0.compare_exchange(TAKEN, SERVED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Its worker ends the wait if nobody serves it.
    pub fn end(&self) -> EndOfWait {
        match self.0.compare_exchange(WAITING, ENDED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => EndOfWait::Ended,
            Err(TAKEN) => EndOfWait::Undecided,
            Err(_) => EndOfWait::Over,
        }
    }

    /// The connection is gone: whatever the owner is at, it does not give the claim back.
    pub fn abandon(&self) {
        self.0.store(ENDED, Ordering::Release);
    }

    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire) == ENDED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DbIndex = DbIndex(0);

    fn key(bytes: &[u8]) -> Key<'_> {
        Key { bytes, hash: u64::from(bytes[0]) }
    }

    fn walk(blocked: &mut Blocked) -> Vec<ClientId> {
        let mut seen = Vec::new();
        while let Some((place, mut from)) = blocked.next_ready() {
            while let Some(waiter) = blocked.next_waiter(&place, from) {
                from = waiter.arrival.next();
                seen.push(waiter.client);
            }
        }
        seen
    }

    #[test]
    fn lines_are_walked_in_the_order_of_readiness_and_arrival() {
        let mut blocked = Blocked::default();
        let (a, b, c) = (ClientId(1), ClientId(2), ClientId(3));
        blocked.add(a, DB, Awaited::List, [key(b"x"), key(b"y"), key(b"x")].into_iter());
        blocked.add(b, DB, Awaited::List, [key(b"x")].into_iter());
        blocked.add(c, DB, Awaited::StreamOrLoss, [key(b"y")].into_iter());
        assert_eq!(blocked.n_keys(), (2, 1));
        blocked.note(DbIndex(1), &key(b"x"));
        assert!(!blocked.has_ready());
        blocked.note(DB, &key(b"y"));
        blocked.note(DB, &key(b"x"));
        blocked.note(DB, &key(b"y"));
        assert_eq!(walk(&mut blocked), [a, c, a, b]);
        assert!(blocked.remove(a) && !blocked.remove(a));
        blocked.note_database(DB);
        assert_eq!(walk(&mut blocked), [b, c]);
        assert!(blocked.remove(b) && blocked.remove(c));
        assert!(blocked.is_empty() && blocked.n_keys() == (0, 0) && blocked.n_on_loss == 0);
    }

    /// A line goes on behind the one for whom it stood, or from its start if the key has changed meanwhile.
    #[test]
    fn a_line_stands_while_its_first_is_served() {
        let mut blocked = Blocked::default();
        let (a, b) = (ClientId(1), ClientId(2));
        blocked.add(a, DB, Awaited::List, [key(b"x")].into_iter());
        blocked.add(b, DB, Awaited::List, [key(b"x")].into_iter());
        blocked.note(DB, &key(b"x"));
        let (place, from) = blocked.next_ready().expect("noted");
        let first = blocked.next_waiter(&place, from).expect("two wait");
        blocked.engage(&place, &first);
        assert!(blocked.next_ready().is_none());
        blocked.pass(a);
        assert_eq!(walk(&mut blocked), [b]);
        blocked.note(DB, &key(b"x"));
        let (place, _) = blocked.next_ready().expect("noted");
        blocked.engage(&place, &first);
        blocked.note(DB, &key(b"x"));
        assert!(blocked.next_ready().is_none());
        blocked.pass(a);
        assert_eq!(walk(&mut blocked), [a, b]);
    }

    #[test]
    fn a_claim_is_decided_once() {
        let claim = Claim::default();
        assert!(claim.take() && !claim.take());
        assert_eq!(claim.end(), EndOfWait::Undecided);
        assert!(claim.give_back() && claim.take());
        claim.serve();
        assert_eq!(claim.end(), EndOfWait::Over);
        let claim = Claim::default();
        assert!(claim.take());
        claim.abandon();
        assert!(!claim.give_back() && claim.has_ended());
        assert_eq!(claim.end(), EndOfWait::Over);
        let claim = Claim::default();
        assert_eq!((claim.end(), claim.end()), (EndOfWait::Ended, EndOfWait::Over));
        assert!(!claim.take());
    }
}
