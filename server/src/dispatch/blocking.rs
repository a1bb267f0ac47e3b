//! Blocked clients, the owner's side: requests that wait for a key to be filled, and how they are served.
//!
//! ```text
//!   the request finds nothing ──► its keys are held just now: it joins their lines (`Shard::blocked`)
//!        all keys here:       the request itself waits here (`waiting`), whichever worker its client belongs to
//!        several owners:      only its place in line is here, the request is with its client's worker (`calls`)
//!   a command fills a key ──► at its end the line is walked, first come first served
//!        all keys here, free: claim ─► the command runs again ─► reply, or it waits on in its place
//!        another one is held: it waits for its keys as a request does, and the line stands
//!        several owners:      the key is held for it and its worker is called, which asks for all its keys by a lend;
//!                             the line stands until that lend comes home
//! ```
//!
//! So a command always runs with all its keys held, when it is run again as when it came; there is no second implementation of it.
//! The line of a key is walked before anything else runs on that key: at the end of the command, transaction or lend that filled it.
//! A claim (`blocked::Claim`) decides between the owner that serves and the client's worker that ends the wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::ArgRange;

use super::gate::copy_args;
use super::{INTERNAL_ERROR, Node, row_of};
use crate::args::Args;
use crate::blocked::{Awaited, Claim, Place, Waiter};
use crate::client::ClientId;
use crate::command::{Caller, Handler, Patience, ShardHandler, Wait};
use crate::commands::Row;
use crate::keyspace::{EntryRef, Key, View};
use crate::lend::holds::{Passage, Who};
use crate::message::{Called, HoldMode, Keys, ReplyTo, RequestHead};
use crate::shard::{DbIndex, ShardId};

/// A request that waits here, with its own copy of the arguments.
pub(super) struct WaitingRequest {
    from: ShardId,
    head: RequestHead,
    text: Vec<u8>,
    ranges: Vec<ArgRange>,
    claim: Arc<Claim>,
}

/// Which keys are the caller's: nobody else holds them.
#[derive(Clone, Copy)]
pub(super) enum Held<'a> {
    /// Those whose lines are ready: it has just changed them.
    Ready,
    Only(&'a [u64]),
    /// All of this shard.
    Whole,
}

/// What became of blocked clients, for INFO and the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockCounts {
    pub blocked: u64,
    /// With all their keys here.
    pub served_here: u64,
    /// Run again, and nothing was there.
    pub in_vain: u64,
    /// Their wait had ended when the owner was about to serve them.
    pub claims_lost: u64,
    /// One of their keys was held when another was filled.
    pub stood: u64,
    /// By a lend.
    pub served_by_call: u64,
    /// The lend was there, and the wait was over.
    pub ended_by_then: u64,
    pub timed_out: u64,
    pub unblocked: u64,
    /// Their connection ended.
    pub died: u64,
}

impl BlockCounts {
    fn all(&mut self) -> [&mut u64; 10] {
        [
            &mut self.blocked,
            &mut self.served_here,
            &mut self.in_vain,
            &mut self.claims_lost,
            &mut self.stood,
            &mut self.served_by_call,
            &mut self.ended_by_then,
            &mut self.timed_out,
            &mut self.unblocked,
            &mut self.died,
        ]
    }

    pub fn add(&mut self, other: &Self) {
        let mut other = *other;
        self.all().into_iter().zip(other.all()).for_each(|(sum, n)| *sum += *n);
    }

    /// Whether each has happened.
    pub fn are_all_met(mut self) -> bool {
        self.all().iter().all(|n| **n > 0)
    }
}

/// How a command that is run again ended.
enum Rerun {
    Answered,
    WaitsOn,
}

impl Node {
    /// Called whenever a command has ended here: serves those who wait for the keys that it has filled.
    #[inline]
    pub(super) fn serve_blocked(&mut self) {
        if self.shard.blocked.has_ready() {
            self.serve_ready(Held::Ready);
        }
    }

