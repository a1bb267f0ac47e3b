//! Black-box fuzzing of parser and commands: the dialogues' commands, mutated, and their bytes, damaged.
//!
//! `SKERRY_FUZZ_SECONDS` (default 10; 1200 for a release) against servers with 1 and 2 workers in turn. The server
//! must live, answer every command with one reply, and close what it cannot parse; every row of its command table
//! must have given a successful reply by the end (the count is printed). A failure prints the seed (`SKERRY_FUZZ_SEED`
//! chooses it) and the last commands.

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use support::conn::{Conn, encode};
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::setting::setting;
use support::words;

type Argv = Vec<Vec<u8>>;

const LAST_SHOWN: usize = 30;
const STEPS_PER_CONNECTION: usize = 200;
/// An ordinary run repeats itself: a change is judged by what it changed, not by chance. Long runs choose their own.
const DEFAULT_SEED: u64 = 19182;
const LONGEST_EXTENSION_S: u64 = 300;
const DICTIONARY: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "100",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "-0",
    "+1",
    " 1",
    "0.1",
    "1e-300",
    "",
    "*",
    "[",
    "\\",
    "a*b[c-",
    "k",
    "l",
    "s",
    "h",
    "v",
    "missing",
    "{a}k",
    "NX",
    "XX",
    "GET",
    "EX",
    "COUNT",
    "WITHSCORES",
    "MATCH",
    "TYPE",
    "\r\n",
    "\0",
    "\u{ff}",
];
/// Rows that answer with an error as a Redis without cluster, without a config file, does.
// Nothing is busy here for KILL to end (`scripts_busy` shows that), nothing was slow for GRAPH to draw, and DEBUG is refused.
const ERRORS_ONLY: &[&str] = &[
    "readonly",
    "readwrite",
    "asking",
    "cluster",
    "config|rewrite",
    "latency|graph",
    "script|debug",
    "script|kill",
    "function|kill",
];

#[test]
fn commands_and_bytes() {
    let seconds = setting("SKERRY_FUZZ_SECONDS", 10);
    let seed = setting("SKERRY_FUZZ_SEED", DEFAULT_SEED);
    println!("seed {seed}");
    let mut successes: BTreeMap<String, usize> = BTreeMap::new();
    let mut rows = BTreeSet::new();
    for threads in [1, 2] {
        let server = Server::start(Kind::Skerry { threads }, &[]);
        rows = server.command_names();
        let corpus = corpus(&rows);
        if server.kind == Kind::Redis {
            // It has rows of later issues, for which there is no dialogue yet.
            let known: BTreeSet<String> = corpus.iter().map(row_of).chain(["shutdown".to_owned()]).collect();
            rows.retain(|row| known.contains(row));
        }
        let mut fuzz = Fuzz { rng: Rng::new(seed + threads as u64), corpus, server, last: VecDeque::new() };
        let end = Instant::now() + Duration::from_millis(seconds * 1000 / 2);
        fuzz.whole_corpus(&mut successes);
        // A short run goes on until chance has reached every row; a row that nothing reaches still fails.
        let last_end = end + Duration::from_secs(if threads == 2 { LONGEST_EXTENSION_S } else { 0 });
        let is_complete =
            |successes: &BTreeMap<String, usize>| rows.iter().all(|row| is_reached(row, successes));
        while Instant::now() < end || (Instant::now() < last_end && !is_complete(&successes)) {
            fuzz.commands(&mut successes);
            fuzz.bytes();
        }
        fuzz.stop(&mut successes);
    }
    let reached = rows.iter().filter(|row| is_reached(row, &successes)).count();
    println!("{reached} of {} rows gave a successful reply", rows.len());
    for (row, n) in &successes {
        println!("{n:9} {row}");
    }
    let missed: Vec<&String> = rows.iter().filter(|r| !is_reached(r, &successes)).collect();
    assert!(missed.is_empty(), "seed {seed}: never a successful reply from {missed:?}");
}

struct Fuzz {
    rng: Rng,
    corpus: Vec<Argv>,
    server: Server,
    last: VecDeque<Argv>,
}

impl Fuzz {
    /// Each command as it stands, once.
    fn whole_corpus(&mut self, successes: &mut BTreeMap<String, usize>) {
        let corpus = self.corpus.clone();
        let mut conn = self.server.connect();
        for argv in corpus {
            self.step(&mut conn, argv, successes);
        }
    }

