//! DUMP and RESTORE: a value out of the server and in again, in Redis's own format (`rdb`).
//!
//! Big ones are jobs: their time is that of copying the value.

use std::borrow::Cow;

use bytes::Bytes;
use skerry_resp::number::parse_i64;

use crate::access::{At, reply_part};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, Job, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{AccessClock, Entry, Key, NewValue, Object, Tracking, Ttl, View};
use crate::message::HoldMode;
use crate::rdb::{self, Compression, Dump, MadeWith, Restored, Restoring};
use crate::shard::EventClass;
use crate::vector::note_upkeep;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("dump", 2, Handler::Shard(dump), "The serialised form of a value.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("restore", -4, Handler::Shard(restore), "Makes a key of a serialised value.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1)]),
];

/// DUMP key
fn dump(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let compression = if ctx.config.rdbcompression { Compression::Lzf } else { Compression::None };
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let Some(entry) = ctx.shard.read(at, &key) else {
        ctx.reply.null();
        return Ok(());
    };
    let mut dump = Dump::begin(entry.view(), compression)?;
    if dump.step(entry.view(), ctx.work.slice().distances(1)) {
        ctx.reply.bulk(&dump.finish());
        return Ok(());
    }
    let entry = ctx.keyspace().share(&key, at.now_ms);
    let job = DumpJob { name: key.bytes.into(), hash: key.hash, entry, dump: Some(dump) };
    ctx.job = Some(Box::new(job));
    Ok(())
}

/// A dump in slices. The key is held for reading.
struct DumpJob {
    name: Box<[u8]>,
    hash: u64,
    /// An alias.
    entry: Option<Entry>,
    dump: Option<Dump>,
}

impl Job for DumpJob {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let view = self.entry.as_ref().map_or(View::Lent, |entry| entry.as_ref().view());
        let is_done = self.dump.as_mut().is_none_or(|dump| dump.step(view, ctx.work.slice().distances(1)));
        if is_done && let Some(dump) = self.dump.take() {
            let payload = Bytes::from(dump.finish());
            reply_part(&payload, &payload, &mut ctx.reply, &mut ctx.placed);
        }
        Ok(is_done)
    }

    fn held(&self) -> Option<(HoldMode, Key<'_>)> {
        Some((HoldMode::Shared, Key { bytes: &self.name, hash: self.hash }))
    }
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
    let ttl = match (ttl_ms, options.is_absolute) {
        (0, _) => Ttl::Clear,
        (deadline_ms, true) => Ttl::At(deadline_ms),
        // A deadline beyond all numbers lies in the past, as in Redis.
        (ttl_ms, false) => Ttl::At(at.now_ms.wrapping_add(ttl_ms)),
    };
    let payload = args.shared(3).unwrap_or_else(|| Bytes::copy_from_slice(args.get(3)));
    let restoring = Restoring::begin(payload);
    let seed = ctx.shard.random();
    let used = options.used;
    let mut job = RestoreJob { name: key.bytes.into(), hash: key.hash, at, ttl, used, seed, restoring };
    for _ in 0..SLICES_AT_ONCE {
        if job.slice(ctx)? {
            return Ok(());
        }
    }
    ctx.job = Some(Box::new(job));
    Ok(())
}

/// Slices that run before a job is made of it: the checksum of a short payload, and what it holds.
const SLICES_AT_ONCE: usize = 2;

/// RESTORE in slices. The key is held: nobody sees it without its new value any more.
struct RestoreJob {
    name: Box<[u8]>,
    hash: u64,
    /// The moment that counts for deadlines: when it began.
    at: At,
    ttl: Ttl,
    used: Used,
    seed: u64,
    restoring: Restoring,
}

impl Job for RestoreJob {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let made_with = MadeWith { config: ctx.config, limits: ctx.limits, seed: self.seed };
        let mut refused = None;
        let step = self.restoring.step(made_with, ctx.work.slice().distances(1), &mut refused);
        if let Some(refused) = refused {
            ctx.shard.keyspace(self.at.db).discard_object(refused);
        }
        match step? {
            Restored::More => return Ok(false),
            Restored::Sound => {
                let value = rdb::value(self.restoring.payload(), made_with)?;
                let mut text = Cow::Borrowed(b"".as_slice());
                self.put(ctx, value.into_new(&mut text));
            }
            Restored::Object(object) => self.put(ctx, NewValue::Object(object)),
        }
        Ok(true)
    }

    fn held(&self) -> Option<(HoldMode, Key<'_>)> {
        Some((HoldMode::Exclusive, Key { bytes: &self.name, hash: self.hash }))
    }
}

impl RestoreJob {
    fn put(&self, ctx: &mut Ctx<'_>, value: NewValue<'_>) {
        let (at, key) = (self.at, Key { bytes: &self.name, hash: self.hash });
        // What is replaced goes first: big values are freed in slices.
        let was_there = ctx.shard.remove(at, &key);
        if matches!(self.ttl, Ttl::At(deadline_ms) if deadline_ms <= at.now_ms) {
            // Dead on arrival: only what it replaces goes.
            if was_there {
                ctx.changed(&key, EventClass::Generic, "del");
            }
            if let NewValue::Object(object) = value {
                ctx.shard.keyspace(at.db).discard_object(object);
            }
        } else {
            let is_vector_set = matches!(value, NewValue::Object(Object::Vector(_)));
            ctx.shard.insert(at, &key, value, self.ttl);
            let keyspace = ctx.shard.keyspace(at.db);
            if let Some(clock) = self.used.clock(keyspace.access()) {
                keyspace.set_clock(&key, clock);
            }
            if is_vector_set {
                note_upkeep(ctx.shard, at.db, key.bytes);
            }
            ctx.changed(&key, EventClass::Generic, "restore");
        }
        ctx.reply.ok();
    }
}

/// How a restored key has been used before.
#[derive(Clone, Copy, Default)]
enum Used {
    #[default]
    Now,
    Idle {
        seconds: u64,
    },
    Frequency(u8),
}

impl Used {
    /// Its access clock. What the policy does not keep is not told, as in Redis.
    fn clock(self, access: &AccessClock) -> Option<u32> {
        match (self, access.tracking()) {
            (Used::Idle { seconds }, Tracking::Used | Tracking::Modified) => {
                Some(access.clock_of_idle(seconds))
            }
            (Used::Frequency(frequency), Tracking::Frequency) => Some(access.clock_of_frequency(frequency)),
            (Used::Now | Used::Idle { .. } | Used::Frequency(_), _) => None,
        }
    }
}

#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
    used: Used,
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
            } else if is_word(word, "IDLETIME")
                && cursor.left() > 0
                && !matches!(options.used, Used::Frequency(_))
            {
                let seconds = number(cursor.value()?)?;
                let seconds = u64::try_from(seconds)
                    .map_err(|_| CommandError::text("ERR Invalid IDLETIME value, must be >= 0"))?;
                options.used = Used::Idle { seconds };
            } else if is_word(word, "FREQ") && cursor.left() > 0 && !matches!(options.used, Used::Idle { .. })
            {
                let frequency = number(cursor.value()?)?;
                let frequency = u8::try_from(frequency)
                    .map_err(|_| CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?;
                options.used = Used::Frequency(frequency);
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
