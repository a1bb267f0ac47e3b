//! Vector set commands (<https://redis.io/docs/latest/commands/?group=module>).
//!
//! VADD, VREM and VSETATTR run at the owner, the only one who writes; the long ones of them are jobs. The others run on the worker that received
//! them, on the published set, while the owner goes on writing: a handler pins the thread's epoch once, and what it
//! borrows lives as long.
//!
//! Departures from Redis:
//! 1. A vector with a component that is no finite float32 is refused as an invalid specification.
//! 2. An empty SETATTR on a new element gives it no attribute.
//! 3. REDUCE to more components than the vector has is refused (as in Redis after 8.2.3).
//! 4. VMADD, VMREM and VADD's METRIC are Skerry's own; VRANGE is Redis 8.4's.
//!
//! Redis registers these commands without arity: each handler counts its arguments before it touches them.

mod add;
mod addition_job;
mod input;
mod reads;
mod remove;
mod similar;
mod walks;

use skerry_vectorset::Error;

use crate::args::Args;
use crate::command::{Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{EntryMut, Object};
use crate::vector::{VectorHandle, VectorValue};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("VADD", -1, Handler::Shard(add::vadd), "Adds an element with its vector, or replaces the vector of one.").planned(add::plan_vadd).flags(Flags::DENYOOM.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VSIM", -1, Handler::Any(similar::vsim), "The elements most similar to a vector or to an element.").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VREM", -1, Handler::Shard(remove::vrem), "Removes an element.").flags(Flags::MODULE.with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VCARD", -1, Handler::Any(reads::vcard), "How many elements a vector set has.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VDIM", -1, Handler::Any(reads::vdim), "How many components its vectors have.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VEMB", -1, Handler::Any(reads::vemb), "The vector of an element.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VINFO", -1, Handler::Any(reads::vinfo), "What a vector set is made of.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VISMEMBER", -1, Handler::Any(reads::vismember), "Whether a vector set has an element.").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VGETATTR", -1, Handler::Any(reads::vgetattr), "The attribute text of an element.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VSETATTR", -1, Handler::Shard(remove::vsetattr), "Sets or removes the attribute text of an element.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VLINKS", -1, Handler::Any(reads::vlinks), "The neighbors of an element in the graph.").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VRANDMEMBER", -1, Handler::Any(walks::vrandmember), "Elements drawn at random.").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VRANGE", -1, Handler::Any(walks::vrange), "Elements in the order of their names.").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VMADD", -1, Handler::Shard(add::vmadd), "Adds elements with their vectors, or replaces the vectors of some.").planned(add::plan_vmadd).flags(Flags::DENYOOM.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VMREM", -1, Handler::Shard(remove::vmrem), "Removes elements.").flags(Flags::MODULE.with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
];

/// What an `Any` handler finds behind its key.
type Found<'a> = Result<Option<&'a VectorHandle>, CommandError>;

const INVALID_VECTOR: CommandError = CommandError::text("ERR invalid vector specification");
const ELEMENT_NOT_FOUND: CommandError = CommandError::text("ERR element not found in set");

fn vector_mut(entry: EntryMut<'_>) -> Result<&mut VectorValue, CommandError> {
    match entry.into_object_mut() {
        Some(Object::Vector(value)) => Ok(value),
        _ => Err(CommandError::WrongType),
    }
}

/// The set that a reading command has found; a hit or a miss. A set without elements is being deleted.
fn present<'a>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    found: Found<'a>,
) -> Result<Option<&'a VectorHandle>, CommandError> {
    let handle = found?.filter(|handle| !handle.set.is_empty());
    ctx.shard.looked_up(ctx.caller.db, args.get(1), handle.is_some());
    Ok(handle)
}

fn bulk_or_null(ctx: &mut Ctx<'_>, text: Option<&[u8]>) {
    match text {
        Some(text) => ctx.reply.bulk(text),
        None => ctx.reply.null(),
    }
}

fn expect(is_fitting: bool, command: &'static str) -> Outcome {
    if is_fitting { Ok(()) } else { Err(CommandError::WrongArity(command)) }
}

fn mismatch(got: usize, expected: usize) -> CommandError {
    CommandError::format(format!("ERR Vector dimension mismatch - got {got} but set has {expected}"))
}

fn error_of(error: Error) -> CommandError {
    match error {
        Error::DimensionMismatch { got, expected } => mismatch(got, expected),
        Error::NotFinite => INVALID_VECTOR,
        Error::ElementNotFound => ELEMENT_NOT_FOUND,
        Error::Full => CommandError::text("ERR vector set is full"),
    }
}
