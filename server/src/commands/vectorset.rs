//! Vector set commands (NOQUANT) (<https://redis.io/docs/latest/commands/?group=module>).

use crate::args::Args;
use crate::command::{Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::vector::VectorHandle;
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("VADD", -1, Handler::Shard(vadd), "").flags(Flags::DENYOOM.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VSIM", -1, Handler::Any(vsim), "").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VREM", -1, Handler::Shard(vrem), "").flags(Flags::MODULE.with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VCARD", -1, Handler::Any(vcard), "").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VDIM", -1, Handler::Any(vdim), "").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VEMB", -1, Handler::Any(vemb), "").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VINFO", -1, Handler::Any(vinfo), "").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VISMEMBER", -1, Handler::Any(vismember), "").flags(Flags::MODULE.with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VGETATTR", -1, Handler::Any(vgetattr), "").flags(Flags::FAST.with(Flags::MODULE).with(Flags::READONLY)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("VSETATTR", -1, Handler::Shard(vsetattr), "").flags(Flags::FAST.with(Flags::MODULE).with(Flags::WRITE)).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), 1, 0, 1)]),
];


fn vadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vsim(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vcard(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vdim(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vemb(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vinfo(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vismember(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vgetattr(ctx: &mut Ctx<'_>, set: Option<&VectorHandle>, args: Args<'_>) -> Outcome {
    let _ = (ctx, set, args);
    Err(CommandError::text("ERR not there yet"))
}

fn vsetattr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}
