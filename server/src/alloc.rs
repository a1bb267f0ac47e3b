//! `Counting`: mimalloc behind a door that counts. `used_memory` is the sum of what went through it.
//!
//! Each thread adds to its own cell (one writer, so a plain load and store), threads beyond the cells share one. A thread
//! that frees what another allocated goes below zero; only the sum means something.
//!
//! Counted is the size of the allocator's block, not what was asked for: [`good_size`], computed from the layout alike
//! when memory comes and goes, so the sum cannot drift. Blocks aligned to more than the allocator's own 8 or 16 bytes are
//! asked for their size, as two kinds of block can serve them.
//!
//! Departure from the `mimalloc` crate: memory aligned to 8 is asked for as such. The crate's aligned call over-allocates
//! every block above 1 KiB whose size is no power of two, and a 5120-byte block then costs 6144.
//!
//! Blocks of 4 MiB and more are maps of their own (`huge`).
//!
//! With the feature `system-allocator` the blocks come from the C library instead, so that AddressSanitizer sees them; what is
//! counted stays the same.
//!
//! Cost: 1 to 2 ns a call.

#[cfg_attr(feature = "system-allocator", allow(dead_code))]
pub mod huge;
mod purging;

pub use purging::{Purger, Purging};

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
#[cfg(not(feature = "system-allocator"))]
use std::ffi::c_void;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};

#[cfg(not(feature = "system-allocator"))]
use mimalloc::MiMalloc;
// Linked for its options alone.
#[cfg(feature = "system-allocator")]
use mimalloc as _;

unsafe extern "C" {
    fn mi_option_get(option: c_int) -> c_long;
    fn mi_option_set(option: c_int, value: c_long);
    #[cfg(not(feature = "system-allocator"))]
    fn mi_stats_print_out(out: unsafe extern "C" fn(*const std::ffi::c_char, *mut c_void), arg: *mut c_void);
}

/// The allocator of the server's binary: `#[global_allocator] static ALLOCATOR: Counting = Counting;`
pub struct Counting;

/// Threads with a counter of their own.
const N_CELLS: usize = 128;

/// One thread's counters, alone on their pair of cache lines.
#[repr(align(128))]
struct Counters {
    used_bytes: AtomicI64,
    n_allocations: AtomicUsize,
}

// Initial value of an array's elements; it is never used as a place.
#[allow(clippy::declare_interior_mutable_const)]
const ZERO: Counters = Counters { used_bytes: AtomicI64::new(0), n_allocations: AtomicUsize::new(0) };
static CELLS: [Counters; N_CELLS] = [ZERO; N_CELLS];
static SHARED: Counters = ZERO;
static N_CLAIMED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// 0: none claimed yet; else one more than the cell's index, or above N_CELLS for the shared cell.
    static CELL: Cell<usize> = const { Cell::new(0) };
}

#[cold]
fn claim() -> usize {
    let claimed = N_CLAIMED.fetch_add(1, Relaxed).min(N_CELLS) + 1;
    CELL.set(claimed);
    claimed
}

/// Adds to the calling thread's counters.
#[inline(always)]
fn count(bytes: i64, allocations: usize) {
    let claimed = CELL.get();
    let claimed = if claimed == 0 { claim() } else { claimed };
    match CELLS.get(claimed - 1) {
        Some(own) => {
            own.used_bytes.store(own.used_bytes.load(Relaxed) + bytes, Relaxed);
            own.n_allocations.store(own.n_allocations.load(Relaxed) + allocations, Relaxed);
        }
        None => {
            SHARED.used_bytes.fetch_add(bytes, Relaxed);
            SHARED.n_allocations.fetch_add(allocations, Relaxed);
        }
    }
}

/// Bytes of all blocks that are allocated now, by all threads. Zero if `Counting` is not the global allocator.
pub fn used_memory() -> usize {
    let cells = &CELLS[..N_CLAIMED.load(Relaxed).min(N_CELLS)];
    let sum: i64 = cells.iter().map(|cell| cell.used_bytes.load(Relaxed)).sum();
    (sum + SHARED.used_bytes.load(Relaxed)).max(0) as usize
}

