//! Vector sets over the wire: recall against TRUTH, one key searched by several workers at once, and searches that go
//! on while the set is changed, emptied, renamed and deleted.
//!
//! Elements carry the generation of their set in their name, so a reply tells which set it came from: after a deletion
//! was answered, no reply to a later request may name an element of the deleted set, whichever worker answers.

mod support;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::conn::{Conn, encode};
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::vectors::{fp32, texts, words};

const DIM: usize = 384;
const N_BASE: usize = 2_000;
/// VADD requests of one connection on their way.
const IN_FLIGHT: usize = 20;

#[test]
fn recall_at_10_on_one_worker() {
    recall_at_10(Kind::Skerry { threads: 1 });
}

#[test]
fn recall_at_10_on_two_workers() {
    recall_at_10(Kind::Skerry { threads: 2 });
}

/// A graph search finds what the scan finds, and both find what the test itself computes.
fn recall_at_10(kind: Kind) {
    let server = Server::start(kind, &[]);
    let (base, queries) = embeddings();
    let mut conn = server.connect();
    add_all(&mut conn, "v", &base, |i| i.to_string());
    let (mut n_found, mut n_exact) = (0, 0);
    for query in &queries {
        let blob = fp32(query);
        let search = |conn: &mut Conn, options: &[&[u8]]| {
            let argv = [&[&b"VSIM"[..], b"v", b"FP32", &blob, b"COUNT", b"10"], options].concat();
            texts(&conn.call(&argv))
        };
        let truth = search(&mut conn, &[b"TRUTH", b"WITHSCORES"]);
        let found = search(&mut conn, &[b"EF", b"100"]);
        assert_eq!((truth.len(), found.len()), (20, 10));
        for pair in truth.chunks(2) {
            let (row, score) = (&base[pair[0].parse::<usize>().expect("a row")], &pair[1]);
            let score: f64 = score.parse().expect("a score");
            assert!((score - (1.0 + cosine(query, row)) / 2.0).abs() < 1e-5, "{pair:?}");
        }
        // Equals are any of them right: a tie with the tenth counts as found.
        let tenth: f64 = truth[19].parse().expect("a score");
        let is_near = |name: &String| {
            (1.0 + cosine(query, &base[name.parse::<usize>().expect("a row")])) / 2.0 >= tenth - 1e-6
        };
        n_found += found.iter().filter(|name| is_near(name)).count();
        n_exact += 10;
    }
    let recall = f64::from(n_found as u32) / f64::from(n_exact);
    println!("recall@10 at EF 100 on {N_BASE} rows: {recall:.4}");
    assert!(recall >= 0.985, "recall@10 is {recall}");
}

/// Eight clients search one key; its owner does not do the work alone.
#[test]
fn both_workers_search_one_key() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let (base, queries) = embeddings();
    add_all(&mut server.connect(), "v", &base, |i| i.to_string());
    let before = worker_ticks(server.pid());
    thread::scope(|scope| {
        for _ in 0..8 {
            let mut conn = server.connect();
            let queries = &queries;
            scope.spawn(move || {
                for _ in 0..8 {
                    for query in queries {
                        let reply = conn.call(&[&b"VSIM"[..], b"v", b"FP32", &fp32(query), b"EF", b"240"]);
                        assert_eq!(reply.items().map(|items| items.len()), Some(10), "{reply:?}");
                    }
                }
            });
        }
    });
    let ticks: Vec<u64> =
        worker_ticks(server.pid()).iter().zip(&before).map(|(now, then)| now - then).collect();
    println!("ticks of 10 ms per worker: {ticks:?}");
    let (least, sum) = (*ticks.iter().min().expect("workers"), ticks.iter().sum::<u64>());
    assert!(sum >= 20, "too little work to tell: {ticks:?}");
    assert!(least * 4 >= sum, "one worker did it nearly alone: {ticks:?}");
}

