//! Placeholder of the set value: what the keyspace needs of it.

/// A set.
#[derive(Default)]
pub struct Set;

impl Set {
    /// Frees about `budget` elements; true when none is left.
    pub fn free_slice(&mut self, _budget: usize) -> bool {
        true
    }

    /// Bytes allocated below this value.
    pub fn memory_bytes(&self) -> usize {
        0
    }
}
