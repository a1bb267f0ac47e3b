//! Lua 5.1 behind a narrow door: the only file that calls its C interface.
//!
//! Lua's own errors are long jumps. Rust frames that own something must never be jumped over, so:
//!
//! - While native code of ours runs (`enter`), the allocator refuses nothing: no call below can then fail, but for those that are
//!   named `*_or_raise` in Lua's manual, and none of these is used. What native code makes is bounded by what it was given; the
//!   limit on memory is looked at when it returns, and by the allocator while Lua itself runs.
//! - A native function returns its error as a value (`Raise`). `enter` raises it as its very last act, when nothing is owned.
//! - A panic inside a native function is kept (`Core::panic`), becomes a Lua error, and goes on when Lua has returned.
//!
//! Invariants of a caller inside `script`: an index is absolute and positive, or below 0 and within the stack; whoever pushes more
//! than a dozen values asks for room first (`Lua::room`). mlua's safe layer is not used: it wraps errors in values of its own, where
//! Redis's error tables must come through as they are, and takes several allocations and protected calls for each call of a function.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use mlua_sys as ffi;

use super::Core;
pub(super) use mlua_sys::{
    LUA_ERRMEM, LUA_TBOOLEAN, LUA_TFUNCTION, LUA_TLIGHTUSERDATA, LUA_TNIL, LUA_TNONE, LUA_TNUMBER,
    LUA_TSTRING, LUA_TTABLE,
};

/// A Lua thread. Copied freely; it lives as long as the `State` it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Lua(*mut ffi::lua_State);

/// What a native function of ours is.
pub(super) type Native = fn(Lua) -> Result<c_int, Raise>;
/// The same as Lua calls it.
pub(super) type Entry = ffi::lua_CFunction;

/// An error on its way to Lua.
pub(super) enum Raise {
    /// A text, with the place of the calling Lua function in front if there is one.
    Error(Vec<u8>),
    /// A text as it is.
    Plain(Vec<u8>),
    /// A bad argument: its number and what is wrong with it.
    Argument(c_int, Vec<u8>),
    /// The value on the top of the stack.
    Top,
}

impl Raise {
    pub(super) fn text(text: &str) -> Self {
        Self::Error(text.as_bytes().to_vec())
    }

    pub(super) fn argument(number: c_int, text: &str) -> Self {
        Self::Argument(number, text.as_bytes().to_vec())
    }
}

/// Memory of one state, in bytes.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) used: Cell<usize>,
    /// 0: none.
    pub(super) limit: Cell<usize>,
    /// Native code of ours runs (so deep): it gets what it asks for.
    n_native: Cell<u32>,
}

impl Memory {
    fn is_over(&self) -> bool {
        self.limit.get() > 0 && self.used.get() > self.limit.get()
    }
}

/// Makes an `Entry` of a `Native`.
macro_rules! native {
    ($function:expr) => {{
        /// # Safety
        /// Lua calls it with a thread of a `State`.
        unsafe extern "C-unwind" fn entry(l: *mut mlua_sys::lua_State) -> std::ffi::c_int {
            // SAFETY: the caller's promise.
            unsafe { $crate::script::lua::enter(l, $function) }
        }
        entry as $crate::script::lua::Entry
    }};
}
pub(super) use native;

/// Runs a native function for Lua.
/// # Safety
/// `l` is a thread of a `State`, and Lua is the caller.
#[inline]
pub(super) unsafe fn enter(l: *mut ffi::lua_State, function: Native) -> c_int {
    let lua = Lua(l);
    let memory = &lua.core().memory;
    memory.n_native.set(memory.n_native.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(|| function(lua)));
    match outcome {
        Ok(Ok(n)) => {
            if !memory.is_over() {
                memory.n_native.set(memory.n_native.get() - 1);
                return n;
            }
            lua.collect();
            if !memory.is_over() {
                memory.n_native.set(memory.n_native.get() - 1);
                return n;
            }
            // What the function has pushed may leave no room.
            lua.set_top(0);
            lua.push_string(b"not enough memory");
        }
        Ok(Err(raise)) => lua.push_raise(raise),
        Err(panic) => {
            lua.core().panic.set(Some(panic));
            lua.set_top(0);
            lua.push_string(b"internal error");
        }
    }
    memory.n_native.set(memory.n_native.get() - 1);
    // SAFETY: the error value is on the top of the stack, and this frame owns nothing any more; nor do those of `function`, which
    // has returned.
    unsafe { ffi::lua_error(l) }
}

