//! `Sorted`: items in the order of their IDs, in chunks.
//!
//! ```text
//!   chunks (ring)  | first, items | first, items | ... |
//!                        |              |
//!                   item x 1..=128   (each a ring of its own)
//! ```
//!
//! A stream's nodes, a group's pending entries and a consumer's are mostly appended at one end and taken from the other:
//! both cost O(1) here and leave chunks full. Elsewhere an insertion or a removal moves at most one chunk's items, and the
//! list of chunks, 48 bytes for 128 items. No item is allocated for itself.
//!
//! Invariants (`check`): items ascend strictly; `first` is the first item's ID; no chunk is empty or longer than 128; no two
//! neighbors fit into half a chunk after a removal there.
//! Cost: find, insert, remove O(log n + a chunk); first and last O(1); walks O(1) an item.

use std::collections::VecDeque;

use super::StreamId;

const CHUNK_ITEMS: usize = 128;
/// A chunk with fewer items looks for a neighbor to join.
const SPARSE_ITEMS: usize = CHUNK_ITEMS / 4;
/// Chunks whose memory is looked at; the others count as these on average.
const WEIGHED_CHUNKS: usize = 512;

/// What has an ID.
pub trait Keyed {
    fn id(&self) -> StreamId;
}

impl Keyed for StreamId {
    #[inline]
    fn id(&self) -> StreamId {
        *self
    }
}

#[derive(Clone)]
struct Chunk<T> {
    first: StreamId,
    items: VecDeque<T>,
}

#[derive(Clone)]
pub struct Sorted<T> {
    chunks: VecDeque<Chunk<T>>,
    len: usize,
}

/// Where an item stands, until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chunk: usize,
    at: usize,
}

impl<T> Sorted<T> {
    pub const EMPTY: Self = Self { chunks: VecDeque::new(), len: 0 };
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T: Keyed> Sorted<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> Option<&T> {
        self.chunks.front()?.items.front()
    }

    #[inline]
    pub fn last(&self) -> Option<&T> {
        self.chunks.back()?.items.back()
    }