/// What the allocator says of itself, for people.
#[cfg(not(feature = "system-allocator"))]
pub fn report() -> String {
    /// # Safety
    /// `line` is a C string, `text` the String below.
    unsafe extern "C" fn add(line: *const std::ffi::c_char, text: *mut c_void) {
        // SAFETY: the caller's promise; the String is used by nobody else meanwhile.
        let (line, text) = unsafe { (std::ffi::CStr::from_ptr(line), &mut *text.cast::<String>()) };
        text.push_str(&line.to_string_lossy());
    }
    let mut text = String::new();
    // SAFETY: the callback gets the String back, during the call alone.
    unsafe { mi_stats_print_out(add, (&raw mut text).cast()) };
    text
}

/// The C library does not tell.
#[cfg(feature = "system-allocator")]
pub fn report() -> String {
    String::from("system allocator\n")
}

/// Bytes that the calling thread has allocated less those that it has freed, whoever allocated them: its part of
/// [`used_memory`]. It may be below zero.
#[inline]
pub fn own_used_bytes() -> i64 {
    match CELL.get().checked_sub(1) {
        None => 0,
        Some(index) => CELLS.get(index).unwrap_or(&SHARED).used_bytes.load(Relaxed),
    }
}

/// What the calling thread has done so far (threads beyond the cells are counted together). For tests that hold a path
/// free of allocations, or look for what is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    pub n_allocations: usize,
    /// Bytes allocated less bytes freed, whoever allocated them.
    pub used_bytes: i64,
}

/// See [`ThreadCount`].
pub fn thread_count() -> ThreadCount {
    match CELL.get().checked_sub(1) {
        None => ThreadCount { n_allocations: 0, used_bytes: 0 },
        Some(index) => {
            let counters = CELLS.get(index).unwrap_or(&SHARED);
            ThreadCount {
                n_allocations: counters.n_allocations.load(Relaxed),
                used_bytes: counters.used_bytes.load(Relaxed),
            }
        }
    }
}

/// `mi_option_page_full_retain` of mimalloc's header: below 0, full pages stay with their thread.
const PAGE_FULL_RETAIN: c_int = 36;

