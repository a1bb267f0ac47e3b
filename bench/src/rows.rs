//! Vector rows from a NumPy `.npy` file (float16 or float32, C order), and exact search over them.
//!
//! Source of the format: numpy.lib.format, versions 1.0 and 2.0. Rows are widened to float32, the form in
//! which they go over the wire. Cost of the exact search: one dot product per row and query.

use std::io::{self, Read};
use std::path::Path;

/// A matrix of float32 rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    n_dims: usize,
    values: Vec<f32>,
}

impl Rows {
    /// Reads the first `max_rows` rows of `path`.
    pub fn read_npy(path: &Path, max_rows: usize) -> io::Result<Self> {
        let file = std::fs::File::open(path);
        let parsed = file.and_then(|file| Self::parse_npy(io::BufReader::new(file), max_rows));
        parsed.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    fn parse_npy(mut file: impl Read, max_rows: usize) -> io::Result<Self> {
        let header = read_header(&mut file)?;
        let n_rows = header.n_rows.min(max_rows);
        let n_values = n_rows * header.n_dims;
        let n_bytes = match header.kind {
            FloatKind::F16 => n_values * 2,
            FloatKind::F32 => n_values * 4,
        };
        let mut bytes = Vec::new();
        file.take(n_bytes as u64).read_to_end(&mut bytes)?;
        if bytes.len() < n_bytes {
            return Err(bad("the file ends before its rows do"));
        }
        let values = match header.kind {
            FloatKind::F16 => {
                bytes.chunks_exact(2).map(|b| widen_f16(u16::from_le_bytes([b[0], b[1]]))).collect()
            }
            FloatKind::F32 => {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
        };
        Ok(Self { n_dims: header.n_dims, values })
    }

    pub fn len(&self) -> usize {
        self.values.len() / self.n_dims
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn n_dims(&self) -> usize {
        self.n_dims
    }

    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.n_dims..][..self.n_dims]
    }

    /// Appends row `index` as a little-endian FP32 blob.
    pub fn append_blob(&self, index: usize, out: &mut Vec<u8>) {
        for value in self.row(index) {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// The same rows at length 1, so that a dot product is the cosine. A zero row stays zero.
    #[must_use]
    pub fn normalized(&self) -> Self {
        let mut values = self.values.clone();
        for row in values.chunks_exact_mut(self.n_dims) {
            let length = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
            if length > 0.0 {
                row.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
            }
        }
        Self { n_dims: self.n_dims, values }
    }

    /// The `count` greatest dot products with `query`, greatest first; a linear scan.
    pub fn nearest(&self, query: &[f32], count: usize) -> Vec<Neighbor> {
        let mut nearest: Vec<Neighbor> = Vec::with_capacity(count + 1);
        for (index, row) in self.values.chunks_exact(self.n_dims).enumerate() {
            let cosine = dot(row, query);
            if nearest.len() < count || nearest.last().is_some_and(|last| cosine > last.cosine) {
                let at = nearest.partition_point(|n| n.cosine >= cosine);
                nearest.insert(at, Neighbor { index, cosine });
                nearest.truncate(count);
            }
        }
        nearest
    }
}

/// One exact result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbor {
    pub index: usize,
    pub cosine: f32,
}

/// Sixteen partial sums, which the compiler turns into vector registers.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    const N_LANES: usize = 16;
    let mut lanes = [0.0f32; N_LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(N_LANES), b.chunks_exact(N_LANES));
    let tail: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..N_LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    lanes.iter().sum::<f32>() + tail
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloatKind {
    F16,
    F32,
}

struct Header {
    kind: FloatKind,
    n_rows: usize,
    n_dims: usize,
}

fn read_header(file: &mut impl Read) -> io::Result<Header> {
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    if &start[..6] != b"\x93NUMPY" {
        return Err(bad("not a .npy file"));
    }
    let n_header_bytes = match start[6] {
        1 => {
            let mut length = [0; 2];
            file.read_exact(&mut length)?;
            usize::from(u16::from_le_bytes(length))
        }
        2 => {
            let mut length = [0; 4];
            file.read_exact(&mut length)?;
            u32::from_le_bytes(length) as usize
        }
        _ => return Err(bad("unknown .npy version")),
    };
    let mut header = String::new();
    file.take(n_header_bytes as u64).read_to_string(&mut header)?;
    parse_header(&header)
}

/// Reads `{'descr': '<f2', 'fortran_order': False, 'shape': (60000, 384), }`.
fn parse_header(header: &str) -> io::Result<Header> {
    let after = |name: &str| header.split_once(name).map(|(_, rest)| rest.trim_start());
    let kind = match after("'descr':") {
        Some(rest) if rest.starts_with("'<f2'") => FloatKind::F16,
        Some(rest) if rest.starts_with("'<f4'") => FloatKind::F32,
        _ => return Err(bad("elements are neither <f2 nor <f4")),
    };
    if !after("'fortran_order':").is_some_and(|rest| rest.starts_with("False")) {
        return Err(bad("rows are not in C order"));
    }
    let shape = after("'shape':")
        .and_then(|rest| rest.strip_prefix('('))
        .and_then(|rest| rest.split_once(')'))
        .map(|(shape, _)| shape.split(',').filter_map(|n| n.trim().parse().ok()).collect::<Vec<usize>>());
    match shape.as_deref() {
        Some(&[n_rows, n_dims]) if n_dims > 0 => Ok(Header { kind, n_rows, n_dims }),
        _ => Err(bad("not a matrix")),
    }
}

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// IEEE half to single precision, exact.
fn widen_f16(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10 & 0x1f);
    let fraction = u32::from(half & 0x3ff);
    match (exponent, fraction) {
        // Zero and subnormals: fraction times 2^-24.
        (0, _) => f32::from_bits((fraction as f32 * (1.0 / 16_777_216.0)).to_bits() | sign),
        (0x1f, _) => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn halves_and_singles_are_read_and_cut_to_the_rows_asked_for() {
        let halves: Vec<u8> =
            [0x3c00u16, 0xc000, 0x3800, 0x0001].iter().flat_map(|h| h.to_le_bytes()).collect();
        let rows = Rows::parse_npy(&npy("<f2", "(2, 2)", &halves)[..], 10).expect("well-formed");
        assert_eq!((rows.len(), rows.n_dims()), (2, 2));
        assert_eq!(rows.row(0), [1.0, -2.0]);
        assert_eq!(rows.row(1), [0.5, 2f32.powi(-24)]);
        let singles: Vec<u8> = [1.5f32, 2.5, 3.5, 4.5].iter().flat_map(|f| f.to_le_bytes()).collect();
        let rows = Rows::parse_npy(&npy("<f4", "(2, 2)", &singles)[..], 1).expect("well-formed");
        assert_eq!((rows.len(), rows.row(0)), (1, &[1.5, 2.5][..]));
    }

    #[test]
    fn every_half_widens_to_its_value() {
        for half in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f32::from(half & 0x3ff));
            let magnitude = match exponent {
                0 => fraction / 1024.0 * 2f32.powi(-14),
                31 if fraction == 0.0 => f32::INFINITY,
                31 => f32::NAN,
                _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
            };
            let expected = if half >> 15 == 1 { -magnitude } else { magnitude };
            let got = widen_f16(half);
            assert!(
                got == expected && got.is_sign_negative() == expected.is_sign_negative()
                    || expected.is_nan() && got.is_nan(),
                "{half:#06x}"
            );
        }
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        for (bytes, reason) in [
            (b"PK\x03\x04....".to_vec(), "not a .npy"),
            (npy("<f8", "(1, 1)", &[0; 8]), "neither <f2 nor <f4"),
            (npy("<f4", "(4,)", &[0; 16]), "not a matrix"),
            (npy("<f4", "(2, 2)", &[0; 8]), "ends before"),
        ] {
            let error = Rows::parse_npy(&bytes[..], 10).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn the_nearest_are_the_greatest_cosines_in_order() {
        let mut random = crate::random::SplitMix64::new(5);
        let values: Vec<f32> = (0..37 * 200).map(|_| random.normal_f64() as f32).collect();
        let rows = Rows { n_dims: 37, values }.normalized();
        let query = rows.row(17);
        let mut all: Vec<Neighbor> =
            (0..200).map(|index| Neighbor { index, cosine: dot(rows.row(index), query) }).collect();
        all.sort_by(|a, b| b.cosine.total_cmp(&a.cosine));
        assert_eq!(rows.nearest(query, 10), all[..10]);
        assert_eq!(all[0].index, 17);
        assert!((all[0].cosine - 1.0).abs() < 1e-6);
        assert_eq!(rows.nearest(query, 500).len(), 200);
    }
}
