//! Long commands on vector sets: no turn of a worker is as long as they are, and nobody sees half of what they do.
//!
//! Turns are measured in thread CPU, so that others on the machine do not count; the bounds are those of a build that is not
//! optimised for release, far below what the commands take as a whole.

mod support;

use support::conn::Conn;
use support::reply::Reply;
use support::rng::Rng;
use support::server::{Kind, Server};
use support::vectors::{fp32, texts, words};

const SEED: u64 = 0x7075_726e_7331;
const DIM: usize = 32;
const MAX_TURN_US: u64 = 15_000;

fn start(threads: usize) -> (Server, Conn, Rng) {
    println!("seed {SEED:#x}");
    let trace = ["--turn-trace", "yes"].map(String::from);
    let server = Server::start(Kind::Skerry { threads }, &trace);
    let conn = server.connect();
    (server, conn, Rng::new(SEED))
}

fn random_row(rng: &mut Rng) -> Vec<f32> {
    (0..DIM).map(|_| rng.below(2001) as f32 / 1000.0 - 1.0).collect()
}

/// VMADD of the rows, named e0, e1 ...
fn vmadd(key: &str, rows: &[Vec<f32>], options: &[&str]) -> Vec<Vec<u8>> {
    let mut argv: Vec<Vec<u8>> = vec![b"VMADD".to_vec(), key.into()];
    for (i, row) in rows.iter().enumerate() {
        argv.extend([b"FP32".to_vec(), fp32(row), format!("e{i}").into_bytes()]);
    }
    argv.extend(options.iter().map(|option| option.as_bytes().to_vec()));
    argv
}

fn names(n: usize) -> Vec<Vec<u8>> {
    (0..n).map(|i| format!("e{i}").into_bytes()).collect()
}

/// Runs `step` and bounds the longest turn meanwhile, of any worker.
fn within_turns<R>(conn: &mut Conn, what: &str, step: impl FnOnce(&mut Conn) -> R) -> R {
    words(conn, "DEBUG TURNS RESET");
    let result = step(conn);
    for line in texts(&words(conn, "DEBUG TURNS")) {
        println!("{what}: {line}");
        let max_us = line.split("max=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a time");
        assert!(max_us.parse::<u64>().expect("microseconds") < MAX_TURN_US, "{what}: {line}");
    }
    result
}

#[test]
fn long_commands_are_cut_into_turns() {
    const N: usize = 2_500;
    for threads in [1, 2] {
        let (_server, mut conn, mut rng) = start(threads);
        let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
        let added = vmadd("v", &rows, &["NOQUANT"]);
        let reply = within_turns(&mut conn, "VMADD", |conn| conn.call(&added));
        assert_eq!(reply, Reply::Int(N as i64));
        let again = vmadd("v", &rows[..N / 2], &["NOQUANT"]);
        assert_eq!(within_turns(&mut conn, "VMADD again", |conn| conn.call(&again)), Reply::Int(0));
        let dump = within_turns(&mut conn, "DUMP", |conn| words(conn, "DUMP v"));
        let payload = dump.text().expect("a payload").to_vec();
        let argv: [&[u8]; 5] = [b"RESTORE", b"w", b"0", &payload, b"REPLACE"];
        for _ in 0..2 {
            let restored = within_turns(&mut conn, "RESTORE", |conn| conn.call(&argv));
            assert_eq!(restored, Reply::Simple(b"OK".to_vec()));
        }
        for query in rows.iter().step_by(97) {
            let found = ["v", "w"].map(|key| {
                conn.call(&[
                    b"VSIM".to_vec(),
                    key.into(),
                    b"FP32".to_vec(),
                    fp32(query),
                    b"WITHSCORES".to_vec(),
                ])
            });
            assert_eq!(found[0], found[1], "what is restored answers as what was dumped");
        }
        let mut argv: Vec<Vec<u8>> = vec![b"VMREM".to_vec(), b"v".to_vec()];
        argv.extend(names(N - 5));
        argv.extend(names(3));
        let removed = within_turns(&mut conn, "VMREM", |conn| conn.call(&argv));
        assert_eq!((removed, words(&mut conn, "VCARD v")), (Reply::Int(N as i64 - 5), Reply::Int(5)));
        argv[1] = b"w".to_vec();
        argv.extend(names(N));
        let removed = within_turns(&mut conn, "VMREM of all", |conn| conn.call(&argv));
        assert_eq!((removed, words(&mut conn, "EXISTS w")), (Reply::Int(N as i64), Reply::Int(0)));
    }
}

