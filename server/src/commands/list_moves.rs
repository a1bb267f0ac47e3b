//! List commands that find elements by value or move them between lists (<https://redis.io/docs/latest/commands/?group=list>).
//!
//! LMOVEM is Redis 8.10's. What its page leaves open is decided as in its kin: the count must be positive as LMPOP's, and both
//! types are looked at before anything moves, as LMOVE does.
//! Cost: one pass over the list for what goes by value; a move copies each element once.

use std::ops::Range;

use skerry_resp::reply::Reply;

use super::list::{drop_end, pop_event, push_event, take};
use crate::access::reply_element;
use crate::args::{Args, is_word, natural, positive};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, counted, range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;
use crate::types::List;
use crate::types::list::{End, Side};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("linsert", 5, Handler::Shard(linsert), "Puts an element before or behind another").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("lrem", 4, Handler::Shard(lrem), "Removes elements of a value, from either end").flags(Flags::WRITE).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("lpos", -3, Handler::Shard(lpos), "Finds elements of a value").flags(Flags::READONLY).acl(Acl::LIST).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("lmpop", -4, Handler::Shard(lmpop), "Takes elements off the first list that has any").flags(Flags::MOVABLEKEYS.with(Flags::WRITE)).acl(Acl::LIST).keys(&[counted(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1)]),
    row("lmove", 5, Handler::Shard(lmove), "Moves an element from an end of one list to an end of another").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]),
    row("rpoplpush", 3, Handler::Shard(rpoplpush), "Moves the last element of one list to the front of another").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]),
    row("lmovem", -5, Handler::Shard(lmovem), "Moves several elements between two lists (Redis 8.10)").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::LIST).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), 1, 0, 1), range(KeyFlags::RW.with(KeyFlags::INSERT), 2, 0, 1)]),
];

fn linsert(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let side = match args.get(2) {
        word if is_word(word, "before") => Side::Before,
        word if is_word(word, "after") => Side::After,
        _ => return Err(CommandError::Syntax),
    };
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let len = match list.insert(side, args.get(3), args.get(4), ctx.limits) {
        true => list.len() as i64,
        false => -1,
    };
    if len > 0 {
        ctx.changed(&key, EventClass::List, "linsert");
    }
    ctx.reply.integer(len);
    Ok(())
}

fn lrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let count = args.integer(2)?;
    if count == i64::MIN {
        return Err(CommandError::NotBetween(-i64::MAX, i64::MAX));
    }
    let key = ctx.key(args, 1);
    let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let from = if count < 0 { End::Back } else { End::Front };
    let max = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let n_removed = list.remove(from, max, args.get(3), ctx.limits);
    let is_empty = list.is_empty();
    if n_removed > 0 {
        ctx.shrunk(&key, EventClass::List, "lrem", is_empty);
    }
    ctx.reply.integer(n_removed as i64);
    Ok(())
}

/// The words of LPOS.
struct Search {
    rank: i64,
    count: Option<usize>,
    max_len: usize,
}

impl Search {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let mut search = Self { rank: 1, count: None, max_len: usize::MAX };
        let mut cursor = args.cursor(3);
        while !cursor.is_done() {
            let word = cursor.value()?;
            if cursor.is_done() {
                return Err(CommandError::Syntax);
            } else if is_word(word, "rank") {
                search.rank = match cursor.next_integer()? {
                    0 => return Err(CommandError::text(RANK_ZERO)),
                    i64::MIN => return Err(CommandError::NotBetween(-i64::MAX, i64::MAX)),
                    rank => rank,
                };
            } else if is_word(word, "count") {
                search.count = Some(natural(cursor.value()?, "ERR COUNT can't be negative")?);
            } else if is_word(word, "maxlen") {
                let max_len = natural(cursor.value()?, "ERR MAXLEN can't be negative")?;
                search.max_len = if max_len == 0 { usize::MAX } else { max_len };
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(search)
    }

    /// The indices that it finds, no more than `n`.
    fn found(&self, list: &List, element: &[u8], n: usize) -> Vec<usize> {
        let n_skipped = (self.rank.unsigned_abs() - 1) as usize;
        match self.rank > 0 {
            true => list.positions(element, self.max_len).skip(n_skipped).take(n).collect(),
            false => list.positions_rev(element, self.max_len).skip(n_skipped).take(n).collect(),
        }
    }
}

const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
    or use negative to start from the end of the list";

fn lpos(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let search = Search::parse(args)?;
    let key = ctx.key(args, 1);
    let list = ctx.shard.read_list(ctx.at(), &key)?;
    let n = match search.count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let found = list.map_or_else(Vec::new, |list| search.found(list, args.get(2), n));
    match (search.count, found.first()) {
        (Some(_), _) => {
            ctx.reply.array(found.len());
            found.into_iter().for_each(|index| ctx.reply.integer(index as i64));
        }
        (None, Some(index)) => ctx.reply.integer(*index as i64),
        (None, None) => ctx.reply.null(),
    }
    Ok(())
}

fn lmpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let keys = args.counted(1)?;
    let ends = end_and_count(args, keys.end)?;
    if !pop_first(ctx, args, keys, ends)? {
        ctx.reply.null_array();
    }
    Ok(())
}