    /// The last item, for changes that leave its ID alone.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.chunks.back_mut()?.items.back_mut()
    }

    /// The place of the first item of at least this ID, or the end.
    pub fn lower_bound(&self, id: StreamId) -> Place {
        let end = Place { chunk: self.chunks.len(), at: 0 };
        if self.last().is_none_or(|last| last.id() < id) {
            return end;
        }
        let chunk = self.chunks.partition_point(|chunk| chunk.first <= id).saturating_sub(1);
        let items = &self.chunks[chunk].items;
        let at =
            if self.chunks[chunk].first >= id { 0 } else { items.partition_point(|item| item.id() < id) };
        if at == items.len() { Place { chunk: chunk + 1, at: 0 } } else { Place { chunk, at } }
    }

    /// The place of the last item of at most this ID.
    pub fn floor(&self, id: StreamId) -> Option<Place> {
        let place = self.lower_bound(id);
        match self.get(place) {
            Some(item) if item.id() == id => Some(place),
            _ => self.before(place),
        }
    }

    pub fn find(&self, id: StreamId) -> Option<Place> {
        let place = self.lower_bound(id);
        self.get(place).is_some_and(|item| item.id() == id).then_some(place)
    }

    #[inline]
    pub fn get(&self, place: Place) -> Option<&T> {
        self.chunks.get(place.chunk)?.items.get(place.at)
    }

    /// For changes that leave the item's ID alone.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.chunks.get_mut(place.chunk)?.items.get_mut(place.at)
    }

    /// The place of the first item, or the end.
    pub fn start(&self) -> Place {
        Place { chunk: 0, at: 0 }
    }

    /// The place behind this one: an item's or the end.
    #[inline]
    pub fn after(&self, place: Place) -> Place {
        let at = place.at + 1;
        match self.chunks.get(place.chunk) {
            Some(chunk) if at < chunk.items.len() => Place { at, ..place },
            _ => Place { chunk: place.chunk + 1, at: 0 },
        }
    }

    pub fn before(&self, place: Place) -> Option<Place> {
        if place.at > 0 {
            return Some(Place { at: place.at - 1, ..place });
        }
        let chunk = place.chunk.checked_sub(1)?;
        Some(Place { chunk, at: self.chunks.get(chunk)?.items.len() - 1 })
    }

    /// The items from this place on.
    pub fn iter_from(&self, mut place: Place) -> impl Iterator<Item = &T> {
        std::iter::from_fn(move || {
            let item = self.get(place)?;
            place = self.after(place);
            Some(item)
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.iter_from(self.start())
    }

    /// Files an item; false if one with its ID is there.
    pub fn insert(&mut self, item: T) -> bool {
        let id = item.id();
        if self.last().is_none_or(|last| last.id() < id) {
            self.push(item);
            return true;
        }
        let place = self.lower_bound(id);
        if self.get(place).is_some_and(|there| there.id() == id) {
            return false;
        }
        // Before a chunk's first item it may as well be behind the last of the one before.
        let place = match self.before(place) {
            Some(before) if place.at == 0 => Place { at: before.at + 1, ..before },
            _ => place,
        };
        let chunk = &mut self.chunks[place.chunk];
        if chunk.items.len() < CHUNK_ITEMS {
            chunk.insert(place.at, item);
        } else {
            let mut right = Chunk { first: chunk.items[CHUNK_ITEMS / 2].id(), items: VecDeque::new() };
            right.items.extend(chunk.items.drain(CHUNK_ITEMS / 2..));
            match place.at.checked_sub(chunk.items.len()) {
                Some(at) if at > 0 => right.insert(at, item),
                _ => chunk.insert(place.at, item),
            }
            self.chunks.insert(place.chunk + 1, right);
        }
        self.len += 1;
        true
    }

    /// Files an item of a greater ID than all others.
    pub fn push(&mut self, item: T) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.items.len() < CHUNK_ITEMS => chunk.items.push_back(item),
            _ => {
                if self.chunks.is_empty() {
                    self.chunks.reserve_exact(1);
                }
                let mut items = VecDeque::with_capacity(if self.len > 0 { CHUNK_ITEMS } else { 1 });
                let first = item.id();
                items.push_back(item);
                self.chunks.push_back(Chunk { first, items });
            }
        }
        self.len += 1;
    }

    /// Takes the item of this ID out.
    pub fn remove(&mut self, id: StreamId) -> Option<T> {
        self.remove_at(self.find(id)?)
    }

    /// Takes the item at this place out.
    pub fn remove_at(&mut self, place: Place) -> Option<T> {
        let chunk = self.chunks.get_mut(place.chunk)?;
        let item = chunk.items.remove(place.at)?;
        self.len -= 1;
        match chunk.items.front() {
            None => {
                self.chunks.remove(place.chunk);
            }
            Some(first) => {
                chunk.first = first.id();
                if chunk.items.len() < SPARSE_ITEMS {
                    self.join(place.chunk);
                }
            }
        }
        self.give_back();
        Some(item)
    }

    pub fn pop_first(&mut self) -> Option<T> {
        self.remove_at(self.start())
    }

    /// Joins a sparse chunk with a neighbor, if both fit into half a chunk.
    fn join(&mut self, at: usize) {
        let n_at = |at: usize| self.chunks.get(at).map_or(CHUNK_ITEMS, |chunk| chunk.items.len());
        let left = if at > 0 && n_at(at - 1) + n_at(at) <= CHUNK_ITEMS / 2 { at - 1 } else { at };
        if n_at(left) + n_at(left + 1) <= CHUNK_ITEMS / 2
            && let Some(mut right) = self.chunks.remove(left + 1)
        {
            self.chunks[left].items.append(&mut right.items);
        }
    }

    fn give_back(&mut self) {
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        } else if self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// Drops about `budget` items; true when none is left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let mut freed = 0;
        while freed < budget {
            let Some(chunk) = self.chunks.back_mut() else { break };
            let n = (budget - freed).min(chunk.items.len());
            chunk.items.truncate(chunk.items.len() - n);
            self.len -= n;
            freed += n;
            if chunk.items.is_empty() {
                self.chunks.pop_back();
            }
        }
        self.chunks.is_empty()
    }

    /// Heap bytes of the items themselves.
    pub fn memory_bytes(&self) -> usize {
        let weighed = self.chunks.iter().take(WEIGHED_CHUNKS);
        let bytes: usize = weighed.map(|chunk| chunk.items.capacity() * size_of::<T>()).sum();
        let n_weighed = self.chunks.len().clamp(1, WEIGHED_CHUNKS);
        self.chunks.capacity() * size_of::<Chunk<T>>() + bytes * self.chunks.len() / n_weighed
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        assert!(self.iter().is_sorted_by(|a, b| a.id() < b.id()), "items do not ascend");
        assert_eq!(self.len, self.chunks.iter().map(|chunk| chunk.items.len()).sum::<usize>());
        for chunk in &self.chunks {
            assert!((1..=CHUNK_ITEMS).contains(&chunk.items.len()));
            assert_eq!(chunk.first, chunk.items[0].id());
        }
    }
}

impl<T: Keyed> Chunk<T> {
    fn insert(&mut self, at: usize, item: T) {
        if at == 0 {
            self.first = item.id();
        }
        self.items.insert(at, item);
    }
}
