//! The AVX-512 kernel: one register is one block.
//!
//! Every row has four sums, used in turn, so that four rows keep sixteen of the thirty-two registers busy and
//! one row alone still hides the latency of a fused multiply-add.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_load_ps, _mm512_reduce_add_ps, _mm512_setzero_ps,
};

use super::{Block, Kernels};

pub(super) static KERNELS: Kernels = Kernels { name: "avx512f", dot, dot4 };

const N_SUMS: usize = 4;

fn dot(a: &[Block], b: &[Block]) -> f32 {
    // SAFETY: this table is chosen only where avx512f was detected.
    unsafe { dot_rows(a, [b])[0] }
}

fn dot4(query: &[Block], rows: [&[Block]; 4]) -> [f32; 4] {
    // SAFETY: this table is chosen only where avx512f was detected.
    unsafe { dot_rows(query, rows) }
}

/// # Safety
/// The processor has avx512f.
#[target_feature(enable = "avx512f")]
unsafe fn dot_rows<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    let n_blocks = rows.iter().fold(query.len(), |n, row| n.min(row.len()));
    let mut sums = [[_mm512_setzero_ps(); N_SUMS]; N];
    let mut at = 0;
    while at + N_SUMS <= n_blocks {
        // SAFETY: blocks at .. at + N_SUMS lie within the query and every row.
        unsafe {
            add_block::<N, 0>(query, rows, at, &mut sums);
            add_block::<N, 1>(query, rows, at + 1, &mut sums);
            add_block::<N, 2>(query, rows, at + 2, &mut sums);
            add_block::<N, 3>(query, rows, at + 3, &mut sums);
        }
        at += N_SUMS;
    }
    while at < n_blocks {
        // SAFETY: at < n_blocks.
        unsafe { add_block::<N, 0>(query, rows, at, &mut sums) };
        at += 1;
    }
    sums.map(|[a, b, c, d]| _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))))
}

/// # Safety
/// `at` is within the query and every row.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_block<const N: usize, const SUM: usize>(
    query: &[Block],
    rows: [&[Block]; N],
    at: usize,
    sums: &mut [[__m512; N_SUMS]; N],
) {
    // SAFETY: the caller vouches for `at`; a Block is one aligned register.
    unsafe {
        let q = _mm512_load_ps(query.as_ptr().add(at).cast());
        for i in 0..N {
            sums[i][SUM] = _mm512_fmadd_ps(q, _mm512_load_ps(rows[i].as_ptr().add(at).cast()), sums[i][SUM]);
        }
    }
}
