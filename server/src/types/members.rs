//! The big encoding ("hashtable") of sets and hashes: one member alone, or a table of them.
//!
//! ```text
//!  Lone ──► member                          no table, no hash: what millions of small values are
//!  Many ──► table ──► segment ──► member    from the second member on, and never back
//! ```
//!
//! Invariants: `member_bytes` is the sum of the table members' allocations; a member's field is there once.
//! It knows no limit and no encoding's name. Cost: a lone member costs one allocation and one cache miss, a table
//! two of each more; growth comes in steps of microseconds.

use super::deadlines::Due;
use super::member::{Member, MemberRef};
use crate::keyspace::hash::HashSeed;
use crate::keyspace::loose::Loose;
use crate::keyspace::table::{ScanPosition, Table, prefetch};

/// Cache lines of a lone member that are fetched ahead: it is longer than what a packed buffer takes, or it would be in one.
const LINES_AHEAD: u64 = 5;

pub(super) enum Members {
    /// One member, or none.
    Lone(Option<Member>),
    Many(Loose<Many>),
}

pub(super) struct Many {
    table: Table<Member>,
    member_bytes: usize,
}

impl Members {
    pub(super) fn new() -> Self {
        Members::Lone(None)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Members::Lone(member) => usize::from(member.is_some()),
            Members::Many(many) => many.table.len(),
        }
    }

    /// Asks the cache for level `wave` of what a command on few members touches; whether another level follows.
    #[inline]
    pub(super) fn prefetch(&self, wave: usize) -> bool {
        match (self, wave) {
            (Members::Lone(None), _) => false,
            (Members::Lone(Some(member)), _) => {
                let at = member.as_ref().address() as u64;
                (0..LINES_AHEAD).for_each(|line| prefetch(at + line * 64));
                false
            }
            (Members::Many(many), 0) => {
                let at = std::ptr::from_ref(&**many).addr() as u64;
                prefetch(at);
                prefetch(at + 64);
                true
            }
            (Members::Many(many), 1) => {
                many.table.prefetch_small();
                true
            }
            (Members::Many(many), _) => {
                many.table.prefetch_first_entry();
                false
            }
        }
    }

    #[inline]
    pub(super) fn find(&self, field: &[u8]) -> Option<MemberRef<'_>> {
        match self {
            Members::Lone(member) => member.as_ref().map(Member::as_ref).filter(|m| m.field() == field),
            Members::Many(many) => many.table.find(many.table.hash(field), field),
        }
    }

    /// Adds a set's member; false if it was there.
    #[inline]
    pub(super) fn add(&mut self, member: &[u8], seed: HashSeed) -> bool {
        match self {
            Members::Lone(lone @ None) => {
                *lone = Some(Member::new(member));
                true
            }
            Members::Lone(Some(lone)) if lone.as_ref().field() == member => false,
            Members::Lone(Some(_)) => self.become_many(seed).add(member),
            Members::Many(many) => many.add(member),
        }
    }

    /// Gives a hash's field a value; false if the field was there.
    #[inline]
    pub(super) fn set(&mut self, field: &[u8], value: &[u8], seed: HashSeed) -> bool {
        match self {
            Members::Lone(lone @ None) => {
                *lone = Some(Member::with_value(field, value));
                true
            }
            Members::Lone(Some(lone)) if lone.as_ref().field() == field => {
                lone.set_value(value);
                false
            }
            Members::Lone(Some(_)) => self.become_many(seed).set(field, value),
            Members::Many(many) => many.set(field, value),
        }
    }

    /// Changes a hash's field's deadline, if the field is there.
    pub(super) fn set_deadline(&mut self, field: &[u8], deadline_ms: Option<i64>) {
        match self {
            Members::Lone(Some(lone)) if lone.as_ref().field() == field => lone.set_deadline(deadline_ms),
            Members::Lone(_) => {}
            Members::Many(many) => many.set_deadline(field, deadline_ms),
        }
    }

    /// Takes out a field that has this deadline and whose name has this hash.
    pub(super) fn take_due(&mut self, due: Due) -> Option<Member> {
        let is_due = |member: MemberRef<'_>| member.deadline_ms() == Some(due.deadline_ms);
        match self {
            // One of one: its name has the hash.
            Members::Lone(lone) => lone.take_if(|member| is_due(member.as_ref())),
            Members::Many(many) => {
                let member = many.table.find_where(due.hash, is_due)?.remove();
                many.member_bytes -= member.allocated_bytes();
                Some(member)
            }
        }
    }

    /// Files a member that is not there yet.
    pub(super) fn insert(&mut self, member: Member, seed: HashSeed) {
        match self {
            Members::Lone(lone @ None) => *lone = Some(member),
            Members::Lone(Some(_)) => self.become_many(seed).insert(member),
            Members::Many(many) => many.insert(member),
        }
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> Option<Member> {
        match self {
            Members::Lone(lone) => lone.take_if(|member| member.as_ref().field() == field),
            Members::Many(many) => many.remove(field),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = MemberRef<'_>> {
        let (lone, many) = match self {
            Members::Lone(member) => (member.as_ref().map(Member::as_ref), None),
            Members::Many(many) => (None, Some(many.table.iter())),
        };
        lone.into_iter().chain(many.into_iter().flatten())
    }

    /// One step of a scan: see `Table::scan`. A lone member is walked in one step.
    pub(super) fn scan<'s>(&'s self, at: ScanPosition, visit: impl FnMut(MemberRef<'s>)) -> ScanPosition {
        match self {
            Members::Lone(member) => {
                member.as_ref().map(Member::as_ref).into_iter().for_each(visit);
                ScanPosition::default()
            }
            Members::Many(many) => many.table.scan(at, visit),
        }
    }

    /// A random member, each with the same chance.
    pub(super) fn random(&self, random: &mut impl FnMut() -> u64) -> Option<MemberRef<'_>> {
        match self {
            Members::Lone(member) => member.as_ref().map(Member::as_ref),
            Members::Many(many) => many.table.random(random),
        }
    }

    /// Takes a random member out.
    pub(super) fn take_random(&mut self, random: &mut impl FnMut() -> u64) -> Option<Member> {
        match self {
            Members::Lone(member) => member.take(),
            Members::Many(many) => {
                let member = many.table.random_mut(random)?.remove();
                many.member_bytes -= member.allocated_bytes();
                Some(member)
            }
        }
    }

    /// Bytes allocated below this value.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Members::Lone(member) => member.as_ref().map_or(0, Member::allocated_bytes),
            Members::Many(many) => size_of::<Many>() + many.table.memory_bytes() + many.member_bytes,
        }
    }

    /// Frees about `budget` members; true when none is left.
    pub(super) fn free_slice(&mut self, budget: usize) -> bool {
        match self {
            Members::Lone(member) => {
                *member = None;
                true
            }
            Members::Many(many) => {
                let mut freed = 0;
                let is_empty = many.table.drain(budget, |member| freed += member.allocated_bytes());
                many.member_bytes -= freed;
                is_empty
            }
        }
    }

    #[cold]
    fn become_many(&mut self, seed: HashSeed) -> &mut Many {
        if let Members::Lone(lone) = self {
            let lone = lone.take();
            let mut many = Many { table: Table::new(seed), member_bytes: 0 };
            lone.into_iter().for_each(|member| many.insert(member));
            *self = Members::Many(Loose::new(many));
        }
        match self {
            Members::Many(many) => many,
            Members::Lone(_) => unreachable!("it was made one"),
        }
    }

    /// Panics unless the invariants hold.
    pub(super) fn check(&self) {
        if let Members::Many(many) = self {
            let sum = many.table.iter().map(|member| member.allocated_bytes()).sum::<usize>();
            assert_eq!(many.member_bytes, sum);
        }
    }
}

