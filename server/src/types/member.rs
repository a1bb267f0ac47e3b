//! `Member`: a set's member, or a hash's field and value, in one allocation behind one pointer.
//!
//! ```text
//! | tag | field length: 1, 2, 4 bytes | value length: 0, 1, 2, 4 bytes | deadline: 0, 6 bytes | field | value | unused |
//!  bits 0-1  width of the field's length     bits 2-3  width of the value's length (0: a set's member, no value)
//!  bit 4     there is room for a deadline (HEXPIRE), in Unix milliseconds; 0 is none
//! ```
//!
//! Invariants: the allocation has `good_size` of what the lengths add up to, so its layout follows from its content
//! and a value of about the same length is written in place. The field never changes. Room for a deadline, once made, stays.
//! It knows no hash and no table beyond `TableEntry`. This is the one module of `types` with unsafe code.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::alloc::good_size;
use crate::keyspace::table::TableEntry;

const TAG_BYTES: usize = 1;
/// What a table keeps of an address, too.
const PLACE_BYTES: usize = 6;
const WIDTHS: [usize; 4] = [0, 1, 2, 4];
const DEADLINE_SHIFT: u8 = 4;
pub(super) const DEADLINE_BYTES: usize = 6;
/// The latest deadline there is room for (in the year 10,889); Redis takes none beyond a quarter of it.
pub(super) const DEADLINE_MAX_MS: i64 = (1 << (8 * DEADLINE_BYTES)) - 1;

/// Needs no alignment: an enum of it and a tag is nine bytes.
#[repr(C, packed)]
pub struct Member(NonNull<u8>);

// SAFETY: owns its memory alone, like a `Box<[u8]>`.
unsafe impl Send for Member {}
// SAFETY: as above; a shared member is only read.
unsafe impl Sync for Member {}

/// A member lent by its table.
#[derive(Clone, Copy)]
pub struct MemberRef<'a> {
    raw: NonNull<u8>,
    owner: PhantomData<&'a Member>,
}

/// A member's place, for an index beside the table that owns it: the 48 bits of its address.
#[derive(Clone, Copy)]
pub struct MemberPlace([u8; PLACE_BYTES]);

impl MemberPlace {
    /// The member that stands there.
    ///
    /// # Safety
    /// The member this was asked of is alive, has not been changed since then (a new value may be a new allocation) and is not
    /// changed for as long as `'a`.
    #[inline(always)]
    pub unsafe fn member<'a>(self) -> MemberRef<'a> {
        let mut address = [0; size_of::<usize>()];
        address[..PLACE_BYTES].copy_from_slice(&self.0);
        let raw = std::ptr::with_exposed_provenance_mut(usize::from_le_bytes(address));
        // SAFETY: a member's address, which `place` has exposed, is not null.
        MemberRef { raw: unsafe { NonNull::new_unchecked(raw) }, owner: PhantomData }
    }
}

/// Where things stand in an allocation: all that its header says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    field_code: u8,
    value_code: u8,
    /// 1 if there is room for a deadline, else 0.
    n_deadlines: u8,
    n_field: usize,
    n_value: usize,
}

impl Shape {
    fn new(field: &[u8], value: Option<&[u8]>, deadline_ms: Option<i64>) -> Self {
        let (n_field, n_value) = (field.len(), value.map_or(0, <[u8]>::len));
        Self {
            field_code: code_of(n_field),
            value_code: value.map_or(0, |_| code_of(n_value)),
            n_deadlines: u8::from(deadline_ms.is_some()),
            n_field,
            n_value,
        }
    }

    fn tag(self) -> u8 {
        self.field_code | self.value_code << 2 | self.n_deadlines << DEADLINE_SHIFT
    }

    #[inline]
    fn value_length_at(self) -> usize {
        TAG_BYTES + WIDTHS[usize::from(self.field_code)]
    }

    #[inline]
    fn deadline_at(self) -> usize {
        self.value_length_at() + WIDTHS[usize::from(self.value_code)]
    }

