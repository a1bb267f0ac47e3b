//! The Skerry server: thread-per-core, shared-nothing, speaking Redis's protocol.
//!
//! Reading order: `command` (what a row and a handler are) · `commands/string` (the first group) · `keyspace` · `shard` ·
//! `dispatch` (parse, gate, route) · `lend` and `dispatch::loans` (keys on several shards) · `message`, `mesh`, `door` (between
//! workers) · `worker` (the loop) · `start`.
//!
//! Imports go one way: types < keyspace < shard < command < commands < lend < dispatch < mesh < worker < start.

pub mod access;
pub mod alloc;
pub mod args;
pub mod blocked;
pub mod client;
pub mod command;
pub mod command_log;
pub mod command_stats;
pub mod commands;
pub mod config;
pub mod connections;
pub mod deadline;
pub mod dispatch;
pub mod door;
pub mod error;
pub mod events;
pub mod evict;
pub mod fields;
pub mod glob;
pub mod histogram;
pub mod hotkeys;
mod keysizes;
pub mod keyspace;
pub mod latency;
pub mod lend;
pub mod listener;
pub mod log;
pub mod mesh;
pub mod message;
pub mod monitors;
pub mod output;
pub mod process;
pub mod projection;
pub mod pubsub;
pub mod rdb;
pub mod script;
pub mod server;
pub mod shard;
pub mod slot;
pub mod start;
pub mod supervisor;
pub mod tracking;
pub mod turns;
pub mod types;
pub mod vector;
pub mod work;
pub mod worker;
