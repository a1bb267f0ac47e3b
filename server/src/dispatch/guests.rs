//! Running a command on lent entries: guests of the own keyspace, or whole shards in turn, for the time of one handler.

use skerry_resp::reply::Proto;

use super::Node;
use super::loans::Lend;
use crate::args::Args;
use crate::client::Client;
use crate::command::{Caller, Handler, ShardHandler};
use crate::keyspace::Key;
use crate::message::HoldMode;
use crate::shard::{DbIndex, Shard, ShardId};

impl Node {
    /// After a panic: every shard to its place, and every key to its shard.
    #[cold]
    pub(super) fn sort_shards(&mut self, shards: &mut [(ShardId, Box<Shard>)]) {
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
    pub(super) fn run_lent(
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
        } else if let Handler::Script(script) = lend.row.command.handler {
            self.run_script_as_sent(client, lend, script, &mut [], out);
        } else {
            let (Handler::Shard(handler) | Handler::Roaming(handler, _)) = lend.row.command.handler else {
                panic!("'{}' is not lent keys", lend.row.command.name)
            };
            let args = Args::new(&lend.text, &lend.ranges);
            match lend.row.command.may_wait {
                Some(may_wait) if may_wait(args) => {
                    lend.wait = self.waiting_into(handler, lend.caller(), lend.proto, out, args);
                }
                _ => self.shard_into(handler, lend.caller(), lend.proto, out, args),
            }
        }
        self.collect_guests(lend);
        self.shard.end_guests()
    }

    /// Takes the lent entries out of the own keyspace again; those that the handler deleted are gone.
    pub(super) fn collect_guests(&mut self, lend: &mut Lend) {
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
    pub(super) fn run_whole(
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
        if let Handler::Script(script) = lend.row.command.handler {
            self.run_script_as_sent(client, lend, script, shards, out);
            return;
        }
        let args = Args::new(&lend.text, &lend.ranges);
        let caller = lend.caller();
        match lend.row.command.handler {
            Handler::Roaming(handler, _) => self.roam_into(handler, caller, lend.proto, out, args, shards),
            Handler::Whole(handler) => {
                let mut others: Vec<&mut Box<Shard>> = shards.iter_mut().map(|(_, shard)| shard).collect();
                self.on_all_shards(&mut others, handler, caller, lend.proto, out, args);
            }
            _ => panic!("'{}' does not take whole shards", lend.row.command.name),
        }
    }

    /// Runs a `Roaming` handler into `out`, with the other shards at hand.
    pub(super) fn roam_into(
        &mut self,
        handler: ShardHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
    ) {
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        ctx.elsewhere = others;
        if let Err(error) = handler(&mut ctx, args) {
            self.fail_into(out, start, proto, &error);
        }
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
            let outcome = loop {
                match job.slice(&mut ctx) {
                    Ok(false) => {}
                    Ok(true) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            let held = job.held().map(|(_, key)| Box::from(key.bytes));
            drop(job);
            if let Some(key) = held {
                self.end_sharing(&[key]);
            }
            if let Err(error) = outcome {
                self.fail_into(out, start, proto, &error);
            }
            return;
        }
        if let Err(error) = outcome {
            self.fail_into(out, start, proto, &error);
        }
    }
}
