//! Counts replies in a byte stream without decoding them: RESP2 and RESP3, split anywhere.
//!
//! The scanner keeps how many elements the current reply still lacks, never a tree: an aggregate of n only adds n to
//! that number, so nesting needs no stack. Push messages (`>`) are skipped, they answer no request. Streamed
//! aggregates are not part of what Redis sends and count as malformed.
//!
//! Cost: touches headers only; the bytes of a bulk are skipped by arithmetic. No allocation except an error's text.

/// What the generator needs to know of one whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Value,
    /// A null bulk, null array or RESP3 null at top level: a miss.
    Null,
    /// An error at top level or anywhere inside.
    Error,
}

/// The stream does not speak RESP; nothing after this point can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub byte: u8,
}

#[derive(Clone, Copy, Debug)]
enum Expect {
    Type,
    /// Rest of a line whose text does not matter.
    Line,
    /// Rest of an error line; its text is kept.
    ErrorLine,
    /// Rest of a length line opened by this type byte.
    Length {
        kind: u8,
        value: i64,
        negative: bool,
    },
    /// Rest of a bulk and its CRLF.
    Bulk {
        n_bytes_left: usize,
    },
}

/// The longest error text kept for the report.
const MAX_ERROR_TEXT: usize = 256;

/// State of one connection's reply stream.
#[derive(Clone, Debug)]
pub struct ReplyScanner {
    expect: Expect,
    n_elements_left: u64,
    is_push: bool,
    in_aggregate: bool,
    outcome: Reply,
    error_text: Vec<u8>,
}

impl Default for ReplyScanner {
    fn default() -> Self {
        Self {
            expect: Expect::Type,
            n_elements_left: 1,
            is_push: false,
            in_aggregate: false,
            outcome: Reply::Value,
            error_text: Vec::new(),
        }
    }
}

impl ReplyScanner {
    pub fn new() -> Self {
        Self::default()
    }

    /// Text of the latest error reply, without the leading `-`, cut at 256 bytes.
    pub fn error_text(&self) -> &[u8] {
        &self.error_text
    }

    /// Scans on from `*at` to the end of the next reply, or to the end of `bytes` if it is not complete.
    #[inline]
    pub fn next_reply(&mut self, bytes: &[u8], at: &mut usize) -> Result<Option<Reply>, Malformed> {
        while *at < bytes.len() {
            let element_is_whole = match self.expect {
                Expect::Type => {
                    let kind = bytes[*at];
                    *at += 1;
                    self.open(kind)?;
                    false
                }
                Expect::Line => skip_line(bytes, at),
                Expect::ErrorLine => self.keep_line(bytes, at),
                Expect::Length { .. } => self.length(bytes, at)?,
                Expect::Bulk { n_bytes_left } => {
                    let n = n_bytes_left.min(bytes.len() - *at);
                    *at += n;
                    self.expect = Expect::Bulk { n_bytes_left: n_bytes_left - n };
                    n == n_bytes_left
                }
            };
            if element_is_whole {
                self.expect = Expect::Type;
                self.n_elements_left -= 1;
                if self.n_elements_left == 0
                    && let Some(reply) = self.finish()
                {
                    return Ok(Some(reply));
                }
            }
        }
        Ok(None)
    }

    fn open(&mut self, kind: u8) -> Result<(), Malformed> {
        self.expect = match kind {
            b'+' | b':' | b',' | b'#' | b'(' => Expect::Line,
            b'_' => {
                self.note_null();
                Expect::Line
            }
            b'-' => {
                self.outcome = Reply::Error;
                self.error_text.clear();
                Expect::ErrorLine
            }
            b'$' | b'*' | b'%' | b'~' | b'>' | b'=' | b'!' | b'|' => {
                Expect::Length { kind, value: 0, negative: false }
            }
            byte => return Err(Malformed { byte }),
        };
        Ok(())
    }

    /// Whether the element is whole: true after a null or an empty aggregate.
    #[inline]
    fn length(&mut self, bytes: &[u8], at: &mut usize) -> Result<bool, Malformed> {
        let Expect::Length { kind, mut value, mut negative } = self.expect else {
            unreachable!("called in state Length only")
        };
        while *at < bytes.len() {
            let c = bytes[*at];
            *at += 1;
            match c {
                b'0'..=b'9' => value = value.saturating_mul(10).saturating_add(i64::from(c - b'0')),
                b'-' => negative = true,
                b'\r' => {}
                b'\n' => {
                    return Ok(self.opened_length(kind, if negative { None } else { Some(value as u64) }));
                }
                byte => return Err(Malformed { byte }),
            }
        }
        self.expect = Expect::Length { kind, value, negative };
        Ok(false)
    }

