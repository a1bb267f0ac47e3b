//! `skerry-bench recall`: how well and how dearly a server with V* commands searches real vectors.
//!
//! It loads rows of a .npy file, finds the exact nearest neighbours itself, and asks VSIM for each query row
//! at each EF. Recall@10 is the share of returned elements that are as near as the tenth nearest: among
//! equals any is right, so ties do not count as misses. A query is an FP32 blob, one at a time per client,
//! and the queries are repeated until `--seconds` have passed, so that the CPU time (in ticks of 10 ms) is
//! long enough to divide.
//!
//! Must never know: which server it asks.

use crate::connection::{Handshake, Protocol, ServerAddress};
use crate::cpu::{CpuTimes, ThreadCpu};
use crate::flags::{CommandsKind, FlagError, Length, ReportOptions, Workload};
use crate::keys::{KeyPattern, KeyRange, KeyShape};
use crate::question::Questioner;
use crate::rows::{Rows, dot};
use crate::run::{CpuSample, RunResult, pin, run_with_vectors};
use crate::stats::CommandStats;
use crate::template::{DataContent, DataShape, Template};
use crate::vectors::{VectorShape, VectorSource};
use clap::Parser;
use serde_json::{Value as Json, json};
use skerry_resp::value::Value;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// Rounding of float32 dot products of unit vectors: two rows nearer than this are equally near.
const TIE: f32 = 1e-6;

#[derive(Debug, Parser)]
#[command(
    name = "skerry-bench recall",
    about = "Recall, speed and cost of VSIM on real vectors.",
    disable_help_flag = true
)]
struct Flags {
    /// Rows to load: float16 or float32 .npy
    #[arg(long)]
    base: PathBuf,
    /// Rows to search for
    #[arg(long)]
    query: PathBuf,
    /// How many rows of --base to load
    #[arg(long, default_value_t = 20_000)]
    rows: usize,
    /// How many rows of --query to use
    #[arg(long, default_value_t = 1000)]
    queries: usize,
    #[arg(long, default_value_t = 16)]
    m: u32,
    #[arg(long, default_value_t = 200)]
    ef_construction: u32,
    /// EF of the searches
    #[arg(long, value_delimiter = ',', default_value = "40,80,150,300,500")]
    ef: Vec<u32>,
    /// COUNT of the searches
    #[arg(long, default_value_t = 10)]
    count: usize,
    /// NOQUANT, Q8 or BIN
    #[arg(long, default_value = "NOQUANT")]
    quantization: String,
    /// Name of the vector set; it is deleted first
    #[arg(long, default_value = "recall")]
    key: String,
    /// Search what an earlier call loaded
    #[arg(long)]
    no_load: bool,
    /// Connections that load, 4 VADD in flight on each
    #[arg(long, default_value_t = 4)]
    load_clients: u32,
    /// Connections that search, a thread each
    #[arg(short, long, default_value_t = 1)]
    clients: usize,
    /// At least this long at each EF
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[arg(short = 's', long, short_alias = 'h', alias = "host", default_value = "localhost")]
    server: String,
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    #[arg(short = 'S', long)]
    unix_socket: Option<PathBuf>,
    /// PASSWORD or USER:PASSWORD
    #[arg(short, long)]
    authenticate: Option<String>,
    /// Process ids of the server, for its CPU time
    #[arg(long, value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Also a row per server thread
    #[arg(long)]
    server_threads: bool,
    /// Pin the searching threads to these cores in turn
    #[arg(long, value_delimiter = ',')]
    cpu: Vec<usize>,
    #[arg(long)]
    json_out_file: Option<PathBuf>,
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs the subcommand with the arguments after its name.
pub fn main(args: &[String]) -> Result<ExitCode, FlagError> {
    let argv = std::iter::once("skerry-bench recall").chain(args.iter().map(String::as_str));
    let flags = Flags::try_parse_from(argv).map_err(FlagError::Clap)?;
    if flags.clients == 0 || flags.load_clients == 0 || flags.rows == 0 || flags.count == 0 {
        return Err("error: clients, load-clients, rows and count must be greater than zero."
            .to_owned()
            .into());
    }
    Ok(run(&flags).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    }))
}

