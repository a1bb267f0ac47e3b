//! MULTI, EXEC, DISCARD, WATCH, UNWATCH, and the other commands that change how the dispatcher treats their client.
//!
//! EXEC of queued commands whose keys (and watched keys) all live here runs at once; else it is a lend of those keys, or of every
//! shard if a queued command has no keys of its own.

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use super::loans::LendPlan;
use super::observed::{Argv, Call};
use super::route::Step;
use super::wave::Admit;
use crate::args::Args;
use crate::client::{Client, Closing, Multi, Parked, Queued, ReplyMode};
use crate::command::{Caller, Flags, Flow, Handler, Merge};
use crate::commands::{KeyShape, Row, TABLE};
use crate::error::CommandError;
use crate::keyspace::{Key, Touch};
use crate::lend::holds::Who;
use crate::message::{HoldMode, ReplyTo};
use crate::shard::{DbIndex, Shard, ShardId};
use crate::vector;

impl Node {
    pub(super) fn run_flow(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        flow: Flow,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        match flow {
            Flow::Multi => {
                if client.multi.is_some() {
                    // Redis answers an error and the transaction goes on, unbroken.
                    self.answer_error(client, CommandError::text("ERR MULTI calls can not be nested"));
                } else {
                    client.multi = Some(Box::default());
                    self.reply_here(client, |reply| reply.ok());
                }
            }
            Flow::Exec => return self.run_exec(client, row, args, admit),
            Flow::Discard => {
                if client.multi.take().is_none() {
                    self.refuse(client, CommandError::text("ERR DISCARD without MULTI"));
                } else {
                    self.forget_watches(client);
                    self.reply_here(client, |reply| reply.ok());
                }
            }
            Flow::Watch => {
                if client.multi.is_some() {
                    self.answer_error(client, CommandError::text("ERR WATCH inside MULTI is not allowed"));
                } else {
                    return self.run_watch(client, row, args, admit);
                }
            }
            Flow::Unwatch => {
                self.forget_watches(client);
                self.reply_here(client, |reply| reply.ok());
            }
            Flow::Wait | Flow::WaitAof => return self.run_wait(client, row, flow, args),
            Flow::Quit => {
                self.reply_here(client, |reply| reply.ok());
                client.closing = Closing::AfterReplies;
            }
            Flow::Reset => {
                client.multi = None;
                self.forget_watches(client);
                client.db = DbIndex(0);
                client.proto = skerry_resp::reply::Proto::Resp2;
                if client.reply_mode != ReplyMode::Skip {
                    // After CLIENT REPLY SKIP, RESET is the request whose reply is left out.
                    client.reply_mode = ReplyMode::On;
                }
                client.is_no_evict = false;
                client.touch = Touch::Marks;
                self.unsubscribe_all(client);
                self.untrack(client);
                self.end_monitor(client);
                client.name.clear();
                self.server.connections.rename(client.id, b"");
                client.is_authenticated = self.config.requirepass.is_empty();
                self.reply_here(client, |reply| reply.simple("RESET"));
            }
        }
        Step::Done
    }

    /// Answers an error that breaks no transaction.
    fn answer_error(&mut self, client: &mut Client, error: CommandError) {
        self.note_failure(&error);
        self.reply_here(client, |reply| reply.error(error.wire()));
    }

    pub(super) fn forget_watches(&mut self, client: &mut Client) {
        let mask = std::mem::take(&mut client.watch_mask);
        client.watched.clear();
        if mask != 0 {
            self.end_watches(client.id, mask);
        }
    }

    /// WATCH: a part on every owner of a key.
    fn run_watch(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        let mut mask = 0u64;
        for key in args.from(1) {
            mask |= 1 << self.server.shard_of(key).0;
        }
        if let Some(step) = self.wait_for_lent(client, row, args, mask, admit) {
            return step;
        }
        if let Some(step) = self.may_gather(client, row, mask, admit) {
            return step;
        }
        client.watch_mask |= mask;
        client.watched.extend(args.from(1).map(Box::from));
        let caller = client.caller();
        let own = 1u64 << self.id.0;
        if mask & own != 0 {
            self.watch_here(caller, args.from(1));
        }
        if mask & !own == 0 {
            self.reply_here(client, |reply| reply.ok());
            return Step::Done;
        }
        let peers = (mask & !own).count_ones() as usize;
        let id = self.open_gather(client, args, Merge::AllSucceeded, peers);
        for shard in 0..self.n_shards() {
            if mask & !own & (1 << shard) != 0 {
                self.push_request(ShardId(shard as u8), ReplyTo::Gather { id }, client, row, args);
            }
        }
        Step::Done
    }

