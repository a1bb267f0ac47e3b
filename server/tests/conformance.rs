//! Wire-level cases from public bug reports (`conformance/cases.jsonl`), run by `conformance/run_cases.py` over raw
//! sockets against our server with 1, 2 and 4 workers, and against the Redis 8.2.3 their replies were taken from.
//!
//! `conformance/waiting.txt` lists by id the cases that use a command of a later issue. A listed case that passes
//! fails the test as an unlisted one that does not: the list can only be true.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::server::{Kind, Server};

#[test]
fn one_worker() {
    check(Kind::Skerry { threads: 1 });
}

#[test]
fn two_workers() {
    check(Kind::Skerry { threads: 2 });
}

#[test]
fn four_workers() {
    check(Kind::Skerry { threads: 4 });
}

#[test]
fn every_case_passes_on_redis() {
    check(Kind::Redis);
}

fn check(kind: Kind) {
    let server = Server::start(kind, &[]);
    let results = run_cases(server.port);
    let waiting = if server.kind == Kind::Redis { BTreeMap::new() } else { waiting() };
    let mut faults = Vec::new();
    for (id, result) in &results {
        match (result, waiting.get(id)) {
            (Ok(()), Some(reason)) => {
                faults.push(format!("{id} passes: take it off the waiting list ({reason})"))
            }
            (Err(why), None) => faults.push(format!("{id} fails: {why}")),
            (Ok(()), None) | (Err(_), Some(_)) => {}
        }
    }
    faults.extend(
        waiting.keys().filter(|id| !results.contains_key(*id)).map(|id| format!("no case is called {id}")),
    );
    println!("{} cases on {kind:?}, {} of them wait for later issues", results.len(), waiting.len());
    assert!(faults.is_empty(), "{} faults on {kind:?}:\n{}", faults.len(), faults.join("\n"));
}

/// Runs all cases; by id, what came of each.
fn run_cases(port: u16) -> BTreeMap<String, Result<(), String>> {
    let script = dir().join("run_cases.py");
    let out = Command::new("python3").arg(&script).args(["--private", "--port", &port.to_string()]).output();
    let out =
        out.unwrap_or_else(|e| panic!("this test needs python3 on PATH to run {}: {e}", script.display()));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ').map(str::trim);
        let (Some(verdict), Some(rest)) = (words.next(), line.get(5..)) else { continue };
        let (id, why) = rest.split_once(' ').unwrap_or((rest, ""));
        match verdict {
            "pass" => results.insert(id.to_owned(), Ok(())),
            "FAIL" => results.insert(id.to_owned(), Err(why.trim().to_owned())),
            _ => None,
        };
    }
    let n_cases = std::fs::read_to_string(dir().join("cases.jsonl")).expect("the cases").lines().count();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(results.len(), n_cases, "every case has a verdict:\n{text}\n{errors}");
    results
}

fn waiting() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(dir().join("waiting.txt")).expect("the waiting list");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (id, reason) = line.split_once(' ').unwrap_or((line, ""));
            assert!(!reason.trim().is_empty(), "{id} waits without a reason");
            (id.to_owned(), reason.trim().to_owned())
        })
        .collect()
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}
