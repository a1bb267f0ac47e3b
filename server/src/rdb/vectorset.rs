//! Vector sets, as Redis's vector set module writes its type (encoding version 0).
//!
//! ```text
//!   7 | module id | uint dim, count, quantization | M << 8, flags
//!     | [flag 1: uint input_dim, string matrix (f32 LE, row after row)]
//!     | per node: string name, [flag 2: string attribute, "" for none], string row, uint n_params, n_params x uint | 0
//!   params: id, 1 << 24 | level, per level from 0: n_links, max_links, ids ..., worst distance << 32 | its index;
//!           range << 32 | length (two f32)
//! ```
//!
//! Each value of the body has a tag before it: 2 for an uint, 5 for a string. Links are mutual and within M (2M on level
//! 0), so Redis takes them. What comes in is checked as later versions of Redis check it, and more: the set is refused
//! if an id or name comes twice, an id is 0, a level is above 16, links are more than their maximum or that is above 3M,
//! or a link is unknown, repeated, to the node itself, to a lower level or not returned.
//!
//! A set with a METRIC that Redis does not have is written with an encoding version that Redis refuses, and the metric
//! after the flags.
//!
//! Departures from Redis: 1. a row that is not finite, which Redis stores, becomes a zero vector, which has the same
//! score with everything. 2. A payload of more than 512 MB is not made: no client could send it back.

use std::borrow::Cow;
use std::collections::HashSet;

use hashbrown::HashMap;
use skerry_vectorset::{LoadedNode, MAX_DIM, MAX_M, MIN_M, Metric, NodeView, Params, Quantization};

use super::reader::Reader;
use super::writer::Writer;
use super::{MadeWith, Malformed, kind};
use crate::error::CommandError;
use crate::projection::Projection;
use crate::vector::{VectorValue, new_params, with_reader};

/// "vectorset", six bits a letter, and the encoding version.
const MODULE_ID: u64 = 0xbde7_2da2_bb1e_b400;
/// The low bits of a module's id are the version.
const VERSION_MASK: u64 = 0x3ff;

const TAG_END: u64 = 0;
const TAG_UINT: u64 = 2;
const TAG_STRING: u64 = 5;

const FLAG_PROJECTION: u64 = 1;
const FLAG_ATTRIBUTES: u64 = 2;

/// Skerry's own encoding version: the flags are followed by the metric.
const VERSION_WITH_METRIC: u64 = 0x3ff;
const METRIC_L2: u64 = 1;
const METRIC_IP: u64 = 2;

const NOQUANT: u64 = 0;
const Q8: u64 = 1;
const BIN: u64 = 2;
const NODE_VERSION: u64 = 1 << 24;
/// What older versions mean by M 0.
const DEFAULT_M: u64 = 16;
const MAX_LEVEL: u64 = 16;
/// Parameters of a node beside its links: id, level, length; and per level three.
const PARAMS_PER_NODE: usize = 3;
const PARAMS_PER_LEVEL: usize = 3;
const MAX_PAYLOAD_BYTES: u64 = 512 << 20;

/// How far a row's squared length may be from one before it is normalised again.
const ROUNDING: f64 = 1e-3;

const TOO_BIG: CommandError = CommandError::text("ERR the serialized vector set would be above 512 MB");

