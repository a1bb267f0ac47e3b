//! Every file of memtier-configs/ parses, means the same to xargs, and uses memtier's flags only.

use skerry_bench::flags::{self, CommandsKind, Length, Workload};
use skerry_bench::response_file;
use std::path::PathBuf;
use std::process::Command;

/// The workloads the results table needs; a file missing here is a row missing there.
const EXPECTED: &[&str] = &[
    "append",
    "bitcount-1mb",
    "cache-mix",
    "evalsha",
    "geosearch-20km",
    "geosearch-5km",
    "get",
    "get-monitored",
    "get-p1",
    "get-tracked",
    "hgetall-50",
    "hset",
    "incr",
    "lpush",
    "lrange-100",
    "lrange-600",
    "mget",
    "mset",
    "multi-5-set",
    "pfadd",
    "pfcount",
    "pfmerge",
    "ping",
    "populate",
    "rpush",
    "sadd",
    "scan-100",
    "set",
    "set-p1",
    "setnx",
    "sinter-2x1000",
    "sort-100",
    "sort-by-get-100",
    "vadd",
    "vsim",
    "xadd",
    "xadd-capped",
    "xrange-100",
    "xreadgroup-xack",
    "zadd",
    "zrange-100",
    "zrank-million",
    "zunionstore-2x1000",
];

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../memtier-configs")
}

fn files() -> Vec<(String, PathBuf)> {
    let mut files: Vec<(String, PathBuf)> = std::fs::read_dir(directory())
        .expect("memtier-configs exists")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "args"))
        .map(|path| (path.file_stem().expect("named").to_string_lossy().into_owned(), path))
        .collect();
    files.sort();
    files
}

fn workload(name: &str) -> Workload {
    let argument = format!("@{}", directory().join(name).with_extension("args").display());
    let args = response_file::expand([argument]).expect("readable");
    flags::parse(&args).unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

#[test]
fn the_expected_files_are_there_and_parse() {
    let names: Vec<String> = files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, EXPECTED);
    for name in EXPECTED {
        let workload = workload(name);
        assert_eq!(workload.n_threads, 1, "{name}");
        assert!(workload.key_range.minimum >= 1, "{name}: memtier refuses --key-minimum=0");
        let pipeline = if name.ends_with("-p1") || name.starts_with('v') { 1 } else { 30 };
        assert_eq!(workload.pipeline, pipeline, "{name}");
    }
}

#[test]
fn xargs_passes_the_same_arguments() {
    for (name, path) in files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        let ours = response_file::split_as_xargs(&text).expect("well-formed");
        let output = Command::new("xargs").arg("-a").arg(&path).args(["printf", "%s\\n"]).output();
        let output = output.expect("xargs (Debian: findutils) runs");
        assert!(output.status.success(), "{name}");
        let theirs = String::from_utf8(output.stdout).expect("text");
        assert_eq!(ours, theirs.lines().collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn only_vadd_leaves_memtiers_vocabulary() {
    for (name, path) in files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        let ours_alone =
            text.contains("--vector-") || text.contains("__vector__") || text.contains("--server-");
        assert_eq!(ours_alone, name == "vadd", "{name}");
        let has_comment = text.lines().any(|line| line.trim_start().starts_with('#'));
        assert!(!has_comment, "{name}: xargs would pass a comment on");
    }
}

#[test]
fn a_later_flag_overrides_a_file() {
    let argument = format!("@{}", directory().join("hset.args").display());
    let args = response_file::expand([argument, "--pipeline".to_owned(), "1".to_owned()]).expect("readable");
    assert_eq!(flags::parse(&args).expect("parses").pipeline, 1);
}

#[test]
fn populate_covers_every_key_once_between_its_clients() {
    let populate = workload("populate");
    assert_eq!(populate.commands_kind, CommandsKind::SetAndGet);
    assert_eq!(populate.length, Length::AllKeys);
    assert_eq!(populate.n_requests(), Some(1_000_000));
}
