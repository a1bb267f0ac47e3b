//! Hash commands (<https://redis.io/docs/latest/commands/?group=hash>).

use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("hset", -4, Handler::Shard(hset), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hget", 3, Handler::Shard(hget), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hmget", -3, Handler::Shard(hmget), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hmset", -4, Handler::Shard(hmset), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hgetall", 2, Handler::Shard(hgetall), "").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hdel", -3, Handler::Shard(hdel), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("hlen", 2, Handler::Shard(hlen), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("hexists", 3, Handler::Shard(hexists), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("hkeys", 2, Handler::Shard(hkeys), "").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hvals", 2, Handler::Shard(hvals), "").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hincrby", 4, Handler::Shard(hincrby), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hsetnx", 4, Handler::Shard(hsetnx), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
];


fn hset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hmget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hmset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hgetall(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hkeys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hvals(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hsetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}
