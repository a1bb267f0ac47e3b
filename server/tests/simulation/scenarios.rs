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
