//! A hash: one packed buffer of fields and values in turn ("listpack") or a table of members ("hashtable"), and the
//! same two with a deadline for each field that has one (HEXPIRE).
//!
//! ```text
//!   Packed    | field | value | field | value | ...               listpack
//!   TimedPacked  | field | value | deadline or 0 | ...            listpackex: first due first, those without last
//!   Table     members                                             hashtable
//!   TimedTable   members + deadlines (module `timed`)             hashtable
//! ```
//!
//! It grows into the table when there are more fields than `hash-max-listpack-entries` or a field or value is longer
//! than `hash-max-listpack-value`, and never back; it tracks deadlines from the first command that could give a field one, and
//! for good: all as in Redis 8.2.3.
//!
//! It knows no clock. A field is dead when the `now_ms` that a caller brings is past its deadline; dead fields are counted
//! ([`Hash::len`]) until somebody removes them, and what shows fields does not show them.
//! Invariant: a packed buffer has two (three) elements a field.
//! Cost: packed O(n) for n up to the limit; the table O(1), with a deadline O(log n), growth in steps of microseconds.

use hashbrown::HashSet;

use super::element::{Digits, Element, Encoded};
use super::member::{DEADLINE_MAX_MS, Member, MemberRef};
use super::members::Members;
use super::packed::{Growth, Packed, Position};
use super::{Limits, OneOf, PACKED_MAX_BYTES, below, choose};
use crate::keyspace::hash::HashSeed;
use crate::keyspace::loose::Loose;
pub use crate::keyspace::table::ScanPosition;
use timed::Timed;

mod timed;

/// Entries of the packed buffer a field takes: itself and its value.
const STRIDE: usize = 2;
/// The same with its deadline.
const TIMED_STRIDE: usize = 3;
/// Drawing distinct fields one by one pays when at most one in this many is wanted.
const DRAW_RATIO: usize = 3;
/// Dead fields that a draw meets before it counts the living ones instead.
const DRAWS_MAX: usize = 100;

/// What a deadline may be, in Unix milliseconds.
pub const DEADLINES_MS: std::ops::RangeInclusive<i64> = 1..=DEADLINE_MAX_MS;

pub struct Hash(Repr);

enum Repr {
    Packed(Packed),
    TimedPacked(Packed),
    Table(Members),
    TimedTable(Loose<Timed>),
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

/// What a field holds at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Absent,
    /// It is there, and its deadline is over.
    Dead,
    Alive(Element<'a>),
}

/// How long a field lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// There is no such field.
    Absent,
    Forever,
    /// Unix milliseconds, which may be over.
    Until(i64),
}

impl Term {
    fn of(deadline_ms: Option<i64>) -> Self {
        deadline_ms.map_or(Term::Forever, Term::Until)
    }

    /// Whether the field is there and not dead.
    pub fn is_alive(self, now_ms: i64) -> bool {
        match self {
            Term::Absent => false,
            Term::Forever => true,
            Term::Until(deadline_ms) => !is_over(deadline_ms, now_ms),
        }
    }
}

