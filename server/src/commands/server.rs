//! Server commands on the databases as a whole and on the process: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB, TIME,
//! ROLE, SHUTDOWN, MODULE (<https://redis.io/docs/latest/commands/?group=server>). INFO, CONFIG, COMMAND,
//! MEMORY, DEBUG and CLUSTER have files of their own.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use signal_hook::consts::SIGTERM;

use super::{cluster, command_info, config, connection, debug, info, lolwut, memory, reply_help};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, Merge, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Key;
use crate::shard::{DbIndex, Fate};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("info", -1, Handler::Split(info::info, Merge::Custom(info::info_merge)), "The server's state and counters, by sections").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::DANGEROUS).tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    row("command", -1, Handler::Conn(command_info::command), "The command table").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]).subcommands(command_info::SUBCOMMANDS),
    row("config", -2, Handler::Container, "Reads and changes the configuration").subcommands(config::SUBCOMMANDS),
    row("dbsize", 1, Handler::Split(dbsize, Merge::Sum), "The number of keys in the database").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    row("flushdb", -1, Handler::Whole(flushdb), "Empties the database").flags(Flags::WRITE).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("flushall", -1, Handler::Whole(flushall), "Empties all databases").flags(Flags::WRITE).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("swapdb", 3, Handler::Whole(swapdb), "Exchanges two databases").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)),
    row("time", 1, Handler::Conn(time), "The time of day in seconds and microseconds").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("role", 1, Handler::Conn(role), "The server's part in replication").flags(Flags::FAST.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::ADMIN.with(Acl::DANGEROUS)),
    row("lolwut", -1, Handler::Conn(lolwut::lolwut), "A picture drawn by chance, and the version").flags(Flags::FAST.with(Flags::READONLY)),
    row("memory", -2, Handler::Container, "Tells where memory goes").subcommands(memory::SUBCOMMANDS),
    row("debug", -2, Handler::Words, "Tools for tests, behind enable-debug-command").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).subcommands(debug::WORDS),
    row("monitor", 1, Handler::Conn(monitor), "Shows every command that runs").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("shutdown", -1, Handler::Conn(shutdown), "Stops the server").flags(Flags::ADMIN.with(Flags::ALLOW_BUSY).with(Flags::LOADING).with(Flags::NO_MULTI).with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("module", -2, Handler::Container, "Tells what is built in that is a module of Redis").subcommands(&[
    row("module|help", 2, Handler::Conn(module_help), "The subcommands of MODULE").flags(Flags::LOADING.with(Flags::STALE)),
    row("module|list", 2, Handler::Conn(module_list), "The modules").flags(Flags::ADMIN.with(Flags::NOSCRIPT)).tips(&["nondeterministic_output_order"]),
    ]),
    row("readonly", 1, Handler::Conn(cluster::cluster_disabled), "Lets a cluster replica answer reads").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("readwrite", 1, Handler::Conn(cluster::cluster_disabled), "Ends READONLY").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("asking", 1, Handler::Conn(cluster::cluster_disabled), "Lets the next request touch a slot that is moving in").flags(Flags::FAST).acl(Acl::CONNECTION),
    row("cluster", -2, Handler::Container, "Answers as a server outside a cluster").subcommands(cluster::SUBCOMMANDS),
];

