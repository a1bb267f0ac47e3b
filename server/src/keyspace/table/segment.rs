//! One segment of a [`Table`](super::Table): 1 to 128 buckets of one cache line, linear probing between them.
//!
//! ```text
//!  bucket (64 bytes, aligned)   word 0 | word 1 | ... | word 7        a word of 0 is empty; words are packed to the left,
//!  word                         hash, low 16 bits | 48 bits address   so a bucket is full if and only if word 7 is not 0
//!  home bucket of a word        (its 16 bits * n_buckets) >> 16       any number of buckets, no key access
//! ```
//!
//! Invariants: every bucket between a word's home and the bucket it lies in is full (so a lookup stops at the first
//! bucket that is not full); at least one slot in eight is empty (so it does stop). Deletion moves displaced words back,
//! there are no tombstones. The home follows from the word alone, so a segment is resized, and two are merged, without
//! reading one key.
//!
//! It never knows what an address points to, nor how the segment was found.
//! Cost: a lookup reads 1.1 buckets on average where 3 of 4 slots are used.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Words of a bucket.
pub(super) const SLOTS: usize = 8;
/// The low 48 bits of a word: the address.
pub(super) const ADDRESS: u64 = (1 << 48) - 1;
/// Used words of a bucket, on average, above which a segment must grow.
pub(super) const FULL: usize = 7;
/// Buckets of the largest segment.
pub(super) const MAX_BUCKETS: usize = 128;

#[repr(C, align(64))]
pub(super) struct Bucket([u64; SLOTS]);

impl Bucket {
    /// Bit i is set if word i carries `tag` (or is empty, where `tag` is 0).
    #[inline(always)]
    pub(super) fn matching(&self, tag: u16) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            self.matching_sse2(tag)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self.matching_scalar(tag)
        }
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn matching_scalar(&self, tag: u16) -> u32 {
        self.0.iter().enumerate().fold(0, |mask, (i, word)| mask | u32::from((word >> 48) as u16 == tag) << i)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn matching_sse2(&self, tag: u16) -> u32 {
        use std::arch::x86_64::*;
        let lanes = self.0.as_ptr().cast::<__m128>();
        // SAFETY: SSE2 is part of x86_64; the bucket is 64 bytes, aligned to 64, so four aligned loads of 16 lie inside.
        unsafe {
            let load = |i: usize| _mm_load_ps(lanes.add(i).cast());
            // The upper halves of four words each, then their upper 16 bits as i32: no saturation in the packs.
            let low = _mm_srai_epi32(_mm_castps_si128(_mm_shuffle_ps(load(0), load(1), 0xDD)), 16);
            let high = _mm_srai_epi32(_mm_castps_si128(_mm_shuffle_ps(load(2), load(3), 0xDD)), 16);
            let equal = _mm_cmpeq_epi16(_mm_packs_epi32(low, high), _mm_set1_epi16(tag as i16));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
        }
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.0[SLOTS - 1] != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.iter().map(|&word| usize::from(word != 0)).sum()
    }

    pub(super) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied().take_while(|&word| word != 0)
    }
}

/// A word of `address` under the low 16 bits of `hash`.
#[inline(always)]
pub(super) fn word(hash: u64, address: u64) -> u64 {
    hash << 48 | address
}

/// Asks the cache for the line at `address`; any address will do.
#[inline(always)]
pub fn prefetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and faults on no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address as usize));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A slot's place in its segment: bucket * 8 + word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex(pub(super) usize);

/// A handle on a segment's memory. Copied freely; who holds one promises (see [`Segment::of`]) that the memory is alive
/// and that nobody else writes to it meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    base: NonNull<Bucket>,
    n_buckets: usize,
}

impl Segment {
    fn layout(n_buckets: usize) -> Layout {
        assert!(0 < n_buckets && n_buckets <= MAX_BUCKETS);
        Layout::array::<Bucket>(n_buckets).expect("128 buckets of 64 bytes fit")
    }

    /// A new segment without words.
    pub(super) fn allocate(n_buckets: usize) -> Segment {
        let layout = Segment::layout(n_buckets);
        // SAFETY: the layout is not empty.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Segment { base: base.cast(), n_buckets }
    }

    /// # Safety
    /// The handle, and every copy of it, is used no more.
    pub(super) unsafe fn free(self) {
        // SAFETY: `allocate` got this memory with this very layout, and the caller lets go of it.
        unsafe { dealloc(self.base.as_ptr().cast(), Segment::layout(self.n_buckets)) }
    }

