//! Whether the codes of a set are wide enough, and what is done where they are not.
//!
//! ```text
//!   Rest ─ grown ─► Sample the walked rung ─ enough ─► Rest
//!                      │ too little
//!                      ▼
//!                   Fill the next wider rung ─► Sample it ─ enough ─► switch ─► Relink every member ─► Rest
//!                      ▲                           │ too little
//!                      └───────────────────────────┘          (the rows need no sample: they are exact)
//! ```
//!
//! A sample asks for the 10 nearest of some members, by an exact scan, and counts how many of them are among
//! those that a search would measure exactly: the first few times 10 by their codes. So it tells what the codes
//! lose, whatever the graph loses. It is made when the set has `FIRST_CHECK` rows, and again whenever it has
//! grown `GROWTH`-fold, for neighbors come nearer to each other as a set grows. A graph whose links were
//! chosen by codes too narrow is no good even if walks no longer read them: so each member is inserted anew.
//!
//! It is done in slices by whoever owns the writer (`Writer::upkeep`); searches go on all the while. Only sets
//! of automatic width are looked after, and they never narrow. Cost: about 100 ns a row and sampled member, 2 µs
//! a row to fill, an insertion a row to relink.

use crate::graph::NodeId;
use crate::hnsw::{Index, Probe, Progress};
use crate::ladder::Rung;
use crate::params::{CodeWidth, Quantization};
use crate::scratch::SearchScratch;
use crate::set::VectorSet;
use crate::writer::{Retired, Writer};

/// Rows from which on codes are checked. Below, searches are fast whatever they read.
const FIRST_CHECK: usize = 10_000;
const GROWTH: usize = 4;
/// Members that are asked for.
const N_SAMPLED: usize = 48;
const N_NEAREST: usize = 10;
/// The share of the nearest that codes have to keep. Measured (vector notes: 500 queries on 20,000 rows of
/// text embeddings): 1.000 for 4 bits at 384 dimensions and 2 bits at 1536, 0.995 for 2 bits at 384.
const LEAST_RECALL: f64 = 0.99;
/// Distances that differ by less are the same: rounding of a product of float32 rows.
const ROUNDING: f32 = 5e-7;

/// What a row costs, in distances of codes.
const SAMPLE_COST: usize = 4;
const FILL_COST: usize = 64;
const RELINK_COST: usize = 8_192;
/// Rows measured at a time.
const LANES: usize = 4;
const EF_RELINK: usize = 200;

/// What the last sample said of the codes that walks read now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckedWidth {
    /// Bits a component; 32 where walks read the rows themselves.
    pub bits: u32,
    /// The share of the 10 nearest that the codes keep among those that are measured exactly.
    pub recall: f64,
}

impl CheckedWidth {
    fn packed(self) -> u64 {
        u64::from(self.bits) << 32 | u64::from((self.recall as f32).to_bits())
    }

    /// Zero if there was no sample yet.
    pub(crate) fn unpacked(packed: u64) -> Option<CheckedWidth> {
        let recall = f64::from(f32::from_bits(packed as u32));
        (packed != 0).then_some(CheckedWidth { bits: (packed >> 32) as u32, recall })
    }
}

/// The writer's part.
pub(crate) struct Width {
    /// Rows at which the next check begins.
    next_at: usize,
    stage: Stage,
}

enum Stage {
    Rest,
    Sample(Box<Sample>),
    /// Members from here to the front have no code of the rung yet.
    Fill {
        rung: Rung,
        upto: u32,
    },
    /// Members from here to the front are still linked as narrower codes wanted.
    Relink {
        upto: u32,
    },
}

impl Width {
    pub(crate) fn new() -> Width {
        Width { next_at: FIRST_CHECK, stage: Stage::Rest }
    }
}

/// A sample that is being taken.
struct Sample {
    rung: Rung,
    probe: Probe,
    n_asked: usize,
    n_wanted: usize,
    n_found: usize,
    asked: NodeId,
    /// Members from here to the front are still to be measured.
    upto: u32,
    /// The exact distances of the nearest, ascending.
    nearest: Vec<f32>,
    /// Of the nearest by their codes, ascending: that distance, and the exact one.
    coded: Vec<(f32, f32)>,
}

