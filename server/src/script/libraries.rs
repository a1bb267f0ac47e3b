//! What scripts have beside Lua's own libraries.

use std::ffi::c_int;

use super::convert::whole;
use super::lua::{LUA_TTABLE, Lua, Raise, native};
use super::random::Random;
use super::sandbox::{may_change, wrong_type};
use super::{bits, json, layout, msgpack, strings};

/// Adds them to the globals at `globals`.
pub(super) fn install(lua: Lua, globals: c_int) {
    json::push_library(lua);
    lua.set_named(globals, b"cjson");
    msgpack::push_library(lua);
    lua.set_named(globals, b"cmsgpack");
    bits::push_library(lua);
    lua.set_named(globals, b"bit");
    layout::push_library(lua);
    lua.set_named(globals, b"struct");
    lua.get_named(globals, b"string");
    strings::install(lua);
    lua.pop(1);
    lua.get_named(globals, b"math");
    lua.push_native(native!(math_random), 0);
    lua.set_named(-2, b"random");
    lua.push_native(native!(math_randomseed), 0);
    lua.set_named(-2, b"randomseed");
    lua.pop(1);
    lua.get_named(globals, b"table");
    lua.push_native(native!(table_insert), 0);
    lua.set_named(-2, b"insert");
    lua.pop(1);
}

/// `table.insert`, but not into what is read-only.
fn table_insert(lua: Lua) -> Result<c_int, Raise> {
    if lua.kind(1) != LUA_TTABLE {
        return Err(wrong_type(lua, 1, "table"));
    }
    may_change(lua, 1)?;
    let mut end = lua.len(1) as i32 + 1;
    let at = match lua.top() {
        2 => end,
        3 => {
            let at = whole(number(lua, 2)?) as i32;
            end = end.max(at);
            for index in (at..end).rev() {
                if index & 0xffff == 0 {
                    lua.look()?;
                    lua.check_memory(0)?;
                }
                lua.get_at(1, index);
                lua.set_at(1, index + 1);
            }
            at
        }
        _ => return Err(Raise::text("wrong number of arguments to 'insert'")),
    };
    lua.set_at(1, at);
    Ok(0)
}

/// An argument that is to be a number.
pub(super) fn number(lua: Lua, index: c_int) -> Result<f64, Raise> {
    lua.number(index).ok_or_else(|| wrong_type(lua, index, "number"))
}

fn math_random(lua: Lua) -> Result<c_int, Raise> {
    let core = lua.core();
    let mut random = core.random.get();
    let fraction = random.next();
    core.random.set(random);
    let value = match lua.top() {
        0 => fraction,
        1 => {
            let upper = number(lua, 1)?.floor();
            if upper < 1.0 {
                return Err(Raise::argument(1, "interval is empty"));
            }
            (fraction * upper).floor() + 1.0
        }
        2 => {
            let (lower, upper) = (number(lua, 1)?.floor(), number(lua, 2)?.floor());
            if lower > upper {
                return Err(Raise::argument(2, "interval is empty"));
            }
            (fraction * (upper - lower + 1.0)).floor() + lower
        }
        _ => return Err(Raise::text("wrong number of arguments")),
    };
    lua.push_number(value);
    Ok(1)
}

fn math_randomseed(lua: Lua) -> Result<c_int, Raise> {
    let seed = number(lua, 1)?;
    lua.core().random.set(Random::new(whole(seed) as i32));
    Ok(0)
}
