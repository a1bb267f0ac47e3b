//! `Block`: bytes in a row with free room at both ends and a count beside them, behind one pointer that needs no alignment.
//!
//! ```text
//!  narrow   words 2 | start 2 | end 2 | count 2                                 | room | bytes | room |
//!  wide     0xffff 2 | 0 2 | capacity 4 | start 4 | end 4 | count 4 | unused 4  | room | bytes | room |
//! ```
//!
//! `words` is the allocation in eights of bytes, head and all; `start` and `end` are bytes behind the head. A block is wide when it
//! is larger than the narrow head can say; a block without room is one for all, in no allocation, and never written.
//!
//! Invariants: `start <= end <= capacity`; the bytes from `start` to `end` have been written; the allocation is a size class of the
//! allocator in full. It knows nothing of what the bytes mean, and the count is its owner's.
//! Cost: 8 bytes over the bytes, up to 64 KiB; a change reads and writes the head, one word.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::alloc::good_size;

const NARROW_BYTES: usize = 8;
const WIDE_BYTES: usize = 24;
const WIDE: u16 = u16::MAX;
/// The largest narrow allocation: its offsets fit 16 bits, and its words are not `WIDE`.
const NARROW_MAX_BYTES: usize = u16::MAX as usize & !7;

/// The head of a wide block.
#[repr(C)]
#[derive(Clone, Copy)]
struct WideHead {
    mark: u16,
    zero: u16,
    capacity: u32,
    start: u32,
    end: u32,
    count: u32,
    unused: u32,
}

const _: () = assert!(size_of::<WideHead>() == WIDE_BYTES);

/// The block without room.
static NO_ROOM: u64 = 1;

/// What a head says.
#[derive(Clone, Copy)]
struct Span {
    /// Bytes of the head.
    head: usize,
    start: usize,
    end: usize,
    count: usize,
    /// Bytes behind the head.
    capacity: usize,
}

#[repr(C, packed)]
pub struct Block(NonNull<u64>);

// SAFETY: owns its allocation alone, or is the block without room, which nobody writes.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block is only read.
unsafe impl Sync for Block {}

impl Default for Block {
    fn default() -> Block {
        Block(NonNull::from(&NO_ROOM))
    }
}

impl Block {
    /// Without bytes, with room for `n_bytes` and what is left of the size class.
    pub fn with_capacity(n_bytes: usize) -> Block {
        if n_bytes == 0 {
            return Block::default();
        }
        let narrow = good_size(NARROW_BYTES + n_bytes);
        let is_narrow = narrow <= NARROW_MAX_BYTES;
        let size = if is_narrow { narrow } else { good_size(WIDE_BYTES + n_bytes) };
        let layout = layout(size);
        // SAFETY: the layout is not empty.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let block = Block(base.cast());
        let place: NonNull<u64> = base.cast();
        // SAFETY: new memory, aligned to 8, with room for the head that is written.
        unsafe {
            if is_narrow {
                place.write(size as u64 / 8);
            } else {
                let capacity = u32::try_from(size - WIDE_BYTES).expect("owners convert long before 4 GiB");
                let head = WideHead { mark: WIDE, zero: 0, capacity, start: 0, end: 0, count: 0, unused: 0 };
                place.cast().write(head);
            }
        }
        block
    }

    #[inline(always)]
    fn span(&self) -> Span {
        let place = self.0;
        // SAFETY: every block has a head of a word at least, written when it was made.
        let word = unsafe { place.read() };
        let part = |nth: u32| (word >> (16 * nth) & 0xffff) as usize;
        if word as u16 != WIDE {
            let capacity = part(0) * 8 - NARROW_BYTES;
            return Span { head: NARROW_BYTES, start: part(1), end: part(2), count: part(3), capacity };
        }
        // SAFETY: the mark says that a wide head was written.
        let wide = unsafe { place.cast::<WideHead>().read() };
        Span {
            head: WIDE_BYTES,
            start: wide.start as usize,
            end: wide.end as usize,
            count: wide.count as usize,
            capacity: wide.capacity as usize,
        }
    }

