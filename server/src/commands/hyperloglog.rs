//! HyperLogLog commands (<https://redis.io/docs/latest/commands/?group=hyperloglog>).
//!
//! The value is a string in Redis's own format (`types::hyperloglog`), edited on the spot. PFCOUNT of one key stores the
//! estimate in the value, although it is a read; it does not while another shard reads the value.
//!
//! Departures from Redis:
//! 1. PFSELFTEST adds 100,000 elements, not 10,000,000: it stays within a turn.
//! 2. PFDEBUG SIMD is not there: no choice is offered.

use skerry_resp::reply::Reply;

use crate::access::{Text, text_of};
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Ctx, Flags, Handler, KeyFlags, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, NewValue};
use crate::shard::EventClass;
use crate::types::hyperloglog::{self as hll, Corrupt, DENSE_BYTES, Encoding, N_REGISTERS, Observation, Set};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("pfadd", -2, Handler::Shard(pfadd), "Adds elements to a HyperLogLog.").flags(Flags::DENYOOM.with(Flags::FAST).with(Flags::WRITE)).acl(Acl::HYPERLOGLOG).keys(&[range(KeyFlags::RW.with(KeyFlags::INSERT), 1, 0, 1)]),
    row("pfcount", -2, Handler::Shard(pfcount), "About how many elements were added to one or several HyperLogLogs.").flags(Flags::READONLY).acl(Acl::HYPERLOGLOG).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS), 1, -1, 1).notes("RW because it may change the internal representation of the key, and propagate to replicas")]),
    row("pfmerge", -2, Handler::Shard(pfmerge), "Merges HyperLogLogs into one.").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::HYPERLOGLOG).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::INSERT), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, -1, 1)]),
    row("pfdebug", 3, Handler::Shard(pfdebug), "Shows or changes how a HyperLogLog is stored.").flags(Flags::ADMIN.with(Flags::DENYOOM).with(Flags::WRITE)).acl(Acl::HYPERLOGLOG).keys(&[range(KeyFlags::RW.with(KeyFlags::ACCESS), 2, 0, 1)]),
    row("pfselftest", 1, Handler::Plain(pfselftest), "Tests the HyperLogLog code.").flags(Flags::ADMIN).acl(Acl::HYPERLOGLOG),
];

/// A valid sparse string is never longer: a run has at least one register and at most two bytes.
const SPARSE_MAX_BYTES: usize = hll::HEADER_BYTES + 2 * N_REGISTERS;

