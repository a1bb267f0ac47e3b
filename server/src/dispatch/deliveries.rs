//! Published messages and keyspace notifications on their way to the clients that listen.
//!
//! A message stands in its receiver's output behind the reply that is being written, never inside one. Own clients get it when
//! the running request has its reply, those of other workers by the mesh; nobody waits for them. What a transaction publishes to
//! its own client follows EXEC's reply.

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use crate::client::{Client, ClientId, Closing};
use crate::config::KeyspaceEvents;
use crate::message::Delivered;
use crate::pubsub::{Delivery, Kind, write_message};
use crate::shard::ShardId;

impl Node {
    /// Sends what was published since the last call. No client is running.
    #[inline]
    pub(super) fn send_deliveries(&mut self) {
        if self.shard.has_notices() {
            self.publish_notices();
        }
        if !self.deliveries.is_empty() {
            let deliveries = std::mem::take(&mut self.deliveries);
            deliveries.iter().for_each(|delivery| self.send_delivery(delivery));
        }
    }

    /// The same while `client` runs and has just been answered: its own messages follow that reply.
    pub(super) fn send_deliveries_beside(&mut self, client: &mut Client) {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        for delivery in &mut deliveries {
            if let Some(at) = delivery.clients.iter().position(|id| *id == client.id) {
                delivery.clients.swap_remove(at);
                let mut own = Vec::new();
                let mut reply = Reply::new(&mut own, client.proto);
                write_message(
                    &mut reply,
                    delivery.kind,
                    &delivery.pattern,
                    &delivery.channel,
                    &delivery.message,
                );
                self.push_reply(client, &own);
            }
            self.send_delivery(delivery);
        }
    }

    fn send_delivery(&mut self, delivery: &Delivery) {
        let Delivery { kind, pattern, channel, message, clients } = delivery;
        let delivered = Delivered { kind: *kind, pattern, channel, message };
        for shard in 0..self.n_shards() {
            let of_shard = clients.iter().copied().filter(|id| usize::from(id.worker().0) == shard);
            match ShardId(shard as u8) == self.id {
                true => self.deliver_here(delivered, of_shard),
                false => self.outboxes[shard].push_delivery(delivered, of_shard),
            }
        }
    }

    /// Puts a message into the output of own clients, if they still listen.
    pub(super) fn deliver_here(&mut self, delivered: Delivered<'_>, clients: impl Iterator<Item = ClientId>) {
        let Delivered { kind, pattern, channel, message } = delivered;
        let name = if kind == Kind::Pattern { pattern } else { channel };
        let mut texts: [Option<Vec<u8>>; 2] = [None, None];
        let hard_bytes = self.config.client_output_buffer_limit.pubsub.hard_bytes;
        for id in clients {
            let Some(client) = self.clients.get_mut(id) else { continue };
            if client.closing == Closing::Now
                || !client.subscribed.as_ref().is_some_and(|subscribed| subscribed.has(kind, name))
            {
                continue;
            }
            let text = texts[usize::from(client.proto == Proto::Resp3)].get_or_insert_with(|| {
                let mut text = Vec::new();
                write_message(&mut Reply::new(&mut text, client.proto), kind, pattern, channel, message);
                text
            });
            client.out.extend_from_slice(text);
            if hard_bytes > 0 && client.unsent() as u64 > hard_bytes {
                // A subscriber that does not read may not wait for the next write to be found out.
                crate::log::warning(&format!(
                    "Client id={} addr={} scheduled to be closed ASAP for overcoming of output buffer limits.",
                    client.number, client.address
                ));
                client.closing = Closing::Now;
            }
            if !client.is_dirty {
                client.is_dirty = true;
                self.dirty.push(id);
            }
        }
    }

    /// Turns the shard's events into messages: by key first, then by event.
    #[cold]
    fn publish_notices(&mut self) {
        let notices = self.shard.take_notices();
        let asked = self.config.notify_keyspace_events;
        if !self.server.subscriptions.is_anyone() {
            return;
        }
        for notice in notices {
            for (channel_of, text, message) in [
                (KeyspaceEvents::KEYSPACE, &notice.key[..], notice.name.as_bytes()),
                (KeyspaceEvents::KEYEVENT, notice.name.as_bytes(), &notice.key[..]),
            ] {
                if asked.contains(channel_of) {
                    let word = if channel_of == KeyspaceEvents::KEYSPACE { "keyspace" } else { "keyevent" };
                    let mut channel = format!("__{word}@{}__:", notice.db.0).into_bytes();
                    channel.extend_from_slice(text);
                    let directory = &self.server.subscriptions;
                    directory.deliveries(Kind::Channel, &channel, message, &mut self.deliveries);
                }
            }
        }
    }

    /// Ends all subscriptions of a client (RESET, its end).
    pub(super) fn unsubscribe_all(&mut self, client: &mut Client) {
        let Some(subscribed) = client.subscribed.take() else { return };
        let directory = &self.server.subscriptions;
        for (kind, names) in [
            (Kind::Channel, &subscribed.channels),
            (Kind::Pattern, &subscribed.patterns),
            (Kind::Shard, &subscribed.shard_channels),
        ] {
            names.iter().for_each(|name| directory.remove(kind, name, client.id));
        }
        directory.client_ends();
    }
}
