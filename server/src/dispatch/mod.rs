//! From bytes of a client to the handler that answers them: parse, gate, route.
//!
//! ```text
//!   input ─parse a wave─► hash ─► prefetch buckets ─► prefetch entries ─► for each: gate ─► route
//!                                                                                   │
//!        Conn   here                                    Shard, one owner   here, or a request to the owner
//!        Split  a part everywhere, gathered             Shard, several     a lend (lend.rs)
//!        Whole  every shard lent                        Any                on the published set, here
//! ```
//!
//! A `Node` is one worker's whole state but for sockets, rings and clock: bytes and `now_ms` go in, bytes and batches come out.
//! The seeded simulation drives several nodes in one thread.
//!
//! Order. Replies leave in request order (`Client::pending`). Two requests of one client to one shard run in order. A write waits
//! for its client's unanswered writes by *another* command on other shards; while a lend is in flight, only the same command goes
//! on (a writing one only if its keys are others). With `pipeline-order strict` every request waits for all earlier ones elsewhere.

/// What a handler is given: the node's parts, borrowed one by one (so that its clients' buffers may be lent as well).
macro_rules! ctx {
    ($node:expr, $caller:expr, $out:expr, $proto:expr) => {
        $crate::command::Ctx {
            shard: &mut $node.shard,
            clients: &mut $node.clients,
            server: &$node.server,
            config: &$node.config,
            limits: &$node.type_limits,
            caller: $caller,
            now_ms: $node.now_ms,
            reply: skerry_resp::reply::Reply::new($out, $proto),
            placed: None,
            job: None,
        }
    };
}

mod gate;
mod gather;
mod halves;
mod inbox;
mod loans;
mod transaction;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hashbrown::HashMap;
use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::{ArgRange, Limits, Parsed};

use crate::args::{Args, MIN_SHARED_BYTES};
use crate::client::{Client, ClientId, Clients, Closing, Parked, ReplyMode, Slot};
use crate::command::{
    AnyHandler, Caller, Command, CommandId, Conn, ConnHandler, Flow, Handler, Job, ShardHandler,
};
use crate::command_stats::CommandStats;
use crate::commands::{Found, KeyShape, LastName, Row, TABLE, Table};
use crate::config::{Config, PipelineOrder};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Key;
use crate::lend::holds::{Freed, Holds, Who};
use crate::message::{Batch, HoldMode, LendId, ReplyTo, RequestHead};
use crate::output::Placed;
use crate::server::{Server, WorkerStats};
use crate::shard::{Shard, ShardId};
use crate::types::Limits as TypeLimits;

use gather::Gather;
use halves::Half;
use inbox::LaneItem;
use loans::{Ask, Lend};

/// Requests parsed and prefetched together. Big enough to hide memory latency, small enough for the first-level cache.
const WAVE: usize = 8;
/// The same for collections: their values lie several levels of pointers deep, and each level is waited for once a wave.
const DEEP_WAVE: usize = 16;
/// Levels of pointers that are fetched ahead for a collection: the value, its table, the segment, the first member.
const VALUE_WAVES: usize = 4;
/// Requests of one client run before others get their turn.
const MAX_REQUESTS_PER_TURN: usize = 256;
/// Output of one client after which it waits for others and for its socket: each reply of a turn can have 512 MB, and the output
/// limit is looked at when they are written.
const MAX_OUTPUT_PER_TURN_BYTES: usize = 1 << 20;
/// Unanswered requests from one shard to one peer.
pub const CREDIT: i32 = 4096;
/// An outbox that holds more takes no further requests (replies always fit: they were reserved by the peer's credit).
const MAX_OUTBOX_BYTES: usize = 4 << 20;

/// One worker's state but for sockets, rings and clock.
pub struct Node {
    pub id: ShardId,
    pub server: Arc<Server>,
    pub config: Arc<Config>,
    config_generation: u64,
    pub shard: Box<Shard>,
    pub clients: Clients,
    /// One per peer (the own one stays empty).
    pub outboxes: Vec<Batch>,
    credit: Vec<i32>,
    credit_waiters: Vec<Vec<ClientId>>,
    holds: Holds,
    /// What the holds have set free and what has not run yet.
    freed: VecDeque<Freed>,
    is_running_freed: bool,
    /// While a peer has this whole shard: the clients whose watches end when it is back.
    unwatches_while_away: Option<Vec<ClientId>>,
    /// Requests of other workers' clients that wait for a hold here, and those behind them.
    lanes: HashMap<ClientId, VecDeque<LaneItem>>,
    /// Asks granted or waiting here.
    asks: HashMap<(ShardId, LendId), Ask>,
    /// Lends that this worker coordinates.
    lends: HashMap<LendId, Lend>,
    /// Commands run in halves, by the same numbers.
    halves: HashMap<LendId, Half>,
    n_read_halves: usize,
    /// How often this shard was lent as a whole.
    shard_trips: u64,
    next_lend: u64,
    /// Lends whose ordered round waits until their slot is the client's first.
    waiting_front: HashMap<(ClientId, u32), LendId>,
    gathers: HashMap<u32, Gather>,
    next_gather: u32,
    jobs: VecDeque<RunningJob>,
    /// Clients with input to run.
    pub runnable: VecDeque<ClientId>,
    /// Clients with output to write, or that are to be closed.
    pub dirty: Vec<ClientId>,
    paused: Vec<ClientId>,
    pub now_ms: i64,
    is_paused: Option<PauseScope>,
    /// Set by the worker when used memory is over `maxmemory` and nothing can be evicted.
    pub is_over_memory: bool,
    limits: Limits,
    type_limits: TypeLimits,
    /// `pipeline-order strict`.
    is_strict: bool,
    scratch: Vec<u8>,
    half_ranges: Vec<ArgRange>,
    half_hashes: Vec<u64>,
    spare_args: Vec<(Vec<u8>, Vec<ArgRange>)>,
    half_reply: Vec<u8>,
    /// Long strings of the reply that is being written, for `Ctx::placed`.
    placed: Vec<Placed>,
    wave: Vec<Item>,
    ranges: Vec<ArgRange>,
    table: &'static Table,
    last_name: LastName<'static>,
    /// This worker's counters per command.
    stats: Arc<CommandStats>,
    /// The command whose handler runs, for its counters.
    running: CommandId,
    /// Where the running command's reply starts (`out`, `held`): a panic cuts back to it.
    mark: (usize, usize),
    pub lend_counts: LendCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PauseScope {
    Writes,
    All,
}

/// What lends did, for INFO and the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct LendCounts {
    pub started: u64,
    pub second_rounds: u64,
    /// Commands run in halves instead.
    pub halves: u64,
    pub whole: u64,
}

