//! Commands on keys of any type: DEL, EXPIRE, SCAN, RENAME, COPY and the like (<https://redis.io/docs/latest/commands/?group=generic>).
//!
//! A key past its deadline is absent to all of them. Departures from Redis: 1. KEYS is cut into slices and SCAN does a
//! bounded part of what COUNT asks for, so that neither stops a worker; a key that comes or goes while a long KEYS runs
//! may or may not be shown. 2. A cursor is `position << 8 | shard`: a scan ends one shard and goes on with the next.

use super::scan::{Options, STEPS_PER_ELEMENT, Walked};
use crate::access::At;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, Job, KeyFlags, Merge, range, row};
use crate::deadline::Clock;
use crate::error::{CommandError, Outcome};
use crate::glob::{Case, glob_match};
use crate::keyspace::{Entry, EntryMut, EntryRef, Key, Loose, NewValue, Object, ScanPosition, Touch, View};
use crate::shard::{DbIndex, EventClass};
use skerry_resp::number::{parse_i64, parse_u64};

/// Keys that one slice of KEYS, or one call of SCAN, looks at.
const SCAN_SLICE_KEYS: usize = 4096;
/// Places that it looks at, which may be empty.
const SCAN_SLICE_STEPS: usize = 4096;
/// Dead keys that RANDOMKEY removes before it gives up.
const RANDOMKEY_TRIES: usize = 1000;
/// Bits of a cursor that name the shard.
const SHARD_BITS: u32 = 8;
const _: () = assert!(ScanPosition::BITS + SHARD_BITS <= 53, "a cursor is exact in a client's double");

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("del", -2, Handler::Shard(del), "Deletes keys.").flags(Flags::WRITE).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RM.with(KeyFlags::DELETE), 1, -1, 1)]),
    row("unlink", -2, Handler::Shard(unlink), "Deletes keys; as DEL, which frees big values in slices too.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RM.with(KeyFlags::DELETE), 1, -1, 1)]),
    row("exists", -2, Handler::Shard(exists), "How many of the keys there are; one named twice counts twice.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RO, 1, -1, 1)]),
    row("type", 2, Handler::Shard(type_), "The type of the value at a key.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("touch", -2, Handler::Shard(touch), "Marks keys as used; how many there are.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["request_policy:multi_shard", "response_policy:agg_sum"]).keys(&[range(KeyFlags::RO, 1, -1, 1)]),
    row("keys", 2, Handler::Split(keys, Merge::Concat), "All keys that match a pattern, in slices.").flags(Flags::READONLY).acl(Acl::DANGEROUS.with(Acl::KEYSPACE)).tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    row("scan", -2, Handler::Cursor(scan), "Walks the keys with a cursor that names a place of one shard.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    row("randomkey", 1, Handler::Split(randomkey, Merge::Custom(randomkey_merge)), "A random key.").flags(Flags::READONLY).acl(Acl::KEYSPACE).tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"]),
    row("rename", 3, Handler::Shard(rename), "Gives a value another key, whatever that held.").flags(Flags::WRITE).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::OW.with(KeyFlags::UPDATE), 2, 0, 1)]),
    row("renamenx", 3, Handler::Shard(renamenx), "Gives a value another key if that is absent.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::OW.with(KeyFlags::INSERT), 2, 0, 1)]),
    row("copy", -3, Handler::Shard(copy), "Copies a value to another key or database.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1), range(KeyFlags::OW.with(KeyFlags::UPDATE), 2, 0, 1)]),
    row("move", 3, Handler::Shard(move_), "Moves a key to another database.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("expire", -3, Handler::Shard(expire), "Sets the time to live in seconds.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("pexpire", -3, Handler::Shard(pexpire), "Sets the time to live in milliseconds.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("expireat", -3, Handler::Shard(expireat), "Sets the deadline, in Unix seconds.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("pexpireat", -3, Handler::Shard(pexpireat), "Sets the deadline, in Unix milliseconds.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("ttl", 2, Handler::Shard(ttl), "The time to live in seconds.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("pttl", 2, Handler::Shard(pttl), "The time to live in milliseconds.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("expiretime", 2, Handler::Shard(expiretime), "The deadline, in Unix seconds.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("pexpiretime", 2, Handler::Shard(pexpiretime), "The deadline, in Unix milliseconds.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("persist", 2, Handler::Shard(persist), "Takes the deadline away.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::KEYSPACE).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
];

fn del(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut n_deleted = 0;
    ctx.for_each_key(args, 1, |ctx, _, key| {
        if ctx.shard.remove(ctx.at(), key) {
            ctx.changed(key, EventClass::Generic, "del");
            n_deleted += 1;
        }
    });
    ctx.reply.integer(n_deleted);
    Ok(())
}

fn unlink(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    del(ctx, args)
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count_found(ctx, args, Touch::LeavesNoMark)
}

/// It marks keys as used even for a client that leaves no marks otherwise.
fn touch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    count_found(ctx, args, Touch::Marks)
}

fn count_found(ctx: &mut Ctx<'_>, args: Args<'_>, touch: Touch) -> Outcome {
    let (mut n_found, at) = (0, At { touch, ..ctx.at() });
    ctx.for_each_key(args, 1, |ctx, _, key| n_found += i64::from(ctx.shard.read(at, key).is_some()));
    ctx.reply.integer(n_found);
    Ok(())
}

/// The name of a value's type, as TYPE answers and SCAN's TYPE asks for it.
fn type_name(view: View<'_>) -> &'static str {
    match view {
        View::Int(_) | View::Str(_) | View::Shared(_) => "string",
        View::List(_) => "list",
        View::Set(_) => "set",
        View::Hash(_) => "hash",
        View::Zset(_) => "zset",
        View::Stream(_) => "stream",
        View::Vector(_) => "vectorset",
        View::Lent => "none",
    }
}

fn type_(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let name = ctx.shard.read_unmarked(ctx.at(), &key).map_or("none", |entry| type_name(entry.view()));
    ctx.reply.simple(name);
    Ok(())
}

/// KEYS in progress on one shard.
struct KeysJob {
    pattern: Box<[u8]>,
    next: ScanPosition,
    n_found: usize,
    found: Vec<u8>,
}

impl Job for KeysJob {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let now_ms = ctx.now_ms;
        let mut n_seen = 0;
        for _ in 0..SCAN_SLICE_STEPS {
            let Self { pattern, next, n_found, found } = self;
            let mut out = skerry_resp::reply::Reply::new(found, ctx.reply.proto());
            *next = ctx.shard.keyspace(ctx.caller.db).scan(*next, |entry| {
                n_seen += 1;
                if !entry.is_expired(now_ms) && glob_match(pattern, entry.key(), Case::Sensitive) {
                    out.bulk(entry.key());
                    *n_found += 1;
                }
            });
            if next.0 == 0 {
                ctx.reply.array(self.n_found);
                ctx.reply.raw(&self.found);
                return Ok(true);
            }
            if n_seen >= SCAN_SLICE_KEYS {
                break;
            }
        }
        Ok(false)
    }
}

fn keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut job =
        KeysJob { pattern: args.get(1).into(), next: ScanPosition(0), n_found: 0, found: Vec::new() };
    if !job.slice(ctx)? {
        ctx.job = Some(Box::new(job));
    }
    Ok(())
}

/// Whether SCAN shows a key.
fn shows(options: &Options<'_>, entry: EntryRef<'_>) -> bool {
    options.pattern.is_none_or(|pattern| glob_match(pattern, entry.key(), Case::Sensitive))
        && options.type_name.is_none_or(|name| is_word(name, type_name(entry.view())))
}

fn scan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let cursor = parse_u64(args.get(1)).ok_or(CommandError::InvalidCursor)?;
    let options = Options::parse(args, 2, Walked::Keys)?;
    let n_wanted = options.count.min(SCAN_SLICE_KEYS);
    let now_ms = ctx.now_ms;
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut dead: Vec<Box<[u8]>> = Vec::new();
    let mut n_seen = 0;
    let mut next = ScanPosition(cursor >> SHARD_BITS);
    let shard = u64::from(ctx.shard.id.0);
    let keyspace = ctx.shard.keyspace(ctx.caller.db);
    for _ in 0..(n_wanted * STEPS_PER_ELEMENT).min(SCAN_SLICE_STEPS) {
        next = keyspace.scan(next, |entry| {
            n_seen += 1;
            if entry.is_expired(now_ms) {
                dead.push(entry.key().into());
            } else if shows(&options, entry) {
                keys.push(entry.key());
            }
        });
        if next.0 == 0 || n_seen >= n_wanted {
            break;
        }
    }
    let cursor = match next.0 {
        0 if shard + 1 < ctx.server.n_shards as u64 => shard + 1,
        0 => 0,
        position => position << SHARD_BITS | shard,
    };
    ctx.reply.array(2);
    ctx.reply.bulk_integer(cursor as i64);
    ctx.reply.array(keys.len());
    keys.iter().for_each(|key| ctx.reply.bulk(key));
    for name in &dead {
        remove_if_dead(ctx, name);
    }
    Ok(())
}

/// Removes a key past its deadline that a walk has met.
fn remove_if_dead(ctx: &mut Ctx<'_>, name: &[u8]) {
    let key = Key { bytes: name, hash: ctx.server.hash_key(name) };
    ctx.shard.expire_on_access(ctx.at(), &key);
}

/// A part is an array of the key (or null), the number of keys it stands for, and a random number for the merge.
fn randomkey(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Outcome {
    let db = ctx.caller.db;
    ctx.reply.array(3);
    let mut random = ctx.shard.random_source();
    let mut is_found = false;
    for _ in 0..RANDOMKEY_TRIES {
        let Some(entry) = ctx.shard.keyspace(db).random(&mut random) else { break };
        if !entry.is_expired(ctx.now_ms) {
            ctx.reply.bulk(entry.key());
            is_found = true;
            break;
        }
        let name: Box<[u8]> = entry.key().into();
        remove_if_dead(ctx, &name);
    }
    if !is_found {
        ctx.reply.null();
    }
    let n_keys = if is_found { ctx.keyspace().len() } else { 0 };
    ctx.reply.integer(n_keys as i64);
    ctx.reply.integer((random() >> 1) as i64);
    Ok(())
}

/// One part of RANDOMKEY, read back.
struct RandomPart<'a> {
    /// The key as a complete reply.
    key: &'a [u8],
    n_keys: u64,
    random: u64,
}

impl<'a> RandomPart<'a> {
    fn read(part: &'a [u8]) -> Option<Self> {
        let body = part.strip_prefix(b"*3\r\n")?;
        let head = line(body)?;
        let key_bytes = match parse_i64(&head[1..])? {
            len if len < 0 => head.len() + 2,
            len => head.len() + 2 + len as usize + 2,
        };
        let (key, rest) = body.split_at_checked(key_bytes)?;
        let n_keys = line(rest)?;
        let random = line(&rest[n_keys.len() + 2..])?;
        Some(Self { key, n_keys: parse_u64(&n_keys[1..])?, random: parse_u64(&random[1..])? })
    }
}

/// The first line of a reply that this process wrote.
fn line(reply: &[u8]) -> Option<&[u8]> {
    memchr::memchr(b'\r', reply).filter(|end| *end > 0).map(|end| &reply[..end])
}

/// Draws a shard, each with the chance of its number of keys.
fn randomkey_merge(conn: &mut Conn<'_>, parts: &[&[u8]], _args: Args<'_>) -> Outcome {
    let parts: Vec<RandomPart<'_>> = parts.iter().filter_map(|part| RandomPart::read(part)).collect();
    let total: u64 = parts.iter().map(|part| part.n_keys).sum();
    if total == 0 {
        conn.reply.null();
        return Ok(());
    }
    let mut at = parts[0].random % total;
    for part in &parts {
        if at < part.n_keys {
            conn.reply.raw(part.key);
            break;
        }
        at -= part.n_keys;
    }
    Ok(())
}

fn rename(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if move_to_name(ctx, args, Occupied::Overwrite)? == Moved::Yes {
        ctx.reply.ok();
    }
    Ok(())
}

fn renamenx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let moved = move_to_name(ctx, args, Occupied::Refuse)?;
    ctx.reply.integer(i64::from(moved == Moved::Yes));
    Ok(())
}

/// What RENAME does if the new name exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occupied {
    Overwrite,
    Refuse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Yes,
    No,
}

