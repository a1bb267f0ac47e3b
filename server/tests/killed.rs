//! `kill -9` of clients that block, subscribe, watch, queue, track and run scripts, under load: no item is lost or doubled, and nothing of
//! theirs stays behind (clients, waiters, watchers, subscriptions, memory).
//!
//! Half of the victims are redis-cli processes that get SIGKILL at a random moment; the others are sockets here that send pipelines, read
//! nothing and are reset (SO_LINGER 0), so that the server finds its writes refused. What moves items moves them whole (LMOVE, BLMOVE,
//! EXEC, a script): whichever moment a client dies at, each item stands in exactly one list. `SKERRY_KILLS` sets how many die (200).

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use support::conn::{Conn, encode};
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};

const N_ITEMS: usize = 2000;
const N_LISTS: usize = 12;
/// As many victims live at a time.
const N_ALIVE: usize = 30;
const N_LOADERS: usize = 3;
const WAIT: Duration = Duration::from_secs(20);
/// What the allocator, the caches of buffers and the counters may differ by.
const SLACK_BYTES: i64 = 1 << 20;

/// Moves an item between lists that it names itself, after a while of work.
const MOVE_UNDECLARED: &str = "for n = 1, 20000 do end \
    local item = redis.call('LPOP', 'list:' .. ARGV[1]) \
    if item then redis.call('RPUSH', 'list:' .. ARGV[2], item) end return item";
const MOVE_DECLARED: &str = "local item = redis.call('LPOP', KEYS[1]) \
    if item then redis.call('RPUSH', KEYS[2], item) redis.call('PUBLISH', 'moved', item) end return item";

#[test]
fn clients_killed_on_one_worker() {
    kill_under_load(Kind::Skerry { threads: 1 }, 1);
}

#[test]
fn clients_killed_between_three_workers() {
    kill_under_load(Kind::Skerry { threads: 3 }, 3);
}

fn kill_under_load(kind: Kind, seed: u64) {
    let n_kills = std::env::var("SKERRY_KILLS").map_or(200, |n| n.parse().expect("a number"));
    let server = Server::start(kind, &[]);
    let mut control = server.connect();
    // Victims hear no errors: what they ask for has to be there.
    let mut asked = words(&["COMMAND", "INFO"]);
    asked.extend(words(&["blmove", "bzmpop", "xreadgroup", "eval", "wait", "client|tracking", "ssubscribe"]));
    let known = control.call(&asked).items().expect("a list");
    assert!(known.iter().all(|entry| entry.clone().items().is_some()), "not all of {asked:?} are known");
    for n in 0..N_ITEMS {
        control.call(&["RPUSH", &list(n % N_LISTS), &format!("item-{n}")]);
    }
    // The first round is there for what is allocated once and stays.
    killing(&server, n_kills / 4, seed + 100);
    nothing_left(&server, &mut control);
    let before = used_memory(&mut control);
    killing(&server, n_kills, seed);
    nothing_left(&server, &mut control);
    every_item_once(&mut control);
    let end = Instant::now() + WAIT;
    loop {
        let grown = used_memory(&mut control) - before;
        if grown < SLACK_BYTES {
            println!("{kind:?}: {n_kills} clients killed, memory {grown:+} bytes");
            return;
        }
        assert!(Instant::now() < end, "{kind:?}: {n_kills} killed clients left {grown} bytes, seed {seed}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn killing(server: &Server, n_kills: usize, seed: u64) {
    let port = server.port;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for at in 0..N_LOADERS {
            let is_over = &is_over;
            scope.spawn(move || load(port, is_over, seed * 10 + at as u64));
        }
        let mut rng = Rng::new(seed);
        let mut alive: Vec<Victim> = Vec::new();
        for n in 0..n_kills {
            while alive.len() < N_ALIVE.min(n_kills - n) {
                alive.push(Victim::new(port, &mut rng));
            }
            thread::sleep(Duration::from_millis(rng.below(4) as u64));
            alive.swap_remove(rng.below(alive.len())).kill();
        }
        is_over.store(true, Ordering::Relaxed);
        alive.into_iter().for_each(Victim::kill);
    });
}

