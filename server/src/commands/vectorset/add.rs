//! VADD, and VMADD of many elements: what they say, and the change at the owner.
//!
//! VMADD is Skerry's own. Its grammar is VADD's with the vector, its element and SETATTR repeated; the other options hold
//! for all. Nothing is added unless everything fits. Many elements are added in slices, by a job that holds the key: other
//! clients of the owner wait for it, while searches on other cores go on and may find some of them before the others.
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

use super::addition_job::{AdditionJob, Place};
use super::input::{begins_vector, check_vector, parse_reduce, parse_vector};
use super::{INVALID_VECTOR, error_of, expect, mismatch};
use crate::access::At;
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, NewValue, Object, Ttl};
use crate::projection::Projection;
use crate::shard::EventClass;
use crate::vector::{VectorHandle, VectorValue, new_params, note_upkeep, with_reader};
use crate::work::{Addition as AdditionPlan, Begun, Plans};

const DEFAULT_M: u32 = 16;
const DEFAULT_EF: usize = 200;
const MAX_EF: i64 = 1_000_000;

pub(super) fn vadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    change(ctx, args, Form::One)
}

pub(super) fn vmadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    change(ctx, args, Form::Many)
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
    let mut before = match ctx.work.begun.take() {
        Some(Begun::Addition(before)) if before.is_for(set) => *before,
        Some(Begun::Addition(_) | Begun::Search(_)) | None => AdditionPlan::default(),
    };
    if set.len() < ctx.work.sizes.min_planned_len {
        return;
    }
    let read = before.request.take().and_then(|request| request.downcast::<Fitting>().ok());
    let fitting = match read.filter(|fitting| fitting.set_uid == set.uid()) {
        Some(fitting) => fitting,
        None => {
            let Ok(addition) = Addition::parse(args, form) else { return };
            if addition.check_against(handle).is_err() {
                return;
            }
            Box::new(Fitting { addition, set_uid: set.uid() })
        }
    };
    if let Some(mut plan) = fitting.addition.plan(ctx, args, handle, before) {
        plan.request = Some(fitting);
        ctx.work.begun = Some(Begun::Addition(Box::new(plan)));
    }
}

/// A request that fits the set.
struct Fitting {
    addition: Addition,
    set_uid: u64,
}

/// Adds, tells the shard and answers; or leaves that to a job.
fn change(ctx: &mut Ctx<'_>, args: Args<'_>, form: Form) -> Outcome {
    let addition = Addition::parse(args, form)?;
    let key = ctx.key(args, 1);
    match add(ctx, args, &key, addition) {
        Ok(Some(n_new)) => {
            report(ctx, &key, form, n_new);
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(error) => {
            ctx.touched(&key);
            Err(error)
        }
    }
}

/// Tells the shard, and answers.
pub(super) fn report(ctx: &mut Ctx<'_>, key: &Key<'_>, form: Form, n_new: usize) {
    ctx.changed(key, EventClass::Module, "vadd");
    match form {
        Form::One => ctx.reply.boolean(n_new > 0),
        Form::Many => ctx.reply.integer(n_new as i64),
    }
}

/// How many elements are new, if they are added at once.
fn add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    key: &Key<'_>,
    addition: Addition,
) -> Result<Option<usize>, CommandError> {
    let at = ctx.at();
    let plans = ctx.work.take_plans().unwrap_or_default();
    let Some(mut entry) = ctx.shard.edit(at, key) else {
        ctx.work.count_plans(plans.len(), 0);
        return create(ctx, args, key, addition);
    };
    let expire_at_ms = entry.as_ref().expire_at();
    let value = match entry.object_mut() {
        Some(Object::Vector(value)) => value,
        _ => return Err(CommandError::WrongType),
    };
    addition.check_against(&value.handle)?;
    let n_right = plans.iter().filter(|plan| plan.is_for(&value.handle.set)).count();
    ctx.work.count_plans(plans.len(), n_right);
    if addition.is_long(n_right) {
        // Not even its deadline touches it meanwhile.
        entry.hold();
        ctx.job = Some(Box::new(AdditionJob::new(addition, args, key, at, Place::Keyspace, plans)));
        return Ok(None);
    }
    let added = addition.apply(args, value, &plans)?;
    let has_upkeep = value.writer().has_upkeep();
    if ctx.server.n_shards > 1 {
        ctx.server.vectors.publish(at.db, key.bytes, &value.handle, expire_at_ms);
    }
    if has_upkeep {
        note_upkeep(ctx.shard, at.db, key.bytes);
    }
    Ok(Some(added))
}

/// A new set with its first elements.
fn create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    key: &Key<'_>,
    addition: Addition,
) -> Result<Option<usize>, CommandError> {
    let (params, projection) = addition.new_set(ctx)?;
    let mut value = Box::new(VectorValue::new(params, projection));
    if addition.is_long(0) {
        let job = AdditionJob::new(addition, args, key, ctx.at(), Place::New(Some(value)), Plans::new());
        ctx.job = Some(Box::new(job));
        return Ok(None);
    }
    let added = addition.apply(args, &mut value, &[])?;
    insert_new(ctx, ctx.at(), key, value);
    Ok(Some(added))
}

/// Makes a key of a new set.
pub(super) fn insert_new(ctx: &mut Ctx<'_>, at: At, key: &Key<'_>, value: Box<VectorValue>) {
    let handle = value.handle.clone();
    ctx.shard.insert(at, key, NewValue::Object(Object::Vector(value.into())), Ttl::Clear);
    if ctx.server.n_shards > 1 {
        ctx.server.vectors.publish(at.db, key.bytes, &handle, None);
    }
}

