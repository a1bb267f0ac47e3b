//! Vector set commands (<https://redis.io/docs/latest/commands/?group=module>), float32 sets (NOQUANT) so far.
//!
//! VADD, VREM and VSETATTR run at the owner, the only one who writes. The others run on the worker that received
//! them, on the published set, while the owner goes on writing: a handler pins the thread's epoch once, and what it
//! borrows lives as long.
//!
//! Departures from Redis:
//! 1. A vector with a component that is no finite float32 is refused as an invalid specification.
//! 2. An empty SETATTR on a new element gives it no attribute.
//! 3. Q8, BIN, REDUCE and FILTER are refused: they are not built yet.
//!
//! Redis registers these commands without arity: each handler counts its arguments before it touches them.

use skerry_resp::number::{parse_f64, parse_i64};
use skerry_resp::reply::Proto;
use skerry_vectorset::{Added, Error, Hits, MAX_DIM, MAX_M, MIN_M, Params, Query};

use crate::args::{Args, Cursor, is_word};
use crate::command::{Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{EntryMut, Key, NewValue, Object, Ttl};
use crate::shard::EventClass;
use crate::vector::{VectorHandle, VectorValue, with_reader};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("VADD", -1, Handler::Shard(vadd), "Adds an element with its vector, or replaces the vector of one.").flags(Flags::DENYOOM.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VSIM", -1, Handler::Any(vsim), "The elements most similar to a vector or to an element.").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VREM", -1, Handler::Shard(vrem), "Removes an element.").flags(Flags::MODULE.with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VCARD", -1, Handler::Any(vcard), "How many elements a vector set has.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VDIM", -1, Handler::Any(vdim), "How many components its vectors have.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VEMB", -1, Handler::Any(vemb), "The vector of an element.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VINFO", -1, Handler::Any(vinfo), "What a vector set is made of.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VISMEMBER", -1, Handler::Any(vismember), "Whether a vector set has an element.").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VGETATTR", -1, Handler::Any(vgetattr), "The attribute text of an element.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VSETATTR", -1, Handler::Shard(vsetattr), "Sets or removes the attribute text of an element.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
];

/// What an `Any` handler finds behind its key.
type Found<'a> = Result<Option<&'a VectorHandle>, CommandError>;

const DEFAULT_M: u32 = 16;
const DEFAULT_EF_CONSTRUCTION: usize = 200;
const MAX_EF_CONSTRUCTION: i64 = 1_000_000;
const DEFAULT_EF_SEARCH: usize = 100;
const DEFAULT_COUNT: usize = 10;

const INVALID_VECTOR: CommandError = CommandError::text("ERR invalid vector specification");
const ELEMENT_NOT_FOUND: CommandError = CommandError::text("ERR element not found in set");
const ONLY_NOQUANT: CommandError =
    CommandError::text("ERR Q8 and BIN vector sets are not supported yet by Skerry: use NOQUANT");
const NO_REDUCE: CommandError = CommandError::text("ERR REDUCE is not supported yet by Skerry");
const NO_FILTER: CommandError = CommandError::text("ERR FILTER is not supported yet by Skerry");

fn vadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let addition = Addition::parse(args)?;
    let key = ctx.key(args, 1);
    match add(ctx, &key, &addition) {
        Ok(added) => {
            ctx.changed(&key, EventClass::Module, "vadd");
            ctx.reply.boolean(added == Added::New);
            Ok(())
        }
        Err(error) => {
            ctx.touched(&key);
            Err(error)
        }
    }
}

fn add(ctx: &mut Ctx<'_>, key: &Key<'_>, addition: &Addition<'_>) -> Result<Added, CommandError> {
    let at = ctx.at();
    let Some(entry) = ctx.shard.edit(at, key) else { return create(ctx, key, addition) };
    let expire_at_ms = entry.as_ref().expire_at();
    let value = vector_mut(entry)?;
    addition.check_against(value.handle.set.params())?;
    let added = addition.apply(value)?;
    if ctx.server.n_shards > 1 {
        ctx.server.vectors.publish(at.db, key.bytes, &value.handle, expire_at_ms);
    }
    Ok(added)
}

