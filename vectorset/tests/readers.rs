//! Readers on other threads while the writer changes, empties or drops the set. Meant for the address
//! sanitizer too.

mod vectors;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use skerry_vectorset::epoch::Domain;
use skerry_vectorset::{Params, Query, SearchScratch, VectorSet, check};
use vectors::Random;

const DIM: usize = 24;
const N_READERS: usize = 4;
/// Elements that are never touched: every answer can be held to them.
const N_STABLE: usize = 300;

/// The vector of an element is derived from its name and version, so that a reader can tell a torn or
/// recycled row.
fn vector_of(name: &str, version: u64) -> Vec<f32> {
    let seed =
        name.bytes().fold(version.wrapping_mul(0x100_0000_01B3), |h, b| (h ^ u64::from(b)).wrapping_mul(31));
    Random(seed).vector(DIM)
}

/// A reader's loop until `stop`: every kind of read, each answer checked.
fn read(set: &VectorSet, seed: u64, stop: &AtomicBool, n_searches: &AtomicUsize) {
    let participant = set.domain().register().expect("a place for each reader");
    let mut random = Random(seed);
    let mut scratch = SearchScratch::new();
    while !stop.load(Ordering::Relaxed) {
        let guard = participant.pin();
        let stable = format!("stable{}", random.below(N_STABLE));
        let query = random.vector(DIM);
        let count = 1 + random.below(40);
        let hits = match random.below(3) {
            0 => set.search(Query::Vector(&query), count, 1 + random.below(60), &mut scratch, &guard),
            1 => set.search_exact(Query::Vector(&query), count, &mut scratch, &guard),
            _ => set.search(Query::Element(stable.as_bytes()), count, 50, &mut scratch, &guard),
        };
        let hits = hits.expect("stable elements stay");
        let mut seen = HashSet::new();
        let mut last = f64::INFINITY;
        for hit in hits.iter() {
            assert!(
                seen.insert(hit.name.to_vec()),
                "seed {seed}: {:?} twice",
                String::from_utf8_lossy(hit.name)
            );
            assert!(
                hit.score <= last && (-1e-6..=1.000_001).contains(&hit.score),
                "seed {seed}: {}",
                hit.score
            );
            last = hit.score;
            if let Some(attribute) = hit.attribute() {
                assert_eq!(attribute, hit.name, "seed {seed}: an attribute is its element's name");
            }
        }
        let told = set.vector(stable.as_bytes(), &guard).expect("stable elements stay");
        let expected = vector_of(&stable, 0);
        assert!(told.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "seed {seed}: {stable}");
        let links = set.links(stable.as_bytes(), &guard).expect("stable elements stay");
        assert!(links.iter().flatten().all(|hit| !hit.name.is_empty()), "seed {seed}");
        if let Some(name) = set.member(random.below(set.len().max(1)), &guard) {
            let name = String::from_utf8(name.to_vec()).expect("names are text");
            assert!(name.starts_with("stable") || name.starts_with("churn"), "seed {seed}: {name}");
        }
        n_searches.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_see_whole_elements_while_the_writer_adds_removes_and_updates() {
    let seed = 21;
    let domain = Domain::new(N_READERS + 1);
    let (set, mut writer) = VectorSet::create(Params::new(DIM as u32, 6, seed), domain.clone());
    let mut scratch = SearchScratch::new();
    for i in 0..N_STABLE {
        let name = format!("stable{i}");
        writer
            .add(name.as_bytes(), &vector_of(&name, 0), Some(name.as_bytes()), 100, &mut scratch)
            .expect("valid");
    }
    // Beyond the sets that are always scanned, so that readers walk the graph.
    let n_churn = 1_500;
    let (stop, n_searches) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..N_READERS)
            .map(|i| {
                let (set, stop, n_searches) = (&set, &stop, &n_searches);
                scope.spawn(move || read(set, seed + i as u64, stop, n_searches))
            })
            .collect();
        let mut random = Random(seed);
        let mut step = 0;
        while (step < 12_000 || n_searches.load(Ordering::Relaxed) < 2_000)
            && readers.iter().all(|r| !r.is_finished())
        {
            step += 1;
            let name = format!("churn{}", random.below(n_churn));
            match random.below(8) {
                0 | 1 if step > 4_000 => {
                    writer.remove(name.as_bytes(), &mut scratch);
                }
                2 => {
                    let attribute = Some(name.as_bytes()).filter(|_| random.below(2) == 0);
                    writer.set_attribute(name.as_bytes(), attribute);
                }
                _ => {
                    let vector = vector_of(&name, random.next());
                    let attribute = Some(name.as_bytes()).filter(|_| random.below(2) == 0);
                    writer.add(name.as_bytes(), &vector, attribute, 60, &mut scratch).expect("valid");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(n_searches.load(Ordering::Relaxed) >= 2_000);
    while writer.collect(1_000) > 0 {}
    let reader = domain.register().expect("the readers are gone");
    let report = check::check(&set, &reader.pin()).expect("a sound graph");
    assert_eq!(report.n_reachable, set.len());
}

#[test]
fn sets_are_closed_and_dropped_under_searching_readers() {
    let domain = Domain::new(N_READERS);
    for round in 0..12_u64 {
        let (set, mut writer) = VectorSet::create(Params::new(DIM as u32, 4, round), domain.clone());
        let mut scratch = SearchScratch::new();
        for i in 0..1_300 {
            let name = format!("e{i}");
            writer.add(name.as_bytes(), &vector_of(&name, 0), Some(b"{}"), 20, &mut scratch).expect("valid");
        }
        let n_searches = Arc::new(AtomicUsize::new(0));
        let readers: Vec<_> = (0..N_READERS as u64)
            .map(|i| {
                let (set, n_searches) = (set.clone(), n_searches.clone());
                thread::spawn(move || {
                    let participant = set.domain().register().expect("a place for each reader");
                    let mut random = Random(round * 100 + i);
                    let mut scratch = SearchScratch::new();
                    loop {
                        let guard = participant.pin();
                        let query = random.vector(DIM);
                        let hits =
                            set.search(Query::Vector(&query), 10, 30, &mut scratch, &guard).expect("valid");
                        assert!(hits.iter().all(|hit| hit.name.starts_with(b"e")));
                        n_searches.fetch_add(1, Ordering::Relaxed);
                        if hits.is_empty() {
                            return;
                        }
                    }
                })
            })
            .collect();
        drop(set);
        while n_searches.load(Ordering::Relaxed) < 50 {
            thread::yield_now();
        }
        let mut remains = writer.close();
        if round % 3 == 0 {
            // Dropped with readers inside: the last of them frees the set.
            drop(remains);
        } else {
            let mut slices = 0_u32;
            while !remains.free_slice(64) && (round % 3 == 1 || slices < 5) {
                slices += 1;
                thread::yield_now();
            }
        }
        for reader in readers {
            reader.join().expect("the reader's assertions held");
        }
    }
}
