//! Vector sets beyond Redis: metrics, radial searches, variadic forms, the directives of degree and code width; and that
//! what is long is cut into slices.
//!
//! Rows are drawn from a printed seed, around centers as embeddings lie; what is near is computed here, apart from the
//! server.

mod support;

use std::collections::HashSet;
use std::thread;

use support::conn::{Conn, encode};
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::vectors::{fp32, texts, words};

const SEED: u64 = 0x0be_707d;
const DIM: usize = 64;

fn start() -> (Server, Conn, Rng) {
    println!("seed {SEED:#x}");
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let conn = server.connect();
    (server, conn, Rng::new(SEED))
}

fn random_row(rng: &mut Rng) -> Vec<f32> {
    (0..DIM).map(|_| (0..4).map(|_| rng.within(-1000, 1000) as f32 / 1000.0).sum()).collect()
}

/// Rows of differing lengths around sixty centers.
fn clustered(rng: &mut Rng, n: usize) -> Vec<Vec<f32>> {
    let centers: Vec<Vec<f32>> = (0..60).map(|_| random_row(rng)).collect();
    let near = |rng: &mut Rng| {
        let (center, noise) = (rng.pick(&centers).clone(), random_row(rng));
        let scale = rng.within(50, 150) as f32 / 100.0;
        center.iter().zip(noise).map(|(x, y)| scale * (x + 0.6 * y)).collect()
    };
    (0..n).map(|_| near(rng)).collect()
}

fn add_all(conn: &mut Conn, key: &str, rows: &[Vec<f32>], options: &str) {
    add_from(conn, key, 0, rows, options);
}

/// Elements named by their numbers, from `first` on; some in flight.
fn add_from(conn: &mut Conn, key: &str, first: usize, rows: &[Vec<f32>], options: &str) {
    for (at, part) in rows.chunks(20).enumerate() {
        let mut bytes = Vec::new();
        for (i, row) in part.iter().enumerate() {
            let (name, blob) = (format!("{}", first + 20 * at + i), fp32(row));
            let argv = [&b"VADD"[..], key.as_bytes(), b"FP32", &blob, name.as_bytes()];
            let options: Vec<&[u8]> = options.split(' ').map(str::as_bytes).collect();
            encode(&[&argv[..], &options].concat(), &mut bytes);
        }
        conn.send_raw(&bytes).expect("sent");
        part.iter().for_each(|_| assert_eq!(conn.read().expect("a reply"), Reply::Int(1)));
    }
}

