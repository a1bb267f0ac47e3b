//! What works on a range: ZRANGE in every form, ZCOUNT, ZREMRANGEBY*, ZRANGESTORE.
//!
//! A range of ranks, scores or names is read once into a [`Bounds`], which a sorted set turns into ranks; everything else
//! is the same for the three.

use std::ops::Range;

use super::Form;
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{NewValue, Object, Ttl};
use crate::shard::EventClass;
use crate::types::zset::Direction;
use crate::types::{Digits, Zset};

/// The three kinds of range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

/// A parsed range.
enum Bounds<'a> {
    /// Counted from the end where negative.
    Ranks {
        first: i64,
        last: i64,
    },
    Scores {
        min: Bound<f64>,
        max: Bound<f64>,
    },
    Names {
        min: NameBound<'a>,
        max: NameBound<'a>,
    },
}

#[derive(Clone, Copy)]
struct Bound<T> {
    value: T,
    is_exclusive: bool,
}

/// An end of a range of names.
#[derive(Clone, Copy)]
enum NameBound<'a> {
    /// `-`
    BelowAll,
    /// `+`
    AboveAll,
    At(Bound<&'a [u8]>),
}

impl<'a> Bounds<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Self, CommandError> {
        Ok(match by {
            By::Rank => {
                let rank = |text| skerry_resp::parse_i64(text).ok_or(CommandError::NotInteger);
                Bounds::Ranks { first: rank(min)?, last: rank(max)? }
            }
            By::Score => Bounds::Scores { min: score_bound(min)?, max: score_bound(max)? },
            By::Name => Bounds::Names { min: name_bound(min)?, max: name_bound(max)? },
        })
    }

    /// The ranks of the range, counted from the low end; `direction` says from which end ranks are meant.
    fn ranks(&self, zset: &Zset, direction: Direction) -> Range<usize> {
        match *self {
            Bounds::Ranks { first, last } => {
                let len = zset.len() as i64;
                let from_start = |rank: i64| if rank < 0 { (rank + len).max(-1) } else { rank };
                let (first, last) = (from_start(first).max(0), from_start(last).min(len - 1));
                if first > last {
                    return 0..0;
                }
                let (first, end) = (first as usize, last as usize + 1);
                match direction {
                    Direction::Ascending => first..end,
                    Direction::Descending => zset.len() - end..zset.len() - first,
                }
            }
            Bounds::Scores { min, max } => {
                let start =
                    zset.n_below(
                        |score, _| if min.is_exclusive { score <= min.value } else { score < min.value },
                    );
                let end = zset.n_below(
                    |score, _| if max.is_exclusive { score < max.value } else { score <= max.value },
                );
                start..end.max(start)
            }
            Bounds::Names { min, max } => {
                let n_below = |bound: NameBound<'_>, counts_equal: bool| match bound {
                    NameBound::BelowAll => 0,
                    NameBound::AboveAll => zset.len(),
                    NameBound::At(Bound { value, .. }) => zset.n_below(|_, member| {
                        let mut digits = Digits::new();
                        let member = member.as_bytes(&mut digits);
                        if counts_equal { member <= value } else { member < value }
                    }),
                };
                let is_exclusive = |bound| matches!(bound, NameBound::At(Bound { is_exclusive: true, .. }));
                let start = n_below(min, is_exclusive(min));
                let end = n_below(max, !is_exclusive(max));
                start..end.max(start)
            }
        }
    }
}

/// `1.5` or `(1.5`. Redis reads these with another parser than other numbers: nothing is 0, no hexadecimals, and what is too
/// big is infinite.
fn score_bound(text: &[u8]) -> Result<Bound<f64>, CommandError> {
    let (is_exclusive, text) = match text {
        [b'(', text @ ..] => (true, text),
        text => (false, text),
    };
    let value = match text {
        b"" => Some(0.0),
        text => std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()),
    };
    let value = value.filter(|value| !value.is_nan()).ok_or(CommandError::MinOrMaxNotFloat)?;
    Ok(Bound { value, is_exclusive })
}

/// `-`, `+`, `[name` or `(name`.
fn name_bound(text: &[u8]) -> Result<NameBound<'_>, CommandError> {
    match text {
        b"-" => Ok(NameBound::BelowAll),
        b"+" => Ok(NameBound::AboveAll),
        [b'[', value @ ..] => Ok(NameBound::At(Bound { value, is_exclusive: false })),
        [b'(', value @ ..] => Ok(NameBound::At(Bound { value, is_exclusive: true })),
        _ => Err(CommandError::text("ERR min or max not valid string range item")),
    }
}

// ---- ZRANGE and its older names

/// What the options of ZRANGE say, or the command's name.
struct Query<'a> {
    bounds: Bounds<'a>,
    direction: Direction,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

/// What the command's name leaves to options.
#[derive(Clone, Copy)]
struct Fixed {
    by: Option<By>,
    direction: Option<Direction>,
    is_store: bool,
}

