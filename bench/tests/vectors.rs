//! `skerry-bench vectors` against a server that searches exactly, so that every figure is known, and against a real
//! skerry-server.

mod exact_server;
mod skerry_server;
mod wire_server;

use exact_server::floats;
use serde_json::Value as Json;
use skerry_server::SkerryServer;
use std::path::PathBuf;
use std::process::{Command, Output};
use wire_server::{Behaviour, WireServer};

const N_DIMS: usize = 4;
const N_ROWS: usize = 60;

/// Row `i` of a spiral: all cosines between rows differ.
fn row(i: usize) -> [f32; N_DIMS] {
    let angle = i as f32 * 0.1;
    [angle.cos(), angle.sin(), (angle * 0.5).cos(), i as f32 * 0.01]
}

/// Files of one test, removed when it ends.
struct Files {
    directory: PathBuf,
}

impl Files {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("skerry-vectors-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("temporary directory");
        let files = Self { directory };
        files.write_npy("base.npy", (0..N_ROWS).map(row));
        files.write_npy("query.npy", (0..7).map(|i| row(i * 8 + 1)));
        files
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().expect("text").to_owned()
    }

    fn write_npy(&self, name: &str, rows: impl Iterator<Item = [f32; N_DIMS]>) {
        let rows: Vec<_> = rows.collect();
        let header =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {N_DIMS}), }}\n", rows.len());
        let mut bytes =
            [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        bytes.extend(rows.iter().flatten().flat_map(|v| v.to_le_bytes()));
        std::fs::write(self.path(name), bytes).expect("temporary file");
    }

    /// The flags that name this test's data and JSON.
    fn flags(&self) -> Vec<String> {
        let flag = |name: &str, file: &str| [name.to_owned(), self.path(file)];
        [
            flag("--base", "base.npy"),
            flag("--query", "query.npy"),
            flag("--json", "out.json"),
            flag("--cache-dir", "cache"),
            ["--rows".to_owned(), N_ROWS.to_string()],
        ]
        .concat()
    }

    fn json(&self) -> Json {
        let text = std::fs::read_to_string(self.path("out.json")).expect("written");
        serde_json::from_str(&text).expect("well-formed JSON")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn run(server: &WireServer, files: &Files, mode: &str, args: &[&str]) -> Json {
    let flags = files.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let output = server.bench(&["vectors", mode], &[&flags[..], args].concat());
    assert!(output.status.success(), "{output:?}");
    files.json()
}

#[test]
fn an_exact_server_has_recall_1_and_every_row_once() {
    let server = exact_server::start(0);
    let files = Files::new("exact");
    // 7 connections do not divide 60 rows, and 3 searchers do not divide 7 queries.
    let args = ["--ef", "10,20", "--load-clients", "7", "--clients", "3", "--seconds", "0"];
    let json = run(&server, &files, "sweep", &args);
    let searches = json["tables"]["search"].as_array().expect("rows");
    assert_eq!(searches.iter().map(|s| s["ef"].as_u64()).collect::<Vec<_>>(), [Some(10), Some(20)]);
    assert!(searches.iter().all(|s| s["recall"] == 1.0 && s["server"] == "Redis 0.0.0"), "{searches:?}");
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
    let is_real = |r: &&Vec<Vec<u8>>| r[0] == b"VSIM" && !r[1].ends_with(b":absent");
    let efs: Vec<_> = requests.iter().filter(is_real).map(|r| r[7].clone()).collect();
    assert_eq!(efs.iter().filter(|ef| *ef == b"10").count(), 7);
    assert_eq!(efs.iter().filter(|ef| *ef == b"20").count(), 7);
}

#[test]
fn what_the_server_leaves_out_is_missing_from_recall() {
    let files = Files::new("skips");
    let server = exact_server::start(3);
    let json = run(&server, &files, "sweep", &["--ef", "10", "--seconds", "0"]);
    assert_eq!(json["tables"]["search"][0]["recall"], 0.7);
    // An element is its own nearest, and is left out too.
    let args = ["--ef", "10", "--seconds", "0", "--query-kind", "ele", "--queries", "20"];
    assert_eq!(run(&server, &files, "sweep", &args)["tables"]["search"][0]["recall"], 0.7);
}

#[test]
fn set_options_reach_vadd() {
    let files = Files::new("options");
    let server = exact_server::start(0);
    let args =
        ["--cas", "--quantization", "Q8", "--m", "5", "--ef-construction", "77", "--vadd-options", "A b"];
    run(&server, &files, "load", &args);
    let requests = server.requests();
    let vadd = requests.iter().find(|r| r[0] == b"VADD").expect("loaded");
    assert_eq!(vadd[5..], [&b"CAS"[..], b"Q8", b"M", b"5", b"EF", b"77", b"A", b"b"]);
}

#[test]
fn filters_match_their_share_and_nothing_else() {
    let files = Files::new("filter");
    let json = run(&exact_server::start(0), &files, "filter", &["--seconds", "0", "--count", "5"]);
    let rows = json["tables"]["search"].as_array().expect("rows");
    let told: Vec<_> = rows
        .iter()
        .map(|r| {
            (r["share"].as_str().expect("text"), r["n_matches"].as_f64(), r["n_fewest_returned"].as_f64())
        })
        .collect();
    let expected = [(100, 60, 5), (50, 30, 5), (50, 30, 5), (10, 6, 5), (10, 6, 5), (1, 1, 1), (1, 1, 1)];
    for ((share, n_matches, fewest), row) in expected.iter().zip(&told) {
        assert_eq!(
            (format!("{share} %").as_str(), Some(f64::from(*n_matches)), Some(f64::from(*fewest))),
            *row
        );
    }
    assert_eq!(told.len(), 9);
    for row in rows {
        assert_eq!((row["recall"].as_f64(), row["truth_recall"].as_f64()), (Some(1.0), Some(1.0)), "{row}");
        assert_eq!(
            (row["n_wrong"].as_f64(), row["full_replies_ratio"].as_f64()),
            (Some(0.0), Some(1.0)),
            "{row}"
        );
    }
}

#[test]
fn a_radius_holds_its_matches() {
    let files = Files::new("radial");
    for (n_skipped, recall) in [(0, 1.0), (6, 0.5)] {
        let server = exact_server::start(n_skipped);
        let json = run(&server, &files, "radial", &["--seconds", "0", "--matches", "12"]);
        let rows = json["tables"]["search"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row["recall"], recall, "{row}");
            assert_eq!(row["returned"], 12.0 * recall, "{row}");
            assert_eq!(row["n_wrong"], 0.0, "{row}");
        }
    }
}

