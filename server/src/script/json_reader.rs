//! The reading half of `cjson`, with its words for what is no JSON.

use std::ffi::c_int;

use super::json::{JsonOptions, options};
use super::lua::{Lua, Raise};
use super::sandbox::wrong_type;

/// `cjson.decode`
pub(super) fn decode(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(Raise::argument(1, "expected 1 argument"));
    }
    let Some(text) = lua.string(1) else { return Err(wrong_type(lua, 1, "string")) };
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Raise::text("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut reader = Reader { lua, options: options(lua), text, at: 0, depth: 0, string: Vec::new() };
    let token = reader.next();
    reader.value(token)?;
    let end = reader.next();
    if end.kind != Kind::End {
        return Err(expected("the end", &end));
    }
    Ok(1)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// In `Reader::string`.
    String,
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

struct Token {
    kind: Kind,
    at: usize,
}

fn expected(what: &str, found: &Token) -> Raise {
    let name = match found.kind {
        Kind::ObjectBegin => "T_OBJ_BEGIN",
        Kind::ObjectEnd => "T_OBJ_END",
        Kind::ArrayBegin => "T_ARR_BEGIN",
        Kind::ArrayEnd => "T_ARR_END",
        Kind::String => "T_STRING",
        Kind::Number(_) => "T_NUMBER",
        Kind::Boolean(_) => "T_BOOLEAN",
        Kind::Null => "T_NULL",
        Kind::Colon => "T_COLON",
        Kind::Comma => "T_COMMA",
        Kind::End => "T_END",
        Kind::Error(why) => why,
    };
    Raise::text(&format!("Expected {what} but found {name} at character {}", found.at + 1))
}

struct Reader<'a> {
    lua: Lua,
    options: JsonOptions,
    text: &'a [u8],
    at: usize,
    depth: i32,
    /// The last string read.
    string: Vec<u8>,
}

