//! The float32 rows of a set that keeps them, padded with zeros to whole cache lines, found by id, never
//! moved.
//!
//! A kernel thus needs no tail loop. Under the cosine rows are L2-normalised, so the dot product of two is
//! their cosine; under the other metrics they are as given. Departure from Redis: the length is computed and
//! kept in f64. So 3e38 does not overflow it. A zero vector stays as it is and has length 1, as in Redis; so
//! does one whose squares all vanish in float32: it has no direction that Redis would see, and scores 0.5 with
//! everything. (Redis normalises by a float32 length, which is off by a quarter just above that; we do not.)

use std::slice;

use crate::distance::{BLOCK_FLOATS, Block, Kernels, floats_of};
use crate::error::Error;
use crate::graph::NodeId;
use crate::params::Metric;
use crate::slab::{Geometry, Slab};

pub(crate) struct Rows {
    slab: Slab,
    n_blocks: usize,
}

impl Rows {
    pub(crate) fn stride(dim: usize) -> usize {
        dim.div_ceil(BLOCK_FLOATS) * size_of::<Block>()
    }

    pub(crate) fn new(dim: usize, geometry: Geometry) -> Rows {
        Rows { slab: Slab::new(geometry, Rows::stride(dim)), n_blocks: dim.div_ceil(BLOCK_FLOATS) }
    }

    #[inline(always)]
    pub(crate) fn row(&self, id: NodeId) -> &[Block] {
        // SAFETY: ids are made by `write` before they are published and a row is written again only after the
        // epochs of all readers that could know the id passed; so the row is initialised and unchanged while
        // it is borrowed.
        unsafe { slice::from_raw_parts(self.slab.record(id.0).cast::<Block>(), self.n_blocks) }
    }

    /// Asks the cache for the first `lines` lines of a row.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: NodeId, lines: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the id was published, so its chunk is present; a prefetch reads nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let row = self.slab.record(id.0).cast::<Block>();
            for line in 0..lines.min(self.n_blocks) {
                _mm_prefetch::<_MM_HINT_T0>(row.add(line).cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (id, lines);
    }

    /// Writer only: makes room for the row of an id that no reader knows. Returns the bytes allocated.
    pub(crate) fn ensure(&self, id: NodeId) -> usize {
        self.slab.ensure(id.0)
    }

    /// Writer only: stores the row of an id that no reader knows and for which there is room.
    pub(crate) fn write(&self, id: NodeId, row: &[Block]) {
        assert_eq!(row.len(), self.n_blocks);
        // SAFETY: `ensure` made the chunk present; no reader knows the id, so nobody reads these lines.
        unsafe { self.slab.record(id.0).cast::<Block>().copy_from_nonoverlapping(row.as_ptr(), row.len()) }
    }

    /// Writer only.
    ///
    /// # Safety
    /// As `Slab::release`.
    pub(crate) unsafe fn release(&self, chunk: usize) -> usize {
        // SAFETY: passed on.
        unsafe { self.slab.release(chunk) }
    }
}

/// The longest vector of a set whose metric counts lengths, squared: four such lengths squared are a float32 yet.
const MAX_SQUARE: f64 = f32::MAX as f64 / 16.0;

/// Brings `vector` into whole blocks, as the metric wants it stored. Returns the factor that gives it back.
pub(crate) fn normalize(
    vector: &[f32],
    metric: Metric,
    row: &mut Vec<Block>,
    kernels: &Kernels,
) -> Result<f64, Error> {
    let squares = kernels.square(vector);
    // The square of a finite float32 is finite in f64, and so is the sum of as many as there may be.
    // Where lengths count, products and differences must be finite in f32 as well.
    if !squares.is_finite() || metric != Metric::Cosine && squares > MAX_SQUARE {
        return Err(Error::NotFinite);
    }
    let l2 = match metric {
        Metric::Cosine if !vanishes(vector, squares) => squares.sqrt(),
        Metric::Cosine | Metric::L2 | Metric::Ip => 1.0,
    };
    // What is beyond the vector is zero.
    row.resize(vector.len().div_ceil(BLOCK_FLOATS), Block([0.0; BLOCK_FLOATS]));
    if let Some(last) = row.last_mut() {
        *last = Block([0.0; BLOCK_FLOATS]);
    }
    kernels.scaled(vector, 1.0 / l2, row);
    Ok(l2)
}

/// Whether the square of every component is zero in float32.
fn vanishes(vector: &[f32], squares: f64) -> bool {
    // Where the sum is larger than any such squares may sum up to, none needs a look.
    const MOST: f64 = 1e-39;
    squares < MOST && vector.iter().all(|x| x * x == 0.0)
}

/// A stored vector as it was given, up to rounding.
pub(crate) fn denormalize(row: &[f32], l2: f64) -> Vec<f32> {
    row.iter().map(|&x| (f64::from(x) * l2) as f32).collect()
}

/// The `dim` components of a row.
pub(crate) fn floats(row: &[Block], dim: usize) -> &[f32] {
    &floats_of(row)[..dim]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::kernels;

    #[test]
    fn a_vector_whose_squares_vanish_in_float32_has_no_direction() {
        let mut row = Vec::new();
        let mut length =
            |vector: &[f32]| normalize(vector, Metric::Cosine, &mut row, kernels()).expect("finite");
        // As Redis 8.2.3 has them.
        for vector in [[0.0; 2], [1e-42, 0.0], [1e-23; 2], [-1e-45, 0.0]] {
            assert_eq!(length(&vector), 1.0, "{vector:?}");
        }
        for (vector, expected) in [([3e-23, 0.0], 3e-23), ([1e-20, 0.0], 1e-20)] {
            assert!((length(&vector) / expected - 1.0).abs() < 1e-6, "{vector:?}");
        }
    }

    #[test]
    fn lengths_that_overflow_are_refused_where_lengths_count() {
        let mut row = Vec::new();
        for metric in [Metric::L2, Metric::Ip] {
            assert_eq!(normalize(&[3e38; 3], metric, &mut row, kernels()), Err(Error::NotFinite));
            assert_eq!(normalize(&[1e18; 3], metric, &mut row, kernels()), Ok(1.0));
        }
        assert!(normalize(&[3e38; 3], Metric::Cosine, &mut row, kernels()).is_ok_and(f64::is_finite));
    }
}
