//! The functions of `string` that may take long or much: by patterns, and `rep`. The others are Lua's own.

use std::ffi::c_int;

use super::libraries::number;
use super::lua::{Entry, LUA_TFUNCTION, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Lua, Raise, native};
use super::patterns::Matcher;
use super::sandbox::wrong_type;

/// Puts them into the table on the top of the stack.
pub(super) fn install(lua: Lua) {
    let functions: [(&[u8], Entry); 6] = [
        (b"find", native!(|lua| search(lua, Search::Find))),
        (b"match", native!(|lua| search(lua, Search::Match))),
        (b"gmatch", native!(gmatch)),
        (b"gfind", native!(gmatch)),
        (b"gsub", native!(gsub)),
        (b"rep", native!(rep)),
    ];
    for (name, entry) in functions {
        lua.push_native(entry, 0);
        lua.set_named(-2, name);
    }
}

fn text<'a>(lua: Lua, index: c_int) -> Result<&'a [u8], Raise> {
    lua.string(index).ok_or_else(|| wrong_type(lua, index, "string"))
}

fn rep(lua: Lua) -> Result<c_int, Raise> {
    let piece = text(lua, 1)?;
    let n = super::convert::whole(number(lua, 2)?).max(0) as usize;
    if piece.is_empty() || n == 0 {
        lua.push_string(b"");
        return Ok(1);
    }
    let len = piece.len().saturating_mul(n);
    lua.check_memory(len.saturating_mul(2))?;
    if len >= LONG_BYTES {
        lua.look()?;
    }
    lua.push_string(&piece.repeat(n));
    Ok(1)
}

/// To make so much takes as long as very many instructions, by which Lua counts time.
const LONG_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    Find,
    Match,
}

fn search(lua: Lua, search: Search) -> Result<c_int, Raise> {
    let (subject, pattern) = (text(lua, 1)?, text(lua, 2)?);
    let start = if lua.is_nil(3) { 1 } else { super::convert::whole(number(lua, 3)?) };
    let len = subject.len() as i64;
    let start = if start < 0 { (start.saturating_add(len + 1)).max(0) } else { start };
    let start = (start - 1).clamp(0, len) as usize;
    let is_plain = lua.truth(4) || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte));
    if search == Search::Find && is_plain {
        match memchr::memmem::find(&subject[start..], pattern) {
            Some(at) => {
                lua.push_number((start + at + 1) as f64);
                lua.push_number((start + at + pattern.len()) as f64);
                return Ok(2);
            }
            None => {
                lua.push_nil();
                return Ok(1);
            }
        }
    }
    let rest = pattern.strip_prefix(b"^");
    let mut matcher = Matcher::new(lua, subject, rest.unwrap_or(pattern));
    for at in start..=subject.len() {
        if let Some(end) = matcher.begin(at)? {
            if search == Search::Match {
                return matcher.push_captures(at, end, true);
            }
            lua.push_number((at + 1) as f64);
            lua.push_number(end as f64);
            return Ok(matcher.push_captures(at, end, false)? + 2);
        }
        if rest.is_some() {
            break;
        }
    }
    lua.push_nil();
    Ok(1)
}

fn gmatch(lua: Lua) -> Result<c_int, Raise> {
    text(lua, 1)?;
    text(lua, 2)?;
    lua.set_top(2);
    lua.push_number(0.0);
    lua.push_native(native!(gmatch_next), 3);
    Ok(1)
}

/// Its upvalues: the text, the pattern, where to go on.
fn gmatch_next(lua: Lua) -> Result<c_int, Raise> {
    let subject = lua.string(Lua::upvalue(1)).unwrap_or_default();
    let pattern = lua.string(Lua::upvalue(2)).unwrap_or_default();
    let start = lua.number(Lua::upvalue(3)).unwrap_or(0.0) as usize;
    let mut matcher = Matcher::new(lua, subject, pattern);
    for at in start..=subject.len() {
        if let Some(end) = matcher.begin(at)? {
            let next = if end == at { end + 1 } else { end };
            lua.push_number(next as f64);
            lua.replace(Lua::upvalue(3));
            return matcher.push_captures(at, end, true);
        }
    }
    Ok(0)
}

fn gsub(lua: Lua) -> Result<c_int, Raise> {
    let (subject, pattern) = (text(lua, 1)?, text(lua, 2)?);
    let kind = lua.kind(3);
    if !matches!(kind, LUA_TNUMBER | LUA_TSTRING | LUA_TFUNCTION | LUA_TTABLE) {
        return Err(Raise::argument(3, "string/function/table expected"));
    }
    let max = if lua.is_nil(4) { i64::MAX } else { super::convert::whole(number(lua, 4)?) };
    let rest = pattern.strip_prefix(b"^");
    let mut matcher = Matcher::new(lua, subject, rest.unwrap_or(pattern));
    let mut out = Vec::new();
    let (mut at, mut n) = (0, 0i64);
    while n < max {
        let matched = matcher.begin(at)?;
        if let Some(end) = matched {
            n += 1;
            replace(lua, &matcher, subject, (at, end), &mut out)?;
            lua.check_memory(out.len())?;
        }
        match matched {
            Some(end) if end > at => at = end,
            _ if at < subject.len() => {
                out.push(subject[at]);
                at += 1;
            }
            _ => break,
        }
        if rest.is_some() {
            break;
        }
    }
    out.extend_from_slice(&subject[at..]);
    lua.push_string(&out);
    lua.push_number(n as f64);
    Ok(2)
}

/// Adds what stands for the match `s..e`.
fn replace(
    lua: Lua,
    matcher: &Matcher<'_>,
    subject: &[u8],
    (s, e): (usize, usize),
    out: &mut Vec<u8>,
) -> Result<(), Raise> {
    const REPLACEMENT: c_int = 3;
    let top = lua.top();
    match lua.kind(REPLACEMENT) {
        LUA_TTABLE => {
            matcher.push_capture(0, s, e)?;
            lua.get(REPLACEMENT);
        }
        LUA_TFUNCTION => {
            lua.push_copy(REPLACEMENT);
            let n = matcher.push_captures(s, e, true)?;
            if lua.call_from_native(n, 0) != 0 {
                return Err(Raise::Top);
            }
            lua.set_top(top + 1);
        }
        _ => {
            let text = lua.string(REPLACEMENT).unwrap_or_default();
            return replace_by_text(lua, matcher, text, (subject, s, e), out);
        }
    }
    if !lua.truth(-1) {
        out.extend_from_slice(&subject[s..e]);
    } else if let Some(text) = lua.string(-1) {
        out.extend_from_slice(text);
    } else {
        let text = format!("invalid replacement value (a {})", lua.kind_name(-1));
        return Err(Raise::text(&text));
    }
    lua.set_top(top);
    Ok(())
}

fn replace_by_text(
    lua: Lua,
    matcher: &Matcher<'_>,
    text: &[u8],
    (subject, s, e): (&[u8], usize, usize),
    out: &mut Vec<u8>,
) -> Result<(), Raise> {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.extend_from_slice(&subject[s..e]),
            Some(digit) if digit.is_ascii_digit() => {
                matcher.push_capture(usize::from(digit - b'1'), s, e)?;
                out.extend_from_slice(lua.string(-1).unwrap_or_default());
                lua.pop(1);
            }
            Some(other) => out.push(*other),
            None => out.push(0),
        }
    }
    Ok(())
}
