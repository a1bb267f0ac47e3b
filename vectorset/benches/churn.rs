//! What is left of recall, reachability and memory after deletes and reinserts, round after round?
//!
//! Half of the rows, then nine tenths, in random order and cluster by cluster (what is nearest to a drawn row goes
//! first). Prints recall@10 of the survivors and of the refilled set beside fresh builds of the same rows, how many
//! survivors their own vector does not find, and resident memory. `BASE`, `QUERIES`, `N` and `ROUNDS` as in
//! `search.rs`; seed 1.

#[path = "../tests/vectors/mod.rs"]
mod vectors;

use std::collections::HashSet;

use skerry_vectorset::{Params, Query, SearchScratch, VectorSet, Writer, check, epoch::Domain};
use std::sync::Arc;
use vectors::Random;

const EF: usize = 100;

struct Churn<'a> {
    base: &'a [Vec<f32>],
    queries: &'a [Vec<f32>],
    set: Arc<VectorSet>,
    writer: Writer,
    scratch: SearchScratch,
}

impl<'a> Churn<'a> {
    fn of(base: &'a [Vec<f32>], queries: &'a [Vec<f32>], ids: &[usize]) -> Churn<'a> {
        let (set, writer) = VectorSet::create(Params::new(base[0].len() as u32, 16, 1), Domain::new(1));
        let mut churn = Churn { base, queries, set, writer, scratch: SearchScratch::new() };
        ids.iter().for_each(|&id| churn.add(id));
        churn
    }

    fn add(&mut self, id: usize) {
        let added = self.writer.add(name(id).as_bytes(), &self.base[id], None, 200, &mut self.scratch);
        added.expect("rows are valid");
    }

    fn remove(&mut self, id: usize) {
        assert!(self.writer.remove(name(id).as_bytes(), &mut self.scratch), "it was there");
    }

    fn recall(&mut self) -> f64 {
        let reader = self.set.domain().register().expect("one reader");
        let guard = reader.pin();
        let mut found = 0;
        for query in self.queries {
            let query = Query::Vector(query);
            let truth = self.set.search_exact(query, 10, &mut self.scratch, &guard).expect("valid");
            let truth: HashSet<Vec<u8>> = truth.iter().map(|hit| hit.name.to_vec()).collect();
            let hits = self.set.search(query, 10, EF, &mut self.scratch, &guard).expect("valid");
            found += hits.iter().filter(|hit| truth.contains(hit.name)).count();
        }
        found as f64 / (10 * self.queries.len()) as f64
    }

    /// Elements that a search for their own vector does not find, and what level 0 does not lead to.
    fn lost(&mut self, ids: &[usize]) -> (usize, usize) {
        let reader = self.set.domain().register().expect("one reader");
        let guard = reader.pin();
        let report = check::check(&self.set, &guard).expect("the graph is sound");
        let mut lost = 0;
        for &id in ids {
            let name = name(id);
            let query = Query::Element(name.as_bytes());
            let hits = self.set.search(query, 10, EF, &mut self.scratch, &guard).expect("it is there");
            lost += usize::from(!hits.iter().any(|hit| hit.name == name.as_bytes() || hit.score > 0.999_999));
        }
        (lost, report.n_nodes - report.n_reachable)
    }
}

fn name(id: usize) -> String {
    format!("e{id}")
}

fn main() {
    let number = |name: &str, default: usize| {
        std::env::var(name).map_or(default, |value| value.parse().expect("a whole number"))
    };
    let (base, queries) = match (std::env::var("BASE"), std::env::var("QUERIES")) {
        (Ok(base), Ok(queries)) => (
            vectors::npy_f16(&base.into(), number("N", 10_000)),
            vectors::npy_f16(&queries.into(), number("N_QUERIES", 300)),
        ),
        _ => vectors::text384(),
    };
    let all: Vec<usize> = (0..base.len()).collect();
    let fresh = Churn::of(&base, &queries, &all).recall();
    println!("{} rows x {}, EF {EF}; a fresh build has recall@10 {fresh:.4}", base.len(), base[0].len());
    for order in ["random", "clustered"] {
        let mut random = Random(1);
        let mut churn = Churn::of(&base, &queries, &all);
        for round in 1..=number("ROUNDS", 10) {
            for share in [0.5, 0.9] {
                let n_removed = (base.len() as f64 * share) as usize;
                let mut ids = all.clone();
                random.shuffle(&mut ids);
                if order == "clustered" {
                    let center = &base[ids[0]];
                    let dot = |id: &usize| base[*id].iter().zip(center).map(|(a, b)| a * b).sum::<f32>();
                    ids.sort_by(|a, b| dot(b).total_cmp(&dot(a)));
                }
                let (gone, left) = ids.split_at(n_removed);
                gone.iter().for_each(|&id| churn.remove(id));
                let survivors = churn.recall();
                let (lost, unreachable) = churn.lost(left);
                let fresh_survivors = if round == 1 || round == number("ROUNDS", 10) {
                    format!("{:.4}", Churn::of(&base, &queries, left).recall())
                } else {
                    "-".to_owned()
                };
                gone.iter().for_each(|&id| churn.add(id));
                churn.writer.collect(usize::MAX);
                let (lost_after, unreachable_after) = churn.lost(&all);
                println!(
                    "{order} round {round} minus {:2.0} %: survivors {survivors:.4} (fresh {fresh_survivors}), lost {lost}, \
                     unreachable {unreachable}; refilled {:.4}, lost {lost_after}, unreachable {unreachable_after}; set {:.1} MB, rss {:.1} MB",
                    share * 100.0,
                    churn.recall(),
                    churn.set.memory_bytes() as f64 / 1e6,
                    resident_bytes() as f64 / 1e6,
                );
            }
        }
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm");
    pages * 4096
}