fn move_to_name(ctx: &mut Ctx<'_>, args: Args<'_>, occupied: Occupied) -> Result<Moved, CommandError> {
    let (from, to) = (ctx.key(args, 1), ctx.key(args, 2));
    if ctx.shard.peek(ctx.at(), &from).is_none() {
        return Err(CommandError::NoSuchKey);
    }
    if from.bytes == to.bytes {
        return Ok(if occupied == Occupied::Overwrite { Moved::Yes } else { Moved::No });
    }
    if ctx.shard.peek(ctx.at(), &to).is_some() {
        if occupied == Occupied::Refuse {
            return Ok(Moved::No);
        }
        ctx.shard.remove(ctx.at(), &to);
    }
    if let Some(entry) = ctx.shard.take_entry(ctx.at(), &from) {
        adopt(ctx, ctx.caller.db, &to, entry);
    }
    ctx.changed(&from, EventClass::Generic, "rename_from");
    ctx.changed(&to, EventClass::Generic, "rename_to");
    Ok(Moved::Yes)
}

/// Files an entry under a key that is absent. A string that was raw stays so, however short its new key is.
fn adopt(ctx: &mut Ctx<'_>, db: DbIndex, key: &Key<'_>, entry: Entry) {
    let was_raw = encoding_name(entry.as_ref()) == RAW;
    let entry = if entry.as_ref().key() == key.bytes { entry } else { entry.with_key(key.bytes) };
    let is_raw = encoding_name(entry.as_ref()) == RAW;
    ctx.shard.keyspace(db).bear(key.hash, entry);
    if was_raw && !is_raw {
        ctx.shard.keyspace(db).edit_string(key, 0, |_| ());
    }
}

