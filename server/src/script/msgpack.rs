//! `cmsgpack`: Lua values as MessagePack and back, as lua-cmsgpack does it in Redis.
//!
//! Whole numbers are packed as integers, others as floats, short if that loses nothing. A table whose keys are 1 to n is an array.
//! Tables nested deeper than 16 are nil. What is unpacked is believed no length: it is read until the bytes end.

use std::ffi::c_int;

use super::libraries::number;
use super::lua::{Entry, LUA_TBOOLEAN, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Lua, Raise, native};
use super::sandbox::wrong_type;

const MAX_NESTING: u32 = 16;

/// Puts the library on the stack.
pub(super) fn push_library(lua: Lua) {
    let functions: [(&[u8], Entry); 4] = [
        (b"pack", native!(pack)),
        (b"unpack", native!(unpack)),
        (b"unpack_one", native!(unpack_one)),
        (b"unpack_limit", native!(unpack_limit)),
    ];
    lua.push_table(0, 8);
    for (name, entry) in functions {
        lua.push_native(entry, 0);
        lua.set_named(-2, name);
    }
    let words: [(&[u8], &[u8]); 4] = [
        (b"_NAME", b"cmsgpack"),
        (b"_VERSION", b"lua-cmsgpack 0.4.0"),
        (b"_COPYRIGHT", b"Copyright (C) 2012, Salvatore Sanfilippo"),
        (b"_DESCRIPTION", b"MessagePack C implementation for Lua"),
    ];
    for (name, word) in words {
        lua.push_string(word);
        lua.set_named(-2, name);
    }
}

/// Why a value has no room, but for the elements of arrays.
const TOO_MANY: &str = "too many return values at once; use unpack_one or unpack_limit instead.";

fn pack(lua: Lua) -> Result<c_int, Raise> {
    let n = lua.top();
    if n == 0 {
        return Err(Raise::argument(0, "MessagePack pack needs input."));
    }
    if !lua.room(8) {
        return Err(Raise::text("Too many arguments for MessagePack pack."));
    }
    let mut out = Vec::new();
    for index in 1..=n {
        lua.push_copy(index);
        pack_value(lua, &mut out, 0)?;
        lua.pop(1);
    }
    lua.push_string(&out);
    Ok(1)
}

