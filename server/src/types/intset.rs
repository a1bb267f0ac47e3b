//! A sorted array of distinct integers, all stored at the width the widest one needs: a set's "intset" encoding.
//!
//! ```text
//! | width: 2, 4 or 8 | i | i | i | ...      little-endian, ascending
//! ```
//!
//! Invariants: ascending without repeats; the width never shrinks (as Redis's does not).
//! Cost: search O(log n); insert and remove move the greater elements.

use crate::alloc::good_size;

#[derive(Clone, PartialEq)]
pub(super) struct Intset {
    /// The width, then the elements: so the whole is a Vec wide and a `Set` stays at four words.
    bytes: Vec<u8>,
}

impl Intset {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// `integers` ascend and are distinct.
    pub(super) fn of_ascending(integers: impl Iterator<Item = i64> + Clone) -> Self {
        let mut set = Self::new();
        let width = integers.clone().map(width_of).max().unwrap_or(2);
        set.rebuild(width, integers.clone().count(), integers);
        set
    }

    #[inline]
    pub(super) fn width(&self) -> usize {
        self.bytes.first().map_or(2, |&width| usize::from(width))
    }

    /// The integers, each of [`Intset::width`] bytes.
    #[inline]
    pub(super) fn elements(&self) -> &[u8] {
        self.bytes.get(1..).unwrap_or_default()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.elements().len() / self.width()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> i64 {
        match self.width() {
            2 => read(&self.elements().as_chunks::<2>().0[index]),
            4 => read(&self.elements().as_chunks::<4>().0[index]),
            _ => read(&self.elements().as_chunks::<8>().0[index]),
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    #[inline]
    pub(super) fn contains(&self, integer: i64) -> bool {
        self.search(integer).is_ok()
    }

    /// The index of the integer, or the one it would have.
    #[inline]
    fn search(&self, integer: i64) -> Result<usize, usize> {
        let elements = self.elements();
        match self.width() {
            2 => elements.as_chunks::<2>().0.binary_search_by(|chunk| read(chunk).cmp(&integer)),
            4 => elements.as_chunks::<4>().0.binary_search_by(|chunk| read(chunk).cmp(&integer)),
            _ => elements.as_chunks::<8>().0.binary_search_by(|chunk| read(chunk).cmp(&integer)),
        }
    }

    /// False if it was there already.
    pub(super) fn insert(&mut self, integer: i64) -> bool {
        let width = width_of(integer);
        if width > self.width() || self.bytes.is_empty() {
            self.widen(width.max(self.width()));
        }
        let Err(index) = self.search(integer) else { return false };
        let width = self.width();
        let len = self.bytes.len();
        if self.bytes.capacity() - len < width {
            self.bytes.reserve_exact(good_size(len + width) - len);
        }
        let at = 1 + index * width;
        self.bytes.resize(len + width, 0);
        self.bytes.copy_within(at..len, at + width);
        self.bytes[at..at + width].copy_from_slice(&integer.to_le_bytes()[..width]);
        true
    }

    pub(super) fn remove(&mut self, integer: i64) -> bool {
        let Ok(index) = self.search(integer) else { return false };
        self.remove_at(index);
        true
    }

    pub(super) fn remove_at(&mut self, index: usize) -> i64 {
        let integer = self.get(index);
        let width = self.width();
        let at = 1 + index * width;
        self.bytes.copy_within(at + width.., at);
        self.bytes.truncate(self.bytes.len() - width);
        if self.bytes.capacity() > 2 * self.bytes.len() + 64 {
            self.bytes.shrink_to(good_size(self.bytes.len()));
        }
        integer
    }

    #[cold]
    fn widen(&mut self, width: usize) {
        let old = std::mem::replace(self, Self::new());
        self.rebuild(width, old.len() + 1, old.iter());
    }

    fn rebuild(&mut self, width: usize, n_expected: usize, integers: impl Iterator<Item = i64>) {
        self.bytes = Vec::with_capacity(good_size(1 + n_expected * width));
        self.bytes.push(width as u8);
        integers.for_each(|integer| self.bytes.extend_from_slice(&integer.to_le_bytes()[..width]));
    }

    pub(super) fn check(&self) {
        assert!(matches!(self.width(), 2 | 4 | 8));
        assert!(self.elements().len().is_multiple_of(self.width()));
        assert!(self.iter().is_sorted_by(|a, b| a < b), "not ascending");
    }
}

fn width_of(integer: i64) -> usize {
    if i16::try_from(integer).is_ok() {
        2
    } else if i32::try_from(integer).is_ok() {
        4
    } else {
        8
    }
}

/// The sign comes along when the bytes stand at the top of an i64 and are shifted down.
#[inline]
fn read<const N: usize>(chunk: &[u8; N]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - N..].copy_from_slice(chunk);
    i64::from_le_bytes(wide) >> (64 - 8 * N)
}