/// DBSIZE: this shard's part.
fn dbsize(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Outcome {
    let n = ctx.keyspace().len();
    ctx.reply.integer(n as i64);
    Ok(())
}

/// FLUSHDB [ASYNC|SYNC]
fn flushdb(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    check_flush(args)?;
    flush(ctx, ctx.caller.db);
    ctx.shard.flush_tracking();
    ctx.reply.ok();
    Ok(())
}

/// FLUSHALL [ASYNC|SYNC]
fn flushall(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    check_flush(args)?;
    for db in 0..ctx.shard.n_databases() {
        flush(ctx, DbIndex(db as u16));
    }
    ctx.shard.flush_tracking();
    ctx.reply.ok();
    Ok(())
}

/// Memory comes back in slices either way: the words are checked and change nothing.
fn check_flush(args: Args<'_>) -> Outcome {
    match args.len() {
        1 => Ok(()),
        2 if is_word(args.get(1), "ASYNC") || is_word(args.get(1), "SYNC") => Ok(()),
        _ => Err(CommandError::Syntax),
    }
}

/// Empties a database of this shard; who watches one of its keys is told.
fn flush(ctx: &mut Ctx<'_>, db: DbIndex) {
    if ctx.shard.keyspace(db).is_empty() {
        return;
    }
    ctx.shard.touch_database(db, |shard, key| match exists(shard, db, key) {
        true => Fate::Removed,
        false => Fate::Unchanged,
    });
    withdraw_vectors(ctx, db);
    ctx.shard.stats.dirty += ctx.shard.keyspace(db).len() as u64;
    ctx.shard.flush(db);
}

fn exists(shard: &mut crate::shard::Shard, db: DbIndex, key: &[u8]) -> bool {
    let keyspace = shard.keyspace(db);
    keyspace.peek(&Key::new(key, keyspace.seed())).is_some()
}

/// Other workers stop reading this shard's vector sets of a database.
fn withdraw_vectors(ctx: &Ctx<'_>, db: DbIndex) {
    let (server, own) = (ctx.server, ctx.shard.id);
    server.vectors.withdraw_database(db, |key| server.shard_of(key) == own);
}

/// SWAPDB index1 index2
fn swapdb(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    // Redis reads an int here: what is beyond it is no index at all.
    let index = |at: usize, text: &'static str| {
        args.integer(at).ok().filter(|index| i32::try_from(*index).is_ok()).ok_or(CommandError::text(text))
    };
    let a = index(1, "ERR invalid first DB index")?;
    let b = index(2, "ERR invalid second DB index")?;
    let a = connection::database(ctx.config.databases, a)?;
    let b = connection::database(ctx.config.databases, b)?;
    if a != b {
        for db in [a, b] {
            // A watched key is touched if it is there now or will be there.
            ctx.shard.touch_database(db, |shard, key| match exists(shard, a, key) || exists(shard, b, key) {
                true => Fate::Changed,
                false => Fate::Unchanged,
            });
            withdraw_vectors(ctx, db);
        }
        ctx.shard.swap_databases(a, b);
        ctx.shard.stats.dirty += 1;
    }
    ctx.reply.ok();
    Ok(())
}

/// TIME
fn time(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    // Finer than the turn's own time: clients measure with it.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    conn.reply.array(2);
    conn.reply.bulk_integer(now.as_secs() as i64);
    conn.reply.bulk_integer(i64::from(now.subsec_micros()));
    Ok(())
}

/// MONITOR: once is enough, and a second one is not answered.
fn monitor(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    if conn.client.is_executing {
        return Err(CommandError::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !std::mem::replace(&mut conn.client.is_monitor, true) {
        conn.server.monitors.add(conn.client.id);
        conn.server.touch_config();
        conn.reply.ok();
    }
    Ok(())
}

/// ROLE: a master without replicas.
fn role(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.array(3);
    conn.reply.bulk(b"master");
    conn.reply.integer(0);
    conn.reply.array(0);
    Ok(())
}

/// SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]: not answered if it succeeds.
fn shutdown(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let (mut saves, mut saves_not, mut is_forced, mut aborts, mut n_others) = (false, false, false, false, 0);
    for word in args.from(1) {
        match word.to_ascii_lowercase().as_slice() {
            b"nosave" => saves_not = true,
            b"save" => saves = true,
            b"now" => n_others += 1,
            b"force" => is_forced = true,
            b"abort" => aborts = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    let has_others = saves || saves_not || is_forced || n_others > 0;
    if (aborts && has_others) || (saves && saves_not) {
        return Err(CommandError::Syntax);
    }
    if aborts {
        // A shutdown here waits for nobody, so none is ever in progress.
        return Err(CommandError::text("ERR No shutdown in progress."));
    }
    if saves && !is_forced {
        crate::log::warning("SHUTDOWN SAVE is refused: this server does not persist yet");
        return Err(CommandError::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    conn.server.is_shutdown_asked.store(true, Ordering::SeqCst);
    if signal_hook::low_level::raise(SIGTERM).is_err() {
        return Err(CommandError::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    Ok(())
}

/// MODULE LIST
fn module_list(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    connection::modules(&mut conn.reply);
    Ok(())
}

/// MODULE HELP
fn module_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "LIST",
    "    Return a list of loaded modules.",
    "LOAD <path> [<arg> ...]",
    "    Load a module library from <path>, passing to it any optional arguments.",
    "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
    "    Load a module library from <path>, while passing it module configurations and optional arguments.",
    "UNLOAD <name>",
    "    Unload a module.",
    "HELP",
    "    Print this help.",
];
