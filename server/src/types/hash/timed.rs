//! `Timed`: the members of a big hash whose fields may have deadlines, and what is due when.
//!
//! ```text
//!  members   field --> Member | field | value | deadline |
//!  due       | deadline, hash of the field | ...               first due first
//! ```
//!
//! Invariant: `due` has the deadline of every member that has one, and nothing else.
//! It knows no clock. Cost: a change of a deadline O(log n) beside the table's O(1); freeing empties `due` first.

use crate::keyspace::hash::HashSeed;
use crate::keyspace::table::prefetch;
use crate::types::deadlines::{Deadlines, Due};
use crate::types::member::MemberRef;
use crate::types::members::Members;

#[derive(Clone)]
pub(super) struct Timed {
    members: Members,
    due: Deadlines,
    seed: HashSeed,
}

impl Timed {
    /// Of members none of which has a deadline. Costs nothing.
    pub(super) fn of_endless(members: Members, seed: HashSeed) -> Self {
        Self { members, due: Deadlines::default(), seed }
    }

    /// Of members that may have deadlines. Looks at each.
    pub(super) fn of_members(members: Members, seed: HashSeed) -> Self {
        let due_of = |member: MemberRef<'_>| {
            let deadline_ms = member.deadline_ms()?;
            Some(Due { deadline_ms, hash: seed.hash_key(member.field()) })
        };
        let due = Deadlines::of_unordered(members.iter().filter_map(due_of));
        Self { members, due, seed }
    }

    /// Of fields with values and perhaps deadlines; None if one of them is None, or there twice.
    pub(super) fn of_fields<S: AsRef<[u8]>>(
        fields: impl Iterator<Item = Option<(S, S, Option<i64>)>>,
        seed: HashSeed,
    ) -> Option<Self> {
        let mut members = Members::new();
        for field in fields {
            let (field, value, deadline_ms) = field?;
            let field = field.as_ref();
            if !members.set(field, value.as_ref(), seed) {
                return None;
            }
            members.set_deadline(field, deadline_ms);
        }
        Some(Self::of_members(members, seed))
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    pub(super) fn due(&self) -> &Deadlines {
        &self.due
    }

    pub(super) fn find(&self, field: &[u8]) -> Option<MemberRef<'_>> {
        self.members.find(field)
    }

    #[inline]
    pub(super) fn prefetch(&self, wave: usize) -> bool {
        match wave.checked_sub(1) {
            None => {
                prefetch(std::ptr::from_ref(self).addr() as u64);
                true
            }
            Some(wave) => self.members.prefetch(wave),
        }
    }

    /// Stores a field's value, whose deadline stays; true if the field is new.
    pub(super) fn set_value(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.members.set(field, value, self.seed)
    }

    /// Changes a field's deadline, if the field is there.
    pub(super) fn set_deadline(&mut self, field: &[u8], deadline_ms: Option<i64>) {
        let Some(old_ms) = self.members.find(field).map(MemberRef::deadline_ms) else { return };
        if old_ms == deadline_ms {
            return;
        }
        let hash = self.seed.hash_key(field);
        self.forget(old_ms, hash);
        self.members.set_deadline(field, deadline_ms);
        if let Some(deadline_ms) = deadline_ms {
            self.due.insert(Due { deadline_ms, hash });
        }
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(member) = self.members.remove(field) else { return false };
        self.forget(member.as_ref().deadline_ms(), self.seed.hash_key(field));
        true
    }

    /// Removes up to `budget` fields whose deadline is before `now_ms`; returns how many.
    pub(super) fn remove_dead(&mut self, now_ms: i64, budget: usize) -> usize {
        for n_removed in 0..budget {
            let Some(due) = self.due.first().filter(|due| due.deadline_ms < now_ms) else { return n_removed };
            self.due.remove(due);
            let member = self.members.take_due(due);
            debug_assert!(member.is_some(), "what is due is a member's");
        }
        budget
    }

    fn forget(&mut self, deadline_ms: Option<i64>, hash: u64) {
        if let Some(deadline_ms) = deadline_ms {
            let is_there = self.due.remove(Due { deadline_ms, hash });
            debug_assert!(is_there, "every deadline is filed");
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.members.heap_bytes() + self.due.heap_bytes()
    }

    pub(super) fn free_slice(&mut self, budget: usize) -> bool {
        if !self.due.is_empty() {
            self.due.free_slice(budget);
            return false;
        }
        self.members.free_slice(budget)
    }

    pub(super) fn check(&self) {
        self.members.check();
        self.due.check();
        let mut due: Vec<Due> = Vec::new();
        for member in self.members.iter() {
            let hash = self.seed.hash_key(member.field());
            due.extend(member.deadline_ms().map(|deadline_ms| Due { deadline_ms, hash }));
        }
        due.sort_unstable();
        assert!(self.due.iter().eq(due), "deadlines and members disagree");
    }
}
