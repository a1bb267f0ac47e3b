//! SELECT-NEIGHBORS-HEURISTIC, and which link a full node gives up.
//!
//! A candidate is *occluded* if a chosen neighbor is nearer to it, by the factor ALPHA, than the base is: the
//! way to it leads over that neighbor. Occluded candidates only fill what places remain. Duplicates need a
//! rule of their own: among equal vectors no distance is smaller than another, and without it a group of them
//! would link only to itself.
//!
//! A full node weighs its neighbors against the newcomer alone, not against each other: that was done when
//! they came. So it costs two distances a neighbor instead of some ten.

use std::cmp::Reverse;

use super::{Index, Probe};
use crate::graph::{Graph, NodeId};
use crate::ladder::Rung;
use crate::pool::Candidate;

/// How much nearer the chosen neighbor must be. The paper has 1; a little more (as Vamana has it) keeps more
/// long links. Measured on 20,000 rows of text384, M 16, EF 80, level 0 filled to 2M: recall@10 0.9889 at
/// 1.1, 0.9896 at 1.2, 0.9885 at 1.3; and 0.9885 at 1.0, there with a smaller least degree (a quarter of
/// M_max, not half).
const ALPHA: f32 = 1.2;

/// Two rows nearer than this count as the same vector (rounding of 1 - dot).
const DUPLICATE_DISTANCE: f32 = 1e-6;

/// Codes estimate: two rows that they show nearer than this may be the same.
const SUSPECT_DISTANCE: f32 = 0.005;

/// Chosen neighbors that a candidate is held against, the nearest first. It bounds the cost of a large M:
/// without it the number of distances is quadratic in M. A full list longer than this just gives up its
/// farthest link.
const MAX_WEIGHED: usize = 256;

/// Candidates considered per place, the nearest first: those beyond are the least useful (3 and 6 differ by
/// 0.0004 of recall at EF 80 and by a sixth of the load's time on 20,000 x 384), and `ef` may be a
/// million.
const CANDIDATES_PER_PLACE: usize = 4;

/// Buffers of the selection.
#[derive(Default)]
pub(crate) struct Selection {
    pub(super) chosen: Vec<Candidate>,
    occluded: Vec<Candidate>,
    duplicates: Vec<Candidate>,
    around: Around,
    weighed: Vec<Weighed>,
    /// Measures from the node that is being weighed.
    pub(super) probe: Probe,
    /// Measures from a stored node that is to be linked.
    newcomer: Probe,
}

/// A neighbor of a full node, and how far the newcomer is from it.
#[derive(Clone, Copy, PartialEq)]
struct Weighed {
    neighbor: Candidate,
    to_newcomer: f32,
}

/// The new node of a full one: its probe, its distance, and its id once it has one.
#[derive(Clone, Copy)]
pub(super) struct Newcomer<'a> {
    /// Measures from it.
    pub(super) probe: &'a Probe,
    pub(super) distance: f32,
    pub(super) id: Option<NodeId>,
}

impl Selection {
    fn clear(&mut self) {
        self.chosen.clear();
        self.occluded.clear();
        self.duplicates.clear();
    }

    /// The neighbors of a node, in the selection's buffer.
    pub(super) fn look_around(&mut self, graph: &Graph, id: NodeId, level: usize) -> &Around {
        self.around.gather(graph, id, level);
        &self.around
    }
}

/// The neighbors of a node, and a bit for the hash of each: most others are ruled out by it.
#[derive(Default)]
pub(super) struct Around {
    ids: Vec<NodeId>,
    bits: [u64; Around::N_WORDS],
}

impl Around {
    const N_WORDS: usize = 16;

    fn gather(&mut self, graph: &Graph, id: NodeId, level: usize) {
        self.ids.clear();
        self.ids.extend(graph.neighbors(id, level));
        self.bits = [0; Around::N_WORDS];
        for &NodeId(id) in &self.ids {
            self.bits[id as usize / 64 % Around::N_WORDS] |= 1 << (id % 64);
        }
    }

    fn contains(&self, id: NodeId) -> bool {
        self.bits[id.0 as usize / 64 % Around::N_WORDS] & 1 << (id.0 % 64) != 0 && self.ids.contains(&id)
    }
}

