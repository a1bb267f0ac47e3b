//! Union, intersection and difference of sorted sets and sets, with their scores (ZUNION, ZINTER, ZDIFF and their kin).
//!
//! A set counts as a sorted set of scores 1. Results are lent members with new scores, in the order of a sorted set.
//! As in Redis the inputs are taken from the smallest to the biggest, which shows in the last bits of a sum; a product or sum
//! that is not a number counts as 0.
//! Cost: union O(all members), intersection O(smallest * sets), difference O(first * sets), then a sort of the result.

use std::cmp::Ordering;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::algebra::ElementHash;
use super::element::{Digits, Element};
use super::zset::Scored;
use super::{OneOf, Set, Zset};
use crate::keyspace::hash::HashSeed;

/// An input: what a key holds. A key that is absent is left out, or makes an intersection empty.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Set(&'a Set),
    Zset(&'a Zset),
}

impl<'a> Source<'a> {
    fn len(self) -> usize {
        match self {
            Source::Set(set) => set.len(),
            Source::Zset(zset) => zset.len(),
        }
    }

    fn iter(self) -> impl Iterator<Item = Scored<'a>> {
        match self {
            Source::Set(set) => OneOf::First(set.iter().map(|member| (member, 1.0))),
            Source::Zset(zset) => OneOf::<_, _, std::iter::Empty<_>>::Second(zset.iter()),
        }
    }

    fn score(self, member: Element<'_>) -> Option<f64> {
        match self {
            Source::Set(set) => set.contains_element(member).then_some(1.0),
            Source::Zset(zset) => zset.score_of_element(member),
        }
    }
}

/// An input and what its scores are multiplied with.
#[derive(Clone, Copy)]
pub struct Weighted<'a> {
    pub source: Source<'a>,
    pub weight: f64,
}

impl Weighted<'_> {
    /// Under COUNT a member's score is passed over: what counts is that it is there.
    fn weighed(self, score: f64, aggregate: Aggregate) -> f64 {
        match aggregate {
            Aggregate::Sum | Aggregate::Min | Aggregate::Max => self.weight * score,
            Aggregate::Count => self.weight,
        }
    }
}

/// How the scores of one member become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Sum,
    Min,
    Max,
    /// The sum of the weights of the inputs that have the member (Redis 8.8).
    Count,
}

impl Aggregate {
    fn join(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => number_or_zero(score + other),
            Aggregate::Min => {
                if other < score {
                    other
                } else {
                    score
                }
            }
            Aggregate::Max => {
                if other > score {
                    other
                } else {
                    score
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The members that any of the inputs has.
pub fn union<'a>(inputs: &[Weighted<'a>], aggregate: Aggregate, seed: HashSeed) -> Vec<Scored<'a>> {
    let mut joined: HashMap<Element<'a>, f64, ElementHash> = HashMap::with_hasher(ElementHash(seed));
    for input in by_len(inputs) {
        input.source.iter().for_each(|(member, score)| {
            let score = number_or_zero(input.weighed(score, aggregate));
            match joined.entry(member.canonical()) {
                Entry::Vacant(place) => _ = place.insert(score),
                Entry::Occupied(mut old) => *old.get_mut() = aggregate.join(*old.get(), score),
            }
        });
    }
    ranked(joined.into_iter().collect())
}

/// The members that all inputs have.
pub fn intersection<'a>(inputs: &[Weighted<'a>], aggregate: Aggregate) -> Vec<Scored<'a>> {
    let inputs = by_len(inputs);
    let Some((smallest, others)) = inputs.split_first() else { return Vec::new() };
    let joined = smallest.source.iter().filter_map(|(member, score)| {
        let mut joined = number_or_zero(smallest.weighed(score, aggregate));
        for other in others {
            // Not made a number first, as Redis does not: a sum with it is 0, a minimum or maximum passes it over.
            joined = aggregate.join(joined, other.weighed(other.source.score(member)?, aggregate));
        }
        Some((member, joined))
    });
    ranked(joined.collect())
}

/// How many members all inputs have; no further than `limit`.
pub fn intersection_len(inputs: &[Weighted<'_>], limit: usize) -> usize {
    let inputs = by_len(inputs);
    let Some((smallest, others)) = inputs.split_first() else { return 0 };
    let is_in_all =
        |(member, _): &Scored<'_>| others.iter().all(|other| other.source.score(*member).is_some());
    smallest.source.iter().filter(is_in_all).take(limit).count()
}

/// The members of the first input that none of the others has.
pub fn difference<'a>(first: Source<'a>, others: &[Source<'_>]) -> Vec<Scored<'a>> {
    let is_left = |(member, _): &Scored<'_>| others.iter().all(|other| other.score(*member).is_none());
    ranked(first.iter().filter(is_left).collect())
}

fn by_len<'a>(inputs: &[Weighted<'a>]) -> Vec<Weighted<'a>> {
    let mut inputs = inputs.to_vec();
    inputs.sort_by_key(|input| input.source.len());
    inputs
}

/// In the order of a sorted set.
fn ranked(mut scored: Vec<Scored<'_>>) -> Vec<Scored<'_>> {
    scored.sort_unstable_by(|(a, x), (b, y)| {
        x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(|| {
            let (mut left, mut right) = (Digits::new(), Digits::new());
            a.as_bytes(&mut left).cmp(b.as_bytes(&mut right))
        })
    });
    scored
}
