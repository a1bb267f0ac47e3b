//! Blocked clients, their own worker's side: how a wait begins and ends, and the lends by which one with keys of several owners
//! is served.
//!
//! ```text
//!   Asked ──nothing there──► Waits ◄──nothing after all── Called
//!     └──────── answered ◄────┴──── a key was filled ──────┘
//! ```
//!
//! Nothing behind a blocked request runs. A wait ends by its answer, its deadline, CLIENT UNBLOCK or the end of its connection, and
//! leaves no trace in any line. While its lend is under way (`Called`) an end is noted, and comes into force when the lend is there:
//! then the command does not run, so nothing is taken for one whose wait is over.

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use super::blocking::copy_fixed;
use super::loans::{Lend, Purpose};
use super::route::Step;
use super::wave::Admit;
use crate::args::Args;
use crate::blocked::EndOfWait;
use crate::client::{
    BlockedRequest, BlockedState, CalledRequest, Client, ClientId, Ending, Parked, Reason, Slot,
};
use crate::command::{Flow, ShardHandler, Wait};
use crate::commands::Row;
use crate::commands::wait::{Acknowledged, parse_wait, parse_waitaof};
use crate::error::CommandError;
use crate::keyspace::Key;
use crate::lend::holds::{Admission, Freed};
use crate::message::{Called, HoldMode, LendId, ReplyTo, RequestHead, Round};
use crate::server::WorkerStats;
use crate::shard::ShardId;

impl Node {
    /// A request that may wait for its keys.
    pub(super) fn route_waiting(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        handler: ShardHandler,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        let mut asked = BlockedRequest::asked(client.next_sequence());
        let step = match self.single_owner(row, args) {
            Some(own) if own == self.id => {
                return self.route_single(client, row, own, args, admit, |node, client, args| {
                    node.run_waiting(client, row, handler, args);
                });
            }
            Some(peer) => {
                asked.mask = 1 << peer.0;
                self.next_claim = Some(asked.claim.clone());
                let step = self.route_single(client, row, peer, args, admit, |_, _, _| {});
                self.next_claim = None;
                step
            }
            None => self.start_lend(client, row, args),
        };
        if step == Step::Done {
            client.blocked = Some(Box::new(asked));
        }
        step
    }

