//! Key numbers in memtier_benchmark's patterns: R uniform, G Gaussian, Z Zipf, S sequential, P parallel.
//!
//! Each client owns one generator. S and P keep one position per command of the workload and wrap at the end
//! of the range; P differs only in the range, which is the client's own slice. As in memtier, all clients
//! draw the same random sequence unless `--distinct-client-seed` is given.
//!
//! Zipf: rejection-inversion, W. Hormann and G. Derflinger, ACM TOMACS 6(3), 1996.
//! Cost: R is a few ns, G and Z take logarithms; no allocation after construction.

use crate::random::SplitMix64;

/// How a command picks its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPattern {
    Random,
    Gaussian,
    Zipf,
    Sequential,
    Parallel,
}

impl KeyPattern {
    /// Reads memtier's one-letter code.
    pub fn from_letter(text: &str) -> Option<Self> {
        match text {
            "R" => Some(Self::Random),
            "G" => Some(Self::Gaussian),
            "Z" => Some(Self::Zipf),
            "S" => Some(Self::Sequential),
            "P" => Some(Self::Parallel),
            _ => None,
        }
    }
}

/// The inclusive range of key numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub minimum: u64,
    pub maximum: u64,
}

impl KeyRange {
    pub fn n_keys(self) -> u64 {
        self.maximum - self.minimum + 1
    }

    /// The slice of client `client_index` of `n_clients`, as memtier cuts it for P: equal widths, the last
    /// takes what is left. `None` if there are too few keys for this client to have one.
    pub fn slice(self, client_index: u64, n_clients: u64) -> Option<Self> {
        let width = (self.maximum - self.minimum) / n_clients + 1;
        let minimum = self.minimum + width * client_index;
        let maximum = if client_index + 1 == n_clients {
            self.maximum
        } else {
            (minimum + width - 1).min(self.maximum)
        };
        (minimum <= maximum).then_some(Self { minimum, maximum })
    }
}

/// Shape of the G and Z patterns; zero stands for memtier's default (range / 6, centre of the range).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyShape {
    pub stddev: f64,
    pub median: f64,
    pub zipf_exponent: f64,
}

impl Default for KeyShape {
    fn default() -> Self {
        Self { stddev: 0.0, median: 0.0, zipf_exponent: 1.0 }
    }
}

/// One client's stream of key numbers.
#[derive(Clone, Debug)]
pub struct KeyGenerator {
    range: KeyRange,
    shape: KeyShape,
    zipf: Zipf,
    next_of_command: Vec<u64>,
    random: SplitMix64,
}

impl KeyGenerator {
    pub fn new(range: KeyRange, shape: KeyShape, n_commands: usize, seed: u64) -> Self {
        Self {
            range,
            shape,
            zipf: Zipf::new(range, shape.zipf_exponent),
            next_of_command: vec![range.minimum; n_commands],
            random: SplitMix64::new(seed),
        }
    }

    /// The next key number for command `command_index`.
    #[inline]
    pub fn next_key(&mut self, command_index: usize, pattern: KeyPattern) -> u64 {
        match pattern {
            KeyPattern::Random => self.random.range_inclusive(self.range.minimum, self.range.maximum),
            KeyPattern::Gaussian => self.gaussian(),
            KeyPattern::Zipf => self.zipf.sample(&mut self.random),
            KeyPattern::Sequential | KeyPattern::Parallel => {
                let next = &mut self.next_of_command[command_index];
                let key = *next;
                *next = if key >= self.range.maximum { self.range.minimum } else { key + 1 };
                key
            }
        }
    }