/// Lua's allocator: the process's, counted.
/// # Safety
/// `ud` is the `Core` of the state, `ptr` a block of `old` bytes of this allocator, or null.
unsafe extern "C" fn allocate(ud: *mut c_void, ptr: *mut c_void, old: usize, new: usize) -> *mut c_void {
    const ALIGN: usize = 8;
    // SAFETY: the caller's promise; the record is only ever shared.
    let memory = unsafe { &(*ud.cast::<Core>()).memory };
    let old = if ptr.is_null() { 0 } else { old };
    // SAFETY: no size below is an overflow when rounded up, and the alignment is a power of two.
    let layout = |size: usize| unsafe { Layout::from_size_align_unchecked(size, ALIGN) };
    if new == 0 {
        if old > 0 {
            memory.used.set(memory.used.get() - old);
            // SAFETY: the block is ours, of `old` bytes.
            unsafe { dealloc(ptr.cast(), layout(old)) };
        }
        return null_mut();
    }
    if new > old {
        let used = memory.used.get().saturating_add(new - old);
        let limit = memory.limit.get();
        if (memory.n_native.get() == 0 && limit > 0 && used > limit) || new > isize::MAX as usize / 2 {
            return null_mut();
        }
    }
    // SAFETY: `new` is above 0 and no overflow; the old block is ours, of `old` bytes.
    let block = unsafe {
        match old {
            0 => alloc(layout(new)),
            _ => realloc(ptr.cast(), layout(old), new),
        }
    };
    if block.is_null() {
        // A smaller block may not be refused.
        return if new <= old { ptr } else { null_mut() };
    }
    memory.used.set(memory.used.get() - old + new);
    block.cast()
}

/// A Lua state and what belongs to it.
pub(super) struct State {
    pub(super) lua: Lua,
    core: *mut Core,
}

impl State {
    /// An empty state: no libraries.
    pub(super) fn new(core: Box<Core>) -> Self {
        let core = Box::into_raw(core);
        // SAFETY: the allocator and its record outlive the state (`drop`).
        let l = unsafe { ffi::lua_newstate(allocate, core.cast()) };
        assert!(!l.is_null(), "no memory for a Lua state");
        Self { lua: Lua(l), core }
    }

    pub(super) fn core(&self) -> &Core {
        // SAFETY: it lives as long as the state, and is only ever shared.
        unsafe { &*self.core }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: both are ours alone, and nothing of them is used after this.
        unsafe {
            ffi::lua_close(self.lua.0);
            drop(Box::from_raw(self.core));
        }
    }
}

/// What a chunk, or a call, ended with.
pub(super) type Status = c_int;

// The calls below are safe under the module's invariants.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one argument for all: the invariants at the top of this file"
)]
impl Lua {
    /// The record behind the state.
    #[inline]
    pub(super) fn core<'a>(self) -> &'a Core {
        let mut ud = null_mut();
        unsafe { ffi::lua_getallocf(self.0, &mut ud) };
        unsafe { &*ud.cast::<Core>() }
    }

    /// Runs with the allocator refusing nothing, outside any native function.
    pub(super) fn unrefused<R>(self, run: impl FnOnce() -> R) -> R {
        let memory = &self.core().memory;
        memory.n_native.set(memory.n_native.get() + 1);
        let result = run();
        memory.n_native.set(memory.n_native.get() - 1);
        result
    }

    /// The allocator refuses again, whatever was under way: Lua has just returned to us.
    pub(super) fn settle_memory(self) {
        self.core().memory.n_native.set(0);
    }

    #[inline]
    pub(super) fn top(self) -> c_int {
        unsafe { ffi::lua_gettop(self.0) }
    }

    #[inline]
    pub(super) fn set_top(self, top: c_int) {
        unsafe { ffi::lua_settop(self.0, top) }
    }

