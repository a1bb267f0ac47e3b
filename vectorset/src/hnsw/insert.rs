//! INSERT in two halves. The plan searches, on any thread and in slices, and changes nothing; the commit
//! links, at the writer, and searches nothing.
//!
//! ```text
//!   Descend ─► for each level from the top down:  Enter, Walk ─► Select  ─► Weigh, a neighbor at a time  ─► Ready
//!                                               candidates     the chosen  which link a full one gives up
//! ```
//!
//! A choice names the neighbor's version at the time it was made. At the commit a neighbor that has room is
//! linked, a full one whose lists have not moved does as planned, and for one that has moved the choice is
//! made anew. Nodes that were committed since the plan began are not among its candidates; the writer adds
//! the last of them. Invariant: who keeps a plan keeps the epoch it began in, so its ids name what they named.

use super::neighbors::{Newcomer, Selection};
use super::search::MAX_TIES;
use super::{Index, Probe, Progress};
use crate::admission::All;
use crate::graph::NodeId;
use crate::pool::Candidate;
use crate::scratch::Walk;

/// The neighbors of a new node, and what each of them does about it.
#[derive(Default)]
pub(crate) struct Plan {
    stage: Stage,
    /// Per level from 0 up.
    layers: Vec<Vec<Link>>,
    n_layers: usize,
    ef: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Descend,
    Enter {
        level: usize,
    },
    Walk {
        level: usize,
    },
    Select {
        level: usize,
    },
    Weigh {
        level: usize,
        at: usize,
    },
    Ready,
}

/// A planned link of the new node.
#[derive(Clone, Copy, Debug)]
struct Link {
    neighbor: Candidate,
    /// The neighbor's when its choice was made.
    version: u32,
    choice: Choice,
}

/// What a full neighbor does about the new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// It had room, or was not asked yet.
    Open,
    Refuse,
    GiveUp(NodeId),
}

/// Distances that the weighing of one full neighbor costs, per link of its list.
const DISTANCES_PER_WEIGHED: usize = 2;

impl Plan {
    /// A plan for a node of `level`, not begun.
    pub(crate) fn begin(&mut self, ef: usize) {
        (self.stage, self.n_layers, self.ef) = (Stage::Descend, 0, ef);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }
}

impl Index {
    /// Goes on with a plan for a node of `level` that `probe` was prepared from, for about `budget` distances,
    /// less what it has used. `walk` is the same from call to call.
    pub(crate) fn step_plan(
        &self,
        plan: &mut Plan,
        probe: &Probe,
        level: usize,
        walk: &mut Walk,
        selection: &mut Selection,
        budget: &mut usize,
    ) -> Progress {
        while plan.stage != Stage::Ready {
            if *budget == 0 {
                return Progress::Unfinished;
            }
            let cost = self.step_stage(plan, probe, level, walk, selection, *budget);
            *budget = budget.saturating_sub(cost.max(1));
        }
        Progress::Done
    }

    /// One stage, or one neighbor, or `left` distances of a walk; about how many distances it cost.
    fn step_stage(
        &self,
        plan: &mut Plan,
        probe: &Probe,
        level: usize,
        walk: &mut Walk,
        selection: &mut Selection,
        left: usize,
    ) -> usize {
        match plan.stage {
            Stage::Descend => {
                let Some(top) = self.descend(probe, level, walk) else {
                    plan.stage = Stage::Ready;
                    return 1;
                };
                plan.n_layers = top.min(level) + 1;
                if plan.layers.len() < plan.n_layers {
                    plan.layers.resize_with(plan.n_layers, Vec::new);
                }
                plan.stage = Stage::Enter { level: plan.n_layers - 1 };
                self.graph.m() * 4
            }
            Stage::Enter { level } => {
                self.begin_layer(plan.ef, MAX_TIES, level, walk);
                plan.stage = Stage::Walk { level };
                1
            }
            Stage::Walk { level } => {
                let mut rest = left;
                if self.walk_layer(probe, &All, &mut rest, walk) == Progress::Done {
                    self.finish_layer(walk);
                    plan.stage = Stage::Select { level };
                }
                left - rest
            }
            Stage::Select { level } => {
                let m_max = self.graph.m_max(level);
                self.select_neighbors_heuristic(&walk.found, m_max, probe.rung(), selection);
                let layer = &mut plan.layers[level];
                layer.clear();
                let link = |&neighbor| Link { neighbor, version: 0, choice: Choice::Open };
                layer.extend(selection.chosen.iter().map(link));
                plan.stage = Stage::Weigh { level, at: 0 };
                m_max * m_max
            }
            Stage::Weigh { level, at } => self.step_weigh(plan, probe, level, at, selection),
            Stage::Ready => 0,
        }
    }

