//! Memory comes back when what it held is gone: used memory to where it was, resident memory close to it, on one worker and on
//! several, whoever allocated and whoever freed.

mod support;

use std::thread;
use std::time::{Duration, Instant};

use support::conn::Conn;
use support::rng::Rng;
use support::server::{Kind, Server};

const MIB: u64 = 1 << 20;
const KINDS: [Kind; 2] = [Kind::Skerry { threads: 1 }, Kind::Skerry { threads: 2 }];
const PATIENCE: Duration = Duration::from_secs(20);

fn info(conn: &mut Conn, field: &str) -> u64 {
    let reply = conn.call(&["INFO", "memory"]);
    let text = String::from_utf8_lossy(reply.text().expect("a text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {field} in INFO"))
}

/// Waits until a figure of INFO has come down to `most`.
fn settles(conn: &mut Conn, field: &str, most: u64, what: &str) {
    let end = Instant::now() + PATIENCE;
    while info(conn, field) > most {
        assert!(Instant::now() < end, "{what}: {field} stays at {}, not {most}", info(conn, field));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Long values that come and go, over keys of both workers, leave no pages behind that the next ones do not use.
#[test]
fn long_values_use_the_same_pages_again() {
    const CLIENTS: u64 = 4;
    const LONG_BYTES: usize = 3_000_000;
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        let value = vec![b'v'; LONG_BYTES];
        thread::scope(|scope| {
            for seed in 0..CLIENTS {
                let (server, value) = (&server, &value);
                scope.spawn(move || {
                    let (mut conn, mut rng) = (server.connect(), Rng::new(seed));
                    for _ in 0..60 {
                        let key = format!("long:{}", rng.below(20));
                        assert!(!conn.call(&[b"SET", key.as_bytes(), value.as_slice()]).is_error());
                        assert!(
                            conn.call(&["GET", &key]).text().is_some_and(|text| text.len() == LONG_BYTES)
                        );
                    }
                });
            }
        });
        conn.call(&["FLUSHALL"]);
        for n in 0..200 {
            let key = format!("long:{}", n % 3);
            assert!(!conn.call(&[b"SET", key.as_bytes(), value.as_slice()]).is_error());
        }
        // 20 values and what is on its way to four clients were the most that was in use.
        let resident = info(&mut conn, "used_memory_rss");
        assert!(resident < 250 * MIB, "{kind:?}: {} MiB are resident", resident / MIB);
    }
}

/// Buffers that carried much between clients and workers are freed when nothing is carried.
#[test]
fn an_emptied_server_uses_what_a_fresh_one_does() {
    const CLIENTS: u64 = 4;
    const PIPELINE: usize = 20;
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        let fresh = info(&mut conn, "used_memory");
        for value_bytes in [1000, 100_000] {
            thread::scope(|scope| {
                for seed in 0..CLIENTS {
                    let server = &server;
                    scope.spawn(move || {
                        let (mut conn, mut rng) = (server.connect(), Rng::new(seed));
                        let value = vec![b'v'; value_bytes];
                        for _ in 0..20 {
                            for n in 0..PIPELINE {
                                let key = format!("key:{}", rng.below(1000));
                                let sent = match n % 3 {
                                    0 => conn.send(&[b"RPUSH", key.as_bytes(), value.as_slice()]),
                                    1 => conn.send(&["MGET", &key, "key:1", "key:2"]),
                                    _ => conn.send(&[b"SET", key.as_bytes(), value.as_slice()]),
                                };
                                sent.expect("sent");
                            }
                            (0..PIPELINE).for_each(|_| drop(conn.read().expect("a reply")));
                        }
                    });
                }
            });
        }
        conn.call(&["FLUSHALL"]);
        settles(&mut conn, "used_memory", fresh + MIB, &format!("{kind:?}"));
    }
}

/// Pages of a hundred megabytes of keys go back in the seconds after FLUSHALL, also those that were freed first.
#[test]
fn pages_of_flushed_keys_go_back() {
    const KEYS: usize = 300_000;
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conn = server.connect();
        let fresh = info(&mut conn, "used_memory_rss");
        let value = "v".repeat(300);
        for keys in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
            for key in keys {
                conn.send(&["SET", &format!("key:{key}"), &value]).expect("sent");
            }
            keys.iter().for_each(|_| drop(conn.read().expect("a reply")));
        }
        assert!(info(&mut conn, "used_memory_rss") > fresh + 90 * MIB);
        conn.call(&["FLUSHALL"]);
        settles(&mut conn, "used_memory_rss", fresh + 9 * MIB, &format!("{kind:?}"));
    }
}

/// Scripts that fill Lua, keep what they can (the scripts themselves), and fail: all of it goes with SCRIPT FLUSH and FUNCTION FLUSH.
#[test]
fn what_scripts_took_goes_back() {
    const SCRIPTS: &[&str] = &[
        "local t = {} for i = 1, 300000 do t[i] = {i} end return #t",
        "local s = 'x' for i = 1, 24 do s = s .. s end return #s",
        "return #string.rep('x', 100 * 1024 * 1024)",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} for i = 1, 20000 do t[i] = coroutine.create(function() end) end return #t",
        "collectgarbage('stop') local t for i = 1, 300000 do t = {i, string.rep('x', 50)} end return 1",
        "local t = {} for i = 1, 200000 do t[i] = 'some text' .. i end return #cjson.encode(t)",
        "for i = 1, 2000 do redis.call('RPUSH', KEYS[1], string.rep('y', 1000)) end return 1",
    ];
    let literal = format!("return #'{}'", "x".repeat(1_000_000));
    let library = format!(
        "local kept = '{}' redis.register_function('kept', function() return #kept end)",
        "z".repeat(1_000_000)
    );
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conns: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
        let fresh = (info(&mut conns[0], "used_memory"), info(&mut conns[0], "used_memory_rss"));
        for (at, conn) in conns.iter_mut().enumerate() {
            for script in SCRIPTS {
                conn.call(&["EVAL", script, "1", &format!("key:{at}")]);
            }
            for n in 0..20 {
                conn.call(&["EVAL", &format!("{literal} + {n}"), "0"]);
                let library =
                    format!("#!lua name=l{n}\n{}", library.replace("'kept'", &format!("'kept{n}'")));
                conn.call(&["FUNCTION", "LOAD", &library]);
                assert!(!conn.call(&["FCALL", &format!("kept{n}"), "0"]).is_error());
            }
        }
        let conn = &mut conns[0];
        let held = info(conn, "used_memory") - fresh.0;
        assert!(held > 40 * MIB, "{kind:?}: {} MiB", held / MIB);
        for command in [vec!["FLUSHALL"], vec!["SCRIPT", "FLUSH"], vec!["FUNCTION", "FLUSH"]] {
            assert!(!conn.call(&command).is_error());
        }
        settles(conn, "used_memory", fresh.0 + MIB, &format!("{kind:?}"));
        settles(conn, "used_memory_rss", fresh.1 + 16 * MIB, &format!("{kind:?}"));
        assert_eq!(info(conn, "used_memory_vm_total"), 0);
    }
}
