//! Streams: there and back between our server and a live Redis 8.2.3, with groups and all, in the three forms of payload that
//! Redis has written; and payloads that somebody has tampered with.

use super::mutated::{most_held, mutate};
use super::payload;
use super::support::conn::Conn;
use super::support::reply::Reply;
use super::support::rng::Rng;
use super::support::server::{Kind, Server};
use super::{seed, setting};
use skerry_server::config::Config;
use skerry_server::keyspace::hash::HashSeed;
use skerry_server::keyspace::{Object, View};
use skerry_server::rdb::{self, Compression, MadeWith, Value};
use skerry_server::types::stream::{
    Acknowledging, Consumer, Delivery, Group, NodeLimits, READS_UNKNOWN, References, Threshold, Trim,
};
use skerry_server::types::{Limits, Stream};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of memory for a byte of payload, and for the smallest one.
const MAX_RATIO: usize = 10;
const MAX_FIXED_BYTES: usize = 2048;
/// A group of two letters is seven bytes of the oldest payload, a consumer twelve: fewer than an entry of any map takes.
const TINY_MAX_RATIO: usize = 16;
const FOOTER_BYTES: usize = 10;
const KINDS: &[u8] = &[15, 19, 21];

/// A stream with groups, pending entries and tombstones.
fn any_stream(rng: &mut Rng) -> Stream {
    let limits = NodeLimits {
        stream_node_max_bytes: *rng.pick(&[0, 4096, 100, 300]),
        stream_node_max_entries: rng.within(1, 20) as u64,
    };
    let mut stream = Stream::default();
    let names: Vec<Vec<u8>> = (0..3).map(|_| super::values::element(rng)).collect();
    for _ in 0..rng.within(0, 60) {
        let after = stream.history.next_id(rng.within(0, 200) as u64).expect("IDs are left");
        let n_fields = rng.within(1, 3) as usize;
        let values: Vec<Vec<u8>> = (0..n_fields).map(|_| super::values::element(rng)).collect();
        let pairs: Vec<_> = names.iter().zip(&values).collect();
        stream.append(after, pairs.iter().map(|(name, value)| (&name[..], &value[..])), limits);
    }
    for g in 0..rng.below(4) {
        let reads = if rng.chance(2) { READS_UNKNOWN } else { rng.within(0, 50) };
        let name = format!("group{g}").into_bytes();
        let mut group = Group::new(Default::default(), reads);
        let n_consumers = rng.below(3);
        let slots: Vec<_> =
            (0..n_consumers).map(|c| group.add_consumer(Consumer::new(&[b'c', c as u8], 77))).collect();
        stream.add_group(&name, group);
        for slot in slots {
            let delivery = Delivery {
                count: rng.below(12),
                acknowledging: Acknowledging::Needed,
                now_ms: rng.within(0, 1 << 42),
            };
            stream.deliver(&name, slot, delivery, |_| true);
        }
    }
    for _ in 0..rng.below(12) {
        let ids: Vec<_> =
            stream.range(Default::default(), stream.history.last_id).map(|entry| entry.id).collect();
        if !ids.is_empty() {
            stream.delete_for_good(*rng.pick(&ids));
        }
    }
    if rng.chance(3) {
        let threshold = Threshold::MaxLen(rng.below(20) as u64);
        let trim = Trim { threshold, is_approximate: false, limit: 0, references: References::Keep };
        stream.trim(&trim, &mut Vec::new());
    }
    stream
}

fn length(n: u64, out: &mut Vec<u8>) {
    match n {
        0..0x40 => out.push(n as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | n as u16).to_be_bytes()),
        _ => {
            out.push(0x81);
            out.extend_from_slice(&n.to_be_bytes());
        }
    }
}

