//! Compact codes of the vectors: what traversal walks on, and all that Q8 and BIN sets store.
//!
//! ```text
//!   heads    [ scale f32 | squared length f32, unless the metric is the cosine ]           not for Signs
//!   records  [ sketch: a bit a component | body ]                          each whole 32-byte blocks
//!
//!   form    component x of the vector is about     built from            body           sketch
//!   Bits2   (code - 1.5) * scale                   the rotated vector    lower bits     upper bits
//!   Bits4   (code - 7.5) * scale                   the rotated vector    codes
//!   Bits8   code * scale                           the rotated vector    bytes
//!   Q8      code * scale, scale = range / 127      the vector            bytes          signs when rotated
//!   Signs   +-1, only the sign kept                the vector            bits
//! ```
//!
//! The scale of a rotated form makes <code, vector> exact. The range of Q8 is the vector's largest component, as
//! Redis has it. Heads lie apart, so that the others fill whole cache lines: 3 instead of 4 lines at 384
//! dimensions and 4 bits, one instead of two for Signs.
//!
//! A sketch tells the inner product with a deviation of 0.755 / sqrt(dim) of the lengths, from half of the bytes
//! or an eighth: enough to drop at sight most of what a walk meets (`least_distances4`).
//!
//! The queries of the rotated forms have 8 bits, before codes of two bits 6 and before sketches 4, in planes: their
//! products are counts of bits. The grid of a rotated form is uniform, its step the best one
//! for a normal distribution, which the rotation makes of any vector. Source of the scaling that makes the
//! products unbiased: Gao and Long, "RaBitQ" (2024). It must never know the graph.

use std::{iter, slice};

use crate::distance::{CODE_BLOCK_BYTES, Codes as CodeKernels, Kernels, Levels, Planes};
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
            Form::Bits2 => COMPONENTS_PER_PLANE_BLOCK,
            Form::Bits4 => CODE_BLOCK_BYTES * 2,
            Form::Bits8 | Form::Q8 => CODE_BLOCK_BYTES,
            Form::Signs => COMPONENTS_PER_PLANE_BLOCK,
        }
    }

    fn has_head(self) -> bool {
        self != Form::Signs
    }

    fn has_sketch(self) -> bool {
        match self {
            Form::Bits2 | Form::Q8 => true,
            Form::Bits4 | Form::Bits8 | Form::Signs => false,
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
    /// The vector, rotated where the codes are; under Signs its bits. Bits2 has it in planes.
    levels: Levels,
    planes: Planes,
    /// A product with codes, less `bias`, times both scales, is the inner product.
    scale: f32,
    bias: f32,
    squared_length: f32,
    /// From what inner products are taken to make a distance of them.
    pub(crate) offset: f32,
    sketch: SketchProbe,
    /// The rotated vector, and its code before it is packed; under Signs the vector.
    rotated: Vec<f32>,
}

/// What sketches are compared with.
#[derive(Clone, Debug, Default)]
struct SketchProbe {
    /// The rotated vector.
    planes: Planes,
    levels: Levels,
    /// The sum of the components whose bit is set, less `bias`, times `factor` and the length of a vector, is about
    /// the inner product; it is hardly more by `margin` times that length.
    bias: f32,
    factor: f32,
    margin: f32,
    is_ready: bool,
}

impl CodeProbe {
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.levels.capacity_bytes()
            + self.planes.capacity_bytes()
            + self.sketch.planes.capacity_bytes()
            + self.sketch.levels.capacity_bytes()
            + self.rotated.capacity() * size_of::<f32>()
    }
}

pub(crate) struct Codes {
    heads: Option<Slab>,
    records: Slab,
    form: Form,
    dim: usize,
    metric: Metric,
    body_bytes: usize,
    sketch_bytes: usize,
    rotation: Option<Rotation>,
}

/// The bytes of a node's parts.
struct Strides {
    head: usize,
    body: usize,
    sketch: usize,
}

impl Strides {
    fn of(form: Form, dim: usize, metric: Metric) -> Strides {
        let floats = match metric {
            _ if !form.has_head() => 0,
            Metric::Cosine => 1,
            Metric::L2 | Metric::Ip => 2,
        };
        let plane = dim.div_ceil(COMPONENTS_PER_PLANE_BLOCK) * CODE_BLOCK_BYTES;
        Strides {
            head: floats * size_of::<f32>(),
            body: dim.div_ceil(form.per_block()) * CODE_BLOCK_BYTES,
            sketch: if form.has_sketch() { plane } else { 0 },
        }
    }
}

