//! `Entry`: key, value, time to live and access clock of one key, in one allocation.
//!
//! ```text
//!                                  v what the table points to
//!  (value_len 4 | capacity 4)       meta 4 | key_len 4 | [deadline 8 | next 8 | prev 8] | key | value
//!  (...)    only of a string, whose allocation may be larger than it, so that it may grow into the rest
//!  meta     kind 2 bits | raw 1 | has ttl 1 | held 1 | 3 free | access clock 24
//!  [...]    only with a time to live; the two links belong to the expiry index
//!  value    Str: the bytes, right after the key     Int: 8 bytes, aligned to 8     Object: 10 bytes, right after the key
//!           Lent: nothing
//! ```
//!
//! Invariants: the key never changes; the allocation is a size class of the allocator in full: a string's is `capacity`, others'
//! the class of what their parts add up to; the kind says which value is initialised; strings of more than [`INLINE_BYTES`]
//! are an `Object::Shared`.
//! It knows neither table nor expiry index: who moves or frees an entry that is in either must tell them. The keyspace
//! does, so nothing public here moves an entry that is borrowed.
//! Cost: 16 bytes over key and value of a string: a 16-byte key with a 64-byte value has 96 bytes, a class without waste. A
//! collection's or an integer's key of up to 14 bytes has 32 altogether.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use bytes::Bytes;

use super::access_clock::AccessClock;
use super::expire::Node;
use super::loose::Loose;
use super::object::{INLINE_BYTES, NewValue, Object, View};
use super::table::{TableEntry, prefetch};
use crate::alloc::good_size;
use crate::types::List;

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    meta: u32,
    key_len: u32,
}

/// What stands before a string's header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sizes {
    value_len: u32,
    capacity: u32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const SIZES_BYTES: usize = size_of::<Sizes>();
const NODE_BYTES: usize = size_of::<Node>();
/// Cache lines about a string's end that are fetched ahead of an append.
const LINES_AHEAD: usize = 6;
const KIND: u32 = 0b11;
const RAW: u32 = 1 << 2;
const HAS_TTL: u32 = 1 << 3;
const HELD: u32 = 1 << 4;
const CLOCK_SHIFT: u32 = 8;
/// Flags that stay with the key when its value is replaced.
const STICKY: u32 = HELD | u32::MAX << CLOCK_SHIFT;
const _: () = assert!(NODE_BYTES == 3 * HAS_TTL as usize && HEADER_BYTES == 8 && SIZES_BYTES == 8);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Int = 0,
    Str = 1,
    Object = 2,
    Lent = 3,
}

impl Kind {
    #[inline(always)]
    fn of(meta: u32) -> Kind {
        match meta & KIND {
            0 => Kind::Int,
            1 => Kind::Str,
            2 => Kind::Object,
            _ => Kind::Lent,
        }
    }
}

#[inline(always)]
fn key_offset(meta: u32) -> usize {
    HEADER_BYTES + (meta & HAS_TTL) as usize * 3
}

#[inline(always)]
fn value_offset(meta: u32, key_len: usize) -> usize {
    let end = key_offset(meta) + key_len;
    match Kind::of(meta) {
        Kind::Int => end.next_multiple_of(8),
        Kind::Str | Kind::Object | Kind::Lent => end,
    }
}

/// Bytes of the allocation before the header.
#[inline(always)]
fn header_offset(meta: u32) -> usize {
    if Kind::of(meta) == Kind::Str { SIZES_BYTES } else { 0 }
}

/// Bytes of an allocation of this kind for a key and a value.
#[inline(always)]
fn n_allocated(meta: u32, key_len: usize, value_len: usize) -> usize {
    good_size(header_offset(meta) + value_offset(meta, key_len) + value_len)
}

/// A value in the form in which it is written.
pub(super) enum Payload<'a> {
    Int(i64),
    Str(&'a [u8]),
    Short(Bytes),
    Object(Object),
    Lent,
}

