//! Twenty-two cases in which vector databases have failed (issues of Redis, Qdrant, hnswlib, Lucene and others): limits,
//! odd numbers and shapes here, graphs under change in `vectors_graph.rs`. The number of a test is the case's.
//!
//! Cases 10, 11 and 13 ask for files and replicas, which do not exist yet: what can be asked of a running server is.

mod support;

use support::conn::Conn;
use support::reply::Reply;
use support::server::{Kind, Server};
use support::vectors::{fp32, texts, words};

const INVALID: &str = "ERR invalid vector specification";

fn start() -> (Server, Conn) {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let conn = server.connect();
    (server, conn)
}

fn is_error(reply: &Reply, text: &str) -> bool {
    matches!(reply, Reply::Error(error) if error == text.as_bytes())
}

fn numbers(reply: &Reply) -> Vec<f64> {
    texts(reply).iter().map(|text| text.parse().expect("a number")).collect()
}

fn used_memory(conn: &mut Conn) -> u64 {
    let info = words(conn, "INFO memory");
    let text = String::from_utf8_lossy(info.text().expect("text")).into_owned();
    let field = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    field.expect("a field").parse().expect("a number")
}

/// Elements e0, e1, ... with directions that all differ.
fn add_some(conn: &mut Conn, key: &str, n: usize, options: &str) {
    for i in 0..n {
        let (sin, cos) = (i as f32 * 0.05).sin_cos();
        let reply = words(conn, &format!("VADD {key} VALUES 3 {cos} {sin} 0.5 e{i} {options}"));
        assert_eq!(reply, Reply::Int(1));
    }
}

#[test]
fn case_01_counts_and_efs_of_any_size_allocate_nothing() {
    let (_server, mut conn) = start();
    add_some(&mut conn, "v", 30, "NOQUANT");
    words(&mut conn, "VSIM v ELE e0 COUNT 30");
    let before = used_memory(&mut conn);
    for option in [
        "COUNT 9223372036854775807",
        "COUNT 100000000",
        "COUNT 30 EF 1000001",
        "COUNT 30 EF 9223372036854775807",
        "COUNT 9223372036854775807 EF 9223372036854775807 TRUTH",
        "COUNT 9223372036854775807 FILTER-EF 9223372036854775807",
        "COUNT 9223372036854775807 EPSILON 0.9999",
    ] {
        let reply = words(&mut conn, &format!("VSIM v ELE e0 {option}"));
        assert_eq!(texts(&reply).len(), 30, "{option}");
    }
    let after = used_memory(&mut conn);
    assert!(after < before + (1 << 20), "{before} before, {after} after");
}

#[test]
fn case_02_random_members_without_end() {
    let (mut server, mut conn) = start();
    add_some(&mut conn, "v", 5, "Q8");
    for count in ["-9223372036854775808", "-9223372036854775807", "-1000000000"] {
        let reply = words(&mut conn, &format!("VRANDMEMBER v {count}"));
        assert!(is_error(&reply, "ERR value is out of range"), "{count}: {reply:?}");
    }
    assert_eq!(texts(&words(&mut conn, "VRANDMEMBER v 9223372036854775807")).len(), 5);
    assert_eq!(texts(&words(&mut conn, "VRANDMEMBER v -1000")).len(), 1000);
    assert!(server.is_alive());
}

#[test]
fn case_03_declared_dimensions() {
    let (mut server, mut conn) = start();
    for dim in ["4294967296", "4294967301", "9223372036854775807", "0", "-1", "4", "65537"] {
        let reply = words(&mut conn, &format!("VADD v REDUCE {dim} VALUES 3 1 2 3 a"));
        assert!(is_error(&reply, INVALID), "REDUCE {dim}: {reply:?}");
    }
    for dim in ["65537", "9223372036854775807", "4294967299", "0", "-3", "03", "3.0"] {
        let reply = words(&mut conn, &format!("VADD v VALUES {dim} 1 2 3 a"));
        assert!(is_error(&reply, INVALID), "VALUES {dim}: {reply:?}");
    }
    for len in [0, 1, 2, 3, 5, 4 * 65_537] {
        let blob = vec![0; len];
        let reply = conn.call(&[&b"VADD"[..], b"v", b"FP32", &blob, b"a"]);
        assert!(is_error(&reply, INVALID), "FP32 of {len}: {reply:?}");
        let reply = conn.call(&[&b"VADD"[..], b"v", b"REDUCE", b"1", b"FP32", &blob, b"a"]);
        assert!(is_error(&reply, INVALID), "FP32 of {len}: {reply:?}");
    }
    for m in ["65537", "4097", "3", "0", "4294967312"] {
        assert!(is_error(&words(&mut conn, &format!("VADD v VALUES 1 1 a M {m}")), "ERR invalid M"), "M {m}");
    }
    assert_eq!(words(&mut conn, "EXISTS v"), Reply::Int(0));
    assert!(server.is_alive());
}

