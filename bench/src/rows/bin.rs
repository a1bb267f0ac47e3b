//! `.fbin`, `.u8bin`, `.i8bin`, `.ibin` of big-ann-benchmarks: number of rows and of columns as little-endian
//! uint32, then the rows. A ground-truth file holds two matrices behind one head: ids, then float32 distances.

use super::{Input, Rows, bad, floats_of_le_bytes};
use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    F32,
    U8,
    I8,
    /// Ids.
    I32,
}

impl Component {
    fn n_bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::U8 | Self::I8 => 1,
        }
    }
}

pub(super) fn rows(input: &mut Input<impl Read>, component: Component, max_rows: usize) -> io::Result<Rows> {
    let (n_dims, bytes) = raw(input, component, max_rows)?;
    let values = match component {
        Component::F32 => floats_of_le_bytes(&bytes),
        Component::U8 => bytes.iter().map(|b| f32::from(*b)).collect(),
        Component::I8 => bytes.iter().map(|b| f32::from(*b as i8)).collect(),
        Component::I32 => return Err(bad("the components are integers")),
    };
    Ok(Rows::new(n_dims, values))
}

/// The number of columns, and the bytes of the first `max_rows` rows.
pub(super) fn raw(
    input: &mut Input<impl Read>,
    component: Component,
    max_rows: usize,
) -> io::Result<(usize, Vec<u8>)> {
    let (n_rows, n_columns) = (u64::from(input.take_u32()?), u64::from(input.take_u32()?));
    if n_columns == 0 {
        return Err(bad("rows of 0 dimensions"));
    }
    // Two factors below 2^32 and one below 2^3 can pass u64 only above any file's length.
    let n_row_bytes = n_columns * component.n_bytes();
    input.demand(n_rows.checked_mul(n_row_bytes).ok_or_else(|| bad("the matrix is too large"))?)?;
    let bytes = input.take(n_rows.min(max_rows as u64) * n_row_bytes)?;
    Ok((n_columns as usize, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], component: Component) -> io::Result<Rows> {
        rows(&mut Input { reader: bytes, n_bytes_left: bytes.len() as u64 }, component, 10)
    }

    fn file(n_rows: u32, n_columns: u32, rest: &[u8]) -> Vec<u8> {
        [&n_rows.to_le_bytes()[..], &n_columns.to_le_bytes(), rest].concat()
    }

    #[test]
    fn floats_and_bytes() {
        let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|f| f.to_le_bytes()).collect();
        assert_eq!(parse(&file(2, 1, &floats), Component::F32).expect("two rows").values(), [1.5, -2.0]);
        assert_eq!(parse(&file(1, 2, &[1, 255]), Component::U8).expect("one row").values(), [1.0, 255.0]);
        assert_eq!(parse(&file(1, 2, &[1, 255]), Component::I8).expect("one row").values(), [1.0, -1.0]);
    }

    #[test]
    fn malformed_files_are_refused_with_a_reason() {
        for (bytes, reason) in [
            (vec![1, 0, 0], "ends before"),
            (file(1, 0, &[]), "0 dimensions"),
            (file(u32::MAX, u32::MAX, &[0; 8]), "too large"),
            (file(u32::MAX, 1, &[0; 8]), "ends before"),
        ] {
            let error = parse(&bytes, Component::F32).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}, not {reason}");
        }
    }
}
