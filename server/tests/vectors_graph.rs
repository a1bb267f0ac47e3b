//! The cases of `vectors_cases.rs` that are about the graph: duplicates, deletions, churn, filters, growth. The number
//! of a test is the case's.
//!
//! Rows are drawn from a printed seed. A search is held against TRUTH, which looks at every element.

mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::conn::{Conn, encode};
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::vectors::{fp32, texts, words};

const SEED: u64 = 0x0006_7aff;

fn start(threads: usize) -> (Server, Conn, Rng) {
    println!("seed {SEED:#x}");
    let server = Server::start(Kind::Skerry { threads }, &[]);
    let conn = server.connect();
    (server, conn, Rng::new(SEED))
}

fn random_row(rng: &mut Rng, dim: usize) -> Vec<f32> {
    (0..dim).map(|_| (0..4).map(|_| rng.within(-1000, 1000) as f32 / 1000.0).sum()).collect()
}

/// `n` rows around each of `n_clusters` centers, cluster by cluster.
fn clusters(rng: &mut Rng, n_clusters: usize, n: usize, dim: usize) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    for _ in 0..n_clusters {
        let center = random_row(rng, dim);
        rows.extend((0..n).map(|_| {
            let noise = random_row(rng, dim);
            center.iter().zip(noise).map(|(x, y)| x + 0.3 * y).collect::<Vec<f32>>()
        }));
    }
    rows
}

/// Adds many elements, some in flight.
fn add_all(conn: &mut Conn, key: &str, elements: &[(String, &[f32])], options: &[&str]) {
    for part in elements.chunks(20) {
        let mut bytes = Vec::new();
        for (name, row) in part {
            let blob = fp32(row);
            let argv = [&b"VADD"[..], key.as_bytes(), b"FP32", &blob, name.as_bytes()];
            let options: Vec<&[u8]> = options.iter().map(|option| option.as_bytes()).collect();
            encode(&[&argv[..], &options].concat(), &mut bytes);
        }
        conn.send_raw(&bytes).expect("sent");
        part.iter().for_each(|_| assert!(conn.read().expect("a reply").int().is_some()));
    }
}

fn named(rows: &[Vec<f32>]) -> Vec<(String, &[f32])> {
    rows.iter().enumerate().map(|(i, row)| (format!("e{i}"), row.as_slice())).collect()
}

fn search(conn: &mut Conn, key: &str, query: &[f32], options: &str) -> Vec<String> {
    let blob = fp32(query);
    let argv = [&b"VSIM"[..], key.as_bytes(), b"FP32", &blob];
    let options: Vec<&[u8]> = options.split(' ').map(str::as_bytes).collect();
    texts(&conn.call(&[&argv[..], &options].concat()))
}

/// Share of the ten nearest that a search finds.
fn recall(conn: &mut Conn, key: &str, queries: &[Vec<f32>], options: &str) -> f64 {
    let (mut n_found, mut n_true) = (0, 0);
    for query in queries {
        let truth: HashSet<String> =
            search(conn, key, query, &format!("COUNT 10 TRUTH {options}")).into_iter().collect();
        let found = search(conn, key, query, &format!("COUNT 10 {options}"));
        n_found += found.iter().filter(|name| truth.contains(*name)).count();
        n_true += truth.len();
    }
    if n_true == 0 { 1.0 } else { n_found as f64 / n_true as f64 }
}

fn used_memory(conn: &mut Conn) -> u64 {
    let info = words(conn, "INFO memory");
    let text = String::from_utf8_lossy(info.text().expect("text")).into_owned();
    let field = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    field.expect("a field").parse().expect("a number")
}

/// Resident memory of the process.
fn resident_bytes(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("the process");
    statm.split(' ').nth(1).expect("a field").parse::<u64>().expect("a number") * 4096
}

/// User and system time of the whole process, in ticks of 10 ms.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name in brackets") + 2..].split(' ').collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

