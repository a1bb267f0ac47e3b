//! Lengths, strings and numbers of RDB, written as Redis writes them.

use super::{Compression, lzf};

/// Shorter strings are not worth compressing, as in Redis.
const MIN_COMPRESSED: usize = 21;
/// What compression has to win.
const MIN_GAIN: usize = 4;
/// Longer strings are not looked at as integers: a 32-bit one has eleven bytes at most.
const MAX_INTEGER_LEN: usize = 11;

pub(super) struct Writer {
    out: Vec<u8>,
    compression: Compression,
}

impl Writer {
    pub(super) fn new(compression: Compression) -> Self {
        Self { out: Vec::new(), compression }
    }

    /// What is written so far.
    pub(super) fn written(&self) -> &[u8] {
        &self.out
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    /// Bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A number in the form of a length.
    pub(super) fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.out.push(length as u8),
            0x40..0x4000 => self.out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.out.push(0x80);
                self.out.extend_from_slice(&(length as u32).to_be_bytes());
            }
            _ => {
                self.out.push(0x81);
                self.out.extend_from_slice(&length.to_be_bytes());
            }
        }
    }

    /// A string: as a small integer if it is the canonical form of one, compressed if that is shorter.
    pub(super) fn string(&mut self, bytes: &[u8]) {
        if let Some(number) = small_integer(bytes) {
            return self.integer(number);
        }
        if self.compression == Compression::Lzf
            && bytes.len() >= MIN_COMPRESSED
            && let Some(compressed) = lzf::compress(bytes, bytes.len() - MIN_GAIN)
        {
            self.out.push(0xc3);
            self.length(compressed.len() as u64);
            self.length(bytes.len() as u64);
            self.out.extend_from_slice(&compressed);
            return;
        }
        self.plain_string(bytes);
    }

    /// A string byte by byte: for what no encoding makes shorter.
    pub(super) fn plain_string(&mut self, bytes: &[u8]) {
        self.length(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// The same, its bytes made one after the other.
    pub(super) fn plain_string_of(&mut self, len: usize, bytes: impl Iterator<Item = u8>) {
        self.length(len as u64);
        let start = self.out.len();
        self.out.extend(bytes);
        debug_assert_eq!(self.out.len() - start, len);
    }

    fn integer(&mut self, number: i32) {
        if let Ok(number) = i8::try_from(number) {
            self.out.push(0xc0);
            self.out.extend_from_slice(&number.to_le_bytes());
        } else if let Ok(number) = i16::try_from(number) {
            self.out.push(0xc1);
            self.out.extend_from_slice(&number.to_le_bytes());
        } else {
            self.out.push(0xc2);
            self.out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn small_integer(bytes: &[u8]) -> Option<i32> {
    if bytes.len() > MAX_INTEGER_LEN {
        return None;
    }
    skerry_resp::number::parse_i64(bytes).and_then(|number| i32::try_from(number).ok())
}
