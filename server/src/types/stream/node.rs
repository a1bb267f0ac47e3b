//! A node of a stream: entries one after the other in one allocation.
//!
//! ```text
//!   bytes:   n_fields | field ... | 0 |  entry | entry | ...
//!   entry:   flags | ms - master.ms | seq - master.seq | [n_fields] | [field] value ... | number of elements before this one
//! ```
//!
//! Every part is an element as a packed buffer stores it (`element`). The fields of the first entry are the node's; an entry
//! that has the same ones stores values only. These are the bytes of Redis's node but for its frame and its first two
//! elements, how many entries live and how many are deleted, which stand beside the bytes: so a node is full where Redis's is,
//! approximate trimming takes what Redis takes, and a dump copies.
//!
//! Invariants (`check`): IDs ascend; `n_live` and `n_deleted` count the entries by their flag; the last element of an entry
//! counts the others. A node without a living entry is removed by its stream.
//! Cost: append O(bytes of the entry); a walk O(elements), in both directions.

use super::super::element::{Element, Encoded, decode, n_entry_at, n_entry_before};
use super::super::packed::LISTPACK_FRAME_BYTES;
use super::StreamId;
use super::sorted::Keyed;

const DELETED: u8 = 1;
const SAME_FIELDS: u8 = 2;
/// flags, ms and seq.
const HEAD_ELEMENTS: usize = 3;

#[derive(Clone)]
pub struct Node {
    /// The ID of the first entry that was put in.
    pub master: StreamId,
    pub n_live: u32,
    pub n_deleted: u32,
    bytes: Vec<u8>,
}

impl Keyed for Node {
    #[inline]
    fn id(&self) -> StreamId {
        self.master
    }
}

/// An entry, lent by its node.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub id: StreamId,
    pub is_deleted: bool,
    pub n_fields: usize,
    /// The names, one after the other, if they are the node's; else none.
    names: Option<&'a [u8]>,
    /// Values; or names and values by turns.
    body: &'a [u8],
    /// Where it begins.
    at: usize,
}

impl<'a> Entry<'a> {
    /// Calls `visit` with each field and its value, in their order.
    #[inline]
    pub fn for_each_field(&self, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        let mut body = self.body;
        let mut names = self.names;
        for _ in 0..self.n_fields {
            let name = match &mut names {
                Some(names) => take_element(names),
                None => take_element(&mut body),
            };
            visit(name, take_element(&mut body));
        }
    }
}

#[inline]
fn take_element<'a>(rest: &mut &'a [u8]) -> Element<'a> {
    let (entry, tail) = rest.split_at(n_entry_at(rest));
    *rest = tail;
    decode(entry)
}

#[inline]
fn take_integer(rest: &mut &[u8]) -> i64 {
    match take_element(rest) {
        Element::Integer(integer) => integer,
        Element::Bytes(_) => unreachable!("a node's numbers are integers"),
    }
}

fn push_integer(bytes: &mut Vec<u8>, integer: i64) {
    Encoded::new(Element::Integer(integer)).append_to(bytes);
}

