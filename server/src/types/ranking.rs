//! `Ranking`: a counted B+tree, the order of a big sorted set.
//!
//! ```text
//!   Inner  | first, n, child | first, n, child | ...          up to 24 children, n items below each
//!             |                  |
//!   Leaf   | item x 36 |     | item x 36 |                    up to 36 items of 14 bytes, in order
//! ```
//!
//! Redis keeps a skiplist: about 1.33 pointers and spans an element, each step of a descent a cache miss. Here a million
//! items are four levels, a rank is the sum of the counts left of the way down, and a range is read leaf by leaf.
//!
//! Items are small copies; how they compare is the caller's (the items of a sorted set point to its members), who must say
//! the same as long as an item stays. Equal items are a bug.
//! Invariants (`check`): items ascend; every child's `n` and `first` are true; no node below the root is empty.
//! Cost: insert, remove, rank, select O(log n); a range O(log n + items). No growth step touches more than one node a level.

use std::cmp::Ordering;
use std::ops::Range;

use smallvec::SmallVec;

use crate::keyspace::loose::Loose;

pub(super) const LEAF_ITEMS: usize = 36;
const INNER_CHILDREN: usize = 24;
/// A node below this share of its room looks for a neighbor to join.
const SPARSE_RATIO: usize = 3;

pub(super) type Leaf<T> = SmallVec<[T; LEAF_ITEMS]>;

pub(super) struct Ranking<T: Copy> {
    root: Node<T>,
    len: usize,
    n_leaves: usize,
    n_inners: usize,
}

enum Node<T: Copy> {
    Leaf(Loose<Leaf<T>>),
    Inner(Loose<Inner<T>>),
}

struct Inner<T: Copy> {
    children: SmallVec<[Child<T>; INNER_CHILDREN]>,
}

struct Child<T: Copy> {
    /// The least item below.
    first: T,
    /// Items below.
    n: usize,
    node: Node<T>,
}

/// `0..len` in as few parts of at most `max` as there can be, none much smaller than another.
fn even_parts(len: usize, max: usize) -> impl Iterator<Item = Range<usize>> {
    let n_parts = len.div_ceil(max);
    (0..n_parts).map(move |part| part * len / n_parts..(part + 1) * len / n_parts)
}

/// The inner nodes above these.
fn above<T: Copy>(mut below: impl ExactSizeIterator<Item = Child<T>>) -> Vec<Child<T>> {
    even_parts(below.len(), INNER_CHILDREN)
        .map(|part| {
            let children = below.by_ref().take(part.len()).collect();
            Child::of(Node::Inner(Loose::new(Inner { children })))
        })
        .collect()
}

/// How many nodes came or went in one change.
#[derive(Default)]
struct Nodes {
    leaves: isize,
    inners: isize,
}

impl<T: Copy> Ranking<T> {
    pub(super) fn new() -> Self {
        Self { root: Node::Leaf(Loose::new(Leaf::new())), len: 0, n_leaves: 1, n_inners: 0 }
    }

    /// The ranking of items that ascend already: no comparison, full leaves.
    pub(super) fn of_ascending(items: &[T]) -> Self {
        let leaf = |part| Loose::new(Leaf::from_slice(&items[part]));
        Self::of_leaves(even_parts(items.len(), LEAF_ITEMS).map(leaf).collect())
    }

    /// The ranking of leaves that ascend, none of which is empty.
    pub(super) fn of_leaves(mut leaves: Vec<Loose<Leaf<T>>>) -> Self {
        let n_leaves = leaves.len();
        let len = leaves.iter().map(|leaf| leaf.len()).sum();
        if n_leaves <= 1 {
            return leaves.pop().map_or_else(Self::new, |leaf| Self {
                root: Node::Leaf(leaf),
                len,
                n_leaves,
                n_inners: 0,
            });
        }
        let mut level = above(leaves.into_iter().map(|leaf| Child::of(Node::Leaf(leaf))));
        let mut n_inners = level.len();
        while level.len() > 1 {
            level = above(level.into_iter());
            n_inners += level.len();
        }
        let root = level.pop().expect("two leaves have a node above").node;
        Self { root, len, n_leaves, n_inners }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.n_leaves * size_of::<Leaf<T>>() + self.n_inners * size_of::<Inner<T>>()
    }