/// A new set with its first element.
fn create(ctx: &mut Ctx<'_>, key: &Key<'_>, addition: &Addition<'_>) -> Result<Added, CommandError> {
    if addition.quantization != Quantization::None {
        return Err(ONLY_NOQUANT);
    }
    if addition.reduce_dim.is_some() {
        return Err(NO_REDUCE);
    }
    let dim = u32::try_from(addition.vector.len()).map_err(|_| INVALID_VECTOR)?;
    let mut value = VectorValue::new(Params::new(dim, addition.m, ctx.shard.random()));
    let added = addition.apply(&mut value)?;
    let handle = value.handle.clone();
    let at = ctx.at();
    ctx.shard.insert(at, key, NewValue::Object(Object::Vector(Box::new(value))), Ttl::Clear);
    if ctx.server.n_shards > 1 {
        ctx.server.vectors.publish(at.db, key.bytes, &handle, None);
    }
    Ok(added)
}

fn vector_mut(entry: EntryMut<'_>) -> Result<&mut VectorValue, CommandError> {
    match entry.into_object_mut() {
        Some(Object::Vector(value)) => Ok(value),
        _ => Err(CommandError::WrongType),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantization {
    None,
    Bits8,
    Binary,
}

/// The arguments of VADD.
struct Addition<'a> {
    vector: Vec<f32>,
    reduce_dim: Option<i64>,
    element: &'a [u8],
    quantization: Quantization,
    ef: usize,
    m: u32,
    attribute: Option<&'a [u8]>,
}

impl<'a> Addition<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        expect(args.len() >= 5, "VADD")?;
        let mut at = 2;
        let mut reduce_dim = None;
        if is_word(args.get(2), "REDUCE") {
            reduce_dim = Some(parse_i64(args.get(3)).filter(|dim| *dim > 0).ok_or(INVALID_VECTOR)?);
            at = 4;
        }
        let vector = parse_vector(args, &mut at).ok_or(INVALID_VECTOR)?;
        expect(at < args.len(), "VADD")?;
        let mut addition = Self {
            vector,
            reduce_dim,
            element: args.get(at),
            quantization: Quantization::Bits8,
            ef: DEFAULT_EF_CONSTRUCTION,
            m: DEFAULT_M,
            attribute: None,
        };
        addition.parse_options(args.cursor(at + 1))?;
        Ok(addition)
    }

    /// The words after the element, in any order; the last of a kind counts.
    fn parse_options(&mut self, mut cursor: Cursor<'a>) -> Outcome {
        const INVALID_OPTION: CommandError = CommandError::text("ERR invalid option after element");
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "CAS") {
                // Every insert is planned and linked in one go at the owner: there is no race to check for.
            } else if is_word(word, "NOQUANT") {
                self.quantization = Quantization::None;
            } else if is_word(word, "Q8") {
                self.quantization = Quantization::Bits8;
            } else if is_word(word, "BIN") {
                self.quantization = Quantization::Binary;
            } else if is_word(word, "EF") {
                let ef = parse_i64(cursor.maybe_next().ok_or(INVALID_OPTION)?);
                let ef = ef.filter(|ef| (1..=MAX_EF_CONSTRUCTION).contains(ef));
                self.ef = ef.ok_or(CommandError::text("ERR invalid EF"))? as usize;
            } else if is_word(word, "SETATTR") {
                self.attribute = Some(cursor.maybe_next().ok_or(INVALID_OPTION)?);
            } else if is_word(word, "M") {
                let m = parse_i64(cursor.maybe_next().ok_or(INVALID_OPTION)?);
                let m = m.and_then(|m| u32::try_from(m).ok()).filter(|m| (MIN_M..=MAX_M).contains(m));
                self.m = m.ok_or(CommandError::text("ERR invalid M"))?;
            } else {
                return Err(INVALID_OPTION);
            }
        }
        Ok(())
    }

    /// Whether it fits an existing set. What is not said means the default, which has to fit as well.
    fn check_against(&self, params: Params) -> Outcome {
        if self.quantization != Quantization::None {
            return Err(CommandError::text("ERR asked quantization mismatch with existing vector set"));
        }
        if self.m != params.m {
            return Err(CommandError::text("ERR asked M value mismatch with existing vector set"));
        }
        check_dim(self.vector.len(), params)?;
        match self.reduce_dim {
            Some(_) => {
                Err(CommandError::text("ERR cannot add projection to existing set without projection"))
            }
            None => Ok(()),
        }
    }

    fn apply(&self, value: &mut VectorValue) -> Result<Added, CommandError> {
        let writer = value.writer();
        with_reader(|_, scratch| writer.add(self.element, &self.vector, self.attribute, self.ef, scratch))
            .map_err(error_of)
    }
}

