//! `Table`: extendible hashing of thin owned pointers. The keyspace is one; so are big sets and hashes.
//!
//! ```text
//!  hash     top `depth` bits: directory index            low 16 bits: home bucket and tag inside the segment
//!  directory (one u64 each)  -> segment (1..=128 buckets of 64 bytes) -> word (16 hash bits, 48 address bits) -> entry
//!  dir word [6 bits size class | 10 bits count | 42 bits segment address / 64 | 6 bits local depth]
//! ```
//!
//! A segment at local depth d has 2^(depth - d) directory words in a row; they are alike, but only the first one carries
//! the count. A word of address 0 is a segment without entries and without memory. A segment grows in steps of a quarter
//! and less until it has 128 buckets, then it splits in two of 64 or 80; so 70 to 87 % of the slots are used and an entry
//! costs about 10 bytes here. Only a split reads keys (some 900, prefetched: 10 to 20 us); it is the longest pause, beside
//! the doubling of the directory, a copy of 8 bytes per segment. Mass deletion shrinks segments, merges buddies and halves
//! the directory.
//!
//! SCAN walks bucket-major: home range b (the top 6 of the 16 bits) of every segment in hash order, then b + 1. Neither
//! an entry's b nor its place in the hash order ever changes, so no split, merge or resize hides an entry from a scan.
//!
//! It knows no clock and no value; the entry's type says where its key is. Source: Fagin et al., Extendible Hashing, 1979.
//! Cost of a lookup: directory word, one bucket (1.1 on average), entry; the latter two can be prefetched.

use std::marker::PhantomData;
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::hash::HashSeed;

mod dir_word;
mod owned;
pub(super) mod segment;
mod slot;
mod walk;

pub use owned::{Keyed, TableEntry};
pub use slot::SlotMut;
pub use walk::ScanPosition;

use dir_word::{COUNT_ONE, DirWord, ROOMY, SIZES, roomy_size};
use owned::{address_of, raw_of, same_key};
pub use segment::prefetch;
use segment::{ADDRESS, FULL, MAX_BUCKETS, SLOTS, Segment, SlotIndex, word};
use walk::PREFIX_BITS;

/// Two buddies become one when they have at most this many entries together.
const MERGE_BELOW: usize = 320;
/// A split that leaves the directory this many times larger than the number of segments means a broken hash.
const MAX_SPARSE: usize = 1024;
/// How far ahead of its use a key is prefetched in a split.
const SPLIT_AHEAD: usize = 12;

/// The hash table.
pub struct Table<E: TableEntry> {
    /// Empty, or 2^depth words.
    directory: SmallVec<[DirWord; 1]>,
    depth: u32,
    /// Segments whose local depth is `depth`; when there are none the directory can be halved.
    n_at_depth: usize,
    n_segments: usize,
    len: usize,
    segment_bytes: usize,
    /// This many words at the directory's end are known to be without entries: where a drain goes on.
    n_drained: usize,
    seed: HashSeed,
    owns: PhantomData<E>,
}

// SAFETY: a table owns its entries as a vector would; `find` and the other `&self` methods only read.
unsafe impl<E: TableEntry + Send> Send for Table<E> {}
// SAFETY: as above.
unsafe impl<E: TableEntry + Sync> Sync for Table<E> {}

impl<E: TableEntry> Table<E> {
    /// An empty table: no memory beside itself.
    pub fn new(seed: HashSeed) -> Table<E> {
        Table {
            directory: SmallVec::new(),
            depth: 0,
            n_at_depth: 0,
            n_segments: 0,
            len: 0,
            segment_bytes: 0,
            n_drained: 0,
            seed,
            owns: PhantomData,
        }
    }

