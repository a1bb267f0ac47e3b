//! What the programs have met: commands by name, and who woke whom.

use super::author::Subject;
use super::rows;
use super::scripts::calls_in;
use super::support::reply::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// So many commands meet everything.
const FULL_SIZE: usize = 100_000;

/// Commands of one name, and how many of them were not answered by an error.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    n: usize,
    good: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) n_commands: usize,
    by_name: BTreeMap<String, Met>,
    in_transactions: BTreeMap<String, Met>,
    /// Scripts that ended without an error, by the commands that stand in them.
    in_scripts: BTreeMap<String, Met>,
    /// Waits that ended with what they waited for, by the command that waited.
    served: BTreeMap<String, usize>,
    /// The same by the command that filled the key.
    woken_by: BTreeMap<String, usize>,
    blocked: BTreeMap<String, usize>,
    pub(crate) served_together: usize,
    pub(crate) died: usize,
    unblocked: usize,
    aborted: usize,
}

impl Counts {
    /// Counts a command; one without a reply is blocked.
    pub(crate) fn count(&mut self, argv: &[Vec<u8>], reply: Option<&Reply>) {
        let name = name_of(argv);
        let is_good = reply.is_none_or(|reply| !reply.is_error());
        if reply.is_none() {
            *self.blocked.entry(name.clone()).or_default() += 1;
        }
        self.aborted += usize::from(name == "EXEC" && reply.is_some_and(Reply::is_null));
        self.count_calls(argv, is_good);
        add(&mut self.by_name, name, is_good);
    }

    /// Counts a command of a transaction that has run.
    pub(crate) fn count_queued(&mut self, argv: &[Vec<u8>], reply: &Reply) {
        self.count_calls(argv, !reply.is_error());
        add(&mut self.in_transactions, name_of(argv), !reply.is_error());
    }

    fn count_calls(&mut self, argv: &[Vec<u8>], is_good: bool) {
        for name in calls_in(argv) {
            add(&mut self.in_scripts, name, is_good);
        }
    }

    pub(crate) fn serve(&mut self, waited: &[Vec<u8>], by: &[Vec<u8>], reply: &Reply) {
        let by = name_of(by);
        if by == "CLIENT UNBLOCK" {
            self.unblocked += 1;
        } else if !reply.is_null() {
            *self.served.entry(name_of(waited)).or_default() += 1;
            *self.woken_by.entry(by).or_default() += 1;
        }
    }

    /// Nothing that is meant to be exercised has been left out.
    pub(crate) fn check(&self, subject: Subject, known: &BTreeSet<String>) {
        let zero = |what: &str, name: &str| format!("{what} {name}");
        let mut missing = Vec::new();
        let good = |map: &BTreeMap<String, Met>, name: &str| map.get(name).is_some_and(|met| met.good > 0);
        for name in rows::names(subject, known) {
            // For debugging alone, and it seldom meets its kind of value here: the test of one connection asks it.
            if name.starts_with("PFDEBUG") {
                continue;
            }
            if !good(&self.by_name, &name) {
                missing.push(zero("no good reply of", &name));
            }
            let is_called = subject == Subject::Queues && rows::is_for_scripts(&name);
            if is_called && !good(&self.in_scripts, &name) {
                missing.push(zero("in no script", &name));
            }
        }
        for (what, map, names) in [
            ("never blocked:", &self.blocked, rows::waiting(subject)),
            ("never served:", &self.served, rows::waiting(subject)),
            ("woke nobody:", &self.woken_by, rows::waking(subject)),
        ] {
            missing
                .extend(names.iter().filter(|name| !map.contains_key(**name)).map(|name| zero(what, name)));
        }
        for (what, n) in [
            ("served together", self.served_together),
            ("died blocked", self.died),
            ("unblocked", self.unblocked),
            ("aborted by WATCH", self.aborted),
        ] {
            if n == 0 {
                missing.push(zero("never", what));
            }
        }
        if self.n_commands < FULL_SIZE {
            println!("too few commands to ask for all; not met: {}", missing.join(", "));
            let met = [self.served.len(), self.woken_by.len(), self.in_transactions.len(), self.unblocked];
            assert!(met.iter().all(|n| *n > 0), "the programs meet too little");
        } else {
            assert!(missing.is_empty(), "the programs meet too little: {}", missing.join(", "));
        }
    }
}

fn add(map: &mut BTreeMap<String, Met>, name: String, is_good: bool) {
    let met = map.entry(name).or_default();
    met.n += 1;
    met.good += usize::from(is_good);
}

/// The name of a command, with its subcommand if it is one of several.
pub(crate) fn name_of(argv: &[Vec<u8>]) -> String {
    let upper = |word: &Vec<u8>| String::from_utf8_lossy(word).to_ascii_uppercase();
    let name = upper(&argv[0]);
    let has_subcommand =
        matches!(name.as_str(), "CLIENT" | "SCRIPT" | "XGROUP" | "XINFO" | "OBJECT" | "MEMORY" | "PFDEBUG");
    match argv.get(1) {
        Some(word) if has_subcommand => format!("{name} {}", upper(word)),
        _ => name,
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} commands; died blocked {}, unblocked {}, several served by one command {}, EXEC aborted by WATCH {}",
            self.n_commands, self.died, self.unblocked, self.served_together, self.aborted
        )?;
        for (what, map) in [
            ("commands (not an error)", &self.by_name),
            ("in transactions", &self.in_transactions),
            ("in scripts (of those that ended well)", &self.in_scripts),
        ] {
            write!(f, "{what}:")?;
            for (name, met) in map {
                write!(f, " {name} {} ({}),", met.n, met.good)?;
            }
            writeln!(f)?;
        }
        writeln!(f, "blocked: {:?}", self.blocked)?;
        writeln!(f, "served: {:?}", self.served)?;
        writeln!(f, "woken by: {:?}", self.woken_by)
    }
}
