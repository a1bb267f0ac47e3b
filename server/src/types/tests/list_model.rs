//! Lists against `VecDeque`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::list::{End, List, Side};
use super::{limits, owned};

#[derive(Clone, Debug)]
enum Step {
    Push(bool, Vec<Vec<u8>>),
    Pop(bool),
    Set(usize, Vec<u8>),
    Insert(bool, usize, Vec<u8>),
    Remove(bool, usize, usize),
    Trim(usize, usize),
    Range(usize, usize),
    Rotate(bool, bool),
    Rebuild,
    Clone,
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => any::<i64>().prop_map(|i| (i >> (i & 63)).to_string().into_bytes()),
        5 => (0..6_u8, prop_oneof![Just(0_usize), Just(1), Just(63), Just(64), Just(200), Just(1500)])
            .prop_map(|(letter, n)| vec![b'a' + letter; n]),
        1 => (0..2_u8, 4090..9000_usize).prop_map(|(letter, n)| vec![b'a' + letter; n]),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<usize>;
    prop_oneof![
        8 => (any::<bool>(), proptest::collection::vec(value(), 1..12)).prop_map(|(f, v)| Step::Push(f, v)),
        6 => any::<bool>().prop_map(Step::Pop),
        3 => (index(), value()).prop_map(|(i, v)| Step::Set(i, v)),
        4 => (any::<bool>(), index(), value()).prop_map(|(b, i, v)| Step::Insert(b, i, v)),
        2 => (any::<bool>(), index(), 1..4_usize).prop_map(|(b, i, n)| Step::Remove(b, i, n)),
        1 => (index(), index()).prop_map(|(a, b)| Step::Trim(a, b)),
        2 => (index(), index()).prop_map(|(a, b)| Step::Range(a, b)),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(from, to)| Step::Rotate(from, to)),
        1 => Just(Step::Rebuild),
        1 => Just(Step::Clone),
    ]
}

fn end(front: bool) -> End {
    if front { End::Front } else { End::Back }
}

fn apply(list: &mut List, model: &mut VecDeque<Vec<u8>>, step: Step, size: i32) {
    let mut limits = limits();
    limits.list_max_listpack_size = size;
    let len = model.len();
    match step {
        Step::Push(front, values) => {
            list.push(end(front), values.iter().map(Vec::as_slice), &limits);
            values.into_iter().for_each(|v| if front { model.push_front(v) } else { model.push_back(v) });
        }
        Step::Pop(front) => {
            let expected = if front { model.pop_front() } else { model.pop_back() };
            assert_eq!(owned(list.peek(end(front))), expected);
            assert_eq!(list.pop(end(front), &limits), expected.is_some());
        }
        Step::Set(index, value) => {
            let index = index % (len + 1);
            assert_eq!(list.set(index, &value, &limits), index < len);
            model.get_mut(index).into_iter().for_each(|old| *old = value.clone());
        }
        Step::Insert(before, pivot, value) => {
            let pivot = if len > 0 { model[pivot % len].clone() } else { b"none".to_vec() };
            let side = if before { Side::Before } else { Side::After };
            let at = model.iter().position(|v| *v == pivot);
            assert_eq!(list.insert(side, &pivot, &value, &limits), at.is_some());
            at.into_iter().for_each(|at| model.insert(at + usize::from(!before), value.clone()));
        }
        Step::Remove(front, index, max) => {
            let value = if len > 0 { model[index % len].clone() } else { b"none".to_vec() };
            let mut at: Vec<usize> = (0..len).filter(|&i| model[i] == value).collect();
            let found: Vec<usize> = list.positions(&value, len).collect();
            assert_eq!(found, at);
            let reversed: Vec<usize> = list.positions_rev(&value, len).collect();
            assert!(reversed.iter().rev().eq(&at));
            if !front {
                at.drain(..at.len().saturating_sub(max));
            }
            at.truncate(max);
            assert_eq!(list.remove(end(front), max, &value, &limits), at.len());
            at.iter().rev().for_each(|&i| _ = model.remove(i));
        }
        Step::Trim(a, b) => {
            let (a, b) = (a % (len + 2) / 2, len - (b % (len + 1)) / 2);
            list.trim(a..b, &limits);
            let kept = model.drain(..).enumerate().filter(|(i, _)| (a..b).contains(i)).map(|(_, v)| v);
            *model = kept.collect();
        }
        Step::Range(a, b) => {
            let (a, b) = (a % (len + 2), b % (len + 2));
            let expected: Vec<&Vec<u8>> = model.iter().take(b).skip(a).collect();
            let got: Vec<Vec<u8>> = list.range(a..b).map(|e| e.to_vec()).collect();
            assert!(got.iter().eq(expected.iter().copied()), "{a}..{b} of {len}");
            let got: Vec<Vec<u8>> = list.range_rev(a..b).map(|e| e.to_vec()).collect();
            assert!(got.iter().rev().eq(expected.iter().copied()), "{a}..{b} of {len}, reversed");
            assert_eq!(owned(list.get(a)).as_ref(), model.get(a));
        }
        Step::Rotate(from, to) => {
            list.rotate(end(from), end(to), &limits);
            let moved = if from { model.pop_front() } else { model.pop_back() };
            moved.into_iter().for_each(|v| if to { model.push_front(v) } else { model.push_back(v) });
        }
        Step::Rebuild => {
            let rebuilt = List::of(list.iter(), &limits);
            rebuilt.check();
            *list = rebuilt;
        }
        Step::Clone => {
            let copy = list.clone();
            assert!(copy == *list && copy.encoding() == list.encoding());
            *list = copy;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_list_is_a_deque(
        size in prop_oneof![Just(-2), Just(-1), Just(1), Just(5), Just(-5)],
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut list = List::new();
        let mut model = VecDeque::new();
        for step in steps {
            apply(&mut list, &mut model, step, size);
            list.check();
            prop_assert_eq!(list.len(), model.len());
            prop_assert!(list.iter().map(|e| e.to_vec()).eq(model.iter().cloned()));
        }
        let mut n_slices = 0;
        while !list.free_slice(2) {
            n_slices += 1;
        }
        prop_assert!(list.is_empty() && n_slices <= model.len());
    }
}

/// Pushing at both ends in turn must not move the whole buffer each time.
#[test]
fn a_queue_at_both_ends_stays_cheap() {
    let limits = limits();
    let mut list = List::new();
    let mut model = VecDeque::new();
    for i in 0..200_000_u32 {
        let value = i.to_string().into_bytes();
        if i % 2 == 0 {
            list.push_front(&value, &limits);
            model.push_front(value);
        } else {
            list.push_back(&value, &limits);
            model.push_back(value);
        }
        if i % 3 == 0 {
            assert_eq!(owned(list.back()), model.pop_back());
            list.pop_back(&limits);
        }
    }
    list.check();
    assert!(list.iter().map(|e| e.to_vec()).eq(model));
}

/// What a burst took comes back when a queue is drained to a few elements.
#[test]
fn a_drained_queue_gives_its_memory_back() {
    let limits = limits();
    let mut list = List::new();
    let value = [b'x'; 3000];
    (0..20_000).for_each(|_| list.push_back(&value, &limits));
    let full = list.memory_bytes();
    while list.len() > 20 {
        assert!(list.pop_front(&limits));
    }
    list.check();
    assert!(list.memory_bytes() < 100_000, "{full} before, {} now", list.memory_bytes());
}
