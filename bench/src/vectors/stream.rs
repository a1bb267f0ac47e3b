//! The mode `stream`: searching clients without and with inserts at a fixed rate beside them, and what the set that
//! grew under searches is worth against one built at once.
//!
//! A round is a quiet phase and one with inserts; servers take turns. Inserts have a connection of their own and are
//! never in a hurry to catch up: what a server does not take in time is not inserted.

use super::data::Data;
use super::feed::Lanes;
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::{Loaded, append_vadd};
use super::probe;
use super::report::{Ratio, Report, Table};
use super::search::{Askers, Length, Search, search, vsim_fp32};
use super::server::Server;
use super::wrong;
use crate::stats::CommandStats;
use clap::Args;
use skerry_resp::value::Value;
use std::io;
use std::thread;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// EF of the searches
    #[arg(long, default_value_t = 80)]
    ef: u32,
    /// Connections that search, a thread each
    #[arg(short, long, default_value_t = 8)]
    clients: usize,
    /// Rows inserted a second; they come after the first --rows of --base
    #[arg(long, default_value_t = 200.0)]
    insert_rate: f64,
    /// Length of each phase
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Rounds; medians are told
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Do not build the set anew at the end
    #[arg(long)]
    no_fresh_build: bool,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    if !(flags.insert_rate > 0.0 && flags.seconds > 0.0) {
        return Err(wrong("--insert-rate and --seconds must be greater than zero"));
    }
    let common = &flags.common;
    let rounds = flags.rounds.max(1);
    let n_a_round = (flags.insert_rate * flags.seconds).ceil() as usize;
    let data = Data::read(&common.data, common.data.rows + rounds * n_a_round)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("stream", common, args, &servers, &data.describe())?;
    let first = data.ids_below(common.data.rows);
    let mut loads = Table::new("load", &["server"]);
    for server in &servers {
        let loaded = Loaded::fresh(server, common, &common.set.key, &data, &first, common.set.load_clients)?;
        loads.push(&[&server.name], loaded.figures);
    }
    report.show(loads);
    let mut quiet = vec![Vec::new(); servers.len()];
    let mut busy = vec![Vec::new(); servers.len()];
    let mut n_rows = vec![common.data.rows; servers.len()];
    for _ in 0..rounds {
        for (index, server) in servers.iter().enumerate() {
            quiet[index].push(search_phase(flags, server, &data)?.figures());
            let (search, inserts) = phase_with_inserts(flags, server, &data, n_rows[index])?;
            n_rows[index] += inserts.n_ops as usize;
            let mut figures = search.figures();
            figures.push("inserts_per_s", inserts.n_ops as f64 / flags.seconds);
            figures.push("insert_p50_ms", inserts.percentile_ms(50.0));
            figures.push("insert_p99_ms", inserts.percentile_ms(99.0));
            busy[index].push(figures);
        }
    }
    show_phases(&mut report, &servers, &quiet, &busy);
    let mut recalls = Table::new("recall after the run", &["server", "rows"]);
    for (server, &n_rows) in servers.iter().zip(&n_rows) {
        recalls.push(&[&server.name, &n_rows], recalls_after(flags, server, &data, n_rows)?);
    }
    report.show(recalls);
    report.finish(common)
}

