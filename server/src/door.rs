//! How a worker goes to sleep without missing a message, and is woken only if it sleeps.
//!
//! ```text
//!   sleeper:  asleep = true ; fence ; look at the rings again ; poll            knocker:  push ; fence ; if asleep: clear, wake
//! ```
//!
//! The two fences make one of the two see the other: either the sleeper finds the message, or the knocker finds it asleep. The model
//! tests under loom (`server/loom`) try every interleaving.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// The sleeping flag alone; what wakes is the caller's.
#[derive(Debug)]
pub struct Sleep {
    is_asleep: AtomicBool,
}

impl Default for Sleep {
    fn default() -> Self {
        Self { is_asleep: AtomicBool::new(false) }
    }
}

impl Sleep {
    /// Called before a blocking poll; `has_mail` is asked after the flag stands. True: sleep; false: there is mail.
    pub fn may_sleep(&self, has_mail: impl FnOnce() -> bool) -> bool {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_mail() {
            self.is_asleep.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Called after the poll.
    pub fn woke(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Called after a push: whether the sleeper has to be woken.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // Two knockers may have seen it asleep; one wakes. The other writes nothing, so that it cannot undo a later sleep.
        self.is_asleep.load(Ordering::Relaxed)
            && self.is_asleep.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A worker's door: the flag on a line of its own, and the waker.
#[cfg(not(loom))]
#[repr(align(128))]
pub struct Door {
    pub sleep: Sleep,
    waker: mio::Waker,
}

#[cfg(not(loom))]
impl Door {
    pub fn new(waker: mio::Waker) -> Self {
        Self { sleep: Sleep::default(), waker }
    }

    /// Wakes the worker if it sleeps.
    pub fn knock(&self) {
        if self.sleep.must_wake() {
            self.ring();
        }
    }

    /// Wakes the worker whether it sleeps or not (control plane).
    pub fn ring(&self) {
        if let Err(error) = self.waker.wake() {
            crate::log::warning(&format!("Waking a worker failed: {error}"));
        }
    }
}
