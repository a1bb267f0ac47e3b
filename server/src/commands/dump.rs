//! DUMP and RESTORE: a value out of the server and in again, in Redis's own format (`rdb`).
//!
//! Both run in one turn: their time is that of copying the value. IDLETIME and FREQ are checked and not kept: there is no
//! eviction yet for which they would count.

use std::borrow::Cow;

use skerry_resp::number::parse_i64;

use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Ttl;
use crate::rdb::{self, Compression, MadeWith, Payload};
use crate::shard::EventClass;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("dump", 2, Handler::Shard(dump), "The serialised form of a value.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("restore", -4, Handler::Shard(restore), "Makes a key of a serialised value.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1)]),
];

/// DUMP key
fn dump(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let compression = if ctx.config.rdbcompression { Compression::Lzf } else { Compression::None };
    let key = ctx.key(args, 1);
    match ctx.shard.read(ctx.at(), &key) {
        Some(entry) => ctx.reply.bulk(&rdb::dump(entry.view(), compression)?),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
fn restore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let options = RestoreOptions::parse(args)?;
    let (key, at) = (ctx.key(args, 1), ctx.at());
    if !options.replaces && ctx.shard.peek(at, &key).is_some() {
        return Err(CommandError::text("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = args.integer(2)?;
    if ttl_ms < 0 {
        return Err(CommandError::text("ERR Invalid TTL value, must be >= 0"));
    }
    let made_with = MadeWith { config: ctx.config, limits: ctx.limits, seed: ctx.shard.random() };
    let value = Payload::open(args.get(3))?.value(made_with)?;
    let ttl = match (ttl_ms, options.is_absolute) {
        (0, _) => Ttl::Clear,
        (deadline_ms, true) => Ttl::At(deadline_ms),
        // A deadline beyond all numbers lies in the past, as in Redis.
        (ttl_ms, false) => Ttl::At(ctx.now_ms.wrapping_add(ttl_ms)),
    };
    if matches!(ttl, Ttl::At(deadline_ms) if deadline_ms <= ctx.now_ms) {
        // Dead on arrival: only what it replaces goes.
        if ctx.shard.remove(at, &key) {
            ctx.changed(&key, EventClass::Generic, "del");
        }
        ctx.reply.ok();
        return Ok(());
    }
    // What is replaced goes first: big values are freed in slices.
    ctx.shard.remove(at, &key);
    let mut text = Cow::Borrowed(b"".as_slice());
    ctx.shard.insert(at, &key, value.into_new(&mut text), ttl);
    ctx.changed(&key, EventClass::Generic, "restore");
    ctx.reply.ok();
    Ok(())
}

#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    idle_seconds: Option<i64>,
    frequency: Option<i64>,
}

impl RestoreOptions {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut cursor = args.cursor(4);
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "REPLACE") {
                options.replaces = true;
            } else if is_word(word, "ABSTTL") {
                options.is_absolute = true;
            } else if is_word(word, "IDLETIME") && cursor.left() > 0 && options.frequency.is_none() {
                let seconds = number(cursor.value()?)?;
                if seconds < 0 {
                    return Err(CommandError::text("ERR Invalid IDLETIME value, must be >= 0"));
                }
                options.idle_seconds = Some(seconds);
            } else if is_word(word, "FREQ") && cursor.left() > 0 && options.idle_seconds.is_none() {
                let frequency = number(cursor.value()?)?;
                if !(0..=255).contains(&frequency) {
                    return Err(CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
                options.frequency = Some(frequency);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

fn number(text: &[u8]) -> Result<i64, CommandError> {
    parse_i64(text).ok_or(CommandError::NotInteger)
}
