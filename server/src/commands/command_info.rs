//! COMMAND and its subcommands: the command table, told to clients. Everything derives from the rows.

use skerry_resp::reply::Reply;

use super::{Found, Row, TABLE, reply_help};
use crate::args::{Args, is_word};
use crate::command::{Acl, Begin, Command, Conn, Find, Flags, Handler, KeyFlags, KeySpec, row};
use crate::error::{CommandError, Outcome};
use crate::glob::{Case, glob_match};

#[rustfmt::skip]
pub const SUBCOMMANDS: &[Command] = &[
    row("command|count", 2, Handler::Conn(command_count), "The number of commands").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|docs", -2, Handler::Conn(super::docs::command_docs), "What commands are for, and their arguments").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]),
    row("command|getkeys", -3, Handler::Conn(command_getkeys), "The keys of a request").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|getkeysandflags", -3, Handler::Conn(command_getkeysandflags), "The keys of a request, and what it does to them").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|help", 2, Handler::Conn(command_help), "The subcommands of COMMAND").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("command|info", -2, Handler::Conn(command_info), "The rows of some commands").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]),
    row("command|list", -2, Handler::Conn(command_list), "Names of commands, by module, category or pattern").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output_order"]),
];

/// COMMAND: the whole table.
pub fn command(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.array(TABLE.top_level().count());
    for row in TABLE.top_level() {
        describe(row, &mut conn.reply);
    }
    Ok(())
}

/// COMMAND COUNT
fn command_count(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.integer(TABLE.top_level().count() as i64);
    Ok(())
}

/// COMMAND INFO [command-name [command-name ...]]
fn command_info(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return command(conn, args);
    }
    conn.reply.array(args.len() - 2);
    for name in args.from(2) {
        match TABLE.full_name(name) {
            Some(row) if !is_hidden(row) => describe(row, &mut conn.reply),
            _ => conn.reply.null(),
        }
    }
    Ok(())
}

/// DEBUG's words are rows here and arguments of one command in Redis.
pub fn is_hidden(row: &Row) -> bool {
    let container = row.command.name.split_once('|').and_then(|(name, _)| TABLE.top(name.as_bytes()));
    container.is_some_and(|row| matches!(row.command.handler, Handler::Words))
}

/// One command's ten fields.
fn describe(row: &Row, reply: &mut Reply<'_>) {
    let command = row.command;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    reply_words(reply, command.flags.names());
    let (first, last, step) = command.legacy_range();
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    reply_words(reply, command.acl_categories().names());
    reply.set(command.tips.len());
    for tip in command.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(command.keys.len());
    for spec in command.keys {
        describe_keys(spec, reply);
    }
    let subcommands = match command.handler {
        Handler::Words => &[][..],
        _ => &row.subcommands,
    };
    reply.set(subcommands.len());
    for (_, id) in subcommands {
        describe(TABLE.row(*id), reply);
    }
}

fn reply_words(reply: &mut Reply<'_>, words: impl Iterator<Item = &'static str>) {
    let words: Vec<&str> = words.collect();
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

fn describe_keys(spec: &KeySpec, reply: &mut Reply<'_>) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    reply_words(reply, spec.flags.names());
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => reply_search(reply, "index", &[("index", Field::Int(index))]),
        Begin::Keyword { word, start_from } => {
            let fields = [("keyword", Field::Word(word)), ("startfrom", Field::Int(start_from))];
            reply_search(reply, "keyword", &fields);
        }
        Begin::Unknown => reply_search(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let fields =
                [("lastkey", Field::Int(last)), ("keystep", Field::Int(step)), ("limit", Field::Int(limit))];
            reply_search(reply, "range", &fields);
        }
        Find::KeyNum { num_index, first, step } => {
            let fields = [
                ("keynumidx", Field::Int(num_index)),
                ("firstkey", Field::Int(first)),
                ("keystep", Field::Int(step)),
            ];
            reply_search(reply, "keynum", &fields);
        }
        Find::Unknown => reply_search(reply, "unknown", &[]),
    }
}

enum Field {
    Int(i16),
    Word(&'static str),
}

fn reply_search(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, Field)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        match value {
            Field::Int(number) => reply.integer(i64::from(*number)),
            Field::Word(word) => reply.bulk(word.as_bytes()),
        }
    }
}

/// COMMAND GETKEYS command [arg [arg ...]]
fn command_getkeys(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let request = args.tail(2);
    let keys = keys_of(request)?;
    conn.reply.array(keys.len());
    for (index, _) in keys {
        conn.reply.bulk(request.get(index));
    }
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS command [arg [arg ...]]
fn command_getkeysandflags(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let request = args.tail(2);
    let keys = keys_of(request)?;
    conn.reply.array(keys.len());
    for (index, flags) in keys {
        conn.reply.array(2);
        conn.reply.bulk(request.get(index));
        reply_words(&mut conn.reply, flags.names());
    }
    Ok(())
}

/// Where a request's keys stand, and what it does to them.
fn keys_of(request: Args<'_>) -> Result<Vec<(usize, KeyFlags)>, CommandError> {
    let Found::Row(row) = TABLE.find(request) else {
        return Err(CommandError::text("ERR Invalid command specified"));
    };
    let command = row.command;
    if command.keys.iter().all(|spec| spec.flags.has(KeyFlags::NOT_KEY)) {
        return Err(CommandError::text("ERR The command has no key arguments"));
    }
    if !command.accepts(request.len()) {
        return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    command.for_each_key(request, |index, flags| keys.push((index, flags)));
    let is_lacking = keys.is_empty() || command.miscounts_keys(request);
    if is_lacking && !command.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err(CommandError::text("ERR Invalid arguments specified for command"));
    }
    if command.name == "set" {
        // The one row here whose flags depend on its options.
        let has_get = request.from(3).any(|arg| is_word(arg, "GET"));
        let flags = if has_get { KeyFlags::RW | KeyFlags::ACCESS } else { KeyFlags::OW };
        keys[0].1 = flags | KeyFlags::UPDATE;
    }
    Ok(keys)
}

/// COMMAND HELP
fn command_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

/// COMMAND LIST [FILTERBY MODULE module-name | ACLCAT category | PATTERN pattern]
fn command_list(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let filter: Box<dyn Fn(&Row) -> bool + '_> = match args.len() {
        2 => Box::new(|_| true),
        5 if is_word(args.get(2), "FILTERBY") => {
            let value = args.get(4);
            match args.get(3) {
                word if is_word(word, "MODULE") => {
                    Box::new(move |row| value == b"vectorset" && row.command.flags.has(Flags::MODULE))
                }
                word if is_word(word, "ACLCAT") => {
                    let category = Acl::NAMES.iter().find(|(_, name)| is_word(value, &name[1..]));
                    Box::new(move |row| {
                        category.is_some_and(|(bit, _)| row.command.acl_categories().has(*bit))
                    })
                }
                word if is_word(word, "PATTERN") => {
                    Box::new(move |row| glob_match(value, row.command.name.as_bytes(), Case::Insensitive))
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    let names: Vec<&str> = TABLE
        .rows()
        .iter()
        .filter(|row| !is_hidden(row) && filter(row))
        .map(|row| row.command.name)
        .collect();
    conn.reply.array(names.len());
    for name in names {
        conn.reply.bulk(name.as_bytes());
    }
    Ok(())
}

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all Redis commands.",
    "COUNT",
    "    Return the total number of commands in this Redis server.",
    "LIST",
    "    Return a list of all commands in this Redis server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full Redis command.",
    "HELP",
    "    Print this help.",
];
