//! Runs a program on two servers side by side: one step, then rest.

use super::compare::Compare;
use super::counts::Counts;
use super::draw::Step;
use super::support::conn::Conn;
use super::support::notation;
use super::support::reply::Reply;
use super::support::server::Server;
use super::words;
use std::time::{Duration, Instant};

/// In which a server comes to rest, or never does.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Failure {
    pub(crate) what: String,
    /// A reply that never came: replaying would only wait again.
    pub(crate) is_silence: bool,
}

impl From<String> for Failure {
    fn from(what: String) -> Failure {
        Failure { what, is_silence: false }
    }
}

fn silence(what: String) -> Failure {
    Failure { what, is_silence: true }
}

/// What is known of the connections: the same on both servers.
pub(crate) struct State {
    /// What each is blocked by.
    pub(crate) blocked: Vec<Option<Vec<Vec<u8>>>>,
    /// What each has queued since MULTI.
    pub(crate) queues: Vec<Option<Vec<Step>>>,
}

impl State {
    pub(crate) fn all_blocked(&self) -> impl Iterator<Item = usize> {
        (0..self.blocked.len()).filter(|conn| self.blocked[*conn].is_some())
    }
}

/// One server with its connections.
struct Side {
    /// The last one is never blocked and looks after the others.
    conns: Vec<Conn>,
    /// CLIENT ID of each.
    numbers: Vec<i64>,
}

impl Side {
    fn new(server: &Server, n_conns: usize) -> Side {
        let mut conns: Vec<Conn> = (0..=n_conns).map(|_| server.connect()).collect();
        conns[n_conns].call(&["FLUSHALL"]);
        conns[n_conns].call(&["SCRIPT", "FLUSH"]);
        conns[1].call(&["HELLO", "3"]);
        let numbers = conns.iter_mut().map(number_of).collect();
        Side { conns, numbers }
    }

    fn control(&mut self) -> &mut Conn {
        self.conns.last_mut().expect("there is one")
    }

    /// Which of them are blocked.
    fn are_blocked(&mut self, conns: &[usize]) -> Vec<bool> {
        let mut argv: Vec<String> = ["CLIENT", "LIST", "ID"].map(str::to_owned).to_vec();
        argv.extend(conns.iter().map(|conn| self.numbers[*conn].to_string()));
        let list = self.control().call(&argv);
        let list = String::from_utf8_lossy(list.text().unwrap_or_default()).into_owned();
        let is_blocked = |conn: &usize| {
            let id = format!("id={} ", self.numbers[*conn]);
            let line = list.lines().find(|line| line.starts_with(&id));
            let flags = line.and_then(|line| line.split(' ').find_map(|field| field.strip_prefix("flags=")));
            flags.is_some_and(|flags| flags.contains('b'))
        };
        conns.iter().map(is_blocked).collect()
    }

    fn read(&mut self, conn: usize, whose: &str) -> Result<Reply, Failure> {
        match self.conns[conn].read_within(REST_TIMEOUT) {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(silence(format!("{whose} never answers connection {conn}"))),
            Err(why) => Err(silence(format!("{whose} on connection {conn}: {why:?}"))),
        }
    }

    /// The same of a wait that ends by itself: Redis looks at its clock when it has something to do, or ten times a second.
    fn read_awake(&mut self, conn: usize, whose: &str) -> Result<Reply, Failure> {
        let end = Instant::now() + REST_TIMEOUT;
        while Instant::now() < end {
            self.control().call(&["PING"]);
            let reply = self.conns[conn].read_if_there();
            if let Some(reply) = reply.map_err(|why| silence(format!("{whose}: {why:?}")))? {
                return Ok(reply);
            }
        }
        Err(silence(format!("{whose} never ends the wait of connection {conn}")))
    }

    /// The reply that a connection is owed, or none: it is blocked.
    fn outcome(&mut self, conn: usize, whose: &str) -> Result<Option<Reply>, Failure> {
        let end = Instant::now() + REST_TIMEOUT;
        let broken = |why| silence(format!("{whose} on connection {conn}: {why:?}"));
        while Instant::now() < end {
            let is_blocked = self.are_blocked(&[conn])[0];
            // Between the two looks it may have been served.
            let reply = self.conns[conn].read_if_there().map_err(broken)?;
            if is_blocked || reply.is_some() {
                return Ok(reply);
            }
        }
        Err(silence(format!("{whose}: connection {conn} is neither answered nor blocked")))
    }

    fn send(&mut self, conn: usize, argv: &[Vec<u8>]) -> Result<(), Failure> {
        let named = |(at, word): (usize, &Vec<u8>)| match word.strip_prefix(b"#") {
            Some(number) if at == 2 && argv[0] == b"CLIENT" => {
                let conn: usize = String::from_utf8_lossy(number).parse().expect("a connection");
                self.numbers[conn].to_string().into_bytes()
            }
            _ => word.clone(),
        };
        let argv: Vec<Vec<u8>> = argv.iter().enumerate().map(named).collect();
        self.conns[conn].send(&argv).map_err(|why| silence(format!("cannot send: {why:?}")))
    }

