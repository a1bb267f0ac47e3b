//! VMADD of many elements, in slices at the owner.
//!
//! What was planned where the request arrived is committed; the others are planned here, slice by slice. A new set is known to
//! nobody before all its first elements are in it.

use skerry_vectorset::{Added, Insertion, Planned, Progress, SearchScratch};

use super::add::{Addition, insert_new, report};
use super::{error_of, vector_mut};
use crate::access::At;
use crate::args::{Args, KeptArgs};
use crate::command::{Ctx, Job};
use crate::error::CommandError;
use crate::keyspace::Key;
use crate::message::HoldMode;
use crate::vector::{VectorValue, note_upkeep, with_reader};
use crate::work::{Plans, SliceLeft};

/// What a commit, and an insert into a set too small for plans, cost in distances.
const COMMIT_DISTANCES: usize = 1_200;

/// Where the set is.
pub(super) enum Place {
    /// In the keyspace, held.
    Keyspace,
    New(Option<Box<VectorValue>>),
}

pub(super) struct AdditionJob {
    addition: Addition,
    args: KeptArgs,
    hash: u64,
    /// The moment that counts for deadlines: when it began.
    at: At,
    place: Place,
    way: Way,
}

/// How far it has come.
struct Way {
    /// The next element.
    next: usize,
    n_new: usize,
    /// Of the elements from the first on.
    plans: std::vec::IntoIter<Planned>,
    insertion: Option<Insertion>,
    scratch: SearchScratch,
    random: u64,
}

impl AdditionJob {
    pub(super) fn new(
        addition: Addition,
        args: Args<'_>,
        key: &Key<'_>,
        at: At,
        place: Place,
        plans: Plans,
    ) -> Self {
        let way = Way {
            next: 0,
            n_new: 0,
            plans: plans.into_iter(),
            insertion: None,
            scratch: SearchScratch::new(),
            random: key.hash,
        };
        Self { addition, args: KeptArgs::of(args), hash: key.hash, at, place, way }
    }
}

impl Job for AdditionJob {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let Self { addition, args, hash, at, place, way } = self;
        let args = args.args();
        let key = Key { bytes: args.get(1), hash: *hash };
        let (slice, min_planned_len) = (ctx.work.slice(), ctx.work.sizes.min_planned_len);
        way.random ^= ctx.shard.random();
        let value = match place {
            Place::New(value) => value.as_deref_mut().expect("a job that is done has no further slice"),
            Place::Keyspace => match ctx.shard.keyspace(at.db).get_mut(&key) {
                Some(entry) => vector_mut(entry)?,
                None => panic!("a key that is held stays"),
            },
        };
        let outcome = way.go_on(addition, args, value, slice, min_planned_len);
        let handle = value.handle.clone();
        let has_upkeep = value.writer().has_upkeep();
        if !outcome.inspect_err(|_| ctx.touched(&key))? {
            return Ok(false);
        }
        match place {
            Place::New(value) => value.take().into_iter().for_each(|value| insert_new(ctx, *at, &key, value)),
            Place::Keyspace if ctx.server.n_shards > 1 => {
                let expire_at_ms = ctx.shard.keyspace(at.db).expire_at(&key);
                ctx.server.vectors.publish(at.db, key.bytes, &handle, expire_at_ms);
            }
            Place::Keyspace => {}
        }
        if has_upkeep {
            note_upkeep(ctx.shard, at.db, key.bytes);
        }
        report(ctx, &key, addition.form, way.n_new);
        Ok(true)
    }

    fn held(&self) -> Option<(HoldMode, Key<'_>)> {
        Some((HoldMode::Exclusive, Key { bytes: self.args.args().get(1), hash: self.hash }))
    }
}

impl Way {
    /// Adds elements for one slice; true when all are added.
    fn go_on(
        &mut self,
        addition: &Addition,
        args: Args<'_>,
        value: &mut VectorValue,
        mut slice: SliceLeft,
        min_planned_len: usize,
    ) -> Result<bool, CommandError> {
        let set = value.handle.set.clone();
        let dim = set.params().dim;
        while let Some(element) = addition.elements.get(self.next) {
            let added = if let Some(plan) = self.plans.next() {
                match plan.is_for(&set) {
                    true => element.commit(args, value, &plan, addition.ef)?,
                    false => element.add(args, value, addition.ef)?,
                }
            } else if set.len() < min_planned_len {
                element.add(args, value, addition.ef)?
            } else {
                let mut insertion = match self.insertion.take() {
                    Some(insertion) => insertion,
                    None => {
                        let vector = element.stored(args, &value.handle)?;
                        let scratch = std::mem::take(&mut self.scratch);
                        self.random = self.random.wrapping_mul(MULTIPLIER).wrapping_add(1);
                        with_reader(|guard, _| {
                            set.begin_insertion(&vector, addition.ef, self.random, scratch, guard)
                        })
                        .map_err(error_of)?
                    }
                };
                let before = slice.distances(dim);
                let mut left = before;
                let progress = with_reader(|guard, _| insertion.step(&set, &mut left, guard));
                if progress == Progress::Unfinished {
                    self.insertion = Some(insertion);
                    return Ok(false);
                }
                slice.spend(before - left, dim);
                let (plan, scratch) = insertion.finish();
                self.scratch = scratch;
                element.commit(args, value, &plan, addition.ef)?
            };
            self.next += 1;
            self.n_new += usize::from(added == Added::New);
            if !slice.spend(COMMIT_DISTANCES, dim) {
                break;
            }
        }
        Ok(self.next == addition.elements.len())
    }
}

/// Knuth's, of MMIX.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
