//! Stream commands (<https://redis.io/docs/latest/commands/?group=stream>).
//!
//! `add` holds what appends and trims, `range` what reads entries, `delete` what removes them, `group` what makes and changes
//! groups, `idempotent` what remembers the messages of producers, `release` XNACK, `read` XREAD and XREADGROUP, `pending` what looks at and claims pending entries, `info` XINFO.
//!
//! A stream that loses its last entry stays: only DEL and its like remove its key.

mod add;
mod delete;
mod group;
mod idempotent;
mod info;
mod pending;
mod range;
mod read;
mod release;

use skerry_resp::number::parse_i64;
use skerry_resp::reply::Reply;

use crate::access::reply_element;
use crate::command::{Acl, Begin, Command, Find, Flags, Handler, KeyFlags, KeySpec, range as key_range, row};
use crate::error::CommandError;
use crate::types::stream::{Entry, IdText, StreamId};

const READS: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);
const UPDATES: KeyFlags = KeyFlags::RW.with(KeyFlags::UPDATE);
const DELETES: KeyFlags = KeyFlags::RW.with(KeyFlags::DELETE);

/// Keys behind STREAMS: the first half of what follows it.
const fn behind_streams(start_from: i16) -> KeySpec {
    KeySpec {
        notes: None,
        flags: READS,
        begin: Begin::Keyword { word: "STREAMS", start_from },
        find: Find::Range { last: -1, step: 1, limit: 2 },
    }
}

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("xadd", -5, Handler::Shard(add::xadd), "Appends an entry and tells its ID").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STREAM).tips(&["nondeterministic_output"]).keys(&[key_range(UPDATES, 1, 0, 1).notes("UPDATE instead of INSERT because of the optional trimming feature")]),
    row("xtrim", -4, Handler::Shard(add::xtrim), "Removes entries from the front").flags(Flags::WRITE).acl(Acl::STREAM).tips(&["nondeterministic_output"]).keys(&[key_range(DELETES, 1, 0, 1)]),
    row("xsetid", -3, Handler::Shard(add::xsetid), "Sets a stream's counters").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(UPDATES, 1, 0, 1)]),
    row("xcfgset", -2, Handler::Shard(idempotent::xcfgset), "Sets how long and how many idempotent IDs a stream remembers").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(UPDATES, 1, 0, 1)]),
    row("xidmprecord", 5, Handler::Shard(idempotent::xidmprecord), "Remembers an idempotent ID of an entry").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(UPDATES, 1, 0, 1)]),
    row("xnack", -7, Handler::Shard(release::xnack), "Gives pending entries back to their group").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(UPDATES, 1, 0, 1)]),
    row("xlen", 2, Handler::Shard(range::xlen), "Tells the number of entries").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STREAM).keys(&[key_range(KeyFlags::RO, 1, 0, 1)]),
    row("xrange", -4, Handler::Shard(range::xrange), "Shows the entries of a range of IDs").flags(Flags::READONLY).acl(Acl::STREAM).keys(&[key_range(READS, 1, 0, 1)]),
    row("xrevrange", -4, Handler::Shard(range::xrevrange), "Shows the entries of a range of IDs, last first").flags(Flags::READONLY).acl(Acl::STREAM).keys(&[key_range(READS, 1, 0, 1)]),
    row("xdel", -3, Handler::Shard(delete::xdel), "Deletes entries and tells how many there were").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(DELETES, 1, 0, 1)]),
    row("xdelex", -5, Handler::Shard(delete::xdelex), "Deletes entries and minds the groups' references to them").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(DELETES, 1, 0, 1)]),
    row("xack", -4, Handler::Shard(delete::xack), "Takes entries off a group's pending list").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(UPDATES, 1, 0, 1)]),
    row("xackdel", -6, Handler::Shard(delete::xackdel), "Takes entries off a group's pending list and deletes them").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).keys(&[key_range(UPDATES.with(KeyFlags::DELETE), 1, 0, 1)]),
    row("xread", -4, Handler::Shard(read::xread), "Shows what comes behind given IDs in several streams").flags(Flags::BLOCKING.with(Flags::MOVABLEKEYS).with(Flags::READONLY)).acl(Acl::STREAM).keys(&[behind_streams(1)]).waits(read::may_wait),
    row("xreadgroup", -7, Handler::Shard(read::xreadgroup), "Delivers entries to a consumer of a group").flags(Flags::BLOCKING.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::STREAM).keys(&[behind_streams(4)]).waits(read::may_wait),
    row("xpending", -3, Handler::Shard(pending::xpending), "Shows what a group has not acknowledged").flags(Flags::READONLY).acl(Acl::STREAM).tips(&["nondeterministic_output"]).keys(&[key_range(READS, 1, 0, 1)]),
    row("xclaim", -6, Handler::Shard(pending::xclaim), "Gives pending entries to another consumer").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).tips(&["nondeterministic_output"]).keys(&[key_range(UPDATES, 1, 0, 1)]),
    row("xautoclaim", -6, Handler::Shard(pending::xautoclaim), "Gives pending entries that were idle for long to another consumer").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STREAM).tips(&["nondeterministic_output"]).keys(&[key_range(DELETES, 1, 0, 1)]),
    row("xgroup", -2, Handler::Container, "Commands for consumer groups").subcommands(group::SUBCOMMANDS),
    row("xinfo", -2, Handler::Container, "Commands that describe a stream").subcommands(info::SUBCOMMANDS),
];

