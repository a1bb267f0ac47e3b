//! The AVX2 + FMA kernel.
//!
//! Every row has two sums of eight floats, one for each half of a block. Four rows at a time make eight
//! independent sums, enough to hide the latency of a fused multiply-add, and keep the misses of four rows in
//! flight. One row alone is added up in the same order; calls that follow each other overlap. Measured
//! against two rows at a time with four sums each: a search at EF 80 on 20,000 x 384 takes 200 us instead of
//! 226.

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_load_ps, _mm256_setzero_ps,
};

use super::{Block, Kernels};

pub(super) static KERNELS: Kernels = Kernels { name: "avx2+fma", dot, dot4 };

fn dot(a: &[Block], b: &[Block]) -> f32 {
    // SAFETY: this table is chosen only where avx2 and fma were detected.
    unsafe { dot_rows(a, [b])[0] }
}

fn dot4(query: &[Block], rows: [&[Block]; 4]) -> [f32; 4] {
    // SAFETY: this table is chosen only where avx2 and fma were detected.
    unsafe { dot_rows(query, rows) }
}

/// # Safety
/// The processor has avx2 and fma.
#[target_feature(enable = "avx2,fma")]
unsafe fn dot_rows<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    let n_blocks = rows.iter().fold(query.len(), |n, row| n.min(row.len()));
    let mut sums = [[_mm256_setzero_ps(); 2]; N];
    for at in 0..n_blocks {
        // SAFETY: `at` is within the query and every row; a Block is 64 bytes, 64-byte aligned, so both
        // halves are aligned loads.
        unsafe {
            let q = query.as_ptr().add(at).cast::<f32>();
            let (low, high) = (_mm256_load_ps(q), _mm256_load_ps(q.add(8)));
            for i in 0..N {
                let r = rows[i].as_ptr().add(at).cast::<f32>();
                sums[i][0] = _mm256_fmadd_ps(low, _mm256_load_ps(r), sums[i][0]);
                sums[i][1] = _mm256_fmadd_ps(high, _mm256_load_ps(r.add(8)), sums[i][1]);
            }
        }
    }
    sums.map(|[low, high]| horizontal_sum(_mm256_add_ps(low, high)))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn horizontal_sum(x: __m256) -> f32 {
    let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
}
