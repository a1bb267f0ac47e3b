//! The syntax of C's `strtod` family, on a whole text: sign, decimal or hexadecimal digits, exponent, `inf`.
//!
//! Only the syntax: what precision the digits are rounded to is the caller's. `nan` is no literal here, because
//! Redis refuses it wherever it reads a float.

/// What a text says, sign apart.
pub(super) enum Literal<'t> {
    /// `<whole>.<fraction> * 10^exponent`, in ASCII digits; one part may be empty.
    Decimal {
        whole: &'t [u8],
        fraction: &'t [u8],
        exponent: i64,
    },
    /// `mantissa * 2^exponent`; `rest` says that lower digits which are not zero were cut off.
    Hex {
        mantissa: u128,
        rest: bool,
        exponent: i64,
    },
    Infinite,
}

/// Exponents are clamped to this; beyond, every format we know is at zero or at infinity whatever the digits
/// (texts are far shorter than this).
const EXPONENT_CAP: i64 = 1 << 40;

/// `(is negative, literal)` when the whole text is one.
pub(super) fn parse(text: &[u8]) -> Option<(bool, Literal<'_>)> {
    let (negative, magnitude) = match text {
        [b'-', magnitude @ ..] => (true, magnitude),
        [b'+', magnitude @ ..] => (false, magnitude),
        _ => (false, text),
    };
    let literal = match magnitude {
        [b'i' | b'I', ..] => infinite(magnitude),
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        _ => decimal(magnitude),
    };
    literal.map(|literal| (negative, literal))
}

fn infinite(text: &[u8]) -> Option<Literal<'_>> {
    let is_infinite = text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity");
    is_infinite.then_some(Literal::Infinite)
}

fn decimal(text: &[u8]) -> Option<Literal<'_>> {
    let (whole, fraction, exponent) = split(text, u8::is_ascii_digit, b'e')?;
    Some(Literal::Decimal { whole, fraction, exponent })
}

fn hexadecimal(text: &[u8]) -> Option<Literal<'_>> {
    let (whole, fraction, mut exponent) = split(text, u8::is_ascii_hexdigit, b'p')?;
    exponent -= 4 * fraction.len() as i64;
    let mut mantissa = 0_u128;
    let mut rest = false;
    for &digit in whole.iter().chain(fraction) {
        let digit = char::from(digit).to_digit(16)?;
        if mantissa >> 124 == 0 {
            mantissa = mantissa << 4 | u128::from(digit);
        } else {
            rest |= digit != 0;
            exponent += 4;
        }
    }
    Some(Literal::Hex { mantissa, rest, exponent })
}

/// Digits before the point, digits behind it, exponent. At least one digit there must be.
fn split(text: &[u8], is_digit: fn(&u8) -> bool, exponent_mark: u8) -> Option<(&[u8], &[u8], i64)> {
    let (whole, tail) = take_while(text, is_digit);
    let (fraction, tail) = match tail {
        [b'.', tail @ ..] => take_while(tail, is_digit),
        _ => (&[][..], tail),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = match tail {
        [] => 0,
        [mark, tail @ ..] if mark.to_ascii_lowercase() == exponent_mark => signed_exponent(tail)?,
        _ => return None,
    };
    Some((whole, fraction, exponent))
}

fn signed_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => (false, text),
    };
    let (digits, []) = take_while(digits, u8::is_ascii_digit) else { return None };
    if digits.is_empty() {
        return None;
    }
    let size = digits.iter().fold(0, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_CAP));
    Some(if negative { -size } else { size })
}

fn take_while(text: &[u8], belongs: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| belongs(byte)).count())
}