/// The value on the top of the stack, which stays.
fn pack_value(lua: Lua, out: &mut Vec<u8>, level: u32) -> Result<(), Raise> {
    match lua.kind(-1) {
        LUA_TSTRING => {
            let text = lua.string(-1).unwrap_or_default();
            lua.check_memory(out.len() + text.len())?;
            pack_head(out, text.len(), &[(0xa0, 31)], &[0xd9, 0xda, 0xdb]);
            out.extend_from_slice(text);
        }
        LUA_TBOOLEAN => out.push(if lua.truth(-1) { 0xc3 } else { 0xc2 }),
        LUA_TNUMBER => pack_number(out, lua.number(-1).unwrap_or(0.0)),
        LUA_TTABLE if level < MAX_NESTING => pack_table(lua, out, level)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// A length: in the type's byte if it fits `short`, else behind one of the `long` bytes (8, if there are three, 16 and 32 bits).
fn pack_head(out: &mut Vec<u8>, len: usize, short: &[(u8, usize)], long: &[u8]) {
    if let Some((byte, _)) = short.iter().find(|(_, max)| len <= *max) {
        out.push(byte | len as u8);
        return;
    }
    let (with_8, rest) = if long.len() == 3 { (Some(long[0]), &long[1..]) } else { (None, long) };
    match (with_8, len) {
        (Some(byte), 0..=0xff) => out.extend_from_slice(&[byte, len as u8]),
        (_, 0..=0xffff) => {
            out.push(rest[0]);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(rest[1]);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn pack_number(out: &mut Vec<u8>, number: f64) {
    let whole = super::convert::whole(number);
    if whole as f64 != number {
        let short = number as f32;
        if f64::from(short) == number {
            out.push(0xca);
            out.extend_from_slice(&short.to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        return;
    }
    match whole {
        -32..=0x7f => out.push(whole as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, whole as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(whole as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(whole as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&whole.to_be_bytes());
        }
        -0x80..=-33 => out.extend_from_slice(&[0xd0, whole as u8]),
        -0x8000..=-0x81 => {
            out.push(0xd1);
            out.extend_from_slice(&(whole as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xd2);
            out.extend_from_slice(&(whole as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&whole.to_be_bytes());
        }
    }
}

fn pack_table(lua: Lua, out: &mut Vec<u8>, level: u32) -> Result<(), Raise> {
    if !lua.room(6) {
        return Err(Raise::text("stack overflow (in function mp_encode_lua_table)"));
    }
    lua.check_memory(out.len())?;
    let (mut n, mut max, mut is_array) = (0usize, 0.0f64, true);
    lua.push_nil();
    while lua.next(-2) {
        lua.pop(1);
        let key = if lua.kind(-1) == LUA_TNUMBER { lua.number(-1) } else { None };
        let is_index = |key: &f64| *key > 0.0 && key.trunc() == *key;
        is_array &= key.as_ref().is_some_and(is_index);
        max = max.max(key.unwrap_or(0.0));
        n += 1;
    }
    if is_array && max == n as f64 {
        pack_head(out, n, &[(0x90, 15)], &[0xdc, 0xdd]);
        for index in 1..=n {
            lua.get_at(-1, index as c_int);
            pack_value(lua, out, level + 1)?;
            lua.pop(1);
        }
        return Ok(());
    }
    pack_head(out, n, &[(0x80, 15)], &[0xde, 0xdf]);
    lua.push_nil();
    while lua.next(-2) {
        lua.push_copy(-2);
        pack_value(lua, out, level + 1)?;
        lua.pop(1);
        pack_value(lua, out, level + 1)?;
        lua.pop(1);
    }
    Ok(())
}

fn unpack(lua: Lua) -> Result<c_int, Raise> {
    let bytes = input(lua)?;
    lua.set_top(1);
    unpack_from(lua, bytes, None, 0)
}

fn unpack_one(lua: Lua) -> Result<c_int, Raise> {
    let bytes = input(lua)?;
    let offset = if lua.is_nil(2) { 0.0 } else { number(lua, 2)? };
    lua.set_top(1);
    unpack_from(lua, bytes, Some(1), offset as i64)
}

fn unpack_limit(lua: Lua) -> Result<c_int, Raise> {
    let bytes = input(lua)?;
    let limit = number(lua, 2)?;
    let offset = if lua.is_nil(3) { 0.0 } else { number(lua, 3)? };
    lua.set_top(1);
    unpack_from(lua, bytes, Some(limit as i64), offset as i64)
}

fn input<'a>(lua: Lua) -> Result<&'a [u8], Raise> {
    lua.string(1).ok_or_else(|| wrong_type(lua, 1, "string"))
}

/// Up to `limit` values from `offset` on; with a limit, behind the offset of the next (-1: there is none).
fn unpack_from(lua: Lua, bytes: &[u8], limit: Option<i64>, offset: i64) -> Result<c_int, Raise> {
    let asked = limit.unwrap_or(0);
    if offset < 0 || asked < 0 {
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {}.", bytes.len());
        return Err(Raise::text(&text));
    }
    if offset as usize > bytes.len() {
        let text = format!("Start offset {offset} greater than input length {}.", bytes.len());
        return Err(Raise::text(&text));
    }
    // The whole of it: the limit of zero is none, as in Redis.
    let limit = if asked == 0 { i64::MAX } else { asked };
    let mut reader = Reader { lua, bytes, at: offset as usize };
    let mut n = 0;
    while reader.at < bytes.len() && i64::from(n) < limit {
        reader.value(TOO_MANY)?;
        n += 1;
    }
    if asked > 0 {
        let next = if reader.at == bytes.len() { -1.0 } else { reader.at as f64 };
        if !lua.room(2) {
            return Err(Raise::text("stack overflow (in function mp_unpack_full)"));
        }
        lua.push_number(next);
        lua.insert(2);
        n += 1;
    }
    Ok(n)
}

struct Reader<'a> {
    lua: Lua,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Raise> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else { return Err(Raise::text("Missing bytes in input.")) };
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// An unsigned number of `len` bytes.
    fn unsigned(&mut self, len: usize) -> Result<u64, Raise> {
        Ok(self.take(len)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, len: usize) -> Result<i64, Raise> {
        let unused = 64 - 8 * len as u32;
        Ok((self.unsigned(len)? << unused) as i64 >> unused)
    }

    fn string(&mut self, len: usize) -> Result<(), Raise> {
        let text = self.take(len)?;
        self.lua.push_string(text);
        Ok(())
    }

    /// The next value, onto the stack; `within` is told if there is no room for it.
    fn value(&mut self, within: &str) -> Result<(), Raise> {
        let lua = self.lua;
        if !lua.room(4) {
            return Err(Raise::Error(format!("stack overflow ({within})").into_bytes()));
        }
        let kind = self.take(1)?[0];
        match kind {
            0x00..=0x7f => lua.push_number(kind.into()),
            0xe0..=0xff => lua.push_number((kind as i8).into()),
            0xc0 => lua.push_nil(),
            0xc2 | 0xc3 => lua.push_bool(kind == 0xc3),
            0xca => lua.push_number(f32::from_bits(self.unsigned(4)? as u32).into()),
            0xcb => lua.push_number(f64::from_bits(self.unsigned(8)?)),
            // As Redis, which makes a signed integer of it.
            0xcc..=0xcf => lua.push_number(self.unsigned(1 << (kind - 0xcc))? as i64 as f64),
            0xd0..=0xd3 => lua.push_number(self.signed(1 << (kind - 0xd0))? as f64),
            0xa0..=0xbf => self.string(usize::from(kind & 31))?,
            0xd9..=0xdb => {
                let len = self.unsigned(1 << (kind - 0xd9))? as usize;
                self.string(len)?;
            }
            0x90..=0x9f => self.array(u64::from(kind & 15))?,
            0xdc | 0xdd => {
                let n = self.unsigned(2 << (kind - 0xdc))?;
                self.array(n)?;
            }
            0x80..=0x8f => self.map(u64::from(kind & 15))?,
            0xde | 0xdf => {
                let n = self.unsigned(2 << (kind - 0xde))?;
                self.map(n)?;
            }
            _ => return Err(Raise::text("Bad data format in input.")),
        }
        Ok(())
    }

    fn array(&mut self, n: u64) -> Result<(), Raise> {
        self.lua.push_table(0, 0);
        for index in 1..=n {
            self.value("in function mp_decode_to_lua_array")?;
            self.lua.set_at(-2, index as c_int);
        }
        Ok(())
    }

    fn map(&mut self, n: u64) -> Result<(), Raise> {
        let lua = self.lua;
        lua.push_table(0, 0);
        for _ in 0..n {
            self.value(TOO_MANY)?;
            self.value(TOO_MANY)?;
            if lua.is_nil(-2) || lua.kind(-2) == LUA_TNUMBER && lua.number(-2).is_some_and(f64::is_nan) {
                let what = if lua.is_nil(-2) { "nil" } else { "NaN" };
                return Err(Raise::Plain(format!("table index is {what}").into_bytes()));
            }
            lua.set(-3);
        }
        Ok(())
    }
}
