//! The directory's words, and the sizes that segments take.

use super::segment::{ADDRESS, MAX_BUCKETS, SLOTS, Segment};

/// A directory word, see the layout above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirWord(pub(super) u64);

const SEGMENT_ADDRESS: u64 = ADDRESS & !63;
pub(super) const COUNT_ONE: u64 = 1 << 48;
const COUNT_BITS: u64 = 1023 << 48;

impl DirWord {
    pub(super) fn new(segment: Option<Segment>, count: usize, depth: u32) -> DirWord {
        debug_assert!(count < 1024 && depth < 64);
        let (class, address) = match segment {
            Some(segment) => (class_of(segment.n_buckets()), segment.address()),
            None => (0, 0),
        };
        DirWord(class << 58 | (count as u64) << 48 | address | u64::from(depth))
    }

    pub(super) fn local_depth(self) -> u32 {
        (self.0 & 63) as u32
    }

    pub(super) fn count(self) -> usize {
        ((self.0 & COUNT_BITS) >> 48) as usize
    }

    #[inline(always)]
    pub(super) fn address(self) -> u64 {
        self.0 & SEGMENT_ADDRESS
    }

    /// Four buckets a class; class 0 is a single one.
    #[inline(always)]
    pub(super) fn n_buckets(self) -> usize {
        let class = self.0 >> 58;
        (class << 2 | u64::from(class == 0)) as usize
    }

    /// # Safety
    /// The word is in its table's directory, and the caller has the access to the table that it uses the handle for.
    #[inline(always)]
    pub(super) unsafe fn segment(self) -> Option<Segment> {
        // SAFETY: the directory holds the segments it has allocated, with their sizes.
        (self.address() != 0).then(|| unsafe { Segment::of(self.address(), self.n_buckets()) })
    }

    pub(super) fn without_count(self) -> DirWord {
        DirWord(self.0 & !COUNT_BITS)
    }
}

fn class_of(n_buckets: usize) -> u64 {
    debug_assert!(n_buckets == 1 || n_buckets.is_multiple_of(4));
    (n_buckets / 4) as u64
}

/// The sizes that segments take, in buckets: each a size class of the allocator.
pub(super) const SIZES: [usize; 16] = [1, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128];
const _: () = assert!(SIZES[15] == MAX_BUCKETS && MAX_BUCKETS * SLOTS <= 1024, "the count has 10 bits");

/// Slots of a bucket's eight that are used in a segment that has just been made.
pub(super) const ROOMY: usize = 6;

/// The smallest size of which `count` words use at most so many slots.
pub(super) fn roomy_size(count: usize) -> usize {
    SIZES.into_iter().find(|n| count <= n * ROOMY).unwrap_or(MAX_BUCKETS)
}