    /// Mutated commands on a connection, each with exactly one reply.
    fn commands(&mut self, successes: &mut BTreeMap<String, usize>) {
        let mut conn = self.server.connect();
        for _ in 0..STEPS_PER_CONNECTION {
            let mut argv = self.rng.pick(&self.corpus).clone();
            for _ in 0..self.rng.below(4) {
                self.mutate(&mut argv);
            }
            self.step(&mut conn, argv, successes);
        }
    }

    fn step(&mut self, conn: &mut Conn, argv: Argv, successes: &mut BTreeMap<String, usize>) {
        if !is_harmless(&argv) {
            return;
        }
        if is_listening(&argv) {
            self.listen(argv, successes);
            return;
        }
        if may_wait(&argv) {
            self.in_transaction(argv, successes);
            return;
        }
        self.last.push_back(argv.clone());
        if self.last.len() > LAST_SHOWN {
            self.last.pop_front();
        }
        let mut reply = conn.send(&argv).and_then(|()| conn.read());
        while matches!(reply, Ok(Reply::Push(_))) {
            reply = conn.read();
        }
        match reply {
            Ok(reply) if !reply.is_error() && reply != Reply::Simple(b"QUEUED".to_vec()) => {
                *successes.entry(row_of(&argv)).or_default() += 1;
                // A client may kill itself and be told how many it killed.
                if matches!(&row_of(&argv)[..], "quit" | "client|kill") {
                    *conn = self.server.connect();
                }
            }
            Ok(_) => {}
            // It killed itself, or somebody, or the server shut this connection for a reason of its own.
            Err(support::conn::NoReply::Closed) if is(&argv, "client") => {
                *successes.entry(row_of(&argv)).or_default() += 1;
                *conn = self.server.connect();
            }
            Err(why) => self.fail(&format!("{why:?} after {}", words::show(&argv))),
        }
    }

    /// (P|S)(UN)SUBSCRIBE on a connection of its own: confirmations, which are pushes, or an error, and PONG behind them.
    fn listen(&mut self, argv: Argv, successes: &mut BTreeMap<String, usize>) {
        self.last.push_back(argv.clone());
        let mut conn = self.server.connect();
        conn.call(&["HELLO", "3"]);
        if let Err(why) = conn.send(&argv).and_then(|()| conn.send(&["PING"])) {
            self.fail(&format!("{why:?} after {}", words::show(&argv)));
        }
        let mut n_confirmed = 0;
        loop {
            match conn.read() {
                Ok(Reply::Push(_)) => n_confirmed += 1,
                Ok(Reply::Error(_)) if n_confirmed == 0 => {}
                Ok(Reply::Simple(text)) if text == b"PONG" => break,
                other => self.fail(&format!("{other:?} after {}", words::show(&argv))),
            }
        }
        if n_confirmed > 0 {
            *successes.entry(row_of(&argv)).or_default() += 1;
        }
    }

    /// A command that would wait, where it answers at once.
    fn in_transaction(&mut self, argv: Argv, successes: &mut BTreeMap<String, usize>) {
        self.last.push_back(argv.clone());
        let mut conn = self.server.connect();
        conn.call(&["MULTI"]);
        let queued = conn.send(&argv).and_then(|()| conn.read());
        let done = conn.send(&["EXEC"]).and_then(|()| conn.read());
        match (queued, done) {
            (Ok(Reply::Error(_)), Ok(Reply::Error(_))) => {}
            (Ok(_), Ok(Reply::Array(replies))) if replies.len() == 1 => {
                if !replies[0].is_error() {
                    *successes.entry(row_of(&argv)).or_default() += 1;
                }
            }
            other => self.fail(&format!("{other:?} after {}", words::show(&argv))),
        }
    }