    /// Files an item that is not there yet.
    pub(super) fn insert(&mut self, item: T, order: impl Fn(&T, &T) -> Ordering) {
        let mut nodes = Nodes::default();
        if let Some(right) = self.root.insert(item, &order, &mut nodes) {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Loose::new(Leaf::new())));
            let mut children = SmallVec::new();
            children.push(Child::of(left));
            children.push(right);
            self.root = Node::Inner(Loose::new(Inner { children }));
            nodes.inners += 1;
        }
        self.len += 1;
        self.count(&nodes);
    }

    /// Takes an item out; false if it is not there.
    pub(super) fn remove(&mut self, item: &T, order: impl Fn(&T, &T) -> Ordering) -> bool {
        let mut nodes = Nodes::default();
        if !self.root.remove(item, &order, &mut nodes) {
            return false;
        }
        while let Node::Inner(inner) = &mut self.root
            && inner.children.len() == 1
            && let Some(only) = inner.children.pop()
        {
            self.root = only.node;
            nodes.inners -= 1;
        }
        self.len -= 1;
        self.count(&nodes);
        if self.len == 0 {
            *self = Self::new();
        }
        true
    }

    /// Number of items that `is_below` says yes to: a prefix of the order. So the rank of the first of the others.
    pub(super) fn partition_point(&self, is_below: impl Fn(&T) -> bool) -> usize {
        let (mut node, mut rank) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(leaf) => return rank + leaf.partition_point(&is_below),
                Node::Inner(inner) => {
                    let at = inner.children.partition_point(|child| is_below(&child.first));
                    let at = at.saturating_sub(1);
                    rank += inner.children[..at].iter().map(|child| child.n).sum::<usize>();
                    node = &inner.children[at].node;
                }
            }
        }
    }

    pub(super) fn get(&self, rank: usize) -> Option<&T> {
        let (leaf, at) = self.leaf_of(rank)?;
        leaf.get(at)
    }

    /// The items of these ranks, ascending; ranks past the end are none.
    pub(super) fn ascending(&self, ranks: Range<usize>) -> impl Iterator<Item = &T> {
        let mut next = ranks.start;
        let end = ranks.end.min(self.len);
        let mut items = [].iter();
        std::iter::from_fn(move || {
            if items.as_slice().is_empty() {
                let (leaf, at) = (next < end).then(|| self.leaf_of(next)).flatten()?;
                let n = (leaf.len() - at).min(end - next);
                items = leaf[at..at + n].iter();
                next += n;
            }
            items.next()
        })
    }

    /// The items of these ranks, descending.
    pub(super) fn descending(&self, ranks: Range<usize>) -> impl Iterator<Item = &T> {
        let mut end = ranks.end.min(self.len);
        let mut items = [].iter();
        std::iter::from_fn(move || {
            if items.as_slice().is_empty() {
                let (leaf, at) = (ranks.start < end).then(|| self.leaf_of(end - 1)).flatten()?;
                let n = (at + 1).min(end - ranks.start);
                items = leaf[at + 1 - n..=at].iter();
                end -= n;
            }
            items.next_back()
        })
    }

    /// Frees about `budget` items; true when none is left. A ranking that is being freed answers for the items left.
    pub(super) fn free_slice(&mut self, budget: usize) -> bool {
        let mut freed = 0;
        while freed < budget && self.len > 0 {
            let mut nodes = Nodes::default();
            let n = self.root.pop_leaf(&mut nodes);
            self.len -= n;
            freed += n;
            self.count(&nodes);
        }
        if self.len == 0 {
            *self = Self::new();
        }
        self.len == 0
    }

    /// The leaf that holds this rank, and the place in it.
    fn leaf_of(&self, rank: usize) -> Option<(&[T], usize)> {
        if rank >= self.len {
            return None;
        }
        let (mut node, mut left) = (&self.root, rank);
        loop {
            match node {
                Node::Leaf(leaf) => return Some((leaf, left)),
                Node::Inner(inner) => {
                    let mut children = inner.children.iter();
                    node = loop {
                        let child = children.next()?;
                        if left < child.n {
                            break &child.node;
                        }
                        left -= child.n;
                    };
                }
            }
        }
    }

    fn count(&mut self, nodes: &Nodes) {
        self.n_leaves = self.n_leaves.strict_add_signed(nodes.leaves);
        self.n_inners = self.n_inners.strict_add_signed(nodes.inners);
    }

    /// Panics unless the invariants hold.
    pub(super) fn check(&self, order: impl Fn(&T, &T) -> Ordering) {
        let mut nodes = Nodes::default();
        let n = self.root.check(&order, &mut nodes);
        assert_eq!(
            (n, self.n_leaves as isize, self.n_inners as isize),
            (self.len, nodes.leaves, nodes.inners)
        );
        let items: Vec<&T> = self.ascending(0..self.len).collect();
        assert!(items.is_sorted_by(|a, b| order(a, b) == Ordering::Less), "items do not ascend");
        assert_eq!(items.len(), self.len);
    }
}

