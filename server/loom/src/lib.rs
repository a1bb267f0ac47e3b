//! The door under every interleaving (loom): a worker that goes to sleep and one that knocks never miss each other.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p skerry-loom --release` runs it; without `--cfg loom` this package is empty. The ring between
//! workers is a crate's; what the door needs of it, that a pushed batch is seen by whoever looks after the fence, is a mailbox here.

#![cfg(loom)]
#![cfg_attr(not(test), allow(dead_code, unused_imports, reason = "there is nothing but tests"))]

#[path = "../../src/door.rs"]
#[allow(unreachable_pub, dead_code, reason = "it is a part of the server's library")]
mod door;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use door::Sleep;

/// The sleeping flag as the model needs it.
trait Flag: Default + Send + Sync + 'static {
    fn may_sleep(&self, has_mail: impl FnOnce() -> bool) -> bool;
    fn must_wake(&self) -> bool;
}

impl Flag for Sleep {
    fn may_sleep(&self, has_mail: impl FnOnce() -> bool) -> bool {
        Sleep::may_sleep(self, has_mail)
    }
    fn must_wake(&self) -> bool {
        Sleep::must_wake(self)
    }
}

/// `Sleep` without its fences: what the model must find broken.
struct Unfenced(AtomicBool);

impl Default for Unfenced {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl Flag for Unfenced {
    fn may_sleep(&self, has_mail: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        if has_mail() {
            self.0.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }
    fn must_wake(&self) -> bool {
        self.0.load(Ordering::Relaxed)
            && self.0.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Two threads share a flag, a mailbox and a waker (a count of wakes, as an eventfd is).
#[derive(Default)]
struct Place<F> {
    flag: F,
    mail: AtomicUsize,
    wakes: AtomicUsize,
}

impl<F: Flag> Place<F> {
    fn new() -> Arc<Self> {
        Arc::new(Self { flag: F::default(), mail: AtomicUsize::new(0), wakes: AtomicUsize::new(0) })
    }

    /// One message: pushed, and the sleeper woken if it sleeps.
    fn knock(&self) {
        self.mail.fetch_add(1, Ordering::Release);
        if self.flag.must_wake() {
            self.wakes.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Acquire) > 0
    }
}

/// The sleeper makes one attempt to sleep. When both are done it must not be asleep with mail and no wake on its way.
fn no_wake_is_lost<F: Flag>() {
    loom::model(|| {
        let place = Place::<F>::new();
        let knocker = {
            let place = place.clone();
            thread::spawn(move || place.knock())
        };
        let sleeps = place.flag.may_sleep(|| place.has_mail());
        knocker.join().expect("the knocker ends");
        let is_woken = place.wakes.load(Ordering::Acquire) > 0;
        assert!(!sleeps || is_woken, "asleep, with mail, and nobody wakes it");
    });
}

#[test]
fn the_door_loses_no_wake() {
    no_wake_is_lost::<Sleep>();
}

/// Two messages from two peers, and a sleeper that wakes, reads and sleeps again. With at most three preemptions: all
/// interleavings of three threads take hours.
#[test]
fn the_door_loses_no_wake_of_two_peers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let place = Place::<Sleep>::new();
        let knockers = [(); 2].map(|()| {
            let place = place.clone();
            thread::spawn(move || place.knock())
        });
        let mut is_asleep = false;
        for _ in 0..2 {
            is_asleep = place.flag.may_sleep(|| place.has_mail());
            if is_asleep && place.wakes.swap(0, Ordering::AcqRel) == 0 {
                // Not woken yet: it stays asleep to the end.
                break;
            }
            is_asleep = false;
            place.flag.woke();
            place.mail.swap(0, Ordering::AcqRel);
        }
        for knocker in knockers {
            knocker.join().expect("the knocker ends");
        }
        let is_woken = place.wakes.load(Ordering::Acquire) > 0;
        assert!(!(is_asleep && place.has_mail()) || is_woken, "asleep, with mail, and nobody wakes it");
    });
}

/// Shows that the model can fail: without the fences each side may miss the other's store.
#[test]
#[should_panic(expected = "asleep, with mail, and nobody wakes it")]
fn without_the_fences_a_wake_is_lost() {
    no_wake_is_lost::<Unfenced>();
}
