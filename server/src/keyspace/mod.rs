//! The keyspace of one database of one shard, and the table under it.

pub mod hash;
mod segment;
pub mod table;
pub mod thin;
