//! Walks over the living entries of a stream's nodes, forward and backward.

use super::StreamId;
use super::node::{Entries, Entry, Node};
use super::sorted::{Place, Sorted};

pub(super) fn range(nodes: &Sorted<Node>, start: StreamId, end: StreamId) -> Range<'_> {
    let place = nodes.floor(start).unwrap_or(nodes.start());
    let entries = if start <= end { nodes.get(place).map(Node::entries) } else { None };
    Range { nodes, place, entries, start, end }
}

/// Living entries, ascending.
pub struct Range<'a> {
    nodes: &'a Sorted<Node>,
    place: Place,
    entries: Option<Entries<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let entries = self.entries.as_mut()?;
            for entry in entries.by_ref() {
                if entry.id > self.end {
                    self.entries = None;
                    return None;
                }
                if !entry.is_deleted && entry.id >= self.start {
                    return Some(entry);
                }
            }
            self.place = self.nodes.after(self.place);
            self.entries = self.nodes.get(self.place).map(Node::entries);
        }
    }
}

/// Living entries, descending.
pub struct RangeBackward<'a> {
    nodes: &'a Sorted<Node>,
    place: Option<Place>,
    entries: Option<Entries<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> Iterator for RangeBackward<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let entries = self.entries.as_mut()?;
            while let Some(entry) = entries.next_back() {
                if entry.id < self.start {
                    self.entries = None;
                    return None;
                }
                if !entry.is_deleted && entry.id <= self.end {
                    return Some(entry);
                }
            }
            self.place = self.place.and_then(|place| self.nodes.before(place));
            self.entries = self.place.and_then(|place| self.nodes.get(place)).map(Node::entries);
        }
    }
}

pub(super) fn range_backward(nodes: &Sorted<Node>, start: StreamId, end: StreamId) -> RangeBackward<'_> {
    let place = if start <= end { nodes.floor(end) } else { None };
    let entries = place.and_then(|place| nodes.get(place)).map(Node::entries);
    RangeBackward { nodes, place, entries, start, end }
}
