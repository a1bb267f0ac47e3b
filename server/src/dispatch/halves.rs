//! A command of independent keys (MGET, MSET, DEL, EXISTS ...) with two owners, of which this worker is one: no lend is needed.
//!
//! ```text
//!   write: hold the own keys ── the other half as a request ──►  owner runs it at once, or refuses (a key is held there)
//!   run the own half  ◄── its reply ────────────────────
//!   release, merge, answer
//! ```
//!
//! Atomic: what the owner does at its moment is, with the own keys held from before to after, one step. A read holds nothing: it runs
//! its own half when the other one is back, and starts over as a lend if an own key was written meanwhile (`Shard::stamp`). Half a
//! lend's work: no entry moves, one message each way. A refusal becomes the lend's ordered round. The plain twin is the lend itself; the simulation runs
//! both.

use std::panic::{AssertUnwindSafe, catch_unwind};

use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::ArgRange;

use super::observed::{Argv, Call};
use super::route::Step;
use super::{INTERNAL_ERROR, Node};
use crate::args::Args;
use crate::client::{Client, ClientId, KEPT_BUFFER, Parked, Slot};
use crate::command::{Caller, Find, Handler};
use crate::commands::{Halves, Row};
use crate::keyspace::{Key, Touch};
use crate::lend::holds::Admission;
use crate::message::{HoldMode, LendId, ReplyTo, RequestHead};
use crate::shard::{DbIndex, ShardId};
use crate::vector;

/// A command in flight whose other half a peer runs.
pub(super) struct Half {
    pub(super) client: ClientId,
    pub(super) sequence: u32,
    pub(super) db: DbIndex,
    pub(super) touch: Touch,
    pub(super) proto: Proto,
    pub(super) row: &'static Row,
    pub(super) mode: HoldMode,
    pub(super) buffers: HalfBuffers,
    /// The shard's write clock at the start (reads).
    since: u64,
    /// How often the shard had been lent as a whole by then.
    shard_trips: u64,
    pub(super) is_tracked: bool,
}

/// What a command in flight has of memory: used again by later ones.
#[derive(Default)]
pub(super) struct HalfBuffers {
    pub(super) text: Vec<u8>,
    pub(super) ranges: Vec<ArgRange>,
    /// The name and the own half of the arguments, in their order.
    own_ranges: Vec<ArgRange>,
    /// Hashes of the own keys; sorted, without repeats. A write holds them, a read looks at completion whether they have changed.
    own: Vec<u64>,
    /// Hashes of all keys. Those of a write are noted at the client.
    all: Vec<u64>,
}

impl HalfBuffers {
    fn clear(&mut self) {
        self.text.clear();
        self.ranges.clear();
        self.own_ranges.clear();
        self.own.clear();
        self.all.clear();
    }

    /// Takes a copy of the arguments, in one piece, and moves the ranges of the own half along.
    fn copy(&mut self, args: Args<'_>) {
        let base = args.ranges()[0].start;
        let moved = |range: &ArgRange| ArgRange { start: range.start - base, end: range.end - base };
        self.text.extend_from_slice(args.span());
        self.ranges.extend(args.ranges().iter().map(moved));
        self.own_ranges.iter_mut().for_each(|range| *range = moved(range));
    }
}

impl Half {
    fn args(&self) -> Args<'_> {
        Args::new(&self.buffers.text, &self.buffers.ranges)
    }
}

