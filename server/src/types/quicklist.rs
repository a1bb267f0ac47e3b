//! The big encoding of a list: a deque of nodes, each a packed buffer within the node limit, or one large
//! element alone.
//!
//! ```text
//! nodes: [ Packed 31 ][ Packed 31 ][ Plain ][ Packed 12 ]        len = 75
//! ```
//!
//! Where a node is full, splits and merges follows Redis's quicklist, because the way back to the "listpack"
//! encoding is open to a list of exactly one packed node and clients see it in OBJECT ENCODING.
//!
//! Invariants: no node is empty; `len` is the sum of the nodes' counts. A node is within its limit when it is
//! pushed or inserted to; LSET may leave it above, as Redis does.
//! Cost: ends O(1) amortised; index O(nodes + entries of one node); insert and remove O(nodes) moves of 32 bytes.

use std::collections::VecDeque;
use std::ops::Range;

use super::element::{Element, Encoded};
use super::node::{ENTRY_ESTIMATE_BYTES, Node, NodeIter, NodeLimit, Part};
use super::packed::{End, Growth, LISTPACK_FRAME_BYTES, Packed};

/// A new node takes this much at once, times the number of nodes: never over a fraction of the list.
const NODE_FIRST_BYTES: usize = 2048;
/// The deque gives memory back when it could hold this many times its nodes, and these nodes more.
const DEQUE_SHRINK_RATIO: usize = 4;
const DEQUE_SHRINK_MIN_NODES: usize = 16;

/// Before or behind a pivot, a node, a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

#[derive(Clone, PartialEq, Default)]
pub(super) struct Quicklist {
    nodes: VecDeque<Node>,
    len: usize,
}

/// An element's place: its node, and its index in there.
#[derive(Clone, Copy)]
struct Place {
    node: usize,
    index: usize,
}

impl Quicklist {
    pub(super) fn from_packed(packed: Packed) -> Self {
        let len = packed.len();
        let nodes = if len > 0 { VecDeque::from([Node::Packed(packed)]) } else { VecDeque::new() };
        Self { nodes, len }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The only node, if it is packed and at most half full.
    pub(super) fn take_half_node(&mut self, limit: NodeLimit) -> Option<Packed> {
        match self.nodes.front_mut() {
            Some(Node::Packed(packed)) if self.len == packed.len() => {
                limit.is_half(packed.listpack_bytes(), packed.len()).then(|| std::mem::take(packed))
            }
            Some(_) | None => None,
        }
    }

    /// The only node, if it is packed and within the limit; of no node at all an empty one.
    pub(super) fn take_only_node(&mut self, limit: NodeLimit) -> Option<Packed> {
        match self.nodes.front_mut() {
            None => Some(Packed::new()),
            Some(Node::Packed(packed)) if self.len == packed.len() => {
                let fits = !limit.is_exceeded(packed.listpack_bytes(), packed.len());
                fits.then(|| {
                    packed.give_back();
                    std::mem::take(packed)
                })
            }
            Some(_) => None,
        }
    }

    // ---- parts

    pub(super) fn with_capacity(n_nodes: usize) -> Self {
        Self { nodes: VecDeque::with_capacity(n_nodes), len: 0 }
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.nodes.iter().map(Node::lend)
    }

    /// Appends a node of these elements; nothing if there are none.
    pub(super) fn append_packed(&mut self, packed: Packed) {
        self.len += packed.len();
        if !packed.is_empty() {
            self.nodes.push_back(Node::Packed(packed));
        }
    }

    // ---- ends

    pub(super) fn push_front(&mut self, value: &[u8], limit: NodeLimit) {
        self.len += 1;
        match self.nodes.front_mut() {
            Some(node) if node.allows(value.len(), limit) => {
                node.packed_mut().push_front(&Encoded::of(value), Growth::Roomy);
            }
            Some(_) | None => {
                let node = self.new_end_node(value, limit, Side::Before);
                if let Some(full) = self.nodes.front_mut() {
                    full.tighten();
                }
                self.nodes.push_front(node);
            }
        }
    }

    pub(super) fn push_back(&mut self, value: &[u8], limit: NodeLimit) {
        self.len += 1;
        match self.nodes.back_mut() {
            Some(node) if node.allows(value.len(), limit) => {
                node.packed_mut().push_back(&Encoded::of(value), Growth::Roomy);
            }
            Some(_) | None => {
                let node = self.new_end_node(value, limit, Side::After);
                if let Some(full) = self.nodes.back_mut() {
                    full.tighten();
                }
                self.nodes.push_back(node);
            }
        }
    }

    /// A node that expects more elements at its outer side: with room for them, as the list is long already.
    fn new_end_node(&self, value: &[u8], limit: NodeLimit, side: Side) -> Node {
        if limit.is_large(value.len()) {
            return Node::Plain(value.into());
        }
        let expected = limit.max_bytes().min(NODE_FIRST_BYTES.saturating_mul(self.nodes.len()));
        let capacity = match limit {
            NodeLimit::Bytes(_) => expected,
            NodeLimit::Count(max) => expected.min(max.saturating_mul(value.len() + ENTRY_ESTIMATE_BYTES)),
        };
        let encoded = Encoded::of(value);
        let mut packed = Packed::with_capacity(capacity.max(encoded.n_entry()));
        match side {
            Side::Before => packed.push_front(&encoded, Growth::Roomy),
            Side::After => packed.push_back(&encoded, Growth::Roomy),
        }
        Node::Packed(packed)
    }

    pub(super) fn front(&self) -> Option<Element<'_>> {
        self.nodes.front()?.iter_from(0).next()
    }

