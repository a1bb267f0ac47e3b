//! Dialogues: text files of commands and the replies a real Redis 8.2.3 gave to them.
//!
//! ```text
//! # name                a section: an empty keyspace and fresh connections
//! args --name value     (right after it) the section has a server of its own, with these arguments
//! > SET k "a b"         a command on the connection without a name; words as in `words`
//! < +OK                 its reply, as in `notation`
//! a> GET k              the same on connection a
//! a< "a b"
//! >> "PING\r\n"         raw bytes; one `<` line for each reply
//! >* EXISTS k           asked again until the reply is the one below, at most 5 s
//! >& SCAN 0             a whole iteration: asked again with each reply's cursor; the reply is `["0", all elements]`
//! resp 3                HELLO 3 (`a resp 3` on connection a)
//! a close               the client hangs up
//! ; text                a comment
//! ```
//! Replies: `<` exact; `<~` an array in any order (`<~2` of flattened pairs, `<~~` one level down); `<?` a pattern,
//! which recording keeps; `<none` no reply belongs here; `<closed` the server hangs up; `<! reply` after a reply:
//! what ours says instead, deliberately (say why in a comment).
//!
//! Every section ends with RESET on each connection, so a reply too many or too few cannot hide.

use super::conn::{Conn, NoReply};
use super::notation::{self, Expect};
use super::reply::Reply;
use super::server::{Kind, Server};
use super::words;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

const UNTIL_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_PAGES: usize = 10_000;
const MAX_FAULTS_SHOWN: usize = 40;
const MAX_CHARS_SHOWN: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Exact,
    Any { depth: usize, width: usize },
}

#[derive(Clone, Debug)]
enum Line {
    /// Blank lines and comments.
    Text,
    Section(String),
    Args(Vec<String>),
    Resp(String, String),
    Close(String),
    Send(String, String),
    Raw(String, String),
    Until(String, String),
    Walk(String, String),
    Reply(String, Order, String),
    Pattern(String, String),
    None,
    Closed(String),
    Ours(String, String),
}

/// What to do with the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Check,
    /// Write the replies of the server into the file.
    Record,
}

/// Plays a file; the error is a report of what differed.
pub fn play(path: &Path, kind: Kind, mode: Mode) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let source: Vec<&str> = text.lines().collect();
    let mut lines = Vec::new();
    for (n, line) in source.iter().enumerate() {
        lines.push(read_line(line).map_err(|why| format!("{}:{}: {why}", path.display(), n + 1))?);
    }
    let mut player = Player {
        file: path.file_name().expect("a file").to_string_lossy().into_owned(),
        mode,
        kind,
        shared: None,
        own: None,
        conns: BTreeMap::new(),
        walked: None,
        said: String::new(),
        faults: Vec::new(),
        n_checked: 0,
        out: Vec::new(),
    };
    player.run(&source, &lines);
    if mode == Mode::Record {
        let mut text = player.out.join("\n");
        text.push('\n');
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if player.faults.is_empty() { Ok(player.n_checked) } else { Err(player.report()) }
}

fn read_line(line: &str) -> Result<Line, String> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with(';') {
        return Ok(Line::Text);
    }
    if let Some(name) = line.strip_prefix("# ") {
        return Ok(Line::Section(name.to_owned()));
    }
    if let Some(args) = line.strip_prefix("args ") {
        let args = words::split(args)?;
        return Ok(Line::Args(args.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect()));
    }
    for (conn, verb) in [("", line), line.split_once(' ').unwrap_or(("", ""))] {
        let conn = conn.to_owned();
        if let Some(version) = verb.strip_prefix("resp ") {
            return Ok(Line::Resp(conn, version.to_owned()));
        } else if verb == "close" {
            return Ok(Line::Close(conn));
        }
    }
    let at = line.find(['>', '<']).ok_or_else(|| format!("cannot read: {line}"))?;
    let conn = line[..at].to_owned();
    if !conn.chars().all(|c| c.is_ascii_lowercase()) {
        return Err(format!("bad connection name in: {line}"));
    }
    let (mark, rest) = line[at..].split_once(' ').unwrap_or((&line[at..], ""));
    let rest = rest.to_owned();
    let any = |depth, width| Order::Any { depth, width };
    Ok(match mark {
        ">" => Line::Send(conn, rest),
        ">>" => Line::Raw(conn, rest),
        ">*" => Line::Until(conn, rest),
        ">&" => Line::Walk(conn, rest),
        "<" => Line::Reply(conn, Order::Exact, rest),
        "<~" => Line::Reply(conn, any(0, 1), rest),
        "<~2" => Line::Reply(conn, any(0, 2), rest),
        "<~~" => Line::Reply(conn, any(1, 1), rest),
        "<?" => Line::Pattern(conn, rest),
        "<!" => Line::Ours(conn, rest),
        "<none" => Line::None,
        "<closed" => Line::Closed(conn),
        _ => return Err(format!("unknown mark in: {line}")),
    })
}

