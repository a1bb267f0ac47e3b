//! Resident memory of a process, from `/proc/PID/status`.

use std::{fs, io};

/// VmRSS of all `pids` together.
pub fn rss_bytes(pids: &[u32]) -> io::Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        sum += parse_rss(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: no VmRSS")))?;
    }
    Ok(sum)
}

fn parse_rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_in_kib() {
        assert_eq!(parse_rss("Name:\tx\nVmHWM:\t  99 kB\nVmRSS:\t    1234 kB\n"), Some(1234 * 1024));
        assert_eq!(parse_rss("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn this_process_is_resident() {
        assert!(rss_bytes(&[std::process::id()]).expect("own status") > 100_000);
    }
}
