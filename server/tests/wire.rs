//! Plays `wire/*.dialogue` against our server with 1, 2 and 4 workers, and against the Redis they were recorded from.
//!
//! `SKERRY_DIALOGUE=string` plays only files whose name contains that. `SKERRY_RECORD=1 cargo test -p skerry-server
//! --test wire recorded` writes the replies of the real Redis into the files; review the diff and commit it.

mod support;

use std::path::PathBuf;
use support::dialogue::{Mode, play};
use support::server::Kind;

#[test]
fn one_worker() {
    play_all(Kind::Skerry { threads: 1 }, Mode::Check);
}

#[test]
fn two_workers() {
    play_all(Kind::Skerry { threads: 2 }, Mode::Check);
}

#[test]
fn four_workers() {
    play_all(Kind::Skerry { threads: 4 }, Mode::Check);
}

/// The expectations are Redis's own: every recorded line is what a live Redis 8.2.3 answers.
#[test]
fn recorded_from_redis() {
    let record = std::env::var_os("SKERRY_RECORD").is_some();
    play_all(Kind::Redis, if record { Mode::Record } else { Mode::Check });
}

fn play_all(kind: Kind, mode: Mode) {
    let mut faults = String::new();
    let mut n_checked = 0;
    for file in dialogues() {
        match play(&file, kind, mode) {
            Ok(n) => n_checked += n,
            Err(report) => faults.push_str(&report),
        }
    }
    println!("{n_checked} replies checked on {kind:?}");
    assert!(faults.is_empty(), "{faults}");
    assert!(n_checked > 0, "no dialogue matches SKERRY_DIALOGUE");
}

fn dialogues() -> Vec<PathBuf> {
    let only = std::env::var("SKERRY_DIALOGUE").unwrap_or_default();
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let entries = std::fs::read_dir(&dir).expect("the dialogues");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "dialogue"));
    files.retain(|f| f.file_stem().is_some_and(|s| s.to_string_lossy().contains(&only)));
    files.sort();
    files
}
