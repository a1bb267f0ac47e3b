//! Counters per command and per error, for INFO's Commandstats and Errorstats.
//!
//! One block for each worker, written by that worker alone (plain load and store), read by INFO.
//! Cost: a call is one load and one store in the row's own cache line. Its time is taken for the first calls
//! of a command, for one in `TIMED_EVERY` later and for each that may take long (`Row::timed_from`), so the
//! clock costs below a nanosecond a call; INFO scales the sample up. The time is that of the worker that runs the
//! request: the way to another shard is not in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::command::CommandId;
use crate::histogram::{Distribution, Histogram};

/// Calls of a command that are all timed, so that rare commands have an exact time.
const TIMED_FIRST: u64 = 16;
const TIMED_EVERY: u64 = 64;
/// When there are more error codes, none is told apart any more, as in Redis.
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
    /// Turns of requests of other workers' clients, for the sample.
    peer_calls: AtomicU64,
}

/// The counters of one worker.
pub struct CommandStats {
    rows: Box<[Counters]>,
    latencies: Box<[Histogram]>,
    /// By code word. Errors are off the fast path; the lock is the worker's own but for INFO.
    errors: Mutex<ErrorCounts>,
}

/// Error replies by their first word, or that there were too many to tell apart.
#[derive(Default)]
pub struct ErrorCounts {
    by_code: BTreeMap<Box<[u8]>, u64>,
    is_full: bool,
}

impl ErrorCounts {
    fn add(&mut self, code: &[u8], n: u64) {
        if self.is_full {
            return;
        }
        if let Some(count) = self.by_code.get_mut(code) {
            *count += n;
        } else if self.by_code.len() < MAX_ERROR_CODES {
            self.by_code.insert(code.into(), n);
        } else {
            // As in Redis: codes that clients make up show nothing, and a server that counts them all pays for it.
            self.by_code.clear();
            self.is_full = true;
        }
    }

    /// What INFO shows.
    pub fn lines(&self) -> Vec<(String, u64)> {
        if self.is_full {
            return vec![("ERRORSTATS_DISABLED".to_owned(), 1)];
        }
        self.by_code.iter().map(|(code, n)| (String::from_utf8_lossy(code).into_owned(), *n)).collect()
    }

    fn merge(&mut self, other: &Self) {
        if other.is_full {
            self.by_code.clear();
            self.is_full = true;
        }
        other.by_code.iter().for_each(|(code, n)| self.add(code, *n));
    }
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
        Self {
            rows: (0..n_commands).map(|_| Counters::default()).collect(),
            latencies: (0..n_commands).map(|_| Histogram::default()).collect(),
            errors: Mutex::default(),
        }
    }

    /// Whether the next call belongs to the sample of those that are timed.
    #[inline]
    pub fn is_sampled(&self, command: CommandId) -> bool {
        let calls = self.rows[command.0 as usize].calls.load(Relaxed);
        calls < TIMED_FIRST || calls.is_multiple_of(TIMED_EVERY)
    }

    /// The same for a request of another worker's client, which counts there.
    #[inline]
    pub fn is_sampled_for_peer(&self, command: CommandId) -> bool {
        let row = &self.rows[command.0 as usize];
        let calls = row.peer_calls.load(Relaxed);
        row.peer_calls.store(calls.wrapping_add(1), Relaxed);
        calls < TIMED_FIRST || calls.is_multiple_of(TIMED_EVERY)
    }

    /// A call has run, or is on its way to another worker.
    #[inline]
    pub fn count(&self, command: CommandId) {
        add(&self.rows[command.0 as usize].calls, 1);
    }

    /// A call has run here and taken so long.
    pub fn time(&self, command: CommandId, ns: u64, has_histogram: bool) {
        let row = &self.rows[command.0 as usize];
        add(&row.timed_calls, 1);
        add(&row.timed_ns, ns);
        if has_histogram {
            self.latencies[command.0 as usize].record(ns);
        }
    }

    /// Adds this worker's calls of a command to `sum`.
    pub fn add_latencies(&self, command: CommandId, sum: &mut Distribution) {
        sum.add(&self.latencies[command.0 as usize]);
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
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).add(code, 1);
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
    pub fn add_errors(&self, sums: &mut ErrorCounts) {
        sums.merge(&self.errors.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for row in &self.rows {
            let own =
                [&row.calls, &row.rejected, &row.failed, &row.timed_calls, &row.timed_ns, &row.peer_calls];
            own.iter().for_each(|counter| counter.store(0, Relaxed));
        }
        self.latencies.iter().for_each(Histogram::reset);
        *self.errors.lock().unwrap_or_else(PoisonError::into_inner) = ErrorCounts::default();
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
            if stats.is_sampled(CommandId(1)) {
                n_timed += 1;
                stats.time(CommandId(1), 2000, true);
            }
            stats.count(CommandId(1));
        }
        assert_eq!(n_timed, TIMED_FIRST + 4);
        let counts = stats.counts(CommandId(1));
        assert_eq!((counts.calls, counts.us_per_call()), (TIMED_FIRST + 4 * TIMED_EVERY, 2.0));
        assert_eq!(stats.counts(CommandId(0)), CommandCounts::default());
        assert_eq!(stats.total_calls(), TIMED_FIRST + 4 * TIMED_EVERY);
        let mut sum = Distribution::default();
        stats.add_latencies(CommandId(1), &mut sum);
        assert_eq!(sum.n(), n_timed);
    }

    #[test]
    fn errors_are_counted_by_code_word() {
        let stats = CommandStats::new(1);
        for error in [&b"ERR syntax error"[..], b"WRONGTYPE Operation", b"ERR x", b"nocode", &[b'x'; 100]] {
            stats.fail(CommandId(0), error);
        }
        stats.reject(None, b"NOAUTH Authentication required.");
        let lines = |stats: &CommandStats| {
            let mut sums = ErrorCounts::default();
            stats.add_errors(&mut sums);
            sums.lines().into_iter().map(|(code, n)| format!("{code}={n}")).collect::<Vec<_>>()
        };
        assert_eq!(lines(&stats), ["ERR=4", "NOAUTH=1", "WRONGTYPE=1"]);
        assert_eq!(stats.counts(CommandId(0)).failed, 5);
        for n in 0..MAX_ERROR_CODES - 3 {
            stats.reject(None, format!("CODE{n} text").as_bytes());
        }
        assert_eq!(lines(&stats).len(), MAX_ERROR_CODES);
        stats.reject(None, b"ONE more");
        assert_eq!(lines(&stats), ["ERRORSTATS_DISABLED=1"]);
        stats.reset();
        assert_eq!(stats.counts(CommandId(0)), CommandCounts::default());
        assert!(lines(&stats).is_empty());
    }
}
