//! The codes of a set, by width: which ones walks read, and which ones are kept up to date.
//!
//! ```text
//!   rung     0       1       2      beyond
//!            Bits2   Bits4   Bits8  the float32 rows          written   walked
//!   at first                                                  {0}       0
//!   widening:    rung 1 is filled while walks go on           {0, 1}    0
//!   switched:    new walks read rung 1, old ones still 0      {0, 1}    1
//!   old walks over (epochs): rung 0 is given back             {1}       1
//! ```
//!
//! Whoever measures has a probe, and a probe belongs to one rung: that on which walks were when it was
//! prepared. Invariants: 1. a rung is written for every new node as long as any probe may belong to it; 2. it
//! is walked only when the code of every member is there; 3. a probe is prepared before its owner learns any
//! id, so a node that it meets was there at the switch or came after it. It must never know why a set widens.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::codes::{CodeProbe, Codes, Form};
use crate::distance::Kernels;
use crate::graph::NodeId;
use crate::params::{CodeWidth, Params, Quantization};
use crate::slab::Geometry;

/// Dimensions below which codes save too little to pay for themselves: rows are a few cache lines anyway.
const MIN_CODED_DIM: usize = 64;
/// Dimensions from which two bits carry the order, as a rule. Measured: notes on 20,000 rows of text
/// embeddings, 2 bits and three times the wanted hits lose nothing at 1536 dimensions, 4 bits and twice
/// nothing at 384.
const MIN_BITS2_DIM: usize = 1024;

/// A width of codes; beyond the last one stand the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rung(u8);

pub(crate) struct Ladder {
    /// The narrowest first.
    rungs: Box<[Codes]>,
    walked: AtomicU8,
    /// A bit a rung. The writer's.
    written: AtomicU8,
}

/// The forms that a set may walk on, the narrowest first.
pub(crate) fn forms_of(params: Params) -> &'static [Form] {
    let dim = params.dim as usize;
    match (params.quantization, params.codes) {
        (Quantization::Q8, _) => &[Form::Q8],
        (Quantization::Bin, _) => &[Form::Signs],
        (Quantization::None, CodeWidth::Off) => &[],
        (Quantization::None, CodeWidth::Bits2) => &[Form::Bits2],
        (Quantization::None, CodeWidth::Bits4) => &[Form::Bits4],
        (Quantization::None, CodeWidth::Bits8) => &[Form::Bits8],
        (Quantization::None, CodeWidth::Auto) if dim < MIN_CODED_DIM => &[],
        (Quantization::None, CodeWidth::Auto) if dim < MIN_BITS2_DIM => &[Form::Bits4, Form::Bits8],
        (Quantization::None, CodeWidth::Auto) => &[Form::Bits2, Form::Bits4, Form::Bits8],
    }
}

impl Ladder {
    pub(crate) fn new(params: Params, geometry: Geometry) -> Ladder {
        let (first, wider) = forms_of(params).split_first().unzip();
        let first = first.map(|&form| Codes::new(form, params.dim as usize, params.metric, geometry));
        let wider = wider.unwrap_or_default().iter();
        let wider: Vec<Codes> =
            first.iter().flat_map(|first| wider.clone().map(|&form| first.of_form(form, geometry))).collect();
        let rungs = first.into_iter().chain(wider).collect();
        Ladder { rungs, walked: AtomicU8::new(0), written: AtomicU8::new(1) }
    }

    /// The rung that new probes belong to.
    pub(crate) fn walked(&self) -> Rung {
        Rung(self.walked.load(Ordering::Acquire))
    }

    /// The codes of a rung; `None` where walks read the rows.
    #[inline(always)]
    pub(crate) fn at(&self, rung: Rung) -> Option<&Codes> {
        self.rungs.get(usize::from(rung.0))
    }

    /// The codes of a set that has nothing but codes.
    pub(crate) fn only(&self) -> Option<&Codes> {
        self.rungs.first()
    }

    /// Bits a component; 32 for the rows.
    pub(crate) fn bits(&self, rung: Rung) -> u32 {
        match self.at(rung).map(Codes::form) {
            Some(Form::Signs) => 1,
            Some(Form::Bits2) => 2,
            Some(Form::Bits4) => 4,
            Some(Form::Bits8 | Form::Q8) => 8,
            None => 32,
        }
    }

    /// The next wider rung; `None` if this is that of the rows.
    pub(crate) fn wider(&self, rung: Rung) -> Option<Rung> {
        self.at(rung).map(|_| Rung(rung.0 + 1))
    }

    // ---- Writer only, from here on.

    fn written(&self) -> impl Iterator<Item = (Rung, &Codes)> {
        let written = self.written.load(Ordering::Relaxed);
        (0..).map(Rung).zip(&self.rungs).filter(move |(rung, _)| written & 1 << rung.0 != 0)
    }

    /// Makes room for the codes of an id that no reader knows. Returns the bytes allocated.
    pub(crate) fn ensure(&self, id: NodeId) -> usize {
        self.written().map(|(_, codes)| codes.ensure(id)).sum()
    }

    /// Stores the codes of an id that no reader knows. `code` was prepared for `rung` from `vector`, which may
    /// be empty where there is but one rung.
    pub(crate) fn write(&self, id: NodeId, vector: &[f32], rung: Rung, code: &CodeProbe, kernels: &Kernels) {
        for (written, codes) in self.written() {
            if written == rung {
                codes.write(id, code, kernels);
            } else {
                let mut code = CodeProbe::default();
                codes.prepare(vector, &mut code, kernels);
                codes.write(id, &code, kernels);
            }
        }
    }

    /// From here on the codes of new nodes are written for this rung too.
    pub(crate) fn begin(&self, rung: Rung) {
        if self.at(rung).is_some() {
            self.written.fetch_or(1 << rung.0, Ordering::Relaxed);
        }
    }

    /// Stores the code of a member for a rung that is not walked yet. Returns the bytes allocated.
    pub(crate) fn fill(
        &self,
        id: NodeId,
        vector: &[f32],
        rung: Rung,
        code: &mut CodeProbe,
        kernels: &Kernels,
    ) -> usize {
        let Some(codes) = self.at(rung) else { return 0 };
        let bytes = codes.ensure(id);
        codes.prepare(vector, code, kernels);
        codes.write(id, code, kernels);
        bytes
    }

    /// New probes belong to this rung, whose codes are all there. Returns the one before.
    pub(crate) fn walk_on(&self, rung: Rung) -> Rung {
        Rung(self.walked.swap(rung.0, Ordering::AcqRel))
    }

    /// A rung that no probe belongs to any more is not written any longer.
    pub(crate) fn end(&self, rung: Rung) {
        self.written.fetch_and(!(1 << rung.0), Ordering::Relaxed);
    }

    /// Gives the memory of a chunk of all rungs back.
    ///
    /// # Safety
    /// As `Slab::release`.
    pub(crate) unsafe fn release(&self, chunk: usize) -> usize {
        // SAFETY: passed on.
        self.rungs.iter().map(|codes| unsafe { codes.release(chunk) }).sum()
    }

    /// Gives the memory of a chunk of one rung back.
    ///
    /// # Safety
    /// No probe belongs to the rung, and it is not written.
    pub(crate) unsafe fn release_rung(&self, rung: Rung, chunk: usize) -> usize {
        // SAFETY: nobody reads codes of a rung without a probe of it.
        self.at(rung).map_or(0, |codes| unsafe { codes.release(chunk) })
    }
}
