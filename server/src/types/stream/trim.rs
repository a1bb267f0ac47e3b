//! Trimming: entries go from the front, node by node, as Redis does it.
//!
//! A node goes whole if all its living entries are to go; approximate trimming stops where one would not. What has gone whole
//! is handed out as garbage: millions of entries are freed in slices.

use super::{Node, Place, Stream, StreamId};

/// Which entries are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// All but the last so many.
    MaxLen(u64),
    /// Those below.
    MinId(StreamId),
}

/// What becomes of groups' references to an entry that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// They stay.
    Keep,
    /// They go too.
    Delete,
    /// The entry goes only if there is none, and every group has read it.
    Respect,
}

#[derive(Clone, Copy, Debug)]
pub struct Trim {
    pub threshold: Threshold,
    /// Whole nodes only.
    pub is_approximate: bool,
    /// No more entries than this; 0: any number.
    pub limit: u64,
    pub references: References,
}

/// Nodes that went whole.
pub type Garbage = Vec<Node>;

impl Stream {
    /// Trims; the number of entries that went.
    pub fn trim(&mut self, trim: &Trim, garbage: &mut Garbage) -> u64 {
        let mut n_deleted = 0;
        let mut place = self.nodes.start();
        while let Some(node) = self.nodes.get(place) {
            if matches!(trim.threshold, Threshold::MaxLen(max) if self.history.length <= max) {
                break;
            }
            let n_live = u64::from(node.n_live);
            if trim.limit > 0 && n_deleted + n_live > trim.limit {
                break;
            }
            let goes_whole = match trim.threshold {
                Threshold::MaxLen(max) => self.history.length - n_live >= max,
                // Its last entry counts, deleted or not.
                Threshold::MinId(id) => node.entries().next_back().is_none_or(|last| last.id < id),
            };
            if goes_whole && trim.references == References::Keep {
                garbage.extend(self.nodes.remove_at(place));
                self.history.length -= n_live;
                n_deleted += n_live;
                continue;
            }
            if trim.is_approximate {
                break;
            }
            let n = self.trim_within(place, trim);
            n_deleted += n;
            if !goes_whole {
                break;
            }
            if n == n_live {
                garbage.extend(self.nodes.remove_at(place));
            } else {
                place = self.nodes.after(place);
            }
        }
        if n_deleted > 0 {
            self.find_first_id();
        }
        n_deleted
    }

    /// Marks the entries of one node that are to go; how many.
    fn trim_within(&mut self, place: Place, trim: &Trim) -> u64 {
        let Some(node) = self.nodes.get(place) else { return 0 };
        let mut going = Vec::new();
        for entry in node.entries() {
            let is_enough = match trim.threshold {
                Threshold::MaxLen(max) => self.history.length - going.len() as u64 <= max,
                Threshold::MinId(id) => entry.id >= id,
            };
            if is_enough {
                break;
            }
            let stays = trim.references == References::Respect && self.is_referenced(entry.id);
            if !entry.is_deleted && !stays {
                going.push((entry.id, entry.deletion()));
            }
        }
        for (id, deletion) in &going {
            if trim.references == References::Delete {
                self.remove_references(*id);
            }
            if let Some(node) = self.nodes.get_mut(place) {
                node.delete(*deletion);
            }
        }
        self.history.length -= going.len() as u64;
        going.len() as u64
    }
}
