//! String commands (<https://redis.io/docs/latest/commands/?group=string>).

use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::keyspace::{NewValue, Ttl};
use crate::shard::EventClass;
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("append", 3, Handler::Shard(append), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("decr", 2, Handler::Shard(decr), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("decrby", 3, Handler::Shard(decrby), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("get", 2, Handler::Shard(get), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("getdel", 2, Handler::Shard(getdel), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("getex", -2, Handler::Shard(getex), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1).notes("RW and UPDATE because it changes the TTL")]),
    row("getrange", 4, Handler::Shard(getrange), "").flags(Flags::READONLY).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("getset", 3, Handler::Shard(getset), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("incr", 2, Handler::Shard(incr), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("incrby", 3, Handler::Shard(incrby), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("incrbyfloat", 3, Handler::Shard(incrbyfloat), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("mget", -2, Handler::Shard(mget), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).tips(&["request_policy:multi_shard"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("mset", -3, Handler::Shard(mset), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, -1, 2)]),
    row("msetnx", -3, Handler::Shard(msetnx), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::INSERT), 1, -1, 2)]),
    row("psetex", 4, Handler::Shard(psetex), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("set", -3, Handler::Shard(set), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE_FLAGS), 1, 0, 1).notes("RW and ACCESS due to the optional `GET` argument")]),
    row("setex", 4, Handler::Shard(setex), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("setnx", 3, Handler::Shard(setnx), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("setrange", 4, Handler::Shard(setrange), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("strlen", 2, Handler::Shard(strlen), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("substr", 4, Handler::Shard(substr), "").flags(Flags::READONLY).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];


fn append(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn decr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    match ctx.shard.read_string(ctx.at(), &key)? {
        Some(text) => text.reply(&mut ctx.reply),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn getdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn getex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn getrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn getset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn incr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn incrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn msetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn psetex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    ctx.shard.insert(ctx.at(), &key, NewValue::of_bytes(args.get(2)), Ttl::Clear);
    ctx.changed(&key, EventClass::String, "set");
    ctx.reply.ok();
    Ok(())
}

fn setex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn setnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn setrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn strlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn substr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}