    /// The same when a lend of these keys, or of the whole shard, has ended, before they are given back.
    pub(super) fn serve_blocked_on(&mut self, mode: HoldMode, keys: &[Box<[u8]>]) {
        if !self.shard.blocked.has_ready() {
            return;
        }
        let hashes: Vec<u64> = keys.iter().map(|key| self.server.hash_key(key)).collect();
        self.serve_ready(match mode {
            HoldMode::Whole => Held::Whole,
            HoldMode::Exclusive => Held::Only(&hashes),
            // Others may read these keys as well.
            HoldMode::Shared => Held::Only(&[]),
        });
    }

    #[cold]
    pub(super) fn serve_ready(&mut self, held: Held<'_>) {
        let before = (self.running, self.mark);
        while let Some((place, from)) = self.shard.blocked.next_ready() {
            let mut from = from;
            while let Some(waiter) = self.shard.blocked.next_waiter(&place, from) {
                from = waiter.arrival.next();
                if !self.serve_next(&place, &waiter, held) {
                    break;
                }
            }
        }
        (self.running, self.mark) = before;
    }

    /// The next in a line; false if those behind it are not to be tried now.
    fn serve_next(&mut self, place: &Place, waiter: &Waiter, held: Held<'_>) -> bool {
        if self.shard.blocked.is_engaged(waiter.client) {
            self.shard.blocked.engage(place, waiter);
            return false;
        }
        let is_free = |node: &Self, hash: u64| {
            let is_held = match held {
                Held::Ready => hash == place.hash,
                Held::Only(keys) => keys.contains(&hash),
                Held::Whole => true,
            };
            is_held || node.holds.are_free(HoldMode::Exclusive, std::iter::once(hash))
        };
        let is_own_free = is_free(self, place.hash);
        if is_own_free && !self.is_filled(place, waiter.awaited) {
            // Nothing there is nothing for those behind it either, unless they wait for just that.
            return self.shard.blocked.is_loss_awaited() || self.view(place).is_some();
        }
        let Some(request) = self.waiting.get(&waiter.client) else {
            self.shard.blocked.engage(place, waiter);
            match is_own_free {
                true => {
                    let passage = self.holds.reserve(place.hash);
                    self.call(waiter.client, passage);
                }
                false => {
                    let key = std::iter::once(place.hash);
                    self.holds.wait(Who::Blocked(waiter.client), HoldMode::Exclusive, key);
                }
            }
            return false;
        };
        let mut keys = Vec::new();
        let args = request.args();
        row_of(request.head.command).command.for_each_key(args, |index, _| {
            keys.push(self.server.hash_key(args.get(index)));
        });
        if keys.iter().all(|hash| is_free(self, *hash)) {
            self.serve_here(waiter.client);
            return true;
        }
        self.shard.blocked.engage(place, waiter);
        self.block_counts.stood += 1;
        self.holds.wait(Who::Blocked(waiter.client), HoldMode::Exclusive, keys.into_iter());
        false
    }

