//! Just enough arithmetic on big naturals to round and print long doubles exactly: little-endian 32-bit limbs.
//!
//! Sizes are bounded by the callers: a text has at most 5,119 bytes and exponents are cut at a long double's range,
//! so a number has at most some 35,000 bits.

/// A natural number; no zero limb on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Big(Vec<u32>);

impl Big {
    /// From ASCII decimal digits.
    pub(super) fn from_digits<'d>(digits: impl Iterator<Item = &'d u8>) -> Big {
        let mut big = Big(Vec::new());
        let (mut chunk, mut scale) = (0, 1);
        for digit in digits {
            chunk = chunk * 10 + u32::from(digit - b'0');
            scale *= 10;
            if scale == 1_000_000_000 {
                big.multiply_add(scale, chunk);
                (chunk, scale) = (0, 1);
            }
        }
        big.multiply_add(scale, chunk);
        big
    }

    pub(super) fn shifted(value: u64, bits: usize) -> Big {
        let mut big = Big(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big.shift_left(bits);
        big
    }

    pub(super) fn multiply_power_of_ten(&mut self, mut exponent: usize) {
        while exponent >= 9 {
            self.multiply_add(1_000_000_000, 0);
            exponent -= 9;
        }
        self.multiply_add(10_u32.pow(exponent as u32), 0);
    }

    pub(super) fn n_bits(&self) -> usize {
        self.0.last().map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    pub(super) fn shift_left(&mut self, bits: usize) {
        if self.0.is_empty() {
            return;
        }
        let (limbs, bits) = (bits / 32, bits % 32);
        if bits > 0 {
            let mut carry = 0;
            for limb in &mut self.0 {
                let wide = u64::from(*limb) << bits | carry;
                *limb = wide as u32;
                carry = wide >> 32;
            }
            self.0.push(carry as u32);
            self.trim();
        }
        self.0.splice(0..0, std::iter::repeat_n(0, limbs));
    }

    /// The top 128 bits (fewer, if there are no more), the exponent that they lost, and whether anything that is not
    /// zero lies below.
    pub(super) fn top(&self) -> (u128, usize, bool) {
        let drop = self.n_bits().saturating_sub(128);
        let mut top = 0;
        for bit in (drop..self.n_bits()).rev() {
            top = top << 1 | u128::from(self.bit(bit));
        }
        (top, drop, (0..drop).any(|bit| self.bit(bit) == 1))
    }

    /// `n_bits` bits of `self / divisor`, of which the first is the quotient's highest or the zero above it, the
    /// exponent of the last, and whether the division leaves a rest.
    pub(super) fn divide(mut self, mut divisor: Big, n_bits: usize) -> (u128, i64, bool) {
        let shift = self.n_bits() as i64 - divisor.n_bits() as i64;
        if shift >= 0 {
            divisor.shift_left(shift as usize);
        } else {
            self.shift_left(-shift as usize);
        }
        let mut quotient = 0;
        for _ in 0..n_bits {
            quotient <<= 1;
            if self.is_at_least(&divisor) {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.shift_left(1);
        }
        (quotient, shift - (n_bits as i64 - 1), !self.0.is_empty())
    }

    /// Appends the decimal text.
    pub(super) fn push_text(mut self, out: &mut Vec<u8>) {
        let start = out.len();
        while !self.0.is_empty() {
            let mut rest = self.divide_small(1_000_000_000);
            for _ in 0..9 {
                out.push(b'0' + (rest % 10) as u8);
                rest /= 10;
            }
        }
        while out.len() > start + 1 && out.last() == Some(&b'0') {
            out.pop();
        }
        if out.len() == start {
            out.push(b'0');
        }
        out[start..].reverse();
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.0 {
            let wide = u64::from(*limb) * u64::from(factor) + carry;
            *limb = wide as u32;
            carry = wide >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn divide_small(&mut self, divisor: u32) -> u32 {
        let mut rest = 0;
        for limb in self.0.iter_mut().rev() {
            let wide = rest << 32 | u64::from(*limb);
            *limb = (wide / u64::from(divisor)) as u32;
            rest = wide % u64::from(divisor);
        }
        self.trim();
        rest as u32
    }

    fn is_at_least(&self, other: &Big) -> bool {
        if self.0.len() != other.0.len() {
            return self.0.len() > other.0.len();
        }
        self.0.iter().rev().ge(other.0.iter().rev())
    }

    /// `other` is at most `self`.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (less, under) = limb.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (less, under_too) = less.overflowing_sub(u32::from(borrow));
            *limb = less;
            borrow = under || under_too;
        }
        assert!(!borrow, "subtracted more than there was");
        self.trim();
    }

    fn bit(&self, at: usize) -> u32 {
        self.0[at / 32] >> (at % 32) & 1
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}