pub(super) fn write(value: &VectorValue, writer: &mut Writer) -> Result<(), CommandError> {
    let set = &value.handle.set;
    let params = set.params();
    let projection = value.handle.projection.as_ref();
    let row_bytes = blob_bytes(params.quantization, params.dim) as u64;
    let expected_bytes =
        set.len() as u64 * row_bytes + projection.map_or(0, |projection| 4 * projection.len());
    if expected_bytes > MAX_PAYLOAD_BYTES {
        return Err(TOO_BIG);
    }
    let has_attributes = set.attributes_count() > 0;
    writer.byte(kind::MODULE_2);
    let metric = match params.metric {
        Metric::Cosine => None,
        Metric::L2 => Some(METRIC_L2),
        Metric::Ip => Some(METRIC_IP),
    };
    writer.length(MODULE_ID | metric.map_or(0, |_| VERSION_WITH_METRIC));
    uint(writer, u64::from(params.dim));
    uint(writer, set.len() as u64);
    let quantization = match params.quantization {
        Quantization::None => NOQUANT,
        Quantization::Q8 => Q8,
        Quantization::Bin => BIN,
    };
    uint(writer, quantization | u64::from(params.m) << 8);
    uint(
        writer,
        FLAG_PROJECTION * u64::from(projection.is_some()) + FLAG_ATTRIBUTES * u64::from(has_attributes),
    );
    if let Some(metric) = metric {
        uint(writer, metric);
    }
    if let Some(projection) = projection {
        uint(writer, u64::from(projection.input_dim()));
        writer.length(TAG_STRING);
        let bytes = projection.rows().flat_map(f32::to_le_bytes);
        writer.plain_string_of(4 * projection.len() as usize, bytes);
    }
    with_reader(|guard, _| {
        set.nodes(guard).for_each(|node| write_node(&node, params.m, has_attributes, writer));
    });
    writer.length(TAG_END);
    Ok(())
}

fn write_node(node: &NodeView<'_>, m: u32, has_attributes: bool, writer: &mut Writer) {
    string(writer, node.name);
    if has_attributes {
        string(writer, node.attribute.unwrap_or_default());
    }
    writer.length(TAG_STRING);
    writer.plain_string(&node.blob);
    let n_links: usize = node.links.iter().map(Vec::len).sum();
    uint(writer, (PARAMS_PER_NODE + PARAMS_PER_LEVEL * node.links.len() + n_links) as u64);
    uint(writer, node.id);
    uint(writer, NODE_VERSION | (node.links.len() - 1) as u64);
    for (level, links) in node.links.iter().enumerate() {
        uint(writer, links.len() as u64);
        uint(writer, u64::from(if level == 0 { 2 * m } else { m }));
        links.iter().for_each(|(id, _)| uint(writer, *id));
        let worst = links.iter().enumerate().max_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
        let (index, distance) = worst.map_or((0, 0.0), |(index, (_, distance))| (index, *distance));
        uint(writer, u64::from(distance.to_bits()) << 32 | index as u64);
    }
    // The length may be beyond float32, which Redis computes with.
    let l2 = node.l2.min(f64::from(f32::MAX)) as f32;
    uint(writer, u64::from(node.range.unwrap_or(0.0).to_bits()) << 32 | u64::from(l2.to_bits()));
}

fn uint(writer: &mut Writer, value: u64) {
    writer.length(TAG_UINT);
    writer.length(value);
}

fn string(writer: &mut Writer, bytes: &[u8]) {
    writer.length(TAG_STRING);
    writer.string(bytes);
}

/// The set behind the type's number.
pub(super) fn read(reader: &mut Reader<'_>, made_with: MadeWith<'_>) -> Result<VectorValue, Malformed> {
    let id = reader.length()?;
    let version = id & VERSION_MASK;
    if id & !VERSION_MASK != MODULE_ID || version != 0 && version != VERSION_WITH_METRIC {
        return Err(Malformed);
    }
    let header = Header::read(reader, version)?;
    let mut nodes = Vec::new();
    // A declared number: every node is there before the next is believed in.
    for _ in 0..header.count {
        nodes.push(Node::read(reader, &header)?);
    }
    if reader.length()? != TAG_END {
        return Err(Malformed);
    }
    let links = links_by_place(&nodes)?;
    let names: HashSet<&[u8]> = nodes.iter().map(|node| &*node.name).collect();
    if names.len() != nodes.len() {
        return Err(Malformed);
    }
    let loaded: Vec<LoadedNode<'_>> =
        nodes.iter().zip(links).map(|(node, links)| node.loaded(links)).collect();
    let params = Params {
        quantization: header.quantization,
        metric: header.metric,
        ..new_params(made_with.config, header.dim, header.m, made_with.seed)
    };
    let mut value = VectorValue::new(params, header.projection);
    let writer = value.writer();
    with_reader(|_, scratch| writer.load(&loaded, scratch)).map_err(|_| Malformed)?;
    Ok(value)
}

