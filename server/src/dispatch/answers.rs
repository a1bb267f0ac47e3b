//! Where replies go: handlers run here, errors, and the slots of requests that were answered elsewhere.
//!
//! While nothing of a client is pending its replies go straight to its output; behind pending requests they wait in `held`.

use skerry_resp::reply::{Proto, Reply};

use super::wave::Unknown;
use super::{INTERNAL_ERROR, Node, gate};
use crate::args::Args;
use crate::client::{BlockedState, Client, ClientId, Closing, Parked, ReplyMode, Slot};
use crate::command::{Conn, ConnHandler, ShardHandler};
use crate::commands::Row;
use crate::error::{CommandError, Outcome};
use crate::message::ReplyTo;
use crate::output::Placed;
use crate::server::WorkerStats;
use crate::shard::ShardId;

impl Node {
    /// Runs a `Shard` handler here for a client of this worker; the reply goes to `out`, or to `held` behind earlier requests.
    #[inline]
    pub(super) fn run_shard(&mut self, client: &mut Box<Client>, handler: ShardHandler, args: Args<'_>) {
        let is_direct = client.pending.is_empty();
        let caller = client.caller();
        let proto = client.proto;
        let out = if is_direct { &mut client.out } else { &mut client.held };
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        ctx.placed = Some(&mut self.placed);
        let outcome = handler(&mut ctx, args);
        if let Some(job) = ctx.job.take() {
            self.note_job(args);
            self.placed.clear();
            out.truncate(start);
            self.start_job(client, job, caller, proto);
            return;
        }
        if let Err(error) = outcome {
            self.placed.clear();
            self.fail_into(out, start, proto, &error);
        }
        if !self.placed.is_empty() {
            self.observed.placed_bytes += self.placed.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            match is_direct {
                true => self.placed.drain(..).for_each(|(at, bytes)| client.placed.push(at, bytes)),
                false => client.held_placed.append(&mut self.placed),
            }
        }
        if !is_direct {
            let len = client.held.len() - start;
            client.pending.push_back(Slot::Ready { start, len });
        }
        self.serve_blocked();
    }

    /// Runs a `Conn` handler.
    #[inline]
    pub(super) fn run_conn(&mut self, client: &mut Box<Client>, handler: ConnHandler, args: Args<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.conn_into(client, &mut scratch, |conn| handler(conn, args));
        self.push_reply(client, &scratch);
        self.scratch = scratch;
        if !self.deliveries.is_empty() {
            self.after_publishing(client);
        }
        // CONFIG SET and CLIENT PAUSE hold for the rest of their own pipeline.
        if self.catch_up() {
            self.look_at_pause();
        }
    }

