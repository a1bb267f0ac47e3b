//! MEMORY and its subcommands: where memory goes.

use super::{doctor, part_integers, reply_help};
use crate::alloc;
use crate::args::Args;
use crate::command::{Command, Conn, Ctx, Flags, Handler, KeyFlags, Merge, range, row};
use crate::error::{CommandError, Outcome};
use crate::process;

#[rustfmt::skip]
pub const SUBCOMMANDS: &[Command] = &[
    row("memory|doctor", 2, Handler::Split(memory_stats, Merge::Custom(memory_doctor_merge)), "What is wrong with the server's memory, if anything").tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    row("memory|help", 2, Handler::Conn(memory_help), "The subcommands of MEMORY").flags(Flags::LOADING.with(Flags::STALE)),
    row("memory|malloc-stats", 2, Handler::Conn(memory_malloc_stats), "What the allocator says of itself").tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    row("memory|purge", 2, Handler::Split(memory_purge, Merge::AllSucceeded), "Gives free pages back to the system").tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("memory|stats", 2, Handler::Split(memory_stats, Merge::Custom(memory_stats_merge)), "The server's memory by purpose").tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    row("memory|usage", -3, Handler::Shard(memory_usage), "The bytes that a key and its value take").flags(Flags::READONLY).keys(&[range(KeyFlags::RO, 2, 0, 1)]),
];

/// MEMORY HELP
fn memory_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

