//! XLEN, XRANGE, XREVRANGE.

use super::{ArrayLater, parse_end, parse_start, reply_entry};
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};

/// XLEN key
pub(super) fn xlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let len = ctx.shard.read_stream(ctx.at(), &key)?.map_or(0, |stream| stream.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

/// XRANGE key start end [COUNT count]
pub(super) fn xrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Order::Ascending)
}

/// XREVRANGE key end start [COUNT count]
pub(super) fn xrevrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    show(ctx, args, Order::Descending)
}

fn show(ctx: &mut Ctx<'_>, args: Args<'_>, order: Order) -> Outcome {
    let (start_at, end_at) = if order == Order::Ascending { (2, 3) } else { (3, 2) };
    let (start, end) = (parse_start(args.get(start_at))?, parse_end(args.get(end_at))?);
    let mut count = None;
    let mut cursor = args.cursor(4);
    while let Some(word) = cursor.maybe_next() {
        if !is_word(word, "count") || cursor.is_done() {
            return Err(CommandError::Syntax);
        }
        // -1 is no limit, as it is inside Redis; what is below becomes 0.
        count = Some(cursor.next_integer()?.max(0) as usize);
    }
    let key = ctx.key(args, 1);
    let Some(stream) = ctx.shard.read_stream(ctx.at(), &key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        ctx.reply.null_array();
        return Ok(());
    }
    let count = count.unwrap_or(usize::MAX);
    let (later, mut n) = (ArrayLater::begin(&mut ctx.reply), 0);
    let reply = &mut ctx.reply;
    let mut show = |entry| {
        reply_entry(&entry, reply);
        n += 1;
    };
    match order {
        Order::Ascending => stream.range(start, end).take(count).for_each(&mut show),
        Order::Descending => stream.range_backward(start, end).take(count).for_each(&mut show),
    }
    later.end(&mut ctx.reply, |reply| reply.array(n));
    Ok(())
}
