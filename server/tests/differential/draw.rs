//! Seeded random programs: templates filled with keys, values and numbers, good and malformed.
//!
//! At most 25 keys, named by the type they usually hold, so that most commands find what they are for; some share
//! a hash tag. Deadlines lie at least 1000 s away or in the past: a program never waits for one, and never meets one
//! by accident. No negative count for the random picks goes below -8: SRANDMEMBER would honour it.

use super::compare::Compare;
use super::support::rng::Rng;
use super::table::{Row, TABLE, TRANSACTION, WIDE, When};
use std::collections::BTreeSet;

pub(crate) const N_CONNS: usize = 3;

const STRINGS: &[&str] = &["s0", "s1", "s2", "{a}s3"];
const LISTS: &[&str] = &["l0", "l1", "{a}l2"];
const SETS: &[&str] = &["t0", "t1", "{a}t2", "{a}t3"];
const HASHES: &[&str] = &["h0", "h1", "{a}h2"];
/// Lists of numbers, for SORT: the numbers are also what its patterns name.
const NUMBERS: &[&str] = &["n0", "{b}n1"];
const ZSETS: &[&str] = &["z0", "z1", "{a}z2"];
/// Sorted sets whose scores are all 0: ranges of names are defined in these alone.
const FLAT: &[&str] = &["f0"];
const _: () = assert!(
    STRINGS.len() + LISTS.len() + SETS.len() + HASHES.len() + NUMBERS.len() + ZSETS.len() + FLAT.len() <= 20
);
/// Vector sets by their quantization, which every VADD has to repeat.
const VECTORS_Q8: &[&str] = &["v0", "{a}v1"];
const VECTORS_F32: &[&str] = &["v2", "{b}v3"];
const VECTORS_BIN: &[&str] = &["v4"];
const CLASSES: &[&[&str]] =
    &[STRINGS, LISTS, SETS, HASHES, NUMBERS, ZSETS, VECTORS_Q8, VECTORS_F32, VECTORS_BIN];
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
/// Counts by which SRANDMEMBER and HRANDFIELD would really answer billions of picks.
const HONOURED: &[&str] = &["-2147483648", "-2147483649", "-4294967296"];
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
const TYPES: &[&str] = &["string", "list", "set", "hash", "zset", "vectorset", "STRING", "nosuch"];
const EXTRA: &[&str] = &["extra", "NX", "GT", "0", "-1", "KEEPTTL", "GET"];
const WORDS: &[&str] = &["a", "b", "c", "hello", "x y", "", "\u{fc}", "12", "-5", "007"];

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
    rng: Rng,
    /// When the program began: its absolute deadlines hang on it.
    start_ms: i64,
    rows: Vec<&'static Row>,
    total_weight: u32,
}

impl Draw {
    /// `known` are the commands of the server under test, in upper case.
    pub(crate) fn new(seed: u64, start_ms: i64, known: &BTreeSet<String>) -> Draw {
        let runs = |row: &&Row| row.when == When::Always || known.contains(row.command());
        let rows: Vec<&Row> = TABLE.iter().filter(runs).collect();
        let total_weight = rows.iter().map(|r| r.weight).sum();
        Draw { rng: Rng::new(seed), start_ms, rows, total_weight }
    }

    /// Appends one command or one transaction.
    pub(crate) fn program(&mut self, out: &mut Vec<Step>) {
        let conn = self.rng.below(N_CONNS);
        match self.rng.below(1000) {
            0..40 => self.transaction(out),
            40..57 => {
                let row = self.wide();
                out.push(self.step(conn, row));
            }
            _ => {
                let row = self.row();
                // Runs on one connection, so that there is a pipeline to speak of.
                let conn = if self.rng.percent(90) { out.last().map_or(conn, |s| s.conn) } else { conn };
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

    fn row(&mut self) -> &'static Row {
        let mut at = self.rng.below(self.total_weight as usize) as u32;
        for row in &self.rows {
            if at < row.weight {
                return row;
            }
            at -= row.weight;
        }
        unreachable!("a number below the sum of the weights falls into one of them")
    }

    fn wide(&mut self) -> &'static Row {
        let mut at = self.rng.below(WIDE.iter().map(|r| r.weight as usize).sum()) as u32;
        for row in WIDE {
            if at < row.weight {
                return row;
            }
            at -= row.weight;
        }
        unreachable!("a number below the sum of the weights falls into one of them")
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
        } else if token == "pair" {
            let class = *self.rng.pick(CLASSES);
            for _ in 0..2 {
                let key = self.key(class);
                argv.push(key);
            }
        } else if let Some(group) = token.strip_suffix('*') {
            for _ in 0..self.rng.within(1, 4) {
                for name in group.split(':') {
                    let arg = self.argument(name);
                    argv.push(arg);
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
            "int" => self.rng.within(-100, 1000),
            "index" => self.rng.within(-6, 6),
            "count" => self.rng.within(0, 6),
            "scancount" => self.rng.within(1, 20),
            "offset" => self.rng.within(0, 40),
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

    fn value(&mut self) -> Vec<u8> {
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
