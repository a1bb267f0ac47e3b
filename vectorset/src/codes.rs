//! Compact codes of the vectors: what traversal walks on, and all that Q8 and BIN sets store.
//!
//! ```text
//!   head: [ scale f32 | squared length f32, unless the metric is the cosine ], not for Signs
//!   record: whole 32-byte blocks
//!
//!   form    component x of the vector is about     built from
//!   Bits2   (code - 1.5) * scale                   the rotated vector; scale makes <code, vector> exact
//!   Bits4   (code - 7.5) * scale                   likewise
//!   Bits8   code * scale                           likewise
//!   Q8      code * scale, scale = range / 127      the vector; range is its largest component (Redis's Q8)
//!   Signs   +-1, only the sign kept                the vector (Redis's BIN)
//! ```
//!
//! Records lie without gaps, and heads apart from them, so that records fill whole cache lines: 3 instead of 4 at
//! 384 dimensions and 4 bits, one instead of two for Signs.
//! The queries of the rotated forms have 8 bits. The grid of a rotated form is uniform, its step the best one
//! for a normal distribution, which the rotation makes of any vector. Source of the scaling that makes the
//! products unbiased: Gao and Long, "RaBitQ" (2024). It must never know the graph.

use std::sync::Arc;
use std::{iter, slice};

use crate::distance::{CODE_BLOCK_BYTES, Codes as CodeKernels, Kernels, Levels, MANY};
use crate::graph::NodeId;
use crate::params::Metric;
use crate::rotation::Rotation;
use crate::slab::{Geometry, Slab};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Bits2,
    Bits4,
    Bits8,
    Q8,
    Signs,
}

impl Form {
    /// Components in a block of codes.
    fn per_block(self) -> usize {
        match self {
            Form::Bits2 => CODE_BLOCK_BYTES * 4,
            Form::Bits4 => CODE_BLOCK_BYTES * 2,
            Form::Bits8 | Form::Q8 => CODE_BLOCK_BYTES,
            Form::Signs => CODE_BLOCK_BYTES * 8,
        }
    }

    /// What is taken off a code to make it symmetric.
    fn midpoint(self) -> f32 {
        match self {
            Form::Bits2 => 1.5,
            Form::Bits4 => 7.5,
            Form::Bits8 | Form::Q8 | Form::Signs => 0.0,
        }
    }

    /// The step of the uniform grid of least squared error for a normal distribution of deviation 1 (Max,
    /// "Quantizing for minimum distortion", 1960).
    fn step(self) -> f32 {
        match self {
            Form::Bits2 => 0.9957,
            Form::Bits4 => 0.3352,
            Form::Bits8 | Form::Q8 | Form::Signs => 0.0,
        }
    }

    fn is_rotated(self) -> bool {
        match self {
            Form::Bits2 | Form::Bits4 | Form::Bits8 => true,
            Form::Q8 | Form::Signs => false,
        }
    }
}

/// What a walk measures distances with: a vector in the form of the codes.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeProbe {
    levels: Levels,
    /// A product of levels and codes, less `bias`, times both scales, is the inner product.
    scale: f32,
    bias: f32,
    squared_length: f32,
    /// From what inner products are taken to make a distance of them.
    pub(crate) offset: f32,
    /// The rotated vector, and its code before it is packed.
    rotated: Vec<f32>,
}

impl CodeProbe {
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.levels.capacity_bytes() + self.rotated.capacity() * size_of::<f32>()
    }
}

/// Where the code of a node lies: found once, to be asked for and then measured. It is valid as long as the id.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    record: *const u8,
    head: *const f32,
}

// SAFETY: addresses only; who reads there vouches for the ids they were made from, on whichever thread.
unsafe impl Send for Place {}

pub(crate) struct Codes {
    records: Slab,
    heads: Option<Slab>,
    form: Form,
    dim: usize,
    metric: Metric,
    n_bytes: usize,
    /// One for all forms of a set.
    rotation: Option<Arc<Rotation>>,
}

