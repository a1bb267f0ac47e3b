//! A Lua state with its sandbox, and how something is run in it.
//!
//! Knows what runs only as a function on Lua's stack: scripts are found in `Engine`, functions in `library`.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use skerry_resp::reply::{Proto, Reply};

use super::lua::{LUA_ERRMEM, LUA_TTABLE, Lua, State, WATCH_EVERY};
use super::{Core, Failure, Host, Registered, Rules, convert, sandbox};

/// What a state is for. What scripts see differs a little, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Scripts,
    Functions,
}

pub(super) struct Machine {
    state: State,
    /// Runs since the collector's last step.
    n_since_step: u32,
    /// When so much is used after a run, everything is collected.
    much_bytes: usize,
}

/// As in Redis, the collector makes a step for so many scripts.
const STEP_EVERY: u32 = 50;
/// Memory of a state that is not worth a full collection.
const MUCH_BYTES: usize = 1 << 20;

impl Machine {
    pub(super) fn new(purpose: Purpose, memory_limit: usize) -> Self {
        let state = State::new(Box::new(Core::new()));
        state.lua.unrefused(|| sandbox::build(state.lua, purpose));
        state.core().memory.limit.set(memory_limit);
        Self { state, n_since_step: 0, much_bytes: MUCH_BYTES }
    }

    pub(super) fn lua(&self) -> Lua {
        self.state.lua
    }

    /// Compiles text: the function, kept, or why it is none.
    pub(super) fn compile(&mut self, code: &[u8], name: &CStr) -> Result<i32, Vec<u8>> {
        let lua = self.state.lua;
        if lua.load(code, name) != 0 {
            let why = lua.string(-1).unwrap_or(b"?").to_vec();
            lua.pop(1);
            return Err(why);
        }
        Ok(lua.unrefused(|| lua.keep()))
    }

    /// Calls the function below its arguments; its result is on the top of the stack, unless it failed.
    pub(super) fn call(
        &mut self,
        host: &mut dyn Host,
        rules: Rules,
        patience: Duration,
        n_args: i32,
    ) -> Result<(), Failed> {
        let lua = self.state.lua;
        // SAFETY: only the lifetime is widened. The pointer is taken out of the cell again before this function returns.
        let host: NonNull<dyn Host> = unsafe { std::mem::transmute(NonNull::from(host)) };
        self.state.core().host.set(Some(host));
        let status = self.call_watched(rules, patience, n_args, sandbox::HANDLER);
        self.state.core().host.set(None);
        self.go_on_with_panic();
        if status == 0 {
            return Ok(());
        }
        let failed = lua.unrefused(|| Failed::read(lua, status));
        self.tidy();
        Err(failed)
    }

    fn call_watched(&mut self, rules: Rules, patience: Duration, n_args: i32, handler: i32) -> i32 {
        let (lua, core) = (self.state.lua, self.state.core());
        core.rules.set(rules);
        core.proto.set(Proto::Resp2);
        core.patience.set(patience);
        core.started.set(Instant::now());
        core.is_ending.set(false);
        lua.watch(WATCH_EVERY);
        let status = lua.call_protected(n_args, i32::from(handler > 0), handler);
        lua.settle_memory();
        status
    }

    fn go_on_with_panic(&self) {
        if let Some(panic) = self.state.core().panic.take() {
            self.state.lua.set_top(sandbox::N_FIXED);
            std::panic::resume_unwind(panic);
        }
    }

    /// The result on the top of the stack as a reply.
    pub(super) fn reply(&mut self, reply: &mut Reply<'_>) {
        let lua = self.state.lua;
        lua.unrefused(|| convert::write_reply(lua, self.state.core().proto.get(), reply));
        self.tidy();
    }

    /// Runs the code of a library, which sees nothing but the loader's table: what it has registered, or Redis's words for why not.
    pub(super) fn load_library(
        &mut self,
        code: &[u8],
        patience: Duration,
    ) -> Result<Vec<Registered>, Vec<u8>> {
        let lua = self.state.lua;
        let function = self
            .compile(code, c"@user_function")
            .map_err(|why| [b"ERR Error compiling function: ".as_slice(), &why].concat())?;
        lua.unrefused(|| {
            lua.push_kept(function);
            lua.forget(function);
            sandbox::show_loader(lua);
        });
        self.state.core().loading.replace(Some(Vec::new()));
        let status = self.call_watched(Rules::default(), patience, 0, 0);
        let registered = self.state.core().loading.take().unwrap_or_default();
        lua.unrefused(|| sandbox::show_globals(lua));
        self.go_on_with_panic();
        if status == 0 {
            self.tidy();
            return Ok(registered);
        }
        let failed = lua.unrefused(|| Failed::read(lua, status));
        registered.into_iter().for_each(|registered| lua.forget(registered.reference));
        self.tidy();
        let code: &[u8] = if failed.is_bare { b"ERR " } else { b"" };
        Err([b"ERR Error registering functions: ", code, &failed.message].concat())
    }

    /// After a run: garbage is collected little by little, and much of it at once.
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
    pub(super) fn used_bytes(&self) -> usize {
        self.state.core().memory.used.get()
    }

    pub(super) fn set_memory_limit(&self, bytes: usize) {
        self.state.core().memory.limit.set(bytes);
    }
}

/// An error that ended a script, as Redis's handler leaves it.
pub(super) struct Failed {
    message: Vec<u8>,
    place: Option<(Vec<u8>, Vec<u8>)>,
    is_counted: bool,
    /// Lua had no table for it.
    is_bare: bool,
}

/// What Redis shows of an error for which there is no table.
const MAX_BARE: usize = 100;

impl Failed {
    fn read(lua: Lua, status: i32) -> Self {
        let mut failed = Self { message: Vec::new(), place: None, is_counted: false, is_bare: false };
        if status == LUA_ERRMEM || lua.kind(-1) != LUA_TTABLE {
            failed.is_bare = true;
            failed.message = lua.string(-1).unwrap_or(b"execution failure").to_vec();
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
    pub(super) fn told_by(self, name: &[u8]) -> Failure {
        let mut text = self.message;
        if self.is_bare {
            text.truncate(MAX_BARE);
            text = [b"ERR Error running script ", name, b", ", &text].concat();
        } else if let Some((source, line)) = self.place {
            let place = [b" script: ", name, b", on ", &source, b":", &line, b"."].concat();
            text.extend_from_slice(&place);
        }
        // In Redis the line ends here, and what follows is no reply.
        if let Some(end) = memchr::memmem::find(&text, b"\r\n") {
            text.truncate(end);
        }
        Failure { text, is_counted: self.is_counted }
    }
}
