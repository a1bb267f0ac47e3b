//! XREAD and XREADGROUP.
//!
//! All streams are looked at first: an error in one must not leave another read. XREADGROUP looks each up twice, as Redis
//! does (who counts hits sees it).
//!
//! From the command pages, newer than 8.2: MAXCOUNT and MAXSIZE (8.10) bound a whole reply, CLAIM (8.4) delivers first what has
//! been pending for long. Departures: their errors are our words; an entry that becomes old enough for CLAIM while its client
//! waits does not wake it.

use super::group::{consumer_or_new, tell_consumer};
use super::{ArrayLater, no_group, parse_id, reply_entry, reply_id, reply_id_and_fields};
use crate::args::{Args, is_word, positive};
use crate::blocked::Awaited;
use crate::command::{Ctx, Wait};
use crate::commands::timeout::deadline_of_ms;
use crate::error::{CommandError, Outcome};
use crate::types::Stream;
use crate::types::stream::{Acknowledging, ConsumerSlot, Delivery, Entry, Group, Nack, StreamId};
use skerry_resp::number::parse_i64;
use skerry_resp::reply::{Proto, Reply};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Xread,
    Xreadgroup,
}

/// What a request does that finds nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    /// BLOCK: waits until then; none: for ever.
    Until(Option<i64>),
}

/// A request, its streams not yet looked at.
struct Request<'a> {
    group: Option<(&'a [u8], &'a [u8])>,
    /// 0: no limit.
    count: usize,
    max_count: Option<usize>,
    max_bytes: Option<usize>,
    claimed_after_ms: Option<i64>,
    patience: Patience,
    acknowledging: Acknowledging,
    /// The first key, and how many; as many IDs follow.
    first: usize,
    n_streams: usize,
}

/// `>`: what the group has not had. As in Redis, the greatest ID is the same.
const NEW_ENTRIES: StreamId = StreamId::MAX;

impl<'a> Request<'a> {
    fn parse(reader: Reader, args: Args<'a>, now_ms: i64) -> Result<Self, CommandError> {
        let (mut group, mut count, mut patience) = (None, 0, Patience::None);
        let (mut max_count, mut max_bytes, mut claimed_after_ms) = (None, None, None);
        let mut acknowledging = Acknowledging::Needed;
        let mut cursor = args.cursor(1);
        let n_arguments = loop {
            let Some(word) = cursor.maybe_next() else { return Err(CommandError::Syntax) };
            match () {
                () if is_word(word, "block") && !cursor.is_done() => {
                    patience = Patience::Until(deadline_of_ms(cursor.value()?, now_ms)?);
                }
                () if is_word(word, "count") && !cursor.is_done() => {
                    count = cursor.next_integer()?.max(0) as usize;
                }
                () if is_word(word, "streams") && !cursor.is_done() => break cursor.left(),
                () if is_word(word, "maxcount") && !cursor.is_done() => {
                    max_count = Some(positive(cursor.value()?, "ERR MAXCOUNT must be a positive integer")?);
                }
                () if is_word(word, "maxsize") && !cursor.is_done() => {
                    max_bytes = Some(positive(cursor.value()?, "ERR MAXSIZE must be a positive integer")?);
                }
                () if is_word(word, "claim") && !cursor.is_done() => {
                    only_for_groups(reader, "CLAIM")?;
                    let min_idle_ms = parse_i64(cursor.value()?).filter(|ms| *ms >= 0);
                    let fault = CommandError::text("ERR min-idle-time must be a positive integer");
                    claimed_after_ms = Some(min_idle_ms.ok_or(fault)?);
                }
                () if is_word(word, "group") && cursor.left() >= 2 => {
                    only_for_groups(reader, "GROUP")?;
                    group = Some((cursor.value()?, cursor.value()?));
                }
                () if is_word(word, "noack") => {
                    only_for_groups(reader, "NOACK")?;
                    acknowledging = Acknowledging::Spared;
                }
                () => return Err(CommandError::Syntax),
            }
        };
        if !n_arguments.is_multiple_of(2) {
            return Err(CommandError::text(match reader {
                Reader::Xread => {
                    "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
                }
                Reader::Xreadgroup => {
                    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
                }
            }));
        }
        if reader == Reader::Xreadgroup && group.is_none() {
            return Err(CommandError::text("ERR Missing GROUP option for XREADGROUP"));
        }
        if max_count.is_some_and(|max_count| max_count < count) {
            return Err(CommandError::text("ERR MAXCOUNT must be greater than or equal to COUNT"));
        }
        let first = cursor.position();
        Ok(Self {
            max_count,
            max_bytes,
            claimed_after_ms,
            group,
            count,
            patience,
            acknowledging,
            first,
            n_streams: n_arguments / 2,
        })
    }

