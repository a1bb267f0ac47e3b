//! The graph algorithms, by the paper's names.
//!
//! - `search`: SEARCH-LAYER and the descent (Algorithms 2 and 5)
//! - `neighbors`: SELECT-NEIGHBORS-HEURISTIC and what happens at a full node (Algorithm 4)
//! - `insert`: INSERT in two halves, plan and commit (Algorithm 1)
//! - `delete`: removal with local repair (not in the paper)
//!
//! Departures from the paper: 1. links are always mutual; 2. a full node gives up one link at a time, and
//! only one whose other end stays connected to it through a common neighbor; 3. a new node is linked on level
//! 0 first and then upwards, so that a concurrent search that meets it can always go on. Levels are drawn
//! with the paper's mL = 1/ln M (Redis: a quarter of the nodes on each next level).

mod delete;
mod insert;
mod neighbors;
mod search;

pub(crate) use insert::Plan;
pub(crate) use neighbors::Selection;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::distance::{Block, Kernels, kernels};
use crate::graph::{Graph, NodeId};
use crate::slab::Geometry;
use crate::vectors::Rows;

/// The searchable part of a set: links and rows, without names.
pub(crate) struct Index {
    pub(crate) graph: Graph,
    pub(crate) rows: Rows,
    pub(crate) geometry: Geometry,
    kernels: &'static Kernels,
    /// All ids ever given are below.
    bound: AtomicU32,
}

impl Index {
    pub(crate) fn new(dim: usize, m: usize) -> Index {
        let geometry = Geometry::for_stride(Rows::stride(dim).max(Graph::level0_stride(m)));
        Index {
            graph: Graph::new(m, geometry),
            rows: Rows::new(dim, geometry),
            geometry,
            kernels: kernels(),
            bound: AtomicU32::new(0),
        }
    }

    pub(crate) fn bound(&self) -> u32 {
        self.bound.load(Ordering::Acquire)
    }

    /// Writer only: makes room for an id. Returns the bytes allocated.
    pub(crate) fn ensure(&self, id: NodeId) -> usize {
        self.bound.fetch_max(id.0 + 1, Ordering::AcqRel);
        self.graph.ensure(id) + self.rows.ensure(id)
    }

    #[inline]
    pub(crate) fn distance(&self, query: &[Block], id: NodeId) -> f32 {
        self.kernels.distance(query, self.rows.row(id))
    }

    #[inline]
    pub(crate) fn distance_between(&self, a: NodeId, b: NodeId) -> f32 {
        self.kernels.distance(self.rows.row(a), self.rows.row(b))
    }

    /// Distances to up to four nodes at a time; `each` gets them in order.
    #[inline(always)]
    pub(crate) fn distances(&self, query: &[Block], four: &[NodeId], mut each: impl FnMut(NodeId, f32)) {
        if let &[a, b, c, d] = four {
            let rows = [a, b, c, d].map(|id| self.rows.row(id));
            let distances = self.kernels.distance4(query, rows);
            four.iter().zip(distances).for_each(|(&id, distance)| each(id, distance));
        } else {
            four.iter().for_each(|&id| each(id, self.distance(query, id)));
        }
    }
}
