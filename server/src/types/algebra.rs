//! Intersection, union and difference of sets, lent and not copied.
//!
//! Each is an iterator, so that a LIMIT is `take(n)` and a cardinality `count()`. The elements come in the order of
//! the set that lends them. A union, and a difference with packed sets, hash borrowed elements under the sets' own
//! secret seed; nothing is copied but pointers.
//! Cost: intersection O(smallest * sets), difference O(first * sets), union O(all members).

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashSet;

use super::Limits;
use super::element::Element;
use super::set::Set;
use crate::keyspace::hash::HashSeed;

/// From so many probes on, hashing a packed set's members beats walking them for each probe.
const HASH_FROM_PROBES: usize = 16;

/// The members that all `sets` have, lent by the smallest. No set at all has no members.
pub fn intersection<'s>(sets: &[&'s Set]) -> impl Iterator<Item = Element<'s>> + use<'s> {
    let mut by_len = sets.to_vec();
    by_len.sort_by_key(|set| set.len());
    let others = by_len.split_off(by_len.len().min(1));
    // The smaller of the others say no more often.
    let smallest = by_len.into_iter().flat_map(Set::iter);
    smallest.filter(move |&element| others.iter().all(|set| set.contains_element(element)))
}

/// The members of `first` that none of `others` has.
pub fn difference<'s>(
    first: &'s Set,
    others: &[&'s Set],
    seed: HashSeed,
) -> impl Iterator<Item = Element<'s>> + use<'s> {
    let mut probed = others.to_vec();
    let mut hashed = HashSet::with_hasher(ElementHash(seed));
    if first.len() >= HASH_FROM_PROBES {
        probed.retain(|set| !set.probes_by_walking());
        let walked = others.iter().filter(|set| set.probes_by_walking());
        hashed.extend(walked.flat_map(|set| set.iter()).map(Element::canonical));
    }
    // The bigger of the others say yes more often.
    probed.sort_by_key(|set| std::cmp::Reverse(set.len()));
    first.iter().filter(move |&element| {
        let in_hashed = !hashed.is_empty() && hashed.contains(&element.canonical());
        !in_hashed && !probed.iter().any(|set| set.contains_element(element))
    })
}

/// The members that any of `sets` has, each once.
pub fn union<'s>(sets: &[&'s Set], seed: HashSeed) -> impl Iterator<Item = Element<'s>> + use<'s> {
    let mut seen = HashSet::with_hasher(ElementHash(seed));
    let last = sets.len().saturating_sub(1);
    let lone = sets.len() <= 1;
    let sets = sets.to_vec();
    sets.into_iter().enumerate().flat_map(|(i, set)| set.iter().map(move |element| (i, element))).filter_map(
        move |(i, element)| {
            let canonical = element.canonical();
            // What the last set adds need not be remembered.
            let new = lone || if i < last { seen.insert(canonical) } else { !seen.contains(&canonical) };
            new.then_some(element)
        },
    )
}

/// What SINTERSTORE stores, in the encoding Redis gives it.
pub fn stored_intersection(sets: &[&Set], limits: &Limits) -> Set {
    let mut stored = Set::new_packed();
    intersection(sets).for_each(|element| _ = stored.add_element(element, limits));
    stored.become_intset_if_integers(limits);
    stored
}

/// What SUNIONSTORE and SDIFFSTORE store of a [`union`] or [`difference`].
pub fn stored<'s>(elements: impl Iterator<Item = Element<'s>>, limits: &Limits) -> Set {
    let mut stored = Set::new_intset();
    elements.for_each(|element| _ = stored.add_element(element, limits));
    stored
}

/// Hashes canonical elements under the process's seed: members are the clients' choice.
#[derive(Clone, Copy)]
pub(super) struct ElementHash(pub(super) HashSeed);

impl BuildHasher for ElementHash {
    type Hasher = ElementHasher;

    fn build_hasher(&self) -> ElementHasher {
        ElementHasher { seed: self.0, hash: 0 }
    }
}

pub(super) struct ElementHasher {
    seed: HashSeed,
    hash: u64,
}

impl Hasher for ElementHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.hash ^= self.seed.hash_key(bytes);
    }

    /// A slice's length says nothing that its bytes do not.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}
