//! String commands (<https://redis.io/docs/latest/commands/?group=string>).
//!
//! GET, SET, SETNX, APPEND, INCR, MGET and MSET are the hot path: they allocate nothing but the stored value, and the hash
//! of a key is computed once. Commands with several keys fetch their memory in waves (`Ctx::for_each_key`).
//! A deadline in the past is stored as it is: the key is dead at once, and the next to meet it removes it, as in Redis.

use skerry_resp::number::{LongDouble, parse_i64};

use super::string_condition::{Test, ValueCondition};
use crate::access::{Text, reply_part, text_of};
use crate::args::{Args, MIN_SHARED_BYTES, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::deadline::Clock;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Appended, Key, NewValue, Ttl};
use crate::shard::EventClass;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("append", 3, Handler::Shard(append), "Appends to a string, or makes it.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("decr", 2, Handler::Shard(decr), "Subtracts one from an integer.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("decrby", 3, Handler::Shard(decrby), "Subtracts from an integer.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("get", 2, Handler::Shard(get), "The string at a key.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("getdel", 2, Handler::Shard(getdel), "The string at a key, which is then deleted.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("getex", -2, Handler::Shard(getex), "The string at a key, whose deadline is then changed.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1).notes("RW and UPDATE because it changes the TTL")]),
    row("getrange", 4, Handler::Shard(getrange), "A part of a string, by its offsets.").flags(Flags::READONLY).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("getset", 3, Handler::Shard(getset), "The string at a key, which is then replaced.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("incr", 2, Handler::Shard(incr), "Adds one to an integer.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("incrby", 3, Handler::Shard(incrby), "Adds to an integer.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("incrbyfloat", 3, Handler::Shard(incrbyfloat), "Adds to a number, in 80-bit precision.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("mget", -2, Handler::Shard(mget), "The strings at several keys.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).tips(&["request_policy:multi_shard"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("mset", -3, Handler::Shard(mset), "Sets several keys, atomically.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, -1, 2)]),
    row("msetnx", -3, Handler::Shard(msetnx), "Sets several keys if none of them exists.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::INSERT), 1, -1, 2)]),
    row("psetex", 4, Handler::Shard(psetex), "Sets a string with a time to live in milliseconds.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("set", -3, Handler::Shard(set), "Sets a string, under conditions and with a deadline if asked for.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE_FLAGS), 1, 0, 1).notes("RW and ACCESS due to the optional `GET` argument")]),
    row("setex", 4, Handler::Shard(setex), "Sets a string with a time to live in seconds.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("setnx", 3, Handler::Shard(setnx), "Sets a string if the key is absent.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::OW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("setrange", 4, Handler::Shard(setrange), "Overwrites a part of a string, with zeros before it if it is shorter.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("strlen", 2, Handler::Shard(strlen), "The length of a string.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("substr", 4, Handler::Shard(substr), "GETRANGE by its old name.").flags(Flags::READONLY).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];

/// When SET sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Always,
    IfAbsent,
    IfPresent,
    IfValue(ValueCondition<'a>),
}

/// What the options of SET, GETEX, MSETEX and INCREX say of the deadline.
#[derive(Clone, Copy)]
pub(super) enum DeadlineOption<'a> {
    Unsaid,
    Keep,
    Persist,
    Given(Clock, &'a [u8]),
}

/// The clock that an option word names.
fn clock_named(word: &[u8]) -> Option<Clock> {
    let words = [
        ("ex", Clock::Seconds),
        ("px", Clock::Milliseconds),
        ("exat", Clock::UnixSeconds),
        ("pxat", Clock::UnixMilliseconds),
    ];
    words.iter().find(|(name, _)| is_word(word, name)).map(|(_, clock)| *clock)
}

/// The deadline of a write in Unix milliseconds: its number is positive. `command` is named in the error.
pub(super) fn deadline_ms(
    clock: Clock,
    text: &[u8],
    now_ms: i64,
    command: &'static str,
) -> Result<i64, CommandError> {
    match parse_i64(text).ok_or(CommandError::NotInteger)? {
        number if number > 0 => clock.deadline_ms(number, now_ms, command),
        _ => Err(CommandError::InvalidExpire(command)),
    }
}

/// Takes the option `word` and its number. A second one replaces the first only if it is of the same kind.
pub(super) fn deadline_option<'a>(
    word: &[u8],
    number: Option<&'a [u8]>,
    before: DeadlineOption<'_>,
) -> Result<DeadlineOption<'a>, CommandError> {
    let (Some(clock), Some(number)) = (clock_named(word), number) else { return Err(CommandError::Syntax) };
    match before {
        DeadlineOption::Unsaid => Ok(DeadlineOption::Given(clock, number)),
        DeadlineOption::Given(given, _) if given == clock => Ok(DeadlineOption::Given(clock, number)),
        DeadlineOption::Given(..) | DeadlineOption::Keep | DeadlineOption::Persist => {
            Err(CommandError::Syntax)
        }
    }
}

