//! Hash commands (<https://redis.io/docs/latest/commands/?group=hash>).
//!
//! A hash that loses its last field goes with its key, in the same command: `hdel` comes first, then `del`. A field past its
//! deadline is never shown; what looks for it by name removes it. Commands about deadlines are in `hash_expire`.

use skerry_resp::number::{LongDouble, parse_i64};
use skerry_resp::reply::Reply;

use super::scan::{Beside, Walked, scan_collection};
use crate::access::reply_element;
use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::{EventClass, Shard};
use crate::types::hash::{Found, Stored};
use crate::types::{Digits, Element, Hash};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("hset", -4, Handler::Shard(hset), "Sets fields and tells how many are new").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hget", 3, Handler::Shard(hget), "Shows the value of a field").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hmget", -3, Handler::Shard(hmget), "Shows the values of several fields").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hmset", -4, Handler::Shard(hmset), "As HSET, but answers OK").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hgetall", 2, Handler::Shard(hgetall), "Shows all fields with their values").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hdel", -3, Handler::Shard(hdel), "Removes fields and tells how many there were").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("hlen", 2, Handler::Shard(hlen), "Tells the number of fields").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("hexists", 3, Handler::Shard(hexists), "Tells whether a field exists").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("hkeys", 2, Handler::Shard(hkeys), "Shows all fields").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hvals", 2, Handler::Shard(hvals), "Shows all values").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hincrby", 4, Handler::Shard(hincrby), "Adds to the integer in a field").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hincrbyfloat", 4, Handler::Shard(hincrbyfloat), "Adds to the number in a field").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hsetnx", 4, Handler::Shard(hsetnx), "Sets a field that does not exist yet").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("hscan", -3, Handler::Shard(hscan), "Walks the fields with a cursor").flags(Flags::READONLY).acl(Acl::HASH).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];

fn hset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let n_new = set_fields(ctx, args, "hset")?;
    ctx.reply.integer(n_new);
    Ok(())
}

fn hmset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    set_fields(ctx, args, "hmset")?;
    ctx.reply.ok();
    Ok(())
}

/// One lookup; nothing is allocated but what the hash stores. Returns the number of new fields.
#[inline]
fn set_fields(ctx: &mut Ctx<'_>, args: Args<'_>, name: &'static str) -> Result<i64, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity(name));
    }
    let key = ctx.key(args, 1);
    let hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
    let before_ms = hash.earliest_ms();
    hash.announce(args.from(2), ctx.limits);
    let mut n_new = 0;
    let mut pairs = args.from(2);
    while let (Some(field), Some(value)) = (pairs.next(), pairs.next()) {
        n_new += i64::from(hash.set(field, value, ctx.limits) == Stored::New);
    }
    let after_ms = hash.earliest_ms();
    ctx.shard.refile_fields(ctx.at(), &key, before_ms, after_ms);
    ctx.changed(&key, EventClass::Hash, "hset");
    Ok(n_new)
}

fn hsetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let mut hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
    if hash.is_dead(args.get(2), ctx.now_ms) {
        ctx.shard.expire_fields(ctx.at(), &key, args.from(2).take(1));
        hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
    }
    let is_new = hash.get(args.get(2), ctx.now_ms).is_none();
    if is_new {
        hash.announce(args.from(2), ctx.limits);
        hash.set(args.get(2), args.get(3), ctx.limits);
        ctx.changed(&key, EventClass::Hash, "hset");
    }
    ctx.reply.integer(i64::from(is_new));
    Ok(())
}

fn hincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let increment = args.integer(3)?;
    let key = ctx.key(args, 1);
    // A new hash cannot fail below: it has no field, and nothing plus anything overflows nothing.
    let mut hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
    let value = match hash.find(args.get(2), ctx.now_ms) {
        Found::Absent => 0,
        Found::Dead => {
            ctx.shard.expire_fields(ctx.at(), &key, args.from(2).take(1));
            hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
            0
        }
        Found::Alive(Element::Integer(value)) => value,
        Found::Alive(Element::Bytes(bytes)) => {
            parse_i64(bytes).ok_or(CommandError::text("ERR hash value is not an integer"))?
        }
    };
    let sum = value.checked_add(increment).ok_or(CommandError::Overflow)?;
    hash.set_value(args.get(2), Digits::new().format(sum).as_bytes(), ctx.limits);
    ctx.changed(&key, EventClass::Hash, "hincrby");
    ctx.reply.integer(sum);
    Ok(())
}

