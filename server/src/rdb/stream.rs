//! Streams: nodes as listpacks, then the counters and the groups. Written as type 21, read as that and as the types of Redis 5
//! (15: fewer counters) and 7.0 (19: consumers without the time of their last success).

use std::borrow::Cow;

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, kind};
use crate::types::Stream;
use crate::types::element::{Element, Encoded, decode_untrusted};
use crate::types::stream::{
    Consumer, ConsumerSlot, Group, History, Nack, Node, READS_UNKNOWN, Sorted, StreamId,
};

const LISTPACK_HEADER_BYTES: usize = 6;
const LISTPACK_END: u8 = 0xff;
/// A group's name, last ID, and that nothing is pending and nobody reads.
const MIN_GROUP_BYTES: usize = 5;
/// A consumer's name, when it was seen, and that nothing is pending for it.
const MIN_CONSUMER_BYTES: usize = 10;
const UNCOUNTED: u16 = u16::MAX;

/// What a version of the format does not say is told otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V1,
    V2,
    V3,
}

pub(super) fn write(stream: &Stream, writer: &mut Writer) {
    writer.byte(kind::STREAM_3);
    writer.length(stream.nodes().len() as u64);
    for node in stream.nodes().iter() {
        writer.plain_string(&node.master.to_bytes());
        writer.string(&listpack_of(node));
    }
    let history = &stream.history;
    writer.length(history.length);
    for id in [history.last_id, history.first_id, history.max_deleted_id] {
        write_id(id, writer);
    }
    writer.length(history.entries_added);
    writer.length(stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        writer.string(name);
        write_id(group.last_id, writer);
        writer.length(group.entries_read as u64);
        writer.length(group.pending().len() as u64);
        for nack in group.pending().iter() {
            writer.bytes(&nack.id.to_bytes());
            writer.bytes(&nack.told_ms().to_le_bytes());
            writer.length(nack.n_deliveries);
        }
        write_consumers(group, writer);
    }
}

/// The consumers, in the order of their names. Entries that are nobody's have no place in the format: they are those of a consumer
/// without a name.
fn write_consumers(group: &Group, writer: &mut Writer) {
    let nameless = group.find_consumer(b"").map(|slot| group.consumer(slot));
    let named = group.consumers().filter(|consumer| !consumer.name.is_empty());
    let has_nameless = nameless.is_some() || group.n_released() > 0;
    writer.length(group.n_consumers() as u64 + u64::from(has_nameless && nameless.is_none()));
    if has_nameless {
        let nobody = Consumer::new(b"", 0);
        write_consumer(nameless.unwrap_or(&nobody), group.n_released(), writer);
        let is_nameless = |nack: &&Nack| group.name_of(nack.consumer).is_empty();
        group.pending().iter().filter(is_nameless).for_each(|nack| writer.bytes(&nack.id.to_bytes()));
    }
    for consumer in named {
        write_consumer(consumer, 0, writer);
        consumer.pending().iter().for_each(|id| writer.bytes(&id.to_bytes()));
    }
}

/// All of a consumer but the IDs that are pending for it, of which there are `n_more`.
fn write_consumer(consumer: &Consumer, n_more: usize, writer: &mut Writer) {
    writer.string(&consumer.name);
    writer.bytes(&consumer.seen_ms.to_le_bytes());
    writer.bytes(&consumer.active_ms.unwrap_or(-1).to_le_bytes());
    writer.length((consumer.pending().len() + n_more) as u64);
}

fn write_id(id: StreamId, writer: &mut Writer) {
    writer.length(id.ms);
    writer.length(id.seq);
}

fn read_id(reader: &mut Reader<'_>) -> Result<StreamId, Malformed> {
    Ok(StreamId { ms: reader.length()?, seq: reader.length()? })
}

fn listpack_of(node: &Node) -> Vec<u8> {
    let n_bytes = node.listpack_bytes();
    let n_elements = u16::try_from(2 + node.n_elements()).unwrap_or(UNCOUNTED);
    let mut listpack = Vec::with_capacity(n_bytes);
    listpack.extend_from_slice(&(n_bytes as u32).to_le_bytes());
    listpack.extend_from_slice(&n_elements.to_le_bytes());
    for count in [node.n_live, node.n_deleted] {
        Encoded::new(Element::Integer(i64::from(count))).append_to(&mut listpack);
    }
    listpack.extend_from_slice(node.payload());
    listpack.push(LISTPACK_END);
    listpack
}

