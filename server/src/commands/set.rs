//! Set commands (<https://redis.io/docs/latest/commands/?group=set>).

use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;
use crate::types::Set;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("sadd", -3, Handler::Shard(sadd), "").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("srem", -3, Handler::Shard(srem), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("sismember", 3, Handler::Shard(sismember), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SET).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("smismember", -3, Handler::Shard(smismember), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SET).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("smembers", 2, Handler::Shard(smembers), "").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("scard", 2, Handler::Shard(scard), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SET).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("spop", -2, Handler::Shard(spop), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SET).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("srandmember", -2, Handler::Shard(srandmember), "").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("sinter", -2, Handler::Shard(sinter), "").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("sinterstore", -3, Handler::Shard(sinterstore), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
    row("sunion", -2, Handler::Shard(sunion), "").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("sunionstore", -3, Handler::Shard(sunionstore), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
    row("sdiff", -2, Handler::Shard(sdiff), "").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("sdiffstore", -3, Handler::Shard(sdiffstore), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
];


/// One lookup; nothing is allocated but what the set stores.
fn sadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let n_members = args.len() - 2;
    let limits = ctx.limits;
    let set = ctx.shard.set_or_new(ctx.at(), &key, || Set::for_members(args.get(2), n_members, limits))?;
    set.announce(n_members, limits);
    let n_added = args.from(2).filter(|member| set.add(member, limits)).count();
    if n_added > 0 {
        ctx.changed(&key, EventClass::Set, "sadd");
    }
    ctx.reply.integer(n_added as i64);
    Ok(())
}

fn srem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sismember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn smismember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn smembers(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn scard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn spop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn srandmember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sinter(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sinterstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sunion(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sunionstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sdiff(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn sdiffstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}
