//! `Runs`: items in any order on their way into a [`Ranking`]. A merge sort whose blocks are the ranking's leaves.
//!
//! ```text
//!  runs   | leaf leaf leaf leaf | leaf leaf | leaf |     each run ascends, its leaves are full, and it is longer than the next
//!  open   | items as they come |                         sorted when it is full
//! ```
//!
//! Two runs become one by filling new leaves from the old, which are freed as they are emptied: items that are not needed
//! twice are not held twice. A payload of a million members is ranked in what its ranking takes, and every leaf is full.
//! It knows no order of its own, as the ranking. Cost: O(log n) comparisons an item, one where they ascend or descend.

use std::cmp::Ordering;

use super::ranking::{LEAF_ITEMS, Leaf, Ranking};
use crate::keyspace::loose::Loose;

pub(super) struct Runs<T: Copy> {
    runs: Vec<Run<T>>,
    open: Leaf<T>,
}

type Run<T> = Vec<Loose<Leaf<T>>>;

impl<T: Copy> Runs<T> {
    pub(super) fn new() -> Self {
        Self { runs: Vec::new(), open: Leaf::new() }
    }

    pub(super) fn push(&mut self, item: T, order: impl Fn(&T, &T) -> Ordering) {
        self.open.push(item);
        if self.open.len() == LEAF_ITEMS {
            self.close(&order);
            while let [.., left, right] = &self.runs[..]
                && left.len() <= right.len()
            {
                self.join_last(&order);
            }
        }
    }

    /// The ranking of all of them.
    pub(super) fn rank(mut self, order: impl Fn(&T, &T) -> Ordering) -> Ranking<T> {
        if !self.open.is_empty() {
            self.close(&order);
        }
        while self.runs.len() > 1 {
            self.join_last(&order);
        }
        Ranking::of_leaves(self.runs.pop().unwrap_or_default())
    }

    fn close(&mut self, order: &impl Fn(&T, &T) -> Ordering) {
        let mut leaf = std::mem::take(&mut self.open);
        leaf.sort_unstable_by(order);
        self.runs.push(vec![Loose::new(leaf)]);
    }

    fn join_last(&mut self, order: &impl Fn(&T, &T) -> Ordering) {
        let (Some(right), Some(left)) = (self.runs.pop(), self.runs.pop()) else { return };
        self.runs.push(joined(left, right, order));
    }
}

/// One run of two. The leaves of `left` are full, and those of `right` but for its last one.
fn joined<T: Copy>(left: Run<T>, right: Run<T>, order: &impl Fn(&T, &T) -> Ordering) -> Run<T> {
    let is_before = |a: &Run<T>, b: &Run<T>| {
        let (Some(last), Some(first)) = (a.last().and_then(|leaf| leaf.last()), b.first()) else {
            return true;
        };
        order(last, &first[0]) != Ordering::Greater
    };
    let append = |mut run: Run<T>, mut behind: Run<T>| {
        run.reserve_exact(behind.len());
        run.append(&mut behind);
        run
    };
    if is_before(&left, &right) {
        return append(left, right);
    }
    if is_before(&right, &left) && right.last().is_none_or(|leaf| leaf.len() == LEAF_ITEMS) {
        return append(right, left);
    }
    merged(left, right, order)
}

/// Leaves filled anew from two runs.
fn merged<T: Copy>(left: Run<T>, right: Run<T>, order: &impl Fn(&T, &T) -> Ordering) -> Run<T> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (Front::new(left), Front::new(right));
    let mut leaf = Loose::new(Leaf::new());
    loop {
        let next = match (left.first(), right.first()) {
            (Some(a), Some(b)) if order(a, b) == Ordering::Greater => right.take(),
            (Some(_), _) => left.take(),
            (None, _) => right.take(),
        };
        let Some(item) = next else { break };
        leaf.push(item);
        if leaf.len() == LEAF_ITEMS {
            all.push(std::mem::replace(&mut leaf, Loose::new(Leaf::new())));
        }
    }
    if !leaf.is_empty() {
        all.push(leaf);
    }
    all
}

/// What is left of a run: its leaves, and how much of the first one has been taken.
struct Front<T: Copy> {
    leaves: std::vec::IntoIter<Loose<Leaf<T>>>,
    leaf: Option<Loose<Leaf<T>>>,
    n_taken: usize,
}

impl<T: Copy> Front<T> {
    fn new(run: Run<T>) -> Self {
        let mut leaves = run.into_iter();
        let leaf = leaves.next();
        Self { leaves, leaf, n_taken: 0 }
    }

    fn first(&self) -> Option<&T> {
        self.leaf.as_ref().and_then(|leaf| leaf.get(self.n_taken))
    }

    fn take(&mut self) -> Option<T> {
        let leaf = self.leaf.as_ref()?;
        let item = *leaf.get(self.n_taken)?;
        self.n_taken += 1;
        if self.n_taken == leaf.len() {
            self.leaf = self.leaves.next();
            self.n_taken = 0;
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rank(items: &[u32]) -> Ranking<u32> {
        let mut runs = Runs::new();
        items.iter().for_each(|item| runs.push(*item, u32::cmp));
        runs.rank(u32::cmp)
    }

    proptest! {
        /// Any order, and pieces that ascend and descend, of any length.
        #[test]
        fn every_order_is_ranked(mut items in prop::collection::vec(any::<u32>(), 0..2000), at in 0_usize..2000) {
            items.sort_unstable();
            items.dedup();
            let sorted = items.clone();
            let (left, right) = items.split_at(at.min(items.len()));
            let backwards: Vec<u32> = sorted.iter().rev().copied().collect();
            let turned: Vec<u32> = right.iter().chain(left).copied().collect();
            let mixed: Vec<u32> = left.iter().rev().chain(right).copied().collect();
            let mut scattered = sorted.clone();
            scattered.sort_unstable_by_key(|item| item.wrapping_mul(2_654_435_761));
            for order in [&sorted, &backwards, &turned, &mixed, &scattered] {
                let ranking = rank(order);
                if !sorted.is_empty() {
                    ranking.check(u32::cmp);
                }
                prop_assert!(ranking.ascending(0..sorted.len()).eq(&sorted));
                // Full leaves: as few as there can be.
                let least = Ranking::of_ascending(&sorted).memory_bytes();
                prop_assert_eq!(ranking.memory_bytes(), least);
            }
        }
    }
}
