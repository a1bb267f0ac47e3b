//! What a set promises to one caller: counts, vectors, scores, attributes, recall, sound graphs after any
//! history.

mod vectors;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use skerry_vectorset::epoch::{Domain, Guard};
use skerry_vectorset::{Added, Error, Params, Query, SearchScratch, VectorSet, Writer, check};
use vectors::{Random, text384};

/// A set with its writer and one reader.
struct Fixture {
    set: Arc<VectorSet>,
    writer: Writer,
    guard: Option<Guard>,
    reader: skerry_vectorset::epoch::Participant,
    scratch: SearchScratch,
}

impl Fixture {
    fn new(dim: usize, m: u32) -> Fixture {
        let domain = Domain::new(1);
        let (set, writer) = VectorSet::create(Params::new(dim as u32, m, 7), domain.clone());
        let reader = domain.register().expect("the first reader");
        Fixture { set, writer, guard: None, reader, scratch: SearchScratch::new() }
    }

    fn add(&mut self, name: &str, vector: &[f32]) -> Added {
        self.writer.add(name.as_bytes(), vector, None, 200, &mut self.scratch).expect("a valid vector")
    }

    fn remove(&mut self, name: &str) -> bool {
        self.writer.remove(name.as_bytes(), &mut self.scratch)
    }

    fn search(&mut self, query: Query<'_>, count: usize, ef: usize) -> Vec<(String, f64)> {
        let guard = self.guard.insert(self.reader.pin());
        let hits = self.set.search(query, count, ef, &mut self.scratch, guard).expect("a valid query");
        hits.iter().map(|hit| (String::from_utf8_lossy(hit.name).into_owned(), hit.score)).collect()
    }

    fn truth(&mut self, query: Query<'_>, count: usize) -> Vec<(String, f64)> {
        let guard = self.guard.insert(self.reader.pin());
        let hits = self.set.search_exact(query, count, &mut self.scratch, guard).expect("a valid query");
        hits.iter().map(|hit| (String::from_utf8_lossy(hit.name).into_owned(), hit.score)).collect()
    }

    fn vector(&self, name: &str) -> Option<Vec<f32>> {
        self.set.vector(name.as_bytes(), &self.reader.pin())
    }

    fn check(&self) -> check::Report {
        check::check(&self.set, &self.reader.pin()).expect("a sound graph")
    }

    /// The share of the exact 10 nearest that graph searches with `ef` find.
    fn recall(&mut self, queries: &[Vec<f32>], ef: usize) -> f64 {
        let mut found = 0;
        let mut wanted = 0;
        for query in queries {
            let truth: HashSet<String> = names(self.truth(Query::Vector(query), 10));
            wanted += truth.len();
            found += names(self.search(Query::Vector(query), 10, ef)).intersection(&truth).count();
        }
        found as f64 / wanted as f64
    }
}

fn names(hits: Vec<(String, f64)>) -> HashSet<String> {
    hits.into_iter().map(|(name, _)| name).collect()
}

fn element(i: usize) -> String {
    format!("e{i}")
}

#[test]
fn an_element_is_added_read_updated_and_removed() {
    let mut set = Fixture::new(3, 16);
    assert_eq!(set.add("a", &[1.0, 2.0, 3.0]), Added::New);
    assert_eq!(set.add("", &[3.0, 4.0, 0.0]), Added::New);
    assert_eq!(set.vector("a"), Some(vec![1.0, 2.0, 3.0]));
    assert_eq!(set.add("a", &[-5.0, 0.0, 0.0]), Added::Updated);
    assert_eq!(set.vector("a"), Some(vec![-5.0, 0.0, 0.0]));
    assert_eq!((set.set.len(), set.set.max_node_uid()), (2, 3));
    let (row, l2) = set.set.vector_raw(b"", &set.reader.pin()).expect("an empty name is a name");
    assert_eq!((row, l2), (vec![0.6, 0.8, 0.0], 5.0));
    assert!(set.remove("a") && !set.remove("a") && set.remove(""));
    assert_eq!((set.set.len(), set.vector("a")), (0, None));
    assert_eq!(set.search(Query::Vector(&[1.0, 0.0, 0.0]), 10, 100), []);
    assert_eq!(set.add("a", &[1.0, 0.0, 0.0]), Added::New);
    assert_eq!(set.search(Query::Vector(&[1.0, 0.0, 0.0]), 10, 100), [("a".to_owned(), 1.0)]);
    set.check();
}

