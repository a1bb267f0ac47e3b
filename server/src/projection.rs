//! The projection of a set made with VADD's REDUCE: from the components that clients write to the fewer that are stored.
//!
//! Redis's matrix is out[i] = sum_j s(i, j) * in[j], s = 1 / sqrt(input_dim), positive where popcount(i & j) is even: the
//! first rows of a Hadamard matrix. So it is never stored: a fast Walsh-Hadamard transform over the next power of two
//! gives all sums in n log n additions, whatever the two dimensions. A payload of RESTORE may bring another matrix
//! (other versions draw it at random); that one is kept, its size bounded by the payload that brought it.

use crate::error::CommandError;

/// A linear map that a set applies to what clients give it.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    input_dim: u32,
    output_dim: u32,
    matrix: Matrix,
}

#[derive(Clone, Debug, PartialEq)]
enum Matrix {
    Hadamard,
    /// Row after row, `input_dim` numbers each.
    Given(Box<[f32]>),
}

impl Projection {
    /// Redis's own projection. `output_dim` is not above `input_dim`.
    pub fn new(input_dim: u32, output_dim: u32) -> Self {
        Self { input_dim, output_dim, matrix: Matrix::Hadamard }
    }

    /// A projection with a matrix of its own, row after row; `None` if its size is not that of the dimensions.
    pub fn with_matrix(input_dim: u32, output_dim: u32, matrix: Vec<f32>) -> Option<Self> {
        if u64::from(input_dim) * u64::from(output_dim) != matrix.len() as u64 {
            return None;
        }
        let own = Self::new(input_dim, output_dim);
        let is_own = matrix.iter().zip(own.rows()).all(|(given, own)| *given == own);
        let matrix = if is_own { Matrix::Hadamard } else { Matrix::Given(matrix.into()) };
        Some(Self { matrix, ..own })
    }

    pub fn input_dim(&self) -> u32 {
        self.input_dim
    }

    /// The stored vector for a client's.
    pub fn apply(&self, vector: &[f32]) -> Result<Vec<f32>, CommandError> {
        if vector.len() != self.input_dim as usize {
            return Err(CommandError::format(format!(
                "ERR Input dimension mismatch for projection - got {} but projection expects {}",
                vector.len(),
                self.input_dim
            )));
        }
        let sums: Vec<f64> = match &self.matrix {
            Matrix::Hadamard => {
                let mut sums: Vec<f64> = vector.iter().map(|x| f64::from(*x)).collect();
                sums.resize(vector.len().max(self.output_dim as usize).next_power_of_two(), 0.0);
                walsh_hadamard(&mut sums);
                sums.truncate(self.output_dim as usize);
                let scale = 1.0 / f64::from(self.input_dim).sqrt();
                sums.iter_mut().for_each(|sum| *sum *= scale);
                sums
            }
            Matrix::Given(matrix) => {
                let dot =
                    |row: &[f32]| row.iter().zip(vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                matrix.chunks(vector.len()).map(dot).collect()
            }
        };
        // Components near the largest float32 may add up to more than it.
        let bounded = |sum: f64| sum.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        Ok(sums.into_iter().map(bounded).collect())
    }

    /// The matrix, row after row, as Redis writes it down.
    pub fn rows(&self) -> impl Iterator<Item = f32> {
        let scale = 1.0 / (self.input_dim as f32).sqrt();
        let own = (0..self.output_dim).flat_map(move |i| (0..self.input_dim).map(move |j| (i, j)));
        let own = own.map(move |(i, j)| if (i & j).count_ones() % 2 == 0 { scale } else { -scale });
        let (given, n_own): (&[f32], usize) = match &self.matrix {
            Matrix::Hadamard => (&[], usize::MAX),
            Matrix::Given(matrix) => (matrix, 0),
        };
        given.iter().copied().chain(own.take(n_own))
    }

    /// Numbers of the matrix.
    pub fn len(&self) -> u64 {
        u64::from(self.input_dim) * u64::from(self.output_dim)
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn memory_bytes(&self) -> usize {
        match &self.matrix {
            Matrix::Hadamard => 0,
            Matrix::Given(matrix) => size_of_val(&**matrix),
        }
    }
}

/// In place; the length is a power of two.
fn walsh_hadamard(values: &mut [f64]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_the_matrix() {
        for (input_dim, output_dim) in [(1, 1), (3, 2), (4, 4), (5, 3), (64, 17), (100, 99), (100, 100)] {
            let vector: Vec<f32> = (0..input_dim).map(|i| (i * i % 17) as f32 - 7.5).collect();
            let own = Projection::new(input_dim, output_dim);
            let rows: Vec<f32> = own.rows().collect();
            assert_eq!(rows.len() as u64, own.len());
            let fast = own.apply(&vector).unwrap();
            for (row, fast) in rows.chunks(input_dim as usize).zip(&fast) {
                let slow: f32 = row.iter().zip(&vector).map(|(a, b)| a * b).sum();
                assert!((slow - fast).abs() < 1e-3, "{input_dim} to {output_dim}: {slow} and {fast}");
            }
            assert_eq!(Projection::with_matrix(input_dim, output_dim, rows.clone()), Some(own));
            let mut other = rows;
            other[0] += 1.0;
            let other = Projection::with_matrix(input_dim, output_dim, other).unwrap();
            assert!((other.apply(&vector).unwrap()[0] - fast[0] - vector[0]).abs() < 1e-3);
        }
    }

    #[test]
    fn what_redis_makes_of_small_vectors() {
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&Projection::new(3, 2).apply(&[1.0, 2.0, 3.0]).unwrap(), &[3.464_101_6, 1.154_700_5]));
        let five = Projection::new(5, 3).apply(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!(close(&five, &[6.708_203, 1.341_640_7, 0.447_213_65]));
    }
}