    fn gaussian(&mut self) -> u64 {
        let KeyRange { minimum, maximum } = self.range;
        if minimum == maximum {
            return minimum;
        }
        let width = (maximum - minimum) as f64;
        let median =
            if self.shape.median == 0.0 { width / 2.0 + minimum as f64 + 0.5 } else { self.shape.median };
        let stddev = if self.shape.stddev == 0.0 { width / 6.0 } else { self.shape.stddev };
        loop {
            let value = self.random.normal_f64() * stddev + median;
            if value >= minimum as f64 && value < maximum as f64 + 1.0 {
                return value as u64;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Zipf {
    minimum: f64,
    maximum: f64,
    exponent: f64,
    h_minimum: f64,
    h_maximum: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(range: KeyRange, exponent: f64) -> Self {
        // The distribution starts at 1; memtier limits the keys to positive ones in the same way.
        let minimum = range.minimum.max(1) as f64;
        let maximum = (range.maximum as f64).max(minimum);
        let mut zipf = Self { minimum, maximum, exponent, h_minimum: 0.0, h_maximum: 0.0, shortcut: 0.0 };
        zipf.h_minimum = zipf.h(minimum + 0.5) - minimum.powf(-exponent);
        zipf.h_maximum = zipf.h(maximum + 0.5);
        zipf.shortcut =
            minimum + 1.0 - zipf.h_inverse(zipf.h(minimum + 1.5) - (minimum + 1.0).powf(-exponent));
        zipf
    }

    /// The integral of x^-exponent.
    fn h(&self, x: f64) -> f64 {
        let one_minus = 1.0 - self.exponent;
        if one_minus.abs() < 1e-4 { x.ln() } else { x.powf(one_minus) / one_minus }
    }

    fn h_inverse(&self, y: f64) -> f64 {
        let one_minus = 1.0 - self.exponent;
        if one_minus.abs() < 1e-4 { y.exp() } else { (y * one_minus).powf(1.0 / one_minus) }
    }

    fn sample(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let u = random.unit_f64() * (self.h_maximum - self.h_minimum) + self.h_minimum;
            let x = self.h_inverse(u);
            let k = (x + 0.5).floor().clamp(self.minimum, self.maximum);
            if k - x <= self.shortcut || u >= self.h(k + 0.5) - k.powf(-self.exponent) {
                return k as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: KeyRange = KeyRange { minimum: 5, maximum: 104 };

    fn draw(pattern: KeyPattern, seed: u64, n: usize) -> Vec<u64> {
        let mut keys = KeyGenerator::new(RANGE, KeyShape::default(), 1, seed);
        (0..n).map(|_| keys.next_key(0, pattern)).collect()
    }

    #[test]
    fn sequential_covers_the_range_and_wraps() {
        let keys = draw(KeyPattern::Sequential, 0, 201);
        assert_eq!(&keys[..100], (5..=104).collect::<Vec<_>>());
        assert_eq!(keys[100], 5);
        assert_eq!(keys[200], 5);
    }

    #[test]
    fn sequential_positions_are_per_command() {
        let mut keys = KeyGenerator::new(RANGE, KeyShape::default(), 2, 0);
        assert_eq!(keys.next_key(0, KeyPattern::Sequential), 5);
        assert_eq!(keys.next_key(0, KeyPattern::Sequential), 6);
        assert_eq!(keys.next_key(1, KeyPattern::Sequential), 5);
    }

    #[test]
    fn parallel_slices_partition_the_range() {
        for n_clients in [1, 3, 7, 50, 60, 100, 170] {
            let mut all = Vec::new();
            for client in 0..n_clients {
                all.extend(RANGE.slice(client, n_clients).into_iter().flat_map(|s| s.minimum..=s.maximum));
            }
            assert_eq!(all, (5..=104).collect::<Vec<_>>(), "{n_clients} clients");
        }
    }

    #[test]
    fn random_repeats_by_seed_and_stays_in_range() {
        let keys = draw(KeyPattern::Random, 42, 5000);
        assert_eq!(keys, draw(KeyPattern::Random, 42, 5000));
        assert_ne!(keys, draw(KeyPattern::Random, 43, 5000));
        assert!(keys.iter().all(|k| (5..=104).contains(k)));
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), 100);
    }

    #[test]
    fn gaussian_stays_in_range_and_is_densest_in_the_middle() {
        let keys = draw(KeyPattern::Gaussian, 1, 20_000);
        assert!(keys.iter().all(|k| (5..=104).contains(k)));
        let middle = keys.iter().filter(|k| (39..=70).contains(*k)).count();
        // One standard deviation each way holds 68 % of the draws; uniform would hold 32 %.
        assert!((12_000..15_500).contains(&middle), "{middle}");
    }

    #[test]
    fn zipf_gives_the_harmonic_shares() {
        let range = KeyRange { minimum: 1, maximum: 1000 };
        for exponent in [0.8, 1.0, 1.3] {
            let shape = KeyShape { zipf_exponent: exponent, ..KeyShape::default() };
            let mut keys = KeyGenerator::new(range, shape, 1, 3);
            let n = 200_000;
            let ones = (0..n).filter(|_| keys.next_key(0, KeyPattern::Zipf) == 1).count();
            let total: f64 = (1..=1000).map(|k| f64::from(k).powf(-exponent)).sum();
            let expected = f64::from(n) / total;
            assert!((ones as f64 / expected - 1.0).abs() < 0.03, "exponent {exponent}: {ones} of {expected}");
        }
    }
}
