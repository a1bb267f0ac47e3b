//! What does one operation on a list, set or hash cost in memory that is warm? `cargo run --release --example types_cost`
//!
//! Prints nanoseconds per operation: the best of five rounds. Each round checks what it built. An argument chooses the
//! lines that contain it.

use std::hint::black_box;
use std::time::Instant;

use skerry_server::alloc::Counting;
use skerry_server::keyspace::hash::HashSeed;
use skerry_server::types::{Hash, Limits, List, Set};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn best_ns(name: &str, n: usize, mut round: impl FnMut()) {
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let best = (0..5).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / n as f64
    });
    println!("{name:44} {:8.1} ns", best.fold(f64::MAX, f64::min));
}

fn main() {
    let limits = Limits::new(HashSeed::from_u64(1));
    let value = [b'x'; 256];
    let n = 100_000;
    lists(&limits, &value, n);
    tables(&limits, &value, n);
    packed(&limits);
}

fn lists(limits: &Limits, value: &[u8], n: usize) {
    best_ns("LPUSH 256 bytes, list of 100000, freed", n, || {
        let mut list = List::new();
        (0..n).for_each(|_| list.push_front(black_box(value), limits));
        assert_eq!(list.len(), n);
    });
    best_ns("RPUSH 256 bytes, list of 100000, freed", n, || {
        let mut list = List::new();
        (0..n).for_each(|_| list.push_back(black_box(value), limits));
        assert_eq!(list.len(), n);
    });
    best_ns("LPUSH 10 bytes, list of 100000, freed", n, || {
        let mut list = List::new();
        (0..n).for_each(|_| list.push_front(black_box(&value[..10]), limits));
        assert_eq!(list.len(), n);
    });
    for len in [10, 1000] {
        let mut list = List::new();
        (0..len).for_each(|_| list.push_back(value, limits));
        best_ns(&format!("LPUSH + RPOP 256 bytes, list of {len}"), n, || {
            for _ in 0..n {
                list.push_front(black_box(value), limits);
                black_box(list.back());
                list.pop_back(limits);
            }
            assert_eq!(list.len(), len);
        });
    }
    let mut list = List::new();
    (0..n).for_each(|i| list.push_back(format!("element:{i:08}").as_bytes(), limits));
    for start in [0, n / 2] {
        best_ns(&format!("LRANGE of 600 x 16 from {start}, per element"), 600 * 100, || {
            for _ in 0..100 {
                let sum: usize = list.range(start..start + 600).map(|element| element.n_bytes()).sum();
                assert_eq!(sum, 600 * 16);
            }
        });
    }
}

fn tables(limits: &Limits, value: &[u8], n: usize) {
    let fields: Vec<String> = (0..n).map(|i| format!("field:{:010}", i.wrapping_mul(7919) % n)).collect();
    best_ns("HSET new 16 + 256, hash of 100000, freed", n, || {
        let mut hash = Hash::new();
        fields.iter().for_each(|field| _ = hash.set(field.as_bytes(), black_box(value), limits));
        assert_eq!(hash.len(), n);
    });
    let mut hash = Hash::new();
    best_ns("HSET 16 + 256, hash of 100000, replaced", n, || {
        fields.iter().for_each(|field| _ = hash.set(field.as_bytes(), black_box(value), limits));
        assert_eq!(hash.len(), n);
    });
    best_ns("HGET 16 + 256, hash of 100000", n, || {
        fields.iter().for_each(|field| _ = black_box(hash.get(field.as_bytes(), 0).unwrap()));
    });
    best_ns("HSET new 16 + 256, hash of 1000, freed", n, || {
        for fields in fields.chunks_exact(1000) {
            let mut hash = Hash::new();
            fields.iter().for_each(|field| _ = hash.set(field.as_bytes(), black_box(value), limits));
            assert_eq!(hash.len(), 1000);
        }
    });
    best_ns("SADD 16 bytes, set of 100000, freed", n, || {
        let mut set = Set::for_members(fields[0].as_bytes(), 1, limits);
        fields.iter().for_each(|field| _ = set.add(field.as_bytes(), limits));
        assert_eq!(set.len(), n);
    });
}

fn packed(limits: &Limits) {
    let fields: Vec<String> = (0..500).map(|i| format!("field:{i:04}")).collect();
    for len in [8, 500] {
        let mut hash = Hash::new();
        fields[..len].iter().for_each(|field| _ = hash.set(field.as_bytes(), b"value:0000", limits));
        best_ns(&format!("HGET, listpack of {len}"), len * 100, || {
            for _ in 0..100 {
                fields[..len].iter().for_each(|field| _ = black_box(hash.get(field.as_bytes(), 0).unwrap()));
            }
        });
        best_ns(&format!("HSET 10 bytes replaced, listpack of {len}"), len * 100, || {
            for _ in 0..100 {
                fields[..len].iter().for_each(|field| _ = hash.set(field.as_bytes(), b"value:0001", limits));
            }
        });
        best_ns(&format!("HSET new 10 + 10, listpack of {len}, freed"), len * 20, || {
            for _ in 0..20 {
                let mut hash = Hash::new();
                fields[..len].iter().for_each(|field| _ = hash.set(field.as_bytes(), b"value:0000", limits));
                assert_eq!(hash.len(), len);
            }
        });
    }
    let numbers: Vec<String> = (0..512).map(|i| (i * 7919 % 512).to_string()).collect();
    best_ns("SADD integers, intset of 512, freed", 512 * 20, || {
        for _ in 0..20 {
            let mut set = Set::new_intset();
            numbers.iter().for_each(|number| assert!(set.add(number.as_bytes(), limits)));
        }
    });
}
