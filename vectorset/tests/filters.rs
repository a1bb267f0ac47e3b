//! Searches with a filter: what they find, how much of it, and while the set changes.

mod vectors;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use skerry_vectorset::{
    Filter, FilteredSearch, Params, Progress, Query, SearchOptions, SearchScratch, VectorSet, Way, Writer,
    epoch::Domain,
};
use std::sync::Arc;
use vectors::Random;

/// One in two, ten, a hundred and all elements share `half`, `tenth`, `name` and `n`.
fn attribute(i: usize) -> String {
    format!(
        "{{\"n\":{i},\"tenth\":{},\"name\":\"label{}\",\"half\":{}}}",
        i % 10,
        i % 100,
        i.is_multiple_of(2)
    )
}

fn set_of(rows: &[Vec<f32>], n_readers: usize) -> (Arc<VectorSet>, Writer) {
    let (set, mut writer) =
        VectorSet::create(Params::new(rows[0].len() as u32, 16, 1), Domain::new(n_readers));
    let mut scratch = SearchScratch::new();
    for (i, row) in rows.iter().enumerate() {
        let name = format!("e{i}");
        writer.add(name.as_bytes(), row, Some(attribute(i).as_bytes()), 100, &mut scratch).expect("valid");
    }
    (set, writer)
}

