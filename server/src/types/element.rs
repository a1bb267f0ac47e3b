//! One element of a collection, and how a packed buffer stores it.
//!
//! An element is bytes; bytes that read as a canonical decimal i64 ("12", "-7", not "+1", "007" or "-0") are
//! the same element as that integer. A packed buffer and an intset store such an element as an integer, a hash
//! table stores its bytes. `Element` is what every collection lends to its reader: no copy, no allocation.
//!
//! The entry layout is Redis's listpack entry (the public listpack specification), so that the byte thresholds
//! of `list-max-listpack-size` fall on the same element and DUMP needs no second encoding:
//!
//! ```text
//! | head (1..=9 bytes, may hold a whole integer) | body (a string's bytes) | backlen (1..=5 bytes) |
//!   0xxxxxxx                 7-bit unsigned integer
//!   10xxxxxx                 string, 6-bit length
//!   110xxxxx xxxxxxxx        13-bit signed integer
//!   1110xxxx xxxxxxxx        string, 12-bit length
//!   11110000 + 4 bytes LE    string, 32-bit length
//!   11110001..11110100       integer of 2, 3, 4 or 8 bytes LE
//! ```
//!
//! Invariant: each element has exactly one encoding (the shortest), so two elements are equal exactly when their
//! heads and bodies are.

use std::hash::{Hash, Hasher};

use skerry_resp::parse_i64;

const STRING_32: u8 = 0b1111_0000;
const INTEGER_16: u8 = 0b1111_0001;
const INTEGER_24: u8 = 0b1111_0010;
const INTEGER_32: u8 = 0b1111_0011;
const INTEGER_64: u8 = 0b1111_0100;
/// The longest head: the tag and eight bytes of an integer.
const HEAD_MAX_BYTES: usize = 9;

/// Room for the decimal digits of an integer element; see [`Element::as_bytes`].
pub type Digits = itoa::Buffer;

/// An element lent by a collection.
///
/// `==` compares representations: make both sides canonical ([`Element::canonical`]) where one may come from a
/// hash table, which lends integers as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Element<'a> {
    /// The canonical form of `bytes`: an integer if they are its canonical decimal text.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Self {
        match parse_i64(bytes) {
            Some(integer) => Element::Integer(integer),
            None => Element::Bytes(bytes),
        }
    }

    /// This element with integers told as integers, whatever collection lent it.
    #[inline]
    pub fn canonical(self) -> Self {
        match self {
            Element::Bytes(bytes) => Element::of(bytes),
            Element::Integer(_) => self,
        }
    }

    /// The element's bytes; an integer is written into `digits`.
    #[inline]
    pub fn as_bytes<'b>(&'b self, digits: &'b mut Digits) -> &'b [u8] {
        match self {
            Element::Bytes(bytes) => bytes,
            Element::Integer(integer) => digits.format(*integer).as_bytes(),
        }
    }

    /// The length of the element's bytes (STRLEN of it, so to say).
    pub fn n_bytes(&self) -> usize {
        match self {
            Element::Bytes(bytes) => bytes.len(),
            Element::Integer(integer) => Digits::new().format(*integer).len(),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.as_bytes(&mut Digits::new()).to_vec()
    }
}

impl Hash for Element<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Element::Bytes(bytes) => bytes.hash(state),
            Element::Integer(integer) => integer.hash(state),
        }
    }
}

