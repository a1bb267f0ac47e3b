//! A RESP server in a test: a thread per connection, requests logged, replies from a function of the test's.

use skerry_resp::value::{Decoder, Value};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

/// How the connections behave.
#[derive(Clone, Copy, Default)]
pub(crate) struct Behaviour {
    /// Writes replies in pieces of this many bytes; 0: whole.
    pub(crate) piece_bytes: usize,
    /// Closes a connection after this many requests; 0: never.
    pub(crate) closes_after: usize,
}

type Words = Vec<Vec<u8>>;

/// A server on a free port. Its threads end with the test process.
pub(crate) struct WireServer {
    port: u16,
    requests: Arc<Mutex<Vec<Words>>>,
}

impl WireServer {
    pub(crate) fn start(
        behaviour: Behaviour,
        answer: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                thread::spawn(move || serve(stream, behaviour, &log, answer.as_ref()));
            }
        });
        Self { port, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Words> {
        self.requests.lock().expect("no panic in the server").clone()
    }

    /// Runs skerry-bench against this server: `before`, then the address, then `args`.
    pub(crate) fn bench(&self, before: &[&str], args: &[&str]) -> Output {
        let port = self.port.to_string();
        Command::new(env!("CARGO_BIN_EXE_skerry-bench"))
            .args(before)
            .args(["-s", "127.0.0.1", "-p", &port])
            .args(args)
            .output()
            .expect("skerry-bench runs")
    }
}

fn serve(
    mut stream: TcpStream,
    behaviour: Behaviour,
    log: &Mutex<Vec<Words>>,
    answer: &dyn Fn(&[Vec<u8>]) -> Vec<u8>,
) {
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
            let words: Words = words
                .into_iter()
                .map(|w| if let Value::Bulk(b) = w { b } else { panic!("an argument is a bulk") })
                .collect();
            replies.extend(answer(&words));
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
