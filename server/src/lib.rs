//! skerry-server

pub mod config;
pub mod glob;
