//! ZUNION, ZINTER, ZDIFF, the forms that store, and ZINTERCARD. Inputs are sorted sets and sets. AGGREGATE COUNT is Redis 8.8's.

use super::Form;
use super::range::store;
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::keyspace::Key;
use crate::types::aggregate::{
    Aggregate, Source, Weighted, difference, intersection, intersection_len, union,
};
use crate::types::zset::Scored;
use crate::types::{Limits, Zset};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
    /// ZINTERCARD.
    Count,
}

/// Where the answer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Reply,
    Key,
}

/// What the words behind the keys say.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

impl Options {
    fn parse(
        args: Args<'_>,
        first: usize,
        n_keys: usize,
        operation: Operation,
        to: To,
    ) -> Result<Self, CommandError> {
        let mut options = Self {
            weights: vec![1.0; n_keys],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: usize::MAX,
        };
        let has_scores = matches!(operation, Operation::Union | Operation::Intersection);
        let mut cursor = args.cursor(first);
        while let Some(word) = cursor.maybe_next() {
            if has_scores && cursor.left() >= n_keys && is_word(word, "weights") {
                for weight in &mut options.weights {
                    *weight = skerry_resp::parse_f64(cursor.value()?)
                        .ok_or(CommandError::text("ERR weight value is not a float"))?;
                }
            } else if has_scores && cursor.left() >= 1 && is_word(word, "aggregate") {
                options.aggregate = match cursor.value()? {
                    word if is_word(word, "sum") => Aggregate::Sum,
                    word if is_word(word, "min") => Aggregate::Min,
                    word if is_word(word, "max") => Aggregate::Max,
                    word if is_word(word, "count") => Aggregate::Count,
                    _ => return Err(CommandError::Syntax),
                };
            } else if to == To::Reply && operation != Operation::Count && is_word(word, "withscores") {
                options.with_scores = true;
            } else if operation == Operation::Count && cursor.left() >= 1 && is_word(word, "limit") {
                let limit = skerry_resp::parse_i64(cursor.value()?).and_then(|n| usize::try_from(n).ok());
                let limit = limit.ok_or(CommandError::text("ERR LIMIT can't be negative"))?;
                options.limit = if limit == 0 { usize::MAX } else { limit };
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

pub(super) fn zunion(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Operation::Union, "zunion")
}

pub(super) fn zinter(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Operation::Intersection, "zinter")
}

pub(super) fn zdiff(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Operation::Difference, "zdiff")
}

pub(super) fn zunionstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    keep(ctx, args, Operation::Union, "zunionstore")
}

pub(super) fn zinterstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    keep(ctx, args, Operation::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    keep(ctx, args, Operation::Difference, "zdiffstore")
}

pub(super) fn zintercard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 1, "zintercard")?;
    let sources = ctx.shard.read_sources(ctx.at(), &keys)?;
    let options = Options::parse(args, 2 + keys.len(), keys.len(), Operation::Count, To::Reply)?;
    let n = weighted(&sources, &options).map_or(0, |inputs| intersection_len(&inputs, options.limit));
    ctx.reply.integer(n as i64);
    Ok(())
}

fn show(ctx: &mut Ctx<'_>, args: Args<'_>, operation: Operation, name: &'static str) -> Outcome {
    let keys = keys(ctx, args, 1, name)?;
    let sources = ctx.shard.read_sources(ctx.at(), &keys)?;
    let options = Options::parse(args, 2 + keys.len(), keys.len(), operation, To::Reply)?;
    let result = combine(&sources, &options, operation, ctx.limits);
    let form = Form::with_scores(options.with_scores, ctx.reply.proto());
    form.header(result.len(), &mut ctx.reply);
    result.into_iter().for_each(|scored| form.reply(scored, &mut ctx.reply));
    Ok(())
}

fn keep(ctx: &mut Ctx<'_>, args: Args<'_>, operation: Operation, name: &'static str) -> Outcome {
    let keys = keys(ctx, args, 2, name)?;
    let destination = ctx.key(args, 1);
    let limits = ctx.limits;
    let sources = ctx.shard.read_sources(ctx.at(), &keys)?;
    let options = Options::parse(args, 3 + keys.len(), keys.len(), operation, To::Key)?;
    let result = Zset::of_ascending(&combine(&sources, &options, operation, limits), limits);
    store(ctx, &destination, result, name);
    Ok(())
}

fn combine<'a>(
    sources: &[Option<Source<'a>>],
    options: &Options,
    operation: Operation,
    limits: &Limits,
) -> Vec<Scored<'a>> {
    match operation {
        Operation::Union => {
            let inputs: Vec<Weighted<'_>> = pairs(sources, options).flatten().collect();
            union(&inputs, options.aggregate, limits.seed)
        }
        Operation::Intersection | Operation::Count => weighted(sources, options)
            .map_or_else(Vec::new, |inputs| intersection(&inputs, options.aggregate)),
        Operation::Difference => {
            let others: Vec<Source<'_>> = sources.iter().skip(1).copied().flatten().collect();
            let first = sources.first().copied().flatten();
            first.map_or_else(Vec::new, |first| difference(first, &others))
        }
    }
}

fn pairs<'a>(
    sources: &[Option<Source<'a>>],
    options: &Options,
) -> impl Iterator<Item = Option<Weighted<'a>>> {
    let weigh = |(source, weight): (&Option<Source<'a>>, &f64)| {
        source.map(|source| Weighted { source, weight: *weight })
    };
    sources.iter().zip(&options.weights).map(weigh)
}

/// All inputs, or none if one of the keys is absent.
fn weighted<'a>(sources: &[Option<Source<'a>>], options: &Options) -> Option<Vec<Weighted<'a>>> {
    pairs(sources, options).collect()
}

/// The keys behind their number, which is argument `index`.
fn keys<'a>(
    ctx: &Ctx<'_>,
    args: Args<'a>,
    index: usize,
    name: &'static str,
) -> Result<Vec<Key<'a>>, CommandError> {
    let n_keys = args.integer(index)?;
    if n_keys < 1 {
        return Err(CommandError::format(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let first = index + 1;
    if n_keys as u64 > (args.len() - first) as u64 {
        return Err(CommandError::Syntax);
    }
    Ok((first..first + n_keys as usize).map(|index| ctx.key(args, index)).collect())
}