    /// Writes what has changed of a span that `span` told: all but head and capacity.
    #[inline(always)]
    fn set(&mut self, span: Span) {
        debug_assert!(span.start <= span.end && span.end <= span.capacity && span.capacity > 0);
        let place = self.0;
        // SAFETY: a head of this kind stands there; a block with room is ours alone.
        unsafe {
            if span.head == NARROW_BYTES {
                assert!(span.count <= usize::from(u16::MAX), "an element takes two bytes at least");
                let words = ((span.capacity + NARROW_BYTES) / 8) as u64;
                let (start, end, count) = (span.start as u64, span.end as u64, span.count as u64);
                place.write(words | start << 16 | end << 32 | count << 48);
            } else {
                let head = place.cast::<WideHead>().as_mut();
                (head.start, head.end, head.count) = (span.start as u32, span.end as u32, span.count as u32);
            }
        }
    }

    /// The place `at` bytes behind the head.
    #[inline(always)]
    fn at(&self, span: Span, at: usize) -> *mut u8 {
        debug_assert!(at <= span.capacity);
        let place = self.0;
        // SAFETY: inside the allocation, or its end.
        unsafe { place.cast::<u8>().add(span.head + at).as_ptr() }
    }

    /// The allocation's address, for the cache.
    #[inline(always)]
    pub fn address(&self) -> usize {
        let place = self.0;
        place.addr().get()
    }

    #[inline(always)]
    pub fn count(&self) -> usize {
        self.span().count
    }

    #[inline(always)]
    pub fn set_count(&mut self, count: usize) {
        let span = self.span();
        if span.count != count {
            self.set(Span { count, ..span });
        }
    }

    /// Bytes of the allocation.
    pub fn allocated_bytes(&self) -> usize {
        match self.span() {
            Span { capacity: 0, .. } => 0,
            span => span.head + span.capacity,
        }
    }

    /// Bytes there is room for, those that are there included.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.span().capacity
    }

    /// Free bytes in front.
    #[inline(always)]
    pub fn n_free_front(&self) -> usize {
        self.span().start
    }

    /// Free bytes behind.
    #[inline(always)]
    pub fn n_free_back(&self) -> usize {
        let span = self.span();
        span.capacity - span.end
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        let span = self.span();
        span.end - span.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let span = self.span();
        // SAFETY: the bytes from start to end have been written, and stay while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.at(span, span.start), span.end - span.start) }
    }

    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let span = self.span();
        // SAFETY: as above; ours alone (of the block without room there are none).
        unsafe { std::slice::from_raw_parts_mut(self.at(span, span.start), span.end - span.start) }
    }

    /// Puts bytes, which are zero, behind the others, and shows them. There is room.
    #[inline(always)]
    pub fn grow_back(&mut self, n: usize) -> &mut [u8] {
        let span = self.span();
        assert!(n <= span.capacity - span.end, "the caller has made room");
        let place = self.at(span, span.end);
        // SAFETY: from `end` to the capacity the memory is the block's and nobody's; what is told is written first.
        unsafe { place.write_bytes(0, n) };
        if n > 0 {
            self.set(Span { end: span.end + n, ..span });
        }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(place, n) }
    }

    /// Puts three pieces behind the other bytes. There is room.
    #[inline(always)]
    pub fn push_back(&mut self, pieces: [&[u8]; 3]) {
        let span = self.span();
        let n: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(n <= span.capacity - span.end, "the caller has made room");
        let mut to = self.at(span, span.end);
        for piece in pieces {
            // SAFETY: the pieces fit by the assertion; nobody can have borrowed them from here.
            unsafe {
                to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                to = to.add(piece.len());
            }
        }
        if n > 0 {
            self.set(Span { end: span.end + n, ..span });
        }
    }

    /// Puts three pieces before the other bytes. There is room.
    #[inline(always)]
    pub fn push_front(&mut self, pieces: [&[u8]; 3]) {
        let span = self.span();
        let n: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(n <= span.start, "the caller has made room");
        let mut to = self.at(span, span.start - n);
        for piece in pieces {
            // SAFETY: as above, before `start`.
            unsafe {
                to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                to = to.add(piece.len());
            }
        }
        if n > 0 {
            self.set(Span { start: span.start - n, ..span });
        }
    }

    /// Lets the first `n` bytes go, whose room stays in front.
    #[inline(always)]
    pub fn cut_front(&mut self, n: usize) {
        let span = self.span();
        assert!(n <= span.end - span.start);
        if n > 0 {
            self.set(Span { start: span.start + n, ..span });
        }
    }

    /// Lets the last `n` bytes go, whose room stays behind.
    #[inline(always)]
    pub fn cut_back(&mut self, n: usize) {
        let span = self.span();
        assert!(n <= span.end - span.start);
        if n > 0 {
            self.set(Span { end: span.end - n, ..span });
        }
    }

    /// Moves the bytes within the room, so that `start` are free in front of them.
    pub fn slide(&mut self, start: usize) {
        let span = self.span();
        let len = span.end - span.start;
        assert!(start <= span.capacity - len);
        if start != span.start {
            // SAFETY: both places lie within the capacity; the bytes moved have been written.
            unsafe { self.at(span, start).copy_from(self.at(span, span.start), len) };
            self.set(Span { start, end: start + len, ..span });
        }
    }

    /// Moves the bytes to an allocation with room for `n_bytes`, `start` free in front of them.
    pub fn relocate(&mut self, start: usize, n_bytes: usize) {
        let old = self.span();
        let len = old.end - old.start;
        let mut block = Block::with_capacity(n_bytes.max(start + len));
        let span = block.span();
        if span.capacity > 0 {
            // SAFETY: the capacity is at least `start + len`; another allocation.
            unsafe { block.at(span, start).copy_from_nonoverlapping(self.at(old, old.start), len) };
            block.set(Span { start, end: start + len, count: old.count, ..span });
        }
        *self = block;
    }
}

