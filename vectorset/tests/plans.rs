//! Plans that are older than the set they are committed to: made by readers, in slices, while the writer adds,
//! removes and replaces.

mod vectors;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use skerry_vectorset::epoch::Domain;
use skerry_vectorset::{Added, Insertion, Params, Planned, Progress, Query, SearchScratch, VectorSet, check};
use vectors::Random;

const DIM: usize = 16;

fn params(m: u32, seed: u64) -> Params {
    Params::new(DIM as u32, m, seed)
}

/// Content after a history of commits whose plans are up to many changes old is what the commits said, and
/// the graph is sound at every step.
#[test]
fn late_commits_leave_a_sound_graph_and_the_right_content() {
    for seed in 0..12_u64 {
        let mut random = Random(seed + 1);
        let domain = Domain::new(2);
        let (set, mut writer) =
            VectorSet::create(params(if seed % 2 == 0 { 4 } else { 8 }, seed), domain.clone());
        let reader = domain.register().expect("a place");
        let mut scratch = SearchScratch::new();
        let mut begun: Vec<(String, Vec<f32>, Insertion)> = Vec::new();
        let mut made: Vec<(String, Vec<f32>, Planned)> = Vec::new();
        let mut model: HashMap<String, Vec<f32>> = HashMap::new();
        for step in 0..1_500 {
            let name = format!("e{}", random.below(220));
            match random.below(10) {
                0..4 => {
                    let vector = if random.below(20) == 0 { vec![1.0; DIM] } else { random.vector(DIM) };
                    let guard = reader.pin();
                    let ef = 1 + random.below(50);
                    let level = random.next();
                    let plan = set.begin_insertion(&vector, ef, level, SearchScratch::new(), &guard);
                    begun.push((name, vector, plan.expect("valid")));
                }
                4..7 if !begun.is_empty() => {
                    let at = random.below(begun.len());
                    let budget = 1 + random.below(400);
                    if begun[at].2.step(&set, &mut budget.clone(), &reader.pin()) == Progress::Done {
                        let (name, vector, plan) = begun.swap_remove(at);
                        made.push((name, vector, plan.finish().0));
                    }
                }
                7 | 8 if !made.is_empty() => {
                    let (name, vector, planned) = made.swap_remove(random.below(made.len()));
                    let added = writer.commit(name.as_bytes(), &planned, None, 30, &mut scratch);
                    let expected = if model.contains_key(&name) { Added::Updated } else { Added::New };
                    assert_eq!(added, Ok(expected), "seed {seed} step {step}");
                    model.insert(name, vector);
                }
                _ => {
                    let was_there = writer.remove(name.as_bytes(), &mut scratch);
                    assert_eq!(was_there, model.remove(&name).is_some(), "seed {seed} step {step}");
                    if random.below(300) == 0 {
                        for name in std::mem::take(&mut model).into_keys() {
                            writer.remove(name.as_bytes(), &mut scratch);
                        }
                    }
                }
            }
            if step % 50 == 0 {
                let report = check::check(&set, &reader.pin()).unwrap_or_else(|fault| {
                    panic!("seed {seed} step {step}: {fault}");
                });
                assert_eq!(report.n_nodes, model.len(), "seed {seed} step {step}");
                assert_eq!(report.n_reachable, report.n_nodes, "seed {seed} step {step}");
            }
        }
        let guard = reader.pin();
        assert_eq!(set.len(), model.len());
        for (name, vector) in &model {
            let told = set.vector(name.as_bytes(), &guard).expect("it was added");
            assert!(told.iter().zip(vector).all(|(a, b)| (a - b).abs() < 1e-4), "seed {seed}: {name}");
        }
    }
}

