//! The AVX-512 kernels for codes: VNNI adds four products of an unsigned and a signed byte to a place of 32
//! bits, and cannot overflow there.
//!
//! Two blocks of codes fill a register. Their levels lie a block apart, so the levels of the same part of
//! both are brought together first, once for four rows. An odd block at the end goes through half a register.

use std::arch::x86_64::*;

use super::{CODE_BLOCK_BYTES, Codes, Kernels, avx512, in_fours};

pub(super) static KERNELS: Kernels = Kernels {
    name: "avx512vnni",
    bits4: Codes { one: bits4, four: bits4, many: many_bits4 },
    bits2: Codes { one: bits2, four: bits2, many: many_bits2 },
    bytes: Codes { one: bytes, four: bytes, many: many_bytes },
    signs: Codes { one: signs, four: signs, many: many_signs },
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

fn bits2<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    // SAFETY: as above.
    unsafe { bits2_rows(query, rows) }
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

/// The sums of the places of each register; of four at once, by transposing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn reduce<const N: usize>(sums: [__m512i; N]) -> [i32; N] {
    let mut told = [0; N];
    if N == 4 {
        let pair = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (ab, cd) = (pair(sums[0], sums[1]), pair(sums[2], sums[3]));
        let all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
        let quarter = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
        // SAFETY: there is room for four.
        unsafe { _mm_storeu_si128(told.as_mut_ptr().cast(), quarter) };
    } else {
        told.iter_mut().zip(sums).for_each(|(told, sum)| *told = _mm512_reduce_add_epi32(sum));
    }
    told
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
#[inline]
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
    reduce(std::array::from_fn(|i| _mm512_add_epi32(sums[i][0], sums[i][1])))
}

/// # Safety
/// `is_available`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn bits2_rows<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    let n_blocks = common_blocks(query, rows, 128);
    let masks = [3, 12, 48, -64].map(|mask| _mm512_set1_epi8(mask));
    // Codes stay in place, so the sums of the parts are 1, 4, 16 and 64 times too big.
    let mut sums = [[_mm512_setzero_si512(); 4]; N];
    let mut at = 0;
    while at < n_blocks {
        let has_both = at + 1 < n_blocks;
        // SAFETY: block `at`, and the next if there is one, lie within the query and every row.
        unsafe {
            let q = query.as_ptr().add(at * 128);
            let first = [_mm512_loadu_si512(q.cast()), _mm512_loadu_si512(q.add(64).cast())];
            let second = if has_both {
                [_mm512_loadu_si512(q.add(128).cast()), _mm512_loadu_si512(q.add(192).cast())]
            } else {
                first
            };
            let parts = [
                _mm512_shuffle_i64x2::<0x44>(first[0], second[0]),
                _mm512_shuffle_i64x2::<0xEE>(first[0], second[0]),
                _mm512_shuffle_i64x2::<0x44>(first[1], second[1]),
                _mm512_shuffle_i64x2::<0xEE>(first[1], second[1]),
            ];
            for i in 0..N {
                let codes = two_blocks(rows[i].as_ptr().add(at * CODE_BLOCK_BYTES), has_both);
                for part in 0..4 {
                    let codes = _mm512_and_si512(codes, masks[part]);
                    sums[i][part] = _mm512_dpbusd_epi32(sums[i][part], codes, parts[part]);
                }
            }
        }
        at += 2;
    }
    reduce(std::array::from_fn(|i| {
        let [a, b, c, d] = sums[i];
        let ab = _mm512_add_epi32(a, _mm512_srai_epi32::<2>(b));
        let cd = _mm512_add_epi32(_mm512_srai_epi32::<4>(c), _mm512_srai_epi32::<6>(d));
        _mm512_add_epi32(ab, cd)
    }))
}

/// # Safety
/// `is_available`.
#[inline]
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
    reduce(std::array::from_fn(|i| _mm512_sub_epi32(sums[i][0], sums[i][1])))
}

/// # Safety
/// `is_available`.
#[inline]
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
    // Counts of 64 bits are small: their upper halves are zero.
    reduce(sums)
}

/// # Safety
/// The processor has the features; each row has `n_bytes` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn many_bits4(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: the caller vouches for both.
    unsafe { in_fours(rows, n_bytes, products, |rows| bits4_rows(query, rows)) }
}

/// # Safety
/// The processor has the features; each row has `n_bytes` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn many_bits2(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: the caller vouches for both.
    unsafe { in_fours(rows, n_bytes, products, |rows| bits2_rows(query, rows)) }
}

/// # Safety
/// The processor has the features; each row has `n_bytes` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn many_bytes(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: the caller vouches for both.
    unsafe { in_fours(rows, n_bytes, products, |rows| byte_rows(query, rows)) }
}

/// # Safety
/// The processor has the features; each row has `n_bytes` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq")]
unsafe fn many_signs(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: the caller vouches for both.
    unsafe { in_fours(rows, n_bytes, products, |rows| sign_rows(query, rows)) }
}