    fn opened_length(&mut self, kind: u8, length: Option<u64>) -> bool {
        let Some(length) = length else {
            self.note_null();
            return true;
        };
        match kind {
            b'$' | b'=' | b'!' => {
                if kind == b'!' {
                    self.outcome = Reply::Error;
                    self.error_text = b"(bulk error)".to_vec();
                }
                self.expect = Expect::Bulk { n_bytes_left: length as usize + 2 };
                return false;
            }
            // An attribute decorates the element that follows: its pairs come on top of it.
            b'|' => {
                self.n_elements_left += 2 * length;
                self.expect = Expect::Type;
                return false;
            }
            b'%' => self.n_elements_left += 2 * length,
            b'>' => {
                self.is_push = true;
                self.n_elements_left += length;
            }
            _ => self.n_elements_left += length,
        }
        self.in_aggregate = true;
        true
    }

    fn note_null(&mut self) {
        if !self.in_aggregate && self.outcome == Reply::Value {
            self.outcome = Reply::Null;
        }
    }

    /// Ends the current top-level frame; a push is no reply.
    #[inline]
    fn finish(&mut self) -> Option<Reply> {
        let outcome = std::mem::replace(&mut self.outcome, Reply::Value);
        self.n_elements_left = 1;
        self.in_aggregate = false;
        if std::mem::take(&mut self.is_push) { None } else { Some(outcome) }
    }

    fn keep_line(&mut self, bytes: &[u8], at: &mut usize) -> bool {
        while *at < bytes.len() {
            let c = bytes[*at];
            *at += 1;
            match c {
                b'\n' => return true,
                b'\r' => {}
                c if self.error_text.len() < MAX_ERROR_TEXT => self.error_text.push(c),
                _ => {}
            }
        }
        false
    }
}

#[inline]
fn skip_line(bytes: &[u8], at: &mut usize) -> bool {
    while *at < bytes.len() {
        let c = bytes[*at];
        *at += 1;
        if c == b'\n' {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n:12\r\n$5\r\na\r\nbc\r\n$-1\r\n*-1\r\n_\r\n$0\r\n\r\n*0\r\n\
        *3\r\n$1\r\na\r\n$-1\r\n*2\r\n:1\r\n:2\r\n-ERR no such thing\r\n*2\r\n+x\r\n-MOVED 1 a:1\r\n\
        >3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nv\r\n%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n,1.5\r\n~1\r\n#t\r\n\
        |1\r\n+ttl\r\n:3\r\n$1\r\nz\r\n=6\r\ntxt:ab\r\n!5\r\nERR x\r\n(123\r\n*1\r\n$-1\r\n";

    fn expected() -> Vec<Reply> {
        use Reply::{Error, Null, Value};
        let mut all = vec![Value, Value, Value, Null, Null, Null, Value, Value];
        all.extend([Value, Error, Error, Value, Value, Value, Value, Error, Value, Value]);
        all
    }

    fn scan(chunks: &[&[u8]]) -> Vec<Reply> {
        let mut scanner = ReplyScanner::new();
        let mut replies = Vec::new();
        for chunk in chunks {
            let mut at = 0;
            while let Some(reply) = scanner.next_reply(chunk, &mut at).expect("well-formed") {
                replies.push(reply);
            }
            assert_eq!(at, chunk.len());
        }
        replies
    }

    #[test]
    fn every_kind_of_reply_whole() {
        assert_eq!(scan(&[STREAM]), expected());
    }

    #[test]
    fn any_split_counts_alike() {
        for cut in 0..STREAM.len() {
            assert_eq!(scan(&[&STREAM[..cut], &STREAM[cut..]]), expected(), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert_eq!(scan(&bytes), expected());
    }

    #[test]
    fn the_text_of_an_error_is_kept_across_a_split() {
        let mut scanner = ReplyScanner::new();
        assert_eq!(scanner.next_reply(b"-ERR unk", &mut 0), Ok(None));
        assert_eq!(scanner.next_reply(b"nown\r\n", &mut 0), Ok(Some(Reply::Error)));
        assert_eq!(scanner.error_text(), b"ERR unknown");
    }

    #[test]
    fn what_is_not_resp_is_said() {
        assert_eq!(
            ReplyScanner::new().next_reply(b"HTTP/1.1 200\r\n", &mut 0),
            Err(Malformed { byte: b'H' })
        );
        assert_eq!(ReplyScanner::new().next_reply(b"$x\r\n", &mut 0), Err(Malformed { byte: b'x' }));
    }
}
