//! XINFO and its subcommands.

use super::{ArrayLater, no_group, reply_entry, reply_id};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, KeyFlags, range as key_range, row};
use crate::commands::{reply_help, wrong_subcommand};
use crate::error::{CommandError, Outcome};
use crate::types::Stream;
use crate::types::stream::{Consumer, Group, READS_UNKNOWN, StreamId};
use skerry_resp::reply::Reply;

const READS: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

#[rustfmt::skip]
pub(super) const SUBCOMMANDS: &[Command] = &[
    row("xinfo|consumers", 4, Handler::Shard(consumers), "Describes the consumers of a group").flags(Flags::READONLY).acl(Acl::STREAM).tips(&["nondeterministic_output"]).keys(&[key_range(READS, 2, 0, 1)]),
    row("xinfo|groups", 3, Handler::Shard(groups), "Describes the groups of a stream").flags(Flags::READONLY).acl(Acl::STREAM).keys(&[key_range(READS, 2, 0, 1)]),
    row("xinfo|help", 2, Handler::Conn(help), "The subcommands of XINFO").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::STREAM),
    row("xinfo|stream", -3, Handler::Shard(stream), "Describes a stream").flags(Flags::READONLY).acl(Acl::STREAM).keys(&[key_range(READS, 2, 0, 1)]),
];

/// Entries that FULL shows without COUNT.
const DEFAULT_COUNT: i64 = 10;

/// XINFO STREAM key [FULL [COUNT count]]
fn stream(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 2);
    let stream = ctx.shard.read_stream(ctx.at(), &key)?.ok_or(CommandError::NoSuchKey)?;
    let count = match args.len() {
        3 => None,
        4 | 6 if is_word(args.get(3), "full") => match args.len() {
            6 if !is_word(args.get(4), "count") => return Err(wrong_subcommand(args, "XINFO")),
            6 => Some(args.integer(5)?),
            _ => Some(DEFAULT_COUNT),
        },
        _ => return Err(wrong_subcommand(args, "XINFO")),
    };
    let now_ms = ctx.now_ms;
    let reply = &mut ctx.reply;
    match count {
        None => {
            reply.map(10 + n_idempotence_fields(stream));
            reply_history(stream, reply);
            reply_idempotence(stream, now_ms, reply);
            reply.bulk(b"groups");
            reply.integer(stream.groups().len() as i64);
            for (name, entry) in [
                (&b"first-entry"[..], stream.range(StreamId::MIN, StreamId::MAX).next()),
                (b"last-entry", stream.range_backward(StreamId::MIN, StreamId::MAX).next()),
            ] {
                reply.bulk(name);
                match entry {
                    Some(entry) => reply_entry(&entry, reply),
                    None => reply.null(),
                }
            }
        }
        Some(count) => {
            // Below 0 is the default, 0 is all.
            let limit = match count {
                ..0 => DEFAULT_COUNT as usize,
                0 => usize::MAX,
                _ => count as usize,
            };
            reply_full(stream, limit, now_ms, reply);
        }
    }
    Ok(())
}

fn reply_history(stream: &Stream, reply: &mut Reply<'_>) {
    let history = &stream.history;
    for (name, number) in [
        (&b"length"[..], history.length),
        (b"radix-tree-keys", stream.nodes().len() as u64),
        (b"radix-tree-nodes", stream.n_radix_nodes() as u64),
    ] {
        reply.bulk(name);
        reply.integer(number as i64);
    }
    reply.bulk(b"last-generated-id");
    reply_id(history.last_id, reply);
    reply.bulk(b"max-deleted-entry-id");
    reply_id(history.max_deleted_id, reply);
    reply.bulk(b"entries-added");
    reply.integer(history.entries_added as i64);
    reply.bulk(b"recorded-first-entry-id");
    reply_id(history.first_id, reply);
}

fn n_idempotence_fields(stream: &Stream) -> usize {
    if stream.idempotence.is_some() { 6 } else { 0 }
}

/// What Redis 8.6 tells of every stream; here only of those that remember messages, so that others look as in 8.2.
fn reply_idempotence(stream: &Stream, now_ms: i64, reply: &mut Reply<'_>) {
    let Some(idempotence) = &stream.idempotence else { return };
    let limits = idempotence.limits();
    let (n_producers, n_ids) = idempotence.n_tracked(now_ms);
    for (name, number) in [
        (&b"idmp-duration"[..], u64::from(limits.duration_s)),
        (b"idmp-maxsize", u64::from(limits.max_ids)),
        (b"pids-tracked", n_producers as u64),
        (b"iids-tracked", n_ids as u64),
        (b"iids-added", idempotence.n_added()),
        (b"iids-duplicates", idempotence.n_duplicates()),
    ] {
        reply.bulk(name);
        reply.integer(number as i64);
    }
}

