//! VRANDMEMBER and VRANGE: elements by chance and by name.
//!
//! There is no second index over the names. VRANGE looks at all of them, in slices (`work`), and keeps the first `count`
//! of its range: time in the number of elements, memory in what it answers. Departures from Redis: 1. a negative count of VRANDMEMBER draws
//! no more than SRANDMEMBER's would. 2. VRANDMEMBER draws evenly; Redis walks the graph.

use std::collections::BTreeSet;

use skerry_resp::number::parse_i64;
use skerry_vectorset::VectorSet;
use skerry_vectorset::epoch::Guard;

use super::{Found, bulk_or_null, expect, present};
use crate::args::Args;
use crate::command::Ctx;
use crate::commands::draw::draw_again_and_again;
use crate::error::{CommandError, Outcome};
use crate::vector::with_reader;
use crate::work::Begun;

/// VRANDMEMBER key [count]
pub(super) fn vrandmember(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(matches!(args.len(), 2 | 3), "VRANDMEMBER")?;
    if args.len() == 2 {
        let handle = present(ctx, args, found)?;
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
    let Some(handle) = present(ctx, args, found)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let n = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    with_reader(|guard, _| {
        if count < 0 {
            return draw_again_and_again(
                &mut ctx.reply,
                n,
                |reply| reply.array(n),
                |reply| {
                    let member = any_member(&handle.set, ctx.shard.random(), guard);
                    // Emptied a moment ago: the reply keeps the length it has told.
                    reply.bulk(member.unwrap_or_default());
                },
            );
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

/// A name costs about as much as that many units of a turn.
const UNITS_PER_NAME: usize = 8;

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
    let resumed = match ctx.work.begun.take() {
        Some(Begun::Search(resumed)) => resumed.downcast::<Walk>().ok(),
        Some(Begun::Addition(_)) | None => None,
    };
    if resumed.is_none() && ctx.work.distances(1) == 0 {
        ctx.work.is_unfinished = true;
        return Ok(());
    }
    let handle = if resumed.is_some() { found? } else { present(ctx, args, found)? };
    let Some(handle) = handle else {
        ctx.reply.array(0);
        return Ok(());
    };
    let set = &handle.set;
    let mut walk = match resumed {
        Some(walk) if walk.set_uid == set.uid() => walk,
        _ => Box::new(Walk { set_uid: set.uid(), place: set.len(), first: BTreeSet::new() }),
    };
    let n = usize::try_from(count).unwrap_or(usize::MAX);
    let is_within = |name: &[u8]| start.is_before(name) && end.is_after(name);
    while walk.place > 0 && n > 0 {
        let budget = ctx.work.distances(1) / UNITS_PER_NAME;
        if budget == 0 {
            ctx.work.is_unfinished = true;
            ctx.work.begun = Some(Begun::Search(walk));
            return Ok(());
        }
        let n_looked_at = with_reader(|guard, _| walk.go_on(set, is_within, n, budget, guard));
        ctx.work.spend(n_looked_at * UNITS_PER_NAME, 1);
    }
    ctx.reply.array(walk.first.len());
    walk.first.iter().for_each(|name| ctx.reply.bulk(name));
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

/// A VRANGE under way. From the last place to the first: a removal moves an element only forward, so every element that
/// stays is met, some twice.
struct Walk {
    set_uid: u64,
    /// Places below are still to be looked at.
    place: usize,
    /// The first names so far.
    first: BTreeSet<Box<[u8]>>,
}

impl Walk {
    /// Looks at some more elements; at how many.
    fn go_on(
        &mut self,
        set: &VectorSet,
        is_within: impl Fn(&[u8]) -> bool,
        count: usize,
        budget: usize,
        guard: &Guard,
    ) -> usize {
        let n = self.place.min(budget);
        for place in (self.place - n..self.place).rev() {
            let Some(name) = set.member(place, guard).filter(|name| is_within(name)) else { continue };
            if self.first.len() < count {
                self.first.insert(name.into());
            } else if self.first.last().is_some_and(|last| *name < **last) && self.first.insert(name.into()) {
                self.first.pop_last();
            }
        }
        self.place -= n;
        n
    }
}
