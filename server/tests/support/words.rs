//! How bytes are written in dialogues: words of a command line, and the escapes inside quotes.
//!
//! A word is bare, or quoted with `\r \n \t \" \\ \xHH`, or a spelled-out argument:
//! `@rep(x,100)` a hundred x, `@f32(1,-2.5)` little-endian float32s, `@hex(00ff)` bytes, `@now+10` and `@now_ms-5` the time then.

use std::time::{SystemTime, UNIX_EPOCH};

/// Splits a command line into arguments.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut argv = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        if rest.starts_with('"') {
            let (bytes, after) = quoted(rest)?;
            argv.push(bytes);
            rest = after.trim_start();
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            argv.push(bare(&rest[..end])?);
            rest = rest[end..].trim_start();
        }
    }
    Ok(argv)
}

/// Reads a quoted string at the start of `text`; gives its bytes and what follows it.
pub fn quoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return Err(format!("unbalanced quotes in {text}")),
            Some(b'"') => return Ok((out, &text[at + 1..])),
            Some(b'\\') => {
                let escaped = *bytes.get(at + 1).ok_or("a backslash at the end")?;
                at += 2;
                out.push(match escaped {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'x' => {
                        let hex = text.get(at..at + 2).ok_or("a short \\x")?;
                        at += 2;
                        u8::from_str_radix(hex, 16).map_err(|e| format!("\\x{hex}: {e}"))?
                    }
                    other => other,
                });
            }
            Some(&b) => {
                out.push(b);
                at += 1;
            }
        }
    }
}

/// Writes bytes between quotes so that `quoted` reads them back.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &b in bytes {
        match b {
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'"' | b'\\' => {
                out.push('\\');
                out.push(b as char);
            }
            32..=126 => out.push(b as char),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out.push('"');
    out
}

/// A command as a line, for messages.
pub fn show(argv: &[Vec<u8>]) -> String {
    let word = |a: &Vec<u8>| {
        let plain = !a.is_empty() && a[0] != b'@' && a.iter().all(|b| b.is_ascii_graphic() && *b != b'"');
        if plain { String::from_utf8_lossy(a).into_owned() } else { quote(a) }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as i64
}

fn bare(word: &str) -> Result<Vec<u8>, String> {
    let Some(spelled) = word.strip_prefix('@') else { return Ok(word.as_bytes().to_vec()) };
    let bad = || format!("cannot read @{spelled}");
    if let Some(offset) = spelled.strip_prefix("now_ms") {
        let offset: i64 = if offset.is_empty() { 0 } else { offset.parse().map_err(|_| bad())? };
        return Ok((now_ms() + offset).to_string().into_bytes());
    }
    if let Some(offset) = spelled.strip_prefix("now") {
        let offset: i64 = if offset.is_empty() { 0 } else { offset.parse().map_err(|_| bad())? };
        return Ok((now_ms() / 1000 + offset).to_string().into_bytes());
    }
    let (name, inside) = spelled.split_once('(').ok_or_else(bad)?;
    let inside = inside.strip_suffix(')').ok_or_else(bad)?;
    match name {
        "rep" => {
            let (text, count) = inside.rsplit_once(',').ok_or_else(bad)?;
            Ok(text.repeat(count.parse().map_err(|_| bad())?).into_bytes())
        }
        "hex" => {
            let digits = inside.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).map_err(|_| bad()));
            digits.map(|pair| u8::from_str_radix(pair?, 16).map_err(|_| bad())).collect()
        }
        "f32" => {
            let mut out = Vec::new();
            for number in inside.split(',') {
                out.extend_from_slice(&number.parse::<f32>().map_err(|_| bad())?.to_le_bytes());
            }
            Ok(out)
        }
        _ => Err(bad()),
    }
}
