//! A packed buffer: elements one after the other in one allocation, walkable from both ends.
//!
//! ```text
//!           start                                   len        capacity
//!             v                                      v            v
//! | free room | entry | entry | ... | entry | entry | free room |
//! ```
//!
//! It is the small encoding ("listpack") of lists, sets and hashes and the node of a quicklist. The room before
//! `start` makes a push at the front cost what a push at the back costs.
//!
//! Invariants: the block's count is that of the entries in its bytes, each canonical (see `element`). A
//! position counts bytes from the first entry's; it holds until the next change of the buffer.
//! It knows no limit: whoever owns it converts to another encoding in time.
//! Cost: push and pop O(1) amortised; insert and remove in the middle O(bytes); find and seek O(entries).

use super::element::{Element, Encoded, decode, n_entry_at, n_entry_before};
use crate::keyspace::block::{Block, good_capacity};
use crate::keyspace::table::prefetch;

/// A listpack's header and end mark, which a packed buffer keeps outside: counted where Redis compares bytes.
pub const LISTPACK_FRAME_BYTES: usize = 7;
/// Lists grow by half up to here, so that a filling node is copied few times; then by size class.
const ROOMY_GROWTH_MAX_BYTES: usize = 8192;
/// Below this, lists get room for one more element of the size of the one that is pushed: there may be millions of them.
const ROOMY_GROWTH_MIN_BYTES: usize = 2048;
/// Cache lines about the end of a buffer that are fetched ahead of a push.
const LINES_AHEAD: usize = 6;
/// Buffers below this are not worth giving memory back.
const SHRINK_MIN_BYTES: usize = 64;

/// Where an entry begins, in bytes after the first entry's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(usize);

/// How much free room a buffer takes when it must grow.
#[derive(Clone, Copy)]
pub enum Growth {
    /// The next size class: sets and hashes, of which there may be millions.
    Tight,
    /// Half as much again: lists, which are pushed to without end.
    Roomy,
}

/// The first or the last elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

/// One pointer.
#[derive(Default)]
pub struct Packed(Block);

impl Packed {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(n_bytes: usize) -> Self {
        Self(Block::with_capacity(n_bytes))
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.0.count()
    }

    /// Asks the cache for level `wave`: the start of the buffer, which says how long it is, then its last lines: if it must
    /// grow it is copied, else a push at the back writes behind them. Whether another level follows.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        let at = self.0.address();
        if wave == 0 {
            prefetch(at as u64);
            prefetch((at + 64) as u64);
            return true;
        }
        let (from, end) = (self.0.n_free_front(), self.0.n_free_front() + self.0.len());
        let from = end.saturating_sub(LINES_AHEAD / 2 * 64).max(from + 128);
        (0..LINES_AHEAD).for_each(|line| prefetch((at + (from + line * 64).min(self.0.capacity())) as u64));
        false
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size Redis's listpack of these elements has (`lpBytes`): what its byte limits are compared with.
    pub fn listpack_bytes(&self) -> usize {
        self.n_payload() + LISTPACK_FRAME_BYTES
    }