#[test]
fn case_06_duplicates_absorb_no_links() {
    let (server, mut conn, mut rng) = start(1);
    let same = random_row(&mut rng, 24);
    let twins: Vec<(String, &[f32])> = (0..1_000).map(|i| (format!("twin{i}"), same.as_slice())).collect();
    add_all(&mut conn, "v", &twins, &["NOQUANT"]);
    let others: Vec<Vec<f32>> = (0..1_000).map(|_| random_row(&mut rng, 24)).collect();
    add_all(&mut conn, "v", &named(&others), &["NOQUANT"]);
    for (i, row) in others.iter().enumerate() {
        let found = search(&mut conn, "v", row, "COUNT 1 EF 100");
        assert_eq!(found, [format!("e{i}")]);
        let found = words(&mut conn, &format!("VSIM v ELE e{i} COUNT 1 EF 100"));
        assert_eq!(texts(&found), [format!("e{i}")]);
    }
    // Nothing but duplicates: the second half costs about what the first did.
    let mut halves = Vec::new();
    for half in 0..2 {
        let before = cpu_ticks(server.pid());
        let many: Vec<(String, &[f32])> =
            (0..4_000).map(|i| (format!("{half}:{i}"), same.as_slice())).collect();
        add_all(&mut conn, "same", &many, &["NOQUANT", "EF", "50"]);
        halves.push(cpu_ticks(server.pid()) - before);
    }
    println!("4,000 duplicates and 4,000 more: {halves:?} ticks of 10 ms");
    assert!(halves[1] <= 3 * halves[0] + 20, "{halves:?}");
}

#[test]
fn case_07_deletions_in_any_order() {
    let (_server, mut conn, mut rng) = start(1);
    let rows = clusters(&mut rng, 40, 100, 16);
    let queries: Vec<Vec<f32>> = (0..30).map(|_| rows[rng.below(rows.len())].clone()).collect();
    for order in ["random", "insertion", "cluster"] {
        let key = order;
        // Inserted in turns through the clusters, so that insertion order is not cluster order.
        let mut ids: Vec<usize> = (0..rows.len()).collect();
        ids.sort_by_key(|id| (id % 100, *id));
        let elements: Vec<(String, &[f32])> =
            ids.iter().map(|id| (format!("e{id}"), rows[*id].as_slice())).collect();
        add_all(&mut conn, key, &elements, &["NOQUANT", "EF", "100"]);
        match order {
            "random" => (0..rows.len()).for_each(|i| ids.swap(i, rng.below(rows.len()))),
            "cluster" => ids.sort_unstable(),
            _ => {}
        }
        let mut n_deleted = 0;
        for percent in [50, 90, 99] {
            let upto = ids.len() * percent / 100;
            for id in &ids[n_deleted..upto] {
                assert_eq!(words(&mut conn, &format!("VREM {key} e{id}")), Reply::Int(1));
            }
            n_deleted = upto;
            let recall = recall(&mut conn, key, &queries, "EF 20");
            // Most queries lie where nothing is left: what a fresh set of the survivors finds is the measure.
            let left: Vec<(String, &[f32])> =
                ids[n_deleted..].iter().map(|id| (format!("e{id}"), rows[*id].as_slice())).collect();
            add_all(&mut conn, "fresh", &left, &["NOQUANT", "EF", "100"]);
            let fresh = self::recall(&mut conn, "fresh", &queries, "EF 20");
            words(&mut conn, "DEL fresh");
            println!("{order} {percent} %: recall {recall:.4}, of a fresh set {fresh:.4}");
            assert!(recall >= fresh - 0.04, "{order} {percent} %: {recall}, fresh {fresh}");
            assert_eq!(
                n_reached(&mut conn, key, ids[n_deleted]),
                ids.len() - n_deleted,
                "{order} {percent} %"
            );
            for id in &ids[n_deleted..] {
                let found = words(&mut conn, &format!("VSIM {key} ELE e{id} COUNT 1 EF 60"));
                assert_eq!(texts(&found), [format!("e{id}")], "{order} {percent} %");
            }
        }
    }
}

/// How many elements the links of level 0 lead to.
fn n_reached(conn: &mut Conn, key: &str, from: usize) -> usize {
    let mut reached = HashSet::from([format!("e{from}")]);
    let mut to_expand = vec![format!("e{from}")];
    while let Some(name) = to_expand.pop() {
        let levels = words(conn, &format!("VLINKS {key} {name}")).items().expect("levels");
        let neighbors = texts(levels.last().expect("level 0"));
        to_expand.extend(neighbors.into_iter().filter(|neighbor| reached.insert(neighbor.clone())));
    }
    reached.len()
}

