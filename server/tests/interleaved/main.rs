//! Several connections at once beside a live Redis 8.2.3: transactions, scripts and blocked clients, and streams with groups and
//! blocked readers. Seeded random programs of two or three connections, one of which speaks RESP3; every reply is compared.
//!
//! A step is one command on a connection that is not blocked. After it both servers are at rest: its connection has its reply or is
//! blocked, and so is every other, on both the same ones. Whether one is blocked is asked, never waited for: CLIENT LIST says so, and
//! what is answered is there to be read. A wait ends by what fills its key, by CLIENT UNBLOCK, or by the end of its connection; waits of 1 ms
//! are the only ones that end by themselves.
//!
//! `SKERRY_INTERLEAVED_COMMANDS` (default 6,000) commands for each worker count, in programs of 120;
//! `SKERRY_INTERLEAVED_SEED` the first seed. Commands and those of them that were not answered by an error are counted by name and
//! printed, as is who woke whom; in 100,000 commands no count of what a program means to exercise may be zero. A program that
//! differs is shrunk before it is shown.
//!
//! Kept out by construction, since the servers differ by design there (`author.rs`, `Hazards`):
//! - Redis wakes nobody when a command stores its result in the place of a value of another type (SORT STORE over a string). Where somebody
//!   waits for such a key it is deleted first.
//! - With several workers a client whose keys have several owners is served a moment after others that the same transaction or script has
//!   served; and Redis's SWAPDB tells those who wait in the order of a hash table. So when several wait, and one of them for more
//!   than one key, no transaction, script or SWAPDB fills more than one key that somebody waits for.
//! - Redis puts a client that it has tried in vain at the end of all its lines, here it keeps its places. Readers of streams are
//!   tried in vain (their group has nothing new), so none of several streams waits for one that another reader waits for.
//! - A reader looks again at every change of its stream, in Redis only when something has been added or is gone. That shows when XGROUP SETID has
//!   given entries back to a group: it does not for one that somebody waits for.
//! - With several workers CLIENT UNBLOCK in a transaction knows the connections of its own worker alone: there it stays out of transactions.
//! - What has no order or is random (SMEMBERS in a script, SPOP, SCAN) stays out of scripts and transactions; `compare.rs` lists what may differ
//!   elsewhere.

#![allow(unreachable_pub, reason = "a test has no public items")]

mod author;
#[path = "../differential/compare.rs"]
#[allow(dead_code, reason = "shared with the test of single connections")]
mod compare;
mod counts;
#[path = "../differential/draw.rs"]
#[allow(dead_code, reason = "shared with the test of single connections")]
mod draw;
mod pair;
mod rows;
mod scripts;
mod shrink;
#[path = "../support/mod.rs"]
mod support;
#[path = "../differential/table.rs"]
#[allow(dead_code, reason = "shared with the test of single connections")]
mod table;

use author::{Author, Subject};
use counts::Counts;
use pair::{Failure, Pair};
use std::collections::BTreeSet;
use support::server::{Kind, Server};
use support::setting::setting;
use support::words;

const STEPS_PER_PROGRAM: usize = 120;
/// Every program that differs gives one report; more programs find more differences at once.
const MAX_REPORTS: usize = 6;

#[test]
fn queues_and_scripts_as_in_redis_with_1_worker() {
    compare_with_redis(1, Subject::Queues);
}

#[test]
fn queues_and_scripts_as_in_redis_with_3_workers() {
    compare_with_redis(3, Subject::Queues);
}

#[test]
fn streams_as_in_redis_with_1_worker() {
    compare_with_redis(1, Subject::Streams);
}

#[test]
fn streams_as_in_redis_with_3_workers() {
    compare_with_redis(3, Subject::Streams);
}

fn compare_with_redis(threads: usize, subject: Subject) {
    let n_commands = setting("SKERRY_INTERLEAVED_COMMANDS", 6000) as usize;
    let first = setting("SKERRY_INTERLEAVED_SEED", 1);
    let extra = ["--proto-max-bulk-len", "1048576"].map(str::to_owned);
    let mut ours = Server::start(Kind::Skerry { threads }, &extra);
    let theirs = Server::start(Kind::Redis, &extra);
    let known = ours.command_names().iter().map(|name| name.to_ascii_uppercase()).collect();
    let mut counts = Counts::default();
    let mut reports = Vec::new();
    let mut seed = first;
    while counts.n_commands < n_commands && reports.len() < MAX_REPORTS {
        let (program, failure) = run_program(seed, (subject, threads), (&ours, &theirs), &known, &mut counts);
        if let Some(failure) = failure {
            let report = shrink::report((&mut ours, &theirs), seed, &program, &failure);
            reports.push(format!("seed {seed}, {threads} workers: {report}"));
            if !ours.is_alive() {
                ours = Server::start(Kind::Skerry { threads }, &extra);
            }
        }
        seed += 1;
    }
    println!("{subject:?}, {threads} workers, seeds {first}..{seed}\n{counts}");
    assert!(reports.is_empty(), "{} differences:\n{}", reports.len(), reports.join("\n"));
    counts.check(subject, &known);
}

fn run_program(
    seed: u64,
    (subject, threads): (Subject, usize),
    servers: (&Server, &Server),
    known: &BTreeSet<String>,
    counts: &mut Counts,
) -> (Vec<draw::Step>, Option<Failure>) {
    let mut pair = Pair::new(seed, servers);
    let mut author = Author::new(seed, subject, (pair.n_conns(), threads), known);
    let mut program = Vec::new();
    for _ in 0..STEPS_PER_PROGRAM {
        let step = author.next_step(&pair.state);
        program.push(step);
        match pair.run(&program[program.len() - 1], counts) {
            Ok(Some(reply)) => author.note(&program[program.len() - 1], &reply),
            Ok(None) => {}
            Err(failure) => return (program, Some(failure)),
        }
    }
    let failure = pair.finish().err();
    (program, failure)
}
