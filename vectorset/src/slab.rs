//! Memory of fixed-size records that never move: chunks found through a small directory.
//!
//! ```text
//!   index + 8 = x      x < full:  chunk = log2(x) - 3, place = x without its top bit   8, 16, 32 ... records
//!                      x >= full: chunk = few + x / full, place = x % full            chunks of one size
//!   directory: [ *chunk | *chunk | null | ... ]  growth publishes a longer copy; old ones are kept (they sum
//!                                                up to less than the newest): a reader may still look there
//! ```
//!
//! A small set costs a few hundred bytes, a big one grows by one chunk of about 8 MiB at a time: nothing is
//! copied and no growth doubles the memory. Chunks of 2 MiB and more are 2 MiB aligned and huge pages are
//! asked for. Invariants: only the writer grows and releases; a chunk is released only when no reader can
//! know an index in it. It must never know what a record holds.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

const FIRST_BITS: u32 = 3;
const MAX_FULL_BITS: u32 = 15;
const FULL_CHUNK_BYTES: usize = 8 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const CACHE_LINE_BYTES: usize = 64;

/// How indices map to chunks. Slabs of one geometry have equal chunk numbers for equal indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    full_bits: u32,
}

impl Geometry {
    /// The geometry whose full chunk of records of `stride` bytes is about 8 MiB.
    pub(crate) fn for_stride(stride: usize) -> Geometry {
        let records = (FULL_CHUNK_BYTES / stride).max(1);
        Geometry { full_bits: records.ilog2().clamp(FIRST_BITS, MAX_FULL_BITS) }
    }

    /// Chunk number and place within the chunk.
    #[inline(always)]
    pub(crate) fn locate(self, index: u32) -> (usize, usize) {
        let x = index + (1 << FIRST_BITS);
        let full = x >> self.full_bits;
        if full != 0 {
            ((self.full_bits - FIRST_BITS + full - 1) as usize, (x & ((1 << self.full_bits) - 1)) as usize)
        } else {
            let top = x.ilog2();
            ((top - FIRST_BITS) as usize, (x ^ (1 << top)) as usize)
        }
    }

    /// Records in chunk `chunk`.
    pub(crate) fn records(self, chunk: usize) -> usize {
        1 << (FIRST_BITS + chunk as u32).min(self.full_bits)
    }
}

/// The records' memory. What lies in it and who may touch it is the matter of the typed owners.
pub(crate) struct Slab {
    geometry: Geometry,
    stride: usize,
    directory: AtomicPtr<AtomicPtr<u8>>,
    /// Every directory ever published, newest last. Only the writer locks it, and only to grow or release.
    directories: Mutex<Vec<Box<[AtomicPtr<u8>]>>>,
}

impl Slab {
    pub(crate) fn new(geometry: Geometry, stride: usize) -> Slab {
        let directories = Mutex::new(Vec::new());
        Slab { geometry, stride, directory: AtomicPtr::new(ptr::null_mut()), directories }
    }