    /// Behind which ID the stream `nth` is to be read.
    fn start(&self, args: Args<'_>, nth: usize, stream: Option<&Stream>) -> Result<StreamId, CommandError> {
        let text = args.get(self.first + self.n_streams + nth);
        let last_id = stream.map_or(StreamId::MIN, |stream| stream.history.last_id);
        match (text, self.group) {
            (b"$", Some(_)) => Err(CommandError::text(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
                 specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
            )),
            (b"+", Some(_)) => Err(CommandError::text(
                "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
                 specifying a proper ID, or use the > ID to get new messages. The + ID would just return an empty result set.",
            )),
            (b"$", None) => Ok(last_id),
            // Behind the one before the last living entry.
            (b"+", None) => {
                let last_living = stream.map_or(StreamId::MIN, Stream::last_living_id);
                Ok(last_living.previous().unwrap_or(StreamId::MIN))
            }
            (b">", Some(_)) => Ok(NEW_ENTRIES),
            (b">", None) => Err(CommandError::text(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            )),
            (text, _) => parse_id(text, 0),
        }
    }

    fn limit(&self) -> usize {
        if self.count == 0 { usize::MAX } else { self.count }
    }
}

/// What the reply as a whole may still take.
struct Room {
    n_entries: usize,
    /// How long the output may become; none: any length.
    end: Option<usize>,
    has_shown: bool,
}

impl Room {
    fn begin(request: &Request<'_>, reply: &mut Reply<'_>) -> Self {
        let start = reply.out().len();
        let end = request.max_bytes.map(|max_bytes| start.saturating_add(max_bytes));
        Self { n_entries: request.max_count.unwrap_or(usize::MAX), end, has_shown: false }
    }

    /// Whether another entry fits, of which the length is not known before it is shown: the bytes shown so far decide.
    fn has_more(&self, reply: &mut Reply<'_>) -> bool {
        let has_bytes = self.end.is_none_or(|end| !self.has_shown || reply.out().len() < end);
        self.n_entries > 0 && has_bytes
    }

    fn take(&mut self) {
        self.n_entries -= 1;
        self.has_shown = true;
    }
}

fn only_for_groups(reader: Reader, option: &str) -> Result<(), CommandError> {
    match reader {
        Reader::Xreadgroup => Ok(()),
        Reader::Xread => Err(CommandError::format(format!(
            "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
        ))),
    }
}

/// Whether a request has BLOCK.
pub(super) fn may_wait(args: Args<'_>) -> bool {
    let mut cursor = args.cursor(1);
    while let Some(word) = cursor.maybe_next() {
        let n_values = match () {
            () if is_word(word, "block") => return true,
            () if is_word(word, "streams") => return false,
            () if is_word(word, "group") => 2,
            () => usize::from(
                ["count", "maxcount", "maxsize", "claim"].iter().any(|option| is_word(word, option)),
            ),
        };
        for _ in 0..n_values {
            cursor.maybe_next();
        }
    }
    false
}

/// XREAD [COUNT n] [BLOCK ms] STREAMS key ... id ...
pub(super) fn xread(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    read(ctx, args, Reader::Xread)
}

