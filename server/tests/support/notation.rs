//! Replies on one line, as dialogues write them, and the patterns for what may vary.
//!
//! ```text
//! +OK  -ERR text        simple string, error (to the end of the line; inside an aggregate quoted: +"OK")
//! :1  "bulk\r\n"        integer, bulk string                   $-1  *-1  _    the three nulls
//! #t  ,1.5  (123        boolean, double, big number            =txt"..."  !"..."   verbatim, blob error
//! [a, b]  ~[a]  >[a]    array, set, push                       %{k: v, k: v}  map
//! ```
//! Patterns: `*` anything, `:*` an integer, `:1..5` in that range, `,*` and `,1..2` doubles, `g"a*b"` a string of
//! any kind that matches the glob (only `*` is special), `-g"..."` an error that does, `{x | y}` one of them,
//! `...` as last element any rest. Sets and maps of RESP3 have no order and are compared without one.

use super::reply::Reply;
use super::words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Array,
    Set,
    Push,
    Map,
}

/// What a line allows.
#[derive(Clone, Debug)]
pub enum Expect {
    Is(Reply),
    Items { kind: KindOf, items: Vec<Expect>, rest: bool },
    Any,
    Int(i64, i64),
    Double(f64, f64),
    Text(Vec<u8>),
    Error(Vec<u8>),
    OneOf(Vec<Expect>),
}

/// The aggregate an `Expect::Items` stands for; a map's items are its keys and values in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindOf(Kind);

/// Writes a reply as one line.
pub fn show(reply: &Reply) -> String {
    match reply {
        Reply::Simple(t) if is_plain_line(t) => format!("+{}", String::from_utf8_lossy(t)),
        Reply::Error(t) if is_plain_line(t) => format!("-{}", String::from_utf8_lossy(t)),
        other => nested(other),
    }
}

/// Reads a whole line.
pub fn parse(line: &str) -> Result<Expect, String> {
    let line = line.trim_end();
    let top = |rest: &str| !rest.starts_with('"') && !rest.starts_with("g\"");
    match line.split_at_checked(1) {
        Some(("+", rest)) if top(rest) => Ok(Expect::Is(Reply::Simple(rest.as_bytes().to_vec()))),
        Some(("-", rest)) if top(rest) => Ok(Expect::Is(Reply::Error(rest.as_bytes().to_vec()))),
        _ => {
            let mut parser = Parser { rest: line };
            let expect = parser.expect()?;
            if parser.rest.trim().is_empty() {
                Ok(expect)
            } else {
                Err(format!("left over: {}", parser.rest))
            }
        }
    }
}

/// Puts what has no order of its own into one: RESP3 sets and maps at any depth.
pub fn sort_unordered(reply: &Reply) -> Reply {
    let each = |items: &[Reply]| items.iter().map(sort_unordered).collect::<Vec<_>>();
    match reply {
        Reply::Array(items) => Reply::Array(each(items)),
        Reply::Push(items) => Reply::Push(each(items)),
        Reply::Set(items) => {
            let mut items = each(items);
            items.sort();
            Reply::Set(items)
        }
        Reply::Map(pairs) => {
            let mut pairs: Vec<_> =
                pairs.iter().map(|(k, v)| (sort_unordered(k), sort_unordered(v))).collect();
            pairs.sort();
            Reply::Map(pairs)
        }
        other => other.clone(),
    }
}

/// Sorts the elements of an array in groups of `width` (2 for flattened pairs), `depth` levels below the top.
pub fn sort_array(reply: &Reply, depth: usize, width: usize) -> Reply {
    match reply {
        Reply::Array(items) if depth > 0 => {
            Reply::Array(items.iter().map(|item| sort_array(item, depth - 1, width)).collect())
        }
        Reply::Array(items) if items.len() % width == 0 => {
            let mut groups: Vec<Vec<Reply>> = items.chunks(width).map(<[Reply]>::to_vec).collect();
            groups.sort();
            Reply::Array(groups.concat())
        }
        other => other.clone(),
    }
}

