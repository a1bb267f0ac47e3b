//! Planted faults: shims between the channels and the nodes that make the nodes misbehave without a branch in them.
//!
//! ```text
//!   LostHold      the owner grants and gives its hold up at once: it keeps the entries, the coordinator gets copies
//!   EarlyRelease  the same, when the grant has reached the coordinator: home before the run
//!   LostWake      what comes home from a lend does not say what has changed
//!   OwnClaim      the owner of a blocked request's keys decides for itself who ends its wait
//!   WrongOrder    two requests that stand one behind the other in a channel change places
//! ```
//!
//! What the lend then returns is put home all the same (as after a hold that was never lost), so that isolation alone is broken.
//! Only exclusive lends of strings are touched: copies of those are easily made, and nobody reads another one's entry in place.

use std::collections::{HashMap, VecDeque};

use skerry_server::client::ClientId;
use skerry_server::dispatch::Node;
use skerry_server::keyspace::{Entry, NewValue, View};
use skerry_server::message::{Batch, HoldMode, LendId, Message, Reader, Round};
use skerry_server::shard::{DbIndex, ShardId};

/// What stands between a channel and a node.
pub enum Shim {
    Honest,
    LostHold(Lost),
    EarlyRelease(Lost),
    LostWake,
    OwnClaim,
    WrongOrder,
}

/// A lend at one of its owners: owner, coordinator, number.
type Name = (ShardId, usize, LendId);

/// What a shim knows of the lends whose holds it gave up.
#[derive(Default)]
pub struct Lost {
    asked: HashMap<Name, (ClientId, Vec<Vec<u8>>)>,
    released: Vec<Name>,
}

impl Shim {
    /// Hands a batch to a node. `back` is the channel to the sender.
    pub fn deliver(&mut self, node: &mut Node, from: usize, batch: &mut Batch, back: &mut VecDeque<Batch>) {
        match self {
            Self::Honest => node.receive(ShardId(from as u8), batch),
            Self::WrongOrder => {
                let mut all = split(batch);
                if let Some(at) = all.windows(2).position(|pair| pair.iter().all(is_request)) {
                    all.swap(at, at + 1);
                }
                for mut one in all {
                    node.receive(ShardId(from as u8), &mut one);
                }
            }
            Self::LostWake if !batch.shards.is_empty() => node.receive(ShardId(from as u8), batch),
            Self::LostWake => {
                for mut one in split(batch) {
                    forget_changes(&mut one);
                    node.receive(ShardId(from as u8), &mut one);
                }
            }
            Self::OwnClaim => {
                batch.claims.iter_mut().for_each(|claim| *claim = Default::default());
                node.receive(ShardId(from as u8), batch);
            }
            Self::LostHold(lost) => {
                for mut one in split(batch) {
                    lost.note(node.id, from, &one);
                    lost.before_return(node, from, &one);
                    node.receive(ShardId(from as u8), &mut one);
                    lost.after_grant(node, from);
                }
            }
            Self::EarlyRelease(lost) => {
                for mut one in split(batch) {
                    lost.note(node.id, from, &one);
                    lost.before_return(node, from, &one);
                    if let Some(release) = lost.instead_of(node.id, from, &mut one) {
                        back.push_back(release);
                    }
                    node.receive(ShardId(from as u8), &mut one);
                }
            }
        }
    }
}

impl Lost {
    /// Remembers the keys of an ask.
    fn note(&mut self, owner: ShardId, from: usize, one: &Batch) {
        if let Some(Message::Ask { lend, client, mode: HoldMode::Exclusive, keys, .. }) =
            Reader::new(&one.bytes).next_message()
        {
            self.asked.insert((owner, from, lend), (client, keys.map(<[u8]>::to_vec).collect()));
        }
    }

    /// The owner has just granted: it gets its entries back at once, and copies go out.
    fn after_grant(&mut self, node: &mut Node, from: usize) {
        let mut grants = Vec::new();
        let mut reader = Reader::new(&node.outboxes[from].bytes);
        let mut n_before = 0;
        while let Some(message) = reader.next_message() {
            match message {
                Message::Grant { lend, loans, .. } => {
                    let loans: Vec<_> = loans.collect();
                    let at = n_before;
                    n_before += loans.len();
                    grants.push((lend, loans, at));
                }
                Message::Return { loans, .. } => n_before += loans.count(),
                _ => {}
            }
        }
        for (lend, loans, at) in grants {
            let name = (node.id, from, lend);
            if !self.asked.contains_key(&name) || self.released.contains(&name) {
                continue;
            }
            self.released.push(name);
            let mut entries = Vec::new();
            for entry in &mut node.outboxes[from].entries[at..at + loans.len()] {
                let copy = copy_of(entry);
                entries.push(std::mem::replace(entry, copy));
            }
            node.receive(ShardId(from as u8), &mut release_of(lend, &loans, entries));
        }
    }