/// The options of SET.
struct SetOptions<'a> {
    condition: Condition<'a>,
    get: bool,
    deadline: DeadlineOption<'a>,
}

impl<'a> SetOptions<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self { condition: Condition::Always, get: false, deadline: DeadlineOption::Unsaid };
        let mut cursor = args.cursor(3);
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "nx") && matches!(options.condition, Condition::Always | Condition::IfAbsent) {
                options.condition = Condition::IfAbsent;
            } else if is_word(word, "xx")
                && matches!(options.condition, Condition::Always | Condition::IfPresent)
            {
                options.condition = Condition::IfPresent;
            } else if let Some(test) = Test::named(word) {
                let operand = cursor.value()?;
                match options.condition {
                    Condition::Always => {}
                    Condition::IfValue(before) if before.test == test => {}
                    Condition::IfAbsent | Condition::IfPresent | Condition::IfValue(_) => {
                        return Err(CommandError::Syntax);
                    }
                }
                options.condition = Condition::IfValue(ValueCondition { test, operand });
            } else if is_word(word, "get") {
                options.get = true;
            } else if is_word(word, "keepttl") {
                match options.deadline {
                    DeadlineOption::Unsaid | DeadlineOption::Keep => options.deadline = DeadlineOption::Keep,
                    DeadlineOption::Given(..) | DeadlineOption::Persist => return Err(CommandError::Syntax),
                }
            } else {
                options.deadline = deadline_option(word, cursor.maybe_next(), options.deadline)?;
            }
        }
        Ok(options)
    }
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return set_with_options(ctx, args);
    }
    let key = ctx.key(args, 1);
    overwrite(ctx, &key, value_of(args, 2), Ttl::Clear);
    ctx.reply.ok();
    Ok(())
}

fn set_with_options(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let options = SetOptions::parse(args)?;
    let ttl = match options.deadline {
        DeadlineOption::Unsaid | DeadlineOption::Persist => Ttl::Clear,
        DeadlineOption::Keep => Ttl::Keep,
        DeadlineOption::Given(clock, number) => Ttl::At(deadline_ms(clock, number, ctx.now_ms, "set")?),
    };
    let key = ctx.key(args, 1);
    let is_present = if options.get {
        reply_with_value(ctx, &key)?
    } else {
        matches!(options.condition, Condition::IfAbsent | Condition::IfPresent)
            && ctx.shard.peek(ctx.at(), &key).is_some()
    };
    let is_refused = match options.condition {
        Condition::Always => false,
        Condition::IfAbsent => is_present,
        Condition::IfPresent => !is_present,
        Condition::IfValue(condition) => !condition.holds(ctx.shard.peek_string(ctx.at(), &key)?)?,
    };
    if is_refused {
        if !options.get {
            ctx.reply.null();
        }
        return Ok(());
    }
    overwrite(ctx, &key, value_of(args, 2), ttl);
    if !options.get {
        ctx.reply.ok();
    }
    Ok(())
}

/// Argument `index` as a value: a long one is not copied if its buffer can be shared.
#[inline]
pub(super) fn value_of(args: Args<'_>, index: usize) -> NewValue<'_> {
    let bytes = args.get(index);
    if bytes.len() > MIN_SHARED_BYTES
        && let Some(bytes) = args.shared(index)
    {
        return NewValue::Shared(bytes);
    }
    NewValue::of_bytes(bytes)
}

/// Gives a key a string and says so.
#[inline]
pub(super) fn overwrite(ctx: &mut Ctx<'_>, key: &Key<'_>, value: NewValue<'_>, ttl: Ttl) {
    ctx.shard.expire_on_access(ctx.at(), key);
    ctx.shard.insert(ctx.at(), key, value, ttl);
    ctx.changed(key, EventClass::String, "set");
    if matches!(ttl, Ttl::At(_)) {
        ctx.changed(key, EventClass::Generic, "expire");
    }
}

/// The string at a key, or null; whether there was one.
#[inline]
fn reply_with_value(ctx: &mut Ctx<'_>, key: &Key<'_>) -> Result<bool, CommandError> {
    match ctx.shard.read_string(ctx.at(), key)? {
        Some(text) => {
            text.reply(&mut ctx.reply, &mut ctx.placed);
            Ok(true)
        }
        None => {
            ctx.reply.null();
            Ok(false)
        }
    }
}

fn setex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_with_ttl(ctx, args, Clock::Seconds, "setex")
}