/// An element ready to be stored or looked for: its head, and the body the head announces.
#[derive(Clone, Copy)]
pub struct Encoded<'a> {
    head: [u8; HEAD_MAX_BYTES],
    n_head: u8,
    body: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::new(Element::of(bytes))
    }

    /// `element` must be canonical, or equal elements would get different encodings.
    #[inline]
    pub fn new(element: Element<'a>) -> Self {
        match element {
            Element::Bytes(bytes) => Self::string(bytes),
            Element::Integer(integer) => Self::integer(integer),
        }
    }

    #[inline]
    fn string(body: &'a [u8]) -> Self {
        debug_assert!(parse_i64(body).is_none());
        let mut head = [0; HEAD_MAX_BYTES];
        let n_head = match body.len() {
            n @ 0..=63 => {
                head[0] = 0b1000_0000 | n as u8;
                1
            }
            n @ 64..=4095 => {
                head[0] = 0b1110_0000 | (n >> 8) as u8;
                head[1] = n as u8;
                2
            }
            n => {
                let n = u32::try_from(n).expect("an element is at most 512 MiB");
                head[0] = STRING_32;
                head[1..5].copy_from_slice(&n.to_le_bytes());
                5
            }
        };
        Self { head, n_head, body }
    }

    #[inline]
    fn integer(integer: i64) -> Self {
        let mut head = [0; HEAD_MAX_BYTES];
        let bytes = integer.to_le_bytes();
        let mut tagged = |tag: u8, n: usize| {
            head[0] = tag;
            head[1..=n].copy_from_slice(&bytes[..n]);
            1 + n as u8
        };
        let n_head = match integer {
            0..=127 => tagged(integer as u8, 0),
            -4096..=4095 => {
                head[0] = 0b1100_0000 | (bytes[1] & 0b1_1111);
                head[1] = bytes[0];
                2
            }
            -0x8000..=0x7fff => tagged(INTEGER_16, 2),
            -0x80_0000..=0x7f_ffff => tagged(INTEGER_24, 3),
            -0x8000_0000..=0x7fff_ffff => tagged(INTEGER_32, 4),
            _ => tagged(INTEGER_64, 8),
        };
        Self { head, n_head, body: &[] }
    }

    #[inline]
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.n_head)]
    }

    #[inline]
    pub(super) fn body(&self) -> &[u8] {
        self.body
    }

    /// The bytes behind the body, and how many of them count.
    #[inline]
    pub(super) fn backlen(&self) -> ([u8; 5], usize) {
        backlen(self.n_forward())
    }

    /// Head and body, without the backlen.
    #[inline]
    fn n_forward(&self) -> usize {
        usize::from(self.n_head) + self.body.len()
    }

    /// The whole entry's length in a buffer.
    #[inline]
    pub fn n_entry(&self) -> usize {
        let n_forward = self.n_forward();
        n_forward + n_backlen(n_forward)
    }

    /// Whether the entry at the start of `bytes` is this element.
    #[inline]
    pub fn is_at(&self, bytes: &[u8]) -> bool {
        let n_head = usize::from(self.n_head);
        bytes[0] == self.head[0]
            && bytes.get(1..n_head).is_some_and(|head| head == &self.head[1..n_head])
            && bytes.get(n_head..n_head + self.body.len()).is_some_and(|body| body == self.body)
    }

    /// The first eight bytes of head and body, and how many of them there are: one word to compare.
    #[inline]
    fn start(&self) -> ([u8; 8], usize) {
        let mut start = [0; 8];
        let n_head = usize::from(self.n_head).min(8);
        let n_body = self.body.len().min(8 - n_head);
        start[..n_head].copy_from_slice(&self.head[..n_head]);
        start[n_head..n_head + n_body].copy_from_slice(&self.body[..n_body]);
        (start, n_head + n_body)
    }

    /// What a walk compares first. Elements of one collection tend to begin alike and to differ in the end.
    #[inline]
    pub fn probe(&self) -> Probe {
        let n = self.n_forward();
        let (start, n_start) = self.start();
        let tail = self.body.last_chunk::<8>();
        match tail {
            Some(tail) => Probe { word: u64::from_le_bytes(*tail), mask: u64::MAX, offset: n - 8 },
            None => {
                let mask = if n_start == 8 { u64::MAX } else { (1 << (8 * n_start)) - 1 };
                Probe { word: u64::from_le_bytes(start), mask, offset: 0 }
            }
        }
    }

    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let (backlen, n) = backlen(self.n_forward());
        out.extend_from_slice(self.head());
        out.extend_from_slice(self.body);
        out.extend_from_slice(&backlen[..n]);
    }

    /// Writes the entry over `out`, which is [`Encoded::n_entry`] bytes long.
    #[inline]
    pub fn write_to(&self, out: &mut [u8]) {
        let (backlen, n) = backlen(self.n_forward());
        let (head, rest) = out.split_at_mut(usize::from(self.n_head));
        let (body, tail) = rest.split_at_mut(self.body.len());
        head.copy_from_slice(self.head());
        body.copy_from_slice(self.body);
        tail.copy_from_slice(&backlen[..n]);
    }
}

