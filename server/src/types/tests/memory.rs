//! Bytes per value, beside what MEMORY USAGE with SAMPLES 0 of Redis 8.2.3 said of the same values (there with the
//! key's own entry, some 24 bytes).
//!
//! A packed value has a handle of 9 bytes and 8 in the buffer, where Redis has 16 and 7, and a quicklist room
//! for a node to come; else nothing may be bigger than allocator classes explain, and the tables must be smaller by
//! a tenth.

use super::super::{Hash, Limits, List, Set};
use super::limits;
use crate::keyspace::Object;

/// `list-max-listpack-size` -2.
const NODE_BYTES: usize = 8192;

struct Case {
    name: &'static str,
    encoding: &'static str,
    redis_bytes: usize,
    build: fn(&Limits) -> (usize, &'static str, usize),
}

fn list(limits: &Limits, n: usize, value: impl Fn(usize) -> String) -> (usize, &'static str, usize) {
    let mut list = List::new();
    (0..n).for_each(|i| list.push_back(value(i).as_bytes(), limits));
    (n, list.encoding(), size_of_val(&list) + list.memory_bytes())
}

fn set(limits: &Limits, n: usize, member: impl Fn(usize) -> String) -> (usize, &'static str, usize) {
    let mut set = Set::for_members(member(0).as_bytes(), 1, limits);
    (0..n).for_each(|i| assert!(set.add(member(i).as_bytes(), limits)));
    (n, set.encoding(), size_of_val(&set) + set.memory_bytes())
}

fn hash(
    limits: &Limits,
    n: usize,
    field: impl Fn(usize) -> String,
    value: impl Fn(usize) -> String,
) -> (usize, &'static str, usize) {
    let mut hash = Hash::new();
    (0..n).for_each(|i| _ = hash.set(field(i).as_bytes(), value(i).as_bytes(), limits));
    (n, hash.encoding(), size_of_val(&hash) + hash.memory_bytes())
}

const fn case(
    name: &'static str,
    encoding: &'static str,
    redis_bytes: usize,
    build: fn(&Limits) -> (usize, &'static str, usize),
) -> Case {
    Case { name, encoding, redis_bytes, build }
}

#[rustfmt::skip]
const CASES: [Case; 18] = [
    case("list 1 x 10", "listpack", 48, |l| list(l, 1, |i| format!("element:{i:02}"))),
    case("list 100 x 10", "listpack", 1304, |l| list(l, 100, |i| format!("element:{:02}", i % 100))),
    case("list 20000 x 10", "quicklist", 241_904, |l| list(l, 20_000, |i| format!("element:{:02}", i % 100))),
    case("list 20000 x 256", "quicklist", 5_311_279, |l| list(l, 20_000, |_| "x".repeat(256))),
    case("list 2000 x 3000", "quicklist", 6_184_064, |l| list(l, 2000, |_| "x".repeat(3000))),
    case("list 20000 integers", "quicklist", 95_775, |l| list(l, 20_000, |i| (i * 7).to_string())),
    case("set 5 small integers", "intset", 48, |l| set(l, 5, |i| i.to_string())),
    case("set 512 32-bit integers", "intset", 2584, |l| set(l, 512, |i| (i * 100_000).to_string())),
    case("set 100 x 10", "listpack", 1304, |l| set(l, 100, |i| format!("member:{i:03}"))),
    case("set 1000 x 16", "hashtable", 56_272, |l| set(l, 1000, |i| format!("member:{i:09}"))),
    case("set 100000 x 16", "hashtable", 6_372_944, |l| set(l, 100_000, |i| format!("member:{i:09}"))),
    case("set 100000 integers", "hashtable", 4_772_944, |l| set(l, 100_000, |i| i.to_string())),
    case("hash 5 x 8 + 10", "listpack", 152, |l| hash(l, 5, |i| format!("field:{i:02}"), |i| format!("value:{i:04}"))),
    case("hash 100 x 8 + 10", "listpack", 2584,
        |l| hash(l, 100, |i| format!("field:{i:02}"), |i| format!("value:{i:04}"))),
    case("hash 1000 x 16 + 32", "hashtable", 96_272, |l| hash(l, 1000, |i| format!("field:{i:010}"), |_| "v".repeat(32))),
    case("hash 100000 x 16 + 32", "hashtable", 10_372_944,
        |l| hash(l, 100_000, |i| format!("field:{i:010}"), |_| "v".repeat(32))),
    case("hash 20000 x 16 + 256", "hashtable", 7_753_296,
        |l| hash(l, 20_000, |i| format!("field:{i:010}"), |_| "v".repeat(256))),
    case("hash 20000 x 16 + 5", "hashtable", 1_513_296,
        |l| hash(l, 20_000, |i| format!("field:{i:010}"), |i| (10_000 + i).to_string())),
];

#[test]
fn no_encoding_is_bigger_than_redis_s() {
    let limits = limits();
    println!("{:26} {:10} {:>10} {:>10} {:>8} {:>8}", "", "", "bytes", "Redis", "each", "Redis");
    let mut bigger = Vec::new();
    for Case { name, encoding, redis_bytes, build } in CASES {
        let (n, got_encoding, bytes) = build(&limits);
        assert_eq!(got_encoding, encoding, "{name}");
        let (each, redis_each) = (bytes as f64 / n as f64, redis_bytes as f64 / n as f64);
        println!("{name:26} {encoding:10} {bytes:10} {redis_bytes:10} {each:8.1} {redis_each:8.1}");
        let bound = match encoding {
            "hashtable" => redis_bytes / 10 * 9,
            "quicklist" => redis_bytes * 65 / 64 + NODE_BYTES,
            _ => redis_bytes,
        };
        if bytes > bound {
            bigger.push(name);
        }
    }
    assert!(bigger.is_empty(), "{bigger:?}");
}

/// A pointer, what is there and how it is encoded.
#[test]
fn values_are_a_pointer_and_tags() {
    assert_eq!((size_of::<List>(), size_of::<Set>(), size_of::<Hash>()), (9, 9, 9));
    assert_eq!(size_of::<Object>(), 10);
}
