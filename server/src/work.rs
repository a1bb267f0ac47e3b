//! Vector work of one worker, in slices: searches and plans that are longer than a turn allows.
//!
//! ```text
//!   request ─► handler: has the turn distances left?  yes: go on ─► done ─► reply, or commit at the owner
//!                             no, or not done: what was begun is kept, the client parked, its request not run
//!   background ─► the first in the line: its request runs again with one slice, and finds what it had begun
//! ```
//!
//! So order and errors are those of a request that has not run yet. While somebody waits in the line nobody else
//! begins: first come, first served, but for a long one, which goes to the end after a few slices. Only so many are
//! begun at a time, for each has its own visited marks. Distances are counted, not time: the core has no clock.

use std::any::Any;
use std::collections::VecDeque;

use hashbrown::HashMap;
use skerry_vectorset::{Insertion, Planned, SearchScratch, VectorSet};

use crate::client::ClientId;

/// What a turn may measure for requests as they come, in distances of up to `UNIT_DIM` dimensions: some 0.5 ms.
const TURN_UNITS: usize = 12_000;
/// One slice of the line, or of a job: some 0.2 ms.
const SLICE_UNITS: usize = 4_096;
/// A distance costs one unit, and one more for each time that many dimensions.
const UNIT_DIM: usize = 512;
/// Slices after which a long one lets the next in the line go on.
const SLICES_IN_A_ROW: u32 = 4;
/// Searches and plans begun at a time.
const MAX_BEGUN: usize = 16;
/// Sets below this are not worth a plan: an insert at the owner costs little more than a commit.
const MIN_PLANNED_LEN: usize = 256;

/// What a handler has begun and not ended.
pub enum Begun {
    /// VADD, VMADD: what is planned, element by element.
    Addition(Box<Addition>),
    /// A search, of its handler's own type.
    Search(Box<dyn Any + Send>),
}

/// Plans for the elements of one request, in their order.
#[derive(Default)]
pub struct Addition {
    /// What the request says, of its handler's own type: it is read once.
    pub request: Option<Box<dyn Any + Send>>,
    pub planned: Plans,
    pub next: Option<Insertion>,
}

impl Addition {
    /// Whether all of it was planned for this very set.
    pub fn is_for(&self, set: &VectorSet) -> bool {
        self.planned.iter().all(|planned| planned.is_for(set))
            && self.next.as_ref().is_none_or(|insertion| insertion.is_for(set))
    }
}

/// Plans that travel to the owner with their request.
pub type Plans = Vec<Planned>;

/// What is left of a job's slice.
#[derive(Clone, Copy, Debug)]
pub struct SliceLeft(usize);

impl SliceLeft {
    /// Notes the cost of so many distances; false when the slice is over.
    pub fn spend(&mut self, n_distances: usize, dim: u32) -> bool {
        self.0 = self.0.saturating_sub(n_distances.saturating_mul(units(dim)));
        self.0 > 0
    }

    /// Distances of `dim` dimensions that are left.
    pub fn distances(self, dim: u32) -> usize {
        self.0.div_ceil(units(dim))
    }
}

/// How much of its work a worker does at a time.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub turn: usize,
    pub slice: usize,
    /// A plan's share of either.
    pub plan: usize,
    pub min_planned_len: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { turn: TURN_UNITS, slice: SLICE_UNITS, plan: usize::MAX, min_planned_len: MIN_PLANNED_LEN }
    }
}

/// What became of the work, for the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Slices run for requests that had waited in the line.
    pub slices: u64,
    /// Plans committed here to the set that they were made for.
    pub committed: u64,
    /// Plans whose set was no longer at their key.
    pub voided: u64,
}

/// The vector work of one worker.
pub struct Work {
    /// Units that may still be spent in this turn or slice.
    left: usize,
    /// What the running request had begun before, or has begun now.
    pub begun: Option<Begun>,
    /// Set by a handler that is not done and has replied nothing.
    pub is_unfinished: bool,
    kept: HashMap<ClientId, Begun>,
    line: VecDeque<ClientId>,
    /// Whose slice runs.
    running: Option<ClientId>,
    /// Slices that the first in the line has had in a row.
    n_slices: u32,
    spare: Vec<SearchScratch>,
    pub sizes: Sizes,
    pub counts: Counts,
}

impl Default for Work {
    fn default() -> Self {
        let sizes = Sizes::default();
        Self {
            left: sizes.turn,
            begun: None,
            is_unfinished: false,
            kept: HashMap::new(),
            line: VecDeque::new(),
            running: None,
            n_slices: 0,
            spare: Vec::new(),
            sizes,
            counts: Counts::default(),
        }
    }
}

impl Work {
    /// A new turn has its own budget, unless somebody waits.
    pub fn begin_turn(&mut self) {
        self.left = if self.line.is_empty() { self.sizes.turn } else { 0 };
    }

    /// Distances of `dim` dimensions that may be measured now; none: come back later.
    pub fn distances(&self, dim: u32) -> usize {
        self.left.div_ceil(units(dim))
    }

    /// Takes the cost of so many distances off what is left; false if it is more.
    pub fn afford(&mut self, n_distances: usize, dim: u32) -> bool {
        let cost = n_distances.saturating_mul(units(dim));
        let is_affordable = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        is_affordable
    }

    /// Begins a slice of a job with what it had begun; what is left of the turn, for `end_job_slice`.
    pub fn begin_job_slice(&mut self, begun: Option<Begun>) -> usize {
        self.begun = begun;
        self.is_unfinished = false;
        std::mem::replace(&mut self.left, self.sizes.slice)
    }

