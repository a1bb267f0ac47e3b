//! `@file` arguments: one workload file serves `skerry-bench @set.args` and `xargs -a set.args
//! memtier_benchmark`.
//!
//! Invariant: a file yields here the very arguments that `xargs` would pass. So the quoting rules are those
//! of POSIX xargs: blanks and newlines separate, single and double quotes group (and may not span lines), a
//! backslash outside quotes takes the next character as it is. There are no comments, because xargs would
//! pass them on.
//!
//! Must never know: what an argument means.

use std::path::Path;
use std::{fs, io};

/// A file inside a file is followed this deep; a file that names itself ends here.
const MAX_NESTING: usize = 4;

/// Why an `@file` argument could not be replaced by its content.
#[derive(Debug)]
pub enum ResponseFileError {
    Read { path: String, source: io::Error },
    Unterminated { quote: char },
    NestedTooDeep { path: String },
}

impl std::fmt::Display for ResponseFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "cannot read argument file {path}: {source}"),
            Self::Unterminated { quote } => write!(f, "unterminated {quote} in an argument file"),
            Self::NestedTooDeep { path } => write!(f, "argument files nested too deep at {path}"),
        }
    }
}

impl std::error::Error for ResponseFileError {}

/// Replaces every `@file` by the arguments in that file, in place, so that later arguments still win.
pub fn expand(args: impl IntoIterator<Item = String>) -> Result<Vec<String>, ResponseFileError> {
    let mut out = Vec::new();
    for arg in args {
        expand_one(arg, 0, &mut out)?;
    }
    Ok(out)
}

fn expand_one(arg: String, depth: usize, out: &mut Vec<String>) -> Result<(), ResponseFileError> {
    let Some(path) = arg.strip_prefix('@') else {
        out.push(arg);
        return Ok(());
    };
    if depth >= MAX_NESTING {
        return Err(ResponseFileError::NestedTooDeep { path: path.to_owned() });
    }
    let text = fs::read_to_string(Path::new(path))
        .map_err(|source| ResponseFileError::Read { path: path.to_owned(), source })?;
    for inner in split_as_xargs(&text)? {
        expand_one(inner, depth + 1, out)?;
    }
    Ok(())
}

/// Splits `text` as `xargs` does.
pub fn split_as_xargs(text: &str) -> Result<Vec<String>, ResponseFileError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' | '"' => {
                let quoted = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(q) if q == c => break,
                        Some('\n') | None => return Err(ResponseFileError::Unterminated { quote: c }),
                        Some(inner) => quoted.push(inner),
                    }
                }
            }
            '\\' => match chars.next() {
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err(ResponseFileError::Unterminated { quote: '\\' }),
            },
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_group_and_backslash_escapes() {
        let words =
            split_as_xargs("--pipeline=30\n--command=\"SET __key__ __data__\"\n-d 256\n'a b'c\\ d ''\n")
                .expect("well-formed");
        assert_eq!(words, ["--pipeline=30", "--command=SET __key__ __data__", "-d", "256", "a bc d", ""]);
    }

    #[test]
    fn a_quote_may_not_span_lines() {
        assert!(matches!(
            split_as_xargs("--command=\"SET\nx\""),
            Err(ResponseFileError::Unterminated { quote: '"' })
        ));
    }

    #[test]
    fn a_file_is_expanded_in_place() {
        let path = std::env::temp_dir().join(format!("skerry-bench-args-{}", std::process::id()));
        fs::write(&path, "-t 1\n-c 2\n").expect("temporary file");
        let args = expand([format!("@{}", path.display()), "-c".into(), "3".into()]).expect("expands");
        fs::remove_file(&path).expect("remove");
        assert_eq!(args, ["-t", "1", "-c", "2", "-c", "3"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = expand(["@/nonexistent/x.args".to_owned()]).expect_err("no such file");
        assert!(error.to_string().contains("/nonexistent/x.args"), "{error}");
    }
}
