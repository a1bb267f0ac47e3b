//! BITFIELD and BITFIELD_RO: integers of 1 to 64 bits at any bit of a string.
//!
//! All operations are parsed before the first runs; a mistake in the last one leaves the key alone. The string is first made
//! long enough for all writes, also for one that then fails by its OVERFLOW.

use smallvec::SmallVec;

use super::bitmap::{bit_offset, edit_bits};
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;
use crate::types::bitmap::Field;
use skerry_resp::number::parse_i64;

/// What happens to a value that does not fit its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// Its low bits are taken.
    Wrap,
    /// The nearest value that fits is taken.
    Saturate,
    /// Nothing is written, and the reply is null.
    Fail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Set(i64),
    IncrementBy(i64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Signed,
    Unsigned,
}

/// One operation on one field.
#[derive(Clone, Copy)]
struct Step {
    verb: Verb,
    sign: Sign,
    field: Field,
    overflow: Overflow,
}

type Steps = SmallVec<[Step; 4]>;

/// Reads the operations behind the key.
fn parse(ctx: &Ctx<'_>, args: Args<'_>) -> Result<Steps, CommandError> {
    let (mut steps, mut overflow) = (Steps::new(), Overflow::Wrap);
    let mut cursor = args.cursor(2);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "overflow") && cursor.left() >= 1 {
            overflow = match cursor.value()? {
                word if is_word(word, "wrap") => Overflow::Wrap,
                word if is_word(word, "sat") => Overflow::Saturate,
                word if is_word(word, "fail") => Overflow::Fail,
                _ => return Err(CommandError::text("ERR Invalid OVERFLOW type specified")),
            };
            continue;
        }
        let verb: fn(i64) -> Verb = match word {
            word if is_word(word, "get") && cursor.left() >= 2 => |_| Verb::Get,
            word if is_word(word, "set") && cursor.left() >= 3 => Verb::Set,
            word if is_word(word, "incrby") && cursor.left() >= 3 => Verb::IncrementBy,
            _ => return Err(CommandError::Syntax),
        };
        let (sign, field) = field(ctx, &mut cursor)?;
        let number = if verb(0) == Verb::Get { 0 } else { cursor.next_integer()? };
        steps.push(Step { verb: verb(number), sign, field, overflow });
    }
    Ok(steps)
}

/// A type (`u8`, `i16`) and an offset (`100`, `#3`).
fn field(ctx: &Ctx<'_>, cursor: &mut Cursor<'_>) -> Result<(Sign, Field), CommandError> {
    const BAD_TYPE: CommandError = CommandError::text(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    );
    let (sign, digits, max) = match cursor.value()? {
        [b'i', digits @ ..] => (Sign::Signed, digits, 64),
        [b'u', digits @ ..] => (Sign::Unsigned, digits, 63),
        _ => return Err(BAD_TYPE),
    };
    // Redis reads the type as a C string.
    let digits = &digits[..memchr::memchr(0, digits).unwrap_or(digits.len())];
    let n_bits = match parse_i64(digits) {
        Some(n_bits) if (1..=max).contains(&n_bits) => n_bits as u32,
        _ => return Err(BAD_TYPE),
    };
    let offset = bit_offset(ctx, cursor.value()?, Some(n_bits))?;
    Ok((sign, Field { offset, n_bits }))
}

/// BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY type offset increment] ...
pub(super) fn bitfield(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let steps = parse(ctx, args)?;
    let writes = steps.iter().filter(|step| step.verb != Verb::Get);
    match writes.map(|step| step.field.end_byte()).max() {
        None => read(ctx, args, &steps),
        Some(len) => write(ctx, args, &steps, len),
    }
}

/// BITFIELD_RO key GET type offset ...
pub(super) fn bitfield_ro(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let steps = parse(ctx, args)?;
    if steps.iter().any(|step| step.verb != Verb::Get) {
        return Err(CommandError::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(ctx, args, &steps)
}

fn read(ctx: &mut Ctx<'_>, args: Args<'_>, steps: &[Step]) -> Outcome {
    let key = ctx.key(args, 1);
    let text = ctx.shard.read_string(ctx.at(), &key)?;
    ctx.reply.array(steps.len());
    let mut show = |bytes: &[u8]| steps.iter().for_each(|step| ctx.reply.integer(step.get(bytes) as i64));
    match text {
        Some(text) => text.with_bytes(show),
        None => show(b""),
    }
    Ok(())
}

fn write(ctx: &mut Ctx<'_>, args: Args<'_>, steps: &[Step], len: usize) -> Outcome {
    let key = ctx.key(args, 1);
    let is_changed = edit_bits(ctx, &key, len, |bytes, is_grown, reply| {
        reply.array(steps.len());
        let mut is_changed = false;
        for step in steps {
            match step.run(bytes) {
                Ran::Read(value) => reply.integer(value as i64),
                Ran::Written { value, is_other } => {
                    reply.integer(value as i64);
                    is_changed |= is_grown || is_other;
                }
                Ran::Refused => reply.null(),
            }
        }
        is_changed
    })?;
    if is_changed {
        ctx.changed(&key, EventClass::String, "setbit");
    }
    Ok(())
}

/// What an operation did, and the value that it shows.
enum Ran {
    Read(i128),
    Written { value: i128, is_other: bool },
    Refused,
}

impl Step {
    fn get(&self, bytes: &[u8]) -> i128 {
        match self.sign {
            Sign::Signed => i128::from(self.field.signed(bytes)),
            Sign::Unsigned => i128::from(self.field.unsigned(bytes)),
        }
    }

    fn run(&self, bytes: &mut [u8]) -> Ran {
        let old = self.get(bytes);
        let wanted = match self.verb {
            Verb::Get => return Ran::Read(old),
            // An unsigned field is given the bits of a negative number, which are those of a very large one.
            Verb::Set(value) if self.sign == Sign::Unsigned => i128::from(value as u64),
            Verb::Set(value) => i128::from(value),
            Verb::IncrementBy(by) => old + i128::from(by),
        };
        let Some(new) = self.fit(wanted) else { return Ran::Refused };
        self.field.put(bytes, new as u64);
        let value = if matches!(self.verb, Verb::Set(_)) { old } else { new };
        Ran::Written { value, is_other: new != old }
    }

    /// The value that is written for `wanted`.
    fn fit(&self, wanted: i128) -> Option<i128> {
        let n_bits = self.field.n_bits;
        let (min, max) = match self.sign {
            Sign::Signed => (-(1 << (n_bits - 1)), (1 << (n_bits - 1)) - 1),
            Sign::Unsigned => (0, (1 << n_bits) - 1),
        };
        if (min..=max).contains(&wanted) {
            return Some(wanted);
        }
        match self.overflow {
            Overflow::Fail => None,
            // As Redis, whose room up to `max` wraps around 64 bits there: what is set that far below comes out at the top.
            Overflow::Saturate
                if wanted < max - i128::from(i64::MAX) && matches!(self.verb, Verb::Set(_)) =>
            {
                Some(max)
            }
            Overflow::Saturate => Some(wanted.clamp(min, max)),
            Overflow::Wrap => Some((wanted - min).rem_euclid(max - min + 1) + min),
        }
    }
}