fn run(flags: &Flags) -> io::Result<ExitCode> {
    let address = match &flags.unix_socket {
        Some(path) => ServerAddress::Unix(path.clone()),
        None => ServerAddress::resolve(&flags.server, flags.port)?,
    };
    let handshake = Handshake { protocol: Protocol::Redis, credentials: flags.authenticate.clone(), db: 0 };
    let base = Rows::read_npy(&flags.base, flags.rows)?;
    let queries = Rows::read_npy(&flags.query, flags.queries)?;
    if base.n_dims() != queries.n_dims() || queries.is_empty() {
        return Err(io::Error::other("--base and --query differ in dimensions, or have no rows"));
    }
    println!(
        "{} rows of {} dimensions, {} queries, {} M {} EF {}",
        base.len(),
        base.n_dims(),
        queries.len(),
        flags.quantization,
        flags.m,
        flags.ef_construction
    );
    let load = if flags.no_load { None } else { Some(load(flags, &address, &handshake, &base)?) };
    let truth = Truth::find(&base, &queries, flags.count);
    let mut json = json!({ "load": load.as_ref().map(|l| load_json(l, base.len())), "searches": [] });
    println!(
        "\n{:>5} {:>9} {:>11} {:>9} {:>9} {:>12} {:>12} {:>12}\n{}",
        "EF",
        format!("recall@{}", flags.count),
        "queries/s",
        "p50 ms",
        "p99 ms",
        "user us",
        "system us",
        "total us",
        "-".repeat(86)
    );
    for &ef in &flags.ef {
        let search = search(flags, &address, &handshake, ef, &truth)?;
        print_search(ef, &search);
        if let Some(list) = json["searches"].as_array_mut() {
            list.push(search_json(ef, &search));
        }
    }
    if let Some(path) = &flags.json_out_file {
        std::fs::write(path, format!("{json:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads all rows, row i as element i, and checks that they arrived.
fn load(flags: &Flags, address: &ServerAddress, handshake: &Handshake, base: &Rows) -> io::Result<RunResult> {
    let mut questioner = Questioner::connect(address, handshake)?;
    questioner.ask(&["DEL", flags.key.as_str()])?;
    let command = format!(
        "VADD {} FP32 __vector__ __key__ {} M {} EF {}",
        flags.key, flags.quantization, flags.m, flags.ef_construction
    );
    let data = DataShape { minimum_bytes: 1, maximum_bytes: 1, content: DataContent::OneLetter };
    let template = Template::parse(&command, "", data, KeyPattern::Parallel, 1)
        .map_err(|e| io::Error::other(format!("{command}: {e}")))?;
    let workload = Workload {
        address: address.clone(),
        handshake: handshake.clone(),
        n_threads: 1,
        n_clients_per_thread: flags.load_clients.min(base.len() as u32),
        pipeline: 4,
        length: Length::AllKeys,
        requests_per_s: None,
        commands: vec![template],
        commands_kind: CommandsKind::Arbitrary,
        key_range: KeyRange { minimum: 0, maximum: base.len() as u64 - 1 },
        key_shape: KeyShape::default(),
        data,
        expiry_s: (0, 0),
        vectors: VectorShape { n_dims: base.n_dims(), n_clusters: 1, seed: 0 },
        seed: 0,
        distinct_client_seed: false,
        cpus: flags.cpu.clone(),
        run_count: 1,
        server_pids: flags.server_pid.clone(),
        report: ReportOptions::default(),
    };
    let result = run_with_vectors(&workload, 1, Some(&Arc::new(VectorSource::Rows(base.clone()))))?;
    let totals = result.stats.totals();
    if totals.n_errors > 0 || result.stats.n_connection_errors > 0 {
        let first = result.stats.first_error.as_deref().unwrap_or("unknown");
        return Err(io::Error::other(format!("VADD: {} errors, the first: {first}", totals.n_errors)));
    }
    match questioner.ask(&["VCARD", flags.key.as_str()])? {
        Value::Integer(n) if n == base.len() as i64 => {}
        other => {
            return Err(io::Error::other(format!("VCARD after the load: {other:?}, not {}", base.len())));
        }
    }
    let seconds = result.stats.duration.as_secs_f64();
    print!("load: {seconds:.2} s, {:.0} rows/s", base.len() as f64 / seconds);
    match result.cpu.server {
        Some(cpu) => println!(
            ", server CPU {:.2} s user, {:.2} s system, {:.1} us a row",
            cpu.user_ns as f64 / 1e9,
            cpu.system_ns as f64 / 1e9,
            per_query_us(cpu.total_ns(), base.len() as u64)
        ),
        None => println!(),
    }
    if flags.server_threads {
        print_threads(&result.cpu.server_threads, base.len() as u64);
    }
    Ok(result)
}

/// The queries and what is right about them.
struct Truth<'a> {
    base: Rows,
    queries: &'a Rows,
    normal_queries: Rows,
    /// For each query, the cosine of the last of the exact nearest.
    threshold_of_query: Vec<f32>,
    /// For each query, how many there are to find.
    n_to_find: usize,
}

impl<'a> Truth<'a> {
    /// Linear scans on all cores.
    fn find(base: &Rows, queries: &'a Rows, count: usize) -> Self {
        let (base, normal_queries) = (base.normalized(), queries.normalized());
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        let mut threshold_of_query = vec![0.0; queries.len()];
        thread::scope(|scope| {
            let width = queries.len().div_ceil(n_threads);
            for (part, thresholds) in threshold_of_query.chunks_mut(width).enumerate() {
                let (base, normal_queries) = (&base, &normal_queries);
                scope.spawn(move || {
                    for (offset, threshold) in thresholds.iter_mut().enumerate() {
                        let nearest = base.nearest(normal_queries.row(part * width + offset), count);
                        *threshold = nearest.last().map_or(f32::INFINITY, |n| n.cosine);
                    }
                });
            }
        });
        let n_to_find = count.min(base.len());
        Self { base, queries, normal_queries, threshold_of_query, n_to_find }
    }

    /// How many of `elements` are among the nearest of query `index`.
    fn n_right(&self, index: usize, elements: &[Value]) -> io::Result<usize> {
        let mut rows = Vec::with_capacity(elements.len());
        for element in elements {
            let row = match element {
                Value::Bulk(name) => {
                    std::str::from_utf8(name).ok().and_then(|name| name.parse::<usize>().ok())
                }
                _ => None,
            };
            let row = row.filter(|&row| row < self.base.len());
            rows.push(row.ok_or_else(|| io::Error::other(format!("VSIM: {element:?} was never loaded")))?);
        }
        // An element named twice is right once.
        rows.sort_unstable();
        rows.dedup();
        let query = self.normal_queries.row(index);
        let threshold = self.threshold_of_query[index] - TIE;
        let n_right = rows.iter().filter(|&&row| dot(self.base.row(row), query) >= threshold).count();
        Ok(n_right.min(self.n_to_find))
    }
}

/// What one EF gave.
struct Search {
    recall: f64,
    queries_per_s: f64,
    stats: CommandStats,
    server: Option<CpuTimes>,
    server_threads: Vec<ThreadCpu>,
}

/// One searching client's part.
#[derive(Default)]
struct Part {
    stats: CommandStats,
    n_asked_for_recall: u64,
    n_right: u64,
}

fn search(
    flags: &Flags,
    address: &ServerAddress,
    handshake: &Handshake,
    ef: u32,
    truth: &Truth<'_>,
) -> io::Result<Search> {
    let mut questioners = Vec::new();
    for _ in 0..flags.clients {
        questioners.push(Questioner::connect(address, handshake)?);
    }
    let before = CpuSample::take(&flags.server_pid)?;
    let start = Instant::now();
    let together = Barrier::new(flags.clients);
    let parts: Vec<io::Result<Part>> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, questioner) in questioners.into_iter().enumerate() {
            let together = &together;
            threads.push(scope.spawn(move || {
                pin(&flags.cpu, index);
                together.wait();
                search_part(flags, questioner, ef, truth, index, start)
            }));
        }
        threads.into_iter().map(|t| t.join().expect("a searching thread does not panic")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let cpu = CpuSample::take(&flags.server_pid)?.since(&before);
    let mut all = Part::default();
    for part in parts {
        let part = part?;
        all.stats.add(&part.stats);
        all.n_asked_for_recall += part.n_asked_for_recall;
        all.n_right += part.n_right;
    }
    Ok(Search {
        recall: all.n_right as f64 / (all.n_asked_for_recall * truth.n_to_find as u64) as f64,
        queries_per_s: all.stats.n_ops as f64 / seconds,
        stats: all.stats,
        server: cpu.server,
        server_threads: if flags.server_threads { cpu.server_threads } else { Vec::new() },
    })
}

/// Client `client_index` asks every `clients`-th query, again and again until the time is up, and counts
/// recall on the first round: so each query weighs the same.
fn search_part(
    flags: &Flags,
    mut questioner: Questioner,
    ef: u32,
    truth: &Truth<'_>,
    client_index: usize,
    start: Instant,
) -> io::Result<Part> {
    let (count, ef) = (flags.count.to_string(), ef.to_string());
    let mut part = Part::default();
    let mut blob = Vec::new();
    let least = Duration::from_secs_f64(flags.seconds);
    let mine: Vec<usize> = (client_index..truth.queries.len()).step_by(flags.clients).collect();
    for round in 0.. {
        for &index in &mine {
            if round > 0 && start.elapsed() >= least {
                return Ok(part);
            }
            blob.clear();
            truth.queries.append_blob(index, &mut blob);
            let asked = Instant::now();
            let args: [&[u8]; 8] = [
                b"VSIM",
                flags.key.as_bytes(),
                b"FP32",
                &blob,
                b"COUNT",
                count.as_bytes(),
                b"EF",
                ef.as_bytes(),
            ];
            let Value::Array(elements) = questioner.ask(&args)? else {
                return Err(io::Error::other("VSIM: the reply is no array"));
            };
            part.stats.n_ops += 1;
            part.stats.record_latency(asked.elapsed().as_nanos() as u64, 1);
            if round == 0 {
                part.n_asked_for_recall += 1;
                part.n_right += truth.n_right(index, &elements)? as u64;
            }
        }
        if mine.is_empty() || start.elapsed() >= least {
            break;
        }
    }
    Ok(part)
}

fn per_query_us(ns: u64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { ns as f64 / 1000.0 / n as f64 }
}

fn print_search(ef: u32, search: &Search) {
    let n = search.stats.n_ops;
    print!(
        "{ef:>5} {:>9.4} {:>11.1} {:>9.3} {:>9.3}",
        search.recall,
        search.queries_per_s,
        search.stats.percentile_ms(50.0),
        search.stats.percentile_ms(99.0)
    );
    match search.server {
        Some(cpu) => println!(
            " {:>12.1} {:>12.1} {:>12.1}",
            per_query_us(cpu.user_ns, n),
            per_query_us(cpu.system_ns, n),
            per_query_us(cpu.total_ns(), n)
        ),
        None => println!(),
    }
    print_threads(&search.server_threads, n);
}

/// Only threads that worked: most servers have many that sleep.
fn print_threads(threads: &[ThreadCpu], n: u64) {
    for thread in threads.iter().filter(|t| t.times.total_ns() > 0) {
        let name = format!("{} {}", thread.tid, thread.name);
        println!(
            "      {name:<41} {:>12.1} {:>12.1} {:>12.1}",
            per_query_us(thread.times.user_ns, n),
            per_query_us(thread.times.system_ns, n),
            per_query_us(thread.times.total_ns(), n)
        );
    }
}

fn load_json(load: &RunResult, n_rows: usize) -> Json {
    json!({
        "rows": n_rows,
        "seconds": load.stats.duration.as_secs_f64(),
        "server user seconds": load.cpu.server.map(|c| c.user_ns as f64 / 1e9),
        "server system seconds": load.cpu.server.map(|c| c.system_ns as f64 / 1e9),
    })
}

fn search_json(ef: u32, search: &Search) -> Json {
    let n = search.stats.n_ops;
    json!({
        "ef": ef,
        "recall": search.recall,
        "queries": n,
        "queries/s": search.queries_per_s,
        "p50 ms": search.stats.percentile_ms(50.0),
        "p99 ms": search.stats.percentile_ms(99.0),
        "server user us": search.server.map(|c| per_query_us(c.user_ns, n)),
        "server system us": search.server.map(|c| per_query_us(c.system_ns, n)),
        "server total us": search.server.map(|c| per_query_us(c.total_ns(), n)),
    })
}
