//! The table against the standard maps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::keyspace::thin::ThinBytes;

struct Field {
    name: Vec<u8>,
    value: u64,
}

impl Keyed for Field {
    fn key(&self) -> &[u8] {
        &self.name
    }
}

fn key(i: u64) -> Vec<u8> {
    format!("key:{i}").into_bytes()
}

/// A small generator of random bits (splitmix64), so that a failing seed can be run again.
fn bits_from(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

/// Everything the layout promises: word runs, counts, depths, sizes, each entry in the segment of its hash.
fn check<E: TableEntry>(table: &Table<E>) {
    let (mut index, mut len, mut n_segments, mut at_depth, mut bytes) = (0, 0, 0, 0, 0);
    assert_eq!(table.directory.len(), if table.directory.is_empty() { 0 } else { 1 << table.depth });
    while index < table.directory.len() {
        let word = table.directory[index];
        let n_words = table.n_words_of(word);
        assert_eq!(index % n_words, 0);
        for copy in &table.directory[index + 1..index + n_words] {
            assert_eq!(*copy, word.without_count());
        }
        // SAFETY: a word of the directory, read under this borrow.
        let words: Vec<u64> = unsafe { word.segment() }.map(|s| s.words().collect()).unwrap_or_default();
        assert_eq!(words.len(), word.count());
        if word.address() != 0 {
            assert!(word.count() > 0 && word.count() <= word.n_buckets() * FULL);
            bytes += word.n_buckets() * 64;
        }
        for word in words {
            // SAFETY: an entry of the table.
            let key = E::key(unsafe { E::borrow(raw_of(word & ADDRESS)) });
            let hash = table.hash(key);
            assert_eq!(hash as u16, (word >> 48) as u16);
            assert_eq!(table.first_of(table.index(hash)), index);
        }
        len += word.count();
        n_segments += 1;
        at_depth += usize::from(word.local_depth() == table.depth);
        index += n_words;
    }
    assert_eq!((len, n_segments, at_depth), (table.len, table.n_segments, table.n_at_depth));
    assert_eq!(bytes, table.segment_bytes);
    assert!(table.depth == 0 || at_depth > 0, "a directory that could be halved");
}

#[derive(Clone, Debug)]
enum Step {
    Set(u64, u64),
    Remove(u64),
    Update(u64, u64),
    Replace(u64, u64),
    RemoveRange(u64, u64),
    SetRange(u64, u64),
    RemoveRandom(u64),
    Drain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..6000_u64;
    prop_oneof![
        20 => (id.clone(), any::<u64>()).prop_map(|(k, v)| Step::Set(k, v)),
        20 => id.clone().prop_map(Step::Remove),
        10 => (id.clone(), any::<u64>()).prop_map(|(k, v)| Step::Update(k, v)),
        10 => (id.clone(), any::<u64>()).prop_map(|(k, v)| Step::Replace(k, v)),
        10 => (id.clone(), 0..3000_u64).prop_map(|(k, n)| Step::SetRange(k, n)),
        10 => (id.clone(), 0..3000_u64).prop_map(|(k, n)| Step::RemoveRange(k, n)),
        5 => any::<u64>().prop_map(Step::RemoveRandom),
        4 => (0..3000_usize).prop_map(Step::Drain),
    ]
}

fn set(table: &mut Table<Box<Field>>, model: &mut HashMap<Vec<u8>, u64>, key: Vec<u8>, value: u64) {
    let hash = table.hash(&key);
    match table.find_mut(hash, &key) {
        Some(mut slot) => slot.update(|field| field.value = value),
        None => table.insert(hash, Box::new(Field { name: key.clone(), value })),
    }
    model.insert(key, value);
}

fn remove(table: &mut Table<Box<Field>>, model: &mut HashMap<Vec<u8>, u64>, key: &[u8]) {
    let removed = table.remove(table.hash(key), key);
    assert_eq!(removed.map(|field| field.value), model.remove(key));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against HashMap, through growth, splits, merges and drains.
    #[test]
    fn table_model(seed: u64, steps in proptest::collection::vec(step(), 1..120)) {
        let mut table = Table::new(HashSeed::from_u64(seed));
        let mut model = HashMap::new();
        for step in steps {
            match step {
                Step::Set(k, v) => set(&mut table, &mut model, key(k), v),
                Step::SetRange(k, n) => (k..k + n).for_each(|k| set(&mut table, &mut model, key(k), k)),
                Step::Remove(k) => remove(&mut table, &mut model, &key(k)),
                Step::RemoveRange(k, n) => (k..k + n).for_each(|k| remove(&mut table, &mut model, &key(k))),
                Step::Update(k, v) => {
                    // The entry moves to another allocation.
                    let name = key(k);
                    let hash = table.hash(&name);
                    if let Some(mut slot) = table.find_mut(hash, &name) {
                        let moved = Box::new(Field { name: name.clone(), value: v });
                        slot.update(|field| drop(std::mem::replace(field, moved)));
                        model.insert(name, v);
                    }
                }
                Step::Replace(k, v) => {
                    let name = key(k);
                    let hash = table.hash(&name);
                    if let Some(mut slot) = table.find_mut(hash, &name) {
                        let old = slot.replace(Box::new(Field { name: name.clone(), value: v }));
                        prop_assert_eq!(Some(old.value), model.insert(name, v));
                    }
                }
                Step::RemoveRandom(seed) => {
                    let removed = table.random_mut(bits_from(seed)).map(SlotMut::remove);
                    prop_assert_eq!(removed.is_none(), model.is_empty());
                    if let Some(field) = removed {
                        prop_assert_eq!(model.remove(&field.name), Some(field.value));
                    }
                }
                Step::Drain(budget) => {
                    let done = table.drain(budget, |field| assert_eq!(model.remove(&field.name), Some(field.value)));
                    prop_assert_eq!(done, model.is_empty());
                }
            }
            prop_assert_eq!(table.len(), model.len());
        }
        check(&table);
        for (name, value) in &model {
            prop_assert_eq!(table.find(table.hash(name), name).map(|field| field.value), Some(*value));
        }
        let all: HashMap<Vec<u8>, u64> = table.iter().map(|field| (field.name.clone(), field.value)).collect();
        prop_assert_eq!(&all, &model);
    }

    /// What is there from the first to the last step of a scan is seen, whatever else comes and goes meanwhile.
    #[test]
    fn scan_guarantee(seed: u64, stay in 0..3000_u64, churn in 0..40_u64, big in 0..20_000_u64) {
        let mut table: Table<ThinBytes> = Table::new(HashSeed::from_u64(seed));
        let mut bits = bits_from(seed);
        let add = |table: &mut Table<ThinBytes>, k: u64| {
            let (name, hash) = (key(k), table.hash(&key(k)));
            if table.find(hash, &name).is_none() {
                table.insert(hash, ThinBytes::new(&name));
            }
        };
        (0..stay).for_each(|k| add(&mut table, k));
        let mut seen = BTreeSet::new();
        let mut at = ScanPosition(0);
        let mut steps = 0_u64;
        loop {
            at = table.scan(at, |member| _ = seen.insert(member.to_vec()));
            prop_assert!(at.0 >> ScanPosition::BITS == 0);
            if at.0 == 0 {
                break;
            }
            steps += 1;
            prop_assert!(steps < 100_000);
            for _ in 0..churn {
                let k = 3000 + bits() % 30_000;
                let name = key(k);
                if bits().is_multiple_of(2) {
                    add(&mut table, k);
                } else {
                    table.remove(table.hash(&name), &name);
                }
            }
            // Now and then a wave of growth, then of deletion: splits, merges, another directory.
            if steps.is_multiple_of(97) {
                (50_000..50_000 + big).for_each(|k| add(&mut table, k));
            } else if steps % 97 == 48 {
                (50_000..50_000 + big).for_each(|k| _ = table.remove(table.hash(&key(k)), &key(k)));
            }
        }
        check(&table);
        for k in 0..stay {
            prop_assert!(seen.contains(&key(k)), "key {k} of {stay} not seen, seed {seed}");
        }
    }
}

#[test]
fn grows_and_gives_back() {
    let mut table: Table<ThinBytes> = Table::new(HashSeed::from_u64(1));
    assert_eq!(table.memory_bytes(), 0);
    for k in 0..300_000 {
        table.insert(table.hash(&key(k)), ThinBytes::new(&key(k)));
        if k == 5 {
            assert!(table.memory_bytes() <= 128, "{}", table.memory_bytes());
        }
        let bytes_per_key = table.memory_bytes() as f64 / (k + 1) as f64;
        assert!(k < 1000 || bytes_per_key < 12.5, "{bytes_per_key} at {k}");
    }
    check(&table);
    println!(
        "table bytes per key at {}: {:.2}",
        table.len(),
        table.memory_bytes() as f64 / table.len() as f64
    );
    for k in 0..299_000 {
        assert!(table.remove(table.hash(&key(k)), &key(k)).is_some());
    }
    check(&table);
    println!("bytes left for {} entries: {}, depth {}", table.len(), table.memory_bytes(), table.depth);
    assert!(table.memory_bytes() < 40_000);
    for k in 299_000..300_000 {
        assert!(table.remove(table.hash(&key(k)), &key(k)).is_some());
    }
    assert_eq!(table.memory_bytes(), 0);
}

#[test]
fn random_is_uniform() {
    let mut table: Table<Box<Field>> = Table::new(HashSeed::from_u64(3));
    for n in [1, 7, 40, 500, 1500] {
        for k in table.len() as u64..n {
            table.insert(table.hash(&key(k)), Box::new(Field { name: key(k), value: k }));
        }
        let mut bits = bits_from(n);
        let mut drawn = BTreeMap::<u64, u64>::new();
        for _ in 0..n * 400 {
            *drawn.entry(table.random(&mut bits).expect("not empty").value).or_default() += 1;
        }
        assert_eq!(drawn.len() as u64, n);
        assert!(drawn.values().all(|&times| n == 1 || (280..530).contains(&times)), "{n}: {drawn:?}");
    }
}

#[test]
fn random_of_a_sparse_table() {
    let mut table: Table<ThinBytes> = Table::new(HashSeed::from_u64(4));
    (0..100_000).for_each(|k| table.insert(table.hash(&key(k)), ThinBytes::new(&key(k))));
    (0..99_990).for_each(|k| _ = table.remove(table.hash(&key(k)), &key(k)));
    let mut bits = bits_from(9);
    let drawn: BTreeSet<Vec<u8>> =
        (0..2000).filter_map(|_| table.random(&mut bits)).map(<[u8]>::to_vec).collect();
    assert_eq!(drawn.len(), 10);
}

/// A segment merged out of drained and undrained ones, grown and split again, is drained like any other.
#[test]
fn drained_halves_that_merge_and_split() {
    for kept in 0..12_000 / 500 {
        let mut table: Table<ThinBytes> = Table::new(HashSeed::from_u64(21));
        let add = |table: &mut Table<ThinBytes>, range: std::ops::Range<u64>| {
            for k in range {
                if table.find(table.hash(&key(k)), &key(k)).is_none() {
                    table.insert(table.hash(&key(k)), ThinBytes::new(&key(k)));
                }
            }
        };
        add(&mut table, 0..12_000);
        table.drain(kept * 500, drop);
        (0..11_000).for_each(|k| _ = table.remove(table.hash(&key(k)), &key(k)));
        add(&mut table, 20_000..30_000);
        let (len, mut given) = (table.len(), 0);
        while !table.drain(700, |_| given += 1) {}
        assert_eq!((given, table.len()), (len, 0));
    }
}

/// A hash whose low 16 bits are 0 matches empty words: they lead to no entry.
#[test]
fn a_candidate_is_an_entry() {
    let mut table: Table<ThinBytes> = Table::new(HashSeed::from_u64(7));
    for i in 0..200_u32 {
        let key = i.to_le_bytes();
        table.insert(table.hash(&key), ThinBytes::new(&key));
        for top in 0..64_u64 {
            if let Some(entry) = table.candidate(top << 58) {
                assert_eq!(entry.len(), 4);
            }
        }
    }
}

/// Room for so many is room for them: no segment splits, none stays empty, and little more is taken than by growth.
#[test]
fn room_is_made_at_once() {
    for n in [0, 1, 6, 7, 129, 700, 768, 769, 1500, 6_000, 100_000] {
        let mut table: Table<ThinBytes> = Table::with_room(HashSeed::from_u64(n as u64), n);
        let depth = table.depth;
        for k in 0..n as u64 {
            table.insert(table.hash(&key(k)), ThinBytes::new(&key(k)));
        }
        check(&table);
        assert_eq!((table.len(), table.depth), (n, depth));
        assert!((0..n as u64).all(|k| table.find(table.hash(&key(k)), &key(k)).is_some()));
        assert!(n < 100 || table.memory_bytes() <= n * 14, "{} for {n}", table.memory_bytes());
        for k in 0..n as u64 {
            assert!(table.remove(table.hash(&key(k)), &key(k)).is_some());
        }
        assert_eq!(table.memory_bytes(), 0);
    }
}
