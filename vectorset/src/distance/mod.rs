//! The inner loops: distances of float32 rows, products of compact codes, the Hadamard transform, by the
//! best instructions of this processor.
//!
//! ```text
//!   float32   whole 64-byte blocks padded with zeros                              dot, squares
//!   codes     whole 32-byte blocks, query of signed bytes (`Levels`) in the order of the components:
//!     bits4   byte j of a block: component j low, 32 + j high;                  64 components a block
//!     bits2   byte j of a block: components j, 32 + j, 64 + j, 96 + j upwards; 128 components a block
//!     bytes   one signed byte a component                                       32 components a block
//!     signs   one bit a component, query packed the same way                   256 components a block
//! ```
//!
//! Rows come as whole blocks, so kernels have no tails. The table is chosen once per process. A new
//! instruction set is a file beside `avx2` and a line in `available`. Every kernel has `scalar` as its twin;
//! the tests below compare them: integers exactly. The kernels of four rows add up each row in the same order
//! as those of one: a pair's score never depends on which of the two computed it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_forms;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512vnni;
mod scalar;

use std::sync::OnceLock;

pub(crate) const BLOCK_FLOATS: usize = 16;
/// Bytes of codes that belong together.
pub(crate) const CODE_BLOCK_BYTES: usize = 32;
const LEVELS_PER_BLOCK: usize = 64;

/// One cache line of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Block(pub(crate) [f32; BLOCK_FLOATS]);

