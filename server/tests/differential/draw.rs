//! Seeded random programs: templates filled with keys, values and numbers, good and malformed.
//!
//! At most 27 keys, named by the type they usually hold, so that most commands find what they are for; some share
//! a hash tag. Deadlines lie at least 1000 s away or in the past: a program never waits for one, and never meets one
//! by accident. No negative count for the random picks goes below -8: SRANDMEMBER would honour it.

use super::compare::Compare;
use super::support::rng::Rng;
use super::table::{Row, TABLE, TRANSACTION, WIDE, When};
use std::collections::BTreeSet;

pub(crate) const N_CONNS: usize = 3;

const STRINGS: &[&str] = &["s0", "s1", "{a}s3"];
const LISTS: &[&str] = &["l0", "{a}l2"];
const SETS: &[&str] = &["t0", "{a}t2", "{a}t3"];
const HLLS: &[&str] = &["p0", "{a}p1"];
const HASHES: &[&str] = &["h0", "{a}h2", "{b}h3"];
/// Lists of numbers, for SORT: the numbers are also what its patterns name.
const NUMBERS: &[&str] = &["n0", "{b}n1"];
const ZSETS: &[&str] = &["z0", "{a}z2"];
/// Sorted sets of places.
const PLACES: &[&str] = &["g0", "{a}g1"];
/// Sorted sets whose scores are all 0: ranges of names are defined in these alone.
const FLAT: &[&str] = &["f0"];
const STREAMS: &[&str] = &["x0", "{a}x1"];
const _: () = assert!(
    STRINGS.len()
        + LISTS.len()
        + SETS.len()
        + HLLS.len()
        + HASHES.len()
        + NUMBERS.len()
        + ZSETS.len()
        + PLACES.len()
        + FLAT.len()
        + STREAMS.len()
        <= 22
);
/// Vector sets by their quantization, which every VADD has to repeat.
const VECTORS_Q8: &[&str] = &["v0", "{a}v1"];
const VECTORS_F32: &[&str] = &["v2", "{b}v3"];
const VECTORS_BIN: &[&str] = &["v4"];
pub(crate) const CLASSES: &[&[&str]] = &[
    STRINGS,
    LISTS,
    SETS,
    HLLS,
    HASHES,
    NUMBERS,
    ZSETS,
    PLACES,
    STREAMS,
    VECTORS_Q8,
    VECTORS_F32,
    VECTORS_BIN,
];
const _: () = assert!(VECTORS_Q8.len() + VECTORS_F32.len() + VECTORS_BIN.len() <= 5);

/// Of whole length: both servers store the same bits whichever precision they compute the length in.
const VECTORS: &[[&str; 3]] = &[
    ["1", "0", "0"],
    ["0", "1", "0"],
    ["0", "0", "-1"],
    ["-1", "0", "0"],
    ["3", "4", "0"],
    ["0", "3", "-4"],
    ["-4", "0", "3"],
    ["1", "2", "2"],
    ["2", "-1", "2"],
    ["-2", "-2", "1"],
    ["2", "3", "6"],
    ["6", "-2", "3"],
    ["-3", "6", "2"],
    ["4", "4", "7"],
    ["0.5", "0", "0"],
    ["0", "0", "0"],
];
const ATTRIBUTES: &[&str] = &[
    r#"{"n":1}"#,
    r#"{"n":2,"s":"x"}"#,
    r#"{"n":3}"#,
    r#"{"n":4,"s":"y"}"#,
    r#"{"s":"x"}"#,
    r#"{"n":"1"}"#,
    "not json",
];
const FILTERS: &[&str] = &[
    ".n == 1",
    ".n > 1 and .n < 4",
    ".s == 'x'",
    ".n in [1, 2]",
    "not .n",
    ".s == 'x' or .n == 3",
    ".missing == 1",
    ".n +",
    "",
];