const INVALID_ID: CommandError =
    CommandError::text("ERR Invalid stream ID specified as stream command argument");

/// No text of an ID is longer.
const MAX_ID_TEXT_BYTES: usize = 127;

/// The number of an ID's sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sequence {
    Given(u64),
    Missing,
    /// `*`
    Automatic,
}

/// `<ms>` or `<ms>-<seq>` or `<ms>-*`. As in Redis, what stands behind a zero byte does not count.
fn id_parts(text: &[u8]) -> Option<(u64, Sequence)> {
    if text.len() > MAX_ID_TEXT_BYTES {
        return None;
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match text.iter().position(|byte| *byte == b'-') {
        None => Some((unsigned(text)?, Sequence::Missing)),
        Some(at) => {
            let (ms, seq) = (&text[..at], &text[at + 1..]);
            let ms = unsigned(ms)?;
            Some((ms, if seq == b"*" { Sequence::Automatic } else { Sequence::Given(unsigned(seq)?) }))
        }
    }
}

/// A number as Redis reads those of IDs: canonical ones, or whatever `strtoull` takes for one.
fn unsigned(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let (is_negative, digits) = match &text[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |number: u64, digit: &u8| number.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let number = digits.iter().try_fold(0, add)?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// A whole ID; a missing sequence is `missing_seq`.
fn parse_id(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match id_parts(text) {
        Some((ms, Sequence::Given(seq))) => Ok(StreamId { ms, seq }),
        Some((ms, Sequence::Missing)) => Ok(StreamId { ms, seq: missing_seq }),
        Some((_, Sequence::Automatic)) | None => Err(INVALID_ID),
    }
}

/// The same, or `-` or `+`.
fn parse_id_or_end(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match text.split(|byte| *byte == 0).next().unwrap_or_default() {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse_id(text, missing_seq),
    }
}

/// The least ID of an interval, which `(` excludes.
fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', text @ ..] if !text.is_empty() => {
            let next = parse_id(text, 0)?.next();
            next.ok_or(CommandError::text("ERR invalid start ID for the interval"))
        }
        text => parse_id_or_end(text, 0),
    }
}

/// The greatest ID of an interval, which `(` excludes.
fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', text @ ..] if !text.is_empty() => {
            let previous = parse_id(text, u64::MAX)?.previous();
            previous.ok_or(CommandError::text("ERR invalid end ID for the interval"))
        }
        text => parse_id_or_end(text, u64::MAX),
    }
}

fn reply_id(id: StreamId, reply: &mut Reply<'_>) {
    reply.bulk(id.write(&mut IdText::new()));
}

/// An entry: its ID, and its fields and values by turns.
#[inline]
fn reply_entry(entry: &Entry<'_>, reply: &mut Reply<'_>) {
    reply.array(2);
    reply_id_and_fields(entry, reply);
}

#[inline]
fn reply_id_and_fields(entry: &Entry<'_>, reply: &mut Reply<'_>) {
    reply_id(entry.id, reply);
    reply.array(2 * entry.n_fields);
    entry.for_each_field(|field, value| {
        reply_element(field, reply);
        reply_element(value, reply);
    });
}

/// Room in a reply for the length of an array that is known when its elements are written.
struct ArrayLater {
    at: usize,
}

impl ArrayLater {
    fn begin(reply: &mut Reply<'_>) -> Self {
        Self { at: reply.out().len() }
    }

    /// Puts the header before what was written since. `header` writes it.
    fn end(self, reply: &mut Reply<'_>, header: impl FnOnce(&mut Reply<'_>)) {
        let out = reply.out();
        let written = out.len();
        header(reply);
        let out = reply.out();
        let n_header = out.len() - written;
        out[self.at..].rotate_right(n_header);
    }
}

/// `-NOGROUP No such key 'k' or consumer group 'g'`, and what follows.
fn no_group(parts: &[&[u8]]) -> CommandError {
    CommandError::Bytes(parts.concat())
}
