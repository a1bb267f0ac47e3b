//! DEBUG: tools for tests, behind `enable-debug-command` (the gate checks it). The words are rows like
//! subcommands, but COMMAND does not show them, and each checks its own number of arguments: Redis has one
//! error for both.
//!
//! `DEBUG TURNS [RESET]` and `DEBUG EVENTS` are Skerry's own, as is STRINGMATCH-LEN's reply: Redis 8.2.3 does not know the word.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use skerry_resp::number;
use skerry_resp::reply::Proto;

use super::digest::Digest;
use super::{part_bulk, reply_help, wrong_subcommand};
use crate::args::{Args, is_word};
use crate::command::{Command, Conn, Ctx, Flags, Handler, KeyFlags, Merge, range, row};
use crate::error::{CommandError, Outcome};
use crate::glob::{Case, glob_match};
use crate::keyspace::{EntryRef, View};

const FLAGS: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE);

#[rustfmt::skip]
pub const WORDS: &[Command] = &[
    row("debug|digest", -2, Handler::Split(digest, Merge::Custom(digest_merge)), "A fingerprint of all data").flags(FLAGS),
    row("debug|digest-value", -2, Handler::Shard(digest_value), "Fingerprints of values").flags(FLAGS).keys(&[range(KeyFlags::RO, 2, -1, 1)]),
    row("debug|error", -2, Handler::Conn(error), "Answers its argument as an error").flags(FLAGS),
    row("debug|events", -2, Handler::Split(events, Merge::Concat), "The keyspace events of all shards since it was last asked").flags(FLAGS),
    row("debug|help", -2, Handler::Conn(help), "The words of DEBUG").flags(FLAGS),
    row("debug|log", -2, Handler::Conn(log), "Writes its argument to the log").flags(FLAGS),
    row("debug|object", -2, Handler::Shard(object), "What is known of a key's value").flags(FLAGS).keys(&[range(KeyFlags::RO, 2, 0, 1)]),
    row("debug|protocol", -2, Handler::Conn(protocol), "A reply of the named type").flags(FLAGS),
    row("debug|set-active-expire", -2, Handler::Conn(set_active_expire), "Turns the active expiry cycle off and on").flags(FLAGS),
    row("debug|sleep", -2, Handler::Split(sleep, Merge::AllSucceeded), "Keeps all workers busy for some seconds").flags(FLAGS),
    row("debug|stringmatch-len", -2, Handler::Conn(stringmatch_len), "Whether a text matches a glob pattern").flags(FLAGS),
    row("debug|turns", -2, Handler::Conn(turns), "Turn times of each worker, taken while turn-trace is on").flags(FLAGS),
];

fn expect_args(args: Args<'_>, n: usize) -> Outcome {
    if args.len() == n { Ok(()) } else { Err(wrong_subcommand(args, "DEBUG")) }
}

/// DEBUG SLEEP seconds: Redis has one thread, so all of ours sleep. What is no number is 0, as C's strtod has
/// it.
fn sleep(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 3)?;
    let seconds = number::parse_f64(args.get(2)).filter(|seconds| *seconds > 0.0).unwrap_or(0.0);
    // The longest that a Duration holds is far off; what is beyond is a mistake, and no sleep.
    thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    ctx.reply.ok();
    Ok(())
}

/// DEBUG OBJECT key
fn object(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 3)?;
    let key = ctx.key(args, 2);
    let now_s = ctx.now_ms / 1000;
    let entry = ctx.shard.peek(ctx.at(), &key).ok_or(CommandError::NoSuchKey)?;
    // No address is told, and no length of a serialised form is known yet: the bytes in memory stand for it.
    let text = format!(
        "Value at:0x0 refcount:1 encoding:{} serializedlength:{} lru:{} lru_seconds_idle:0",
        encoding(entry),
        entry.memory_bytes(),
        now_s & 0xff_ffff
    );
    ctx.reply.simple(&text);
    Ok(())
}

/// The encoding by Redis's names.
fn encoding(entry: EntryRef<'_>) -> &'static str {
    const EMBSTR_MAX: usize = 44;
    match entry.view() {
        View::Int(_) => "int",
        View::Str(bytes) if bytes.len() <= EMBSTR_MAX && !entry.is_raw() => "embstr",
        View::Str(_) | View::Shared(_) => "raw",
        View::List(list) => list.encoding(),
        View::Set(set) => set.encoding(),
        View::Hash(hash) => hash.encoding(),
        View::Zset(zset) => zset.encoding(),
        View::Stream(_) => "stream",
        View::Vector(_) => "raw",
        View::Lent => "unknown",
    }
}

/// DEBUG SET-ACTIVE-EXPIRE 0|1
fn set_active_expire(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 3)?;
    let is_on = number::parse_i64(args.get(2)).unwrap_or(0) != 0;
    conn.server.is_expiring_actively.store(is_on, Ordering::Relaxed);
    conn.reply.ok();
    Ok(())
}

/// Bytes of a database's number of keys in a part of DIGEST, before its fingerprint.
const COUNT_LEN: usize = 8;
const DATABASE_LEN: usize = COUNT_LEN + 20;

/// DEBUG DIGEST: of each database, the number of keys and the XOR of their fingerprints.
fn digest(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 2)?;
    let mut part = Vec::new();
    for keyspace in ctx.shard.keyspaces() {
        let (mut sum, mut n_keys) = (Digest::default(), 0u64);
        for entry in keyspace.iter().filter(|entry| !entry.is_expired(ctx.now_ms)) {
            let mut of_key = Digest::default();
            of_key.mix(entry.key());
            if of_key.add_value(entry) {
                n_keys += 1;
                sum.xor(&of_key.0);
            }
        }
        part.extend_from_slice(&n_keys.to_le_bytes());
        part.extend_from_slice(&sum.0);
    }
    ctx.reply.bulk(&part);
    Ok(())
}

