//! RESTORE of vector sets that somebody has tampered with (case 12 of `vectors_cases.rs`), and of sets that went from
//! server to server.
//!
//! Payloads are written here by hand, footer included, so that a fault of the server's own writer cannot hide.

mod support;

use support::conn::{Conn, encode};
use support::crc64::crc64;
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::vectors::words;

const BAD_FORMAT: &[u8] = b"ERR Bad data format";
const SEED: u64 = 0x00d0_517e;

/// A node of a payload: what it says, sound or not.
#[derive(Clone)]
struct Node {
    name: &'static str,
    attribute: &'static str,
    row: Vec<u8>,
    id: u64,
    version: u64,
    /// Per level: the maximum and the links.
    levels: Vec<(u64, Vec<u64>)>,
    worst_index: u64,
    n_params: Option<u64>,
}

#[derive(Clone)]
struct Payload {
    module: u64,
    dim: u64,
    count: u64,
    config: u64,
    flags: u64,
    /// Input dimension and matrix.
    projection: Option<(u64, Vec<u8>)>,
    nodes: Vec<Node>,
    end: u64,
}

fn row(row: &[f32]) -> Vec<u8> {
    row.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Two linked nodes, as Redis would write them.
fn sound() -> Payload {
    let node = |name, id, x, y, link| Node {
        name,
        attribute: "",
        row: row(&[x, y]),
        id,
        version: 1,
        levels: vec![(32, vec![link])],
        worst_index: 0,
        n_params: None,
    };
    Payload {
        module: 0xbde7_2da2_bb1e_b400,
        dim: 2,
        count: 2,
        config: 16 << 8,
        flags: 0,
        projection: None,
        nodes: vec![node("a", 1, 1.0, 0.0, 2), node("b", 2, 0.6, 0.8, 1)],
        end: 0,
    }
}

impl Payload {
    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![7];
        length(&mut out, self.module);
        for value in [self.dim, self.count, self.config, self.flags] {
            uint(&mut out, value);
        }
        if let Some((input_dim, matrix)) = &self.projection {
            uint(&mut out, *input_dim);
            string(&mut out, matrix);
        }
        for node in &self.nodes {
            string(&mut out, node.name.as_bytes());
            if self.flags & 2 != 0 {
                string(&mut out, node.attribute.as_bytes());
            }
            string(&mut out, &node.row);
            let n_links: usize = node.levels.iter().map(|(_, links)| links.len()).sum();
            let per_level = 2 + node.version.min(1);
            let n_params = 3 + per_level * node.levels.len() as u64 + n_links as u64;
            uint(&mut out, node.n_params.unwrap_or(n_params));
            uint(&mut out, node.id);
            uint(&mut out, node.version << 24 | (node.levels.len() as u64 - 1));
            for (max_links, links) in &node.levels {
                uint(&mut out, links.len() as u64);
                uint(&mut out, *max_links);
                links.iter().for_each(|link| uint(&mut out, *link));
                if node.version > 0 {
                    uint(&mut out, node.worst_index);
                }
            }
            uint(&mut out, u64::from(1.0_f32.to_bits()));
        }
        length(&mut out, self.end);
        out
    }
}

