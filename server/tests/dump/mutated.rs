//! Payloads that somebody has tampered with, their checksum made right again: refused or read as a sound value, without a
//! panic, and in memory that the payload's own size bounds.

use super::payload::{self, Style};
use super::support::rng::Rng;
use super::travel::any_value;
use super::{seed, setting, values};
use bytes::Bytes;
use skerry_server::alloc::Counting;
use skerry_server::config::Config;
use skerry_server::keyspace::hash::HashSeed;
use skerry_server::keyspace::{Object, View};
use skerry_server::rdb::{self, Compression, MadeWith, Restored, Restoring, Value};
use skerry_server::types::Limits;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of memory for a byte of payload.
const MAX_RATIO: usize = 10;
/// And for the smallest payload: an empty table and its like.
const MAX_FIXED_BYTES: usize = 2048;
/// What LZF can make of a byte at most: a match of 264 bytes takes three.
const LZF_MAX_RATIO: usize = 88;
/// The first byte of a compressed string; a payload without it has none.
const LZF_MARK: u8 = 0xc3;

/// The server's allocator, and the most that this thread has held.
struct Peak;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn hold(n_bytes: isize) {
    let held = HELD.get() + n_bytes;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

#[global_allocator]
static ALLOCATOR: Peak = Peak;

// SAFETY: every call goes to `Counting` as it came.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size() as isize);
        // SAFETY: the caller's promise is `Counting`'s.
        unsafe { Counting.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { Counting.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, n_bytes: usize) -> *mut u8 {
        // Both blocks may be there while one is copied.
        hold(n_bytes as isize);
        hold(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { Counting.realloc(at, layout, n_bytes) }
    }
}

/// The most that `work` held above what was held before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, (MOST.get() - before).max(0) as usize)
}

/// As RESTORE does it: the payload stays in the request's buffer.
fn restore<'a>(payload: &'a Bytes, made_with: MadeWith<'_>) -> Option<Value<'a>> {
    let mut restoring = Restoring::begin(payload.clone());
    loop {
        match restoring.step(made_with, usize::MAX, &mut None).ok()? {
            Restored::More => {}
            Restored::Sound => return rdb::value(payload, made_with).ok(),
            Restored::Object(object) => return Some(Value::Object(object)),
        }
    }
}

/// Panics unless the value is sound.
fn check(value: &Value<'_>) {
    match value {
        Value::String(_) => {}
        Value::Object(Object::List(list)) => {
            list.check();
            assert!(!list.is_empty());
        }
        Value::Object(Object::Set(set)) => {
            set.check();
            assert!(!set.is_empty());
        }
        Value::Object(Object::Hash(hash)) => {
            hash.check();
            assert!(!hash.is_empty());
        }
        Value::Object(Object::Zset(zset)) => {
            zset.check();
            assert!(!zset.is_empty());
        }
        Value::Object(_) => {}
    }
}

/// A sound value goes out and comes back as it is.
fn check_round_trip(value: &Value<'_>, made_with: MadeWith<'_>) {
    let view = match value {
        Value::String(bytes) => View::Str(bytes),
        Value::Object(Object::List(list)) => View::List(list),
        Value::Object(Object::Set(set)) => View::Set(set),
        Value::Object(Object::Hash(hash)) => View::Hash(hash),
        Value::Object(Object::Zset(zset)) => View::Zset(zset),
        Value::Object(_) => return,
    };
    let payload = Bytes::from(rdb::dump(view, Compression::Lzf).expect("a restored value is dumped"));
    let same = match (value, restore(&payload, made_with).expect("what was dumped is restored")) {
        (Value::String(a), Value::String(b)) => *a == b,
        (Value::Object(Object::List(a)), Value::Object(Object::List(b))) => *a == b,
        (Value::Object(Object::Set(a)), Value::Object(Object::Set(b))) => *a == b,
        (Value::Object(Object::Hash(a)), Value::Object(Object::Hash(b))) => *a == b,
        (Value::Object(Object::Zset(a)), Value::Object(Object::Zset(b))) => *a == b,
        _ => false,
    };
    assert!(same, "another value came back");
}

pub(crate) fn mutate(body: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    for _ in 0..rng.within(1, 3) {
        let at = rng.below(body.len());
        match rng.below(12) {
            0..4 => body[at] ^= 1 << rng.below(8),
            4..6 => body[at] = rng.next() as u8,
            6 => body[at] = *rng.pick(&[0, 1, 0x3f, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xf0, 0xf4, 0xfe, 0xff]),
            7 => body.insert(at, rng.next() as u8),
            8 if body.len() > 1 => _ = body.remove(at),
            9 => {
                // A length far above what follows.
                let end = body.len().min(at + 8);
                body[at..end].fill(*rng.pick(&[0xff, 0x7f, 0x81, 0]));
            }
            10 => {
                let from = rng.below(other.len());
                let part = &other[from..other.len().min(from + 1 + rng.below(20))];
                let end = body.len().min(at + part.len());
                body.splice(at..end, part.iter().copied());
            }
            _ => body.truncate(at.max(1)),
        }
    }
    if rng.chance(12) {
        body[0] = rng.pick(payload::TYPES).0;
    }
}

#[derive(Default)]
struct Tally {
    n_read: usize,
    n_accepted: usize,
    /// Times 100.
    worst_ratio: usize,
}

#[test]
fn tampered_payloads_do_no_harm() {
    let n_mutations = setting("SKERRY_DUMP_MUTATIONS", 60_000) as usize;
    let mut rng = Rng::new(seed() ^ 0xabcd);
    let config = Config::default();
    let limits = Limits {
        list_max_listpack_size: -1,
        set_max_intset_entries: 12,
        set_max_listpack_entries: 12,
        hash_max_listpack_entries: 12,
        zset_max_listpack_entries: 12,
        ..Limits::new(HashSeed::from_u64(5))
    };
    let made_with = MadeWith { config: &config, limits: &limits, seed: 3 };
    let mut tallies: Vec<Tally> = payload::TYPES.iter().map(|_| Tally::default()).collect();
    let mut other = vec![0, 1, b'x'];
    for n in 0..n_mutations {
        let at = n % payload::TYPES.len();
        let (kind, name) = payload::TYPES[at];
        let value = any_value(name, &mut rng);
        let style = if rng.percent(50) { Style::Plain } else { Style::Any };
        let mut body = payload::body(kind, &value, style, &mut rng);
        mutate(&mut body, &other, &mut rng);
        let payload = Bytes::from(payload::seal(body.clone(), &mut rng));
        other = body;
        let tally = &mut tallies[at];
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (value, n_held) = most_held(|| restore(&payload, made_with));
            let n_payload = payload.len() * if payload.contains(&LZF_MARK) { LZF_MAX_RATIO } else { 1 };
            assert!(n_held <= MAX_RATIO * n_payload + MAX_FIXED_BYTES, "{n_held} bytes held");
            if n_payload == payload.len() && n_held > MAX_FIXED_BYTES {
                tally.worst_ratio = tally.worst_ratio.max((n_held - MAX_FIXED_BYTES) * 100 / n_payload);
            }
            tally.n_read += 1;
            if let Some(value) = value {
                tally.n_accepted += 1;
                check(&value);
                check_round_trip(&value, made_with);
            }
        }));
        assert!(outcome.is_ok(), "mutant {n} of type {kind}: {payload:02x?}");
    }
    for (tally, (kind, name)) in tallies.iter().zip(payload::TYPES) {
        let Tally { n_read, n_accepted, worst_ratio } = *tally;
        let share = n_accepted as f64 * 100.0 / n_read.max(1) as f64;
        let ratio = worst_ratio as f64 / 100.0;
        println!(
            "type {kind:2} ({name}): {n_read} tampered, {share:.1} % accepted, memory at most {ratio:.2}x"
        );
    }
    let (n, accepted) = tallies.iter().fold((0, 0), |(n, a), t| (n + t.n_read, a + t.n_accepted));
    println!("{n} tampered payloads, {accepted} accepted ({:.1} %)", accepted as f64 * 100.0 / n as f64);
}

