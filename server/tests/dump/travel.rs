//! Values between our server and a live Redis 8.2.3: the same fingerprint and encoding at both ends.

use super::payload::{self, Style};
use super::support::conn::{Conn, encode};
use super::support::reply::Reply;
use super::support::rng::Rng;
use super::support::server::{Kind, Server};
use super::support::words;
use super::values::{self, Value};
use super::{seed, setting};
use std::collections::BTreeMap;

/// Values that are under way together.
const BATCH: usize = 100;

/// Small encodings end early, so that values of all encodings stay small.
const THRESHOLDS: &[&str] = &[
    "--set-max-intset-entries",
    "24",
    "--set-max-listpack-entries",
    "16",
    "--hash-max-listpack-entries",
    "16",
    "--zset-max-listpack-entries",
    "16",
    "--list-max-listpack-size",
    "-1",
];

fn servers() -> (Server, Server) {
    let thresholds: Vec<String> = THRESHOLDS.iter().map(|word| (*word).to_owned()).collect();
    (Server::start(Kind::Skerry { threads: 1 }, &thresholds), Server::start(Kind::Redis, &thresholds))
}

fn pipeline(conn: &mut Conn, requests: &[Vec<Vec<u8>>]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    requests.iter().for_each(|argv| encode(argv, &mut bytes));
    conn.send_raw(&bytes).expect("sent");
    requests
        .iter()
        .map(|argv| conn.read().unwrap_or_else(|e| panic!("{e:?} to {}", words::show(argv))))
        .collect()
}

