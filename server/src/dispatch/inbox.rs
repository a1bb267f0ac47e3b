//! What comes from peers: their clients' requests, replies to ours, and the messages of lends.
//!
//! A peer's request runs here as it arrives, unless its key is held or an earlier one of the same client waits: then it joins that
//! client's lane, so that two requests of one client to one shard keep their order.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use skerry_resp::reply::Reply;
use skerry_resp::request::ArgRange;
use smallvec::SmallVec;

use super::gather::part_proto;
use super::observed::Call;
use super::{INTERNAL_ERROR, Node, row_of};
use crate::args::Args;
use crate::blocked::Claim;
use crate::client::ClientId;
use crate::command::{Flow, Handler};
use crate::commands::{KeyShape, Row};
use crate::lend::holds::Who;
use crate::message::read_ranges;
use crate::message::{Batch, HoldMode, LendId, Message, Reader, ReplyTo, RequestHead, Round};
use crate::output::Placed;
use crate::shard::ShardId;
use crate::work::{Addition, Begun, Plans};

/// What a client of another worker has in line here.
pub(super) enum LaneItem {
    Request(LaneRequest),
    /// The ordered ask of a lend whose client went away before what it had sent earlier has run.
    Ask(LaneAsk),
    Unwatch,
}

pub(super) struct LaneAsk {
    pub(super) from: ShardId,
    pub(super) lend: LendId,
    pub(super) mode: HoldMode,
    pub(super) has_watches: bool,
    pub(super) keys: Vec<Box<[u8]>>,
}

/// A request that waits here, with its own copy of the arguments.
pub(super) struct LaneRequest {
    from: ShardId,
    head: RequestHead,
    text: Vec<u8>,
    ranges: Vec<ArgRange>,
    enclosed: Enclosed,
}

/// What comes with a request beside its text.
#[derive(Default)]
pub(super) struct Enclosed {
    plans: Option<Plans>,
    claim: Option<Arc<Claim>>,
}

/// Peer requests whose memory is fetched ahead together.
const INBOX_WAVE: usize = 8;