#[test]
fn churn_sees_what_cannot_be_found() {
    let files = Files::new("churn");
    for (n_skipped, recall) in [(0, 1.0), (1, 0.75)] {
        let server = exact_server::start(n_skipped);
        let args = ["--rounds", "2", "--count", "4"];
        let json = run(&server, &files, "churn", &args);
        for title in ["churn in random order", "churn cluster by cluster"] {
            let steps = json["tables"][title].as_array().expect("rows");
            let sizes: Vec<_> =
                steps.iter().map(|s| s["n_rows"].as_f64().expect("number") as usize).collect();
            assert_eq!(sizes, [60, 30, 6, 60, 30, 6, 60, 30, 6, 60]);
            for step in steps {
                assert_eq!(step["recall"], recall, "{step}");
                let n_lost = if n_skipped == 0 { Some(0.0) } else { step["n_rows"].as_f64() };
                assert_eq!(step["n_unfindable"].as_f64(), n_lost, "{step}");
                assert_eq!(step["n_missing"], 0.0, "{step}");
            }
            assert_eq!(steps[9]["fresh_recall"], recall);
            assert_eq!(steps[9]["recall_difference"], 0.0);
        }
    }
}

#[test]
fn an_error_of_the_server_is_told() {
    let server = WireServer::start(Behaviour::default(), |words| match words[0].as_slice() {
        b"VADD" => b"-ERR unknown command 'VADD'\r\n".to_vec(),
        _ => b":0\r\n".to_vec(),
    });
    let files = Files::new("error");
    let flags = files.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let output = server.bench(&["vectors", "sweep"], &flags);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("ERR unknown command 'VADD'"), "{stderr}");
}