fn filter(text: &str) -> Filter {
    Filter::compile(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

const FILTERS: &[&str] = &[
    ".half == 1",
    ".half == 1 or .n < 100",
    ".tenth == 3",
    ".tenth == 3 and .n > 500",
    ".name == 'label7'",
    ".name in ['label7', 'label8', 'label9']",
    ".n == 77",
    ".n == -1",
    ".n < 12",
    "1",
    ".missing == 1",
];

#[test]
fn count_hits_are_found_whenever_count_elements_match() {
    let (rows, queries) = vectors::text384();
    let (set, _writer) = set_of(&rows, 1);
    let reader = set.domain().register().expect("one reader");
    let guard = reader.pin();
    let mut scratch = SearchScratch::new();
    // More rounds than make a list hot, so that each way is taken.
    for round in 0..6 {
        for text in FILTERS {
            let filter = filter(text);
            let (mut found, mut wanted) = (0, 0);
            for query in &queries[..20] {
                let query = Query::Vector(query);
                let options = SearchOptions { way: Way::Scan, ..SearchOptions::new(10, 100) };
                let truth = set.run_filtered(query, options, &filter, &mut scratch, &guard).expect("valid");
                let truth: HashSet<Vec<u8>> = truth.iter().map(|hit| hit.name.to_vec()).collect();
                let options = SearchOptions::new(10, 100);
                let hits = set.run_filtered(query, options, &filter, &mut scratch, &guard).expect("valid");
                assert_eq!(hits.len(), truth.len(), "{text}, round {round}");
                for hit in hits.iter() {
                    let attribute = skerry_vectorset::Attribute::parse(hit.attribute().expect("it matches"));
                    assert!(filter.matches(&attribute), "{text}");
                }
                found += hits.iter().filter(|hit| truth.contains(hit.name)).count();
                wanted += truth.len();
            }
            assert!(found as f64 >= 0.95 * wanted as f64, "{text}, round {round}: {found} of {wanted}");
        }
    }
}

#[test]
fn a_search_in_slices_finds_what_one_in_one_go_finds() {
    let (rows, queries) = vectors::text384();
    let (set, _writer) = set_of(&rows, 1);
    let reader = set.domain().register().expect("one reader");
    let guard = reader.pin();
    let (mut scratch, mut search) = (SearchScratch::new(), FilteredSearch::new(SearchScratch::new()));
    for (i, text) in FILTERS.iter().cycle().take(60).enumerate() {
        let filter = filter(text);
        let query = Query::Vector(&queries[i % queries.len()]);
        let options = SearchOptions::new(10, 30);
        search.begin(&set, query, options, &filter, &guard).expect("valid");
        let mut n_slices = 0;
        while search.step(&set, &filter, 50, &guard) == Progress::Unfinished {
            n_slices += 1;
            assert!(n_slices < 5_000, "{text} does not end");
        }
        let sliced: Vec<Vec<u8>> = search.hits(&set, &guard).iter().map(|hit| hit.name.to_vec()).collect();
        let whole = set.run_filtered(query, options, &filter, &mut scratch, &guard).expect("valid");
        assert_eq!(sliced.len(), whole.len(), "{text}");
        let n_same = whole.iter().filter(|hit| sliced.iter().any(|name| name == hit.name)).count();
        assert!(n_same * 10 >= whole.len() * 9, "{text}: {n_same} of {}", whole.len());
    }
}

#[test]
fn lists_follow_every_change() {
    let mut random = Random(5);
    let rows: Vec<Vec<f32>> = (0..3_000).map(|_| random.vector(16)).collect();
    let (set, mut writer) = set_of(&rows, 1);
    let reader = set.domain().register().expect("one reader");
    let mut scratch = SearchScratch::new();
    let filters: Vec<Filter> = [".tenth == 3", ".half == 1", ".new == 1"].map(filter).into();
    for round in 0..400 {
        for _ in 0..1 + random.below(if round % 50 == 0 { 1_500 } else { 20 }) {
            let i = random.below(3_500);
            let name = format!("e{i}");
            let text = format!(
                "{{\"tenth\":{},\"half\":{},\"new\":{}}}",
                random.below(10),
                random.below(2),
                random.below(90) / 89
            );
            match random.below(4) {
                0 => _ = writer.remove(name.as_bytes(), &mut scratch),
                1 => _ = writer.set_attribute(name.as_bytes(), Some(text.as_bytes())),
                2 => _ = writer.set_attribute(name.as_bytes(), None),
                _ => {
                    let vector = random.vector(16);
                    writer
                        .add(name.as_bytes(), &vector, Some(text.as_bytes()), 30, &mut scratch)
                        .expect("valid");
                }
            }
        }
        let query = random.vector(16);
        let guard = reader.pin();
        for filter in &filters {
            let query = Query::Vector(&query);
            let options = SearchOptions { way: Way::Scan, ..SearchOptions::new(4_000, 100) };
            let all = set.run_filtered(query, options, filter, &mut scratch, &guard).expect("valid");
            let all: HashSet<Vec<u8>> = all.iter().map(|hit| hit.name.to_vec()).collect();
            let options = SearchOptions::new(20, 100);
            let hits = set.run_filtered(query, options, filter, &mut scratch, &guard).expect("valid");
            assert_eq!(hits.len(), all.len().min(20), "round {round}, {:?}", filter.source());
            assert!(
                hits.iter().all(|hit| all.contains(hit.name)),
                "round {round}: a hit that does not match"
            );
            let options = SearchOptions::new(4_000, 100);
            let hits = set.run_filtered(query, options, filter, &mut scratch, &guard).expect("valid");
            assert_eq!(hits.len(), all.len(), "round {round}");
        }
    }
}

#[test]
fn readers_with_filters_go_on_while_the_set_changes() {
    let mut random = Random(6);
    let rows: Vec<Vec<f32>> = (0..2_500).map(|_| random.vector(16)).collect();
    let (set, mut writer) = set_of(&rows, 3);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (set, stop) = (&set, &stop);
            scope.spawn(move || {
                let reader = set.domain().register().expect("a place");
                let mut random = Random(seed);
                let mut scratch = SearchScratch::new();
                let filters: Vec<Filter> =
                    (0..40).map(|i| filter(&format!(".tenth == {} and .n >= {}", i % 10, i / 10))).collect();
                while !stop.load(Ordering::Relaxed) {
                    let guard = reader.pin();
                    let filter = &filters[random.below(filters.len())];
                    let query = random.vector(16);
                    let options = SearchOptions::new(10, 50);
                    let hits = set.run_filtered(Query::Vector(&query), options, filter, &mut scratch, &guard);
                    // What is never removed is never missed: 100 elements of each tenth.
                    assert_eq!(hits.expect("valid").len(), 10);
                }
            });
        }
        let mut scratch = SearchScratch::new();
        for round in 0..6_000 {
            let i = 1_000 + random.below(2_000);
            let name = format!("e{i}");
            match round % 3 {
                0 => _ = writer.remove(name.as_bytes(), &mut scratch),
                1 => {
                    let text = attribute(random.below(900));
                    writer.set_attribute(name.as_bytes(), Some(text.as_bytes()));
                }
                _ => {
                    let text = attribute(i);
                    let vector = random.vector(16);
                    writer
                        .add(name.as_bytes(), &vector, Some(text.as_bytes()), 30, &mut scratch)
                        .expect("valid");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_bounded_effort_is_kept_and_may_find_fewer() {
    let (rows, queries) = vectors::text384();
    let (set, _writer) = set_of(&rows, 1);
    let reader = set.domain().register().expect("one reader");
    let guard = reader.pin();
    let mut scratch = SearchScratch::new();
    let filter = filter(".n == 77");
    for _ in 0..5 {
        let options = SearchOptions { max_measured: 20, ..SearchOptions::new(10, 50) };
        let hits = set.run_filtered(Query::Vector(&queries[0]), options, &filter, &mut scratch, &guard);
        assert!(hits.expect("valid").len() <= 1);
    }
}

#[test]
fn the_memory_of_lists_is_counted_and_bounded() {
    let mut random = Random(9);
    let rows: Vec<Vec<f32>> = (0..3_000).map(|_| random.vector(16)).collect();
    let (set, _writer) = set_of(&rows, 1);
    let reader = set.domain().register().expect("one reader");
    let mut scratch = SearchScratch::new();
    let before = set.memory_bytes();
    for (i, row) in rows.iter().enumerate() {
        let guard = reader.pin();
        let filter = filter(&format!(".n >= {} and .tenth == {}", i % 500, i % 10));
        for _ in 0..1 + i % 4 {
            let query = Query::Vector(row);
            let hits = set.run_filtered(query, SearchOptions::new(10, 20), &filter, &mut scratch, &guard);
            assert_eq!(hits.expect("valid").len(), 10);
        }
    }
    let after = set.memory_bytes();
    assert!(after > before && after < before + (1 << 18) + before / 16, "{before} -> {after} bytes");
}