impl Node {
    /// Handles a batch from `from`, message by message, in order. The emptied batch is the caller's to send back.
    pub fn receive(&mut self, from: ShardId, batch: &mut Batch) {
        // What a client has set before it asked holds for what it asks.
        self.catch_up();
        let bytes = std::mem::take(&mut batch.bytes);
        let mut entries = std::mem::take(&mut batch.entries).into_iter();
        let mut shards = std::mem::take(&mut batch.shards).into_iter();
        let mut bulks = std::mem::take(&mut batch.bulks).into_iter();
        let mut plans = std::mem::take(&mut batch.plans).into_iter();
        let mut claims = std::mem::take(&mut batch.claims).into_iter();
        let mut enclosed = |head: &RequestHead| Enclosed {
            plans: if head.has_plans { plans.next() } else { None },
            claim: if head.may_wait { claims.next() } else { None },
        };
        let mut ranges = std::mem::take(&mut self.ranges);
        let mut reader = Reader::new(&bytes);
        let mut ahead = Reader::new(&bytes);
        let mut n_ahead = 0usize;
        loop {
            if n_ahead == 0 {
                ahead.at = reader.at;
                n_ahead = self.prefetch_ahead(&mut ahead);
            }
            n_ahead = n_ahead.saturating_sub(1);
            let Some(message) = reader.next_message() else { break };
            match message {
                Message::Request { head, ranges: packed, text } => {
                    read_ranges(packed, &mut ranges);
                    self.take_request(from, &head, Args::new(text, &ranges), enclosed(&head));
                }
                Message::SharedRequest { head, ranges: packed } => {
                    read_ranges(packed, &mut ranges);
                    let source = bulks.next().expect("a shared request comes with its buffer");
                    let args = Args::in_shared(&source, &ranges);
                    self.take_request(from, &head, args, enclosed(&head));
                }
                Message::Reply { client, sequence, reply, places } => {
                    self.give_credit(from);
                    // All of them are taken from the batch, also if the client is gone.
                    let strings: SmallVec<[Placed; 1]> = places.zip(bulks.by_ref()).collect();
                    self.answer_with(client, sequence, reply, strings.into_iter());
                }
                Message::Half { lend, reply } => {
                    self.give_credit(from);
                    self.complete_halves(lend, reply);
                }
                Message::Part { gather, reply } => {
                    self.give_credit(from);
                    self.take_part(gather, from, reply);
                }
                Message::Ask { lend, client, mode, round, has_watches, keys, .. } => {
                    let keys = keys.map(Box::from).collect();
                    self.take_ask(client, round, LaneAsk { from, lend, mode, has_watches, keys });
                }
                Message::Grant { lend, is_touched, now_ms, loans } => {
                    self.give_credit(from);
                    let loans: Vec<_> = loans.collect();
                    let lent: Vec<_> = entries.by_ref().take(loans.len()).collect();
                    let is_whole = self.lends.get(&lend).is_some_and(|lend| lend.is_whole());
                    let shard = if is_whole { shards.next() } else { None };
                    self.take_grant(lend, from, is_touched, now_ms, loans, lent, shard);
                }
                Message::Refuse { lend } => {
                    self.give_credit(from);
                    self.take_refusal(lend, from);
                }
                Message::Return { lend, mode, loans, changed, .. } => {
                    let loans: Vec<_> = loans.collect();
                    let returned: Vec<_> = entries.by_ref().take(loans.len()).collect();
                    let shard = if mode == HoldMode::Whole { shards.next() } else { None };
                    self.take_return(from, lend, &loans, returned, shard, changed);
                }
                Message::Deliver { delivered, texts, clients } => {
                    self.deliver_here(delivered, texts, clients)
                }
                Message::Blocked { client, sequence, deadline_ms } => {
                    self.give_credit(from);
                    self.take_blocked(client, sequence, deadline_ms);
                }
                Message::Served { client, sequence, reply } => self.served(client, sequence, from, reply),
                Message::Block { client, db, awaited, keys } => self.take_block(client, db, awaited, keys),
                Message::Call { client } => self.calls.push_back((client, from)),
                Message::Settle { client, outcome } => self.take_settle(client, outcome),
                Message::Unblock { client } => self.unblock_here(client),
                Message::Track { client, keys } => self.take_track(client, keys),
                Message::Told { told, clients } => self.take_told(told, clients, &mut None),
                Message::Unwatch { client } => match self.lanes.get_mut(&client) {
                    // A WATCH before it may still wait there.
                    Some(lane) => lane.push_back(LaneItem::Unwatch),
                    None => self.unwatch_here(client),
                },
            }
        }
        self.see_to_blocked();
        self.send_deliveries();
        self.ranges = ranges;
        batch.bytes = bytes;
        batch.recycle();
    }

    /// Starts fetching the memory of the next few requests; how many messages that covers.
    fn prefetch_ahead(&mut self, ahead: &mut Reader<'_>) -> usize {
        let mut keys = [(0usize, 0u64); INBOX_WAVE];
        let (mut n, mut n_keys) = (0, 0);
        while n < INBOX_WAVE {
            let Some(hashed) = ahead.skip_ahead() else { break };
            n += 1;
            // A shard that is away, lent as a whole, has no databases here.
            if let Some((db, hash)) = hashed
                && let Some(keyspace) = self.shard.keyspaces().get(usize::from(db.0))
            {
                keyspace.prefetch_bucket(hash);
                keys[n_keys] = (usize::from(db.0), hash);
                n_keys += 1;
            }
        }
        for (db, hash) in &keys[..n_keys] {
            self.shard.keyspaces()[*db].prefetch_entry(*hash);
        }
        n
    }