impl<'a> Payload<'a> {
    #[inline]
    pub(super) fn of(value: NewValue<'a>) -> Payload<'a> {
        let shared = |bytes| Payload::Object(Object::Shared(Loose::new(bytes)));
        match value {
            NewValue::Int(value) => Payload::Int(value),
            NewValue::Str(bytes) if bytes.len() <= INLINE_BYTES => Payload::Str(bytes),
            NewValue::Str(bytes) => shared(Bytes::copy_from_slice(bytes)),
            NewValue::Shared(bytes) if bytes.len() > INLINE_BYTES => shared(bytes),
            NewValue::Shared(bytes) => Payload::Short(bytes),
            NewValue::Object(object) => Payload::Object(object),
        }
    }

    /// The object, if it is one.
    #[inline]
    pub(super) fn object(&self) -> Option<&Object> {
        match self {
            Payload::Object(object) => Some(object),
            Payload::Int(_) | Payload::Str(_) | Payload::Short(_) | Payload::Lent => None,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Payload::Int(_) => Kind::Int,
            Payload::Str(_) | Payload::Short(_) => Kind::Str,
            Payload::Object(_) => Kind::Object,
            Payload::Lent => Kind::Lent,
        }
    }

    fn len(&self) -> usize {
        match self {
            Payload::Int(_) => size_of::<i64>(),
            Payload::Str(bytes) => bytes.len(),
            Payload::Short(bytes) => bytes.len(),
            Payload::Object(_) => size_of::<Object>(),
            Payload::Lent => 0,
        }
    }
}

/// An entry, shared for reading.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    header: NonNull<Header>,
    borrows: PhantomData<&'a Header>,
}

impl<'a> EntryRef<'a> {
    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: alive and unchanged for 'a, see `Entry::as_ref` and `TableEntry::borrow`.
        unsafe { self.header.as_ref() }
    }

    /// The place of what lies at `offset`, one of the offsets computed above.
    #[inline(always)]
    fn at<T>(self, offset: usize) -> *const T {
        // SAFETY: the offset lies inside the allocation.
        unsafe { self.header.cast::<u8>().add(offset).as_ptr().cast() }
    }

    #[inline(always)]
    fn value<T>(self) -> *const T {
        self.at(value_offset(self.header().meta, self.header().key_len as usize))
    }

    /// Of a string.
    #[inline(always)]
    fn sizes(self) -> Sizes {
        debug_assert!(Kind::of(self.header().meta) == Kind::Str);
        // SAFETY: they stand before the header if the kind says so, written by `allocate`.
        unsafe { self.header.cast::<Sizes>().sub(1).read() }
    }

    #[inline(always)]
    fn value_len(self) -> usize {
        match Kind::of(self.header().meta) {
            Kind::Str => self.sizes().value_len as usize,
            Kind::Int => size_of::<i64>(),
            Kind::Object => size_of::<Object>(),
            Kind::Lent => 0,
        }
    }

    /// Bytes of the allocation.
    #[inline(always)]
    fn allocated_bytes(self) -> usize {
        let Header { meta, key_len } = *self.header();
        match Kind::of(meta) {
            Kind::Str => self.sizes().capacity as usize,
            Kind::Int | Kind::Object | Kind::Lent => n_allocated(meta, key_len as usize, self.value_len()),
        }
    }

    #[inline(always)]
    pub fn key(self) -> &'a [u8] {
        let key = self.at(key_offset(self.header().meta));
        // SAFETY: the key's bytes stand there, initialised, and live as long as the entry.
        unsafe { std::slice::from_raw_parts(key, self.header().key_len as usize) }
    }

    #[inline(always)]
    pub fn view(self) -> View<'a> {
        // SAFETY: the kind says what is initialised there; ints are aligned by `value_offset`, objects need not be.
        unsafe {
            match Kind::of(self.header().meta) {
                Kind::Int => View::Int(self.value::<i64>().read()),
                Kind::Str => {
                    View::Str(std::slice::from_raw_parts(self.value(), self.sizes().value_len as usize))
                }
                Kind::Object => (*self.value::<Object>()).view(),
                Kind::Lent => View::Lent,
            }
        }
    }

    /// The object, if the value is one.
    #[inline(always)]
    pub fn object(self) -> Option<&'a Object> {
        // SAFETY: the kind says that an initialised object stands there, which needs no alignment.
        (Kind::of(self.header().meta) == Kind::Object).then(|| unsafe { &*self.value::<Object>() })
    }

    /// Asks the cache for the last lines of an inline string, and for what lies behind: APPEND copies it or writes there.
    #[inline(always)]
    pub fn prefetch_end(self) {
        let entry = self.header.as_ptr().addr();
        let end = self.value::<u8>().addr() + self.value_len();
        let last = entry - header_offset(self.header().meta) + self.allocated_bytes();
        let from = (end - LINES_AHEAD / 2 * 64).max(entry + 128);
        (0..LINES_AHEAD).for_each(|line| prefetch((from + line * 64).min(last) as u64));
    }

    /// The deadline, in Unix milliseconds. The key is dead when the clock is past it.
    #[inline(always)]
    pub fn expire_at(self) -> Option<i64> {
        // SAFETY: the node stands there, initialised, if the flag says so; deadlines are changed by the index alone,
        // under exclusive access to the keyspace.
        self.has_ttl().then(|| unsafe { (*self.at::<Node>(HEADER_BYTES)).deadline_ms })
    }

    #[inline(always)]
    pub fn has_ttl(self) -> bool {
        self.header().meta & HAS_TTL != 0
    }

    #[inline(always)]
    pub fn is_expired(self, now_ms: i64) -> bool {
        // A held entry is alive: whoever found it dead would free it under its readers.
        self.expire_at().is_some_and(|deadline| now_ms > deadline) && !self.is_held()
    }

    pub fn is_lent(self) -> bool {
        Kind::of(self.header().meta) == Kind::Lent
    }

    /// Others read it in place: it must not be changed, moved or freed.
    pub fn is_held(self) -> bool {
        self.header().meta & HELD != 0
    }

    /// The string was edited in place: its encoding is raw, however short it is.
    pub fn is_raw(self) -> bool {
        self.header().meta & RAW != 0
    }

    /// The 24 bits that eviction keeps here: the time of the last access, or the LFU counter.
    #[inline(always)]
    pub fn clock(self) -> u32 {
        self.header().meta >> CLOCK_SHIFT
    }

    /// Bytes of this allocation and of everything below it.
    pub fn memory_bytes(self) -> usize {
        let below = match Kind::of(self.header().meta) {
            Kind::Int | Kind::Str | Kind::Lent => 0,
            // SAFETY: an initialised object stands there.
            Kind::Object => unsafe { (*self.value::<Object>()).memory_bytes() },
        };
        self.allocated_bytes() + below
    }
}

