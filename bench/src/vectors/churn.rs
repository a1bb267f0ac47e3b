//! The mode `churn`: delete half, then nine tenths, insert all again, round after round, in random order and cluster by
//! cluster; after each step recall, survivors that cannot be found, and memory.
//!
//! A survivor is findable if VSIM of its own name answers it among COUNT, and VISMEMBER knows it. A last round more
//! holds each step against a set built at once from the same rows; memory is read before it.

use super::data::Data;
use super::feed::{Lanes, feed};
use super::figures::Figures;
use super::flags::CommonFlags;
use super::load::{add, delete};
use super::report::{Report, Table};
use super::search::{Askers, Length, rows_of_reply, search, vsim, vsim_fp32};
use super::server::Server;
use super::wrong;
use crate::random::SplitMix64;
use crate::truth::{Truth, dot};
use clap::{Args, ValueEnum};
use skerry_resp::encode_command;
use skerry_resp::value::Value;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: CommonFlags,
    /// EF of the searches
    #[arg(long, default_value_t = 100)]
    ef: u32,
    /// Rounds of delete and reinsert
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// In which orders rows are deleted
    #[arg(long, value_enum, value_delimiter = ',', default_value = "random,clustered")]
    order: Vec<Order>,
    /// How many survivors are asked for at each step; 0: all
    #[arg(long, default_value_t = 0)]
    survivors: usize,
    /// Leave out the last round, which compares with sets built at once
    #[arg(long)]
    no_fresh_build: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    Random,
    /// What is nearest to a row drawn at random goes first.
    Clustered,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Clustered => "clustered",
        }
    }
}

/// One server under churn.
struct Churn<'a> {
    flags: &'a Flags,
    server: &'a Server,
    data: &'a Data,
    lanes: Lanes<'a>,
}

pub(super) fn run(flags: &Flags, args: &[String]) -> io::Result<()> {
    let common = &flags.common;
    let data = Data::read(&common.data, common.data.rows)?;
    let servers = Server::all(&common.servers)?;
    let mut report = Report::start("churn", common, args, &servers, &data.describe())?;
    let lanes = Lanes {
        n_clients: common.set.load_clients,
        n_in_flight: common.set.load_pipeline,
        cpus: &common.servers.cpu,
    };
    for server in &servers {
        for &order in &flags.order {
            let churn = Churn { flags, server, data: &data, lanes };
            churn.run(order, &mut report)?;
        }
    }
    report.finish(common)
}

