//! The AVX2 + FMA kernel.
//!
//! `dot` keeps four sums of eight floats, two per block, alternating between even and odd blocks: enough to hide the
//! latency of a fused multiply-add. `dot4` keeps two sums per row; to add up in the same order it, too, alternates, with
//! four rows times four sums in the sixteen registers that AVX2 has, so it runs two rows at a time.

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
    let [a, b, c, d] = rows;
    // SAFETY: this table is chosen only where avx2 and fma were detected.
    let ([a, b], [c, d]) = unsafe { (dot_rows(query, [a, b]), dot_rows(query, [c, d])) };
    [a, b, c, d]
}

/// # Safety
/// The processor has avx2 and fma.
#[target_feature(enable = "avx2,fma")]
unsafe fn dot_rows<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    let n_blocks = rows.iter().fold(query.len(), |n, row| n.min(row.len()));
    let mut sums = [[_mm256_setzero_ps(); 4]; N];
    let mut at = 0;
    while at + 2 <= n_blocks {
        // SAFETY: blocks at and at + 1 lie within the query and every row (n_blocks is the shortest length).
        unsafe {
            add_block::<N, 0>(query, rows, at, &mut sums);
            add_block::<N, 2>(query, rows, at + 1, &mut sums);
        }
        at += 2;
    }
    if at < n_blocks {
        // SAFETY: at < n_blocks, as above.
        unsafe { add_block::<N, 0>(query, rows, at, &mut sums) };
    }
    sums.map(|[a, b, c, d]| horizontal_sum(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d))))
}

/// # Safety
/// `at` is within the query and every row.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_block<const N: usize, const SUM: usize>(
    query: &[Block],
    rows: [&[Block]; N],
    at: usize,
    sums: &mut [[__m256; 4]; N],
) {
    // SAFETY: the caller vouches for `at`; a Block is 64 bytes, 64-byte aligned, so both halves are aligned loads.
    unsafe {
        let q = query.as_ptr().add(at).cast::<f32>();
        let (low, high) = (_mm256_load_ps(q), _mm256_load_ps(q.add(8)));
        for i in 0..N {
            let r = rows[i].as_ptr().add(at).cast::<f32>();
            sums[i][SUM] = _mm256_fmadd_ps(low, _mm256_load_ps(r), sums[i][SUM]);
            sums[i][SUM + 1] = _mm256_fmadd_ps(high, _mm256_load_ps(r.add(8)), sums[i][SUM + 1]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn horizontal_sum(x: __m256) -> f32 {
    let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
}
