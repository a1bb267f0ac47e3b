//! A vector set on its way in, in slices: nothing that is read is believed in before all of it is.
//!
//! ```text
//!   header ─► nodes ─► links by place ─► mutual? ─► the set (`Loading`)
//!                 malformed at any point ─┐              │
//!                                         └─► the nodes are dropped, in slices too
//! ```

use std::borrow::Cow;

use bytes::Bytes;
use hashbrown::HashMap;
use skerry_vectorset::{LoadedNode, Loading, MAX_DIM, MAX_M, MIN_M, Metric, Params, Progress, Quantization};

use super::super::reader::Reader;
use super::super::{MadeWith, Malformed};
use super::*;
use crate::projection::Projection;
use crate::vector::{VectorValue, new_params, with_reader};

/// How far a row's squared length may be from one before it is normalised again.
const ROUNDING: f64 = 1e-3;

/// What a node costs to read apart from its links, in distances, and the bytes of its vector that are worth one.
const NODE_COST: usize = 30;
const BYTES_PER_DISTANCE: usize = 64;
/// A row of so many dimensions more costs as much again to load.
const UNIT_DIM: usize = 512;
/// What a link costs to look for at its other end, in tenths of a distance.
const LINK_COST_TENTHS: usize = 15;
/// What a node costs to drop.
const DROP_COST: usize = 10;

/// How far a set is read.
pub(in crate::rdb) struct Reading {
    /// The payload's body.
    body: Bytes,
    header: Header,
    nodes: Vec<Node>,
    /// Places of the nodes, by id.
    places: HashMap<u64, u32>,
    stage: Stage,
}

enum Stage {
    /// Up to this place of the body.
    Nodes(usize),
    /// The links of the nodes before this one lead to places.
    Places(usize),
    /// The links of the nodes before this one are mutual.
    Mutual(usize),
    Load(Box<VectorValue>, Loading),
    /// All is said; what is left of the nodes is dropped.
    Drop(Result<Box<VectorValue>, Malformed>, Option<Box<VectorValue>>),
}

/// What came of it.
pub(in crate::rdb) enum Outcome {
    Set(Box<VectorValue>),
    /// What was made of it before that was found out is to be freed.
    Malformed(Option<Box<VectorValue>>),
}

impl Reading {
    /// Begins with a body; its first `at` bytes are read.
    pub(in crate::rdb) fn begin(body: Bytes, at: usize) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&body[at..]);
        let id = reader.length()?;
        let version = id & VERSION_MASK;
        if id & !VERSION_MASK != MODULE_ID || version != 0 && version != VERSION_WITH_METRIC {
            return Err(Malformed);
        }
        let header = Header::read(&mut reader, version)?;
        let at = body.len() - reader.left();
        Ok(Self { body, header, nodes: Vec::new(), places: HashMap::new(), stage: Stage::Nodes(at) })
    }

    /// Goes on for about `budget` distances.
    pub(in crate::rdb) fn step(&mut self, made_with: MadeWith<'_>, budget: usize) -> Option<Outcome> {
        let mut left = budget;
        while left > 0 {
            if let Stage::Drop(outcome, rest) = &mut self.stage {
                let n_dropped = (left / DROP_COST + 1).min(self.nodes.len());
                self.nodes.truncate(self.nodes.len() - n_dropped);
                if !self.nodes.is_empty() {
                    return None;
                }
                return Some(match std::mem::replace(outcome, Err(Malformed)) {
                    Ok(value) => Outcome::Set(value),
                    Err(Malformed) => Outcome::Malformed(rest.take()),
                });
            }
            if let Err(Malformed) = self.go_on(made_with, &mut left) {
                let made = match std::mem::replace(&mut self.stage, Stage::Nodes(0)) {
                    Stage::Load(value, _) => Some(value),
                    _ => None,
                };
                self.stage = Stage::Drop(Err(Malformed), made);
            }
        }
        None
    }

    /// One step of one stage.
    fn go_on(&mut self, made_with: MadeWith<'_>, left: &mut usize) -> Result<(), Malformed> {
        match &mut self.stage {
            Stage::Nodes(at) if self.nodes.len() as u64 == self.header.count => {
                let mut reader = Reader::new(&self.body[*at..]);
                if reader.length()? != TAG_END || !reader.is_done() {
                    return Err(Malformed);
                }
                self.stage = Stage::Places(0);
            }
            Stage::Nodes(at) => {
                // A declared number: every node is there before the next is believed in.
                let node = Node::read(&self.body, at, &self.header)?;
                let place = u32::try_from(self.nodes.len()).map_err(|_| Malformed)?;
                if self.places.insert(node.id, place).is_some() {
                    return Err(Malformed);
                }
                let n_links: usize = node.ids.iter().map(Vec::len).sum();
                *left = left.saturating_sub(NODE_COST + node.blob.len() / BYTES_PER_DISTANCE + n_links);
                self.nodes.push(node);
            }
            Stage::Places(place) if *place == self.nodes.len() => self.stage = Stage::Mutual(0),
            Stage::Places(place) => {
                let links = links_by_place(&self.nodes, *place, &self.places)?;
                *left = left.saturating_sub(1 + cost_of(&links));
                let node = &mut self.nodes[*place];
                node.ids = Vec::new();
                node.links = links;
                *place += 1;
            }
            Stage::Mutual(place) if *place == self.nodes.len() => {
                let header = &mut self.header;
                let params = Params {
                    quantization: header.quantization,
                    metric: header.metric,
                    ..new_params(made_with.config, header.dim, header.m, made_with.seed)
                };
                let value = Box::new(VectorValue::new(params, header.projection.take()));
                self.stage = Stage::Load(value, Loading::begin(self.nodes.len()));
            }
            Stage::Mutual(place) => {
                if !are_mutual(&self.nodes, *place) {
                    return Err(Malformed);
                }
                *left = left.saturating_sub(1 + cost_of(&self.nodes[*place].links));
                *place += 1;
            }
            Stage::Load(value, loading) => {
                let nodes = &self.nodes;
                let budget = *left / (1 + self.header.dim as usize / UNIT_DIM) + 1;
                let writer = value.writer();
                let progress = with_reader(|guard, scratch| {
                    loading.step(writer, |place| nodes[place].loaded(), budget, scratch, guard)
                });
                *left = 0;
                if progress.map_err(|_| Malformed)? == Progress::Done {
                    let stage = std::mem::replace(&mut self.stage, Stage::Nodes(0));
                    let Stage::Load(value, _) = stage else { unreachable!("matched just now") };
                    self.stage = Stage::Drop(Ok(value), None);
                }
            }
            Stage::Drop(..) => unreachable!("the caller has looked"),
        }
        Ok(())
    }
}

