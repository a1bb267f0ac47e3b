//! What commands do to their own connection and to the sockets: CLIENT REPLY inside transactions, CONFIG SET of addresses and limits.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::server::{Kind, Server};

/// Lines sent, and all that Redis 8.2.3 sends back: inside EXEC the mode holds from its command on, whatever EXEC has announced.
const REPLY_MODES: [(&[&str], &str); 9] = [
    (
        &["MULTI", "CLIENT REPLY OFF", "SET a 1", "EXEC", "PING", "CLIENT REPLY ON", "PING"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+PONG\r\n",
    ),
    (
        &["MULTI", "CLIENT REPLY SKIP", "SET a 1", "GET a", "EXEC", "PING"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n$1\r\n1\r\n",
    ),
    (
        &["MULTI", "SET a 1", "CLIENT REPLY SKIP", "EXEC", "PING", "PING"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+PONG\r\n",
    ),
    (
        &["MULTI", "SET a 1", "CLIENT REPLY OFF", "EXEC", "PING", "CLIENT REPLY ON"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n",
    ),
    (
        &["CLIENT REPLY OFF", "MULTI", "SET a 1", "CLIENT REPLY ON", "GET a", "EXEC", "PING"],
        "+OK\r\n$1\r\n1\r\n+PONG\r\n",
    ),
    (
        &["MULTI", "SET a 1", "CLIENT REPLY ON", "EXEC", "PING"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n+PONG\r\n",
    ),
    (
        &["MULTI", "SET a 1", "CLIENT REPLY OFF", "GET a", "CLIENT REPLY ON", "GET a", "EXEC", "PING"],
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*5\r\n+OK\r\n+OK\r\n$1\r\n1\r\n+PONG\r\n",
    ),
    (&["CLIENT REPLY SKIP", "MULTI", "SET a 1", "EXEC", "PING"], "+QUEUED\r\n*1\r\n+OK\r\n+PONG\r\n"),
    (&["MULTI", "CLIENT REPLY SKIP", "EXEC", "PING", "PING"], "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"),
];

#[test]
fn reply_modes_hold_inside_transactions_on_one_worker() {
    reply_modes(Kind::Skerry { threads: 1 });
}

#[test]
fn reply_modes_hold_inside_transactions_as_in_redis() {
    reply_modes(Kind::Redis);
}

/// With two workers the transaction is local or lent, as its client's worker has it.
#[test]
fn reply_modes_hold_inside_transactions_on_two_workers() {
    reply_modes(Kind::Skerry { threads: 2 });
}

fn reply_modes(kind: Kind) {
    let server = Server::start(kind, &[]);
    for (lines, expected) in REPLY_MODES {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
        let wire: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        // QUIT ends the stream, and what has come until then is all.
        stream.write_all(format!("{wire}CLIENT REPLY ON\r\nQUIT\r\n").as_bytes()).expect("sent");
        let mut got = String::new();
        stream.read_to_string(&mut got).expect("text");
        // The skipped request may be CLIENT REPLY ON itself, which answers all the same.
        assert_eq!(got, format!("{expected}+OK\r\n+OK\r\n"), "{kind:?}: {lines:?}");
    }
}

/// Addresses are changed at run time, as in Redis: also to a narrower one of the same port, and back if it cannot be had.
#[test]
fn other_addresses_are_bound_at_run_time() {
    for kind in [Kind::Skerry { threads: 1 }, Kind::Skerry { threads: 2 }] {
        let server = Server::start(kind, &["--bind".into(), "0.0.0.0".into()]);
        let mut conn = server.connect();
        let set = |conn: &mut support::conn::Conn, value: &str| {
            conn.call(&["CONFIG", "SET", "bind", value])
                .text()
                .map(|t| String::from_utf8_lossy(t).into_owned())
        };
        wait_for(&server, "127.0.0.2", true);
        assert_eq!(set(&mut conn, "127.0.0.1").as_deref(), Some("OK"));
        wait_for(&server, "127.0.0.2", false);
        wait_for(&server, "127.0.0.1", true);
        assert_eq!(
            set(&mut conn, "1.2.3.4").as_deref(),
            Some(
                "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses."
            )
        );
        wait_for(&server, "127.0.0.1", true);
        assert_eq!(set(&mut conn, "127.0.0.1 127.0.0.3").as_deref(), Some("OK"));
        wait_for(&server, "127.0.0.3", true);
        wait_for(&server, "127.0.0.2", false);
        assert_eq!(set(&mut conn, "0.0.0.0").as_deref(), Some("OK"));
        wait_for(&server, "127.0.0.2", true);
    }
}

/// Waits until the server answers at `address`, or nobody does.
fn wait_for(server: &Server, address: &str, answers: bool) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let is_answered = TcpStream::connect((address, server.port)).is_ok_and(|mut stream| {
            let mut pong = [0; 7];
            stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
            stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut pong).is_ok()
        });
        if is_answered == answers {
            return;
        }
        assert!(Instant::now() < end, "{address} never came to answers={answers}");
    }
}

/// More clients than the system has files for are refused with the number that it has, and the limit stays.
#[test]
fn maxclients_is_bounded_by_open_files() {
    let server = Server::start(Kind::Skerry { threads: 1 }, &[]);
    let mut conn = server.connect();
    let reply = conn.call(&["CONFIG", "SET", "maxclients", "4000000000"]);
    let text = String::from_utf8_lossy(reply.text().expect("text")).into_owned();
    let front = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to \
                 handle the specified number of clients, try with ";
    assert!(text.starts_with(front), "{text}");
    let possible = &text[front.len()..];
    assert_eq!(conn.call(&["CONFIG", "SET", "maxclients", possible]).text(), Some(&b"OK"[..]), "{possible}");
}

/// A closed terminal or a log rotation must not end a server whose data is in memory: Redis ignores SIGHUP.
#[test]
fn a_hangup_is_passed_over() {
    let mut server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    let status = std::process::Command::new("kill").args(["-HUP", &server.pid().to_string()]).status();
    assert!(status.expect("kill runs").success());
    for _ in 0..50 {
        assert!(!conn.call(&["PING"]).is_error());
    }
    assert!(server.is_alive());
}
