//! Runs a program on two servers side by side and compares every reply.
//!
//! Neighbouring steps of one connection go out as one pipeline; replies are compared in order. Random picks run
//! alone: the truth is read first, both picks are checked against it, and a pop is followed by its repair.

use super::compare::{Compare, is_substantial, unordered};
use super::draw::{N_CONNS, Step};
use super::events::Events;
use super::support::conn::{Conn, encode};
use super::support::notation;
use super::support::reply::Reply;
use super::support::server::Server;
use super::support::words;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PIPELINE: usize = 50;
/// In which a server meets its dead keys.
const DEAD_KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Good replies by label.
pub(crate) type Counts = BTreeMap<&'static str, usize>;

pub(crate) struct Difference {
    /// Index of the step in the program.
    pub(crate) at: usize,
    pub(crate) what: String,
    /// A reply that never came: the server died or hangs, and replaying would only wait again.
    pub(crate) is_silence: bool,
}

pub(crate) struct Pair {
    ours: Side,
    theirs: Side,
    events: Events,
    /// What each connection has queued since MULTI.
    queues: Vec<Option<Vec<Queued>>>,
    pub(crate) counts: Counts,
}

const NO_REPLY: &str = "no reply";

fn difference(at: usize, what: String) -> Difference {
    let is_silence = what.starts_with(NO_REPLY);
    Difference { at, what, is_silence }
}

