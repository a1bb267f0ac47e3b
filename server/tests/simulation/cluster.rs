//! Several nodes in one thread: no sockets, no clock; first-in-first-out channels of random delay between them.
//!
//! A seeded scheduler picks what happens next: some bytes of a client, one outbox published, one batch delivered, a waiting client
//! run, a slice of background work, the clock. What a client sees is kept with the step at which it was seen.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use skerry_resp::{Decoder, Value, encode_command};
use skerry_server::client::{Client, ClientId, Closing};
use skerry_server::config::Config;
use skerry_server::dispatch::Node;
use skerry_server::keyspace::View;
use skerry_server::message::Batch;
use skerry_server::server::Server;
use skerry_server::shard::ShardId;
use skerry_server::vector::with_reader;
use skerry_server::work::Sizes;
use skerry_vectorset::check::check;

use crate::checker::{FinalState, Operation};
use crate::faults::Shim;
use crate::model::{Action, Content, N_DATABASES, normal};
use crate::program::{Expect, Facts, Program};
use crate::rng::Rng;

/// Virtual time at the start.
pub const START_MS: i64 = 1_700_000_000_000;
/// Steps after which a run is taken for one that does not end.
const MAX_STEPS: usize = 200_000;

/// The far end of a connection.
pub struct Remote {
    pub node: usize,
    pub id: ClientId,
    pub is_gone: bool,
    /// Step at which it went.
    gone_at: Option<usize>,
    input: Vec<u8>,
    /// End of each request in `input`.
    ends: Vec<usize>,
    n_sent_bytes: usize,
    n_sent: usize,
    /// Step at which each request was complete.
    sent_at: Vec<usize>,
    output: Vec<u8>,
    /// Replies with the step at which they came.
    pub replies: Vec<(usize, Value)>,
    /// Unanswered requests it allows itself.
    depth: usize,
}

impl Remote {
    fn may_send(&self) -> bool {
        !self.is_gone && self.n_sent < self.ends.len() && self.n_sent - self.replies.len() < self.depth
    }

    /// Appends a request to what is to be sent.
    pub fn push(&mut self, argv: &[impl AsRef<[u8]>]) {
        encode_command(argv, &mut self.input);
        self.ends.push(self.input.len());
    }
}

/// The nodes and what is between them.
pub struct Cluster {
    pub server: Arc<Server>,
    pub nodes: Vec<Node>,
    /// `links[from][to]`.
    pub links: Vec<Vec<VecDeque<Batch>>>,
    pub remotes: Vec<Remote>,
    pub step: usize,
    pub now_ms: i64,
    shim: Shim,
}

/// Something that may happen next.
#[derive(Clone, Copy, Debug)]
enum Event {
    Send(usize),
    Publish(usize, usize),
    Deliver(usize, usize),
    Resume(usize),
    Background(usize),
    Tick,
}

impl Cluster {
    pub fn new(n_nodes: usize, seed: u64, shim: Shim) -> Self {
        let server = Arc::new(Server::new(Config::default(), None, n_nodes, START_MS, seed));
        let nodes = (0..n_nodes)
            .map(|id| {
                let id = ShardId(id as u8);
                let mut node = Node::new(id, server.clone(), seed.wrapping_add(u64::from(id.0)), START_MS);
                // A plan of a few elements takes several slices.
                node.work.sizes = Sizes { plan: 2, min_planned_len: 1, ..Sizes::default() };
                node
            })
            .collect();
        let links = (0..n_nodes).map(|_| (0..n_nodes).map(|_| VecDeque::new()).collect()).collect();
        Self { server, nodes, links, remotes: Vec::new(), step: 0, now_ms: START_MS, shim }
    }

    /// Connects a client to `node`; its number among `remotes`.
    pub fn connect(&mut self, node: usize, depth: usize) -> usize {
        let number = self.remotes.len() as u64 + 1;
        let now_ms = self.now_ms;
        let id = self.nodes[node].connect(|id| Client::new(id, number, now_ms));
        self.remotes.push(Remote {
            node,
            id,
            is_gone: false,
            gone_at: None,
            input: Vec::new(),
            ends: Vec::new(),
            n_sent_bytes: 0,
            n_sent: 0,
            sent_at: Vec::new(),
            output: Vec::new(),
            replies: Vec::new(),
            depth,
        });
        self.remotes.len() - 1
    }

    pub fn disconnect(&mut self, remote: usize) {
        let (node, id) = (self.remotes[remote].node, self.remotes[remote].id);
        self.remotes[remote].is_gone = true;
        self.remotes[remote].gone_at = Some(self.step);
        self.nodes[node].disconnect(id);
        self.step += 1;
    }