#[test]
fn flags_that_make_no_sense_are_told() {
    let bench = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_skerry-bench")).arg("vectors").args(args).output().expect("runs")
    };
    for (args, code, reason) in [
        (&["sweep", "--base", "x.npy", "--rows", "0"][..], 1, "greater than zero"),
        (&["sweep", "--base", "/nonexistent/x.npy"], 1, "/nonexistent/x.npy"),
        (&["sweep", "--base", "/dev/null"], 1, "not from"),
        (&["radial", "--metric", "l2"], 1, "cosine"),
        (&["radial", "--rows", "10", "--dim", "2"], 1, "--matches"),
        (&["stream", "--insert-rate", "0"], 1, "--insert-rate"),
        (&["sweep", "--rows", "10", "--dim", "2", "--port", "1"], 1, "refused"),
        (&["twirl"], 2, "twirl"),
        (&["sweep", "--peer"], 2, "--peer"),
    ] {
        let output = bench(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
    let help = bench(&["sweep", "--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--ef-construction"));
}

/// A tiny generated set on a skerry-server.
fn on_skerry(server: &SkerryServer, files: &Files, mode: &str, args: &[&str]) -> (Output, Json) {
    let (port, pid) = (server.port.to_string(), server.pid().to_string());
    let json = files.path("out.json");
    let cache = files.path("cache");
    let output = Command::new(env!("CARGO_BIN_EXE_skerry-bench"))
        .args(["vectors", mode, "-s", "127.0.0.1", "-p", &port, "--server-pid", &pid, "--json", &json])
        .args(["--cache-dir", &cache, "--rows", "400", "--queries", "30", "--dim", "24", "--clusters", "5"])
        .args(args)
        .output()
        .expect("skerry-bench runs");
    assert!(output.status.success(), "{output:?}");
    (output, files.json())
}

#[test]
fn two_servers_are_swept_in_turn_and_plotted() {
    let (ours, peer) = (SkerryServer::start(), SkerryServer::start());
    let files = Files::new("sweep");
    let svg = files.path("plot.svg");
    let other = format!("other=127.0.0.1:{}:{}", peer.port, peer.pid());
    let args = [
        "--ef",
        "20,60",
        "--seconds",
        "0.1",
        "--rounds",
        "3",
        "--peer",
        &other,
        "--svg",
        &svg,
        "--server-threads",
    ];
    let (output, json) = on_skerry(&ours, &files, "sweep", &args);
    let tables = &json["tables"];
    let names: Vec<_> = tables["search"].as_array().expect("rows").iter().map(|r| &r["server"]).collect();
    assert_eq!(names.len(), 4);
    assert_eq!((names[1], names[3]), (&Json::from("other"), &Json::from("other")));
    assert_eq!(tables["search rounds"].as_array().expect("rows").len(), 12);
    for row in tables["search"].as_array().expect("rows") {
        assert!(row["recall"].as_f64() > Some(0.8) && row["queries_per_s"].as_f64() > Some(1.0), "{row}");
    }
    assert_eq!(tables["search ratios"].as_array().expect("rows").len(), 2);
    for row in tables["load"].as_array().expect("rows") {
        assert!(row["rss_bytes_per_row"].is_number() && row["wall_s"].as_f64() > Some(0.0), "{row}");
    }
    assert!(json["provenance"]["machine"].as_str().is_some_and(|m| m.contains("cores")));
    assert_eq!(json["provenance"]["seed"], 1);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("search ratios") && text.contains("seed 1"), "{text}");
    let svg = std::fs::read_to_string(svg).expect("written");
    assert!(svg.starts_with("<svg") && svg.contains(">other</text>") && svg.contains("seed 1"), "{svg}");
    // An earlier run's figures are compared with, under the name they had.
    let earlier = files.path("earlier.json");
    let renamed = json.to_string().replace("other", "earlier");
    std::fs::write(&earlier, renamed).expect("writable");
    let args = ["--ef", "20,60", "--seconds", "0", "--also", &earlier, "--name", "now", "--no-load"];
    let (_, json) = on_skerry(&ours, &files, "sweep", &args);
    let names: Vec<_> =
        json["tables"]["search ratios"].as_array().expect("rows").iter().map(|r| r["to"].clone()).collect();
    assert!(names.contains(&Json::from("earlier")), "{names:?}");
}

