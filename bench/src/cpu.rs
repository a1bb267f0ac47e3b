//! CPU time of a process and its threads, from `/proc/PID/stat` and `/proc/PID/task/TID/stat`.
//!
//! The process line covers all threads, also those that have ended. Times are in clock ticks: the kernel
//! keeps the sum exact and splits it into user and system by sampling, so a window of some seconds gives a
//! fair split.
//!
//! Must never know: whose process it is, or what it served.

use std::{fs, io};

/// Linux reports these files in USER_HZ ticks, 100 a second on every architecture that Rust's std supports.
pub const TICK_NS: u64 = 10_000_000;

/// CPU time used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user_ns: u64,
    pub system_ns: u64,
}

impl CpuTimes {
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { user_ns: self.user_ns + other.user_ns, system_ns: self.system_ns + other.system_ns }
    }
}

/// One thread's name and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCpu {
    pub tid: u32,
    pub name: String,
    pub times: CpuTimes,
}

/// The times of process `pid`, all its threads together.
pub fn of_process(pid: u32) -> io::Result<CpuTimes> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
    parse_stat(&text).map(|(_, times)| times).ok_or_else(|| malformed(&path))
}

/// The times of this process.
pub fn of_self() -> io::Result<CpuTimes> {
    of_process(std::process::id())
}

/// The times of every living thread of `pid`, by thread id.
pub fn of_threads(pid: u32) -> io::Result<Vec<ThreadCpu>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A thread may end between the listing and the read; it is then in the process's sum only.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let (name, times) =
            parse_stat(&text).ok_or_else(|| malformed(&entry.path().display().to_string()))?;
        threads.push(ThreadCpu { tid, name: name.to_owned(), times });
    }
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

fn malformed(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path}: not in the format of proc(5)"))
}

/// Reads name, utime and stime of one stat line. The name stands in parentheses and may itself hold blanks
/// and parentheses, so it ends at the last one.
fn parse_stat(line: &str) -> Option<(&str, CpuTimes)> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let name = line.get(open + 1..close)?;
    // proc(5) counts from 1: state is field 3 and the first after the name, utime 14, stime 15.
    let mut fields = line.get(close + 1..)?.split_ascii_whitespace().skip(11);
    let user_ticks: u64 = fields.next()?.parse().ok()?;
    let system_ticks: u64 = fields.next()?.parse().ok()?;
    Some((name, CpuTimes { user_ns: user_ticks * TICK_NS, system_ns: system_ticks * TICK_NS }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses() {
        let line = "42 (io ) thd (1) S 1 42 42 0 -1 4194560 100 0 0 0 1234 567 8 9 20 0 4 0 100 200 300\n";
        let (name, times) = parse_stat(line).expect("well-formed");
        assert_eq!(name, "io ) thd (1");
        assert_eq!(times, CpuTimes { user_ns: 12_340_000_000, system_ns: 5_670_000_000 });
    }

    #[test]
    fn a_short_or_foreign_line_is_refused() {
        for line in ["", "42", "42 (x) S 1 2 3", "42 (x) S 1 42 42 0 -1 4194560 100 0 0 0 a b 0"] {
            assert_eq!(parse_stat(line), None, "{line:?}");
        }
    }

    #[test]
    fn this_process_spends_time_and_lists_its_threads() {
        let before = of_self().expect("own stat");
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        // Until the kernel has charged at least two ticks to this process; bounded by the clock.
        while of_self().expect("own stat").since(before).total_ns() < 2 * TICK_NS {
            sum = (0..100_000u64).fold(sum, |a, b| a.wrapping_mul(31).wrapping_add(b));
            assert!(start.elapsed().as_secs() < 60, "no CPU time charged, {sum}");
        }
        assert!(!of_threads(std::process::id()).expect("own tasks").is_empty());
    }

    #[test]
    fn a_missing_process_is_an_error_that_names_the_file() {
        let error = of_process(u32::MAX).expect_err("no such process");
        assert!(error.to_string().contains("/proc/4294967295/stat"), "{error}");
    }
}
