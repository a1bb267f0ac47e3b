//! VADD, and VMADD of many elements: what they say, and the change at the owner.
//!
//! VMADD is Skerry's own. Its grammar is VADD's with the vector, its element and SETATTR repeated; the other options hold
//! for all. Nothing is added unless everything fits.
//!
//! ```text
//! VMADD key [REDUCE dim] (FP32 blob | VALUES n v1 ... vn) element [SETATTR json]
//!                        [(FP32 ...) element [SETATTR json] ...] [CAS] [NOQUANT | Q8 | BIN] [EF ef] [M links]
//!                        [METRIC COSINE | L2 | IP]
//! ```
//!
//! METRIC is Skerry's own too. It counts when the set is made; later it may be left out, or has to be the set's.

use std::borrow::Cow;

use skerry_resp::number::parse_i64;
use skerry_vectorset::{Added, MAX_M, MIN_M, Metric, Params, Planned, Progress, Quantization};
use smallvec::SmallVec;

use super::input::{begins_vector, parse_reduce, parse_vector};
use super::{INVALID_VECTOR, error_of, expect, mismatch, vector_mut};
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, NewValue, Object, Ttl};
use crate::projection::Projection;
use crate::shard::EventClass;
use crate::vector::{VectorHandle, VectorValue, new_params, note_upkeep, with_reader};
use crate::work::{Addition as AdditionPlan, Begun};

const DEFAULT_M: u32 = 16;
const DEFAULT_EF: usize = 200;
const MAX_EF: i64 = 1_000_000;

pub(super) fn vadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let addition = Addition::parse(args, Form::One)?;
    let n_new = change(ctx, args, &addition, "vadd")?;
    ctx.reply.boolean(n_new > 0);
    Ok(())
}

pub(super) fn vmadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let addition = Addition::parse(args, Form::Many)?;
    let n_new = change(ctx, args, &addition, "vadd")?;
    ctx.reply.integer(n_new as i64);
    Ok(())
}

/// What the receiving worker does for VADD.
pub(super) fn plan_vadd(ctx: &mut Ctx<'_>, handle: &VectorHandle, args: Args<'_>) {
    plan(ctx, handle, args, Form::One);
}

/// What the receiving worker does for VMADD.
pub(super) fn plan_vmadd(ctx: &mut Ctx<'_>, handle: &VectorHandle, args: Args<'_>) {
    plan(ctx, handle, args, Form::Many);
}

/// Plans the elements against the set as it is; what does not fit it is left to the owner, who tells the error.
fn plan(ctx: &mut Ctx<'_>, handle: &VectorHandle, args: Args<'_>, form: Form) {
    let set = &handle.set;
    let before = match ctx.work.begun.take() {
        Some(Begun::Addition(before)) if before.is_for(set) => *before,
        Some(Begun::Addition(_) | Begun::Search(_)) | None => AdditionPlan::default(),
    };
    if set.len() < ctx.work.sizes.min_planned_len {
        return;
    }
    let Ok(addition) = Addition::parse(args, form) else { return };
    if addition.check_against(handle).is_err() {
        return;
    }
    if let Some(plan) = addition.plan(ctx, handle, before) {
        ctx.work.begun = Some(Begun::Addition(Box::new(plan)));
    }
}

/// Adds, and tells the shard; how many elements are new.
fn change(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    addition: &Addition<'_>,
    event: &'static str,
) -> Result<usize, CommandError> {
    let key = ctx.key(args, 1);
    let added = add(ctx, &key, addition);
    match added {
        Ok(_) => ctx.changed(&key, EventClass::Module, event),
        Err(_) => ctx.touched(&key),
    }
    added
}

fn add(ctx: &mut Ctx<'_>, key: &Key<'_>, addition: &Addition<'_>) -> Result<usize, CommandError> {
    let at = ctx.at();
    let plans = ctx.work.take_plans().unwrap_or_default();
    let Some(entry) = ctx.shard.edit(at, key) else {
        ctx.work.count_plans(plans.len(), 0);
        return create(ctx, key, addition);
    };
    let expire_at_ms = entry.as_ref().expire_at();
    let value = vector_mut(entry)?;
    addition.check_against(&value.handle)?;
    let n_right = plans.iter().filter(|plan| plan.is_for(&value.handle.set)).count();
    ctx.work.count_plans(plans.len(), n_right);
    let added = addition.apply(value, &plans)?;
    let has_upkeep = value.writer().has_upkeep();
    if ctx.server.n_shards > 1 {
        ctx.server.vectors.publish(at.db, key.bytes, &value.handle, expire_at_ms);
    }
    if has_upkeep {
        note_upkeep(ctx.shard, at.db, key.bytes);
    }
    Ok(added)
}

