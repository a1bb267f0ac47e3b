//! The owner's side of a lend: which keys of this shard are held, and who waits for them.
//!
//! ```text
//!   key ──► KeyHold { exclusive | shared n, queue: [waiter, waiter, ...] }      one queue per key, first in first out
//!   waiter = a request (of one client) or a lend in its ordered round; it waits as a whole and holds nothing meanwhile
//!   gate   = a whole-shard lend waits or holds: every newcomer queues here, in order
//!   passage = what a freed request holds until it has run: between its grant and its run nobody gets in
//! ```
//!
//! Invariants: a waiter is granted when it is at the front of all its keys' queues and no hold conflicts; a newcomer that finds a
//! conflicting hold *or any waiter* on one of its keys queues behind it (no overtaking, no starvation); a key with no hold and no
//! waiter has no entry, so an uncontended shard pays one branch (`is_idle`). Keys are held by name, over all databases: MOVE and
//! COPY DB need no second rule; and by the name's hash, so that a hold costs no copy of the name (two names of one hash wait for
//! each other, nothing more). A job holds its key as a lend does (`hold_for_job`). Knows no keyspace, message or client buffer.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::client::ClientId;
use crate::message::{HoldMode, LendId};
use crate::shard::ShardId;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The next request of a client: of this worker's, or the head of its lane here.
    Request(ClientId),
    /// A blocked client, one of whose keys was filled while another was held.
    Blocked(ClientId),
    Lend(ShardId, LendId),
}

type WaiterId = usize;

#[derive(Default)]
struct KeyHold {
    /// More than one only for a moment: a request that was let in holds the key until it has run, and so does the job it starts.
    n_exclusive: u32,
    n_shared: u32,
    queue: VecDeque<WaiterId>,
}

impl KeyHold {
    fn admits(&self, mode: HoldMode) -> bool {
        self.n_exclusive == 0 && (mode == HoldMode::Shared || self.n_shared == 0)
    }

    fn is_free(&self) -> bool {
        self.n_exclusive == 0 && self.n_shared == 0 && self.queue.is_empty()
    }
}

/// Who waits for what; a request without keys waits at the gate only.
struct Waiter {
    who: Who,
    mode: HoldMode,
    keys: Vec<u64>,
}

/// All holds of one shard.
#[derive(Default)]
pub struct Holds {
    keys: HashMap<u64, KeyHold>,
    waiters: Vec<Option<Waiter>>,
    free_waiters: Vec<WaiterId>,
    /// The lend that has the whole shard.
    whole: Option<(ShardId, LendId)>,
    gate: VecDeque<Waiter>,
    n_held: usize,
    n_exclusive: usize,
    /// Requests without keys that are freed and have not run yet.
    n_keyless: usize,
    /// Waits so far, for INFO and the simulation.
    pub n_waits: u64,
}

/// The answer to a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Granted,
    /// Only for a first try.
    Refused,
    /// Queued; `release` will name it.
    Waits,
}

/// What is set free, in the order in which it must be run.
#[derive(Debug, PartialEq, Eq)]
pub enum Freed {
    /// Run this client's waiting request now, past the check, then hand the passage to `ran`.
    Request(ClientId, Passage),
    /// Serve this blocked client now, then hand the passage to `ran`.
    Blocked(ClientId, Passage),
    /// The lend holds its keys now.
    Lend(ShardId, LendId),
}

/// What a freed request holds until it has run.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a passage that is not handed back holds its keys for ever"]
pub struct Passage {
    mode: HoldMode,
    keys: Vec<u64>,
}

impl Passage {
    /// Hashes of the keys that it holds.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }
}

