//! AVX2: how a vector is brought into the forms that distances are measured in, and back from codes.
//!
//! The Hadamard transform does its first three steps, whose pairs lie within a register, by permutations and one
//! multiplication by signs. By samples a query of 1536 dimensions spends 1.8 us there, instead of 3.6.

use std::arch::x86_64::*;

use super::avx2::horizontal_sum_i32;
use super::{Block, scalar};

const LANES: usize = 8;

pub(super) fn hadamard(x: &mut [f32], signs: &[f32]) {
    // SAFETY: this table is chosen only where avx2 and fma were detected.
    unsafe { signed_hadamard(x, signs) }
}

pub(super) fn largest(x: &[f32]) -> f32 {
    // SAFETY: as above.
    unsafe { largest_magnitude(x) }
}

pub(super) fn levels(x: &[f32], per_unit: f32, levels: &mut [i8]) -> i32 {
    // SAFETY: as above.
    unsafe { round_to_levels(x, per_unit, levels) }
}

pub(super) fn square(x: &[f32]) -> f64 {
    #[target_feature(enable = "avx2,fma")]
    fn with_avx2(x: &[f32]) -> f64 {
        scalar::sum_of_squares(x)
    }
    // SAFETY: as above.
    unsafe { with_avx2(x) }
}

pub(super) fn scaled(x: &[f32], factor: f64, row: &mut [Block]) {
    #[target_feature(enable = "avx2,fma")]
    fn with_avx2(x: &[f32], factor: f64, row: &mut [Block]) {
        scalar::scaled(x, factor, row)
    }
    // SAFETY: as above.
    unsafe { with_avx2(x, factor, row) }
}

pub(super) fn pack<const PER_BYTE: usize>(x: &[f32], per_step: f32, bytes: &mut [u8]) -> f32 {
    #[target_feature(enable = "avx2,fma")]
    fn with_avx2<const PER_BYTE: usize>(x: &[f32], per_step: f32, bytes: &mut [u8]) -> f32 {
        scalar::pack::<PER_BYTE>(x, per_step, bytes)
    }
    // SAFETY: as above.
    unsafe { with_avx2::<PER_BYTE>(x, per_step, bytes) }
}

pub(super) fn unpack<const PER_BYTE: usize>(bytes: &[u8], levels: &mut [i8]) -> i32 {
    #[target_feature(enable = "avx2,fma")]
    fn with_avx2<const PER_BYTE: usize>(bytes: &[u8], levels: &mut [i8]) -> i32 {
        scalar::unpack::<PER_BYTE>(bytes, levels)
    }
    // SAFETY: as above.
    unsafe { with_avx2::<PER_BYTE>(bytes, levels) }
}

/// # Safety
/// The processor has avx2 and fma.
#[target_feature(enable = "avx2,fma")]
unsafe fn signed_hadamard(x: &mut [f32], signs: &[f32]) {
    if x.len() < LANES {
        x.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
        return scalar::butterflies(x, 1);
    }
    let one = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
    let two = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
    let four = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
    for (x, signs) in x.chunks_exact_mut(LANES).zip(signs.chunks_exact(LANES)) {
        // SAFETY: both have eight floats.
        unsafe {
            let v = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(signs.as_ptr()));
            // Each is added to its partner, the second of a pair negated: products with 1 and -1 are exact.
            let v = _mm256_fmadd_ps(v, one, _mm256_permute_ps::<0b_10_11_00_01>(v));
            let v = _mm256_fmadd_ps(v, two, _mm256_permute_ps::<0b_01_00_11_10>(v));
            let v = _mm256_fmadd_ps(v, four, _mm256_permute2f128_ps::<1>(v, v));
            _mm256_storeu_ps(x.as_mut_ptr(), v);
        }
    }
    scalar::butterflies(x, LANES);
}

/// # Safety
/// The processor has avx2 and fma.
#[target_feature(enable = "avx2,fma")]
unsafe fn largest_magnitude(x: &[f32]) -> f32 {
    let sign = _mm256_set1_ps(-0.0);
    let mut largest = [_mm256_setzero_ps(); 4];
    let (whole, rest) = x.as_chunks::<{ 4 * LANES }>();
    for part in whole {
        for (i, largest) in largest.iter_mut().enumerate() {
            // SAFETY: `part` has 32 floats.
            let v = unsafe { _mm256_loadu_ps(part.as_ptr().add(i * LANES)) };
            *largest = _mm256_max_ps(*largest, _mm256_andnot_ps(sign, v));
        }
    }
    let [a, b, c, d] = largest;
    let all = _mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d));
    let mut lanes = [0.0_f32; LANES];
    // SAFETY: `lanes` has eight floats.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), all) };
    lanes.iter().chain(rest).fold(0.0, |largest, x| if x.abs() > largest { x.abs() } else { largest })
}

/// # Safety
/// The processor has avx2 and fma.
#[target_feature(enable = "avx2,fma")]
unsafe fn round_to_levels(x: &[f32], per_unit: f32, levels: &mut [i8]) -> i32 {
    let (sign, half, scale) = (_mm256_set1_ps(-0.0), _mm256_set1_ps(0.5), _mm256_set1_ps(per_unit));
    let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let mut sum = _mm256_setzero_si256();
    let n_whole = x.len().min(levels.len()) / 32 * 32;
    for at in (0..n_whole).step_by(32) {
        // SAFETY: 32 floats from `at` lie within `x`, and 32 levels within `levels`.
        unsafe {
            let rounded: [__m256i; 4] = std::array::from_fn(|i| {
                let v = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(at + i * LANES)), scale);
                _mm256_cvttps_epi32(_mm256_add_ps(v, _mm256_or_ps(_mm256_and_ps(v, sign), half)))
            });
            let [a, b, c, d] = rounded;
            let (low, high) = (_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
            sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
            let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
            let bytes = _mm256_permutevar8x32_epi32(bytes, in_order);
            _mm256_storeu_si256(levels.as_mut_ptr().add(at).cast(), bytes);
        }
    }
    horizontal_sum_i32(sum) + scalar::levels(&x[n_whole..], per_unit, &mut levels[n_whole..])
}
