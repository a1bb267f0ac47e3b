//! Keys, and fields of hashes, that die by the thousand every millisecond: nobody ever reads a dead one, their memory comes back
//! when the last is due, and no turn of the server becomes long.
//!
//! `SKERRY_EXPIRY_KEYS` sets how many (5,000,000 is what the project promises for; 100,000 is the default), with a TTL of 1 to
//! 20 seconds; then the promised bounds of turns hold, which need a release build and a machine without other work.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::conn::{Conn, encode};
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};

const LOADERS: usize = 2;
const PIPELINE: usize = 100;
/// Fields of one hash.
const FIELDS: usize = 1000;
/// What a worker may keep beside: buffers of its clients and of its peers, and a latency histogram of each command that it has run.
const BUFFER_BYTES: i64 = 256 << 10;
/// How long after the last deadline everything is to be gone.
const GRACE: Duration = Duration::from_secs(5);

struct Bounds {
    n: usize,
    max_ttl_ms: i64,
    p9999_us: u64,
    longest_us: u64,
}

/// What dies.
#[derive(Clone, Copy, Debug)]
enum What {
    Keys,
    Fields,
}

impl What {
    fn set(self, index: usize, deadline_ms: i64, out: &mut Vec<u8>) {
        let deadline = deadline_ms.to_string();
        match self {
            What::Keys => encode(&["SET", &format!("key:{index}"), &deadline, "PXAT", &deadline], out),
            What::Fields => {
                let (hash, field) = (format!("hash:{}", index / FIELDS), format!("field:{index}"));
                encode(&["HSETEX", &hash, "PXAT", &deadline, "FIELDS", "1", &field, &deadline], out);
            }
        }
    }

    fn get(self, index: usize, out: &mut Vec<u8>) {
        match self {
            What::Keys => encode(&["GET", &format!("key:{index}")], out),
            What::Fields => {
                let (hash, field) = (format!("hash:{}", index / FIELDS), format!("field:{index}"));
                encode(&["HGET", &hash, &field], out);
            }
        }
    }

    /// A reply to `set`.
    fn done(self) -> &'static [u8] {
        match self {
            What::Keys => b"+OK\r\n",
            What::Fields => b":1\r\n",
        }
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

fn bounds() -> Bounds {
    let n = std::env::var("SKERRY_EXPIRY_KEYS").ok().map(|n| n.parse().expect("a number"));
    match n {
        Some(n) => Bounds { n, max_ttl_ms: 20_000, p9999_us: 2000, longest_us: 4000 },
        None => Bounds { n: 100_000, max_ttl_ms: 3000, p9999_us: 20_000, longest_us: 50_000 },
    }
}

fn info(conn: &mut Conn, section: &str, name: &str) -> i64 {
    let info = conn.call(&["INFO", section]);
    let text = String::from_utf8_lossy(info.text().expect("a text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a line");
    line.trim().parse().expect("a number")
}

/// Sets every `LOADERS`th; returns the last deadline.
fn load(server: &Server, what: What, bounds: &Bounds, nth: usize) -> i64 {
    let mut rng = Rng::new(nth as u64);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
    let mut got = vec![0; what.done().len() * PIPELINE];
    let mut last_ms = 0;
    let indices: Vec<usize> = (nth..bounds.n).step_by(LOADERS).collect();
    for indices in indices.chunks(PIPELINE) {
        let mut requests = Vec::new();
        for index in indices {
            let deadline_ms = now_ms() + rng.within(1000, bounds.max_ttl_ms);
            last_ms = last_ms.max(deadline_ms);
            what.set(*index, deadline_ms, &mut requests);
        }
        stream.write_all(&requests).expect("sent");
        let got = &mut got[..what.done().len() * indices.len()];
        stream.read_exact(got).expect("replies");
        assert!(got.chunks(what.done().len()).all(|reply| reply == what.done()), "{what:?} set");
    }
    last_ms
}

/// Reads at random until it is over: what is there was not due when it was asked for. Returns how many were there.
fn read(server: &Server, what: What, n: usize, is_over: &AtomicBool) -> usize {
    let mut rng = Rng::new(99);
    let mut conn = server.connect();
    let mut n_alive = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut requests = Vec::new();
        (0..PIPELINE).for_each(|_| what.get(rng.below(n), &mut requests));
        let asked_ms = now_ms();
        conn.send_raw(&requests).expect("sent");
        for _ in 0..PIPELINE {
            let reply = conn.read().expect("a reply");
            let Some(text) = reply.text() else {
                assert_eq!(reply, Reply::NullBulk);
                continue;
            };
            let deadline_ms: i64 = String::from_utf8_lossy(text).parse().expect("a deadline");
            assert!(deadline_ms >= asked_ms, "dead for {} ms when asked for", asked_ms - deadline_ms);
            n_alive += 1;
        }
    }
    n_alive
}

/// Sets all and waits until they are gone, while somebody reads; the memory that they took, and how many were read alive.
fn live_and_die(server: &Server, what: What, bounds: &Bounds) -> (i64, usize) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(server, what, bounds.n, &is_over));
        let load = |nth| scope.spawn(move || load(server, what, bounds, nth));
        let loaders: Vec<_> = (0..LOADERS).map(load).collect();
        let last_ms = loaders.into_iter().map(|loader| loader.join().expect("no panic")).max();
        let loaded = info(&mut server.connect(), "memory", "used_memory");
        // The only thing to wait for is the time that the keys have to live.
        let left_ms = last_ms.expect("a loader") - now_ms();
        thread::sleep(Duration::from_millis(left_ms.max(0) as u64) + GRACE);
        is_over.store(true, Ordering::Relaxed);
        (loaded, reader.join().expect("nobody reads a dead value"))
    })
}