#[test]
fn many_short_removals_are_cut_too() {
    const N: usize = 1_500;
    let (_server, mut conn, mut rng) = start(1);
    let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
    conn.call(&vmadd("v", &rows, &[]));
    within_turns(&mut conn, "VREM in a pipeline", |conn| {
        for name in names(N - 1) {
            conn.send(&[b"VREM".to_vec(), b"v".to_vec(), name]).expect("sent");
        }
        for _ in 1..N {
            assert_eq!(conn.read().expect("a reply"), Reply::Int(1));
        }
    });
    assert_eq!(words(&mut conn, "VCARD v"), Reply::Int(1));
}

/// While VMREM and VMADD of a new set run, others wait for the key, a transaction too, and nobody waits for anything else.
#[test]
fn others_see_all_of_it_or_nothing() {
    const N: usize = 2_000;
    for threads in [1, 2] {
        let (server, mut conn, mut rng) = start(threads);
        let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
        let added = vmadd("v", &rows, &[]);
        let mut removed: Vec<Vec<u8>> = vec![b"VMREM".to_vec(), b"v".to_vec()];
        removed.extend(names(N - 1));
        // Two others: each on another worker, if there are two.
        let mut others = [server.connect(), server.connect()];
        words(&mut conn, "SET other x");
        for round in 0..3 {
            for (argv, before, after) in [(&added, i64::from(round > 0), N as i64), (&removed, N as i64, 1)] {
                conn.send(argv).expect("sent");
                let mut seen = Vec::new();
                for ask in 0..4 {
                    for other in &mut others {
                        assert_eq!(words(other, "GET other"), Reply::Bulk(b"x".to_vec()));
                        let card = if ask == 2 {
                            words(other, "MULTI");
                            words(other, "VCARD v");
                            words(other, "EXEC").items().expect("a transaction").remove(0)
                        } else {
                            words(other, "VCARD v")
                        };
                        seen.push(card.int().expect("a number"));
                    }
                }
                assert!(conn.read().expect("a reply").int().is_some());
                assert!(
                    seen.iter().all(|card| [before, after].contains(card))
                        && seen.is_sorted_by_key(|card| *card == after),
                    "{threads} workers, round {round}: {seen:?}"
                );
            }
        }
        words(&mut conn, "FLUSHALL");
        assert_eq!(words(&mut conn, "DBSIZE"), Reply::Int(0));
    }
}

/// SORT waits for its keys and for those that it may look up, as every other command does: also where one worker has them all.
#[test]
fn a_sort_waits_for_the_keys_that_are_held() {
    const N: usize = 1_500;
    for threads in [1, 2] {
        let (server, mut conn, mut rng) = start(threads);
        let mut other = server.connect();
        let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
        for sort in ["SORT nothing STORE v", "SORT nothing BY w* GET k* STORE v"] {
            conn.call(&vmadd("v", &rows[..1], &[]));
            conn.send(&vmadd("v", &rows, &[])).expect("sent");
            // A turn each: the addition is read meanwhile, and far from done.
            (0..20).for_each(|_| drop(words(&mut other, "PING")));
            assert_eq!(words(&mut other, sort), Reply::Int(0));
            let n_new = conn.read().expect("a reply");
            let is_there = words(&mut conn, "EXISTS v");
            // Whichever came first, all of it did: after the addition nothing is left, before it all are new.
            let orders = [(Reply::Int(N as i64 - 1), Reply::Int(0)), (Reply::Int(N as i64), Reply::Int(1))];
            assert!(orders.contains(&(n_new, is_there)), "{sort}, {threads} workers");
            words(&mut conn, "DEL v");
        }
    }
}

