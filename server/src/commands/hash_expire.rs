//! Deadlines of hash fields, and the hash commands that set or end them while they read or write
//! (<https://redis.io/docs/latest/commands/?group=hash>, since 7.4 and 8.0).
//!
//! A deadline that is now or over deletes the field at once (`hdel`); what dies later is removed by the expiry cycle or by
//! who looks for it (`hexpired`). HEXPIRE looks at a dead field that is still there as at any other, and may give it a new life, as in
//! Redis. Each kind of event is reported once a command, in Redis's order, `del` last.

use skerry_resp::number::parse_i64;

use super::hash::reply_found;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::deadline::Clock;
use crate::error::{CommandError, Outcome};
use crate::keyspace::Key;
use crate::shard::EventClass;
use crate::types::Hash;
use crate::types::hash::{Found, Term};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("hexpire", -6, Handler::Shard(hexpire), "Lets fields end after seconds").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hpexpire", -6, Handler::Shard(hpexpire), "Lets fields end after milliseconds").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hexpireat", -6, Handler::Shard(hexpireat), "Lets fields end at a Unix time in seconds").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hpexpireat", -6, Handler::Shard(hpexpireat), "Lets fields end at a Unix time in milliseconds").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hexpiretime", -5, Handler::Shard(hexpiretime), "Tells when fields end, as Unix time in seconds").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hpexpiretime", -5, Handler::Shard(hpexpiretime), "Tells when fields end, as Unix time in milliseconds").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("httl", -5, Handler::Shard(httl), "Tells the seconds that fields have to live").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hpttl", -5, Handler::Shard(hpttl), "Tells the milliseconds that fields have to live").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::HASH).tips(&["nondeterministic_output"]).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("hpersist", -5, Handler::Shard(hpersist), "Takes fields' deadlines away").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("hgetdel", -5, Handler::Shard(hgetdel), "Shows the values of fields and removes them").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("hgetex", -5, Handler::Shard(hgetex), "Shows the values of fields and sets or takes away their deadlines").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1).notes("RW and UPDATE because it changes the TTL")]),
    row("hsetex", -6, Handler::Shard(hsetex), "Sets fields, perhaps with a deadline, if all or none of them exist").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HASH).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
];

/// Redis keeps two bits of a deadline for itself.
const DEADLINE_MAX_MS: i64 = (1 << 46) - 1;

const NO_FIELDS: CommandError =
    CommandError::text("ERR Mandatory argument FIELDS is missing or not at the right position");
const MISMATCH: CommandError =
    CommandError::text("ERR The `numfields` parameter must match the number of arguments");
/// HEXPIRE and its kind.
const NOT_GREATER: CommandError = CommandError::text("ERR Parameter `numFields` should be greater than 0");
/// The others.
const NOT_A_COUNT: CommandError = CommandError::text("ERR Number of fields must be a positive integer");

// Replies for one field.
const NO_SUCH_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;
const CONDITION_FAILED: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

/// What a command did to fields, for its events.
#[derive(Default)]
struct Done {
    expired: u64,
    set: usize,
    persisted: usize,
    deleted: usize,
}

/// Argument `index` as a deadline in Unix milliseconds.
fn deadline_of(
    ctx: &Ctx<'_>,
    args: Args<'_>,
    index: usize,
    clock: Clock,
    command: &'static str,
) -> Result<i64, CommandError> {
    let number = args.integer(index)?;
    if number < 0 {
        return Err(CommandError::text("ERR invalid expire time, must be >= 0"));
    }
    let deadline_ms = clock.deadline_ms(number, ctx.now_ms, command)?;
    if deadline_ms > DEADLINE_MAX_MS { Err(CommandError::InvalidExpire(command)) } else { Ok(deadline_ms) }
}

/// `FIELDS n field ...` at `index`, to the end; the index of the first field.
fn fields_at(args: Args<'_>, index: usize, not_a_count: CommandError) -> Result<usize, CommandError> {
    if !is_word(args.get(index), "fields") {
        return Err(NO_FIELDS);
    }
    let n_fields = parse_i64(args.get(index + 1)).filter(|n| *n > 0).ok_or(not_a_count)?;
    if n_fields as u64 == (args.len() - index - 2) as u64 { Ok(index + 2) } else { Err(MISMATCH) }
}

/// Which clock an option's number counts by.
fn clock_of(word: &[u8]) -> Option<Clock> {
    let is = |name| is_word(word, name);
    match () {
        () if is("ex") => Some(Clock::Seconds),
        () if is("px") => Some(Clock::Milliseconds),
        () if is("exat") => Some(Clock::UnixSeconds),
        () if is("pxat") => Some(Clock::UnixMilliseconds),
        () => None,
    }
}

