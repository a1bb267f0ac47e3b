//! From a parsed request to where it runs: the gates, then the handler's kind times the number of owners of its keys.
//!
//! A request for another shard is copied into that peer's outbox; credit bounds how many are unanswered there. The rules of order
//! (`may_go`) stand here and nowhere else.

use super::wave::{Admit, Item};
use super::{CREDIT, Node, gate};
use crate::args::Args;
use crate::client::{Client, ClientId, Parked, ReplyMode, Slot};
use crate::command::{Command, Flags, Flow, Handler, ShardHandler};
use crate::commands::{KeyShape, Row};
use crate::error::CommandError;
use crate::lend::holds::Who;
use crate::message::{HoldMode, ReplyTo, RequestHead};
use crate::shard::ShardId;

/// An outbox that holds more takes no further requests (replies always fit: they were reserved by the peer's credit).
const MAX_OUTBOX_BYTES: usize = 4 << 20;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    /// It has not run; the client is parked and the request stays in its input.
    Parked,
}

impl Node {
    #[inline]
    pub(super) fn run_request(
        &mut self,
        client: &mut Box<Client>,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        if client.is_stopped() {
            client.parked = Parked::Order;
            return Step::Parked;
        }
        self.mark = (client.out.len(), client.held.len());
        let row = match item.row {
            Ok(row) => row,
            Err(unknown) => {
                self.refuse_unknown(client, unknown, args);
                return Step::Done;
            }
        };
        if self.needs_gate(client, row, args) {
            match self.gate(client, row, args) {
                gate::Verdict::Run => {}
                gate::Verdict::Answered => {
                    self.work.forget(client.id);
                    return Step::Done;
                }
                gate::Verdict::Parked(reason) => {
                    client.parked = reason;
                    return Step::Parked;
                }
            }
        }
        client.last_command = Some(row.command);
        self.running = row.id;
        let started = self.begin_call(row, args.len());
        let step = self.route(client, row, item, args, admit);
        if step == Step::Done {
            client.n_commands += 1;
            self.work.forget(client.id);
            self.stats.count(row.id);
            let request_bytes = item.end - item.start;
            let written = (client.out.len() + client.held.len()).wrapping_sub(self.mark.0 + self.mark.1);
            let reply_bytes = written.wrapping_add(self.observed.placed_bytes);
            if client.tracking.is_some() {
                self.track_call(client, row, item, args);
            }
            if started.is_some() || request_bytes.max(reply_bytes) > self.observed.large {
                self.look_at_own_call(client, row, args, started, request_bytes);
            }
            if self.shard.tracking.is_any() {
                self.tell_after_reply(client, row, args);
            }
            let is_settled = std::mem::take(&mut client.is_reply_settled);
            if client.reply_mode != ReplyMode::On && !is_settled {
                self.mute(client);
            }
        }
        step
    }

