//! How many members set algebra has, without the members: SINTERCARD, and Redis 8.10's SUNIONCARD and SDIFFCARD.
//!
//! Each stops at its LIMIT. Departure from Redis: SUNIONCARD counts exactly with APPROX too, where Redis estimates; an exact
//! count is within any error.
//! Cost: intersection O(smallest * sets), difference O(first * sets), union O(members until the limit) and a pointer for each.

use crate::args::{Args, is_word, natural, positive};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, counted, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Key;
use crate::types::Set;
use crate::types::algebra::{difference, intersection, union};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("sintercard", -3, Handler::Shard(sintercard), "Tells how many members all sets have").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
    row("sunioncard", -3, Handler::Shard(sunioncard), "Tells how many members any of the sets has (Redis 8.10)").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
    row("sdiffcard", -3, Handler::Shard(sdiffcard), "Tells how many members only the first set has (Redis 8.10)").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

fn sintercard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, Operation::Intersection)
}

fn sunioncard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, Operation::Union)
}

fn sdiffcard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count(ctx, args, Operation::Difference)
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>, operation: Operation) -> Outcome {
    let keys = keys(ctx, args)?;
    let limit = limit(args, 2 + keys.len(), operation)?;
    let seed = ctx.limits.seed;
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let n = match operation {
        Operation::Intersection => {
            let sets: Option<Vec<&Set>> = sets.into_iter().collect();
            sets.map_or(0, |sets| intersection(&sets).take(limit).count())
        }
        Operation::Union => {
            let sets: Vec<&Set> = sets.into_iter().flatten().collect();
            union(&sets, seed).take(limit).count()
        }
        Operation::Difference => {
            let others: Vec<&Set> = sets.iter().skip(1).copied().flatten().collect();
            let first = sets.first().copied().flatten();
            first.map_or(0, |first| difference(first, &others, seed).take(limit).count())
        }
    };
    ctx.reply.integer(n as i64);
    Ok(())
}

/// The keys behind their number.
fn keys<'a>(ctx: &Ctx<'_>, args: Args<'a>) -> Result<Vec<Key<'a>>, CommandError> {
    let n_keys = positive(args.get(1), "ERR numkeys should be greater than 0")?;
    if n_keys > args.len() - 2 {
        return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
    }
    Ok((2..2 + n_keys).map(|index| ctx.key(args, index)).collect())
}

fn limit(args: Args<'_>, first: usize, operation: Operation) -> Result<usize, CommandError> {
    let mut limit = usize::MAX;
    let mut cursor = args.cursor(first);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "limit") && !cursor.is_done() {
            limit = match natural(cursor.value()?, "ERR LIMIT can't be negative")? {
                0 => usize::MAX,
                limit => limit,
            };
        } else if !(operation == Operation::Union && is_word(word, "approx")) {
            return Err(CommandError::Syntax);
        }
    }
    Ok(limit)
}
