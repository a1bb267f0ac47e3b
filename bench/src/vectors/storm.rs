//! The mode `storm`: how long another client's GET waits while many clients search, and while the set is deleted.
//!
//! The GET's key shares its hash tag with the set, so that it lives on the same core. GETs go out at a fixed rate and
//! are counted from when they were due. Where the server tells its turn times (`DEBUG TURNS` of Skerry with
//! `--turn-trace yes --enable-debug-command yes`), they are printed for the DEL.

use super::data::Data;
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::Loaded;
use super::probe;
use super::report::{Ratio, Report, Table};
use super::search::{Askers, Length, search, vsim_fp32};
use super::server::Server;
use super::wrong;
use crate::run::pin;
use crate::stats::CommandStats;
use clap::Args;
use skerry_resp::encode_command;
use skerry_resp::value::Value;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// GETs before the DEL goes out.
const DEL_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// EF of the searches
    #[arg(long, default_value_t = 1000)]
    ef: u32,
    /// Connections that search, a thread each
    #[arg(short, long, default_value_t = 8)]
    clients: usize,
    /// GETs a second of the other client; if each takes longer than the time between two, they pile up and it shows
    #[arg(long, default_value_t = 100.0)]
    get_rate: f64,
    /// Length of each phase
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rounds of idle and storm; medians are told
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    if !(flags.get_rate > 0.0 && flags.seconds > 0.0) {
        return Err(wrong("--get-rate and --seconds must be greater than zero"));
    }
    let common = &flags.common;
    let data = Data::read(&common.data, common.data.rows)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("storm", common, args, &servers, &data.describe())?;
    let mut loads = Table::new("load", &["server"]);
    for server in &servers {
        let key = &common.set.key;
        let loaded = Loaded::fresh(server, common, key, &data, &data.all_ids(), common.set.load_clients)?;
        loads.push(&[&server.name], loaded.figures);
        server.connect()?.ask(&["SET", &probe_key(key), "x"])?;
    }
    report.show(loads);
    let (mut idle, mut storm) = (vec![Vec::new(); servers.len()], vec![Vec::new(); servers.len()]);
    for _ in 0..flags.rounds.max(1) {
        for (index, server) in servers.iter().enumerate() {
            idle[index].push(get_figures(&gets(flags, server)?));
            storm[index].push(storm_phase(flags, server, &data)?);
        }
    }
    let mut table = Table::new("GET", &["server", "beside"]);
    let mut turns = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let quiet = Figures::median(&idle[index]);
        let quiet_p99_ms = quiet.get("p99_ms");
        let with_difference = |mut figures: Figures| {
            let difference = figures.get("p99_ms").zip(quiet_p99_ms).map(|(a, b)| a - b);
            figures.push_some("p99_over_idle_ms", difference);
            figures
        };
        table.push(&[&server.name, &"nothing"], quiet.clone());
        table.push(&[&server.name, &"searches"], with_difference(Figures::median(&storm[index])));
        let (deletion, lines) = del_phase(flags, server)?;
        table.push(&[&server.name, &"DEL of the set"], with_difference(deletion));
        turns.extend(lines.into_iter().map(|line| format!("{}: {line}", server.name)));
    }
    report.show(table.clone());
    report.show(table.ratios("GET ratios", &[Ratio { of: "p99_ms", name: "p99_ratio" }]));
    if !turns.is_empty() {
        println!("\nturns during DEL\n{}", turns.join("\n"));
    }
    report.finish(common)
}

fn probe_key(key: &str) -> String {
    if key.contains('{') { format!("{key}:probe") } else { format!("{{{key}}}:probe") }
}

/// GETs for `--seconds`.
fn gets(flags: &Flags, server: &Server) -> io::Result<CommandStats> {
    let common = &flags.common;
    pin(&common.servers.cpu, flags.clients);
    let mut request = Vec::new();
    encode_command(&["GET", &probe_key(&common.set.key)], &mut request);
    let encode = |_, out: &mut Vec<u8>| {
        out.extend_from_slice(&request);
        true
    };
    let is_value = |reply: &Value| *reply == Value::Bulk(b"x".to_vec());
    let time = Duration::from_secs_f64(flags.seconds);
    probe::at_rate(&mut server.connect()?, flags.get_rate, time, encode, is_value)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: GET: {e}", server.name)))
}

fn get_figures(stats: &CommandStats) -> Figures {
    let mut figures = Figures::default();
    figures.push("n_gets", stats.n_ops as f64);
    figures.push("p50_ms", stats.percentile_ms(50.0));
    figures.push("p99_ms", stats.percentile_ms(99.0));
    figures.push("max_ms", stats.percentile_ms(100.0));
    figures
}

fn storm_phase(flags: &Flags, server: &Server, data: &Data) -> io::Result<Figures> {
    let common = &flags.common;
    let (count, ef) = (common.data.count.to_string(), flags.ef.to_string());
    let words = [&b"COUNT"[..], count.as_bytes(), b"EF", ef.as_bytes()];
    let requests = vsim_fp32(&common.set.key, &data.queries, &words);
    let askers = Askers { n_clients: flags.clients, cpus: &common.servers.cpu };
    let time = Duration::from_secs_f64(flags.seconds);
    thread::scope(|scope| {
        let getting = scope.spawn(|| gets(flags, server));
        let search = search(server, &requests, askers, Length::Time(time));
        let gets = getting.join().expect("the getting thread does not panic")?;
        let mut figures = get_figures(&gets);
        let search = search?;
        figures.push("searches_per_s", search.stats.n_ops as f64 / search.wall.as_secs_f64());
        figures.push("search_p99_ms", search.stats.percentile_ms(99.0));
        Ok(figures)
    })
}

/// GETs around a DEL of the set, and the lines of DEBUG TURNS if there are any.
fn del_phase(flags: &Flags, server: &Server) -> io::Result<(Figures, Vec<String>)> {
    let mut questioner = server.connect()?;
    // A server without the word answers an error, and there is nothing to tell.
    let tells_turns = questioner.ask(&["DEBUG", "TURNS", "RESET"]).is_ok();
    let (gets, del_ms) = thread::scope(|scope| {
        let getting = scope.spawn(|| gets(flags, server));
        thread::sleep(DEL_DELAY.min(Duration::from_secs_f64(flags.seconds / 2.0)));
        let start = Instant::now();
        let deleted = questioner.ask(&["DEL", &flags.common.set.key]);
        let del_ms = start.elapsed().as_secs_f64() * 1000.0;
        let gets = getting.join().expect("the getting thread does not panic")?;
        match deleted? {
            Value::Integer(1) => Ok((gets, del_ms)),
            other => Err(wrong(format!("{}: DEL: {other:?}", server.name))),
        }
    })?;
    let mut figures = get_figures(&gets);
    figures.push("del_ms", del_ms);
    let mut lines = Vec::new();
    if tells_turns && let Value::Array(workers) = questioner.ask(&["DEBUG", "TURNS"])? {
        for worker in workers {
            if let Value::Bulk(line) = worker {
                lines.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }
    Ok((figures, lines))
}
