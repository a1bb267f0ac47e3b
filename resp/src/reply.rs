//! Writes replies. The only place where RESP2 and RESP3 part: a caller says what it means (`map`, `null`,
//! `double`), and the protocol of the connection decides the bytes.
//!
//! | call | RESP2 | RESP3 |
//! | --- | --- | --- |
//! | `null` / `null_array` | `$-1` / `*-1` | `_` |
//! | `map(n)` | `*2n` | `%n` |
//! | `set(n)`, `push(n)` | `*n` | `~n`, `>n` |
//! | `double` | bulk | `,` |
//! | `boolean` | `:1` / `:0` | `#t` / `#f` |
//! | `big_number`, `verbatim` | bulk | `(`, `=` |
//! | `attribute(n)` | nothing may be written | `\|n` |
//!
//! Aggregates are headers only: the caller writes the announced number of elements behind.
//!
//! It must never know a command or a socket. Cost: a short header is one load from a table, one 8-byte store and a
//! length (`benches/parse.rs`); nothing is allocated beyond the growth of the output.

use crate::number::{FloatText, format_f64};

/// The protocol that a connection speaks; `HELLO` sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    #[default]
    Resp2,
    Resp3,
}

/// Writes one connection's replies to the end of a buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    proto: Proto,
}

/// Headers up to this number come from `HEADERS`.
const SHORT: usize = 1000;

/// `HEADERS[n]` is `?<n>\r\n`, padded; its length is the last byte.
static HEADERS: [[u8; 8]; SHORT] = short_headers();