#[test]
fn a_set_is_shared_by_threads_and_its_writer_moves_between_them() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<VectorSet>();
    sent::<Writer>();
    sent::<SearchScratch>();
}

#[test]
fn client_mistakes_are_values_and_change_nothing() {
    let mut set = Fixture::new(2, 16);
    let mut add = |vector: &[f32]| set.writer.add(b"a", vector, None, 200, &mut set.scratch);
    assert_eq!(add(&[1.0]), Err(Error::DimensionMismatch { got: 1, expected: 2 }));
    assert_eq!(add(&[1.0, f32::NAN]), Err(Error::NotFinite));
    assert_eq!(add(&[f32::INFINITY, 0.0]), Err(Error::NotFinite));
    assert_eq!((set.set.len(), set.set.max_node_uid()), (0, 0));
    set.add("a", &[1.0, 0.0]);
    let guard = set.reader.pin();
    let mut search = |query| set.set.search(query, 1, 1, &mut set.scratch, &guard).map(|hits| hits.len());
    assert_eq!(search(Query::Element(b"b")), Err(Error::ElementNotFound));
    assert_eq!(
        search(Query::Vector(&[1.0, 2.0, 3.0])),
        Err(Error::DimensionMismatch { got: 3, expected: 2 })
    );
    assert_eq!(search(Query::Vector(&[f32::NEG_INFINITY, 2.0])), Err(Error::NotFinite));
    assert_eq!(search(Query::Element(b"a")), Ok(1));
}

#[test]
fn scores_are_one_minus_half_the_distance() {
    let mut set = Fixture::new(2, 16);
    for (name, vector) in
        [("east", [2.0, 0.0]), ("north", [0.0, 1e-3]), ("west", [-7.0, 0.0]), ("zero", [0.0, 0.0])]
    {
        set.add(name, &vector);
    }
    let scores: HashMap<String, f64> = set.search(Query::Element(b"east"), 10, 100).into_iter().collect();
    let expected = [("east", 1.0), ("north", 0.5), ("west", 0.0), ("zero", 0.5)];
    assert_eq!(scores, expected.map(|(name, score)| (name.to_owned(), score)).into());
    assert!(set.search(Query::Element(b"zero"), 10, 100).iter().all(|&(_, score)| score == 0.5));
}

#[test]
fn lengths_beyond_float32_are_kept() {
    let mut set = Fixture::new(2, 16);
    set.add("huge", &[3e38, 3e38]);
    set.add("tiny", &[1e-42, 0.0]);
    set.add("mixed", &[3e38, 1e-42]);
    assert_eq!(set.vector("huge"), Some(vec![3e38, 3e38]));
    assert_eq!(set.vector("tiny"), Some(vec![1e-42, 0.0]));
    let scores: HashMap<String, f64> = set.search(Query::Vector(&[1e-20, 0.0]), 3, 100).into_iter().collect();
    // As in Redis: the squares of a denormal are zero in float32, and what has no length has no direction.
    assert_eq!((scores["tiny"], scores["mixed"]), (0.5, 1.0));
    assert!((scores["huge"] - (0.5 + 0.5_f64.sqrt() / 2.0)).abs() < 1e-6);
}

