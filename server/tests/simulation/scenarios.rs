//! Single schedules, step by step: what the reading of the dispatcher has found, and what random programs do not send.

use skerry_resp::Value;

use crate::cluster::Cluster;
use crate::faults::Shim;

fn text(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// The `n`th key of the alphabet's strings that `node` owns.
fn key_on(cluster: &Cluster, node: usize, n: usize) -> String {
    let owned = |key: &String| usize::from(cluster.server.shard_of(key.as_bytes()).0) == node;
    (0..).map(|i| format!("key{i}")).filter(owned).nth(n).expect("the names never end")
}

/// Sends requests and lets everything come to rest.
fn send(cluster: &mut Cluster, remote: usize, requests: &[&[&str]]) {
    push(cluster, remote, requests);
    cluster.settle();
}

/// Sends requests and delivers nothing.
fn push(cluster: &mut Cluster, remote: usize, requests: &[&[&str]]) {
    for request in requests {
        cluster.remotes[remote].push(request);
    }
    cluster.send_bytes(remote, usize::MAX / 2);
}

fn replies(cluster: &Cluster, remote: usize) -> Vec<Value> {
    cluster.remotes[remote].replies.iter().map(|(_, value)| value.clone()).collect()
}

/// Publishes and delivers from one node to another.
fn carry(cluster: &mut Cluster, from: usize, to: usize) {
    cluster.publish(from, to);
    cluster.deliver(from, to);
}

/// A watched key that changes between the two rounds of the EXEC's lend: the first round's answer is not the last word.
#[test]
fn a_watch_lasts_until_its_exec_has_run() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (watched, other, local) = (key_on(&cluster, 2, 0), key_on(&cluster, 1, 0), key_on(&cluster, 0, 0));
    let alice = cluster.connect(0, 100);
    let bob = cluster.connect(1, 100);
    let carol = cluster.connect(2, 100);
    send(&mut cluster, alice, &[&["WATCH", &watched]]);
    // Bob's lend holds `other` while Alice's EXEC makes its first round.
    push(&mut cluster, bob, &[&["MSET", &other, "b", &local, "b"]]);
    push(&mut cluster, alice, &[&["MULTI"], &["SET", &other, "a"], &["EXEC"]]);
    cluster.publish(0, 1);
    cluster.publish(0, 2);
    cluster.deliver(0, 1);
    cluster.deliver(0, 2);
    carry(&mut cluster, 1, 0);
    carry(&mut cluster, 2, 0);
    carry(&mut cluster, 0, 2);
    // `watched` is home again, untouched so far: Carol changes it before the second round, which asks node 1 first, comes to it.
    push(&mut cluster, carol, &[&["SET", &watched, "c"]]);
    assert_eq!(replies(&cluster, carol), [ok()]);
    cluster.settle();
    assert_eq!(replies(&cluster, alice).last(), Some(&Value::NullArray));
    cluster.check_rest();
}

/// A key that dies while a reader on another core has its entry in place is freed only when the reader is done.
#[test]
fn an_entry_that_is_read_elsewhere_does_not_expire() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (apart, there) = (key_on(&cluster, 2, 0), key_on(&cluster, 1, 0));
    let reader = cluster.connect(0, 100);
    let other = cluster.connect(1, 100);
    send(&mut cluster, reader, &[&["SET", &apart, "h"], &["SET", &there, "t", "PX", "50"]]);
    push(&mut cluster, reader, &[&["MGET", &apart, &there]]);
    carry(&mut cluster, 0, 1);
    // Granted: the alias is out. Time passes, and the owner meets the dead key twice.
    cluster.now_ms += 1000;
    cluster.background(1);
    push(&mut cluster, other, &[&["GET", &there]]);
    cluster.settle();
    assert_eq!(replies(&cluster, reader)[2], Value::Array(vec![text("h"), text("t")]));
    // Home again, it dies at once.
    send(&mut cluster, other, &[&["GET", &there]]);
    assert_eq!(replies(&cluster, other).last(), Some(&Value::NullBulk));
    cluster.check_rest();
}

