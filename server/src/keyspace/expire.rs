//! The expiry index: a hierarchical timing wheel (Varghese and Lauck, 1987) whose lists run through the entries themselves.
//!
//! ```text
//!  level 0   256 slots of 16 ms                 deadline / 16 ms = tick, 5 digits of 8 bits; a node lies on the level of the
//!  level 1   256 slots of 4.1 s                 highest digit in which its tick differs from the wheel's, in the slot of
//!  level 2   256 slots of 17.5 min              that digit. When the wheel reaches a slot of a higher level, its nodes are
//!  level 3   256 slots of 3.1 days              filed anew, on lower levels: at most four times in a node's life.
//!  level 4   256 slots of 2.2 years
//!  node      deadline | next | prev: the 24 bytes of an entry with a time to live
//! ```
//!
//! Invariants: every entry with a time to live in the table is in exactly one list; a node is never filed after its
//! deadline's tick (before is fine: it is filed anew then). So a deadline that moves later costs one store, and what is
//! found dead is dead. Expiry on access does not need the index; this one only bounds how long the dead stay: 16 to 32 ms
//! after the deadline, as far as the budget goes.
//! A clock set back by more than a minute sends all lists to `limbo`, to be filed anew in slices; one set forward is
//! followed from one occupied slot to the next. Every call is bounded; nothing here allocates but the wheel itself (10 KiB,
//! once) and limbo.
//!
//! Beside the wheel stand the hashes that have fields with a deadline, by their earliest one: an ordered index of (deadline,
//! hash of the key), which needs no place in any entry. `fields.rs` keeps it true.
//!
//! It knows no table and no key. Unsafe: the links, which are entries' memory.

use std::ptr::NonNull;

use super::table::segment::prefetch;
use crate::types::deadlines::{Deadlines, Due};

/// An entry's part of the index.
#[repr(C)]
pub(super) struct Node {
    pub(super) deadline_ms: i64,
    next: Option<NonNull<Node>>,
    prev: Prev,
}

/// The node before, or the list's slot (odd: slot * 2 + 1). Nodes are aligned to 8.
#[derive(Clone, Copy)]
struct Prev(*mut Node);

enum Before {
    Node(NonNull<Node>),
    Slot(usize),
}

impl Prev {
    fn slot(slot: usize) -> Prev {
        Prev(std::ptr::without_provenance_mut(slot << 1 | 1))
    }

    fn before(self) -> Before {
        match NonNull::new(self.0) {
            Some(node) if self.0.addr() & 1 == 0 => Before::Node(node),
            _ => Before::Slot(self.0.addr() >> 1),
        }
    }
}

impl Node {
    pub(super) fn unlinked(deadline_ms: i64) -> Node {
        Node { deadline_ms, next: None, prev: Prev(std::ptr::null_mut()) }
    }
}

const TICK_SHIFT: u32 = 4;
const DIGIT_BITS: u32 = 8;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 5;
/// Deadlines beyond (the year 2527) are filed here and never reached.
const MAX_TICK: u64 = (1 << (DIGIT_BITS * LEVELS as u32)) - 1;
/// How far the clock may go back before the wheel follows it.
const BACKWARD_TICKS: u64 = 60_000 >> TICK_SHIFT;

fn tick_of(ms: i64) -> u64 {
    (ms.max(0) as u64 >> TICK_SHIFT).min(MAX_TICK)
}

fn digit(tick: u64, level: usize) -> usize {
    (tick >> (DIGIT_BITS as usize * level)) as usize & (SLOTS - 1)
}

struct Wheel {
    /// All slots before this tick are empty.
    now_tick: u64,
    heads: [Option<NonNull<Node>>; SLOTS * LEVELS],
    /// One bit per slot whose list is not empty.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    /// Lists to be filed anew after the clock was set back; slot numbers go on from those of `heads`.
    limbo: Vec<Option<NonNull<Node>>>,
}