    /// Damaged bytes on a connection of their own: any replies, then the end; and the server still serves.
    fn bytes(&mut self) {
        let mut bytes = Vec::new();
        for _ in 0..self.rng.within(1, 8) {
            let argv = self.rng.pick(&self.corpus).clone();
            if is_harmless(&argv)
                && !may_wait(&argv)
                && !is(&argv, "client")
                && !is(&argv, "debug")
                && !is(&argv, "config")
            {
                encode(&argv, &mut bytes);
            }
        }
        for _ in 0..self.rng.below(6) {
            self.damage(&mut bytes);
        }
        self.last.push_back(vec![bytes.clone()]);
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port)).expect("accepted");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let cut = self.rng.below(bytes.len() + 1);
        let _ = stream.write_all(&bytes[..cut]).and_then(|()| stream.write_all(&bytes[cut..]));
        let _ = stream.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        if let Err(error) = stream.read_to_end(&mut replies) {
            let is_reset = error.kind() == std::io::ErrorKind::ConnectionReset;
            if !is_reset {
                self.fail(&format!("{error} instead of the end of the connection"));
            }
        }
        let mut conn = self.server.connect();
        if !matches!(conn.send(&["PING"]).and_then(|()| conn.read()), Ok(Reply::Simple(_))) {
            self.fail("no PONG");
        }
    }

    /// What only works in its place or blinds a test, and last SHUTDOWN: the server ends cleanly.
    fn stop(&mut self, successes: &mut BTreeMap<String, usize>) {
        let mut conn = self.server.connect();
        let connection = ["CLIENT PAUSE 1", "CLIENT REPLY ON", "MULTI", "DISCARD", "MULTI", "EXEC"];
        let watching = [
            "COMMANDLOG HELP",
            "COMMANDLOG RESET SLOW",
            "COMMANDLOG GET 1 SLOW",
            "HOTKEYS HELP",
            "HOTKEYS RESET",
        ];
        let counting = ["HOTKEYS START METRICS 1 CPU", "HOTKEYS STOP", "HOTKEYS RESET"];
        let recording = ["XADD fuzz:record 1-1 f v", "XIDMPRECORD fuzz:record producer id 1-1"];
        for line in connection.into_iter().chain(watching).chain(counting).chain(recording) {
            let argv: Argv = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let reply = conn.call(&argv);
            assert!(!reply.is_error(), "{line} gives {reply:?}");
            *successes.entry(row_of(&argv)).or_default() += 1;
        }
        let reply = self.server.connect().call(&["MONITOR"]);
        assert!(!reply.is_error(), "MONITOR gives {reply:?}");
        *successes.entry("monitor".to_owned()).or_default() += 1;
        let reply = conn.send(&["SHUTDOWN", "NOSAVE"]).and_then(|()| conn.read());
        assert!(matches!(reply, Err(support::conn::NoReply::Closed)), "SHUTDOWN gives {reply:?}");
        let end = Instant::now() + Duration::from_secs(20);
        while self.server.is_alive() {
            assert!(Instant::now() < end, "SHUTDOWN does not end the process");
            std::thread::sleep(Duration::from_millis(5));
        }
        *successes.entry("shutdown".to_owned()).or_default() += 1;
    }

    fn mutate(&mut self, argv: &mut Argv) {
        let at = self.rng.below(argv.len());
        match self.rng.below(8) {
            0 if argv.len() > 1 => drop(argv.remove(at)),
            1 => argv.insert(at, argv[at].clone()),
            2 => argv.push(self.rng.pick(DICTIONARY).as_bytes().to_vec()),
            3 => {
                let other = self.rng.pick(&self.corpus).clone();
                argv.extend(other.into_iter().skip(1));
            }
            4 => {
                let with = self.rng.below(argv.len());
                argv.swap(at, with);
            }
            5 => {
                let mut arg = std::mem::take(&mut argv[at]);
                self.damage(&mut arg);
                argv[at] = arg;
            }
            _ if at > 0 => argv[at] = self.rng.pick(DICTIONARY).as_bytes().to_vec(),
            _ => {}
        }
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.rng.below(bytes.len() + 1);
        match self.rng.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, *self.rng.pick(b"*$:+-\r\n0919 \"'\\\0\xff")),
            2 if at < bytes.len() => bytes[at] ^= 1 << self.rng.below(8),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let end = (at + self.rng.below(20)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.extend(again);
            }
        }
    }

    fn fail(&mut self, why: &str) -> ! {
        let state = if self.server.is_alive() { "alive" } else { "dead" };
        let last: Vec<String> = self.last.iter().map(|argv| words::show(argv)).collect();
        panic!("{why}; the server is {state}; the last commands:\n{}", last.join("\n"));
    }
}

