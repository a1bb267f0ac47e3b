//! Real users' code finds nothing to complain about: `scripts/clients` runs redis-cli, redis-benchmark and the programs beside this
//! file (each says in its first lines what it shows) against our server on one and on three workers, and against Redis, so that the
//! programs themselves are known to be right. `scripts/clients PORT PROGRAM` runs one.
//!
//! 10,000 jobs and entries in those under load; `SKERRY_CLIENT_JOBS` changes that.

mod support;

use std::process::Command;
use support::peer::repository;
use support::server::{Kind, Server};

/// What runs on our server so far: all but `functions.js`.
const READY: &[&str] = &[
    "redis-cli",
    "redis-benchmark",
    "redis_py.py",
    "redis_py_contended.py",
    "cache_redis_py.py",
    "stream_workers.py",
    "reserve.py",
    "rate_limit.py",
    "info_scrape.py",
    "ioredis.js",
    "ioredis_scripts.js",
    "stream_workers.js",
    "node_redis.js",
    "cache_node_redis.js",
    "bullmq.js",
    "bullmq_load.js",
    "bullmq_crash.js",
    "rq_queue.py",
    "celery_queue.py",
];

#[test]
fn on_one_worker() {
    run(Kind::Skerry { threads: 1 }, READY);
}

#[test]
fn on_three_workers() {
    run(Kind::Skerry { threads: 3 }, READY);
}

#[test]
fn on_redis() {
    run(Kind::Redis, &[]);
}

fn run(kind: Kind, programs: &[&str]) {
    let server = Server::start(kind, &[]);
    let mut command = Command::new(repository().join("scripts/clients"));
    let out = command.arg(server.port.to_string()).args(programs).output().expect("scripts/clients runs");
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    println!("{text}");
    assert!(out.status.success(), "clients fail on {kind:?}:\n{text}");
}
