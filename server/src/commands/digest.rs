//! DEBUG DIGEST's fingerprints of keys and of the whole data, by Redis's scheme: SHA-1 sums, XORed where
//! order does not count and hashed into each other where it does. Two servers with the same data answer the
//! same.
//!
//! A vector set's is over the stored bytes. Two servers that normalise the same vector to other last bits differ; one that
//! was dumped here and restored there does not.

use sha1_smol::Sha1;
use skerry_resp::number::{FloatText, format_shortest};
use skerry_vectorset::epoch::Guard;

use crate::keyspace::{EntryRef, View};
use crate::types::Element;
use crate::types::stream::StreamId;
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
                for ((field, value), deadline_ms) in hash.timed_iter() {
                    let mut pair = Digest::default();
                    pair.mix(text(&field, &mut digits));
                    pair.mix(text(&value, &mut digits));
                    if deadline_ms.is_some() {
                        pair.xor(b"!!hexpire!!");
                    }
                    self.xor(&pair.0);
                }
            }
            View::Zset(zset) => {
                self.add_type(3);
                for (member, score) in zset.iter() {
                    let mut pair = Digest::default();
                    pair.mix(text(&member, &mut digits));
                    pair.mix(format_shortest(score, &mut FloatText::new()));
                    self.xor(&pair.0);
                }
            }
            View::Stream(stream) => {
                self.add_type(6);
                for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                    self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                    entry.for_each_field(|field, value| {
                        self.mix(text(&field, &mut digits));
                        self.mix(text(&value, &mut digits));
                    });
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
        let mut digits = itoa::Buffer::new();
        let mut sum = Digest::default();
        let mut header = Digest::default();
        header.mix(digits.format(set.len()).as_bytes());
        header.mix(digits.format(set.params().dim).as_bytes());
        sum.xor(&header.0);
        for name in (0..set.len()).filter_map(|index| set.member(index, guard)) {
            let mut element = Digest::default();
            if let Some(raw) = set.raw(name, guard) {
                element.mix(&raw.blob);
            }
            element.mix(name);
            if let Some(attribute) = set.attribute(name, guard) {
                element.mix(attribute);
            }
            sum.xor(&element.0);
        }
        self.xor(&sum.0);
    }
}

fn text<'a>(element: &'a Element<'a>, digits: &'a mut itoa::Buffer) -> &'a [u8] {
    element.as_bytes(digits)
}