impl Churn<'_> {
    fn key(&self) -> &str {
        &self.flags.common.set.key
    }

    fn run(&self, order: Order, report: &mut Report) -> io::Result<()> {
        let title: &'static str = match order {
            Order::Random => "churn in random order",
            Order::Clustered => "churn cluster by cluster",
        };
        let mut steps = Table::new(title, &["server", "round", "step"]);
        let all = self.data.all_ids();
        delete(self.server, self.key())?;
        add(self.server, &self.flags.common.set, self.key(), self.data, &all, self.lanes)?;
        steps.push(&[&self.server.name, &0, &"loaded"], self.check(&all)?);
        let mut rss_of_round = Vec::new();
        let n_extra = usize::from(!self.flags.no_fresh_build);
        for round in 1..=self.flags.rounds + n_extra {
            let going = self.going(order, round);
            let (half, most) = (going.len() / 2, going.len() * 9 / 10);
            for (step, range) in [("half deleted", 0..half), ("9/10 deleted", half..most)] {
                self.remove(&going[range.clone()])?;
                let left = sorted(&going[range.end..]);
                let mut figures = self.check(&left)?;
                self.push_fresh(round, &left, &mut figures)?;
                steps.push(&[&self.server.name, &round, &step], figures);
            }
            add(self.server, &self.flags.common.set, self.key(), self.data, &going[..most], self.lanes)?;
            let mut figures = self.check(&all)?;
            rss_of_round.extend(figures.get("rss_mib").filter(|_| round <= self.flags.rounds));
            self.push_fresh(round, &all, &mut figures)?;
            steps.push(&[&self.server.name, &round, &"inserted again"], figures);
        }
        report.show(steps);
        if let [_, second, .., last] = rss_of_round[..] {
            let mut figures = Figures::default();
            figures.push("second_mib", second);
            figures.push("last_mib", last);
            figures.push("ratio", last / second);
            let mut memory = Table::new("memory after the last round to the second", &["server", "order"]);
            memory.push(&[&self.server.name, &order.name()], figures);
            report.show(memory);
        }
        Ok(())
    }

    /// All rows in the order in which this round deletes them.
    fn going(&self, order: Order, round: usize) -> Vec<u32> {
        let mut random = SplitMix64::new(self.flags.common.data.seed ^ (round as u64) << 32);
        let mut ids = self.data.all_ids();
        match order {
            Order::Random => random.shuffle(&mut ids),
            Order::Clustered => {
                let base = self.data.space.base();
                let pivot = base.row(random.range_inclusive(0, base.len() as u64 - 1) as usize);
                let nearness: Vec<f32> = ids.iter().map(|&id| dot(base.row(id as usize), pivot)).collect();
                ids.sort_by(|&a, &b| nearness[b as usize].total_cmp(&nearness[a as usize]));
            }
        }
        ids
    }

    fn remove(&self, ids: &[u32]) -> io::Result<()> {
        let encode = |id: u32, out: &mut Vec<u8>| {
            encode_command(&["VREM", self.key(), &id.to_string()], out);
        };
        let is_removed = |_, reply: &Value| matches!(reply, Value::Integer(1) | Value::Boolean(true));
        feed(self.server, "VREM", self.lanes, ids, &encode, &is_removed).map(|_| ())
    }

    /// Recall over exactly `ids`, which are all that is in the set; findability; memory.
    fn check(&self, ids: &[u32]) -> io::Result<Figures> {
        let mut figures = Figures::default();
        figures.push("n_rows", ids.len() as f64);
        let truth = self.data.truth_of(ids, self.flags.common.data.count);
        figures.push("recall", self.recall(self.key(), ids, &truth)?);
        let (n_unfindable, n_missing) = self.lost(ids)?;
        figures.push("n_unfindable", n_unfindable as f64);
        figures.push("n_missing", n_missing as f64);
        let rss_mib = self.server.rss_bytes()?.map(|bytes| bytes as f64 / f64::from(1 << 20));
        figures.push_some("rss_mib", rss_mib);
        Ok(figures)
    }

    fn recall(&self, key: &str, ids: &[u32], truth: &Truth) -> io::Result<f64> {
        let (count, ef) = (self.flags.common.data.count.to_string(), self.flags.ef.to_string());
        let words = [&b"COUNT"[..], count.as_bytes(), b"EF", ef.as_bytes()];
        let requests = vsim_fp32(key, &self.data.queries, &words);
        let askers = Askers { n_clients: 1, cpus: self.lanes.cpus };
        let pass = search(self.server, &requests, askers, Length::PassAndTime(Duration::ZERO))?;
        let judged = pass.judge(&self.data.space, truth, &|id| ids.binary_search(&id).is_ok())?;
        if judged.n_wrong > 0 {
            return Err(wrong(format!("{}: a reply names a deleted row", self.server.name)));
        }
        Ok(judged.recall)
    }

    /// Survivors that VSIM of their own name does not answer, and that VISMEMBER does not know.
    fn lost(&self, ids: &[u32]) -> io::Result<(u64, u64)> {
        let step = if self.flags.survivors == 0 { 1 } else { ids.len().div_ceil(self.flags.survivors) };
        let asked: Vec<u32> = ids.iter().copied().step_by(step.max(1)).collect();
        let (count, ef) = (self.flags.common.data.count.to_string(), self.flags.ef.to_string());
        let words = [&b"COUNT"[..], count.as_bytes(), b"EF", ef.as_bytes()];
        let (n_unfindable, n_missing) = (AtomicU64::new(0), AtomicU64::new(0));
        let encode = |id: u32, out: &mut Vec<u8>| {
            out.extend_from_slice(&vsim(self.key(), &[b"ELE", id.to_string().as_bytes()], &words));
        };
        let names_itself = |id: u32, reply: &Value| {
            let is_found = rows_of_reply(reply).is_ok_and(|rows| rows.contains(&id));
            n_unfindable.fetch_add(u64::from(!is_found), Ordering::Relaxed);
            true
        };
        feed(self.server, "VSIM ELE", self.lanes, &asked, &encode, &names_itself)?;
        let encode = |id: u32, out: &mut Vec<u8>| {
            encode_command(&["VISMEMBER", self.key(), &id.to_string()], out);
        };
        let is_member = |_, reply: &Value| {
            let is_there = matches!(reply, Value::Integer(1) | Value::Boolean(true));
            n_missing.fetch_add(u64::from(!is_there), Ordering::Relaxed);
            true
        };
        feed(self.server, "VISMEMBER", self.lanes, &asked, &encode, &is_member)?;
        Ok((n_unfindable.into_inner(), n_missing.into_inner()))
    }

    /// In the round after the last: recall of a set built at once from the same rows.
    fn push_fresh(&self, round: usize, ids: &[u32], figures: &mut Figures) -> io::Result<()> {
        if round <= self.flags.rounds {
            return Ok(());
        }
        let key = format!("{}:fresh", self.key());
        delete(self.server, &key)?;
        add(self.server, &self.flags.common.set, &key, self.data, ids, self.lanes)?;
        let truth = self.data.truth_of(ids, self.flags.common.data.count);
        let fresh = self.recall(&key, ids, &truth)?;
        delete(self.server, &key)?;
        figures.push("fresh_recall", fresh);
        figures.push_some("recall_difference", figures.get("recall").map(|recall| recall - fresh));
        Ok(())
    }
}

fn sorted(ids: &[u32]) -> Vec<u32> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}
