//! Latency histograms: how long calls of a command took, for INFO's Latencystats and LATENCY HISTOGRAM.
//!
//! A high dynamic range histogram (<https://hdrhistogram.github.io/HdrHistogram/>) with Redis's bounds and precision: 1 ns to 1 s,
//! two decimal digits. A value has its leading eight bits exact, so a bucket is at most 1/128 of its value wide.
//!
//! ```text
//!   values       0..256   256..512   512..1024   ...   2^29..2^30
//!   buckets      256 x1   128 x2     128 x4            128 x 2^22
//! ```
//!
//! One writer, plain load and store; anybody reads. 13 KB, made when the first value comes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Values beyond are counted as this: one second.
const MAX_NS: u64 = 1_000_000_000;
/// Values below have a bucket each.
const EXACT: u64 = 256;
/// Buckets of each doubling above that.
const PER_DOUBLING: usize = 128;
/// Doublings from 256 to 2^30.
const DOUBLINGS: usize = 22;
const BUCKETS: usize = EXACT as usize + PER_DOUBLING * DOUBLINGS;

/// One worker's histogram of one command.
#[derive(Default)]
pub struct Histogram {
    counts: OnceLock<Box<[AtomicU32]>>,
}

fn bucket_of(ns: u64) -> usize {
    let ns = ns.clamp(1, MAX_NS);
    if ns < EXACT {
        return ns as usize;
    }
    let shift = 56 - ns.leading_zeros() as usize;
    // The leading eight bits are 128 to 255.
    EXACT as usize + (shift - 1) * PER_DOUBLING + (ns >> shift) as usize - PER_DOUBLING
}

/// The greatest value that is counted with `ns`.
fn highest_equivalent(ns: u64) -> u64 {
    if ns < EXACT {
        return ns;
    }
    let shift = 56 - u64::from(ns.leading_zeros());
    (((ns >> shift) + 1) << shift) - 1
}

/// The greatest value of a bucket.
fn highest_of(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let (doubling, nth) =
        ((bucket - EXACT as usize) / PER_DOUBLING, (bucket - EXACT as usize) % PER_DOUBLING);
    (((nth + PER_DOUBLING + 1) as u64) << (doubling + 1)) - 1
}

impl Histogram {
    /// Counts a call of `ns`.
    pub fn record(&self, ns: u64) {
        let counts = self.counts.get_or_init(|| (0..BUCKETS).map(|_| AtomicU32::new(0)).collect());
        let count = &counts[bucket_of(ns)];
        count.store(count.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// Forgets all calls; the memory stays, for the commands that came once come again.
    pub fn reset(&self) {
        if let Some(counts) = self.counts.get() {
            counts.iter().for_each(|count| count.store(0, Relaxed));
        }
    }
}

/// Histograms of all workers, added up.
#[derive(Default)]
pub struct Distribution {
    counts: Vec<u64>,
    n: u64,
}

impl Distribution {
    pub fn add(&mut self, histogram: &Histogram) {
        let Some(counts) = histogram.counts.get() else { return };
        self.counts.resize(BUCKETS, 0);
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            let count = u64::from(count.load(Relaxed));
            *sum += count;
            self.n += count;
        }
    }

    /// Values counted.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The value that `percent` of all are not above, as the greatest of its bucket; 0 if there is none.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let wanted = ((percent.min(100.0) / 100.0 * self.n as f64) + 0.5) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return highest_of(bucket);
            }
        }
        0
    }

    /// (Microseconds, calls that took no longer), by powers of two of 1024 ns; only steps at which calls are.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let mut steps = Vec::new();
        let (mut level, mut bucket, mut sum, mut told) = (1024u64, 0, 0, 0);
        while told < self.n {
            let top = highest_equivalent(level);
            while bucket < BUCKETS && highest_of(bucket) <= top {
                sum += self.counts[bucket];
                bucket += 1;
            }
            if sum > told {
                steps.push((top / 1000, sum));
                told = sum;
            }
            level *= 2;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_the_values_with_the_same_leading_eight_bits() {
        let mut last = bucket_of(1);
        for ns in 2..100_000 {
            let bucket = bucket_of(ns);
            assert!(bucket == last || bucket == last + 1, "{ns}");
            assert_eq!(highest_of(bucket), highest_equivalent(ns), "{ns}");
            last = bucket;
        }
        assert_eq!(bucket_of(MAX_NS), bucket_of(u64::MAX));
        assert!(bucket_of(MAX_NS) < BUCKETS);
    }

    /// Values that Redis 8.2.3 printed.
    #[test]
    fn percentiles_and_steps_are_redis_s() {
        let histogram = Histogram::default();
        [5_076_000, 20_090_000].iter().for_each(|ns| histogram.record(*ns));
        let mut sum = Distribution::default();
        sum.add(&histogram);
        assert_eq!(sum.percentile_ns(50.0), 5_079_039);
        assert_eq!(sum.percentile_ns(99.9), 20_185_087);
        assert_eq!(sum.doublings(), [(8454, 1), (33816, 2)]);
        histogram.reset();
        [2000, 4000, 11_000, 33_000, 66_000, 1_000_000].iter().for_each(|ns| histogram.record(*ns));
        let mut sum = Distribution::default();
        sum.add(&histogram);
        assert_eq!(sum.doublings(), [(2, 1), (4, 2), (16, 3), (33, 4), (66, 5), (1056, 6)]);
        assert_eq!(Distribution::default().doublings(), []);
    }
}
