//! Doubles: read as `getDoubleFromObject` reads them, printed as `d2string` prints them.
//!
//! Decimal texts are rounded by the standard library (correctly, as glibc's `strtod` does); the range rules and the
//! hexadecimal form are ours. Printing: whole numbers up to 2^62 in full, everything else by `grisu`.

use super::grisu;
use super::literal::{self, Literal};
use crate::reply::Digits;

/// Room for the text of a double; the longest has 25 bytes.
#[derive(Debug)]
pub struct FloatText([u8; 32]);

impl FloatText {
    pub fn new() -> FloatText {
        FloatText([0; 32])
    }
}

impl Default for FloatText {
    fn default() -> FloatText {
        FloatText::new()
    }
}

/// The whole text as a double: `strtod`'s syntax with hexadecimals and infinities, but neither blanks nor `nan`,
/// nor numbers that overflow or come to nothing.
///
/// ```
/// use skerry_resp::parse_f64;
/// assert_eq!(parse_f64(b"0x1p3"), Some(8.0));
/// assert_eq!(parse_f64(b"-Infinity"), Some(f64::NEG_INFINITY));
/// assert_eq!(parse_f64(b"1e400"), None);
/// ```
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let (negative, literal) = literal::parse(text)?;
    match literal {
        Literal::Infinite if negative => Some(f64::NEG_INFINITY),
        Literal::Infinite => Some(f64::INFINITY),
        Literal::Hex { mantissa, rest, exponent } => {
            let magnitude = round_binary(mantissa, rest, exponent);
            let in_range = magnitude.is_finite() && (magnitude != 0.0 || mantissa == 0);
            in_range.then_some(if negative { -magnitude } else { magnitude })
        }
        Literal::Decimal { whole, fraction, .. } => {
            let value: f64 = str::from_utf8(text).ok()?.parse().ok()?;
            let is_zero_text = || whole.iter().chain(fraction).all(|&digit| digit == b'0');
            (value.is_finite() && (value != 0.0 || is_zero_text())).then_some(value)
        }
    }
}

/// The double nearest to `mantissa * 2^exponent` (ties to even), where `rest` says that a little more follows.
fn round_binary(mantissa: u128, rest: bool, exponent: i64) -> f64 {
    const MANTISSA_BITS: i64 = 53;
    const MIN_EXPONENT: i64 = -1074;
    if mantissa == 0 {
        return 0.0;
    }
    let n_bits = 128 - i64::from(mantissa.leading_zeros());
    if exponent + n_bits > 1024 {
        return f64::INFINITY;
    }
    let drop = (n_bits - MANTISSA_BITS).max(MIN_EXPONENT - exponent).max(0);
    if drop > n_bits {
        return 0.0;
    }
    let kept = if drop == 128 { 0 } else { mantissa >> drop };
    let lost = if drop == 128 { mantissa } else { mantissa & ((1 << drop) - 1) };
    let half = if drop == 0 { 0 } else { 1_u128 << (drop - 1) };
    let up = drop > 0 && (lost > half || lost == half && (rest || kept & 1 == 1));
    // Both factors and the product are exact, unless it overflows to infinity, as it should.
    let rounded = (kept + u128::from(up)) as f64;
    scale(rounded, exponent + drop)
}

/// `value * 2^exponent` in two exact steps, for a `value` of at most 53 bits and an exponent in a double's range.
fn scale(value: f64, exponent: i64) -> f64 {
    let half = exponent / 2;
    value * power_of_two(half) * power_of_two(exponent - half)
}

fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The text Redis gives for a score or any other double.
///
/// ```
/// use skerry_resp::number::{FloatText, format_f64};
/// assert_eq!(format_f64(1e21, &mut FloatText::new()), b"1e+21");
/// ```
pub fn format_f64(value: f64, text: &mut FloatText) -> &[u8] {
    /// Whole numbers up to here are printed in full: Redis's half of the largest `long long`, as a double.
    const WHOLE_MAX: f64 = (1_u64 << 62) as f64;
    if value.is_nan() {
        return b"nan";
    }
    if value.is_infinite() {
        return if value > 0.0 { b"inf" } else { b"-inf" };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { b"-0" } else { b"0" };
    }
    let whole = value as i64;
    if value.abs() <= WHOLE_MAX && whole as f64 == value {
        let mut digits = Digits::new();
        let digits = digits.of(whole);
        text.0[..digits.len()].copy_from_slice(digits);
        return &text.0[..digits.len()];
    }
    format_shortest(value, text)
}

/// Grisu2's digits alone, large whole numbers with an exponent (Redis's `fpconv_dtoa`).
///
/// ```
/// use skerry_resp::number::{FloatText, format_shortest};
/// assert_eq!(format_shortest(100_000_000.0, &mut FloatText::new()), b"1e+8");
/// ```
pub fn format_shortest(value: f64, text: &mut FloatText) -> &[u8] {
    if value == 0.0 || !value.is_finite() {
        return format_f64(value, text);
    }
    let mut at = 0;
    if value < 0.0 {
        text.0[0] = b'-';
        at = 1;
    }
    let mut digits = [0; grisu::MAX_DIGITS];
    let (n_digits, exponent) = grisu::shortest(value.abs(), &mut digits);
    at += lay_out(&digits[..n_digits], exponent, &mut text.0[at..]);
    &text.0[..at]
}

/// C's `%.17g`, which Redis shows in a few places.
pub fn format_17g(value: f64) -> String {
    const DIGITS: i32 = 17;
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        trimmed(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

/// Writes `digits * 10^exponent` plainly when it is short enough, else with an exponent; returns the length.
fn lay_out(digits: &[u8], exponent: i32, out: &mut [u8]) -> usize {
    let mut line = Line { out, len: 0 };
    let n_digits = digits.len() as i32;
    let scientific = exponent + n_digits - 1;
    if exponent >= 0 && scientific < n_digits + 7 {
        line.push(digits);
        line.zeros(exponent);
    } else if exponent < 0 && (exponent > -7 || scientific.abs() < 4) {
        let point = n_digits + exponent;
        if point <= 0 {
            line.push(b"0.");
            line.zeros(-point);
            line.push(digits);
        } else {
            line.push(&digits[..point as usize]);
            line.push(b".");
            line.push(&digits[point as usize..]);
        }
    } else {
        line.push(&digits[..1]);
        if n_digits > 1 {
            line.push(b".");
            line.push(&digits[1..]);
        }
        line.push(if scientific < 0 { b"e-" } else { b"e+" });
        line.push(Digits::new().of(i64::from(scientific.abs())));
    }
    line.len
}

/// A text that grows in place.
struct Line<'t> {
    out: &'t mut [u8],
    len: usize,
}

impl Line<'_> {
    fn push(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn zeros(&mut self, n: i32) {
        for _ in 0..n {
            self.push(b"0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::format_17g;

    #[test]
    fn values_are_printed_as_c_prints_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.10000000000000001"),
            (1e17, "1e+17"),
            (12_345_678_901_234_567.0, "12345678901234568"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
            (1.5e300, "1.5000000000000001e+300"),
        ];
        for (value, text) in cases {
            assert_eq!(format_17g(value), text);
        }
    }
}
