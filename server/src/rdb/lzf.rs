//! LZF, the compression of RDB's strings (Marc Lehmann's liblzf, format only).
//!
//! ```text
//!   000LLLLL              L + 1 literal bytes follow
//!   LLLooooo oooooooo     L + 2 bytes (L of 1 to 6) from `o + 1` bytes back
//!   111ooooo LLLLLLLL oooooooo     L + 9 bytes from there
//! ```
//!
//! No maintained crate has it. What is decompressed is a client's: lengths and distances are checked, and the output
//! grows with what is really there.

use super::Malformed;

const MAX_LITERALS: usize = 1 << 5;
const MAX_DISTANCE: usize = 1 << 13;
const MIN_MATCH: usize = 3;
const MAX_MATCH: usize = 7 + 255 + 2;
const HASH_BITS: u32 = 13;

/// The compressed form if it has at most `limit` bytes.
pub(super) fn compress(bytes: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit.min(bytes.len()));
    // The place after the last one where three bytes of this hash stood.
    let mut places = vec![0_u32; 1 << HASH_BITS];
    let (mut at, mut literals_from) = (0, 0);
    while at + MIN_MATCH <= bytes.len() {
        let place = &mut places[hash_of(bytes, at)];
        let before = std::mem::replace(place, u32::try_from(at + 1).ok()?) as usize;
        let matched = match before.checked_sub(1) {
            Some(before) if at - before <= MAX_DISTANCE => match_len(bytes, before, at),
            _ => 0,
        };
        if matched < MIN_MATCH {
            at += 1;
            continue;
        }
        push_literals(&mut out, &bytes[literals_from..at]);
        push_match(&mut out, at - (before - 1) - 1, matched - 2);
        at += matched;
        literals_from = at;
        if out.len() > limit {
            return None;
        }
    }
    push_literals(&mut out, &bytes[literals_from..]);
    (out.len() <= limit).then_some(out)
}

fn hash_of(bytes: &[u8], at: usize) -> usize {
    let word = u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

fn match_len(bytes: &[u8], before: usize, at: usize) -> usize {
    let pairs = bytes[at..].iter().zip(&bytes[before..]).take(MAX_MATCH);
    pairs.take_while(|(a, b)| a == b).count()
}

fn push_literals(out: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(MAX_LITERALS) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

fn push_match(out: &mut Vec<u8>, offset: usize, len: usize) {
    let high = (offset >> 8) as u8;
    if len < 7 {
        out.push((len as u8) << 5 | high);
    } else {
        out.push(7 << 5 | high);
        out.push((len - 7) as u8);
    }
    out.push(offset as u8);
}

/// What was compressed; it has exactly `len` bytes.
pub(super) fn decompress(compressed: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    let mut input = compressed.iter();
    while let Some(control) = input.next() {
        let control = usize::from(*control);
        if control < MAX_LITERALS {
            let (literals, rest) = input.as_slice().split_at_checked(control + 1).ok_or(Malformed)?;
            out.extend_from_slice(literals);
            input = rest.iter();
        } else {
            let mut matched = (control >> 5) + 2;
            if control >> 5 == 7 {
                matched += usize::from(*input.next().ok_or(Malformed)?);
            }
            let low = usize::from(*input.next().ok_or(Malformed)?);
            let distance = ((control & 0x1f) << 8 | low) + 1;
            let from = out.len().checked_sub(distance).ok_or(Malformed)?;
            // The match may reach into what it makes.
            (from..from + matched).for_each(|at| out.push(out[at]));
        }
        if out.len() > len {
            return Err(Malformed);
        }
    }
    if out.len() == len { Ok(out) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            bytes in proptest::collection::vec(0..4_u8, 0..3000),
            repeated in proptest::collection::vec(any::<u8>(), 1..300),
            times in 1..50_usize,
        ) {
            for bytes in [bytes, repeated.repeat(times)] {
                if let Some(compressed) = compress(&bytes, bytes.len() + bytes.len() / 32 + 1) {
                    prop_assert_eq!(decompress(&compressed, bytes.len()), Ok(bytes.clone()));
                    prop_assert!(decompress(&compressed, bytes.len() + 1).is_err());
                }
            }
        }

        #[test]
        fn nonsense_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), len in 0..1000_usize) {
            if let Ok(out) = decompress(&bytes, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }

    /// Compressed by Redis 8.2.3.
    #[test]
    fn what_redis_compressed() {
        assert_eq!(decompress(b"\x01aa\xe0\x57\x00\x01aa", 100).as_deref(), Ok(&[b'a'; 100][..]));
    }

    #[test]
    fn distances_and_lengths_at_their_limits() {
        let mut bytes = vec![0; MAX_DISTANCE * 2 + MAX_MATCH * 3];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = if i % MAX_DISTANCE < 600 { b'x' } else { (i * i / 8) as u8 };
        }
        let compressed = compress(&bytes, bytes.len()).expect("it is repetitive");
        assert_eq!(decompress(&compressed, bytes.len()).as_deref(), Ok(&bytes[..]));
    }
}