/// A new set with its first elements.
fn create(ctx: &mut Ctx<'_>, key: &Key<'_>, addition: &Addition<'_>) -> Result<usize, CommandError> {
    let (params, projection) = addition.new_set(ctx)?;
    let mut value = VectorValue::new(params, projection);
    let added = addition.apply(&mut value, &[])?;
    let handle = value.handle.clone();
    let at = ctx.at();
    ctx.shard.insert(at, key, NewValue::Object(Object::Vector(Box::new(value))), Ttl::Clear);
    if ctx.server.n_shards > 1 {
        ctx.server.vectors.publish(at.db, key.bytes, &handle, None);
    }
    Ok(added)
}

/// How many elements the arguments may name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    Many,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::One => "VADD",
            Form::Many => "VMADD",
        }
    }
}

/// The arguments of VADD and VMADD.
struct Addition<'a> {
    elements: SmallVec<[Element<'a>; 1]>,
    reduce_dim: Option<u32>,
    quantization: Quantization,
    ef: usize,
    m: u32,
    metric: Option<Metric>,
}

struct Element<'a> {
    /// As the client gave it.
    vector: Vec<f32>,
    name: &'a [u8],
    attribute: Option<&'a [u8]>,
}

impl<'a> Addition<'a> {
    fn parse(args: Args<'a>, form: Form) -> Result<Self, CommandError> {
        expect(args.len() >= 5, form.name())?;
        let mut at = 2;
        let mut addition = Self {
            reduce_dim: parse_reduce(args, &mut at)?,
            elements: SmallVec::new(),
            quantization: Quantization::Q8,
            ef: DEFAULT_EF,
            m: DEFAULT_M,
            metric: None,
        };
        addition.parse_element(args, &mut at, form)?;
        addition.parse_options(args, at, form)?;
        Ok(addition)
    }

    /// A vector and the element's name, at argument `at`, which moves past them.
    fn parse_element(&mut self, args: Args<'a>, at: &mut usize, form: Form) -> Outcome {
        let vector = parse_vector(args, at)?;
        expect(*at < args.len(), form.name())?;
        self.elements.push(Element { vector, name: args.get(*at), attribute: None });
        *at += 1;
        Ok(())
    }

    /// The words after an element, in any order; the last of a kind counts.
    fn parse_options(&mut self, args: Args<'a>, at: usize, form: Form) -> Outcome {
        let mut cursor = args.cursor(at);
        while let Some(word) = cursor.maybe_next() {
            if form == Form::Many && begins_vector(word) {
                let mut at = cursor.position() - 1;
                self.parse_element(args, &mut at, form)?;
                cursor = args.cursor(at);
            } else {
                self.parse_option(word, &mut cursor)?;
            }
        }
        Ok(())
    }

    fn parse_option(&mut self, word: &[u8], cursor: &mut Cursor<'a>) -> Outcome {
        const INVALID_OPTION: CommandError = CommandError::text("ERR invalid option after element");
        if is_word(word, "CAS") {
            // Every insert is checked against the set as it is when it is linked: there is nothing more to ask for.
        } else if is_word(word, "NOQUANT") {
            self.quantization = Quantization::None;
        } else if is_word(word, "Q8") {
            self.quantization = Quantization::Q8;
        } else if is_word(word, "BIN") {
            self.quantization = Quantization::Bin;
        } else if is_word(word, "EF") {
            let ef = parse_i64(cursor.maybe_next().ok_or(INVALID_OPTION)?);
            let ef = ef.filter(|ef| (1..=MAX_EF).contains(ef));
            self.ef = ef.ok_or(CommandError::text("ERR invalid EF"))? as usize;
        } else if is_word(word, "SETATTR") {
            let attribute = Some(cursor.maybe_next().ok_or(INVALID_OPTION)?);
            self.elements.last_mut().expect("options follow an element").attribute = attribute;
        } else if is_word(word, "M") {
            let m = parse_i64(cursor.maybe_next().ok_or(INVALID_OPTION)?);
            let m = m.and_then(|m| u32::try_from(m).ok()).filter(|m| (MIN_M..=MAX_M).contains(m));
            self.m = m.ok_or(CommandError::text("ERR invalid M"))?;
        } else if is_word(word, "METRIC") {
            self.metric = Some(match cursor.maybe_next().ok_or(INVALID_OPTION)? {
                name if is_word(name, "COSINE") => Metric::Cosine,
                name if is_word(name, "L2") => Metric::L2,
                name if is_word(name, "IP") => Metric::Ip,
                _ => return Err(CommandError::text("ERR invalid METRIC")),
            });
        } else {
            return Err(INVALID_OPTION);
        }
        Ok(())
    }

    /// What a set of these elements is made with.
    fn new_set(&self, ctx: &mut Ctx<'_>) -> Result<(Params, Option<Projection>), CommandError> {
        let input_dim = self.elements[0].vector.len() as u32;
        self.check_dims(input_dim as usize, |got| mismatch(got, input_dim as usize))?;
        // Redis 8.2.3 writes beyond its matrix here; later versions refuse.
        if self.reduce_dim.is_some_and(|dim| dim > input_dim) {
            return Err(INVALID_VECTOR);
        }
        let projection = self.reduce_dim.map(|dim| Projection::new(input_dim, dim));
        let metric = self.metric.unwrap_or_default();
        if metric != Metric::Cosine && self.quantization == Quantization::Bin {
            return Err(CommandError::text("ERR BIN vector sets know only the COSINE metric"));
        }
        let dim = self.reduce_dim.unwrap_or(input_dim);
        let params = Params {
            quantization: self.quantization,
            metric,
            ..new_params(ctx.config, dim, self.m, ctx.shard.random())
        };
        Ok((params, projection))
    }