/// After a change in place: files the hash anew, reports what was done, and removes an emptied hash.
fn settle(ctx: &mut Ctx<'_>, key: &Key<'_>, before_ms: Option<i64>, after: &State, done: &Done) {
    ctx.shard.refile_fields(ctx.at(), key, before_ms, after.earliest_ms);
    ctx.shard.stats.expired_subkeys += done.expired;
    let events = [
        (done.expired > 0, "hexpired"),
        (done.set > 0, "hexpire"),
        (done.persisted > 0, "hpersist"),
        (done.deleted > 0, "hdel"),
    ];
    for (_, event) in events.into_iter().filter(|(is_done, _)| *is_done) {
        ctx.changed(key, EventClass::Hash, event);
    }
    if after.is_empty {
        ctx.remove_emptied(key);
    }
}

/// What the rest of the shard has to know of a hash.
struct State {
    earliest_ms: Option<i64>,
    is_empty: bool,
}

impl State {
    fn of(hash: &Hash) -> Self {
        Self { earliest_ms: hash.earliest_ms(), is_empty: hash.is_empty() }
    }
}

// ---- HEXPIRE

fn hexpire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Clock::Seconds, "hexpire")
}

fn hpexpire(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Clock::Milliseconds, "hpexpire")
}

fn hexpireat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Clock::UnixSeconds, "hexpireat")
}

fn hpexpireat(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expire(ctx, args, Clock::UnixMilliseconds, "hpexpireat")
}

#[derive(Clone, Copy)]
enum Condition {
    Nx,
    Xx,
    Gt,
    Lt,
}

impl Condition {
    fn of(word: &[u8]) -> Option<Self> {
        let is = |name| is_word(word, name);
        match () {
            () if is("nx") => Some(Self::Nx),
            () if is("xx") => Some(Self::Xx),
            () if is("gt") => Some(Self::Gt),
            () if is("lt") => Some(Self::Lt),
            () => None,
        }
    }

    /// A field without a deadline has one in infinity.
    fn allows(self, old_ms: Option<i64>, new_ms: i64) -> bool {
        match self {
            Self::Nx => old_ms.is_none(),
            Self::Xx => old_ms.is_some(),
            Self::Gt => old_ms.is_some_and(|old_ms| old_ms < new_ms),
            Self::Lt => old_ms.is_none_or(|old_ms| old_ms > new_ms),
        }
    }
}

fn expire(ctx: &mut Ctx<'_>, args: Args<'_>, clock: Clock, command: &'static str) -> Outcome {
    let key = ctx.key(args, 1);
    // A wrong type is told before any other mistake.
    ctx.shard.hash_mut(ctx.at(), &key)?;
    let deadline_ms = deadline_of(ctx, args, 2, clock, command)?;
    let condition = Condition::of(args.get(3));
    let first = fields_at(args, 3 + usize::from(condition.is_some()), NOT_GREATER)?;
    ctx.reply.array(args.len() - first);
    let Some(hash) = ctx.shard.hash_mut(ctx.at(), &key)? else {
        args.from(first).for_each(|_| ctx.reply.integer(NO_SUCH_FIELD));
        return Ok(());
    };
    let before_ms = hash.earliest_ms();
    hash.track_deadlines(ctx.limits.seed);
    let mut done = Done::default();
    for field in args.from(first) {
        let old_ms = match hash.term(field) {
            Term::Absent => {
                ctx.reply.integer(NO_SUCH_FIELD);
                continue;
            }
            Term::Forever => None,
            Term::Until(old_ms) => Some(old_ms),
        };
        if condition.is_some_and(|condition| !condition.allows(old_ms, deadline_ms)) {
            ctx.reply.integer(CONDITION_FAILED);
        } else if deadline_ms <= ctx.now_ms {
            hash.remove(field);
            done.deleted += 1;
            ctx.reply.integer(DELETED);
        } else {
            hash.set_deadline(field, Some(deadline_ms));
            done.set += 1;
            ctx.reply.integer(DONE);
        }
    }
    let after = State::of(hash);
    settle(ctx, &key, before_ms, &after, &done);
    Ok(())
}

fn hpersist(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    ctx.shard.hash_mut(ctx.at(), &key)?;
    let first = fields_at(args, 2, NOT_A_COUNT)?;
    ctx.reply.array(args.len() - first);
    let Some(hash) = ctx.shard.hash_mut(ctx.at(), &key)? else {
        args.from(first).for_each(|_| ctx.reply.integer(NO_SUCH_FIELD));
        return Ok(());
    };
    let before_ms = hash.earliest_ms();
    let mut done = Done::default();
    for field in args.from(first) {
        let term = hash.term(field);
        let reply = match term {
            Term::Forever => NO_DEADLINE,
            Term::Until(_) if term.is_alive(ctx.now_ms) => {
                hash.set_deadline(field, None);
                done.persisted += 1;
                DONE
            }
            Term::Until(_) | Term::Absent => NO_SUCH_FIELD,
        };
        ctx.reply.integer(reply);
    }
    let after = State::of(hash);
    settle(ctx, &key, before_ms, &after, &done);
    Ok(())
}

