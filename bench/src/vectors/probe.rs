//! Requests at a fixed rate on one connection, and how long each waited.
//!
//! A request that is due while an earlier one is unanswered is counted from when it was due: a stall meets every
//! request that a steady client would have sent in it, not one (no coordinated omission).

use super::wrong;
use crate::question::{Questioner, value_or_error};
use crate::stats::CommandStats;
use skerry_resp::value::Value;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Sends what `encode` gives for request 0, 1, ... at `per_s` a second until `time` is up or it gives nothing.
pub(super) fn at_rate(
    questioner: &mut Questioner,
    per_s: f64,
    time: Duration,
    mut encode: impl FnMut(u64, &mut Vec<u8>) -> bool,
    check: impl Fn(&Value) -> bool,
) -> io::Result<CommandStats> {
    let mut stats = CommandStats::default();
    let mut request = Vec::new();
    let start = Instant::now();
    for index in 0.. {
        let due = start + Duration::from_secs_f64(index as f64 / per_s);
        request.clear();
        if due - start >= time || start.elapsed() >= time || !encode(index, &mut request) {
            break;
        }
        let mut counted_from = due;
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
            // The timer's lateness is this client's, not the server's.
            counted_from = Instant::now();
        }
        questioner.send(&request)?;
        let reply = value_or_error(questioner.receive()?).map_err(wrong)?;
        if !check(&reply) {
            return Err(wrong(format!("request {index}: the reply is {reply:?}")));
        }
        stats.n_ops += 1;
        stats.record_latency(counted_from.elapsed().as_nanos() as u64, 1);
    }
    Ok(stats)
}
