//! A set node by node, for files and other servers: what each node holds and links to, out and in.
//!
//! Invariants of `Writer::load`: rows come in as they were written down, not normalised again, so that a set goes out
//! and in any number of times unchanged. Links are taken as they are, as far as they fit; what the links do not lead to
//! from the entry is linked anew. So a sound graph is loaded at the speed of memory, and any other is repaired.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::epoch::Guard;
use crate::error::Error;
use crate::filter::Attribute;
use crate::graph::{MAX_LEVEL, NodeId};
use crate::hnsw::Probe;
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
    pub links: Vec<Vec<u32>>,
}

impl VectorSet {
    /// Every node. The owner's call: the graph rests meanwhile.
    pub fn nodes<'a>(&'a self, guard: &'a Guard) -> impl Iterator<Item = NodeView<'a>> {
        guard.assert_guards(&self.domain);
        let mut probe = Probe::default();
        self.members.iter_backwards().map(move |id| {
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

impl Writer {
    /// Fills the set, which is empty and known to nobody yet. `NotFinite` if a blob is not of the set's shape.
    pub fn load(&mut self, nodes: &[LoadedNode<'_>], scratch: &mut SearchScratch) -> Result<(), Error> {
        let set = self.set.clone();
        let mut ids = Vec::new();
        for node in nodes {
            ids.push(self.load_node(node, scratch)?);
        }
        for (place, node) in nodes.iter().enumerate() {
            for (level, neighbors) in node.links.iter().enumerate().take(MAX_LEVEL + 1) {
                // Each link once, from its later end.
                for &to in neighbors.iter().filter(|&&to| (to as usize) < place) {
                    let (a, b) = (ids[place], ids[to as usize]);
                    let has_room = |id| set.index.graph.degree(id, level) < set.index.graph.m_max(level);
                    if has_room(a) && has_room(b) {
                        set.index.graph.link(a, b, level);
                    }
                }
            }
        }
        let tallest = self.towers.iter().rev().find_map(|tower| tower.first().copied());
        set.index.graph.set_entry(tallest.or(ids.first().copied()));
        self.link_unreached(&ids, scratch);
        Ok(())
    }

    /// Makes a node without links.
    fn load_node(&mut self, node: &LoadedNode<'_>, scratch: &mut SearchScratch) -> Result<NodeId, Error> {
        let set = self.set.clone();
        let level = (node.links.len() - 1).min(MAX_LEVEL);
        set.index.prepare_blob(node.blob, node.range, &mut scratch.probe).ok_or(Error::NotFinite)?;
        let id = self.take_id().ok_or(Error::Full)?;
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

    /// Links anew what level 0 does not lead to from the entry.
    fn link_unreached(&mut self, ids: &[NodeId], scratch: &mut SearchScratch) {
        let set = self.set.clone();
        let graph = &set.index.graph;
        let Some(entry) = graph.entry() else { return };
        let mut reached = HashSet::from([entry]);
        let mut to_expand = vec![entry];
        while let Some(id) = to_expand.pop() {
            to_expand.extend(graph.neighbors(id, 0).filter(|&neighbor| reached.insert(neighbor)));
        }
        let unreached: Vec<NodeId> = ids.iter().copied().filter(|id| !reached.contains(id)).collect();
        for &id in &unreached {
            for level in 0..=graph.node(id).level() {
                let neighbors: Vec<NodeId> = graph.neighbors(id, level).collect();
                neighbors.into_iter().for_each(|neighbor| graph.unlink(id, neighbor, level));
            }
        }
        for id in unreached {
            let ef = REPAIR_EF.min(ids.len());
            let SearchScratch { probe, walk, plan, selection, .. } = scratch;
            set.index.probe_stored(id, set.index.codes.walked(), probe);
            set.index.link_node(id, probe, ef, walk, plan, selection);
        }
    }
}