/// XREADGROUP GROUP group consumer [COUNT n] [BLOCK ms] [NOACK] STREAMS key ... id ...
pub(super) fn xreadgroup(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    read(ctx, args, Reader::Xreadgroup)
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, reader: Reader) -> Outcome {
    let request = Request::parse(reader, args, ctx.now_ms)?;
    let mut starts = Vec::with_capacity(request.n_streams);
    for nth in 0..request.n_streams {
        let key = ctx.key(args, request.first + nth);
        let stream = ctx.shard.read_stream(ctx.at(), &key)?;
        if let Some((group, _)) = request.group
            && stream.is_none_or(|stream| stream.group(group).is_none())
        {
            return Err(no_group(&[
                b"NOGROUP No such key '",
                key.bytes,
                b"' or consumer group '",
                group,
                b"' in XREADGROUP with GROUP option",
            ]));
        }
        starts.push(request.start(args, nth, stream)?);
    }
    let (later, mut n_served) = (ArrayLater::begin(&mut ctx.reply), 0);
    let mut room = Room::begin(&request, &mut ctx.reply);
    for (nth, start) in starts.iter().enumerate() {
        n_served += usize::from(match request.group {
            _ if !room.has_more(&mut ctx.reply) => false,
            None => read_stream(ctx, args, &request, (nth, *start), &mut room)?,
            Some(names) => read_group(ctx, args, &request, (nth, *start), names, &mut room)?,
        });
    }
    if n_served == 0 {
        return match request.patience {
            Patience::None => {
                ctx.reply.null_array();
                Ok(())
            }
            Patience::Until(deadline_ms) => wait(ctx, args, &request, deadline_ms, &starts),
        };
    }
    later.end(&mut ctx.reply, |reply| match reply.proto() {
        Proto::Resp2 => reply.array(n_served),
        Proto::Resp3 => reply.map(n_served),
    });
    Ok(())
}

/// Waits for an entry of any of the streams. `$` means the end of its stream as it is now.
fn wait(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    request: &Request<'_>,
    deadline_ms: Option<i64>,
    starts: &[StreamId],
) -> Outcome {
    let first_id = request.first + request.n_streams;
    let fixed = |(nth, start): (usize, &StreamId)| {
        (args.get(first_id + nth) == b"$").then(|| (first_id + nth, start.to_string().into_bytes()))
    };
    let wait = Wait {
        deadline_ms,
        awaited: if request.group.is_some() { Awaited::StreamOrLoss } else { Awaited::Stream },
        keys: request.first..first_id,
        fixed: starts.iter().enumerate().filter_map(fixed).collect(),
    };
    ctx.wait(wait, |reply| reply.null_array())
}

/// The key before a stream's entries.
fn begin_stream(key: &[u8], reply: &mut Reply<'_>) {
    if reply.proto() == Proto::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

/// Shows what stands behind `start`; whether there was anything.
fn read_stream(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    request: &Request<'_>,
    (nth, start): (usize, StreamId),
    room: &mut Room,
) -> Result<bool, CommandError> {
    let key = ctx.key(args, request.first + nth);
    let Some(stream) = ctx.shard.read_stream(ctx.at(), &key)? else { return Ok(false) };
    if stream.is_empty() || stream.last_living_id() <= start {
        return Ok(false);
    }
    begin_stream(key.bytes, &mut ctx.reply);
    let (later, mut n) = (ArrayLater::begin(&mut ctx.reply), 0);
    let start = start.next().unwrap_or(StreamId::MIN);
    for entry in stream.range(start, StreamId::MAX).take(request.limit()) {
        if !room.has_more(&mut ctx.reply) {
            break;
        }
        room.take();
        reply_entry(&entry, &mut ctx.reply);
        n += 1;
    }
    later.end(&mut ctx.reply, |reply| reply.array(n));
    Ok(true)
}

/// Delivers what the group has not had, or shows the consumer what is pending for it; whether there was anything.
fn read_group(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    request: &Request<'_>,
    (nth, start): (usize, StreamId),
    (group_name, consumer_name): (&[u8], &[u8]),
    room: &mut Room,
) -> Result<bool, CommandError> {
    let (key, at) = (ctx.key(args, request.first + nth), ctx.at());
    if ctx.shard.read_stream(at, &key)?.is_none() {
        return Ok(false);
    }
    let Some(stream) = ctx.shard.stream_mut(at, &key)? else { return Ok(false) };
    let last_id = stream.last_living_id();
    let Some(group) = stream.group_mut(group_name) else { return Ok(false) };
    let (consumer, is_new) = consumer_or_new(group, consumer_name, at.now_ms);
    group.consumer_mut(consumer).seen_ms = at.now_ms;
    let idle = match request.claimed_after_ms {
        Some(min_idle_ms) if start == NEW_ENTRIES => {
            longest_idle(group, at.now_ms, min_idle_ms, request.limit().min(room.n_entries))
        }
        Some(_) | None => Vec::new(),
    };
    let is_served = start != NEW_ENTRIES || last_id > group.last_id || !idle.is_empty();
    if is_served {
        begin_stream(key.bytes, &mut ctx.reply);
        let later = ArrayLater::begin(&mut ctx.reply);
        let limit = request.limit();
        let to = (group_name, consumer, at.now_ms);
        let n = if start == NEW_ENTRIES {
            let n_claimed = show_claimed(stream, to, idle, room, &mut ctx.reply);
            let delivery = Delivery {
                count: (limit - n_claimed).min(room.n_entries),
                acknowledging: request.acknowledging,
                now_ms: at.now_ms,
            };
            let reply = &mut ctx.reply;
            let n_new = stream.deliver(group_name, consumer, delivery, |entry| {
                let has_more = room.has_more(reply);
                if has_more {
                    room.take();
                    match request.claimed_after_ms {
                        None => reply_entry(entry, reply),
                        Some(_) => reply_claimed(entry, (0, 0), reply),
                    }
                }
                has_more
            });
            n_claimed + n_new
        } else {
            let from = start.next().unwrap_or(StreamId::MIN);
            show_history(stream, to, (from, limit), room, &mut ctx.reply)
        };
        ctx.shard.stats.dirty += n as u64;
        later.end(&mut ctx.reply, |reply| reply.array(n));
    }
    tell_consumer(ctx, &key, is_new);
    Ok(is_served)
}

/// The entries that were released and those that have been pending for at least so long, whoever they are pending for, the longest
/// first: at most `limit`.
fn longest_idle(group: &Group, now_ms: i64, min_idle_ms: i64, limit: usize) -> Vec<Nack> {
    let is_idle = |nack: &&Nack| nack.is_released() || nack.idle_ms(now_ms) >= min_idle_ms;
    let mut idle: Vec<Nack> = group.pending().iter().filter(is_idle).copied().collect();
    idle.sort_by_key(|nack| (!nack.is_released(), nack.delivered_ms));
    idle.truncate(limit);
    idle
}

/// A consumer of a group, and when it is given something.
type To<'a> = (&'a [u8], ConsumerSlot, i64);

