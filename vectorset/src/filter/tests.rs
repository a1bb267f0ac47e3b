//! The language against its table, its twin and, if `SKERRY_REDIS` names the binary, against Redis itself.
//!
//! `SKERRY_RECORD=1` with `SKERRY_REDIS` writes the outcomes of the table anew. `SEED` and `ROUNDS` choose
//! other expressions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Attribute, Filter, twin};

/// What VSIM answers for a set of one element.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Match,
    NoMatch,
    SyntaxError(Vec<u8>),
}

fn ours(expression: &[u8], json: &[u8]) -> Outcome {
    match Filter::compile(expression) {
        Ok(filter) if filter.matches(&Attribute::parse(json)) => Outcome::Match,
        Ok(_) => Outcome::NoMatch,
        Err(error) => Outcome::SyntaxError(error.rest.to_vec()),
    }
}

/// A table in `testdata/filters.txt`: `{` an attribute for what follows, `+` a match, `-` none, `? rest <-` a
/// syntax error; `\n` and the like are spelled out.
struct Table {
    path: PathBuf,
    lines: Vec<Line>,
}

enum Line {
    Other(String),
    Attribute(String),
    Expression(String, Outcome),
}

impl Table {
    fn read() -> Table {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/filters.txt");
        let text = std::fs::read_to_string(&path).expect("testdata/filters.txt is in the repository");
        let line = |line: &str| match line.split_at_checked(2) {
            Some(("= ", json)) => Line::Attribute(json.into()),
            Some(("+ ", expression)) => Line::Expression(expression.into(), Outcome::Match),
            Some(("- ", expression)) => Line::Expression(expression.into(), Outcome::NoMatch),
            Some(("? ", error)) => {
                let (expression, rest) = error.rsplit_once(" ~~ ").expect("an error has a rest");
                Line::Expression(expression.into(), Outcome::SyntaxError(rest.into()))
            }
            _ => Line::Other(line.into()),
        };
        Table { lines: text.lines().map(line).collect(), path }
    }

    fn write(&self) {
        let line = |line: &Line| match line {
            Line::Other(line) => format!("{line}\n"),
            Line::Attribute(json) => format!("= {json}\n"),
            Line::Expression(expression, Outcome::Match) => format!("+ {expression}\n"),
            Line::Expression(expression, Outcome::NoMatch) => format!("- {expression}\n"),
            Line::Expression(expression, Outcome::SyntaxError(rest)) => {
                format!("? {expression} ~~ {}\n", String::from_utf8_lossy(rest))
            }
        };
        std::fs::write(&self.path, self.lines.iter().map(line).collect::<String>()).expect("it is writable");
    }

    /// Compares each line with what `answer` says, or takes that over.
    fn each(&mut self, mut answer: impl FnMut(&[u8], &[u8]) -> Outcome, recorded: bool) {
        let mut json = String::new();
        let mut n_lines = 0;
        for line in &mut self.lines {
            match line {
                Line::Other(_) => {}
                Line::Attribute(given) => json = unescaped(given),
                Line::Expression(expression, expected) => {
                    n_lines += 1;
                    let outcome = answer(unescaped(expression).as_bytes(), json.as_bytes());
                    if recorded {
                        *expected = outcome;
                    } else {
                        assert_eq!(outcome, *expected, "{expression} on {json}");
                    }
                }
            }
        }
        assert!(n_lines >= 135, "{n_lines} expressions");
    }
}

fn unescaped(text: &str) -> String {
    text.replace("<LF>", "\n").replace("<TAB>", "\t").replace("<NUL>", "\0")
}

#[test]
fn the_table_holds() {
    Table::read().each(ours, false);
}

