//! One run: starts the load threads together, samples the server's CPU around them, shows progress.
//!
//! The measured window opens when every connection is open and closes when the last reply is in, so the CPU
//! time per operation is over all operations and nothing else.

use crate::clustered::ClusteredVectors;
use crate::cpu::{self, CpuTimes, ThreadCpu};
use crate::flags::{Length, Workload};
use crate::load::LoadThread;
use crate::stats::RunStats;
use crate::template::Template;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// CPU time over a run's window.
#[derive(Clone, Debug, Default)]
pub struct RunCpu {
    /// The server's processes together; `None` without `--server-pid`.
    pub server: Option<CpuTimes>,
    pub server_threads: Vec<ThreadCpu>,
    pub generator: CpuTimes,
}

/// A finished run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub stats: RunStats,
    pub cpu: RunCpu,
}

/// Runs `workload` once. `run_number` counts from 1 and is only shown.
pub fn run_once(workload: &Workload, run_number: u32) -> io::Result<RunResult> {
    let takes_vectors = workload.commands.iter().any(Template::takes_vector);
    let vectors = takes_vectors.then(|| Arc::new(ClusteredVectors::new(workload.vectors)));
    let n_ops_seen: Vec<AtomicU64> = (0..workload.n_threads).map(|_| AtomicU64::new(0)).collect();
    let connected = Barrier::new(workload.n_threads as usize + 1);
    let started = Barrier::new(workload.n_threads as usize + 1);
    let (finished, all_finished) = mpsc::channel();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, n_ops) in n_ops_seen.iter().enumerate() {
            let (connected, started, vectors, finished) =
                (&connected, &started, vectors.as_ref(), finished.clone());
            threads.push(scope.spawn(move || {
                // Pinned first, so that the buffers come from the core's own memory.
                pin(&workload.cpus, index);
                let thread = LoadThread::connect(workload, vectors, index as u32, n_ops);
                connected.wait();
                started.wait();
                let result = thread.and_then(LoadThread::run);
                // The receiver outlives every sender in this scope.
                let _ = finished.send(());
                result
            }));
        }
        drop(finished);
        connected.wait();
        // Kept as a result until the threads are released, or they would wait for ever.
        let before = CpuSample::take(&workload.server_pids);
        started.wait();
        show_progress(workload, run_number, &n_ops_seen, &all_finished);
        let mut stats = RunStats::new(workload.commands.len());
        for thread in threads {
            stats.add(thread.join().expect("a load thread does not panic")?);
        }
        let cpu = CpuSample::take(&workload.server_pids)?.since(&before?);
        Ok(RunResult { stats, cpu })
    })
}

/// Pins the calling thread to its core of `cpus`, if there are any.
pub fn pin(cpus: &[usize], thread_index: usize) {
    if cpus.is_empty() {
        return;
    }
    let id = cpus[thread_index % cpus.len()];
    if !core_affinity::set_for_current(core_affinity::CoreId { id }) {
        eprintln!("warning: cannot pin a thread to core {id}");
    }
}

/// CPU times at one moment, of the server and of this process.
#[derive(Clone, Debug)]
pub struct CpuSample {
    server: Option<CpuTimes>,
    server_threads: Vec<ThreadCpu>,
    generator: CpuTimes,
}

impl CpuSample {
    pub fn take(server_pids: &[u32]) -> io::Result<Self> {
        let mut sample = Self { server: None, server_threads: Vec::new(), generator: cpu::of_self()? };
        for &pid in server_pids {
            let times = cpu::of_process(pid)?;
            sample.server = Some(sample.server.unwrap_or_default().plus(times));
            sample.server_threads.extend(cpu::of_threads(pid)?);
        }
        Ok(sample)
    }

    /// What was used since `before`. A thread that ended within the window is in the process's sum only.
    #[must_use]
    pub fn since(self, before: &Self) -> RunCpu {
        let earlier = |tid| {
            before.server_threads.iter().find(|t| t.tid == tid).map_or_else(CpuTimes::default, |t| t.times)
        };
        RunCpu {
            server: self.server.zip(before.server).map(|(now, then)| now.since(then)),
            server_threads: self
                .server_threads
                .into_iter()
                .map(|t| ThreadCpu { times: t.times.since(earlier(t.tid)), ..t })
                .collect(),
            generator: self.generator.since(before.generator),
        }
    }
}

/// A line to standard error every second, as memtier's, until all threads have finished.
fn show_progress(
    workload: &Workload,
    run_number: u32,
    n_ops_seen: &[AtomicU64],
    all_finished: &mpsc::Receiver<()>,
) {
    let start = Instant::now();
    let mut n_ops_before = 0;
    let mut n_running = workload.n_threads;
    let mut next_line = start + Duration::from_secs(1);
    let mut shown = false;
    while n_running > 0 {
        match all_finished.recv_timeout(next_line.saturating_duration_since(Instant::now())) {
            Ok(()) => n_running -= 1,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                next_line += Duration::from_secs(1);
                let n_ops: u64 = n_ops_seen.iter().map(|n| n.load(Ordering::Relaxed)).sum();
                let elapsed_s = start.elapsed().as_secs_f64();
                eprint!(
                    "[RUN #{run_number} {:.0}%, {:3} secs] {n_running:2} threads {:2} conns: {n_ops:11} ops, \
                     {:7} (avg: {:7.0}) ops/sec\r",
                    percent_done(workload, n_ops, elapsed_s),
                    elapsed_s as u64,
                    n_running * workload.n_clients_per_thread,
                    n_ops - n_ops_before,
                    n_ops as f64 / elapsed_s,
                );
                n_ops_before = n_ops;
                shown = true;
            }
        }
    }
    if shown {
        eprintln!();
    }
}

fn percent_done(workload: &Workload, n_ops: u64, elapsed_s: f64) -> f64 {
    let share = match (workload.n_requests(), workload.length) {
        (Some(n_requests), _) => n_ops as f64 / n_requests as f64,
        (None, Length::Time(time)) => elapsed_s / time.as_secs_f64(),
        (None, Length::RequestsPerClient(_) | Length::AllKeys) => 0.0,
    };
    (share * 100.0).min(100.0)
}
