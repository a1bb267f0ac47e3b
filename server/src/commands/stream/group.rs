//! XGROUP and its subcommands.

use super::add::tell;
use super::{no_group, parse_id, parse_id_or_end};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, KeyFlags, range as key_range, row};
use crate::commands::{reply_help, wrong_subcommand};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, Loose};
use crate::types::Stream;
use crate::types::stream::{Consumer, ConsumerSlot, Group, History, READS_UNKNOWN, StreamId};

const INSERTS: KeyFlags = KeyFlags::RW.with(KeyFlags::INSERT);
const UPDATES: KeyFlags = KeyFlags::RW.with(KeyFlags::UPDATE);
const DELETES: KeyFlags = KeyFlags::RW.with(KeyFlags::DELETE);

#[rustfmt::skip]
pub(super) const SUBCOMMANDS: &[Command] = &[
    row("xgroup|create", -5, Handler::Shard(create), "Makes a group").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(INSERTS, 2, 0, 1)]),
    row("xgroup|createconsumer", 5, Handler::Shard(createconsumer), "Makes a consumer of a group").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(INSERTS, 2, 0, 1)]),
    row("xgroup|delconsumer", 5, Handler::Shard(delconsumer), "Removes a consumer with what is pending for it").flags(Flags::WRITE).acl(Acl::STREAM).keys(&[key_range(DELETES, 2, 0, 1)]),
    row("xgroup|destroy", 4, Handler::Shard(destroy), "Removes a group").flags(Flags::WRITE).acl(Acl::STREAM).keys(&[key_range(DELETES, 2, 0, 1)]),
    row("xgroup|help", 2, Handler::Conn(help), "The subcommands of XGROUP").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::STREAM),
    row("xgroup|setid", -5, Handler::Shard(setid), "Sets how far a group has read").flags(Flags::WRITE).acl(Acl::STREAM).keys(&[key_range(UPDATES, 2, 0, 1)]),
];

const NO_KEY: CommandError = CommandError::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to \
     create an empty stream automatically.",
);

/// `MKSTREAM` (CREATE only) and `ENTRIESREAD n`, from argument 5 on.
struct Options {
    mkstream: bool,
    entries_read: i64,
}

impl Options {
    fn parse(args: Args<'_>, subcommand: &'static str) -> Result<Self, CommandError> {
        let mut options = Self { mkstream: false, entries_read: READS_UNKNOWN };
        let mut cursor = args.cursor(5);
        while let Some(word) = cursor.maybe_next() {
            if subcommand == "create" && is_word(word, "mkstream") {
                options.mkstream = true;
            } else if is_word(word, "entriesread") && !cursor.is_done() {
                options.entries_read = cursor.next_integer()?;
                if options.entries_read < READS_UNKNOWN {
                    return Err(CommandError::text("ERR value for ENTRIESREAD must be positive or -1"));
                }
            } else {
                return Err(wrong_subcommand(args, "XGROUP"));
            }
        }
        Ok(options)
    }

    /// No group has read more entries than there ever were.
    fn entries_read_of(&self, history: &History) -> i64 {
        self.entries_read.min(i64::try_from(history.entries_added).unwrap_or(i64::MAX))
    }
}

/// The stream at argument 2 and its group at argument 3.
fn group_of<'s>(stream: Option<&'s mut Stream>, args: Args<'_>) -> Result<&'s mut Group, CommandError> {
    let (key, name) = (args.get(2), args.get(3));
    let group = stream.ok_or(NO_KEY)?.group_mut(name);
    group
        .ok_or_else(|| no_group(&[b"NOGROUP No such consumer group '", name, b"' for key name '", key, b"'"]))
}

/// XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD n]
fn create(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(args, "create")?;
    let (key, at) = (ctx.key(args, 2), ctx.at());
    let name = args.get(3);
    let stream = ctx.shard.stream_mut(at, &key)?;
    if stream.is_none() && !options.mkstream {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        return Err(wrong_subcommand(args, "XGROUP"));
    }
    let last_id = match (args.get(4), &stream) {
        (b"$", Some(stream)) => stream.history.last_id,
        (b"$", None) => StreamId::MIN,
        (id, _) => parse_id(id, 0)?,
    };
    let is_new = stream.is_none();
    let stream = match stream {
        Some(stream) => stream,
        None => ctx.shard.stream_or_new(at, &key)?,
    };
    if stream.group(name).is_some() {
        return Err(CommandError::text("BUSYGROUP Consumer Group name already exists"));
    }
    stream.add_group(name, Group::new(last_id, options.entries_read_of(&stream.history)));
    if is_new {
        ctx.touched(&key);
    }
    tell(ctx, &key, "xgroup-create");
    ctx.reply.ok();
    Ok(())
}

/// XGROUP SETID key group id|$ [ENTRIESREAD n]
fn setid(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(args, "setid")?;
    let key = ctx.key(args, 2);
    let stream = ctx.shard.stream_mut(ctx.at(), &key)?;
    let history = stream.as_ref().map_or(History::default(), |stream| stream.history);
    let group = group_of(stream, args)?;
    if args.len() != 5 && args.len() != 7 {
        return Err(wrong_subcommand(args, "XGROUP"));
    }
    group.last_id = match args.get(4) {
        b"$" => history.last_id,
        id => parse_id_or_end(id, 0)?,
    };
    group.entries_read = options.entries_read_of(&history);
    tell(ctx, &key, "xgroup-setid");
    ctx.reply.ok();
    Ok(())
}

/// XGROUP DESTROY key group
fn destroy(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (key, at) = (ctx.key(args, 2), ctx.at());
    let stream = ctx.shard.stream_mut(at, &key)?.ok_or(NO_KEY)?;
    let Some(group) = stream.remove_group(args.get(3)) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    ctx.keyspace().discard_object(crate::keyspace::Object::Stream(Loose::new(Stream::of_group(group))));
    tell(ctx, &key, "xgroup-destroy");
    // Who waits for entries of the group is told that there is none.
    ctx.shard.wake_waiters(at.db, &key);
    ctx.reply.integer(1);
    Ok(())
}

/// XGROUP CREATECONSUMER key group consumer
fn createconsumer(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (key, at) = (ctx.key(args, 2), ctx.at());
    let stream = ctx.shard.stream_mut(at, &key)?;
    let group = group_of(stream, args)?;
    let (_, is_new) = consumer_or_new(group, args.get(4), at.now_ms);
    if is_new {
        tell(ctx, &key, "xgroup-createconsumer");
    }
    ctx.reply.integer(i64::from(is_new));
    Ok(())
}

/// XGROUP DELCONSUMER key group consumer
fn delconsumer(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 2);
    let stream = ctx.shard.stream_mut(ctx.at(), &key)?;
    let group = group_of(stream, args)?;
    let n_pending = match group.find_consumer(args.get(4)) {
        Some(slot) => {
            let n = group.remove_consumer(slot).len();
            tell(ctx, &key, "xgroup-delconsumer");
            n
        }
        None => 0,
    };
    ctx.reply.integer(n_pending as i64);
    Ok(())
}

/// The consumer of this name, and whether it was made now.
pub(super) fn consumer_or_new(group: &mut Group, name: &[u8], now_ms: i64) -> (ConsumerSlot, bool) {
    match group.find_consumer(name) {
        Some(slot) => (slot, false),
        None => (group.add_consumer(Consumer::new(name, now_ms)), true),
    }
}

/// Tells that a command which is about something else has made a consumer.
pub(super) fn tell_consumer(ctx: &mut Ctx<'_>, key: &Key<'_>, is_new: bool) {
    if is_new {
        tell(ctx, key, "xgroup-createconsumer");
    }
}

/// XGROUP HELP
fn help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Print this help.",
];
