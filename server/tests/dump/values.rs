//! Random values of every type, with elements at the bounds of the encodings.

use super::support::rng::Rng;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Fields, values and deadlines in Unix milliseconds (0: none), first due first, those without last.
    Timed(Vec<(Vec<u8>, Vec<u8>, i64)>),
    /// In order, scores as the text that the other servers get.
    Zset(Vec<(Vec<u8>, f64)>),
}

pub(crate) fn integer(rng: &mut Rng) -> i64 {
    match rng.below(6) {
        0 => rng.within(-3, 15),
        1 => rng.within(-130, 260),
        2 => rng.within(-4100, 4100),
        3 => *rng.pick(&[i64::MIN, i64::MAX, 32767, -32769, 8_388_607, -8_388_609, 2_147_483_648]),
        _ => (rng.next() as i64) >> rng.below(64),
    }
}

pub(crate) fn element(rng: &mut Rng) -> Vec<u8> {
    match rng.below(14) {
        0..4 => integer(rng).to_string().into_bytes(),
        4 => rng.pick(&["", "007", "-0", "+1", " 1", "1.5", "9223372036854775808"]).as_bytes().to_vec(),
        5..9 => format!("element:{}", rng.below(1000)).into_bytes(),
        9 => vec![b'a' + rng.below(3) as u8; rng.within(15, 300) as usize],
        10 => vec![b'b'; rng.within(60, 68) as usize],
        _ => {
            let n = rng.below(40);
            (0..n).map(|_| rng.next() as u8).collect()
        }
    }
}

/// One that no packed buffer takes in, or that fills a list's node.
pub(crate) fn long_element(rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => (0..rng.within(4000, 4200)).map(|_| rng.next() as u8).collect(),
        1 => b"0123456789".repeat(rng.within(400, 900) as usize),
        _ => vec![b'z'; rng.within(65, 200) as usize],
    }
}

pub(crate) fn score(rng: &mut Rng) -> f64 {
    match rng.below(8) {
        0 => *rng.pick(&[f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e300, -5e-324, 1e17, 4e18, 5e18]),
        1 => integer(rng) as f64,
        2 => integer(rng) as f64 / 1000.0,
        3 => f64::from_bits(rng.next()),
        _ => rng.within(-20, 20) as f64,
    }
}

fn distinct(rng: &mut Rng, n: usize, element: impl Fn(&mut Rng) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let all = std::iter::repeat_with(|| element(rng)).take(n).filter(|e| seen.insert(e.clone()));
    all.collect()
}

pub(crate) fn list(rng: &mut Rng, n: usize) -> Value {
    Value::List((0..n).map(|_| element(rng)).collect())
}

pub(crate) fn set(rng: &mut Rng, n: usize) -> Value {
    Value::Set(distinct(rng, n, element))
}

pub(crate) fn integers(rng: &mut Rng, n: usize) -> Value {
    let bits = *rng.pick(&[8, 20, 60]);
    Value::Set(distinct(rng, n, |rng| (integer(rng) >> (63 - bits)).to_string().into_bytes()))
}

pub(crate) fn hash(rng: &mut Rng, n: usize) -> Value {
    let fields = distinct(rng, n, element);
    Value::Hash(fields.into_iter().map(|field| (field, element(rng))).collect())
}

pub(crate) fn timed(rng: &mut Rng, n: usize) -> Value {
    let fields = distinct(rng, n, element);
    let mut fields: Vec<_> = fields.into_iter().map(|field| (field, element(rng), deadline(rng))).collect();
    fields.sort_by_key(|(_, _, deadline_ms)| if *deadline_ms == 0 { i64::MAX } else { *deadline_ms });
    Value::Timed(fields)
}

/// In thousands of years, or none.
fn deadline(rng: &mut Rng) -> i64 {
    match rng.below(8) {
        0 | 1 => 0,
        2 => (1 << 46) - 1,
        3 => 60_000_000_000_000 + rng.within(0, 3),
        _ => 40_000_000_000_000 + (rng.next() >> rng.within(20, 60)) as i64,
    }
}

pub(crate) fn zset(rng: &mut Rng, n: usize) -> Value {
    let members = distinct(rng, n, element);
    let not_nan = |score: f64| if score.is_nan() { 1.5 } else { score };
    let mut scored: Vec<_> = members.into_iter().map(|m| (m, not_nan(score(rng)))).collect();
    scored.sort_by(|(a, x), (b, y)| x.partial_cmp(y).expect("no NaN").then_with(|| a.cmp(b)));
    Value::Zset(scored)
}
