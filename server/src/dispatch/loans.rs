//! Lends: a command whose keys have several owners runs here on entries that their owners lend.
//!
//! ```text
//!   coordinator                         owners
//!     Ask(Try) to all at once   ──►     hold and Grant (entries move: a pointer each), or Refuse
//!     all granted: adopt the entries, run the handler, extract them
//!     Return                    ──►     entries go home, holds end, waiters run
//!     one refused: Return the rest, then Ask(Wait) one owner after the other in ascending order (no deadlock: waits are ordered)
//! ```
//!
//! Read-only commands take shared holds and read the owner's entries in place: a shared hold keeps everyone from changing, moving or
//! freeing them until it is returned. The own shard's keys are held, not moved. A whole-shard lend moves the shard itself.
//! In its ordered round a lend starts only when its slot is the client's first: then nothing of that client waits elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::ArgRange;

use super::gate::copy_args;
use super::halves::{Half, HalfBuffers};
use super::observed::{Argv, Call};
use super::route::Step;
use super::{INTERNAL_ERROR, Node};
use crate::args::Args;
use crate::client::{Client, ClientId, Closing, Multi, Parked, Slot};
use crate::command::{Caller, Handler, Wait};
use crate::commands::Row;
use crate::keyspace::{Entry, Touch};
use crate::lend::holds::Admission;
use crate::message::{Called, HoldMode, LendId, Round};
use crate::server::WorkerStats;
use crate::shard::{DbIndex, Shard, ShardId};

/// The owner's record of an ask that is granted or waits.
pub(super) struct Ask {
    pub(super) mode: HoldMode,
    pub(super) client: ClientId,
    pub(super) has_watches: bool,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) is_granted: bool,
}

/// The coordinator's record.
pub(super) struct Lend {
    pub(super) client: ClientId,
    pub(super) sequence: u32,
    pub(super) db: DbIndex,
    pub(super) touch: Touch,
    pub(super) proto: Proto,
    pub(super) row: &'static Row,
    pub(super) text: Vec<u8>,
    pub(super) ranges: Vec<ArgRange>,
    /// The queue of an EXEC.
    pub(super) multi: Option<Box<Multi>>,
    pub(super) mode: HoldMode,
    pub(super) owners: Vec<Owner>,
    /// Answers outstanding in the first round.
    pub(super) n_asked: usize,
    /// Index into `owners` of the one asked in the ordered round.
    pub(super) next_owner: usize,
    pub(super) round: Round,
    pub(super) is_refused: bool,
    pub(super) is_touched: bool,
    /// Shards with watches of the client. They end when the lend has run: between two rounds a watched key may still change.
    pub(super) watch_mask: u64,
    pub(super) now_ms: i64,
    pub(super) purpose: Purpose,
    /// The command has found nothing and waits for this.
    pub(super) wait: Option<Box<Wait>>,
    /// The client tracks what it reads.
    pub(super) is_tracked: bool,
}

/// What a lend is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request that has just come.
    Request,
    /// A blocked client, one of whose keys was filled.
    Call,
}

pub(super) struct Owner {
    pub(super) shard: ShardId,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) has_watches: bool,
    pub(super) is_granted: bool,
    /// (key index, database) and entry, both in the owner's order.
    pub(super) loans: Vec<(u32, DbIndex)>,
    pub(super) entries: Vec<Entry>,
    pub(super) whole: Option<Box<Shard>>,
}

impl Lend {
    pub(super) fn caller(&self) -> Caller {
        Caller { client: self.client, db: self.db, touch: self.touch }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.mode == HoldMode::Whole
    }

    /// Whether its command is still to run. What a client that is gone has asked for happens all the same, unless it waits for
    /// something to take: the dead eat nothing.
    fn is_wanted(&self, client: &Client) -> bool {
        let is_there = client.number != 0;
        match self.purpose {
            Purpose::Request => is_there || self.multi.is_some() || self.row.command.may_wait.is_none(),
            Purpose::Call => {
                is_there && client.blocked.as_ref().is_some_and(|blocked| blocked.ending.is_none())
            }
        }
    }
}

/// What a lend is started with.
pub(super) struct LendPlan<'a> {
    pub(super) row: &'static Row,
    pub(super) args: Args<'a>,
    pub(super) multi: Option<Box<Multi>>,
    pub(super) mode: HoldMode,
    /// Sorted, without repeats.
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) watch_mask: u64,
}