/// The vector that begins at argument `at`, which moves past it: `FP32 blob` or `VALUES n v1 ... vn`.
fn parse_vector(args: Args<'_>, at: &mut usize) -> Option<Vec<f32>> {
    let mut cursor = args.cursor(*at);
    let form = cursor.maybe_next()?;
    let vector: Vec<f32> = if is_word(form, "FP32") {
        let (numbers, rest) = cursor.maybe_next()?.as_chunks();
        if !rest.is_empty() {
            return None;
        }
        numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    } else if is_word(form, "VALUES") {
        let dim = usize::try_from(parse_i64(cursor.maybe_next()?)?).ok()?;
        if dim > cursor.left() {
            return None;
        }
        (0..dim).map(|_| Some(parse_f64(cursor.maybe_next()?)? as f32)).collect::<Option<_>>()?
    } else {
        return None;
    };
    *at = cursor.position();
    let is_sound = (1..=MAX_DIM as usize).contains(&vector.len()) && vector.iter().all(|x| x.is_finite());
    is_sound.then_some(vector)
}

fn vrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VREM")?;
    let key = ctx.key(args, 1);
    let at = ctx.at();
    let removed = match ctx.shard.edit(at, &key).map(vector_mut) {
        None => Ok(false),
        Some(Err(error)) => Err(error),
        Some(Ok(value)) => {
            let writer = value.writer();
            let is_removed = with_reader(|_, scratch| writer.remove(args.get(2), scratch));
            if value.handle.set.is_empty() {
                ctx.shard.remove(at, &key);
            }
            Ok(is_removed)
        }
    };
    report(ctx, &key, removed, "vrem")
}

fn vsetattr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 4, "VSETATTR")?;
    let key = ctx.key(args, 1);
    let at = ctx.at();
    let is_set = match ctx.shard.edit(at, &key).map(vector_mut) {
        None => Ok(false),
        Some(Err(error)) => Err(error),
        Some(Ok(value)) => Ok(value.writer().set_attribute(args.get(2), Some(args.get(3)))),
    };
    report(ctx, &key, is_set, "vsetattr")
}

/// Tells the shard and the client what became of a change of one element.
fn report(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    changed: Result<bool, CommandError>,
    event: &'static str,
) -> Outcome {
    match changed {
        Ok(true) => ctx.changed(key, EventClass::Module, event),
        Ok(false) | Err(_) => ctx.touched(key),
    }
    ctx.reply.boolean(changed?);
    Ok(())
}

fn vsim(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() >= 4, "VSIM")?;
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let set = &handle.set;
    let (target, options_at) = Target::parse(args)?;
    if let Target::Vector(vector) = &target {
        check_dim(vector.len(), set.params())?;
    }
    let options = SearchOptions::parse(args.cursor(options_at));
    with_reader(|guard, scratch| {
        let query = match &target {
            Target::Element(element) if options.is_err() && !set.contains(element, guard) => {
                return Err(ELEMENT_NOT_FOUND);
            }
            Target::Element(element) => Query::Element(element),
            Target::Vector(vector) => Query::Vector(vector),
        };
        let options = options?;
        let hits = match options.way {
            Way::Graph => set.search(query, options.count, options.ef, scratch, guard),
            Way::Scan => set.search_exact(query, options.count, scratch, guard),
        };
        match hits {
            Ok(hits) => options.reply(ctx, &hits),
            // Deleted a moment ago: no element, and no key either.
            Err(Error::ElementNotFound) if set.is_empty() => ctx.reply.array(0),
            Err(error) => return Err(error_of(error)),
        }
        Ok(())
    })
}

