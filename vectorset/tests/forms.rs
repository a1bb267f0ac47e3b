//! What each way of storing and searching promises: scores of Q8 and BIN by a twin that reads like Redis's
//! pages, recall of codes, metrics and layer-0 degrees against exact scans, slices against one go.

mod fixture;
mod vectors;

use std::collections::HashSet;

use fixture::Fixture;
use skerry_vectorset::{
    Admit, All, CodeWidth, Error, Hops, Layer0, Metric, NodeId, Params, Progress, Quantization, Query,
    Search, SearchOptions, Way, check,
};
use vectors::{Random, text384};

impl Fixture {
    fn filled(params: Params, rows: &[Vec<f32>]) -> Fixture {
        let mut set = Fixture::create(params, 1);
        rows.iter().enumerate().for_each(|(i, row)| set.add(i, row));
        set
    }

    fn add(&mut self, i: usize, vector: &[f32]) {
        let name = format!("e{i}");
        self.writer.add(name.as_bytes(), vector, None, 200, &mut self.scratch).expect("a valid vector");
    }

    fn run(&mut self, query: &[f32], options: SearchOptions) -> Vec<(usize, f64)> {
        let guard = self.reader.pin();
        let hits = self.set.run(Query::Vector(query), options, &mut self.scratch, &guard).expect("valid");
        hits.iter().map(|hit| (number(hit.name), hit.score)).collect()
    }

    fn truth(&mut self, query: &[f32], count: usize) -> Vec<(usize, f64)> {
        self.run(query, SearchOptions { way: Way::Scan, ..SearchOptions::new(count, count) })
    }

    /// The share of the hits of an exact scan that a graph search finds; ties count as found.
    fn recall(&mut self, queries: &[Vec<f32>], ef: usize) -> f64 {
        let mut found = 0;
        for query in queries {
            let worst = self.truth(query, 10).last().expect("ten").1;
            let hits = self.run(query, SearchOptions::new(10, ef));
            found += hits.iter().filter(|hit| hit.1 >= worst - 1e-6).count();
        }
        found as f64 / (10 * queries.len()) as f64
    }

    fn check(&self) -> check::Report {
        let report = check::check(&self.set, &self.reader.pin()).expect("a sound graph");
        assert_eq!(report.n_reachable, report.n_nodes);
        report
    }
}

fn number(name: &[u8]) -> usize {
    std::str::from_utf8(&name[1..]).expect("text").parse().expect("a number")
}

/// Signs alone cannot tell these rows apart: each differs from the query in one. The query's own components can.
#[test]
fn ties_under_bin_are_settled_by_the_query() {
    const DIM: usize = 40;
    let query: Vec<f32> = (0..DIM).map(|i| (DIM - i) as f32).collect();
    let rows: Vec<Vec<f32>> =
        (0..DIM).map(|flipped| (0..DIM).map(|i| if i == flipped { -1.0 } else { 1.0 }).collect()).collect();
    for flipped_first in [false, true] {
        let mut rows = rows.clone();
        if flipped_first {
            rows.reverse();
        }
        let params = Params { quantization: Quantization::Bin, ..Params::new(DIM as u32, 16, 1) };
        let mut set = Fixture::filled(params, &rows);
        let hits = set.run(&query, SearchOptions::new(32, DIM));
        assert!(hits.iter().all(|hit| hit.1 == hits[0].1), "{hits:?}");
        let found: Vec<usize> =
            hits.iter().map(|&(row, _)| if flipped_first { row } else { DIM - 1 - row }).collect();
        assert!(found.iter().copied().eq(0..32), "{found:?}");
    }
}

/// A vector as Redis stores it under Q8: signed bytes, the range, the length.
fn q8(vector: &[f32]) -> (Vec<i8>, f64, f64) {
    let length = vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let length = if length > 0.0 { length } else { 1.0 };
    let unit: Vec<f32> = vector.iter().map(|&x| (f64::from(x) / length) as f32).collect();
    let range = unit.iter().fold(0.0_f32, |range, x| range.max(x.abs()));
    let code = |x: &f32| if range > 0.0 { (x * (127.0 / range)).round() as i8 } else { 0 };
    (unit.iter().map(code).collect(), f64::from(range), length)
}

