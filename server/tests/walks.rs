//! KEYS, SCAN and RANDOMKEY on more keys than one slice looks at, on one worker and on three.

mod support;

use std::collections::BTreeSet;

use support::conn::Conn;
use support::reply::Reply;
use support::server::{Kind, Server};

/// Several slices on each of three shards.
const N_KEYS: usize = 40_000;
const KEYS_PER_MSET: usize = 500;

#[test]
fn one_worker() {
    walk(1);
}

#[test]
fn three_workers() {
    walk(3);
}

fn walk(threads: usize) {
    let server = Server::start(Kind::Skerry { threads }, &[]);
    let mut conn = server.connect();
    let names: BTreeSet<String> = (0..N_KEYS).map(|n| format!("key:{n}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    for some in all.chunks(KEYS_PER_MSET) {
        let mut argv = vec!["MSET"];
        some.iter().for_each(|name| argv.extend([*name, "v"]));
        assert_eq!(conn.call(&argv), Reply::Simple(b"OK".to_vec()));
    }
    assert_eq!(texts(&conn.call(&["KEYS", "*"])), names);
    let ending_in_77: BTreeSet<String> = names.iter().filter(|name| name.ends_with("77")).cloned().collect();
    assert_eq!(texts(&conn.call(&["KEYS", "key:*77"])), ending_in_77);
    for count in ["10", "1000", "9223372036854775807"] {
        assert_eq!(scan(&mut conn, &["COUNT", count]), names, "COUNT {count}");
    }
    assert_eq!(scan(&mut conn, &["COUNT", "1000", "MATCH", "key:*77"]), ending_in_77);
    assert!(scan(&mut conn, &["COUNT", "1000", "TYPE", "list"]).is_empty());
    draw(&mut conn, &names);
}

/// A thousand draws of so many keys are hardly ever less than nine hundred different ones.
fn draw(conn: &mut Conn, names: &BTreeSet<String>) {
    let mut drawn = BTreeSet::new();
    for _ in 0..1000 {
        let reply = conn.call(&["RANDOMKEY"]);
        let name = String::from_utf8_lossy(reply.text().expect("a key")).into_owned();
        assert!(names.contains(&name), "{name}");
        drawn.insert(name);
    }
    assert!(drawn.len() > 900, "{} different keys", drawn.len());
}

fn scan(conn: &mut Conn, options: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut argv = vec!["SCAN", &cursor];
        argv.extend(options);
        let reply = conn.call(&argv);
        let parts = reply.items().expect("cursor and keys");
        found.extend(texts(&parts[1]));
        cursor = String::from_utf8_lossy(parts[0].text().expect("a cursor")).into_owned();
        assert!(cursor.parse::<u64>().expect("a number") < 1 << 53, "{cursor}");
        if cursor == "0" {
            return found;
        }
    }
}

fn texts(reply: &Reply) -> BTreeSet<String> {
    let items = reply.items().expect("an array");
    items.iter().map(|item| String::from_utf8_lossy(item.text().expect("a string")).into_owned()).collect()
}
