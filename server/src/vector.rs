//! The server's side of vector sets: the value in the keyspace, and the directory of published sets that every worker reads.
//!
//! ```text
//!   owner shard: VectorValue { handle, writer }  ──publish──►  Directory: (db, key) ─► Arc<VectorHandle>
//!   any worker:  lookup ─► is_live? ─► search on the shared graph, pinned by this thread's epoch participant
//! ```
//!
//! The owner alone writes; it publishes a set before it answers and unpublishes it (`is_live = false`) before the value moves,
//! expires or goes. A worker that finds no live handle asks the owner.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dashmap::DashMap;
use skerry_vectorset::epoch::{Domain, Participant};
use skerry_vectorset::{Params, VectorSet, Writer};

use crate::error::CommandError;
use crate::keyspace::{Key, Lookup, Object, View};
use crate::shard::{DbIndex, Shard};

/// Threads that may read vector sets at once.
const MAX_READERS: usize = 256;

/// What every core needs to read a set.
pub struct VectorHandle {
    pub set: Arc<VectorSet>,
    is_live: AtomicBool,
    /// Deadline of the key (Unix ms), `i64::MAX` without one.
    deadline_ms: AtomicI64,
}

/// The value behind a key: the owner's.
pub struct VectorValue {
    pub handle: Arc<VectorHandle>,
    /// `None` only while the value is being torn down.
    writer: Option<Mutex<Writer>>,
    remains: Option<skerry_vectorset::Remains>,
}

impl VectorValue {
    pub fn new(params: Params) -> Self {
        let (set, writer) = VectorSet::create(params, domain().clone());
        let handle = VectorHandle {
            set,
            is_live: AtomicBool::new(false),
            deadline_ms: AtomicI64::new(i64::MAX),
        };
        Self { handle: Arc::new(handle), writer: Some(Mutex::new(writer)), remains: None }
    }
}
