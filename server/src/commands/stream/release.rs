//! XNACK (Redis 8.8): a consumer gives pending entries back to its group, which then are nobody's.
//!
//! Source: <https://redis.io/docs/latest/commands/xnack/>. DUMP has no place for entries that are nobody's in Redis 8.2's format: they
//! travel as pending for a consumer with an empty name since time 0, so that whoever claims, claims them too.

use super::parse_id;
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::types::stream::{GIVEN_UP, StreamId};

/// What becomes of the number of deliveries.
#[derive(Clone, Copy)]
enum Mode {
    /// One less: this one does not count.
    Silent,
    Fail,
    /// So many that nobody tries again.
    Fatal,
}

struct Release {
    mode: Mode,
    ids: Vec<StreamId>,
    /// RETRYCOUNT
    n_deliveries: Option<u64>,
    /// FORCE: entries that are not pending, too.
    force: bool,
}

impl Release {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let text = CommandError::text;
        let mode = match args.get(3) {
            word if is_word(word, "silent") => Mode::Silent,
            word if is_word(word, "fail") => Mode::Fail,
            word if is_word(word, "fatal") => Mode::Fatal,
            _ => return Err(text("ERR XNACK mode must be SILENT, FAIL, or FATAL")),
        };
        if !is_word(args.get(4), "ids") {
            return Err(text("ERR syntax error, expected IDS keyword"));
        }
        let n = args.integer(5)?;
        let n = usize::try_from(n).ok().filter(|n| *n > 0).ok_or(text("ERR numids must be positive"))?;
        if n > args.len() - 6 {
            return Err(text("ERR number of IDs doesn't match numids"));
        }
        let ids = args.from(6).take(n).map(|text| parse_id(text, 0)).collect::<Result<_, _>>()?;
        let mut release = Self { mode, ids, n_deliveries: None, force: false };
        let mut cursor = args.cursor(6 + n);
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "force") {
                release.force = true;
            } else if is_word(word, "retrycount") && !cursor.is_done() {
                let count = cursor.next_integer()?.try_into();
                release.n_deliveries = Some(count.map_err(|_| text("ERR RETRYCOUNT must be >= 0"))?);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(release)
    }

    /// How often an entry counts as delivered that was so often; none: it was not pending.
    fn n_deliveries_after(&self, before: Option<u64>) -> u64 {
        match (self.n_deliveries, self.mode) {
            (Some(n_deliveries), _) => n_deliveries,
            (None, Mode::Fatal) => GIVEN_UP,
            (None, Mode::Silent) => before.unwrap_or(0).saturating_sub(1),
            (None, Mode::Fail) => before.unwrap_or(0),
        }
    }
}

/// XNACK key group SILENT|FAIL|FATAL IDS n id ... [RETRYCOUNT n] [FORCE]
pub(super) fn xnack(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let release = Release::parse(args)?;
    let (key, at) = (ctx.key(args, 1), ctx.at());
    let group_name = args.get(2);
    let mut n_released = 0;
    if let Some(stream) = ctx.shard.stream_mut(at, &key)?
        && stream.group(group_name).is_some()
    {
        for id in &release.ids {
            let is_there = release.force && stream.find(*id).is_some();
            let Some(group) = stream.group_mut(group_name) else { break };
            let before = group.find_pending(*id).map(|nack| nack.n_deliveries);
            if before.is_some() || is_there {
                group.release(*id, release.n_deliveries_after(before));
                n_released += 1;
            }
        }
    }
    if n_released > 0 {
        ctx.shard.stats.dirty += n_released as u64;
        // Who waits for a group's entries with CLAIM finds these.
        ctx.shard.wake_waiters(at.db, &key);
    }
    ctx.reply.integer(n_released);
    Ok(())
}
