//! The server's log, in Redis's line format: `pid:role day month year time level message`. Role M (a master), times in UTC.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::LogLevel;

/// Redis's levels and the mark of each in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
    Nothing,
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Level::Debug,
            LogLevel::Verbose => Level::Verbose,
            LogLevel::Notice => Level::Notice,
            LogLevel::Warning => Level::Warning,
            LogLevel::Nothing => Level::Nothing,
        }
    }
}

struct Sink {
    level: AtomicU8,
    file: Option<Mutex<File>>,
}

static SINK: OnceLock<Sink> = OnceLock::new();

/// Chooses level and file (standard output if the name is empty). Once, at start.
pub fn open(level: Level, path: &str) -> std::io::Result<()> {
    let file = match path {
        "" => None,
        path => Some(Mutex::new(File::options().create(true).append(true).open(path)?)),
    };
    // A second call (tests) keeps the first sink.
    let _ = SINK.set(Sink { level: AtomicU8::new(level as u8), file });
    Ok(())
}

/// Changes the level (CONFIG SET loglevel).
pub fn set_level(level: Level) {
    if let Some(sink) = SINK.get() {
        sink.level.store(level as u8, Ordering::Relaxed);
    }
}

pub fn debug(text: &str) {
    write(Level::Debug, text);
}

pub fn verbose(text: &str) {
    write(Level::Verbose, text);
}

pub fn notice(text: &str) {
    write(Level::Notice, text);
}

pub fn warning(text: &str) {
    write(Level::Warning, text);
}

/// Writes a line of any level.
pub fn write(level: Level, text: &str) {
    let sink = SINK.get();
    if sink.is_some_and(|sink| (level as u8) < sink.level.load(Ordering::Relaxed)) {
        return;
    }
    let mark = match level {
        Level::Debug => '.',
        Level::Verbose => '-',
        Level::Notice => '*',
        Level::Warning | Level::Nothing => '#',
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let stamp = stamp(now.as_millis() as u64);
    let line = format!("{}:M {stamp} {mark} {text}\n", std::process::id());
    let failed = match sink.and_then(|sink| sink.file.as_ref()) {
        Some(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()).is_err(),
        None => std::io::stdout().write_all(line.as_bytes()).is_err(),
    };
    if failed {
        // Nowhere left to tell it: the log is what failed.
    }
}

/// `30 Nov 2026 10:15:00.123` of a Unix time in milliseconds.
fn stamp(ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (secs, ms) = (ms / 1000, ms % 1000);
    let (days, secs) = (secs / 86_400, secs % 86_400);
    // Civil date from day number (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{day:02} {} {year} {:02}:{:02}:{:02}.{ms:03}",
        MONTHS[month as usize - 1],
        secs / 3600,
        secs / 60 % 60,
        secs % 60
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn stamps_of_known_instants() {
        assert_eq!(super::stamp(0), "01 Jan 1970 00:00:00.000");
        assert_eq!(super::stamp(951_782_400_000), "29 Feb 2000 00:00:00.000");
        assert_eq!(super::stamp(1_796_033_712_345), "30 Nov 2026 10:15:12.345");
    }
}
