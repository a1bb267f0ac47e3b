//! The sparse form of a HyperLogLog: runs of registers, changed on the spot.
//!
//! ```text
//!  00nnnnnn             n + 1 registers of zero
//!  01nnnnnn nnnnnnnn    n + 1 registers of zero
//!  1vvvvvnn             n + 1 registers of v + 1
//! ```
//!
//! Which runs are split and which are joined shows in the bytes, so both follow Redis's rules exactly: the run that covers the
//! register is cut in up to three, then runs of equal values are joined among the next five from the one before it.
//! `find` walks 32 runs at a time where no run is two bytes long; `find_plain` is its twin.

use super::{Corrupt, HEADER_BYTES, N_REGISTERS, Observation, forget_cardinality};

/// The registers of an empty HyperLogLog: one run.
pub(super) const ALL_ZERO: [u8; 2] = long_zeros(N_REGISTERS);
/// By how much one change can lengthen the string.
pub const SPARE_BYTES: usize = 3;
const MAX_RUN: u8 = 32;
const MAX_VALUE_LEN: usize = 4;
const MAX_SHORT_ZEROS: usize = 64;
/// Runs that are looked at for joining.
const JOIN_WINDOW: usize = 5;

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    /// The register was as high already.
    Unchanged,
    Changed,
    /// The change does not fit: the string is to become dense, and the change is to be made there.
    TooBig,
}

/// A run as it is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    ShortZeros(usize),
    LongZeros(usize),
    Value(u8, usize),
}

impl Run {
    /// The run at `at`; a long one that is cut off is corrupt.
    #[inline]
    fn read(bytes: &[u8], at: usize) -> Result<Run, Corrupt> {
        let byte = bytes[at];
        match byte >> 6 {
            0 => Ok(Run::ShortZeros(usize::from(byte) + 1)),
            1 => {
                let low = *bytes.get(at + 1).ok_or(Corrupt)?;
                Ok(Run::LongZeros((usize::from(byte & 0x3f) << 8 | usize::from(low)) + 1))
            }
            _ => Ok(Run::Value((byte >> 2 & 0x1f) + 1, usize::from(byte & 3) + 1)),
        }
    }

    /// Registers.
    fn len(self) -> usize {
        match self {
            Run::ShortZeros(len) | Run::LongZeros(len) | Run::Value(_, len) => len,
        }
    }

    fn n_bytes(self) -> usize {
        match self {
            Run::ShortZeros(_) | Run::Value(..) => 1,
            Run::LongZeros(_) => 2,
        }
    }

    fn value(self) -> u8 {
        match self {
            Run::ShortZeros(_) | Run::LongZeros(_) => 0,
            Run::Value(value, _) => value,
        }
    }
}

const fn long_zeros(len: usize) -> [u8; 2] {
    let n = len - 1;
    [0x40 | (n >> 8) as u8, n as u8]
}

