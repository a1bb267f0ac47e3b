//! Removal of a node, with local repair.
//!
//! All links to the node are known, because links are mutual. After it is unlinked its former neighbors, the
//! orphans, are joined again: first along the shortest pairs that unite them (Kruskal), so that no way
//! through the removed node is lost; then in pairs until each has got back the link that it lost. The node's
//! own lists are left as they are: a search that stands on it goes on from there.

use super::neighbors::Selection;
use super::search::MAX_TIES;
use super::{Index, Probe};
use crate::graph::NodeId;
use crate::pool::Candidate;
use crate::scratch::Walk;

/// Orphans repaired together: the pairs of a group are weighed, so the cost grows with its square. Groups
/// overlap in one orphan, which keeps them joined.
const MAX_GROUP: usize = 64;

/// An orphan left with fewer links than this (or half of M) looks for new neighbors by a search.
const FEW_LINKS: usize = 6;

const EF_REPAIR: usize = 64;

/// Two orphans, by index in their group, and their distance.
type Pair = (f32, usize, usize);

impl Index {
    /// Takes a node out of every level, top level first. It stays readable; its id is not yet free.
    pub(crate) fn unlink_node(&self, id: NodeId, walk: &mut Walk, selection: &mut Selection) {
        for level in (0..=self.graph.node(id).level()).rev() {
            let orphans: Vec<NodeId> = self.graph.neighbors(id, level).collect();
            orphans.iter().for_each(|&orphan| self.graph.take_out(orphan, id, level));
            self.repair(&orphans, level, walk, selection);
        }
    }

    fn repair(&self, orphans: &[NodeId], level: usize, walk: &mut Walk, selection: &mut Selection) {
        let mut rest = orphans;
        while rest.len() > 1 {
            let group = &rest[..rest.len().min(MAX_GROUP)];
            self.repair_group(group, level, selection);
            rest = &rest[group.len() - 1..];
        }
        let few = FEW_LINKS.min(self.graph.m() / 2);
        for &orphan in orphans {
            if self.graph.degree(orphan, level) < few {
                self.look_for_neighbors(orphan, level, walk, selection);
            }
        }
    }

    fn repair_group(&self, group: &[NodeId], level: usize, selection: &mut Selection) {
        let n = group.len();
        let pairs = self.pairs(group, &mut selection.probe);
        let mut place_of: Vec<(NodeId, usize)> = group.iter().copied().zip(0..).collect();
        place_of.sort_unstable();
        let mut linked = vec![false; n * n];
        let mut islands = Islands::new(n);
        for (i, &orphan) in group.iter().enumerate() {
            for neighbor in self.graph.neighbors(orphan, level) {
                if let Ok(found) = place_of.binary_search_by_key(&neighbor, |&(id, _)| id) {
                    let (_, j) = place_of[found];
                    linked[i * n + j] = true;
                    islands.unite(i, j);
                }
            }
        }
        let mut regained = vec![false; n];
        for &(distance, i, j) in &pairs {
            if !islands.are_one(i, j) && self.join(group[i], group[j], distance, level, selection) {
                islands.unite(i, j);
                linked[i * n + j] = true;
                (regained[i], regained[j]) = (true, true);
            }
        }
        // Each that still lacks its lost link has room for it, unless a join filled the place.
        let m_max = self.graph.m_max(level);
        let mut lacks: Vec<bool> =
            (0..n).map(|i| !regained[i] && self.graph.degree(group[i], level) < m_max).collect();
        for &(_, i, j) in &pairs {
            let is_linked = linked[i * n + j] || linked[j * n + i];
            if !is_linked && lacks[i] && lacks[j] {
                self.graph.link(group[i], group[j], level);
                (lacks[i], lacks[j]) = (false, false);
            }
        }
    }

    /// All pairs of a group, the nearest first.
    fn pairs(&self, group: &[NodeId], probe: &mut Probe) -> Vec<Pair> {
        let mut pairs = Vec::with_capacity(group.len() * group.len() / 2);
        for (i, &a) in group.iter().enumerate() {
            self.probe_stored(a, self.codes.walked(), probe);
            for (j, &b) in group.iter().enumerate().skip(i + 1) {
                pairs.push((self.distance(probe, b), i, j));
            }
        }
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        pairs
    }

    /// Links two orphans even if one or both are full, at the cost of a link that can be missed.
    fn join(&self, a: NodeId, b: NodeId, distance: f32, level: usize, selection: &mut Selection) -> bool {
        let m_max = self.graph.m_max(level);
        if self.graph.degree(a, level) == m_max {
            return self.graph.degree(b, level) < m_max
                && self.connect(b, Candidate { distance, id: a }, level, selection);
        }
        self.connect(a, Candidate { distance, id: b }, level, selection)
    }

    fn look_for_neighbors(&self, id: NodeId, level: usize, walk: &mut Walk, selection: &mut Selection) {
        let mut probe = std::mem::take(&mut selection.probe);
        self.probe_stored(id, self.codes.walked(), &mut probe);
        let top = self.descend(&probe, level, walk);
        if top.is_some_and(|top| top >= level) {
            self.search_layer(&probe, EF_REPAIR, MAX_TIES, level, walk);
        }
        selection.probe = probe;
        if top.is_none_or(|top| top < level) {
            return;
        }
        walk.found.retain(|candidate| candidate.id != id && !self.graph.are_linked(id, candidate.id, level));
        let wanted = self.graph.m().saturating_sub(self.graph.degree(id, level));
        self.select_neighbors_heuristic(&walk.found, wanted, self.codes.walked(), selection);
        let chosen = std::mem::take(&mut selection.chosen);
        for &neighbor in &chosen {
            self.connect(id, neighbor, level, selection);
        }
        selection.chosen = chosen;
    }
}

/// Union-find over the orphans of a group.
struct Islands {
    parent: Vec<usize>,
}

impl Islands {
    fn new(n: usize) -> Islands {
        Islands { parent: (0..n).collect() }
    }

    fn root(&mut self, mut i: usize) -> usize {
        while self.parent[i] != i {
            self.parent[i] = self.parent[self.parent[i]];
            i = self.parent[i];
        }
        i
    }

    fn are_one(&mut self, i: usize, j: usize) -> bool {
        self.root(i) == self.root(j)
    }

    fn unite(&mut self, i: usize, j: usize) {
        let (i, j) = (self.root(i), self.root(j));
        self.parent[i] = j;
    }
}
