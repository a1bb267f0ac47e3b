//! A fixed random rotation: signs and fast Hadamard transforms.
//!
//! After it the components of any vector look like noise of equal strength, so one grid of few levels serves
//! them all, whatever the data. A dimension that is no power of two is covered by two overlapping transforms,
//! over the first and over the last 2^k components, twice; every step is orthogonal, so dot products and
//! lengths stay. It depends on the dimension alone. Cost: 4 n log2 n additions. Source: Ailon and Chazelle,
//! "The fast Johnson-Lindenstrauss transform" (2009).

use crate::distance::Kernels;

const N_ROUNDS: usize = 2;

pub(crate) struct Rotation {
    /// For each transform in turn, where it begins, and for each of its components +-1 over the square root
    /// of its length.
    transforms: Vec<(usize, Vec<f32>)>,
}

impl Rotation {
    pub(crate) fn new(dim: usize) -> Rotation {
        let window = 1 << dim.ilog2();
        let scale = (window as f32).sqrt().recip();
        let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ dim as u64;
        let mut sign = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if state >> 63 == 0 { scale } else { -scale }
        };
        let starts = if window == dim { vec![0; N_ROUNDS] } else { [0, dim - window].repeat(N_ROUNDS) };
        let transforms = starts.into_iter().map(|start| (start, (0..window).map(&mut sign).collect()));
        Rotation { transforms: transforms.collect() }
    }

    /// Rotates the components in place.
    pub(crate) fn apply(&self, x: &mut [f32], kernels: &Kernels) {
        for (start, signs) in &self.transforms {
            let window = &mut x[*start..start + signs.len()];
            kernels.hadamard(window, signs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::kernels;

    #[test]
    fn lengths_and_dot_products_stay_and_no_component_stands_out() {
        for dim in [1, 2, 3, 17, 64, 384, 1000, 1536, 65_536] {
            let rotation = Rotation::new(dim);
            let mut a = vec![0.0; dim];
            let mut b: Vec<f32> = (0..dim).map(|i| ((i * 7 % 13) as f32 - 6.0) / 6.0).collect();
            a[dim / 2] = 1.0;
            let (dot, length) = (b[dim / 2], b.iter().map(|x| x * x).sum::<f32>());
            rotation.apply(&mut a, kernels());
            rotation.apply(&mut b, kernels());
            let after: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((after - dot).abs() < 1e-3, "dim {dim}: {after} was {dot}");
            let after: f32 = b.iter().map(|x| x * x).sum();
            assert!((after - length).abs() <= 1e-3 * length, "dim {dim}: {after} was {length}");
            if dim >= 64 {
                let largest = a.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
                assert!(largest < 8.0 / (dim as f32).sqrt(), "dim {dim}: {largest}");
            }
        }
    }
}
