//! XPENDING, XCLAIM, XAUTOCLAIM.
//!
//! Departure from Redis: XAUTOCLAIM sets nothing aside for COUNT entries, so no COUNT is too high for the memory.

use super::group::{consumer_or_new, tell_consumer};
use super::{ArrayLater, no_group, parse_end, parse_id, parse_start, reply_entry, reply_id};
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::types::Stream;
use crate::types::stream::{ConsumerSlot, Group, Nack, StreamId};
use skerry_resp::reply::Reply;

fn no_such_group(key: &[u8], group: &[u8]) -> CommandError {
    no_group(&[b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"])
}

/// The longer form of XPENDING: `[IDLE ms] start end count [consumer]`.
struct Listing<'a> {
    min_idle_ms: i64,
    start: StreamId,
    end: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Listing<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let (mut at, mut min_idle_ms) = (3, 0);
        if is_word(args.get(3), "idle") {
            min_idle_ms = args.integer(4)?;
            if args.len() < 8 {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        let count = args.integer(at + 2)?.max(0) as usize;
        let (start, end) = (parse_start(args.get(at))?, parse_end(args.get(at + 1))?);
        let consumer = (at + 3 < args.len()).then(|| args.get(at + 3));
        Ok(Self { min_idle_ms, start, end, count, consumer })
    }
}

/// XPENDING key group [[IDLE ms] start end count [consumer]]
pub(super) fn xpending(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let listing = match args.len() {
        3 => None,
        6..=9 => Some(Listing::parse(args)?),
        _ => return Err(CommandError::Syntax),
    };
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let stream = ctx.shard.read_stream(at, &key)?;
    let group = stream.and_then(|stream| stream.group(args.get(2)));
    let group = group.ok_or_else(|| no_such_group(key.bytes, args.get(2)))?;
    match listing {
        None => summarize(group, &mut ctx.reply),
        Some(listing) => list(group, &listing, at.now_ms, &mut ctx.reply),
    }
    Ok(())
}

fn summarize(group: &Group, reply: &mut Reply<'_>) {
    let pending = group.pending();
    reply.array(4);
    reply.integer(pending.len() as i64);
    let (Some(first), Some(last)) = (pending.first(), pending.last()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(first.id, reply);
    reply_id(last.id, reply);
    let with_pending = || group.consumers().filter(|consumer| !consumer.pending().is_empty());
    reply.array(with_pending().count());
    for consumer in with_pending() {
        reply.array(2);
        reply.bulk(&consumer.name);
        reply.bulk_integer(consumer.pending().len() as i64);
    }
}

/// How long a released entry is idle.
const RELEASED: i64 = -1;

fn list(group: &Group, listing: &Listing<'_>, now_ms: i64, reply: &mut Reply<'_>) {
    let (later, mut n) = (ArrayLater::begin(reply), 0);
    let mut show = |nack: &Nack| {
        let idle_ms = nack.idle_ms(now_ms);
        if listing.min_idle_ms != 0 && idle_ms < listing.min_idle_ms {
            return true;
        }
        reply.array(4);
        reply_id(nack.id, reply);
        reply.bulk(group.name_of(nack.consumer));
        reply.integer(if nack.is_released() { RELEASED } else { idle_ms.max(0) });
        reply.integer(nack.n_deliveries as i64);
        n += 1;
        n < listing.count
    };
    if listing.count > 0 {
        match listing.consumer {
            None => {
                let pending = group.pending();
                let from = pending.iter_from(pending.lower_bound(listing.start));
                let _all = from.take_while(|nack| nack.id <= listing.end).all(&mut show);
            }
            Some(name) => {
                if let Some(slot) = group.find_consumer(name) {
                    let pending = group.consumer(slot).pending();
                    let from = pending.iter_from(pending.lower_bound(listing.start));
                    let nacks = from.take_while(|id| **id <= listing.end);
                    let _all = nacks.filter_map(|id| group.find_pending(*id)).all(&mut show);
                }
            }
        }
    }
    later.end(reply, |reply| reply.array(n));
}

/// What XCLAIM does to an entry.
#[derive(Default)]
struct ClaimOptions {
    delivered_ms: Option<i64>,
    n_deliveries: Option<u64>,
    force: bool,
    just_id: bool,
    last_id: StreamId,
}

impl ClaimOptions {
    /// Reads the options from argument `at` on.
    fn parse(args: Args<'_>, at: usize, now_ms: i64) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut cursor = args.cursor(at);
        let number = |text, otherwise| skerry_resp::parse_i64(text).ok_or(CommandError::text(otherwise));
        while let Some(word) = cursor.maybe_next() {
            let has_value = !cursor.is_done();
            match () {
                () if is_word(word, "force") => options.force = true,
                () if is_word(word, "justid") => options.just_id = true,
                () if is_word(word, "idle") && has_value => {
                    let idle_ms = number(cursor.value()?, "ERR Invalid IDLE option argument for XCLAIM")?;
                    options.delivered_ms = Some(now_ms.wrapping_sub(idle_ms));
                }
                () if is_word(word, "time") && has_value => {
                    let time_ms = number(cursor.value()?, "ERR Invalid TIME option argument for XCLAIM")?;
                    options.delivered_ms = Some(time_ms);
                }
                () if is_word(word, "retrycount") && has_value => {
                    let count = number(cursor.value()?, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                    options.n_deliveries = u64::try_from(count).ok();
                }
                () if is_word(word, "lastid") && has_value => options.last_id = parse_id(cursor.value()?, 0)?,
                () => {
                    return Err(CommandError::Bytes(
                        [b"ERR Unrecognized XCLAIM option '", word, b"'"].concat(),
                    ));
                }
            }
        }
        // A time that has not come yet, or none, is now.
        options.delivered_ms =
            Some(options.delivered_ms.filter(|time_ms| (0..=now_ms).contains(time_ms)).unwrap_or(now_ms));
        Ok(options)
    }
}

/// XCLAIM key group consumer min-idle-ms id ... [IDLE ms] [TIME ms] [RETRYCOUNT n] [FORCE] [JUSTID] [LASTID id]
pub(super) fn xclaim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let group_name = args.get(2);
    let is_there = ctx.shard.read_stream(at, &key)?.is_some_and(|stream| stream.group(group_name).is_some());
    if !is_there {
        return Err(no_such_group(key.bytes, group_name));
    }
    let min_idle_ms = skerry_resp::parse_i64(args.get(4));
    let min_idle_ms =
        min_idle_ms.ok_or(CommandError::text("ERR Invalid min-idle-time argument for XCLAIM"))?.max(0);
    let ids: Vec<StreamId> = args.from(5).map_while(|text| parse_id(text, 0).ok()).collect();
    let options = ClaimOptions::parse(args, 5 + ids.len(), at.now_ms)?;
    let Some(stream) = ctx.shard.stream_mut(at, &key)? else {
        return Err(no_such_group(key.bytes, group_name));
    };
    let Some(group) = stream.group_mut(group_name) else {
        return Err(no_such_group(key.bytes, group_name));
    };
    group.last_id = group.last_id.max(options.last_id);
    let (consumer, is_new) = consumer_or_new(group, args.get(3), at.now_ms);
    group.consumer_mut(consumer).seen_ms = at.now_ms;
    let (later, mut n) = (ArrayLater::begin(&mut ctx.reply), 0);
    for id in ids {
        let pending = stream.group(group_name).and_then(|group| group.find_pending(id)).copied();
        if stream.find(id).is_none() {
            if pending.is_some()
                && let Some(group) = stream.group_mut(group_name)
            {
                group.remove_pending(id);
            }
            continue;
        }
        let nack = match pending {
            Some(nack) if min_idle_ms > 0 && nack.idle_ms(at.now_ms) < min_idle_ms => {
                continue;
            }
            Some(nack) => nack,
            None if options.force => Nack { id, delivered_ms: at.now_ms, n_deliveries: 1, consumer },
            None => continue,
        };
        let n_deliveries = match options.n_deliveries {
            Some(n_deliveries) => n_deliveries,
            None if options.just_id => nack.n_deliveries,
            None => nack.n_deliveries_with_one_more(),
        };
        let delivered_ms = options.delivered_ms.unwrap_or(at.now_ms);
        let nack = Nack { consumer, n_deliveries, delivered_ms, ..nack };
        claim(stream, group_name, nack, at.now_ms, Shown::of(options.just_id), &mut ctx.reply);
        n += 1;
    }
    later.end(&mut ctx.reply, |reply| reply.array(n));
    ctx.shard.stats.dirty += n as u64;
    tell_consumer(ctx, &key, is_new);
    Ok(())
}

/// What is told of a claimed entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Entry,
    /// JUSTID
    Id,
}

impl Shown {
    fn of(just_id: bool) -> Self {
        if just_id { Shown::Id } else { Shown::Entry }
    }
}

/// Makes `nack` pending as it says, and shows its entry, which is there.
fn claim(
    stream: &mut Stream,
    group_name: &[u8],
    nack: Nack,
    now_ms: i64,
    shown: Shown,
    reply: &mut Reply<'_>,
) {
    match (shown, stream.find(nack.id)) {
        (Shown::Entry, Some(entry)) => reply_entry(&entry, reply),
        (Shown::Id, _) | (Shown::Entry, None) => reply_id(nack.id, reply),
    }
    if let Some(group) = stream.group_mut(group_name) {
        group.set_pending(nack);
        group.consumer_mut(nack.consumer).active_ms = Some(now_ms);
    }
}

/// Entries that are looked at for each that COUNT allows.
const ATTEMPTS: usize = 10;
const DEFAULT_COUNT: i64 = 100;
/// As in Redis, where an ID takes sixteen bytes of a number of bytes.
const MAX_COUNT: i64 = i64::MAX / 16;

/// XAUTOCLAIM key group consumer min-idle-ms start [COUNT n] [JUSTID]
pub(super) fn xautoclaim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    // Looked up first; whether it is a stream is asked when the arguments are read.
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let is_there = ctx.shard.read(at, &key).is_some();
    let min_idle_ms = skerry_resp::parse_i64(args.get(4));
    let min_idle_ms =
        min_idle_ms.ok_or(CommandError::text("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?.max(0);
    let start = parse_start(args.get(5))?;
    let (mut count, mut just_id) = (DEFAULT_COUNT, false);
    let mut cursor = args.cursor(6);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "count") && !cursor.is_done() {
            let given =
                skerry_resp::parse_i64(cursor.value()?).filter(|count| (1..=MAX_COUNT).contains(count));
            count = given.ok_or(CommandError::text("ERR COUNT must be > 0"))?;
        } else if is_word(word, "justid") {
            just_id = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let group_name = args.get(2);
    let stream = if is_there { ctx.shard.stream_mut(at, &key)? } else { None };
    let Some(stream) = stream else { return Err(no_such_group(key.bytes, group_name)) };
    let Some(group) = stream.group_mut(group_name) else { return Err(no_such_group(key.bytes, group_name)) };
    let (consumer, is_new) = consumer_or_new(group, args.get(3), at.now_ms);
    group.consumer_mut(consumer).seen_ms = at.now_ms;
    let walk = Walk { group_name, consumer, min_idle_ms, count: count as usize, shown: Shown::of(just_id) };
    ctx.reply.array(3);
    let later = ArrayLater::begin(&mut ctx.reply);
    let walked = walk.claim_from(stream, start, at.now_ms, &mut ctx.reply);
    later.end(&mut ctx.reply, |reply| {
        reply_id(walked.next, reply);
        reply.array(walked.n_claimed);
    });
    ctx.reply.array(walked.gone.len());
    for id in &walked.gone {
        reply_id(*id, &mut ctx.reply);
    }
    ctx.shard.stats.dirty += (walked.n_claimed + walked.gone.len()) as u64;
    tell_consumer(ctx, &key, is_new);
    Ok(())
}

/// How XAUTOCLAIM walks the pending entries.
struct Walk<'a> {
    group_name: &'a [u8],
    consumer: ConsumerSlot,
    min_idle_ms: i64,
    count: usize,
    shown: Shown,
}

struct Walked {
    /// Where the next walk goes on; 0-0: there is nothing left.
    next: StreamId,
    n_claimed: usize,
    /// Pending entries whose entry was deleted.
    gone: Vec<StreamId>,
}

impl Walk<'_> {
    fn claim_from(&self, stream: &mut Stream, start: StreamId, now_ms: i64, reply: &mut Reply<'_>) -> Walked {
        let mut walked = Walked { next: StreamId::MIN, n_claimed: 0, gone: Vec::new() };
        let mut from = Some(start);
        let mut n_attempts = 0;
        while let Some(id) = from {
            let Some(group) = stream.group_mut(self.group_name) else { break };
            let pending = group.pending();
            let Some(nack) = pending.get(pending.lower_bound(id)).copied() else { break };
            if n_attempts == self.count.saturating_mul(ATTEMPTS)
                || walked.n_claimed + walked.gone.len() == self.count
            {
                walked.next = nack.id;
                break;
            }
            n_attempts += 1;
            from = nack.id.next();
            if stream.find(nack.id).is_none() {
                if let Some(group) = stream.group_mut(self.group_name) {
                    group.remove_pending(nack.id);
                }
                walked.gone.push(nack.id);
                continue;
            }
            if self.min_idle_ms > 0 && nack.idle_ms(now_ms) < self.min_idle_ms {
                continue;
            }
            let n_deliveries = match self.shown {
                Shown::Entry => nack.n_deliveries_with_one_more(),
                Shown::Id => nack.n_deliveries,
            };
            let nack = Nack { consumer: self.consumer, delivered_ms: now_ms, n_deliveries, ..nack };
            claim(stream, self.group_name, nack, now_ms, self.shown, reply);
            walked.n_claimed += 1;
        }
        walked
    }
}
