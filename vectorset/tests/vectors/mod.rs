//! Vectors for tests and benchmarks: the slice of real embeddings in `testdata`, `.npy` files of float16, and
//! seeded noise.

#![allow(dead_code)] // Each test uses what it needs of it.

use std::path::{Path, PathBuf};

pub(crate) const DIM: usize = 384;
pub(crate) const N_BASE: usize = 2_000;

/// 2000 base rows and 100 queries.
pub(crate) fn text384() -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/text384.f16");
    let bytes = std::fs::read(&path).expect("testdata/text384.f16 is in the repository");
    let mut rows = rows_f16(&bytes, DIM);
    let queries = rows.split_off(N_BASE);
    (rows, queries)
}

/// The first `n` rows of a two-dimensional little-endian float16 `.npy` file.
pub(crate) fn npy_f16(path: &PathBuf, n: usize) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + header_len]).expect("an npy header is text");
    assert!(header.contains("'<f2'") && header.contains("'fortran_order': False"), "{header}");
    let shape = header.split("'shape': (").nth(1).and_then(|rest| rest.split(')').next()).expect("a shape");
    let dim: usize = shape.split(',').nth(1).and_then(|dim| dim.trim().parse().ok()).expect("two dimensions");
    let rows = &bytes[10 + header_len..];
    rows_f16(&rows[..rows.len().min(n * dim * 2)], dim)
}

fn rows_f16(bytes: &[u8], dim: usize) -> Vec<Vec<f32>> {
    let float = |bytes: &[u8]| f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]]));
    bytes.chunks_exact(dim * 2).map(|row| row.chunks_exact(2).map(float).collect()).collect()
}

fn f16_to_f32(half: u16) -> f32 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 0x3FF));
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        31 => panic!("the rows are finite"),
        _ => sign * (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
    }
}

/// A small seeded generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