#[test]
fn case_08_churn_beside_searches() {
    let (mut server, mut conn, mut rng) = start(2);
    const N_NAMES: usize = 64;
    let is_over = AtomicBool::new(false);
    let mut settled = Vec::new();
    thread::scope(|scope| {
        for n in 0..4 {
            let (mut conn, mut rng, is_over) = (server.connect(), Rng::new(SEED + n), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let found = search(&mut conn, "v", &random_row(&mut rng, 16), "COUNT 5 EF 20");
                    let distinct: HashSet<&String> = found.iter().collect();
                    assert_eq!(distinct.len(), found.len(), "{found:?}");
                }
            });
        }
        for round in 0..3 {
            for _ in 0..1_700 {
                let (name, row) = (format!("n{}", rng.below(N_NAMES)), random_row(&mut rng, 16));
                add_all(&mut conn, "v", &[(name, &row)], &[]);
                words(&mut conn, &format!("VREM v n{}", rng.below(N_NAMES)));
            }
            settled.push(used_memory(&mut conn));
            println!("used_memory after round {round}: {}", settled[round]);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(server.is_alive(), "{}", server.log_tail());
    assert!(settled[2] < settled[0] + (512 << 10), "memory grows: {settled:?}");
}

#[test]
fn case_09_the_top_level_follows_deletions() {
    let (_server, mut conn, mut rng) = start(1);
    let rows: Vec<Vec<f32>> = (0..80).map(|_| random_row(&mut rng, 8)).collect();
    add_all(&mut conn, "v", &named(&rows), &["M", "4"]);
    for i in 0..rows.len() {
        let levels = |conn: &mut Conn, j| {
            let links = words(conn, &format!("VLINKS v e{j}"));
            links.items().expect("levels").len() - 1
        };
        let tallest = (i..rows.len()).map(|j| levels(&mut conn, j)).max().expect("some are left");
        let info = words(&mut conn, "VINFO v").items().expect("a map");
        let at = info.iter().position(|item| item.text() == Some(b"max-level")).expect("a field");
        assert_eq!(info[at + 1], Reply::Int(tallest as i64), "after {i}");
        assert_eq!(words(&mut conn, &format!("VREM v e{i}")), Reply::Int(1));
    }
    assert_eq!(words(&mut conn, "EXISTS v"), Reply::Int(0));
}

#[test]
fn case_14_updates_beside_inserts_and_searches() {
    let (mut server, _conn, _rng) = start(2);
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        for n in 0..4_u64 {
            let (mut conn, mut rng) = (server.connect(), Rng::new(SEED ^ n));
            scope.spawn(move || {
                let mut i = 0;
                while Instant::now() < end {
                    i += 1;
                    match n {
                        // Two write the same elements, one adds new ones, one searches.
                        0 | 1 => {
                            let row = random_row(&mut rng, 12);
                            add_all(&mut conn, "v", &[(format!("shared{}", i % 50), &row)], &["Q8"]);
                        }
                        2 => {
                            let row = random_row(&mut rng, 12);
                            add_all(&mut conn, "v", &[(format!("new{i}"), &row)], &["Q8"]);
                        }
                        _ => {
                            let found = search(&mut conn, "v", &random_row(&mut rng, 12), "COUNT 20 EF 50");
                            let distinct: HashSet<&String> = found.iter().collect();
                            assert_eq!(distinct.len(), found.len(), "{found:?}");
                        }
                    }
                }
            });
        }
    });
    assert!(server.is_alive(), "{}", server.log_tail());
    let mut conn = server.connect();
    let card = words(&mut conn, "VCARD v").int().expect("a number");
    let all = search(&mut conn, "v", &random_row(&mut Rng::new(1), 12), &format!("COUNT {card} TRUTH"));
    assert_eq!(all.len() as i64, card);
    for i in 0..50 {
        assert_eq!(
            texts(&words(&mut conn, &format!("VSIM v ELE shared{i} COUNT 1"))),
            [format!("shared{i}")]
        );
    }
}