    /// Kind of handler times number of owners: every case of routing.
    #[inline]
    pub(super) fn route(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        match row.command.handler {
            Handler::Conn(_) | Handler::Flow(Flow::Reset)
                if client.n_lends > 0 && is_exec(client.lend_command) =>
            {
                // A transaction in flight may hold commands that change the connection, too.
                client.parked = Parked::Order;
                Step::Parked
            }
            Handler::Plain(handler) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                self.plain_into(handler, client.proto, &mut scratch, args);
                self.push_reply(client, &scratch);
                self.scratch = scratch;
                Step::Done
            }
            Handler::Conn(_) if row.command.flags.has(Flags::PUBSUB) && self.has_full_outbox(client) => {
                Step::Parked
            }
            Handler::Conn(handler) => {
                self.run_conn(client, handler, args);
                Step::Done
            }
            Handler::Shard(handler) => match row.shape {
                KeyShape::One(index) => {
                    let args = args.with_hash(usize::from(index), item.hash);
                    if let Some(plan) = row.command.plan {
                        return self.route_planned(client, row, item, args, admit, (plan, handler));
                    }
                    self.route_single(client, row, item.shard, args, admit, |node, client, args| {
                        node.run_shard(client, handler, args);
                    })
                }
                KeyShape::None => {
                    self.route_single(client, row, self.id, args, admit, |node, client, args| {
                        node.run_shard(client, handler, args);
                    })
                }
                KeyShape::Many => match row.command.may_wait {
                    Some(may_wait) if may_wait(args) => self.route_waiting(client, row, handler, args, admit),
                    _ => self.route_many(client, row, handler, args, admit),
                },
            },
            Handler::Roaming(handler, roams) => match roams(args) {
                true => self.route_whole(client, row, handler, args, admit),
                false => self.route_many(client, row, handler, args, admit),
            },
            Handler::Any(handler) => self.route_any(client, row, item, args, admit, handler),
            Handler::Cursor(handler) => {
                let shard = crate::commands::generic::shard_of_cursor(args, self.n_shards());
                self.route_single(client, row, shard, args, admit, |node, client, args| {
                    node.run_shard(client, handler, args);
                })
            }
            Handler::Split(handler, merge) => self.start_gather(client, row, args, admit, handler, merge),
            Handler::Whole(handler) => self.route_whole(client, row, handler, args, admit),
            Handler::Script(script) => self.route_script(client, row, script, args, admit),
            Handler::Flow(flow) => self.run_flow(client, row, flow, args, admit),
            Handler::Container => {
                self.refuse(client, CommandError::WrongArity(row.command.name));
                Step::Done
            }
            Handler::Words => {
                self.refuse(client, crate::commands::wrong_subcommand(args, "DEBUG"));
                Step::Done
            }
        }
    }

    /// A request whose keys may have several owners.
    #[inline]
    fn route_many(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        handler: ShardHandler,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        match self.single_owner(row, args) {
            Some(shard) => self.route_single(client, row, shard, args, admit, |node, client, args| {
                node.run_shard(client, handler, args);
            }),
            None => self.start_lend(client, row, args),
        }
    }

    /// A request that may touch any key.
    fn route_whole(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        handler: ShardHandler,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        if self.n_shards() > 1 {
            return self.start_lend(client, row, args);
        }
        if self.waits_for_all(client, admit) {
            return Step::Parked;
        }
        self.run_shard(client, handler, args);
        Step::Done
    }

    /// A request whose keys have one owner.
    #[inline]
    pub(super) fn route_single(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        shard: ShardId,
        args: Args<'_>,
        admit: Admit,
        run: impl FnOnce(&mut Self, &mut Box<Client>, Args<'_>),
    ) -> Step {
        // With one shard there is nobody to lend to: only jobs hold keys.
        if self.n_shards() > 1 || !self.holds.is_idle() {
            if !self.may_go(client, row, 1 << shard.0) {
                client.parked = Parked::Order;
                return Step::Parked;
            }
            if shard != self.id {
                return self.send_request(client, row, shard, args);
            }
            if admit == Admit::Check && !self.holds.is_idle() && !self.admits_here(row, args) {
                self.wait_here(Who::Request(client.id), row, args);
                client.parked = Parked::Hold;
                return Step::Parked;
            }
        }
        run(self, client, args);
        Step::Done
    }

    /// The only shard: whether a request that may touch any key has to wait for the jobs that hold some. If so it is parked.
    pub(super) fn waits_for_all(&mut self, client: &mut Client, admit: Admit) -> bool {
        if self.holds.is_idle() || admit == Admit::First {
            return false;
        }
        self.holds.wait_for_all(Who::Request(client.id));
        client.parked = Parked::Hold;
        true
    }

    /// Whether the order of this client's requests lets one go that touches the shards in `mask`.
    pub(super) fn may_go(&self, client: &Client, row: &Row, mask: u64) -> bool {
        if client.n_lends > 0 || (client.n_gathers > 0 && row.command.is_write()) {
            return false;
        }
        if client.n_unanswered_writes > 0 {
            let is_other = client.write_command.is_none_or(|c| !std::ptr::eq(c, row.command));
            let is_elsewhere = client.write_mask & !mask != 0;
            if row.command.is_write() && is_other && is_elsewhere {
                return false;
            }
        }
        !self.is_strict || client.pending.is_empty()
    }

    /// Whether the holds of this shard let the request run now.
    pub(super) fn admits_here(&self, row: &Row, args: Args<'_>) -> bool {
        if row.shape == KeyShape::None {
            return match row.is_viewer {
                true => self.holds.admits_viewer(),
                false => self.holds.admits_keyless(),
            };
        }
        let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
        let mut admits = self.holds.admits_keyless();
        row.command.for_each_key(args, |index, _| {
            let hash = args.known_hash(index).unwrap_or_else(|| self.server.hash_key(args.get(index)));
            admits = admits && self.holds.admits(mode, std::iter::once(hash));
        });
        admits
    }

    /// Makes a request wait for the holds of this shard.
    pub(super) fn wait_here(&mut self, who: Who, row: &Row, args: Args<'_>) {
        if row.shape == KeyShape::None {
            match row.is_viewer {
                true => self.holds.wait_to_view(who),
                false => self.holds.wait_at_gate(who),
            }
            return;
        }
        let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
        let mut keys = Vec::new();
        row.command.for_each_key(args, |index, _| keys.push(self.server.hash_key(args.get(index))));
        self.holds.wait(who, mode, keys.into_iter());
    }

    /// The owner of all keys, if it is one. No keys at all: this shard.
    pub(super) fn single_owner(&self, row: &Row, args: Args<'_>) -> Option<ShardId> {
        if self.n_shards() == 1 {
            return Some(self.id);
        }
        let mut owner = None;
        let mut is_single = true;
        row.command.for_each_key(args, |index, _| {
            if !is_single {
                return;
            }
            let shard = self.server.shard_of(args.get(index));
            is_single &= *owner.get_or_insert(shard) == shard;
        });
        is_single.then(|| owner.unwrap_or(self.id))
    }

    /// Puts a request into the owner's outbox.
    pub(super) fn send_request(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        shard: ShardId,
        args: Args<'_>,
    ) -> Step {
        if client.pending.len() >= client.max_pending() {
            client.parked = Parked::Room;
            return Step::Parked;
        }
        if !self.take_credit(client.id, shard) {
            client.parked = Parked::Credit;
            return Step::Parked;
        }
        let is_write = row.command.is_write();
        if is_write {
            let is_run = client.n_unanswered_writes == 0
                || client.write_command.is_some_and(|command| std::ptr::eq(command, row.command));
            client.n_unanswered_writes += 1;
            client.write_command = is_run.then_some(row.command);
            client.write_mask |= 1 << shard.0;
        }
        client.asked_mask |= 1 << shard.0;
        self.observed.is_elsewhere = true;
        let sequence = client.next_sequence();
        let to = ReplyTo::Slot { client: client.id, sequence };
        self.push_request(shard, to, client, row, args);
        client.pending.push_back(Slot::Waiting { is_write, is_muted: false });
        Step::Done
    }

    #[inline]
    pub(super) fn push_request(
        &mut self,
        shard: ShardId,
        to: ReplyTo,
        client: &Client,
        row: &Row,
        args: Args<'_>,
    ) {
        let hashed_at = match row.shape {
            KeyShape::One(index) if args.known_hash(usize::from(index)).is_some() => index,
            _ => 0,
        };
        let plans = self.work.take_plans();
        let claim = self.next_claim.take();
        let head = RequestHead {
            reply_to: to,
            client: client.id,
            db: client.db,
            touch: client.touch,
            proto: client.proto,
            command: row.id.0,
            hashed_at,
            hash: args.known_hash(usize::from(hashed_at)).unwrap_or(0),
            has_plans: plans.is_some(),
            may_wait: claim.is_some(),
            is_tracked: client.notes_reads(),
        };
        let outbox = &mut self.outboxes[usize::from(shard.0)];
        outbox.plans.extend(plans);
        outbox.claims.extend(claim);
        match args.shared_source() {
            Some(source) => outbox.push_shared_request(&head, source.clone(), args.ranges()),
            None => outbox.push_request(&head, args),
        }
    }

    /// Reserves room toward `peer` for one request and its reply.
    pub(super) fn take_credit(&mut self, client: ClientId, peer: ShardId) -> bool {
        let peer = usize::from(peer.0);
        if self.credit[peer] <= 0 || self.outboxes[peer].bytes.len() > MAX_OUTBOX_BYTES {
            self.credit_waiters[peer].push(client);
            return false;
        }
        self.credit[peer] -= 1;
        true
    }

    pub(super) fn give_credit(&mut self, peer: ShardId) {
        let peer = usize::from(peer.0);
        self.credit[peer] += 1;
        debug_assert!(self.credit[peer] <= CREDIT, "credit given back twice");
    }

    /// Whether a peer is behind with so much that a publisher has to wait until it has taken some of it.
    fn has_full_outbox(&mut self, client: &mut Client) -> bool {
        let full = self.outboxes.iter().position(|outbox| outbox.bytes.len() > MAX_OUTBOX_BYTES);
        if let Some(peer) = full {
            self.credit_waiters[peer].push(client.id);
            client.parked = Parked::Credit;
        }
        full.is_some()
    }

    /// Called once a turn, when outboxes were published: clients that lacked credit go on.
    pub fn wake_credit_waiters(&mut self) {
        for peer in 0..self.credit.len() {
            if !self.credit_waiters[peer].is_empty()
                && self.credit[peer] > CREDIT / 4
                && self.outboxes[peer].bytes.len() < MAX_OUTBOX_BYTES / 2
            {
                for id in std::mem::take(&mut self.credit_waiters[peer]) {
                    self.unpark(id, Parked::Credit);
                }
            }
        }
    }

    /// Keys of `args`, once each.
    pub(super) fn keys_of<'a>(row: &Row, args: Args<'a>) -> Vec<&'a [u8]> {
        let mut keys = Vec::new();
        row.command.for_each_key(args, |index, _| keys.push(args.get(index)));
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

fn is_exec(command: Option<&Command>) -> bool {
    command.is_some_and(|command| matches!(command.handler, Handler::Flow(Flow::Exec)))
}