impl Node {
    /// A node for entries with these fields.
    pub fn new<'a>(master: StreamId, fields: impl ExactSizeIterator<Item = &'a [u8]>) -> Self {
        let mut bytes = Vec::new();
        push_integer(&mut bytes, fields.len() as i64);
        fields.for_each(|field| Encoded::of(field).append_to(&mut bytes));
        push_integer(&mut bytes, 0);
        Self { master, n_live: 0, n_deleted: 0, bytes }
    }

    /// The node of these elements, which are believed in nothing but that each is canonical: `n_fields`, fields, 0, entries.
    pub fn of_elements<'a>(
        master: StreamId,
        n_live: u32,
        n_deleted: u32,
        elements: &mut impl Iterator<Item = Element<'a>>,
    ) -> Option<Self> {
        let mut copy = Copying { elements, bytes: Vec::new(), n_copied: 0 };
        let n_fields = copy.count()?;
        copy.several(n_fields)?;
        (copy.integer()? == 0).then_some(())?;
        let (mut left_live, mut left_deleted, mut last) = (n_live, n_deleted, None);
        while left_live > 0 || left_deleted > 0 {
            copy.n_copied = 0;
            let flags = u8::try_from(copy.integer()?).ok().filter(|flags| *flags <= DELETED | SAME_FIELDS)?;
            let left = if flags & DELETED != 0 { &mut left_deleted } else { &mut left_live };
            *left = left.checked_sub(1)?;
            let ms = master.ms.wrapping_add(copy.integer()? as u64);
            let seq = master.seq.wrapping_add(copy.integer()? as u64);
            let id = StreamId { ms, seq };
            (id >= master && last < Some(id)).then_some(())?;
            last = Some(id);
            let n_body = match flags & SAME_FIELDS {
                0 => copy.count()?.checked_mul(2)?,
                _ => n_fields,
            };
            copy.several(n_body)?;
            let n_before = copy.n_copied;
            (copy.count()? == n_before).then_some(())?;
        }
        let mut bytes = copy.bytes;
        bytes.shrink_to_fit();
        Some(Self { master, n_live, n_deleted, bytes })
    }

    /// Drops the deleted entries behind the last living one.
    pub fn drop_dead_tail(&mut self) {
        let mut entries = self.entries();
        let mut n = 0;
        let mut end = self.bytes.len();
        while let Some(entry) = entries.next_back().filter(|entry| entry.is_deleted) {
            n += 1;
            end = entry.at;
        }
        self.bytes.truncate(end);
        self.n_deleted -= n;
    }

    /// The bytes of Redis's node of the same entries (`lpBytes`).
    pub fn listpack_bytes(&self) -> usize {
        let counts =
            [self.n_live, self.n_deleted].map(|n| Encoded::new(Element::Integer(i64::from(n))).n_entry());
        LISTPACK_FRAME_BYTES + counts[0] + counts[1] + self.bytes.len()
    }

    /// Fields of the node, and all elements before the first entry.
    fn master_fields(&self) -> (usize, &[u8], usize) {
        let mut rest = self.bytes.as_slice();
        let n_fields = take_integer(&mut rest) as usize;
        let names = rest;
        for _ in 0..n_fields {
            rest = &rest[n_entry_at(rest)..];
        }
        let names = &names[..names.len() - rest.len()];
        (n_fields, names, self.bytes.len() - rest.len() + n_entry_at(rest))
    }

    /// Adds an entry behind the others. `pairs` are its fields and values.
    pub fn append<'a, P>(&mut self, id: StreamId, pairs: P)
    where
        P: ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let n_fields = pairs.len();
        let mut rest = self.bytes.as_slice();
        let is_same = take_integer(&mut rest) == n_fields as i64
            && pairs.clone().all(|(field, _)| {
                let is_same = Encoded::of(field).is_at(rest);
                rest = &rest[n_entry_at(rest)..];
                is_same
            });
        let bytes = &mut self.bytes;
        push_integer(bytes, if is_same { i64::from(SAME_FIELDS) } else { 0 });
        // Differences wrap: the number of an entry may be below that of the node's first one.
        push_integer(bytes, id.ms.wrapping_sub(self.master.ms) as i64);
        push_integer(bytes, id.seq.wrapping_sub(self.master.seq) as i64);
        let n_elements = if is_same {
            pairs.for_each(|(_, value)| Encoded::of(value).append_to(bytes));
            HEAD_ELEMENTS + n_fields
        } else {
            push_integer(bytes, n_fields as i64);
            for (field, value) in pairs {
                Encoded::of(field).append_to(bytes);
                Encoded::of(value).append_to(bytes);
            }
            HEAD_ELEMENTS + 1 + 2 * n_fields
        };
        push_integer(bytes, n_elements as i64);
        self.n_live += 1;
    }

    /// Gives free room back: nothing will be added any more.
    pub fn close(&mut self) {
        self.bytes.shrink_to_fit();
    }

    pub fn n_entries(&self) -> u64 {
        u64::from(self.n_live) + u64::from(self.n_deleted)
    }

    /// Marks the entry that was lent from `at` as deleted.
    pub fn delete(&mut self, entry: Deletion) {
        let flags = &mut self.bytes[entry.0];
        assert_eq!(*flags & DELETED, 0, "deleted twice");
        *flags |= DELETED;
        self.n_live -= 1;
        self.n_deleted += 1;
    }

    /// All entries, deleted ones too, in their order.
    pub fn entries(&self) -> Entries<'_> {
        let (n_fields, names, at) = self.master_fields();
        Entries { node: self, n_fields, names, front: at, back: self.bytes.len(), start: at }
    }

    /// The living entry of this ID.
    pub fn find(&self, id: StreamId) -> Option<Entry<'_>> {
        let found = self.entries().find(|entry| entry.id >= id)?;
        (found.id == id && !found.is_deleted).then_some(found)
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// What follows the two counts in Redis's node.
    pub fn payload(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of elements in `payload`.
    pub fn n_elements(&self) -> usize {
        let mut rest = self.bytes.as_slice();
        let mut n = 0;
        while !rest.is_empty() {
            rest = &rest[n_entry_at(rest)..];
            n += 1;
        }
        n
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        let forward: Vec<_> = self.entries().map(|entry| (entry.id, entry.is_deleted, entry.at)).collect();
        let mut backward = Vec::new();
        let mut entries = self.entries();
        while let Some(entry) = entries.next_back() {
            backward.push((entry.id, entry.is_deleted, entry.at));
        }
        backward.reverse();
        assert_eq!(forward, backward);
        assert!(forward.is_sorted_by(|a, b| a.0 < b.0), "IDs do not ascend");
        assert!(forward.first().is_none_or(|first| first.0 >= self.master));
        let n_deleted = forward.iter().filter(|entry| entry.1).count();
        assert_eq!((self.n_live as usize, self.n_deleted as usize), (forward.len() - n_deleted, n_deleted));
    }
}