impl Reader<'_> {
    /// The byte at `at`; 0 behind the end, as C sees it.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let single = match self.byte(at) {
            b'{' => Kind::ObjectBegin,
            b'}' => Kind::ObjectEnd,
            b'[' => Kind::ArrayBegin,
            b']' => Kind::ArrayEnd,
            b':' => Kind::Colon,
            b',' => Kind::Comma,
            0 => return Token { kind: Kind::End, at },
            _ => return self.long_token(at),
        };
        self.at += 1;
        Token { kind: single, at }
    }

    fn long_token(&mut self, at: usize) -> Token {
        let rest = &self.text[at..];
        let word = |word: &[u8]| rest.starts_with(word);
        let kind = match rest[0] {
            b'"' => return self.string_token(),
            b'-' | b'0'..=b'9' => {
                if !self.options.decode_invalid && is_invalid_number(rest) {
                    Kind::Error("invalid number")
                } else {
                    return self.number_token(at);
                }
            }
            _ if word(b"true") => {
                self.at += 4;
                Kind::Boolean(true)
            }
            _ if word(b"false") => {
                self.at += 5;
                Kind::Boolean(false)
            }
            _ if word(b"null") => {
                self.at += 4;
                Kind::Null
            }
            b'+' | b'i' | b'I' | b'n' | b'N' if self.options.decode_invalid && is_invalid_number(rest) => {
                return self.number_token(at);
            }
            _ => Kind::Error("invalid token"),
        };
        Token { kind, at }
    }

    fn number_token(&mut self, at: usize) -> Token {
        let (number, len) = prefix_number(&self.text[at..]);
        if len == 0 {
            return Token { kind: Kind::Error("invalid number"), at };
        }
        self.at += len;
        Token { kind: Kind::Number(number), at }
    }

    fn string_token(&mut self) -> Token {
        let start = self.at;
        self.at += 1;
        self.string.clear();
        loop {
            let mut byte = self.byte(self.at);
            match byte {
                b'"' => break,
                0 => return Token { kind: Kind::Error("unexpected end of string"), at: self.at },
                b'\\' => {
                    byte = match self.byte(self.at + 1) {
                        escaped @ (b'"' | b'\\' | b'/') => escaped,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        b'u' => {
                            if self.unicode_escape().is_some() {
                                continue;
                            }
                            return Token { kind: Kind::Error("invalid unicode escape code"), at: self.at };
                        }
                        _ => return Token { kind: Kind::Error("invalid escape code"), at: self.at },
                    };
                    self.at += 1;
                }
                _ => {}
            }
            self.string.push(byte);
            self.at += 1;
        }
        self.at += 1;
        Token { kind: Kind::String, at: start }
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.iter().try_fold(0, |value, digit| Some(value << 4 | (*digit as char).to_digit(16)?))
    }

    /// `\uXXXX`, or two of them, as UTF-8.
    fn unicode_escape(&mut self) -> Option<()> {
        let mut code = self.hex4(self.at + 2)?;
        let mut len = 6;
        if code & 0xF800 == 0xD800 {
            if code & 0x400 != 0 || self.byte(self.at + 6) != b'\\' || self.byte(self.at + 7) != b'u' {
                return None;
            }
            let low = self.hex4(self.at + 8)?;
            if low & 0xFC00 != 0xDC00 {
                return None;
            }
            code = ((code & 0x3FF) << 10 | low & 0x3FF) + 0x1_0000;
            len = 12;
        }
        let mut utf8 = [0; 4];
        self.string.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut utf8).as_bytes());
        self.at += len;
        Some(())
    }

    fn descend(&mut self) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth > self.options.decode_max_depth || !self.lua.room(6) {
            let text =
                format!("Found too many nested data structures ({}) at character {}", self.depth, self.at);
            return Err(Raise::text(&text));
        }
        Ok(())
    }

    /// The value that begins with `token`, onto the stack.
    fn value(&mut self, token: Token) -> Result<(), Raise> {
        match token.kind {
            Kind::String => self.lua.push_string(&self.string),
            Kind::Number(number) => self.lua.push_number(number),
            Kind::Boolean(value) => self.lua.push_bool(value),
            Kind::Null => self.lua.push_null(),
            Kind::ObjectBegin => return self.object(),
            Kind::ArrayBegin => return self.array(),
            _ => return Err(expected("value", &token)),
        }
        Ok(())
    }

    fn object(&mut self) -> Result<(), Raise> {
        self.descend()?;
        self.lua.push_table(0, 0);
        let mut token = self.next();
        if token.kind == Kind::ObjectEnd {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            if token.kind != Kind::String {
                return Err(expected("object key string", &token));
            }
            self.lua.push_string(&self.string);
            token = self.next();
            if token.kind != Kind::Colon {
                return Err(expected("colon", &token));
            }
            token = self.next();
            self.value(token)?;
            self.lua.set(-3);
            token = self.next();
            match token.kind {
                Kind::ObjectEnd => break,
                Kind::Comma => token = self.next(),
                _ => return Err(expected("comma or object end", &token)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Raise> {
        self.descend()?;
        self.lua.push_table(0, 0);
        let mut token = self.next();
        if token.kind == Kind::ArrayEnd {
            self.depth -= 1;
            return Ok(());
        }
        let mut index = 1;
        loop {
            self.value(token)?;
            self.lua.set_at(-2, index);
            index += 1;
            token = self.next();
            match token.kind {
                Kind::ArrayEnd => break,
                Kind::Comma => token = self.next(),
                _ => return Err(expected("comma or array end", &token)),
            }
        }
        self.depth -= 1;
        Ok(())
    }
}

/// Whether a number is one that JSON does not have: a plus in front, hexadecimal, zeros in front, infinity, NaN.
fn is_invalid_number(text: &[u8]) -> bool {
    if text[0] == b'+' {
        return true;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    match text {
        [b'0', next, ..] => next | 0x20 == b'x' || next.is_ascii_digit(),
        [first, ..] if *first <= b'9' => false,
        _ => text
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")),
    }
}

/// The number that C's `strtod` finds at the start of a text, and how long it is.
fn prefix_number(text: &[u8]) -> (f64, usize) {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let negative = text.first() == Some(&b'-');
    let signed = |value: f64| if negative { -value } else { value };
    let rest = &text[sign..];
    let is_word = |word: &[u8]| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    if is_word(b"infinity") {
        return (signed(f64::INFINITY), sign + 8);
    }
    if is_word(b"inf") {
        return (signed(f64::INFINITY), sign + 3);
    }
    if is_word(b"nan") {
        return (signed(f64::NAN), sign + 3);
    }
    if is_word(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = rest[2..].iter().take_while(|digit| digit.is_ascii_hexdigit());
        let (mut value, mut len) = (0.0, 0);
        for digit in digits {
            value = value * 16.0 + f64::from((*digit as char).to_digit(16).unwrap_or(0));
            len += 1;
        }
        return (signed(value), sign + 2 + len);
    }
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    let mut n_digits = whole;
    if rest.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        n_digits += fraction;
        len += 1 + fraction;
    }
    if n_digits == 0 {
        return (0.0, 0);
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let exponent_sign = usize::from(matches!(rest.get(len + 1), Some(b'-' | b'+')));
        let exponent = digits((len + 1 + exponent_sign).min(rest.len()));
        if exponent > 0 {
            len += 1 + exponent_sign + exponent;
        }
    }
    let text = std::str::from_utf8(&rest[..len]).unwrap_or("0");
    (signed(text.parse().unwrap_or(0.0)), sign + len)
}