impl Codes {
    fn head_bytes(form: Form, metric: Metric) -> usize {
        match metric {
            _ if form == Form::Signs => 0,
            Metric::Cosine => size_of::<f32>(),
            Metric::L2 | Metric::Ip => 2 * size_of::<f32>(),
        }
    }

    pub(crate) fn stride(form: Form, dim: usize, metric: Metric) -> usize {
        Codes::head_bytes(form, metric) + Codes::record_bytes(form, dim)
    }

    fn record_bytes(form: Form, dim: usize) -> usize {
        dim.div_ceil(form.per_block()) * CODE_BLOCK_BYTES
    }

    pub(crate) fn new(form: Form, dim: usize, metric: Metric, geometry: Geometry) -> Codes {
        let rotation = form.is_rotated().then(|| Arc::new(Rotation::new(dim)));
        Codes::with_rotation(form, dim, metric, geometry, rotation)
    }

    fn with_rotation(
        form: Form,
        dim: usize,
        metric: Metric,
        geometry: Geometry,
        rotation: Option<Arc<Rotation>>,
    ) -> Codes {
        let head_bytes = Codes::head_bytes(form, metric);
        let n_bytes = Codes::record_bytes(form, dim);
        Codes {
            records: Slab::new(geometry, n_bytes),
            heads: (head_bytes > 0).then(|| Slab::new(geometry, head_bytes)),
            form,
            dim,
            metric,
            n_bytes,
            rotation,
        }
    }

