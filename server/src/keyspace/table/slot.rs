//! `SlotMut`: one entry in its place, to be changed, replaced or taken out.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::Table;
use super::dir_word::COUNT_ONE;
use super::owned::{TableEntry, address_of, raw_of};
use super::segment::{ADDRESS, Segment, SlotIndex};

/// An occupied slot, borrowed for change. The entry's key must stay what it is.
pub struct SlotMut<'t, E: TableEntry> {
    pub(super) table: &'t mut Table<E>,
    pub(super) segment: Segment,
    pub(super) slot: SlotIndex,
    /// A hash that leads to the segment.
    pub(super) hash: u64,
}

impl<'t, E: TableEntry> SlotMut<'t, E> {
    #[inline(always)]
    fn raw(&self) -> NonNull<u8> {
        raw_of(self.segment.get(self.slot) & ADDRESS)
    }

    #[inline(always)]
    pub fn get(&self) -> E::Ref<'_> {
        // SAFETY: the slot holds an entry, unchanged while `self` is borrowed.
        unsafe { E::borrow(self.raw()) }
    }

    /// The entry for as long as the table is borrowed.
    #[inline(always)]
    pub fn into_ref(self) -> E::Ref<'t> {
        // SAFETY: the slot holds an entry, and the borrow of the table that the slot has is given up for this one.
        unsafe { E::borrow(self.raw()) }
    }

    /// Puts `entry`, which has the same key, into the slot and returns the old one.
    pub fn replace(&mut self, entry: E) -> E {
        let old = self.raw();
        let address = address_of(entry);
        self.segment.set(self.slot, self.segment.get(self.slot) & !ADDRESS | address);
        // SAFETY: its address is in the table no more.
        unsafe { E::from_raw(old) }
    }

    /// Lets `change` work on the entry itself, which may move to another allocation (but must keep its key).
    #[inline(always)]
    pub fn update<R>(&mut self, change: impl FnOnce(&mut E) -> R) -> R {
        struct PutBack<'s, E: TableEntry> {
            entry: Option<E>,
            segment: Segment,
            slot: SlotIndex,
            borrows: PhantomData<&'s mut E>,
        }
        impl<E: TableEntry> Drop for PutBack<'_, E> {
            #[inline(always)]
            fn drop(&mut self) {
                if let Some(entry) = self.entry.take() {
                    let address = address_of(entry);
                    self.segment.set(self.slot, self.segment.get(self.slot) & !ADDRESS | address);
                }
            }
        }
        // SAFETY: the entry goes back into its slot when `change` returns or unwinds, before anybody can look.
        let entry = Some(unsafe { E::from_raw(self.raw()) });
        let mut back = PutBack { entry, segment: self.segment, slot: self.slot, borrows: PhantomData };
        match &mut back.entry {
            Some(entry) => change(entry),
            None => unreachable!("set above"),
        }
    }

    /// Takes the entry out.
    #[inline]
    pub fn remove(self) -> E {
        let raw = self.raw();
        self.segment.remove(self.slot);
        let first = self.table.first_of(self.table.index(self.hash));
        self.table.directory[first].0 -= COUNT_ONE;
        self.table.len -= 1;
        self.table.after_removal(first);
        // SAFETY: its address is in the table no more.
        unsafe { E::from_raw(raw) }
    }
}