    pub(super) fn conn_into(
        &mut self,
        client: &mut Client,
        out: &mut Vec<u8>,
        run: impl FnOnce(&mut Conn<'_>) -> Outcome,
    ) {
        let start = out.len();
        let proto = client.proto;
        let mut conn = Conn {
            client,
            server: &self.server,
            config: &self.config,
            now_ms: self.now_ms,
            reply: Reply::new(out, proto),
            deliveries: &mut self.deliveries,
        };
        if let Err(error) = run(&mut conn) {
            self.fail_into(out, start, proto, &error);
        }
    }

    /// Appends a complete reply for the request that is running.
    #[inline]
    pub(super) fn push_reply(&mut self, client: &mut Client, reply: &[u8]) {
        if client.pending.is_empty() {
            client.out.extend_from_slice(reply);
        } else {
            let start = client.held.len();
            client.held.extend_from_slice(reply);
            client.pending.push_back(Slot::Ready { start, len: reply.len() });
        }
    }

    pub(super) fn reply_here(&mut self, client: &mut Client, write: impl FnOnce(&mut Reply<'_>)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        write(&mut Reply::new(&mut scratch, client.proto));
        self.push_reply(client, &scratch);
        self.scratch = scratch;
    }

    /// Answers a request whose command is not in the table.
    #[cold]
    pub(super) fn refuse_unknown(&mut self, client: &mut Client, unknown: Unknown, args: Args<'_>) {
        if gate::is_http(args.get(0)) {
            // A browser that was made to talk to us: what it sends behind may be meant as commands (cross-protocol scripting).
            crate::log::warning(&format!(
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. \
                 This is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Redis \
                 instance. Connection from {} aborted.",
                client.address
            ));
            client.closing = Closing::Now;
            return;
        }
        self.reject(client, None, gate::unknown_command(unknown, args));
    }

    /// Answers the running request with an error.
    pub(super) fn refuse(&mut self, client: &mut Client, error: CommandError) {
        self.note_failure(&error);
        self.answer_refusal(client, error);
    }

    /// Answers a request that does not run; without a row if its command is unknown.
    pub(super) fn reject(&mut self, client: &mut Client, row: Option<&Row>, error: CommandError) {
        let own = usize::from(self.id.0);
        WorkerStats::add(&self.server.workers[own].error_replies, 1);
        self.stats.reject(row.map(|row| row.id), &error.wire());
        self.answer_refusal(client, error);
    }

    pub(super) fn answer_refusal(&mut self, client: &mut Client, error: CommandError) {
        if let Some(multi) = &mut client.multi {
            multi.is_broken = true;
        }
        self.reply_here(client, |reply| reply.error(error.wire()));
        if client.reply_mode != ReplyMode::On {
            self.mute(client);
        }
    }

    /// Drops the reply of the request that has just run or been sent (CLIENT REPLY OFF or SKIP).
    #[cold]
    pub(super) fn mute(&mut self, client: &mut Client) {
        match client.reply_mode {
            ReplyMode::On => return,
            ReplyMode::SkipNext => {
                client.reply_mode = ReplyMode::Skip;
            }
            ReplyMode::Skip => client.reply_mode = ReplyMode::On,
            ReplyMode::Off => {}
        }
        match client.pending.back_mut() {
            Some(Slot::Ready { .. }) => client.drop_last_held(),
            Some(Slot::Waiting { is_muted, .. } | Slot::Gathering { is_muted, .. }) => *is_muted = true,
            None => client.cut_output(self.mark.0, self.mark.1),
        }
    }

    /// A command panicked: its client gets an error and is closed, the server goes on.
    #[cold]
    pub(super) fn bury_panic(&mut self, client: &mut Client, panic: &(dyn std::any::Any + Send)) {
        let name = client.last_command.map_or("?", |command| command.name);
        self.note_panic(name, panic);
        self.placed.clear();
        client.cut_output(self.mark.0.max(client.out_at), self.mark.1);
        // Behind what earlier requests are still owed.
        self.reply_here(client, |reply| reply.error(INTERNAL_ERROR));
        client.closing = Closing::AfterReplies;
    }

    /// Puts an error in the place of whatever a handler has written since `start`.
    pub(super) fn fail_into(&self, out: &mut Vec<u8>, start: usize, proto: Proto, error: &CommandError) {
        out.truncate(start);
        Reply::new(out, proto).error(error.wire());
        self.note_failure(error);
    }

    /// Counts an error of the command that is running.
    #[cold]
    pub(super) fn note_failure(&self, error: &CommandError) {
        let own = usize::from(self.id.0);
        WorkerStats::add(&self.server.workers[own].error_replies, 1);
        self.stats.fail(self.running, &error.wire());
    }

    pub(super) fn note_panic(&self, command: &str, panic: &(dyn std::any::Any + Send)) {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        crate::log::warning(&format!("Command '{command}' failed by a bug of the server: {text}"));
        WorkerStats::add(&self.server.workers[usize::from(self.id.0)].panics, 1);
    }

    /// Hands a finished reply to whoever waits for it.
    pub(super) fn deliver(&mut self, origin: ShardId, to: ReplyTo, reply: &[u8], strings: Vec<Placed>) {
        if origin != self.id {
            let outbox = &mut self.outboxes[usize::from(origin.0)];
            let mark = outbox.begin_reply(to);
            outbox.bytes.extend_from_slice(reply);
            match strings.is_empty() {
                true => outbox.end_reply(mark),
                false => outbox.end_shared_reply(mark, strings.into_iter()),
            }
            return;
        }
        match to {
            ReplyTo::Slot { client, sequence } => {
                self.answer_with(client, sequence, reply, strings.into_iter());
            }
            ReplyTo::Gather { id } => self.take_part(id, self.id, reply),
            ReplyTo::Lend { .. } => panic!("the own half of a command is not sent"),
        }
    }

    /// The reply of the first slot stands in `out` already.
    pub(super) fn answered_in_place(&mut self, id: ClientId, sequence: u32) {
        let is_muted = self.clients.get_mut(id).is_some_and(|client| {
            matches!(client.pending.front(), Some(Slot::Gathering { is_muted: true, .. }))
        });
        debug_assert!(!is_muted, "a muted reply is not written in place");
        self.answer(id, sequence, &[]);
    }

    /// Answers a pending slot of a client of this worker.
    pub(super) fn answer(&mut self, id: ClientId, sequence: u32, reply: &[u8]) {
        self.answer_with(id, sequence, reply, std::iter::empty());
    }

    /// The same with the long strings that belong into the reply.
    pub(super) fn answer_with(
        &mut self,
        id: ClientId,
        sequence: u32,
        reply: &[u8],
        strings: impl Iterator<Item = Placed>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.answer(sequence, reply, strings);
        let front = client.front;
        let ended = client.blocked.take_if(|blocked| blocked.sequence == sequence);
        // A closing one even if its last reply is muted: its end is due.
        let wants_write = client.out.len() > client.out_at || client.closing != Closing::No;
        if wants_write {
            client.mark_dirty(&mut self.dirty);
        }
        let has_room = client.parked == Parked::Room && client.pending.len() <= client.max_pending() / 2;
        if client.parked == Parked::Order || has_room {
            client.parked = Parked::No;
            if !client.is_queued {
                client.is_queued = true;
                self.runnable.push_back(id);
            }
        }
        if let Some(mut blocked) = ended {
            if blocked.state == BlockedState::Asked {
                // It was answered at once and stands in no line.
                blocked.mask = 0;
            }
            self.end_blocked(id, &blocked);
        }
        if !self.waiting_front.is_empty()
            && let Some(lend) = self.waiting_front.remove(&(id, front))
        {
            self.ask_next_owner(lend);
        }
    }

    /// Called once a turn: connections that others have marked for closing (CLIENT KILL) are seen to.
    pub fn note_closing(&mut self) {
        for id in std::mem::take(&mut self.clients.to_close) {
            if let Some(client) = self.clients.get_mut(id) {
                client.mark_dirty(&mut self.dirty);
            }
        }
    }
}