#[test]
fn attributes_are_kept_by_updates_and_counted() {
    let mut set = Fixture::new(2, 16);
    let mut add = |name: &[u8], attribute: Option<&[u8]>| {
        set.writer.add(name, &[1.0, 0.0], attribute, 200, &mut set.scratch).expect("valid");
        (set.set.attributes_count(), set.set.attribute(name, &set.reader.pin()).map(<[u8]>::to_vec))
    };
    assert_eq!(add(b"a", Some(b"{\"x\":1}")), (1, Some(b"{\"x\":1}".to_vec())));
    assert_eq!(add(b"a", None), (1, Some(b"{\"x\":1}".to_vec())));
    assert_eq!(add(b"b", None), (1, None));
    assert_eq!(add(b"b", Some(b"not json")), (2, Some(b"not json".to_vec())));
    assert_eq!(add(b"b", Some(b"")), (1, None));
    assert!(set.writer.set_attribute(b"b", Some(b"again")) && set.writer.set_attribute(b"a", None));
    assert!(!set.writer.set_attribute(b"c", Some(b"nobody")));
    assert_eq!(set.set.attributes_count(), 1);
    let guard = set.reader.pin();
    let hits = set.set.search(Query::Element(b"a"), 10, 10, &mut set.scratch, &guard).expect("valid");
    let attributes: HashMap<&[u8], Option<&[u8]>> =
        hits.iter().map(|hit| (hit.name, hit.attribute())).collect();
    assert_eq!(attributes, HashMap::from([(&b"a"[..], None), (&b"b"[..], Some(&b"again"[..]))]));
    drop(guard);
    assert!(set.remove("b"));
    assert_eq!(set.set.attributes_count(), 0);
}

#[test]
fn counts_beyond_any_memory_return_every_element_once_in_order() {
    let (base, queries) = text384();
    let mut set = Fixture::new(384, 16);
    base.iter().enumerate().for_each(|(i, row)| assert_eq!(set.add(&element(i), row), Added::New));
    for (count, ef) in [(usize::MAX, 1), (usize::MAX, usize::MAX), (base.len(), 100)] {
        let hits = set.search(Query::Vector(&queries[0]), count, ef);
        assert!(hits.is_sorted_by(|a, b| a.1 >= b.1));
        assert_eq!(names(hits).len(), base.len());
    }
    assert_eq!(set.search(Query::Vector(&queries[0]), 3, usize::MAX).len(), 3);
    assert_eq!(set.truth(Query::Vector(&queries[0]), usize::MAX).len(), base.len());
    assert_eq!(set.search(Query::Vector(&queries[0]), 0, 100).len(), 0);
    let self_score = set.search(Query::Element(b"e5"), 1, 100);
    assert!(self_score[0].0 == "e5" && (self_score[0].1 - 1.0).abs() < 1e-6);
}

#[test]
fn the_graph_finds_what_the_scan_finds() {
    let (base, queries) = text384();
    let mut set = Fixture::new(384, 16);
    base.iter().enumerate().for_each(|(i, row)| assert_eq!(set.add(&element(i), row), Added::New));
    let report = set.check();
    assert_eq!((report.n_nodes, report.n_reachable), (base.len(), base.len()));
    // 2000 rows are beyond the sets that are always scanned, and these EF too small for the scan to be
    // chosen.
    let recall = [20, 40, 80].map(|ef| set.recall(&queries, ef));
    assert!(recall[0] >= 0.96 && recall[1] >= 0.985 && recall[2] >= 0.997, "{recall:?}");
}

#[test]
fn links_and_random_members_name_elements() {
    let (base, _) = text384();
    let mut set = Fixture::new(384, 4);
    base[..300].iter().enumerate().for_each(|(i, row)| assert_eq!(set.add(&element(i), row), Added::New));
    let guard = set.reader.pin();
    let links = set.set.links(b"e0", &guard).expect("e0 is there");
    assert!(!links[0].is_empty() && links[0].len() <= 8 && links[1..].iter().all(|level| level.len() <= 4));
    assert!(links.iter().flatten().all(|hit| hit.name != b"e0" && hit.score > 0.0 && hit.score < 1.0));
    let tallest =
        (0..300).map(|i| set.set.links(element(i).as_bytes(), &guard).expect("there").len() - 1).max();
    assert_eq!(tallest, Some(set.set.max_level(&guard)));
    let mut random = Random(5);
    for count in [0, 1, 10, 200, 300, usize::MAX] {
        let chosen = set.set.random_members(count, || random.next(), &guard);
        assert_eq!(chosen.len(), count.min(300));
        assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), chosen.len());
        assert!(chosen.iter().all(|name| set.set.contains(name, &guard)));
    }
    assert_eq!(set.set.member(300, &guard), None);
}

