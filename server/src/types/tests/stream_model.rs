//! Streams and their groups against std's maps, the sorted chunks against a `BTreeMap`, and the size of Redis's radix tree
//! against a tree of prefixes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::stream::{
    Acknowledging, Consumer, Delivery, Group, History, Nack, NodeLimits, READS_UNKNOWN, References, Sorted,
    Stream, StreamId, Threshold, Trim,
};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
struct ModelGroup {
    last_id: StreamId,
    consumers: BTreeSet<Vec<u8>>,
    /// Released entries, the first released first.
    released: Vec<StreamId>,
    /// When, how often, and to whom.
    pending: BTreeMap<StreamId, (i64, u64, Vec<u8>)>,
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<StreamId, Pairs>,
    last_id: StreamId,
    max_deleted_id: StreamId,
    n_added: u64,
    groups: BTreeMap<Vec<u8>, ModelGroup>,
}

#[derive(Clone, Debug)]
enum Step {
    Append { ms: u64, seq: u64, fields: u8, n: u8 },
    Delete(usize),
    DeleteReferences(usize),
    Trim { threshold: (bool, usize), is_approximate: bool, limit: u64, references: u8 },
    Range(usize, usize),
    Group(u8),
    RemoveGroup(u8),
    Deliver { group: u8, consumer: u8, count: usize, is_acknowledged: bool },
    Acknowledge(u8, usize),
    Claim(u8, usize, u8, u64),
    Release(u8, usize, u64),
    RemoveConsumer(u8, u8),
    Clone,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..3_u64, 0..4_u64, 0..4_u8, 1..12_u8).prop_map(|(ms, seq, fields, n)| Step::Append { ms, seq, fields, n }),
        4 => any::<usize>().prop_map(Step::Delete),
        2 => any::<usize>().prop_map(Step::DeleteReferences),
        2 => ((any::<bool>(), any::<usize>()), any::<bool>(), prop_oneof![Just(0), 1..30_u64], 0..3_u8).prop_map(
            |(threshold, is_approximate, limit, references)| Step::Trim { threshold, is_approximate, limit, references }
        ),
        3 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::Range(a, b)),
        2 => (0..3_u8).prop_map(Step::Group),
        1 => (0..3_u8).prop_map(Step::RemoveGroup),
        6 => (0..3_u8, 0..3_u8, 1..40_usize, any::<bool>()).prop_map(|(group, consumer, count, is_acknowledged)| {
            Step::Deliver { group, consumer, count, is_acknowledged }
        }),
        5 => (0..3_u8, any::<usize>()).prop_map(|(group, n)| Step::Acknowledge(group, n)),
        3 => (0..3_u8, any::<usize>(), 0..3_u8, any::<u64>()).prop_map(|(g, n, c, m)| Step::Claim(g, n, c, m)),
        3 => (0..3_u8, any::<usize>(), any::<u64>()).prop_map(|(g, n, m)| Step::Release(g, n, m)),
        1 => (0..3_u8, 0..3_u8).prop_map(|(group, consumer)| Step::RemoveConsumer(group, consumer)),
        1 => Just(Step::Clone),
    ]
}

fn name(of: u8) -> Vec<u8> {
    vec![b'a' + of; 1 + usize::from(of)]
}

/// The kinds of entries differ in fields and in the encodings of values.
fn pairs_of(kind: u8, id: StreamId) -> Pairs {
    let value = |text: &str| text.as_bytes().to_vec();
    match kind {
        0 => vec![(b"f".to_vec(), value(&id.ms.to_string()))],
        1 => vec![(b"f".to_vec(), value("long ").repeat(20)), (b"12".to_vec(), value("-70000"))],
        2 => vec![(b"f".to_vec(), value("")), (b"g".to_vec(), value("9223372036854775807"))],
        _ => vec![(b"".to_vec(), value("007")); 3],
    }
}

impl Model {
    fn is_referenced(&self, id: StreamId) -> bool {
        self.groups.values().any(|group| group.last_id < id || group.pending.contains_key(&id))
    }

    fn ids(&self) -> Vec<StreamId> {
        self.entries.keys().copied().collect()
    }

    /// What an exact trim takes.
    fn trimmed(&self, threshold: Threshold, references: References) -> Vec<StreamId> {
        let mut gone = Vec::new();
        for id in self.entries.keys() {
            match threshold {
                Threshold::MaxLen(max) if (self.entries.len() - gone.len()) as u64 <= max => break,
                Threshold::MinId(min) if *id >= min => break,
                Threshold::MaxLen(_) | Threshold::MinId(_) => {}
            }
            if references != References::Respect || !self.is_referenced(*id) {
                gone.push(*id);
            }
        }
        gone
    }
}

