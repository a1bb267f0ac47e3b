//! Server commands: INFO, COMMAND, CONFIG, DBSIZE, FLUSHALL, MEMORY, DEBUG and the like (<https://redis.io/docs/latest/commands/?group=server>).

use crate::args::Args;
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, KeyFlags, Merge, range, row};
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("info", -1, Handler::Split(info, Merge::Custom(info_merge)), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::DANGEROUS).tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    row("command", -1, Handler::Container, "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]).subcommands(&[
    row("command|count", 2, Handler::Conn(command_count), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|getkeys", -3, Handler::Conn(command_getkeys), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|getkeysandflags", -3, Handler::Conn(command_getkeysandflags), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|help", 2, Handler::Conn(command_help), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|info", -2, Handler::Conn(command_info), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]),
    row("command|list", -2, Handler::Conn(command_list), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]),
]),
    row("config", -2, Handler::Container, "").subcommands(&[
    row("config|get", -3, Handler::Conn(config_get), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("config|help", 2, Handler::Conn(config_help), "").flags(Flags::LOADING.with(Flags::STALE)),
    row("config|resetstat", 2, Handler::Conn(config_resetstat), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("config|rewrite", 2, Handler::Conn(config_rewrite), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("config|set", -4, Handler::Conn(config_set), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
]),
    row("dbsize", 1, Handler::Split(dbsize, Merge::Sum), "").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    row("flushdb", -1, Handler::Whole(flushdb), "").flags(Flags::WRITE).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("flushall", -1, Handler::Whole(flushall), "").flags(Flags::WRITE).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("swapdb", 3, Handler::Whole(swapdb), "").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)),
    row("time", 1, Handler::Conn(time), "").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("role", 1, Handler::Conn(role), "").flags(Flags::FAST.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::ADMIN.with(Acl::DANGEROUS)),
    row("memory", -2, Handler::Container, "").subcommands(&[
    row("memory|help", 2, Handler::Conn(memory_help), "").flags(Flags::LOADING.with(Flags::STALE)),
    row("memory|stats", 2, Handler::Split(memory_stats, Merge::Custom(memory_stats_merge)), "").tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    row("memory|usage", -3, Handler::Shard(memory_usage), "").flags(Flags::READONLY).keys(&[range(KeyFlags::RO, 2, 0, 1)]),
]),
    row("debug", -2, Handler::Words, "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).subcommands(DEBUG_WORDS),
    row("shutdown", -1, Handler::Conn(shutdown), "").flags(Flags::ADMIN.with(Flags::ALLOW_BUSY).with(Flags::LOADING).with(Flags::NO_MULTI).with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("module", -2, Handler::Container, "").subcommands(&[
    row("module|help", 2, Handler::Conn(module_help), "").flags(Flags::LOADING.with(Flags::STALE)),
    row("module|list", 2, Handler::Conn(module_list), "").flags(Flags::ADMIN.with(Flags::NOSCRIPT)).tips(&["nondeterministic_output_order"]),
]),
    row("readonly", 1, Handler::Conn(readonly), "").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("readwrite", 1, Handler::Conn(readwrite), "").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("cluster", -2, Handler::Container, "").subcommands(&[
    row("cluster|addslots", -3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|addslotsrange", -4, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|bumpepoch", 2, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|count-failure-reports", 3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|countkeysinslot", 3, Handler::Conn(cluster_disabled), "").flags(Flags::STALE),
    row("cluster|delslots", -3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|delslotsrange", -4, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|failover", -2, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|flushslots", 2, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|forget", 3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|getkeysinslot", 4, Handler::Conn(cluster_disabled), "").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|help", 2, Handler::Conn(cluster_disabled), "").flags(Flags::LOADING.with(Flags::STALE)),
    row("cluster|info", 2, Handler::Conn(cluster_disabled), "").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|keyslot", 3, Handler::Conn(cluster_disabled), "").flags(Flags::STALE),
    row("cluster|links", 2, Handler::Conn(cluster_disabled), "").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|meet", -4, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|myid", 2, Handler::Conn(cluster_disabled), "").flags(Flags::STALE),
    row("cluster|myshardid", 2, Handler::Conn(cluster_disabled), "").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|nodes", 2, Handler::Conn(cluster_disabled), "").flags(Flags::STALE).tips(&["nondeterministic_output"]),
    row("cluster|replicas", 3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|replicate", 3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|reset", -2, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("cluster|saveconfig", 2, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|set-config-epoch", 3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|setslot", -4, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::NO_ASYNC_LOADING).with(Flags::STALE)),
    row("cluster|shards", 2, Handler::Conn(cluster_disabled), "").flags(Flags::LOADING.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|slaves", 3, Handler::Conn(cluster_disabled), "").flags(Flags::ADMIN.with(Flags::STALE)).tips(&["nondeterministic_output"]),
    row("cluster|slot-stats", -4, Handler::Conn(cluster_disabled), "").flags(Flags::LOADING.with(Flags::STALE)).tips(&["nondeterministic_output", "request_policy:all_shards"]),
    row("cluster|slots", 2, Handler::Conn(cluster_disabled), "").flags(Flags::LOADING.with(Flags::STALE)).tips(&["nondeterministic_output"]),
]),
];


fn info(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn info_merge(conn: &mut Conn<'_>, parts: &[&[u8]], args: Args<'_>) -> Outcome {
    let _ = (conn, parts, args);
    Err(CommandError::text("ERR not there yet"))
}

fn command_count(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn command_getkeys(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn command_getkeysandflags(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn command_help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn command_info(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn command_list(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn config_get(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn config_help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn config_resetstat(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn config_rewrite(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn config_set(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn dbsize(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn flushdb(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn flushall(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn swapdb(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn time(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn role(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn memory_help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn memory_stats(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn memory_stats_merge(conn: &mut Conn<'_>, parts: &[&[u8]], args: Args<'_>) -> Outcome {
    let _ = (conn, parts, args);
    Err(CommandError::text("ERR not there yet"))
}

fn memory_usage(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn shutdown(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn module_help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn module_list(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn readonly(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn readwrite(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn cluster_disabled(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

const DEBUG_WORDS: &[Command] = &[];
