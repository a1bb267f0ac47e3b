//! Payloads as Redis writes them, values through a payload and back, and bytes that mean nothing.

use std::borrow::Cow;

use proptest::collection::{hash_set, vec};
use proptest::prelude::*;

use super::*;
use crate::keyspace::hash::HashSeed;
use crate::types::{Hash, List, Set, Zset};

fn small_limits() -> Limits {
    Limits {
        list_max_listpack_size: -1,
        set_max_intset_entries: 12,
        set_max_listpack_entries: 8,
        hash_max_listpack_entries: 8,
        zset_max_listpack_entries: 8,
        ..Limits::new(HashSeed::from_u64(7))
    }
}

fn restored(payload: &[u8]) -> Result<Value<'_>, CommandError> {
    let (config, limits) = (Config::default(), small_limits());
    restore(payload, MadeWith { config: &config, limits: &limits, seed: 1 })
}

fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&VERSION.to_le_bytes());
    let mut sum = crc64::sum();
    sum.update(&body);
    let sum = sum.finalize();
    body.extend_from_slice(&sum.to_le_bytes());
    body
}

fn dump_of(text: &[u8]) -> Vec<u8> {
    dump(View::Str(text), Compression::Lzf).expect("strings are dumped")
}

/// Written by Redis 8.2.3.
#[test]
fn strings_as_redis_dumps_them() {
    assert_eq!(dump_of(b"hello"), b"\x00\x05hello\x0c\x00\xa8\x04\xeb\xb6\x9f\x1e\xbeC");
    assert_eq!(dump_of(b"10"), b"\x00\xc0\n\x0c\x00\xa5\xe9c\x85\xf4\x84\xfd\xf2");
}

#[test]
fn what_is_dumped_is_restored() {
    let texts: [&[u8]; 8] = [b"", b"-1", b"127", b"-32769", b"2147483648", b"007", &[0; 100], &[7; 70_000]];
    for text in texts {
        let payload = dump_of(text);
        let Ok(Value::String(back)) = restored(&payload) else { panic!("{text:?} is not restored") };
        assert_eq!(back, Cow::Borrowed(text));
    }
}

#[test]
fn a_changed_byte_is_noticed() {
    let payload = dump_of(b"hello world");
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 1;
        assert_eq!(restored(&changed).err(), Some(WRONG_FOOTER), "byte {at}");
        assert_eq!(restored(&payload[..at]).err(), Some(WRONG_FOOTER), "length {at}");
    }
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any::<i64>().prop_flat_map(|n| (0..64_u32).prop_map(move |s| (n >> s).to_string().into_bytes())),
        4 => vec(any::<u8>(), 0..12),
        2 => (any::<u8>(), 0..200_usize).prop_map(|(byte, n)| vec![byte; n]),
        1 => vec(any::<u8>(), 60..70),
        1 => (0..3_usize).prop_map(|n| vec![b'x'; 4093 + n]),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    let odd = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324, 4.611686018427388e18];
    prop_oneof![(-9..9_i32).prop_map(f64::from), any::<f64>(), proptest::sample::select(odd.to_vec())]
        .prop_filter("no score is NaN", |score| !score.is_nan())
}

/// Through a payload and back: same value, same encoding, sound.
#[track_caller]
fn check_object<T: PartialEq + std::fmt::Debug>(
    view: View<'_>,
    value: &T,
    of: impl Fn(Object) -> Option<T>,
) -> T {
    for compression in [Compression::None, Compression::Lzf] {
        let payload = dump(view, compression).expect("it is dumped");
        let Ok(Value::Object(object)) = restored(&payload) else { panic!("{value:?} is not restored") };
        assert_eq!(of(object).as_ref(), Some(value));
    }
    let payload = dump(view, Compression::Lzf).expect("it is dumped");
    let Ok(Value::Object(object)) = restored(&payload) else { unreachable!("it was restored just now") };
    of(object).expect("it is of that type")
}