fn search(conn: &mut Conn, key: &str, query: &[f32], options: &str) -> Vec<String> {
    let blob = fp32(query);
    let argv = [&b"VSIM"[..], key.as_bytes(), b"FP32", &blob];
    let options: Vec<&[u8]> = options.split(' ').map(str::as_bytes).collect();
    texts(&conn.call(&[&argv[..], &options].concat()))
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// The larger, the nearer.
fn nearness(metric: &str, a: &[f32], b: &[f32]) -> f64 {
    match metric {
        "L2" => -a.iter().zip(b).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>(),
        "IP" => dot(a, b),
        _ => dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
    }
}

#[test]
fn each_metric_finds_what_is_near_by_it() {
    let (_server, mut conn, mut rng) = start();
    let mut rows = clustered(&mut rng, 6_060);
    let queries = rows.split_off(6_000);
    for (metric, option) in
        [("COSINE", "NOQUANT"), ("L2", "NOQUANT"), ("IP", "NOQUANT"), ("L2", "Q8"), ("IP", "Q8")]
    {
        let key = format!("{metric}:{option}");
        add_all(&mut conn, &key, &rows, &format!("{option} METRIC {metric} EF 100"));
        let (mut n_exact, mut n_found) = (0, 0);
        for query in &queries {
            let mut all: Vec<(f64, usize)> =
                rows.iter().enumerate().map(|(i, row)| (nearness(metric, query, row), i)).collect();
            all.sort_by(|a, b| b.0.total_cmp(&a.0));
            let truth: HashSet<String> = all[..10].iter().map(|(_, i)| i.to_string()).collect();
            let scan = search(&mut conn, &key, query, "TRUTH WITHSCORES");
            if option == "NOQUANT" {
                let score: f64 = scan[1].parse().expect("a score");
                let expected = match metric {
                    "L2" => 1.0 / (1.0 - all[0].0),
                    "IP" => all[0].0,
                    _ => (1.0 + all[0].0) / 2.0,
                };
                assert!(
                    (score - expected).abs() < 1e-4 * (1.0 + expected.abs()),
                    "{key}: {score}, not {expected}"
                );
            }
            n_exact += scan.chunks(2).filter(|pair| truth.contains(&pair[0])).count();
            let found = search(&mut conn, &key, query, "EF 200");
            n_found += found.iter().filter(|name| truth.contains(*name)).count();
        }
        let (exact, found) = (n_exact as f64 / 600.0, n_found as f64 / 600.0);
        println!("{key}: recall@10 of a scan {exact:.3}, of the graph at EF 200 {found:.3}");
        let least = if option == "Q8" { 0.85 } else { 0.999 };
        assert!(exact >= least, "{key}: a scan finds {exact}");
        assert!(found >= exact - 0.02, "{key}: the graph finds {found}, a scan {exact}");
    }
}

#[test]
fn a_radius_finds_all_within_it() {
    let (_server, mut conn, mut rng) = start();
    let mut rows = clustered(&mut rng, 8_012);
    let queries = rows.split_off(8_000);
    for (metric, option) in [("COSINE", "NOQUANT"), ("COSINE", "Q8"), ("L2", "NOQUANT")] {
        let key = format!("{metric}:{option}");
        add_all(&mut conn, &key, &rows, &format!("{option} METRIC {metric} EF 100"));
        for n_wanted in [20, 150, 1_000] {
            let (mut n_found, mut n_true) = (0, 0);
            for query in &queries {
                let scan = search(&mut conn, &key, query, &format!("TRUTH COUNT {n_wanted} WITHSCORES"));
                let score: f64 = scan[2 * n_wanted - 1].parse().expect("a score");
                let epsilon = match metric {
                    "L2" => (1.0 / score - 1.0).sqrt(),
                    _ => 1.0 - score,
                } * 1.000_001;
                let truth: HashSet<&String> = scan.chunks(2).map(|pair| &pair[0]).collect();
                let found = search(&mut conn, &key, query, &format!("EPSILON {epsilon} COUNT 5000 EF 100"));
                let exact = search(&mut conn, &key, query, &format!("EPSILON {epsilon} COUNT 5000 TRUTH"));
                assert!(
                    exact.len() >= n_wanted && exact.len() <= n_wanted + 5,
                    "{} of {n_wanted}",
                    exact.len()
                );
                n_found += found.iter().filter(|name| truth.contains(name)).count();
                n_true += n_wanted;
                // Nothing that lies outside.
                let exact: HashSet<String> = exact.into_iter().collect();
                assert!(found.iter().all(|name| exact.contains(name)), "{key}: too far");
                // COUNT still bounds.
                let few = search(&mut conn, &key, query, &format!("EPSILON {epsilon} COUNT 15 EF 100"));
                assert!((12..=15).contains(&few.len()), "{} hits", few.len());
            }
            let recall = f64::from(n_found as u32) / n_true as f64;
            println!("{key}, {n_wanted} within the radius: recall {recall:.3}");
            assert!(recall >= 0.95, "{key}, {n_wanted}: {recall}");
        }
    }
}

#[test]
fn the_degree_of_the_lowest_level_is_chosen() {
    let (_server, mut conn, mut rng) = start();
    let rows = clustered(&mut rng, 4_000);
    let mut bytes = Vec::new();
    for degree in [1, 2] {
        assert_eq!(
            words(&mut conn, &format!("CONFIG SET vset-layer0-degree {degree}")),
            Reply::Simple(b"OK".into())
        );
        let key = format!("{degree}x");
        add_all(&mut conn, &key, &rows, "NOQUANT M 16 EF 100");
        let most = (0..rows.len()).step_by(7).map(|i| {
            let levels = words(&mut conn, &format!("VLINKS {key} {i}")).items().expect("levels");
            levels.last().and_then(Reply::items).expect("level 0").len()
        });
        let most = most.max().expect("some");
        assert!(most <= 16 * degree && most > 8 * degree, "{most} links at {degree} x M");
        let tried = (0..rows.len()).step_by(40);
        let n_tried = tried.len();
        let is_found = |i: &usize| search(&mut conn, &key, &rows[*i], "COUNT 1 EF 100") == [i.to_string()];
        let n_found = tried.filter(is_found).count();
        println!("{n_found} of {n_tried} find themselves at EF 100, {degree} x M");
        assert!(n_found * 100 >= n_tried * 93, "{n_found} of {n_tried}");
        bytes.push(words(&mut conn, &format!("MEMORY USAGE {key}")).int().expect("a number"));
    }
    println!("bytes at 1 x M and 2 x M: {bytes:?}");
    assert!(bytes[0] < bytes[1]);
    // A set keeps the degree it was made with.
    words(&mut conn, "CONFIG SET vset-layer0-degree 2");
    add_all(&mut conn, "other", &rows[..10], "NOQUANT");
}

#[test]
fn every_code_width_answers_exactly() {
    let (_server, mut conn, mut rng) = start();
    let mut rows = clustered(&mut rng, 3_030);
    let queries = rows.split_off(3_000);
    for width in ["off", "auto", "8", "4", "2"] {
        words(&mut conn, &format!("CONFIG SET vset-code-bits {width}"));
        let key = format!("bits-{width}");
        add_all(&mut conn, &key, &rows, "NOQUANT EF 100");
        let mut n_found = 0;
        for query in &queries {
            let truth = search(&mut conn, &key, query, "TRUTH WITHSCORES");
            // Codes only lead the way: scores come from the rows.
            let found = search(&mut conn, &key, query, "EF 100 WITHSCORES");
            for pair in found.chunks(2) {
                if let Some(at) = truth.iter().step_by(2).position(|name| *name == pair[0]) {
                    assert_eq!(truth[2 * at + 1], pair[1], "{key}");
                    n_found += 1;
                }
            }
        }
        let recall = f64::from(n_found) / 300.0;
        println!("{key}: recall@10 {recall:.3}");
        assert!(recall >= 0.95, "{key}: {recall}");
    }
}

/// One component that outweighs all: codes of four bits tell its rows badly apart, and the server finds that out by itself.
#[test]
fn a_grown_set_gets_wider_codes_where_it_needs_them() {
    let (_server, mut conn, mut rng) = start();
    let mut rows = clustered(&mut rng, 10_020);
    rows.iter_mut().for_each(|row| row[5] = 400.0);
    let queries = rows.split_off(10_000);
    add_all(&mut conn, "v", &rows[..9_999], "NOQUANT EF 20 M 8");
    let told = |conn: &mut Conn| -> Vec<String> {
        let info = words(conn, "VINFO v");
        let text = |field: &Reply| match field.text() {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => field.int().expect("a text or a number").to_string(),
        };
        info.items().expect("the set is there").iter().map(text).collect()
    };
    let field = |conn: &mut Conn, name: &str| {
        let told = told(conn);
        told.iter().position(|field| field == name).map(|at| told[at + 1].clone())
    };
    assert_eq!(field(&mut conn, "code-bits"), None, "it is too small yet");
    add_from(&mut conn, "v", 9_999, &rows[9_999..], "NOQUANT EF 20 M 8");
    // Each call is a turn, and each turn does a part of it.
    let started = std::time::Instant::now();
    while field(&mut conn, "code-bits").is_none() {
        assert!(started.elapsed().as_secs() < 100, "nobody looks after the set");
    }
    let bits = field(&mut conn, "code-bits").expect("it is told");
    assert!(bits == "8" || bits == "32", "{bits} bits");
    let recall: f64 = field(&mut conn, "code-recall").and_then(|text| text.parse().ok()).expect("a number");
    assert!(recall >= 0.99, "{recall}");
    let first = told(&mut conn);
    let redis = ["quant-type", "hnsw-m", "vector-dim", "projection-input-dim", "size", "max-level"];
    assert!(first.iter().step_by(2).zip(redis).all(|(told, redis)| told == redis), "{first:?}");
    // Searches find the set whole while its links are chosen anew.
    for query in &queries {
        let truth: HashSet<String> = search(&mut conn, "v", query, "TRUTH").into_iter().collect();
        let found = search(&mut conn, "v", query, "EF 10");
        assert!(truth.len() == 10 && found.len() == 10);
    }
    assert_eq!(words(&mut conn, "VCARD v"), Reply::Int(10_000));
}

#[test]
fn many_at_once_are_what_one_by_one_are() {
    let (_server, mut conn, mut rng) = start();
    let rows = clustered(&mut rng, 1_200);
    add_all(&mut conn, "one", &rows, "NOQUANT");
    for (at, part) in rows.chunks(300).enumerate() {
        let mut argv: Vec<Vec<u8>> = vec![b"VMADD".into(), b"many".into()];
        for (i, row) in part.iter().enumerate() {
            argv.extend([b"FP32".to_vec(), fp32(row), format!("{}", 300 * at + i).into_bytes()]);
        }
        argv.push(b"NOQUANT".into());
        assert_eq!(conn.call(&argv), Reply::Int(300));
        assert_eq!(conn.call(&argv), Reply::Int(0));
    }
    assert_eq!(words(&mut conn, "VCARD many"), Reply::Int(1_200));
    let digest = |conn: &mut Conn, key: &str| words(conn, &format!("DEBUG DIGEST-VALUE {key}"));
    assert_eq!(digest(&mut conn, "one"), digest(&mut conn, "many"));
    let mut argv: Vec<Vec<u8>> = vec![b"VMREM".into(), b"many".into()];
    argv.extend((0..1_300).map(|i| i.to_string().into_bytes()));
    assert_eq!(conn.call(&argv), Reply::Int(1_200));
    assert_eq!(words(&mut conn, "EXISTS many"), Reply::Int(0));
}

/// What is longer than a turn is cut into slices, and answers as it does in one piece, which
/// is how a transaction runs it.
#[test]
fn sliced_searches_answer_as_whole_ones() {
    const N: usize = 8_000;
    println!("seed {SEED:#x}");
    let server = Server::start(Kind::Skerry { threads: 2 }, &["--turn-trace".into(), "yes".into()]);
    let (mut conn, mut rng) = (server.connect(), Rng::new(SEED));
    let rows = clustered(&mut rng, N);
    for (i, part) in rows.chunks(N / 10).enumerate() {
        let options = format!(r#"NOQUANT EF 20 SETATTR {{"part":{i}}}"#);
        add_from(&mut conn, "v", i * N / 10, part, &options);
    }
    let query = fp32(&rows[77]);
    let long: Vec<Vec<&[u8]>> = [
        "TRUTH COUNT 50 WITHSCORES",
        "EF 1000 COUNT 20 WITHSCORES WITHATTRIBS",
        "COUNT 8000",
        "FILTER .part==3 COUNT 900 TRUTH",
        "FILTER .part<5 EF 500",
        "EPSILON 0.3 COUNT 5000 EF 50",
    ]
    .iter()
    .map(|options| {
        [vec![&b"VSIM"[..], b"v", b"FP32", &query], options.split(' ').map(str::as_bytes).collect()].concat()
    })
    .chain([vec![&b"VRANGE"[..], b"v", b"-", b"+"], vec![&b"VRANGE"[..], b"v", b"(5", b"[6", b"30"]])
    .collect();
    let send_all = |conn: &mut Conn| {
        let mut bytes = Vec::new();
        long.iter().for_each(|argv| encode(argv, &mut bytes));
        conn.send_raw(&bytes).expect("sent");
    };
    words(&mut conn, "MULTI");
    send_all(&mut conn);
    long.iter().for_each(|_| assert_eq!(conn.read().expect("a reply"), Reply::Simple(b"QUEUED".to_vec())));
    let whole = words(&mut conn, "EXEC").items().expect("replies");
    assert_eq!(whole[6].items().map(|names| names.len()), Some(N));
    words(&mut conn, "DEBUG TURNS RESET");
    // Six clients at once, so that they wait for one another.
    thread::scope(|scope| {
        for _ in 0..6 {
            let mut conn = server.connect();
            scope.spawn({
                let (send_all, whole) = (&send_all, &whole);
                move || {
                    for _ in 0..3 {
                        send_all(&mut conn);
                        for (n, whole) in whole.iter().enumerate() {
                            assert_eq!(&conn.read().expect("a reply"), whole, "request {n}");
                        }
                    }
                }
            });
        }
    });
    for line in texts(&words(&mut conn, "DEBUG TURNS")) {
        println!("{line}");
        let max_us = line.split("max=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a time");
        let max_us: u64 = max_us.parse().expect("microseconds");
        // In one piece the eight take some tens of milliseconds in this build.
        assert!(max_us < 20_000, "a turn of {max_us} us");
    }
}
