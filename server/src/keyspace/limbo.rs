//! `Limbo`: entries that died while another shard may still read them through an alias. They are out of the table and wait
//! here until every alias that was made before they died is back.
//!
//! Aliases belong to the generation in which they were made; an entry waits for its own generation and the one before.
//! When the older generation has no alias left its entries are freed and the younger takes its place, so that entries do
//! get freed although some alias is always out.

use super::entry::Entry;

/// The generation of an alias, to be given back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u8);

#[derive(Default)]
struct Waiting {
    n_aliases: usize,
    entries: Vec<Entry>,
}

/// What waits for aliases.
#[derive(Default)]
pub(super) struct Limbo {
    generations: [Waiting; 2],
    current: usize,
}

impl Limbo {
    /// An alias is made.
    pub(super) fn begin(&mut self) -> Generation {
        self.generations[self.current].n_aliases += 1;
        Generation(self.current as u8)
    }

    /// Keeps a dead entry if an alias is out, else gives it back to be freed.
    pub(super) fn keep(&mut self, entry: Entry) -> Option<Entry> {
        if self.generations.iter().all(|generation| generation.n_aliases == 0) {
            return Some(entry);
        }
        self.generations[self.current].entries.push(entry);
        None
    }

    /// An alias is back; `free` gets what nobody can read any more.
    pub(super) fn end(&mut self, generation: Generation, mut free: impl FnMut(Entry)) {
        self.generations[usize::from(generation.0)].n_aliases -= 1;
        for _ in 0..self.generations.len() {
            let older = 1 - self.current;
            if self.generations[older].n_aliases > 0 {
                return;
            }
            std::mem::take(&mut self.generations[older].entries).into_iter().for_each(&mut free);
            self.current = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::NewValue;

    fn entry(name: &[u8]) -> Entry {
        Entry::new(name, NewValue::Str(b"v"), None)
    }

    fn end(limbo: &mut Limbo, generation: Generation) -> Vec<Vec<u8>> {
        let mut freed = Vec::new();
        limbo.end(generation, |entry| freed.push(entry.as_ref().key().to_vec()));
        freed
    }

    #[test]
    fn without_aliases_nothing_waits() {
        let mut limbo = Limbo::default();
        assert!(limbo.keep(entry(b"a")).is_some());
        let alias = limbo.begin();
        assert!(limbo.keep(entry(b"a")).is_none());
        assert_eq!(end(&mut limbo, alias), [b"a"]);
        assert!(limbo.keep(entry(b"b")).is_some());
    }

    #[test]
    fn an_entry_waits_for_all_aliases_before_it_and_for_none_after() {
        let mut limbo = Limbo::default();
        let (first, second) = (limbo.begin(), limbo.begin());
        assert!(limbo.keep(entry(b"a")).is_none());
        assert!(end(&mut limbo, first).is_empty());
        let third = limbo.begin();
        assert!(limbo.keep(entry(b"b")).is_none());
        assert_eq!(end(&mut limbo, second), [b"a"]);
        let fourth = limbo.begin();
        assert_eq!(end(&mut limbo, third), [b"b"]);
        assert!(limbo.keep(entry(b"c")).is_none());
        assert_eq!(end(&mut limbo, fourth), [b"c"]);
    }
}
