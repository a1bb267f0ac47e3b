//! Client-side caches, MONITOR and HOTKEYS over several workers: no cache is stale when its invalidations are read, the table of tracked
//! keys is bounded, a slow monitor is closed.

mod support;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use support::conn::Conn;
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};

const N_KEYS: usize = 60;
const N_ROUNDS: usize = 400;
const WAIT: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_millis(300);

fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn key(n: usize) -> String {
    format!("k{n}")
}

/// A connection with a cache.
struct Cache {
    conn: Conn,
    values: BTreeMap<String, Reply>,
    n_invalidated: usize,
}

impl Cache {
    fn new(server: &Server) -> Self {
        let mut conn = server.connect();
        conn.call(&["HELLO", "3"]);
        assert_eq!(conn.call(&["CLIENT", "TRACKING", "ON"]), Reply::Simple(b"OK".to_vec()));
        Self { conn, values: BTreeMap::new(), n_invalidated: 0 }
    }

    fn note_push(&mut self, push: &Reply) {
        let items = push.items().expect("a push has elements");
        assert_eq!(items[0].text(), Some(&b"invalidate"[..]));
        for name in items[1].items().expect("keys") {
            let name = String::from_utf8_lossy(name.text().expect("a name")).into_owned();
            self.values.remove(&name);
            self.n_invalidated += 1;
        }
    }

    /// The next reply that is no push.
    fn reply(&mut self) -> Reply {
        loop {
            match self.conn.read().expect("a reply") {
                push @ Reply::Push(_) => self.note_push(&push),
                reply => return reply,
            }
        }
    }

    fn read_some(&mut self, rng: &mut Rng) {
        let asked: Vec<Vec<String>> = (0..20)
            .map(|_| {
                let n = if rng.below(4) == 0 { 3 } else { 1 };
                (0..n).map(|_| key(rng.below(N_KEYS))).collect()
            })
            .collect();
        for keys in &asked {
            let name = if keys.len() == 1 { "GET" } else { "MGET" };
            let argv: Vec<&str> = std::iter::once(name).chain(keys.iter().map(String::as_str)).collect();
            self.conn.send(&argv).expect("sent");
        }
        for keys in asked {
            let reply = self.reply();
            let values = if keys.len() == 1 { vec![reply] } else { reply.items().expect("values") };
            for (key, value) in keys.into_iter().zip(values) {
                self.values.insert(key, value);
            }
        }
    }

    /// Reads until nothing comes any more.
    fn settle(&mut self) {
        while let Some(push) = self.conn.read_within(QUIET).expect("open") {
            self.note_push(&push);
        }
    }
}

fn no_cache_is_stale(threads: usize) {
    let seed = 20_261_130 + threads as u64;
    println!("seed {seed}");
    let server = Server::start(Kind::Skerry { threads }, &[]);
    let port = server.port;
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            thread::spawn(move || {
                let mut rng = Rng::new(seed + writer);
                let mut conn = Conn::open(port);
                for _ in 0..N_ROUNDS {
                    let (a, b, c) = (key(rng.below(N_KEYS)), key(rng.below(N_KEYS)), key(rng.below(N_KEYS)));
                    let value = rng.below(1_000_000).to_string();
                    match rng.below(5) {
                        0 => drop(conn.call(&["MSET", &a, &value, &b, &value, &c, &value])),
                        1 => drop(conn.call(&["DEL", &a, &b])),
                        2 => drop(conn.call(&["SET", &a, &value, "PX", "30"])),
                        3 => {
                            conn.call(&["MULTI"]);
                            conn.call(&["SET", &a, &value]);
                            conn.call(&["RENAME", &a, &b]);
                            conn.call(&["EXEC"]);
                        }
                        _ => drop(conn.call(&["SET", &a, &value])),
                    }
                }
            })
        })
        .collect();
    let mut rng = Rng::new(seed);
    let mut caches: Vec<Cache> = (0..4).map(|_| Cache::new(&server)).collect();
    for _ in 0..N_ROUNDS {
        caches.iter_mut().for_each(|cache| cache.read_some(&mut rng));
    }
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    let mut conn = server.connect();
    for cache in &mut caches {
        cache.settle();
        assert!(cache.n_invalidated > 0);
        for (key, cached) in &cache.values {
            let now = conn.call(&["GET", key]);
            let is_same = now.text() == cached.text();
            assert!(is_same, "{key} is cached as {cached:?} and stands at {now:?}");
        }
    }
}

#[test]
fn no_cache_is_stale_on_one_worker() {
    no_cache_is_stale(1);
}

#[test]
fn no_cache_is_stale_on_two_workers() {
    no_cache_is_stale(2);
}