/// Full pages of small blocks stay with the thread whose blocks they hold. mimalloc 3 else offers them to all threads, and takes
/// them back for new blocks only when an eighth is free: under eviction, that eighth of all memory lay idle. To be called before
/// the threads start for which it is to hold, and only if one thread allocates nearly all: what another thread frees in a full page
/// is not seen (two workers that evicted long values from each other kept 2.8 times the limit resident, and grew by 3 MB for each
/// SET of 3 MB whose key the other worker owned).
pub fn keep_full_pages() {
    // SAFETY: a plain store of a known option.
    unsafe { mi_option_set(PAGE_FULL_RETAIN, -1) };
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Blocks of this size are watched one by one: `Purging` looks ten times a second, and gigabytes of them are freed in between.
const LARGE_BYTES: usize = 64 * KIB;
/// While resident memory is far above what is allowed, free blocks of this size keep but their first page: they lie between
/// blocks in use, so purging does not get at them. Each page is a fault for the block's next owner, so no more of them do so than
/// is asked for.
const SPARSE_BYTES: usize = 8 * KIB;
/// How far that goes, of [`ALL`].
static SPARSE_PART: AtomicU32 = AtomicU32::new(0);
const ALL: u32 = 256;

thread_local! {
    /// What is carried over to the next block, in parts of [`ALL`].
    static SPARSE_CARRY: Cell<u32> = const { Cell::new(0) };
}

/// Whether the block that is being freed is one of those that keep only their first page. Big ones go first: a call for one gives
/// more pages, and lets the other cores forget as many.
fn is_sparse_turn(part: u32, size: usize) -> bool {
    const BIG_BYTES: usize = 32 * KIB;
    let part = if size >= BIG_BYTES { (2 * part).min(ALL) } else { (4 * part).saturating_sub(3 * ALL) };
    let carry = SPARSE_CARRY.get() + part;
    SPARSE_CARRY.set(carry % ALL);
    carry >= ALL
}

/// So much of freed large blocks keeps its pages, for buffers and values that come and go; less under a `maxmemory`.
const KEPT_LARGE_BYTES: usize = 64 * MIB;
static MAX_KEPT_LARGE: AtomicUsize = AtomicUsize::new(KEPT_LARGE_BYTES);

/// Memory is limited to so much (0: it is not): freed large blocks keep a small part of that.
pub fn limit_kept_large(maxmemory: u64) {
    const KEPT_SHARE: usize = 32;
    let limit = if maxmemory == 0 { usize::MAX } else { usize::try_from(maxmemory).unwrap_or(usize::MAX) };
    MAX_KEPT_LARGE.store((limit / KEPT_SHARE).min(KEPT_LARGE_BYTES), Relaxed);
}
/// Freed large blocks that have kept their pages and, as far as is known, are not in use again.
static KEPT_LARGE: AtomicUsize = AtomicUsize::new(0);

#[cold]
fn note_large(size: usize) {
    // Never fails: the closure always returns a value.
    let _ = KEPT_LARGE.fetch_update(Relaxed, Relaxed, |kept| Some(kept.saturating_sub(size)));
}

/// Gives the pages of a large block that is about to be freed back to the system, if enough of that kind is kept already or
/// resident memory is too high above what is allowed.
/// # Safety
/// The block is allocated, has `size` bytes, and nobody reads it again.
#[cold]
unsafe fn give_back_large(block: *mut u8, size: usize) {
    const PAGE: usize = 4096;
    let part = SPARSE_PART.load(Relaxed);
    if part == 0 || !is_sparse_turn(part, size) {
        if size < LARGE_BYTES || KEPT_LARGE.fetch_add(size, Relaxed) + size <= MAX_KEPT_LARGE.load(Relaxed) {
            return;
        }
        note_large(size);
    }
    // The allocator writes into the block's first bytes.
    let start = 1 + block.wrapping_add(1).align_offset(PAGE);
    let len = (size - start) / PAGE * PAGE;
    // SAFETY: whole pages inside the block, whose bytes nobody reads again. If the system refuses, they just stay.
    unsafe { libc::madvise(block.add(start).cast(), len, libc::MADV_DONTNEED) };
}

/// The size of the block that serves `size` bytes at an alignment of 8: mimalloc's size classes, four to a doubling.
#[inline]
pub const fn good_size(size: usize) -> usize {
    let words = size.div_ceil(8);
    if words <= 1 {
        return 8;
    }
    if words <= 8 {
        // Where mimalloc was built for an alignment of 16 (`build.rs`), blocks are two, four, six or eight words.
        return if cfg!(blocks_of_two_words) { ((words + 1) & !1) * 8 } else { words * 8 };
    }
    if size <= 512 * KIB {
        let shift = (words - 1).ilog2() - 2;
        return ((((words - 1) >> shift) + 1) << shift) * 8;
    }
    let unit = match size {
        _ if size < 2 * MIB => 64 * KIB,
        _ if size < huge::HUGE_BYTES => 256 * KIB,
        _ => return huge::map_bytes(size),
    };
    size.next_multiple_of(unit)
}

#[derive(Clone, Copy)]
enum Contents {
    Any,
    Zero,
}

/// # Safety
/// As of `GlobalAlloc::alloc`.
#[inline(always)]
unsafe fn allocate(layout: Layout, contents: Contents) -> *mut u8 {
    // SAFETY: the caller's promise is the one needed; a block that is there has this layout.
    unsafe {
        let block = blocks::allocate(layout, contents);
        if !block.is_null() {
            count(blocks::counted_bytes(block, layout), 1);
        }
        if layout.size() >= LARGE_BYTES {
            note_large(layout.size());
        }
        block
    }
}

/// Where blocks come from: mimalloc.
#[cfg(not(feature = "system-allocator"))]
mod blocks {
    use super::{Contents, GlobalAlloc, Layout, MiMalloc, c_void, good_size, huge};

    unsafe extern "C" {
        fn mi_malloc(size: usize) -> *mut c_void;
        fn mi_zalloc(size: usize) -> *mut c_void;
        fn mi_free(block: *mut c_void);
        pub(super) fn mi_usable_size(block: *const c_void) -> usize;
    }

    /// The bytes to count for `block`, the same at every time of its life.
    /// # Safety
    /// `block` is allocated, with `layout`.
    #[inline(always)]
    pub(super) unsafe fn counted_bytes(block: *mut u8, layout: Layout) -> i64 {
        if layout.align() <= 8 || huge::serves(layout) {
            good_size(layout.size()) as i64
        } else {
            // SAFETY: the block is allocated and came from mimalloc.
            (unsafe { mi_usable_size(block.cast()) }) as i64
        }
    }

    /// # Safety
    /// As of `GlobalAlloc::alloc`.
    #[inline(always)]
    pub(super) unsafe fn allocate(layout: Layout, contents: Contents) -> *mut u8 {
        if huge::serves(layout) {
            return huge::allocate(layout.size());
        }
        // SAFETY: plain calls of the C library, which accept any size; the layout is not empty, says the caller.
        unsafe {
            let plain = |size| match contents {
                Contents::Any => mi_malloc(size),
                Contents::Zero => mi_zalloc(size),
            };
            if layout.align() <= 8 {
                return plain(layout.size()).cast();
            }
            allocate_aligned(layout, contents, plain)
        }
    }

    /// A block whose size is a multiple of the alignment mostly is aligned by itself; only else it is over-allocated.
    /// # Safety
    /// As of `GlobalAlloc::alloc`.
    unsafe fn allocate_aligned(
        layout: Layout,
        contents: Contents,
        plain: impl Fn(usize) -> *mut c_void,
    ) -> *mut u8 {
        if good_size(layout.size()).is_multiple_of(layout.align()) {
            let block = plain(layout.size());
            if block.addr().is_multiple_of(layout.align()) {
                return block.cast();
            }
            // SAFETY: just allocated, not given away.
            unsafe { mi_free(block) };
        }
        // SAFETY: the caller's layout, unchanged.
        unsafe {
            match contents {
                Contents::Any => MiMalloc.alloc(layout),
                Contents::Zero => MiMalloc.alloc_zeroed(layout),
            }
        }
    }

    /// # Safety
    /// As of `GlobalAlloc::dealloc`.
    #[inline(always)]
    pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: a block of this layout, from where such layouts come from, that the caller gives up.
        unsafe {
            if huge::serves(layout) {
                huge::free(block, layout.size());
            } else {
                mi_free(block.cast());
            }
        }
    }
}

