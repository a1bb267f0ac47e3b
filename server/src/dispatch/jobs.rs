//! Long commands in slices: the jobs of this shard, one slice of the oldest at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use skerry_resp::reply::{Proto, Reply};

use super::{INTERNAL_ERROR, Node};
use crate::client::{Client, Slot};
use crate::command::{Caller, Job};
use crate::message::ReplyTo;
use crate::shard::ShardId;

pub(super) struct RunningJob {
    pub(super) job: Box<dyn Job>,
    pub(super) to: ReplyTo,
    /// The worker that waits for the reply (this one: the client is here).
    pub(super) origin: ShardId,
    pub(super) caller: Caller,
    pub(super) proto: Proto,
}

impl Node {
    pub(super) fn start_job(&mut self, client: &mut Client, job: Box<dyn Job>, caller: Caller, proto: Proto) {
        let to = ReplyTo::Slot { client: client.id, sequence: client.next_sequence() };
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: true });
        client.n_gathers += 1;
        self.jobs.push_back(RunningJob { job, to, origin: self.id, caller, proto });
    }

    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Runs one slice of the oldest job.
    pub fn run_job_slice(&mut self) {
        let Some(mut running) = self.jobs.pop_front() else { return };
        if !self.holds.admits_keyless() {
            self.jobs.push_front(running);
            return;
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let mut ctx = ctx!(self, running.caller, &mut out, running.proto);
        match catch_unwind(AssertUnwindSafe(|| running.job.slice(&mut ctx))) {
            Ok(true) => self.deliver(running.origin, running.to, &out),
            Ok(false) => self.jobs.push_back(running),
            Err(panic) => {
                self.note_panic("a job", &*panic);
                out.clear();
                Reply::new(&mut out, running.proto).error(INTERNAL_ERROR);
                self.deliver(running.origin, running.to, &out);
            }
        }
        self.scratch = out;
    }
}