impl From<Corrupt> for CommandError {
    fn from(_: Corrupt) -> Self {
        CommandError::text("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// The encoding of the HyperLogLog in a string.
fn encoding_of(text: Text<'_>) -> Result<Encoding, CommandError> {
    text.with_bytes(hll::encoding_of)
        .ok_or(CommandError::text("WRONGTYPE Key is not a valid HyperLogLog string value."))
}

/// Up to how many bytes a sparse string may grow.
fn sparse_max_bytes(ctx: &Ctx<'_>) -> usize {
    usize::try_from(ctx.config.hll_sparse_max_bytes).unwrap_or(usize::MAX).min(SPARSE_MAX_BYTES)
}

/// PFADD key [element ...]
fn pfadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (at, key) = (ctx.at(), ctx.key(args, 1));
    let observations = args.from(2).map(hll::observe);
    let (is_new, encoding) = match ctx.shard.peek_string(at, &key)? {
        None => {
            ctx.keyspace().add(&key, NewValue::Str(&hll::empty()), None);
            (true, Encoding::Sparse)
        }
        Some(text) => {
            let encoding = encoding_of(text)?;
            let is_known = |seen: Observation| {
                text.with_bytes(|bytes| hll::dense_register(bytes, seen.register) >= seen.run)
            };
            // Most elements of a grown set change nothing, and nothing is written for them.
            if encoding == Encoding::Dense && observations.clone().all(is_known) {
                ctx.reply.integer(0);
                return Ok(());
            }
            (false, encoding)
        }
    };
    let is_changed = raise(ctx, &key, encoding, observations)? || is_new;
    if is_changed {
        ctx.keyspace().edit_string(&key, 0, hll::forget_cardinality);
        ctx.changed(&key, EventClass::String, "pfadd");
    }
    ctx.reply.integer(i64::from(is_changed));
    Ok(())
}

/// How far the changes of a sparse string went.
enum Went {
    Through,
    /// From this one on the string has to be dense.
    TooBig(Observation),
    Corrupt,
}

/// Raises registers of the HyperLogLog at a key, which becomes dense on the way if it must; whether any was lower.
fn raise(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    encoding: Encoding,
    observations: impl ExactSizeIterator<Item = Observation> + Clone,
) -> Result<bool, CommandError> {
    let mut observations = observations;
    let mut is_changed = false;
    if encoding == Encoding::Sparse {
        let max_bytes = sparse_max_bytes(ctx);
        let len = ctx.shard.peek_string(ctx.at(), key)?.map_or(0, Text::len);
        let n_spare = max_bytes.saturating_sub(len).min(observations.len().saturating_mul(hll::SPARE_BYTES));
        let went = ctx.keyspace().resize_string(key, n_spare, |buffer, mut len| {
            for seen in observations.by_ref() {
                match hll::set_sparse(buffer, &mut len, max_bytes, seen) {
                    Ok(Set::Unchanged) => {}
                    Ok(Set::Changed) => is_changed = true,
                    Ok(Set::TooBig) => return (len, Went::TooBig(seen)),
                    Err(Corrupt) => return (len, Went::Corrupt),
                }
            }
            (len, Went::Through)
        });
        match went {
            Some(Went::Through) => return Ok(is_changed),
            Some(Went::Corrupt) => return Err(Corrupt.into()),
            Some(Went::TooBig(seen)) => {
                make_dense(ctx, key)?;
                is_changed |= raise_dense(ctx, key, std::iter::once(seen));
            }
            None => return Err(CommandError::WrongType),
        }
    }
    Ok(raise_dense(ctx, key, observations) | is_changed)
}

fn raise_dense(ctx: &mut Ctx<'_>, key: &Key<'_>, observations: impl Iterator<Item = Observation>) -> bool {
    let raised = ctx.keyspace().edit_string(key, 0, |dense| {
        observations.fold(false, |is_changed, seen| is_changed | hll::set_dense(dense, seen))
    });
    raised == Some(true)
}

/// Makes the sparse HyperLogLog at a key dense.
fn make_dense(ctx: &mut Ctx<'_>, key: &Key<'_>) -> Result<(), CommandError> {
    let Some(text) = ctx.shard.peek_string(ctx.at(), key)? else { return Ok(()) };
    let dense = text.with_bytes(hll::densify)?;
    let n_spare = DENSE_BYTES.saturating_sub(text.len());
    ctx.keyspace().resize_string(key, n_spare, |buffer, _| {
        buffer[..DENSE_BYTES].copy_from_slice(&dense);
        (DENSE_BYTES, ())
    });
    Ok(())
}

/// PFCOUNT key [key ...]
fn pfcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        let mut registers = [0; N_REGISTERS];
        merge_keys(ctx, args, &mut registers)?;
        ctx.reply.integer(hll::cardinality_of_registers(&registers) as i64);
        return Ok(());
    }
    let (at, key) = (ctx.at(), ctx.key(args, 1));
    let Some(entry) = ctx.shard.read(at, &key) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let (text, is_held) = (text_of(entry.view())?, entry.is_held());
    let encoding = encoding_of(text)?;
    let cardinality = match text.with_bytes(hll::cached_cardinality) {
        Some(cardinality) => cardinality,
        None => {
            let cardinality = text.with_bytes(|bytes| hll::cardinality(bytes, encoding))?;
            let set = |bytes: &mut [u8]| hll::set_cached_cardinality(bytes, cardinality);
            // None if the value is another shard's, lent for reading.
            if !is_held && ctx.keyspace().edit_string(&key, 0, set).is_some() {
                // No event, but WATCH takes it for a change, as in Redis.
                ctx.touched(&key);
                ctx.shard.stats.dirty += 1;
            }
            cardinality
        }
    };
    ctx.reply.integer(cardinality as i64);
    Ok(())
}

