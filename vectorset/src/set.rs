//! A vector set as readers see it. Every method takes the caller's guard: what it returns stays valid under
//! it.
//!
//! Scores are Redis's under the cosine: 1 - distance / 2 in f64, the distance in f32; a zero vector has 0.5
//! with everything (but for BIN, where it has the signs of a negative one). The effective `ef` is computed here: min(len, max(ef, count)).
//! A search answers for the set as it was when it began, without what was removed before it ended.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::admission::All;
use crate::epoch::{Domain, Guard};
use crate::error::Error;
use crate::filter::{Attribute, Filter, FilteredState, MatchCache};
use crate::graph::{Node, NodeId};
use crate::hnsw::{Index, Probe, Progress};
use crate::members::Members;
use crate::names::Names;
use crate::params::{MAX_DIM, MAX_M, MIN_M, Params, Quantization};
use crate::pool::Candidate;
use crate::scratch::SearchScratch;
use crate::search::{SearchOptions, State, Way, score};
use crate::vectors::denormalize;
use crate::writer::{Retired, Writer};

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a> {
    /// The vector of an element of the set.
    Element(&'a [u8]),
    /// A vector as the client gave it, not normalised.
    Vector(&'a [f32]),
}

/// A vector in the form in which it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct RawVector {
    pub kind: Quantization,
    /// Little-endian float32 of the normalised vector | a signed byte a component | 64-bit words of signs.
    pub blob: Vec<u8>,
    /// The length of the vector as it was given.
    pub l2: f64,
    /// Q8 only: the largest component, for which 127 stands.
    pub range: Option<f32>,
}

/// The shared, readable side of a set.
pub struct VectorSet {
    pub(crate) params: Params,
    pub(crate) domain: Arc<Domain>,
    pub(crate) index: Index,
    pub(crate) members: Members,
    pub(crate) names: Names,
    pub(crate) uid: u64,
    pub(crate) max_node_uid: AtomicU64,
    pub(crate) attributes_count: AtomicU32,
    /// Moves by two with each removal or replacement and is odd during it: when two nodes have one name, or one
    /// member two places. A search that saw it odd or moving may have met one name twice.
    pub(crate) changes: AtomicU64,
    pub(crate) memory_bytes: AtomicUsize,
    /// A `CheckedWidth`, packed.
    pub(crate) checked_width: AtomicU64,
    /// Made by the writer when the set has attributes and is no longer small.
    pub(crate) matches: OnceLock<Box<MatchCache>>,
    /// What the writer left behind when it was dropped; freed with the set.
    pub(crate) left_behind: Mutex<Vec<Retired>>,
}

impl VectorSet {
    /// An empty set and its only writer.
    ///
    /// # Panics
    /// If `params` are out of range: the server checks what clients say.
    pub fn create(params: Params, domain: Arc<Domain>) -> (Arc<VectorSet>, Writer) {
        assert!((1..=MAX_DIM).contains(&params.dim), "dim out of range");
        assert!((MIN_M..=MAX_M).contains(&params.m), "m out of range");
        let (names, names_writer) = Names::new(params.seed);
        let set = Arc::new(VectorSet {
            params,
            index: Index::new(params),
            members: Members::new(),
            names,
            uid: domain.next_set_uid(),
            domain,
            max_node_uid: AtomicU64::new(0),
            attributes_count: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            memory_bytes: AtomicUsize::new(0),
            checked_width: AtomicU64::new(0),
            matches: OnceLock::new(),
            left_behind: Mutex::new(Vec::new()),
        });
        let writer = Writer::new(set.clone(), names_writer);
        (set, writer)
    }

    pub fn len(&self) -> usize {
        self.members.len() as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The epochs that protect this set's readers.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub fn params(&self) -> Params {
        self.params
    }

    /// Unique among the sets of the domain.
    pub fn uid(&self) -> u64 {
        self.uid
    }

    /// How many nodes were ever made: one per added element and per replaced vector.
    pub fn max_node_uid(&self) -> u64 {
        self.max_node_uid.load(Ordering::Relaxed)
    }

    /// Elements that have an attribute.
    pub fn attributes_count(&self) -> usize {
        self.attributes_count.load(Ordering::Relaxed) as usize
    }

    /// Bytes allocated for the set, without the allocator's own overhead.
    pub fn memory_bytes(&self) -> usize {
        size_of::<VectorSet>() + self.memory_bytes.load(Ordering::Relaxed)
    }

    /// The highest level that a node has.
    pub fn max_level(&self, guard: &Guard) -> usize {
        guard.assert_guards(&self.domain);
        self.index.graph.max_level()
    }

    pub fn contains(&self, name: &[u8], guard: &Guard) -> bool {
        self.find(name, guard).is_some()
    }

    /// The vector as VEMB tells it: the stored one times its length; +-1 under BIN.
    pub fn vector(&self, name: &[u8], guard: &Guard) -> Option<Vec<f32>> {
        self.find(name, guard).map(|id| self.told(id))
    }

    /// The stored vector and the length of the vector that was given.
    pub fn vector_raw(&self, name: &[u8], guard: &Guard) -> Option<(Vec<f32>, f64)> {
        let id = self.find(name, guard)?;
        Some((self.index.stored(id), self.index.graph.node(id).l2()))
    }

    /// The stored bytes, as VEMB RAW and DUMP tell them.
    pub fn raw(&self, name: &[u8], guard: &Guard) -> Option<RawVector> {
        let id = self.find(name, guard)?;
        let (blob, range) = self.index.blob(id);
        let kind = self.params.quantization;
        Some(RawVector { kind, blob, l2: self.index.graph.node(id).l2(), range })
    }

    fn told(&self, id: NodeId) -> Vec<f32> {
        let stored = self.index.stored(id);
        match self.params.quantization {
            Quantization::Bin => stored,
            Quantization::None | Quantization::Q8 => denormalize(&stored, self.index.graph.node(id).l2()),
        }
    }

    pub fn attribute<'a>(&'a self, name: &[u8], guard: &'a Guard) -> Option<&'a [u8]> {
        let id = self.find(name, guard)?;
        self.index.graph.node(id).attribute.load(guard).map(Attribute::text)
    }

    /// The neighbors of an element, per level from 0 up, with their scores; in no order within a level.
    pub fn links<'a>(&'a self, name: &[u8], guard: &'a Guard) -> Option<Vec<Vec<Hit<'a>>>> {
        let id = self.find(name, guard)?;
        let hit = |other| self.hit(other, self.index.distance_between(id, other), guard);
        let neighbors = |level| self.index.graph.neighbors(id, level).map(hit).collect();
        Some((0..=self.index.graph.node(id).level()).map(neighbors).collect())
    }

    /// The element at a place of the member list, `None` beyond its end: for random choice. Places change
    /// with removals.
    pub fn member<'a>(&'a self, index: usize, guard: &'a Guard) -> Option<&'a [u8]> {
        guard.assert_guards(&self.domain);
        let id = self.members.get(u32::try_from(index).ok()?)?;
        Some(self.name(id, guard))
    }

    /// At most `count` distinct elements, chosen by the caller's random numbers; all, if there are no more.
    pub fn random_members<'a>(
        &'a self,
        count: usize,
        mut random: impl FnMut() -> u64,
        guard: &'a Guard,
    ) -> Vec<&'a [u8]> {
        guard.assert_guards(&self.domain);
        let len = self.len();
        let mut places: Vec<usize> = Vec::new();
        if count.saturating_mul(2) >= len {
            places.extend(0..len);
            for i in 0..count.min(len) {
                places.swap(i, i + (random() % (len - i) as u64) as usize);
            }
            places.truncate(count);
        } else {
            let mut taken = HashSet::new();
            while places.len() < count {
                let place = (random() % len as u64) as usize;
                if taken.insert(place) {
                    places.push(place);
                }
            }
        }
        places.into_iter().filter_map(|place| self.member(place, guard)).collect()
    }

    /// The `count` nearest elements that a graph search with `ef` finds; exact where a scan is cheaper.
    pub fn search<'a>(
        &'a self,
        query: Query<'_>,
        count: usize,
        ef: usize,
        scratch: &'a mut SearchScratch,
        guard: &'a Guard,
    ) -> Result<Hits<'a>, Error> {
        self.run(query, SearchOptions::new(count, ef), scratch, guard)
    }

    /// The exact `count` nearest elements, by a scan of all.
    pub fn search_exact<'a>(
        &'a self,
        query: Query<'_>,
        count: usize,
        scratch: &'a mut SearchScratch,
        guard: &'a Guard,
    ) -> Result<Hits<'a>, Error> {
        let options = SearchOptions { way: Way::Scan, ..SearchOptions::new(count, count) };
        self.run(query, options, scratch, guard)
    }

    /// A whole search in one go.
    pub fn run<'a>(
        &'a self,
        query: Query<'_>,
        options: SearchOptions,
        scratch: &'a mut SearchScratch,
        guard: &'a Guard,
    ) -> Result<Hits<'a>, Error> {
        let mut state = State::begin(self, query, options, scratch, guard)?;
        state.step(self, &All, usize::MAX, scratch, guard);
        Ok(state.hits(self, scratch, guard))
    }

    /// A whole search with a filter in one go.
    pub fn run_filtered<'a>(
        &'a self,
        query: Query<'_>,
        options: SearchOptions,
        filter: &Filter,
        scratch: &'a mut SearchScratch,
        guard: &'a Guard,
    ) -> Result<Hits<'a>, Error> {
        let mut search = FilteredState::begin(self, query, options, filter, scratch, guard)?;
        while search.step(self, filter, usize::MAX, scratch, guard) == Progress::Unfinished {}
        Ok(search.state.hits(self, scratch, guard))
    }

    /// Makes `probe` measure from the query.
    pub(crate) fn prepare(&self, query: Query<'_>, probe: &mut Probe, guard: &Guard) -> Result<(), Error> {
        match query {
            Query::Element(name) => {
                let id = self.find(name, guard).ok_or(Error::ElementNotFound)?;
                match self.params.quantization {
                    Quantization::None => self.index.prepare_stored(id, probe),
                    // Redis takes the vector that it would tell, and makes a query of it like of any other.
                    Quantization::Q8 | Quantization::Bin => {
                        self.index.prepare(&self.told(id), probe).map(drop)
                    }
                }
            }
            Query::Vector(vector) => {
                self.check_dim(vector)?;
                self.index.prepare(vector, probe).map(drop)
            }
        }
    }

    pub(crate) fn check_dim(&self, vector: &[f32]) -> Result<(), Error> {
        let expected = self.params.dim as usize;
        if vector.len() == expected {
            Ok(())
        } else {
            Err(Error::DimensionMismatch { got: vector.len(), expected })
        }
    }

    fn find(&self, name: &[u8], guard: &Guard) -> Option<NodeId> {
        guard.assert_guards(&self.domain);
        self.names.find(name, |id| self.name(id, guard) == name, guard)
    }

    fn hit<'a>(&'a self, id: NodeId, distance: f32, guard: &'a Guard) -> Hit<'a> {
        Hit {
            name: self.name(id, guard),
            distance,
            score: score(self.params.metric, distance),
            node: self.index.graph.node(id),
            guard,
        }
    }

    pub(crate) fn name<'a>(&'a self, id: NodeId, guard: &'a Guard) -> &'a [u8] {
        guard.assert_guards(&self.domain);
        self.index.graph.node(id).name.text()
    }
}

