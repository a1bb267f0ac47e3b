//! Reading the messages of a batch, in order.

use skerry_resp::reply::Proto;
use skerry_resp::request::ArgRange;

use super::packed::{Changes, ClientIds, Keys, Loans, Places, WrittenKeys};
use super::{
    Called, Delivered, HoldMode, LendId, Message, RANGE, REPLY_HEAD, REQUEST_HEAD, ReplyTo, RequestHead,
    Round, Told, kind,
};
use crate::blocked::Awaited;
use crate::client::ClientId;
use crate::keyspace::Touch;
use crate::pubsub::Kind;
use crate::shard::DbIndex;

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
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
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
    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    #[inline]
    pub(super) fn u32(&mut self) -> u32 {
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
                let (has_plans, may_wait) = (f[0] & 8 != 0, f[0] & 32 != 0);
                let touch = if f[0] & 16 == 0 { Touch::Marks } else { Touch::LeavesNoMark };
                let head = RequestHead {
                    reply_to,
                    client,
                    db,
                    touch,
                    proto,
                    command,
                    hashed_at,
                    hash,
                    has_plans,
                    may_wait,
                    is_tracked: f[0] & 64 != 0,
                };
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
                let (pattern, channel, texts) = (text(), text(), Keys(text()));
                Message::Deliver { delivered: Delivered { kind, pattern, channel }, texts, clients }
            }
            kind::BLOCKED => {
                let client = ClientId(self.u64());
                let sequence = self.u32();
                Message::Blocked { client, sequence, deadline_ms: self.u64() as i64 }
            }
            kind::SERVED => {
                let client = ClientId(self.u64());
                let sequence = self.u32();
                let len = self.u32() as usize;
                Message::Served { client, sequence, reply: self.take(len) }
            }
            kind::BLOCK => {
                let client = ClientId(self.u64());
                let db = DbIndex(self.u16());
                let awaited = Awaited::from_code(self.u8());
                let len = self.u32() as usize;
                Message::Block { client, db, awaited, keys: Keys(self.take(len)) }
            }
            kind::CALL => Message::Call { client: ClientId(self.u64()) },
            kind::SETTLE => {
                let client = ClientId(self.u64());
                let outcome = Called::from_code(self.u8());
                Message::Settle { client, outcome }
            }
            kind::UNBLOCK => Message::Unblock { client: ClientId(self.u64()) },
            kind::TRACK => {
                let client = ClientId(self.u64());
                let len = self.u32() as usize;
                Message::Track { client, keys: Keys(self.take(len)) }
            }
            kind::TOLD => {
                let (code, has_writer, writer) = (self.u8(), self.u8() != 0, ClientId(self.u64()));
                let len = self.u32() as usize;
                let clients = ClientIds(self.take(len));
                let len = self.u32() as usize;
                let text = self.take(len);
                let told = match code {
                    0 => Told::Invalidated { key: text, writer: has_writer.then_some(writer) },
                    1 => Told::Broadcast { keys: WrittenKeys(text) },
                    2 => Told::Redirected { payload: text },
                    _ => Told::Shown { line: text },
                };
                Message::Told { told, clients }
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
