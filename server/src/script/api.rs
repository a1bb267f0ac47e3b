//! `redis.*`: what scripts call the server by.

use std::ffi::c_int;

use skerry_resp::reply::{Digits, Proto};
use skerry_resp::request::ArgRange;

use super::convert::{push_error, push_reply, with_code};
use super::library::register_function;
use super::lua::{Entry, LUA_TNUMBER, LUA_TSTRING, Lua, Raise, native};
use super::machine::Purpose;
use super::{Buffers, registry};
use crate::args::Args;
use crate::command::Flags;
use crate::commands::{Found, Row, TABLE};
use crate::log::Level;
use crate::server::REDIS_VERSION;

/// `redis.LOG_*`
const LEVELS: [(&[u8], f64); 4] =
    [(b"LOG_DEBUG", 0.0), (b"LOG_VERBOSE", 1.0), (b"LOG_NOTICE", 2.0), (b"LOG_WARNING", 3.0)];
/// `redis.REPL_*`: there are no replicas, the words are there.
const REPLICATION: [(&[u8], f64); 5] = [
    (b"REPL_NONE", 0.0),
    (b"REPL_AOF", 1.0),
    (b"REPL_SLAVE", 2.0),
    (b"REPL_REPLICA", 2.0),
    (b"REPL_ALL", 3.0),
];
const REPL_ALL: i64 = 3;

/// The table `redis`, onto the stack.
pub(super) fn push_library(lua: Lua, purpose: Purpose) {
    let functions: [(&[u8], Entry); 9] = [
        (b"call", native!(call)),
        (b"pcall", native!(protected_call)),
        (b"log", native!(log)),
        (b"sha1hex", native!(sha1hex)),
        (b"error_reply", native!(error_reply)),
        (b"status_reply", native!(status_reply)),
        (b"setresp", native!(setresp)),
        (b"acl_check_cmd", native!(acl_check_cmd)),
        (b"set_repl", native!(set_repl)),
    ];
    let of_scripts: [(&[u8], Entry); 3] = [
        (b"replicate_commands", native!(replicate_commands)),
        (b"breakpoint", native!(breakpoint)),
        (b"debug", native!(debug)),
    ];
    lua.push_table(0, 32);
    set_functions(lua, &functions);
    if purpose == Purpose::Scripts {
        set_functions(lua, &of_scripts);
    }
    set_numbers(lua, &REPLICATION);
    set_facts(lua);
}

/// What the code of a library sees of `redis` while it is loaded, onto the stack.
pub(super) fn push_loader(lua: Lua) {
    lua.push_table(0, 8);
    set_functions(lua, &[(b"register_function", native!(register_function)), (b"log", native!(log))]);
    set_facts(lua);
}

fn set_functions(lua: Lua, functions: &[(&[u8], Entry)]) {
    for (name, entry) in functions {
        lua.push_native(*entry, 0);
        lua.set_named(-2, name);
    }
}

fn set_numbers(lua: Lua, numbers: &[(&[u8], f64)]) {
    for (name, value) in numbers {
        lua.push_number(*value);
        lua.set_named(-2, name);
    }
}

/// Levels of the log and the server's version.
fn set_facts(lua: Lua) {
    set_numbers(lua, &LEVELS);
    lua.push_string(REDIS_VERSION.as_bytes());
    lua.set_named(-2, b"REDIS_VERSION");
    let number = REDIS_VERSION.split('.').fold(0u32, |number, part| number << 8 | part.parse().unwrap_or(0));
    lua.push_number(f64::from(number));
    lua.set_named(-2, b"REDIS_VERSION_NUM");
}

fn call(lua: Lua) -> Result<c_int, Raise> {
    match command(lua) {
        true => Ok(1),
        false => Err(Raise::Top),
    }
}

fn protected_call(lua: Lua) -> Result<c_int, Raise> {
    command(lua);
    Ok(1)
}

