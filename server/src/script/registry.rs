//! The scripts that the whole server knows, by the SHA-1 of their text; and what runs now, for SCRIPT KILL and BUSY.
//!
//! A worker compiles a script once for itself and keeps its function; what is here is the text and what was found out about it. A
//! script that is flushed, or pushed out, is marked gone, which is all that the workers look at: no lock is taken by EVALSHA.
//! As in Redis, scripts that came with EVAL are forgotten beyond 500, the least recently used first; those of SCRIPT LOAD stay.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hashbrown::HashMap;

use super::{proof, shebang};
use crate::error::CommandError;

/// Scripts of EVAL that are kept.
const MAX_EVALUATED: usize = 500;

/// The SHA-1 of a script's text.
pub type Sha = [u8; 20];

/// Which shards a script may touch, found out before it first runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of its declared keys, provably.
    Declared,
    /// Any.
    All,
}

/// What a script says of itself in its first line (`#!lua flags=...`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags {
    /// There is no such line: what Redis before version 7 allowed is allowed.
    pub is_compatible: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot: bool,
}

impl ScriptFlags {
    /// The names of those that are set, in Redis's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot, "allow-cross-slot-keys"),
        ];
        all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)
    }

    /// What the first line of a script says, if it can be read.
    pub fn of_text(text: &[u8]) -> Option<Self> {
        shebang::of_script(text).ok().map(|(flags, _)| flags)
    }

    /// Whether a command that runs such a script counts as one that may take more memory.
    pub fn denies_oom(self) -> bool {
        !self.is_compatible && !self.allow_oom && !self.no_writes
    }

    /// Whether it counts as one that may write.
    pub fn may_write(self) -> bool {
        self.is_compatible || !self.no_writes
    }

    /// Whether a script that says so may run now.
    pub fn may_run(self, is_read_only: bool, is_out_of_memory: bool) -> Result<(), CommandError> {
        if self.is_compatible || self.no_writes {
            return Ok(());
        }
        if is_read_only {
            return Err(CommandError::text(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        if is_out_of_memory && !self.allow_oom {
            return Err(CommandError::text(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        Ok(())
    }
}

/// A script's text and what is known of it.
pub struct Source {
    pub sha: Sha,
    pub name: Box<str>,
    pub text: Box<[u8]>,
    /// Where the code begins: behind the first line if that tells flags.
    pub code_at: usize,
    pub flags: ScriptFlags,
    pub reach: Reach,
    is_gone: AtomicBool,
    is_loaded: AtomicBool,
    used_at: AtomicU64,
}

impl Source {
    /// What a text says of itself.
    pub fn read(text: &[u8]) -> Result<Self, CommandError> {
        let (flags, code_at) = shebang::of_script(text)?;
        let sha = sha_of(text);
        Ok(Self {
            sha,
            name: hex(&sha).into(),
            text: text.into(),
            code_at,
            flags,
            reach: proof::reach_of(&text[code_at..]),
            is_gone: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
            used_at: AtomicU64::new(0),
        })
    }

    pub fn code(&self) -> &[u8] {
        &self.text[self.code_at..]
    }

    /// Flushed, or pushed out by others.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

/// The server's scripts.
#[derive(Default)]
pub struct Registry {
    scripts: Mutex<HashMap<Sha, Arc<Source>>>,
    clock: AtomicU64,
    /// How often all scripts were forgotten.
    n_flushes: AtomicU64,
    n_evicted: AtomicU64,
    /// A script runs longer than `busy-reply-threshold`: what it is (`IDLE` if none does).
    busy: AtomicU8,
    is_to_end: AtomicBool,
    running: Mutex<Option<Running>>,
}

const IDLE: u8 = 0;
/// Of EVAL.
const SCRIPT: u8 = 1;
const FUNCTION: u8 = 2;
/// It has changed something: it can't be ended.
const WRITER: u8 = 4;

/// Which command wants a script to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// SCRIPT KILL
    Script,
    /// FUNCTION KILL
    Function,
}

/// A function that runs too long, as FUNCTION STATS tells it.
#[derive(Clone, Debug)]
pub struct Running {
    pub function: Box<[u8]>,
    pub command: Vec<Box<[u8]>>,
    pub started: Instant,
}

const BUSY_SCRIPT: CommandError = CommandError::text(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);
const BUSY_FUNCTION: CommandError = CommandError::text(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);

impl Registry {
    /// Whether a script runs too long, on any worker.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) != IDLE
    }

    /// What is answered to most commands while one does.
    pub fn busy_error(&self) -> CommandError {
        if self.busy.load(Relaxed) & FUNCTION != 0 { BUSY_FUNCTION } else { BUSY_SCRIPT }
    }

    /// A script runs too long: a function, if it has a name.
    pub fn begin_busy(&self, function: Option<Running>) {
        let kind = if function.is_some() { FUNCTION } else { SCRIPT };
        *self.running() = function;
        self.busy.store(kind, Relaxed);
    }

    /// It has changed something.
    pub fn set_writer(&self) {
        self.busy.fetch_or(WRITER, Relaxed);
    }

    /// It is over.
    pub fn set_idle(&self) {
        self.busy.store(IDLE, Relaxed);
        self.is_to_end.store(false, Relaxed);
        *self.running() = None;
    }

    pub fn is_to_end(&self) -> bool {
        self.is_to_end.load(Relaxed)
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function that runs too long; an error if that is a script.
    pub fn running_function(&self) -> Result<Option<Running>, CommandError> {
        if self.busy.load(Relaxed) & SCRIPT != 0 {
            return Err(BUSY_SCRIPT);
        }
        Ok(self.running().clone())
    }

    /// Ends the script that runs too long, if it may be ended.
    pub fn kill(&self, by: Kill) -> Result<(), CommandError> {
        let busy = self.busy.load(Relaxed);
        if busy == IDLE {
            return Err(CommandError::text("NOTBUSY No scripts in execution right now."));
        }
        if busy & WRITER != 0 {
            return Err(CommandError::text(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
                 script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
            ));
        }
        match (by, busy & FUNCTION != 0) {
            (Kill::Script, true) => Err(BUSY_FUNCTION),
            (Kill::Function, false) => Err(BUSY_SCRIPT),
            _ => {
                self.is_to_end.store(true, Relaxed);
                Ok(())
            }
        }
    }
}

impl Registry {
    fn scripts(&self) -> MutexGuard<'_, HashMap<Sha, Arc<Source>>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, sha: &Sha) -> Option<Arc<Source>> {
        self.scripts().get(sha).cloned()
    }

    /// A script that EVAL has brought, or SCRIPT LOAD (`is_loaded`). What stands here already stays.
    pub fn add(&self, source: Arc<Source>, is_loaded: bool) -> Arc<Source> {
        let mut scripts = self.scripts();
        let source = scripts.entry(source.sha).or_insert(source).clone();
        if is_loaded {
            source.is_loaded.store(true, Relaxed);
        } else {
            source.used_at.store(self.clock.fetch_add(1, Relaxed) + 1, Relaxed);
            let is_evaluated = |source: &&Arc<Source>| !source.is_loaded.load(Relaxed);
            if scripts.values().filter(is_evaluated).count() > MAX_EVALUATED {
                let oldest =
                    scripts.values().filter(is_evaluated).min_by_key(|s| s.used_at.load(Relaxed)).cloned();
                if let Some(oldest) = oldest {
                    self.n_evicted.fetch_add(1, Relaxed);
                    oldest.is_gone.store(true, Relaxed);
                    scripts.remove(&oldest.sha);
                }
            }
        }
        source
    }

    /// A script runs. How long ago is counted in scripts that have come since.
    #[inline]
    pub fn used(&self, source: &Source) {
        source.used_at.store(self.clock.load(Relaxed), Relaxed);
    }

    /// SCRIPT FLUSH
    pub fn flush(&self) {
        for (_, source) in self.scripts().drain() {
            source.is_gone.store(true, Relaxed);
        }
        self.n_flushes.fetch_add(1, Relaxed);
    }

    /// Changes whenever all scripts are forgotten.
    #[inline]
    pub(super) fn n_flushes(&self) -> u64 {
        self.n_flushes.load(Relaxed)
    }

    /// Scripts that others have pushed out.
    pub fn n_evicted(&self) -> u64 {
        self.n_evicted.load(Relaxed)
    }

    /// How many scripts there are, and their texts' bytes.
    pub fn size(&self) -> (usize, usize) {
        let scripts = self.scripts();
        (scripts.len(), scripts.values().map(|source| source.text.len() + size_of::<Source>()).sum())
    }
}

pub fn sha_of(text: &[u8]) -> Sha {
    sha1_smol::Sha1::from(text).digest().bytes()
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| DIGITS[usize::from(n)] as char;
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A SHA-1 as a client writes it, in any case.
#[inline]
pub fn parse_sha(text: &[u8]) -> Option<Sha> {
    if text.len() != 40 {
        return None;
    }
    let mut sha = [0; 20];
    for (byte, pair) in sha.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |letter: u8| match letter {
            b'0'..=b'9' => Some(letter - b'0'),
            b'a'..=b'f' => Some(letter - b'a' + 10),
            b'A'..=b'F' => Some(letter - b'A' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(sha)
}