impl Index {
    /// SELECT-NEIGHBORS-HEURISTIC: at most `m` of `candidates` (nearest first), in `selection.chosen`: the
    /// diverse ones, then the occluded, then the duplicates. They are measured by the codes of `rung`.
    pub(super) fn select_neighbors_heuristic(
        &self,
        candidates: &[Candidate],
        m: usize,
        rung: Rung,
        selection: &mut Selection,
    ) {
        selection.clear();
        for &candidate in candidates.iter().take(m.saturating_mul(CANDIDATES_PER_PLACE)) {
            if selection.chosen.len() == m {
                break;
            }
            self.sort_in(candidate, rung, selection);
        }
        let Selection { chosen, occluded, duplicates, .. } = selection;
        let room = m - chosen.len();
        chosen.extend(occluded.iter().chain(duplicates.iter()).take(room));
    }

    /// Adds the next candidate to the chosen ones, if nothing stands between it and the base.
    fn sort_in(&self, candidate: Candidate, rung: Rung, selection: &mut Selection) {
        self.probe_stored(candidate.id, rung, &mut selection.probe);
        let Selection { chosen, occluded, duplicates, probe, .. } = selection;
        let n_weighed = chosen.len().min(MAX_WEIGHED);
        for neighbors in chosen[..n_weighed].chunks(4) {
            let mut ids = [NodeId(0); 4];
            ids.iter_mut().zip(neighbors).for_each(|(id, neighbor)| *id = neighbor.id);
            let mut between = [0.0; 4];
            let mut place = between.iter_mut();
            self.distances(probe, &ids[..neighbors.len()], |_, distance| {
                if let Some(place) = place.next() {
                    *place = distance;
                }
            });
            for (neighbor, between) in neighbors.iter().zip(between) {
                if between <= SUSPECT_DISTANCE && self.are_equal(candidate.id, neighbor.id) {
                    return duplicates.push(candidate);
                }
                if between * ALPHA < candidate.distance {
                    return occluded.push(candidate);
                }
            }
        }
        selection.chosen.push(candidate);
    }

    /// Links `node` to `neighbor` (the candidate's distance is theirs) if the neighbor has, or makes, room.
    /// `node` itself must have room. Writer only.
    pub(super) fn connect(
        &self,
        node: NodeId,
        neighbor: Candidate,
        level: usize,
        selection: &mut Selection,
    ) -> bool {
        if self.graph.degree(neighbor.id, level) < self.graph.m_max(level) {
            self.graph.link(neighbor.id, node, level);
            return true;
        }
        let mut probe = std::mem::take(&mut selection.newcomer);
        self.probe_stored(node, self.codes.walked(), &mut probe);
        let newcomer = Newcomer { probe: &probe, distance: neighbor.distance, id: Some(node) };
        let victim = self.choose_victim(newcomer, neighbor.id, level, selection);
        selection.newcomer = probe;
        let Some(victim) = victim else { return false };
        self.graph.unlink(neighbor.id, victim, level);
        self.graph.link(neighbor.id, node, level);
        true
    }

    /// The neighbor that a full `base` gives up for the newcomer; `None` if that is the least useful, or if
    /// nobody can go without being cut off.
    pub(super) fn choose_victim(
        &self,
        newcomer: Newcomer<'_>,
        base: NodeId,
        level: usize,
        selection: &mut Selection,
    ) -> Option<NodeId> {
        let is_occluded = self.weigh(newcomer, base, level, selection);
        let Selection { chosen, occluded, duplicates, around, .. } = selection;
        // Duplicates are equally far: the one with the most links misses one the least. Then the farthest
        // occluded first; the nearest of all is never given up.
        duplicates.sort_by_key(|duplicate| Reverse(self.graph.degree(duplicate.id, level)));
        let is_farther = |victim: &&Candidate| !is_occluded || victim.distance > newcomer.distance;
        let less_useful = duplicates.iter().chain(occluded.iter().rev().take_while(is_farther));
        // An occluded newcomer takes nobody's place who is not.
        let as_useful = chosen.iter().skip(1).rev().take(if is_occluded { 0 } else { usize::MAX });
        let as_useful = as_useful.take_while(|victim| victim.distance > newcomer.distance);
        less_useful
            .chain(as_useful)
            .find(|victim| self.can_go(victim.id, around, newcomer.id, level))
            .map(|victim| victim.id)
    }

    /// Whether a neighbor of a full node may lose that link: it keeps enough others, and one of them leads
    /// back to that node in two steps.
    pub(super) fn can_go(
        &self,
        victim: NodeId,
        around: &Around,
        newcomer: Option<NodeId>,
        level: usize,
    ) -> bool {
        let min_degree = self.graph.m_max(level) / 2;
        self.graph.degree(victim, level) > min_degree
            && self.graph.neighbors(victim, level).any(|id| Some(id) == newcomer || around.contains(id))
    }

