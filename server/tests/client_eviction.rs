//! `maxmemory-clients`: the greatest clients go until the others fit, over several workers; CLIENT NO-EVICT keeps a client.

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::conn::Conn;
use support::server::{Kind, Server};

const MIB: usize = 1 << 20;
const WAIT: Duration = Duration::from_secs(20);

fn info(conn: &mut Conn, section: &str, name: &str) -> usize {
    let text = conn.call(&["INFO", section]);
    let text = String::from_utf8_lossy(text.text().expect("a text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    line.trim().parse().expect("a number")
}

/// A client that has said its name and then so many MiB of a request without an end.
fn greedy(server: &Server, n_mib: usize, first: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
    let begin =
        format!("{first}CLIENT SETNAME mib-{n_mib}\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 64 * MIB);
    stream.write_all(begin.as_bytes()).expect("sent");
    // The server may close it meanwhile.
    let _ = stream.write_all(&vec![b'x'; n_mib * MIB]);
    stream
}

/// Names and memory of the clients that are there.
fn clients(conn: &mut Conn) -> Vec<(String, usize)> {
    let text = conn.call(&["CLIENT", "LIST"]);
    let text = String::from_utf8_lossy(text.text().expect("a text")).into_owned();
    let field = |line: &str, name: &str| {
        let found = line.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned));
        found.expect("a field")
    };
    let of_line = |line: &str| (field(line, "name="), field(line, "tot-mem=").parse().expect("a number"));
    text.lines().map(of_line).filter(|(name, _): &(String, usize)| name.starts_with("mib-")).collect()
}

fn the_greatest_go(threads: usize) {
    let server = Server::start(Kind::Skerry { threads }, &[]);
    let mut conn = server.connect();
    let _kept = greedy(&server, 9, "CLIENT NO-EVICT ON\r\n");
    let _greedy: Vec<TcpStream> = (1..=8).map(|n_mib| greedy(&server, n_mib, "")).collect();
    let end = Instant::now() + WAIT;
    while clients(&mut conn).iter().map(|(_, bytes)| *bytes).sum::<usize>() < 45 * MIB {
        assert!(Instant::now() < end, "all of it arrives: {:?}", clients(&mut conn));
    }
    assert_eq!(info(&mut conn, "stats", "evicted_clients"), 0);
    assert!(info(&mut conn, "memory", "mem_clients_normal") >= 45 * MIB);
    let before = clients(&mut conn);
    assert_eq!(before.len(), 9);
    let limit = 24 * MIB;
    conn.call(&["CONFIG", "SET", "maxmemory-clients", &limit.to_string()]);
    let end = Instant::now() + WAIT;
    while info(&mut conn, "memory", "mem_clients_normal") > limit {
        assert!(Instant::now() < end, "clients are closed: {:?}", clients(&mut conn));
    }
    let after = clients(&mut conn);
    let is_left = |name: &str| after.iter().any(|(left, _)| left == name);
    assert!(is_left("mib-9"), "NO-EVICT keeps the greatest");
    let gone: Vec<_> = before.iter().filter(|(name, _)| !is_left(name)).collect();
    let least_gone = gone.iter().map(|(_, bytes)| *bytes).min().expect("some are gone");
    let stayed = before.iter().filter(|(name, _)| is_left(name) && name != "mib-9");
    let most_stayed = stayed.map(|(_, bytes)| *bytes).max().expect("some have stayed");
    assert!(most_stayed <= least_gone, "{most_stayed} bytes stayed, {least_gone} went");
    assert_eq!(info(&mut conn, "stats", "evicted_clients"), gone.len());
    // As a share of maxmemory, which is not set: no limit.
    conn.call(&["CONFIG", "SET", "maxmemory-clients", "10%"]);
    let again = greedy(&server, 8, "");
    let end = Instant::now() + WAIT;
    while !clients(&mut conn).iter().any(|(name, bytes)| name == "mib-8" && *bytes >= 8 * MIB) {
        assert!(Instant::now() < end, "without a limit it stays");
    }
    let limit = info(&mut conn, "memory", "mem_clients_normal") - 2 * MIB;
    conn.call(&["CONFIG", "SET", "maxmemory", &(10 * limit).to_string()]);
    let end = Instant::now() + WAIT;
    while clients(&mut conn).iter().any(|(name, _)| name == "mib-8") {
        assert!(Instant::now() < end, "a tenth of maxmemory is a limit");
    }
    drop(again);
}

#[test]
fn the_greatest_clients_go_on_one_worker() {
    the_greatest_go(1);
}

#[test]
fn the_greatest_clients_go_on_three_workers() {
    the_greatest_go(3);
}
