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

use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::ArgRange;

use super::gate::copy_args;
use super::halves::Half;
use super::inbox::{LaneAsk, LaneItem};
use super::{INTERNAL_ERROR, Node, Step};
use crate::args::Args;
use crate::client::{Client, ClientId, Closing, Multi, Parked, Slot};
use crate::command::{Caller, Handler, ShardHandler};
use crate::commands::Row;
use crate::keyspace::{Entry, Key};
use crate::lend::holds::Admission;
use crate::message::{Changes, HoldMode, LendId, Round};
use crate::server::WorkerStats;
use crate::shard::{DbIndex, Shard, ShardId};

/// The owner's record of an ask that is granted or waits.
pub(super) struct Ask {
    mode: HoldMode,
    client: ClientId,
    has_watches: bool,
    keys: Vec<Box<[u8]>>,
    is_granted: bool,
}

/// The coordinator's record.
pub(super) struct Lend {
    client: ClientId,
    sequence: u32,
    db: DbIndex,
    proto: Proto,
    row: &'static Row,
    text: Vec<u8>,
    ranges: Vec<ArgRange>,
    /// The queue of an EXEC.
    multi: Option<Box<Multi>>,
    mode: HoldMode,
    owners: Vec<Owner>,
    /// Answers outstanding in the first round.
    n_asked: usize,
    /// Index into `owners` of the one asked in the ordered round.
    next_owner: usize,
    round: Round,
    is_refused: bool,
    is_touched: bool,
    /// Shards with watches of the client. They end when the lend has run: between two rounds a watched key may still change.
    watch_mask: u64,
    now_ms: i64,
}

struct Owner {
    shard: ShardId,
    keys: Vec<Box<[u8]>>,
    has_watches: bool,
    is_granted: bool,
    /// (key index, database) and entry, both in the owner's order.
    loans: Vec<(u32, DbIndex)>,
    entries: Vec<Entry>,
    whole: Option<Box<Shard>>,
}

