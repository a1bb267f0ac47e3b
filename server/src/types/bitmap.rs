//! Bits of a string, numbered from the top bit of the first byte on: counting, searching, combining, and integers of 1 to 64
//! bits at any bit. A string is followed by zeros without end where a command reads beyond it.
//!
//! The loops over whole strings are compiled twice, for what every x86-64 has and for AVX2 with POPCNT, and chosen as they
//! are called; both are the same source, and the tests hold them equal to a loop over single bits. Counting has a third form,
//! for AVX-512's own instruction.
//! Cost: 1 MB is counted in 12 us (AVX-512; else 21), and combined at the speed of memory. `unsafe` is the calls of the wider
//! code, and its loads.

use std::ops::Range;

/// How many bits of `bytes` are set.
pub fn count_ones(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_widest() {
        // SAFETY: this machine has the instructions.
        return unsafe { count_ones_widest(bytes) };
    } else if is_wide() {
        // SAFETY: as above.
        return unsafe { count_ones_wide(bytes) };
    }
    count_ones_plain(bytes)
}

#[cfg(target_arch = "x86_64")]
fn is_widest() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vpopcntdq")
}

/// Eight vectors of sums, so that no addition waits for another.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vpopcntdq,popcnt")]
fn count_ones_widest(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::*;
    const LANES: usize = 64;
    const N_SUMS: usize = 8;
    let (blocks, tail) = bytes.as_chunks::<{ N_SUMS * LANES }>();
    let mut sums = [_mm512_setzero_si512(); N_SUMS];
    for block in blocks {
        for (sum, lanes) in sums.iter_mut().zip(block.as_chunks::<LANES>().0) {
            // SAFETY: 64 bytes may be read there.
            let lanes = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
            *sum = _mm512_add_epi64(*sum, _mm512_popcnt_epi64(lanes));
        }
    }
    let in_blocks: i64 = sums.iter().map(|sum| _mm512_reduce_add_epi64(*sum)).sum();
    in_blocks as u64 + count_ones_plain(tail)
}

#[cfg(target_arch = "x86_64")]
fn is_wide() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn count_ones_wide(bytes: &[u8]) -> u64 {
    count_ones_plain(bytes)
}

