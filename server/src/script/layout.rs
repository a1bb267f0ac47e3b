//! `struct`: values as bytes in the layout of a format, and back, as Lua's struct library 0.2 does it in Redis.
//!
//! `>` `<` `!n` byte order and alignment; `b h l i` (`B H L I`) integers, `T` a size, `f d` floats, `s` a string up to a zero,
//! `cn` a string of n bytes (`c0`: as many as the number before), `x` a byte.

use std::ffi::c_int;

use super::convert::whole;
use super::libraries::number;
use super::lua::{Entry, Lua, Raise, native};
use super::sandbox::wrong_type;

/// The widest integer, in bytes.
const MAX_INTEGER: usize = 32;
const MAX_ALIGN: usize = 8;

/// Puts the library on the stack.
pub(super) fn push_library(lua: Lua) {
    let functions: [(&[u8], Entry); 3] =
        [(b"pack", native!(pack)), (b"unpack", native!(unpack)), (b"size", native!(size))];
    lua.push_table(0, 3);
    for (name, entry) in functions {
        lua.push_native(entry, 0);
        lua.set_named(-2, name);
    }
}

/// A format, read option by option.
struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
    align: usize,
}

impl<'a> Format<'a> {
    fn argument(lua: Lua) -> Result<Self, Raise> {
        let text: &'a [u8] = lua.string(1).ok_or_else(|| wrong_type(lua, 1, "string"))?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(Self { rest: &text[..end], is_big: false, align: 1 })
    }

    fn count(&mut self, otherwise: usize) -> Result<usize, Raise> {
        let n_digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if n_digits == 0 {
            return Ok(otherwise);
        }
        let (digits, rest) = self.rest.split_at(n_digits);
        self.rest = rest;
        let value = skerry_resp::number::parse_u64(strip_zeros(digits)).filter(|n| *n <= i32::MAX as u64);
        value.map(|n| n as usize).ok_or_else(|| Raise::text("integral size overflow"))
    }

    /// The next option and its size.
    fn next(&mut self) -> Result<Option<(u8, usize)>, Raise> {
        let Some((option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.count(1)?,
            b'i' | b'I' => {
                let size = self.count(4)?;
                if size > MAX_INTEGER {
                    let text = format!("integral size {size} is larger than limit of {MAX_INTEGER}");
                    return Err(Raise::text(&text));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((*option, size)))
    }

    /// Bytes that stand before an option at `at`, so that it is aligned.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.align);
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    /// An option that stands for no value.
    fn control(&mut self, option: u8) -> Result<(), Raise> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let align = self.count(MAX_ALIGN)?;
                if !align.is_power_of_two() {
                    return Err(Raise::text(&format!("alignment {align} is not a power of 2")));
                }
                self.align = align;
            }
            other => {
                let text = [b"invalid format option '".as_slice(), &[other], b"'"].concat();
                return Err(Raise::Argument(1, text));
            }
        }
        Ok(())
    }
}

fn strip_zeros(digits: &[u8]) -> &[u8] {
    let n = digits.iter().take_while(|digit| **digit == b'0').count().min(digits.len() - 1);
    &digits[n..]
}

