//! VRANDMEMBER and VRANGE: elements by chance and by name.
//!
//! There is no second index over the names. VRANGE looks at all of them and keeps the first `count` of its range: time
//! in the number of elements, memory in what it answers. Departures from Redis: 1. a negative count of VRANDMEMBER draws
//! no more than SRANDMEMBER's would. 2. VRANDMEMBER draws evenly; Redis walks the graph.

use std::collections::BTreeSet;

use skerry_resp::number::parse_i64;
use skerry_vectorset::VectorSet;
use skerry_vectorset::epoch::Guard;

use super::{Found, bulk_or_null, expect, present};
use crate::args::Args;
use crate::command::Ctx;
use crate::commands::set::{DRAWS_MAX, DRAWS_MAX_BYTES};
use crate::error::{CommandError, Outcome};
use crate::vector::with_reader;

/// VRANDMEMBER key [count]
pub(super) fn vrandmember(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(matches!(args.len(), 2 | 3), "VRANDMEMBER")?;
    if args.len() == 2 {
        let handle = present(ctx, found)?;
        let random = ctx.shard.random();
        with_reader(|guard, _| {
            bulk_or_null(ctx, handle.and_then(|handle| any_member(&handle.set, random, guard)));
        });
        return Ok(());
    }
    let count = parse_i64(args.get(2)).ok_or(CommandError::text("ERR COUNT value is not an integer"))?;
    if count == 0 {
        ctx.reply.array(0);
        return Ok(());
    }
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let n = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    with_reader(|guard, _| {
        if count < 0 {
            return draw_again_and_again(ctx, &handle.set, n, guard);
        }
        let members = handle.set.random_members(n, || ctx.shard.random(), guard);
        ctx.reply.array(members.len());
        members.into_iter().for_each(|member| ctx.reply.bulk(member));
        Ok(())
    })
}

fn any_member<'a>(set: &'a VectorSet, random: u64, guard: &'a Guard) -> Option<&'a [u8]> {
    let len = set.len();
    // The set may have shrunk below the place: its last one will do.
    (len > 0)
        .then(|| (random % len as u64) as usize)
        .and_then(|at| set.member(at, guard).or(set.member(0, guard)))
}

fn draw_again_and_again(ctx: &mut Ctx<'_>, set: &VectorSet, n: usize, guard: &Guard) -> Outcome {
    if n > DRAWS_MAX {
        return Err(CommandError::OutOfRange);
    }
    let start = ctx.reply.out().len();
    ctx.reply.array(n);
    for _ in 0..n {
        let random = ctx.shard.random();
        // Emptied a moment ago: the reply keeps the length it has told.
        ctx.reply.bulk(any_member(set, random, guard).unwrap_or_default());
        if ctx.reply.out().len() - start > DRAWS_MAX_BYTES {
            return Err(CommandError::OutOfRange);
        }
    }
    Ok(())
}

/// VRANGE key start end [count], as in Redis 8.4.
pub(super) fn vrange(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(matches!(args.len(), 4 | 5), "VRANGE")?;
    let count = match args.len() {
        5 => parse_i64(args.get(4)).ok_or(CommandError::text("ERR invalid COUNT value"))?,
        _ => -1,
    };
    let start = Bound::parse(args.get(2)).ok_or(CommandError::text("ERR invalid start range format"))?;
    let end = Bound::parse(args.get(3)).ok_or(CommandError::text("ERR invalid end range format"))?;
    if start == Bound::Max || end == Bound::Min {
        return Err(CommandError::text("ERR '-' can only be used as first argument, '+' only as second"));
    }
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let n = usize::try_from(count).unwrap_or(usize::MAX);
    with_reader(|guard, _| {
        let names = first_names(&handle.set, start, end, n, guard);
        ctx.reply.array(names.len());
        names.into_iter().for_each(|name| ctx.reply.bulk(name));
    });
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound<'a> {
    Min,
    Max,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> Bound<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        match text {
            b"-" => Some(Bound::Min),
            b"+" => Some(Bound::Max),
            [b'[', name @ ..] if !name.is_empty() => Some(Bound::Included(name)),
            [b'(', name @ ..] if !name.is_empty() => Some(Bound::Excluded(name)),
            _ => None,
        }
    }

    fn is_before(self, name: &[u8]) -> bool {
        match self {
            Bound::Min => true,
            Bound::Max => false,
            Bound::Included(bound) => bound <= name,
            Bound::Excluded(bound) => bound < name,
        }
    }

    fn is_after(self, name: &[u8]) -> bool {
        match self {
            Bound::Min => false,
            Bound::Max => true,
            Bound::Included(bound) => name <= bound,
            Bound::Excluded(bound) => name < bound,
        }
    }
}

/// The first `count` names within the bounds, in order. From the last place to the first: a removal moves an element
/// only forward, so every element that stays is met, some twice.
fn first_names<'a>(
    set: &'a VectorSet,
    start: Bound<'_>,
    end: Bound<'_>,
    count: usize,
    guard: &'a Guard,
) -> Vec<&'a [u8]> {
    let places = (0..set.len()).rev();
    let names = places.filter_map(|place| set.member(place, guard));
    let names = names.filter(|name| start.is_before(name) && end.is_after(name));
    if count == 0 {
        return Vec::new();
    }
    if count >= set.len() {
        let mut all: Vec<&[u8]> = names.collect();
        all.sort_unstable();
        all.dedup();
        return all;
    }
    let mut first: BTreeSet<&[u8]> = BTreeSet::new();
    for name in names {
        if first.len() < count {
            first.insert(name);
        } else if first.last().is_some_and(|last| name < *last) && first.insert(name) {
            first.pop_last();
        }
    }
    first.into_iter().collect()
}