#[inline(always)]
pub(super) fn count_ones_plain(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let in_words: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    in_words + tail.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// How many of the bits `range`, which lie in `bytes`, are set.
pub fn count_ones_in(bytes: &[u8], range: Range<usize>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = (range.start / 8, (range.end - 1) / 8);
    let outside = |byte: usize, mask: u8| u64::from((bytes[byte] & mask).count_ones());
    count_ones(&bytes[first..=last])
        - outside(first, !from_bit(range.start))
        - outside(last, !to_bit(range.end))
}

/// The bits of a byte from bit `at` of the string on.
fn from_bit(at: usize) -> u8 {
    0xff >> (at % 8)
}

/// The bits of the last byte of a range that ends before bit `end` of the string.
fn to_bit(end: usize) -> u8 {
    0xff << (7 - (end - 1) % 8)
}

/// The first bit of `range`, which lies in `bytes`, that is `wanted`.
pub fn position(bytes: &[u8], range: Range<usize>, wanted: bool) -> Option<usize> {
    if range.is_empty() {
        return None;
    }
    // Looking for a clear bit is looking for a set one in the complement.
    let flip = if wanted { 0 } else { 0xff };
    let (first, last) = (range.start / 8, (range.end - 1) / 8);
    let hit = |byte: usize, mask: u8| {
        let hits = (bytes[byte] ^ flip) & mask;
        (hits != 0).then(|| byte * 8 + hits.leading_zeros() as usize)
    };
    if first == last {
        return hit(first, from_bit(range.start) & to_bit(range.end));
    }
    hit(first, from_bit(range.start))
        .or_else(|| first_byte_unlike(&bytes[first + 1..last], flip).and_then(|at| hit(first + 1 + at, 0xff)))
        .or_else(|| hit(last, to_bit(range.end)))
}

/// The first byte that is not `byte`.
fn first_byte_unlike(bytes: &[u8], byte: u8) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let from = if is_wide() {
        // SAFETY: this machine has the instructions.
        unsafe { n_bytes_like_wide(bytes, byte) }
    } else {
        n_bytes_like(bytes, byte)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let from = n_bytes_like(bytes, byte);
    bytes[from..].iter().position(|other| *other != byte).map(|at| from + at)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn n_bytes_like_wide(bytes: &[u8], byte: u8) -> usize {
    n_bytes_like(bytes, byte)
}

/// Bytes of the whole blocks in front that are nothing but `byte`.
#[inline(always)]
fn n_bytes_like(bytes: &[u8], byte: u8) -> usize {
    const BLOCK: usize = 256;
    let is_like = |block: &&[u8; BLOCK]| block.iter().fold(0, |unlike, other| unlike | (other ^ byte)) == 0;
    bytes.as_chunks::<BLOCK>().0.iter().take_while(is_like).count() * BLOCK
}

/// What BITOP makes of its sources. X is the first of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// In X, and in none of the others.
    Diff,
    /// In one of the others, and not in X.
    Diff1,
    /// In X, and in one of the others.
    AndOr,
    /// In exactly one.
    One,
}

/// Bytes of the result that are made at a time: they and as much of a source stay in the first cache.
const BLOCK_BYTES: usize = 4096;

/// Combines `sources` (at least one) as if all were as long as the longest.
pub fn combine(operation: Operation, sources: &[&[u8]]) -> Vec<u8> {
    let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut result = vec![0; len];
    #[cfg(target_arch = "x86_64")]
    if is_wide() {
        // SAFETY: this machine has the instructions.
        unsafe { combine_wide(operation, sources, &mut result) };
        return result;
    }
    combine_plain(operation, sources, &mut result);
    result
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn combine_wide(operation: Operation, sources: &[&[u8]], result: &mut [u8]) {
    combine_plain(operation, sources, result);
}

#[inline(always)]
pub(super) fn combine_plain(operation: Operation, sources: &[&[u8]], result: &mut [u8]) {
    let mut twice = [0; BLOCK_BYTES];
    for (nth, block) in result.chunks_mut(BLOCK_BYTES).enumerate() {
        let from = nth * BLOCK_BYTES;
        let to = from + block.len();
        let part = |source: &[u8]| from.min(source.len())..to.min(source.len());
        let (x, others) = sources.split_first().expect("BITOP has a source");
        let x = &x[part(x)];
        let others = others.iter().map(|other| &other[part(other)]);
        match operation {
            Operation::And => {
                block[..x.len()].copy_from_slice(x);
                for other in others {
                    zip(block, other, |a, b| a & b);
                    block[other.len()..].fill(0);
                }
            }
            Operation::Or | Operation::Not => {
                block[..x.len()].copy_from_slice(x);
                others.for_each(|other| zip(block, other, |a, b| a | b));
            }
            Operation::Xor => {
                block[..x.len()].copy_from_slice(x);
                others.for_each(|other| zip(block, other, |a, b| a ^ b));
            }
            Operation::Diff | Operation::Diff1 | Operation::AndOr => {
                others.for_each(|other| zip(block, other, |a, b| a | b));
                match operation {
                    Operation::Diff1 => zip(block, x, |others, x| others & !x),
                    Operation::AndOr => {
                        zip(block, x, |others, x| others & x);
                        block[x.len()..].fill(0);
                    }
                    _ => {
                        zip(block, x, |others, x| x & !others);
                        block[x.len()..].fill(0);
                    }
                }
            }
            Operation::One => {
                let twice = &mut twice[..block.len()];
                twice.fill(0);
                block[..x.len()].copy_from_slice(x);
                for other in others {
                    for ((once, twice), other) in block.iter_mut().zip(twice.iter_mut()).zip(other) {
                        *twice |= *once & other;
                        *once |= other;
                    }
                }
                zip(block, twice, |once, twice| once & !twice);
            }
        }
        if operation == Operation::Not {
            block.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

#[inline(always)]
fn zip(to: &mut [u8], from: &[u8], combine: impl Fn(u8, u8) -> u8) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = combine(*to, *from));
}

/// A place of `n_bits` bits (1 to 64) from bit `offset` of a string on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    pub offset: usize,
    pub n_bits: u32,
}

/// Bytes that a field can touch.
const FIELD_BYTES: usize = 9;

impl Field {
    /// Bytes of the shortest string that holds it.
    pub fn end_byte(self) -> usize {
        (self.offset + self.n_bits as usize - 1) / 8 + 1
    }

    /// How far the field's last bit is from the end of the bytes that hold it.
    fn shift(self) -> u32 {
        (self.end_byte() * 8 - self.offset - self.n_bits as usize) as u32
    }

    fn mask(self) -> u128 {
        (1 << self.n_bits) - 1
    }

    /// The bytes that hold it as one number, zeros for those beyond the end.
    fn window(self, bytes: &[u8]) -> u128 {
        let mut window = 0;
        for at in self.offset / 8..self.end_byte() {
            window = window << 8 | u128::from(bytes.get(at).copied().unwrap_or(0));
        }
        window
    }

    pub fn unsigned(self, bytes: &[u8]) -> u64 {
        (self.window(bytes) >> self.shift() & self.mask()) as u64
    }

    /// Read as two's complement.
    pub fn signed(self, bytes: &[u8]) -> i64 {
        let unused = 64 - self.n_bits;
        (self.unsigned(bytes) << unused) as i64 >> unused
    }

    /// Writes the low bits of `value`; the string is long enough.
    pub fn put(self, bytes: &mut [u8], value: u64) {
        let mask = self.mask() << self.shift();
        let window = self.window(bytes) & !mask | (u128::from(value) << self.shift()) & mask;
        let place = &mut bytes[self.offset / 8..self.end_byte()];
        debug_assert!(place.len() <= FIELD_BYTES);
        place.copy_from_slice(&window.to_be_bytes()[16 - place.len()..]);
    }
}