/// Where blocks come from: the C library.
#[cfg(feature = "system-allocator")]
mod blocks {
    use super::{Contents, GlobalAlloc, Layout, good_size};
    use std::alloc::System;

    /// # Safety
    /// None needed; the twin above has some.
    pub(super) unsafe fn counted_bytes(_: *mut u8, layout: Layout) -> i64 {
        good_size(layout.size()) as i64
    }

    /// # Safety
    /// As of `GlobalAlloc::alloc`.
    pub(super) unsafe fn allocate(layout: Layout, contents: Contents) -> *mut u8 {
        // SAFETY: the caller's promise is the one needed.
        unsafe {
            match contents {
                Contents::Any => System.alloc(layout),
                Contents::Zero => System.alloc_zeroed(layout),
            }
        }
    }

    /// # Safety
    /// As of `GlobalAlloc::dealloc`.
    pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the one needed.
        unsafe { System.dealloc(block, layout) };
    }
}

// SAFETY: blocks come from `blocks`, at least as large and as aligned as asked (`allocate_aligned` looks), and go back
// there; counting neither allocates nor unwinds (the thread's cell is a constant without destructor).
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one needed.
        unsafe { allocate(layout, Contents::Any) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { allocate(layout, Contents::Zero) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back a block of ours, with its layout.
        unsafe {
            count(-blocks::counted_bytes(block, layout), 0);
            if layout.size() >= SPARSE_BYTES && !huge::serves(layout) {
                give_back_large(block, layout.size());
            }
            blocks::free(block, layout);
        }
    }

    /// Stays in place within a size class, and moves otherwise, also to a smaller one: so a block's class always is the
    /// one that its layout tells.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let has_room = !cfg!(feature = "system-allocator") && layout.align() <= 8;
        if has_room && good_size(layout.size()) == good_size(new_size) {
            return block;
        }
        // SAFETY: the caller promises a valid new size for this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if has_room && huge::serves(layout) && huge::serves(new_layout) {
            // SAFETY: both layouts say that the block is a map of that size.
            let moved = unsafe { huge::resize(block, layout.size(), new_size) };
            if !moved.is_null() {
                count(good_size(new_size) as i64 - good_size(layout.size()) as i64, 1);
            }
            return moved;
        }
        // SAFETY: the two blocks are distinct and both hold the
        // bytes copied; the old one is given back with its own layout.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(all(test, not(feature = "system-allocator")))]
