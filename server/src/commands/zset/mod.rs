//! Sorted set commands (<https://redis.io/docs/latest/commands/?group=sorted-set>).
//!
//! `range` holds what works on a range of ranks, scores or names, `combine` the algebra. A sorted set that loses its last
//! member goes with its key, in the same command: the event of the command comes first, then `del`.
//!
//! Departures from Redis:
//! 1. ZRANDMEMBER with a negative count draws at most `DRAWS_MAX` members and `DRAWS_MAX_BYTES` of reply; Redis goes on
//!    until its memory is gone.

pub mod blocking;
mod combine;
mod range;

pub(in crate::commands) use range::store;

use std::ops::Range;

use skerry_resp::reply::{Proto, Reply};

use super::draw::draw_again_and_again;
use super::scan::{Beside, Walked, scan_collection};
use crate::access::reply_element;
use crate::args::{Args, is_word, positive};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, counted, range as key_range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::{EventClass, Shard};
use crate::types::Zset;
use crate::types::zset::{Direction, Edited, Scored};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("zadd", -4, Handler::Shard(zadd), "Gives members scores and tells how many are new").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("zincrby", 4, Handler::Shard(zincrby), "Adds to a member's score").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("zrem", -3, Handler::Shard(zrem), "Removes members and tells how many there were").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("zremrangebyrank", 4, Handler::Shard(range::zremrangebyrank), "Removes the members of a range of ranks").flags(Flags::WRITE).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("zremrangebyscore", 4, Handler::Shard(range::zremrangebyscore), "Removes the members of a range of scores").flags(Flags::WRITE).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("zremrangebylex", 4, Handler::Shard(range::zremrangebylex), "Removes the members of a range of names").flags(Flags::WRITE).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("zcard", 2, Handler::Shard(zcard), "Tells the number of members").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO, 1, 0, 1)]),
    row("zcount", 4, Handler::Shard(range::zcount), "Counts the members of a range of scores").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zlexcount", 4, Handler::Shard(range::zlexcount), "Counts the members of a range of names").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zscore", 3, Handler::Shard(zscore), "Shows a member's score").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zmscore", -3, Handler::Shard(zmscore), "Shows the scores of several members").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrank", -3, Handler::Shard(zrank), "Tells how many members are below one").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrevrank", -3, Handler::Shard(zrevrank), "Tells how many members are above one").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zpopmin", -2, Handler::Shard(zpopmin), "Takes the members of the lowest scores out").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("zpopmax", -2, Handler::Shard(zpopmax), "Takes the members of the highest scores out").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1)]),
    row("zmpop", -4, Handler::Shard(zmpop), "Takes members out of the first key that has any").flags(Flags::MOVABLEKEYS.with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[counted(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1)]),
    row("zrandmember", -2, Handler::Shard(zrandmember), "Shows random members").flags(Flags::READONLY).acl(Acl::SORTEDSET).tips(&["nondeterministic_output"]).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zscan", -3, Handler::Shard(zscan), "Walks the members with a cursor").flags(Flags::READONLY).acl(Acl::SORTEDSET).tips(&["nondeterministic_output"]).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrange", -4, Handler::Shard(range::zrange), "Shows the members of a range of ranks, scores or names").flags(Flags::READONLY).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrevrange", -4, Handler::Shard(range::zrevrange), "Shows the members of a range of ranks, highest score first").flags(Flags::READONLY).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrangebyscore", -4, Handler::Shard(range::zrangebyscore), "Shows the members of a range of scores").flags(Flags::READONLY).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrevrangebyscore", -4, Handler::Shard(range::zrevrangebyscore), "Shows the members of a range of scores, highest first").flags(Flags::READONLY).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrangebylex", -4, Handler::Shard(range::zrangebylex), "Shows the members of a range of names").flags(Flags::READONLY).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrevrangebylex", -4, Handler::Shard(range::zrevrangebylex), "Shows the members of a range of names, last first").flags(Flags::READONLY).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("zrangestore", -5, Handler::Shard(range::zrangestore), "Stores the members of a range").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), key_range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, 0, 1)]),
    row("zunion", -3, Handler::Shard(combine::zunion), "Shows the members that any of the sets has").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
    row("zinter", -3, Handler::Shard(combine::zinter), "Shows the members that all sets have").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
    row("zdiff", -3, Handler::Shard(combine::zdiff), "Shows the members that only the first set has").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
    row("zintercard", -3, Handler::Shard(combine::zintercard), "Counts the members that all sets have").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::SORTEDSET).keys(&[counted(KeyFlags::RO.with(KeyFlags::ACCESS), 1)]),
    row("zunionstore", -4, Handler::Shard(combine::zunionstore), "Stores the members that any of the sets has").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), counted(KeyFlags::RO.with(KeyFlags::ACCESS), 2)]),
    row("zinterstore", -4, Handler::Shard(combine::zinterstore), "Stores the members that all sets have").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), counted(KeyFlags::RO.with(KeyFlags::ACCESS), 2)]),
    row("zdiffstore", -4, Handler::Shard(combine::zdiffstore), "Stores the members that only the first set has").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::SORTEDSET).keys(&[key_range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), counted(KeyFlags::RO.with(KeyFlags::ACCESS), 2)]),
];

