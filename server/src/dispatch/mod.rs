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
//! `Roaming` goes as `Shard`, or as `Whole` if its arguments say so.
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
            elsewhere: &mut [],
            clients: &mut $node.clients,
            server: &$node.server,
            config: &$node.config,
            limits: &$node.type_limits,
            caller: $caller,
            now_ms: $node.now_ms,
            reply: skerry_resp::reply::Reply::new($out, $proto),
            placed: None,
            job: None,
            patience: $crate::command::Patience::None,
            wait: None,
            work: &mut $node.work,
        }
    };
}

mod answers;
mod blocking;
pub mod busy;
mod deliveries;
mod gate;
mod gather;
mod grants;
mod guests;
mod halves;
mod inbox;
mod invalidation;
mod jobs;
mod loans;
mod memory;
mod monitor;
mod observed;
mod published;
mod route;
mod scripts;
mod transaction;
mod waits;
mod wave;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use skerry_resp::request::{ArgRange, Limits};

use crate::blocked::Claim;
use crate::client::{BlockedState, Client, ClientId, Clients, Parked};
use crate::command::CommandId;
use crate::command_stats::CommandStats;
use crate::commands::{LastName, Row, TABLE, Table};
use crate::config::{Config, PipelineOrder};
use crate::connections::Card;
use crate::evict;
use crate::lend::holds::{Freed, Holds, Passage, Who};
use crate::message::{Batch, LendId};
use crate::output::Placed;
use crate::pubsub::Delivery;
use crate::script::Engine;
use crate::server::Server;
use crate::shard::{Shard, ShardId};
use crate::tracking::PrefixList;
use crate::types::Limits as TypeLimits;
use crate::work::Work;

pub use blocking::BlockCounts;
use blocking::WaitingRequest;
use gather::Gather;
use halves::{Half, HalfBuffers};
use inbox::LaneItem;
use jobs::RunningJob;
use loans::{Ask, Lend};
use memory::MemoryLimit;
use observed::Observed;
use wave::{Item, WAVE};