fn q8_score(a: &[f32], b: &[f32]) -> f64 {
    let ((a, range_a, _), (b, range_b, _)) = (q8(a), q8(b));
    let dot: i32 = a.iter().zip(&b).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum();
    let distance = (1.0 - f64::from(dot) * (range_a / 127.0) * (range_b / 127.0)).clamp(0.0, 2.0);
    1.0 - distance / 2.0
}

fn bin_score(a: &[f32], b: &[f32]) -> f64 {
    let differ = a.iter().zip(b).filter(|(x, y)| (**x > 0.0) != (**y > 0.0)).count();
    1.0 - differ as f64 / a.len() as f64
}

#[test]
fn q8_and_bin_scores_and_blobs_are_redis_s() {
    let mut random = Random(21);
    for dim in [1, 2, 3, 7, 8, 9, 31, 33, 63, 64, 65, 100, 384, 1000] {
        for quantization in [Quantization::Q8, Quantization::Bin] {
            let mut rows: Vec<Vec<f32>> = (0..40).map(|_| random.vector(dim)).collect();
            rows.push(vec![0.0; dim]);
            rows.push(vec![3e38; dim]);
            let params = Params { quantization, ..Params::new(dim as u32, 16, 3) };
            let mut set = Fixture::filled(params, &rows);
            let query = random.vector(dim);
            let hits = set.run(&query, SearchOptions::new(50, 50));
            assert_eq!(hits.len(), rows.len());
            for (i, score) in hits {
                let expected = match quantization {
                    Quantization::Q8 => q8_score(&query, &rows[i]),
                    _ => bin_score(&query, &rows[i]),
                };
                assert!(
                    (score - expected).abs() < 2e-6,
                    "{quantization:?} dim {dim} row {i}: {score} {expected}"
                );
            }
            let guard = set.reader.pin();
            for (i, row) in rows.iter().enumerate() {
                let name = format!("e{i}");
                let raw = set.set.raw(name.as_bytes(), &guard).expect("there");
                let told = set.set.vector(name.as_bytes(), &guard).expect("there");
                let (codes, range, length) = q8(row);
                assert!((raw.l2 - length).abs() <= 1e-9 * length, "{name}");
                if quantization == Quantization::Q8 {
                    assert_eq!(raw.blob, codes.iter().map(|&code| code as u8).collect::<Vec<_>>(), "{name}");
                    assert!((f64::from(raw.range.expect("Q8 has one")) - range).abs() < 1e-7);
                    let largest = length * range;
                    assert!(told.iter().zip(row).all(|(a, b)| f64::from((a - b).abs()) <= largest / 250.0));
                } else {
                    assert_eq!(raw.blob.len(), dim.div_ceil(64) * 8);
                    for (j, &x) in row.iter().enumerate() {
                        assert_eq!(raw.blob[j / 8] >> (j % 8) & 1 == 1, x > 0.0, "{name} bit {j}");
                        assert_eq!(told[j], if x > 0.0 { 1.0 } else { -1.0 });
                    }
                    assert_eq!(raw.range, None);
                    assert!((dim..raw.blob.len() * 8).all(|j| raw.blob[j / 8] >> (j % 8) & 1 == 0));
                }
            }
        }
    }
}

/// Live Redis 8.2.3: a zero vector has 0.5 with everything under Q8, itself included, and 1 with itself under
/// BIN; an element's own score under Q8 is that of its stored bytes.
#[test]
fn an_element_asks_with_what_is_stored_of_it() {
    let zero = vec![0.0; 4];
    let rows = [zero.clone(), vec![1.0, 2.0, 3.0, -4.0]];
    let of = |quantization, i: usize| {
        let mut set = Fixture::filled(Params { quantization, ..Params::new(4, 16, 1) }, &rows);
        let name = format!("e{i}");
        let guard = set.reader.pin();
        let hits = set.set.search(Query::Element(name.as_bytes()), 10, 10, &mut set.scratch, &guard);
        hits.expect("valid").iter().find(|hit| number(hit.name) == i).expect("itself").score
    };
    assert_eq!(of(Quantization::Q8, 0), 0.5);
    assert_eq!(of(Quantization::Bin, 0), 1.0);
    assert_eq!(of(Quantization::Bin, 1), 1.0);
    let own = of(Quantization::Q8, 1);
    assert!(own > 0.99 && own <= 1.0, "{own}");
}

