//! The latency monitor: events that took `latency-monitor-threshold` milliseconds or more, as LATENCY tells them.
//!
//! Redis's classes that can occur here: `command` and `fast-command`. What Redis does in one go and tells as `expire-cycle`,
//! `eviction-cycle` or `fork` is cut into slices of a fraction of a millisecond here or does not exist.
//! Each class keeps its last `SAMPLES` samples, at most one a second (the worst).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;

/// Samples kept of a class.
const SAMPLES: usize = 160;
/// Width and height of a graph.
const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// Marks of a column's top, from low to high.
const MARKS: [u8; 3] = *b"_o#";

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at_s: i64,
    pub latency_ms: u64,
}

/// The samples of one class of events, oldest first.
#[derive(Debug, Default)]
pub struct Series {
    pub samples: std::collections::VecDeque<Sample>,
    pub max_ms: u64,
}

/// What DOCTOR says of a series.
struct Analysis {
    average_ms: u64,
    deviation_ms: u64,
    period_s: i64,
}

impl Series {
    fn add(&mut self, at_s: i64, latency_ms: u64) {
        self.max_ms = self.max_ms.max(latency_ms);
        if let Some(last) = self.samples.back_mut()
            && last.at_s == at_s
        {
            last.latency_ms = last.latency_ms.max(latency_ms);
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at_s, latency_ms });
    }

    fn analysis(&self, now_s: i64) -> Analysis {
        let n = self.samples.len().max(1) as u64;
        let average_ms = self.samples.iter().map(|sample| sample.latency_ms).sum::<u64>() / n;
        let deviations = self.samples.iter().map(|sample| sample.latency_ms.abs_diff(average_ms));
        let deviation_ms = deviations.sum::<u64>() / n;
        let oldest_s = self.samples.front().map_or(now_s, |sample| sample.at_s);
        Analysis { average_ms, deviation_ms, period_s: (now_s - oldest_s).max(1) }
    }

    /// LATENCY GRAPH's picture.
    pub fn graph(&self, event: &str, now_s: i64) -> Vec<u8> {
        let values = || self.samples.iter().map(|sample| sample.latency_ms);
        let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
        let title = format!(
            "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{:-<80}\n",
            self.max_ms, ""
        );
        let mut out = title.into_bytes();
        let samples: Vec<Sample> = self.samples.iter().copied().collect();
        for (nth, part) in samples.chunks(COLUMNS).enumerate() {
            if nth > 0 {
                out.push(b'\n');
            }
            draw(part, (low, high), now_s, &mut out);
        }
        out
    }
}

/// Rows of the picture of up to `COLUMNS` samples, then how long ago each was, downwards.
fn draw(samples: &[Sample], (low, high): (u64, u64), now_s: i64, out: &mut Vec<u8>) {
    let range = if high == low { 1.0 } else { (high - low) as f64 };
    let steps = MARKS.len() * ROWS;
    let step_of = |sample: &Sample| {
        let step = (sample.latency_ms - low) as f64 * steps as f64 / range;
        (step as usize).min(steps - 1)
    };
    for row in (0..ROWS).rev() {
        let floor = row * MARKS.len();
        out.extend(samples.iter().map(|sample| match step_of(sample) {
            step if step < floor => b' ',
            step if step - floor < MARKS.len() => MARKS[step - floor],
            _ => b'|',
        }));
        out.push(b'\n');
    }
    out.extend(std::iter::repeat_n(b' ', samples.len()));
    out.push(b'\n');
    let labels: Vec<String> = samples.iter().map(|sample| age(now_s - sample.at_s)).collect();
    for line in 0..labels.iter().map(String::len).max().unwrap_or(0) {
        out.extend(labels.iter().map(|label| label.as_bytes().get(line).copied().unwrap_or(b' ')));
        out.push(b'\n');
    }
}

fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// All classes.
#[derive(Default)]
pub struct LatencyMonitor {
    events: Mutex<BTreeMap<&'static str, Series>>,
}

impl LatencyMonitor {
    pub fn add(&self, event: &'static str, at_s: i64, latency_ms: u64) {
        self.events().entry(event).or_default().add(at_s, latency_ms);
    }

