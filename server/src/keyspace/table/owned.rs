//! What a [`Table`](super::Table) holds: owners of one heap allocation with a key in it.

use std::ptr::NonNull;

use super::segment::ADDRESS;

/// An owner of one heap allocation that a [`Table`] can hold as 48 bits.
///
/// # Safety
/// `into_raw` gives a pointer aligned to 8 and below 2^48, with exposed provenance or from an allocation whose provenance
/// `into_raw` exposes; `from_raw` undoes it; `borrow` is sound as long as the owner lives and is not changed; the key
/// never changes while the entry is in a table.
pub unsafe trait TableEntry: Sized {
    /// What a lookup gives: a shared view of the entry, `&'a Target` in most cases.
    type Ref<'a>: Copy
    where
        Self: 'a;
    fn into_raw(self) -> NonNull<u8>;
    /// # Safety
    /// `raw` came from `into_raw` and has not been taken back since.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;
    /// # Safety
    /// `raw` came from `into_raw` and for 'a is neither taken back nor changed.
    unsafe fn borrow<'a>(raw: NonNull<u8>) -> Self::Ref<'a>
    where
        Self: 'a;
    fn key<'a>(entry: Self::Ref<'a>) -> &'a [u8]
    where
        Self: 'a;
}

/// What a boxed value needs so that `Table<Box<T>>` works.
pub trait Keyed {
    fn key(&self) -> &[u8];
}

// SAFETY: a box of an 8-aligned type is an 8-aligned pointer to memory that it owns; user space lies below 2^48, which
// `Table::insert` asserts.
unsafe impl<T: Keyed> TableEntry for Box<T> {
    type Ref<'a>
        = &'a T
    where
        T: 'a;

    fn into_raw(self) -> NonNull<u8> {
        const { assert!(align_of::<T>() == 8) };
        let raw = Box::into_raw(self);
        raw.expose_provenance();
        // SAFETY: a box is not null.
        unsafe { NonNull::new_unchecked(raw.cast()) }
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        // SAFETY: the caller gives back what `into_raw` gave.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }

    unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a T
    where
        T: 'a,
    {
        // SAFETY: the caller keeps the box alive and unchanged for 'a.
        unsafe { raw.cast().as_ref() }
    }

    fn key<'a>(entry: &'a T) -> &'a [u8]
    where
        T: 'a,
    {
        entry.key()
    }
}

#[inline(always)]
pub(super) fn raw_of(address: u64) -> NonNull<u8> {
    debug_assert!(address != 0);
    // SAFETY: only called with the address of an entry in the table, which is not null.
    unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// Byte equality without a call for short keys.
#[inline(always)]
pub(super) fn same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (wide_a, rest_a) = a.as_chunks::<8>();
    let (wide_b, rest_b) = b.as_chunks::<8>();
    if wide_a.len() > 8 {
        return a == b;
    }
    let wide = wide_a.iter().zip(wide_b).all(|(x, y)| u64::from_ne_bytes(*x) == u64::from_ne_bytes(*y));
    wide && rest_a.iter().zip(rest_b).all(|(x, y)| x == y)
}

/// Gives an entry up for its address, which a word can hold.
#[inline(always)]
pub(super) fn address_of<E: TableEntry>(entry: E) -> u64 {
    let address = entry.into_raw().as_ptr().expose_provenance() as u64;
    assert!(
        address & 7 == 0 && address & !ADDRESS == 0,
        "an entry's address has 48 bits and is aligned to 8"
    );
    address
}