/// Elements on their way into a node.
struct Copying<'i, I> {
    elements: &'i mut I,
    bytes: Vec<u8>,
    n_copied: usize,
}

impl<'a, I: Iterator<Item = Element<'a>>> Copying<'_, I> {
    fn one(&mut self) -> Option<Element<'a>> {
        let element = self.elements.next()?;
        Encoded::new(element).append_to(&mut self.bytes);
        self.n_copied += 1;
        Some(element)
    }

    fn several(&mut self, n: usize) -> Option<()> {
        for _ in 0..n {
            self.one()?;
        }
        Some(())
    }

    fn integer(&mut self) -> Option<i64> {
        match self.one()? {
            Element::Integer(integer) => Some(integer),
            Element::Bytes(_) => None,
        }
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.integer()?).ok()
    }
}

/// Which entry to delete; it belongs to the node that lent the entry.
#[derive(Clone, Copy)]
pub struct Deletion(usize);

impl Entry<'_> {
    pub fn deletion(&self) -> Deletion {
        Deletion(self.at)
    }
}

/// The entries of a node, from both ends.
#[derive(Clone)]
pub struct Entries<'a> {
    node: &'a Node,
    n_fields: usize,
    names: &'a [u8],
    front: usize,
    back: usize,
    start: usize,
}

impl<'a> Entries<'a> {
    /// The entry at the start of what is left, and where it ends.
    #[inline]
    fn read(&self, at: usize) -> (Entry<'a>, usize) {
        let node = self.node;
        let mut rest = &node.bytes[at..];
        let flags = take_integer(&mut rest) as u8;
        let ms = node.master.ms.wrapping_add(take_integer(&mut rest) as u64);
        let seq = node.master.seq.wrapping_add(take_integer(&mut rest) as u64);
        let (names, n_fields, n_body) = if flags & SAME_FIELDS != 0 {
            (Some(self.names), self.n_fields, self.n_fields)
        } else {
            let n_fields = take_integer(&mut rest) as usize;
            (None, n_fields, 2 * n_fields)
        };
        let mut tail = rest;
        for _ in 0..n_body {
            tail = &tail[n_entry_at(tail)..];
        }
        let body = &rest[..rest.len() - tail.len()];
        let end = node.bytes.len() - tail.len() + n_entry_at(tail);
        let entry =
            Entry { id: StreamId { ms, seq }, is_deleted: flags & DELETED != 0, n_fields, names, body, at };
        (entry, end)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        if self.front >= self.back {
            return None;
        }
        let (entry, end) = self.read(self.front);
        self.front = end;
        Some(entry)
    }
}

impl<'a> DoubleEndedIterator for Entries<'a> {
    fn next_back(&mut self) -> Option<Entry<'a>> {
        if self.back <= self.front.max(self.start) {
            return None;
        }
        let bytes = &self.node.bytes[..self.back];
        let mut at = self.back - n_entry_before(bytes);
        let n_elements = take_integer(&mut &bytes[at..]);
        for _ in 0..n_elements {
            at -= n_entry_before(&bytes[..at]);
        }
        self.back = at;
        Some(self.read(at).0)
    }
}
