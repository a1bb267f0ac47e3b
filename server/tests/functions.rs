//! Libraries of functions beyond single replies: payloads from and to a real Redis, a function that runs too long, and libraries on
//! every worker.

mod support;

use support::conn::Conn;
use support::reply::Reply;
use support::server::{Kind, Server};

const KINDS: [Kind; 3] =
    [Kind::Skerry { threads: 1 }, Kind::Skerry { threads: 2 }, Kind::Skerry { threads: 3 }];
const OK: &[u8] = b"OK";

fn load(conn: &mut Conn, text: &str) {
    let reply = conn.call(&["FUNCTION", "LOAD", "REPLACE", text]);
    assert!(!reply.is_error(), "{reply:?}");
}

fn dump(conn: &mut Conn) -> Vec<u8> {
    conn.call(&["FUNCTION", "DUMP"]).text().expect("a payload").to_vec()
}

/// What is known of all libraries, whatever their order and that of their functions.
fn listing(conn: &mut Conn) -> Vec<String> {
    let Reply::Array(libraries) = conn.call(&["FUNCTION", "LIST", "WITHCODE"]) else { panic!("no list") };
    let mut lines: Vec<String> = Vec::new();
    for library in libraries {
        let Reply::Array(fields) = library else { panic!("no library") };
        let Reply::Array(functions) = &fields[5] else { panic!("no functions") };
        lines.push(format!("{:?} {:?} {:?}", fields[1], fields[3], fields[7]));
        lines.extend(functions.iter().map(|function| format!("{:?} {function:?}", fields[1])));
    }
    lines.sort_unstable();
    lines
}

#[test]
fn payloads_travel_to_redis_and_back() {
    let (ours, theirs) = (Server::start(KINDS[1], &[]), Server::start(Kind::Redis, &[]));
    let (mut our, mut their) = (ours.connect(), theirs.connect());
    // A text that compresses well, one that does not, and more than one in a payload.
    let long: String = (0..300)
        .map(|n| format!("redis.register_function('long{n}', function(keys, args) return {n} + #keys end)\n"))
        .collect();
    let libraries = [
        format!("#!lua name=long\n{long}"),
        "#!lua name=a\nredis.register_function{function_name='a', callback=function() return 'x' end, description='what\\r\\nit is', flags={'no-writes', 'allow-stale'}}".into(),
        "#!lua name=_1\nredis.register_function('One', function(keys) return redis.call('INCR', keys[1]) end)".into(),
    ];
    for library in &libraries {
        load(&mut our, library);
        assert_eq!(listing(&mut our).len(), {
            load(&mut their, library);
            listing(&mut their).len()
        });
    }
    assert_eq!(listing(&mut our), listing(&mut their));
    let (from_us, from_them) = (dump(&mut our), dump(&mut their));
    for (conn, payload) in [(&mut our, &from_them), (&mut their, &from_us)] {
        let before = listing(conn);
        assert_eq!(conn.call(&["FUNCTION", "FLUSH"]), Reply::Simple(OK.to_vec()));
        assert!(listing(conn).is_empty());
        assert_eq!(
            conn.call(&[b"FUNCTION".as_slice(), b"RESTORE", payload.as_slice()]),
            Reply::Simple(OK.to_vec())
        );
        assert_eq!(listing(conn), before);
        assert_eq!(conn.call(&["FCALL", "LONG299", "1", "k"]), Reply::Int(300));
        assert_eq!(conn.call(&["FCALL", "one", "1", "k"]), Reply::Int(1));
    }
    for at in 0..from_us.len() {
        let mut damaged = from_us.clone();
        damaged[at] ^= 1;
        let reply = our.call(&[b"FUNCTION".as_slice(), b"RESTORE", damaged.as_slice(), b"REPLACE"]);
        assert!(reply.is_error(), "byte {at}");
    }
}

/// Every connection is answered while a function runs, whichever worker it is given to.
#[test]
fn a_function_that_runs_too_long_is_told_and_ended() {
    const N_VISITORS: usize = 12;
    for kind in KINDS {
        let server = Server::start(kind, &["--busy-reply-threshold", "50"].map(String::from));
        let mut waiting: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
        load(
            &mut waiting[0],
            "#!lua name=l\nredis.register_function('loop', function() while true do end end)",
        );
        for (command, kill, wrong) in [
            (vec!["FCALL", "Loop", "1", "key"], ["FUNCTION", "KILL"], ["SCRIPT", "KILL"]),
            (vec!["EVAL", "while true do end", "0"], ["SCRIPT", "KILL"], ["FUNCTION", "KILL"]),
        ] {
            let mut caller = server.connect();
            caller.send(&command).expect("sent");
            while !is_busy(&mut waiting[1]) {}
            for conn in &mut waiting {
                assert!(is_busy(conn), "{kind:?} {command:?}");
            }
            for _ in 0..N_VISITORS {
                let mut conn = server.connect();
                assert!(is_busy(&mut conn), "{kind:?} {command:?}");
                let refused = conn.call(&wrong);
                assert!(refused.is_error(), "{refused:?}");
                let stats = conn.call(&["FUNCTION", "STATS"]);
                assert_eq!(stats.is_error(), command[0] == "EVAL", "{stats:?}");
                if let Reply::Array(fields) = stats {
                    let Reply::Array(running) = &fields[1] else { panic!("{fields:?}") };
                    assert_eq!(running[1], Reply::Bulk(b"loop".to_vec()));
                    let words: Vec<Reply> =
                        command.iter().map(|word| Reply::Bulk(word.as_bytes().to_vec())).collect();
                    assert_eq!(running[3], Reply::Array(words));
                }
            }
            assert_eq!(waiting[2].call(&kill), Reply::Simple(OK.to_vec()));
            let Ok(Reply::Error(text)) = caller.read() else { panic!("no error") };
            assert!(String::from_utf8_lossy(&text).contains("Script killed by user"), "{kind:?}");
            for conn in &mut waiting {
                assert_eq!(conn.call(&["PING"]), Reply::Simple(b"PONG".to_vec()), "{kind:?}");
            }
        }
    }
}

fn is_busy(conn: &mut Conn) -> bool {
    matches!(conn.call(&["PING"]), Reply::Error(text) if text.starts_with(b"BUSY"))
}

/// A library is the same one on every worker at once, whatever it was there before: keys of all shards, undeclared ones too.
#[test]
fn a_replaced_library_is_replaced_everywhere() {
    for kind in KINDS {
        let server = Server::start(kind, &[]);
        let mut conns: Vec<Conn> = (0..6).map(|_| server.connect()).collect();
        for round in 0..20 {
            let n = conns.len();
            // Declared keys in one round, keys that are not declared in the next.
            let key = if round % 2 == 0 { "keys[1]" } else { "'other:' .. args[1]" };
            let text = format!(
                "#!lua name=l\nredis.register_function('f', function(keys, args) redis.call('INCR', {key}) return {round} end)"
            );
            load(&mut conns[round % n], &text);
            for (at, conn) in conns.iter_mut().enumerate() {
                let key = format!("key:{at}");
                assert_eq!(conn.call(&["FCALL", "f", "1", &key, &key]), Reply::Int(round as i64), "{kind:?}");
            }
        }
        for at in 0..conns.len() {
            let counts = conns[0].call(&["MGET", &format!("key:{at}"), &format!("other:key:{at}")]);
            let ten = Reply::Bulk(b"10".to_vec());
            assert_eq!(counts, Reply::Array(vec![ten.clone(), ten]), "{kind:?}");
        }
    }
}
