//! Incremental request parser: bytes in, argument ranges out, nothing copied.
//!
//! ```text
//! buf   ....*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n*1\r\n...
//!           ^pos       [-]         [ ]         [-]    ^end
//!                      args[0]     args[1]     args[2]
//! ```
//!
//! Invariants: a complete request that lies in the buffer is parsed in one pass and leaves no state; a partial one
//! is never parsed twice beyond a small constant (`RESUME_FREE_ARGS` headers, `RESUME_FREE_LINE` bytes of a line),
//! so a request fed byte by byte still costs linear time. Memory held is proportional to bytes received, never to
//! a number the client declared.
//!
//! It must never know a command, a socket or a reply.
//!
//! Source: Redis 8.2.3, probed live, edge by edge (`tests/requests.rs` holds the answers). As there, the two bytes
//! after a bulk and the byte after a header's CR may be anything. Departures:
//! 1. A NUL byte is an ordinary byte. Redis searches lines as C strings and stalls on it.
//! 2. A header or inline line is refused as too big by its own length. Redis measures what has been read so far,
//!    so that a line of 64-80 KB passes or not by the luck of the reads.
//! 3. A request that passes 4 GiB is refused (ranges are 32 bits wide).
//!
//! Cost: see `benches/parse.rs`; a `SET` of three arguments takes some ten nanoseconds.

mod inline;
mod limits;

use crate::number::parse_i64;
use memchr::memchr;

pub use inline::split as split_words;
pub use limits::{Limits, ProtocolError};

/// Where an argument lies in the buffer that was parsed: `buf[start..end]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgRange {
    pub start: u32,
    pub end: u32,
}

impl ArgRange {
    /// The argument's bytes.
    ///
    /// # Panics
    /// When `buf` is not the buffer that the range was parsed from.
    #[inline]
    pub fn of<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        &buf[self.start as usize..self.end as usize]
    }

    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// What `Parser::parse` found at `pos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// `argc` ranges into `buf` were appended; the next request begins at `end`.
    Request { end: usize, argc: usize },
    /// `argc` ranges into `Parser::inline_text` were appended.
    Inline { end: usize, argc: usize },
    /// `*0`, `*-1` or a blank line: asks nothing, gets no reply.
    Empty { end: usize },
    /// At least `needed` more bytes must come; inside a bulk, exactly what is left of it and its CR LF.
    Incomplete { needed: usize },
}

/// A partial request with more arguments than this is remembered; with fewer, its headers are read again.
const RESUME_FREE_ARGS: usize = 16;
/// A partial line longer than this is remembered as searched.
const RESUME_FREE_LINE: usize = 128;
/// The shortest bulk is `$0\r\n\r\n`: what is left of a buffer bounds the arguments in it.
const MIN_BULK_LEN: usize = 6;
/// An inline text buffer larger than this is not kept for the next inline request.
const INLINE_KEEP_LEN: usize = 1024;

/// The parser of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    progress: Option<Box<Progress>>,
    inline_text: Vec<u8>,
}

/// A partial request; every offset counts from the request's first byte, so that the caller may move its buffer.
#[derive(Debug, Default)]
struct Progress {
    /// Arguments not complete yet. 0: the first line itself is incomplete.
    missing: usize,
    /// Where the next unread header begins.
    at: usize,
    /// Bytes from `at` that are known to hold no line end.
    searched: usize,
    args: Vec<ArgRange>,
}

/// How far a run over bulks came.
enum Run {
    Done { at: usize },
    Stopped { at: usize, missing: usize, searched: usize, needed: usize },
}

/// One line `<kind><digits>\r<any>`.
enum Header {
    Number { value: i64, next: usize },
    NotANumber,
    Incomplete { searched: usize },
    TooBig,
}

impl Parser {
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Reads one request. `buf[pos..]` begins at the request's first byte, also when part of it was seen before:
    /// after `Incomplete` the caller adds bytes behind (and may move everything) and calls again. Between, it must
    /// not touch the bytes it has shown. Ranges are appended to `args` for complete requests only.
    ///
    /// After an error the connection is to be closed; the parser is not usable further.
    #[inline]
    pub fn parse(
        &mut self,
        buf: &[u8],
        pos: usize,
        args: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        if self.progress.is_none()
            && buf.len() <= u32::MAX as usize
            && let Some((argc, at)) = short_header(buf, pos, b'*')
            && argc > 0
            && argc as i64 <= limits.unauthenticated_max_args
            && argc as i64 <= limits.max_args
        {
            return self.parse_bulks(buf, pos, at, argc, args, limits);
        }
        self.parse_slowly(buf, pos, args, limits)
    }

    /// The unquoted arguments of the last `Parsed::Inline`; valid until the next `parse`.
    pub fn inline_text(&self) -> &[u8] {
        &self.inline_text
    }

