//! Telling clients that track keys (`tracking`) what they have to forget.
//!
//! ```text
//!   owner of the key          worker of the client                     worker of a redirection's target
//!   news of the shard  ──►    its options, its protocol   ──────►      push, or a message of `__redis__:invalidate`
//! ```
//!
//! A message stands behind every reply that was asked for before it was due: behind replies still awaited from other workers too, for one
//! of them may hold the old value. A writer that tracks gets its own behind its reply (what EXEC's queue has changed, behind EXEC's).

use std::collections::BTreeMap;

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use super::wave::Item;
use crate::args::{Args, is_word};
use crate::client::{Client, ClientId, Slot};
use crate::command::{Acl, Flags, Handler};
use crate::commands::{KeyShape, Row};
use crate::keyspace::Key;
use crate::message::{Keys, Told, WrittenKeys};
use crate::shard::{Shard, ShardId};
use crate::tracking::{Invalidation, Mode, TrackingTable};

const CHANNEL: &[u8] = b"__redis__:invalidate";
/// Keys given up in a turn when the table is too big.
const MAX_GIVEN_UP: usize = 200;

/// What clients have to forget.
#[derive(Clone, Copy)]
enum Forgotten<'a> {
    Keys(&'a [&'a [u8]]),
    Everything,
}

impl Forgotten<'_> {
    /// The second element of the message, as the protocol of the client that tracks writes it.
    fn payload(self, proto: Proto) -> Vec<u8> {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, proto);
        match self {
            Forgotten::Keys(keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
            Forgotten::Everything => reply.null(),
        }
        out
    }
}

impl Node {
    /// `client` has read the keys of a request: their owners note it. `others` are the other shards if the whole of them is here.
    pub(super) fn note_reads(
        &mut self,
        client: ClientId,
        row: &Row,
        args: Args<'_>,
        others: &mut [(ShardId, Box<Shard>)],
    ) {
        let is_read = row.command.flags.has(Flags::READONLY) && !row.command.flags.has(Flags::PUBSUB);
        // What a script reads is noted call by call.
        if !is_read || row.command.acl.has(Acl::SCRIPTING) {
            return;
        }
        let mut sent: Vec<Vec<&[u8]>> = vec![Vec::new(); self.n_shards()];
        row.command.for_each_key(args, |index, _| {
            let bytes = args.get(index);
            let hash = args.known_hash(index).unwrap_or_else(|| self.server.hash_key(bytes));
            let owner = self.server.shard_of(bytes);
            let key = Key { bytes, hash };
            if owner == self.id {
                remember(&mut self.shard, &key, client);
            } else if let Some((_, other)) = others.iter_mut().find(|(shard, _)| *shard == owner) {
                remember(other, &key, client);
            } else {
                sent[usize::from(owner.0)].push(bytes);
            }
        });
        for (shard, keys) in sent.into_iter().enumerate().filter(|(_, keys)| !keys.is_empty()) {
            self.outboxes[shard].push_track(client, keys.into_iter());
        }
        self.bound_tracking(2);
    }

    /// A client of another worker has read keys of this one, by a lend that is about to come home.
    pub(super) fn take_track(&mut self, client: ClientId, keys: Keys<'_>) {
        for bytes in keys {
            let key = Key { bytes, hash: self.server.hash_key(bytes) };
            remember(&mut self.shard, &key, client);
        }
        self.bound_tracking(2);
    }

    /// Gives keys up while the tables of all workers together hold more than `tracking-table-max-keys`; true if there is more to do.
    pub(super) fn bound_tracking(&mut self, budget: usize) -> bool {
        let own = usize::from(self.id.0);
        let limit = self.config.tracking_table_max_keys;
        let mut left = budget;
        loop {
            let table = self.shard.tracking.table.as_mut();
            let (n_keys, n_items) = table.as_ref().map_or((0, 0), |table| (table.n_keys(), table.n_items()));
            let stats = &self.server.workers[own];
            stats.tracked_keys.store(n_keys as u64, std::sync::atomic::Ordering::Relaxed);
            stats.tracked_items.store(n_items as u64, std::sync::atomic::Ordering::Relaxed);
            if limit == 0 || n_keys == 0 || self.server.sum(|worker| &worker.tracked_keys) <= limit {
                return false;
            }
            if left == 0 {
                return true;
            }
            left -= 1;
            let random = self.shard.random();
            let table = self.shard.tracking.table.as_mut();
            if let Some((key, readers)) = table.and_then(|table| table.take_any(random)) {
                self.shard.tracking.invalidations.push(Invalidation { key, readers, writer: None });
            }
        }
    }

    /// Called once a turn: what the limit and expiry have left to do.
    pub(super) fn tend_tracking(&mut self) {
        if self.shard.tracking.is_on() {
            self.is_tracking_over = self.bound_tracking(MAX_GIVEN_UP);
            self.send_deliveries();
        }
    }

