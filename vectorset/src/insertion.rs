//! A new element on its way into a set: planned by any reader, in slices, and committed by the writer.
//!
//! ```text
//!   reader: begin_insertion ─► step ... step ─► finish ─► Planned ──(any thread)──► Writer::commit
//! ```
//!
//! A plan changes nothing and may be dropped at any time. It holds the epoch it began in, so the ids in it
//! keep their meaning until it is committed. What the set has become meanwhile is the commit's matter: it
//! stores the choices whose nodes have not changed and makes the others anew. The answer is that of `add`.

use std::sync::atomic::Ordering;

use crate::epoch::{Guard, Hold};
use crate::error::Error;
use crate::graph::MAX_LEVEL;
use crate::hnsw::{Plan, Probe, Progress};
use crate::scratch::SearchScratch;
use crate::set::VectorSet;

/// A plan that is being made.
pub struct Insertion {
    planned: Planned,
    scratch: SearchScratch,
}

/// A plan that is made, with the vector it is for.
pub struct Planned {
    pub(crate) probe: Probe,
    pub(crate) l2: f64,
    pub(crate) level: usize,
    pub(crate) plan: Plan,
    /// Nodes that had been linked when the plan began.
    pub(crate) n_linked_before: u64,
    set_uid: u64,
    /// Keeps the ids in the plan.
    hold: Hold,
}

impl VectorSet {
    /// Begins to plan a node for `vector`, which is as the client gave it. `random` decides its level.
    pub fn begin_insertion(
        &self,
        vector: &[f32],
        ef: usize,
        random: u64,
        scratch: SearchScratch,
        guard: &Guard,
    ) -> Result<Insertion, Error> {
        guard.assert_guards(&self.domain);
        self.check_dim(vector)?;
        let mut probe = Probe::default();
        let l2 = self.index.prepare(vector, &mut probe)?;
        self.index.measure_structure(&mut probe);
        let mut plan = Plan::default();
        plan.begin(ef.clamp(1, self.len().max(1)));
        let planned = Planned {
            probe,
            l2,
            level: level_of(random, self.params.m),
            plan,
            n_linked_before: self.max_node_uid.load(Ordering::Acquire),
            set_uid: self.uid,
            hold: guard.hold(),
        };
        Ok(Insertion { planned, scratch })
    }
}

impl Insertion {
    /// Goes on for about `budget` distances, and takes what it has used off it.
    ///
    /// # Panics
    /// If `set` is not the one it began with.
    pub fn step(&mut self, set: &VectorSet, budget: &mut usize, guard: &Guard) -> Progress {
        guard.assert_guards(&set.domain);
        self.planned.hold.assert_guards(&set.domain);
        assert!(self.planned.is_for(set), "a plan goes on with another set");
        let Insertion { planned: Planned { probe, level, plan, .. }, scratch } = self;
        set.index.step_plan(plan, probe, *level, &mut scratch.walk, &mut scratch.selection, budget)
    }

    /// The plan, and the buffers for the next one.
    ///
    /// # Panics
    /// If it is not ready.
    pub fn finish(self) -> (Planned, SearchScratch) {
        assert!(self.planned.plan.is_ready(), "a plan is finished before it is ready");
        (self.planned, self.scratch)
    }

    /// The buffers, of a plan that is given up.
    pub fn abandon(self) -> SearchScratch {
        self.scratch
    }

    /// Whether it is for this very set.
    pub fn is_for(&self, set: &VectorSet) -> bool {
        self.planned.is_for(set)
    }
}

impl Planned {
    /// Whether it was made for this very set.
    pub fn is_for(&self, set: &VectorSet) -> bool {
        self.set_uid == set.uid
    }
}

/// floor(-ln(U) / ln(M)), the paper's choice: a node in M reaches the next level.
pub(crate) fn level_of(random: u64, m: u32) -> usize {
    let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
    let level = -(1.0 - uniform).ln() / f64::from(m).ln();
    (level as usize).min(MAX_LEVEL)
}
