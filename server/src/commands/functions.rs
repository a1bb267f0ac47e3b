//! FCALL, FCALL_RO and FUNCTION.
//!
//! How a function runs, and how the code of a library is loaded, is `dispatch::scripts`; the libraries are `script::functions`.
//! Here are the rows, and what of FUNCTION needs no Lua.

use skerry_resp::reply::Reply;

use super::scripting::{READS, RUNS, WRITES, key_count};
use super::{reply_help, wrong_subcommand};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Flags, Handler, Script, counted, row};
use crate::error::{CommandError, Outcome};
use crate::glob::{Case, glob_match};
use crate::rdb::{Compression, LibraryTexts, dump_libraries};
use crate::script::functions::{Function, Library, Policy};
use crate::script::registry::Kill;
use crate::server::Server;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("fcall", -3, Handler::Script(Script::Fcall), "Calls a function of a library.").flags(RUNS).acl(Acl::SCRIPTING).keys(&[counted(WRITES, 2).notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")]),
    row("fcall_ro", -3, Handler::Script(Script::Fcall), "Calls a function of a library that writes nothing.").flags(RUNS.with(Flags::READONLY)).acl(Acl::SCRIPTING).keys(&[counted(READS, 2).notes("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")]),
    row("function", -2, Handler::Container, "Commands on the libraries of functions that the server knows.").subcommands(SUBCOMMANDS),
];

const TAKES: Flags = Flags::DENYOOM.with(Flags::NOSCRIPT).with(Flags::WRITE);
const CHANGES: Flags = Flags::NOSCRIPT.with(Flags::WRITE);
const EVERYWHERE: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

#[rustfmt::skip]
const SUBCOMMANDS: &[Command] = &[
    row("function|delete", 3, Handler::Conn(delete), "Deletes a library.").flags(CHANGES).acl(Acl::SCRIPTING).tips(EVERYWHERE),
    row("function|dump", 2, Handler::Conn(dump), "All libraries in serialised form.").flags(Flags::NOSCRIPT).acl(Acl::SCRIPTING),
    row("function|flush", -2, Handler::Conn(flush), "Deletes all libraries.").flags(CHANGES).acl(Acl::SCRIPTING).tips(EVERYWHERE),
    row("function|help", 2, Handler::Conn(help), "The subcommands of FUNCTION.").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::SCRIPTING),
    row("function|kill", 2, Handler::Conn(kill), "Ends the function that runs, if it has written nothing.").flags(Flags::ALLOW_BUSY.with(Flags::NOSCRIPT)).acl(Acl::SCRIPTING).tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    row("function|list", -2, Handler::Conn(list), "The libraries and their functions.").flags(Flags::NOSCRIPT).acl(Acl::SCRIPTING).tips(&["nondeterministic_output_order"]),
    row("function|load", -3, Handler::Script(Script::LoadLibrary), "Makes a library known, and answers its name.").flags(TAKES).acl(Acl::SCRIPTING).tips(EVERYWHERE),
    row("function|restore", -3, Handler::Script(Script::RestoreLibraries), "Makes the libraries known that FUNCTION DUMP has serialised.").flags(TAKES).acl(Acl::SCRIPTING).tips(EVERYWHERE),
    row("function|stats", 2, Handler::Conn(stats), "The function that runs, and how many there are.").flags(Flags::ALLOW_BUSY.with(Flags::NOSCRIPT)).acl(Acl::SCRIPTING).tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
];

/// How many keys FCALL declares.
pub fn key_count_of_function(args: Args<'_>) -> Result<usize, CommandError> {
    key_count(args).map_err(|error| match error {
        CommandError::NotInteger => CommandError::text("ERR Bad number of keys provided"),
        error => error,
    })
}

/// FUNCTION LOAD [REPLACE] text
pub fn read_load(args: Args<'_>) -> Result<(Policy, &[u8]), CommandError> {
    let last = args.len() - 1;
    let mut policy = Policy::Append;
    for option in args.from(2).take(last - 2) {
        if !is_word(option, "replace") {
            return Err(CommandError::Bytes([b"ERR Unknown option given: ".as_slice(), option].concat()));
        }
        policy = Policy::Replace;
    }
    Ok((policy, args.get(last)))
}

/// FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]
pub fn read_restore(args: Args<'_>) -> Result<(Policy, LibraryTexts<'_>), CommandError> {
    const POLICIES: [(&str, Policy); 3] =
        [("append", Policy::Append), ("replace", Policy::Replace), ("flush", Policy::Flush)];
    let policy = match args.len() {
        3 => Policy::Append,
        4 => POLICIES.iter().find(|(word, _)| is_word(args.get(3), word)).map(|(_, policy)| *policy).ok_or(
            CommandError::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ),
        )?,
        _ => return Err(wrong_subcommand(args, "FUNCTION")),
    };
    Ok((policy, LibraryTexts::of(args.get(2))?))
}

fn delete(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    conn.server.functions.delete(args.get(2))?;
    conn.reply.ok();
    Ok(())
}

fn dump(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let compression = if conn.config.rdbcompression { Compression::Lzf } else { Compression::None };
    let libraries = conn.server.functions.all();
    conn.reply.bulk(&dump_libraries(libraries.iter().map(|library| &*library.text), compression));
    Ok(())
}

fn flush(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(wrong_subcommand(args, "FUNCTION"));
    }
    if args.len() == 3 && !is_word(args.get(2), "sync") && !is_word(args.get(2), "async") {
        return Err(CommandError::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    conn.server.functions.flush();
    conn.reply.ok();
    Ok(())
}

fn kill(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.server.scripts.kill(Kill::Function)?;
    conn.reply.ok();
    Ok(())
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
fn list(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let (mut pattern, mut shows_code) = (None, false);
    let mut words = args.from(2);
    while let Some(word) = words.next() {
        if !shows_code && is_word(word, "withcode") {
            shows_code = true;
        } else if pattern.is_none() && is_word(word, "libraryname") {
            let given = words.next().ok_or(CommandError::text("ERR library name argument was not given"))?;
            pattern = Some(given);
        } else {
            return Err(CommandError::Bytes([b"ERR Unknown argument ".as_slice(), word].concat()));
        }
    }
    let mut libraries = conn.server.functions.all();
    if let Some(pattern) = pattern {
        libraries.retain(|library| glob_match(pattern, &library.name, Case::Insensitive));
    }
    conn.reply.array(libraries.len());
    libraries.iter().for_each(|library| reply_library(&mut conn.reply, library, shows_code));
    Ok(())
}

fn reply_library(reply: &mut Reply<'_>, library: &Library, shows_code: bool) {
    reply.map(if shows_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    library.functions.iter().for_each(|function| reply_function(reply, function));
    if shows_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.text);
    }
}

fn reply_function(reply: &mut Reply<'_>, function: &Function) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&function.name);
    reply.bulk(b"description");
    match &function.description {
        Some(text) => reply.bulk(text),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    reply.set(function.flags.names().count());
    function.flags.names().for_each(|name| reply.simple(name));
}

fn stats(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_stats(&mut conn.reply, conn.server)
}

/// The reply of FUNCTION STATS, which is answered while a function runs, too.
pub fn reply_stats(reply: &mut Reply<'_>, server: &Server) -> Outcome {
    let running = server.scripts.running_function()?;
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&running.function);
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(running.started.elapsed().as_millis() as i64);
        }
    }
    let (n_libraries, n_functions, _) = server.functions.size();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(n_libraries as i64);
    reply.bulk(b"functions_count");
    reply.integer(n_functions as i64);
    Ok(())
}

fn help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(
        conn,
        &[
            "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "LOAD [REPLACE] <FUNCTION CODE>",
            "    Create a new library with the given library name and code.",
            "DELETE <LIBRARY NAME>",
            "    Delete the given library.",
            "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
            "    Return general information on all the libraries:",
            "    * Library name",
            "    * The engine used to run the Library",
            "    * Functions list",
            "    * Library code (if WITHCODE is given)",
            "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
            "STATS",
            "    Return information about the current function running:",
            "    * Function name",
            "    * Command used to run the function",
            "    * Duration in MS that the function is running",
            "    If no function is running, return nil",
            "    In addition, returns a list of available engines.",
            "KILL",
            "    Kill the current running function.",
            "FLUSH [ASYNC|SYNC]",
            "    Delete all the libraries.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the libraries.",
            "    * SYNC: Synchronously flush the libraries.",
            "DUMP",
            "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
            "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
            "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
            "    control how to handle existing libraries (default APPEND):",
            "    * FLUSH: delete all existing libraries.",
            "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
            "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
            "      libraries with the new libraries (notice that even on this option there is a chance of failure",
            "      in case of functions name collision with another library).",
            "HELP",
            "    Print this help.",
        ],
    );
    Ok(())
}