fn shown(stream: &Stream, start: StreamId, end: StreamId) -> Vec<(StreamId, Pairs)> {
    let read = |entry: super::super::stream::Entry<'_>| {
        let mut pairs = Vec::new();
        entry.for_each_field(|field, value| pairs.push((field.to_vec(), value.to_vec())));
        (entry.id, pairs)
    };
    let forward: Vec<_> = stream.range(start, end).map(read).collect();
    let mut backward: Vec<_> = stream.range_backward(start, end).map(read).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

fn trim(stream: &mut Stream, model: &mut Model, trim: &Trim) {
    let gone = model.trimmed(trim.threshold, trim.references);
    let mut garbage = Vec::new();
    let n = stream.trim(trim, &mut garbage) as usize;
    if trim.limit > 0 {
        assert!(n as u64 <= trim.limit);
    }
    let gone = if trim.is_approximate || trim.limit > 0 || trim.references == References::Respect {
        // Whole nodes, or what Redis looks at: some of what might go, the first of it.
        assert!(n <= gone.len());
        &gone[..n]
    } else {
        assert_eq!(n, gone.len());
        &gone[..]
    };
    for id in gone {
        model.entries.remove(id);
        if trim.references == References::Delete {
            model.groups.values_mut().for_each(|group| drop(group.pending.remove(id)));
        }
    }
    Stream::of_garbage(garbage).free_slice(usize::MAX);
}

fn apply(stream: &mut Stream, model: &mut Model, step: Step, limits: NodeLimits, now_ms: i64) {
    let ids = model.ids();
    let nth = |n: usize| ids.get(n % ids.len().max(1)).copied().unwrap_or(StreamId::new(3, 3));
    match step {
        Step::Append { ms, seq, fields, n } => {
            for _ in 0..n {
                let last = model.last_id;
                let id = if ms > 0 {
                    StreamId::new(last.ms + ms, seq)
                } else {
                    StreamId::new(last.ms, last.seq + 1 + seq)
                };
                let pairs = pairs_of(fields, id);
                stream.append(id, pairs.iter().map(|(field, value)| (&field[..], &value[..])), limits);
                model.entries.insert(id, pairs);
                model.last_id = id;
                model.n_added += 1;
            }
        }
        Step::Delete(n) => {
            let id = nth(n);
            assert_eq!(stream.delete_for_good(id), model.entries.remove(&id).is_some());
            if ids.contains(&id) {
                model.max_deleted_id = model.max_deleted_id.max(id);
            }
        }
        Step::DeleteReferences(n) => {
            let id = nth(n);
            assert_eq!(stream.is_referenced(id), model.is_referenced(id));
            stream.remove_references(id);
            model.groups.values_mut().for_each(|group| drop(group.pending.remove(&id)));
        }
        Step::Trim { threshold: (is_by_len, n), is_approximate, limit, references } => {
            let threshold = match is_by_len {
                true => Threshold::MaxLen((n % (ids.len() + 1)) as u64),
                false => Threshold::MinId(nth(n)),
            };
            let references =
                [References::Keep, References::Delete, References::Respect][usize::from(references)];
            trim(stream, model, &Trim { threshold, is_approximate, limit, references });
        }
        Step::Range(a, b) => {
            let (start, end) = (nth(a), nth(b));
            let of_model: Vec<_> = if start <= end {
                model.entries.range(start..=end).map(|(id, pairs)| (*id, pairs.clone())).collect()
            } else {
                Vec::new()
            };
            assert_eq!(shown(stream, start, end), of_model);
            let found = stream.find(start).map(|entry| entry.id);
            assert_eq!(found, model.entries.contains_key(&start).then_some(start));
        }
        Step::Clone => *stream = stream.clone(),
        step => apply_to_group(stream, model, step, now_ms),
    }
}