impl<T: Copy> Child<T> {
    fn of(node: Node<T>) -> Self {
        Self { first: node.first(), n: node.len(), node }
    }
}

impl<T: Copy> Node<T> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.children.iter().map(|child| child.n).sum(),
        }
    }

    /// Items or children: what a node holds itself.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    fn room(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_ITEMS,
            Node::Inner(_) => INNER_CHILDREN,
        }
    }

    fn first(&self) -> T {
        match self {
            Node::Leaf(leaf) => leaf[0],
            Node::Inner(inner) => inner.children[0].first,
        }
    }

    /// Returns the right half if the node had to be split.
    fn insert(
        &mut self,
        item: T,
        order: &impl Fn(&T, &T) -> Ordering,
        nodes: &mut Nodes,
    ) -> Option<Child<T>> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.partition_point(|other| order(other, &item) == Ordering::Less);
                debug_assert!(leaf.get(at).is_none_or(|other| order(other, &item) == Ordering::Greater));
                if leaf.len() < LEAF_ITEMS {
                    leaf.insert(at, item);
                    return None;
                }
                nodes.leaves += 1;
                // Items that come in order leave full leaves behind.
                let middle = if at == LEAF_ITEMS { LEAF_ITEMS } else { LEAF_ITEMS / 2 };
                let mut right: Loose<Leaf<T>> = Loose::new(leaf.drain(middle..).collect());
                if at > middle || at == LEAF_ITEMS {
                    right.insert(at - middle, item);
                } else {
                    leaf.insert(at, item);
                }
                Some(Child::of(Node::Leaf(right)))
            }
            Node::Inner(inner) => {
                let at = inner.place_of(&item, order);
                let child = &mut inner.children[at];
                let split = child.node.insert(item, order, nodes);
                child.first = child.node.first();
                child.n += 1;
                let new = split?;
                child.n -= new.n;
                if inner.children.len() < INNER_CHILDREN {
                    inner.children.insert(at + 1, new);
                    return None;
                }
                nodes.inners += 1;
                let middle = if at + 1 == INNER_CHILDREN { INNER_CHILDREN } else { INNER_CHILDREN / 2 };
                let mut right = Inner { children: inner.children.drain(middle..).collect() };
                if at + 1 > middle || at + 1 == INNER_CHILDREN {
                    right.children.insert(at + 1 - middle, new);
                } else {
                    inner.children.insert(at + 1, new);
                }
                Some(Child::of(Node::Inner(Loose::new(right))))
            }
        }
    }

    fn remove(&mut self, item: &T, order: &impl Fn(&T, &T) -> Ordering, nodes: &mut Nodes) -> bool {
        match self {
            Node::Leaf(leaf) => match leaf.binary_search_by(|other| order(other, item)) {
                Ok(at) => {
                    leaf.remove(at);
                    true
                }
                Err(_) => false,
            },
            Node::Inner(inner) => {
                let at = inner.place_of(item, order);
                let child = &mut inner.children[at];
                if !child.node.remove(item, order, nodes) {
                    return false;
                }
                child.n -= 1;
                if child.n == 0 {
                    nodes.forget(&inner.children.remove(at).node);
                    return true;
                }
                child.first = child.node.first();
                if child.node.width() * SPARSE_RATIO < child.node.room() {
                    inner.join(at, nodes);
                }
                true
            }
        }
    }

    /// Drops the last leaf; returns how many items went. An emptied leaf stays as the root only.
    fn pop_leaf(&mut self, nodes: &mut Nodes) -> usize {
        match self {
            Node::Leaf(leaf) => {
                let n = leaf.len();
                leaf.clear();
                n
            }
            Node::Inner(inner) => {
                let Some(last) = inner.children.last_mut() else { return 0 };
                let n = last.node.pop_leaf(nodes);
                last.n -= n;
                if last.n == 0
                    && let Some(empty) = inner.children.pop()
                {
                    nodes.forget(&empty.node);
                }
                n
            }
        }
    }

    fn check(&self, order: &impl Fn(&T, &T) -> Ordering, nodes: &mut Nodes) -> usize {
        match self {
            Node::Leaf(leaf) => {
                assert!(!leaf.spilled());
                nodes.leaves += 1;
                leaf.len()
            }
            Node::Inner(inner) => {
                assert!(!inner.children.spilled() && !inner.children.is_empty());
                nodes.inners += 1;
                let n_of = |child: &Child<T>| {
                    assert!(
                        order(&child.first, &child.node.first()) == Ordering::Equal,
                        "a stale first item"
                    );
                    let n = child.node.check(order, nodes);
                    assert!(n == child.n && n > 0, "a wrong count");
                    n
                };
                inner.children.iter().map(n_of).sum()
            }
        }
    }
}