struct RunningJob {
    job: Box<dyn Job>,
    to: ReplyTo,
    /// The worker that waits for the reply (this one: the client is here).
    origin: ShardId,
    caller: Caller,
    proto: Proto,
}

/// What a client has sent, in a buffer that may be shared if it is a long one.
struct Input<'a> {
    bytes: &'a [u8],
    shared: Option<&'a Bytes>,
}

/// One parsed request of a wave.
struct Item {
    start: usize,
    end: usize,
    first_range: usize,
    argc: usize,
    row: Result<&'static Row, Unknown>,
    hash: u64,
    shard: ShardId,
    is_inline: bool,
}

#[derive(Clone, Copy)]
enum Unknown {
    Command,
    Subcommand(&'static Row),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// It has not run; the client is parked and the request stays in its input.
    Parked,
}

impl Node {
    pub fn new(id: ShardId, server: Arc<Server>, seed: u64, now_ms: i64) -> Self {
        let config = server.config();
        let n_shards = server.n_shards;
        let shard = Box::new(Shard::new(id, config.databases as usize, server.seed, seed));
        let mut node = Self {
            id,
            config_generation: server.config_generation.load(Ordering::Acquire),
            shard,
            clients: Clients::default(),
            outboxes: (0..n_shards).map(|_| Batch::default()).collect(),
            credit: vec![CREDIT; n_shards],
            credit_waiters: vec![Vec::new(); n_shards],
            holds: Holds::default(),
            freed: VecDeque::new(),
            is_running_freed: false,
            unwatches_while_away: None,
            lanes: HashMap::new(),
            asks: HashMap::new(),
            lends: HashMap::new(),
            halves: HashMap::new(),
            n_read_halves: 0,
            shard_trips: 0,
            next_lend: 0,
            waiting_front: HashMap::new(),
            gathers: HashMap::new(),
            next_gather: 0,
            jobs: VecDeque::new(),
            runnable: VecDeque::new(),
            dirty: Vec::new(),
            paused: Vec::new(),
            now_ms,
            is_paused: None,
            is_over_memory: false,
            limits: Limits::default(),
            type_limits: TypeLimits::new(server.seed),
            is_strict: false,
            scratch: Vec::new(),
            half_ranges: Vec::new(),
            half_hashes: Vec::new(),
            spare_args: Vec::new(),
            half_reply: Vec::new(),
            placed: Vec::new(),
            wave: Vec::with_capacity(WAVE),
            ranges: Vec::with_capacity(WAVE * 4),
            table: &TABLE,
            last_name: LastName::default(),
            stats: server.command_stats[usize::from(id.0)].clone(),
            running: CommandId(0),
            mark: (0, 0),
            lend_counts: LendCounts::default(),
            config,
            server,
        };
        node.take_config();
        node
    }

    fn n_shards(&self) -> usize {
        self.server.n_shards
    }

    /// Called once a turn, before anything else: the turn's time, and what the control plane has changed.
    pub fn begin_turn(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.catch_up();
        self.look_at_pause();
        if self.is_paused.is_none() && !self.paused.is_empty() {
            for id in std::mem::take(&mut self.paused) {
                self.unpark(id, Parked::Pause);
            }
        }
    }

    /// Takes a configuration that has changed; true if it has.
    #[inline]
    fn catch_up(&mut self) -> bool {
        let generation = self.server.config_generation.load(Ordering::Acquire);
        let has_moved = generation != self.config_generation;
        if has_moved {
            self.config_generation = generation;
            self.config = self.server.config();
            self.take_config();
        }
        has_moved
    }

    fn look_at_pause(&mut self) {
        self.is_paused = if self.now_ms < self.server.pause_until_ms.load(Ordering::Relaxed) {
            Some(match self.server.pause_writes_only.load(Ordering::Relaxed) {
                true => PauseScope::Writes,
                false => PauseScope::All,
            })
        } else {
            None
        };
    }

    fn take_config(&mut self) {
        self.type_limits = TypeLimits {
            list_max_listpack_size: self.config.list_max_listpack_size,
            set_max_intset_entries: self.config.set_max_intset_entries as usize,
            set_max_listpack_entries: self.config.set_max_listpack_entries as usize,
            set_max_listpack_value: self.config.set_max_listpack_value as usize,
            hash_max_listpack_entries: self.config.hash_max_listpack_entries as usize,
            hash_max_listpack_value: self.config.hash_max_listpack_value as usize,
            seed: self.server.seed,
        };
        self.is_strict = self.config.pipeline_order == PipelineOrder::Strict;
        self.limits = Limits { max_bulk_len: self.config.proto_max_bulk_len, ..Limits::default() };
    }