/// Argument `index` as a database.
fn database(ctx: &Ctx<'_>, text: &[u8]) -> Result<DbIndex, CommandError> {
    let number = parse_i64(text).ok_or(CommandError::NotInteger)?;
    if i32::try_from(number).is_err() {
        let (min, max) = (i32::MIN, i32::MAX);
        return Err(CommandError::format(format!(
            "ERR value is out of range, value must between {min} and {max}"
        )));
    }
    match usize::try_from(number) {
        Ok(db) if db < ctx.shard.n_databases() => Ok(DbIndex(db as u16)),
        _ => Err(CommandError::DbIndexOutOfRange),
    }
}

const SAME_OBJECT: CommandError = CommandError::text("ERR source and destination objects are the same");

fn move_(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let db = database(ctx, args.get(2))?;
    if db == ctx.caller.db {
        return Err(SAME_OBJECT);
    }
    let key = ctx.key(args, 1);
    let there = At { db, ..ctx.at() };
    if ctx.shard.peek(ctx.at(), &key).is_none() || ctx.shard.peek(there, &key).is_some() {
        ctx.reply.integer(0);
        return Ok(());
    }
    if let Some(entry) = ctx.shard.take_entry(ctx.at(), &key) {
        adopt(ctx, db, &key, entry);
    }
    ctx.changed(&key, EventClass::Generic, "move_from");
    ctx.shard.changed_by(ctx.caller.client, db, key.bytes, EventClass::Generic, "move_to");
    ctx.reply.integer(1);
    Ok(())
}

