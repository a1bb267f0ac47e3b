//! Blocks of 4 MiB and more: a map each, so that they grow without a copy and are freed in slices.
//!
//! ```text
//!   allocate ─► mmap        grow ─► mremap (pages move, bytes do not)        free ─► a list through the blocks themselves
//!                                                                            free_slice ─► munmap of a block's last MiB
//! ```
//!
//! mimalloc frees 100 MB in one call of some 10 ms and grows it by copying; while a worker does either it answers nobody.
//! Threads that do not ask for slices (`defer_frees`) free at once. Whoever frees a block frees it in its own slices: maps belong
//! to no thread.
//!
//! Cost: 60 us to free a slice with all pages present; a fresh page costs a fault, as with any block of this size.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::null_mut;

use super::MIB;

const PAGE: usize = 4096;
/// Smaller blocks are copied and freed in a millisecond or so, and mimalloc keeps their pages for the next.
pub(super) const HUGE_BYTES: usize = 4 * MIB;
/// What one call of `free_slice` frees.
const SLICE_BYTES: usize = MIB;

/// Stands at the start of a freed block.
struct Freed {
    next: *mut Freed,
    size: usize,
}

thread_local! {
    static GARBAGE: Cell<*mut Freed> = const { Cell::new(null_mut()) };
    static DEFERS: Cell<bool> = const { Cell::new(false) };
}

/// From here on, this thread's huge blocks wait for `free_slice`. It never ends while some wait.
pub fn defer_frees() {
    DEFERS.set(true);
}

/// Whether freed blocks of this thread wait.
#[inline]
pub fn has_garbage() -> bool {
    !GARBAGE.get().is_null()
}

/// Gives a part of the freed blocks of this thread back to the system.
pub fn free_slice() {
    let block = GARBAGE.get();
    if block.is_null() {
        return;
    }
    // SAFETY: a block of the list is mapped, `size` bytes from its start; its owner gave it up. What is unmapped is its end, or all
    // of it after `next` was read.
    unsafe {
        let size = (*block).size;
        if size <= SLICE_BYTES {
            GARBAGE.set((*block).next);
            libc::munmap(block.cast(), size);
        } else {
            (*block).size = size - SLICE_BYTES;
            libc::munmap(block.cast::<u8>().add(size - SLICE_BYTES).cast(), SLICE_BYTES);
        }
    }
}

/// Whether blocks of this layout are maps.
#[inline(always)]
pub(super) const fn serves(layout: Layout) -> bool {
    layout.size() >= HUGE_BYTES && layout.align() <= PAGE
}

/// Bytes of the map behind a block of `size` bytes.
#[inline(always)]
pub(super) const fn map_bytes(size: usize) -> usize {
    size.next_multiple_of(PAGE)
}

/// A block of zeros, or null.
#[cold]
pub(super) fn allocate(size: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new map at a place of the system's choice touches nothing that exists.
    let block = unsafe { libc::mmap(null_mut(), map_bytes(size), access, kind, -1, 0) };
    if block == libc::MAP_FAILED { null_mut() } else { block.cast() }
}

/// Makes a block bigger or smaller, moving it if need be; null and unchanged if the system refuses.
/// # Safety
/// `block` came from `allocate` or `resize` with the size `old`.
#[cold]
pub(super) unsafe fn resize(block: *mut u8, old: usize, new: usize) -> *mut u8 {
    // SAFETY: the caller's promise: this map is one block, and nobody else uses it.
    let moved = unsafe { libc::mremap(block.cast(), map_bytes(old), map_bytes(new), libc::MREMAP_MAYMOVE) };
    if moved == libc::MAP_FAILED { null_mut() } else { moved.cast() }
}

/// Frees a block: at once, or in slices.
/// # Safety
/// `block` came from `allocate` or `resize` with this size, and nobody uses it again.
#[cold]
pub(super) unsafe fn free(block: *mut u8, size: usize) {
    let size = map_bytes(size);
    // SAFETY: the block is ours now, at least `HUGE_BYTES` long, and aligned to pages.
    unsafe {
        if DEFERS.get() {
            let freed: *mut Freed = block.cast();
            freed.write(Freed { next: GARBAGE.get(), size });
            GARBAGE.set(freed);
        } else {
            libc::munmap(block.cast(), size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows keep the bytes; a deferred free leaves the pages until the slices have gone over them, one slice a call.
    #[test]
    fn blocks_grow_in_place_and_go_in_slices() {
        defer_frees();
        let mut size = HUGE_BYTES;
        let mut block = allocate(size);
        assert!(!block.is_null());
        // SAFETY: inside the block's size of the moment; freed once.
        unsafe {
            block.add(size - 1).write(7);
            for _ in 0..4 {
                let last = size - 1;
                block = resize(block, size, size * 2 + 1);
                size = size * 2 + 1;
                assert_eq!(block.add(last).read(), 7);
                block.add(size - 1).write(7);
            }
            free(block, size);
        }
        let mut n_slices = 0;
        while has_garbage() {
            free_slice();
            n_slices += 1;
        }
        assert_eq!(n_slices, map_bytes(size).div_ceil(SLICE_BYTES));
    }
}