    /// New bytes from a client. What can run, runs.
    pub fn feed(&mut self, id: ClientId, bytes: &[u8]) {
        let Some(mut client) = self.clients.take(id) else { return };
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
        self.settle(client);
    }

    /// The same for `n` bytes that were read straight to the end of the client's own buffer.
    pub fn fed(&mut self, id: ClientId, n: usize) {
        let Some(mut client) = self.clients.take(id) else { return };
        client.bytes_in += n as u64;
        client.last_active_ms = self.now_ms;
        client.missing_input = client.missing_input.saturating_sub(n);
        if client.missing_input == 0 && client.parked == Parked::No && !client.is_queued {
            self.run_query(&mut client, Admit::Check);
        }
        self.settle(client);
    }

    /// Runs a client whose input waited.
    pub fn resume(&mut self, id: ClientId) {
        let Some(mut client) = self.clients.take(id) else { return };
        client.is_queued = false;
        if client.parked == Parked::No {
            self.run_query(&mut client, Admit::Check);
        }
        self.settle(client);
    }

    /// Runs the client's waiting request past the holds: it has just been granted. That one only: those behind it would find the
    /// passage of this one in their way.
    fn resume_granted(&mut self, id: ClientId) {
        let Some(mut client) = self.clients.take(id) else { return };
        if client.parked == Parked::Hold {
            client.parked = Parked::No;
            self.run_query(&mut client, Admit::First);
            if client.parked == Parked::No && !client.query.is_empty() && !client.is_queued {
                client.is_queued = true;
                self.runnable.push_back(id);
            }
        }
        self.settle(client);
    }

