//! Counters per command and per error, for INFO's Commandstats and Errorstats.
//!
//! One block for each worker, written by that worker alone (plain load and store), read by INFO.
//! Cost: a call is one load and one store in the row's own cache line. Its time is taken for the first calls
//! of a command and for one in `TIMED_EVERY` later, so the clock costs below a nanosecond a call; INFO scales
//! the sample up. The time is that on the worker that received the request: what another shard does for it is
//! not in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::command::CommandId;

/// Calls of a command that are all timed, so that rare commands have an exact time.
const TIMED_FIRST: u64 = 16;
const TIMED_EVERY: u64 = 64;
/// Error codes beyond so many are not told apart, as in Redis: the table must not grow with what clients make
/// up.
const MAX_ERROR_CODES: usize = 128;
/// A code word is no longer than this.
const MAX_CODE_LEN: usize = 32;

/// One command's counters, alone on their cache line.
#[derive(Default)]
#[repr(align(64))]
struct Counters {
    calls: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    timed_calls: AtomicU64,
    timed_ns: AtomicU64,
}

/// The counters of one worker.
pub struct CommandStats {
    rows: Box<[Counters]>,
    /// By code word. Errors are off the fast path; the lock is the worker's own but for INFO.
    errors: Mutex<BTreeMap<Box<[u8]>, u64>>,
}

/// One command's numbers, of one worker or summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommandCounts {
    pub calls: u64,
    pub rejected: u64,
    pub failed: u64,
    timed_calls: u64,
    timed_ns: u64,
}

impl CommandCounts {
    pub fn add(&mut self, other: CommandCounts) {
        self.calls += other.calls;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.timed_calls += other.timed_calls;
        self.timed_ns += other.timed_ns;
    }

    /// The time of one call in microseconds, from the sample.
    pub fn us_per_call(&self) -> f64 {
        if self.timed_calls == 0 { 0.0 } else { self.timed_ns as f64 / 1000.0 / self.timed_calls as f64 }
    }
}

impl CommandStats {
    pub fn new(n_commands: usize) -> Self {
        Self { rows: (0..n_commands).map(|_| Counters::default()).collect(), errors: Mutex::default() }
    }

    /// Before a call: the clock if this one is to be timed.
    #[inline]
    pub fn begin(&self, command: CommandId) -> Option<Instant> {
        let calls = self.rows[command.0 as usize].calls.load(Relaxed);
        (calls < TIMED_FIRST || calls.is_multiple_of(TIMED_EVERY)).then(Instant::now)
    }

    /// After a call.
    #[inline]
    pub fn end(&self, command: CommandId, started: Option<Instant>) {
        let row = &self.rows[command.0 as usize];
        add(&row.calls, 1);
        if let Some(started) = started {
            add(&row.timed_calls, 1);
            add(&row.timed_ns, started.elapsed().as_nanos() as u64);
        }
    }

    /// A request that was refused before it ran; without a row if the command is unknown.
    pub fn reject(&self, command: Option<CommandId>, error: &[u8]) {
        if let Some(command) = command {
            add(&self.rows[command.0 as usize].rejected, 1);
        }
        self.count_error(error);
    }

    /// A call that answered an error.
    pub fn fail(&self, command: CommandId, error: &[u8]) {
        add(&self.rows[command.0 as usize].failed, 1);
        self.count_error(error);
    }

    fn count_error(&self, error: &[u8]) {
        let code = match memchr::memchr(b' ', &error[..error.len().min(MAX_CODE_LEN)]) {
            Some(end) if end > 0 => &error[..end],
            _ => b"ERR",
        };
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < MAX_ERROR_CODES {
            errors.insert(code.into(), 1);
        }
    }

    pub fn counts(&self, command: CommandId) -> CommandCounts {
        let row = &self.rows[command.0 as usize];
        CommandCounts {
            calls: row.calls.load(Relaxed),
            rejected: row.rejected.load(Relaxed),
            failed: row.failed.load(Relaxed),
            timed_calls: row.timed_calls.load(Relaxed),
            timed_ns: row.timed_ns.load(Relaxed),
        }
    }

    /// All calls of all commands.
    pub fn total_calls(&self) -> u64 {
        self.rows.iter().map(|row| row.calls.load(Relaxed)).sum()
    }

    /// Adds this worker's error counts to `sums`.
    pub fn add_errors(&self, sums: &mut BTreeMap<Box<[u8]>, u64>) {
        for (code, count) in &*self.errors.lock().unwrap_or_else(PoisonError::into_inner) {
            *sums.entry(code.clone()).or_default() += count;
        }
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for row in &self.rows {
            for counter in [&row.calls, &row.rejected, &row.failed, &row.timed_calls, &row.timed_ns] {
                counter.store(0, Relaxed);
            }
        }
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Adds to a counter of which the caller is the only writer.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_calls_are_timed_and_later_ones_sampled() {
        let stats = CommandStats::new(2);
        let mut n_timed = 0;
        for _ in 0..TIMED_FIRST + 4 * TIMED_EVERY {
            let started = stats.begin(CommandId(1));
            n_timed += u64::from(started.is_some());
            stats.end(CommandId(1), started);
        }
        assert_eq!(n_timed, TIMED_FIRST + 4);
        assert_eq!(stats.counts(CommandId(1)).calls, TIMED_FIRST + 4 * TIMED_EVERY);
        assert_eq!(stats.counts(CommandId(0)), CommandCounts::default());
        assert_eq!(stats.total_calls(), TIMED_FIRST + 4 * TIMED_EVERY);
    }

    #[test]
    fn errors_are_counted_by_code_word() {
        let stats = CommandStats::new(1);
        for error in [&b"ERR syntax error"[..], b"WRONGTYPE Operation", b"ERR x", b"nocode", &[b'x'; 100]] {
            stats.fail(CommandId(0), error);
        }
        stats.reject(None, b"NOAUTH Authentication required.");
        let mut sums = BTreeMap::new();
        stats.add_errors(&mut sums);
        let sums: Vec<(&[u8], u64)> = sums.iter().map(|(code, n)| (&**code, *n)).collect();
        assert_eq!(sums, [(&b"ERR"[..], 4), (b"NOAUTH", 1), (b"WRONGTYPE", 1)]);
        assert_eq!(stats.counts(CommandId(0)).failed, 5);
        for n in 0..1000 {
            stats.reject(None, format!("CODE{n} text").as_bytes());
        }
        let mut sums = BTreeMap::new();
        stats.add_errors(&mut sums);
        assert_eq!(sums.len(), MAX_ERROR_CODES);
        stats.reset();
        assert_eq!(stats.counts(CommandId(0)), CommandCounts::default());
    }
}
