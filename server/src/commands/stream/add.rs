//! XADD, XTRIM, XSETID.

use super::idempotent::{self, Sender};
use super::{INVALID_ID, Sequence, id_parts, parse_id, reply_id};
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::config::Config;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, Loose, Object};
use crate::shard::EventClass;
use crate::types::Stream;
use crate::types::stream::{Garbage, History, NodeLimits, References, StreamId, Threshold, Trim};

/// Fields and values of one entry may take so many bytes.
const MAX_ENTRY_BYTES: usize = 1 << 30;
/// Nodes that are freed on the spot.
const FREED_AT_ONCE: usize = 64;
/// Nodes that an approximate trim without LIMIT may take, and the entries that it may take in any case.
const TRIMMED_NODES: u64 = 100;
const TRIMMED_ENTRIES: u64 = 10_000;
const MAX_TRIMMED_ENTRIES: u64 = 1_000_000;

/// The ID that an entry is to get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedId {
    Automatic,
    /// `<ms>-*`
    InMillisecond(u64),
    Given(StreamId),
}

#[derive(Default)]
struct Options {
    no_mkstream: bool,
    threshold: Option<Threshold>,
    is_approximate: bool,
    limit: Option<u64>,
    references: Option<References>,
}

/// KEEPREF, DELREF or ACKED.
pub(super) fn references(word: &[u8]) -> Option<References> {
    match () {
        () if is_word(word, "keepref") => Some(References::Keep),
        () if is_word(word, "delref") => Some(References::Delete),
        () if is_word(word, "acked") => Some(References::Respect),
        () => None,
    }
}

