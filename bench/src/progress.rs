//! How far a long piece of work has come, on standard error, at most once a second.
//!
//! Whoever finishes a part counts it and, if a second has passed, writes the line: no thread of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Milliseconds between lines.
const INTERVAL_MS: u64 = 1000;

#[derive(Debug)]
pub struct Progress {
    what: String,
    n_total: u64,
    start: Instant,
    n_done: AtomicU64,
    next_line_ms: AtomicU64,
}

impl Progress {
    /// `what` is told in each line; of `n_total` parts none is done.
    pub fn new(what: impl Into<String>, n_total: u64) -> Self {
        Self {
            what: what.into(),
            n_total,
            start: Instant::now(),
            n_done: AtomicU64::new(0),
            next_line_ms: AtomicU64::new(INTERVAL_MS),
        }
    }

    /// Counts `n` more parts as done.
    pub fn add(&self, n: u64) {
        let n_done = self.n_done.fetch_add(n, Ordering::Relaxed) + n;
        let now_ms = self.start.elapsed().as_millis() as u64;
        let due_ms = self.next_line_ms.load(Ordering::Relaxed);
        let is_mine = now_ms >= due_ms
            && self
                .next_line_ms
                .compare_exchange(due_ms, now_ms + INTERVAL_MS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            let share = n_done as f64 / self.n_total.max(1) as f64;
            eprint!(
                "\r{}: {n_done} of {} ({:.0} %), {} s ",
                self.what,
                self.n_total,
                share * 100.0,
                now_ms / 1000
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if *self.next_line_ms.get_mut() > INTERVAL_MS {
            eprintln!();
        }
    }
}