/// Eight bytes, or fewer where the mask says so, at an offset of an entry: a word's comparison that spares most
/// calls of [`Encoded::is_at`].
#[derive(Clone, Copy)]
pub struct Probe {
    word: u64,
    mask: u64,
    offset: usize,
}

impl Probe {
    /// False if the entry at the start of `bytes` is surely not the probe's element.
    #[inline]
    pub fn may_be_at(self, bytes: &[u8]) -> bool {
        match bytes.get(self.offset..).and_then(|bytes| bytes.first_chunk()) {
            Some(word) => u64::from_le_bytes(*word) & self.mask == self.word,
            // Too near the end of the buffer to load a word.
            None => true,
        }
    }
}

/// The element at the start of `bytes`.
#[inline]
pub fn decode(bytes: &[u8]) -> Element<'_> {
    match bytes[0] {
        small @ 0..=0x7f => Element::Integer(i64::from(small)),
        0x80..=0xbf => Element::Bytes(&bytes[1..][..usize::from(bytes[0] & 0x3f)]),
        high @ 0xc0..=0xdf => {
            // The five high bits are moved to the top of an i16 so that the shift back extends the sign.
            let raw = (u16::from(high & 0x1f) << 8) | u16::from(bytes[1]);
            Element::Integer(i64::from((raw << 3) as i16 >> 3))
        }
        high @ 0xe0..=0xef => {
            let n = (usize::from(high & 0x0f) << 8) | usize::from(bytes[1]);
            Element::Bytes(&bytes[2..][..n])
        }
        STRING_32 => Element::Bytes(&bytes[5..][..string_32_len(bytes)]),
        INTEGER_16 => Element::Integer(i64::from(i16::from_le_bytes([bytes[1], bytes[2]]))),
        INTEGER_24 => {
            let raw = i32::from_le_bytes([0, bytes[1], bytes[2], bytes[3]]);
            Element::Integer(i64::from(raw >> 8))
        }
        INTEGER_32 => Element::Integer(i64::from(i32::from_le_bytes(array(&bytes[1..])))),
        INTEGER_64 => Element::Integer(i64::from_le_bytes(array(&bytes[1..]))),
        tag => unreachable!("no entry starts with {tag:#x}"),
    }
}

/// The element at the start of bytes that are believed in nothing, and the entry's length; None if no whole, sound entry
/// stands there. Its encoding need not be the shortest.
pub fn decode_untrusted(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let n_head = match *bytes.first()? {
        0..=0xbf => 1,
        0xc0..=0xef => 2,
        STRING_32 => 5,
        INTEGER_16 => 3,
        INTEGER_24 => 4,
        INTEGER_32 => 5,
        INTEGER_64 => 9,
        _ => return None,
    };
    if bytes.len() < n_head {
        return None;
    }
    let n_forward = n_forward_at(bytes);
    let (backlen, n_backlen) = backlen(n_forward);
    let n_entry = n_forward + n_backlen;
    let is_sound = bytes.get(n_forward..n_entry)? == &backlen[..n_backlen];
    is_sound.then(|| (decode(bytes), n_entry))
}

/// The length of head and body of the entry at the start of `bytes`.
#[inline]
pub fn n_forward_at(bytes: &[u8]) -> usize {
    match bytes[0] {
        0..=0x7f => 1,
        short @ 0x80..=0xbf => 1 + usize::from(short & 0x3f),
        0xc0..=0xdf => 2,
        high @ 0xe0..=0xef => 2 + ((usize::from(high & 0x0f) << 8) | usize::from(bytes[1])),
        STRING_32 => 5 + string_32_len(bytes),
        INTEGER_16 => 3,
        INTEGER_24 => 4,
        INTEGER_32 => 5,
        INTEGER_64 => 9,
        tag => unreachable!("no entry starts with {tag:#x}"),
    }
}