/// A client goes away, and FLUSHALL, SWAPDB and deadlines come, while long commands run: the server and the key are fine after.
#[test]
fn nothing_is_left_of_what_was_given_up() {
    const N: usize = 1_000;
    for threads in [1, 2] {
        let (mut server, mut conn, mut rng) = start(threads);
        let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
        let added = vmadd("v", &rows, &[]);
        for ending in ["FLUSHALL", "DEL v", "SWAPDB 0 1", "RENAME v w", "PEXPIRE v 1", "COPY v w DB 3"] {
            let mut gone = server.connect();
            gone.send(&added).expect("sent");
            drop(gone);
            let mut other = server.connect();
            assert!(!words(&mut conn, "VCARD v").is_error(), "{ending}");
            other.send(&added).expect("sent");
            words(&mut conn, ending);
            assert!(!other.read().expect("a reply").is_error(), "{ending}");
            words(&mut conn, "DUMP v");
            words(&mut conn, "FLUSHALL");
            assert_eq!(words(&mut conn, "DBSIZE"), Reply::Int(0), "{ending}");
        }
        assert!(server.is_alive());
    }
}

/// A set that no worker has published is searched at its owner: in slices, too.
#[test]
fn a_search_at_the_owner_is_cut() {
    const N: usize = 3_000;
    let (server, mut conn, mut rng) = start(2);
    let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
    conn.call(&vmadd("v", &rows, &[]));
    let mut others = [server.connect(), server.connect()];
    for other in &mut others {
        // PERSIST withdraws nothing, EXPIRE does.
        within_turns(&mut conn, "VSIM", |conn| {
            words(conn, "EXPIRE v 1000");
            for _ in 0..40 {
                for argv in
                    ["EXPIRE v 1000", "VSIM v ELE e7 TRUTH COUNT 10", "VSIM v ELE e8 COUNT 3000 EF 3000"]
                {
                    other.send(&argv.split(' ').collect::<Vec<_>>()).expect("sent");
                }
            }
            for _ in 0..40 {
                assert_eq!(other.read().expect("a reply"), Reply::Int(1));
                for n in [10, N] {
                    assert_eq!(texts(&other.read().expect("a reply")).len(), n);
                }
            }
        });
    }
}

/// Expressions of any length, on sets of any attributes: what they cost is charged.
#[test]
fn a_long_filter_takes_no_long_turn() {
    const N: usize = 1_500;
    let (_server, mut conn, mut rng) = start(1);
    let rows: Vec<Vec<f32>> = (0..N).map(|_| random_row(&mut rng)).collect();
    conn.call(&vmadd("v", &rows, &[]));
    for i in 0..N {
        words(&mut conn, &format!("VSETATTR v e{i} {{\"n\":{i},\"all\":1}}"));
    }
    // 4,000 terms are 56 kB; one evaluation is 0.1 ms, one for each element 150 ms.
    let many = format!("{}.n < 100", ".all == 1 and ".repeat(4_000));
    let few = format!("{}.n == 7", ".all == 1 and ".repeat(4_000));
    for (filter, n) in [(&many, 10), (&few, 1)] {
        for options in [
            "COUNT 10",
            "COUNT 10",
            "COUNT 10 TRUTH",
            "COUNT 200 EF 50 EPSILON 0.3",
            "COUNT 10 FILTER-EF 100",
        ] {
            let mut argv: Vec<Vec<u8>> =
                ["VSIM", "v", "ELE", "e9"].map(|word| word.as_bytes().to_vec()).to_vec();
            argv.extend(options.split(' ').map(|word| word.as_bytes().to_vec()));
            argv.extend([b"FILTER".to_vec(), filter.as_bytes().to_vec()]);
            let found = within_turns(&mut conn, options, |conn| conn.call(&argv));
            let found = texts(&found).len();
            assert!(found == n || options.len() > 14, "{options}: {found} of {n}");
        }
        // Changes that a remembered list has to be asked about.
        for i in 0..300 {
            words(&mut conn, &format!("VSETATTR v e{i} {{\"n\":{i},\"all\":1}}"));
        }
    }
    let too_long = ".all == 1 and ".repeat(20_000);
    let refused = conn.call(&["VSIM", "v", "ELE", "e9", "FILTER", &too_long]);
    assert_eq!(refused, Reply::Error(b"ERR FILTER expression is longer than 256 KiB".to_vec()));
}
