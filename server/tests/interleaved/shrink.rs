//! Makes a difference short: replays parts of the program on emptied servers while the difference stays.

use super::counts::Counts;
use super::draw::Step;
use super::pair::{Failure, Pair};
use super::support::server::Server;
use super::support::shrink::shrunk;
use super::words;
use std::fmt::Write as _;

const MAX_REPLAYS: usize = 300;

/// The shortest program found that still shows a difference.
pub(crate) fn report(
    (ours, theirs): (&mut Server, &Server),
    seed: u64,
    program: &[Step],
    found: &Failure,
) -> String {
    let mut text = format!("{}\n", found.what);
    let mut steps = program.to_vec();
    let mut what = found.what.clone();
    if !ours.is_alive() {
        let _ = writeln!(text, "ours is dead; its log:\n{}", ours.log_tail());
    } else if !found.is_silence {
        let mut replays = MAX_REPLAYS;
        match differs((ours, theirs), seed, &steps) {
            Some(now) => {
                let again = |steps: &[Step]| differs((ours, theirs), seed, steps);
                (steps, what) = shrunk(steps, now, &mut replays, again);
            }
            None => text.push_str("not seen again on a replay\n"),
        }
    }
    let _ = writeln!(text, "{} commands (connection 1 speaks RESP3):", steps.len());
    for step in &steps {
        let _ = writeln!(text, "  {}> {}", step.conn, words::show(&step.argv));
    }
    let _ = writeln!(text, "with the difference {what}");
    text
}

fn differs(servers: (&Server, &Server), seed: u64, steps: &[Step]) -> Option<String> {
    let mut pair = Pair::new(seed, servers);
    let mut counts = Counts::default();
    for step in steps {
        if let Err(failure) = pair.run(step, &mut counts) {
            return Some(format!("at {}: {}", words::show(&step.argv), failure.what));
        }
    }
    pair.finish().err().map(|failure| failure.what)
}
