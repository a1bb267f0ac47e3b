//! Set commands (<https://redis.io/docs/latest/commands/?group=set>).
//!
//! A set that loses its last member goes with its key, in the same command: the event of the command comes first, then
//! `del`. The algebra commands lend members and copy none but those that are stored.
//!
//! Departures from Redis:
//! 1. SRANDMEMBER with a negative count draws at most `DRAWS_MAX` members and `DRAWS_MAX_BYTES` of reply; Redis goes on
//!    until its memory is gone.

use skerry_resp::reply::Reply;

use super::draw::draw_again_and_again;
use super::scan::{Beside, Walked, scan_collection};
use crate::access::reply_element;
use crate::args::Args;
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, NewValue, Object, Ttl};
use crate::shard::{EventClass, Shard};
use crate::types::algebra::{difference, intersection, union};
use crate::types::{Digits, Element, Limits, Set};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("sadd", -3, Handler::Shard(sadd), "Adds members and tells how many are new").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("srem", -3, Handler::Shard(srem), "Removes members and tells how many there were").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("smove", 4, Handler::Shard(smove), "Moves a member from one set to another").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]),
    row("sismember", 3, Handler::Shard(sismember), "Tells whether something is a member").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SET).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("smismember", -3, Handler::Shard(smismember), "Tells of several things whether they are members").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SET).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("smembers", 2, Handler::Shard(smembers), "Shows all members").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("scard", 2, Handler::Shard(scard), "Tells the number of members").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SET).keys(&[range(KeyFlags::RO, 1, 0, 1)]),
    row("spop", -2, Handler::Shard(spop), "Takes random members out").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SET).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("srandmember", -2, Handler::Shard(srandmember), "Shows random members").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("sinter", -2, Handler::Shard(sinter), "Shows the members that all sets have").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("sinterstore", -3, Handler::Shard(sinterstore), "Stores the members that all sets have").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
    row("sunion", -2, Handler::Shard(sunion), "Shows the members that any of the sets has").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("sunionstore", -3, Handler::Shard(sunionstore), "Stores the members that any of the sets has").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
    row("sdiff", -2, Handler::Shard(sdiff), "Shows the members that only the first set has").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output_order"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, -1, 1)]),
    row("sdiffstore", -3, Handler::Shard(sdiffstore), "Stores the members that only the first set has").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SET).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
    row("sscan", -3, Handler::Shard(sscan), "Walks the members with a cursor").flags(Flags::READONLY).acl(Acl::SET).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];

/// One lookup; nothing is allocated but what the set stores.
fn sadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let n_members = args.len() - 2;
    let limits = ctx.limits;
    let set = ctx.shard.set_or_new(ctx.at(), &key, || Set::for_members(args.get(2), n_members, limits))?;
    set.announce(n_members, limits);
    let n_added = args.from(2).filter(|member| set.add(member, limits)).count();
    if n_added > 0 {
        ctx.changed(&key, EventClass::Set, "sadd");
    }
    ctx.reply.integer(n_added as i64);
    Ok(())
}

fn srem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(set) = ctx.shard.set_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let n_removed = args.from(2).filter(|member| set.remove(member)).count();
    let is_empty = set.is_empty();
    if n_removed > 0 {
        ctx.shrunk(&key, EventClass::Set, "srem", is_empty);
    }
    ctx.reply.integer(n_removed as i64);
    Ok(())
}

fn smove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (source, destination) = (ctx.key(args, 1), ctx.key(args, 2));
    let member = args.get(3);
    let limits = ctx.limits;
    let Some(set) = ctx.shard.set_mut(ctx.at(), &source)? else {
        ctx.shard.expire_on_access(ctx.at(), &destination);
        ctx.reply.integer(0);
        return Ok(());
    };
    let is_member = set.contains(member);
    ctx.shard.set_mut(ctx.at(), &destination)?;
    if !is_member || source.bytes == destination.bytes {
        ctx.reply.integer(i64::from(is_member));
        return Ok(());
    }
    let is_empty =
        ctx.shard.set_mut(ctx.at(), &source)?.is_some_and(|set| set.remove(member) && set.is_empty());
    ctx.shrunk(&source, EventClass::Set, "srem", is_empty);
    let set = ctx.shard.set_or_new(ctx.at(), &destination, || Set::for_members(member, 1, limits))?;
    if set.add(member, limits) {
        ctx.changed(&destination, EventClass::Set, "sadd");
    }
    ctx.reply.integer(1);
    Ok(())
}

