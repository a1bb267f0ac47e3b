//! The words of a Lua text, for `proof`. Anything that is not plain Lua 5.1 is no text to prove anything of.

/// One word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Name(&'a [u8]),
    Keyword(&'a [u8]),
    /// What stands between the quotes, if no byte of it is escaped.
    Text(Option<&'a [u8]>),
    Number(&'a [u8]),
    Symbol(&'a [u8]),
}

const KEYWORDS: &[&[u8]] = &[
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"false",
    b"for",
    b"function",
    b"if",
    b"in",
    b"local",
    b"nil",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"true",
    b"until",
    b"while",
];

/// Longest first.
const SYMBOLS: &[&[u8]] = &[b"...", b"..", b"==", b"~=", b"<=", b">="];

/// The words of a text; `None` if it has something that is none.
pub(super) fn tokens(text: &[u8]) -> Option<Vec<Token<'_>>> {
    let mut rest = text;
    let mut tokens = Vec::new();
    loop {
        let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 11).count();
        rest = &rest[blanks..];
        let [first, ..] = rest else { return Some(tokens) };
        if let Some(comment) = rest.strip_prefix(b"--") {
            rest = behind_comment(comment)?;
            continue;
        }
        let len = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let len =
                    rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
                let word = &rest[..len];
                tokens.push(if KEYWORDS.contains(&word) { Token::Keyword(word) } else { Token::Name(word) });
                len
            }
            b'0'..=b'9' => push_number(rest, &mut tokens),
            b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => push_number(rest, &mut tokens),
            b'"' | b'\'' => push_quoted(rest, *first, &mut tokens)?,
            b'[' if long_level(rest).is_some() => {
                let (inside, len) = long_text(rest)?;
                // A line end at its start is no part of it; such a text names no command.
                let is_plain = !matches!(inside.first(), Some(b'\n' | b'\r'));
                tokens.push(Token::Text(is_plain.then_some(inside)));
                len
            }
            b'+' | b'-' | b'*' | b'/' | b'%' | b'^' | b'#' | b'~' | b'<' | b'>' | b'=' | b'(' | b')'
            | b'{' | b'}' | b'[' | b']' | b';' | b':' | b',' | b'.' => {
                let long = SYMBOLS.iter().find(|symbol| rest.starts_with(symbol));
                let len = long.map_or(1, |symbol| symbol.len());
                tokens.push(Token::Symbol(&rest[..len]));
                len
            }
            _ => return None,
        };
        rest = &rest[len..];
    }
}

fn push_number<'a>(rest: &'a [u8], tokens: &mut Vec<Token<'a>>) -> usize {
    let mut len = 0;
    while let Some(byte) = rest.get(len) {
        let is_sign = matches!(byte, b'+' | b'-') && matches!(rest[len - 1], b'e' | b'E');
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || len > 0 && is_sign) {
            break;
        }
        len += 1;
    }
    tokens.push(Token::Number(&rest[..len]));
    len
}

/// A text in quotes; its length with them.
fn push_quoted<'a>(rest: &'a [u8], quote: u8, tokens: &mut Vec<Token<'a>>) -> Option<usize> {
    let mut at = 1;
    let mut is_plain = true;
    loop {
        match rest.get(at)? {
            byte if *byte == quote => break,
            b'\n' | b'\r' => return None,
            b'\\' => {
                is_plain = false;
                at += 2;
            }
            _ => at += 1,
        }
    }
    tokens.push(Token::Text(is_plain.then(|| &rest[1..at])));
    Some(at + 1)
}

/// The number of equals signs if a long bracket opens here.
fn long_level(rest: &[u8]) -> Option<usize> {
    let level = rest[1..].iter().take_while(|byte| **byte == b'=').count();
    (rest.get(level + 1) == Some(&b'[')).then_some(level)
}

/// What stands in long brackets, and the length with them.
fn long_text(rest: &[u8]) -> Option<(&[u8], usize)> {
    let level = long_level(rest)?;
    let start = level + 2;
    let mut closing = vec![b'='; level + 2];
    closing[0] = b']';
    closing[level + 1] = b']';
    let len = memchr::memmem::find(&rest[start..], &closing)?;
    Some((&rest[start..start + len], start + len + closing.len()))
}

fn behind_comment(comment: &[u8]) -> Option<&[u8]> {
    if comment.first() == Some(&b'[') && long_level(comment).is_some() {
        let (_, len) = long_text(comment)?;
        return Some(&comment[len..]);
    }
    let end = memchr::memchr2(b'\n', b'\r', comment).unwrap_or(comment.len());
    Some(&comment[end..])
}
