//! Scripts: Lua 5.1 in Redis's sandbox, a state for each worker.
//!
//! ```text
//!   EVAL ─► dispatch::scripts (which shards) ─► Engine::run ─► Lua ─► redis.call ─► api ─► Host::call (a node) ─► reply ─► convert ─► Lua
//! ```
//!
//! An `Engine` knows no node: whoever runs a script gives it a `Host` for that time. What it compiles is kept by the SHA-1 of its text
//! (`registry` holds the texts for all workers). Knows no shard and no client.
//!
//! Cost: a call from a script copies its arguments once, into a buffer that is reused, and reads its reply where it was written.

mod api;
mod bits;
mod convert;
mod json;
mod json_reader;
mod layout;
mod libraries;
mod lua;
mod msgpack;
mod proof;
mod random;
pub mod registry;
mod sandbox;
mod shebang;
mod tokens;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::ArgRange;

use crate::args::Args;
use crate::commands::Row;
use crate::error::CommandError;
use lua::{LUA_ERRMEM, LUA_TTABLE, Lua, Memory, State};
use random::Random;
pub use registry::{Reach, Registry, ScriptFlags, Sha, Source};

/// What a script's calls run on.
pub trait Host {
    /// Runs a command, whose reply goes to the end of `out`.
    fn call(&mut self, row: &'static Row, args: Args<'_>, proto: Proto, out: &mut Vec<u8>);
    /// The script runs longer than `patience`, and has written or not: called again and again; true if it is to end.
    fn while_busy(&mut self, has_written: bool) -> bool;
    /// A call is refused before it runs.
    fn refuse(&mut self, row: Option<&'static Row>, error: &[u8]);
}

/// What a script may do, and what it has done.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    is_read_only: bool,
    /// Memory was short when the script began, and it has not said that it does without.
    is_out_of_memory: bool,
    has_written: bool,
}

/// Buffers of a call from a script, reused.
#[derive(Default)]
struct Buffers {
    text: Vec<u8>,
    ranges: Vec<ArgRange>,
    out: Vec<u8>,
}

/// What the native functions of a state find behind it. Shared only, hence the cells.
struct Core {
    memory: Memory,
    /// The node, while a script runs and makes no call.
    host: Cell<Option<NonNull<dyn Host>>>,
    buffers: Cell<Buffers>,
    rules: Cell<Rules>,
    /// Of the replies that the script sees (`redis.setresp`).
    proto: Cell<Proto>,
    random: Cell<Random>,
    started: Cell<Instant>,
    patience: Cell<Duration>,
    /// The script is to end, whatever it catches.
    is_ending: Cell<bool>,
    json: RefCell<Vec<json::JsonOptions>>,
    /// A panic below Lua, on its way to the caller.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Tables that scripts may not change, by identity.
    protected: RefCell<Vec<usize>>,
    /// The stand-in for the table of globals, and what scripts see as its metatable and the strings' (kept).
    globals_identity: Cell<usize>,
    shown_metatables: Cell<(i32, i32)>,
}

impl Core {
    fn new() -> Self {
        Self {
            memory: Memory::default(),
            host: Cell::new(None),
            buffers: Cell::default(),
            rules: Cell::default(),
            proto: Cell::default(),
            random: Cell::new(Random::new(0)),
            started: Cell::new(Instant::now()),
            patience: Cell::default(),
            is_ending: Cell::new(false),
            json: RefCell::default(),
            panic: Cell::new(None),
            protected: RefCell::default(),
            globals_identity: Cell::new(0),
            shown_metatables: Cell::new((0, 0)),
        }
    }

    /// Runs with the node, which nobody else has meanwhile.
    fn with_host<R>(&self, run: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut host = self.host.take()?;
        // SAFETY: `Engine::run` has lent it for as long as it stands in the cell; taken out, it is nobody else's.
        let result = run(unsafe { host.as_mut() });
        self.host.set(Some(host));
        Some(result)
    }
}

