//! Libraries of functions in Redis's serialised form: FUNCTION DUMP and FUNCTION RESTORE.
//!
//! ```text
//!   payload:  (opcode 245 | text of a library as a string) ... | version (2, LE) | CRC-64 of all before it (8, LE)
//! ```

use std::borrow::Cow;

use super::reader::Reader;
use super::writer::Writer;
use super::{Compression, FOOTER_LEN, WRONG_FOOTER, check_footer, crc64, sealed};
use crate::error::CommandError;

/// A library of Redis 7 and later.
const LIBRARY: u8 = 245;
/// The same as versions before 7.0 was finished wrote it.
const LIBRARY_OLD: u8 = 246;

/// The payload of libraries, by their texts.
pub fn dump_libraries<'a>(texts: impl Iterator<Item = &'a [u8]>, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(compression);
    for text in texts {
        writer.byte(LIBRARY);
        writer.string(text);
    }
    let mut sum = crc64::sum();
    sum.update(writer.written());
    sealed(writer, sum)
}

/// The texts of the libraries in a payload whose footer is right, one after the other.
pub struct LibraryTexts<'a> {
    reader: Reader<'a>,
}

impl<'a> LibraryTexts<'a> {
    pub fn of(payload: &'a [u8]) -> Result<Self, CommandError> {
        let body_len = payload.len().checked_sub(FOOTER_LEN).ok_or(WRONG_FOOTER)?;
        let mut sum = crc64::sum();
        sum.update(&payload[..body_len + 2]);
        check_footer(&payload[body_len..], sum)?;
        Ok(Self { reader: Reader::new(&payload[..body_len]) })
    }

    fn text(&mut self) -> Result<Cow<'a, [u8]>, CommandError> {
        match self.reader.byte() {
            Ok(LIBRARY) => {}
            Ok(LIBRARY_OLD) => return Err(CommandError::text("ERR Pre-GA function format not supported")),
            _ => return Err(CommandError::text("ERR given type is not a function")),
        }
        self.reader.string().map_err(|_| CommandError::text("ERR Failed loading library payload"))
    }
}

impl<'a> Iterator for LibraryTexts<'a> {
    type Item = Result<Cow<'a, [u8]>, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_done() { None } else { Some(self.text()) }
    }
}