fn value_run(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

/// Shows all runs: the first register, how many, and what they hold. They must cover the registers exactly.
pub(super) fn for_each_run(runs: &[u8], mut visit: impl FnMut(usize, usize, u8)) -> Result<(), Corrupt> {
    let (mut at, mut first) = (0, 0);
    while at < runs.len() {
        let run = Run::read(runs, at)?;
        if first + run.len() > N_REGISTERS {
            return Err(Corrupt);
        }
        visit(first, run.len(), run.value());
        at += run.n_bytes();
        first += run.len();
    }
    if first == N_REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// The runs as PFDEBUG DECODE shows them: `z:` and `Z:` with a length, `v:` with value and length.
pub fn describe(sparse: &[u8]) -> Result<String, Corrupt> {
    use std::fmt::Write;
    let mut text = String::new();
    let mut at = HEADER_BYTES;
    while at < sparse.len() {
        let run = Run::read(sparse, at)?;
        let separator = if text.is_empty() { "" } else { " " };
        _ = match run {
            Run::ShortZeros(len) => write!(text, "{separator}z:{len}"),
            Run::LongZeros(len) => write!(text, "{separator}Z:{len}"),
            Run::Value(value, len) => write!(text, "{separator}v:{value},{len}"),
        };
        at += run.n_bytes();
    }
    Ok(text)
}

/// The run that covers a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    at: usize,
    /// The run before it, if there is one.
    before: Option<usize>,
    /// Its first register.
    first: usize,
}

/// Raises a register of the sparse string `buffer[..*len]`, which may grow by [`SPARE_BYTES`] but not beyond `max_bytes`.
/// The buffer has room for that.
pub fn set(
    buffer: &mut [u8],
    len: &mut usize,
    max_bytes: usize,
    Observation { register, run: value }: Observation,
) -> Result<Set, Corrupt> {
    if value > MAX_RUN {
        return Ok(Set::TooBig);
    }
    let index = usize::from(register);
    let found = find(&buffer[..*len], index)?;
    let run = Run::read(&buffer[..*len], found.at)?;
    if run.value() >= value {
        return Ok(Set::Unchanged);
    }
    if run.len() == 1 && run.n_bytes() == 1 {
        buffer[found.at] = value_run(value, 1);
    } else {
        let (cut, n_cut) = cut(run, index - found.first, value);
        let old = run.n_bytes();
        if n_cut > old && *len + n_cut - old > max_bytes {
            return Ok(Set::TooBig);
        }
        buffer.copy_within(found.at + old..*len, found.at + n_cut);
        buffer[found.at..found.at + n_cut].copy_from_slice(&cut[..n_cut]);
        *len = *len + n_cut - old;
    }
    join(buffer, len, found.before.unwrap_or(HEADER_BYTES));
    forget_cardinality(buffer);
    Ok(Set::Changed)
}

/// `run` with its register `nth` raised to `value`: up to three runs in five bytes.
fn cut(run: Run, nth: usize, value: u8) -> ([u8; 5], usize) {
    let (mut bytes, mut n) = ([0; 5], 0);
    let push_rest = |bytes: &mut [u8; 5], n: &mut usize, len: usize| match run {
        _ if len == 0 => {}
        Run::Value(old, _) => {
            bytes[*n] = value_run(old, len);
            *n += 1;
        }
        Run::ShortZeros(_) | Run::LongZeros(_) if len > MAX_SHORT_ZEROS => {
            bytes[*n..*n + 2].copy_from_slice(&long_zeros(len));
            *n += 2;
        }
        Run::ShortZeros(_) | Run::LongZeros(_) => {
            bytes[*n] = (len - 1) as u8;
            *n += 1;
        }
    };
    push_rest(&mut bytes, &mut n, nth);
    bytes[n] = value_run(value, 1);
    n += 1;
    push_rest(&mut bytes, &mut n, run.len() - nth - 1);
    (bytes, n)
}

/// Joins neighbours of equal value from `at` on, as far as the window goes. A join is another look at the same place.
fn join(buffer: &mut [u8], len: &mut usize, mut at: usize) {
    for _ in 0..JOIN_WINDOW {
        if at >= *len {
            return;
        }
        match buffer[at] >> 6 {
            0 => at += 1,
            1 => at += 2,
            _ => {
                let (one, next) = (buffer[at], buffer.get(at + 1).copied().filter(|_| at + 1 < *len));
                // Equal in all but their lengths, so both are values.
                if let Some(next) = next.filter(|next| one >> 2 == next >> 2) {
                    let n = usize::from(one & 3) + usize::from(next & 3) + 2;
                    if n <= MAX_VALUE_LEN {
                        buffer[at] = one & !3 | (n - 1) as u8;
                        buffer.copy_within(at + 2..*len, at + 1);
                        *len -= 1;
                        continue;
                    }
                }
                at += 1;
            }
        }
    }
}

/// How many runs are walked over together.
const BLOCK: usize = 32;

/// The run that covers register `index`.
fn find(sparse: &[u8], index: usize) -> Result<Found, Corrupt> {
    let (mut at, mut before, mut first) = (HEADER_BYTES, None, 0);
    while let Some(block) = sparse[at..].first_chunk::<BLOCK>() {
        match registers_of(block) {
            Some(n) if first + n <= index => {
                at += BLOCK;
                before = Some(at - 1);
                first += n;
            }
            Some(_) => break,
            // Run by run to the block's end, which a long one may pass.
            None => {
                let end = at + BLOCK;
                while at < end {
                    let run = Run::read(sparse, at)?;
                    if index < first + run.len() {
                        return Ok(Found { at, before, first });
                    }
                    before = Some(at);
                    at += run.n_bytes();
                    first += run.len();
                }
            }
        }
    }
    find_plain(sparse, index, Found { at, before, first })
}

/// The same from a run on that is known.
fn find_plain(sparse: &[u8], index: usize, from: Found) -> Result<Found, Corrupt> {
    let Found { mut at, mut before, mut first } = from;
    while at < sparse.len() {
        let run = Run::read(sparse, at)?;
        if index < first + run.len() {
            return Ok(Found { at, before, first });
        }
        before = Some(at);
        at += run.n_bytes();
        first += run.len();
    }
    Err(Corrupt)
}

/// Registers of a block of runs, unless one of them is two bytes long. Without a branch, so that it becomes vector code.
#[inline]
fn registers_of(block: &[u8; BLOCK]) -> Option<usize> {
    let (mut has_long, mut n) = (false, 0u16);
    for &byte in block {
        has_long |= byte & 0xc0 == 0x40;
        let mask = if byte & 0x80 != 0 { 3 } else { 0x3f };
        n += u16::from(byte & mask);
    }
    (!has_long).then_some(usize::from(n) + BLOCK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn find_is_its_plain_twin(
            runs in prop::collection::vec(prop_oneof![4 => 0x80u8.., 4 => 0u8..0x40, 1 => 0x40u8..0x80], 0..200),
            index in 0..N_REGISTERS,
        ) {
            let sparse = [&[0; HEADER_BYTES][..], &runs].concat();
            let start = Found { at: HEADER_BYTES, before: None, first: 0 };
            prop_assert_eq!(find(&sparse, index), find_plain(&sparse, index, start));
        }
    }
}