    // ---- the steps ----

    /// Hands `n` bytes of a client's input to its node.
    pub fn send_bytes(&mut self, remote: usize, n: usize) {
        let r = &mut self.remotes[remote];
        let end = (r.n_sent_bytes + n).min(r.input.len());
        let bytes = r.input[r.n_sent_bytes..end].to_vec();
        r.n_sent_bytes = end;
        while r.n_sent < r.ends.len() && r.ends[r.n_sent] <= end {
            r.n_sent += 1;
            r.sent_at.push(self.step);
        }
        let (node, id) = (r.node, r.id);
        self.nodes[node].feed(id, &bytes);
        self.read_out(node);
        self.step += 1;
    }

    pub fn publish(&mut self, from: usize, to: usize) {
        let batch = std::mem::take(&mut self.nodes[from].outboxes[to]);
        if !batch.is_empty() {
            self.links[from][to].push_back(batch);
        }
        self.step += 1;
    }

    pub fn deliver(&mut self, from: usize, to: usize) {
        let Some(mut batch) = self.links[from][to].pop_front() else { return };
        let Self { shim, nodes, links, .. } = self;
        shim.deliver(&mut nodes[to], from, &mut batch, &mut links[to][from]);
        self.nodes[to].wake_credit_waiters();
        self.read_out(to);
        self.step += 1;
    }

    pub fn resume(&mut self, node: usize) {
        if let Some(id) = self.nodes[node].runnable.pop_front() {
            self.nodes[node].resume(id);
        }
        self.nodes[node].wake_credit_waiters();
        self.read_out(node);
        self.step += 1;
    }

    pub fn background(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let n = &mut self.nodes[node];
        n.begin_turn(now_ms);
        n.run_vector_slice();
        n.run_job_slice();
        n.expire_slice(16);
        n.shard.free_slice(16);
        n.wake_credit_waiters();
        self.read_out(node);
        self.step += 1;
    }

