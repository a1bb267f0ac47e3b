//! What workers send each other: batches of messages, one batch per turn and peer.
//!
//! ```text
//!   Batch.bytes    | kind | fixed fields | payload | kind | ...        (little endian)
//!   Batch.entries  lent values, in the order in which the messages name them (a pointer each)
//!   Batch.shards   whole shards on loan
//!   Batch.bulks    buffers of long requests, and long strings of replies: shared, not copied
//!   Batch.plans    what the sender has planned for the requests that say so, in their order
//!   Batch.claims   of the requests that may wait for their keys, in their order
//! ```
//!
//! A request is copied once, into `bytes`; its arguments are then ranges of that buffer on the other side. Buffers go back to their
//! sender and are used again: no allocation per request. Messages are made and read by this process only, so a malformed one is a
//! bug (panic), not an input error.

use std::sync::Arc;

use bytes::Bytes;
use skerry_resp::reply::Proto;

use crate::blocked::{Awaited, Claim};
use crate::client::ClientId;
use crate::command::Caller;
use crate::keyspace::{Entry, Touch};
use crate::pubsub::Kind;
use crate::shard::{DbIndex, Shard};
use crate::work::Plans;

mod packed;
mod read;
mod write;

pub use packed::{Changes, ClientIds, Keys, Loans, Places, WrittenKeys};
pub use read::{Reader, read_ranges};

/// A bundle for one peer.
#[derive(Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    pub entries: Vec<Entry>,
    pub shards: Vec<Box<Shard>>,
    pub bulks: Vec<Bytes>,
    pub plans: Vec<Plans>,
    pub claims: Vec<Arc<Claim>>,
    /// Messages in `bytes`.
    pub n_messages: u32,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Empties the batch and keeps its buffer, unless that has grown big.
    pub fn recycle(&mut self) {
        self.bytes.clear();
        self.n_messages = 0;
        if self.bytes.capacity() > KEPT_BATCH {
            self.bytes = Vec::new();
        }
        debug_assert!(self.entries.is_empty() && self.shards.is_empty());
        debug_assert!(self.bulks.is_empty() && self.plans.is_empty() && self.claims.is_empty());
    }
}

/// A batch buffer bigger than this is freed instead of used again.
const KEPT_BATCH: usize = 8 << 20;

/// A lend: the coordinator's number for it, unique per coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LendId(pub u64);

/// What a lend asks of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldMode {
    /// Read-only: nobody may change the keys.
    Shared,
    /// Nobody else may see the keys.
    Exclusive,
    /// The whole shard.
    Whole,
}

/// First try (refused rather than made to wait) or ordered wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Try,
    Wait,
}

/// What became of a blocked client that was called to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// It has its answer.
    Answered,
    /// There was nothing for it after all.
    WaitsOn,
    /// It is on its way already, for another of its keys: this one is not to be held for it. Who waits in order for keys must not hold
    /// any out of order.
    Coming,
}

impl Called {
    const ALL: [Self; 3] = [Self::Answered, Self::WaitsOn, Self::Coming];

    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Self {
        Self::ALL[usize::from(code)]
    }
}

/// Where the answer to a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTo {
    /// A client's pending slot.
    Slot { client: ClientId, sequence: u32 },
    /// A part of a gathering (`Split`, WATCH).
    Gather { id: u32 },
    /// The other half of a command with two owners: refused rather than made to wait.
    Lend { id: LendId },
}

/// A request for another shard. Arguments follow as lengths and bytes.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead {
    pub reply_to: ReplyTo,
    pub client: ClientId,
    pub db: DbIndex,
    pub touch: Touch,
    pub proto: Proto,
    pub command: u16,
    /// Hash of the first key, if `hashed_at` is not 0.
    pub hashed_at: u16,
    pub hash: u64,
    /// The next of the batch's plans belongs to it.
    pub has_plans: bool,
    /// It may wait for its keys; the next of the batch's claims is its own.
    pub may_wait: bool,
    /// The client tracks what it reads.
    pub is_tracked: bool,
}

impl RequestHead {
    pub fn caller(&self) -> Caller {
        Caller { client: self.client, db: self.db, touch: self.touch }
    }
}

/// What published messages have in common that reach clients in one way: the kind of subscription, and the pattern if that is one.
#[derive(Debug, Clone, Copy)]
pub struct Delivered<'a> {
    pub kind: Kind,
    pub pattern: &'a [u8],
    pub channel: &'a [u8],
}