    pub(super) fn back(&self) -> Option<Element<'_>> {
        let node = self.nodes.back()?;
        node.iter_until(node.len()).next_back()
    }

    /// Removes the first element. The list is not empty.
    pub(super) fn pop_front(&mut self) {
        self.len -= 1;
        match self.nodes.front_mut() {
            Some(Node::Packed(packed)) if packed.len() > 1 => packed.pop_front(),
            Some(_) | None => {
                self.nodes.pop_front();
                self.give_back();
            }
        }
    }

    /// Removes the last element. The list is not empty.
    pub(super) fn pop_back(&mut self) {
        self.len -= 1;
        match self.nodes.back_mut() {
            Some(Node::Packed(packed)) if packed.len() > 1 => packed.pop_back(),
            Some(_) | None => {
                self.nodes.pop_back();
                self.give_back();
            }
        }
    }

    /// Shrinks the deque of a queue that was long once.
    fn give_back(&mut self) {
        let n_nodes = self.nodes.len();
        if self.nodes.capacity() > DEQUE_SHRINK_RATIO * (n_nodes + DEQUE_SHRINK_MIN_NODES) {
            self.nodes.shrink_to(2 * n_nodes);
        }
    }

    // ---- by index

    fn place(&self, index: usize) -> Place {
        assert!(index < self.len);
        let mut index = index;
        if index <= self.len / 2 {
            for (node, n) in self.nodes.iter().map(Node::len).enumerate() {
                if index < n {
                    return Place { node, index };
                }
                index -= n;
            }
        } else {
            let mut behind = self.len - index;
            for (node, n) in self.nodes.iter().map(Node::len).enumerate().rev() {
                if behind <= n {
                    return Place { node, index: n - behind };
                }
                behind -= n;
            }
        }
        unreachable!("len is the sum of the nodes' counts")
    }

    pub(super) fn range(&self, range: Range<usize>) -> Iter<'_> {
        Iter::forward(self, range)
    }

    pub(super) fn range_rev(&self, range: Range<usize>) -> IterRev<'_> {
        IterRev::new(self, range)
    }

    pub(super) fn set(&mut self, index: usize, value: &[u8], limit: NodeLimit) {
        let place = self.place(index);
        let large = limit.is_large(value.len());
        match &mut self.nodes[place.node] {
            Node::Packed(packed) if !large => {
                let at = packed.seek(place.index);
                packed.replace(at, &Encoded::of(value), Growth::Tight);
            }
            Node::Plain(plain) if large => *plain = value.into(),
            Node::Plain(_) => {
                // A neighbour may take the small value: so Redis has it.
                self.insert(index, Side::After, value, limit);
                self.remove_at(place);
            }
            Node::Packed(_) => {
                let after = self.split(Place { index: place.index + 1, ..place });
                self.insert_node(after, Node::of(value, limit));
                let alone = self.nodes[place.node].len() == 1;
                self.remove_at(place);
                if !alone {
                    self.merge_around(after, limit);
                }
            }
        }
    }

    pub(super) fn insert(&mut self, index: usize, side: Side, value: &[u8], limit: NodeLimit) {
        let place = self.place(index);
        let Place { node, .. } = place;
        let allows = |at: Option<usize>| {
            at.and_then(|at| self.nodes.get(at)).is_some_and(|node| node.allows(value.len(), limit))
        };
        let at_start = place.index == 0 && side == Side::Before;
        let at_end = place.index == self.nodes[node].len() - 1 && side == Side::After;
        if allows(Some(node)) {
            self.insert_into(place, side, value);
        } else if at_end && allows(Some(node + 1)) {
            self.insert_into(Place { node: node + 1, index: 0 }, Side::Before, value);
        } else if at_start && allows(node.checked_sub(1)) {
            let index = self.nodes[node - 1].len() - 1;
            self.insert_into(Place { node: node - 1, index }, Side::After, value);
        } else if at_start || at_end {
            self.insert_node(node + usize::from(at_end), Node::of(value, limit));
        } else {
            self.insert_splitting(place, side, value, limit);
        }
    }

    /// Splits the pivot's full node, gives the value to the half that is cut off, and merges what then fits.
    fn insert_splitting(&mut self, place: Place, side: Side, value: &[u8], limit: NodeLimit) {
        let cut = place.index + usize::from(side == Side::After);
        let tail = self.split(Place { index: cut, ..place });
        if limit.is_large(value.len()) {
            return self.insert_node(tail, Node::of(value, limit));
        }
        let encoded = Encoded::of(value);
        let centre = match side {
            Side::After => {
                self.nodes[tail].packed_mut().push_front(&encoded, Growth::Tight);
                place.node
            }
            Side::Before => {
                self.nodes[place.node].packed_mut().push_back(&encoded, Growth::Tight);
                tail
            }
        };
        self.len += 1;
        self.merge_around(centre, limit);
    }

    fn insert_into(&mut self, place: Place, side: Side, value: &[u8]) {
        let packed = self.nodes[place.node].packed_mut();
        let at = packed.seek(place.index + usize::from(side == Side::After));
        packed.insert(at, &Encoded::of(value), Growth::Roomy);
        self.len += 1;
    }

    fn insert_node(&mut self, at: usize, node: Node) {
        self.len += node.len();
        self.nodes.insert(at, node);
    }

    /// Cuts a node before `place.index`; returns the index of the node that then begins there.
    fn split(&mut self, place: Place) -> usize {
        if let Node::Packed(packed) = &mut self.nodes[place.node]
            && place.index < packed.len()
        {
            let tail = packed.split_off(packed.seek(place.index), place.index);
            self.nodes.insert(place.node + 1, Node::Packed(tail));
        }
        place.node + 1
    }

    /// Tries the two nodes before, the two behind, then the centre with either: Redis's order.
    fn merge_around(&mut self, centre: usize, limit: NodeLimit) {
        let mut centre = centre;
        if centre >= 2 && self.merge(centre - 2, limit) {
            centre -= 1;
        }
        self.merge(centre + 1, limit);
        if centre >= 1 && self.merge(centre - 1, limit) {
            centre -= 1;
        }
        self.merge(centre, limit);
    }

    /// Merges node `at` and the one behind if the limit lets them be one.
    fn merge(&mut self, at: usize, limit: NodeLimit) -> bool {
        let Some(Node::Packed(behind)) = self.nodes.get(at + 1) else { return false };
        let Node::Packed(packed) = &self.nodes[at] else { return false };
        let bytes = packed.listpack_bytes() + behind.listpack_bytes() - LISTPACK_FRAME_BYTES;
        if limit.is_exceeded(bytes, packed.len() + behind.len()) {
            return false;
        }
        let behind = self.nodes.remove(at + 1).expect("it was just looked at");
        if let (Node::Packed(packed), Node::Packed(behind)) = (&mut self.nodes[at], behind) {
            packed.append(&behind);
        }
        true
    }

    fn remove_at(&mut self, place: Place) {
        self.len -= 1;
        let node = &mut self.nodes[place.node];
        match node {
            Node::Packed(packed) if packed.len() > 1 => {
                packed.remove(packed.seek(place.index), 1);
            }
            Node::Packed(_) | Node::Plain(_) => {
                self.nodes.remove(place.node);
            }
        }
    }

    /// Removes the first or last `max` elements equal to `value`; returns how many there were.
    pub(super) fn remove_equal(&mut self, value: &[u8], max: usize, from: End) -> usize {
        let mut n_removed = 0;
        let n_nodes = self.nodes.len();
        for step in 0..n_nodes {
            if n_removed == max {
                break;
            }
            let at = match from {
                End::Front => step,
                End::Back => n_nodes - 1 - step,
            };
            n_removed += self.nodes[at].remove_equal(value, max - n_removed, from);
        }
        self.len -= n_removed;
        if n_removed > 0 {
            self.nodes.retain(|node| !node.is_used_up());
        }
        n_removed
    }

    pub(super) fn truncate_front(&mut self, n: usize) {
        let mut left = n;
        self.len -= n;
        while left > 0 {
            let node = self.nodes.front_mut().expect("n is at most len");
            if node.len() <= left {
                left -= node.len();
                self.nodes.pop_front();
                self.give_back();
            } else {
                let packed = node.packed_mut();
                let end = packed.seek(left);
                packed.remove_span(packed.seek(0), end, left);
                return;
            }
        }
    }

    pub(super) fn truncate_back(&mut self, n: usize) {
        let mut left = n;
        self.len -= n;
        while left > 0 {
            let node = self.nodes.back_mut().expect("n is at most len");
            if node.len() <= left {
                left -= node.len();
                self.nodes.pop_back();
                self.give_back();
            } else {
                let packed = node.packed_mut();
                let from = packed.seek(packed.len() - left);
                packed.remove_span(from, packed.end(), left);
                return;
            }
        }
    }

    // ---- whole

    pub(super) fn heap_bytes(&self) -> usize {
        let nodes = self.nodes.capacity() * size_of::<Node>();
        size_of::<Self>() + nodes + self.nodes.iter().map(Node::heap_bytes).sum::<usize>()
    }

    /// Frees up to `budget` nodes; true when none is left.
    pub(super) fn free_slice(&mut self, budget: usize) -> bool {
        for _ in 0..budget {
            match self.nodes.pop_back() {
                Some(node) => self.len -= node.len(),
                None => return true,
            }
        }
        self.nodes.is_empty()
    }

    pub(super) fn check(&self) {
        assert_eq!(self.len, self.nodes.iter().map(Node::len).sum::<usize>());
        for node in &self.nodes {
            assert!(node.len() > 0, "an empty node");
            if let Node::Packed(packed) = node {
                packed.check();
            }
        }
    }
}

