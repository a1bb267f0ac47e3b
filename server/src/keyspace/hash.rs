//! The hash of a key: foldhash under a secret seed, 64 bits of which the table uses the top ones (which segment), the
//! low 16 (which bucket, which tag) and SCAN the top 39 (which order).
//!
//! The shared seed must be secret: with foldhash's fixed one, keys that all hash to zero can be written down by hand.
//! It is another hash than the one that names a key's shard, so that a shard's keys use the whole range.
//! Cost: about 2 ns for 16 bytes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// The seeds made so far, which live as long as the process. Read at start only.
static SEEDS: Mutex<Vec<(u64, &'static Seeds)>> = Mutex::new(Vec::new());

/// The seed of every table of a process. Copied freely.
#[derive(Clone, Copy, Debug)]
pub struct HashSeed(&'static Seeds);

#[derive(Debug)]
struct Seeds {
    /// What the first bytes of a key are combined with. As secret as the other one: a key that equals it hashes to 0, so with a
    /// known one (0, say) such keys, and as many that collide with them, could be written down by hand.
    start: u64,
    shared: SharedSeed,
}

impl HashSeed {
    /// A seed that depends on `seed` alone: for tests and simulations, which must be repeatable.
    pub fn from_u64(seed: u64) -> HashSeed {
        let mut seeds = SEEDS.lock().unwrap_or_else(PoisonError::into_inner);
        match seeds.iter().find(|(known, _)| *known == seed) {
            Some((_, made)) => HashSeed(made),
            None => {
                let mut start = DefaultHasher::new();
                (seed, "start").hash(&mut start);
                let made = Seeds { start: start.finish(), shared: SharedSeed::from_u64(seed) };
                let made: &'static Seeds = Box::leak(Box::new(made));
                seeds.push((seed, made));
                HashSeed(made)
            }
        }
    }

    /// A seed drawn from the randomness that the standard library gives its own hash maps (the system's). Called once
    /// per process: each call keeps 48 bytes for good.
    pub fn random() -> HashSeed {
        use std::hash::{BuildHasher, RandomState};
        HashSeed::from_u64(RandomState::new().hash_one(0_u64))
    }

    /// The hash of `key`; never 0 (which the empty key would have), so that 0 can stand for "no key".
    #[inline(always)]
    pub fn hash_key(self, key: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.0.start, &self.0.shared);
        hasher.write(key);
        hasher.finish().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that begin with zero bytes (or are empty) once all had the hash 0.
    #[test]
    fn zero_bytes_do_not_collide() {
        let seed = HashSeed::from_u64(5);
        let mut hashes: Vec<u64> = (0..200u8)
            .flat_map(|i| [vec![0, i], vec![0; usize::from(i)], [&[0; 8][..], &[i; 8]].concat()])
            .map(|key| seed.hash_key(&key))
            .collect();
        let n = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        // [0, 0] and the zeros of length 2, and all-zero keys of length 16, are the same keys.
        assert!(hashes.len() >= n - 3, "{} of {n}", hashes.len());
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let (a, b) = (HashSeed::from_u64(1), HashSeed::from_u64(2));
        assert_eq!(a.hash_key(b"key"), HashSeed::from_u64(1).hash_key(b"key"));
        assert_ne!(a.hash_key(b"key"), b.hash_key(b"key"));
        assert_ne!(HashSeed::random().hash_key(b"key"), HashSeed::random().hash_key(b"key"));
    }

    #[test]
    fn the_empty_key_has_a_hash_as_well() {
        assert_ne!(HashSeed::from_u64(1).hash_key(b""), 0);
    }

    /// The three bit ranges that the table uses must each be spread evenly for keys that differ in one digit.
    #[test]
    fn bit_ranges_are_even() {
        let seed = HashSeed::from_u64(7);
        let mut top = vec![0_u32; 256];
        let mut home = vec![0_u32; 256];
        let mut tag = vec![0_u32; 256];
        for i in 0..256 * 400 {
            let h = seed.hash_key(format!("key:{i:012}").as_bytes());
            top[(h >> 56) as usize] += 1;
            home[(h >> 8 & 255) as usize] += 1;
            tag[(h & 255) as usize] += 1;
        }
        for counts in [top, home, tag] {
            assert!(counts.iter().all(|&c| (280..=520).contains(&c)), "400 expected: {counts:?}");
        }
    }
}
