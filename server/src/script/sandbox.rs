//! What scripts see of Lua, and what they may not change.
//!
//! Redis has patched Lua so that a table can be made read-only. Here such a table lies behind an empty stand-in whose metatable
//! reads from it and refuses writes; the few functions of the base library that would see the difference (`next`, `rawset`,
//! `getmetatable` and their like) look for stand-ins first. Scripts get stand-ins alone, `_G` too, so nothing that one script does is
//! seen by the next.
//!
//! At the bottom of the stack of the main thread lie, for good: the error handler, the globals, and the names KEYS and ARGV.

use super::lua::{
    LUA_TBOOLEAN, LUA_TNIL, LUA_TNONE, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Library, Lua, Raise, native,
};
use super::machine::Purpose;
use super::{Run, api, libraries};

/// Where the error handler stands.
pub(super) const HANDLER: i32 = 1;
const GLOBALS: i32 = 2;
const KEYS: i32 = 3;
const ARGV: i32 = 4;
/// So many values stay on the stack.
pub(super) const N_FIXED: i32 = 4;

/// Names of the base library that scripts have, as in Redis.
const ALLOWED: &[&[u8]] = &[
    b"_VERSION",
    b"assert",
    b"collectgarbage",
    b"coroutine",
    b"error",
    b"gcinfo",
    b"ipairs",
    b"math",
    b"os",
    b"rawequal",
    b"select",
    b"string",
    b"table",
    b"tonumber",
    b"tostring",
    b"type",
    b"xpcall",
];

const READ_ONLY: &str = "Attempt to modify a readonly table";

/// Fills a new state.
pub(super) fn build(lua: Lua, purpose: Purpose) {
    for library in [Library::Base, Library::Table, Library::String, Library::Math, Library::Os] {
        lua.open(library);
    }
    lua.push_native(native!(handle_error), 0);
    lua.push_table(0, 64);
    lua.push_string(b"KEYS");
    lua.push_string(b"ARGV");
    debug_assert_eq!(lua.top(), N_FIXED);
    for name in ALLOWED {
        lua.get_named(Lua::GLOBALS, name);
        lua.set_named(GLOBALS, name);
    }
    keep_only_clock(lua);
    if purpose == Purpose::Scripts {
        lua.push_copy(HANDLER);
        lua.set_named(GLOBALS, b"__redis__err__handler");
    }
    let own: [(&[u8], super::lua::Entry); 9] = [
        (b"getmetatable", native!(get_metatable)),
        (b"load", native!(load)),
        (b"loadstring", native!(load_string)),
        (b"pcall", native!(protected_call)),
        (b"rawget", native!(raw_get)),
        (b"rawset", native!(raw_set)),
        (b"setmetatable", native!(set_metatable)),
        (b"unpack", native!(unpack)),
        (b"xpcall", native!(protected_call_handled)),
    ];
    for (name, entry) in own {
        lua.push_native(entry, 0);
        lua.set_named(GLOBALS, name);
    }
    lua.get_named(Lua::GLOBALS, b"next");
    lua.push_copy(-1);
    lua.push_copy(-1);
    lua.push_native(native!(next), 1);
    lua.push_copy(-1);
    lua.set_named(GLOBALS, b"next");
    lua.push_native(native!(pairs), 2);
    lua.set_named(GLOBALS, b"pairs");
    lua.set_top(N_FIXED);
    libraries::install(lua, GLOBALS);
    api::push_library(lua, purpose);
    lua.set_named(GLOBALS, b"redis");
    protect_all(lua);
    if purpose == Purpose::Functions {
        make_loader(lua);
    }
    lua.core().protected.borrow_mut().sort_unstable();
}

/// `os` has nothing but `clock`.
fn keep_only_clock(lua: Lua) {
    lua.push_table(0, 1);
    lua.get_named(GLOBALS, b"os");
    lua.get_named(-1, b"clock");
    lua.remove(-2);
    lua.set_named(-2, b"clock");
    lua.set_named(GLOBALS, b"os");
}

