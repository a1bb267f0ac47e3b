//! Splits a `--command` line into words, as redis-cli and memtier_benchmark split theirs.
//!
//! Must never know: commands or placeholders.

/// A quote was not closed, or text follows a closing quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

/// Splits a command line as redis-cli and memtier do: blanks separate, "..." takes \xHH \n \r \t \b \a
/// escapes, '...' takes \' only, a closing quote ends its word.
pub fn split_command(line: &str) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut words = Vec::new();
    let mut rest = line.as_bytes().trim_ascii_start();
    while !rest.is_empty() {
        let (word, tail) = next_word(rest)?;
        words.push(word);
        rest = tail.trim_ascii_start();
    }
    Ok(words)
}

fn next_word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), UnbalancedQuotes> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Ok((word, rest)),
            [c, ..] if c.is_ascii_whitespace() => return Ok((word, rest)),
            [quote @ (b'"' | b'\''), tail @ ..] => {
                let tail = quoted_word(*quote, tail, &mut word)?;
                return match tail {
                    [c, ..] if !c.is_ascii_whitespace() => Err(UnbalancedQuotes),
                    _ => Ok((word, tail)),
                };
            }
            [c, tail @ ..] => {
                word.push(*c);
                rest = tail;
            }
        }
    }
}

/// Reads up to the closing quote; returns what follows it.
fn quoted_word<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [c, tail @ ..] if *c == quote => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |c: u8| (c as char).to_digit(16).expect("checked above") as u8;
                word.push(digit(*high) << 4 | digit(*low));
                tail
            }
            [b'\\', c, tail @ ..] if quote == b'"' => {
                word.push(match c {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                tail
            }
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                tail
            }
            [c, tail @ ..] => {
                word.push(*c);
                tail
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes() {
        assert_eq!(
            split_command(r#" SET "a\x00\n\"b" 'c\'d e' f "#),
            Ok(vec![b"SET".to_vec(), b"a\0\n\"b".to_vec(), b"c'd e".to_vec(), b"f".to_vec()])
        );
        for bad in ["SET \"a", "SET 'a", "SET \"a\"b"] {
            assert_eq!(split_command(bad), Err(UnbalancedQuotes), "{bad}");
        }
    }
}
