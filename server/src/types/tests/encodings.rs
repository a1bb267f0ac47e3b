//! Programs that Redis ran: same lengths, same encodings.

use super::super::algebra::{difference, stored, stored_intersection, union};
use super::super::list::{End, List, Side};
use super::super::{Hash, Limits, Set};
use super::{bits_from, limits};

const LIST: &str = include_str!("../recorded/list.txt");
const SET: &str = include_str!("../recorded/set.txt");
const HASH: &str = include_str!("../recorded/hash.txt");

/// "ab*5" is "ababa".
fn value(token: &str) -> Vec<u8> {
    match token.split_once('*') {
        Some((text, n)) => text.bytes().cycle().take(n.parse().unwrap()).collect(),
        None => token.into(),
    }
}

fn slices(values: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> + Clone {
    values.iter().map(Vec::as_slice)
}

/// Runs each line through `run`, which answers "length encoding", and counts the encodings seen.
fn replay(recorded: &str, encodings: &[&str], mut run: impl FnMut(&str, &[&str]) -> String) {
    let mut n_seen = vec![0; encodings.len()];
    for (number, line) in recorded.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let (command, answer) = line.split_once(" -> ").unwrap_or((line, ""));
        let (name, args) = command.split_once(' ').unwrap_or((command, ""));
        let args: Vec<&str> = args.split(' ').filter(|arg| !arg.is_empty()).collect();
        assert_eq!(run(name, &args), answer, "line {}: {line}", number + 1);
        for (seen, encoding) in n_seen.iter_mut().zip(encodings) {
            *seen += usize::from(answer.ends_with(encoding));
        }
    }
    println!("{encodings:?}: {n_seen:?}");
    assert!(n_seen.iter().all(|&n| n >= 100), "the record says too little of {encodings:?}: {n_seen:?}");
}

