//! Sets against `BTreeSet`, and the set algebra against std's.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::algebra::{difference, intersection, union};
use super::super::set::{ScanPosition, Set};
use super::super::{Element, Limits};
use super::{bits_from, limits};

type Model = BTreeSet<Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<Vec<u8>>),
    Remove(Vec<u8>),
    RemoveNth(usize),
    Pop,
    Take(usize),
    Sample(usize),
    Clone,
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (-40..40_i64).prop_map(|i| i.to_string().into_bytes()),
        2 => any::<i64>().prop_map(|i| (i >> (i & 63)).to_string().into_bytes()),
        1 => (0..40_u8, 0..12_usize).prop_map(|(c, n)| vec![b'0' + c; n]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec(member(), 1..20).prop_map(Step::Add),
        4 => member().prop_map(Step::Remove),
        4 => any::<usize>().prop_map(Step::RemoveNth),
        2 => Just(Step::Pop),
        1 => any::<usize>().prop_map(Step::Take),
        1 => any::<usize>().prop_map(Step::Sample),
        1 => Just(Step::Clone),
    ]
}

fn members(set: &Set) -> Vec<Vec<u8>> {
    set.iter().map(|element| element.to_vec()).collect()
}

/// Distinct members that the model has.
fn assert_subset(sampled: &[Vec<u8>], n: usize, model: &Model) {
    let distinct: Model = sampled.iter().cloned().collect();
    assert_eq!((sampled.len(), distinct.len()), (n.min(model.len()), n.min(model.len())));
    assert!(distinct.is_subset(model));
}

fn apply(set: &mut Set, model: &mut Model, step: Step, limits: &Limits, random: &mut impl FnMut() -> u64) {
    let len = model.len();
    match step {
        Step::Add(members) => {
            for member in members {
                assert_eq!(set.add(&member, limits), model.insert(member));
            }
        }
        Step::Remove(member) => assert_eq!(set.remove(&member), model.remove(&member)),
        Step::RemoveNth(n) if len > 0 => {
            let member = model.iter().nth(n % len).unwrap().clone();
            assert!(set.contains(&member) && set.contains_element(Element::of(&member)));
            assert!(set.remove(&member) && model.remove(&member) && !set.contains(&member));
        }
        Step::Pop => match set.pop(random) {
            Some(taken) => assert!(model.remove(&taken.as_element().to_vec())),
            None => assert!(model.is_empty()),
        },
        Step::Take(n) => {
            let n = n % (len + 2);
            let taken = set.take_random(n, random, limits);
            taken.check();
            assert_subset(&members(&taken), n, model);
            members(&taken).iter().for_each(|member| _ = model.remove(member));
        }
        Step::Sample(n) => {
            let n = n % (len + 2);
            let mut sampled = Vec::new();
            set.sample(n, random, |element| sampled.push(element.to_vec()));
            assert_subset(&sampled, n, model);
            let one = set.random(random).map(|element| element.to_vec());
            assert!(one.map_or(len == 0, |member| model.contains(&member)));
        }
        Step::Clone => {
            let copy = set.clone();
            assert!(copy == *set && copy.encoding() == set.encoding());
            *set = copy;
        }
        Step::RemoveNth(_) => {}
    }
}

fn small_limits() -> impl Strategy<Value = Limits> {
    prop_oneof![Just((512, 128)), Just((8, 4)), Just((4, 30)), Just((0, 0))].prop_map(|(ints, entries)| {
        Limits { set_max_intset_entries: ints, set_max_listpack_entries: entries, ..limits() }
    })
}

fn filled(limits: &Limits, members: &[Vec<u8>]) -> (Set, Model) {
    let mut set = Set::new_intset();
    members.iter().for_each(|member| _ = set.add(member, limits));
    (set, members.iter().cloned().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_set_is_a_set(
        limits in small_limits(),
        seed: u64,
        steps in proptest::collection::vec(step(), 1..100),
    ) {
        let mut random = bits_from(seed);
        let mut set = Set::new_intset();
        let mut model = Model::new();
        for step in steps {
            apply(&mut set, &mut model, step, &limits, &mut random);
            set.check();
            prop_assert_eq!(set.len(), model.len());
            let mut got = members(&set);
            got.sort_unstable();
            prop_assert!(got.iter().eq(&model));
        }
        let mut scanned = Model::new();
        let mut at = ScanPosition::default();
        loop {
            at = set.scan(at, |element| _ = scanned.insert(element.to_vec()));
            if at == ScanPosition::default() {
                break;
            }
        }
        prop_assert_eq!(scanned, model);
    }

    #[test]
    fn algebra_is_std_s(
        parts in proptest::collection::vec((small_limits(), proptest::collection::vec(member(), 0..60)), 1..6),
    ) {
        let seed = limits().seed;
        let built: Vec<(Set, Model)> = parts.iter().map(|(limits, members)| filled(limits, members)).collect();
        let sets: Vec<&Set> = built.iter().map(|(set, _)| set).collect();
        let models: Vec<&Model> = built.iter().map(|(_, model)| model).collect();
        let all = |elements: Vec<Element<'_>>| {
            let model: Model = elements.iter().map(Element::to_vec).collect();
            assert_eq!(model.len(), elements.len(), "an element came twice");
            model
        };
        let both = models[1..].iter().fold(models[0].clone(), |a, b| &a & b);
        prop_assert_eq!(all(intersection(&sets).collect()), both);
        let any = models[1..].iter().fold(models[0].clone(), |a, b| &a | b);
        prop_assert_eq!(all(union(&sets, seed).collect()), any);
        let rest = models[1..].iter().fold(models[0].clone(), |a, b| &a - b);
        prop_assert_eq!(all(difference(sets[0], &sets[1..], seed).collect()), rest);
    }
}

/// A big set is freed in slices of bounded size and stays whole meanwhile.
#[test]
fn a_big_set_is_freed_in_slices() {
    let limits = limits();
    let mut set = Set::for_members(b"m", 100_000, &limits);
    (0..100_000).for_each(|i| assert!(set.add(format!("member:{i}").as_bytes(), &limits)));
    let mut n_slices = 0;
    let mut len = set.len();
    while !set.free_slice(1000) {
        assert!(len - set.len() <= 2000, "a slice of {}", len - set.len());
        (len, n_slices) = (set.len(), n_slices + 1);
        if n_slices % 16 == 0 {
            set.check();
        }
    }
    assert!(set.is_empty() && n_slices >= 50);
}

/// Each member is drawn about equally often, from each encoding.
#[test]
fn draws_are_even() {
    let limits = limits();
    let mut random = bits_from(3);
    for (first, n) in [("7", 100), ("a", 100), ("a", 400)] {
        let names: Vec<String> =
            (0..n).map(|i| if first == "7" { i.to_string() } else { format!("a{i}") }).collect();
        let mut set = Set::for_members(first.as_bytes(), n, &limits);
        names.iter().for_each(|name| assert!(set.add(name.as_bytes(), &limits)));
        let mut counts = std::collections::HashMap::new();
        for _ in 0..n * 100 {
            let member = set.random(&mut random).unwrap().to_vec();
            *counts.entry(member).or_insert(0) += 1;
            set.sample(3, &mut random, |element| *counts.entry(element.to_vec()).or_insert(0) += 1);
        }
        assert_eq!(counts.len(), n);
        assert!(counts.values().all(|count| (280..=520).contains(count)), "{} {counts:?}", set.encoding());
    }
}
