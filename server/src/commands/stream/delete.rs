//! XDEL, XDELEX, XACK, XACKDEL: what removes entries, or a group's references to them.

use super::add::references;
use super::parse_id;
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;
use crate::types::Stream;
use crate::types::stream::{References, StreamId};

/// What XDELEX and XACKDEL answer for an entry.
const NOT_FOUND: i64 = -1;
const DELETED: i64 = 1;
/// It stays, as a group still refers to it.
const REFERENCED: i64 = 2;

fn parse_ids<'a>(args: impl Iterator<Item = &'a [u8]>) -> Result<Vec<StreamId>, CommandError> {
    args.map(|text| parse_id(text, 0)).collect()
}

/// XDEL key id ...
pub(super) fn xdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    let Some(stream) = ctx.shard.stream_mut(ctx.at(), &key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let ids = parse_ids(args.from(2))?;
    let n_deleted = ids.iter().filter(|id| stream.delete_for_good(**id)).count();
    if n_deleted > 0 {
        ctx.changed(&key, EventClass::Stream, "xdel");
    }
    ctx.reply.integer(n_deleted as i64);
    Ok(())
}

/// XACK key group id ...
pub(super) fn xack(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let found = ctx.shard.read_stream(at, &key)?.is_some();
    let stream = if found { ctx.shard.stream_mut(at, &key)? } else { None };
    let Some(group) = stream.and_then(|stream| stream.group_mut(args.get(2))) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let mut n_acknowledged = 0;
    if args.len() == 4 {
        n_acknowledged += i64::from(group.remove_pending(parse_id(args.get(3), 0)?).is_some());
    } else {
        for id in parse_ids(args.from(3))? {
            n_acknowledged += i64::from(group.remove_pending(id).is_some());
        }
    }
    ctx.shard.stats.dirty += n_acknowledged as u64;
    ctx.reply.integer(n_acknowledged);
    Ok(())
}

/// `[KEEPREF|DELREF|ACKED] IDS n id ...` in any order.
struct Ids {
    references: References,
    /// The first ID, and how many.
    first: usize,
    n: usize,
}

impl Ids {
    fn parse(args: Args<'_>, at: usize) -> Result<Self, CommandError> {
        let mut cursor = args.cursor(at);
        let (mut refs, mut ids) = (None, None);
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "ids") && !cursor.is_done() {
                let n = skerry_resp::number::parse_i64(cursor.value()?).filter(|n| *n > 0);
                let n = n.ok_or(CommandError::text("ERR Number of IDs must be a positive integer"))?;
                if n > cursor.left() as i64 {
                    return Err(CommandError::text(
                        "ERR The `numids` parameter must match the number of arguments",
                    ));
                }
                ids = Some((cursor.position(), n as usize));
                for _ in 0..n {
                    cursor.value()?;
                }
            } else if refs.is_none()
                && let Some(references) = references(word)
            {
                refs = Some(references);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let (first, n) = ids.ok_or(CommandError::Syntax)?;
        Ok(Self { references: refs.unwrap_or(References::Keep), first, n })
    }

    fn read(&self, args: Args<'_>) -> Result<Vec<StreamId>, CommandError> {
        parse_ids(args.from(self.first).take(self.n))
    }
}

/// XDELEX key [KEEPREF|DELREF|ACKED] IDS n id ...
pub(super) fn xdelex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    // The type is checked before the syntax.
    let stream = ctx.shard.stream_mut(ctx.at(), &key)?;
    let ids = Ids::parse(args, 2)?;
    let Some(stream) = stream else {
        return reply_none(ctx, ids.n);
    };
    let parsed = ids.read(args)?;
    ctx.reply.array(parsed.len());
    let mut n_deleted = 0;
    for id in parsed {
        let answer = delete(stream, id, ids.references);
        n_deleted += i64::from(answer == DELETED);
        ctx.reply.integer(answer);
    }
    if n_deleted > 0 {
        ctx.changed(&key, EventClass::Stream, "xdel");
    }
    Ok(())
}

fn delete(stream: &mut Stream, id: StreamId, references: References) -> i64 {
    match references {
        References::Keep => {}
        References::Delete => stream.remove_references(id),
        References::Respect if stream.is_referenced(id) => return REFERENCED,
        References::Respect => {}
    }
    if stream.delete_for_good(id) { DELETED } else { NOT_FOUND }
}

fn reply_none(ctx: &mut Ctx<'_>, n: usize) -> Outcome {
    ctx.reply.array(n);
    (0..n).for_each(|_| ctx.reply.integer(NOT_FOUND));
    Ok(())
}

/// XACKDEL key group [KEEPREF|DELREF|ACKED] IDS n id ...
pub(super) fn xackdel(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let name = args.get(2);
    let is_there = ctx.shard.read_stream(at, &key)?.is_some();
    let stream = if is_there { ctx.shard.stream_mut(at, &key)? } else { None };
    let stream = stream.filter(|stream| stream.group(name).is_some());
    let ids = Ids::parse(args, 3)?;
    let Some(stream) = stream else {
        return reply_none(ctx, ids.n);
    };
    let parsed = ids.read(args)?;
    ctx.reply.array(parsed.len());
    let mut n_deleted = 0;
    for id in parsed {
        let is_acknowledged = stream.group_mut(name).is_some_and(|group| group.remove_pending(id).is_some());
        let answer = if is_acknowledged {
            // An entry that was gone before counts as deleted now.
            let is_there = stream.find(id).is_some();
            match delete(stream, id, ids.references) {
                REFERENCED => REFERENCED,
                _ => {
                    n_deleted += i64::from(is_there);
                    DELETED
                }
            }
        } else {
            NOT_FOUND
        };
        ctx.reply.integer(answer);
    }
    if n_deleted > 0 {
        ctx.changed(&key, EventClass::Stream, "xdel");
    }
    Ok(())
}