/// An entry, borrowed for changes that do not move it.
pub struct EntryMut<'a> {
    header: NonNull<Header>,
    borrows: PhantomData<&'a mut Header>,
}

impl<'a> EntryMut<'a> {
    /// # Safety
    /// `raw` is an entry that lives and that nobody else uses for 'a.
    #[inline(always)]
    pub(super) unsafe fn of(raw: NonNull<u8>) -> EntryMut<'a> {
        EntryMut { header: raw.cast(), borrows: PhantomData }
    }

    #[inline(always)]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { header: self.header, borrows: PhantomData }
    }

    #[inline(always)]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: alive and ours alone for 'a.
        unsafe { self.header.as_mut() }
    }

    /// Eviction's 24 bits, see [`EntryRef::clock`]. Higher bits are dropped.
    #[inline(always)]
    pub fn set_clock(&mut self, clock: u32) {
        let header = self.header_mut();
        header.meta = header.meta & ((1 << CLOCK_SHIFT) - 1) | clock << CLOCK_SHIFT;
    }

    /// Marks the key as used now, unless it is held: then others may read it at this moment.
    #[inline(always)]
    pub fn touch(&mut self, access: &mut AccessClock) {
        let meta = self.as_ref().header().meta;
        let touched = meta & ((1 << CLOCK_SHIFT) - 1) | access.used(meta >> CLOCK_SHIFT) << CLOCK_SHIFT;
        // No store within the same second: the line stays clean.
        if touched != meta && meta & HELD == 0 {
            self.header_mut().meta = touched;
        }
    }

    /// For reading, as long as the keyspace is borrowed.
    #[inline(always)]
    pub fn into_ref(self) -> EntryRef<'a> {
        EntryRef { header: self.header, borrows: PhantomData }
    }

    pub fn hold(&mut self) {
        self.header_mut().meta |= HELD;
    }

    pub fn release(&mut self) {
        self.header_mut().meta &= !HELD;
    }

    fn kind(&self) -> Kind {
        Kind::of(self.as_ref().header().meta)
    }

    /// The integer itself, if the value is one: INCR on the spot.
    #[inline]
    pub fn int_mut(&mut self) -> Option<&mut i64> {
        let value = self.as_ref().value::<i64>().cast_mut();
        // SAFETY: an initialised, aligned i64 stands there if the kind says so, ours alone.
        (self.kind() == Kind::Int).then(|| unsafe { &mut *value })
    }

    /// The value, if it has elements (or is a long string).
    #[inline]
    pub fn object_mut(&mut self) -> Option<&mut Object> {
        let value = self.as_ref().value::<Object>().cast_mut();
        // SAFETY: an initialised object stands there if the kind says so, ours alone.
        (self.kind() == Kind::Object).then(|| unsafe { &mut *value })
    }

    /// The same for as long as the keyspace is borrowed.
    #[inline]
    pub fn into_object_mut(self) -> Option<&'a mut Object> {
        let value = self.as_ref().value::<Object>().cast_mut();
        // SAFETY: as above; the borrow goes on in the reference.
        (self.kind() == Kind::Object).then(|| unsafe { &mut *value })
    }
}

