//! A client's input: parsed and run a wave at a time.
//!
//! A wave's requests are parsed together, their rows looked up and the memory they will touch is fetched ahead; then they run in
//! order. One that has to wait stops the client there: it and what follows stay in the input. Knows nothing of other shards.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::{ArgRange, Limits, Parsed};

use super::Node;
use super::route::Step;
use crate::args::{Args, MIN_SHARED_BYTES};
use crate::client::{Client, ClientId, Closing, Parked, ReplyMode};
use crate::command::{Handler, PlainHandler};
use crate::commands::{Found, KeyShape, Row};
use crate::shard::ShardId;

/// Requests parsed and prefetched together. Big enough to hide memory latency, small enough for the first-level cache.
pub(super) const WAVE: usize = 8;
/// The same for collections: their values lie several levels of pointers deep, and each level is waited for once a wave.
const DEEP_WAVE: usize = 32;
/// Levels of pointers that are fetched ahead for a collection, below its entry: the table, the segment, the first member.
const VALUE_WAVES: usize = 3;
/// Requests of one client run before others get their turn.
const MAX_REQUESTS_PER_TURN: usize = 256;
/// Output of one client after which it waits for others and for its socket: each reply of a turn can have 512 MB, and the output
/// limit is looked at when they are written.
const MAX_OUTPUT_PER_TURN_BYTES: usize = 1 << 20;

/// What a client has sent, in a buffer that may be shared if it is a long one.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    shared: Option<&'a Bytes>,
}

/// One parsed request of a wave.
pub(super) struct Item {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) first_range: usize,
    pub(super) argc: usize,
    pub(super) row: Result<&'static Row, Unknown>,
    pub(super) hash: u64,
    pub(super) shard: ShardId,
    pub(super) is_inline: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Unknown {
    Command,
    Subcommand(&'static Row),
}

/// Whether the first request has to look at the holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admit {
    Check,
    /// The first one was granted just now.
    First,
}

/// How a wave's parsing ended.
pub(super) enum WaveEnd {
    More(usize),
    /// All complete requests are parsed; the incomplete one stands at `at` and misses so many bytes or more.
    NeedsBytes {
        at: usize,
        missing: usize,
    },
    Broken(skerry_resp::request::ProtocolError),
}

impl Node {
    /// New bytes from a client. What can run, runs; the bytes of its input that then wait.
    pub fn feed(&mut self, id: ClientId, bytes: &[u8]) -> usize {
        let Some(mut client) = self.clients.take(id) else { return 0 };
        client.bytes_in += bytes.len() as u64;
        client.last_active_ms = self.now_ms;
        if client.query.is_empty() && client.parked == Parked::No && !client.is_queued {
            let at = self.run_input(&mut client, Input { bytes, shared: None }, 0, Admit::Check);
            client.query.extend_from_slice(&bytes[at..]);
        } else {
            client.query.extend_from_slice(bytes);
            if client.parked == Parked::No && !client.is_queued {
                self.run_query(&mut client, Admit::Check);
            }
        }
        let n_waiting = client.waiting_input_bytes();
        self.settle(client);
        self.see_to_blocked();
        n_waiting
    }

    /// The same for `n` bytes that were read straight to the end of the client's own buffer.
    pub fn fed(&mut self, id: ClientId, n: usize) -> usize {
        let Some(mut client) = self.clients.take(id) else { return 0 };
        client.bytes_in += n as u64;
        client.last_active_ms = self.now_ms;
        client.missing_input = client.missing_input.saturating_sub(n);
        if client.missing_input == 0 && client.parked == Parked::No && !client.is_queued {
            self.run_query(&mut client, Admit::Check);
        }
        let n_waiting = client.waiting_input_bytes();
        self.settle(client);
        self.see_to_blocked();
        n_waiting
    }

    /// Runs a client whose input waited.
    pub fn resume(&mut self, id: ClientId) {
        let Some(mut client) = self.clients.take(id) else { return };
        client.is_queued = false;
        if client.parked == Parked::No {
            self.run_query(&mut client, Admit::Check);
        }
        self.settle(client);
        self.see_to_blocked();
    }