    fn reopen(&mut self, conn: usize, server: &Server) {
        let old = self.numbers[conn].to_string();
        self.conns[conn] = server.connect();
        self.numbers[conn] = number_of(&mut self.conns[conn]);
        // It is gone when nobody finds it any more.
        let end = Instant::now() + REST_TIMEOUT;
        while self.control().call(&["CLIENT", "LIST", "ID", &old]).text() != Some(b"") {
            assert!(Instant::now() < end, "client {old} stays for ever");
        }
    }
}

fn number_of(conn: &mut Conn) -> i64 {
    conn.call(&["CLIENT", "ID"]).int().expect("a number")
}

/// Both servers and what is known of their connections.
pub(crate) struct Pair<'a> {
    servers: (&'a Server, &'a Server),
    ours: Side,
    theirs: Side,
    pub(crate) state: State,
}

impl<'a> Pair<'a> {
    /// Fresh connections on emptied servers.
    pub(crate) fn new(seed: u64, servers: (&'a Server, &'a Server)) -> Pair<'a> {
        let n_conns = 2 + (seed % 2) as usize;
        let (ours, theirs) = (Side::new(servers.0, n_conns), Side::new(servers.1, n_conns));
        let state = State { blocked: vec![None; n_conns + 1], queues: vec![None; n_conns + 1] };
        Pair { servers, ours, theirs, state }
    }

    pub(crate) fn n_conns(&self) -> usize {
        self.state.blocked.len() - 1
    }

    /// Runs one step; gives its reply if it has one. A connection that is blocked takes no commands.
    pub(crate) fn run(&mut self, step: &Step, counts: &mut Counts) -> Result<Option<Reply>, Failure> {
        let conn = step.conn;
        if step.argv[0] == b"close" {
            counts.died += usize::from(self.state.blocked[conn].is_some());
            self.state.blocked[conn] = None;
            self.state.queues[conn] = None;
            self.ours.reopen(conn, self.servers.0);
            self.theirs.reopen(conn, self.servers.1);
            return Ok(None);
        }
        if self.state.blocked[conn].is_some() {
            return Ok(None);
        }
        counts.n_commands += 1;
        self.ours.send(conn, &step.argv)?;
        self.theirs.send(conn, &step.argv)?;
        let may_wait = self.state.queues[conn].is_none() && may_wait(&step.argv);
        let reply = match may_wait.then(|| self.theirs.outcome(conn, "theirs")).transpose()? {
            Some(None) if is_short(&step.argv) => Some(self.theirs.read_awake(conn, "theirs")?),
            Some(outcome) => outcome,
            None => Some(self.theirs.read(conn, "theirs")?),
        };
        match &reply {
            Some(theirs) => {
                let ours = self.ours.read(conn, "ours").map_err(|mut failure| {
                    failure.what += &format!("; theirs says {}", notation::show(theirs));
                    failure
                })?;
                self.compare(step, &ours, theirs, counts)?;
            }
            None => {
                if let Some(ours) = self.ours.outcome(conn, "ours")? {
                    let shown = notation::show(&ours);
                    return Err(format!("\n  ours   {shown}\n  theirs is blocked").into());
                }
                counts.count(&step.argv, None);
                self.state.blocked[conn] = Some(step.argv.clone());
            }
        }
        self.rest(step, counts)?;
        Ok(reply)
    }

    /// Those whose wait a step has ended have their replies.
    fn rest(&mut self, step: &Step, counts: &mut Counts) -> Result<(), Failure> {
        let waiting: Vec<usize> = self.state.all_blocked().filter(|conn| *conn != step.conn).collect();
        if waiting.is_empty() || self.state.queues[step.conn].is_some() {
            return Ok(());
        }
        let still = self.theirs.are_blocked(&waiting);
        let mut n_served = 0;
        for (other, is_blocked) in waiting.into_iter().zip(still) {
            if is_blocked {
                if let Ok(Some(reply)) = self.ours.conns[other].read_if_there() {
                    let shown = notation::show(&reply);
                    return Err(format!("connection {other}:\n  ours   {shown}\n  theirs is blocked").into());
                }
                continue;
            }
            let theirs = self.theirs.read(other, "theirs")?;
            let ours = self.ours.read(other, "ours").map_err(|mut failure| {
                failure.what += &format!("; theirs says {}", notation::show(&theirs));
                failure
            })?;
            let argv = self.state.blocked[other].take().expect("it was blocked");
            if !Compare::Exact.same(&ours, &theirs, &[]) {
                return Err(format!("connection {other}: {}", both(&ours, &theirs)).into());
            }
            counts.serve(&argv, &step.argv, &theirs);
            n_served += 1;
        }
        counts.served_together += usize::from(n_served > 1);
        Ok(())
    }

    fn compare(
        &mut self,
        step: &Step,
        ours: &Reply,
        theirs: &Reply,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let queue = &mut self.state.queues[step.conn];
        let name = step.argv[0].to_ascii_uppercase();
        // EXEC with arguments too many aborts the transaction; DISCARD with such goes on.
        let ends = name == b"EXEC" || name == b"RESET" || name == b"DISCARD" && step.argv.len() == 1;
        let queued = if ends { queue.take().unwrap_or_default() } else { Vec::new() };
        let compares: Vec<Compare> = queued.iter().map(|step| step.compare).collect();
        let compare = if queue.is_some() { Compare::Exact } else { step.compare };
        if !compare.same(ours, theirs, &compares) {
            return Err(both(ours, theirs));
        }
        if let Some(queue) = queue {
            if *theirs == Reply::Simple(b"QUEUED".to_vec()) {
                queue.push(step.clone());
            } else {
                counts.count(&step.argv, Some(theirs));
            }
            return Ok(());
        }
        if name == b"MULTI" && !theirs.is_error() {
            *queue = Some(Vec::new());
        }
        counts.count(&step.argv, Some(theirs));
        if let (b"EXEC", Reply::Array(items)) = (&name[..], theirs) {
            for (queued, item) in queued.iter().zip(items) {
                counts.count_queued(&queued.argv, item);
            }
        }
        Ok(())
    }

    /// Ends all waits, and compares what is there.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        for conn in self.state.all_blocked().collect::<Vec<_>>() {
            let mut replies = Vec::new();
            for (side, whose) in [(&mut self.ours, "ours"), (&mut self.theirs, "theirs")] {
                let number = side.numbers[conn].to_string();
                let ended = side.control().call(&["CLIENT", "UNBLOCK", &number]);
                if ended.int() != Some(1) {
                    return Err(format!("connection {conn} is not blocked at the end of {whose}").into());
                }
                replies.push(side.read(conn, whose)?);
            }
            if replies[0] != replies[1] {
                return Err(format!("connection {conn}: {}", both(&replies[0], &replies[1])).into());
            }
        }
        for db in ["0", "1", "9"] {
            let (ours, theirs) = (contents(self.ours.control(), db), contents(self.theirs.control(), db));
            if let Some((ours, theirs)) = ours.iter().zip(&theirs).find(|(a, b)| a != b) {
                return Err(format!("db {db} at the end:\n  ours   {ours}\n  theirs {theirs}").into());
            }
            if ours.len() != theirs.len() {
                return Err(format!("db {db} at the end: {} keys and {}", ours.len(), theirs.len()).into());
            }
        }
        for (side, whose) in [(&mut self.ours, "ours"), (&mut self.theirs, "theirs")] {
            let clients = side.control().call(&["INFO", "clients"]);
            let text = String::from_utf8_lossy(clients.text().unwrap_or_default()).into_owned();
            if !text.contains("blocked_clients:0\r\n") || !text.contains("total_blocking_keys:0\r\n") {
                return Err(format!("somebody is blocked at the end of {whose}: {text}").into());
            }
        }
        Ok(())
    }
}

