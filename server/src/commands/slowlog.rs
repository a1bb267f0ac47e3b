//! SLOWLOG (<https://redis.io/docs/latest/commands/?group=server>) and Valkey's COMMANDLOG
//! (<https://valkey.io/commands/commandlog/>): the logs of calls that took long, or whose request or reply was large.

use skerry_resp::number;

use super::{reply_help, wrong_subcommand};
use crate::args::{Args, is_word};
use crate::command::{Command, Conn, Flags, Handler, row};
use crate::command_log::LogKind;
use crate::error::{CommandError, Outcome};

const ADMIN: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
const HELP: Flags = Flags::LOADING.with(Flags::STALE);
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "nondeterministic_output"];
const ADDED: &[&str] = &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"];
const SUCCEEDED: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("slowlog", -2, Handler::Container, "The log of slow calls").subcommands(&[
        row("slowlog|get", -2, Handler::Conn(slowlog_get), "The newest entries").flags(ADMIN).tips(ALL_NODES),
        row("slowlog|help", 2, Handler::Conn(slowlog_help), "The subcommands of SLOWLOG").flags(HELP),
        row("slowlog|len", 2, Handler::Conn(slowlog_len), "The number of entries").flags(ADMIN).tips(ADDED),
        row("slowlog|reset", 2, Handler::Conn(slowlog_reset), "Drops all entries").flags(ADMIN).tips(SUCCEEDED),
    ]),
    row("commandlog", -2, Handler::Container, "Valkey's logs of slow calls, large requests and large replies").subcommands(&[
        row("commandlog|get", 4, Handler::Conn(commandlog_get), "The newest entries of one log").flags(ADMIN).tips(ALL_NODES),
        row("commandlog|help", 2, Handler::Conn(commandlog_help), "The subcommands of COMMANDLOG").flags(HELP),
        row("commandlog|len", 3, Handler::Conn(commandlog_len), "The number of entries of one log").flags(ADMIN).tips(ADDED),
        row("commandlog|reset", 3, Handler::Conn(commandlog_reset), "Drops all entries of one log").flags(ADMIN).tips(SUCCEEDED),
    ]),
];

const BAD_COUNT: CommandError = CommandError::text("ERR count should be greater than or equal to -1");
/// Entries that SLOWLOG GET shows if it is not told how many.
const DEFAULT_COUNT: usize = 10;

/// How many entries are asked for; -1 means all.
fn count_of(arg: &[u8]) -> Result<usize, CommandError> {
    match number::parse_i64(arg) {
        Some(-1) => Ok(usize::MAX),
        Some(count) => usize::try_from(count).map_err(|_| BAD_COUNT),
        None => Err(BAD_COUNT),
    }
}

fn kind_of(word: &[u8]) -> Result<LogKind, CommandError> {
    match word {
        _ if is_word(word, "slow") => Ok(LogKind::Slow),
        _ if is_word(word, "large-request") => Ok(LogKind::LargeRequest),
        _ if is_word(word, "large-reply") => Ok(LogKind::LargeReply),
        _ => Err(CommandError::text(
            "ERR type should be one of the following: slow, large-request, large-reply",
        )),
    }
}

fn reply_entries(conn: &mut Conn<'_>, kind: LogKind, count: usize) {
    let log = conn.server.command_logs.of(kind);
    let n = log.entries.len().min(count);
    conn.reply.array(n);
    for entry in log.entries.iter().take(n) {
        conn.reply.array(6);
        conn.reply.integer(entry.id as i64);
        conn.reply.integer(entry.at_s);
        conn.reply.integer(entry.value as i64);
        conn.reply.array(entry.argv.len());
        entry.argv.iter().for_each(|arg| conn.reply.bulk(arg));
        conn.reply.bulk(entry.address.as_bytes());
        conn.reply.bulk(&entry.name);
    }
}

fn reply_len(conn: &mut Conn<'_>, kind: LogKind) {
    let n = conn.server.command_logs.of(kind).entries.len();
    conn.reply.integer(n as i64);
}

/// SLOWLOG GET [count]
fn slowlog_get(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => DEFAULT_COUNT,
        3 => count_of(args.get(2))?,
        _ => return Err(wrong_subcommand(args, "SLOWLOG")),
    };
    reply_entries(conn, LogKind::Slow, count);
    Ok(())
}

/// SLOWLOG LEN
fn slowlog_len(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_len(conn, LogKind::Slow);
    Ok(())
}

/// SLOWLOG RESET
fn slowlog_reset(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.server.command_logs.of(LogKind::Slow).entries.clear();
    conn.reply.ok();
    Ok(())
}

/// SLOWLOG HELP
fn slowlog_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, SLOWLOG_HELP);
    Ok(())
}

/// COMMANDLOG GET count type
fn commandlog_get(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let count = count_of(args.get(2))?;
    let kind = kind_of(args.get(3))?;
    reply_entries(conn, kind, count);
    Ok(())
}

/// COMMANDLOG LEN type
fn commandlog_len(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let kind = kind_of(args.get(2))?;
    reply_len(conn, kind);
    Ok(())
}

/// COMMANDLOG RESET type
fn commandlog_reset(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let kind = kind_of(args.get(2))?;
    conn.server.command_logs.of(kind).entries.clear();
    conn.reply.ok();
    Ok(())
}

/// COMMANDLOG HELP
fn commandlog_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, COMMANDLOG_HELP);
    Ok(())
}

const SLOWLOG_HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
    "HELP",
    "    Print this help.",
];

const COMMANDLOG_HELP: &[&str] = &[
    "COMMANDLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <count> <type>",
    "    Return top <count> entries of the specified <type> from the commandlog (-1 mean all).",
    "    Entries are made of:",
    "    id, timestamp,",
    "        time in microseconds for type of slow,",
    "        or size in bytes for type of large-request,",
    "        or size in bytes for type of large-reply",
    "    arguments array, client IP and port,",
    "    client name",
    "LEN <type>",
    "    Return the length of the specified type of commandlog.",
    "RESET <type>",
    "    Reset the specified type of commandlog.",
    "HELP",
    "    Print this help.",
];
