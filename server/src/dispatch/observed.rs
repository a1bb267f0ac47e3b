//! What is done about a call when it has run: its time, the logs of slow and large ones, the latency monitor.
//!
//! ```text
//!   begin_call ──► the clock, if this call is timed      call runs      ──► look_at_call, if it was timed or is large
//! ```
//!
//! A call is timed if it may take long (`Row::timed_from`), belongs to the sample (`CommandStats::is_sampled`), or if somebody wants
//! to know of every call (`Observed::is_all`): so an ordinary one pays a comparison. A call that is sent to another worker is timed
//! and looked at there; what runs in slices is looked at when it is done.

use std::time::Instant;

use super::Node;
use crate::args::Args;
use crate::client::{Client, ClientId};
use crate::command::Flags;
use crate::command_log::{Entry, LogKind, kept_argv};
use crate::commands::{Row, secrets_of};
use crate::config::Config;
use crate::hotkeys::{Cost, Session};
use crate::message::{ReplyTo, RequestHead};
use crate::shard::DbIndex;

/// From this limit down every call is timed: those that are not may take as long, but for what the machine does.
const ALL_BELOW_US: u64 = 1000;

/// What the calls of this worker are looked at for.
#[derive(Debug)]
pub(super) struct Observed {
    /// Every call is timed and looked at.
    pub(super) is_all: bool,
    /// A call that takes so long is told of.
    slow_ns: u64,
    /// Requests and replies of more bytes are logged; the lesser of the two.
    pub(super) large: usize,
    /// The call that has just been routed runs elsewhere, or later.
    pub(super) is_elsewhere: bool,
    /// HOTKEYS looks at the keys of calls.
    pub(super) hotkeys: Option<Session>,
    /// It runs in slices.
    pub(super) is_job: bool,
    /// Bytes of the last calls' replies that stand in no buffer.
    pub(super) placed_bytes: usize,
}

impl Observed {
    pub(super) fn new(config: &Config) -> Self {
        let logged_ns = u64::try_from(config.slowlog_log_slower_than).map_or(u64::MAX, us_in_ns);
        let monitored_ns = match config.latency_monitor_threshold {
            0 => u64::MAX,
            ms => us_in_ns(ms.saturating_mul(1000)),
        };
        let slow_ns = logged_ns.min(monitored_ns);
        let large = [config.commandlog_request_larger_than, config.commandlog_reply_larger_than];
        Self {
            is_all: slow_ns < us_in_ns(ALL_BELOW_US),
            slow_ns,
            large: large.into_iter().map(bytes_of).min().unwrap_or(usize::MAX),
            is_elsewhere: false,
            hotkeys: None,
            is_job: false,
            placed_bytes: 0,
        }
    }
}

fn us_in_ns(us: u64) -> u64 {
    us.saturating_mul(1000)
}

