//! What creation fixes about a set.
//!
//! `Params::new` has Redis's NOQUANT and this crate's defaults; other choices are struct updates of it.

pub const MIN_M: u32 = 4;
pub const MAX_M: u32 = 4096;
pub const MAX_DIM: u32 = 65_536;

/// What is stored of a vector, and so what distances are computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantization {
    /// Float32 (NOQUANT): exact scores, exact vectors. Traversal may walk compact codes (`CodeWidth`).
    #[default]
    None,
    /// One signed byte a component of the normalised vector, and the largest component.
    Q8,
    /// The sign of each component. The distance is the share of signs that differ, times two.
    Bin,
}

/// How near two vectors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// 1 - cosine. Vectors are stored normalised, beside their length. Redis's only one.
    #[default]
    Cosine,
    /// The squared Euclidean distance. Vectors are stored as given.
    L2,
    /// The negated inner product: the larger the product, the nearer. Vectors are stored as given.
    Ip,
}

/// How many links a node has on level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer0 {
    /// M: half the link memory and less work a hop, at a lower recall for the same EF.
    OneM,
    /// 2M, as in the paper and in Redis.
    #[default]
    TwoM,
}

impl Layer0 {
    pub(crate) fn degree(self, m: usize) -> usize {
        match self {
            Layer0::OneM => m,
            Layer0::TwoM => 2 * m,
        }
    }
}

/// Bits a component of the codes that traversal walks on when rows are float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodeWidth {
    /// By dimension, and wider if a sample shows that recall asks for it.
    #[default]
    Auto,
    /// Traversal reads the float32 rows.
    Off,
    Bits2,
    Bits4,
    Bits8,
}

/// What creation fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Components of a vector, 1..=`MAX_DIM`.
    pub dim: u32,
    /// Links of a node per upper level, `MIN_M`..=`MAX_M`.
    pub m: u32,
    /// Seeds the levels of nodes and the hash of names.
    pub seed: u64,
    pub quantization: Quantization,
    pub metric: Metric,
    pub layer0: Layer0,
    /// Only for `Quantization::None`.
    pub codes: CodeWidth,
}

impl Params {
    /// Float32 rows under the cosine, and the defaults of all that Redis does not know.
    pub fn new(dim: u32, m: u32, seed: u64) -> Params {
        Params {
            dim,
            m,
            seed,
            quantization: Quantization::default(),
            metric: Metric::default(),
            layer0: Layer0::default(),
            codes: CodeWidth::default(),
        }
    }
}
