//! How a line of `redis.conf` is cut into words, and how a value is quoted so that it stays one word.
//!
//! Invariant: `split(quote(v)) == [v]` for every byte string, line breaks and NUL included; this is what
//! keeps CONFIG REWRITE safe from a value that carries a line of its own.
//! Source: the quoting rules of redis.conf and of inline commands. Cost: one pass, one copy.

use skerry_resp::request::split_words;

/// Cuts a line at blanks as inline requests are cut; it ends at a NUL, as C's strings do.
/// `None`: a quote is not closed, or text follows a closing quote.
pub(super) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = &line[..memchr::memchr(0, line).unwrap_or(line.len())];
    let (mut text, mut ranges) = (Vec::new(), Vec::new());
    split_words(line, &mut text, &mut ranges)?;
    Some(ranges.iter().map(|range| range.of(&text).to_vec()).collect())
}

/// The value as a `"..."` word of printable ASCII.
pub(super) fn quote(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 2);
    quote_into(value, &mut out);
    out
}

/// The same at the end of `out`; MONITOR shows arguments so.
pub(crate) fn quote_into(value: &[u8], out: &mut Vec<u8>) {
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