/// The floats of a row, padding included.
pub(crate) fn floats_of(row: &[Block]) -> &[f32] {
    // SAFETY: a Block is 16 floats and nothing else.
    unsafe { std::slice::from_raw_parts(row.as_ptr().cast::<f32>(), row.len() * BLOCK_FLOATS) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
struct LevelBlock([i8; LEVELS_PER_BLOCK]);

/// A query in signed bytes, aligned, with zeros up to whole blocks of every code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    blocks: Vec<LevelBlock>,
    len: usize,
}

impl Levels {
    /// Becomes `len` zeros.
    pub(crate) fn reset(&mut self, len: usize) {
        self.blocks.clear();
        self.blocks.resize(len.div_ceil(LEVELS_PER_BLOCK), LevelBlock([0; LEVELS_PER_BLOCK]));
        self.len = len;
    }

    pub(crate) fn as_slice(&self) -> &[i8] {
        // SAFETY: a LevelBlock is 64 signed bytes and nothing else.
        let all = unsafe {
            std::slice::from_raw_parts(
                self.blocks.as_ptr().cast::<i8>(),
                self.blocks.len() * LEVELS_PER_BLOCK,
            )
        };
        &all[..self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [i8] {
        // SAFETY: a LevelBlock is 64 signed bytes and nothing else.
        let all = unsafe {
            std::slice::from_raw_parts_mut(
                self.blocks.as_mut_ptr().cast::<i8>(),
                self.blocks.len() * LEVELS_PER_BLOCK,
            )
        };
        &mut all[..self.len]
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.blocks.capacity() * LEVELS_PER_BLOCK
    }
}

type FloatKernel<const N: usize> = fn(&[Block], [&[Block]; N]) -> [f32; N];
type CodeKernel<const N: usize> = fn(&[i8], [&[u8]; N]) -> [i32; N];

/// A kernel for one row and for four.
#[derive(Clone, Copy)]
pub(crate) struct Pair<One, Four> {
    one: One,
    four: Four,
}

/// Over float32 rows. All slices of one call have the same length.
pub(crate) type Floats = Pair<FloatKernel<1>, FloatKernel<4>>;

impl Floats {
    #[inline(always)]
    pub(crate) fn one(&self, query: &[Block], row: &[Block]) -> f32 {
        (self.one)(query, [row])[0]
    }

    /// Four rows: the query is loaded once and four misses are in flight.
    #[inline(always)]
    pub(crate) fn four(&self, query: &[Block], rows: [&[Block]; 4]) -> [f32; 4] {
        (self.four)(query, rows)
    }
}

/// Over codes. Rows are whole blocks of one length, and the query has a level for each of their components.
#[derive(Clone, Copy)]
pub(crate) struct Codes {
    one: CodeKernel<1>,
    four: CodeKernel<4>,
    many: ManyKernel,
}

/// Rows at most that `many` takes.
pub(crate) const MANY: usize = 32;

type ManyKernel = unsafe fn(&[i8], &[*const u8], usize, &mut [i32]);

impl Codes {
    #[inline(always)]
    pub(crate) fn one(&self, query: &[i8], row: &[u8]) -> i32 {
        (self.one)(query, [row])[0]
    }

    #[inline(always)]
    pub(crate) fn four(&self, query: &[i8], rows: [&[u8]; 4]) -> [i32; 4] {
        (self.four)(query, rows)
    }

    /// As many rows as products.
    ///
    /// # Safety
    /// Each row has `n_bytes` bytes.
    #[inline(always)]
    pub(crate) unsafe fn many(&self, query: &[i8], rows: &[*const u8], n_bytes: usize, products: &mut [i32]) {
        // SAFETY: passed on.
        unsafe { (self.many)(query, rows, n_bytes, products) }
    }
}

/// Four rows at a time, the last ones filled up with the last; `four` is compiled into it.
///
/// # Safety
/// Each row has `n_bytes` bytes.
#[inline(always)]
unsafe fn in_fours(
    rows: &[*const u8],
    n_bytes: usize,
    products: &mut [i32],
    four: impl Fn([&[u8]; 4]) -> [i32; 4],
) {
    for (rows, products) in rows.chunks(4).zip(products.chunks_mut(4)) {
        // SAFETY: the caller vouches for the rows.
        let row = |i: usize| unsafe { std::slice::from_raw_parts(rows[i.min(rows.len() - 1)], n_bytes) };
        let told = four([row(0), row(1), row(2), row(3)]);
        products.copy_from_slice(&told[..products.len()]);
    }
}

/// The kernels of one instruction set.
pub(crate) struct Kernels {
    name: &'static str,
    /// The dot product.
    pub(crate) dot: Floats,
    /// The squared Euclidean distance.
    pub(crate) squares: Floats,
    /// Sum of level times code, codes 0..=15.
    pub(crate) bits4: Codes,
    /// Sum of level times code, codes 0..=3.
    pub(crate) bits2: Codes,
    /// Sum of level times signed byte; neither is -128.
    pub(crate) bytes: Codes,
    /// How many bits differ; the query's levels are packed bits.
    pub(crate) signs: Codes,
    hadamard: fn(&mut [f32], &[f32]),
    largest: fn(&[f32]) -> f32,
    levels: fn(&[f32], f32, &mut [i8]) -> i32,
    square: fn(&[f32]) -> f64,
    scaled: fn(&[f32], f64, &mut [Block]),
    pack4: fn(&[f32], f32, &mut [u8]) -> f32,
    pack2: fn(&[f32], f32, &mut [u8]) -> f32,
    unpack4: fn(&[u8], &mut [i8]) -> i32,
    unpack2: fn(&[u8], &mut [i8]) -> i32,
}

impl Kernels {
    /// The largest magnitude.
    pub(crate) fn largest(&self, x: &[f32]) -> f32 {
        (self.largest)(x)
    }

    /// Writes `x * per_unit`, rounded half away from zero, for each x; returns the sum of what it wrote.
    pub(crate) fn levels(&self, x: &[f32], per_unit: f32, levels: &mut [i8]) -> i32 {
        (self.levels)(x, per_unit, levels)
    }

    /// Packs the nearest code 0..=15 of `x * per_step + 7.5` for each x, zeros beyond them. Returns the
    /// product of x and `code - 7.5`.
    pub(crate) fn pack4(&self, x: &[f32], per_step: f32, bytes: &mut [u8]) -> f32 {
        (self.pack4)(x, per_step, bytes)
    }

    /// As `pack4`, for codes 0..=3 of `x * per_step + 1.5`.
    pub(crate) fn pack2(&self, x: &[f32], per_step: f32, bytes: &mut [u8]) -> f32 {
        (self.pack2)(x, per_step, bytes)
    }

    /// The squared length in float64.
    pub(crate) fn square(&self, x: &[f32]) -> f64 {
        (self.square)(x)
    }

    /// Writes each x times `factor` (a product of float64) to the row, which has a place for each.
    pub(crate) fn scaled(&self, x: &[f32], factor: f64, row: &mut [Block]) {
        assert!(x.len() <= row.len() * BLOCK_FLOATS);
        (self.scaled)(x, factor, row)
    }

    /// The fast Walsh-Hadamard transform, not normalised, of a power of two of components times `signs`.
    pub(crate) fn hadamard(&self, x: &mut [f32], signs: &[f32]) {
        assert!(x.len().is_power_of_two() && x.len() == signs.len());
        (self.hadamard)(x, signs);
    }

    /// Writes `2 * code - 15` for each code packed by `pack4`; returns the sum of what it wrote.
    pub(crate) fn unpack4(&self, bytes: &[u8], levels: &mut [i8]) -> i32 {
        (self.unpack4)(bytes, levels)
    }

    /// Writes `2 * code - 3` for each code packed by `pack2`; returns the sum of what it wrote.
    pub(crate) fn unpack2(&self, bytes: &[u8], levels: &mut [i8]) -> i32 {
        (self.unpack2)(bytes, levels)
    }
}

/// Names lesser kernels to be used, to measure what the best ones are worth.
const KERNELS_VARIABLE: &str = "SKERRY_KERNELS";

/// The kernels for this processor.
pub(crate) fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<&'static Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let available = available();
        let wanted = std::env::var(KERNELS_VARIABLE).unwrap_or_default();
        available.iter().find(|kernels| kernels.name == wanted).unwrap_or(&available[0])
    })
}

