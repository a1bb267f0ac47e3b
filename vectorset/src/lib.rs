//! The value behind the V* commands: an HNSW graph over float32 rows that one writer changes while any number
//! of readers search it on any thread, without a lock and without waiting.
//!
//! ```text
//!   Writer (one, the owner shard)            readers (every worker)
//!   add, remove, set_attribute, collect      participant.pin() -> Guard -> search, vector, links, ...
//!   commit                                <- begin_insertion, step: what `add` costs, but for microseconds
//!        |                                                |
//!        v   Release stores: links, pointers              v   Acquire loads
//!   +---------------------------- VectorSet (Arc) -----------------------------+
//!   |  names: name -> NodeId     members: dense list of ids     entry point    |
//!   |  per NodeId:   Node | level-0 links (2M x u32) | row (f32) | code         |
//!   +--------------------------------------------------------------------------+
//!        |  what was unlinked waits in limbo until every reader's epoch has passed
//!        v
//!   epoch::Domain (one per process, shared by all sets)
//! ```
//!
//! Invariants, and where they are kept:
//! 1. Links are mutual: if a names b, b names a on the same level (`hnsw`, tested by `check`). So a removal
//!    finds every link to the removed node, and no link to a recycled id can exist.
//! 2. Level 0 stays connected: an insert drops a link only if its two ends keep a common neighbor, a removal
//!    joins the former neighbors again (if all of them are full and none can spare a link, it may fail; no
//!    test has met that).
//! 3. A row, a name and the links of a node are not written over before every reader that could know its id
//!    is gone (`epoch`). An update of a vector is a new id.
//!
//! The crate knows no RESP, no key, no thread pool and no clock; randomness comes from `Params::seed`.
//! Source: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
//! Navigable Small World graphs" (2016), and the Redis 8.2 vector set pages.

mod admission;
pub mod check;
mod codes;
mod distance;
pub mod epoch;
mod error;
mod exact;
mod filter;
mod graph;
mod hnsw;
mod insertion;
mod ladder;
mod links;
mod members;
mod name;
mod names;
mod params;
mod pool;
mod remains;
mod rotation;
mod scratch;
mod search;
mod set;
mod shared;
mod slab;
mod sync;
mod transfer;
mod vectors;
mod width;
mod writer;

pub use admission::{Admit, All, Hops};
pub use distance::kernel_name;
pub use error::Error;
pub use filter::{Attribute, Filter, FilterError, FilteredSearch};
pub use graph::NodeId;
pub use hnsw::Progress;
pub use insertion::{Insertion, Planned};
pub use params::{CodeWidth, Layer0, MAX_DIM, MAX_M, MIN_M, Metric, Params, Quantization};
pub use remains::Remains;
pub use scratch::SearchScratch;
pub use search::{Search, SearchOptions, Way};
pub use set::{Hit, Hits, Query, RawVector, VectorSet};
pub use transfer::{LoadedNode, Loading, NodeView, Unsound};
pub use width::CheckedWidth;
pub use writer::{Added, Writer};