fn psetex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_with_ttl(ctx, args, Clock::Milliseconds, "psetex")
}

fn set_with_ttl(ctx: &mut Ctx<'_>, args: Args<'_>, clock: Clock, command: &'static str) -> Outcome {
    let deadline_ms = deadline_ms(clock, args.get(2), ctx.now_ms, command)?;
    let key = ctx.key(args, 1);
    overwrite(ctx, &key, value_of(args, 3), Ttl::At(deadline_ms));
    ctx.reply.ok();
    Ok(())
}

fn setnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    if ctx.shard.peek(ctx.at(), &key).is_some() {
        ctx.reply.integer(0);
        return Ok(());
    }
    ctx.keyspace().add(&key, value_of(args, 2), None);
    ctx.changed(&key, EventClass::String, "set");
    ctx.reply.integer(1);
    Ok(())
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    reply_with_value(ctx, &key)?;
    Ok(())
}

fn getset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    reply_with_value(ctx, &key)?;
    overwrite(ctx, &key, value_of(args, 2), Ttl::Clear);
    Ok(())
}

fn getdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    if reply_with_value(ctx, &key)? {
        ctx.shard.remove(ctx.at(), &key);
        ctx.changed(&key, EventClass::Generic, "del");
    }
    Ok(())
}

fn getex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut option = DeadlineOption::Unsaid;
    let mut cursor = args.cursor(2);
    while let Some(word) = cursor.maybe_next() {
        option = match option {
            DeadlineOption::Unsaid | DeadlineOption::Persist if is_word(word, "persist") => {
                DeadlineOption::Persist
            }
            _ => deadline_option(word, cursor.maybe_next(), option)?,
        };
    }
    let key = ctx.key(args, 1);
    if !reply_with_value(ctx, &key)? {
        return Ok(());
    }
    match option {
        DeadlineOption::Unsaid | DeadlineOption::Keep => {}
        DeadlineOption::Persist => {
            if ctx.keyspace().persist(&key) {
                ctx.changed(&key, EventClass::Generic, "persist");
            }
        }
        DeadlineOption::Given(clock, number) => {
            let deadline_ms = deadline_ms(clock, number, ctx.now_ms, "getex")?;
            if deadline_ms <= ctx.now_ms {
                ctx.shard.remove(ctx.at(), &key);
                ctx.changed(&key, EventClass::Generic, "del");
            } else {
                ctx.keyspace().set_expire(&key, deadline_ms);
                ctx.changed(&key, EventClass::Generic, "expire");
            }
        }
    }
    Ok(())
}

fn getrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (start, end) = (args.integer(2)?, args.integer(3)?);
    let key = ctx.key(args, 1);
    match ctx.shard.read_string(ctx.at(), &key)? {
        Some(Text::Shared(whole)) => {
            reply_part(whole, part(whole, start, end), &mut ctx.reply, &mut ctx.placed);
        }
        Some(text) => text.with_bytes(|bytes| ctx.reply.bulk(part(bytes, start, end))),
        None => ctx.reply.bulk(b""),
    }
    Ok(())
}

fn substr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    getrange(ctx, args)
}

/// The bytes from `start` to `end`, both inclusive, negative ones counted from the end.
fn part(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let len = bytes.len() as i64;
    let from_front = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if start > end {
        return b"";
    }
    &bytes[start as usize..=end as usize]
}