/// The whole length of the entry at the start of `bytes`.
#[inline]
pub fn n_entry_at(bytes: &[u8]) -> usize {
    let first = bytes[0];
    // Small integers and short strings have a backlen of one byte: told apart first, they are most of the entries.
    if first < 0x80 {
        2
    } else if first < 0xc0 {
        2 + usize::from(first & 0x3f)
    } else {
        let n_forward = n_forward_at(bytes);
        n_forward + n_backlen(n_forward)
    }
}

/// The whole length of the entry that ends where `bytes` ends.
#[inline]
pub fn n_entry_before(bytes: &[u8]) -> usize {
    let mut n_forward = 0;
    let mut shift = 0;
    for (n, &byte) in bytes.iter().rev().enumerate() {
        n_forward |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return n_forward + n + 1;
        }
        shift += 7;
    }
    unreachable!("a backlen that does not end")
}

/// Lengths from 16383 on take a third byte although 14 bits would hold that one: so the format has it.
#[inline]
fn n_backlen(n_forward: usize) -> usize {
    match n_forward {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// Seven bits a byte, most significant first, bit 7 on all but the first: readable from the right.
#[inline]
fn backlen(n_forward: usize) -> ([u8; 5], usize) {
    let n = n_backlen(n_forward);
    let mut bytes = [0; 5];
    for (i, byte) in bytes[..n].iter_mut().enumerate() {
        let more = if i == 0 { 0 } else { 0x80 };
        *byte = ((n_forward >> (7 * (n - 1 - i))) & 0x7f) as u8 | more;
    }
    (bytes, n)
}

#[inline]
fn string_32_len(bytes: &[u8]) -> usize {
    u32::from_le_bytes(array(&bytes[1..])) as usize
}

#[inline]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("the entry is whole")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_integers_are_those_of_string2ll() {
        for text in ["0", "-1", "127", "128", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(Element::of(text.as_bytes()), Element::Integer(text.parse().unwrap()), "{text}");
        }
        for text in
            ["", "-", "-0", "+1", "01", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "1a"]
        {
            assert_eq!(Element::of(text.as_bytes()), Element::Bytes(text.as_bytes()), "{text}");
        }
        assert_eq!(Element::of(b"99999999999999999999").n_bytes(), 20);
    }

    /// Each boundary of the format, both sides, with the length a listpack gives it.
    #[test]
    fn every_encoding_round_trips_at_its_bounds() {
        let integers = [
            (0, 2),
            (127, 2),
            (-1, 3),
            (128, 3),
            (4095, 3),
            (-4096, 3),
            (4096, 4),
            (-4097, 4),
            (32767, 4),
            (-32768, 4),
            (32768, 5),
            (8_388_607, 5),
            (-8_388_608, 5),
            (8_388_608, 6),
            (2_147_483_647, 6),
            (-2_147_483_648, 6),
            (2_147_483_648, 10),
            (i64::MAX, 10),
            (i64::MIN, 10),
        ];
        for (integer, n_entry) in integers {
            check(Element::Integer(integer), n_entry);
        }
        let strings = [
            (0, 2),
            (63, 65),
            (64, 67),
            (125, 128),
            (126, 130),
            (4095, 4099),
            (4096, 4103),
            (16_377, 16_384),
            (16_378, 16_386),
            (2_097_145, 2_097_153),
            (2_097_146, 2_097_155),
        ];
        for (n, n_entry) in strings {
            check(Element::Bytes(&vec![b'x'; n]), n_entry);
        }
    }

    #[track_caller]
    fn check(element: Element<'_>, n_entry: usize) {
        let encoded = Encoded::new(element);
        let mut bytes = Vec::new();
        encoded.append_to(&mut bytes);
        assert_eq!((bytes.len(), encoded.n_entry()), (n_entry, n_entry), "{:?}", element.n_bytes());
        assert_eq!((n_entry_at(&bytes), n_entry_before(&bytes)), (n_entry, n_entry));
        assert!(decode(&bytes) == element && encoded.is_at(&bytes));
        let mut written = vec![0; n_entry];
        encoded.write_to(&mut written);
        assert!(written == bytes && encoded.probe().may_be_at(&bytes));
        bytes.extend_from_slice(&[0xff; 8]);
        assert!(encoded.probe().may_be_at(&bytes) && encoded.is_at(&bytes));
    }
}
