//! When pages that have become free go back to the system, and who gives them.
//!
//! ```text
//!   workers free ─► mimalloc notes the pages          worker 0, ten times a second: Purging::tick ── much was freed ──► Purger::wake
//!                                                     the purger, a thread of low priority: all noted pages go back
//! ```
//!
//! mimalloc's own way, once a second by whoever frees just then, stops a worker for tens of milliseconds after a FLUSHALL (54 were seen
//! at 5,000,000 keys); giving pages back one by one as they are freed costs each slice, and misses what was freed before anybody knew
//! that much would be. So the delay is endless, and a thread that serves nobody does it: it claims a few free pages at a time, which
//! no worker waits for. What was freed stays only while nearly as much is used as a while ago: values that come and go do not fault
//! their pages in again.
//!
//! It never touches a block, and knows nothing of who frees what.
//!
//! Cost: a store a page for those who free; some microseconds a page for the purger.

use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, Thread};

use super::{ALL, SPARSE_PART, mi_option_get, mi_option_set};

/// `mi_option_purge_delay` of mimalloc's header, in milliseconds: below 0 nothing is noted.
const PURGE_DELAY: c_int = 15;
/// Pages are noted, and nobody gives them back before he is told to.
const ENDLESS_MS: i64 = 1 << 40;
/// Who frees a page gives it back.
const AT_ONCE_MS: i64 = 0;

fn set_delay_ms(delay_ms: i64) {
    // SAFETY: a plain store of a known option; threads that free meanwhile see the old value or the new one.
    unsafe { mi_option_set(PURGE_DELAY, delay_ms) };
}
/// The peak is forgotten by this part a tick: by half in a minute at ten ticks a second.
const PEAK_DECAY: usize = 1024;

static PURGER: OnceLock<Thread> = OnceLock::new();

/// The thread that gives pages back.
pub struct Purger;

impl Purger {
    /// Takes purging over for the whole process. To be called once, at start, by a thread that is tied to no core.
    pub fn start() -> io::Result<()> {
        set_delay_ms(ENDLESS_MS);
        let purger = thread::Builder::new().name("purger".into()).spawn(run)?;
        // A second one would sleep for ever.
        let _ = PURGER.set(purger.thread().clone());
        Ok(())
    }

    /// Lets it give back all that is free now. Nobody waits for it.
    pub fn wake() {
        if let Some(purger) = PURGER.get() {
            purger.unpark();
        }
    }

    /// What mimalloc has been told, in milliseconds.
    pub fn delay_ms() -> i64 {
        // SAFETY: a plain load of a known option.
        unsafe { mi_option_get(PURGE_DELAY) }
    }
}

fn run() {
    /// A tenth of a worker's weight, if both want the same core.
    const NICE: c_int = 10;
    // SAFETY: plain calls; on Linux a priority is a thread's own. If the system refuses, the purger only competes more.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICE) };
    // Only a thread that has allocated may ask for it.
    drop(std::hint::black_box(Box::new(0_u64)));
    loop {
        thread::park();
        collect(Collect::Pages);
    }
}

#[derive(Clone, Copy)]
enum Collect {
    /// All free pages of the process.
    Pages,
    /// What other threads have freed in this one's.
    Own,
}

#[cfg(not(feature = "system-allocator"))]
fn collect(what: Collect) {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: a plain call; it touches only pages that hold no block, and those of the calling thread.
    unsafe { mi_collect(matches!(what, Collect::Pages)) };
}

#[cfg(feature = "system-allocator")]
fn collect(_: Collect) {}

/// Knows when much has been freed. One worker has it.
#[derive(Default)]
pub struct Purging {
    peak_bytes: usize,
    /// Ticks in a row at which memory was sparse.
    n_sparse_ticks: u32,
}

impl Purging {
    /// To be called some ten times a second. Memory is sparse if far more of it is resident than is used and allowed: then pages go
    /// back whatever the peak was. Those that are free already first; what becomes free later goes at once, as the purger may wait
    /// for a core; and so much of what lies within free blocks as `sparsity` says, from 0 to 1.
    pub fn tick(&mut self, used_bytes: usize, sparsity: f64) {
        let part = (sparsity * f64::from(ALL)).ceil() as u32;
        SPARSE_PART.store(part.min(ALL), Relaxed);
        let is_sparse = part > 0;
        let n_before = self.n_sparse_ticks;
        self.n_sparse_ticks = if is_sparse { n_before.saturating_add(1) } else { 0 };
        if self.n_sparse_ticks == 2 {
            set_delay_ms(AT_ONCE_MS);
        } else if n_before >= 2 && !is_sparse {
            set_delay_ms(ENDLESS_MS);
        }
        if self.is_due(used_bytes) {
            Purger::wake();
        }
    }

    fn is_due(&mut self, used_bytes: usize) -> bool {
        self.peak_bytes = used_bytes.max(self.peak_bytes - self.peak_bytes / PEAK_DECAY);
        self.n_sparse_ticks > 0 || used_bytes < self.peak_bytes / 8 * 7
    }

    /// Whether memory has been sparse for so long that what was free has gone back.
    pub fn is_purged_and_sparse(&self) -> bool {
        const TICKS_TO_PURGE: u32 = 3;
        self.n_sparse_ticks > TICKS_TO_PURGE
    }

    /// What the calling thread holds of free pages becomes free for all.
    pub fn collect_thread() {
        /// mimalloc keeps an empty page a class for so many looks.
        const RETIRE_CYCLES: usize = 16;
        (0..=RETIRE_CYCLES).for_each(|_| collect(Collect::Own));
    }
}

#[cfg(all(test, not(feature = "system-allocator")))]
mod tests {
    use super::super::{MIB, PAGE_FULL_RETAIN};
    use super::*;

    /// Purging starts when an eighth has been freed, stops when the peak is reached again or forgotten; and the options'
    /// numbers are those we mean, as their defaults tell.
    #[test]
    fn purging_follows_the_peak() {
        assert!([1000, ENDLESS_MS].contains(&Purger::delay_ms()));
        // SAFETY: a plain load of a known option.
        assert_eq!(unsafe { mi_option_get(PAGE_FULL_RETAIN) }, 2);
        let mut purging = Purging::default();
        let mut is_due = |used_bytes| purging.is_due(used_bytes);
        assert_eq!(
            [1000, 900, 800, 100, 950].map(|mib| is_due(mib * MIB)),
            [false, false, true, true, false]
        );
        assert!(is_due(500 * MIB));
        assert!((0..1000).any(|_| !is_due(500 * MIB)));
    }
}