/// Runs the command that the arguments name. Its reply, or the error, is on the top of the stack; false if it is an error.
fn command(lua: Lua) -> bool {
    let core = lua.core();
    let mut buffers = core.buffers.take();
    let is_good = command_with(lua, &mut buffers);
    if buffers.out.capacity() > MAX_KEPT {
        buffers.out = Vec::new();
    }
    if buffers.text.capacity() > MAX_KEPT {
        buffers.text = Vec::new();
    }
    core.buffers.set(buffers);
    is_good
}

/// A buffer above this is not kept.
const MAX_KEPT: usize = 64 << 10;

fn command_with(lua: Lua, buffers: &mut Buffers) -> bool {
    let core = lua.core();
    let Buffers { text, ranges, out } = buffers;
    if let Err(why) = read_arguments(lua, text, ranges) {
        push_error(lua, &[b"ERR ", why.as_bytes()].concat());
        return false;
    }
    let args = Args::new(text, ranges);
    let proto = core.proto.get();
    out.clear();
    let outcome = core.with_host(|host| {
        let row = match TABLE.find(args) {
            Found::Row(row) => row,
            Found::UnknownCommand | Found::UnknownSubcommand(_) => return Err((None, UNKNOWN)),
        };
        let mut rules = core.rules.get();
        if let Some(error) = refusal(row, args, &rules) {
            return Err((Some(row), error));
        }
        if row.command.is_write() && !rules.has_written {
            rules.has_written = true;
            core.rules.set(rules);
        }
        host.call(row, args, proto, out);
        Ok(())
    });
    match outcome {
        Some(Ok(())) => {}
        Some(Err((row, error))) => {
            let text = if error.starts_with("OOM") { error.to_string() } else { format!("ERR {error}") };
            core.with_host(|host| host.refuse(row, text.as_bytes()));
            push_error(lua, text.as_bytes());
            lua.push_bool(true);
            lua.set_named(-2, b"ignore_error_stats_update");
            return false;
        }
        None => {
            push_error(lua, b"ERR redis.call/pcall can only be called inside a script invocation");
            return false;
        }
    }
    lua.set_top(0);
    if !push_reply(lua, out) {
        push_error(lua, b"ERR reached lua stack limit");
        return false;
    }
    out.first() != Some(&b'-')
}

const UNKNOWN: &str = "Unknown Redis command called from script";

/// Commands that write nothing, and that Redis hands to replicas all the same: to a read-only script they are writes.
const REPLICATED: [&str; 3] = ["publish", "spublish", "pfcount"];

/// Why a script may not call a command.
fn refusal(row: &Row, args: Args<'_>, rules: &super::Rules) -> Option<&'static str> {
    let command = row.command;
    let writes = || command.is_write() || REPLICATED.contains(&command.name);
    if !command.accepts(args.len()) {
        return Some("Wrong number of args calling Redis command from script");
    }
    if command.flags.has(Flags::NOSCRIPT) {
        return Some("This Redis command is not allowed from script");
    }
    if rules.is_read_only && writes() {
        return Some("Write commands are not allowed from read-only scripts.");
    }
    if rules.is_out_of_memory && !rules.has_written && command.flags.has(Flags::DENYOOM) {
        return Some("OOM command not allowed when used memory > 'maxmemory'.");
    }
    None
}

/// The arguments of `redis.call` as a request.
fn read_arguments(lua: Lua, text: &mut Vec<u8>, ranges: &mut Vec<ArgRange>) -> Result<(), &'static str> {
    const MAX_BYTES: usize = u32::MAX as usize;
    text.clear();
    ranges.clear();
    let n = lua.top();
    if n == 0 {
        return Err("Please specify at least one argument for this redis lib call");
    }
    for index in 1..=n {
        let start = text.len();
        match lua.kind(index) {
            LUA_TSTRING => text.extend_from_slice(lua.string(index).unwrap_or_default()),
            LUA_TNUMBER => push_number(text, lua.number(index).unwrap_or(0.0)),
            _ => return Err("Lua redis lib command arguments must be strings or integers"),
        }
        if text.len() > MAX_BYTES {
            return Err("Lua redis lib command arguments are too long");
        }
        ranges.push(ArgRange { start: start as u32, end: text.len() as u32 });
    }
    Ok(())
}