impl Codes {
    /// Bytes of a node's code.
    pub(crate) fn stride(form: Form, dim: usize, metric: Metric) -> usize {
        let Strides { head, body, sketch } = Strides::of(form, dim, metric);
        head + body + sketch
    }

    pub(crate) fn new(form: Form, dim: usize, metric: Metric, geometry: Geometry) -> Codes {
        let is_rotated = form.is_rotated() || form.has_sketch();
        Codes::without_rotation(form, dim, metric, geometry)
            .with_rotation(is_rotated.then(|| Rotation::new(dim)))
    }

    fn without_rotation(form: Form, dim: usize, metric: Metric, geometry: Geometry) -> Codes {
        let Strides { head, body, sketch } = Strides::of(form, dim, metric);
        Codes {
            heads: (head > 0).then(|| Slab::new(geometry, head)),
            records: Slab::new(geometry, sketch + body),
            form,
            dim,
            metric,
            body_bytes: body,
            sketch_bytes: sketch,
            rotation: None,
        }
    }

    fn with_rotation(self, rotation: Option<Rotation>) -> Codes {
        Codes { rotation, ..self }
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
    fn body(&self, id: NodeId) -> &[u8] {
        // SAFETY: `write` filled the record before the id was published, and it is written again only after
        // the epochs of all readers that could know the id passed.
        unsafe {
            slice::from_raw_parts(self.records.record(id.0).add(self.sketch_bytes), self.body_bytes)
        }
    }

    /// Empty if the form has none.
    #[inline(always)]
    fn sketch(&self, id: NodeId) -> &[u8] {
        // SAFETY: as in `body`.
        unsafe { slice::from_raw_parts(self.records.record(id.0), self.sketch_bytes) }
    }

    #[inline(always)]
    fn scale(&self, id: NodeId) -> f32 {
        match &self.heads {
            // SAFETY: as in `body`; strides are multiples of four bytes.
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

    /// Asks the cache for all of a code.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: NodeId) {
        prefetch(&self.records, id, 0, self.sketch_bytes + self.body_bytes);
        self.prefetch_head(id);
    }

    /// Asks the cache for the sketch of a node, if there are sketches.
    #[inline(always)]
    pub(crate) fn prefetch_sketch(&self, id: NodeId) {
        prefetch(&self.records, id, 0, self.sketch_bytes);
    }

    /// Asks the cache for what is not the sketch.
    #[inline(always)]
    pub(crate) fn prefetch_rest(&self, id: NodeId) {
        prefetch(&self.records, id, self.sketch_bytes, self.body_bytes);
        self.prefetch_head(id);
    }

    #[inline(always)]
    fn prefetch_head(&self, id: NodeId) {
        if let Some(heads) = &self.heads {
            prefetch(heads, id, 0, 1);
        }
    }

    /// A copy of some records, side by side: that of `ids[k]` is the one of id `k`. Distances may be measured
    /// with it, nothing else. Returns the bytes allocated, too. The caller's guard protects the ids.
    pub(crate) fn gather(&self, ids: &[NodeId]) -> (Codes, usize) {
        let Strides { head, body, sketch } = Strides::of(self.form, self.dim, self.metric);
        let geometry = Geometry::for_stride(head + body + sketch);
        let copy = Codes::without_rotation(self.form, self.dim, self.metric, geometry);
        let strides = [sketch + body, head];
        let mut bytes = 0;
        for ((from, to), stride) in self.slabs().zip(copy.slabs()).zip(strides) {
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
        probe.sketch.is_ready = false;
        match self.form {
            Form::Signs => {
                probe.levels.reset(self.body_bytes);
                (probe.scale, probe.bias) = (1.0, 0.0);
                let signs = probe.levels.as_mut_slice().iter_mut().zip(signs(&probe.rotated));
                signs.for_each(|(level, signs)| *level = signs as i8);
            }
            Form::Q8 => {
                self.quantize(probe, kernels);
                self.rotate(probe, kernels);
                self.prepare_sketch(probe, kernels);
            }
            Form::Bits4 | Form::Bits8 => {
                self.rotate(probe, kernels);
                let sum = self.quantize(probe, kernels);
                probe.bias = self.form.midpoint() * sum as f32;
            }
            Form::Bits2 => {
                self.rotate(probe, kernels);
                let CodeProbe { levels, planes, rotated, scale, bias, .. } = probe;
                planes.reset(CODE_PLANES, self.body_bytes);
                let sum;
                (*scale, sum) = quantize_to_planes(rotated, CODE_PLANES, levels, planes, kernels);
                *bias = self.form.midpoint() * sum as f32;
                self.prepare_sketch(probe, kernels);
            }
        }
    }

    fn rotate(&self, probe: &mut CodeProbe, kernels: &Kernels) {
        let rotation = self.rotation.as_ref().expect("a form built from rotated vectors has a rotation");
        rotation.apply(&mut probe.rotated, kernels);
    }

    /// Sets levels and scale from `rotated`; returns the sum of the levels.
    fn quantize(&self, probe: &mut CodeProbe, kernels: &Kernels) -> i32 {
        let CodeProbe { levels, rotated, scale, bias, .. } = probe;
        levels.reset(self.body_bytes / CODE_BLOCK_BYTES * self.levels_per_block());
        *bias = 0.0;
        let sum;
        (*scale, sum) = quantize(rotated, 127.0, levels, kernels);
        sum
    }

    /// Makes a probe, whose vector is rotated, measure by sketches.
    fn prepare_sketch(&self, probe: &mut CodeProbe, kernels: &Kernels) {
        let CodeProbe { sketch, rotated, .. } = probe;
        sketch.planes.reset(SKETCH_PLANES, self.sketch_bytes);
        let SketchProbe { planes, levels, .. } = sketch;
        let (scale, sum) = quantize_to_planes(rotated, SKETCH_PLANES, levels, planes, kernels);
        let squared_length = if self.metric == Metric::Cosine { 1.0 } else { probe.squared_length };
        let per_root = 1.0 / (self.dim as f32).sqrt();
        sketch.bias = sum as f32 / 2.0;
        sketch.factor = 2.0 * scale * SIGN_SCALE * per_root;
        sketch.margin = SKETCH_CAUTION * SIGN_NOISE * squared_length.sqrt() * per_root;
        sketch.is_ready = true;
    }

    /// Takes the stored form of a Q8 or BIN vector as it is; `None` if it is not of this shape.
    pub(crate) fn prepare_blob(
        &self,
        blob: &[u8],
        range: f32,
        probe: &mut CodeProbe,
        kernels: &Kernels,
    ) -> Option<()> {
        if blob.len() != self.blob_bytes() || !range.is_finite() {
            return None;
        }
        probe.levels.reset(self.body_bytes / CODE_BLOCK_BYTES * self.levels_per_block());
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
        probe.rotated.truncate(self.dim);
        probe.squared_length = probe.rotated.iter().map(|x| x * x).sum();
        probe.sketch.is_ready = false;
        if self.form.has_sketch() {
            self.rotate(probe, kernels);
            self.prepare_sketch(probe, kernels);
        }
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
        let bytes = self.body(id);
        let CodeProbe { levels, planes, .. } = probe;
        probe.sketch.is_ready = false;
        probe.squared_length = self.squared_length(id);
        (probe.scale, probe.bias) = (self.scale(id), 0.0);
        match self.form {
            Form::Bits8 | Form::Q8 | Form::Signs => {
                levels.reset(self.body_bytes / CODE_BLOCK_BYTES * self.levels_per_block());
                levels.as_mut_slice().iter_mut().zip(bytes).for_each(|(level, &byte)| *level = byte as i8);
            }
            // Levels are twice the symmetric code, so that they are whole numbers.
            Form::Bits4 => {
                levels.reset(self.body_bytes / CODE_BLOCK_BYTES * self.levels_per_block());
                let sum = kernels.unpack4(bytes, levels.as_mut_slice());
                // Beyond the dimension all codes are zero, and so lowest.
                let beyond = &mut levels.as_mut_slice()[self.dim..];
                let surplus: i32 = beyond.iter().map(|&level| i32::from(level)).sum();
                beyond.fill(0);
                probe.bias = self.form.midpoint() * (sum - surplus) as f32;
                probe.scale /= 2.0;
            }
            // 2 * code - 3 in three bits: the lowest is always set, the next is the code's lower, and the number is
            // negative where the code's upper is not set.
            Form::Bits2 => {
                planes.reset(3, self.body_bytes);
                let upper = self.sketch(id);
                let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones() as i32).sum::<i32>();
                let sum = 4 * ones(upper) + 2 * ones(bytes) - 3 * self.dim as i32;
                fill_ones(planes.plane_mut(0), self.dim);
                planes.plane_mut(1).copy_from_slice(bytes);
                fill_ones(planes.plane_mut(2), self.dim);
                planes.plane_mut(2).iter_mut().zip(upper).for_each(|(byte, upper)| *byte &= !upper);
                probe.bias = self.form.midpoint() * sum as f32;
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
        // SAFETY: `ensure` made the chunks present; no reader knows the id, so nobody else has the records.
        let record = unsafe {
            slice::from_raw_parts_mut(self.records.record(id.0), self.sketch_bytes + self.body_bytes)
        };
        let (sketch, bytes) = record.split_at_mut(self.sketch_bytes);
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
                sketch.fill(0);
                sketch.iter_mut().zip(signs(&probe.rotated)).for_each(|(byte, signs)| *byte = signs);
                probe.scale
            }
            Form::Bits8 => {
                copy_levels(bytes);
                let levels = probe.levels.as_slice().iter();
                unbiased(levels.zip(&probe.rotated).map(|(&level, x)| f32::from(level) * x).sum())
            }
            Form::Bits4 => unbiased(kernels.pack4(&probe.rotated, per_step(), bytes)),
            Form::Bits2 => unbiased(kernels.pack2(&probe.rotated, per_step(), sketch, bytes)),
        };
        if let Some(heads) = &self.heads {
            // SAFETY: as above; a head is one or two floats.
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
        let product = match self.form {
            Form::Bits2 => {
                let planes = &kernels.planes;
                planes.one(&probe.planes, self.body(id)) + 2 * planes.one(&probe.planes, self.sketch(id))
            }
            _ => self.kernel(kernels).one(probe.levels.as_slice(), self.body(id)),
        };
        self.finish(probe, id, product)
    }

    #[inline(always)]
    pub(crate) fn distance4(&self, probe: &CodeProbe, ids: [NodeId; 4], kernels: &Kernels) -> [f32; 4] {
        // Not `map`: it is not inlined here.
        let [a, b, c, d] = ids;
        let rows = [self.body(a), self.body(b), self.body(c), self.body(d)];
        let products = match self.form {
            Form::Bits2 => {
                let lower = kernels.planes.four(&probe.planes, rows);
                let mut products = kernels.planes.four(&probe.planes, self.sketches4(ids));
                products.iter_mut().zip(lower).for_each(|(upper, lower)| *upper = 2 * *upper + lower);
                products
            }
            _ => self.kernel(kernels).four(probe.levels.as_slice(), rows),
        };
        [
            self.finish(probe, a, products[0]),
            self.finish(probe, b, products[1]),
            self.finish(probe, c, products[2]),
            self.finish(probe, d, products[3]),
        ]
    }

    #[inline(always)]
    fn sketches4(&self, ids: [NodeId; 4]) -> [&[u8]; 4] {
        let [a, b, c, d] = ids;
        [self.sketch(a), self.sketch(b), self.sketch(c), self.sketch(d)]
    }

    /// Whether `least_distances4` can tell anything.
    #[inline(always)]
    pub(crate) fn has_sketches(&self, probe: &CodeProbe) -> bool {
        probe.sketch.is_ready
    }

    /// Distances by the sketches alone, less `SKETCH_CAUTION` of their deviations: few are nearer.
    #[inline(always)]
    pub(crate) fn least_distances4(
        &self,
        probe: &CodeProbe,
        ids: [NodeId; 4],
        kernels: &Kernels,
    ) -> [f32; 4] {
        let products = kernels.planes.four(&probe.sketch.planes, self.sketches4(ids));
        let [a, b, c, d] = ids;
        [
            self.least(probe, a, products[0]),
            self.least(probe, b, products[1]),
            self.least(probe, c, products[2]),
            self.least(probe, d, products[3]),
        ]
    }

    #[inline(always)]
    fn least(&self, probe: &CodeProbe, id: NodeId, product: i32) -> f32 {
        let SketchProbe { bias, factor, margin, .. } = probe.sketch;
        let largest = (product as f32 - bias) * factor + margin;
        match self.metric {
            Metric::Cosine => 1.0 - largest,
            Metric::L2 => {
                let squared_length = self.squared_length(id);
                probe.squared_length + squared_length - 2.0 * largest * squared_length.sqrt()
            }
            Metric::Ip => probe.offset - largest * self.squared_length(id).sqrt(),
        }
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
            Form::Bits4 => &kernels.bits4,
            Form::Bits2 => unreachable!("two bits are measured by planes"),
            Form::Bits8 | Form::Q8 => &kernels.bytes,
            Form::Signs => &kernels.signs,
        }
    }

    #[inline(always)]
    fn finish(&self, probe: &CodeProbe, id: NodeId, product: i32) -> f32 {
        if self.form == Form::Signs {
            return product as f32 * 2.0 / self.dim as f32;
        }
        let inner = (product as f32 - probe.bias) * (probe.scale * self.scale(id));
        match self.metric {
            Metric::Cosine if self.form == Form::Q8 => (1.0 - inner).clamp(0.0, 2.0),
            Metric::Cosine => 1.0 - inner,
            Metric::L2 => (probe.squared_length + self.squared_length(id) - 2.0 * inner).max(0.0),
            Metric::Ip => probe.offset - inner,
        }
    }

    // ---- Q8 and BIN as their commands tell them.

    /// The vector that the code stands for, as far as the code can tell.
    pub(crate) fn decode(&self, id: NodeId) -> Vec<f32> {
        let bytes = self.body(id);
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

    /// Redis's bytes of a row: a signed byte a component, or 64-bit words of signs.
    pub(crate) fn blob(&self, id: NodeId) -> Vec<u8> {
        self.body(id)[..self.blob_bytes()].to_vec()
    }

    /// The largest component of a Q8 row.
    pub(crate) fn range(&self, id: NodeId) -> f32 {
        self.scale(id) * 127.0
    }
}

/// The symmetric grid up to `top`: writes the levels, returns their scale and sum.
fn quantize(x: &[f32], top: f32, levels: &mut Levels, kernels: &Kernels) -> (f32, i32) {
    let range = kernels.largest(x);
    let per_unit = if range > 0.0 { top / range } else { 0.0 };
    (range / top, kernels.levels(x, per_unit, levels.as_mut_slice()))
}

/// The same by `n_planes` bits, and their planes.
fn quantize_to_planes(
    x: &[f32],
    n_planes: usize,
    levels: &mut Levels,
    planes: &mut Planes,
    kernels: &Kernels,
) -> (f32, i32) {
    levels.reset(x.len());
    let top = (1_i32 << (n_planes - 1)) - 1;
    let (scale, sum) = quantize(x, top as f32, levels, kernels);
    kernels.split(levels.as_slice(), planes);
    (scale, sum)
}

/// Sets the first `n` bits.
fn fill_ones(bytes: &mut [u8], n: usize) {
    bytes[..n / 8].fill(0xFF);
    if !n.is_multiple_of(8) {
        bytes[n / 8] = (1 << (n % 8)) - 1;
    }
}

/// A bit for each component: whether it is above zero.
fn signs(x: &[f32]) -> impl Iterator<Item = u8> {
    x.chunks(8).map(|part| part.iter().rev().fold(0, |bits, &x| bits << 1 | u8::from(x > 0.0)))
}

/// Asks the cache for bytes of a record.
#[inline(always)]
fn prefetch(slab: &Slab, id: NodeId, from: usize, n_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the id was published, so its chunk is present; a prefetch reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let record = slab.record(id.0).cast_const().cast::<i8>().add(from);
        for line in (0..n_bytes.min(MAX_BYTES_AHEAD)).step_by(64) {
            _mm_prefetch::<_MM_HINT_T0>(record.add(line));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slab, id, from, n_bytes);
}

/// Bits of a query's component before codes of two bits, whose error it must hardly add to, and before sketches.
const CODE_PLANES: usize = 6;
const SKETCH_PLANES: usize = 4;

const COMPONENTS_PER_PLANE_BLOCK: usize = CODE_BLOCK_BYTES * 8;

/// The signs of a normal distribution, times this, have its products: sqrt(pi / 2).
const SIGN_SCALE: f32 = 1.253_314;
/// The deviation of such products, over that of the components: sqrt(pi / 2 - 1).
const SIGN_NOISE: f32 = 0.755_5;
/// Deviations of a sketch by which a node may be behind and is still measured.
const SKETCH_CAUTION: f32 = 2.0;

/// The kernels multiply magnitudes: -128 has none in a signed byte.
const MIN_LEVEL: i8 = -127;

/// Bytes of a record that are asked for ahead; from there the processor's own prefetcher follows.
const MAX_BYTES_AHEAD: usize = 512;