    #[inline]
    pub(super) fn pop(self, n: c_int) {
        unsafe { ffi::lua_settop(self.0, -n - 1) }
    }

    /// Makes room for `n` more values; false if Lua's stack would be too long.
    #[inline]
    pub(super) fn room(self, n: c_int) -> bool {
        unsafe { ffi::lua_checkstack(self.0, n) != 0 }
    }

    #[inline]
    pub(super) fn push_copy(self, index: c_int) {
        unsafe { ffi::lua_pushvalue(self.0, index) }
    }

    pub(super) fn insert(self, index: c_int) {
        unsafe { ffi::lua_insert(self.0, index) }
    }

    pub(super) fn remove(self, index: c_int) {
        unsafe { ffi::lua_remove(self.0, index) }
    }

    pub(super) fn replace(self, index: c_int) {
        unsafe { ffi::lua_replace(self.0, index) }
    }

    #[inline]
    pub(super) fn kind(self, index: c_int) -> c_int {
        unsafe { ffi::lua_type(self.0, index) }
    }

    pub(super) fn kind_name(self, index: c_int) -> &'static str {
        let name = unsafe { CStr::from_ptr(ffi::lua_typename(self.0, self.kind(index))) };
        name.to_str().unwrap_or("?")
    }

    #[inline]
    pub(super) fn is_nil(self, index: c_int) -> bool {
        self.kind(index) <= LUA_TNIL
    }

    /// As Lua sees it: nil and false are false.
    #[inline]
    pub(super) fn truth(self, index: c_int) -> bool {
        unsafe { ffi::lua_toboolean(self.0, index) != 0 }
    }

    /// A number, or a string that reads as one.
    #[inline]
    pub(super) fn number(self, index: c_int) -> Option<f64> {
        let number = unsafe { ffi::lua_tonumber(self.0, index) };
        (number != 0.0 || unsafe { ffi::lua_isnumber(self.0, index) } != 0).then_some(number)
    }

    /// The bytes of a string (a number becomes one, in place). They live as long as the value stays on the stack.
    #[inline]
    pub(super) fn string<'a>(self, index: c_int) -> Option<&'a [u8]> {
        let mut len = 0;
        let start = unsafe { ffi::lua_tolstring(self.0, index, &mut len) };
        match start.is_null() {
            true => None,
            // SAFETY: the string's own bytes; the caller keeps the value where it is.
            false => Some(unsafe { std::slice::from_raw_parts(start.cast(), len) }),
        }
    }

    /// The bytes of a string; nothing for a number.
    #[inline]
    pub(super) fn real_string<'a>(self, index: c_int) -> Option<&'a [u8]> {
        if self.kind(index) == LUA_TSTRING { self.string(index) } else { None }
    }

    /// What tells two tables or functions apart.
    #[inline]
    pub(super) fn identity(self, index: c_int) -> usize {
        unsafe { ffi::lua_topointer(self.0, index) as usize }
    }

    #[inline]
    pub(super) fn len(self, index: c_int) -> usize {
        unsafe { ffi::lua_objlen(self.0, index) }
    }

    #[inline]
    pub(super) fn push_nil(self) {
        unsafe { ffi::lua_pushnil(self.0) }
    }

    #[inline]
    pub(super) fn push_bool(self, value: bool) {
        unsafe { ffi::lua_pushboolean(self.0, value.into()) }
    }

    #[inline]
    pub(super) fn push_number(self, value: f64) {
        unsafe { ffi::lua_pushnumber(self.0, value) }
    }

    #[inline]
    pub(super) fn push_string(self, bytes: &[u8]) {
        unsafe { ffi::lua_pushlstring_(self.0, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// A light userdata that is null (`cjson.null`).
    pub(super) fn push_null(self) {
        unsafe { ffi::lua_pushlightuserdata(self.0, null_mut()) }
    }

    pub(super) fn is_null_userdata(self, index: c_int) -> bool {
        self.kind(index) == LUA_TLIGHTUSERDATA && unsafe { ffi::lua_touserdata(self.0, index) }.is_null()
    }

    #[inline]
    pub(super) fn push_table(self, n_array: usize, n_hash: usize) {
        const MAX: usize = 1 << 26;
        unsafe { ffi::lua_createtable(self.0, n_array.min(MAX) as c_int, n_hash.min(MAX) as c_int) }
    }

    /// A function of ours with the `n_upvalues` values on the top of the stack.
    pub(super) fn push_native(self, entry: Entry, n_upvalues: c_int) {
        unsafe { ffi::lua_pushcclosure(self.0, entry, n_upvalues) }
    }

    pub(super) const fn upvalue(n: c_int) -> c_int {
        ffi::lua_upvalueindex(n)
    }

    /// `table[key]`, the key on the top of the stack, which the value replaces. No metamethods.
    #[inline]
    pub(super) fn get(self, table: c_int) {
        unsafe { ffi::lua_rawget_(self.0, table) }
    }

    #[inline]
    pub(super) fn get_at(self, table: c_int, n: c_int) {
        unsafe { ffi::lua_rawgeti_(self.0, table, n) }
    }

    /// `table[name]` onto the stack. No metamethods.
    #[inline]
    pub(super) fn get_named(self, table: c_int, name: &[u8]) {
        let table = if table < 0 && table > ffi::LUA_REGISTRYINDEX { table - 1 } else { table };
        self.push_string(name);
        self.get(table);
    }

    /// `table[key] = value`, both taken from the stack. The key is neither nil nor NaN. No metamethods.
    #[inline]
    pub(super) fn set(self, table: c_int) {
        unsafe { ffi::lua_rawset(self.0, table) }
    }

    #[inline]
    pub(super) fn set_at(self, table: c_int, n: c_int) {
        unsafe { ffi::lua_rawseti_(self.0, table, n) }
    }

    /// `table[name] = value`, the value taken from the stack. No metamethods.
    pub(super) fn set_named(self, table: c_int, name: &[u8]) {
        let table = if table < 0 && table > ffi::LUA_REGISTRYINDEX { table - 1 } else { table };
        self.push_string(name);
        self.insert(-2);
        self.set(table);
    }

    /// The pair behind the key on the top of the stack, which is replaced; false at the end. The key is of the table.
    #[inline]
    pub(super) fn next(self, table: c_int) -> bool {
        unsafe { ffi::lua_next(self.0, table) != 0 }
    }

    /// The metatable onto the stack, if there is one.
    #[inline]
    pub(super) fn metatable(self, index: c_int) -> bool {
        unsafe { ffi::lua_getmetatable(self.0, index) != 0 }
    }

    /// Gives a value the metatable on the top of the stack.
    pub(super) fn set_metatable(self, index: c_int) {
        unsafe { ffi::lua_setmetatable(self.0, index) };
    }

    pub(super) const GLOBALS: c_int = ffi::LUA_GLOBALSINDEX;
    pub(super) const REGISTRY: c_int = ffi::LUA_REGISTRYINDEX;

    /// Keeps the value on the top of the stack under a number.
    pub(super) fn keep(self) -> c_int {
        unsafe { ffi::luaL_ref(self.0, Self::REGISTRY) }
    }

    pub(super) fn forget(self, reference: c_int) {
        unsafe { ffi::luaL_unref(self.0, Self::REGISTRY, reference) }
    }

    #[inline]
    pub(super) fn push_kept(self, reference: c_int) {
        self.get_at(Self::REGISTRY, reference);
    }

    /// Calls the function below its `n_args` arguments. `handler` is where the error function stands. 0, or an error's number with the
    /// error on the top of the stack.
    #[inline]
    pub(super) fn call_protected(self, n_args: c_int, n_results: c_int, handler: c_int) -> Status {
        unsafe { ffi::lua_pcall(self.0, n_args, n_results, handler) }
    }

    /// The same for native code: Lua runs under its limits meanwhile. The results lie from the function's place on.
    pub(super) fn call_from_native(self, n_args: c_int, handler: c_int) -> Status {
        let native = &self.core().memory.n_native;
        let depth = native.replace(0);
        let function = self.top() - n_args;
        let status = self.call_protected(n_args, ffi::LUA_MULTRET, handler);
        native.set(depth);
        // Any number of results has come; what is pushed on top of them needs its room.
        const ROOM: c_int = 4;
        if status == 0 && !self.room(ROOM) {
            self.set_top(function - 1);
            self.push_string(b"stack overflow");
            return ffi::LUA_ERRRUN;
        }
        status
    }

    /// An error if `bytes` more than there are would be too many.
    pub(super) fn check_memory(self, bytes: usize) -> Result<(), Raise> {
        let Memory { used, limit, .. } = &self.core().memory;
        match limit.get() > 0 && used.get().saturating_add(bytes) > limit.get() {
            true => Err(Raise::Plain(b"not enough memory".to_vec())),
            false => Ok(()),
        }
    }

    /// Compiles text (never bytecode): the function, or the error's text with a number above 0.
    pub(super) fn load(self, text: &[u8], name: &CStr) -> Status {
        if text.first() == Some(&ffi::LUA_SIGNATURE[0]) {
            self.push_string(b"attempt to load a binary chunk");
            return ffi::LUA_ERRSYNTAX;
        }
        // The parser makes a string of the name that nothing else may hold (CVE-2025-49844): the same string lies here meanwhile.
        self.unrefused(|| self.push_string(name.to_bytes()));
        let status = unsafe { ffi::luaL_loadbuffer(self.0, text.as_ptr().cast(), text.len(), name.as_ptr()) };
        self.remove(-2);
        status
    }

    /// The place of the function at `level`: whether it is native, its source, its line.
    pub(super) fn place<'a>(self, level: c_int) -> Option<(bool, &'a [u8], c_int)> {
        let mut debug = std::mem::MaybeUninit::<ffi::lua_Debug>::zeroed();
        unsafe {
            if ffi::lua_getstack(self.0, level, debug.as_mut_ptr()) == 0
                || ffi::lua_getinfo(self.0, c"Sl".as_ptr(), debug.as_mut_ptr()) == 0
            {
                return None;
            }
            let debug = debug.assume_init();
            let is_native = *debug.what == b'C' as c_char;
            Some((is_native, CStr::from_ptr(debug.source).to_bytes(), debug.currentline))
        }
    }

    /// Puts the error of a native function on the stack.
    #[cold]
    fn push_raise(self, raise: Raise) {
        if !matches!(raise, Raise::Top) {
            // What the function has pushed may leave no room.
            self.set_top(0);
        }
        match raise {
            Raise::Error(text) => {
                let text = self.placed_text(1, text);
                self.push_string(&text);
            }
            Raise::Plain(text) => self.push_string(&text),
            Raise::Argument(number, text) => {
                let text = self.argument_text(number, &text);
                let text = self.placed_text(1, text);
                self.push_string(&text);
            }
            Raise::Top => {}
        }
    }

    /// A text with the place of the function at `level` in front, if that is Lua.
    pub(super) fn placed_text(self, level: c_int, text: Vec<u8>) -> Vec<u8> {
        let mut debug = std::mem::MaybeUninit::<ffi::lua_Debug>::zeroed();
        unsafe {
            if ffi::lua_getstack(self.0, level, debug.as_mut_ptr()) == 0
                || ffi::lua_getinfo(self.0, c"Sl".as_ptr(), debug.as_mut_ptr()) == 0
            {
                return text;
            }
            let debug = debug.assume_init();
            if debug.currentline <= 0 {
                return text;
            }
            let source = CStr::from_ptr(debug.short_src.as_ptr()).to_bytes();
            [source, b":", debug.currentline.to_string().as_bytes(), b": ", &text].concat()
        }
    }

    /// Lua's words for a bad argument of the native function that runs.
    fn argument_text(self, mut number: c_int, text: &[u8]) -> Vec<u8> {
        let mut debug = std::mem::MaybeUninit::<ffi::lua_Debug>::zeroed();
        let (name, is_method) = unsafe {
            if ffi::lua_getstack(self.0, 0, debug.as_mut_ptr()) == 0
                || ffi::lua_getinfo(self.0, c"n".as_ptr(), debug.as_mut_ptr()) == 0
            {
                (b"?".as_slice(), false)
            } else {
                let debug = debug.assume_init();
                let name = match debug.name.is_null() {
                    true => b"?".as_slice(),
                    false => CStr::from_ptr(debug.name).to_bytes(),
                };
                (name, CStr::from_ptr(debug.namewhat).to_bytes() == b"method")
            }
        };
        if is_method {
            number -= 1;
            if number == 0 {
                return [b"calling '", name, b"' on bad self (", text, b")"].concat();
            }
        }
        [b"bad argument #", number.to_string().as_bytes(), b" to '", name, b"' (", text, b")"].concat()
    }

    /// Has the hook called every `n` instructions of this thread, and of those it makes from here on.
    pub(super) fn watch(self, n: c_int) {
        unsafe { ffi::lua_sethook(self.0, Some(hook), ffi::LUA_MASKCOUNT, n) };
    }

    /// Whether the script is to end: looks at the clock, and asks the host if it runs too long.
    fn is_to_end(self) -> bool {
        let core = self.core();
        if core.is_ending.get() {
            return true;
        }
        if core.started.get().elapsed() < core.patience.get() {
            return false;
        }
        if core.is_loading() {
            core.is_ending.set(true);
            return true;
        }
        let has_written = core.rules.get().has_written;
        let look = AssertUnwindSafe(|| core.with_host(|host| host.while_busy(has_written)));
        match catch_unwind(look) {
            Ok(Some(true)) => {}
            Ok(_) => return false,
            Err(panic) => core.panic.set(Some(panic)),
        }
        core.is_ending.set(true);
        true
    }

    /// What ends a script that is to end.
    fn why_ended(self) -> &'static [u8] {
        if self.core().is_loading() {
            b"FUNCTION LOAD timeout"
        } else {
            b"Script killed by user with SCRIPT KILL..."
        }
    }

    /// An error if the script is known to be to end: no `pcall` of its own may hold it back.
    pub(super) fn go_on(self) -> Result<(), Raise> {
        match self.core().is_ending.get() {
            true => Err(Raise::Plain(self.why_ended().to_vec())),
            false => Ok(()),
        }
    }

    /// For long native code, now and then: an error if the script is to end.
    pub(super) fn look(self) -> Result<(), Raise> {
        match self.is_to_end() {
            true => {
                self.watch(1);
                Err(Raise::Plain(self.why_ended().to_vec()))
            }
            false => Ok(()),
        }
    }

    /// Opens a standard library.
    pub(super) fn open(self, library: Library) {
        let open = match library {
            Library::Base => ffi::luaopen_base,
            Library::Table => ffi::luaopen_table,
            Library::String => ffi::luaopen_string,
            Library::Math => ffi::luaopen_math,
            Library::Os => ffi::luaopen_os,
        };
        unsafe {
            ffi::lua_pushcclosure(self.0, open, 0);
            ffi::lua_call(self.0, 0, 0);
        }
    }

    pub(super) fn collect(self) {
        unsafe { ffi::lua_gc(self.0, ffi::LUA_GCCOLLECT, 0) };
    }

    /// A step of the collector; it runs again if a script has stopped it.
    pub(super) fn collect_step(self) {
        unsafe {
            ffi::lua_gc(self.0, ffi::LUA_GCSTEP, 1);
        }
    }
}

/// The standard libraries that scripts see a part of.
#[derive(Clone, Copy)]
pub(super) enum Library {
    Base,
    Table,
    String,
    Math,
    Os,
}

/// Instructions between two looks at the clock, as in Redis.
pub(super) const WATCH_EVERY: c_int = 100_000;

/// Looks at the clock, and ends a script that is to end: again at every instruction, whatever it catches.
/// # Safety
/// Lua calls it with a thread of a `State`.
unsafe extern "C-unwind" fn hook(l: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    let lua = Lua(l);
    if !lua.is_to_end() {
        return;
    }
    lua.watch(1);
    lua.unrefused(|| lua.push_string(lua.why_ended()));
    // SAFETY: the error is on the top of the stack, and this frame owns nothing.
    unsafe { ffi::lua_error(l) };
}
