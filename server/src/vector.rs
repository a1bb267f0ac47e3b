//! The server's side of vector sets: the value in the keyspace, and the directory of published sets that every worker reads.
//!
//! ```text
//!   owner shard: VectorValue { handle, writer }  ──publish──►  Directory: (db, key) ─► VectorHandle (weak)
//!   any worker:  lookup ─► live? ─► search on the shared graph, pinned by this thread's epoch participant
//! ```
//!
//! The owner alone writes. It publishes a set before it answers a request about it, and the keyspace withdraws the
//! handle before the entry moves, goes, is lent or changes its deadline; a worker that finds no live handle asks the
//! owner, which publishes again. Each publication has a number, and a name counts only while the handle has the number
//! it was published with: a set that was renamed is not found by its old name. The directory holds weak references: it
//! keeps no deleted set in memory.
//!
//! A set that has grown may want wider codes (`Writer::upkeep`): its name is noted in the shard by the write that made it so, and
//! the worker looks after it in its background slices.
//!
//! A transaction that writes sets withdraws them first and publishes nothing until its end (`withhold`); so searches that begin
//! meanwhile wait at the owner. One that was under way looks at the publication once more when it is done: if that has changed, its
//! reply is dropped and the owner is asked. (A seqlock: readers never wait, and a writer waits for no reader.)

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use dashmap::DashMap;
use skerry_vectorset::epoch::{Domain, Guard, Participant};
use skerry_vectorset::{CodeWidth, Layer0, Params, Progress, Remains, SearchScratch, VectorSet, Writer};

use crate::access::At;
use crate::config::{Config, VsetCodeBits};
use crate::error::CommandError;
use crate::keyspace::{Key, Lookup, Object, Touch, View};
use crate::projection::Projection;
use crate::shard::{DbIndex, Shard};

/// Threads that may read vector sets in one process.
const MAX_READERS: usize = 256;

/// What every core needs to read a set.
pub struct VectorHandle {
    pub set: Arc<VectorSet>,
    /// What REDUCE made of the set: clients' vectors go through it before they are stored or searched for.
    pub projection: Option<Projection>,
    /// The number of the publication that stands; `WITHDRAWN` if there is none.
    publication: AtomicU64,
    /// Deadline of the key (Unix ms), `i64::MAX` without one.
    deadline_ms: AtomicI64,
    /// When somebody last read it (Unix seconds); readers elsewhere cannot mark the entry itself.
    last_used_s: AtomicI64,
}

impl VectorHandle {
    /// When it was last read, in Unix seconds.
    pub fn last_used_s(&self) -> i64 {
        self.last_used_s.load(Ordering::Relaxed)
    }

    /// Notes that it is read now; a store once a second.
    fn note_use(&self, now_ms: i64) {
        if self.last_used_s() != now_ms / 1000 {
            self.last_used_s.store(now_ms / 1000, Ordering::Relaxed);
        }
    }

    /// The publication that stands, if one does.
    pub fn publication(&self) -> Option<u64> {
        let publication = self.publication.load(Ordering::Acquire);
        (publication != WITHDRAWN).then_some(publication)
    }

    /// Whether all that was read since `publication` was asked for belongs together: no transaction has written it meanwhile.
    pub fn still_stands(&self, publication: u64) -> bool {
        // What was read came before this look.
        fence(Ordering::Acquire);
        self.publication.load(Ordering::Relaxed) == publication
    }
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
    pub fn new(params: Params, projection: Option<Projection>) -> Self {
        let (set, writer) = VectorSet::create(params, domain().clone());
        let handle = VectorHandle {
            set,
            projection,
            publication: AtomicU64::new(WITHDRAWN),
            deadline_ms: AtomicI64::new(i64::MAX),
            last_used_s: AtomicI64::new(0),
        };
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
        self.handle.publication.store(WITHDRAWN, Ordering::Release);
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
        self.handle.set.memory_bytes() + self.handle.projection.as_ref().map_or(0, Projection::memory_bytes)
    }
}

