//! Sends one request for each of a list of rows, over several connections, several in flight on each.
//!
//! Connections take rows from one counter, so the list's order is kept up to what is in flight, and no connection
//! ends long before the others.

use super::figures::Figures;
use super::server::Server;
use super::wrong;
use crate::cpu::ThreadCpu;
use crate::progress::Progress;
use crate::question::{Questioner, value_or_error};
use crate::run::{CpuSample, RunCpu, pin};
use skerry_resp::value::Value;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How the requests go out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes<'a> {
    pub(super) n_clients: usize,
    pub(super) n_in_flight: usize,
    pub(super) cpus: &'a [usize],
}

/// What it took.
#[derive(Debug)]
pub(super) struct Fed {
    pub(super) n_rows: usize,
    pub(super) wall: Duration,
    pub(super) cpu: RunCpu,
}

/// Appends the request for a row.
pub(super) type Encode<'a> = &'a (dyn Fn(u32, &mut Vec<u8>) + Sync);
/// Says whether the reply for a row is right.
pub(super) type Check<'a> = &'a (dyn Fn(u32, &Value) -> bool + Sync);

/// Feeds `rows`; the first error reply or reply that fails `check` ends it.
pub(super) fn feed(
    server: &Server,
    what: &str,
    lanes: Lanes<'_>,
    rows: &[u32],
    encode: Encode<'_>,
    check: Check<'_>,
) -> io::Result<Fed> {
    let mut questioners = Vec::new();
    for _ in 0..lanes.n_clients.min(rows.len().max(1)) {
        questioners.push(server.connect()?);
    }
    let progress = Progress::new(format!("{}: {what}", server.name), rows.len() as u64);
    let next = AtomicUsize::new(0);
    let (ready, go) = (Barrier::new(questioners.len() + 1), Barrier::new(questioners.len() + 1));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, questioner) in questioners.into_iter().enumerate() {
            let (ready, go, next, progress) = (&ready, &go, &next, &progress);
            threads.push(scope.spawn(move || {
                pin(lanes.cpus, index);
                ready.wait();
                go.wait();
                one_client(questioner, lanes.n_in_flight, rows, next, encode, check, progress)
            }));
        }
        ready.wait();
        let before = CpuSample::take(&server.pids);
        let start = Instant::now();
        go.wait();
        for thread in threads {
            let ended: io::Result<()> = thread.join().expect("a feeding thread does not panic");
            ended.map_err(|e| io::Error::new(e.kind(), format!("{}: {what}: {e}", server.name)))?;
        }
        let wall = start.elapsed();
        Ok(Fed { n_rows: rows.len(), wall, cpu: CpuSample::take(&server.pids)?.since(&before?) })
    })
}

fn one_client(
    mut questioner: Questioner,
    n_in_flight: usize,
    rows: &[u32],
    next: &AtomicUsize,
    encode: Encode<'_>,
    check: Check<'_>,
    progress: &Progress,
) -> io::Result<()> {
    let mut in_flight = std::collections::VecDeque::new();
    let mut out = Vec::new();
    loop {
        out.clear();
        while in_flight.len() < n_in_flight.max(1)
            && let Some(&row) = rows.get(next.fetch_add(1, Ordering::Relaxed))
        {
            encode(row, &mut out);
            in_flight.push_back(row);
        }
        questioner.send(&out)?;
        if in_flight.is_empty() {
            return Ok(());
        }
        let mut reply = Some(questioner.receive()?);
        while let Some(value) = reply {
            let row = in_flight.pop_front().ok_or_else(|| wrong("a reply that no request asked for"))?;
            let value = value_or_error(value).map_err(wrong)?;
            if !check(row, &value) {
                return Err(wrong(format!("row {row}: the reply is {value:?}")));
            }
            progress.add(1);
            reply = if in_flight.is_empty() { None } else { questioner.receive_if_here()? };
        }
    }
}

impl Fed {
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        figures.push("wall_s", self.wall.as_secs_f64());
        figures.push("rows_per_s", self.n_rows as f64 / self.wall.as_secs_f64());
        push_cpu(&mut figures, &self.cpu, self.n_rows as u64);
        figures
    }
}

/// Server and client CPU per operation.
pub(super) fn push_cpu(figures: &mut Figures, cpu: &RunCpu, n_ops: u64) {
    if let Some(server) = cpu.server {
        figures.push("server_user_us", per_op_us(server.user_ns, n_ops));
        figures.push("server_system_us", per_op_us(server.system_ns, n_ops));
        figures.push("server_us", per_op_us(server.total_ns(), n_ops));
    }
    figures.push("client_us", per_op_us(cpu.generator.total_ns(), n_ops));
}

/// Figures of one server thread.
pub(super) fn thread_figures(thread: &ThreadCpu, n_ops: u64) -> Figures {
    let mut figures = Figures::default();
    figures.push("user_us", per_op_us(thread.times.user_ns, n_ops));
    figures.push("system_us", per_op_us(thread.times.system_ns, n_ops));
    figures.push("total_us", per_op_us(thread.times.total_ns(), n_ops));
    figures
}

fn per_op_us(ns: u64, n_ops: u64) -> f64 {
    if n_ops == 0 { 0.0 } else { ns as f64 / 1000.0 / n_ops as f64 }
}
