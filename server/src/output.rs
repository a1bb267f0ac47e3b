//! Long strings in replies: beside the bytes they belong to, not copied into them.
//!
//! ```text
//!   out     | $104857600\r\n | \r\n:1\r\n ...
//!   placed                  ^ at, the string: shared with the keyspace
//! ```
//!
//! A long string is never the last of a reply: its CR LF stands in `out`. So a reply that ends at `len` bytes of `out` owns the
//! strings placed before `len`, and cutting `out` back to `len` drops those at `len` or behind.

use std::collections::VecDeque;

use bytes::Bytes;

/// Strings of this size are shared by the socket; shorter ones are copied, which is cheaper than a write of their own.
pub const MIN_PLACED_BYTES: usize = 64 << 10;

/// A string that belongs behind the first `at` bytes of a buffer.
pub type Placed = (usize, Bytes);

/// The strings of a client's `out`, in order.
#[derive(Default)]
pub struct PlacedStrings {
    strings: VecDeque<Placed>,
    /// Bytes of the first that are written.
    written: usize,
    /// Bytes of all that are not written.
    unwritten: usize,
}

impl PlacedStrings {
    /// Bytes not yet written.
    #[inline]
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    pub fn push(&mut self, at: usize, bytes: Bytes) {
        debug_assert!(!bytes.is_empty() && self.strings.back().is_none_or(|(last, _)| *last < at));
        self.unwritten += bytes.len();
        self.strings.push_back((at, bytes));
    }

    /// What comes next of `out`, of which `out_at` bytes are written.
    pub fn next_piece<'a>(&'a self, out: &'a [u8], out_at: usize) -> &'a [u8] {
        match self.strings.front() {
            None => &out[out_at..],
            Some((at, bytes)) if *at == out_at => &bytes[self.written..],
            Some((at, _)) => &out[out_at..*at],
        }
    }

    /// Notes that `n` bytes of the next piece are written.
    pub fn wrote(&mut self, out_at: &mut usize, n: usize) {
        match self.strings.front() {
            Some((at, bytes)) if *at == *out_at => {
                self.written += n;
                self.unwritten -= n;
                if self.written == bytes.len() {
                    self.written = 0;
                    self.strings.pop_front();
                    // The string's CR LF follows, so the next one's place is another.
                }
            }
            Some(_) | None => *out_at += n,
        }
    }

    /// The first `n` bytes of `out` are dropped; no string is placed in them.
    pub fn shift(&mut self, n: usize) {
        self.strings.iter_mut().for_each(|(at, _)| *at -= n);
    }

    /// `out` is cut back to `len` bytes.
    #[cold]
    pub fn truncate(&mut self, len: usize) {
        while self.strings.back().is_some_and(|(at, _)| *at > len) {
            if let Some((_, bytes)) = self.strings.pop_back() {
                self.unwritten -= bytes.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of any size, in order, strings in their places.
    #[test]
    fn pieces_come_in_order() {
        for step in 1..9 {
            let out = b"$3\r\n\r\n:1\r\n$2\r\n\r\n".to_vec();
            let mut placed = PlacedStrings::default();
            placed.push(4, Bytes::from_static(b"abc"));
            placed.push(14, Bytes::from_static(b"de"));
            placed.push(16, Bytes::from_static(b"cut off"));
            placed.truncate(14);
            let (mut at, mut seen) = (0, Vec::new());
            while at < out.len() {
                let piece = placed.next_piece(&out, at);
                let n = piece.len().min(step);
                seen.extend_from_slice(&piece[..n]);
                placed.wrote(&mut at, n);
            }
            assert_eq!((seen.as_slice(), placed.unwritten()), (&b"$3\r\nabc\r\n:1\r\n$2\r\nde\r\n"[..], 0));
        }
    }
}