    /// Tells what this shard has to tell. No client is running, or `running` is.
    #[cold]
    pub(super) fn send_invalidations(&mut self, mut running: Option<&mut Client>) {
        if let Some(flushed_at) = self.shard.tracking.flushed_at.take() {
            let had_begun = |client: &Client| {
                client.tracking.as_ref().is_some_and(|tracking| tracking.since < flushed_at)
            };
            let tracking = self.clients.iter().filter(|client| had_begun(client));
            let mut ids: Vec<(u64, ClientId)> = tracking.map(|client| (client.number, client.id)).collect();
            ids.sort_unstable();
            for (_, id) in ids {
                self.with_client(id, &mut running, |node, client| node.tell(client, Forgotten::Everything));
            }
            if let Some(client) = running.as_deref_mut()
                && had_begun(client)
            {
                self.tell(client, Forgotten::Everything);
            }
        }
        for Invalidation { key, readers, writer } in std::mem::take(&mut self.shard.tracking.invalidations) {
            self.tell_clients(Told::Invalidated { key: &key, writer }, &readers, &mut running);
        }
        if running.is_none() && !self.shard.tracking.changed.is_empty() {
            self.broadcast();
        }
    }

    /// Runs with an own client, wherever it stands; not at all if it is gone.
    fn with_client(
        &mut self,
        id: ClientId,
        running: &mut Option<&mut Client>,
        run: impl FnOnce(&mut Self, &mut Client),
    ) {
        if let Some(client) = running.as_deref_mut().filter(|client| client.id == id) {
            run(self, client);
            return;
        }
        let Some(mut client) = self.clients.take(id) else { return };
        run(self, &mut client);
        self.clients.put_back(client);
    }

    /// An own client had read `key`, which `writer` has changed.
    fn invalidate_for(
        &mut self,
        id: ClientId,
        key: &[u8],
        writer: Option<ClientId>,
        running: &mut Option<&mut Client>,
    ) {
        let is_running = running.as_deref().is_some_and(|client| client.id == id);
        if !is_running && self.clients.is_out(id) {
            // It runs further up; told when it is back.
            let readers = vec![id];
            self.shard.tracking.invalidations.push(Invalidation { key: key.into(), readers, writer });
            return;
        }
        self.with_client(id, running, |node, client| {
            let Some(tracking) = &client.tracking else { return };
            if tracking.mode == Mode::Broadcast || (tracking.is_noloop && writer == Some(id)) {
                return;
            }
            node.tell(client, Forgotten::Keys(&[key]));
        });
    }

    /// Sends one message to whom the client's messages go.
    fn tell(&mut self, client: &mut Client, forgotten: Forgotten<'_>) {
        let payload = forgotten.payload(client.proto);
        let Some(tracking) = &mut client.tracking else { return };
        if tracking.redirect == 0 {
            if client.proto == Proto::Resp3 {
                self.push_behind(client, &push_of(&payload));
            }
            return;
        }
        let redirect = tracking.redirect;
        match self.server.connections.numbered(redirect) {
            Some(target) if target == client.id => self.tell_target(client, &payload),
            Some(target) if target.worker() == self.id => {
                self.with_client(target, &mut None, |node, client| node.tell_target(client, &payload));
            }
            Some(target) => {
                let outbox = &mut self.outboxes[usize::from(target.worker().0)];
                outbox.push_told(Told::Redirected { payload: &payload }, std::iter::once(target));
            }
            None => {
                tracking.is_redirect_broken = true;
                if client.proto == Proto::Resp3 {
                    let mut out = Vec::new();
                    let mut reply = Reply::new(&mut out, client.proto);
                    reply.push(2);
                    reply.bulk(b"tracking-redir-broken");
                    reply.integer(redirect as i64);
                    self.push_behind(client, &out);
                }
            }
        }
    }

    /// The target of a redirection: in RESP2 it has to listen to something.
    fn tell_target(&mut self, client: &mut Client, payload: &[u8]) {
        if client.proto == Proto::Resp3 {
            self.push_behind(client, &push_of(payload));
        } else if client.subscribed.is_some() {
            let mut out = Vec::new();
            let mut reply = Reply::new(&mut out, client.proto);
            reply.array(3);
            reply.bulk(b"message");
            reply.bulk(CHANNEL);
            out.extend_from_slice(payload);
            self.push_behind(client, &out);
        }
    }

    /// Appends what nobody asked for, behind all replies that may be older. What a client waits for as a whole request of another shard
    /// has not run there yet: else its reply would have come before this.
    pub(super) fn push_behind(&mut self, client: &mut Client, bytes: &[u8]) {
        if client.pending.iter().all(|slot| matches!(slot, Slot::Waiting { .. })) {
            client.out.extend_from_slice(bytes);
        } else {
            let start = client.held.len();
            client.held.extend_from_slice(bytes);
            client.pending.push_back(Slot::Ready { start, len: bytes.len() });
        }
        client.mark_dirty(&mut self.dirty);
    }

    /// Tells clients of any worker.
    pub(super) fn tell_clients(
        &mut self,
        told: Told<'_>,
        clients: &[ClientId],
        running: &mut Option<&mut Client>,
    ) {
        for shard in 0..self.n_shards() {
            let of_shard = clients.iter().copied().filter(|id| usize::from(id.worker().0) == shard);
            match ShardId(shard as u8) == self.id {
                true => self.take_told(told, of_shard, running),
                false => self.outboxes[shard].push_told(told, of_shard),
            }
        }
    }

