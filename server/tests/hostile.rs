//! Clients that mean harm or are just broken: the server stays within its limits and serves the others.
//!
//! Bounds are on what `/proc` says of the server's process, so the test runs on Linux only, as the server does.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use support::conn::{Conn, encode};
use support::reply::Reply;
use support::server::{Kind, Server};

const KINDS: [Kind; 2] = [Kind::Skerry { threads: 1 }, Kind::Skerry { threads: 2 }];
const MIB: usize = 1 << 20;

/// What is declared is not reserved: a thousand promises of 512 MB cost what their connections cost.
#[test]
fn declared_lengths_reserve_nothing() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let before = server.rss_bytes();
        let mut promises = Vec::new();
        for declared in
            ["*1\r\n$536870912\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc", "*1048576\r\n"]
        {
            for _ in 0..300 {
                let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
                stream.write_all(declared.as_bytes()).expect("sent");
                promises.push(stream);
            }
        }
        serves_others(&server);
        let grown = server.rss_bytes().saturating_sub(before);
        assert!(
            grown < 900 * 64 * 1024 + 32 * MIB,
            "{kind:?}: 900 promises grew the server by {grown} bytes"
        );
    }
}

/// A client that asks and never reads is cut off at its output-buffer limit.
#[test]
fn unread_replies_are_bounded() {
    for kind in KINDS {
        let server = Server::start(kind, &args(&["--client-output-buffer-limit", "normal 16mb 0 0"]));
        server.connect().call(&["SET", "big", &"x".repeat(MIB)]);
        let before = server.rss_bytes();
        let mut request = Vec::new();
        encode(&["GET", "big"], &mut request);
        let mut deaf = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
        deaf.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        // 2000 replies of 1 MiB, none of them read; the server may close at any point of this.
        for _ in 0..2000 {
            if deaf.write_all(&request).is_err() {
                break;
            }
        }
        serves_others(&server);
        let peak = server.memory_bytes("VmHWM:").saturating_sub(before);
        // Replies of another worker are bounded by their number only, so far.
        let is_bounded = peak < 256 * MIB || kind != Kind::Skerry { threads: 1 };
        assert!(is_bounded, "{kind:?}: a deaf client made the server grow by {peak} bytes for a while");
        let grown = server.rss_bytes().saturating_sub(before);
        assert!(grown < 128 * MIB, "{kind:?}: a deaf client grew the server by {grown} bytes");
        wait_for_clients(&server, 1);
    }
}

/// A client over its soft limit is closed when its time is up, though nothing more is written to it.
#[test]
fn a_soft_output_limit_needs_no_further_reply() {
    for kind in KINDS {
        let server = Server::start(kind, &args(&["--client-output-buffer-limit", "normal 0 1mb 1"]));
        server.connect().call(&["SET", "big", &"x".repeat(20 * MIB)]);
        let mut deaf = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
        deaf.write_all(b"GET big\r\n").expect("sent");
        wait_for_clients(&server, 1);
    }
}

/// A transaction cannot queue more than the query buffer may hold.
#[test]
fn a_transaction_is_bounded_by_the_query_buffer_limit() {
    for kind in KINDS {
        let server = Server::start(kind, &args(&["--client-query-buffer-limit", "1mb"]));
        let mut conn = server.connect();
        conn.call(&["MULTI"]);
        let value = "x".repeat(100_000);
        let n = (0..50)
            .take_while(|_| conn.send(&["SET", "k", &value]).and_then(|()| conn.read()).is_ok())
            .count();
        assert!((5..=10).contains(&n), "{kind:?}: {n} commands of 100 kB were queued under a limit of 1 MB");
        wait_for_clients(&server, 1);
    }
}

