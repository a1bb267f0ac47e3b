//! Union, intersection and difference of sorted sets and sets with scores, against `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::aggregate::{
    Aggregate, Source, Weighted, difference, intersection, intersection_len, union,
};
use super::super::zset::Scored;
use super::super::{Set, Zset};
use super::limits;

/// Members and scores; a set's are all 1. Whole and small: sums are exact in any order.
type Model = BTreeMap<Vec<u8>, f64>;

enum Value {
    Set(Set),
    Zset(Zset),
}

impl Value {
    fn of(is_set: bool, model: &Model) -> Self {
        let limits = limits();
        if is_set {
            let mut set = Set::new_intset();
            model.keys().for_each(|member| _ = set.add(member, &limits));
            return Value::Set(set);
        }
        let mut zset = Zset::default();
        model.iter().for_each(|(member, score)| _ = zset.set(member, *score, &limits));
        Value::Zset(zset)
    }

    fn source(&self) -> Source<'_> {
        match self {
            Value::Set(set) => Source::Set(set),
            Value::Zset(zset) => Source::Zset(zset),
        }
    }
}

fn input() -> impl Strategy<Value = (bool, Model, i8)> {
    let member =
        (0..30_u8).prop_map(|n| if n % 2 == 0 { vec![b'a' + n] } else { n.to_string().into_bytes() });
    let scored = proptest::collection::btree_map(member, (-5..9_i8).prop_map(f64::from), 0..20);
    (any::<bool>(), scored, -3..4_i8).prop_map(|(is_set, mut model, weight)| {
        if is_set {
            model.values_mut().for_each(|score| *score = 1.0);
        }
        (is_set, model, weight)
    })
}

fn joined(aggregate: Aggregate, scores: &[(f64, f64)]) -> f64 {
    let weighted = scores.iter().map(|(score, weight)| score * weight);
    match aggregate {
        Aggregate::Sum => weighted.sum(),
        Aggregate::Min => weighted.fold(f64::INFINITY, f64::min),
        Aggregate::Max => weighted.fold(f64::NEG_INFINITY, f64::max),
        Aggregate::Count => scores.iter().map(|(_, weight)| weight).sum(),
    }
}

fn in_rank_order(result: &[Scored<'_>]) -> Model {
    assert!(result.is_sorted_by(|a, b| a.1 < b.1 || a.1 == b.1 && a.0.to_vec() < b.0.to_vec()));
    result.iter().map(|(member, score)| (member.to_vec(), *score)).collect()
}

proptest! {
    #[test]
    fn algebra_with_scores_is_that_of_maps(
        inputs in proptest::collection::vec(input(), 1..5),
        aggregate in prop_oneof![
            Just(Aggregate::Sum), Just(Aggregate::Min), Just(Aggregate::Max), Just(Aggregate::Count),
        ],
        limit in 0..8_usize,
    ) {
        let values: Vec<Value> = inputs.iter().map(|(is_set, model, _)| Value::of(*is_set, model)).collect();
        let weighted: Vec<Weighted<'_>> = values
            .iter()
            .zip(&inputs)
            .map(|(value, (_, _, weight))| Weighted { source: value.source(), weight: f64::from(*weight) })
            .collect();
        let mut scores: BTreeMap<Vec<u8>, Vec<(f64, f64)>> = BTreeMap::new();
        for (_, model, weight) in &inputs {
            for (member, score) in model {
                scores.entry(member.clone()).or_default().push((*score, f64::from(*weight)));
            }
        }
        let all: Model = scores.iter().map(|(member, scores)| (member.clone(), joined(aggregate, scores))).collect();
        prop_assert_eq!(&in_rank_order(&union(&weighted, aggregate, limits().seed)), &all);
        let common: Model =
            all.into_iter().filter(|(member, _)| scores[member].len() == inputs.len()).collect();
        prop_assert_eq!(intersection_len(&weighted, limit), common.len().min(limit));
        prop_assert_eq!(in_rank_order(&intersection(&weighted, aggregate)), common);
        let others: Vec<Source<'_>> = weighted[1..].iter().map(|input| input.source).collect();
        let left = inputs[0].1.iter().filter(|(member, _)| {
            inputs[1..].iter().all(|(_, model, _)| !model.contains_key(*member))
        });
        let left: Model = left.map(|(member, score)| (member.clone(), *score)).collect();
        prop_assert_eq!(in_rank_order(&difference(weighted[0].source, &others)), left);
    }
}