fn sismember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let is_member = ctx.shard.read_set(ctx.at(), &key)?.is_some_and(|set| set.contains(args.get(2)));
    ctx.reply.integer(i64::from(is_member));
    Ok(())
}

fn smismember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let set = ctx.shard.read_set(ctx.at(), &key)?;
    ctx.reply.array(args.len() - 2);
    for member in args.from(2) {
        ctx.reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(())
}

fn smembers(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let set = ctx.shard.read_set(ctx.at(), &key)?;
    ctx.reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| reply_element(member, &mut ctx.reply));
    Ok(())
}

fn scard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let len = ctx.shard.read_set(ctx.at(), &key)?.map_or(0, Set::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn spop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 => pop_one(ctx, args),
        3 => pop_several(ctx, args),
        _ => Err(CommandError::Syntax),
    }
}

fn pop_one(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let mut random = ctx.shard.random_source();
    let Some(set) = ctx.shard.set_mut(ctx.at(), &key)? else {
        ctx.reply.null();
        return Ok(());
    };
    if let Some(member) = set.pop(&mut random) {
        reply_element(member.as_element(), &mut ctx.reply);
    }
    let is_empty = set.is_empty();
    ctx.shrunk(&key, EventClass::Set, "spop", is_empty);
    Ok(())
}

fn pop_several(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let count = args.count(2)?;
    let key = ctx.key(args, 1);
    let mut random = ctx.shard.random_source();
    let Some(set) = ctx.shard.set_mut(ctx.at(), &key)?.filter(|_| count > 0) else {
        ctx.reply.set(0);
        return Ok(());
    };
    // Either way what may be big is freed in slices.
    if count >= set.len() {
        reply_set(set, &mut ctx.reply);
        ctx.shrunk(&key, EventClass::Set, "spop", true);
    } else {
        let taken = set.take_random(count, &mut random, ctx.limits);
        reply_set(&taken, &mut ctx.reply);
        ctx.keyspace().discard_object(Object::Set(taken));
        ctx.shrunk(&key, EventClass::Set, "spop", false);
    }
    Ok(())
}

fn srandmember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 => draw_one(ctx, args),
        3 => draw_several(ctx, args),
        _ => Err(CommandError::Syntax),
    }
}

fn draw_one(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let mut random = ctx.shard.random_source();
    match ctx.shard.read_set(ctx.at(), &key)?.and_then(|set| set.random(&mut random)) {
        Some(member) => reply_element(member, &mut ctx.reply),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// A positive count draws different members, a negative one as many as it says, the same one again or not.
fn draw_several(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let count = args.integer(2)?;
    if count == i64::MIN {
        return Err(CommandError::NotBetween(-i64::MAX, i64::MAX));
    }
    let key = ctx.key(args, 1);
    let mut random = ctx.shard.random_source();
    let Some(set) = ctx.shard.read_set(ctx.at(), &key)?.filter(|_| count != 0) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let n = count.unsigned_abs() as usize;
    if count > 0 {
        ctx.reply.array(n.min(set.len()));
        set.sample(n, &mut random, |member| reply_element(member, &mut ctx.reply));
        return Ok(());
    }
    draw_again_and_again(
        &mut ctx.reply,
        n,
        |reply| reply.array(n),
        |reply| {
            if let Some(member) = set.random(&mut random) {
                reply_element(member, reply);
            }
        },
    )
}

fn reply_set(set: &Set, reply: &mut Reply<'_>) {
    reply.set(set.len());
    set.iter().for_each(|member| reply_element(member, reply));
}

fn sinter(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 1);
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let sets: Option<Vec<&Set>> = sets.into_iter().collect();
    reply_members(sets.iter().flat_map(|sets| intersection(sets)), &mut ctx.reply);
    Ok(())
}

fn sunion(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 1);
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let sets: Vec<&Set> = sets.into_iter().flatten().collect();
    reply_members(union(&sets, ctx.limits.seed), &mut ctx.reply);
    Ok(())
}

