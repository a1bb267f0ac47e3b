//! Comparing a string with what a client believes of it: DELEX and DIGEST, and the conditions of SET (Redis 8.4).
//!
//! A digest is XXH3 of the string, 64 bits, as 16 hexadecimal digits; of a digest that a client sends, only the length is
//! checked, and that only where there is a string to compare with, as in Redis.

use twox_hash::XxHash3_64;

use crate::access::Text;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("delex", -2, Handler::Shard(delex), "Deletes a key if its string is, or is not, as told.").flags(Flags::FAST.with(Flags::WRITE)).acl(Acl::STRING).keys(&[range(KeyFlags::RW.with(KeyFlags::DELETE).with(KeyFlags::VARIABLE_FLAGS), 1, 0, 1)]),
    row("digest", 2, Handler::Shard(digest), "The XXH3 digest of a string.").flags(Flags::FAST.with(Flags::READONLY)).acl(Acl::STRING).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
];

const DIGEST_DIGITS: usize = 16;

/// How a string is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    Unequal,
    DigestEqual,
    DigestUnequal,
}

impl Test {
    /// The test that an option word names.
    pub(super) fn named(word: &[u8]) -> Option<Test> {
        let words = [
            ("ifeq", Test::Equal),
            ("ifne", Test::Unequal),
            ("ifdeq", Test::DigestEqual),
            ("ifdne", Test::DigestUnequal),
        ];
        words.iter().find(|(name, _)| is_word(word, name)).map(|(_, test)| *test)
    }
}

/// A test and what the string is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueCondition<'a> {
    pub(super) test: Test,
    pub(super) operand: &'a [u8],
}

impl ValueCondition<'_> {
    /// Whether it holds for a string, or for the absence of one.
    pub(super) fn holds(&self, text: Option<Text<'_>>) -> Result<bool, CommandError> {
        let Some(text) = text else {
            return Ok(matches!(self.test, Test::Unequal | Test::DigestUnequal));
        };
        match self.test {
            Test::Equal => Ok(text.with_bytes(|bytes| bytes == self.operand)),
            Test::Unequal => Ok(text.with_bytes(|bytes| bytes != self.operand)),
            Test::DigestEqual => self.is_digest_of(text),
            Test::DigestUnequal => self.is_digest_of(text).map(|is_digest| !is_digest),
        }
    }

    fn is_digest_of(&self, text: Text<'_>) -> Result<bool, CommandError> {
        if self.operand.len() != DIGEST_DIGITS {
            return Err(CommandError::text("ERR must be exactly 16 hexadecimal characters"));
        }
        Ok(digest_of(text).as_bytes().eq_ignore_ascii_case(self.operand))
    }
}

fn digest_of(text: Text<'_>) -> String {
    let hash = text.with_bytes(XxHash3_64::oneshot);
    format!("{hash:0DIGEST_DIGITS$x}")
}

/// DIGEST key
fn digest(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let key = ctx.key(args, 1);
    match ctx.shard.read_string(ctx.at(), &key)? {
        Some(text) => ctx.reply.bulk(digest_of(text).as_bytes()),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]
fn delex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (at, key) = (ctx.at(), ctx.key(args, 1));
    let is_deleted = match args.len() {
        2 => ctx.shard.peek(at, &key).is_some(),
        4 => match ctx.shard.read(at, &key) {
            None => false,
            Some(entry) => {
                let text = crate::access::text_of(entry.view()).map_err(|_| {
                    CommandError::text("ERR Key should be of string type if conditions are specified")
                })?;
                let test = Test::named(args.get(2))
                    .ok_or(CommandError::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
                ValueCondition { test, operand: args.get(3) }.holds(Some(text))?
            }
        },
        _ => return Err(CommandError::WrongArity("delex")),
    };
    if is_deleted {
        ctx.shard.remove(at, &key);
        ctx.changed(&key, EventClass::Generic, "del");
    }
    ctx.reply.integer(i64::from(is_deleted));
    Ok(())
}