/// Raises `registers` to those of all keys; whether one of them is dense.
fn merge_keys(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    registers: &mut hll::Registers,
) -> Result<bool, CommandError> {
    let (mut is_dense, mut outcome) = (false, Ok(()));
    ctx.for_each_key(args, 1, |ctx, _, key| {
        if outcome.is_ok() {
            outcome = merge_key(ctx, key, registers).map(|encoding| {
                is_dense |= encoding == Some(Encoding::Dense);
            });
        }
    });
    outcome.map(|()| is_dense)
}

fn merge_key(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    registers: &mut hll::Registers,
) -> Result<Option<Encoding>, CommandError> {
    let Some(text) = ctx.shard.read_string(ctx.at(), key)? else { return Ok(None) };
    let encoding = encoding_of(text)?;
    text.with_bytes(|bytes| hll::merge(registers, bytes, encoding))?;
    Ok(Some(encoding))
}

/// The registers of the target and its sources in one pass, if the target is dense and all sources are that are there.
fn merge_dense_keys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Option<Box<hll::Packed>>, CommandError> {
    let at = ctx.at();
    let keys: Vec<Key<'_>> = (1..args.len()).map(|index| ctx.key(args, index)).collect();
    for (nth, key) in keys.iter().enumerate() {
        // Nothing is counted yet: where one is no such string, lookups end with it.
        let is_dense = match ctx.shard.peek_string(at, key) {
            Ok(Some(text)) => text.with_bytes(hll::encoding_of) == Some(Encoding::Dense),
            Ok(None) => nth > 0,
            Err(_) => false,
        };
        if !is_dense {
            return Ok(None);
        }
    }
    let texts = ctx.shard.read_strings(at, &keys)?;
    let bytes = texts.into_iter().filter_map(|text| match text {
        Some(Text::Bytes(bytes)) => Some(bytes),
        Some(Text::Shared(bytes)) => Some(&bytes[..]),
        Some(Text::Int(_)) | None => None,
    });
    Ok(Some(hll::merge_all_dense(&bytes.collect::<Vec<_>>())))
}

/// PFMERGE destkey [sourcekey ...]
fn pfmerge(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    if let Some(merged) = merge_dense_keys(ctx, args)? {
        let target = ctx.key(args, 1);
        ctx.keyspace().edit_string(&target, 0, |dense| {
            dense[hll::HEADER_BYTES..].copy_from_slice(&merged[..]);
            hll::forget_cardinality(dense);
        });
        ctx.changed(&target, EventClass::String, "pfadd");
        ctx.reply.ok();
        return Ok(());
    }
    let mut registers = [0; N_REGISTERS];
    // The target is one of the sources.
    let is_dense = merge_keys(ctx, args, &mut registers)?;
    let (at, target) = (ctx.at(), ctx.key(args, 1));
    let encoding = match ctx.shard.peek_string(at, &target)? {
        Some(text) => encoding_of(text)?,
        None => {
            ctx.keyspace().add(&target, NewValue::Str(&hll::empty()), None);
            Encoding::Sparse
        }
    };
    if is_dense {
        if encoding == Encoding::Sparse {
            make_dense(ctx, &target)?;
        }
        ctx.keyspace().edit_string(&target, 0, |dense| hll::fill_dense(dense, &registers));
    } else {
        let seen: Vec<Observation> = (0..N_REGISTERS as u16)
            .map(|register| Observation { register, run: registers[usize::from(register)] })
            .filter(|seen| seen.run > 0)
            .collect();
        raise(ctx, &target, encoding, seen.iter().copied())?;
    }
    ctx.keyspace().edit_string(&target, 0, hll::forget_cardinality);
    ctx.changed(&target, EventClass::String, "pfadd");
    ctx.reply.ok();
    Ok(())
}

