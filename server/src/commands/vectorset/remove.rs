//! VREM, VMREM and VSETATTR: the changes of elements that are there.

use super::{expect, vector_mut};
use crate::args::Args;
use crate::command::Ctx;
use crate::error::Outcome;
use crate::keyspace::Key;
use crate::shard::EventClass;
use crate::vector::{VectorValue, with_reader};

pub(super) fn vrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VREM")?;
    let n_removed = remove(ctx, args)?;
    ctx.reply.boolean(n_removed > 0);
    Ok(())
}

/// VMREM key element [element ...]: Skerry's own. How many were removed.
pub(super) fn vmrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() >= 3, "VMREM")?;
    let n_removed = remove(ctx, args)?;
    ctx.reply.integer(n_removed as i64);
    Ok(())
}

pub(super) fn vsetattr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 4, "VSETATTR")?;
    let key = ctx.key(args, 1);
    let set =
        |value: &mut VectorValue| usize::from(value.writer().set_attribute(args.get(2), Some(args.get(3))));
    let n_set = change(ctx, &key, "vsetattr", set)?;
    ctx.reply.boolean(n_set > 0);
    Ok(())
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<usize, crate::error::CommandError> {
    let key = ctx.key(args, 1);
    let mut is_empty = false;
    let n_removed = change(ctx, &key, "vrem", |value| {
        let writer = value.writer();
        let n_removed =
            with_reader(|_, scratch| args.from(2).filter(|element| writer.remove(element, scratch)).count());
        is_empty = value.handle.set.is_empty();
        n_removed
    })?;
    if is_empty {
        ctx.shard.remove(ctx.at(), &key);
    }
    Ok(n_removed)
}

/// Runs `change` on the set at `key`, if there is one, and tells the shard; how many elements changed.
fn change(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    event: &'static str,
    change: impl FnOnce(&mut VectorValue) -> usize,
) -> Result<usize, crate::error::CommandError> {
    let n_changed = match ctx.shard.edit(ctx.at(), key).map(vector_mut) {
        None => Ok(0),
        Some(value) => value.map(change),
    };
    match n_changed {
        Ok(1..) => ctx.changed(key, EventClass::Module, event),
        Ok(0) | Err(_) => ctx.touched(key),
    }
    n_changed
}