/// A number as Redis hands it to a command: digits alone if it is whole and fits.
fn push_number(text: &mut Vec<u8>, number: f64) {
    const BOUND: f64 = (i64::MAX / 2) as f64;
    if (-BOUND..=BOUND).contains(&number) && number.trunc() == number {
        text.extend_from_slice(Digits::new().of(number as i64));
        return;
    }
    if number.is_nan() {
        text.extend_from_slice(if number.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    let mut room = skerry_resp::number::FloatText::new();
    text.extend_from_slice(skerry_resp::number::format_f64(number, &mut room));
}

/// `redis.log(level, text ...)`
fn log(lua: Lua) -> Result<c_int, Raise> {
    let n = lua.top();
    if n < 2 {
        return Err(raise_error(lua, "redis.log() requires two arguments or more."));
    }
    if lua.kind(1) != LUA_TNUMBER {
        return Err(raise_error(lua, "First argument must be a number (log level)."));
    }
    let level = match lua.number(1).map(|number| number as i64) {
        Some(0) => Level::Debug,
        Some(1) => Level::Verbose,
        Some(2) => Level::Notice,
        Some(3) => Level::Warning,
        _ => return Err(raise_error(lua, "Invalid log level.")),
    };
    let words: Vec<&[u8]> = (2..=n).filter_map(|index| lua.string(index)).collect();
    let text = words.join(b" ".as_slice());
    crate::log::write(level, &String::from_utf8_lossy(&text));
    Ok(0)
}

/// An error table of our own on the stack, to be raised.
pub(super) fn raise_error(lua: Lua, text: &str) -> Raise {
    push_error(lua, format!("ERR {text}").as_bytes());
    Raise::Top
}

fn sha1hex(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(raise_error(lua, "wrong number of arguments"));
    }
    let hex = registry::hex(&registry::sha_of(lua.string(1).unwrap_or_default()));
    lua.push_string(hex.as_bytes());
    Ok(1)
}

fn error_reply(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 || lua.kind(1) != LUA_TSTRING {
        push_error(lua, b"ERR wrong number or type of arguments");
        return Ok(1);
    }
    let text = lua.string(1).unwrap_or_default();
    push_error(lua, &with_code(text.strip_prefix(b"-").unwrap_or(text)));
    Ok(1)
}

fn status_reply(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 || lua.kind(1) != LUA_TSTRING {
        push_error(lua, b"ERR wrong number or type of arguments");
        return Ok(1);
    }
    lua.push_table(0, 1);
    lua.push_copy(1);
    lua.set_named(-2, b"ok");
    Ok(1)
}

fn setresp(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(raise_error(lua, "redis.setresp() requires one argument."));
    }
    let proto = match lua.number(-1).map(|number| number as i64) {
        Some(2) => Proto::Resp2,
        Some(3) => Proto::Resp3,
        _ => return Err(raise_error(lua, "RESP version must be 2 or 3.")),
    };
    lua.core().proto.set(proto);
    Ok(0)
}

fn acl_check_cmd(lua: Lua) -> Result<c_int, Raise> {
    let (mut text, mut ranges) = (Vec::new(), Vec::new());
    if let Err(why) = read_arguments(lua, &mut text, &mut ranges) {
        return Err(raise_error(lua, why));
    }
    match TABLE.find(Args::new(&text, &ranges)) {
        Found::Row(_) => {
            lua.push_bool(true);
            Ok(1)
        }
        _ => Err(raise_error(lua, "Invalid command passed to redis.acl_check_cmd()")),
    }
}

fn replicate_commands(lua: Lua) -> Result<c_int, Raise> {
    lua.push_bool(true);
    Ok(1)
}

fn set_repl(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(raise_error(lua, "redis.set_repl() requires one argument."));
    }
    let flags = lua.number(1).unwrap_or(0.0) as i64;
    if flags & !REPL_ALL != 0 {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(raise_error(lua, text));
    }
    Ok(0)
}

/// There is no debugger to stop in.
fn breakpoint(lua: Lua) -> Result<c_int, Raise> {
    lua.push_bool(false);
    Ok(1)
}

fn debug(_: Lua) -> Result<c_int, Raise> {
    Ok(0)
}