/// The words of ZADD before the scores.
#[derive(Default)]
struct AddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl AddOptions {
    /// Reads the words from argument 2 on; returns where the scores begin.
    fn read(&mut self, args: Args<'_>) -> usize {
        for (index, word) in args.from(2).enumerate() {
            let option = match () {
                () if is_word(word, "nx") => &mut self.nx,
                () if is_word(word, "xx") => &mut self.xx,
                () if is_word(word, "ch") => &mut self.ch,
                () if is_word(word, "incr") => &mut self.incr,
                () if is_word(word, "gt") => &mut self.gt,
                () if is_word(word, "lt") => &mut self.lt,
                () => return index + 2,
            };
            *option = true;
        }
        args.len()
    }

    fn check(&self, n_members: usize) -> Result<(), CommandError> {
        let Self { nx, xx, gt, lt, ch: _, incr } = *self;
        let fault = match () {
            () if nx && xx => "ERR XX and NX options at the same time are not compatible",
            () if nx && (gt || lt) || gt && lt => {
                "ERR GT, LT, and/or NX options at the same time are not compatible"
            }
            () if incr && n_members > 1 => "ERR INCR option supports a single increment-element pair",
            () => return Ok(()),
        };
        Err(CommandError::text(fault))
    }

    /// The score a member gets, or none if the options leave it as it is.
    fn score(&self, given: f64, old: Option<f64>) -> Option<f64> {
        let Some(old) = old else { return (!self.xx).then_some(given) };
        let new = if self.incr { old + given } else { given };
        let stays = self.nx || self.lt && new >= old || self.gt && new <= old;
        (!stays).then_some(new)
    }
}

fn zadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    add(ctx, args, AddOptions::default())
}

fn zincrby(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    add(ctx, args, AddOptions { incr: true, ..AddOptions::default() })
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>, mut options: AddOptions) -> Outcome {
    let first = options.read(args);
    let n_members = (args.len() - first) / 2;
    if n_members == 0 || !(args.len() - first).is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    options.check(n_members)?;
    for index in (first..args.len()).step_by(2) {
        args.float(index)?;
    }
    let key = ctx.key(args, 1);
    let limits = ctx.limits;
    let zset = if options.xx {
        let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)? else {
            return reply_added(ctx, &options, 0, None);
        };
        zset
    } else {
        let n_first = args.get(first + 1).len();
        ctx.shard.zset_or_new(ctx.at(), &key, || Zset::for_members(n_members, n_first, limits))?
    };
    zset.announce(n_members, limits);
    let (mut n_added, mut n_rescored, mut last) = (0, 0, None);
    let mut pairs = args.from(first);
    while let (Some(score), Some(member)) = (pairs.next(), pairs.next()) {
        let given = skerry_resp::parse_f64(score).unwrap_or_default();
        let (mut is_nan, mut is_other) = (false, false);
        let edited = zset.edit(member, limits, |old| {
            let new = options.score(given, old)?;
            is_nan = new.is_nan();
            is_other = old != Some(new);
            last = Some(new);
            (!is_nan).then_some(new)
        });
        if is_nan {
            // Only INCR adds, and it has one pair, of a member that exists: nothing has changed.
            return Err(CommandError::text("ERR resulting score is not a number (NaN)"));
        }
        match edited {
            Edited::Added => n_added += 1,
            Edited::Scored => n_rescored += i64::from(is_other),
            Edited::Left => last = None,
        }
    }
    if n_added + n_rescored > 0 {
        ctx.changed(&key, EventClass::SortedSet, if options.incr { "zincr" } else { "zadd" });
    }
    let n = if options.ch { n_added + n_rescored } else { n_added };
    reply_added(ctx, &options, n, last)
}

