//! What workers send each other: batches of messages, one batch per turn and peer.
//!
//! ```text
//!   Batch.bytes    | kind | fixed fields | payload | kind | ...        (little endian)
//!   Batch.entries  lent values, in the order in which the messages name them (a pointer each)
//!   Batch.shards   whole shards on loan
//!   Batch.bulks    buffers of long requests, and long strings of replies: shared, not copied
//!   Batch.plans    what the sender has planned for the requests that say so, in their order
//! ```
//!
//! A request is copied once, into `bytes`; its arguments are then ranges of that buffer on the other side. Buffers go back to their
//! sender and are used again: no allocation per request. Messages are made and read by this process only, so a malformed one is a
//! bug (panic), not an input error.

use bytes::Bytes;
use skerry_resp::reply::Proto;
use skerry_resp::request::ArgRange;

use crate::args::Args;
use crate::client::ClientId;
use crate::keyspace::Entry;
use crate::pubsub::Kind;
use crate::shard::{DbIndex, Shard};
use crate::work::Plans;

/// A bundle for one peer.
#[derive(Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    pub entries: Vec<Entry>,
    pub shards: Vec<Box<Shard>>,
    pub bulks: Vec<Bytes>,
    pub plans: Vec<Plans>,
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
        debug_assert!(self.bulks.is_empty() && self.plans.is_empty());
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
    pub proto: Proto,
    pub command: u16,
    /// Hash of the first key, if `hashed_at` is not 0.
    pub hashed_at: u16,
    pub hash: u64,
    /// The next of the batch's plans belongs to it.
    pub has_plans: bool,
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
        clients: ClientIds<'a>,
    },
    /// The client's watches end (UNWATCH, DISCARD, disconnect).
    Unwatch {
        client: ClientId,
    },
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
}

/// Offsets in a reply: a bulk's bytes belong behind as many bytes of it.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a>(&'a [u8]);

impl Iterator for Places<'_> {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let (place, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*place) as usize)
    }
}

/// Length-prefixed keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a>(&'a [u8]);

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader { bytes: self.0, at: 0 };
        let len = reader.u32() as usize;
        let key = reader.take(len);
        self.0 = &self.0[reader.at..];
        Some(key)
    }
}

/// A published message: by which kind of subscription, and the pattern if that is one.
#[derive(Debug, Clone, Copy)]
pub struct Delivered<'a> {
    pub kind: Kind,
    pub pattern: &'a [u8],
    pub channel: &'a [u8],
    pub message: &'a [u8],
}

/// Names of clients.
#[derive(Debug, Clone, Copy)]
pub struct ClientIds<'a>(&'a [u8]);

impl Iterator for ClientIds<'_> {
    type Item = ClientId;
    fn next(&mut self) -> Option<ClientId> {
        let (id, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(ClientId(u64::from_le_bytes(*id)))
    }
}

/// (key index, database) pairs.
#[derive(Debug, Clone, Copy)]
pub struct Loans<'a>(&'a [u8]);

impl Iterator for Loans<'_> {
    type Item = (u32, DbIndex);
    fn next(&mut self) -> Option<(u32, DbIndex)> {
        let (pair, rest) = self.0.split_first_chunk::<6>()?;
        self.0 = rest;
        Some((
            u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]),
            DbIndex(u16::from_le_bytes([pair[4], pair[5]])),
        ))
    }
}

/// (database, key) pairs.
#[derive(Debug, Clone, Copy)]
pub struct Changes<'a>(&'a [u8]);

impl<'a> Iterator for Changes<'a> {
    type Item = (DbIndex, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader { bytes: self.0, at: 0 };
        let db = DbIndex(reader.u16());
        let len = reader.u32() as usize;
        let key = reader.take(len);
        self.0 = &self.0[reader.at..];
        Some((db, key))
    }
}

