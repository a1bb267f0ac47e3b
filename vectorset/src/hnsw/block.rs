//! The codes of some nodes side by side, for scans of always the same nodes: memory is read in order, and
//! nothing of other nodes with it. 4-bit codes are halved: a scan costs half as much, and the nearest are
//! measured exactly anyway.

use std::borrow::Cow;

use super::{Index, Probe};
use crate::codes::{CodeProbe, Codes};
use crate::graph::NodeId;

pub(crate) struct Block {
    codes: Codes,
    bytes: usize,
    is_coarse: bool,
}

impl Block {
    /// Bytes that a block of `n` nodes takes at most; `None` if the set has no codes.
    pub(crate) fn bytes_of(index: &Index, n: usize) -> Option<usize> {
        index.codes.as_ref().map(|_| n * index.code_stride())
    }

    /// Copies the codes of nodes that the caller's guard protects; `None` if the set has none.
    pub(crate) fn gather(index: &Index, ids: &[NodeId]) -> Option<Block> {
        let codes = index.codes.as_ref()?;
        // Without rows the codes are all there is, and their distances are the answer.
        let coarse = if index.rows.is_some() { codes.gather_coarse(ids) } else { None };
        let is_coarse = coarse.is_some();
        let (codes, bytes) = coarse.unwrap_or_else(|| codes.gather(ids));
        Some(Block { codes, bytes, is_coarse })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// How many of the nearest are to be measured exactly for a hit, if that is more than for a walk.
    pub(crate) fn rescored_per_hit(&self) -> usize {
        if self.is_coarse { RESCORED_PER_HIT } else { 1 }
    }

    /// A probe in the form of the block's codes.
    pub(crate) fn probe<'a>(&self, probe: &'a Probe) -> Cow<'a, CodeProbe> {
        if self.is_coarse { Cow::Owned(probe.code.coarse()) } else { Cow::Borrowed(&probe.code) }
    }

    /// The distances of the four nodes from `place` on.
    #[inline(always)]
    pub(crate) fn distance4(&self, index: &Index, probe: &CodeProbe, place: u32) -> [f32; 4] {
        let places = [NodeId(place), NodeId(place + 1), NodeId(place + 2), NodeId(place + 3)];
        self.codes.distance4(probe, places, index.kernels)
    }

    #[inline(always)]
    pub(crate) fn distance(&self, index: &Index, probe: &CodeProbe, place: u32) -> f32 {
        self.codes.distance(probe, NodeId(place), index.kernels)
    }
}

/// Of 2-bit codes of 384 dimensions the nearest 30 have 99.5 % of the nearest 10, and these are made of other
/// codes.
const RESCORED_PER_HIT: usize = 4;