const MALFORMED: &[&str] = &[
    "0",
    "-1",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "-4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "-0",
    "+1",
    " 1",
    "1 ",
    "01",
    "",
    "x",
    "1.5",
    "0x10",
];
const BIT_TYPES: &[&str] = &[
    "u1", "i1", "u2", "i3", "u4", "i5", "u8", "i8", "u13", "i16", "u31", "u32", "i32", "i33", "u63", "i63",
    "i64",
];
const BAD_BIT_TYPES: &[&str] =
    &["u64", "i65", "u0", "i0", "x8", "i", "u", "I8", "u-1", "i 8", "u08", "u+1", ""];
/// Offsets in fields; no product with a width that passes an i64: Redis goes on with what is left of such a one.
const BAD_FIELD_OFFSETS: &[&str] =
    &["#", "#-1", "#x", "# 1", "#+1", "#01", "#2147483648", "#4294967296", "##1", "#1.5"];
/// Counts by which SRANDMEMBER and HRANDFIELD would really answer billions of picks.
const HONOURED: &[&str] = &["-2147483648", "-2147483649", "-4294967296"];
/// Longitudes and latitudes, some of them near each other, some at the edges of the map.
const LONLATS: &[[&str; 2]] = &[
    ["13.361389", "38.115556"],
    ["15.087269", "37.502669"],
    ["15", "37"],
    ["13.36", "38.11"],
    ["12.758489", "38.788135"],
    ["17.24151", "38.788135"],
    ["0", "0"],
    ["-0", "0.00001"],
    ["180", "0"],
    ["-180", "0"],
    ["179.9", "-0.5"],
    ["-179.9", "0.5"],
    ["2.35", "70.5"],
    ["-122.4", "82"],
    ["0", "85.05112878"],
    ["100", "-85.05112878"],
    ["-58.4", "-34.6"],
    ["-58.38", "-34.61"],
];
/// So many of them lie within 500 km.
const N_NEAR: usize = 6;
const RADII: &[&str] = &[
    "0", "1", "100", "200", "200", "500", "500", "1000", "1000", "5000", "20000", "50000", "0.5", "166.2742",
    "1e-5", "1e9", "inf",
];
const UNITS: &[&str] = &["m", "km", "km", "km", "mi", "ft", "KM"];
/// Written by Redis 8.2.3, by the letter of the keys that hold such; and payloads that nobody wrote.
const PAYLOADS: &[(u8, &[u8])] = &[
    (b's', b"\x00\x05hello\x0c\x00\xa8\x04\xeb\xb6\x9f\x1e\xbeC"),
    (b's', b"\x00\xc1\xc7\xcf\x0c\x00\xac\x9b\x96\xf6N\xf1\xb8\x99"),
    (b'l', b"\x12\x01\x02\xc3\x1e@^\x12^\x00\x00\x00\x05\x00\x82i0\x03\x82i1\x03\x0c\x01\xe0Fx\xe0<\x00\x05H\xf1x\xec\x03\xff\x0c\x00\xaf;\x00\xe9L(\xcd\xa7"),
    (b't', b"\x0b\x14\x04\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00p\x11\x01\x00\x0c\x00N\xa3\xf5\xc6\xa17N\x1c"),
    (b't', b"\x14\x11\x11\x00\x00\x00\x03\x00\x82m0\x03\x82m1\x03\x05\x01\xff\x0c\x00sF\x16=\xe2\xea\x89\xc7"),
    (b't', b"\x02\x02\xc3\x09@B\x01LL\xe05\x00\x01LL\x02m2\x0c\x00\"n\xa8\x06\x9dS\x15\xeb"),
    (b'h', b"\x10\x14\x14\x00\x00\x00\x04\x00\x82f0\x03\x81v\x02\x82f1\x03\x0c\x01\xff\x0c\x00yl9\x8a?\x8a\xde&"),
    (b'h', b"\x04\x01\x02f2\xc3\x09@F\x01vv\xe09\x00\x01vv\x0c\x00\x8b\x1f\x01\x1f*\x04\"\xfa"),
    (b'z', b"\x11\x1f\x1f\x00\x00\x00\x06\x00\x82m0\x03\x01\x01\x82m1\x03\x832.5\x04\x82m2\x03\x83inf\x04\xff\x0c\x00N?\x95P\x9cQ\xd1\xcb"),
    (b'z', b"\x05\x02\x02m3\x00\x00\x00\x00\x00\x00\x08@\xc3\x09@A\x01LL\xe04\x00\x01LL\x00\x00\x00\x00\x00\x00\xf0\xbf\x0c\x00\x9c\xa2/\x19\x14\x85\x06\x92"),
    (b'g', b"\x11##\x00\x00\x00\x04\x00\x82m4\x03\xf4\x8c\xc9\xd8\xcd\xdcY\x0c\x00\x09\x82m5\x03\xf4O\xe4!\xf22\\\x0c\x00\x09\xff\x0c\x00\xf2\xe4\xab\x9a\xda\xafH\x7f"),
    (b's', b"\x00\xc3\x09@d\x01aa\xe0W\x00\x01aa\x0c\x00#\xd5\x81\xc7JGl8"),
    (b'?', b"c\x05hello\x0c\x00h\xe9\xfd\xc9\xe2\x0a\x98\xfe"),
    (b'?', b"\x02\x00\x0c\x00\xf1\xb8\x0d\xc0a\xa3\xa7\xa1"),
    (b'?', b"\x00\x05hello\x0d\x00\xc1\xdbV\xc5b\x81W\xca"),
];
const FLOATS: &[&str] = &[
    "0.1",
    "-0.1",
    "0.5",
    "1.5",
    "-2.25",
    "3",
    "1e3",
    "-1e-3",
    "3.14159",
    "100.001",
    "0.3333333333333333",
    "1e17",
    "5.0e3",
    "1e-9",
    "123456789.125",
    "-7",
];
const PATTERNS: &[&str] =
    &["*", "s*", "l?", "*{a}*", "[th]*", "[^s]*", "t[0-1]", "*3", "h\\0", "", "nothing*", "**2"];
