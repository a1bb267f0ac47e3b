//! COMMAND DOCS says of every command what a live Redis 8.2.3 says: group, age, deprecation and the whole tree of arguments.
//! Summaries and complexities are our own words, and there is no history.

mod support;

use std::collections::BTreeMap;
use support::reply::Reply;
use support::server::{Kind, Server};

const COMPARED: &[&str] = &["group", "since", "module", "doc_flags", "deprecated_since", "arguments"];
/// Arguments of these differ from 8.2.3 on purpose: they are newer.
const NEWER: &[&str] = &["set"];

type Fields = BTreeMap<String, Reply>;

#[test]
fn command_docs_equals_redis() {
    let ours = docs(&Server::start(Kind::Skerry { threads: 1 }, &[]));
    let theirs = docs(&Server::start(Kind::Redis, &[]));
    let mut n_compared = 0;
    let mut faults = Vec::new();
    for (name, fields) in &ours {
        assert!(fields.contains_key("summary"), "{name} has no summary");
        let Some(expected) = theirs.get(name) else { continue };
        n_compared += 1;
        let is_newer = NEWER.contains(&name.as_str());
        for field in COMPARED.iter().filter(|field| !(is_newer && **field == "arguments")) {
            let (got, want) = (fields.get(*field), expected.get(*field));
            if got != want {
                faults.push(format!("{name} {field}:\n  redis {want:?}\n  ours  {got:?}"));
            }
        }
    }
    println!("{n_compared} commands compared");
    assert!(n_compared > 200, "only {n_compared} commands");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn some_commands_and_unknown_ones() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    conn.call(&["HELLO", "3"]);
    let Reply::Map(some) = conn.call(&["COMMAND", "DOCS", "GET", "nosuch", "config|set"]) else {
        panic!("a map")
    };
    let names: Vec<String> = some.iter().map(|(name, _)| text(name)).collect();
    assert_eq!(names, ["get", "config|set"]);
}

/// Every command's fields by its full name, subcommands too.
fn docs(server: &Server) -> BTreeMap<String, Fields> {
    let mut conn = server.connect();
    conn.call(&["HELLO", "3"]);
    let mut docs = BTreeMap::new();
    collect(conn.call(&["COMMAND", "DOCS"]), &mut docs);
    docs
}

fn collect(reply: Reply, docs: &mut BTreeMap<String, Fields>) {
    let Reply::Map(commands) = reply else { panic!("a map of commands: {reply:?}") };
    for (name, fields) in commands {
        let Reply::Map(fields) = fields else { panic!("a map of fields: {fields:?}") };
        let mut fields: Fields = fields.into_iter().map(|(field, value)| (text(&field), value)).collect();
        if let Some(subcommands) = fields.remove("subcommands") {
            collect(subcommands, docs);
        }
        docs.insert(text(&name), fields);
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().expect("a text")).into_owned()
}
