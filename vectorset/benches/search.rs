//! How fast is a search at which recall, and how fast a load? Prints CPU time of this thread.
//!
//! Without arguments it runs on the slice in `testdata`. `BASE=base.npy QUERIES=queries.npy N=20000` (float16
//! rows) takes other data; `M` and `EF_CONSTRUCTION` default to 16 and 200. Recall@10 is checked against the
//! exact scan.

#[path = "../tests/vectors/mod.rs"]
mod vectors;

use std::collections::HashSet;
use std::time::Duration;

use skerry_vectorset::{
    CodeWidth, Layer0, Metric, Params, Quantization, Query, SearchScratch, VectorSet, check, epoch::Domain,
    kernel_name,
};

fn main() {
    let number = |name: &str, default: usize| {
        std::env::var(name).map_or(default, |value| value.parse().expect("a whole number"))
    };
    let (base, queries) = match (std::env::var("BASE"), std::env::var("QUERIES")) {
        (Ok(base), Ok(queries)) => {
            let n = number("N", 20_000);
            (vectors::npy_f16(&base.into(), n), vectors::npy_f16(&queries.into(), usize::MAX / (1 << 20)))
        }
        _ => vectors::text384(),
    };
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let params = Params {
        quantization: match text("QUANTIZATION").as_str() {
            "Q8" => Quantization::Q8,
            "BIN" => Quantization::Bin,
            _ => Quantization::None,
        },
        metric: match text("METRIC").as_str() {
            "L2" => Metric::L2,
            "IP" => Metric::Ip,
            _ => Metric::Cosine,
        },
        layer0: if text("LAYER0") == "1" { Layer0::OneM } else { Layer0::TwoM },
        codes: match text("CODES").as_str() {
            "0" => CodeWidth::Off,
            "2" => CodeWidth::Bits2,
            "4" => CodeWidth::Bits4,
            "8" => CodeWidth::Bits8,
            _ => CodeWidth::Auto,
        },
        ..Params::new(base[0].len() as u32, number("M", 16) as u32, 1)
    };
    let (set, mut writer) = VectorSet::create(params, Domain::new(1));
    let mut scratch = SearchScratch::new();
    let begin = thread_cpu_time();
    for (i, row) in base.iter().enumerate() {
        let ef = number("EF_CONSTRUCTION", 200);
        writer.add(format!("e{i}").as_bytes(), row, None, ef, &mut scratch).expect("rows are valid");
    }
    let load = thread_cpu_time() - begin;
    let reader = set.domain().register().expect("one reader");
    let guard = reader.pin();
    let report = check::check(&set, &guard).expect("the graph is sound");
    println!("{} rows x {}, {params:?}, kernel {}", base.len(), params.dim, kernel_name());
    println!(
        "load {:.2} s, {:.0} us a row, {} bytes a row",
        load.as_secs_f64(),
        per(load, base.len()),
        set.memory_bytes() / base.len()
    );
    println!("{report:?}");
    let truth: Vec<HashSet<Vec<u8>>> = queries
        .iter()
        .map(|query| {
            let hits = set.search_exact(Query::Vector(query), 10, &mut scratch, &guard).expect("valid");
            hits.iter().map(|hit| hit.name.to_vec()).collect()
        })
        .collect();
    let rounds = number("ROUNDS", 3);
    let efs = std::env::var("EFS").unwrap_or("20,40,80,150,300,500".into());
    for ef in efs.split(',').map(|ef| ef.parse().expect("a whole number")) {
        let mut found = 0;
        let mut best = Duration::MAX;
        for _ in 0..rounds {
            found = 0;
            let begin = thread_cpu_time();
            for (query, truth) in queries.iter().zip(&truth) {
                let hits = set.search(Query::Vector(query), 10, ef, &mut scratch, &guard).expect("valid");
                found += hits.iter().filter(|hit| truth.contains(hit.name)).count();
            }
            best = best.min(thread_cpu_time() - begin);
        }
        let recall = found as f64 / (10 * queries.len()) as f64;
        println!("EF {ef:4}: recall@10 {recall:.4}, {:7.1} us a query", per(best, queries.len()));
    }
    drop(guard);
    let begin = thread_cpu_time();
    for i in (0..base.len()).step_by(2) {
        assert!(writer.remove(format!("e{i}").as_bytes(), &mut scratch));
    }
    let removal = thread_cpu_time() - begin;
    let guard = reader.pin();
    let mut found = 0;
    for query in &queries {
        let truth = set.search_exact(Query::Vector(query), 10, &mut scratch, &guard).expect("valid");
        let truth: HashSet<Vec<u8>> = truth.iter().map(|hit| hit.name.to_vec()).collect();
        let hits = set.search(Query::Vector(query), 10, 80, &mut scratch, &guard).expect("valid");
        found += hits.iter().filter(|hit| truth.contains(hit.name)).count();
    }
    println!(
        "removed half, {:.0} us each; EF 80: recall@10 {:.4}",
        per(removal, base.len() / 2),
        found as f64 / (10 * queries.len()) as f64
    );
    println!("{:?}", check::check(&set, &guard).expect("the graph is sound"));
}

fn per(time: Duration, n: usize) -> f64 {
    time.as_secs_f64() * 1e6 / n as f64
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a timespec and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
