//! List commands (<https://redis.io/docs/latest/commands/?group=list>).

use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("lpush", -3, Handler::Shard(lpush), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("lpushx", -3, Handler::Shard(lpushx), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("rpush", -3, Handler::Shard(rpush), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("rpushx", -3, Handler::Shard(rpushx), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("lpop", -2, Handler::Shard(lpop), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("rpop", -2, Handler::Shard(rpop), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("lrange", 4, Handler::Shard(lrange), "").flags(Flags::READONLY).acl(Acl::LIST).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("lindex", 3, Handler::Shard(lindex), "").flags(Flags::READONLY).acl(Acl::LIST).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("ltrim", 4, Handler::Shard(ltrim), "").flags(Flags::WRITE).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("lset", 4, Handler::Shard(lset), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("llen", 2, Handler::Shard(llen), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::LIST).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
];


fn lpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn lpushx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn rpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn rpushx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn lpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn rpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn lrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn lindex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn ltrim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn lset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn llen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}
