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

use super::hash::HashSeed;
use super::segment::{self, ADDRESS, FULL, MAX_BUCKETS, SLOTS, Segment, SlotIndex, prefetch, word};

/// An owner of one heap allocation that a [`Table`] can hold as 48 bits.
///
/// # Safety
/// `into_raw` gives a pointer aligned to 8 and below 2^48, with exposed provenance or from an allocation whose provenance
/// `into_raw` exposes; `from_raw` undoes it; `borrow` is sound as long as the owner lives and is not changed; the key
/// never changes while the entry is in a table.
pub unsafe trait TableEntry: Sized {
    /// What a lookup gives: a shared view of the entry, `&'a Target` in most cases.
    type Ref<'a>: Copy
    where
        Self: 'a;
    fn into_raw(self) -> NonNull<u8>;
    /// # Safety
    /// `raw` came from `into_raw` and has not been taken back since.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;
    /// # Safety
    /// `raw` came from `into_raw` and for 'a is neither taken back nor changed.
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> Self::Ref<'a>
    where
        Self: 'a;
    fn key<'a>(entry: Self::Ref<'a>) -> &'a [u8]
    where
        Self: 'a;
}

/// What a boxed value needs so that `Table<Box<T>>` works.
pub trait Keyed {
    fn key(&self) -> &[u8];
}

// SAFETY: a box of an 8-aligned type is an 8-aligned pointer to memory that it owns; user space lies below 2^48, which
// `Table::insert` asserts.
unsafe impl<T: Keyed> TableEntry for Box<T> {
    type Ref<'a>
        = &'a T
    where
        T: 'a;

    fn into_raw(self) -> NonNull<u8> {
        const { assert!(align_of::<T>() == 8) };
        let raw = Box::into_raw(self);
        raw.expose_provenance();
        // SAFETY: a box is not null.
        unsafe { NonNull::new_unchecked(raw.cast()) }
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        // SAFETY: the caller gives back what `into_raw` gave.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }

    unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a T
    where
        T: 'a,
    {
        // SAFETY: the caller keeps the box alive and unchanged for 'a.
        unsafe { raw.cast().as_ref() }
    }

    fn key<'a>(entry: &'a T) -> &'a [u8]
    where
        T: 'a,
    {
        entry.key()
    }
}

#[inline(always)]
fn raw_of(address: u64) -> NonNull<u8> {
    debug_assert!(address != 0);
    // SAFETY: only called with the address of an entry in the table, which is not null.
    unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Byte equality without a call for short keys.
#[inline(always)]
fn same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (wide_a, rest_a) = a.as_chunks::<8>();
    let (wide_b, rest_b) = b.as_chunks::<8>();
    if wide_a.len() > 8 {
        return a == b;
    }
    let wide = wide_a.iter().zip(wide_b).all(|(x, y)| u64::from_ne_bytes(*x) == u64::from_ne_bytes(*y));
    wide && rest_a.iter().zip(rest_b).all(|(x, y)| x == y)
}

/// A directory word, see the layout above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DirWord(u64);

const SEGMENT_ADDRESS: u64 = ADDRESS & !63;
const COUNT_ONE: u64 = 1 << 48;
const COUNT_BITS: u64 = 1023 << 48;

impl DirWord {
    fn new(segment: Option<Segment>, count: usize, depth: u32) -> DirWord {
        debug_assert!(count < 1024 && depth < 64);
        let (class, address) = match segment {
            Some(segment) => (class_of(segment.n_buckets()), segment.address()),
            None => (0, 0),
        };
        DirWord(class << 58 | (count as u64) << 48 | address | u64::from(depth))
    }

    fn local_depth(self) -> u32 {
        (self.0 & 63) as u32
    }

    fn count(self) -> usize {
        ((self.0 & COUNT_BITS) >> 48) as usize
    }

    #[inline(always)]
    fn address(self) -> u64 {
        self.0 & SEGMENT_ADDRESS
    }