/// Elements of a range, first to last.
pub(super) struct Iter<'a> {
    nodes: std::collections::vec_deque::Iter<'a, Node>,
    node: NodeIter<'a>,
    left: usize,
}

impl<'a> Iter<'a> {
    fn forward(list: &'a Quicklist, range: Range<usize>) -> Self {
        let range = range.start..range.end.min(list.len);
        if range.is_empty() {
            return Self { nodes: list.nodes.range(..0), node: NodeIter::Plain(None), left: 0 };
        }
        let place = list.place(range.start);
        let node = list.nodes[place.node].iter_from(place.index);
        Self { nodes: list.nodes.range(place.node + 1..), node, left: range.len() }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let Some(element) = self.node.next() {
                return Some(element);
            }
            self.node = self.nodes.next()?.iter_from(0);
        }
    }
}

/// Elements of a range, last to first.
pub(super) struct IterRev<'a> {
    nodes: std::collections::vec_deque::Iter<'a, Node>,
    node: NodeIter<'a>,
    left: usize,
}

impl<'a> IterRev<'a> {
    fn new(list: &'a Quicklist, range: Range<usize>) -> Self {
        let range = range.start..range.end.min(list.len);
        if range.is_empty() {
            return Self { nodes: list.nodes.range(..0), node: NodeIter::Plain(None), left: 0 };
        }
        let place = list.place(range.end - 1);
        let node = list.nodes[place.node].iter_until(place.index + 1);
        Self { nodes: list.nodes.range(..place.node), node, left: range.len() }
    }
}

impl<'a> Iterator for IterRev<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let Some(element) = self.node.next_back() {
                return Some(element);
            }
            let node = self.nodes.next_back()?;
            self.node = node.iter_until(node.len());
        }
    }
}
