//! A command of independent keys (MGET, MSET, DEL, EXISTS ...) with two owners, of which this worker is one: no lend is needed.
//!
//! ```text
//!   hold the own keys ── the other half as a request ──►  owner runs it at once, or refuses (a key is held there)
//!   run the own half  ◄── its reply ────────────────────
//!   release, merge, answer
//! ```
//!
//! Atomic: what the owner does at its moment is, with the own keys held from before to after, one step. Half a lend's work: no entry
//! moves, one message each way. A refusal becomes the lend's ordered round. The plain twin is the lend itself; the simulation runs
//! both.

use std::panic::{AssertUnwindSafe, catch_unwind};

use skerry_resp::reply::Reply;
use skerry_resp::request::ArgRange;

use super::loans::{Lend, LendPlan, Owner};
use super::{INTERNAL_ERROR, Node};
use crate::args::Args;
use crate::client::Client;
use crate::command::{Caller, Find, Handler};
use crate::commands::{Halves, Row};
use crate::message::{HoldMode, LendId, ReplyTo, RequestHead};
use crate::shard::ShardId;

impl Node {
    /// The other owner, if the command may be run in halves.
    pub(super) fn other_half(&self, plan: &LendPlan<'_>, owners: &[Owner]) -> Option<ShardId> {
        plan.row.halves?;
        let has_whole_groups = (plan.args.len() - 1).is_multiple_of(step_of(plan.row));
        match owners {
            [a, b] if plan.mode != HoldMode::Whole && plan.multi.is_none() && has_whole_groups => {
                match (a.shard() == self.id, b.shard() == self.id) {
                    (true, false) => Some(b.shard()),
                    (false, true) => Some(a.shard()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Sends the peer's keys (and values) as a request of their own.
    pub(super) fn send_half(&mut self, client: &Client, plan: &LendPlan<'_>, id: LendId, peer: ShardId) {
        self.credit[usize::from(peer.0)] -= 1;
        let mut ranges = std::mem::take(&mut self.half_ranges);
        half_of(plan.row, plan.args, |key| self.server.shard_of(key) == peer, &mut ranges);
        let half = plan.args.with_ranges(&ranges);
        let head = RequestHead {
            reply_to: ReplyTo::Lend { id },
            client: client.id,
            db: client.db,
            proto: client.proto,
            command: plan.row.id.0,
            hashed_at: 0,
            hash: 0,
            argc: half.len() as u32,
        };
        self.outboxes[usize::from(peer.0)].push_request(&head, (0..half.len()).map(|i| half.get(i)));
        self.half_ranges = ranges;
    }

    /// The peer has run its half: run the own one, merge, answer.
    pub(super) fn complete_halves(&mut self, id: LendId, theirs: &[u8]) {
        let mut lend = self.lends.remove(&id).expect("a half answers a lend in flight");
        let mut ours = std::mem::take(&mut self.half_reply);
        ours.clear();
        let mut out = Vec::with_capacity(theirs.len() * 2);
        if theirs.first() == Some(&b'-') {
            out.extend_from_slice(theirs);
        } else {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.run_own_half(&lend, &mut ours);
                self.merge_halves(&lend, &ours, theirs, &mut out);
            }));
            if let Err(panic) = outcome {
                self.note_panic(lend.row().command.name, &*panic);
                out.clear();
                Reply::new(&mut out, lend.proto()).error(INTERNAL_ERROR);
            }
        }
        self.half_reply = ours;
        self.end_halves(id, &mut lend, &out);
    }

    fn run_own_half(&mut self, lend: &Lend, ours: &mut Vec<u8>) {
        let Handler::Shard(handler) = lend.row().command.handler else {
            panic!("'{}' is not run in halves", lend.row().command.name)
        };
        let mut ranges = std::mem::take(&mut self.half_ranges);
        half_of(lend.row(), lend.args(), |key| self.server.shard_of(key) == self.id, &mut ranges);
        let half = lend.args().with_ranges(&ranges);
        self.running = lend.row().id;
        self.shard_into(handler, Caller { client: lend.client(), db: lend.db() }, lend.proto(), ours, half);
        self.half_ranges = ranges;
    }

    fn merge_halves(&self, lend: &Lend, ours: &[u8], theirs: &[u8], out: &mut Vec<u8>) {
        if ours.first() == Some(&b'-') {
            out.extend_from_slice(ours);
            return;
        }
        match lend.row().halves.expect("it was sent as halves") {
            Halves::Ok => out.extend_from_slice(ours),
            Halves::Sum => {
                let sum = super::gather::integer_of(ours) + super::gather::integer_of(theirs);
                Reply::new(out, lend.proto()).integer(sum);
            }
            Halves::InKeyOrder => {
                let mut ours = super::gather::body_of(ours);
                let mut theirs = super::gather::body_of(theirs);
                let args = lend.args();
                Reply::new(out, lend.proto()).array(args.len() - 1);
                for key in args.from(1) {
                    let half = if self.server.shard_of(key) == self.id { &mut ours } else { &mut theirs };
                    out.extend_from_slice(next_bulk(half));
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

/// The name and the keys that `is_mine` says, with what belongs to each.
fn half_of(row: &Row, args: Args<'_>, is_mine: impl Fn(&[u8]) -> bool, half: &mut Vec<ArgRange>) {
    let (ranges, step) = (args.ranges(), step_of(row));
    half.clear();
    half.push(ranges[0]);
    for at in (1..args.len()).step_by(step) {
        if is_mine(args.get(at)) {
            half.extend_from_slice(&ranges[at..at + step]);
        }
    }
}

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
