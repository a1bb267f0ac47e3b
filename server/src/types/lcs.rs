//! The longest common subsequence of two strings, 64 cells of the table at a time and in slices.
//!
//! Of the table of lengths L(i, j) only the differences along a row are kept, a bit each: L(i, j) - L(i, j-1) is 0 or 1, and a
//! row of such bits follows from the one above by an addition (Hyyro, "Bit-parallel LCS-length computation revisited", 2004).
//!
//! ```text
//!   row i   v = (v + (v & m)) | (v & !m)      m: where b holds a[i-1];  a clear bit j-1 of v: L(i, j) = L(i, j-1) + 1
//! ```
//!
//! The way back is Redis's, cell by cell: equal bytes belong to the result; else it goes up if L(i-1, j) > L(i, j-1), and left if
//! not. As L(i, j) is the greater of the two where the bytes differ, that is just whether the bit of (i, j) is clear: one bit a
//! cell is enough for the same result, where Redis keeps four bytes.
//!
//! Cost: for strings of n and m bytes n * m / 64 steps of a nanosecond; memory n * m / 8 bytes if more than the length is wanted,
//! and as much for the positions of b's bytes. The caller bounds n * m.

use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    Length,
    Text,
    Ranges,
}

/// A stretch of both strings that is equal; offsets of its first and last bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    pub a: (usize, usize),
    pub b: (usize, usize),
}

impl Match {
    pub fn n_bytes(&self) -> usize {
        self.a.1 - self.a.0 + 1
    }
}

/// A search under way.
pub struct Lcs {
    a: Bytes,
    b: Bytes,
    wanted: Wanted,
    /// Which of the masks is a byte's.
    mask_of: [u16; 256],
    /// Where b holds each of the bytes that matter.
    masks: Vec<u64>,
    row: Vec<u64>,
    /// All rows, if there is a way back to go.
    rows: Vec<u8>,
    phase: Phase,
    length: usize,
    text: Vec<u8>,
    matches: Vec<Match>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next byte of b whose place is to be noted.
    Masks(usize),
    /// The next row.
    Rows(usize),
    /// The cell that is looked at next, and the match that ends there.
    Back(usize, usize, Option<Match>),
    Done,
}

impl Lcs {
    pub fn new(a: Bytes, b: Bytes, wanted: Wanted) -> Lcs {
        let n_words = b.len().div_ceil(64);
        let (mut mask_of, mut n_masks) = ([0; 256], 0);
        if a.len() < 256 {
            // Mask 0 is of no byte.
            for &byte in &a {
                if mask_of[usize::from(byte)] == 0 {
                    n_masks += 1;
                    mask_of[usize::from(byte)] = n_masks;
                }
            }
        } else {
            n_masks = 256;
            mask_of = std::array::from_fn(|byte| byte as u16 + 1);
        }
        let n_row_bytes = if wanted == Wanted::Length { 0 } else { a.len() * b.len().div_ceil(8) };
        Lcs {
            mask_of,
            masks: vec![0; (usize::from(n_masks) + 1) * n_words],
            row: vec![u64::MAX; n_words],
            rows: vec![0; n_row_bytes],
            phase: Phase::Masks(0),
            length: 0,
            text: Vec::new(),
            matches: Vec::new(),
            a,
            b,
            wanted,
        }
    }

    /// Steps of the whole search, about.
    pub fn n_steps(&self) -> usize {
        let back = if self.wanted == Wanted::Length { 0 } else { self.a.len() + self.b.len() };
        self.b.len() + self.a.len() * Self::row_steps(self.row.len()) + back
    }

    fn row_steps(n_words: usize) -> usize {
        n_words + 2
    }