fn reply_full(stream: &Stream, limit: usize, now_ms: i64, reply: &mut Reply<'_>) {
    reply.map(9 + n_idempotence_fields(stream));
    reply_history(stream, reply);
    reply_idempotence(stream, now_ms, reply);
    reply.bulk(b"entries");
    let (later, mut n) = (ArrayLater::begin(reply), 0);
    for entry in stream.range(StreamId::MIN, StreamId::MAX).take(limit) {
        reply_entry(&entry, reply);
        n += 1;
    }
    later.end(reply, |reply| reply.array(n));
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        let n_released = group.n_released();
        reply.map(7 + usize::from(n_released > 0));
        reply.bulk(b"name");
        reply.bulk(name);
        reply_progress(stream, group, reply);
        reply.bulk(b"pel-count");
        reply.integer(group.pending().len() as i64);
        // Of Redis 8.8: only where there are any.
        if n_released > 0 {
            reply.bulk(b"nacked-count");
            reply.integer(n_released as i64);
        }
        reply.bulk(b"pending");
        reply.array(group.pending().len().min(limit));
        for nack in group.pending().iter().take(limit) {
            reply.array(4);
            reply_id(nack.id, reply);
            reply.bulk(group.name_of(nack.consumer));
            reply.integer(nack.told_ms());
            reply.integer(nack.n_deliveries as i64);
        }
        reply.bulk(b"consumers");
        reply.array(group.n_consumers());
        group.consumers().for_each(|consumer| reply_consumer(group, consumer, limit, reply));
    }
}

fn reply_consumer(group: &Group, consumer: &Consumer, limit: usize, reply: &mut Reply<'_>) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(&consumer.name);
    reply.bulk(b"seen-time");
    reply.integer(consumer.seen_ms);
    reply.bulk(b"active-time");
    reply.integer(consumer.active_ms.unwrap_or(-1));
    reply.bulk(b"pel-count");
    reply.integer(consumer.pending().len() as i64);
    reply.bulk(b"pending");
    reply.array(consumer.pending().len().min(limit));
    for nack in consumer.pending().iter().take(limit).filter_map(|id| group.find_pending(*id)) {
        reply.array(3);
        reply_id(nack.id, reply);
        reply.integer(nack.delivered_ms);
        reply.integer(nack.n_deliveries as i64);
    }
}

/// How far a group has read.
fn reply_progress(stream: &Stream, group: &Group, reply: &mut Reply<'_>) {
    reply.bulk(b"last-delivered-id");
    reply_id(group.last_id, reply);
    reply.bulk(b"entries-read");
    match group.entries_read {
        READS_UNKNOWN => reply.null(),
        entries_read => reply.integer(entries_read),
    }
    reply.bulk(b"lag");
    match stream.history.lag(group) {
        Some(lag) => reply.integer(lag),
        None => reply.null(),
    }
}

/// XINFO GROUPS key
fn groups(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 2);
    let stream = ctx.shard.read_stream(ctx.at(), &key)?.ok_or(CommandError::NoSuchKey)?;
    let reply = &mut ctx.reply;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"consumers");
        reply.integer(group.n_consumers() as i64);
        reply.bulk(b"pending");
        reply.integer(group.pending().len() as i64);
        reply_progress(stream, group, reply);
    }
    Ok(())
}

/// XINFO CONSUMERS key group
fn consumers(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (key, at) = (ctx.key(args, 2), ctx.at());
    let stream = ctx.shard.read_stream(at, &key)?.ok_or(CommandError::NoSuchKey)?;
    let name = args.get(3);
    let group = stream.group(name).ok_or_else(|| {
        no_group(&[b"NOGROUP No such consumer group '", name, b"' for key name '", key.bytes, b"'"])
    })?;
    let reply = &mut ctx.reply;
    reply.array(group.n_consumers());
    for consumer in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(&consumer.name);
        reply.bulk(b"pending");
        reply.integer(consumer.pending().len() as i64);
        reply.bulk(b"idle");
        reply.integer(at.now_ms.wrapping_sub(consumer.seen_ms).max(0));
        reply.bulk(b"inactive");
        reply.integer(consumer.active_ms.map_or(-1, |active_ms| at.now_ms.wrapping_sub(active_ms)));
    }
    Ok(())
}

/// XINFO HELP
fn help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Print this help.",
];
