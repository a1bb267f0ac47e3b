//! A set node by node, for files and other servers: what each node holds and links to, out and in.
//!
//! Invariants of `Loading`: rows come in as they were written down, not normalised again, so that a set goes out
//! and in any number of times unchanged. Links are taken as they are, as far as they fit; what the links do not lead to
//! from the entry is linked anew. So a sound graph is loaded at the speed of memory, and any other is repaired.

use std::sync::atomic::Ordering;

use crate::epoch::Guard;
use crate::filter::Attribute;
use crate::graph::{MAX_LEVEL, NodeId};
use crate::hnsw::{Probe, Progress};
use crate::params::Quantization;
use crate::scratch::SearchScratch;
use crate::set::VectorSet;
use crate::writer::Writer;

/// EF with which nodes are linked that no link leads to.
const REPAIR_EF: usize = 200;

/// A node as it is written down.
pub struct NodeView<'a> {
    /// Unique within the set, above 0.
    pub id: u64,
    pub name: &'a [u8],
    pub attribute: Option<&'a [u8]>,
    /// The vector as it is stored: see `RawVector`.
    pub blob: Vec<u8>,
    pub range: Option<f32>,
    pub l2: f64,
    /// The neighbors' ids and distances, per level from 0 up.
    pub links: Vec<Vec<(u64, f32)>>,
}

/// A node that is read.
pub struct LoadedNode<'a> {
    pub name: &'a [u8],
    pub attribute: Option<&'a [u8]>,
    /// The vector as it is stored: see `RawVector`.
    pub blob: &'a [u8],
    pub range: f32,
    pub l2: f64,
    /// Places of the neighbors in the list of nodes, per level from 0 up; mutual, without repetitions, and only to
    /// nodes that have the level.
    pub links: &'a [Vec<u32>],
}

impl VectorSet {
    /// The first `upto` nodes, the last of them first: all of them, in slices, if the set rests meanwhile.
    pub fn nodes_before<'a>(&'a self, upto: usize, guard: &'a Guard) -> impl Iterator<Item = NodeView<'a>> {
        guard.assert_guards(&self.domain);
        let mut probe = Probe::default();
        (0..upto as u32).rev().filter_map(|place| self.members.get(place)).map(move |id| {
            let node = self.index.graph.node(id);
            let is_exact = self.params.quantization == Quantization::None;
            if !is_exact {
                self.index.probe_stored(id, self.index.codes.walked(), &mut probe);
            }
            let link = |other: NodeId| match is_exact {
                true => (uid(other), self.index.distance_between(id, other)),
                false => (uid(other), self.index.distance(&probe, other)),
            };
            let (blob, range) = self.index.blob(id);
            let links =
                (0..=node.level()).map(|level| self.index.graph.neighbors(id, level).map(link).collect());
            NodeView {
                id: uid(id),
                name: self.name(id, guard),
                attribute: node.attribute.load(guard).map(Attribute::text),
                blob,
                range,
                l2: node.l2(),
                links: links.collect(),
            }
        })
    }
}

fn uid(id: NodeId) -> u64 {
    u64::from(id.0) + 1
}

/// A name that comes twice, a blob that is not of the set's shape, or more nodes than a set can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsound;

/// A set that is being filled, in slices.
pub struct Loading {
    n_nodes: usize,
    ids: Vec<NodeId>,
    stage: Stage,
}

enum Stage {
    Nodes,
    /// Links of the nodes before this place are made.
    Links(usize),
    /// What level 0 leads to from the entry.
    Reach {
        is_reached: Vec<bool>,
        to_expand: Vec<NodeId>,
    },
    /// What it does not lead to, among the nodes before a place, has no links any more.
    Sever {
        is_reached: Vec<bool>,
        place: usize,
        unreached: Vec<NodeId>,
    },
    /// That is linked anew, the last first.
    Relink(Vec<NodeId>),
    Done,
}

/// What a node without its links costs, in distances: its row is copied and its code made.
const NODE_COST: usize = 100;
/// The same of making a node's links, or of following them.
const LINKS_COST: usize = 40;
/// The same of linking a node anew.
const RELINK_COST: usize = 7_000;

impl Loading {
    /// Of a set of `n_nodes`, which is empty and known to nobody yet.
    pub fn begin(n_nodes: usize) -> Loading {
        Loading { n_nodes, ids: Vec::new(), stage: Stage::Nodes }
    }