fn digest_merge(conn: &mut Conn<'_>, parts: &[&[u8]], _args: Args<'_>) -> Outcome {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part_bulk(part)).collect();
    let mut all = Digest::default();
    for db in 0..parts[0].len() / DATABASE_LEN {
        let databases = parts.iter().map(|part| &part[db * DATABASE_LEN..(db + 1) * DATABASE_LEN]);
        if databases.clone().all(|database| database[..COUNT_LEN].iter().all(|byte| *byte == 0)) {
            continue;
        }
        all.mix(&(db as u32).to_be_bytes());
        for database in databases {
            all.xor_sum(database[COUNT_LEN..].try_into().expect("twenty bytes were written"));
        }
    }
    conn.reply.simple(&all.to_hex());
    Ok(())
}

/// DEBUG DIGEST-VALUE [key ...]
fn digest_value(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    ctx.reply.array(args.len() - 2);
    for index in 2..args.len() {
        let key = ctx.key(args, index);
        let mut digest = Digest::default();
        if let Some(entry) = ctx.shard.peek(ctx.at(), &key) {
            digest.add_value(entry);
        }
        ctx.reply.simple(&digest.to_hex());
    }
    Ok(())
}

/// DEBUG STRINGMATCH-LEN pattern text
fn stringmatch_len(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 4)?;
    let is_match = glob_match(args.get(2), args.get(3), Case::Sensitive);
    conn.reply.integer(i64::from(is_match));
    Ok(())
}

/// DEBUG ERROR text
fn error(_conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 3)?;
    Err(CommandError::Bytes(args.get(2).to_vec()))
}

/// DEBUG EVENTS: (database, class, event, key) of what happened since the last call, in each shard's order. The first
/// call begins the record.
fn events(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 2)?;
    let events = ctx.shard.take_events();
    ctx.reply.array(events.len());
    for event in events {
        ctx.reply.array(4);
        ctx.reply.integer(i64::from(event.db.0));
        ctx.reply.bulk(event.class.letter().to_string().as_bytes());
        ctx.reply.bulk(event.name.as_bytes());
        ctx.reply.bulk(&event.key);
    }
    Ok(())
}

/// DEBUG LOG message
fn log(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 3)?;
    crate::log::warning(&format!("DEBUG LOG: {}", String::from_utf8_lossy(args.get(2)).escape_default()));
    conn.reply.ok();
    Ok(())
}

/// DEBUG TURNS [RESET]: a line for each worker.
fn turns(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let is_reset = args.len() == 3 && is_word(args.get(2), "RESET");
    if args.len() != 2 && !is_reset {
        return Err(wrong_subcommand(args, "DEBUG"));
    }
    let all = conn.server.turns.iter().map(|turns| turns.lock().unwrap_or_else(PoisonError::into_inner));
    if is_reset {
        all.for_each(|mut turns| turns.reset());
        conn.reply.ok();
        return Ok(());
    }
    let lines: Vec<String> =
        all.enumerate().map(|(at, turns)| format!("worker={at} {}", turns.report())).collect();
    conn.reply.array(lines.len());
    lines.iter().for_each(|line| conn.reply.bulk(line.as_bytes()));
    Ok(())
}

/// Redis's own cut of pi.
const NEARLY_PI: f64 = 3141.0 / 1000.0;

/// DEBUG PROTOCOL type
fn protocol(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 3)?;
    let reply = &mut conn.reply;
    match args.get(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(NEARLY_PI),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        b"map" => {
            reply.map(3);
            for n in 0..3 {
                reply.integer(n);
                reply.boolean(n == 1);
            }
        }
        b"attrib" => {
            if reply.proto() == Proto::Resp3 {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if reply.proto() == Proto::Resp2 => {
            return Err(CommandError::text("ERR RESP2 is not supported by this command"));
        }
        b"push" => {
            // The message follows the reply, as Redis sends it.
            reply.bulk(b"Some real reply following the push reply");
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim(b"txt", b"This is a verbatim\nstring"),
        _ => {
            return Err(CommandError::text(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// DEBUG HELP
fn help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    expect_args(args, 2)?;
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DIGEST",
    "    Output a hex signature representing the current DB content.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Output a hex signature of the values of all the specified keys.",
    "ERROR <string>",
    "    Return a Redis protocol error with <string> as message. Useful for clients",
    "    unit tests to simulate Redis errors.",
    "EVENTS",
    "    The keyspace events since the last call; the first call begins the record.",
    "LOG <message>",
    "    Write <message> to the server log.",
    "OBJECT <key>",
    "    Show low level info about `key` and associated value.",
    "PROTOCOL <type>",
    "    Reply with a test value of the specified type. <type> can be: string,",
    "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
    "    true, false.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Setting it to 0 disables expiring keys in background when they are not",
    "    accessed. Setting it to 1 reenables back the default.",
    "SLEEP <seconds>",
    "    Stop the server for <seconds>. Decimals allowed.",
    "STRINGMATCH-LEN <pattern> <string>",
    "    Whether <string> matches the glob-style <pattern>, as an integer.",
    "TURNS [RESET]",
    "    Turn times of each worker, collected while `turn-trace` is yes.",
    "HELP",
    "    Print this help.",
];
