//! Numbers against answers that were recorded from a live Redis 8.2.3 (`golden/numbers.tsv` tells how), and against
//! slower twins.

use proptest::prelude::*;
use skerry_resp::number::FloatText;
use skerry_resp::{LongDouble, format_f64, parse_f64, parse_i64, parse_u64};

fn score(text: &str) -> String {
    match parse_f64(text.as_bytes()) {
        Some(value) => String::from_utf8(format_f64(value, &mut FloatText::new()).to_vec()).unwrap(),
        None => "error".into(),
    }
}

fn incr_by_float(a: &str, b: &str) -> String {
    let (Some(a), Some(b)) = (LongDouble::parse(a.as_bytes()), LongDouble::parse(b.as_bytes())) else {
        return "error".into();
    };
    let sum = a + b;
    if !sum.is_finite() {
        return "error".into();
    }
    let mut out = Vec::new();
    sum.push_text(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn answers_are_those_of_redis() {
    let mut n_cases = 0;
    let mut wrong = Vec::new();
    for line in include_str!("golden/numbers.tsv").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (expected, got) = match cells[..] {
            ["score", text, expected] => (expected, score(text)),
            ["incr", a, b, expected] => (expected, incr_by_float(a, b)),
            ["int", text, expected] => {
                let value = parse_i64(text.as_bytes());
                (expected, value.map_or("error".into(), |value| value.to_string()))
            }
            ["u64", text, expected] => {
                let value = parse_u64(text.as_bytes());
                (expected, value.map_or("error".into(), |value| value.to_string()))
            }
            _ => panic!("not a case: {line}"),
        };
        n_cases += 1;
        if got != expected {
            wrong.push(format!("{line}\n    got {got}"));
        }
    }
    assert!(n_cases > 400, "only {n_cases} cases");
    assert!(
        wrong.is_empty(),
        "{} of {n_cases} wrong:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

#[test]
fn texts_longer_than_any_number_are_cut_where_redis_cuts_them() {
    let one_of = |n_zeros: usize| format!("{}1", "0".repeat(n_zeros));
    assert_eq!(incr_by_float(&one_of(5118), "1"), "2");
    assert_eq!(incr_by_float(&one_of(5119), "1"), "error");
    let ones = |n_ones: usize| format!("0.{}", "1".repeat(n_ones));
    assert_eq!(incr_by_float(&ones(5117), "1"), "1.11111111111111111");
    assert_eq!(incr_by_float(&ones(5118), "1"), "error");
    assert_eq!(score(&ones(6000)), "0.1111111111111111");
    assert_eq!(score(&format!("{}7", "0".repeat(100_000))), "7");
    assert_eq!(score(&format!("0x0.{}1p20004", "0".repeat(5000))), "1");
}

#[test]
fn infinities_and_nan_are_told_apart() {
    let parse = |text: &str| LongDouble::parse(text.as_bytes()).unwrap();
    assert!((parse("inf") + parse("1")).is_infinite());
    assert!((parse("inf") + parse("-inf")).is_nan());
    assert!((parse("1e4932") + parse("1e4932")).is_infinite());
    let text = |value: LongDouble| {
        let mut out = Vec::new();
        value.push_text(&mut out);
        out
    };
    assert_eq!(text(parse("-inf")), b"-inf");
    assert_eq!(text(LongDouble::from_i64(i64::MIN)), b"-9223372036854775808");
    assert_eq!(format_f64(f64::NAN, &mut FloatText::new()), b"nan");
}

proptest! {
    #[test]
    fn a_printed_double_reads_back(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        let mut text = FloatText::new();
        let text = format_f64(value, &mut text);
        prop_assert_eq!(parse_f64(text).map(f64::to_bits), Some(bits), "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn a_printed_integer_reads_back(value: i64) {
        prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        let (mut digits, text) = (skerry_resp::reply::Digits::new(), value.to_string());
        prop_assert_eq!(digits.of(value), text.as_bytes());
    }

    #[test]
    fn canonical_integers_are_what_the_standard_library_prints(text in "[-+ 0]{0,2}[0-9]{0,21}") {
        let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        prop_assert_eq!(parse_i64(text.as_bytes()), canonical);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[-+]?(0[xX])?[0-9a-f.]{0,40}([eEpP][-+]?[0-9]{0,12})?|\\PC{0,12}") {
        let _ = (parse_f64(text.as_bytes()), parse_u64(text.as_bytes()));
        if let Some(value) = LongDouble::parse(text.as_bytes()) {
            let mut out = Vec::new();
            value.push_text(&mut out);
            (value + value).push_text(&mut out);
        }
    }

    /// Sixteenths of 52 bits and their sums are exact in both formats, and so is their text of four places.
    #[test]
    fn long_doubles_agree_with_doubles_where_those_are_exact(a in -1_i64 << 51..1 << 51, b in -1_i64 << 51..1 << 51) {
        let (a, b) = (a as f64 / 16.0, b as f64 / 16.0);
        let sum = format!("{:.4}", a + b);
        let sum = sum.trim_end_matches('0').trim_end_matches('.');
        prop_assert_eq!(incr_by_float(&format!("{a:.4}"), &format!("{b:.4}")), sum);
    }
}