impl<'a> Query<'a> {
    /// Reads the range at `min_at` and the options behind it.
    fn parse(args: Args<'a>, min_at: usize, fixed: Fixed) -> Result<Self, CommandError> {
        let (mut by, mut direction) = (fixed.by, fixed.direction);
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let mut cursor = args.cursor(min_at + 2);
        while let Some(word) = cursor.maybe_next() {
            match () {
                () if !fixed.is_store && is_word(word, "withscores") => with_scores = true,
                () if is_word(word, "limit") && cursor.left() >= 2 => {
                    offset = cursor.next_integer()?;
                    limit = cursor.next_integer()?;
                }
                () if direction.is_none() && is_word(word, "rev") => direction = Some(Direction::Descending),
                () if by.is_none() && is_word(word, "bylex") => by = Some(By::Name),
                () if by.is_none() && is_word(word, "byscore") => by = Some(By::Score),
                () => return Err(CommandError::Syntax),
            }
        }
        let (by, direction) = (by.unwrap_or(By::Rank), direction.unwrap_or(Direction::Ascending));
        if limit != -1 && by == By::Rank {
            return Err(CommandError::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Name {
            return Err(CommandError::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (min, max) = match (direction, by) {
            (Direction::Descending, By::Score | By::Name) => (args.get(min_at + 1), args.get(min_at)),
            (Direction::Descending, By::Rank) | (Direction::Ascending, _) => {
                (args.get(min_at), args.get(min_at + 1))
            }
        };
        Ok(Self { bounds: Bounds::parse(by, min, max)?, direction, with_scores, offset, limit })
    }

    /// The ranks to show. A negative offset shows nothing, a negative limit all.
    fn ranks(&self, zset: &Zset) -> Range<usize> {
        let ranks = self.bounds.ranks(zset, self.direction);
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let n_left = ranks.len().saturating_sub(offset);
        let n = usize::try_from(self.limit).map_or(n_left, |limit| n_left.min(limit));
        match self.direction {
            Direction::Ascending => {
                let start = ranks.end - n_left;
                start..start + n
            }
            Direction::Descending => {
                let end = ranks.start + n_left;
                end - n..end
            }
        }
    }
}

const ANY: Fixed = Fixed { by: None, direction: None, is_store: false };

pub(super) fn zrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, ANY)
}

pub(super) fn zrevrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Fixed { by: Some(By::Rank), direction: Some(Direction::Descending), ..ANY })
}

pub(super) fn zrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Fixed { by: Some(By::Score), direction: Some(Direction::Ascending), ..ANY })
}

pub(super) fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Fixed { by: Some(By::Score), direction: Some(Direction::Descending), ..ANY })
}

pub(super) fn zrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Fixed { by: Some(By::Name), direction: Some(Direction::Ascending), ..ANY })
}

pub(super) fn zrevrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Fixed { by: Some(By::Name), direction: Some(Direction::Descending), ..ANY })
}

fn show(ctx: &mut Ctx<'_>, args: Args<'_>, fixed: Fixed) -> Outcome {
    let query = Query::parse(args, 2, fixed)?;
    let key = ctx.key(args, 1);
    let Some(zset) = ctx.shard.read_zset(ctx.at(), &key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let form = Form::with_scores(query.with_scores, ctx.reply.proto());
    let ranks = query.ranks(zset);
    form.header(ranks.len(), &mut ctx.reply);
    zset.range(ranks, query.direction).for_each(|scored| form.reply(scored, &mut ctx.reply));
    Ok(())
}

pub(super) fn zrangestore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let query = Query::parse(args, 3, Fixed { is_store: true, ..ANY })?;
    let (destination, source) = (ctx.key(args, 1), ctx.key(args, 2));
    let limits = ctx.limits;
    let result = match ctx.shard.read_zset(ctx.at(), &source)? {
        None => Zset::default(),
        Some(zset) => {
            let ranks = query.ranks(zset);
            let mut result = Zset::for_members(ranks.len(), 0, limits);
            for (member, score) in zset.range(ranks, Direction::Ascending) {
                result.set(member.as_bytes(&mut Digits::new()), score, limits);
            }
            result
        }
    };
    store(ctx, &destination, result, "zrangestore");
    Ok(())
}

/// Puts `result` in the place of whatever `destination` holds, which is removed if there is no result.
pub(in crate::commands) fn store(
    ctx: &mut Ctx<'_>,
    destination: &crate::keyspace::Key<'_>,
    result: Zset,
    event: &'static str,
) {
    let len = result.len();
    if len > 0 {
        let value = NewValue::Object(Object::Zset(result));
        ctx.shard.insert(ctx.at(), destination, value, Ttl::Clear);
        ctx.changed(destination, EventClass::SortedSet, event);
    } else if ctx.shard.remove(ctx.at(), destination) {
        ctx.changed(destination, EventClass::Generic, "del");
    }
    ctx.reply.integer(len as i64);
}

// ---- counts and removals

pub(super) fn zcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, By::Score)
}

pub(super) fn zlexcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, By::Name)
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>, by: By) -> Outcome {
    let bounds = Bounds::parse(by, args.get(2), args.get(3))?;
    let key = ctx.key(args, 1);
    let zset = ctx.shard.read_zset(ctx.at(), &key)?;
    let n = zset.map_or(0, |zset| bounds.ranks(zset, Direction::Ascending).len());
    ctx.reply.integer(n as i64);
    Ok(())
}

pub(super) fn zremrangebyrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    remove(ctx, args, By::Rank, "zremrangebyrank")
}

pub(super) fn zremrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    remove(ctx, args, By::Score, "zremrangebyscore")
}

pub(super) fn zremrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    remove(ctx, args, By::Name, "zremrangebylex")
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>, by: By, event: &'static str) -> Outcome {
    let bounds = Bounds::parse(by, args.get(2), args.get(3))?;
    let key = ctx.key(args, 1);
    let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let ranks = bounds.ranks(zset, Direction::Ascending);
    let (n, is_empty) = (ranks.len(), ranks.len() == zset.len());
    // What is wholly removed is freed in slices, with its key.
    if !is_empty {
        zset.remove_ranks(ranks);
    }
    if n > 0 {
        ctx.shrunk(&key, EventClass::SortedSet, event, is_empty);
    }
    ctx.reply.integer(n as i64);
    Ok(())
}