    /// Goes on for about `budget` distances. `node` tells a node by its place, the same at every time.
    pub fn step<'n>(
        &mut self,
        writer: &mut Writer,
        node: impl Fn(usize) -> LoadedNode<'n>,
        budget: usize,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Result<Progress, Unsound> {
        let set = writer.set.clone();
        let graph = &set.index.graph;
        let mut left = budget;
        while left > 0 {
            match &mut self.stage {
                Stage::Nodes if self.ids.len() == self.n_nodes => self.stage = Stage::Links(0),
                Stage::Nodes => {
                    let node = node(self.ids.len());
                    if set.contains(node.name, guard) {
                        return Err(Unsound);
                    }
                    self.ids.push(writer.load_node(&node, scratch)?);
                    left = left.saturating_sub(NODE_COST);
                }
                Stage::Links(place) if *place == self.n_nodes => {
                    let tallest = writer.towers.iter().rev().find_map(|tower| tower.first().copied());
                    let entry = tallest.or(self.ids.first().copied());
                    graph.set_entry(entry);
                    let mut is_reached = vec![false; set.index.bound() as usize];
                    entry.iter().for_each(|entry| is_reached[entry.0 as usize] = true);
                    self.stage = Stage::Reach { is_reached, to_expand: entry.into_iter().collect() };
                }
                Stage::Links(place) => {
                    link_back(&set, &self.ids, *place, &node(*place));
                    *place += 1;
                    left = left.saturating_sub(LINKS_COST);
                }
                Stage::Reach { is_reached, to_expand } => {
                    let Some(id) = to_expand.pop() else {
                        let is_reached = std::mem::take(is_reached);
                        self.stage = Stage::Sever { is_reached, place: 0, unreached: Vec::new() };
                        continue;
                    };
                    to_expand.extend(
                        graph
                            .neighbors(id, 0)
                            .filter(|to| !std::mem::replace(&mut is_reached[to.0 as usize], true)),
                    );
                    left = left.saturating_sub(LINKS_COST);
                }
                Stage::Sever { is_reached, place, unreached } => {
                    let Some(&id) = self.ids.get(*place) else {
                        // In the order of the list.
                        unreached.reverse();
                        self.stage = Stage::Relink(std::mem::take(unreached));
                        continue;
                    };
                    *place += 1;
                    left -= 1;
                    if !is_reached[id.0 as usize] {
                        sever(&set, id);
                        unreached.push(id);
                        left = left.saturating_sub(LINKS_COST);
                    }
                }
                Stage::Relink(unreached) => {
                    let Some(id) = unreached.pop() else {
                        self.stage = Stage::Done;
                        continue;
                    };
                    let ef = REPAIR_EF.min(self.n_nodes);
                    let SearchScratch { probe, walk, plan, selection, .. } = scratch;
                    set.index.probe_stored(id, set.index.codes.walked(), probe);
                    set.index.link_node(id, probe, ef, walk, plan, selection);
                    left = left.saturating_sub(RELINK_COST);
                }
                Stage::Done => return Ok(Progress::Done),
            }
        }
        Ok(Progress::Unfinished)
    }
}

/// Makes the links of a node to earlier ones, as far as both have room: each link once, from its later end.
fn link_back(set: &VectorSet, ids: &[NodeId], place: usize, node: &LoadedNode<'_>) {
    for (level, neighbors) in node.links.iter().enumerate().take(MAX_LEVEL + 1) {
        for &to in neighbors.iter().filter(|&&to| (to as usize) < place) {
            let (a, b) = (ids[place], ids[to as usize]);
            let has_room = |id| set.index.graph.degree(id, level) < set.index.graph.m_max(level);
            if has_room(a) && has_room(b) {
                set.index.graph.link(a, b, level);
            }
        }
    }
}

/// Takes all links from a node.
fn sever(set: &VectorSet, id: NodeId) {
    let graph = &set.index.graph;
    for level in 0..=graph.node(id).level() {
        let neighbors: Vec<NodeId> = graph.neighbors(id, level).collect();
        neighbors.into_iter().for_each(|neighbor| graph.unlink(id, neighbor, level));
    }
}

impl Writer {
    /// Makes a node without links.
    fn load_node(&mut self, node: &LoadedNode<'_>, scratch: &mut SearchScratch) -> Result<NodeId, Unsound> {
        let set = self.set.clone();
        let level = (node.links.len() - 1).min(MAX_LEVEL);
        set.index.prepare_blob(node.blob, node.range, &mut scratch.probe).ok_or(Unsound)?;
        let id = self.take_id().ok_or(Unsound)?;
        set.index.write(id, &scratch.probe);
        set.index.graph.create(id, level, node.name, node.attribute, node.l2);
        self.count_bytes(set.index.graph.node(id).heap_bytes() as isize);
        set.max_node_uid.fetch_add(1, Ordering::Relaxed);
        set.attributes_count.fetch_add(u32::from(node.attribute.is_some()), Ordering::Relaxed);
        self.log_changed(id);
        self.put_in_tower(id, level);
        self.make_member(node.name, id);
        Ok(id)
    }
}