proptest! {
    #[test]
    fn lists(elements in vec(element(), 1..40)) {
        let limits = small_limits();
        let mut list = List::new();
        elements.iter().for_each(|element| list.push_back(element, &limits));
        let back = check_object(View::List(&list), &list, |object| match object {
            Object::List(list) => Some(list),
            _ => None,
        });
        back.check();
        // One node that is filled to its limit is a listpack when it is read, as in Redis.
        prop_assert!(back.encoding() == list.encoding() || back.encoding() == "listpack");
    }

    #[test]
    fn sets(members in hash_set(element(), 1..40), integers in hash_set(any::<i64>(), 1..20)) {
        let limits = small_limits();
        let integers = integers.iter().map(|n| n.to_string().into_bytes()).collect();
        for members in [members, integers] {
            let mut set = Set::new_intset();
            members.iter().for_each(|member| assert!(set.add(member, &limits)));
            let back = check_object(View::Set(&set), &set, |object| match object {
                Object::Set(set) => Some(set),
                _ => None,
            });
            back.check();
            prop_assert_eq!(back.encoding(), set.encoding());
        }
    }

    #[test]
    fn hashes(fields in hash_set(element(), 1..30), value in element()) {
        let limits = small_limits();
        let mut hash = Hash::new();
        fields.iter().for_each(|field| _ = hash.set(field, &value, &limits));
        let back = check_object(View::Hash(&hash), &hash, |object| match object {
            Object::Hash(hash) => Some(hash),
            _ => None,
        });
        back.check();
    }

    #[test]
    fn hashes_with_deadlines(
        fields in hash_set(element(), 1..30),
        value in element(),
        deadlines in vec(prop_oneof![Just(None), (1..1_i64 << 46).prop_map(Some)], 30),
    ) {
        let limits = small_limits();
        let mut hash = Hash::new();
        hash.track_deadlines(limits.seed);
        for (field, deadline_ms) in fields.iter().zip(deadlines) {
            hash.set(field, &value, &limits);
            hash.set_deadline(field, deadline_ms);
        }
        let back = check_object(View::Hash(&hash), &hash, |object| match object {
            Object::Hash(hash) => Some(hash),
            _ => None,
        });
        back.check();
        prop_assert_eq!(back.encoding(), hash.encoding());
    }

    #[test]
    fn sorted_sets(members in hash_set(element(), 1..30), scores in vec(score(), 30)) {
        let limits = small_limits();
        let mut zset = Zset::default();
        members.iter().zip(&scores).for_each(|(member, score)| _ = zset.set(member, *score, &limits));
        let back = check_object(View::Zset(&zset), &zset, |object| match object {
            Object::Zset(zset) => Some(zset),
            _ => None,
        });
        back.check();
    }

    /// Any bytes after any type: an answer, and no more than that.
    #[test]
    fn nonsense_does_no_harm(kind in 0..30_u8, bytes in vec(any::<u8>(), 0..60)) {
        let _ = restored(&sealed([&[kind], &bytes[..]].concat()));
    }

    /// The same in a string, where listpacks and their forerunners stand.
    #[test]
    fn nonsense_in_a_string_does_no_harm(
        kind in 9..21_u8,
        entries in vec(prop_oneof![any::<u8>(), 0..8_u8, Just(0xff)], 0..40),
        count in 0..8_u16,
    ) {
        let n_bytes = entries.len() as u32;
        let listpack = [&(n_bytes + 7).to_le_bytes()[..], &count.to_le_bytes(), &entries, &[0xff]].concat();
        let last_at = (10 + entries.len().saturating_sub(3)) as u32;
        let ziplist =
            [&(n_bytes + 11).to_le_bytes()[..], &last_at.to_le_bytes(), &count.to_le_bytes(), &entries, &[0xff]];
        let zipmap = [&[count as u8][..], &entries, &[0xff]].concat();
        for string in [listpack, ziplist.concat(), zipmap] {
            let mut writer = Writer::new(Compression::None);
            writer.byte(kind);
            writer.plain_string(&string);
            let _ = restored(&sealed(writer.into_bytes()));
        }
    }
}
