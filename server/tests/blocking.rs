//! Blocked clients beside a live Redis 8.2.3: seeded random programs on several connections, every reply compared, and who gets
//! what when.
//!
//! A step is one command on one connection that is not blocked. After it both servers come to rest: each connection is either
//! answered or blocked (CLIENT LIST says so), on both the same ones, and with the same replies. So nothing depends on time.
//!
//! `SKERRY_BLOCKING_STEPS` (default 6,000) steps for each worker count, in programs of 60; `SKERRY_BLOCKING_SEED` the first seed. A
//! program that differs is shown as far as it went.
//!
//! What is left out, as Skerry departs from Redis there: Redis wakes nobody when a command stores its result in the place of a value of
//! another type (SORT STORE over a string), so such a value goes before; and with several workers a client whose keys have several owners is served a
//! moment after others that the same transaction has served, so no transaction fills more than one key that somebody waits for.

#![allow(unreachable_pub, reason = "a test has no public items")]

#[path = "support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use support::conn::Conn;
use support::notation;
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::setting::setting;
use support::words;

const N_CONNS: usize = 4;
const STEPS_PER_PROGRAM: usize = 60;
const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// A reply that is there is read at once; this only says how long one looks for one that is not.
const GLANCE: Duration = Duration::from_micros(200);

const LISTS: &[&str] = &["l0", "l1", "{a}l2", "{a}l3"];
const ZSETS: &[&str] = &["z0", "{a}z1"];

/// One server with its connections.
struct Side {
    conns: Vec<Conn>,
    /// CLIENT ID of each.
    numbers: Vec<i64>,
    control: Conn,
}

impl Side {
    fn new(server: &Server) -> Self {
        let mut control = server.connect();
        control.call(&["FLUSHALL"]);
        let mut conns: Vec<Conn> = (0..N_CONNS).map(|_| server.connect()).collect();
        let numbers = conns.iter_mut().map(|conn| conn.call(&["CLIENT", "ID"]).int().unwrap_or(0)).collect();
        conns[1].call(&["HELLO", "3"]);
        Self { conns, numbers, control }
    }

    /// Whether a connection is blocked.
    fn is_blocked(&mut self, conn: usize) -> bool {
        let number = self.numbers[conn].to_string();
        let line = self.control.call(&["CLIENT", "LIST", "ID", &number]);
        let line = String::from_utf8_lossy(line.text().unwrap_or_default()).into_owned();
        let flags = line.split(' ').find_map(|field| field.strip_prefix("flags="));
        flags.is_some_and(|flags| flags.contains('b'))
    }

    /// The reply of a connection that is owed one, or that it is blocked.
    fn outcome(&mut self, conn: usize) -> Result<Outcome, String> {
        let end = Instant::now() + REST_TIMEOUT;
        while Instant::now() < end {
            let read = |side: &mut Self| {
                side.conns[conn].read_within(GLANCE).map_err(|why| format!("no reply: {why:?}"))
            };
            if let Some(reply) = read(self)? {
                return Ok(Outcome::Replied(reply));
            }
            if self.is_blocked(conn) {
                // Between the two looks it may have been served.
                return Ok(read(self)?.map_or(Outcome::Blocked, Outcome::Replied));
            }
        }
        Err("neither answered nor blocked".into())
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Replied(Reply),
    Blocked,
}

/// A step: which connection, and its command; CLIENT UNBLOCK names a connection as `#n`.
type Step = (usize, Vec<String>);

/// What the programs have met.
#[derive(Debug, Default)]
struct Counts {
    steps: usize,
    blocked: usize,
    served: usize,
    /// More than one by one command.
    served_together: usize,
    unblocked: usize,
    died: usize,
    errors: usize,
    transactions: usize,
    aborted: usize,
}

struct Writer<'a> {
    random: &'a mut Rng,
    n_values: usize,
    /// Commands that each connection's transaction still queues.
    queues: Vec<Option<usize>>,
    /// The transaction has a command that fills a key.
    has_filled: Vec<bool>,
}