/// The place of another shard's entry, lent for reading (a shared hold).
#[repr(C, packed)]
pub struct Alias(NonNull<Header>);

// SAFETY: a shared hold keeps the owner from changing, moving or freeing the entry while the alias lives; what is read
// through it is never written meanwhile.
unsafe impl Send for Alias {}

impl Alias {
    pub(super) fn target(&self) -> EntryRef<'_> {
        EntryRef { header: self.0, borrows: PhantomData }
    }
}

/// An entry, owned.
pub struct Entry(NonNull<Header>);

// SAFETY: owns its allocation, and objects are Send. The links of the expiry index are followed by the owner of the
// keyspace alone, and an entry leaves the index before it leaves the keyspace.
unsafe impl Send for Entry {}

impl Entry {
    /// A new entry; `expire_at_ms` in Unix milliseconds.
    pub fn new(key: &[u8], value: NewValue<'_>, expire_at_ms: Option<i64>) -> Entry {
        Entry::build(key, Payload::of(value), expire_at_ms)
    }

    /// An entry with the same key whose value is read in place from `entry`; it has no deadline. The caller keeps `entry`
    /// from being changed, moved or freed as long as the alias lives.
    pub(super) fn alias(entry: EntryRef<'_>) -> Entry {
        let alias = Alias(entry.header);
        Entry::build(entry.key(), Payload::Object(Object::Alias(alias)), None)
    }

    /// What stays in the table while the entry of `key` is away.
    pub fn stub(key: &[u8]) -> Entry {
        Entry::build(key, Payload::Lent, None)
    }

    pub(super) fn build(key: &[u8], payload: Payload<'_>, deadline_ms: Option<i64>) -> Entry {
        let ttl = if deadline_ms.is_some() { HAS_TTL } else { 0 };
        let meta = payload.kind() as u32 | ttl;
        let mut entry = Entry(allocate(meta, key, payload.len()));
        if let Some(deadline_ms) = deadline_ms {
            // SAFETY: the flag says that the node has a place; no reference to it exists.
            unsafe { entry.node().write(Node::unlinked(deadline_ms)) };
        }
        entry.write(payload);
        entry
    }

    /// The same value, deadline, flags and clock under another key.
    pub fn with_key(mut self, key: &[u8]) -> Entry {
        let (meta, len) = (self.as_ref().header().meta, self.as_ref().value_len());
        self.reallocate(meta, Some(key), len);
        self
    }