/// Bytes behind the head of the smallest block with room for so many.
pub fn good_capacity(n_bytes: usize) -> usize {
    match good_size(NARROW_BYTES + n_bytes) {
        narrow @ ..=NARROW_MAX_BYTES => narrow - NARROW_BYTES,
        _ => good_size(WIDE_BYTES + n_bytes) - WIDE_BYTES,
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("below 4 GiB")
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let size = self.allocated_bytes();
        if size > 0 {
            // SAFETY: `with_capacity` got this memory with this layout, and nobody uses it after.
            unsafe { dealloc(self.0.as_ptr().cast(), layout(size)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a deque of bytes, over both heads.
        #[test]
        fn block_model(steps in prop::collection::vec((0..8_u8, 0..3000_usize), 1..120)) {
            let (mut block, mut model) = (Block::default(), std::collections::VecDeque::<u8>::new());
            for (nth, (step, n)) in steps.into_iter().enumerate() {
                let piece = vec![nth as u8; n * (1 + usize::from(nth % 7 == 0) * 9)];
                let (head, tail) = piece.split_at(piece.len() / 3);
                match step {
                    0 | 1 => {
                        if block.n_free_back() < piece.len() {
                            block.relocate(0, block.len() + piece.len());
                        }
                        block.push_back([head, tail, &[]]);
                        model.extend(&piece);
                    }
                    2 => {
                        if block.n_free_front() < piece.len() {
                            let free = piece.len() + n;
                            block.relocate(free, free + block.len());
                        }
                        block.push_front([head, &[], tail]);
                        piece.iter().rev().for_each(|byte| model.push_front(*byte));
                    }
                    3 => {
                        let n = n.min(model.len());
                        block.cut_front(n);
                        model.drain(..n);
                    }
                    4 => {
                        let n = n.min(model.len());
                        block.cut_back(n);
                        model.truncate(model.len() - n);
                    }
                    5 => block.slide(n % (block.capacity() - block.len() + 1)),
                    6 => block.relocate(n, n + block.len()),
                    _ => {
                        let n = n.min(block.n_free_back());
                        block.grow_back(n).fill(7);
                        model.extend(vec![7; n]);
                    }
                }
                if block.capacity() > 0 {
                    block.set_count(nth);
                    prop_assert_eq!(block.count(), nth);
                    prop_assert_eq!(good_capacity(block.capacity()), block.capacity());
                }
                prop_assert!(block.bytes().iter().eq(&model));
                prop_assert_eq!((block.len(), block.bytes_mut().len()), (model.len(), model.len()));
                prop_assert_eq!(block.n_free_front() + block.n_free_back() + block.len(), block.capacity());
            }
        }
    }

    #[test]
    fn a_narrow_head_is_a_word() {
        assert_eq!(size_of::<Block>(), 8);
        assert_eq!(
            (Block::with_capacity(184).allocated_bytes(), Block::with_capacity(185).allocated_bytes()),
            (192, 224)
        );
        assert_eq!((Block::default().allocated_bytes(), Block::default().capacity()), (0, 0));
        assert!(Block::with_capacity(70_000).capacity() >= 70_000);
    }
}