fn copy(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (mut db, mut replace) = (ctx.caller.db, false);
    let mut cursor = args.cursor(3);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "replace") {
            replace = true;
        } else if is_word(word, "db") {
            db = database(ctx, cursor.value()?)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let (from, to) = (ctx.key(args, 1), ctx.key(args, 2));
    if db == ctx.caller.db && from.bytes == to.bytes {
        return Err(SAME_OBJECT);
    }
    let there = At { db, ..ctx.at() };
    let is_absent = ctx.shard.read(ctx.at(), &from).is_none();
    if is_absent || ctx.shard.peek(there, &to).is_some() && !replace {
        ctx.reply.integer(0);
        return Ok(());
    }
    let Some(source) = ctx.shard.peek(ctx.at(), &from) else { return Ok(()) };
    let was_raw = encoding_name(source) == RAW;
    let entry = Entry::new(to.bytes, copy_of(source.view())?, source.expire_at());
    ctx.shard.remove(there, &to);
    adopt(ctx, db, &to, entry);
    ctx.shard.keyspace(db).mark_new(&to);
    if was_raw {
        ctx.shard.keyspace(db).edit_string(&to, 0, |_| ());
    }
    ctx.shard.changed_by(ctx.caller.client, db, to.bytes, EventClass::Generic, "copy_to");
    ctx.reply.integer(1);
    Ok(())
}