    #[inline]
    fn field_at(self) -> usize {
        self.deadline_at() + usize::from(self.n_deadlines) * DEADLINE_BYTES
    }

    #[inline]
    fn value_at(self) -> usize {
        self.field_at() + self.n_field
    }

    #[inline]
    fn n_allocated(self) -> usize {
        good_size(self.value_at() + self.n_value)
    }

    fn layout(self) -> Layout {
        // Eight: what a table asks of an entry's address.
        Layout::from_size_align(self.n_allocated(), 8).expect("field and value are at most 512 MiB each")
    }
}

/// The width code of a length: an index of `WIDTHS`.
#[inline]
fn code_of(n: usize) -> u8 {
    match n {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => {
            assert!(u32::try_from(n).is_ok(), "a member is at most 4 GiB");
            3
        }
    }
}

impl Member {
    /// A set's member.
    pub fn new(member: &[u8]) -> Self {
        Self::build(member, None, None)
    }

    /// A hash's field and its value.
    pub fn with_value(field: &[u8], value: &[u8]) -> Self {
        Self::build(field, Some(value), None)
    }

    /// A hash's field, its value, and when it ends.
    pub fn with_deadline(field: &[u8], value: &[u8], deadline_ms: i64) -> Self {
        Self::build(field, Some(value), Some(deadline_ms))
    }

    fn build(field: &[u8], value: Option<&[u8]>, deadline_ms: Option<i64>) -> Self {
        let shape = Shape::new(field, value, deadline_ms);
        let layout = shape.layout();
        // SAFETY: `good_size` of at least the tag and one length byte is not zero.
        let Some(raw) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: the allocation has `n_allocated` bytes, which the shape's offsets and lengths do not exceed;
        // it is new, so it overlaps neither `field` nor `value`.
        unsafe {
            raw.write(shape.tag());
            write_length(raw.add(TAG_BYTES), shape.field_code, shape.n_field);
            write_length(raw.add(shape.value_length_at()), shape.value_code, shape.n_value);
            if let Some(deadline_ms) = deadline_ms {
                write_deadline(raw.add(shape.deadline_at()), deadline_ms);
            }
            let value = value.unwrap_or_default();
            raw.add(shape.field_at()).copy_from_nonoverlapping(slice_start(field), field.len());
            raw.add(shape.value_at()).copy_from_nonoverlapping(slice_start(value), value.len());
        }
        Self(raw)
    }

    #[inline]
    pub fn as_ref(&self) -> MemberRef<'_> {
        MemberRef { raw: self.0, owner: PhantomData }
    }

    /// Gives the field another value: in place if the allocation fits it, else in a new one.
    #[inline]
    pub fn set_value(&mut self, value: &[u8]) {
        let shape = self.as_ref().shape();
        let next = Shape { value_code: code_of(value.len()), n_value: value.len(), ..shape };
        if next.value_code != shape.value_code || next.n_allocated() != shape.n_allocated() {
            let old = self.as_ref();
            *self = Self::build(old.field(), Some(value), old.deadline_room());
            return;
        }
        // SAFETY: same size of allocation, same offsets, and `next` fits it; `&mut self` is exclusive, and `value`
        // cannot lie in here while that borrow lives.
        unsafe {
            write_length(self.0.add(next.value_length_at()), next.value_code, next.n_value);
            self.0.add(next.value_at()).copy_from_nonoverlapping(slice_start(value), value.len());
        }
    }

    /// Gives a hash's field a deadline, or takes it away.
    pub fn set_deadline(&mut self, deadline_ms: Option<i64>) {
        let shape = self.as_ref().shape();
        if shape.n_deadlines > 0 {
            // SAFETY: the tag says that six bytes stand there for this; `&mut self` is exclusive.
            unsafe { write_deadline(self.0.add(shape.deadline_at()), deadline_ms.unwrap_or(0)) };
        } else if deadline_ms.is_some() {
            let old = self.as_ref();
            *self = Self::build(old.field(), Some(old.value()), deadline_ms);
        }
    }

    /// Bytes of the allocation.
    pub fn allocated_bytes(&self) -> usize {
        self.as_ref().allocated_bytes()
    }
}