/// What the configuration says of new sets.
pub fn new_params(config: &Config, dim: u32, m: u32, seed: u64) -> Params {
    let layer0 = if config.vset_layer0_degree == 1 { Layer0::OneM } else { Layer0::TwoM };
    let codes = match config.vset_code_bits {
        VsetCodeBits::Auto => CodeWidth::Auto,
        VsetCodeBits::Off => CodeWidth::Off,
        VsetCodeBits::Two => CodeWidth::Bits2,
        VsetCodeBits::Four => CodeWidth::Bits4,
        VsetCodeBits::Eight => CodeWidth::Bits8,
    };
    Params { layer0, codes, ..Params::new(dim, m, seed) }
}

/// Published sets by database and key.
#[derive(Default)]
pub struct Directory {
    sets: DashMap<(DbIndex, Box<[u8]>), Published>,
    n_publications: AtomicU64,
    /// Names found alive by the last sweep.
    n_swept: AtomicUsize,
}

/// A name under which a set was published.
struct Published {
    handle: Weak<VectorHandle>,
    publication: u64,
}

impl Published {
    fn live(&self) -> Option<Arc<VectorHandle>> {
        let handle = self.handle.upgrade()?;
        (handle.publication.load(Ordering::Acquire) == self.publication).then_some(handle)
    }
}

/// Numbers of publications begin at one.
const WITHDRAWN: u64 = 0;

impl Directory {
    /// Whether any set was ever published.
    pub fn has_published(&self) -> bool {
        self.n_publications.load(Ordering::Relaxed) > 0
    }

    /// The live handle of a key, if its owner has published it and its deadline is not over.
    pub fn published(&self, db: DbIndex, key: &[u8], now_ms: i64) -> Option<Arc<VectorHandle>> {
        // No guard outlives this line.
        let handle = self.sets.get(&(db, Box::from(key))).and_then(|published| published.live())?;
        handle.note_use(now_ms);
        (handle.deadline_ms.load(Ordering::Relaxed) >= now_ms).then_some(handle)
    }

