//! A heap value that one writer swaps and that readers borrow under a guard: names, attributes, upper links,
//! tables.
//!
//! Invariants: only the set's writer stores; what a swap took out is an `Unlinked` and goes to limbo, never
//! straight to the allocator. Cost of a read: one Acquire load.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::epoch::Guard;

/// A nullable pointer to an owned `T`.
pub(crate) struct Shared<T>(AtomicPtr<T>);

// SAFETY: a `Shared` hands out `&T` on every thread (T: Sync) and the value may be freed by another (T:
// Send).
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: as above; it owns its value like a Box.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(value: Option<T>) -> Shared<T> {
        Shared(AtomicPtr::new(value.map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)))))
    }

    /// What a reader sees. The guard keeps the value from being freed as long as the borrow lasts.
    #[inline]
    pub(crate) fn load<'a>(&'a self, _guard: &'a Guard) -> Option<&'a T> {
        self.load_unguarded()
    }

    /// What the writer sees: only it swaps, and it frees nothing while it holds such a borrow; or a reader
    /// whose guard is known to the caller.
    #[inline]
    pub(crate) fn load_unguarded(&self) -> Option<&T> {
        // SAFETY: the pointer is null or comes from Box::into_raw; the value is freed only after it was
        // swapped out and the epochs of all readers passed, or by Drop, which has exclusive access.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Writer only: publishes `value` and returns what was there.
    pub(crate) fn swap(&self, value: Option<T>) -> Option<Unlinked<T>> {
        let new = value.map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)));
        NonNull::new(self.0.swap(new, Ordering::AcqRel)).map(Unlinked)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if let Some(value) = NonNull::new(*self.0.get_mut()) {
            Unlinked(value).free();
        }
    }
}

/// A value that no new reader can find, but that old ones may still borrow. It leaks unless it is freed.
#[must_use]
pub(crate) struct Unlinked<T>(NonNull<T>);

// SAFETY: it is an owning pointer; T: Send lets another thread free it.
unsafe impl<T: Send> Send for Unlinked<T> {}

impl<T> Unlinked<T> {
    /// Frees the value. The caller knows that every reader's epoch has passed (it came out of limbo) or that
    /// there are no readers.
    pub(crate) fn free(self) {
        // SAFETY: the pointer came from Box::into_raw in Shared::new or swap and left its Shared by that
        // swap, so this is the only owner; the caller vouches for the readers.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::epoch::{Domain, Limbo};

    /// A value that says when it is read after its death, even where the allocator would keep quiet.
    struct Canary {
        alive: AtomicBool,
        n_freed: Arc<AtomicUsize>,
    }

    impl Drop for Canary {
        fn drop(&mut self) {
            self.alive.store(false, Ordering::Relaxed);
            self.n_freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_reader_meets_a_freed_value_and_every_swapped_value_is_freed() {
        const SWAPS: usize = 50_000;
        let n_freed = Arc::new(AtomicUsize::new(0));
        let canary = || Canary { alive: AtomicBool::new(true), n_freed: n_freed.clone() };
        let domain = Domain::new(3);
        let shared = Shared::new(Some(canary()));
        let (stop, n_reads) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut limbo = Limbo::new();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let participant = domain.register().expect("three places");
                    while !stop.load(Ordering::Relaxed) {
                        let guard = participant.pin();
                        let seen = shared.load(&guard).expect("never null");
                        for _ in 0..20 {
                            assert!(seen.alive.load(Ordering::Relaxed));
                        }
                        n_reads.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut swaps = 0;
            while swaps < SWAPS || n_reads.load(Ordering::Relaxed) < SWAPS {
                swaps += 1;
                limbo.push(&domain, shared.swap(Some(canary())).expect("never null"));
                limbo.collect(&domain, 4, Unlinked::free);
            }
            stop.store(true, Ordering::Relaxed);
            swaps
        });
        limbo.collect(&domain, usize::MAX, Unlinked::free);
        assert_eq!(limbo.len(), 0);
        drop(shared);
        assert!(n_freed.load(Ordering::Relaxed) > SWAPS);
    }
}