impl<'a> MemberRef<'a> {
    #[inline(always)]
    fn shape(self) -> Shape {
        // SAFETY: a member of this lifetime is alive, and `build` wrote tag and lengths at these offsets.
        unsafe {
            let tag = self.raw.read();
            let (field_code, value_code) = (tag & 3, tag >> 2 & 3);
            let n_field = read_length(self.raw.add(TAG_BYTES), field_code);
            let value_length_at = TAG_BYTES + WIDTHS[usize::from(field_code)];
            let n_value = read_length(self.raw.add(value_length_at), value_code);
            Shape { field_code, value_code, n_deadlines: tag >> DEADLINE_SHIFT & 1, n_field, n_value }
        }
    }

    /// The field's bytes; of a set, the member's.
    #[inline(always)]
    pub fn field(self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: `build` wrote `n_field` bytes there; they live and stay for 'a.
        unsafe { std::slice::from_raw_parts(self.raw.add(shape.field_at()).as_ptr(), shape.n_field) }
    }

    /// The value's bytes; of a set, none.
    #[inline(always)]
    pub fn value(self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: `build` or `set_value` wrote `n_value` bytes there; they live and stay for 'a.
        unsafe { std::slice::from_raw_parts(self.raw.add(shape.value_at()).as_ptr(), shape.n_value) }
    }

    /// When the field ends, in Unix milliseconds; of a set's member, never.
    #[inline]
    pub fn deadline_ms(self) -> Option<i64> {
        self.deadline_room().filter(|deadline_ms| *deadline_ms != 0)
    }

    /// The same with 0 where there is room and no deadline.
    fn deadline_room(self) -> Option<i64> {
        let shape = self.shape();
        // SAFETY: the tag says that six bytes were written there; they live and stay for 'a.
        (shape.n_deadlines > 0).then(|| unsafe { read_deadline(self.raw.add(shape.deadline_at())) })
    }

    pub fn allocated_bytes(self) -> usize {
        self.shape().n_allocated()
    }

    /// Tells members apart while their table is not changed.
    pub fn address(self) -> usize {
        self.raw.addr().get()
    }

    /// Where it stands.
    pub fn place(self) -> MemberPlace {
        let address = self.raw.as_ptr().expose_provenance() as u64;
        debug_assert!(address < 1 << (8 * PLACE_BYTES));
        MemberPlace(*address.to_le_bytes().first_chunk().expect("eight bytes hold six"))
    }

    /// A copy in an allocation of its own.
    pub fn to_owned(self) -> Member {
        let shape = self.shape();
        Member::build(self.field(), (shape.value_code > 0).then(|| self.value()), self.deadline_ms())
    }
}

