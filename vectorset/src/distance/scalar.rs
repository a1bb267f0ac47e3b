//! The plain kernels: the oracle of the others, and those for processors without kernels of their own.
//!
//! Float sums run in sixteen lanes, one per float of a block, so that the compiler may use whatever vectors
//! the target has.

use super::{BLOCK_FLOATS, Block, CODE_BLOCK_BYTES, Codes, Kernels, Pair, in_fours};

pub(super) static KERNELS: Kernels = Kernels {
    name: "scalar",
    dot: Pair { one: dot, four: dot },
    squares: Pair { one: squares, four: squares },
    bits4: Codes { one: bits4, four: bits4, many: many_bits4 },
    bits2: Codes { one: bits2, four: bits2, many: many_bits2 },
    bytes: Codes { one: bytes, four: bytes, many: many_bytes },
    signs: Codes { one: signs, four: signs, many: many_signs },
    hadamard: signed_butterflies,
    largest,
    levels,
    square: sum_of_squares,
    scaled,
    pack4: pack::<2>,
    pack2: pack::<4>,
    unpack4: unpack::<2>,
    unpack2: unpack::<4>,
};

fn dot<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    rows.map(|row| sum(query, row, |x, y| x * y))
}

fn squares<const N: usize>(query: &[Block], rows: [&[Block]; N]) -> [f32; N] {
    rows.map(|row| sum(query, row, |x, y| (x - y) * (x - y)))
}

#[inline(always)]
fn sum(a: &[Block], b: &[Block], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0_f32; BLOCK_FLOATS];
    for (a, b) in a.iter().zip(b) {
        for (sum, (&x, y)) in sums.iter_mut().zip(a.0.iter().zip(b.0)) {
            *sum += term(x, y);
        }
    }
    sums.iter().sum()
}

fn bits4<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    packed::<N, 2>(query, rows)
}

fn bits2<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    packed::<N, 4>(query, rows)
}

fn packed<const N: usize, const PER_BYTE: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    let bits = 8 / PER_BYTE;
    let mask = (1_u32 << bits) - 1;
    rows.map(|row| {
        let mut sum = 0;
        for (levels, codes) in
            query.chunks_exact(CODE_BLOCK_BYTES * PER_BYTE).zip(row.chunks_exact(CODE_BLOCK_BYTES))
        {
            for part in 0..PER_BYTE {
                let levels = &levels[part * CODE_BLOCK_BYTES..][..CODE_BLOCK_BYTES];
                for (&level, &code) in levels.iter().zip(codes) {
                    sum += i32::from(level) * (u32::from(code) >> (part * bits) & mask) as i32;
                }
            }
        }
        sum
    })
}

fn bytes<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    rows.map(|row| query.iter().zip(row).map(|(&x, &y)| i32::from(x) * i32::from(y as i8)).sum())
}

fn signs<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    rows.map(|row| query.iter().zip(row).map(|(&x, &y)| (x as u8 ^ y).count_ones() as i32).sum())
}

unsafe fn many_bits4(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: passed on, here and below.
    unsafe { in_fours(rows, n_bytes, products, |rows| bits4(query, rows)) }
}

unsafe fn many_bits2(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: as above.
    unsafe { in_fours(rows, n_bytes, products, |rows| bits2(query, rows)) }
}

unsafe fn many_bytes(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: as above.
    unsafe { in_fours(rows, n_bytes, products, |rows| bytes(query, rows)) }
}

unsafe fn many_signs(query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
    // SAFETY: as above.
    unsafe { in_fours(rows, n_bytes, products, |rows| signs(query, rows)) }
}

// Most of the rest is compiled anew under the features of each caller.

/// The squared length, in lanes of its own for each place of a block: one sum would wait for itself at every step.
#[inline(always)]
pub(super) fn sum_of_squares(x: &[f32]) -> f64 {
    let mut sums = [0.0_f64; BLOCK_FLOATS];
    let (whole, rest) = x.as_chunks::<BLOCK_FLOATS>();
    for part in whole {
        for (sum, &x) in sums.iter_mut().zip(part) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum += f64::from(x) * f64::from(x);
    }
    sums.iter().sum()
}

