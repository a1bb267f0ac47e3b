//! Planted faults: shims between the channels and the nodes that make the nodes misbehave without a branch in them.

use std::collections::VecDeque;

use skerry_server::dispatch::Node;
use skerry_server::message::Batch;
use skerry_server::shard::ShardId;

/// What stands between a channel and a node.
pub enum Shim {
    Honest,
}

impl Shim {
    /// Before the front of a channel is taken.
    pub fn choose(&mut self, _link: &mut VecDeque<Batch>) {
        match self {
            Self::Honest => {}
        }
    }

    /// Hands a batch to a node. `back` is the channel to the sender.
    pub fn deliver(&mut self, node: &mut Node, from: usize, batch: &mut Batch, _back: &mut VecDeque<Batch>) {
        match self {
            Self::Honest => node.receive(ShardId(from as u8), batch),
        }
    }
}
