//! The AVX-512 kernels for float32: one register is one block. Codes go by the AVX2 kernels.
//!
//! Every row has four sums, used in turn, so that four rows keep sixteen of the thirty-two registers busy and
//! one row alone still hides the latency of a fused multiply-add.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_load_ps, _mm512_reduce_add_ps, _mm512_setzero_ps,
    _mm512_sub_ps,
};

use super::{Block, Kernels, Pair, avx2};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx512f",
    dot: Pair { one: dot, four: dot },
    squares: Pair { one: squares, four: squares },
    ..avx2::KERNELS
};

const N_SUMS: usize = 4;

fn dot<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    // SAFETY: this table is chosen only where avx512f was detected.
    unsafe { sum_rows::<N, false>(query, rows) }
}

fn squares<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    // SAFETY: as above.
    unsafe { sum_rows::<N, true>(query, rows) }
}

/// Sums of products, or of squared differences.
///
/// # Safety
/// The processor has avx512f.
#[target_feature(enable = "avx512f")]
unsafe fn sum_rows<const N: usize, const SQUARES: bool>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    let n_blocks = rows.iter().fold(query.len(), |n, row| n.min(row.len()));
    let mut sums = [[_mm512_setzero_ps(); N_SUMS]; N];
    let mut at = 0;
    while at + N_SUMS <= n_blocks {
        // SAFETY: blocks at .. at + N_SUMS lie within the query and every row.
        unsafe {
            add_block::<N, 0, SQUARES>(query, rows, at, &mut sums);
            add_block::<N, 1, SQUARES>(query, rows, at + 1, &mut sums);
            add_block::<N, 2, SQUARES>(query, rows, at + 2, &mut sums);
            add_block::<N, 3, SQUARES>(query, rows, at + 3, &mut sums);
        }
        at += N_SUMS;
    }
    while at < n_blocks {
        // SAFETY: at < n_blocks.
        unsafe { add_block::<N, 0, SQUARES>(query, rows, at, &mut sums) };
        at += 1;
    }
    sums.map(|[a, b, c, d]| _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))))
}

/// # Safety
/// `at` is within the query and every row.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_block<const N: usize, const SUM: usize, const SQUARES: bool>(
    query: &[Block],
    rows: [&[Block]; N],
    at: usize,
    sums: &mut [[__m512; N_SUMS]; N],
) {
    // SAFETY: the caller vouches for `at`; a Block is one aligned register.
    unsafe {
        let q = _mm512_load_ps(query.as_ptr().add(at).cast());
        for i in 0..N {
            let row = _mm512_load_ps(rows[i].as_ptr().add(at).cast());
            let (x, y) = if SQUARES {
                let difference = _mm512_sub_ps(q, row);
                (difference, difference)
            } else {
                (q, row)
            };
            sums[i][SUM] = _mm512_fmadd_ps(x, y, sums[i][SUM]);
        }
    }
}
