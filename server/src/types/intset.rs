//! A sorted array of distinct integers, all stored at the width the widest one needs: a set's "intset" encoding.
//!
//! ```text
//! | head of the block, 8 bytes | i | i | i | ...      little-endian, ascending
//! ```
//!
//! Invariants: ascending without repeats; the width, which follows from the block's count and bytes, never shrinks while there
//! are integers (as Redis's does not).
//! Cost: search O(log n); insert and remove move the greater elements.

use crate::keyspace::block::Block;
use crate::keyspace::table::prefetch;

/// Emptied, it is shrunk when this much is free beyond as many bytes as it holds.
const SHRINK_MIN_BYTES: usize = 64;

pub(super) struct Intset(Block);

impl Intset {
    pub(super) fn new() -> Self {
        Self(Block::default())
    }

    /// `integers` ascend and are distinct.
    pub(super) fn of_ascending(integers: impl Iterator<Item = i64> + Clone) -> Self {
        let mut set = Self::new();
        let width = integers.clone().map(width_of).max().unwrap_or(2);
        set.rebuild(width, integers.clone().count(), integers);
        set
    }

    /// Asks the cache for its first line.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(self.0.address() as u64);
    }

    #[inline]
    pub(super) fn width(&self) -> usize {
        self.0.len().checked_div(self.0.count()).unwrap_or(2)
    }

    /// The integers, each of [`Intset::width`] bytes.
    #[inline]
    pub(super) fn elements(&self) -> &[u8] {
        self.0.bytes()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.count()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.allocated_bytes()
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
        let width = width_of(integer).max(self.width());
        if width > self.width() {
            self.widen(width);
        }
        let index = match self.len() {
            0 => 0,
            _ => match self.search(integer) {
                Err(index) => index,
                Ok(_) => return false,
            },
        };
        let (at, len) = (index * width, self.0.len());
        if self.0.n_free_back() < width {
            self.0.relocate(0, len + width);
        }
        self.0.grow_back(width);
        let bytes = self.0.bytes_mut();
        bytes.copy_within(at..len, at + width);
        bytes[at..at + width].copy_from_slice(&integer.to_le_bytes()[..width]);
        self.0.set_count(self.0.count() + 1);
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
        let at = index * width;
        self.0.bytes_mut().copy_within(at + width.., at);
        self.0.cut_back(width);
        self.0.set_count(self.0.count() - 1);
        if self.0.capacity() > 2 * self.0.len() + SHRINK_MIN_BYTES {
            self.0.relocate(0, self.0.len());
        }
        integer
    }

    #[cold]
    fn widen(&mut self, width: usize) {
        let old = std::mem::replace(self, Self::new());
        self.rebuild(width, old.len() + 1, old.iter());
    }

    fn rebuild(&mut self, width: usize, n_expected: usize, integers: impl Iterator<Item = i64>) {
        self.0 = Block::with_capacity(n_expected * width);
        let mut count = 0;
        for integer in integers {
            self.0.push_back([&integer.to_le_bytes()[..width], &[], &[]]);
            count += 1;
        }
        self.0.set_count(count);
    }

    pub(super) fn check(&self) {
        assert!(matches!(self.width(), 2 | 4 | 8));
        assert_eq!(self.elements().len(), self.len() * self.width());
        assert!(self.iter().is_sorted_by(|a, b| a < b), "not ascending");
    }
}

impl Clone for Intset {
    fn clone(&self) -> Self {
        let mut block = Block::with_capacity(self.0.len());
        block.push_back([self.0.bytes(), &[], &[]]);
        block.set_count(self.0.count());
        Self(block)
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
