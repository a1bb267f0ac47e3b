//! skerry-server

pub mod keyspace;