impl Sample {
    fn new(rung: Rung) -> Sample {
        Sample {
            rung,
            probe: Probe::default(),
            n_asked: 0,
            n_wanted: 0,
            n_found: 0,
            asked: NodeId(u32::MAX),
            upto: 0,
            nearest: Vec::new(),
            coded: Vec::new(),
        }
    }

    /// Goes on for about `budget` distances; the share that was found when it is done.
    fn step(&mut self, set: &VectorSet, mut random: impl FnMut() -> u64, budget: &mut usize) -> Option<f64> {
        while *budget > 0 {
            if self.upto == 0 {
                self.count();
                let n_members = set.members.len();
                if self.n_asked == N_SAMPLED || n_members == 0 {
                    let found = self.n_found as f64 / self.n_wanted.max(1) as f64;
                    return Some(if self.n_wanted == 0 { 1.0 } else { found });
                }
                let place = (random() % u64::from(n_members)) as u32;
                self.ask(set, set.members.get(place)?);
            }
            let upto = self.upto.min(set.members.len());
            let from = upto.saturating_sub(u32::try_from(*budget / SAMPLE_COST).unwrap_or(u32::MAX).max(1));
            *budget = budget.saturating_sub((upto - from) as usize * SAMPLE_COST);
            self.measure(set, from, upto);
            self.upto = from;
        }
        None
    }

    fn ask(&mut self, set: &VectorSet, id: NodeId) {
        set.index.prepare_stored_for(id, self.rung, &mut self.probe);
        (self.asked, self.upto) = (id, set.members.len());
        self.nearest.clear();
        self.coded.clear();
        self.n_asked += 1;
    }

    fn measure(&mut self, set: &VectorSet, from: u32, upto: u32) {
        let kept = N_NEAREST * set.index.rescored_per_hit(&self.probe);
        let mut four = [NodeId(0); LANES];
        let mut n = 0;
        for id in (from..upto).rev().filter_map(|place| set.members.get(place)) {
            if id == self.asked {
                continue;
            }
            four[n] = id;
            n += 1;
            if n == LANES {
                self.offer(&set.index, &four, kept);
                n = 0;
            }
        }
        self.offer(&set.index, &four[..n], kept);
    }

    fn offer(&mut self, index: &Index, four: &[NodeId], kept: usize) {
        let mut exact = [0.0; LANES];
        let mut places = exact.iter_mut();
        let Sample { probe, nearest, coded, .. } = self;
        index.exact_distances(probe, four, |_, distance| {
            if let Some(place) = places.next() {
                *place = distance;
            }
            keep_least(nearest, distance, N_NEAREST, |&kept| kept);
        });
        let mut exact = exact.iter();
        index.distances(probe, four, |_, distance| {
            if let Some(&exact) = exact.next() {
                keep_least(coded, (distance, exact), kept, |kept| kept.0);
            }
        });
    }

    /// Counts what was found of the member that was asked for.
    fn count(&mut self) {
        let Some(&farthest) = self.nearest.last() else { return };
        let bound = farthest + ROUNDING * (1.0 + farthest.abs());
        let n_wanted = self.nearest.len();
        self.n_wanted += n_wanted;
        self.n_found += self.coded.iter().filter(|coded| coded.1 <= bound).count().min(n_wanted);
        self.nearest.clear();
    }
}

/// Puts an item into an ascending list of the least `n`.
fn keep_least<T>(kept: &mut Vec<T>, item: T, n: usize, key: impl Fn(&T) -> f32) {
    let at_key = key(&item);
    if kept.len() == n && kept.last().is_none_or(|last| at_key >= key(last)) {
        return;
    }
    kept.truncate(n - 1);
    let at = kept.partition_point(|other| key(other) <= at_key);
    kept.insert(at, item);
}

