//! Messages between workers: none lost, none twice, each publisher's in order, and nothing left when everybody has gone.

mod support;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use support::conn::Conn;
use support::reply::Reply;
use support::server::{Kind, Server};

const N_PUBLISHERS: usize = 4;
const N_SUBSCRIBERS: usize = 12;
const N_MESSAGES: usize = 2000;
const WAIT: Duration = Duration::from_secs(20);

fn numbers(text: &[u8]) -> (usize, usize) {
    let text = String::from_utf8_lossy(text);
    let (publisher, number) = text.split_once('-').expect("publisher-number");
    (publisher.parse().expect("a number"), number.parse().expect("a number"))
}

/// The next published message's text.
fn message(conn: &mut Conn) -> Vec<u8> {
    let fields = conn.read().expect("a message").items().expect("its fields");
    fields.last().expect("its text").text().expect("a text").to_vec()
}

fn every_subscriber_gets_every_message_in_order(threads: usize) {
    let server = Server::start(Kind::Skerry { threads }, &[]);
    let port = server.port;
    let mut subscribers: Vec<Conn> = (0..N_SUBSCRIBERS).map(|_| server.connect()).collect();
    for (n, conn) in subscribers.iter_mut().enumerate() {
        match n % 3 {
            0 => drop(conn.call(&["SUBSCRIBE", "news"])),
            1 => drop(conn.call(&["PSUBSCRIBE", "n?ws"])),
            _ => {
                conn.call(&["HELLO", "3"]);
                conn.call(&["SUBSCRIBE", "news"]);
            }
        }
    }
    let publishers: Vec<_> = (0..N_PUBLISHERS)
        .map(|publisher| {
            thread::spawn(move || {
                let mut conn = Conn::open(port);
                for first in (0..N_MESSAGES).step_by(50) {
                    for n in first..first + 50 {
                        conn.send(&["PUBLISH", "news", &format!("{publisher}-{n}")]).expect("sent");
                    }
                    for _ in 0..50 {
                        assert_eq!(conn.read().expect("a count"), Reply::Int(N_SUBSCRIBERS as i64));
                    }
                }
            })
        })
        .collect();
    let readers: Vec<_> = subscribers
        .into_iter()
        .map(|mut conn| {
            thread::spawn(move || {
                let mut next: BTreeMap<usize, usize> = BTreeMap::new();
                for _ in 0..N_PUBLISHERS * N_MESSAGES {
                    let (publisher, number) = numbers(&message(&mut conn));
                    let expected = next.entry(publisher).or_default();
                    assert_eq!(number, *expected, "of publisher {publisher}");
                    *expected += 1;
                }
                conn
            })
        })
        .collect();
    publishers.into_iter().for_each(|publisher| publisher.join().expect("a publisher"));
    let subscribers: Vec<Conn> = readers.into_iter().map(|reader| reader.join().expect("a reader")).collect();
    drop(subscribers);
    until(&server, "PUBLISH news x", &Reply::Int(0));
    until(&server, "PUBSUB NUMPAT", &Reply::Int(0));
    let info = server.connect().call(&["INFO", "clients"]);
    let info = String::from_utf8_lossy(info.text().expect("a text")).into_owned();
    assert!(info.contains("\r\npubsub_clients:0\r\n"), "{info}");
}

fn until(server: &Server, command: &str, reply: &Reply) {
    let words: Vec<&str> = command.split(' ').collect();
    let mut conn = server.connect();
    let end = Instant::now() + WAIT;
    loop {
        let got = conn.call(&words);
        if got == *reply {
            return;
        }
        assert!(Instant::now() < end, "{command} still gives {got:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn messages_on_one_worker() {
    every_subscriber_gets_every_message_in_order(1);
}

#[test]
fn messages_between_three_workers() {
    every_subscriber_gets_every_message_in_order(3);
}

/// Clients that subscribe, are written to and vanish, over and over, leave no subscription and no memory behind.
#[test]
fn vanishing_subscribers_leave_nothing() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut publisher = server.connect();
    for round in 0..60 {
        let mut conns: Vec<Conn> = (0..20).map(|_| server.connect()).collect();
        for (n, conn) in conns.iter_mut().enumerate() {
            let (channel, pattern) = (format!("c{}", n % 5), format!("c{}*", round % 7));
            conn.send(&["SUBSCRIBE", &channel, "all"]).expect("sent");
            conn.send(&["PSUBSCRIBE", &pattern]).expect("sent");
            conn.send(&["SSUBSCRIBE", &channel]).expect("sent");
        }
        for n in 0..20 {
            publisher.call(&["PUBLISH", &format!("c{}", n % 5), "x"]);
            publisher.call(&["SPUBLISH", &format!("c{}", n % 5), "x"]);
        }
        drop(conns);
    }
    until(&server, "PUBSUB CHANNELS", &Reply::Array(Vec::new()));
    until(&server, "PUBSUB SHARDCHANNELS", &Reply::Array(Vec::new()));
    until(&server, "PUBSUB NUMPAT", &Reply::Int(0));
}

/// A subscriber that reads nothing is closed at its limit, and the publisher goes on.
#[test]
fn a_deaf_subscriber_is_closed() {
    for threads in [1, 2] {
        let args = ["--client-output-buffer-limit", "pubsub", "1mb", "0", "0"].map(str::to_owned);
        let server = Server::start(Kind::Skerry { threads }, &args);
        let mut deaf: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
        deaf.iter_mut().for_each(|conn| drop(conn.call(&["SUBSCRIBE", "big"])));
        let mut publisher = server.connect();
        let message = "x".repeat(100_000);
        let end = Instant::now() + WAIT;
        while publisher.call(&["PUBLISH", "big", &message]) != Reply::Int(0) {
            assert!(Instant::now() < end, "the deaf live on");
        }
        until(&server, "PUBSUB CHANNELS", &Reply::Array(Vec::new()));
    }
}

/// What ends on another worker is told to its subscriber here; on any worker.
#[test]
fn notifications_cross_workers() {
    let args = ["--notify-keyspace-events", "Exg$"].map(str::to_owned);
    let server = Server::start(Kind::Skerry { threads: 3 }, &args);
    let mut subscriber = server.connect();
    subscriber.call(&["PSUBSCRIBE", "__keyevent@0__:*"]);
    let mut conn = server.connect();
    let mut expected = Vec::new();
    for n in 0..60 {
        let key = format!("key{n}");
        conn.call(&["SET", &key, "v"]);
        conn.call(&["DEL", &key]);
        expected.extend([format!("set {key}"), format!("del {key}")]);
    }
    let mut got: Vec<String> = (0..expected.len())
        .map(|_| {
            let fields = subscriber.read().expect("a message").items().expect("its fields");
            let text = |at: usize| String::from_utf8_lossy(fields[at].text().expect("a text")).into_owned();
            format!("{} {}", text(2).trim_start_matches("__keyevent@0__:"), text(3))
        })
        .collect();
    expected.sort();
    got.sort();
    assert_eq!(got, expected);
}
