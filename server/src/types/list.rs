//! A list: one packed buffer while small ("listpack"), then a deque of packed nodes ("quicklist").
//!
//! It grows out of the listpack when a push, insert or set would pass `list-max-listpack-size`, reckoned as Redis
//! reckons (all values of one command at once), and falls back when a removal or a set leaves a single node at
//! most half full.
//!
//! Indices count from the front and are in bounds: negative indices are the command's business.
//! Cost: see `packed` and `quicklist`; a push or pop at either end is O(1) amortised and copies the value once.

use std::ops::Range;

use super::Limits;
use super::element::{Digits, Element, Encoded};
use super::node::NodeLimit;
pub use super::node::Part;
pub use super::packed::End;
use super::packed::{self, Growth, Packed};
pub use super::quicklist::Side;
use super::quicklist::{self, Quicklist};
use crate::keyspace::loose::Loose;
use crate::keyspace::table::prefetch;

#[derive(Clone)]
pub struct List(Repr);

#[derive(Clone)]
enum Repr {
    Packed(Packed),
    Quick(Loose<Quicklist>),
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    pub fn new() -> Self {
        Self(Repr::Packed(Packed::new()))
    }

    /// What SORT stores: a quicklist, or a listpack if it came to one node within the limit.
    pub fn of<'e>(elements: impl Iterator<Item = Element<'e>>, limits: &Limits) -> Self {
        let limit = NodeLimit::of(limits.list_max_listpack_size);
        let mut quick = Quicklist::default();
        elements.for_each(|element| quick.push_back(element.as_bytes(&mut Digits::new()), limit));
        match quick.take_only_node(limit) {
            Some(packed) => Self(Repr::Packed(packed)),
            None => Self(Repr::Quick(Loose::new(quick))),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.len(),
            Repr::Quick(quick) => quick.len(),
        }
    }

    /// Asks the cache for what a push to a small list touches; see `Object::prefetch`.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        match &self.0 {
            Repr::Packed(packed) => packed.prefetch(wave),
            Repr::Quick(quick) => {
                prefetch(std::ptr::from_ref(&**quick).addr() as u64);
                false
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING answers.
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Repr::Packed(_) => "listpack",
            Repr::Quick(_) => "quicklist",
        }
    }

    // ---- ends

    /// Pushes the values of one command, one after the other: the last one ends up outermost.
    pub fn push<'v>(&mut self, end: End, values: impl Iterator<Item = &'v [u8]> + Clone, limits: &Limits) {
        let limit = NodeLimit::of(limits.list_max_listpack_size);
        if let Repr::Packed(packed) = &self.0 {
            let (n, n_bytes) = values.clone().fold((0, 0), |(n, sum), value| (n + 1, sum + value.len()));
            if limit.is_exceeded(packed.listpack_bytes() + n_bytes, packed.len() + n) {
                self.become_quick();
            }
        }
        match (&mut self.0, end) {
            (Repr::Packed(packed), End::Front) => {
                values.for_each(|value| packed.push_front(&Encoded::of(value), Growth::Roomy));
            }
            (Repr::Packed(packed), End::Back) => {
                values.for_each(|value| packed.push_back(&Encoded::of(value), Growth::Roomy));
            }
            (Repr::Quick(quick), End::Front) => values.for_each(|value| quick.push_front(value, limit)),
            (Repr::Quick(quick), End::Back) => values.for_each(|value| quick.push_back(value, limit)),
        }
    }

    #[inline]
    pub fn push_front(&mut self, value: &[u8], limits: &Limits) {
        self.push(End::Front, std::iter::once(value), limits);
    }

    #[inline]
    pub fn push_back(&mut self, value: &[u8], limits: &Limits) {
        self.push(End::Back, std::iter::once(value), limits);
    }

    #[inline]
    pub fn front(&self) -> Option<Element<'_>> {
        match &self.0 {
            Repr::Packed(packed) => packed.first().map(|at| packed.get(at)),
            Repr::Quick(quick) => quick.front(),
        }
    }

    #[inline]
    pub fn back(&self) -> Option<Element<'_>> {
        match &self.0 {
            Repr::Packed(packed) => packed.last().map(|at| packed.get(at)),
            Repr::Quick(quick) => quick.back(),
        }
    }

    /// The element at one end: look, reply, then [`List::pop`].
    #[inline]
    pub fn peek(&self, end: End) -> Option<Element<'_>> {
        match end {
            End::Front => self.front(),
            End::Back => self.back(),
        }
    }

    /// Removes the element at one end; false if the list is empty.
    pub fn pop(&mut self, end: End, limits: &Limits) -> bool {
        if self.is_empty() {
            return false;
        }
        self.pop_as_is(end);
        self.become_packed_if_half(limits);
        true
    }

    /// The same without a look at the encoding. The list is not empty.
    fn pop_as_is(&mut self, end: End) {
        match (&mut self.0, end) {
            (Repr::Packed(packed), End::Front) => {
                packed.pop_front();
                packed.give_back();
            }
            (Repr::Packed(packed), End::Back) => {
                packed.pop_back();
                packed.give_back();
            }
            (Repr::Quick(quick), End::Front) => quick.pop_front(),
            (Repr::Quick(quick), End::Back) => quick.pop_back(),
        }
    }

    /// Moves the element at one end to an end. The encoding is looked at when both have happened, as in Redis.
    pub fn rotate(&mut self, from: End, to: End, limits: &Limits) {
        let Some(element) = self.peek(from).map(|element| element.to_vec()) else { return };
        self.pop_as_is(from);
        self.push(to, std::iter::once(&element[..]), limits);
        self.become_packed_if_half(limits);
    }

    pub fn pop_front(&mut self, limits: &Limits) -> bool {
        self.pop(End::Front, limits)
    }

    pub fn pop_back(&mut self, limits: &Limits) -> bool {
        self.pop(End::Back, limits)
    }

    // ---- by index

    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len() {
            return None;
        }
        match &self.0 {
            Repr::Packed(packed) => Some(packed.get(packed.seek(index))),
            Repr::Quick(quick) => quick.range(index..index + 1).next(),
        }
    }

    /// The elements of `range` (cut to the list), first to last.
    pub fn range(&self, range: Range<usize>) -> Iter<'_> {
        Iter(match &self.0 {
            Repr::Packed(packed) => {
                let end = range.end.min(packed.len());
                let start = packed.seek(range.start.min(end));
                IterRepr::Packed(packed.iter_from(start).take(end.saturating_sub(range.start)))
            }
            Repr::Quick(quick) => IterRepr::Quick(quick.range(range)),
        })
    }

    /// The elements of `range` (cut to the list), last to first.
    pub fn range_rev(&self, range: Range<usize>) -> IterRev<'_> {
        IterRev(match &self.0 {
            Repr::Packed(packed) => {
                let end = range.end.min(packed.len());
                let n = end.saturating_sub(range.start);
                IterRevRepr::Packed(packed.iter_until(packed.seek(end)).rev().take(n))
            }
            Repr::Quick(quick) => IterRevRepr::Quick(quick.range_rev(range)),
        })
    }

    pub fn iter(&self) -> Iter<'_> {
        self.range(0..self.len())
    }

    pub fn iter_rev(&self) -> IterRev<'_> {
        self.range_rev(0..self.len())
    }

    /// Replaces the element at `index`; false if there is none.
    pub fn set(&mut self, index: usize, value: &[u8], limits: &Limits) -> bool {
        // Redis converts before it looks at the index: a failing LSET may leave a quicklist behind.
        let limit = self.grow_for(value, 1, limits);
        if index >= self.len() {
            return false;
        }
        match &mut self.0 {
            Repr::Packed(packed) => packed.replace(packed.seek(index), &Encoded::of(value), Growth::Roomy),
            Repr::Quick(quick) => quick.set(index, value, limit),
        }
        self.become_packed_if_half(limits);
        true
    }

    /// Inserts beside the first element equal to `pivot`; false if there is none.
    pub fn insert(&mut self, side: Side, pivot: &[u8], value: &[u8], limits: &Limits) -> bool {
        let limit = self.grow_for(value, 1, limits);
        match &mut self.0 {
            Repr::Packed(packed) => {
                let Some(at) = packed.find::<1>(&Encoded::of(pivot)) else { return false };
                let at = if side == Side::After { packed.skip(at) } else { at };
                packed.insert(at, &Encoded::of(value), Growth::Roomy);
            }
            Repr::Quick(quick) => {
                let pivot = Element::of(pivot);
                let found = quick.range(0..quick.len()).position(|element| element == pivot);
                let Some(index) = found else { return false };
                quick.insert(index, side, value, limit);
            }
        }
        true
    }

    /// Removes up to `max` elements equal to `value`, the first ones or (`End::Back`) the last ones.
    pub fn remove(&mut self, from: End, max: usize, value: &[u8], limits: &Limits) -> usize {
        let n_removed = match &mut self.0 {
            Repr::Packed(packed) => packed.remove_equal(&Encoded::of(value), max, from),
            Repr::Quick(quick) => quick.remove_equal(value, max, from),
        };
        if n_removed > 0 {
            self.become_packed_if_half(limits);
        }
        n_removed
    }

    /// Keeps the elements of `keep` (cut to the list) and removes the others.
    pub fn trim(&mut self, keep: Range<usize>, limits: &Limits) {
        let len = self.len();
        let end = keep.end.min(len);
        let start = keep.start.min(end);
        match &mut self.0 {
            Repr::Packed(packed) => {
                packed.remove_span(packed.seek(end), packed.end(), len - end);
                let to = packed.seek(start);
                packed.remove_span(packed.seek(0), to, start);
            }
            Repr::Quick(quick) => {
                quick.truncate_back(len - end);
                quick.truncate_front(start);
            }
        }
        self.become_packed_if_half(limits);
    }

    /// The indices of the elements equal to `value` among the first `max_len`, ascending: LPOS.
    pub fn positions<'a>(&'a self, value: &'a [u8], max_len: usize) -> impl Iterator<Item = usize> + 'a {
        let value = Element::of(value);
        let looked_at = self.iter().take(max_len).enumerate();
        looked_at.filter(move |(_, element)| *element == value).map(|(index, _)| index)
    }

    /// The same among the last `max_len`, descending: LPOS with a negative RANK.
    pub fn positions_rev<'a>(&'a self, value: &'a [u8], max_len: usize) -> impl Iterator<Item = usize> + 'a {
        let value = Element::of(value);
        let last = self.len().wrapping_sub(1);
        let looked_at = self.iter_rev().take(max_len).enumerate();
        let found = looked_at.filter(move |(_, element)| *element == value);
        found.map(move |(behind, _)| last - behind)
    }

    // ---- whole

    /// Bytes allocated below this value.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.heap_bytes(),
            Repr::Quick(quick) => quick.heap_bytes(),
        }
    }

    /// Frees up to `budget` nodes; true when nothing is left. The list is then empty.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                *packed = Packed::new();
                true
            }
            Repr::Quick(quick) => quick.free_slice(budget),
        }
    }

    /// What it is made of, first to last.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let (packed, quick) = match &self.0 {
            Repr::Packed(packed) => (Some(Part::Packed(packed)), None),
            Repr::Quick(quick) => (None, Some(quick.parts())),
        };
        packed.into_iter().chain(quick.into_iter().flatten())
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        match &self.0 {
            Repr::Packed(packed) => packed.check_whole(),
            Repr::Quick(quick) => quick.check(),
        }
    }

    // ---- encodings

    fn grow_for(&mut self, value: &[u8], n: usize, limits: &Limits) -> NodeLimit {
        let limit = NodeLimit::of(limits.list_max_listpack_size);
        if let Repr::Packed(packed) = &self.0
            && limit.is_exceeded(packed.listpack_bytes() + value.len(), packed.len() + n)
        {
            self.become_quick();
        }
        limit
    }

    #[cold]
    fn become_quick(&mut self) {
        if let Repr::Packed(packed) = &mut self.0 {
            self.0 = Repr::Quick(Loose::new(Quicklist::from_packed(std::mem::take(packed))));
        }
    }

    fn become_packed_if_half(&mut self, limits: &Limits) {
        if let Repr::Quick(quick) = &mut self.0
            && let Some(packed) = quick.take_half_node(NodeLimit::of(limits.list_max_listpack_size))
        {
            let mut packed = packed;
            packed.give_back();
            self.0 = Repr::Packed(packed);
        }
    }
}

