//! Real clients find nothing to complain about: `scripts/clients` runs redis-cli, redis-benchmark, redis-py and
//! ioredis against our server with two workers, and against Redis, so that the script itself is known to be right.

mod support;

use std::process::Command;
use support::peer::repository;
use support::server::{Kind, Server};

#[test]
fn on_two_workers() {
    run(Kind::Skerry { threads: 2 });
}

#[test]
fn on_redis() {
    run(Kind::Redis);
}

fn run(kind: Kind) {
    let server = Server::start(kind, &[]);
    let out = Command::new(repository().join("scripts/clients")).arg(server.port.to_string()).output();
    let out = out.expect("scripts/clients runs");
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    println!("{text}");
    assert!(out.status.success(), "clients fail on {kind:?}:\n{text}");
}