fn run(kind: Kind, what: What) {
    let bounds = bounds();
    let server = Server::start(kind, &["--turn-trace".into(), "yes".into()]);
    let mut conn = server.connect();
    // Buffers of workers and between them are made by the first requests and stay; they are no one's data.
    let warm_up = Bounds { n: 20_000, max_ttl_ms: 1000, ..bounds };
    live_and_die(&server, what, &warm_up);
    let empty = info(&mut conn, "memory", "used_memory");
    conn.call(&["CONFIG", "RESETSTAT"]);
    conn.call(&["DEBUG", "TURNS", "RESET"]);
    let (loaded, n_alive) = live_and_die(&server, what, &bounds);
    assert!(n_alive > 0);
    assert_eq!(conn.call(&["DBSIZE"]), Reply::Int(0));
    let expired = match what {
        What::Keys => info(&mut conn, "stats", "expired_keys"),
        What::Fields => info(&mut conn, "stats", "expired_subkeys"),
    };
    assert_eq!(expired, bounds.n as i64);
    let (used, rss) =
        (info(&mut conn, "memory", "used_memory"), info(&mut conn, "memory", "used_memory_rss"));
    println!(
        "{kind:?} {what:?} {}: used_memory empty {empty}, loaded {loaded}, after {used} ({:+.2} %), RSS after {rss}; {n_alive} read alive",
        bounds.n,
        (used - empty) as f64 * 100.0 / empty as f64
    );
    let report = conn.call(&["DEBUG", "TURNS"]);
    let lines = report.items().expect("a line a worker");
    let lines = lines.iter().map(|line| String::from_utf8_lossy(line.text().expect("text")).into_owned());
    let lines: Vec<String> = lines.collect();
    println!("{}", lines.join("\n"));
    let n_workers = lines.len() as i64;
    assert!(used - empty <= (empty / 50).max(BUFFER_BYTES * n_workers), "{} bytes stay", used - empty);
    for line in lines {
        let of = |name: &str| -> u64 {
            let number = line.split(name).nth(1).and_then(|rest| rest.split(' ').next());
            number.and_then(|us| us.parse().ok()).expect("a time")
        };
        assert!(of("p99.99=") <= bounds.p9999_us && of("max=") <= bounds.longest_us, "a turn is long");
    }
}

#[test]
fn keys_die_on_one_worker() {
    run(Kind::Skerry { threads: 1 }, What::Keys);
}

#[test]
fn keys_die_on_two_workers() {
    run(Kind::Skerry { threads: 2 }, What::Keys);
}

#[test]
fn fields_die_on_two_workers() {
    run(Kind::Skerry { threads: 2 }, What::Fields);
}