/// Takes elements off the first list that has any, and answers with its key and them; false if there is none.
pub(super) fn pop_first(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    keys: Range<usize>,
    (end, count): (End, usize),
) -> Result<bool, CommandError> {
    for index in keys {
        let key = ctx.key(args, index);
        let Some(list) = ctx.shard.list_mut(ctx.at(), &key)? else { continue };
        ctx.reply.array(2);
        ctx.reply.bulk(key.bytes);
        let is_empty = take(list, count, end, ctx.limits, &mut ctx.reply);
        ctx.shrunk(&key, EventClass::List, pop_event(end), is_empty);
        return Ok(true);
    }
    Ok(false)
}

/// LEFT|RIGHT [COUNT count], from argument `at` on.
pub(super) fn end_and_count(args: Args<'_>, at: usize) -> Result<(End, usize), CommandError> {
    let end = end(args.get(at))?;
    let mut count = None;
    let mut cursor = args.cursor(at + 1);
    while !cursor.is_done() {
        if count.is_some() || !cursor.word("count") {
            return Err(CommandError::Syntax);
        }
        count = Some(positive(cursor.value()?, COUNT_NOT_POSITIVE)?);
    }
    Ok((end, count.unwrap_or(1)))
}

const COUNT_NOT_POSITIVE: &str = "ERR count should be greater than 0";

pub(super) fn end(word: &[u8]) -> Result<End, CommandError> {
    match word {
        word if is_word(word, "left") => Ok(End::Front),
        word if is_word(word, "right") => Ok(End::Back),
        _ => Err(CommandError::Syntax),
    }
}

fn lmove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (end(args.get(3))?, end(args.get(4))?);
    move_one(ctx, args, from, to)
}

fn rpoplpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    move_one(ctx, args, End::Back, End::Front)
}

/// From argument 1 to argument 2, which may be the same key.
pub(super) fn move_one(ctx: &mut Ctx<'_>, args: Args<'_>, from: End, to: End) -> Outcome {
    let (source, destination) = (ctx.key(args, 1), ctx.key(args, 2));
    if ctx.shard.list_mut(ctx.at(), &source)?.is_none() {
        ctx.reply.null();
        return Ok(());
    }
    ctx.shard.list_mut(ctx.at(), &destination)?;
    let limits = ctx.limits;
    let is_same = source.bytes == destination.bytes;
    let Some(list) = ctx.shard.list_mut(ctx.at(), &source)? else { return Err(CommandError::NoSuchKey) };
    let Some(element) = list.peek(from) else { return Err(CommandError::NoSuchKey) };
    reply_element(element, &mut ctx.reply);
    if is_same {
        list.rotate(from, to, limits);
        ctx.changed(&destination, EventClass::List, push_event(to));
        ctx.changed(&source, EventClass::List, pop_event(from));
        return Ok(());
    }
    let element = element.to_vec();
    list.pop(from, limits);
    let is_empty = list.is_empty();
    let list = ctx.shard.list_or_new(ctx.at(), &destination, List::new)?;
    list.push(to, std::iter::once(&element[..]), limits);
    ctx.changed(&destination, EventClass::List, push_event(to));
    ctx.shrunk(&source, EventClass::List, pop_event(from), is_empty);
    Ok(())
}