/// How many elements the arguments may name, and how the answer counts them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
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
pub(super) struct Addition {
    pub(super) form: Form,
    pub(super) elements: SmallVec<[Element; 1]>,
    reduce_dim: Option<u32>,
    quantization: Quantization,
    pub(super) ef: usize,
    m: u32,
    metric: Option<Metric>,
}

/// Texts are arguments, by index: so it lasts as long as it has to.
pub(super) struct Element {
    /// As the client gave it, if it is read already.
    vector: Option<Vec<f32>>,
    vector_at: usize,
    dim: usize,
    name: usize,
    attribute: Option<usize>,
}

impl Addition {
    fn parse(args: Args<'_>, form: Form) -> Result<Self, CommandError> {
        expect(args.len() >= 5, form.name())?;
        let mut at = 2;
        let mut addition = Self {
            form,
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
    fn parse_element(&mut self, args: Args<'_>, at: &mut usize, form: Form) -> Outcome {
        let vector_at = *at;
        let (vector, dim) = match form {
            Form::One => {
                let vector = parse_vector(args, at)?;
                let dim = vector.len();
                (Some(vector), dim)
            }
            // Many are read one by one, when their turn comes.
            Form::Many => (None, check_vector(args, at)?),
        };
        expect(*at < args.len(), form.name())?;
        self.elements.push(Element { vector, vector_at, dim, name: *at, attribute: None });
        *at += 1;
        Ok(())
    }

    /// The words after an element, in any order; the last of a kind counts.
    fn parse_options(&mut self, args: Args<'_>, at: usize, form: Form) -> Outcome {
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

    fn parse_option(&mut self, word: &[u8], cursor: &mut Cursor<'_>) -> Outcome {
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
            let at = cursor.position();
            cursor.maybe_next().ok_or(INVALID_OPTION)?;
            self.elements.last_mut().expect("options follow an element").attribute = Some(at);
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
        let input_dim = self.elements[0].dim as u32;
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
            (Some(_), _) => Err(mismatch(self.elements[0].dim, dim)),
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
        match self.elements.iter().map(|element| element.dim).find(|got| *got != dim) {
            Some(got) => Err(error(got)),
            None => Ok(()),
        }
    }

    /// Goes on planning; `None` if nothing is to be planned. Stops when the turn has no distances left.
    fn plan(
        &self,
        ctx: &mut Ctx<'_>,
        args: Args<'_>,
        handle: &VectorHandle,
        mut plan: AdditionPlan,
    ) -> Option<AdditionPlan> {
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
                    let vector = element.stored(args, handle).ok()?;
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

    /// Whether adding it, so many of its elements as planned, is to be cut into slices. One element never is.
    fn is_long(&self, n_planned: usize) -> bool {
        const MAX_AT_ONCE_UNITS: usize = 48_000;
        const COMMIT_UNITS: usize = 1_200;
        const INSERT_UNITS: usize = 7_200;
        let n = self.elements.len();
        n > 1 && n_planned * COMMIT_UNITS + (n - n_planned) * INSERT_UNITS > MAX_AT_ONCE_UNITS
    }

    /// Adds all, as planned as far as the plans are for this set; how many are new.
    fn apply(
        &self,
        args: Args<'_>,
        value: &mut VectorValue,
        plans: &[Planned],
    ) -> Result<usize, CommandError> {
        let mut n_new = 0;
        for (at, element) in self.elements.iter().enumerate() {
            let plan = plans.get(at).filter(|plan| plan.is_for(&value.handle.set));
            let added = match plan {
                Some(plan) => element.commit(args, value, plan, self.ef)?,
                None => element.add(args, value, self.ef)?,
            };
            n_new += usize::from(added == Added::New);
        }
        Ok(n_new)
    }
}

impl Element {
    /// The vector as it is stored: projected, if the set is.
    pub(super) fn stored(
        &self,
        args: Args<'_>,
        handle: &VectorHandle,
    ) -> Result<Cow<'_, [f32]>, CommandError> {
        let vector = match &self.vector {
            Some(vector) => Cow::Borrowed(&**vector),
            None => Cow::Owned(parse_vector(args, &mut { self.vector_at })?),
        };
        match &handle.projection {
            Some(projection) => Ok(Cow::Owned(projection.apply(&vector)?)),
            None => Ok(vector),
        }
    }

    /// Adds it as it was planned.
    pub(super) fn commit(
        &self,
        args: Args<'_>,
        value: &mut VectorValue,
        plan: &Planned,
        ef: usize,
    ) -> Result<Added, CommandError> {
        let writer = value.writer();
        let (name, attribute) = (args.get(self.name), self.attribute.map(|at| args.get(at)));
        with_reader(|_, scratch| writer.commit(name, plan, attribute, ef, scratch)).map_err(error_of)
    }

    /// Adds it without a plan.
    pub(super) fn add(
        &self,
        args: Args<'_>,
        value: &mut VectorValue,
        ef: usize,
    ) -> Result<Added, CommandError> {
        let vector = self.stored(args, &value.handle)?;
        let writer = value.writer();
        let (name, attribute) = (args.get(self.name), self.attribute.map(|at| args.get(at)));
        with_reader(|_, scratch| writer.add(name, &vector, attribute, ef, scratch)).map_err(error_of)
    }
}

pub(super) fn projection_mismatch(got: usize, expected: usize) -> CommandError {
    CommandError::format(format!(
        "ERR Input dimension mismatch for projection - got {got} but projection expects {expected}"
    ))
}
