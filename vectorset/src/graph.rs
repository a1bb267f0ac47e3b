//! Node and link memory of the graph.
//!
//! ```text
//!   nodes  [ name | attribute* | upper* | l2 | member index | tower index | version | level | dead ]   56 bytes
//!   level0 [ u32 x 2M, or M ]               whole cache lines (128 B at M = 16), ended by EMPTY if short
//!   upper* -> [ u32 x M | u32 x M | ... ]              levels 1, 2, ... of the few nodes that have them
//! ```
//!
//! Readers walk the lists while the writer changes single slots: each slot always holds EMPTY or an id whose
//! node is initialised and not yet recycled, and that is all a reader needs (`links`). A node's version moves
//! with every change of its lists: a plan made from them can tell whether they are still the same.

use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::filter::Attribute;
use crate::hnsw::MAX_ENTRIES;
use crate::links::{self, EMPTY};
use crate::name::Name;
use crate::shared::Shared;
use crate::slab::{Geometry, Slab};

/// An element's place in all per-node memory. Never reused while a reader may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The place as a number; of no meaning to clients, and given again after a removal.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// Ids stay below this: the top bit is free for marks.
pub(crate) const MAX_NODES: u32 = 1 << 31;

/// Redis refuses levels above 16 when it loads a set; so none is drawn.
pub(crate) const MAX_LEVEL: usize = 15;

const LINKS_PER_LINE: usize = 16;

#[repr(C)]
pub(crate) struct Node {
    pub(crate) name: Name,
    pub(crate) attribute: Shared<Attribute>,
    upper: Shared<Box<[AtomicU32]>>,
    l2_bits: AtomicU64,
    /// Where the node stands in the set's member list, and in the writer's list of nodes of its level.
    pub(crate) member_index: AtomicU32,
    pub(crate) tower_index: AtomicU32,
    version: AtomicU32,
    level: AtomicU8,
    dead: AtomicBool,
}

impl Node {
    pub(crate) fn l2(&self) -> f64 {
        f64::from_bits(self.l2_bits.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn level(&self) -> usize {
        usize::from(self.level.load(Ordering::Relaxed))
    }

    /// Whether the element was removed or replaced. A search may still pass through the node.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// How often the node's lists have changed. Who reads it before the lists, and finds it unmoved when no
    /// writer is at work, has seen the lists as they are.
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// Bytes that the node holds on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let upper = self.upper.load_unguarded().map_or(0, |links| size_of_val(&**links) + 16);
        let attribute = self.attribute.load_unguarded().map_or(0, Attribute::memory_bytes);
        self.name.heap_bytes() + attribute + upper
    }
}

pub(crate) struct Graph {
    nodes: Slab,
    level0: Slab,
    m: usize,
    m_max0: usize,
    /// A node of the highest level.
    entry: AtomicU32,
    /// Others that searches may begin at; EMPTY from some place on.
    entries: [AtomicU32; MAX_ENTRIES],
}

impl Graph {
    /// Bytes of a level-0 record of `m_max0` links.
    pub(crate) fn level0_stride(m_max0: usize) -> usize {
        m_max0.next_multiple_of(LINKS_PER_LINE) * size_of::<u32>()
    }

    /// A graph of `m_max0` links a node on level 0 and `m` above.
    pub(crate) fn new(m: usize, m_max0: usize, geometry: Geometry) -> Graph {
        Graph {
            nodes: Slab::new(geometry, size_of::<Node>()),
            level0: Slab::new(geometry, Graph::level0_stride(m_max0)),
            m,
            m_max0,
            entry: AtomicU32::new(EMPTY),
            entries: [const { AtomicU32::new(EMPTY) }; MAX_ENTRIES],
        }
    }

    /// The paper's M_max: M on the upper levels, 2M (or what `Layer0` says) on level 0.
    pub(crate) fn m_max(&self, level: usize) -> usize {
        if level == 0 { self.m_max0 } else { self.m }
    }

    pub(crate) fn m(&self) -> usize {
        self.m
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        // SAFETY: `create` initialised the node before the id was published; it is dropped only after the
        // epochs of all readers that could know the id passed. All its fields but the name, which never changes, are atomics.
        unsafe { &*self.nodes.record(id.0).cast::<Node>() }
    }

    /// The whole link list of a node on a level that it has; the links end at the first EMPTY.
    #[inline(always)]
    pub(crate) fn slots(&self, id: NodeId, level: usize) -> &[AtomicU32] {
        if level == 0 {
            // SAFETY: as for `node`: `create` filled the record with EMPTY before the id was published.
            unsafe { slice::from_raw_parts(self.level0.record(id.0).cast::<AtomicU32>(), self.m_max0) }
        } else {
            let upper =
                self.node(id).upper.load_unguarded().expect("a node linked on a level has that level");
            &upper[(level - 1) * self.m..level * self.m]
        }
    }

    #[inline(always)]
    pub(crate) fn neighbors(&self, id: NodeId, level: usize) -> impl Iterator<Item = NodeId> {
        links::iter(self.slots(id, level)).map(NodeId)
    }

    /// Asks the cache for the level-0 links of a node.
    #[inline(always)]
    pub(crate) fn prefetch_level0(&self, id: NodeId) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the id was published, so its chunk is present; a prefetch reads nothing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let record = self.level0.record(id.0).cast_const().cast::<i8>();
            _mm_prefetch::<_MM_HINT_T0>(record);
            if self.m_max0 > LINKS_PER_LINE {
                _mm_prefetch::<_MM_HINT_T0>(record.add(64));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = id;
    }

