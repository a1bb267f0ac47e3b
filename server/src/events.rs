//! Keyspace events on their way out of a shard: to subscribers, if `notify-keyspace-events` asks for their class, and into the
//! record behind DEBUG EVENTS.
//!
//! Classes, names and order are those of Redis's notifications
//! (<https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/>). The record is bounded: the oldest events go when more
//! than `EVENTS_MAX` wait. Notices wait until the end of the command that caused them.

use std::collections::VecDeque;

use crate::config::KeyspaceEvents;
use crate::shard::{DbIndex, EventClass};

/// Events that a shard keeps for the next DEBUG EVENTS.
const EVENTS_MAX: usize = 100_000;

/// One event of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub db: DbIndex,
    pub class: EventClass,
    pub name: &'static str,
    pub key: Box<[u8]>,
}

/// Who is told of a shard's events.
#[derive(Debug, Default)]
pub struct EventSinks {
    /// What happened since the record was last taken, oldest first; none is kept before that first happens.
    record: Option<VecDeque<Event>>,
    /// The classes that are published.
    notified: KeyspaceEvents,
    notices: Vec<Event>,
}

impl EventSinks {
    #[inline]
    pub fn is_open(&self) -> bool {
        self.record.is_some() || !self.notified.is_empty()
    }

    #[cold]
    pub fn push(&mut self, event: Event) {
        if self.notified.contains(class_of(event.class)) {
            self.notices.push(event.clone());
        }
        if let Some(record) = &mut self.record {
            if record.len() == EVENTS_MAX {
                record.pop_front();
            }
            record.push_back(event);
        }
    }

    /// Takes the record; the first call begins it.
    pub fn take_record(&mut self) -> VecDeque<Event> {
        std::mem::take(self.record.get_or_insert_default())
    }

    /// Chooses what is published from here on.
    pub fn notify(&mut self, classes: KeyspaceEvents) {
        self.notified = classes;
    }

    #[inline]
    pub fn notified(&self) -> KeyspaceEvents {
        self.notified
    }

    /// Whether somebody is told of events of this class.
    pub fn wants(&self, class: EventClass) -> bool {
        self.record.is_some() || self.notified.contains(class_of(class))
    }

    #[inline]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    pub fn take_notices(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.notices)
    }
}

fn class_of(class: EventClass) -> KeyspaceEvents {
    match class {
        EventClass::Generic => KeyspaceEvents::GENERIC,
        EventClass::String => KeyspaceEvents::STRING,
        EventClass::List => KeyspaceEvents::LIST,
        EventClass::Set => KeyspaceEvents::SET,
        EventClass::Hash => KeyspaceEvents::HASH,
        EventClass::SortedSet => KeyspaceEvents::ZSET,
        EventClass::Stream => KeyspaceEvents::STREAM,
        EventClass::Expired => KeyspaceEvents::EXPIRED,
        EventClass::Evicted => KeyspaceEvents::EVICTED,
        EventClass::Module => KeyspaceEvents::MODULE,
        EventClass::KeyMiss => KeyspaceEvents::KEY_MISS,
        EventClass::New => KeyspaceEvents::NEW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: usize) -> Event {
        let key = n.to_string().into_bytes().into();
        Event { db: DbIndex(0), class: EventClass::String, name: "set", key }
    }

    #[test]
    fn the_oldest_of_the_record_go_first() {
        let mut sinks = EventSinks::default();
        sinks.push(event(0));
        assert!(sinks.take_record().is_empty(), "nobody had asked");
        (0..EVENTS_MAX + 2).for_each(|n| sinks.push(event(n)));
        let events = sinks.take_record();
        assert_eq!(events.len(), EVENTS_MAX);
        assert_eq!(*events[0].key, *b"2");
        assert!(sinks.take_record().is_empty());
    }

    #[test]
    fn only_the_classes_asked_for_are_published() {
        let mut sinks = EventSinks::default();
        sinks.notify(KeyspaceEvents::GENERIC);
        sinks.push(event(0));
        assert!(!sinks.has_notices());
        sinks.notify(KeyspaceEvents::STRING);
        sinks.push(event(1));
        assert_eq!(sinks.take_notices(), [event(1)]);
        assert!(!sinks.has_notices());
    }
}
