//! A set: sorted integers ("intset"), one packed buffer ("listpack") or a table of members ("hashtable").
//!
//! ```text
//!  intset   --a string, small--> listpack --too many, too long--> hashtable
//!  intset   --too many integers, or a string when not small-----> hashtable
//! ```
//!
//! There is no way back, but for what a command builds anew (`take_random` of most members, the stored results of set
//! algebra), exactly as in Redis 8.2.3.
//!
//! Cost: the small encodings O(log n) and O(n) for n up to the limits; the table O(1), growth in steps of microseconds.

use hashbrown::HashSet;
use skerry_resp::parse_i64;

use super::element::{Element, Encoded};
use super::intset::Intset;
use super::member::Member;
use super::members::Members;
use super::packed::{Growth, Packed};
use super::{Limits, OneOf, PACKED_MAX_BYTES, below, choose};
use crate::keyspace::hash::HashSeed;
pub use crate::keyspace::table::ScanPosition;

/// Redis rebuilds a set when it pops this many times more members than it keeps.
const REBUILD_RATIO: usize = 5;
/// Drawing distinct members one by one pays when at most one in this many is wanted.
const DRAW_RATIO: usize = 3;
/// The longest decimal i64, sign included.
const DECIMAL_MAX_BYTES: usize = 20;

pub struct Set(Repr);

impl Default for Set {
    fn default() -> Self {
        Self::new_packed()
    }
}

enum Repr {
    Ints(Intset),
    Packed(Packed),
    Table(Members),
}

/// A member taken out of its set.
pub enum Taken {
    Integer(i64),
    Bytes(Box<[u8]>),
    Member(Member),
}

impl Taken {
    pub fn as_element(&self) -> Element<'_> {
        match self {
            Taken::Integer(integer) => Element::Integer(*integer),
            Taken::Bytes(bytes) => Element::Bytes(bytes),
            Taken::Member(member) => Element::Bytes(member.as_ref().field()),
        }
    }
}

impl Set {
    /// An empty set in the encoding Redis would create for a command with `n_members` members, `first` among them.
    pub fn for_members(first: &[u8], n_members: usize, limits: &Limits) -> Self {
        if parse_i64(first).is_some() && n_members <= limits.set_max_intset_entries {
            Self::new_intset()
        } else if n_members <= limits.set_max_listpack_entries {
            Self::new_packed()
        } else {
            Self(Repr::Table(Members::new()))
        }
    }

    pub fn new_intset() -> Self {
        Self(Repr::Ints(Intset::new()))
    }

    pub fn new_packed() -> Self {
        Self(Repr::Packed(Packed::new()))
    }

    /// An empty one in the big encoding.
    pub fn new_table() -> Self {
        Self(Repr::Table(Members::new()))
    }

    /// A set of these elements, which are all different. [`Set::announce`] it to the limits in force.
    pub fn of_packed(packed: Packed) -> Self {
        Self(Repr::Packed(packed))
    }

    /// A set of these integers, which ascend and are distinct. [`Set::announce`] it to the limits in force.
    pub fn of_ascending(integers: impl Iterator<Item = i64> + Clone) -> Self {
        Self(Repr::Ints(Intset::of_ascending(integers)))
    }

    /// The packed buffer of a set in that encoding.
    pub fn packed(&self) -> Option<&Packed> {
        if let Repr::Packed(packed) = &self.0 { Some(packed) } else { None }
    }

