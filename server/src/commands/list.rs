//! List commands (<https://redis.io/docs/latest/commands/?group=list>).
//!
//! Elements are counted from the front, negative indices from the back. A list that loses its last element goes with its
//! key, in the same command: the event of the command comes first, then `del`.

use std::ops::Range;

use skerry_resp::reply::Reply;

use crate::access::reply_element;
use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;
use crate::types::list::End;
use crate::types::{Limits, List};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("lpush", -3, Handler::Shard(lpush), "Puts elements before a list and tells its length").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("lpushx", -3, Handler::Shard(lpushx), "As LPUSH, but only if the list exists").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("rpush", -3, Handler::Shard(rpush), "Puts elements behind a list and tells its length").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("rpushx", -3, Handler::Shard(rpushx), "As RPUSH, but only if the list exists").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("lpop", -2, Handler::Shard(lpop), "Takes elements from the front").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("rpop", -2, Handler::Shard(rpop), "Takes elements from the back").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("lrange", 4, Handler::Shard(lrange), "Shows the elements between two indices").flags(Flags::READONLY).acl(Acl::LIST).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("lindex", 3, Handler::Shard(lindex), "Shows the element at an index").flags(Flags::READONLY).acl(Acl::LIST).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("ltrim", 4, Handler::Shard(ltrim), "Keeps the elements between two indices").flags(Flags::WRITE).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("lset", 4, Handler::Shard(lset), "Replaces the element at an index").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("llen", 2, Handler::Shard(llen), "Tells the number of elements").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::LIST).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
];

fn lpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    push(ctx, args, End::Front)
}

fn rpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    push(ctx, args, End::Back)
}

fn lpushx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    push_if_exists(ctx, args, End::Front)
}

fn rpushx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    push_if_exists(ctx, args, End::Back)
}

/// One lookup; nothing is allocated but what the list stores.
#[inline]
fn push(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Outcome {
    let key = ctx.key(args, 1);
    let list = ctx.shard.list_or_new(ctx.at(), &key, List::new)?;
    list.push(end, args.from(2), ctx.limits);
    let len = list.len();
    ctx.changed(&key, EventClass::List, push_event(end));
    ctx.reply.integer(len as i64);
    Ok(())
}

fn push_if_exists(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    list.push(end, args.from(2), ctx.limits);
    let len = list.len();
    ctx.changed(&key, EventClass::List, push_event(end));
    ctx.reply.integer(len as i64);
    Ok(())
}

pub(super) fn push_event(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

fn lpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Front)
}

fn rpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, End::Back)
}

/// The event of a pop, and the name of the command that is nothing else.
pub(super) fn pop_event(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Outcome {
    match args.len() {
        2 => pop_one(ctx, args, end),
        3 => pop_several(ctx, args, end),
        _ => Err(CommandError::WrongArity(pop_event(end))),
    }
}

fn pop_one(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else {
        ctx.reply.null();
        return Ok(());
    };
    if let Some(element) = list.peek(end) {
        reply_element(element, &mut ctx.reply);
    }
    list.pop(end, ctx.limits);
    let is_empty = list.is_empty();
    ctx.shrunk(&key, EventClass::List, pop_event(end), is_empty);
    Ok(())
}

fn pop_several(ctx: &mut Ctx<'_>, args: Args<'_>, end: End) -> Outcome {
    let count = args.count(2)?;
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else {
        ctx.reply.null_array();
        return Ok(());
    };
    if count == 0 {
        ctx.reply.array(0);
        return Ok(());
    }
    let is_empty = take(list, count, end, ctx.limits, &mut ctx.reply);
    ctx.shrunk(&key, EventClass::List, pop_event(end), is_empty);
    Ok(())
}

/// Takes elements off one end and shows them; true if none is left.
pub(super) fn take(list: &mut List, count: usize, end: End, limits: &Limits, reply: &mut Reply<'_>) -> bool {
    let len = list.len();
    let n = count.min(len);
    reply.array(n);
    match end {
        End::Front => list.range(0..n).for_each(|element| reply_element(element, reply)),
        End::Back => list.range_rev(len - n..len).for_each(|element| reply_element(element, reply)),
    }
    // A list that goes as a whole is freed in slices, with its key.
    if n < len {
        drop_end(list, n, end, limits);
    }
    n == len
}

/// Removes `n` elements of one end.
pub(super) fn drop_end(list: &mut List, n: usize, end: End, limits: &Limits) {
    let len = list.len();
    match end {
        End::Front => list.trim(n..len, limits),
        End::Back => list.trim(0..len - n, limits),
    }
}

fn lrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.read_list(ctx.at(), &key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let shown = between(start, stop, list.len());
    ctx.reply.array(shown.len());
    list.range(shown).for_each(|element| reply_element(element, &mut ctx.reply));
    Ok(())
}

fn lindex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.read_list(ctx.at(), &key)? else {
        ctx.reply.null();
        return Ok(());
    };
    let index = position(args.integer(2)?, list.len());
    match index.and_then(|index| list.get(index)) {
        Some(element) => reply_element(element, &mut ctx.reply),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn ltrim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let key = ctx.key(args, 1);
    if let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? {
        let kept = between(start, stop, list.len());
        let is_empty = kept.is_empty();
        if !is_empty {
            list.trim(kept, ctx.limits);
        }
        ctx.shrunk(&key, EventClass::List, "ltrim", is_empty);
    }
    ctx.reply.ok();
    Ok(())
}

fn lset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let list = ctx.shard.list_mut(ctx.at(), &key)?.ok_or(CommandError::NoSuchKey)?;
    // Redis narrows this index to 32 bits, so that 2^63 - 1 means the last element: its reply is kept (redis#15407).
    let index = i64::from(args.integer(2)? as i32);
    // An index outside the list goes down to it, because Redis converts a list before it finds the index wrong.
    let index = position(index, list.len()).unwrap_or(usize::MAX);
    if !list.set(index, args.get(3), ctx.limits) {
        return Err(CommandError::IndexOutOfRange);
    }
    ctx.changed(&key, EventClass::List, "lset");
    ctx.reply.ok();
    Ok(())
}

fn llen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let len = ctx.shard.read_list(ctx.at(), &key)?.map_or(0, List::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

/// The index that `index` means in a list of `len` elements; none if it is before the first. It may be behind the last.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.saturating_add(len as i64) } else { index };
    usize::try_from(index).ok()
}

/// The indices from `start` to `stop`, both included, of a list of `len` elements.
fn between(start: i64, stop: i64, len: usize) -> Range<usize> {
    let start = position(start, len).unwrap_or(0);
    let end = position(stop, len).map_or(0, |stop| stop.saturating_add(1)).min(len);
    if start < end { start..end } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_at_the_edges_of_a_list_of_three() {
        let cases = [
            (0, -1, 0..3),
            (0, i64::MAX, 0..3),
            (i64::MIN, i64::MAX, 0..3),
            (-3, -1, 0..3),
            (-4, 0, 0..1),
            (2, 2, 2..3),
            (-1, -1, 2..3),
            (3, 5, 0..0),
            (1, 0, 0..0),
            (0, -4, 0..0),
            (0, i64::MIN, 0..0),
            (i64::MAX, i64::MAX, 0..0),
        ];
        for (start, stop, expected) in cases {
            assert_eq!(between(start, stop, 3), expected, "{start} {stop}");
        }
    }
}