impl Writer<'_> {
    fn list(&mut self) -> String {
        (*self.random.pick(LISTS)).to_owned()
    }

    fn zset(&mut self) -> String {
        (*self.random.pick(ZSETS)).to_owned()
    }

    fn any_key(&mut self) -> String {
        if self.random.chance(3) { self.zset() } else { self.list() }
    }

    fn value(&mut self) -> String {
        self.n_values += 1;
        format!("v{}", self.n_values)
    }

    fn end(&mut self) -> String {
        (*self.random.pick(&["LEFT", "RIGHT"])).to_owned()
    }

    fn keys(&mut self, one: impl Fn(&mut Self) -> String) -> Vec<String> {
        (0..1 + self.random.below(3)).map(|_| one(self)).collect()
    }

    fn timeout(&mut self) -> String {
        match self.random.below(12) {
            0 => "0.01".into(),
            1 => (*self.random.pick(&["-1", "x", "1e400", "nan"])).into(),
            _ => "0".into(),
        }
    }

    fn step(&mut self, conn: usize) -> Vec<String> {
        if let Some(n_left) = self.queues[conn] {
            if n_left == 0 {
                self.queues[conn] = None;
                return split(self.random.pick::<&str>(&["EXEC", "EXEC", "EXEC", "EXEC", "DISCARD"]));
            }
            self.queues[conn] = Some(n_left - 1);
            return match self.has_filled[conn] || self.random.chance(2) {
                true if self.random.chance(2) => self.taking(),
                true => self.looking(),
                false => {
                    self.has_filled[conn] = true;
                    loop {
                        let argv = self.filling();
                        if stored_in(&argv).is_none() {
                            break argv;
                        }
                    }
                }
            };
        }
        match self.random.below(100) {
            0..32 => self.taking(),
            32..72 => self.filling(),
            72..80 => self.looking(),
            80..86 => self.spoiling(),
            86..90 => {
                let mut argv = split("CLIENT UNBLOCK");
                argv.push(format!("#{}", self.random.below(N_CONNS)));
                argv.extend(self.random.chance(2).then(|| "ERROR".to_owned()));
                argv
            }
            90..93 => vec!["WATCH".into(), self.any_key()],
            93 => split("close"),
            _ => {
                self.queues[conn] = Some(self.random.below(4));
                self.has_filled[conn] = false;
                split("MULTI")
            }
        }
    }

    /// Commands that wait, and their kin.
    fn taking(&mut self) -> Vec<String> {
        let timeout = self.timeout();
        match self.random.below(20) {
            0..5 => [split("BLPOP"), self.keys(Self::list), vec![timeout]].concat(),
            5 | 6 => [split("BRPOP"), self.keys(Self::any_key), vec![timeout]].concat(),
            7..10 => {
                [split("BLMOVE"), vec![self.list(), self.list(), self.end(), self.end(), timeout]].concat()
            }
            10 => [split("BRPOPLPUSH"), vec![self.list(), self.any_key(), timeout]].concat(),
            11 | 12 => {
                let keys = self.keys(Self::list);
                let head = vec![timeout, keys.len().to_string()];
                let count = (1 + self.random.below(3)).to_string();
                [split("BLMPOP"), head, keys, vec![self.end(), "COUNT".into(), count]].concat()
            }
            13 | 14 => [split("BZPOPMIN"), self.keys(Self::zset), vec![timeout]].concat(),
            15 => [split("BZPOPMAX"), self.keys(Self::any_key), vec![timeout]].concat(),
            16 => {
                let keys = self.keys(Self::zset);
                let head = vec![timeout, keys.len().to_string()];
                [split("BZMPOP"), head, keys, split("MAX COUNT 2")].concat()
            }
            17 => vec!["LPOP".into(), self.list()],
            18 => vec!["ZPOPMAX".into(), self.zset()],
            _ => [split("LMPOP 1"), vec![self.list(), self.end()]].concat(),
        }
    }

    fn filling(&mut self) -> Vec<String> {
        match self.random.below(20) {
            0..6 => {
                let values: Vec<String> = (0..1 + self.random.below(3)).map(|_| self.value()).collect();
                let name = *self.random.pick(&["LPUSH", "RPUSH"]);
                [split(name), vec![self.list()], values].concat()
            }
            6 | 7 => vec!["RENAME".into(), self.any_key(), self.any_key()],
            8 => vec!["COPY".into(), self.any_key(), self.any_key(), "REPLACE".into()],
            9 | 10 => vec!["LMOVE".into(), self.list(), self.list(), self.end(), self.end()],
            11 => vec!["SORT".into(), self.any_key(), "ALPHA".into(), "STORE".into(), self.list()],
            12 | 13 => vec!["ZADD".into(), self.zset(), self.random.below(9).to_string(), self.value()],
            14 => vec!["ZUNIONSTORE".into(), self.zset(), "2".into(), self.zset(), self.zset()],
            15 => vec!["ZRANGESTORE".into(), self.zset(), self.zset(), "0".into(), "1".into()],
            16 => vec!["LPUSHX".into(), self.list(), self.value()],
            17 => vec!["ZINCRBY".into(), self.zset(), "1".into(), "m".into()],
            18 => vec!["MOVE".into(), self.any_key(), "1".into()],
            _ => vec!["RPUSH".into(), self.list(), self.value()],
        }
    }

    fn looking(&mut self) -> Vec<String> {
        match self.random.below(4) {
            0 => [split("LRANGE"), vec![self.list()], split("0 -1")].concat(),
            1 => vec!["ZCARD".into(), self.zset()],
            2 => [split("EXISTS"), self.keys(Self::any_key)].concat(),
            _ => vec!["TYPE".into(), self.any_key()],
        }
    }

    fn spoiling(&mut self) -> Vec<String> {
        match self.random.below(5) {
            0 => vec!["SET".into(), self.any_key(), self.value()],
            1 => vec!["SADD".into(), self.list(), "m".into()],
            2 => vec!["FLUSHALL".into()],
            3 => vec!["PEXPIRE".into(), self.any_key(), "-1".into()],
            _ => [split("DEL"), self.keys(Self::any_key)].concat(),
        }
    }
}