fn slice_start(bytes: &[u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

/// # Safety
/// `WIDTHS[code]` bytes at `at` are the caller's to write.
#[inline(always)]
unsafe fn write_length(at: NonNull<u8>, code: u8, n: usize) {
    // SAFETY: the caller's promise; unaligned writes of exactly that many bytes.
    unsafe {
        match code {
            0 => {}
            1 => at.write(n as u8),
            2 => at.cast::<u16>().write_unaligned(n as u16),
            _ => at.cast::<u32>().write_unaligned(n as u32),
        }
    }
}

/// # Safety
/// `write_length` has written at `at` with this code.
#[inline(always)]
unsafe fn read_length(at: NonNull<u8>, code: u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match code {
            0 => 0,
            1 => usize::from(at.read()),
            2 => usize::from(at.cast::<u16>().read_unaligned()),
            _ => at.cast::<u32>().read_unaligned() as usize,
        }
    }
}

/// # Safety
/// `DEADLINE_BYTES` bytes at `at` are the caller's to write.
unsafe fn write_deadline(at: NonNull<u8>, deadline_ms: i64) {
    debug_assert!((0..=DEADLINE_MAX_MS).contains(&deadline_ms));
    // SAFETY: the caller's promise; the low six of the eight bytes.
    unsafe { at.copy_from_nonoverlapping(slice_start(&deadline_ms.to_le_bytes()), DEADLINE_BYTES) };
}

/// # Safety
/// `write_deadline` has written at `at`.
#[inline]
unsafe fn read_deadline(at: NonNull<u8>) -> i64 {
    let mut bytes = [0; size_of::<i64>()];
    // SAFETY: the caller's promise; six bytes into eight.
    unsafe { at.copy_to_nonoverlapping(NonNull::from(&mut bytes).cast(), DEADLINE_BYTES) };
    i64::from_le_bytes(bytes)
}

impl Drop for Member {
    fn drop(&mut self) {
        let layout = self.as_ref().shape().layout();
        // SAFETY: `build` allocated it with the layout of this shape (`set_value` keeps the size); it ends here.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

// SAFETY: one allocation aligned to 8, whose provenance is exposed; `set_value` leaves the field as it is.
unsafe impl TableEntry for Member {
    type Ref<'a> = MemberRef<'a>;

    #[inline(always)]
    fn into_raw(self) -> NonNull<u8> {
        self.0.as_ptr().expose_provenance();
        ManuallyDrop::new(self).0
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    #[inline(always)]
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> MemberRef<'a> {
        MemberRef { raw, owner: PhantomData }
    }

    #[inline(always)]
    fn key<'a>(entry: MemberRef<'a>) -> &'a [u8]
    where
        Self: 'a,
    {
        entry.field()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every width of both lengths, in place and moved; run under Miri it proves the offsets.
    #[test]
    fn members_keep_field_and_value() {
        let lengths = [0, 1, 13, 14, 28, 29, 60, 200, 255, 256, 257, 65_535, 65_536, 70_000];
        for n_field in lengths {
            let field = vec![b'f'; n_field];
            let set_member = Member::new(&field);
            assert!(set_member.as_ref().field() == field && set_member.as_ref().value().is_empty());
            for n_value in lengths {
                let mut member = Member::with_value(&field, b"12345");
                let value = vec![b'v'; n_value];
                member.set_value(&value);
                assert!(member.as_ref().field() == field && member.as_ref().value() == value);
                let copy = member.as_ref().to_owned();
                assert!(copy.as_ref().value() == value && copy.allocated_bytes() >= 3 + n_field + n_value);
            }
        }
    }

    /// Room for a deadline is made once and stays; field and value do not notice.
    #[test]
    fn members_keep_their_deadline() {
        for n_value in [0, 5, 300, 70_000] {
            let mut member = Member::with_value(b"field", b"12345");
            assert_eq!(member.as_ref().deadline_ms(), None);
            member.set_deadline(None);
            member.set_deadline(Some(DEADLINE_MAX_MS));
            member.set_value(&vec![b'v'; n_value]);
            assert_eq!(member.as_ref().deadline_ms(), Some(DEADLINE_MAX_MS));
            assert_eq!(member.as_ref().to_owned().as_ref().deadline_ms(), Some(DEADLINE_MAX_MS));
            let address = member.as_ref().address();
            member.set_deadline(None);
            assert_eq!(member.as_ref().deadline_ms(), None);
            member.set_deadline(Some(1));
            assert_eq!(member.as_ref().address(), address);
            assert!(member.as_ref().field() == b"field" && member.as_ref().value() == vec![b'v'; n_value]);
        }
        let mut member = Member::with_deadline(b"f", b"v", 7);
        member.set_deadline(None);
        assert!(member.allocated_bytes() >= member.as_ref().to_owned().allocated_bytes());
    }

    #[test]
    fn a_value_of_the_same_size_class_stays_in_place() {
        let mut member = Member::with_value(b"counter", b"99");
        let address = member.as_ref().address();
        member.set_value(b"100");
        assert_eq!((member.as_ref().address(), member.as_ref().value()), (address, &b"100"[..]));
        assert_eq!(Member::new(b"123456789012345").allocated_bytes(), good_size(17));
        assert_eq!(Member::new(b"12345678901234").allocated_bytes(), 16);
    }
}