#[inline]
fn is_over(deadline_ms: i64, now_ms: i64) -> bool {
    now_ms > deadline_ms
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

    /// One in the big encoding of fields, values and perhaps deadlines, which it tracks; None if one of them is None, or there
    /// twice.
    pub fn of_timed_fields<S: AsRef<[u8]>>(
        fields: impl Iterator<Item = Option<(S, S, Option<i64>)>>,
        limits: &Limits,
    ) -> Option<Self> {
        Timed::of_fields(fields, limits.seed).map(|timed| Self(Repr::TimedTable(Loose::new(timed))))
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

    /// A hash of these fields, values and deadlines (0: none) in turn; the fields are all different. None if the deadlines are
    /// none or do not ascend.
    pub fn of_timed_packed(packed: Packed, limits: &Limits) -> Option<Self> {
        let mut last_ms = 0;
        let mut entries = packed.iter().skip(2).step_by(TIMED_STRIDE);
        let are_sound = entries.all(|entry| {
            let deadline_ms = match entry {
                // Those without stand last.
                Element::Integer(0) => i64::MAX,
                Element::Integer(deadline_ms) if DEADLINES_MS.contains(&deadline_ms) => deadline_ms,
                Element::Integer(_) | Element::Bytes(_) => return false,
            };
            std::mem::replace(&mut last_ms, deadline_ms) <= deadline_ms
        });
        let too_many = packed.len() / TIMED_STRIDE > limits.hash_max_listpack_entries;
        let mut hash = are_sound.then_some(Self(Repr::TimedPacked(packed)))?;
        if too_many {
            hash.become_table(limits.seed);
        }
        Some(hash)
    }

    /// The packed buffer of a hash of fields, values and deadlines.
    pub fn timed_packed(&self) -> Option<&Packed> {
        if let Repr::TimedPacked(packed) = &self.0 { Some(packed) } else { None }
    }

    /// The packed buffer of a hash in that encoding.
    pub fn packed(&self) -> Option<&Packed> {
        if let Repr::Packed(packed) = &self.0 { Some(packed) } else { None }
    }

    /// Number of fields, dead ones too.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.len() / STRIDE,
            Repr::TimedPacked(packed) => packed.len() / TIMED_STRIDE,
            Repr::Table(fields) => fields.len(),
            Repr::TimedTable(timed) => timed.len(),
        }
    }

    /// Number of fields that are alive.
    pub fn n_alive(&self, now_ms: i64) -> usize {
        self.len() - self.n_dead(now_ms)
    }

    fn n_dead(&self, now_ms: i64) -> usize {
        match &self.0 {
            Repr::Packed(_) | Repr::Table(_) => 0,
            Repr::TimedPacked(packed) => {
                let is_dead = |deadline_ms: &Option<i64>| deadline_ms.is_some_and(|ms| is_over(ms, now_ms));
                timed_pairs(packed).take_while(|(_, deadline_ms)| is_dead(deadline_ms)).count()
            }
            Repr::TimedTable(timed) => timed.due().n_before(now_ms),
        }
    }

    /// Asks the cache for what a command on a small hash touches; see `Object::prefetch`.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        match &self.0 {
            Repr::Packed(packed) | Repr::TimedPacked(packed) => packed.prefetch(wave),
            Repr::Table(fields) => fields.prefetch(wave),
            Repr::TimedTable(timed) => timed.prefetch(wave),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING answers.
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Repr::Packed(_) => "listpack",
            Repr::TimedPacked(_) => "listpackex",
            Repr::Table(_) | Repr::TimedTable(_) => "hashtable",
        }
    }

    // ---- fields

    /// Converts as Redis does before it stores the fields and values of one command (in turn, as they stand in argv).
    pub fn announce<'v>(&mut self, fields_and_values: impl Iterator<Item = &'v [u8]>, limits: &Limits) {
        let (Repr::Packed(packed) | Repr::TimedPacked(packed)) = &self.0 else { return };
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

    /// Stores a field's value; a deadline that the field has is gone.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> Stored {
        match &mut self.0 {
            Repr::Table(fields) => Stored::of(fields.set(field, value, limits.seed)),
            Repr::Packed(_) => self.set_small(field, value, limits),
            Repr::TimedPacked(packed) => {
                // What has a deadline goes behind the others.
                let encoded = Encoded::of(field);
                let is_replaced = match packed.find::<TIMED_STRIDE>(&encoded) {
                    Some(at) if deadline_at(packed, at).is_some() => {
                        packed.remove(at, TIMED_STRIDE);
                        true
                    }
                    Some(_) | None => false,
                };
                match self.set_small(field, value, limits) {
                    Stored::New if is_replaced => Stored::Replaced,
                    stored => stored,
                }
            }
            Repr::TimedTable(timed) => {
                timed.set_deadline(field, None);
                Stored::of(timed.set_value(field, value))
            }
        }
    }

    /// Stores a field's value; a deadline that the field has stays.
    #[inline]
    pub fn set_value(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> Stored {
        match &mut self.0 {
            Repr::Table(fields) => Stored::of(fields.set(field, value, limits.seed)),
            Repr::TimedTable(timed) => Stored::of(timed.set_value(field, value)),
            Repr::Packed(_) | Repr::TimedPacked(_) => self.set_small(field, value, limits),
        }
    }

    /// Stores a field's value with a deadline. The hash tracks deadlines.
    pub fn set_until(&mut self, field: &[u8], value: &[u8], deadline_ms: i64, limits: &Limits) -> Stored {
        let max = limits.hash_max_listpack_value;
        let Repr::TimedPacked(packed) = &mut self.0 else {
            let stored = self.set_value(field, value, limits);
            self.set_deadline(field, Some(deadline_ms));
            return stored;
        };
        if field.len() > max || value.len() > max {
            self.become_table(limits.seed);
            return self.set_until(field, value, deadline_ms, limits);
        }
        let (field, value) = (Encoded::of(field), Encoded::of(value));
        let old = packed.find::<TIMED_STRIDE>(&field);
        old.into_iter().for_each(|at| packed.remove(at, TIMED_STRIDE));
        let at = place_for(packed, Some(deadline_ms));
        push_timed(packed, at, &field, &value, Some(deadline_ms));
        let n_fields = packed.len() / TIMED_STRIDE;
        if n_fields > limits.hash_max_listpack_entries || packed.listpack_bytes() > PACKED_MAX_BYTES {
            self.become_table(limits.seed);
        }
        Stored::of(old.is_none())
    }

    /// Stores a value in a packed buffer, or in what the buffer becomes if it is too much for one.
    #[inline]
    fn set_small(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> Stored {
        let max = limits.hash_max_listpack_value;
        let fits = field.len() <= max && value.len() <= max;
        let (stored, n_fields, n_bytes) = match &mut self.0 {
            Repr::Packed(packed) if fits => {
                let stored = set_packed(packed, field, value);
                (stored, packed.len() / STRIDE, packed.listpack_bytes())
            }
            Repr::TimedPacked(packed) if fits => {
                let stored = set_timed_packed(packed, field, value);
                (stored, packed.len() / TIMED_STRIDE, packed.listpack_bytes())
            }
            _ => {
                self.become_table(limits.seed);
                return self.set_value(field, value, limits);
            }
        };
        if n_fields > limits.hash_max_listpack_entries || n_bytes > PACKED_MAX_BYTES {
            self.become_table(limits.seed);
        }
        stored
    }

    /// What a field holds at `now_ms`.
    #[inline]
    pub fn find(&self, field: &[u8], now_ms: i64) -> Found<'_> {
        match &self.0 {
            Repr::Packed(packed) => match packed.find::<STRIDE>(&Encoded::of(field)) {
                Some(at) => Found::Alive(packed.get(packed.skip(at))),
                None => Found::Absent,
            },
            Repr::Table(fields) => match fields.find(field) {
                Some(member) => Found::Alive(Element::Bytes(member.value())),
                None => Found::Absent,
            },
            Repr::TimedPacked(_) | Repr::TimedTable(_) => self.find_timed(field, now_ms),
        }
    }

    fn find_timed(&self, field: &[u8], now_ms: i64) -> Found<'_> {
        let found = match &self.0 {
            Repr::TimedPacked(packed) => packed
                .find::<TIMED_STRIDE>(&Encoded::of(field))
                .map(|at| (packed.get(packed.skip(at)), deadline_at(packed, at))),
            Repr::TimedTable(timed) => {
                timed.find(field).map(|member| (Element::Bytes(member.value()), member.deadline_ms()))
            }
            Repr::Packed(_) | Repr::Table(_) => return self.find(field, now_ms),
        };
        match found {
            None => Found::Absent,
            Some((_, Some(deadline_ms))) if is_over(deadline_ms, now_ms) => Found::Dead,
            Some((value, _)) => Found::Alive(value),
        }
    }

    /// The value of a field that is alive.
    #[inline]
    pub fn get(&self, field: &[u8], now_ms: i64) -> Option<Element<'_>> {
        match self.find(field, now_ms) {
            Found::Alive(value) => Some(value),
            Found::Absent | Found::Dead => None,
        }
    }

    /// Whether a field is there, and dead.
    pub fn is_dead(&self, field: &[u8], now_ms: i64) -> bool {
        self.find(field, now_ms) == Found::Dead
    }

    /// Removes a field, dead or alive; false if it was not there.
    #[inline]
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                let found = packed.find::<STRIDE>(&Encoded::of(field));
                found.map(|at| packed.remove(at, STRIDE)).is_some()
            }
            Repr::TimedPacked(packed) => {
                let found = packed.find::<TIMED_STRIDE>(&Encoded::of(field));
                found.map(|at| packed.remove(at, TIMED_STRIDE)).is_some()
            }
            Repr::Table(fields) => fields.remove(field).is_some(),
            Repr::TimedTable(timed) => timed.remove(field),
        }
    }

    /// The fields that are alive, with their values.
    pub fn iter(&self, now_ms: i64) -> impl Iterator<Item = Pair<'_>> {
        self.timed_iter()
            .filter(move |(_, deadline_ms)| deadline_ms.is_none_or(|ms| !is_over(ms, now_ms)))
            .map(|(pair, _)| pair)
    }

    /// All fields with their values and deadlines, dead ones too.
    pub fn timed_iter(&self) -> impl Iterator<Item = (Pair<'_>, Option<i64>)> {
        match &self.0 {
            Repr::Packed(packed) => OneOf::First(pairs(packed).map(|pair| (pair, None))),
            Repr::TimedPacked(packed) => OneOf::Second(timed_pairs(packed)),
            Repr::Table(fields) => OneOf::Third(fields.iter().map(timed_pair)),
            Repr::TimedTable(timed) => OneOf::Third(timed.members().iter().map(timed_pair)),
        }
    }

    /// One step of HSCAN: see `Table::scan`. The packed encoding is walked in one step.
    pub fn scan<'s>(
        &'s self,
        at: ScanPosition,
        now_ms: i64,
        mut visit: impl FnMut(Pair<'s>),
    ) -> ScanPosition {
        match &self.0 {
            Repr::Table(fields) => fields.scan(at, |member| visit(pair(member))),
            Repr::TimedTable(timed) => timed.members().scan(at, |member| {
                if is_alive(member, now_ms) {
                    visit(pair(member));
                }
            }),
            Repr::Packed(_) | Repr::TimedPacked(_) => {
                self.iter(now_ms).for_each(visit);
                ScanPosition::default()
            }
        }
    }

    // ---- deadlines

    /// From here on fields can have deadlines.
    pub fn track_deadlines(&mut self, seed: HashSeed) {
        match &mut self.0 {
            Repr::TimedPacked(_) | Repr::TimedTable(_) => {}
            Repr::Packed(packed) => {
                let mut timed = Packed::with_capacity(packed.heap_bytes());
                pairs(packed).for_each(|(field, value)| {
                    let end = timed.end();
                    push_timed(&mut timed, end, &Encoded::new(field), &Encoded::new(value), None);
                });
                self.0 = Repr::TimedPacked(timed);
            }
            Repr::Table(fields) => {
                let fields = std::mem::replace(fields, Members::new());
                self.0 = Repr::TimedTable(Loose::new(Timed::of_endless(fields, seed)));
            }
        }
    }

    /// How long a field lives.
    pub fn term(&self, field: &[u8]) -> Term {
        let found = match &self.0 {
            Repr::Packed(packed) => packed.find::<STRIDE>(&Encoded::of(field)).map(|_| None),
            Repr::Table(fields) => fields.find(field).map(|_| None),
            Repr::TimedPacked(packed) => {
                packed.find::<TIMED_STRIDE>(&Encoded::of(field)).map(|at| deadline_at(packed, at))
            }
            Repr::TimedTable(timed) => timed.find(field).map(MemberRef::deadline_ms),
        };
        found.map_or(Term::Absent, Term::of)
    }

    /// Gives a field of a hash that tracks deadlines one, or takes it away; nothing if the field is not there.
    pub fn set_deadline(&mut self, field: &[u8], deadline_ms: Option<i64>) {
        match &mut self.0 {
            Repr::TimedTable(timed) => timed.set_deadline(field, deadline_ms),
            Repr::TimedPacked(packed) => {
                let field = Encoded::of(field);
                let Some(at) = packed.find::<TIMED_STRIDE>(&field) else { return };
                let value = packed.get(packed.skip(at)).to_vec();
                packed.remove(at, TIMED_STRIDE);
                let at = place_for(packed, deadline_ms);
                push_timed(packed, at, &field, &Encoded::of(&value), deadline_ms);
            }
            Repr::Packed(_) | Repr::Table(_) => debug_assert!(false, "the caller has it track deadlines"),
        }
    }

    /// The first deadline of all, in Unix milliseconds.
    #[inline]
    pub fn earliest_ms(&self) -> Option<i64> {
        match &self.0 {
            Repr::Packed(_) | Repr::Table(_) => None,
            Repr::TimedPacked(packed) => packed.first().and_then(|at| deadline_at(packed, at)),
            Repr::TimedTable(timed) => timed.due().first().map(|due| due.deadline_ms),
        }
    }

    /// Removes up to `budget` dead fields, those first that were due first; returns how many.
    pub fn remove_dead(&mut self, now_ms: i64, budget: usize) -> usize {
        match &mut self.0 {
            Repr::Packed(_) | Repr::Table(_) => 0,
            Repr::TimedTable(timed) => timed.remove_dead(now_ms, budget),
            Repr::TimedPacked(packed) => {
                let is_dead = |deadline_ms: &Option<i64>| deadline_ms.is_some_and(|ms| is_over(ms, now_ms));
                let dead = timed_pairs(packed).take(budget).take_while(|(_, ms)| is_dead(ms));
                let n_dead = dead.count();
                if let (Some(first), 1..) = (packed.first(), n_dead) {
                    packed.remove(first, n_dead * TIMED_STRIDE);
                }
                n_dead
            }
        }
    }

    // ---- random fields

    /// A random field that is alive, and its value, each with the same chance.
    pub fn random(&self, now_ms: i64, random: &mut impl FnMut() -> u64) -> Option<Pair<'_>> {
        if self.is_empty() {
            return None;
        }
        match &self.0 {
            Repr::Packed(packed) => {
                let at = packed.seek(STRIDE * below(packed.len() / STRIDE, random));
                Some((packed.get(at), packed.get(packed.skip(at))))
            }
            Repr::Table(fields) => fields.random(random).map(pair),
            Repr::TimedPacked(packed) => {
                // The dead ones stand first.
                let n_dead = self.n_dead(now_ms);
                let n_alive = packed.len() / TIMED_STRIDE - n_dead;
                let index = (n_alive > 0).then(|| n_dead + below(n_alive, random))?;
                let at = packed.seek(TIMED_STRIDE * index);
                Some((packed.get(at), packed.get(packed.skip(at))))
            }
            Repr::TimedTable(timed) => {
                for _ in 0..DRAWS_MAX {
                    let member = timed.members().random(random)?;
                    if is_alive(member, now_ms) {
                        return Some(pair(member));
                    }
                }
                let n_alive = self.n_alive(now_ms);
                let index = (n_alive > 0).then(|| below(n_alive, random))?;
                self.iter(now_ms).nth(index)
            }
        }
    }

    /// `n` different random fields that are alive with their values, or all if there are no more.
    pub fn sample<'s>(
        &'s self,
        now_ms: i64,
        n: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Pair<'s>),
    ) {
        let n_alive = self.n_alive(now_ms);
        let members = match &self.0 {
            Repr::Table(fields) => Some(fields),
            // Each draw meets a living field with a chance of one half at least.
            Repr::TimedTable(timed) if n_alive >= self.len() / 2 => Some(timed.members()),
            Repr::TimedTable(_) | Repr::Packed(_) | Repr::TimedPacked(_) => None,
        };
        match members {
            Some(members) if n < n_alive / DRAW_RATIO => {
                let mut drawn = HashSet::new();
                while drawn.len() < n {
                    let Some(member) = members.random(random) else { return };
                    if is_alive(member, now_ms) && drawn.insert(member.address()) {
                        visit(pair(member));
                    }
                }
            }
            Some(_) | None => choose(self.iter(now_ms), n_alive, n, random, visit, drop),
        }
    }

    // ---- whole

    /// Bytes allocated below this value.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) | Repr::TimedPacked(packed) => packed.heap_bytes(),
            Repr::Table(fields) => fields.heap_bytes(),
            Repr::TimedTable(timed) => timed.heap_bytes(),
        }
    }

    /// Frees about `budget` fields; true when nothing is left. Not to be used on but for freeing the rest.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) | Repr::TimedPacked(packed) => {
                *packed = Packed::new();
                true
            }
            Repr::Table(fields) => fields.free_slice(budget),
            Repr::TimedTable(timed) => timed.free_slice(budget),
        }
    }

    fn become_table(&mut self, seed: HashSeed) {
        let is_timed = matches!(self.0, Repr::TimedPacked(_));
        if !is_timed && !matches!(self.0, Repr::Packed(_)) {
            return;
        }
        let mut members = Members::new();
        for ((field, value), deadline_ms) in self.timed_iter() {
            let (mut field_digits, mut value_digits) = (Digits::new(), Digits::new());
            let (field, value) = (field.as_bytes(&mut field_digits), value.as_bytes(&mut value_digits));
            let member = match deadline_ms {
                None => Member::with_value(field, value),
                Some(deadline_ms) => Member::with_deadline(field, value, deadline_ms),
            };
            members.insert(member, seed);
        }
        self.0 = if is_timed {
            Repr::TimedTable(Loose::new(Timed::of_members(members, seed)))
        } else {
            Repr::Table(members)
        };
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        match &self.0 {
            Repr::Packed(packed) => {
                packed.check_whole();
                assert!(packed.len().is_multiple_of(STRIDE));
            }
            Repr::TimedPacked(packed) => {
                packed.check_whole();
                assert!(packed.len().is_multiple_of(TIMED_STRIDE));
                let ends = timed_pairs(packed).map(|(_, deadline_ms)| deadline_ms.unwrap_or(i64::MAX));
                assert!(ends.is_sorted(), "deadlines do not ascend");
            }
            Repr::Table(fields) => {
                fields.check();
                assert!(fields.iter().all(|member| member.deadline_ms().is_none()));
            }
            Repr::TimedTable(timed) => timed.check(),
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

fn set_timed_packed(packed: &mut Packed, field: &[u8], value: &[u8]) -> Stored {
    let value = Encoded::of(value);
    let field = Encoded::of(field);
    match packed.find::<TIMED_STRIDE>(&field) {
        Some(at) => {
            packed.replace(packed.skip(at), &value, Growth::Tight);
            Stored::Replaced
        }
        None => {
            let end = packed.end();
            push_timed(packed, end, &field, &value, None);
            Stored::New
        }
    }
}

/// Puts a field before the entry at `at`.
fn push_timed(
    packed: &mut Packed,
    at: Position,
    field: &Encoded<'_>,
    value: &Encoded<'_>,
    deadline_ms: Option<i64>,
) {
    let deadline = Encoded::new(Element::Integer(deadline_ms.unwrap_or(0)));
    packed.insert(at, field, Growth::Tight);
    let at = packed.skip(at);
    packed.insert(at, value, Growth::Tight);
    let at = packed.skip(at);
    packed.insert(at, &deadline, Growth::Tight);
}

/// Where a field with this deadline belongs: before the first that is due no sooner.
fn place_for(packed: &Packed, deadline_ms: Option<i64>) -> Position {
    let Some(deadline_ms) = deadline_ms else { return packed.end() };
    let mut at = packed.first();
    while let Some(here) = at {
        if deadline_at(packed, here).is_none_or(|other| other >= deadline_ms) {
            return here;
        }
        at = packed.next(packed.skip(packed.skip(here)));
    }
    packed.end()
}

/// The deadline of the field at `at`.
fn deadline_at(packed: &Packed, at: Position) -> Option<i64> {
    deadline_of(packed.get(packed.skip(packed.skip(at))))
}

fn deadline_of(element: Element<'_>) -> Option<i64> {
    match element {
        Element::Integer(0) => None,
        Element::Integer(deadline_ms) => Some(deadline_ms),
        Element::Bytes(_) => unreachable!("a deadline is stored as an integer"),
    }
}

fn pairs(packed: &Packed) -> impl Iterator<Item = Pair<'_>> {
    let mut entries = packed.iter();
    std::iter::from_fn(move || Some((entries.next()?, entries.next()?)))
}

fn timed_pairs(packed: &Packed) -> impl Iterator<Item = (Pair<'_>, Option<i64>)> {
    let mut entries = packed.iter();
    std::iter::from_fn(move || {
        let pair = (entries.next()?, entries.next()?);
        Some((pair, deadline_of(entries.next()?)))
    })
}

#[inline]
fn pair(member: MemberRef<'_>) -> Pair<'_> {
    (Element::Bytes(member.field()), Element::Bytes(member.value()))
}

#[inline]
fn timed_pair(member: MemberRef<'_>) -> (Pair<'_>, Option<i64>) {
    (pair(member), member.deadline_ms())
}

fn is_alive(member: MemberRef<'_>, now_ms: i64) -> bool {
    member.deadline_ms().is_none_or(|deadline_ms| !is_over(deadline_ms, now_ms))
}

/// A copy of the same encoding: COPY.
impl Clone for Hash {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Packed(packed) => Repr::Packed(packed.clone()),
            Repr::TimedPacked(packed) => Repr::TimedPacked(packed.clone()),
            Repr::Table(fields) => Repr::Table(fields.clone()),
            Repr::TimedTable(timed) => Repr::TimedTable(timed.clone()),
        })
    }
}

/// Same fields with the same values and deadlines, whatever the encodings.
impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.timed_iter().all(|((field, value), deadline_ms)| {
                let mut digits = Digits::new();
                let field = field.as_bytes(&mut digits);
                let found = other.get(field, i64::MIN);
                found.map(Element::canonical) == Some(value.canonical())
                    && other.term(field) == Term::of(deadline_ms)
            })
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.timed_iter().map(|((field, value), ms)| (field, (value, ms)))).finish()
    }
}
