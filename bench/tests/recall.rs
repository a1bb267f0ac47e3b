//! `skerry-bench recall` against a server that searches exactly, or leaves out what it should find.

mod wire_server;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use wire_server::{Behaviour, WireServer};

const N_DIMS: usize = 4;
const N_ROWS: usize = 60;

/// Row `i` of a spiral: all cosines between rows differ.
fn row(i: usize) -> [f32; N_DIMS] {
    let angle = i as f32 * 0.1;
    [angle.cos(), angle.sin(), (angle * 0.5).cos(), i as f32 * 0.01]
}

fn write_npy(name: &str, rows: impl Iterator<Item = [f32; N_DIMS]>) -> PathBuf {
    let rows: Vec<_> = rows.collect();
    let header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {N_DIMS}), }}\n", rows.len());
    let mut bytes =
        [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    bytes.extend(rows.iter().flatten().flat_map(|v| v.to_le_bytes()));
    let path = std::env::temp_dir().join(format!("skerry-bench-{name}-{}.npy", std::process::id()));
    std::fs::write(&path, bytes).expect("temporary file");
    path
}

fn floats(blob: &[u8]) -> Vec<f32> {
    blob.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
}

/// Cosine in f64, apart from the program's own arithmetic.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(p, q)| f64::from(*p) * f64::from(*q)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A vector set that searches exactly but skips the best `n_skipped`.
fn start(n_skipped: usize) -> WireServer {
    let set: Mutex<HashMap<Vec<u8>, Vec<f32>>> = Mutex::default();
    WireServer::start(Behaviour::default(), move |words| {
        let mut set = set.lock().expect("no panic");
        match words[0].as_slice() {
            b"DEL" => {
                set.clear();
                b":0\r\n".to_vec()
            }
            b"VADD" => {
                set.insert(words[4].clone(), floats(&words[3]));
                b":1\r\n".to_vec()
            }
            b"VCARD" => format!(":{}\r\n", set.len()).into_bytes(),
            b"VSIM" => {
                let query = floats(&words[3]);
                let mut all: Vec<_> = set.iter().map(|(name, v)| (cosine(&query, v), name)).collect();
                all.sort_by(|a, b| b.0.total_cmp(&a.0));
                let names: Vec<_> = all.into_iter().skip(n_skipped).take(10).map(|(_, name)| name).collect();
                let mut reply = Vec::new();
                skerry_resp::encode_command(&names, &mut reply);
                reply
            }
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    })
}

fn recall(server: &WireServer, name: &str, args: &[&str]) -> serde_json::Value {
    let base = write_npy(&format!("base-{name}"), (0..N_ROWS).map(row));
    let query = write_npy(&format!("query-{name}"), (0..7).map(|i| row(i * 8 + 1)));
    let json = std::env::temp_dir().join(format!("skerry-bench-recall-{name}-{}.json", std::process::id()));
    let paths = [&base, &query, &json].map(|p| p.to_str().expect("text").to_owned());
    let files = ["--base", &paths[0], "--query", &paths[1], "--json-out-file", &paths[2], "--seconds", "0"];
    let output = server.bench(&["recall"], &[&files[..], args].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&json).expect("written");
    for path in [base, query, json] {
        std::fs::remove_file(path).expect("removable");
    }
    serde_json::from_str(&text).expect("well-formed JSON")
}

#[test]
fn an_exact_server_has_recall_1_and_every_row_once() {
    let server = start(0);
    // 7 connections do not divide 60 rows, and 3 searchers do not divide 7 queries.
    let json = recall(&server, "exact", &["--ef", "10,20", "--load-clients", "7", "--clients", "3"]);
    assert_eq!(json["load"]["rows"], N_ROWS);
    for search in json["searches"].as_array().expect("array") {
        assert_eq!(search["recall"], 1.0);
        assert_eq!(search["queries"], 7);
    }
    let requests = server.requests();
    let mut added: Vec<usize> = Vec::new();
    for vadd in requests.iter().filter(|r| r[0] == b"VADD") {
        let index: usize = String::from_utf8_lossy(&vadd[4]).parse().expect("a row number");
        assert_eq!(floats(&vadd[3]), row(index));
        assert_eq!(vadd[5..], [&b"NOQUANT"[..], b"M", b"16", b"EF", b"200"]);
        added.push(index);
    }
    added.sort_unstable();
    assert_eq!(added, (0..N_ROWS).collect::<Vec<_>>());
    let efs: Vec<_> = requests.iter().filter(|r| r[0] == b"VSIM").map(|r| r[7].clone()).collect();
    assert_eq!(efs.iter().filter(|ef| *ef == b"10").count(), 7);
    assert_eq!(efs.iter().filter(|ef| *ef == b"20").count(), 7);
}

#[test]
fn what_the_server_leaves_out_is_missing_from_recall() {
    let json = recall(&start(3), "skips", &["--ef", "10"]);
    assert_eq!(json["searches"][0]["recall"], 0.7);
}

#[test]
fn an_error_of_the_server_is_told() {
    let server = WireServer::start(Behaviour::default(), |words| match words[0].as_slice() {
        b"VADD" => b"-ERR unknown command 'VADD'\r\n".to_vec(),
        _ => b":0\r\n".to_vec(),
    });
    let base = write_npy("base-error", (0..3).map(row));
    let path = base.to_str().expect("text");
    let output = server.bench(&["recall"], &["--base", path, "--query", path]);
    std::fs::remove_file(&base).expect("removable");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("ERR unknown command 'VADD'"), "{stderr}");
}