impl VectorSet {
    /// What the last look at the codes said; `None` if there was none.
    pub fn checked_width(&self) -> Option<CheckedWidth> {
        CheckedWidth::unpacked(self.checked_width.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn is_of_automatic_width(&self) -> bool {
        self.params.quantization == Quantization::None && self.params.codes == CodeWidth::Auto
    }
}

impl Writer {
    /// Whether `upkeep` has something to do. Cheap.
    pub fn has_upkeep(&self) -> bool {
        match self.width.stage {
            Stage::Rest => self.set.len() >= self.width.next_at && self.set.is_of_automatic_width(),
            Stage::Sample(_) | Stage::Fill { .. } | Stage::Relink { .. } => true,
        }
    }

    /// Looks after the width of the codes, for about `budget` distances, less what it has used. Searches need
    /// not wait for it; whoever owns the writer calls it between its other work until it is done.
    pub fn upkeep(&mut self, budget: &mut usize, scratch: &mut SearchScratch) -> Progress {
        while self.has_upkeep() {
            if *budget == 0 {
                return Progress::Unfinished;
            }
            self.width.stage = match std::mem::replace(&mut self.width.stage, Stage::Rest) {
                Stage::Rest => {
                    self.width.next_at = self.set.len() * GROWTH;
                    self.sample(self.set.index.codes.walked())
                }
                Stage::Sample(sample) => self.step_sample(sample, budget),
                Stage::Fill { rung, upto } => self.step_fill(rung, upto, budget, scratch),
                Stage::Relink { upto } => self.step_relink(upto, budget, scratch),
            };
        }
        Progress::Done
    }

    /// Looks at a rung whose codes are all there. The rows need no look.
    fn sample(&mut self, rung: Rung) -> Stage {
        match self.set.index.codes.at(rung) {
            Some(_) => Stage::Sample(Box::new(Sample::new(rung))),
            None => self.settle(rung, 1.0),
        }
    }

    fn step_sample(&mut self, mut sample: Box<Sample>, budget: &mut usize) -> Stage {
        let set = self.set.clone();
        let Some(recall) = sample.step(&set, || self.next_random(), budget) else {
            return Stage::Sample(sample);
        };
        let rung = sample.rung;
        match set.index.codes.wider(rung) {
            Some(wider) if recall < LEAST_RECALL => {
                if rung != set.index.codes.walked() {
                    // Nobody has ever walked on it.
                    self.give_up(rung);
                }
                set.index.codes.begin(wider);
                Stage::Fill { rung: wider, upto: set.members.len() }
            }
            Some(_) | None => self.settle(rung, recall),
        }
    }

    fn step_fill(&mut self, rung: Rung, upto: u32, budget: &mut usize, scratch: &mut SearchScratch) -> Stage {
        let set = self.set.clone();
        if set.index.codes.at(rung).is_none() {
            return self.settle(rung, 1.0);
        }
        let mut upto = upto.min(set.members.len());
        while upto > 0 {
            if *budget == 0 {
                return Stage::Fill { rung, upto };
            }
            upto -= 1;
            *budget = budget.saturating_sub(FILL_COST);
            if let Some(id) = set.members.get(upto) {
                let bytes = set.index.fill(id, rung, &mut scratch.probe);
                self.count_bytes(bytes as isize);
            }
        }
        self.sample(rung)
    }

    /// Lets walks read a rung that is good enough.
    fn settle(&mut self, rung: Rung, recall: f64) -> Stage {
        let set = self.set.clone();
        let told = CheckedWidth { bits: set.index.codes.bits(rung), recall };
        set.checked_width.store(told.packed(), std::sync::atomic::Ordering::Relaxed);
        if rung == set.index.codes.walked() {
            return Stage::Rest;
        }
        let before = set.index.codes.walk_on(rung);
        self.retire(Some(Retired::Rung(before)));
        Stage::Relink { upto: set.members.len() }
    }

    fn step_relink(&mut self, upto: u32, budget: &mut usize, scratch: &mut SearchScratch) -> Stage {
        let set = self.set.clone();
        let mut upto = upto.min(set.members.len());
        while upto > 0 {
            if *budget == 0 {
                return Stage::Relink { upto };
            }
            upto -= 1;
            *budget = budget.saturating_sub(RELINK_COST);
            if let Some(id) = set.members.get(upto)
                && self.insert_anew(id, EF_RELINK, scratch).is_err()
            {
                // There is no id left: the rest stays as it is.
                return Stage::Rest;
            }
        }
        Stage::Rest
    }
}
