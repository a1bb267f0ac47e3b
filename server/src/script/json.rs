//! `cjson`: Lua values as JSON and back, as lua-cjson 2.1 does it in Redis.
//!
//! A table is an array if all its keys are whole numbers from 1 on (an empty one is an object); one that is too sparse is an error.
//! Numbers have 14 digits. Nesting is bounded in both directions.

use std::ffi::c_int;

use super::lua::{Entry, LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Lua, Raise, native};
use super::sandbox::wrong_type;
use super::{json_reader, libraries};

/// What a script can set; every `cjson.new` has its own.
#[derive(Clone, Copy)]
pub(super) struct JsonOptions {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_max_depth: i32,
    pub(super) decode_max_depth: i32,
    precision: i32,
    keep_buffer: bool,
    encode_invalid: Invalid,
    pub(super) decode_invalid: bool,
}

/// What becomes of a number that JSON does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Error,
    AsIs,
    Null,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Error,
            decode_invalid: true,
        }
    }
}

/// More tables than this of `cjson.new` share the last one's options.
const MAX_OPTIONS: usize = 64;

/// Puts a new `cjson` on the stack.
pub(super) fn push_library(lua: Lua) {
    let functions: [(&[u8], Entry); 10] = [
        (b"encode", native!(encode)),
        (b"decode", native!(json_reader::decode)),
        (b"encode_sparse_array", native!(encode_sparse_array)),
        (b"encode_max_depth", native!(encode_max_depth)),
        (b"decode_max_depth", native!(decode_max_depth)),
        (b"encode_number_precision", native!(encode_number_precision)),
        (b"encode_keep_buffer", native!(encode_keep_buffer)),
        (b"encode_invalid_numbers", native!(encode_invalid_numbers)),
        (b"decode_invalid_numbers", native!(decode_invalid_numbers)),
        (b"new", native!(new)),
    ];
    let id = {
        let mut all = lua.core().json.borrow_mut();
        if all.len() < MAX_OPTIONS {
            all.push(JsonOptions::default());
        }
        all.len() - 1
    };
    lua.push_table(0, 16);
    for (name, entry) in functions {
        lua.push_number(id as f64);
        lua.push_native(entry, 1);
        lua.set_named(-2, name);
    }
    lua.push_null();
    lua.set_named(-2, b"null");
    lua.push_string(b"cjson");
    lua.set_named(-2, b"_NAME");
    lua.push_string(b"2.1.0");
    lua.set_named(-2, b"_VERSION");
}

fn new(lua: Lua) -> Result<c_int, Raise> {
    push_library(lua);
    Ok(1)
}

/// The options of the running function's table.
pub(super) fn options(lua: Lua) -> JsonOptions {
    let id = lua.number(Lua::upvalue(1)).unwrap_or(0.0) as usize;
    lua.core().json.borrow().get(id).copied().unwrap_or_default()
}

fn change(lua: Lua, change: impl FnOnce(&mut JsonOptions)) {
    let id = lua.number(Lua::upvalue(1)).unwrap_or(0.0) as usize;
    if let Some(options) = lua.core().json.borrow_mut().get_mut(id) {
        change(options);
    }
}

/// At most so many arguments.
fn up_to(lua: Lua, n: c_int) -> Result<(), Raise> {
    match lua.top() > n {
        true => Err(Raise::argument(n + 1, "found too many arguments")),
        false => {
            lua.set_top(n);
            Ok(())
        }
    }
}

/// A whole number among the arguments, if it is there.
fn integer(lua: Lua, index: c_int, (min, max): (i32, i32)) -> Result<Option<i32>, Raise> {
    if lua.is_nil(index) {
        return Ok(None);
    }
    let value = libraries::number(lua, index)? as i64;
    match i32::try_from(value) {
        Ok(value) if (min..=max).contains(&value) => Ok(Some(value)),
        _ => Err(Raise::argument(index, &format!("expected integer between {min} and {max}"))),
    }
}

