//! The plain kernels: the oracle of the others, and those for processors without kernels of their own.
//!
//! Float sums run in sixteen lanes, one per float of a block, so that the compiler may use whatever vectors
//! the target has.

use super::{BLOCK_FLOATS, Block, CODE_BLOCK_BYTES, Kernels, Pair, Planes};

pub(super) static KERNELS: Kernels = Kernels {
    name: "scalar",
    dot: Pair { one: dot, four: dot },
    squares: Pair { one: squares, four: squares },
    bits4: Pair { one: bits4, four: bits4 },
    planes: Pair { one: planes, four: planes },
    bytes: Pair { one: bytes, four: bytes },
    signs: Pair { one: signs, four: signs },
    hadamard: signed_butterflies,
    largest,
    levels,
    square: sum_of_squares,
    scaled,
    pack4,
    pack2,
    unpack4,
    split,
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
    rows.map(|row| {
        let mut sum = 0;
        let blocks = query.chunks_exact(CODE_BLOCK_BYTES * 2).zip(row.chunks_exact(CODE_BLOCK_BYTES));
        for (levels, codes) in blocks {
            let (low, high) = levels.split_at(CODE_BLOCK_BYTES);
            for ((&low, &high), &code) in low.iter().zip(high).zip(codes) {
                sum += i32::from(low) * i32::from(code & 15) + i32::from(high) * i32::from(code >> 4);
            }
        }
        sum
    })
}

fn planes<const N: usize>(query: &Planes, rows: [&[u8]; N]) -> [i32; N] {
    let n_planes = query.n_planes();
    rows.map(|row| {
        let of_plane = |k: usize| -> i32 {
            let common = query.plane(k).iter().zip(row).map(|(x, y)| (x & y).count_ones() as i32);
            let weight = if k + 1 == n_planes { -1 } else { 1 } << k;
            weight * common.sum::<i32>()
        };
        (0..n_planes).map(of_plane).sum()
    })
}

pub(super) fn split(levels: &[i8], planes: &mut Planes) {
    split_from(0, levels, planes)
}

/// Splits levels whose first goes to bit 0 of byte `begin`.
pub(super) fn split_from(begin: usize, levels: &[i8], planes: &mut Planes) {
    for k in 0..planes.n_planes() {
        let bytes = &mut planes.plane_mut(k)[begin..];
        for (byte, levels) in bytes.iter_mut().zip(levels.chunks(8)) {
            *byte = levels.iter().rev().fold(0, |bits, level| bits << 1 | (level >> k & 1) as u8);
        }
    }
}

fn bytes<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    rows.map(|row| query.iter().zip(row).map(|(&x, &y)| i32::from(x) * i32::from(y as i8)).sum())
}

fn signs<const N: usize>(query: &[i8], rows: [&[u8]; N]) -> [i32; N] {
    rows.map(|row| query.iter().zip(row).map(|(&x, &y)| (x as u8 ^ y).count_ones() as i32).sum())
}

// Some of the rest is compiled anew under the features of each caller.

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
pub(super) fn pack4(x: &[f32], per_step: f32, bytes: &mut [u8]) -> f32 {
    bytes.fill(0);
    let mut products = [0.0_f32; CODE_BLOCK_BYTES];
    for (block, x) in bytes.chunks_exact_mut(CODE_BLOCK_BYTES).zip(x.chunks(CODE_BLOCK_BYTES * 2)) {
        for (part, x) in x.chunks(CODE_BLOCK_BYTES).enumerate() {
            for ((byte, product), &x) in block.iter_mut().zip(&mut products).zip(x) {
                // The nearest code; x = 0 lies between the two in the middle.
                let code = (x * per_step + 8.0).clamp(0.0, 15.0) as i32;
                *product += x * (code as f32 - 7.5);
                *byte |= (code as u8) << (part * 4);
            }
        }
    }
    products.iter().sum()
}

pub(super) fn pack2(x: &[f32], per_step: f32, high: &mut [u8], low: &mut [u8]) -> f32 {
    high.fill(0);
    low.fill(0);
    let mut product = 0.0;
    for ((x, high), low) in x.chunks(8).zip(high).zip(low) {
        for (bit, &x) in x.iter().enumerate() {
            let code = (x * per_step + 2.0).clamp(0.0, 3.0) as u8;
            product += x * (f32::from(code) - 1.5);
            *high |= (code >> 1) << bit;
            *low |= (code & 1) << bit;
        }
    }
    product
}

#[inline(always)]
pub(super) fn unpack4(bytes: &[u8], levels: &mut [i8]) -> i32 {
    let mut sum = 0;
    for (levels, bytes) in
        levels.chunks_exact_mut(CODE_BLOCK_BYTES * 2).zip(bytes.chunks_exact(CODE_BLOCK_BYTES))
    {
        // 64 levels of at most 15.
        let mut block_sum = 0_i16;
        for (part, levels) in levels.chunks_exact_mut(CODE_BLOCK_BYTES).enumerate() {
            for (level, &byte) in levels.iter_mut().zip(bytes) {
                *level = 2 * (byte >> (part * 4) & 15) as i8 - 15;
                block_sum += i16::from(*level);
            }
        }
        sum += i32::from(block_sum);
    }
    sum
}
