//! The mode `sweep`: recall against speed and server CPU, by EF, for one server or several in turn.
//!
//! The first round asks each query at least once and tells recall; further rounds only take time. Servers are asked
//! A B A B at each EF, so that a drift of the machine meets all alike.

use super::data::Data;
use super::equal_recall;
use super::feed::thread_figures;
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::{LOAD_RATIOS, Loaded};
use super::plot;
use super::report::{Ratio, Report, Table};
use super::search::{Askers, Length, Search, search, vsim, vsim_fp32};
use super::server::Server;
use crate::random::SplitMix64;
use crate::rows::Rows;
use clap::{Args, ValueEnum};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// EF of the searches
    #[arg(long, value_delimiter = ',', default_value = "40,80,150,300,500")]
    ef: Vec<u32>,
    /// Connections that search, a thread each
    #[arg(short, long, default_value_t = 1)]
    clients: usize,
    /// At least this long at each EF and round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds of searches; medians are told
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// What is searched for: vectors, or elements of the set
    #[arg(long, value_enum, default_value_t = QueryKind::Fp32)]
    query_kind: QueryKind,
    /// Search what an earlier call loaded
    #[arg(long)]
    no_load: bool,
    /// Figures of an earlier run, or of something that is no server, to compare with (JSON of this program's form)
    #[arg(long)]
    also: Vec<PathBuf>,
    /// Writes the recall/speed plot there
    #[arg(long)]
    svg: Option<PathBuf>,
}

const SEARCH_RATIOS: [Ratio; 3] = [
    Ratio { of: "queries_per_s", name: "speed_ratio" },
    Ratio { of: "p99_ms", name: "p99_ratio" },
    Ratio { of: "server_us", name: "server_us_ratio" },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QueryKind {
    Fp32,
    Ele,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    let common = &flags.common;
    let mut data = Data::read(&common.data, common.data.rows)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("sweep", common, args, &servers, &data.describe())?;
    let requests = match flags.query_kind {
        QueryKind::Fp32 => Requests { rows: data.queries.clone(), names: None, key: common.set.key.clone() },
        QueryKind::Ele => elements_as_queries(common, &mut data)?,
    };
    let truth = data.truth_of_all(common.data.count)?;
    if !flags.no_load {
        let mut loads = load(common, &servers, &data)?;
        flags.also.iter().try_for_each(|path| loads.extend_from_json(path))?;
        report.show(loads.clone());
        report.show(loads.ratios("load ratios", &LOAD_RATIOS));
    }
    report.show(floor(flags, &servers, &requests)?);
    let mut table = Table::new("search", &["server", "ef"]);
    let mut every_round = Table::new("search rounds", &["server", "ef", "round"]);
    let mut threads = Table::new("search threads", &["server", "ef", "thread"]);
    for &ef in &flags.ef {
        let mut rounds = vec![Vec::new(); servers.len()];
        for round in 0..flags.rounds.max(1) {
            for (server, figures) in servers.iter().zip(&mut rounds) {
                let search = requests.ask(flags, server, Some(ef), round)?;
                let mut these = Figures::default();
                if round == 0 {
                    these.push("recall", search.judge(&data.space, &truth, &|_| true)?.recall);
                }
                these.extend(search.figures());
                every_round.push(&[&server.name, &ef, &round], these.clone());
                figures.push(these);
                if common.servers.server_threads && round == 0 {
                    for thread in search.working_threads() {
                        let name = format!("{} {}", thread.tid, thread.name);
                        threads.push(&[&server.name, &ef, &name], thread_figures(thread, search.stats.n_ops));
                    }
                }
            }
        }
        for (server, rounds) in servers.iter().zip(&rounds) {
            table.push(&[&server.name, &ef], Figures::median(rounds));
        }
    }
    let mut all = table.clone();
    flags.also.iter().try_for_each(|path| all.extend_from_json(path))?;
    report.show(all.clone());
    report.show(all.ratios("search ratios", &SEARCH_RATIOS));
    report.show(equal_recall::compare(&all));
    report.show(threads);
    report.keep(every_round);
    if let Some(path) = &flags.svg {
        let title = format!("VSIM, recall@{} by queries/s: {}", common.data.count, data.describe());
        std::fs::write(path, plot::svg(&title, &report.caption(), &all))?;
    }
    report.finish(common)
}

fn load(common: &CommonFlags, servers: &[Server], data: &Data) -> io::Result<Table> {
    let mut table = Table::new("load", &["server"]);
    let all = data.all_ids();
    for server in servers {
        let loaded = Loaded::fresh(server, common, &common.set.key, data, &all, common.set.load_clients)?;
        table.push(&[&server.name], loaded.figures);
    }
    Ok(table)
}

/// Elements of the set become the queries: what they find is measured against the same exact scan.
fn elements_as_queries(common: &CommonFlags, data: &mut Data) -> io::Result<Requests> {
    let mut random = SplitMix64::new(common.data.seed);
    let last = data.base.len() as u64 - 1;
    let ids: Vec<u32> = (0..common.data.queries).map(|_| random.range_inclusive(0, last) as u32).collect();
    let rows = data.base.pick(&ids);
    data.ask_for(rows.clone())?;
    Ok(Requests { rows, names: Some(ids), key: common.set.key.clone() })
}

/// What is asked, but for EF.
struct Requests {
    rows: Rows,
    /// The queries' element names, if they are asked for by name.
    names: Option<Vec<u32>>,
    key: String,
}

impl Requests {
    fn ask(&self, flags: &Flags, server: &Server, ef: Option<u32>, round: usize) -> io::Result<Search> {
        let count = flags.common.data.count.to_string();
        let ef_text = ef.unwrap_or(1).to_string();
        let words = [&b"COUNT"[..], count.as_bytes(), b"EF", ef_text.as_bytes()];
        // A key that is not there: the request is read, routed and answered, and nothing is searched.
        let absent = format!("{}:absent", self.key);
        let key = if ef.is_some() { &self.key } else { &absent };
        let mut requests = match &self.names {
            None => vsim_fp32(key, &self.rows, &words),
            Some(ids) => {
                let of_name = |id: &u32| vsim(key, &[b"ELE", id.to_string().as_bytes()], &words);
                ids.iter().map(of_name).collect()
            }
        };
        let least = Duration::from_secs_f64(flags.seconds);
        let askers = Askers { n_clients: flags.clients, cpus: &flags.common.servers.cpu };
        if round == 0 && ef.is_some() {
            return search(server, &requests, askers, Length::PassAndTime(least));
        }
        // Later rounds start elsewhere: a slow server gets through a part of the queries only.
        let n_requests = requests.len();
        requests.rotate_left(round * 311 % n_requests);
        search(server, &requests, askers, Length::Time(least))
    }
}

/// What a request costs that searches nothing: reading and parsing the vector, routing, the reply's system call.
fn floor(flags: &Flags, servers: &[Server], requests: &Requests) -> io::Result<Table> {
    let mut table = Table::new("requests that search nothing", &["server"]);
    for server in servers {
        table.push(&[&server.name], requests.ask(flags, server, None, 0)?.figures());
    }
    Ok(table)
}