    #[inline(always)]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { header: self.0, borrows: PhantomData }
    }

    #[inline(always)]
    pub fn as_mut(&mut self) -> EntryMut<'_> {
        EntryMut { header: self.0, borrows: PhantomData }
    }

    #[inline(always)]
    pub(super) fn raw(&self) -> NonNull<u8> {
        self.0.cast()
    }

    /// The place of the links; there is one only with a time to live.
    #[inline(always)]
    pub(super) fn node(&self) -> NonNull<Node> {
        debug_assert!(self.as_ref().has_ttl());
        // SAFETY: the node lies inside the allocation.
        unsafe { self.0.cast::<u8>().add(HEADER_BYTES).cast() }
    }

    /// The entry that a node of the expiry index is part of.
    #[inline(always)]
    pub(super) fn of_node(node: NonNull<Node>) -> NonNull<u8> {
        // SAFETY: a node lies behind the header of its entry, in one allocation.
        unsafe { node.cast::<u8>().sub(HEADER_BYTES) }
    }

    /// Takes the object out, if the value is one; an empty list stays in its place.
    #[inline]
    pub fn take_object(&mut self) -> Option<Object> {
        self.as_mut().into_object_mut().map(|object| std::mem::replace(object, Object::List(List::new())))
    }

    #[inline(always)]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: alive and owned.
        unsafe { self.0.as_mut() }
    }

    /// Writes a value over one that needs no drop; there is room for it.
    #[inline(always)]
    fn write(&mut self, payload: Payload<'_>) {
        let (kind, len) = (payload.kind(), payload.len());
        let header = self.header_mut();
        header.meta = header.meta & !(KIND | RAW) | kind as u32;
        if kind == Kind::Str {
            self.set_len(len);
        }
        let value = self.as_ref().value::<u8>().cast_mut();
        // SAFETY: the caller has made room; ints are aligned by `value_offset`, objects need not be; a payload never borrows
        // from the entry it is written to, which is exclusively borrowed.
        unsafe {
            match payload {
                Payload::Int(int) => value.cast::<i64>().write(int),
                Payload::Str(bytes) => value.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()),
                Payload::Short(bytes) => value.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()),
                Payload::Object(object) => value.cast::<Object>().write(object),
                Payload::Lent => {}
            }
        }
    }

    /// Gives the entry another value, in place if that fits and wastes at most half. It moves if `ttl` (whether there
    /// are to be links) differs from what it has. Returns what was an object, to be freed by the caller.
    #[inline]
    pub(super) fn set_value(&mut self, payload: Payload<'_>, ttl: bool) -> Option<Object> {
        let old = self.take_object();
        let before = *self.as_ref().header();
        let has_ttl = if ttl { HAS_TTL } else { 0 };
        let meta = before.meta & STICKY | has_ttl | payload.kind() as u32;
        let key_len = before.key_len as usize;
        let is_moved = before.meta & HAS_TTL != has_ttl
            || match (Kind::of(before.meta), payload.kind()) {
                (Kind::Str, Kind::Str) => {
                    let need = SIZES_BYTES + value_offset(meta, key_len) + payload.len();
                    let capacity = self.as_ref().allocated_bytes();
                    // The first comparison spares most calls the size class.
                    need > capacity || need < capacity / 2 && good_size(need) < capacity / 2
                }
                (Kind::Str, _) | (_, Kind::Str) => true,
                (_, _) => n_allocated(meta, key_len, payload.len()) != self.as_ref().allocated_bytes(),
            };
        if is_moved {
            self.reallocate_for(meta, None, payload.len(), 0);
        }
        self.write(payload);
        old
    }

    /// Adds or removes the place of the links. The entry moves.
    pub(super) fn set_ttl(&mut self, ttl: bool) {
        let len = self.as_ref().value_len();
        let meta = self.as_ref().header().meta & !HAS_TTL | if ttl { HAS_TTL } else { 0 };
        self.reallocate(meta, None, len);
    }

    /// Makes the entry an editable inline string of at least `min_len` bytes, zeros added at the end, and shows its bytes;
    /// None if it is not an integer or an inline string. `min_len` is at most [`INLINE_BYTES`]. May move the entry: call
    /// `node_moved` after. Growth leaves half as much again, so that appending costs amortised constant time.
    pub(super) fn edit_inline(&mut self, min_len: usize) -> Option<&mut [u8]> {
        match Kind::of(self.as_ref().header().meta) {
            Kind::Str => {}
            Kind::Int => {
                let View::Int(int) = self.as_ref().view() else { unreachable!("the kind is Int") };
                let ttl = self.as_ref().has_ttl();
                _ = self.set_value(Payload::Str(itoa::Buffer::new().format(int).as_bytes()), ttl);
            }
            Kind::Object | Kind::Lent => return None,
        }
        let header = self.as_ref().header();
        let (meta, sizes) = (header.meta | RAW, self.as_ref().sizes());
        let len = sizes.value_len as usize;
        let need = SIZES_BYTES + value_offset(meta, header.key_len as usize) + min_len;
        if need > sizes.capacity as usize {
            self.reallocate(meta, None, min_len + min_len / 2);
        }
        self.header_mut().meta = meta;
        self.set_len(len.max(min_len));
        let value = self.as_ref().value::<u8>().cast_mut();
        // SAFETY: there is room for `min_len` bytes; those before `len` are initialised, those after are now.
        unsafe {
            value.add(len).write_bytes(0, len.max(min_len) - len);
            Some(std::slice::from_raw_parts_mut(value, len.max(min_len)))
        }
    }

    /// Cuts an inline string to its first `len` bytes.
    pub(super) fn truncate_inline(&mut self, len: usize) {
        debug_assert!(Kind::of(self.as_ref().header().meta) == Kind::Str, "an edited string is inline");
        self.set_len(len.min(self.as_ref().value_len()));
    }

    /// A string's length.
    #[inline(always)]
    fn set_len(&mut self, len: usize) {
        debug_assert!(Kind::of(self.as_ref().header().meta) == Kind::Str);
        // SAFETY: a string's sizes stand before its header; owned.
        unsafe { self.0.cast::<Sizes>().sub(1).as_mut() }.value_len = len as u32;
    }

    /// Moves everything to a new allocation with room for `room` bytes of value, under `meta` (of the same kind) and another
    /// key if one is given. Neither table nor index are told.
    fn reallocate(&mut self, meta: u32, key: Option<&[u8]>, room: usize) {
        let len = self.as_ref().value_len();
        self.reallocate_for(meta, key, room.max(len), len);
    }

    /// The same, of the value only its first `len` bytes; `meta` may be of another kind if those are none: then the value is the
    /// caller's to write, and what was there needs no drop.
    fn reallocate_for(&mut self, meta: u32, key: Option<&[u8]>, room: usize, len: usize) {
        let old = self.as_ref();
        let new = Entry(allocate(meta, key.unwrap_or(old.key()), room));
        // SAFETY: both have room for `len` bytes of value; where both have a node, its links stay right until the caller
        // tells the index; the old allocation's value has moved, so only its memory is given back.
        unsafe {
            let value = new.as_ref().value::<u8>().cast_mut();
            if len > 0 {
                value.copy_from_nonoverlapping(old.value(), len);
            }
            if Kind::of(meta) == Kind::Str {
                new.0.cast::<Sizes>().sub(1).as_mut().value_len = len as u32;
            }
            if old.has_ttl() && new.as_ref().has_ttl() {
                new.node().copy_from_nonoverlapping(self.node(), 1);
            } else if new.as_ref().has_ttl() {
                new.node().write(Node::unlinked(i64::MAX));
            }
            self.free();
        }
        self.0 = std::mem::ManuallyDrop::new(new).0;
    }

    /// Gives the memory back.
    /// # Safety
    /// The value needs no drop any more, and the entry is not used again.
    #[inline]
    unsafe fn free(&mut self) {
        let entry = self.as_ref();
        let (size, before) = (entry.allocated_bytes(), header_offset(entry.header().meta));
        // SAFETY: `allocate` got this memory with this layout, and the header stands so far in it.
        unsafe { dealloc(self.0.as_ptr().cast::<u8>().sub(before), layout(size)) };
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("below 4 GiB")
}