    /// What this worker or another has to tell clients of this one.
    pub(super) fn take_told(
        &mut self,
        told: Told<'_>,
        clients: impl Iterator<Item = ClientId>,
        running: &mut Option<&mut Client>,
    ) {
        for id in clients {
            match told {
                Told::Invalidated { key, writer } => self.invalidate_for(id, key, writer, running),
                Told::Redirected { payload } => {
                    self.with_client(id, &mut None, |node, client| node.tell_target(client, payload));
                }
                Told::Broadcast { keys } => self.broadcast_to(id, keys),
                Told::Shown { line } => self.show_line(id, line),
            }
        }
    }

    /// The keys that changed in this turn, to those who track by prefix: a message for each prefix with all its keys.
    fn broadcast(&mut self) {
        let mut changed: BTreeMap<Box<[u8]>, Option<ClientId>> = BTreeMap::new();
        for (key, writer) in std::mem::take(&mut self.shard.tracking.changed) {
            changed.entry(key).or_insert(writer);
        }
        let prefixes = self.prefixes.clone();
        for (prefix, clients) in &*prefixes {
            let from_prefix =
                changed.range::<[u8], _>((std::ops::Bound::Included(&**prefix), std::ops::Bound::Unbounded));
            let mut packed = Vec::new();
            for (key, writer) in from_prefix.take_while(|(key, _)| key.starts_with(prefix)) {
                WrittenKeys::put(&mut packed, key, *writer);
            }
            if packed.is_empty() {
                continue;
            }
            self.tell_clients(Told::Broadcast { keys: WrittenKeys(&packed) }, clients, &mut None);
        }
    }

    fn broadcast_to(&mut self, id: ClientId, keys: WrittenKeys<'_>) {
        self.with_client(id, &mut None, |node, client| {
            let Some(tracking) = &client.tracking else { return };
            let is_noloop = tracking.is_noloop;
            let keys: Vec<&[u8]> =
                keys.filter(|(_, writer)| !(is_noloop && *writer == Some(id))).map(|(key, _)| key).collect();
            if tracking.mode == Mode::Broadcast && !keys.is_empty() {
                node.tell(client, Forgotten::Keys(&keys));
            }
        });
    }

    /// Ends a client's tracking (OFF, RESET, its end).
    pub(super) fn untrack(&mut self, client: &mut Client) {
        let Some(tracking) = client.tracking.take() else { return };
        let directory = &self.server.prefixes;
        directory.n_clients.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        tracking.prefixes.iter().for_each(|prefix| directory.remove(prefix, client.id));
        if !tracking.prefixes.is_empty() {
            self.server.touch_config();
        }
    }

    /// CLIENT CACHING holds for one request (for all of a transaction).
    pub(super) fn end_caching(&self, client: &mut Client, row: &Row) {
        if client.multi.is_none()
            && !row.command.name.starts_with("client")
            && let Some(tracking) = &mut client.tracking
        {
            tracking.is_caching_chosen = false;
        }
    }

    /// After a request of a client that tracks: what it has read is noted, and CLIENT CACHING is over.
    #[cold]
    pub(super) fn track_call(&mut self, client: &mut Client, row: &Row, item: &Item, args: Args<'_>) {
        let runs_here = !self.observed.is_elsewhere || self.observed.is_job;
        if client.notes_reads() && runs_here && !matches!(row.command.handler, Handler::Flow(_)) {
            let args = match row.shape {
                KeyShape::One(index) => args.with_hash(usize::from(index), item.hash),
                KeyShape::None | KeyShape::Many => args,
            };
            self.note_reads(client.id, row, args, &mut []);
        }
        self.end_caching(client, row);
    }

    /// After a request that has something to tell: its own client hears of it behind the reply. Of a FLUSHALL that is not to free
    /// memory later, in front of it, as from Redis.
    #[cold]
    pub(super) fn tell_after_reply(&mut self, client: &mut Client, row: &Row, args: Args<'_>) {
        let is_flush = matches!(row.command.name, "flushall" | "flushdb");
        let goes_before =
            is_flush && client.pending.is_empty() && !args.from(1).any(|arg| is_word(arg, "async"));
        let end = client.out.len();
        self.send_invalidations(Some(client));
        if goes_before && let Some(told) = client.out.get_mut(self.mark.0..) {
            told.rotate_left(end.saturating_sub(self.mark.0));
        }
    }
}

fn push_of(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 24);
    let mut reply = Reply::new(&mut out, Proto::Resp3);
    reply.push(2);
    reply.bulk(b"invalidate");
    out.extend_from_slice(payload);
    out
}

fn remember(shard: &mut Shard, key: &Key<'_>, client: ClientId) {
    if shard.tracking.table.is_none() {
        shard.begin_tracking();
    }
    let table: &mut TrackingTable = shard.tracking.table.as_mut().expect("just made");
    table.remember(key, client);
}
