//! LCS: what two strings have in common, in order.
//!
//! Redis's table of four bytes a cell must fit `proto-max-bulk-len`, or it refuses; so does this, though it needs a bit a cell
//! (`types::lcs`). A search of more than a turn's worth copies or shares the strings and goes on between turns.

use bytes::Bytes;
use skerry_resp::reply::Reply;

use crate::access::{Text, text_of};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, Job, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::types::lcs::{Lcs, Wanted};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("lcs", -3, Handler::Shard(lcs), "The longest common subsequence of two strings.").flags(Flags::READONLY).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 1, 1)]),
];

/// Steps of a nanosecond or two that a search does in one go.
const SLICE_STEPS: usize = 300_000;
/// What a cell of Redis's table takes.
const CELL_BYTES: u128 = 4;

/// What the reply shows of the search.
#[derive(Clone, Copy)]
struct Shown {
    wanted: Wanted,
    min_match_bytes: usize,
    with_match_len: bool,
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
fn lcs(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let a = string(ctx, args, 1);
    let b = string(ctx, args, 2);
    let (a, b) = (a?, b?);
    let shown = Shown::parse(args)?;
    if a.len().max(b.len()) >= u32::MAX as usize - 1 {
        return Err(CommandError::text("ERR String too long for LCS"));
    }
    let cells = (a.len() as u128 + 1) * (b.len() as u128 + 1);
    if cells * CELL_BYTES > u128::from(ctx.config.proto_max_bulk_len) {
        return Err(CommandError::text(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let mut search = Lcs::new(a, b, shown.wanted);
    if search.n_steps() <= SLICE_STEPS {
        while !search.advance(SLICE_STEPS) {}
        shown.show(&search, &mut ctx.reply);
    } else {
        ctx.job = Some(Box::new(LcsJob { search, shown }));
    }
    Ok(())
}

/// The string at a key, to be kept; an absent one is empty.
fn string(ctx: &mut Ctx<'_>, args: Args<'_>, index: usize) -> Result<Bytes, CommandError> {
    let key = ctx.key(args, index);
    let Some(entry) = ctx.shard.read(ctx.at(), &key) else { return Ok(Bytes::new()) };
    match text_of(entry.view()) {
        Ok(Text::Shared(bytes)) => Ok(bytes.clone()),
        Ok(text) => Ok(text.with_bytes(Bytes::copy_from_slice)),
        Err(_) => Err(CommandError::text("ERR The specified keys must contain string values")),
    }
}

impl Shown {
    fn parse(args: Args<'_>) -> Result<Shown, CommandError> {
        let (mut is_length, mut is_ranges) = (false, false);
        let (mut min_match_bytes, mut with_match_len) = (0, false);
        let mut cursor = args.cursor(3);
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "idx") {
                is_ranges = true;
            } else if is_word(word, "len") {
                is_length = true;
            } else if is_word(word, "withmatchlen") {
                with_match_len = true;
            } else if is_word(word, "minmatchlen") && !cursor.is_done() {
                min_match_bytes = cursor.next_integer()?.max(0) as usize;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let wanted = match (is_length, is_ranges) {
            (true, true) => {
                return Err(CommandError::text(
                    "ERR If you want both the length and indexes, please just use IDX.",
                ));
            }
            (true, false) => Wanted::Length,
            (false, true) => Wanted::Ranges,
            (false, false) => Wanted::Text,
        };
        Ok(Shown { wanted, min_match_bytes, with_match_len })
    }

    fn show(&self, search: &Lcs, reply: &mut Reply<'_>) {
        match self.wanted {
            Wanted::Length => reply.integer(search.length() as i64),
            Wanted::Text => reply.bulk(search.text()),
            Wanted::Ranges => {
                let is_long = |found: &&crate::types::lcs::Match| found.n_bytes() >= self.min_match_bytes;
                let matches = || search.matches().iter().filter(is_long);
                reply.map(2);
                reply.bulk(b"matches");
                reply.array(matches().count());
                for found in matches() {
                    reply.array(2 + usize::from(self.with_match_len));
                    for (first, last) in [found.a, found.b] {
                        reply.array(2);
                        reply.integer(first as i64);
                        reply.integer(last as i64);
                    }
                    if self.with_match_len {
                        reply.integer(found.n_bytes() as i64);
                    }
                }
                reply.bulk(b"len");
                reply.integer(search.length() as i64);
            }
        }
    }
}

/// A long search, which needs neither key any more.
struct LcsJob {
    search: Lcs,
    shown: Shown,
}

impl Job for LcsJob {
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError> {
        let is_done = self.search.advance(SLICE_STEPS);
        if is_done {
            self.shown.show(&self.search, &mut ctx.reply);
        }
        Ok(is_done)
    }
}