impl Many {
    #[inline]
    fn add(&mut self, member: &[u8]) -> bool {
        let hash = self.table.hash(member);
        if self.table.find(hash, member).is_some() {
            return false;
        }
        let member = Member::new(member);
        self.member_bytes += member.allocated_bytes();
        self.table.insert(hash, member);
        true
    }

    #[inline]
    fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let hash = self.table.hash(field);
        if let Some(mut slot) = self.table.find_mut(hash, field) {
            let (before, after) = slot.update(|member| {
                let before = member.allocated_bytes();
                member.set_value(value);
                (before, member.allocated_bytes())
            });
            self.member_bytes = self.member_bytes - before + after;
            return false;
        }
        let member = Member::with_value(field, value);
        self.member_bytes += member.allocated_bytes();
        self.table.insert(hash, member);
        true
    }

    fn set_deadline(&mut self, field: &[u8], deadline_ms: Option<i64>) {
        let hash = self.table.hash(field);
        let Some(mut slot) = self.table.find_mut(hash, field) else { return };
        let (before, after) = slot.update(|member| {
            let before = member.allocated_bytes();
            member.set_deadline(deadline_ms);
            (before, member.allocated_bytes())
        });
        self.member_bytes = self.member_bytes - before + after;
    }

    fn insert(&mut self, member: Member) {
        self.member_bytes += member.allocated_bytes();
        let hash = self.table.hash(member.as_ref().field());
        self.table.insert(hash, member);
    }

    fn remove(&mut self, field: &[u8]) -> Option<Member> {
        let member = self.table.remove(self.table.hash(field), field)?;
        self.member_bytes -= member.allocated_bytes();
        Some(member)
    }
}

/// A copy of the same shape: COPY.
impl Clone for Members {
    fn clone(&self) -> Self {
        match self {
            Members::Lone(member) => Members::Lone(member.as_ref().map(|member| member.as_ref().to_owned())),
            Members::Many(many) => {
                let mut copy = Many { table: Table::new(many.table.seed()), member_bytes: 0 };
                many.table.iter().for_each(|member| copy.insert(member.to_owned()));
                Members::Many(Loose::new(copy))
            }
        }
    }
}
