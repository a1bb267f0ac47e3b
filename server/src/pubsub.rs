//! Who listens to what: the process's directory of subscriptions, and what a message becomes on its way.
//!
//! ```text
//!   PUBLISH (any worker) ──look up──► subscribers, by worker ──► own clients      pushed into their output
//!                                                          └──► other workers    one message of the mesh for all of theirs
//! ```
//!
//! The directory is shared, as that of vector sets is: a publisher finds subscribers without asking a channel's owner, and waits for
//! nobody. Messages of one publisher to one channel arrive in their order: they take the same ring. A message that is under way when
//! its receiver unsubscribes is dropped by the receiver's worker, which asks the client, not the directory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use dashmap::DashMap;
use hashbrown::{HashMap, HashSet};
use skerry_resp::reply::Reply;

use crate::client::ClientId;
use crate::glob::{Case, glob_match};

/// What a subscription names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Channel,
    Pattern,
    /// A channel of SSUBSCRIBE: a name space of its own.
    Shard,
}

impl Kind {
    pub fn code(self) -> u8 {
        match self {
            Kind::Channel => 0,
            Kind::Pattern => 1,
            Kind::Shard => 2,
        }
    }

    pub fn from_code(code: u8) -> Kind {
        match code {
            0 => Kind::Channel,
            1 => Kind::Pattern,
            _ => Kind::Shard,
        }
    }
}

/// The listeners of a name.
#[derive(Default)]
struct Listeners {
    clients: HashSet<ClientId>,
    /// The same as a list, made when a message asks for it and kept until they change.
    list: OnceLock<Arc<[ClientId]>>,
}

impl Listeners {
    fn add(&mut self, client: ClientId) {
        self.clients.insert(client);
        self.list.take();
    }

    fn remove(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.list.take();
    }

    fn list(&self) -> Arc<[ClientId]> {
        self.list.get_or_init(|| self.clients.iter().copied().collect()).clone()
    }
}

/// Patterns with a listener, in the order in which they came: one client may have tens of thousands, and end.
#[derive(Default)]
struct Patterns {
    by_age: BTreeMap<u64, (Box<[u8]>, Listeners)>,
    ages: HashMap<Box<[u8]>, u64>,
    n_ever: u64,
}

impl Patterns {
    fn add(&mut self, name: &[u8], client: ClientId) {
        let age = *self.ages.entry_ref(name).or_insert_with(|| {
            self.n_ever += 1;
            self.by_age.insert(self.n_ever, (Box::from(name), Listeners::default()));
            self.n_ever
        });
        if let Some((_, listeners)) = self.by_age.get_mut(&age) {
            listeners.add(client);
        }
    }

    fn remove(&mut self, name: &[u8], client: ClientId) {
        let Some(&age) = self.ages.get(name) else { return };
        let Some((_, listeners)) = self.by_age.get_mut(&age) else { return };
        listeners.remove(client);
        if listeners.clients.is_empty() {
            self.by_age.remove(&age);
            self.ages.remove(name);
        }
    }
}

/// The directory.
#[derive(Default)]
pub struct Subscriptions {
    channels: DashMap<Box<[u8]>, Listeners>,
    shard_channels: DashMap<Box<[u8]>, Listeners>,
    patterns: RwLock<Patterns>,
    n_patterns: AtomicUsize,
    n_clients: AtomicUsize,
}

/// A message for those who listen in one way.
#[derive(Debug)]
pub struct Delivery {
    pub kind: Kind,
    /// The pattern that the channel matches; empty for other kinds.
    pub pattern: Box<[u8]>,
    pub channel: Arc<[u8]>,
    pub message: Arc<[u8]>,
    /// The same list as that of the message before, unless somebody has come or gone.
    pub clients: Arc<[ClientId]>,
}

impl Delivery {
    /// Whether both go to the same clients by the same name, so that they can be sent as one.
    pub fn is_like(&self, other: &Delivery) -> bool {
        self.kind == other.kind
            && Arc::ptr_eq(&self.clients, &other.clients)
            && self.channel == other.channel
            && self.pattern == other.pattern
    }
}

impl Subscriptions {
    fn of(&self, kind: Kind) -> &DashMap<Box<[u8]>, Listeners> {
        match kind {
            Kind::Shard => &self.shard_channels,
            Kind::Channel | Kind::Pattern => &self.channels,
        }
    }

    /// Whether anybody listens to anything.
    pub fn is_anyone(&self) -> bool {
        self.n_clients.load(Ordering::Relaxed) > 0
    }

    pub fn n_clients(&self) -> usize {
        self.n_clients.load(Ordering::Relaxed)
    }

    pub fn n_patterns(&self) -> usize {
        self.n_patterns.load(Ordering::Relaxed)
    }

