//! `math.random` of scripts: the generator of `lrand48`, so that a seed gives the numbers that it gives in Redis.

/// 48 bits of state.
#[derive(Clone, Copy)]
pub(super) struct Random(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const ADDEND: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// What the last 31 bits are taken modulo.
const MAX: u64 = i32::MAX as u64;

impl Random {
    pub(super) fn new(seed: i32) -> Self {
        Self(u64::from(seed as u32) << 16 | 0x330E)
    }

    /// From 0 to below 1.
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(ADDEND) & MASK;
        ((self.0 >> 17) % MAX) as f64 / MAX as f64
    }
}