/// An entry as CLAIM shows it: how long and how often it had been pending; an entry that is new, not at all.
fn reply_claimed(entry: &Entry<'_>, (idle_ms, n_deliveries): (i64, i64), reply: &mut Reply<'_>) {
    reply.array(4);
    reply_id_and_fields(entry, reply);
    reply.integer(idle_ms);
    reply.integer(n_deliveries);
}

/// Gives pending entries to a consumer and shows them, with how long and how often they had been pending; how many. Those whose
/// entry is gone are pending no more.
fn show_claimed(
    stream: &mut Stream,
    (group_name, consumer, now_ms): To<'_>,
    idle: Vec<Nack>,
    room: &mut Room,
    reply: &mut Reply<'_>,
) -> usize {
    let mut n = 0;
    for nack in idle {
        let Some(entry) = stream.find(nack.id) else {
            if let Some(group) = stream.group_mut(group_name) {
                group.remove_pending(nack.id);
            }
            continue;
        };
        if !room.has_more(reply) {
            break;
        }
        room.take();
        reply_claimed(&entry, (nack.idle_ms(now_ms).max(0), nack.n_deliveries as i64), reply);
        if let Some(group) = stream.group_mut(group_name) {
            let n_deliveries = nack.n_deliveries_with_one_more();
            group.set_pending(Nack { consumer, n_deliveries, delivered_ms: now_ms, ..nack });
            group.consumer_mut(consumer).active_ms = Some(now_ms);
        }
        n += 1;
    }
    n
}

/// Shows what is pending for a consumer from `start` on, which counts as another delivery.
fn show_history(
    stream: &mut Stream,
    (group_name, consumer, now_ms): To<'_>,
    (start, limit): (StreamId, usize),
    room: &mut Room,
    reply: &mut Reply<'_>,
) -> usize {
    let Some(group) = stream.group(group_name) else { return 0 };
    let pending = group.consumer(consumer).pending();
    let ids: Vec<StreamId> = pending.iter_from(pending.lower_bound(start)).take(limit).copied().collect();
    let mut n = 0;
    for id in &ids {
        if !room.has_more(reply) {
            break;
        }
        room.take();
        n += 1;
        if let Some(entry) = stream.find(*id) {
            reply_entry(&entry, reply);
            if let Some(nack) = stream.group_mut(group_name).and_then(|group| group.pending_mut(*id)) {
                nack.delivered_ms = now_ms;
                nack.n_deliveries = nack.n_deliveries_with_one_more();
            }
        } else {
            reply.array(2);
            reply_id(*id, reply);
            reply.null_array();
        }
    }
    n
}
