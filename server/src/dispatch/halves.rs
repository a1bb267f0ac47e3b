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

use super::gate::copy_args;
use super::{INTERNAL_ERROR, Node, Step};
use crate::args::Args;
use crate::client::{Client, ClientId, Parked, Slot};
use crate::command::{Caller, Find, Handler};
use crate::commands::{Halves, Row};
use crate::lend::holds::Admission;
use crate::message::{HoldMode, LendId, ReplyTo, RequestHead};
use crate::shard::{DbIndex, ShardId};

/// A command in flight whose other half a peer runs.
pub(super) struct Half {
    pub(super) client: ClientId,
    pub(super) sequence: u32,
    pub(super) db: DbIndex,
    pub(super) proto: Proto,
    pub(super) row: &'static Row,
    pub(super) text: Vec<u8>,
    pub(super) ranges: Vec<ArgRange>,
    pub(super) mode: HoldMode,
    /// Hashes of the own keys; sorted, without repeats. A write holds them, a read looks at completion whether they have changed.
    own: Vec<u64>,
    /// Hashes of all keys, noted at the client (writes).
    lent: Vec<u64>,
    /// The shard's write clock at the start (reads).
    since: u64,
    /// How often the shard had been lent as a whole by then.
    shard_trips: u64,
}

impl Half {
    fn args(&self) -> Args<'_> {
        Args::new(&self.text, &self.ranges)
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
        let mut ranges = std::mem::take(&mut self.half_ranges);
        let (mut hashes, mut held) =
            (std::mem::take(&mut self.half_hashes), Vec::with_capacity(args.len() / step));
        let peer = self.share_out(args, step, &mut ranges, &mut hashes, &mut held);
        let started = peer.and_then(|peer| {
            if !self.may_lend(client, row, hashes.iter().copied()) {
                client.parked = Parked::Order;
                return Some(Step::Parked);
            }
            let peer_at = usize::from(peer.0);
            if self.credit[peer_at] <= 0 {
                self.credit_waiters[peer_at].push(client.id);
                client.parked = Parked::Credit;
                return Some(Step::Parked);
            }
            let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
            held.sort_unstable();
            held.dedup();
            let id = LendId(self.next_lend);
            let may_start = match mode {
                HoldMode::Exclusive | HoldMode::Whole => {
                    self.holds.ask((self.id, id), mode, false, held.iter().copied()) == Admission::Granted
                }
                HoldMode::Shared => self.holds.is_idle() || self.holds.admits(mode, held.iter().copied()),
            };
            if !may_start {
                return None;
            }
            self.next_lend += 1;
            self.credit[peer_at] -= 1;
            self.send_half(client, row, args.with_ranges(&ranges), id, peer);
            let mut half = self.note_half(client, row, args, mode, std::mem::take(&mut held));
            if mode == HoldMode::Exclusive {
                client.lent.extend(hashes.iter().copied());
                half.lent.extend_from_slice(&hashes);
            }
            self.halves.insert(id, half);
            Some(Step::Done)
        });
        self.half_ranges = ranges;
        self.half_hashes = hashes;
        started
    }

    /// The one peer that owns the keys that are not ours, with the ranges of its half, all hashes and those of ours.
    fn share_out(
        &self,
        args: Args<'_>,
        step: usize,
        theirs: &mut Vec<ArgRange>,
        hashes: &mut Vec<u64>,
        ours: &mut Vec<u64>,
    ) -> Option<ShardId> {
        let ranges = args.ranges();
        let mut peer = None;
        theirs.clear();
        theirs.push(ranges[0]);
        hashes.clear();
        for at in (1..args.len()).step_by(step) {
            let key = args.get(at);
            let (shard, hash) = (self.server.shard_of(key), self.server.hash_key(key));
            hashes.push(hash);
            if shard == self.id {
                ours.push(hash);
            } else if *peer.get_or_insert(shard) == shard {
                theirs.extend_from_slice(&ranges[at..at + step]);
            } else {
                return None;
            }
        }
        if ours.is_empty() { None } else { peer }
    }

    fn send_half(&mut self, client: &Client, row: &Row, half: Args<'_>, id: LendId, peer: ShardId) {
        let head = RequestHead {
            reply_to: ReplyTo::Lend { id },
            client: client.id,
            db: client.db,
            proto: client.proto,
            command: row.id.0,
            hashed_at: 0,
            hash: 0,
            argc: half.len() as u32,
            has_plans: false,
        };
        self.outboxes[usize::from(peer.0)].push_request(&head, (0..half.len()).map(|i| half.get(i)));
    }

    fn note_half(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        args: Args<'_>,
        mode: HoldMode,
        own: Vec<u64>,
    ) -> Half {
        let (mut text, mut ranges) = self.spare_args.pop().unwrap_or_default();
        copy_args(args, &mut text, &mut ranges);
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
            proto: client.proto,
            row,
            text,
            ranges,
            mode,
            own,
            lent: Vec::new(),
            since,
            shard_trips,
        }
    }

    /// The peer has run its half: run the own one, merge, answer.
    pub(super) fn complete_halves(&mut self, id: LendId, theirs: &[u8]) {
        let mut half = self.halves.remove(&id).expect("a half answers a command in flight");
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
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.run_own_half(&half, &mut ours);
                self.merge_halves(&half, &ours, theirs, &mut out);
            }));
            if let Err(panic) = outcome {
                self.note_panic(half.row.command.name, &*panic);
                out.truncate(start);
                Reply::new(&mut out, half.proto).error(INTERNAL_ERROR);
            }
        }
        self.half_reply = ours;
        if let Some(mut client) = client {
            client.n_lends -= 1;
            half.lent.iter().for_each(|hash| _ = client.lent.remove(hash));
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
        half.text.clear();
        half.ranges.clear();
        if half.text.capacity() <= KEPT_ARGS && self.spare_args.len() < MAX_SPARE_ARGS {
            self.spare_args.push((half.text, half.ranges));
        }
    }

    /// Whether no own key of a read has changed or gone away since it began.
    fn is_unchanged(&self, half: &Half) -> bool {
        let is_here = self.holds.is_idle() || self.holds.admits(HoldMode::Shared, half.own.iter().copied());
        is_here
            && self.shard_trips == half.shard_trips
            && self.shard.is_unwritten_since(half.since, &half.own)
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
        let mut freed = Vec::new();
        self.holds.release(half.mode, half.own.iter().copied(), &mut freed);
        self.run_freed(freed);
    }

    fn run_own_half(&mut self, half: &Half, ours: &mut Vec<u8>) {
        let Handler::Shard(handler) = half.row.command.handler else {
            panic!("'{}' is not run in halves", half.row.command.name)
        };
        let mut ranges = std::mem::take(&mut self.half_ranges);
        let (args, step) = (half.args(), step_of(half.row));
        ranges.clear();
        ranges.push(args.ranges()[0]);
        for at in (1..args.len()).step_by(step) {
            if self.server.shard_of(args.get(at)) == self.id {
                ranges.extend_from_slice(&args.ranges()[at..at + step]);
            }
        }
        self.running = half.row.id;
        self.shard_into(
            handler,
            Caller { client: half.client, db: half.db },
            half.proto,
            ours,
            args.with_ranges(&ranges),
        );
        self.half_ranges = ranges;
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
                let args = half.args();
                Reply::new(out, half.proto).array(args.len() - 1);
                for key in args.from(1) {
                    let part = if self.server.shard_of(key) == self.id { &mut ours } else { &mut theirs };
                    out.extend_from_slice(next_bulk(part));
                }
            }
        }
    }
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
const MAX_SPARE_ARGS: usize = 256;
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
