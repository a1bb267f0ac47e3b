//! Strings of kilobytes to a hundred megabytes: their bytes arrive and leave unchanged whichever way they go (shared, copied, to
//! another shard, behind earlier replies), and other clients do not wait for them.

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::conn::encode;
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};

const KINDS: [Kind; 3] =
    [Kind::Skerry { threads: 1 }, Kind::Skerry { threads: 2 }, Kind::Skerry { threads: 3 }];
const MIB: usize = 1 << 20;

/// A reply of two owners' halves is put together in a buffer that must not be kept.
#[test]
fn nothing_of_a_long_reply_of_two_owners_stays() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    let used = |conn: &mut support::conn::Conn| {
        let info = conn.call(&["INFO", "memory"]);
        let text = String::from_utf8_lossy(info.text().expect("a text")).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a line");
        line.trim().parse::<usize>().expect("a number")
    };
    let value = vec![b'v'; 8 * MIB];
    // Enough names that both workers own some.
    let names: Vec<String> = (0..8).map(|n| format!("long{n}")).collect();
    for name in &names {
        assert!(!conn.call(&[&b"SET"[..], name.as_bytes(), &value]).is_error());
    }
    let mut argv = vec!["MGET"];
    argv.extend(names.iter().map(String::as_str));
    assert_eq!(conn.call(&argv).items().map(|items| items.len()), Some(names.len()));
    conn.call(&["FLUSHALL"]);
    let deadline = Instant::now() + Duration::from_secs(10);
    while used(&mut conn) > 16 * MIB {
        assert!(Instant::now() < deadline, "{} bytes stay", used(&mut conn));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Random pipelines against a map: every byte of every reply is the one expected.
#[test]
fn long_strings_are_what_was_written() {
    for (kind, seed) in KINDS.into_iter().zip([11, 12, 13]) {
        println!("{kind:?}, seed {seed}");
        let server = Server::start(kind, &[]);
        let mut rng = Rng::new(seed);
        let mut model = HashMap::new();
        let mut conn = server.connect();
        for round in 0..60 {
            let is_transaction = rng.percent(20);
            let (mut wire, mut expected) = (Vec::new(), Vec::new());
            if is_transaction {
                encode(&["MULTI"], &mut wire);
            }
            for _ in 0..1 + rng.below(8) {
                let (argv, reply) = step(&mut rng, &mut model);
                encode(&argv, &mut wire);
                expected.push(reply);
            }
            if is_transaction {
                encode(&["EXEC"], &mut wire);
            }
            // In pieces of any size, the next as soon as the last is on its way.
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                let most = *rng.pick(&[1000, 70_000, 10 * MIB]);
                let (piece, later) = rest.split_at(rest.len().min(1 + rng.below(most)));
                conn.send_raw(piece).expect("sent");
                rest = later;
            }
            if is_transaction {
                for n in 0..=expected.len() {
                    let word: &[u8] = if n == 0 { b"OK" } else { b"QUEUED" };
                    assert_eq!(conn.read().expect("a reply"), Reply::Simple(word.to_vec()));
                }
                expected = vec![Reply::Array(expected)];
            }
            for (n, wanted) in expected.into_iter().enumerate() {
                let got = conn.read().expect("a reply");
                assert!(got == wanted, "{kind:?} seed {seed} round {round} reply {n} differs");
            }
        }
    }
}