    /// Runs the client's waiting request past the holds: it has just been granted. That one only: those behind it would find the
    /// passage of this one in their way.
    pub(super) fn resume_granted(&mut self, id: ClientId) {
        let Some(mut client) = self.clients.take(id) else { return };
        if client.parked == Parked::Hold {
            client.parked = Parked::No;
            self.run_query(&mut client, Admit::First);
            // Also if nothing of its input is left: its socket may have been kept from reading meanwhile.
            if client.parked == Parked::No && !client.is_queued {
                client.is_queued = true;
                self.runnable.push_back(id);
            }
        }
        self.settle(client);
    }

    /// Runs what stands in the client's own buffer.
    pub(super) fn run_query(&mut self, client: &mut Box<Client>, admit: Admit) {
        let query = std::mem::take(&mut client.query);
        if query.len() - client.query_at > MIN_SHARED_BYTES {
            self.run_long_query(client, query, admit);
            return;
        }
        let at = self.run_input(client, Input { bytes: &query, shared: None }, client.query_at, admit);
        client.query = query;
        client.query_at = at;
        if at == client.query.len() {
            client.query.clear();
            client.query_at = 0;
            if client.query.capacity() > crate::client::KEPT_BUFFER {
                client.query = Vec::new();
            }
        } else if at > client.query.len() / 2 {
            client.query.drain(..at);
            client.query_at = 0;
        }
    }

    /// Runs what stands in a long buffer. A long string that it holds becomes a value without a copy; then the buffer belongs to that
    /// value, and what is left of the input is copied out of it.
    fn run_long_query(&mut self, client: &mut Box<Client>, query: Vec<u8>, admit: Admit) {
        let from = std::mem::take(&mut client.query_at);
        let query = Bytes::from(query);
        let at = self.run_input(client, Input { bytes: &query, shared: Some(&query) }, from, admit);
        if at == query.len() {
            return;
        }
        let is_small_rest = (query.len() - at) * 2 < query.len();
        client.query = match is_small_rest || !query.is_unique() {
            true => query[at..].to_vec(),
            false => {
                client.query_at = at;
                Vec::from(query)
            }
        };
    }

    /// Puts the client back and notes what the worker has to do for it.
    pub(super) fn settle(&mut self, mut client: Box<Client>) {
        let wants_write = client.out.len() > client.out_at || client.closing != Closing::No;
        if wants_write {
            client.mark_dirty(&mut self.dirty);
        }
        self.clients.put_back(client);
        self.send_deliveries();
    }