fn reply_added(ctx: &mut Ctx<'_>, options: &AddOptions, n: i64, last: Option<f64>) -> Outcome {
    match last {
        _ if !options.incr => ctx.reply.integer(n),
        Some(score) => ctx.reply.double(score),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let n_removed = args.from(2).filter(|member| zset.remove(member)).count();
    let is_empty = zset.is_empty();
    if n_removed > 0 {
        ctx.shrunk(&key, EventClass::SortedSet, "zrem", is_empty);
    }
    ctx.reply.integer(n_removed as i64);
    Ok(())
}

fn zcard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let len = ctx.shard.read_zset(ctx.at(), &key)?.map_or(0, Zset::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn zscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let score = ctx.shard.read_zset(ctx.at(), &key)?.and_then(|zset| zset.score(args.get(2)));
    reply_score(score, &mut ctx.reply);
    Ok(())
}

fn zmscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let zset = ctx.shard.read_zset(ctx.at(), &key)?;
    ctx.reply.array(args.len() - 2);
    for member in args.from(2) {
        reply_score(zset.and_then(|zset| zset.score(member)), &mut ctx.reply);
    }
    Ok(())
}

fn reply_score(score: Option<f64>, reply: &mut Reply<'_>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    rank(ctx, args, "zrank", Direction::Ascending)
}

fn zrevrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    rank(ctx, args, "zrevrank", Direction::Descending)
}

fn rank(ctx: &mut Ctx<'_>, args: Args<'_>, name: &'static str, direction: Direction) -> Outcome {
    let with_score = match args.len() {
        3 => false,
        4 if is_word(args.get(3), "withscore") => true,
        4 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity(name)),
    };
    let key = ctx.key(args, 1);
    let found = ctx.shard.read_zset(ctx.at(), &key)?.and_then(|zset| {
        let (rank, score) = zset.rank(args.get(2))?;
        Some(match direction {
            Direction::Ascending => (rank, score),
            Direction::Descending => (zset.len() - 1 - rank, score),
        })
    });
    match found {
        Some((rank, score)) if with_score => {
            ctx.reply.array(2);
            ctx.reply.integer(rank as i64);
            ctx.reply.double(score);
        }
        Some((rank, _)) => ctx.reply.integer(rank as i64),
        None if with_score => ctx.reply.null_array(),
        None => ctx.reply.null(),
    }
    Ok(())
}

// ---- pops

fn zpopmin(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, Direction::Ascending)
}

fn zpopmax(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    pop(ctx, args, Direction::Descending)
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, from: Direction) -> Outcome {
    let (count, with_count) = match args.len() {
        2 => (1, false),
        3 => (args.count(2)?, true),
        _ => return Err(CommandError::Syntax),
    };
    let key = ctx.key(args, 1);
    let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)?.filter(|_| count > 0) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let form = match ctx.reply.proto() {
        Proto::Resp3 if with_count => Form::Nested,
        Proto::Resp2 | Proto::Resp3 => Form::Flat,
    };
    let is_empty = take(zset, count, from, form, &mut ctx.reply);
    ctx.shrunk(&key, EventClass::SortedSet, pop_event(from), is_empty);
    Ok(())
}

fn pop_event(from: Direction) -> &'static str {
    match from {
        Direction::Ascending => "zpopmin",
        Direction::Descending => "zpopmax",
    }
}

/// Takes members off one end and shows them; true if none is left.
fn take(zset: &mut Zset, count: usize, from: Direction, form: Form, reply: &mut Reply<'_>) -> bool {
    let (n, len) = (count.min(zset.len()), zset.len());
    let ranks = match from {
        Direction::Ascending => 0..n,
        Direction::Descending => len - n..len,
    };
    form.header(n, reply);
    zset.range(ranks.clone(), from).for_each(|scored| form.reply(scored, reply));
    // What is wholly taken is freed in slices, with its key.
    if n < len {
        zset.remove_ranks(ranks);
    }
    n == len
}