/// The key that a command stores its result in, and the result's type.
fn stored_in(words: &[String]) -> Option<(&String, &'static str)> {
    match words[0].as_str() {
        "SORT" => Some((&words[4], "list")),
        "ZUNIONSTORE" | "ZRANGESTORE" => Some((&words[1], "zset")),
        _ => None,
    }
}

fn split(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Both servers and what is known of their connections.
struct Pair {
    ours: Side,
    theirs: Side,
    blocked: [bool; N_CONNS],
}

impl Pair {
    fn argv(side: &Side, words: &[String]) -> Vec<String> {
        let named = |word: &String| match word.strip_prefix('#') {
            Some(conn) => side.numbers[conn.parse::<usize>().expect("a connection")].to_string(),
            None => word.clone(),
        };
        words.iter().map(named).collect()
    }

    fn run(&mut self, step: &Step, servers: (&Server, &Server), counts: &mut Counts) -> Result<(), String> {
        let (conn, words) = step;
        counts.steps += 1;
        if words[0] == "close" {
            counts.died += usize::from(self.blocked[*conn]);
            return self.reopen(*conn, servers);
        }
        if let Some((key, kind)) = stored_in(words) {
            let there = self.theirs.control.call(&["TYPE", key]);
            if there.text() != Some(kind.as_bytes()) {
                self.ours.control.call(&["DEL", key]);
                self.theirs.control.call(&["DEL", key]);
            }
        }
        for side in [&mut self.ours, &mut self.theirs] {
            let argv = Self::argv(side, words);
            side.conns[*conn].send(&argv).map_err(|why| format!("cannot send: {why:?}"))?;
        }
        // Redis blocks the client of a FLUSHALL, too, while another thread frees what it has emptied.
        let theirs = match words[0].starts_with('B') {
            true => self.theirs.outcome(*conn)?,
            false => Outcome::Replied(read(&mut self.theirs.conns[*conn])?),
        };
        // A short wait is waited for.
        let is_short = words.iter().any(|word| word == "0.01");
        let theirs = match theirs {
            Outcome::Blocked if is_short => Outcome::Replied(read(&mut self.theirs.conns[*conn])?),
            other => other,
        };
        let ours = match theirs {
            Outcome::Replied(_) => Outcome::Replied(read(&mut self.ours.conns[*conn])?),
            Outcome::Blocked => self.ours.outcome(*conn)?,
        };
        self.note(*conn, &ours, &theirs, counts)?;
        let served: Vec<usize> = (0..N_CONNS)
            .filter(|other| self.blocked[*other] && other != conn && !self.theirs.is_blocked(*other))
            .collect();
        counts.served_together += usize::from(served.len() > 1);
        for other in served {
            let theirs = read(&mut self.theirs.conns[other])?;
            let ours = read(&mut self.ours.conns[other]).map_err(|why| {
                format!("connection {other} {why}; theirs says {}", notation::show(&theirs))
            })?;
            self.blocked[other] = false;
            counts.served += 1;
            counts.unblocked += usize::from(words[0] == "CLIENT");
            same(other, &ours, &theirs)?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        conn: usize,
        ours: &Outcome,
        theirs: &Outcome,
        counts: &mut Counts,
    ) -> Result<(), String> {
        match (ours, theirs) {
            (Outcome::Replied(ours), Outcome::Replied(theirs)) => {
                counts.errors += usize::from(theirs.is_error());
                counts.transactions += usize::from(matches!(theirs, Reply::Array(_)));
                counts.aborted += usize::from(theirs.is_null());
                same(conn, ours, theirs)
            }
            (Outcome::Blocked, Outcome::Blocked) => {
                self.blocked[conn] = true;
                counts.blocked += 1;
                Ok(())
            }
            (ours, theirs) => Err(format!("connection {conn}: ours {ours:?}, theirs {theirs:?}")),
        }
    }

    /// Another connection instead of this one.
    fn reopen(&mut self, conn: usize, servers: (&Server, &Server)) -> Result<(), String> {
        for (side, server) in [(&mut self.ours, servers.0), (&mut self.theirs, servers.1)] {
            let old = side.numbers[conn].to_string();
            side.conns[conn] = server.connect();
            side.numbers[conn] = side.conns[conn].call(&["CLIENT", "ID"]).int().unwrap_or(0);
            if conn == 1 {
                side.conns[conn].call(&["HELLO", "3"]);
            }
            let end = Instant::now() + REST_TIMEOUT;
            while side.control.call(&["CLIENT", "LIST", "ID", &old]).text() != Some(b"") {
                if Instant::now() > end {
                    return Err(format!("connection {conn} does not go away"));
                }
            }
        }
        self.blocked[conn] = false;
        Ok(())
    }

    /// Ends what still waits, and compares what is left.
    fn finish(&mut self) -> Result<(), String> {
        for conn in (0..N_CONNS).filter(|conn| self.blocked[*conn]).collect::<Vec<_>>() {
            let mut replies = Vec::new();
            for side in [&mut self.ours, &mut self.theirs] {
                let number = side.numbers[conn].to_string();
                let ended = side.control.call(&["CLIENT", "UNBLOCK", &number]);
                if ended.int() != Some(1) {
                    return Err(format!("connection {conn} is not blocked at the end"));
                }
                replies.push(read(&mut side.conns[conn])?);
            }
            same(conn, &replies[0], &replies[1])?;
        }
        for key in LISTS.iter().chain(ZSETS) {
            for argv in [vec!["TYPE", key], vec!["LRANGE", key, "0", "-1"], vec!["ZRANGE", key, "0", "-1"]] {
                let (ours, theirs) = (self.ours.control.call(&argv), self.theirs.control.call(&argv));
                if ours != theirs {
                    return Err(format!("at the end {argv:?}: {}", both(&ours, &theirs)));
                }
            }
        }
        for side in [&mut self.ours, &mut self.theirs] {
            let clients = side.control.call(&["INFO", "clients"]);
            let text = String::from_utf8_lossy(clients.text().unwrap_or_default()).into_owned();
            if !text.contains("blocked_clients:0\r\n") || !text.contains("total_blocking_keys:0\r\n") {
                return Err(format!("somebody is blocked at the end: {text}"));
            }
        }
        Ok(())
    }
}

fn read(conn: &mut Conn) -> Result<Reply, String> {
    conn.read().map_err(|why| format!("no reply: {why:?}"))
}

fn same(conn: usize, ours: &Reply, theirs: &Reply) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("connection {conn}: {}", both(ours, theirs))) }
}

