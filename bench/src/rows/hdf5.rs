//! ann-benchmarks HDF5: `train`, `test` and `neighbors`, read by the crate hdf5-reader (pure Rust, read only).
//!
//! A compressed data set may be larger than its file, so a matrix is bounded by what DEFLATE can make of the file
//! and not by the file itself.

use super::{IdRows, Rows, bad, ids};
use hdf5_reader::{Dataset, Datatype, H5Type, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem};
use std::io;
use std::path::Path;

/// DEFLATE's limit is 1032 to 1.
const MAX_EXPANSION: u64 = 1032;

pub(super) fn rows(path: &Path, name: &str, max_rows: usize) -> io::Result<Rows> {
    let (dataset, slice, n_columns) = open(path, name, max_rows)?;
    let values = match dataset.dtype() {
        Datatype::FloatingPoint { size: 8, .. } => {
            read::<f64>(&dataset, &slice)?.into_iter().map(|v| v as f32).collect()
        }
        Datatype::FloatingPoint { .. } => read::<f32>(&dataset, &slice)?,
        other => return Err(bad(format!("{name}: elements are no floats but {other:?}"))),
    };
    Ok(Rows::new(n_columns, values))
}

pub(super) fn ids(path: &Path, name: &str, max_rows: usize) -> io::Result<IdRows> {
    let (dataset, slice, n_columns) = open(path, name, max_rows)?;
    let ids: io::Result<Vec<u32>> = match dataset.dtype() {
        Datatype::FixedPoint { size: 4, signed: true, .. } => {
            read::<i32>(&dataset, &slice)?.into_iter().map(|v| ids::id(i64::from(v))).collect()
        }
        Datatype::FixedPoint { size: 8, signed: true, .. } => {
            read::<i64>(&dataset, &slice)?.into_iter().map(ids::id).collect()
        }
        other => return Err(bad(format!("{name}: elements are no int32 or int64 but {other:?}"))),
    };
    Ok(IdRows { n_columns, ids: ids? })
}

fn open(path: &Path, name: &str, max_rows: usize) -> io::Result<(Dataset, SliceInfo, usize)> {
    let n_file_bytes = std::fs::metadata(path)?.len();
    let limit = usize::try_from(n_file_bytes.saturating_mul(MAX_EXPANSION)).unwrap_or(usize::MAX);
    let options = OpenOptions::default().with_max_read_bytes(limit);
    let options = OpenOptions { max_chunk_bytes: options.max_chunk_bytes.min(limit), ..options };
    let file = Hdf5File::open_with_options(path, options).map_err(bad)?;
    let dataset = file.dataset(name).map_err(bad)?;
    let &[n_rows, n_columns] = dataset.shape() else {
        return Err(bad(format!("{name}: not a matrix")));
    };
    if n_columns == 0 {
        return Err(bad(format!("{name}: rows of 0 dimensions")));
    }
    let slice = |end| SliceInfoElem::Slice { start: 0, end, step: 1 };
    let selection = SliceInfo { selections: vec![slice(n_rows.min(max_rows as u64)), slice(n_columns)] };
    Ok((dataset, selection, usize::try_from(n_columns).map_err(bad)?))
}

fn read<T: H5Type + Clone>(dataset: &Dataset, slice: &SliceInfo) -> io::Result<Vec<T>> {
    Ok(dataset.read_slice::<T>(slice).map_err(bad)?.into_iter().collect())
}