/// A seeded generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// An expression that mostly is one.
    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 || self.below(4) == 0 {
            return self.operand();
        }
        match self.below(12) {
            0 => format!("({})", self.expression(depth - 1)),
            1 => format!("{}{}", self.one_of(&["!", "not ", "not", "! "]), self.expression(depth - 1)),
            2 => format!(
                "({}) {} ({})",
                self.expression(depth - 1),
                self.operator(),
                self.expression(depth - 1)
            ),
            _ => {
                let space = self.one_of(&[" ", " ", " ", "", "  "]);
                let (a, b) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("{a}{space}{}{space}{b}", self.operator())
            }
        }
    }

    fn operator(&mut self) -> &'static str {
        self.one_of(&[
            "==", "==", "!=", ">", ">=", "<", "<=", "+", "-", "*", "/", "%", "**", "in", "in", "and", "or",
            "&&", "||", "and", "or",
        ])
    }

    fn operand(&mut self) -> String {
        match self.below(10) {
            0..4 => format!(".{}", self.one_of(FIELDS)),
            4..6 => self.one_of(NUMBERS).into(),
            6..8 => self.one_of(TEXTS).into(),
            8 => {
                let elements: Vec<&str> = (0..self.below(4)).map(|_| self.one_of(ELEMENTS)).collect();
                format!("[{}]", elements.join(self.one_of(&[",", ", ", " ,"])))
            }
            _ => self.one_of(&["null", "null", "(1)", ".", "1 1", "-1"]).into(),
        }
    }

    /// Some JSON, mostly sound.
    fn json(&mut self) -> String {
        let n_fields = self.below(6);
        let mut fields = Vec::new();
        for _ in 0..n_fields {
            let space = self.one_of(&["", "", " ", "\n"]);
            fields.push(format!("{space}\"{}\"{space}:{space}{}", self.one_of(FIELDS), self.value(2)));
        }
        let mut json = format!("{{{}}}", fields.join(self.one_of(&[",", ", "])));
        if self.below(4) == 0 {
            self.spoil(&mut json);
        }
        json
    }

    fn value(&mut self, depth: usize) -> String {
        match self.below(9) {
            0..3 => self.one_of(NUMBERS).into(),
            3..6 => self.one_of(JSON_TEXTS).into(),
            6 => self
                .one_of(&["true", "false", "null", "{}", "{\"a\":[1,{\"b\":\"}\"}]}", "+1", "-.5", "1e"])
                .into(),
            _ if depth == 0 => "[]".into(),
            _ => {
                let elements: Vec<String> = (0..self.below(4)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", elements.join(","))
            }
        }
    }

    /// Breaks a text: a character gone, doubled, changed, or the end cut off.
    fn spoil(&mut self, text: &mut String) {
        for _ in 0..=self.below(2) {
            let at = self.below(text.len() + 1);
            match self.below(4) {
                0 => text.truncate(at),
                1 if at < text.len() => drop(text.remove(at)),
                _ => text.insert_str(at, self.one_of(SPOILERS)),
            }
        }
    }
}

const FIELDS: &[&str] =
    &["a", "b", "i", "year", "a-b", "_x", "long_name_of_a_field", "long_name_of_a_file", "12345678", "A"];
const NUMBERS: &[&str] = &["0", "1", "2", "-1", "1.5", "10", "1e3", "1E2", "0.1", "3", "1e400", "007", "5."];
const TEXTS: &[&str] = &[
    "'a'",
    "\"a\"",
    "'b'",
    "''",
    "'1'",
    "'1.5'",
    "\"a\\\"b\"",
    "'abc'",
    "'bc'",
    "' 2'",
    "'0x2'",
    "'inf'",
    "'nan'",
];
const JSON_TEXTS: &[&str] = &[
    "\"a\"",
    "\"b\"",
    "\"\"",
    "\"1\"",
    "\"abc\"",
    "\"a\\\"b\"",
    "\"\\n\\t\\\\\"",
    "\"\\u0061\"",
    "\" 2\"",
    "\"0x2\"",
    "\"inf\"",
];
const ELEMENTS: &[&str] = &["1", "-2", "'a'", "\"abc\"", "1.5", "0", "''"];
const SPOILERS: &[&str] = &[
    "\"", "'", "[", "]", "{", "}", ",", ":", "\\", "(", ")", ".", "-", "=", "&", " ", "1", "e", "null", "!",
    "x", "#", "+",
];

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a whole number"))
}

#[test]
fn the_fast_evaluation_answers_as_its_twin() {
    let seed = number_from("SEED", 1);
    let mut random = Random(seed);
    let (mut n_matches, mut n_compiled) = (0, 0);
    for round in 0..number_from("ROUNDS", 100_000) {
        let mut expression = random.expression(3);
        if random.below(6) == 0 {
            random.spoil(&mut expression);
        }
        let json = random.json();
        let Ok(filter) = Filter::compile(expression.as_bytes()) else { continue };
        let expected = twin::matches(&filter, json.as_bytes());
        let matches = filter.matches(&Attribute::parse(json.as_bytes()));
        assert_eq!(matches, expected, "seed {seed}, round {round}: {expression:?} on {json:?}");
        n_matches += usize::from(matches);
        n_compiled += 1;
    }
    assert!(n_matches * 50 > n_compiled, "{n_matches} of {n_compiled}: the generator is too dull");
}

