//! Lists: written as a quicklist of listpacks (type 18), read in that form and three older ones.

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, kind, listpack, ziplist};
use crate::types::element::Digits;
use crate::types::list::{Assembly, Part};
use crate::types::{Limits, List};

/// The containers of a node.
const PLAIN: u64 = 1;
const PACKED: u64 = 2;
/// A node is at least its container, a string's length, and a listpack's header, entry and end.
const NODE_MIN_BYTES: usize = 11;

pub(super) fn write(list: &List, writer: &mut Writer) {
    writer.byte(kind::LIST_QUICKLIST_2);
    writer.length(list.parts().count() as u64);
    for part in list.parts() {
        match part {
            Part::Packed(packed) => {
                writer.length(PACKED);
                listpack::write(packed, writer);
            }
            Part::Plain(element) => {
                writer.length(PLAIN);
                writer.string(element);
            }
        }
    }
}

/// Type 1: the elements.
pub(super) fn read_elements(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, Malformed> {
    let mut list = Assembly::default();
    for _ in 0..reader.length()? {
        list.element(&reader.string()?, limits);
    }
    finish(list, limits)
}

/// Type 10: one ziplist. Redis pushes its elements to a new list, and leaves that in the big encoding.
pub(super) fn read_ziplist(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, Malformed> {
    let ziplist = ziplist::read(reader)?;
    let mut list = Assembly::default();
    ziplist.iter().for_each(|element| list.element(element.as_bytes(&mut Digits::new()), limits));
    if ziplist.is_empty() { Err(Malformed) } else { Ok(list.finish_big()) }
}

/// Type 14: ziplists.
pub(super) fn read_quicklist(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, Malformed> {
    let n_nodes = reader.length()?;
    let mut list = with_room_for(n_nodes, reader);
    for _ in 0..n_nodes {
        list.packed(ziplist::read(reader)?);
    }
    finish(list, limits)
}

/// Type 18: listpacks and single elements.
pub(super) fn read_quicklist_2(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, Malformed> {
    let n_nodes = reader.length()?;
    let mut list = with_room_for(n_nodes, reader);
    let mut has_plain = false;
    for _ in 0..n_nodes {
        match reader.length()? {
            PACKED => list.packed(listpack::read(reader)?),
            PLAIN => {
                let element = reader.string()?;
                if element.is_empty() {
                    return Err(Malformed);
                }
                // A small one, which Redis writes in tests alone, joins its neighbours.
                list.element(&element, limits);
                has_plain = true;
            }
            _ => return Err(Malformed),
        }
    }
    // What has a node of its own, or several nodes, is no listpack.
    if has_plain { Ok(list.finish_big()) } else { finish(list, limits) }
}

/// Room for the nodes that are said to come, as far as the bytes that are left may hold them.
fn with_room_for(n_nodes: u64, reader: &Reader<'_>) -> Assembly {
    let n_possible = reader.left() / NODE_MIN_BYTES + 1;
    Assembly::with_capacity(usize::try_from(n_nodes).map_or(n_possible, |n| n.min(n_possible)))
}

fn finish(list: Assembly, limits: &Limits) -> Result<List, Malformed> {
    let list = list.finish(limits);
    if list.is_empty() { Err(Malformed) } else { Ok(list) }
}
