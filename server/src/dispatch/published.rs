//! Requests about one vector set: reads on the core that received them, and writes that are planned there.
//!
//! ```text
//!   Any    published (or here) ─► handler ─► reply          not done ─► parked, in the line (`work`)
//!          else               ─► the owner, who publishes
//!   plan   published (or here) ─► plan    ─► commit: the request goes its way with its plans
//! ```
//!
//! A plan is only a hint to the owner's handler: what the request means is decided there, as without one. A read
//! waits for its client's unanswered writes to the owner.

use skerry_resp::reply::Proto;

use super::Node;
use super::route::Step;
use super::wave::{Admit, Item};
use crate::args::{Args, KeptArgs};
use crate::client::{Client, ClientId, Parked, Slot};
use crate::command::{AnyHandler, Caller, Ctx, Job, PlanHandler, ShardHandler};
use crate::commands::Row;
use crate::error::CommandError;
use crate::keyspace::Key;
use crate::message::HoldMode;
use crate::vector::{VectorHandle, handle_of, peek_handle};
use crate::work::Begun;

/// Whether a handler may leave its work for later.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Sliced,
    Whole,
}

/// A search at the owner, in slices. Its key is held for reading: what its client has asked behind it comes after it.
struct Search {
    handler: AnyHandler,
    args: KeptArgs,
    hash: u64,
    /// The moment that counts for the key's deadline: when it began.
    now_ms: i64,
    begun: Option<Begun>,
}

impl Job for Search {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let args = self.args.args();
        let key = Key { bytes: args.get(1), hash: self.hash };
        let found = handle_of(ctx.shard, ctx.caller.db, key, self.now_ms);
        let found = match &found {
            Ok(found) => Ok(found.as_ref().map(|(handle, _)| &**handle)),
            Err(_) => Err(CommandError::WrongType),
        };
        let left = ctx.work.begin_job_slice(self.begun.take());
        let outcome = (self.handler)(ctx, found, args);
        let (is_unfinished, begun) = ctx.work.end_job_slice(left);
        self.begun = begun;
        outcome.map(|()| !is_unfinished)
    }

    fn keeps_its_place(&self) -> bool {
        true
    }

    fn held(&self) -> Option<(HoldMode, Key<'_>)> {
        Some((HoldMode::Shared, Key { bytes: self.args.args().get(1), hash: self.hash }))
    }
}

impl Node {
    /// A read on a vector set: on this core if the set is published, else at its owner.
    pub(super) fn route_any(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
        handler: AnyHandler,
    ) -> Step {
        if args.len() < 2 {
            self.refuse(client, CommandError::WrongArity(row.command.name));
            return Step::Done;
        }
        let args = args.with_hash(1, item.hash);
        self.work.is_unfinished = false;
        let mask = 1 << item.shard.0;
        // What a client tracks is noted by the owner, as it is read.
        if item.shard != self.id
            && !client.notes_reads()
            && self.may_go(client, row, mask)
            && let Some(handle) = self.server.vectors.published(client.db, args.get(1), self.now_ms)
            && let Some(publication) = handle.publication()
        {
            if client.asked_mask & mask != 0 {
                // What it has asked there before comes first.
                client.parked = Parked::Order;
                return Step::Parked;
            }
            if self.read_published(client, &handle, publication, args, handler) {
                return self.end_or_wait(client);
            }
        }
        let step = self.route_single(client, row, item.shard, args, admit, |node, client, args| {
            node.any_for_client(client, args, |node, caller, proto, out, args| {
                node.any_owned(handler, caller, proto, out, args, Pace::Sliced);
                true
            });
        });
        match step {
            Step::Parked => step,
            Step::Done => self.end_or_wait(client),
        }
    }

    fn end_or_wait(&mut self, client: &mut Box<Client>) -> Step {
        match self.work.is_unfinished {
            true => self.wait_in_line(client),
            false => Step::Done,
        }
    }

    /// Runs an `Any` handler, or a slice of it, here, on a set of another worker. False, and nothing done, if a transaction has
    /// written the set since the handler began: what was read may be a half of it.
    fn read_published(
        &mut self,
        client: &mut Box<Client>,
        handle: &VectorHandle,
        publication: u64,
        args: Args<'_>,
        handler: AnyHandler,
    ) -> bool {
        let began = match self.work.has_begun(client.id) {
            true => client.publication,
            false => publication,
        };
        client.publication = began;
        self.any_for_client(client, args, |node, caller, proto, out, args| {
            node.any_into(Ok(Some(handle)), handler, caller, proto, out, args, Pace::Sliced);
            node.work.is_unfinished || handle.still_stands(began)
        })
    }