fn strlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let len = ctx.shard.read_string(ctx.at(), &key)?.map_or(0, Text::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn append(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let bytes = args.get(2);
    let max_len = ctx.config.proto_max_bulk_len as usize;
    ctx.shard.expire_on_access(ctx.at(), &key);
    let len = match ctx.keyspace().append(&key, bytes, max_len) {
        Appended::Done(len) => len,
        Appended::Absent => {
            ctx.keyspace().add(&key, value_of(args, 2), None);
            bytes.len()
        }
        Appended::WrongType => return Err(CommandError::WrongType),
        Appended::TooLong => return Err(CommandError::StringTooLong),
    };
    ctx.changed(&key, EventClass::String, "append");
    ctx.reply.integer(len as i64);
    Ok(())
}

fn setrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let offset = args.integer(2)?;
    let bytes = args.get(3);
    let Ok(offset) = usize::try_from(offset) else {
        return Err(CommandError::text("ERR offset is out of range"));
    };
    let key = ctx.key(args, 1);
    let old_len = ctx.shard.peek_string(ctx.at(), &key)?.map(Text::len);
    if bytes.is_empty() {
        ctx.reply.integer(old_len.unwrap_or(0) as i64);
        return Ok(());
    }
    if offset.saturating_add(bytes.len()) > ctx.config.proto_max_bulk_len as usize {
        return Err(CommandError::StringTooLong);
    }
    if old_len.is_none() {
        ctx.keyspace().add(&key, NewValue::Str(b""), None);
    }
    let len = ctx.keyspace().set_range(&key, offset, bytes).ok_or(CommandError::WrongType)?;
    ctx.changed(&key, EventClass::String, "setrange");
    ctx.reply.integer(len as i64);
    Ok(())
}

fn incr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    increment(ctx, args, 1)
}

fn decr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    increment(ctx, args, -1)
}

fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    increment(ctx, args, args.integer(2)?)
}

fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let by = args.integer(2)?.checked_neg().ok_or(CommandError::text("ERR decrement would overflow"))?;
    increment(ctx, args, by)
}

/// Adds to an integer: on the spot if it is stored as one.
fn increment(ctx: &mut Ctx<'_>, args: Args<'_>, by: i64) -> Outcome {
    let key = ctx.key(args, 1);
    let sum = match ctx.shard.edit(ctx.at(), &key) {
        None => {
            ctx.keyspace().add(&key, NewValue::Int(by), None);
            by
        }
        Some(mut entry) => {
            if let Some(value) = entry.int_mut() {
                *value = value.checked_add(by).ok_or(CommandError::Overflow)?;
                *value
            } else {
                let old =
                    text_of(entry.as_ref().view())?.with_bytes(parse_i64).ok_or(CommandError::NotInteger)?;
                let sum = old.checked_add(by).ok_or(CommandError::Overflow)?;
                ctx.shard.insert(ctx.at(), &key, NewValue::Int(sum), Ttl::Keep);
                sum
            }
        }
    };
    ctx.changed(&key, EventClass::String, "incrby");
    ctx.reply.integer(sum);
    Ok(())
}

fn incrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let old = match ctx.shard.peek_string(ctx.at(), &key)? {
        Some(Text::Int(value)) => LongDouble::from_i64(value),
        Some(Text::Shared(_)) => return Err(CommandError::NotFloat),
        Some(Text::Bytes(bytes)) => LongDouble::parse(bytes).ok_or(CommandError::NotFloat)?,
        None => LongDouble::ZERO,
    };
    let by = LongDouble::parse(args.get(2)).ok_or(CommandError::NotFloat)?;
    let sum = old + by;
    if !sum.is_finite() {
        return Err(CommandError::NanOrInfinity);
    }
    let mut text = Vec::new();
    sum.push_text(&mut text);
    // A string even where it reads like an integer: Redis does not encode this result again.
    ctx.shard.insert(ctx.at(), &key, NewValue::Str(&text), Ttl::Keep);
    ctx.changed(&key, EventClass::String, "incrbyfloat");
    ctx.reply.bulk(&text);
    Ok(())
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    ctx.reply.array(args.len() - 1);
    ctx.for_each_key(args, 1, |ctx, _, key| match ctx.shard.read_string(ctx.at(), key) {
        Ok(Some(text)) => text.reply(&mut ctx.reply, &mut ctx.placed),
        Ok(None) | Err(_) => ctx.reply.null(),
    });
    Ok(())
}

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("mset"));
    }
    ctx.for_each_key(args, 2, |ctx, index, key| overwrite(ctx, key, value_of(args, index + 1), Ttl::Clear));
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("msetnx"));
    }
    let mut n_present = 0;
    ctx.for_each_key(args, 2, |ctx, _, key| {
        n_present += usize::from(ctx.shard.peek(ctx.at(), key).is_some())
    });
    if n_present > 0 {
        ctx.reply.integer(0);
        return Ok(());
    }
    ctx.for_each_key(args, 2, |ctx, index, key| overwrite(ctx, key, value_of(args, index + 1), Ttl::Clear));
    ctx.reply.integer(1);
    Ok(())
}
