//! Streams and tracked keys in the hands of clients that mean harm: no crash, and memory that stays bounded, which is printed.
//!
//! `cargo test -p skerry-server --test hostile_streams -- --nocapture`. `SKERRY_TRACKED_KEYS` (default 1,000,000; the measure is
//! 10,000,000), `SKERRY_STREAM_MUTATIONS` (default 3,000) and `SKERRY_SEED` set how much. Tampered payloads in process, with the memory
//! each may take: `--test dump streams`.

mod support;

use std::time::Instant;
use support::conn::{Conn, encode};
use support::crc64::crc64;
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::setting::setting;

const MIB: usize = 1 << 20;
const MAX: &str = "18446744073709551615";
const KINDS: [Kind; 2] = [Kind::Skerry { threads: 1 }, Kind::Skerry { threads: 2 }];

fn info(conn: &mut Conn, section: &str, name: &str) -> usize {
    let text = conn.call(&["INFO", section]);
    let text = String::from_utf8_lossy(text.text().expect("a text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    line.trim().parse().expect("a number")
}

/// Sends requests in pipelines; what the replies are does not matter.
fn pour(conn: &mut Conn, requests: impl Iterator<Item = Vec<String>>) {
    let mut requests = requests.peekable();
    while requests.peek().is_some() {
        let (mut bytes, mut n) = (Vec::new(), 0);
        for request in requests.by_ref().take(1000) {
            encode(&request, &mut bytes);
            n += 1;
        }
        conn.send_raw(&bytes).expect("sent");
        (0..n).for_each(|_| drop(conn.read().expect("a reply")));
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// IDs, counts and times at every limit, in all places where a stream's command has one.
#[test]
fn numbers_at_every_limit() {
    let ids = [
        "0",
        "0-0",
        "0-1",
        "1-0",
        "5-5",
        "5-*",
        "*",
        "-",
        "+",
        "$",
        ">",
        "(5-5",
        "(0-0",
        "9223372036854775807-0",
    ];
    let ids: Vec<String> = ids
        .iter()
        .map(|id| (*id).to_owned())
        .chain([
            format!("{MAX}-{MAX}"),
            format!("({MAX}-{MAX}"),
            format!("{MAX}-0"),
            format!("0-{MAX}"),
            format!("{MAX}-*"),
        ])
        .chain([
            "18446744073709551616-0".to_owned(),
            "-1-0".to_owned(),
            "1--1".to_owned(),
            "".to_owned(),
            "1-0-0".to_owned(),
        ])
        .collect();
    let counts = [
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "576460752303423487",
        "18446744073709551615",
    ];
    let forms = [
        "XADD k ID f v",
        "XADD k MAXLEN COUNT ID f v",
        "XADD k MINID ID * f v",
        "XADD k MAXLEN ~ COUNT LIMIT COUNT * f v",
        "XADD k IDMP p i ID f v",
        "XCFGSET k IDMP-DURATION COUNT IDMP-MAXSIZE COUNT",
        "XIDMPRECORD k p i ID",
        "XTRIM k MAXLEN COUNT",
        "XTRIM k MINID ~ ID LIMIT COUNT",
        "XRANGE k ID ID",
        "XRANGE k ID ID COUNT COUNT",
        "XREVRANGE k ID ID",
        "XDEL k ID ID",
        "XDELEX k DELREF IDS COUNT ID",
        "XDELEX k ACKED IDS 1 ID",
        "XACK k g ID",
        "XACKDEL k g ACKED IDS COUNT ID",
        "XACKDEL k g IDS 1 ID",
        "XNACK k g FATAL IDS 1 ID RETRYCOUNT COUNT FORCE",
        "XNACK k g SILENT IDS COUNT ID",
        "XREAD COUNT COUNT STREAMS k ID",
        "XREAD MAXCOUNT COUNT MAXSIZE COUNT STREAMS k ID",
        "XREADGROUP GROUP g c COUNT COUNT CLAIM COUNT STREAMS k ID",
        "XREADGROUP GROUP g d STREAMS k >",
        "XPENDING k g IDLE COUNT ID ID COUNT",
        "XPENDING k g",
        "XCLAIM k g c COUNT ID IDLE COUNT RETRYCOUNT COUNT FORCE",
        "XCLAIM k g c 0 ID TIME COUNT LASTID ID FORCE",
        "XAUTOCLAIM k g d COUNT ID COUNT COUNT",
        "XAUTOCLAIM k g c 0 ID COUNT COUNT JUSTID",
        "XSETID k ID ENTRIESADDED COUNT MAXDELETEDID ID",
        "XGROUP SETID k g ID ENTRIESREAD COUNT",
        "XGROUP CREATE k h ID MKSTREAM ENTRIESREAD COUNT",
        "XGROUP DESTROY k h",
        "XINFO STREAM k FULL COUNT COUNT",
        "DEL k",
        "XGROUP CREATE k g 0 MKSTREAM",
        "XINFO GROUPS k",
        "DUMP k",
        "COPY k l REPLACE",
        "XLEN k",
    ];
    let seed = setting("SKERRY_SEED", 1);
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        let mut rng = Rng::new(seed);
        let before = server.rss_bytes();
        let draw = |rng: &mut Rng, form: &str| -> Vec<String> {
            form.split(' ')
                .map(|word| match word {
                    "ID" => rng.pick(&ids).clone(),
                    "COUNT" => (*rng.pick(&counts)).to_owned(),
                    word => word.to_owned(),
                })
                .collect()
        };
        // The option that is called COUNT stands before the number.
        let draw = |rng: &mut Rng, form: &str| {
            draw(rng, &form.replace("COUNT COUNT", "count COUNT").replace("count count", "count COUNT"))
        };
        let n_requests = 40_000;
        pour(
            &mut conn,
            (0..n_requests).map(|_| {
                let form = *rng.pick(&forms);
                draw(&mut rng, form)
            }),
        );
        assert_eq!(conn.call(&["PING"]), Reply::Simple(b"PONG".into()));
        let grown = server.rss_bytes().saturating_sub(before);
        println!("{kind:?}: {n_requests} requests at the limits, seed {seed}: {} KiB more", grown / 1024);
        assert!(grown < 64 * MIB, "{kind:?}: {grown} bytes more");
    }
}

/// A hundred thousand IDs in one request, and XAUTOCLAIM's COUNT from 1 to the greatest there is.
#[test]
fn many_ids_and_great_counts() {
    const N: usize = 100_000;
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        conn.call(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
        pour(&mut conn, (1..=N).map(|n| words(&format!("XADD s {n} f v"))));
        conn.call(&["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"]);
        let filled = server.rss_bytes();
        for count in ["1", "1000", "576460752303423487"] {
            let started = Instant::now();
            let reply = conn.call(&["XAUTOCLAIM", "s", "g", "d", "0", "0", "COUNT", count, "JUSTID"]);
            let n_claimed = reply.items().expect("three parts")[1].items().expect("IDs").len();
            println!("{kind:?}: XAUTOCLAIM COUNT {count}: {n_claimed} claimed in {:?}", started.elapsed());
            assert_eq!(n_claimed, count.parse::<usize>().expect("a number").min(N));
        }
        for count in ["0", "-1", "576460752303423488", "9223372036854775807", "9223372036854775808"] {
            let reply = conn.call(&["XAUTOCLAIM", "s", "g", "d", "0", "0", "COUNT", count]);
            assert_eq!(reply, Reply::Error(b"ERR COUNT must be > 0".into()), "{count}");
        }
        let mut request = words(&format!("XNACK s g FAIL IDS {N}"));
        request.extend((1..=N).map(|n| format!("{n}-0")));
        let words_of: Vec<&str> = request.iter().map(String::as_str).collect();
        assert_eq!(conn.call(&words_of), Reply::Int(N as i64));
        let mut request = words(&format!("XACKDEL s g DELREF IDS {N}"));
        request.extend((1..=N).rev().map(|n| format!("{n}-0")));
        let words_of: Vec<&str> = request.iter().map(String::as_str).collect();
        let started = Instant::now();
        let reply = conn.call(&words_of);
        println!("{kind:?}: XACKDEL of {N} IDs in {:?}", started.elapsed());
        assert!(reply.items().expect("an answer each").iter().all(|answer| *answer == Reply::Int(1)));
        assert_eq!(conn.call(&["XLEN", "s"]), Reply::Int(0));
        let grown = server.rss_bytes().saturating_sub(filled);
        println!("{kind:?}: {} KiB more than when it was full", grown / 1024);
        assert!(grown < 64 * MIB, "{kind:?}: {grown} bytes more");
    }
}

/// Payloads of DUMP with bytes changed and the checksum made right again: refused, or a stream on which all commands work.
#[test]
fn tampered_payloads_over_the_wire() {
    const CHECKSUM_BYTES: usize = 8;
    let (seed, n_mutations) = (setting("SKERRY_SEED", 1), setting("SKERRY_STREAM_MUTATIONS", 3_000) as usize);
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        let mut rng = Rng::new(seed);
        for n in 1..=300 {
            conn.call(&[
                "XADD",
                "s",
                &format!("{n}-{}", n % 3),
                "field",
                &format!("value-{n}"),
                "n",
                &n.to_string(),
            ]);
        }
        for group in ["g", "h"] {
            conn.call(&["XGROUP", "CREATE", "s", group, "0"]);
            for consumer in ["a", "b", "c"] {
                conn.call(&["XREADGROUP", "GROUP", group, consumer, "COUNT", "20", "STREAMS", "s", ">"]);
            }
        }
        conn.call(&["XDEL", "s", "1-1", "100-1", "101-2"]);
        let whole = conn.call(&["DUMP", "s"]).text().expect("a payload").to_vec();
        let (before, mut n_accepted) = (server.rss_bytes(), 0);
        for _ in 0..n_mutations {
            let mut payload = whole[..whole.len() - CHECKSUM_BYTES].to_vec();
            for _ in 0..rng.within(1, 4) {
                // Not the version, which only is refused.
                let at = rng.below(payload.len() - 2);
                match rng.below(4) {
                    0 => payload[at] ^= 1 << rng.below(8),
                    1 => payload[at] = rng.next() as u8,
                    2 => payload[at] = *rng.pick(&[0, 0x3f, 0x80, 0x81, 0xc3, 0xf4, 0xff]),
                    _ => _ = payload.remove(at),
                }
            }
            payload.extend_from_slice(&crc64(&payload).to_le_bytes());
            let argv: Vec<Vec<u8>> =
                vec![b"RESTORE".into(), b"x".into(), b"0".into(), payload, b"REPLACE".into()];
            let mut bytes = Vec::new();
            encode(&argv, &mut bytes);
            conn.send_raw(&bytes).expect("sent");
            if conn.read().expect("a reply") != Reply::Simple(b"OK".into()) {
                continue;
            }
            n_accepted += 1;
            for request in [
                "XINFO STREAM x FULL COUNT 0",
                "XRANGE x - +",
                "XREVRANGE x + - COUNT 3",
                "XAUTOCLAIM x g z 0 0 COUNT 1000",
                "XREADGROUP GROUP h z COUNT 50 STREAMS x >",
                "XNACK x h FAIL IDS 2 2-2 21-0",
                "XPENDING x h - + 1000",
                "XADD x * f v",
                "XTRIM x MAXLEN ~ 50",
                "XDEL x 200-2",
                "DUMP x",
                "XGROUP DESTROY x g",
            ] {
                conn.call(&request.split(' ').collect::<Vec<_>>());
            }
        }
        conn.call(&["DEL", "x"]);
        assert_eq!(conn.call(&["PING"]), Reply::Simple(b"PONG".into()));
        let grown = server.rss_bytes().saturating_sub(before);
        println!(
            "{kind:?}: {n_mutations} tampered payloads, seed {seed}, {n_accepted} accepted: {} KiB more",
            grown / 1024
        );
        assert!(n_accepted > 0 && n_accepted < n_mutations, "{n_accepted} accepted");
        assert!(grown < 64 * MIB, "{kind:?}: {grown} bytes more");
    }
}

/// One client reads ever more keys that it tracks: the table keeps to its limit.
#[test]
fn tracked_keys_by_the_million() {
    let n_keys = setting("SKERRY_TRACKED_KEYS", 1_000_000) as usize;
    const MAX_KEYS: usize = 100_000;
    // A tracked key of 16 bytes takes 68, and the table grows by steps.
    const MAX_BYTES_PER_KEY: usize = 256;
    for kind in KINDS {
        let limit = ["--tracking-table-max-keys".to_owned(), MAX_KEYS.to_string()];
        let server = Server::start(kind, &limit);
        let mut conn = server.connect();
        conn.call(&["HELLO", "3"]);
        conn.call(&["CLIENT", "TRACKING", "ON"]);
        let before = server.rss_bytes();
        let mut most = 0;
        let mut n_told = 0;
        for first in (0..n_keys).step_by(1000) {
            let mut bytes = Vec::new();
            for n in first..(first + 1000).min(n_keys) {
                encode(&["GET", &format!("tracked:{n:08}")], &mut bytes);
            }
            conn.send_raw(&bytes).expect("sent");
            let mut n_left = 1000.min(n_keys - first);
            while n_left > 0 {
                match conn.read().expect("a reply") {
                    Reply::Push(_) => n_told += 1,
                    _ => n_left -= 1,
                }
            }
            if first % 100_000 == 0 {
                most = most.max(server.rss_bytes().saturating_sub(before));
            }
        }
        let mut other = server.connect();
        let n_tracked = info(&mut other, "stats", "tracking_total_keys");
        println!(
            "{kind:?}: {n_keys} keys read, {n_tracked} tracked, {n_told} told as forgotten, at most {} KiB more",
            most / 1024
        );
        assert!(n_tracked <= MAX_KEYS + 1000, "{n_tracked}");
        assert!(most < MAX_KEYS * MAX_BYTES_PER_KEY + 32 * MIB, "{kind:?}: {most} bytes more");
    }
}
