//! A hash: one packed buffer of fields and values in turn ("listpack") or a table of members ("hashtable").
//!
//! It grows into the table when there are more fields than `hash-max-listpack-entries` or a field or value is longer
//! than `hash-max-listpack-value`, and never back, as in Redis 8.2.3. A field with a deadline (HEXPIRE) will live in
//! the table alone, where the member's tag keeps a bit for it.
//!
//! Invariant: the packed buffer has an even number of elements.
//! Cost: packed O(n) for n up to the limit; the table O(1), growth in steps of microseconds.

use hashbrown::HashSet;

use super::element::{Element, Encoded};
use super::member::{Member, MemberRef};
use super::members::Members;
use super::packed::{Growth, Packed};
use super::{Limits, OneOf, PACKED_MAX_BYTES, below, choose};
use crate::keyspace::hash::HashSeed;
pub use crate::keyspace::table::ScanPosition;

/// Entries of the packed buffer a field takes: itself and its value.
const STRIDE: usize = 2;
/// Drawing distinct fields one by one pays when at most one in this many is wanted.
const DRAW_RATIO: usize = 3;

pub struct Hash(Repr);

enum Repr {
    Packed(Packed),
    Table(Members),
}

/// A field and its value, lent.
pub type Pair<'a> = (Element<'a>, Element<'a>);

/// What [`Hash::set`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    New,
    Replaced,
}

impl Stored {
    fn of(is_new: bool) -> Self {
        if is_new { Stored::New } else { Stored::Replaced }
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Hash {
    pub fn new() -> Self {
        Self(Repr::Packed(Packed::new()))
    }

    /// An empty one in the big encoding.
    pub fn new_table() -> Self {
        Self(Repr::Table(Members::new()))
    }

    /// A hash of these fields and values in turn; the fields are all different.
    pub fn of_packed(packed: Packed, limits: &Limits) -> Self {
        let too_many = packed.len() / STRIDE > limits.hash_max_listpack_entries;
        let mut hash = Self(Repr::Packed(packed));
        if too_many {
            hash.become_table(limits.seed);
        }
        hash
    }

    /// The packed buffer of a hash in that encoding.
    pub fn packed(&self) -> Option<&Packed> {
        if let Repr::Packed(packed) = &self.0 { Some(packed) } else { None }
    }

    /// Number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.len() / STRIDE,
            Repr::Table(fields) => fields.len(),
        }
    }

    /// Asks the cache for what a command on a small hash touches; see `Object::prefetch`.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        match &self.0 {
            Repr::Packed(packed) => {
                packed.prefetch();
                false
            }
            Repr::Table(fields) => fields.prefetch(wave),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING answers.
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Repr::Packed(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    // ---- fields

    /// Converts as Redis does before it stores the fields and values of one command (in turn, as they stand in argv).
    pub fn announce<'v>(&mut self, fields_and_values: impl Iterator<Item = &'v [u8]>, limits: &Limits) {
        let Repr::Packed(packed) = &self.0 else { return };
        let n_max = limits.hash_max_listpack_entries.saturating_mul(STRIDE);
        let (mut n, mut n_bytes) = (0, packed.listpack_bytes());
        for element in fields_and_values {
            n += 1;
            n_bytes += element.len();
            if element.len() > limits.hash_max_listpack_value || n > n_max || n_bytes > PACKED_MAX_BYTES {
                self.become_table(limits.seed);
                return;
            }
        }
    }

