//! The program against a tiny server of this file's own: what it sends, counts, prints and exits with.

use skerry_resp::encode_command;
use skerry_resp::value::{Decoder, Value};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

/// How the test server behaves.
#[derive(Clone, Copy, Default)]
struct Behaviour {
    /// Writes replies in pieces of this many bytes; 0: whole.
    piece_bytes: usize,
    /// Closes a connection after this many requests; 0: never.
    closes_after: usize,
}

/// A server on a free port: SET, GET and PING do what they say, AUTH fails, FAIL is an error, anything else is OK.
struct TestServer {
    port: u16,
    requests: Arc<Mutex<Vec<Vec<Vec<u8>>>>>,
}

impl TestServer {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        // The thread ends with the test process.
        thread::spawn(move || {
            let data = Arc::new(Mutex::new(HashMap::new()));
            for stream in listener.incoming().flatten() {
                let (log, data) = (Arc::clone(&log), Arc::clone(&data));
                thread::spawn(move || serve(stream, behaviour, &log, &data));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<Vec<Vec<u8>>> {
        self.requests.lock().expect("no panic in the server").clone()
    }

    fn bench(&self, args: &[&str]) -> Output {
        let port = self.port.to_string();
        Command::new(env!("CARGO_BIN_EXE_skerry-bench"))
            .args(["-s", "127.0.0.1", "-p", &port, "--hide-histogram"])
            .args(args)
            .output()
            .expect("skerry-bench runs")
    }
}

type Log = Mutex<Vec<Vec<Vec<u8>>>>;
type Data = Mutex<HashMap<Vec<u8>, Vec<u8>>>;

fn serve(mut stream: TcpStream, behaviour: Behaviour, log: &Log, data: &Data) {
    stream.set_nodelay(true).expect("a TCP socket");
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let mut n_served = 0;
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..n]);
        let mut replies = Vec::new();
        // A request is an array of bulks, so the reply decoder reads it.
        while let Some((request, n_bytes)) = Decoder::default().decode(&bytes).expect("valid requests") {
            bytes.drain(..n_bytes);
            let Value::Array(words) = request else { panic!("a request is an array") };
            let words: Vec<Vec<u8>> = words
                .into_iter()
                .map(|w| if let Value::Bulk(b) = w { b } else { panic!("an argument is a bulk") })
                .collect();
            replies.extend(answer(&words, data));
            log.lock().expect("no panic").push(words);
            n_served += 1;
            if n_served == behaviour.closes_after {
                return;
            }
        }
        let piece_bytes =
            if behaviour.piece_bytes == 0 { replies.len().max(1) } else { behaviour.piece_bytes };
        for piece in replies.chunks(piece_bytes) {
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    }
}

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

fn json_of(server: &TestServer, args: &[&str], name: &str) -> (Output, serde_json::Value) {
    let path = std::env::temp_dir().join(format!("skerry-bench-{name}-{}.json", std::process::id()));
    let path_text = path.to_str().expect("text").to_owned();
    let output = server.bench(&[args, &["--json-out-file", &path_text]].concat());
    let json = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("removable");
    (output, serde_json::from_str(&json).expect("well-formed JSON"))
}

#[test]
fn every_request_is_sent_and_counted_once() {
    for piece_bytes in [0, 1, 7] {
        let server = TestServer::start(Behaviour { piece_bytes, ..Behaviour::default() });
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
        for name in ["p50.000", "p99.000", "p99.900"] {
            assert!(all["Gets"]["Percentile Latencies"][name].is_number(), "{name}");
        }
        let kb_tx = all["Totals"]["KB/sec TX"].as_f64().expect("number");
        assert!(kb_tx > 0.0);
    }
}

#[test]
fn the_table_is_memtiers() {
    let server = TestServer::start(Behaviour::default());
    let output = server.bench(&["-t1", "-c2", "-n10", "--ratio=1:1", "--key-pattern=S:S", "--key-maximum=4"]);
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
    let server = TestServer::start(Behaviour::default());
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
    let server = TestServer::start(Behaviour::default());
    let args = ["-t1", "-c2", "-n5", "--pipeline=5", "--command=FAIL __key__", "--command=PING"];
    let output = server.bench(&args);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("ERRORS: 6 error replies, 0 lost connections; the first: ERR told to fail"),
        "{}",
        text(&output)
    );
    let ignored = server.bench(&[&args[..], &["--ignore-errors"]].concat());
    assert_eq!(ignored.status.code(), Some(0));
    assert!(text(&ignored).contains("ERRORS: 6 error replies"));
}

#[test]
fn a_lost_connection_ends_its_client_and_fails_the_run() {
    let server = TestServer::start(Behaviour { closes_after: 3, ..Behaviour::default() });
    let output = server.bench(&["-t1", "-c2", "-n50", "--pipeline=2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("2 lost connections"), "{}", text(&output));
}

#[test]
fn a_refused_password_or_port_is_told() {
    let server = TestServer::start(Behaviour::default());
    let output = server.bench(&["-a", "wrong", "-n1"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("WRONGPASS invalid username-password pair"), "{stderr}");
    let output = server.bench(&["-S", "/nonexistent/socket", "-n1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/socket"));
}

#[test]
fn the_cpu_of_a_given_process_is_printed_per_operation() {
    let server = TestServer::start(Behaviour::default());
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
    let missing = server.bench(&["-n1", "--server-pid", "4294967295"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/proc/4294967295/stat"));
}

#[test]
fn a_rate_limit_is_not_exceeded() {
    let server = TestServer::start(Behaviour::default());
    let (output, json) = json_of(&server, &["-t1", "-c2", "--test-time=1", "--rate-limiting=200"], "rate");
    assert!(output.status.success(), "{output:?}");
    let count = json["ALL STATS"]["Totals"]["Count"].as_u64().expect("count");
    // Two connections for a second; a full bucket (2 tokens) and the first token come on top.
    assert!((1..=2 * 203).contains(&count), "{count}");
    assert_eq!(count, server.requests().len() as u64);
}

#[test]
fn several_runs_print_best_worst_and_average() {
    let server = TestServer::start(Behaviour::default());
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
    let server = TestServer::start(Behaviour::default());
    assert_eq!(server.bench(&["--ratio=x"]).status.code(), Some(2));
    assert_eq!(server.bench(&["--no-such-flag"]).status.code(), Some(2));
    assert_eq!(server.bench(&["@/nonexistent.args"]).status.code(), Some(2));
    assert_eq!(server.bench(&["--help"]).status.code(), Some(0));
    assert!(server.requests().is_empty());
}
