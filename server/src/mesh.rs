//! The rings between workers, and the door at which a sleeping worker is woken.
//!
//! ```text
//!   worker a ── batches ──► [SPSC ring] ──► worker b          one ring per ordered pair
//!           ◄── emptied ─── [SPSC ring] ◄──                   buffers go back to their sender
//! ```
//!
//! A push never waits: if the ring is full the outbox stays and grows; credit bounds it. One push and at most one wake per peer and
//! turn. Knows nothing of what a batch says.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::door::Door;
use crate::message::Batch;

/// Batches in flight per direction. A full ring only delays.
const RING: usize = 64;

/// One worker's ends of all its rings.
pub struct Mesh {
    own: usize,
    peers: Vec<Option<Peer>>,
    doors: Arc<Vec<Door>>,
}

struct Peer {
    outgoing: Producer<Batch>,
    incoming: Consumer<Batch>,
    /// Buffers of mine that the peer has emptied.
    returned: Consumer<Batch>,
    /// Buffers of the peer that I have emptied.
    giving_back: Producer<Batch>,
}

/// Builds the rings between `doors.len()` workers.
pub fn build(doors: Arc<Vec<Door>>) -> Vec<Mesh> {
    let n = doors.len();
    let mut meshes: Vec<Mesh> = (0..n)
        .map(|own| Mesh { own, peers: (0..n).map(|_| None).collect(), doors: doors.clone() })
        .collect();
    for a in 0..n {
        for b in a + 1..n {
            let (a_out, b_in) = RingBuffer::new(RING);
            let (b_out, a_in) = RingBuffer::new(RING);
            let (b_gives, a_returned) = RingBuffer::new(RING);
            let (a_gives, b_returned) = RingBuffer::new(RING);
            meshes[a].peers[b] =
                Some(Peer { outgoing: a_out, incoming: a_in, returned: a_returned, giving_back: a_gives });
            meshes[b].peers[a] =
                Some(Peer { outgoing: b_out, incoming: b_in, returned: b_returned, giving_back: b_gives });
        }
    }
    meshes
}

impl Mesh {
    /// Publishes what stands in the outboxes; returns how many messages went out.
    pub fn publish(&mut self, outboxes: &mut [Batch]) -> u64 {
        let mut n_messages = 0;
        for (at, outbox) in outboxes.iter_mut().enumerate() {
            if outbox.is_empty() {
                continue;
            }
            let Some(peer) = &mut self.peers[at] else { continue };
            if peer.outgoing.is_full() {
                continue;
            }
            let empty = peer.returned.pop().unwrap_or_default();
            let full = std::mem::replace(outbox, empty);
            n_messages += u64::from(full.n_messages);
            let pushed = peer.outgoing.push(full);
            assert!(pushed.is_ok(), "the only producer has just seen room");
            self.doors[at].knock();
        }
        n_messages
    }

    /// The next batch from peer `at`.
    pub fn next_batch(&mut self, at: usize) -> Option<Batch> {
        self.peers[at].as_mut()?.incoming.pop().ok()
    }

    /// Gives an emptied batch back to its sender (or frees it, if the sender has enough).
    pub fn give_back(&mut self, at: usize, batch: Batch) {
        if let Some(peer) = &mut self.peers[at] {
            // A full ring hands the batch back: then it is dropped.
            let _ = peer.giving_back.push(batch);
        }
    }

    /// Whether a batch waits.
    pub fn has_mail(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.incoming.is_empty())
    }

    pub fn door(&self) -> &Door {
        &self.doors[self.own]
    }

    /// Wakes worker `at` (control plane).
    pub fn ring(&self, at: usize) {
        self.doors[at].ring();
    }

    pub fn n_peers(&self) -> usize {
        self.peers.len()
    }
}
