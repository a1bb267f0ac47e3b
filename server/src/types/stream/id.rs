//! `StreamId`: the name of a stream's entry, a time in milliseconds and a number within it. Knows no stream.

use std::fmt;

/// `<ms>-<seq>`; ordered by both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The least greater one.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The greatest lesser one.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    pub fn is_zero(self) -> bool {
        self == Self::MIN
    }

    /// Sixteen bytes that are ordered as IDs are.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub fn of_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { ms: (both >> 64) as u64, seq: both as u64 }
    }

    /// Its text, written into `text`.
    pub fn write(self, text: &mut IdText) -> &[u8] {
        let mut n = 0;
        let mut digits = itoa::Buffer::new();
        for (number, separator) in [(self.ms, &b"-"[..]), (self.seq, b"")] {
            for part in [digits.format(number).as_bytes(), separator] {
                text.0[n..n + part.len()].copy_from_slice(part);
                n += part.len();
            }
        }
        &text.0[..n]
    }
}

/// Room for the text of an ID.
pub struct IdText([u8; 41]);

impl IdText {
    pub const fn new() -> Self {
        Self([0; 41])
    }
}

impl Default for IdText {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_wrap_the_sequence() {
        let end_of_one = StreamId::new(1, u64::MAX);
        assert_eq!(end_of_one.next(), Some(StreamId::new(2, 0)));
        assert_eq!(StreamId::new(2, 0).previous(), Some(end_of_one));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
        assert_eq!(StreamId::MAX.write(&mut IdText::new()), b"18446744073709551615-18446744073709551615");
        assert_eq!(StreamId::of_bytes(end_of_one.to_bytes()), end_of_one);
    }
}
