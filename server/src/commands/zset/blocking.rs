//! Sorted set commands that wait for a member (<https://redis.io/docs/latest/commands/?group=sorted-set>).
//!
//! Each is its kin that does not wait, and waits where that finds nothing (`Ctx::wait`): it is run again when a key holds a sorted set.

use super::{Form, end_and_count, pop_event, pop_first, take};
use crate::args::Args;
use crate::blocked::Awaited;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, Wait, counted, range, row};
use crate::commands::timeout::deadline_of;
use crate::error::Outcome;
use crate::shard::EventClass;
use crate::types::zset::Direction;

const POPS: KeyFlags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE);

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("bzpopmin", -3, Handler::Shard(bzpopmin), "Takes the member of the lowest score out of the first key that has any, or waits for one").flags(Flags::BLOCKING.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[range(POPS, 1, -2, 1)]).waits(always),
    row("bzpopmax", -3, Handler::Shard(bzpopmax), "Takes the member of the highest score out of the first key that has any, or waits for one").flags(Flags::BLOCKING.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[range(POPS, 1, -2, 1)]).waits(always),
    row("bzmpop", -5, Handler::Shard(bzmpop), "Takes members out of the first key that has any, or waits for one").flags(Flags::BLOCKING.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[counted(POPS, 2)]).waits(always),
];

/// Whatever its arguments.
fn always(_args: Args<'_>) -> bool {
    true
}

fn bzpopmin(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, Direction::Ascending)
}

fn bzpopmax(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, Direction::Descending)
}

/// BZPOPMIN key [key ...] timeout
fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, from: Direction) -> Outcome {
    let last = args.len() - 1;
    let deadline_ms = deadline_of(args.get(last), ctx.now_ms)?;
    for index in 1..last {
        let key = ctx.key(args, index);
        let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)? else { continue };
        ctx.reply.array(3);
        ctx.reply.bulk(key.bytes);
        let is_empty = take(zset, 1, from, Form::Bare, &mut ctx.reply);
        ctx.shrunk(&key, EventClass::SortedSet, pop_event(from), is_empty);
        return Ok(());
    }
    ctx.wait(Wait::new(Awaited::SortedSet, 1..last, deadline_ms), |reply| reply.null_array())
}

/// BZMPOP timeout numkeys key [key ...] MIN|MAX [COUNT count]
fn bzmpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = args.counted(2)?;
    let ends = end_and_count(args, keys.end)?;
    let deadline_ms = deadline_of(args.get(1), ctx.now_ms)?;
    if pop_first(ctx, args, keys.clone(), ends)? {
        return Ok(());
    }
    ctx.wait(Wait::new(Awaited::SortedSet, keys, deadline_ms), |reply| reply.null_array())
}
