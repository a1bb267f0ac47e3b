//! Bits of strings against vectors of booleans.

use std::ops::Range;

use proptest::prelude::*;

use super::super::bitmap::{self, Field, Operation};

/// Bytes with stretches of clear and of set bits, as bitmaps have them.
fn string() -> impl Strategy<Value = Vec<u8>> {
    let stretch = prop_oneof![
        3 => (prop_oneof![Just(0u8), Just(0xff)], 0..150_usize).prop_map(|(byte, n)| vec![byte; n]),
        2 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(stretch, 0..5).prop_map(|stretches| stretches.concat())
}

fn bits_of(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1 == 1)).collect()
}

fn bytes_of(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect()
}

/// A range within `n` bits.
fn range_within(n: usize, (a, b): (usize, usize)) -> Range<usize> {
    let (a, b) = (a % (n + 1), b % (n + 1));
    a.min(b)..a.max(b)
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{And, AndOr, Diff, Diff1, Not, One, Or, Xor};
    prop::sample::select(vec![And, Or, Xor, Not, Diff, Diff1, AndOr, One])
}

/// A bit of the result, by the words of the command's page.
fn combined(operation: Operation, bits: &[bool]) -> bool {
    let (x, others) = (bits[0], bits[1..].iter().any(|bit| *bit));
    let n_set = bits.iter().filter(|bit| **bit).count();
    match operation {
        Operation::And => n_set == bits.len(),
        Operation::Or => n_set > 0,
        Operation::Xor => n_set % 2 == 1,
        Operation::Not => !x,
        Operation::Diff => x && !others,
        Operation::Diff1 => others && !x,
        Operation::AndOr => x && others,
        Operation::One => n_set == 1,
    }
}

proptest! {
    #[test]
    fn counts(bytes in string(), range: (usize, usize)) {
        let bits = bits_of(&bytes);
        let n_set = |bits: &[bool]| bits.iter().filter(|bit| **bit).count() as u64;
        prop_assert_eq!(bitmap::count_ones(&bytes), n_set(&bits));
        prop_assert_eq!(bitmap::count_ones_plain(&bytes), n_set(&bits));
        // Long enough for blocks of the widest vectors, with a rest behind them.
        prop_assert_eq!(bitmap::count_ones(&bytes.repeat(7)), 7 * n_set(&bits));
        let range = range_within(bits.len(), range);
        prop_assert_eq!(bitmap::count_ones_in(&bytes, range.clone()), n_set(&bits[range]));
    }

    #[test]
    fn positions(bytes in string(), range: (usize, usize), wanted: bool) {
        let bits = bits_of(&bytes);
        let range = range_within(bits.len(), range);
        let found = range.clone().find(|at| bits[*at] == wanted);
        prop_assert_eq!(bitmap::position(&bytes, range, wanted), found);
    }

    #[test]
    fn operations(operation in operation(), sources in prop::collection::vec(string(), 1..5)) {
        let n_bits = sources.iter().map(|source| source.len() * 8).max().unwrap_or(0);
        let bits: Vec<Vec<bool>> = sources.iter().map(|source| bits_of(source)).collect();
        let sources = match operation {
            Operation::Not => &sources[..1],
            _ => &sources[..],
        };
        let n_bits = if operation == Operation::Not { sources[0].len() * 8 } else { n_bits };
        let at = |nth: usize| -> Vec<bool> {
            bits[..sources.len()].iter().map(|bits| bits.get(nth).copied().unwrap_or(false)).collect()
        };
        let expected: Vec<bool> = (0..n_bits).map(|nth| combined(operation, &at(nth))).collect();
        let sources: Vec<&[u8]> = sources.iter().map(|source| &source[..]).collect();
        prop_assert_eq!(bitmap::combine(operation, &sources), bytes_of(&expected));
        let mut plain = vec![0; n_bits / 8];
        bitmap::combine_plain(operation, &sources, &mut plain);
        prop_assert_eq!(plain, bytes_of(&expected));
    }

    #[test]
    fn long_operations(operation in operation(), lens in prop::collection::vec(0..20_000_usize, 1..4), seed: u64) {
        let mut random = super::bits_from(seed);
        let sources: Vec<Vec<u8>> =
            lens.iter().map(|len| (0..*len).map(|_| random() as u8).collect()).collect();
        let sources = if operation == Operation::Not { &sources[..1] } else { &sources[..] };
        let sources: Vec<&[u8]> = sources.iter().map(|source| &source[..]).collect();
        let result = bitmap::combine(operation, &sources);
        // Enough of the bits to meet every seam of the blocks.
        for at in (0..result.len()).step_by(97).chain(result.len().saturating_sub(9)..result.len()) {
            for bit in 0..8 {
                let bits: Vec<bool> = sources
                    .iter()
                    .map(|source| source.get(at).is_some_and(|byte| byte >> bit & 1 == 1))
                    .collect();
                prop_assert_eq!(result[at] >> bit & 1 == 1, combined(operation, &bits), "byte {}", at);
            }
        }
    }

    #[test]
    fn fields(bytes in string(), offset in 0..1000_usize, n_bits in 1..=64_u32, value: u64) {
        let field = Field { offset, n_bits };
        let mut bytes = bytes;
        let bits = bits_of(&bytes);
        let bit = |at: usize| bits.get(at).copied().unwrap_or(false);
        let places = offset..offset + n_bits as usize;
        let old = places.clone().fold(0_u64, |value, at| value << 1 | u64::from(bit(at)));
        prop_assert_eq!(field.unsigned(&bytes), old);
        let sign = if bit(offset) { i128::from(old) - (1 << n_bits) } else { i128::from(old) };
        prop_assert_eq!(i128::from(field.signed(&bytes)), sign);
        bytes.resize(bytes.len().max(field.end_byte()), 0);
        let mut expected = bits_of(&bytes);
        for (nth, at) in places.rev().enumerate() {
            expected[at] = value >> nth & 1 == 1;
        }
        field.put(&mut bytes, value);
        prop_assert_eq!(bytes, bytes_of(&expected));
    }
}