    fn step_weigh(
        &self,
        plan: &mut Plan,
        probe: &Probe,
        level: usize,
        at: usize,
        selection: &mut Selection,
    ) -> usize {
        let Some(link) = plan.layers[level].get_mut(at) else {
            plan.stage = match level.checked_sub(1) {
                Some(level) => Stage::Enter { level },
                None => Stage::Ready,
            };
            return 1;
        };
        plan.stage = Stage::Weigh { level, at: at + 1 };
        let neighbor = link.neighbor;
        // Before the list is looked at: whatever changes from here on shows at the commit.
        link.version = self.graph.node(neighbor.id).version();
        let m_max = self.graph.m_max(level);
        if self.graph.degree(neighbor.id, level) < m_max {
            return 1;
        }
        let newcomer = Newcomer { probe, distance: neighbor.distance, id: None };
        link.choice = match self.choose_victim(newcomer, neighbor.id, level, selection) {
            Some(victim) => Choice::GiveUp(victim),
            None => Choice::Refuse,
        };
        DISTANCES_PER_WEIGHED * m_max
    }

    /// Writer only: plans and commits a node that is stored and has no link. `probe` was prepared from its
    /// vector.
    pub(crate) fn link_node(
        &self,
        id: NodeId,
        probe: &Probe,
        ef: usize,
        walk: &mut Walk,
        plan: &mut Plan,
        selection: &mut Selection,
    ) {
        plan.begin(ef);
        self.step_plan(plan, probe, self.graph.node(id).level(), walk, selection, &mut usize::MAX.clone());
        let is_linked = self.commit_plan(id, plan, std::iter::empty(), selection);
        assert!(is_linked, "nothing has changed since the plan");
    }

    /// Writer only: links the node as planned, level 0 first, and to those of `recent` that are near enough.
    /// With at least one candidate the node has at least one link on level 0 afterwards; false if it has
    /// none, or if the graph has grown levels that the plan does not know: then the plan is to be made anew.
    pub(crate) fn commit_plan(
        &self,
        id: NodeId,
        plan: &Plan,
        recent: impl Iterator<Item = NodeId> + Clone,
        selection: &mut Selection,
    ) -> bool {
        debug_assert!(plan.is_ready());
        let level = self.graph.node(id).level();
        if let Some(entry) = self.graph.entry()
            && plan.n_layers <= self.graph.node(entry).level().min(level)
        {
            return false;
        }
        for (at, layer) in plan.layers[..plan.n_layers].iter().enumerate() {
            self.connect_recent(id, layer, recent.clone(), at, selection);
            for link in layer {
                if self.graph.degree(id, at) < self.graph.m_max(at) && !self.is_gone(link.neighbor.id, at) {
                    self.connect_as_planned(id, link, at, selection);
                }
            }
            let nearest = layer.iter().map(|link| link.neighbor.id).find(|&other| !self.is_gone(other, at));
            if let Some(nearest) = nearest
                && self.graph.degree(id, at) == 0
            {
                self.split_link(id, nearest, at);
            }
            if at == 0 && self.graph.degree(id, 0) == 0 {
                return false;
            }
        }
        let is_taller = self.graph.entry().is_none_or(|entry| level > self.graph.node(entry).level());
        if is_taller {
            self.graph.set_entry(Some(id));
        }
        true
    }

    /// Links the node to those of `recent` that the plan would have chosen over its farthest neighbor.
    fn connect_recent(
        &self,
        id: NodeId,
        layer: &[Link],
        recent: impl Iterator<Item = NodeId>,
        level: usize,
        selection: &mut Selection,
    ) {
        let has_room = layer.len() < self.graph.m_max(level);
        let farthest = layer.iter().map(|link| link.neighbor.distance).fold(f32::MIN, f32::max);
        for other in recent {
            if other == id || self.is_gone(other, level) {
                continue;
            }
            self.probe_stored(id, self.codes.walked(), &mut selection.probe);
            let distance = self.distance(&selection.probe, other);
            if (has_room || distance < farthest)
                && self.graph.degree(id, level) < self.graph.m_max(level)
                && !layer.iter().any(|link| link.neighbor.id == other)
            {
                self.connect(id, Candidate { distance, id: other }, level, selection);
            }
        }
    }

    /// Whether a node is no longer linked, or never was on this level.
    fn is_gone(&self, id: NodeId, level: usize) -> bool {
        let node = self.graph.node(id);
        node.is_dead() || node.level() < level
    }

    fn connect_as_planned(&self, id: NodeId, link: &Link, level: usize, selection: &mut Selection) -> bool {
        let neighbor = link.neighbor;
        if self.graph.degree(neighbor.id, level) < self.graph.m_max(level) {
            self.graph.link(neighbor.id, id, level);
            return true;
        }
        if self.graph.node(neighbor.id).version() == link.version {
            match link.choice {
                Choice::Refuse => return false,
                Choice::GiveUp(victim) if self.may_give_up(neighbor.id, victim, id, level, selection) => {
                    self.graph.unlink(neighbor.id, victim, level);
                    self.graph.link(neighbor.id, id, level);
                    return true;
                }
                Choice::GiveUp(_) | Choice::Open => {}
            }
        }
        self.connect(id, neighbor, level, selection)
    }

    /// The rest of a neighbor's choice holds with its version; the victim's own lists may have moved.
    fn may_give_up(
        &self,
        neighbor: NodeId,
        victim: NodeId,
        id: NodeId,
        level: usize,
        selection: &mut Selection,
    ) -> bool {
        let around = selection.look_around(&self.graph, neighbor, level);
        self.can_go(victim, around, Some(id), level)
    }
}