/// Puts stand-ins in the place of all tables, then of the globals themselves.
fn protect_all(lua: Lua) {
    let mut names = Vec::new();
    lua.push_nil();
    while lua.next(GLOBALS) {
        if lua.kind(-1) == LUA_TTABLE
            && let Some(name) = lua.real_string(-2)
        {
            names.push(name.to_vec());
        }
        lua.pop(1);
    }
    for name in names {
        lua.get_named(GLOBALS, &name);
        push_stand_in(lua);
        if name == b"string" {
            // The metatable that scripts see of strings; the real one reads from the library itself.
            lua.push_table(0, 1);
            lua.push_copy(-2);
            lua.set_named(-2, b"__index");
            push_stand_in(lua);
            let shown = lua.keep();
            lua.core().shown_metatables.set((0, shown));
        }
        lua.set_named(GLOBALS, &name);
    }
    // A global that is not there is an error.
    lua.push_table(0, 1);
    lua.push_native(native!(no_such_global), 0);
    lua.set_named(-2, b"__index");
    lua.push_copy(-1);
    lua.set_metatable(GLOBALS);
    push_stand_in(lua);
    let (_, strings) = lua.core().shown_metatables.get();
    lua.core().shown_metatables.set((lua.keep(), strings));
    lua.push_copy(GLOBALS);
    push_stand_in(lua);
    lua.core().globals_identity.set(lua.identity(-1));
    if lua.metatable(-1) {
        lua.core().switch.set((lua.keep(), 0));
    }
    lua.push_copy(-1);
    lua.set_named(GLOBALS, b"_G");
    lua.replace(Lua::GLOBALS);
    lua.set_top(N_FIXED);
}

/// The globals that a library sees while it is loaded: `redis`, with what the loader needs.
fn make_loader(lua: Lua) {
    let guard = || {
        lua.push_table(0, 1);
        lua.push_native(native!(no_such_global), 0);
        lua.set_named(-2, b"__index");
        lua.set_metatable(-2);
    };
    lua.push_table(0, 1);
    api::push_loader(lua);
    guard();
    push_stand_in(lua);
    lua.set_named(-2, b"redis");
    guard();
    let (metatable, _) = lua.core().switch.get();
    lua.core().switch.set((metatable, lua.keep()));
}

/// From here on the stand-in of the globals shows the loader's.
pub(super) fn show_loader(lua: Lua) {
    lua.push_kept(lua.core().switch.get().1);
    show(lua);
}

/// From here on it shows the globals.
pub(super) fn show_globals(lua: Lua) {
    lua.push_copy(GLOBALS);
    show(lua);
}

/// The stand-in of the globals shows the table on the top of the stack.
fn show(lua: Lua) {
    lua.push_kept(lua.core().switch.get().0);
    lua.insert(-2);
    lua.set_named(-2, b"__index");
    lua.pop(1);
}

/// Puts a stand-in in the place of the table on the top of the stack.
fn push_stand_in(lua: Lua) {
    lua.push_table(0, 0);
    lua.push_table(0, 2);
    lua.push_copy(-3);
    lua.set_named(-2, b"__index");
    lua.push_native(native!(refuse_write), 0);
    lua.set_named(-2, b"__newindex");
    lua.set_metatable(-2);
    lua.core().protected.borrow_mut().push(lua.identity(-1));
    lua.remove(-2);
}

/// Whether the table at `index` is a stand-in.
fn is_stand_in(lua: Lua, index: i32) -> bool {
    if lua.kind(index) != LUA_TTABLE || !lua.metatable(index) {
        return false;
    }
    lua.pop(1);
    lua.core().protected.borrow().binary_search(&lua.identity(index)).is_ok()
}

/// The table behind the stand-in at `index` onto the stack; false (and nothing) if that is none.
fn push_behind(lua: Lua, index: i32) -> bool {
    if !is_stand_in(lua, index) || !lua.metatable(index) {
        return false;
    }
    lua.get_named(-1, b"__index");
    lua.remove(-2);
    true
}

/// An error if the table at `index` is read-only.
pub(super) fn may_change(lua: Lua, index: i32) -> Result<(), Raise> {
    match is_stand_in(lua, index) {
        true => Err(Raise::Plain(READ_ONLY.into())),
        false => Ok(()),
    }
}

/// KEYS and ARGV of a script.
pub(super) fn set_arguments(lua: Lua, run: &Run<'_>) {
    const FIRST: usize = 3;
    let mut argument = FIRST;
    for (name, n) in [(KEYS, run.n_keys), (ARGV, run.args.len() - FIRST - run.n_keys)] {
        lua.push_copy(name);
        push_strings(lua, run, argument, n);
        lua.set(GLOBALS);
        argument += n;
    }
}

/// A table of `n` arguments from `first` on.
pub(super) fn push_strings(lua: Lua, run: &Run<'_>, first: usize, n: usize) {
    lua.push_table(n, 0);
    for (index, argument) in run.args.from(first).take(n).enumerate() {
        lua.push_string(argument);
        lua.set_at(-2, index as i32 + 1);
    }
}

fn refuse_write(_: Lua) -> Result<i32, Raise> {
    Err(Raise::text(READ_ONLY))
}

fn no_such_global(lua: Lua) -> Result<i32, Raise> {
    let Some(name) = lua.string(2) else {
        return Err(Raise::text("Second argument to luaProtectedTableError must be a string or number"));
    };
    Err(Raise::Error([b"Script attempted to access nonexistent global variable '", name, b"'"].concat()))
}

