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
        for at in self.candidates(done) {
            let operation = &self.operations[at];
            let mut next = model.clone();
            let reply = next.run(operation.client, operation.db, &operation.action);
            if !self.agrees(at, reply) {
                continue;
            }
            self.order.push(at);
            // What had to come first and has not happened will not happen any more.
            match self.run(done | 1 << at | self.before[at], next) {
                Some(false) => {}
                found => return found,
            }
            self.order.pop();
        }
        self.order.truncate(start);
        Some(false)
    }

    /// Where the longest order ends, in words.
    fn dead_end(&self) -> String {
        let (order, model) = &self.longest;
        let done = order.iter().fold(0u64, |done, at| done | 1 << at | self.before[*at]);
        let mut text = format!("longest order: {order:?}; then the model would say:");
        for at in self.candidates(done) {
            let operation = &self.operations[at];
            let reply = model.clone().run(operation.client, operation.db, &operation.action);
            text.push_str(&format!(
                "\n  {at:2} {}",
                crate::cluster::plain(&normal(&operation.action, reply))
            ));
        }
        if self.candidates(done).is_empty() {
            text.push_str(&format!("\n  nothing; the model ends in {:?}", model.databases));
        }
        text
    }

    /// Operations that may come next, those that were answered first in front: mostly they happened in that order.
    fn candidates(&self, done: u64) -> Vec<usize> {
        let mut next: Vec<usize> = (0..self.operations.len())
            .filter(|at| done & (1 << at) == 0 && self.before[*at] & !done & !self.optional == 0)
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
            let taken = self.candidates(*done).into_iter().find(|&at| {
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
            matches!(&argv[0][..], b"GET" | b"MGET" | b"EXISTS" | b"SMEMBERS" | b"PING")
        }
        Action::Transaction(_) => false,
    }
}
