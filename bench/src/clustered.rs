//! Seeded clustered float32 vectors: what stands for embeddings where no data set is at hand.
//!
//! A vector is a pure function of (seed, dimension, clusters, index), so any machine and any number of
//! clients load the same set. Component j of vector i is `centre(cluster(i))[j] + SPREAD * noise(i, j)`;
//! centres are standard normal, noise is a sum of four uniforms (close to normal, one random word each). Rows
//! are not normalised.
//!
//! Cost: about 2 ns a component, no allocation per vector.

use crate::random::SplitMix64;
use crate::rows::Rows;
use std::ops::Range;

/// Noise per component against centres of standard deviation 1: clusters overlap, as sentence embeddings do.
const SPREAD: f32 = 0.6;

/// What `--vector-dim`, `--vector-clusters` and `--vector-seed` choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorShape {
    pub n_dims: usize,
    pub n_clusters: usize,
    pub seed: u64,
}

/// The generator: cluster centres drawn once, vectors made on demand.
#[derive(Clone, Debug)]
pub struct ClusteredVectors {
    shape: VectorShape,
    centres: Vec<f32>,
}

impl ClusteredVectors {
    pub fn new(shape: VectorShape) -> Self {
        assert!(shape.n_dims > 0 && shape.n_clusters > 0, "a vector set has dimensions and clusters");
        let mut random = SplitMix64::new(shape.seed);
        let centres = (0..shape.n_dims * shape.n_clusters).map(|_| random.normal_f64() as f32).collect();
        Self { shape, centres }
    }

    pub fn blob_bytes(&self) -> usize {
        self.shape.n_dims * size_of::<f32>()
    }

    /// Appends vector `index` as a little-endian FP32 blob.
    pub fn append_blob(&self, index: u64, out: &mut Vec<u8>) {
        out.reserve(self.blob_bytes());
        for component in self.components(index) {
            out.extend_from_slice(&component.to_le_bytes());
        }
    }

    /// The vectors of those indices as rows.
    pub fn rows(&self, indices: Range<u64>) -> Rows {
        Rows::new(self.shape.n_dims, indices.flat_map(|index| self.components(index)).collect())
    }

    fn components(&self, index: u64) -> impl Iterator<Item = f32> {
        // The seed and the index meet in a mixed word: neighbouring indices share no stream.
        let mut random = SplitMix64::new(SplitMix64::new(self.shape.seed ^ index.rotate_left(32)).next_u64());
        let cluster = random.range_inclusive(0, self.shape.n_clusters as u64 - 1) as usize;
        let centre = &self.centres[cluster * self.shape.n_dims..][..self.shape.n_dims];
        centre.iter().map(move |c| c + SPREAD * near_normal(random.next_u64()))
    }
}

/// Sum of the word's four 16-bit quarters, centred and scaled to standard deviation 1 (Irwin-Hall, n = 4).
fn near_normal(word: u64) -> f32 {
    const UNIFORM_STDDEV: f32 = 37_837.23; // sqrt(4 * 65536^2 / 12)
    let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    (sum as f32 - 131_070.0) / UNIFORM_STDDEV
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: VectorShape = VectorShape { n_dims: 64, n_clusters: 8, seed: 11 };

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(p, q)| p * q).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    }

    #[test]
    fn a_vector_depends_on_seed_and_index_only() {
        let vectors = ClusteredVectors::new(SHAPE);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        vectors.append_blob(5, &mut a);
        vectors.append_blob(6, &mut b);
        assert_eq!(a.len(), 256);
        assert_ne!(a, b);
        b.clear();
        ClusteredVectors::new(SHAPE).append_blob(5, &mut b);
        assert_eq!(a, b);
        b.clear();
        ClusteredVectors::new(VectorShape { seed: 12, ..SHAPE }).append_blob(5, &mut b);
        assert_ne!(a, b);
    }

    #[test]
    fn neighbours_within_a_cluster_are_near_and_others_far() {
        let vectors = ClusteredVectors::new(SHAPE);
        let rows: Vec<Vec<f32>> = (0..400).map(|i| vectors.components(i).collect()).collect();
        let (mut near, mut far) = (0, 0);
        for row in &rows[1..] {
            match cosine(&rows[0], row) {
                c if c > 0.5 => near += 1,
                c if c < 0.45 => far += 1,
                _ => {}
            }
        }
        // One cluster in eight is the row's own; the gap between .45 and .5 is all but empty.
        assert!((25..=90).contains(&near), "{near} near");
        assert!(near + far >= 390, "{near} near, {far} far");
    }
}