/// Memory of huge values is the system's again soon after they are deleted.
#[test]
fn deleted_huge_values_leave_the_process() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        let before = server.rss_bytes();
        for key in ["a", "b", "c"] {
            conn.call(&["SETRANGE", key, "200000000", "x"]);
        }
        conn.call(&["COPY", "a", "d"]);
        assert!(server.rss_bytes() > before + 150 * MIB);
        conn.call(&["DEL", "a", "b", "c", "d"]);
        let value = "x".repeat(500_000);
        for n in 0..600 {
            conn.call(&["SET", &format!("k{n}"), &value]);
        }
        for n in 0..600 {
            conn.send(&["DEL", &format!("k{n}")]).expect("sent");
        }
        let end = Instant::now() + Duration::from_secs(5);
        while server.rss_bytes() > before + 100 * MIB {
            assert!(Instant::now() < end, "{kind:?}: {} MiB stay", (server.rss_bytes() - before) / MIB);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Clients that vanish in the middle of a request or of their replies leave nothing behind.
#[test]
fn death_in_a_pipeline_leaves_nothing() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut pipeline = Vec::new();
        for n in 0..200 {
            encode(&["SET".to_owned(), format!("k{n}"), "v".repeat(100)], &mut pipeline);
            encode(&["MGET".to_owned(), format!("k{n}"), format!("k{}", n + 1)], &mut pipeline);
        }
        for n in 0..400 {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
            let _ = stream.write_all(&pipeline[..pipeline.len() * n / 400]);
            if n % 3 == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        let mut conn = server.connect();
        for argv in [&["WATCH", "k0"][..], &["MULTI"], &["SET", "k0", "kept"]] {
            conn.call(argv);
        }
        drop(conn);
        wait_for_clients(&server, 1);
        serves_others(&server);
    }
}

/// Ten thousand idle clients, and one more that is told there are too many.
#[test]
fn ten_thousand_idle_clients() {
    allow_open_files(11_000);
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let before = server.rss_bytes();
        let mut control = server.connect();
        let mut idle: Vec<Conn> = (0..9_999).map(|_| server.connect()).collect();
        for conn in &mut idle {
            conn.send(&["PING"]).expect("sent");
        }
        for conn in &mut idle {
            assert_eq!(conn.read().expect("a reply"), Reply::Simple(b"PONG".to_vec()));
        }
        let start = Instant::now();
        assert_eq!(control.call(&["SET", "k", "v"]), Reply::Simple(b"OK".to_vec()));
        assert!(start.elapsed() < Duration::from_secs(1), "{kind:?}: a SET took {:?}", start.elapsed());
        let refused = server.connect().read().expect("a reply");
        assert_eq!(refused, Reply::Error(b"ERR max number of clients reached".to_vec()));
        let grown = server.rss_bytes().saturating_sub(before);
        assert!(grown < 10_000 * 40 * 1024, "{kind:?}: {} bytes for each idle client", grown / 10_000);
        drop(idle);
        drop(control);
        wait_for_clients(&server, 1);
    }
}

/// A request that trickles in, and replies that trickle out, come out right.
#[test]
fn a_slow_client_is_served() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut request = Vec::new();
        encode(&["SET", "k", &"v".repeat(300)], &mut request);
        encode(&["GET", "k"], &mut request);
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
        stream.set_nodelay(true).expect("nodelay");
        for byte in request {
            stream.write_all(&[byte]).expect("sent");
        }
        stream.shutdown(Shutdown::Write).expect("half closed");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("read");
        assert_eq!(reply, format!("+OK\r\n$300\r\n{}\r\n", "v".repeat(300)).into_bytes());
    }
}

/// Deadlines near the end of time on several shards: their sum went beyond an i64 in INFO (found by fuzzing).
#[test]
fn deadlines_near_the_end_of_time_add_up() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    for n in 0..20 {
        let set = conn.call(&["SET", &format!("k{n}"), "v", "PXAT", "9223372036854775807"]);
        assert!(!matches!(set, Reply::Error(_)), "{set:?}");
    }
    let Reply::Bulk(info) = conn.call(&["INFO", "keyspace"]) else { panic!("INFO is text") };
    let info = String::from_utf8_lossy(&info);
    assert!(info.contains("keys=20,expires=20"), "{info}");
}

/// A client that says all it has to say and closes its half at once (`printf ... | nc`) still hears every reply, wherever its
/// keys live, and is then closed, though the poll tells of input and end as one event.
#[test]
fn a_half_closed_client_is_answered_and_closed() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        for n in 0..200 {
            let mut request = Vec::new();
            let mut expected = String::new();
            for at in 0..=n {
                let (key, value) = (format!("k{at}"), n.to_string());
                encode(&["SET", &key, &value], &mut request);
                encode(&["MGET", &key, "none", &key], &mut request);
                let bulk = format!("${}\r\n{value}\r\n", value.len());
                expected += &format!("+OK\r\n*3\r\n{bulk}$-1\r\n{bulk}");
            }
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            stream.write_all(&request).expect("sent");
            stream.shutdown(Shutdown::Write).expect("half closed");
            let mut reply = Vec::new();
            stream
                .read_to_end(&mut reply)
                .unwrap_or_else(|e| panic!("{kind:?}: request {n} has no end: {e}"));
            assert_eq!(String::from_utf8_lossy(&reply), expected, "{kind:?}: request {n}");
        }
        wait_for_clients(&server, 1);
    }
}