/// The payloads that take most memory for their size, whole: tiny elements by the thousand.
#[test]
fn tiny_elements_by_the_thousand() {
    let mut rng = Rng::new(1);
    let config = Config::default();
    let limits = Limits::new(HashSeed::from_u64(5));
    let made_with = MadeWith { config: &config, limits: &limits, seed: 3 };
    let names: Vec<Vec<u8>> = (0..60_000_u16).map(|n| n.to_be_bytes().to_vec()).collect();
    let mut shuffled = names.clone();
    (1..shuffled.len()).for_each(|at| shuffled.swap(at, rng.below(at + 1)));
    let numbers: Vec<Vec<u8>> = (0..60_000).map(|n| (n - 30_000).to_string().into_bytes()).collect();
    let empty = |name: &Vec<u8>| (name.clone(), Vec::new());
    let infinite = |name: &Vec<u8>| (name.clone(), f64::INFINITY);
    let cases: Vec<(u8, values::Value)> = vec![
        (1, values::Value::List(names.iter().map(|_| Vec::new()).collect())),
        (2, values::Value::Set(names.clone())),
        (11, values::Value::Set(numbers.clone())),
        (20, values::Value::Set(numbers.clone())),
        (4, values::Value::Hash(names.iter().map(empty).collect())),
        (16, values::Value::Hash(names.iter().map(empty).collect())),
        (24, values::Value::Timed(names.iter().map(|name| (name.clone(), Vec::new(), 0)).collect())),
        (24, values::Value::Timed(names.iter().map(|name| (name.clone(), Vec::new(), 7)).collect())),
        (24, values::Value::Timed(numbers.iter().map(|name| (name.clone(), Vec::new(), 7)).collect())),
        (25, values::Value::Timed(names.iter().map(|name| (name.clone(), Vec::new(), 7)).collect())),
        (3, values::Value::Zset(names.iter().map(infinite).collect())),
        (3, values::Value::Zset(shuffled.iter().map(infinite).collect())),
        (3, values::Value::Zset(names.iter().rev().map(infinite).collect())),
        (3, values::Value::Zset(numbers.iter().map(infinite).collect())),
        (3, values::Value::Zset(shuffled.iter().map(|name| (name.clone(), 0.1)).collect())),
        (5, values::Value::Zset(names.iter().map(infinite).collect())),
        (17, values::Value::Zset(names.iter().map(|name| (name.clone(), 1.0)).collect())),
        (18, values::Value::List(names.iter().map(|_| vec![b'x']).collect())),
    ];
    for (kind, value) in cases {
        let body = payload::body(kind, &value, Style::Plain, &mut rng);
        let payload = Bytes::from(payload::seal(body, &mut rng));
        let (restored, n_held) = most_held(|| restore(&payload, made_with));
        let ratio = n_held as f64 / payload.len() as f64;
        println!("type {kind:2}: {} bytes of payload, memory at most {ratio:.2}x", payload.len());
        assert!(restored.is_some(), "type {kind} is refused");
        assert!(n_held <= MAX_RATIO * payload.len(), "type {kind}: {ratio:.2}x");
    }
}
