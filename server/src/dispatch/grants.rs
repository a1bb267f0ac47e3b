//! The owner's side of a lend: holding what is asked for, sending entries, taking them home.

use super::Node;
use super::inbox::{LaneAsk, LaneItem};
use super::loans::Ask;
use crate::client::ClientId;
use crate::keyspace::{Entry, Key};
use crate::lend::holds::Admission;
use crate::message::{Called, Changes, HoldMode, LendId, Round};
use crate::shard::{DbIndex, Shard, ShardId};

impl Node {
    pub(super) fn take_ask(&mut self, client: ClientId, round: Round, ask: LaneAsk) {
        match (self.lanes.get_mut(&client), round) {
            (Some(_), Round::Try) => {
                self.outboxes[usize::from(ask.from.0)].push_refuse(ask.lend);
                self.take_settle(client, Called::Coming);
            }
            (Some(lane), Round::Wait) => lane.push_back(LaneItem::Ask(ask)),
            (None, _) => self.admit_ask(client, round, ask),
        }
    }

    pub(super) fn admit_ask(&mut self, client: ClientId, round: Round, ask: LaneAsk) {
        let LaneAsk { from, lend, mode, has_watches, keys } = ask;
        let server = &self.server;
        let hashes = keys.iter().map(|key| server.hash_key(key));
        let (who, may_wait) = ((from, lend), round == Round::Wait);
        if let Some(reserved) = self.reserved.remove(&client) {
            // A blocked client comes for the key that is held for it.
            let mut freed = Vec::new();
            let hashes: Vec<u64> = hashes.collect();
            let keys_asked = hashes.into_iter();
            let admission = self.holds.ask_reserved(reserved, who, mode, may_wait, keys_asked, &mut freed);
            self.admitted(client, LaneAsk { from, lend, mode, has_watches, keys }, admission);
            self.run_freed(freed);
            return;
        }
        let admission = self.holds.ask(who, mode, may_wait, hashes);
        self.admitted(client, LaneAsk { from, lend, mode, has_watches, keys }, admission);
    }

    fn admitted(&mut self, client: ClientId, ask: LaneAsk, admission: Admission) {
        let LaneAsk { from, lend, mode, has_watches, keys } = ask;
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
        if mode == HoldMode::Whole {
            self.configure_shard();
        }
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
                // What guests of the stand-in have told goes out before it does.
                self.send_deliveries();
                let stand_in = std::mem::replace(&mut self.shard, shard);
                self.shard.stats.add(&stand_in.stats);
                self.configure_shard();
                for client in self.unwatches_while_away.take().unwrap_or_default() {
                    self.unwatch_here(client);
                }
                for client in std::mem::take(&mut self.unblocks_while_away) {
                    self.shard.unblock(client);
                }
            }
            HoldMode::Shared => debug_assert!(returned.is_empty(), "shared entries stay with their owner"),
            HoldMode::Exclusive => self.take_home(&ask.keys, loans, returned),
        }
        for (db, key) in changed {
            if self.shard.take_guest_change(db, key) {
                let key = Key { bytes: key, hash: self.server.hash_key(key) };
                self.shard.tracking.invalidate(&key, Some(ask.client));
            }
        }
        self.serve_blocked_on(ask.mode, &ask.keys);
        let mut freed = Vec::new();
        let server = &self.server;
        self.holds.release(ask.mode, ask.keys.iter().map(|key| server.hash_key(key)), &mut freed);
        if ask.mode == HoldMode::Shared {
            self.end_sharing(&ask.keys);
        }
        self.run_freed(freed);
    }

    /// The entries that nobody reads in place any more may change and expire again.
    pub(super) fn end_sharing(&mut self, keys: &[Box<[u8]>]) {
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

    pub(super) fn take_home(&mut self, keys: &[Box<[u8]>], loans: &[(u32, DbIndex)], returned: Vec<Entry>) {
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
}
