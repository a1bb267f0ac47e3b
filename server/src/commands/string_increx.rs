//! INCREX (Redis 8.8): adds to a number within bounds, and sets a deadline: a rate limiter's window in one command.
//!
//! The reply is the new number and by how much it has changed. A sum outside the bounds changes nothing, number or deadline,
//! and shows a change of 0; with SATURATE it becomes the bound. The bounds are those of the type where none are given.

use std::cmp::Ordering;

use skerry_resp::number::{LongDouble, parse_i64};
use skerry_resp::reply::{Proto, Reply};

use super::string::{DeadlineOption, deadline_ms, deadline_option};
use crate::access::Text;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, NewValue, Ttl};
use crate::shard::EventClass;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("increx", -2, Handler::Shard(increx), "Adds to a number within bounds, and sets its deadline.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
];

/// The options, their numbers not yet read.
#[derive(Default)]
struct Options<'a> {
    by_int: Option<&'a [u8]>,
    by_float: Option<&'a [u8]>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturate: bool,
    /// ENX: a deadline that is there already stays.
    only_if_none: bool,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<(Self, DeadlineOption<'a>), CommandError> {
        let (mut options, mut deadline) = (Self::default(), DeadlineOption::Unsaid);
        let mut cursor = args.cursor(2);
        while let Some(word) = cursor.maybe_next() {
            let slot = if is_word(word, "byint") && options.by_float.is_none() {
                &mut options.by_int
            } else if is_word(word, "byfloat") && options.by_int.is_none() {
                &mut options.by_float
            } else if is_word(word, "lbound") {
                &mut options.lower
            } else if is_word(word, "ubound") {
                &mut options.upper
            } else if is_word(word, "saturate") && !options.saturate {
                options.saturate = true;
                continue;
            } else if is_word(word, "enx")
                && !options.only_if_none
                && !matches!(deadline, DeadlineOption::Persist)
            {
                options.only_if_none = true;
                continue;
            } else if !matches!(deadline, DeadlineOption::Unsaid) {
                // Nothing about the deadline is said twice.
                return Err(CommandError::Syntax);
            } else if is_word(word, "persist") && !options.only_if_none {
                deadline = DeadlineOption::Persist;
                continue;
            } else {
                deadline = deadline_option(word, cursor.maybe_next(), deadline)?;
                continue;
            };
            if slot.replace(cursor.value()?).is_some() {
                return Err(CommandError::Syntax);
            }
        }
        if options.only_if_none && !matches!(deadline, DeadlineOption::Given(..)) {
            return Err(CommandError::text("ERR ENX flag requires an expiration"));
        }
        Ok((options, deadline))
    }
}

/// A kind of number that INCREX adds in.
trait Number: Copy + PartialOrd {
    const NOT_ONE: &'static str;
    const ZERO: Self;
    const ONE: Self;
    const MIN: Self;
    const MAX: Self;
    const EVENT: &'static str;

