//! Sets of automatic code width look at what their codes lose, and widen where that is too much, while
//! searches go on.

mod fixture;
mod vectors;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fixture::Fixture;
use skerry_vectorset::{
    All, CheckedWidth, CodeWidth, Metric, Params, Progress, Query, Search, SearchOptions, SearchScratch, Way,
    check,
};
use vectors::Random;

/// Rows at which codes are looked at.
const FIRST_CHECK: usize = 10_000;

impl Fixture {
    fn filled(params: Params, rows: &[Vec<f32>]) -> Fixture {
        let mut set = Fixture::create(params, 4);
        rows.iter().enumerate().for_each(|(i, row)| set.add(i, row));
        set
    }

    fn add(&mut self, i: usize, row: &[f32]) {
        let attribute = format!("{{\"i\":{i}}}");
        let attribute = i.is_multiple_of(7).then_some(attribute.as_bytes());
        self.writer.add(format!("e{i}").as_bytes(), row, attribute, 40, &mut self.scratch).expect("valid");
    }

    fn scores(&mut self, query: &[f32], options: SearchOptions) -> Vec<f64> {
        let guard = self.reader.pin();
        let hits = self.set.run(Query::Vector(query), options, &mut self.scratch, &guard).expect("valid");
        hits.iter().map(|hit| hit.score).collect()
    }

    /// The share of the exact 10 nearest that a search finds; ties count.
    fn recall(&mut self, queries: &[Vec<f32>]) -> f64 {
        let mut found = 0;
        for query in queries {
            let scan = SearchOptions { way: Way::Scan, ..SearchOptions::new(10, 10) };
            let worst = *self.scores(query, scan).last().expect("ten");
            let hits = self.scores(query, SearchOptions::new(10, 100));
            found += hits.iter().filter(|&&score| score >= worst - 1e-7).count();
        }
        found as f64 / (10 * queries.len()) as f64
    }

    fn look_after(&mut self) -> CheckedWidth {
        while self.writer.upkeep(&mut 10_000, &mut self.scratch) == Progress::Unfinished {}
        self.set.checked_width().expect("it was looked at")
    }

    fn check(&self) {
        let report = check::check(&self.set, &self.reader.pin()).expect("a sound graph");
        assert_eq!(report.n_reachable, report.n_nodes);
    }
}

/// Vectors of few degrees of freedom, as embeddings are: noise of full dimension is hard for any graph.
struct Shape {
    directions: Vec<Vec<f32>>,
}

impl Shape {
    fn new(random: &mut Random, dim: usize) -> Shape {
        Shape { directions: (0..10).map(|_| random.vector(dim)).collect() }
    }

    /// With one component that is the same for all: after the rotation every code is that component's, and
    /// what distinguishes rows is below the step of a narrow grid.
    fn row(&self, random: &mut Random, weight: f32) -> Vec<f32> {
        let mut row = vec![0.0; self.directions[0].len()];
        for direction in &self.directions {
            let by = random.vector(1)[0];
            row.iter_mut().zip(direction).for_each(|(x, d)| *x += by * d);
        }
        row[0] += weight;
        row
    }

    fn rows(&self, random: &mut Random, weight: f32, n: usize) -> Vec<Vec<f32>> {
        (0..n).map(|_| self.row(random, weight)).collect()
    }
}

#[test]
fn codes_that_keep_the_order_stay_as_they_are() {
    let mut random = Random(71);
    let dim = 128;
    let rows = Shape::new(&mut random, dim).rows(&mut random, 0.0, FIRST_CHECK);
    let mut set = Fixture::filled(Params::new(dim as u32, 8, 7), &rows[..FIRST_CHECK - 1]);
    assert!(!set.writer.has_upkeep() && set.set.checked_width().is_none(), "it is too small yet");
    set.add(FIRST_CHECK - 1, &rows[FIRST_CHECK - 1]);
    assert!(set.writer.has_upkeep());
    let before = set.set.memory_bytes();
    let told = set.look_after();
    assert!(told.bits == 4 && told.recall >= 0.99, "{told:?}");
    assert!(!set.writer.has_upkeep(), "until it has grown fourfold");
    assert_eq!(set.set.memory_bytes(), before);
}

#[test]
fn a_chosen_width_is_not_looked_at() {
    let mut random = Random(72);
    let rows = Shape::new(&mut random, 64).rows(&mut random, 100.0, FIRST_CHECK);
    let params = Params { codes: CodeWidth::Bits4, ..Params::new(64, 4, 7) };
    let set = Fixture::filled(params, &rows);
    assert!(!set.writer.has_upkeep());
}