/// A client that works on, and whose every reply must be right.
fn load(port: u16, is_over: &AtomicBool, seed: u64) {
    let mut conn = Conn::open(port);
    let mut rng = Rng::new(seed);
    let mut n = 0;
    while !is_over.load(Ordering::Relaxed) {
        n += 1;
        let (own, value) = (format!("own:{seed}"), n.to_string());
        assert_eq!(conn.call(&["SET", &own, &value]), Reply::Simple(b"OK".to_vec()));
        assert_eq!(conn.call(&["GET", &own]), Reply::Bulk(value.into_bytes()));
        let (from, to) = (list(rng.below(N_LISTS)), list(rng.below(N_LISTS)));
        let moved = conn.call(&["LMOVE", &from, &to, "LEFT", "RIGHT"]);
        assert!(matches!(moved, Reply::Bulk(_) | Reply::NullBulk), "{moved:?}");
        let told = conn.call(&["PUBLISH", &channel(&mut rng), &"news".repeat(50)]);
        assert!(matches!(told, Reply::Int(_)), "{told:?}");
    }
    conn.call(&["DEL", &format!("own:{seed}")]);
}

enum Victim {
    Process(Child),
    Socket(TcpStream),
}

impl Victim {
    fn new(port: u16, rng: &mut Rng) -> Victim {
        let requests = requests(rng);
        if rng.percent(50) {
            let mut child = Command::new("redis-cli")
                .args(["-3", "-p", &port.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-cli (redis-tools) is on PATH");
            let lines: String = requests.iter().map(|argv| line(argv)).collect();
            // It may be written to as long as it lives, so its input does not end; dropped with the child.
            let stdin = child.stdin.as_mut().expect("a pipe");
            stdin.write_all(lines.as_bytes()).expect("a pipe takes 64 KiB");
            return Victim::Process(child);
        }
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("accepted");
        let mut bytes = Vec::new();
        requests.iter().for_each(|argv| encode(argv, &mut bytes));
        // One in three dies in the middle of a request.
        let sent = if rng.chance(3) { rng.below(bytes.len()) } else { bytes.len() };
        stream.write_all(&bytes[..sent]).expect("the socket takes some KiB");
        if rng.chance(4) {
            stream.shutdown(Shutdown::Write).expect("half closed");
        }
        Victim::Socket(stream)
    }

    fn kill(self) {
        match self {
            Victim::Process(mut child) => {
                child.kill().expect("SIGKILL");
                child.wait().expect("gone");
            }
            Victim::Socket(stream) => {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
            }
        }
    }
}

/// What a victim asks before it dies: some moves, and at last something that it would stay in.
fn requests(rng: &mut Rng) -> Vec<Vec<String>> {
    let mut asked = Vec::new();
    for _ in 0..rng.below(30) {
        let (from, to) = (list(rng.below(N_LISTS)), list(rng.below(N_LISTS)));
        match rng.below(6) {
            0 => asked.push(words(&["BLMOVE", &from, &to, "LEFT", "RIGHT", "0.05"])),
            1 => asked.extend([
                words(&["WATCH", &from, &to, "watched"]),
                words(&["MULTI"]),
                words(&["LMOVE", &from, &to, "RIGHT", "LEFT"]),
                words(&["INCR", "watched"]),
                words(&["EXEC"]),
            ]),
            2 => asked.push(words(&["EVAL", MOVE_DECLARED, "2", &from, &to])),
            3 => {
                let (a, b) = (rng.below(N_LISTS).to_string(), rng.below(N_LISTS).to_string());
                asked.push(words(&["EVAL", MOVE_UNDECLARED, "0", &a, &b]));
            }
            4 => asked.push(words(&["LRANGE", &from, "0", "-1"])),
            _ => asked.push(words(&["PUBLISH", &channel(rng), "x"])),
        }
    }
    asked.extend(last_words(rng));
    asked
}

fn last_words(rng: &mut Rng) -> Vec<Vec<String>> {
    let (void, to) = (format!("void:{}", rng.below(20)), list(rng.below(N_LISTS)));
    match rng.below(12) {
        0 => vec![words(&["BLMOVE", &void, &to, "LEFT", "RIGHT", "0"])],
        1 => vec![words(&["BLPOP", &void, "void:a", "void:b", "void:c", "0"])],
        2 => vec![words(&["BZMPOP", "100", "2", &void, "void:z", "MIN"])],
        3 => vec![words(&["SUBSCRIBE", &channel(rng), &channel(rng), "moved"])],
        4 => vec![words(&["PSUBSCRIBE", &format!("channel:{}*", rng.below(3)), "mov??"])],
        5 => vec![words(&["SSUBSCRIBE", &channel(rng)]), words(&["SUBSCRIBE", "moved"])],
        6 => vec![words(&["WATCH", &to, &void, "watched"]), words(&["GET", &void])],
        7 => vec![words(&["MULTI"]), words(&["LMOVE", &to, &void, "LEFT", "LEFT"]), words(&["PING"])],
        8 => vec![words(&["EVAL", "for n = 1, 2000000 do end return redis.call('LLEN', KEYS[1])", "1", &to])],
        9 => vec![
            words(&["HELLO", "3"]),
            words(&["CLIENT", "TRACKING", "ON", "NOLOOP"]),
            words(&["MGET", &void, "watched", "own:10", "own:11", "own:30"]),
        ],
        10 => vec![
            words(&["XGROUP", "CREATE", "stream", "group", "0", "MKSTREAM"]),
            words(&["XREAD", "BLOCK", "1", "STREAMS", "stream", &void, "$", "$"]),
            words(&["XREADGROUP", "GROUP", "group", "c", "BLOCK", "0", "STREAMS", "stream", ">"]),
        ],
        _ => vec![words(&["BLMOVE", &to, &to, "LEFT", "RIGHT", "0"]), words(&["WAIT", "1", "0"])],
    }
}

fn words(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|word| (*word).to_owned()).collect()
}

/// In redis-cli's own quotes.
fn line(argv: &[String]) -> String {
    let quoted: Vec<String> = argv.iter().map(|word| format!("\"{word}\"")).collect();
    quoted.join(" ") + "\n"
}

fn list(n: usize) -> String {
    format!("list:{n}")
}

fn channel(rng: &mut Rng) -> String {
    format!("channel:{}", rng.below(6))
}

fn every_item_once(conn: &mut Conn) {
    let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let lists = (0..N_LISTS).map(list).chain((0..20).map(|n| format!("void:{n}")));
    for list in lists {
        let items = conn.call(&["LRANGE", &list, "0", "-1"]).items().expect("items");
        items.iter().for_each(|item| *counts.entry(item.text().expect("a text").to_vec()).or_default() += 1);
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "items that stand in several places: {twice:?}");
    let missing: Vec<_> =
        (0..N_ITEMS).filter(|n| !counts.contains_key(format!("item-{n}").as_bytes())).collect();
    assert!(missing.is_empty() && counts.len() == N_ITEMS, "items lost: {missing:?}");
}

/// INFO and PUBSUB tell of the asking client only.
fn nothing_left(server: &Server, conn: &mut Conn) {
    const NONE: [&str; 11] = [
        "connected_clients:1",
        "blocked_clients:0",
        "tracking_clients:0",
        "pubsub_clients:0",
        "watching_clients:0",
        "clients_in_timeout_table:0",
        "total_watched_keys:0",
        "total_blocking_keys:0",
        "pubsub_channels:0",
        "pubsub_patterns:0",
        "pubsubshard_channels:0",
    ];
    let end = Instant::now() + WAIT;
    loop {
        let info = info(conn);
        let left: Vec<&str> =
            NONE.into_iter().filter(|wanted| !info.lines().any(|line| line == *wanted)).collect();
        if left.is_empty() {
            break;
        }
        if Instant::now() > end {
            let clients = conn.call(&["CLIENT", "LIST"]);
            let clients = String::from_utf8_lossy(clients.text().expect("a text"));
            panic!("{:?}: never came to {left:?}:\n{clients}", server.kind);
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(conn.call(&["PUBSUB", "CHANNELS"]), Reply::Array(Vec::new()));
    assert_eq!(conn.call(&["PUBSUB", "SHARDCHANNELS"]), Reply::Array(Vec::new()));
    assert_eq!(conn.call(&["PUBSUB", "NUMPAT"]), Reply::Int(0));
    let clients = conn.call(&["CLIENT", "LIST"]);
    let clients = String::from_utf8_lossy(clients.text().expect("a text")).into_owned();
    assert_eq!(clients.lines().count(), 1, "{clients}");
}

fn used_memory(conn: &mut Conn) -> i64 {
    let info = info(conn);
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("used_memory");
    line.parse().expect("a number")
}

fn info(conn: &mut Conn) -> String {
    let info = conn.call(&["INFO", "ALL"]);
    String::from_utf8_lossy(info.text().expect("a text")).into_owned()
}