/// A script compiled by this worker.
struct Compiled {
    source: Arc<Source>,
    /// The function, kept in Lua.
    function: i32,
}

/// A script that is ready to run.
#[derive(Clone, Copy)]
pub struct Program {
    /// The function, kept in Lua.
    function: i32,
    pub flags: ScriptFlags,
    sha: Sha,
}

/// One run of a script.
pub struct Run<'a> {
    /// All arguments of EVAL.
    pub args: Args<'a>,
    pub n_keys: usize,
    pub proto: Proto,
    /// By a command that is for reading alone.
    pub is_read_only: bool,
    pub is_out_of_memory: bool,
    /// How long it may run before others are told.
    pub patience: Duration,
}

/// Why a script has no reply of its own.
pub struct Failure {
    /// The error reply.
    pub text: Vec<u8>,
    /// A command of the script has failed by it, and was counted.
    pub is_counted: bool,
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self::Bytes(failure.text)
    }
}

/// A worker's Lua and its scripts.
pub struct Engine {
    state: State,
    scripts: HashMap<Sha, Compiled>,
    /// Scripts run since the collector's last step.
    n_since_step: u32,
    /// When so much is used after a script, everything is collected.
    much_bytes: usize,
}

/// As in Redis, the collector makes a step for so many scripts.
const STEP_EVERY: u32 = 50;
/// Memory of a state that is not worth a full collection.
const MUCH_BYTES: usize = 4 << 20;

impl Engine {
    pub fn new(memory_limit: usize) -> Self {
        let state = State::new(Box::new(Core::new()));
        state.lua.unrefused(|| sandbox::build(state.lua));
        state.core().memory.limit.set(memory_limit);
        Self { state, scripts: HashMap::default(), n_since_step: 0, much_bytes: MUCH_BYTES }
    }

    /// A script that this worker has compiled.
    #[inline]
    pub fn find(&mut self, sha: &Sha, registry: &Registry) -> Option<Program> {
        let compiled = self.scripts.get(sha)?;
        if compiled.source.is_gone() {
            self.state.lua.forget(compiled.function);
            self.scripts.remove(sha);
            return None;
        }
        registry.used(&compiled.source);
        Some(Program { function: compiled.function, flags: compiled.source.flags, sha: *sha })
    }

    /// Compiles a script.
    pub fn compile(&mut self, source: &Arc<Source>) -> Result<Program, CommandError> {
        let function = self.compile_text(source.code())?;
        if let Some(old) = self.scripts.insert(source.sha, Compiled { source: source.clone(), function }) {
            self.state.lua.forget(old.function);
        }
        Ok(Program { function, flags: source.flags, sha: source.sha })
    }

    fn compile_text(&mut self, code: &[u8]) -> Result<i32, CommandError> {
        let lua = self.state.lua;
        if lua.load(code, c"@user_script") != 0 {
            let why = lua.string(-1).unwrap_or(b"?");
            let error = [b"ERR Error compiling script (new function): ", why].concat();
            lua.pop(1);
            return Err(CommandError::Bytes(error));
        }
        Ok(lua.unrefused(|| lua.keep()))
    }

    /// Runs a compiled script, whose reply goes to the end of `out`.
    ///
    /// # Panics
    /// If a command that it calls does.
    pub fn run(
        &mut self,
        host: &mut dyn Host,
        program: Program,
        run: &Run<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let flags = program.flags;
        let rules = Rules {
            is_read_only: run.is_read_only || (!flags.is_compatible && flags.no_writes),
            is_out_of_memory: run.is_out_of_memory && (flags.is_compatible || !flags.allow_oom),
            has_written: false,
        };
        let lua = self.state.lua;
        lua.unrefused(|| {
            lua.push_kept(program.function);
            sandbox::set_arguments(lua, run);
        });
        self.state.core().patience.set(run.patience);
        self.call(host, rules, 0).map_err(|failed| failed.told_by(&registry::hex(&program.sha)))?;
        lua.unrefused(|| {
            convert::write_reply(lua, self.state.core().proto.get(), &mut Reply::new(out, run.proto))
        });
        self.tidy();
        Ok(())
    }

