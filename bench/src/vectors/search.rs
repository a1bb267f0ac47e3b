//! Asks prepared searches over several connections and tells how right, how fast and how dear they were.
//!
//! Requests are encoded before the clock starts and replies are judged after it stops, so the client's own work
//! stands between questions as little as can be. One question at a time per connection, a thread each.

use super::feed::push_cpu;
use super::figures::Figures;
use super::server::Server;
use super::wrong;
use crate::cpu::ThreadCpu;
use crate::question::{Questioner, value_or_error};
use crate::rows::Rows;
use crate::run::{CpuSample, RunCpu, pin};
use crate::stats::CommandStats;
use crate::truth::{Space, Truth};
use skerry_resp::encode_command;
use skerry_resp::value::Value;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// How long a search run takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// Each request at least once, and on until the time is up. Replies of the first pass are kept.
    PassAndTime(Duration),
    /// Until the time is up.
    Time(Duration),
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Askers<'a> {
    pub(super) n_clients: usize,
    pub(super) cpus: &'a [usize],
}

/// What a search run gave.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) stats: CommandStats,
    pub(super) wall: Duration,
    pub(super) cpu: RunCpu,
    /// For each request of a full pass, the rows that its reply named.
    pub(super) found: Vec<Vec<u32>>,
}

/// One client's part.
#[derive(Default)]
struct Part {
    stats: CommandStats,
    found: Vec<(usize, Vec<u32>)>,
}

/// VSIM of each query as an FP32 blob, with more words behind it.
pub(super) fn vsim_fp32(key: &str, queries: &Rows, words: &[&[u8]]) -> Vec<Vec<u8>> {
    let request = |index| {
        let mut blob = Vec::with_capacity(queries.n_dims() * size_of::<f32>());
        queries.append_blob(index, &mut blob);
        vsim(key, &[b"FP32", &blob], words)
    };
    (0..queries.len()).map(request).collect()
}

/// One VSIM, encoded.
pub(super) fn vsim(key: &str, query: &[&[u8]], words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_command(&[&[&b"VSIM"[..], key.as_bytes()], query, words].concat(), &mut out);
    out
}

/// Asks `requests`.
pub(super) fn search(
    server: &Server,
    requests: &[Vec<u8>],
    askers: Askers<'_>,
    length: Length,
) -> io::Result<Search> {
    let n_clients = askers.n_clients.clamp(1, requests.len().max(1));
    let mut questioners = Vec::new();
    for _ in 0..n_clients {
        questioners.push(server.connect()?);
    }
    let (ready, go) = (Barrier::new(n_clients + 1), Barrier::new(n_clients + 1));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, questioner) in questioners.into_iter().enumerate() {
            let (ready, go) = (&ready, &go);
            threads.push(scope.spawn(move || {
                pin(askers.cpus, index);
                ready.wait();
                go.wait();
                let mine: Vec<usize> = (index..requests.len()).step_by(n_clients).collect();
                one_client(questioner, requests, &mine, length)
            }));
        }
        ready.wait();
        let before = CpuSample::take(&server.pids);
        let start = Instant::now();
        go.wait();
        let mut stats = CommandStats::default();
        let mut found = vec![Vec::new(); requests.len()];
        for thread in threads {
            let part: io::Result<Part> = thread.join().expect("a searching thread does not panic");
            let part = part.map_err(|e| io::Error::new(e.kind(), format!("{}: VSIM: {e}", server.name)))?;
            stats.add(&part.stats);
            for (index, ids) in part.found {
                found[index] = ids;
            }
        }
        let wall = start.elapsed();
        Ok(Search { stats, wall, cpu: CpuSample::take(&server.pids)?.since(&before?), found })
    })
}

fn one_client(
    mut questioner: Questioner,
    requests: &[Vec<u8>],
    mine: &[usize],
    length: Length,
) -> io::Result<Part> {
    let (least, keeps) = match length {
        Length::PassAndTime(least) => (least, true),
        Length::Time(least) => (least, false),
    };
    let start = Instant::now();
    let mut part = Part::default();
    for pass in 0.. {
        for &index in mine {
            if (pass > 0 || !keeps) && start.elapsed() >= least {
                return Ok(part);
            }
            let asked = Instant::now();
            questioner.send(&requests[index])?;
            let reply = questioner.receive()?;
            part.stats.n_ops += 1;
            part.stats.record_latency(asked.elapsed().as_nanos() as u64, 1);
            let reply = value_or_error(reply).map_err(wrong)?;
            if pass == 0 && keeps {
                part.found.push((index, rows_of_reply(&reply)?));
            }
        }
        if mine.is_empty() || keeps && start.elapsed() >= least {
            break;
        }
    }
    Ok(part)
}

/// The row numbers that a VSIM reply names.
pub(super) fn rows_of_reply(reply: &Value) -> io::Result<Vec<u32>> {
    let Value::Array(elements) = reply else {
        return Err(wrong(format!("the reply is no array: {reply:?}")));
    };
    let row = |element: &Value| {
        let row = match element {
            Value::Bulk(name) => std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()),
            _ => None,
        };
        row.ok_or_else(|| wrong(format!("{element:?} is no row of this run")))
    };
    elements.iter().map(row).collect()
}

impl Search {
    /// Speed, latency and CPU.
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        let n_ops = self.stats.n_ops;
        figures.push("queries_per_s", n_ops as f64 / self.wall.as_secs_f64());
        figures.push("p50_ms", self.stats.percentile_ms(50.0));
        figures.push("p99_ms", self.stats.percentile_ms(99.0));
        push_cpu(&mut figures, &self.cpu, n_ops);
        figures
    }

    pub(super) fn working_threads(&self) -> impl Iterator<Item = &ThreadCpu> {
        self.cpu.server_threads.iter().filter(|thread| thread.times.total_ns() > 0)
    }

    /// Holds the replies of a full pass against the exact results. `may_be_named` tells which rows a reply may hold.
    pub(super) fn judge(
        &self,
        space: &Space,
        truth: &Truth,
        may_be_named: &dyn Fn(u32) -> bool,
    ) -> io::Result<Judged> {
        let mut judged = Judged { fewest: usize::MAX, ..Judged::default() };
        let mut n_right = 0;
        for (query, ids) in self.found.iter().enumerate() {
            if let Some(id) = ids.iter().find(|&&id| id as usize >= space.base().len()) {
                return Err(wrong(format!("the reply names row {id}, which was never loaded")));
            }
            let may_be: Vec<u32> = ids.iter().copied().filter(|&id| may_be_named(id)).collect();
            judged.n_wrong += ids.len() - may_be.len();
            judged.n_returned += ids.len();
            judged.fewest = judged.fewest.min(ids.len());
            n_right += truth.n_right(space, query, &may_be);
        }
        let n_to_find = truth.n_to_find * self.found.len();
        judged.recall = if n_to_find == 0 { 1.0 } else { n_right as f64 / n_to_find as f64 };
        judged.n_queries = self.found.len();
        Ok(judged)
    }
}

/// How right the replies of a pass were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judged {
    /// The share of the exact nearest that was found, over all queries.
    pub(super) recall: f64,
    /// Named rows that no reply should name.
    pub(super) n_wrong: usize,
    pub(super) n_returned: usize,
    /// The fewest rows in one reply.
    pub(super) fewest: usize,
    pub(super) n_queries: usize,
}

impl Judged {
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        figures.push("recall", self.recall);
        figures.push("returned", self.n_returned as f64 / self.n_queries.max(1) as f64);
        figures.push("n_fewest_returned", self.fewest as f64);
        figures.push("n_wrong", self.n_wrong as f64);
        figures
    }
}
