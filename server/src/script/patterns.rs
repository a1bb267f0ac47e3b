//! Lua's patterns, for `string.find`, `match`, `gmatch` and `gsub`: Lua's own matcher recurses as deep as a pattern is long and cannot
//! be stopped. This one counts its steps, looks whether the script is to end, and refuses to go too deep.
//! The rules are those of the Lua 5.1 manual (§5.4.1).

use super::lua::{Lua, Raise};

const MAX_CAPTURES: usize = 32;
/// Nested choices of one match.
const MAX_DEPTH: u32 = 4000;
/// Steps between two looks.
const LOOK_EVERY: u32 = 1 << 16;

/// What a capture holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Open,
    Position,
    Bytes(usize),
}

#[derive(Clone, Copy)]
struct Capture {
    start: usize,
    held: Held,
}

pub(super) struct Matcher<'a> {
    lua: Lua,
    text: &'a [u8],
    pattern: &'a [u8],
    level: usize,
    captures: [Capture; MAX_CAPTURES],
    depth: u32,
    steps: u32,
}

type Matched = Result<Option<usize>, Raise>;

impl<'a> Matcher<'a> {
    /// `pattern` without the anchor.
    pub(super) fn new(lua: Lua, text: &'a [u8], pattern: &'a [u8]) -> Self {
        let end = memchr::memchr(0, pattern).unwrap_or(pattern.len());
        let pattern = &pattern[..end];
        let captures = [Capture { start: 0, held: Held::Open }; MAX_CAPTURES];
        Self { lua, text, pattern, level: 0, captures, depth: 0, steps: 0 }
    }

    /// Where a match that begins at `at` ends.
    pub(super) fn begin(&mut self, at: usize) -> Matched {
        self.level = 0;
        self.depth = 0;
        self.matches(at, 0)
    }

