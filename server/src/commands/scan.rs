//! HSCAN, SSCAN and ZSCAN: one walk for the three; and the options of all four. SCAN itself, which walks the shards, is in `generic`.
//!
//! A cursor is a place of the value's table and nothing else; a small encoding is shown whole in one call. What COUNT asks
//! for is cut to a bounded part, so that no call stops a worker: its caller goes on with the cursor.

use skerry_resp::number::{FloatText, format_17g, format_f64, parse_u64};

use crate::access::{At, reply_element};
use crate::args::{Args, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::glob::{Case, glob_match};
use crate::keyspace::{Key, ScanPosition};
use crate::shard::Shard;
use crate::types::{Digits, Element};

/// Elements that one call looks at, at most.
const ELEMENTS_MAX: usize = 4096;
/// What a call without COUNT looks at.
const DEFAULT_COUNT: usize = 10;
/// Places that a call looks at for each element that COUNT asks for.
pub(super) const STEPS_PER_ELEMENT: usize = 10;

/// What an element has beside it.
pub(super) enum Beside<'a> {
    Nothing,
    Value(Element<'a>),
    Score(f64),
    /// A score as Redis shows it out of a skiplist: with `%.17g`.
    LongScore(f64),
}

/// What a command of the four walks, which says what words it knows beside MATCH and COUNT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    /// SCAN: TYPE.
    Keys,
    /// HSCAN: NOVALUES.
    Fields,
    /// SSCAN and ZSCAN: none.
    Members,
}

/// The words behind the cursor.
pub(super) struct Options<'a> {
    pub(super) pattern: Option<&'a [u8]>,
    pub(super) type_name: Option<&'a [u8]>,
    pub(super) count: usize,
    without_values: bool,
}

impl<'a> Options<'a> {
    /// Reads the arguments from `first` on.
    pub(super) fn parse(args: Args<'a>, first: usize, walked: Walked) -> Result<Self, CommandError> {
        let mut options =
            Self { pattern: None, type_name: None, count: DEFAULT_COUNT, without_values: false };
        let mut cursor = args.cursor(first);
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "count") {
                options.count = match cursor.next_integer()? {
                    count if count < 1 => return Err(CommandError::Syntax),
                    count => count as usize,
                };
            } else if is_word(word, "match") {
                options.pattern = Some(cursor.value()?);
            } else if walked == Walked::Keys && is_word(word, "type") {
                options.type_name = Some(cursor.value()?);
            } else if is_word(word, "novalues") {
                if walked != Walked::Fields {
                    return Err(CommandError::text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.without_values = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

/// Looks the collection up and walks a part of it. `step` shows a few elements from a place on and answers the next place.
pub(super) fn scan_collection<C: ?Sized>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    walked: Walked,
    read: for<'s> fn(&'s mut Shard, At, &Key<'_>) -> Result<Option<&'s C>, CommandError>,
    step: impl for<'c> Fn(&'c C, ScanPosition, &mut dyn FnMut(Element<'c>, Beside<'c>)) -> ScanPosition,
) -> Outcome {
    let cursor = parse_u64(args.get(2)).ok_or(CommandError::InvalidCursor)?;
    let key = ctx.key(args, 1);
    let Some(collection) = read(ctx.shard, ctx.at(), &key)? else {
        ctx.reply.array(2);
        ctx.reply.bulk(b"0");
        ctx.reply.array(0);
        return Ok(());
    };
    let options = Options::parse(args, 3, walked)?;
    let n_wanted = options.count.min(ELEMENTS_MAX);
    let (mut shown, mut n_seen) = (Vec::new(), 0);
    let mut at = ScanPosition(cursor);
    for _ in 0..n_wanted * STEPS_PER_ELEMENT {
        at = step(collection, at, &mut |element, beside| {
            n_seen += 1;
            let mut digits = Digits::new();
            let is_shown = options
                .pattern
                .is_none_or(|pattern| glob_match(pattern, element.as_bytes(&mut digits), Case::Sensitive));
            if is_shown {
                shown.push((element, beside));
            }
        });
        if at.0 == 0 || n_seen >= n_wanted {
            break;
        }
    }
    ctx.reply.array(2);
    let mut digits = Digits::new();
    ctx.reply.bulk(digits.format(at.0).as_bytes());
    let is_pair = |beside: &Beside<'_>| !options.without_values && !matches!(beside, Beside::Nothing);
    let n_pairs = shown.iter().filter(|(_, beside)| is_pair(beside)).count();
    ctx.reply.array(shown.len() + n_pairs);
    for (element, beside) in shown {
        reply_element(element, &mut ctx.reply);
        match beside {
            Beside::Value(value) if !options.without_values => reply_element(value, &mut ctx.reply),
            // A score among strings is a bulk in both protocols.
            Beside::Score(score) => ctx.reply.bulk(format_f64(score, &mut FloatText::new())),
            Beside::LongScore(score) => ctx.reply.bulk(format_17g(score).as_bytes()),
            Beside::Value(_) | Beside::Nothing => {}
        }
    }
    Ok(())
}
