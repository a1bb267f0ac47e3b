//! From a command's reply to a Lua value, and from a script's value to its reply.
//!
//! | RESP2 | Lua | | RESP3 more (`redis.setresp(3)`) | Lua |
//! |---|---|---|---|---|
//! | integer | number | | map | `{map={...}}` |
//! | bulk | string | | set | `{set={member=true}}` |
//! | array | table from 1 on | | null | nil |
//! | null | false | | boolean | boolean |
//! | status | `{ok=...}` | | double | `{double=...}` |
//! | error | `{err=...}` | | big number, verbatim | `{big_number=...}`, `{verbatim_string={format=..., string=...}}` |
//!
//! The reply is read where the handler wrote it; nothing stands in between.

use skerry_resp::reply::{Proto, Reply};

use super::lua::{LUA_TBOOLEAN, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Lua};

/// A reply of our own: it is well formed.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The rest of the line, with the position behind it.
    fn line(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let end = memchr::memchr(b'\r', rest).unwrap_or(rest.len());
        self.at += (end + 2).min(rest.len());
        &rest[..end]
    }

    fn integer(&mut self) -> i64 {
        let mut value = 0i64;
        let mut is_negative = false;
        for byte in self.line() {
            match byte {
                b'-' => is_negative = true,
                byte => value = value.wrapping_mul(10).wrapping_add(i64::from(byte.wrapping_sub(b'0'))),
            }
        }
        if is_negative { value.wrapping_neg() } else { value }
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len + 2;
        bytes
    }
}

/// Puts a reply on the stack as a value; false if Lua's stack is too short for it.
#[inline]
pub(super) fn push_reply(lua: Lua, bytes: &[u8]) -> bool {
    let mut reader = Reader { bytes, at: 0 };
    push_value(lua, &mut reader)
}

fn push_value(lua: Lua, reader: &mut Reader<'_>) -> bool {
    if !lua.room(6) {
        return false;
    }
    let kind = reader.bytes[reader.at];
    reader.at += 1;
    match kind {
        b':' => lua.push_number(reader.integer() as f64),
        b'$' => match reader.integer() {
            -1 => lua.push_bool(false),
            len => lua.push_string(reader.take(len as usize)),
        },
        b'+' => {
            let text = reader.line();
            lua.push_table(0, 1);
            lua.push_string(text);
            lua.set_named(-2, b"ok");
        }
        b'-' => push_reply_error(lua, reader.line()),
        b'*' => return push_array(lua, reader),
        b'_' => {
            reader.line();
            lua.push_nil();
        }
        b'#' => lua.push_bool(reader.line() == b"t"),
        b',' => {
            let number = skerry_resp::number::parse_f64(reader.line());
            lua.push_table(0, 1);
            lua.push_number(number.unwrap_or(f64::NAN));
            lua.set_named(-2, b"double");
        }
        b'(' => {
            let digits = reader.line();
            lua.push_table(0, 1);
            lua.push_string(digits);
            lua.set_named(-2, b"big_number");
        }
        b'=' => {
            let len = reader.integer() as usize;
            let bytes = reader.take(len);
            lua.push_table(0, 1);
            lua.push_table(0, 2);
            lua.push_string(&bytes[4..]);
            lua.set_named(-2, b"string");
            lua.push_string(&bytes[..3]);
            lua.set_named(-2, b"format");
            lua.set_named(-2, b"verbatim_string");
        }
        b'%' => return push_map(lua, reader),
        b'~' => return push_set(lua, reader),
        b'|' => {
            // Attributes are not for scripts.
            let n = reader.integer();
            for _ in 0..2 * n {
                if !push_value(lua, reader) {
                    return false;
                }
                lua.pop(1);
            }
            return push_value(lua, reader);
        }
        _ => lua.push_nil(),
    }
    true
}

fn push_array(lua: Lua, reader: &mut Reader<'_>) -> bool {
    let n = reader.integer();
    if n < 0 {
        lua.push_bool(false);
        return true;
    }
    lua.push_table(n as usize, 0);
    for index in 1..=n as i32 {
        if !push_value(lua, reader) {
            return false;
        }
        lua.set_at(-2, index);
    }
    true
}

/// The table grows, as Redis's does: the order in which `pairs` goes through it hangs on that.
fn push_map(lua: Lua, reader: &mut Reader<'_>) -> bool {
    let n = reader.integer() as usize;
    lua.push_table(0, 1);
    lua.push_table(0, 0);
    for _ in 0..n {
        if !push_value(lua, reader) || !push_value(lua, reader) {
            return false;
        }
        match lua.is_nil(-2) {
            true => lua.pop(2),
            false => lua.set(-3),
        }
    }
    lua.set_named(-2, b"map");
    true
}

fn push_set(lua: Lua, reader: &mut Reader<'_>) -> bool {
    let n = reader.integer() as usize;
    lua.push_table(0, 1);
    lua.push_table(0, 0);
    for _ in 0..n {
        if !push_value(lua, reader) {
            return false;
        }
        if lua.is_nil(-1) {
            lua.pop(1);
            continue;
        }
        lua.push_bool(true);
        lua.set(-3);
    }
    lua.set_named(-2, b"set");
    true
}

