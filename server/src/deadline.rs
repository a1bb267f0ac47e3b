//! `Clock`: what the number of a deadline counts (EX, PX, EXAT, PXAT; EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT), and the Unix
//! milliseconds that all of them mean. Knows no key.

use crate::error::CommandError;

/// The unit and the zero of a deadline's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Clock {
    /// The deadline in Unix milliseconds, which may be over; an error that names `command` if it is no i64.
    pub fn deadline_ms(self, number: i64, now_ms: i64, command: &'static str) -> Result<i64, CommandError> {
        let deadline_ms = match self {
            Clock::Seconds => number.checked_mul(1000).and_then(|ms| ms.checked_add(now_ms)),
            Clock::Milliseconds => number.checked_add(now_ms),
            Clock::UnixSeconds => number.checked_mul(1000),
            Clock::UnixMilliseconds => Some(number),
        };
        deadline_ms.ok_or(CommandError::InvalidExpire(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        let deadline = |clock: Clock, number| clock.deadline_ms(number, 1_000, "expire").ok();
        assert_eq!(deadline(Clock::Seconds, -2), Some(-1_000));
        assert_eq!(deadline(Clock::Seconds, i64::MAX / 1000), None);
        assert_eq!(deadline(Clock::Seconds, i64::MIN / 1000 - 1), None);
        assert_eq!(deadline(Clock::Milliseconds, i64::MAX), None);
        assert_eq!(deadline(Clock::Milliseconds, i64::MIN), Some(i64::MIN + 1_000));
        assert_eq!(deadline(Clock::UnixSeconds, i64::MAX / 1000), Some(i64::MAX / 1000 * 1000));
        assert_eq!(deadline(Clock::UnixMilliseconds, i64::MAX), Some(i64::MAX));
    }
}
