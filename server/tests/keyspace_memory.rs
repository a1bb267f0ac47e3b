//! What the keyspace costs, by the counting allocator: bytes per key, allocations on the hot path, nothing left behind.
//! One test, as `used_memory` belongs to the process. What it has to say is printed at its end: the harness keeps what is
//! printed in memory, which would be counted.

use std::fmt::Write;
use std::time::{Duration, Instant};

use skerry_server::alloc::{Counting, thread_count, used_memory};
use skerry_server::keyspace::{HashSeed, Key, Keyspace, NewValue, Stored, Ttl, View};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const N_KEYS: usize = 1_000_000;
const NOW: i64 = 1_700_000_000_000;

fn name(buffer: &mut [u8; 16], id: usize) -> &[u8] {
    buffer.copy_from_slice(b"key:000000000000");
    for (at, digit) in itoa::Buffer::new().format(id).bytes().rev().enumerate() {
        buffer[15 - at] = digit;
    }
    buffer
}

/// 16-byte keys with 64-byte values. Returns the longest SET.
fn fill(keyspace: &mut Keyspace, ttl: impl Fn(usize) -> Ttl) -> Duration {
    let (mut buffer, mut longest) = ([0; 16], Duration::ZERO);
    for id in 0..N_KEYS {
        let key = Key::new(name(&mut buffer, id), keyspace.seed());
        let before = Instant::now();
        assert_eq!(keyspace.set(&key, NewValue::of_bytes(&[b'v'; 64]), ttl(id)), Stored::New);
        longest = longest.max(before.elapsed());
    }
    longest
}

fn free(mut keyspace: Keyspace) {
    keyspace.clear();
    while !keyspace.free_slice(10_000) {}
}

fn overhead_per_key(keyspace: &Keyspace, before: usize) -> f64 {
    (used_memory() - before) as f64 / keyspace.len() as f64 - 80.0
}

#[test]
fn costs() {
    let seed = HashSeed::from_u64(1);
    let mut report = String::with_capacity(4096);
    let at_start = used_memory();
    let own_at_start = thread_count().used_bytes;

    let mut keyspace = Keyspace::new(seed);
    let longest = fill(&mut keyspace, |_| Ttl::Clear);
    let plain = overhead_per_key(&keyspace, at_start);
    _ = writeln!(
        report,
        "{N_KEYS} keys of 16 bytes with values of 64: {plain:.2} bytes over key and value; longest SET {longest:?}"
    );
    assert!(plain <= 32.0, "{plain}");
    assert!(plain > 16.0, "the counter sees less than the entries' headers: {plain}");
    hot_path_does_not_allocate(&mut keyspace);

    let mut buffer = [0; 16];
    let before = used_memory();
    for id in 0..N_KEYS - 1000 {
        assert!(keyspace.remove(&Key::new(name(&mut buffer, id), seed)).is_some());
    }
    _ = writeln!(
        report,
        "{} of {before} bytes left after deleting all but 1000 keys",
        used_memory() - at_start
    );
    assert!(used_memory() - at_start < before / 500);
    free(keyspace);
    assert_eq!(thread_count().used_bytes, own_at_start, "something is left behind");

    let mut keyspace = Keyspace::new(seed);
    fill(&mut keyspace, |id| Ttl::At(NOW + (id as i64 * 7919) % 86_400_000));
    let expiring = overhead_per_key(&keyspace, at_start);
    _ = writeln!(report, "with deadlines: {expiring:.2} bytes over key and value");
    assert!(expiring <= plain + 33.0, "8 for the deadline, 16 for the index, 8 for the next size class");
    let mut expired = 0;
    for turn in 0..1000 {
        keyspace.active_expire(NOW + turn * 90_000, 5000, |_| expired += 1);
    }
    assert!(expired > N_KEYS * 9 / 10, "{expired}");
    free(keyspace);
    assert_eq!(thread_count().used_bytes, own_at_start, "something is left behind");
    print!("{report}");
}

/// GET, SET on a value of the same size, INCR, EXPIRE on a key that has a deadline: no allocation.
fn hot_path_does_not_allocate(keyspace: &mut Keyspace) {
    let (mut buffer, seed) = ([0; 16], keyspace.seed());
    let counter = Key::new(b"counter", seed);
    keyspace.set(&counter, NewValue::Int(0), Ttl::At(NOW));
    let before = thread_count().n_allocations;
    for id in 0..1000 {
        let key = Key::new(name(&mut buffer, id), seed);
        keyspace.prefetch_bucket(key.hash);
        keyspace.prefetch_entry(key.hash);
        assert_eq!(keyspace.set(&key, NewValue::of_bytes(&[b'w'; 64]), Ttl::Clear), Stored::Overwritten);
        keyspace.set(&key, NewValue::of_bytes(&[b'w'; 50]), Ttl::Keep);
        assert!(matches!(keyspace.lookup(&key, NOW).found().map(|entry| entry.view()), Some(View::Str(_))));
        *keyspace.get_mut(&counter).expect("set above").int_mut().expect("an integer") += 1;
        keyspace.set_expire(&counter, NOW + id as i64);
    }
    assert_eq!(thread_count().n_allocations, before);
    drop(std::hint::black_box(Box::new(1_u64)));
    assert_eq!(thread_count().n_allocations, before + 1, "the counter counts");
}