const fn short_headers() -> [[u8; 8]; SHORT] {
    let mut all = [[0; 8]; SHORT];
    let mut n = 0;
    while n < SHORT {
        let n_digits = if n < 10 {
            1
        } else if n < 100 {
            2
        } else {
            3
        };
        let mut rest = n;
        let mut at = n_digits;
        while at > 0 {
            all[n][at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            at -= 1;
        }
        all[n][n_digits + 1] = b'\r';
        all[n][n_digits + 2] = b'\n';
        all[n][7] = n_digits as u8 + 3;
        n += 1;
    }
    all
}

/// Two digits a time: `00` to `99`.
static PAIRS: [[u8; 2]; 100] = {
    let mut all = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        all[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    all
};

impl<'a> Reply<'a> {
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, proto: Proto) -> Reply<'a> {
        Reply { out, proto }
    }

    #[inline]
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// The buffer itself, for replies that were written elsewhere.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Bytes that are a whole reply, or whole replies, already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `+PONG`.
    #[inline]
    pub fn pong(&mut self) {
        self.out.extend_from_slice(b"+PONG\r\n");
    }

    /// `+QUEUED`.
    #[inline]
    pub fn queued(&mut self) {
        self.out.extend_from_slice(b"+QUEUED\r\n");
    }

    /// A status line. `text` comes from our own code: it holds no CR or LF.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.bytes().any(|byte| byte == b'\r' || byte == b'\n'));
        self.line(b'+', text.as_bytes());
    }

    /// An error, with its code word (`ERR ...`). It may quote the client's bytes: CR and LF become spaces, so that
    /// nobody can smuggle a second reply in.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.out.push(b'-');
        push_one_line(self.out, text.as_ref());
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        if (value as u64) < SHORT as u64 {
            push_header(self.out, b':', value as usize);
        } else {
            push_long_header(self.out, b':', value);
        }
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        push_bulk(self.out, bytes);
    }

    /// The head of a bulk whose body the caller sends from elsewhere, with the CR LF behind it.
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        push_length(self.out, b'$', len);
    }

    /// An integer as a bulk string, the form in which stored integers are read.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        let mut digits = Digits::new();
        push_bulk(self.out, digits.of(value));
    }

    /// No value. Which of RESP2's two nulls it is depends on the command; this is the usual one.
    #[inline]
    pub fn null(&mut self) {
        match self.proto {
            Proto::Resp2 => self.out.extend_from_slice(b"$-1\r\n"),
            Proto::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    #[inline]
    pub fn null_array(&mut self) {
        match self.proto {
            Proto::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Proto::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    #[inline]
    pub fn array(&mut self, n: usize) {
        push_length(self.out, b'*', n);
    }

    /// `n` pairs follow.
    #[inline]
    pub fn map(&mut self, n: usize) {
        match self.proto {
            Proto::Resp2 => push_length(self.out, b'*', 2 * n),
            Proto::Resp3 => push_length(self.out, b'%', n),
        }
    }

    #[inline]
    pub fn set(&mut self, n: usize) {
        match self.proto {
            Proto::Resp2 => push_length(self.out, b'*', n),
            Proto::Resp3 => push_length(self.out, b'~', n),
        }
    }

    /// A message that answers no request (pub/sub, invalidation).
    #[inline]
    pub fn push(&mut self, n: usize) {
        match self.proto {
            Proto::Resp2 => push_length(self.out, b'*', n),
            Proto::Resp3 => push_length(self.out, b'>', n),
        }
    }

    /// `n` pairs of attributes of the reply that comes behind them. RESP2 has none: the caller asks `proto` first.
    #[inline]
    pub fn attribute(&mut self, n: usize) {
        assert!(self.proto == Proto::Resp3, "attributes exist in RESP3 only");
        push_length(self.out, b'|', n);
    }

    pub fn double(&mut self, value: f64) {
        let mut text = FloatText::new();
        let text = format_f64(value, &mut text);
        match self.proto {
            Proto::Resp2 => push_bulk(self.out, text),
            Proto::Resp3 => self.line(b',', text),
        }
    }

    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.proto, value) {
            (Proto::Resp2, true) => b":1\r\n",
            (Proto::Resp2, false) => b":0\r\n",
            (Proto::Resp3, true) => b"#t\r\n",
            (Proto::Resp3, false) => b"#f\r\n",
        });
    }

    /// `digits` is a decimal integer of any size.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.proto {
            Proto::Resp2 => push_bulk(self.out, digits),
            Proto::Resp3 => {
                self.out.push(b'(');
                push_one_line(self.out, digits);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Text with a three-letter format (`txt`, `mkd`).
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        match self.proto {
            Proto::Resp2 => push_bulk(self.out, text),
            Proto::Resp3 => {
                push_length(self.out, b'=', text.len() + 4);
                self.out.extend_from_slice(format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// `$<len>\r\n<bytes>\r\n`, alike in both protocols and in requests.
#[inline]
pub(crate) fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 32);
    push_length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub(crate) fn push_length(out: &mut Vec<u8>, kind: u8, n: usize) {
    if n < SHORT {
        push_header(out, kind, n);
    } else {
        push_long_header(out, kind, n as i64);
    }
}

#[inline(always)]
fn push_header(out: &mut Vec<u8>, kind: u8, n: usize) {
    let mut header = HEADERS[n];
    let len = usize::from(header[7]);
    header[0] = kind;
    // All eight bytes are stored and the padding is taken back: a copy of fixed size is one instruction.
    let before = out.len();
    out.extend_from_slice(&header);
    out.truncate(before + len);
}

#[inline(never)]
fn push_long_header(out: &mut Vec<u8>, kind: u8, value: i64) {
    /// Kind, sign, 19 digits, CR LF.
    const LEN: usize = 23;
    let mut line = [b'\n'; LEN];
    line[LEN - 2] = b'\r';
    let start = fill_backwards(&mut line[..LEN - 2], value) - 1;
    line[start] = kind;
    out.extend_from_slice(&line[start..]);
}

fn push_one_line(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    out.extend_from_slice(text);
    for byte in &mut out[start..] {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
}

/// Room for a decimal `i64`.
///
/// ```
/// let mut digits = skerry_resp::reply::Digits::new();
/// assert_eq!(digits.of(-42), b"-42");
/// ```
#[derive(Debug)]
pub struct Digits([u8; 20]);

impl Digits {
    #[inline]
    pub fn new() -> Digits {
        Digits([0; 20])
    }

    /// The decimal text of `value`.
    #[inline]
    pub fn of(&mut self, value: i64) -> &[u8] {
        let start = fill_backwards(&mut self.0, value);
        &self.0[start..]
    }
}

/// Writes the decimal text of `value` to the end of `room`, which is long enough; returns where it begins.
#[inline]
fn fill_backwards(room: &mut [u8], value: i64) -> usize {
    let mut rest = value.unsigned_abs();
    let mut at = room.len();
    while rest >= 100 {
        at -= 2;
        room[at..at + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    if rest >= 10 {
        at -= 2;
        room[at..at + 2].copy_from_slice(&PAIRS[rest as usize]);
    } else {
        at -= 1;
        room[at] = b'0' + rest as u8;
    }
    if value < 0 {
        at -= 1;
        room[at] = b'-';
    }
    at
}

impl Default for Digits {
    fn default() -> Digits {
        Digits::new()
    }
}
