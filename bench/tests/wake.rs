//! `skerry-bench wake` against a server: counts agree with what it asked for, and a lying server is found out.

mod skerry_server;

use serde_json::Value;
use skerry_server::SkerryServer;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

fn wake(mode: &[&str], port: u16, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_skerry-bench"))
        .arg("wake")
        .args(mode)
        .args(["-s", "127.0.0.1", "-p", &port.to_string(), "--test-time", "0.2"])
        .args(more)
        .output()
        .expect("skerry-bench starts")
}

#[test]
fn publish_counts_what_all_subscribers_have_got() {
    let server = SkerryServer::start();
    let json = std::env::temp_dir().join(format!("skerry-wake-{}.json", std::process::id()));
    let (pid, path) = (server.pid().to_string(), json.display().to_string());
    let mode = ["publish", "--subscribers", "7", "--clients", "2", "--pipeline", "3", "--data-size", "20"];
    let output = wake(&mode, server.port, &["--server-pid", &pid, "--json-out-file", &path]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&json).expect("written");
    std::fs::remove_file(&json).expect("removed");
    let table = &serde_json::from_str::<Value>(&text).expect("JSON")["ALL STATS"];
    let count = table["Totals"]["Count"].as_u64().expect("a count");
    assert!(count > 0 && count.is_multiple_of(6), "{text}");
    assert!(table["Server CPU"]["User seconds"].is_f64(), "{text}");
}

#[test]
fn a_server_that_delivers_something_else_is_found_out() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let liar = std::thread::spawn(move || {
        let (mut subscriber, _) = listener.accept().expect("the subscriber comes first");
        let channel = "skerry-bench-channel";
        let subscribed = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len());
        subscriber.write_all(subscribed.as_bytes()).expect("sent");
        let (mut publisher, _) = listener.accept().expect("the publisher comes next");
        publisher.read_exact(&mut [0; 20]).expect("a PUBLISH");
        subscriber.write_all(&[b'x'; 200]).expect("sent");
        publisher.write_all(b":1\r\n").expect("sent");
        // Until the program has gone.
        let _ = publisher.read_to_end(&mut Vec::new());
    });
    let output = wake(&["publish", "--subscribers", "1", "--clients", "1", "--pipeline", "1"], port, &[]);
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("a message is"), "{error}");
    liar.join().expect("the liar ends");
}
