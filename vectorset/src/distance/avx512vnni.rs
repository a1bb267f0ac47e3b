//! The AVX-512 kernels for codes: VNNI adds four products of an unsigned and a signed byte to a place of 32
//! bits, and cannot overflow there.
//!
//! Two blocks of codes fill a register. Their levels lie a block apart, so the levels of the same part of
//! both are brought together first, once for four rows. An odd block at the end goes through half a register.

use std::arch::x86_64::*;

use super::{CODE_BLOCK_BYTES, Kernels, MAX_PLANES, Pair, Planes, avx512};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx512vnni",
    bits4: Pair { one: bits4, four: bits4 },
    planes: Pair { one: planes, four: planes },
    bytes: Pair { one: bytes, four: bytes },
    signs: Pair { one: signs, four: signs },
    ..avx512::KERNELS
};

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512vpopcntdq")
}

fn bits4<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    // SAFETY: this table is chosen only where `is_available`.
    unsafe { bits4_rows(query, rows) }
}

fn planes<const N: usize>(query: &Planes, rows: [&[u8]; N]) -> [i32; N] {
    // SAFETY: as above.
    unsafe {
        match query.n_planes() {
            1 => plane_rows::<N, 1>(query, rows),
            2 => plane_rows::<N, 2>(query, rows),
            3 => plane_rows::<N, 3>(query, rows),
            4 => plane_rows::<N, 4>(query, rows),
            5 => plane_rows::<N, 5>(query, rows),
            _ => plane_rows::<N, MAX_PLANES>(query, rows),
        }
    }
}

fn bytes<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    // SAFETY: as above.
    unsafe { byte_rows(query, rows) }
}

fn signs<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    // SAFETY: as above.
    unsafe { sign_rows(query, rows) }
}

fn common_blocks<const N: usize>(query: &[i8], rows: [&[u8]; N], levels_per_block: usize) -> usize {
    let in_query = query.len() / levels_per_block;
    rows.iter().fold(in_query, |n, row| n.min(row.len() / CODE_BLOCK_BYTES))
}

/// Codes of block `at` and, unless it is the last, of the next one; zeros for what is not there.
///
/// # Safety
/// The processor has avx512f; the blocks lie within `row`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn two_blocks(from: *const u8, has_both: bool) -> __m512i {
    // SAFETY: the caller vouches for the blocks.
    unsafe {
        if has_both {
            _mm512_loadu_si512(from.cast())
        } else {
            _mm512_zextsi256_si512(_mm256_loadu_si256(from.cast()))
        }
    }
}

/// # Safety
/// `is_available`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn bits4_rows<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    let n_blocks = common_blocks(query, rows, 64);
    let mask = _mm512_set1_epi8(15);
    let mut sums = [[_mm512_setzero_si512(); 2]; N];
    let mut at = 0;
    while at < n_blocks {
        let has_both = at + 1 < n_blocks;
        // SAFETY: block `at`, and the next if there is one, lie within the query and every row.
        unsafe {
            let q = query.as_ptr().add(at * 64);
            let first = _mm512_loadu_si512(q.cast());
            let second = if has_both { _mm512_loadu_si512(q.add(64).cast()) } else { first };
            let low = _mm512_shuffle_i64x2::<0x44>(first, second);
            let high = _mm512_shuffle_i64x2::<0xEE>(first, second);
            for i in 0..N {
                let codes = two_blocks(rows[i].as_ptr().add(at * CODE_BLOCK_BYTES), has_both);
                let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
                sums[i][0] = _mm512_dpbusd_epi32(sums[i][0], _mm512_and_si512(codes, mask), low);
                sums[i][1] = _mm512_dpbusd_epi32(sums[i][1], upper, high);
            }
        }
        at += 2;
    }
    sums.map(|[low, high]| _mm512_reduce_add_epi32(_mm512_add_epi32(low, high)))
}

