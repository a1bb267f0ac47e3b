//! Numbers exactly as Redis reads and prints them.
//!
//! | function | Redis's | refuses, among others |
//! | --- | --- | --- |
//! | [`parse_i64`] | `string2ll` | ``, `+1`, ` 1`, `01`, `-0`, 2^63 |
//! | [`parse_u64`] | `string2ull` | ``, `1 `, `-1`, 2^64 |
//! | [`parse_f64`] | `getDoubleFromObject` (C's `strtod` on the whole text) | ``, ` 1`, `1 `, `nan`, `1e400`, `1e-400` |
//! | [`format_17g`] | `%.17g`, where Redis prints a score so | |
//! | [`format_f64`] | `d2string`: integers below 2^62 in full, else Grisu2's digits | |
//! | [`format_shortest`] | `fpconv_dtoa`: Grisu2's digits alone |
//! | [`LongDouble`] | `string2ld`, `long double` addition, `ld2string` for people | as `parse_f64`, and 5,120 bytes |
//!
//! Nothing here allocates, except for long doubles of more than 38 digits or far exponents.

mod big;
mod double;
mod grisu;
mod literal;
mod long_double;

pub use double::{FloatText, format_17g, format_f64, format_shortest, parse_f64};
pub use long_double::LongDouble;

/// A decimal `i64` in its one canonical form: no plus, no blanks, no leading zeros, no `-0`.
///
/// ```
/// use skerry_resp::parse_i64;
/// assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
/// assert_eq!(parse_i64(b"01"), None);
/// ```
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] => Some(0),
        [b'-', magnitude @ ..] => 0_i64.checked_sub_unsigned(canonical_u64(magnitude)?),
        _ => i64::try_from(canonical_u64(text)?).ok(),
    }
}

/// A decimal `u64` as `string2ull` reads it, by C's `strtoull`: blanks before it, a plus sign and leading zeros pass,
/// and a negative number wraps (`-01` is 2^64 - 1) unless it is a canonical `i64`.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || negative && parse_i64(text).is_some() {
        return None;
    }
    let mut value = 0_u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Digits without a leading zero: 1 to 2^64 - 1.
#[inline]
fn canonical_u64(digits: &[u8]) -> Option<u64> {
    const SURELY_FITS: usize = 19;
    if digits.is_empty() || digits[0] == b'0' || digits.len() > SURELY_FITS + 1 {
        return None;
    }
    let mut value = 0_u64;
    let (head, tail) = digits.split_at(digits.len().min(SURELY_FITS));
    for byte in head {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for byte in tail {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}
