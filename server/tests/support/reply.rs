//! Replies as a tree, and a strict incremental decoder for RESP2 and RESP3.
//!
//! Kept apart from the server's own wire crate on purpose: a fault that reader and writer share would be invisible.
//! Strict means that whatever Redis never sends is an error here: a length or an integer that is not written the
//! canonical way, a bulk without its CRLF, a CR inside a line, an unknown type byte.

/// One reply; numbers keep their text where the text is part of the contract (doubles, big numbers).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    NullBulk,
    NullArray,
    Null,
    Bool(bool),
    Double(Vec<u8>),
    Big(Vec<u8>),
    BlobError(Vec<u8>),
    Verbatim(Vec<u8>, Vec<u8>),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_) | Reply::BlobError(_))
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Reply::NullBulk | Reply::NullArray | Reply::Null)
    }

    /// The bytes of a string of any kind.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Reply::Simple(t) | Reply::Bulk(t) | Reply::Verbatim(_, t) | Reply::Error(t) => Some(t),
            _ => None,
        }
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Reply::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The elements of an array, set or push; a map's keys and values one after the other.
    pub fn items(&self) -> Option<Vec<Reply>> {
        match self {
            Reply::Array(v) | Reply::Set(v) | Reply::Push(v) => Some(v.clone()),
            Reply::Map(v) => Some(v.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect()),
            _ => None,
        }
    }
}

/// What the bytes at hand amount to.
pub enum Decoded {
    /// A whole reply and the bytes it took.
    Reply(Reply, usize),
    Incomplete,
    Broken(String),
}

/// Decodes one reply at the start of `bytes`.
pub fn decode(bytes: &[u8]) -> Decoded {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.reply(0) {
        Ok(reply) => Decoded::Reply(reply, cursor.at),
        Err(Stop::Incomplete) => Decoded::Incomplete,
        Err(Stop::Broken(why)) => Decoded::Broken(why),
    }
}

/// Redis nests replies a handful of levels deep; more is a broken stream.
const MAX_DEPTH: usize = 64;
const MAX_ELEMENTS: i64 = 1 << 24;

enum Stop {
    Incomplete,
    Broken(String),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if depth > MAX_DEPTH {
            return broken("nested too deep");
        }
        let line = self.line()?;
        let Some((&kind, rest)) = line.split_first() else { return broken("empty line") };
        Ok(match kind {
            b'+' => Reply::Simple(rest.to_vec()),
            b'-' => Reply::Error(rest.to_vec()),
            b':' => Reply::Int(integer(rest)?),
            b'_' if rest.is_empty() => Reply::Null,
            b'#' if rest == b"t" => Reply::Bool(true),
            b'#' if rest == b"f" => Reply::Bool(false),
            b',' => Reply::Double(double(rest)?.to_vec()),
            b'(' => Reply::Big(rest.to_vec()),
            b'$' if rest == b"-1" => Reply::NullBulk,
            b'*' if rest == b"-1" => Reply::NullArray,
            b'$' => Reply::Bulk(self.blob(rest)?),
            b'!' => Reply::BlobError(self.blob(rest)?),
            b'=' => {
                let blob = self.blob(rest)?;
                if blob.len() < 4 || blob[3] != b':' {
                    return broken("verbatim string without its format");
                }
                Reply::Verbatim(blob[..3].to_vec(), blob[4..].to_vec())
            }
            b'*' => Reply::Array(self.elements(rest, depth)?),
            b'~' => Reply::Set(self.elements(rest, depth)?),
            b'>' => Reply::Push(self.elements(rest, depth)?),
            b'%' => {
                let n = length(rest)?;
                let mut pairs = Vec::new();
                for _ in 0..n {
                    pairs.push((self.reply(depth + 1)?, self.reply(depth + 1)?));
                }
                Reply::Map(pairs)
            }
            _ => return broken(&format!("bad line {:?}", String::from_utf8_lossy(&line))),
        })
    }

    fn elements(&mut self, count: &[u8], depth: usize) -> Result<Vec<Reply>, Stop> {
        let n = length(count)?;
        let mut out = Vec::new();
        for _ in 0..n {
            out.push(self.reply(depth + 1)?);
        }
        Ok(out)
    }

    fn blob(&mut self, count: &[u8]) -> Result<Vec<u8>, Stop> {
        let n = length(count)? as usize;
        let rest = &self.bytes[self.at..];
        if rest.len() < n + 2 {
            return Err(Stop::Incomplete);
        }
        if &rest[n..n + 2] != b"\r\n" {
            return broken("bulk not ended by CRLF");
        }
        self.at += n + 2;
        Ok(rest[..n].to_vec())
    }

    fn line(&mut self) -> Result<Vec<u8>, Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&b| b == b'\n') else { return Err(Stop::Incomplete) };
        if end == 0 || rest[end - 1] != b'\r' || rest[..end - 1].contains(&b'\r') {
            return broken("line not ended by CRLF");
        }
        self.at += end + 1;
        Ok(rest[..end - 1].to_vec())
    }
}

fn broken<T>(why: &str) -> Result<T, Stop> {
    Err(Stop::Broken(why.to_owned()))
}

fn integer(text: &[u8]) -> Result<i64, Stop> {
    let number = std::str::from_utf8(text).ok().and_then(|t| t.parse::<i64>().ok());
    match number {
        Some(n) if n.to_string().as_bytes() == text => Ok(n),
        _ => broken(&format!("bad integer {:?}", String::from_utf8_lossy(text))),
    }
}

fn length(text: &[u8]) -> Result<i64, Stop> {
    match integer(text)? {
        n @ 0..=MAX_ELEMENTS => Ok(n),
        n => broken(&format!("bad length {n}")),
    }
}

fn double(text: &[u8]) -> Result<&[u8], Stop> {
    let ok = matches!(text, b"inf" | b"-inf" | b"nan")
        || (text.iter().all(|b| b"0123456789+-.e".contains(b))
            && std::str::from_utf8(text).is_ok_and(|t| t.parse::<f64>().is_ok()));
    if ok { Ok(text) } else { broken(&format!("bad double {:?}", String::from_utf8_lossy(text))) }
}