/// A member with its score in an array: two elements, or a pair of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Members,
    Flat,
    Nested,
    /// Members and scores without an array around them.
    Bare,
}

impl Form {
    /// How a reply shows scores if the client asks for them.
    fn with_scores(wanted: bool, proto: Proto) -> Self {
        match (wanted, proto) {
            (false, _) => Form::Members,
            (true, Proto::Resp2) => Form::Flat,
            (true, Proto::Resp3) => Form::Nested,
        }
    }

    fn header(self, n: usize, reply: &mut Reply<'_>) {
        match self {
            Form::Bare => {}
            Form::Flat => reply.array(2 * n),
            Form::Members | Form::Nested => reply.array(n),
        }
    }

    fn reply(self, (member, score): Scored<'_>, reply: &mut Reply<'_>) {
        if self == Form::Nested {
            reply.array(2);
        }
        reply_element(member, reply);
        if self != Form::Members {
            reply.double(score);
        }
    }
}

fn zmpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = args.counted(1)?;
    let ends = end_and_count(args, keys.end)?;
    if !pop_first(ctx, args, keys, ends)? {
        ctx.reply.null_array();
    }
    Ok(())
}

/// Takes members out of the first sorted set that has any, and answers with its key and them; false if there is none.
fn pop_first(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    keys: Range<usize>,
    (from, count): (Direction, usize),
) -> Result<bool, CommandError> {
    for index in keys {
        let key = ctx.key(args, index);
        let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)? else { continue };
        ctx.reply.array(2);
        ctx.reply.bulk(key.bytes);
        let is_empty = take(zset, count, from, Form::Nested, &mut ctx.reply);
        ctx.shrunk(&key, EventClass::SortedSet, pop_event(from), is_empty);
        return Ok(true);
    }
    Ok(false)
}

/// MIN|MAX [COUNT count], from argument `at` on.
fn end_and_count(args: Args<'_>, at: usize) -> Result<(Direction, usize), CommandError> {
    let from = match args.get(at) {
        word if is_word(word, "min") => Direction::Ascending,
        word if is_word(word, "max") => Direction::Descending,
        _ => return Err(CommandError::Syntax),
    };
    let mut count = None;
    let mut cursor = args.cursor(at + 1);
    while !cursor.is_done() {
        if count.is_some() || !cursor.word("count") {
            return Err(CommandError::Syntax);
        }
        count = Some(positive(cursor.value()?, "ERR count should be greater than 0")?);
    }
    Ok((from, count.unwrap_or(1)))
}

// ---- random members and walks

fn zrandmember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        return draw_several(ctx, args);
    }
    let key = ctx.key(args, 1);
    let mut random = ctx.shard.random_source();
    match ctx.shard.read_zset(ctx.at(), &key)?.and_then(|zset| zset.random(&mut random)) {
        Some((member, _)) => reply_element(member, &mut ctx.reply),
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
    let with_scores = match args.len() {
        3 => false,
        4 if is_word(args.get(3), "withscores") => true,
        _ => return Err(CommandError::Syntax),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::OutOfRange);
    }
    let key = ctx.key(args, 1);
    let mut random = ctx.shard.random_source();
    let Some(zset) = ctx.shard.read_zset(ctx.at(), &key)?.filter(|_| count != 0) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let form = Form::with_scores(with_scores, ctx.reply.proto());
    let n = count.unsigned_abs() as usize;
    if count > 0 {
        form.header(n.min(zset.len()), &mut ctx.reply);
        zset.sample(n, &mut random, |scored| form.reply(scored, &mut ctx.reply));
        return Ok(());
    }
    draw_again_and_again(
        &mut ctx.reply,
        n,
        |reply| form.header(n, reply),
        |reply| {
            if let Some(scored) = zset.random(&mut random) {
                form.reply(scored, reply);
            }
        },
    )
}

fn zscan(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    scan_collection(ctx, args, Walked::Members, Shard::read_zset, |zset: &Zset, at, visit| {
        let beside = if zset.is_packed() { Beside::Score } else { Beside::LongScore };
        zset.scan(at, |(member, score)| visit(member, beside(score)))
    })
}
