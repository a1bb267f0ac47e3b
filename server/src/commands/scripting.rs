//! EVAL, EVALSHA, their read-only forms, and SCRIPT.
//!
//! How a script runs is `dispatch::scripts`; what it is, `script`. Here are the rows, and what of SCRIPT needs no Lua.
//! SCRIPT DEBUG is refused: there is no debugger to step with.

use skerry_resp::reply::Reply;

use super::reply_help;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Flags, Handler, KeyFlags, Script, counted, row};
use crate::error::{CommandError, Outcome};
use crate::script::registry::{Kill, parse_sha};

pub(super) const RUNS: Flags = Flags::MOVABLEKEYS
    .with(Flags::NO_MANDATORY_KEYS)
    .with(Flags::NOSCRIPT)
    .with(Flags::SKIP_MONITOR)
    .with(Flags::STALE);
pub(super) const WRITES: KeyFlags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE);
pub(super) const READS: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("eval", -3, Handler::Script(Script::Eval), "Runs a Lua script.").flags(RUNS).acl(Acl::SCRIPTING).keys(&[counted(WRITES, 2).notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")]),
    row("eval_ro", -3, Handler::Script(Script::Eval), "Runs a Lua script that writes nothing.").flags(RUNS.with(Flags::READONLY)).acl(Acl::SCRIPTING).keys(&[counted(READS, 2).notes("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")]),
    row("evalsha", -3, Handler::Script(Script::EvalSha), "Runs a script that is known by its SHA-1.").flags(RUNS).acl(Acl::SCRIPTING).keys(&[counted(WRITES, 2)]),
    row("evalsha_ro", -3, Handler::Script(Script::EvalSha), "Runs a script that is known by its SHA-1 and writes nothing.").flags(RUNS.with(Flags::READONLY)).acl(Acl::SCRIPTING).keys(&[counted(READS, 2)]),
    row("script", -2, Handler::Container, "Commands on the scripts that the server knows.").subcommands(SUBCOMMANDS),
];

#[rustfmt::skip]
const SUBCOMMANDS: &[Command] = &[
    row("script|debug", 3, Handler::Conn(debug), "Refused: there is no script debugger.").flags(Flags::NOSCRIPT).acl(Acl::SCRIPTING),
    row("script|exists", -3, Handler::Conn(exists), "Which of these scripts are known.").flags(Flags::NOSCRIPT).acl(Acl::SCRIPTING).tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
    row("script|flush", -2, Handler::Conn(flush), "Forgets all scripts.").flags(Flags::NOSCRIPT).acl(Acl::SCRIPTING).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("script|help", 2, Handler::Conn(help), "The subcommands of SCRIPT.").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::SCRIPTING),
    row("script|kill", 2, Handler::Conn(kill), "Ends the script that runs, if it has written nothing.").flags(Flags::ALLOW_BUSY.with(Flags::NOSCRIPT)).acl(Acl::SCRIPTING).tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    row("script|load", 3, Handler::Script(Script::Load), "Makes a script known, and answers its SHA-1.").flags(Flags::NOSCRIPT.with(Flags::STALE)).acl(Acl::SCRIPTING).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

pub const NO_SCRIPT: CommandError = CommandError::text("NOSCRIPT No matching script. Please use EVAL.");

/// The arguments of EVAL and its like from `numkeys` on: how many of them are keys.
pub fn key_count(args: Args<'_>) -> Result<usize, CommandError> {
    const FIRST: usize = 3;
    let count = args.integer(2)?;
    if count > (args.len() - FIRST) as i64 {
        return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| CommandError::text("ERR Number of keys can't be negative"))
}

fn debug(_conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    if !["yes", "sync", "no"].iter().any(|word| is_word(args.get(2), word)) {
        return Err(CommandError::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    }
    Err(CommandError::text("ERR SCRIPT DEBUG is not supported: there is no script debugger"))
}

fn exists(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    conn.reply.array(args.len() - 2);
    for text in args.from(2) {
        let is_known = parse_sha(text).is_some_and(|sha| conn.server.scripts.get(&sha).is_some());
        conn.reply.integer(is_known.into());
    }
    Ok(())
}

fn flush(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let is_mode =
        args.len() == 2 || args.len() == 3 && (is_word(args.get(2), "sync") || is_word(args.get(2), "async"));
    if !is_mode {
        return Err(CommandError::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    conn.server.scripts.flush();
    conn.reply.ok();
    Ok(())
}

fn kill(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.server.scripts.kill(Kill::Script)?;
    conn.reply.ok();
    Ok(())
}

fn help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(
        conn,
        &[
            "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DEBUG (YES|SYNC|NO)",
            "    Set the debug mode for subsequent scripts executed.",
            "EXISTS <sha1> [<sha1> ...]",
            "    Return information about the existence of the scripts in the script cache.",
            "FLUSH [ASYNC|SYNC]",
            "    Flush the Lua scripts cache. Very dangerous on replicas.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the scripts cache.",
            "    * SYNC: Synchronously flush the scripts cache.",
            "KILL",
            "    Kill the currently executing Lua script.",
            "LOAD <script>",
            "    Load a script into the scripts cache without executing it.",
            "HELP",
            "    Print this help.",
        ],
    );
    Ok(())
}

/// The reply of SCRIPT LOAD.
pub fn reply_sha(reply: &mut Reply<'_>, name: &str) {
    reply.bulk(name.as_bytes());
}
