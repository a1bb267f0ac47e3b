//! The timeouts of commands that wait, in Redis's words.

use skerry_resp::number::{self, LongDouble};

use crate::error::CommandError;

/// Unix time in milliseconds at which a wait of so many seconds ends, begun at `now_ms`; `None`: 0, for ever.
pub(in crate::commands) fn deadline_of(timeout_s: &[u8], now_ms: i64) -> Result<Option<i64>, CommandError> {
    let Some(seconds) = number::parse_f64(timeout_s).filter(|seconds| !seconds.is_nan()) else {
        // Redis reads a long double, whose range is wider.
        let is_huge = LongDouble::parse(timeout_s).is_some_and(|seconds| !seconds.is_nan());
        return Err(CommandError::text(match (is_huge, timeout_s.starts_with(b"-")) {
            (true, true) => "ERR timeout is negative",
            (true, false) => "ERR timeout is out of range",
            (false, _) => "ERR timeout is not a float or out of range",
        }));
    };
    let ms = (seconds * 1000.0).ceil();
    if ms > i64::MAX as f64 {
        return Err(CommandError::text("ERR timeout is out of range"));
    }
    after(ms as i64, now_ms)
}

/// The same for a timeout in milliseconds.
pub(in crate::commands) fn deadline_of_ms(
    timeout_ms: &[u8],
    now_ms: i64,
) -> Result<Option<i64>, CommandError> {
    let ms = number::parse_i64(timeout_ms)
        .ok_or(CommandError::text("ERR timeout is not an integer or out of range"))?;
    after(ms, now_ms)
}

fn after(ms: i64, now_ms: i64) -> Result<Option<i64>, CommandError> {
    if ms < 0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    if ms == 0 {
        return Ok(None);
    }
    now_ms.checked_add(ms).map(Some).ok_or(CommandError::text("ERR timeout is out of range"))
}
