//! Eviction under each policy: memory stays below `maxmemory`, the right keys go, and nothing is refused that can be kept.

mod support;

use std::time::{Duration, Instant};

use support::conn::Conn;
use support::reply::Reply;
use support::server::{Kind, Server};

const VALUE_BYTES: usize = 1000;
const LIMIT: &str = "12mb";
const LIMIT_BYTES: u64 = 12 << 20;
const ASKING_BYTES: u64 = 256 << 10;

fn start(threads: usize, policy: &str) -> Server {
    let args = ["--maxmemory", LIMIT, "--maxmemory-policy", policy, "--notify-keyspace-events", "KEA"];
    Server::start(Kind::Skerry { threads }, &args.map(String::from))
}

fn info(conn: &mut Conn, field: &str) -> u64 {
    let Reply::Bulk(text) = conn.call(&["INFO", "everything"]) else { panic!("INFO is text") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in INFO"))
}

fn integer(reply: Reply) -> i64 {
    match reply {
        Reply::Int(n) => n,
        other => panic!("an integer, not {other:?}"),
    }
}

/// Waits until eviction has brought used memory below the limit.
fn settle(conn: &mut Conn) {
    let end = Instant::now() + Duration::from_secs(20);
    // INFO itself takes some, as it is asked.
    while info(conn, "used_memory") > info(conn, "maxmemory") + ASKING_BYTES {
        assert!(Instant::now() < end, "used memory stays above the limit: {}", info(conn, "used_memory"));
    }
}

/// Writes `n` keys named `prefix:0` and so on; how many were refused.
fn fill(conn: &mut Conn, prefix: &str, n: usize, ttl_s: impl Fn(usize) -> Option<usize>) -> usize {
    let value = "x".repeat(VALUE_BYTES);
    let mut n_refused = 0;
    for at in 0..n {
        let (key, ttl) = (format!("{prefix}:{at}"), ttl_s(at).map(|ttl| ttl.to_string()));
        let reply = match &ttl {
            None => conn.call(&["SET", &key, &value]),
            Some(ttl) => conn.call(&["SET", &key, &value, "EX", ttl]),
        };
        if let Reply::Error(text) = &reply {
            assert_eq!(text, b"OOM command not allowed when used memory > 'maxmemory'.");
            n_refused += 1;
        }
    }
    n_refused
}

fn n_present(conn: &mut Conn, prefix: &str, n: usize) -> i64 {
    (0..n).map(|at| integer(conn.call(&["EXISTS", &format!("{prefix}:{at}")]))).sum()
}

/// Every policy that evicts any key takes three times what fits, refuses nothing, and counts what goes.
#[test]
fn allkeys_policies_keep_the_limit_and_refuse_nothing() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-lrm", "allkeys-random"] {
        for threads in [1, 3] {
            let server = start(threads, policy);
            let mut conn = server.connect();
            assert_eq!(fill(&mut conn, "k", 30_000, |_| None), 0, "{policy}, {threads} workers");
            settle(&mut conn);
            let n_keys = integer(conn.call(&["DBSIZE"]));
            // INFO takes memory and may evict some more.
            let n_counted = n_keys + info(&mut conn, "evicted_keys") as i64;
            assert!((30_000..30_500).contains(&n_counted), "{policy}: {n_counted}");
            assert!(n_keys > 6000, "{policy} keeps what fits: {n_keys}");
            assert!(info(&mut conn, "used_memory") <= LIMIT_BYTES + ASKING_BYTES);
        }
    }
}

/// Volatile policies evict keys with a deadline only, and refuse writes when there are no more.
#[test]
fn volatile_policies_spare_the_others() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-lrm", "volatile-random", "volatile-ttl"] {
        for threads in [1, 3] {
            let server = start(threads, policy);
            let mut conn = server.connect();
            assert_eq!(fill(&mut conn, "stays", 3000, |_| None), 0);
            assert_eq!(fill(&mut conn, "goes", 20_000, |_| Some(1000)), 0, "{policy}, {threads} workers");
            assert_eq!(n_present(&mut conn, "stays", 3000), 3000, "{policy}");
            assert!(info(&mut conn, "evicted_keys") > 10_000);
            let n_refused = fill(&mut conn, "more", 12_000, |_| None);
            assert!(n_refused > 1000, "{policy}: {n_refused} refused");
            settle(&mut conn);
            assert_eq!(n_present(&mut conn, "stays", 3000), 3000, "{policy}");
            assert_eq!(n_present(&mut conn, "goes", 20_000), 0, "{policy}");
            // Buffers that have gone meanwhile leave a little room.
            assert!(fill(&mut conn, "last", 3000, |_| None) > 1000, "{policy}");
            assert_eq!(n_present(&mut conn, "stays", 3000), 3000, "{policy}");
        }
    }
}

