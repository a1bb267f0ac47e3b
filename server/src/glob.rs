//! Glob matching as KEYS, SCAN, PSUBSCRIBE, CONFIG GET and ACL patterns mean it: `*`, `?`, `[a-z]`, `[^a-z]`
//! and `\` as the escape.
//!
//! Source: the pattern language of the KEYS page, with its corner cases as Redis 8.2.3 answers them: an
//! unclosed class ends with the pattern, a reversed range is turned round, an escape at the end is itself.
//! Departure: stars match the empty text, where Redis lets only the one star of KEYS and SCAN do so.
//! Cost: O(pattern x text) time at worst and no memory. The matcher remembers only the last `*`, because a
//! later star can take over whatever an earlier one left open; so no pattern blows up and none recurses.
//! It must never know what it matches: keys, channels and directive names are all bytes to it.

/// Whether ASCII letters of either case are the same letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Sensitive,
    Insensitive,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Case::Sensitive => byte,
            Case::Insensitive => byte.to_ascii_lowercase(),
        }
    }
}

/// Whether the whole of `text` matches `pattern`.
///
/// ```
/// use skerry_server::glob::{Case, glob_match};
/// assert!(glob_match(b"user:[0-9]*", b"user:42", Case::Sensitive));
/// assert!(!glob_match(b"user:?", b"user:42", Case::Sensitive));
/// ```
pub fn glob_match(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to resume when a mismatch follows a star: the pattern behind it, the text it has not eaten yet.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            while p < pattern.len() && pattern[p] == b'*' {
                p += 1;
            }
            if p == pattern.len() {
                return true;
            }
            star = Some((p, t));
            continue;
        }
        if t == text.len() {
            // Giving a star more text cannot help: there is none left to match what follows it.
            return p == pattern.len();
        }
        if p < pattern.len()
            && let Some(next) = match_one(&pattern[p..], text[t], case)
        {
            p += next;
            t += 1;
            continue;
        }
        let Some((behind, eaten)) = star else { return false };
        star = Some((behind, eaten + 1));
        p = behind;
        t = eaten + 1;
    }
}

/// Matches one byte against the element that starts `pattern`; the element's length if it fits.
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<usize> {
    let literal = |element: u8| case.fold(element) == case.fold(byte);
    match pattern[0] {
        b'?' => Some(1),
        b'[' => match_class(pattern, byte, case),
        b'\\' if pattern.len() > 1 => literal(pattern[1]).then_some(2),
        element => literal(element).then_some(1),
    }
}

/// Matches one byte against the class `[...]` that starts `pattern`.
fn match_class(pattern: &[u8], byte: u8, case: Case) -> Option<usize> {
    let byte = case.fold(byte);
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match pattern[at.min(pattern.len())..] {
            [b'\\', escaped, ..] => {
                found |= case.fold(escaped) == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [first, b'-', last, ..] => {
                let (low, high) = (first.min(last), first.max(last));
                found |= (case.fold(low)..=case.fold(high)).contains(&byte);
                at += 3;
            }
            [single, ..] => {
                found |= case.fold(single) == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}