/// One step of the ladder, and all of it to the rows.
#[test]
fn narrow_codes_give_way_to_wider_ones_where_they_lose_the_order() {
    let dim = 128;
    let mut bits_reached = Vec::new();
    for (seed, metric, weight) in [(73, Metric::Cosine, 200.0), (74, Metric::L2, 200.0)] {
        let mut random = Random(seed);
        let shape = Shape::new(&mut random, dim);
        let rows = shape.rows(&mut random, weight, FIRST_CHECK);
        let queries = shape.rows(&mut random, weight, 40);
        let mut set = Fixture::filled(Params { metric, ..Params::new(dim as u32, 8, 7) }, &rows);
        let before = set.recall(&queries);
        let bytes_before = set.set.memory_bytes();
        // Chunks of twice the size each, from 8 on: room for as many.
        let bytes_of_codes = 16_376 * (dim / 2 + 4);
        // A search under way at the switch goes on with the codes that it began with.
        let guard = set.reader.pin();
        let mut suspended = Some((Search::default(), guard.hold()));
        if let Some((search, _)) = &mut suspended {
            let options = SearchOptions::new(10, 100);
            search.begin(&set.set, Query::Vector(&queries[0]), options, &guard).expect("valid");
            assert_eq!(search.step(&set.set, &All, 50, &guard), Progress::Unfinished);
        }
        drop(guard);
        let mut n_slices = 0;
        while set.writer.upkeep(&mut 5_000, &mut set.scratch) == Progress::Unfinished {
            n_slices += 1;
            let i = n_slices * 31 % FIRST_CHECK;
            if n_slices % 64 == 0 {
                // Elements come and go meanwhile.
                assert!(set.writer.remove(format!("e{i}").as_bytes(), &mut set.scratch));
                set.add(i, &rows[i]);
            }
            let is_switched = set.set.checked_width().is_some();
            if let Some((mut search, _hold)) = suspended.take_if(|_| is_switched) {
                let guard = set.reader.pin();
                while search.step(&set.set, &All, 50, &guard) == Progress::Unfinished {}
                assert!(search.hits(&set.set, &guard).len() >= 9);
            }
        }
        assert!(suspended.is_none(), "there was a switch");
        let told = set.set.checked_width().expect("it was looked at");
        let after = set.recall(&queries);
        println!("{metric:?} weight {weight}: recall {before} with 4 bits, {after} with {told:?}");
        assert!(told.bits > 4 && told.recall >= 0.99, "{told:?}");
        assert!(before < 0.5 && after >= 0.95, "{metric:?}: {before} before, {after} with {told:?}");
        assert_eq!(set.set.len(), FIRST_CHECK);
        set.check();
        let guard = set.reader.pin();
        for i in (0..FIRST_CHECK).step_by(701) {
            let name = format!("e{i}");
            let kept = set.set.attribute(name.as_bytes(), &guard).is_some();
            assert_eq!(kept, i.is_multiple_of(7), "{name}");
        }
        drop(guard);
        // What nobody reads any more is given back.
        while set.writer.collect(1_000) > 0 {}
        let n_records = bytes_of_codes / (dim / 2 + 4);
        let wanted = bytes_before - bytes_of_codes + if told.bits == 8 { n_records * (dim + 8) } else { 0 };
        let bytes = set.set.memory_bytes();
        assert!(bytes < wanted + 100_000, "{bytes}, {wanted} wanted, {bytes_before} before");
        bits_reached.push(told.bits);
    }
    assert_eq!(bits_reached, [8, 32]);
}

/// Every search that runs beside the widening, from the first look to the last new link, finds nearly what is
/// there, each element once, with its exact score.
#[test]
fn searches_go_on_while_a_set_widens() {
    let (dim, seed) = (64, 76);
    let mut random = Random(seed);
    let rows = Shape::new(&mut random, dim).rows(&mut random, 100.0, FIRST_CHECK);
    let Fixture { set, mut writer, reader, mut scratch } =
        Fixture::filled(Params::new(dim as u32, 8, 7), &rows);
    drop(reader);
    let (is_over, n_searches) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (set, rows, is_over, n_searches) = (&set, &rows, &is_over, &n_searches);
            scope.spawn(move || {
                let mut random = Random(seed * 100 + thread);
                let reader = set.domain().register().expect("few readers");
                let mut scratch = SearchScratch::new();
                while !is_over.load(Ordering::Relaxed) {
                    let i = random.below(rows.len());
                    let guard = reader.pin();
                    let hits = set
                        .search(Query::Vector(&rows[i]), 10, 60, &mut scratch, &guard)
                        .expect("a valid query");
                    let names: std::collections::HashSet<&[u8]> = hits.iter().map(|hit| hit.name).collect();
                    assert_eq!(names.len(), hits.len(), "seed {seed}");
                    assert!(hits.len() >= 9, "seed {seed}: {} hits", hits.len());
                    assert!(hits.iter().all(|hit| hit.score > 0.99 && hit.score < 1.000_001), "seed {seed}");
                    n_searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while writer.upkeep(&mut 5_000, &mut scratch) == Progress::Unfinished {
            if n_searches.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(n_searches.load(Ordering::Relaxed) > 0);
    let told = set.checked_width().expect("it was looked at");
    assert!(told.bits > 4, "{told:?}");
}
