//! The x87's 80-bit `long double` in integers, because `INCRBYFLOAT` and `HINCRBYFLOAT` add in it and their sums show:
//! 128 + 0.1 is 128.10000000000000001.
//!
//! ```text
//! value = (-1)^negative * mantissa * 2^exponent      mantissa: 64 bits, its top bit set,
//!                                                    unless exponent is MIN_EXPONENT (zero and subnormals)
//! ```
//!
//! Reading and adding round to nearest, ties to even, once, from the exact value, as glibc and the x87 do; printing is
//! `%.17Lf` of the exact value with trailing zeros cut off (`ld2string`, the form for people).
//!
//! Cost: 128-bit integers for texts of up to 38 digits with up to 18 of them behind the point and no exponent;
//! everything else, down to 1e-4950, takes big integers, bounded by the length of a text.

use std::cmp::Ordering;

use super::big::Big;
use super::literal::{self, Literal};

/// An 80-bit extended float, or an infinity, or no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Finite { mantissa: u64, exponent: i32 },
    Infinite,
    NotANumber,
}

const MIN_EXPONENT: i32 = -16445;
/// The largest number is just below 2^16384.
const MAX_BITS: i32 = 16384;
/// Redis copies a text to a buffer of 5 * 1024 bytes with its terminator.
const MAX_TEXT_LEN: usize = 5 * 1024 - 1;
/// 10^4933 is infinite.
const MAX_DECIMAL: i64 = 4933;
/// Half the smallest number is above 10^-4952: less rounds to zero.
const MIN_DECIMAL: i64 = -4952;
/// Decimal places that are printed.
const PLACES: usize = 17;
const ONE: u128 = 10_u128.pow(PLACES as u32);

impl LongDouble {
    pub const ZERO: LongDouble =
        LongDouble { negative: false, magnitude: Magnitude::Finite { mantissa: 0, exponent: MIN_EXPONENT } };

    pub const ONE: LongDouble =
        LongDouble { negative: false, magnitude: Magnitude::Finite { mantissa: 1 << 63, exponent: -63 } };

    /// The largest finite one.
    pub const MAX: LongDouble = LongDouble {
        negative: false,
        magnitude: Magnitude::Finite { mantissa: u64::MAX, exponent: MAX_BITS - 64 },
    };

    /// The lowest finite one.
    pub const MIN: LongDouble = LongDouble { negative: true, ..LongDouble::MAX };

    /// The whole text as a long double, by the rules of `parse_f64` with this type's range.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > MAX_TEXT_LEN {
            return None;
        }
        let (negative, literal) = literal::parse(text)?;
        let (magnitude, is_zero_text) = match literal {
            Literal::Infinite => return Some(LongDouble { negative, magnitude: Magnitude::Infinite }),
            Literal::Hex { mantissa, rest, exponent } => {
                // Far outside any range stays far outside when it is cut to an i32.
                let exponent = exponent.clamp(-1 << 20, 1 << 20) as i32;
                (round(mantissa, exponent, rest), mantissa == 0)
            }
            Literal::Decimal { whole, fraction, exponent } => {
                let digits = Digits::of(whole, fraction, exponent);
                (digits.round(), digits.n_digits() == 0)
            }
        };
        let in_range = match magnitude {
            Magnitude::Finite { mantissa, .. } => mantissa != 0 || is_zero_text,
            Magnitude::Infinite | Magnitude::NotANumber => false,
        };
        in_range.then_some(LongDouble { negative, magnitude })
    }

    /// Exact.
    pub fn from_i64(value: i64) -> LongDouble {
        let magnitude = round(u128::from(value.unsigned_abs()), 0, false);
        LongDouble { negative: value < 0, magnitude }
    }

    pub fn is_nan(&self) -> bool {
        self.magnitude == Magnitude::NotANumber
    }

    pub fn is_infinite(&self) -> bool {
        self.magnitude == Magnitude::Infinite
    }

    /// Neither infinite nor NaN.
    pub fn is_finite(&self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { .. })
    }

    /// Appends the text for people: no exponent, up to 17 decimal places. At most some 4,960 bytes.
    pub fn push_text(&self, out: &mut Vec<u8>) {
        let (mantissa, exponent) = match self.magnitude {
            Magnitude::NotANumber => return out.extend_from_slice(b"nan"),
            Magnitude::Infinite => {
                return out.extend_from_slice(if self.negative { b"-inf" } else { b"inf" });
            }
            Magnitude::Finite { mantissa, exponent } => (mantissa, exponent),
        };
        if exponent > 0 {
            if self.negative {
                out.push(b'-');
            }
            return Big::shifted(mantissa, exponent as usize).push_text(out);
        }
        // Below 2^64 in units of 10^-17, which fit 128 bits; the rest decides the rounding.
        let scaled = u128::from(mantissa) * ONE;
        let units = match exponent.unsigned_abs() {
            0 => scaled,
            drop if drop >= 128 => 0,
            drop => shift_right_to_even(scaled, drop, false),
        };
        if self.negative && units != 0 {
            out.push(b'-');
        }
        push_decimal(units, out);
    }
}

