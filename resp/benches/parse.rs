//! What does one request cost to parse, and one reply to write, in nanoseconds?
//!
//! Pipelines of 30 requests in one buffer, as a server's read gives them, parsed over and over; the answers are
//! checked first, and each round's sum is checked too. One thread, no I/O; figures are the best of several rounds,
//! machine noise left out. Keys and values are fixed (no randomness, no seed). Run: `cargo bench -p skerry-resp`.

use skerry_resp::number::FloatText;
use skerry_resp::{ArgRange, Limits, Parsed, Parser, Proto, Reply, Scan};
use skerry_resp::{encode_command, format_f64, parse_f64};
use std::hint::black_box;
use std::time::Instant;

const PIPELINE: usize = 30;
const ROUNDS: usize = 15;
const PIPELINES_PER_ROUND: usize = 20_000;

fn main() {
    println!("{:<34}{:>10}", "parse, per request", "ns");
    let value = "v".repeat(256);
    parse_row("PING", |_| vec!["PING".into()]);
    parse_row("GET memtier-1234567", |i| vec!["GET".into(), format!("memtier-{}", 1_234_567 + i)]);
    parse_row("SET memtier-1234567 <256 B>", |i| {
        vec!["SET".into(), format!("memtier-{}", 1_234_567 + i), value.clone()]
    });
    parse_row("SET, key and value of mixed length", |i| {
        vec!["SET".into(), "k".repeat(1 + i * 7 % 40), "v".repeat(1 + i * 389 % 1500)]
    });
    parse_row("MSET of 10, 256 B each", |i| {
        let pairs = (0..10).flat_map(|j| [format!("memtier-{}", 1_234_567 + i * 10 + j), value.clone()]);
        std::iter::once("MSET".into()).chain(pairs).collect()
    });

    println!("{:<34}{:>10}", "\nwrite, per reply", "ns");
    reply_row("+OK", 5, |reply, _| reply.ok());
    reply_row("integer below 1000", 6, |reply, i| reply.integer(100 + i as i64));
    reply_row("integer of 10 digits", 13, |reply, i| reply.integer(1_234_567_890 + i as i64));
    reply_row("bulk of 256 B", 264, |reply, _| reply.bulk(value.as_bytes()));
    reply_row("bulk of 16 B", 23, |reply, _| reply.bulk(&value.as_bytes()[..16]));
    reply_row("null", 5, |reply, _| reply.null());
    reply_row("array of 10 bulks of 256 B", 5 + 2640, |reply, _| {
        reply.array(10);
        (0..10).for_each(|_| reply.bulk(value.as_bytes()));
    });

    println!("{:<34}{:>10}", "\nscan as a client, per reply", "ns");
    scan_row("+OK", |reply| reply.ok());
    scan_row("bulk of 256 B", |reply| reply.bulk(value.as_bytes()));
    scan_row("array of 10 bulks", |reply| {
        reply.array(10);
        (0..10).for_each(|_| reply.bulk(b"0123456789abcdef"));
    });

    println!("{:<34}{:>10}", "\nnumbers, each", "ns");
    let score = 0.123_456_789;
    assert_eq!(format_f64(score, &mut FloatText::new()), b"0.123456789");
    row("format_f64(0.123456789)", 30, || format_f64(black_box(score), &mut FloatText::new()).len());
    assert_eq!(parse_f64(b"0.123456789"), Some(score));
    row("parse_f64(0.123456789)", 30, || usize::from(parse_f64(black_box(b"0.123456789")).is_some()));
    let a = skerry_resp::LongDouble::parse(b"128").unwrap();
    row("128 + 0.1 as INCRBYFLOAT", 30, || {
        let b = skerry_resp::LongDouble::parse(black_box(b"0.1")).unwrap();
        let mut out = Vec::with_capacity(32);
        (a + b).push_text(&mut out);
        assert_eq!(out, b"128.10000000000000001");
        out.len()
    });
}

fn parse_row(name: &str, args_of: impl Fn(usize) -> Vec<String>) {
    let mut buf = Vec::new();
    (0..PIPELINE).for_each(|i| encode_command(&args_of(i), &mut buf));
    let mut parser = Parser::new();
    let limits = Limits::default();
    let mut args: Vec<ArgRange> = Vec::new();
    let mut pos = 0;
    for i in 0..PIPELINE {
        args.clear();
        let Ok(Parsed::Request { end, argc }) = parser.parse(&buf, pos, &mut args, &limits) else {
            panic!("request {i} of {name} was not parsed");
        };
        let texts: Vec<&[u8]> = args.iter().map(|arg| arg.of(&buf)).collect();
        assert!(texts.iter().copied().eq(args_of(i).iter().map(String::as_bytes)));
        assert_eq!(argc, args.len());
        pos = end;
    }
    assert_eq!(pos, buf.len());
    row(name, buf.len(), || {
        let buf = black_box(&buf[..]);
        let mut pos = 0;
        for _ in 0..PIPELINE {
            args.clear();
            match parser.parse(buf, pos, &mut args, &limits) {
                Ok(Parsed::Request { end, .. }) => pos = end,
                other => panic!("{other:?}"),
            }
            black_box(&args);
        }
        pos
    });
}

fn reply_row(name: &str, len: usize, write: impl Fn(&mut Reply<'_>, usize)) {
    let mut out = Vec::new();
    row(name, len * PIPELINE, || {
        out.clear();
        for i in 0..PIPELINE {
            write(&mut Reply::new(&mut out, Proto::Resp2), i);
        }
        black_box(&out).len()
    });
}

fn scan_row(name: &str, write: impl Fn(&mut Reply<'_>)) {
    let mut buf = Vec::new();
    (0..PIPELINE).for_each(|_| write(&mut Reply::new(&mut buf, Proto::Resp2)));
    let mut scan = Scan::new();
    row(name, buf.len(), || {
        let buf = black_box(&buf[..]);
        let mut pos = 0;
        for _ in 0..PIPELINE {
            match scan.next(buf, pos) {
                Ok(Some(scanned)) if !scanned.is_error() => pos = scanned.end,
                other => panic!("{other:?}"),
            }
        }
        pos
    });
}

/// Prints the best time of one of `PIPELINE` steps. `step` makes them all, or one that is repeated here when its
/// answer is not a whole pipeline's; its answer must be `expected` each time, or 1 to 30 for a single number.
fn row(name: &str, expected: usize, mut step: impl FnMut() -> usize) {
    let is_single = expected == PIPELINE;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PIPELINES_PER_ROUND {
            if is_single {
                for _ in 0..PIPELINE {
                    assert!(step() > 0);
                }
            } else {
                assert_eq!(step(), expected);
            }
        }
        let steps = (PIPELINES_PER_ROUND * PIPELINE) as f64;
        best = best.min(start.elapsed().as_nanos() as f64 / steps);
    }
    println!("{name:<36}{best:>8.1}");
}