/// A message as read from a batch.
#[derive(Debug)]
pub enum Message<'a> {
    Request {
        head: RequestHead,
        /// Ranges of the text, as `read_ranges` takes them.
        ranges: &'a [u8],
        text: &'a [u8],
    },
    /// A request whose text is the batch's next bulk.
    SharedRequest {
        head: RequestHead,
        ranges: &'a [u8],
    },
    /// `places` are those of the batch's next bulks in the reply, none for most.
    Reply {
        client: ClientId,
        sequence: u32,
        reply: &'a [u8],
        places: Places<'a>,
    },
    Part {
        gather: u32,
        reply: &'a [u8],
    },
    Half {
        lend: LendId,
        reply: &'a [u8],
    },
    Ask {
        lend: LendId,
        client: ClientId,
        mode: HoldMode,
        round: Round,
        has_watches: bool,
        n_keys: u32,
        keys: Keys<'a>,
    },
    /// `loans`: (index of the key in the ask, database) of each entry sent along.
    Grant {
        lend: LendId,
        is_touched: bool,
        now_ms: i64,
        loans: Loans<'a>,
    },
    Refuse {
        lend: LendId,
    },
    /// The loans go home; `changed` names the keys that changed.
    Return {
        lend: LendId,
        mode: HoldMode,
        loans: Loans<'a>,
        n_changed: u32,
        changed: Changes<'a>,
    },
    /// A published message for clients of the receiver.
    Deliver {
        delivered: Delivered<'a>,
        /// In the order in which they were published.
        texts: Keys<'a>,
        clients: ClientIds<'a>,
    },
    /// To the owner of a client's request that may wait, to its worker: it waits, till the deadline if that is not 0.
    Blocked {
        client: ClientId,
        sequence: u32,
        deadline_ms: i64,
    },
    /// Such a request was served.
    Served {
        client: ClientId,
        sequence: u32,
        reply: &'a [u8],
    },
    /// From a client's worker to an owner, before the return of the lend in which it found nothing: it waits for these keys.
    Block {
        client: ClientId,
        db: DbIndex,
        awaited: Awaited,
        keys: Keys<'a>,
    },
    /// From an owner: one of those keys was filled, and is held until its worker asks for it.
    Call {
        client: ClientId,
    },
    /// From the client's worker, before the return of the lend that followed: what became of it.
    Settle {
        client: ClientId,
        outcome: Called,
    },
    /// From the client's worker: it waits no more.
    Unblock {
        client: ClientId,
    },
    /// A client has read keys of the receiver by a lend that is about to come home, and wants to be told when they change.
    Track {
        client: ClientId,
        keys: Keys<'a>,
    },
    /// News for clients of the receiver.
    Told {
        told: Told<'a>,
        clients: ClientIds<'a>,
    },
    /// The client's watches end (UNWATCH, DISCARD, disconnect).
    Unwatch {
        client: ClientId,
    },
}

