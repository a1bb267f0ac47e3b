//! Keyspace events as they were told, kept for whoever asks: the record behind DEBUG EVENTS.
//!
//! Classes, names and order are those of Redis's notifications
//! (<https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/>); no subscriber is served from here.
//! A record is bounded: the oldest events go when more than `EVENTS_MAX` wait.

use std::collections::VecDeque;

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

/// What happened since the record was last taken, oldest first.
#[derive(Debug, Default)]
pub struct EventRecord(VecDeque<Event>);

impl EventRecord {
    pub fn push(&mut self, event: Event) {
        if self.0.len() == EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub fn take(&mut self) -> VecDeque<Event> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let mut record = EventRecord::default();
        for n in 0..EVENTS_MAX + 2 {
            let key = n.to_string().into_bytes().into();
            record.push(Event { db: DbIndex(0), class: EventClass::String, name: "set", key });
        }
        let events = record.take();
        assert_eq!(events.len(), EVENTS_MAX);
        assert_eq!(*events[0].key, *b"2");
        assert!(record.take().is_empty());
    }
}
