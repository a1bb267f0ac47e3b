//! What the operating system says of this process: CPU time, resident memory, machine. For INFO and MEMORY;
//! read on request only.

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

/// Raises the limit of open files to `wanted` if it is lower, as far as the system lets; the limit then.
pub fn raise_file_limit(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the duration of the call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(failed, 0, "getrlimit fails only on bad arguments");
    if limit.rlim_cur >= wanted {
        return limit.rlim_cur;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = wanted.min(limit.rlim_max);
    // SAFETY: `limit` is a valid rlimit for the duration of the call.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    if failed == 0 { limit.rlim_cur } else { before }
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