impl std::ops::Neg for LongDouble {
    type Output = LongDouble;

    fn neg(self) -> LongDouble {
        LongDouble { negative: !self.negative, magnitude: self.magnitude }
    }
}

/// By value; -0 is below 0, and what is no number is neither more nor less than any.
impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &LongDouble) -> Option<Ordering> {
        // A greater exponent means a greater number: all but those of MIN_EXPONENT are normalised.
        let rank = |number: &LongDouble| match number.magnitude {
            Magnitude::Finite { mantissa, exponent } => Some((exponent, mantissa)),
            Magnitude::Infinite => Some((i32::MAX, 0)),
            Magnitude::NotANumber => None,
        };
        let (a, b) = (rank(self)?, rank(other)?);
        Some(match (self.negative, other.negative) {
            (false, false) => a.cmp(&b),
            (true, true) => b.cmp(&a),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        })
    }
}

impl std::ops::Add for LongDouble {
    type Output = LongDouble;

    fn add(self, other: LongDouble) -> LongDouble {
        match (self.magnitude, other.magnitude) {
            (Magnitude::NotANumber, _) => self,
            (_, Magnitude::NotANumber) => other,
            (Magnitude::Infinite, Magnitude::Infinite) if self.negative != other.negative => {
                LongDouble { negative: true, magnitude: Magnitude::NotANumber }
            }
            (Magnitude::Infinite, _) => self,
            (_, Magnitude::Infinite) => other,
            (
                Magnitude::Finite { mantissa: a, exponent: a_exponent },
                Magnitude::Finite { mantissa: b, exponent: b_exponent },
            ) => {
                // A greater exponent means a greater number: all but those of MIN_EXPONENT are normalised.
                if (a_exponent, a) >= (b_exponent, b) {
                    add_smaller(self.negative, (a, a_exponent), other.negative, (b, b_exponent))
                } else {
                    add_smaller(other.negative, (b, b_exponent), self.negative, (a, a_exponent))
                }
            }
        }
    }
}

/// `large` is at least `small` in magnitude.
fn add_smaller(
    large_negative: bool,
    (large, exponent): (u64, i32),
    small_negative: bool,
    (small, small_exponent): (u64, i32),
) -> LongDouble {
    /// One bit above is for the carry.
    const GUARD_BITS: u32 = 63;
    let large = u128::from(large) << GUARD_BITS;
    let wide = u128::from(small) << GUARD_BITS;
    let drop = exponent.abs_diff(small_exponent).min(127);
    let small = wide >> drop;
    let rest = small << drop != wide;
    let sum = if large_negative == small_negative {
        large + small
    } else {
        // What was shifted out is taken from the difference too: one less, and a rest again.
        large - small - u128::from(rest)
    };
    let magnitude = round(sum, exponent - GUARD_BITS as i32, rest);
    let negative = if sum == 0 { large_negative && small_negative } else { large_negative };
    LongDouble { negative, magnitude }
}

/// The long double nearest to `bits * 2^exponent`, where `rest` says that a little more follows; then `bits` must
/// have more than 64 bits.
fn round(bits: u128, exponent: i32, rest: bool) -> Magnitude {
    let n_bits = 128 - bits.leading_zeros() as i32;
    debug_assert!(!rest || n_bits > 64, "nothing to round with");
    let drop = (n_bits - 64).max(MIN_EXPONENT - exponent);
    if bits == 0 || drop > 128 {
        return Magnitude::Finite { mantissa: 0, exponent: MIN_EXPONENT };
    }
    let kept = if drop > 0 { shift_right_to_even(bits, drop as u32, rest) } else { bits << -drop };
    // Rounding up may carry into one more bit, and into the normal range; both are exact to undo.
    let (mantissa, exponent) = match u64::try_from(kept) {
        Ok(mantissa) => (mantissa, exponent + drop),
        Err(_) => ((kept >> 1) as u64, exponent + drop + 1),
    };
    if exponent + 64 > MAX_BITS {
        return Magnitude::Infinite;
    }
    Magnitude::Finite { mantissa, exponent }
}

