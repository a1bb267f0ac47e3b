//! How many nodes Redis's radix tree of the same keys has: XINFO STREAM tells it.
//!
//! A tree of keys of one length has a leaf a key, a node where keys part, and a node for every run of bytes in between that no
//! key parts from; the head counts even if the tree is empty. Cost: O(keys), no memory but the open branches.

use super::StreamId;

const KEY_BYTES: usize = 16;

/// Nodes of the radix tree of `ids`, which ascend.
pub(super) fn n_nodes(ids: impl Iterator<Item = StreamId>) -> usize {
    let mut n = 0;
    // Depths of the open branches from the root to the last key: each parts after so many bytes.
    let mut branches: Vec<usize> = Vec::new();
    let mut last: Option<[u8; KEY_BYTES]> = None;
    for id in ids {
        let key = id.to_bytes();
        if let Some(last) = last {
            let n_common = key.iter().zip(last).take_while(|(a, b)| *a == b).count();
            // What lies below the new branching point is complete.
            let mut below = KEY_BYTES;
            while let Some(depth) = branches.pop_if(|depth| *depth > n_common) {
                n += n_of_edge(depth, below);
                below = depth;
            }
            if branches.last() != Some(&n_common) {
                branches.push(n_common);
            }
            n += n_of_edge(n_common, below);
        }
        last = Some(key);
    }
    let mut below = KEY_BYTES;
    while let Some(depth) = branches.pop() {
        n += n_of_edge(depth, below);
        below = depth;
    }
    match last {
        None => 1,
        // The run above the first branching point, and what it leads to.
        Some(_) => n + usize::from(below > 0) + 1,
    }
}

/// The nodes of the way from a branching node after `depth` bytes to the next branching node or leaf after `below`: that node,
/// and one for the bytes between, of which the first belongs to the branching node.
fn n_of_edge(depth: usize, below: usize) -> usize {
    1 + usize::from(below > depth + 1)
}
