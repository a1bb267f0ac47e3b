//! Hashes against `BTreeMap`, under a clock that only the test moves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::Limits;
use super::super::hash::{Found, Hash, ScanPosition, Stored, Term};
use super::{bits_from, limits, owned};

/// Field, value, and the deadline if there is one; dead fields that nobody has removed too.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

const START_MS: i64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<(Vec<u8>, Vec<u8>)>),
    Replace(usize, Vec<u8>),
    /// The same, and the deadline stays.
    ReplaceValue(usize, Vec<u8>),
    Remove(usize),
    /// To `ms` from now, or to none.
    Deadline(usize, Option<i64>),
    Deadlines(i64),
    SetUntil(Vec<u8>, Vec<u8>, i64),
    Clock(i64),
    RemoveDead(usize),
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

/// Offsets to the clock.
fn deadline() -> impl Strategy<Value = i64> {
    prop_oneof![-100..100_i64, 0..10_000_i64, Just(5), Just((1 << 46) - 1 - START_MS)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec((text(), text()), 1..8).prop_map(Step::Set),
        4 => (any::<usize>(), text()).prop_map(|(n, v)| Step::Replace(n, v)),
        2 => (any::<usize>(), text()).prop_map(|(n, v)| Step::ReplaceValue(n, v)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Sample),
        1 => Just(Step::Clone),
    ]
}

fn timed_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => step(),
        6 => (any::<usize>(), proptest::option::weighted(0.8, deadline())).prop_map(|(n, ms)| Step::Deadline(n, ms)),
        1 => deadline().prop_map(Step::Deadlines),
        4 => (text(), text(), deadline()).prop_map(|(f, v, ms)| Step::SetUntil(f, v, ms)),
        2 => prop_oneof![0..50_i64, 0..5000_i64].prop_map(Step::Clock),
        2 => prop_oneof![1..4_usize, Just(usize::MAX)].prop_map(Step::RemoveDead),
    ]
}

struct Tried {
    hash: Hash,
    model: Model,
    now_ms: i64,
}

impl Tried {
    fn is_dead(&self, deadline_ms: Option<i64>) -> bool {
        deadline_ms.is_some_and(|ms| self.now_ms > ms)
    }

    fn alive(&self) -> Pairs {
        let all = self.model.iter().filter(|(_, (_, ms))| !self.is_dead(*ms));
        all.map(|(field, (value, _))| (field.clone(), value.clone())).collect()
    }

    fn nth(&self, n: usize) -> Option<Vec<u8>> {
        let at = n.checked_rem(self.model.len())?;
        self.model.keys().nth(at).cloned()
    }

    fn apply(&mut self, step: Step, limits: &Limits, random: &mut impl FnMut() -> u64) {
        match step {
            Step::Set(pairs) => {
                for (field, value) in pairs {
                    let stored = self.hash.set(&field, &value, limits);
                    assert_eq!(owned(self.hash.get(&field, self.now_ms)).as_ref(), Some(&value));
                    let old = self.model.insert(field, (value, None));
                    assert_eq!(stored, if old.is_none() { Stored::New } else { Stored::Replaced });
                }
            }
            Step::Replace(n, value) => {
                let Some(field) = self.nth(n) else { return };
                assert_eq!(self.hash.set(&field, &value, limits), Stored::Replaced);
                self.model.insert(field, (value, None));
            }
            Step::ReplaceValue(n, value) => {
                let Some(field) = self.nth(n) else { return };
                assert_eq!(self.hash.set_value(&field, &value, limits), Stored::Replaced);
                self.model.get_mut(&field).unwrap().0 = value;
            }
            Step::Remove(n) => {
                let Some(field) = self.nth(n) else { return };
                assert!(self.hash.remove(&field) && !self.hash.remove(&field));
                assert_eq!(self.hash.find(&field, self.now_ms), Found::Absent);
                assert_eq!(self.hash.term(&field), Term::Absent);
                self.model.remove(&field);
            }
            Step::Deadline(n, ms) => {
                let Some(field) = self.nth(n) else { return };
                self.set_deadline(&field, ms, limits);
            }
            Step::Deadlines(ms) => {
                let fields: Vec<Vec<u8>> = self.model.keys().cloned().collect();
                fields.iter().for_each(|field| self.set_deadline(field, Some(ms), limits));
            }
            Step::SetUntil(field, value, ms) => {
                let deadline_ms = self.now_ms + ms;
                self.hash.track_deadlines(limits.seed);
                let stored = self.hash.set_until(&field, &value, deadline_ms, limits);
                let old = self.model.insert(field, (value, Some(deadline_ms)));
                assert_eq!(stored, if old.is_none() { Stored::New } else { Stored::Replaced });
            }
            Step::Clock(ms) => self.now_ms += ms,
            Step::RemoveDead(budget) => {
                let n_dead = self.model.len() - self.alive().len();
                assert_eq!(self.hash.remove_dead(self.now_ms, budget), n_dead.min(budget));
                let left: Vec<Vec<u8>> =
                    self.hash.timed_iter().map(|((field, _), _)| field.to_vec()).collect();
                let gone = self.model.extract_if(.., |field, _| !left.contains(field));
                assert!(gone.into_iter().all(|(_, (_, ms))| ms.is_some_and(|ms| self.now_ms > ms)));
            }
            Step::Sample(n) => self.sample(n, random),
            Step::Clone => {
                let copy = self.hash.clone();
                assert!(copy == self.hash && copy.encoding() == self.hash.encoding());
                self.hash = copy;
            }
        }
    }

