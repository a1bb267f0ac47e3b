//! Which shards a script may touch, read from its text before it runs.

use super::registry::Reach;

/// What the text proves; all shards if it proves nothing.
pub fn reach_of(code: &[u8]) -> Reach {
    match memchr::memmem::find(code, b"redis") {
        None if !code.contains(&b'_') => Reach::Declared,
        _ => Reach::All,
    }
}