impl Batch {
    /// Appends a request. Its arguments are copied as they stand, with what lies between them, unless that is more than themselves
    /// (the half of a command): one copy instead of one for each.
    #[inline]
    pub fn push_request(&mut self, head: &RequestHead, args: Args<'_>) {
        let (span, is_dense) = span_of(args);
        let text_len = if is_dense { span.len() } else { args.ranges().iter().map(len_of).sum() };
        let fixed = request_head(kind::REQUEST, head, args.len(), text_len);
        let out = &mut self.bytes;
        out.reserve(REQUEST_HEAD + args.len() * RANGE + text_len);
        out.extend_from_slice(&fixed);
        let base = args.ranges().first().map_or(0, |first| first.start);
        let mut start = 0;
        for range in args.ranges() {
            if is_dense {
                start = range.start - base;
            }
            let end = start + (range.end - range.start);
            out.extend_from_slice(&(u64::from(start) | u64::from(end) << 32).to_le_bytes());
            start = end;
        }
        if is_dense {
            out.extend_from_slice(span);
        } else {
            args.iter().for_each(|arg| out.extend_from_slice(arg));
        }
        self.n_messages += 1;
    }

    /// Appends a request that stands in a shared buffer.
    pub fn push_shared_request(&mut self, head: &RequestHead, source: Bytes, ranges: &[ArgRange]) {
        let fixed = request_head(kind::SHARED_REQUEST, head, ranges.len(), 0);
        self.bytes.extend_from_slice(&fixed);
        for range in ranges {
            self.bytes.extend_from_slice(&range.start.to_le_bytes());
            self.bytes.extend_from_slice(&range.end.to_le_bytes());
        }
        self.bulks.push(source);
        self.n_messages += 1;
    }

    /// Starts a reply; the caller writes it into `bytes` and then calls `end_reply` with the returned mark.
    #[inline]
    pub fn begin_reply(&mut self, to: ReplyTo) -> usize {
        match to {
            ReplyTo::Slot { client, sequence } => {
                let mut fixed = [0u8; REPLY_HEAD];
                fixed[0] = kind::REPLY;
                fixed[1..9].copy_from_slice(&client.0.to_le_bytes());
                fixed[9..13].copy_from_slice(&sequence.to_le_bytes());
                self.bytes.extend_from_slice(&fixed);
            }
            ReplyTo::Gather { id } => {
                self.bytes.push(kind::PART);
                self.bytes.extend_from_slice(&id.to_le_bytes());
                self.bytes.extend_from_slice(&[0; 4]);
            }
            ReplyTo::Lend { id } => {
                self.bytes.push(kind::HALF);
                self.bytes.extend_from_slice(&id.0.to_le_bytes());
                self.bytes.extend_from_slice(&[0; 4]);
            }
        }
        self.n_messages += 1;
        self.bytes.len()
    }

    #[inline]
    pub fn end_reply(&mut self, mark: usize) {
        let len = (self.bytes.len() - mark) as u32;
        self.bytes[mark - 4..mark].copy_from_slice(&len.to_le_bytes());
    }

    /// Ends a reply to a client's slot in which strings are left out: (place, bytes), the places counted from the reply's start.
    pub fn end_shared_reply(&mut self, mark: usize, bulks: impl Iterator<Item = (usize, Bytes)>) {
        self.end_reply(mark);
        self.bytes[mark - REPLY_HEAD] = kind::SHARED_REPLY;
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let n_before = self.bulks.len();
        for (place, bytes) in bulks {
            self.bytes.extend_from_slice(&(place as u32).to_le_bytes());
            self.bulks.push(bytes);
        }
        let n = (self.bulks.len() - n_before) as u32;
        self.bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
    }

    /// Takes a begun reply back: it will come later.
    pub fn cancel_reply(&mut self, mark: usize, to: ReplyTo) {
        let head = match to {
            ReplyTo::Slot { .. } => REPLY_HEAD,
            ReplyTo::Gather { .. } => 1 + 4 + 4,
            ReplyTo::Lend { .. } => 1 + 8 + 4,
        };
        self.bytes.truncate(mark - head);
        self.n_messages -= 1;
    }