    /// An empty one with room for `n` entries that are about to come: it grows by none of the steps on the way there.
    pub fn with_room(seed: HashSeed, n: usize) -> Table<E> {
        let mut table = Table::new(seed);
        let depth = n.div_ceil(MAX_BUCKETS * ROOMY).next_power_of_two().trailing_zeros();
        if n > 0 && depth < PREFIX_BITS {
            let n_segments = 1_usize << depth;
            let n_buckets = roomy_size(n.div_ceil(n_segments));
            for _ in 0..n_segments {
                let segment = table.allocate(n_buckets);
                table.directory.push(DirWord::new(Some(segment), 0, depth));
            }
            (table.depth, table.n_segments, table.n_at_depth) = (depth, n_segments, n_segments);
        }
        table
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The hash by which this table files `key`.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash_key(key)
    }

    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Bytes of directory and segments, without the entries and without this struct.
    pub fn memory_bytes(&self) -> usize {
        self.segment_bytes
            + if self.directory.spilled() { self.directory.capacity() * size_of::<DirWord>() } else { 0 }
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        // Two shifts, as one by 64 (depth 0) is not defined.
        (hash >> 1 >> (63 - self.depth)) as usize
    }

    #[inline(always)]
    fn segment_of(&self, hash: u64) -> Option<Segment> {
        // SAFETY: a word of the directory, and the handle is used under this borrow's access (callers that write hold
        // `&mut self`).
        self.directory.get(self.index(hash)).and_then(|word| unsafe { word.segment() })
    }

