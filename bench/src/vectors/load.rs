//! Building the set: VADD of rows under their numbers. Also the mode `load`, which measures that alone.

use super::data::Data;
use super::feed::{Fed, Lanes, feed, thread_figures};
use super::figures::Figures;
use super::flags::{CommonFlags, SetFlags};
use super::report::{Ratio, Report, Table};
use super::server::Server;
use super::wrong;
use crate::truth::Metric;
use clap::Args;
use skerry_resp::encode_command;
use skerry_resp::value::Value;
use std::fmt::Display;
use std::io;

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// Numbers of loading connections to try, instead of --load-clients
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Loads of each server, in turn; medians are told
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    let common = &flags.common;
    let data = Data::read(&common.data, common.data.rows)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("load", common, args, &servers, &data.describe())?;
    let all = data.all_ids();
    let mut table = Table::new("load", &["server", "clients"]);
    let mut threads = Table::new("load threads", &["server", "clients", "thread"]);
    let numbers =
        if flags.clients.is_empty() { vec![common.set.load_clients] } else { flags.clients.clone() };
    for n_clients in numbers {
        let mut rounds = vec![Vec::new(); servers.len()];
        for _ in 0..flags.rounds.max(1) {
            for (server, figures) in servers.iter().zip(&mut rounds) {
                let loaded = Loaded::fresh(server, common, &common.set.key, &data, &all, n_clients)?;
                loaded.push_threads(&mut threads, &[&server.name, &n_clients], common);
                figures.push(loaded.figures);
            }
        }
        for (server, rounds) in servers.iter().zip(&rounds) {
            table.push(&[&server.name, &n_clients], Figures::median(rounds));
        }
    }
    report.show(table.clone());
    report.show(table.ratios("load ratios", &LOAD_RATIOS));
    report.show(threads);
    report.finish(common)
}

/// What loads are compared by.
pub(super) const LOAD_RATIOS: [Ratio; 3] = [
    Ratio { of: "wall_s", name: "wall_ratio" },
    Ratio { of: "server_us", name: "server_us_ratio" },
    Ratio { of: "rss_bytes_per_row", name: "rss_ratio" },
];

/// A set that was just built.
#[derive(Debug)]
pub(super) struct Loaded {
    fed: Fed,
    pub(super) figures: Figures,
}

impl Loaded {
    /// Deletes `key` and loads `ids` into it; measures the memory.
    pub(super) fn fresh(
        server: &Server,
        common: &CommonFlags,
        key: &str,
        data: &Data,
        ids: &[u32],
        n_clients: usize,
    ) -> io::Result<Self> {
        // Memory that an earlier set left behind would hide what this one takes.
        let empty_rss_bytes = if server.has_seen_vectors()? { None } else { server.rss_bytes()? };
        delete(server, key)?;
        let lanes = Lanes {
            n_clients: n_clients.max(1),
            n_in_flight: common.set.load_pipeline,
            cpus: &common.servers.cpu,
        };
        let fed = add(server, &common.set, key, data, ids, lanes)?;
        let mut figures = fed.figures();
        let rss_bytes = server.rss_bytes()?;
        let per_row = |bytes: u64| bytes as f64 / ids.len() as f64;
        if let (Some(empty), Some(now)) = (empty_rss_bytes, rss_bytes) {
            figures.push("rss_bytes_per_row", per_row(now.saturating_sub(empty)));
            let raw_bytes = (data.base.n_dims() * size_of::<f32>()) as f64;
            figures.push("rss_ratio_to_f32", per_row(now.saturating_sub(empty)) / raw_bytes);
        }
        figures.push_some("memory_usage_bytes_per_row", server.memory_usage_bytes(key)?.map(per_row));
        Ok(Self { fed, figures })
    }

    pub(super) fn push_threads(&self, table: &mut Table, labels: &[&dyn Display], common: &CommonFlags) {
        if common.servers.server_threads {
            for thread in self.fed.cpu.server_threads.iter().filter(|t| t.times.total_ns() > 0) {
                let name = format!("{} {}", thread.tid, thread.name);
                let labels = [labels, &[&name]].concat();
                table.push(&labels, thread_figures(thread, self.fed.n_rows as u64));
            }
        }
    }
}

pub(super) fn delete(server: &Server, key: &str) -> io::Result<()> {
    server.connect()?.ask(&["DEL", key]).map(|_| ())
}

/// Adds `ids`, none of which may be there, and checks that they arrived.
pub(super) fn add(
    server: &Server,
    set: &SetFlags,
    key: &str,
    data: &Data,
    ids: &[u32],
    lanes: Lanes<'_>,
) -> io::Result<Fed> {
    let before = cardinality(server, key)?;
    let encode = |id: u32, out: &mut Vec<u8>| append_vadd(set, key, data, id, out);
    let is_new = |_, reply: &Value| matches!(reply, Value::Integer(1) | Value::Boolean(true));
    let fed = feed(server, "VADD", lanes, ids, &encode, &is_new)?;
    let after = cardinality(server, key)?;
    if after != before + ids.len() as u64 {
        return Err(wrong(format!("{}: VCARD after adding {} to {before}: {after}", server.name, ids.len())));
    }
    Ok(fed)
}

pub(super) fn append_vadd(set: &SetFlags, key: &str, data: &Data, id: u32, out: &mut Vec<u8>) {
    let mut blob = Vec::with_capacity(data.base.n_dims() * size_of::<f32>());
    data.base.append_blob(id as usize, &mut blob);
    let (m, ef, name) = (set.m.to_string(), set.ef_construction.to_string(), id.to_string());
    let reduce = set.reduce.map(|n_dims| n_dims.to_string());
    let mut words: Vec<&[u8]> = vec![b"VADD", key.as_bytes()];
    if let Some(n_dims) = &reduce {
        words.extend([&b"REDUCE"[..], n_dims.as_bytes()]);
    }
    words.extend([&b"FP32"[..], &blob, name.as_bytes()]);
    if set.cas {
        words.push(b"CAS");
    }
    words.extend([set.quantization.as_bytes(), b"M", m.as_bytes(), b"EF", ef.as_bytes()]);
    // Redis has no such word, so it is said only where it is needed.
    match data.space.metric() {
        Metric::Cosine => {}
        Metric::L2 => words.extend([&b"METRIC"[..], b"L2"]),
        Metric::Ip => words.extend([&b"METRIC"[..], b"IP"]),
    }
    words.extend(set.vadd_options.split_whitespace().map(str::as_bytes));
    encode_command(&words, out);
}

fn cardinality(server: &Server, key: &str) -> io::Result<u64> {
    match server.connect()?.ask(&["VCARD", key])? {
        Value::Integer(n) => u64::try_from(n).map_err(wrong),
        other => Err(wrong(format!("{}: VCARD: {other:?}", server.name))),
    }
}