    pub fn push_ask<'a>(
        &mut self,
        lend: LendId,
        client: ClientId,
        mode: HoldMode,
        round: Round,
        has_watches: bool,
        keys: impl Iterator<Item = &'a [u8]>,
    ) {
        let out = &mut self.bytes;
        out.push(kind::ASK);
        out.extend_from_slice(&lend.0.to_le_bytes());
        out.extend_from_slice(&client.0.to_le_bytes());
        out.push(mode.code() | (u8::from(round == Round::Wait) << 2) | (u8::from(has_watches) << 3));
        let mark = out.len();
        out.extend_from_slice(&[0; 8]);
        let mut n_keys = 0u32;
        for key in keys {
            put_key(out, key);
            n_keys += 1;
        }
        let len = (out.len() - mark - 8) as u32;
        out[mark..mark + 4].copy_from_slice(&n_keys.to_le_bytes());
        out[mark + 4..mark + 8].copy_from_slice(&len.to_le_bytes());
        self.n_messages += 1;
    }

    /// `loans` tells which entries, already pushed to `entries` in this order, belong to this grant.
    pub fn push_grant(&mut self, lend: LendId, is_touched: bool, now_ms: i64, loans: &[(u32, DbIndex)]) {
        let out = &mut self.bytes;
        out.push(kind::GRANT);
        out.extend_from_slice(&lend.0.to_le_bytes());
        out.push(u8::from(is_touched));
        out.extend_from_slice(&now_ms.to_le_bytes());
        put_loans(out, loans);
        self.n_messages += 1;
    }

    pub fn push_refuse(&mut self, lend: LendId) {
        self.bytes.push(kind::REFUSE);
        self.bytes.extend_from_slice(&lend.0.to_le_bytes());
        self.n_messages += 1;
    }

    pub fn push_return<'a>(
        &mut self,
        lend: LendId,
        mode: HoldMode,
        loans: &[(u32, DbIndex)],
        changed: impl Iterator<Item = (DbIndex, &'a [u8])>,
    ) {
        let out = &mut self.bytes;
        out.push(kind::RETURN);
        out.extend_from_slice(&lend.0.to_le_bytes());
        out.push(mode.code());
        put_loans(out, loans);
        let mark = out.len();
        out.extend_from_slice(&[0; 8]);
        let mut n_changed = 0u32;
        for (db, key) in changed {
            out.extend_from_slice(&db.0.to_le_bytes());
            put_key(out, key);
            n_changed += 1;
        }
        let len = (out.len() - mark - 8) as u32;
        out[mark..mark + 4].copy_from_slice(&n_changed.to_le_bytes());
        out[mark + 4..mark + 8].copy_from_slice(&len.to_le_bytes());
        self.n_messages += 1;
    }

    /// Nothing is sent if there are no clients.
    pub fn push_delivery(&mut self, delivered: Delivered<'_>, clients: impl Iterator<Item = ClientId>) {
        let start = self.bytes.len();
        let out = &mut self.bytes;
        out.push(kind::DELIVER);
        out.push(delivered.kind.code());
        out.extend_from_slice(&[0; 4]);
        let ids = out.len();
        clients.for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
        let ids_len = (out.len() - ids) as u32;
        if ids_len == 0 {
            out.truncate(start);
            return;
        }
        out[ids - 4..ids].copy_from_slice(&ids_len.to_le_bytes());
        for text in [delivered.pattern, delivered.channel, delivered.message] {
            put_key(out, text);
        }
        self.n_messages += 1;
    }

    pub fn push_unwatch(&mut self, client: ClientId) {
        self.bytes.push(kind::UNWATCH);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.n_messages += 1;
    }
}

const REQUEST_HEAD: usize = 36;
const REPLY_HEAD: usize = 17;
/// A range of the text: two `u32`.
const RANGE: usize = 8;

#[inline(always)]
fn request_head(kind: u8, head: &RequestHead, argc: usize, text_len: usize) -> [u8; REQUEST_HEAD] {
    let (is_gather, sequence) = match head.reply_to {
        ReplyTo::Slot { sequence, .. } => (0u8, sequence),
        ReplyTo::Gather { id } => (2, id),
        ReplyTo::Lend { .. } => (4, 0),
    };
    let hash = match head.reply_to {
        // Such a request has several keys and carries no hash: the place is free.
        ReplyTo::Lend { id } => id.0,
        ReplyTo::Slot { .. } | ReplyTo::Gather { .. } => head.hash,
    };
    let mut fixed = [0u8; REQUEST_HEAD];
    fixed[0] = kind;
    fixed[1] = u8::from(head.proto == Proto::Resp3) | is_gather | u8::from(head.has_plans) << 3;
    fixed[2..4].copy_from_slice(&head.db.0.to_le_bytes());
    fixed[4..6].copy_from_slice(&head.command.to_le_bytes());
    fixed[6..8].copy_from_slice(&head.hashed_at.to_le_bytes());
    fixed[8..16].copy_from_slice(&hash.to_le_bytes());
    fixed[16..24].copy_from_slice(&head.client.0.to_le_bytes());
    fixed[24..28].copy_from_slice(&sequence.to_le_bytes());
    fixed[28..32].copy_from_slice(&(argc as u32).to_le_bytes());
    fixed[32..36].copy_from_slice(&(text_len as u32).to_le_bytes());
    fixed
}