/// The error table of a failed command; its failure is counted already.
pub(super) fn push_reply_error(lua: Lua, text: &[u8]) {
    push_error(lua, &with_code(text));
    lua.push_bool(true);
    lua.set_named(-2, b"ignore_error_stats_update");
}

/// `{err=text}`
pub(super) fn push_error(lua: Lua, text: &[u8]) {
    lua.push_table(0, 2);
    lua.push_string(text);
    lua.set_named(-2, b"err");
}

/// An error's text has a code word, `ERR` if it came without.
pub(super) fn with_code(text: &[u8]) -> Vec<u8> {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    let trimmed = &text[..end];
    match trimmed.contains(&b' ') {
        true => trimmed.to_vec(),
        false => [b"ERR ".as_slice(), trimmed].concat(),
    }
}

/// Writes the value on the top of the stack as a reply, and takes it from there. `script` is the protocol that the script has chosen.
pub(super) fn write_reply(lua: Lua, script: Proto, reply: &mut Reply<'_>) {
    if !lua.room(8) {
        reply.error("ERR reached lua stack limit");
        lua.pop(1);
        return;
    }
    match lua.kind(-1) {
        LUA_TSTRING => reply.bulk(lua.string(-1).unwrap_or_default()),
        LUA_TNUMBER => reply.integer(whole(lua.number(-1).unwrap_or(0.0))),
        LUA_TBOOLEAN => match (lua.truth(-1), script) {
            (value, Proto::Resp3) => reply.boolean(value),
            (true, Proto::Resp2) => reply.integer(1),
            (false, Proto::Resp2) => reply.null(),
        },
        LUA_TTABLE => return write_table(lua, script, reply),
        _ => reply.null(),
    }
    lua.pop(1);
}

/// As C casts a double to a long on this machine: what does not fit is the smallest.
pub(super) fn whole(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

/// Runs `write` with the field on the top of the stack if it has that type; whether it did.
fn with_field(lua: Lua, name: &[u8], kind: i32, write: impl FnOnce()) -> bool {
    lua.get_named(-1, name);
    let is_there = lua.kind(-1) == kind;
    if is_there {
        write();
    }
    lua.pop(1);
    is_there
}

/// A text that ends no line.
fn blanked(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

fn write_table(lua: Lua, script: Proto, reply: &mut Reply<'_>) {
    let text = || lua.string(-1).unwrap_or_default();
    let is_written = with_field(lua, b"err", LUA_TSTRING, || reply.error(text()))
        || with_field(lua, b"ok", LUA_TSTRING, || {
            reply.raw(b"+");
            reply.raw(&blanked(text()));
            reply.raw(b"\r\n");
        })
        || with_field(lua, b"double", LUA_TNUMBER, || reply.double(lua.number(-1).unwrap_or(0.0)))
        || with_field(lua, b"big_number", LUA_TSTRING, || reply.big_number(&blanked(text())))
        || with_field(lua, b"map", LUA_TTABLE, || write_pairs(lua, script, reply, Pairs::Map))
        || with_field(lua, b"set", LUA_TTABLE, || write_pairs(lua, script, reply, Pairs::Set))
        || write_verbatim(lua, reply);
    if !is_written {
        write_array(lua, script, reply);
    }
    lua.pop(1);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairs {
    Map,
    Set,
}

/// The pairs of the table on the top of the stack, or their keys alone.
fn write_pairs(lua: Lua, script: Proto, reply: &mut Reply<'_>, pairs: Pairs) {
    let mut n = 0;
    lua.push_nil();
    while lua.next(-2) {
        n += 1;
        lua.pop(1);
    }
    match pairs {
        Pairs::Map => reply.map(n),
        Pairs::Set => reply.set(n),
    }
    lua.push_nil();
    while lua.next(-2) {
        match pairs {
            Pairs::Map => {
                lua.push_copy(-2);
                write_reply(lua, script, reply);
                write_reply(lua, script, reply);
            }
            Pairs::Set => {
                lua.pop(1);
                lua.push_copy(-1);
                write_reply(lua, script, reply);
            }
        }
    }
}

fn write_verbatim(lua: Lua, reply: &mut Reply<'_>) -> bool {
    let mut is_written = false;
    with_field(lua, b"verbatim_string", LUA_TTABLE, || {
        lua.get_named(-1, b"format");
        lua.get_named(-2, b"string");
        if let (Some(format), Some(text)) = (lua.real_string(-2), lua.real_string(-1)) {
            let mut three = [b' '; 3];
            let n = format.len().min(3);
            three[..n].copy_from_slice(&format[..n]);
            for byte in &mut three {
                if matches!(*byte, b'\r' | b'\n') {
                    *byte = b' ';
                }
            }
            reply.verbatim(&three, text);
            is_written = true;
        }
        lua.pop(2);
    });
    is_written
}

fn write_array(lua: Lua, script: Proto, reply: &mut Reply<'_>) {
    // As many as there are before the first nil: the length that Lua tells may be another.
    let mut n = 0;
    loop {
        lua.get_at(-1, n + 1);
        let is_end = lua.is_nil(-1);
        lua.pop(1);
        if is_end {
            break;
        }
        n += 1;
    }
    reply.array(n as usize);
    for index in 1..=n {
        lua.get_at(-1, index);
        write_reply(lua, script, reply);
    }
}