/// A value to be stored a second time. A long string is shared.
fn copy_of(view: View<'_>) -> Result<NewValue<'_>, CommandError> {
    Ok(match view {
        View::Int(value) => NewValue::Int(value),
        View::Str(bytes) => NewValue::Str(bytes),
        View::Shared(bytes) => NewValue::Shared(bytes.clone()),
        View::List(list) => NewValue::Object(Object::List(list.clone())),
        View::Set(set) => NewValue::Object(Object::Set(set.clone())),
        View::Hash(hash) => NewValue::Object(Object::Hash(hash.clone())),
        View::Zset(zset) => NewValue::Object(Object::Zset(zset.clone())),
        View::Stream(stream) => NewValue::Object(Object::Stream(Loose::new(stream.clone()))),
        View::Vector(_) | View::Lent => {
            return Err(CommandError::text("ERR not supported for this module key"));
        }
    })
}

/// The conditions of EXPIRE. A key without deadline counts as one that never dies.
#[derive(Clone, Copy, Default)]
struct ExpireConditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl ExpireConditions {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut conditions = Self::default();
        for word in args.from(3) {
            match () {
                () if is_word(word, "nx") => conditions.nx = true,
                () if is_word(word, "xx") => conditions.xx = true,
                () if is_word(word, "gt") => conditions.gt = true,
                () if is_word(word, "lt") => conditions.lt = true,
                () => return Err(CommandError::Bytes([b"ERR Unsupported option ", word].concat())),
            }
        }
        let Self { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return Err(CommandError::text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if gt && lt {
            return Err(CommandError::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    fn allow(self, present: Option<i64>, deadline_ms: i64) -> bool {
        match present {
            None => !self.xx && !self.gt,
            Some(present) => {
                !(self.nx || self.gt && deadline_ms <= present || self.lt && deadline_ms >= present)
            }
        }
    }
}

fn expire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_deadline(ctx, args, Clock::Seconds, "expire")
}

fn pexpire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_deadline(ctx, args, Clock::Milliseconds, "pexpire")
}

fn expireat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_deadline(ctx, args, Clock::UnixSeconds, "expireat")
}

fn pexpireat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_deadline(ctx, args, Clock::UnixMilliseconds, "pexpireat")
}

/// The conditions come first; then a deadline that is over deletes the key.
fn set_deadline(ctx: &mut Ctx<'_>, args: Args<'_>, clock: Clock, command: &'static str) -> Outcome {
    let conditions = ExpireConditions::parse(args)?;
    let deadline_ms = clock.deadline_ms(args.integer(2)?, ctx.now_ms, command)?;
    let key = ctx.key(args, 1);
    let found = ctx.shard.edit(ctx.at(), &key).map(EntryMut::into_ref);
    let is_allowed = match found {
        Some(entry) => conditions.allow(entry.expire_at(), deadline_ms),
        None => false,
    };
    if !is_allowed {
        ctx.reply.integer(0);
        return Ok(());
    }
    if deadline_ms <= ctx.now_ms {
        ctx.shard.remove(ctx.at(), &key);
        ctx.changed(&key, EventClass::Generic, "del");
    } else {
        ctx.keyspace().set_expire(&key, deadline_ms);
        ctx.changed(&key, EventClass::Generic, "expire");
    }
    ctx.reply.integer(1);
    Ok(())
}

fn ttl(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_with_deadline(ctx, args, |deadline_ms, now_ms| rounded_s(deadline_ms - now_ms))
}

fn pttl(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_with_deadline(ctx, args, |deadline_ms, now_ms| deadline_ms - now_ms)
}

fn expiretime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_with_deadline(ctx, args, |deadline_ms, _| rounded_s(deadline_ms))
}