    /// Whether it fits an existing set. What is not said means the default, which has to fit as well.
    fn check_against(&self, handle: &VectorHandle) -> Outcome {
        let params = handle.set.params();
        if self.quantization != params.quantization {
            return Err(CommandError::text("ERR asked quantization mismatch with existing vector set"));
        }
        if self.m != params.m {
            return Err(CommandError::text("ERR asked M value mismatch with existing vector set"));
        }
        if self.metric.is_some_and(|metric| metric != params.metric) {
            return Err(CommandError::text("ERR asked METRIC mismatch with existing vector set"));
        }
        let dim = params.dim as usize;
        match (&handle.projection, self.reduce_dim) {
            (Some(projection), Some(reduce_dim)) if reduce_dim == params.dim => {
                let input_dim = projection.input_dim() as usize;
                self.check_dims(input_dim, |got| projection_mismatch(got, input_dim))
            }
            (Some(_), _) => Err(mismatch(self.elements[0].vector.len(), dim)),
            (None, _) => {
                self.check_dims(dim, |got| mismatch(got, dim))?;
                match self.reduce_dim {
                    Some(_) => Err(CommandError::text(
                        "ERR cannot add projection to existing set without projection",
                    )),
                    None => Ok(()),
                }
            }
        }
    }

    fn check_dims(&self, dim: usize, error: impl Fn(usize) -> CommandError) -> Outcome {
        match self.elements.iter().map(|element| element.vector.len()).find(|got| *got != dim) {
            Some(got) => Err(error(got)),
            None => Ok(()),
        }
    }

    /// Goes on planning; `None` if nothing is to be planned. Stops when the turn has no distances left.
    fn plan(&self, ctx: &mut Ctx<'_>, handle: &VectorHandle, mut plan: AdditionPlan) -> Option<AdditionPlan> {
        let (set, dim) = (&handle.set, handle.set.params().dim);
        while let Some(element) = self.elements.get(plan.planned.len()) {
            let budget = ctx.work.distances(dim).min(ctx.work.sizes.plan);
            if budget == 0 {
                ctx.work.is_unfinished = true;
                return Some(plan);
            }
            let mut next = match plan.next.take() {
                Some(next) => next,
                None => {
                    let vector = element.stored(handle).ok()?;
                    let (random, scratch) = (ctx.shard.random(), ctx.work.scratch());
                    let begun =
                        with_reader(|guard, _| set.begin_insertion(&vector, self.ef, random, scratch, guard));
                    begun.ok()?
                }
            };
            let mut left = budget;
            let progress = with_reader(|guard, _| next.step(set, &mut left, guard));
            ctx.work.spend(budget - left, dim);
            match progress {
                Progress::Unfinished => {
                    plan.next = Some(next);
                    ctx.work.is_unfinished = true;
                    return Some(plan);
                }
                Progress::Done => {
                    let (planned, scratch) = next.finish();
                    ctx.work.give_back(scratch);
                    plan.planned.push(planned);
                }
            }
        }
        Some(plan)
    }

    /// Adds all, as planned as far as the plans are for this set; how many are new.
    fn apply(&self, value: &mut VectorValue, plans: &[Planned]) -> Result<usize, CommandError> {
        let handle = value.handle.clone();
        let writer = value.writer();
        let mut n_new = 0;
        for (at, element) in self.elements.iter().enumerate() {
            let plan = plans.get(at).filter(|plan| plan.is_for(&handle.set));
            let added = match plan {
                Some(plan) => with_reader(|_, scratch| {
                    writer.commit(element.name, plan, element.attribute, self.ef, scratch)
                }),
                None => {
                    let vector = element.stored(&handle)?;
                    with_reader(|_, scratch| {
                        writer.add(element.name, &vector, element.attribute, self.ef, scratch)
                    })
                }
            };
            n_new += usize::from(added.map_err(error_of)? == Added::New);
        }
        Ok(n_new)
    }
}

impl Element<'_> {
    /// The vector as it is stored: projected, if the set is.
    fn stored(&self, handle: &VectorHandle) -> Result<Cow<'_, [f32]>, CommandError> {
        match &handle.projection {
            Some(projection) => Ok(Cow::Owned(projection.apply(&self.vector)?)),
            None => Ok(Cow::Borrowed(&self.vector)),
        }
    }
}

pub(super) fn projection_mismatch(got: usize, expected: usize) -> CommandError {
    CommandError::format(format!(
        "ERR Input dimension mismatch for projection - got {got} but projection expects {expected}"
    ))
}