#[test]
fn case_15_filters_find_what_matches() {
    let (_server, mut conn, mut rng) = start(1);
    const N: usize = 4_000;
    let rows = clusters(&mut rng, 40, N / 40, 16);
    for (i, row) in rows.iter().enumerate() {
        let json = format!(r#"{{"n":{i},"half":{},"tenth":{},"label":"l{}"}}"#, i % 2, i % 10, i % 100);
        add_all(&mut conn, "v", &[(format!("e{i}"), row)], &["Q8", "EF", "60", "SETATTR", &json]);
    }
    let queries: Vec<Vec<f32>> = (0..20).map(|_| random_row(&mut rng, 16)).collect();
    for (filter, n_matches) in [
        (".half==1", N / 2),
        (".tenth==3", N / 10),
        (".label=='l7'", N / 100),
        (".n>=100and.n<104", 4),
        (".n==1234", 1),
        (".nothing==1", 0),
    ] {
        let mut n_true = 0;
        let mut n_found = 0;
        for query in &queries {
            let truth = search(&mut conn, "v", query, &format!("TRUTH FILTER {filter}"));
            assert_eq!(truth.len(), n_matches.min(10), "{filter}");
            let found = search(&mut conn, "v", query, &format!("FILTER {filter}"));
            assert_eq!(found.len(), n_matches.min(10), "{filter}: ten, or all that match");
            n_true += truth.len();
            n_found += found.iter().filter(|name| truth.contains(name)).count();
        }
        assert!(n_found as f64 >= 0.95 * n_true as f64, "{filter}: {n_found} of {n_true}");
    }
    // A range and its members one by one are the same question.
    let range = search(&mut conn, "v", &queries[0], "FILTER .n>=100and.n<104");
    let argv = ["VSIM", "v", "ELE", "e0", "FILTER", ".n in [100,101,102,103]"];
    let members: HashSet<String> = texts(&conn.call(&argv)).into_iter().collect();
    assert_eq!(members, range.into_iter().collect());
}

#[test]
fn case_15_filters_of_any_size() {
    let (mut server, mut conn, _rng) = start(1);
    words(&mut conn, "VADD v VALUES 2 1 0 a SETATTR {\"n\":1}");
    let many = format!("{}.n == 1", ".n == 1 and ".repeat(10_000));
    let deep = format!("{}.n == 1{}", "(".repeat(10_000), ")".repeat(10_000));
    for filter in [many.as_str(), &deep] {
        let found = conn.call(&["VSIM", "v", "ELE", "a", "FILTER", filter]);
        assert_eq!(texts(&found), ["a"]);
    }
    for filter in ["(".repeat(100_000), "!".repeat(100_000), ".n == [".repeat(10_000), "'".into(), "".into()]
    {
        let found = conn.call(&["VSIM", "v", "ELE", "a", "FILTER", &filter]);
        assert!(found.is_error(), "{} bytes", filter.len());
    }
    let wide = format!(r#"{{"pad":"{}","n":1}}"#, "x".repeat(1 << 20));
    assert_eq!(conn.call(&["VSETATTR", "v", "a", &wide]), Reply::Int(1));
    assert_eq!(texts(&conn.call(&["VSIM", "v", "ELE", "a", "FILTER", ".n == 1"])), ["a"]);
    for (json, matches) in
        [("{\"n\":1", true), ("not json", false), ("{}", false), ("[1]", false), ("{\"n\":[[1]]}", false)]
    {
        assert_eq!(conn.call(&["VSETATTR", "v", "a", json]), Reply::Int(1));
        let found = texts(&conn.call(&["VSIM", "v", "ELE", "a", "FILTER", ".n == 1"]));
        assert_eq!(!found.is_empty(), matches, "{json}");
    }
    assert!(server.is_alive());
}

#[test]
fn case_16_more_effort_finds_no_less() {
    let (_server, mut conn, mut rng) = start(1);
    let rows: Vec<Vec<f32>> = (0..4_000).map(|_| random_row(&mut rng, 24)).collect();
    add_all(&mut conn, "v", &named(&rows), &["NOQUANT", "EF", "100"]);
    let far = vec![-9.0; 24];
    add_all(&mut conn, "v", &[("far".to_string(), &far)], &["NOQUANT"]);
    let queries: Vec<Vec<f32>> = (0..30).map(|_| random_row(&mut rng, 24)).collect();
    let recalls: Vec<f64> =
        [20, 64, 256, 1000].map(|ef| recall(&mut conn, "v", &queries, &format!("EF {ef}"))).to_vec();
    println!("recall at EF 20, 64, 256, 1000: {recalls:?}");
    assert!(recalls.windows(2).all(|pair| pair[1] >= pair[0] - 0.005), "{recalls:?}");
    assert!(recalls[3] >= 0.999, "{recalls:?}");
    let all: HashSet<String> = search(&mut conn, "v", &queries[0], "COUNT 4001").into_iter().collect();
    assert_eq!(all.len(), 4_001);
    assert!(all.contains("far"));
}

#[test]
fn case_17_scores_are_stable_and_in_order() {
    let (_server, mut conn, mut rng) = start(1);
    let rows: Vec<Vec<f32>> = (0..1_500).map(|_| random_row(&mut rng, 40)).collect();
    let score_of = |conn: &mut Conn, name: &str| {
        let found = search(conn, "v", &rows[0], "COUNT 2000 WITHSCORES");
        let at = found.iter().position(|text| text == name).expect("it is found");
        found[at + 1].clone()
    };
    add_all(&mut conn, "v", &named(&rows[..2]), &["NOQUANT"]);
    let first = score_of(&mut conn, "e1");
    for upto in [10, 100, 1_500] {
        add_all(&mut conn, "v", &named(&rows[..upto])[2..], &["NOQUANT"]);
        assert_eq!(score_of(&mut conn, "e1"), first, "with {upto} elements");
    }
    for query in &rows[..50] {
        let found = search(&mut conn, "v", query, "COUNT 50 WITHSCORES");
        let scores: Vec<f64> = found.chunks(2).map(|pair| pair[1].parse().expect("a score")).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        assert!((scores[0] - 1.0).abs() <= 1e-6, "{}", scores[0]);
    }
}

#[test]
fn case_19_a_deleted_set_is_freed_in_slices() {
    const N: usize = 20_000;
    println!("seed {SEED:#x}");
    let server = Server::start(Kind::Skerry { threads: 1 }, &["--turn-trace".into(), "yes".into()]);
    let (mut conn, mut rng) = (server.connect(), Rng::new(SEED));
    let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng, 8)).collect();
    for ending in ["DEL v", "UNLINK v", "PEXPIRE v 1", "FLUSHALL"] {
        add_all(&mut conn, "v", &named(&rows), &["NOQUANT", "EF", "10", "M", "4"]);
        let full = used_memory(&mut conn);
        words(&mut conn, "DEBUG TURNS RESET");
        words(&mut conn, ending);
        let end = Instant::now() + Duration::from_secs(20);
        while used_memory(&mut conn) > full / 2 {
            assert!(Instant::now() < end, "{ending}: the memory does not come back");
        }
        let turns = words(&mut conn, "DEBUG TURNS");
        let line = texts(&turns).remove(0);
        let max_us = line.split("max=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a time");
        println!("{ending}: {line}");
        let max_us: u64 = max_us.parse().expect("microseconds");
        // Thread time, so that others on this machine do not count; this is no optimised build.
        assert!(max_us < 20_000, "{ending}: a turn of {max_us} us");
    }
}