    /// A grant reaches its coordinator: copies instead, and the release that goes back to the owner.
    fn instead_of(&mut self, coordinator: ShardId, owner: usize, one: &mut Batch) -> Option<Batch> {
        let Some(Message::Grant { lend, loans, .. }) = Reader::new(&one.bytes).next_message() else {
            return None;
        };
        let name = (ShardId(owner as u8), usize::from(coordinator.0), lend);
        if !self.asked.contains_key(&name) || self.released.contains(&name) {
            return None;
        }
        self.released.push(name);
        let loans: Vec<_> = loans.collect();
        let copies = one.entries.iter().map(copy_of).collect();
        let entries = std::mem::replace(&mut one.entries, copies);
        Some(release_of(lend, &loans, entries))
    }

    /// The true return of a lend whose hold was given up: the owner lends once more, to nobody, and can take it home.
    fn before_return(&mut self, node: &mut Node, from: usize, one: &Batch) {
        let Some(Message::Return { lend, .. }) = Reader::new(&one.bytes).next_message() else { return };
        let name = (node.id, from, lend);
        if is_release(one) || !self.released.contains(&name) {
            return;
        }
        self.released.retain(|other| *other != name);
        let (client, keys) = self.asked.remove(&name).expect("what was released was asked for");
        let outbox = std::mem::take(&mut node.outboxes[from]);
        let mut ask = Batch::default();
        let names = keys.iter().map(|key| &key[..]);
        ask.push_ask(lend, client, HoldMode::Exclusive, Round::Try, false, names);
        node.receive(ShardId(from as u8), &mut ask);
        let answer = std::mem::replace(&mut node.outboxes[from], outbox);
        let is_granted = matches!(Reader::new(&answer.bytes).next_message(), Some(Message::Grant { .. }));
        if !is_granted {
            // Ends this run only, without the words of a panic.
            std::panic::resume_unwind(Box::new(CANNOT_IMITATE));
        }
    }
}

/// The words of a run in which a fault cannot be played: others hold the keys when the return comes.
pub const CANNOT_IMITATE: &str = "the fault cannot be imitated here";

/// A release that a shim made: it changes nothing, and marks itself by a change of a database that no program selects.
fn release_of(lend: LendId, loans: &[(u32, DbIndex)], entries: Vec<Entry>) -> Batch {
    let mut batch = Batch { entries, ..Batch::default() };
    batch.push_return(lend, HoldMode::Exclusive, loans, [(MARK, &b""[..])].into_iter());
    batch
}

const MARK: DbIndex = DbIndex(15);

fn is_release(one: &Batch) -> bool {
    match Reader::new(&one.bytes).next_message() {
        Some(Message::Return { mut changed, .. }) => changed.any(|(db, _)| db == MARK),
        _ => false,
    }
}

fn copy_of(entry: &Entry) -> Entry {
    let entry = entry.as_ref();
    let value = match entry.view() {
        View::Int(number) => NewValue::Int(number),
        View::Str(bytes) => NewValue::Str(bytes),
        View::Shared(bytes) => NewValue::Shared(bytes.clone()),
        View::List(_)
        | View::Set(_)
        | View::Hash(_)
        | View::Zset(_)
        | View::Stream(_)
        | View::Vector(_)
        | View::Lent => {
            panic!("only strings are lent here")
        }
    };
    Entry::new(entry.key(), value, entry.expire_at())
}

/// Takes the names of what has changed out of a return.
fn forget_changes(one: &mut Batch) {
    let Some(Message::Return { lend, mode, loans, .. }) = Reader::new(&one.bytes).next_message() else {
        return;
    };
    let loans: Vec<_> = loans.collect();
    let mut forgetful = Batch::default();
    forgetful.push_return(lend, mode, &loans, std::iter::empty());
    one.bytes = forgetful.bytes;
}

/// One batch for each message.
fn split(batch: &mut Batch) -> Vec<Batch> {
    let mut entries = std::mem::take(&mut batch.entries).into_iter();
    let mut plans = std::mem::take(&mut batch.plans).into_iter();
    let mut claims = std::mem::take(&mut batch.claims).into_iter();
    let mut reader = Reader::new(&batch.bytes);
    let mut all = Vec::new();
    let mut start = 0;
    while let Some(message) = reader.next_message() {
        let n_entries = match message {
            Message::Grant { loans, .. } | Message::Return { loans, .. } => loans.count(),
            _ => 0,
        };
        let mut one = Batch::default();
        one.bytes.extend_from_slice(&batch.bytes[start..reader.at]);
        one.n_messages = 1;
        one.entries.extend(entries.by_ref().take(n_entries));
        if let Message::Request { head, .. } = message {
            one.plans.extend(plans.by_ref().take(usize::from(head.has_plans)));
            one.claims.extend(claims.by_ref().take(usize::from(head.may_wait)));
        }
        all.push(one);
        start = reader.at;
    }
    assert!(batch.shards.is_empty(), "no whole shard is lent here");
    all
}

fn is_request(one: &Batch) -> bool {
    matches!(Reader::new(&one.bytes).next_message(), Some(Message::Request { .. }))
}