    /// Heap bytes held.
    pub fn heap_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }

    // ---- reading

    /// All entries, encoded.
    pub fn payload(&self) -> &[u8] {
        self.0.bytes()
    }

    #[inline]
    fn n_payload(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub fn get(&self, at: Position) -> Element<'_> {
        decode(&self.payload()[at.0..])
    }

    pub fn first(&self) -> Option<Position> {
        (!self.is_empty()).then_some(Position(0))
    }

    pub fn last(&self) -> Option<Position> {
        self.before(self.end())
    }

    /// The position behind the last entry.
    pub fn end(&self) -> Position {
        Position(self.n_payload())
    }

    /// The entry behind the one at `at`.
    #[inline]
    pub fn next(&self, at: Position) -> Option<Position> {
        let next = self.skip(at);
        (next < self.end()).then_some(next)
    }

    /// The position behind the entry at `at`: another entry or the end.
    #[inline]
    pub fn skip(&self, at: Position) -> Position {
        Position(at.0 + n_entry_at(&self.payload()[at.0..]))
    }

    #[inline]
    pub fn before(&self, at: Position) -> Option<Position> {
        (at.0 > 0).then(|| Position(at.0 - n_entry_before(&self.payload()[..at.0])))
    }

    /// The entry of this index, walked to from the nearer end; the end for `index == len`.
    pub fn seek(&self, index: usize) -> Position {
        assert!(index <= self.len());
        if index <= self.len() / 2 {
            (0..index).fold(Position(0), |at, _| self.skip(at))
        } else {
            (index..self.len()).fold(self.end(), |at, _| self.before(at).expect("an entry stands there"))
        }
    }

    /// The first entry equal to `element`, of entries number 0, STRIDE, 2 * STRIDE and so on (a hash's fields).
    #[inline]
    pub fn find<const STRIDE: usize>(&self, element: &Encoded<'_>) -> Option<Position> {
        let probe = element.probe();
        let mut entries = self.payload();
        while !entries.is_empty() {
            if probe.may_be_at(entries) && element.is_at(entries) {
                return Some(Position(self.n_payload() - entries.len()));
            }
            for _ in 0..STRIDE {
                entries = &entries[n_entry_at(entries)..];
            }
        }
        None
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter { bytes: self.payload() }
    }

    /// The entries from `at` on.
    pub fn iter_from(&self, at: Position) -> Iter<'_> {
        Iter { bytes: &self.payload()[at.0..] }
    }

    /// The entries before `at`.
    pub fn iter_until(&self, at: Position) -> Iter<'_> {
        Iter { bytes: &self.payload()[..at.0] }
    }

    // ---- changing

    #[inline]
    pub fn push_back(&mut self, element: &Encoded<'_>, growth: Growth) {
        self.reserve_back(element.n_entry(), growth);
        let (backlen, n) = element.backlen();
        self.0.push_back([element.head(), element.body(), &backlen[..n]]);
        self.add_count(1);
    }

    #[inline]
    pub fn push_front(&mut self, element: &Encoded<'_>, growth: Growth) {
        self.reserve_front(element.n_entry(), growth);
        let (backlen, n) = element.backlen();
        self.0.push_front([element.head(), element.body(), &backlen[..n]]);
        self.add_count(1);
    }

    #[inline]
    fn add_count(&mut self, n: usize) {
        self.0.set_count(self.0.count() + n);
    }

    #[inline]
    fn take_count(&mut self, n: usize) {
        self.0.set_count(self.0.count() - n);
    }

    /// Inserts before the entry at `at`, or at the end.
    pub fn insert(&mut self, at: Position, element: &Encoded<'_>, growth: Growth) {
        if at.0 == 0 {
            return self.push_front(element, growth);
        }
        self.reserve_back(element.n_entry(), growth);
        self.splice(at, 0, element);
        self.add_count(1);
    }

    /// Stores `element` in the place of the entry at `at`; in its bytes if it is as long.
    pub fn replace(&mut self, at: Position, element: &Encoded<'_>, growth: Growth) {
        let n_old = n_entry_at(&self.payload()[at.0..]);
        let n_new = element.n_entry();
        if n_new > n_old {
            self.reserve_back(n_new - n_old, growth);
        }
        self.splice(at, n_old, element);
        self.give_back();
    }

    /// Removes `n` entries from `at` on. They must be there.
    pub fn remove(&mut self, at: Position, n: usize) {
        assert!(n <= self.len());
        let end = (0..n).fold(at, |at, _| self.skip(at));
        self.remove_span(at, end, n);
    }

    /// Removes the first entry and keeps its room: for a node that is being used up.
    #[inline]
    pub fn pop_front(&mut self) {
        self.0.cut_front(n_entry_at(self.payload()));
        self.take_count(1);
    }

    /// Removes the last entry and keeps its room.
    #[inline]
    pub fn pop_back(&mut self) {
        let n = n_entry_before(self.payload());
        self.0.cut_back(n);
        self.take_count(1);
    }

    /// Removes the `n` entries that lie between two positions.
    pub fn remove_span(&mut self, from: Position, to: Position, n: usize) {
        if from.0 == 0 {
            self.0.cut_front(to.0);
        } else {
            self.0.bytes_mut().copy_within(to.0.., from.0);
            self.0.cut_back(to.0 - from.0);
        }
        self.take_count(n);
        self.give_back();
    }

    /// Removes the first or last `max` entries equal to `element`, in one pass; returns how many there were.
    pub fn remove_equal(&mut self, element: &Encoded<'_>, max: usize, from: End) -> usize {
        let n_spared = match from {
            End::Front => 0,
            End::Back => self.count_equal(element).saturating_sub(max),
        };
        let probe = element.probe();
        let (mut n_found, mut n_removed) = (0, 0);
        let (mut read, mut write) = (0, 0);
        let bytes = self.0.bytes_mut();
        while read < bytes.len() && n_removed < max {
            let entry = &bytes[read..];
            let n = n_entry_at(entry);
            let found = probe.may_be_at(entry) && element.is_at(entry);
            n_found += usize::from(found);
            if found && n_found > n_spared {
                n_removed += 1;
            } else {
                if write < read {
                    bytes.copy_within(read..read + n, write);
                }
                write += n;
            }
            read += n;
        }
        if n_removed > 0 {
            bytes.copy_within(read.., write);
            self.0.cut_back(read - write);
            self.take_count(n_removed);
            self.give_back();
        }
        n_removed
    }

    fn count_equal(&self, element: &Encoded<'_>) -> usize {
        let probe = element.probe();
        let mut entries = self.payload();
        let mut n_equal = 0;
        while !entries.is_empty() {
            n_equal += usize::from(probe.may_be_at(entries) && element.is_at(entries));
            entries = &entries[n_entry_at(entries)..];
        }
        n_equal
    }

    /// Cuts the entries from `at` (entry number `index`) on off into a buffer of their own.
    pub fn split_off(&mut self, at: Position, index: usize) -> Packed {
        let tail = Self::of_entries(&self.payload()[at.0..], self.len() - index);
        self.0.cut_back(self.n_payload() - at.0);
        self.0.set_count(index);
        self.give_back();
        tail
    }

    fn of_entries(entries: &[u8], count: usize) -> Self {
        let mut block = Block::with_capacity(entries.len());
        block.push_back([entries, &[], &[]]);
        block.set_count(count);
        Self(block)
    }

    /// Appends all entries of `other`.
    pub fn append(&mut self, other: &Packed) {
        self.reserve_back(other.n_payload(), Growth::Tight);
        self.0.push_back([other.payload(), &[], &[]]);
        self.add_count(other.len());
    }

    /// Gives back free room above an eighth: for a buffer that will hardly grow again.
    pub fn tighten(&mut self) {
        let good = good_capacity(self.n_payload());
        if self.0.capacity() > good + good / 8 {
            self.0.relocate(0, good);
        }
    }

    /// Overwrites `n_old` bytes at `at` with the entry; the room for what it is longer is reserved.
    fn splice(&mut self, at: Position, n_old: usize, element: &Encoded<'_>) {
        let n_new = element.n_entry();
        let len = self.n_payload();
        if n_new > n_old {
            self.0.grow_back(n_new - n_old);
        }
        let bytes = self.0.bytes_mut();
        if n_new != n_old {
            bytes.copy_within(at.0 + n_old..len, at.0 + n_new);
        }
        element.write_to(&mut bytes[at.0..at.0 + n_new]);
        self.0.cut_back(n_old.saturating_sub(n_new));
    }

    // ---- room

    #[inline]
    fn reserve_back(&mut self, n: usize, growth: Growth) {
        if self.0.n_free_back() < n {
            self.make_room(n, growth, End::Back);
        }
    }

    #[inline]
    pub fn reserve_front(&mut self, n: usize, growth: Growth) {
        if self.0.n_free_front() < n {
            self.make_room(n, growth, End::Front);
        }
    }

    /// Makes `n` bytes free at one end: from the other end's free room if that frees an eighth (so that the
    /// copying is paid by the pushes to come), else in a bigger allocation.
    #[cold]
    fn make_room(&mut self, n: usize, growth: Growth, end: End) {
        let n_payload = self.n_payload();
        let needed = n_payload + n;
        assert!(u32::try_from(needed).is_ok(), "owners convert long before 4 GiB");
        let n_free = self.0.capacity() - n_payload;
        if n_free >= n + n_payload / 8 && n_payload > 0 {
            // Half of the rest stays at the other end: pushes at both ends in turn must not slide each time.
            let other = (n_free - n) / 2;
            self.0.slide(match end {
                End::Front => n_free - other,
                End::Back => other,
            });
            return;
        }
        let capacity = growth.capacity(n_payload, n);
        self.0.relocate(if end == End::Front { capacity - n_payload } else { 0 }, capacity);
    }

    /// Frees memory when more than half lies unused.
    #[inline]
    pub fn give_back(&mut self) {
        if self.0.capacity() > 2 * self.n_payload() + SHRINK_MIN_BYTES {
            self.0.relocate(0, self.n_payload());
        }
    }

    /// Panics unless the invariants hold; for tests and debug commands.
    pub fn check(&self) {
        let mut at = Position(0);
        for _ in 0..self.len() {
            assert!(at < self.end(), "count is above the entries");
            let element = self.get(at);
            assert_eq!(element, element.canonical(), "an integer stored as text");
            let next = self.skip(at);
            assert_eq!(self.before(next), Some(at), "backlen and head disagree");
            let canonical = Encoded::new(element);
            assert!(canonical.n_entry() == next.0 - at.0 && canonical.is_at(&self.payload()[at.0..]));
            at = next;
        }
        assert_eq!(at, self.end(), "bytes behind the last entry");
    }

    /// As `check`, for a buffer that is a whole value: it holds no more than twice what it needs.
    pub fn check_whole(&self) {
        self.check();
        assert!(self.0.capacity() <= 2 * self.n_payload() + SHRINK_MIN_BYTES);
    }
}

impl Growth {
    /// What to allocate for `n_present` bytes and `n` more. The first element gets no spare room.
    fn capacity(self, n_present: usize, n: usize) -> usize {
        let needed = n_present + n;
        let good = good_capacity(needed);
        match self {
            Growth::Roomy if needed > ROOMY_GROWTH_MIN_BYTES => {
                good.max(good_capacity(needed + needed / 2).min(ROOMY_GROWTH_MAX_BYTES))
            }
            // At most half as much again: nothing holds more than twice what it needs.
            Growth::Roomy if n_present > 0 => good_capacity(needed + n.min(needed / 2)),
            Growth::Roomy | Growth::Tight => good,
        }
    }
}

impl Clone for Packed {
    fn clone(&self) -> Self {
        Self::of_entries(self.payload(), self.len())
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        self.payload() == other.payload()
    }
}

/// Elements in order, from both ends.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let element = decode(self.bytes);
        self.bytes = &self.bytes[n_entry_at(self.bytes)..];
        Some(element)
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Element<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let (rest, entry) = self.bytes.split_at(self.bytes.len() - n_entry_before(self.bytes));
        self.bytes = rest;
        Some(decode(entry))
    }
}