struct Header {
    dim: u32,
    count: u64,
    m: u32,
    quantization: Quantization,
    metric: Metric,
    projection: Option<Projection>,
    has_attributes: bool,
}

impl Header {
    fn read(reader: &mut Reader<'_>, version: u64) -> Result<Self, Malformed> {
        let dim = in_range(read_uint(reader)?, 1, MAX_DIM)?;
        let count = read_uint(reader)?;
        let config = read_uint(reader)?;
        let flags = read_uint(reader)?;
        let m = match config >> 8 & 0xffff {
            0 => DEFAULT_M,
            m => m,
        };
        let m = in_range(m, MIN_M, MAX_M)?;
        let quantization = match config & 0xff {
            NOQUANT => Quantization::None,
            Q8 => Quantization::Q8,
            BIN => Quantization::Bin,
            _ => return Err(Malformed),
        };
        let metric = match version {
            VERSION_WITH_METRIC => match read_uint(reader)? {
                METRIC_L2 => Metric::L2,
                METRIC_IP => Metric::Ip,
                _ => return Err(Malformed),
            },
            _ => Metric::Cosine,
        };
        if count == 0 || metric != Metric::Cosine && quantization == Quantization::Bin {
            return Err(Malformed);
        }
        let mut projection = None;
        if flags & FLAG_PROJECTION != 0 {
            let input_dim = in_range(read_uint(reader)?, dim, MAX_DIM)?;
            let matrix = floats(&read_string(reader)?)?;
            if !matrix.iter().all(|x| x.is_finite()) {
                return Err(Malformed);
            }
            projection = Some(Projection::with_matrix(input_dim, dim, matrix).ok_or(Malformed)?);
        }
        let has_attributes = flags & FLAG_ATTRIBUTES != 0;
        Ok(Self { dim, count, m, quantization, metric, projection, has_attributes })
    }
}

struct Node<'a> {
    name: Cow<'a, [u8]>,
    attribute: Option<Cow<'a, [u8]>>,
    blob: Cow<'a, [u8]>,
    l2: f32,
    range: f32,
    id: u64,
    /// Ids, per level from 0 up.
    links: Vec<Vec<u64>>,
}

impl<'a> Node<'a> {
    fn read(reader: &mut Reader<'a>, header: &Header) -> Result<Self, Malformed> {
        let name = read_string(reader)?;
        let attribute = match header.has_attributes {
            true => Some(read_string(reader)?).filter(|text| !text.is_empty()),
            false => None,
        };
        let mut blob = read_string(reader)?;
        if blob.len() != blob_bytes(header.quantization, header.dim) {
            return Err(Malformed);
        }
        if header.quantization == Quantization::None {
            make_sound(&mut blob, header.metric)?;
        }
        let mut n_params = read_uint(reader)?;
        let mut param = || {
            n_params = n_params.checked_sub(1).ok_or(Malformed)?;
            read_uint(reader)
        };
        let id = param()?;
        let version_and_level = param()?;
        let (version, level) = (version_and_level >> 24 & 0xff, version_and_level & 0xff);
        if id == 0 || version > 1 || level > MAX_LEVEL {
            return Err(Malformed);
        }
        let mut links = Vec::new();
        for level in 0..=level {
            let (n_links, max_links) = (param()?, param()?);
            let allowed = u64::from(header.m) * if level == 0 { 3 } else { 2 };
            if n_links > max_links || max_links > allowed {
                return Err(Malformed);
            }
            links.push((0..n_links).map(|_| param()).collect::<Result<_, _>>()?);
            if version > 0 {
                let worst_index = param()? & 0xffff_ffff;
                if n_links > 0 && worst_index >= n_links {
                    return Err(Malformed);
                }
            }
        }
        let range_and_l2 = param()?;
        let l2 = f32::from_bits(range_and_l2 as u32);
        let range = Some(f32::from_bits((range_and_l2 >> 32) as u32)).filter(|range| range.is_finite());
        if n_params != 0 {
            return Err(Malformed);
        }
        Ok(Self { name, attribute, blob, l2, range: range.unwrap_or(0.0), id, links })
    }

