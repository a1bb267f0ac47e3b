//! Bitmap commands (<https://redis.io/docs/latest/commands/?group=bitmap>): the bits of a string.
//!
//! A string that was written bit by bit is `raw` for OBJECT ENCODING, however short it is. Growing one by much costs nothing
//! but address space: the zeros come from the system, which makes them when they are touched. BITFIELD is in `bitfield`.

use std::borrow::Cow;
use std::ops::Range;

use skerry_resp::number::parse_i64;

use super::bitfield;
use crate::access::Text;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, NewValue};
use crate::shard::EventClass;
use crate::types::bitmap::{self, Operation};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("setbit", 4, Handler::Shard(setbit), "Sets or clears a bit, and tells what it was.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::BITMAP).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("getbit", 3, Handler::Shard(getbit), "A bit of a string.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::BITMAP).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("bitcount", -2, Handler::Shard(bitcount), "How many bits of a string are set.").flags(Flags::READONLY).acl(Acl::BITMAP).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("bitpos", -3, Handler::Shard(bitpos), "The first bit that is set, or clear.").flags(Flags::READONLY).acl(Acl::BITMAP).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("bitop", -4, Handler::Shard(bitop), "Combines strings bit by bit and stores the result.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::BITMAP).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 2, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 3, -1, 1)]),
    row("bitfield", -2, Handler::Shard(bitfield::bitfield), "Reads and writes integers of any width within a string.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::BITMAP).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE_FLAGS), 1, 0, 1).notes("This command allows both access and modification of the key")]),
    row("bitfield_ro", -2, Handler::Shard(bitfield::bitfield_ro), "Reads integers of any width within a string.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::BITMAP).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];

const BAD_OFFSET: CommandError = CommandError::text("ERR bit offset is not an integer or out of range");
const BAD_BIT: CommandError = CommandError::text("ERR bit is not an integer or out of range");

/// The offset of a bit of a string that stays below `proto-max-bulk-len`. With `#`, where fields of `n_bits` are asked for,
/// it counts fields; a product beyond an i64 is refused (Redis 8.2.3 goes on with what is left of it).
pub(super) fn bit_offset(
    ctx: &Ctx<'_>,
    text: &[u8],
    n_bits_a_step: Option<u32>,
) -> Result<usize, CommandError> {
    let (digits, step) = match (text, n_bits_a_step) {
        ([b'#', digits @ ..], Some(n_bits)) => (digits, n_bits),
        _ => (text, 1),
    };
    let offset =
        parse_i64(digits).and_then(|offset| offset.checked_mul(i64::from(step))).ok_or(BAD_OFFSET)?;
    match usize::try_from(offset) {
        Ok(offset) if (offset / 8) < ctx.config.proto_max_bulk_len as usize => Ok(offset),
        Ok(_) | Err(_) => Err(BAD_OFFSET),
    }
}

/// Shows a string of at least `len` bytes for an edit, made of zeros if the key is absent; the edit is also told whether
/// there was a shorter one or none.
pub(super) fn edit_bits<'a, R>(
    ctx: &mut Ctx<'a>,
    key: &Key<'_>,
    len: usize,
    edit: impl FnOnce(&mut [u8], bool, &mut skerry_resp::reply::Reply<'a>) -> R,
) -> Result<R, CommandError> {
    let is_grown = match ctx.shard.peek_string(ctx.at(), key)? {
        Some(text) => text.len() < len,
        None => {
            ctx.keyspace().add(key, NewValue::Str(b""), None);
            true
        }
    };
    let (keyspace, reply) = (ctx.shard.keyspace(ctx.caller.db), &mut ctx.reply);
    keyspace.edit_string(key, len, |bytes| edit(bytes, is_grown, reply)).ok_or(CommandError::WrongType)
}

/// SETBIT key offset value
fn setbit(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let offset = bit_offset(ctx, args.get(2), None)?;
    let wanted = match parse_i64(args.get(3)) {
        Some(0) => 0,
        Some(1) => 1,
        _ => return Err(BAD_BIT),
    };
    let key = ctx.key(args, 1);
    let (old, is_changed) = edit_bits(ctx, &key, offset / 8 + 1, |bytes, is_grown, _| {
        let shift = 7 - offset % 8;
        let byte = &mut bytes[offset / 8];
        let old = *byte >> shift & 1;
        *byte = *byte & !(1 << shift) | wanted << shift;
        (old, is_grown || old != wanted)
    })?;
    if is_changed {
        ctx.changed(&key, EventClass::String, "setbit");
    }
    ctx.reply.integer(i64::from(old));
    Ok(())
}

/// GETBIT key offset
fn getbit(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let offset = bit_offset(ctx, args.get(2), None)?;
    let key = ctx.key(args, 1);
    let bit = |bytes: &[u8]| bytes.get(offset / 8).map_or(0, |byte| byte >> (7 - offset % 8) & 1);
    let bit = ctx.shard.read_string(ctx.at(), &key)?.map_or(0, |text| text.with_bytes(bit));
    ctx.reply.integer(i64::from(bit));
    Ok(())
}

/// What the offsets of a range count.
#[derive(Clone, Copy)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    /// BYTE or BIT at argument `index`; bytes if there is none.
    fn parse(args: Args<'_>, index: usize) -> Result<Unit, CommandError> {
        match (args.len() > index).then(|| args.get(index)) {
            None => Ok(Unit::Byte),
            Some(word) if is_word(word, "byte") => Ok(Unit::Byte),
            Some(word) if is_word(word, "bit") => Ok(Unit::Bit),
            Some(_) => Err(CommandError::Syntax),
        }
    }

    /// The bits from `start` to `end`, both inclusive, negative ones counted from the end, of a string of `len` bytes.
    fn bits(self, start: i64, end: i64, len: usize) -> Range<usize> {
        let (n_units, n_bits) = match self {
            Unit::Byte => (len as i64, 8),
            Unit::Bit => (len as i64 * 8, 1),
        };
        let from_front = |index: i64| if index < 0 { (n_units + index).max(0) } else { index };
        let (start, end) = (from_front(start), from_front(end).min(n_units - 1));
        if start > end {
            return 0..0;
        }
        start as usize * n_bits..(end as usize + 1) * n_bits
    }
}

/// BITCOUNT key [start end [BYTE | BIT]]
fn bitcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let range = match args.len() {
        2 => None,
        4 | 5 => Some((args.integer(2)?, args.integer(3)?, Unit::parse(args, 4)?)),
        _ => return Err(CommandError::Syntax),
    };
    let key = ctx.key(args, 1);
    let count = |bytes: &[u8]| match range {
        None => bitmap::count_ones(bytes),
        Some((start, end, _)) if start < 0 && end < 0 && start > end => 0,
        Some((start, end, unit)) => bitmap::count_ones_in(bytes, unit.bits(start, end, bytes.len())),
    };
    let n = ctx.shard.read_string(ctx.at(), &key)?.map_or(0, |text| text.with_bytes(count));
    ctx.reply.integer(n as i64);
    Ok(())
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
fn bitpos(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let wanted = match args.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::text("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let start = if args.len() > 3 { args.integer(3)? } else { 0 };
    let unit = Unit::parse(args, 5)?;
    let end = if args.len() > 4 { Some(args.integer(4)?) } else { None };
    let key = ctx.key(args, 1);
    let position = |bytes: &[u8]| {
        let range = unit.bits(start, end.unwrap_or(-1), bytes.len());
        if range.is_empty() {
            return -1;
        }
        match bitmap::position(bytes, range, wanted) {
            Some(at) => at as i64,
            // Zeros follow the string, unless the range has an end.
            None if !wanted && end.is_none() => bytes.len() as i64 * 8,
            None => -1,
        }
    };
    let at = match ctx.shard.read_string(ctx.at(), &key)? {
        Some(text) => text.with_bytes(position),
        None if wanted => -1,
        None => 0,
    };
    ctx.reply.integer(at);
    Ok(())
}

/// The operations by name, and the name by which an error calls them.
const OPERATIONS: &[(&str, Operation)] = &[
    ("AND", Operation::And),
    ("OR", Operation::Or),
    ("XOR", Operation::Xor),
    ("NOT", Operation::Not),
    ("DIFF", Operation::Diff),
    ("DIFF1", Operation::Diff1),
    ("ANDOR", Operation::AndOr),
    ("ONE", Operation::One),
];

/// BITOP AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE destkey key [key ...]
fn bitop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let named = OPERATIONS.iter().find(|(name, _)| is_word(args.get(1), name));
    let &(name, operation) = named.ok_or(CommandError::Syntax)?;
    let n_sources = args.len() - 3;
    match operation {
        Operation::Not if n_sources != 1 => {
            return Err(CommandError::text("ERR BITOP NOT must be called with a single source key."));
        }
        Operation::Diff | Operation::Diff1 | Operation::AndOr if n_sources < 2 => {
            return Err(CommandError::format(format!(
                "ERR BITOP {name} must be called with at least two source keys."
            )));
        }
        _ => {}
    }
    let (at, target) = (ctx.at(), ctx.key(args, 2));
    let keys: Vec<Key<'_>> = (3..args.len()).map(|index| ctx.key(args, index)).collect();
    let texts = ctx.shard.read_strings(at, &keys)?;
    let sources: Vec<Cow<'_, [u8]>> = texts.iter().map(bytes_of).collect();
    let sources: Vec<&[u8]> = sources.iter().map(|bytes| &**bytes).collect();
    let result = bitmap::combine(operation, &sources);
    let len = result.len();
    if len > 0 {
        ctx.shard.insert_raw(at, &target, result);
        ctx.changed(&target, EventClass::String, "set");
    } else if ctx.shard.remove_dead_or_alive(at.db, &target) {
        // As Redis, which does not look at the deadline before it deletes.
        ctx.changed(&target, EventClass::Generic, "del");
    }
    ctx.reply.integer(len as i64);
    Ok(())
}

/// The bytes of a source; nothing where the key is absent.
fn bytes_of<'s>(text: &Option<Text<'s>>) -> Cow<'s, [u8]> {
    match text {
        None => Cow::Borrowed(b""),
        Some(Text::Int(value)) => Cow::Owned(itoa::Buffer::new().format(*value).into()),
        Some(Text::Bytes(bytes)) => Cow::Borrowed(bytes),
        Some(Text::Shared(bytes)) => Cow::Borrowed(bytes),
    }
}
