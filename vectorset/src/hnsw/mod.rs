//! The graph algorithms, by the paper's names.
//!
//! - `search`: SEARCH-LAYER and the descent (Algorithms 2 and 5)
//! - `neighbors`: SELECT-NEIGHBORS-HEURISTIC and what happens at a full node (Algorithm 4)
//! - `insert`: INSERT in two halves, plan and commit (Algorithm 1)
//! - `entries`: where searches begin (the paper has one entry point)
//! - `delete`: removal with local repair (not in the paper)
//!
//! Departures from the paper: 1. links are always mutual; 2. a full node gives up one link at a time, and
//! only one whose other end stays connected to it through a common neighbor; 3. a new node is linked on level
//! 0 first and then upwards, so that a concurrent search that meets it can always go on. Levels are drawn
//! with the paper's mL = 1/ln M (Redis: a quarter of the nodes on each next level).

mod block;
mod delete;
mod entries;
mod insert;
mod neighbors;
mod search;

pub(crate) use block::Block;
pub(crate) use entries::{Entries, MAX_ENTRIES};
pub(crate) use insert::Plan;
pub(crate) use neighbors::Selection;
pub(crate) use search::MAX_TIES;
pub use search::Progress;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::codes::{CodeProbe, Codes, Form};
use crate::distance::{self, BLOCK_FLOATS, Kernels, kernels};
use crate::error::Error;
use crate::graph::{Graph, NodeId};
use crate::ladder::{Ladder, Rung, forms_of};
use crate::params::{Metric, Params, Quantization};
use crate::pool::Candidate;
use crate::slab::Geometry;
use crate::vectors::{Rows, floats, normalize};

/// The searchable part of a set: links, rows and codes, without names. At least one of rows and codes is
/// there; traversal walks on codes if there are any, and float32 rows then give the exact distances.
pub(crate) struct Index {
    pub(crate) graph: Graph,
    rows: Option<Rows>,
    pub(crate) codes: Ladder,
    pub(crate) geometry: Geometry,
    pub(crate) params: Params,
    kernels: &'static Kernels,
    /// Bits of the largest squared length of a vector ever stored; kept under inner products only.
    largest_square: AtomicU32,
    /// All ids ever given are below.
    bound: AtomicU32,
}

/// A vector that distances are measured from. It fits the set that prepared it and no other.
#[derive(Default)]
pub(crate) struct Probe {
    /// As a row; only of the last vector that was prepared.
    floats: Vec<distance::Block>,
    code: CodeProbe,
    /// What `code` was prepared for.
    rung: Rung,
    /// From what inner products are taken to make a distance of them.
    offset: f32,
}

impl Probe {
    /// The codes that it measures with.
    pub(crate) fn rung(&self) -> Rung {
        self.rung
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.floats.capacity() * size_of::<distance::Block>() + self.code.capacity_bytes()
    }
}

impl Index {
    pub(crate) fn new(params: Params) -> Index {
        let (dim, m) = (params.dim as usize, params.m as usize);
        let level0 = params.layer0.degree(m);
        let has_rows = params.quantization == Quantization::None;
        let row_stride = if has_rows { Rows::stride(dim) } else { 0 };
        let stride = |form: &Form| Codes::stride(*form, dim, params.metric);
        let code_stride = forms_of(params).iter().map(stride).max().unwrap_or(0);
        let widest = row_stride.max(code_stride).max(Graph::level0_stride(level0));
        let geometry = Geometry::for_stride(widest);
        Index {
            graph: Graph::new(m, level0, geometry),
            rows: has_rows.then(|| Rows::new(dim, geometry)),
            codes: Ladder::new(params, geometry),
            geometry,
            params,
            kernels: kernels(),
            largest_square: AtomicU32::new(0),
            bound: AtomicU32::new(0),
        }
    }

    pub(crate) fn bound(&self) -> u32 {
        self.bound.load(Ordering::Acquire)
    }

    /// Writer only: makes room for an id. Returns the bytes allocated.
    pub(crate) fn ensure(&self, id: NodeId) -> usize {
        self.bound.fetch_max(id.0 + 1, Ordering::AcqRel);
        self.graph.ensure(id) + self.rows.as_ref().map_or(0, |rows| rows.ensure(id)) + self.codes.ensure(id)
    }

    /// Writer only: stores the vector last prepared in `probe` for an id that no reader knows.
    pub(crate) fn write(&self, id: NodeId, probe: &Probe) {
        if self.params.metric == Metric::Ip {
            // Positive floats are ordered as their bits are.
            let square = self.kernels.dot.one(&probe.floats, &probe.floats);
            self.largest_square.fetch_max(square.to_bits(), Ordering::Relaxed);
        }
        if let Some(rows) = &self.rows {
            rows.write(id, &probe.floats);
        }
        let vector = match &self.rows {
            Some(_) => floats(&probe.floats, self.params.dim as usize),
            None => &[],
        };
        self.codes.write(id, vector, probe.rung, &probe.code, self.kernels);
    }