impl Holds {
    /// Nothing is held and nobody waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.keys.is_empty() && self.whole.is_none() && self.gate.is_empty()
    }

    /// Whether a request without keys (a part of DBSIZE, KEYS, SCAN) may run: only a whole-shard lend stops it.
    pub fn admits_keyless(&self) -> bool {
        self.whole.is_none() && self.gate.is_empty()
    }

    /// Whether a request that looks at all keys (a part of DBSIZE, KEYS, SCAN) may run: not while a key is away, for then what its
    /// lend does may be answered already and not yet be home.
    pub fn admits_viewer(&self) -> bool {
        self.admits_keyless() && self.n_exclusive == 0
    }

    /// Makes such a request wait for the keys that are away now.
    pub fn wait_to_view(&mut self, who: Who) {
        if !self.admits_keyless() {
            self.wait_at_gate(who);
            return;
        }
        let away = self.keys.iter().filter(|(_, hold)| hold.n_exclusive > 0).map(|(key, _)| *key);
        let keys: Vec<u64> = away.collect();
        self.wait(who, HoldMode::Shared, keys.iter().copied());
    }

    /// Makes a request wait for everything that is held or waited for now: one that may touch any key, where no lend is
    /// needed for that because there is one shard.
    pub fn wait_for_all(&mut self, who: Who) {
        let all: Vec<u64> = self.keys.keys().copied().collect();
        self.wait(who, HoldMode::Exclusive, all.into_iter());
    }

    /// A job holds `key` for the request that has started it, which was let in; `release` ends that.
    pub fn hold_for_job(&mut self, mode: HoldMode, key: u64) {
        self.hold(key, mode);
    }

    /// Holds `key` for a blocked client whose worker has yet to ask for it: whoever calls has it or found it free.
    pub fn reserve(&mut self, key: u64) -> Passage {
        self.hold(key, HoldMode::Exclusive);
        Passage { mode: HoldMode::Exclusive, keys: vec![key] }
    }

    /// A lend asks for `keys`, some of which are reserved for it. If the others are free the reservation becomes a part of its hold,
    /// else it ends and the lend asks as any other.
    pub fn ask_reserved(
        &mut self,
        reserved: Passage,
        who: (ShardId, LendId),
        mode: HoldMode,
        may_wait: bool,
        keys: impl Iterator<Item = u64> + Clone,
        freed: &mut Vec<Freed>,
    ) -> Admission {
        let is_other = |key: &u64| !reserved.keys.contains(key);
        let others: Vec<u64> = unique(keys.clone()).into_iter().filter(is_other).collect();
        let are_covered = reserved.keys.iter().all(|key| keys.clone().any(|asked| asked == *key));
        if !are_covered || !self.admits(mode, others.iter().copied()) {
            self.ran(reserved, freed);
            return self.ask(who, mode, may_wait, keys);
        }
        others.into_iter().for_each(|key| self.hold(key, mode));
        if mode == HoldMode::Shared {
            for key in &reserved.keys {
                self.hold(*key, mode);
            }
            self.ran(reserved, freed);
        }
        Admission::Granted
    }

    /// Makes a keyless request wait behind the gate.
    pub fn wait_at_gate(&mut self, who: Who) {
        self.n_waits += 1;
        self.gate.push_back(Waiter { who, mode: HoldMode::Shared, keys: Vec::new() });
    }

    /// Whether a request on `keys` may run now. It holds nothing: it runs at once.
    pub fn admits(&self, mode: HoldMode, keys: impl Iterator<Item = u64>) -> bool {
        self.admits_keyless() && self.are_free(mode, keys)
    }

    /// Whether nobody holds against `mode` or waits on any of `keys`; the gate apart.
    pub fn are_free(&self, mode: HoldMode, mut keys: impl Iterator<Item = u64>) -> bool {
        keys.all(|key| self.keys.get(&key).is_none_or(|hold| hold.queue.is_empty() && hold.admits(mode)))
    }

    /// Queues a request that `admits` has refused.
    pub fn wait(&mut self, who: Who, mode: HoldMode, keys: impl Iterator<Item = u64>) {
        self.queue(Waiter::new(who, mode, keys));
    }

    /// A lend asks for `keys`. `Try` never waits.
    pub fn ask(
        &mut self,
        who: (ShardId, LendId),
        mode: HoldMode,
        may_wait: bool,
        keys: impl Iterator<Item = u64> + Clone,
    ) -> Admission {
        let keys = unique(keys).into_iter();
        if self.admits(mode, keys.clone()) && (mode != HoldMode::Whole || self.is_empty()) {
            if mode == HoldMode::Whole {
                self.whole = Some(who);
            } else {
                for key in keys {
                    self.hold(key, mode);
                }
            }
            return Admission::Granted;
        }
        if !may_wait {
            return Admission::Refused;
        }
        self.queue(Waiter::new(Who::Lend(who.0, who.1), mode, keys));
        Admission::Waits
    }

    /// No key is held or waited for, and no freed request has yet to run: a whole-shard lend may begin.
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.n_keyless == 0
    }

    fn queue(&mut self, waiter: Waiter) {
        self.n_waits += 1;
        if waiter.mode == HoldMode::Whole || !self.admits_keyless() {
            self.gate.push_back(waiter);
        } else {
            self.enqueue(waiter);
        }
    }

    fn hold(&mut self, key: u64, mode: HoldMode) {
        let hold = self.keys.entry(key).or_default();
        match mode {
            HoldMode::Shared => hold.n_shared += 1,
            HoldMode::Exclusive | HoldMode::Whole => {
                hold.n_exclusive += 1;
                self.n_exclusive += 1;
            }
        }
        self.n_held += 1;
    }

    fn enqueue(&mut self, waiter: Waiter) {
        let id = self.free_waiters.pop().unwrap_or_else(|| {
            self.waiters.push(None);
            self.waiters.len() - 1
        });
        for key in &waiter.keys {
            self.keys.entry(*key).or_default().queue.push_back(id);
        }
        self.waiters[id] = Some(waiter);
    }

    /// A lend gives `keys` back. Those set free are appended to `freed`.
    pub fn release(&mut self, mode: HoldMode, keys: impl Iterator<Item = u64>, freed: &mut Vec<Freed>) {
        if mode == HoldMode::Whole {
            self.whole = None;
        } else {
            let mut touched = Vec::new();
            for key in unique(keys) {
                let Some(hold) = self.keys.get_mut(&key) else {
                    debug_assert!(false, "a key is given back that nobody holds");
                    continue;
                };
                match mode {
                    HoldMode::Shared => hold.n_shared -= 1,
                    HoldMode::Exclusive | HoldMode::Whole => {
                        hold.n_exclusive -= 1;
                        self.n_exclusive -= 1;
                    }
                }
                self.n_held -= 1;
                if hold.queue.is_empty() {
                    if hold.is_free() {
                        self.keys.remove(&key);
                    }
                } else {
                    touched.push(key);
                }
            }
            self.grant_waiters(touched, freed);
        }
        self.open_gate(freed);
    }

    /// A freed request has run (or is gone).
    pub fn ran(&mut self, passage: Passage, freed: &mut Vec<Freed>) {
        if passage.keys.is_empty() {
            self.n_keyless -= 1;
        }
        self.release(passage.mode, passage.keys.iter().copied(), freed);
    }

    /// Grants what has come to the front of all its queues, from the keys in `work` on.
    fn grant_waiters(&mut self, mut work: Vec<u64>, freed: &mut Vec<Freed>) {
        while let Some(key) = work.pop() {
            let Some(hold) = self.keys.get(&key) else { continue };
            let Some(&id) = hold.queue.front() else {
                if hold.is_free() {
                    self.keys.remove(&key);
                }
                continue;
            };
            let waiter = self.waiters[id].as_ref().expect("a queued waiter exists");
            let may_run = waiter.keys.iter().all(|key| {
                let hold = &self.keys[key];
                hold.queue.front() == Some(&id) && hold.admits(waiter.mode)
            });
            if !may_run {
                continue;
            }
            let waiter = self.waiters[id].take().expect("a queued waiter exists");
            self.free_waiters.push(id);
            for key in &waiter.keys {
                self.keys.get_mut(key).expect("a waited-for key has an entry").queue.pop_front();
            }
            // Others may wait behind it with a mode that goes along.
            work.extend(waiter.keys.iter().copied());
            self.grant(waiter, freed);
        }
    }

    /// Holds a waiter's keys for it and sets it free.
    fn grant(&mut self, waiter: Waiter, freed: &mut Vec<Freed>) {
        for key in &waiter.keys {
            self.hold(*key, waiter.mode);
        }
        freed.push(match waiter.who {
            Who::Request(client) => {
                self.n_keyless += usize::from(waiter.keys.is_empty());
                Freed::Request(client, Passage { mode: waiter.mode, keys: waiter.keys })
            }
            Who::Blocked(client) => Freed::Blocked(client, Passage { mode: waiter.mode, keys: waiter.keys }),
            Who::Lend(shard, lend) => Freed::Lend(shard, lend),
        });
    }

    /// Lets in what waits at the gate, up to the next whole-shard lend, which goes when the shard is empty.
    fn open_gate(&mut self, freed: &mut Vec<Freed>) {
        while self.whole.is_none()
            && let Some(front) = self.gate.front()
        {
            if front.mode == HoldMode::Whole && !self.is_empty() {
                return;
            }
            let waiter = self.gate.pop_front().expect("the front was just seen");
            match (waiter.mode, waiter.who) {
                (HoldMode::Whole, Who::Lend(shard, lend)) => {
                    self.whole = Some((shard, lend));
                    freed.push(Freed::Lend(shard, lend));
                }
                (HoldMode::Whole, Who::Request(_) | Who::Blocked(_)) => {
                    unreachable!("requests never ask for a whole shard")
                }
                (mode, _) if self.are_free(mode, waiter.keys.iter().copied()) => self.grant(waiter, freed),
                _ => self.enqueue(waiter),
            }
        }
    }

    /// Forgets the waiting request of a client that is gone, or a blocked client that is not to be served any more. Holds of lends
    /// are never forgotten: they complete.
    pub fn forget(&mut self, who: Who, freed: &mut Vec<Freed>) {
        self.gate.retain(|waiter| waiter.who != who);
        let gone: Vec<WaiterId> = (0..self.waiters.len())
            .filter(|&id| self.waiters[id].as_ref().is_some_and(|w| w.who == who))
            .collect();
        for id in gone {
            let waiter = self.waiters[id].take().expect("found just now");
            self.free_waiters.push(id);
            for key in &waiter.keys {
                self.keys.get_mut(key).expect("a waited-for key has an entry").queue.retain(|&w| w != id);
            }
            self.grant_waiters(waiter.keys, freed);
        }
        self.open_gate(freed);
    }

    /// Whether somebody holds `key` for reading.
    pub fn is_shared(&self, key: u64) -> bool {
        self.keys.get(&key).is_some_and(|hold| hold.n_shared > 0)
    }

    /// Keys held now, and freed requests without keys.
    pub fn n_held(&self) -> usize {
        self.n_held + self.n_keyless
    }
}