/// A set that is built by late plans is as good as one that is built by `add`.
#[test]
fn a_set_of_late_commits_has_the_recall_of_others() {
    let (base, queries) = vectors::text384();
    let recall_of = |n_late: usize| {
        let domain = Domain::new(1);
        let params = Params::new(base[0].len() as u32, 16, 3);
        let (set, mut writer) = VectorSet::create(params, domain.clone());
        let reader = domain.register().expect("a place");
        let (mut scratch, mut random) = (SearchScratch::new(), Random(9));
        let mut waiting = std::collections::VecDeque::new();
        let mut commit = |(i, planned): (usize, Planned), scratch: &mut SearchScratch| {
            writer.commit(format!("e{i}").as_bytes(), &planned, None, 200, scratch).expect("valid");
        };
        for (i, row) in base.iter().enumerate() {
            let guard = reader.pin();
            let plan = set.begin_insertion(row, 200, random.next(), SearchScratch::new(), &guard);
            let mut plan = plan.expect("valid");
            while plan.step(&set, &mut 500, &guard) == Progress::Unfinished {}
            waiting.push_back((i, plan.finish().0));
            if waiting.len() > n_late {
                commit(waiting.pop_front().expect("not empty"), &mut scratch);
            }
        }
        waiting.into_iter().for_each(|planned| commit(planned, &mut scratch));
        let guard = reader.pin();
        let report = check::check(&set, &guard).expect("sound");
        assert_eq!(report.n_reachable, base.len());
        let mut n_found = 0;
        for query in &queries {
            let names = |hits: skerry_vectorset::Hits<'_>| -> HashSet<Vec<u8>> {
                hits.iter().map(|hit| hit.name.to_vec()).collect()
            };
            let truth =
                names(set.search_exact(Query::Vector(query), 10, &mut scratch, &guard).expect("valid"));
            let found = names(set.search(Query::Vector(query), 10, 60, &mut scratch, &guard).expect("valid"));
            n_found += truth.intersection(&found).count();
        }
        n_found as f64 / (10 * queries.len()) as f64
    };
    let recalls = [0, 4, 16, 60].map(recall_of);
    println!("recall@10 at EF 60 with 0, 4, 16 and 60 commits between a plan and its own: {recalls:?}");
    assert!(recalls.iter().all(|recall| *recall > recalls[0] - 0.01), "{recalls:?}");
}

/// Four threads plan and search, one commits, removes and replaces; the graph is sound whenever it rests.
#[test]
fn planners_and_searchers_run_beside_the_writer() {
    const N_NAMES: usize = 1_500;
    let seed = 5;
    let domain = Domain::new(5);
    let (set, mut writer) = VectorSet::create(params(6, seed), domain.clone());
    let (stop, n_searches) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (to_writer, plans) = mpsc::sync_channel::<(String, Planned)>(32);
    thread::scope(|scope| {
        for n in 0..4_u64 {
            let (to_writer, set, domain, stop, n_searches) =
                (to_writer.clone(), &set, &domain, &stop, &n_searches);
            scope.spawn(move || {
                let reader = domain.register().expect("a place for each");
                let mut random = Random(seed * 100 + n);
                let mut scratch = SearchScratch::new();
                while !stop.load(Ordering::Relaxed) {
                    let vector = random.vector(DIM);
                    let began = {
                        let guard = reader.pin();
                        set.begin_insertion(&vector, 40, random.next(), scratch, &guard).expect("valid")
                    };
                    let mut plan = began;
                    // A slice a pin: between them only the hold keeps what the plan knows.
                    while plan.step(set, &mut 200, &reader.pin()) == Progress::Unfinished {}
                    let (planned, back) = plan.finish();
                    scratch = back;
                    let name = format!("e{}", random.below(N_NAMES));
                    if to_writer.send((name, planned)).is_err() {
                        break;
                    }
                    let guard = reader.pin();
                    let hits =
                        set.search(Query::Vector(&vector), 20, 40, &mut scratch, &guard).expect("valid");
                    let mut last = f64::INFINITY;
                    for hit in hits.iter() {
                        assert!(hit.score <= last && (-1e-6..=1.000_001).contains(&hit.score));
                        assert!(hit.name.starts_with(b"e"));
                        last = hit.score;
                    }
                    n_searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        drop(to_writer);
        let mut scratch = SearchScratch::new();
        let mut random = Random(seed);
        let mut names = HashSet::new();
        for step in 0..12_000 {
            let (name, planned) = plans.recv().expect("planners go on until they are stopped");
            let added = writer.commit(name.as_bytes(), &planned, None, 40, &mut scratch).expect("valid");
            assert_eq!(added == Added::New, names.insert(name), "step {step}");
            if random.below(3) == 0 {
                let name = format!("e{}", random.below(N_NAMES));
                assert_eq!(writer.remove(name.as_bytes(), &mut scratch), names.remove(&name), "step {step}");
            }
            if step % 4_000 == 3_999 {
                let reader = domain.register().expect("a place for the check");
                let report = check::check(&set, &reader.pin()).unwrap_or_else(|fault| panic!("{fault}"));
                assert_eq!((report.n_nodes, report.n_reachable), (names.len(), names.len()));
            }
        }
        stop.store(true, Ordering::Relaxed);
        drop(plans);
    });
    assert!(n_searches.load(Ordering::Relaxed) > 1_000);
    assert_eq!(writer.collect(usize::MAX), 0, "nobody reads any more, and all holds are gone");
}
