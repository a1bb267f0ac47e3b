//! Differential test: seeded random programs on our server and a live Redis 8.2.3, every reply compared.
//!
//! `SKERRY_DIFF_COMMANDS` (default 120,000) commands for each worker count, spread over `SKERRY_DIFF_SEEDS` (4)
//! programs; `SKERRY_DIFF_FIRST_SEED` moves on to fresh ones. At full size (1,000 for each row of `table`) every row must have
//! given 100 substantial replies (no error, null, empty or zero), below that a fifth in proportion; the counts are printed.
//! What may differ is the list in `compare`. A difference is shrunk to a short program before it is shown.

mod compare;
mod draw;
mod events;
mod run;
mod shrink;
#[path = "../support/mod.rs"]
mod support;
mod table;

use draw::{Draw, Step};
use run::{Counts, Pair};
use std::collections::BTreeSet;
use support::server::{Kind, Server};
use support::setting::setting;
use support::words;

/// Commands for each row at full size.
const COMMANDS_PER_ROW: usize = 1000;
/// Every program that differs gives one report; more seeds find more differences at once.
const MAX_REPORTS: usize = 20;
const MIN_GOOD_REPLIES_AT_FULL_SIZE: usize = 100;

#[test]
fn same_as_redis_with_1_worker() {
    compare_with_redis(1);
}

#[test]
fn same_as_redis_with_3_workers() {
    compare_with_redis(3);
}

fn compare_with_redis(threads: usize) {
    let n_commands = setting("SKERRY_DIFF_COMMANDS", 120_000) as usize;
    let n_seeds = setting("SKERRY_DIFF_SEEDS", 4).max(1) as usize;
    let first_seed = setting("SKERRY_DIFF_FIRST_SEED", 1);
    // Long offsets are refused then: a bit far out would make a string of 512 MB.
    let extra = ["--proto-max-bulk-len", "1048576"].map(str::to_owned);
    let mut ours = Server::start(Kind::Skerry { threads }, &extra);
    let theirs = Server::start(Kind::Redis, &extra);
    let known = ours.command_names().iter().map(|name| name.to_ascii_uppercase()).collect();
    let mut counts = Counts::new();
    let mut reports = Vec::new();
    for seed in first_seed..first_seed + n_seeds as u64 {
        let mut draw = Draw::new(seed, words::now_ms(), &known);
        let mut program: Vec<Step> = Vec::new();
        while program.len() < n_commands / n_seeds {
            draw.program(&mut program);
        }
        let mut pair = Pair::new(&ours, &theirs);
        if let Err(difference) = pair.run(&program) {
            let report = shrink::report(&mut ours, &theirs, &program, &difference);
            reports.push(format!("seed {seed}, {threads} workers: {report}"));
            if !ours.is_alive() {
                ours = Server::start(Kind::Skerry { threads }, &extra);
            }
        } else if let Err(difference) = pair.compare_keyspaces() {
            reports.push(format!(
                "seed {seed}, {threads} workers, after all replies were the same: {difference}"
            ));
        }
        for (label, n) in pair.counts {
            *counts.entry(label).or_default() += n;
        }
        if reports.len() >= MAX_REPORTS {
            break;
        }
    }
    assert!(reports.is_empty(), "{} differences:\n{}", reports.len(), reports.join("\n"));
    check_counts(&counts, &known, n_commands);
}

fn check_counts(counts: &Counts, known: &BTreeSet<String>, n_commands: usize) {
    let is_run = |row: &&table::Row| row.when == table::When::Always || known.contains(row.command());
    let rows = || table::TABLE.iter().chain(table::WIDE).chain(table::TRANSACTION);
    let full_size = COMMANDS_PER_ROW * rows().filter(is_run).count();
    // Small samples scatter: they are asked for a fifth of their share.
    let share = if n_commands >= full_size { full_size } else { 5 * full_size };
    let least = MIN_GOOD_REPLIES_AT_FULL_SIZE * n_commands.min(full_size) / share;
    let mut low = Vec::new();
    for row in rows() {
        if !is_run(&row) {
            println!("        - {} (a later issue's)", row.template);
            continue;
        }
        let n = counts.get(row.template).copied().unwrap_or(0);
        println!("{n:9} {}", row.template);
        if n < least {
            low.push(format!("{} ({n})", row.template));
        }
    }
    assert!(low.is_empty(), "under {least} good replies each: {}", low.join(", "));
}
