//! `bit`: operations on 32 bits, as Lua BitOp does them.

use std::ffi::c_int;

use super::libraries::number;
use super::lua::{Entry, Lua, Raise, native};

/// Puts the library on the stack.
pub(super) fn push_library(lua: Lua) {
    let functions: [(&[u8], Entry); 12] = [
        (b"tobit", native!(|lua| unary(lua, |bits| bits))),
        (b"bnot", native!(|lua| unary(lua, |bits| !bits))),
        (b"bswap", native!(|lua| unary(lua, u32::swap_bytes))),
        (b"band", native!(|lua| folded(lua, |a, b| a & b))),
        (b"bor", native!(|lua| folded(lua, |a, b| a | b))),
        (b"bxor", native!(|lua| folded(lua, |a, b| a ^ b))),
        (b"lshift", native!(|lua| shifted(lua, |bits, n| bits << n))),
        (b"rshift", native!(|lua| shifted(lua, |bits, n| bits >> n))),
        (b"arshift", native!(|lua| shifted(lua, |bits, n| (bits as i32 >> n) as u32))),
        (b"rol", native!(|lua| shifted(lua, u32::rotate_left))),
        (b"ror", native!(|lua| shifted(lua, u32::rotate_right))),
        (b"tohex", native!(tohex)),
    ];
    lua.push_table(0, 12);
    for (name, entry) in functions {
        lua.push_native(entry, 0);
        lua.set_named(-2, name);
    }
}

/// The low 32 bits of a number, rounded to a whole one, halves to the even.
fn bits(lua: Lua, index: c_int) -> Result<u32, Raise> {
    const MODULUS: f64 = 4_294_967_296.0;
    Ok(number(lua, index)?.round_ties_even().rem_euclid(MODULUS) as u32)
}

fn answer(lua: Lua, bits: u32) -> Result<c_int, Raise> {
    lua.push_number((bits as i32).into());
    Ok(1)
}

fn unary(lua: Lua, operation: impl Fn(u32) -> u32) -> Result<c_int, Raise> {
    let value = bits(lua, 1)?;
    answer(lua, operation(value))
}

fn folded(lua: Lua, operation: impl Fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let mut value = bits(lua, 1)?;
    for index in 2..=lua.top() {
        value = operation(value, bits(lua, index)?);
    }
    answer(lua, value)
}

fn shifted(lua: Lua, operation: impl Fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let (value, n) = (bits(lua, 1)?, bits(lua, 2)?);
    answer(lua, operation(value, n & 31))
}

fn tohex(lua: Lua) -> Result<c_int, Raise> {
    let value = bits(lua, 1)?;
    let n = if lua.kind(2) < 0 { 8 } else { bits(lua, 2)? as i32 };
    let text = if n < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let shown = n.unsigned_abs().min(8) as usize;
    lua.push_string(&text.as_bytes()[8 - shown..]);
    Ok(1)
}
