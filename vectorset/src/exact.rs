//! The linear scan: TRUTH, small sets, the matches of a rare filter, and the oracle of the tests.
//!
//! It reads rows in memory order where ids were given in order, so a row costs a fraction of what it costs a
//! graph search; where the graph would visit a good part of the set, the scan is both faster and exact. It
//! goes through the member list from the end to the front in slices of a budget: an element that stays is met
//! at least once, whatever is removed between slices.

use crate::admission::Admit;
use crate::graph::NodeId;
use crate::hnsw::{Index, Probe, Progress};
use crate::members::Members;
use crate::pool::{Candidate, MAX_SORTED, Pool, Role};
use crate::scratch::{ActivePool, Walk};

/// Sets below this are always scanned.
const SMALL_SET: usize = 1024;
/// Nodes that a graph search visits per unit of `ef`, roughly; the scan is chosen where that exceeds the set.
const VISITED_PER_EF: usize = 8;
/// What a walk for all within a radius costs for each of them, in distances of a scan: it measures their
/// neighbors, out of order, and keeps two heaps. As the EF of any walk (`filter/search.rs`).
const WALK_COST_WITHIN: usize = 70;
/// Members measured to estimate how many lie within.
const SAMPLE: u32 = 256;
const LANES: usize = 4;

/// Whether the scan of `len` elements is the better way to the nearest `ef`.
pub(crate) fn is_cheaper(len: usize, ef: usize) -> bool {
    len <= SMALL_SET || ef.saturating_mul(VISITED_PER_EF) >= len
}

/// What a scan reads of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// What traversal reads: codes, if there are any.
    Walk,
    /// What scores are told from.
    Exact,
}

/// Where a scan stands: elements below are still to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    pub(crate) upto: u32,
    pub(crate) precision: Precision,
}

/// Begins a scan for the nearest `count`.
pub(crate) fn begin(len: u32, count: usize, precision: Precision, walk: &mut Walk) -> Scan {
    if count <= MAX_SORTED {
        walk.pool = ActivePool::Sorted;
        walk.sorted.begin(count, usize::MAX);
    } else {
        walk.pool = ActivePool::Heaps;
        walk.heaps.begin(count, f32::NEG_INFINITY);
    }
    Scan { upto: len, precision }
}

/// Goes on with a scan of the members.
pub(crate) fn step<A: Admit>(
    scan: &mut Scan,
    index: &Index,
    members: &Members,
    probe: &Probe,
    admission: &A,
    budget: &mut usize,
    walk: &mut Walk,
) -> Progress {
    let upto = scan.upto.min(members.len());
    let cost = 1 + admission.ask_cost();
    let n = (*budget / cost).max(1);
    let from = upto.saturating_sub(u32::try_from(n).unwrap_or(u32::MAX));
    *budget = budget.saturating_sub((upto - from) as usize * cost);
    scan.upto = from;
    let ids = (from..upto).rev().filter_map(|place| members.get(place));
    offer(scan.precision, index, probe, ids.filter(|&id| !A::SELECTIVE || admission.admits(id)), walk);
    if from == 0 { Progress::Done } else { Progress::Unfinished }
}

/// Whether the scan of all is the better way to what lies within `reach`, by a sample.
pub(crate) fn is_cheaper_within(
    index: &Index,
    members: &Members,
    probe: &Probe,
    reach: f32,
    ef: usize,
) -> bool {
    let len = members.len();
    if len <= SMALL_SET as u32 {
        return true;
    }
    let stride = (len / SAMPLE).max(1);
    let mut n_within = 0;
    let mut count = |four: &[NodeId]| {
        index.distances(probe, four, |_, distance| n_within += usize::from(distance <= reach));
    };
    let mut four = [NodeId(0); LANES];
    for places in 0..SAMPLE / LANES as u32 {
        let mut n = 0;
        for place in 0..LANES as u32 {
            if let Some(id) = members.get((places * LANES as u32 + place) * stride) {
                four[n] = id;
                n += 1;
            }
        }
        count(&four[..n]);
    }
    let n_expected = ef + n_within * stride as usize;
    n_expected.saturating_mul(WALK_COST_WITHIN) >= len as usize
}

/// Goes on with a scan for all within `reach`, which it leaves in `walk.found`; members below `upto` are still
/// to come.
#[expect(clippy::too_many_arguments, reason = "as `step`, and what is looked for")]
pub(crate) fn step_within<A: Admit>(
    upto: &mut u32,
    reach: f32,
    index: &Index,
    members: &Members,
    probe: &Probe,
    admission: &A,
    budget: &mut usize,
    walk: &mut Walk,
) -> Progress {
    let from = (*upto).min(members.len());
    let to = from.saturating_sub(u32::try_from(*budget).unwrap_or(u32::MAX));
    *budget -= (from - to) as usize;
    *upto = to;
    let ids = (to..from).rev().filter_map(|place| members.get(place));
    let found = &mut walk.found;
    in_lanes(ids.filter(|&id| !A::SELECTIVE || admission.admits(id)), |four| {
        index.distances(probe, four, |id, distance| {
            if distance <= reach {
                found.push(Candidate { distance, id });
            }
        });
    });
    if to == 0 { Progress::Done } else { Progress::Unfinished }
}

/// Offers nodes to the pool of a scan.
pub(crate) fn offer(
    precision: Precision,
    index: &Index,
    probe: &Probe,
    ids: impl Iterator<Item = NodeId>,
    walk: &mut Walk,
) {
    match walk.pool {
        ActivePool::Sorted => offer_to(&mut walk.sorted, precision, index, probe, ids),
        ActivePool::Heaps => offer_to(&mut walk.heaps, precision, index, probe, ids),
    }
}

fn offer_to<P: Pool>(
    pool: &mut P,
    precision: Precision,
    index: &Index,
    probe: &Probe,
    ids: impl Iterator<Item = NodeId>,
) {
    in_lanes(ids, |four| {
        let mut each = |id, distance| {
            pool.insert(Candidate { distance, id }, Role::Answer);
        };
        match precision {
            Precision::Walk => index.distances(probe, four, each),
            Precision::Exact => index.exact_distances(probe, four, &mut each),
        }
    });
}

/// Hands nodes on, as many at a time as are measured together.
#[inline(always)]
fn in_lanes(ids: impl Iterator<Item = NodeId>, mut compute: impl FnMut(&[NodeId])) {
    let mut lanes = [NodeId(0); LANES];
    let mut n = 0;
    for id in ids {
        lanes[n] = id;
        n += 1;
        if n == LANES {
            compute(&lanes);
            n = 0;
        }
    }
    compute(&lanes[..n]);
}