fn sdiff(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 1);
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let (first, others) = first_and_others(sets);
    reply_members(first.iter().flat_map(|first| difference(first, &others, ctx.limits.seed)), &mut ctx.reply);
    Ok(())
}

fn sinterstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 2);
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let sets: Option<Vec<&Set>> = sets.into_iter().collect();
    let mut result = Set::new_packed();
    for member in sets.iter().flat_map(|sets| intersection(sets)) {
        add_element(&mut result, member, ctx.limits);
    }
    result.become_intset_if_integers(ctx.limits);
    store(ctx, args, result, "sinterstore");
    Ok(())
}

fn sunionstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 2);
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let mut result = Set::new_intset();
    for member in sets.into_iter().flatten().flat_map(Set::iter) {
        add_element(&mut result, member, ctx.limits);
    }
    store(ctx, args, result, "sunionstore");
    Ok(())
}

fn sdiffstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = keys(ctx, args, 2);
    let sets = ctx.shard.read_sets(ctx.at(), &keys)?;
    let (first, others) = first_and_others(sets);
    let result = first.map_or_else(Set::new_intset, |first| stored_difference(first, &others, ctx.limits));
    store(ctx, args, result, "sdiffstore");
    Ok(())
}

/// Redis has two ways to the same members, and the one by removal leaves the encoding of what was there before.
fn stored_difference(first: &Set, others: &[&Set], limits: &Limits) -> Set {
    let n_probes = first.len() * (1 + others.len()) / 2;
    let n_removals = first.len() + others.iter().map(|set| set.len()).sum::<usize>();
    let mut result = Set::new_intset();
    if n_probes <= n_removals {
        for member in difference(first, others, limits.seed) {
            add_element(&mut result, member, limits);
        }
    } else {
        first.iter().for_each(|member| add_element(&mut result, member, limits));
        for member in others.iter().flat_map(|set| set.iter()) {
            result.remove(member.as_bytes(&mut Digits::new()));
        }
    }
    result
}

fn add_element(set: &mut Set, member: Element<'_>, limits: &Limits) {
    set.add(member.as_bytes(&mut Digits::new()), limits);
}

/// Puts `result` in the place of whatever argument 1 names, which is removed if there is no result.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, result: Set, event: &'static str) {
    let destination = ctx.key(args, 1);
    let len = result.len();
    if len > 0 {
        let value = NewValue::Object(Object::Set(result));
        ctx.shard.insert(ctx.at(), &destination, value, Ttl::Clear);
        ctx.changed(&destination, EventClass::Set, event);
    } else if ctx.shard.remove(ctx.at(), &destination) {
        ctx.changed(&destination, EventClass::Generic, "del");
    }
    ctx.reply.integer(len as i64);
}

/// The arguments from `first` on as keys.
fn keys<'a>(ctx: &Ctx<'_>, args: Args<'a>, first: usize) -> Vec<Key<'a>> {
    (first..args.len()).map(|index| ctx.key(args, index)).collect()
}

fn first_and_others(sets: Vec<Option<&Set>>) -> (Option<&Set>, Vec<&Set>) {
    let mut sets = sets.into_iter();
    let first = sets.next().flatten();
    (first, sets.flatten().collect())
}

fn reply_members<'s>(members: impl Iterator<Item = Element<'s>>, reply: &mut Reply<'_>) {
    let mut found: Vec<Element<'_>> = Vec::new();
    // Not `collect`, which asks through every layer of the iterator for each member.
    members.for_each(|member| found.push(member));
    reply.set(found.len());
    found.into_iter().for_each(|member| reply_element(member, reply));
}

fn sscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    scan_collection(ctx, args, Walked::Members, Shard::read_set, |set: &Set, at, visit| {
        set.scan(at, |member| visit(member, Beside::Nothing))
    })
}