const fn is_integer(option: u8) -> bool {
    matches!(option, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I')
}

fn pack(lua: Lua) -> Result<c_int, Raise> {
    let mut format = Format::argument(lua)?;
    let mut out: Vec<u8> = Vec::new();
    let mut argument = 1;
    // What is missing is nil here, as in the original, which marks the end of the arguments with one.
    lua.push_nil();
    while let Some((option, size)) = format.next()? {
        let padding = format.padding(out.len(), option, size);
        out.resize(out.len() + padding, 0);
        match option {
            _ if is_integer(option) => {
                argument += 1;
                let value = number(lua, argument)?;
                // As C casts on this machine.
                let value = if value < 0.0 { super::convert::whole(value) as u64 } else { value as u64 };
                push_integer(&mut out, value, size, format.is_big);
            }
            b'x' => out.push(0),
            b'f' | b'd' => {
                argument += 1;
                let value = number(lua, argument)?;
                let bits = if option == b'f' { u64::from((value as f32).to_bits()) } else { value.to_bits() };
                push_integer(&mut out, bits, size, format.is_big);
            }
            b'c' | b's' => {
                argument += 1;
                let text = lua.string(argument).ok_or_else(|| wrong_type(lua, argument, "string"))?;
                let len = if size == 0 { text.len() } else { size };
                if text.len() < len {
                    return Err(Raise::argument(argument + 1, "string too short"));
                }
                lua.check_memory(out.len() + len)?;
                out.extend_from_slice(&text[..len]);
                if option == b's' {
                    out.push(0);
                }
            }
            _ => format.control(option)?,
        }
    }
    lua.push_string(&out);
    Ok(1)
}

fn push_integer(out: &mut Vec<u8>, value: u64, size: usize, is_big: bool) {
    let start = out.len();
    out.extend((0..size).map(|n| if n < 8 { (value >> (8 * n)) as u8 } else { 0 }));
    if is_big {
        out[start..].reverse();
    }
}

fn read_integer(bytes: &[u8], is_big: bool) -> u64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if is_big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
}

fn unpack(lua: Lua) -> Result<c_int, Raise> {
    let mut format = Format::argument(lua)?;
    let data = lua.string(2).ok_or_else(|| wrong_type(lua, 2, "string"))?;
    let start = if lua.is_nil(3) { 1.0 } else { number(lua, 3)? };
    // Redis counts without a sign: an offset below 0 is one beyond every string.
    let start = whole(start) as u64;
    if start == 0 {
        return Err(Raise::argument(3, "offset must be 1 or greater"));
    }
    let mut at = usize::try_from(start - 1).unwrap_or(usize::MAX);
    let mut n = 0;
    let too_short = || Raise::argument(2, "data string too short");
    while let Some((option, mut size)) = format.next()? {
        at = at.saturating_add(format.padding(at, option, size));
        if size > data.len() || at > data.len() - size {
            return Err(too_short());
        }
        if !lua.room(4) {
            return Err(Raise::text("stack overflow (too many results)"));
        }
        let is_big = format.is_big;
        match option {
            _ if is_integer(option) => {
                let value = read_integer(&data[at..at + size], is_big);
                let is_signed = option.is_ascii_lowercase();
                let unused = 64 - 8 * size.clamp(1, 8) as u32;
                let value =
                    if is_signed { ((value << unused) as i64 >> unused) as f64 } else { value as f64 };
                lua.push_number(value);
                n += 1;
            }
            b'x' => {}
            b'f' => {
                lua.push_number(f32::from_bits(read_integer(&data[at..at + 4], is_big) as u32).into());
                n += 1;
            }
            b'd' => {
                lua.push_number(f64::from_bits(read_integer(&data[at..at + 8], is_big)));
                n += 1;
            }
            b'c' => {
                if size == 0 {
                    let len = if n > 0 { lua.number(-1) } else { None };
                    let Some(len) = len else {
                        return Err(Raise::text("format 'c0' needs a previous size"));
                    };
                    size = len as usize;
                    lua.pop(1);
                    n -= 1;
                    if size > data.len() || at > data.len() - size {
                        return Err(too_short());
                    }
                }
                lua.push_string(&data[at..at + size]);
                n += 1;
            }
            b's' => {
                let Some(len) = memchr::memchr(0, &data[at..]) else {
                    return Err(Raise::text("unfinished string in data"));
                };
                lua.push_string(&data[at..at + len]);
                size = len + 1;
                n += 1;
            }
            _ => format.control(option)?,
        }
        at += size;
    }
    lua.push_number(at as f64 + 1.0);
    Ok(n + 1)
}

fn size(lua: Lua) -> Result<c_int, Raise> {
    let mut format = Format::argument(lua)?;
    let mut at = 0usize;
    while let Some((option, size)) = format.next()? {
        at = at.saturating_add(format.padding(at, option, size)).saturating_add(size);
        match option {
            b's' => return Err(Raise::argument(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(Raise::argument(1, "option 'c0' has no fixed size")),
            _ if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
    }
    lua.push_number(at as f64);
    Ok(1)
}