fn cost_of(links: &[Vec<u32>]) -> usize {
    links.iter().map(Vec::len).sum::<usize>() * LINK_COST_TENTHS / 10
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

struct Node {
    name: Bytes,
    attribute: Option<Bytes>,
    blob: Bytes,
    l2: f32,
    range: f32,
    id: u64,
    /// Ids of the neighbors, per level from 0 up, until they are places.
    ids: Vec<Vec<u64>>,
    links: Vec<Vec<u32>>,
}

impl Node {
    /// The node at `at`, which moves behind it.
    fn read(body: &Bytes, at: &mut usize, header: &Header) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&body[*at..]);
        let node = Self::read_from(&mut reader, body, header)?;
        *at = body.len() - reader.left();
        Ok(node)
    }

    fn read_from(reader: &mut Reader<'_>, body: &Bytes, header: &Header) -> Result<Self, Malformed> {
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
        let mut ids = Vec::new();
        for level in 0..=level {
            let (n_links, max_links) = (param()?, param()?);
            let allowed = u64::from(header.m) * if level == 0 { 3 } else { 2 };
            if n_links > max_links || max_links > allowed {
                return Err(Malformed);
            }
            ids.push((0..n_links).map(|_| param()).collect::<Result<_, _>>()?);
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
        let part = |text| part_of(body, text);
        Ok(Self {
            name: part(name),
            attribute: attribute.map(part),
            blob: part(blob),
            l2,
            range: range.unwrap_or(0.0),
            id,
            ids,
            links: Vec::new(),
        })
    }

    /// Levels that it is on: its links are ids or places.
    fn n_levels(&self) -> usize {
        self.ids.len().max(self.links.len())
    }

    fn loaded(&self) -> LoadedNode<'_> {
        let l2 = if self.l2.is_finite() && self.l2 > 0.0 { f64::from(self.l2) } else { 1.0 };
        LoadedNode {
            name: &self.name,
            attribute: self.attribute.as_deref(),
            blob: &self.blob,
            range: self.range,
            l2,
            links: &self.links,
        }
    }
}

/// A part of the body without a copy, or what was decoded.
fn part_of(body: &Bytes, text: Cow<'_, [u8]>) -> Bytes {
    match text {
        Cow::Borrowed(text) => body.slice_ref(text),
        Cow::Owned(text) => text.into(),
    }
}

/// The links of a node as places in the list of nodes, if they are sound.
fn links_by_place(
    nodes: &[Node],
    place: usize,
    places: &HashMap<u64, u32>,
) -> Result<Vec<Vec<u32>>, Malformed> {
    let mut levels = Vec::new();
    for (level, ids) in nodes[place].ids.iter().enumerate() {
        let to = |id| {
            let to = *places.get(id).ok_or(Malformed)?;
            let is_sound = to as usize != place && nodes[to as usize].n_levels() > level;
            if is_sound { Ok(to) } else { Err(Malformed) }
        };
        let mut links = ids.iter().map(to).collect::<Result<Vec<u32>, _>>()?;
        links.sort_unstable();
        if links.is_sorted_by(|a, b| a < b) { levels.push(links) } else { return Err(Malformed) }
    }
    Ok(levels)
}

/// Whether every link of a node is returned.
fn are_mutual(nodes: &[Node], place: usize) -> bool {
    nodes[place].links.iter().enumerate().all(|(level, links)| {
        links.iter().all(|to| nodes[*to as usize].links[level].binary_search(&(place as u32)).is_ok())
    })
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
