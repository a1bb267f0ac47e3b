//! A matrix of row numbers: the ground truth that comes with a data set.
//!
//! Read from `.npy` (int32, int64), `.ivecs`, `.ibin` (big-ann-benchmarks, also with distances behind the ids)
//! and ann-benchmarks HDF5 (`neighbors`).

use super::{Input, bad, bin, extension, hdf5, npy, vecs};
use std::io::{self, Read};
use std::path::Path;

/// Row `i` holds the numbers of the base rows nearest to query `i`, nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdRows {
    pub n_columns: usize,
    pub ids: Vec<u32>,
}

impl IdRows {
    /// Reads the first `max_rows` rows of `path`; its extension tells the format.
    pub fn read(path: &Path, max_rows: usize) -> io::Result<Self> {
        let parsed = Self::read_by_extension(path, max_rows);
        parsed.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    fn read_by_extension(path: &Path, max_rows: usize) -> io::Result<Self> {
        match extension(path).as_str() {
            "hdf5" | "h5" => hdf5::ids(path, "neighbors", max_rows),
            "npy" => Self::of_npy(&mut Input::open(path)?, max_rows),
            "ivecs" => {
                let (n_columns, bytes) = vecs::raw(&mut Input::open(path)?, vecs::Component::I32, max_rows)?;
                Ok(Self { n_columns, ids: ids_of_le_bytes(&bytes)? })
            }
            "ibin" | "bin" => {
                let (n_columns, bytes) = bin::raw(&mut Input::open(path)?, bin::Component::I32, max_rows)?;
                Ok(Self { n_columns, ids: ids_of_le_bytes(&bytes)? })
            }
            other => Err(bad(format!(
                "ground truth is read from .npy, .ivecs, .ibin and .hdf5, not from .{other}"
            ))),
        }
    }

    fn of_npy(input: &mut Input<impl Read>, max_rows: usize) -> io::Result<Self> {
        let matrix = npy::matrix(input, max_rows)?;
        let ids = match matrix.element {
            npy::Element::I32 | npy::Element::U32 => ids_of_le_bytes(&matrix.bytes)?,
            npy::Element::I64 | npy::Element::U64 => matrix
                .bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| id(i64::from_le_bytes(*b)))
                .collect::<io::Result<_>>()?,
            npy::Element::F16 | npy::Element::F32 | npy::Element::F64 => {
                return Err(bad("elements are floats, not row numbers"));
            }
        };
        Ok(Self { n_columns: matrix.n_columns, ids })
    }

    pub fn len(&self) -> usize {
        self.ids.len() / self.n_columns
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub fn row(&self, index: usize) -> &[u32] {
        &self.ids[index * self.n_columns..][..self.n_columns]
    }
}

/// A row number as it stands in a file; -1 and the like stand for "none" and are refused.
pub(super) fn id(number: i64) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| bad(format!("{number} is no row number")))
}

fn ids_of_le_bytes(bytes: &[u8]) -> io::Result<Vec<u32>> {
    bytes.as_chunks::<4>().0.iter().map(|b| id(i64::from(i32::from_le_bytes(*b)))).collect()
}