    /// Everything that can happen without new input, in a plain order, until nothing is left.
    pub fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            match self.events().into_iter().find(|event| !matches!(event, Event::Tick | Event::Send(_))) {
                Some(event) => self.happen(event, &mut Rng::new(0)),
                None => return,
            }
        }
        panic!("the nodes do not come to rest");
    }

    /// Takes what the nodes have for their clients, as a worker would: from the list of dirty ones.
    fn read_out(&mut self, node: usize) {
        let mut ids = std::mem::take(&mut self.nodes[node].dirty);
        ids.append(&mut self.nodes[node].told);
        for id in ids {
            let Some(client) = self.nodes[node].clients.get_mut(id) else { continue };
            (client.is_dirty, client.is_told) = (false, false);
            let bytes = client.out.split_off(client.out_at);
            client.out.clear();
            client.out_at = 0;
            let is_over = match client.closing {
                Closing::No => false,
                Closing::AfterReplies => client.pending.is_empty(),
                Closing::Now => true,
            };
            let remote =
                self.remotes.iter().position(|r| r.node == node && r.id == id).expect("it was connected");
            let r = &mut self.remotes[remote];
            r.output.extend_from_slice(&bytes);
            while let Some((value, len)) = Decoder::default().decode(&r.output).expect("replies are RESP") {
                r.output.drain(..len);
                r.replies.push((self.step, value));
            }
            if is_over {
                r.is_gone = true;
                self.nodes[node].disconnect(id);
            }
        }
    }

    // ---- the scheduler ----

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let n = self.nodes.len();
        for from in 0..n {
            for to in 0..n {
                if !self.links[from][to].is_empty() {
                    events.push(Event::Deliver(from, to));
                }
                if !self.nodes[from].outboxes[to].is_empty() {
                    events.push(Event::Publish(from, to));
                }
            }
            if !self.nodes[from].runnable.is_empty() {
                events.push(Event::Resume(from));
            }
            if self.nodes[from].has_jobs() || self.nodes[from].work.is_waiting() {
                events.push(Event::Background(from));
            }
        }
        events.extend((0..self.remotes.len()).filter(|at| self.remotes[*at].may_send()).map(Event::Send));
        events
    }

    fn happen(&mut self, event: Event, random: &mut Rng) {
        match event {
            Event::Send(remote) => {
                let r = &self.remotes[remote];
                // Whole requests, several of them, or a cut at any byte.
                let room = r.depth - (r.n_sent - r.replies.len());
                let last = (r.n_sent + random.below(room)).min(r.ends.len() - 1);
                let whole = r.ends[last] - r.n_sent_bytes;
                let n = if random.chance(3) { 1 + random.below(whole) } else { whole };
                self.send_bytes(remote, n);
            }
            Event::Publish(from, to) => self.publish(from, to),
            Event::Deliver(from, to) => self.deliver(from, to),
            Event::Resume(node) => self.resume(node),
            Event::Background(node) => self.background(node),
            Event::Tick => {
                self.now_ms += random.below(5) as i64;
                let node = random.below(self.nodes.len());
                self.background(node);
            }
        }
    }

    /// Runs until all is sent and nothing is left to do. `disconnects`: steps at which a random client goes away.
    pub fn run(&mut self, random: &mut Rng, mut n_disconnects: usize) {
        // Some runs publish and deliver eagerly, some let mail pile up.
        let haste = 1 + random.below(4);
        for _ in 0..MAX_STEPS {
            let mut events = self.events();
            if events.is_empty() {
                // Nothing is left but time.
                match self.nodes.iter().any(|node| node.ms_to_deadline(self.now_ms).is_some()) {
                    true => events.push(Event::Tick),
                    false => return,
                }
            }
            if n_disconnects > 0 && random.chance(40) {
                n_disconnects -= 1;
                let remote = random.below(self.remotes.len());
                if !self.remotes[remote].is_gone {
                    self.disconnect(remote);
                }
                continue;
            }
            if random.chance(10) {
                events.push(Event::Tick);
            }
            let mail = |event: &Event| matches!(event, Event::Publish(..) | Event::Deliver(..));
            if events.iter().any(mail) && events.iter().any(|e| !mail(e)) && random.below(haste + 1) > 0 {
                let is_mail_first = haste > 2;
                events.retain(|event| mail(event) == is_mail_first);
            }
            let event = *random.pick(&events);
            self.happen(event, random);
        }
        panic!("the nodes do not come to rest");
    }

    // ---- what is looked at afterwards ----

    /// The history of the operations, with the order rule between those of one client.
    pub fn history(&self, programs: &[Program]) -> Vec<Operation> {
        let mut operations: Vec<Operation> = Vec::new();
        for (client, (program, remote)) in programs.iter().zip(&self.remotes).enumerate() {
            let first = operations.len();
            let mut kept: Vec<&Facts> = Vec::new();
            for (at, request) in program.requests.iter().enumerate().take(remote.n_sent) {
                let answer = remote.replies.get(at);
                let intents = match request.expect {
                    Expect::Operation(intent) => intent..intent + 1,
                    Expect::Parts(start, end) => start..end,
                    Expect::Ok | Expect::Queued | Expect::Count => {
                        check_side_reply(client, &request.expect, answer);
                        continue;
                    }
                };
                for intent in &program.intents[intents] {
                    let earlier = kept.iter().enumerate();
                    let after = earlier
                        .filter(|(_, facts)| facts.comes_before(&intent.facts))
                        .map(|(n, _)| first + n);
                    operations.push(Operation {
                        client,
                        db: intent.db,
                        action: intent.action.clone(),
                        is_spread: intent.facts.is_spread(),
                        gone_at: remote.gone_at,
                        invoked_at: remote.sent_at[at],
                        answer: answer.map(|(step, value)| (*step, normal(&intent.action, value.clone()))),
                        after: after.collect(),
                    });
                    kept.push(&intent.facts);
                }
            }
        }
        operations
    }

    /// All keyspaces as one; every key must stand at its owner, and none may be away.
    pub fn final_state(&mut self) -> FinalState {
        let mut state: FinalState = Default::default();
        for node in &mut self.nodes {
            let id = node.id;
            for (db, keyspace) in node.shard.keyspaces().iter().enumerate() {
                for entry in keyspace.iter() {
                    assert_eq!(self.server.shard_of(entry.key()), id, "a guest was left behind");
                    let content = match entry.view() {
                        View::Int(number) => Content::Text(number.to_string().into_bytes()),
                        View::Str(bytes) => Content::Text(bytes.to_vec()),
                        View::Shared(bytes) => Content::Text(bytes.to_vec()),
                        View::Set(set) => Content::Set(set.iter().map(|element| element.to_vec()).collect()),
                        View::Lent => panic!("a key is still away"),
                        View::Vector(vectors) => Content::Vectors(with_reader(|guard, _| {
                            let set = &vectors.handle.set;
                            check(set, guard).unwrap_or_else(|fault| panic!("an unsound graph: {fault}"));
                            (0..set.len())
                                .filter_map(|at| set.member(at, guard))
                                .map(<[u8]>::to_vec)
                                .collect()
                        })),
                        View::List(list) => {
                            Content::List(list.iter().map(|element| element.to_vec()).collect())
                        }
                        View::Hash(_) | View::Zset(_) | View::Stream(_) => panic!("no program makes one"),
                    };
                    assert!(db < N_DATABASES, "no program selects database {db}");
                    state[db].insert(entry.key().to_vec(), content);
                }
            }
        }
        state
    }

    /// Those who wait for ever for what is not there go away. `Err`: somebody waits for what is there.
    pub fn dismiss_blocked(&mut self, programs: &[Program]) -> Result<(), String> {
        let end = self.final_state();
        for (at, program) in programs.iter().enumerate() {
            let remote = &self.remotes[at];
            if remote.is_gone || remote.replies.len() == remote.ends.len() {
                continue;
            }
            let request = &program.requests[remote.replies.len()];
            let Expect::Operation(intent) = request.expect else { continue };
            let keys = match &request.argv[0][..] {
                b"BLPOP" => &request.argv[1..request.argv.len() - 1],
                b"BLMOVE" => &request.argv[1..2],
                _ => continue,
            };
            let db = program.intents[intent].db;
            if let Some(key) = keys.iter().find(|key| matches!(end[db].get(*key), Some(Content::List(_)))) {
                return Err(format!(
                    "client {at} waits for {}, which holds a list",
                    String::from_utf8_lossy(key)
                ));
            }
            self.disconnect(at);
        }
        self.settle();
        Ok(())
    }

    /// Every reply has come and no node owes or holds anything.
    pub fn check_rest(&self) {
        for (at, remote) in self.remotes.iter().enumerate() {
            let is_answered = remote.is_gone || remote.replies.len() == remote.ends.len();
            assert!(
                is_answered,
                "client {at} waits for ever: {} of {}",
                remote.replies.len(),
                remote.ends.len()
            );
            assert!(remote.is_gone || remote.output.is_empty(), "client {at} has half a reply");
        }
        for node in &self.nodes {
            let panics = node.server.sum(|worker| &worker.panics);
            assert_eq!(panics, 0, "a command panicked");
            let left: BTreeMap<&str, usize> =
                node.outstanding().into_iter().filter(|(_, n)| *n > 0).collect();
            assert!(left.is_empty(), "node {} still has {left:?}", node.id.0);
        }
    }

    /// When all clients have gone, nobody watches anything any more.
    pub fn check_farewell(&mut self) {
        for remote in 0..self.remotes.len() {
            if !self.remotes[remote].is_gone {
                self.disconnect(remote);
            }
        }
        self.settle();
        for node in &self.nodes {
            assert_eq!(
                node.shard.n_watched(),
                (0, 0),
                "watches of clients that are gone on node {}",
                node.id.0
            );
        }
    }
}

