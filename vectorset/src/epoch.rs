//! Epoch reclamation: memory that readers may still see is freed only after they have all moved on.
//!
//! ```text
//!   reader:  pinned := global epoch;  fence;  read pointers ... ;  pinned := IDLE
//!   suspended reading:  (pinned)  held := oldest of the holds;  pinned := IDLE;  ...  held := the next, or IDLE
//!   writer:  unlink;  fence;  tag := global epoch;  limbo.push(tag, what)
//!            later:   advance global;  fence;  free what has tag < min(each slot's pinned, then its held)
//! ```
//!
//! Why it holds: either the reader's announcement precedes the writer's scan in the single order of SeqCst
//! fences, and the scan sees it, or the unlinking precedes the reader's fence, and the reader cannot find
//! what was unlinked. A reader that announces an epoch above the tag read it after the tag was taken, so its
//! fence comes after the writer's too. Announcing an old epoch is only conservative.
//!
//! A reading that is cut into slices keeps a `Hold` between them: it has the epoch of its first slice. It is
//! announced before the pin ends, and a scan looks at the pin first: who sees the pin gone sees the hold.
//!
//! One `Domain` serves a whole process. A worker registers one `Participant`; a pin is one load, one store
//! and one fence, nothing is shared between readers, and an idle participant holds nothing back. Readers
//! never free anything. It must never know what it reclaims. Source: Fraser, "Practical lock-freedom" (2004),
//! reduced to one global counter. `vectorset/loom` runs it under every interleaving.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, PoisonError, fence};

const IDLE: u64 = 0;

/// One participant's announcements, on cache lines of its own (two, because of the adjacent-line
/// prefetcher).
#[repr(align(128))]
struct Slot {
    claimed: AtomicBool,
    /// The epoch of the reading that goes on now.
    pinned: AtomicU64,
    /// The oldest epoch of the suspended readings.
    held: AtomicU64,
    /// How many suspended readings have which epoch.
    holds: Mutex<BTreeMap<u64, u32>>,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            claimed: AtomicBool::new(false),
            pinned: AtomicU64::new(IDLE),
            held: AtomicU64::new(IDLE),
            holds: Mutex::new(BTreeMap::new()),
        }
    }

    /// Changes the holds and announces the oldest.
    fn change_holds(&self, change: impl FnOnce(&mut BTreeMap<u64, u32>)) {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut holds);
        let oldest = holds.first_key_value().map_or(IDLE, |(&epoch, _)| epoch);
        // Release, so that a scan that reads it also sees the end of what a dropped hold was kept for.
        self.held.store(oldest, Ordering::Release);
    }
}

/// The epochs of one process: a counter and a fixed number of announcements.
pub struct Domain {
    global: AtomicU64,
    next_set_uid: AtomicU64,
    slots: Box<[Slot]>,
    /// Slots from here on were never claimed.
    n_slots_used: AtomicUsize,
}

impl Domain {
    /// A domain in which at most `participants` threads read at a time.
    pub fn new(participants: usize) -> Arc<Domain> {
        Arc::new(Domain {
            global: AtomicU64::new(1),
            next_set_uid: AtomicU64::new(0),
            slots: (0..participants).map(|_| Slot::new()).collect(),
            n_slots_used: AtomicUsize::new(0),
        })
    }