impl Options {
    /// Reads one option that XADD and XTRIM share; false if `word` is none.
    fn read(&mut self, word: &[u8], cursor: &mut Cursor<'_>) -> Result<bool, CommandError> {
        if (is_word(word, "maxlen") || is_word(word, "minid")) && !cursor.is_done() {
            if self.threshold.is_some() {
                return Err(CommandError::text(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            if cursor.left() >= 2 {
                self.is_approximate = cursor.peek() == Some(b"~");
                if self.is_approximate || cursor.peek() == Some(b"=") {
                    cursor.value()?;
                }
            }
            self.threshold = Some(if is_word(word, "maxlen") {
                let max = cursor.next_integer()?;
                Threshold::MaxLen(
                    max.try_into()
                        .map_err(|_| CommandError::text("ERR The MAXLEN argument must be >= 0."))?,
                )
            } else {
                Threshold::MinId(parse_id(cursor.value()?, 0)?)
            });
        } else if is_word(word, "limit") && !cursor.is_done() {
            let limit = cursor.next_integer()?;
            let limit = limit.try_into();
            self.limit = Some(limit.map_err(|_| CommandError::text("ERR The LIMIT argument must be >= 0."))?);
        } else if self.references.is_none()
            && let Some(references) = references(word)
        {
            self.references = Some(references);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The trim that the options ask for, if any.
    fn trim(&self, config: &Config) -> Result<Option<Trim>, CommandError> {
        let Some(threshold) = self.threshold else {
            return match self.limit {
                Some(1..) => Err(CommandError::text(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                )),
                Some(0) | None => Ok(None),
            };
        };
        let limit = match self.limit {
            Some(_) if !self.is_approximate => {
                return Err(CommandError::text(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            Some(limit) => limit,
            None if self.is_approximate => {
                match config.stream_node_max_entries.checked_mul(TRIMMED_NODES).map(i64::try_from) {
                    Some(Ok(limit @ 1..)) => (limit as u64).min(MAX_TRIMMED_ENTRIES),
                    Some(Ok(_) | Err(_)) | None => TRIMMED_ENTRIES,
                }
            }
            None => 0,
        };
        Ok(Some(Trim {
            threshold,
            is_approximate: self.is_approximate,
            limit,
            references: self.references.unwrap_or(References::Keep),
        }))
    }
}

/// XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMPAUTO pid|IDMP pid iid] [MAXLEN|MINID [=|~] threshold [LIMIT count]]
/// id field value ...
pub(super) fn xadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut options = Options::default();
    let mut cursor = args.cursor(2);
    let (mut wanted, mut sender) = (None, None);
    while let Some(word) = cursor.maybe_next() {
        if word == b"*" {
            wanted = Some(WantedId::Automatic);
            break;
        }
        if is_word(word, "nomkstream") {
            options.no_mkstream = true;
        } else if let Some(found) = Sender::read(word, &mut cursor)? {
            if sender.replace(found).is_some() {
                return Err(idempotent::TWICE);
            }
        } else if !options.read(word, &mut cursor)? {
            let (ms, seq) = id_parts(word).ok_or(INVALID_ID)?;
            wanted = Some(match seq {
                Sequence::Given(seq) => WantedId::Given(StreamId { ms, seq }),
                Sequence::Missing => WantedId::Given(StreamId { ms, seq: 0 }),
                Sequence::Automatic => WantedId::InMillisecond(ms),
            });
            break;
        }
    }
    let trim = options.trim(ctx.config)?;
    let (Some(wanted), 2..) = (wanted, cursor.left()) else { return Err(CommandError::WrongArity("xadd")) };
    let first = cursor.position();
    if !cursor.left().is_multiple_of(2) {
        return Err(CommandError::WrongArity("xadd"));
    }
    if wanted == WantedId::Given(StreamId::MIN) {
        return Err(CommandError::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    if sender.is_some() && wanted != WantedId::Automatic {
        return Err(idempotent::NOT_AUTOMATIC);
    }
    let (key, at) = (ctx.key(args, 1), ctx.at());
    // For a stream that has not remembered any sender so far.
    let seed = if sender.is_some() { ctx.shard.random() } else { 0 };
    let stream = match ctx.shard.stream_mut(at, &key)? {
        Some(stream) => stream,
        None if options.no_mkstream => {
            ctx.reply.null();
            return Ok(());
        }
        None => {
            // An error must not leave an empty stream behind.
            id_for(wanted, &History::default(), at.now_ms, args, first)?;
            ctx.shard.stream_or_new(at, &key)?
        }
    };
    let pairs = Pairs { args, at: first };
    let message = sender.map(|sender| sender.message(stream, ctx.config, seed, pairs));
    if let Some(message) = &message
        && let Some(id) = message.find(stream, at.now_ms)
    {
        reply_id(id, &mut ctx.reply);
        return Ok(());
    }
    let id = id_for(wanted, &stream.history, at.now_ms, args, first)?;
    let limits = NodeLimits {
        stream_node_max_bytes: ctx.config.stream_node_max_bytes as usize,
        stream_node_max_entries: ctx.config.stream_node_max_entries,
    };
    stream.append(id, pairs, limits);
    match (message, &mut stream.idempotence) {
        (Some(message), _) => message.remember(stream, id, at.now_ms),
        (None, Some(idempotence)) => idempotence.sweep(at.now_ms),
        (None, None) => {}
    }
    let mut garbage = Garbage::new();
    let n_trimmed = trim.map_or(0, |trim| stream.trim(&trim, &mut garbage));
    ctx.changed(&key, EventClass::Stream, "xadd");
    if n_trimmed > 0 {
        ctx.shard.told(at.db, key.bytes, EventClass::Stream, "xtrim");
    }
    discard(ctx, garbage);
    reply_id(id, &mut ctx.reply);
    Ok(())
}

/// The ID that the next entry gets.
fn id_for(
    wanted: WantedId,
    history: &History,
    now_ms: i64,
    args: Args<'_>,
    first: usize,
) -> Result<StreamId, CommandError> {
    let last = history.last_id;
    if last == StreamId::MAX {
        return Err(CommandError::text(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = match wanted {
        WantedId::Given(id) => Some(id),
        WantedId::InMillisecond(ms) if ms == last.ms => {
            last.seq.checked_add(1).map(|seq| StreamId { ms, seq })
        }
        WantedId::InMillisecond(ms) => Some(StreamId { ms, seq: 0 }),
        WantedId::Automatic => history.next_id(now_ms as u64),
    };
    let id = id.filter(|id| *id > last).ok_or(CommandError::text(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))?;
    if args.from(first).map(<[u8]>::len).sum::<usize>() > MAX_ENTRY_BYTES {
        return Err(CommandError::text("ERR Elements are too large to be stored"));
    }
    Ok(id)
}

/// Fields and values among the arguments.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (self.at + 1 < self.args.len()).then(|| {
            self.at += 2;
            (self.args.get(self.at - 2), self.args.get(self.at - 1))
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = (self.args.len() - self.at) / 2;
        (n, Some(n))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

/// Frees what was trimmed: in slices, if it is much.
fn discard(ctx: &mut Ctx<'_>, garbage: Garbage) {
    if garbage.len() > FREED_AT_ONCE {
        let stream = Object::Stream(Loose::new(Stream::of_garbage(garbage)));
        ctx.keyspace().discard_object(stream);
    }
}

/// XTRIM key [KEEPREF|DELREF|ACKED] MAXLEN|MINID [=|~] threshold [LIMIT count]
pub(super) fn xtrim(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut options = Options::default();
    let mut cursor = args.cursor(2);
    while let Some(word) = cursor.maybe_next() {
        if !options.read(word, &mut cursor)? {
            return Err(CommandError::Syntax);
        }
    }
    let trim = options.trim(ctx.config)?;
    let trim =
        trim.ok_or(CommandError::text("ERR syntax error, XTRIM must be called with a trimming strategy"))?;
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let mut garbage = Garbage::new();
    let n_trimmed = match ctx.shard.stream_mut(at, &key)? {
        Some(stream) => stream.trim(&trim, &mut garbage),
        None => 0,
    };
    if n_trimmed > 0 {
        ctx.changed(&key, EventClass::Stream, "xtrim");
        discard(ctx, garbage);
    }
    ctx.reply.integer(n_trimmed as i64);
    Ok(())
}

/// XSETID key id [ENTRIESADDED n] [MAXDELETEDID id]
pub(super) fn xsetid(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let id = parse_id(args.get(2), 0)?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::MIN);
    let mut cursor = args.cursor(3);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "entriesadded") && !cursor.is_done() {
            let added = u64::try_from(cursor.next_integer()?);
            entries_added =
                Some(added.map_err(|_| CommandError::text("ERR entries_added must be positive"))?);
        } else if is_word(word, "maxdeletedid") && !cursor.is_done() {
            max_deleted_id = parse_id(cursor.value()?, 0)?;
            if id < max_deleted_id {
                return Err(CommandError::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let key = ctx.key(args, 1);
    let stream = ctx.shard.stream_mut(ctx.at(), &key)?.ok_or(CommandError::NoSuchKey)?;
    set_id(stream, id, entries_added, max_deleted_id)?;
    tell(ctx, &key, "xsetid");
    ctx.reply.ok();
    Ok(())
}

fn set_id(
    stream: &mut Stream,
    id: StreamId,
    entries_added: Option<u64>,
    max_deleted_id: StreamId,
) -> Result<(), CommandError> {
    if id < stream.history.max_deleted_id {
        return Err(CommandError::text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if !stream.is_empty() {
        if id < stream.last_living_id() {
            return Err(CommandError::text(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if entries_added.is_some_and(|added| added < stream.len()) {
            return Err(CommandError::text(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    let history = &mut stream.history;
    let is_lower = id < std::mem::replace(&mut history.last_id, id);
    if let Some(added) = entries_added {
        history.entries_added = added;
    }
    if !max_deleted_id.is_zero() {
        history.max_deleted_id = max_deleted_id;
    }
    if is_lower {
        stream.drop_dead_tail();
    }
    Ok(())
}

/// Tells of a change that Redis does not take for one of the key's value: who watches it is not disturbed.
pub(super) fn tell(ctx: &mut Ctx<'_>, key: &Key<'_>, event: &'static str) {
    ctx.shard.told(ctx.caller.db, key.bytes, EventClass::Stream, event);
}