    /// Empty codes of another rotated form for the same vectors.
    pub(crate) fn of_form(&self, form: Form, geometry: Geometry) -> Codes {
        Codes::with_rotation(form, self.dim, self.metric, geometry, self.rotation.clone())
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    fn slabs(&self) -> impl Iterator<Item = &Slab> {
        iter::once(&self.records).chain(&self.heads)
    }

    /// Makes room for the code of an id that no reader knows; writer only. Returns the bytes allocated.
    pub(crate) fn ensure(&self, id: NodeId) -> usize {
        self.slabs().map(|slab| slab.ensure(id.0)).sum()
    }

    /// Writer only.
    ///
    /// # Safety
    /// As `Slab::release`.
    pub(crate) unsafe fn release(&self, chunk: usize) -> usize {
        // SAFETY: passed on.
        self.slabs().map(|slab| unsafe { slab.release(chunk) }).sum()
    }

    // ---- Records.

    #[inline(always)]
    fn bytes(&self, id: NodeId) -> &[u8] {
        // SAFETY: `write` filled the record before the id was published, and it is written again only after
        // the epochs of all readers that could know the id passed.
        unsafe { slice::from_raw_parts(self.records.record(id.0), self.n_bytes) }
    }

    #[inline(always)]
    fn scale(&self, id: NodeId) -> f32 {
        match &self.heads {
            // SAFETY: as in `bytes`; heads are whole floats.
            Some(heads) => unsafe { *heads.record(id.0).cast::<f32>() },
            None => 1.0,
        }
    }

    #[inline(always)]
    fn squared_length(&self, id: NodeId) -> f32 {
        match (self.metric, &self.heads) {
            (Metric::Cosine, _) | (_, None) => 1.0,
            // SAFETY: as in `scale`; under these metrics a head has a second float.
            (Metric::L2 | Metric::Ip, Some(heads)) => unsafe { *heads.record(id.0).cast::<f32>().add(1) },
        }
    }

    /// Asks the cache for a record.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: NodeId) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the id was published, so its chunk is present; a prefetch reads nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let record = self.records.record(id.0).cast_const().cast::<i8>();
            for line in (0..self.n_bytes.min(MAX_BYTES_AHEAD)).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(record.add(line));
            }
            _mm_prefetch::<_MM_HINT_T0>(record.add(self.n_bytes - 1));
            if let Some(heads) = &self.heads {
                _mm_prefetch::<_MM_HINT_T0>(heads.record(id.0).cast_const().cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = id;
    }

    /// Finds the code of an id, and asks the cache for it.
    #[inline(always)]
    pub(crate) fn approach(&self, id: NodeId) -> Place {
        // SAFETY: the id was published, so its chunk is present; heads and records have one geometry.
        unsafe {
            let at = self.records.geometry().locate(id.0);
            let record = self.records.record_at(at).cast_const();
            let head =
                self.heads.as_ref().map_or(&raw const ONE, |heads| heads.record_at(at).cast_const().cast());
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                for line in (0..self.n_bytes.min(MAX_BYTES_AHEAD)).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T0>(record.add(line).cast());
                }
                _mm_prefetch::<_MM_HINT_T0>(head.cast());
            }
            Place { record, head }
        }
    }

    /// Distances to nodes that were approached.
    #[inline(always)]
    pub(crate) fn distances_at(
        &self,
        probe: &CodeProbe,
        places: &[Place],
        kernels: &Kernels,
        distances: &mut [f32],
    ) {
        let mut products = [0; MANY];
        for (places, distances) in places.chunks(MANY).zip(distances.chunks_mut(MANY)) {
            let mut rows = [places[0].record; MANY];
            rows.iter_mut().zip(places).for_each(|(row, place)| *row = place.record);
            let n = places.len();
            // SAFETY: all records of these codes have `n_bytes` bytes.
            unsafe {
                self.kernel(kernels).many(
                    probe.levels.as_slice(),
                    &rows[..n],
                    self.n_bytes,
                    &mut products[..n],
                )
            };
            for ((distance, place), &product) in distances.iter_mut().zip(places).zip(&products) {
                *distance = self.finish_at(probe, *place, product);
            }
        }
    }

    #[inline(always)]
    fn finish_at(&self, probe: &CodeProbe, place: Place, product: i32) -> f32 {
        if self.form == Form::Signs {
            return product as f32 * 2.0 / self.dim as f32;
        }
        // SAFETY: heads are whole floats, two of them where the metric is not the cosine.
        let (scale, squared_length) = unsafe {
            let second = if self.metric == Metric::Cosine { 1.0 } else { *place.head.add(1) };
            (*place.head, second)
        };
        self.distance_of(probe, product, scale, squared_length)
    }

    #[inline(always)]
    fn distance_of(&self, probe: &CodeProbe, product: i32, scale: f32, squared_length: f32) -> f32 {
        let inner = (product as f32 - probe.bias) * (probe.scale * scale);
        match self.metric {
            Metric::Cosine if self.form == Form::Q8 => (1.0 - inner).clamp(0.0, 2.0),
            Metric::Cosine => 1.0 - inner,
            Metric::L2 => (probe.squared_length + squared_length - 2.0 * inner).max(0.0),
            Metric::Ip => probe.offset - inner,
        }
    }

    /// A copy of some records, side by side: that of `ids[k]` is the one of id `k`. Distances may be measured
    /// with it, nothing else. Returns the bytes allocated, too. The caller's guard protects the ids.
    pub(crate) fn gather(&self, ids: &[NodeId]) -> (Codes, usize) {
        let geometry = Geometry::for_stride(Codes::stride(self.form, self.dim, self.metric));
        let head_bytes = Codes::head_bytes(self.form, self.metric);
        let copy = Codes {
            records: Slab::new(geometry, self.n_bytes),
            heads: self.heads.as_ref().map(|_| Slab::new(geometry, head_bytes)),
            rotation: None,
            ..*self
        };
        let mut bytes = 0;
        for ((from, to), stride) in self.slabs().zip(copy.slabs()).zip([self.n_bytes, head_bytes]) {
            for (place, id) in ids.iter().enumerate() {
                bytes += to.ensure(place as u32);
                // SAFETY: the record of a published id is filled and does not change; the copy's was just made
                // present, and nobody else knows the copy.
                unsafe { to.record(place as u32).copy_from_nonoverlapping(from.record(id.0), stride) };
            }
        }
        (copy, bytes)
    }

    // ---- Probes.

    /// Brings a vector, as the set stores it (normalised under the cosine), into the form of a query.
    pub(crate) fn prepare(&self, vector: &[f32], probe: &mut CodeProbe, kernels: &Kernels) {
        probe.rotated.clear();
        probe.rotated.extend_from_slice(&vector[..self.dim]);
        if self.metric != Metric::Cosine {
            probe.squared_length = probe.rotated.iter().map(|x| x * x).sum();
        }
        if let Some(rotation) = &self.rotation {
            rotation.apply(&mut probe.rotated, kernels);
        }
        let CodeProbe { levels, rotated, scale, bias, .. } = probe;
        if self.form == Form::Signs {
            levels.reset(self.n_bytes);
            (*scale, *bias) = (1.0, 0.0);
            for (level, part) in levels.as_mut_slice().iter_mut().zip(rotated.chunks(8)) {
                *level = part.iter().rev().fold(0_u8, |bits, &x| bits << 1 | u8::from(x > 0.0)) as i8;
            }
            return;
        }
        levels.reset(self.n_bytes / CODE_BLOCK_BYTES * self.form.per_block());
        let range = kernels.largest(rotated);
        *scale = range / 127.0;
        // Of a vector that is zero, or too small for float32 to divide by, all levels are zero.
        let per_unit = Some(127.0 / range).filter(|x| x.is_finite()).unwrap_or(0.0);
        *bias = self.form.midpoint() * kernels.levels(rotated, per_unit, levels.as_mut_slice()) as f32;
    }

    #[allow(dead_code)] // For the loader of dumps.
    /// Takes the stored form of a Q8 or BIN vector as it is; `None` if it is not of this shape.
    pub(crate) fn prepare_blob(&self, blob: &[u8], range: f32, probe: &mut CodeProbe) -> Option<()> {
        if blob.len() != self.blob_bytes() || !range.is_finite() {
            return None;
        }
        probe.levels.reset(self.n_bytes / CODE_BLOCK_BYTES * self.levels_per_block());
        let levels = probe.levels.as_mut_slice().iter_mut();
        levels.zip(blob).for_each(|(level, &byte)| *level = (byte as i8).max(MIN_LEVEL));
        if self.form == Form::Signs {
            // No bit beyond the dimension, and no level of -128 is needed: bits are compared, not multiplied.
            let n_levels = self.dim.div_ceil(8);
            let levels = probe.levels.as_mut_slice();
            levels.iter_mut().zip(blob).for_each(|(level, &byte)| *level = byte as i8);
            levels[n_levels..].fill(0);
            if !self.dim.is_multiple_of(8) {
                levels[n_levels - 1] = (levels[n_levels - 1] as u8 & ((1 << (self.dim % 8)) - 1)) as i8;
            }
        }
        (probe.scale, probe.bias) = (range / 127.0, 0.0);
        probe.rotated.clear();
        let scale = probe.scale;
        probe.rotated.extend(probe.levels.as_slice().iter().map(|&level| f32::from(level) * scale));
        probe.squared_length = probe.rotated.iter().map(|x| x * x).sum();
        Some(())
    }

    fn blob_bytes(&self) -> usize {
        match self.form {
            Form::Signs => self.dim.div_ceil(64) * 8,
            Form::Bits2 | Form::Bits4 | Form::Bits8 | Form::Q8 => self.dim,
        }
    }

    /// The probe of a stored code.
    pub(crate) fn probe_stored(&self, id: NodeId, probe: &mut CodeProbe, kernels: &Kernels) {
        let bytes = self.bytes(id);
        let levels = &mut probe.levels;
        levels.reset(self.n_bytes / CODE_BLOCK_BYTES * self.levels_per_block());
        probe.squared_length = self.squared_length(id);
        (probe.scale, probe.bias) = (self.scale(id), 0.0);
        match self.form {
            Form::Bits8 | Form::Q8 | Form::Signs => {
                levels.as_mut_slice().iter_mut().zip(bytes).for_each(|(level, &byte)| *level = byte as i8);
            }
            // Levels are twice the symmetric code, so that they are whole numbers.
            Form::Bits2 | Form::Bits4 => {
                let sum = match self.form {
                    Form::Bits2 => kernels.unpack2(bytes, levels.as_mut_slice()),
                    _ => kernels.unpack4(bytes, levels.as_mut_slice()),
                };
                // Beyond the dimension all codes are zero, and so lowest.
                let beyond = &mut levels.as_mut_slice()[self.dim..];
                let surplus: i32 = beyond.iter().map(|&level| i32::from(level)).sum();
                beyond.fill(0);
                probe.bias = self.form.midpoint() * (sum - surplus) as f32;
                probe.scale /= 2.0;
            }
        }
    }

    fn levels_per_block(&self) -> usize {
        match self.form {
            Form::Signs => CODE_BLOCK_BYTES,
            form => form.per_block(),
        }
    }

    /// Writer only: stores the code of the vector that was prepared in `probe`, of an id that no reader knows.
    pub(crate) fn write(&self, id: NodeId, probe: &CodeProbe, kernels: &Kernels) {
        // SAFETY: `ensure` made the chunks present; no reader knows the id, so nobody else has the record.
        let bytes = unsafe { slice::from_raw_parts_mut(self.records.record(id.0), self.n_bytes) };
        let copy_levels = |bytes: &mut [u8]| {
            bytes.iter_mut().zip(probe.levels.as_slice()).for_each(|(byte, &level)| *byte = level as u8);
        };
        let square = probe.rotated.iter().map(|x| x * x).sum::<f32>();
        let unbiased = |product: f32| if product > 0.0 { square / product } else { 0.0 };
        let per_step = || {
            let deviation = (square / self.dim as f32).sqrt();
            if deviation > 0.0 { 1.0 / (deviation * self.form.step()) } else { 0.0 }
        };
        let scale = match self.form {
            Form::Signs => {
                copy_levels(bytes);
                1.0
            }
            Form::Q8 => {
                copy_levels(bytes);
                probe.scale
            }
            Form::Bits8 => {
                copy_levels(bytes);
                let levels = probe.levels.as_slice().iter();
                unbiased(levels.zip(&probe.rotated).map(|(&level, x)| f32::from(level) * x).sum())
            }
            Form::Bits4 => unbiased(kernels.pack4(&probe.rotated, per_step(), bytes)),
            Form::Bits2 => unbiased(kernels.pack2(&probe.rotated, per_step(), bytes)),
        };
        if let Some(heads) = &self.heads {
            // SAFETY: as above; a head is one float, or two.
            unsafe {
                let head = heads.record(id.0).cast::<f32>();
                head.write(scale);
                if self.metric != Metric::Cosine {
                    head.add(1).write(probe.squared_length);
                }
            }
        }
    }

    // ---- Distances.

    #[inline(always)]
    pub(crate) fn distance(&self, probe: &CodeProbe, id: NodeId, kernels: &Kernels) -> f32 {
        let product = self.kernel(kernels).one(probe.levels.as_slice(), self.bytes(id));
        self.finish(probe, id, product)
    }

    #[inline(always)]
    pub(crate) fn distance4(&self, probe: &CodeProbe, ids: [NodeId; 4], kernels: &Kernels) -> [f32; 4] {
        // Not `map`: it is not inlined here.
        let [a, b, c, d] = ids;
        let rows = [self.bytes(a), self.bytes(b), self.bytes(c), self.bytes(d)];
        let products = self.kernel(kernels).four(probe.levels.as_slice(), rows);
        [
            self.finish(probe, a, products[0]),
            self.finish(probe, b, products[1]),
            self.finish(probe, c, products[2]),
            self.finish(probe, d, products[3]),
        ]
    }

    /// The standard deviation of an estimated distance, for vectors as long as the probe's. The code of a
    /// vector differs from it by noise that is spread over all directions: of relative strength e, it changes
    /// a product by e / sqrt(dim) of the lengths.
    pub(crate) fn deviation(&self, probe: &CodeProbe) -> f32 {
        let noise = match self.form {
            // sqrt(1 / rho^2 - 1), rho^2 being what the grid keeps of a normal distribution's variance.
            Form::Bits2 => 0.365,
            Form::Bits4 => 0.108,
            Form::Bits8 => 0.012,
            Form::Q8 | Form::Signs => return 0.0,
        };
        let (squared_length, factor) = match self.metric {
            Metric::Cosine => (1.0, 1.0),
            Metric::L2 => (probe.squared_length, 2.0),
            Metric::Ip => (probe.squared_length, 1.0),
        };
        factor * squared_length * noise / (self.dim as f32).sqrt()
    }

    #[inline(always)]
    fn kernel<'a>(&self, kernels: &'a Kernels) -> &'a CodeKernels {
        match self.form {
            Form::Bits2 => &kernels.bits2,
            Form::Bits4 => &kernels.bits4,
            Form::Bits8 | Form::Q8 => &kernels.bytes,
            Form::Signs => &kernels.signs,
        }
    }

    #[inline(always)]
    fn finish(&self, probe: &CodeProbe, id: NodeId, product: i32) -> f32 {
        if self.form == Form::Signs {
            return product as f32 * 2.0 / self.dim as f32;
        }
        self.distance_of(probe, product, self.scale(id), self.squared_length(id))
    }

    // ---- Q8 and BIN as their commands tell them.

    /// The vector that the code stands for, as far as the code can tell.
    pub(crate) fn decode(&self, id: NodeId) -> Vec<f32> {
        let bytes = self.bytes(id);
        match self.form {
            Form::Q8 => {
                let scale = self.scale(id);
                bytes[..self.dim].iter().map(|&byte| f32::from(byte as i8) * scale).collect()
            }
            Form::Signs => {
                let sign = |i: usize| if bytes[i / 8] >> (i % 8) & 1 == 1 { 1.0 } else { -1.0 };
                (0..self.dim).map(sign).collect()
            }
            Form::Bits2 | Form::Bits4 | Form::Bits8 => {
                unreachable!("a rotated code is never told to anybody")
            }
        }
    }

    /// The inner product of the query's own components with a row's signs: nearer the truth than the signs of both. `probe` was
    /// prepared from a vector, the form is Signs.
    pub(crate) fn signed_product(&self, probe: &CodeProbe, id: NodeId) -> f32 {
        let mut lanes = [0.0_f32; 8];
        for (part, &bits) in probe.rotated.chunks(8).zip(self.bytes(id)) {
            for (lane, (sum, x)) in lanes.iter_mut().zip(part).enumerate() {
                let sign = u32::from(!bits >> lane & 1) << 31;
                *sum += f32::from_bits(x.to_bits() ^ sign);
            }
        }
        lanes.iter().sum()
    }

    /// Redis's bytes of a row: a signed byte a component, or 64-bit words of signs.
    pub(crate) fn blob(&self, id: NodeId) -> Vec<u8> {
        self.bytes(id)[..self.blob_bytes()].to_vec()
    }

    /// The largest component of a Q8 row.
    pub(crate) fn range(&self, id: NodeId) -> f32 {
        self.scale(id) * 127.0
    }
}

/// The kernels multiply magnitudes: -128 has none in a signed byte.
#[allow(dead_code)] // As above.
const MIN_LEVEL: i8 = -127;

/// The scale of codes without heads.
static ONE: f32 = 1.0;

/// Bytes of a record that are asked for ahead; from there the processor's own prefetcher follows.
const MAX_BYTES_AHEAD: usize = 512;
