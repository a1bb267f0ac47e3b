//! HSTRLEN and HRANDFIELD (<https://redis.io/docs/latest/commands/?group=hash>).
//!
//! Departures from Redis:
//! 1. HRANDFIELD with a negative count draws at most `DRAWS_MAX` fields and `DRAWS_MAX_BYTES` of reply; Redis goes on until its
//!    memory is gone.
//! 2. HRANDFIELD removes the fields that are dead first, as Redis does, but no more of them than `expire_some_fields` does in one
//!    go: the others are not drawn, and the expiry cycle removes them.

use skerry_resp::reply::{Proto, Reply};

use super::draw::draw_again_and_again;
use crate::access::reply_element;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::types::hash::{Found, Pair};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("hstrlen", 3, Handler::Shard(hstrlen), "Tells the length of a field's value").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("hrandfield", -2, Handler::Shard(hrandfield), "Shows random fields").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];

fn hstrlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let now_ms = ctx.now_ms;
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    let found = hash.map_or(Found::Absent, |hash| hash.find(args.get(2), now_ms));
    let n_bytes = if let Found::Alive(value) = found { value.n_bytes() } else { 0 };
    ctx.reply.integer(n_bytes as i64);
    if found == Found::Dead {
        ctx.shard.expire_fields(ctx.at(), &key, args.from(2));
    }
    Ok(())
}

fn hrandfield(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        return draw_several(ctx, args);
    }
    let key = ctx.key(args, 1);
    let now_ms = ctx.now_ms;
    let mut random = ctx.shard.random_source();
    ctx.shard.expire_some_fields(ctx.at(), &key);
    match ctx.shard.read_hash(ctx.at(), &key)?.and_then(|hash| hash.random(now_ms, &mut random)) {
        Some((field, _)) => reply_element(field, &mut ctx.reply),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// A field in an array, alone, with its value behind it, or as a pair of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Fields,
    Flat,
    Nested,
}

impl Form {
    fn header(self, n: usize, reply: &mut Reply<'_>) {
        reply.array(if self == Form::Flat { 2 * n } else { n });
    }

    fn reply(self, (field, value): Pair<'_>, reply: &mut Reply<'_>) {
        if self == Form::Nested {
            reply.array(2);
        }
        reply_element(field, reply);
        if self != Form::Fields {
            reply_element(value, reply);
        }
    }
}

/// A positive count draws different fields, a negative one as many as it says, the same one again or not.
fn draw_several(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let count = args.integer(2)?;
    if count == i64::MIN {
        return Err(CommandError::NotBetween(-i64::MAX, i64::MAX));
    }
    let form = match args.len() {
        3 => Form::Fields,
        4 if is_word(args.get(3), "withvalues") => match ctx.reply.proto() {
            Proto::Resp2 => Form::Flat,
            Proto::Resp3 => Form::Nested,
        },
        _ => return Err(CommandError::Syntax),
    };
    if form != Form::Fields && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::OutOfRange);
    }
    let key = ctx.key(args, 1);
    let now_ms = ctx.now_ms;
    let mut random = ctx.shard.random_source();
    ctx.shard.expire_some_fields(ctx.at(), &key);
    let found = ctx.shard.read_hash(ctx.at(), &key)?;
    let Some(hash) = found.filter(|hash| count != 0 && hash.n_alive(now_ms) > 0) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let n = count.unsigned_abs() as usize;
    if count > 0 {
        form.header(n.min(hash.n_alive(now_ms)), &mut ctx.reply);
        hash.sample(now_ms, n, &mut random, |pair| form.reply(pair, &mut ctx.reply));
        return Ok(());
    }
    draw_again_and_again(
        &mut ctx.reply,
        n,
        |reply| form.header(n, reply),
        |reply| {
            if let Some(pair) = hash.random(now_ms, &mut random) {
                form.reply(pair, reply);
            }
        },
    )
}
