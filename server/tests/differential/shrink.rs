//! Makes a difference short: replays parts of the program on emptied servers while the difference stays.

use super::draw::Step;
use super::run::{Difference, Pair};
use super::support::server::Server;
use super::support::shrink::shrunk;
use super::support::words;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const MAX_REPLAYS: usize = 400;
const MAX_STEPS_SHOWN: usize = 60;

/// The shortest program found that still shows a difference, or the tail that concerns its keys.
pub(crate) fn report(ours: &mut Server, theirs: &Server, program: &[Step], found: &Difference) -> String {
    let failing = &program[found.at];
    let mut text = format!("at command {}: {}{}\n", found.at, words::show(&failing.argv), found.what);
    let prefix = &program[..=found.at];
    let related = related(prefix, failing);
    if found.is_silence {
        let _ = writeln!(
            text,
            "ours is {}; its log:\n{}",
            if ours.is_alive() { "alive" } else { "dead" },
            ours.log_tail()
        );
        let _ = writeln!(text, "the commands before it on its keys:");
        show(&related, &mut text);
        return text;
    }
    let mut replays = MAX_REPLAYS;
    for start in [related.clone(), prefix.to_vec()] {
        if let Some(what) = differs(ours, theirs, &start) {
            let (steps, what) = shrunk(start, what, &mut replays, |steps| differs(ours, theirs, steps));
            let _ = writeln!(text, "shrunk to {} commands (connection 1 speaks RESP3):", steps.len());
            show(&steps, &mut text);
            let _ = writeln!(text, "with the difference {what}");
            return text;
        }
    }
    let _ = writeln!(text, "not seen again on a replay; the commands before it on its keys:");
    show(&related, &mut text);
    text
}

fn differs(ours: &Server, theirs: &Server, steps: &[Step]) -> Option<String> {
    let found = Pair::new(ours, theirs).run(steps).err()?;
    Some(format!("at {}: {}", words::show(&steps[found.at].argv), found.what))
}

/// The steps that share an argument with the failing one, directly or through the keys of those, and the wide ones.
fn related(prefix: &[Step], failing: &Step) -> Vec<Step> {
    let mut words: BTreeSet<&[u8]> = failing.argv[1..].iter().map(Vec::as_slice).collect();
    let is_key =
        |word: &[u8]| word.len() <= 6 && word.iter().any(u8::is_ascii_digit) && !word[0].is_ascii_digit();
    words.retain(|w| !w.is_empty() && is_key(w));
    let is_wide = |step: &Step| {
        let name = step.argv[0].to_ascii_uppercase();
        matches!(
            &name[..],
            b"SELECT" | b"SWAPDB" | b"FLUSHDB" | b"FLUSHALL" | b"MULTI" | b"EXEC" | b"DISCARD"
        )
    };
    let shares = |step: &&Step| is_wide(step) || step.argv.iter().any(|a| words.contains(a.as_slice()));
    prefix.iter().filter(shares).cloned().collect()
}

fn show(steps: &[Step], text: &mut String) {
    if steps.len() > MAX_STEPS_SHOWN {
        let _ = writeln!(text, "  ... {} before", steps.len() - MAX_STEPS_SHOWN);
    }
    for step in &steps[steps.len().saturating_sub(MAX_STEPS_SHOWN)..] {
        let _ = writeln!(text, "  {}> {}", step.conn, words::show(&step.argv));
    }
}