    fn set_deadline(&mut self, field: &[u8], ms: Option<i64>, limits: &Limits) {
        let deadline_ms = ms.map(|ms| self.now_ms + ms);
        self.hash.track_deadlines(limits.seed);
        self.hash.set_deadline(field, deadline_ms);
        self.model.get_mut(field).unwrap().1 = deadline_ms;
    }

    fn sample(&self, n: usize, random: &mut impl FnMut() -> u64) {
        let alive = self.alive();
        let n = n % (alive.len() + 2);
        let mut sampled = Pairs::new();
        self.hash.sample(self.now_ms, n, random, |(field, value)| {
            assert!(sampled.insert(field.to_vec(), value.to_vec()).is_none());
        });
        assert_eq!(sampled.len(), n.min(alive.len()));
        assert!(sampled.iter().all(|(field, value)| alive.get(field) == Some(value)));
        let one = self.hash.random(self.now_ms, random);
        let one = one.map(|(field, value)| (field.to_vec(), value.to_vec()));
        assert!(one.map_or(alive.is_empty(), |(field, value)| alive[&field] == value));
    }

    fn check(&self) {
        self.hash.check();
        let (hash, now_ms) = (&self.hash, self.now_ms);
        let all: Model =
            hash.timed_iter().map(|((field, value), ms)| (field.to_vec(), (value.to_vec(), ms))).collect();
        assert!(all == self.model && hash.len() == all.len());
        let alive = self.alive();
        let shown: Pairs = hash.iter(now_ms).map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
        assert!(shown == alive && hash.n_alive(now_ms) == alive.len());
        assert_eq!(hash.earliest_ms(), all.values().filter_map(|(_, ms)| *ms).min());
        for (field, (value, ms)) in &all {
            assert_eq!(hash.term(field), ms.map_or(Term::Forever, Term::Until));
            assert_eq!(hash.is_dead(field, now_ms), self.is_dead(*ms));
            let value = (!self.is_dead(*ms)).then_some(value);
            assert_eq!(owned(hash.get(field, now_ms)).as_ref(), value);
        }
    }
}

fn run(seed: u64, limits: &Limits, steps: Vec<Step>) {
    let mut random = bits_from(seed);
    let mut tried = Tried { hash: Hash::new(), model: Model::new(), now_ms: START_MS };
    for step in steps {
        tried.apply(step, limits, &mut random);
        tried.check();
    }
    let mut scanned = Pairs::new();
    let mut at = ScanPosition::default();
    loop {
        at = tried.hash.scan(at, tried.now_ms, |(field, value)| {
            scanned.insert(field.to_vec(), value.to_vec());
        });
        if at == ScanPosition::default() {
            break;
        }
    }
    assert!(scanned == tried.alive());
    while !tried.hash.free_slice(10) {}
    assert!(tried.hash.is_empty());
}

fn thresholds() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![Just((512, 64)), Just((4, 64)), Just((512, 100_000))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_hash_is_a_map(
        (entries, value) in thresholds(),
        seed: u64,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let limits = Limits { hash_max_listpack_entries: entries, hash_max_listpack_value: value, ..limits() };
        run(seed, &limits, steps);
    }

    #[test]
    fn fields_die_by_the_clock(
        (entries, value) in thresholds(),
        seed: u64,
        steps in proptest::collection::vec(timed_step(), 1..120),
    ) {
        let limits = Limits { hash_max_listpack_entries: entries, hash_max_listpack_value: value, ..limits() };
        run(seed, &limits, steps);
    }
}

/// A hash that is all deadlines: removed in the order of the deadlines, a slice at a time, and no slice is long.
#[test]
fn many_dead_fields_go_in_slices() {
    const N: i64 = 20_000;
    let limits = limits();
    let mut hash = Hash::new();
    for i in 0..N {
        hash.set(format!("field:{i}").as_bytes(), b"value", &limits);
    }
    hash.track_deadlines(limits.seed);
    // Half of them at one moment.
    (0..N).for_each(|i| hash.set_deadline(format!("field:{i}").as_bytes(), Some(START_MS + (i % 7).max(3))));
    hash.check();
    let (mut n_removed, mut last_ms) = (0, 0);
    while let Some(earliest_ms) = hash.earliest_ms() {
        assert!(earliest_ms >= last_ms);
        last_ms = earliest_ms;
        let n = hash.remove_dead(START_MS + 100, 128);
        assert!((1..=128).contains(&n));
        n_removed += n;
    }
    assert_eq!((n_removed, hash.len()), (N as usize, 0));
}

/// A listpackex is ordered as Redis orders it: `DEBUG LISTPACK` of 8.2.3 shows this order.
#[test]
fn packed_fields_stand_in_redis_s_order() {
    let limits = limits();
    let mut hash = Hash::new();
    let order = |hash: &Hash| {
        let names = hash.iter(0).map(|(field, _)| String::from_utf8(field.to_vec()).unwrap());
        names.collect::<Vec<_>>().join("")
    };
    for field in ["a", "b", "c", "d", "e"] {
        hash.set(field.as_bytes(), b"1", &limits);
    }
    hash.track_deadlines(limits.seed);
    assert_eq!((order(&hash).as_str(), hash.encoding()), ("abcde", "listpackex"));
    for (field, ms, expected) in [
        ("c", Some(100), "cabde"),
        ("e", Some(50), "ecabd"),
        ("a", Some(75), "eacbd"),
        ("e", Some(200), "acebd"),
        ("b", Some(100), "abced"),
        ("a", None, "bceda"),
    ] {
        hash.set_deadline(field.as_bytes(), ms);
        assert_eq!(order(&hash), expected, "{field}");
    }
    hash.set(b"c", b"2", &limits);
    assert_eq!(order(&hash), "bedac");
    hash.set_value(b"b", b"2", &limits);
    assert_eq!(order(&hash), "bedac");
}