#[test]
fn case_04_numbers_at_the_edge() {
    let (_server, mut conn) = start();
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for option in ["NOQUANT", "Q8", "BIN"] {
        let key = option.to_lowercase();
        add_some(&mut conn, &key, 10, option);
        for x in odd {
            let blob = fp32(&[1.0, x, 0.5]);
            let add = [&b"VADD"[..], key.as_bytes(), b"FP32", &blob, b"odd", option.as_bytes()];
            assert!(is_error(&conn.call(&add), INVALID), "VADD {x} {option}");
            let search = [&b"VSIM"[..], key.as_bytes(), b"FP32", &blob];
            assert!(is_error(&conn.call(&search), INVALID), "VSIM {x} {option}");
        }
        for word in ["nan", "inf", "-inf", "1e39", "1e400"] {
            let reply = words(&mut conn, &format!("VADD {key} VALUES 3 1 {word} 1 odd {option}"));
            assert!(is_error(&reply, INVALID), "{word} {option}: {reply:?}");
        }
        // Far too long and far too short for a float32 length: the direction stays.
        for (name, x) in [("huge", 3e38_f32), ("tiny", 1e-20)] {
            let blob = fp32(&[x, x, 0.0]);
            let add = [&b"VADD"[..], key.as_bytes(), b"FP32", &blob, name.as_bytes(), option.as_bytes()];
            assert_eq!(conn.call(&add), Reply::Int(1));
            let reply = words(&mut conn, &format!("VSIM {key} VALUES 3 1 1 0 COUNT 1 WITHSCORES TRUTH"));
            assert_eq!(numbers(&Reply::Array(reply.items().expect("hits")[1..].to_vec()))[0].round(), 1.0);
            let told = numbers(&words(&mut conn, &format!("VEMB {key} {name}")));
            if option != "BIN" {
                assert!((told[0] / f64::from(x) - 1.0).abs() < 0.01, "{name} {option}: {told:?}");
            }
            assert_eq!(words(&mut conn, &format!("VREM {key} {name}")), Reply::Int(1));
        }
        // What has no length in float32 at all has no direction either, as in Redis; but BIN sees the signs.
        let vanishing = fp32(&[1e-42, 1e-42, 0.0]);
        let add = [&b"VADD"[..], key.as_bytes(), b"FP32", &vanishing, b"vanishing", option.as_bytes()];
        assert_eq!(conn.call(&add), Reply::Int(1));
        let hits = texts(&words(&mut conn, &format!("VSIM {key} VALUES 3 1 1 0 COUNT 20 WITHSCORES")));
        let at = hits.iter().position(|text| text == "vanishing").expect("all are told");
        assert_eq!(hits[at + 1], if option == "BIN" { "1" } else { "0.5" }, "{option}");
        assert_eq!(words(&mut conn, &format!("VREM {key} vanishing")), Reply::Int(1));
        assert_eq!(texts(&words(&mut conn, &format!("VSIM {key} ELE e3 COUNT 10"))).len(), 10);
    }
}

#[test]
fn case_05_zero_vectors() {
    let (_server, mut conn) = start();
    for option in ["NOQUANT", "Q8", "BIN"] {
        let key = option.to_lowercase();
        assert_eq!(words(&mut conn, &format!("VADD {key} VALUES 3 0 0 0 zero {option}")), Reply::Int(1));
        add_some(&mut conn, &key, 40, option);
        assert_eq!(words(&mut conn, &format!("VCARD {key}")), Reply::Int(41));
        for query in ["ELE zero", "VALUES 3 0 0 0"] {
            let reply = words(&mut conn, &format!("VSIM {key} {query} COUNT 41 WITHSCORES"));
            let hits = texts(&reply);
            assert_eq!(hits.len(), 82);
            let of_zero = hits.iter().position(|text| text == "zero").expect("it finds itself");
            let expected = if option == "BIN" { "1" } else { "0.5" };
            assert_eq!(hits[of_zero + 1], expected, "{option} {query}");
            if option != "BIN" {
                assert!(hits.chunks(2).all(|pair| pair[1] == "0.5"), "{option}: {hits:?}");
            }
        }
        if option != "BIN" {
            let near = texts(&words(&mut conn, &format!("VSIM {key} ELE e20 COUNT 3")));
            assert_eq!(near[0], "e20", "{option}: {near:?}");
        }
        assert_eq!(
            numbers(&words(&mut conn, &format!("VEMB {key} zero")))[1].abs().round(),
            if option == "BIN" { 1.0 } else { 0.0 }
        );
    }
}

#[test]
fn case_10_an_update_is_the_new_vector_everywhere() {
    let server = Server::start(Kind::Skerry { threads: 4 }, &[]);
    let mut conns: Vec<Conn> = (0..8).map(|_| server.connect()).collect();
    add_some(&mut conns[0], "v", 20, "NOQUANT");
    for round in 0..20 {
        let line = format!("VADD v VALUES 3 {} -1 {} e7 NOQUANT", round + 1, 20 - round);
        assert_eq!(words(&mut conns[round % 8], &line), Reply::Int(0));
        for conn in &mut conns {
            let told = numbers(&words(conn, "VEMB v e7"));
            assert!((told[0] - (round + 1) as f64).abs() < 1e-4, "round {round}: {told:?}");
        }
    }
    let payload = words(&mut conns[0], "DUMP v");
    let restored = conns[0].call(&[&b"RESTORE"[..], b"w", b"0", payload.text().expect("a payload")]);
    assert_eq!(restored, Reply::Simple(b"OK".to_vec()));
    assert!((numbers(&words(&mut conns[0], "VEMB w e7"))[0] - 20.0).abs() < 1e-4);
}

