//! The mode `filter`: FILTER expressions that match 50, 10, 1 and 0.1 % of the rows.
//!
//! Each row gets a random rank, and with it attributes that say whether it is in a share of the set: by an equality
//! label (`.tenth == "v0"`) and by a numeric range (`.rank < 2000`), over different rows. Recall is against an exact
//! scan of the matching rows here; the server's own TRUTH is held against the same scan.

use super::data::Data;
use super::feed::{Lanes, feed};
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::Loaded;
use super::report::{Ratio, Report, Table};
use super::search::{Askers, Length, Search, search, vsim_fp32};
use super::server::Server;
use crate::random::SplitMix64;
use crate::truth::Truth;
use clap::Args;
use skerry_resp::encode_command;
use skerry_resp::value::Value;
use std::io;
use std::time::Duration;

/// Labels by how many values they have.
const LABELS: [(&str, u32); 4] = [("half", 2), ("tenth", 10), ("hundredth", 100), ("thousandth", 1000)];
/// Queries that are also asked with TRUTH: it scans the set.
const N_TRUTH_QUERIES: usize = 20;

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// EF of the searches
    #[arg(long, default_value_t = 100)]
    ef: u32,
    /// FILTER-EF of the searches (default: the server's)
    #[arg(long)]
    filter_ef: Option<u32>,
    /// Connections that search, a thread each
    #[arg(short, long, default_value_t = 1)]
    clients: usize,
    /// At least this long for each expression and round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds; medians are told
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