    /// Ends it: whether there is more to do, and what is begun.
    pub fn end_job_slice(&mut self, left: usize) -> (bool, Option<Begun>) {
        self.left = left;
        (std::mem::take(&mut self.is_unfinished), self.begun.take())
    }

    /// The size of one slice of a job.
    pub fn slice(&self) -> SliceLeft {
        SliceLeft(self.sizes.slice)
    }

    /// Notes what was measured.
    pub fn spend(&mut self, n_distances: usize, dim: u32) {
        self.left = self.left.saturating_sub(n_distances.saturating_mul(units(dim)));
    }

    /// Runs what cannot wait: for a peer, or inside a transaction.
    pub fn without_limit(&mut self) -> usize {
        std::mem::replace(&mut self.left, usize::MAX)
    }

    /// Ends that.
    pub fn limit_again(&mut self, left: usize) {
        self.left = left;
        debug_assert!(!self.is_unfinished, "there was no limit");
    }

    pub fn scratch(&mut self) -> SearchScratch {
        self.spare.pop().unwrap_or_default()
    }

    pub fn give_back(&mut self, scratch: SearchScratch) {
        if self.spare.len() < MAX_BEGUN {
            self.spare.push(scratch);
        }
    }

    // ---- The dispatcher's side.

    /// Whether the client's request has begun something.
    pub fn has_begun(&self, client: ClientId) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(&client)
    }

    /// Hands the client's request what it had begun.
    pub fn resume(&mut self, client: ClientId) {
        self.begun = if self.kept.is_empty() { None } else { self.kept.remove(&client) };
        self.is_unfinished = false;
    }

    /// Keeps what a request has begun: its client is parked.
    pub fn keep(&mut self, client: ClientId) {
        if let Some(begun) = self.begun.take() {
            self.kept.insert(client, begun);
        }
    }

    /// The client waits in the line for its next slice.
    pub fn line_up(&mut self, client: ClientId) {
        self.is_unfinished = false;
        self.left = 0;
        self.keep(client);
        // The one whose slice ends stands first again, but for its turn to let others go on.
        let may_go_on = self.n_slices < SLICES_IN_A_ROW || self.kept.len() >= MAX_BEGUN;
        match self.running == Some(client) && may_go_on {
            true => self.line.push_front(client),
            false => self.line.push_back(client),
        }
    }

    /// The client whose request may run now, with a slice to spend.
    pub fn next_slice(&mut self) -> Option<ClientId> {
        let client = self.line.pop_front()?;
        self.running = Some(client);
        self.n_slices += 1;
        self.counts.slices += 1;
        self.left = self.sizes.slice;
        Some(client)
    }

    /// Whatever the slice was for has run.
    pub fn end_slice(&mut self, client: ClientId) {
        self.running = None;
        if self.line.front() != Some(&client) {
            self.n_slices = 0;
        }
        self.left = 0;
    }

    /// Drops what a client has begun: its request was answered otherwise, or it has gone.
    pub fn forget(&mut self, client: ClientId) {
        if !self.kept.is_empty() {
            self.kept.remove(&client);
        }
    }

    /// A client has gone.
    pub fn leave(&mut self, client: ClientId) {
        self.forget(client);
        self.line.retain(|waiting| *waiting != client);
    }

    pub fn is_waiting(&self) -> bool {
        !self.line.is_empty()
    }

    pub fn n_kept(&self) -> usize {
        self.kept.len() + self.line.len()
    }

    /// Notes how many of `n` plans were for the set that is at their key.
    pub fn count_plans(&mut self, n: usize, n_right: usize) {
        self.counts.committed += n_right as u64;
        self.counts.voided += (n - n_right) as u64;
    }

    /// The plans of the running request, to travel with it.
    pub fn take_plans(&mut self) -> Option<Plans> {
        match self.begun.take()? {
            Begun::Addition(addition) => Some(addition.planned),
            Begun::Search(_) => None,
        }
    }
}

fn units(dim: u32) -> usize {
    1 + dim as usize / UNIT_DIM
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::ShardId;

    fn client(slot: usize) -> ClientId {
        ClientId::new(ShardId(0), slot, 0)
    }

    /// One slice of whoever is first; it is not done.
    fn slice(work: &mut Work) -> ClientId {
        let first = work.next_slice().expect("somebody waits");
        work.resume(first);
        work.begun = Some(Begun::Search(Box::new(())));
        work.line_up(first);
        work.end_slice(first);
        first
    }

    #[test]
    fn the_line_is_first_come_first_served_but_for_long_ones() {
        let (a, b, c) = (client(1), client(2), client(3));
        let mut work = Work::default();
        work.line_up(a);
        work.line_up(b);
        let mut order = vec![slice(&mut work)];
        // Who comes while the first is between two slices does not pass the others.
        work.begin_turn();
        assert_eq!(work.distances(1), 0, "nobody begins while somebody waits");
        work.line_up(c);
        order.extend((0..9).map(|_| slice(&mut work)));
        assert_eq!(order, [a, a, a, a, b, b, b, b, c, c]);
        work.leave(a);
        assert_eq!(work.n_kept(), 4, "what the others have begun, and their places");
    }

    #[test]
    fn with_many_begun_the_first_is_finished_first() {
        let mut work = Work::default();
        (0..MAX_BEGUN + 2).for_each(|slot| work.line_up(client(slot)));
        let order: Vec<ClientId> =
            (0..MAX_BEGUN * SLICES_IN_A_ROW as usize).map(|_| slice(&mut work)).collect();
        assert_eq!(order.last(), Some(&client(MAX_BEGUN - 1)));
        assert_eq!(slice(&mut work), client(MAX_BEGUN - 1), "no further one is begun");
    }
}