impl Node {
    /// Starts a command in halves; `None` if it has other owners than this worker and one peer, or if an own key is held.
    pub(super) fn start_halves(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
    ) -> Option<Step> {
        let step = step_of(row);
        if !(args.len() - 1).is_multiple_of(step) {
            return None;
        }
        let mut theirs = std::mem::take(&mut self.half_ranges);
        let mut buffers = self.spare_halves.pop().unwrap_or_default();
        let peer = self.share_out(args, step, &mut theirs, &mut buffers);
        let mut started = None;
        match peer.map_or(MayStart::AsLend, |peer| self.may_start_halves(client, row, peer, &mut buffers)) {
            MayStart::AsLend => self.spare_halves.push(buffers),
            MayStart::Parked(reason) => {
                client.parked = reason;
                self.spare_halves.push(buffers);
                started = Some(Step::Parked);
            }
            MayStart::Now(id, peer, mode) => {
                self.next_lend += 1;
                self.observed.is_elsewhere = true;
                self.credit[usize::from(peer.0)] -= 1;
                self.send_half(client, row, args.with_ranges(&theirs), id, peer);
                if mode == HoldMode::Exclusive {
                    client.lent.extend(buffers.all.iter().copied());
                    self.withdraw_own(args.with_ranges(&buffers.own_ranges), step);
                }
                buffers.copy(args);
                let half = self.note_half(client, row, mode, buffers);
                self.halves.insert(id, half);
                started = Some(Step::Done);
            }
        }
        self.half_ranges = theirs;
        started
    }

    /// The other half takes effect before the own one: until that has run, nobody may find the sets that it is about to end, which
    /// other cores read without asking for holds.
    fn withdraw_own(&self, own: Args<'_>, step: usize) {
        if !self.server.vectors.has_published() {
            return;
        }
        for bytes in own.from(1).step_by(step) {
            vector::withdraw_for_transaction(&self.shard, Key { bytes, hash: self.server.hash_key(bytes) });
        }
    }

    /// Whether the order of the client's requests, credit and the holds of the own keys let a command start: those are held then.
    fn may_start_halves(
        &mut self,
        client: &Client,
        row: &Row,
        peer: ShardId,
        buffers: &mut HalfBuffers,
    ) -> MayStart {
        if !self.may_lend(client, row, buffers.all.iter().copied()) {
            return MayStart::Parked(Parked::Order);
        }
        let peer_at = usize::from(peer.0);
        if self.credit[peer_at] <= 0 {
            self.credit_waiters[peer_at].push(client.id);
            return MayStart::Parked(Parked::Credit);
        }
        let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
        buffers.own.sort_unstable();
        buffers.own.dedup();
        let own = buffers.own.iter().copied();
        let id = LendId(self.next_lend);
        let is_free = match mode {
            HoldMode::Exclusive | HoldMode::Whole => {
                self.holds.ask((self.id, id), mode, false, own) == Admission::Granted
            }
            HoldMode::Shared => self.holds.is_idle() || self.holds.admits(mode, own),
        };
        if is_free { MayStart::Now(id, peer, mode) } else { MayStart::AsLend }
    }

    /// The one peer that owns the keys that are not ours, with the ranges of its half; ours and all hashes go to `buffers`.
    fn share_out(
        &self,
        args: Args<'_>,
        step: usize,
        theirs: &mut Vec<ArgRange>,
        buffers: &mut HalfBuffers,
    ) -> Option<ShardId> {
        let ranges = args.ranges();
        let mut peer = None;
        buffers.clear();
        theirs.clear();
        theirs.push(ranges[0]);
        buffers.own_ranges.push(ranges[0]);
        for at in (1..args.len()).step_by(step) {
            let key = args.get(at);
            let (shard, hash) = (self.server.shard_of(key), self.server.hash_key(key));
            buffers.all.push(hash);
            if shard == self.id {
                buffers.own.push(hash);
                buffers.own_ranges.extend_from_slice(&ranges[at..at + step]);
            } else if *peer.get_or_insert(shard) == shard {
                theirs.extend_from_slice(&ranges[at..at + step]);
            } else {
                return None;
            }
        }
        if buffers.own.is_empty() { None } else { peer }
    }

    fn send_half(&mut self, client: &Client, row: &Row, half: Args<'_>, id: LendId, peer: ShardId) {
        let head = RequestHead {
            reply_to: ReplyTo::Lend { id },
            client: client.id,
            db: client.db,
            touch: client.touch,
            proto: client.proto,
            command: row.id.0,
            hashed_at: 0,
            hash: 0,
            has_plans: false,
            may_wait: false,
            is_tracked: client.notes_reads(),
        };
        self.outboxes[usize::from(peer.0)].push_request(&head, half);
    }

