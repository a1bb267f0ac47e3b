//! Is there an order of the operations that explains a history? The search of Wing and Gong with Lowe's memoisation
//! ("Testing for linearizability", 2017), over whole transactions.
//!
//! A state of the search is (operations done, model); a state seen before is not searched again. Reads that answer as they did and
//! change nothing are taken at once: taking them earlier forbids nothing.

use std::collections::{BTreeMap, HashSet};

use skerry_resp::Value;

use crate::model::{Action, Content, Model, N_DATABASES, Word, normal};

/// One operation as it was seen from outside.
#[derive(Clone, Debug)]
pub struct Operation {
    pub client: usize,
    pub db: usize,
    pub action: Action,
    /// Step at which its last byte was handed in.
    pub invoked_at: usize,
    /// Step at which its reply came out, and the reply. `None`: the client was gone before; it may have happened or not.
    pub answer: Option<(usize, Value)>,
    /// It touches several shards: what it fills is not served in the same moment, and neither is it.
    pub is_spread: bool,
    /// Step at which its client went away.
    pub gone_at: Option<usize>,
    /// Operations (by index) of the same client that come before it by the order rule.
    pub after: Vec<usize>,
}

pub type FinalState = [BTreeMap<Word, Content>; N_DATABASES];

/// What the search found.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order, as indices of the operations that happened.
    Explained(Vec<usize>),
    /// The longest order that was found, and what the model would have answered next.
    Impossible(String),
    /// Too many states.
    GaveUp,
}

/// States after which the search gives up. No seed has needed a hundredth of it.
const MAX_STATES: usize = 3_000_000;

struct Search<'a> {
    operations: &'a [Operation],
    /// Bit set of the operations that have to be done before each one.
    before: Vec<u64>,
    /// Bits of the operations without an answer.
    optional: u64,
    end: &'a FinalState,
    seen: HashSet<(u64, u128)>,
    order: Vec<usize>,
    longest: (Vec<usize>, Model),
}

/// Looks for an order that explains every answer and ends in `end`.
pub fn explain(operations: &[Operation], n_clients: usize, end: &FinalState) -> Verdict {
    assert!(operations.len() <= 64, "a history fits a word");
    let mut before = vec![0u64; operations.len()];
    let mut optional = 0;
    for (i, operation) in operations.iter().enumerate() {
        for (j, earlier) in operations.iter().enumerate() {
            if earlier.answer.as_ref().is_some_and(|(at, _)| *at < operation.invoked_at) {
                before[i] |= 1 << j;
            }
        }
        for j in &operation.after {
            before[i] |= 1 << j;
        }
        if operation.answer.is_none() {
            optional |= 1 << i;
        }
    }
    let longest = (Vec::new(), Model::new(n_clients));
    let mut search =
        Search { operations, before, optional, end, seen: HashSet::new(), order: Vec::new(), longest };
    // Unanswered reads show nothing, whether they happened or not.
    let is_mute = |operation: &Operation| operation.answer.is_none() && is_read(&operation.action);
    let mute =
        (0..operations.len()).filter(|at| is_mute(&operations[*at])).fold(0u64, |bits, at| bits | 1 << at);
    match search.run(mute, Model::new(n_clients)) {
        Some(true) => Verdict::Explained(search.order),
        Some(false) => Verdict::Impossible(search.dead_end()),
        None => Verdict::GaveUp,
    }
}

