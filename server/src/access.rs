//! How handlers reach values: typed lookups on a shard, with Redis's bookkeeping (exact expiry on access, hits and misses,
//! WRONGTYPE). Methods of `Shard`, so that a handler's `ctx.reply` stays free while it holds what it found.
//!
//! ```text
//!   read_*   counts a hit or a miss; for commands that answer with the value
//!   *_mut    no count; for commands that change the value; `*_or_new` creates it
//!   peek     no count at all, and no mark of use: for commands that look at a key and not at its value
//! ```
//!
//! All but `peek` mark the key as used, unless the caller's connection is one that leaves no marks (CLIENT NO-TOUCH).

use bytes::Bytes;

use crate::command::Strings;
use crate::error::CommandError;
use crate::keyspace::{
    Entry, EntryMut, EntryRef, INLINE_BYTES, Key, Loose, NewValue, Object, Stored, Touch, Ttl, View,
};
use crate::output::MIN_PLACED_BYTES;
use crate::shard::{DbIndex, EventClass, Shard};
use crate::types::aggregate::Source;
use crate::types::{Element, Hash, List, Set, Stream, Zset};
use skerry_resp::reply::Reply;

/// Keys that are fetched from memory together.
const PREFETCH_WAVE: usize = 32;

/// Where and when a handler looks: the caller's database and the command's one `now`.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub db: DbIndex,
    pub now_ms: i64,
    pub touch: Touch,
}

/// A string value as it is stored.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    /// A long one.
    Shared(&'a Bytes),
}