/// Who searches on another worker sees all of a transaction or nothing of it: on a set that is there, and on one that it makes.
#[test]
fn a_search_sees_no_half_of_a_transaction() {
    const N_ADDED: usize = 12;
    for base in [1, 0] {
        let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
        let mut writers = [server.connect(), server.connect()];
        let mut searchers: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
        if base == 1 {
            words(&mut writers[0], "VADD v VALUES 2 1 0 base NOQUANT");
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for conn in &mut searchers {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut n_without, mut n_with) = (0, 0);
                    while !is_over.load(Ordering::Relaxed) {
                        let reply = words(conn, "VSIM v VALUES 2 1 0 COUNT 100");
                        match reply.items().map(|items| items.len()) {
                            Some(n) if n == base => n_without += 1,
                            Some(n) if n == base + N_ADDED => n_with += 1,
                            _ => panic!("half of a transaction: {reply:?}"),
                        }
                    }
                    println!("{n_without} replies without and {n_with} with what a transaction adds");
                });
            }
            for round in 0..600 {
                let conn = &mut writers[round % 2];
                for verb in ["add", "remove"] {
                    words(conn, "MULTI");
                    for n in 0..N_ADDED {
                        match verb {
                            "add" => words(conn, &format!("VADD v VALUES 2 {n} 1 e{n} NOQUANT")),
                            _ => words(conn, &format!("VREM v e{n}")),
                        };
                    }
                    assert_eq!(words(conn, "EXEC"), Reply::Array(vec![Reply::Int(1); N_ADDED]));
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// Every way to end a set, seen from every worker; and what was moved is found where it is now.
#[test]
fn a_deleted_set_is_found_by_no_worker() {
    let server = Server::start(Kind::Skerry { threads: 4 }, &[]);
    let mut conns: Vec<Conn> = (0..12).map(|_| server.connect()).collect();
    let endings: [&[&str]; 12] = [
        &["DEL @"],
        &["UNLINK @"],
        &["SET @ text"],
        &["RENAME @ {other}@"],
        &["RENAMENX @ {other}@"],
        &["MOVE @ 1"],
        &["EXPIREAT @ 1"],
        &["PEXPIRE @ 1"],
        &["SWAPDB 0 1"],
        &["FLUSHDB"],
        &["FLUSHALL ASYNC"],
        &["MULTI", "VSIM @ ELE a", "DEL @", "EXEC"],
    ];
    for (round, ending) in endings.iter().cycle().take(endings.len() * 6).enumerate() {
        let key = format!("set:{round}");
        let n_conns = conns.len();
        words(&mut conns[round % n_conns], &format!("VADD {key} VALUES 2 1 0 a NOQUANT"));
        for conn in &mut conns {
            // Now each worker has published it or has seen it published.
            assert_eq!(words(conn, &format!("VCARD {key}")), Reply::Int(1));
        }
        for line in *ending {
            let reply = words(&mut conns[(round / 2) % n_conns], &line.replace('@', &key));
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        if ending[0].starts_with("PEXPIRE") {
            while words(&mut conns[0], &format!("PTTL {key}")) != Reply::Int(-2) {}
        }
        let expect_gone = |conns: &mut [Conn]| {
            for conn in conns {
                let reply = words(conn, &format!("VSIM {key} ELE a"));
                match ending[0] {
                    "SET @ text" => assert!(reply.is_error(), "after {ending:?}: {reply:?}"),
                    _ => assert_eq!(reply, Reply::Array(vec![]), "after {ending:?}"),
                }
            }
        };
        expect_gone(&mut conns);
        let moved_to = [
            ("RENAME", format!("{{other}}{key}"), "0"),
            ("MOVE", key.clone(), "1"),
            ("SWAPDB", key.clone(), "1"),
        ];
        for (_, name, db) in moved_to.iter().filter(|(word, ..)| ending[0].starts_with(word)) {
            for conn in &mut conns {
                words(conn, &format!("SELECT {db}"));
                assert_eq!(words(conn, &format!("VCARD {name}")), Reply::Int(1), "after {ending:?}");
                words(conn, "SELECT 0");
            }
            // Known to all under its new name, and still not by the old one.
            expect_gone(&mut conns);
        }
        words(&mut conns[0], "FLUSHALL");
    }
}

/// Four threads search while generation after generation of the set is filled, thinned out and ended. No fault, no reply
/// from a generation whose end was answered before the request was sent, and the memory comes back although the
/// searching goes on.
#[test]
fn searches_go_on_while_the_set_comes_and_goes() {
    const STORM_DIM: usize = 96;
    const N_ELEMENTS: usize = 1_200;
    let mut server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let seed = 0x5ce1_1e55;
    println!("seed {seed:#x}");
    let storm = Arc::new(Storm::default());
    let searchers: Vec<_> = (0..4)
        .map(|n| {
            let (storm, mut conn) = (storm.clone(), server.connect());
            thread::spawn(move || storm.search(&mut conn, STORM_DIM, Rng::new(seed + n)))
        })
        .collect();
    let mut conn = server.connect();
    let mut rng = Rng::new(seed ^ 0xffff);
    let endings = ["VREM", "DEL v", "FLUSHALL", "RENAME v w", "SET v text", "FLUSHDB", "UNLINK v"];
    let mut start = None;
    for (at, ending) in endings.iter().cycle().take(endings.len() + 1).enumerate() {
        let generation = at as u64 + 1;
        let rows: Vec<Vec<f32>> = (0..N_ELEMENTS).map(|_| random_row(&mut rng, STORM_DIM)).collect();
        add_all(&mut conn, "v", &rows, |i| format!("{generation}:{i}"));
        // Thinned out and replaced, so that ids are used again while they are searched.
        for i in 0..N_ELEMENTS / 5 {
            let name = format!("{generation}:{}", 5 * i);
            assert_eq!(words(&mut conn, &format!("VREM v {name}")), Reply::Int(1));
            add_all(&mut conn, "v", &[random_row(&mut rng, STORM_DIM)], |_| name.clone());
        }
        let full = used_memory(&mut conn);
        if *ending == "VREM" {
            (0..N_ELEMENTS).for_each(|i| {
                assert_eq!(words(&mut conn, &format!("VREM v {generation}:{i}")), Reply::Int(1));
            });
            assert_eq!(words(&mut conn, "EXISTS v"), Reply::Int(0));
        } else {
            let reply = words(&mut conn, ending);
            assert!(!reply.is_error(), "{ending}: {reply:?}");
        }
        storm.ended.store(generation, Ordering::SeqCst);
        if *ending == "RENAME v w" {
            assert_eq!(words(&mut conn, "VCARD w"), Reply::Int(N_ELEMENTS as i64));
        }
        words(&mut conn, "DEL v w");
        // The first generation has grown the workers' search buffers and the clients' own: nothing else stays.
        start = Some(settled_memory(&mut conn, start, full));
    }
    storm.is_over.store(true, Ordering::SeqCst);
    for searcher in searchers {
        searcher.join().expect("no searcher saw a deleted set");
    }
    assert!(server.is_alive(), "the server died:\n{}", server.log_tail());
    let n_answers = storm.n_answers.load(Ordering::SeqCst);
    println!("{n_answers} answers with elements");
    assert!(n_answers > 1_000, "the searchers hardly saw the set: {n_answers}");
    assert_eq!(info(&mut conn, "errorstats", "errorstat_PANIC"), None);
}

#[derive(Default)]
struct Storm {
    /// The last generation whose end was answered.
    ended: AtomicU64,
    is_over: AtomicBool,
    n_answers: AtomicU64,
}

impl Storm {
    fn search(&self, conn: &mut Conn, dim: usize, mut rng: Rng) {
        while !self.is_over.load(Ordering::SeqCst) {
            let ended = self.ended.load(Ordering::SeqCst);
            let element = format!("{}:{}", ended + 1, rng.below(1_000));
            let query = fp32(&random_row(&mut rng, dim));
            let reply = match rng.below(8) {
                0 => conn.call(&["VSIM", "v", "ELE", &element, "COUNT", "20"]),
                1 => conn.call(&[&b"VSIM"[..], b"v", b"FP32", &query, b"TRUTH"]),
                2 => conn.call(&["VEMB", "v", &element, "RAW"]),
                3 => conn.call(&["VGETATTR", "v", &element]),
                4 => conn.call(&["VINFO", "v"]),
                _ => conn.call(&[&b"VSIM"[..], b"v", b"FP32", &query, b"EF", b"40"]),
            };
            let items = match &reply {
                Reply::Array(items) => items.as_slice(),
                Reply::Error(text) => {
                    let text = String::from_utf8_lossy(text);
                    assert!(
                        text.starts_with("WRONGTYPE") || text == "ERR element not found in set",
                        "{text}"
                    );
                    &[]
                }
                Reply::NullBulk | Reply::NullArray => &[],
                other => panic!("{other:?}"),
            };
            let names =
                items.iter().filter_map(Reply::text).filter_map(|text| std::str::from_utf8(text).ok());
            let generations: HashSet<u64> =
                names.filter_map(|name| name.split_once(':')?.0.parse().ok()).collect();
            assert!(
                generations.iter().all(|generation| *generation > ended),
                "{generations:?} after {ended} ended"
            );
            self.n_answers.fetch_add(u64::from(!generations.is_empty()), Ordering::SeqCst);
        }
    }
}

/// What the searchers may have made a worker keep since `start`: buffers of searches that had to wait for a slice, which are
/// used again. How many there are at a time depends on who else uses the machine.
const KEPT_FOR_SEARCHERS: u64 = 4 * 32 * 1024;

/// Used memory once what was deleted is freed: at most a twentieth of what the set took is left above `start`, beside buffers.
fn settled_memory(conn: &mut Conn, start: Option<u64>, full: u64) -> u64 {
    let end = Instant::now() + Duration::from_secs(10);
    let (mut before, mut used) = (0u64, used_memory(conn));
    while Instant::now() < end {
        match start {
            Some(start) if used <= start + full.saturating_sub(start) / 20 + KEPT_FOR_SEARCHERS => {
                println!("used_memory: {start} at the start, {full} with the set, {used} after it");
                return start;
            }
            // Nothing more comes back, and the buffers of the searching clients come and go a little.
            None if before.abs_diff(used) < 4_096 => return used,
            Some(_) | None => thread::sleep(Duration::from_millis(5)),
        }
        (before, used) = (used, used_memory(conn));
    }
    panic!("used_memory stays at {used}, it was {start:?} without and {full} with the set");
}

fn used_memory(conn: &mut Conn) -> u64 {
    info(conn, "memory", "used_memory").expect("a field").parse().expect("a number")
}

fn info(conn: &mut Conn, section: &str, field: &str) -> Option<String> {
    let reply = conn.call(&["INFO", section]);
    let text = String::from_utf8_lossy(reply.text()?).into_owned();
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_string))
}

/// User and system ticks of each worker's thread.
fn worker_ticks(pid: u32) -> Vec<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).expect("a thread's file");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the server's threads");
    let mut workers: Vec<(String, u64)> = tasks
        .map(|task| task.expect("a thread").path())
        .map(|task| (read(&task.join("comm")), read(&task.join("stat"))))
        .filter(|(name, _)| name.starts_with("worker-"))
        .map(|(name, stat)| {
            let fields: Vec<&str> =
                stat[stat.rfind(')').expect("a name in brackets") + 2..].split(' ').collect();
            (name, fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime"))
        })
        .collect();
    workers.sort();
    workers.into_iter().map(|(_, ticks)| ticks).collect()
}