    /// Stores a field's value.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> Stored {
        let max = limits.hash_max_listpack_value;
        match &mut self.0 {
            Repr::Table(fields) => Stored::of(fields.set(field, value, limits.seed)),
            Repr::Packed(packed) if field.len() <= max && value.len() <= max => {
                let stored = set_packed(packed, field, value);
                let too_many = packed.len() / STRIDE > limits.hash_max_listpack_entries;
                if too_many || packed.listpack_bytes() > PACKED_MAX_BYTES {
                    self.become_table(limits.seed);
                }
                stored
            }
            Repr::Packed(_) => Stored::of(self.become_table(limits.seed).set(field, value, limits.seed)),
        }
    }

    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match &self.0 {
            Repr::Packed(packed) => {
                let at = packed.find::<STRIDE>(&Encoded::of(field))?;
                Some(packed.get(packed.skip(at)))
            }
            Repr::Table(fields) => fields.find(field).map(|member| Element::Bytes(member.value())),
        }
    }

    #[inline]
    pub fn contains(&self, field: &[u8]) -> bool {
        match &self.0 {
            Repr::Packed(packed) => packed.find::<STRIDE>(&Encoded::of(field)).is_some(),
            Repr::Table(fields) => fields.find(field).is_some(),
        }
    }

    /// Removes a field; false if it was not there.
    #[inline]
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                let found = packed.find::<STRIDE>(&Encoded::of(field));
                found.map(|at| packed.remove(at, STRIDE)).is_some()
            }
            Repr::Table(fields) => fields.remove(field).is_some(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Pair<'_>> {
        match &self.0 {
            Repr::Packed(packed) => OneOf::First(pairs(packed)),
            // The third place is not needed: an empty iterator of the second's type stands there.
            Repr::Table(fields) => OneOf::<_, _, std::iter::Empty<_>>::Second(fields.iter().map(pair)),
        }
    }

    /// One step of HSCAN: see `Table::scan`. The packed encoding is walked in one step.
    pub fn scan<'s>(&'s self, at: ScanPosition, mut visit: impl FnMut(Pair<'s>)) -> ScanPosition {
        match &self.0 {
            Repr::Table(fields) => fields.scan(at, |member| visit(pair(member))),
            Repr::Packed(packed) => {
                pairs(packed).for_each(visit);
                ScanPosition::default()
            }
        }
    }

    // ---- random fields

    /// A random field and its value, each with the same chance; None of an empty hash.
    pub fn random(&self, random: &mut impl FnMut() -> u64) -> Option<Pair<'_>> {
        if self.is_empty() {
            return None;
        }
        match &self.0 {
            Repr::Packed(packed) => {
                let at = packed.seek(STRIDE * below(packed.len() / STRIDE, random));
                Some((packed.get(at), packed.get(packed.skip(at))))
            }
            Repr::Table(fields) => fields.random(random).map(pair),
        }
    }

    /// `n` different random fields with their values, or all if there are no more.
    pub fn sample<'s>(&'s self, n: usize, random: &mut impl FnMut() -> u64, mut visit: impl FnMut(Pair<'s>)) {
        match &self.0 {
            Repr::Table(fields) if n < fields.len() / DRAW_RATIO => {
                let mut drawn = HashSet::new();
                while drawn.len() < n {
                    let Some(member) = fields.random(random) else { return };
                    if drawn.insert(member.address()) {
                        visit(pair(member));
                    }
                }
            }
            Repr::Table(_) | Repr::Packed(_) => choose(self.iter(), self.len(), n, random, visit, drop),
        }
    }

    // ---- whole

    /// Bytes allocated below this value.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.heap_bytes(),
            Repr::Table(fields) => fields.heap_bytes(),
        }
    }

    /// Frees about `budget` fields; true when nothing is left. The hash may be used on, with the fields left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                *packed = Packed::new();
                true
            }
            Repr::Table(fields) => fields.free_slice(budget),
        }
    }

    fn become_table(&mut self, seed: HashSeed) -> &mut Members {
        if let Repr::Packed(packed) = &self.0 {
            let mut fields = Members::new();
            for (field, value) in pairs(packed) {
                let (mut field_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
                let value = value.as_bytes(&mut value_digits);
                fields.insert(Member::with_value(field.as_bytes(&mut field_digits), value), seed);
            }
            self.0 = Repr::Table(fields);
        }
        match &mut self.0 {
            Repr::Table(fields) => fields,
            Repr::Packed(_) => unreachable!("it was made one"),
        }
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        match &self.0 {
            Repr::Packed(packed) => {
                packed.check_whole();
                assert!(packed.len().is_multiple_of(STRIDE));
            }
            Repr::Table(fields) => fields.check(),
        }
    }
}

fn set_packed(packed: &mut Packed, field: &[u8], value: &[u8]) -> Stored {
    let value = Encoded::of(value);
    let field = Encoded::of(field);
    match packed.find::<STRIDE>(&field) {
        Some(at) => {
            packed.replace(packed.skip(at), &value, Growth::Tight);
            Stored::Replaced
        }
        None => {
            packed.push_back(&field, Growth::Tight);
            packed.push_back(&value, Growth::Tight);
            Stored::New
        }
    }
}

fn pairs(packed: &Packed) -> impl Iterator<Item = Pair<'_>> {
    let mut entries = packed.iter();
    std::iter::from_fn(move || Some((entries.next()?, entries.next()?)))
}

#[inline]
fn pair(member: MemberRef<'_>) -> Pair<'_> {
    (Element::Bytes(member.field()), Element::Bytes(member.value()))
}

/// A copy of the same encoding: COPY.
impl Clone for Hash {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Packed(packed) => Repr::Packed(packed.clone()),
            Repr::Table(fields) => Repr::Table(fields.clone()),
        })
    }
}

/// Same fields with the same values, whatever the encodings.
impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().all(|(field, value)| {
                let mut digits = itoa::Buffer::new();
                let found = other.get(field.as_bytes(&mut digits));
                found.map(Element::canonical) == Some(value.canonical())
            })
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