#[test]
fn case_20_memory_is_told_and_grows_evenly() {
    let (server, mut conn, mut rng) = start(1);
    let dim = 128;
    let before = used_memory(&mut conn);
    let mut resident = vec![resident_bytes(server.pid())];
    for step in 0..8 {
        let rows: Vec<Vec<f32>> = (0..500).map(|_| random_row(&mut rng, dim)).collect();
        let elements: Vec<(String, &[f32])> =
            rows.iter().enumerate().map(|(i, row)| (format!("{step}:{i}"), row.as_slice())).collect();
        add_all(&mut conn, "v", &elements, &["NOQUANT", "EF", "20"]);
        resident.push(resident_bytes(server.pid()));
    }
    println!("resident, each 500 elements: {resident:?}");
    // No doubling: no step costs much more than its share.
    let share = (resident[8] - resident[0]) / 8;
    let steepest = resident.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().expect("steps");
    assert!(steepest < 3 * share, "{steepest} in one step, {share} on average");
    let last = used_memory(&mut conn);
    let told = words(&mut conn, "MEMORY USAGE v").int().expect("a number") as f64;
    let taken = (last - before) as f64;
    println!("4,000 x {dim}: {:.0} bytes an element told, {:.0} taken", told / 4e3, taken / 4e3);
    assert!((0.85..1.15).contains(&(told / taken)), "{told} told, {taken} taken");
}

#[test]
fn case_21_small_sets_are_exact() {
    let (_server, mut conn, mut rng) = start(1);
    for n in [1, 2, 3, 10, 100, 255, 256, 257, 1_000, 1_024] {
        let key = format!("v{n}");
        let rows: Vec<Vec<f32>> = (0..n).map(|_| random_row(&mut rng, 20)).collect();
        add_all(&mut conn, &key, &named(&rows), &["NOQUANT", "EF", "30"]);
        for _ in 0..10 {
            let query = random_row(&mut rng, 20);
            let truth = search(&mut conn, &key, &query, "COUNT 10 TRUTH");
            assert_eq!(search(&mut conn, &key, &query, "COUNT 10"), truth, "{n} elements");
        }
    }
}