    /// Claims a place for the calling thread, or `None` when all are taken. Dropping it gives the place back.
    pub fn register(self: &Arc<Self>) -> Option<Participant> {
        let free = |slot: &Slot| {
            slot.claimed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = self.slots.iter().position(free)?;
        // Part of every later announcement: it precedes their fences.
        self.n_slots_used.fetch_max(slot + 1, Ordering::Relaxed);
        Some(Participant(Rc::new(Local { domain: self.clone(), slot, depth: Cell::new(0) })))
    }

    pub(crate) fn next_set_uid(&self) -> u64 {
        self.next_set_uid.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The oldest epoch that some reader has announced; `u64::MAX` when nobody reads.
    fn oldest_announced(&self) -> u64 {
        fence(Ordering::SeqCst);
        let n_used = self.n_slots_used.load(Ordering::Relaxed);
        let announced = self.slots[..n_used].iter().flat_map(|slot| {
            let pinned = slot.pinned.load(Ordering::Acquire);
            [pinned, slot.held.load(Ordering::Acquire)]
        });
        announced.filter(|&epoch| epoch != IDLE).min().unwrap_or(u64::MAX)
    }

    /// The tag of something that was unlinked just now.
    fn tag(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.global.load(Ordering::Relaxed)
    }

    fn advance_beyond(&self, tag: u64) {
        if self.global.load(Ordering::Relaxed) <= tag {
            self.global.fetch_add(1, Ordering::SeqCst);
        }
    }
}

struct Local {
    domain: Arc<Domain>,
    slot: usize,
    depth: Cell<u32>,
}

impl Local {
    fn slot(&self) -> &Slot {
        &self.domain.slots[self.slot]
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.slot().pinned.store(IDLE, Ordering::Release);
        self.slot().claimed.store(false, Ordering::Release);
    }
}

/// A thread's place in the domain. It stays on the thread that registered it.
pub struct Participant(Rc<Local>);

impl Participant {
    /// Announces the current epoch until the guard is dropped. Guards may overlap: the oldest announcement
    /// stands until the last of them is gone.
    pub fn pin(&self) -> Guard {
        let local = &self.0;
        if local.depth.get() == 0 {
            let epoch = local.domain.global.load(Ordering::Relaxed);
            // Release, so that a scan that reads this announcement also sees the end of the previous reading.
            local.slot().pinned.store(epoch, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        local.depth.set(local.depth.get() + 1);
        Guard(local.clone())
    }
}

/// While it lives, nothing that its thread can reach in a set of its domain is freed or written over.
pub struct Guard(Rc<Local>);

impl Guard {
    /// A guard of another domain protects nothing: a bug of the caller, and a panic.
    #[inline]
    pub(crate) fn assert_guards(&self, domain: &Arc<Domain>) {
        assert!(Arc::ptr_eq(&self.0.domain, domain), "guard of another epoch domain");
    }

    /// Keeps what this guard protects beyond its end, for a reading that goes on later.
    pub fn hold(&self) -> Hold {
        let local = &self.0;
        let epoch = local.slot().pinned.load(Ordering::Relaxed);
        local.slot().change_holds(|holds| *holds.entry(epoch).or_default() += 1);
        Hold { domain: local.domain.clone(), slot: local.slot, epoch }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let local = &self.0;
        local.depth.set(local.depth.get() - 1);
        if local.depth.get() == 0 {
            local.slot().pinned.store(IDLE, Ordering::Release);
        }
    }
}

/// A suspended reading: what its guard protected stays as long as it lives. It may be dropped on any thread.
pub struct Hold {
    domain: Arc<Domain>,
    slot: usize,
    epoch: u64,
}

impl Hold {
    /// As `Guard::assert_guards`.
    pub(crate) fn assert_guards(&self, domain: &Arc<Domain>) {
        assert!(Arc::ptr_eq(&self.domain, domain), "hold of another epoch domain");
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.domain.slots[self.slot].change_holds(|holds| {
            let n = holds.get_mut(&self.epoch).expect("a hold is counted until it is dropped");
            *n -= 1;
            if *n == 0 {
                holds.remove(&self.epoch);
            }
        });
    }
}

/// What one writer unlinked, oldest first.
pub(crate) struct Limbo<T> {
    queue: VecDeque<(u64, T)>,
}

impl<T> Limbo<T> {
    pub(crate) fn new() -> Limbo<T> {
        Limbo { queue: VecDeque::new() }
    }

    /// Takes something that no new reader can find any more.
    pub(crate) fn push(&mut self, domain: &Domain, what: T) {
        self.queue.push_back((domain.tag(), what));
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Moves at most `budget` things that no reader can hold any more into `free`.
    pub(crate) fn collect(&mut self, domain: &Domain, budget: usize, mut free: impl FnMut(T)) {
        let Some(&(newest, _)) = self.queue.back() else { return };
        domain.advance_beyond(newest);
        let oldest_announced = domain.oldest_announced();
        for _ in 0..budget {
            match self.queue.front() {
                Some(&(tag, _)) if tag < oldest_announced => {}
                Some(_) | None => break,
            }
            if let Some((_, what)) = self.queue.pop_front() {
                free(what);
            }
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(64);
        }
    }

    /// Everything, whether readers may hold it or not: for the one who knows that there are none.
    pub(crate) fn into_remaining(self) -> impl Iterator<Item = T> {
        self.queue.into_iter().map(|(_, what)| what)
    }
}

// Under the model these would run outside of it.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn collect_all(limbo: &mut Limbo<u32>, domain: &Domain) -> Vec<u32> {
        let mut freed = Vec::new();
        limbo.collect(domain, usize::MAX, |what| freed.push(what));
        freed
    }

    #[test]
    fn a_pinned_reader_holds_back_what_was_retired_after_it_and_nothing_later() {
        let domain = Domain::new(2);
        let (reader, late) = (domain.register().unwrap(), domain.register().unwrap());
        let mut limbo = Limbo::new();
        let guard = reader.pin();
        limbo.push(&domain, 1);
        assert_eq!(collect_all(&mut limbo, &domain), []);
        // The collection advanced the epoch: a reader that comes now does not hold back 1.
        let late_guard = late.pin();
        drop(guard);
        assert_eq!(collect_all(&mut limbo, &domain), [1]);
        limbo.push(&domain, 2);
        assert_eq!(collect_all(&mut limbo, &domain), []);
        drop(late_guard);
        assert_eq!(collect_all(&mut limbo, &domain), [2]);
    }

    #[test]
    fn overlapping_guards_keep_the_oldest_announcement() {
        let domain = Domain::new(1);
        let reader = domain.register().unwrap();
        let mut limbo = Limbo::new();
        let first = reader.pin();
        limbo.push(&domain, 1);
        let second = reader.pin();
        drop(first);
        assert_eq!(collect_all(&mut limbo, &domain), []);
        drop(second);
        assert_eq!(collect_all(&mut limbo, &domain), [1]);
    }

    #[test]
    fn a_hold_outlives_its_guard_and_keeps_the_guards_epoch() {
        let domain = Domain::new(2);
        let reader = domain.register().unwrap();
        let mut limbo = Limbo::new();
        let guard = reader.pin();
        let first = guard.hold();
        limbo.push(&domain, 1);
        drop(guard);
        assert_eq!(collect_all(&mut limbo, &domain), []);
        let second = reader.pin().hold();
        limbo.push(&domain, 2);
        assert_eq!(collect_all(&mut limbo, &domain), []);
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert_eq!(collect_all(&mut limbo, &domain), [1]);
        drop(second);
        assert_eq!(collect_all(&mut limbo, &domain), [2]);
    }

    #[test]
    fn a_place_is_claimed_once_and_given_back() {
        let domain = Domain::new(1);
        let reader = domain.register().unwrap();
        assert!(domain.register().is_none());
        let guard = reader.pin();
        drop(reader);
        assert!(domain.register().is_none(), "the guard still reads");
        drop(guard);
        assert!(domain.register().is_some());
    }

    #[test]
    fn the_budget_bounds_a_collection() {
        let domain = Domain::new(1);
        let mut limbo = Limbo::new();
        (0..10).for_each(|i| limbo.push(&domain, i));
        let mut freed = Vec::new();
        limbo.collect(&domain, 3, |what| freed.push(what));
        assert_eq!(freed, [0, 1, 2]);
        assert_eq!(limbo.len(), 7);
    }
}
