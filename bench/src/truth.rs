//! Exact nearest neighbours, and how much of them a search found.
//!
//! A result is right if it is as near as the last of the exact nearest: among equals any is right, so ties do not
//! count as misses (ann-benchmarks' rule with a narrower tolerance).
//!
//! Cost: one dot product per row and query, on all cores; queries go over a row in blocks, so that wide rows come
//! from memory once per block.

use crate::progress::Progress;
use crate::rows::{IdRows, Rows};
use std::io;
use std::thread;

/// Rounding of float32 sums: rows that differ by less, relative to `1 + |similarity|`, are equally near.
const TIE: f32 = 1e-6;
/// Queries that share one pass over the rows: 16 of 1536 dimensions stay in a level 2 cache.
const N_BLOCK_QUERIES: usize = 16;

/// What nearness means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Metric {
    Cosine,
    L2,
    Ip,
}

/// Base rows and queries in the form in which they are compared.
#[derive(Clone, Debug)]
pub struct Space {
    metric: Metric,
    base: Rows,
    queries: Rows,
}

/// The exact results of every query of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// How many there are to find for each query.
    pub n_to_find: usize,
    /// `n_to_find` row numbers a query, nearest first.
    pub ids: Vec<u32>,
    /// Their similarities; the greater the nearer.
    pub similarities: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Neighbor {
    id: u32,
    similarity: f32,
}

impl Space {
    pub fn new(metric: Metric, base: &Rows, queries: &Rows) -> io::Result<Self> {
        if base.n_dims() != queries.n_dims() {
            return Err(io::Error::other(format!(
                "base rows have {} dimensions, queries {}",
                base.n_dims(),
                queries.n_dims()
            )));
        }
        let (base, queries) = match metric {
            Metric::Cosine => (base.normalized(), queries.normalized()),
            Metric::L2 | Metric::Ip => (base.clone(), queries.clone()),
        };
        Ok(Self { metric, base, queries })
    }

    pub fn metric(&self) -> Metric {
        self.metric
    }

    pub fn base(&self) -> &Rows {
        &self.base
    }

    pub fn queries(&self) -> &Rows {
        &self.queries
    }

    pub fn n_queries(&self) -> usize {
        self.queries.len()
    }

    pub fn similarity(&self, query: usize, id: u32) -> f32 {
        similarity(self.metric, self.queries.row(query), self.base.row(id as usize))
    }

