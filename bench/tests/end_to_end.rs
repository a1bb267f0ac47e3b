//! The program against a tiny server of this file's own: what it sends, counts, prints and exits with.

mod wire_server;

use skerry_resp::encode_command;
use std::collections::HashMap;
use std::process::Output;
use std::sync::Mutex;
use wire_server::{Behaviour, WireServer};

fn bench(server: &WireServer, args: &[&str]) -> Output {
    server.bench(&[], &[&["--hide-histogram"], args].concat())
}

/// SET, GET and MGET do what they say, AUTH fails, FAIL is an error, anything else is OK.
fn start(behaviour: Behaviour) -> WireServer {
    let data = Mutex::new(HashMap::new());
    WireServer::start(behaviour, move |words| answer(words, &data))
}

type Data = Mutex<HashMap<Vec<u8>, Vec<u8>>>;

fn answer(words: &[Vec<u8>], data: &Data) -> Vec<u8> {
    let mut data = data.lock().expect("no panic");
    match words[0].to_ascii_uppercase().as_slice() {
        b"SET" => {
            data.insert(words[1].clone(), words[2].clone());
            b"+OK\r\n".to_vec()
        }
        b"GET" => match data.get(&words[1]) {
            Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
            None => b"$-1\r\n".to_vec(),
        },
        b"MGET" => {
            let mut reply = Vec::new();
            encode_command(&words[1..], &mut reply);
            reply
        }
        b"AUTH" => b"-WRONGPASS invalid username-password pair\r\n".to_vec(),
        b"FAIL" => b"-ERR told to fail\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json_of(server: &WireServer, args: &[&str], name: &str) -> (Output, serde_json::Value) {
    let path = std::env::temp_dir().join(format!("skerry-bench-{name}-{}.json", std::process::id()));
    let path_text = path.to_str().expect("text").to_owned();
    let output = bench(server, &[args, &["--json-out-file", &path_text]].concat());
    let json = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("removable");
    (output, serde_json::from_str(&json).expect("well-formed JSON"))
}

#[test]
fn every_request_is_sent_and_counted_once() {
    for piece_bytes in [0, 1, 7] {
        let server = start(Behaviour { piece_bytes, ..Behaviour::default() });
        let args = ["-t2", "-c3", "-n55", "--pipeline=7", "-d10", "--key-maximum=20", "--ratio=1:10"];
        let (output, json) = json_of(&server, &args, &format!("count{piece_bytes}"));
        assert!(output.status.success(), "{output:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2 * 3 * 55);
        assert_eq!(requests.iter().filter(|r| r[0] == b"SET").count(), 30);
        assert!(requests.iter().filter(|r| r[0] == b"SET").all(|r| r[2] == b"xxxxxxxxxx"));
        let all = &json["ALL STATS"];
        assert_eq!(all["Sets"]["Count"], 30);
        assert_eq!(all["Gets"]["Count"], 300);
        assert_eq!(all["Totals"]["Count"], 330);
        let series: u64 = all["Totals"]["Time-Serie"]
            .as_object()
            .expect("object")
            .values()
            .map(|second| second["Count"].as_u64().expect("count"))
            .sum();
        assert_eq!(series, 330);
        assert_eq!(all["Errors"]["Error replies"], 0);
        assert_eq!(json["run information"]["Requests per client"], 55);
        for name in ["p50.00", "p99.00", "p99.90"] {
            assert!(all["Gets"]["Percentile Latencies"][name].is_number(), "{name}");
        }
        let kb_tx = all["Totals"]["KB/sec TX"].as_f64().expect("number");
        assert!(kb_tx > 0.0);
    }
}

#[test]
fn the_table_is_memtiers() {
    let server = start(Behaviour::default());
    let output =
        bench(&server, &["-t1", "-c2", "-n10", "--ratio=1:1", "--key-pattern=S:S", "--key-maximum=4"]);
    let text = text(&output);
    let lines: Vec<&str> = text.lines().collect();
    // As memtier_benchmark 2.x prints them.
    let expected = "\
1         Threads
2         Connections per thread
10        Requests per client


ALL STATS
============================================================================================================================
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency   p99.9 Latency       KB/sec ";
    for (line, expected) in lines.iter().zip(expected.lines()) {
        assert_eq!(*line, expected);
    }
    assert_eq!(lines[8], "-".repeat(124));
    for (line, label) in lines[9..13].iter().zip(["Sets", "Gets", "Waits", "Totals"]) {
        assert_eq!(line.split_whitespace().next(), Some(label));
        assert_eq!(line.len(), 124, "{line}");
    }
    // Sets go before Gets over the same sequence, so nothing is missed.
    let gets: Vec<&str> = lines[10].split_whitespace().collect();
    assert_eq!(gets[3], "0.00", "{}", lines[10]);
    assert_eq!(gets[2], gets[1]);
}

#[test]
fn a_command_of_ten_keys_is_one_operation() {
    let server = start(Behaviour::default());
    let command = format!("--command=MGET {}", ["__key__"; 10].join(" "));
    let args =
        ["-t1", "-c1", "-n4", &command, "--command-key-pattern=S", "--key-prefix=k", "--key-maximum=39"];
    let (output, json) = json_of(&server, &args, "mget");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json["ALL STATS"]["Mgets"]["Count"], 4);
    let keys: Vec<Vec<u8>> = server.requests().into_iter().flat_map(|r| r[1..].to_vec()).collect();
    assert_eq!(keys, (0..40).map(|k| format!("k{k}").into_bytes()).collect::<Vec<_>>());
    assert!(text(&output).contains("\nMgets  "), "{}", text(&output));
}

#[test]
fn error_replies_are_shown_and_fail_the_run() {
    let server = start(Behaviour::default());
    let args = ["-t1", "-c2", "-n5", "--pipeline=5", "--command=FAIL __key__", "--command=PING"];
    let output = bench(&server, &args);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("ERRORS: 6 error replies, 0 lost connections; the first: ERR told to fail"),
        "{}",
        text(&output)
    );
    let ignored = bench(&server, &[&args[..], &["--ignore-errors"]].concat());
    assert_eq!(ignored.status.code(), Some(0));
    assert!(text(&ignored).contains("ERRORS: 6 error replies"));
}

