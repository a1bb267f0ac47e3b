//! Vector sets, as Redis's vector set module writes its type (encoding version 0).
//!
//! ```text
//!   7 | module id | uint dim, count, quantization | M << 8, flags
//!     | [flag 1: uint input_dim, string matrix (f32 LE, row after row)]
//!     | per node: string name, [flag 2: string attribute, "" for none], string row, uint n_params, n_params x uint | 0
//!   params: id, 1 << 24 | level, per level from 0: n_links, max_links, ids ..., worst distance << 32 | its index;
//!           range << 32 | length (two f32)
//! ```
//!
//! Each value of the body has a tag before it: 2 for an uint, 5 for a string. Links are mutual and within M (2M on level
//! 0), so Redis takes them. What comes in is checked as later versions of Redis check it, and more: the set is refused
//! if an id or name comes twice, an id is 0, a level is above 16, links are more than their maximum or that is above 3M,
//! or a link is unknown, repeated, to the node itself, to a lower level or not returned.
//!
//! A set with a METRIC that Redis does not have is written with an encoding version that Redis refuses, and the metric
//! after the flags.
//!
//! Departures from Redis: 1. a row that is not finite, which Redis stores, becomes a zero vector, which has the same
//! score with everything. 2. A payload of more than 512 MB is not made: no client could send it back.

mod reading;
mod writing;

use skerry_vectorset::Quantization;

pub(super) use reading::{Outcome, Reading};
pub(super) use writing::Writing;

/// "vectorset", six bits a letter, and the encoding version.
const MODULE_ID: u64 = 0xbde7_2da2_bb1e_b400;
/// The low bits of a module's id are the version.
const VERSION_MASK: u64 = 0x3ff;

const TAG_END: u64 = 0;
const TAG_UINT: u64 = 2;
const TAG_STRING: u64 = 5;

const FLAG_PROJECTION: u64 = 1;
const FLAG_ATTRIBUTES: u64 = 2;

/// Skerry's own encoding version: the flags are followed by the metric.
const VERSION_WITH_METRIC: u64 = 0x3ff;
const METRIC_L2: u64 = 1;
const METRIC_IP: u64 = 2;

const NOQUANT: u64 = 0;
const Q8: u64 = 1;
const BIN: u64 = 2;
const NODE_VERSION: u64 = 1 << 24;
/// What older versions mean by M 0.
const DEFAULT_M: u64 = 16;
const MAX_LEVEL: u64 = 16;
/// Parameters of a node beside its links: id, level, length; and per level three.
const PARAMS_PER_NODE: usize = 3;
const PARAMS_PER_LEVEL: usize = 3;

/// Bytes of a vector as it is stored.
fn blob_bytes(quantization: Quantization, dim: u32) -> usize {
    let dim = dim as usize;
    match quantization {
        Quantization::None => 4 * dim,
        Quantization::Q8 => dim,
        Quantization::Bin => dim.div_ceil(64) * 8,
    }
}