// ---- HTTL

fn httl(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    tell(ctx, args, |deadline_ms, now_ms| whole_seconds(deadline_ms - now_ms))
}

fn hpttl(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    tell(ctx, args, |deadline_ms, now_ms| deadline_ms - now_ms)
}

fn hexpiretime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    tell(ctx, args, |deadline_ms, _| whole_seconds(deadline_ms))
}

fn hpexpiretime(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    tell(ctx, args, |deadline_ms, _| deadline_ms)
}

/// Rounded up, unlike a key's TTL.
fn whole_seconds(ms: i64) -> i64 {
    (ms + 999) / 1000
}

fn tell(ctx: &mut Ctx<'_>, args: Args<'_>, show: fn(i64, i64) -> i64) -> Outcome {
    let key = ctx.key(args, 1);
    let hash = ctx.shard.read_hash(ctx.at(), &key)?;
    let first = fields_at(args, 2, NOT_A_COUNT)?;
    ctx.reply.array(args.len() - first);
    for field in args.from(first) {
        let term = hash.map_or(Term::Absent, |hash| hash.term(field));
        ctx.reply.integer(match term {
            Term::Forever => NO_DEADLINE,
            Term::Until(deadline_ms) if term.is_alive(ctx.now_ms) => show(deadline_ms, ctx.now_ms),
            Term::Until(_) | Term::Absent => NO_SUCH_FIELD,
        });
    }
    Ok(())
}

// ---- HGETDEL, HGETEX

fn hgetdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    ctx.shard.hash_mut(ctx.at(), &key)?;
    let first = fields_at(args, 2, NOT_A_COUNT)?;
    // A deadline that is over: what is shown goes.
    show_and_end(ctx, &key, args, first, Some(End::At(i64::MIN)))
}

/// What HGETEX does to the fields that it shows.
#[derive(Clone, Copy)]
enum End {
    At(i64),
    Never,
}

fn hgetex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    ctx.shard.hash_mut(ctx.at(), &key)?;
    let (end, at) = if let Some(clock) = clock_of(args.get(2)) {
        (Some(End::At(deadline_of(ctx, args, 3, clock, "hgetex")?)), 4)
    } else if is_word(args.get(2), "persist") {
        (Some(End::Never), 3)
    } else {
        (None, 2)
    };
    if args.len() < at + 2 {
        return Err(CommandError::WrongArity("hgetex"));
    }
    let first = fields_at(args, at, NOT_A_COUNT)?;
    if end.is_some()
        && let Some(hash) = ctx.shard.hash_mut(ctx.at(), &key)?
    {
        hash.track_deadlines(ctx.limits.seed);
    }
    show_and_end(ctx, &key, args, first, end)
}

fn show_and_end(ctx: &mut Ctx<'_>, key: &Key<'_>, args: Args<'_>, first: usize, end: Option<End>) -> Outcome {
    ctx.reply.array(args.len() - first);
    let Some(hash) = ctx.shard.hash_mut(ctx.at(), key)? else {
        args.from(first).for_each(|_| ctx.reply.null());
        return Ok(());
    };
    let before_ms = hash.earliest_ms();
    let mut done = Done::default();
    for field in args.from(first) {
        let found = hash.find(field, ctx.now_ms);
        reply_found(found, &mut ctx.reply);
        match (found, end) {
            (Found::Absent, _) | (Found::Alive(_), None) => {}
            (Found::Dead, _) => {
                hash.remove(field);
                done.expired += 1;
            }
            (Found::Alive(_), Some(End::At(deadline_ms))) if deadline_ms <= ctx.now_ms => {
                hash.remove(field);
                done.deleted += 1;
            }
            (Found::Alive(_), Some(End::At(deadline_ms))) => {
                hash.set_deadline(field, Some(deadline_ms));
                done.set += 1;
            }
            (Found::Alive(_), Some(End::Never)) => {
                if hash.term(field) != Term::Forever {
                    hash.set_deadline(field, None);
                    done.persisted += 1;
                }
            }
        }
    }
    let after = State::of(hash);
    settle(ctx, key, before_ms, &after, &done);
    Ok(())
}

// ---- HSETEX

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// FNX
    NoneExists,
    /// FXX
    AllExist,
}

#[derive(Clone, Copy)]
enum NewTerm {
    Keep,
    Until(i64),
}