struct Player {
    file: String,
    mode: Mode,
    kind: Kind,
    shared: Option<Server>,
    own: Option<Server>,
    conns: BTreeMap<String, Conn>,
    /// The joined reply of a walk, until its reply line takes it.
    walked: Option<(String, Reply)>,
    /// The last command line, for messages.
    said: String,
    faults: Vec<String>,
    n_checked: usize,
    out: Vec<String>,
}

impl Player {
    fn run(&mut self, source: &[&str], lines: &[Line]) {
        let mut at = 0;
        while at < lines.len() {
            let end =
                (at + 1..lines.len()).find(|&n| matches!(lines[n], Line::Section(_))).unwrap_or(lines.len());
            self.section(source, lines, at, end);
            at = end;
        }
    }

    fn section(&mut self, source: &[&str], lines: &[Line], start: usize, end: usize) {
        let args = lines[start..end]
            .iter()
            .find_map(|l| if let Line::Args(args) = l { Some(args.clone()) } else { None });
        if !matches!(lines[start], Line::Section(_)) {
            self.out.extend(source[start..end].iter().map(|s| (*s).to_owned()));
            return;
        }
        match args {
            Some(args) => self.own = Some(Server::start(self.kind, &args)),
            None => {
                let kind = self.kind;
                let server = self.shared.get_or_insert_with(|| Server::start(kind, &[]));
                server.connect().call(&["FLUSHALL"]);
            }
        }
        for n in start..end {
            let written = self.out.len();
            self.out.push(source[n].to_owned());
            if matches!(lines[n], Line::Send(..) | Line::Raw(..) | Line::Until(..) | Line::Walk(..)) {
                self.said = cut(source[n]);
            }
            if let Err(why) = self.line(lines, n, end) {
                self.fault(n, &format!("{}\n    {why}; the rest of the section is not played", source[n]));
                self.out.truncate(written);
                self.out.extend(source[n..end].iter().map(|s| (*s).to_owned()));
                break;
            }
        }
        self.end_of_section(end);
    }

    fn end_of_section(&mut self, end: usize) {
        for (name, mut conn) in std::mem::take(&mut self.conns) {
            let reply = conn.send(&["RESET"]).and_then(|()| conn.read());
            if !matches!(&reply, Ok(Reply::Simple(text)) if text == b"RESET") {
                self.fault(end - 1, &format!("connection {name:?} is out of step: RESET gives {reply:?}"));
            }
        }
        self.own = None;
    }

    fn line(&mut self, lines: &[Line], n: usize, end: usize) -> Result<(), String> {
        match &lines[n] {
            Line::Text | Line::Section(_) | Line::Args(_) | Line::None | Line::Ours(..) => Ok(()),
            Line::Resp(conn, version) => {
                match self.conn(conn).send(&["HELLO", version]).and_then(|()| self.conn(conn).read()) {
                    Ok(reply) if !reply.is_error() => Ok(()),
                    other => Err(format!("HELLO {version} gives {other:?}")),
                }
            }
            Line::Close(conn) => {
                self.conns.remove(conn);
                Ok(())
            }
            Line::Send(conn, words) => {
                let argv = words::split(words)?;
                self.conn(conn).send(&argv).map_err(|why| format!("{why:?}"))?;
                self.fill_in(lines, n, end, conn)
            }
            Line::Raw(conn, words) => {
                let bytes = words::split(words)?.concat();
                self.conn(conn).send_raw(&bytes).map_err(|why| format!("{why:?}"))?;
                self.fill_in(lines, n, end, conn)
            }
            Line::Until(conn, words) => self.until(conn, words, &lines[n + 1..end]),
            Line::Walk(conn, words) => {
                let whole = self.walk(conn, words)?;
                self.walked = Some((conn.clone(), whole));
                self.fill_in(lines, n, end, conn)
            }
            Line::Reply(conn, order, text) => self.reply(lines, n, conn, *order, text),
            Line::Pattern(conn, text) => {
                if matches!(lines[n - 1], Line::Until(..)) {
                    return Ok(());
                }
                let expect = self.expected(lines, n, text)?;
                let got = self.read(conn)?;
                self.compare(n, &expect, &got, &got, text);
                Ok(())
            }
            Line::Closed(conn) => {
                match self.conn(conn).read() {
                    Err(NoReply::Closed) => {}
                    other => self.fault(n, &format!("the connection should be closed, but: {other:?}")),
                }
                self.conns.remove(conn);
                Ok(())
            }
        }
    }

    fn reply(
        &mut self,
        lines: &[Line],
        n: usize,
        conn: &str,
        order: Order,
        text: &str,
    ) -> Result<(), String> {
        if matches!(lines[n - 1], Line::Until(..)) {
            return Ok(());
        }
        let got = self.read(conn)?;
        let sorted = arrange(&got, order);
        if self.mode == Mode::Record {
            let mark = self.out.pop().expect("the line itself");
            let mark = mark.split(' ').next().unwrap_or("<").to_owned();
            self.out.push(format!("{mark} {}", notation::show(&sorted)));
            self.n_checked += 1;
            return Ok(());
        }
        let expect = match self.expected(lines, n, text)? {
            Expect::Is(reply) => Expect::Is(arrange(&reply, order)),
            pattern => pattern,
        };
        self.compare(n, &expect, &sorted, &got, text);
        Ok(())
    }

