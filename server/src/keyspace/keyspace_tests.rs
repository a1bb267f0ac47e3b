//! The keyspace against a plain map of plain values.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(Vec<u8>),
    Set,
    Lent,
}

type Model = BTreeMap<Vec<u8>, (Value, Option<i64>)>;

fn name(id: u16) -> Vec<u8> {
    format!("{id:0width$}", width = usize::from(id % 40) + 1).into_bytes()
}

fn value_of(entry: EntryRef<'_>) -> Value {
    match entry.view() {
        View::Int(int) => Value::Text(int.to_string().into_bytes()),
        View::Str(bytes) => Value::Text(bytes.to_vec()),
        View::Shared(bytes) => Value::Text(bytes.to_vec()),
        View::Set(_) => Value::Set,
        View::Lent => Value::Lent,
        View::List(_) | View::Hash(_) | View::Zset(_) | View::Stream(_) | View::Vector(_) => {
            unreachable!("not used here")
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    SetStr(u16, Vec<u8>, Ttl),
    SetInt(u16, i64, Ttl),
    SetSet(u16, Ttl),
    Append(u16, Vec<u8>),
    SetRange(u16, u16, Vec<u8>),
    Expire(u16, i64),
    Persist(u16),
    Remove(u16),
    Rename(u16, u16),
    Lookup(u16),
    LendAndReturn(u16, u16, bool),
    Incr(u16),
    Clock(i64),
    ActiveExpire(usize),
    Clear,
    FreeSlice(usize),
    Fill(u16, u16),
}

fn ttl() -> impl Strategy<Value = Ttl> {
    prop_oneof![
        2 => Just(Ttl::Keep), 2 => Just(Ttl::Clear), 6 => deadline().prop_map(Ttl::At),
    ]
}

/// Offsets to the clock: past, near, far, absurd.
fn deadline() -> impl Strategy<Value = i64> {
    prop_oneof![
        -5000..0_i64,
        0..100_i64,
        0..10_000_i64,
        0..10_000_000_i64,
        0..100_000_000_000_i64,
        Just(1_000_000_000_000_000),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..80),
        2 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u8>(), INLINE_BYTES - 2..INLINE_BYTES + 3).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u8>(), 0..60_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..60_u16;
    prop_oneof![
        10 => (id.clone(), bytes(), ttl()).prop_map(|(k, v, t)| Step::SetStr(k, v, t)),
        3 => (id.clone(), any::<i64>(), ttl()).prop_map(|(k, v, t)| Step::SetInt(k, v, t)),
        2 => (id.clone(), ttl()).prop_map(|(k, t)| Step::SetSet(k, t)),
        6 => (id.clone(), bytes()).prop_map(|(k, v)| Step::Append(k, v)),
        4 => (id.clone(), 0..20_000_u16, bytes()).prop_map(|(k, o, v)| Step::SetRange(k, o, v)),
        8 => (id.clone(), deadline()).prop_map(|(k, d)| Step::Expire(k, d)),
        4 => id.clone().prop_map(Step::Persist),
        4 => id.clone().prop_map(Step::Remove),
        4 => (id.clone(), id.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        6 => id.clone().prop_map(Step::Lookup),
        4 => (id.clone(), id.clone(), any::<bool>()).prop_map(|(k, n, back)| Step::LendAndReturn(k, n, back)),
        3 => id.clone().prop_map(Step::Incr),
        4 => prop_oneof![0..50_i64, 0..5_000_i64, 0..90_000_i64, Just(40_000_000_000), -500..0_i64, Just(-400_000_i64), Just(-40_000_000_000)]
            .prop_map(Step::Clock),
        5 => prop_oneof![1..20_usize, Just(usize::MAX)].prop_map(Step::ActiveExpire),
        1 => Just(Step::Clear),
        2 => (0..200_usize).prop_map(Step::FreeSlice),
        2 => (0..2000_u16, 0..2000_u16).prop_map(|(k, n)| Step::Fill(k, n)),
    ]
}

struct Pair {
    keyspace: Keyspace,
    model: Model,
    now_ms: i64,
    /// The latest time at which the wheel has been, as far as it follows the clock back.
    wheel_ms: i64,
}

impl Pair {
    fn set(&mut self, name: &[u8], new: NewValue<'_>, value: Value, ttl: Ttl) {
        let ttl = match ttl {
            Ttl::At(offset) => Ttl::At(self.now_ms + offset),
            kept => kept,
        };
        let key = Key::new(name, self.keyspace.seed());
        let old = self.model.get(name);
        let deadline = match ttl {
            Ttl::Keep => old.and_then(|(_, deadline)| *deadline),
            Ttl::Clear => None,
            Ttl::At(deadline) => Some(deadline),
        };
        let expected = if old.is_some() { Stored::Overwritten } else { Stored::New };
        assert_eq!(self.keyspace.set(&key, new, ttl), expected);
        self.model.insert(name.to_vec(), (value, deadline));
    }

    fn text(&mut self, name: &[u8]) -> Option<&mut Vec<u8>> {
        match self.model.get_mut(name) {
            Some((Value::Text(text), _)) => Some(text),
            _ => None,
        }
    }

    fn run(&mut self, step: Step) {
        let seed = self.keyspace.seed();
        match step {
            Step::SetStr(k, v, ttl) => {
                if v.len() % 2 == 0 {
                    self.set(&name(k), NewValue::of_bytes(&v), Value::Text(v.clone()), ttl);
                } else {
                    self.set(&name(k), NewValue::Shared(v.clone().into()), Value::Text(v), ttl);
                }
            }
            Step::SetInt(k, v, ttl) => {
                self.set(&name(k), NewValue::Int(v), Value::Text(v.to_string().into()), ttl)
            }
            Step::SetSet(k, ttl) => {
                self.set(&name(k), NewValue::Object(Object::Set(Default::default())), Value::Set, ttl);
            }
            Step::Append(k, v) => {
                let name = name(k);
                let is_there = self.model.contains_key(&name);
                let expected = match self.text(&name) {
                    Some(text) => {
                        text.extend(&v);
                        Appended::Done(text.len())
                    }
                    None if is_there => Appended::WrongType,
                    None => Appended::Absent,
                };
                assert_eq!(self.keyspace.append(&Key::new(&name, seed), &v, usize::MAX), expected);
            }
            Step::SetRange(k, offset, v) => {
                let (name, offset) = (name(k), usize::from(offset));
                let expected = self.text(&name).map(|text| {
                    text.resize(text.len().max(offset + v.len()), 0);
                    text[offset..offset + v.len()].copy_from_slice(&v);
                    text.len()
                });
                assert_eq!(self.keyspace.set_range(&Key::new(&name, seed), offset, &v), expected);
            }
            Step::Expire(k, offset) => {
                let name = name(k);
                let old = self.model.get_mut(&name);
                assert_eq!(
                    self.keyspace.set_expire(&Key::new(&name, seed), self.now_ms + offset),
                    old.is_some()
                );
                if let Some((_, deadline)) = old {
                    *deadline = Some(self.now_ms + offset);
                }
            }
            Step::Persist(k) => {
                let name = name(k);
                let had = self.model.get_mut(&name).is_some_and(|(_, deadline)| deadline.take().is_some());
                assert_eq!(self.keyspace.persist(&Key::new(&name, seed)), had);
            }
            Step::Remove(k) => {
                let name = name(k);
                let removed = self.keyspace.remove(&Key::new(&name, seed));
                let expected = self.model.remove(&name);
                assert_eq!(
                    removed.as_ref().map(|entry| (value_of(entry.as_ref()), entry.as_ref().expire_at())),
                    expected
                );
                if let Some(entry) = removed {
                    self.keyspace.discard(entry);
                }
            }
            Step::Rename(from, to) => {
                let (from, to) = (name(from), name(to));
                if let Some(entry) = self.keyspace.remove(&Key::new(&from, seed)) {
                    let to_key = Key::new(&to, seed);
                    drop(self.keyspace.remove(&to_key));
                    self.keyspace.adopt(to_key.hash, entry.with_key(&to));
                    let value = self.model.remove(&from).expect("in both");
                    self.model.insert(to, value);
                }
            }
            Step::Lookup(k) => {
                let name = name(k);
                let dead = self
                    .model
                    .get(&name)
                    .is_some_and(|(_, deadline)| deadline.is_some_and(|at| self.now_ms > at));
                match self.keyspace.lookup(&Key::new(&name, seed), self.now_ms) {
                    Lookup::Absent => assert!(!self.model.contains_key(&name)),
                    Lookup::Expired => {
                        assert!(dead);
                        self.model.remove(&name);
                    }
                    Lookup::Found(entry) => {
                        assert!(!dead);
                        assert_eq!(value_of(entry), self.model[&name].0);
                    }
                }
            }
            Step::LendAndReturn(k, other, back) => {
                let name = name(k);
                let key = Key::new(&name, seed);
                let Some(entry) = self.keyspace.take(&key) else { return };
                let home = self.model.insert(name.clone(), (Value::Lent, None)).expect("in both");
                self.check();
                assert!(other == k || self.model.contains_key(&name));
                // Away, the value is changed.
                let mut guests = Keyspace::new(seed);
                guests.adopt(key.hash, entry);
                assert_eq!(guests.n_expires(), usize::from(home.1.is_some()));
                guests.append(&key, b"away", usize::MAX);
                if back {
                    self.keyspace.give_back(&key, guests.remove(&key));
                    let value = match home.0 {
                        Value::Text(text) => Value::Text([&text[..], b"away"].concat()),
                        set => set,
                    };
                    self.model.insert(name, (value, home.1));
                } else {
                    self.keyspace.give_back(&key, None);
                    self.model.remove(&name);
                }
            }
            Step::Incr(k) => {
                let name = name(k);
                let key = Key::new(&name, seed);
                if let Some(int) = self.keyspace.get_mut(&key).as_mut().and_then(EntryMut::int_mut) {
                    *int = int.wrapping_add(1);
                    let text = int.to_string().into_bytes();
                    *self.text(&name).expect("an integer is a string") = text;
                }
            }
            Step::Clock(by) => self.now_ms = (self.now_ms + by).max(0),
            Step::ActiveExpire(budget) => self.active_expire(budget),
            Step::Clear => {
                self.keyspace.clear();
                self.model.clear();
                self.wheel_ms = 0;
            }
            Step::FreeSlice(budget) => _ = self.keyspace.free_slice(budget),
            Step::Fill(from, n) => {
                for k in 1000 + from..1000 + from + n {
                    let ttl = if k % 3 == 0 { Ttl::Clear } else { Ttl::At(i64::from(k % 7) * 1000) };
                    self.set(&name(k), NewValue::Str(b"filled"), Value::Text(b"filled".to_vec()), ttl);
                }
            }
        }
    }

    fn active_expire(&mut self, budget: usize) {
        let (model, now_ms) = (&mut self.model, self.now_ms);
        let spent = self.keyspace.active_expire(now_ms, budget, |entry| {
            let (value, deadline) = model.remove(entry.key()).expect("in both");
            assert_eq!(value_of(entry), value);
            assert!(deadline.is_some_and(|at| now_ms > at), "alive");
        });
        assert!(spent <= budget);
        if now_ms + 61_000 < self.wheel_ms {
            self.wheel_ms = now_ms;
        }
        // What was filed dead on arrival leaves with the next tick.
        if spent < budget && now_ms >= self.wheel_ms + 16 {
            let late =
                model.iter().filter(|(_, (_, deadline))| deadline.is_some_and(|at| now_ms > at.max(0) + 16));
            assert_eq!(
                late.map(|(name, _)| name).collect::<Vec<_>>(),
                Vec::<&Vec<u8>>::new(),
                "dead keys left"
            );
        }
        self.wheel_ms = self.wheel_ms.max(now_ms);
    }

    fn check(&mut self) {
        let nodes: BTreeSet<NonNull<u8>> =
            self.keyspace.expiry.check().into_iter().map(Entry::of_node).collect();
        let mut found = Model::new();
        for entry in self.keyspace.iter() {
            found.insert(entry.key().to_vec(), (value_of(entry), entry.expire_at()));
        }
        assert_eq!(self.keyspace.len(), found.len());
        assert_eq!(nodes.len(), found.values().filter(|(_, deadline)| deadline.is_some()).count());
        assert_eq!(nodes.len(), self.keyspace.n_expires());
        assert!(found == self.model, "contents differ");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn keyspace_model(seed: u64, steps in proptest::collection::vec(step(), 1..150)) {
        let mut pair = Pair {
            keyspace: Keyspace::new(HashSeed::from_u64(seed)),
            model: Model::new(),
            now_ms: 1_700_000_000_000,
            wheel_ms: 0,
        };
        for (i, step) in steps.into_iter().enumerate() {
            pair.run(step);
            if i % 8 == 0 {
                pair.check();
            }
        }
        pair.check();
        pair.active_expire(usize::MAX);
        pair.check();
    }
}

const NOW: i64 = 1_700_000_000_000;

fn filled(n: usize, deadline: impl Fn(usize) -> i64) -> Keyspace {
    let mut keyspace = Keyspace::new(HashSeed::from_u64(5));
    keyspace.active_expire(NOW, 1, |_| ());
    for i in 0..n {
        let name = format!("key:{i}");
        let key = Key::new(name.as_bytes(), keyspace.seed());
        keyspace.set(&key, NewValue::Str(b"value"), Ttl::At(deadline(i)));
    }
    keyspace
}

/// Many keys of one deadline leave in bounded slices, and the living are looked at a few times in all.
#[test]
fn equal_deadlines_leave_in_slices() {
    let n = 200_000;
    let mut keyspace = filled(n, |i| if i % 2 == 0 { NOW + 3_600_000 } else { NOW + 7_200_000 });
    let (mut expired, mut looked_at) = (0, 0);
    let mut now_ms = NOW;
    while now_ms < NOW + 3_600_000 + 60_000 {
        now_ms += 100;
        looked_at += keyspace.active_expire(now_ms, 500, |_| expired += 1);
    }
    assert_eq!((expired, keyspace.len(), keyspace.n_expires()), (n / 2, n / 2, n / 2));
    assert!(looked_at < 4 * n, "{looked_at} looked at for {n} keys");
    keyspace.expiry.check();
    assert_eq!(keyspace.avg_ttl_ms(NOW), 7_200_000);
}

/// One call with a huge budget after a jump of the clock by years.
#[test]
fn clock_jumps() {
    let mut keyspace = filled(10_000, |i| NOW + (i as i64) * 7_919_000);
    let year_ms = 365 * 24 * 3_600_000;
    let mut expired = 0;
    let spent = keyspace.active_expire(NOW + 100 * year_ms, usize::MAX, |_| expired += 1);
    assert_eq!(expired, 10_000);
    assert!(spent < 60_000, "{spent}");
    // And back again: new keys live and die as the clock says.
    let key = Key::new(b"key", keyspace.seed());
    keyspace.set(&key, NewValue::Int(1), Ttl::At(NOW + 1000));
    assert_eq!(keyspace.active_expire(NOW + 500, usize::MAX, |_| panic!("alive")), 1 + 1);
    keyspace.active_expire(NOW + 1100, usize::MAX, |entry| assert_eq!(entry.key(), b"key"));
    assert!(keyspace.is_empty());
}

/// Deadlines that always move later cost no list work, and the key dies at the last one.
#[test]
fn refreshed_deadlines() {
    let mut keyspace = filled(1, |_| NOW + 1000);
    let key = Key::new(b"key:0", keyspace.seed());
    let mut now_ms = NOW;
    for _ in 0..1000 {
        now_ms += 900;
        keyspace.set_expire(&key, now_ms + 1000);
        assert!(keyspace.active_expire(now_ms, 100, |_| panic!("alive")) < 10);
    }
    let mut expired = 0;
    keyspace.active_expire(now_ms + 1017, 100, |_| expired += 1);
    assert_eq!(expired, 1);
}

/// What is in the table, in lists, in lazyfree, or abroad is freed once: shared strings count their owners.
#[test]
fn values_are_dropped_once() {
    let long = Bytes::from(vec![7; INLINE_BYTES + 1]);
    let mut keyspace = Keyspace::new(HashSeed::from_u64(6));
    let seed = keyspace.seed();
    for i in 0..3000_u32 {
        let name = i.to_le_bytes();
        let ttl = if i % 2 == 0 { Ttl::Clear } else { Ttl::At(NOW + i64::from(i)) };
        keyspace.set(&Key::new(&name, seed), NewValue::Shared(long.clone()), ttl);
    }
    keyspace.set(&Key::new(&0_u32.to_le_bytes(), seed), NewValue::Int(1), Ttl::Keep);
    let entry = keyspace.remove(&Key::new(&2_u32.to_le_bytes(), seed)).expect("there");
    let moved = entry.with_key(b"abroad");
    keyspace.active_expire(NOW + 100, usize::MAX, |_| ());
    assert!(!long.is_unique());
    keyspace.clear();
    assert_eq!((keyspace.len(), keyspace.n_expires()), (0, 0));
    let mut slices = 0;
    while !keyspace.free_slice(100) {
        slices += 1;
    }
    assert!(slices > 2, "{slices}");
    assert!(!long.is_unique());
    drop(moved);
    assert!(long.is_unique());
}

/// Appending to one long string copies it a few times, not each time; a reader's share is left alone.
#[test]
fn append_is_amortised() {
    let mut keyspace = Keyspace::new(HashSeed::from_u64(8));
    let key = Key::new(b"log", keyspace.seed());
    keyspace.set(&key, NewValue::Str(b""), Ttl::At(NOW));
    let mut places = BTreeSet::new();
    for i in 1..=40_000 {
        assert_eq!(keyspace.append(&key, b"0123456789", 400_000), Appended::Done(i * 10));
        if let Some(View::Shared(bytes)) = keyspace.peek(&key).map(EntryRef::view) {
            places.insert(bytes.as_ptr());
        }
    }
    assert!(places.len() < 30, "moved {} times", places.len());
    let reader = match keyspace.peek(&key).map(EntryRef::view) {
        Some(View::Shared(bytes)) => bytes.clone(),
        _ => panic!("400,000 bytes are shared"),
    };
    keyspace.set_range(&key, 0, b"changed");
    assert_eq!(&reader[..7], b"0123456");
    assert!(
        keyspace.peek(&key).is_some_and(|entry| entry.is_raw() || matches!(entry.view(), View::Shared(_)))
    );
    assert_eq!(keyspace.expire_at(&key), Some(NOW));
}

#[test]
fn get_or_insert_finds_what_is_there_and_makes_what_is_not() {
    let mut keyspace = Keyspace::new(HashSeed::from_u64(1));
    let key = Key::new(b"n", keyspace.seed());
    *keyspace.get_or_insert(&key, || NewValue::Int(1)).int_mut().expect("an integer") += 1;
    assert_eq!(keyspace.len(), 1);
    keyspace.set_expire(&key, 1_000);
    let value = keyspace.get_or_insert(&key, || unreachable!("it is there")).int_mut().copied();
    assert_eq!(value, Some(2));
    assert_eq!((keyspace.len(), keyspace.expire_at(&key)), (1, Some(1_000)));
}