/// PFDEBUG GETREG | DECODE | ENCODING | TODENSE key
fn pfdebug(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (at, key, word) = (ctx.at(), ctx.key(args, 2), args.get(1));
    let Some(text) = ctx.shard.peek_string(at, &key)? else {
        return Err(CommandError::text("ERR The specified key does not exist"));
    };
    let encoding = encoding_of(text)?;
    if is_word(word, "decode") {
        if encoding != Encoding::Sparse {
            return Err(CommandError::text("ERR HLL encoding is not sparse"));
        }
        let runs = text.with_bytes(hll::describe)?;
        ctx.reply.bulk(runs.as_bytes());
    } else if is_word(word, "encoding") {
        ctx.reply.simple(if encoding == Encoding::Dense { "dense" } else { "sparse" });
    } else if is_word(word, "todense") || is_word(word, "getreg") {
        let is_sparse = encoding == Encoding::Sparse;
        if is_sparse {
            make_dense(ctx, &key)?;
            ctx.shard.stats.dirty += 1;
        }
        if is_word(word, "todense") {
            ctx.reply.integer(i64::from(is_sparse));
            return Ok(());
        }
        let mut registers = [0; N_REGISTERS];
        if let Some(text) = ctx.shard.peek_string(at, &key)? {
            text.with_bytes(|dense| hll::merge(&mut registers, dense, Encoding::Dense))?;
        }
        ctx.reply.array(N_REGISTERS);
        registers.iter().for_each(|register| ctx.reply.integer(i64::from(*register)));
    } else {
        let word = String::from_utf8_lossy(word);
        return Err(CommandError::format(format!("ERR Unknown PFDEBUG subcommand '{word}'")));
    }
    Ok(())
}

/// PFSELFTEST: registers keep what they are given, and estimates stay near the truth, the same in both encodings.
fn pfselftest(reply: &mut Reply<'_>, _: Args<'_>) -> Outcome {
    const N_ELEMENTS: u64 = 100_000;
    /// Six deviations of the estimate.
    const ERROR_MAX: f64 = 6.0 * 1.04 / 128.0;
    let failed = |what: &str| Err(CommandError::format(format!("ERR TESTFAILED {what}")));
    let mut dense = hll::densify(&hll::empty())?;
    let run_of = |register: u16| (register % 50) as u8 + 1;
    for register in (0..N_REGISTERS as u16).rev() {
        hll::set_dense(&mut dense, Observation { register, run: run_of(register) });
    }
    if let Some(bad) = (0..N_REGISTERS as u16).find(|&at| hll::dense_register(&dense, at) != run_of(at)) {
        return failed(&format!("Register {bad} should be {}", run_of(bad)));
    }
    let mut dense = hll::densify(&hll::empty())?;
    let (mut sparse, mut len) = ([0; 3000 + hll::SPARE_BYTES], hll::empty().len());
    sparse[..len].copy_from_slice(&hll::empty());
    let (mut is_sparse, mut next_check) = (true, 1);
    for n in 1..=N_ELEMENTS {
        let seen = hll::observe(&(n ^ 0x5bd1_e995_1234_5678).to_le_bytes());
        hll::set_dense(&mut dense, seen);
        is_sparse = is_sparse && hll::set_sparse(&mut sparse, &mut len, 3000, seen)? != Set::TooBig;
        if n != next_check {
            continue;
        }
        next_check *= 10;
        let estimate = hll::cardinality(&dense, Encoding::Dense)?;
        if is_sparse && estimate != hll::cardinality(&sparse[..len], Encoding::Sparse)? {
            return failed("dense/sparse disagree");
        }
        let error = estimate.abs_diff(n);
        if error as f64 > (ERROR_MAX * n as f64).ceil() {
            return failed(&format!("Too big error. card:{n} abserr:{error}"));
        }
    }
    reply.ok();
    Ok(())
}
