//! List commands that wait for an element (<https://redis.io/docs/latest/commands/?group=list>).
//!
//! Each is its kin that does not wait, and waits where that finds nothing (`Ctx::wait`): it is run again when a key holds a list. So
//! what is said there of events, types and replies holds here.
//!
//! BLMOVEM is Redis 8.10's: LMOVEM with a timeout behind the ends. COUNT waits for the first element, EXACTLY until there are as many.

use super::list::pop_event;
use super::list_moves::{self, end};
use super::timeout::deadline_of;
use crate::access::reply_element;
use crate::args::Args;
use crate::blocked::Awaited;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, Wait, counted, range, row};
use crate::error::Outcome;
use crate::shard::EventClass;
use crate::types::list::End;

const POPS: KeyFlags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE);

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("blpop", -3, Handler::Shard(blpop), "Takes the first element of the first list that has any, or waits for one").flags(Flags::BLOCKING.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(POPS, 1, -2, 1)]).waits(always),
    row("brpop", -3, Handler::Shard(brpop), "Takes the last element of the first list that has any, or waits for one").flags(Flags::BLOCKING.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(POPS, 1, -2, 1)]).waits(always),
    row("blmpop", -5, Handler::Shard(blmpop), "Takes elements off the first list that has any, or waits for one").flags(Flags::BLOCKING.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::LIST).keys(&[counted(POPS, 2)]).waits(always),
    row("blmove", 6, Handler::Shard(blmove), "Moves an element from one list to another, or waits for one").flags(Flags::BLOCKING.with(Flags::DENYOOM).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(POPS, 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]).waits(always),
    row("blmovem", -6, Handler::Shard(blmovem), "Moves several elements between two lists, or waits for them (Redis 8.10)").flags(Flags::BLOCKING.with(Flags::DENYOOM).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(POPS, 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]).waits(always),
    row("brpoplpush", 4, Handler::Shard(brpoplpush), "Moves the last element of one list to the front of another, or waits for one").flags(Flags::BLOCKING.with(Flags::DENYOOM).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(POPS, 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]).waits(always),
];

/// Whatever its arguments.
fn always(_args: Args<'_>) -> bool {
    true
}

fn blpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Front)
}

fn brpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Back)
}

/// BLPOP key [key ...] timeout
fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Outcome {
    let last = args.len() - 1;
    let deadline_ms = deadline_of(args.get(last), ctx.now_ms)?;
    for index in 1..last {
        let key = ctx.key(args, index);
        let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else { continue };
        ctx.reply.array(2);
        ctx.reply.bulk(key.bytes);
        if let Some(element) = list.peek(end) {
            reply_element(element, &mut ctx.reply);
        }
        list.pop(end, ctx.limits);
        let is_empty = list.is_empty();
        ctx.shrunk(&key, EventClass::List, pop_event(end), is_empty);
        return Ok(());
    }
    ctx.wait(Wait::new(Awaited::List, 1..last, deadline_ms), |reply| reply.null_array())
}

/// BLMPOP timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]
fn blmpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = args.counted(2)?;
    let ends = list_moves::end_and_count(args, keys.end)?;
    let deadline_ms = deadline_of(args.get(1), ctx.now_ms)?;
    if list_moves::pop_first(ctx, args, keys.clone(), ends)? {
        return Ok(());
    }
    ctx.wait(Wait::new(Awaited::List, keys, deadline_ms), |reply| reply.null_array())
}

/// BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout
fn blmove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (end(args.get(3))?, end(args.get(4))?);
    let deadline_ms = deadline_of(args.get(5), ctx.now_ms)?;
    move_or_wait(ctx, args, (from, to), deadline_ms)
}

/// BLMOVEM source destination LEFT|RIGHT LEFT|RIGHT timeout [COUNT count|EXACTLY count OBO|BULK]
fn blmovem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (how_many, order) = list_moves::ends_and(args, |args| list_moves::how_many(args, 6))?;
    let deadline_ms = deadline_of(args.get(5), ctx.now_ms)?;
    if list_moves::move_many(ctx, args, how_many, order)? {
        return Ok(());
    }
    let wait = Wait::new(Awaited::List, 1..2, deadline_ms);
    ctx.wait(wait, |reply| list_moves::nothing_moved(how_many, reply))
}

/// BRPOPLPUSH source destination timeout
fn brpoplpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let deadline_ms = deadline_of(args.get(3), ctx.now_ms)?;
    move_or_wait(ctx, args, (End::Back, End::Front), deadline_ms)
}

fn move_or_wait(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    (from, to): (End, End),
    deadline_ms: Option<i64>,
) -> Outcome {
    let source = ctx.key(args, 1);
    if ctx.shard.list_mut(ctx.at(), &source)?.is_some() {
        return list_moves::move_one(ctx, args, from, to);
    }
    let wait = Wait::new(Awaited::List, 1..2, deadline_ms);
    ctx.wait(wait, |reply| reply.null())
}
