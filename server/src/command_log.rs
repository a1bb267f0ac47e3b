//! The logs of calls that stood out: slow ones (SLOWLOG), and Valkey's large requests and large replies (COMMANDLOG).
//!
//! One log of each kind for the whole server, whichever worker ran the call; entries are few by their nature, so a lock is taken for
//! each. An entry keeps at most `MAX_ARGS` arguments of `MAX_ARG_BYTES`, as in Redis.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::args::Args;

/// Arguments of an entry; the last tells how many more there were.
const MAX_ARGS: usize = 32;
/// Bytes of an argument of an entry, before it is cut.
const MAX_ARG_BYTES: usize = 128;

/// Why a call is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    Slow,
    LargeRequest,
    LargeReply,
}

/// One call.
#[derive(Debug)]
pub struct Entry {
    pub id: u64,
    pub at_s: i64,
    /// Microseconds (`Slow`) or bytes.
    pub value: u64,
    pub argv: Vec<Box<[u8]>>,
    pub address: String,
    pub name: Vec<u8>,
}

/// One log; the newest entry stands first.
#[derive(Default)]
pub struct CommandLog {
    pub entries: VecDeque<Entry>,
    next_id: u64,
}

impl CommandLog {
    /// Adds an entry, which gets its number here, and drops those beyond `max_len`. As in Redis, 0 stops the log and empties it not.
    pub fn push(&mut self, mut entry: Entry, max_len: u64) {
        if max_len == 0 {
            return;
        }
        entry.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(entry);
        self.entries.truncate(usize::try_from(max_len).unwrap_or(usize::MAX));
    }
}

/// All logs.
#[derive(Default)]
pub struct CommandLogs {
    slow: Mutex<CommandLog>,
    large_requests: Mutex<CommandLog>,
    large_replies: Mutex<CommandLog>,
}

impl CommandLogs {
    pub fn of(&self, kind: LogKind) -> MutexGuard<'_, CommandLog> {
        let log = match kind {
            LogKind::Slow => &self.slow,
            LogKind::LargeRequest => &self.large_requests,
            LogKind::LargeReply => &self.large_replies,
        };
        log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arguments as an entry keeps them: cut, and without the secrets at the places `secrets`.
pub fn kept_argv(args: Args<'_>, secrets: &[usize]) -> Vec<Box<[u8]>> {
    let n_kept = args.len().min(MAX_ARGS);
    let keep = |(index, arg): (usize, &[u8])| -> Box<[u8]> {
        if index + 1 == n_kept && args.len() > n_kept {
            return format!("... ({} more arguments)", args.len() - n_kept + 1).into_bytes().into();
        }
        if secrets.contains(&index) {
            return Box::from(REDACTED);
        }
        if arg.len() <= MAX_ARG_BYTES {
            return arg.into();
        }
        let mut cut = arg[..MAX_ARG_BYTES].to_vec();
        cut.extend_from_slice(format!("... ({} more bytes)", arg.len() - MAX_ARG_BYTES).as_bytes());
        cut.into()
    };
    args.iter().take(n_kept).enumerate().map(keep).collect()
}

/// What stands in the place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";

#[cfg(test)]
mod tests {
    use super::*;
    use skerry_resp::request::ArgRange;

    #[test]
    fn long_requests_are_cut() {
        let text = [b'x'; 300];
        let mut ranges = vec![ArgRange { start: 0, end: 128 }, ArgRange { start: 0, end: 129 }];
        ranges.extend((0..38).map(|_| ArgRange { start: 0, end: 1 }));
        let argv = kept_argv(Args::new(&text, &ranges), &[2]);
        assert_eq!(argv.len(), MAX_ARGS);
        assert_eq!(argv[0].len(), 128);
        assert!(argv[1].ends_with(b"x... (1 more bytes)"));
        assert_eq!(&*argv[2], REDACTED);
        assert_eq!(&*argv[31], b"... (9 more arguments)");
        let argv = kept_argv(Args::new(&text, &ranges[..32]), &[]);
        assert_eq!(&*argv[31], b"x");
    }

    #[test]
    fn the_oldest_entries_go_and_numbers_go_on() {
        let mut log = CommandLog::default();
        let entry = || Entry { id: 0, at_s: 1, value: 2, argv: vec![], address: String::new(), name: vec![] };
        (0..5).for_each(|_| log.push(entry(), 3));
        assert_eq!(log.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [4, 3, 2]);
        log.push(entry(), 0);
        assert_eq!(log.entries.len(), 3);
    }
}
