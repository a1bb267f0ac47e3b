//! A vector set on its way out, in slices.

use skerry_vectorset::{Metric, NodeView, Quantization};

use super::super::kind;
use super::super::writer::Writer;
use super::*;
use crate::error::CommandError;
use crate::vector::{VectorValue, with_reader};

const MAX_PAYLOAD_BYTES: u64 = 512 << 20;
const TOO_BIG: CommandError = CommandError::text("ERR the serialized vector set would be above 512 MB");

/// What a node costs apart from its links, in distances.
const NODE_COST: usize = 30;

/// How far a set is written. It rests meanwhile.
pub(in crate::rdb) struct Writing {
    /// Nodes that are still to come.
    n_left: usize,
    m: u32,
    has_attributes: bool,
}

impl Writing {
    /// Writes what stands in front of the nodes.
    pub(in crate::rdb) fn begin(value: &VectorValue, writer: &mut Writer) -> Result<Self, CommandError> {
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
        Ok(Self { n_left: set.len(), m: params.m, has_attributes })
    }

    /// Goes on for about `budget` distances; true when all is written.
    pub(in crate::rdb) fn step(&mut self, value: &VectorValue, writer: &mut Writer, budget: usize) -> bool {
        let mut left = budget;
        with_reader(|guard, _| {
            let mut nodes = value.handle.set.nodes_before(self.n_left, guard);
            while left > 0
                && let Some(node) = nodes.next()
            {
                let n_links: usize = node.links.iter().map(Vec::len).sum();
                left = left.saturating_sub(NODE_COST + n_links);
                write_node(&node, self.m, self.has_attributes, writer);
                self.n_left -= 1;
            }
        });
        if self.n_left == 0 {
            writer.length(TAG_END);
        }
        self.n_left == 0
    }
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
