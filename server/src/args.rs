//! A request's arguments: a borrowed view for random access and a typed cursor for option parsing.
//!
//! Nothing is copied: an argument is a range of the buffer it was parsed from (a client's query buffer or a peer's message).
//! A long request stands in a shared buffer (`source`), and a long argument becomes a value without being copied (`shared`).
//! Knows no command and no key.

use std::ops::Range;

use bytes::Bytes;
use skerry_resp::number;
use skerry_resp::request::ArgRange;

use crate::error::CommandError;

/// One request: `argv[0]` is the command's name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    text: &'a [u8],
    ranges: &'a [ArgRange],
    /// Hash of the argument at `hashed_at` if the dispatcher has computed it already (0 = none: the name is no key).
    hashed_at: u32,
    hash: u64,
    /// The buffer itself, if it is a long one that may be shared.
    source: Option<&'a Bytes>,
}

/// Shorter arguments are copied.
pub const MIN_SHARED_BYTES: usize = 16 * 1024;

/// Whether a part of a buffer is so much of it that it may keep the rest in memory.
const fn may_keep(part_len: usize, len: usize) -> bool {
    part_len > MIN_SHARED_BYTES && part_len >= len - len / 4
}

impl<'a> Args<'a> {
    pub fn new(text: &'a [u8], ranges: &'a [ArgRange]) -> Self {
        Self { text, ranges, hashed_at: 0, hash: 0, source: None }
    }

    /// Arguments in a buffer that may be shared.
    pub fn in_shared(source: &'a Bytes, ranges: &'a [ArgRange]) -> Self {
        Self { text: source, ranges, hashed_at: 0, hash: 0, source: Some(source) }
    }

    /// Argument `index` without a copy, if it is a long one and nearly all of a buffer that may be shared.
    #[inline]
    pub fn shared(&self, index: usize) -> Option<Bytes> {
        let range = self.ranges[index];
        let source = self.source?;
        may_keep(range.len(), source.len()).then(|| source.slice(range.start as usize..range.end as usize))
    }

    /// The buffer that all of them stand in, if it may be shared and holds little else.
    #[inline]
    pub fn shared_source(&self) -> Option<&'a Bytes> {
        let source = self.source?;
        may_keep(self.ranges.iter().map(ArgRange::len).sum(), source.len()).then_some(source)
    }

    /// The same arguments with the hash of argument `index` known.
    pub fn with_hash(mut self, index: usize, hash: u64) -> Self {
        self.hashed_at = index as u32;
        self.hash = hash;
        self
    }

    /// Other ranges of the same text.
    pub fn with_ranges<'r>(self, ranges: &'r [ArgRange]) -> Args<'r>
    where
        'a: 'r,
    {
        Args::new(self.text, ranges)
    }

    /// The hash of argument `index`, if the dispatcher computed it.
    #[inline]
    pub fn known_hash(&self, index: usize) -> Option<u64> {
        (self.hashed_at as usize == index && index != 0).then_some(self.hash)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Argument `index`; the row's arity has been checked, so an index past the end is a bug.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let range = self.ranges[index];
        &self.text[range.start as usize..range.end as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.from(0)
    }

    /// Arguments from `index` on.
    #[inline]
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let text = self.text;
        let ranges = self.ranges.get(index..).unwrap_or_default();
        ranges.iter().map(move |range| &text[range.start as usize..range.end as usize])
    }

    /// The arguments from `index` on as a request of their own.
    pub fn tail(&self, index: usize) -> Args<'a> {
        Args::new(self.text, &self.ranges[index..])
    }

    /// The first `n` arguments as a request of their own.
    pub fn head(&self, n: usize) -> Args<'a> {
        Args::new(self.text, &self.ranges[..n])
    }

    /// The text from the first argument's start to the last one's end, with what stands between.
    pub fn span(&self) -> &'a [u8] {
        match self.ranges {
            [first, .., last] => &self.text[first.start as usize..last.end as usize],
            [only] => &self.text[only.start as usize..only.end as usize],
            [] => &[],
        }
    }

    pub fn ranges(&self) -> &'a [ArgRange] {
        self.ranges
    }

    /// A cursor that starts at argument `index`.
    pub fn cursor(&self, index: usize) -> Cursor<'a> {
        Cursor { args: *self, at: index }
    }

    /// Argument `index` as an integer, Redis's strictness (no sign, space or zero in front).
    #[inline]
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        number::parse_i64(self.get(index)).ok_or(CommandError::NotInteger)
    }

    /// Argument `index` as a number of things, zero or more.
    pub fn count(&self, index: usize) -> Result<usize, CommandError> {
        let count = number::parse_i64(self.get(index)).and_then(|count| usize::try_from(count).ok());
        count.ok_or(CommandError::NotPositive)
    }

    /// The arguments whose number stands at `index`, before them: of `numkeys key [key ...]`. At least one more stands behind them.
    pub fn counted(&self, index: usize) -> Result<Range<usize>, CommandError> {
        let n = positive(self.get(index), "ERR numkeys should be greater than 0")?;
        let end = n.saturating_add(index + 1);
        if end >= self.len() {
            return Err(CommandError::Syntax);
        }
        Ok(index + 1..end)
    }

    /// Argument `index` as a double (`strtod`, no NaN).
    pub fn float(&self, index: usize) -> Result<f64, CommandError> {
        number::parse_f64(self.get(index)).ok_or(CommandError::NotFloat)
    }
}

