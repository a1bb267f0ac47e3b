//! The concurrency of a vector set under every interleaving (loom): publish, link, read, use an id again, and commit a plan.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p skerry-vectorset-loom --release` runs it; without `--cfg loom` this package is empty. The
//! files under test, `epoch.rs` and `links.rs`, are those of the set, compiled with the model's atomics. A row is a cell
//! that the model watches: to read it while it is written, or unordered with a write, is a failure of its own. A version is
//! modelled here as `graph.rs` has it.

#![cfg(loom)]
#![cfg_attr(not(test), allow(dead_code, unused_imports, reason = "there is nothing but tests"))]

#[path = "../../src/epoch.rs"]
#[allow(unreachable_pub, dead_code, clippy::all, reason = "it is a part of the vector set's library")]
mod epoch;
#[path = "../../src/links.rs"]
#[allow(unreachable_pub, dead_code, reason = "it is a part of the vector set's library")]
mod links;

/// What `epoch.rs` and `links.rs` are made of.
mod sync {
    // Only std's may be the type of a `self`; that it is counted right is not the question.
    pub(crate) use std::sync::{Arc, PoisonError};

    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

#[cfg(test)]
mod planted;
#[cfg(test)]
mod set;
