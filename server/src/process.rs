//! What the operating system says of this process: CPU time, resident memory, open files, machine. For INFO and
//! MEMORY, read on request only; and for the start, which needs a file for each client.

use std::fs;

/// CPU seconds of the process or of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

/// Whose CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Process,
    Children,
    ThisThread,
}

pub fn cpu_time(whose: Whose) -> CpuTime {
    let who = match whose {
        Whose::Process => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
        Whose::ThisThread => libc::RUSAGE_THREAD,
    };
    // SAFETY: `rusage` is a plain C struct for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage for the duration of the call, and `who` is one of the call's
    // constants.
    let failed = unsafe { libc::getrusage(who, &mut usage) };
    assert_eq!(failed, 0, "getrusage fails only on bad arguments");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    CpuTime { user_s: seconds(usage.ru_utime), system_s: seconds(usage.ru_stime) }
}

/// Files that this process may open from here on: at least `wanted` if the system lets it, and never less than before.
pub fn raise_open_files(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the duration of the call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(failed, 0, "getrlimit fails only on bad arguments");
    if limit.rlim_cur >= wanted {
        return limit.rlim_cur;
    }
    // Beyond the hard limit for those who may (root), up to it for the others.
    for hard in [limit.rlim_max.max(wanted), limit.rlim_max] {
        let raised = libc::rlimit { rlim_cur: wanted.min(hard), rlim_max: hard };
        // SAFETY: `raised` is a valid rlimit for the duration of the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            return raised.rlim_cur;
        }
    }
    limit.rlim_cur
}

/// Open files that are no clients: listeners, log, signals, and as much again for what is to come.
const RESERVED_FILES: u32 = 32;
/// A worker's epoll instance and its waker.
const FILES_PER_WORKER: u64 = 2;

/// Files of the server itself.
pub const fn own_files(n_threads: usize) -> u64 {
    RESERVED_FILES as u64 + FILES_PER_WORKER * n_threads as u64
}

/// Raises the limit of open files for `wanted` clients; else for how many it is enough.
pub fn make_room_for_clients(wanted: u32, n_threads: usize) -> Result<(), u64> {
    let needed = u64::from(wanted) + own_files(n_threads);
    match raise_open_files(needed) {
        limit if limit >= needed => Ok(()),
        limit => Err(limit.saturating_sub(own_files(n_threads))),
    }
}

/// Resident bytes of the process; 0 where /proc is missing.
pub fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .map_or(0, |pages| pages * PAGE_BYTES)
}

/// The machine's memory in bytes; 0 where /proc is missing.
pub fn total_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().map_or(0, |kib| kib << 10)
}

/// `Linux 6.1.0 x86_64`.
pub fn system_name() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_used_time_and_memory() {
        let cpu = cpu_time(Whose::Process);
        assert!(cpu.user_s + cpu.system_s > 0.0);
        assert!(resident_bytes() > 1 << 20 && total_memory_bytes() > resident_bytes());
        assert!(system_name().starts_with("Linux "), "{}", system_name());
    }
}