    /// What the line says, or the `<!` line after it if the server is ours.
    fn expected(&self, lines: &[Line], n: usize, text: &str) -> Result<Expect, String> {
        // `SKERRY_TEST_BINARY` may have put a Redis into our place.
        let server = self.own.as_ref().or(self.shared.as_ref());
        let is_ours = server.is_some_and(|server| server.kind != Kind::Redis);
        match lines.get(n + 1) {
            Some(Line::Ours(_, ours)) if is_ours => notation::parse(ours),
            _ => notation::parse(text),
        }
    }

    fn compare(&mut self, n: usize, expect: &Expect, sorted: &Reply, got: &Reply, text: &str) {
        self.n_checked += 1;
        if !expect.allows(sorted) {
            let expected = match expect {
                Expect::Is(reply) => notation::show(reply),
                _ => text.to_owned(),
            };
            self.fault(
                n,
                &format!(
                    "{}\n  expected {}\n       got {}",
                    self.said,
                    cut(&expected),
                    cut(&notation::show(got))
                ),
            );
        }
    }

    /// When recording, a command that has no reply line yet gets one.
    fn fill_in(&mut self, lines: &[Line], n: usize, end: usize, conn: &str) -> Result<(), String> {
        let next = lines[n + 1..end].iter().find(|l| !matches!(l, Line::Text));
        let has_line = match next {
            Some(Line::Reply(c, ..) | Line::Pattern(c, _) | Line::Closed(c)) => c == conn,
            Some(Line::None) => true,
            _ => false,
        };
        if has_line {
            return Ok(());
        }
        if self.mode == Mode::Check {
            return Err("no reply line follows (record it, or say <none)".to_owned());
        }
        let got = self.read(conn)?;
        self.n_checked += 1;
        self.out.push(format!("{conn}< {}", notation::show(&arrange(&got, Order::Exact))));
        Ok(())
    }

    fn until(&mut self, conn: &str, words: &str, after: &[Line]) -> Result<(), String> {
        let text = match after.first() {
            Some(Line::Reply(c, Order::Exact, text) | Line::Pattern(c, text)) if c == conn => text.clone(),
            _ => return Err(">* needs its reply on the next line".to_owned()),
        };
        let expect = notation::parse(&text)?;
        let end = Instant::now() + UNTIL_TIMEOUT;
        loop {
            self.conn(conn).send(&words::split(words)?).map_err(|why| format!("{why:?}"))?;
            let got = self.read(conn)?;
            if expect.allows(&arrange(&got, Order::Exact)) {
                self.n_checked += 1;
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("after {UNTIL_TIMEOUT:?} still {}", notation::show(&got)));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where a page ends is each server's own affair, so the pages are joined.
    fn walk(&mut self, conn: &str, words: &str) -> Result<Reply, String> {
        let mut argv = words::split(words)?;
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            self.conn(conn).send(&argv).map_err(|why| format!("{why:?}"))?;
            let reply = self.read(conn)?;
            let (cursor, page) = match &reply {
                Reply::Array(parts) => match &parts[..] {
                    [Reply::Bulk(cursor), Reply::Array(page)] => (cursor, page),
                    _ => return Ok(reply),
                },
                _ => return Ok(reply),
            };
            all.extend(page.iter().cloned());
            if cursor == b"0" {
                return Ok(Reply::Array(vec![Reply::Bulk(cursor.clone()), Reply::Array(all)]));
            }
            argv[1] = cursor.clone();
        }
        Err(format!("no end after {MAX_PAGES} pages"))
    }

    fn conn(&mut self, name: &str) -> &mut Conn {
        let server = self.own.as_ref().or(self.shared.as_ref()).expect("a server per section");
        self.conns.entry(name.to_owned()).or_insert_with(|| server.connect())
    }

    fn read(&mut self, conn: &str) -> Result<Reply, String> {
        if let Some((_, whole)) = self.walked.take_if(|(walker, _)| walker == conn) {
            return Ok(whole);
        }
        self.conn(conn).read().map_err(|why| format!("no reply: {why:?}"))
    }

    fn fault(&mut self, n: usize, what: &str) {
        self.faults.push(format!("{}:{}: {what}", self.file, n + 1));
    }

    fn report(&self) -> String {
        let mut text = format!("{} differences on {:?} in {}:\n", self.faults.len(), self.kind, self.file);
        for fault in self.faults.iter().take(MAX_FAULTS_SHOWN) {
            let _ = writeln!(text, "{fault}");
        }
        if self.faults.len() > MAX_FAULTS_SHOWN {
            let _ = writeln!(text, "... and {} more", self.faults.len() - MAX_FAULTS_SHOWN);
        }
        text
    }
}

/// Long replies are cut in messages.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS_SHOWN) {
        Some((at, _)) => format!("{}... ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

fn arrange(reply: &Reply, order: Order) -> Reply {
    let reply = notation::sort_unordered(reply);
    match order {
        Order::Exact => reply,
        Order::Any { depth, width } => notation::sort_array(&reply, depth, width),
    }
}