    pub fn events(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// LATENCY DOCTOR's report, in Redis's words.
    pub fn report(&self, config: &Config, now_s: i64) -> String {
        if config.latency_monitor_threshold == 0 {
            return DISABLED.to_owned();
        }
        let events = self.events();
        if events.is_empty() {
            return QUIET.to_owned();
        }
        let mut out = FOUND.to_owned();
        for (nth, (event, series)) in events.iter().enumerate() {
            let Analysis { average_ms, deviation_ms, period_s } = series.analysis(now_s);
            let n = series.samples.len();
            let period = period_s as f64 / n.max(1) as f64;
            let _ = writeln!(
                out,
                "{}. {event}: {n} latency spikes (average {average_ms}ms, mean deviation {deviation_ms}ms, \
                 period {period:.2} sec). Worst all time event {}ms.",
                nth + 1,
                series.max_ms
            );
        }
        advise(&events, config, &mut out);
        out
    }
}

fn advise(events: &BTreeMap<&'static str, Series>, config: &Config, out: &mut String) {
    let threshold_ms = config.latency_monitor_threshold;
    let slow_us = threshold_ms.saturating_mul(1000);
    out.push_str("\nI have a few advices for you:\n\n");
    if events.contains_key("command") {
        if config.slowlog_log_slower_than < 0 || config.slowlog_max_len == 0 {
            let _ = writeln!(
                out,
                "- There are latency issues with potentially slow commands you are using. Try to enable the Slow Log \
                 Redis feature using the command 'CONFIG SET slowlog-log-slower-than {slow_us}'. If the Slow log is \
                 disabled Redis is not able to log slow commands execution for you."
            );
        } else if config.slowlog_log_slower_than as u64 / 1000 > threshold_ms {
            let _ = writeln!(
                out,
                "- Your current Slow Log configuration only logs events that are slower than your configured latency \
                 monitor threshold. Please use 'CONFIG SET slowlog-log-slower-than {slow_us}'."
            );
        }
        out.push_str(INSPECT);
    }
    if events.contains_key("fast-command") {
        out.push_str(SCHEDULER);
    }
    if events.contains_key("command") {
        out.push_str(LARGE_OBJECTS);
    }
}

const DISABLED: &str = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd suggest to take a look at https://redis.io/docs/latest/operate/oss_and_stack/management/optimization/latency-monitor.\n";
const QUIET: &str = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I honestly think you ought to sit down calmly, take a stress pill, and think things over.\n";
const FOUND: &str = "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n";
const INSPECT: &str = "- Check your Slow Log to understand what are the commands you are running which are too slow to execute. Please check https://redis.io/commands/slowlog for more information.\n";
const LARGE_OBJECTS: &str = "- Deleting, expiring or evicting (because of maxmemory policy) large objects is a blocking operation. If you have very large objects that are often deleted, expired, or evicted, try to fragment those objects into multiple smaller objects.\n";
const SCHEDULER: &str = "- The system is slow to execute Redis code paths not containing system calls. This usually means the system does not provide Redis CPU time to run for long periods. You should try to:\n  1) Lower the system load.\n  2) Use a computer / VM just for Redis if you are running other software in the same system.\n  3) Check if you have a \"noisy neighbour\" problem.\n  4) Check with 'redis-cli --intrinsic-latency 100' what is the intrinsic latency in your system.\n  5) Check if the problem is allocator-related by recompiling Redis with MALLOC=libc, if you are using Jemalloc. However this may create fragmentation problems.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_a_second_and_no_more_than_fit() {
        let mut series = Series::default();
        series.add(1, 5);
        series.add(1, 9);
        series.add(1, 7);
        assert_eq!(series.samples, [Sample { at_s: 1, latency_ms: 9 }]);
        (2..400).for_each(|at_s| series.add(at_s, 3));
        assert_eq!((series.samples.len(), series.max_ms), (SAMPLES, 9));
        assert_eq!(series.samples[0].at_s, 240);
    }

    /// Pictures that Redis 8.2.3 drew.
    #[test]
    fn graphs_are_drawn_as_redis_draws_them() {
        let mut series = Series::default();
        series.add(10, 20);
        let line = "-".repeat(80);
        let one =
            format!("command - high 20 ms, low 20 ms (all time high 20 ms)\n{line}\n \n \n \n_\n \n0\ns\n");
        assert_eq!(String::from_utf8(series.graph("command", 10)).expect("text"), one);
        series.add(11, 40);
        series.add(12, 30);
        let three = format!(
            "x - high 40 ms, low 20 ms (all time high 40 ms)\n{line}\n # \n |_\n ||\n_||\n   \n210\nsss\n"
        );
        assert_eq!(String::from_utf8(series.graph("x", 12)).expect("text"), three);
    }
}