/// Few volatile keys among many others are found, too.
#[test]
fn a_few_volatile_keys_are_found_among_many() {
    let server = start(1, "volatile-lru");
    let mut conn = server.connect();
    assert_eq!(fill(&mut conn, "stays", 9000, |_| None), 0);
    assert_eq!(fill(&mut conn, "goes", 60, |_| Some(1000)), 0);
    assert!(fill(&mut conn, "more", 3000, |_| None) > 0);
    settle(&mut conn);
    assert_eq!(n_present(&mut conn, "goes", 60), 0);
    assert_eq!(n_present(&mut conn, "stays", 9000), 9000);
}

#[test]
fn the_soonest_deadlines_go_first() {
    let server = start(1, "volatile-ttl");
    let mut conn = server.connect();
    assert_eq!(fill(&mut conn, "late", 4000, |_| Some(100_000)), 0);
    assert_eq!(fill(&mut conn, "soon", 20_000, |_| Some(100)), 0);
    settle(&mut conn);
    assert_eq!(n_present(&mut conn, "late", 4000), 4000);
}

/// What is read again and again stays, whatever else is written once.
#[test]
fn keys_in_use_stay() {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let server = start(2, policy);
        let mut conn = server.connect();
        assert_eq!(fill(&mut conn, "hot", 500, |_| None), 0);
        // The access clock counts seconds: memory must not be filled anew in one.
        let began = Instant::now();
        for round in 0..40 {
            assert_eq!(fill(&mut conn, &format!("cold{round}"), 500, |_| None), 0);
            for at in 0..500 {
                conn.call(&["GET", &format!("hot:{at}")]);
            }
            let due = Duration::from_millis(150 * (round + 1));
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        assert!(info(&mut conn, "evicted_keys") > 5000);
        let n_hot = n_present(&mut conn, "hot", 500);
        assert!(n_hot >= 490, "{policy}: {n_hot} of 500");
    }
}

/// LRM looks at changes alone: a key that is read and not written goes before one that was written later.
#[test]
fn reads_do_not_keep_a_key_that_nobody_changes() {
    let server = start(1, "allkeys-lrm");
    let mut conn = server.connect();
    conn.call(&["SET", "k", "v"]);
    let until = Instant::now() + Duration::from_millis(2300);
    while Instant::now() < until {
        conn.call(&["GET", "k"]);
    }
    assert!(integer(conn.call(&["OBJECT", "IDLETIME", "k"])) >= 2);
    conn.call(&["APPEND", "k", "v"]);
    assert_eq!(integer(conn.call(&["OBJECT", "IDLETIME", "k"])), 0);
}

/// A lower limit takes effect at once, and by slices: others are answered meanwhile. WATCH takes an eviction for a change.
#[test]
fn a_lower_limit_evicts_at_once() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    assert_eq!(fill(&mut conn, "k", 20_000, |_| None), 0);
    let mut watcher = server.connect();
    watcher.call(&["WATCH", "k:1"]);
    watcher.call(&["MULTI"]);
    watcher.call(&["PING"]);
    conn.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1mb"]);
    settle(&mut conn);
    assert!(integer(conn.call(&["DBSIZE"])) < 1000);
    assert_eq!(integer(conn.call(&["EXISTS", "k:1"])), 0, "one of twenty keys is left; try another seed");
    assert!(matches!(watcher.call(&["EXEC"]), Reply::Null | Reply::NullArray | Reply::NullBulk));
}

/// Large values go as a whole, and their memory comes back before more is evicted than needed.
#[test]
fn large_collections_are_not_evicted_in_excess() {
    let server = start(1, "allkeys-lru");
    let mut conn = server.connect();
    let members: Vec<String> = (0..40_000).map(|at| format!("member:{at:020}")).collect();
    for chunk in members.chunks(1000) {
        let mut argv = vec!["SADD", "big"];
        argv.extend(chunk.iter().map(String::as_str));
        conn.call(&argv);
    }
    assert_eq!(fill(&mut conn, "k", 8000, |_| None), 0);
    settle(&mut conn);
    let n_keys = integer(conn.call(&["DBSIZE"]));
    assert!(n_keys > 5000, "{n_keys} keys are left");
}
