//! Which keys cost most while HOTKEYS looks (Redis 8.6): time and bytes of the calls that name them.
//!
//! Each worker counts the calls that it runs in a table of its own; the lock is its own but for HOTKEYS GET. A table that has grown to
//! `MAX_KEYS` loses the keys that are below the median in both: a key that is hot stays. A call of many keys counts for each of them by
//! its share.
//!
//! Departure from Redis: it counts by a probabilistic sketch, this counts exactly as long as no table is full.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use crate::process::{self, Whose};

/// Keys in one worker's table.
const MAX_KEYS: usize = 16 << 10;

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub is_active: bool,
    pub has_cpu: bool,
    pub has_net: bool,
    /// How many keys are shown.
    pub count: usize,
    /// One of so many calls counts for its keys.
    pub sample_ratio: u32,
    pub started_ms: i64,
    pub ends_ms: Option<i64>,
    /// When it was stopped.
    pub stopped_ms: i64,
    user_s: f64,
    system_s: f64,
}

impl Session {
    pub fn new(now_ms: i64) -> Self {
        let cpu = process::cpu_time(Whose::Process);
        Self {
            is_active: true,
            has_cpu: false,
            has_net: false,
            count: 10,
            sample_ratio: 1,
            started_ms: now_ms,
            ends_ms: None,
            stopped_ms: 0,
            user_s: cpu.user_s,
            system_s: cpu.system_s,
        }
    }

    /// Processor time of the process since the start, user and system, in milliseconds.
    pub fn cpu_ms(&self) -> (i64, i64) {
        let cpu = process::cpu_time(Whose::Process);
        let ms = |now: f64, then: f64| ((now - then) * 1000.0) as i64;
        (ms(cpu.user_s, self.user_s), ms(cpu.system_s, self.system_s))
    }

    fn stop(&mut self, now_ms: i64) {
        self.is_active = false;
        self.stopped_ms = now_ms;
    }

    /// Ends it if its time is over.
    pub fn look_at_clock(&mut self, now_ms: i64) {
        if let Some(ends_ms) = self.ends_ms.filter(|ends_ms| self.is_active && now_ms >= *ends_ms) {
            self.stop(ends_ms);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub ns: u64,
    pub bytes: u64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.ns += other.ns;
        self.bytes += other.bytes;
    }
}

/// A key and what it has cost.
pub type KeyCost = (Box<[u8]>, Cost);

/// One worker's counts.
#[derive(Debug, Default)]
pub struct Table {
    keys: HashMap<Box<[u8]>, Cost>,
    /// Of all calls with keys.
    pub all: Cost,
    /// Of those that belong to the sample.
    pub sampled: Cost,
}

impl Table {
    pub fn count<'k>(&mut self, keys: impl ExactSizeIterator<Item = &'k [u8]>, cost: Cost) {
        let n = keys.len().max(1) as u64;
        self.sampled.add(cost);
        let share = Cost { ns: cost.ns / n, bytes: cost.bytes / n };
        for key in keys {
            match self.keys.get_mut(key) {
                Some(sum) => sum.add(share),
                None => {
                    if self.keys.len() >= MAX_KEYS {
                        self.prune();
                    }
                    self.keys.insert(key.into(), share);
                }
            }
        }
    }

    fn prune(&mut self) {
        let median = |of: fn(&Cost) -> u64| {
            let mut values: Vec<u64> = self.keys.values().map(of).collect();
            let middle = values.len() / 2;
            *values.select_nth_unstable(middle).1
        };
        let (ns, bytes) = (median(|cost| cost.ns), median(|cost| cost.bytes));
        self.keys.retain(|_, cost| cost.ns > ns || cost.bytes > bytes);
    }
}

/// The session, and its counts.
pub struct Hotkeys {
    session: Mutex<Option<Session>>,
    tables: Vec<Mutex<Table>>,
}

impl Hotkeys {
    pub fn new(n_workers: usize) -> Self {
        Self { session: Mutex::default(), tables: (0..n_workers).map(|_| Mutex::default()).collect() }
    }

    /// The session now or last; its time may just have ended.
    pub fn session(&self, now_ms: i64) -> Option<Session> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &mut *session {
            session.look_at_clock(now_ms);
        }
        *session
    }

    pub fn start(&self, session: Session) {
        self.clear();
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// Whether there was one to stop.
    pub fn stop(&self, now_ms: i64) -> bool {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *session {
            Some(session) if session.is_active => {
                session.stop(now_ms);
                true
            }
            Some(_) | None => false,
        }
    }

    pub fn clear(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
        (0..self.tables.len()).for_each(|worker| *self.table(worker) = Table::default());
    }

    pub fn table(&self, worker: usize) -> MutexGuard<'_, Table> {
        self.tables[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sums of all workers: of all calls, of the sample, and by key.
    pub fn sums(&self) -> (Cost, Cost, Vec<KeyCost>) {
        let (mut all, mut sampled, mut keys) = (Cost::default(), Cost::default(), HashMap::new());
        for worker in 0..self.tables.len() {
            let table = self.table(worker);
            all.add(table.all);
            sampled.add(table.sampled);
            table.keys.iter().for_each(|(key, cost)| {
                keys.entry(key.clone()).or_insert_with(Cost::default).add(*cost);
            });
        }
        (all, sampled, keys.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_outlives_many_cold_ones() {
        let hotkeys = Hotkeys::new(2);
        for n in 0..MAX_KEYS * 4 {
            let name = n.to_string();
            let mut table = hotkeys.table(n % 2);
            table.count([b"hot".as_slice()].into_iter(), Cost { ns: 10, bytes: 5 });
            table.count([name.as_bytes(), name.as_bytes()].into_iter(), Cost { ns: 2, bytes: 2 });
            assert!(table.keys.len() <= MAX_KEYS);
        }
        let (_, sampled, keys) = hotkeys.sums();
        let hot = keys.iter().find(|(key, _)| **key == *b"hot").map(|(_, cost)| *cost);
        let n = MAX_KEYS as u64 * 4;
        assert_eq!(hot, Some(Cost { ns: n * 10, bytes: n * 5 }));
        assert_eq!(sampled, Cost { ns: n * 12, bytes: n * 7 });
    }
}