/// What clients are told without having asked for it just then.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A key that they have read has changed, by a client or by itself.
    Invalidated { key: &'a [u8], writer: Option<ClientId> },
    /// Keys with a prefix of theirs have changed.
    Broadcast { keys: WrittenKeys<'a> },
    /// A message of another client's tracking, redirected to them.
    Redirected { payload: &'a [u8] },
    /// A line of MONITOR.
    Shown { line: &'a [u8] },
}

mod kind {
    pub(super) const REQUEST: u8 = 1;
    pub(super) const REPLY: u8 = 2;
    pub(super) const PART: u8 = 3;
    pub(super) const ASK: u8 = 4;
    pub(super) const GRANT: u8 = 5;
    pub(super) const REFUSE: u8 = 6;
    pub(super) const RETURN: u8 = 7;
    pub(super) const UNWATCH: u8 = 8;
    pub(super) const HALF: u8 = 9;
    pub(super) const SHARED_REQUEST: u8 = 10;
    pub(super) const SHARED_REPLY: u8 = 11;
    pub(super) const DELIVER: u8 = 12;
    pub(super) const BLOCKED: u8 = 13;
    pub(super) const SERVED: u8 = 14;
    pub(super) const BLOCK: u8 = 15;
    pub(super) const CALL: u8 = 16;
    pub(super) const SETTLE: u8 = 17;
    pub(super) const UNBLOCK: u8 = 18;
    pub(super) const TRACK: u8 = 19;
    pub(super) const TOLD: u8 = 20;
}
const REQUEST_HEAD: usize = 36;
const REPLY_HEAD: usize = 17;
/// A range of the text: two `u32`.
const RANGE: usize = 8;

impl HoldMode {
    fn code(self) -> u8 {
        match self {
            Self::Shared => 0,
            Self::Exclusive => 1,
            Self::Whole => 2,
        }
    }

    fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Shared,
            1 => Self::Exclusive,
            _ => Self::Whole,
        }
    }
}
#[cfg(test)]
mod tests {
    use skerry_resp::request::ArgRange;

    use super::*;
    use crate::args::Args;

    #[test]
    fn messages_survive_the_batch() {
        let mut batch = Batch::default();
        let client = ClientId(77);
        let head = RequestHead {
            reply_to: ReplyTo::Slot { client, sequence: 9 },
            client,
            db: DbIndex(3),
            touch: Touch::LeavesNoMark,
            proto: Proto::Resp3,
            command: 12,
            hashed_at: 1,
            hash: 0xdead_beef,
            has_plans: true,
            may_wait: true,
            is_tracked: true,
        };
        let text = b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$5\r\nvalue\r\n";
        let at = |start, end| ArgRange { start, end };
        batch.push_request(&head, Args::new(text, &[at(8, 11), at(17, 18), at(24, 29)]));
        // Far apart: only the arguments themselves are copied.
        let far = [&b"mset"[..], &[b'.'; 100], b"key", &[b'.'; 100], b"v"].concat();
        batch.push_request(&head, Args::new(&far, &[at(0, 4), at(104, 107), at(104, 107), at(207, 208)]));
        let mark = batch.begin_reply(ReplyTo::Gather { id: 5 });
        batch.bytes.extend_from_slice(b"+OK\r\n");
        batch.end_reply(mark);
        batch.push_ask(
            LendId(4),
            client,
            HoldMode::Shared,
            Round::Wait,
            true,
            [&b"a"[..], b"bb"].into_iter(),
        );
        batch.push_blocked(client, 9, 1234);
        batch.push_served(client, 9, b"+x\r\n");
        batch.push_block(client, DbIndex(3), Awaited::StreamOrLoss, [&b"a"[..], b"bb"].into_iter());
        batch.push_call(client);
        batch.push_settle(client, Called::WaitsOn);
        batch.push_unblock(client);
        batch.push_return(
            LendId(4),
            HoldMode::Exclusive,
            &[(1, DbIndex(2))],
            [(DbIndex(2), &b"bb"[..])].into_iter(),
        );

        let mut reader = Reader::new(&batch.bytes);
        let mut ahead = Reader::new(&batch.bytes);
        assert_eq!(ahead.skip_ahead(), Some(Some((head.db, head.hash))));
        let Some(Message::Request { head: got, ranges: packed, text }) = reader.next_message() else {
            panic!()
        };
        assert_eq!(ahead.at, reader.at);
        assert_eq!((got.db, got.hash, got.reply_to), (head.db, head.hash, head.reply_to));
        assert_eq!(got.touch, head.touch);
        assert!(got.has_plans && got.may_wait && got.is_tracked && got.proto == head.proto);
        let mut ranges = Vec::new();
        read_ranges(packed, &mut ranges);
        assert_eq!(Args::new(text, &ranges).iter().collect::<Vec<_>>(), [&b"set"[..], b"k", b"value"]);
        let Some(Message::Request { ranges: packed, text, .. }) = reader.next_message() else { panic!() };
        read_ranges(packed, &mut ranges);
        assert_eq!(text, b"msetkeykeyv");
        assert_eq!(Args::new(text, &ranges).iter().collect::<Vec<_>>(), [&b"mset"[..], b"key", b"key", b"v"]);
        let Some(Message::Part { gather: 5, reply: b"+OK\r\n" }) = reader.next_message() else { panic!() };
        let Some(Message::Ask { mode, round, has_watches, n_keys, keys, .. }) = reader.next_message() else {
            panic!()
        };
        assert_eq!((mode, round, has_watches, n_keys), (HoldMode::Shared, Round::Wait, true, 2));
        assert_eq!(keys.collect::<Vec<_>>(), [&b"a"[..], b"bb"]);
        let Some(Message::Blocked { client: ClientId(77), sequence: 9, deadline_ms: 1234 }) =
            reader.next_message()
        else {
            panic!()
        };
        let Some(Message::Served { client: ClientId(77), sequence: 9, reply: b"+x\r\n" }) =
            reader.next_message()
        else {
            panic!()
        };
        let Some(Message::Block { client: ClientId(77), db: DbIndex(3), awaited, keys }) =
            reader.next_message()
        else {
            panic!()
        };
        assert_eq!(awaited, Awaited::StreamOrLoss);
        assert_eq!(keys.collect::<Vec<_>>(), [&b"a"[..], b"bb"]);
        let Some(Message::Call { client: ClientId(77) }) = reader.next_message() else { panic!() };
        let Some(Message::Settle { client: ClientId(77), outcome: Called::WaitsOn }) = reader.next_message()
        else {
            panic!()
        };
        let Some(Message::Unblock { client: ClientId(77) }) = reader.next_message() else { panic!() };
        let Some(Message::Return { loans, changed, .. }) = reader.next_message() else { panic!() };
        assert_eq!(loans.collect::<Vec<_>>(), [(1, DbIndex(2))]);
        assert_eq!(changed.collect::<Vec<_>>(), [(DbIndex(2), &b"bb"[..])]);
        assert!(reader.next_message().is_none());
    }
}
