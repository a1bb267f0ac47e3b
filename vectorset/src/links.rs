//! One link list: ids in fixed slots, ended by EMPTY. One writer changes single slots while readers walk it.
//!
//! A slot always holds EMPTY or an id that was published with what belongs to it: links are stored Release
//! and loaded Acquire. A reader may miss a link that moves within the list or see one twice; neither does
//! harm. Invariant: there is no gap before EMPTY, as the writer sees it. It must never know what an id is.

use crate::sync::{AtomicU32, Ordering};

/// Ends a link list.
pub(crate) const EMPTY: u32 = u32::MAX;

#[inline(always)]
pub(crate) fn iter(slots: &[AtomicU32]) -> impl Iterator<Item = u32> {
    slots.iter().map(|slot| slot.load(Ordering::Acquire)).take_while(|&link| link != EMPTY)
}

/// Writer only: adds a link to a list that has room.
pub(crate) fn append(slots: &[AtomicU32], to: u32) {
    let free = slots.iter().find(|slot| slot.load(Ordering::Relaxed) == EMPTY);
    free.expect("a list that is appended to has room").store(to, Ordering::Release);
}

/// Writer only: takes a link out of the list that has it.
pub(crate) fn take_out(slots: &[AtomicU32], to: u32) {
    let degree = iter(slots).count();
    let at = slots[..degree].iter().position(|slot| slot.load(Ordering::Relaxed) == to);
    let at = at.expect("links are mutual");
    // The last link takes the place of the removed one before its own place is cleared: a reader may see it
    // twice, and misses it only if it had already passed the first place.
    slots[at].store(slots[degree - 1].load(Ordering::Relaxed), Ordering::Release);
    slots[degree - 1].store(EMPTY, Ordering::Release);
}