/// A list in the making, out of parts that come first to last.
#[derive(Default)]
pub struct Assembly(Quicklist);

impl Assembly {
    /// Room for so many packed parts.
    pub fn with_capacity(n_parts: usize) -> Self {
        Self(Quicklist::with_capacity(n_parts))
    }

    /// Adds elements that shall stay together.
    pub fn packed(&mut self, packed: Packed) {
        self.0.append_packed(packed);
    }

    /// Adds an element.
    pub fn element(&mut self, element: &[u8], limits: &Limits) {
        self.0.push_back(element, NodeLimit::of(limits.list_max_listpack_size));
    }

    /// The list in the big encoding, however small it is.
    pub fn finish_big(self) -> List {
        List(Repr::Quick(Loose::new(self.0)))
    }

    /// The list, in the encoding Redis gives it.
    pub fn finish(mut self, limits: &Limits) -> List {
        let packed = self.0.take_only_node(NodeLimit::of(limits.list_max_listpack_size));
        List(match packed {
            Some(mut packed) => {
                packed.give_back();
                Repr::Packed(packed)
            }
            None => Repr::Quick(Loose::new(self.0)),
        })
    }
}

/// Same elements in the same order, whatever the encodings.
impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

pub struct Iter<'a>(IterRepr<'a>);

enum IterRepr<'a> {
    Packed(std::iter::Take<packed::Iter<'a>>),
    Quick(quicklist::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match &mut self.0 {
            IterRepr::Packed(entries) => entries.next(),
            IterRepr::Quick(entries) => entries.next(),
        }
    }
}

pub struct IterRev<'a>(IterRevRepr<'a>);

enum IterRevRepr<'a> {
    Packed(std::iter::Take<std::iter::Rev<packed::Iter<'a>>>),
    Quick(quicklist::IterRev<'a>),
}

impl<'a> Iterator for IterRev<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match &mut self.0 {
            IterRevRepr::Packed(entries) => entries.next(),
            IterRevRepr::Quick(entries) => entries.next(),
        }
    }
}
