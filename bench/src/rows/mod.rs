//! A matrix of float32 rows, and how it is read from the files that vector benchmarks come in.
//!
//! | file | rows | source of the format |
//! |---|---|---|
//! | `.npy` | float16, float32, float64, C order | numpy.lib.format 1.0 to 3.0 |
//! | `.fvecs`, `.bvecs` | float32, bytes | TEXMEX corpora, <http://corpus-texmex.irisa.fr> |
//! | `.fbin`, `.u8bin`, `.i8bin` | float32, bytes, signed bytes | big-ann-benchmarks |
//! | `.hdf5`, `.h5` | float32, float64: `train` and `test` | ann-benchmarks |
//!
//! Values are widened to float32, the form in which they go over the wire. No reader allocates by what a header
//! says: a header is first held against the file's length.
//!
//! Must never know: servers.

mod bin;
mod hdf5;
mod ids;
mod npy;
mod vecs;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

pub use ids::IdRows;

/// A matrix of float32 rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    n_dims: usize,
    values: Vec<f32>,
}

/// Which matrix of a file that holds several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Base,
    Query,
}

impl Rows {
    /// Rows of `n_dims` values each, one after the other.
    pub fn new(n_dims: usize, values: Vec<f32>) -> Self {
        assert!(n_dims > 0 && values.len().is_multiple_of(n_dims), "whole rows");
        Self { n_dims, values }
    }

    /// Reads the first `max_rows` rows of `path`; its extension tells the format.
    pub fn read(path: &Path, part: Part, max_rows: usize) -> io::Result<Self> {
        let parsed = Self::read_by_extension(path, part, max_rows);
        parsed.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    fn read_by_extension(path: &Path, part: Part, max_rows: usize) -> io::Result<Self> {
        let extension = extension(path);
        if matches!(extension.as_str(), "hdf5" | "h5") {
            let name = match part {
                Part::Base => "train",
                Part::Query => "test",
            };
            return hdf5::rows(path, name, max_rows);
        }
        let mut input = Input::open(path)?;
        match extension.as_str() {
            "npy" => npy::rows(&mut input, max_rows),
            "fvecs" => vecs::rows(&mut input, vecs::Component::F32, max_rows),
            "bvecs" => vecs::rows(&mut input, vecs::Component::U8, max_rows),
            "fbin" => bin::rows(&mut input, bin::Component::F32, max_rows),
            "u8bin" => bin::rows(&mut input, bin::Component::U8, max_rows),
            "i8bin" => bin::rows(&mut input, bin::Component::I8, max_rows),
            other => Err(bad(format!(
                "rows are read from .npy, .fvecs, .bvecs, .fbin, .u8bin, .i8bin and .hdf5, not from .{other}"
            ))),
        }
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

    pub fn values(&self) -> &[f32] {
        &self.values
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

    /// The first `n` rows, or all if there are fewer.
    #[must_use]
    pub fn first(&self, n: usize) -> Self {
        Self::new(self.n_dims, self.values[..n.min(self.len()) * self.n_dims].to_vec())
    }

    /// The rows of those indices, in that order.
    #[must_use]
    pub fn pick(&self, indices: &[u32]) -> Self {
        Self::new(self.n_dims, indices.iter().flat_map(|&i| self.row(i as usize)).copied().collect())
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
}

/// A file and how much of it is left.
struct Input<R> {
    reader: R,
    n_bytes_left: u64,
}

impl Input<BufReader<File>> {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let n_bytes_left = file.metadata()?.len();
        Ok(Self { reader: BufReader::with_capacity(1 << 20, file), n_bytes_left })
    }
}

impl<R: Read> Input<R> {
    /// The next `n` bytes. Allocates nothing if the file does not have them.
    fn take(&mut self, n: u64) -> io::Result<Vec<u8>> {
        self.demand(n)?;
        let mut bytes = vec![0; usize::try_from(n).map_err(bad)?];
        self.reader.read_exact(&mut bytes)?;
        self.n_bytes_left -= n;
        Ok(bytes)
    }

    fn take_u32(&mut self) -> io::Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Fails unless `n` bytes are left.
    fn demand(&self, n: u64) -> io::Result<()> {
        if n > self.n_bytes_left {
            return Err(bad(format!(
                "the file ends before its rows do: {n} bytes are to come, {} are left",
                self.n_bytes_left
            )));
        }
        Ok(())
    }
}

fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default()
}

fn bad(text: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_string())
}

fn floats_of_le_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_normalized_picked_and_cut() {
        let rows = Rows::new(2, vec![3.0, 4.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(rows.normalized().values(), [0.6, 0.8, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(rows.pick(&[2, 0]).values(), [1.0, 0.0, 3.0, 4.0]);
        assert_eq!(rows.first(1).values(), [3.0, 4.0]);
        assert_eq!(rows.first(9).len(), 3);
    }

    #[test]
    fn a_foreign_extension_is_told_what_is_read() {
        let path = std::env::temp_dir().join(format!("skerry-bench-{}.txt", std::process::id()));
        std::fs::write(&path, "1 2 3").expect("temporary file");
        let error = Rows::read(&path, Part::Base, 1).expect_err("no format");
        std::fs::remove_file(&path).expect("removable");
        assert!(error.to_string().contains("not from .txt"), "{error}");
    }
}
