//! `ThinBytes`: a byte string behind one pointer, the member of a big set. `[u32 length | bytes]`, aligned to 8.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::table::TableEntry;

const HEADER_BYTES: usize = 4;

/// An owned byte string of at most 4 GiB in one allocation of `4 + len` bytes.
pub struct ThinBytes(NonNull<u8>);

// SAFETY: owns its memory, like a `Box<[u8]>`.
unsafe impl Send for ThinBytes {}
// SAFETY: as above.
unsafe impl Sync for ThinBytes {}

impl ThinBytes {
    pub fn new(bytes: &[u8]) -> ThinBytes {
        let layout = ThinBytes::layout(bytes.len());
        // SAFETY: the layout has at least the four bytes of the header.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: `base` has room for the length and the bytes after it, and is aligned to 8.
        unsafe {
            base.cast::<u32>().write(bytes.len() as u32);
            base.add(HEADER_BYTES).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        ThinBytes(base)
    }

    fn layout(len: usize) -> Layout {
        assert!(len <= u32::MAX as usize, "a member has at most 4 GiB");
        Layout::from_size_align(HEADER_BYTES + len, 8).expect("4 GiB fit")
    }

    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: alive and unchanged while `self` is borrowed.
        unsafe { ThinBytes::borrow(self.0) }
    }

    /// Bytes asked from the allocator.
    pub fn allocated_bytes(&self) -> usize {
        HEADER_BYTES + self.as_bytes().len()
    }
}

impl Drop for ThinBytes {
    fn drop(&mut self) {
        let layout = ThinBytes::layout(self.as_bytes().len());
        // SAFETY: `new` got this memory with this layout; nobody uses it after.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

// SAFETY: one allocation aligned to 8, owned; its bytes never change.
unsafe impl TableEntry for ThinBytes {
    type Ref<'a> = &'a [u8];

    fn into_raw(self) -> NonNull<u8> {
        self.0.as_ptr().expose_provenance();
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        ThinBytes(raw)
    }

    #[inline(always)]
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the caller keeps the owner alive; `new` has written length and bytes.
        unsafe {
            std::slice::from_raw_parts(raw.add(HEADER_BYTES).as_ptr(), raw.cast::<u32>().read() as usize)
        }
    }

    fn key<'a>(entry: &'a [u8]) -> &'a [u8]
    where
        Self: 'a,
    {
        entry
    }
}