    /// Calls the function below its arguments; its result is on the top of the stack, unless it failed.
    fn call(&mut self, host: &mut dyn Host, rules: Rules, n_args: i32) -> Result<(), Failed> {
        let (lua, core) = (self.state.lua, self.state.core());
        core.rules.set(rules);
        core.proto.set(Proto::Resp2);
        // SAFETY: only the lifetime is widened. The pointer is taken out of the cell again before this function returns.
        let host: NonNull<dyn Host> = unsafe { std::mem::transmute(NonNull::from(host)) };
        core.host.set(Some(host));
        core.started.set(Instant::now());
        core.is_ending.set(false);
        lua.watch(lua::WATCH_EVERY);
        let status = lua.call_protected(n_args, 1, sandbox::HANDLER);
        core.host.set(None);
        lua.settle_memory();
        if let Some(panic) = core.panic.take() {
            lua.set_top(sandbox::N_FIXED);
            std::panic::resume_unwind(panic);
        }
        if status == 0 {
            return Ok(());
        }
        let failed = lua.unrefused(|| Failed::read(lua, status));
        lua.set_top(sandbox::N_FIXED);
        self.tidy();
        Err(failed)
    }

    /// After a script: garbage is collected little by little, and much of it at once.
    fn tidy(&mut self) {
        let lua = self.state.lua;
        lua.set_top(sandbox::N_FIXED);
        self.n_since_step += 1;
        let used = self.used_bytes();
        if used > self.much_bytes {
            lua.unrefused(|| lua.collect());
            self.much_bytes = (self.used_bytes() * 2).max(MUCH_BYTES);
            self.n_since_step = 0;
        } else if self.n_since_step >= STEP_EVERY {
            self.n_since_step = 0;
            lua.unrefused(|| lua.collect_step());
        }
    }

    /// Memory of this state.
    pub fn used_bytes(&self) -> usize {
        self.state.core().memory.used.get()
    }

    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.state.core().memory.limit.set(bytes);
    }
}

/// An error that ended a script, as Redis's handler leaves it.
struct Failed {
    message: Vec<u8>,
    place: Option<(Vec<u8>, Vec<u8>)>,
    is_counted: bool,
    /// Lua had no table for it.
    is_bare: bool,
}

impl Failed {
    fn read(lua: Lua, status: i32) -> Self {
        let mut failed = Self { message: Vec::new(), place: None, is_counted: false, is_bare: false };
        if status == LUA_ERRMEM || lua.kind(-1) != LUA_TTABLE {
            failed.is_bare = true;
            let text = lua.string(-1).unwrap_or(b"execution failure");
            failed.message = text[..text.len().min(100)].to_vec();
            return failed;
        }
        let field = |name: &[u8]| {
            lua.get_named(-1, name);
            let value = lua.string(-1).map(<[u8]>::to_vec);
            lua.pop(1);
            value
        };
        failed.message = field(b"err").unwrap_or_else(|| b"ERR unknown error".to_vec());
        failed.place = field(b"source").zip(field(b"line"));
        lua.get_named(-1, b"ignore_error_stats_update");
        failed.is_counted = lua.truth(-1);
        failed
    }

    /// The error reply of the script or function `name`.
    fn told_by(self, name: &str) -> Failure {
        let mut text = self.message;
        if self.is_bare {
            text = [b"ERR Error running script ", name.as_bytes(), b", ", &text].concat();
        } else if let Some((source, line)) = self.place {
            let place = [b" script: ", name.as_bytes(), b", on ", &source, b":", &line, b"."].concat();
            text.extend_from_slice(&place);
        }
        Failure { text, is_counted: self.is_counted }
    }
}
