//! The mode `transfer`: a set built in one server, DUMPed, and RESTOREd in each server: is it the same set there?
//!
//! With one server the set comes back to where it was; with peers every pair is tried, both ways.

use super::data::Data;
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::{Loaded, delete};
use super::report::{Report, Table};
use super::search::{Askers, Length, search, vsim_fp32};
use super::server::Server;
use super::wrong;
use crate::truth::Truth;
use clap::Args;
use skerry_resp::value::Value;
use std::io;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// EF of the searches
    #[arg(long, default_value_t = 100)]
    ef: u32,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    let common = &flags.common;
    let data = Data::read(&common.data, common.data.rows)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("transfer", common, args, &servers, &data.describe())?;
    let truth = data.truth_of_all(common.data.count)?;
    let mut table = Table::new("dumped and restored", &["from", "to"]);
    for from in &servers {
        let key = &common.set.key;
        Loaded::fresh(from, common, key, &data, &data.all_ids(), common.set.load_clients)?;
        let recall = recall(flags, from, key, &data, &truth)?;
        let start = Instant::now();
        let Value::Bulk(payload) = from.connect()?.ask(&["DUMP", key])? else {
            return Err(wrong(format!("{}: DUMP gives no payload", from.name)));
        };
        let dump_ms = start.elapsed().as_secs_f64() * 1000.0;
        for to in &servers {
            let mut figures = Figures::default();
            figures.push("payload_bytes_per_row", payload.len() as f64 / data.base.len() as f64);
            figures.push("dump_ms", dump_ms);
            figures.push("recall", recall);
            restored(flags, to, &payload, &data, &truth, &mut figures)?;
            table.push(&[&from.name, &to.name], figures);
        }
    }
    report.show(table);
    report.finish(common)
}

fn restored(
    flags: &Flags,
    to: &Server,
    payload: &[u8],
    data: &Data,
    truth: &Truth,
    figures: &mut Figures,
) -> io::Result<()> {
    let key = format!("{}:restored", flags.common.set.key);
    delete(to, &key)?;
    let start = Instant::now();
    to.connect()?
        .ask(&[&b"RESTORE"[..], key.as_bytes(), b"0", payload])
        .map_err(|e| wrong(format!("{}: {e}", to.name)))?;
    figures.push("restore_ms", start.elapsed().as_secs_f64() * 1000.0);
    match to.connect()?.ask(&["VCARD", &key])? {
        Value::Integer(n) if n == data.base.len() as i64 => {}
        other => return Err(wrong(format!("{}: VCARD of what was restored: {other:?}", to.name))),
    }
    figures.push("restored_recall", recall(flags, to, &key, data, truth)?);
    delete(to, &key)
}

fn recall(flags: &Flags, server: &Server, key: &str, data: &Data, truth: &Truth) -> io::Result<f64> {
    let (count, ef) = (flags.common.data.count.to_string(), flags.ef.to_string());
    let words = [&b"COUNT"[..], count.as_bytes(), b"EF", ef.as_bytes()];
    let requests = vsim_fp32(key, &data.queries, &words);
    let askers = Askers { n_clients: 1, cpus: &flags.common.servers.cpu };
    let pass = search(server, &requests, askers, Length::PassAndTime(Duration::ZERO))?;
    Ok(pass.judge(&data.space, truth, &|_| true)?.recall)
}
