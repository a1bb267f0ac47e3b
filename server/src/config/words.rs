//! How a line of `redis.conf` is cut into words, and how a value is quoted so that it stays one word.
//!
//! Invariant: `split(quote(v)) == [v]` for every byte string, line breaks and NUL included; this is what
//! keeps CONFIG REWRITE safe from a value that carries a line of its own.
//! Source: the quoting rules of redis.conf and of inline commands. Cost: one pass, one copy.

/// Cuts a line at blanks; `"..."` knows `\n \r \t \b \a \xHH` escapes, `'...'` knows `\'`.
/// `None`: a quote is not closed, or text follows a closing quote.
pub(super) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_blank(*first)
        {
            rest = tail;
        }
        if rest.is_empty() || rest[0] == 0 {
            return Some(words);
        }
        let (word, tail) = take_word(rest)?;
        words.push(word);
        rest = tail;
    }
}

/// The value as a `"..."` word of printable ASCII.
pub(super) fn quote(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 2);
    out.push(b'"');
    for &byte in value {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x07 => out.extend(b"\\a"),
            0x08 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    out.push(b'"');
    out
}

/// C's `isspace`, which also knows the vertical tab.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn take_word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [0, ..] => return Some((word, rest)),
            [first, ..] if is_blank(*first) => return Some((word, rest)),
            [b'"', tail @ ..] => {
                rest = take_double_quoted(&mut word, tail)?;
                return closes(rest).then_some((word, rest));
            }
            [b'\'', tail @ ..] => {
                rest = take_single_quoted(&mut word, tail)?;
                return closes(rest).then_some((word, rest));
            }
            [first, tail @ ..] => {
                word.push(*first);
                rest = tail;
            }
        }
    }
}

/// A closing quote must end its word.
fn closes(rest: &[u8]) -> bool {
    rest.first().is_none_or(|&byte| byte == 0 || is_blank(byte))
}

fn take_double_quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn take_single_quoted<'a>(word: &mut Vec<u8>, mut rest: &'a [u8]) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return Some(tail),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_of_a_line() {
        let cases: [(&str, Option<&[&str]>); 9] = [
            ("  port   6380 ", Some(&["port", "6380"])),
            (r#"save """#, Some(&["save", ""])),
            (r#"a "b c" 'd e'"#, Some(&["a", "b c", "d e"])),
            (r#"a "\x41\n\q""#, Some(&["a", "A\nq"])),
            (r"a 'it\'s'", Some(&["a", "it's"])),
            (r#"a "b"c"#, None),
            (r#"a "b"#, None),
            ("a 'b", None),
            ("", Some(&[])),
        ];
        for (line, expected) in cases {
            let expected =
                expected.map(|words| words.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>());
            assert_eq!(split(line.as_bytes()), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_value_is_one_printable_word(value: Vec<u8>) {
            let quoted = quote(&value);
            prop_assert!(quoted.iter().all(|byte| (b' '..=b'~').contains(byte)));
            prop_assert_eq!(split(&quoted), Some(vec![value]));
        }
    }
}
