//! MSETEX (Redis 8.4): several strings with one deadline, all of them or none.

use super::string::{DeadlineOption, deadline_ms, deadline_option, value_of};
use crate::args::{Args, is_word};
use crate::command::{Acl, Begin, Command, Ctx, Find, Flags, Handler, KeyFlags, KeySpec, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Ttl;
use crate::shard::EventClass;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("msetex", -4, Handler::Shard(msetex), "Sets several keys with one deadline, under a condition if asked for.").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::STRING).tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]).keys(&[PAIRS]),
];

/// A count, then that many keys, a value behind each.
const PAIRS: KeySpec = KeySpec {
    notes: None,
    flags: KeyFlags::OW.with(KeyFlags::UPDATE),
    begin: Begin::Index(1),
    find: Find::KeyNum { num_index: 0, first: 1, step: 2 },
};

/// When the keys are set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfNoneExists,
    IfAllExist,
}

/// MSETEX numkeys key value [key value ...] [NX | XX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
fn msetex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let n_keys = skerry_resp::number::parse_i64(args.get(1));
    let n_keys = n_keys.filter(|n| (1..=i64::from(i32::MAX)).contains(n));
    let n_keys = n_keys.ok_or(CommandError::text("ERR invalid numkeys value"))? as usize;
    let end = 2 + n_keys * 2;
    if end > args.len() {
        return Err(CommandError::text("ERR wrong number of key-value pairs"));
    }
    let (condition, deadline) = options(args, end)?;
    let ttl = match deadline {
        DeadlineOption::Unsaid | DeadlineOption::Persist => Ttl::Clear,
        DeadlineOption::Keep => Ttl::Keep,
        DeadlineOption::Given(clock, number) => Ttl::At(deadline_ms(clock, number, ctx.now_ms, "msetex")?),
    };
    // The keys without their count: every second argument from the first one on.
    let pairs = args.tail(1).head(1 + n_keys * 2);
    if condition != Condition::Always {
        let mut n_present = 0;
        ctx.for_each_key(pairs, 2, |ctx, _, key| {
            n_present += usize::from(ctx.shard.peek(ctx.at(), key).is_some());
        });
        let wanted = if condition == Condition::IfAllExist { n_keys } else { 0 };
        if n_present != wanted {
            ctx.reply.integer(0);
            return Ok(());
        }
    }
    ctx.for_each_key(pairs, 2, |ctx, index, key| {
        ctx.shard.expire_on_access(ctx.at(), key);
        ctx.shard.insert(ctx.at(), key, value_of(args, index + 2), ttl);
        if matches!(ttl, Ttl::At(_)) {
            ctx.changed(key, EventClass::Generic, "expire");
        }
        ctx.changed(key, EventClass::String, "set");
    });
    ctx.reply.integer(1);
    Ok(())
}

/// The options behind the pairs.
fn options(args: Args<'_>, from: usize) -> Result<(Condition, DeadlineOption<'_>), CommandError> {
    let (mut condition, mut deadline) = (Condition::Always, DeadlineOption::Unsaid);
    let mut cursor = args.cursor(from);
    while let Some(word) = cursor.maybe_next() {
        if is_word(word, "nx") && condition != Condition::IfAllExist {
            condition = Condition::IfNoneExists;
        } else if is_word(word, "xx") && condition != Condition::IfNoneExists {
            condition = Condition::IfAllExist;
        } else if is_word(word, "keepttl") {
            match deadline {
                DeadlineOption::Unsaid | DeadlineOption::Keep => deadline = DeadlineOption::Keep,
                DeadlineOption::Given(..) | DeadlineOption::Persist => return Err(CommandError::Syntax),
            }
        } else {
            deadline = deadline_option(word, cursor.maybe_next(), deadline)?;
        }
    }
    Ok((condition, deadline))
}