    fn note_half(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        mode: HoldMode,
        buffers: HalfBuffers,
    ) -> Half {
        let sequence = client.next_sequence();
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: false });
        client.n_lends += 1;
        client.lend_command = Some(row.command);
        self.lend_counts.halves += 1;
        let mut since = 0;
        if mode == HoldMode::Shared {
            self.n_read_halves += 1;
            since = self.shard.begin_write_watch();
        }
        let shard_trips = self.shard_trips;
        Half {
            client: client.id,
            sequence,
            db: client.db,
            touch: client.touch,
            proto: client.proto,
            row,
            mode,
            buffers,
            since,
            shard_trips,
            is_tracked: client.notes_reads(),
        }
    }

    /// The peer has run its half: run the own one, merge, answer.
    pub(super) fn complete_halves(&mut self, id: LendId, theirs: &[u8]) {
        let half = self.halves.remove(&id).expect("a half answers a command in flight");
        if half.mode == HoldMode::Shared && !self.is_unchanged(&half) {
            // What was read there and what stands here now may never have been there together.
            self.lend_instead(id, half);
            return;
        }
        let mut ours = std::mem::take(&mut self.half_reply);
        // The first in the line is written where it will be sent from.
        let mut client = self.clients.take(half.client);
        let is_first = client.as_ref().is_some_and(|client| client.is_next(half.sequence));
        let mut out = match &mut client {
            Some(client) if is_first => std::mem::take(&mut client.out),
            _ => Vec::new(),
        };
        let start = out.len();
        ours.clear();
        if theirs.first() == Some(&b'-') {
            out.extend_from_slice(theirs);
        } else {
            let started = self.begin_peer_call(half.row, half.buffers.own_ranges.len());
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.run_own_half(&half, &mut ours);
                self.merge_halves(&half, &ours, theirs, &mut out);
            }));
            if let Err(panic) = outcome {
                self.note_panic(half.row.command.name, &*panic);
                out.truncate(start);
                Reply::new(&mut out, half.proto).error(INTERNAL_ERROR);
            }
            if half.is_tracked {
                let own = half.args().with_ranges(&half.buffers.own_ranges);
                self.note_reads(half.client, half.row, own, &mut []);
            }
            if let Some(started) = started {
                let ns = Some(started.elapsed().as_nanos() as u64);
                let reply_bytes = out.len() - start;
                let call = Call { ns, reply_bytes, ..Call::of(half.row, half.client, half.db) };
                self.look_at_call(&call, &Argv::Sent(half.args()));
            }
        }
        if ours.capacity() <= KEPT_BUFFER {
            self.half_reply = ours;
        }
        if let Some(mut client) = client {
            client.n_lends -= 1;
            if half.mode == HoldMode::Exclusive {
                half.buffers.all.iter().for_each(|hash| _ = client.lent.remove(hash));
            }
            if is_first {
                client.out = std::mem::take(&mut out);
            }
            self.clients.put_back(client);
        }
        self.release_half(&half);
        if is_first {
            self.answered_in_place(half.client, half.sequence);
        } else {
            self.answer(half.client, half.sequence, &out);
        }
        if half.buffers.text.capacity() <= KEPT_ARGS && self.spare_halves.len() < MAX_SPARE_HALVES {
            self.spare_halves.push(half.buffers);
        }
    }

    /// Whether no own key of a read has changed or gone away since it began.
    fn is_unchanged(&self, half: &Half) -> bool {
        let is_here =
            self.holds.is_idle() || self.holds.admits(HoldMode::Shared, half.buffers.own.iter().copied());
        is_here
            && self.shard_trips == half.shard_trips
            && self.shard.is_unwritten_since(half.since, &half.buffers.own)
    }

    /// The own keys go free.
    pub(super) fn release_half(&mut self, half: &Half) {
        if half.mode == HoldMode::Shared {
            self.n_read_halves -= 1;
            if self.n_read_halves == 0 {
                self.shard.end_write_watches();
            }
            return;
        }
        self.serve_blocked();
        let mut freed = Vec::new();
        self.holds.release(half.mode, half.buffers.own.iter().copied(), &mut freed);
        self.run_freed(freed);
    }

    fn run_own_half(&mut self, half: &Half, ours: &mut Vec<u8>) {
        let Handler::Shard(handler) = half.row.command.handler else {
            panic!("'{}' is not run in halves", half.row.command.name)
        };
        self.running = half.row.id;
        let args = half.args().with_ranges(&half.buffers.own_ranges);
        self.shard_into(
            handler,
            Caller { client: half.client, db: half.db, touch: half.touch },
            half.proto,
            ours,
            args,
        );
    }

    fn merge_halves(&self, half: &Half, ours: &[u8], theirs: &[u8], out: &mut Vec<u8>) {
        if ours.first() == Some(&b'-') {
            out.extend_from_slice(ours);
            return;
        }
        match half.row.halves.expect("it was sent as halves") {
            Halves::Ok => out.extend_from_slice(ours),
            Halves::Sum => {
                let sum = super::gather::integer_of(ours) + super::gather::integer_of(theirs);
                Reply::new(out, half.proto).integer(sum);
            }
            Halves::InKeyOrder => {
                let mut ours = super::gather::body_of(ours);
                let mut theirs = super::gather::body_of(theirs);
                let HalfBuffers { ranges, own_ranges, .. } = &half.buffers;
                Reply::new(out, half.proto).array(ranges.len() - 1);
                out.reserve(ours.len() + theirs.len());
                let mut own = own_ranges[1..].iter().peekable();
                for range in &ranges[1..] {
                    let part = if own.next_if_eq(&range).is_some() { &mut ours } else { &mut theirs };
                    out.extend_from_slice(next_bulk(part));
                }
            }
        }
    }
}