/// Adds rows, some in flight; so few that no buffer of the server grows for them.
fn add_all(conn: &mut Conn, key: &str, rows: &[Vec<f32>], name: impl Fn(usize) -> String) {
    for (at, part) in rows.chunks(IN_FLIGHT).enumerate() {
        let mut bytes = Vec::new();
        for (i, row) in part.iter().enumerate() {
            let element = name(IN_FLIGHT * at + i);
            let argv: [&[u8]; 8] =
                [b"VADD", key.as_bytes(), b"FP32", &fp32(row), element.as_bytes(), b"NOQUANT", b"EF", b"100"];
            encode(&argv, &mut bytes);
        }
        conn.send_raw(&bytes).expect("sent");
        for _ in part {
            let reply = conn.read().expect("a reply");
            assert_eq!(reply, Reply::Int(1));
        }
    }
}

fn random_row(rng: &mut Rng, dim: usize) -> Vec<f32> {
    (0..dim).map(|_| rng.within(-1_000, 1_000) as f32 / 1_000.0).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Real sentence embeddings: 2000 rows to load and 100 to search for.
fn embeddings() -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectorset/testdata/text384.f16");
    let bytes = std::fs::read(&path).expect("vectorset/testdata/text384.f16 is in the repository");
    let float = |bytes: &[u8]| f32_of_f16(u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut rows: Vec<Vec<f32>> =
        bytes.chunks_exact(2 * DIM).map(|row| row.chunks_exact(2).map(float).collect()).collect();
    let queries = rows.split_off(N_BASE);
    (rows, queries)
}

fn f32_of_f16(half: u16) -> f32 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 0x3ff));
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        31 => panic!("the rows are finite"),
        _ => sign * (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
    }
}