    /// A request of a peer's client.
    fn take_request(&mut self, from: ShardId, head: &RequestHead, args: Args<'_>, enclosed: Enclosed) {
        let row = row_of(head.command);
        let args = match head.hashed_at {
            0 => args,
            index => args.with_hash(usize::from(index), head.hash),
        };
        if let ReplyTo::Lend { id } = head.reply_to {
            // Half of a command: never made to wait, for the other half holds its keys meanwhile.
            let is_free = self.holds.is_idle() || self.admits_here(row, args);
            match is_free && !self.lanes.contains_key(&head.client) {
                true => self.run_for_peer(from, head, row, args, enclosed),
                false => self.outboxes[usize::from(from.0)].push_refuse(id),
            }
            return;
        }
        if let Some(lane) = self.lanes.get_mut(&head.client) {
            lane.push_back(LaneItem::Request(LaneRequest::copy(from, head, args, enclosed)));
            return;
        }
        if !self.holds.is_idle() && !self.admits_here(row, args) {
            self.wait_here(Who::Request(head.client), row, args);
            let request = LaneItem::Request(LaneRequest::copy(from, head, args, enclosed));
            self.lanes.insert(head.client, VecDeque::from([request]));
            return;
        }
        self.run_for_peer(from, head, row, args, enclosed);
    }

    /// Runs the head of a client's lane: it has just been granted what it waited for.
    pub(super) fn run_lane_head(&mut self, client: ClientId) {
        let head = self.lanes.get_mut(&client).and_then(VecDeque::pop_front);
        let Some(LaneItem::Request(mut request)) = head else { panic!("a request heads a waiting lane") };
        let enclosed = std::mem::take(&mut request.enclosed);
        self.run_for_peer(
            request.from,
            &request.head,
            row_of(request.head.command),
            request.args(),
            enclosed,
        );
    }

    /// Runs a client's lane as far as the holds let it.
    pub(super) fn run_lane(&mut self, client: ClientId) {
        while let Some(lane) = self.lanes.get_mut(&client) {
            match lane.pop_front() {
                None => {
                    self.lanes.remove(&client);
                    return;
                }
                Some(LaneItem::Unwatch) => self.unwatch_here(client),
                Some(LaneItem::Ask(ask)) => self.admit_ask(client, Round::Wait, ask),
                Some(LaneItem::Request(mut request)) => {
                    let row = row_of(request.head.command);
                    if !self.holds.is_idle() && !self.admits_here(row, request.args()) {
                        self.wait_here(Who::Request(client), row, request.args());
                        let lane = self.lanes.get_mut(&client).expect("seen above");
                        lane.push_front(LaneItem::Request(request));
                        return;
                    }
                    let enclosed = std::mem::take(&mut request.enclosed);
                    self.run_for_peer(request.from, &request.head, row, request.args(), enclosed);
                }
            }
        }
    }