/// All kernels that run on this processor, the fastest first; `scalar` is always the last.
fn available() -> Vec<&'static Kernels> {
    let mut available: Vec<&'static Kernels> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            if avx512vnni::is_available() {
                available.push(&avx512vnni::KERNELS);
            }
            if is_x86_feature_detected!("avx512f") {
                available.push(&avx512::KERNELS);
            }
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

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 33
        }
    }

    fn row(dim: usize, seed: u64) -> Vec<Block> {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut floats: Vec<f32> =
            (0..dim).map(|_| (random.next() & 0xFFFF) as f32 / 32_768.0 - 1.0).collect();
        let length = floats.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-9);
        floats.iter_mut().for_each(|x| *x /= length);
        let mut row = vec![Block([0.0; BLOCK_FLOATS]); dim.div_ceil(BLOCK_FLOATS)];
        row.iter_mut()
            .zip(floats.chunks(BLOCK_FLOATS))
            .for_each(|(block, part)| block.0[..part.len()].copy_from_slice(part));
        row
    }

    const DIMS: [usize; 5] = [384, 768, 1000, 1536, 65_536];

    #[test]
    fn all_kernels_agree_with_their_scalar_twin_on_every_dimension() {
        for dim in (1..=130).chain(DIMS) {
            let query = row(dim, 1);
            let rows: [Vec<Block>; 4] = std::array::from_fn(|i| row(dim, i as u64 + 2));
            for kernels in available() {
                for (name, kernel, wide) in [
                    ("dot", &kernels.dot, wide_dot as fn(&[Block], &[Block]) -> f64),
                    ("squares", &kernels.squares, wide_squares),
                ] {
                    let four = kernel.four(&query, std::array::from_fn(|i| rows[i].as_slice()));
                    for (row, told) in rows.iter().zip(four) {
                        let at = format!("{} {name} dim {dim}", kernels.name);
                        let exact = wide(&query, row);
                        assert_eq!(kernel.one(&query, row).to_bits(), told.to_bits(), "{at}: one and four");
                        assert!((f64::from(told) - exact).abs() < 2e-6, "{at}: {told} is not {exact}");
                    }
                }
            }
        }
    }

    fn floats(row: &[Block]) -> Vec<f64> {
        row.iter().flat_map(|block| block.0).map(f64::from).collect()
    }

    fn wide_dot(a: &[Block], b: &[Block]) -> f64 {
        floats(a).iter().zip(floats(b)).map(|(x, y)| x * y).sum()
    }

    fn wide_squares(a: &[Block], b: &[Block]) -> f64 {
        floats(a).iter().zip(floats(b)).map(|(x, y)| (x - y) * (x - y)).sum()
    }

    /// Blocks of every count, random bytes and the largest ones: sums must neither wrap nor saturate.
    #[test]
    fn all_code_kernels_equal_their_scalar_twin() {
        type Choose = fn(&Kernels) -> &Codes;
        let kinds: [(&str, usize, Choose); 4] = [
            ("bits4", 2, |kernels| &kernels.bits4),
            ("bits2", 4, |kernels| &kernels.bits2),
            ("bytes", 1, |kernels| &kernels.bytes),
            ("signs", 1, |kernels| &kernels.signs),
        ];
        let mut random = Random(11);
        for n_blocks in (1..=70).chain([512, 1024, 2048]) {
            let n_bytes = n_blocks * CODE_BLOCK_BYTES;
            for round in 0..3 {
                let mut byte = |extreme: u8| if round == 0 { extreme } else { random.next() as u8 };
                let mut levels = Levels::default();
                levels.reset(n_bytes * 4);
                levels.as_mut_slice().iter_mut().for_each(|level| *level = (byte(127) as i8).max(-127));
                let rows: [Vec<u8>; 4] = std::array::from_fn(|i| {
                    let extreme = [0xFF, 0, 0x81, 0x7F][i];
                    (0..n_bytes).map(|_| byte(extreme)).collect()
                });
                for (kind, per_byte, choose) in kinds {
                    // No level or signed byte is -128.
                    let clean = |row: &Vec<u8>| match kind {
                        "bytes" => row.iter().map(|&b| if b == 0x80 { 0x81 } else { b }).collect(),
                        _ => row.clone(),
                    };
                    let rows: [Vec<u8>; 4] = std::array::from_fn(|i| clean(&rows[i]));
                    let query = &levels.as_slice()[..n_bytes * per_byte];
                    for kernels in available() {
                        let kernel = choose(kernels);
                        let four = kernel.four(query, std::array::from_fn(|i| rows[i].as_slice()));
                        for (row, told) in rows.iter().zip(four) {
                            let at = format!("{} {kind} {n_blocks} blocks round {round}", kernels.name);
                            assert_eq!(choose(&scalar::KERNELS).one(query, row), told, "{at}");
                            assert_eq!(kernel.one(query, row), told, "{at}");
                        }
                        for n in 1..=7 {
                            let pointers: Vec<*const u8> = (0..n).map(|i| rows[i % 4].as_ptr()).collect();
                            let mut products = vec![0; n];
                            // SAFETY: each row has that many bytes.
                            unsafe { kernel.many(query, &pointers, n_bytes, &mut products) };
                            let told: Vec<i32> = (0..n).map(|i| four[i % 4]).collect();
                            assert_eq!(products, told, "{} {kind} {n_blocks} blocks {n} rows", kernels.name);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn all_hadamard_transforms_equal_the_matrix() {
        for bits in 0..=16 {
            let n = 1_usize << bits;
            let mut random = Random(bits);
            let x: Vec<f32> = (0..n).map(|_| (random.next() & 0xFF) as f32 - 128.0).collect();
            for kernels in available() {
                let signs: Vec<f32> =
                    (0..n).map(|_| if random.next() & 1 == 0 { 0.5 } else { -0.5 }).collect();
                let mut y = x.clone();
                kernels.hadamard(&mut y, &signs);
                for i in (0..n).step_by((n / 64).max(1)) {
                    let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                    let exact: f32 = (0..n).map(|j| x[j] * signs[j] * sign(j)).sum();
                    assert_eq!(y[i], exact, "{} n {n} i {i}", kernels.name);
                }
            }
        }
    }

    #[test]
    fn packing_equals_its_scalar_twin_and_unpacking_undoes_it() {
        for dim in (1..=300).chain([384, 1000, 1536, 65_536]) {
            let row = row(dim, dim as u64);
            let x = &floats_of(&row)[..dim];
            let per_step = 1.7 * (dim as f32).sqrt();
            for kernels in available() {
                let at = format!("{} dim {dim}", kernels.name);
                let (mut levels, mut twin) = (vec![0; dim], vec![0; dim]);
                let largest = kernels.largest(x);
                assert_eq!(largest, scalar::KERNELS.largest(x), "{at}");
                let sum = kernels.levels(x, 127.0 / largest, &mut levels);
                assert_eq!(sum, scalar::KERNELS.levels(x, 127.0 / largest, &mut twin), "{at}");
                assert_eq!(levels, twin, "{at}");
                assert_eq!(sum, levels.iter().map(|&level| i32::from(level)).sum::<i32>(), "{at}");
                let square = kernels.square(x);
                assert!((square - scalar::KERNELS.square(x)).abs() <= 1e-12 * square, "{at}");
                let empty = vec![Block([0.0; BLOCK_FLOATS]); dim.div_ceil(BLOCK_FLOATS)];
                let (mut scaled, mut twin) = (empty.clone(), empty);
                kernels.scaled(x, 1.0 / 3.0, &mut scaled);
                scalar::KERNELS.scaled(x, 1.0 / 3.0, &mut twin);
                assert_eq!(scaled, twin, "{at}");
                for per_byte in [2, 4] {
                    let bytes = dim.div_ceil(CODE_BLOCK_BYTES * per_byte) * CODE_BLOCK_BYTES;
                    let (mut packed, mut twin) = (vec![0; bytes], vec![0xFF; bytes]);
                    let mut levels = vec![0; bytes * per_byte];
                    let (pack, unpack, top) = match per_byte {
                        2 => (kernels.pack4, kernels.unpack4, 15.0),
                        _ => (kernels.pack2, kernels.unpack2, 3.0),
                    };
                    let product = pack(x, per_step, &mut packed);
                    let of_twin = match per_byte {
                        2 => scalar::KERNELS.pack4(x, per_step, &mut twin),
                        _ => scalar::KERNELS.pack2(x, per_step, &mut twin),
                    };
                    assert!((product - of_twin).abs() <= 1e-5 * product.abs(), "{at}");
                    assert_eq!(packed, twin, "{at}");
                    let sum = unpack(&packed, &mut levels);
                    assert_eq!(sum, levels.iter().map(|&level| i32::from(level)).sum::<i32>(), "{at}");
                    for (&level, x) in levels.iter().zip(x) {
                        // Half a step at most, but beyond the outermost codes.
                        let nearest = (x * per_step * 2.0).clamp(-top, top);
                        assert!((f32::from(level) - nearest).abs() <= 1.001, "{at}: {level} for {nearest}");
                    }
                }
            }
        }
    }
}