/// Unanswered requests from one shard to one peer.
pub const CREDIT: i32 = 4096;
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
    /// Blocked requests all of whose keys are here, by client.
    waiting: HashMap<ClientId, WaitingRequest>,
    /// Keys held for blocked clients that were called to them.
    reserved: HashMap<ClientId, Passage>,
    /// Own blocked clients that were called to their keys, and by which owner.
    calls: VecDeque<(ClientId, ShardId)>,
    /// When the waits of own clients end.
    deadlines: BTreeSet<(i64, ClientId)>,
    /// While a peer has this whole shard: the clients whose waits here end when it is back.
    unblocks_while_away: Vec<ClientId>,
    /// Goes with the request that is sent next.
    next_claim: Option<Arc<Claim>>,
    gathers: HashMap<u32, Gather>,
    next_gather: u32,
    jobs: VecDeque<RunningJob>,
    /// Searches and plans in slices.
    pub work: Work,
    /// Clients with input to run.
    pub runnable: VecDeque<ClientId>,
    /// Clients with output to write, or that are to be closed.
    pub dirty: Vec<ClientId>,
    /// Clients with published messages to write, which may wait a little for more of them.
    pub told: Vec<ClientId>,
    paused: Vec<ClientId>,
    /// Published by requests that have run, not yet sent.
    deliveries: Vec<Delivery>,
    pub now_ms: i64,
    is_paused: Option<PauseScope>,
    memory: MemoryLimit,
    limits: Limits,
    type_limits: TypeLimits,
    /// `pipeline-order strict`.
    is_strict: bool,
    scratch: Vec<u8>,
    half_ranges: Vec<ArgRange>,
    spare_halves: Vec<HalfBuffers>,
    half_reply: Vec<u8>,
    /// Long strings of the reply that is being written, for `Ctx::placed`.
    placed: Vec<Placed>,
    wave: Vec<Item>,
    ranges: Vec<ArgRange>,
    table: &'static Table,
    last_name: LastName<'static>,
    /// This worker's counters per command.
    stats: Arc<CommandStats>,
    observed: Observed,
    /// Who monitors, and the lines that are written for them.
    monitors: Arc<[ClientId]>,
    shown: Vec<u8>,
    /// The client whose transaction runs.
    queue_writer: Option<ClientId>,
    /// Who tracks which prefix.
    prefixes: Arc<PrefixList>,
    /// The transaction that runs is of a client that tracks what it reads.
    is_queue_tracked: bool,
    /// The table of tracked keys has to be made smaller.
    is_tracking_over: bool,
    /// What a log would keep of the arguments of the job that is about to begin.
    job_argv: Vec<Box<[u8]>>,
    /// The command whose handler runs, for its counters.
    running: CommandId,
    /// Where the running command's reply starts (`out`, `held`): a panic cuts back to it.
    mark: (usize, usize),
    pub lend_counts: LendCounts,
    pub block_counts: BlockCounts,
    /// This worker's Lua, made when the first script comes.
    scripts: Option<Box<Engine>>,
    /// The reply of the script that runs.
    script_out: Vec<u8>,
    /// While a script runs too long.
    busy: busy::Busy,
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
    /// For blocked clients whose keys have several owners.
    pub calls: u64,
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
            waiting: HashMap::new(),
            reserved: HashMap::new(),
            calls: VecDeque::new(),
            deadlines: BTreeSet::new(),
            unblocks_while_away: Vec::new(),
            next_claim: None,
            gathers: HashMap::new(),
            next_gather: 0,
            jobs: VecDeque::new(),
            work: Work::default(),
            runnable: VecDeque::new(),
            dirty: Vec::new(),
            told: Vec::new(),
            paused: Vec::new(),
            deliveries: Vec::new(),
            now_ms,
            is_paused: None,
            memory: MemoryLimit::default(),
            limits: Limits::default(),
            type_limits: TypeLimits::new(server.seed),
            is_strict: false,
            scratch: Vec::new(),
            half_ranges: Vec::new(),
            spare_halves: Vec::new(),
            half_reply: Vec::new(),
            placed: Vec::new(),
            wave: Vec::with_capacity(WAVE),
            ranges: Vec::with_capacity(WAVE * 4),
            table: &TABLE,
            last_name: LastName::default(),
            stats: server.command_stats[usize::from(id.0)].clone(),
            observed: Observed::new(&config),
            monitors: Arc::default(),
            shown: Vec::new(),
            queue_writer: None,
            prefixes: Arc::default(),
            is_queue_tracked: false,
            is_tracking_over: false,
            job_argv: Vec::new(),
            running: CommandId(0),
            mark: (0, 0),
            lend_counts: LendCounts::default(),
            block_counts: BlockCounts::default(),
            scripts: None,
            script_out: Vec::new(),
            busy: busy::Busy::default(),
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
        if self.busy.last_look.take().is_some() {
            // A script that kept us busy has ended by a bug.
            self.server.scripts.set_idle();
        }
        self.work.begin_turn();
        self.catch_up();
        self.shard.tell_time(now_ms);
        self.tend_tracking();
        self.look_at_memory();
        self.look_at_pause();
        self.end_overdue_waits();
        self.see_to_blocked();
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

    /// CLIENT PAUSE is in force: keys neither expire by themselves nor are they evicted.
    pub fn is_paused(&self) -> bool {
        self.is_paused.is_some()
    }

    /// When the clients that wait for the end of a pause go on.
    fn end_of_pause_ms(&self) -> Option<i64> {
        let is_awaited = self.is_paused.is_some() && !self.paused.is_empty();
        is_awaited.then(|| self.server.pause_until_ms.load(Ordering::Relaxed))
    }

    fn take_config(&mut self) {
        self.type_limits = TypeLimits {
            list_max_listpack_size: self.config.list_max_listpack_size,
            set_max_intset_entries: self.config.set_max_intset_entries as usize,
            set_max_listpack_entries: self.config.set_max_listpack_entries as usize,
            set_max_listpack_value: self.config.set_max_listpack_value as usize,
            hash_max_listpack_entries: self.config.hash_max_listpack_entries as usize,
            hash_max_listpack_value: self.config.hash_max_listpack_value as usize,
            zset_max_listpack_entries: self.config.zset_max_listpack_entries as usize,
            zset_max_listpack_value: self.config.zset_max_listpack_value as usize,
            seed: self.server.seed,
        };
        self.is_strict = self.config.pipeline_order == PipelineOrder::Strict;
        self.monitors = self.server.monitors.list();
        self.observed = Observed::new(&self.config);
        self.observed.hotkeys = self.server.hotkeys.session(self.now_ms).filter(|session| session.is_active);
        self.observed.is_all |= !self.monitors.is_empty() || self.observed.hotkeys.is_some();
        if !(self.prefixes.is_empty() && self.server.prefixes.is_empty()) {
            self.prefixes = Arc::new(self.server.prefixes.list());
        }
        self.configure_shard();
        self.take_memory_limit();
        self.limits = Limits { max_bulk_len: self.config.proto_max_bulk_len, ..Limits::default() };
    }

    /// Tells the shard in place what the configuration says: at a change, and whenever another comes into that place.
    fn configure_shard(&mut self) {
        let Config { maxmemory_policy, lfu_log_factor, lfu_decay_time, notify_keyspace_events, .. } =
            *self.config;
        let tracking = evict::tracking(maxmemory_policy);
        self.shard.set_access_rules(self.now_ms, |access| {
            access.set_rules(tracking, lfu_log_factor, lfu_decay_time);
        });
        self.shard.set_broadcasting(!self.prefixes.is_empty());
        self.shard.candidates.clear();
        self.shard.set_notified(notify_keyspace_events);
    }

    /// Whether there is work that waits for no event.
    pub fn has_work(&self) -> bool {
        let has_slices = !self.jobs.is_empty() || self.work.is_waiting() || self.is_tracking_over;
        has_slices
            || !self.calls.is_empty()
            || !self.runnable.is_empty()
            || self.shard.has_garbage()
            || !self.shard.upkeep.is_empty()
            || self.shard.keysizes.is_walking()
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
            ("blocked requests", self.waiting.len()),
            ("blocked clients", self.shard.blocked.n_waiters()),
            ("keys held for blocked clients", self.reserved.len()),
            ("calls", self.calls.len()),
            ("deadlines", self.deadlines.len()),
            ("gatherings", self.gathers.len()),
            ("jobs", self.jobs.len()),
            ("searches and plans", self.work.n_kept()),
            ("freed", self.freed.len()),
            ("credit", credit_out),
            ("messages", self.outboxes.iter().map(|outbox| outbox.n_messages as usize).sum()),
            ("clients to run", self.runnable.len()),
        ]
    }

    /// Removes some dead keys; true if there may be more.
    pub fn expire_slice(&mut self, budget: usize) -> bool {
        let is_more = self.shard.expire_slice(self.now_ms, budget);
        self.serve_blocked();
        self.see_to_blocked();
        self.send_deliveries();
        is_more
    }

    /// Once a second: what the control plane reads of this worker.
    pub fn each_second(&mut self) {
        self.server.note_peak_memory();
        let own = usize::from(self.id.0);
        self.server.workers[own].take_rates(self.stats.total_calls());
    }

    /// Admits a connection.
    pub fn connect(&mut self, make: impl FnOnce(ClientId) -> Client) -> ClientId {
        let id = self.clients.insert(self.id, make);
        if let Some(client) = self.clients.get_mut(id) {
            let card =
                Card { address: client.address.as_str().into(), name: Vec::new(), is_unix: client.is_unix };
            self.server.connections.add(id, client.number, card);
        }
        id
    }

    /// Ends a connection: what it has in flight completes without it.
    pub fn disconnect(&mut self, id: ClientId) -> Option<Box<Client>> {
        let mut client = self.clients.remove(id)?;
        self.server.connections.remove(id, client.number);
        self.unsubscribe_all(&mut client);
        self.untrack(&mut client);
        self.end_monitor(&mut client);
        self.work.leave(id);
        self.end_watches(id, client.watch_mask);
        if let Some(blocked) = client.blocked.take() {
            blocked.claim.abandon();
            self.block_counts.died += u64::from(blocked.state != BlockedState::Asked);
            self.end_blocked(id, &blocked);
        }
        if client.parked == Parked::Hold {
            let mut freed = Vec::new();
            self.holds.forget(Who::Request(id), &mut freed);
            self.run_freed(freed);
        }
        let mut waiting: Vec<_> = self.waiting_front.extract_if(|(client, _), _| *client == id).collect();
        waiting.sort_unstable_by_key(|(_, lend)| lend.0);
        for (_, lend) in waiting {
            self.ask_next_owner(lend);
        }
        self.see_to_blocked();
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
                Freed::Blocked(client, passage) => self.serve_granted(client, passage),
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
}

/// What a client sees of a bug.
pub const INTERNAL_ERROR: &str = "ERR internal error, the connection is closed; see the server's log";

/// The row behind a message's command number.
fn row_of(id: u16) -> &'static Row {
    TABLE.row(CommandId(id))
}