/// Makes an error a table with the place where it was raised.
fn handle_error(lua: Lua) -> Result<i32, Raise> {
    lua.set_top(1);
    let place = match lua.place(1) {
        Some((true, ..)) => lua.place(2),
        place => place,
    };
    if lua.kind(1) != LUA_TTABLE {
        lua.push_table(0, 3);
        let text = match lua.string(1) {
            Some(text) => [b"ERR ", text].concat(),
            None if lua.kind(1) <= 0 => b"ERR nil".to_vec(),
            None if lua.kind(1) == LUA_TBOOLEAN => format!("ERR {}", lua.truth(1)).into_bytes(),
            None => format!("ERR {}: {:#x}", lua.kind_name(1), lua.identity(1)).into_bytes(),
        };
        lua.push_string(&text);
        lua.set_named(-2, b"err");
    }
    if let Some((_, source, line)) = place
        && !is_stand_in(lua, lua.top())
    {
        lua.push_string(source);
        lua.set_named(-2, b"source");
        lua.push_number(f64::from(line));
        lua.set_named(-2, b"line");
    }
    Ok(1)
}

fn check_table(lua: Lua, index: i32) -> Result<(), Raise> {
    if lua.kind(index) == LUA_TTABLE {
        return Ok(());
    }
    Err(wrong_type(lua, index, "table"))
}

/// Lua's words for an argument of the wrong type.
pub(super) fn wrong_type(lua: Lua, index: i32, expected: &str) -> Raise {
    let got = if lua.kind(index) < 0 { "no value" } else { lua.kind_name(index) };
    Raise::argument(index, &format!("{expected} expected, got {got}"))
}

fn check_any(lua: Lua, index: i32) -> Result<(), Raise> {
    if lua.kind(index) < 0 { Err(Raise::argument(index, "value expected")) } else { Ok(()) }
}

/// `next`; its upvalue is Lua's own.
fn next(lua: Lua) -> Result<i32, Raise> {
    check_table(lua, 1)?;
    lua.set_top(2);
    if push_behind(lua, 1) {
        lua.replace(1);
    }
    lua.push_copy(Lua::upvalue(1));
    lua.insert(1);
    match lua.call_from_native(2, 0) {
        0 => Ok(lua.top()),
        _ => Err(Raise::Top),
    }
}

/// `pairs`; its upvalues are Lua's own `next`, and the one for stand-ins.
fn pairs(lua: Lua) -> Result<i32, Raise> {
    check_table(lua, 1)?;
    lua.push_copy(Lua::upvalue(if is_stand_in(lua, 1) { 2 } else { 1 }));
    lua.push_copy(1);
    lua.push_nil();
    Ok(3)
}

fn raw_get(lua: Lua) -> Result<i32, Raise> {
    check_table(lua, 1)?;
    check_any(lua, 2)?;
    lua.set_top(2);
    if push_behind(lua, 1) {
        lua.replace(1);
    }
    lua.get(1);
    Ok(1)
}

fn raw_set(lua: Lua) -> Result<i32, Raise> {
    check_table(lua, 1)?;
    check_any(lua, 2)?;
    check_any(lua, 3)?;
    lua.set_top(3);
    may_change(lua, 1)?;
    if lua.is_nil(2) {
        return Err(Raise::Plain(b"table index is nil".to_vec()));
    }
    if lua.kind(2) == LUA_TNUMBER && lua.number(2).is_some_and(f64::is_nan) {
        return Err(Raise::Plain(b"table index is NaN".to_vec()));
    }
    lua.set(1);
    Ok(1)
}

fn get_metatable(lua: Lua) -> Result<i32, Raise> {
    check_any(lua, 1)?;
    let (of_globals, of_strings) = lua.core().shown_metatables.get();
    if lua.kind(1) == LUA_TSTRING {
        lua.push_kept(of_strings);
        return Ok(1);
    }
    if is_stand_in(lua, 1) {
        match lua.identity(1) == lua.core().globals_identity.get() {
            true => lua.push_kept(of_globals),
            false => lua.push_nil(),
        }
        return Ok(1);
    }
    if !lua.metatable(1) {
        lua.push_nil();
        return Ok(1);
    }
    // A metatable that is a stand-in has no fields of its own.
    lua.get_named(-1, b"__metatable");
    if lua.is_nil(-1) {
        lua.pop(1);
    }
    Ok(1)
}

fn set_metatable(lua: Lua) -> Result<i32, Raise> {
    check_table(lua, 1)?;
    if !lua.is_nil(2) && lua.kind(2) != LUA_TTABLE || lua.kind(2) < 0 {
        return Err(Raise::argument(2, "nil or table expected"));
    }
    if !is_stand_in(lua, 1) && lua.metatable(1) {
        lua.get_named(-1, b"__metatable");
        if !lua.is_nil(-1) {
            return Err(Raise::text("cannot change a protected metatable"));
        }
    }
    may_change(lua, 1)?;
    lua.set_top(2);
    lua.set_metatable(1);
    Ok(1)
}

