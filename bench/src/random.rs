//! The one random generator of the bench: SplitMix64 (Steele, Lea, Flood 2014).
//!
//! A run must repeat exactly from its seed on any machine and with any crate version, so the generator is
//! these ten lines and no dependency. It is not for anything secret.

/// A seeded stream of 64-bit numbers; one addition and three multiply-shifts each.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `minimum..=maximum`, by multiply and shift (bias below 2^-32 for any range a bench uses).
    #[inline]
    pub fn range_inclusive(&mut self, minimum: u64, maximum: u64) -> u64 {
        let width = u128::from(maximum - minimum) + 1;
        minimum + ((u128::from(self.next_u64()) * width) >> 64) as u64
    }

    /// Uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.range_inclusive(0, last as u64) as usize);
        }
    }

    /// Standard normal by the polar method; the second value of a pair is dropped to keep the state one word.
    pub fn normal_f64(&mut self) -> f64 {
        loop {
            let u = self.unit_f64() * 2.0 - 1.0;
            let v = self.unit_f64() * 2.0 - 1.0;
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                return u * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_first_values() {
        // Reference values of splitmix64.c for seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_range_reaches_both_ends_and_nothing_else() {
        let mut random = SplitMix64::new(7);
        let mut seen = [false; 4];
        for _ in 0..1000 {
            let k = random.range_inclusive(3, 6);
            seen[(k - 3) as usize] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(random.range_inclusive(9, 9), 9);
        random.range_inclusive(0, u64::MAX);
    }
}
