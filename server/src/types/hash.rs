//! A hash: one packed buffer of fields and values in turn ("listpack") or a table of members ("hashtable").
//!
//! It grows into the table when there are more fields than `hash-max-listpack-entries` or a field or value is longer
//! than `hash-max-listpack-value`, and never back, as in Redis 8.2.3. A field with a deadline (HEXPIRE) will live in
//! the table alone, where the member's tag keeps a bit for it.
//!
//! Invariants: the packed buffer has an even number of elements; `member_bytes` is the sum of the members' allocations.
//! Cost: packed O(n) for n up to the limit; the table O(1), growth in steps of microseconds.

use hashbrown::HashSet;

use super::element::{Element, Encoded};
use super::member::{Member, MemberRef};
use super::packed::{Growth, Packed};
use super::{Limits, OneOf, PACKED_MAX_BYTES, below, choose};
use crate::keyspace::hash::HashSeed;
pub use crate::keyspace::table::ScanPosition;
use crate::keyspace::table::{Table, prefetch};

/// Entries of the packed buffer a field takes: itself and its value.
const STRIDE: usize = 2;
/// Drawing distinct fields one by one pays when at most one in this many is wanted.
const DRAW_RATIO: usize = 3;

pub struct Hash(Repr);

enum Repr {
    Packed(Packed),
    Table(Box<Fields>),
}

/// The big encoding.
struct Fields {
    table: Table<Member>,
    member_bytes: usize,
}

/// A field and its value, lent.
pub type Pair<'a> = (Element<'a>, Element<'a>);

/// What [`Hash::set`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    New,
    Replaced,
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

    /// Number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.len() / STRIDE,
            Repr::Table(fields) => fields.table.len(),
        }
    }

    /// Asks the cache for what a command on a small hash touches; see `Object::prefetch`.
    #[inline]
    pub fn prefetch(&self, wave: usize) {
        match (&self.0, wave) {
            (Repr::Packed(packed), 0) => packed.prefetch(),
            (Repr::Table(fields), 0) => {
                let at = std::ptr::from_ref(&**fields).addr() as u64;
                prefetch(at);
                prefetch(at + 64);
            }
            (Repr::Table(fields), 1) => fields.table.prefetch_small(),
            (Repr::Table(fields), _) => fields.table.prefetch_first_entry(),
            _ => {}
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
            Repr::Table(fields) => fields.set(field, value),
            Repr::Packed(packed) if field.len() <= max && value.len() <= max => {
                let stored = set_packed(packed, field, value);
                let too_many = packed.len() / STRIDE > limits.hash_max_listpack_entries;
                if too_many || packed.listpack_bytes() > PACKED_MAX_BYTES {
                    self.become_table(limits.seed);
                }
                stored
            }
            Repr::Packed(_) => self.become_table(limits.seed).set(field, value),
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
            Repr::Table(fields) => fields.remove(field),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Pair<'_>> {
        match &self.0 {
            Repr::Packed(packed) => OneOf::First(pairs(packed)),
            // The third place is not needed: an empty iterator of the second's type stands there.
            Repr::Table(fields) => OneOf::<_, _, std::iter::Empty<_>>::Second(fields.table.iter().map(pair)),
        }
    }

    /// One step of HSCAN: see `Table::scan`. The packed encoding is walked in one step.
    pub fn scan<'s>(&'s self, at: ScanPosition, mut visit: impl FnMut(Pair<'s>)) -> ScanPosition {
        match &self.0 {
            Repr::Table(fields) => fields.table.scan(at, |member| visit(pair(member))),
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
            Repr::Table(fields) => fields.table.random(random).map(pair),
        }
    }

    /// `n` different random fields with their values, or all if there are no more.
    pub fn sample<'s>(&'s self, n: usize, random: &mut impl FnMut() -> u64, mut visit: impl FnMut(Pair<'s>)) {
        match &self.0 {
            Repr::Table(fields) if n < fields.table.len() / DRAW_RATIO => {
                let mut drawn = HashSet::new();
                while drawn.len() < n {
                    let Some(member) = fields.table.random(&mut *random) else { return };
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
            Repr::Table(fields) => size_of::<Fields>() + fields.table.memory_bytes() + fields.member_bytes,
        }
    }

    /// Frees about `budget` fields; true when nothing is left. The hash may be used on, with the fields left.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                *packed = Packed::new();
                true
            }
            Repr::Table(fields) => {
                let mut freed = 0;
                let empty = fields.table.drain(budget, |member| freed += member.allocated_bytes());
                fields.member_bytes -= freed;
                empty
            }
        }
    }

    fn become_table(&mut self, seed: HashSeed) -> &mut Fields {
        if let Repr::Packed(packed) = &self.0 {
            let mut fields = Fields::new(seed);
            for (field, value) in pairs(packed) {
                let (mut field_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
                let value = value.as_bytes(&mut value_digits);
                fields.insert(Member::with_value(field.as_bytes(&mut field_digits), value));
            }
            self.0 = Repr::Table(Box::new(fields));
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
            Repr::Table(fields) => {
                let sum = fields.table.iter().map(|member| member.allocated_bytes()).sum::<usize>();
                assert_eq!(fields.member_bytes, sum);
            }
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

impl Fields {
    fn new(seed: HashSeed) -> Self {
        Self { table: Table::new(seed), member_bytes: 0 }
    }

    #[inline]
    fn find(&self, field: &[u8]) -> Option<MemberRef<'_>> {
        self.table.find(self.table.hash(field), field)
    }

    #[inline]
    fn set(&mut self, field: &[u8], value: &[u8]) -> Stored {
        let hash = self.table.hash(field);
        if let Some(mut slot) = self.table.find_mut(hash, field) {
            let (before, after) = slot.update(|member| {
                let before = member.allocated_bytes();
                member.set_value(value);
                (before, member.allocated_bytes())
            });
            self.member_bytes = self.member_bytes - before + after;
            return Stored::Replaced;
        }
        let member = Member::with_value(field, value);
        self.member_bytes += member.allocated_bytes();
        self.table.insert(hash, member);
        Stored::New
    }

    /// Files a field that is not there yet.
    fn insert(&mut self, member: Member) {
        self.member_bytes += member.allocated_bytes();
        let hash = self.table.hash(member.as_ref().field());
        self.table.insert(hash, member);
    }

    fn remove(&mut self, field: &[u8]) -> bool {
        let Some(member) = self.table.remove(self.table.hash(field), field) else { return false };
        self.member_bytes -= member.allocated_bytes();
        true
    }
}

/// A copy of the same encoding: COPY.
impl Clone for Hash {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Packed(packed) => Repr::Packed(packed.clone()),
            Repr::Table(fields) => {
                let mut copy = Fields::new(fields.table.seed());
                fields.table.iter().for_each(|member| copy.insert(member.to_owned()));
                Repr::Table(Box::new(copy))
            }
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
