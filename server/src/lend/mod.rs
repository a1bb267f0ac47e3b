//! Keys on several shards: the owner's table of holds. The coordinator's side is `dispatch::loans`.

pub mod holds;