/// With inserts against without, and the first server against the others.
fn show_phases(report: &mut Report, servers: &[Server], quiet: &[Vec<Figures>], busy: &[Vec<Figures>]) {
    let mut phases = Table::new("search", &["server", "phase"]);
    let mut changes = Table::new("with inserts to without", &["server"]);
    for (index, server) in servers.iter().enumerate() {
        let (without, with) = (Figures::median(&quiet[index]), Figures::median(&busy[index]));
        let ratio = |name| with.get(name).zip(without.get(name)).map(|(a, b)| a / b);
        let mut change = Figures::default();
        change.push_some("p50_ratio", ratio("p50_ms"));
        change.push_some("p99_ratio", ratio("p99_ms"));
        change.push_some("speed_ratio", ratio("queries_per_s"));
        changes.push(&[&server.name], change);
        phases.push(&[&server.name, &"quiet"], without);
        phases.push(&[&server.name, &"with inserts"], with);
    }
    let ratios = phases.ratios(
        "search ratios",
        &[
            Ratio { of: "queries_per_s", name: "speed_ratio" },
            Ratio { of: "p99_ms", name: "p99_ratio" },
            Ratio { of: "server_us", name: "server_us_ratio" },
            Ratio { of: "insert_p99_ms", name: "insert_p99_ratio" },
        ],
    );
    for table in [phases, changes, ratios] {
        report.show(table);
    }
}

fn requests(flags: &Flags, data: &Data) -> Vec<Vec<u8>> {
    let (count, ef) = (flags.common.data.count.to_string(), flags.ef.to_string());
    vsim_fp32(&flags.common.set.key, &data.queries, &[b"COUNT", count.as_bytes(), b"EF", ef.as_bytes()])
}

fn search_phase(flags: &Flags, server: &Server, data: &Data) -> io::Result<Search> {
    let askers = Askers { n_clients: flags.clients, cpus: &flags.common.servers.cpu };
    search(server, &requests(flags, data), askers, Length::Time(Duration::from_secs_f64(flags.seconds)))
}

fn phase_with_inserts(
    flags: &Flags,
    server: &Server,
    data: &Data,
    n_rows: usize,
) -> io::Result<(Search, CommandStats)> {
    let common = &flags.common;
    let mut questioner = server.connect()?;
    let time = Duration::from_secs_f64(flags.seconds);
    thread::scope(|scope| {
        let inserting = scope.spawn(move || {
            crate::run::pin(&common.servers.cpu, flags.clients);
            let encode = |index: u64, out: &mut Vec<u8>| {
                let id = n_rows + index as usize;
                if id < data.base.len() {
                    append_vadd(&common.set, &common.set.key, data, id as u32, out);
                }
                id < data.base.len()
            };
            let is_new = |reply: &Value| matches!(reply, Value::Integer(1) | Value::Boolean(true));
            probe::at_rate(&mut questioner, flags.insert_rate, time, encode, is_new)
        });
        let search = search_phase(flags, server, data);
        let inserts = inserting.join().expect("the inserting thread does not panic");
        let inserts = inserts.map_err(|e| wrong(format!("{}: VADD: {e}", server.name)))?;
        Ok((search?, inserts))
    })
}

fn recalls_after(flags: &Flags, server: &Server, data: &Data, n_rows: usize) -> io::Result<Figures> {
    let common = &flags.common;
    let ids = data.ids_below(n_rows);
    let truth = data.truth_of(&ids, common.data.count);
    let askers = Askers { n_clients: 1, cpus: &common.servers.cpu };
    let recall = || {
        let pass = search(server, &requests(flags, data), askers, Length::PassAndTime(Duration::ZERO))?;
        let judged = pass.judge(&data.space, &truth, &|id| (id as usize) < n_rows)?;
        if judged.n_wrong > 0 {
            return Err(wrong(format!("{}: a reply names a row that was not added", server.name)));
        }
        Ok(judged.recall)
    };
    let mut figures = Figures::default();
    let grown = recall()?;
    figures.push("recall", grown);
    if !flags.no_fresh_build {
        super::load::delete(server, &common.set.key)?;
        let lanes = Lanes {
            n_clients: common.set.load_clients,
            n_in_flight: common.set.load_pipeline,
            cpus: &common.servers.cpu,
        };
        super::load::add(server, &common.set, &common.set.key, data, &ids, lanes)?;
        let fresh = recall()?;
        figures.push("fresh_recall", fresh);
        figures.push("recall_difference", grown - fresh);
    }
    Ok(figures)
}