    /// Four buckets a class; class 0 is a single one.
    #[inline(always)]
    fn n_buckets(self) -> usize {
        let class = self.0 >> 58;
        (class << 2 | u64::from(class == 0)) as usize
    }

    /// # Safety
    /// The word is in its table's directory, and the caller has the access to the table that it uses the handle for.
    #[inline(always)]
    unsafe fn segment(self) -> Option<Segment> {
        // SAFETY: the directory holds the segments it has allocated, with their sizes.
        (self.address() != 0).then(|| unsafe { Segment::of(self.address(), self.n_buckets()) })
    }

    fn without_count(self) -> DirWord {
        DirWord(self.0 & !COUNT_BITS)
    }
}

fn class_of(n_buckets: usize) -> u64 {
    debug_assert!(n_buckets == 1 || n_buckets.is_multiple_of(4));
    (n_buckets / 4) as u64
}

/// The sizes that segments take, in buckets: each a size class of the allocator.
const SIZES: [usize; 16] = [1, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128];
const _: () = assert!(SIZES[15] == MAX_BUCKETS && MAX_BUCKETS * SLOTS <= 1024, "the count has 10 bits");

/// The smallest size of which `count` words use at most six slots of eight.
fn roomy_size(count: usize) -> usize {
    SIZES.into_iter().find(|n| count <= n * 6).unwrap_or(MAX_BUCKETS)
}

/// Two buddies become one when they have at most this many entries together.
const MERGE_BELOW: usize = 320;
/// A split that leaves the directory this many times larger than the number of segments means a broken hash.
const MAX_SPARSE: usize = 1024;
/// How far ahead of its use a key is prefetched in a split.
const SPLIT_AHEAD: usize = 12;

/// Where a scan stands: 6 bits of home range, then 39 bits of hash prefix. 0 is both start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScanPosition(pub u64);

impl ScanPosition {
    /// Bits of a position; a cursor that packs more beside it must stay below 2^53.
    pub const BITS: u32 = 6 + PREFIX_BITS;
}

const PREFIX_BITS: u32 = 39;

/// The hash table.
pub struct Table<E: TableEntry> {
    /// Empty, or 2^depth words.
    directory: Vec<DirWord>,
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
            directory: Vec::new(),
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
        self.segment_bytes + self.directory.capacity() * size_of::<DirWord>()
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
        let Some(segment) = self.segment_of(hash) else { return };
        segment.find(hash as u16, |address| {
            prefetch(address);
            prefetch(address + 64);
            false
        });
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