type Queued = (Option<&'static str>, Compare);

struct Side {
    conns: Vec<Conn>,
}

impl Side {
    fn call(&mut self, conn: usize, argv: &[Vec<u8>]) -> Result<Reply, String> {
        call(&mut self.conns[conn], argv)
    }
}

impl Pair {
    /// Fresh connections on emptied servers; the second connection speaks RESP3.
    pub(crate) fn new(ours: &Server, theirs: &Server) -> Pair {
        let side = |server: &Server| {
            server.connect().call(&["FLUSHALL"]);
            let mut conns: Vec<Conn> = (0..N_CONNS).map(|_| server.connect()).collect();
            conns[1].call(&["HELLO", "3"]);
            Side { conns }
        };
        let sides = (side(ours), side(theirs));
        let events = Events::new(ours, theirs);
        Pair { ours: sides.0, theirs: sides.1, events, queues: vec![None; N_CONNS], counts: Counts::new() }
    }

    pub(crate) fn run(&mut self, program: &[Step]) -> Result<(), Difference> {
        let mut at = 0;
        while at < program.len() {
            let first = &program[at];
            if first.compare.runs_alone() {
                if self.queues[first.conn].is_none() {
                    self.alone(first).map_err(|what| difference(at, what))?;
                    self.events.drop_all();
                }
                at += 1;
                continue;
            }
            let together = |s: &&Step| s.conn == first.conn && !s.compare.runs_alone();
            let n = program[at..].iter().take(PIPELINE).take_while(together).count();
            self.pipeline(&program[at..at + n], at)?;
            at += n;
        }
        Ok(())
    }

    /// After the program: every key's type, encoding, value and deadline are the same.
    pub(crate) fn compare_keyspaces(&mut self) -> Result<(), String> {
        for conn in 0..N_CONNS {
            let end = [self.ours.call(conn, &args(&["RESET"]))?, self.theirs.call(conn, &args(&["RESET"]))?];
            if end[0] != end[1] || end[0] != Reply::Simple(b"RESET".to_vec()) {
                return Err(format!("RESET at the end: {end:?}"));
            }
        }
        for db in ["0", "1", "9"] {
            let dump = [dump(&mut self.ours, db), dump(&mut self.theirs, db)];
            for (ours, theirs) in dump[0].iter().zip(&dump[1]) {
                if ours != theirs {
                    return Err(format!("db {db} at the end:\n  ours   {ours}\n  theirs {theirs}"));
                }
            }
            if dump[0].len() != dump[1].len() {
                return Err(format!("db {db} at the end: {} keys and {}", dump[0].len(), dump[1].len()));
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, steps: &[Step], at: usize) -> Result<(), Difference> {
        let conn = steps[0].conn;
        let mut bytes = Vec::new();
        for step in steps {
            encode(&step.argv, &mut bytes);
        }
        for side in [&mut self.ours, &mut self.theirs] {
            if let Err(why) = side.conns[conn].send_raw(&bytes) {
                return Err(difference(at, format!("{NO_REPLY} cannot send: {why:?}")));
            }
        }
        for (n, step) in steps.iter().enumerate() {
            let fail = |what| difference(at + n, what);
            let ours =
                self.ours.conns[conn].read().map_err(|why| fail(format!("{NO_REPLY} from ours: {why:?}")))?;
            let theirs = self.theirs.conns[conn].read();
            let theirs = theirs.map_err(|why| fail(format!("{NO_REPLY} from theirs: {why:?}")))?;
            self.compare(step, &ours, &theirs).map_err(fail)?;
        }
        self.events.compare().map_err(|what| difference(at + steps.len() - 1, what))
    }

    fn compare(&mut self, step: &Step, ours: &Reply, theirs: &Reply) -> Result<(), String> {
        let queue = &mut self.queues[step.conn];
        let name = step.argv[0].to_ascii_uppercase();
        // EXEC with arguments too many aborts the transaction; DISCARD with such goes on.
        let ends = queue.is_some() && (name == b"EXEC" || name == b"DISCARD" && step.argv.len() == 1);
        let queued = if ends { queue.take().unwrap_or_default() } else { Vec::new() };
        let compares: Vec<Compare> = queued.iter().map(|(_, compare)| *compare).collect();
        let compare = if queue.is_some() { Compare::Exact } else { step.compare };
        if !compare.same(ours, theirs, &compares) {
            return Err(both(ours, theirs));
        }
        if let Some(queue) = queue {
            if *theirs == Reply::Simple(b"QUEUED".to_vec()) {
                queue.push((step.label, step.compare));
            }
            return Ok(());
        }
        if name == b"MULTI" && !theirs.is_error() {
            self.queues[step.conn] = Some(Vec::new());
        }
        self.count(step.label, theirs);
        if let (b"EXEC", Reply::Array(items)) = (&name[..], theirs) {
            for ((label, _), item) in queued.iter().zip(items) {
                self.count(*label, item);
            }
        }
        Ok(())
    }

    fn count(&mut self, label: Option<&'static str>, reply: &Reply) {
        if let (Some(label), true) = (label, is_substantial(reply)) {
            *self.counts.entry(label).or_default() += 1;
        }
    }

    fn both_call(&mut self, conn: usize, argv: &[Vec<u8>]) -> Result<(Reply, Reply), String> {
        Ok((self.ours.call(conn, argv)?, self.theirs.call(conn, argv)?))
    }

    fn alone(&mut self, step: &Step) -> Result<(), String> {
        let conn = step.conn;
        if step.compare == Compare::Scan {
            let ours = scan(&mut self.ours.conns[conn], &step.argv)?;
            let theirs = scan(&mut self.theirs.conns[conn], &step.argv)?;
            if ours != theirs {
                return Err(both(&ours, &theirs));
            }
            self.count(step.label, &theirs);
            return Ok(());
        }
        if step.compare == Compare::Payload {
            let (ours, theirs) = self.both_call(conn, &step.argv)?;
            self.count(step.label, &theirs);
            return self.compare_payloads(conn, &ours, &theirs);
        }
        if step.compare == Compare::Size {
            return self.sizes(step);
        }
        let key = step.argv.get(1).cloned().unwrap_or_default();
        let truth = match step.compare {
            Compare::RandomKey => vec![b"KEYS".to_vec(), b"*".to_vec()],
            Compare::RandomField => vec![b"HGETALL".to_vec(), key.clone()],
            Compare::RandomScored => ["ZRANGE", "", "0", "-1", "WITHSCORES"]
                .iter()
                .map(|word| if word.is_empty() { key.clone() } else { word.as_bytes().to_vec() })
                .collect(),
            _ => vec![b"SMEMBERS".to_vec(), key.clone()],
        };
        let truths = self.both_call(conn, &truth)?;
        let width = match step.compare {
            Compare::RandomField => 2,
            Compare::RandomScored => 0,
            _ => 1,
        };
        if unordered(&truths.0, width) != unordered(&truths.1, width) {
            return Err(format!("{}: {}", words::show(&truth), both(&truths.0, &truths.1)));
        }
        let (ours, theirs) = self.both_call(conn, &step.argv)?;
        let nested = truths.1.items().unwrap_or_default();
        let truth: Vec<Reply> =
            nested.iter().flat_map(|item| item.items().unwrap_or_else(|| vec![item.clone()])).collect();
        check_pick(step, &ours, &theirs, &truth)?;
        if step.compare == Compare::Pop && !theirs.is_error() && !theirs.is_null() {
            self.repair(conn, &key, &truth, &[ours, theirs.clone()])?;
        }
        self.count(step.label, &theirs);
        Ok(())
    }

    /// Both payloads, restored on both sides, are the same value; a vector set travels only home.
    fn compare_payloads(&mut self, conn: usize, ours: &Reply, theirs: &Reply) -> Result<(), String> {
        let (Reply::Bulk(own), Reply::Bulk(other)) = (ours, theirs) else {
            return if ours == theirs { Ok(()) } else { Err(both(ours, theirs)) };
        };
        const MODULE_VALUE: u8 = 7;
        if own[0] == MODULE_VALUE || other[0] == MODULE_VALUE {
            return if own[0] == other[0] { Ok(()) } else { Err(both(ours, theirs)) };
        }
        let mut shown = Vec::new();
        for payload in [own, other] {
            let restore = [&b"RESTORE"[..], b"{dump}", b"0", payload, b"REPLACE"].map(<[u8]>::to_vec);
            let (a, b) = self.both_call(conn, &restore)?;
            if a != Reply::Simple(b"OK".to_vec()) || a != b {
                return Err(format!("{}: {}", words::show(&restore), both(&a, &b)));
            }
            let (a, b) = self.both_call(conn, &args(&["DEBUG", "DIGEST-VALUE", "{dump}"]))?;
            let (c, d) = self.both_call(conn, &args(&["OBJECT", "ENCODING", "{dump}"]))?;
            if (&a, &c) != (&b, &d) {
                return Err(format!("{}: {}{}", words::show(&restore), both(&a, &b), both(&c, &d)));
            }
            shown.push(a);
            self.both_call(conn, &args(&["DEL", "{dump}"]))?;
        }
        if shown[0] == shown[1] { Ok(()) } else { Err(both(&shown[0], &shown[1])) }
    }

    /// Asks again until no dead key counts any more on either side: then both tell the number of living ones.
    fn sizes(&mut self, step: &Step) -> Result<(), String> {
        let end = Instant::now() + DEAD_KEYS_TIMEOUT;
        loop {
            let (ours, theirs) = self.both_call(step.conn, &step.argv)?;
            let (our_keys, their_keys) = self.both_call(step.conn, &args(&["KEYS", "*"]))?;
            if unordered(&our_keys, 1) != unordered(&their_keys, 1) {
                return Err(format!("KEYS: {}", both(&our_keys, &their_keys)));
            }
            let n_living = Reply::Int(their_keys.items().map_or(0, |keys| keys.len() as i64));
            if ours == theirs && (theirs == n_living || theirs.is_error()) {
                self.count(step.label, &theirs);
                return Ok(());
            }
            if Instant::now() > end {
                return Err(both(&ours, &theirs));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Brings both sides to what neither popped. Written anew, not just removed: which encoding Redis leaves
    /// behind depends on the members that happened to stay.
    fn repair(&mut self, conn: usize, key: &[u8], before: &[Reply], popped: &[Reply]) -> Result<(), String> {
        let mut left: BTreeSet<Vec<u8>> =
            before.iter().filter_map(|m| m.text().map(<[u8]>::to_vec)).collect();
        for pick in popped {
            for member in pick.items().unwrap_or_else(|| vec![pick.clone()]) {
                left.remove(member.text().unwrap_or_default());
            }
        }
        let deadlines = self.both_call(conn, &[b"PEXPIRETIME".to_vec(), key.to_vec()])?;
        self.both_call(conn, &[b"DEL".to_vec(), key.to_vec()])?;
        if !left.is_empty() {
            let mut sadd = vec![b"SADD".to_vec(), key.to_vec()];
            sadd.extend(left);
            let added = self.both_call(conn, &sadd)?;
            if added.0 != added.1 {
                return Err(format!("SADD after SPOP: {}", both(&added.0, &added.1)));
            }
            if let (Some(deadline), Some(1..)) = (deadlines.1.int(), deadlines.0.int()) {
                let deadline = deadline.to_string().into_bytes();
                self.both_call(conn, &[b"PEXPIREAT".to_vec(), key.to_vec(), deadline])?;
            }
        }
        Ok(())
    }
}

/// Two picks are right if they have the same form and size and hold only members, once each unless asked otherwise.
fn check_pick(step: &Step, ours: &Reply, theirs: &Reply, truth: &[Reply]) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    if std::mem::discriminant(ours) != std::mem::discriminant(theirs) || theirs.is_error() {
        return Err(both(ours, theirs));
    }
    let picks = |reply: &Reply| reply.items().unwrap_or_else(|| vec![reply.clone()]);
    if picks(ours).len() != picks(theirs).len() {
        return Err(both(ours, theirs));
    }
    let is_pairs = step.argv.len() == 4;
    let may_repeat = step.argv.get(2).is_some_and(|count| count.starts_with(b"-"));
    let flat: Vec<Reply> =
        picks(ours).iter().flat_map(|p| p.items().unwrap_or_else(|| vec![p.clone()])).collect();
    let same_form = picks(ours)
        .iter()
        .zip(&picks(theirs))
        .all(|(a, b)| std::mem::discriminant(a) == std::mem::discriminant(b));
    let of_truth = if is_pairs {
        let pairs: Vec<&[Reply]> = truth.chunks(2).collect();
        flat.chunks(2).all(|pair| pairs.contains(&pair))
    } else if matches!(step.compare, Compare::RandomField | Compare::RandomScored) {
        flat.iter().all(|field| truth.chunks(2).any(|pair| pair[0] == *field))
    } else {
        flat.iter().all(|member| truth.contains(member))
    };
    let distinct: BTreeSet<&Reply> = flat.iter().collect();
    let no_repeat = may_repeat || is_pairs || distinct.len() == flat.len();
    if same_form && of_truth && no_repeat { Ok(()) } else { Err(both(ours, theirs)) }
}

/// A whole iteration: the elements of all pages, sorted, each once; an error as it is.
fn scan(conn: &mut Conn, argv: &[Vec<u8>]) -> Result<Reply, String> {
    let mut argv = argv.to_vec();
    // SCAN has no key; a field or member comes with its value or score.
    let cursor_at = if argv[0].eq_ignore_ascii_case(b"SCAN") { 1 } else { 2 };
    let has_pairs = argv[0].len() > 4 && !argv[0][0].eq_ignore_ascii_case(&b's');
    let width = if has_pairs && !argv.iter().any(|word| word == b"NOVALUES") { 2 } else { 1 };
    let mut all = BTreeSet::new();
    for _ in 0..10_000 {
        let reply = call(conn, &argv)?;
        let page = match &reply {
            Reply::Error(_) => return Ok(reply),
            Reply::Array(page) => page,
            other => return Err(format!("{} gives {}", words::show(&argv), notation::show(other))),
        };
        let [Reply::Bulk(cursor), Reply::Array(elements)] = &page[..] else {
            return Err(format!("{} gives {}", words::show(&argv), notation::show(&reply)));
        };
        all.extend(elements.chunks(width).map(|pair| Reply::Array(pair.to_vec())));
        if cursor == b"0" {
            return Ok(Reply::Array(all.into_iter().collect()));
        }
        argv[cursor_at] = cursor.clone();
    }
    Err(format!("{} does not end", words::show(&argv)))
}

fn dump(side: &mut Side, db: &str) -> Vec<String> {
    let conn = &mut side.conns[0];
    conn.call(&["SELECT", db]);
    let mut keys: Vec<Vec<u8>> = conn
        .call(&["KEYS", "*"])
        .items()
        .unwrap_or_default()
        .iter()
        .filter_map(|k| k.text().map(<[u8]>::to_vec))
        .collect();
    keys.sort();
    keys.iter()
        .map(|key| {
            let call = |conn: &mut Conn, words: &[&str]| {
                let mut argv = args(words);
                argv.insert(
                    words.iter().position(|w| w.starts_with('0')).unwrap_or(words.len()),
                    key.clone(),
                );
                conn.call(&argv)
            };
            let kind = call(conn, &["TYPE"]);
            let value = match kind.text().unwrap_or_default() {
                b"string" => call(conn, &["GET"]),
                b"list" => call(conn, &["LRANGE", "0", "-1"]),
                b"set" => unordered(&call(conn, &["SMEMBERS"]), 1),
                b"hash" => unordered(&call(conn, &["HGETALL"]), 2),
                b"zset" => call(conn, &["ZRANGE", "0", "-1", "WITHSCORES"]),
                b"vectorset" => call(conn, &["DEBUG", "DIGEST-VALUE"]),
                _ => Reply::Null,
            };
            let encoding = call(conn, &["OBJECT", "ENCODING"]);
            // Relative deadlines were counted from two slightly different moments.
            let deadline = call(conn, &["PEXPIRETIME"]).int().map_or(0, |ms| (ms + 1) / 20_000);
            let shown = [&kind, &encoding, &value].map(notation::show).join(" ");
            format!("{} {shown} deadline~{deadline}", words::show(std::slice::from_ref(key)))
        })
        .collect()
}

fn call(conn: &mut Conn, argv: &[Vec<u8>]) -> Result<Reply, String> {
    let reply = conn.send(argv).and_then(|()| conn.read());
    reply.map_err(|why| format!("{NO_REPLY} to {}: {why:?}", words::show(argv)))
}

fn args(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|w| w.as_bytes().to_vec()).collect()
}

fn both(ours: &Reply, theirs: &Reply) -> String {
    format!("\n  ours   {}\n  theirs {}", notation::show(ours), notation::show(theirs))
}