    /// The `count` nearest of `candidates`; a linear scan on all cores.
    pub fn nearest(&self, candidates: &[u32], count: usize) -> Truth {
        let n_to_find = count.min(candidates.len());
        let progress = Progress::new("exact neighbours", self.n_queries() as u64);
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        let n_part_queries = self.n_queries().div_ceil(n_threads).max(1);
        let parts: Vec<Vec<Neighbor>> = thread::scope(|scope| {
            let starts = (0..self.n_queries()).step_by(n_part_queries);
            let threads: Vec<_> = starts
                .map(|start| {
                    let end = (start + n_part_queries).min(self.n_queries());
                    let progress = &progress;
                    scope.spawn(move || {
                        let mut found = Vec::new();
                        for first in (start..end).step_by(N_BLOCK_QUERIES) {
                            let block = first..(first + N_BLOCK_QUERIES).min(end);
                            let n = block.len();
                            self.nearest_to_block(block, candidates, n_to_find, &mut found);
                            progress.add(n as u64);
                        }
                        found
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("a scanning thread does not panic")).collect()
        });
        let all = parts.concat();
        Truth {
            n_to_find,
            ids: all.iter().map(|n| n.id).collect(),
            similarities: all.iter().map(|n| n.similarity).collect(),
        }
    }

    fn nearest_to_block(
        &self,
        queries: std::ops::Range<usize>,
        candidates: &[u32],
        n_to_find: usize,
        found: &mut Vec<Neighbor>,
    ) {
        // A pool of twice the number wanted is cut back when full: linear however many are wanted.
        let mut pools = vec![Pool::new(n_to_find); queries.len()];
        for &id in candidates {
            let row = self.base.row(id as usize);
            for (pool, query) in pools.iter_mut().zip(queries.clone()) {
                let similarity = similarity(self.metric, self.queries.row(query), row);
                pool.offer(Neighbor { id, similarity });
            }
        }
        for pool in pools {
            found.extend(pool.into_sorted());
        }
    }

    /// Reads the truth from row numbers that came with the data; similarities are computed here.
    pub fn known(&self, known: &IdRows, count: usize) -> io::Result<Truth> {
        let n_to_find = count.min(self.base.len());
        if known.n_columns < n_to_find || known.len() < self.n_queries() {
            return Err(io::Error::other(format!(
                "the ground truth has {} rows of {}, wanted are {} of {n_to_find}",
                known.len(),
                known.n_columns,
                self.n_queries()
            )));
        }
        let ids: Vec<u32> = (0..self.n_queries()).flat_map(|q| &known.row(q)[..n_to_find]).copied().collect();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.base.len()) {
            return Err(io::Error::other(format!(
                "the ground truth names row {id}, but only {} rows are loaded: it belongs to the whole file",
                self.base.len()
            )));
        }
        let similarities =
            ids.iter().enumerate().map(|(at, &id)| self.similarity(at / n_to_find.max(1), id)).collect();
        Ok(Truth { n_to_find, ids, similarities })
    }
}

/// The best so far, in no order until it is cut back.
#[derive(Clone, Debug)]
struct Pool {
    n_wanted: usize,
    /// Nothing below this can be among the best any more.
    floor: f32,
    neighbors: Vec<Neighbor>,
}

impl Pool {
    fn new(n_wanted: usize) -> Self {
        Self { n_wanted, floor: f32::NEG_INFINITY, neighbors: Vec::new() }
    }

    fn offer(&mut self, neighbor: Neighbor) {
        if neighbor.similarity <= self.floor && self.neighbors.len() >= self.n_wanted {
            return;
        }
        self.neighbors.push(neighbor);
        if self.neighbors.len() >= 2 * self.n_wanted.max(16) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.neighbors.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(a.id.cmp(&b.id)));
        self.neighbors.truncate(self.n_wanted);
        if self.neighbors.len() == self.n_wanted {
            self.floor = self.neighbors.last().map_or(f32::INFINITY, |last| last.similarity);
        }
    }

    fn into_sorted(mut self) -> Vec<Neighbor> {
        self.cut();
        self.neighbors
    }
}

impl Truth {
    pub fn ids_of(&self, query: usize) -> &[u32] {
        &self.ids[query * self.n_to_find..][..self.n_to_find]
    }

    pub fn similarities_of(&self, query: usize) -> &[f32] {
        &self.similarities[query * self.n_to_find..][..self.n_to_find]
    }

    /// How many of `ids` are as near to the query as the last that is to be found. An id named twice is right once.
    pub fn n_right(&self, space: &Space, query: usize, ids: &[u32]) -> usize {
        let Some(&last) = self.similarities_of(query).last() else { return 0 };
        let threshold = last - TIE * (1.0 + last.abs());
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let n_right = ids.iter().filter(|&&id| space.similarity(query, id) >= threshold).count();
        n_right.min(self.n_to_find)
    }
}

fn similarity(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
    match metric {
        Metric::Cosine | Metric::Ip => dot(a, b),
        Metric::L2 => -squared_distance(a, b),
    }
}

/// Partial sums, which the compiler turns into vector registers.
const N_LANES: usize = 16;

/// Dot product in float32.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |x, y| x * y)
}

fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |x, y| (x - y) * (x - y))
}