fn encode_sparse_array(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 3)?;
    if !lua.is_nil(1) {
        let convert = lua.truth(1);
        change(lua, |options| options.sparse_convert = convert);
    }
    if let Some(ratio) = integer(lua, 2, (0, i32::MAX))? {
        change(lua, |options| options.sparse_ratio = ratio);
    }
    if let Some(safe) = integer(lua, 3, (0, i32::MAX))? {
        change(lua, |options| options.sparse_safe = safe);
    }
    let options = options(lua);
    lua.push_bool(options.sparse_convert);
    lua.push_number(options.sparse_ratio.into());
    lua.push_number(options.sparse_safe.into());
    Ok(3)
}

fn encode_max_depth(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 1)?;
    if let Some(depth) = integer(lua, 1, (1, i32::MAX))? {
        change(lua, |options| options.encode_max_depth = depth);
    }
    lua.push_number(options(lua).encode_max_depth.into());
    Ok(1)
}

fn decode_max_depth(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 1)?;
    if let Some(depth) = integer(lua, 1, (1, i32::MAX))? {
        change(lua, |options| options.decode_max_depth = depth);
    }
    lua.push_number(options(lua).decode_max_depth.into());
    Ok(1)
}

fn encode_number_precision(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 1)?;
    if let Some(precision) = integer(lua, 1, (1, 14))? {
        change(lua, |options| options.precision = precision);
    }
    lua.push_number(options(lua).precision.into());
    Ok(1)
}

fn encode_keep_buffer(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 1)?;
    if !lua.is_nil(1) {
        let keep = lua.truth(1);
        change(lua, |options| options.keep_buffer = keep);
    }
    lua.push_bool(options(lua).keep_buffer);
    Ok(1)
}

fn encode_invalid_numbers(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 1)?;
    if !lua.is_nil(1) {
        let invalid = match (lua.kind(1), lua.real_string(1)) {
            (LUA_TBOOLEAN, _) if lua.truth(1) => Invalid::AsIs,
            (LUA_TBOOLEAN, _) | (_, Some(b"off")) => Invalid::Error,
            (_, Some(b"on")) => Invalid::AsIs,
            (_, Some(b"null")) => Invalid::Null,
            (_, Some(other)) => {
                let why = [b"invalid option '".as_slice(), other, b"'"].concat();
                return Err(Raise::Argument(1, why));
            }
            _ => return Err(wrong_type(lua, 1, "string")),
        };
        change(lua, |options| options.encode_invalid = invalid);
    }
    match options(lua).encode_invalid {
        Invalid::Null => lua.push_string(b"null"),
        invalid => lua.push_bool(invalid == Invalid::AsIs),
    }
    Ok(1)
}

fn decode_invalid_numbers(lua: Lua) -> Result<c_int, Raise> {
    up_to(lua, 1)?;
    if !lua.is_nil(1) {
        let allowed = match (lua.kind(1), lua.real_string(1)) {
            (LUA_TBOOLEAN, _) => lua.truth(1),
            (_, Some(b"off")) => false,
            (_, Some(b"on")) => true,
            _ => return Err(Raise::argument(1, "invalid option")),
        };
        change(lua, |options| options.decode_invalid = allowed);
    }
    lua.push_bool(options(lua).decode_invalid);
    Ok(1)
}

fn encode(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(Raise::argument(1, "expected 1 argument"));
    }
    let mut writer = Writer { lua, options: options(lua), out: Vec::new() };
    writer.value(0)?;
    lua.push_string(&writer.out);
    Ok(1)
}

struct Writer {
    lua: Lua,
    options: JsonOptions,
    out: Vec<u8>,
}

/// How often the size of what is written is looked at.
const CHECK_EVERY: usize = 1 << 16;

impl Writer {
    fn fail(&self, index: c_int, why: &str) -> Raise {
        Raise::text(&format!("Cannot serialise {}: {why}", self.lua.kind_name(index)))
    }