#[test]
fn any_history_leaves_a_sound_graph_and_the_right_content() {
    for (seed, m) in [(1, 4), (2, 4), (3, 16), (4, 5), (5, 300)] {
        let dim = 6;
        let mut random = Random(seed);
        let mut set = Fixture::new(dim, m);
        let mut model: HashMap<String, Vec<f32>> = HashMap::new();
        for step in 0..4_000 {
            let name = element(random.below(if step % 1_000 < 600 { 400 } else { 40 }));
            // Phases of growth and of decline, to nothing at times.
            if random.below(10) < if step % 1_000 < 600 { 7 } else { 2 } {
                let vector = random.vector(dim);
                let expected = if model.contains_key(&name) { Added::Updated } else { Added::New };
                assert_eq!(set.add(&name, &vector), expected, "seed {seed} step {step}");
                model.insert(name, vector);
            } else {
                let name =
                    if random.below(2) == 0 { model.keys().min().cloned().unwrap_or(name) } else { name };
                assert_eq!(set.remove(&name), model.remove(&name).is_some(), "seed {seed} step {step}");
            }
            if step % 97 == 0 {
                let report = set.check();
                assert_eq!(report.n_nodes, model.len(), "seed {seed} step {step}");
                assert_eq!(report.n_reachable, model.len(), "seed {seed} step {step}: cut off");
            }
        }
        for (name, vector) in &model {
            let told = set.vector(name).expect("present");
            assert!(told.iter().zip(vector).all(|(a, b)| (a - b).abs() <= 1e-6), "seed {seed} {name}");
        }
    }
}