fn len_of(range: &ArgRange) -> usize {
    (range.end - range.start) as usize
}

/// The bytes from the first argument to the last, and whether it is worth copying them in one piece.
#[inline]
fn span_of(args: Args<'_>) -> (&[u8], bool) {
    let [first, .., last] = args.ranges() else { return (&[], false) };
    if last.end < first.start {
        return (&[], false);
    }
    let span = (last.end - first.start) as usize;
    // Between two arguments of a request stand a line end and a short header.
    let is_dense = match args.len() {
        2 | 3 => true,
        n => span <= args.ranges().iter().map(len_of).sum::<usize>() + n * MAX_BETWEEN,
    };
    (args.span(), is_dense)
}

/// CR LF, `$`, a length below a million, CR LF.
const MAX_BETWEEN: usize = 11;

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
}

fn put_loans(out: &mut Vec<u8>, loans: &[(u32, DbIndex)]) {
    out.extend_from_slice(&(loans.len() as u32).to_le_bytes());
    for (index, db) in loans {
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&db.0.to_le_bytes());
    }
}

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

/// Reads the messages of a batch, in order.
pub struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    fn take(&mut self, len: usize) -> &'a [u8] {
        let slice = &self.bytes[self.at..self.at + len];
        self.at += len;
        slice
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N));
        array
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    #[inline]
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
    #[inline]
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Passes over the next message; for a request whose key has been hashed, its database and that hash. `None` at the end, and at
    /// a message that is neither request nor reply: those are few.
    #[inline]
    pub fn skip_ahead(&mut self) -> Option<Option<(DbIndex, u64)>> {
        let rest = &self.bytes[self.at..];
        let word = |at: usize| rest[at..at + 4].first_chunk().map_or(0, |c| u32::from_le_bytes(*c)) as usize;
        match *rest.first()? {
            kind::REQUEST => {
                let (argc, text_len) = (word(28), word(32));
                let hash = word(8) as u64 | (word(12) as u64) << 32;
                let db = DbIndex(u16::from_le_bytes([rest[2], rest[3]]));
                let is_hashed = rest[6] | rest[7] != 0;
                self.at += REQUEST_HEAD + argc * RANGE + text_len;
                Some(is_hashed.then_some((db, hash)))
            }
            kind::REPLY => {
                self.at += REPLY_HEAD + word(13);
                Some(None)
            }
            _ => None,
        }
    }

    /// The next message, `None` at the end.
    #[inline]
    pub fn next_message(&mut self) -> Option<Message<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        Some(match self.u8() {
            kind @ (kind::REQUEST | kind::SHARED_REQUEST) => {
                let f: [u8; REQUEST_HEAD - 1] = self.array();
                let word = |at: usize| u32::from_le_bytes([f[at], f[at + 1], f[at + 2], f[at + 3]]);
                let short = |at: usize| u16::from_le_bytes([f[at], f[at + 1]]);
                let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
                let (hash, client, sequence, argc) = (long(7), ClientId(long(15)), word(23), word(27));
                let proto = if f[0] & 1 == 1 { Proto::Resp3 } else { Proto::Resp2 };
                let reply_to = match f[0] & 6 {
                    0 => ReplyTo::Slot { client, sequence },
                    2 => ReplyTo::Gather { id: sequence },
                    _ => ReplyTo::Lend { id: LendId(hash) },
                };
                let (db, command, hashed_at) = (DbIndex(short(1)), short(3), short(5));
                let has_plans = f[0] & 8 != 0;
                let head = RequestHead { reply_to, client, db, proto, command, hashed_at, hash, has_plans };
                let ranges = self.take(argc as usize * RANGE);
                match kind {
                    kind::REQUEST => Message::Request { head, ranges, text: self.take(word(31) as usize) },
                    _ => Message::SharedRequest { head, ranges },
                }
            }
            kind::REPLY => {
                let client = ClientId(self.u64());
                let sequence = self.u32();
                let len = self.u32() as usize;
                Message::Reply { client, sequence, reply: self.take(len), places: Places(&[]) }
            }
            kind::SHARED_REPLY => {
                let client = ClientId(self.u64());
                let sequence = self.u32();
                let len = self.u32() as usize;
                let reply = self.take(len);
                let n = self.u32() as usize;
                Message::Reply { client, sequence, reply, places: Places(self.take(n * 4)) }
            }
            kind::PART => {
                let gather = self.u32();
                let len = self.u32() as usize;
                Message::Part { gather, reply: self.take(len) }
            }
            kind::HALF => {
                let lend = LendId(self.u64());
                let len = self.u32() as usize;
                Message::Half { lend, reply: self.take(len) }
            }
            kind::ASK => {
                let lend = LendId(self.u64());
                let client = ClientId(self.u64());
                let bits = self.u8();
                let n_keys = self.u32();
                let len = self.u32() as usize;
                Message::Ask {
                    lend,
                    client,
                    mode: HoldMode::from_code(bits),
                    round: if bits & 4 == 0 { Round::Try } else { Round::Wait },
                    has_watches: bits & 8 != 0,
                    n_keys,
                    keys: Keys(self.take(len)),
                }
            }
            kind::GRANT => {
                let lend = LendId(self.u64());
                let is_touched = self.u8() != 0;
                let now_ms = self.u64() as i64;
                let n = self.u32() as usize;
                Message::Grant { lend, is_touched, now_ms, loans: Loans(self.take(n * 6)) }
            }
            kind::REFUSE => Message::Refuse { lend: LendId(self.u64()) },
            kind::RETURN => {
                let lend = LendId(self.u64());
                let mode = HoldMode::from_code(self.u8());
                let n = self.u32() as usize;
                let loans = Loans(self.take(n * 6));
                let n_changed = self.u32();
                let len = self.u32() as usize;
                Message::Return { lend, mode, loans, n_changed, changed: Changes(self.take(len)) }
            }
            kind::DELIVER => {
                let kind = Kind::from_code(self.u8());
                let len = self.u32() as usize;
                let clients = ClientIds(self.take(len));
                let mut text = || {
                    let len = self.u32() as usize;
                    self.take(len)
                };
                let (pattern, channel, message) = (text(), text(), text());
                Message::Deliver { delivered: Delivered { kind, pattern, channel, message }, clients }
            }
            kind::UNWATCH => Message::Unwatch { client: ClientId(self.u64()) },
            other => panic!("message kind {other} in a batch of this process"),
        })
    }
}

/// The ranges of a request's arguments in its text.
#[inline]
pub fn read_ranges(packed: &[u8], ranges: &mut Vec<ArgRange>) {
    ranges.clear();
    ranges.extend(packed.chunks_exact(RANGE).map(|c| ArgRange {
        start: u32::from_le_bytes([c[0], c[1], c[2], c[3]]),
        end: u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_batch() {
        let mut batch = Batch::default();
        let client = ClientId(77);
        let head = RequestHead {
            reply_to: ReplyTo::Slot { client, sequence: 9 },
            client,
            db: DbIndex(3),
            proto: Proto::Resp3,
            command: 12,
            hashed_at: 1,
            hash: 0xdead_beef,
            has_plans: true,
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
        assert!(got.has_plans && got.proto == head.proto);
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
        let Some(Message::Return { loans, changed, .. }) = reader.next_message() else { panic!() };
        assert_eq!(loans.collect::<Vec<_>>(), [(1, DbIndex(2))]);
        assert_eq!(changed.collect::<Vec<_>>(), [(DbIndex(2), &b"bb"[..])]);
        assert!(reader.next_message().is_none());
    }
}