/// A command and the reply that the model gives to it.
fn step(rng: &mut Rng, model: &mut HashMap<String, Vec<u8>>) -> (Vec<Vec<u8>>, Reply) {
    let ok = || Reply::Simple(b"OK".to_vec());
    let bulk = |value: Option<&Vec<u8>>| value.map_or(Reply::NullBulk, |bytes| Reply::Bulk(bytes.clone()));
    let key = format!("k{}", rng.below(6));
    let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    match rng.below(10) {
        0..3 => {
            let value = bytes(rng);
            let argv = [words(&format!("SET {key}")), vec![value.clone()]].concat();
            model.insert(key, value);
            (argv, ok())
        }
        3..5 => (words(&format!("GET {key}")), bulk(model.get(&key))),
        5 => {
            let value = bytes(rng);
            let argv = [words(&format!("GETSET {key}")), vec![value.clone()]].concat();
            let old = model.insert(key, value);
            (argv, bulk(old.as_ref()))
        }
        6 => {
            let value = model.get(&key).map_or(&[][..], Vec::as_slice);
            let (from, len) = (rng.below(value.len() + 1), rng.below(200_000));
            let part = &value[from..value.len().min(from + len)];
            let argv = words(&format!("GETRANGE {key} {from} {}", (from + len) as i64 - 1));
            (argv, Reply::Bulk(part.to_vec()))
        }
        7 => {
            let more = bytes(rng);
            let argv = [words(&format!("APPEND {key}")), vec![more.clone()]].concat();
            let value = model.entry(key).or_default();
            value.extend_from_slice(&more);
            (argv, Reply::Int(value.len() as i64))
        }
        8 => {
            let other = format!("k{}", rng.below(6));
            let argv = words(&format!("MGET {key} {other}"));
            (argv, Reply::Array(vec![bulk(model.get(&key)), bulk(model.get(&other))]))
        }
        _ => {
            let (value, other) = (bytes(rng), format!("k{}", rng.below(6)));
            let argv =
                [words(&format!("MSET {key}")), vec![value.clone()], words(&other), vec![b"1".to_vec()]];
            model.insert(key, value);
            model.insert(other, b"1".to_vec());
            (argv.concat(), ok())
        }
    }
}

/// Random bytes, most often around the sizes at which their treatment changes.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let most = *rng.pick(&[100, 20_000, 70_000, 70_000, 300_000, 6 * MIB]);
    let mut value = vec![0; rng.below(most)];
    for chunk in value.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
    value
}

/// Four clients write and read 100 MB each, again and again; a fifth is answered as if they were not there.
#[test]
fn nobody_waits_for_long_strings() {
    const LEN: usize = 100_000_000;
    // In thread CPU, for the machine has other work. A turn that copies or frees 100 MB takes 30 ms and more.
    const MAX_TURN_US: u64 = 20_000;
    for kind in &KINDS[..2] {
        let server = Server::start(*kind, &["--turn-trace".into(), "yes".into()]);
        let is_over = AtomicBool::new(false);
        let n_rounds: usize = thread::scope(|scope| {
            let movers: Vec<_> = (0..4)
                .map(|n| {
                    let (server, is_over) = (&server, &is_over);
                    scope.spawn(move || move_long_strings(server, &format!("key{n}"), LEN, is_over))
                })
                .collect();
            let mut conn = server.connect();
            let started = Instant::now();
            let mut waits = Vec::new();
            while started.elapsed() < Duration::from_secs(4) {
                let asked = Instant::now();
                assert_eq!(conn.call(&["PING"]), Reply::Simple(b"PONG".to_vec()));
                waits.push(asked.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            is_over.store(true, Ordering::Relaxed);
            waits.sort_unstable();
            let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize];
            println!(
                "{kind:?}: PING p50 {:?} p99 {:?} p99.9 {:?} longest {:?} of {}",
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0),
                waits.len()
            );
            movers.into_iter().map(|mover| mover.join().expect("no panic")).sum()
        });
        println!("{kind:?}: {n_rounds} strings there and back");
        assert!(n_rounds > 0);
        let report = server.connect().call(&["DEBUG", "TURNS"]);
        let lines: Vec<String> = report
            .items()
            .expect("a line a worker")
            .iter()
            .map(|line| String::from_utf8_lossy(line.text().expect("text")).into_owned())
            .collect();
        println!("{lines:#?}");
        for line in &lines {
            let longest = line.split("max=").nth(1).and_then(|rest| rest.split(' ').next());
            let longest: u64 = longest.and_then(|us| us.parse().ok()).expect("a time");
            assert!(longest < MAX_TURN_US, "{kind:?}: a turn of {longest} us of CPU");
        }
    }
}

/// Sets a string and gets it until it is over; how often. Its own reader: the tests' decoder is for short replies.
fn move_long_strings(server: &Server, key: &str, len: usize, is_over: &AtomicBool) -> usize {
    let value = key.as_bytes().repeat(len / key.len());
    let mut requests = Vec::new();
    encode(&[b"SET", key.as_bytes(), &value], &mut requests);
    encode(&["GET", key], &mut requests);
    let expected = [format!("+OK\r\n${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut got = vec![0; expected.len()];
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("accepted");
    let mut n = 0;
    while !is_over.load(Ordering::Relaxed) {
        stream.write_all(&requests).expect("sent");
        stream.read_exact(&mut got).expect("two replies");
        assert!(got == expected, "another string came back");
        n += 1;
    }
    n
}
