//! `Loose`: an owned value behind a pointer that needs no alignment, so that the enums of values which an entry holds are a
//! pointer and their tags, ten bytes, not words.
//!
//! Otherwise it is a `Box`. It knows nothing of what it owns. Cost: an unaligned load is as fast as any here.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// An owned value in an allocation of its own.
#[repr(C, packed)]
pub struct Loose<T>(NonNull<T>);

// SAFETY: owns its value alone, like a `Box`.
unsafe impl<T: Send> Send for Loose<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Loose<T> {}

impl<T> Loose<T> {
    pub fn new(value: T) -> Loose<T> {
        Loose::from(Box::new(value))
    }

    pub fn into_box(self) -> Box<T> {
        let place = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: the pointer came from a box, and `self` gives it up.
        unsafe { Box::from_raw(place.as_ptr()) }
    }
}

impl<T> From<Box<T>> for Loose<T> {
    fn from(owned: Box<T>) -> Loose<T> {
        Loose(NonNull::from(Box::leak(owned)))
    }
}

impl<T> Deref for Loose<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        let place = self.0;
        // SAFETY: alive and aligned, as the box has left it; borrowed with `self`.
        unsafe { place.as_ref() }
    }
}

impl<T> DerefMut for Loose<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        let mut place = self.0;
        // SAFETY: as above, exclusively.
        unsafe { place.as_mut() }
    }
}

impl<T: Clone> Clone for Loose<T> {
    fn clone(&self) -> Loose<T> {
        Loose::new(T::clone(self))
    }
}

impl<T> Drop for Loose<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box, and nobody uses it after this.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
