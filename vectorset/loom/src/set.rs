//! The models of the set as it is.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::epoch::{Domain, Limbo};
use crate::links::{self, EMPTY};

/// Two ids: 0 is the entry and stays, 1 comes and goes.
pub(crate) struct Graph {
    pub(crate) slots: [AtomicU32; 2],
    pub(crate) rows: [UnsafeCell<u32>; 2],
    pub(crate) version: AtomicU32,
}

// SAFETY: the model watches the cells.
unsafe impl Sync for Graph {}
// SAFETY: as above.
unsafe impl Send for Graph {}

impl Graph {
    pub(crate) fn new() -> Graph {
        Graph {
            slots: [AtomicU32::new(EMPTY), AtomicU32::new(EMPTY)],
            rows: [UnsafeCell::new(0), UnsafeCell::new(0)],
            version: AtomicU32::new(0),
        }
    }

    /// Writer: a row for an id that no reader knows.
    pub(crate) fn write(&self, id: u32, row: u32) {
        // SAFETY: the model fails if anybody reads it meanwhile.
        self.rows[id as usize].with_mut(|cell| unsafe { *cell = row });
    }

    pub(crate) fn read(&self, id: u32) -> u32 {
        // SAFETY: the model fails if anybody writes it meanwhile.
        self.rows[id as usize].with(|cell| unsafe { *cell })
    }

    pub(crate) fn note_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A node is written, linked, unlinked, and its id used again, beside a reader that follows links: the reader meets whole
/// rows only.
#[test]
fn a_linked_row_is_whole_and_an_id_is_used_again_after_its_readers() {
    check(|| {
        let (domain, graph) = (Domain::new(1), Arc::new(Graph::new()));
        let reader = {
            let (domain, graph) = (domain.clone(), graph.clone());
            thread::spawn(move || {
                let participant = domain.register().expect("one place");
                for _ in 0..2 {
                    let guard = participant.pin();
                    for neighbor in links::iter(&graph.slots) {
                        let row = graph.read(neighbor);
                        assert!(row == 7 || row == 8, "a row that was never written");
                        assert_eq!(graph.read(neighbor), row, "a row changes under its reader");
                    }
                    drop(guard);
                }
            })
        };
        let mut limbo = Limbo::new();
        graph.write(1, 7);
        links::append(&graph.slots, 1);
        links::take_out(&graph.slots, 1);
        limbo.push(&domain, 1_u32);
        let mut free = None;
        limbo.collect(&domain, 1, |id| free = Some(id));
        if let Some(id) = free {
            graph.write(id, 8);
            links::append(&graph.slots, id);
        }
        reader.join().expect("the reader ends");
        limbo.collect(&domain, 1, |id| free = Some(id));
        assert_eq!(free, Some(1), "nobody reads any more");
    });
}

/// A suspended reading keeps what it saw, over the end of its pin and into another slice.
#[test]
fn a_hold_keeps_an_id_between_two_slices() {
    check(|| {
        let (domain, graph) = (Domain::new(1), Arc::new(Graph::new()));
        graph.write(1, 7);
        links::append(&graph.slots, 1);
        let reader = {
            let (domain, graph) = (domain.clone(), graph.clone());
            thread::spawn(move || {
                let participant = domain.register().expect("one place");
                let guard = participant.pin();
                let seen = links::iter(&graph.slots).next();
                let hold = guard.hold();
                drop(guard);
                let guard = participant.pin();
                if let Some(id) = seen {
                    assert_eq!(graph.read(id), 7, "an id means something else in the second slice");
                }
                drop(guard);
                drop(hold);
            })
        };
        let mut limbo = Limbo::new();
        links::take_out(&graph.slots, 1);
        limbo.push(&domain, 1_u32);
        let mut free = None;
        limbo.collect(&domain, 1, |id| free = Some(id));
        if let Some(id) = free {
            graph.write(id, 8);
        }
        reader.join().expect("the reader ends");
        limbo.collect(&domain, 1, |id| free = Some(id));
        assert_eq!(free, Some(1), "nobody reads any more");
    });
}

/// A plan whose version still stands at the commit saw the list as it is.
#[test]
fn a_version_that_stands_vouches_for_the_list() {
    check(|| {
        let graph = Arc::new(Graph::new());
        let planner = {
            let graph = graph.clone();
            thread::spawn(move || {
                let version = graph.version.load(Ordering::Acquire);
                (version, links::iter(&graph.slots).collect::<Vec<_>>())
            })
        };
        graph.write(0, 1);
        links::append(&graph.slots, 0);
        graph.note_change();
        graph.write(1, 1);
        links::append(&graph.slots, 1);
        graph.note_change();
        links::take_out(&graph.slots, 0);
        graph.note_change();
        let (version, seen) = planner.join().expect("the planner ends");
        if graph.version.load(Ordering::Relaxed) == version {
            assert_eq!(seen, links::iter(&graph.slots).collect::<Vec<_>>(), "a plan from another list");
        }
    });
}

/// While links move within a list, a reader meets only ids that are linked at some time, and one that stays.
#[test]
fn a_reader_of_a_list_that_is_changed_meets_linked_ids_only() {
    check(|| {
        let graph = Arc::new(Graph::new());
        graph.write(0, 7);
        links::append(&graph.slots, 0);
        let reader = {
            let graph = graph.clone();
            thread::spawn(move || {
                for id in links::iter(&graph.slots) {
                    assert_eq!(graph.read(id), 7, "a row that was never written");
                }
            })
        };
        graph.write(1, 7);
        links::append(&graph.slots, 1);
        links::take_out(&graph.slots, 0);
        reader.join().expect("the reader ends");
    });
}