/// What VSIM looks for.
enum Target<'a> {
    Element(&'a [u8]),
    Vector(Vec<f32>),
}

impl<'a> Target<'a> {
    /// The target and where the options begin.
    fn parse(args: Args<'a>) -> Result<(Self, usize), CommandError> {
        if is_word(args.get(2), "ELE") {
            return Ok((Target::Element(args.get(3)), 4));
        }
        let mut at = 2;
        let vector = parse_vector(args, &mut at).ok_or(INVALID_VECTOR)?;
        Ok((Target::Vector(vector), at))
    }
}

/// How VSIM finds the nearest.
enum Way {
    Graph,
    Scan,
}

/// The options of VSIM.
struct SearchOptions {
    count: usize,
    ef: usize,
    way: Way,
    /// Results whose distance, halved, is above it are cut off.
    epsilon: Option<f32>,
    withscores: bool,
    withattribs: bool,
}

impl SearchOptions {
    fn parse(mut cursor: Cursor<'_>) -> Result<Self, CommandError> {
        const SYNTAX: CommandError = CommandError::text("ERR syntax error in VSIM command");
        let mut options = Self {
            count: DEFAULT_COUNT,
            ef: DEFAULT_EF_SEARCH,
            way: Way::Graph,
            epsilon: None,
            withscores: false,
            withattribs: false,
        };
        let positive = |text: &[u8], error| {
            let value = parse_i64(text).filter(|value| *value > 0);
            value.map(|value| value as usize).ok_or(CommandError::text(error))
        };
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "WITHSCORES") {
                options.withscores = true;
            } else if is_word(word, "WITHATTRIBS") {
                options.withattribs = true;
            } else if is_word(word, "TRUTH") {
                options.way = Way::Scan;
            } else if is_word(word, "NOTHREAD") {
                // A search runs on one thread anyway.
            } else if is_word(word, "COUNT") {
                options.count = positive(cursor.maybe_next().ok_or(SYNTAX)?, "ERR invalid COUNT")?;
            } else if is_word(word, "EF") {
                options.ef = positive(cursor.maybe_next().ok_or(SYNTAX)?, "ERR invalid EF")?;
            } else if is_word(word, "EPSILON") {
                let epsilon = parse_f64(cursor.maybe_next().ok_or(SYNTAX)?).filter(|epsilon| *epsilon > 0.0);
                options.epsilon = Some(epsilon.ok_or(CommandError::text("ERR invalid EPSILON"))? as f32);
            } else if is_word(word, "FILTER-EF") {
                positive(cursor.maybe_next().ok_or(SYNTAX)?, "ERR invalid FILTER-EF")?;
            } else if is_word(word, "FILTER") {
                cursor.maybe_next().ok_or(SYNTAX)?;
                return Err(NO_FILTER);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    fn reply(&self, ctx: &mut Ctx<'_>, hits: &Hits<'_>) {
        let n_hits = match self.epsilon {
            Some(epsilon) => hits.iter().take_while(|hit| (1.0 - hit.score) as f32 <= epsilon).count(),
            None => hits.len(),
        };
        let is_map = ctx.reply.proto() == Proto::Resp3 && (self.withscores || self.withattribs);
        if is_map {
            ctx.reply.map(n_hits);
        } else {
            ctx.reply.array(n_hits * (1 + usize::from(self.withscores) + usize::from(self.withattribs)));
        }
        for hit in hits.iter().take(n_hits) {
            ctx.reply.bulk(hit.name);
            if is_map && self.withscores && self.withattribs {
                ctx.reply.array(2);
            }
            if self.withscores {
                ctx.reply.double(hit.score);
            }
            if self.withattribs {
                bulk_or_null(ctx, hit.attribute());
            }
        }
    }
}

fn vcard(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 2, "VCARD")?;
    let len = present(ctx, found)?.map_or(0, |handle| handle.set.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

fn vdim(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 2, "VDIM")?;
    let handle = present(ctx, found)?.ok_or(CommandError::text("ERR key does not exist"))?;
    ctx.reply.integer(i64::from(handle.set.params().dim));
    Ok(())
}

fn vemb(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() >= 3, "VEMB")?;
    if !args.from(3).all(|word| is_word(word, "RAW")) {
        return Err(CommandError::text("ERR invalid option"));
    }
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.null();
        return Ok(());
    };
    let (set, element) = (&handle.set, args.get(2));
    if args.len() > 3 {
        match with_reader(|guard, _| set.vector_raw(element, guard)) {
            Some((row, l2)) => {
                let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                ctx.reply.array(3);
                ctx.reply.simple("f32");
                ctx.reply.bulk(&bytes);
                // Redis keeps the length in float32 and prints what that widens to.
                ctx.reply.double(f64::from(l2 as f32));
            }
            None => ctx.reply.null(),
        }
        return Ok(());
    }
    match with_reader(|guard, _| set.vector(element, guard)) {
        Some(vector) => {
            ctx.reply.array(vector.len());
            vector.iter().for_each(|x| ctx.reply.double(f64::from(*x)));
        }
        None => ctx.reply.null(),
    }
    Ok(())
}