struct SetOptions {
    wanted: Option<Wanted>,
    term: Option<NewTerm>,
    /// Index of the first field.
    first: usize,
}

impl SetOptions {
    fn parse(ctx: &Ctx<'_>, args: Args<'_>) -> Result<Self, CommandError> {
        const WRONG_ARITY: CommandError = CommandError::WrongArity("hsetex");
        let (mut wanted, mut term) = (None, None);
        let mut at = 2;
        while at < args.len() {
            let word = args.get(at);
            let is_wanted = match () {
                () if is_word(word, "fnx") => Some(Wanted::NoneExists),
                () if is_word(word, "fxx") => Some(Wanted::AllExist),
                () => None,
            };
            let clock = clock_of(word);
            if is_word(word, "fields") {
                if args.len() < at + 4 {
                    return Err(WRONG_ARITY);
                }
                let n_fields = parse_i64(args.get(at + 1)).filter(|n| (1..=i64::from(i32::MAX)).contains(n));
                let n_fields = n_fields.ok_or(CommandError::text("ERR invalid number of fields"))?;
                let first = at + 2;
                if n_fields * 2 != (args.len() - first) as i64 {
                    return Err(WRONG_ARITY);
                }
                return Ok(Self { wanted, term, first });
            } else if is_wanted.is_some() {
                if wanted.is_some() {
                    return Err(CommandError::text("ERR Only one of FXX or FNX arguments can be specified"));
                }
                wanted = is_wanted;
            } else if clock.is_some() || is_word(word, "keepttl") {
                if term.is_some() {
                    return Err(CommandError::text(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                    ));
                }
                term = Some(NewTerm::Keep);
                if let Some(clock) = clock {
                    at += 1;
                    if at == args.len() {
                        return Err(WRONG_ARITY);
                    }
                    term = Some(NewTerm::Until(deadline_of(ctx, args, at, clock, "hsetex")?));
                }
            } else {
                let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
                return Err(CommandError::Bytes([b"ERR unknown argument: ", word].concat()));
            }
            at += 1;
        }
        Err(WRONG_ARITY)
    }
}

fn hsetex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let SetOptions { wanted, term, first } = SetOptions::parse(ctx, args)?;
    let key = ctx.key(args, 1);
    if !meets(ctx, &key, args, first, wanted)? {
        ctx.reply.integer(CONDITION_FAILED);
        return Ok(());
    }
    let hash = ctx.shard.hash_or_new(ctx.at(), &key, Hash::new)?;
    let before_ms = hash.earliest_ms();
    hash.announce(args.from(first), ctx.limits);
    if let Some(NewTerm::Until(_)) = term {
        hash.track_deadlines(ctx.limits.seed);
    }
    let mut done = Done::default();
    let mut pairs = args.from(first);
    while let (Some(field), Some(value)) = (pairs.next(), pairs.next()) {
        match term {
            None => _ = hash.set(field, value, ctx.limits),
            Some(NewTerm::Keep) => _ = hash.set_value(field, value, ctx.limits),
            Some(NewTerm::Until(deadline_ms)) if deadline_ms <= ctx.now_ms => {
                hash.remove(field);
                done.deleted += 1;
            }
            Some(NewTerm::Until(deadline_ms)) => {
                hash.set_until(field, value, deadline_ms, ctx.limits);
                done.set += 1;
            }
        }
    }
    let after = State::of(hash);
    ctx.changed(&key, EventClass::Hash, "hset");
    settle(ctx, &key, before_ms, &after, &done);
    ctx.reply.integer(DONE);
    Ok(())
}

/// Whether the fields (every second argument from `first` on) are all there, or none, as wanted. Dead ones that it meets
/// are removed.
fn meets(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    args: Args<'_>,
    first: usize,
    wanted: Option<Wanted>,
) -> Result<bool, CommandError> {
    let Some(wanted) = wanted else { return Ok(true) };
    let Some(hash) = ctx.shard.hash_mut(ctx.at(), key)? else { return Ok(wanted == Wanted::NoneExists) };
    let before_ms = hash.earliest_ms();
    let mut done = Done::default();
    let mut is_met = true;
    for field in args.from(first).step_by(2) {
        let exists = match hash.find(field, ctx.now_ms) {
            Found::Alive(_) => true,
            Found::Absent => false,
            Found::Dead => {
                hash.remove(field);
                done.expired += 1;
                false
            }
        };
        is_met = exists == (wanted == Wanted::AllExist);
        if !is_met {
            break;
        }
    }
    let mut after = State::of(hash);
    // A hash that is about to be filled is not removed first.
    after.is_empty &= !is_met;
    settle(ctx, key, before_ms, &after, &done);
    Ok(is_met)
}
