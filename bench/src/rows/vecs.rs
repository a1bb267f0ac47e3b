//! `.fvecs`, `.bvecs`, `.ivecs` of the TEXMEX corpora: before each row its length as a little-endian int32.

use super::{Input, Rows, bad, floats_of_le_bytes};
use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    F32,
    U8,
    /// Ids of `.ivecs`.
    I32,
}

impl Component {
    fn n_bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::U8 => 1,
        }
    }
}

pub(super) fn rows(input: &mut Input<impl Read>, component: Component, max_rows: usize) -> io::Result<Rows> {
    let (n_dims, bytes) = raw(input, component, max_rows)?;
    let values = match component {
        Component::F32 => floats_of_le_bytes(&bytes),
        Component::U8 => bytes.iter().map(|b| f32::from(*b)).collect(),
        Component::I32 => return Err(bad("the components are integers")),
    };
    Ok(Rows::new(n_dims, values))
}

/// The length of the rows, and their components without the lengths between them.
pub(super) fn raw(
    input: &mut Input<impl Read>,
    component: Component,
    max_rows: usize,
) -> io::Result<(usize, Vec<u8>)> {
    let mut all = Vec::new();
    let mut n_dims = None;
    let mut n_rows = 0;
    while input.n_bytes_left > 0 && n_rows < max_rows {
        let n = input.take_u32()?;
        if n == 0 || *n_dims.get_or_insert(n) != n {
            return Err(bad(format!("row {n_rows} says it has {n} dimensions")));
        }
        all.extend_from_slice(&input.take(u64::from(n) * component.n_bytes())?);
        n_rows += 1;
    }
    let n_dims = n_dims.ok_or_else(|| bad("the file has no rows"))?;
    Ok((n_dims as usize, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], component: Component, max_rows: usize) -> io::Result<Rows> {
        rows(&mut Input { reader: bytes, n_bytes_left: bytes.len() as u64 }, component, max_rows)
    }

    #[test]
    fn floats_and_bytes() {
        let mut file = Vec::new();
        for row in [[1.0f32, -2.5], [3.0, 4.0]] {
            file.extend_from_slice(&2u32.to_le_bytes());
            row.iter().for_each(|v| file.extend_from_slice(&v.to_le_bytes()));
        }
        assert_eq!(parse(&file, Component::F32, 9).expect("two rows").values(), [1.0, -2.5, 3.0, 4.0]);
        assert_eq!(parse(&file, Component::F32, 1).expect("one row").values(), [1.0, -2.5]);
        let file = [&3u32.to_le_bytes()[..], &[0, 127, 255]].concat();
        assert_eq!(parse(&file, Component::U8, 9).expect("one row").values(), [0.0, 127.0, 255.0]);
    }

    #[test]
    fn malformed_files_are_refused_with_a_reason() {
        let two_and_one = [&2u32.to_le_bytes()[..], &[1, 2], &1u32.to_le_bytes(), &[1]].concat();
        for (bytes, reason) in [
            (Vec::new(), "no rows"),
            (vec![1, 0], "ends before"),
            (0u32.to_le_bytes().to_vec(), "0 dimensions"),
            (u32::MAX.to_le_bytes().to_vec(), "ends before"),
            (two_and_one, "row 1 says it has 1"),
        ] {
            let error = parse(&bytes, Component::U8, 10).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}, not {reason}");
        }
    }
}