impl Drop for VectorSet {
    fn drop(&mut self) {
        let left_behind = self.left_behind.get_mut().map(std::mem::take).unwrap_or_default();
        for retired in left_behind {
            retired.free(&self.index);
        }
        for id in self.members.iter_backwards() {
            // SAFETY: `&mut self`: no readers, no writer; a member's node is initialised and is a member
            // once.
            unsafe { self.index.graph.destroy(id) };
        }
    }
}

/// The answer of a search, nearest first.
pub struct Hits<'a> {
    set: &'a VectorSet,
    found: &'a [Candidate],
    guard: &'a Guard,
}

impl<'a> Hits<'a> {
    pub(crate) fn new(set: &'a VectorSet, found: &'a [Candidate], guard: &'a Guard) -> Hits<'a> {
        Hits { set, found, guard }
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Hit<'a>> + use<'a> {
        let (set, guard) = (self.set, self.guard);
        self.found.iter().map(move |found| set.hit(found.id, found.distance, guard))
    }
}

/// An element and its similarity to the query.
#[derive(Clone, Copy)]
pub struct Hit<'a> {
    pub name: &'a [u8],
    /// As the metric has it: see `Metric`.
    pub distance: f32,
    /// The larger, the more similar. Under the cosine 1 - distance / 2: 1 for the same direction, 0 for the
    /// opposite. Under the squared Euclidean distance 1 / (1 + distance), under the inner product itself.
    pub score: f64,
    node: &'a Node,
    guard: &'a Guard,
}

impl<'a> Hit<'a> {
    pub fn attribute(&self) -> Option<&'a [u8]> {
        self.node.attribute.load(self.guard).map(Attribute::text)
    }
}
