//! skerry-server

pub mod alloc;
pub mod keyspace;
pub mod types;