    /// Runs a peer's request; the reply is written straight into the outbox.
    #[inline]
    fn run_for_peer(
        &mut self,
        from: ShardId,
        head: &RequestHead,
        row: &'static Row,
        args: Args<'_>,
        enclosed: Enclosed,
    ) {
        if let Some(claim) = enclosed.claim {
            self.run_waiting_for_peer(from, head, row, args, claim);
            return;
        }
        let at = usize::from(from.0);
        self.work.begun = enclosed
            .plans
            .map(|planned| Begun::Addition(Box::new(Addition { planned, ..Addition::default() })));
        let started = self.begin_peer_call(row, args.len());
        let mark = self.outboxes[at].begin_reply(head.reply_to);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.execute_for_peer(at, head, row, args)));
        let job = outcome.unwrap_or_else(|panic| {
            self.note_panic(row.command.name, &*panic);
            self.placed.clear();
            let out = &mut self.outboxes[at].bytes;
            out.truncate(mark);
            Reply::new(out, head.proto).error(INTERNAL_ERROR);
            None
        });
        self.work.begun = None;
        let outbox = &mut self.outboxes[at];
        let Some(job) = job else {
            let placed_bytes: usize = self.placed.iter().map(|(_, bytes)| bytes.len()).sum();
            let reply_bytes = outbox.bytes.len() - mark + placed_bytes;
            match self.placed.is_empty() {
                true => outbox.end_reply(mark),
                false => {
                    let strings = self.placed.drain(..).map(|(at, bytes)| (at - mark, bytes));
                    outbox.end_shared_reply(mark, strings);
                }
            }
            if head.is_tracked {
                self.note_reads(head.client, row, args, &mut []);
            }
            if self.shard.tracking.is_any() {
                self.send_invalidations(None);
            }
            if started.is_some() || reply_bytes > self.observed.large {
                self.look_at_peer_call(head, row, args, started, reply_bytes);
            }
            self.serve_blocked();
            return;
        };
        if head.is_tracked {
            self.note_reads(head.client, row, args, &mut []);
        }
        if !self.monitors.is_empty() {
            self.show_call(&Call::of(row, head.client, head.db), args);
        }
        self.note_job(args);
        let outbox = &mut self.outboxes[at];
        self.placed.clear();
        outbox.cancel_reply(mark, head.reply_to);
        let caller = head.caller();
        self.running = row.id;
        self.add_job(job, head.reply_to, from, caller, head.proto);
    }

    #[inline]
    fn execute_for_peer(
        &mut self,
        outbox: usize,
        head: &RequestHead,
        row: &'static Row,
        args: Args<'_>,
    ) -> Option<Box<dyn crate::command::Job>> {
        let caller = head.caller();
        let (handler, proto) = match row.command.handler {
            Handler::Shard(handler) | Handler::Cursor(handler) | Handler::Roaming(handler, _) => {
                (handler, head.proto)
            }
            Handler::Split(handler, merge) => (handler, part_proto(merge, head.proto)),
            Handler::Any(handler) => {
                self.running = row.id;
                let mut out = std::mem::take(&mut self.scratch);
                out.clear();
                let job = self.any_for_peer(handler, caller, head.proto, &mut out, args);
                self.outboxes[outbox].bytes.extend_from_slice(&out);
                self.scratch = out;
                return job;
            }
            Handler::Flow(Flow::Watch) => {
                self.watch_here(caller, args.from(1));
                Reply::new(&mut self.outboxes[outbox].bytes, head.proto).ok();
                return None;
            }
            Handler::Flow(_)
            | Handler::Plain(_)
            | Handler::Conn(_)
            | Handler::Whole(_)
            | Handler::Script(_)
            | Handler::Container
            | Handler::Words => {
                panic!("'{}' is never sent to a peer", row.command.name)
            }
        };
        debug_assert!(row.shape != KeyShape::Many || self.single_owner(row, args) == Some(self.id));
        // The handler cannot write to this outbox by itself: it knows no peers.
        let out = &mut self.outboxes[outbox].bytes;
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        if matches!(head.reply_to, ReplyTo::Slot { .. }) {
            ctx.placed = Some(&mut self.placed);
        }
        let outcome = handler(&mut ctx, args);
        let job = ctx.job.take();
        if let Err(error) = outcome {
            self.placed.clear();
            out.truncate(start);
            Reply::new(out, proto).error(error.wire());
            // The parts of a `Split` fail together: its merge counts the error once.
            if !matches!(row.command.handler, Handler::Split(..)) {
                self.running = row.id;
                self.note_failure(&error);
            }
        }
        job
    }
}

impl LaneRequest {
    fn copy(from: ShardId, head: &RequestHead, args: Args<'_>, enclosed: Enclosed) -> Self {
        let (mut text, mut ranges) = (Vec::new(), Vec::new());
        super::gate::copy_args(args, &mut text, &mut ranges);
        Self { from, head: *head, text, ranges, enclosed }
    }

    fn args(&self) -> Args<'_> {
        let args = Args::new(&self.text, &self.ranges);
        match self.head.hashed_at {
            0 => args,
            index => args.with_hash(usize::from(index), self.head.hash),
        }
    }
}
