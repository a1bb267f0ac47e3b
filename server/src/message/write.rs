//! Writing messages into a batch.

use bytes::Bytes;
use skerry_resp::reply::Proto;
use skerry_resp::request::ArgRange;

use super::{
    Batch, Called, Delivered, HoldMode, LendId, RANGE, REPLY_HEAD, REQUEST_HEAD, ReplyTo, RequestHead, Round,
    Told, kind,
};
use crate::args::Args;
use crate::blocked::Awaited;
use crate::client::ClientId;
use crate::keyspace::Touch;
use crate::shard::DbIndex;

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

    /// Published messages for clients of the receiver. Nothing is sent if there are none.
    pub fn push_delivery<'m>(
        &mut self,
        delivered: Delivered<'_>,
        texts: impl Iterator<Item = &'m [u8]>,
        clients: impl Iterator<Item = ClientId>,
    ) {
        let start = self.bytes.len();
        let out = &mut self.bytes;
        out.push(kind::DELIVER);
        out.push(delivered.kind.code());
        if !put_clients(out, clients) {
            out.truncate(start);
            return;
        }
        put_key(out, delivered.pattern);
        put_key(out, delivered.channel);
        let all = put_len(out);
        texts.for_each(|text| put_key(out, text));
        fill_len(out, all);
        self.n_messages += 1;
    }

    pub fn push_blocked(&mut self, client: ClientId, sequence: u32, deadline_ms: i64) {
        self.bytes.push(kind::BLOCKED);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.bytes.extend_from_slice(&sequence.to_le_bytes());
        self.bytes.extend_from_slice(&deadline_ms.to_le_bytes());
        self.n_messages += 1;
    }

    pub fn push_served(&mut self, client: ClientId, sequence: u32, reply: &[u8]) {
        self.bytes.push(kind::SERVED);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.bytes.extend_from_slice(&sequence.to_le_bytes());
        put_key(&mut self.bytes, reply);
        self.n_messages += 1;
    }

    pub fn push_block<'a>(
        &mut self,
        client: ClientId,
        db: DbIndex,
        awaited: Awaited,
        keys: impl Iterator<Item = &'a [u8]>,
    ) {
        let out = &mut self.bytes;
        out.push(kind::BLOCK);
        out.extend_from_slice(&client.0.to_le_bytes());
        out.extend_from_slice(&db.0.to_le_bytes());
        out.push(awaited.code());
        let all = put_len(out);
        keys.for_each(|key| put_key(out, key));
        fill_len(out, all);
        self.n_messages += 1;
    }

    pub fn push_call(&mut self, client: ClientId) {
        self.bytes.push(kind::CALL);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.n_messages += 1;
    }

    pub fn push_settle(&mut self, client: ClientId, outcome: Called) {
        self.bytes.push(kind::SETTLE);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.bytes.push(outcome.code());
        self.n_messages += 1;
    }

    pub fn push_unblock(&mut self, client: ClientId) {
        self.bytes.push(kind::UNBLOCK);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.n_messages += 1;
    }

    pub fn push_track<'k>(&mut self, client: ClientId, keys: impl Iterator<Item = &'k [u8]>) {
        let out = &mut self.bytes;
        out.push(kind::TRACK);
        out.extend_from_slice(&client.0.to_le_bytes());
        let all = put_len(out);
        keys.for_each(|key| put_key(out, key));
        fill_len(out, all);
        self.n_messages += 1;
    }

    /// Nothing is sent if there are no clients.
    pub fn push_told(&mut self, told: Told<'_>, clients: impl Iterator<Item = ClientId>) {
        let (code, writer, text) = match told {
            Told::Invalidated { key, writer } => (0, writer, key),
            Told::Broadcast { keys } => (1, None, keys.0),
            Told::Redirected { payload } => (2, None, payload),
            Told::Shown { line } => (3, None, line),
        };
        let start = self.bytes.len();
        let out = &mut self.bytes;
        out.push(kind::TOLD);
        out.push(code);
        out.push(u8::from(writer.is_some()));
        out.extend_from_slice(&writer.map_or(0, |writer| writer.0).to_le_bytes());
        if !put_clients(out, clients) {
            out.truncate(start);
            return;
        }
        put_key(out, text);
        self.n_messages += 1;
    }

    pub fn push_unwatch(&mut self, client: ClientId) {
        self.bytes.push(kind::UNWATCH);
        self.bytes.extend_from_slice(&client.0.to_le_bytes());
        self.n_messages += 1;
    }
}
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
    fixed[1] = u8::from(head.proto == Proto::Resp3)
        | is_gather
        | u8::from(head.has_plans) << 3
        | u8::from(head.touch == Touch::LeavesNoMark) << 4
        | u8::from(head.may_wait) << 5
        | u8::from(head.is_tracked) << 6;
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

/// Room for the length of what follows; where that begins.
fn put_len(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len()
}

fn fill_len(out: &mut [u8], start: usize) {
    let len = (out.len() - start) as u32;
    out[start - 4..start].copy_from_slice(&len.to_le_bytes());
}

/// Names of clients; whether there are any.
fn put_clients(out: &mut Vec<u8>, clients: impl Iterator<Item = ClientId>) -> bool {
    let all = put_len(out);
    clients.for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
    fill_len(out, all);
    out.len() > all
}

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