impl Expect {
    pub fn allows(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Expect::Any, _) => true,
            (Expect::Is(expected), got) => expected == got,
            (Expect::Int(low, high), Reply::Int(n)) => (low..=high).contains(&n),
            (Expect::Double(low, high), Reply::Double(text)) => {
                let number = std::str::from_utf8(text).ok().and_then(|t| t.parse::<f64>().ok());
                number.is_some_and(|n| (*low..=*high).contains(&n))
            }
            (Expect::Text(glob), got) => !got.is_error() && got.text().is_some_and(|t| matches_glob(glob, t)),
            (Expect::Error(glob), Reply::Error(text)) => matches_glob(glob, text),
            (Expect::OneOf(choices), got) => choices.iter().any(|c| c.allows(got)),
            (Expect::Items { kind, items, rest }, got) => {
                let is_kind = match kind.0 {
                    Kind::Array => matches!(got, Reply::Array(_)),
                    Kind::Set => matches!(got, Reply::Set(_)),
                    Kind::Push => matches!(got, Reply::Push(_)),
                    Kind::Map => matches!(got, Reply::Map(_)),
                };
                let got = if is_kind { got.items().unwrap_or_default() } else { return false };
                let fits = if *rest { got.len() >= items.len() } else { got.len() == items.len() };
                fits && items.iter().zip(&got).all(|(e, g)| e.allows(g))
            }
            _ => false,
        }
    }
}

/// Whether `text` matches a glob in which only `*` is special.
pub fn matches_glob(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if g < glob.len() && glob[g] == b'*' {
            retry = Some((g + 1, t));
            g += 1;
        } else if g < glob.len() && glob[g] == text[t] {
            g += 1;
            t += 1;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            g = after;
            t = from + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&b| b == b'*')
}

fn is_plain_line(text: &[u8]) -> bool {
    let quote_like = text.first() == Some(&b'"') || text.starts_with(b"g\"");
    !quote_like && text.last() != Some(&b' ') && text.iter().all(|b| (32..127).contains(b))
}