mod tests {
    use super::blocks::mi_usable_size;
    use super::*;

    /// The arithmetic must be the allocator's own, for every class up to the large ones and around their edges.
    #[test]
    fn good_size_is_the_usable_size() {
        let classes =
            (1..=2200_usize).chain((1..=400).map(|i| i * 1001)).chain((1..=40).map(|i| i * 1_300_001));
        let edges = (6..26).flat_map(|bit| [4, 5, 6, 7].map(|m| m << bit)).flat_map(|n| [n - 1, n, n + 1]);
        for size in classes.chain(edges) {
            for align in [1, 8, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).expect("small");
                // SAFETY: allocated, looked at and freed with one layout.
                unsafe {
                    let block = Counting.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align));
                    let usable = match huge::serves(layout) {
                        true => huge::map_bytes(size),
                        false => mi_usable_size(block.cast()),
                    };
                    assert!(usable >= size);
                    if align <= 8 {
                        assert_eq!(good_size(size), usable, "size {size}");
                    } else if align == 64 && good_size(size).is_multiple_of(64) && size > 64 {
                        assert_eq!(
                            good_size(size),
                            usable,
                            "size {size} aligned to {align} needs no larger block"
                        );
                    }
                    Counting.dealloc(block, layout);
                }
            }
        }
    }

    /// The pages of a huge block are gone as soon as it is freed, not only when the next tick sees that much was freed.
    #[test]
    fn a_huge_block_gives_its_pages_back() {
        let resident = || crate::process::resident_bytes() as usize;
        let layout = Layout::from_size_align(512 * MIB, 8).expect("small");
        let before = resident();
        // SAFETY: written and freed with the layout it was allocated with.
        unsafe {
            let block = Counting.alloc(layout);
            block.write_bytes(7, layout.size());
            assert!(resident() > before + 400 * MIB);
            Counting.dealloc(block, layout);
        }
        assert!(resident() < before + 200 * MIB, "{} MiB stay", (resident() - before) / MIB);
    }

    /// What comes and goes leaves the sum where it was; many threads share the cells and the spare one.
    #[test]
    fn counts_return_to_where_they_were() {
        let threads: Vec<_> = (0..N_CELLS + 20)
            .map(|seed| {
                std::thread::spawn(move || {
                    let own = || thread_count().used_bytes;
                    let before = own();
                    let layout = Layout::from_size_align(100 + seed, 8).expect("small");
                    // SAFETY: grown from and freed with the layouts it had.
                    unsafe {
                        let block = Counting.alloc(layout);
                        block.write_bytes(7, layout.size());
                        let during = own();
                        let block = Counting.realloc(block, layout, 5000);
                        assert!((0..100).all(|i| block.add(i).read() == 7));
                        let block =
                            Counting.realloc(block, Layout::from_size_align(5000, 8).expect("small"), 64);
                        Counting.dealloc(block, Layout::from_size_align(64, 8).expect("small"));
                        // Those that share a cell see each other's bytes as well.
                        if CELL.get() <= N_CELLS {
                            assert_eq!((during - before, own()), (good_size(100 + seed) as i64, before));
                        }
                        assert!(thread_count().n_allocations >= 3);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}