/// Each hash once: two names of one hash are one to hold, and one to give back.
fn unique(keys: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Waiter {
    fn new(who: Who, mode: HoldMode, keys: impl Iterator<Item = u64>) -> Self {
        Self { who, mode, keys: unique(keys) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 1;
    const B: u64 = 2;

    fn lend(n: u64) -> (ShardId, LendId) {
        (ShardId(0), LendId(n))
    }

    #[test]
    fn waiters_are_served_in_order_and_nobody_overtakes() {
        let mut holds = Holds::default();
        let client = ClientId(1);
        assert_eq!(holds.ask(lend(1), HoldMode::Exclusive, false, [A, B].into_iter()), Admission::Granted);
        assert!(!holds.admits(HoldMode::Shared, [A].into_iter()));
        holds.wait(Who::Request(client), HoldMode::Shared, [A].into_iter());
        assert_eq!(holds.ask(lend(2), HoldMode::Exclusive, false, [A].into_iter()), Admission::Refused);
        assert_eq!(holds.ask(lend(3), HoldMode::Exclusive, true, [A, B].into_iter()), Admission::Waits);
        let mut freed = Vec::new();
        holds.release(HoldMode::Exclusive, [A, B].into_iter(), &mut freed);
        assert_eq!(ran(&mut holds, &mut freed), [client]);
        assert_eq!(freed, [Freed::Lend(ShardId(0), LendId(3))]);
        freed.clear();
        holds.release(HoldMode::Exclusive, [A, B].into_iter(), &mut freed);
        assert!(freed.is_empty() && holds.is_idle());
    }

    /// Two names of one hash in one lend (an exclusive hold was given back twice).
    #[test]
    fn a_hash_is_held_once() {
        let mut holds = Holds::default();
        assert_eq!(holds.ask(lend(1), HoldMode::Exclusive, false, [A, A, B].into_iter()), Admission::Granted);
        let mut freed = Vec::new();
        holds.release(HoldMode::Exclusive, [A, A, B].into_iter(), &mut freed);
        assert!(holds.is_idle() && holds.admits_viewer());
    }

    #[test]
    fn shared_holds_stand_side_by_side() {
        let mut holds = Holds::default();
        for n in 0..3 {
            assert_eq!(holds.ask(lend(n), HoldMode::Shared, false, [A].into_iter()), Admission::Granted);
        }
        assert!(holds.admits(HoldMode::Shared, [A].into_iter()));
        assert!(!holds.admits(HoldMode::Exclusive, [A].into_iter()));
        holds.wait(Who::Request(ClientId(5)), HoldMode::Exclusive, [A].into_iter());
        // A reader that comes after a waiting writer queues behind it.
        assert!(!holds.admits(HoldMode::Shared, [A].into_iter()));
        let mut freed = Vec::new();
        for n in 0..3 {
            assert!(freed.is_empty(), "still {} readers", 3 - n);
            holds.release(HoldMode::Shared, [A].into_iter(), &mut freed);
        }
        assert_eq!(ran(&mut holds, &mut freed), [ClientId(5)]);
        assert!(holds.is_idle());
    }

    #[test]
    fn a_whole_shard_lend_waits_for_keys_and_stops_newcomers() {
        let mut holds = Holds::default();
        assert_eq!(holds.ask(lend(1), HoldMode::Exclusive, false, [A].into_iter()), Admission::Granted);
        let none = || std::iter::empty::<u64>();
        assert_eq!(holds.ask(lend(2), HoldMode::Whole, false, none()), Admission::Refused);
        assert_eq!(holds.ask(lend(2), HoldMode::Whole, true, none()), Admission::Waits);
        assert!(!holds.admits(HoldMode::Shared, [B].into_iter()) && !holds.admits_keyless());
        holds.wait(Who::Request(ClientId(7)), HoldMode::Shared, [B].into_iter());
        let mut freed = Vec::new();
        holds.release(HoldMode::Exclusive, [A].into_iter(), &mut freed);
        assert_eq!(freed, [Freed::Lend(ShardId(0), LendId(2))]);
        freed.clear();
        holds.release(HoldMode::Whole, none(), &mut freed);
        assert_eq!(ran(&mut holds, &mut freed), [ClientId(7)]);
        assert!(holds.is_idle());
    }

    #[test]
    fn a_waiter_that_goes_away_lets_the_next_one_through() {
        let mut holds = Holds::default();
        assert_eq!(holds.ask(lend(1), HoldMode::Shared, false, [A].into_iter()), Admission::Granted);
        holds.wait(Who::Request(ClientId(1)), HoldMode::Exclusive, [A].into_iter());
        holds.wait(Who::Request(ClientId(2)), HoldMode::Shared, [A].into_iter());
        let mut freed = Vec::new();
        holds.forget(Who::Request(ClientId(1)), &mut freed);
        assert_eq!(ran(&mut holds, &mut freed), [ClientId(2)]);
    }

    /// A gate that let one in at a time sent each back to its end when others stood behind it, for ever.
    #[test]
    fn all_that_wait_at_the_gate_get_in() {
        let mut holds = Holds::default();
        let none = || std::iter::empty::<u64>();
        assert_eq!(holds.ask(lend(1), HoldMode::Whole, false, none()), Admission::Granted);
        holds.wait(Who::Request(ClientId(1)), HoldMode::Exclusive, [A].into_iter());
        holds.wait_at_gate(Who::Request(ClientId(2)));
        holds.wait(Who::Request(ClientId(3)), HoldMode::Shared, [B].into_iter());
        assert_eq!(holds.ask(lend(2), HoldMode::Whole, true, none()), Admission::Waits);
        holds.wait(Who::Request(ClientId(4)), HoldMode::Shared, [B].into_iter());
        let mut freed = Vec::new();
        holds.release(HoldMode::Whole, none(), &mut freed);
        assert_eq!(ran(&mut holds, &mut freed), [ClientId(1), ClientId(2), ClientId(3)]);
        assert_eq!(freed, [Freed::Lend(ShardId(0), LendId(2))]);
        freed.clear();
        holds.release(HoldMode::Whole, none(), &mut freed);
        assert_eq!(ran(&mut holds, &mut freed), [ClientId(4)]);
        assert!(holds.is_idle() && holds.n_held() == 0);
    }

    /// Between its grant and its run a request is in nobody's queue: only its passage keeps a lend from its keys.
    #[test]
    fn a_freed_request_keeps_its_keys_until_it_has_run() {
        let mut holds = Holds::default();
        let none = || std::iter::empty::<u64>();
        assert_eq!(holds.ask(lend(1), HoldMode::Exclusive, false, [A].into_iter()), Admission::Granted);
        holds.wait(Who::Request(ClientId(1)), HoldMode::Exclusive, [A].into_iter());
        let mut freed = Vec::new();
        holds.release(HoldMode::Exclusive, [A].into_iter(), &mut freed);
        assert_eq!(holds.ask(lend(2), HoldMode::Exclusive, false, [A].into_iter()), Admission::Refused);
        assert_eq!(holds.ask(lend(2), HoldMode::Whole, false, none()), Admission::Refused);
        assert_eq!(ran(&mut holds, &mut freed), [ClientId(1)]);
        assert_eq!(holds.ask(lend(2), HoldMode::Exclusive, false, [A].into_iter()), Admission::Granted);
    }

    /// Runs the requests in `freed` and leaves the lends; the clients that ran.
    fn ran(holds: &mut Holds, freed: &mut Vec<Freed>) -> Vec<ClientId> {
        let mut clients = Vec::new();
        let mut lends = Vec::new();
        while !freed.is_empty() {
            match freed.remove(0) {
                Freed::Request(client, passage) => {
                    clients.push(client);
                    holds.ran(passage, freed);
                }
                Freed::Lend(shard, lend) => lends.push(Freed::Lend(shard, lend)),
                Freed::Blocked(..) => panic!("nobody is blocked here"),
            }
        }
        *freed = lends;
        clients
    }
}