    /// The handle of the segment at `address`.
    /// # Safety
    /// `address` and `n_buckets` are those of a segment made by `allocate` and not freed while the handle is in use, and
    /// for that time the caller has the access (shared or exclusive) that the methods called need.
    #[inline(always)]
    pub(super) unsafe fn of(address: u64, n_buckets: usize) -> Segment {
        let base = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: an allocated segment's address is not null.
        Segment { base: unsafe { NonNull::new_unchecked(base) }, n_buckets }
    }

    /// The address, for [`Segment::of`].
    pub(super) fn address(self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    pub(super) fn n_buckets(self) -> usize {
        self.n_buckets
    }

    #[inline(always)]
    pub(super) fn home(self, tag: u16) -> usize {
        home(tag, self.n_buckets)
    }

    #[inline(always)]
    pub(super) fn bucket(&self, index: usize) -> &Bucket {
        debug_assert!(index < self.n_buckets);
        // SAFETY: the index is inside the segment (a home is below n_buckets, and probing wraps there), whose memory is
        // alive by the promise made to `of`.
        unsafe { self.base.add(index).as_ref() }
    }

    /// Exclusive access to one bucket; the caller holds no other reference into it.
    #[inline(always)]
    fn bucket_mut(&mut self, index: usize) -> &mut Bucket {
        debug_assert!(index < self.n_buckets);
        // SAFETY: as in `bucket`; exclusive by the promise made to `of`, and the reference borrows the handle.
        unsafe { self.base.add(index).as_mut() }
    }

    #[inline(always)]
    fn next(self, bucket: usize) -> usize {
        if bucket + 1 == self.n_buckets { 0 } else { bucket + 1 }
    }

    /// The slot of the word under `tag` whose address satisfies `is_it`.
    #[inline(always)]
    pub(super) fn find(self, tag: u16, mut is_it: impl FnMut(u64) -> bool) -> Option<SlotIndex> {
        let mut index = self.home(tag);
        loop {
            let bucket = self.bucket(index);
            let mut mask = bucket.matching(tag);
            while mask != 0 {
                let slot = mask.trailing_zeros() as usize;
                let word = bucket.0[slot];
                if word != 0 && is_it(word & ADDRESS) {
                    return Some(SlotIndex(index * SLOTS + slot));
                }
                mask &= mask - 1;
            }
            if !bucket.is_full() {
                return None;
            }
            index = self.next(index);
        }
    }

    /// Asks the cache for the first two lines of what the words under `tag` in their home bucket lead to; for the next
    /// bucket if there are none and it may hold them.
    #[inline(always)]
    pub(super) fn prefetch_targets(self, tag: u16) {
        let index = self.home(tag);
        let bucket = self.bucket(index);
        let mut mask = bucket.matching(tag);
        if mask == 0 && bucket.is_full() {
            prefetch(self.address() + (self.next(index) * size_of::<Bucket>()) as u64);
        }
        while mask != 0 {
            let address = bucket.0[mask.trailing_zeros() as usize] & ADDRESS;
            prefetch(address);
            prefetch(address + 64);
            mask &= mask - 1;
        }
    }

    /// The address under the first word of the home bucket that has `tag`.
    #[inline(always)]
    pub(super) fn first_match(self, tag: u16) -> Option<u64> {
        let bucket = self.bucket(self.home(tag));
        let mask = bucket.matching(tag);
        if mask == 0 {
            return None;
        }
        // Where `tag` is 0 an empty word matches, too.
        let address = bucket.0[mask.trailing_zeros() as usize] & ADDRESS;
        (address != 0).then_some(address)
    }

    /// The word at `slot`, 0 if there is none.
    #[inline(always)]
    pub(super) fn get(self, slot: SlotIndex) -> u64 {
        self.bucket(slot.0 / SLOTS).0[slot.0 % SLOTS]
    }

    #[inline(always)]
    pub(super) fn set(mut self, slot: SlotIndex, word: u64) {
        self.bucket_mut(slot.0 / SLOTS).0[slot.0 % SLOTS] = word;
    }

    /// Puts a word that is not there yet into the first bucket with room, from its home on.
    #[inline(always)]
    pub(super) fn insert(mut self, word: u64) -> SlotIndex {
        let mut index = self.home((word >> 48) as u16);
        while self.bucket(index).is_full() {
            index = self.next(index);
        }
        let bucket = self.bucket_mut(index);
        let slot = bucket.len();
        bucket.0[slot] = word;
        SlotIndex(index * SLOTS + slot)
    }

    /// Empties a slot and moves displaced words back towards their homes.
    pub(super) fn remove(mut self, slot: SlotIndex) {
        let mut hole = slot.0 / SLOTS;
        let mut at = slot.0 % SLOTS;
        loop {
            let bucket = self.bucket_mut(hole);
            let last = bucket.len() - 1;
            bucket.0[at] = bucket.0[last];
            bucket.0[last] = 0;
            if last + 1 < SLOTS {
                return; // It was not full, so nothing was displaced past it.
            }
            let Some((from, displaced)) = self.displaced_past(hole) else { return };
            let word = self.get(SlotIndex(from * SLOTS + displaced));
            self.bucket_mut(hole).0[SLOTS - 1] = word;
            (hole, at) = (from, displaced);
        }
    }

    /// The first word after bucket `hole` that would lie in it, or before it, had there been room.
    fn displaced_past(self, hole: usize) -> Option<(usize, usize)> {
        let n = self.n_buckets;
        let mut index = self.next(hole);
        while index != hole {
            let from_hole = (index + n - hole) % n;
            let bucket = self.bucket(index);
            for (slot, word) in bucket.words().enumerate() {
                let from_home = (index + n - self.home((word >> 48) as u16)) % n;
                if from_home >= from_hole {
                    return Some((index, slot));
                }
            }
            if !bucket.is_full() {
                return None;
            }
            index = self.next(index);
        }
        None
    }

    /// All words, in no useful order.
    pub(super) fn words<'a>(self) -> impl Iterator<Item = u64> + 'a {
        (0..self.n_buckets * SLOTS).map(move |slot| self.get(SlotIndex(slot))).filter(|&word| word != 0)
    }

    /// The words whose 16 hash bits lie in `first..=last`, wherever probing has put them.
    pub(super) fn words_of_homes(self, first: u16, last: u16, mut visit: impl FnMut(u64)) {
        let mut index = self.home(first);
        let mut left = self.n_buckets;
        let last_home = self.home(last);
        let mut past_last_home = false;
        while left > 0 {
            let bucket = self.bucket(index);
            for word in bucket.words().filter(|word| (first..=last).contains(&((word >> 48) as u16))) {
                visit(word);
            }
            past_last_home |= index == last_home;
            if past_last_home && !bucket.is_full() {
                return;
            }
            index = self.next(index);
            left -= 1;
        }
    }
}

/// The home bucket among `n_buckets` of a word with these 16 hash bits.
#[inline(always)]
pub(super) fn home(tag: u16, n_buckets: usize) -> usize {
    (usize::from(tag) * n_buckets) >> 16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The vector and the plain comparison agree on every bucket, also where words repeat or are empty.
        #[test]
        fn matching_twins(words in proptest::array::uniform8(prop_oneof![Just(0), any::<u64>(), 0..4_u64 << 48]), tag: u16) {
            let bucket = Bucket(words);
            for tag in [tag, 0, 1, u16::MAX, (words[3] >> 48) as u16] {
                prop_assert_eq!(bucket.matching(tag), bucket.matching_scalar(tag));
            }
        }

        /// Against a list of words: found if and only if present, displaced words move back, every path is full.
        #[test]
        fn segment_model(
            n_buckets in prop_oneof![Just(1_usize), Just(4), Just(5), Just(128)],
            spread in prop_oneof![Just(3_u16), Just(300), Just(u16::MAX)],
            steps in proptest::collection::vec((any::<bool>(), any::<u16>(), any::<u16>()), 1..1500),
        ) {
            let segment = Segment::allocate(n_buckets);
            let mut model: Vec<u64> = Vec::new();
            for (i, (insert, tag, pick)) in steps.into_iter().enumerate() {
                if insert && model.len() < n_buckets * FULL {
                    let word = word(u64::from(tag % spread), (i as u64 + 1) * 8);
                    segment.insert(word);
                    model.push(word);
                } else if !insert && !model.is_empty() {
                    let word = model.swap_remove(usize::from(pick) % model.len());
                    let slot = segment.find((word >> 48) as u16, |address| address == word & ADDRESS);
                    segment.remove(slot.expect("present"));
                }
            }
            let mut words: Vec<u64> = segment.words().collect();
            words.sort_unstable();
            model.sort_unstable();
            prop_assert_eq!(&words, &model);
            for &word in &model {
                let slot = segment.find((word >> 48) as u16, |address| address == word & ADDRESS);
                prop_assert_eq!(slot.map(|slot| segment.get(slot)), Some(word));
            }
            let mut by_homes = Vec::new();
            for b in 0..64_u16 {
                segment.words_of_homes(b << 10, b << 10 | 1023, |word| by_homes.push(word));
            }
            by_homes.sort_unstable();
            prop_assert_eq!(&by_homes, &model);
            // SAFETY: the last use.
            unsafe { segment.free() };
        }
    }
}