/// -1 is no limit.
fn bytes_of(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn digits(n: usize) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A call that has run on this worker.
pub(super) struct Call<'a> {
    pub(super) row: &'a Row,
    pub(super) client: ClientId,
    pub(super) db: DbIndex,
    /// Whether its socket is a file, and its address, if it is at hand.
    pub(super) address: Option<(bool, &'a str)>,
    /// `None` if it was not timed.
    pub(super) ns: Option<u64>,
    pub(super) request_bytes: usize,
    pub(super) reply_bytes: usize,
}

impl<'a> Call<'a> {
    /// Before anything is known of how it went.
    pub(super) fn of(row: &'a Row, client: ClientId, db: DbIndex) -> Self {
        Self { row, client, db, address: None, ns: None, request_bytes: 0, reply_bytes: 0 }
    }
}

/// Its arguments.
pub(super) enum Argv<'a> {
    Sent(Args<'a>),
    /// As logs keep them, for a call that ran in slices.
    Kept(&'a [Box<[u8]>]),
}

impl Node {
    /// The clock, if this call is timed.
    #[inline]
    pub(super) fn begin_call(&mut self, row: &Row, n_args: usize) -> Option<Instant> {
        self.observed.is_elsewhere = false;
        self.observed.is_job = false;
        self.observed.placed_bytes = 0;
        let is_timed =
            self.observed.is_all || n_args >= usize::from(row.timed_from) || self.stats.is_sampled(row.id);
        is_timed.then(Instant::now)
    }

    /// The same for a request of another worker's client.
    #[inline]
    pub(super) fn begin_peer_call(&self, row: &Row, n_args: usize) -> Option<Instant> {
        let is_timed = self.observed.is_all
            || n_args >= usize::from(row.timed_from)
            || self.stats.is_sampled_for_peer(row.id);
        is_timed.then(Instant::now)
    }

    /// After a call of a client of this worker, if it was timed or is large.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_own_call(
        &mut self,
        client: &Client,
        row: &Row,
        args: Args<'_>,
        started: Option<Instant>,
        request_bytes: usize,
    ) {
        let ns = started.map(|started| started.elapsed().as_nanos() as u64);
        let placed_bytes = std::mem::take(&mut self.observed.placed_bytes);
        let mut call = Call::of(row, client.id, client.db);
        call.address = Some((client.is_unix, &client.address));
        if self.observed.is_job && !self.monitors.is_empty() {
            self.show_call(&call, args);
        }
        if self.observed.is_elsewhere {
            return;
        }
        let written = (client.out.len() + client.held.len()).saturating_sub(self.mark.0 + self.mark.1);
        call = Call { ns, request_bytes, reply_bytes: written + placed_bytes, ..call };
        self.look_at_call(&call, &Argv::Sent(args));
    }

    /// After a call of another worker's client, if it was timed or is large. Parts of a command only count their time.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_peer_call(
        &mut self,
        head: &RequestHead,
        row: &Row,
        args: Args<'_>,
        started: Option<Instant>,
        reply_bytes: usize,
    ) {
        let ns = started.map(|started| started.elapsed().as_nanos() as u64);
        if !matches!(head.reply_to, ReplyTo::Slot { .. }) {
            if let Some(ns) = ns {
                self.stats.time(row.id, ns, self.config.latency_tracking);
            }
            return;
        }
        let call = Call { ns, reply_bytes, ..Call::of(row, head.client, head.db) };
        self.look_at_call(&call, &Argv::Sent(args));
    }

    /// After a call: its time counts, and whoever wants to know of it is told.
    pub(super) fn look_at_call(&mut self, call: &Call<'_>, argv: &Argv<'_>) {
        if let Argv::Sent(args) = argv
            && !self.monitors.is_empty()
        {
            self.show_call(call, *args);
        }
        if let (Some(session), Argv::Sent(args)) = (self.observed.hotkeys, argv) {
            self.count_for_keys(call, *args, session);
        }
        if let Some(ns) = call.ns {
            self.stats.time(call.row.id, ns, self.config.latency_tracking);
            if ns >= self.observed.slow_ns {
                self.tell_slow_call(call, ns, argv);
            }
        }
        if call.request_bytes > bytes_of(self.config.commandlog_request_larger_than) {
            let max_len = self.config.commandlog_large_request_max_len;
            self.log_call(LogKind::LargeRequest, max_len, call, call.request_bytes as u64, argv);
        }
        if call.reply_bytes > bytes_of(self.config.commandlog_reply_larger_than) {
            let max_len = self.config.commandlog_large_reply_max_len;
            self.log_call(LogKind::LargeReply, max_len, call, call.reply_bytes as u64, argv);
        }
    }

    /// HOTKEYS: what a call has cost counts for its keys.
    fn count_for_keys(&mut self, call: &Call<'_>, args: Args<'_>, session: Session) {
        if session.ends_ms.is_some_and(|ends_ms| self.now_ms >= ends_ms) {
            self.observed.hotkeys = None;
            self.server.touch_config();
            return;
        }
        let mut keys = Vec::new();
        call.row.command.for_each_key(args, |index, _| keys.push(args.get(index)));
        if keys.is_empty() {
            return;
        }
        // What another worker has sent: as the client did.
        let sent = || {
            args.iter().map(|arg| arg.len() + digits(arg.len()) + 5).sum::<usize>() + digits(args.len()) + 3
        };
        let request_bytes = if call.request_bytes > 0 { call.request_bytes } else { sent() };
        let bytes = (request_bytes + call.reply_bytes) as u64;
        let cost = Cost { ns: call.ns.unwrap_or(0), bytes };
        let is_sampled = self.shard.random().is_multiple_of(u64::from(session.sample_ratio));
        let mut table = self.server.hotkeys.table(usize::from(self.id.0));
        table.all.ns += cost.ns;
        table.all.bytes += cost.bytes;
        if is_sampled {
            table.count(keys.into_iter(), cost);
        }
    }

    fn tell_slow_call(&mut self, call: &Call<'_>, ns: u64, argv: &Argv<'_>) {
        let us = ns / 1000;
        let threshold_ms = self.config.latency_monitor_threshold;
        if threshold_ms > 0 && us / 1000 >= threshold_ms {
            let event = if call.row.command.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.server.latency.add(event, self.now_ms / 1000, us / 1000);
        }
        if u64::try_from(self.config.slowlog_log_slower_than).is_ok_and(|limit_us| us >= limit_us) {
            self.log_call(LogKind::Slow, self.config.slowlog_max_len, call, us, argv);
        }
    }

    fn log_call(&self, kind: LogKind, max_len: u64, call: &Call<'_>, value: u64, argv: &Argv<'_>) {
        if call.row.command.flags.has(Flags::SKIP_SLOWLOG) {
            return;
        }
        let card = self.server.connections.card(call.client);
        let entry = Entry {
            id: 0,
            at_s: self.now_ms / 1000,
            value,
            argv: match argv {
                Argv::Sent(args) => kept_argv(*args, &secrets_of(call.row, *args)),
                Argv::Kept(argv) => argv.to_vec(),
            },
            address: card.address.to_string(),
            name: card.name,
        };
        self.server.command_logs.of(kind).push(entry, max_len);
    }
}