/// The same for the active cycle: a held entry goes back into the wheel and is found again.
#[test]
fn the_active_cycle_passes_over_a_held_entry() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (apart, there) = (key_on(&cluster, 2, 0), key_on(&cluster, 1, 0));
    let reader = cluster.connect(0, 100);
    send(&mut cluster, reader, &[&["SET", &apart, "h"], &["SET", &there, "t", "PX", "50"]]);
    cluster.background(1);
    push(&mut cluster, reader, &[&["MGET", &apart, &there]]);
    carry(&mut cluster, 0, 1);
    cluster.now_ms += 1000;
    cluster.background(1);
    assert_eq!(cluster.nodes[1].shard.keyspaces()[0].len(), 1, "held");
    cluster.settle();
    cluster.now_ms += 1000;
    cluster.background(1);
    assert_eq!(cluster.nodes[1].shard.keyspaces()[0].len(), 0, "dead");
}

/// Two commands to one shard, then the second one's command elsewhere: the first is still another command.
#[test]
fn a_write_waits_for_all_other_commands_elsewhere() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (one, two) = (key_on(&cluster, 1, 0), key_on(&cluster, 2, 0));
    let writer = cluster.connect(0, 100);
    let reader = cluster.connect(2, 100);
    push(&mut cluster, writer, &[&["SET", &one, "1"], &["APPEND", &one, "2"], &["APPEND", &two, "3"]]);
    carry(&mut cluster, 0, 2);
    push(&mut cluster, reader, &[&["GET", &two]]);
    assert_eq!(replies(&cluster, reader), [Value::NullBulk], "APPEND overtook SET");
    cluster.settle();
    assert_eq!(replies(&cluster, writer), [ok(), Value::Integer(2), Value::Integer(1)]);
}

/// CLIENT REPLY over shards: what is muted is the request's own reply, wherever it comes from.
#[test]
fn muted_replies_stay_away_and_the_others_come() {
    let mut cluster = Cluster::new(2, 1, Shim::Honest);
    let (here, there) = (key_on(&cluster, 0, 0), key_on(&cluster, 1, 0));
    let client = cluster.connect(0, 100);
    let requests: [&[&str]; 9] = [
        &["SET", &there, "1"],
        &["CLIENT", "REPLY", "SKIP"],
        &["GET", &there],
        &["GET", &here],
        &["MSET", &here, "2", &there, "3"],
        &["CLIENT", "REPLY", "OFF"],
        &["MGET", &here, &there],
        &["CLIENT", "REPLY", "ON"],
        &["MGET", &there, &here],
    ];
    send(&mut cluster, client, &requests);
    let both = Value::Array(vec![text("3"), text("2")]);
    assert_eq!(replies(&cluster, client), [ok(), Value::NullBulk, ok(), ok(), both]);
}

/// A client that wants no replies and quits is closed when its last request is done, although nothing is written.
#[test]
fn a_muted_client_is_closed_at_its_end() {
    let mut cluster = Cluster::new(2, 1, Shim::Honest);
    let there = key_on(&cluster, 1, 0);
    let client = cluster.connect(0, 100);
    send(&mut cluster, client, &[&["CLIENT", "REPLY", "OFF"], &["SET", &there, "1"], &["QUIT"]]);
    assert!(cluster.remotes[client].is_gone, "the connection stays open for ever");
}

/// Watches of a client that goes away while its WATCH still waits behind a held key end, too.
#[test]
fn a_watch_that_waits_ends_with_its_client() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (apart, there) = (key_on(&cluster, 2, 0), key_on(&cluster, 1, 0));
    let writer = cluster.connect(0, 100);
    let watcher = cluster.connect(0, 100);
    push(&mut cluster, writer, &[&["MSET", &apart, "1", &there, "2"]]);
    carry(&mut cluster, 0, 1);
    push(&mut cluster, watcher, &[&["WATCH", &there]]);
    carry(&mut cluster, 0, 1);
    cluster.disconnect(watcher);
    carry(&mut cluster, 0, 1);
    cluster.settle();
    cluster.check_rest();
    cluster.check_farewell();
}

