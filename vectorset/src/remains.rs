//! What is left of a set that its owner has closed: memory to be freed in slices, once nobody reads it.

use crate::epoch::Limbo;
use crate::writer::{Retired, Writer};

/// A closed set whose memory is still to be freed.
pub struct Remains {
    writer: Writer,
    /// Former members not freed yet: the first entries of the member list.
    n_members: u32,
    /// Holds one token until the readers that were there at the close have gone.
    closed: Limbo<()>,
}

impl Remains {
    pub(crate) fn new(writer: Writer, n_members: u32, closed: Limbo<()>) -> Remains {
        Remains { writer, n_members, closed }
    }

    /// Frees at most `budget` elements; true when all is freed and the rest costs nothing. It frees nothing,
    /// and returns false, while a reader from before the close is still there.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        let set = self.writer.set.clone();
        self.closed.collect(&set.domain, 1, |()| ());
        if self.closed.len() > 0 {
            return false;
        }
        for _ in 0..budget {
            let Some(last) = self.n_members.checked_sub(1) else { break };
            self.n_members = last;
            self.writer.free(Retired::Node(set.members.former(last)));
        }
        self.writer.collect(budget) == 0 && self.n_members == 0
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        let members = &self.writer.set.members;
        if let Ok(mut left_behind) = self.writer.set.left_behind.lock() {
            left_behind.extend((0..self.n_members).map(|index| Retired::Node(members.former(index))));
        }
    }
}
