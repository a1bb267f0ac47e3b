//! MEMORY DOCTOR's report: which of the known troubles with memory a server has (<https://redis.io/docs/latest/commands/memory-doctor/>).
//!
//! The thresholds are Redis's; the words are ours but for the first two answers, which tools look for. Troubles of features that do not
//! exist here (replicas, cached scripts, fragmentation told apart by the allocator) are never found.

use std::fmt::Write;

/// What the report is made of.
pub(super) struct Facts {
    pub(super) used_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) clients_bytes: u64,
    pub(super) n_clients: u64,
}

const MIB: u64 = 1 << 20;
/// Less than this is too little to judge.
const MIN_USED_BYTES: u64 = 5 * MIB;
/// Pages beyond the used bytes that are worth a word.
const MIN_UNUSED_PAGES_BYTES: u64 = 10 * MIB;
const MAX_FRAGMENTATION: f64 = 1.4;
const MAX_PEAK_RATIO: f64 = 1.5;
const MAX_CLIENT_BYTES: u64 = 200 << 10;

const EMPTY: &str = "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in these conditions. Please, leave for your mission on Earth and fill it with some data. The new Sam and I will be back to our programming as soon as I finished rebooting.\n";
const WELL: &str = "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n";

/// The whole text.
pub(super) fn report(facts: &Facts) -> String {
    if facts.used_bytes < MIN_USED_BYTES {
        return EMPTY.into();
    }
    let mut troubles = String::new();
    let peak_ratio = facts.peak_bytes as f64 / facts.used_bytes as f64;
    if peak_ratio > MAX_PEAK_RATIO {
        // Writing to a String cannot fail.
        let _ = writeln!(
            troubles,
            " * Peak memory: {peak_ratio:.1} times as much as now was in use at some time. The system may still count the pages; \
             MEMORY PURGE gives back those that are free.\n"
        );
    }
    let fragmentation = facts.resident_bytes as f64 / facts.used_bytes as f64;
    let unused_pages = facts.resident_bytes.saturating_sub(facts.used_bytes);
    if fragmentation > MAX_FRAGMENTATION && unused_pages > MIN_UNUSED_PAGES_BYTES {
        let _ = writeln!(
            troubles,
            " * High fragmentation: resident memory is {fragmentation:.2} times what is in use. If it was in use before, MEMORY PURGE \
             gives the free pages back; what stays lies between values in use.\n"
        );
    }
    let per_client = facts.clients_bytes.checked_div(facts.n_clients).unwrap_or(0);
    if per_client > MAX_CLIENT_BYTES {
        let _ = writeln!(
            troubles,
            " * Big client buffers: {per_client} bytes a client on average. Some send faster than they are served or read more slowly \
             than they are answered; CLIENT LIST tells which (qbuf, omem, tot-mem).\n"
        );
    }
    match troubles.is_empty() {
        true => WELL.into(),
        false => {
            format!("Sam, I detected a few issues in this Skerry instance memory implants:\n\n{troubles}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(used_mib: u64) -> Facts {
        let bytes = used_mib * MIB;
        Facts { used_bytes: bytes, peak_bytes: bytes, resident_bytes: bytes, clients_bytes: 0, n_clients: 1 }
    }

    #[test]
    fn each_trouble_is_told_by_its_own_threshold() {
        assert_eq!(report(&facts(4)), EMPTY);
        assert_eq!(report(&facts(100)), WELL);
        let told = |facts: &Facts| {
            let text = report(facts);
            ["Peak memory", "High fragmentation", "Big client buffers"].map(|word| text.contains(word))
        };
        assert_eq!(told(&Facts { peak_bytes: 151 * MIB, ..facts(100) }), [true, false, false]);
        assert_eq!(told(&Facts { resident_bytes: 141 * MIB, ..facts(100) }), [false, true, false]);
        // Much of a little is not much.
        assert_eq!(told(&Facts { resident_bytes: 12 * MIB, ..facts(6) }), [false, false, false]);
        assert_eq!(told(&Facts { clients_bytes: MIB, n_clients: 4, ..facts(100) }), [false, false, true]);
    }
}
