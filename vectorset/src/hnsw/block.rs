//! The codes of some nodes side by side, for scans of always the same nodes: memory is read in order, and
//! nothing of other nodes with it. Measured on 6,000 codes of 192 bytes: 12 ns each; no less if they are halved
//! to 2 bits, and more if the first third is looked at first.

use super::{Index, Probe};
use crate::codes::Codes;
use crate::graph::NodeId;
use crate::ladder::Rung;

pub(crate) struct Block {
    codes: Codes,
    rung: Rung,
    bytes: usize,
}

impl Block {
    /// Bytes that a block of `n` nodes takes, about; `None` if the set has no codes.
    pub(crate) fn bytes_of(index: &Index, rung: Rung, n: usize) -> Option<usize> {
        let params = index.params;
        let stride = |codes: &Codes| Codes::stride(codes.form(), params.dim as usize, params.metric);
        index.codes.at(rung).map(|codes| n * stride(codes))
    }

    /// Copies the codes of nodes that the caller's guard protects, and that the owner of a probe of `rung` has
    /// met; `None` if that rung has none.
    pub(crate) fn gather(index: &Index, rung: Rung, ids: &[NodeId]) -> Option<Block> {
        let (codes, bytes) = index.codes.at(rung)?.gather(ids);
        Some(Block { codes, rung, bytes })
    }

    /// Whether distances can be measured with probes of this rung.
    pub(crate) fn is_for(&self, rung: Rung) -> bool {
        self.rung == rung
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The distances of the four nodes from `place` on.
    #[inline(always)]
    pub(crate) fn distance4(&self, index: &Index, probe: &Probe, place: u32) -> [f32; 4] {
        let places = [NodeId(place), NodeId(place + 1), NodeId(place + 2), NodeId(place + 3)];
        self.codes.distance4(&probe.code, places, index.kernels)
    }

    #[inline(always)]
    pub(crate) fn distance(&self, index: &Index, probe: &Probe, place: u32) -> f32 {
        self.codes.distance(&probe.code, NodeId(place), index.kernels)
    }
}