    /// Where a search begins: a node of the highest level.
    #[inline]
    pub(crate) fn entry(&self) -> Option<NodeId> {
        let entry = self.entry.load(Ordering::Acquire);
        (entry != EMPTY).then_some(NodeId(entry))
    }

    pub(crate) fn max_level(&self) -> usize {
        self.entry().map_or(0, |entry| self.node(entry).level())
    }

    /// Other nodes where a search may begin, in no order; one may be told twice.
    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = NodeId> {
        links::iter(&self.entries).map(NodeId)
    }

    // ---- Writer only, from here on.

    pub(crate) fn set_entry_at(&self, place: usize, entry: Option<NodeId>) {
        self.entries[place].store(entry.map_or(EMPTY, |entry| entry.0), Ordering::Release);
    }

    pub(crate) fn set_entry(&self, entry: Option<NodeId>) {
        self.entry.store(entry.map_or(EMPTY, |entry| entry.0), Ordering::Release);
    }

    /// Makes room for a node that no reader knows. Returns the bytes allocated.
    pub(crate) fn ensure(&self, id: NodeId) -> usize {
        self.nodes.ensure(id.0) + self.level0.ensure(id.0)
    }

    /// Initialises the node of an id for which there is room and that no reader knows.
    pub(crate) fn create(&self, id: NodeId, level: usize, name: &[u8], attribute: Option<&[u8]>, l2: f64) {
        let upper = (level > 0).then(|| (0..level * self.m).map(|_| AtomicU32::new(EMPTY)).collect());
        let node = Node {
            name: Name::new(name),
            attribute: Shared::new(attribute.map(Attribute::parse)),
            upper: Shared::new(upper),
            l2_bits: AtomicU64::new(l2.to_bits()),
            member_index: AtomicU32::new(0),
            tower_index: AtomicU32::new(0),
            version: AtomicU32::new(0),
            level: AtomicU8::new(level as u8),
            dead: AtomicBool::new(false),
        };
        // SAFETY: `ensure` made both chunks present and no reader knows the id. What the record held before
        // was dropped by `destroy` or never written.
        unsafe {
            self.nodes.record(id.0).cast::<Node>().write(node);
            let links = self.level0.record(id.0).cast::<u32>();
            for slot in 0..Graph::level0_stride(self.m_max0) / size_of::<u32>() {
                links.add(slot).write(EMPTY);
            }
        }
    }

    /// Frees what a node owns. The id may then be given to another.
    ///
    /// # Safety
    /// `create` was called for the id and not yet undone; no reader can know it any more.
    pub(crate) unsafe fn destroy(&self, id: NodeId) {
        // SAFETY: the caller vouches that the node is initialised and nobody else's.
        unsafe { self.nodes.record(id.0).cast::<Node>().drop_in_place() }
    }

    /// # Safety
    /// As `Slab::release`, and every node of the chunk was destroyed.
    pub(crate) unsafe fn release(&self, chunk: usize) -> usize {
        // SAFETY: passed on.
        unsafe { self.nodes.release(chunk) + self.level0.release(chunk) }
    }

    pub(crate) fn degree(&self, id: NodeId, level: usize) -> usize {
        self.neighbors(id, level).count()
    }

    pub(crate) fn are_linked(&self, a: NodeId, b: NodeId, level: usize) -> bool {
        self.neighbors(a, level).any(|neighbor| neighbor == b)
    }

    /// Links two nodes mutually. Both must have room.
    pub(crate) fn link(&self, a: NodeId, b: NodeId, level: usize) {
        debug_assert!(a != b && !self.are_linked(a, b, level));
        self.append(a, b, level);
        self.append(b, a, level);
    }

    /// Takes the link between two nodes away on both sides.
    pub(crate) fn unlink(&self, a: NodeId, b: NodeId, level: usize) {
        self.take_out(a, b, level);
        self.take_out(b, a, level);
    }

    fn append(&self, from: NodeId, to: NodeId, level: usize) {
        links::append(self.slots(from, level), to.0);
        self.node(from).note_change();
    }

    /// Takes `to` out of the list of `from` only: for the lists that name a removed node.
    pub(crate) fn take_out(&self, from: NodeId, to: NodeId, level: usize) {
        links::take_out(self.slots(from, level), to.0);
        self.node(from).note_change();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_small() {
        assert_eq!(size_of::<Node>(), 56);
    }

    #[test]
    fn a_list_has_no_gap_after_links_are_taken_out() {
        let graph = Graph::new(4, 8, Geometry::for_stride(64));
        let ids: Vec<NodeId> = (0..9).map(NodeId).collect();
        for &id in &ids {
            graph.ensure(id);
            graph.create(id, 1, b"name", None, 1.0);
        }
        ids[1..].iter().for_each(|&id| graph.link(ids[0], id, 0));
        assert_eq!(graph.degree(ids[0], 0), 8);
        for (taken, &id) in ids[1..].iter().enumerate() {
            graph.unlink(id, ids[0], 0);
            assert_eq!(graph.degree(ids[0], 0), 7 - taken);
            assert!(!graph.are_linked(ids[0], id, 0) && !graph.are_linked(id, ids[0], 0));
        }
        assert_eq!(graph.degree(ids[0], 1), 0);
        for &id in &ids {
            // SAFETY: created above, and nobody reads.
            unsafe { graph.destroy(id) };
        }
    }
}