/// A worker whose own shard is away still runs the lends that it coordinates.
#[test]
fn a_lend_runs_where_the_own_shard_is_away() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (one, two) = (key_on(&cluster, 1, 0), key_on(&cluster, 2, 0));
    let client = cluster.connect(0, 100);
    let flusher = cluster.connect(1, 100);
    push(&mut cluster, client, &[&["MSET", &one, "1", &two, "2"]]);
    carry(&mut cluster, 0, 1);
    carry(&mut cluster, 0, 2);
    cluster.publish(1, 0);
    cluster.publish(2, 0);
    push(&mut cluster, flusher, &[&["FLUSHALL"]]);
    cluster.settle();
    assert_eq!(replies(&cluster, client), [ok()]);
    assert_eq!(replies(&cluster, flusher), [ok()]);
    // The same with the flush in front: node 0's shard is at node 1 when the grants come in.
    push(&mut cluster, client, &[&["MSET", &one, "1", &two, "2"]]);
    push(&mut cluster, flusher, &[&["FLUSHALL"]]);
    carry(&mut cluster, 1, 0);
    cluster.settle();
    assert_eq!(replies(&cluster, client), [ok(), ok()]);
    cluster.check_rest();
}

// ---- blocked clients ----

fn integer(n: i64) -> Value {
    Value::Integer(n)
}

fn pair(key: &str, element: &str) -> Value {
    Value::Array(vec![text(key), text(element)])
}

/// The owner has not heard of the end when the key is filled: the claim tells it.
#[test]
fn the_dead_eat_nothing() {
    let mut cluster = Cluster::new(2, 1, Shim::Honest);
    let there = key_on(&cluster, 1, 0);
    let waiter = cluster.connect(0, 100);
    let pusher = cluster.connect(1, 100);
    send(&mut cluster, waiter, &[&["BLPOP", &there, "0"]]);
    cluster.disconnect(waiter);
    push(&mut cluster, pusher, &[&["RPUSH", &there, "x"], &["LLEN", &there]]);
    assert_eq!(replies(&cluster, pusher), [integer(1), integer(1)]);
    cluster.settle();
    cluster.check_rest();
}

/// The same for a request that is still on its way to the owner of its key.
#[test]
fn a_request_of_a_dead_client_does_not_wait() {
    let mut cluster = Cluster::new(2, 1, Shim::Honest);
    let there = key_on(&cluster, 1, 0);
    let waiter = cluster.connect(0, 100);
    let pusher = cluster.connect(1, 100);
    push(&mut cluster, pusher, &[&["RPUSH", &there, "x"]]);
    push(&mut cluster, waiter, &[&["BLPOP", &there, "0"]]);
    cluster.disconnect(waiter);
    cluster.settle();
    send(&mut cluster, pusher, &[&["LLEN", &there]]);
    assert_eq!(replies(&cluster, pusher), [integer(1), integer(1)]);
    cluster.check_rest();
}

/// The first in line has keys of two owners and is called; it goes away while its lend is under way. The element is the next one's.
#[test]
fn a_called_client_that_dies_leaves_its_place_to_the_next() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (one, two) = (key_on(&cluster, 1, 0), key_on(&cluster, 2, 0));
    let first = cluster.connect(0, 100);
    let second = cluster.connect(0, 100);
    let pusher = cluster.connect(1, 100);
    send(&mut cluster, first, &[&["BLPOP", &one, &two, "0"]]);
    send(&mut cluster, second, &[&["BLPOP", &one, "0"]]);
    push(&mut cluster, pusher, &[&["RPUSH", &one, "x"]]);
    // The call arrives, and the asks of the lend are out.
    carry(&mut cluster, 1, 0);
    cluster.disconnect(first);
    cluster.settle();
    assert_eq!(replies(&cluster, second), [pair(&one, "x")]);
    send(&mut cluster, pusher, &[&["EXISTS", &one]]);
    assert_eq!(replies(&cluster, pusher), [integer(1), integer(0)]);
    cluster.check_rest();
}

