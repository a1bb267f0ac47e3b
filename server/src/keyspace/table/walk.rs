//! Ways through a table without a key: scans that survive changes, and random draws.
//!
//! A scan is bucket-major: home range b (the top 6 of the 16 hash bits) of every segment in hash order, then b + 1.
//! Neither an entry's b nor its place in the hash order ever changes, so no split, merge or resize hides an entry.

use smallvec::SmallVec;

use super::Table;
use super::owned::{TableEntry, raw_of};
use super::segment::{ADDRESS, MAX_BUCKETS, SLOTS, Segment, SlotIndex, prefetch};
use super::slot::SlotMut;

/// Where a scan stands: 6 bits of home range, then 39 bits of hash prefix. 0 is both start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScanPosition(pub u64);

impl ScanPosition {
    /// Bits of a position; a cursor that packs more beside it must stay below 2^53.
    pub const BITS: u32 = 6 + PREFIX_BITS;
}

pub(super) const PREFIX_BITS: u32 = 39;

/// Addresses of a sample that need no allocation; places that it looks for entries at, and buckets at each.
const SAMPLE: usize = 64;
const SAMPLE_TRIES: usize = 4;
const SAMPLE_BUCKETS: usize = 8;

impl<E: TableEntry> Table<E> {
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

    /// Shows about `n` entries from one random place on, each with the same chance but for what lies beside it: for
    /// guesses about the whole, at the price of two cache misses. None if the table is empty; else one at least.
    pub fn sample<'t>(
        &'t self,
        n: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(E::Ref<'t>),
    ) {
        let mut found: SmallVec<[u64; SAMPLE]> = SmallVec::new();
        for _ in 0..SAMPLE_TRIES {
            let bits = random();
            // A directory word stands for as much of the keys as any other, however large its segment is.
            let Some(dir_word) = self.directory.get(self.index(bits)) else { return };
            // SAFETY: a word of the directory, read only while `self` is borrowed.
            let Some(segment) = (unsafe { dir_word.segment() }) else { continue };
            let mut bucket = ((bits & 0xFFFF_FFFF) as usize * segment.n_buckets()) >> 32;
            for _ in 0..SAMPLE_BUCKETS.min(segment.n_buckets()) {
                // From a random slot on and around: the first ones would hide the others.
                let words: SmallVec<[u64; SLOTS]> = segment.bucket(bucket).words().collect();
                let first = (bits >> 32) as usize % words.len().max(1);
                let around = words[first..].iter().chain(&words[..first]);
                found.extend(around.map(|word| word & ADDRESS).take(n - found.len()));
                if found.len() == n {
                    break;
                }
                bucket = if bucket + 1 == segment.n_buckets() { 0 } else { bucket + 1 };
            }
            if found.len() == n {
                break;
            }
        }
        found.iter().for_each(|address| prefetch(*address));
        for &address in &found {
            // SAFETY: the address of an entry, unchanged while `self` is borrowed.
            visit(unsafe { E::borrow(raw_of(address)) });
        }
        if found.is_empty()
            && let Some(entry) = self.random(random)
        {
            visit(entry);
        }
    }

    /// The same for change or removal.
    pub fn random_mut(&mut self, mut random: impl FnMut() -> u64) -> Option<SlotMut<'_, E>> {
        let (segment, slot, hash) = self.random_slot(&mut random)?;
        Some(SlotMut { table: self, segment, slot, hash })
    }
}