#[test]
fn codes_of_every_width_lose_no_recall_and_tell_exact_scores() {
    let (base, queries) = text384();
    let params = |codes| Params { codes, ..Params::new(384, 16, 7) };
    let mut plain = Fixture::filled(params(CodeWidth::Off), &base);
    let reference = [20, 40, 80].map(|ef| plain.recall(&queries, ef));
    let allowed = [(CodeWidth::Auto, 0.008), (CodeWidth::Bits8, 0.008), (CodeWidth::Bits2, 0.02)];
    for (codes, loss) in allowed {
        let mut set = Fixture::filled(params(codes), &base);
        set.check();
        let recall = [20, 40, 80].map(|ef| set.recall(&queries, ef));
        for (told, reference) in recall.iter().zip(reference) {
            assert!(*told >= reference - loss, "{codes:?}: {recall:?}, float32 {reference:?}");
        }
        for query in &queries[..20] {
            for (i, score) in set.run(query, SearchOptions::new(10, 40)) {
                let exact = plain.truth(query, base.len()).into_iter().find(|hit| hit.0 == i).expect("all").1;
                assert_eq!(score, exact, "{codes:?}");
            }
        }
        let name = b"e17";
        let guard = set.reader.pin();
        assert_eq!(set.set.vector(name, &guard), plain.set.vector(name, &plain.reader.pin()));
    }
}

#[test]
fn quantised_sets_find_what_their_own_scan_finds() {
    let (base, queries) = text384();
    for (quantization, least) in [(Quantization::Q8, [0.985, 0.997]), (Quantization::Bin, [0.97, 0.99])] {
        let mut set = Fixture::filled(Params { quantization, ..Params::new(384, 16, 7) }, &base);
        set.check();
        let recall = [40, 80].map(|ef| set.recall(&queries, ef));
        assert!(recall[0] >= least[0] && recall[1] >= least[1], "{quantization:?}: {recall:?}");
    }
}

#[test]
fn the_other_metrics_find_what_an_exact_scan_in_f64_finds() {
    let (mut base, queries) = text384();
    let mut random = Random(31);
    // Lengths between 0.5 and 1.5, so that the metrics differ.
    for row in &mut base {
        let length = 0.5 + random.below(1000) as f32 / 1000.0;
        row.iter_mut().for_each(|x| *x *= length);
    }
    let wide = |a: &[f32], b: &[f32], term: fn(f64, f64) -> f64| -> f64 {
        a.iter().zip(b).map(|(&x, &y)| term(f64::from(x), f64::from(y))).sum()
    };
    for (metric, codes, ef, least) in [
        (Metric::L2, CodeWidth::Off, 80, 0.99),
        (Metric::L2, CodeWidth::Auto, 80, 0.99),
        (Metric::Ip, CodeWidth::Off, 120, 0.95),
        (Metric::Ip, CodeWidth::Auto, 120, 0.95),
    ] {
        let mut set = Fixture::filled(Params { metric, codes, ..Params::new(384, 16, 7) }, &base);
        set.check();
        for query in &queries[..10] {
            let mut exact: Vec<(usize, f64)> = base
                .iter()
                .map(|row| match metric {
                    Metric::Ip => wide(query, row, |x, y| x * y),
                    _ => 1.0 / (1.0 + wide(query, row, |x, y| (x - y) * (x - y))),
                })
                .enumerate()
                .collect();
            exact.sort_by(|a, b| b.1.total_cmp(&a.1));
            for ((_, score), (_, expected)) in set.truth(query, 10).iter().zip(&exact) {
                assert!((score - expected).abs() < 1e-5, "{metric:?}: {score} {expected}");
            }
        }
        let recall = set.recall(&queries, ef);
        assert!(recall >= least, "{metric:?} {codes:?}: {recall}");
        assert_eq!(set.set.vector(b"e3", &set.reader.pin()).expect("there"), base[3]);
    }
}

#[test]
fn half_the_links_of_layer_0_keep_the_graph_whole() {
    let (base, queries) = text384();
    let params = Params { layer0: Layer0::OneM, ..Params::new(384, 16, 7) };
    let mut set = Fixture::filled(params, &base);
    assert!(set.check().mean_degree <= 16.0);
    let recall = set.recall(&queries, 80);
    assert!(recall >= 0.97, "{recall}");
}