    fn byte(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    fn step(&mut self) -> Result<(), Raise> {
        self.steps += 1;
        if self.steps.is_multiple_of(LOOK_EVERY) { self.lua.look() } else { Ok(()) }
    }

    fn matches(&mut self, s: usize, p: usize) -> Matched {
        if self.depth >= MAX_DEPTH {
            return Err(Raise::text("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.matches_on(s, p);
        self.depth -= 1;
        matched
    }

    fn matches_on(&mut self, mut s: usize, mut p: usize) -> Matched {
        loop {
            self.step()?;
            if p >= self.pattern.len() {
                return Ok(Some(s));
            }
            match self.pattern[p] {
                b'(' if self.byte(p + 1) == b')' => return self.open(s, p + 2, Held::Position),
                b'(' => return self.open(s, p + 1, Held::Open),
                b')' => return self.close(s, p + 1),
                b'%' if self.byte(p + 1) == b'b' => match self.balanced(s, p + 2)? {
                    Some(end) => {
                        (s, p) = (end, p + 4);
                        continue;
                    }
                    None => return Ok(None),
                },
                b'%' if self.byte(p + 1) == b'f' => {
                    p += 2;
                    if self.byte(p) != b'[' {
                        return Err(Raise::text("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = if s == 0 { 0 } else { self.text[s - 1] };
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p, end - 1) || !self.in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                    continue;
                }
                b'%' if self.byte(p + 1).is_ascii_digit() => {
                    let capture = self.closed_capture(self.byte(p + 1))?;
                    let Held::Bytes(len) = capture.held else { return Ok(None) };
                    let again = &self.text[capture.start..capture.start + len];
                    if !self.text[s..].starts_with(again) {
                        return Ok(None);
                    }
                    (s, p) = (s + len, p + 2);
                    continue;
                }
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.text.len()).then_some(s));
                }
                _ => {}
            }
            let end = self.class_end(p)?;
            let is_single = self.is_single(s, p, end);
            match self.byte(end) {
                b'?' => {
                    if is_single && let Some(matched) = self.matches(s + 1, end + 1)? {
                        return Ok(Some(matched));
                    }
                    p = end + 1;
                }
                b'*' => return self.most(s, p, end),
                b'+' => return if is_single { self.most(s + 1, p, end) } else { Ok(None) },
                b'-' => return self.least(s, p, end),
                _ if !is_single => return Ok(None),
                _ => (s, p) = (s + 1, end),
            }
        }
    }

    fn most(&mut self, s: usize, p: usize, end: usize) -> Matched {
        let mut n = 0;
        while self.is_single(s + n, p, end) {
            n += 1;
        }
        loop {
            self.step()?;
            if let Some(matched) = self.matches(s + n, end + 1)? {
                return Ok(Some(matched));
            }
            match n.checked_sub(1) {
                Some(less) => n = less,
                None => return Ok(None),
            }
        }
    }

    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Matched {
        loop {
            self.step()?;
            if let Some(matched) = self.matches(s, end + 1)? {
                return Ok(Some(matched));
            }
            if !self.is_single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, held: Held) -> Matched {
        if self.level >= MAX_CAPTURES {
            return Err(Raise::text("too many captures"));
        }
        self.captures[self.level] = Capture { start: s, held };
        self.level += 1;
        let matched = self.matches(s, p)?;
        if matched.is_none() {
            self.level -= 1;
        }
        Ok(matched)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched {
        let open = (0..self.level).rev().find(|index| self.captures[*index].held == Held::Open);
        let Some(open) = open else { return Err(Raise::text("invalid pattern capture")) };
        self.captures[open].held = Held::Bytes(s - self.captures[open].start);
        let matched = self.matches(s, p)?;
        if matched.is_none() {
            self.captures[open].held = Held::Open;
        }
        Ok(matched)
    }

    fn closed_capture(&self, digit: u8) -> Result<Capture, Raise> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        match self.captures[..self.level].get(index) {
            Some(capture) if capture.held != Held::Open => Ok(*capture),
            _ => Err(Raise::text("invalid capture index")),
        }
    }

    fn balanced(&mut self, s: usize, p: usize) -> Matched {
        if p + 1 >= self.pattern.len() {
            return Err(Raise::text("unbalanced pattern"));
        }
        let (open, close) = (self.pattern[p], self.pattern[p + 1]);
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (at, byte) in self.text.iter().enumerate().skip(s + 1) {
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Behind the class that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, Raise> {
        let len = self.pattern.len();
        match self.pattern[p] {
            b'%' if p + 1 >= len => Err(Raise::text("malformed pattern (ends with '%')")),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = if self.byte(p + 1) == b'^' { p + 2 } else { p + 1 };
                loop {
                    if at >= len {
                        return Err(Raise::text("malformed pattern (missing ']')"));
                    }
                    let is_escape = self.pattern[at] == b'%';
                    at += 1;
                    if is_escape && at < len {
                        at += 1;
                    }
                    if self.byte(at) == b']' && at < len {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn is_single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(byte) = self.text.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(*byte, self.pattern[p + 1]),
            b'[' => self.in_set(*byte, p, end - 1),
            literal => literal == *byte,
        }
    }

    /// Whether a byte is in the set from `[` at `p` to `]` at `last`.
    fn in_set(&self, byte: u8, mut p: usize, last: usize) -> bool {
        let mut is_in = true;
        if self.pattern[p + 1] == b'^' {
            is_in = false;
            p += 1;
        }
        p += 1;
        while p < last {
            if self.pattern[p] == b'%' {
                p += 1;
                if in_class(byte, self.byte(p)) {
                    return is_in;
                }
            } else if self.byte(p + 1) == b'-' && p + 2 < last {
                p += 2;
                if (self.pattern[p - 2]..=self.pattern[p]).contains(&byte) {
                    return is_in;
                }
            } else if self.pattern[p] == byte {
                return is_in;
            }
            p += 1;
        }
        !is_in
    }

    /// Puts capture `index` of the match `s..e` on the stack.
    pub(super) fn push_capture(&self, index: usize, s: usize, e: usize) -> Result<(), Raise> {
        if index >= self.level {
            if index != 0 {
                return Err(Raise::text("invalid capture index"));
            }
            self.lua.push_string(&self.text[s..e]);
            return Ok(());
        }
        let Capture { start, held } = self.captures[index];
        match held {
            Held::Open => return Err(Raise::text("unfinished capture")),
            Held::Position => self.lua.push_number(start as f64 + 1.0),
            Held::Bytes(len) => self.lua.push_string(&self.text[start..start + len]),
        }
        Ok(())
    }

    /// All captures, or the whole match (`is_whole`) if there are none; how many values.
    pub(super) fn push_captures(&self, s: usize, e: usize, is_whole: bool) -> Result<i32, Raise> {
        let n = if self.level == 0 && is_whole { 1 } else { self.level };
        if !self.lua.room(n as i32 + 4) {
            return Err(Raise::text("stack overflow (too many captures)"));
        }
        for index in 0..n {
            self.push_capture(index, s, e)?;
        }
        Ok(n as i32)
    }
}

/// Whether a byte is of class `%class`.
fn in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}