pub(super) fn read(reader: &mut Reader<'_>, version: Version) -> Result<Stream, Malformed> {
    let mut nodes = Sorted::<Node>::default();
    let mut last_of_all = None;
    for _ in 0..reader.length()? {
        let master = StreamId::of_bytes(reader.string()?.as_ref().try_into().map_err(|_| Malformed)?);
        let node = read_node(master, &reader.string()?)?;
        let mut ids = node.entries().map(|entry| entry.id);
        let (first, last) = (ids.next().ok_or(Malformed)?, node.entries().next_back().ok_or(Malformed)?.id);
        if last_of_all >= Some(first) || nodes.last().is_some_and(|before| before.master >= master) {
            return Err(Malformed);
        }
        last_of_all = Some(last);
        nodes.push(node);
    }
    let mut history = History { length: reader.length()?, last_id: read_id(reader)?, ..History::default() };
    history.entries_added = history.length;
    if version >= Version::V2 {
        // The first ID is found again.
        let _first_id = read_id(reader)?;
        history.max_deleted_id = read_id(reader)?;
        history.entries_added = reader.length()?;
    }
    let mut stream = Stream::of_nodes(history, nodes).ok_or(Malformed)?;
    let n_groups = reader.length()?;
    // As many as can stand in what is left: their list does not grow by doubling.
    let most = reader.left() / MIN_GROUP_BYTES;
    let mut groups: Vec<(Box<[u8]>, Group)> = Vec::with_capacity(n_groups.min(most as u64) as usize);
    for _ in 0..n_groups {
        let name: Box<[u8]> = reader.string()?.as_ref().into();
        groups.push((name, read_group(reader, version, &stream.history)?));
    }
    if stream.set_groups(groups) { Ok(stream) } else { Err(Malformed) }
}

/// A listpack, checked and stored anew in the shortest encodings.
fn read_node(master: StreamId, listpack: &[u8]) -> Result<Node, Malformed> {
    let (header, rest) = listpack.split_first_chunk::<LISTPACK_HEADER_BYTES>().ok_or(Malformed)?;
    let [a, b, c, d, low, high] = *header;
    let Some((&LISTPACK_END, mut entries)) = rest.split_last() else { return Err(Malformed) };
    if u32::from_le_bytes([a, b, c, d]) as usize != listpack.len() {
        return Err(Malformed);
    }
    let counted = u16::from_le_bytes([low, high]);
    let mut n_elements = 0;
    let mut elements = std::iter::from_fn(|| {
        let (element, n_entry) = decode_untrusted(entries)?;
        entries = &entries[n_entry..];
        n_elements += 1;
        Some(element.canonical())
    });
    let mut count = || match elements.next() {
        Some(Element::Integer(count)) => u32::try_from(count).map_err(|_| Malformed),
        Some(Element::Bytes(_)) | None => Err(Malformed),
    };
    let (n_live, n_deleted) = (count()?, count()?);
    let node = Node::of_elements(master, n_live, n_deleted, &mut elements).ok_or(Malformed)?;
    let is_whole = entries.is_empty() && (counted == UNCOUNTED || usize::from(counted) == n_elements);
    if is_whole { Ok(node) } else { Err(Malformed) }
}

fn read_group(reader: &mut Reader<'_>, version: Version, history: &History) -> Result<Group, Malformed> {
    let last_id = read_id(reader)?;
    let entries_read = match version {
        Version::V1 => history.distance_from_first_ever(last_id).unwrap_or(READS_UNKNOWN),
        Version::V2 | Version::V3 => reader.length()? as i64,
    };
    let mut group = Group::new(last_id, entries_read);
    // Who an entry is pending for is told below; until then it is nobody.
    let mut pending = Sorted::default();
    for _ in 0..reader.length()? {
        let nack = Nack {
            id: StreamId::of_bytes(reader.array()?),
            delivered_ms: i64::from_le_bytes(reader.array()?),
            n_deliveries: reader.length()?,
            consumer: ConsumerSlot::NOBODY,
        };
        if !pending.insert(nack) {
            return Err(Malformed);
        }
    }
    let n_consumers = reader.length()?;
    group.reserve_consumers(n_consumers.min((reader.left() / MIN_CONSUMER_BYTES) as u64) as usize);
    for _ in 0..n_consumers {
        let name: Cow<'_, [u8]> = reader.string()?;
        if group.find_consumer(&name).is_some() {
            return Err(Malformed);
        }
        let mut consumer = Consumer::new(&name, i64::from_le_bytes(reader.array()?));
        consumer.active_ms = match version {
            Version::V3 => Some(i64::from_le_bytes(reader.array()?)).filter(|active_ms| *active_ms != -1),
            Version::V1 | Version::V2 => Some(consumer.seen_ms),
        };
        let slot = group.add_consumer(consumer);
        for _ in 0..reader.length()? {
            let id = StreamId::of_bytes(reader.array()?);
            // Each is pending for one consumer: taken out, it cannot be for another.
            let nack = pending.remove(id).ok_or(Malformed)?;
            group.set_pending(Nack { consumer: slot, ..nack });
        }
    }
    if pending.is_empty() { Ok(group) } else { Err(Malformed) }
}