    /// Channels of `kind` with a listener; not for patterns.
    pub fn n_channels(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    /// A client has its first subscription.
    pub fn client_begins(&self) {
        self.n_clients.fetch_add(1, Ordering::Relaxed);
    }

    /// A client has lost its last subscription.
    pub fn client_ends(&self) {
        self.n_clients.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn add(&self, kind: Kind, name: &[u8], client: ClientId) {
        if kind != Kind::Pattern {
            self.of(kind).entry(Box::from(name)).or_default().add(client);
            return;
        }
        let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
        patterns.add(name, client);
        self.n_patterns.store(patterns.ages.len(), Ordering::Relaxed);
    }

    pub fn remove(&self, kind: Kind, name: &[u8], client: ClientId) {
        if kind != Kind::Pattern {
            if let Some(mut listeners) = self.of(kind).get_mut(name) {
                listeners.remove(client);
            }
            self.of(kind).remove_if(name, |_, listeners| listeners.clients.is_empty());
            return;
        }
        let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
        patterns.remove(name, client);
        self.n_patterns.store(patterns.ages.len(), Ordering::Relaxed);
    }

    /// Listeners of a channel by its name; patterns do not count.
    pub fn n_listeners(&self, kind: Kind, name: &[u8]) -> usize {
        self.of(kind).get(name).map_or(0, |listeners| listeners.clients.len())
    }

    /// The channels of `kind` that match, in no order.
    pub fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let channels = self.of(kind).iter().map(|entry| entry.key().clone());
        channels
            .filter(|name| pattern.is_none_or(|pattern| glob_match(pattern, name, Case::Sensitive)))
            .collect()
    }

    /// What a message to `channel` becomes: a delivery for its listeners, and one for each pattern that matches.
    pub fn deliveries(
        &self,
        kind: Kind,
        channel: &[u8],
        message: &[u8],
        deliveries: &mut Vec<Delivery>,
    ) -> usize {
        let mut n = 0;
        let mut add = |kind, pattern: &[u8], clients: Arc<[ClientId]>| {
            n += clients.len();
            let (channel, message) = match deliveries.last() {
                // The same message has just gone to others.
                Some(last) if n > clients.len() => (last.channel.clone(), last.message.clone()),
                _ => (Arc::from(channel), Arc::from(message)),
            };
            deliveries.push(Delivery { kind, pattern: Box::from(pattern), channel, message, clients });
        };
        // No guard outlives its line.
        let listeners = self.of(kind).get(channel).map(|listeners| listeners.list());
        if let Some(clients) = listeners {
            add(kind, b"", clients);
        }
        if kind == Kind::Channel && self.n_patterns() > 0 {
            let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
            for (pattern, listeners) in patterns.by_age.values() {
                if glob_match(pattern, channel, Case::Sensitive) {
                    add(Kind::Pattern, pattern, listeners.list());
                }
            }
        }
        n
    }
}

/// What one client listens to.
#[derive(Default)]
pub struct Subscribed {
    pub channels: HashSet<Box<[u8]>>,
    pub patterns: HashSet<Box<[u8]>>,
    pub shard_channels: HashSet<Box<[u8]>>,
}

impl Subscribed {
    pub fn of(&mut self, kind: Kind) -> &mut HashSet<Box<[u8]>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shard_channels,
        }
    }

    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        match kind {
            Kind::Channel => self.channels.contains(name),
            Kind::Pattern => self.patterns.contains(name),
            Kind::Shard => self.shard_channels.contains(name),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.shard_channels.is_empty()
    }

    /// What confirmations of `kind` count.
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.shard_channels.len(),
        }
    }
}

/// Writes a message as its receiver sees it.
pub fn write_message(reply: &mut Reply<'_>, kind: Kind, pattern: &[u8], channel: &[u8], message: &[u8]) {
    match kind {
        Kind::Channel => {
            reply.push(3);
            reply.bulk(b"message");
        }
        Kind::Pattern => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
        Kind::Shard => {
            reply.push(3);
            reply.bulk(b"smessage");
        }
    }
    reply.bulk(channel);
    reply.bulk(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::ShardId;

    #[test]
    fn a_message_finds_listeners_and_patterns_and_nothing_stays_behind() {
        let directory = Subscriptions::default();
        let client = |n| ClientId::new(ShardId(1), n, 0);
        directory.add(Kind::Channel, b"news", client(1));
        directory.add(Kind::Channel, b"news", client(2));
        directory.add(Kind::Pattern, b"n*", client(2));
        directory.add(Kind::Pattern, b"m*", client(3));
        directory.add(Kind::Shard, b"news", client(4));
        let mut found = Vec::new();
        assert_eq!(directory.deliveries(Kind::Channel, b"news", b"x", &mut found), 3);
        let kinds: Vec<_> = found.iter().map(|delivery| (delivery.kind, delivery.clients.len())).collect();
        assert_eq!(kinds, [(Kind::Channel, 2), (Kind::Pattern, 1)]);
        assert_eq!(directory.deliveries(Kind::Shard, b"news", b"x", &mut found), 1);
        for n in 1..=4 {
            for (kind, name) in
                [(Kind::Channel, "news"), (Kind::Pattern, "n*"), (Kind::Pattern, "m*"), (Kind::Shard, "news")]
            {
                directory.remove(kind, name.as_bytes(), client(n));
            }
        }
        found.clear();
        assert_eq!(directory.deliveries(Kind::Channel, b"news", b"x", &mut found), 0);
        assert!(found.is_empty());
        let left =
            [directory.n_channels(Kind::Channel), directory.n_channels(Kind::Shard), directory.n_patterns()];
        assert_eq!(left, [0, 0, 0]);
    }
}
