//! How fast is a search with a filter next to one without, at which recall? Prints CPU time of this thread.
//!
//! Environment as in `search`; `CASE` chooses rows of the table, `EF` defaults to 100, `WRITES` (attributes changed per 100 queries) to 0.
//! "once" is the same expression with another constant each time, "again" a repeated one.

#[path = "../tests/vectors/mod.rs"]
mod vectors;

use std::collections::HashSet;
use std::time::Duration;

use skerry_vectorset::{Filter, Params, Query, SearchOptions, SearchScratch, VectorSet, Way, epoch::Domain};

/// The name of a row of the table, and the expression for query `i`.
type Case = (&'static str, fn(usize, usize) -> String);

const CASES: &[Case] = &[
    ("50 % label, again", |_, _| ".half == 1".into()),
    ("10 % label, again", |_, _| ".tenth == 3".into()),
    ("1 % label, again", |_, _| ".name == 'label 7'".into()),
    ("0.1 % label, again", |_, _| ".thousandth == 7".into()),
    ("50 % range, again", |_, n| format!(".n < {}", n / 2)),
    ("10 % range, again", |_, n| format!(".n < {}", n / 10)),
    ("1 % range, again", |_, n| format!(".n < {}", n / 100)),
    ("0.1 % range, again", |_, n| format!(".n < {}", n / 1000)),
    ("50 % range, once", |i, n| format!(".n >= {i} and .n < {}", n / 2 + i)),
    ("10 % range, once", |i, n| format!(".n >= {i} and .n < {}", n / 10 + i)),
    ("1 % range, once", |i, n| format!(".n >= {i} and .n < {}", n / 100 + i)),
    ("0.1 % range, once", |i, n| format!(".n >= {i} and .n < {}", n / 1000 + i)),
];

fn main() {
    let number = |name: &str, default: usize| {
        std::env::var(name).map_or(default, |value| value.parse().expect("a whole number"))
    };
    let (base, queries) = match (std::env::var("BASE"), std::env::var("QUERIES")) {
        (Ok(base), Ok(queries)) => {
            let n = number("N", 20_000);
            (vectors::npy_f16(&base.into(), n), vectors::npy_f16(&queries.into(), number("N_QUERIES", 300)))
        }
        _ => vectors::text384(),
    };
    let (n, ef, writes) = (base.len(), number("EF", 100), number("WRITES", 0));
    let params = Params::new(base[0].len() as u32, 16, 1);
    let (set, mut writer) = VectorSet::create(params, Domain::new(1));
    let mut scratch = SearchScratch::new();
    let mut random = vectors::Random(3);
    let mut order: Vec<usize> = (0..n).collect();
    // What matches has nothing to do with what is near.
    random.shuffle(&mut order);
    let attribute = |i: usize| {
        format!(
            "{{\"n\":{i},\"tenth\":{},\"name\":\"label {}\",\"half\":{},\"thousandth\":{}}}",
            i % 10,
            i % 100,
            i % 2,
            i % 1000
        )
    };
    for (i, row) in base.iter().enumerate() {
        let attribute = attribute(order[i]);
        let ef = number("EF_CONSTRUCTION", 200);
        writer
            .add(format!("e{i}").as_bytes(), row, Some(attribute.as_bytes()), ef, &mut scratch)
            .expect("valid");
    }
    let reader = set.domain().register().expect("one reader");
    let guard = reader.pin();
    println!("{n} rows x {}, EF {ef}, {} bytes a row", params.dim, set.memory_bytes() / n);
    let mut unfiltered = Duration::MAX;
    for _ in 0..5 {
        let begin = thread_cpu_time();
        for query in &queries {
            let options = SearchOptions::new(10, ef);
            let hits = set.run(Query::Vector(query), options, &mut scratch, &guard).expect("valid");
            assert_eq!(hits.len(), 10);
        }
        unfiltered = unfiltered.min(thread_cpu_time() - begin);
    }
    drop(guard);
    let unfiltered = unfiltered.as_secs_f64() / queries.len() as f64;
    println!("{:20} {:8.1} us a query", "no filter", unfiltered * 1e6);
    let chosen = std::env::var("CASE").unwrap_or_default();
    for (name, expression) in CASES.iter().filter(|(name, _)| name.contains(&chosen)) {
        let filters: Vec<Filter> = (0..queries.len())
            .map(|i| Filter::compile(expression(i, n).as_bytes()).expect("sound"))
            .collect();
        let (mut spent, mut first) = (Duration::ZERO, Duration::ZERO);
        let mut answers = Vec::new();
        for (i, query) in queries.iter().enumerate() {
            for _ in 0..(i + 1) * writes / 100 - i * writes / 100 {
                let j = random.below(n);
                writer.set_attribute(format!("e{j}").as_bytes(), Some(attribute(order[j]).as_bytes()));
            }
            let guard = reader.pin();
            let options = SearchOptions::new(10, ef);
            let begin = thread_cpu_time();
            let hits = set.run_filtered(Query::Vector(query), options, &filters[i], &mut scratch, &guard);
            let took = thread_cpu_time() - begin;
            answers.push(hits.expect("valid").iter().map(|hit| hit.name.to_vec()).collect::<HashSet<_>>());
            // The first few make the list.
            *(if i < 4 { &mut first } else { &mut spent }) += took;
        }
        let (mut found, mut wanted) = (0, 0);
        let guard = reader.pin();
        for ((query, filter), answer) in queries.iter().zip(&filters).zip(&answers).take(100) {
            let options = SearchOptions { way: Way::Scan, ..SearchOptions::new(10, ef) };
            let truth = set.run_filtered(Query::Vector(query), options, filter, &mut scratch, &guard);
            let truth = truth.expect("valid");
            assert_eq!(answer.len(), truth.len(), "{name}");
            found += truth.iter().filter(|hit| answer.contains(hit.name)).count();
            wanted += truth.len();
        }
        let each = spent.as_secs_f64() / (queries.len() - 4) as f64;
        println!(
            "{name:20} {:8.1} us a query: {:5.2}x as many as without; the first 4 {:7.1} us; recall@10 {:.4}",
            each * 1e6,
            unfiltered / each,
            first.as_secs_f64() * 1e6 / 4.0,
            found as f64 / f64::from(wanted.max(1) as u32)
        );
    }
    println!("{} bytes a row with lists", set.memory_bytes() / n);
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a timespec and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