    /// Writer only: stores the code of a member for a rung that is not walked yet. Returns the bytes allocated.
    pub(crate) fn fill(&self, id: NodeId, rung: Rung, probe: &mut Probe) -> usize {
        let Some(rows) = &self.rows else { return 0 };
        let vector = floats(rows.row(id), self.params.dim as usize);
        self.codes.fill(id, vector, rung, &mut probe.code, self.kernels)
    }

    /// Writer only: gives the memory of an unused chunk back. Returns its bytes.
    ///
    /// # Safety
    /// As `Graph::release`.
    pub(crate) unsafe fn release(&self, chunk: usize) -> usize {
        // SAFETY: passed on: rows and codes of the chunk are as unused as its nodes.
        unsafe {
            self.graph.release(chunk)
                + self.rows.as_ref().map_or(0, |rows| rows.release(chunk))
                + self.codes.release(chunk)
        }
    }

    // ---- Probes.

    /// Makes `probe` measure from a vector as the client gave it. Returns the factor that a stored vector is
    /// multiplied by to get it back.
    pub(crate) fn prepare(&self, vector: &[f32], probe: &mut Probe) -> Result<f64, Error> {
        let l2 = normalize(vector, self.params.metric, &mut probe.floats, self.kernels)?;
        self.prepare_code(probe);
        Ok(l2)
    }

    fn prepare_code(&self, probe: &mut Probe) {
        self.prepare_code_for(self.codes.walked(), probe);
    }

    fn prepare_code_for(&self, rung: Rung, probe: &mut Probe) {
        probe.rung = rung;
        (probe.offset, probe.code.offset) = (0.0, 0.0);
        if let Some(codes) = self.codes.at(probe.rung) {
            codes.prepare(floats(&probe.floats, self.params.dim as usize), &mut probe.code, self.kernels);
        }
    }