impl Node {
    /// Starts the lend of a command with several owners (or of all shards, for `Whole`).
    pub(super) fn start_lend(&mut self, client: &mut Box<Client>, row: &'static Row, args: Args<'_>) -> Step {
        if row.halves.is_some()
            && let Some(step) = self.start_halves(client, row, args)
        {
            return step;
        }
        let (mode, keys) = match row.command.handler {
            Handler::Whole(_) => (HoldMode::Whole, Vec::new()),
            Handler::Roaming(_, roams) if roams(args) => (HoldMode::Whole, Vec::new()),
            _ if row.command.is_write() => (HoldMode::Exclusive, Self::keys_of(row, args)),
            _ => (HoldMode::Shared, Self::keys_of(row, args)),
        };
        if !self.may_lend(client, row, keys.iter().map(|key| self.server.hash_key(key))) {
            client.parked = Parked::Order;
            return Step::Parked;
        }
        self.lend(client, LendPlan { row, args, multi: None, mode, keys, watch_mask: 0 })
    }

    /// Whether the order of the client's requests lets a lend start.
    pub(super) fn may_lend(
        &self,
        client: &Client,
        row: &Row,
        mut hashes: impl ExactSizeIterator<Item = u64>,
    ) -> bool {
        if self.is_strict && !client.pending.is_empty() {
            return false;
        }
        let is_exec = row.command.name == "exec";
        let is_write = row.command.is_write() || is_exec;
        if client.n_lends > 0 {
            let is_same = client.lend_command.is_some_and(|c| std::ptr::eq(c, row.command));
            let has_keys = hashes.len() > 0;
            let is_disjoint = !is_write || hashes.all(|hash| !client.lent.contains(&hash));
            // Two transactions are not one command: what they hold differs.
            if !is_same || !is_disjoint || is_exec || !has_keys {
                return false;
            }
        }
        let is_other = client.write_command.is_none_or(|c| !std::ptr::eq(c, row.command));
        !(is_write && (client.n_gathers > 0 || client.n_unanswered_writes > 0 && is_other))
    }