    /// Moves the inline text out, for a caller that needs the parser's owner meanwhile.
    pub fn take_inline_text(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inline_text)
    }

    /// Puts the buffer of `take_inline_text` back, to be used again.
    pub fn return_inline_text(&mut self, text: Vec<u8>) {
        self.inline_text = text;
    }

    /// Heap memory held, for the connection's accounting.
    pub fn heap_bytes(&self) -> usize {
        let partial = self
            .progress
            .as_ref()
            .map_or(0, |progress| size_of::<Progress>() + progress.args.capacity() * size_of::<ArgRange>());
        partial + self.inline_text.capacity()
    }

    /// The path of nearly every request: no state before, and none after unless the request is cut short.
    #[inline]
    fn parse_bulks(
        &mut self,
        buf: &[u8],
        pos: usize,
        at: usize,
        argc: usize,
        args: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        let base = args.len();
        match run_bulks(buf, at, argc, args, limits) {
            Ok(Run::Done { at }) => Ok(Parsed::Request { end: at, argc }),
            Err(error) => {
                args.truncate(base);
                Err(error)
            }
            Ok(Run::Stopped { at, missing, searched, needed }) => {
                if argc - missing > RESUME_FREE_ARGS || searched > RESUME_FREE_LINE {
                    let shift = pos as u32;
                    let seen = args[base..].iter().map(|arg| arg.shifted_back(shift)).collect();
                    self.progress = Some(Box::new(Progress { missing, at: at - pos, searched, args: seen }));
                }
                args.truncate(base);
                Ok(Parsed::Incomplete { needed })
            }
        }
    }

    /// Everything else: inline requests, odd first lines, errors, and partial requests that go on.
    #[cold]
    #[inline(never)]
    fn parse_slowly(
        &mut self,
        buf: &[u8],
        pos: usize,
        args: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        if buf.len() > u32::MAX as usize {
            return Err(ProtocolError::TooBigRequest);
        }
        let searched = match self.progress.take() {
            Some(progress) if progress.missing > 0 => return self.resume(progress, buf, pos, args, limits),
            Some(progress) => progress.searched,
            None => 0,
        };
        match buf.get(pos) {
            None => return Ok(Parsed::Incomplete { needed: 1 }),
            Some(b'*') => {}
            Some(_) => return self.parse_inline(buf, pos, searched, args, limits),
        }
        match header(buf, pos, searched, limits.max_inline) {
            Header::Incomplete { searched } => Ok(self.wait_for_first_line(searched)),
            Header::TooBig => Err(ProtocolError::TooBigMultibulkCount),
            Header::Number { value, .. } if value > limits.max_args => {
                Err(ProtocolError::InvalidMultibulkLength)
            }
            Header::NotANumber => Err(ProtocolError::InvalidMultibulkLength),
            Header::Number { value, .. } if value > limits.unauthenticated_max_args => {
                Err(ProtocolError::UnauthenticatedMultibulkLength)
            }
            Header::Number { value, next } if value <= 0 => Ok(Parsed::Empty { end: next }),
            Header::Number { value, next } => self.parse_bulks(buf, pos, next, value as usize, args, limits),
        }
    }

    /// Goes on with a partial request that was worth remembering.
    fn resume(
        &mut self,
        mut progress: Box<Progress>,
        buf: &[u8],
        pos: usize,
        args: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        let request = &buf[pos..];
        if progress.searched > 0 {
            // Only a long line without an end comes here: look for its end before reading it as a header.
            let from = progress.at + progress.searched;
            let line = &request[progress.at..];
            if memchr(b'\r', &request[from.min(request.len())..]).is_none() && line.len() <= limits.max_inline
            {
                progress.searched = line.len();
                self.progress = Some(progress);
                return Ok(Parsed::Incomplete { needed: 1 });
            }
        }
        match run_bulks(request, progress.at, progress.missing, &mut progress.args, limits)? {
            Run::Done { at } => {
                args.extend(progress.args.iter().map(|arg| arg.shifted_on(pos as u32)));
                Ok(Parsed::Request { end: pos + at, argc: progress.args.len() })
            }
            Run::Stopped { at, missing, searched, needed } => {
                progress.at = at;
                progress.missing = missing;
                progress.searched = searched;
                self.progress = Some(progress);
                Ok(Parsed::Incomplete { needed })
            }
        }
    }

    fn parse_inline(
        &mut self,
        buf: &[u8],
        pos: usize,
        searched: usize,
        args: &mut Vec<ArgRange>,
        limits: &Limits,
    ) -> Result<Parsed, ProtocolError> {
        let rest = &buf[pos..];
        let window = &rest[..rest.len().min(limits.max_inline + 1)];
        let Some(found) = memchr(b'\n', &window[searched.min(window.len())..]) else {
            if rest.len() > limits.max_inline {
                return Err(ProtocolError::TooBigInline);
            }
            return Ok(self.wait_for_first_line(rest.len()));
        };
        let newline = searched + found;
        let line = &rest[..newline];
        self.inline_text.clear();
        if self.inline_text.capacity() > INLINE_KEEP_LEN {
            self.inline_text = Vec::new();
        }
        let base = args.len();
        if inline::split(line, &mut self.inline_text, args).is_none() {
            args.truncate(base);
            return Err(ProtocolError::UnbalancedQuotes);
        }
        let end = pos + newline + 1;
        match args.len() - base {
            0 => Ok(Parsed::Empty { end }),
            argc => Ok(Parsed::Inline { end, argc }),
        }
    }

    fn wait_for_first_line(&mut self, searched: usize) -> Parsed {
        if searched > RESUME_FREE_LINE {
            self.progress = Some(Box::new(Progress { searched, ..Progress::default() }));
        }
        Parsed::Incomplete { needed: 1 }
    }
}

