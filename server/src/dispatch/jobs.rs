//! Long commands in slices: the jobs of this shard, one slice of the oldest at a time.
//!
//! A job that works on one key holds it as a lend does, from the request that started it to its reply: whoever asks for the key
//! meanwhile waits, so the command has happened before all of them. What waits for a whole shard waits for such jobs, which go on;
//! the others stand still then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use skerry_resp::reply::{Proto, Reply};

use super::observed::{Argv, Call};
use super::{INTERNAL_ERROR, Node};
use crate::args::Args;
use crate::client::{Client, Slot};
use crate::command::{Caller, CommandId, Job};
use crate::command_log::kept_argv;
use crate::commands::TABLE;
use crate::keyspace::Key;
use crate::message::{HoldMode, ReplyTo};
use crate::output::Placed;
use crate::shard::ShardId;

pub(super) struct RunningJob {
    job: Box<dyn Job>,
    to: ReplyTo,
    /// The worker that waits for the reply (this one: the client is here).
    origin: ShardId,
    caller: Caller,
    proto: Proto,
    command: CommandId,
    held: Option<Held>,
    /// Its slices so far, and what a log would keep of its arguments.
    spent_ns: u64,
    argv: Vec<Box<[u8]>>,
}

/// The key that a job holds.
struct Held {
    mode: HoldMode,
    key: Box<[u8]>,
    hash: u64,
}

impl Node {
    /// Starts a job of a client of this worker.
    pub(super) fn start_job(&mut self, client: &mut Client, job: Box<dyn Job>, caller: Caller, proto: Proto) {
        let to = ReplyTo::Slot { client: client.id, sequence: client.next_sequence() };
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: true });
        client.n_gathers += 1;
        self.add_job(job, to, self.id, caller, proto);
    }

    /// A call is about to become a job: what is said of it is said when that is done.
    pub(super) fn note_job(&mut self, args: Args<'_>) {
        self.job_argv = kept_argv(args, &[]);
        self.observed.is_elsewhere = true;
        self.observed.is_job = true;
    }

    /// Puts a job of the running request into the line.
    pub(super) fn add_job(
        &mut self,
        job: Box<dyn Job>,
        to: ReplyTo,
        origin: ShardId,
        caller: Caller,
        proto: Proto,
    ) {
        let held = job.held().map(|(mode, key)| Held { mode, key: key.bytes.into(), hash: key.hash });
        if let Some(held) = &held {
            self.holds.hold_for_job(held.mode, held.hash);
        }
        let argv = std::mem::take(&mut self.job_argv);
        self.jobs.push_back(RunningJob {
            job,
            to,
            origin,
            caller,
            proto,
            command: self.running,
            held,
            spent_ns: 0,
            argv,
        });
    }

    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Runs one slice of the oldest job that may go on.
    pub fn run_job_slice(&mut self) {
        let may_all_go_on = self.holds.admits_keyless();
        let next = self.jobs.iter().position(|job| may_all_go_on || job.held.is_some());
        let Some(mut running) = next.and_then(|at| self.jobs.remove(at)) else { return };
        self.running = running.command;
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let mut ctx = ctx!(self, running.caller, &mut out, running.proto);
        if matches!(running.to, ReplyTo::Slot { .. }) {
            ctx.placed = Some(&mut self.placed);
        }
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| running.job.slice(&mut ctx)));
        running.spent_ns += started.elapsed().as_nanos() as u64;
        match outcome {
            Ok(Ok(true)) => self.end_job(running, &out),
            Ok(Ok(false)) => {
                debug_assert!(self.placed.is_empty(), "a job replies when it is done");
                match running.job.keeps_its_place() {
                    true => self.jobs.push_front(running),
                    false => self.jobs.push_back(running),
                }
            }
            Ok(Err(error)) => {
                self.placed.clear();
                self.fail_into(&mut out, 0, running.proto, &error);
                self.end_job(running, &out);
            }
            Err(panic) => {
                self.note_panic("a job", &*panic);
                self.placed.clear();
                out.clear();
                Reply::new(&mut out, running.proto).error(INTERNAL_ERROR);
                self.end_job(running, &out);
            }
        }
        self.scratch = out;
    }

    /// The job is done: its reply goes out, and whoever waited for its key goes on.
    fn end_job(&mut self, running: RunningJob, reply: &[u8]) {
        let RunningJob { job, to, origin, caller, held, spent_ns, argv, command, .. } = running;
        let placed_bytes: usize = self.placed.iter().map(|(_, bytes)| bytes.len()).sum();
        let call = Call {
            ns: Some(spent_ns),
            reply_bytes: reply.len() + placed_bytes,
            ..Call::of(TABLE.row(command), caller.client, caller.db)
        };
        self.look_at_call(&call, &Argv::Kept(&argv));
        // What it has borrowed of an entry goes before its hold.
        drop(job);
        let strings: Vec<Placed> = self.placed.drain(..).collect();
        self.deliver(origin, to, reply, strings);
        self.serve_blocked();
        self.send_deliveries();
        let Some(Held { mode, key, hash }) = held else { return };
        let mut freed = Vec::new();
        self.holds.release(mode, std::iter::once(hash), &mut freed);
        if mode == HoldMode::Exclusive {
            // If it had a bug, what it has taken is gone.
            self.shard.keyspace(caller.db).take_home(&Key { bytes: &key, hash }, None);
        }
        self.end_sharing(&[key]);
        self.run_freed(freed);
    }
}