/// Budget of one call of active expiry, in nodes looked at.
pub(super) struct Budget {
    pub(super) left: usize,
}

impl Budget {
    fn spend(&mut self) -> bool {
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

/// The deadlines of one keyspace.
#[derive(Default)]
pub(super) struct ExpiryIndex {
    wheel: Option<Box<Wheel>>,
    /// Where the wheel starts, should it be needed.
    start_tick: u64,
    len: usize,
    /// Exact, so that the average needs no sampling.
    sum_ms: i128,
    /// The hashes that have fields with a deadline, by the earliest.
    hashes: Deadlines,
}

// SAFETY: the pointers lead to entries of the keyspace that owns this index, and both move together.
unsafe impl Send for ExpiryIndex {}

impl ExpiryIndex {
    /// Number of entries with a deadline.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The average deadline, in Unix milliseconds.
    pub(super) fn average_ms(&self) -> Option<i64> {
        let average = self.sum_ms.checked_div(self.len as i128)?;
        Some(average.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    pub(super) fn hashes(&self) -> &Deadlines {
        &self.hashes
    }

    /// What is left of an index whose entries are gone, to be freed in slices.
    pub(super) fn into_hashes(self) -> Deadlines {
        self.hashes
    }

    /// The earliest deadline of the fields of the hash whose key has this hash was `before` and is `after`.
    #[inline]
    pub(super) fn refile_hash(&mut self, hash: u64, before: Option<i64>, after: Option<i64>) {
        if before == after {
            return;
        }
        if let Some(deadline_ms) = before {
            let is_there = self.hashes.remove(Due { deadline_ms, hash });
            debug_assert!(is_there, "every hash with deadlines is filed");
        }
        if let Some(deadline_ms) = after {
            self.hashes.insert(Due { deadline_ms, hash });
        }
    }

    /// Files an entry's node under its deadline.
    /// # Safety
    /// The node is initialised, in no list, and its entry neither moves nor goes before [`Self::remove`], but by
    /// [`Self::moved`].
    pub(super) unsafe fn insert(&mut self, node: NonNull<Node>) {
        let wheel = self.wheel.get_or_insert_with(|| Wheel::new(self.start_tick));
        // SAFETY: the caller's node, in no list.
        unsafe {
            self.sum_ms += i128::from((*node.as_ptr()).deadline_ms);
            wheel.file(node);
        }
        self.len += 1;
    }

    /// Takes a node out of its list.
    /// # Safety
    /// The node is in a list of this index.
    pub(super) unsafe fn remove(&mut self, node: NonNull<Node>) {
        let Some(wheel) = &mut self.wheel else { unreachable!("a node is in a list of the wheel") };
        // SAFETY: the caller's node is in a list.
        unsafe {
            wheel.unlink(node);
            self.sum_ms -= i128::from((*node.as_ptr()).deadline_ms);
        }
        self.len -= 1;
    }

    /// Changes a deadline. A later one leaves the node where it is.
    /// # Safety
    /// The node is in a list of this index.
    pub(super) unsafe fn set_deadline(&mut self, node: NonNull<Node>, deadline_ms: i64) {
        // SAFETY: the caller's node is in a list; no reference to it exists.
        unsafe {
            let old_ms = (*node.as_ptr()).deadline_ms;
            if deadline_ms < old_ms {
                self.remove(node);
                (*node.as_ptr()).deadline_ms = deadline_ms;
                self.insert(node);
            } else {
                (*node.as_ptr()).deadline_ms = deadline_ms;
                self.sum_ms += i128::from(deadline_ms) - i128::from(old_ms);
            }
        }
    }

    /// Turns the neighbours' links to an entry's new place.
    /// # Safety
    /// `node` is a copy of a node that is in a list of this index and whose old place is used no more.
    pub(super) unsafe fn moved(&mut self, node: NonNull<Node>) {
        let Some(wheel) = &mut self.wheel else { unreachable!("a node is in a list of the wheel") };
        // SAFETY: the copy's links are those of the node in the list, and lead to nodes that live.
        unsafe {
            let Node { next, prev, .. } = *node.as_ptr();
            match prev.before() {
                Before::Node(before) => (*before.as_ptr()).next = Some(node),
                Before::Slot(slot) => *wheel.head(slot) = Some(node),
            }
            if let Some(next) = next {
                (*next.as_ptr()).prev = Prev(node.as_ptr());
            }
        }
    }

    /// The next node whose deadline is before `now_ms`, out of its list; None if there is none or the budget is spent.
    #[inline]
    pub(super) fn next_dead(&mut self, now_ms: i64, budget: &mut Budget) -> Option<NonNull<Node>> {
        let Some(wheel) = self.wheel.as_deref_mut() else {
            self.start_tick = tick_of(now_ms);
            return None;
        };
        wheel.follow_backwards(tick_of(now_ms));
        while let Some(slot) = wheel.next_slot(tick_of(now_ms)) {
            if !budget.spend() {
                return None;
            }
            let Some(node) = *wheel.head(slot) else {
                wheel.limbo.pop();
                continue;
            };
            // SAFETY: nodes in lists are alive; no reference to any exists.
            unsafe {
                wheel.unlink(node);
                if let Some(next) = (*node.as_ptr()).next {
                    prefetch(next.as_ptr().addr() as u64);
                }
                let deadline_ms = (*node.as_ptr()).deadline_ms;
                if now_ms > deadline_ms {
                    self.sum_ms -= i128::from(deadline_ms);
                    self.len -= 1;
                    return Some(node);
                }
                wheel.file(node);
            }
        }
        None
    }
}

impl Wheel {
    fn new(now_tick: u64) -> Box<Wheel> {
        Box::new(Wheel {
            now_tick,
            heads: [None; SLOTS * LEVELS],
            occupied: [[0; SLOTS / 64]; LEVELS],
            limbo: Vec::new(),
        })
    }

    fn head(&mut self, slot: usize) -> &mut Option<NonNull<Node>> {
        match slot.checked_sub(SLOTS * LEVELS) {
            None => &mut self.heads[slot],
            Some(limbo) => &mut self.limbo[limbo],
        }
    }

    /// # Safety
    /// The node is initialised and in no list.
    unsafe fn file(&mut self, node: NonNull<Node>) {
        // SAFETY: the caller's node; its neighbour is alive as it is in a list.
        unsafe {
            let tick = tick_of((*node.as_ptr()).deadline_ms).max(self.now_tick);
            let level = (63 - (tick ^ self.now_tick | 1).leading_zeros() as usize) / DIGIT_BITS as usize;
            let at = digit(tick, level);
            let slot = level * SLOTS + at;
            let next = self.heads[slot].replace(node);
            (*node.as_ptr()).next = next;
            (*node.as_ptr()).prev = Prev::slot(slot);
            match next {
                Some(next) => (*next.as_ptr()).prev = Prev(node.as_ptr()),
                None => self.occupied[level][at / 64] |= 1 << (at % 64),
            }
        }
    }

    /// # Safety
    /// The node is in a list.
    unsafe fn unlink(&mut self, node: NonNull<Node>) {
        // SAFETY: the neighbours of a node in a list are alive and in it.
        unsafe {
            let Node { next, prev, .. } = *node.as_ptr();
            if let Some(next) = next {
                (*next.as_ptr()).prev = prev;
            }
            match prev.before() {
                Before::Node(before) => (*before.as_ptr()).next = next,
                Before::Slot(slot) => {
                    *self.head(slot) = next;
                    if next.is_none() && slot < SLOTS * LEVELS {
                        self.occupied[slot / SLOTS][slot % SLOTS / 64] &= !(1 << (slot % 64));
                    }
                }
            }
        }
    }

    /// The first slot at `from` or after it that is not empty.
    fn occupied_from(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[level];
        let first = words[from / 64] & u64::MAX << (from % 64);
        let rest = words.iter().enumerate().skip(from / 64 + 1);
        std::iter::once((from / 64, first))
            .chain(rest.map(|(i, word)| (i, *word)))
            .find(|(_, word)| *word != 0)
            .map(|(i, word)| i * 64 + word.trailing_zeros() as usize)
    }

    /// The next slot with nodes to look at before `target`; the wheel moves on to it, or to `target` if there is none.
    fn next_slot(&mut self, target: u64) -> Option<usize> {
        if let Some(last) = self.limbo.len().checked_sub(1) {
            return Some(SLOTS * LEVELS + last);
        }
        // A higher level's slot that the wheel is in already: its filing anew was interrupted.
        for level in (1..LEVELS).rev() {
            let at = digit(self.now_tick, level);
            if self.occupied[level][at / 64] >> (at % 64) & 1 == 1 {
                return Some(level * SLOTS + at);
            }
        }
        for level in 0..LEVELS {
            if let Some(at) = self.occupied_from(level, digit(self.now_tick, level)) {
                let below = DIGIT_BITS as usize * level;
                let above = self.now_tick >> below >> DIGIT_BITS << DIGIT_BITS;
                let start = (above | at as u64) << below;
                if start >= target {
                    break;
                }
                self.now_tick = start;
                return Some(level * SLOTS + at);
            }
        }
        self.now_tick = self.now_tick.max(target);
        None
    }

    /// Sends all lists to limbo if the clock was set back far behind the wheel.
    fn follow_backwards(&mut self, target: u64) {
        if target + BACKWARD_TICKS >= self.now_tick {
            return;
        }
        self.now_tick = target;
        self.occupied = [[0; SLOTS / 64]; LEVELS];
        for slot in 0..SLOTS * LEVELS {
            if let Some(first) = self.heads[slot].take() {
                self.limbo.push(Some(first));
                // SAFETY: the first node of a list is alive.
                unsafe { (*first.as_ptr()).prev = Prev::slot(SLOTS * LEVELS + self.limbo.len() - 1) };
            }
        }
    }
}

#[cfg(test)]
impl ExpiryIndex {
    /// Walks all lists: links, bitmaps, counts, sums, and that no node lies later than its deadline. Returns the nodes.
    pub(super) fn check(&mut self) -> Vec<NonNull<Node>> {
        let Some(wheel) = &mut self.wheel else { return Vec::new() };
        let mut nodes = Vec::new();
        let mut sum = 0;
        for slot in 0..SLOTS * LEVELS + wheel.limbo.len() {
            let (level, at) = (slot / SLOTS, slot % SLOTS);
            let mut next = *wheel.head(slot);
            if level < LEVELS {
                assert_eq!(wheel.occupied[level][at / 64] >> (at % 64) & 1 == 1, next.is_some());
                assert!(next.is_none() || at >= digit(wheel.now_tick, level), "a slot that has been passed");
            }
            let mut prev = Prev::slot(slot).0;
            while let Some(node) = next {
                // SAFETY: a node in a list.
                unsafe {
                    assert_eq!((*node.as_ptr()).prev.0, prev);
                    let deadline_ms = (*node.as_ptr()).deadline_ms;
                    if level < LEVELS {
                        let below = DIGIT_BITS as usize * level;
                        let above = wheel.now_tick >> below >> DIGIT_BITS << DIGIT_BITS;
                        let start = (above | at as u64) << below;
                        assert!(start <= tick_of(deadline_ms).max(wheel.now_tick), "filed too late");
                    }
                    sum += i128::from(deadline_ms);
                    prev = node.as_ptr();
                    next = (*node.as_ptr()).next;
                }
                nodes.push(node);
            }
        }
        assert_eq!((nodes.len(), sum), (self.len, self.sum_ms));
        nodes
    }
}