fn both(ours: &Reply, theirs: &Reply) -> String {
    format!("\n  ours   {}\n  theirs {}", notation::show(ours), notation::show(theirs))
}

fn run_program(seed: u64, servers: (&Server, &Server), counts: &mut Counts) -> Result<(), String> {
    let mut random = Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut pair =
        Pair { ours: Side::new(servers.0), theirs: Side::new(servers.1), blocked: [false; N_CONNS] };
    let mut writer = Writer {
        random: &mut random,
        n_values: 0,
        queues: vec![None; N_CONNS],
        has_filled: vec![false; N_CONNS],
    };
    let mut program: Vec<Step> = Vec::new();
    for _ in 0..STEPS_PER_PROGRAM {
        let conn = writer.random.below(N_CONNS);
        let is_blocked = pair.blocked[conn];
        if is_blocked && !writer.random.chance(30) {
            continue;
        }
        let step = (conn, if is_blocked { split("close") } else { writer.step(conn) });
        if step.1[0] == "close" {
            writer.queues[conn] = None;
        }
        program.push(step);
        if let Err(what) = pair.run(&program[program.len() - 1], servers, counts) {
            return Err(report(&program, &what));
        }
    }
    for conn in 0..N_CONNS {
        if writer.queues[conn].is_some() {
            program.push((conn, split("EXEC")));
            if let Err(what) = pair.run(&program[program.len() - 1], servers, counts) {
                return Err(report(&program, &what));
            }
        }
    }
    pair.finish().map_err(|what| report(&program, &what))
}

