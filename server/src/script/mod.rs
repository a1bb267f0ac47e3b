//! Scripts: Lua 5.1 in Redis's sandbox, a state for each worker.
//!
//! ```text
//!   EVAL ─► dispatch::scripts (which shards) ─► Engine::run ─► Lua ─► redis.call ─► api ─► Host::call (a node) ─► reply ─► convert ─► Lua
//! ```
//!
//! An `Engine` knows no node: whoever runs a script gives it a `Host` for that time. What it compiles is kept by the SHA-1 of its text
//! (`registry` holds the texts for all workers), functions by their names (`functions` holds the libraries). Scripts and functions
//! have a Lua state each, as in Redis; both go when what was compiled in them is flushed. Knows no shard and no client.
//!
//! Cost: a call from a script copies its arguments once, into a buffer that is reused, and reads its reply where it was written.

mod api;
mod bits;
mod convert;
pub mod functions;
mod json;
mod json_reader;
mod layout;
mod libraries;
mod library;
mod lua;
mod machine;
mod msgpack;
mod patterns;
mod proof;
mod random;
pub mod registry;
mod sandbox;
mod shebang;
mod strings;
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
use crate::rdb::LibraryTexts;
use functions::{Function, Functions, Library, Place, Policy};
use library::Callables;
use lua::Memory;
use machine::{Machine, Purpose};
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
    /// What a library has registered, while its code runs.
    loading: RefCell<Option<Vec<Registered>>>,
    json: RefCell<Vec<json::JsonOptions>>,
    /// A panic below Lua, on its way to the caller.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Tables that scripts may not change, by identity.
    protected: RefCell<Vec<usize>>,
    /// The stand-in for the table of globals, and what scripts see as its metatable and the strings' (kept).
    globals_identity: Cell<usize>,
    shown_metatables: Cell<(i32, i32)>,
    /// The real metatable of that stand-in, and the globals of a library that is being loaded (kept).
    switch: Cell<(i32, i32)>,
}