/// Admits every `n`-th node.
struct EveryNth(u32, Hops);

impl Admit for EveryNth {
    fn admits(&self, id: NodeId) -> bool {
        id.index().is_multiple_of(self.0)
    }

    fn hops(&self) -> Hops {
        self.1
    }
}

fn sliced<A: Admit>(
    set: &Fixture,
    query: &[f32],
    options: SearchOptions,
    admission: &A,
    slice: usize,
) -> Vec<usize> {
    let guard = set.reader.pin();
    let mut search = Search::default();
    search.begin(&set.set, Query::Vector(query), options, &guard).expect("a valid query");
    let mut n_slices = 0;
    while search.step(&set.set, admission, slice, &guard) == Progress::Unfinished {
        n_slices += 1;
        assert!(n_slices < 1_000_000, "no progress");
    }
    search.hits(&set.set, &guard).iter().map(|hit| number(hit.name)).collect()
}

#[test]
fn slices_of_any_size_give_the_hits_of_one_go() {
    let (base, queries) = text384();
    let set = Fixture::filled(Params::new(384, 16, 7), &base);
    let radial = SearchOptions { radius: Some(0.6), ..SearchOptions::new(500, 50) };
    let scan = SearchOptions { way: Way::Scan, ..SearchOptions::new(10, 10) };
    for query in &queries[..10] {
        for options in [SearchOptions::new(10, 60), radial, scan, SearchOptions::new(10, 1000)] {
            let whole = sliced(&set, query, options, &All, usize::MAX);
            let filtered = sliced(&set, query, options, &EveryNth(3, Hops::Two), usize::MAX);
            assert!(filtered.iter().all(|i| i.is_multiple_of(3)));
            for slice in [1, 7, 100] {
                assert_eq!(sliced(&set, query, options, &All, slice), whole, "{options:?} slices of {slice}");
                let told = sliced(&set, query, options, &EveryNth(3, Hops::Two), slice);
                assert_eq!(told, filtered, "{options:?} slices of {slice}");
            }
        }
    }
}

#[test]
fn searches_answer_with_what_is_admitted_and_find_most_of_it() {
    let (base, queries) = text384();
    let set = Fixture::filled(Params::new(384, 16, 7), &base);
    for (nth, hops, least) in
        [(2, Hops::One, 0.99), (10, Hops::One, 0.99), (10, Hops::Two, 0.95), (100, Hops::Two, 0.9)]
    {
        let (mut found, mut wanted) = (0, 0);
        for query in &queries {
            let scan = SearchOptions { way: Way::Scan, ..SearchOptions::new(10, 10) };
            let truth: HashSet<usize> =
                sliced(&set, query, scan, &EveryNth(nth, hops), usize::MAX).into_iter().collect();
            let hits = sliced(&set, query, SearchOptions::new(10, 60), &EveryNth(nth, hops), usize::MAX);
            assert!(hits.iter().all(|&i| (i as u32).is_multiple_of(nth)));
            wanted += truth.len();
            found += hits.iter().filter(|i| truth.contains(i)).count();
        }
        let recall = found as f64 / wanted as f64;
        assert!(recall >= least, "one in {nth}, {hops:?}: {recall}");
    }
}

#[test]
fn a_radial_search_finds_what_lies_within_and_nothing_beyond() {
    let (base, queries) = text384();
    for codes in [CodeWidth::Off, CodeWidth::Auto, CodeWidth::Bits2] {
        let mut set = Fixture::filled(Params { codes, ..Params::new(384, 16, 7) }, &base);
        for radius in [0.3, 0.6, 0.8] {
            let (mut found, mut wanted) = (0, 0);
            for query in &queries {
                let exact =
                    SearchOptions { way: Way::Scan, radius: Some(radius), ..SearchOptions::new(2000, 2000) };
                let graph = SearchOptions { radius: Some(radius), ..SearchOptions::new(2000, 100) };
                let truth: HashSet<usize> = set.run(query, exact).into_iter().map(|hit| hit.0).collect();
                let hits = set.run(query, graph);
                assert!(hits.iter().all(|hit| hit.1 >= 1.0 - f64::from(radius) / 2.0));
                assert!(hits.is_sorted_by(|a, b| a.1 >= b.1));
                wanted += truth.len();
                found += hits.iter().filter(|hit| truth.contains(&hit.0)).count();
            }
            assert!(found as f64 >= 0.98 * wanted as f64, "{codes:?} {radius}: {found} of {wanted}");
        }
    }
}

