//! skerry-bench: a load generator with memtier_benchmark's flags and result table, and `vectors`, which measures
//! vector sets: recall, speed, cost and what happens to them under writes.
//!
//! It speaks only the wire and never links the server, so that any server can be measured with it.
//!
//! ```text
//! main -> response_file (@file) -> flags -> Workload -> session -> run -> load (one per thread) -> client (many)
//!                                              |            |                        | template, keys
//!                                              |            +- cpu (/proc)           | skerry_resp::Scan
//!                                              +- report, json <- stats <------------+ connection
//!
//! main -> trace: a seeded cache trace, its hits and the server's memory
//! main -> wake: PUBLISH to many, BLPOP between two
//! main -> vectors/mod (modes) -> flags -> data (rows, truth) -> load, search (threads) -> report -> table, JSON, plot
//! ```
//!
//! How it loads more than memtier does per core: requests are stamped from templates, a pipeline is written
//! at once, replies are scanned and not decoded, the clock and the histogram are touched once per batch.

#![forbid(unsafe_code)]

pub mod client;
pub mod clustered;
pub mod command_line;
pub mod connection;
pub mod cpu;
pub mod flags;
pub mod json;
pub mod keys;
pub mod load;
pub mod memory;
pub mod progress;
pub mod question;
pub mod random;
pub mod report;
pub mod response_file;
pub mod rows;
pub mod run;
pub mod session;
pub mod stats;
mod target;
pub mod template;
pub mod trace;
pub mod truth;
pub mod truth_cache;
pub mod vectors;
pub mod wake;