/// `pcall`; of an error table, scripts get the text.
fn protected_call(lua: Lua) -> Result<i32, Raise> {
    if lua.top() == 0 {
        // Redis calls what it has put there for the result.
        lua.push_bool(false);
        lua.push_string(b"attempt to call a boolean value");
        return Ok(2);
    }
    let n_args = lua.top() - 1;
    let status = lua.call_from_native(n_args, 0);
    lua.go_on()?;
    if status == 0 {
        lua.push_bool(true);
        lua.insert(1);
        return Ok(lua.top());
    }
    if lua.kind(-1) == LUA_TTABLE {
        lua.get_named(-1, b"err");
        match lua.string(-1) {
            Some(_) => lua.remove(-2),
            None => lua.pop(1),
        }
    }
    lua.push_bool(false);
    lua.insert(-2);
    Ok(2)
}

fn protected_call_handled(lua: Lua) -> Result<i32, Raise> {
    check_any(lua, 2)?;
    lua.set_top(2);
    // The handler below the function.
    lua.push_native(native!(handle_unless_ending), 1);
    lua.insert(1);
    let status = lua.call_from_native(0, 1);
    lua.go_on()?;
    lua.push_bool(status == 0);
    lua.replace(1);
    Ok(lua.top())
}

/// The handler of an `xpcall`, but for a script that is to end: a handler's loop would not be seen then, for it runs within the hook.
fn handle_unless_ending(lua: Lua) -> Result<i32, Raise> {
    if lua.go_on().is_err() {
        return Ok(1);
    }
    lua.set_top(1);
    lua.push_copy(Lua::upvalue(1));
    lua.insert(1);
    match lua.call_from_native(1, 0) {
        0 => Ok(lua.top()),
        _ => Err(Raise::Top),
    }
}

/// `unpack`: Lua's own counts in an `int` that may overflow (CVE-2025-46817).
fn unpack(lua: Lua) -> Result<i32, Raise> {
    check_table(lua, 1)?;
    let bound = |index: i32, otherwise: i64| match lua.kind(index) {
        LUA_TNIL | LUA_TNONE => Ok(otherwise),
        // As C converts it.
        _ => libraries::number(lua, index).map(|n| i64::from(n as i64 as i32)),
    };
    let first = bound(2, 1)?;
    let last = bound(3, lua.len(1) as i64)?;
    if first > last {
        return Ok(0);
    }
    let n = i32::try_from(last - first + 1).ok().filter(|n| lua.room(*n));
    let Some(n) = n else { return Err(Raise::text("too many results to unpack")) };
    (first..=last).for_each(|at| lua.get_at(1, at as i32));
    Ok(n)
}

const MAX_CHUNK_NAME: usize = 1 << 10;

fn load_string(lua: Lua) -> Result<i32, Raise> {
    let Some(text) = lua.string(1) else { return Err(wrong_type(lua, 1, "string")) };
    let name = lua.string(2).unwrap_or(text);
    compile(lua, text, name)
}

/// Compiles text; nil and why if that fails. Bytecode fails as any text that is no Lua.
fn compile(lua: Lua, text: &[u8], name: &[u8]) -> Result<i32, Raise> {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len()).min(MAX_CHUNK_NAME);
    let Ok(name) = std::ffi::CString::new(&name[..end]) else { return Err(Raise::text("bad chunk name")) };
    if lua.load(text, &name) == 0 {
        return Ok(1);
    }
    lua.push_nil();
    lua.insert(-2);
    Ok(2)
}

/// `load`: the pieces that a function gives until it gives none.
fn load(lua: Lua) -> Result<i32, Raise> {
    if lua.kind(1) != super::lua::LUA_TFUNCTION {
        return Err(wrong_type(lua, 1, "function"));
    }
    let name = lua.string(2).unwrap_or(b"=(load)").to_vec();
    let mut text = Vec::new();
    lua.set_top(2);
    loop {
        lua.push_copy(1);
        if lua.call_from_native(0, 0) != 0 {
            lua.push_nil();
            lua.insert(-2);
            return Ok(2);
        }
        lua.set_top(3.max(lua.top()));
        if lua.is_nil(3) {
            break;
        }
        let Some(piece) = lua.string(3) else {
            lua.push_nil();
            lua.push_string(b"reader function must return a string");
            return Ok(2);
        };
        if piece.is_empty() {
            break;
        }
        text.extend_from_slice(piece);
        lua.check_memory(text.len())?;
        lua.set_top(2);
    }
    compile(lua, &text, &name)
}
