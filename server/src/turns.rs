//! How long turns take, in thread CPU and wall time: a debug setting (`turn-trace yes`), read by DEBUG TURNS.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::server::Server;
use crate::shard::ShardId;

/// One bucket per microsecond; longer turns go to the last.
const BUCKETS: usize = 50_000;

/// Turn times of one worker.
#[derive(Default)]
pub struct TurnTimes {
    cpu: Vec<u32>,
    wall: Vec<u32>,
    n: u64,
    max_cpu_us: u64,
    max_wall_us: u64,
}

impl TurnTimes {
    fn note(&mut self, cpu_us: u64, wall_us: u64) {
        if self.cpu.is_empty() {
            self.cpu = vec![0; BUCKETS];
            self.wall = vec![0; BUCKETS];
        }
        self.cpu[(cpu_us as usize).min(BUCKETS - 1)] += 1;
        self.wall[(wall_us as usize).min(BUCKETS - 1)] += 1;
        self.n += 1;
        self.max_cpu_us = self.max_cpu_us.max(cpu_us);
        self.max_wall_us = self.max_wall_us.max(wall_us);
    }

    /// One line: count, then p50, p99, p99.99 and maximum of CPU and of wall time in microseconds.
    pub fn report(&self) -> String {
        let at = |histogram: &[u32], share: f64| -> usize {
            let mut left = (self.n as f64 * share).ceil() as u64;
            for (us, count) in histogram.iter().enumerate() {
                if u64::from(*count) >= left {
                    return us;
                }
                left -= u64::from(*count);
            }
            histogram.len().saturating_sub(1)
        };
        format!(
            "turns={} cpu_us: p50={} p99={} p99.99={} max={} wall_us: p50={} p99={} p99.99={} max={}",
            self.n,
            at(&self.cpu, 0.5),
            at(&self.cpu, 0.99),
            at(&self.cpu, 0.9999),
            self.max_cpu_us,
            at(&self.wall, 0.5),
            at(&self.wall, 0.99),
            at(&self.wall, 0.9999),
            self.max_wall_us
        )
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Measures the turns of one worker.
#[derive(Default)]
pub struct TurnTrace {
    started: Option<(Instant, u64)>,
}

impl TurnTrace {
    pub fn begin(&mut self, is_on: bool) {
        self.started = is_on.then(|| (Instant::now(), thread_cpu_ns()));
    }

    pub fn end(&mut self, is_on: bool, server: &Server, worker: ShardId) {
        if let Some((wall, cpu)) = self.started.take().filter(|_| is_on) {
            let cpu_us = (thread_cpu_ns() - cpu) / 1000;
            let wall_us = wall.elapsed().as_micros() as u64;
            let times: &Mutex<TurnTimes> = &server.turns[usize::from(worker.0)];
            times.lock().unwrap_or_else(PoisonError::into_inner).note(cpu_us, wall_us);
        }
    }
}

/// CPU time of this thread.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "the thread CPU clock exists on Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