    /// Lets a client go on that was parked for `reason`.
    pub(super) fn unpark(&mut self, id: ClientId, reason: Parked) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.parked == reason {
            client.parked = Parked::No;
            if !client.is_queued {
                client.is_queued = true;
                self.runnable.push_back(id);
            }
        }
    }

    /// Runs complete requests of `input` from `at` on; the position after the last one that has run.
    pub(super) fn run_input(
        &mut self,
        client: &mut Box<Client>,
        input: Input<'_>,
        mut at: usize,
        mut admit: Admit,
    ) -> usize {
        let Input { bytes: input, shared } = input;
        let mut n_run = 0;
        client.missing_input = 0;
        let unsent_before = client.unsent();
        loop {
            if client.closing != Closing::No {
                return input.len();
            }
            let output = client.unsent().saturating_sub(unsent_before);
            if n_run >= MAX_REQUESTS_PER_TURN || output > MAX_OUTPUT_PER_TURN_BYTES {
                if !client.is_queued && at < input.len() {
                    client.is_queued = true;
                    self.runnable.push_back(client.id);
                }
                return at;
            }
            let mut wave = std::mem::take(&mut self.wave);
            let mut ranges = std::mem::take(&mut self.ranges);
            wave.clear();
            ranges.clear();
            let is_only_one = admit == Admit::First;
            let wave_input = Input { bytes: input, shared };
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let parsed = self.parse_wave(client, input, at, admit, &mut wave, &mut ranges, &mut n_run);
                (parsed, self.run_wave(client, wave_input, &wave, &ranges, &mut admit))
            }));
            let (parsed, stopped_at) = outcome.unwrap_or_else(|panic| {
                self.bury_panic(client, &*panic);
                (WaveEnd::NeedsBytes { at: input.len(), missing: 0 }, None)
            });
            self.wave = wave;
            self.ranges = ranges;
            if let Some(start) = stopped_at {
                client.parser = skerry_resp::request::Parser::default();
                return start;
            }
            match parsed {
                WaveEnd::More(next) if is_only_one => return next,
                WaveEnd::More(next) => at = next,
                WaveEnd::NeedsBytes { at, missing } => {
                    client.missing_input = missing;
                    return at;
                }
                WaveEnd::Broken(error) => {
                    if client.closing == Closing::No {
                        self.reply_here(client, |reply| {
                            let mut text = b"ERR ".to_vec();
                            text.extend_from_slice(&error.text());
                            reply.error(text);
                        });
                        client.closing = Closing::AfterReplies;
                    }
                    return input.len();
                }
            }
        }
    }

    /// Parses up to a wave of requests, looks up their rows, and starts fetching the memory they will touch. Those in front
    /// that need no memory are answered at once.
    pub(super) fn parse_wave(
        &mut self,
        client: &mut Client,
        input: &[u8],
        at: usize,
        admit: Admit,
        wave: &mut Vec<Item>,
        ranges: &mut Vec<ArgRange>,
        n_run: &mut usize,
    ) -> WaveEnd {
        let (limits, mut size) = match client.is_authenticated || self.config.requirepass.is_empty() {
            true => (self.limits, if admit == Admit::First { 1 } else { WAVE }),
            // One at a time: the limits change when AUTH has run.
            false => (Limits::unauthenticated(), 1),
        };
        let mut next = at;
        let end = loop {
            if next == input.len() {
                break WaveEnd::NeedsBytes { at: next, missing: 0 };
            }
            if wave.len() == size || *n_run >= MAX_REQUESTS_PER_TURN {
                break WaveEnd::More(next);
            }
            let first_range = ranges.len();
            let (end, argc, is_inline) = match client.parser.parse(input, next, ranges, &limits) {
                Ok(Parsed::Request { end, argc }) => (end, argc, false),
                Ok(Parsed::Inline { end, argc }) => (end, argc, true),
                Ok(Parsed::Empty { end }) => {
                    next = end;
                    continue;
                }
                Ok(Parsed::Incomplete { needed }) => break WaveEnd::NeedsBytes { at: next, missing: needed },
                Err(error) => break WaveEnd::Broken(error),
            };
            let text = if is_inline { client.parser.inline_text() } else { input };
            let args = Args::new(text, &ranges[first_range..]);
            let (row, hash, shard) = self.look_up(args);
            *n_run += 1;
            if let Ok(row) = row
                && let Handler::Plain(handler) = row.command.handler
                && wave.is_empty()
                && !is_inline
                && self.is_plain_now(client, row, args, admit)
            {
                let args = Args::new(input, &ranges[first_range..]);
                self.answer_plain(client, row, handler, args);
                ranges.truncate(first_range);
                next = end;
                continue;
            }
            if size == WAVE && row.is_ok_and(|row| row.is_deep) {
                size = DEEP_WAVE;
            }
            wave.push(Item { start: next, end, first_range, argc, row, hash, shard, is_inline });
            next = end;
            if row.is_ok_and(|row| row.is_vector) {
                // It may be parked, and what is parsed behind it would be parsed again.
                break WaveEnd::More(next);
            }
            if is_inline {
                // Its text is the parser's own and lasts until the next request is parsed.
                break WaveEnd::More(next);
            }
        };
        // A shard that is away, lent as a whole, has no databases here.
        if wave.len() > 1
            && let Some(keyspace) = self.shard.keyspaces().get(usize::from(client.db.0))
        {
            for item in wave.iter().filter(|item| item.hash != 0 && item.shard == self.id) {
                keyspace.prefetch_bucket(item.hash);
            }
            for item in wave.iter().filter(|item| item.hash != 0 && item.shard == self.id) {
                keyspace.prefetch_entry(item.hash);
            }
            let is_deep = |item: &&Item| {
                item.hash != 0 && item.shard == self.id && item.row.is_ok_and(|row| row.is_deep)
            };
            if wave.iter().any(|item| is_deep(&item)) {
                for level in 0..VALUE_WAVES {
                    let mut is_deeper = false;
                    for item in wave.iter().filter(is_deep) {
                        is_deeper |= keyspace.prefetch_value(item.hash, level);
                    }
                    if !is_deeper {
                        break;
                    }
                }
            }
        }
        end
    }

    /// Whether a request that needs only its own bytes may be answered before the others of its wave are parsed.
    #[inline]
    fn is_plain_now(&self, client: &Client, row: &Row, args: Args<'_>, admit: Admit) -> bool {
        admit == Admit::Check
            && client.pending.is_empty()
            && client.reply_mode == ReplyMode::On
            && !client.is_stopped()
            && !self.needs_gate(client, row, args)
    }

    #[inline]
    fn answer_plain(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        handler: PlainHandler,
        args: Args<'_>,
    ) {
        self.mark = (client.out.len(), client.held.len());
        client.last_command = Some(row.command);
        self.running = row.id;
        let started = self.begin_call(row, args.len());
        self.plain_into(handler, client.proto, &mut client.out, args);
        client.n_commands += 1;
        self.stats.count(row.id);
        if started.is_some() {
            self.look_at_own_call(client, row, args, started, 0);
        }
    }

    #[inline]
    pub(super) fn plain_into(&self, handler: PlainHandler, proto: Proto, out: &mut Vec<u8>, args: Args<'_>) {
        let start = out.len();
        if let Err(error) = handler(&mut Reply::new(out, proto), args) {
            self.fail_into(out, start, proto, &error);
        }
    }

    /// The row of a request and, if it has exactly one key, the key's hash and owner (hash 0: no single key).
    #[inline]
    pub(super) fn look_up(&mut self, args: Args<'_>) -> (Result<&'static Row, Unknown>, u64, ShardId) {
        let row = match self.table.find_again(args, &mut self.last_name) {
            Found::Row(row) => row,
            Found::UnknownCommand => return (Err(Unknown::Command), 0, self.id),
            Found::UnknownSubcommand(row) => return (Err(Unknown::Subcommand(row)), 0, self.id),
        };
        match row.shape {
            KeyShape::One(index) if usize::from(index) < args.len() => {
                let key = args.get(usize::from(index));
                (Ok(row), self.server.hash_key(key), self.server.shard_of(key))
            }
            _ => (Ok(row), 0, self.id),
        }
    }

    /// Runs the requests of a wave in order; `Some(start)` if the one at `start` has to wait.
    pub(super) fn run_wave(
        &mut self,
        client: &mut Box<Client>,
        input: Input<'_>,
        wave: &[Item],
        ranges: &[ArgRange],
        admit: &mut Admit,
    ) -> Option<usize> {
        for item in wave {
            let ranges = &ranges[item.first_range..item.first_range + item.argc];
            let step = if item.is_inline {
                // The text moves out and back so that the client can be lent to the handler.
                let text = client.parser.take_inline_text();
                let step = self.run_request(client, item, Args::new(&text, ranges), *admit);
                client.parser.return_inline_text(text);
                step
            } else if let Some(shared) = input.shared {
                self.run_request(client, item, Args::in_shared(shared, ranges), *admit)
            } else {
                self.run_request(client, item, Args::new(input.bytes, ranges), *admit)
            };
            if step == Step::Parked {
                return Some(item.start);
            }
            *admit = Admit::Check;
            if client.closing != Closing::No {
                return Some(item.end);
            }
        }
        None
    }
}