    /// The integers of a set of that encoding: how many bytes each has, and all of them, little-endian and ascending.
    pub fn integers(&self) -> Option<(usize, &[u8])> {
        if let Repr::Ints(ints) = &self.0 { Some((ints.width(), ints.elements())) } else { None }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Ints(ints) => ints.len(),
            Repr::Packed(packed) => packed.len(),
            Repr::Table(members) => members.len(),
        }
    }

    /// Asks the cache for what a command on a small set touches; see `Object::prefetch`.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        match &self.0 {
            Repr::Ints(ints) => {
                ints.prefetch();
                false
            }
            Repr::Packed(packed) => packed.prefetch(wave),
            Repr::Table(members) => members.prefetch(wave),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING answers.
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Repr::Ints(_) => "intset",
            Repr::Packed(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    // ---- members

    /// Converts as Redis does when a command brings `n_members` members, repeated ones counted, before it adds them.
    pub fn announce(&mut self, n_members: usize, limits: &Limits) {
        let too_many = match &self.0 {
            Repr::Ints(_) => n_members > limits.set_max_intset_entries,
            Repr::Packed(_) => n_members > limits.set_max_listpack_entries,
            Repr::Table(_) => false,
        };
        if too_many {
            self.become_table(limits.seed);
        }
    }

    /// Adds a member; false if it was there.
    #[inline]
    pub fn add(&mut self, member: &[u8], limits: &Limits) -> bool {
        match &mut self.0 {
            Repr::Table(members) => members.add(member, limits.seed),
            Repr::Packed(packed) => {
                let encoded = Encoded::of(member);
                if packed.find::<1>(&encoded).is_some() {
                    return false;
                }
                if packed.len() < limits.set_max_listpack_entries
                    && member.len() <= limits.set_max_listpack_value
                    && packed.listpack_bytes() + member.len() <= PACKED_MAX_BYTES
                {
                    packed.push_back(&encoded, Growth::Tight);
                    return true;
                }
                self.become_table(limits.seed).add(member, limits.seed)
            }
            Repr::Ints(_) => self.add_to_intset(member, limits),
        }
    }

    /// The same for an element that any set lends.
    pub fn add_element(&mut self, element: Element<'_>, limits: &Limits) -> bool {
        self.add(element.as_bytes(&mut itoa::Buffer::new()), limits)
    }

    fn add_to_intset(&mut self, member: &[u8], limits: &Limits) -> bool {
        let Repr::Ints(ints) = &mut self.0 else { unreachable!("the caller has looked") };
        if let Some(integer) = parse_i64(member) {
            let added = ints.insert(integer);
            if added && ints.len() > limits.set_max_intset_entries.min(PACKED_MAX_BYTES) {
                self.become_table(limits.seed);
            }
            return added;
        }
        // The longest integer must be short enough for a listpack, too: with default limits any is.
        let n_longest = |ints: &Intset| ints.iter().map(|int| Element::Integer(int).n_bytes()).max();
        let fits = ints.len() < limits.set_max_listpack_entries
            && member.len() <= limits.set_max_listpack_value
            && (limits.set_max_listpack_value >= DECIMAL_MAX_BYTES
                || n_longest(ints).unwrap_or(0) <= limits.set_max_listpack_value);
        if !fits {
            return self.become_table(limits.seed).add(member, limits.seed);
        }
        let mut packed = Packed::new();
        ints.iter().for_each(|int| packed.push_back(&Encoded::new(Element::Integer(int)), Growth::Tight));
        packed.push_back(&Encoded::of(member), Growth::Tight);
        self.0 = Repr::Packed(packed);
        true
    }

    /// Removes a member; false if it was not there.
    #[inline]
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Repr::Ints(ints) => parse_i64(member).is_some_and(|integer| ints.remove(integer)),
            Repr::Packed(packed) => {
                let found = packed.find::<1>(&Encoded::of(member));
                found.map(|at| packed.remove(at, 1)).is_some()
            }
            Repr::Table(members) => members.remove(member).is_some(),
        }
    }

    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.0 {
            Repr::Ints(ints) => parse_i64(member).is_some_and(|integer| ints.contains(integer)),
            Repr::Packed(packed) => packed.find::<1>(&Encoded::of(member)).is_some(),
            Repr::Table(members) => members.find(member).is_some(),
        }
    }

    /// The same for an element that any set lends.
    #[inline]
    pub fn contains_element(&self, element: Element<'_>) -> bool {
        match (&self.0, element) {
            (_, Element::Bytes(bytes)) => self.contains(bytes),
            (Repr::Ints(ints), Element::Integer(integer)) => ints.contains(integer),
            (Repr::Packed(packed), element) => packed.find::<1>(&Encoded::new(element)).is_some(),
            (Repr::Table(members), element) => {
                members.find(element.as_bytes(&mut itoa::Buffer::new())).is_some()
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        match &self.0 {
            Repr::Ints(ints) => OneOf::First(ints.iter().map(Element::Integer)),
            Repr::Packed(packed) => OneOf::Second(packed.iter()),
            Repr::Table(members) => OneOf::Third(members.iter().map(|m| Element::Bytes(m.field()))),
        }
    }

    /// One step of SSCAN: see `Table::scan`. The small encodings are walked in one step.
    pub fn scan<'s>(&'s self, at: ScanPosition, mut visit: impl FnMut(Element<'s>)) -> ScanPosition {
        match &self.0 {
            Repr::Table(members) => members.scan(at, |m| visit(Element::Bytes(m.field()))),
            Repr::Ints(_) | Repr::Packed(_) => {
                self.iter().for_each(visit);
                ScanPosition::default()
            }
        }
    }

    // ---- random members

    /// A random member, each with the same chance; None of an empty set.
    pub fn random(&self, random: &mut impl FnMut() -> u64) -> Option<Element<'_>> {
        if self.is_empty() {
            return None;
        }
        match &self.0 {
            Repr::Ints(ints) => Some(Element::Integer(ints.get(below(ints.len(), random)))),
            Repr::Packed(packed) => Some(packed.get(packed.seek(below(packed.len(), random)))),
            Repr::Table(members) => members.random(random).map(|m| Element::Bytes(m.field())),
        }
    }

    /// `n` different random members, or all if there are no more.
    pub fn sample<'s>(
        &'s self,
        n: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'s>),
    ) {
        match &self.0 {
            Repr::Table(members) if n < members.len() / DRAW_RATIO => {
                let mut drawn = HashSet::new();
                while drawn.len() < n {
                    let Some(member) = members.random(random) else { return };
                    if drawn.insert(member.address()) {
                        visit(Element::Bytes(member.field()));
                    }
                }
            }
            Repr::Table(_) | Repr::Ints(_) | Repr::Packed(_) => {
                choose(self.iter(), self.len(), n, random, visit, drop);
            }
        }
    }

    /// Takes a random member out.
    pub fn pop(&mut self, random: &mut impl FnMut() -> u64) -> Option<Taken> {
        if self.is_empty() {
            return None;
        }
        match &mut self.0 {
            Repr::Ints(ints) => Some(Taken::Integer(ints.remove_at(below(ints.len(), random)))),
            Repr::Packed(packed) => {
                let at = packed.seek(below(packed.len(), random));
                let taken = match packed.get(at) {
                    Element::Integer(integer) => Taken::Integer(integer),
                    Element::Bytes(bytes) => Taken::Bytes(bytes.into()),
                };
                packed.remove(at, 1);
                Some(taken)
            }
            Repr::Table(members) => members.take_random(random).map(Taken::Member),
        }
    }

    /// Takes `n` random members out, or all: a set of them, which may be big (free it with `free_slice`).
    ///
    /// A table of which little is left is rebuilt from that and so may get a small encoding again, as in Redis.
    pub fn take_random(&mut self, n: usize, random: &mut impl FnMut() -> u64, limits: &Limits) -> Set {
        let n_kept = self.len().saturating_sub(n);
        if n_kept == 0 {
            return std::mem::take(self);
        }
        let len = self.len();
        match &mut self.0 {
            Repr::Ints(ints) => {
                let (mut taken, mut kept) = (Vec::new(), Vec::new());
                choose(
                    ints.iter(),
                    len,
                    n,
                    random,
                    |integer| taken.push(integer),
                    |integer| kept.push(integer),
                );
                *ints = Intset::of_ascending(kept.iter().copied());
                Set(Repr::Ints(Intset::of_ascending(taken.iter().copied())))
            }
            Repr::Packed(packed) => {
                let (mut taken, mut kept) = (Packed::new(), Packed::new());
                let push = |to: &mut Packed, element| to.push_back(&Encoded::new(element), Growth::Tight);
                choose(packed.iter(), len, n, random, |e| push(&mut taken, e), |e| push(&mut kept, e));
                *packed = kept;
                Set(Repr::Packed(taken))
            }
            Repr::Table(members) if n_kept * REBUILD_RATIO > n => {
                let mut taken = Members::new();
                let moved = std::iter::from_fn(|| members.take_random(random)).take(n);
                moved.for_each(|member| taken.insert(member, limits.seed));
                Set(Repr::Table(taken))
            }
            Repr::Table(members) => {
                let mut kept = Self::new_packed();
                let moved = std::iter::from_fn(|| members.take_random(random)).take(n_kept);
                moved.for_each(|member| _ = kept.add(member.as_ref().field(), limits));
                std::mem::replace(self, kept)
            }
        }
    }

    // ---- whole

    /// Bytes allocated below this value.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Ints(ints) => ints.heap_bytes(),
            Repr::Packed(packed) => packed.heap_bytes(),
            Repr::Table(members) => members.heap_bytes(),
        }
    }

    /// Frees about `budget` members; true when nothing is left. The set may be used on, with the members left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Repr::Ints(_) | Repr::Packed(_) => {
                *self = Self::new_packed();
                true
            }
            Repr::Table(members) => members.free_slice(budget),
        }
    }

    /// Makes the result of a stored intersection an intset if all members are integers and few.
    pub fn become_intset_if_integers(&mut self, limits: &Limits) {
        if matches!(self.0, Repr::Ints(_)) || self.len() > limits.set_max_intset_entries {
            return;
        }
        let integers: Option<Vec<i64>> = self
            .iter()
            .map(|element| match element.canonical() {
                Element::Integer(integer) => Some(integer),
                Element::Bytes(_) => None,
            })
            .collect();
        if let Some(mut integers) = integers {
            integers.sort_unstable();
            self.0 = Repr::Ints(Intset::of_ascending(integers.iter().copied()));
        }
    }

    /// Whether probing this set walks it: then many probes are better made of a hash set of its members.
    pub(super) fn probes_by_walking(&self) -> bool {
        matches!(self.0, Repr::Packed(_))
    }

    fn become_table(&mut self, seed: HashSeed) -> &mut Members {
        if !matches!(self.0, Repr::Table(_)) {
            let mut members = Members::new();
            for element in self.iter() {
                members.insert(Member::new(element.as_bytes(&mut itoa::Buffer::new())), seed);
            }
            self.0 = Repr::Table(members);
        }
        match &mut self.0 {
            Repr::Table(members) => members,
            Repr::Ints(_) | Repr::Packed(_) => unreachable!("it was made one"),
        }
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        match &self.0 {
            Repr::Ints(ints) => ints.check(),
            Repr::Packed(packed) => packed.check_whole(),
            Repr::Table(members) => members.check(),
        }
    }
}

/// A copy of the same encoding: COPY.
impl Clone for Set {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Ints(ints) => Repr::Ints(ints.clone()),
            Repr::Packed(packed) => Repr::Packed(packed.clone()),
            Repr::Table(members) => Repr::Table(members.clone()),
        })
    }
}

/// Same members, whatever the encodings.
impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|element| other.contains_element(element))
    }
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
