//! The server's side of vector sets: the value in the keyspace, and the directory of published sets that every worker reads.
//!
//! ```text
//!   owner shard: VectorValue { handle, writer }  ──publish──►  Directory: (db, key) ─► VectorHandle (weak)
//!   any worker:  lookup ─► is_live? ─► search on the shared graph, pinned by this thread's epoch participant
//! ```
//!
//! The owner alone writes. It publishes a set before it answers a request about it, and the keyspace withdraws the handle
//! (`is_live = false`) before the entry moves, goes, is lent or changes its deadline; a worker that finds no live handle asks the
//! owner, which publishes again. The directory holds weak references: it keeps no deleted set in memory.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use dashmap::DashMap;
use skerry_vectorset::epoch::{Domain, Guard, Participant};
use skerry_vectorset::{Params, Remains, SearchScratch, VectorSet, Writer};

use crate::error::CommandError;
use crate::keyspace::{Key, Lookup, View};
use crate::shard::{DbIndex, EventClass, Shard};

/// Threads that may read vector sets in one process.
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
    state: State,
}

enum State {
    Open(Box<Writer>),
    Closed(Box<Remains>),
    /// Only inside `free_slice`.
    Changing,
}

impl VectorValue {
    pub fn new(params: Params) -> Self {
        let (set, writer) = VectorSet::create(params, domain().clone());
        let handle = VectorHandle { set, is_live: AtomicBool::new(false), deadline_ms: AtomicI64::new(i64::MAX) };
        Self { handle: Arc::new(handle), state: State::Open(Box::new(writer)) }
    }

    /// The right to change the set.
    pub fn writer(&mut self) -> &mut Writer {
        match &mut self.state {
            State::Open(writer) => writer,
            State::Closed(_) | State::Changing => panic!("a deleted vector set is written"),
        }
    }

    /// Readers elsewhere ask the owner from here on.
    pub fn withdraw(&self) {
        self.handle.is_live.store(false, Ordering::Release);
    }

    /// Frees about `budget` elements; true when the rest costs nothing to drop.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        self.withdraw();
        self.state = match std::mem::replace(&mut self.state, State::Changing) {
            State::Open(writer) => State::Closed(Box::new(writer.close())),
            closed => closed,
        };
        match &mut self.state {
            State::Closed(remains) => remains.free_slice(budget),
            State::Open(_) | State::Changing => false,
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.handle.set.memory_bytes()
    }
}

/// Published sets by database and key.
#[derive(Default)]
pub struct Directory {
    sets: DashMap<(DbIndex, Box<[u8]>), Weak<VectorHandle>>,
}

impl Directory {
    /// The live handle of a key, if its owner has published it and its deadline is not over.
    pub fn published(&self, db: DbIndex, key: &[u8], now_ms: i64) -> Option<Arc<VectorHandle>> {
        if self.sets.is_empty() {
            return None;
        }
        // No guard outlives this line.
        let handle = self.sets.get(&(db, Box::from(key))).and_then(|weak| weak.upgrade())?;
        let is_alive = handle.deadline_ms.load(Ordering::Relaxed) >= now_ms;
        (handle.is_live.load(Ordering::Acquire) && is_alive).then_some(handle)
    }

    /// Makes a set known to every worker; the owner's call.
    pub fn publish(&self, db: DbIndex, key: &[u8], handle: &Arc<VectorHandle>, expire_at_ms: Option<i64>) {
        if handle.is_live.load(Ordering::Relaxed) {
            return;
        }
        handle.deadline_ms.store(expire_at_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
        handle.is_live.store(true, Ordering::Release);
        if self.sets.len() >= SWEEP_ABOVE {
            self.sets.retain(|_, weak| weak.strong_count() > 0);
        }
        self.sets.insert((db, Box::from(key)), Arc::downgrade(handle));
    }

    /// Withdraws every set of `db` that `is_own` names (SWAPDB, FLUSHDB: the keys change their meaning all at once).
    pub fn withdraw_database(&self, db: DbIndex, is_own: impl Fn(&[u8]) -> bool) {
        self.sets.retain(|(at, key), weak| {
            let is_meant = *at == db && is_own(key);
            if is_meant && let Some(handle) = weak.upgrade() {
                handle.is_live.store(false, Ordering::Release);
            }
            !is_meant
        });
    }
}

/// Names in the directory before dead ones are swept out.
const SWEEP_ABOVE: usize = 1024;

/// The owner's lookup: the handle of `key`, `None` if it is absent, an error if it holds another type.
pub fn handle_of(
    shard: &mut Shard,
    db: DbIndex,
    key: Key<'_>,
    now_ms: i64,
) -> Result<Option<(Arc<VectorHandle>, Option<i64>)>, CommandError> {
    match shard.keyspace(db).lookup(&key, now_ms) {
        Lookup::Absent => Ok(None),
        Lookup::Expired => {
            shard.stats.expired_keys += 1;
            shard.changed(db, key.bytes, EventClass::Expired, "expired");
            Ok(None)
        }
        Lookup::Found(entry) => match entry.view() {
            View::Vector(vector) => Ok(Some((vector.handle.clone(), entry.expire_at()))),
            View::Int(_)
            | View::Str(_)
            | View::Shared(_)
            | View::List(_)
            | View::Set(_)
            | View::Hash(_)
            | View::Lent => Err(CommandError::WrongType),
        },
    }
}

/// The epochs of the process's vector sets.
pub fn domain() -> &'static Arc<Domain> {
    static DOMAIN: OnceLock<Arc<Domain>> = OnceLock::new();
    DOMAIN.get_or_init(|| Domain::new(MAX_READERS))
}

thread_local! {
    static READER: RefCell<Option<(Participant, SearchScratch)>> = const { RefCell::new(None) };
}

/// Runs with this thread pinned to the present epoch, and with its search buffers.
///
/// # Panics
/// If more than `MAX_READERS` threads read vector sets.
pub fn with_reader<R>(read: impl FnOnce(&Guard, &mut SearchScratch) -> R) -> R {
    READER.with_borrow_mut(|reader| {
        let (participant, scratch) = reader.get_or_insert_with(|| {
            let participant = domain().register().expect("workers are fewer than MAX_READERS");
            (participant, SearchScratch::new())
        });
        let guard = participant.pin();
        read(&guard, scratch)
    })
}
