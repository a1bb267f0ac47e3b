//! VREM, VMREM and VSETATTR: the changes of elements that are there.
//!
//! A removal repairs the graph around it, which costs as much as a search. Those that the turn has no time for are a job:
//! it takes the set out of the keyspace and holds its key, so nobody sees some of them removed and others not.

use skerry_vectorset::Params;

use super::{expect, vector_mut};
use crate::access::At;
use crate::args::{Args, KeptArgs};
use crate::command::{Ctx, Job};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Entry, Key};
use crate::message::HoldMode;
use crate::shard::EventClass;
use crate::vector::{VectorValue, with_reader};

/// How many elements the arguments may name, and how the answer counts them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    Many,
}

pub(super) fn vrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 3, "VREM")?;
    remove(ctx, args, Form::One)
}

/// VMREM key element [element ...]: Skerry's own. How many were removed.
pub(super) fn vmrem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() >= 3, "VMREM")?;
    remove(ctx, args, Form::Many)
}

pub(super) fn vsetattr(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() == 4, "VSETATTR")?;
    let key = ctx.key(args, 1);
    let is_set = match ctx.shard.edit(ctx.at(), &key).map(vector_mut) {
        None => Ok(false),
        Some(value) => value.map(|value| value.writer().set_attribute(args.get(2), Some(args.get(3)))),
    };
    match is_set {
        Ok(true) => ctx.changed(&key, EventClass::Module, "vsetattr"),
        Ok(false) | Err(_) => ctx.touched(&key),
    }
    ctx.reply.boolean(is_set?);
    Ok(())
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>, form: Form) -> Outcome {
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let value = match ctx.shard.edit(at, &key).map(vector_mut) {
        Some(Ok(value)) => value,
        None => {
            ctx.touched(&key);
            reply(ctx, form, 0);
            return Ok(());
        }
        Some(Err(error)) => {
            ctx.touched(&key);
            return Err(error);
        }
    };
    // A name that is not there costs next to nothing.
    let n_there = with_reader(|guard, _| {
        args.from(2).take(MAX_COUNTED).filter(|name| value.handle.set.contains(name, guard)).count()
    });
    let params = value.handle.set.params();
    if args.len() - 2 <= MAX_COUNTED && ctx.work.afford(n_there * removal_distances(params), params.dim) {
        let n_removed = args.from(2).filter(|name| remove_one(value, name)).count();
        finish(ctx, at, &key, form, n_removed);
        return Ok(());
    }
    let Some(entry) = ctx.keyspace().take(&key) else { return Ok(()) };
    let args = KeptArgs::of(args);
    ctx.job =
        Some(Box::new(Removal { args, hash: key.hash, form, at, entry: Some(entry), next: 2, n_removed: 0 }));
    Ok(())
}

/// Names looked up before the way is chosen.
const MAX_COUNTED: usize = 64;

fn remove_one(value: &mut VectorValue, name: &[u8]) -> bool {
    let writer = value.writer();
    with_reader(|_, scratch| writer.remove(name, scratch))
}

/// What a removal costs: the pairs of former neighbors, of at most so many at a time, are weighed.
fn removal_distances(params: Params) -> usize {
    const GROUP: usize = 64;
    const PER_PAIR: usize = 4;
    let degree = 2 * params.m as usize;
    PER_PAIR * degree * degree.min(GROUP) / 2
}

/// Reports and answers; a set without elements goes.
fn finish(ctx: &mut Ctx<'_>, at: At, key: &Key<'_>, form: Form, n_removed: usize) {
    match n_removed {
        0 => ctx.touched(key),
        _ => ctx.changed(key, EventClass::Module, "vrem"),
    }
    let is_emptied = match ctx.shard.edit(at, key).map(vector_mut) {
        Some(Ok(value)) => value.handle.set.is_empty(),
        Some(Err(_)) | None => false,
    };
    if is_emptied {
        ctx.shard.remove(at, key);
    }
    reply(ctx, form, n_removed);
}

fn reply(ctx: &mut Ctx<'_>, form: Form, n_removed: usize) {
    match form {
        Form::One => ctx.reply.boolean(n_removed > 0),
        Form::Many => ctx.reply.integer(n_removed as i64),
    }
}

/// VREM or VMREM in slices.
struct Removal {
    args: KeptArgs,
    hash: u64,
    form: Form,
    /// The moment that counts for deadlines: when it began.
    at: At,
    entry: Option<Entry>,
    /// The next argument.
    next: usize,
    n_removed: usize,
}

impl Job for Removal {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let args = self.args.args();
        let key = Key { bytes: args.get(1), hash: self.hash };
        let entry = self.entry.as_mut().expect("a job that is done has no further slice");
        let value = vector_mut(entry.as_mut())?;
        let cost = removal_distances(value.handle.set.params());
        let dim = value.handle.set.params().dim;
        let mut slice = ctx.work.slice();
        for name in args.from(self.next) {
            self.next += 1;
            let is_removed = remove_one(value, name);
            self.n_removed += usize::from(is_removed);
            let spent = if is_removed { cost } else { LOOKUP_DISTANCES };
            if !slice.spend(spent, dim) {
                break;
            }
        }
        if self.next < args.len() {
            return Ok(false);
        }
        ctx.keyspace().take_home(&key, self.entry.take());
        finish(ctx, self.at, &key, self.form, self.n_removed);
        Ok(true)
    }

    fn held(&self) -> Option<(HoldMode, Key<'_>)> {
        Some((HoldMode::Exclusive, Key { bytes: self.args.args().get(1), hash: self.hash }))
    }
}

/// What it costs to find that a name is not there.
const LOOKUP_DISTANCES: usize = 4;