/// In 80-bit precision, as in Redis; the reply is a bulk string in RESP3 as well.
fn hincrbyfloat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let increment = LongDouble::parse(args.get(3)).ok_or(CommandError::NotFloat)?;
    if !increment.is_finite() {
        return Err(CommandError::text("ERR value is NaN or Infinity"));
    }
    let key = ctx.key(args, 1);
    // A new hash cannot fail below: it has no field, and the increment is finite.
    let mut hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
    let value = match hash.find(args.get(2), ctx.now_ms) {
        Found::Absent => LongDouble::from_i64(0),
        Found::Dead => {
            ctx.shard.expire_fields(ctx.at(), &key, args.from(2).take(1));
            hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
            LongDouble::from_i64(0)
        }
        Found::Alive(Element::Integer(value)) => LongDouble::from_i64(value),
        Found::Alive(Element::Bytes(bytes)) => {
            LongDouble::parse(bytes).ok_or(CommandError::text("ERR hash value is not a float"))?
        }
    };
    let sum = value + increment;
    if !sum.is_finite() {
        return Err(CommandError::NanOrInfinity);
    }
    let mut text = Vec::new();
    sum.push_text(&mut text);
    hash.set_value(args.get(2), &text, ctx.limits);
    ctx.changed(&key, EventClass::Hash, "hincrbyfloat");
    ctx.reply.bulk(&text);
    Ok(())
}

fn hdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(hash) = ctx.shard.hash_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let before_ms = hash.earliest_ms();
    let n_removed = args.from(2).filter(|field| hash.remove(field)).count();
    let (after_ms, is_empty) = (hash.earliest_ms(), hash.is_empty());
    ctx.shard.refile_fields(ctx.at(), &key, before_ms, after_ms);
    if n_removed > 0 {
        ctx.shrunk(&key, EventClass::Hash, "hdel", is_empty);
    }
    ctx.reply.integer(n_removed as i64);
    Ok(())
}

fn hget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    let found = hash.map_or(Found::Absent, |hash| hash.find(args.get(2), ctx.now_ms));
    reply_found(found, &mut ctx.reply);
    if found == Found::Dead {
        ctx.shard.expire_fields(ctx.at(), &key, args.from(2));
    }
    Ok(())
}

fn hmget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    ctx.reply.array(args.len() - 2);
    let mut has_dead = false;
    for field in args.from(2) {
        let found = hash.map_or(Found::Absent, |hash| hash.find(field, ctx.now_ms));
        reply_found(found, &mut ctx.reply);
        has_dead |= found == Found::Dead;
    }
    if has_dead {
        ctx.shard.expire_fields(ctx.at(), &key, args.from(2));
    }
    Ok(())
}

#[inline]
pub(super) fn reply_found(found: Found<'_>, reply: &mut Reply<'_>) {
    match found {
        Found::Alive(value) => reply_element(value, reply),
        Found::Absent | Found::Dead => reply.null(),
    }
}

fn hgetall(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    ctx.reply.map(hash.map_or(0, |hash| hash.n_alive(ctx.now_ms)));
    for (field, value) in hash.into_iter().flat_map(|hash| hash.iter(ctx.now_ms)) {
        reply_element(field, &mut ctx.reply);
        reply_element(value, &mut ctx.reply);
    }
    Ok(())
}

fn hkeys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    ctx.reply.array(hash.map_or(0, |hash| hash.n_alive(ctx.now_ms)));
    for (field, _) in hash.into_iter().flat_map(|hash| hash.iter(ctx.now_ms)) {
        reply_element(field, &mut ctx.reply);
    }
    Ok(())
}

fn hvals(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    ctx.reply.array(hash.map_or(0, |hash| hash.n_alive(ctx.now_ms)));
    for (_, value) in hash.into_iter().flat_map(|hash| hash.iter(ctx.now_ms)) {
        reply_element(value, &mut ctx.reply);
    }
    Ok(())
}

fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let len = ctx.shard.read_hash(ctx.at(), &key)?.map_or(0, Hash::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    let found = hash.map_or(Found::Absent, |hash| hash.find(args.get(2), ctx.now_ms));
    ctx.reply.integer(i64::from(matches!(found, Found::Alive(_))));
    if found == Found::Dead {
        ctx.shard.expire_fields(ctx.at(), &key, args.from(2));
    }
    Ok(())
}

fn hscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let now_ms = ctx.now_ms;
    scan_collection(ctx, args, Walked::Fields, Shard::read_hash, |hash: &Hash, at, visit| {
        hash.scan(at, now_ms, |(field, value)| visit(field, Beside::Value(value)))
    })
}