#[test]
fn no_cache_is_stale_on_four_workers() {
    no_cache_is_stale(4);
}

/// `INFO section`'s number behind `name:`.
fn info(conn: &mut Conn, section: &str, name: &str) -> u64 {
    let text = conn.call(&["INFO", section]);
    let text = String::from_utf8_lossy(text.text().expect("a text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    line.trim().parse().expect("a number")
}

#[test]
fn the_table_of_tracked_keys_is_bounded() {
    const MAX_KEYS: u64 = 1000;
    const N_READ: usize = 40_000;
    let server = Server::start(
        Kind::Skerry { threads: 2 },
        &args(&["--tracking-table-max-keys", &MAX_KEYS.to_string()]),
    );
    let mut cache = Cache::new(&server);
    for first in (0..N_READ).step_by(100) {
        for n in first..first + 100 {
            cache.conn.send(&["GET", &format!("key:{n}")]).expect("sent");
        }
        (0..100).for_each(|_| drop(cache.reply()));
    }
    cache.settle();
    let mut conn = server.connect();
    let n_keys = info(&mut conn, "stats", "tracking_total_keys");
    assert!(n_keys <= MAX_KEYS, "{n_keys}");
    assert_eq!(
        cache.n_invalidated as u64 + n_keys,
        N_READ as u64,
        "who has read a key is told when it is given up"
    );
    conn.call(&["CONFIG", "SET", "tracking-table-max-keys", "10"]);
    let end = Instant::now() + WAIT;
    while info(&mut conn, "stats", "tracking_total_keys") > 10 {
        assert!(Instant::now() < end, "a smaller limit holds soon");
    }
    drop(cache);
    while info(&mut conn, "clients", "tracking_clients") > 0 {
        assert!(Instant::now() < end, "nobody tracks any more");
    }
}

fn redirected(threads: usize) {
    let server = Server::start(Kind::Skerry { threads }, &[]);
    // As many connections as there are workers, and more: some pair is apart.
    for _ in 0..threads + 1 {
        let mut writer = server.connect();
        let mut target = server.connect();
        let number = target.call(&["CLIENT", "ID"]).int().expect("a number").to_string();
        target.call(&["SUBSCRIBE", "__redis__:invalidate"]);
        let mut reader = server.connect();
        reader.call(&["HELLO", "3"]);
        reader.call(&["CLIENT", "TRACKING", "ON", "REDIRECT", &number]);
        assert_eq!(reader.call(&["CLIENT", "GETREDIR"]).int(), number.parse().ok());
        reader.call(&["GET", "k"]);
        writer.call(&["SET", "k", "v"]);
        let message = target.read().expect("a message").items().expect("fields");
        assert_eq!(message[1].text(), Some(&b"__redis__:invalidate"[..]));
        assert_eq!(message[2].items().expect("keys")[0].text(), Some(&b"k"[..]));
        reader.call(&["GET", "k"]);
        writer.call(&["FLUSHALL"]);
        let message = target.read().expect("a message").items().expect("fields");
        assert!(message[2].is_null());
        drop(target);
        let end = Instant::now() + WAIT;
        loop {
            reader.send(&["GET", "k"]).expect("sent");
            reader.read().expect("a value");
            writer.call(&["SET", "k", "v"]);
            if let Some(push) = reader.read_within(QUIET).expect("open") {
                let push = push.items().expect("fields");
                assert_eq!(push[0].text(), Some(&b"tracking-redir-broken"[..]));
                assert_eq!(push[1].int(), number.parse().ok());
                break;
            }
            assert!(Instant::now() < end, "a redirection to nobody is told");
        }
    }
}

#[test]
fn redirections_reach_other_workers_and_their_end_is_told() {
    redirected(1);
    redirected(3);
}

#[test]
fn a_monitor_that_does_not_read_is_closed() {
    let limit = args(&["--client-output-buffer-limit", "normal 2000000 0 0"]);
    let server = Server::start(Kind::Skerry { threads: 2 }, &limit);
    let mut monitor = server.connect();
    monitor.call(&["MONITOR"]);
    let mut conn = server.connect();
    let value = "v".repeat(10_000);
    let end = Instant::now() + WAIT;
    loop {
        (0..100).for_each(|_| conn.send(&["SET", "k", &value]).expect("sent"));
        (0..100).for_each(|_| drop(conn.read().expect("a reply")));
        let list = conn.call(&["CLIENT", "LIST"]);
        let list = String::from_utf8_lossy(list.text().expect("a text")).into_owned();
        if !list.contains("cmd=monitor") {
            break;
        }
        assert!(Instant::now() < end, "it is closed when its output is over the limit");
    }
}

/// Free places of other workers' connections bear the numbers of the monitor's; its lines come all the same.
#[test]
fn a_monitor_hears_every_worker_after_connections_have_come_and_gone() {
    let server = Server::start(Kind::Skerry { threads: 4 }, &[]);
    for _ in 0..3 {
        let gone: Vec<Conn> = (0..12).map(|_| server.connect()).collect();
        drop(gone);
        let since = Instant::now();
        let mut conn = server.connect();
        while info(&mut conn, "clients", "connected_clients") > 1 {
            assert!(since.elapsed() < WAIT, "connections stay");
        }
        drop(conn);
        let mut monitors: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
        for monitor in &mut monitors {
            monitor.call(&["MONITOR"]);
        }
        let mut conn = server.connect();
        for n in 0..40 {
            conn.call(&["GET", &key(n)]);
            let expected = format!("\"GET\" \"{}\"", key(n));
            for monitor in &mut monitors {
                let line = monitor.read().expect("a line for each command");
                let text = String::from_utf8_lossy(line.text().expect("text")).into_owned();
                assert!(text.ends_with(&expected), "{text} instead of {expected}");
            }
        }
    }
}

/// Shards come home from a FLUSHALL a moment after it was answered: what begins to track by then has nothing to forget.
#[test]
fn a_flush_before_tracking_began_is_not_told() {
    let server = Server::start(Kind::Skerry { threads: 4 }, &[]);
    let mut writer = server.connect();
    let mut readers: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.call(&["HELLO", "3"]);
    }
    for _ in 0..N_ROUNDS {
        writer.call(&["FLUSHALL"]);
        for reader in &mut readers {
            reader.call(&["CLIENT", "TRACKING", "ON"]);
        }
        for reader in &mut readers {
            reader.send(&["PING"]).expect("sent");
            assert_eq!(reader.read().expect("a reply"), Reply::Simple(b"PONG".to_vec()));
            reader.call(&["CLIENT", "TRACKING", "OFF"]);
        }
    }
}

#[test]
fn hotkeys_of_all_workers_are_one_list() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    conn.call(&["HELLO", "3"]);
    assert!(conn.call(&["HOTKEYS", "GET"]).is_null());
    assert!(conn.call(&["HOTKEYS", "STOP"]).is_null());
    for bad in [
        "START",
        "START METRICS 0 CPU",
        "START METRICS 2 CPU CPU",
        "START METRICS 2 CPU",
        "START METRICS 1 DISK",
        "START METRICS 1 CPU COUNT 0",
        "START METRICS 1 CPU COUNT 65",
        "START METRICS 1 CPU DURATION 0",
        "START METRICS 1 CPU SAMPLE 0",
        "START METRICS 1 CPU SLOTS 1 1",
        "START METRICS 1 CPU COUNT",
        "GET x",
    ] {
        let argv: Vec<&str> = std::iter::once("HOTKEYS").chain(bad.split(' ')).collect();
        assert!(conn.call(&argv).is_error(), "{bad}");
    }
    let ok = Reply::Simple(b"OK".to_vec());
    let start = ["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", "3"];
    assert_eq!(conn.call(&start), ok);
    assert!(conn.call(&start).is_error());
    assert!(conn.call(&["HOTKEYS", "RESET"]).is_error());
    for n in 0..300 {
        conn.call(&["SET", "hot", &"v".repeat(500)]);
        conn.call(&["GET", &format!("cold{n}")]);
        conn.call(&["MGET", "warm", "hot"]);
    }
    assert_eq!(conn.call(&["HOTKEYS", "STOP"]), ok);
    let report = conn.call(&["HOTKEYS", "GET"]).items().expect("an array");
    let Reply::Map(fields) = &report[0] else { panic!("a map: {report:?}") };
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| field.text() == Some(name.as_bytes()));
        found.unwrap_or_else(|| panic!("{name} in {fields:?}")).1.clone()
    };
    assert_eq!(field("tracking-active").int(), Some(0));
    let by_bytes = field("by-net-bytes").items().expect("keys and bytes");
    assert_eq!(by_bytes.len(), 6);
    assert_eq!(by_bytes[0].text(), Some(&b"hot"[..]));
    assert_eq!(by_bytes[2].text(), Some(&b"warm"[..]));
    assert!(by_bytes[1].int() > Some(300 * 500), "{by_bytes:?}");
    assert_eq!(field("by-cpu-time-us").items().map(|items| items.len()), Some(6));
    assert_eq!(conn.call(&["HOTKEYS", "RESET"]), ok);
    assert!(conn.call(&["HOTKEYS", "GET"]).is_null());
}