    /// Makes `probe` hold a vector in Redis's stored form (`blob`), to be written down as it is. `None` if the
    /// blob is not of this set's shape or not finite.
    pub(crate) fn prepare_blob(&self, blob: &[u8], range: f32, probe: &mut Probe) -> Option<()> {
        let dim = self.params.dim as usize;
        let Some(codes) = self.codes.only().filter(|_| self.rows.is_none()) else {
            let floats = blob.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]));
            if blob.len() != dim * 4 || floats.clone().any(|x| !x.is_finite()) {
                return None;
            }
            probe.floats.clear();
            probe.floats.resize(dim.div_ceil(BLOCK_FLOATS), distance::Block([0.0; BLOCK_FLOATS]));
            probe.floats.iter_mut().flat_map(|block| &mut block.0).zip(floats).for_each(|(to, x)| *to = x);
            self.prepare_code(probe);
            return Some(());
        };
        codes.prepare_blob(blob, range, &mut probe.code)
    }

    /// Makes `probe` measure from a stored float32 row, as exactly as `prepare` does with the same vector.
    pub(crate) fn prepare_stored(&self, id: NodeId, probe: &mut Probe) -> Result<(), Error> {
        match &self.rows {
            Some(rows) => {
                probe.floats.clear();
                probe.floats.extend_from_slice(rows.row(id));
                self.prepare_code(probe);
                Ok(())
            }
            None => self.prepare(&self.stored(id), probe).map(drop),
        }
    }

    /// Makes `probe`, which is another set's or was prepared for other codes, the same as `other`, but for the
    /// codes that walks read now.
    pub(crate) fn prepare_again(&self, other: &Probe, probe: &mut Probe) {
        probe.floats.clear();
        probe.floats.extend_from_slice(&other.floats);
        self.prepare_code(probe);
    }

    /// As `prepare_stored`, with the codes of a rung that need not be walked yet. The set has rows.
    pub(crate) fn prepare_stored_for(&self, id: NodeId, rung: Rung, probe: &mut Probe) {
        let rows = self.rows.as_ref().expect("only sets with rows have several rungs");
        probe.floats.clear();
        probe.floats.extend_from_slice(rows.row(id));
        self.prepare_code_for(rung, probe);
    }

    /// Makes `probe` measure between stored vectors, for the structure of the graph: cheap, and with the
    /// precision of the codes on both sides.
    pub(crate) fn probe_stored(&self, id: NodeId, rung: Rung, probe: &mut Probe) {
        probe.rung = rung;
        match (self.codes.at(rung), &self.rows) {
            (Some(codes), _) => codes.probe_stored(id, &mut probe.code, self.kernels),
            (None, Some(rows)) => {
                probe.floats.clear();
                probe.floats.extend_from_slice(rows.row(id));
            }
            (None, None) => unreachable!("a set has rows or codes"),
        }
        self.measure_structure(probe);
    }

    /// Makes a prepared probe measure what the graph is built by: inner products taken from the square of the
    /// largest length, so that no distance is negative and factors mean something.
    pub(crate) fn measure_structure(&self, probe: &mut Probe) {
        if self.params.metric == Metric::Ip {
            let largest = f32::from_bits(self.largest_square.load(Ordering::Relaxed));
            (probe.offset, probe.code.offset) = (largest, largest);
        }
    }

    // ---- Distances.

    #[inline(always)]
    pub(crate) fn distance(&self, probe: &Probe, id: NodeId) -> f32 {
        match self.codes.at(probe.rung) {
            Some(codes) => codes.distance(&probe.code, id, self.kernels),
            None => self.exact_distance(probe, id),
        }
    }

    /// Distances to up to four nodes at a time; `each` gets them in order.
    #[inline(always)]
    pub(crate) fn distances(&self, probe: &Probe, four: &[NodeId], mut each: impl FnMut(NodeId, f32)) {
        if let &[a, b, c, d] = four {
            let distances = match (self.codes.at(probe.rung), &self.rows) {
                (Some(codes), _) => codes.distance4(&probe.code, [a, b, c, d], self.kernels),
                (None, Some(rows)) => self.row_distance4(rows, probe, [a, b, c, d]),
                (None, None) => unreachable!("a set has rows or codes"),
            };
            four.iter().zip(distances).for_each(|(&id, distance)| each(id, distance));
        } else if let (&[first, .., last], Some(codes)) = (four, self.codes.at(probe.rung)) {
            // The last stands in for those that are not there.
            let padded = [first, four[1], *four.get(2).unwrap_or(&last), last];
            let distances = codes.distance4(&probe.code, padded, self.kernels);
            four.iter().zip(distances).for_each(|(&id, distance)| each(id, distance));
        } else {
            four.iter().for_each(|&id| each(id, self.distance(probe, id)));
        }
    }

    /// How many candidates are measured exactly for a hit.
    pub(crate) fn rescored_per_hit(&self, probe: &Probe) -> usize {
        match self.codes.at(probe.rung).map(Codes::form) {
            Some(Form::Bits2) => 3,
            Some(Form::Bits4 | Form::Bits8) => 2,
            Some(Form::Q8 | Form::Signs) | None => 1,
        }
    }

    /// BIN tells few distances apart, so that many candidates share that of the last hit: puts those first that the query's own
    /// components find nearest. `found` is sorted by distance, and stays so; `probe` was prepared from a vector.
    pub(crate) fn settle_ties(&self, probe: &Probe, found: &mut [Candidate], count: usize) {
        let Some(codes) = self.codes.only().filter(|codes| codes.form() == Form::Signs) else { return };
        let Some(last) = count.checked_sub(1).and_then(|last| found.get(last)).map(|last| last.distance)
        else {
            return;
        };
        let from = found.partition_point(|candidate| candidate.distance < last);
        let upto = found.partition_point(|candidate| candidate.distance <= last);
        let upto = upto.min(from + MAX_SETTLED_FLOATS / (self.params.dim as usize).max(1));
        if upto <= count {
            return;
        }
        let tied = &mut found[from..upto];
        let mut order: Vec<(f32, Candidate)> =
            tied.iter().map(|tied| (codes.signed_product(&probe.code, tied.id), *tied)).collect();
        order.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        tied.iter_mut().zip(order).for_each(|(place, (_, candidate))| *place = candidate);
    }

    /// The standard deviation of distances that are estimated by codes.
    pub(crate) fn estimate_deviation(&self, probe: &Probe) -> f32 {
        self.codes.at(probe.rung).map_or(0.0, |codes| codes.deviation(&probe.code))
    }

    /// A radius by the estimates of codes that leaves out hardly anything within `radius`.
    pub(crate) fn widened(&self, probe: &Probe, radius: f32) -> f32 {
        match self.codes.at(probe.rung).map(Codes::form) {
            Some(Form::Bits2) => radius * 1.15 + 0.02,
            Some(Form::Bits4) => radius * 1.05 + 0.01,
            Some(Form::Bits8) => radius * 1.01 + 0.001,
            Some(Form::Q8 | Form::Signs) | None => radius,
        }
    }

    /// Whether distances of a walk are estimates, to be told exactly from the rows.
    pub(crate) fn is_coded(&self, probe: &Probe) -> bool {
        self.rows.is_some() && self.codes.at(probe.rung).is_some()
    }

    /// The distance that scores are told from. `probe` was prepared from a vector.
    pub(crate) fn exact_distance(&self, probe: &Probe, id: NodeId) -> f32 {
        match (&self.rows, self.codes.only()) {
            (Some(rows), _) => self.row_distance(probe.offset, &probe.floats, rows.row(id)),
            (None, Some(codes)) => codes.distance(&probe.code, id, self.kernels),
            (None, None) => unreachable!("a set has rows or codes"),
        }
    }

    /// Exact distances to up to four nodes; `each` gets them in order.
    pub(crate) fn exact_distances(&self, probe: &Probe, four: &[NodeId], mut each: impl FnMut(NodeId, f32)) {
        match (&self.rows, four) {
            (Some(rows), &[a, b, c, d]) => {
                let distances = self.row_distance4(rows, probe, [a, b, c, d]);
                four.iter().zip(distances).for_each(|(&id, distance)| each(id, distance));
            }
            (Some(_), _) => four.iter().for_each(|&id| each(id, self.exact_distance(probe, id))),
            (None, _) => self.distances(probe, four, each),
        }
    }

    /// The distance between two elements, as their scores tell it.
    pub(crate) fn distance_between(&self, a: NodeId, b: NodeId) -> f32 {
        match &self.rows {
            Some(rows) => self.row_distance(0.0, rows.row(a), rows.row(b)),
            None => {
                let mut probe = Probe::default();
                self.probe_stored(a, self.codes.walked(), &mut probe);
                probe.code.offset = 0.0;
                self.distance(&probe, b)
            }
        }
    }

    fn row_distance(&self, offset: f32, a: &[distance::Block], b: &[distance::Block]) -> f32 {
        match self.params.metric {
            Metric::Cosine => 1.0 - self.kernels.dot.one(a, b),
            Metric::L2 => self.kernels.squares.one(a, b),
            Metric::Ip => offset - self.kernels.dot.one(a, b),
        }
    }

    #[inline(always)]
    fn row_distance4(&self, rows: &Rows, probe: &Probe, ids: [NodeId; 4]) -> [f32; 4] {
        let four = ids.map(|id| rows.row(id));
        match self.params.metric {
            Metric::Cosine => self.kernels.dot.four(&probe.floats, four).map(|dot| 1.0 - dot),
            Metric::L2 => self.kernels.squares.four(&probe.floats, four),
            Metric::Ip => self.kernels.dot.four(&probe.floats, four).map(|dot| probe.offset - dot),
        }
    }

    /// Asks the cache for what `distance` reads of a node.
    #[inline(always)]
    pub(crate) fn prefetch(&self, probe: &Probe, id: NodeId) {
        match (self.codes.at(probe.rung), &self.rows) {
            (Some(codes), _) => codes.prefetch(id),
            (None, Some(rows)) => rows.prefetch(id, LINES_AHEAD),
            (None, None) => {}
        }
    }

    /// Asks the cache for the beginning of what `exact_distance` reads.
    pub(crate) fn prefetch_exact(&self, id: NodeId) {
        if let Some(rows) = &self.rows {
            rows.prefetch(id, LINES_AHEAD);
        }
    }

    // ---- What is stored.

    /// The stored vector: normalised under the cosine, decoded under Q8 and BIN.
    pub(crate) fn stored(&self, id: NodeId) -> Vec<f32> {
        match (&self.rows, self.codes.only()) {
            (Some(rows), _) => floats(rows.row(id), self.params.dim as usize).to_vec(),
            (None, Some(codes)) => codes.decode(id),
            (None, None) => unreachable!("a set has rows or codes"),
        }
    }

    /// The stored bytes in Redis's form, and the range of a Q8 row.
    pub(crate) fn blob(&self, id: NodeId) -> (Vec<u8>, Option<f32>) {
        match (&self.rows, self.codes.only()) {
            (Some(rows), _) => {
                let row = floats(rows.row(id), self.params.dim as usize);
                (row.iter().flat_map(|x| x.to_le_bytes()).collect(), None)
            }
            (None, Some(codes)) => (codes.blob(id), (codes.form() == Form::Q8).then(|| codes.range(id))),
            (None, None) => unreachable!("a set has rows or codes"),
        }
    }
}

/// Lines of a float32 row asked for ahead; the processor's own prefetcher follows from there. Measured at 384
/// dimensions (24 lines): 0 lines 162 us a search, 4 to 8 lines 148, 24 lines 160 (avx512f; the same shape
/// with avx2).
const LINES_AHEAD: usize = 6;

/// Components that are looked at to settle ties: some tens of microseconds.
const MAX_SETTLED_FLOATS: usize = 1 << 17;