/// # Safety
/// `is_available`; the query has P planes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
unsafe fn plane_rows<const N: usize, const P: usize>(query: &Planes, rows: [&[u8]; N]) -> [i32; N] {
    let plane_bytes = query.plane(0).len();
    let n_bytes = rows.iter().fold(plane_bytes, |n, row| n.min(row.len()));
    let planes = query.bytes.as_ptr();
    let mut sums = [[_mm512_setzero_si512(); P]; N];
    let mut at = 0;
    while at < n_bytes {
        let has_both = at + CODE_BLOCK_BYTES < n_bytes;
        // SAFETY: the block at `at`, and the next if there is one, lie within every plane and row.
        unsafe {
            let mut bits = [_mm512_setzero_si512(); N];
            for i in 0..N {
                bits[i] = two_blocks(rows[i].as_ptr().add(at), has_both);
            }
            for k in 0..P {
                let q = two_blocks(planes.add(k * plane_bytes + at), has_both);
                for i in 0..N {
                    let common = _mm512_popcnt_epi64(_mm512_and_si512(q, bits[i]));
                    sums[i][k] = _mm512_add_epi64(sums[i][k], common);
                }
            }
        }
        at += 2 * CODE_BLOCK_BYTES;
    }
    let mut products = [0; N];
    for i in 0..N {
        // The top plane counts negative: -top, then twice that and the next plane, and so on.
        let mut sum = _mm512_sub_epi64(_mm512_setzero_si512(), sums[i][P - 1]);
        for k in (0..P - 1).rev() {
            sum = _mm512_add_epi64(_mm512_add_epi64(sum, sum), sums[i][k]);
        }
        products[i] = _mm512_reduce_add_epi64(sum) as i32;
    }
    products
}

/// # Safety
/// `is_available`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn byte_rows<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    let n_blocks = common_blocks(query, rows, CODE_BLOCK_BYTES);
    // The levels plus 128 are unsigned; 128 times the row's sum is taken off again.
    let offset = _mm512_set1_epi8(-128);
    let mut sums = [[_mm512_setzero_si512(); 2]; N];
    let mut at = 0;
    while at < n_blocks {
        let has_both = at + 1 < n_blocks;
        // SAFETY: block `at`, and the next if there is one, lie within the query and every row.
        unsafe {
            let q = two_blocks(query.as_ptr().add(at * CODE_BLOCK_BYTES).cast(), has_both);
            let q = _mm512_xor_si512(q, offset);
            for i in 0..N {
                let row = two_blocks(rows[i].as_ptr().add(at * CODE_BLOCK_BYTES), has_both);
                sums[i][0] = _mm512_dpbusd_epi32(sums[i][0], q, row);
                sums[i][1] = _mm512_dpbusd_epi32(sums[i][1], offset, row);
            }
        }
        at += 2;
    }
    sums.map(|[shifted, offset]| _mm512_reduce_add_epi32(_mm512_sub_epi32(shifted, offset)))
}

/// # Safety
/// `is_available`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
unsafe fn sign_rows<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    let n_blocks = common_blocks(query, rows, CODE_BLOCK_BYTES);
    let mut sums = [_mm512_setzero_si512(); N];
    let mut at = 0;
    while at < n_blocks {
        let has_both = at + 1 < n_blocks;
        // SAFETY: block `at`, and the next if there is one, lie within the query and every row.
        unsafe {
            let q = two_blocks(query.as_ptr().add(at * CODE_BLOCK_BYTES).cast(), has_both);
            for i in 0..N {
                let row = two_blocks(rows[i].as_ptr().add(at * CODE_BLOCK_BYTES), has_both);
                sums[i] = _mm512_add_epi64(sums[i], _mm512_popcnt_epi64(_mm512_xor_si512(q, row)));
            }
        }
        at += 2;
    }
    sums.map(|sum| _mm512_reduce_add_epi64(sum) as i32)
}