#[inline(always)]
pub(super) fn scaled(x: &[f32], factor: f64, row: &mut [Block]) {
    let (whole, rest) = x.as_chunks::<BLOCK_FLOATS>();
    let times = |to: &mut Block, from: &[f32]| {
        to.0.iter_mut().zip(from).for_each(|(to, &x)| *to = (f64::from(x) * factor) as f32);
    };
    for (to, from) in row.iter_mut().zip(whole) {
        times(to, from);
    }
    if let Some(last) = row.get_mut(whole.len()) {
        times(last, rest);
    }
}

fn signed_butterflies(x: &mut [f32], signs: &[f32]) {
    x.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
    butterflies(x, 1);
}

/// The steps of the Hadamard transform from the one whose pairs are `half` apart.
#[inline(always)]
pub(super) fn butterflies(x: &mut [f32], mut half: usize) {
    // Two steps at a time, which halves the traffic.
    while half * 2 < x.len() {
        for part in x.chunks_exact_mut(half * 4) {
            let (low, high) = part.split_at_mut(half * 2);
            let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let ((s, t), (u, v)) = ((*a + *b, *a - *b), (*c + *d, *c - *d));
                (*a, *b, *c, *d) = (s + u, t + v, s - u, t - v);
            }
        }
        half *= 4;
    }
    if half < x.len() {
        let (low, high) = x.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(high) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
}

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |largest, x| if x.abs() > largest { x.abs() } else { largest })
}

pub(super) fn levels(x: &[f32], per_unit: f32, levels: &mut [i8]) -> i32 {
    let mut sum = 0;
    for (level, x) in levels.iter_mut().zip(x) {
        let x = x * per_unit;
        let rounded = (x + 0.5_f32.copysign(x)) as i32;
        *level = rounded as i8;
        sum += rounded;
    }
    sum
}

#[inline(always)]
pub(super) fn pack<const PER_BYTE: usize>(x: &[f32], per_step: f32, bytes: &mut [u8]) -> f32 {
    let n_codes = 1 << (8 / PER_BYTE);
    let top = (n_codes - 1) as f32;
    bytes.fill(0);
    let mut products = [0.0_f32; CODE_BLOCK_BYTES];
    for (block, x) in bytes.chunks_exact_mut(CODE_BLOCK_BYTES).zip(x.chunks(CODE_BLOCK_BYTES * PER_BYTE)) {
        for (part, x) in x.chunks(CODE_BLOCK_BYTES).enumerate() {
            for ((byte, product), &x) in block.iter_mut().zip(&mut products).zip(x) {
                // The nearest code; x = 0 lies between the two in the middle.
                let place = (x * per_step + n_codes as f32 / 2.0).clamp(0.0, top);
                let code = place as i32;
                *product += x * (code as f32 - top / 2.0);
                *byte |= (code as u8) << (part * 8 / PER_BYTE);
            }
        }
    }
    products.iter().sum()
}

#[inline(always)]
pub(super) fn unpack<const PER_BYTE: usize>(bytes: &[u8], levels: &mut [i8]) -> i32 {
    let bits = 8 / PER_BYTE;
    let top = (1_u8 << bits) - 1;
    let mut sum = 0;
    for (levels, bytes) in
        levels.chunks_exact_mut(CODE_BLOCK_BYTES * PER_BYTE).zip(bytes.chunks_exact(CODE_BLOCK_BYTES))
    {
        // At most 128 levels of at most 15.
        let mut block_sum = 0_i16;
        for (part, levels) in levels.chunks_exact_mut(CODE_BLOCK_BYTES).enumerate() {
            for (level, &byte) in levels.iter_mut().zip(bytes) {
                *level = 2 * (byte >> (part * bits) & top) as i8 - top as i8;
                block_sum += i16::from(*level);
            }
        }
        sum += i32::from(block_sum);
    }
    sum
}
