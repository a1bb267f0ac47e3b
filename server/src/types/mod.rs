//! The values of more than one element. They know no key, no clock and no keyspace.

mod hash;
mod list;
mod set;

pub use hash::Hash;
pub use list::List;
pub use set::Set;