/// While a client is called to its key nobody else takes what is there.
#[test]
fn a_key_is_held_for_the_client_that_is_called_to_it() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let (one, two) = (key_on(&cluster, 1, 0), key_on(&cluster, 2, 0));
    let waiter = cluster.connect(0, 100);
    let thief = cluster.connect(1, 100);
    send(&mut cluster, waiter, &[&["BLMOVE", &one, &two, "LEFT", "LEFT", "0"]]);
    push(&mut cluster, thief, &[&["RPUSH", &one, "x"], &["LPOP", &one]]);
    assert_eq!(replies(&cluster, thief), [integer(1)]);
    cluster.settle();
    assert_eq!(replies(&cluster, waiter), [text("x")]);
    assert_eq!(replies(&cluster, thief), [integer(1), Value::NullBulk]);
    cluster.check_rest();
}

/// A wait ends at its owner while the owner's shard is away as a whole, and a transaction there fills the key.
#[test]
fn a_wait_may_end_while_its_shard_is_away() {
    let mut cluster = Cluster::new(3, 1, Shim::Honest);
    let there = key_on(&cluster, 1, 0);
    let waiter = cluster.connect(0, 100);
    let teller = cluster.connect(2, 100);
    send(&mut cluster, waiter, &[&["BLPOP", &there, "0"]]);
    send(&mut cluster, teller, &[&["MULTI"], &["RPUSH", &there, "x"], &["DBSIZE"]]);
    push(&mut cluster, teller, &[&["EXEC"]]);
    carry(&mut cluster, 2, 0);
    carry(&mut cluster, 2, 1);
    cluster.publish(1, 2);
    cluster.disconnect(waiter);
    carry(&mut cluster, 0, 1);
    cluster.settle();
    let reader = cluster.connect(1, 100);
    send(&mut cluster, reader, &[&["LLEN", &there]]);
    assert_eq!(replies(&cluster, reader), [integer(1)]);
    cluster.check_rest();
}

/// Not a millisecond early.
#[test]
fn a_wait_lasts_as_long_as_it_is_meant_to() {
    let mut cluster = Cluster::new(2, 1, Shim::Honest);
    let (here, there) = (key_on(&cluster, 0, 0), key_on(&cluster, 1, 0));
    let keys: [&[&str]; 3] = [&[&here], &[&there], &[&here, &there]];
    for keys in keys {
        let waiter = cluster.connect(0, 100);
        let request = [&["BLPOP"][..], keys, &["0.05"]].concat();
        send(&mut cluster, waiter, &[&request]);
        cluster.now_ms += 50;
        cluster.background(0);
        assert!(replies(&cluster, waiter).is_empty(), "{keys:?}");
        cluster.now_ms += 1;
        cluster.background(0);
        assert_eq!(replies(&cluster, waiter), [Value::NullArray], "{keys:?}");
        cluster.background(1);
    }
    cluster.settle();
    cluster.check_rest();
}

/// Requests that wait at a peer keep no room toward it: others would stand still.
#[test]
fn many_blocked_clients_leave_room_for_others() {
    let mut cluster = Cluster::new(2, 1, Shim::Honest);
    let there = key_on(&cluster, 1, 0);
    for _ in 0..skerry_server::dispatch::CREDIT + 10 {
        let waiter = cluster.connect(0, 100);
        push(&mut cluster, waiter, &[&["BLPOP", &there, "0"]]);
        carry(&mut cluster, 0, 1);
        carry(&mut cluster, 1, 0);
    }
    let other = cluster.connect(0, 100);
    send(&mut cluster, other, &[&["RPUSH", &there, "x"], &["GET", &there]]);
    assert_eq!(replies(&cluster, other), [integer(1), Value::NullBulk]);
    assert_eq!(replies(&cluster, 0), [pair(&there, "x")]);
}
