//! What a search asks of a filter or any other choice of elements. `All` asks nothing, and costs nothing.

use crate::graph::NodeId;

/// Which elements a search may answer with. It still walks through the others.
pub trait Admit {
    /// False only where everything is admitted: then nothing is asked.
    const SELECTIVE: bool = true;

    /// Whether a node may be an answer. Asked at most a few times a node; a search that goes by two hops may
    /// ask again about what it did not visit.
    fn admits(&self, id: NodeId) -> bool;

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
