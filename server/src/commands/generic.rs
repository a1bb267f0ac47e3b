//! Commands on keys of any type: DEL, EXPIRE, SCAN, RENAME, COPY and the like (<https://redis.io/docs/latest/commands/?group=generic>).

use crate::args::Args;
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, KeyFlags, Merge, range, row};
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("del", -2, Handler::Shard(del), "").flags(Flags::WRITE).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RM.with(KeyFlags::DELETE), 1, -1, 1)]),
    row("unlink", -2, Handler::Shard(unlink), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RM.with(KeyFlags::DELETE), 1, -1, 1)]),
    row("exists", -2, Handler::Shard(exists), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RO, 1, -1, 1)]),
    row("type", 2, Handler::Shard(type_), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("touch", -2, Handler::Shard(touch), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RO, 1, -1, 1)]),
    row("keys", 2, Handler::Split(keys, Merge::Concat), "").flags(Flags::READONLY).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    row("scan", -2, Handler::Cursor(scan), "").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    row("randomkey", 1, Handler::Split(randomkey, Merge::Custom(randomkey_merge)), "").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"]),
    row("rename", 3, Handler::Shard(rename), "").flags(Flags::WRITE).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::OW.with(KeyFlags::UPDATE), 2, 0, 1)]),
    row("renamenx", 3, Handler::Shard(renamenx), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::OW.with(KeyFlags::INSERT), 2, 0, 1)]),
    row("copy", -3, Handler::Shard(copy), "").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1), range(KeyFlags::OW.with(KeyFlags::UPDATE), 2, 0, 1)]),
    row("move", 3, Handler::Shard(move_), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("expire", -3, Handler::Shard(expire), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("pexpire", -3, Handler::Shard(pexpire), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("expireat", -3, Handler::Shard(expireat), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("pexpireat", -3, Handler::Shard(pexpireat), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("ttl", 2, Handler::Shard(ttl), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("pttl", 2, Handler::Shard(pttl), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("expiretime", 2, Handler::Shard(expiretime), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("pexpiretime", 2, Handler::Shard(pexpiretime), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("persist", 2, Handler::Shard(persist), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("object", -2, Handler::Container, "").subcommands(&[
    row("object|encoding", 3, Handler::Shard(object_encoding), "").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO, 2, 0, 1)]),
    row("object|help", 2, Handler::Conn(object_help), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::KEYSPACE),
]),
];


fn del(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn unlink(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn type_(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn touch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn scan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn randomkey(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn randomkey_merge(conn: &mut Conn<'_>, parts: &[&[u8]], args: Args<'_>) -> Outcome {
    let _ = (conn, parts, args);
    Err(CommandError::text("ERR not there yet"))
}

fn rename(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn renamenx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn copy(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn move_(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn expire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn pexpire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn expireat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn pexpireat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn ttl(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn pttl(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn expiretime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn pexpiretime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn persist(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn object_encoding(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn object_help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

/// The shard that a SCAN cursor names; a malformed cursor goes anywhere, where its error is told.
pub fn shard_of_cursor(args: Args<'_>, n_shards: usize) -> crate::shard::ShardId {
    let cursor = skerry_resp::number::parse_u64(args.get(1)).unwrap_or(0);
    crate::shard::ShardId(((cursor & 0xff) as usize).min(n_shards - 1) as u8)
}
