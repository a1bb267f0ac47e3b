//! Which elements changed since when: what lets a list of matches outlive the writes after it.
//!
//! ```text
//!   writer:  change the set;  ring[head % CAPACITY] := id (| REMOVED);  head += 1
//!   reader:  a list made at position p holds for every id that ring[p..head] does not name
//! ```
//!
//! The writer appends a removed node before it retires it, so a reader that pinned its epoch first and found
//! no removal in the log may look at the node. A reader that was overtaken by a whole round of the ring
//! notices it (as with a sequence lock) and has to begin anew.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::graph::NodeId;

/// Changes remembered.
pub(super) const CAPACITY: u64 = 1024;

/// The mark of a removal; ids stay below it.
const REMOVED: u32 = 1 << 31;

/// A position in the log: how many changes came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u64);

/// The latest change of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) id: NodeId,
    pub(super) is_removed: bool,
}

pub(crate) struct ChangeLog {
    head: AtomicU64,
    ring: Box<[AtomicU32]>,
}

impl ChangeLog {
    pub(super) fn new() -> ChangeLog {
        ChangeLog { head: AtomicU64::new(0), ring: (0..CAPACITY).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Writer only: the node is new, or its attribute is; its memory can be read.
    pub(crate) fn append_changed(&self, id: NodeId) {
        self.append(id.0);
    }

    /// Writer only: the node is no member any more and will be retired.
    pub(crate) fn append_removed(&self, id: NodeId) {
        self.append(id.0 | REMOVED);
    }

    /// Writer only: nothing that was known before holds.
    pub(crate) fn forget_all(&self) {
        self.head.fetch_add(CAPACITY, Ordering::AcqRel);
    }

    fn append(&self, entry: u32) {
        let head = self.head.load(Ordering::Relaxed);
        // Release: a reader that sees the entry of the next round sees the head of this one.
        self.ring[(head % CAPACITY) as usize].store(entry, Ordering::Release);
        self.head.store(head + 1, Ordering::Release);
    }

    pub(super) fn head(&self) -> Position {
        Position(self.head.load(Ordering::Acquire))
    }

    /// The elements that changed since `from`, in the order of their ids, each with its latest change, and the
    /// position up to which that holds. `None` if the log does not reach back so far.
    pub(super) fn since(&self, from: Position) -> Option<(Vec<Change>, Position)> {
        let head = self.head();
        if head.0 - from.0 >= CAPACITY {
            return None;
        }
        let mut entries: Vec<u32> = Vec::with_capacity((head.0 - from.0) as usize);
        for at in (from.0..head.0).rev() {
            entries.push(self.ring[(at % CAPACITY) as usize].load(Ordering::Acquire));
        }
        if self.head().0 - from.0 >= CAPACITY {
            return None;
        }
        // Stable, so the latest change of an id stays its first.
        entries.sort_by_key(|entry| entry & !REMOVED);
        entries.dedup_by_key(|entry| *entry & !REMOVED);
        let change = |entry: u32| Change { id: NodeId(entry & !REMOVED), is_removed: entry & REMOVED != 0 };
        Some((entries.into_iter().map(change).collect(), head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_change_of_each_counts_and_old_positions_are_refused() {
        let log = ChangeLog::new();
        let begin = log.head();
        assert_eq!(log.since(begin), Some((vec![], begin)));
        log.append_changed(NodeId(7));
        log.append_changed(NodeId(3));
        log.append_removed(NodeId(7));
        let middle = log.head();
        log.append_changed(NodeId(7));
        let change = |id, is_removed| Change { id: NodeId(id), is_removed };
        let (changes, head) = log.since(begin).expect("not far back");
        assert_eq!(changes, [change(3, false), change(7, false)]);
        assert_eq!((log.since(middle), log.head()), (Some((vec![change(7, false)], head)), head));
        for id in 0..CAPACITY as u32 - 2 {
            log.append_removed(NodeId(id));
        }
        assert_eq!(log.since(middle).map(|(changes, _)| changes.len()), Some(1022));
        assert_eq!(log.since(begin), None);
        let late = log.head();
        log.forget_all();
        assert_eq!(log.since(late), None);
    }
}
