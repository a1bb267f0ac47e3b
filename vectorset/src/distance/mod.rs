//! The distance of two stored rows, 1 - dot product in float32, by the best kernel of this processor.
//!
//! Rows come as whole 64-byte blocks padded with zeros, so kernels have no tails. The table is chosen once
//! per process. A new instruction set is a file beside `avx2` and a line in `available`. Every kernel has
//! `scalar` as its twin; the tests below compare them. `dot4` adds up each row in the same order as `dot`: a
//! pair's score never depends on which of the two computed it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use std::sync::OnceLock;

pub(crate) const BLOCK_FLOATS: usize = 16;

/// One cache line of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Block(pub(crate) [f32; BLOCK_FLOATS]);

/// The kernels of one instruction set. All slices of one call have the same length.
pub(crate) struct Kernels {
    name: &'static str,
    dot: fn(&[Block], &[Block]) -> f32,
    dot4: fn(&[Block], [&[Block]; 4]) -> [f32; 4],
}

impl Kernels {
    #[inline(always)]
    pub(crate) fn distance(&self, a: &[Block], b: &[Block]) -> f32 {
        1.0 - (self.dot)(a, b)
    }

    /// Distances of four rows to one query: the query is loaded once and four misses are in flight.
    #[inline(always)]
    pub(crate) fn distance4(&self, query: &[Block], rows: [&[Block]; 4]) -> [f32; 4] {
        (self.dot4)(query, rows).map(|dot| 1.0 - dot)
    }
}

/// The kernels for this processor.
pub(crate) fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<&'static Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| available()[0])
}

/// All kernels that run on this processor, the fastest first; `scalar` is always the last.
fn available() -> Vec<&'static Kernels> {
    let mut available: Vec<&'static Kernels> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            available.push(&avx512::KERNELS);
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            available.push(&avx2::KERNELS);
        }
    }
    available.push(&scalar::KERNELS);
    available
}

/// The instruction set in use, for INFO and benchmark reports.
pub fn kernel_name() -> &'static str {
    kernels().name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::normalize;

    fn row(dim: usize, seed: u64) -> Vec<Block> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let vector: Vec<f32> = (0..dim).map(|_| next()).collect();
        let mut row = Vec::new();
        normalize(&vector, &mut row).unwrap();
        row
    }

    #[test]
    fn all_kernels_agree_with_their_scalar_twin_on_every_dimension() {
        for dim in (1..=130).chain([384, 768, 1000, 1536, 65_536]) {
            let query = row(dim, 1);
            let rows: [Vec<Block>; 4] = std::array::from_fn(|i| row(dim, i as u64 + 2));
            for kernels in available() {
                let four = kernels.distance4(&query, std::array::from_fn(|i| rows[i].as_slice()));
                for (row, distance) in rows.iter().zip(four) {
                    let at = format!("{} dim {dim}", kernels.name);
                    let exact = 1.0 - wide_dot(&query, row);
                    assert_eq!(
                        kernels.distance(&query, row).to_bits(),
                        distance.to_bits(),
                        "{at}: dot and dot4 differ"
                    );
                    assert!((f64::from(distance) - exact).abs() < 1e-6, "{at}: {distance} is not {exact}");
                    assert!((scalar::KERNELS.distance(&query, row) - distance).abs() < 1e-6, "{at}");
                }
            }
        }
    }

    fn wide_dot(a: &[Block], b: &[Block]) -> f64 {
        let floats = |row: &[Block]| row.iter().flat_map(|block| block.0).map(f64::from).collect::<Vec<_>>();
        floats(a).iter().zip(floats(b)).map(|(x, y)| x * y).sum()
    }
}