/// What a command that might run in halves does now.
enum MayStart {
    Now(LendId, ShardId, HoldMode),
    AsLend,
    Parked(Parked),
}

/// How many arguments belong to a key: one (MGET) or two (MSET).
fn step_of(row: &Row) -> usize {
    match row.command.keys {
        [spec] => match spec.find {
            Find::Range { step, .. } => step as usize,
            Find::KeyNum { .. } | Find::Unknown => 1,
        },
        _ => 1,
    }
}

/// Argument buffers kept for the next commands.
const MAX_SPARE_HALVES: usize = 256;
const KEPT_ARGS: usize = 16 << 10;

/// Cuts the next element (a bulk string or a null) off an array's body that this process has written.
fn next_bulk<'a>(body: &mut &'a [u8]) -> &'a [u8] {
    let line = memchr::memchr(b'\n', body).expect("an element of this process") + 1;
    let len = match body[0] {
        b'$' if body[1] != b'-' => {
            let digits = &body[1..line - 2];
            line + digits.iter().fold(0usize, |n, digit| n * 10 + usize::from(digit - b'0')) + 2
        }
        _ => line,
    };
    let (element, rest) = body.split_at(len);
    *body = rest;
    element
}

#[cfg(test)]
mod tests {
    use super::next_bulk;

    #[test]
    fn elements_are_cut_off_one_by_one() {
        let mut body = &b"$3\r\nabc\r\n$-1\r\n_\r\n$0\r\n\r\n$2\r\n\r\n\r\n"[..];
        let mut elements = Vec::new();
        while !body.is_empty() {
            elements.push(next_bulk(&mut body));
        }
        assert_eq!(elements, [&b"$3\r\nabc\r\n"[..], b"$-1\r\n", b"_\r\n", b"$0\r\n\r\n", b"$2\r\n\r\n\r\n"]);
    }
}