fn request(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

fn key(i: usize) -> Vec<u8> {
    format!("k{i}").into_bytes()
}

/// The command that makes `key` hold the value.
fn build(key: &[u8], value: &Value) -> Vec<Vec<u8>> {
    let mut argv = match value {
        Value::String(text) => return request(&[b"SET", key, text]),
        Value::List(_) => request(&[b"RPUSH", key]),
        Value::Set(_) => request(&[b"SADD", key]),
        Value::Hash(_) => request(&[b"HSET", key]),
        Value::Timed(fields) => {
            // One deadline for all: what a single command can set.
            let deadline = fields[0].2.max(1 << 45).to_string();
            let n = fields.len().to_string();
            request(&[b"HSETEX", key, b"PXAT", deadline.as_bytes(), b"FIELDS", n.as_bytes()])
        }
        Value::Zset(_) => request(&[b"ZADD", key]),
    };
    match value {
        Value::String(_) => {}
        Value::List(elements) | Value::Set(elements) => argv.extend(elements.iter().cloned()),
        Value::Hash(fields) => argv.extend(fields.iter().flat_map(|(f, v)| [f.clone(), v.clone()])),
        Value::Timed(fields) => argv.extend(fields.iter().flat_map(|(f, v, _)| [f.clone(), v.clone()])),
        Value::Zset(scored) => {
            argv.extend(scored.iter().flat_map(|(m, score)| [format!("{score:e}").into_bytes(), m.clone()]));
        }
    }
    argv
}

/// What both servers must say alike of each key: its fingerprint and its encoding.
fn traits_of(conn: &mut Conn, n: usize) -> Vec<(Reply, Reply)> {
    let mut requests = Vec::new();
    for i in 0..n {
        requests.push(request(&[b"DEBUG", b"DIGEST-VALUE", &key(i)]));
        requests.push(request(&[b"OBJECT", b"ENCODING", &key(i)]));
    }
    let replies = pipeline(conn, &requests);
    replies.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Restores the payloads as k0, k1 ... and says what was answered.
fn restore(conn: &mut Conn, payloads: &[Vec<u8>]) -> Vec<Reply> {
    let requests = payloads.iter().enumerate();
    let requests: Vec<_> =
        requests.map(|(i, payload)| request(&[b"RESTORE", &key(i), b"0", payload])).collect();
    pipeline(conn, &requests)
}

type Kinds = &'static [(&'static str, &'static str, fn(&mut Rng) -> Value)];

/// Every encoding, by the name OBJECT ENCODING has for it, and what gives it.
const KINDS: Kinds = &[
    ("string", "int", |rng| Value::String(values::integer(rng).to_string().into_bytes())),
    ("string", "embstr", |rng| Value::String(format!("text {}", rng.below(1000)).into_bytes())),
    ("string", "raw", |rng| Value::String([vec![b'r'; 45], values::long_element(rng)].concat())),
    ("list", "listpack", |rng| {
        let n = rng.within(1, 12) as usize;
        values::list(rng, n)
    }),
    ("list", "quicklist", |rng| match rng.below(3) {
        0 => Value::List(
            (0..rng.within(120, 300)).map(|_| [&[b'q'; 40], &*values::element(rng)].concat()).collect(),
        ),
        _ => {
            let long = |rng: &mut Rng| [&[b'l'; 4000][..], &values::long_element(rng)].concat();
            let mut elements = vec![long(rng), long(rng)];
            for _ in 0..rng.within(1, 8) {
                let is_long = rng.chance(3);
                elements.push(if is_long { long(rng) } else { values::element(rng) });
            }
            Value::List(elements)
        }
    }),
    ("set", "intset", |rng| {
        let n = rng.within(1, 24) as usize;
        values::integers(rng, n)
    }),
    ("set", "listpack", |rng| {
        let n = rng.within(0, 12) as usize;
        match values::set(rng, n) {
            Value::Set(members) => {
                let short = members.into_iter().filter(|member| member.len() <= 64);
                Value::Set(std::iter::once(b"text".to_vec()).chain(short).collect())
            }
            other => other,
        }
    }),
    ("set", "hashtable", |rng| {
        let n = rng.within(1, 40) as usize;
        match values::set(rng, n) {
            Value::Set(members) => {
                let long = [&[b't'; 70][..], &values::long_element(rng)].concat();
                Value::Set(std::iter::once(long).chain(members).collect())
            }
            other => other,
        }
    }),
    ("hash", "listpack", |rng| {
        let n = rng.within(0, 15) as usize;
        match values::hash(rng, n) {
            Value::Hash(fields) => {
                let short = fields.into_iter().filter(|(f, v)| f.len() <= 64 && v.len() <= 64);
                Value::Hash(std::iter::once((b"f".to_vec(), b"v".to_vec())).chain(short).collect())
            }
            other => other,
        }
    }),
    ("hash", "hashtable", |rng| {
        let n = rng.within(0, 40) as usize;
        match values::hash(rng, n) {
            Value::Hash(fields) => {
                let long = [&[b'v'; 70][..], &values::long_element(rng)].concat();
                Value::Hash(std::iter::once((b"field".to_vec(), long)).chain(fields).collect())
            }
            other => other,
        }
    }),
    ("hash", "listpackex", |rng| {
        let n = rng.within(0, 15) as usize;
        match values::timed(rng, n) {
            Value::Timed(fields) => {
                let short = fields.into_iter().filter(|(f, v, _)| f.len() <= 64 && v.len() <= 64);
                let first = (b"f".to_vec(), b"v".to_vec(), 0);
                Value::Timed(std::iter::once(first).chain(short).collect())
            }
            other => other,
        }
    }),
    ("hash", "hashtable", |rng| {
        let n = rng.within(0, 40) as usize;
        match values::timed(rng, n) {
            Value::Timed(fields) => {
                let long = [&[b'v'; 70][..], &values::long_element(rng)].concat();
                Value::Timed(std::iter::once((b"field".to_vec(), long, 0)).chain(fields).collect())
            }
            other => other,
        }
    }),
    ("zset", "listpack", |rng| {
        let n = rng.within(0, 15) as usize;
        match values::zset(rng, n) {
            Value::Zset(scored) => {
                let short = scored.into_iter().filter(|(member, _)| member.len() <= 64);
                Value::Zset(std::iter::once((b"m".to_vec(), 1.0)).chain(short).collect())
            }
            other => other,
        }
    }),
    ("zset", "skiplist", |rng| {
        let n = rng.within(0, 40) as usize;
        match values::zset(rng, n) {
            Value::Zset(scored) => {
                let long = [&[b'm'; 70][..], &values::long_element(rng)].concat();
                Value::Zset(std::iter::once((long, -1.0)).chain(scored).collect())
            }
            other => other,
        }
    }),
];

/// Every encoding, from either server to the other.
#[test]
fn values_travel_both_ways() {
    let n_values = setting("SKERRY_DUMP_VALUES", 150) as usize;
    let mut rng = Rng::new(seed());
    let (ours, theirs) = servers();
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    for (kind, encoding, value) in KINDS {
        for goes_out in [true, false] {
            let (from, to) = if goes_out { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
            let mut n_done = 0;
            while n_done < n_values {
                let batch: Vec<Value> = (0..BATCH.min(n_values - n_done)).map(|_| value(&mut rng)).collect();
                travel(from, to, &batch, encoding);
                n_done += batch.len();
            }
            let way = if goes_out { "from Skerry to Redis" } else { "from Redis to Skerry" };
            println!("{n_done} {kind} {encoding} {way}");
        }
    }
}

fn travel(from: &mut Conn, to: &mut Conn, batch: &[Value], encoding: &str) {
    from.call(&["FLUSHALL"]);
    to.call(&["FLUSHALL"]);
    let builds: Vec<_> = batch.iter().enumerate().map(|(i, value)| build(&key(i), value)).collect();
    for (reply, build) in pipeline(from, &builds).iter().zip(&builds) {
        assert!(!reply.is_error(), "{reply:?} to {}", words::show(build));
    }
    let dumps: Vec<_> = (0..batch.len()).map(|i| request(&[b"DUMP", &key(i)])).collect();
    let payloads: Vec<Vec<u8>> =
        pipeline(from, &dumps).iter().map(|reply| reply.text().expect("a payload").to_vec()).collect();
    let restored = restore(to, &payloads);
    let (before, after) = (traits_of(from, batch.len()), traits_of(to, batch.len()));
    for (i, value) in batch.iter().enumerate() {
        let payload = &payloads[i];
        assert_eq!(restored[i], Reply::Simple(b"OK".to_vec()), "{value:?} as {payload:02x?}");
        assert_eq!(before[i].1, Reply::Bulk(encoding.as_bytes().to_vec()), "{value:?}");
        assert_eq!(before[i].0, after[i].0, "{value:?} as {payload:02x?}");
        // A list whose only node is just full is a listpack when it is read; both servers have it so.
        if before[i].1 != after[i].1 {
            from.call(&[&b"DEL"[..], &key(i)]);
            from.call(&[&b"RESTORE"[..], &key(i), b"0", payload]);
            let at_home = from.call(&[&b"OBJECT"[..], b"ENCODING", &key(i)]);
            assert_eq!(at_home, after[i].1, "{value:?} as {payload:02x?}");
        }
    }
}

/// Every form of payload that Redis 8.2.3 reads, to both servers.
#[test]
fn every_form_of_payload_is_read_alike() {
    let n_values = setting("SKERRY_DUMP_VALUES", 150) as usize;
    let mut rng = Rng::new(seed() ^ 0xf0f0);
    let (ours, theirs) = servers();
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let mut encodings: BTreeMap<(u8, String), usize> = BTreeMap::new();
    for (kind, name) in payload::TYPES {
        for _ in 0..n_values.div_ceil(BATCH) {
            let (values, payloads): (Vec<Value>, Vec<Vec<u8>>) = (0..BATCH.min(n_values))
                .map(|_| {
                    let value = any_value(name, &mut rng);
                    let body = payload::body(*kind, &value, Style::Any, &mut rng);
                    (value, payload::seal(body, &mut rng))
                })
                .unzip();
            ours.call(&["FLUSHALL"]);
            theirs.call(&["FLUSHALL"]);
            let replies = [restore(&mut ours, &payloads), restore(&mut theirs, &payloads)];
            let traits = [traits_of(&mut ours, payloads.len()), traits_of(&mut theirs, payloads.len())];
            for (i, payload) in payloads.iter().enumerate() {
                assert_eq!(replies[1][i], Reply::Simple(b"OK".to_vec()), "type {kind}: {payload:02x?}");
                assert_eq!(replies[0][i], replies[1][i], "type {kind}: {payload:02x?}");
                assert_eq!(traits[0][i], traits[1][i], "type {kind}: {payload:02x?}");
                check_deadlines(&mut ours, &mut theirs, &key(i), &values[i]);
                let encoding = traits[1][i].1.text().map(|text| String::from_utf8_lossy(text).into_owned());
                *encodings.entry((*kind, encoding.unwrap_or_default())).or_default() += 1;
            }
        }
    }
    for ((kind, encoding), n) in encodings {
        println!("{n} payloads of type {kind} became {encoding}");
    }
}

/// The fingerprint of a hash tells whether a field has a deadline; here they are told themselves.
fn check_deadlines(ours: &mut Conn, theirs: &mut Conn, key: &[u8], value: &Value) {
    let Value::Timed(fields) = value else { return };
    let n = fields.len().to_string();
    let mut argv = request(&[b"HPEXPIRETIME", key, b"FIELDS", n.as_bytes()]);
    argv.extend(fields.iter().map(|(field, _, _)| field.clone()));
    let deadlines = fields.iter().map(|(_, _, ms)| Reply::Int(if *ms == 0 { -1 } else { *ms }));
    let told = Reply::Array(deadlines.collect());
    assert_eq!((ours.call(&argv), theirs.call(&argv)), (told.clone(), told), "{value:?}");
}

pub(crate) fn any_value(name: &str, rng: &mut Rng) -> Value {
    let n = rng.within(1, 30) as usize;
    match name {
        "string" => {
            Value::String(if rng.percent(70) { values::element(rng) } else { values::long_element(rng) })
        }
        "list" => {
            let mut elements = match values::list(rng, n) {
                Value::List(elements) => elements,
                other => return other,
            };
            if rng.chance(4) {
                elements.push(values::long_element(rng));
            }
            Value::List(elements)
        }
        "set" => values::set(rng, n),
        "integers" => values::integers(rng, n),
        "hash" => values::hash(rng, n),
        "timed" => values::timed(rng, n),
        "zset" => values::zset(rng, n),
        other => panic!("no value is called {other}"),
    }
}