fn string(bytes: &[u8], out: &mut Vec<u8>) {
    length(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The body of a payload as Redis 5 (15), 7.0 (19) and 7.2 (21) write it, without compression.
fn body(kind: u8, stream: &Stream) -> Vec<u8> {
    let mut out = vec![kind];
    let history = &stream.history;
    length(stream.nodes().len() as u64, &mut out);
    for node in stream.nodes().iter() {
        string(&node.master.to_bytes(), &mut out);
        let mut listpack = (node.listpack_bytes() as u32).to_le_bytes().to_vec();
        listpack.extend_from_slice(&[0xff, 0xff]);
        for count in [node.n_live, node.n_deleted] {
            assert!(count < 128, "one byte holds the counts of these nodes");
            listpack.extend_from_slice(&[count as u8, 1]);
        }
        listpack.extend_from_slice(node.payload());
        listpack.push(0xff);
        string(&listpack, &mut out);
    }
    length(history.length, &mut out);
    length(history.last_id.ms, &mut out);
    length(history.last_id.seq, &mut out);
    if kind > 15 {
        for id in [history.first_id, history.max_deleted_id] {
            length(id.ms, &mut out);
            length(id.seq, &mut out);
        }
        length(history.entries_added, &mut out);
    }
    length(stream.groups().len() as u64, &mut out);
    for (name, group) in stream.groups() {
        string(name, &mut out);
        length(group.last_id.ms, &mut out);
        length(group.last_id.seq, &mut out);
        if kind > 15 {
            length(group.entries_read as u64, &mut out);
        }
        length(group.pending().len() as u64, &mut out);
        for nack in group.pending().iter() {
            out.extend_from_slice(&nack.id.to_bytes());
            out.extend_from_slice(&nack.delivered_ms.to_le_bytes());
            length(nack.n_deliveries, &mut out);
        }
        length(group.n_consumers() as u64, &mut out);
        for consumer in group.consumers() {
            string(&consumer.name, &mut out);
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            if kind > 19 {
                out.extend_from_slice(&consumer.active_ms.unwrap_or(-1).to_le_bytes());
            }
            length(consumer.pending().len() as u64, &mut out);
            consumer.pending().iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
        }
    }
    out
}

/// All that can be seen of a stream.
fn seen(conn: &mut Conn, key: &str) -> [Reply; 3] {
    [
        conn.call(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"]),
        conn.call(&["XINFO", "GROUPS", key]),
        conn.call(&["DEBUG", "DIGEST-VALUE", key]),
    ]
}

fn call(conn: &mut Conn, words: &[&[u8]]) -> Reply {
    let argv: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    let mut bytes = Vec::new();
    super::support::conn::encode(&argv, &mut bytes);
    conn.send_raw(&bytes).expect("sent");
    conn.read().expect("a reply")
}

#[test]
fn streams_travel_both_ways() {
    let n_streams = setting("SKERRY_DUMP_VALUES", 150) as usize;
    let mut rng = Rng::new(seed() ^ 0x57);
    let checks = ["--sanitize-dump-payload".to_owned(), "yes".to_owned()];
    let (ours, theirs) =
        (Server::start(Kind::Skerry { threads: 1 }, &[]), Server::start(Kind::Redis, &checks));
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let ok = Reply::Simple(b"OK".to_vec());
    for n in 0..n_streams {
        let stream = any_stream(&mut rng);
        let kind = KINDS[n % KINDS.len()];
        if kind == 15 && stream.is_empty() {
            // Redis takes the greatest ID for the first one of such a stream.
            continue;
        }
        let sealed = payload::seal(body(kind, &stream), &mut rng);
        for conn in [&mut ours, &mut theirs] {
            assert_eq!(
                call(conn, &[b"RESTORE", b"x", b"0", &sealed, b"REPLACE"]),
                ok,
                "type {kind}, stream {n}"
            );
        }
        let before = seen(&mut ours, "x");
        assert_eq!(before, seen(&mut theirs, "x"), "type {kind}, stream {n}");
        for to_theirs in [true, false] {
            let (from, to) = if to_theirs { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
            let dumped = from.call(&["DUMP", "x"]);
            let dumped = dumped.text().expect("a payload");
            assert_eq!(call(to, &[b"RESTORE", b"y", b"0", dumped, b"REPLACE"]), ok, "stream {n}");
            assert_eq!(before, seen(to, "y"), "stream {n}, to theirs: {to_theirs}");
        }
    }
}

/// Entries that XNACK has released have no place in 8.2's format: they arrive as those of a consumer without a name.
#[test]
fn released_entries_travel_as_a_nameless_consumer_s() {
    let checks = ["--sanitize-dump-payload".to_owned(), "yes".to_owned()];
    let (ours, theirs) =
        (Server::start(Kind::Skerry { threads: 1 }, &[]), Server::start(Kind::Redis, &checks));
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    for key in ["plain", "with"] {
        for id in ["1-0", "2-0", "3-0", "4-0"] {
            ours.call(&["XADD", key, id, "f", "v"]);
        }
        ours.call(&["XGROUP", "CREATE", key, "g", "0"]);
        ours.call(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "3", "STREAMS", key, ">"]);
        if key == "with" {
            ours.call(&["XREADGROUP", "GROUP", "g", "", "STREAMS", key, ">"]);
        }
        assert_eq!(ours.call(&["XNACK", key, "g", "FATAL", "IDS", "2", "3", "1"]), Reply::Int(2));
        let dumped = ours.call(&["DUMP", key]);
        let dumped = dumped.text().expect("a payload");
        let counts: &[(&str, &str)] =
            if key == "with" { &[("", "3"), ("c", "1")] } else { &[("", "2"), ("c", "1")] };
        for conn in [&mut ours, &mut theirs] {
            assert_eq!(
                call(conn, &[b"RESTORE", b"y", b"0", dumped, b"REPLACE"]),
                Reply::Simple(b"OK".into())
            );
            let Reply::Array(summary) = conn.call(&["XPENDING", "y", "g"]) else { panic!("no summary") };
            let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
            let counts = counts.iter().map(|(name, n)| Reply::Array(vec![bulk(name), bulk(n)])).collect();
            assert_eq!(summary[3], Reply::Array(counts));
            let claimed = conn.call(&["XAUTOCLAIM", "y", "g", "d", "3600000", "0", "JUSTID"]);
            let ids = Reply::Array(vec![bulk("1-0"), bulk("3-0")]);
            assert_eq!(claimed, Reply::Array(vec![bulk("0-0"), ids, Reply::Array(Vec::new())]));
        }
    }
}

#[test]
fn tampered_streams_do_no_harm() {
    let n_mutations = setting("SKERRY_DUMP_MUTATIONS", 60_000) as usize;
    let mut rng = Rng::new(seed() ^ 0x58);
    let config = Config::default();
    let limits = Limits::new(HashSeed::from_u64(5));
    let made_with = MadeWith { config: &config, limits: &limits, seed: 3 };
    let (mut n_accepted, mut other) = (0, vec![0, 1, b'x']);
    for n in 0..n_mutations {
        let kind = KINDS[n % KINDS.len()];
        let mut tampered = body(kind, &any_stream(&mut rng));
        mutate(&mut tampered, &other, &mut rng);
        tampered[0] = kind;
        let sealed = payload::seal(tampered.clone(), &mut rng);
        other = tampered;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (value, n_held) = most_held(|| rdb::restore(&sealed, made_with).ok());
            // A byte that says so may begin a compressed string.
            if !sealed.contains(&0xc3) {
                assert!(n_held <= MAX_RATIO * sealed.len() + MAX_FIXED_BYTES, "{n_held} bytes held");
            }
            let Some(Value::Object(Object::Stream(stream))) = value else { return false };
            stream.check();
            let dumped = rdb::dump(View::Stream(&stream), Compression::Lzf).expect("dumped");
            let Ok(Value::Object(Object::Stream(again))) = rdb::restore(&dumped, made_with) else {
                panic!("what was dumped is refused");
            };
            let plain = |stream: &Stream| {
                let payload = rdb::dump(View::Stream(stream), Compression::None).expect("dumped");
                payload[..payload.len() - FOOTER_BYTES].to_vec()
            };
            assert_eq!(plain(&stream), plain(&again), "another stream came back");
            true
        }));
        let is_accepted = outcome.unwrap_or_else(|_| panic!("mutant {n} of type {kind}: {sealed:02x?}"));
        n_accepted += usize::from(is_accepted);
    }
    println!("{n_mutations} tampered streams, {n_accepted} accepted");
    assert!(n_accepted > 0 && n_accepted < n_mutations);
}

