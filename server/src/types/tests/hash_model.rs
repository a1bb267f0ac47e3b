//! Hashes against `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::Limits;
use super::super::hash::{Hash, ScanPosition, Stored};
use super::{bits_from, limits, owned};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<(Vec<u8>, Vec<u8>)>),
    Replace(usize, Vec<u8>),
    Remove(usize),
    Sample(usize),
    Clone,
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (-30..30_i64).prop_map(|i| i.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|i| (i >> (i & 63)).to_string().into_bytes()),
        2 => (0..20_u8, prop_oneof![0..12_usize, 60..70_usize, 200..300_usize]).prop_map(|(c, n)| vec![b'a' + c; n]),
        1 => Just(vec![b'x'; 70_000]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec((text(), text()), 1..8).prop_map(Step::Set),
        4 => (any::<usize>(), text()).prop_map(|(n, v)| Step::Replace(n, v)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Sample),
        1 => Just(Step::Clone),
    ]
}

fn contents(hash: &Hash) -> Model {
    hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
}

fn apply(hash: &mut Hash, model: &mut Model, step: Step, limits: &Limits, random: &mut impl FnMut() -> u64) {
    let len = model.len();
    let nth = |model: &Model, n: usize| model.keys().nth(n % len).unwrap().clone();
    match step {
        Step::Set(pairs) => {
            for (field, value) in pairs {
                let stored = hash.set(&field, &value, limits);
                assert_eq!(owned(hash.get(&field)).as_ref(), Some(&value));
                let old = model.insert(field, value);
                assert_eq!(stored, if old.is_none() { Stored::New } else { Stored::Replaced });
            }
        }
        Step::Replace(n, value) if len > 0 => {
            let field = nth(model, n);
            assert_eq!(owned(hash.get(&field)).as_ref(), model.get(&field));
            assert_eq!(hash.set(&field, &value, limits), Stored::Replaced);
            model.insert(field, value);
        }
        Step::Remove(n) if len > 0 => {
            let field = nth(model, n);
            assert!(hash.contains(&field) && hash.remove(&field) && !hash.remove(&field));
            assert!(hash.get(&field).is_none());
            model.remove(&field);
        }
        Step::Sample(n) => {
            let n = n % (len + 2);
            let mut sampled = Model::new();
            hash.sample(n, random, |(field, value)| _ = sampled.insert(field.to_vec(), value.to_vec()));
            assert_eq!(sampled.len(), n.min(len));
            assert!(sampled.iter().all(|(field, value)| model.get(field) == Some(value)));
            let one = hash.random(random).map(|(field, value)| (field.to_vec(), value.to_vec()));
            assert!(one.map_or(len == 0, |(field, value)| model[&field] == value));
        }
        Step::Clone => {
            let copy = hash.clone();
            assert!(copy == *hash && copy.encoding() == hash.encoding());
            *hash = copy;
        }
        Step::Replace(..) | Step::Remove(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_hash_is_a_map(
        (entries, value) in prop_oneof![Just((512, 64)), Just((4, 64)), Just((512, 100_000))],
        seed: u64,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let limits = Limits { hash_max_listpack_entries: entries, hash_max_listpack_value: value, ..limits() };
        let mut random = bits_from(seed);
        let mut hash = Hash::new();
        let mut model = Model::new();
        for step in steps {
            apply(&mut hash, &mut model, step, &limits, &mut random);
            hash.check();
            prop_assert_eq!(hash.len(), model.len());
            prop_assert!(contents(&hash) == model);
        }
        let mut scanned = Model::new();
        let mut at = ScanPosition::default();
        loop {
            at = hash.scan(at, |(field, value)| _ = scanned.insert(field.to_vec(), value.to_vec()));
            if at == ScanPosition::default() {
                break;
            }
        }
        prop_assert!(scanned == model);
        while !hash.free_slice(10) {}
        prop_assert!(hash.is_empty());
    }
}
