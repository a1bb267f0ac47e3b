//! What producers have sent, against a list of all that was ever sent.

use proptest::prelude::*;

use super::super::stream::{Idempotence, IdempotenceLimits, StreamId};

#[derive(Clone, Debug)]
enum Step {
    Send { producer: u8, id: u8 },
    Wait(u16),
    Sweep,
    Limits(u32, u32),
    Clone,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0..4_u8, 0..12_u8).prop_map(|(producer, id)| Step::Send { producer, id }),
        6 => (0..1500_u16).prop_map(Step::Wait),
        2 => Just(Step::Sweep),
        1 => (1..4_u32, 1..9_u32).prop_map(|(duration_s, max_ids)| Step::Limits(duration_s, max_ids)),
        1 => Just(Step::Clone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_message_is_known_while_it_is_young_and_among_the_last(steps in proptest::collection::vec(step(), 1..250)) {
        let mut limits = IdempotenceLimits { duration_s: 2, max_ids: 5 };
        let mut idempotence = Idempotence::new(limits, 7);
        // Producer, ID, when, and the entry: in the order in which they were sent.
        let mut sent: Vec<(u8, u8, i64, StreamId)> = Vec::new();
        let (mut now_ms, mut n_added, mut n_duplicates) = (0_i64, 0, 0);
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send { producer, id } => {
                    let is_young = |at_ms: i64| now_ms - at_ms < i64::from(limits.duration_s) * 1000;
                    let of_producer = sent.iter().rev().filter(|of| of.0 == producer);
                    let mut last = of_producer.take(limits.max_ids as usize);
                    let known = last.find(|of| of.1 == id && is_young(of.2)).map(|of| of.3);
                    prop_assert_eq!(idempotence.find(&[producer], &[id], now_ms), known);
                    match known {
                        Some(_) => n_duplicates += 1,
                        None => {
                            let entry = StreamId::new(n as u64, 1);
                            idempotence.add(&[producer], &[id], entry, now_ms);
                            sent.push((producer, id, now_ms, entry));
                            n_added += 1;
                        }
                    }
                }
                Step::Wait(ms) => now_ms += i64::from(ms),
                Step::Sweep => idempotence.sweep(now_ms),
                Step::Limits(duration_s, max_ids) => {
                    let new = IdempotenceLimits { duration_s, max_ids };
                    let mut forgotten = idempotence.set_limits(new);
                    if new != limits {
                        sent.clear();
                    }
                    while !forgotten.free_slice(2) {}
                    limits = new;
                }
                Step::Clone => idempotence = idempotence.clone(),
            }
            idempotence.check();
            prop_assert_eq!((idempotence.n_added(), idempotence.n_duplicates()), (n_added, n_duplicates));
            let tracked = |producer: u8| {
                let of_producer = sent.iter().rev().filter(|of| of.0 == producer).take(limits.max_ids as usize);
                of_producer.filter(|of| now_ms - of.2 < i64::from(limits.duration_s) * 1000).count()
            };
            let counts: Vec<usize> = (0..4).map(tracked).filter(|n| *n > 0).collect();
            prop_assert_eq!(idempotence.n_tracked(now_ms), (counts.len(), counts.iter().sum()));
        }
        while !idempotence.free_slice(3) {}
        prop_assert_eq!(idempotence.n_tracked(now_ms), (0, 0));
    }
}

#[test]
fn content_is_told_apart_but_for_the_order_of_its_fields() {
    let idempotence = Idempotence::new(IdempotenceLimits { duration_s: 1, max_ids: 1 }, 99);
    let id_of = |pairs: &[(&str, &str)]| {
        idempotence.id_of_content(pairs.iter().map(|(field, value)| (field.as_bytes(), value.as_bytes())))
    };
    assert_eq!(id_of(&[("a", "1"), ("b", "2")]), id_of(&[("b", "2"), ("a", "1")]));
    let different: [&[(&str, &str)]; 6] = [
        &[("a", "1"), ("b", "2")],
        &[("a", "2"), ("b", "1")],
        &[("a", "1"), ("a", "1")],
        &[("a", "11")],
        &[("a1", "1")],
        &[],
    ];
    let ids: std::collections::BTreeSet<_> = different.iter().map(|pairs| id_of(pairs)).collect();
    assert_eq!(ids.len(), different.len());
}
