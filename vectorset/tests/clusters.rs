//! Strongly clustered rows: recall does not hang on where a search enters the graph.

mod fixture;
mod vectors;

use fixture::Fixture;
use skerry_vectorset::{All, Params, Progress, Query, Search, SearchOptions, Way, check};
use vectors::Random;

impl Fixture {
    fn add(&mut self, i: usize, row: &[f32]) {
        self.writer.add(format!("e{i}").as_bytes(), row, None, 200, &mut self.scratch).expect("valid");
    }

    fn scores(&mut self, query: &[f32], options: SearchOptions) -> Vec<f64> {
        let guard = self.reader.pin();
        let hits = self.set.run(Query::Vector(query), options, &mut self.scratch, &guard).expect("valid");
        hits.iter().map(|hit| hit.score).collect()
    }

    /// Per query, how many of the exact 10 nearest a search finds.
    fn found(&mut self, query: &[f32], ef: usize) -> usize {
        let scan = SearchOptions { way: Way::Scan, ..SearchOptions::new(10, 10) };
        let worst = *self.scores(query, scan).last().expect("ten");
        let hits = self.scores(query, SearchOptions::new(10, ef));
        hits.iter().filter(|&&score| score >= worst - 1e-7).count()
    }
}

/// `n_clusters` groups of `n_each`, far apart and tight, one after the other or mixed.
fn clusters(random: &mut Random, dim: usize, n_clusters: usize, n_each: usize, spread: f32) -> Vec<Vec<f32>> {
    let centres: Vec<Vec<f32>> = (0..n_clusters).map(|_| random.vector(dim)).collect();
    let near = |random: &mut Random, centre: &[f32]| -> Vec<f32> {
        random.vector(dim).iter().zip(centre).map(|(x, c)| c + spread * x).collect()
    };
    centres.iter().flat_map(|centre| (0..n_each).map(|_| near(random, centre)).collect::<Vec<_>>()).collect()
}

#[test]
fn every_cluster_is_found_whatever_the_order_of_insertion() {
    for (seed, n_clusters, n_each, spread, is_mixed) in [
        (1, 8, 400, 0.01, false),
        (3, 100, 60, 0.01, false),
        (4, 100, 60, 0.01, true),
        (5, 100, 60, 0.0001, false),
        (6, 1000, 8, 0.01, false),
        (7, 30, 200, 0.03, false),
    ] {
        let mut random = Random(seed);
        let mut rows = clusters(&mut random, 48, n_clusters, n_each, spread);
        if is_mixed {
            random.shuffle(&mut rows);
        }
        let mut set = Fixture::create(Params::new(48, 16, seed), 1);
        rows.iter().enumerate().for_each(|(i, row)| set.add(i, row));
        let report = check::check(&set.set, &set.reader.pin()).expect("sound");
        assert_eq!(report.n_reachable, rows.len(), "seed {seed}");
        const N_ASKED: usize = 300;
        let (mut n_found, mut n_lost) = (0, 0);
        for k in 0..N_ASKED {
            let found = set.found(&rows[k * rows.len() / N_ASKED], 20);
            n_found += found;
            n_lost += usize::from(found == 0);
        }
        let recall = n_found as f64 / (10 * N_ASKED) as f64;
        let what = format!("seed {seed}, {n_clusters} x {n_each}: recall {recall}, {n_lost} lost");
        println!("{what}");
        // With one entry point 3 to 4 in a hundred were lost where clusters came one after the other.
        assert!(recall >= 0.98 && n_lost * 100 <= N_ASKED, "{what}");
    }
}

#[test]
fn entries_come_and_go_with_their_nodes() {
    let mut random = Random(9);
    let rows = clusters(&mut random, 16, 20, 60, 0.05);
    let mut set = Fixture::create(Params::new(16, 4, 9), 1);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    for _ in 0..3 {
        rows.iter().enumerate().for_each(|(i, row)| set.add(i, row));
        random.shuffle(&mut order);
        for (n, &i) in order.iter().enumerate() {
            assert!(set.writer.remove(format!("e{i}").as_bytes(), &mut set.scratch));
            if n % 50 == 0 {
                check::check(&set.set, &set.reader.pin()).expect("sound: every entry is a member");
            }
        }
        check::check(&set.set, &set.reader.pin()).expect("sound when empty");
    }
}

/// Distances of a load, as its plans count them, and of a search (COUNT 10 at EF 100).
fn distances(rows: impl Iterator<Item = Vec<f32>>, query: &[f32]) -> (usize, usize) {
    let Fixture { set, mut writer, reader, mut scratch } =
        Fixture::create(Params::new(query.len() as u32, 16, 7), 1);
    let mut random = Random(23);
    let mut load = 0;
    for (i, row) in rows.enumerate() {
        let guard = reader.pin();
        let buffers = std::mem::take(&mut scratch);
        let mut insertion = set.begin_insertion(&row, 200, random.next(), buffers, &guard).expect("valid");
        let mut left = usize::MAX;
        assert_eq!(insertion.step(&set, &mut left, &guard), Progress::Done);
        load += usize::MAX - left;
        let (planned, buffers) = insertion.finish();
        scratch = buffers;
        drop(guard);
        writer.commit(format!("e{i}").as_bytes(), &planned, None, 200, &mut scratch).expect("valid");
    }
    let guard = reader.pin();
    check::check(&set, &guard).expect("sound");
    let mut search = Search::new(scratch);
    search.begin(&set, Query::Vector(query), SearchOptions::new(10, 100), &guard).expect("valid");
    assert_eq!(search.step(&set, &All, usize::MAX, &guard), Progress::Done);
    assert_eq!(search.hits(&set, &guard).len(), 10);
    (load, search.spent())
}

/// `SKERRY_IDENTICAL_ROWS=50000 cargo test --release -p skerry-vectorset --test clusters` takes half a minute.
#[test]
fn identical_rows_cost_no_more_distances_than_others() {
    let n = std::env::var("SKERRY_IDENTICAL_ROWS").map_or(3_000, |n| n.parse().expect("a number of rows"));
    // Float32 rows, and codes.
    for dim in [16, 64, 128] {
        let mut random = Random(11);
        let same = random.vector(dim);
        let rows: Vec<Vec<f32>> = (0..n).map(|_| random.vector(dim)).collect();
        let identical = distances((0..n).map(|_| same.clone()), &same);
        let distinct = distances(rows.into_iter(), &same);
        println!("{n} x {dim}: identical {identical:?}, distinct {distinct:?}");
        assert!(identical.0 < distinct.0 * 2, "load: {:?} against {:?}", identical.0, distinct.0);
        assert!(identical.1 < distinct.1 * 2, "search: {:?} against {:?}", identical.1, distinct.1);
    }
}