impl<T: Copy> Inner<T> {
    /// The child to which an item belongs.
    fn place_of(&self, item: &T, order: &impl Fn(&T, &T) -> Ordering) -> usize {
        let at = self.children.partition_point(|child| order(&child.first, item) != Ordering::Greater);
        at.saturating_sub(1)
    }

    /// Joins the child at `at` with a neighbor if one node has room for both.
    fn join(&mut self, at: usize, nodes: &mut Nodes) {
        let fits =
            |left: &Child<T>, right: &Child<T>| left.node.width() + right.node.width() <= left.node.room();
        let left = if at > 0 && fits(&self.children[at - 1], &self.children[at]) {
            at - 1
        } else if at + 1 < self.children.len() && fits(&self.children[at], &self.children[at + 1]) {
            at
        } else {
            return;
        };
        let right = self.children.remove(left + 1);
        nodes.forget(&right.node);
        let child = &mut self.children[left];
        child.n += right.n;
        match (&mut child.node, right.node) {
            (Node::Leaf(items), Node::Leaf(more)) => items.extend_from_slice(&more),
            (Node::Inner(inner), Node::Inner(more)) => inner.children.extend(more.into_box().children),
            (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => {
                unreachable!("all leaves are on one level")
            }
        }
    }
}

impl Nodes {
    /// A node goes that is empty or gives away what it holds.
    fn forget<T: Copy>(&mut self, node: &Node<T>) {
        match node {
            Node::Leaf(_) => self.leaves -= 1,
            Node::Inner(_) => self.inners -= 1,
        }
    }
}