    /// `Some` if keys of this shard are lent: their changes, which come home with them, are older than the watch.
    fn wait_for_lent(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        args: Args<'_>,
        mask: u64,
        admit: Admit,
    ) -> Option<Step> {
        if self.holds.is_idle() || admit == Admit::First {
            return None;
        }
        if !self.may_go(client, row, mask) {
            client.parked = Parked::Order;
            return Some(Step::Parked);
        }
        let server = self.server.clone();
        let own = self.id;
        let own_keys =
            || args.from(1).filter(|key| server.shard_of(key) == own).map(|key| server.hash_key(key));
        if self.holds.admits(HoldMode::Shared, own_keys()) {
            return None;
        }
        self.holds.wait(Who::Request(client.id), HoldMode::Shared, own_keys());
        client.parked = Parked::Hold;
        Some(Step::Parked)
    }

    /// Registers the watches of this shard's keys among `keys`.
    pub(super) fn watch_here<'a>(&mut self, caller: Caller, keys: impl Iterator<Item = &'a [u8]>) {
        for bytes in keys {
            if self.server.shard_of(bytes) == self.id {
                let key = Key { bytes, hash: self.server.hash_key(bytes) };
                self.shard.watch(caller.client, caller.db, key, self.now_ms);
            }
        }
    }

    fn run_exec(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        let Some(multi) = client.multi.as_ref() else {
            self.refuse(client, CommandError::text("ERR EXEC without MULTI"));
            return Step::Done;
        };
        if multi.is_broken {
            client.multi = None;
            self.forget_watches(client);
            self.answer_error(
                client,
                CommandError::text("EXECABORT Transaction discarded because of previous errors."),
            );
            return Step::Done;
        }
        if self.n_shards() == 1 {
            if self.waits_for_all(client, admit) {
                return Step::Parked;
            }
            let multi = client.multi.take().expect("seen above");
            self.exec_here(client, *multi);
            return Step::Done;
        }
        let multi = client.multi.take().expect("seen above");
        let is_whole = multi.queue.iter().any(|queued| match queued.command.handler {
            Handler::Split(..) | Handler::Whole(_) | Handler::Cursor(_) => true,
            Handler::Roaming(_, roams) => roams(queued.args()),
            Handler::Script(script) => self.takes_all_shards(script, queued.args()),
            _ => false,
        });
        let watched = std::mem::take(&mut client.watched);
        let mut keys: Vec<&[u8]> = watched.iter().map(|key| &**key).collect();
        for queued in &multi.queue {
            keys.extend(Self::keys_of(TABLE.row(queued.row), queued.args()));
        }
        keys.sort_unstable();
        keys.dedup();
        let is_local = !is_whole && keys.iter().all(|key| self.server.shard_of(key) == self.id);
        if is_local {
            let may_go = self.may_go(client, row, 1 << self.id.0)
                && client.n_unanswered_writes == 0
                && client.n_gathers == 0;
            let admits = admit == Admit::First
                || self.holds.admits(HoldMode::Exclusive, keys.iter().map(|key| self.server.hash_key(key)));
            if may_go && admits {
                drop(keys);
                self.exec_here(client, *multi);
                return Step::Done;
            }
            if may_go {
                let server = &self.server;
                self.holds.wait(
                    Who::Request(client.id),
                    HoldMode::Exclusive,
                    keys.iter().map(|key| server.hash_key(key)),
                );
            }
            client.parked = if may_go { Parked::Hold } else { Parked::Order };
            drop(keys);
            client.watched = watched;
            client.multi = Some(multi);
            return Step::Parked;
        }
        if !self.may_lend(client, row, keys.iter().map(|key| self.server.hash_key(key))) {
            client.parked = Parked::Order;
            drop(keys);
            client.watched = watched;
            client.multi = Some(multi);
            return Step::Parked;
        }
        self.exec_by_lend(client, row, args, multi, watched, is_whole)
    }

    fn exec_by_lend(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        multi: Box<Multi>,
        watched: Vec<Box<[u8]>>,
        is_whole: bool,
    ) -> Step {
        // The keys are named by the queue, which moves into the lend: they are copied.
        let mut names: Vec<Box<[u8]>> = watched.clone();
        for queued in &multi.queue {
            names.extend(Self::keys_of(TABLE.row(queued.row), queued.args()).into_iter().map(Box::from));
        }
        names.sort_unstable();
        names.dedup();
        let keys: Vec<&[u8]> = names.iter().map(|key| &**key).collect();
        let mode = if is_whole { HoldMode::Whole } else { HoldMode::Exclusive };
        let short_of_credit = (0..self.n_shards()).any(|shard| {
            shard != usize::from(self.id.0)
                && (is_whole || keys.iter().any(|key| usize::from(self.server.shard_of(key).0) == shard))
                && self.credit[shard] <= 0
        });
        if short_of_credit {
            for shard in 0..self.n_shards() {
                self.credit_waiters[shard].push(client.id);
            }
            client.parked = Parked::Credit;
            client.watched = watched;
            client.multi = Some(multi);
            return Step::Parked;
        }
        // CLIENT REPLY in the queue decides what is left out, when it runs; until then nothing else of this client does.
        client.is_reply_settled = multi.changes_connection();
        let watch_mask = std::mem::take(&mut client.watch_mask);
        self.lend(client, LendPlan { row, args, multi: Some(multi), mode, keys, watch_mask })
    }

    /// EXEC with everything on this shard.
    fn exec_here(&mut self, client: &mut Box<Client>, multi: Multi) {
        client.watched.clear();
        let mask = std::mem::take(&mut client.watch_mask);
        let is_touched = mask != 0 && self.shard.is_touched(client.id, self.now_ms);
        self.end_watches(client.id, mask);
        let mut out = Vec::new();
        if is_touched {
            Reply::new(&mut out, client.proto).null_array();
        } else {
            self.is_queue_tracked = client.notes_reads();
            self.run_queue_on_all(client, multi, &mut [], &mut out);
            client.is_reply_settled = true;
        }
        self.push_reply(client, &out);
        self.serve_blocked();
    }

    /// A watched key was touched: the queue of a lent EXEC does not run.
    pub(super) fn answer_touched(client: &mut Client, multi: &Multi, proto: Proto, out: &mut Vec<u8>) {
        if !multi.changes_connection() || client.reply_mode == ReplyMode::On {
            Reply::new(out, proto).null_array();
        } else if client.reply_mode == ReplyMode::Skip {
            client.reply_mode = ReplyMode::On;
        }
    }

    /// Runs the queue of an EXEC that was lent keys or shards, in the database and protocol in which it was sent: commands
    /// that came after it may have changed the client's, unless the queue itself changes them.
    pub(super) fn run_queue_as_sent(
        &mut self,
        client: &mut Box<Client>,
        (db, proto): (DbIndex, Proto),
        multi: Multi,
        shards: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let is_rebinding = multi.changes_connection();
        let now = (client.db, client.proto);
        (client.db, client.proto) = (db, proto);
        self.run_queue_on_all(client, multi, shards, out);
        if !is_rebinding {
            (client.db, client.proto) = now;
        }
    }

    /// Runs the queued commands on this shard's keyspace (and the guests in it); `shards` are the others, if they are here.
    fn run_queue_on_all(
        &mut self,
        client: &mut Box<Client>,
        multi: Multi,
        shards: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let before = client.reply_mode;
        if before == ReplyMode::On {
            Reply::new(out, client.proto).array(multi.queue.len());
        }
        client.is_executing = true;
        self.run_queue_unseen(client, &multi, shards, out);
        client.is_executing = false;
        client.reply_mode = match (before, client.reply_mode) {
            // It is the request behind EXEC whose reply is left out.
            (_, ReplyMode::SkipNext) => ReplyMode::Skip,
            (ReplyMode::Skip, ReplyMode::Skip) => ReplyMode::On,
            (_, now) => now,
        };
    }

    /// The same without what goes around it; no other worker sees a half of it.
    fn run_queue_unseen(
        &mut self,
        client: &mut Box<Client>,
        multi: &Multi,
        shards: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let writes_vectors =
            |queued: &&Queued| queued.command.is_write() && queued.command.flags.has(Flags::MODULE);
        if self.n_shards() == 1 || !multi.queue.iter().any(|queued| writes_vectors(&queued)) {
            multi.queue.iter().for_each(|queued| self.run_queued(client, queued, shards, out));
            return;
        }
        // Other workers search these sets without asking: not until they are all written.
        vector::withhold(|| {
            for queued in multi.queue.iter().filter(writes_vectors) {
                self.withdraw_keys(TABLE.row(queued.row), queued.args(), shards);
            }
            multi.queue.iter().for_each(|queued| self.run_queued(client, queued, shards, out));
        });
    }

    /// Withdraws the vector sets that a command is about to write, here and on `others`.
    pub(super) fn withdraw_keys(&self, row: &Row, args: Args<'_>, others: &[(ShardId, Box<Shard>)]) {
        row.command.for_each_key(args, |index, _| {
            let bytes = args.get(index);
            let key = Key { bytes, hash: self.server.hash_key(bytes) };
            vector::withdraw_for_transaction(&self.shard, key);
            others.iter().for_each(|(_, shard)| vector::withdraw_for_transaction(shard, key));
        });
    }

    /// One queued command: `others` are the other shards if the whole of them is here.
    fn run_queued(
        &mut self,
        client: &mut Box<Client>,
        queued: &Queued,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let row = TABLE.row(queued.row);
        client.last_command = Some(queued.command);
        self.running = row.id;
        let started = self.begin_call(row, queued.args().len());
        self.queue_writer = Some(client.id);
        let (start, before) = (out.len(), client.reply_mode);
        self.run_on_all(client, row, queued.args(), others, out);
        self.stats.count(row.id);
        if self.is_queue_tracked {
            self.note_reads(client.id, row, queued.args(), others);
        }
        if let Some(started) = started {
            let ns = Some(started.elapsed().as_nanos() as u64);
            let call = Call { ns, reply_bytes: out.len() - start, ..Call::of(row, client.id, client.db) };
            self.look_at_call(&call, &Argv::Sent(queued.args()));
        }
        // As in Redis, CLIENT REPLY holds from its place in the queue on: what EXEC announced does not come then.
        if matches!(before, ReplyMode::Off | ReplyMode::Skip) && client.reply_mode != ReplyMode::On {
            out.truncate(start);
        }
    }

    /// A command of a transaction or a script, on this shard and on `others` if they are here.
    pub(super) fn run_on_all(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
        out: &mut Vec<u8>,
    ) {
        let caller = client.caller();
        let proto = client.proto;
        match row.command.handler {
            Handler::Plain(_)
                if row.command.name == "ping" && client.subscribed.is_some() && proto == Proto::Resp2 =>
            {
                super::gate::pong_to_subscriber(&mut Reply::new(out, proto), args);
            }
            Handler::Conn(_) if row.command.name == "ssubscribe" => {
                self.fail_into(out, out.len(), proto, &SSUBSCRIBE_DENIED);
            }
            Handler::Plain(handler) => self.plain_into(handler, proto, out, args),
            Handler::Conn(handler) => self.conn_into(client, out, |conn| handler(conn, args)),
            Handler::Any(handler) => {
                self.with_keys_here(row, args, others, |node| {
                    node.any_at_owner(handler, caller, proto, out, args)
                });
            }
            Handler::Shard(handler) => {
                self.with_keys_here(row, args, others, |node| {
                    node.shard_into(handler, caller, proto, out, args)
                });
            }
            Handler::Roaming(handler, roams) if roams(args) => {
                self.roam_into(handler, caller, proto, out, args, others);
            }
            Handler::Roaming(handler, _) => {
                self.with_keys_here(row, args, others, |node| {
                    node.shard_into(handler, caller, proto, out, args)
                });
            }
            Handler::Cursor(handler) => {
                let shard = crate::commands::generic::shard_of_cursor(args, self.n_shards());
                self.with_shard(shard, others, |node| node.shard_into(handler, caller, proto, out, args));
            }
            Handler::Whole(handler) => {
                let mut shards: Vec<&mut Box<Shard>> = others.iter_mut().map(|(_, shard)| shard).collect();
                self.on_all_shards(&mut shards, handler, caller, proto, out, args);
            }
            Handler::Split(handler, merge) => {
                let part_proto = super::gather::part_proto(merge, proto);
                let mut parts = Vec::new();
                for shard in 0..self.n_shards() {
                    let mut part = Vec::new();
                    self.with_client_in_place(client, |node| {
                        node.with_shard(ShardId(shard as u8), others, |node| {
                            node.shard_into(handler, caller, part_proto, &mut part, args);
                        });
                    });
                    parts.push(part);
                }
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                self.merge_into(client, merge, &parts, args, out);
            }
            Handler::Script(script) => self.script_into(client, row, script, args, others, out, None),
            Handler::Flow(Flow::Unwatch) => Reply::new(out, proto).ok(),
            Handler::Flow(flow @ (Flow::Wait | Flow::WaitAof)) => {
                self.wait_for_nobody(flow, proto, out, args);
            }
            Handler::Flow(_) | Handler::Container | Handler::Words => {
                Reply::new(out, proto)
                    .error(format!("ERR '{}' cannot run in a transaction", row.command.name));
            }
        }
    }

    /// Runs with shard `id` in the place of the own one.
    fn with_shard(&mut self, id: ShardId, others: &mut [(ShardId, Box<Shard>)], run: impl FnOnce(&mut Self)) {
        let Some((_, other)) = others.iter_mut().find(|(shard, _)| *shard == id) else {
            run(self);
            return;
        };
        std::mem::swap(&mut self.shard, other);
        run(self);
        let Some((_, other)) = others.iter_mut().find(|(shard, _)| *shard == id) else { return };
        std::mem::swap(&mut self.shard, other);
    }

    /// Runs with all keys of the command in the shard in place: one owner's shard, or the own one with the others' entries in it.
    fn with_keys_here(
        &mut self,
        row: &Row,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
        run: impl FnOnce(&mut Self),
    ) {
        if others.is_empty() || row.shape == KeyShape::None {
            run(self);
            return;
        }
        if let Some(owner) = self.single_owner(row, args) {
            self.with_shard(owner, others, run);
            return;
        }
        let names: Vec<Box<[u8]>> = Self::keys_of(row, args).into_iter().map(Box::from).collect();
        self.move_keys(&names, others, Direction::Here);
        self.shard.begin_guests();
        run(self);
        let changes = self.shard.end_guests();
        self.move_keys(&names, others, Direction::Home);
        for (db, key) in &changes {
            let owner = self.server.shard_of(key);
            if let Some((_, other)) = others.iter_mut().find(|(shard, _)| *shard == owner) {
                if !other.take_guest_change(*db, key) {
                    continue;
                }
                let key = Key { bytes: key, hash: self.server.hash_key(key) };
                other.tracking.invalidate(&key, self.queue_writer);
            }
        }
    }

    /// Moves the entries of `names` between the shards at hand and the own one.
    fn move_keys(&mut self, names: &[Box<[u8]>], others: &mut [(ShardId, Box<Shard>)], direction: Direction) {
        for name in names {
            let owner = self.server.shard_of(name);
            let Some((_, other)) = others.iter_mut().find(|(shard, _)| *shard == owner) else { continue };
            let key = Key { bytes: name, hash: self.server.hash_key(name) };
            for db in 0..other.n_databases() {
                let db = DbIndex(db as u16);
                let (from, to) = match direction {
                    Direction::Here => (&mut *other, &mut self.shard),
                    Direction::Home => (&mut self.shard, &mut *other),
                };
                if let Some(entry) = from.keyspace(db).remove(&key) {
                    to.keyspace(db).adopt(key.hash, entry);
                }
            }
        }
    }
}

const SSUBSCRIBE_DENIED: CommandError =
    CommandError::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");

#[derive(Clone, Copy)]
enum Direction {
    Here,
    Home,
}

impl Queued {
    pub(super) fn args(&self) -> Args<'_> {
        Args::new(&self.text, &self.ranges)
    }
}
