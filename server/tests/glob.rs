//! The glob matcher against a plain recursive twin, what Redis finds, and patterns made to take for ever.

use std::time::Instant;

use proptest::prelude::*;
use skerry_server::glob::{Case, glob_match};

/// The definition, written without care for time: each construct consumes what it may and the rest must match.
fn oracle(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let fold = |byte: u8| match case {
        Case::Sensitive => byte,
        Case::Insensitive => byte.to_ascii_lowercase(),
    };
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|eaten| oracle(rest, &text[eaten..], case)),
        [b'?', rest @ ..] => !text.is_empty() && oracle(rest, &text[1..], case),
        [b'[', rest @ ..] => {
            let Some(&byte) = text.first() else { return false };
            let (negated, mut rest) = match rest {
                [b'^', rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let mut members = Vec::new();
            loop {
                match rest {
                    [] => break,
                    [b'\\', escaped, tail @ ..] => {
                        members.push((*escaped, *escaped));
                        rest = tail;
                    }
                    [b']', tail @ ..] => {
                        rest = tail;
                        break;
                    }
                    [first, b'-', last, tail @ ..] => {
                        members.push((*first.min(last), *first.max(last)));
                        rest = tail;
                    }
                    [single, tail @ ..] => {
                        members.push((*single, *single));
                        rest = tail;
                    }
                }
            }
            let found = members.iter().any(|&(low, high)| (fold(low)..=fold(high)).contains(&fold(byte)));
            found != negated && oracle(rest, &text[1..], case)
        }
        [b'\\', escaped, rest @ ..] => {
            text.first().is_some_and(|&byte| fold(byte) == fold(*escaped)) && oracle(rest, &text[1..], case)
        }
        [literal, rest @ ..] => {
            text.first().is_some_and(|&byte| fold(byte) == fold(*literal)) && oracle(rest, &text[1..], case)
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    prop_oneof![Just(Case::Sensitive), Just(Case::Insensitive)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_oracle(
        pattern in "[abAB*?\\[\\]^\\\\-]{0,10}",
        text in "[abAB\\]^-]{0,8}",
        case in case(),
    ) {
        let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(glob_match(pattern, text, case), oracle(pattern, text, case));
    }

    #[test]
    fn any_bytes_are_safe(pattern: Vec<u8>, text: Vec<u8>, case in case()) {
        glob_match(&pattern, &text, case);
    }
}

#[test]
fn examples() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("***", "abc", true),
        ("h?llo", "hello", true),
        ("h?llo", "hllo", false),
        ("h*llo", "heeeello", true),
        ("h[ae]llo", "hallo", true),
        ("h[^e]llo", "hello", false),
        ("h[a-b]llo", "hbllo", true),
        ("h[b-a]llo", "hallo", true),
        ("h\\*llo", "h*llo", true),
        ("h\\*llo", "hello", false),
        ("a\\", "a\\", true),
        ("a[bc", "ac", true),
        ("a[", "ab", false),
        ("[]a]", "a", false),
        ("a*b*c", "aXbXbXc", true),
        ("*a", "ba", true),
        ("*a", "ab", false),
    ] {
        assert_eq!(
            glob_match(pattern.as_bytes(), text.as_bytes(), Case::Sensitive),
            expected,
            "{pattern} {text}"
        );
    }
    assert!(glob_match(b"MAX*", b"maxmemory", Case::Insensitive));
    assert!(!glob_match(b"MAX*", b"maxmemory", Case::Sensitive));
}

/// Patterns that made other matchers exponential or deep. The bound is on work, not on a fine time: a matcher
/// that blows up would not end before the universe does.
#[test]
fn no_pattern_blows_up() {
    let text = vec![b'a'; 20_000];
    for pattern in [
        "a*".repeat(200) + "b",
        "*?".repeat(500) + "b",
        "*[a-z]".repeat(300) + "b",
        "*".repeat(100_000) + "b",
    ] {
        let start = Instant::now();
        assert!(!glob_match(pattern.as_bytes(), &text, Case::Sensitive));
        assert!(start.elapsed().as_secs() < 20, "{} took {:?}", &pattern[..20], start.elapsed());
    }
}

/// What KEYS found on Redis 8.2.3, corner cases of classes and escapes included.
#[test]
fn agrees_with_redis() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/glob-8.2.3.tsv");
    let recording = std::fs::read_to_string(path).expect("the recording is in the repository");
    let mut lines = recording.lines().filter(|line| !line.starts_with('#'));
    let keys: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let mut wrong = Vec::new();
    let mut n_patterns = 0;
    for line in lines {
        let (pattern, found) = line.split_once('\t').unwrap();
        let found: Vec<usize> = found.split_terminator(' ').map(|at| at.parse().unwrap()).collect();
        for (at, key) in keys.iter().enumerate() {
            if key.is_empty() && pattern.bytes().all(|byte| byte == b'*') {
                // The departure that the matcher's file tells.
                continue;
            }
            if glob_match(pattern.as_bytes(), key.as_bytes(), Case::Sensitive) != found.contains(&at) {
                wrong.push(format!("{pattern} on {key:?}: Redis says {}", found.contains(&at)));
            }
        }
        n_patterns += 1;
    }
    assert!(wrong.is_empty(), "{} {wrong:#?}", wrong.len());
    assert_eq!(n_patterns, 500);
}
