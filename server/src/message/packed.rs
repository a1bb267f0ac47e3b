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

/// Keys, each with the client that has changed it if one did.
#[derive(Debug, Clone, Copy)]
pub struct WrittenKeys<'a>(pub &'a [u8]);

impl WrittenKeys<'_> {
    /// No client has this name.
    const NOBODY: u64 = u64::MAX;

    pub fn put(out: &mut Vec<u8>, key: &[u8], writer: Option<ClientId>) {
        out.extend_from_slice(&writer.map_or(Self::NOBODY, |writer| writer.0).to_le_bytes());
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
    }
}

impl<'a> Iterator for WrittenKeys<'a> {
    type Item = (&'a [u8], Option<ClientId>);
    fn next(&mut self) -> Option<Self::Item> {
        let (writer, rest) = self.0.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        self.0 = rest;
        let writer = Some(u64::from_le_bytes(*writer)).filter(|writer| *writer != Self::NOBODY);
        Some((key, writer.map(ClientId)))
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