fn nested(reply: &Reply) -> String {
    let list = |items: &[Reply]| items.iter().map(nested).collect::<Vec<_>>().join(", ");
    let text = |t: &[u8]| String::from_utf8_lossy(t).into_owned();
    match reply {
        Reply::Simple(t) => format!("+{}", words::quote(t)),
        Reply::Error(t) => format!("-{}", words::quote(t)),
        Reply::BlobError(t) => format!("!{}", words::quote(t)),
        Reply::Verbatim(kind, t) => format!("={}{}", text(kind), words::quote(t)),
        Reply::Bulk(t) => words::quote(t),
        Reply::Int(n) => format!(":{n}"),
        Reply::Double(t) => format!(",{}", text(t)),
        Reply::Big(t) => format!("({}", text(t)),
        Reply::NullBulk => "$-1".to_owned(),
        Reply::NullArray => "*-1".to_owned(),
        Reply::Null => "_".to_owned(),
        Reply::Bool(true) => "#t".to_owned(),
        Reply::Bool(false) => "#f".to_owned(),
        Reply::Array(items) => format!("[{}]", list(items)),
        Reply::Set(items) => format!("~[{}]", list(items)),
        Reply::Push(items) => format!(">[{}]", list(items)),
        Reply::Map(pairs) => {
            let pair = |(k, v): &(Reply, Reply)| format!("{}: {}", nested(k), nested(v));
            format!("%{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn expect(&mut self) -> Result<Expect, String> {
        self.rest = self.rest.trim_start();
        let is = |reply| Ok(Expect::Is(reply));
        if self.eat("$-1") {
            return is(Reply::NullBulk);
        } else if self.eat("*-1") {
            return is(Reply::NullArray);
        } else if self.eat("_") {
            return is(Reply::Null);
        } else if self.eat("#t") {
            return is(Reply::Bool(true));
        } else if self.eat("#f") {
            return is(Reply::Bool(false));
        } else if self.eat("*") {
            return Ok(Expect::Any);
        } else if self.eat("[") {
            return self.items(Kind::Array, "]");
        } else if self.eat("~[") {
            return self.items(Kind::Set, "]");
        } else if self.eat(">[") {
            return self.items(Kind::Push, "]");
        } else if self.eat("%{") {
            return self.items(Kind::Map, "}");
        } else if self.eat("{") {
            return self.one_of();
        } else if self.eat("-g") {
            return Ok(Expect::Error(self.quoted()?));
        } else if self.eat("g") {
            return Ok(Expect::Text(self.quoted()?));
        } else if self.eat("+") {
            return is(Reply::Simple(self.quoted()?));
        } else if self.eat("-") {
            return is(Reply::Error(self.quoted()?));
        } else if self.eat("!") {
            return is(Reply::BlobError(self.quoted()?));
        } else if self.eat("=") {
            let (kind, rest) = self.rest.split_at_checked(3).ok_or("a verbatim string needs its format")?;
            self.rest = rest;
            return is(Reply::Verbatim(kind.as_bytes().to_vec(), self.quoted()?));
        } else if self.rest.starts_with('"') {
            return is(Reply::Bulk(self.quoted()?));
        } else if self.eat(":") {
            return self.integer();
        } else if self.eat(",") {
            return self.double();
        } else if self.eat("(") {
            return is(Reply::Big(self.word().as_bytes().to_vec()));
        }
        Err(format!("cannot read reply at: {}", self.rest))
    }

    fn integer(&mut self) -> Result<Expect, String> {
        if self.eat("*") {
            return Ok(Expect::Int(i64::MIN, i64::MAX));
        }
        let number = |t: &str| t.parse::<i64>().map_err(|e| format!("{t}: {e}"));
        let word = self.word();
        match word.split_once("..") {
            Some((low, high)) => Ok(Expect::Int(number(low)?, number(high)?)),
            None => Ok(Expect::Is(Reply::Int(number(word)?))),
        }
    }

    fn double(&mut self) -> Result<Expect, String> {
        if self.eat("*") {
            return Ok(Expect::Double(f64::NEG_INFINITY, f64::INFINITY));
        }
        let number = |t: &str| t.parse::<f64>().map_err(|e| format!("{t}: {e}"));
        let word = self.word();
        match word.split_once("..") {
            Some((low, high)) => Ok(Expect::Double(number(low)?, number(high)?)),
            None => Ok(Expect::Is(Reply::Double(word.as_bytes().to_vec()))),
        }
    }

    fn items(&mut self, kind: Kind, end: &str) -> Result<Expect, String> {
        let mut items = Vec::new();
        let mut rest = false;
        loop {
            self.rest = self.rest.trim_start();
            if self.eat(end) {
                break;
            } else if self.eat("...") {
                rest = true;
                continue;
            }
            items.push(self.expect()?);
            if kind == Kind::Map {
                self.rest = self.rest.trim_start();
                if !self.eat(":") {
                    return Err(format!("a map's key needs a value at: {}", self.rest));
                }
                items.push(self.expect()?);
            }
            self.rest = self.rest.trim_start();
            if !self.eat(",") && !self.rest.starts_with(end) {
                return Err(format!("expected , or {end} at: {}", self.rest));
            }
        }
        Ok(settle(kind, items, rest))
    }

    fn one_of(&mut self) -> Result<Expect, String> {
        let mut choices = vec![self.expect()?];
        loop {
            self.rest = self.rest.trim_start();
            if self.eat("}") {
                return Ok(Expect::OneOf(choices));
            } else if !self.eat("|") {
                return Err(format!("expected | or }} at: {}", self.rest));
            }
            choices.push(self.expect()?);
        }
    }

    fn quoted(&mut self) -> Result<Vec<u8>, String> {
        if !self.rest.starts_with('"') {
            return Err(format!("expected a quoted string at: {}", self.rest));
        }
        let (bytes, rest) = words::quoted(self.rest)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find([',', ' ', ']', '}', ':']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

/// An aggregate of exact parts is an exact reply, so that it can be sorted like one.
fn settle(kind: Kind, items: Vec<Expect>, rest: bool) -> Expect {
    let exact: Option<Vec<Reply>> =
        items.iter().map(|e| if let Expect::Is(r) = e { Some(r.clone()) } else { None }).collect();
    match (exact, rest) {
        (Some(items), false) => Expect::Is(match kind {
            Kind::Array => Reply::Array(items),
            Kind::Set => Reply::Set(items),
            Kind::Push => Reply::Push(items),
            Kind::Map => Reply::Map(items.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect()),
        }),
        _ => Expect::Items { kind: KindOf(kind), items, rest },
    }
}