    fn parse(text: &[u8]) -> Option<Self>;
    /// The number of a value; the error is the one of the commands that add to such a value.
    fn of(text: Text<'_>) -> Result<Self, CommandError>;
    /// Refuses an increment that is none.
    fn check_increment(self) -> Result<(), CommandError>;
    /// The sum, or at which end it leaves the type.
    fn sum(self, other: Self) -> Result<Self, Ordering>;
    /// `self - other`.
    fn change_since(self, other: Self) -> Result<Self, CommandError>;
    fn store(self, ctx: &mut Ctx<'_>, key: &Key<'_>, ttl: Ttl) -> Result<(), CommandError>;
    fn show(self, reply: &mut Reply<'_>);
}

impl Number for i64 {
    const NOT_ONE: &'static str = "is not an integer or out of range";
    const ZERO: Self = 0;
    const ONE: Self = 1;
    const MIN: Self = i64::MIN;
    const MAX: Self = i64::MAX;
    const EVENT: &'static str = "incrby";

    fn parse(text: &[u8]) -> Option<Self> {
        parse_i64(text)
    }

    fn of(text: Text<'_>) -> Result<Self, CommandError> {
        text.with_bytes(parse_i64).ok_or(CommandError::NotInteger)
    }

    fn check_increment(self) -> Result<(), CommandError> {
        Ok(())
    }

    fn sum(self, other: Self) -> Result<Self, Ordering> {
        self.checked_add(other).ok_or(other.cmp(&0))
    }

    fn change_since(self, other: Self) -> Result<Self, CommandError> {
        self.checked_sub(other).ok_or(CommandError::text("ERR applied increment would overflow"))
    }

    fn store(self, ctx: &mut Ctx<'_>, key: &Key<'_>, ttl: Ttl) -> Result<(), CommandError> {
        ctx.shard.insert(ctx.at(), key, NewValue::Int(self), ttl);
        Ok(())
    }

    fn show(self, reply: &mut Reply<'_>) {
        reply.integer(self);
    }
}

impl Number for LongDouble {
    const NOT_ONE: &'static str = "is not a valid float";
    const ZERO: Self = LongDouble::ZERO;
    const ONE: Self = LongDouble::ONE;
    const MIN: Self = LongDouble::MIN;
    const MAX: Self = LongDouble::MAX;
    const EVENT: &'static str = "incrbyfloat";

    fn parse(text: &[u8]) -> Option<Self> {
        LongDouble::parse(text).filter(|number| !number.is_nan())
    }

    fn of(text: Text<'_>) -> Result<Self, CommandError> {
        let number = text.with_bytes(LongDouble::parse).ok_or(CommandError::NotFloat)?;
        if number.is_finite() { Ok(number) } else { Err(CommandError::text("ERR value cannot be Infinity")) }
    }

    fn check_increment(self) -> Result<(), CommandError> {
        match self.is_finite() {
            true => Ok(()),
            false => Err(CommandError::text("ERR BYFLOAT increment cannot be Infinity")),
        }
    }

    fn sum(self, other: Self) -> Result<Self, Ordering> {
        let sum = self + other;
        let end = if other < LongDouble::ZERO { Ordering::Less } else { Ordering::Greater };
        if sum.is_finite() { Ok(sum) } else { Err(end) }
    }

    fn change_since(self, other: Self) -> Result<Self, CommandError> {
        let change = self + -other;
        let error = CommandError::text("ERR applied increment would be Infinity");
        if change.is_finite() { Ok(change) } else { Err(error) }
    }

    fn store(self, ctx: &mut Ctx<'_>, key: &Key<'_>, ttl: Ttl) -> Result<(), CommandError> {
        let mut text = Vec::new();
        self.push_text(&mut text);
        // A string even where it reads like an integer, as INCRBYFLOAT leaves it.
        ctx.shard.insert(ctx.at(), key, NewValue::Str(&text), ttl);
        Ok(())
    }

    fn show(self, reply: &mut Reply<'_>) {
        let mut text = Vec::new();
        self.push_text(&mut text);
        match reply.proto() {
            Proto::Resp2 => reply.bulk(&text),
            Proto::Resp3 => {
                reply.raw(b",");
                reply.raw(&text);
                reply.raw(b"\r\n");
            }
        }
    }
}

/// INCREX key [BYFLOAT n | BYINT n] [LBOUND n] [UBOUND n] [SATURATE] [EX s | PX ms | EXAT s | PXAT ms | PERSIST] [ENX]
fn increx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (options, deadline) = Options::parse(args)?;
    match options.by_float {
        Some(by) => run::<LongDouble>(ctx, args, &options, Some(by), deadline),
        None => run::<i64>(ctx, args, &options, options.by_int, deadline),
    }
}

fn run<N: Number>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    options: &Options<'_>,
    by: Option<&[u8]>,
    deadline: DeadlineOption<'_>,
) -> Outcome {
    let parse = |name: &str, text: Option<&[u8]>, default: N| match text {
        None => Ok(default),
        Some(text) => {
            N::parse(text).ok_or_else(|| CommandError::format(format!("ERR {name} {}", N::NOT_ONE)))
        }
    };
    let by = parse("Increment", by, N::ONE)?;
    by.check_increment()?;
    let (lower, upper) = (parse("LBOUND", options.lower, N::MIN)?, parse("UBOUND", options.upper, N::MAX)?);
    if lower > upper {
        return Err(CommandError::text("ERR LBOUND can't be greater than UBOUND"));
    }
    let deadline_ms = match deadline {
        DeadlineOption::Given(clock, number) => Some(deadline_ms(clock, number, ctx.now_ms, "increx")?),
        DeadlineOption::Unsaid | DeadlineOption::Keep | DeadlineOption::Persist => None,
    };
    let key = ctx.key(args, 1);
    let old = ctx.shard.peek_string(ctx.at(), &key)?.map(N::of).transpose()?;
    let (is_present, old) = (old.is_some(), old.unwrap_or(N::ZERO));
    let (new, change) = match old.sum(by) {
        Ok(sum) if lower <= sum && sum <= upper => (sum, by),
        Ok(_) | Err(_) if !options.saturate => {
            ctx.reply.array(2);
            old.show(&mut ctx.reply);
            N::ZERO.show(&mut ctx.reply);
            return Ok(());
        }
        beyond => {
            let is_below = beyond.map_or_else(Ordering::is_lt, |sum| sum < lower);
            let new = if is_below { lower } else { upper };
            (new, new.change_since(old)?)
        }
    };
    store(ctx, &key, new, is_present, options, deadline, deadline_ms)?;
    ctx.reply.array(2);
    new.show(&mut ctx.reply);
    change.show(&mut ctx.reply);
    Ok(())
}

/// Stores the number and what becomes of the deadline; one that is past deletes the key.
fn store<N: Number>(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    new: N,
    is_present: bool,
    options: &Options<'_>,
    deadline: DeadlineOption<'_>,
    deadline_ms: Option<i64>,
) -> Outcome {
    let has_deadline = ctx.keyspace().expire_at(key).is_some();
    let deadline_ms = deadline_ms.filter(|_| !(options.only_if_none && has_deadline));
    if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= ctx.now_ms) {
        if is_present {
            ctx.shard.remove(ctx.at(), key);
            ctx.changed(key, EventClass::Generic, "del");
        }
        return Ok(());
    }
    let is_persisted = has_deadline && matches!(deadline, DeadlineOption::Persist);
    let ttl = match deadline_ms {
        Some(deadline_ms) => Ttl::At(deadline_ms),
        None if is_persisted => Ttl::Clear,
        None => Ttl::Keep,
    };
    new.store(ctx, key, ttl)?;
    ctx.changed(key, EventClass::String, N::EVENT);
    if is_persisted {
        ctx.changed(key, EventClass::Generic, "persist");
    } else if deadline_ms.is_some() {
        ctx.changed(key, EventClass::Generic, "expire");
    }
    Ok(())
}