fn apply_to_group(stream: &mut Stream, model: &mut Model, step: Step, now_ms: i64) {
    match step {
        Step::Group(g) => {
            if stream.group(&name(g)).is_none() {
                stream.add_group(&name(g), Group::new(StreamId::MIN, READS_UNKNOWN));
                model.groups.insert(name(g), ModelGroup::default());
            }
        }
        Step::RemoveGroup(g) => {
            let removed = stream.remove_group(&name(g));
            assert_eq!(removed.is_some(), model.groups.remove(&name(g)).is_some());
            if let Some(group) = removed {
                let mut rest = Stream::of_group(group);
                while !rest.free_slice(3) {}
            }
        }
        Step::Deliver { group, consumer, count, is_acknowledged } => {
            let Some(of_model) = model.groups.get_mut(&name(group)) else { return };
            let of_stream = stream.group_mut(&name(group)).expect("there is a group");
            let slot = match of_stream.find_consumer(&name(consumer)) {
                Some(slot) => slot,
                None => of_stream.add_consumer(Consumer::new(&name(consumer), now_ms)),
            };
            of_model.consumers.insert(name(consumer));
            let acknowledging = if is_acknowledged { Acknowledging::Needed } else { Acknowledging::Spared };
            let mut ids = Vec::new();
            let n = stream.deliver(&name(group), slot, Delivery { count, acknowledging, now_ms }, |entry| {
                ids.push(entry.id);
                true
            });
            let after = (std::ops::Bound::Excluded(of_model.last_id), std::ops::Bound::Unbounded);
            let wanted: Vec<StreamId> = model.entries.range(after).map(|(id, _)| *id).take(count).collect();
            assert_eq!((n, &ids), (wanted.len(), &wanted));
            for id in wanted {
                of_model.last_id = id;
                if is_acknowledged {
                    of_model.pending.insert(id, (now_ms, 1, name(consumer)));
                }
            }
        }
        Step::Acknowledge(group, n) => {
            let Some(of_model) = model.groups.get_mut(&name(group)) else { return };
            let ids: Vec<StreamId> = of_model.pending.keys().copied().collect();
            let id = ids.get(n % (ids.len() + 1)).copied().unwrap_or(StreamId::new(1, 99));
            let removed = stream.group_mut(&name(group)).and_then(|group| group.remove_pending(id));
            assert_eq!(removed.is_some(), of_model.pending.remove(&id).is_some());
        }
        Step::Claim(group, n, consumer, n_deliveries) => {
            let Some(of_model) = model.groups.get_mut(&name(group)) else { return };
            let of_stream = stream.group_mut(&name(group)).expect("there is a group");
            let Some(slot) = of_stream.find_consumer(&name(consumer)) else { return };
            let id = model.entries.keys().nth(n % model.entries.len().max(1)).copied();
            let Some(id) = id else { return };
            of_stream.set_pending(Nack { id, delivered_ms: now_ms, n_deliveries, consumer: slot });
            of_model.pending.insert(id, (now_ms, n_deliveries, name(consumer)));
        }
        Step::Release(group, n, n_deliveries) => {
            let Some(of_model) = model.groups.get_mut(&name(group)) else { return };
            let of_stream = stream.group_mut(&name(group)).expect("there is a group");
            let id = model.entries.keys().nth(n % model.entries.len().max(1)).copied();
            let Some(id) = id else { return };
            of_stream.release(id, n_deliveries);
            of_model.pending.insert(id, (0, n_deliveries, Vec::new()));
            of_model.released.retain(|released| *released != id);
            of_model.released.push(id);
        }
        Step::RemoveConsumer(group, consumer) => {
            let Some(of_model) = model.groups.get_mut(&name(group)) else { return };
            let of_stream = stream.group_mut(&name(group)).expect("there is a group");
            let Some(slot) = of_stream.find_consumer(&name(consumer)) else { return };
            let n_before = of_model.pending.len();
            of_model.pending.retain(|_, (_, _, owner)| *owner != name(consumer));
            of_model.consumers.remove(&name(consumer));
            assert_eq!(of_stream.remove_consumer(slot).len(), n_before - of_model.pending.len());
        }
        step => unreachable!("{step:?} is no step of a group"),
    }
}