    /// Asks the cache for the bucket of `hash`. First wave of a batch of lookups.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: u64) {
        if let Some(word) = self.directory.get(self.index(hash)) {
            prefetch(word.address() + (segment::home(hash as u16, word.n_buckets()) * 64) as u64);
        }
    }

    /// Asks the cache for the first two lines of the entries that may be the one of `hash`. Second wave.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64) {
        if let Some(segment) = self.segment_of(hash) {
            segment.prefetch_targets(hash as u16);
        }
    }

    /// The first entry of the home bucket that may be the one of `hash`: by its tag, no key is read. For prefetching only.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<E::Ref<'_>> {
        let address = self.segment_of(hash)?.first_match(hash as u16)?;
        // SAFETY: the address of an entry of this table, which lives and stays unchanged while `self` is borrowed.
        Some(unsafe { E::borrow(raw_of(address)) })
    }

    /// Asks the cache for the one segment of a small table.
    #[inline(always)]
    pub fn prefetch_small(&self) {
        if let [word] = self.directory[..] {
            prefetch(word.address());
        }
    }

    /// Asks the cache for the first entry of a table that has one or few.
    #[inline(always)]
    pub fn prefetch_first_entry(&self) {
        if let [word] = self.directory[..]
            // SAFETY: a word of the directory, read only while `self` is borrowed.
            && let Some(segment) = unsafe { word.segment() }
        {
            let address = segment.get(SlotIndex(0)) & ADDRESS;
            prefetch(address);
            prefetch(address + 64);
        }
    }

    #[inline(always)]
    fn find_slot(&self, hash: u64, key: &[u8]) -> Option<(Segment, SlotIndex)> {
        debug_assert_eq!(hash, self.hash(key));
        let segment = self.segment_of(hash)?;
        // SAFETY: the address of an entry of this table, borrowed for the comparison only.
        let slot = segment
            .find(hash as u16, |address| same_key(E::key(unsafe { E::borrow(raw_of(address)) }), key))?;
        Some((segment, slot))
    }

    /// The entry under `key`, whose hash the caller has computed.
    #[inline(always)]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<E::Ref<'_>> {
        let (segment, slot) = self.find_slot(hash, key)?;
        // SAFETY: the slot holds an entry's address; the entry lives and stays unchanged while `self` is borrowed.
        Some(unsafe { E::borrow(raw_of(segment.get(slot) & ADDRESS)) })
    }

    /// The same for who has the table to himself and makes of it what he needs.
    #[inline(always)]
    pub(super) fn find_raw(&mut self, hash: u64, key: &[u8]) -> Option<NonNull<u8>> {
        let (segment, slot) = self.find_slot(hash, key)?;
        Some(raw_of(segment.get(slot) & ADDRESS))
    }

    /// The same for change or removal.
    #[inline(always)]
    pub fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<SlotMut<'_, E>> {
        let (segment, slot) = self.find_slot(hash, key)?;
        Some(SlotMut { table: self, segment, slot, hash })
    }

    /// The slot that holds the entry at this very address, if it is in the table. Reads no key.
    #[inline(always)]
    pub fn find_address(&mut self, hash: u64, raw: NonNull<u8>) -> Option<SlotMut<'_, E>> {
        let segment = self.segment_of(hash)?;
        let slot = segment.find(hash as u16, |address| address == raw.as_ptr().addr() as u64)?;
        Some(SlotMut { table: self, segment, slot, hash })
    }

    /// The first entry whose key has this very hash and that `is_it` says yes to.
    pub fn find_where(&mut self, hash: u64, is_it: impl Fn(E::Ref<'_>) -> bool) -> Option<SlotMut<'_, E>> {
        let segment = self.segment_of(hash)?;
        let slot = segment.find(hash as u16, |address| {
            // SAFETY: the address of an entry of this table, borrowed for the questions only.
            let entry = || unsafe { E::borrow(raw_of(address)) };
            is_it(entry()) && self.hash(E::key(entry())) == hash
        })?;
        Some(SlotMut { table: self, segment, slot, hash })
    }

    /// Files an entry whose key is not in the table: the caller has looked.
    pub fn insert(&mut self, hash: u64, entry: E) {
        let address = address_of(entry);
        if self.directory.is_empty() {
            self.directory.push(DirWord::new(None, 0, 0));
            (self.n_at_depth, self.n_segments) = (1, 1);
        }
        loop {
            let first = self.first_of(self.index(hash));
            let dir_word = self.directory[first];
            // SAFETY: a word of the directory, exclusively borrowed.
            match unsafe { dir_word.segment() } {
                Some(segment) if dir_word.count() < segment.n_buckets() * FULL => {
                    segment.insert(word(hash, address));
                    self.directory[first].0 += COUNT_ONE;
                    self.len += 1;
                    return;
                }
                segment => self.make_room(first, segment),
            }
        }
    }

    /// Removes and returns the entry under `key`.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<E> {
        self.find_mut(hash, key).map(SlotMut::remove)
    }

    /// The first of the directory words of the segment that word `index` belongs to.
    #[inline(always)]
    fn first_of(&self, index: usize) -> usize {
        index & !(self.n_words_of(self.directory[index]) - 1)
    }

    #[inline(always)]
    fn n_words_of(&self, word: DirWord) -> usize {
        1 << (self.depth - word.local_depth())
    }

    /// Writes a segment's directory words, of which only the first carries the count.
    fn write_words(&mut self, first: usize, word: DirWord) {
        let n_words = self.n_words_of(word);
        if word.address() != 0 {
            self.n_drained = 0;
        }
        self.directory[first] = word;
        self.directory[first + 1..first + n_words].fill(word.without_count());
    }

    fn allocate(&mut self, n_buckets: usize) -> Segment {
        self.segment_bytes += n_buckets * 64;
        Segment::allocate(n_buckets)
    }

    fn free(&mut self, segment: Segment) {
        self.segment_bytes -= segment.n_buckets() * 64;
        // SAFETY: callers have copied the words out, and overwrite the directory words that lead here.
        unsafe { segment.free() }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, first: usize, segment: Option<Segment>) {
        let Some(segment) = segment else {
            let segment = self.allocate(SIZES[0]);
            self.write_words(first, DirWord::new(Some(segment), 0, self.directory[first].local_depth()));
            return;
        };
        match SIZES.into_iter().find(|&n| n > segment.n_buckets()) {
            Some(larger) => self.resize(first, larger),
            None => self.split(first),
        }
    }

    /// Moves a segment's words into one of another size. Reads no key.
    fn resize(&mut self, first: usize, n_buckets: usize) {
        let word = self.directory[first];
        // SAFETY: a word of the directory, exclusively borrowed.
        let Some(old) = (unsafe { word.segment() }) else { return };
        let new = self.allocate(n_buckets);
        for word in old.words() {
            new.insert(word);
        }
        self.write_words(first, DirWord::new(Some(new), word.count(), word.local_depth()));
        self.free(old);
    }

    /// Shares a full segment's words out to two new ones, by the next bit of their hashes.
    fn split(&mut self, first: usize) {
        let old_word = self.directory[first];
        let depth = old_word.local_depth();
        // SAFETY: a word of the directory, exclusively borrowed.
        let Some(old) = (unsafe { old_word.segment() }) else { return };
        let mut words = [0_u64; MAX_BUCKETS * SLOTS];
        let mut count = 0;
        for word in old.words() {
            words[count] = word;
            count += 1;
        }
        let words = &mut words[..count];
        for word in words.iter().take(SPLIT_AHEAD) {
            prefetch(word & ADDRESS);
        }
        let mut upper = [false; MAX_BUCKETS * SLOTS];
        let mut n_upper = 0;
        for i in 0..count {
            if let Some(ahead) = words.get(i + SPLIT_AHEAD) {
                prefetch(ahead & ADDRESS);
            }
            // SAFETY: the address of an entry of this table, borrowed for its hash only.
            let key = E::key(unsafe { E::borrow(raw_of(words[i] & ADDRESS)) });
            upper[i] = self.hash(key) >> (63 - depth) & 1 == 1;
            n_upper += usize::from(upper[i]);
        }
        let halves = [(count - n_upper, false), (n_upper, true)].map(|(n, is_upper)| {
            let segment = (n > 0).then(|| self.allocate(roomy_size(n)));
            if let Some(segment) = segment {
                let mine = words.iter().zip(&upper).filter(|(_, u)| **u == is_upper);
                mine.for_each(|(word, _)| _ = segment.insert(*word));
            }
            DirWord::new(segment, n, depth + 1)
        });
        self.free(old);
        let mut first = first;
        if depth == self.depth {
            self.double_directory();
            first *= 2;
        }
        let half = 1 << (self.depth - depth - 1);
        self.write_words(first, halves[0]);
        self.write_words(first + half, halves[1]);
        self.n_segments += 1;
        self.n_at_depth += if depth + 1 == self.depth { 2 } else { 0 };
    }

    fn double_directory(&mut self) {
        let n = self.directory.len() * 2;
        assert!(
            self.depth < PREFIX_BITS && n <= self.n_segments * MAX_SPARSE,
            "the hash does not spread the keys"
        );
        let mut doubled = SmallVec::with_capacity(n);
        for &word in &self.directory {
            doubled.extend([word, word.without_count()]);
        }
        self.directory = doubled;
        self.depth += 1;
        self.n_at_depth = 0;
        self.n_drained = 0;
    }

    /// Called when an entry has left the segment: gives memory back in steps.
    #[inline(always)]
    fn after_removal(&mut self, first: usize) {
        let word = self.directory[first];
        let (count, n_buckets) = (word.count(), word.n_buckets());
        if count < n_buckets * 3 && (count == 0 || roomy_size(count) < n_buckets) {
            self.shrink(first);
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self, first: usize) {
        let word = self.directory[first];
        if word.count() > 0 {
            self.resize(first, roomy_size(word.count()));
        } else {
            // SAFETY: a word of the directory, exclusively borrowed.
            if let Some(segment) = unsafe { word.segment() } {
                self.write_words(first, DirWord::new(None, 0, word.local_depth()));
                self.free(segment);
            }
        }
        let mut first = first;
        while let Some(merged) = self.merge_with_buddy(first) {
            first = merged;
        }
        if self.len == 0 && self.depth == 0 {
            self.directory = SmallVec::new();
            (self.n_at_depth, self.n_segments, self.n_drained) = (0, 0, 0);
        }
    }

    /// Merges a segment with the one it was split from, if both are at the same depth and have few entries together.
    /// Returns the first directory word of the merged one.
    fn merge_with_buddy(&mut self, first: usize) -> Option<usize> {
        let word = self.directory[first];
        let depth = word.local_depth();
        if depth == 0 {
            return None;
        }
        let (low, high) = (first & !(1 << (self.depth - depth)), first | 1 << (self.depth - depth));
        let (low_word, high_word) = (self.directory[low], self.directory[high]);
        let count = low_word.count() + high_word.count();
        if low_word.local_depth() != high_word.local_depth() || count > MERGE_BELOW {
            return None;
        }
        let merged = (count > 0).then(|| self.allocate(roomy_size(count)));
        for old in [low_word, high_word] {
            // SAFETY: a word of the directory, exclusively borrowed.
            if let (Some(old), Some(merged)) = (unsafe { old.segment() }, merged) {
                old.words().for_each(|word| _ = merged.insert(word));
                self.free(old);
            }
        }
        self.write_words(low, DirWord::new(merged, count, depth - 1));
        self.n_segments -= 1;
        self.n_at_depth -= if depth == self.depth { 2 } else { 0 };
        let mut low = low;
        while self.n_at_depth == 0 && self.depth > 0 {
            self.halve_directory();
            low /= 2;
        }
        Some(low)
    }

    fn halve_directory(&mut self) {
        self.directory = self.directory.iter().copied().step_by(2).collect();
        self.depth -= 1;
        self.n_at_depth = self.directory.iter().filter(|word| word.local_depth() == self.depth).count();
        self.n_drained = 0;
    }

    /// All entries in hash order of their segments.
    pub fn iter(&self) -> impl Iterator<Item = E::Ref<'_>> {
        let mut index = 0;
        let segments = std::iter::from_fn(move || {
            let word = *self.directory.get(index)?;
            index += self.n_words_of(word);
            Some(word)
        });
        // SAFETY: words of the directory, read only while `self` is borrowed.
        let words = segments.filter_map(|word| unsafe { word.segment() }).flat_map(Segment::words);
        // SAFETY: every word of a segment holds the address of an entry, unchanged while `self` is borrowed.
        words.map(|word| unsafe { E::borrow(raw_of(word & ADDRESS)) })
    }

    /// Takes up to `budget` entries out and hands each to `give`; true when the table is empty. The table stays usable
    /// between calls. This is how a huge table is freed without a pause.
    pub fn drain(&mut self, budget: usize, mut give: impl FnMut(E)) -> bool {
        let mut left = budget;
        while self.n_drained < self.directory.len() {
            let first = self.first_of(self.directory.len() - 1 - self.n_drained);
            let dir_word = self.directory[first];
            // SAFETY: a word of the directory, exclusively borrowed.
            if let Some(segment) = unsafe { dir_word.segment() } {
                let n = dir_word.count().min(left);
                left -= n;
                self.len -= n;
                self.directory[first].0 -= COUNT_ONE * n as u64;
                let mut bucket = 0;
                for _ in 0..n {
                    while segment.bucket(bucket).is_empty() {
                        bucket += 1;
                        let ahead = (bucket + 2).min(segment.n_buckets() - 1);
                        segment.bucket(ahead).words().for_each(|word| prefetch(word & ADDRESS));
                    }
                    let slot = SlotIndex(bucket * SLOTS);
                    let raw = raw_of(segment.get(slot) & ADDRESS);
                    segment.remove(slot);
                    // SAFETY: its address is in the table no more.
                    give(unsafe { E::from_raw(raw) });
                }
                if n < dir_word.count() {
                    return false;
                }
                self.write_words(first, DirWord::new(None, 0, dir_word.local_depth()));
                self.free(segment);
            }
            self.n_drained = self.directory.len() - first;
        }
        debug_assert_eq!(self.len, 0);
        self.directory = SmallVec::new();
        (self.depth, self.n_at_depth, self.n_segments, self.n_drained) = (0, 0, 0, 0);
        true
    }
}

impl<E: TableEntry> Drop for Table<E> {
    fn drop(&mut self) {
        self.drain(usize::MAX, drop);
    }
}

#[cfg(test)]
mod tests;
