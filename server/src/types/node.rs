//! A quicklist's node: a packed buffer within the node limit, or one large element alone; and the limit itself.
//!
//! Where Redis reckons sizes (of an element not encoded yet, of a node that may take it), so does this file, to the
//! byte: OBJECT ENCODING depends on it.
//!
//! It knows no list.

use super::element::{Element, Encoded};
use super::packed::{self, End, Growth, Packed};

/// Redis reckons this many bytes of head and backlen for an element before it is encoded.
pub(super) const ENTRY_ESTIMATE_BYTES: usize = 8;
/// The byte limit of a node that is limited by count.
const COUNT_NODE_MAX_BYTES: usize = 8192;

/// `list-max-listpack-size`, read.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeLimit {
    Bytes(usize),
    Count(usize),
}

impl NodeLimit {
    pub(super) fn of(list_max_listpack_size: i32) -> Self {
        match list_max_listpack_size {
            count @ 1.. => NodeLimit::Count(count as usize),
            0 => NodeLimit::Count(1),
            level => NodeLimit::Bytes(4096 << (level.unsigned_abs() - 1).min(4)),
        }
    }

    /// Whether a node of this listpack size and count is too big.
    #[inline]
    pub(super) fn is_exceeded(self, listpack_bytes: usize, count: usize) -> bool {
        match self {
            NodeLimit::Bytes(max) => listpack_bytes > max,
            NodeLimit::Count(max) => listpack_bytes > COUNT_NODE_MAX_BYTES || count > max,
        }
    }

    /// Whether a node is at most half as big as it may be: then a lone one becomes a listpack again.
    pub(super) fn is_half(self, listpack_bytes: usize, count: usize) -> bool {
        match self {
            NodeLimit::Bytes(max) => listpack_bytes <= max / 2,
            NodeLimit::Count(max) => count <= max / 2,
        }
    }

    /// Whether an element gets a node of its own.
    #[inline]
    pub(super) fn is_large(self, n_bytes: usize) -> bool {
        n_bytes > self.max_bytes()
    }

    pub(super) fn max_bytes(self) -> usize {
        match self {
            NodeLimit::Bytes(max) => max,
            NodeLimit::Count(_) => COUNT_NODE_MAX_BYTES,
        }
    }
}

#[derive(Clone, PartialEq)]
pub(super) enum Node {
    Packed(Packed),
    /// One large element, raw.
    Plain(Box<[u8]>),
}

/// A node, lent.
pub enum Part<'a> {
    Packed(&'a Packed),
    /// One large element.
    Plain(&'a [u8]),
}

impl Node {
    pub(super) fn lend(&self) -> Part<'_> {
        match self {
            Node::Packed(packed) => Part::Packed(packed),
            Node::Plain(value) => Part::Plain(value),
        }
    }

    pub(super) fn of(value: &[u8], limit: NodeLimit) -> Self {
        if limit.is_large(value.len()) {
            return Node::Plain(value.into());
        }
        let mut packed = Packed::new();
        packed.push_back(&Encoded::of(value), Growth::Roomy);
        Node::Packed(packed)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Node::Packed(packed) => packed.len(),
            Node::Plain(_) => 1,
        }
    }

    #[inline]
    pub(super) fn allows(&self, n_bytes: usize, limit: NodeLimit) -> bool {
        match self {
            Node::Packed(packed) => {
                let bytes = packed.listpack_bytes() + n_bytes + ENTRY_ESTIMATE_BYTES;
                !limit.is_large(n_bytes) && !limit.is_exceeded(bytes, packed.len() + 1)
            }
            Node::Plain(_) => false,
        }
    }

    pub(super) fn packed_mut(&mut self) -> &mut Packed {
        match self {
            Node::Packed(packed) => packed,
            Node::Plain(_) => unreachable!("a plain node takes no second element"),
        }
    }

    pub(super) fn tighten(&mut self) {
        if let Node::Packed(packed) = self {
            packed.tighten();
        }
    }

    pub(super) fn iter_from(&self, index: usize) -> NodeIter<'_> {
        match self {
            Node::Packed(packed) => NodeIter::Packed(packed.iter_from(packed.seek(index))),
            Node::Plain(value) => NodeIter::Plain((index == 0).then_some(value)),
        }
    }

    /// The first `n` elements.
    pub(super) fn iter_until(&self, n: usize) -> NodeIter<'_> {
        match self {
            Node::Packed(packed) => NodeIter::Packed(packed.iter_until(packed.seek(n))),
            Node::Plain(value) => NodeIter::Plain((n > 0).then_some(value)),
        }
    }

    /// Removes up to `max` elements equal to the value; a plain node is emptied, for the list to drop.
    pub(super) fn remove_equal(&mut self, value: &[u8], max: usize, from: End) -> usize {
        match self {
            Node::Packed(packed) => packed.remove_equal(&Encoded::of(value), max, from),
            Node::Plain(plain) if **plain == *value => {
                *plain = Box::default();
                1
            }
            Node::Plain(_) => 0,
        }
    }

    /// Whether `remove_equal` has left nothing (a plain element is never empty).
    pub(super) fn is_used_up(&self) -> bool {
        match self {
            Node::Packed(packed) => packed.is_empty(),
            Node::Plain(value) => value.is_empty(),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Node::Packed(packed) => packed.heap_bytes(),
            Node::Plain(value) => value.len(),
        }
    }
}

pub(super) enum NodeIter<'a> {
    Packed(packed::Iter<'a>),
    Plain(Option<&'a [u8]>),
}

impl<'a> NodeIter<'a> {
    #[inline]
    pub(super) fn next(&mut self) -> Option<Element<'a>> {
        match self {
            NodeIter::Packed(entries) => entries.next(),
            NodeIter::Plain(value) => value.take().map(Element::Bytes),
        }
    }

    #[inline]
    pub(super) fn next_back(&mut self) -> Option<Element<'a>> {
        match self {
            NodeIter::Packed(entries) => entries.next_back(),
            NodeIter::Plain(value) => value.take().map(Element::Bytes),
        }
    }
}
