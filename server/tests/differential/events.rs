//! The keyspace events of two servers, compared: Redis's by subscription, ours by DEBUG EVENTS.
//!
//! `expired` is left out, as when a server meets a dead key is its own affair. What several shards did has no order among
//! them, so with more than one worker the events are compared as a bag.

use super::support::conn::Conn;
use super::support::reply::Reply;
use super::support::server::{Kind, Server};
use super::support::words;

pub(crate) struct Events {
    ours: Conn,
    theirs: Conn,
    is_ordered: bool,
}

impl Events {
    /// Both servers record from here on. A Skerry that is compared with itself has none to compare.
    pub(crate) fn new(ours: &Server, theirs: &Server) -> Events {
        assert_eq!(theirs.kind, Kind::Redis, "events are compared with Redis's");
        // Every class but key misses and new keys is in A.
        let mut control = theirs.connect();
        control.call(&["CONFIG", "SET", "notify-keyspace-events", "AEmn"]);
        let mut subscriber = theirs.connect();
        subscriber.call(&["PSUBSCRIBE", "__keyevent@*__:*"]);
        let is_ordered = ours.kind == Kind::Skerry { threads: 1 };
        let mut events = Events { ours: ours.connect(), theirs: subscriber, is_ordered };
        events.drop_all();
        events
    }

    pub(crate) fn drop_all(&mut self) {
        self.take_ours();
        self.take_theirs();
    }

    /// Compares what happened since the last call.
    pub(crate) fn compare(&mut self) -> Result<(), String> {
        let (mut ours, mut theirs) = (self.take_ours(), self.take_theirs());
        for events in [&mut ours, &mut theirs] {
            match self.is_ordered {
                true => sort_misses(events),
                false => events.sort(),
            }
        }
        if ours == theirs {
            return Ok(());
        }
        let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        let tail = |events: &[String]| events[at..].iter().take(6).cloned().collect::<Vec<_>>().join(", ");
        Err(format!("events from {at} on:\n  ours   {}\n  theirs {}", tail(&ours), tail(&theirs)))
    }

    fn take_ours(&mut self) -> Vec<String> {
        let events = self.ours.call(&["DEBUG", "EVENTS"]).items().expect("an array of events");
        let mut shown = Vec::new();
        for event in events {
            let fields = event.items().expect("an event's fields");
            let [Reply::Int(db), class, name, key] = &fields[..] else { panic!("an event: {fields:?}") };
            if class.text() == Some(b"d") {
                // Those of vector sets: Redis sends none.
                continue;
            }
            shown.extend(show(&db.to_string(), name, key));
        }
        shown
    }

    fn take_theirs(&mut self) -> Vec<String> {
        self.theirs.send(&["PING"]).expect("the subscriber lives");
        let mut shown = Vec::new();
        loop {
            let message = self.theirs.read().expect("the subscriber is answered").items().expect("a message");
            if message.len() == 2 {
                return shown;
            }
            let channel = String::from_utf8_lossy(message[2].text().expect("a channel")).into_owned();
            let (db, name) = channel["__keyevent@".len()..].split_once("__:").expect("a channel of events");
            shown.extend(show(db, &Reply::Bulk(name.as_bytes().to_vec()), &message[3]));
        }
    }
}

/// SORT looks its patterns up in the order in which a collection happens to be stored.
fn sort_misses(events: &mut [String]) {
    let is_miss = |event: &String| event.starts_with("keymiss ");
    events.chunk_by_mut(|a, b| is_miss(a) && is_miss(b)).for_each(<[String]>::sort);
}

fn show(db: &str, name: &Reply, key: &Reply) -> Option<String> {
    let text = |reply: &Reply| reply.text().expect("a text").to_vec();
    let name = text(name);
    (name != b"expired").then(|| format!("{} {} in {db}", words::show(&[name]), words::show(&[text(key)])))
}
