//! `Split` commands and WATCH: a part on every shard that has one, gathered into one reply.
//!
//! The parts are not atomic together (that is what `Split` means); each is in order with its client's other requests on its shard.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use skerry_resp::reply::{Proto, Reply};

use super::gate::copy_args;
use super::route::Step;
use super::wave::Admit;
use super::{INTERNAL_ERROR, Node};
use crate::args::Args;
use crate::client::{Client, ClientId, Parked, Slot};
use crate::command::{Caller, Conn, Merge, ShardHandler};
use crate::commands::Row;
use crate::error::{CommandError, Outcome};
use crate::lend::holds::Who;
use crate::message::ReplyTo;
use crate::shard::ShardId;

/// A gathering in progress.
pub(super) struct Gather {
    client: ClientId,
    sequence: u32,
    merge: Merge,
    /// The client's when it asked: HELLO may have changed it since.
    proto: Proto,
    text: Vec<u8>,
    ranges: Vec<skerry_resp::request::ArgRange>,
    /// By shard; `None` = not answered, or no part there.
    parts: Vec<Option<Vec<u8>>>,
    n_left: usize,
}

impl Node {
    /// Sends the parts of a `Split` and runs the own one.
    pub(super) fn start_gather(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        args: Args<'_>,
        admit: Admit,
        handler: ShardHandler,
        merge: Merge,
    ) -> Step {
        if let Some(step) = self.may_gather(client, row, u64::MAX, admit) {
            return step;
        }
        if self.n_shards() == 1 {
            self.split_alone(client, args, handler, merge);
            self.serve_blocked();
            return Step::Done;
        }
        let id = self.open_gather(client, args, merge, self.n_shards());
        for shard in 0..self.n_shards() {
            if shard != usize::from(self.id.0) {
                self.push_request(ShardId(shard as u8), ReplyTo::Gather { id }, client, row, args);
            }
        }
        let caller = client.caller();
        let proto = part_proto(merge, client.proto);
        let mut out = Vec::new();
        let job =
            self.with_client_in_place(client, |node| node.run_part(handler, caller, proto, &mut out, args));
        match job {
            Some(job) => {
                self.note_job(args);
                self.add_job(job, ReplyTo::Gather { id }, self.id, caller, proto);
            }
            None => self.note_part(id, self.id, &out),
        }
        self.serve_blocked();
        Step::Done
    }

    /// Runs with the client back in its place: the handler may look at all connections, this one too.
    pub(super) fn with_client_in_place<R>(
        &mut self,
        client: &mut Box<Client>,
        run: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let id = client.id;
        if !self.clients.is_out(id) {
            // It is gone, and what it had in flight completes without it.
            return run(self);
        }
        let real = std::mem::replace(client, Box::new(Client::new(id, 0, 0)));
        self.clients.put_back(real);
        let result = catch_unwind(AssertUnwindSafe(|| run(self)));
        if let Some(real) = self.clients.take(id) {
            *client = real;
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// `Some` if a request that touches the shards in `mask` has to wait: for its turn, for a whole-shard lend, for credit.
    pub(super) fn may_gather(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        mask: u64,
        admit: Admit,
    ) -> Option<Step> {
        if self.n_shards() == 1 && self.holds.is_idle() {
            return None;
        }
        if !self.may_go(client, row, mask) {
            client.parked = Parked::Order;
            return Some(Step::Parked);
        }
        if admit == Admit::Check && !self.admits_here(row, Args::new(&[], &[])) {
            self.wait_here(Who::Request(client.id), row, Args::new(&[], &[]));
            client.parked = Parked::Hold;
            return Some(Step::Parked);
        }
        for shard in 0..self.n_shards() {
            let is_peer = shard != usize::from(self.id.0) && mask & (1 << shard) != 0;
            if is_peer && self.credit[shard] <= 0 {
                self.credit_waiters[shard].push(client.id);
                client.parked = Parked::Credit;
                return Some(Step::Parked);
            }
        }
        for shard in 0..self.n_shards() {
            if shard != usize::from(self.id.0) && mask & (1 << shard) != 0 {
                self.credit[shard] -= 1;
            }
        }
        None
    }

    /// Opens a gathering of `n_parts` and the client's slot for it.
    pub(super) fn open_gather(
        &mut self,
        client: &mut Client,
        args: Args<'_>,
        merge: Merge,
        n_parts: usize,
    ) -> u32 {
        let id = self.next_gather;
        self.next_gather = self.next_gather.wrapping_add(1);
        let (mut text, mut ranges) = (Vec::new(), Vec::new());
        copy_args(args, &mut text, &mut ranges);
        let sequence = client.next_sequence();
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: true });
        client.n_gathers += 1;
        let parts = vec![None; self.n_shards()];
        let proto = client.proto;
        let gather =
            Gather { client: client.id, sequence, merge, proto, text, ranges, parts, n_left: n_parts };
        self.gathers.insert(id, gather);
        id
    }