/// Every key of a database with the digest of its value.
fn contents(conn: &mut Conn, db: &str) -> Vec<String> {
    conn.call(&["SELECT", db]);
    let keys = conn.call(&["KEYS", "*"]).items().unwrap_or_default();
    let mut keys: Vec<Vec<u8>> = keys.iter().filter_map(|key| key.text().map(<[u8]>::to_vec)).collect();
    keys.sort();
    // One at a time: what several workers read together comes without its deadlines.
    for key in &keys {
        conn.send(&[&b"DEBUG"[..], b"DIGEST-VALUE", key]).expect("it is sent");
    }
    let show = |key: &Vec<u8>| {
        let digest = conn.read().expect("a digest");
        format!("{} {}", words::show(std::slice::from_ref(key)), notation::show(&digest))
    };
    keys.iter().map(show).collect()
}

/// Whether a command may block its connection.
fn may_wait(argv: &[Vec<u8>]) -> bool {
    let name = argv[0].to_ascii_uppercase();
    match &name[..] {
        b"XREAD" | b"XREADGROUP" => argv.iter().any(|word| word.eq_ignore_ascii_case(b"BLOCK")),
        name => name[0] == b'B' && !name.starts_with(b"BIT"),
    }
}

/// Whether a wait ends by itself, after a moment.
fn is_short(argv: &[Vec<u8>]) -> bool {
    let is_block = |pair: &[Vec<u8>]| pair[0].eq_ignore_ascii_case(b"BLOCK") && pair[1] == b"1";
    argv.windows(2).any(is_block) || argv.last().is_some_and(|word| word == b"0.001")
}

fn both(ours: &Reply, theirs: &Reply) -> String {
    format!("\n  ours   {}\n  theirs {}", notation::show(ours), notation::show(theirs))
}
