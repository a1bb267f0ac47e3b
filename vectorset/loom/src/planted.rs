//! The same models with faults planted: each must be found, or the models prove nothing.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use crate::links::{self, EMPTY};
use crate::set::Graph;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A link that is stored Relaxed: its reader may see the row unwritten.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_link_without_release_is_found() {
    check(|| {
        let graph = Arc::new(Graph::new());
        let reader = {
            let graph = graph.clone();
            thread::spawn(move || links::iter(&graph.slots).for_each(|id| _ = graph.read(id)))
        };
        graph.write(1, 7);
        graph.slots[0].store(1, Ordering::Relaxed);
        reader.join().expect("the reader ends");
    });
}

/// A row that is written over at once, without limbo.
#[test]
#[should_panic(expected = "Causality violation")]
fn an_id_used_again_at_once_is_found() {
    check(|| {
        let graph = Arc::new(Graph::new());
        graph.write(1, 7);
        links::append(&graph.slots, 1);
        let reader = {
            let graph = graph.clone();
            thread::spawn(move || links::iter(&graph.slots).for_each(|id| _ = graph.read(id)))
        };
        links::take_out(&graph.slots, 1);
        graph.write(1, 8);
        reader.join().expect("the reader ends");
    });
}

/// The epochs in miniature, with what may be wrong about them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The reader announces itself without a fence.
    Unfenced,
    /// The writer scans the hold before the pin.
    HoldFirst,
    /// The reader ends its pin before it holds.
    PinEndsFirst,
    /// The tag is taken, and the epoch advanced, before the link is gone.
    TaggedEarly,
    None,
}

const IDLE: u64 = 0;

/// One reader's slot, as `epoch::Slot` has it.
struct Slot {
    global: AtomicU64,
    pinned: AtomicU64,
    held: AtomicU64,
}

/// The reader pins, follows the link, holds, ends its pin, reads the row and lets go. The writer unlinks, tags, scans, and writes
/// the row over if it may.
fn model_with(fault: Fault) {
    check(move || {
        let graph = Arc::new(Graph::new());
        graph.write(1, 7);
        links::append(&graph.slots, 1);
        let slot = Arc::new(Slot {
            global: AtomicU64::new(1),
            pinned: AtomicU64::new(IDLE),
            held: AtomicU64::new(IDLE),
        });
        let reader = {
            let (graph, slot) = (graph.clone(), slot.clone());
            thread::spawn(move || {
                let epoch = slot.global.load(Ordering::Relaxed);
                slot.pinned.store(epoch, Ordering::Release);
                if fault != Fault::Unfenced {
                    fence(Ordering::SeqCst);
                }
                let seen = links::iter(&graph.slots).next();
                if fault == Fault::PinEndsFirst {
                    slot.pinned.store(IDLE, Ordering::Release);
                    slot.held.store(epoch, Ordering::Release);
                } else {
                    slot.held.store(epoch, Ordering::Release);
                    slot.pinned.store(IDLE, Ordering::Release);
                }
                if let Some(id) = seen {
                    assert_eq!(graph.read(id), 7);
                }
                slot.held.store(IDLE, Ordering::Release);
            })
        };
        let tag = if fault == Fault::TaggedEarly {
            let tag = slot.global.load(Ordering::Relaxed);
            slot.global.fetch_add(1, Ordering::SeqCst);
            graph.slots[0].store(EMPTY, Ordering::Release);
            tag
        } else {
            graph.slots[0].store(EMPTY, Ordering::Release);
            fence(Ordering::SeqCst);
            let tag = slot.global.load(Ordering::Relaxed);
            slot.global.fetch_add(1, Ordering::SeqCst);
            tag
        };
        fence(Ordering::SeqCst);
        let (pinned, held) = if fault == Fault::HoldFirst {
            let held = slot.held.load(Ordering::Acquire);
            (slot.pinned.load(Ordering::Acquire), held)
        } else {
            let pinned = slot.pinned.load(Ordering::Acquire);
            (pinned, slot.held.load(Ordering::Acquire))
        };
        let is_clear = [pinned, held].iter().all(|&epoch| epoch == IDLE || epoch > tag);
        if is_clear {
            graph.write(1, 8);
        }
        reader.join().expect("the reader ends");
    });
}

#[test]
fn the_miniature_without_a_fault_holds() {
    model_with(Fault::None);
}

#[test]
#[should_panic]
fn a_pin_without_its_fence_is_found() {
    model_with(Fault::Unfenced);
}

#[test]
#[should_panic]
fn a_scan_that_looks_at_the_hold_first_is_found() {
    model_with(Fault::HoldFirst);
}

#[test]
#[should_panic]
fn a_pin_that_ends_before_the_hold_is_found() {
    model_with(Fault::PinEndsFirst);
}

#[test]
#[should_panic]
fn a_tag_taken_before_the_unlinking_is_found() {
    model_with(Fault::TaggedEarly);
}