/// What SORT sorts numbers by, and what it gets: keys of every owner, present and absent, of the right type and not.
const WEIGHTS: &[&str] = &["h*->W", "{a}h*->W", "nosuch*"];
const TEXT_WEIGHTS: &[&str] = &["s*", "h*->f1", "{a}s*", "h*->W"];
const LOOK_UPS: &[&str] =
    &["s*", "{a}s*", "h*->f1", "h*->W", "{a}h*->f0", "l*", "h*->", "h*", "*", "constant", "#"];
const TYPES: &[&str] = &["string", "list", "set", "hash", "zset", "stream", "vectorset", "STRING", "nosuch"];
/// No ID of these is so great that a stream whose last it becomes takes no entry any more.
const ODD_IDS: &[&str] =
    &["-", "+", "$", ">", "1-", "-1", "1-x", "x", "", "1--5", "007-1", "+5", " 5", "(3", "0-0", "0", "1-1-1"];
/// None beyond 64 bits: Redis's SORT takes the error that strtoull has left for one of its own numbers' (the dialogues have one).
const GREAT_IDS: &[&str] = &[
    "18446744073709551615-18446744073709551615",
    "18446744073709551615",
    "9223372036854775808-1",
    "(18446744073709551615-18446744073709551615",
    "(0-0",
];
/// So far behind the last ID lie those that are asked for.
const LIVING_IDS: i64 = 8;
const EXTRA: &[&str] = &["extra", "NX", "GT", "0", "-1", "KEEPTTL", "GET"];
const WORDS: &[&str] = &["a", "b", "c", "hello", "x y", "", "\u{fc}", "12", "-5", "007"];

/// What a run of commands on streams begins with, and how many follow.
const STREAM_OPENING: &[(&str, usize)] = &[
    ("XGROUP CREATE stream group zero MKSTREAM", 3),
    ("XADD stream newid field:val*", 8),
    ("XREADGROUP GROUP group consumer COUNT count STREAMS stream fresh", 6),
];
const STREAM_STEPS: usize = 30;

