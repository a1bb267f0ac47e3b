//! The forms a value takes: [`NewValue`] on its way in, [`Object`] where it lives outside its entry, [`View`] when read.
//!
//! A new type of value is a variant of `Object`, one of `View`, and an arm in each of the few matches below.

use bytes::Bytes;
use skerry_resp::number::parse_i64;

use super::entry::Alias;
use super::loose::Loose;
use crate::types::{Hash, List, Set, Stream, Zset};
use crate::vector::VectorValue;

/// A longer string value lives outside the entry.
pub const INLINE_BYTES: usize = 16 * 1024;

/// A value that is not a short string: two tags and a pointer, none of which is aligned.
pub enum Object {
    /// A string of more than [`INLINE_BYTES`], shared with the sockets that still send it.
    Shared(Loose<Bytes>),
    List(List),
    Set(Set),
    Hash(Hash),
    Zset(Zset),
    Stream(Loose<Stream>),
    Vector(Loose<VectorValue>),
    /// The value of an entry of another shard, lent for reading.
    Alias(Alias),
}

const _: () = assert!(size_of::<Object>() == 10 && align_of::<Object>() == 1);
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Object>(); // Entries, which own objects, travel between shards.
};

impl Object {
    /// Frees about `budget` elements; true when the rest costs nothing to drop.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match self {
            Object::Shared(_) => true,
            Object::List(list) => list.free_slice(budget),
            Object::Set(set) => set.free_slice(budget),
            Object::Hash(hash) => hash.free_slice(budget),
            Object::Zset(zset) => zset.free_slice(budget),
            Object::Stream(stream) => stream.free_slice(budget),
            Object::Vector(vector) => vector.free_slice(budget),
            Object::Alias(_) => true,
        }
    }

    /// Asks the cache for what a command on a small value touches below the entry, one level of pointers per `wave`;
    /// whether another level follows.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        match self {
            Object::List(list) => list.prefetch(wave),
            Object::Set(set) => set.prefetch(wave),
            Object::Hash(hash) => hash.prefetch(wave),
            Object::Zset(zset) => zset.prefetch(wave),
            Object::Shared(_) | Object::Stream(_) | Object::Vector(_) | Object::Alias(_) => false,
        }
    }

    /// Bytes allocated below the entry. A shared string counts in full.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Object::Shared(bytes) => size_of::<Bytes>() + bytes.len(),
            Object::List(list) => list.memory_bytes(),
            Object::Set(set) => set.memory_bytes(),
            Object::Hash(hash) => hash.memory_bytes(),
            Object::Zset(zset) => zset.memory_bytes(),
            Object::Stream(stream) => stream.memory_bytes(),
            Object::Vector(vector) => size_of::<VectorValue>() + vector.memory_bytes(),
            Object::Alias(_) => 0,
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        match self {
            Object::Shared(bytes) => View::Shared(bytes),
            Object::List(list) => View::List(list),
            Object::Set(set) => View::Set(set),
            Object::Hash(hash) => View::Hash(hash),
            Object::Zset(zset) => View::Zset(zset),
            Object::Stream(stream) => View::Stream(stream),
            Object::Vector(vector) => View::Vector(vector),
            Object::Alias(alias) => alias.target().view(),
        }
    }
}

/// What a key holds.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// A string that is a canonical integer (`OBJECT ENCODING` int).
    Int(i64),
    /// A string of at most [`INLINE_BYTES`].
    Str(&'a [u8]),
    /// A longer string, to be shared instead of copied.
    Shared(&'a Bytes),
    List(&'a List),
    Set(&'a Set),
    Hash(&'a Hash),
    Zset(&'a Zset),
    Stream(&'a Stream),
    Vector(&'a VectorValue),
    /// The value is away: another shard works on it.
    Lent,
}

/// A value on its way into an entry.
pub enum NewValue<'a> {
    /// A string, copied as it is; [`NewValue::of_bytes`] tells integers apart.
    Str(&'a [u8]),
    Int(i64),
    /// A string of more than [`INLINE_BYTES`] that the caller owns already (a shorter one is copied).
    Shared(Bytes),
    Object(Object),
}

impl<'a> NewValue<'a> {
    /// A string as Redis stores it: as an integer if it is the canonical decimal form of an i64.
    #[inline]
    pub fn of_bytes(bytes: &'a [u8]) -> NewValue<'a> {
        parse_i64(bytes).map_or(NewValue::Str(bytes), NewValue::Int)
    }
}