fn vinfo(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 2, "VINFO")?;
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.null_array();
        return Ok(());
    };
    let set = &handle.set;
    let params = set.params();
    let numbers = [
        ("hnsw-m", i64::from(params.m)),
        ("vector-dim", i64::from(params.dim)),
        ("projection-input-dim", 0),
        ("size", set.len() as i64),
        ("max-level", with_reader(|guard, _| set.max_level(guard)) as i64),
        ("attributes-count", set.attributes_count() as i64),
        ("vset-uid", set.uid() as i64),
        ("hnsw-max-node-uid", set.max_node_uid() as i64),
    ];
    ctx.reply.map(1 + numbers.len());
    ctx.reply.simple("quant-type");
    ctx.reply.simple("f32");
    for (name, number) in numbers {
        ctx.reply.simple(name);
        ctx.reply.integer(number);
    }
    Ok(())
}

fn vismember(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VISMEMBER")?;
    let handle = present(ctx, found)?;
    let is_member =
        handle.is_some_and(|handle| with_reader(|guard, _| handle.set.contains(args.get(2), guard)));
    ctx.reply.boolean(is_member);
    Ok(())
}

fn vgetattr(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VGETATTR")?;
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.null();
        return Ok(());
    };
    with_reader(|guard, _| bulk_or_null(ctx, handle.set.attribute(args.get(2), guard)));
    Ok(())
}

/// The set that a reading command has found; a hit or a miss. A set without elements is being deleted.
fn present<'a>(ctx: &mut Ctx<'_>, found: Found<'a>) -> Result<Option<&'a VectorHandle>, CommandError> {
    let handle = found?.filter(|handle| !handle.set.is_empty());
    match handle {
        Some(_) => ctx.shard.stats.keyspace_hits += 1,
        None => ctx.shard.stats.keyspace_misses += 1,
    }
    Ok(handle)
}

fn bulk_or_null(ctx: &mut Ctx<'_>, text: Option<&[u8]>) {
    match text {
        Some(text) => ctx.reply.bulk(text),
        None => ctx.reply.null(),
    }
}

fn expect(is_fitting: bool, command: &'static str) -> Outcome {
    if is_fitting { Ok(()) } else { Err(CommandError::WrongArity(command)) }
}

fn check_dim(got: usize, params: Params) -> Outcome {
    let expected = params.dim as usize;
    if got == expected { Ok(()) } else { Err(error_of(Error::DimensionMismatch { got, expected })) }
}

fn error_of(error: Error) -> CommandError {
    match error {
        Error::DimensionMismatch { got, expected } => {
            CommandError::format(format!("ERR Vector dimension mismatch - got {got} but set has {expected}"))
        }
        Error::NotFinite => INVALID_VECTOR,
        Error::ElementNotFound => ELEMENT_NOT_FOUND,
        Error::Full => CommandError::text("ERR vector set is full"),
    }
}
