//! The access clock: the 24 bits of an entry by which eviction tells keys apart, as Redis keeps them.
//!
//! ```text
//!  Used, Modified   seconds, modulo 2^24 (194 days)           of the last use, or of the last change
//!  Frequency        minutes, modulo 2^16 | counter 8 bits     a logarithmic counter (Morris, 1978) that decays by the minute
//! ```
//!
//! The policy says which of them it is; after a change of policy the old bits are read in the new way until they are
//! written again, as in Redis. It reads no clock: who owns it tells the time.
//! Cost: a store to a line that the lookup has just read, and only if the second is another one.

/// What the 24 bits mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tracking {
    /// When the key was last used (LRU, and every policy that does not look).
    #[default]
    Used,
    /// When the key was last changed (LRM).
    Modified,
    /// How often it was used (LFU).
    Frequency,
}

/// Whether a command's lookups mark keys as used (CLIENT NO-TOUCH).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Touch {
    #[default]
    Marks,
    LeavesNoMark,
}

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;
const COUNTER_BITS: u32 = 8;
const COUNTER_MAX: u32 = (1 << COUNTER_BITS) - 1;
const MINUTES_MASK: u32 = MASK >> COUNTER_BITS;
/// A new key's counter: it shall live long enough to be used again.
const COUNTER_START: u32 = 5;

/// The rules, the time, and what a key gets that is used now.
#[derive(Clone, Debug)]
pub struct AccessClock {
    tracking: Tracking,
    /// What a new key gets.
    fresh: u32,
    log_factor: u32,
    /// Minutes in which a counter loses one; 0: it loses none.
    decay_minutes: u32,
    random: u64,
}

impl Default for AccessClock {
    fn default() -> Self {
        AccessClock { tracking: Tracking::Used, fresh: 0, log_factor: 10, decay_minutes: 1, random: 1 }
    }
}

impl AccessClock {
    /// Other rules from here on. `lfu-log-factor` and `lfu-decay-time` are those of the configuration.
    pub fn set_rules(&mut self, tracking: Tracking, log_factor: u32, decay_minutes: u32) {
        (self.tracking, self.log_factor, self.decay_minutes) = (tracking, log_factor, decay_minutes);
    }

    /// Tells the time, and something random for the counters.
    pub fn set_time(&mut self, now_ms: i64, random: u64) {
        self.fresh = match self.tracking {
            Tracking::Used | Tracking::Modified => seconds_of(now_ms),
            Tracking::Frequency => minutes_of(now_ms) << COUNTER_BITS | COUNTER_START,
        };
        self.random = random | 1;
    }

    pub fn tracking(&self) -> Tracking {
        self.tracking
    }

    /// The clock of a key that is new.
    #[inline(always)]
    pub fn fresh(&self) -> u32 {
        self.fresh
    }

    /// The clock of a key that is used now and had `old`.
    #[inline(always)]
    pub fn used(&mut self, old: u32) -> u32 {
        match self.tracking {
            Tracking::Used => self.fresh,
            Tracking::Modified => old,
            Tracking::Frequency => self.counted(old),
        }
    }

    /// How long a key has been idle, in seconds; of no meaning while frequencies are kept.
    pub fn idle_s(&self, clock: u32) -> u32 {
        self.fresh.wrapping_sub(clock) & MASK
    }

    /// A key's counter now; of no meaning unless frequencies are kept.
    pub fn frequency(&self, clock: u32) -> u8 {
        let elapsed = (self.fresh >> COUNTER_BITS).wrapping_sub(clock >> COUNTER_BITS) & MINUTES_MASK;
        let lost = elapsed.checked_div(self.decay_minutes).unwrap_or(0);
        (clock & COUNTER_MAX).saturating_sub(lost) as u8
    }

    /// The clock of a key that was idle for so long (RESTORE's IDLETIME).
    pub fn clock_of_idle(&self, idle_s: u64) -> u32 {
        self.fresh.wrapping_sub((idle_s & u64::from(MASK)) as u32) & MASK
    }

    /// The clock of a key with that counter (RESTORE's FREQ).
    pub fn clock_of_frequency(&self, frequency: u8) -> u32 {
        self.fresh & !COUNTER_MAX | u32::from(frequency)
    }

    #[inline(never)]
    fn counted(&mut self, old: u32) -> u32 {
        let counter = u32::from(self.frequency(old));
        // One in (uses above the start * factor + 1) counts.
        let odds = u64::from(counter.saturating_sub(COUNTER_START)) * u64::from(self.log_factor) + 1;
        let counts = counter < COUNTER_MAX && (u128::from(self.draw()) * u128::from(odds)) >> 64 == 0;
        self.fresh & !COUNTER_MAX | (counter + u32::from(counts))
    }

    /// xorshift64 (Marsaglia, 2003).
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn seconds_of(now_ms: i64) -> u32 {
    (now_ms.div_euclid(1000) & i64::from(MASK)) as u32
}

fn minutes_of(now_ms: i64) -> u32 {
    (now_ms.div_euclid(60_000) & i64::from(MINUTES_MASK)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(tracking: Tracking, now_ms: i64) -> AccessClock {
        let mut clock = AccessClock::default();
        clock.set_rules(tracking, 10, 1);
        clock.set_time(now_ms, 0x9e37_79b9_7f4a_7c15);
        clock
    }

    #[test]
    fn idle_time_counts_seconds_across_the_wrap() {
        let wrap_ms = (i64::from(MASK) + 1) * 1000;
        let mut used = clock(Tracking::Used, wrap_ms - 3000);
        let stamp = used.used(0);
        used.set_time(wrap_ms + 4000, 7);
        assert_eq!(used.idle_s(stamp), 7);
        assert_eq!(used.idle_s(used.clock_of_idle(100)), 100);
    }

    #[test]
    fn changes_alone_move_the_clock_of_a_key_that_is_evicted_by_them() {
        let mut modified = clock(Tracking::Modified, 5_000_000);
        let stamp = modified.fresh();
        modified.set_time(9_000_000, 7);
        assert_eq!(modified.used(stamp), stamp);
        assert_eq!(modified.idle_s(stamp), 4000);
    }

    /// The table of Redis's documentation for a factor of 10: 100 hits give about 10, 1000 about 18, 100,000 about 142.
    #[test]
    fn the_counter_grows_with_the_logarithm_of_the_uses() {
        for (uses, range) in [(100, 8..=13), (1000, 14..=26), (100_000, 130..=155)] {
            let mut used = clock(Tracking::Frequency, 60_000 * 1000);
            let stamp = (0..uses).fold(used.fresh(), |stamp, _| used.used(stamp));
            let frequency = used.frequency(stamp);
            assert!(range.contains(&frequency), "{uses} uses: {frequency}");
        }
    }

    #[test]
    fn the_counter_loses_one_a_decay_time() {
        let mut used = clock(Tracking::Frequency, 60_000 * 65_530);
        let stamp = used.clock_of_frequency(100);
        used.set_time(60_000 * 65_540, 7); // Beyond the wrap of the minutes.
        assert_eq!(used.frequency(stamp), 90);
        used.set_rules(Tracking::Frequency, 10, 5);
        assert_eq!(used.frequency(stamp), 98);
        used.set_rules(Tracking::Frequency, 10, 0);
        assert_eq!(used.frequency(stamp), 100);
    }
}