/// A function that a library has registered, and its Lua function (kept).
struct Registered {
    function: Function,
    reference: i32,
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
            loading: RefCell::new(None),
            json: RefCell::default(),
            panic: Cell::new(None),
            protected: RefCell::default(),
            globals_identity: Cell::new(0),
            shown_metatables: Cell::new((0, 0)),
            switch: Cell::new((0, 0)),
        }
    }

    /// Whether the code of a library runs.
    fn is_loading(&self) -> bool {
        self.loading.borrow().is_some()
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

/// A script or a function that is ready to run.
pub struct Program {
    /// The Lua function, kept.
    function: i32,
    pub flags: ScriptFlags,
    pub reach: Reach,
    pub name: Name,
}

/// What a program is called by.
pub enum Name {
    Script(Sha),
    Function(Place),
}

impl Name {
    /// As errors tell it.
    fn text(&self) -> Vec<u8> {
        match self {
            Self::Script(sha) => registry::hex(sha).into_bytes(),
            Self::Function((library, index)) => library.functions[*index].name.to_vec(),
        }
    }

    /// The function, if it is one.
    pub fn function(&self) -> Option<&Function> {
        match self {
            Self::Script(_) => None,
            Self::Function((library, index)) => Some(&library.functions[*index]),
        }
    }
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

impl Run<'_> {
    /// Where the keys begin among the arguments.
    const FIRST_KEY: usize = 3;

    fn n_arguments(&self) -> usize {
        self.args.len() - Self::FIRST_KEY - self.n_keys
    }
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

/// Scripts and the Lua state in which they are compiled.
struct Scripts {
    machine: Machine,
    compiled: HashMap<Sha, Compiled>,
}

/// A worker's Lua: what it has compiled, each state made when it is first needed.
pub struct Engine {
    memory_limit: usize,
    scripts: Option<Scripts>,
    callables: Option<Callables>,
    /// What the registries counted when this was last compared with them.
    n_flushes: u64,
    n_losses: u64,
}

impl Engine {
    pub fn new(memory_limit: usize) -> Self {
        Self { memory_limit, scripts: None, callables: None, n_flushes: 0, n_losses: 0 }
    }

    /// Forgets what has been flushed since, and the states that hold nothing else.
    #[inline]
    pub fn follow(&mut self, registry: &Registry, functions: &Functions) {
        if self.n_flushes != registry.n_flushes() {
            self.n_flushes = registry.n_flushes();
            self.scripts = None;
        }
        if self.n_losses != functions.n_losses() {
            self.n_losses = functions.n_losses();
            let is_left = self.callables.as_mut().is_some_and(Callables::forget_gone);
            if !is_left {
                self.callables = None;
            }
        }
    }

    fn scripts(&mut self) -> &mut Scripts {
        let memory_limit = self.memory_limit;
        self.scripts.get_or_insert_with(|| Scripts {
            machine: Machine::new(Purpose::Scripts, memory_limit),
            compiled: HashMap::default(),
        })
    }

    fn callables(&mut self) -> &mut Callables {
        let memory_limit = self.memory_limit;
        self.callables.get_or_insert_with(|| Callables::new(memory_limit))
    }

    /// A script that this worker has compiled.
    #[inline]
    pub fn find(&mut self, sha: &Sha, registry: &Registry) -> Option<Program> {
        let Scripts { machine, compiled } = self.scripts.as_mut()?;
        let found = compiled.get(sha)?;
        if found.source.is_gone() {
            machine.lua().forget(found.function);
            compiled.remove(sha);
            return None;
        }
        registry.used(&found.source);
        let Source { flags, reach, .. } = *found.source;
        Some(Program { function: found.function, flags, reach, name: Name::Script(*sha) })
    }

    /// Which shards a script touches that this worker has compiled.
    pub fn known_reach(&self, sha: &Sha) -> Option<Reach> {
        let found = self.scripts.as_ref()?.compiled.get(sha)?;
        (!found.source.is_gone()).then_some(found.source.reach)
    }

    /// The same of a function.
    pub fn known_reach_of_function(&self, name: &[u8], functions: &Functions) -> Option<Reach> {
        let callables = self.callables.as_ref().filter(|_| self.n_losses == functions.n_losses())?;
        callables.get(name).map(|program| program.reach)
    }

    /// Compiles a script.
    pub fn compile(&mut self, source: &Arc<Source>) -> Result<Program, CommandError> {
        let Scripts { machine, compiled } = self.scripts();
        let function = machine.compile(source.code(), c"@user_script").map_err(|why| {
            CommandError::Bytes([b"ERR Error compiling script (new function): ".as_slice(), &why].concat())
        })?;
        if let Some(old) = compiled.insert(source.sha, Compiled { source: source.clone(), function }) {
            machine.lua().forget(old.function);
        }
        let Source { flags, reach, sha, .. } = **source;
        Ok(Program { function, flags, reach, name: Name::Script(sha) })
    }

    /// A function by its name.
    pub fn find_function(&mut self, name: &[u8], functions: &Functions) -> Result<Program, CommandError> {
        if let Some(callables) = &self.callables
            && let Some(program) = callables.get(name)
        {
            return Ok(program);
        }
        let (library, index) = functions.find(name).ok_or(CommandError::text("ERR Function not found"))?;
        self.callables().load_known(&library)?;
        let name = &library.functions[index].name;
        self.callables().get(name).ok_or(CommandError::text("ERR Function not found"))
    }

    /// Runs the code of a library and takes it in.
    pub fn load_library(
        &mut self,
        text: &[u8],
        policy: Policy,
        functions: &Functions,
    ) -> Result<Arc<Library>, CommandError> {
        self.callables().load(text, policy, functions)
    }

    /// The same for those of a payload, all or none.
    pub fn restore_libraries(
        &mut self,
        texts: LibraryTexts<'_>,
        policy: Policy,
        functions: &Functions,
    ) -> Result<(), CommandError> {
        self.callables().restore(texts, policy, functions)
    }

    /// Runs a program, whose reply goes to the end of `out`.
    ///
    /// # Panics
    /// If a command that it calls does.
    pub fn run(
        &mut self,
        host: &mut dyn Host,
        program: &Program,
        run: &Run<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let flags = program.flags;
        let rules = Rules {
            is_read_only: run.is_read_only || (!flags.is_compatible && flags.no_writes),
            is_out_of_memory: run.is_out_of_memory && (flags.is_compatible || !flags.allow_oom),
            has_written: false,
        };
        let is_function = matches!(program.name, Name::Function(_));
        let machine = if is_function { &mut self.callables().machine } else { &mut self.scripts().machine };
        let lua = machine.lua();
        lua.unrefused(|| {
            lua.push_kept(program.function);
            if is_function {
                sandbox::push_strings(lua, run, Run::FIRST_KEY, run.n_keys);
                sandbox::push_strings(lua, run, Run::FIRST_KEY + run.n_keys, run.n_arguments());
            } else {
                sandbox::set_arguments(lua, run);
            }
        });
        let n_args = if is_function { 2 } else { 0 };
        machine
            .call(host, rules, run.patience, n_args)
            .map_err(|failed| failed.told_by(&program.name.text()))?;
        machine.reply(&mut Reply::new(out, run.proto));
        Ok(())
    }

    /// Memory of the states of scripts and of functions.
    pub fn used_bytes(&self) -> (usize, usize) {
        let of_scripts = self.scripts.as_ref().map_or(0, |scripts| scripts.machine.used_bytes());
        (of_scripts, self.callables.as_ref().map_or(0, |callables| callables.machine.used_bytes()))
    }

    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.memory_limit = bytes;
        if let Some(scripts) = &self.scripts {
            scripts.machine.set_memory_limit(bytes);
        }
        if let Some(callables) = &self.callables {
            callables.machine.set_memory_limit(bytes);
        }
    }
}
