//! README's table of commands is what the command table gives, group by group, against all of Redis 8.10's.
//!
//! `SKERRY_WRITE_README=1 cargo test -p skerry-server --test readme` writes it.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use support::server::{Kind, Server};

const DOCS: &str = include_str!("../src/commands/docs.txt");
/// The groups, as README calls them, in its order.
const GROUPS: &[(&str, &str)] = &[
    ("string", "strings"),
    ("bitmap", "bitmaps"),
    ("hyperloglog", "HyperLogLog"),
    ("list", "lists"),
    ("set", "sets"),
    ("hash", "hashes"),
    ("sorted-set", "sorted sets"),
    ("geo", "geo"),
    ("generic", "keys"),
    ("transactions", "transactions"),
    ("connection", "connection"),
    ("server", "server"),
    ("stream", "streams"),
    ("pubsub", "pub/sub"),
    ("scripting", "scripts and functions"),
    ("cluster", "cluster"),
];
/// The array type of 8.8, of which nothing is here.
const N_ARRAY_COMMANDS: usize = 18;
const VECTOR_COMMANDS: &str =
    "vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange vrem vsetattr vsim";
const BEGIN: &str = "<!-- written by --test readme -->\n";
const END: &str = "<!-- end -->";

#[test]
fn table_of_commands_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(&path).expect("README.md");
    let (before, rest) = readme.split_once(BEGIN).expect("the mark before the table");
    let (written, after) = rest.split_once(END).expect("the mark after the table");
    let table = table();
    if std::env::var_os("SKERRY_WRITE_README").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).expect("README.md is written");
        return;
    }
    assert_eq!(written, table, "SKERRY_WRITE_README=1 writes it anew");
}

fn table() -> String {
    let ours = commands();
    let mut redis: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in DOCS.lines().filter(|line| !line.starts_with(['#', ' '])) {
        let (name, rest) = line.split_once(' ').expect("a group follows the name");
        if !name.contains('|') {
            redis.entry(rest.split(' ').next().expect("a group")).or_default().insert(name);
        }
    }
    assert_eq!(redis.len(), GROUPS.len(), "a group has no name here");
    let mut table = "| group | of Redis 8.10's | not yet |\n|---|---:|---|\n".to_owned();
    let (mut n_all, mut n_supported) = (N_ARRAY_COMMANDS, 0);
    let vectors = VECTOR_COMMANDS.split(' ').collect();
    let groups = GROUPS.iter().map(|(group, shown)| (*shown, &redis[group]));
    for (shown, names) in groups.chain([("vector sets", &vectors)]) {
        let missing: Vec<String> =
            names.iter().filter(|name| !ours.contains(**name)).map(|name| name.to_uppercase()).collect();
        let n = names.len() - missing.len();
        n_all += names.len();
        n_supported += n;
        let missing = if n == 0 { "all".to_owned() } else { missing.join(" ") };
        writeln!(table, "| {shown} | {n} of {} | {missing} |", names.len()).expect("a String takes it");
    }
    writeln!(table, "| arrays (8.8) | 0 of {N_ARRAY_COMMANDS} | all |").expect("a String takes it");
    writeln!(table, "| **all** | **{n_supported} of {n_all}** | |").expect("a String takes it");
    table
}

/// Names of our commands, lower case, without subcommands.
fn commands() -> BTreeSet<String> {
    let server = Server::start(Kind::Skerry { threads: 1 }, &[]);
    server.command_names().into_iter().filter(|name| !name.contains('|')).collect()
}
