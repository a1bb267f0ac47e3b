//! DEBUG DIGEST's fingerprints of keys and of the whole data, by Redis's scheme: SHA-1 sums, XORed where
//! order does not count and hashed into each other where it does. Two servers with the same data answer the
//! same.
//!
//! A vector set is the exception: its fingerprint is over names, vectors as VEMB tells them and attributes,
//! and is not Redis's.

use sha1_smol::Sha1;
use skerry_vectorset::epoch::Guard;

use crate::keyspace::{EntryRef, View};
use crate::types::Element;
use crate::vector;

/// A fingerprint under construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub [u8; 20]);

impl Digest {
    /// XORs the sum of `bytes` in: order does not count.
    pub fn xor(&mut self, bytes: &[u8]) {
        self.xor_sum(Sha1::from(bytes).digest().bytes());
    }

    /// XORs a sum in.
    pub fn xor_sum(&mut self, sum: [u8; 20]) {
        for (own, other) in self.0.iter_mut().zip(sum) {
            *own ^= other;
        }
    }

    /// Mixes `bytes` in: order counts.
    pub fn mix(&mut self, bytes: &[u8]) {
        self.xor(bytes);
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    /// Forty hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Adds a value, and that it has a deadline. False if the value is away.
    pub fn add_value(&mut self, entry: EntryRef<'_>) -> bool {
        let mut digits = itoa::Buffer::new();
        match entry.view() {
            View::Int(value) => {
                self.add_type(0);
                self.mix(digits.format(value).as_bytes());
            }
            View::Str(bytes) => {
                self.add_type(0);
                self.mix(bytes);
            }
            View::Shared(bytes) => {
                self.add_type(0);
                self.mix(bytes);
            }
            View::List(list) => {
                self.add_type(1);
                list.iter().for_each(|element| self.mix(text(&element, &mut digits)));
            }
            View::Set(set) => {
                self.add_type(2);
                set.iter().for_each(|member| self.xor(text(&member, &mut digits)));
            }
            View::Hash(hash) => {
                self.add_type(4);
                for (field, value) in hash.iter() {
                    let mut pair = Digest::default();
                    pair.mix(text(&field, &mut digits));
                    pair.mix(text(&value, &mut digits));
                    self.xor(&pair.0);
                }
            }
            View::Zset(zset) => {
                self.add_type(3);
                for (member, score) in zset.iter() {
                    let mut pair = Digest::default();
                    pair.mix(text(&member, &mut digits));
                    pair.mix(seventeen_digits(score).as_bytes());
                    self.xor(&pair.0);
                }
            }
            View::Vector(vector) => {
                self.add_type(5);
                vector::with_reader(|guard, _| self.add_vector_set(&vector.handle.set, guard));
            }
            View::Lent => return false,
        }
        if entry.has_ttl() {
            self.xor(b"!!expire!!");
        }
        true
    }

    /// Redis's number of a type.
    fn add_type(&mut self, number: u32) {
        self.mix(&number.to_be_bytes());
    }

    fn add_vector_set(&mut self, set: &skerry_vectorset::VectorSet, guard: &Guard) {
        for name in (0..set.len()).filter_map(|index| set.member(index, guard)) {
            let mut element = Digest::default();
            element.mix(name);
            for component in set.vector(name, guard).unwrap_or_default() {
                element.mix(&component.to_be_bytes());
            }
            element.mix(set.attribute(name, guard).unwrap_or_default());
            self.xor(&element.0);
        }
    }
}

/// C's `%.17g`, which is what Redis mixes in for a score.
fn seventeen_digits(score: f64) -> String {
    const DIGITS: i32 = 17;
    if score.is_infinite() {
        return if score > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{score:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        trimmed(&format!("{score:.*}", (DIGITS - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

fn text<'a>(element: &'a Element<'a>, digits: &'a mut itoa::Buffer) -> &'a [u8] {
    element.as_bytes(digits)
}

#[cfg(test)]
mod tests {
    use super::seventeen_digits;

    #[test]
    fn scores_are_printed_as_c_prints_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.10000000000000001"),
            (1e17, "1e+17"),
            (12_345_678_901_234_567.0, "12345678901234568"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
            (1.5e300, "1.5000000000000001e+300"),
        ];
        for (score, text) in cases {
            assert_eq!(seventeen_digits(score), text);
        }
    }
}