fn pexpiretime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    reply_with_deadline(ctx, args, |deadline_ms, _| deadline_ms)
}

/// Half a second and more is rounded up.
fn rounded_s(ms: i64) -> i64 {
    ms / 1000 + i64::from(ms % 1000 >= 500)
}

/// -2 if there is no key, -1 if it has no deadline; the key is alive, so the deadline is not before `now_ms`.
fn reply_with_deadline(ctx: &mut Ctx<'_>, args: Args<'_>, show: impl FnOnce(i64, i64) -> i64) -> Outcome {
    let key = ctx.key(args, 1);
    let number = match ctx.shard.read_unmarked(ctx.at(), &key).map(EntryRef::expire_at) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline_ms)) => show(deadline_ms, ctx.now_ms),
    };
    ctx.reply.integer(number);
    Ok(())
}

fn persist(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let was_raw = ctx.shard.peek(ctx.at(), &key).is_some_and(|entry| encoding_name(entry) == RAW);
    let is_changed = ctx.keyspace().persist(&key);
    if is_changed {
        if was_raw {
            ctx.keyspace().edit_string(&key, 0, |_| ());
        }
        ctx.changed(&key, EventClass::Generic, "persist");
    }
    ctx.reply.integer(i64::from(is_changed));
    Ok(())
}

const RAW: &str = "raw";
/// Key and value together that Redis 8.2.3 stores in one block of 64 bytes, without and with a deadline.
const EMBEDDED_MAX_BYTES: usize = 41;
const EMBEDDED_MAX_BYTES_WITH_TTL: usize = 33;
/// A key of this length or more has room for a deadline reserved beside it.
const KEY_WITH_RESERVED_TTL_BYTES: usize = 32;

/// What OBJECT ENCODING answers.
pub(super) fn encoding_name(entry: EntryRef<'_>) -> &'static str {
    match entry.view() {
        View::Int(_) => "int",
        View::Str(bytes) => {
            let key_len = entry.key().len();
            let max = if entry.has_ttl() && key_len < KEY_WITH_RESERVED_TTL_BYTES {
                EMBEDDED_MAX_BYTES_WITH_TTL
            } else {
                EMBEDDED_MAX_BYTES
            };
            if entry.is_raw() || key_len + bytes.len() > max { RAW } else { "embstr" }
        }
        View::Shared(_) => RAW,
        View::List(list) => list.encoding(),
        View::Set(set) => set.encoding(),
        View::Hash(hash) => hash.encoding(),
        View::Zset(zset) => zset.encoding(),
        View::Stream(_) => "stream",
        View::Vector(_) | View::Lent => RAW,
    }
}

/// The shard that a SCAN cursor names; a malformed cursor goes anywhere, where its error is told.
pub fn shard_of_cursor(args: Args<'_>, n_shards: usize) -> crate::shard::ShardId {
    let cursor = skerry_resp::number::parse_u64(args.get(1)).unwrap_or(0);
    crate::shard::ShardId(((cursor & 0xff) as usize).min(n_shards - 1) as u8)
}