    /// What a key holds, if it is alive.
    fn view(&mut self, place: &Place) -> Option<View<'_>> {
        let (now_ms, key) = (self.now_ms, place.key());
        let keyspace = self.shard.keyspace(place.db);
        match keyspace.n_expires() > 0 && keyspace.is_expired(&key, now_ms) {
            true => None,
            false => keyspace.peek(&key).map(EntryRef::view),
        }
    }

    /// Whether a key holds what somebody waits for.
    fn is_filled(&mut self, place: &Place, awaited: Awaited) -> bool {
        let view = self.view(place);
        match awaited {
            Awaited::List => matches!(view, Some(View::List(_))),
            Awaited::SortedSet => matches!(view, Some(View::Zset(_))),
            Awaited::Stream => matches!(view, Some(View::Stream(_))),
            Awaited::StreamOrLoss => true,
        }
    }

    /// Runs the request of a client that waits here again. All its keys are free or held for it.
    fn serve_here(&mut self, client: ClientId) {
        let Some(request) = self.waiting.remove(&client) else { return };
        if !request.claim.take() {
            // Its worker has ended the wait and says so by a message that is on its way.
            self.block_counts.claims_lost += 1;
            self.shard.unblock(client);
            return;
        }
        let mut out = Vec::new();
        match self.run_again(&request, &mut out) {
            Rerun::WaitsOn if request.claim.give_back() => {
                self.block_counts.in_vain += 1;
                self.waiting.insert(client, request);
            }
            Rerun::WaitsOn => {
                self.shard.unblock(client);
            }
            Rerun::Answered => {
                self.block_counts.served_here += 1;
                request.claim.serve();
                if request.head.is_tracked {
                    self.note_reads(client, row_of(request.head.command), request.args(), &mut []);
                }
                self.shard.unblock(client);
                let ReplyTo::Slot { sequence, .. } = request.head.reply_to else {
                    panic!("a request that waits has a slot")
                };
                match request.from == self.id {
                    true => self.served(client, sequence, self.id, &out),
                    false => self.outboxes[usize::from(request.from.0)].push_served(client, sequence, &out),
                }
            }
        }
    }

    fn run_again(&mut self, request: &WaitingRequest, out: &mut Vec<u8>) -> Rerun {
        let row = row_of(request.head.command);
        let Handler::Shard(handler) = row.command.handler else {
            panic!("'{}' does not wait for keys", row.command.name)
        };
        self.running = row.id;
        let RequestHead { proto, .. } = request.head;
        let caller = request.head.caller();
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.waiting_into(handler, caller, proto, out, request.args())));
        match outcome {
            Ok(None) => Rerun::Answered,
            Ok(Some(_)) => Rerun::WaitsOn,
            Err(panic) => {
                self.note_panic(row.command.name, &*panic);
                out.clear();
                Reply::new(out, proto).error(INTERNAL_ERROR);
                Rerun::Answered
            }
        }
    }

    /// Runs the handler of a command that may wait; what for, if it does. Then nothing is written.
    pub(super) fn waiting_into(
        &mut self,
        handler: ShardHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) -> Option<Box<Wait>> {
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        ctx.patience = Patience::Waits;
        let outcome = handler(&mut ctx, args);
        let wait = ctx.wait.take();
        if let Err(error) = outcome {
            self.fail_into(out, start, proto, &error);
            return None;
        }
        if wait.is_some() {
            out.truncate(start);
        }
        wait
    }

    /// A request has found nothing and all its keys are here: it waits here.
    pub(super) fn wait_for_keys(
        &mut self,
        from: ShardId,
        head: &RequestHead,
        args: Args<'_>,
        wait: &Wait,
        claim: Arc<Claim>,
    ) {
        let (text, ranges) = copy_fixed(args, wait);
        let server = &self.server;
        let keys = wait.keys.clone().map(|index| {
            let bytes = args.get(index);
            Key { bytes, hash: server.hash_key(bytes) }
        });
        self.shard.block(head.client, head.db, wait.awaited, keys);
        self.waiting.insert(head.client, WaitingRequest { from, head: *head, text, ranges, claim });
    }

    /// A peer's request that may wait.
    pub(super) fn run_waiting_for_peer(
        &mut self,
        from: ShardId,
        head: &RequestHead,
        row: &'static Row,
        args: Args<'_>,
        claim: Arc<Claim>,
    ) {
        let ReplyTo::Slot { client, sequence } = head.reply_to else {
            panic!("a request that may wait has a slot")
        };
        let Handler::Shard(handler) = row.command.handler else {
            panic!("'{}' does not wait for keys", row.command.name)
        };
        let at = usize::from(from.0);
        if claim.has_ended() {
            // The client is gone, and the dead eat nothing. Its worker gets back what the request has reserved.
            self.outboxes[at].push_blocked(client, sequence, 0);
            return;
        }
        self.running = row.id;
        let mut out = Vec::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.waiting_into(handler, head.caller(), head.proto, &mut out, args)
        }));
        let wait = outcome.unwrap_or_else(|panic| {
            self.note_panic(row.command.name, &*panic);
            out.clear();
            Reply::new(&mut out, head.proto).error(INTERNAL_ERROR);
            None
        });
        if head.is_tracked {
            self.note_reads(client, row, args, &mut []);
        }
        match wait {
            Some(wait) => {
                self.outboxes[at].push_blocked(client, sequence, wait.deadline_ms.unwrap_or(0));
                self.wait_for_keys(from, head, args, &wait, claim);
            }
            None => {
                let outbox = &mut self.outboxes[at];
                let mark = outbox.begin_reply(head.reply_to);
                outbox.bytes.extend_from_slice(&out);
                outbox.end_reply(mark);
                self.serve_blocked();
            }
        }
    }

    /// A client whose keys have several owners, among them this one, has found nothing.
    pub(super) fn take_block(&mut self, client: ClientId, db: DbIndex, awaited: Awaited, keys: Keys<'_>) {
        let server = &self.server;
        let keys = keys.map(|bytes| Key { bytes, hash: server.hash_key(bytes) });
        self.shard.block(client, db, awaited, keys);
    }

    /// What became of a client that was called; its lend is about to come home, unless it is still on its way.
    pub(super) fn take_settle(&mut self, client: ClientId, outcome: Called) {
        match outcome {
            Called::Answered => {
                self.shard.unblock(client);
            }
            Called::WaitsOn => self.shard.blocked.pass(client),
            Called::Coming => {}
        }
        if let Some(passage) = self.reserved.remove(&client) {
            let mut freed = Vec::new();
            self.holds.ran(passage, &mut freed);
            self.run_freed(freed);
        }
    }

    /// A client waits no more here: its worker has ended the wait, or it is gone.
    pub(super) fn unblock_here(&mut self, client: ClientId) {
        self.waiting.remove(&client);
        if self.unwatches_while_away.is_some() {
            self.unblocks_while_away.push(client);
            return;
        }
        self.shard.unblock(client);
        let mut freed = Vec::new();
        if !self.holds.is_idle() {
            self.holds.forget(Who::Blocked(client), &mut freed);
        }
        match self.reserved.remove(&client) {
            Some(passage) => {
                self.serve_ready(Held::Only(passage.keys()));
                self.holds.ran(passage, &mut freed);
            }
            None => self.serve_ready(Held::Only(&[])),
        }
        self.run_freed(freed);
    }

    /// A blocked client has what it waited for: its keys, in their order.
    pub(super) fn serve_granted(&mut self, client: ClientId, passage: Passage) {
        let is_any_filled = match self.shard.blocked.awaited_by(client) {
            None => false,
            Some((awaited, places)) => {
                let places = places.to_vec();
                places.iter().any(|place| self.is_filled(place, awaited))
            }
        };
        if is_any_filled {
            if !self.waiting.contains_key(&client) {
                self.call(client, passage);
                return;
            }
            let before = (self.running, self.mark);
            self.serve_here(client);
            (self.running, self.mark) = before;
        }
        self.shard.blocked.pass(client);
        self.serve_ready(Held::Only(passage.keys()));
        let mut freed = Vec::new();
        self.holds.ran(passage, &mut freed);
        self.freed.extend(freed);
    }

    /// Calls a client to its keys, one of which is held for it by `passage`.
    fn call(&mut self, client: ClientId, passage: Passage) {
        self.reserved.insert(client, passage);
        match client.worker() == self.id {
            true => self.calls.push_back((client, self.id)),
            false => self.outboxes[usize::from(client.worker().0)].push_call(client),
        }
    }
}

/// A copy of the arguments, with those that the wait has fixed in their places.
pub(super) fn copy_fixed(args: Args<'_>, wait: &Wait) -> (Vec<u8>, Vec<ArgRange>) {
    let (mut text, mut ranges) = (Vec::new(), Vec::new());
    copy_args(args, &mut text, &mut ranges);
    for (index, fixed) in &wait.fixed {
        let start = text.len() as u32;
        text.extend_from_slice(fixed);
        ranges[*index] = ArgRange { start, end: text.len() as u32 };
    }
    (text, ranges)
}

impl WaitingRequest {
    fn args(&self) -> Args<'_> {
        Args::new(&self.text, &self.ranges)
    }
}
