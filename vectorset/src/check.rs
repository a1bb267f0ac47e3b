//! The invariants of a set, checked from outside its algorithms: for tests and debugging. Cost: the whole
//! graph.
//!
//! The caller sees to it that the writer rests meanwhile.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::epoch::Guard;
use crate::graph::NodeId;
use crate::links::EMPTY;
use crate::set::VectorSet;

/// What a check found out about a sound set.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub n_nodes: usize,
    /// Nodes that level 0 leads to from the entry point.
    pub n_reachable: usize,
    pub max_level: usize,
    /// Links per node on level 0.
    pub mean_degree: f64,
}

/// The report, or the first broken invariant.
pub fn check(set: &VectorSet, guard: &Guard) -> Result<Report, String> {
    let graph = &set.index.graph;
    let ids: Vec<NodeId> = set.members.iter_backwards().collect();
    let members: HashSet<NodeId> = ids.iter().copied().collect();
    ensure(members.len() == ids.len(), || "a member is listed twice".into())?;
    let (mut n_links, mut max_level, mut n_attributes) = (0, 0, 0);
    for (place, &id) in ids.iter().rev().enumerate() {
        let node = graph.node(id);
        ensure(!node.is_dead(), || format!("{id:?} is a member and dead"))?;
        ensure(node.member_index.load(Ordering::Relaxed) as usize == place, || {
            format!("{id:?} is misplaced")
        })?;
        let name = node.name.text();
        let named = set.names.find(name, |other| graph.node(other).name.text() == name, guard);
        ensure(named == Some(id), || format!("the name of {id:?} leads to {named:?}"))?;
        n_attributes += usize::from(node.attribute.load(guard).is_some());
        max_level = max_level.max(node.level());
        n_links += graph.degree(id, 0);
        for level in 0..=node.level() {
            check_list(set, id, level, &members)?;
        }
    }
    ensure(set.attributes_count() == n_attributes, || "attributes are miscounted".into())?;
    let entries: HashSet<NodeId> = graph.entries().collect();
    ensure(entries.len() == graph.entries().count(), || "an entry is told twice".into())?;
    for &entry in &entries {
        ensure(members.contains(&entry), || format!("the entry {entry:?} is no member"))?;
        ensure(graph.node(entry).level() > 0, || format!("the entry {entry:?} is of level 0"))?;
    }
    match graph.entry() {
        Some(entry) => {
            ensure(members.contains(&entry), || format!("the entry {entry:?} is no member"))?;
            ensure(graph.node(entry).level() == max_level, || format!("{entry:?} is not of the top level"))?;
        }
        None => ensure(ids.is_empty(), || "members but no entry".into())?,
    }
    Ok(Report {
        n_nodes: ids.len(),
        n_reachable: graph.entry().map_or(0, |entry| count_reachable(set, entry)),
        max_level,
        mean_degree: n_links as f64 / ids.len().max(1) as f64,
    })
}

fn check_list(set: &VectorSet, id: NodeId, level: usize, members: &HashSet<NodeId>) -> Result<(), String> {
    let graph = &set.index.graph;
    let at = || format!("{id:?} level {level}");
    let slots: Vec<u32> = graph.slots(id, level).iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
    ensure(slots.len() == graph.m_max(level), || format!("{}: {} slots", at(), slots.len()))?;
    let degree = graph.degree(id, level);
    ensure(slots[degree..].iter().all(|&link| link == EMPTY), || format!("{}: a gap", at()))?;
    let mut seen = HashSet::new();
    for neighbor in slots[..degree].iter().map(|&link| NodeId(link)) {
        ensure(neighbor != id, || format!("{}: linked to itself", at()))?;
        ensure(seen.insert(neighbor), || format!("{}: linked twice to {neighbor:?}", at()))?;
        ensure(members.contains(&neighbor), || format!("{}: linked to the removed {neighbor:?}", at()))?;
        ensure(graph.node(neighbor).level() >= level, || format!("{}: {neighbor:?} is too low", at()))?;
        ensure(graph.are_linked(neighbor, id, level), || format!("{}: {neighbor:?} has no link back", at()))?;
    }
    Ok(())
}

fn count_reachable(set: &VectorSet, entry: NodeId) -> usize {
    let mut reached = HashSet::from([entry]);
    let mut to_expand = vec![entry];
    while let Some(id) = to_expand.pop() {
        to_expand.extend(set.index.graph.neighbors(id, 0).filter(|&neighbor| reached.insert(neighbor)));
    }
    reached.len()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