impl Text<'_> {
    /// As a bulk string.
    #[inline]
    pub fn reply(self, reply: &mut Reply<'_>, strings: &mut Strings<'_>) {
        match self {
            Text::Int(value) => reply.bulk_integer(value),
            Text::Bytes(bytes) => reply.bulk(bytes),
            Text::Shared(bytes) => reply_part(bytes, bytes, reply, strings),
        }
    }

    /// Calls `use_bytes` with the digits or the bytes.
    pub fn with_bytes<R>(self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Text::Int(value) => use_bytes(itoa::Buffer::new().format(value).as_bytes()),
            Text::Bytes(bytes) => use_bytes(bytes),
            Text::Shared(bytes) => use_bytes(bytes),
        }
    }

    pub fn len(self) -> usize {
        self.with_bytes(<[u8]>::len)
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A part of a long string as a bulk: shared if it is long and its way to the socket allows it, else copied.
#[cold]
pub fn reply_part(whole: &Bytes, part: &[u8], reply: &mut Reply<'_>, strings: &mut Strings<'_>) {
    match strings {
        Some(strings) if part.len() >= MIN_PLACED_BYTES => {
            reply.bulk_header(part.len());
            strings.push((reply.out().len(), whole.slice_ref(part)));
            reply.raw(b"\r\n");
        }
        Some(_) | None => reply.bulk(part),
    }
}

/// An element of a collection, as a bulk string.
#[inline]
pub fn reply_element(element: Element<'_>, reply: &mut Reply<'_>) {
    match element {
        Element::Integer(value) => reply.bulk_integer(value),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// The string in a view, or WRONGTYPE.
#[inline]
pub fn text_of(view: View<'_>) -> Result<Text<'_>, CommandError> {
    match view {
        View::Int(value) => Ok(Text::Int(value)),
        View::Str(bytes) => Ok(Text::Bytes(bytes)),
        View::Shared(bytes) => Ok(Text::Shared(bytes)),
        View::List(_)
        | View::Set(_)
        | View::Hash(_)
        | View::Zset(_)
        | View::Stream(_)
        | View::Vector(_)
        | View::Lent => Err(CommandError::WrongType),
    }
}

macro_rules! typed {
    ($type:ident, $read:ident, $edit:ident, $edit_or_new:ident) => {
        /// The living value of `key`, for reading; counts a hit or a miss.
        #[inline]
        pub fn $read(&mut self, at: At, key: &Key<'_>) -> Result<Option<&$type>, CommandError> {
            match self.read(at, key).map(EntryRef::view) {
                None => Ok(None),
                Some(View::$type(value)) => Ok(Some(value)),
                Some(_) => Err(CommandError::WrongType),
            }
        }

        /// The living value of `key`, for change.
        #[inline]
        pub fn $edit(&mut self, at: At, key: &Key<'_>) -> Result<Option<&mut $type>, CommandError> {
            match self.edit(at, key) {
                None => Ok(None),
                Some(entry) => match entry.into_object_mut() {
                    Some(Object::$type(value)) => Ok(Some(value)),
                    _ => Err(CommandError::WrongType),
                },
            }
        }

        /// The same with one probe, made of `new` if the key is absent. The caller puts something in: no key is left empty.
        #[inline]
        pub fn $edit_or_new(
            &mut self,
            at: At,
            key: &Key<'_>,
            new: impl FnOnce() -> $type,
        ) -> Result<&mut $type, CommandError> {
            self.expire_on_access(at, key);
            let new = || NewValue::Object(Object::$type(new()));
            match self.keyspace(at.db).get_or_insert(key, new).into_object_mut() {
                Some(Object::$type(value)) => Ok(value),
                _ => Err(CommandError::WrongType),
            }
        }
    };
}

impl Shard {
    /// Removes `key` if it is past its deadline.
    #[inline]
    pub fn expire_on_access(&mut self, at: At, key: &Key<'_>) {
        let keyspace = self.keyspace(at.db);
        if keyspace.n_expires() > 0 && keyspace.is_expired(key, at.now_ms) {
            self.remove_expired(at, key);
        }
    }

    #[cold]
    fn remove_expired(&mut self, at: At, key: &Key<'_>) {
        self.remove_dead_or_alive(at.db, key);
        self.stats.expired_keys += 1;
        self.changed(at.db, key.bytes, EventClass::Expired, "expired");
    }

    /// The living entry of `key`; counts nothing.
    #[inline]
    pub fn peek(&mut self, at: At, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.expire_on_access(at, key);
        self.keyspace(at.db).peek(key)
    }

    /// The living entry of `key`; counts a hit or a miss.
    #[inline]
    pub fn read(&mut self, at: At, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.expire_on_access(at, key);
        let (keyspace, mut lookups) = self.keyspace_and_lookups(at.db);
        let entry = match at.touch {
            Touch::Marks => keyspace.touch(key),
            Touch::LeavesNoMark => keyspace.peek(key),
        };
        match entry {
            Some(_) => lookups.hit(),
            None => lookups.miss(key.bytes),
        }
        entry
    }

    /// The same where nobody is told of a miss (OBJECT).
    pub fn read_untold(&mut self, at: At, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.expire_on_access(at, key);
        let (keyspace, mut lookups) = self.keyspace_and_lookups(at.db);
        let entry = keyspace.peek(key);
        match entry {
            Some(_) => lookups.hit(),
            None => lookups.miss_untold(),
        }
        entry
    }

    /// The same for commands that look at the key and not at its value: it is not marked as used.
    #[inline]
    pub fn read_unmarked(&mut self, at: At, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.read(At { touch: Touch::LeavesNoMark, ..at }, key)
    }

    /// The living entry of `key`, for change on the spot.
    #[inline]
    pub fn edit(&mut self, at: At, key: &Key<'_>) -> Option<EntryMut<'_>> {
        self.expire_on_access(at, key);
        let keyspace = self.keyspace(at.db);
        match at.touch {
            Touch::Marks => keyspace.touch_mut(key),
            Touch::LeavesNoMark => keyspace.get_mut(key),
        }
    }

    /// The living string of `key`; counts a hit or a miss.
    #[inline]
    pub fn read_string(&mut self, at: At, key: &Key<'_>) -> Result<Option<Text<'_>>, CommandError> {
        self.read(at, key).map(|entry| text_of(entry.view())).transpose()
    }

    /// The living string of `key`; counts nothing.
    #[inline]
    pub fn peek_string(&mut self, at: At, key: &Key<'_>) -> Result<Option<Text<'_>>, CommandError> {
        self.peek(at, key).map(|entry| text_of(entry.view())).transpose()
    }

    typed!(List, read_list, list_mut, list_or_new);
    typed!(Set, read_set, set_mut, set_or_new);
    typed!(Hash, read_hash, hash_mut, hash_or_new);
    typed!(Zset, read_zset, zset_mut, zset_or_new);

    /// The living stream of `key`, for reading; counts a hit or a miss.
    #[inline]
    pub fn read_stream(&mut self, at: At, key: &Key<'_>) -> Result<Option<&Stream>, CommandError> {
        match self.read(at, key).map(EntryRef::view) {
            None => Ok(None),
            Some(View::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    /// The living stream of `key`, for change.
    #[inline]
    pub fn stream_mut(&mut self, at: At, key: &Key<'_>) -> Result<Option<&mut Stream>, CommandError> {
        match self.edit(at, key) {
            None => Ok(None),
            Some(entry) => match entry.into_object_mut() {
                Some(Object::Stream(stream)) => Ok(Some(stream)),
                _ => Err(CommandError::WrongType),
            },
        }
    }

    /// The same with one probe, made if the key is absent.
    pub fn stream_or_new(&mut self, at: At, key: &Key<'_>) -> Result<&mut Stream, CommandError> {
        self.expire_on_access(at, key);
        let new = || NewValue::Object(Object::Stream(Loose::new(Stream::default())));
        match self.keyspace(at.db).get_or_insert(key, new).into_object_mut() {
            Some(Object::Stream(stream)) => Ok(stream),
            _ => Err(CommandError::WrongType),
        }
    }

    /// The living sets of `keys`, in their order, for reading; counts hits and misses.
    pub fn read_sets(&mut self, at: At, keys: &[Key<'_>]) -> Result<Vec<Option<&Set>>, CommandError> {
        self.read_all(at, keys, |view| if let View::Set(set) = view { Some(set) } else { None })
    }

    /// The living strings of `keys`, in their order, for reading; counts hits and misses.
    pub fn read_strings(&mut self, at: At, keys: &[Key<'_>]) -> Result<Vec<Option<Text<'_>>>, CommandError> {
        self.read_all(at, keys, |view| text_of(view).ok())
    }

    /// The living sorted sets and sets of `keys`, in their order, for reading; counts hits and misses.
    pub fn read_sources(
        &mut self,
        at: At,
        keys: &[Key<'_>],
    ) -> Result<Vec<Option<Source<'_>>>, CommandError> {
        self.read_all(at, keys, |view| match view {
            View::Set(set) => Some(Source::Set(set)),
            View::Zset(zset) => Some(Source::Zset(zset)),
            _ => None,
        })
    }

    /// What `wanted` makes of the living values of `keys`, or WRONGTYPE where it makes nothing of one.
    fn read_all<'s, T>(
        &'s mut self,
        at: At,
        keys: &[Key<'_>],
        wanted: impl Fn(View<'s>) -> Option<T>,
    ) -> Result<Vec<Option<T>>, CommandError> {
        for keys in keys.chunks(PREFETCH_WAVE) {
            let keyspace = self.keyspace(at.db);
            keys.iter().for_each(|key| keyspace.prefetch_bucket(key.hash));
            keys.iter().for_each(|key| keyspace.prefetch_entry(key.hash));
            for key in keys {
                self.expire_on_access(at, key);
                if at.touch == Touch::Marks {
                    self.keyspace(at.db).touch(key);
                }
            }
        }
        let (keyspace, mut lookups) = self.keyspace_and_lookups(at.db);
        let keyspace: &'s _ = keyspace;
        let read = |key: &Key<'_>| match keyspace.peek(key).map(EntryRef::view) {
            None => {
                lookups.miss(key.bytes);
                Ok(None)
            }
            Some(view) => {
                lookups.hit();
                wanted(view).map(Some).ok_or(CommandError::WrongType)
            }
        };
        keys.iter().map(read).collect()
    }

    /// Gives `key` a value, whatever it held. Reports nothing: the handler knows the event.
    #[inline]
    pub fn insert(&mut self, at: At, key: &Key<'_>, value: NewValue<'_>, ttl: Ttl) -> Stored {
        self.keyspace(at.db).set(key, value, ttl)
    }

    /// Gives `key` a string and no deadline, whatever it held. Its encoding is raw, however short it is. Reports nothing.
    pub fn insert_raw(&mut self, at: At, key: &Key<'_>, bytes: Vec<u8>) {
        self.expire_on_access(at, key);
        if bytes.len() > INLINE_BYTES {
            self.insert(at, key, NewValue::Shared(bytes.into()), Ttl::Clear);
        } else {
            self.insert(at, key, NewValue::Str(&bytes), Ttl::Clear);
            self.keyspace(at.db).edit_string(key, 0, |_| ());
        }
    }

    /// Removes a living key; whether there was one. Big values are freed in slices. Reports nothing.
    pub fn remove(&mut self, at: At, key: &Key<'_>) -> bool {
        self.expire_on_access(at, key);
        self.remove_dead_or_alive(at.db, key)
    }

    /// Removes a key, past its deadline or not; whether there was one. Reports nothing.
    pub fn remove_dead_or_alive(&mut self, db: DbIndex, key: &Key<'_>) -> bool {
        let keyspace = self.keyspace(db);
        match keyspace.remove(key) {
            Some(entry) => {
                keyspace.discard(entry);
                true
            }
            None => false,
        }
    }

    /// Takes a living key's entry out (RENAME, MOVE).
    pub fn take_entry(&mut self, at: At, key: &Key<'_>) -> Option<Entry> {
        self.expire_on_access(at, key);
        self.keyspace(at.db).remove(key)
    }
}