#[test]
fn a_lost_connection_ends_its_client_and_fails_the_run() {
    let server = start(Behaviour { closes_after: 3, ..Behaviour::default() });
    let output = bench(&server, &["-t1", "-c2", "-n50", "--pipeline=2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("2 lost connections"), "{}", text(&output));
}

#[test]
fn a_refused_password_or_port_is_told() {
    let server = start(Behaviour::default());
    let output = bench(&server, &["-a", "wrong", "-n1"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("WRONGPASS invalid username-password pair"), "{stderr}");
    let output = bench(&server, &["-S", "/nonexistent/socket", "-n1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/socket"));
}

#[test]
fn the_cpu_of_a_given_process_is_printed_per_operation() {
    let server = start(Behaviour::default());
    let pid = std::process::id().to_string();
    let args = ["-t1", "-c1", "-n200", "--server-threads", "--server-pid", &pid];
    let (output, json) = json_of(&server, &args, "cpu");
    assert!(output.status.success(), "{output:?}");
    let text = text(&output);
    assert!(text.contains("CPU time per operation"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("server  ")), "{text}");
    let server_cpu = &json["ALL STATS"]["Server CPU"];
    assert!(server_cpu["User ns/op"].is_number() && server_cpu["System ns/op"].is_number());
    assert!(!server_cpu["Threads"].as_array().expect("array").is_empty());
    let missing = bench(&server, &["-n1", "--server-pid", "4294967295"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/proc/4294967295/stat"));
}

#[test]
fn a_rate_limit_is_not_exceeded() {
    let server = start(Behaviour::default());
    let (output, json) = json_of(&server, &["-t1", "-c2", "--test-time=1", "--rate-limiting=200"], "rate");
    assert!(output.status.success(), "{output:?}");
    let count = json["ALL STATS"]["Totals"]["Count"].as_u64().expect("count");
    // Two connections for a second; a full bucket (2 tokens) and the first token come on top.
    assert!((1..=2 * 203).contains(&count), "{count}");
    assert_eq!(count, server.requests().len() as u64);
}

#[test]
fn several_runs_print_best_worst_and_average() {
    let server = start(Behaviour::default());
    let (output, json) = json_of(&server, &["-t1", "-c1", "-n10", "-x3", "--print-all-runs"], "runs");
    let text = text(&output);
    let titles = [
        "RUN #1 RESULTS",
        "RUN #2 RESULTS",
        "RUN #3 RESULTS",
        "BEST RUN RESULTS",
        "WORST RUN RESULTS",
        "AGGREGATED AVERAGE RESULTS (3 runs)",
    ];
    for title in titles {
        assert!(text.contains(&format!("\n{title}\n")), "{title}");
        assert!(json[title]["Totals"]["Ops/sec"].as_f64().expect("number") > 0.0, "{title}");
    }
    assert_eq!(json["AGGREGATED AVERAGE RESULTS (3 runs)"]["Totals"]["Count"], 30);
}

#[test]
fn unusable_arguments_exit_with_2() {
    let server = start(Behaviour::default());
    assert_eq!(bench(&server, &["--ratio=x"]).status.code(), Some(2));
    assert_eq!(bench(&server, &["--no-such-flag"]).status.code(), Some(2));
    assert_eq!(bench(&server, &["@/nonexistent.args"]).status.code(), Some(2));
    assert_eq!(bench(&server, &["--help"]).status.code(), Some(0));
    assert!(server.requests().is_empty());
}