#[test]
fn other_metrics_are_measured_by_their_own_truth() {
    let server = SkerryServer::start();
    let files = Files::new("metric");
    for metric in ["l2", "ip"] {
        let args = ["--metric", metric, "--ef", "200", "--seconds", "0"];
        let (_, json) = on_skerry(&server, &files, "sweep", &args);
        let search = &json["tables"]["search"][0];
        assert!(search["recall"].as_f64() > Some(0.9), "{metric}: {search}");
    }
}

#[test]
fn a_servers_filters_are_held_against_the_scan() {
    let server = SkerryServer::start();
    let files = Files::new("filters");
    let (_, json) = on_skerry(&server, &files, "filter", &["--seconds", "0"]);
    let rows = json["tables"]["search"].as_array().expect("rows");
    assert_eq!(rows.len(), 9);
    for row in rows {
        assert_eq!((row["n_wrong"].as_f64(), row["truth_recall"].as_f64()), (Some(0.0), Some(1.0)), "{row}");
    }
}

#[test]
fn a_dumped_set_is_as_good_where_it_is_restored() {
    let (ours, peer) = (SkerryServer::start(), SkerryServer::start());
    let files = Files::new("transfer");
    let other = format!("other=127.0.0.1:{}", peer.port);
    let (_, json) = on_skerry(&ours, &files, "transfer", &["--peer", &other]);
    let rows = json["tables"]["dumped and restored"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let (before, after) = (row["recall"].as_f64(), row["restored_recall"].as_f64());
        assert!(before > Some(0.9) && after > before.map(|r| r - 0.05), "{row}");
    }
}

#[test]
fn inserts_stream_in_beside_searches() {
    let server = SkerryServer::start();
    let files = Files::new("stream");
    let args = ["--insert-rate", "100", "--seconds", "0.3", "--rounds", "2", "--clients", "2"];
    let (_, json) = on_skerry(&server, &files, "stream", &args);
    let phases = json["tables"]["search"].as_array().expect("rows");
    assert_eq!(phases.len(), 2);
    assert!(phases[1]["inserts_per_s"].as_f64() > Some(0.0), "{phases:?}");
    let after = &json["tables"]["recall after the run"][0];
    assert!(after["rows"].as_u64() > Some(400) && after["rows"].as_u64() <= Some(460), "{after}");
    assert!(after["recall"].as_f64() > Some(0.8) && after["recall_difference"].is_number(), "{after}");
}

#[test]
fn a_get_is_timed_beside_a_storm() {
    let server = SkerryServer::start();
    let files = Files::new("storm");
    let args = ["--ef", "100", "--seconds", "0.3", "--clients", "2", "--get-rate", "200"];
    let (_, json) = on_skerry(&server, &files, "storm", &args);
    let rows = json["tables"]["GET"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|r| r["n_gets"].as_f64() > Some(0.0)), "{rows:?}");
    assert!(rows[1]["searches_per_s"].as_f64() > Some(0.0) && rows[2]["del_ms"].is_number(), "{rows:?}");
}

#[test]
fn a_server_survives_churn() {
    let server = SkerryServer::start();
    let files = Files::new("survive");
    let (_, json) = on_skerry(&server, &files, "churn", &["--rounds", "3", "--order", "random"]);
    let steps = json["tables"]["churn in random order"].as_array().expect("rows");
    assert_eq!(steps.len(), 1 + 4 * 3);
    assert!(steps.iter().all(|s| s["n_missing"] == 0.0 && s["recall"].as_f64() > Some(0.8)), "{steps:?}");
    assert!(json["tables"]["memory after the last round to the second"][0]["ratio"].is_number());
}
