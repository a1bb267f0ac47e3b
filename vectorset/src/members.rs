//! The ids of a set's elements, dense, in no order: for random members, the exact scan, and the next entry
//! point.
//!
//! Removal moves the last id into the hole, so an id only ever moves to a lower index. A reader that walks
//! from the end to the front thus meets every element that stays for the whole walk, some of them twice.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::graph::NodeId;
use crate::slab::{Geometry, Slab};

pub(crate) struct Members {
    slab: Slab,
    len: AtomicU32,
}

impl Members {
    pub(crate) fn new() -> Members {
        Members {
            slab: Slab::new(Geometry::for_stride(size_of::<u32>()), size_of::<u32>()),
            len: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// The id at `index`; `None` if the list has become shorter.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<NodeId> {
        (index < self.len()).then(|| NodeId(self.entry(index).load(Ordering::Acquire)))
    }

    /// Every element that is a member from beginning to end of the walk; some may come twice, and some be
    /// dead.
    pub(crate) fn iter_backwards(&self) -> impl Iterator<Item = NodeId> {
        (0..self.len()).rev().map(|index| NodeId(self.entry(index).load(Ordering::Acquire)))
    }

    fn entry(&self, index: u32) -> &AtomicU32 {
        // SAFETY: `index` is, or was, below the length, so `push` made its chunk present and wrote it; chunks
        // are not released before the set is dropped. An entry beyond a length that has shrunk names a node
        // that was a member when the caller, under its guard, read the length: not recycled yet.
        unsafe { &*self.slab.record(index).cast::<AtomicU32>() }
    }

    /// Writer only. Returns the index and the bytes allocated.
    pub(crate) fn push(&self, id: NodeId) -> (u32, usize) {
        let index = self.len();
        let bytes = self.slab.ensure(index);
        // SAFETY: the chunk is present; an atomic store, because a reader with an old length may look here.
        unsafe { (*self.slab.record(index).cast::<AtomicU32>()).store(id.0, Ordering::Release) };
        self.len.store(index + 1, Ordering::Release);
        (index, bytes)
    }

    /// Writer only. Returns the id that moved to `index`, if one did.
    pub(crate) fn swap_remove(&self, index: u32) -> Option<NodeId> {
        let last = self.len() - 1;
        let moved = (index != last).then(|| NodeId(self.entry(last).load(Ordering::Relaxed)));
        if let Some(id) = moved {
            self.entry(index).store(id.0, Ordering::Release);
        }
        self.len.store(last, Ordering::Release);
        moved
    }

    /// Writer only: puts one element in the place of another.
    pub(crate) fn replace(&self, index: u32, id: NodeId) {
        self.entry(index).store(id.0, Ordering::Release);
    }

    /// Writer only: what stood at `index` when the list was cleared.
    pub(crate) fn former(&self, index: u32) -> NodeId {
        NodeId(self.entry(index).load(Ordering::Relaxed))
    }

    /// Writer only: no new reader finds a member.
    pub(crate) fn clear(&self) {
        self.len.store(0, Ordering::Release);
    }
}
