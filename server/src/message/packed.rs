//! What a message carries packed: keys, names and pairs of numbers, read as they are asked for.

use super::Reader;
use crate::client::ClientId;
use crate::shard::DbIndex;

/// Offsets in a reply: a bulk's bytes belong behind as many bytes of it.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a>(pub(super) &'a [u8]);

impl Iterator for Places<'_> {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let (place, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*place) as usize)
    }
}

/// Length-prefixed keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader::new(self.0);
        let len = reader.u32() as usize;
        let key = reader.take(len);
        self.0 = &self.0[reader.at..];
        Some(key)
    }
}

/// Names of clients.
#[derive(Debug, Clone, Copy)]
pub struct ClientIds<'a>(pub(super) &'a [u8]);

impl Iterator for ClientIds<'_> {
    type Item = ClientId;
    fn next(&mut self) -> Option<ClientId> {
        let (id, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(ClientId(u64::from_le_bytes(*id)))
    }
}

/// (key index, database) pairs.
#[derive(Debug, Clone, Copy)]
pub struct Loans<'a>(pub(super) &'a [u8]);

impl Iterator for Loans<'_> {
    type Item = (u32, DbIndex);
    fn next(&mut self) -> Option<(u32, DbIndex)> {
        let (pair, rest) = self.0.split_first_chunk::<6>()?;
        self.0 = rest;
        Some((
            u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]),
            DbIndex(u16::from_le_bytes([pair[4], pair[5]])),
        ))
    }
}

/// (database, key) pairs.
#[derive(Debug, Clone, Copy)]
pub struct Changes<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Changes<'a> {
    type Item = (DbIndex, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader::new(self.0);
        let db = DbIndex(reader.u16());
        let len = reader.u32() as usize;
        let key = reader.take(len);
        self.0 = &self.0[reader.at..];
        Some((db, key))
    }
}