#[test]
fn case_11_cas_by_many() {
    let server = Server::start(Kind::Skerry { threads: 2 }, &[]);
    let n_true = std::sync::atomic::AtomicI64::new(0);
    const ROUNDS: usize = 200;
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (mut conn, n_true) = (server.connect(), &n_true);
            scope.spawn(move || {
                for i in 0..ROUNDS {
                    let line = format!(r#"VADD v VALUES 3 {i} {n} 1 e{i} CAS SETATTR {{"n":{n}}}"#);
                    let reply = words(&mut conn, &line);
                    n_true.fetch_add(reply.int().expect("0 or 1"), std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    // Each element was new exactly once, and each has its attribute counted once.
    assert_eq!(n_true.into_inner(), ROUNDS as i64);
    let mut conn = server.connect();
    assert_eq!(words(&mut conn, "VCARD v"), Reply::Int(ROUNDS as i64));
    let info = words(&mut conn, "VINFO v").items().expect("a map");
    let at = info.iter().position(|item| item.text() == Some(b"attributes-count")).expect("a field");
    assert_eq!(info[at + 1], Reply::Int(ROUNDS as i64));
    assert_eq!(words(&mut conn, "DEL v"), Reply::Int(1));
    assert_eq!(words(&mut conn, "VADD v VALUES 3 1 2 3 a CAS"), Reply::Int(1));
}

#[test]
fn case_13_no_file_is_promised() {
    let (mut server, mut conn) = start();
    add_some(&mut conn, "v", 3, "Q8");
    let reply = words(&mut conn, "BGREWRITEAOF");
    assert!(reply.is_error(), "{reply:?}");
    assert!(server.is_alive());
}

#[test]
fn case_18_extreme_names_and_dimensions() {
    let (_server, mut conn) = start();
    let long = vec![b'n'; 512 << 10];
    for (at, name) in [&b""[..], b"\0", b"a\0b", b"\r\n", &long].into_iter().enumerate() {
        let add = [&b"VADD"[..], b"v", b"VALUES", b"1", b"1", name, b"SETATTR", b"x"];
        assert_eq!(conn.call(&add), Reply::Int(1));
        assert_eq!(conn.call(&[&b"VISMEMBER"[..], b"v", name]), Reply::Int(1));
        assert_eq!(conn.call(&[&b"VGETATTR"[..], b"v", name]), Reply::Bulk(b"x".to_vec()));
        let found = conn.call(&[&b"VSIM"[..], b"v", b"ELE", name, b"COUNT", b"10"]).items().expect("hits");
        assert_eq!(found.len(), at + 1);
        assert!(found.contains(&Reply::Bulk(name.to_vec())));
    }
    let all = words(&mut conn, "VRANGE v - +").items().expect("names");
    assert_eq!(all.len(), 5);
    assert!(all.is_sorted());

    let wide: Vec<f32> = (0..65_536).map(|i| (i % 7) as f32 - 3.0).collect();
    for option in [&b"NOQUANT"[..], b"Q8", b"BIN"] {
        let blob = fp32(&wide);
        assert_eq!(conn.call(&[&b"VADD"[..], option, b"FP32", &blob, b"a", option]), Reply::Int(1));
        assert_eq!(
            words(&mut conn, &format!("VDIM {}", String::from_utf8_lossy(option))),
            Reply::Int(65_536)
        );
        let reply = conn.call(&[&b"VSIM"[..], option, b"FP32", &blob, b"WITHSCORES"]);
        let score: f64 = texts(&reply)[1].parse().expect("a score");
        assert!((score - 1.0).abs() < 1e-3, "{score}");
        assert_eq!(conn.call(&[&b"VEMB"[..], option, b"a"]).items().map(|items| items.len()), Some(65_536));
    }
    let blob = fp32(&wide);
    let add = [&b"VADD"[..], b"reduced", b"REDUCE", b"65536", b"FP32", &blob, b"a"];
    assert_eq!(conn.call(&add), Reply::Int(1));
}

#[test]
fn case_22_an_empty_answer_and_an_absent_key() {
    let (_server, mut conn) = start();
    words(&mut conn, "HELLO 3");
    words(&mut conn, "VADD v VALUES 2 1 0 a NOQUANT");
    assert_eq!(words(&mut conn, "VSIM v VALUES 2 -1 0 WITHSCORES EPSILON 0.1"), Reply::Map(vec![]));
    assert_eq!(words(&mut conn, "VSIM v VALUES 2 -1 0 EPSILON 0.1"), Reply::Array(vec![]));
    assert_eq!(words(&mut conn, "VSIM absent VALUES 2 -1 0 WITHSCORES EPSILON 0.1"), Reply::Array(vec![]));
}