    /// Makes a set known to every worker; the owner's call.
    pub fn publish(&self, db: DbIndex, key: &[u8], handle: &Arc<VectorHandle>, expire_at_ms: Option<i64>) {
        if handle.publication.load(Ordering::Relaxed) != WITHDRAWN || IS_WITHHELD.get() {
            return;
        }
        if self.sets.len() >= SWEEP_ABOVE.max(2 * self.n_swept.load(Ordering::Relaxed)) {
            self.sets.retain(|_, published| published.live().is_some());
            self.n_swept.store(self.sets.len(), Ordering::Relaxed);
        }
        // The name and the handle get the number under the name's lock: whoever publishes last, they agree.
        let place = self.sets.entry((db, Box::from(key)));
        let publication = self.n_publications.fetch_add(1, Ordering::Relaxed) + 1;
        handle.deadline_ms.store(expire_at_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
        handle.publication.store(publication, Ordering::Release);
        place.insert(Published { handle: Arc::downgrade(handle), publication });
    }

    /// Withdraws every set of `db` that `is_own` names (SWAPDB, FLUSHDB: the keys change their meaning all at once).
    pub fn withdraw_database(&self, db: DbIndex, is_own: impl Fn(&[u8]) -> bool) {
        self.sets.retain(|(at, key), published| {
            let is_meant = *at == db && is_own(key);
            if is_meant && let Some(handle) = published.live() {
                handle.publication.store(WITHDRAWN, Ordering::Release);
            }
            !is_meant
        });
    }
}

/// Names in the directory before dead ones are swept out.
const SWEEP_ABOVE: usize = 1024;

/// A set and the deadline of its key (Unix ms): what a publication tells.
type Publishable = (Arc<VectorHandle>, Option<i64>);

/// The owner's lookup: the handle of `key`, `None` if it is absent, an error if it holds another type.
pub fn handle_of(
    shard: &mut Shard,
    db: DbIndex,
    key: Key<'_>,
    now_ms: i64,
) -> Result<Option<Publishable>, CommandError> {
    match shard
        .peek(At { db, now_ms, touch: Touch::LeavesNoMark }, &key)
        .map(|entry| (entry.view(), entry.expire_at()))
    {
        None => Ok(None),
        Some((View::Vector(vector), expire_at_ms)) => {
            vector.handle.note_use(now_ms);
            Ok(Some((vector.handle.clone(), expire_at_ms)))
        }
        Some(_) => Err(CommandError::WrongType),
    }
}

/// Names that wait for `upkeep_slice`, at most: more sets that outgrow their codes at once are noted by later writes.
const MAX_NOTED: usize = 64;

/// Notes the name of a set, whose codes want to be looked after.
pub fn note_upkeep(shard: &mut Shard, db: DbIndex, key: &[u8]) {
    let is_noted = shard.upkeep.iter().any(|(at, name)| *at == db && **name == *key);
    if !is_noted && shard.upkeep.len() < MAX_NOTED {
        shard.upkeep.push_back((db, key.into()));
    }
}

/// Looks after the first noted set for a slice. A name that means no such set any more is forgotten: a set that was renamed or
/// is lent is noted again by its next write.
pub fn upkeep_slice(shard: &mut Shard) {
    let Some((db, name)) = shard.upkeep.pop_front() else { return };
    let key = shard.key_of(&name);
    let entry = shard.keyspace(db).get_mut(&key);
    let Some(Object::Vector(value)) = entry.and_then(|entry| entry.into_object_mut()) else { return };
    let State::Open(writer) = &mut value.state else { return };
    let progress = with_reader(|_, scratch| writer.upkeep(&mut UPKEEP_DISTANCES.clone(), scratch));
    if progress == Progress::Unfinished {
        shard.upkeep.push_back((db, name));
    }
}

/// What a slice of upkeep measures, about: some 0.2 ms.
const UPKEEP_DISTANCES: usize = 4_096;

/// The set at `key` of this shard, if it holds one; nothing is counted, expired or refused.
pub fn peek_handle(shard: &mut Shard, db: DbIndex, key: &Key<'_>, now_ms: i64) -> Option<Arc<VectorHandle>> {
    match shard.keyspace(db).lookup(key, now_ms) {
        Lookup::Found(entry) => match entry.view() {
            View::Vector(vector) => Some(vector.handle.clone()),
            View::Int(_)
            | View::Str(_)
            | View::Shared(_)
            | View::List(_)
            | View::Set(_)
            | View::Hash(_)
            | View::Zset(_)
            | View::Stream(_)
            | View::Lent => None,
        },
        Lookup::Absent | Lookup::Expired => None,
    }
}

/// The epochs of the process's vector sets.
pub fn domain() -> &'static Arc<Domain> {
    static DOMAIN: OnceLock<Arc<Domain>> = OnceLock::new();
    DOMAIN.get_or_init(|| Domain::new(MAX_READERS))
}

thread_local! {
    static IS_WITHHELD: Cell<bool> = const { Cell::new(false) };
    static READER: RefCell<Option<(Participant, SearchScratch)>> = const { RefCell::new(None) };
}

/// Runs a transaction: what it makes or changes is published by nobody until it is over. The sets it writes that are published
/// already are the caller's to withdraw, at the beginning of `run`.
pub fn withhold<R>(run: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_WITHHELD.set(self.0);
        }
    }
    // A transaction may hold a script.
    let _restore = Restore(IS_WITHHELD.replace(true));
    run()
}

/// Withdraws the set of `key`, if it is one, before a transaction writes it.
pub fn withdraw_for_transaction(shard: &Shard, key: Key<'_>) {
    for keyspace in shard.keyspaces() {
        if let Some(View::Vector(vector)) = keyspace.peek(&key).map(|entry| entry.view()) {
            vector.withdraw();
            // Its writes come after that.
            fence(Ordering::Release);
        }
    }
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