fn report(program: &[Step], what: &str) -> String {
    let mut text = String::new();
    for (conn, argv) in program {
        let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        let _ = writeln!(text, "  {conn}> {}", words::show(&argv));
    }
    format!("{text}{what}")
}

fn compare(threads: usize) {
    let n_steps = setting("SKERRY_BLOCKING_STEPS", 6000) as usize;
    let first = setting("SKERRY_BLOCKING_SEED", 1);
    let ours = Server::start(Kind::Skerry { threads }, &[]);
    let theirs = Server::start(Kind::Redis, &[]);
    let mut counts = Counts::default();
    let mut seed = first;
    while counts.steps < n_steps {
        if let Err(report) = run_program(seed, (&ours, &theirs), &mut counts) {
            panic!("seed {seed}, {threads} workers (connection 1 speaks RESP3):\n{report}");
        }
        seed += 1;
    }
    println!("{threads} workers, seeds {first}..{seed}: {counts:?}");
    let met = [counts.blocked, counts.served, counts.served_together, counts.unblocked, counts.died];
    assert!(met.iter().all(|n| *n * 1000 > counts.steps), "the programs meet too little: {counts:?}");
}

#[test]
fn blocked_as_in_redis_with_1_worker() {
    compare(1);
}

#[test]
fn blocked_as_in_redis_with_3_workers() {
    compare(3);
}