impl Lend {
    pub(super) fn is_whole(&self) -> bool {
        self.mode == HoldMode::Whole
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
        };
        self.lends.insert(id, lend);
        if n_asked == 0 {
            // Refused at home (all granted at home is no lend): the ordered round, once this client's turn has come.
            self.begin_ordered_round(id, Some(client));
        }
        Step::Done
    }

    fn owners_of(&self, plan: &LendPlan<'_>) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        let owner_at = |owners: &mut Vec<Owner>, shard: ShardId| -> usize {
            owners.iter().position(|owner| owner.shard == shard).unwrap_or_else(|| {
                owners.push(Owner::new(shard));
                owners.len() - 1
            })
        };
        if plan.mode == HoldMode::Whole {
            for shard in 0..self.n_shards() {
                owner_at(&mut owners, ShardId(shard as u8));
            }
        }
        if plan.mode != HoldMode::Whole {
            for key in &plan.keys {
                let at = owner_at(&mut owners, self.server.shard_of(key));
                owners[at].keys.push(Box::from(*key));
            }
        }
        for shard in 0..self.n_shards() {
            if plan.watch_mask & (1 << shard) != 0 {
                let at = owner_at(&mut owners, ShardId(shard as u8));
                owners[at].has_watches = true;
            }
        }
        owners.sort_by_key(|owner| owner.shard);
        owners
    }

    fn send_ask(&mut self, owner: &Owner, id: LendId, client: ClientId, mode: HoldMode, round: Round) {
        let peer = usize::from(owner.shard.0);
        // An ordered ask goes below zero: it waits for no credit, as others may wait for it.
        self.credit[peer] -= 1;
        let keys = owner.keys.iter().map(|key| &**key);
        self.outboxes[peer].push_ask(id, client, mode, round, owner.has_watches, keys);
    }

    // ---- the owner's side ----

    pub(super) fn take_ask(&mut self, client: ClientId, round: Round, ask: LaneAsk) {
        match (self.lanes.get_mut(&client), round) {
            (Some(_), Round::Try) => self.outboxes[usize::from(ask.from.0)].push_refuse(ask.lend),
            (Some(lane), Round::Wait) => lane.push_back(LaneItem::Ask(ask)),
            (None, _) => self.admit_ask(client, round, ask),
        }
    }

    pub(super) fn admit_ask(&mut self, client: ClientId, round: Round, ask: LaneAsk) {
        let LaneAsk { from, lend, mode, has_watches, keys } = ask;
        let server = &self.server;
        let hashes = keys.iter().map(|key| server.hash_key(key));
        let admission = self.holds.ask((from, lend), mode, round == Round::Wait, hashes);
        if admission == Admission::Refused {
            self.outboxes[usize::from(from.0)].push_refuse(lend);
            return;
        }
        self.asks.insert((from, lend), Ask { mode, client, has_watches, keys, is_granted: false });
        if admission == Admission::Granted {
            self.grant(from, lend);
        }
    }

    /// The keys are held for the lend: send the entries, or go on if the lend is our own.
    pub(super) fn grant(&mut self, to: ShardId, lend: LendId) {
        if to == self.id {
            self.own_grant(lend);
            return;
        }
        let Some(ask) = self.asks.get_mut(&(to, lend)) else { return };
        ask.is_granted = true;
        let (mode, client, has_watches) = (ask.mode, ask.client, ask.has_watches);
        let keys = std::mem::take(&mut ask.keys);
        let is_touched = has_watches && self.shard.is_touched(client, self.now_ms);
        let outbox = &mut self.outboxes[usize::from(to.0)];
        let mut loans = Vec::new();
        if mode == HoldMode::Whole {
            // Empty, but with its databases: lends of keys of other shards run here meanwhile, on their guests alone.
            let stand_in = Box::new(Shard::new(self.id, self.shard.n_databases(), self.server.seed, 0));
            outbox.shards.push(std::mem::replace(&mut self.shard, stand_in));
            self.unwatches_while_away = Some(Vec::new());
            self.shard_trips += 1;
        } else {
            for (index, name) in keys.iter().enumerate() {
                let key = Key { bytes: name, hash: self.server.hash_key(name) };
                for db in 0..self.shard.n_databases() {
                    let db = DbIndex(db as u16);
                    let keyspace = self.shard.keyspace(db);
                    if keyspace.is_empty() {
                        continue;
                    }
                    let entry = match mode {
                        HoldMode::Shared => keyspace.share(&key, self.now_ms),
                        HoldMode::Exclusive | HoldMode::Whole => keyspace.take(&key),
                    };
                    if let Some(entry) = entry {
                        outbox.entries.push(entry);
                        loans.push((index as u32, db));
                    }
                }
            }
        }
        outbox.push_grant(lend, is_touched, self.now_ms, &loans);
        self.asks.get_mut(&(to, lend)).expect("seen above").keys = keys;
    }

    /// Loans come home.
    pub(super) fn take_return(
        &mut self,
        from: ShardId,
        lend: LendId,
        loans: &[(u32, DbIndex)],
        returned: Vec<Entry>,
        shard: Option<Box<Shard>>,
        changed: Changes<'_>,
    ) {
        let Some(ask) = self.asks.remove(&(from, lend)) else { return };
        debug_assert!(ask.is_granted, "only what was granted comes back");
        match ask.mode {
            HoldMode::Whole => {
                let shard = shard.expect("a whole-shard lend returns the shard");
                let stand_in = std::mem::replace(&mut self.shard, shard);
                self.shard.stats.add(&stand_in.stats);
                for client in self.unwatches_while_away.take().unwrap_or_default() {
                    self.unwatch_here(client);
                }
            }
            HoldMode::Shared => debug_assert!(returned.is_empty(), "shared entries stay with their owner"),
            HoldMode::Exclusive => self.take_home(&ask.keys, loans, returned),
        }
        for (db, key) in changed {
            self.shard.touch_watchers(db, key, false);
        }
        let mut freed = Vec::new();
        let server = &self.server;
        self.holds.release(ask.mode, ask.keys.iter().map(|key| server.hash_key(key)), &mut freed);
        if ask.mode == HoldMode::Shared {
            self.end_sharing(&ask.keys);
        }
        self.run_freed(freed);
    }

    /// The entries that nobody reads in place any more may change and expire again.
    fn end_sharing(&mut self, keys: &[Box<[u8]>]) {
        for name in keys {
            if self.holds.is_shared(self.server.hash_key(name)) {
                continue;
            }
            let key = Key { bytes: name, hash: self.server.hash_key(name) };
            for db in 0..self.shard.n_databases() {
                self.shard.keyspace(DbIndex(db as u16)).end_sharing(&key);
            }
        }
    }

    fn take_home(&mut self, keys: &[Box<[u8]>], loans: &[(u32, DbIndex)], returned: Vec<Entry>) {
        // In the order of the keys and, for one key, of the databases: so `grant` and `collect_guests` walk.
        let mut returned = loans.iter().zip(returned).peekable();
        for (index, name) in keys.iter().enumerate() {
            let key = Key { bytes: name, hash: self.server.hash_key(name) };
            for db in 0..self.shard.n_databases() {
                let db = DbIndex(db as u16);
                let entry =
                    returned.next_if(|((i, d), _)| *i as usize == index && *d == db).map(|(_, entry)| entry);
                self.shard.keyspace(db).take_home(&key, entry);
            }
        }
        debug_assert!(returned.next().is_none(), "a loan came home out of order");
    }

    // ---- the coordinator's side ----

    fn own_grant(&mut self, id: LendId) {
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
    fn begin_ordered_round(&mut self, id: LendId, running: Option<&Client>) {
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
            let server = &self.server;
            let keys = own.keys.iter().map(|key| server.hash_key(key));
            let admission = self.holds.ask((self.id, id), mode, true, keys);
            own.is_granted = admission == Admission::Granted;
            let is_granted = own.is_granted;
            lend.is_touched |= is_granted && own.has_watches && self.shard.is_touched(client, self.now_ms);
            self.lends.insert(id, lend);
            if !is_granted {
                return;
            }
        }
    }

    /// All is granted: adopt, run, return, answer.
    fn complete(&mut self, id: LendId) {
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
        let mut out = Vec::new();
        let now_ms = self.now_ms;
        self.now_ms = now_ms.max(lend.now_ms);
        // The shards stand outside the guarded call: a panic must not drop them.
        let mut shards: Vec<(ShardId, Box<Shard>)> =
            lend.owners.iter_mut().filter_map(|owner| Some((owner.shard, owner.whole.take()?))).collect();
        let outcome = catch_unwind(AssertUnwindSafe(|| match lend.mode {
            HoldMode::Whole => {
                self.run_whole(&mut client, &mut lend, &mut shards, &mut out);
                Vec::new()
            }
            HoldMode::Shared | HoldMode::Exclusive => self.run_lent(&mut client, &mut lend, &mut out),
        }));
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
        if is_there {
            self.settle(client);
        }
        self.give_all_back(id, &mut lend, &changes);
        self.end_watches(lend.client, lend.watch_mask);
        self.answer(lend.client, lend.sequence, &out);
    }

    /// The other half was refused: the command becomes a lend in its ordered round.
    pub(super) fn lend_instead(&mut self, id: LendId, half: Half) {
        self.release_half(&half);
        let args = Args::new(&half.text, &half.ranges);
        let keys = Self::keys_of(half.row, args);
        let plan = LendPlan { row: half.row, args, multi: None, mode: half.mode, keys, watch_mask: 0 };
        let owners = self.owners_of(&plan);
        let lend = Lend {
            client: half.client,
            sequence: half.sequence,
            db: half.db,
            proto: half.proto,
            row: half.row,
            text: half.text,
            ranges: half.ranges,
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
        };
        self.lends.insert(id, lend);
        self.begin_ordered_round(id, None);
    }

    /// After a panic: every shard to its place, and every key to its shard.
    #[cold]
    fn sort_shards(&mut self, shards: &mut [(ShardId, Box<Shard>)]) {
        for (place, shard) in shards.iter_mut() {
            if shard.id == self.id && self.shard.id == *place {
                std::mem::swap(&mut self.shard, shard);
            }
        }
        for db in 0..self.shard.n_databases() {
            let db = DbIndex(db as u16);
            let server = self.server.clone();
            let entries = self.shard.keyspaces()[db.0 as usize].iter();
            let guests = entries.filter(|entry| server.shard_of(entry.key()) != self.id);
            let guests: Vec<Box<[u8]>> = guests.map(|entry| entry.key().into()).collect();
            for name in guests {
                let key = Key { bytes: &name, hash: self.server.hash_key(&name) };
                let home = shards.iter_mut().find(|(place, _)| *place == self.server.shard_of(&name));
                if let (Some(entry), Some((_, home))) = (self.shard.keyspace(db).remove(&key), home) {
                    home.keyspace(db).adopt(key.hash, entry);
                }
            }
        }
    }

    /// Runs the handler (or the EXEC queue) on the own keyspace with the lent entries in it.
    fn run_lent(
        &mut self,
        client: &mut Box<Client>,
        lend: &mut Lend,
        out: &mut Vec<u8>,
    ) -> Vec<(DbIndex, Box<[u8]>)> {
        self.shard.begin_guests();
        for owner in lend.owners.iter_mut().filter(|owner| owner.shard != self.id) {
            let entries = std::mem::take(&mut owner.entries);
            let mut kept = Vec::with_capacity(entries.len());
            for (loan, entry) in std::mem::take(&mut owner.loans).into_iter().zip(entries) {
                let name = &owner.keys[loan.0 as usize];
                let key = Key { bytes: name, hash: self.server.hash_key(name) };
                self.shard.keyspace(loan.1).adopt(key.hash, entry);
                kept.push(loan);
            }
            owner.loans = kept;
        }
        if let Some(multi) = lend.multi.take() {
            if lend.is_touched {
                Self::answer_touched(client, &multi, lend.proto, out);
            } else {
                self.run_queue_as_sent(client, (lend.db, lend.proto), *multi, &mut [], out);
            }
        } else {
            let Handler::Shard(handler) = lend.row.command.handler else {
                panic!("'{}' is not lent keys", lend.row.command.name)
            };
            let args = Args::new(&lend.text, &lend.ranges);
            self.shard_into(handler, Caller { client: lend.client, db: lend.db }, lend.proto, out, args);
        }
        self.collect_guests(lend);
        self.shard.end_guests()
    }

    /// Takes the lent entries out of the own keyspace again; those that the handler deleted are gone.
    fn collect_guests(&mut self, lend: &mut Lend) {
        let is_shared = lend.mode == HoldMode::Shared;
        for owner in lend.owners.iter_mut().filter(|owner| owner.shard != self.id) {
            if is_shared {
                for (index, db) in std::mem::take(&mut owner.loans) {
                    let name = &owner.keys[index as usize];
                    let key = Key { bytes: name, hash: self.server.hash_key(name) };
                    // An alias: what it points at has never left its owner.
                    drop(self.shard.keyspace(db).remove(&key));
                }
                continue;
            }
            owner.loans.clear();
            if lend.mode != HoldMode::Exclusive {
                continue;
            }
            for (index, name) in owner.keys.iter().enumerate() {
                let key = Key { bytes: name, hash: self.server.hash_key(name) };
                for db in 0..self.shard.n_databases() {
                    let db = DbIndex(db as u16);
                    if self.shard.keyspace(db).is_empty() {
                        continue;
                    }
                    if let Some(entry) = self.shard.keyspace(db).remove(&key) {
                        owner.loans.push((index as u32, db));
                        owner.entries.push(entry);
                    }
                }
            }
        }
    }

    /// Runs a `Whole` handler, or an EXEC that needs every shard, on all shards in turn.
    fn run_whole(
        &mut self,
        client: &mut Box<Client>,
        lend: &mut Lend,
        shards: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        if let Some(multi) = lend.multi.take() {
            match lend.is_touched {
                true => Self::answer_touched(client, &multi, lend.proto, out),
                false => self.run_queue_as_sent(client, (lend.db, lend.proto), *multi, shards, out),
            }
            return;
        }
        let Handler::Whole(handler) = lend.row.command.handler else {
            panic!("'{}' does not take whole shards", lend.row.command.name)
        };
        let args = Args::new(&lend.text, &lend.ranges);
        let caller = Caller { client: lend.client, db: lend.db };
        let mut others: Vec<&mut Box<Shard>> = shards.iter_mut().map(|(_, shard)| shard).collect();
        self.on_all_shards(&mut others, handler, caller, lend.proto, out, args);
    }

    /// Runs a handler on the own shard and on `others`; the own shard's reply counts.
    pub(super) fn on_all_shards(
        &mut self,
        others: &mut [&mut Box<Shard>],
        handler: ShardHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        self.shard_into(handler, caller, proto, out, args);
        let mut ignored = Vec::new();
        for other in others {
            ignored.clear();
            std::mem::swap(&mut self.shard, *other);
            self.shard_into(handler, caller, proto, &mut ignored, args);
            std::mem::swap(&mut self.shard, *other);
        }
    }

    /// Runs a `Shard` handler into `out`.
    pub(super) fn shard_into(
        &mut self,
        handler: ShardHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        let outcome = handler(&mut ctx, args);
        if let Some(mut job) = ctx.job.take() {
            // Inside a transaction a long command runs through.
            out.truncate(start);
            ctx = ctx!(self, caller, out, proto);
            while !job.slice(&mut ctx) {}
            return;
        }
        if let Err(error) = outcome {
            self.fail_into(out, start, proto, &error);
        }
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
