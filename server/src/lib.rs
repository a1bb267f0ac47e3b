//! skerry-server

pub mod alloc;
pub mod keyspace;