    /// Goes on for about `budget` steps; whether it is done.
    pub fn advance(&mut self, budget: usize) -> bool {
        let mut left = budget.max(1);
        while left > 0 && self.phase != Phase::Done {
            let spent = match self.phase {
                Phase::Masks(from) => self.note_places(from, left),
                Phase::Rows(from) => self.make_rows(from, left),
                Phase::Back(i, j, open) => self.go_back(i, j, open, left),
                Phase::Done => 0,
            };
            left = left.saturating_sub(spent.max(1));
        }
        self.phase == Phase::Done
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// The subsequence itself.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The equal stretches, the last one first.
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    fn note_places(&mut self, from: usize, budget: usize) -> usize {
        let to = self.b.len().min(from.saturating_add(budget));
        let n_words = self.row.len();
        for (at, &byte) in (from..to).zip(&self.b[from..to]) {
            let mask = usize::from(self.mask_of[usize::from(byte)]);
            self.masks[mask * n_words + at / 64] |= 1 << (at % 64);
        }
        if to == self.b.len() {
            // What no byte of a asks for was noted under the mask of none.
            self.masks[..n_words].fill(0);
            self.phase = Phase::Rows(0);
        } else {
            self.phase = Phase::Masks(to);
        }
        to - from
    }

    fn make_rows(&mut self, from: usize, budget: usize) -> usize {
        let n_words = self.row.len();
        let row_steps = Self::row_steps(n_words);
        let to = self.a.len().min(from + budget.div_ceil(row_steps));
        let row_bytes = self.b.len().div_ceil(8);
        for i in from..to {
            let mask = usize::from(self.mask_of[usize::from(self.a[i])]) * n_words;
            next_row(&mut self.row, &self.masks[mask..mask + n_words]);
            if self.wanted != Wanted::Length {
                keep_row(&self.row, &mut self.rows[i * row_bytes..(i + 1) * row_bytes]);
            }
        }
        self.phase = Phase::Rows(to);
        if to == self.a.len() {
            self.end_rows();
        }
        (to - from) * row_steps
    }

    fn end_rows(&mut self) {
        // Bits beyond the last column are set: they start so, and no mask has them.
        self.length = self.row.iter().map(|word| word.count_zeros() as usize).sum();
        self.phase = match self.wanted {
            Wanted::Length => Phase::Done,
            Wanted::Text => {
                self.text = vec![0; self.length];
                Phase::Back(self.a.len(), self.b.len(), None)
            }
            Wanted::Ranges => Phase::Back(self.a.len(), self.b.len(), None),
        };
        self.masks = Vec::new();
    }

    fn go_back(&mut self, mut i: usize, mut j: usize, mut open: Option<Match>, budget: usize) -> usize {
        let row_bytes = self.b.len().div_ceil(8);
        // In `text`, what is still to come stands in front.
        let mut n_left = self.length - self.n_found(open);
        let mut spent = 0;
        while i > 0 && j > 0 && spent < budget {
            spent += 1;
            if self.a[i - 1] == self.b[j - 1] {
                i -= 1;
                j -= 1;
                n_left -= 1;
                if self.wanted == Wanted::Text {
                    self.text[n_left] = self.a[i];
                }
                open = Some(match open {
                    Some(open) => Match { a: (i, open.a.1), b: (j, open.b.1) },
                    None => Match { a: (i, i), b: (j, j) },
                });
                continue;
            }
            self.close(&mut open);
            let bit = self.rows[(i - 1) * row_bytes + (j - 1) / 8] >> ((j - 1) % 8) & 1;
            if bit == 0 { i -= 1 } else { j -= 1 }
        }
        if i == 0 || j == 0 {
            self.close(&mut open);
            self.rows = Vec::new();
            self.phase = Phase::Done;
        } else {
            self.phase = Phase::Back(i, j, open);
        }
        spent
    }

    fn close(&mut self, open: &mut Option<Match>) {
        self.matches.extend(open.take());
    }

    fn n_found(&self, open: Option<Match>) -> usize {
        self.matches.iter().chain(&open).map(Match::n_bytes).sum()
    }
}

/// The row below, for a byte of a that stands in b where `mask` says.
fn next_row(row: &mut [u64], mask: &[u64]) {
    let mut carry = false;
    for (word, mask) in row.iter_mut().zip(mask) {
        let (sum, over) = word.overflowing_add(*word & mask);
        let (sum, over_by_carry) = sum.overflowing_add(u64::from(carry));
        carry = over | over_by_carry;
        *word = sum | *word & !mask;
    }
}

/// Keeps the row's bytes that hold columns.
fn keep_row(row: &[u64], kept: &mut [u8]) {
    let (words, tail) = kept.as_chunks_mut::<8>();
    words.iter_mut().zip(row).for_each(|(kept, word)| *kept = word.to_le_bytes());
    if let Some(last) = row.last().filter(|_| !tail.is_empty()) {
        tail.copy_from_slice(&last.to_le_bytes()[..tail.len()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plain table, and the way back through it.
    fn plain(a: &[u8], b: &[u8]) -> (usize, Vec<u8>, Vec<Match>) {
        let mut table = vec![vec![0usize; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] = if a[i - 1] == b[j - 1] {
                    table[i - 1][j - 1] + 1
                } else {
                    table[i - 1][j].max(table[i][j - 1])
                };
            }
        }
        let (mut i, mut j, mut text, mut matches) = (a.len(), b.len(), Vec::new(), Vec::<Match>::new());
        let mut is_open = false;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                i -= 1;
                j -= 1;
                text.push(a[i]);
                match matches.last_mut().filter(|_| is_open) {
                    Some(open) => (open.a.0, open.b.0) = (i, j),
                    None => matches.push(Match { a: (i, i), b: (j, j) }),
                }
                is_open = true;
            } else {
                is_open = false;
                if table[i - 1][j] > table[i][j - 1] { i -= 1 } else { j -= 1 }
            }
        }
        text.reverse();
        (table[a.len()][b.len()], text, matches)
    }

    proptest! {
        #[test]
        fn same_as_the_plain_table(
            a in prop::collection::vec(0u8..4, 0..300),
            b in prop::collection::vec(0u8..4, 0..300),
            budget in 1usize..5000,
        ) {
            let (length, text, matches) = plain(&a, &b);
            for wanted in [Wanted::Length, Wanted::Text, Wanted::Ranges] {
                let mut lcs = Lcs::new(a.clone().into(), b.clone().into(), wanted);
                while !lcs.advance(budget) {}
                prop_assert_eq!(lcs.length(), length);
                if wanted == Wanted::Text {
                    prop_assert_eq!(lcs.text(), &text[..]);
                }
                if wanted == Wanted::Ranges {
                    prop_assert_eq!(lcs.matches(), &matches[..]);
                }
            }
        }
    }
}
