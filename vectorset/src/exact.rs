//! The linear scan: TRUTH, small sets, and the oracle of the tests.
//!
//! It reads rows in memory order where ids were given in order, so a row costs a fraction of what it costs a
//! graph search; where the graph would visit a good part of the set, the scan is both faster and exact.

use crate::distance::Block;
use crate::graph::NodeId;
use crate::hnsw::Index;
use crate::members::Members;
use crate::pool::{Candidate, HeapPool, MAX_SORTED, Pool};
use crate::scratch::Walk;

/// Sets below this are always scanned.
const SMALL_SET: usize = 1024;
/// Nodes that a graph search visits per unit of `ef`, roughly; the scan is chosen where that exceeds the set.
const VISITED_PER_EF: usize = 8;

/// Whether the scan of `len` elements is the better way to the nearest `ef`.
pub(crate) fn is_cheaper(len: usize, ef: usize) -> bool {
    len <= SMALL_SET || ef.saturating_mul(VISITED_PER_EF) >= len
}

/// The exact `count` nearest members, nearest first, in `walk.found`.
pub(crate) fn scan(index: &Index, members: &Members, query: &[Block], count: usize, walk: &mut Walk) {
    walk.found.clear();
    if count == 0 {
        return;
    }
    if count <= MAX_SORTED {
        scan_into(&mut walk.sorted, index, members, query, count, &mut walk.found);
    } else {
        scan_into(&mut walk.heaps, index, members, query, count, &mut walk.found);
        walk.heaps = HeapPool::default();
    }
}

fn scan_into<P: Pool>(
    pool: &mut P,
    index: &Index,
    members: &Members,
    query: &[Block],
    count: usize,
    found: &mut Vec<Candidate>,
) {
    pool.begin(count, usize::MAX);
    let mut four = [NodeId(0); 4];
    let mut filled = 0;
    for id in members.iter_backwards() {
        four[filled] = id;
        filled += 1;
        if filled == four.len() {
            index.distances(query, &four, |id, distance| {
                pool.insert(Candidate { distance, id });
            });
            filled = 0;
        }
    }
    index.distances(query, &four[..filled], |id, distance| {
        pool.insert(Candidate { distance, id });
    });
    pool.finish(found);
}
