//! Idempotent messages: IDMP and IDMPAUTO of XADD, XCFGSET, XIDMPRECORD (Redis 8.6 and 8.8).
//!
//! Source: the command pages, <https://redis.io/docs/latest/develop/data-types/streams/idempotency/>.
//! Departures: IDMPAUTO's IDs are sums of 128 bits by a secret of the stream, in which it counts where a field ends; DUMP carries
//! neither IDs nor limits, as Redis 8.2's format has no place for them.

use super::add::Pairs;
use super::parse_id;
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::config::Config;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Loose, Object};
use crate::types::Stream;
use crate::types::stream::{Idempotence, IdempotenceLimits, StreamId};

pub(super) const TWICE: CommandError = CommandError::text("ERR IDMP/IDMPAUTO specified multiple times");
pub(super) const NOT_AUTOMATIC: CommandError =
    CommandError::text("ERR IDMP/IDMPAUTO can be used only with auto-generated IDs");

const MAX_DURATION_S: i64 = 86_400;
const MAX_IDS: i64 = 10_000;

/// Who sends, and the ID of what is sent; none: it is made of the content.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    producer: &'a [u8],
    id: Option<&'a [u8]>,
}

impl<'a> Sender<'a> {
    /// Reads `IDMPAUTO pid` or `IDMP pid iid`; none if `word` is neither.
    pub(super) fn read(word: &[u8], cursor: &mut Cursor<'a>) -> Result<Option<Self>, CommandError> {
        let text = CommandError::text;
        if is_word(word, "idmp") && cursor.left() >= 2 {
            let (producer, id) = (cursor.value()?, cursor.value()?);
            return match (producer, id) {
                (b"", _) => Err(text("ERR IDMP requires a non-empty producer ID")),
                (_, b"") => Err(text("ERR IDMP requires a non-empty idempotent ID")),
                _ => Ok(Some(Self { producer, id: Some(id) })),
            };
        }
        if is_word(word, "idmpauto") && !cursor.is_done() {
            return match cursor.value()? {
                b"" => Err(text("ERR IDMPAUTO requires a non-empty producer ID")),
                producer => Ok(Some(Self { producer, id: None })),
            };
        }
        Ok(None)
    }

    /// What is sent, with its ID.
    pub(super) fn message(
        self,
        stream: &mut Stream,
        config: &Config,
        seed: u64,
        pairs: Pairs<'a>,
    ) -> Message<'a> {
        let idempotence = idempotence_of(stream, config, seed);
        let id = match self.id {
            Some(id) => MessageId::Given(id),
            None => MessageId::OfContent(idempotence.id_of_content(pairs)),
        };
        Message { producer: self.producer, id }
    }
}

enum MessageId<'a> {
    Given(&'a [u8]),
    OfContent([u8; 16]),
}

pub(super) struct Message<'a> {
    producer: &'a [u8],
    id: MessageId<'a>,
}

impl Message<'_> {
    fn id(&self) -> &[u8] {
        match &self.id {
            MessageId::Given(id) => id,
            MessageId::OfContent(id) => id,
        }
    }

    /// The entry that it has become already.
    pub(super) fn find(&self, stream: &mut Stream, now_ms: i64) -> Option<StreamId> {
        stream.idempotence.as_mut()?.find(self.producer, self.id(), now_ms)
    }

    pub(super) fn remember(&self, stream: &mut Stream, entry: StreamId, now_ms: i64) {
        if let Some(idempotence) = &mut stream.idempotence {
            idempotence.add(self.producer, self.id(), entry, now_ms);
        }
    }
}

fn idempotence_of<'s>(stream: &'s mut Stream, config: &Config, seed: u64) -> &'s mut Idempotence {
    stream.idempotence.get_or_insert_with(|| {
        let limits = IdempotenceLimits {
            duration_s: config.stream_idmp_duration,
            max_ids: config.stream_idmp_maxsize,
        };
        Box::new(Idempotence::new(limits, seed))
    })
}

/// XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE n]
pub(super) fn xcfgset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (mut duration_s, mut max_ids) = (None, None);
    let mut cursor = args.cursor(2);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "idmp-duration") && !cursor.is_done() {
            let fault = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
            duration_s = Some(within(cursor.next_integer()?, MAX_DURATION_S, fault)?);
        } else if is_word(word, "idmp-maxsize") && !cursor.is_done() {
            let fault = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
            max_ids = Some(within(cursor.next_integer()?, MAX_IDS, fault)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if duration_s.is_none() && max_ids.is_none() {
        return Err(CommandError::text("ERR At least one parameter must be specified"));
    }
    let key = ctx.key(args, 1);
    let seed = ctx.shard.random();
    let stream = ctx.shard.stream_mut(ctx.at(), &key)?.ok_or(CommandError::NoSuchKey)?;
    let idempotence = idempotence_of(stream, ctx.config, seed);
    let old = idempotence.limits();
    let forgotten = idempotence.set_limits(IdempotenceLimits {
        duration_s: duration_s.unwrap_or(old.duration_s),
        max_ids: max_ids.unwrap_or(old.max_ids),
    });
    ctx.keyspace().discard_object(Object::Stream(Loose::new(Stream::of_idempotence(forgotten))));
    ctx.shard.stats.dirty += 1;
    ctx.reply.ok();
    Ok(())
}

fn within(number: i64, most: i64, fault: &'static str) -> Result<u32, CommandError> {
    u32::try_from(number).ok().filter(|_| (1..=most).contains(&number)).ok_or(CommandError::text(fault))
}

/// XIDMPRECORD key pid iid id
pub(super) fn xidmprecord(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (producer, id) = (args.get(2), args.get(3));
    if producer.is_empty() || id.is_empty() {
        return Err(CommandError::text("ERR producer ID and idempotent ID must not be empty"));
    }
    let entry = parse_id(args.get(4), 0)?;
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let seed = ctx.shard.random();
    let stream = ctx.shard.stream_mut(at, &key)?.ok_or(CommandError::NoSuchKey)?;
    if stream.find(entry).is_none() {
        return Err(CommandError::text("ERR no such entry in the stream"));
    }
    let idempotence = idempotence_of(stream, ctx.config, seed);
    match idempotence.known(producer, id, at.now_ms) {
        Some(known) if known != entry => {
            return Err(CommandError::text("ERR the idempotent ID belongs to another entry of the stream"));
        }
        Some(_) => {}
        None => {
            idempotence.add(producer, id, entry, at.now_ms);
            ctx.shard.stats.dirty += 1;
        }
    }
    ctx.reply.ok();
    Ok(())
}
