//! Sorted sets against a `BTreeMap` of scores and a sorted list of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::Limits;
use super::super::zset::{Direction, Edited, ScanPosition, Zset};
use super::{bits_from, limits};

type Model = BTreeMap<Vec<u8>, f64>;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<(Vec<u8>, f64)>),
    Fill(u16),
    Rescore(usize, f64),
    Remove(usize),
    RemoveRanks(usize, usize),
    Range(usize, usize),
    Sample(usize),
    Clone,
    Rebuild,
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-20..20_i32).prop_map(f64::from),
        2 => (-20..20_i32).prop_map(|n| f64::from(n) / 7.0),
        1 => any::<f64>().prop_filter("a score is a number", |score| !score.is_nan()),
        1 => prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.0), Just(1e18), Just(5e18), Just(1e-320)],
    ]
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (-30..200_i64).prop_map(|i| i.to_string().into_bytes()),
        2 => (0..20_u8, prop_oneof![0..12_usize, 60..70_usize]).prop_map(|(c, n)| vec![b'a' + c; n]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec((member(), score()), 1..8).prop_map(Step::Set),
        1 => any::<u16>().prop_map(Step::Fill),
        4 => (any::<usize>(), score()).prop_map(|(n, s)| Step::Rescore(n, s)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::RemoveRanks(a, b)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::Range(a, b)),
        1 => any::<usize>().prop_map(Step::Sample),
        1 => Just(Step::Clone),
        1 => Just(Step::Rebuild),
    ]
}

fn ranked(model: &Model) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|(a, x), (b, y)| x.partial_cmp(y).unwrap().then_with(|| a.cmp(b)));
    all
}

fn owned<'a>(scored: impl Iterator<Item = (super::super::Element<'a>, f64)>) -> Vec<(Vec<u8>, f64)> {
    scored.map(|(member, score)| (member.to_vec(), score)).collect()
}

fn apply(zset: &mut Zset, model: &mut Model, step: Step, limits: &Limits, random: &mut impl FnMut() -> u64) {
    let len = model.len();
    let nth = |model: &Model, n: usize| model.keys().nth(n % len).unwrap().clone();
    let ranks = |a: usize, b: usize| (a % (len + 1)).min(b % (len + 1))..(a % (len + 1)).max(b % (len + 1));
    match step {
        Step::Set(pairs) => {
            for (member, score) in pairs {
                let edited = zset.set(&member, score, limits);
                assert_eq!(zset.score(&member), Some(score));
                let old = model.insert(member, score);
                assert_eq!(edited, if old.is_none() { Edited::Added } else { Edited::Scored });
            }
        }
        Step::Fill(seed) => {
            for n in 0..300_u64 {
                let n = n * u64::from(seed | 1) % 1009;
                zset.set(format!("fill{n}").as_bytes(), (n % 97) as f64, limits);
                model.insert(format!("fill{n}").into_bytes(), (n % 97) as f64);
            }
        }
        Step::Rescore(n, score) if len > 0 => {
            let member = nth(model, n);
            let old = model[&member];
            assert_eq!(zset.edit(&member, limits, |seen| (seen != Some(old)).then_some(0.0)), Edited::Left);
            zset.set(&member, score, limits);
            model.insert(member, score);
        }
        Step::Remove(n) if len > 0 => {
            let member = nth(model, n);
            assert!(zset.remove(&member) && !zset.remove(&member) && zset.score(&member).is_none());
            model.remove(&member);
        }
        Step::RemoveRanks(a, b) => {
            let ranks = ranks(a, b);
            zset.remove_ranks(ranks.clone());
            ranked(model)[ranks].iter().for_each(|(member, _)| _ = model.remove(member));
        }
        Step::Range(a, b) => {
            let ranks = ranks(a, b);
            let expected = &ranked(model)[ranks.clone()];
            assert_eq!(owned(zset.range(ranks.clone(), Direction::Ascending)), expected);
            let reversed: Vec<_> = expected.iter().rev().cloned().collect();
            assert_eq!(owned(zset.range(ranks, Direction::Descending)), reversed);
        }
        Step::Sample(n) => {
            let n = n % (len + 2);
            let mut sampled = Model::new();
            zset.sample(n, random, |(member, score)| _ = sampled.insert(member.to_vec(), score));
            assert_eq!(sampled.len(), n.min(len));
            assert!(sampled.iter().all(|(member, score)| model.get(member) == Some(score)));
            let one = zset.random(random).map(|(member, score)| (member.to_vec(), score));
            assert!(one.map_or(len == 0, |(member, score)| model[&member] == score));
        }
        Step::Clone => {
            let copy = zset.clone();
            assert!(copy == *zset && copy.encoding() == zset.encoding());
            *zset = copy;
        }
        Step::Rebuild => {
            let rebuilt = Zset::of_ascending(&zset.iter().collect::<Vec<_>>(), limits);
            assert!(rebuilt == *zset);
            *zset = rebuilt;
        }
        Step::Rescore(..) | Step::Remove(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_sorted_set_is_a_ranked_map(
        (entries, value) in prop_oneof![Just((128, 64)), Just((4, 64)), Just((0, 64)), Just((100_000, 100_000))],
        seed: u64,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let limits = Limits { zset_max_listpack_entries: entries, zset_max_listpack_value: value, ..limits() };
        let mut random = bits_from(seed);
        let mut zset = Zset::for_members(1, 1, &limits);
        let mut model = Model::new();
        for step in steps {
            apply(&mut zset, &mut model, step, &limits, &mut random);
            zset.check();
            prop_assert_eq!(owned(zset.iter()), ranked(&model));
            for (rank, (member, score)) in ranked(&model).into_iter().enumerate().step_by(7) {
                prop_assert_eq!(zset.rank(&member), Some((rank, score)));
                let n_below = zset.n_below(|other, element| {
                    other < score || other == score && element.to_vec() < member
                });
                prop_assert_eq!(n_below, rank);
            }
        }
        let mut scanned = Model::new();
        let mut at = ScanPosition::default();
        loop {
            at = zset.scan(at, |(member, score)| _ = scanned.insert(member.to_vec(), score));
            if at == ScanPosition::default() {
                break;
            }
        }
        prop_assert!(scanned == model);
        while !zset.free_slice(10) {}
        prop_assert!(zset.is_empty());
    }
}

/// Big enough for three levels, up and down again in several orders.
#[test]
fn a_big_ranking_keeps_its_order_through_growth_and_shrinking() {
    const N: u64 = 30_000;
    let limits = limits();
    for stride in [1, N - 1, 7919] {
        let mut zset = Zset::default();
        for n in 0..N {
            zset.set(format!("m{n}").as_bytes(), (n * stride % N) as f64, &limits);
        }
        zset.check();
        for n in (0..N).step_by(997) {
            assert_eq!(zset.rank(format!("m{n}").as_bytes()).unwrap().0 as u64, n * stride % N);
        }
        for n in 0..N {
            assert!(zset.remove(format!("m{}", n * 6967 % N).as_bytes()));
            if n % 2999 == 0 {
                zset.check();
            }
        }
        assert!(zset.is_empty());
        zset.check();
    }
}