    /// Files an entry whose key is not in the table: the caller has looked.
    pub fn insert(&mut self, hash: u64, entry: E) {
        let address = entry.into_raw().as_ptr().expose_provenance() as u64;
        assert!(
            address & 7 == 0 && address & !ADDRESS == 0,
            "an entry's address has 48 bits and is aligned to 8"
        );
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
        let mut doubled = Vec::with_capacity(n);
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
            self.directory = Vec::new();
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

    /// One step of a scan from `at`: visits some entries (none, or up to a few tens) and returns where to go on; 0 when the
    /// whole table has been walked. An entry that is in the table from the first step to the last is visited at least once.
    pub fn scan<'t>(&'t self, at: ScanPosition, mut visit: impl FnMut(E::Ref<'t>)) -> ScanPosition {
        if self.directory.is_empty() {
            return ScanPosition(0);
        }
        let home_range = at.0 >> PREFIX_BITS & 63;
        let prefix = at.0 & ((1 << PREFIX_BITS) - 1);
        let dir_word = self.directory[(prefix >> (PREFIX_BITS - self.depth)) as usize];
        // A lone segment of few buckets is walked in larger strides.
        let stride =
            if self.depth == 0 && prefix == 0 { 64 / dir_word.n_buckets().min(64) as u64 } else { 1 };
        let end = (home_range + stride).min(64);
        // SAFETY: a word of the directory, read only while `self` is borrowed.
        if let Some(segment) = unsafe { dir_word.segment() } {
            segment.words_of_homes((home_range << 10) as u16, ((end << 10) - 1) as u16, |word| {
                // SAFETY: the address of an entry, unchanged while `self` is borrowed.
                visit(unsafe { E::borrow(raw_of(word & ADDRESS)) });
            });
        }
        let shift = PREFIX_BITS - dir_word.local_depth();
        let next_prefix = ((prefix >> shift) + 1) << shift;
        if next_prefix < 1 << PREFIX_BITS {
            ScanPosition(home_range << PREFIX_BITS | next_prefix)
        } else if end < 64 {
            ScanPosition(end << PREFIX_BITS)
        } else {
            ScanPosition(0)
        }
    }

    /// A random slot that holds an entry, each with the same chance; `random` gives 64 random bits a call. Tries 1000
    /// times, then takes the next entry after a random place (which a table of few entries in many segments needs).
    fn random_slot(&self, random: &mut impl FnMut() -> u64) -> Option<(Segment, SlotIndex, u64)> {
        if self.len == 0 {
            return None;
        }
        let range = if self.depth == 0 { self.directory[0].n_buckets() * SLOTS } else { MAX_BUCKETS * SLOTS };
        for _ in 0..1000 {
            let bits = random();
            let index = self.index(bits);
            let slot = SlotIndex(((bits & 0xFFFF_FFFF) as usize * range) >> 32);
            let dir_word = self.directory[index];
            // Only a segment's first word counts: so a shallow one, with more words, is not drawn more often.
            if self.first_of(index) != index || slot.0 >= dir_word.n_buckets() * SLOTS {
                continue;
            }
            // SAFETY: a word of the directory; writers hold `&mut self`.
            if let Some(segment) = unsafe { dir_word.segment() }
                && segment.get(slot) != 0
            {
                return Some((segment, slot, self.prefix_hash(index)));
            }
        }
        let start = self.index(random());
        let n = self.directory.len();
        (0..n).map(|i| self.first_of((start + i) % n)).find_map(|index| {
            // SAFETY: as above.
            let segment = unsafe { self.directory[index].segment() }?;
            let slot =
                (0..segment.n_buckets() * SLOTS).map(SlotIndex).find(|&slot| segment.get(slot) != 0)?;
            Some((segment, slot, self.prefix_hash(index)))
        })
    }

    /// A hash that leads to directory word `index`.
    fn prefix_hash(&self, index: usize) -> u64 {
        (index as u64) << 1 << (63 - self.depth)
    }

    /// A random entry, each with the same chance; `random` gives 64 random bits a call.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<E::Ref<'_>> {
        let (segment, slot, _) = self.random_slot(&mut random)?;
        // SAFETY: the address of an entry, unchanged while `self` is borrowed.
        Some(unsafe { E::borrow(raw_of(segment.get(slot) & ADDRESS)) })
    }

    /// The same for change or removal.
    pub fn random_mut(&mut self, mut random: impl FnMut() -> u64) -> Option<SlotMut<'_, E>> {
        let (segment, slot, hash) = self.random_slot(&mut random)?;
        Some(SlotMut { table: self, segment, slot, hash })
    }

    /// Takes up to about `budget` entries out and hands each to `give`; true when the table is empty. The table stays
    /// usable between calls. This is how a huge table is freed without a pause.
    pub fn drain(&mut self, budget: usize, mut give: impl FnMut(E)) -> bool {
        let mut left = budget;
        while self.n_drained < self.directory.len() {
            let first = self.first_of(self.directory.len() - 1 - self.n_drained);
            let dir_word = self.directory[first];
            // SAFETY: a word of the directory, exclusively borrowed.
            if let Some(segment) = unsafe { dir_word.segment() } {
                if left == 0 {
                    return false;
                }
                self.write_words(first, DirWord::new(None, 0, dir_word.local_depth()));
                self.len -= dir_word.count();
                left = left.saturating_sub(dir_word.count());
                for word in segment.words() {
                    // SAFETY: the directory leads here no more, so the address is given away once.
                    give(unsafe { E::from_raw(raw_of(word & ADDRESS)) });
                }
                self.free(segment);
            }
            self.n_drained = self.directory.len() - first;
        }
        let empty = self.len == 0;
        debug_assert!(empty);
        self.directory = Vec::new();
        (self.depth, self.n_at_depth, self.n_segments, self.n_drained) = (0, 0, 0, 0);
        empty
    }
}

