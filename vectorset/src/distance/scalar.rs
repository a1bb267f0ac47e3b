//! The plain kernel: the oracle of the others, and the one for processors without a kernel of their own.
//!
//! Sixteen running sums, one per float of a block, so that the compiler may use whatever vectors the target
//! has.

use super::{BLOCK_FLOATS, Block, Kernels};

pub(super) static KERNELS: Kernels = Kernels { name: "scalar", dot, dot4 };

fn dot(a: &[Block], b: &[Block]) -> f32 {
    let mut sums = [0.0_f32; BLOCK_FLOATS];
    for (a, b) in a.iter().zip(b) {
        for (sum, (x, y)) in sums.iter_mut().zip(a.0.iter().zip(b.0)) {
            *sum += x * y;
        }
    }
    sums.iter().sum()
}

fn dot4(query: &[Block], rows: [&[Block]; 4]) -> [f32; 4] {
    rows.map(|row| dot(query, row))
}