#[inline]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; N_LANES];
    let (a_chunks, a_tail) = a.as_chunks::<N_LANES>();
    let (b_chunks, b_tail) = b.as_chunks::<N_LANES>();
    let tail: f32 = a_tail.iter().zip(b_tail).map(|(x, y)| term(*x, *y)).sum();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..N_LANES {
            lanes[lane] += term(x[lane], y[lane]);
        }
    }
    lanes.iter().sum::<f32>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use proptest::prelude::*;

    fn random_rows(seed: u64, n_rows: usize, n_dims: usize) -> Rows {
        let mut random = SplitMix64::new(seed);
        Rows::new(n_dims, (0..n_rows * n_dims).map(|_| random.normal_f64() as f32).collect())
    }

    /// In f64 and by a full sort, apart from the program's own arithmetic.
    fn brute_force(metric: Metric, base: &Rows, query: &[f32], candidates: &[u32]) -> Vec<u32> {
        let score = |row: &[f32]| {
            let pairs = || row.iter().zip(query).map(|(x, y)| (f64::from(*x), f64::from(*y)));
            let dot: f64 = pairs().map(|(x, y)| x * y).sum();
            match metric {
                Metric::Ip => dot,
                Metric::Cosine => {
                    dot / (pairs().map(|(x, _)| x * x).sum::<f64>()
                        * pairs().map(|(_, y)| y * y).sum::<f64>())
                    .sqrt()
                }
                Metric::L2 => -pairs().map(|(x, y)| (x - y) * (x - y)).sum::<f64>(),
            }
        };
        let mut ids = candidates.to_vec();
        ids.sort_by(|&a, &b| score(base.row(b as usize)).total_cmp(&score(base.row(a as usize))));
        ids
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_scan_finds_what_a_sort_finds(
            seed in any::<u64>(), n_rows in 1usize..90, n_dims in 1usize..40, n_queries in 1usize..40,
            count in 1usize..60, step in 1usize..4,
        ) {
            let (base, queries) = (random_rows(seed, n_rows, n_dims), random_rows(!seed, n_queries, n_dims));
            let candidates: Vec<u32> = (0..n_rows as u32).step_by(step).collect();
            // In one dimension all cosines are 1 or -1, and which of the equals comes first is not told.
            for metric in [Metric::Cosine, Metric::L2, Metric::Ip].into_iter().skip(usize::from(n_dims == 1)) {
                let space = Space::new(metric, &base, &queries).expect("same dimensions");
                let truth = space.nearest(&candidates, count);
                prop_assert_eq!(truth.n_to_find, count.min(candidates.len()));
                for query in 0..n_queries {
                    let expected = brute_force(metric, &base, queries.row(query), &candidates);
                    let n_right = truth.n_right(&space, query, &expected[..truth.n_to_find]);
                    prop_assert_eq!(n_right, truth.n_to_find);
                    prop_assert_eq!(truth.n_right(&space, query, truth.ids_of(query)), truth.n_to_find);
                    prop_assert!(truth.similarities_of(query).is_sorted_by(|a, b| a >= b));
                }
            }
        }
    }

    #[test]
    fn the_far_the_absent_and_the_doubled_are_not_right() {
        let base = Rows::new(2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, -1.0, 0.0]);
        let space = Space::new(Metric::Cosine, &base, &Rows::new(2, vec![2.0, 0.0])).expect("2 and 2");
        let truth = space.nearest(&[0, 1, 2, 3], 2);
        assert_eq!(truth.ids, [0, 1]);
        assert_eq!(truth.n_right(&space, 0, &[1, 0]), 2);
        assert_eq!(truth.n_right(&space, 0, &[0, 0]), 1);
        assert_eq!(truth.n_right(&space, 0, &[2, 3]), 0);
        assert_eq!(truth.n_right(&space, 0, &[]), 0);
    }

    #[test]
    fn among_equals_any_is_right() {
        let base = Rows::new(2, [[1.0, 0.0]; 5].concat());
        let space = Space::new(Metric::L2, &base, &Rows::new(2, vec![0.0, 0.0])).expect("2 and 2");
        let truth = space.nearest(&[0, 1, 2, 3, 4], 2);
        assert_eq!(truth.n_right(&space, 0, &[4, 3]), 2);
    }

    #[test]
    fn known_neighbours_must_be_there() {
        let base = Rows::new(1, vec![1.0, 2.0, 3.0]);
        let space = Space::new(Metric::Ip, &base, &Rows::new(1, vec![1.0])).expect("1 and 1");
        let ids = |ids: &[u32]| IdRows { n_columns: ids.len(), ids: ids.to_vec() };
        let truth = space.known(&ids(&[2, 1, 0]), 2).expect("enough");
        assert_eq!(truth, space.nearest(&[0, 1, 2], 2));
        let error = space.known(&ids(&[2]), 2).expect_err("too few");
        assert!(error.to_string().contains("1 rows of 1, wanted are 1 of 2"), "{error}");
        let error = space.known(&ids(&[3, 2]), 2).expect_err("row 3 of 3");
        assert!(error.to_string().contains("names row 3"), "{error}");
    }
}