    /// Where record `index` lies.
    ///
    /// # Safety The chunk of `index` is present: `ensure` was called for it, and it was not released since. A
    /// reader has this from the protocol: it got the index by an Acquire load under a guard.
    #[inline(always)]
    pub(crate) unsafe fn record(&self, index: u32) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.record_at(self.geometry.locate(index)) }
    }

    /// As `record`, with the place already found by the slab's geometry.
    ///
    /// # Safety
    /// As `record`.
    #[inline(always)]
    pub(crate) unsafe fn record_at(&self, (chunk, place): (usize, usize)) -> *mut u8 {
        // SAFETY: the directory that was newest when the chunk was made, and every later one, covers `chunk`.
        unsafe {
            let base = (*self.directory.load(Ordering::Acquire).add(chunk)).load(Ordering::Acquire);
            base.add(place * self.stride)
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Writer only: makes the chunk of `index` present. Returns the bytes allocated for it.
    pub(crate) fn ensure(&self, index: u32) -> usize {
        let (chunk, _) = self.geometry.locate(index);
        let mut directories = self.directories.lock().expect("the writer panicked while growing");
        let covered = directories.last().map_or(0, |newest| newest.len());
        if chunk >= covered {
            let grown: Box<[AtomicPtr<u8>]> = (0..(covered * 2).max(chunk + 4).max(8))
                .map(|i| match directories.last().and_then(|newest| newest.get(i)) {
                    Some(chunk) => AtomicPtr::new(chunk.load(Ordering::Relaxed)),
                    None => AtomicPtr::new(ptr::null_mut()),
                })
                .collect();
            directories.push(grown);
            let newest = directories.last().expect("just pushed");
            self.directory.store(newest.as_ptr().cast_mut(), Ordering::Release);
        }
        let entry = &directories.last().expect("covers the chunk")[chunk];
        if !entry.load(Ordering::Relaxed).is_null() {
            return 0;
        }
        let layout = self.layout(chunk);
        // SAFETY: the layout is not empty: stride and record count are positive.
        let base = unsafe { alloc(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        ask_for_huge_pages(base, layout);
        entry.store(base, Ordering::Release);
        layout.size()
    }

    /// Writer only: gives chunk `chunk` back to the allocator, if present. Returns its bytes.
    ///
    /// # Safety
    /// No reader can know an index in the chunk any more, and no record in it is in use.
    pub(crate) unsafe fn release(&self, chunk: usize) -> usize {
        let directories = self.directories.lock().expect("the writer panicked while growing");
        let Some(entry) = directories.last().and_then(|newest| newest.get(chunk)) else { return 0 };
        let base = entry.swap(ptr::null_mut(), Ordering::AcqRel);
        if base.is_null() {
            return 0;
        }
        // Older directories may still name the chunk, but only readers that know an index in it would look
        // there.
        // SAFETY: allocated in `ensure` with this layout; the caller vouches that nobody uses it.
        unsafe { dealloc(base, self.layout(chunk)) };
        self.layout(chunk).size()
    }

    fn layout(&self, chunk: usize) -> Layout {
        let bytes = self.geometry.records(chunk) * self.stride;
        let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { CACHE_LINE_BYTES };
        Layout::from_size_align(bytes, align).expect("a chunk's size is bounded by 8 records or 8 MiB")
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let chunks = self.directories.get_mut().map_or(0, |all| all.last().map_or(0, |newest| newest.len()));
        for chunk in 0..chunks {
            // SAFETY: `&mut self`: there are no readers and no writer.
            unsafe { self.release(chunk) };
        }
    }
}

fn ask_for_huge_pages(base: *mut u8, layout: Layout) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if layout.align() >= HUGE_PAGE_BYTES {
        // SAFETY: the range was just allocated; MADV_HUGEPAGE is advice and changes no content. A refusal is
        // harmless.
        unsafe { libc::madvise(base.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (base, layout);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinct_and_within_their_chunk() {
        for full_bits in [FIRST_BITS, 5, 9] {
            let geometry = Geometry { full_bits };
            let mut next = (0, 0);
            for index in 0..5_000 {
                let (chunk, place) = geometry.locate(index);
                if place == 0 && index > 0 {
                    assert_eq!(next.1, geometry.records(next.0), "chunk {} is filled", next.0);
                    next = (next.0 + 1, 0);
                }
                assert_eq!((chunk, place), next);
                next.1 += 1;
            }
        }
    }

    #[test]
    fn records_keep_their_place_and_content_while_the_slab_grows() {
        let slab = Slab::new(Geometry { full_bits: 6 }, 64);
        let mut places = Vec::new();
        for index in 0..3_000_u32 {
            slab.ensure(index);
            // SAFETY: just ensured.
            let place = unsafe { slab.record(index) };
            assert_eq!(place.align_offset(CACHE_LINE_BYTES), 0);
            // SAFETY: a record of 64 bytes that nobody else uses.
            unsafe { place.cast::<u32>().write(index) };
            places.push(place);
        }
        for (index, &place) in places.iter().enumerate() {
            // SAFETY: as above.
            unsafe {
                assert_eq!(slab.record(index as u32), place);
                assert_eq!(place.cast::<u32>().read(), index as u32);
            }
        }
    }
}