fn uint(out: &mut Vec<u8>, value: u64) {
    length(out, 2);
    length(out, value);
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, 5);
    length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn length(out: &mut Vec<u8>, value: u64) {
    match value {
        0..64 => out.push(value as u8),
        64..0x4000 => out.extend_from_slice(&(0x4000 | value as u16).to_be_bytes()),
        _ => {
            out.push(0x81);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn seal(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&12_u16.to_le_bytes());
    let sum = crc64(&body);
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

fn restore(conn: &mut Conn, payload: &[u8]) -> Reply {
    conn.call(&[&b"RESTORE"[..], b"v", b"0", payload, b"REPLACE"])
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

#[test]
fn the_sound_payload_is_sound() {
    let server = Server::start(Kind::Skerry { threads: 1 }, &[]);
    let mut conn = server.connect();
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    assert_eq!(restore(&mut conn, &seal(sound().bytes())), ok());
    let two = Reply::Array(vec![Reply::Bulk(b"a".to_vec()), Reply::Bulk(b"b".to_vec())]);
    assert_eq!(words(&mut conn, "VSIM v ELE a"), two);
    // Redis's older nodes have no worst link, and M 0 is 16.
    let mut old = sound();
    old.config = 0;
    old.nodes.iter_mut().for_each(|node| node.version = 0);
    assert_eq!(restore(&mut conn, &seal(old.bytes())), ok());
    assert_eq!(words(&mut conn, "VSIM v ELE a"), two);
    // A node that nothing leads to is linked anew.
    let mut alone = sound();
    alone.nodes.iter_mut().for_each(|node| node.levels = vec![(32, vec![])]);
    assert_eq!(restore(&mut conn, &seal(alone.bytes())), ok());
    let links = words(&mut conn, "VLINKS v a");
    assert_eq!(links, Reply::Array(vec![Reply::Array(vec![Reply::Bulk(b"b".to_vec())])]));
    // A row that is no number becomes a zero vector.
    let mut odd = sound();
    odd.nodes[1].row = row(&[f32::NAN, 1.0]);
    assert_eq!(restore(&mut conn, &seal(odd.bytes())), ok());
    let scores = words(&mut conn, "VSIM v ELE a WITHSCORES").items().expect("hits");
    assert_eq!(scores[3], Reply::Bulk(b"0.5".to_vec()));
}

#[test]
fn case_12_tampered_payloads_are_refused_whole() {
    let mut server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let mut conn = server.connect();
    assert_eq!(restore(&mut conn, &seal(sound().bytes())), ok());
    type Tamper = fn(&mut Payload);
    let tampers: &[(&str, Tamper)] = &[
        ("another module", |p| p.module ^= 1 << 20),
        ("a later encoding", |p| p.module |= 1),
        ("count 0", |p| (p.count, p.nodes) = (0, vec![])),
        ("count above the nodes", |p| p.count = 3),
        ("count far above the nodes", |p| p.count = u64::MAX),
        ("count below the nodes", |p| p.count = 1),
        ("dim 0", |p| p.dim = 0),
        ("dim 65537", |p| p.dim = 65_537),
        ("dim 2^32 + 2", |p| p.dim = (1 << 32) + 2),
        ("dim of longer rows", |p| p.dim = 3),
        ("quantization 3", |p| p.config |= 3),
        ("M 3", |p| p.config = 3 << 8),
        ("M 5000", |p| p.config = 5000 << 8),
        ("duplicate ids", |p| p.nodes[1].id = 1),
        ("id 0", |p| (p.nodes[0].id, p.nodes[1].levels[0].1) = (0, vec![0])),
        ("duplicate names", |p| p.nodes[1].name = "a"),
        ("a short row", |p| p.nodes[0].row.truncate(4)),
        ("a long row", |p| p.nodes[0].row.extend([0; 4])),
        ("an empty row", |p| p.nodes[0].row.clear()),
        ("node version 2", |p| p.nodes[0].version = 2),
        ("level 17", |p| p.nodes[0].levels.extend(vec![(16, vec![]); 17])),
        ("level 32", |p| p.nodes[0].levels.extend(vec![(16, vec![]); 32])),
        ("max_links 3M + 1", |p| p.nodes[0].levels[0].0 = 49),
        ("max_links huge", |p| p.nodes[0].levels[0].0 = u64::MAX),
        ("max_links of an upper level 2M + 1", |p| p.nodes[0].levels.push((33, vec![]))),
        ("more links than max_links", |p| p.nodes[0].levels[0].0 = 0),
        ("an unknown link", |p| p.nodes[0].levels[0].1 = vec![9]),
        ("a link to itself", |p| p.nodes[0].levels[0].1 = vec![1]),
        ("a link twice", |p| p.nodes[0].levels[0].1 = vec![2, 2]),
        ("a link not returned", |p| p.nodes[0].levels[0].1.clear()),
        ("a link to a lower level", |p| p.nodes[0].levels.push((16, vec![2]))),
        ("a worst index beyond the links", |p| p.nodes[0].worst_index = 1),
        ("too few parameters", |p| p.nodes[0].n_params = Some(5)),
        ("too many parameters", |p| p.nodes[0].n_params = Some(8)),
        ("a huge number of parameters", |p| p.nodes[0].n_params = Some(u64::MAX)),
        ("no end", |p| p.end = 2),
        ("a projection of another size", |p| (p.flags, p.projection) = (1, Some((3, vec![0; 20])))),
        ("a projection to more", |p| (p.flags, p.projection) = (1, Some((1, vec![0; 8])))),
        ("a projection of 65537", |p| (p.flags, p.projection) = (1, Some((65_537, vec![0; 8])))),
        ("a projection of nothing", |p| (p.flags, p.projection) = (1, Some((0, vec![])))),
    ];
    for (what, tamper) in tampers {
        let mut payload = sound();
        tamper(&mut payload);
        assert_eq!(restore(&mut conn, &seal(payload.bytes())), Reply::Error(BAD_FORMAT.to_vec()), "{what}");
        // What was there is still there.
        assert_eq!(words(&mut conn, "VCARD v"), Reply::Int(2), "{what}");
    }
    let whole = sound().bytes();
    for len in 0..whole.len() {
        let reply = restore(&mut conn, &seal(whole[..len].to_vec()));
        assert_eq!(reply, Reply::Error(BAD_FORMAT.to_vec()), "cut to {len} bytes");
    }
    assert!(server.is_alive());
    // Any byte may be any other: the answer is one of two, and the server lives and searches on.
    println!("seed {SEED:#x}");
    let mut rng = Rng::new(SEED);
    for _ in 0..3_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.below(256) as u8;
        }
        let reply = restore(&mut conn, &seal(bytes.clone()));
        assert!(reply == ok() || reply == Reply::Error(BAD_FORMAT.to_vec()), "{reply:?} to {bytes:02x?}");
        if reply == ok() && words(&mut conn, "TYPE v") == Reply::Simple(b"vectorset".to_vec()) {
            let name = words(&mut conn, "VRANDMEMBER v");
            let found = conn.call(&[&b"VSIM"[..], b"v", b"ELE", name.text().expect("a name")]);
            assert!(found.items().is_some(), "{found:?} after {bytes:02x?}");
        }
    }
    assert!(server.is_alive(), "{}", server.log_tail());
}

const N_ROWS: usize = 5_000;
const DIM: usize = 48;
const N_QUERIES: usize = 60;

/// Rows around some centers, as embeddings lie.
fn clustered(rng: &mut Rng, n: usize) -> Vec<Vec<f32>> {
    let normal = |rng: &mut Rng| (0..6).map(|_| rng.within(-1000, 1000) as f32 / 1000.0).sum::<f32>();
    let centers: Vec<Vec<f32>> = (0..40).map(|_| (0..DIM).map(|_| normal(rng)).collect()).collect();
    let near = |rng: &mut Rng| {
        let center = &centers[rng.below(centers.len())];
        center.iter().map(|x| x + 0.5 * normal(rng)).collect()
    };
    (0..n).map(|_| near(rng)).collect()
}

/// Share of the ten nearest that a search finds. What is as near as the tenth counts: under BIN many are.
fn recall(conn: &mut Conn, key: &str, queries: &[Vec<f32>]) -> f64 {
    let mut n_found = 0;
    for query in queries {
        let blob = row(query);
        let scores = |conn: &mut Conn, option: [&[u8]; 2]| -> Vec<f64> {
            let argv = [&b"VSIM"[..], key.as_bytes(), b"FP32", &blob, b"WITHSCORES", b"COUNT", b"10"];
            let hits = conn.call(&[&argv[..], &option].concat()).items().expect("hits");
            let score = |hit: &[Reply]| String::from_utf8_lossy(hit[1].text().expect("text")).parse();
            hits.chunks(2).map(|hit| score(hit).expect("a number")).collect()
        };
        let tenth = scores(conn, [b"TRUTH", b"NOTHREAD"])[9];
        n_found += scores(conn, [b"EF", b"100"]).iter().filter(|score| **score >= tenth - 1e-6).count();
    }
    n_found as f64 / (10 * queries.len()) as f64
}

/// A set of 5,000 goes to the real Redis and one of Redis comes here, both found as well as at home.
#[test]
fn sets_travel_between_servers() {
    println!("seed {SEED:#x}");
    let mut rng = Rng::new(SEED);
    let rows = clustered(&mut rng, N_ROWS + N_QUERIES);
    let (rows, queries) = rows.split_at(N_ROWS);
    for option in ["NOQUANT", "Q8", "BIN"] {
        let kinds = [Kind::Skerry { threads: 2 }, Kind::Redis];
        let servers = kinds.map(|kind| Server::start(kind, &[]));
        let mut conns = servers.each_ref().map(Server::connect);
        for conn in &mut conns {
            for (at, part) in rows.chunks(20).enumerate() {
                let mut bytes = Vec::new();
                for (i, row_) in part.iter().enumerate() {
                    let (name, blob) = (format!("e{}", 20 * at + i), row(row_));
                    let json = format!(r#"{{"n":{}}}"#, 20 * at + i);
                    let argv = [&b"VADD"[..], b"home", b"FP32", &blob, name.as_bytes(), option.as_bytes()];
                    encode(&[&argv[..], &[b"SETATTR", json.as_bytes()]].concat(), &mut bytes);
                }
                conn.send_raw(&bytes).expect("sent");
                part.iter().for_each(|_| assert_eq!(conn.read().expect("a reply"), Reply::Int(1)));
            }
        }
        let [ours, redis] = &mut conns;
        for goes_out in [true, false] {
            let (from, to) = if goes_out { (&mut *ours, &mut *redis) } else { (&mut *redis, &mut *ours) };
            let payload = words(from, "DUMP home");
            let payload = payload.text().expect("a payload").to_vec();
            assert_eq!(to.call(&[&b"RESTORE"[..], b"away", b"0", &payload]), ok(), "{option}");
            assert_eq!(words(to, "VCARD away"), Reply::Int(N_ROWS as i64));
            assert_eq!(words(to, "VGETATTR away e77"), words(from, "VGETATTR home e77"));
            assert_eq!(words(to, "VEMB away e77 RAW"), words(from, "VEMB home e77 RAW"));
            let (home, away) = (recall(from, "home", queries), recall(to, "away", queries));
            println!("{option}: recall@10 at EF 100 {home:.4} at home, {away:.4} away");
            // The layout of the links is the same; what differs is each server's own search.
            assert!(away > home - 0.03, "{option}: {away} away, {home} at home");
            assert_eq!(words(to, "VREM away e77"), Reply::Int(1));
            words(to, "DEL away");
        }
    }
}