/// A new allocation with header, sizes and key written, with room for `room` bytes of value.
#[inline]
fn allocate(meta: u32, key: &[u8], room: usize) -> NonNull<Header> {
    let size = n_allocated(meta, key.len(), room);
    assert!(size <= u32::MAX as usize, "a key has at most 512 MiB");
    let layout = layout(size);
    // SAFETY: the layout holds the header at least.
    let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    // SAFETY: sizes, header and key fit by the sum above; the memory is new.
    unsafe {
        if Kind::of(meta) == Kind::Str {
            base.cast().write(Sizes { value_len: 0, capacity: size as u32 });
        }
        let header = base.add(header_offset(meta));
        header.cast().write(Header { meta, key_len: key.len() as u32 });
        header.add(key_offset(meta)).as_ptr().copy_from_nonoverlapping(key.as_ptr(), key.len());
        header.cast()
    }
}

impl Drop for Entry {
    #[inline]
    fn drop(&mut self) {
        drop(self.take_object());
        // SAFETY: what stands there now, an empty list if anything, needs no drop.
        unsafe { self.free() }
    }
}

// SAFETY: one allocation aligned to 8, owned; the key never changes while the entry is in a table.
unsafe impl TableEntry for Entry {
    type Ref<'a> = EntryRef<'a>;

    #[inline(always)]
    fn into_raw(self) -> NonNull<u8> {
        self.0.as_ptr().expose_provenance();
        std::mem::ManuallyDrop::new(self).0.cast()
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Entry(raw.cast())
    }

    #[inline(always)]
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> EntryRef<'a> {
        EntryRef { header: raw.cast(), borrows: PhantomData }
    }

    #[inline(always)]
    fn key<'a>(entry: EntryRef<'a>) -> &'a [u8]
    where
        Self: 'a,
    {
        entry.key()
    }
}