    /// With all its keys here.
    fn run_waiting(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        handler: ShardHandler,
        args: Args<'_>,
    ) {
        let mut out = Vec::new();
        let Some(wait) = self.waiting_into(handler, client.caller(), client.proto, &mut out, args) else {
            self.push_reply(client, &out);
            self.serve_blocked();
            return;
        };
        let mut blocked = BlockedRequest::asked(client.next_sequence());
        let reply_to = ReplyTo::Slot { client: client.id, sequence: blocked.sequence };
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: false });
        let head = RequestHead {
            reply_to,
            client: client.id,
            db: client.db,
            touch: client.touch,
            proto: client.proto,
            command: row.id.0,
            hashed_at: 0,
            hash: 0,
            has_plans: false,
            may_wait: true,
            is_tracked: client.notes_reads(),
        };
        blocked.mask = 1 << self.id.0;
        self.wait_for_keys(self.id, &head, args, &wait, blocked.claim.clone());
        self.begin_wait(client.id, &mut blocked, wait.deadline_ms);
        client.blocked = Some(Box::new(blocked));
    }

    /// WAIT and WAITAOF: they wait for nothing but their deadline.
    pub(super) fn run_wait(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        flow: Flow,
        args: Args<'_>,
    ) -> Step {
        // What it waits for is that its client's writes have been made.
        if !self.may_go(client, row, 0) || client.n_unanswered_writes > 0 {
            client.parked = Parked::Order;
            return Step::Parked;
        }
        match parse_acknowledged(flow, args, self.now_ms) {
            Ok(Acknowledged::TooFew(deadline_ms)) => {
                self.wait_for_deadline(client, reason_of(flow), deadline_ms);
            }
            Ok(Acknowledged::Enough) => {
                let mut out = Vec::new();
                write_ending(Ending::TimedOut, reason_of(flow), client.proto, &mut out);
                self.push_reply(client, &out);
            }
            Err(error) => self.refuse(client, error),
        }
        Step::Done
    }

    /// The same where nobody waits.
    pub(super) fn wait_for_nobody(&self, flow: Flow, proto: Proto, out: &mut Vec<u8>, args: Args<'_>) {
        match parse_acknowledged(flow, args, self.now_ms) {
            Ok(_) => write_ending(Ending::TimedOut, reason_of(flow), proto, out),
            Err(error) => self.fail_into(out, out.len(), proto, &error),
        }
    }

    fn wait_for_deadline(&mut self, client: &mut Client, reason: Reason, deadline_ms: Option<i64>) {
        let mut blocked = BlockedRequest::asked(client.next_sequence());
        blocked.reason = reason;
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: false });
        self.begin_wait(client.id, &mut blocked, deadline_ms);
        client.blocked = Some(Box::new(blocked));
    }

    fn begin_wait(&mut self, id: ClientId, blocked: &mut BlockedRequest, deadline_ms: Option<i64>) {
        self.block_counts.blocked += 1;
        blocked.state = BlockedState::Waits;
        blocked.deadline_ms = deadline_ms;
        if let Some(deadline_ms) = deadline_ms {
            self.deadlines.insert((deadline_ms, id));
        }
        WorkerStats::add(&self.server.workers[usize::from(self.id.0)].blocked_clients, 1);
    }

    /// The owner of a request's keys says that it waits there. A client that is gone has told it so already.
    pub(super) fn take_blocked(&mut self, id: ClientId, sequence: u32, deadline_ms: i64) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(mut blocked) = client.blocked.take_if(|blocked| blocked.sequence == sequence) else {
            return;
        };
        self.begin_wait(id, &mut blocked, (deadline_ms > 0).then_some(deadline_ms));
        if let Some(client) = self.clients.get_mut(id) {
            client.blocked = Some(blocked);
        }
    }

    /// A blocked request was served by `owner`, in whose lines it is no more.
    pub(super) fn served(&mut self, id: ClientId, sequence: u32, owner: ShardId, reply: &[u8]) {
        if let Some(client) = self.clients.get_mut(id)
            && let Some(blocked) = &mut client.blocked
            && blocked.sequence == sequence
        {
            blocked.mask &= !(1 << owner.0);
        }
        self.answer(id, sequence, reply);
    }

    /// A blocked request has its answer, or its client is gone: it leaves its lines.
    pub(super) fn end_blocked(&mut self, id: ClientId, blocked: &BlockedRequest) {
        if let Some(deadline_ms) = blocked.deadline_ms {
            self.deadlines.remove(&(deadline_ms, id));
        }
        if blocked.state != BlockedState::Asked {
            let counter = &self.server.workers[usize::from(self.id.0)].blocked_clients;
            WorkerStats::add(counter, 1u64.wrapping_neg());
        }
        for shard in (0..self.n_shards()).filter(|shard| blocked.mask & (1 << shard) != 0) {
            match ShardId(shard as u8) == self.id {
                true => self.unblock_here(id),
                false => self.outboxes[shard].push_unblock(id),
            }
        }
    }

    /// Called at the start of each turn: waits whose time is over end.
    #[inline]
    pub(super) fn end_overdue_waits(&mut self) {
        if self.deadlines.first().is_some_and(|(deadline_ms, _)| *deadline_ms < self.now_ms) {
            self.end_overdue();
        }
    }

    #[cold]
    fn end_overdue(&mut self) {
        let later = self.deadlines.split_off(&(self.now_ms, ClientId(0)));
        for (deadline_ms, id) in std::mem::replace(&mut self.deadlines, later) {
            if self.end_wait(id, Ending::TimedOut) == EndOfWait::Undecided {
                // Its owner is at it; the next turn will know.
                self.deadlines.insert((deadline_ms, id));
            }
        }
        self.see_to_blocked();
    }

    /// How long until the first wait ends, or the pause that clients wait for; if any does.
    pub fn ms_to_deadline(&self, now_ms: i64) -> Option<u64> {
        let first_wait = self.deadlines.first().map(|(deadline_ms, _)| deadline_ms.saturating_add(1));
        let end_of_pause = self.end_of_pause_ms();
        let next = first_wait.into_iter().chain(end_of_pause).min()?;
        Some(next.saturating_sub(now_ms).max(0) as u64)
    }

    fn end_wait(&mut self, id: ClientId, ending: Ending) -> EndOfWait {
        let Some(client) = self.clients.get_mut(id) else { return EndOfWait::Over };
        let Some(blocked) = &mut client.blocked else { return EndOfWait::Over };
        let end = blocked.end(ending);
        if end == EndOfWait::Ended && blocked.state == BlockedState::Waits {
            self.answer_ended(id, ending);
        }
        end
    }

    /// Answers a wait that has been ended.
    fn answer_ended(&mut self, id: ClientId, ending: Ending) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(blocked) = &client.blocked else { return };
        let mut out = Vec::new();
        write_ending(ending, blocked.reason, client.proto, &mut out);
        match ending {
            Ending::TimedOut => self.block_counts.timed_out += 1,
            Ending::Unblocked => self.block_counts.unblocked += 1,
        }
        let sequence = blocked.sequence;
        self.answer(id, sequence, &out);
    }

    /// Called when no client runs: what became of blocked clients meanwhile.
    #[inline]
    pub(super) fn see_to_blocked(&mut self) {
        if !self.calls.is_empty() || !self.clients.to_unblock.is_empty() {
            self.run_calls();
        }
    }

    #[cold]
    fn run_calls(&mut self) {
        loop {
            for (id, ending) in std::mem::take(&mut self.clients.to_unblock) {
                self.answer_ended(id, ending);
            }
            let Some((id, owner)) = self.calls.pop_front() else { break };
            self.start_call(id, owner);
        }
        self.send_deliveries();
    }

    /// A client was called to its keys: a lend of all of them.
    fn start_call(&mut self, id: ClientId, owner: ShardId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(blocked) = &mut client.blocked else { return };
        if blocked.state == BlockedState::Called {
            blocked.is_called_again = true;
            match owner == self.id {
                true => self.take_settle(id, Called::Coming),
                false => self.outboxes[usize::from(owner.0)].push_settle(id, Called::Coming),
            }
            return;
        }
        let Some(request) = &blocked.request else { return };
        blocked.state = BlockedState::Called;
        client.n_lends += 1;
        let lend_id = LendId(self.next_lend);
        self.next_lend += 1;
        let row = request.row;
        let args = Args::new(&request.text, &request.ranges);
        let keys = Self::keys_of(row, args).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let keys = keys.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
        let mut lend = Lend {
            client: id,
            sequence: blocked.sequence,
            db: client.db,
            touch: client.touch,
            proto: client.proto,
            row,
            text: request.text.clone(),
            ranges: request.ranges.clone(),
            multi: None,
            mode,
            owners: Vec::new(),
            n_asked: 0,
            next_owner: 0,
            round: Round::Try,
            is_refused: false,
            is_touched: false,
            watch_mask: 0,
            now_ms: self.now_ms,
            purpose: Purpose::Call,
            wait: None,
            is_tracked: client.notes_reads(),
        };
        lend.owners = self.owners_of_keys(&keys, mode, 0);
        let mut freed = Vec::new();
        let own_id = self.id;
        for owner in lend.owners.iter_mut().filter(|owner| owner.shard == own_id) {
            let names = owner.keys.iter().map(|key| self.server.hash_key(key)).collect::<Vec<_>>();
            let admission = self.ask_own(id, lend_id, mode, Round::Try, &names, &mut freed);
            owner.is_granted = admission == Admission::Granted;
            lend.is_refused = !owner.is_granted;
        }
        if !lend.is_refused {
            for owner in lend.owners.iter().filter(|owner| owner.shard != own_id) {
                self.send_ask(owner, lend_id, id, mode, Round::Try);
                lend.n_asked += 1;
            }
        }
        WorkerStats::add(&self.server.workers[usize::from(self.id.0)].lends, 1);
        self.lend_counts.started += 1;
        self.lend_counts.calls += 1;
        if lend.is_refused && owner != self.id {
            // It is not asked now, and what it holds for us would stand in the way of those whom we wait for.
            self.outboxes[usize::from(owner.0)].push_settle(id, Called::Coming);
        }
        let (is_refused, n_asked) = (lend.is_refused, lend.n_asked);
        self.lends.insert(lend_id, lend);
        self.run_freed(freed);
        match (is_refused, n_asked) {
            (true, _) => self.begin_ordered_round(lend_id, None),
            (false, 0) => self.complete(lend_id),
            (false, _) => {}
        }
    }

    /// The own shard's part of a lend, some of whose keys may be reserved for its client.
    pub(super) fn ask_own(
        &mut self,
        client: ClientId,
        lend: LendId,
        mode: HoldMode,
        round: Round,
        keys: &[u64],
        freed: &mut Vec<Freed>,
    ) -> Admission {
        let (who, may_wait) = ((self.id, lend), round == Round::Wait);
        let keys = keys.iter().copied();
        match self.reserved.remove(&client) {
            Some(reserved) => self.holds.ask_reserved(reserved, who, mode, may_wait, keys, freed),
            None => self.holds.ask(who, mode, may_wait, keys),
        }
    }

    /// A lend's command has found nothing: its client joins the lines of the keys that it waits for, while all of them are held.
    pub(super) fn block_lent(&mut self, client: &mut Client, lend: &mut Lend, wait: &Wait) {
        let args = Args::new(&lend.text, &lend.ranges);
        let mut mask = 0u64;
        for shard in 0..self.n_shards() {
            let server = self.server.clone();
            let keys = || {
                wait.keys
                    .clone()
                    .map(|index| args.get(index))
                    .filter(|key| usize::from(server.shard_of(key).0) == shard)
            };
            if keys().next().is_none() {
                continue;
            }
            mask |= 1 << shard;
            match ShardId(shard as u8) == self.id {
                true => {
                    let keys = keys().map(|bytes| Key { bytes, hash: server.hash_key(bytes) });
                    self.shard.block(lend.client, lend.db, wait.awaited, keys);
                }
                false => self.outboxes[shard].push_block(lend.client, lend.db, wait.awaited, keys()),
            }
        }
        let (text, ranges) = copy_fixed(args, wait);
        let mut blocked =
            client.blocked.take().unwrap_or_else(|| Box::new(BlockedRequest::asked(lend.sequence)));
        blocked.mask = mask;
        blocked.request = Some(CalledRequest { row: lend.row, text, ranges });
        self.begin_wait(client.id, &mut blocked, wait.deadline_ms);
        client.blocked = Some(blocked);
    }

    /// The lend of a called client has run, or was not to run any more: tells the owners, before their keys go home. Whether the
    /// client has its answer.
    pub(super) fn settle_call(&mut self, client: &mut Client, lend: &Lend, out: &mut Vec<u8>) -> Called {
        let Some(blocked) = &mut client.blocked else { return Called::Answered };
        let outcome = match (blocked.ending, &lend.wait) {
            (Some(ending), _) => {
                self.block_counts.ended_by_then += 1;
                out.clear();
                write_ending(ending, blocked.reason, lend.proto, out);
                Called::Answered
            }
            (None, None) => {
                self.block_counts.served_by_call += 1;
                Called::Answered
            }
            (None, Some(_)) => {
                self.block_counts.in_vain += 1;
                Called::WaitsOn
            }
        };
        for shard in (0..self.n_shards()).filter(|shard| blocked.mask & (1 << shard) != 0) {
            match ShardId(shard as u8) == self.id {
                true => self.take_settle(lend.client, outcome),
                false => self.outboxes[shard].push_settle(lend.client, outcome),
            }
        }
        match outcome {
            Called::Answered => {
                blocked.mask = 0;
                blocked.state = BlockedState::Answered;
            }
            Called::WaitsOn | Called::Coming => {
                blocked.state = BlockedState::Waits;
                if std::mem::take(&mut blocked.is_called_again) {
                    self.calls.push_back((lend.client, self.id));
                }
            }
        }
        outcome
    }
}

fn parse_acknowledged(flow: Flow, args: Args<'_>, now_ms: i64) -> Result<Acknowledged, CommandError> {
    match flow {
        Flow::WaitAof => parse_waitaof(args, now_ms),
        _ => parse_wait(args, now_ms),
    }
}

fn reason_of(flow: Flow) -> Reason {
    match flow {
        Flow::WaitAof => Reason::LocalAndReplicas,
        _ => Reason::Replicas,
    }
}

/// The reply of a wait that ends without what it waited for.
fn write_ending(ending: Ending, reason: Reason, proto: Proto, out: &mut Vec<u8>) {
    let mut reply = Reply::new(out, proto);
    match (ending, reason) {
        (Ending::Unblocked, _) => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        (Ending::TimedOut, Reason::Keys) => reply.null_array(),
        (Ending::TimedOut, Reason::Replicas) => reply.integer(0),
        (Ending::TimedOut, Reason::LocalAndReplicas) => {
            reply.array(2);
            reply.integer(0);
            reply.integer(0);
        }
    }
}
