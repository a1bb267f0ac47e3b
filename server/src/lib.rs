//! skerry-server

pub mod keyspace;
pub mod types;