#[test]
fn huge_expressions_and_attributes_are_bounded() {
    let ors = vec![".i == 1"; 10_000].join(" or ");
    let one = Attribute::parse(b"{\"i\":1}");
    assert!(Filter::compile(ors.as_bytes()).expect("sound").matches(&one));
    let parentheses = format!("{}.i{}", "(".repeat(1_000_000), ")".repeat(1_000_000));
    assert!(Filter::compile(parentheses.as_bytes()).expect("sound").matches(&one));
    let right = format!("{}1{}", ".i+(".repeat(100_000), ")".repeat(100_000));
    assert!(Filter::compile(right.as_bytes()).expect("sound").matches(&one));
    assert!(Filter::compile("!(".repeat(100_000).as_bytes()).is_err());
    assert!(Filter::compile("[".repeat(100_000).as_bytes()).is_err());

    let filter = Filter::compile(b".i == 1 and .z == 2").expect("sound");
    let fields: String = (0..100_000).map(|i| format!("\"{:05}\":{i},", i % 60_000)).collect();
    let many = Attribute::parse(format!("{{{fields}\"z\":2,\"i\":1}}").as_bytes());
    assert!(filter.matches(&many));
    assert!(many.memory_bytes() < 5 * many.text().len(), "{} bytes", many.memory_bytes());
    let deep = format!("{{\"i\":1,\"d\":{}{},\"z\":2}}", "[".repeat(500_000), "]".repeat(500_000));
    assert!(filter.matches(&Attribute::parse(deep.as_bytes())));
    let open = format!("{{\"z\":2,\"i\":1,\"d\":{}", "[".repeat(1_000_000));
    assert!(filter.matches(&Attribute::parse(open.as_bytes())));
    let ones = format!("{{\"i\":1,\"z\":2,\"t\":[{}]}}", vec!["1"; 500_000].join(","));
    let ones = Attribute::parse(ones.as_bytes());
    assert!(Filter::compile(b"2 in .t").is_ok_and(|filter| !filter.matches(&ones)));
    assert!(ones.memory_bytes() < 6 * ones.text().len(), "{} bytes", ones.memory_bytes());
    let long = "a".repeat(1_000_000);
    let long = Attribute::parse(format!("{{\"t\":\"{long}\",\"p\":\"{}b\"}}", &long[..500_000]).as_bytes());
    assert!(Filter::compile(b".p in .t").is_ok_and(|filter| !filter.matches(&long)));
}

/// A Redis of our own, gone with the value.
struct Redis {
    server: Child,
    connection: BufReader<TcpStream>,
}

impl Redis {
    /// `None` if no binary is named.
    fn start() -> Option<Redis> {
        let Ok(binary) = std::env::var("SKERRY_REDIS") else {
            eprintln!("SKERRY_REDIS is not set: not compared with Redis");
            return None;
        };
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let server = Command::new(binary)
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("SKERRY_REDIS names a server");
        let begin = Instant::now();
        let connection = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(connection) => break connection,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(20), "{error}"),
            }
            std::thread::yield_now();
        };
        connection.set_nodelay(true).expect("a socket");
        let mut redis = Redis { server, connection: BufReader::new(connection) };
        redis.call(&[b"VADD", b"k", b"VALUES", b"2", b"1", b"0", b"e"]);
        Some(redis)
    }

    fn outcome(&mut self, expression: &[u8], json: &[u8]) -> Outcome {
        self.call(&[b"VSETATTR", b"k", b"e", json]);
        let reply = self.call(&[b"VSIM", b"k", b"VALUES", b"2", b"1", b"0", b"FILTER", expression]);
        const ERROR: &[u8] = b"-ERR syntax error in FILTER expression near: ";
        match &*reply {
            b"*0" => Outcome::NoMatch,
            b"*1" => {
                self.line();
                self.line();
                Outcome::Match
            }
            error => match error.strip_prefix(ERROR) {
                Some(rest) => Outcome::SyntaxError(rest.to_vec()),
                None => panic!("{}", String::from_utf8_lossy(error)),
            },
        }
    }

    /// Sends a command; the first line of the reply.
    fn call(&mut self, argv: &[&[u8]]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", argv.len()).into_bytes();
        for argument in argv {
            request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            request.extend_from_slice(argument);
            request.extend_from_slice(b"\r\n");
        }
        self.connection.get_mut().write_all(&request).expect("Redis lives");
        self.line()
    }

    fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.connection.read_until(b'\n', &mut line).expect("Redis lives");
        assert!(line.ends_with(b"\r\n"), "Redis died");
        line.truncate(line.len() - 2);
        line
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = self.connection.get_mut().read(&mut []);
    }
}

/// A line of an error cannot hold these.
fn as_error_line(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::SyntaxError(mut rest) => {
            rest.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
            Outcome::SyntaxError(rest)
        }
        other => other,
    }
}

#[test]
fn redis_answers_the_table_so() {
    let Some(mut redis) = Redis::start() else { return };
    let recorded = std::env::var("SKERRY_RECORD").is_ok();
    let mut table = Table::read();
    table.each(|expression, json| redis.outcome(expression, json), recorded);
    if recorded {
        table.write();
    }
}

#[test]
fn redis_answers_generated_expressions_so() {
    let Some(mut redis) = Redis::start() else { return };
    let seed = number_from("SEED", 1);
    let mut random = Random(seed);
    for round in 0..number_from("ROUNDS", 6_000) {
        let mut expression = random.expression(3);
        if random.below(4) == 0 {
            random.spoil(&mut expression);
        }
        let json = random.json();
        if json.is_empty() {
            continue;
        }
        let expected = redis.outcome(expression.as_bytes(), json.as_bytes());
        let outcome = as_error_line(ours(expression.as_bytes(), json.as_bytes()));
        assert_eq!(outcome, expected, "seed {seed}, round {round}: {expression:?} on {json:?}");
    }
}