fn check_side_reply(client: usize, expect: &Expect, answer: Option<&(usize, Value)>) {
    let Some((_, value)) = answer else { return };
    let is_right = match (expect, value) {
        (Expect::Ok, Value::Simple(text)) => text == b"OK",
        (Expect::Queued, Value::Simple(text)) => text == b"QUEUED",
        (Expect::Count, Value::Integer(n)) => (0..=8).contains(n),
        _ => false,
    };
    assert!(is_right, "client {client}: {value:?} where {expect:?} was due");
}

/// A history in words.
pub fn show(operations: &[Operation]) -> String {
    let words = |argv: &[Vec<u8>]| -> String {
        argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
    };
    let mut text = String::new();
    for (at, operation) in operations.iter().enumerate() {
        let action = match &operation.action {
            Action::Command(argv) => words(argv),
            Action::Transaction(queue) => {
                format!("EXEC [{}]", queue.iter().map(|argv| words(argv)).collect::<Vec<_>>().join("; "))
            }
        };
        let answer = match &operation.answer {
            Some((step, value)) => format!("{step}: {}", plain(value)),
            None => "never".into(),
        };
        text.push_str(&format!(
            "  {at:2} client {} db {} {:5}..{answer}   {action}   after {:?}\n",
            operation.client, operation.db, operation.invoked_at, operation.after
        ));
    }
    text
}

/// A reply in words.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Bulk(text) => format!("{:?}", String::from_utf8_lossy(text)),
        Value::Integer(n) => n.to_string(),
        Value::Array(all) => format!("[{}]", all.iter().map(plain).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}