/// Where few lie within, the graph is walked; where many do, all are scanned: both find them, in slices too.
#[test]
fn a_radial_search_of_few_and_of_many_finds_them_all() {
    let (n, dim, seed) = (12_000, 64, 41);
    let mut random = Random(seed);
    let directions: Vec<Vec<f32>> = (0..8).map(|_| random.vector(dim)).collect();
    let row = |random: &mut Random| {
        let mut row = vec![0.0; dim];
        for direction in &directions {
            let by = random.vector(1)[0];
            row.iter_mut().zip(direction).for_each(|(x, d)| *x += by * d);
        }
        row
    };
    let rows: Vec<Vec<f32>> = (0..n).map(|_| row(&mut random)).collect();
    let queries: Vec<Vec<f32>> = (0..20).map(|_| row(&mut random)).collect();
    for codes in [CodeWidth::Off, CodeWidth::Auto] {
        let mut set = Fixture::filled(Params { codes, ..Params::new(dim as u32, 8, 7) }, &rows);
        let mut spent = Vec::new();
        for n_matches in [20, 200, 3_000] {
            let (mut found, mut wanted, mut distances) = (0, 0, 0);
            for query in &queries {
                let truth = set.truth(query, n_matches);
                let worst = truth.last().expect("as many").1;
                let radius = Some(((1.0 - worst) * 2.0) as f32);
                let options = SearchOptions { radius, ..SearchOptions::new(n, 20) };
                let hits = set.run(query, options);
                assert!(hits.is_sorted_by(|a, b| a.1 >= b.1));
                assert!(hits.iter().all(|hit| hit.1 >= worst - 1e-6), "seed {seed}");
                let truth: HashSet<usize> = truth.into_iter().map(|hit| hit.0).collect();
                wanted += truth.len();
                found += hits.iter().filter(|hit| truth.contains(&hit.0)).count();
                let whole: Vec<usize> = hits.into_iter().map(|hit| hit.0).collect();
                assert_eq!(sliced(&set, query, options, &All, 100), whole, "seed {seed}");
                let filtered = sliced(&set, query, options, &EveryNth(3, Hops::One), 100);
                let n_admitted = whole.iter().filter(|i| i.is_multiple_of(3)).count();
                assert!(filtered.iter().all(|i| i.is_multiple_of(3)));
                assert!(filtered.len() * 20 >= n_admitted * 19, "seed {seed}");
                let guard = set.reader.pin();
                let mut search = Search::default();
                search.begin(&set.set, Query::Vector(query), options, &guard).expect("valid");
                while search.step(&set.set, &All, 1_000_000, &guard) == Progress::Unfinished {}
                distances += search.spent();
            }
            println!("{codes:?}: {n_matches} within: {found} of {wanted}, {distances} distances");
            assert!(found * 100 >= wanted * 95, "{codes:?} {n_matches}: {found} of {wanted}, seed {seed}");
            spent.push(distances / queries.len());
        }
        assert!(spent[0] < n / 3, "few are found by a walk: {spent:?}");
        assert!((n..3 * n).contains(&spent[2]), "many are found by a scan: {spent:?}");
    }
}

#[test]
fn a_search_that_never_began_or_failed_to_has_no_hits() {
    let set = Fixture::create(Params::new(4, 16, 1), 1);
    let guard = set.reader.pin();
    let mut search = Search::default();
    assert_eq!(search.step(&set.set, &All, 10, &guard), Progress::Done);
    assert!(search.hits(&set.set, &guard).is_empty());
    let options = SearchOptions::new(10, 10);
    let error = search.begin(&set.set, Query::Vector(&[1.0]), options, &guard);
    assert_eq!(error, Err(Error::DimensionMismatch { got: 1, expected: 4 }));
    search.begin(&set.set, Query::Vector(&[1.0; 4]), options, &guard).expect("valid");
    assert_eq!(search.step(&set.set, &All, 10, &guard), Progress::Done);
    assert!(search.hits(&set.set, &guard).is_empty());
}