/// Arguments kept beyond the buffer they were parsed from.
pub struct KeptArgs {
    text: Bytes,
    ranges: Box<[ArgRange]>,
}

impl KeptArgs {
    /// A copy, unless their buffer may be shared.
    pub fn of(args: Args<'_>) -> Self {
        if let Some(source) = args.shared_source() {
            return Self { text: source.clone(), ranges: args.ranges.into() };
        }
        let mut text = Vec::with_capacity(args.iter().map(<[u8]>::len).sum());
        let mut ranges = Vec::with_capacity(args.len());
        for arg in args.iter() {
            let start = text.len() as u32;
            text.extend_from_slice(arg);
            ranges.push(ArgRange { start, end: text.len() as u32 });
        }
        Self { text: text.into(), ranges: ranges.into() }
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.text, &self.ranges)
    }
}

/// Reads options left to right.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next argument, or a syntax error at the end.
    pub fn value(&mut self) -> Result<&'a [u8], CommandError> {
        self.maybe_next().ok_or(CommandError::Syntax)
    }

    /// The next argument, if there is one.
    pub fn maybe_next(&mut self) -> Option<&'a [u8]> {
        (self.at < self.args.len()).then(|| {
            self.at += 1;
            self.args.get(self.at - 1)
        })
    }

    /// The next argument, not consumed.
    pub fn peek(&self) -> Option<&'a [u8]> {
        (self.at < self.args.len()).then(|| self.args.get(self.at))
    }

    /// Consumes the next argument if it is `word` in any case.
    pub fn word(&mut self, word: &str) -> bool {
        let hit = self.peek().is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        self.at += usize::from(hit);
        hit
    }

    pub fn next_integer(&mut self) -> Result<i64, CommandError> {
        number::parse_i64(self.value()?).ok_or(CommandError::NotInteger)
    }

    /// How many arguments are left.
    pub fn left(&self) -> usize {
        self.args.len() - self.at
    }

    /// Index of the next argument.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn is_done(&self) -> bool {
        self.left() == 0
    }

    /// A syntax error unless everything was read.
    pub fn finish(&self) -> Result<(), CommandError> {
        if self.is_done() { Ok(()) } else { Err(CommandError::Syntax) }
    }
}

/// A number from 0 on, or the error `otherwise`.
pub fn natural(text: &[u8], otherwise: &'static str) -> Result<usize, CommandError> {
    let number = number::parse_i64(text).and_then(|number| usize::try_from(number).ok());
    number.ok_or(CommandError::text(otherwise))
}

/// A number from 1 on, or the error `otherwise`.
pub fn positive(text: &[u8], otherwise: &'static str) -> Result<usize, CommandError> {
    match natural(text, otherwise)? {
        0 => Err(CommandError::text(otherwise)),
        number => Ok(number),
    }
}

/// Whether `arg` is `word` in any case.
#[inline]
pub fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
