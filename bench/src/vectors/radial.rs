//! The mode `radial`: EPSILON set so that a known number of rows lies within, against TRUTH with the same EPSILON.
//!
//! For each query the exact scan tells how far the last wanted row and the first unwanted one are; EPSILON is put in
//! the middle. VSIM's score is `(1 + cosine) / 2`, and EPSILON keeps scores of at least `1 - EPSILON`.

use super::data::Data;
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::Loaded;
use super::report::{Ratio, Report, Table};
use super::search::{Askers, Length, Search, search, vsim};
use super::server::Server;
use super::wrong;
use crate::truth::{Metric, Truth};
use clap::Args;
use std::io;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// How many rows lie within EPSILON
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    matches: Vec<usize>,
    /// COUNT of the searches (default: twice the matches)
    #[arg(long)]
    radial_count: Option<usize>,
    /// EF of the searches (default: the server's)
    #[arg(long)]
    ef: Option<u32>,
    /// How many of the queries are asked
    #[arg(long, default_value_t = 100)]
    asked: usize,
    /// Connections that search, a thread each
    #[arg(short, long, default_value_t = 1)]
    clients: usize,
    /// At least this long each way and round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds; medians are told
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Search what an earlier call loaded
    #[arg(long)]
    no_load: bool,
}

/// The ways to find what lies within a radius.
const WAYS: [(&str, &[&[u8]]); 2] = [("EPSILON", &[]), ("EPSILON TRUTH", &[b"TRUTH"])];

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    let common = &flags.common;
    if common.data.metric != Metric::Cosine {
        return Err(wrong("radial is about scores of cosine sets"));
    }
    let mut data = Data::read(&common.data, common.data.rows)?;
    if let Some(n) = flags.matches.iter().find(|&&n| n == 0 || n >= data.base.len()) {
        return Err(wrong(format!("--matches {n}: must be between 1 and the number of rows")));
    }
    data.ask_for(data.queries.first(flags.asked))?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("radial", common, args, &servers, &data.describe())?;
    if !flags.no_load {
        let mut loads = Table::new("load", &["server"]);
        for server in &servers {
            let loaded = Loaded::fresh(
                server,
                common,
                &common.set.key,
                &data,
                &data.all_ids(),
                common.set.load_clients,
            )?;
            loads.push(&[&server.name], loaded.figures);
        }
        report.show(loads);
    }
    let mut table = Table::new("search", &["server", "matches", "way"]);
    for &n_matches in &flags.matches {
        // One more than wanted: the first row outside.
        let truth = data.truth_of(&data.all_ids(), n_matches + 1);
        let mut rounds = vec![vec![Vec::new(); WAYS.len()]; servers.len()];
        for round in 0..flags.rounds.max(1) {
            for (server, rounds) in servers.iter().zip(&mut rounds) {
                for ((_, words), figures) in WAYS.iter().zip(rounds) {
                    figures.push(measure(flags, server, &data, &truth, n_matches, words, round)?);
                }
            }
        }
        for (server, rounds) in servers.iter().zip(&rounds) {
            let ways: Vec<Figures> = rounds.iter().map(|figures| Figures::median(figures)).collect();
            for ((way, _), mut figures) in WAYS.iter().zip(ways.clone()) {
                let scan = ways.last().and_then(|scan| scan.get("queries_per_s"));
                let ratio = figures.get("queries_per_s").zip(scan).map(|(a, b)| a / b);
                figures.push_some("speed_ratio_to_truth", ratio);
                table.push(&[&server.name, &n_matches, way], figures);
            }
        }
    }
    report.show(table.clone());
    report.show(table.ratios(
        "search ratios",
        &[
            Ratio { of: "queries_per_s", name: "speed_ratio" },
            Ratio { of: "server_us", name: "server_us_ratio" },
        ],
    ));
    report.finish(common)
}

fn measure(
    flags: &Flags,
    server: &Server,
    data: &Data,
    truth: &Truth,
    n_matches: usize,
    words: &[&[u8]],
    round: usize,
) -> io::Result<Figures> {
    let time = Duration::from_secs_f64(flags.seconds);
    let requests = requests(flags, data, truth, n_matches, words);
    let askers = Askers { n_clients: flags.clients, cpus: &flags.common.servers.cpu };
    if round > 0 {
        return Ok(search(server, &requests, askers, Length::Time(time))?.figures());
    }
    let pass = search(server, &requests, askers, Length::PassAndTime(time))?;
    let mut figures = judge(&pass, data, truth, n_matches)?;
    figures.extend(pass.figures());
    Ok(figures)
}

/// Score of the middle between the last row within and the first outside, as a distance from 1.
fn epsilon(truth: &Truth, query: usize, n_matches: usize) -> f64 {
    let similarities = truth.similarities_of(query);
    let cosine = |index: usize| f64::from(similarities[index]);
    (1.0 - (cosine(n_matches - 1) + cosine(n_matches)) / 2.0) / 2.0
}

fn requests(flags: &Flags, data: &Data, truth: &Truth, n_matches: usize, words: &[&[u8]]) -> Vec<Vec<u8>> {
    let count = flags.radial_count.unwrap_or(2 * n_matches).to_string();
    let ef = flags.ef.map(|ef| ef.to_string());
    let request = |query: usize| {
        let epsilon = epsilon(truth, query, n_matches).to_string();
        let mut blob = Vec::new();
        data.queries.append_blob(query, &mut blob);
        let mut all: Vec<&[u8]> = vec![b"COUNT", count.as_bytes(), b"EPSILON", epsilon.as_bytes()];
        if let Some(ef) = &ef {
            all.extend([&b"EF"[..], ef.as_bytes()]);
        }
        all.extend(words);
        vsim(&flags.common.set.key, &[b"FP32", &blob], &all)
    };
    (0..data.queries.len()).map(request).collect()
}

/// Rows nearer to the boundary than this may be on either side of it: float32 at the server, float32 here.
const BOUNDARY: f32 = 2e-6;

fn judge(pass: &Search, data: &Data, truth: &Truth, n_matches: usize) -> io::Result<Figures> {
    let (mut n_right, mut n_wrong, mut n_returned) = (0, 0, 0);
    for (query, ids) in pass.found.iter().enumerate() {
        let first_outside = truth.similarities_of(query)[n_matches];
        let mut within = truth.ids_of(query)[..n_matches].to_vec();
        within.sort_unstable();
        for &id in ids {
            if id as usize >= data.base.len() {
                return Err(wrong(format!("the reply names row {id}, which was never loaded")));
            }
            if within.binary_search(&id).is_ok() {
                n_right += 1;
            } else if data.space.similarity(query, id) < first_outside - BOUNDARY {
                n_wrong += 1;
            }
        }
        n_returned += ids.len();
    }
    let mut figures = Figures::default();
    figures.push("recall", n_right as f64 / (n_matches * pass.found.len()) as f64);
    figures.push("returned", n_returned as f64 / pass.found.len() as f64);
    figures.push("n_wrong", n_wrong as f64);
    Ok(figures)
}