impl ArgRange {
    fn shifted_back(self, by: u32) -> ArgRange {
        ArgRange { start: self.start - by, end: self.end - by }
    }

    fn shifted_on(self, by: u32) -> ArgRange {
        ArgRange { start: self.start + by, end: self.end + by }
    }
}

/// Reads `missing` bulks from `at` on and pushes their ranges.
#[inline]
fn run_bulks(
    buf: &[u8],
    mut at: usize,
    missing: usize,
    args: &mut Vec<ArgRange>,
    limits: &Limits,
) -> Result<Run, ProtocolError> {
    if args.capacity() - args.len() < missing {
        args.reserve(missing.min(buf.len().saturating_sub(at) / MIN_BULK_LEN + 1));
    }
    let max_len = limits.max_bulk_len.min(limits.unauthenticated_max_bulk_len);
    for done in 0..missing {
        let (len, start) = match short_header(buf, at, b'$') {
            Some((len, start)) if len as u64 <= max_len => (len, start),
            _ => match bulk_header(buf, at, limits)? {
                Ok(header) => header,
                Err(searched) => {
                    return Ok(Run::Stopped { at, missing: missing - done, searched, needed: 1 });
                }
            },
        };
        let end = start + len;
        if end + 2 > buf.len() {
            let needed = end + 2 - buf.len();
            return Ok(Run::Stopped { at, missing: missing - done, searched: 0, needed });
        }
        args.push(ArgRange { start: start as u32, end: end as u32 });
        at = end + 2;
    }
    Ok(Run::Done { at })
}

/// A bulk's header by the book: `Ok((len, start of the body))`, or `Err(bytes searched)` when it is incomplete.
#[cold]
#[inline(never)]
fn bulk_header(
    buf: &[u8],
    at: usize,
    limits: &Limits,
) -> Result<Result<(usize, usize), usize>, ProtocolError> {
    match header(buf, at, 0, limits.max_inline) {
        Header::Incomplete { searched } => Ok(Err(searched)),
        Header::TooBig => Err(ProtocolError::TooBigBulkCount),
        Header::Number { .. } | Header::NotANumber if buf[at] != b'$' => {
            Err(ProtocolError::ExpectedDollar { got: buf[at] })
        }
        Header::NotANumber => Err(ProtocolError::InvalidBulkLength),
        Header::Number { value, next } => {
            let len = u64::try_from(value).map_err(|_| ProtocolError::InvalidBulkLength)?;
            if len > limits.max_bulk_len {
                return Err(ProtocolError::InvalidBulkLength);
            }
            if len > limits.unauthenticated_max_bulk_len {
                return Err(ProtocolError::UnauthenticatedBulkLength);
            }
            if len > u64::from(u32::MAX) {
                return Err(ProtocolError::TooBigRequest);
            }
            Ok(Ok((len as usize, next)))
        }
    }
}

/// `<kind>` and one to three digits without a leading zero, then CR and any byte: `(number, next)`.
///
/// Branches beat arithmetic here: lengths repeat, so they are predicted, and the next header's address does not
/// wait for a chain of multiplications.
#[inline(always)]
fn short_header(buf: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let line = buf.get(at..)?.first_chunk::<MIN_BULK_LEN>()?;
    if line[0] != kind {
        return None;
    }
    let first = usize::from(line[1].wrapping_sub(b'0'));
    if line[2] == b'\r' {
        return (first <= 9).then_some((first, at + 4));
    }
    let second = usize::from(line[2].wrapping_sub(b'0'));
    if first == 0 || first > 9 || second > 9 {
        return None;
    }
    if line[3] == b'\r' {
        return Some((first * 10 + second, at + 5));
    }
    let third = usize::from(line[3].wrapping_sub(b'0'));
    if third > 9 || line[4] != b'\r' {
        return None;
    }
    Some((first * 100 + second * 10 + third, at + 6))
}

/// Reads the line that begins at `at`, whose first `searched` bytes hold no CR. The first byte is not looked at.
fn header(buf: &[u8], at: usize, searched: usize, max_line: usize) -> Header {
    let rest = &buf[at.min(buf.len())..];
    let window = &rest[..rest.len().min(max_line + 1)];
    let from = searched.min(window.len());
    let Some(found) = memchr(b'\r', &window[from..]) else {
        if rest.len() > max_line {
            return Header::TooBig;
        }
        return Header::Incomplete { searched: rest.len() };
    };
    let cr = from + found;
    if cr + 2 > rest.len() {
        return Header::Incomplete { searched: cr };
    }
    match rest.get(1..cr).and_then(parse_i64) {
        Some(value) => Header::Number { value, next: at + cr + 2 },
        None => Header::NotANumber,
    }
}