/// MEMORY PURGE: each worker hands its free pages over, and the purger gives them back while the workers go on. What was deleted and
/// is not yet freed keeps its own.
fn memory_purge(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Outcome {
    alloc::Purging::collect_thread();
    alloc::Purger::wake();
    ctx.reply.ok();
    Ok(())
}

/// MEMORY MALLOC-STATS
fn memory_malloc_stats(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.verbatim(b"txt", alloc::report().as_bytes());
    Ok(())
}

/// MEMORY DOCTOR: the troubles of Redis's report that can be had here, by its thresholds.
fn memory_doctor_merge(conn: &mut Conn<'_>, parts: &[&[u8]], _args: Args<'_>) -> Outcome {
    let clients_bytes: i64 = parts.iter().map(|part| part_integers(part)[0]).sum();
    let facts = doctor::Facts {
        used_bytes: alloc::used_memory() as u64,
        peak_bytes: conn.server.note_peak_memory(),
        resident_bytes: process::resident_bytes(),
        clients_bytes: clients_bytes.max(0) as u64,
        n_clients: conn.server.n_clients.load(std::sync::atomic::Ordering::Relaxed),
    };
    conn.reply.verbatim(b"txt", doctor::report(&facts).as_bytes());
    Ok(())
}

/// MEMORY USAGE key [SAMPLES count]: the exact size is known, so nothing is sampled.
fn memory_usage(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut options = args.cursor(3);
    while !options.is_done() {
        if !options.word("SAMPLES") {
            return Err(CommandError::Syntax);
        }
        if options.next_integer()? < 0 {
            return Err(CommandError::Syntax);
        }
    }
    let key = ctx.key(args, 2);
    match ctx.shard.peek(ctx.at(), &key) {
        Some(entry) => ctx.reply.integer(entry.memory_bytes() as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// MEMORY STATS, a shard's part: its clients' bytes, then keys and table bytes of each database.
fn memory_stats(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Outcome {
    let keyspaces = ctx.shard.keyspaces();
    ctx.reply.array(1 + 2 * keyspaces.len());
    ctx.reply.integer(ctx.clients.bytes(ctx.shard.id) as i64);
    for keyspace in keyspaces {
        ctx.reply.integer(keyspace.len() as i64);
        ctx.reply.integer(keyspace.table_bytes() as i64);
    }
    Ok(())
}

fn memory_stats_merge(conn: &mut Conn<'_>, parts: &[&[u8]], _args: Args<'_>) -> Outcome {
    let parts: Vec<Vec<i64>> = parts.iter().map(|part| part_integers(part)).collect();
    let sum = |at: usize| parts.iter().map(|part| part[at]).sum::<i64>();
    let n_databases = (parts[0].len() - 1) / 2;
    let databases: Vec<(usize, i64, i64)> = (0..n_databases)
        .map(|db| (db, sum(1 + 2 * db), sum(2 + 2 * db)))
        .filter(|(_, keys, _)| *keys > 0)
        .collect();
    let n_keys: i64 = databases.iter().map(|(_, keys, _)| keys).sum();
    let table_bytes: i64 = (0..n_databases).map(|db| sum(2 + 2 * db)).sum();

    let used = alloc::used_memory() as i64;
    let peak = conn.server.note_peak_memory() as i64;
    let rss = process::resident_bytes() as i64;
    let startup = conn.server.startup_memory as i64;
    let overhead = startup + sum(0) + table_bytes;
    let dataset = (used - overhead).max(0);
    let above_startup = (used - startup).max(1);
    let reply = &mut conn.reply;
    let ints = |reply: &mut skerry_resp::reply::Reply<'_>, pairs: &[(&str, i64)]| {
        for (name, value) in pairs {
            reply.bulk(name.as_bytes());
            reply.integer(*value);
        }
    };
    reply.map(33 + databases.len());
    let clients = sum(0);
    ints(reply, &[("peak.allocated", peak), ("total.allocated", used), ("startup.allocated", startup)]);
    ints(reply, &[("replication.backlog", 0), ("replica.fullsync.buffer", 0), ("clients.slaves", 0)]);
    ints(reply, &[("clients.normal", clients), ("cluster.links", 0), ("aof.buffer", 0)]);
    let server = conn.server;
    let (scripts, functions) = (server.scripts.size().1 as i64, server.functions.size().2 as i64);
    let states =
        server.sum(|worker| &worker.script_lua_bytes) + server.sum(|worker| &worker.function_lua_bytes);
    ints(reply, &[("lua.caches", scripts), ("functions.caches", functions), ("script.VMs", states as i64)]);
    for (db, _, bytes) in &databases {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(2);
        ints(reply, &[("overhead.hashtable.main", *bytes), ("overhead.hashtable.expires", 0)]);
    }
    ints(reply, &[("overhead.db.hashtable.lut", table_bytes), ("overhead.db.hashtable.rehashing", 0)]);
    ints(reply, &[("overhead.total", overhead), ("db.dict.rehashing.count", 0), ("keys.count", n_keys)]);
    let per_key = if n_keys > 0 { (used - startup).max(0) / n_keys } else { 0 };
    ints(reply, &[("keys.bytes-per-key", per_key), ("dataset.bytes", dataset)]);
    let doubles = |reply: &mut skerry_resp::reply::Reply<'_>, name: &str, value: f64| {
        reply.bulk(name.as_bytes());
        reply.double(value);
    };
    doubles(reply, "dataset.percentage", 100.0 * dataset as f64 / above_startup as f64);
    doubles(reply, "peak.percentage", 100.0 * used as f64 / peak.max(1) as f64);
    ints(reply, &[("allocator.allocated", used), ("allocator.active", rss), ("allocator.resident", rss)]);
    ints(reply, &[("allocator.muzzy", 0)]);
    let ratio = rss as f64 / used.max(1) as f64;
    doubles(reply, "allocator-fragmentation.ratio", ratio);
    ints(reply, &[("allocator-fragmentation.bytes", rss - used)]);
    doubles(reply, "allocator-rss.ratio", 1.0);
    ints(reply, &[("allocator-rss.bytes", 0)]);
    doubles(reply, "rss-overhead.ratio", 1.0);
    ints(reply, &[("rss-overhead.bytes", 0)]);
    doubles(reply, "fragmentation", ratio);
    ints(reply, &[("fragmentation.bytes", rss - used)]);
    Ok(())
}

const HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return memory problems reports.",
    "MALLOC-STATS",
    "    Return internal statistics report from the memory allocator.",
    "PURGE",
    "    Attempt to purge dirty pages for reclamation by the allocator.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
    "HELP",
    "    Print this help.",
];
