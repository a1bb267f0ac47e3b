//! skerry-server
pub mod types;