    /// The part of a `Split` on this shard; a job if it is to be cut into slices.
    pub(super) fn run_part(
        &mut self,
        handler: ShardHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) -> Option<Box<dyn crate::command::Job>> {
        let mut ctx = ctx!(self, caller, out, proto);
        // Caught here: the client is not at hand, and the other parts are on their way.
        let outcome = catch_unwind(AssertUnwindSafe(|| handler(&mut ctx, args)));
        let job = ctx.job.take();
        match outcome {
            Ok(Ok(())) => return job,
            Ok(Err(error)) => {
                out.clear();
                Reply::new(out, proto).error(error.wire());
            }
            Err(panic) => {
                self.note_panic("a part", &*panic);
                out.clear();
                Reply::new(out, proto).error(INTERNAL_ERROR);
            }
        }
        None
    }

    /// One shard, one part: no gathering.
    fn split_alone(&mut self, client: &mut Box<Client>, args: Args<'_>, handler: ShardHandler, merge: Merge) {
        let caller = client.caller();
        let proto = part_proto(merge, client.proto);
        let mut out = Vec::new();
        let job =
            self.with_client_in_place(client, |node| node.run_part(handler, caller, proto, &mut out, args));
        if let Some(job) = job {
            self.note_job(args);
            self.start_job(client, job, caller, proto);
            return;
        }
        let mut merged = Vec::new();
        self.merge_into(client, merge, &[&out], args, &mut merged);
        self.push_reply(client, &merged);
    }

    /// A part has come in.
    pub(super) fn take_part(&mut self, id: u32, shard: ShardId, reply: &[u8]) {
        if let Some(done) = self.note_part_of(id, shard, reply) {
            self.finish_gather(done);
        }
    }

    /// The own part, while its client is being run: with other parts to come it only waits; alone it is complete.
    pub(super) fn note_part(&mut self, id: u32, shard: ShardId, reply: &[u8]) {
        let done = self.note_part_of(id, shard, reply);
        debug_assert!(done.is_none(), "a gathering with peers completes later");
    }

    fn note_part_of(&mut self, id: u32, shard: ShardId, reply: &[u8]) -> Option<Gather> {
        let gather = self.gathers.get_mut(&id)?;
        gather.parts[usize::from(shard.0)] = Some(reply.to_vec());
        gather.n_left -= 1;
        if gather.n_left == 0 { self.gathers.remove(&id) } else { None }
    }

    fn finish_gather(&mut self, gather: Gather) {
        let Some(mut client) = self.clients.take(gather.client) else { return };
        let parts: Vec<&[u8]> = gather.parts.iter().flatten().map(Vec::as_slice).collect();
        let mut merged = Vec::new();
        let args = Args::new(&gather.text, &gather.ranges);
        let proto = std::mem::replace(&mut client.proto, gather.proto);
        self.merge_into(&mut client, gather.merge, &parts, args, &mut merged);
        client.proto = proto;
        self.clients.put_back(client);
        self.answer(gather.client, gather.sequence, &merged);
    }

    /// Makes one reply of the parts.
    pub(super) fn merge_into(
        &mut self,
        client: &mut Client,
        merge: Merge,
        parts: &[&[u8]],
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) {
        if let Some(error) = parts.iter().find(|part| part.first() == Some(&b'-')) {
            out.extend_from_slice(error);
            if let crate::commands::Found::Row(row) = self.table.find(args) {
                self.running = row.id;
            }
            self.note_failure(&CommandError::Bytes(error[1..error.len() - 2].to_vec()));
            return;
        }
        let proto = client.proto;
        match merge {
            Merge::AllSucceeded => out.extend_from_slice(parts.first().copied().unwrap_or(b"+OK\r\n")),
            Merge::Sum => {
                let sum = parts.iter().map(|part| integer_of(part)).sum();
                Reply::new(out, proto).integer(sum);
            }
            Merge::Concat => {
                let n = parts.iter().map(|part| integer_of(part)).sum::<i64>();
                Reply::new(out, proto).array(n as usize);
                for part in parts {
                    out.extend_from_slice(body_of(part));
                }
            }
            Merge::Text => {
                let mut text = Vec::new();
                for part in parts {
                    let len = integer_of(part) as usize;
                    text.extend_from_slice(&body_of(part)[..len]);
                }
                Reply::new(out, proto).verbatim(b"txt", &text);
            }
            Merge::Custom(merge) => {
                let run = |conn: &mut Conn<'_>| -> Outcome { merge(conn, parts, args) };
                self.conn_into(client, out, run);
            }
        }
    }
}

/// In which protocol a part is written: what the merge takes apart is RESP2, what it joins is the client's.
pub(super) fn part_proto(merge: Merge, client: Proto) -> Proto {
    match merge {
        Merge::Concat | Merge::AllSucceeded => client,
        Merge::Sum | Merge::Text | Merge::Custom(_) => Proto::Resp2,
    }
}

/// The number in the first line of a reply (`:5`, `*5`, `$5`).
pub(super) fn integer_of(reply: &[u8]) -> i64 {
    let end = memchr::memchr(b'\r', reply).unwrap_or(reply.len());
    skerry_resp::number::parse_i64(&reply[1..end]).expect("a part written by this process")
}

/// What follows the first line.
pub(super) fn body_of(reply: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\n', reply).expect("a part written by this process");
    &reply[end + 1..]
}