/// A client whose input has ended does not stay for a pause, nor for replies that it has turned off.
#[test]
fn an_ended_client_leaves_in_silence() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut control = server.connect();
        for n in 0..40 {
            let mut request = Vec::new();
            encode(&["CLIENT", "REPLY", "OFF"], &mut request);
            for at in 0..1000 {
                encode(&["SET".to_owned(), format!("k{at}"), n.to_string()], &mut request);
            }
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
            stream.write_all(&request).expect("sent");
        }
        wait_for_clients(&server, 2);
        control.call(&["CLIENT", "PAUSE", "600000", "WRITE"]);
        for _ in 0..40 {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
            stream.write_all(b"SET k v\r\nGET k\r\n").expect("sent");
        }
        wait_for_clients(&server, 2);
    }
}

/// Without open files to spare, connections wait; they are served when others have left, and nobody has to come and knock again.
#[test]
fn connections_wait_for_open_files() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let pid = server.pid().to_string();
        let set = Command::new("prlimit").args(["--pid", &pid, "--nofile=64:64"]).status();
        assert!(set.is_ok_and(|status| status.success()), "prlimit works on an own child");
        let connect = || TcpStream::connect(("127.0.0.1", server.port)).expect("in the backlog");
        let early: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
        let mut late: Vec<TcpStream> = (0..10).map(|_| connect()).collect();
        for stream in &mut late {
            stream.write_all(b"PING\r\n").expect("sent");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        }
        drop(early);
        for stream in &mut late {
            let mut reply = [0; 7];
            stream.read_exact(&mut reply).unwrap_or_else(|e| panic!("{kind:?}: never accepted: {e}"));
            assert_eq!(&reply, b"+PONG\r\n");
        }
    }
}

fn serves_others(server: &Server) {
    let start = Instant::now();
    let mut conn = server.connect();
    for n in 0..100 {
        let value = n.to_string();
        assert_eq!(conn.call(&["SET", "other", &value]), Reply::Simple(b"OK".to_vec()));
        assert_eq!(conn.call(&["GET", "other"]), Reply::Bulk(value.into_bytes()));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?} for 200 commands beside it", start.elapsed());
}

/// Waits until INFO tells `n` clients, which include the one that asks.
fn wait_for_clients(server: &Server, n: usize) {
    let mut conn = server.connect();
    let end = Instant::now() + Duration::from_secs(20);
    let wanted = format!("connected_clients:{n}\r\n");
    loop {
        let info = conn.call(&["INFO", "clients"]);
        let text = String::from_utf8_lossy(info.text().expect("text")).into_owned();
        if text.contains(&wanted) {
            return;
        }
        assert!(Instant::now() < end, "never down to {n} clients: {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets this process, and the servers it starts, open at least that many files.
fn allow_open_files(n: usize) {
    if soft_limit() < n {
        let pid = std::process::id().to_string();
        let _ = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={n}:{n}")]).status();
    }
    let soft = soft_limit();
    assert!(soft >= n, "this test needs {n} open files and may open {soft}: run `ulimit -n {n}` before it");
}

fn soft_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find(|l| l.starts_with("Max open files")).expect("a limit");
    line.split_whitespace().nth(3).and_then(|w| w.parse().ok()).unwrap_or(usize::MAX)
}

fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// A long request waits for keys that somebody else holds, and the socket keeps what follows it: read when it has run.
#[test]
fn a_request_behind_a_long_one_that_waited_is_read() {
    const ROUNDS: usize = 60;
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let port = server.port;
    let long = "x".repeat(3_000_000);
    std::thread::scope(|scope| {
        for client in 0..3usize {
            let long = &long;
            scope.spawn(move || {
                let mut conn = Conn::open(port);
                for round in 0..ROUNDS {
                    let (from, to) = (format!("none{round}"), format!("to{}", (round * 7 + client) % 20));
                    conn.call(&["SORT", &from, "ALPHA", "STORE", &to, "GET", "k*"]);
                    let key = format!("big{}", (round * 3 + client) % 20);
                    conn.send(&["SET", &key, long]).expect("sent");
                    conn.send(&["GET", &key]).expect("sent");
                    assert_eq!(conn.read().expect("SET is answered"), Reply::Simple(b"OK".to_vec()));
                    assert!(!conn.read().expect("GET is answered").is_error());
                }
            });
        }
    });
}