    /// Sorts the neighbors of `base` into chosen, occluded and duplicates, as far as the newcomer tells;
    /// true if the newcomer itself is occluded or a duplicate.
    fn weigh(&self, newcomer: Newcomer<'_>, base: NodeId, level: usize, selection: &mut Selection) -> bool {
        selection.clear();
        let Selection { around, weighed, probe, .. } = selection;
        around.gather(&self.graph, base, level);
        weighed.clear();
        self.probe_stored(base, newcomer.probe.rung(), probe);
        for four in around.ids.chunks(4) {
            self.distances(probe, four, |id, distance| {
                weighed.push(Weighed { neighbor: Candidate { distance, id }, to_newcomer: f32::MAX });
            });
        }
        weighed.sort_unstable_by_key(|weighed| weighed.neighbor.key());
        let is_farthest = weighed.last().is_some_and(|last| last.neighbor.distance <= newcomer.distance);
        let is_apart =
            |a: &Weighed, b: &Weighed| b.neighbor.distance - a.neighbor.distance > DUPLICATE_DISTANCE;
        // Nobody is farther and nobody is there twice: nobody is less useful than the newcomer.
        if is_farthest && weighed.is_sorted_by(is_apart) {
            return true;
        }
        self.weigh_all(newcomer, selection)
    }

    /// The second half of `weigh`: what the newcomer tells of the neighbors.
    fn weigh_all(&self, newcomer: Newcomer<'_>, selection: &mut Selection) -> bool {
        let Selection { chosen, occluded, duplicates, weighed, .. } = selection;
        if weighed.len() <= MAX_WEIGHED {
            for four in weighed.chunks_mut(4) {
                let mut ids = [NodeId(0); 4];
                ids.iter_mut().zip(four.iter()).for_each(|(id, weighed)| *id = weighed.neighbor.id);
                let mut place = four.iter_mut();
                self.distances(newcomer.probe, &ids[..place.len()], |_, distance| {
                    if let Some(weighed) = place.next() {
                        weighed.to_newcomer = distance;
                    }
                });
            }
        }
        let mut before: Option<Weighed> = None;
        let mut is_occluded = false;
        for &this in weighed.iter() {
            let Weighed { neighbor, to_newcomer } = this;
            let is_nearer = neighbor.distance <= newcomer.distance;
            if before.is_some_and(|before| self.are_duplicates(&before, &this))
                || !is_nearer && self.is_newcomers_equal(newcomer, &this)
            {
                duplicates.push(neighbor);
            } else if !is_nearer && to_newcomer * ALPHA < neighbor.distance {
                occluded.push(neighbor);
            } else {
                is_occluded |= is_nearer
                    && (to_newcomer * ALPHA < newcomer.distance || self.is_newcomers_equal(newcomer, &this));
                chosen.push(neighbor);
            }
            before = Some(this);
        }
        is_occluded
    }

    /// Whether two neighbors have one vector: they are equally far from two places then, which is cheap to
    /// rule out.
    fn are_duplicates(&self, a: &Weighed, b: &Weighed) -> bool {
        let is_close = |x: f32, y: f32| (x - y).abs() <= DUPLICATE_DISTANCE;
        is_close(a.neighbor.distance, b.neighbor.distance)
            && is_close(a.to_newcomer, b.to_newcomer)
            && self.are_equal(a.neighbor.id, b.neighbor.id)
    }

    fn are_equal(&self, a: NodeId, b: NodeId) -> bool {
        self.distance_between(a, b) <= DUPLICATE_DISTANCE
    }

    fn is_newcomers_equal(&self, newcomer: Newcomer<'_>, weighed: &Weighed) -> bool {
        weighed.to_newcomer <= SUSPECT_DISTANCE
            && match newcomer.id {
                Some(id) => self.are_equal(id, weighed.neighbor.id),
                // The probe of a plan was prepared from the vector itself.
                None => self.exact_distance(newcomer.probe, weighed.neighbor.id) <= DUPLICATE_DISTANCE,
            }
    }

    /// Puts `node`, which has no link, into the middle of a link of a full node: nobody loses a connection.
    /// Writer only.
    pub(super) fn split_link(&self, node: NodeId, at: NodeId, level: usize) {
        let farthest = self.graph.neighbors(at, level).max_by(|&a, &b| {
            self.distance_between(at, a).total_cmp(&self.distance_between(at, b)).then(a.cmp(&b))
        });
        let farthest = farthest.expect("a full node has links");
        self.graph.unlink(at, farthest, level);
        self.graph.link(at, node, level);
        self.graph.link(node, farthest, level);
    }
}