impl<E: TableEntry> Drop for Table<E> {
    fn drop(&mut self) {
        self.drain(usize::MAX, drop);
    }
}

/// An occupied slot, borrowed for change. The entry's key must stay what it is.
pub struct SlotMut<'t, E: TableEntry> {
    table: &'t mut Table<E>,
    segment: Segment,
    slot: SlotIndex,
    /// A hash that leads to the segment.
    hash: u64,
}

impl<'t, E: TableEntry> SlotMut<'t, E> {
    #[inline(always)]
    fn raw(&self) -> NonNull<u8> {
        raw_of(self.segment.get(self.slot) & ADDRESS)
    }

    #[inline(always)]
    pub fn get(&self) -> E::Ref<'_> {
        // SAFETY: the slot holds an entry, unchanged while `self` is borrowed.
        unsafe { E::borrow(self.raw()) }
    }

    /// The entry for as long as the table is borrowed.
    #[inline(always)]
    pub fn into_ref(self) -> E::Ref<'t> {
        // SAFETY: the slot holds an entry, and the borrow of the table that the slot has is given up for this one.
        unsafe { E::borrow(self.raw()) }
    }

    /// Puts `entry`, which has the same key, into the slot and returns the old one.
    pub fn replace(&mut self, entry: E) -> E {
        let old = self.raw();
        let address = entry.into_raw().as_ptr().expose_provenance() as u64;
        assert!(
            address & 7 == 0 && address & !ADDRESS == 0,
            "an entry's address has 48 bits and is aligned to 8"
        );
        self.segment.set(self.slot, self.segment.get(self.slot) & !ADDRESS | address);
        // SAFETY: its address is in the table no more.
        unsafe { E::from_raw(old) }
    }

    /// Lets `change` work on the entry itself, which may move to another allocation (but must keep its key).
    #[inline(always)]
    pub fn update<R>(&mut self, change: impl FnOnce(&mut E) -> R) -> R {
        struct PutBack<'s, E: TableEntry> {
            entry: Option<E>,
            segment: Segment,
            slot: SlotIndex,
            borrows: PhantomData<&'s mut E>,
        }
        impl<E: TableEntry> Drop for PutBack<'_, E> {
            #[inline(always)]
            fn drop(&mut self) {
                if let Some(entry) = self.entry.take() {
                    let address = entry.into_raw().as_ptr().expose_provenance() as u64;
                    debug_assert!(address & 7 == 0 && address & !ADDRESS == 0);
                    self.segment.set(self.slot, self.segment.get(self.slot) & !ADDRESS | address);
                }
            }
        }
        // SAFETY: the entry goes back into its slot when `change` returns or unwinds, before anybody can look.
        let entry = Some(unsafe { E::from_raw(self.raw()) });
        let mut back = PutBack { entry, segment: self.segment, slot: self.slot, borrows: PhantomData };
        match &mut back.entry {
            Some(entry) => change(entry),
            None => unreachable!("set above"),
        }
    }

    /// Takes the entry out.
    #[inline]
    pub fn remove(self) -> E {
        let raw = self.raw();
        self.segment.remove(self.slot);
        let first = self.table.first_of(self.table.index(self.hash));
        self.table.directory[first].0 -= COUNT_ONE;
        self.table.len -= 1;
        self.table.after_removal(first);
        // SAFETY: its address is in the table no more.
        unsafe { E::from_raw(raw) }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