/// How many elements LMOVEM moves.
#[derive(Clone, Copy)]
pub(super) enum HowMany {
    UpTo(usize),
    Exactly(usize),
}

/// In which order they arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OneByOne,
    Bulk,
}

/// [COUNT count|EXACTLY count OBO|BULK], from argument `at` on.
pub(super) fn how_many(args: Args<'_>, at: usize) -> Result<(HowMany, Order), CommandError> {
    match args.len() - at {
        0 => return Ok((HowMany::UpTo(1), Order::OneByOne)),
        3 => {}
        _ => return Err(CommandError::Syntax),
    }
    let how_many: fn(usize) -> HowMany = match args.get(at) {
        word if is_word(word, "count") => HowMany::UpTo,
        word if is_word(word, "exactly") => HowMany::Exactly,
        _ => return Err(CommandError::Syntax),
    };
    let count = positive(args.get(at + 1), COUNT_NOT_POSITIVE)?;
    let order = match args.get(at + 2) {
        word if is_word(word, "obo") => Order::OneByOne,
        word if is_word(word, "bulk") => Order::Bulk,
        _ => return Err(CommandError::Syntax),
    };
    Ok((how_many(count), order))
}

fn lmovem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (how_many, order) = ends_and(args, |args| how_many(args, 5))?;
    if !move_many(ctx, args, how_many, order)? {
        nothing_moved(how_many, &mut ctx.reply);
    }
    Ok(())
}

/// What `read` makes of the arguments, if the ends are well written: they are looked at first.
pub(super) fn ends_and<T>(
    args: Args<'_>,
    read: impl FnOnce(Args<'_>) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    end(args.get(3))?;
    end(args.get(4))?;
    read(args)
}

/// The reply of a request that finds too few.
pub(super) fn nothing_moved(how_many: HowMany, reply: &mut Reply<'_>) {
    match how_many {
        HowMany::UpTo(_) => reply.array(0),
        HowMany::Exactly(_) => reply.null(),
    }
}

/// From argument 1, argument 3's end, to argument 2, argument 4's end; false if there are too few, and nothing is written.
pub(super) fn move_many(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    how_many: HowMany,
    order: Order,
) -> Result<bool, CommandError> {
    let (from, to) = (end(args.get(3))?, end(args.get(4))?);
    let (source, destination) = (ctx.key(args, 1), ctx.key(args, 2));
    let len = ctx.shard.list_mut(ctx.at(), &source)?.map_or(0, |list| list.len());
    if len > 0 {
        ctx.shard.list_mut(ctx.at(), &destination)?;
    }
    let n = match how_many {
        HowMany::UpTo(count) => count.min(len),
        HowMany::Exactly(count) if count > len => return Ok(false),
        HowMany::Exactly(count) => count,
    };
    if n == 0 {
        return Ok(false);
    }
    let limits = ctx.limits;
    let Some(list) = ctx.shard.list_mut(ctx.at(), &source)? else { return Err(CommandError::NoSuchKey) };
    let taken = match from {
        End::Front => 0..n,
        End::Back => len - n..len,
    };
    // As they will stand in the destination, first to last.
    let mut moved: Vec<Vec<u8>> = list.range(taken).map(|element| element.to_vec()).collect();
    if order == Order::OneByOne && from == to {
        moved.reverse();
    }
    let is_emptied = n == len && source.bytes != destination.bytes;
    // What goes as a whole is freed with its key; a list that moves to itself is never left empty.
    if !is_emptied {
        drop_end(list, n, from, limits);
    }
    let list = ctx.shard.list_or_new(ctx.at(), &destination, List::new)?;
    match to {
        End::Front => list.push(to, moved.iter().rev().map(|element| &element[..]), limits),
        End::Back => list.push(to, moved.iter().map(|element| &element[..]), limits),
    }
    ctx.changed(&destination, EventClass::List, push_event(to));
    ctx.shrunk(&source, EventClass::List, pop_event(from), is_emptied);
    ctx.reply.array(n);
    moved.iter().for_each(|element| ctx.reply.bulk(element));
    Ok(true)
}
