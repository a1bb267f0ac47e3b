//! Splits an inline request into arguments, with Redis's quoting (`sdssplitargs`).
//!
//! Words part at space, tab and CR; `"..."` knows `\xHH \n \r \t \b \a` and takes any other escaped byte as itself;
//! `'...'` knows `\'` only; a quote may open inside a word and a closing one must end it. Vertical tab and form
//! feed are skipped between words and are part of a word inside one, as in Redis.

use super::ArgRange;

/// Appends the unquoted words of `line` to `text` and their ranges to `args`; `None`: unbalanced quotes.
/// `line` is shorter than 4 GiB.
pub fn split(line: &[u8], text: &mut Vec<u8>, args: &mut Vec<ArgRange>) -> Option<()> {
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Some(());
        }
        let start = text.len() as u32;
        rest = word(rest, text)?;
        args.push(ArgRange { start, end: text.len() as u32 });
    }
}

/// Unquotes the word at the head of `rest`; what follows it is returned.
fn word<'l>(mut rest: &'l [u8], text: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        match rest {
            [] | [b' ' | b'\t' | b'\r' | b'\n', ..] => return Some(rest),
            [b'"', inside @ ..] => return after_closing(double_quoted(inside, text)?),
            [b'\'', inside @ ..] => return after_closing(single_quoted(inside, text)?),
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

/// A closing quote must be followed by a blank or by nothing.
fn after_closing(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_blank(byte)).then_some(rest)
}

fn double_quoted<'l>(mut rest: &'l [u8], text: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, tail) = match rest {
            [] => return None,
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_digit(*high) << 4 | hex_digit(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescaped(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        text.push(byte);
        rest = tail;
    }
}

fn single_quoted<'l>(mut rest: &'l [u8], text: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, tail) = match rest {
            [] => return None,
            [b'\'', tail @ ..] => return Some(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        text.push(byte);
        rest = tail;
    }
}

fn unescaped(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}