    /// The value on the top of the stack, which stays.
    fn value(&mut self, depth: i32) -> Result<(), Raise> {
        let lua = self.lua;
        match lua.kind(-1) {
            LUA_TSTRING => self.string(lua.string(-1).unwrap_or_default())?,
            LUA_TNUMBER => self.number(lua.number(-1).unwrap_or(0.0))?,
            LUA_TBOOLEAN => {
                self.out.extend_from_slice(if lua.truth(-1) { b"true" } else { b"false" });
            }
            LUA_TTABLE => self.table(depth + 1)?,
            LUA_TNIL => self.out.extend_from_slice(b"null"),
            _ if lua.is_null_userdata(-1) => self.out.extend_from_slice(b"null"),
            _ => return Err(self.fail(-1, "type not supported")),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> Result<(), Raise> {
        self.lua.check_memory(self.out.len() + text.len())?;
        self.out.push(b'"');
        for byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                8 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                12 => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..32 | 127 => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<(), Raise> {
        if !number.is_finite() {
            match self.options.encode_invalid {
                Invalid::Error => return Err(self.fail(-1, "must not be NaN or Inf")),
                Invalid::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::AsIs if number.is_nan() => {
                    self.out.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::AsIs => {
                    self.out.extend_from_slice(if number > 0.0 { b"inf" } else { b"-inf" });
                    return Ok(());
                }
            }
        }
        push_general(&mut self.out, number, self.options.precision as usize);
        Ok(())
    }

    fn table(&mut self, depth: i32) -> Result<(), Raise> {
        if depth > self.options.encode_max_depth || !self.lua.room(6) {
            return Err(Raise::text(&format!("Cannot serialise, excessive nesting ({depth})")));
        }
        if self.out.len() % CHECK_EVERY < 64 {
            self.lua.check_memory(self.out.len())?;
        }
        match self.array_len()? {
            Some(len) if len > 0 => self.array(len, depth),
            _ => self.object(depth),
        }
    }

    /// The length of the table on the top of the stack, if it is an array.
    fn array_len(&self) -> Result<Option<i32>, Raise> {
        let lua = self.lua;
        let (mut max, mut n) = (0i32, 0i32);
        lua.push_nil();
        while lua.next(-2) {
            let key = if lua.kind(-2) == LUA_TNUMBER { lua.number(-2) } else { None };
            lua.pop(1);
            match key {
                Some(key) if key >= 1.0 && key.floor() == key && key <= f64::from(i32::MAX) => {
                    max = max.max(key as i32);
                    n += 1;
                }
                _ => {
                    lua.pop(1);
                    return Ok(None);
                }
            }
        }
        let JsonOptions { sparse_ratio, sparse_safe, sparse_convert, .. } = self.options;
        let is_sparse =
            sparse_ratio > 0 && i64::from(max) > i64::from(n) * i64::from(sparse_ratio) && max > sparse_safe;
        match (is_sparse, sparse_convert) {
            (false, _) => Ok(Some(max)),
            (true, true) => Ok(None),
            (true, false) => Err(self.fail(-1, "excessively sparse array")),
        }
    }

    fn array(&mut self, len: i32, depth: i32) -> Result<(), Raise> {
        self.out.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.out.push(b',');
            }
            if (index as usize).is_multiple_of(CHECK_EVERY) {
                self.lua.check_memory(self.out.len())?;
            }
            self.lua.get_at(-1, index);
            self.value(depth)?;
            self.lua.pop(1);
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: i32) -> Result<(), Raise> {
        let lua = self.lua;
        self.out.push(b'{');
        let mut is_first = true;
        lua.push_nil();
        while lua.next(-2) {
            if !std::mem::replace(&mut is_first, false) {
                self.out.push(b',');
            }
            match lua.kind(-2) {
                LUA_TNUMBER => {
                    self.out.push(b'"');
                    let key = lua.number(-2).unwrap_or(0.0);
                    self.number(key)?;
                    self.out.push(b'"');
                }
                LUA_TSTRING => self.string(lua.string(-2).unwrap_or_default())?,
                _ => return Err(self.fail(-2, "table key must be a number or string")),
            }
            self.out.push(b':');
            self.value(depth)?;
            lua.pop(1);
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// A number as `%.<precision>g` prints it.
pub(super) fn push_general(out: &mut Vec<u8>, number: f64, precision: usize) {
    if number == 0.0 {
        out.extend_from_slice(if number.is_sign_negative() { b"-0" } else { b"0" });
        return;
    }
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, number);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(trimmed(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
        return;
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    out.extend_from_slice(trimmed(&format!("{number:.decimals$}")).as_bytes());
}