    /// Runs a read here, with what the client had begun of it. `run` says whether its answer may be given; if not, nothing is.
    fn any_for_client(
        &mut self,
        client: &mut Box<Client>,
        args: Args<'_>,
        run: impl FnOnce(&mut Self, Caller, Proto, &mut Vec<u8>, Args<'_>) -> bool,
    ) -> bool {
        self.work.resume(client.id);
        let is_direct = client.pending.is_empty();
        let (caller, proto) = (client.caller(), client.proto);
        let out = if is_direct { &mut client.out } else { &mut client.held };
        let start = out.len();
        let is_valid = run(self, caller, proto, out, args);
        if self.work.is_unfinished {
            out.truncate(start);
            return true;
        }
        self.work.begun = None;
        if !is_valid {
            out.truncate(start);
            return false;
        }
        if !is_direct {
            let len = client.held.len() - start;
            client.pending.push_back(Slot::Ready { start, len });
        }
        true
    }

    /// The request has not run: its client waits for a slice.
    fn wait_in_line(&mut self, client: &mut Client) -> Step {
        self.work.line_up(client.id);
        client.parked = Parked::Work;
        Step::Parked
    }

    /// Runs the first request in the line for one slice; its client.
    pub fn run_vector_slice(&mut self) -> Option<ClientId> {
        let id = self.work.next_slice()?;
        if let Some(client) = self.clients.get_mut(id)
            && client.parked == Parked::Work
        {
            client.parked = Parked::No;
            self.resume(id);
        }
        self.work.end_slice(id);
        Some(id)
    }

    /// A write of a vector set: planned here if the set is at hand, then on its way to the owner.
    pub(super) fn route_planned(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
        (plan, handler): (PlanHandler, ShardHandler),
    ) -> Step {
        if self.n_shards() > 1 && !self.may_go(client, row, 1 << item.shard.0) {
            client.parked = Parked::Order;
            return Step::Parked;
        }
        self.work.resume(client.id);
        let is_held = item.shard == self.id && !self.holds.is_idle() && !self.admits_here(row, args);
        // Without a key there is nothing to plan; the handler tells the error.
        if !is_held && args.len() > 1 {
            self.plan(client, item, args, plan);
        }
        if self.work.is_unfinished {
            return self.wait_in_line(client);
        }
        let step = self.route_single(client, row, item.shard, args, admit, |node, client, args| {
            node.run_shard(client, handler, args);
        });
        match step {
            Step::Parked => self.work.keep(client.id),
            Step::Done => self.work.begun = None,
        }
        step
    }

    fn plan(&mut self, client: &mut Box<Client>, item: &Item, args: Args<'_>, plan: PlanHandler) {
        let caller = client.caller();
        let key = Key { bytes: args.get(1), hash: item.hash };
        let handle = match item.shard == self.id {
            true => peek_handle(&mut self.shard, caller.db, &key, self.now_ms),
            false => self.server.vectors.published(caller.db, key.bytes, self.now_ms),
        };
        let Some(handle) = handle else { return };
        let mut nothing = Vec::new();
        let mut ctx = ctx!(self, caller, &mut nothing, client.proto);
        plan(&mut ctx, &handle, args);
    }

    /// Runs an `Any` handler at the owner for a peer, which found no published set; a job if that takes longer than the turn allows.
    pub(super) fn any_for_peer(
        &mut self,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) -> Option<Box<dyn Job>> {
        self.work.is_unfinished = false;
        self.any_owned(handler, caller, proto, out, args, Pace::Sliced);
        if !std::mem::take(&mut self.work.is_unfinished) {
            return None;
        }
        out.clear();
        let hash = args.known_hash(1).unwrap_or_else(|| self.server.hash_key(args.get(1)));
        let begun = self.work.begun.take();
        Some(Box::new(Search { handler, args: KeptArgs::of(args), hash, now_ms: self.now_ms, begun }))
    }

    /// Runs an `Any` handler at the owner, in one go: inside a transaction, where nothing may come between.
    pub(super) fn any_at_owner(
        &mut self,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        self.any_owned(handler, caller, proto, out, args, Pace::Whole);
    }

    /// Runs an `Any` handler at the owner: the set is looked up in the keyspace.
    fn any_owned(
        &mut self,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
        pace: Pace,
    ) {
        if args.len() < 2 {
            // The handler tells the error.
            self.any_into(Ok(None), handler, caller, proto, out, args, pace);
            return;
        }
        let key = Key {
            bytes: args.get(1),
            hash: args.known_hash(1).unwrap_or_else(|| self.server.hash_key(args.get(1))),
        };
        match handle_of(&mut self.shard, caller.db, key, self.now_ms) {
            Ok(None) => self.any_into(Ok(None), handler, caller, proto, out, args, pace),
            Ok(Some((handle, expire_at_ms))) => {
                if self.n_shards() > 1 {
                    self.server.vectors.publish(caller.db, args.get(1), &handle, expire_at_ms);
                }
                self.any_into(Ok(Some(&handle)), handler, caller, proto, out, args, pace);
            }
            Err(error) => self.any_into(Err(error), handler, caller, proto, out, args, pace),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a handler's surroundings, one by one")]
    fn any_into(
        &mut self,
        set: Result<Option<&VectorHandle>, CommandError>,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
        pace: Pace,
    ) {
        let start = out.len();
        let left = (pace == Pace::Whole).then(|| self.work.without_limit());
        let mut ctx = ctx!(self, caller, out, proto);
        let outcome = handler(&mut ctx, set, args);
        if let Some(left) = left {
            self.work.limit_again(left);
        }
        if let Err(error) = outcome {
            self.fail_into(out, start, proto, &error);
        }
    }
}
