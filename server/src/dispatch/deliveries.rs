//! Published messages and keyspace notifications on their way to the clients that listen.
//!
//! A message stands in its receiver's output behind the reply that is being written, never inside one. What a client publishes waits for
//! the end of its turn, so that the messages of a pipeline to the same listeners are one text, appended to each once; then
//! own clients get it, and those of other workers by the mesh; nobody waits for them. A publisher that listens itself gets its own
//! messages behind the reply of the request that published them. What a transaction publishes to its own client follows EXEC's reply.

use skerry_resp::reply::{Proto, Reply};

use super::Node;
use crate::client::{Client, ClientId, Closing};
use crate::config::KeyspaceEvents;
use crate::message::Delivered;
use crate::pubsub::{Delivery, Kind, write_message};
use crate::shard::ShardId;

/// A turn's messages are sent when there are so many, or one of so many bytes.
const MAX_TOGETHER: usize = 256;
const MAX_TOGETHER_BYTES: usize = 4 << 10;

impl Node {
    /// Sends what was published since the last call. No client is running.
    #[inline]
    pub(super) fn send_deliveries(&mut self) {
        if self.shard.has_notices() {
            self.publish_notices();
        }
        if !self.deliveries.is_empty() {
            self.send_all_deliveries();
        }
        if !self.shown.is_empty() {
            self.send_shown();
        }
        if self.shard.tracking.is_any() {
            self.send_invalidations(None);
        }
    }

    /// Something was published while `client` runs, and its request has just been answered.
    pub(super) fn after_publishing(&mut self, client: &mut Client) {
        if client.subscribed.is_some() {
            self.send_to_publisher(client);
            self.send_all_deliveries();
        } else if self.deliveries.len() >= MAX_TOGETHER
            || self.deliveries.last().is_some_and(|last| last.message.len() >= MAX_TOGETHER_BYTES)
        {
            self.send_all_deliveries();
        }
    }

    /// Its own messages; it is out of its place, so `send_all_deliveries` passes it over.
    fn send_to_publisher(&mut self, client: &mut Client) {
        let mut own = Vec::new();
        let mut reply = Reply::new(&mut own, client.proto);
        for Delivery { kind, pattern, channel, message, clients } in &self.deliveries {
            if clients.contains(&client.id) {
                write_message(&mut reply, *kind, pattern, channel, message);
            }
        }
        if !own.is_empty() {
            self.push_reply(client, &own);
        }
    }

    fn send_all_deliveries(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        for alike in deliveries.chunk_by(Delivery::is_like) {
            let Delivery { kind, pattern, channel, clients, .. } = &alike[0];
            let delivered = Delivered { kind: *kind, pattern, channel };
            let texts = alike.iter().map(|delivery| &*delivery.message);
            for shard in 0..self.n_shards() {
                let of_shard = clients.iter().copied().filter(|id| usize::from(id.worker().0) == shard);
                match ShardId(shard as u8) == self.id {
                    true => self.deliver_here(delivered, texts.clone(), of_shard),
                    false => self.outboxes[shard].push_delivery(delivered, texts.clone(), of_shard),
                }
            }
        }
    }

    /// Puts messages into the output of own clients, if they still listen.
    pub(super) fn deliver_here<'m>(
        &mut self,
        delivered: Delivered<'_>,
        texts: impl Iterator<Item = &'m [u8]> + Clone,
        clients: impl Iterator<Item = ClientId>,
    ) {
        let Delivered { kind, pattern, channel } = delivered;
        let name = if kind == Kind::Pattern { pattern } else { channel };
        let mut written: [Option<Vec<u8>>; 2] = [None, None];
        let hard_bytes = self.config.client_output_buffer_limit.pubsub.hard_bytes;
        for id in clients {
            let Some(client) = self.clients.get_mut(id) else { continue };
            if client.closing == Closing::Now
                || !client.subscribed.as_ref().is_some_and(|subscribed| subscribed.has(kind, name))
            {
                continue;
            }
            let messages = written[usize::from(client.proto == Proto::Resp3)].get_or_insert_with(|| {
                let mut messages = Vec::new();
                let mut reply = Reply::new(&mut messages, client.proto);
                texts.clone().for_each(|text| write_message(&mut reply, kind, pattern, channel, text));
                messages
            });
            client.out.extend_from_slice(messages);
            if hard_bytes > 0 && client.unsent() as u64 > hard_bytes {
                // A subscriber that does not read may not wait for the next write to be found out.
                crate::log::warning(&format!(
                    "Client id={} addr={} scheduled to be closed ASAP for overcoming of output buffer limits.",
                    client.number, client.address
                ));
                client.closing = Closing::Now;
                client.mark_dirty(&mut self.dirty);
            }
            if !client.is_told {
                client.is_told = true;
                self.told.push(id);
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