fn check(stream: &Stream, model: &Model) {
    stream.check();
    let expected = History {
        length: model.entries.len() as u64,
        entries_added: model.n_added,
        first_id: model.entries.keys().next().copied().unwrap_or_default(),
        last_id: model.last_id,
        max_deleted_id: model.max_deleted_id,
    };
    assert_eq!(stream.history, expected);
    let names: Vec<&[u8]> = stream.groups().keys().map(|name| &**name).collect();
    assert_eq!(names, model.groups.keys().map(|name| &name[..]).collect::<Vec<_>>());
    for (name, of_model) in &model.groups {
        let group = stream.group(name).expect("there is a group");
        let pending: Vec<_> = group
            .pending()
            .iter()
            .map(|nack| {
                let consumer = group.name_of(nack.consumer).to_vec();
                (nack.id, (nack.told_ms(), nack.n_deliveries, consumer))
            })
            .collect();
        assert_eq!(pending, of_model.pending.clone().into_iter().collect::<Vec<_>>());
        let is_released =
            |id: &StreamId| of_model.pending.get(id).is_some_and(|(_, _, owner)| owner.is_empty());
        let mut released: Vec<&Nack> = group.pending().iter().filter(|nack| nack.is_released()).collect();
        assert_eq!(group.n_released(), released.len());
        released.sort_by_key(|nack| nack.delivered_ms);
        let in_turn: Vec<StreamId> = of_model.released.iter().copied().filter(is_released).collect();
        assert_eq!(released.iter().map(|nack| nack.id).collect::<Vec<_>>(), in_turn);
        assert_eq!(group.last_id, of_model.last_id);
        let consumers: Vec<Vec<u8>> = group.consumers().map(|consumer| consumer.name.to_vec()).collect();
        assert_eq!(consumers, of_model.consumers.iter().cloned().collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_is_a_map_and_its_groups_are_maps(
        steps in proptest::collection::vec(step(), 1..120),
        stream_node_max_bytes in prop_oneof![Just(0_usize), Just(4096), 40..300_usize],
        stream_node_max_entries in prop_oneof![Just(0_u64), Just(100), 1..10_u64],
    ) {
        let limits = NodeLimits { stream_node_max_bytes, stream_node_max_entries };
        let (mut stream, mut model) = (Stream::default(), Model::default());
        for (n, step) in steps.into_iter().enumerate() {
            apply(&mut stream, &mut model, step, limits, n as i64);
            check(&stream, &model);
        }
        let all: Vec<_> = model.entries.iter().map(|(id, pairs)| (*id, pairs.clone())).collect();
        prop_assert_eq!(shown(&stream, StreamId::MIN, StreamId::MAX), all);
        while !stream.free_slice(5) {}
        prop_assert!(stream.nodes().is_empty() && stream.groups().is_empty());
    }

    #[test]
    fn sorted_chunks_are_a_map(steps in proptest::collection::vec((0..4_u8, 0..600_u64), 1..900)) {
        let (mut sorted, mut model) = (Sorted::<StreamId>::default(), BTreeSet::new());
        for (n, (kind, number)) in steps.into_iter().enumerate() {
            let id = StreamId::new(number, 0);
            match kind {
                0 | 1 => prop_assert_eq!(sorted.insert(id), model.insert(id)),
                2 => prop_assert_eq!(sorted.remove(id), model.take(&id)),
                _ => prop_assert_eq!(sorted.pop_first(), model.pop_first()),
            }
            if n % 16 == 0 {
                sorted.check();
            }
            prop_assert_eq!(sorted.get(sorted.lower_bound(id)), model.range(id..).next());
            let floor = sorted.floor(id).and_then(|place| sorted.get(place));
            prop_assert_eq!(floor, model.range(..=id).next_back());
            prop_assert_eq!((sorted.first(), sorted.last()), (model.first(), model.last()));
        }
        sorted.check();
        prop_assert!(sorted.iter().eq(model.iter()));
    }

    #[test]
    fn the_radix_tree_has_as_many_nodes_as_counted(
        ids in proptest::collection::btree_set((prop_oneof![0..4_u64, 250..260_u64, any::<u64>()], 0..300_u64), 0..40)
    ) {
        let mut stream = Stream::default();
        let limits = NodeLimits { stream_node_max_bytes: 0, stream_node_max_entries: 1 };
        for (ms, seq) in ids.iter().filter(|id| **id != (0, 0)) {
            stream.append(StreamId::new(*ms, *seq), [(&b"f"[..], &b"v"[..])].into_iter(), limits);
        }
        let keys: Vec<[u8; 16]> = stream.nodes().iter().map(|node| node.master.to_bytes()).collect();
        prop_assert_eq!(stream.n_radix_nodes(), n_nodes_of_tree(&keys));
    }
}

/// Of all prefixes: those where keys part, the keys, and for each of these and the root the run of bytes that follows it.
fn n_nodes_of_tree(keys: &[[u8; 16]]) -> usize {
    let prefixes: BTreeSet<&[u8]> = keys.iter().flat_map(|key| (0..=16).map(|n| &key[..n])).collect();
    let n_children = |prefix: &[u8]| {
        let longer = prefixes.iter().filter(|other| other.len() == prefix.len() + 1);
        longer.filter(|other| other.starts_with(prefix)).count()
    };
    if keys.is_empty() {
        return 1;
    }
    let mut n = 0;
    for prefix in &prefixes {
        let is_single = n_children(prefix) == 1;
        let follows_single = prefix.split_last().is_some_and(|(_, before)| n_children(before) == 1);
        // A run counts once, at its first byte.
        n += usize::from(!is_single || !follows_single);
    }
    n
}
