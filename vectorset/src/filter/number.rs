//! Text as a number, as C's strtod reads it: what an operator makes of a string operand.
//!
//! Departure from C: a hexadecimal number below the normal range may be off by one unit in the last place.

/// Longer texts are no numbers to Redis, whatever they say.
const MAX_NUMBER_LEN: usize = 255;

/// The number that the whole text says, or 0.
pub(super) fn number_of(text: &[u8]) -> f64 {
    if text.len() > MAX_NUMBER_LEN {
        return 0.0;
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    parse(text).unwrap_or(0.0)
}

/// A decimal number of the characters `0-9 + - . e E`; `None` if it is none.
pub(super) fn decimal(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What C's isspace holds for.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0B | 0x0C | b'\r')
}

fn parse(text: &[u8]) -> Option<f64> {
    let text = &text[text.iter().position(|&byte| !is_space(byte))?..];
    let (sign, magnitude) = match text {
        [b'-', rest @ ..] => (-1.0, rest),
        [b'+', rest @ ..] => (1.0, rest),
        _ => (1.0, text),
    };
    match magnitude {
        [b'0'..=b'9' | b'.', ..] => match magnitude {
            [b'0', b'x' | b'X', hexadecimal @ ..] => Some(sign * parse_hexadecimal(hexadecimal)?),
            _ => decimal(text),
        },
        _ if magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"infinity") => {
            Some(sign * f64::INFINITY)
        }
        _ => is_nan(magnitude).then_some(f64::NAN),
    }
}

/// `nan` or `nan(letters)`.
fn is_nan(text: &[u8]) -> bool {
    let Some((word, rest)) = text.split_at_checked(3) else { return false };
    let is_tail = match rest {
        [] => true,
        [b'(', letters @ .., b')'] => {
            letters.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        }
        _ => false,
    };
    word.eq_ignore_ascii_case(b"nan") && is_tail
}

/// What follows `0x`: digits with at most one point, and a binary exponent.
fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let exponent_at = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
    let (digits, exponent) = match exponent_at {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (mut mantissa, mut scale, mut n_digits, mut is_fraction) = (0_u64, 0_i64, 0, false);
    for &byte in digits {
        if byte == b'.' && !is_fraction {
            is_fraction = true;
            continue;
        }
        let digit = u64::from(char::from(byte).to_digit(16)?);
        n_digits += 1;
        if mantissa >> 58 == 0 {
            mantissa = mantissa << 4 | digit;
            scale -= if is_fraction { 4 } else { 0 };
        } else {
            // Digits beyond the precision only say which way to round.
            mantissa |= u64::from(digit != 0);
            scale += if is_fraction { 0 } else { 4 };
        }
    }
    let exponent = (exponent + scale).clamp(-2_000, 2_000) as i32;
    // In two steps: 2^exponent alone may be out of range where the product is not.
    let half = exponent / 2;
    (n_digits > 0).then(|| mantissa as f64 * 2.0_f64.powi(half) * 2.0_f64.powi(exponent - half))
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1_000_000);
    is_number.then(|| sign * digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn texts_are_read_as_c_reads_them() {
        let cases: &[(&str, f64)] = &[
            ("", 0.0),
            (" ", 0.0),
            ("12", 12.0),
            (" \t\n12", 12.0),
            ("12 ", 0.0),
            ("+1.5e3", 1500.0),
            ("-.5", -0.5),
            ("5.", 5.0),
            (".", 0.0),
            ("1e", 0.0),
            ("+-1", 0.0),
            ("1_0", 0.0),
            ("1e400", f64::INFINITY),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("infinit", 0.0),
            ("0x10", 16.0),
            ("-0X.8p1", -1.0),
            ("0x", 0.0),
            ("0x1p", 0.0),
            ("0x1p-1074", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1p1024", f64::INFINITY),
            ("0x10000000000000000000000", 2.0_f64.powi(88)),
            ("7\0x", 7.0),
        ];
        for (text, number) in cases {
            assert_eq!(number_of(text.as_bytes()), *number, "{text:?}");
        }
        assert!(number_of(b"nan").is_nan() && number_of(b"-NaN(1_a)").is_nan());
        assert_eq!(number_of(b"nan(-)"), 0.0);
        assert_eq!((number_of(&[b'1'; 255]).is_finite(), number_of(&[b'1'; 256])), (true, 0.0));
    }
}