impl Search<'_> {
    /// `None`: gave up.
    fn run(&mut self, mut done: u64, mut model: Model) -> Option<bool> {
        let start = self.order.len();
        self.take_reads(&mut done, &mut model);
        let all = if self.operations.len() == 64 { u64::MAX } else { (1 << self.operations.len()) - 1 };
        if done | self.optional == all && model.databases == *self.end {
            return Some(true);
        }
        if !self.seen.insert((done, model.digest())) {
            self.order.truncate(start);
            return Some(false);
        }
        if self.seen.len() > MAX_STATES {
            return None;
        }
        if self.order.len() > self.longest.0.len() {
            self.longest = (self.order.clone(), model.clone());
        }
        for at in self.candidates(done, &model) {
            let operation = &self.operations[at];
            let mut next = model.clone();
            let caller = (operation.client, operation.db);
            let step = next.begin(at, caller, &operation.action, operation.is_spread);
            if step.reply.as_ref().is_some_and(|reply| !self.agrees(at, reply.clone()))
                || !self.serves(&step.served, Some(operation.invoked_at))
            {
                continue;
            }
            let is_done = step.reply.is_some();
            let answered = step.served.iter().fold(u64::from(is_done) << at, |bits, (at, _)| bits | 1 << at);
            // What had to come first and has not happened will not happen any more.
            match self.go_on(at, done | answered | self.before[at], next) {
                Some(false) => {}
                found => return found,
            }
        }
        for at in model.servable() {
            let mut next = model.clone();
            let served = next.serve_late(at);
            if self.serves(&served, None) {
                match self.go_on(at, done | 1 << at, next) {
                    Some(false) => {}
                    found => return found,
                }
            }
        }
        for at in (0..self.operations.len()).filter(|at| model.waiting_bits() & 1 << at != 0) {
            if self.may_end(at) {
                let mut next = model.clone();
                next.end_wait(at);
                match self.go_on(at, done | 1 << at, next) {
                    Some(false) => {}
                    found => return found,
                }
            }
        }
        self.order.truncate(start);
        Some(false)
    }

    fn go_on(&mut self, at: usize, done: u64, next: Model) -> Option<bool> {
        self.order.push(at);
        let found = self.run(done, next);
        if found == Some(false) {
            self.order.pop();
        }
        found
    }

    /// Whether blocked operations may have been served so, by an operation begun then: the dead eat nothing.
    fn serves(&self, served: &[(usize, Value)], by: Option<usize>) -> bool {
        served.iter().all(|(at, reply)| {
            let is_dead = by.zip(self.operations[*at].gone_at).is_some_and(|(by, gone_at)| by > gone_at);
            self.agrees(*at, reply.clone()) && !(is_dead && matches!(reply, Value::Array(_) | Value::Bulk(_)))
        })
    }

    /// Whether a blocked operation may have ended without anybody's doing.
    fn may_end(&self, at: usize) -> bool {
        let operation = &self.operations[at];
        let Action::Command(argv) = &operation.action else { return false };
        match &operation.answer {
            None => true,
            Some((_, Value::NullArray)) => argv.last().is_some_and(|timeout| timeout != b"0"),
            Some(_) => false,
        }
    }

    /// Where the longest order ends, in words.
    fn dead_end(&self) -> String {
        let (order, model) = &self.longest;
        let done = order.iter().fold(0u64, |done, at| done | 1 << at | self.before[*at]);
        let mut text = format!("longest order: {order:?}; then the model would say:");
        let candidates = self.candidates(done, model);
        for at in &candidates {
            let operation = &self.operations[*at];
            let caller = (operation.client, operation.db);
            let step = model.clone().begin(*at, caller, &operation.action, operation.is_spread);
            let reply = step.reply.map_or_else(
                || "(blocked)".to_owned(),
                |reply| crate::cluster::plain(&normal(&operation.action, reply)),
            );
            text.push_str(&format!("\n  {at:2} {reply}, serving {:?}", step.served));
        }
        text.push_str(&format!("\n  blocked {:b}, servable {:?}", model.waiting_bits(), model.servable()));
        if candidates.is_empty() {
            text.push_str(&format!("\n  nothing; the model ends in {:?}", model.databases));
        }
        text
    }

    /// Operations that may come next, those that were answered first in front: mostly they happened in that order.
    fn candidates(&self, done: u64, model: &Model) -> Vec<usize> {
        let begun = done | model.waiting_bits();
        let mut next: Vec<usize> = (0..self.operations.len())
            .filter(|at| begun & (1 << at) == 0 && self.before[*at] & !done & !self.optional == 0)
            .collect();
        next.sort_by_key(|at| self.operations[*at].answer.as_ref().map_or(usize::MAX, |(step, _)| *step));
        next
    }

    fn agrees(&self, at: usize, reply: Value) -> bool {
        let operation = &self.operations[at];
        operation.answer.as_ref().is_none_or(|(_, seen)| *seen == normal(&operation.action, reply))
    }

    fn take_reads(&mut self, done: &mut u64, model: &mut Model) {
        loop {
            let taken = self.candidates(*done, model).into_iter().find(|&at| {
                let operation = &self.operations[at];
                operation.answer.is_some()
                    && self.before[at] & !*done == 0
                    && is_read(&operation.action)
                    && self.agrees(at, model.run(operation.client, operation.db, &operation.action))
            });
            let Some(at) = taken else { return };
            *done |= 1 << at;
            self.order.push(at);
        }
    }
}

/// Commands that leave the model as it is.
fn is_read(action: &Action) -> bool {
    match action {
        Action::Command(argv) => {
            // A script that may not write changes nothing, however it ends.
            matches!(
                &argv[0][..],
                b"EVAL_RO" | b"GET" | b"MGET" | b"EXISTS" | b"SMEMBERS" | b"PING" | b"LLEN" | b"LRANGE"
            )
        }
        Action::Transaction(_) => false,
    }
}
