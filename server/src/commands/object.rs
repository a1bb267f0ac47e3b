//! OBJECT: how a value is stored, and how much its key is used (<https://redis.io/docs/latest/commands/object/>).
//!
//! None of it marks the key as used. Values are never shared between keys, so a reference count is 1.

use super::generic::encoding_name;
use super::reply_help;
use crate::args::Args;
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, KeyFlags, KeySpec, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{EntryRef, Tracking};

const KEY: &[KeySpec] = &[range(KeyFlags::RO, 2, 0, 1)];
const TIPS: &[&str] = &["nondeterministic_output"];

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("object", -2, Handler::Container, "How a value is stored.").subcommands(&[
        row("object|encoding", 3, Handler::Shard(object_encoding), "The name of the encoding of a value.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(TIPS).keys(KEY),
        row("object|freq", 3, Handler::Shard(object_freq), "The logarithmic counter of a key's uses, under an LFU policy.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(TIPS).keys(KEY),
        row("object|help", 2, Handler::Conn(object_help), "What OBJECT can do.").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::KEYSPACE),
        row("object|idletime", 3, Handler::Shard(object_idletime), "Seconds since a key was last used (changed, under an LRM policy).").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(TIPS).keys(KEY),
        row("object|refcount", 3, Handler::Shard(object_refcount), "How many keys share a value.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(TIPS).keys(KEY),
    ]),
];

const NO_FREQUENCY: CommandError = CommandError::text(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const NO_IDLE_TIME: CommandError = CommandError::text(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);

/// Finds the key and replies with what `show` makes of it, or null.
fn reply_about(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    show: impl FnOnce(&mut Ctx<'_>, u32) -> Outcome,
) -> Outcome {
    let key = ctx.key(args, 2);
    match ctx.shard.read_untold(ctx.at(), &key).map(EntryRef::clock) {
        Some(clock) => show(ctx, clock),
        None => {
            ctx.reply.null();
            Ok(())
        }
    }
}

fn object_encoding(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 2);
    match ctx.shard.read_untold(ctx.at(), &key) {
        Some(entry) => ctx.reply.bulk(encoding_name(entry).as_bytes()),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn object_freq(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_about(ctx, args, |ctx, clock| {
        let access = ctx.keyspace().access();
        if access.tracking() != Tracking::Frequency {
            return Err(NO_FREQUENCY);
        }
        let frequency = access.frequency(clock);
        ctx.reply.integer(i64::from(frequency));
        Ok(())
    })
}

fn object_idletime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_about(ctx, args, |ctx, clock| {
        let access = ctx.keyspace().access();
        if access.tracking() == Tracking::Frequency {
            return Err(NO_IDLE_TIME);
        }
        let idle_s = access.idle_s(clock);
        ctx.reply.integer(i64::from(idle_s));
        Ok(())
    })
}

fn object_refcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_about(ctx, args, |ctx, _| {
        ctx.reply.integer(1);
        Ok(())
    })
}

fn object_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Print this help.",
];