/// An expression and the rows it matches.
struct Filter {
    kind: &'static str,
    share: String,
    expression: String,
    ids: Vec<u32>,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    let common = &flags.common;
    let data = Data::read(&common.data, common.data.rows)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("filter", common, args, &servers, &data.describe())?;
    let ranks = ranks(data.base.len(), common.data.seed);
    load(flags, &servers, &data, &ranks, &mut report)?;
    let mut table = Table::new("search", &["server", "kind", "share"]);
    let unfiltered = Filter {
        kind: "no filter",
        share: "100 %".to_owned(),
        expression: String::new(),
        ids: data.all_ids(),
    };
    let mut plain = vec![Figures::default(); servers.len()];
    for filter in std::iter::once(unfiltered).chain(filters(&ranks)) {
        let truth = data.truth_of(&filter.ids, common.data.count);
        let mut rounds = vec![Vec::new(); servers.len()];
        for round in 0..flags.rounds.max(1) {
            for (server, rounds) in servers.iter().zip(&mut rounds) {
                rounds.push(measure(flags, server, &data, &filter, &truth, round)?);
            }
        }
        for (index, server) in servers.iter().enumerate() {
            let mut figures = Figures::median(&rounds[index]);
            if filter.expression.is_empty() {
                plain[index] = figures.clone();
            } else {
                let ratio = |name| figures.get(name).zip(plain[index].get(name)).map(|(a, b)| a / b);
                figures.push_some("speed_ratio_to_no_filter", ratio("queries_per_s"));
            }
            table.push(&[&server.name, &filter.kind, &filter.share], figures);
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

/// Row by row its place in a random order.
fn ranks(n_rows: usize, seed: u64) -> Vec<u32> {
    let mut ranks: Vec<u32> = (0..n_rows as u32).collect();
    SplitMix64::new(seed).shuffle(&mut ranks);
    ranks
}

fn attributes(rank: u32) -> String {
    let labels: String = LABELS.iter().map(|(name, n)| format!(",\"{name}\":\"v{}\"", rank % n)).collect();
    format!("{{\"rank\":{rank}{labels}}}")
}

fn filters(ranks: &[u32]) -> Vec<Filter> {
    let n_rows = ranks.len() as u32;
    let matching = |matches: &dyn Fn(u32) -> bool| -> Vec<u32> {
        (0..n_rows).filter(|&id| matches(ranks[id as usize])).collect()
    };
    let mut filters = Vec::new();
    for (name, n) in LABELS {
        let share = format!("{} %", 100.0 / f64::from(n));
        filters.push(Filter {
            kind: "label",
            share: share.clone(),
            expression: format!(".{name} == \"v0\""),
            ids: matching(&|rank| rank % n == 0),
        });
        let end = n_rows.div_ceil(n);
        filters.push(Filter {
            kind: "range",
            share,
            expression: format!(".rank < {end}"),
            ids: matching(&|rank| rank < end),
        });
    }
    filters
}

fn load(
    flags: &Flags,
    servers: &[Server],
    data: &Data,
    ranks: &[u32],
    report: &mut Report,
) -> io::Result<()> {
    let common = &flags.common;
    let all = data.all_ids();
    let mut loads = Table::new("load", &["server", "command"]);
    for server in servers {
        let key = &common.set.key;
        let loaded = Loaded::fresh(server, common, key, data, &all, common.set.load_clients)?;
        loads.push(&[&server.name, &"VADD"], loaded.figures);
        let lanes = Lanes {
            n_clients: common.set.load_clients,
            n_in_flight: common.set.load_pipeline,
            cpus: &common.servers.cpu,
        };
        let encode = |id: u32, out: &mut Vec<u8>| {
            let json = attributes(ranks[id as usize]);
            encode_command(&["VSETATTR", key.as_str(), &id.to_string(), &json], out);
        };
        let is_set = |_, reply: &Value| matches!(reply, Value::Integer(1) | Value::Boolean(true));
        let fed = feed(server, "VSETATTR", lanes, &all, &encode, &is_set)?;
        loads.push(&[&server.name, &"VSETATTR"], fed.figures());
    }
    report.show(loads);
    Ok(())
}

fn measure(
    flags: &Flags,
    server: &Server,
    data: &Data,
    filter: &Filter,
    truth: &Truth,
    round: usize,
) -> io::Result<Figures> {
    let time = Duration::from_secs_f64(flags.seconds);
    if round > 0 {
        return Ok(ask(flags, server, data, filter, false, Length::Time(time))?.figures());
    }
    let is_match = |id: u32| filter.ids.binary_search(&id).is_ok();
    let pass = ask(flags, server, data, filter, false, Length::PassAndTime(time))?;
    let mut figures = Figures::default();
    figures.push("n_matches", filter.ids.len() as f64);
    figures.extend(pass.judge(&data.space, truth, &is_match)?.figures());
    let n_to_return = truth.n_to_find;
    let n_full = pass.found.iter().filter(|ids| ids.len() >= n_to_return).count();
    figures.push("full_replies_ratio", n_full as f64 / pass.found.len() as f64);
    let scan = ask(flags, server, data, filter, true, Length::PassAndTime(Duration::ZERO))?;
    figures.push("truth_recall", scan.judge(&data.space, truth, &is_match)?.recall);
    figures.extend(pass.figures());
    Ok(figures)
}

fn ask(
    flags: &Flags,
    server: &Server,
    data: &Data,
    filter: &Filter,
    with_truth: bool,
    length: Length,
) -> io::Result<Search> {
    let common = &flags.common;
    let (count, ef) = (common.data.count.to_string(), flags.ef.to_string());
    let filter_ef = flags.filter_ef.map(|n| n.to_string());
    let mut words: Vec<&[u8]> = vec![b"COUNT", count.as_bytes(), b"EF", ef.as_bytes()];
    if !filter.expression.is_empty() {
        words.extend([&b"FILTER"[..], filter.expression.as_bytes()]);
        if let Some(n) = &filter_ef {
            words.extend([&b"FILTER-EF"[..], n.as_bytes()]);
        }
    }
    let askers = Askers { n_clients: flags.clients, cpus: &common.servers.cpu };
    if with_truth {
        words.push(b"TRUTH");
        let queries = data.queries.first(N_TRUTH_QUERIES);
        return search(server, &vsim_fp32(&common.set.key, &queries, &words), askers, length);
    }
    search(server, &vsim_fp32(&common.set.key, &data.queries, &words), askers, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_has_its_rows_and_its_attributes() {
        let ranks = ranks(5000, 3);
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..5000).collect::<Vec<_>>());
        let filters = filters(&ranks);
        let sizes: Vec<_> = filters.iter().map(|f| (f.kind, f.share.as_str(), f.ids.len())).collect();
        assert_eq!(
            sizes,
            [
                ("label", "50 %", 2500),
                ("range", "50 %", 2500),
                ("label", "10 %", 500),
                ("range", "10 %", 500),
                ("label", "1 %", 50),
                ("range", "1 %", 50),
                ("label", "0.1 %", 5),
                ("range", "0.1 %", 5),
            ]
        );
        assert_eq!(
            attributes(1234),
            r#"{"rank":1234,"half":"v0","tenth":"v4","hundredth":"v34","thousandth":"v234"}"#
        );
        for filter in filters.iter().filter(|f| f.kind == "label") {
            let (_, value) = filter.expression.split_once(" == ").expect("an equality");
            let name = &filter.expression[1..filter.expression.len() - value.len() - 4];
            let says = |id: &u32| attributes(ranks[*id as usize]).contains(&format!("\"{name}\":{value}"));
            assert!(filter.ids.iter().all(says), "{}", filter.expression);
        }
    }
}