/// `bits / 2^drop` to the nearest, ties to even, for a `drop` of 1 to 128.
fn shift_right_to_even(bits: u128, drop: u32, rest: bool) -> u128 {
    let kept = bits.checked_shr(drop).unwrap_or(0);
    let lost = bits ^ kept.checked_shl(drop).unwrap_or(0);
    let half = 1_u128 << (drop - 1);
    let up = lost > half || lost == half && (rest || kept & 1 == 1);
    kept + u128::from(up)
}

/// Significant decimal digits: `<digits> * 10^exponent`, neither the first nor the last of them a zero.
struct Digits<'t> {
    whole: &'t [u8],
    fraction: &'t [u8],
    exponent: i64,
}

impl<'t> Digits<'t> {
    fn of(mut whole: &'t [u8], mut fraction: &'t [u8], exponent: i64) -> Digits<'t> {
        whole = trim_start(whole);
        let mut exponent = exponent - fraction.len() as i64;
        if whole.is_empty() {
            fraction = trim_start(fraction);
        }
        let n_fraction = trim_end(fraction).len();
        exponent += (fraction.len() - n_fraction) as i64;
        fraction = &fraction[..n_fraction];
        if fraction.is_empty() {
            let n_whole = trim_end(whole).len();
            exponent += (whole.len() - n_whole) as i64;
            whole = &whole[..n_whole];
        }
        Digits { whole, fraction, exponent }
    }

    fn n_digits(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    fn iter(&self) -> impl Iterator<Item = &'t u8> {
        self.whole.iter().chain(self.fraction)
    }

    fn round(&self) -> Magnitude {
        let n_digits = self.n_digits() as i64;
        if n_digits == 0 || n_digits + self.exponent < MIN_DECIMAL {
            return Magnitude::Finite { mantissa: 0, exponent: MIN_EXPONENT };
        }
        if n_digits + self.exponent > MAX_DECIMAL {
            return Magnitude::Infinite;
        }
        self.round_in_128_bits().unwrap_or_else(|| self.round_in_big())
    }

    /// The plain way for texts of a sane size.
    fn round_in_128_bits(&self) -> Option<Magnitude> {
        /// 10^38 is below 2^127.
        const DIGITS_MAX: i64 = 38;
        /// 10^18 is below 2^60: the quotient of a full 128-bit number keeps more than 64 bits.
        const DIVISOR_MAX: i64 = 18;
        let n_digits = self.n_digits() as i64;
        if n_digits.max(n_digits + self.exponent) > DIGITS_MAX || -self.exponent > DIVISOR_MAX {
            return None;
        }
        let value = self.iter().fold(0_u128, |value, digit| value * 10 + u128::from(digit - b'0'));
        if self.exponent >= 0 {
            return Some(round(value * 10_u128.pow(self.exponent as u32), 0, false));
        }
        let divisor = 10_u128.pow(-self.exponent as u32);
        let shift = value.leading_zeros();
        let value = value << shift;
        Some(round(value / divisor, -(shift as i32), value % divisor != 0))
    }

    /// The exact way for all others.
    fn round_in_big(&self) -> Magnitude {
        let mut value = Big::from_digits(self.iter());
        if self.exponent >= 0 {
            value.multiply_power_of_ten(self.exponent as usize);
            let (top, dropped, rest) = value.top();
            return round(top, dropped as i32, rest);
        }
        let mut divisor = Big::shifted(1, 0);
        divisor.multiply_power_of_ten(-self.exponent as usize);
        let (quotient, exponent, rest) = value.divide(divisor, 68);
        round(quotient, exponent as i32, rest)
    }
}

fn trim_start(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

fn trim_end(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|&&digit| digit == b'0').count();
    &digits[..digits.len() - zeros]
}

/// Appends `units * 10^-17` without trailing zeros.
fn push_decimal(units: u128, out: &mut Vec<u8>) {
    // Below 2^64, because long doubles from there on have a positive exponent.
    let whole = u64::try_from(units / ONE).unwrap_or(u64::MAX);
    let mut fraction = (units % ONE) as u64;
    let start = out.len();
    let mut rest = whole;
    loop {
        out.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out[start..].reverse();
    if fraction == 0 {
        return;
    }
    out.push(b'.');
    let mut unit = (ONE / 10) as u64;
    while fraction > 0 {
        out.push(b'0' + (fraction / unit) as u8);
        fraction %= unit;
        unit /= 10;
    }
}