/// What takes most memory for its size: groups and consumers that are little but their names.
#[test]
fn tiny_groups_and_consumers_by_the_thousand() {
    let config = Config::default();
    let limits = Limits::new(HashSeed::from_u64(5));
    let made_with = MadeWith { config: &config, limits: &limits, seed: 3 };
    let mut groups = Stream::default();
    let mut consumers = Stream::default();
    let mut group = Group::new(Default::default(), 0);
    for n in 0..20_000_u16 {
        groups.add_group(&n.to_be_bytes(), Group::new(Default::default(), 0));
        group.add_consumer(Consumer::new(&n.to_be_bytes(), 0));
    }
    consumers.add_group(b"g", group);
    for (kind, stream) in KINDS.iter().flat_map(|kind| [(*kind, &groups), (*kind, &consumers)]) {
        let sealed = payload::seal(body(kind, stream), &mut Rng::new(1));
        let (restored, n_held) = most_held(|| rdb::restore(&sealed, made_with).is_ok());
        let ratio = n_held as f64 / sealed.len() as f64;
        println!("type {kind}: {} bytes of payload, memory at most {ratio:.2}x", sealed.len());
        assert!(restored && n_held <= TINY_MAX_RATIO * sealed.len(), "type {kind}: {ratio:.2}x");
    }
}
