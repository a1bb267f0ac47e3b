//! `.npy` (numpy.lib.format, versions 1.0 to 3.0): matrices of `<f2 <f4 <f8` rows and of integer ids, C order.

use super::{Input, Rows, bad, floats_of_le_bytes};
use std::io::{self, Read};

/// A header of numpy's own is 118 bytes; one of a structured type some kilobytes.
const MAX_HEADER_BYTES: u32 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
}

impl Element {
    fn from_descr(descr: &str) -> Option<Self> {
        match descr {
            "<f2" => Some(Self::F16),
            "<f4" => Some(Self::F32),
            "<f8" => Some(Self::F64),
            "<i4" => Some(Self::I32),
            "<i8" => Some(Self::I64),
            "<u4" => Some(Self::U32),
            "<u8" => Some(Self::U64),
            _ => None,
        }
    }

    fn n_bytes(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }
}

/// A matrix as it stands in the file.
pub(super) struct Matrix {
    pub(super) element: Element,
    pub(super) n_columns: usize,
    pub(super) bytes: Vec<u8>,
}

/// Float rows, the first `max_rows`.
pub(super) fn rows(input: &mut Input<impl Read>, max_rows: usize) -> io::Result<Rows> {
    let matrix = matrix(input, max_rows)?;
    let bytes = &matrix.bytes;
    let values = match matrix.element {
        Element::F16 => bytes.chunks_exact(2).map(|b| widen_f16(u16::from_le_bytes([b[0], b[1]]))).collect(),
        Element::F32 => floats_of_le_bytes(bytes),
        Element::F64 => {
            bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect::<Vec<_>>()
        }
        Element::I32 | Element::I64 | Element::U32 | Element::U64 => {
            return Err(bad("elements are integers, not <f2, <f4 or <f8"));
        }
    };
    Ok(Rows::new(matrix.n_columns, values))
}

pub(super) fn matrix(input: &mut Input<impl Read>, max_rows: usize) -> io::Result<Matrix> {
    let start = input.take(8)?;
    if &start[..6] != b"\x93NUMPY" {
        return Err(bad("not a .npy file"));
    }
    let n_header_bytes = match start[6] {
        1 => {
            let length = input.take(2)?;
            u32::from(u16::from_le_bytes([length[0], length[1]]))
        }
        2 | 3 => input.take_u32()?,
        _ => return Err(bad("unknown .npy version")),
    };
    if n_header_bytes > MAX_HEADER_BYTES {
        return Err(bad("the header is too long"));
    }
    let header = input.take(u64::from(n_header_bytes))?;
    let (element, n_rows, n_columns) = parse_header(&String::from_utf8_lossy(&header))?;
    let n_row_bytes = n_columns.checked_mul(element.n_bytes()).ok_or_else(|| bad("a row is too long"))?;
    // The whole file is held against its header, also what is not asked for.
    input.demand(n_rows.checked_mul(n_row_bytes).ok_or_else(|| bad("the matrix is too large"))?)?;
    let bytes = input.take(n_rows.min(max_rows as u64) * n_row_bytes)?;
    Ok(Matrix { element, n_columns: usize::try_from(n_columns).map_err(bad)?, bytes })
}

/// Reads `{'descr': '<f2', 'fortran_order': False, 'shape': (60000, 384), }`.
fn parse_header(header: &str) -> io::Result<(Element, u64, u64)> {
    let after = |name: &str| header.split_once(name).map(|(_, rest)| rest.trim_start());
    let element = after("'descr':")
        .and_then(|rest| rest.strip_prefix('\''))
        .and_then(|rest| rest.split_once('\''))
        .and_then(|(descr, _)| Element::from_descr(descr))
        .ok_or_else(|| bad("elements are neither <f2, <f4, <f8 nor integers of 4 or 8 bytes"))?;
    if !after("'fortran_order':").is_some_and(|rest| rest.starts_with("False")) {
        return Err(bad("rows are not in C order"));
    }
    let shape: Option<Vec<u64>> = after("'shape':")
        .and_then(|rest| rest.strip_prefix('('))
        .and_then(|rest| rest.split_once(')'))
        .and_then(|(shape, _)| {
            shape.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
        });
    match shape.as_deref() {
        Some(&[n_rows, n_columns]) if n_columns > 0 => Ok((element, n_rows, n_columns)),
        _ => Err(bad("not a matrix")),
    }
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

    fn parse(bytes: &[u8], max_rows: usize) -> io::Result<Rows> {
        rows(&mut Input { reader: bytes, n_bytes_left: bytes.len() as u64 }, max_rows)
    }

    #[test]
    fn halves_singles_and_doubles_are_read_and_cut_to_the_rows_asked_for() {
        let halves: Vec<u8> =
            [0x3c00u16, 0xc000, 0x3800, 0x0001].iter().flat_map(|h| h.to_le_bytes()).collect();
        let rows = parse(&npy("<f2", "(2, 2)", &halves), 10).expect("well-formed");
        assert_eq!((rows.len(), rows.n_dims()), (2, 2));
        assert_eq!(rows.row(0), [1.0, -2.0]);
        assert_eq!(rows.row(1), [0.5, 2f32.powi(-24)]);
        let singles: Vec<u8> = [1.5f32, 2.5, 3.5, 4.5].iter().flat_map(|f| f.to_le_bytes()).collect();
        let rows = parse(&npy("<f4", "(2, 2)", &singles), 1).expect("well-formed");
        assert_eq!((rows.len(), rows.row(0)), (1, &[1.5, 2.5][..]));
        let doubles: Vec<u8> = [0.1f64, -1e300].iter().flat_map(|f| f.to_le_bytes()).collect();
        let rows = parse(&npy("<f8", "(1, 2)", &doubles), 1).expect("well-formed");
        assert_eq!(rows.row(0), [0.1f32, f32::NEG_INFINITY]);
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
            (npy("<c8", "(1, 1)", &[0; 8]), "neither <f2"),
            (npy(">f4", "(1, 1)", &[0; 8]), "neither <f2"),
            (npy("<i4", "(1, 1)", &[0; 4]), "integers"),
            (npy("<f4", "(4,)", &[0; 16]), "not a matrix"),
            (npy("<f4", "(4, -4)", &[0; 16]), "not a matrix"),
            (npy("<f4", "(2, 2)", &[0; 8]), "ends before"),
            (npy("<f8", "(1, 2305843009213693952)", &[0; 8]), "too long"),
            (npy("<f4", "(9223372036854775807, 4)", &[0; 8]), "too large"),
            (npy("<f4", "(1000000000000, 4)", &[0; 8]), "ends before"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "too long"),
        ] {
            let error = parse(&bytes, 10).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}, not {reason}");
        }
    }
}
