//! What a search asks of a filter or any other choice of elements. `All` asks nothing, and costs nothing.

use crate::graph::NodeId;

/// Nodes fetched at a time before they are asked about.
pub(crate) const ASKED_TOGETHER: usize = 32;

/// Which elements a search may answer with. It still walks through the others.
pub trait Admit {
    /// False only where everything is admitted: then nothing is asked.
    const SELECTIVE: bool = true;

    /// Whether a node may be an answer. Asked at most a few times a node; a search that goes by two hops may
    /// ask again about what it did not visit.
    fn admits(&self, id: NodeId) -> bool;

    /// What a question costs, in distances, beyond the one that every node is counted for.
    fn ask_cost(&self) -> usize {
        0
    }

    /// Begins to fetch what will be asked about soon, a few at a time.
    fn fetch(&self, _ids: impl Iterator<Item = NodeId>) {}

    /// How the walk passes those that are not admitted.
    fn hops(&self) -> Hops {
        Hops::One
    }
}

/// How a walk passes nodes that its filter does not admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hops {
    /// They are measured and expanded like the others: for filters that admit many.
    One,
    /// Their admitted neighbors are measured in their stead: for filters that admit few.
    Two,
    /// The walk does not ask at all, and the nearest that it found are asked at the end: for filters that
    /// admit many, with an `ef` that allows for those that will go.
    Unasked,
}

/// Admits everything.
#[derive(Clone, Copy, Debug)]
pub struct All;

impl Admit for All {
    const SELECTIVE: bool = false;

    fn admits(&self, _id: NodeId) -> bool {
        true
    }
}