    /// Runs what stands in the client's own buffer.
    fn run_query(&mut self, client: &mut Box<Client>, admit: Admit) {
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
    fn settle(&mut self, mut client: Box<Client>) {
        let wants_write = client.out.len() > client.out_at || client.closing != Closing::No;
        if wants_write && !client.is_dirty {
            client.is_dirty = true;
            self.dirty.push(client.id);
        }
        self.clients.put_back(client);
    }

    /// Lets a client go on that was parked for `reason`.
    fn unpark(&mut self, id: ClientId, reason: Parked) {
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
    fn run_input(
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
            let parsed = self.parse_wave(client, input, at, admit, &mut wave, &mut ranges);
            n_run += wave.len();
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.run_wave(client, input, shared, &wave, &ranges, &mut admit)
            }));
            let stopped_at = outcome.unwrap_or_else(|panic| {
                self.bury_panic(client, &*panic);
                None
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

    /// Parses up to a wave of requests, looks up their rows, and starts fetching the memory they will touch.
    fn parse_wave(
        &mut self,
        client: &mut Client,
        input: &[u8],
        at: usize,
        admit: Admit,
        wave: &mut Vec<Item>,
        ranges: &mut Vec<ArgRange>,
    ) -> WaveEnd {
        let (limits, mut size) = match client.is_authenticated || self.config.requirepass.is_empty() {
            true => (self.limits, if admit == Admit::First { 1 } else { WAVE }),
            // One at a time: the limits change when AUTH has run.
            false => (Limits::unauthenticated(), 1),
        };
        let mut next = at;
        let end = loop {
            if wave.len() == size {
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
            if size == WAVE && row.is_ok_and(|row| row.is_collection) {
                size = DEEP_WAVE;
            }
            wave.push(Item { start: next, end, first_range, argc, row, hash, shard, is_inline });
            next = end;
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
                item.hash != 0 && item.shard == self.id && item.row.is_ok_and(|row| row.is_collection)
            };
            if wave.iter().any(|item| is_deep(&item)) {
                for level in 0..VALUE_WAVES {
                    for item in wave.iter().filter(is_deep) {
                        keyspace.prefetch_value(item.hash, level);
                    }
                }
            }
        }
        end
    }

    /// The row of a request and, if it has exactly one key, the key's hash and owner (hash 0: no single key).
    #[inline]
    fn look_up(&mut self, args: Args<'_>) -> (Result<&'static Row, Unknown>, u64, ShardId) {
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
    fn run_wave(
        &mut self,
        client: &mut Box<Client>,
        input: &[u8],
        shared: Option<&Bytes>,
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
            } else if let Some(shared) = shared {
                self.run_request(client, item, Args::in_shared(shared, ranges), *admit)
            } else {
                self.run_request(client, item, Args::new(input, ranges), *admit)
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

    #[inline]
    fn run_request(&mut self, client: &mut Box<Client>, item: &Item, args: Args<'_>, admit: Admit) -> Step {
        self.mark = (client.out.len(), client.held.len());
        let row = match item.row {
            Ok(row) => row,
            Err(unknown) => {
                self.refuse_unknown(client, unknown, args);
                return Step::Done;
            }
        };
        if self.needs_gate(client, row, args) {
            match self.gate(client, row, args) {
                gate::Verdict::Run => {}
                gate::Verdict::Answered => return Step::Done,
                gate::Verdict::Parked(reason) => {
                    client.parked = reason;
                    return Step::Parked;
                }
            }
        }
        client.last_command = Some(row.command);
        self.running = row.id;
        let started = self.stats.begin(row.id);
        let step = self.route(client, row, item, args, admit);
        if step == Step::Done {
            client.n_commands += 1;
            self.stats.end(row.id, started);
            let is_settled = std::mem::take(&mut client.is_reply_settled);
            if client.reply_mode != ReplyMode::On && !is_settled {
                self.mute(client);
            }
        }
        step
    }

    /// Kind of handler times number of owners: every case of routing.
    #[inline]
    fn route(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
    ) -> Step {
        if client.is_exec_rebinding {
            client.parked = Parked::Order;
            return Step::Parked;
        }
        match row.command.handler {
            Handler::Conn(_) | Handler::Flow(Flow::Reset)
                if client.n_lends > 0 && is_exec(client.lend_command) =>
            {
                // A transaction in flight may hold commands that change the connection, too.
                client.parked = Parked::Order;
                Step::Parked
            }
            Handler::Conn(handler) => {
                self.run_conn(client, handler, args);
                Step::Done
            }
            Handler::Shard(handler) => match row.shape {
                KeyShape::One(index) => {
                    let args = args.with_hash(usize::from(index), item.hash);
                    self.route_single(client, row, item.shard, args, admit, |node, client, args| {
                        node.run_shard(client, handler, args);
                    })
                }
                KeyShape::None => {
                    self.route_single(client, row, self.id, args, admit, |node, client, args| {
                        node.run_shard(client, handler, args);
                    })
                }
                KeyShape::Many if self.n_shards() == 1 => {
                    self.run_shard(client, handler, args);
                    Step::Done
                }
                KeyShape::Many => match self.single_owner(row, args) {
                    Some(shard) => {
                        self.route_single(client, row, shard, args, admit, |node, client, args| {
                            node.run_shard(client, handler, args);
                        })
                    }
                    None => self.start_lend(client, row, args),
                },
            },
            Handler::Any(handler) => self.route_any(client, row, item, args, admit, handler),
            Handler::Cursor(handler) => {
                let shard = crate::commands::generic::shard_of_cursor(args, self.n_shards());
                self.route_single(client, row, shard, args, admit, |node, client, args| {
                    node.run_shard(client, handler, args);
                })
            }
            Handler::Split(handler, merge) => self.start_gather(client, row, args, admit, handler, merge),
            Handler::Whole(handler) => match self.n_shards() {
                1 => {
                    self.run_shard(client, handler, args);
                    Step::Done
                }
                _ => self.start_lend(client, row, args),
            },
            Handler::Flow(flow) => self.run_flow(client, row, flow, args, admit),
            Handler::Container => {
                self.refuse(client, CommandError::WrongArity(row.command.name));
                Step::Done
            }
            Handler::Words => {
                self.refuse(client, crate::commands::wrong_subcommand(args, "DEBUG"));
                Step::Done
            }
        }
    }

    /// A request whose keys have one owner.
    #[inline]
    fn route_single(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        shard: ShardId,
        args: Args<'_>,
        admit: Admit,
        run: impl FnOnce(&mut Self, &mut Box<Client>, Args<'_>),
    ) -> Step {
        if self.n_shards() > 1 {
            if !self.may_go(client, row, 1 << shard.0) {
                client.parked = Parked::Order;
                return Step::Parked;
            }
            if shard != self.id {
                return self.send_request(client, row, shard, args);
            }
            if admit == Admit::Check && !self.holds.is_idle() && !self.admits_here(row, args) {
                self.wait_here(Who::Request(client.id), row, args);
                client.parked = Parked::Hold;
                return Step::Parked;
            }
        }
        run(self, client, args);
        Step::Done
    }

    /// Whether the order of this client's requests lets one go that touches the shards in `mask`.
    fn may_go(&self, client: &Client, row: &Row, mask: u64) -> bool {
        if client.n_lends > 0 || (client.n_gathers > 0 && row.command.is_write()) {
            return false;
        }
        if client.n_unanswered_writes > 0 {
            let is_other = client.write_command.is_none_or(|c| !std::ptr::eq(c, row.command));
            let is_elsewhere = client.write_mask & !mask != 0;
            if row.command.is_write() && is_other && is_elsewhere {
                return false;
            }
        }
        !self.is_strict || client.pending.is_empty()
    }

    /// Whether the holds of this shard let the request run now.
    fn admits_here(&self, row: &Row, args: Args<'_>) -> bool {
        if row.shape == KeyShape::None {
            return match row.is_viewer {
                true => self.holds.admits_viewer(),
                false => self.holds.admits_keyless(),
            };
        }
        let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
        let mut admits = self.holds.admits_keyless();
        row.command.for_each_key(args, |index, _| {
            let hash = args.known_hash(index).unwrap_or_else(|| self.server.hash_key(args.get(index)));
            admits = admits && self.holds.admits(mode, std::iter::once(hash));
        });
        admits
    }

    /// Makes a request wait for the holds of this shard.
    fn wait_here(&mut self, who: Who, row: &Row, args: Args<'_>) {
        if row.shape == KeyShape::None {
            match row.is_viewer {
                true => self.holds.wait_to_view(who),
                false => self.holds.wait_at_gate(who),
            }
            return;
        }
        let mode = if row.command.is_write() { HoldMode::Exclusive } else { HoldMode::Shared };
        let mut keys = Vec::new();
        row.command.for_each_key(args, |index, _| keys.push(self.server.hash_key(args.get(index))));
        self.holds.wait(who, mode, keys.into_iter());
    }

    /// The owner of all keys, if it is one. No keys at all: this shard.
    fn single_owner(&self, row: &Row, args: Args<'_>) -> Option<ShardId> {
        let mut owner = None;
        let mut is_single = true;
        row.command.for_each_key(args, |index, _| {
            let shard = self.server.shard_of(args.get(index));
            is_single &= *owner.get_or_insert(shard) == shard;
        });
        is_single.then(|| owner.unwrap_or(self.id))
    }

    /// Puts a request into the owner's outbox.
    fn send_request(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        shard: ShardId,
        args: Args<'_>,
    ) -> Step {
        if client.pending.len() >= client.max_pending() {
            client.parked = Parked::Room;
            return Step::Parked;
        }
        if !self.take_credit(client.id, shard) {
            client.parked = Parked::Credit;
            return Step::Parked;
        }
        let is_write = row.command.is_write();
        if is_write {
            let is_run = client.n_unanswered_writes == 0
                || client.write_command.is_some_and(|command| std::ptr::eq(command, row.command));
            client.n_unanswered_writes += 1;
            client.write_command = is_run.then_some(row.command);
            client.write_mask |= 1 << shard.0;
        }
        let sequence = client.next_sequence();
        let to = ReplyTo::Slot { client: client.id, sequence };
        self.push_request(shard, to, client, row, args);
        client.pending.push_back(Slot::Waiting { is_write, is_muted: false });
        Step::Done
    }

    #[inline]
    fn push_request(&mut self, shard: ShardId, to: ReplyTo, client: &Client, row: &Row, args: Args<'_>) {
        let hashed_at = match row.shape {
            KeyShape::One(index) if args.known_hash(usize::from(index)).is_some() => index,
            _ => 0,
        };
        let head = RequestHead {
            reply_to: to,
            client: client.id,
            db: client.db,
            proto: client.proto,
            command: row.id.0,
            hashed_at,
            hash: args.known_hash(usize::from(hashed_at)).unwrap_or(0),
            argc: args.len() as u32,
        };
        let ranges = args.ranges();
        let outbox = &mut self.outboxes[usize::from(shard.0)];
        match args.shared_source() {
            Some(source) => outbox.push_shared_request(&head, source.clone(), ranges),
            None => outbox.push_request(&head, (0..ranges.len()).map(|i| args.get(i))),
        }
    }

    /// Reserves room toward `peer` for one request and its reply.
    fn take_credit(&mut self, client: ClientId, peer: ShardId) -> bool {
        let peer = usize::from(peer.0);
        if self.credit[peer] <= 0 || self.outboxes[peer].bytes.len() > MAX_OUTBOX_BYTES {
            self.credit_waiters[peer].push(client);
            return false;
        }
        self.credit[peer] -= 1;
        true
    }

    fn give_credit(&mut self, peer: ShardId) {
        let peer = usize::from(peer.0);
        self.credit[peer] += 1;
        debug_assert!(self.credit[peer] <= CREDIT, "credit given back twice");
    }

    /// Called once a turn: connections that others have marked for closing (CLIENT KILL) are seen to.
    pub fn note_closing(&mut self) {
        for id in std::mem::take(&mut self.clients.to_close) {
            if let Some(client) = self.clients.get_mut(id)
                && !client.is_dirty
            {
                client.is_dirty = true;
                self.dirty.push(id);
            }
        }
    }

    /// Called once a turn, when outboxes were published: clients that lacked credit go on.
    pub fn wake_credit_waiters(&mut self) {
        for peer in 0..self.credit.len() {
            if !self.credit_waiters[peer].is_empty()
                && self.credit[peer] > CREDIT / 4
                && self.outboxes[peer].bytes.len() < MAX_OUTBOX_BYTES / 2
            {
                for id in std::mem::take(&mut self.credit_waiters[peer]) {
                    self.unpark(id, Parked::Credit);
                }
            }
        }
    }

    /// Runs a `Shard` handler here for a client of this worker; the reply goes to `out`, or to `held` behind earlier requests.
    #[inline]
    fn run_shard(&mut self, client: &mut Box<Client>, handler: ShardHandler, args: Args<'_>) {
        let is_direct = client.pending.is_empty();
        let caller = Caller { client: client.id, db: client.db };
        let proto = client.proto;
        let out = if is_direct { &mut client.out } else { &mut client.held };
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        ctx.placed = Some(&mut self.placed);
        let outcome = handler(&mut ctx, args);
        if let Some(job) = ctx.job.take() {
            self.placed.clear();
            out.truncate(start);
            self.start_job(client, job, caller, proto);
            return;
        }
        if let Err(error) = outcome {
            self.placed.clear();
            self.fail_into(out, start, proto, &error);
        }
        if !self.placed.is_empty() {
            match is_direct {
                true => self.placed.drain(..).for_each(|(at, bytes)| client.placed.push(at, bytes)),
                false => client.held_placed.append(&mut self.placed),
            }
        }
        if !is_direct {
            let len = client.held.len() - start;
            client.pending.push_back(Slot::Ready { start, len });
        }
    }

    /// Runs a `Conn` handler.
    #[inline]
    fn run_conn(&mut self, client: &mut Box<Client>, handler: ConnHandler, args: Args<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.conn_into(client, &mut scratch, |conn| handler(conn, args));
        self.push_reply(client, &scratch);
        self.scratch = scratch;
        // CONFIG SET and CLIENT PAUSE hold for the rest of their own pipeline.
        if self.catch_up() {
            self.look_at_pause();
        }
    }

    fn conn_into(
        &mut self,
        client: &mut Client,
        out: &mut Vec<u8>,
        run: impl FnOnce(&mut Conn<'_>) -> Outcome,
    ) {
        let start = out.len();
        let proto = client.proto;
        let mut conn = Conn {
            client,
            server: &self.server,
            config: &self.config,
            now_ms: self.now_ms,
            reply: Reply::new(out, proto),
        };
        if let Err(error) = run(&mut conn) {
            self.fail_into(out, start, proto, &error);
        }
    }

    /// Appends a complete reply for the request that is running.
    #[inline]
    fn push_reply(&mut self, client: &mut Client, reply: &[u8]) {
        if client.pending.is_empty() {
            client.out.extend_from_slice(reply);
        } else {
            let start = client.held.len();
            client.held.extend_from_slice(reply);
            client.pending.push_back(Slot::Ready { start, len: reply.len() });
        }
    }

    fn reply_here(&mut self, client: &mut Client, write: impl FnOnce(&mut Reply<'_>)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        write(&mut Reply::new(&mut scratch, client.proto));
        self.push_reply(client, &scratch);
        self.scratch = scratch;
    }

    /// Answers a request whose command is not in the table.
    #[cold]
    fn refuse_unknown(&mut self, client: &mut Client, unknown: Unknown, args: Args<'_>) {
        if gate::is_http(args.get(0)) {
            // A browser that was made to talk to us: what it sends behind may be meant as commands (cross-protocol scripting).
            crate::log::warning(&format!(
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. \
                 This is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Redis \
                 instance. Connection from {} aborted.",
                client.address
            ));
            client.closing = Closing::Now;
            return;
        }
        self.reject(client, None, gate::unknown_command(unknown, args));
    }

    /// Answers the running request with an error.
    fn refuse(&mut self, client: &mut Client, error: CommandError) {
        self.note_failure(&error);
        self.answer_refusal(client, error);
    }

    /// Answers a request that does not run; without a row if its command is unknown.
    fn reject(&mut self, client: &mut Client, row: Option<&Row>, error: CommandError) {
        let own = usize::from(self.id.0);
        WorkerStats::add(&self.server.workers[own].error_replies, 1);
        self.stats.reject(row.map(|row| row.id), &error.wire());
        self.answer_refusal(client, error);
    }

    fn answer_refusal(&mut self, client: &mut Client, error: CommandError) {
        if let Some(multi) = &mut client.multi {
            multi.is_broken = true;
        }
        self.reply_here(client, |reply| reply.error(error.wire()));
        if client.reply_mode != ReplyMode::On {
            self.mute(client);
        }
    }

    /// Drops the reply of the request that has just run or been sent (CLIENT REPLY OFF or SKIP).
    #[cold]
    fn mute(&mut self, client: &mut Client) {
        match client.reply_mode {
            ReplyMode::On => return,
            ReplyMode::SkipNext => {
                client.reply_mode = ReplyMode::Skip;
            }
            ReplyMode::Skip => client.reply_mode = ReplyMode::On,
            ReplyMode::Off => {}
        }
        match client.pending.back_mut() {
            Some(Slot::Ready { .. }) => client.drop_last_held(),
            Some(Slot::Waiting { is_muted, .. } | Slot::Gathering { is_muted, .. }) => *is_muted = true,
            None => client.cut_output(self.mark.0, self.mark.1),
        }
    }

    /// A command panicked: its client gets an error and is closed, the server goes on.
    #[cold]
    fn bury_panic(&mut self, client: &mut Client, panic: &(dyn std::any::Any + Send)) {
        let name = client.last_command.map_or("?", |command| command.name);
        self.note_panic(name, panic);
        self.placed.clear();
        client.cut_output(self.mark.0.max(client.out_at), self.mark.1);
        // Behind what earlier requests are still owed.
        self.reply_here(client, |reply| reply.error(INTERNAL_ERROR));
        client.closing = Closing::AfterReplies;
    }

    /// Puts an error in the place of whatever a handler has written since `start`.
    fn fail_into(&self, out: &mut Vec<u8>, start: usize, proto: Proto, error: &CommandError) {
        out.truncate(start);
        Reply::new(out, proto).error(error.wire());
        self.note_failure(error);
    }

    /// Counts an error of the command that is running.
    #[cold]
    fn note_failure(&self, error: &CommandError) {
        let own = usize::from(self.id.0);
        WorkerStats::add(&self.server.workers[own].error_replies, 1);
        self.stats.fail(self.running, &error.wire());
    }

    fn note_panic(&self, command: &str, panic: &(dyn std::any::Any + Send)) {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        crate::log::warning(&format!("Command '{command}' failed by a bug of the server: {text}"));
        WorkerStats::add(&self.server.workers[usize::from(self.id.0)].panics, 1);
    }

    /// A read on a vector set: on this core if the set is published, else at its owner.
    fn route_any(
        &mut self,
        client: &mut Box<Client>,
        row: &'static Row,
        item: &Item,
        args: Args<'_>,
        admit: Admit,
        handler: AnyHandler,
    ) -> Step {
        if args.len() < 2 {
            self.refuse(client, CommandError::WrongArity(row.command.name));
            return Step::Done;
        }
        let args = args.with_hash(1, item.hash);
        if item.shard != self.id && self.may_go(client, row, 1 << item.shard.0) {
            let has_writes_there = client.write_mask & (1 << item.shard.0) != 0;
            if !has_writes_there
                && let Some(handle) = self.server.vectors.published(client.db, args.get(1), self.now_ms)
                && let Some(publication) = handle.publication()
                && self.read_published(client, &handle, publication, args, handler)
            {
                return Step::Done;
            }
        }
        self.route_single(client, row, item.shard, args, admit, |node, client, args| {
            let start = client.held.len();
            let is_direct = client.pending.is_empty();
            let (caller, proto) = (Caller { client: client.id, db: client.db }, client.proto);
            let out = if is_direct { &mut client.out } else { &mut client.held };
            node.any_at_owner(handler, caller, proto, out, args);
            if !is_direct {
                client.pending.push_back(Slot::Ready { start, len: client.held.len() - start });
            }
        })
    }

    /// Runs an `Any` handler here, on a set of another worker. False, and nothing done, if a transaction has written the set meanwhile:
    /// what was read may be a half of it.
    fn read_published(
        &mut self,
        client: &mut Client,
        handle: &crate::vector::VectorHandle,
        publication: u64,
        args: Args<'_>,
        handler: AnyHandler,
    ) -> bool {
        let start = client.held.len();
        let is_direct = client.pending.is_empty();
        let (caller, proto) = (Caller { client: client.id, db: client.db }, client.proto);
        let out = if is_direct { &mut client.out } else { &mut client.held };
        let out_start = out.len();
        self.any_into(Ok(Some(handle)), handler, caller, proto, out, args);
        if !handle.still_stands(publication) {
            out.truncate(out_start);
            return false;
        }
        if !is_direct {
            client.pending.push_back(Slot::Ready { start, len: client.held.len() - start });
        }
        true
    }

    /// Runs an `Any` handler at the owner: the set is looked up in the keyspace.
    fn any_at_owner(
        &mut self,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        if args.len() < 2 {
            // The handler tells the error.
            self.any_into(Ok(None), handler, caller, proto, out, args);
            return;
        }
        let key = Key {
            bytes: args.get(1),
            hash: args.known_hash(1).unwrap_or_else(|| self.server.hash_key(args.get(1))),
        };
        match crate::vector::handle_of(&mut self.shard, caller.db, key, self.now_ms) {
            Ok(None) => self.any_into(Ok(None), handler, caller, proto, out, args),
            Ok(Some((handle, expire_at_ms))) => {
                if self.n_shards() > 1 {
                    self.server.vectors.publish(caller.db, args.get(1), &handle, expire_at_ms);
                }
                self.any_into(Ok(Some(&handle)), handler, caller, proto, out, args);
            }
            Err(error) => self.any_into(Err(error), handler, caller, proto, out, args),
        }
    }

    fn any_into(
        &mut self,
        set: Result<Option<&crate::vector::VectorHandle>, CommandError>,
        handler: AnyHandler,
        caller: Caller,
        proto: Proto,
        out: &mut Vec<u8>,
        args: Args<'_>,
    ) {
        let start = out.len();
        let mut ctx = ctx!(self, caller, out, proto);
        if let Err(error) = handler(&mut ctx, set, args) {
            self.fail_into(out, start, proto, &error);
        }
    }

    fn start_job(&mut self, client: &mut Client, job: Box<dyn Job>, caller: Caller, proto: Proto) {
        let to = ReplyTo::Slot { client: client.id, sequence: client.next_sequence() };
        client.pending.push_back(Slot::Gathering { is_muted: false, is_split: true });
        client.n_gathers += 1;
        self.jobs.push_back(RunningJob { job, to, origin: self.id, caller, proto });
    }

    /// Whether there is work that waits for no event.
    pub fn has_work(&self) -> bool {
        !self.runnable.is_empty() || !self.jobs.is_empty() || self.shard.has_garbage()
    }

    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Requests and lends that have waited for a hold here so far.
    pub fn n_waits(&self) -> u64 {
        self.holds.n_waits
    }

    /// What is begun here and not ended, by name: all zeros when the node is at rest and its clients have their answers.
    pub fn outstanding(&self) -> Vec<(&'static str, usize)> {
        let credit_out = self.credit.iter().map(|left| CREDIT.abs_diff(*left) as usize).sum();
        vec![
            ("held keys", self.holds.n_held()),
            ("holds", usize::from(!self.holds.is_idle())),
            ("lanes", self.lanes.len()),
            ("asks", self.asks.len()),
            ("lends", self.lends.len()),
            ("halves", self.halves.len()),
            ("lends waiting for their turn", self.waiting_front.len()),
            ("gatherings", self.gathers.len()),
            ("jobs", self.jobs.len()),
            ("freed", self.freed.len()),
            ("credit", credit_out),
            ("messages", self.outboxes.iter().map(|outbox| outbox.n_messages as usize).sum()),
            ("clients to run", self.runnable.len()),
        ]
    }

    /// Removes some dead keys; true if there may be more.
    pub fn expire_slice(&mut self, budget: usize) -> bool {
        self.shard.expire_slice(self.now_ms, budget)
    }

    /// Once a second: what the control plane reads of this worker.
    pub fn each_second(&mut self) {
        self.server.note_peak_memory();
        let own = usize::from(self.id.0);
        self.server.workers[own].take_rates(self.stats.total_calls());
    }

    /// Runs one slice of the oldest job.
    pub fn run_job_slice(&mut self) {
        let Some(mut running) = self.jobs.pop_front() else { return };
        if !self.holds.admits_keyless() {
            self.jobs.push_front(running);
            return;
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let mut ctx = ctx!(self, running.caller, &mut out, running.proto);
        match catch_unwind(AssertUnwindSafe(|| running.job.slice(&mut ctx))) {
            Ok(true) => self.deliver(running.origin, running.to, &out),
            Ok(false) => self.jobs.push_back(running),
            Err(panic) => {
                self.note_panic("a job", &*panic);
                out.clear();
                Reply::new(&mut out, running.proto).error(INTERNAL_ERROR);
                self.deliver(running.origin, running.to, &out);
            }
        }
        self.scratch = out;
    }

    /// Hands a finished reply to whoever waits for it.
    fn deliver(&mut self, origin: ShardId, to: ReplyTo, reply: &[u8]) {
        if origin != self.id {
            let outbox = &mut self.outboxes[usize::from(origin.0)];
            let mark = outbox.begin_reply(to);
            outbox.bytes.extend_from_slice(reply);
            outbox.end_reply(mark);
            return;
        }
        match to {
            ReplyTo::Slot { client, sequence } => self.answer(client, sequence, reply),
            ReplyTo::Gather { id } => self.take_part(id, self.id, reply),
            ReplyTo::Lend { .. } => panic!("the own half of a command is not sent"),
        }
    }

    /// The reply of the first slot stands in `out` already.
    fn answered_in_place(&mut self, id: ClientId, sequence: u32) {
        let is_muted = self.clients.get_mut(id).is_some_and(|client| {
            matches!(client.pending.front(), Some(Slot::Gathering { is_muted: true, .. }))
        });
        debug_assert!(!is_muted, "a muted reply is not written in place");
        self.answer(id, sequence, &[]);
    }

    /// Answers a pending slot of a client of this worker.
    fn answer(&mut self, id: ClientId, sequence: u32, reply: &[u8]) {
        self.answer_with(id, sequence, reply, std::iter::empty());
    }

    /// The same with the long strings that belong into the reply.
    fn answer_with(
        &mut self,
        id: ClientId,
        sequence: u32,
        reply: &[u8],
        strings: impl Iterator<Item = Placed>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.answer(sequence, reply, strings);
        let front = client.front;
        // A closing one even if its last reply is muted: its end is due.
        let wants_write = client.out.len() > client.out_at || client.closing != Closing::No;
        if wants_write && !client.is_dirty {
            client.is_dirty = true;
            self.dirty.push(id);
        }
        let has_room = client.parked == Parked::Room && client.pending.len() <= client.max_pending() / 2;
        if client.parked == Parked::Order || has_room {
            client.parked = Parked::No;
            if !client.is_queued {
                client.is_queued = true;
                self.runnable.push_back(id);
            }
        }
        if !self.waiting_front.is_empty()
            && let Some(lend) = self.waiting_front.remove(&(id, front))
        {
            self.ask_next_owner(lend);
        }
    }

    /// Admits a connection.
    pub fn connect(&mut self, make: impl FnOnce(ClientId) -> Client) -> ClientId {
        self.clients.insert(self.id, make)
    }

    /// Ends a connection: what it has in flight completes without it.
    pub fn disconnect(&mut self, id: ClientId) -> Option<Box<Client>> {
        let client = self.clients.remove(id)?;
        self.end_watches(id, client.watch_mask);
        if client.parked == Parked::Hold {
            let mut freed = Vec::new();
            self.holds.forget(id, &mut freed);
            self.run_freed(freed);
        }
        let mut waiting: Vec<_> = self.waiting_front.extract_if(|(client, _), _| *client == id).collect();
        waiting.sort_unstable_by_key(|(_, lend)| lend.0);
        for (_, lend) in waiting {
            self.ask_next_owner(lend);
        }
        Some(client)
    }

    /// Ends a client's watches on the shards in `mask`.
    fn end_watches(&mut self, id: ClientId, mask: u64) {
        for shard in 0..self.n_shards() {
            if mask & (1 << shard) == 0 {
                continue;
            }
            if shard == usize::from(self.id.0) {
                self.unwatch_here(id);
            } else {
                self.outboxes[shard].push_unwatch(id);
            }
        }
    }

    /// Ends the client's watches on this shard, or as soon as it is back.
    fn unwatch_here(&mut self, id: ClientId) {
        match &mut self.unwatches_while_away {
            Some(later) => later.push(id),
            None => self.shard.unwatch(id),
        }
    }

    /// Runs what a release has set free, in order. What that sets free in turn joins the line: nothing runs inside another.
    fn run_freed(&mut self, freed: Vec<Freed>) {
        self.freed.extend(freed);
        if std::mem::replace(&mut self.is_running_freed, true) {
            return;
        }
        while let Some(next) = self.freed.pop_front() {
            match next {
                Freed::Lend(shard, lend) => self.grant(shard, lend),
                Freed::Request(client, passage) => {
                    let is_own = client.worker() == self.id;
                    match is_own {
                        true => self.resume_granted(client),
                        false => self.run_lane_head(client),
                    }
                    let mut more = Vec::new();
                    self.holds.ran(passage, &mut more);
                    self.freed.extend(more);
                    if !is_own {
                        self.run_lane(client);
                    }
                }
            }
        }
        self.is_running_freed = false;
    }

    /// Keys of `args`, once each.
    fn keys_of<'a>(row: &Row, args: Args<'a>) -> Vec<&'a [u8]> {
        let mut keys = Vec::new();
        row.command.for_each_key(args, |index, _| keys.push(args.get(index)));
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Whether the first request has to look at the holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admit {
    Check,
    /// The first one was granted just now.
    First,
}

/// How a wave's parsing ended.
enum WaveEnd {
    More(usize),
    /// All complete requests are parsed; the incomplete one stands at `at` and misses so many bytes or more.
    NeedsBytes {
        at: usize,
        missing: usize,
    },
    Broken(skerry_resp::request::ProtocolError),
}

/// What a client sees of a bug.
pub const INTERNAL_ERROR: &str = "ERR internal error, the connection is closed; see the server's log";

fn is_exec(command: Option<&Command>) -> bool {
    command.is_some_and(|command| matches!(command.handler, Handler::Flow(Flow::Exec)))
}

/// The row behind a message's command number.
fn row_of(id: u16) -> &'static Row {
    TABLE.row(CommandId(id))
}