    fn loaded(&self, links: Vec<Vec<u32>>) -> LoadedNode<'_> {
        let l2 = if self.l2.is_finite() && self.l2 > 0.0 { f64::from(self.l2) } else { 1.0 };
        LoadedNode {
            name: &self.name,
            attribute: self.attribute.as_deref(),
            blob: &self.blob,
            range: self.range,
            l2,
            links,
        }
    }
}

/// The links as places in the list of nodes, if they are sound.
fn links_by_place(nodes: &[Node<'_>]) -> Result<Vec<Vec<Vec<u32>>>, Malformed> {
    let mut places: HashMap<u64, u32> = HashMap::new();
    for (place, node) in nodes.iter().enumerate() {
        let place = u32::try_from(place).map_err(|_| Malformed)?;
        if places.insert(node.id, place).is_some() {
            return Err(Malformed);
        }
    }
    let mut all = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let mut levels = Vec::new();
        for (level, ids) in node.links.iter().enumerate() {
            let to = |id| {
                let to = *places.get(id).ok_or(Malformed)?;
                let is_sound = to as usize != place && nodes[to as usize].links.len() > level;
                if is_sound { Ok(to) } else { Err(Malformed) }
            };
            let mut links = ids.iter().map(to).collect::<Result<Vec<u32>, _>>()?;
            links.sort_unstable();
            if links.is_sorted_by(|a, b| a < b) { levels.push(links) } else { return Err(Malformed) }
        }
        all.push(levels);
    }
    let is_returned =
        |place: usize, level: usize, to: u32| all[to as usize][level].binary_search(&(place as u32)).is_ok();
    let are_mutual = all.iter().enumerate().all(|(place, levels): (usize, &Vec<Vec<u32>>)| {
        let each = levels.iter().enumerate();
        each.flat_map(|(level, links)| links.iter().map(move |to| (level, *to)))
            .all(|(level, to)| is_returned(place, level, to))
    });
    if are_mutual { Ok(all) } else { Err(Malformed) }
}

/// Leaves a float32 row as it is if it is normalised or zero, or need not be. See departure 1.
fn make_sound(blob: &mut Cow<'_, [u8]>, metric: Metric) -> Result<(), Malformed> {
    let row = floats(blob)?;
    if !row.iter().all(|x| x.is_finite()) {
        blob.to_mut().fill(0);
        return Ok(());
    }
    let squares: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if metric == Metric::Cosine && squares > 0.0 && (squares - 1.0).abs() > ROUNDING {
        let length = squares.sqrt();
        let bytes = row.iter().flat_map(|x| ((f64::from(*x) / length) as f32).to_le_bytes());
        *blob = Cow::Owned(bytes.collect());
    }
    Ok(())
}

/// Bytes of a vector as it is stored.
fn blob_bytes(quantization: Quantization, dim: u32) -> usize {
    let dim = dim as usize;
    match quantization {
        Quantization::None => 4 * dim,
        Quantization::Q8 => dim,
        Quantization::Bin => dim.div_ceil(64) * 8,
    }
}

fn in_range(value: u64, min: u32, max: u32) -> Result<u32, Malformed> {
    u32::try_from(value).ok().filter(|value| (min..=max).contains(value)).ok_or(Malformed)
}

fn read_uint(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    if reader.length()? == TAG_UINT { reader.length() } else { Err(Malformed) }
}

fn read_string<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, Malformed> {
    if reader.length()? == TAG_STRING { reader.string() } else { Err(Malformed) }
}

fn floats(bytes: &[u8]) -> Result<Vec<f32>, Malformed> {
    match bytes.as_chunks() {
        (numbers, []) => Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
        _ => Err(Malformed),
    }
}