#[test]
fn recall_and_reachability_survive_deletions() {
    let (base, queries) = text384();
    for order in ["random", "insertion", "cluster"] {
        let mut set = Fixture::new(384, 16);
        base.iter().enumerate().for_each(|(i, row)| assert_eq!(set.add(&element(i), row), Added::New));
        let mut victims: Vec<usize> = (0..base.len()).collect();
        match order {
            "random" => Random(9).shuffle(&mut victims),
            "cluster" => {
                victims.sort_by(|&a, &b| dot(&base[b], &base[0]).total_cmp(&dot(&base[a], &base[0])))
            }
            _ => {}
        }
        let mut removed = 0;
        for percent in [50, 90, 99, 100] {
            while removed < base.len() * percent / 100 {
                assert!(set.remove(&element(victims[removed])));
                removed += 1;
            }
            let report = set.check();
            assert_eq!(report.n_reachable, base.len() - removed, "{order} {percent} %");
            if percent == 50 {
                // Just beyond the sets that are always scanned: put some back, so that the graph is asked.
                let again: Vec<usize> = victims[..100].to_vec();
                again.iter().for_each(|&i| assert_eq!(set.add(&element(i), &base[i]), Added::New));
                let recall = [20, 80].map(|ef| set.recall(&queries, ef));
                assert!(recall[0] >= 0.95 && recall[1] >= 0.995, "{order}: {recall:?}");
                again.iter().for_each(|&i| assert!(set.remove(&element(i))));
            } else if percent < 100 {
                assert_eq!(set.recall(&queries, 20), 1.0, "{order}: small sets are exact");
            }
        }
        assert_eq!(set.set.len(), 0);
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[test]
fn duplicates_do_not_hide_distinct_elements() {
    let (base, _) = text384();
    let mut set = Fixture::new(384, 16);
    for i in 0..1_000 {
        set.add(&format!("same{i}"), &base[0]);
    }
    for (i, row) in base.iter().enumerate().skip(1).take(1_000) {
        set.add(&element(i), row);
    }
    let report = set.check();
    assert_eq!(report.n_reachable, 2_000);
    for (i, row) in base.iter().enumerate().skip(1).take(1_000) {
        // Vectors that occur twice in the data are found as either.
        let twins = names(set.truth(Query::Vector(row), 2));
        let by_vector = set.search(Query::Vector(row), 1, 100);
        assert!(twins.contains(&by_vector[0].0) && by_vector[0].1 > 0.999_999, "{i}: {by_vector:?}");
        let by_name = set.search(Query::Element(element(i).as_bytes()), 1, 100);
        assert!(by_name[0].1 > 0.999_999, "{i}: {by_name:?}");
    }
}

#[test]
fn the_largest_m_keeps_every_operation_bounded() {
    let mut random = Random(4);
    let mut set = Fixture::new(2, 4_096);
    for i in 0..900 {
        let vector = random.vector(2);
        set.writer.add(element(i).as_bytes(), &vector, None, 1_000_000, &mut set.scratch).expect("valid");
        if i % 3 == 2 {
            assert!(set.remove(&element(i - 1)));
        }
    }
    // With costs quadratic in the number of neighbors this takes minutes.
    assert_eq!(set.check().n_reachable, 600);
}

/// Redis's entry_point_deletion.py: there the entry point's links once told the wrong level.
#[test]
fn a_low_m_set_drained_in_order_knows_its_level_at_every_step() {
    for seed in 1..=10 {
        let mut random = Random(seed);
        let mut set = Fixture::new(8, 4);
        for round in 0..3 {
            for i in 0..80 {
                set.add(&element(i), &random.vector(8));
            }
            for i in 0..80 {
                let report = set.check();
                assert_eq!(
                    (report.n_nodes, report.n_reachable),
                    (80 - i, 80 - i),
                    "seed {seed} round {round}"
                );
                assert_eq!(
                    report.max_level,
                    set.set.max_level(&set.reader.pin()),
                    "seed {seed} round {round}"
                );
                assert!(set.remove(&element(i)));
            }
            assert_eq!(set.set.max_level(&set.reader.pin()), 0);
        }
    }
}

#[test]
fn memory_returns_after_a_drain_and_stays_flat_under_churn() {
    let mut random = Random(11);
    let mut set = Fixture::new(128, 16);
    let empty = set.set.memory_bytes();
    let mut peaks = Vec::new();
    for round in 0..3 {
        for i in 0..3_000 {
            set.add(&element(i), &random.vector(128));
        }
        peaks.push(set.set.memory_bytes());
        let mut order: Vec<usize> = (0..3_000).collect();
        random.shuffle(&mut order);
        order.iter().for_each(|&i| assert!(set.remove(&element(i))));
        while set.writer.collect(100) > 0 {}
        let drained = set.set.memory_bytes();
        assert!(drained < empty + 20_000, "round {round}: {drained} bytes, {empty} when new");
    }
    assert!(peaks[2] <= peaks[0] + 20_000, "{peaks:?}");
    for i in 0..64 {
        set.add(&element(i), &random.vector(128));
    }
    let before = set.set.memory_bytes();
    for step in 0..5_000 {
        let name = element(random.below(64));
        if step % 2 == 0 {
            set.remove(&name);
        } else {
            set.add(&name, &random.vector(128));
        }
    }
    assert!(set.set.memory_bytes() < before + 64_000, "{} after {before}", set.set.memory_bytes());
    set.check();
}

#[test]
fn a_closed_set_is_empty_at_once_and_freed_in_slices_after_its_readers() {
    let mut random = Random(12);
    let mut set = Fixture::new(32, 16);
    for i in 0..500 {
        set.add(&element(i), &random.vector(32));
    }
    let Fixture { set, writer, reader, mut scratch, .. } = set;
    let full = set.memory_bytes();
    let guard = reader.pin();
    let name = set.member(17, &guard).expect("500 members");
    let mut remains = writer.close();
    assert_eq!((set.len(), set.contains(name, &guard)), (0, false));
    assert!(!remains.free_slice(1_000), "a reader from before the close is still there");
    assert!(name.starts_with(b"e"), "and may still read");
    drop(guard);
    let guard = reader.pin();
    assert_eq!(
        set.search(Query::Vector(&random.vector(32)), 10, 10, &mut scratch, &guard).expect("valid").len(),
        0
    );
    drop(guard);
    let mut slices = 1;
    while !remains.free_slice(100) {
        slices += 1;
    }
    assert!((5..10).contains(&slices), "{slices} slices");
    assert!(set.memory_bytes() < full / 10, "{} of {full}", set.memory_bytes());
}