    /// Asks the owners, all at once.
    pub(super) fn lend(&mut self, client: &mut Box<Client>, plan: LendPlan<'_>) -> Step {
        let mut owners = self.owners_of(&plan);
        for owner in &owners {
            let peer = usize::from(owner.shard.0);
            if owner.shard != self.id && self.credit[peer] <= 0 {
                self.credit_waiters[peer].push(client.id);
                client.parked = Parked::Credit;
                return Step::Parked;
            }
        }
        let id = LendId(self.next_lend);
        self.next_lend += 1;
        let (mut text, mut ranges) = (Vec::new(), Vec::new());
        copy_args(plan.args, &mut text, &mut ranges);
        let sequence = client.next_sequence();
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: false });
        client.n_lends += 1;
        client.is_exec_rebinding |= plan.multi.as_ref().is_some_and(|multi| multi.changes_connection());
        client.lend_command = Some(plan.row.command);
        if plan.mode == HoldMode::Exclusive {
            for key in &plan.keys {
                client.lent.insert(self.server.hash_key(key));
            }
        }
        self.observed.is_elsewhere = true;
        self.lend_counts.started += 1;
        self.lend_counts.whole += u64::from(plan.mode == HoldMode::Whole);
        WorkerStats::add(&self.server.workers[usize::from(self.id.0)].lends, 1);

        // The own shard first: if it refuses, nobody else need be asked.
        let mut is_refused = false;
        let mut is_touched = false;
        if let Some(own) = owners.iter_mut().find(|owner| owner.shard == self.id) {
            let server = &self.server;
            let keys = own.keys.iter().map(|key| server.hash_key(key));
            match self.holds.ask((self.id, id), plan.mode, false, keys) {
                Admission::Granted => {
                    own.is_granted = true;
                    is_touched = own.has_watches && self.shard.is_touched(client.id, self.now_ms);
                }
                Admission::Refused | Admission::Waits => is_refused = true,
            }
        }
        let mut n_asked = 0;
        if !is_refused {
            for owner in &owners {
                if owner.shard == self.id {
                    continue;
                }
                self.send_ask(owner, id, client.id, plan.mode, Round::Try);
                n_asked += 1;
            }
        }
        let lend = Lend {
            client: client.id,
            sequence,
            db: client.db,
            touch: client.touch,
            proto: client.proto,
            row: plan.row,
            text,
            ranges,
            multi: plan.multi,
            mode: plan.mode,
            owners,
            n_asked,
            next_owner: 0,
            round: Round::Try,
            is_refused,
            is_touched,
            watch_mask: plan.watch_mask,
            now_ms: self.now_ms,
            purpose: Purpose::Request,
            wait: None,
            is_tracked: client.notes_reads(),
        };
        self.lends.insert(id, lend);
        if n_asked == 0 {
            // Refused at home (all granted at home is no lend): the ordered round, once this client's turn has come.
            self.begin_ordered_round(id, Some(client));
        }
        Step::Done
    }

    fn owners_of(&self, plan: &LendPlan<'_>) -> Vec<Owner> {
        self.owners_of_keys(&plan.keys, plan.mode, plan.watch_mask)
    }

    pub(super) fn owners_of_keys(&self, keys: &[&[u8]], mode: HoldMode, watch_mask: u64) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        let owner_at = |owners: &mut Vec<Owner>, shard: ShardId| -> usize {
            owners.iter().position(|owner| owner.shard == shard).unwrap_or_else(|| {
                owners.push(Owner::new(shard));
                owners.len() - 1
            })
        };
        if mode == HoldMode::Whole {
            for shard in 0..self.n_shards() {
                owner_at(&mut owners, ShardId(shard as u8));
            }
        }
        if mode != HoldMode::Whole {
            for key in keys {
                let at = owner_at(&mut owners, self.server.shard_of(key));
                owners[at].keys.push(Box::from(*key));
            }
        }
        for shard in 0..self.n_shards() {
            if watch_mask & (1 << shard) != 0 {
                let at = owner_at(&mut owners, ShardId(shard as u8));
                owners[at].has_watches = true;
            }
        }
        owners.sort_by_key(|owner| owner.shard);
        owners
    }

    pub(super) fn send_ask(
        &mut self,
        owner: &Owner,
        id: LendId,
        client: ClientId,
        mode: HoldMode,
        round: Round,
    ) {
        let peer = usize::from(owner.shard.0);
        // An ordered ask goes below zero: it waits for no credit, as others may wait for it.
        self.credit[peer] -= 1;
        let keys = owner.keys.iter().map(|key| &**key);
        self.outboxes[peer].push_ask(id, client, mode, round, owner.has_watches, keys);
    }

    pub(super) fn own_grant(&mut self, id: LendId) {
        let Some(lend) = self.lends.get_mut(&id) else { return };
        let client = lend.client;
        let mut has_watches = false;
        for owner in lend.owners.iter_mut().filter(|owner| owner.shard == self.id) {
            owner.is_granted = true;
            has_watches = owner.has_watches;
        }
        lend.is_touched |= has_watches && self.shard.is_touched(client, self.now_ms);
        self.after_answer(id);
    }

    pub(super) fn take_grant(
        &mut self,
        id: LendId,
        from: ShardId,
        is_touched: bool,
        now_ms: i64,
        loans: Vec<(u32, DbIndex)>,
        entries: Vec<Entry>,
        shard: Option<Box<Shard>>,
    ) {
        let lend = self.lends.get_mut(&id).expect("a grant answers a lend in flight");
        lend.n_asked -= 1;
        lend.is_touched |= is_touched;
        // One `now` for the command: the latest of the grants.
        lend.now_ms = lend.now_ms.max(now_ms);
        let owner = lend.owners.iter_mut().find(|owner| owner.shard == from).expect("it was asked");
        owner.is_granted = true;
        owner.loans = loans;
        owner.entries = entries;
        owner.whole = shard;
        self.after_answer(id);
    }

    pub(super) fn take_refusal(&mut self, id: LendId, _from: ShardId) {
        if let Some(half) = self.halves.remove(&id) {
            self.lend_instead(id, half);
            return;
        }
        let lend = self.lends.get_mut(&id).expect("a refusal answers a lend in flight");
        lend.n_asked -= 1;
        lend.is_refused = true;
        self.after_answer(id);
    }

    /// An owner has answered: run, wait for the others, or go to the next round.
    fn after_answer(&mut self, id: LendId) {
        let lend = &self.lends[&id];
        if lend.n_asked > 0 {
            return;
        }
        match lend.round {
            Round::Try if lend.is_refused => self.begin_ordered_round(id, None),
            Round::Try => self.complete(id),
            Round::Wait => self.ask_next_owner(id),
        }
    }

    /// Gives back what the first round brought and asks again, in ascending order, when the client's turn has come.
    pub(super) fn begin_ordered_round(&mut self, id: LendId, running: Option<&Client>) {
        self.lend_counts.second_rounds += 1;
        WorkerStats::add(&self.server.workers[usize::from(self.id.0)].lend_retries, 1);
        let mut lend = self.lends.remove(&id).expect("in flight");
        self.give_all_back(id, &mut lend, &[]);
        lend.round = Round::Wait;
        lend.is_refused = false;
        lend.next_owner = 0;
        let (client, sequence) = (lend.client, lend.sequence);
        self.lends.insert(id, lend);
        let front = match running {
            Some(client) => Some(client.front),
            None => self.clients.get_mut(client).map(|client| client.front),
        };
        if front.is_none_or(|front| front == sequence) {
            self.ask_next_owner(id);
        } else {
            self.waiting_front.insert((client, sequence), id);
        }
    }

    /// The ordered round: asks the next owner, or completes when all have granted.
    pub(super) fn ask_next_owner(&mut self, id: LendId) {
        loop {
            let Some(mut lend) = self.lends.remove(&id) else { return };
            let at = lend.next_owner;
            if at == lend.owners.len() {
                self.lends.insert(id, lend);
                self.complete(id);
                return;
            }
            lend.next_owner += 1;
            let (mode, client) = (lend.mode, lend.client);
            if lend.owners[at].shard != self.id {
                lend.n_asked = 1;
                self.send_ask(&lend.owners[at], id, client, mode, Round::Wait);
                self.lends.insert(id, lend);
                return;
            }
            let own = &mut lend.owners[at];
            let keys: Vec<u64> = own.keys.iter().map(|key| self.server.hash_key(key)).collect();
            let mut freed = Vec::new();
            let admission = self.ask_own(client, id, mode, Round::Wait, &keys, &mut freed);
            own.is_granted = admission == Admission::Granted;
            let is_granted = own.is_granted;
            lend.is_touched |= is_granted && own.has_watches && self.shard.is_touched(client, self.now_ms);
            self.lends.insert(id, lend);
            self.run_freed(freed);
            if !is_granted {
                return;
            }
        }
    }

    /// All is granted: adopt, run, return, answer.
    pub(super) fn complete(&mut self, id: LendId) {
        let mut lend = self.lends.remove(&id).expect("in flight");
        let mut client = match self.clients.take(lend.client) {
            Some(client) => client,
            // The client is gone: what it asked for happens all the same.
            None => {
                let mut stand_in = Box::new(Client::new(lend.client, 0, self.now_ms));
                (stand_in.db, stand_in.proto) = (lend.db, lend.proto);
                stand_in
            }
        };
        let is_there = client.number != 0;
        let is_wanted = lend.is_wanted(&client);
        let mut out = Vec::new();
        let now_ms = self.now_ms;
        self.now_ms = now_ms.max(lend.now_ms);
        // The shards stand outside the guarded call: a panic must not drop them.
        let mut shards: Vec<(ShardId, Box<Shard>)> =
            lend.owners.iter_mut().filter_map(|owner| Some((owner.shard, owner.whole.take()?))).collect();
        let (started, is_exec) = (Instant::now(), lend.multi.is_some());
        self.is_queue_tracked = lend.is_tracked;
        let outcome = catch_unwind(AssertUnwindSafe(|| match lend.mode {
            _ if !is_wanted => Vec::new(),
            HoldMode::Whole => {
                self.run_whole(&mut client, &mut lend, &mut shards, &mut out);
                Vec::new()
            }
            HoldMode::Shared | HoldMode::Exclusive => self.run_lent(&mut client, &mut lend, &mut out),
        }));
        if !is_exec && lend.is_tracked {
            self.note_reads(lend.client, lend.row, Args::new(&lend.text, &lend.ranges), &mut shards);
        }
        if is_exec && !self.monitors.is_empty() {
            let call = Call::of(lend.row, lend.client, lend.db);
            self.show_call(&call, Args::new(&lend.text, &lend.ranges));
        }
        if !is_exec {
            let ns = Some(started.elapsed().as_nanos() as u64);
            let call = Call { ns, reply_bytes: out.len(), ..Call::of(lend.row, lend.client, lend.db) };
            self.look_at_call(&call, &Argv::Sent(Args::new(&lend.text, &lend.ranges)));
        }
        self.now_ms = now_ms;
        if outcome.is_err() {
            self.sort_shards(&mut shards);
        }
        for (id, shard) in shards {
            let owner = lend.owners.iter_mut().find(|owner| owner.shard == id);
            owner.expect("it came from there").whole = Some(shard);
        }
        let changes = match outcome {
            Ok(changes) => changes,
            Err(panic) => {
                self.note_panic(lend.row.command.name, &*panic);
                out.clear();
                Reply::new(&mut out, lend.proto).error(INTERNAL_ERROR);
                client.closing = Closing::AfterReplies;
                // The guard: whatever is still here goes home.
                self.collect_guests(&mut lend);
                self.shard.end_guests()
            }
        };
        client.n_lends -= u32::from(is_there);
        if client.n_lends == 0 {
            client.is_exec_rebinding = false;
        }
        if lend.mode == HoldMode::Exclusive {
            for key in lend.owners.iter().flat_map(|owner| &owner.keys) {
                client.lent.remove(&self.server.hash_key(key));
            }
        }
        let is_answered = !is_there || self.settle_waits(&mut client, &mut lend, &mut out);
        // What a transaction has published follows its reply.
        let published = std::mem::take(&mut self.deliveries);
        let invalidations = std::mem::take(&mut self.shard.tracking.invalidations);
        if is_there {
            self.settle(client);
        }
        if let Some(own) = lend.owners.iter().find(|owner| owner.shard == self.id) {
            self.serve_blocked_on(lend.mode, &own.keys);
        }
        self.give_all_back(id, &mut lend, &changes);
        self.end_watches(lend.client, lend.watch_mask);
        if is_answered {
            self.answer(lend.client, lend.sequence, &out);
        }
        self.deliveries.extend(published);
        self.shard.tracking.invalidations.extend(invalidations);
        self.send_deliveries();
    }

    /// What the lend means for a client that is blocked, or is to be; false if it is not answered yet.
    fn settle_waits(&mut self, client: &mut Client, lend: &mut Lend, out: &mut Vec<u8>) -> bool {
        if lend.purpose == Purpose::Call {
            return self.settle_call(client, lend, out) == Called::Answered;
        }
        match lend.wait.take() {
            Some(wait) => {
                self.block_lent(client, lend, &wait);
                false
            }
            None => true,
        }
    }

    /// The other half was refused: the command becomes a lend in its ordered round.
    pub(super) fn lend_instead(&mut self, id: LendId, half: Half) {
        self.release_half(&half);
        let HalfBuffers { text, ranges, .. } = half.buffers;
        let args = Args::new(&text, &ranges);
        let keys = Self::keys_of(half.row, args);
        let plan = LendPlan { row: half.row, args, multi: None, mode: half.mode, keys, watch_mask: 0 };
        let owners = self.owners_of(&plan);
        let lend = Lend {
            client: half.client,
            sequence: half.sequence,
            db: half.db,
            touch: half.touch,
            proto: half.proto,
            row: half.row,
            text,
            ranges,
            multi: None,
            mode: half.mode,
            owners,
            n_asked: 0,
            next_owner: 0,
            round: Round::Try,
            is_refused: true,
            is_touched: false,
            watch_mask: 0,
            now_ms: self.now_ms,
            purpose: Purpose::Request,
            wait: None,
            is_tracked: half.is_tracked,
        };
        self.lends.insert(id, lend);
        self.begin_ordered_round(id, None);
    }

    /// Everything that was granted goes home; waiters of the own shard run.
    fn give_all_back(&mut self, id: LendId, lend: &mut Lend, changes: &[(DbIndex, Box<[u8]>)]) {
        let mut own_keys = None;
        for owner in lend.owners.iter_mut().filter(|owner| owner.is_granted) {
            owner.is_granted = false;
            if owner.shard == self.id {
                own_keys = Some(&owner.keys);
                continue;
            }
            let outbox = &mut self.outboxes[usize::from(owner.shard.0)];
            if lend.mode == HoldMode::Shared {
                // Given back unread (first round): the pointers are dropped, the entries never left.
                owner.entries.clear();
                owner.loans.clear();
            }
            outbox.entries.append(&mut owner.entries);
            outbox.shards.extend(owner.whole.take());
            let server = &self.server;
            let theirs = changes
                .iter()
                .filter(|(_, key)| server.shard_of(key) == owner.shard)
                .map(|(db, key)| (*db, &**key));
            outbox.push_return(id, lend.mode, &owner.loans, theirs);
            owner.loans.clear();
        }
        if let Some(keys) = own_keys {
            let mut freed = Vec::new();
            let server = &self.server;
            self.holds.release(lend.mode, keys.iter().map(|key| server.hash_key(key)), &mut freed);
            self.run_freed(freed);
        }
    }
}

impl Owner {
    fn new(shard: ShardId) -> Self {
        Self {
            shard,
            keys: Vec::new(),
            has_watches: false,
            is_granted: false,
            loans: Vec::new(),
            entries: Vec::new(),
            whole: None,
        }
    }
}