fn answer(len: usize, encoding: &str) -> String {
    if len == 0 { "0 none".to_owned() } else { format!("{len} {encoding}") }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

#[test]
fn lists_change_encoding_where_redis_does() {
    let mut limits = limits();
    let mut list = List::new();
    replay(LIST, &["listpack", "quicklist"], |name, args| {
        if list.is_empty() || name == "config" {
            list = List::new();
        }
        run_list(&mut list, &mut limits, name, args);
        list.check();
        if name == "config" { String::new() } else { answer(list.len(), list.encoding()) }
    });
}

fn run_list(list: &mut List, limits: &mut Limits, name: &str, args: &[&str]) {
    let values: Vec<Vec<u8>> = args.iter().map(|arg| value(arg)).collect();
    let n_pops = args.first().map_or(1, |arg| arg.parse().unwrap_or(0));
    match name {
        "config" => limits.list_max_listpack_size = args[0].parse().unwrap(),
        "rpush" => list.push(End::Back, slices(&values), limits),
        "lpush" => list.push(End::Front, slices(&values), limits),
        "lpop" => (0..n_pops).for_each(|_| _ = list.pop_front(limits)),
        "rpop" => (0..n_pops).for_each(|_| _ = list.pop_back(limits)),
        "lset" => _ = list.set(args[0].parse().unwrap(), &values[1], limits),
        "linsert" => {
            let side = if args[0] == "before" { Side::Before } else { Side::After };
            assert!(list.insert(side, &values[1], &values[2], limits));
        }
        "lrem" => {
            let count = number(args[0]);
            let max = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
            list.remove(if count < 0 { End::Back } else { End::Front }, max, &values[1], limits);
        }
        "ltrim" => list.trim(number(args[0]) as usize..number(args[1]) as usize + 1, limits),
        _ => panic!("unknown command {name}"),
    }
}

#[test]
fn sets_change_encoding_where_redis_does() {
    let mut limits = limits();
    let mut set = Set::new_intset();
    let mut random = bits_from(1);
    replay(SET, &["intset", "listpack", "hashtable"], |name, args| {
        let values: Vec<Vec<u8>> = args.iter().map(|arg| value(arg)).collect();
        match name {
            "config" => {
                limits.set_max_intset_entries = args[0].parse().unwrap();
                limits.set_max_listpack_entries = args[1].parse().unwrap();
                limits.set_max_listpack_value = args[2].parse().unwrap();
                set = Set::new_intset();
                return String::new();
            }
            "sadd" => {
                if set.is_empty() {
                    set = Set::for_members(&values[0], values.len(), &limits);
                } else {
                    set.announce(values.len(), &limits);
                }
                slices(&values).for_each(|member| _ = set.add(member, &limits));
            }
            "srem" => assert!(set.remove(&values[0])),
            "spop" => {
                let n = args[0].parse().unwrap();
                assert_eq!(set.take_random(n, &mut random, &limits).len(), n);
            }
            _ => panic!("unknown command {name}"),
        }
        set.check();
        answer(set.len(), set.encoding())
    });
}

#[test]
fn hashes_change_encoding_where_redis_does() {
    let mut limits = limits();
    let mut hash = Hash::new();
    replay(HASH, &["listpack", "hashtable"], |name, args| {
        let values: Vec<Vec<u8>> = args.iter().map(|arg| value(arg)).collect();
        match name {
            "config" => {
                limits.hash_max_listpack_entries = args[0].parse().unwrap();
                limits.hash_max_listpack_value = args[1].parse().unwrap();
                hash = Hash::new();
                return String::new();
            }
            "hset" => {
                if hash.is_empty() {
                    hash = Hash::new();
                }
                hash.announce(slices(&values), &limits);
                values.chunks_exact(2).for_each(|pair| _ = hash.set(&pair[0], &pair[1], &limits));
            }
            "hdel" => assert!(hash.remove(&values[0])),
            _ => panic!("unknown command {name}"),
        }
        hash.check();
        answer(hash.len(), hash.encoding())
    });
}

/// The default thresholds, one below and one above, as OBJECT ENCODING of Redis 8.2.3 told them.
#[test]
fn default_thresholds_are_redis_s() {
    let limits = limits();
    let mut random = bits_from(2);
    for (n_bytes, n_listpack) in [(1, 2729), (10, 682), (64, 122), (128, 62), (256, 31), (300, 26)] {
        for end in [End::Front, End::Back] {
            let mut list = List::new();
            let value = vec![b'x'; n_bytes];
            while list.encoding() == "listpack" {
                list.push(end, std::iter::once(&value[..]), &limits);
            }
            assert_eq!(list.len(), n_listpack + 1, "{n_bytes} bytes, {end:?}");
        }
    }
    let ints = |n: i64| {
        let mut set = Set::for_members(b"0", 1, &limits);
        (0..n).for_each(|i| _ = set.add(i.to_string().as_bytes(), &limits));
        set
    };
    assert_eq!((ints(512).encoding(), ints(513).encoding()), ("intset", "hashtable"));
    let mut mixed = ints(127);
    assert!(mixed.add(b"a", &limits) && mixed.encoding() == "listpack");
    assert!(mixed.add(b"b", &limits) && mixed.encoding() == "hashtable");
    let mut mixed = ints(128);
    assert!(mixed.add(b"a", &limits) && mixed.encoding() == "hashtable");
    for (n_popped, encoding) in [(499, "hashtable"), (500, "listpack"), (501, "listpack")] {
        let mut set = Set::for_members(b"a", 600, &limits);
        (0..600).for_each(|i| _ = set.add(format!("a{i}").as_bytes(), &limits));
        set.take_random(n_popped, &mut random, &limits);
        assert_eq!(set.encoding(), encoding, "{n_popped} popped");
    }
    let mut stored = Set::new_packed();
    (0..400).for_each(|i| _ = stored.add(i.to_string().as_bytes(), &limits));
    stored.become_intset_if_integers(&limits);
    assert_eq!(stored.encoding(), "intset");
    let mut hash = Hash::new();
    (0..512).for_each(|i| _ = hash.set(format!("f{i}").as_bytes(), b"1", &limits));
    assert_eq!(hash.encoding(), "listpack");
    hash.set(b"one more", b"1", &limits);
    assert_eq!(hash.encoding(), "hashtable");
}

/// The encodings of stored results, as Redis 8.2.3 answered for these very sets.
#[test]
fn stored_results_have_redis_s_encodings() {
    let limits = limits();
    let build = |members: &mut dyn Iterator<Item = String>| {
        let mut set = Set::new_intset();
        members.for_each(|member| _ = set.add(member.as_bytes(), &limits));
        set
    };
    let integers = |n: usize| (0..n).map(|i| i.to_string());
    let names = |n: usize| (0..n).map(|i| format!("a{i}"));
    let h = build(&mut integers(600).chain(names(300)));
    let hs = build(&mut names(300));
    let i = build(&mut integers(10));
    let lp = build(&mut ["a", "1", "2", "3"].into_iter().map(str::to_owned));
    let big = build(&mut integers(600));
    let mid = build(&mut integers(400).chain(["x".to_owned()]));
    let encodings = [&h, &hs, &i, &lp, &big, &mid].map(Set::encoding);
    assert_eq!(encodings, ["hashtable", "hashtable", "intset", "listpack", "hashtable", "hashtable"]);

    let sinterstore = |sets: &[&Set]| stored_intersection(sets, &limits);
    let sunionstore = |sets: &[&Set]| stored(union(sets, limits.seed), &limits);
    let sdiffstore = |a, b| stored(difference(a, &[b], limits.seed), &limits);
    let cases = [
        (sinterstore(&[&h, &i]), 10, "intset"),
        (sinterstore(&[&h, &lp]), 3, "intset"),
        (sinterstore(&[&h, &hs]), 300, "hashtable"),
        (sinterstore(&[&h, &h]), 900, "hashtable"),
        (sinterstore(&[&big, &big]), 600, "hashtable"),
        (sinterstore(&[&mid, &big]), 400, "intset"),
        (sunionstore(&[&i, &lp]), 11, "listpack"),
        (sunionstore(&[&lp]), 4, "listpack"),
        (sunionstore(&[&i]), 10, "intset"),
        (sunionstore(&[&h, &i]), 900, "hashtable"),
        (sdiffstore(&h, &hs), 600, "hashtable"),
        (sdiffstore(&lp, &i), 1, "listpack"),
        (sdiffstore(&i, &lp), 7, "intset"),
        (sdiffstore(&h, &i), 890, "hashtable"),
    ];
    for (number, (set, len, encoding)) in cases.into_iter().enumerate() {
        set.check();
        assert_eq!((set.len(), set.encoding()), (len, encoding), "case {number}");
    }
}
