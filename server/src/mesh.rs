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
    /// So many of them, at least, were there at all times since the last trim.
    n_unneeded: usize,
    /// Buffers of the peer that I have emptied.
    giving_back: Producer<Batch>,
}

/// Builds the rings between `doors.len()` workers.
pub fn build(doors: Arc<Vec<Door>>) -> Vec<Mesh> {
    let n = doors.len();
    let mut meshes: Vec<Mesh> =
        (0..n).map(|own| Mesh { own, peers: (0..n).map(|_| None).collect(), doors: doors.clone() }).collect();
    for a in 0..n {
        for b in a + 1..n {
            let (a_out, b_in) = RingBuffer::new(RING);
            let (b_out, a_in) = RingBuffer::new(RING);
            let (b_gives, a_returned) = RingBuffer::new(RING);
            let (a_gives, b_returned) = RingBuffer::new(RING);
            meshes[a].peers[b] = Some(Peer {
                outgoing: a_out,
                incoming: a_in,
                returned: a_returned,
                n_unneeded: 0,
                giving_back: a_gives,
            });
            meshes[b].peers[a] = Some(Peer {
                outgoing: b_out,
                incoming: b_in,
                returned: b_returned,
                n_unneeded: 0,
                giving_back: b_gives,
            });
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
            peer.n_unneeded = peer.n_unneeded.min(peer.returned.slots());
            let full = std::mem::replace(outbox, empty);
            n_messages += u64::from(full.n_messages);
            let pushed = peer.outgoing.push(full);
            assert!(pushed.is_ok(), "the only producer has just seen room");
            self.doors[at].knock();
        }
        n_messages
    }

    /// Frees the buffers that were not needed since the last call, and those of empty outboxes. To be called about once a second.
    pub fn trim(&mut self, outboxes: &mut [Batch]) {
        for (peer, outbox) in self.peers.iter_mut().zip(outboxes) {
            let Some(peer) = peer else { continue };
            for _ in 0..peer.n_unneeded {
                // Who counted them saw them, and nobody else takes them.
                let _ = peer.returned.pop();
            }
            peer.n_unneeded = peer.returned.slots();
            if outbox.is_empty() {
                *outbox = Batch::default();
            }
        }
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

    /// Wakes a worker if it sleeps.
    pub fn knock(&self, at: usize) {
        self.doors[at].knock();
    }

    pub fn ring(&self, at: usize) {
        self.doors[at].ring();
    }

    pub fn n_peers(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Mesh, Mesh) {
        let door = || {
            let poll = mio::Poll::new().expect("a poll");
            Door::new(mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker"))
        };
        let mut meshes = build(Arc::new(vec![door(), door()]));
        let second = meshes.pop().expect("two were built");
        (meshes.pop().expect("two were built"), second)
    }

    fn outboxes_with(n: u64) -> Vec<Batch> {
        let mut outboxes = vec![Batch::default(), Batch::default()];
        outboxes[1].push_unwatch(crate::client::ClientId(n));
        outboxes
    }

    /// What a full ring does not take stays in the outbox, grows, and goes out in order when there is room.
    #[test]
    fn a_full_ring_keeps_the_outbox() {
        let (mut a, mut b) = two();
        for n in 0..RING as u64 {
            assert_eq!(a.publish(&mut outboxes_with(n)), 1);
        }
        let mut late = outboxes_with(1000);
        assert_eq!(a.publish(&mut late), 0);
        late[1].push_unwatch(crate::client::ClientId(1001));
        assert_eq!(a.publish(&mut late), 0);
        assert!(b.has_mail() && !late[1].is_empty());
        let mut got = vec![b.next_batch(0).expect("the ring is full")];
        assert_eq!(a.publish(&mut late), 2);
        assert!(late[1].is_empty());
        got.extend(std::iter::from_fn(|| b.next_batch(0)));
        assert_eq!(got.len(), RING + 1);
        assert_eq!(got[RING].n_messages, 2);
        assert!(!b.has_mail());
    }

    /// An emptied batch comes back to its sender and is its next outbox, with its memory; a full ring of them drops the rest.
    #[test]
    fn emptied_batches_are_used_again() {
        let (mut a, mut b) = two();
        let mut outboxes = outboxes_with(1);
        a.publish(&mut outboxes);
        let mut batch = b.next_batch(0).expect("it was published");
        let memory = batch.bytes.as_ptr();
        batch.recycle();
        b.give_back(0, batch);
        outboxes[1].push_unwatch(crate::client::ClientId(2));
        a.publish(&mut outboxes);
        assert_eq!(outboxes[1].bytes.as_ptr(), memory, "the outbox is the batch that came back");
        assert!(outboxes[1].is_empty() && outboxes[1].bytes.capacity() > 0);
        for _ in 0..2 * RING {
            b.give_back(0, Batch::default());
        }
    }

    /// Buffers that no turn of a second needed are freed; those that were in use in it stay.
    #[test]
    fn what_nobody_needs_is_freed() {
        let (mut a, mut b) = two();
        let mut outboxes = outboxes_with(0);
        let mut go = |a: &mut Mesh, b: &mut Mesh, n_at_once: usize| {
            for n in 0..n_at_once {
                outboxes[1].push_unwatch(crate::client::ClientId(n as u64));
                a.publish(&mut outboxes);
            }
            while let Some(mut batch) = b.next_batch(0) {
                batch.recycle();
                b.give_back(0, batch);
            }
            a.peers[1].as_ref().expect("a peer").returned.slots()
        };
        let mut trimmed = vec![Batch::default(), Batch::default()];
        let most = go(&mut a, &mut b, 40);
        assert!(most >= 40);
        a.trim(&mut trimmed);
        // A second in which never more than ten are away, and one of rest.
        assert_eq!((0..5).map(|_| go(&mut a, &mut b, 10)).max(), Some(most));
        a.trim(&mut trimmed);
        let needed = a.peers[1].as_ref().expect("a peer").returned.slots();
        assert!((10..=11).contains(&needed), "{needed} of {most}");
        a.trim(&mut trimmed);
        assert_eq!(a.peers[1].as_ref().expect("a peer").returned.slots(), 0);
    }
}
