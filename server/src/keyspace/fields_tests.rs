//! Hashes with field deadlines in a keyspace, against a plain map: whatever happens to their keys, the index has each by
//! its earliest deadline, and dead fields go when the cycle comes by.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::FieldsLeft;
use crate::types::hash::Term;
use crate::types::{Hash, Limits};

const NOW: i64 = 1_700_000_000_000;

type Fields = BTreeMap<u8, Option<i64>>;
/// Fields with their deadlines, and the key's own.
type Model = BTreeMap<u8, (Fields, Option<i64>)>;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u8, Option<i64>),
    Remove(u8, u8),
    Overwrite(u8),
    Expire(u8, i64),
    Delete(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    LendAndReturn(u8, bool),
    HoldOver(u8, usize),
    Clock(i64),
    Cycle(usize),
    Clear,
    Free,
}

fn step() -> impl Strategy<Value = Step> {
    let (key, field) = (0..6_u8, 0..30_u8);
    let ms = prop_oneof![-50..50_i64, 0..5000_i64, Just(7)];
    prop_oneof![
        12 => (key.clone(), field.clone(), proptest::option::weighted(0.7, ms.clone()))
            .prop_map(|(k, f, ms)| Step::Set(k, f, ms)),
        4 => (key.clone(), field).prop_map(|(k, f)| Step::Remove(k, f)),
        1 => key.clone().prop_map(Step::Overwrite),
        2 => (key.clone(), ms).prop_map(|(k, ms)| Step::Expire(k, ms)),
        1 => key.clone().prop_map(Step::Delete),
        2 => (key.clone(), key.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        2 => (key.clone(), key.clone()).prop_map(|(a, b)| Step::Copy(a, b)),
        2 => (key.clone(), any::<bool>()).prop_map(|(k, back)| Step::LendAndReturn(k, back)),
        1 => (key, 1..20_usize).prop_map(|(k, budget)| Step::HoldOver(k, budget)),
        3 => prop_oneof![0..20_i64, 0..3000_i64].prop_map(Step::Clock),
        4 => prop_oneof![1..5_usize, Just(usize::MAX)].prop_map(Step::Cycle),
        1 => Just(Step::Clear),
        1 => Just(Step::Free),
    ]
}

struct Pair {
    keyspace: Keyspace,
    model: Model,
    now_ms: i64,
    limits: Limits,
}

impl Pair {
    fn with_hash<R>(&mut self, k: u8, change: impl FnOnce(&mut Hash, &Limits, i64) -> R) -> Option<R> {
        let name = [k];
        let key = Key::new(&name, self.keyspace.seed());
        let entry = self.keyspace.get_mut(&key)?;
        let Some(Object::Hash(hash)) = entry.into_object_mut() else { return None };
        let before_ms = hash.earliest_ms();
        let result = change(hash, &self.limits, self.now_ms);
        let (after_ms, is_empty) = (hash.earliest_ms(), hash.is_empty());
        self.keyspace.refile_fields(&key, before_ms, after_ms);
        if is_empty {
            drop(self.keyspace.remove(&key));
        }
        Some(result)
    }

    fn run(&mut self, step: Step) {
        let seed = self.keyspace.seed();
        match step {
            Step::Set(k, f, ms) => {
                let deadline_ms = ms.map(|ms| self.now_ms + ms);
                let name = [k];
                let key = Key::new(&name, seed);
                let new = || NewValue::Object(Object::Hash(Hash::new()));
                if !matches!(self.keyspace.get_or_insert(&key, new).as_ref().view(), View::Hash(_)) {
                    return;
                }
                self.with_hash(k, |hash, limits, _| {
                    hash.set(&[f], b"value", limits);
                    if deadline_ms.is_some() {
                        hash.track_deadlines(limits.seed);
                        hash.set_deadline(&[f], deadline_ms);
                    }
                });
                self.model.entry(k).or_default().0.insert(f, deadline_ms);
            }
            Step::Remove(k, f) => {
                self.with_hash(k, |hash, _, _| hash.remove(&[f]));
                let Some((fields, _)) = self.model.get_mut(&k) else { return };
                fields.remove(&f);
                if fields.is_empty() {
                    self.model.remove(&k);
                }
            }
            Step::Overwrite(k) => {
                self.keyspace.set(&Key::new(&[k], seed), NewValue::Str(b"text"), Ttl::Clear);
                self.model.remove(&k);
                drop(self.keyspace.remove(&Key::new(&[k], seed)));
            }
            Step::Expire(k, ms) => {
                let deadline_ms = self.now_ms + ms;
                let is_there = self.keyspace.set_expire(&Key::new(&[k], seed), deadline_ms);
                if let Some((_, own)) = self.model.get_mut(&k) {
                    *own = Some(deadline_ms);
                }
                assert_eq!(is_there, self.model.contains_key(&k));
            }
            Step::Delete(k) => {
                let entry = self.keyspace.remove(&Key::new(&[k], seed));
                assert_eq!(entry.is_some(), self.model.remove(&k).is_some());
                entry.into_iter().for_each(|entry| self.keyspace.discard(entry));
            }
            Step::Rename(from, to) => {
                let Some(entry) = self.keyspace.remove(&Key::new(&[from], seed)) else { return };
                let to_key = [to];
                let to_key = Key::new(&to_key, seed);
                drop(self.keyspace.remove(&to_key));
                self.keyspace.adopt(to_key.hash, entry.with_key(&[to]));
                let value = self.model.remove(&from).expect("in both");
                self.model.insert(to, value);
            }
            Step::Copy(from, to) => {
                let Some(entry) = self.keyspace.peek(&Key::new(&[from], seed)) else { return };
                let View::Hash(hash) = entry.view() else { return };
                let copy = NewValue::Object(Object::Hash(hash.clone()));
                self.keyspace.set(&Key::new(&[to], seed), copy, Ttl::Clear);
                let fields = self.model[&from].0.clone();
                self.model.insert(to, (fields, None));
            }
            Step::LendAndReturn(k, is_back) => {
                let name = [k];
                let key = Key::new(&name, seed);
                let Some(entry) = self.keyspace.take(&key) else { return };
                self.keyspace.check_fields();
                let mut guests = Keyspace::new(seed);
                guests.adopt(key.hash, entry);
                guests.check_fields();
                let entry = guests.remove(&key);
                assert_eq!(guests.n_timed_hashes(), 0);
                if is_back {
                    self.keyspace.give_back(&key, entry);
                } else {
                    self.keyspace.give_back(&key, None);
                    self.model.remove(&k);
                }
            }
            Step::HoldOver(k, budget) => {
                let name = [k];
                let key = Key::new(&name, seed);
                // What is read from elsewhere keeps its dead fields until nobody reads.
                let Some(alias) = self.keyspace.share(&key, i64::MIN) else { return };
                let View::Hash(hash) = alias.as_ref().view() else { unreachable!("a hash") };
                let len = hash.len();
                self.cycle(budget, Some(k));
                let View::Hash(hash) = alias.as_ref().view() else { unreachable!("a hash") };
                assert_eq!(hash.len(), len);
                drop(alias);
                self.keyspace.end_sharing(&key);
            }
            Step::Clock(ms) => self.now_ms += ms,
            Step::Cycle(budget) => self.cycle(budget, None),
            Step::Clear => {
                self.keyspace.clear();
                self.model.clear();
            }
            Step::Free => while !self.keyspace.free_slice(10) {},
        }
    }

    fn cycle(&mut self, budget: usize, held: Option<u8>) {
        let now_ms = self.now_ms;
        let is_dead = |deadline_ms: &Option<i64>| deadline_ms.is_some_and(|ms| now_ms > ms);
        let mut told = Vec::new();
        let spent = self.keyspace.expire_fields(now_ms, budget, |entry, n_dead, left| {
            told.push((entry.key()[0], n_dead, left));
        });
        assert!(spent <= budget);
        for (k, n_dead, left) in told {
            assert!(n_dead > 0 && Some(k) != held);
            let kept: Fields = match self.keyspace.peek(&Key::new(&[k], self.limits.seed)).map(EntryRef::view)
            {
                Some(View::Hash(hash)) => {
                    let term = |f: &u8| hash.term(&[*f]);
                    let old = &self.model[&k].0;
                    old.iter().filter(|(f, _)| term(f) != Term::Absent).map(|(f, ms)| (*f, *ms)).collect()
                }
                _ => Fields::new(),
            };
            let old = &self.model[&k].0;
            assert_eq!(old.len() - kept.len(), n_dead);
            assert!(old.iter().all(|(f, ms)| kept.contains_key(f) || is_dead(ms)), "a living field went");
            assert_eq!(left == FieldsLeft::None, kept.is_empty());
            if kept.is_empty() {
                self.model.remove(&k);
            } else if let Some((fields, _)) = self.model.get_mut(&k) {
                *fields = kept;
            }
        }
        if spent < budget {
            let others = self.model.iter().filter(|(k, _)| Some(**k) != held);
            let dead = others.flat_map(|(_, (fields, _))| fields.values()).filter(|ms| is_dead(ms)).count();
            assert_eq!(dead, 0, "dead fields left");
        }
    }

    fn check(&self) {
        self.keyspace.check_fields();
        let mut found = Model::new();
        for entry in self.keyspace.iter() {
            let View::Hash(hash) = entry.view() else { unreachable!("only hashes") };
            hash.check();
            let fields = hash.timed_iter().map(|((field, _), ms)| {
                let digits = field.to_vec();
                (digits[0], ms)
            });
            found.insert(entry.key()[0], (fields.collect(), entry.expire_at()));
        }
        assert_eq!(found, self.model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fields_of_a_keyspace(seed: u64, n_packed in prop_oneof![Just(4_usize), Just(512)],
                            steps in proptest::collection::vec(step(), 1..150)) {
        let seed = HashSeed::from_u64(seed);
        let limits = Limits { hash_max_listpack_entries: n_packed, ..Limits::new(seed) };
        let mut pair = Pair { keyspace: Keyspace::new(seed), model: Model::new(), now_ms: NOW, limits };
        for step in steps {
            pair.run(step);
            pair.check();
        }
    }
}

/// One hash of many dead fields beside living keys: no call goes beyond its budget, and the key goes with the last.
#[test]
fn a_hash_of_dead_fields_is_removed_in_slices() {
    const N: usize = 30_000;
    let seed = HashSeed::from_u64(3);
    let limits = Limits::new(seed);
    let mut hash = Hash::new();
    for i in 0..N {
        hash.set(format!("f{i}").as_bytes(), b"v", &limits);
        hash.track_deadlines(seed);
        hash.set_deadline(format!("f{i}").as_bytes(), Some(NOW));
    }
    let mut keyspace = Keyspace::new(seed);
    keyspace.set(&Key::new(b"h", seed), NewValue::Object(Object::Hash(hash)), Ttl::Clear);
    assert_eq!(keyspace.n_timed_hashes(), 1);
    assert_eq!(keyspace.expire_fields(NOW, 100, |_, _, _| panic!("not over yet")), 0);
    let (mut n_calls, mut n_removed, mut is_gone) = (0, 0, false);
    while !is_gone {
        let spent = keyspace.expire_fields(NOW + 1, 128, |_, n_dead, left| {
            n_removed += n_dead;
            is_gone = left == FieldsLeft::None;
        });
        assert!(spent <= 128);
        n_calls += 1;
    }
    assert_eq!((n_removed, keyspace.len(), keyspace.n_timed_hashes()), (N, 0, 0));
    assert!(n_calls >= N / 128);
}
