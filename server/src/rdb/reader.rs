//! Lengths, strings and numbers of RDB, read from bytes that are believed in nothing.

use std::borrow::Cow;

use super::{Malformed, lzf};

/// No string of a value is longer, as in Redis's default `proto-max-bulk-len`.
const MAX_STRING_BYTES: u64 = 512 << 20;

/// What is left to read.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// A length, or the special encoding of a string.
enum Length {
    Plain(u64),
    Encoded(u8),
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `n` bytes.
    pub(super) fn bytes(&mut self, n: u64) -> Result<&'a [u8], Malformed> {
        let n = usize::try_from(n).map_err(|_| Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next N bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// A number in the form of a length.
    pub(super) fn length(&mut self) -> Result<u64, Malformed> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(Malformed),
        }
    }

    fn length_or_encoding(&mut self) -> Result<Length, Malformed> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(low),
            (1, _) => Length::Plain(low << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            (2, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Encoded(first & 0x3f),
            _ => return Err(Malformed),
        })
    }

    /// A string in any of its encodings.
    pub(super) fn string(&mut self) -> Result<Cow<'a, [u8]>, Malformed> {
        let number = match self.length_or_encoding()? {
            Length::Plain(len) => return self.bytes(len).map(Cow::Borrowed),
            Length::Encoded(0) => i32::from(i8::from_le_bytes(self.array()?)),
            Length::Encoded(1) => i32::from(i16::from_le_bytes(self.array()?)),
            Length::Encoded(2) => i32::from_le_bytes(self.array()?),
            Length::Encoded(3) => {
                let (compressed_len, len) = (self.length()?, self.length()?);
                if len > MAX_STRING_BYTES {
                    return Err(Malformed);
                }
                return lzf::decompress(self.bytes(compressed_len)?, len as usize).map(Cow::Owned);
            }
            Length::Encoded(_) => return Err(Malformed),
        };
        Ok(Cow::Owned(itoa::Buffer::new().format(number).as_bytes().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Compression;
    use super::super::writer::Writer;
    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(
            lengths in proptest::collection::vec(any::<u64>(), 0..10),
            shift in 0..64_u32,
            strings in proptest::collection::vec("-?[0-9]{0,11}|[a-c]{0,60}", 0..10),
        ) {
            let mut writer = Writer::new(Compression::Lzf);
            lengths.iter().for_each(|length| writer.length(length >> shift));
            strings.iter().for_each(|string| writer.string(string.as_bytes()));
            let bytes = writer.into_bytes();
            let mut reader = Reader::new(&bytes);
            for length in lengths {
                prop_assert_eq!(reader.length(), Ok(length >> shift));
            }
            for string in strings {
                let read = reader.string();
                prop_assert_eq!(read.as_deref(), Ok(string.as_bytes()));
            }
            prop_assert!(reader.is_done());
        }

        #[test]
        fn nonsense_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader::new(&bytes);
            while !reader.is_done() && reader.string().is_ok() {}
        }
    }
}
