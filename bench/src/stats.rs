//! What a run measured: per command counts and latencies, summed over clients and threads.
//!
//! Latencies are kept in microseconds with three significant digits up to a minute, as memtier keeps them.

use hdrhistogram::Histogram;
use std::time::Duration;

const MAX_LATENCY_US: u64 = 60_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Counts of one command.
#[derive(Clone, Debug)]
pub struct CommandStats {
    pub n_ops: u64,
    pub n_misses: u64,
    pub n_errors: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub latency_us: Histogram<u64>,
}

impl Default for CommandStats {
    fn default() -> Self {
        let latency_us = Histogram::new_with_bounds(1, MAX_LATENCY_US, SIGNIFICANT_DIGITS)
            .expect("bounds and digits are within what the histogram takes");
        Self { n_ops: 0, n_misses: 0, n_errors: 0, rx_bytes: 0, tx_bytes: 0, latency_us }
    }
}

impl CommandStats {
    /// Records `n` replies that all took `latency`.
    #[inline]
    pub fn record_latency(&mut self, latency_ns: u64, n: u64) {
        self.latency_us.saturating_record_n(latency_ns / 1000, n);
    }

    pub fn add(&mut self, other: &Self) {
        self.n_ops += other.n_ops;
        self.n_misses += other.n_misses;
        self.n_errors += other.n_errors;
        self.rx_bytes += other.rx_bytes;
        self.tx_bytes += other.tx_bytes;
        self.latency_us.add(&other.latency_us).expect("all histograms have the same bounds");
    }

    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        self.latency_us.value_at_percentile(percentile) as f64 / 1000.0
    }

    pub fn mean_ms(&self) -> f64 {
        if self.latency_us.is_empty() { 0.0 } else { self.latency_us.mean() / 1000.0 }
    }
}

/// What one thread, or all threads of a run, measured.
#[derive(Clone, Debug, Default)]
pub struct RunStats {
    pub commands: Vec<CommandStats>,
    pub n_connection_errors: u64,
    /// The first error reply or connection error seen, for the person who must act on it.
    pub first_error: Option<String>,
    /// Replies in each second of the run.
    pub ops_per_second: Vec<u64>,
    pub duration: Duration,
}

impl RunStats {
    pub fn new(n_commands: usize) -> Self {
        Self { commands: vec![CommandStats::default(); n_commands], ..Self::default() }
    }

    pub fn add(&mut self, other: Self) {
        assert_eq!(self.commands.len(), other.commands.len(), "stats of one workload");
        for (mine, theirs) in self.commands.iter_mut().zip(&other.commands) {
            mine.add(theirs);
        }
        self.n_connection_errors += other.n_connection_errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.duration = self.duration.max(other.duration);
        if self.ops_per_second.len() < other.ops_per_second.len() {
            self.ops_per_second.resize(other.ops_per_second.len(), 0);
        }
        for (mine, theirs) in self.ops_per_second.iter_mut().zip(&other.ops_per_second) {
            *mine += theirs;
        }
    }

    pub fn note_error(&mut self, text: impl FnOnce() -> String) {
        if self.first_error.is_none() {
            self.first_error = Some(text());
        }
    }

    pub fn totals(&self) -> CommandStats {
        let mut totals = CommandStats::default();
        for command in &self.commands {
            totals.add(command);
        }
        totals
    }

    pub fn ops_per_s(&self) -> f64 {
        let n_ops: u64 = self.commands.iter().map(|c| c.n_ops).sum();
        self.per_second(n_ops as f64)
    }

    pub fn per_second(&self, amount: f64) -> f64 {
        let seconds = self.duration.as_secs_f64();
        if seconds > 0.0 { amount / seconds } else { 0.0 }
    }
}