/// One of the rows, by their weights.
fn weighted(rows: &[&'static Row], rng: &mut Rng) -> &'static Row {
    let total: u32 = rows.iter().map(|row| row.weight).sum();
    let mut at = rng.below(total as usize) as u32;
    for row in rows {
        if at < row.weight {
            return row;
        }
        at -= row.weight;
    }
    unreachable!("a number below the sum of the weights falls into one of them")
}

fn is_destroy(step: &Step) -> bool {
    let is = |at: usize, word: &str| {
        step.argv.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    is(0, "xgroup") && is(1, "destroy")
}

/// One command of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) conn: usize,
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) compare: Compare,
    /// The row whose count a good reply raises; none if the arguments were spoiled on purpose.
    pub(crate) label: Option<&'static str>,
}

pub(crate) struct Draw {
    pub(crate) rng: Rng,
    /// When the program began: its absolute deadlines hang on it.
    start_ms: i64,
    /// The time in the IDs of entries: later ones are greater.
    stream_ms: i64,
    rows: Vec<&'static Row>,
}

impl Draw {
    /// `known` are the commands of the server under test, in upper case.
    pub(crate) fn new(seed: u64, start_ms: i64, known: &BTreeSet<String>) -> Draw {
        let runs = |row: &&Row| row.when == When::Always || known.contains(row.command());
        let rows: Vec<&Row> = TABLE.iter().filter(runs).collect();
        Draw { rng: Rng::new(seed), start_ms, stream_ms: 1, rows }
    }

    /// Appends one command or one transaction.
    pub(crate) fn program(&mut self, out: &mut Vec<Step>) {
        let mut fresh = Vec::new();
        self.part(out.last().map(|step| step.conn), &mut fresh);
        for step in fresh {
            let destroyed = is_destroy(&step).then(|| step.argv.get(2).cloned()).flatten();
            let conn = step.conn;
            out.push(step);
            // A stream that has lost a group goes: Redis keeps that group's last ID as the least of all, and takes entries that
            // everybody has acknowledged for unread ones.
            if let Some(key) = destroyed {
                let argv = vec![b"DEL".to_vec(), key];
                out.push(Step { conn, argv, compare: Compare::Exact, label: None });
            }
        }
    }

    fn part(&mut self, last_conn: Option<usize>, out: &mut Vec<Step>) {
        let conn = self.rng.below(N_CONNS);
        match self.rng.below(1000) {
            0..40 => self.transaction(out),
            40..46 => self.streams(out),
            46..54 => {
                let row = self.wide();
                out.push(self.step(conn, row));
            }
            _ => {
                let row = self.row();
                // Runs on one connection, so that there is a pipeline to speak of.
                let conn = if self.rng.percent(90) { last_conn.unwrap_or(conn) } else { conn };
                out.push(self.step(conn, row));
            }
        }
    }

    /// WATCH, perhaps somebody else's write, MULTI, a few commands, EXEC or DISCARD.
    fn transaction(&mut self, out: &mut Vec<Step>) {
        let [multi, exec, discard, watch, unwatch] = [0, 1, 2, 3, 4].map(|n| &TRANSACTION[n]);
        let conn = self.rng.below(N_CONNS);
        if self.rng.percent(60) {
            for _ in 0..self.rng.within(1, 2) {
                out.push(self.step(conn, watch));
            }
            for _ in 0..self.rng.within(0, 3) {
                let other = self.rng.below(N_CONNS);
                let row = self.row();
                out.push(self.step(other, row));
            }
            if self.rng.percent(15) {
                out.push(self.step(conn, unwatch));
            }
        }
        out.push(self.step(conn, multi));
        for _ in 0..self.rng.within(0, 6) {
            let row = if self.rng.percent(4) { self.wide() } else { self.row() };
            if row.compare.runs_alone() {
                continue;
            }
            out.push(self.step(conn, row));
        }
        if self.rng.percent(3) {
            out.push(self.step(conn, watch));
        }
        let end = if self.rng.percent(20) { discard } else { exec };
        out.push(self.step(conn, end));
        if self.rng.percent(20) {
            out.push(self.step(conn, unwatch));
        }
    }

    /// Groups that read, and what becomes of what they were given: by themselves these commands seldom find anything pending.
    fn streams(&mut self, out: &mut Vec<Step>) {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.template.starts_with('X')).copied().collect();
        let conn = self.rng.below(N_CONNS);
        for (template, n) in STREAM_OPENING {
            for row in rows.iter().filter(|row| row.template == *template) {
                for _ in 0..*n {
                    out.push(self.step(conn, row));
                }
            }
        }
        for _ in 0..STREAM_STEPS.min(rows.len()) {
            out.push(self.one_of(conn, &rows));
        }
    }

    /// One command of one of `rows`, by their weights.
    pub(crate) fn one_of(&mut self, conn: usize, rows: &[&'static Row]) -> Step {
        let row = weighted(rows, &mut self.rng);
        self.step(conn, row)
    }

    fn row(&mut self) -> &'static Row {
        weighted(&self.rows, &mut self.rng)
    }

    fn wide(&mut self) -> &'static Row {
        weighted(&WIDE.iter().collect::<Vec<_>>(), &mut self.rng)
    }

    fn step(&mut self, conn: usize, row: &'static Row) -> Step {
        let mut argv = Vec::new();
        for token in row.template.split(' ') {
            self.token(token, &mut argv);
        }
        if self.rng.percent(10) {
            argv[0].make_ascii_lowercase();
        }
        let mut label = Some(row.template);
        let may_spoil = !row.compare.runs_alone() && !TRANSACTION.iter().any(|r| std::ptr::eq(r, row));
        if may_spoil && self.rng.percent(2) {
            label = None;
            if self.rng.percent(50) && argv.len() > 1 {
                argv.pop();
            } else {
                argv.push(self.rng.pick(EXTRA).as_bytes().to_vec());
            }
        }
        Step { conn, argv, compare: row.compare, label }
    }

    fn token(&mut self, token: &str, argv: &mut Vec<Vec<u8>>) {
        if !token.starts_with(|c: char| c.is_ascii_lowercase()) {
            argv.push(token.as_bytes().to_vec());
        } else if token == "vector" {
            argv.extend(self.rng.pick(VECTORS).iter().map(|x| x.as_bytes().to_vec()));
        } else if token == "payload" {
            let payload = self.payload(&argv[1]);
            argv.push(payload);
        } else if token == "place" {
            self.lonlat(argv);
        } else if token == "pair" {
            let class = *self.rng.pick(CLASSES);
            for _ in 0..2 {
                let key = self.key(class);
                argv.push(key);
            }
        } else if let Some(group) = token.strip_suffix('*') {
            for _ in 0..self.rng.within(1, 4) {
                for name in group.split(':') {
                    self.token(name, argv);
                }
            }
        } else {
            let arg = self.argument(token);
            argv.push(arg);
        }
    }

    fn argument(&mut self, name: &str) -> Vec<u8> {
        match name {
            "key" => {
                let class = *self.rng.pick(CLASSES);
                self.key(class)
            }
            "str" => self.key(STRINGS),
            "list" => self.key(LISTS),
            "set" => self.key(SETS),
            "hash" => self.key(HASHES),
            "zset" => self.key(ZSETS),
            "geo" => self.key(PLACES),
            "radius" if self.rng.percent(94) => self.rng.pick(RADII).as_bytes().to_vec(),
            "radius" => self.malformed(),
            "unit" if self.rng.percent(97) => self.rng.pick(UNITS).as_bytes().to_vec(),
            "unit" => self.rng.pick(&["", "yards", "mm"]).as_bytes().to_vec(),
            "flat" => FLAT[0].as_bytes().to_vec(),
            "source" => {
                let class = if self.rng.percent(75) { ZSETS } else { SETS };
                self.key(class)
            }
            "num" => self.key(NUMBERS),
            "digit" => match self.rng.below(12) {
                0 => self.rng.pick(FLOATS).as_bytes().to_vec(),
                1 => self.rng.within(-3, 100).to_string().into_bytes(),
                _ => self.rng.within(0, 3).to_string().into_bytes(),
            },
            "nosort" => b"nosort".to_vec(),
            "weight" => self.rng.pick(WEIGHTS).as_bytes().to_vec(),
            "textweight" => self.rng.pick(TEXT_WEIGHTS).as_bytes().to_vec(),
            "lookup" => self.rng.pick(LOOK_UPS).as_bytes().to_vec(),
            "rank" => match self.rng.below(16) {
                0 => self.malformed(),
                1..5 => self.rng.within(-2, -1).to_string().into_bytes(),
                _ => self.rng.within(1, 2).to_string().into_bytes(),
            },
            "one" => self.n_keys("1"),
            "two" => self.n_keys("2"),
            "three" => self.n_keys("3"),
            "score" => self.score(),
            "smin" => self.score_bound("-inf", -4, 4),
            "smax" => self.score_bound("+inf", 1, 10),
            "lmin" => self.name_bound("-", 0, 4),
            "lmax" => self.name_bound("+", 3, 8),
            "stream" => self.key(STREAMS),
            "group" if self.rng.percent(3) => b"nogroup".to_vec(),
            "group" => self.rng.pick(&["g0", "g1"]).as_bytes().to_vec(),
            "consumer" => self.small_name("c", 3),
            "newid" => self.new_id(),
            "id" => self.id(),
            "idstart" if self.rng.percent(50) => b"-".to_vec(),
            "idend" if self.rng.percent(50) => b"+".to_vec(),
            "idstart" | "idend" if self.rng.percent(20) => [&b"("[..], &self.id()].concat(),
            "idstart" | "idend" => self.id(),
            "after" if self.rng.percent(20) => self.rng.pick(&["0", "$", "+"]).as_bytes().to_vec(),
            "after" => self.id(),
            "fresh" => b">".to_vec(),
            // Either all entries are idle for long enough, or only those that were claimed with such an IDLE.
            "minidle" => self.rng.pick(&["0", "0", "3000000"]).as_bytes().to_vec(),
            "longidle" => b"5000000".to_vec(),
            "maxlen" => match self.rng.below(12) {
                0 => self.malformed(),
                _ => self.rng.within(0, 30).to_string().into_bytes(),
            },
            "refs" => self.rng.pick(&["KEEPREF", "DELREF", "ACKED"]).as_bytes().to_vec(),
            "zero" => b"0".to_vec(),
            "small" => self.rng.within(0, 2).to_string().into_bytes(),
            "vq8" => self.key(VECTORS_Q8),
            "vf32" => self.key(VECTORS_F32),
            "vbin" => self.key(VECTORS_BIN),
            "vset" => {
                let class = *self.rng.pick(&[VECTORS_Q8, VECTORS_F32, VECTORS_BIN]);
                self.key(class)
            }
            "element" => self.small_name("e", 8),
            "attribute" => self.rng.pick(ATTRIBUTES).as_bytes().to_vec(),
            "filter" => self.rng.pick(FILTERS).as_bytes().to_vec(),
            "val" => self.value(),
            "member" => self.small_name("m", 8),
            "item" => self.small_name("i", 4),
            "field" => self.small_name("f", 6),
            "pattern" => self.rng.pick(PATTERNS).as_bytes().to_vec(),
            "type" => self.rng.pick(TYPES).as_bytes().to_vec(),
            "float" => {
                if self.rng.percent(6) {
                    return self.malformed();
                }
                self.rng.pick(FLOATS).as_bytes().to_vec()
            }
            "hll" => self.key(HLLS),
            "bittype" if self.rng.percent(4) => self.rng.pick(BAD_BIT_TYPES).as_bytes().to_vec(),
            "bittype" => self.rng.pick(BIT_TYPES).as_bytes().to_vec(),
            "fieldoffset" if self.rng.percent(4) => self.rng.pick(BAD_FIELD_OFFSETS).as_bytes().to_vec(),
            "fieldoffset" if self.rng.percent(30) => format!("#{}", self.rng.within(0, 7)).into_bytes(),
            "fieldoffset" => self.number("bitoffset"),
            "negative" => self.rng.within(-8, -1).to_string().into_bytes(),
            "pick" => loop {
                let count = self.number("count");
                if !HONOURED.iter().any(|n| n.as_bytes() == count) {
                    return count;
                }
            },
            _ => self.number(name),
        }
    }

    fn number(&mut self, name: &str) -> Vec<u8> {
        if self.rng.percent(if name == "db" { 3 } else { 6 }) {
            return self.malformed();
        }
        let far_s = self.rng.within(1000, 10_000_000);
        let past_s = self.rng.within(1, 1_000_000);
        let is_past = self.rng.percent(8);
        let number = match name {
            "one" => 1,
            "two" => 2,
            "fsec" if is_past => 0,
            "fsec" => far_s,
            "fms" if is_past => 0,
            "fms" => far_s * 1000 + self.rng.within(0, 999),
            "int" => self.rng.within(-100, 1000),
            "idle" => self.rng.within(0, 1000),
            "freq" => self.rng.within(0, 255),
            "restorettl" if self.rng.percent(70) => 0,
            "restorettl" => far_s * 1000,
            "index" => self.rng.within(-6, 6),
            "count" => self.rng.within(0, 6),
            "scancount" => self.rng.within(1, 20),
            "offset" => self.rng.within(0, 40),
            "bit" => self.rng.within(0, 1),
            "bitoffset" => self.rng.within(0, 90),
            "bitindex" => self.rng.within(-50, 50),
            "db" => *self.rng.pick(&[0, 0, 0, 0, 1, 1, 9]),
            "sec" if is_past => -past_s,
            "sec" => far_s,
            "ms" if is_past => -past_s,
            "ms" => far_s * 1000 + self.rng.within(0, 999),
            "at" if is_past => self.start_ms / 1000 - past_s,
            "at" => self.start_ms / 1000 + far_s,
            "at_ms" if is_past => self.start_ms - past_s,
            "at_ms" => self.start_ms + far_s * 1000 + self.rng.within(0, 999),
            other => panic!("no generator is called {other}"),
        };
        number.to_string().into_bytes()
    }

    /// A greater ID than before, mostly.
    fn new_id(&mut self) -> Vec<u8> {
        self.stream_ms += i64::from(self.rng.percent(40));
        let ms = self.stream_ms;
        match self.rng.below(20) {
            0 => self.rng.pick(ODD_IDS).as_bytes().to_vec(),
            1 => format!("{}", ms - self.rng.within(0, 2)).into_bytes(),
            2 | 3 => format!("{ms}-{}", self.rng.within(0, 9)).into_bytes(),
            _ => format!("{ms}-*").into_bytes(),
        }
    }

    /// An ID of an entry that may be there.
    fn id(&mut self) -> Vec<u8> {
        let ms = (self.stream_ms - self.rng.within(0, LIVING_IDS)).max(0);
        match self.rng.below(30) {
            0 => self.rng.pick(ODD_IDS).as_bytes().to_vec(),
            1 => self.rng.pick(GREAT_IDS).as_bytes().to_vec(),
            2..16 => format!("{ms}").into_bytes(),
            _ => format!("{ms}-{}", self.rng.within(0, 3)).into_bytes(),
        }
    }

    fn score(&mut self) -> Vec<u8> {
        match self.rng.below(20) {
            0 => self.malformed(),
            1 => self
                .rng
                .pick(&["inf", "-inf", "+inf", "1e300", "-1e300", "5e18", "1e-310"])
                .as_bytes()
                .to_vec(),
            2..5 => self.rng.pick(FLOATS).as_bytes().to_vec(),
            _ => self.rng.within(-3, 9).to_string().into_bytes(),
        }
    }

    /// Mostly within `low..=high`, sometimes `open`.
    fn score_bound(&mut self, open: &str, low: i64, high: i64) -> Vec<u8> {
        let exclusive = if self.rng.percent(25) { "(" } else { "" };
        let bound = match self.rng.below(8) {
            0 | 1 => open.as_bytes().to_vec(),
            2 => self.score(),
            _ => self.rng.within(low, high).to_string().into_bytes(),
        };
        [exclusive.as_bytes(), &bound].concat()
    }

    /// Mostly a name between those of members `low` and `high`, sometimes `open`.
    fn name_bound(&mut self, open: &str, low: usize, high: usize) -> Vec<u8> {
        let member = |draw: &mut Self| format!("m{}", low + draw.rng.below(high - low)).into_bytes();
        match self.rng.below(12) {
            0..4 => open.as_bytes().to_vec(),
            4 => self.malformed(),
            5..8 => [&b"("[..], &member(self)].concat(),
            8 => [&b"["[..], &self.small_name("m", 8)].concat(),
            _ => [&b"["[..], &member(self)].concat(),
        }
    }

    fn lonlat(&mut self, argv: &mut Vec<Vec<u8>>) {
        // Most lie near each other, or nothing would ever be found.
        let near = self.rng.percent(70);
        let place = *self.rng.pick(if near { &LONLATS[..N_NEAR] } else { LONLATS });
        argv.extend(place.iter().map(|x| x.as_bytes().to_vec()));
        if self.rng.percent(4) {
            let at = argv.len() - 1 - self.rng.below(2);
            argv[at] = self.malformed();
        }
    }

    /// Mostly what the key usually holds, as it was written; sometimes with a byte changed.
    fn payload(&mut self, key: &[u8]) -> Vec<u8> {
        let kind = key.iter().rev().find(|byte| byte.is_ascii_lowercase()).copied().unwrap_or_default();
        let of_kind: Vec<&[u8]> = PAYLOADS.iter().filter(|(k, _)| *k == kind).map(|(_, p)| *p).collect();
        let mut payload = match of_kind[..] {
            [_, ..] if self.rng.percent(85) => self.rng.pick(&of_kind).to_vec(),
            _ => self.rng.pick(PAYLOADS).1.to_vec(),
        };
        if self.rng.percent(4) {
            let at = self.rng.below(payload.len());
            payload[at] ^= 1 << self.rng.below(8);
        }
        payload
    }

    fn n_keys(&mut self, n: &str) -> Vec<u8> {
        if self.rng.percent(4) { self.malformed() } else { n.as_bytes().to_vec() }
    }

    fn malformed(&mut self) -> Vec<u8> {
        self.rng.pick(MALFORMED).as_bytes().to_vec()
    }

    fn key(&mut self, class: &[&str]) -> Vec<u8> {
        let other = *self.rng.pick(CLASSES);
        let class = if self.rng.percent(5) { other } else { class };
        self.rng.pick(class).as_bytes().to_vec()
    }

    fn small_name(&mut self, prefix: &str, n: usize) -> Vec<u8> {
        match self.rng.below(20) {
            0 => self.rng.pick(WORDS).as_bytes().to_vec(),
            1 => vec![b'L'; self.rng.within(60, 70) as usize],
            2 | 3 => self.rng.within(-3, 6).to_string().into_bytes(),
            _ => format!("{prefix}{}", self.rng.below(n)).into_bytes(),
        }
    }

    pub(crate) fn value(&mut self) -> Vec<u8> {
        match self.rng.below(12) {
            0..3 => self.rng.pick(WORDS).as_bytes().to_vec(),
            3..6 => self.rng.within(-50, 5000).to_string().into_bytes(),
            6 => self.malformed(),
            7 => self.rng.pick(FLOATS).as_bytes().to_vec(),
            // Around the bound of Redis's embedded strings, and of a packed entry.
            8 => vec![b'e'; self.rng.within(42, 46) as usize],
            9 => vec![b'p'; self.rng.within(62, 66) as usize],
            10 => {
                let n = self.rng.below(30);
                (0..n).map(|_| self.rng.next() as u8).collect()
            }
            _ => vec![b'v'; self.rng.below(300)],
        }
    }
}