/// Whether a command may be sent: not one that stops or blinds the server or this test, and none that legally makes
/// an answer or a value of gigabytes.
fn is_harmless(argv: &Argv) -> bool {
    let text =
        |n: usize| argv.get(n).map(|a| String::from_utf8_lossy(a).to_ascii_lowercase()).unwrap_or_default();
    let number = |n: usize| text(n).parse::<i64>().unwrap_or(0);
    match (&text(0)[..], &text(1)[..]) {
        ("srandmember" | "hrandfield" | "zrandmember" | "setrange" | "setbit", _) => {
            (-1000..10_000).contains(&number(2))
        }
        // Offsets of fields make strings of up to 512 MB.
        ("bitfield", _) => argv[1..].iter().all(|a| a.len() < 7),
        ("shutdown" | "sync" | "psync" | "monitor" | "replicaof" | "slaveof" | "failover" | "migrate", _) => {
            false
        }
        // A mutation may make a loop without an end.
        ("eval" | "evalsha" | "script" | "function", _) => !argv
            .iter()
            .any(|a| memchr::memmem::find(a, b"while").is_some() || memchr::memmem::find(a, b"1e").is_some()),
        ("client", "pause" | "reply") => false,
        ("debug", "sleep" | "segfault" | "panic" | "restart" | "oom" | "set-active-expire") => false,
        ("debug", "protocol") => text(2) != "attrib",
        ("debug", sub) => matches!(sub, "object" | "digest" | "digest-value"),
        ("config", "set") => argv[2..].iter().step_by(2).all(|name| {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            matches!(
                &name[..],
                "timeout" | "tcp-keepalive" | "hash-max-listpack-entries" | "set-max-intset-entries"
            ) && text(3) == "0"
        }),
        ("vadd" | "vsim", _) => argv.iter().all(|a| a.len() < 10 || !a.iter().all(u8::is_ascii_digit)),
        _ => argv.iter().all(|a| a.len() < 1 << 20),
    }
}

/// Whether a command may wait for others.
fn may_wait(argv: &Argv) -> bool {
    let name = argv.first().map(|a| String::from_utf8_lossy(a).to_ascii_lowercase()).unwrap_or_default();
    let names = ["wait", "waitaof", "xread", "xreadgroup"];
    names.contains(&&name[..]) || ["bl", "br", "bz"].iter().any(|begin| name.starts_with(begin))
}

/// Whether a command has confirmations instead of a reply.
fn is_listening(argv: &Argv) -> bool {
    argv.first().is_some_and(|name| name.to_ascii_lowercase().ends_with(b"subscribe"))
}

/// The commands of all dialogues that the server knows.
fn corpus(rows: &BTreeSet<String>) -> Vec<Argv> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(dir).expect("the dialogues") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a dialogue");
        for line in text.lines() {
            let Some((conn, command)) = line.split_once("> ") else { continue };
            if conn.chars().all(|c| c.is_ascii_lowercase()) {
                let argv = words::split(command).expect("words");
                if argv
                    .first()
                    .is_some_and(|a| rows.contains(&String::from_utf8_lossy(a).to_ascii_lowercase()))
                {
                    all.insert(argv);
                }
            }
        }
    }
    all.into_iter().collect()
}

fn row_of(argv: &Argv) -> String {
    let text =
        |n: usize| argv.get(n).map(|a| String::from_utf8_lossy(a).to_ascii_lowercase()).unwrap_or_default();
    match &text(0)[..] {
        "client" | "config" | "command" | "object" | "memory" | "module" | "cluster" | "pubsub"
        | "script" | "function" | "xgroup" | "xinfo" | "latency" | "slowlog" | "commandlog" | "hotkeys"
            if argv.len() > 1 =>
        {
            format!("{}|{}", text(0), text(1))
        }
        name => name.to_owned(),
    }
}

/// A container counts as reached by any of its subcommands.
fn is_reached(row: &str, successes: &BTreeMap<String, usize>) -> bool {
    let container = row.split('|').next().unwrap_or(row);
    let excused = |name: &str| ERRORS_ONLY.contains(&name);
    let inside = format!("{row}|");
    excused(row)
        || excused(container)
        || successes.keys().any(|name| name == row || name.starts_with(&inside))
}

fn is(argv: &Argv, name: &str) -> bool {
    argv.first().is_some_and(|a| a.eq_ignore_ascii_case(name.as_bytes()))
}
