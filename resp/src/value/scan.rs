//! Finds the end of a reply without building it, for a client that must be faster than its server.
//!
//! One counter does for any nesting: an aggregate of `n` elements takes one element away and adds `n`. So there is no
//! stack to overflow, and a reply that comes in pieces is scanned once. Bodies are skipped, not looked at; scalar
//! lines are not validated (`Decoder` does).

use super::DecodeError;
use crate::number::parse_i64;
use memchr::memchr;

/// The progress of a scan over one reply.
///
/// ```
/// use skerry_resp::value::{Scan, Scanned};
/// let mut scan = Scan::new();
/// assert_eq!(scan.next(b"*2\r\n:1\r\n", 0), Ok(None));
/// assert_eq!(scan.next(b"*2\r\n:1\r\n+a\r\n", 0), Ok(Some(Scanned { end: 12, kind: b'*', is_null: false })));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Values still to come until the reply is complete.
    missing: u64,
    /// How far the scan came, from the reply's first byte.
    at: usize,
    /// The type byte of the reply itself, attributes left out; 0 until it is seen.
    kind: u8,
    is_null: bool,
}

/// A complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The next reply begins here.
    pub end: usize,
    /// Its type byte, attributes left out.
    pub kind: u8,
    /// `$-1`, `*-1` or `_`.
    pub is_null: bool,
}

impl Scanned {
    #[inline]
    pub fn is_error(&self) -> bool {
        matches!(self.kind, b'-' | b'!')
    }

    /// A message that answers no request.
    #[inline]
    pub fn is_push(&self) -> bool {
        self.kind == b'>'
    }
}

impl Default for Scan {
    fn default() -> Scan {
        Scan::new()
    }
}

/// A length line or scalar longer than this is no reply of ours.
const MAX_LINE: usize = 1 << 20;

impl Scan {
    pub const fn new() -> Scan {
        Scan { missing: 1, at: 0, kind: 0, is_null: false }
    }

    /// Goes on with the reply that begins at `buf[pos]`; `None`: feed more behind it and call again. After a complete
    /// reply the scan is as new.
    #[inline]
    pub fn next(&mut self, buf: &[u8], pos: usize) -> Result<Option<Scanned>, DecodeError> {
        if self.at == 0
            && let Some(scanned) = common(buf, pos)
        {
            return Ok(Some(scanned));
        }
        self.go_on(buf, pos)
    }

    fn go_on(&mut self, buf: &[u8], pos: usize) -> Result<Option<Scanned>, DecodeError> {
        while self.missing > 0 {
            if self.kind != 0
                && let Some(inner) = common(buf, pos + self.at)
            {
                self.at = inner.end - pos;
                self.missing -= 1;
                continue;
            }
            let Some(rest) = buf.get(pos + self.at..) else { return Ok(None) };
            let Some(element) = element(rest)? else { return Ok(None) };
            if self.missing == 1 && self.kind == 0 && element.kind != b'|' {
                self.kind = element.kind;
                self.is_null = element.is_null;
            }
            self.at += element.len;
            self.missing = (self.missing - 1).checked_add(element.follow).ok_or(DecodeError::TooLarge)?;
        }
        let scanned = Scanned { end: pos + self.at, kind: self.kind, is_null: self.is_null };
        *self = Scan::new();
        Ok(Some(scanned))
    }
}

/// The replies that a load generator sees most: `+OK`, short bulks, short integers.
#[inline]
fn common(buf: &[u8], pos: usize) -> Option<Scanned> {
    let head = buf.get(pos..)?.first_chunk::<5>()?;
    let kind = head[0];
    let end = match head {
        [b'+', b'O', b'K', b'\r', _] => pos + 5,
        [b':', _, b'\r', _, _] => pos + 4,
        [b'$', _, b'\r', _, _] => pos + 6 + digits(&head[1..2])?,
        [b'$', _, _, b'\r', _] => pos + 7 + digits(&head[1..3])?,
        [b'$', _, _, _, b'\r'] => pos + 8 + digits(&head[1..4])?,
        _ => return None,
    };
    (end <= buf.len()).then_some(Scanned { end, kind, is_null: false })
}

#[inline]
fn digits(text: &[u8]) -> Option<usize> {
    text.iter().try_fold(0, |sum, byte| match byte {
        b'0'..=b'9' => Some(sum * 10 + usize::from(byte - b'0')),
        _ => None,
    })
}

/// One line, with its body if it announces one.
struct Element {
    kind: u8,
    is_null: bool,
    len: usize,
    /// Values that belong to it and come behind it.
    follow: u64,
}

fn element(rest: &[u8]) -> Result<Option<Element>, DecodeError> {
    let Some(&kind) = rest.first() else { return Ok(None) };
    let window = &rest[..rest.len().min(MAX_LINE)];
    let Some(cr) = memchr(b'\r', window) else {
        return if window.len() == MAX_LINE { Err(DecodeError::LineTooLong) } else { Ok(None) };
    };
    let line_len = cr + 2;
    if line_len > rest.len() {
        return Ok(None);
    }
    let text = &rest[1.min(cr)..cr];
    let mut element = Element { kind, is_null: kind == b'_', len: line_len, follow: 0 };
    match kind {
        b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => {}
        b'$' | b'*' if text == b"-1" => element.is_null = true,
        b'$' | b'!' | b'=' => {
            let body_len = length(text)?.checked_add(2).ok_or(DecodeError::TooLarge)?;
            if body_len > (rest.len() - line_len) as u64 {
                return Ok(None);
            }
            element.len += body_len as usize;
        }
        b'*' | b'~' | b'>' => element.follow = length(text)?,
        b'%' => element.follow = length(text)?.checked_mul(2).ok_or(DecodeError::TooLarge)?,
        b'|' => {
            let n = length(text)?;
            element.follow = n.checked_mul(2).and_then(|n| n.checked_add(1)).ok_or(DecodeError::TooLarge)?;
        }
        byte => return Err(DecodeError::UnknownType { byte }),
    }
    Ok(Some(element))
}

fn length(text: &[u8]) -> Result<u64, DecodeError> {
    parse_i64(text).and_then(|length| u64::try_from(length).ok()).ok_or(DecodeError::InvalidLength)
}
