//! What all workers share: the configuration, counters and the seed. Written by the control plane, read by everyone.
//!
//! The data plane reads only atomics here: a worker keeps its own `Arc<Config>` and looks at `config_generation` once a turn.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mio::net::TcpListener;

use crate::command_stats::CommandStats;
use crate::commands::TABLE;
use crate::config::Config;
use crate::keyspace::HashSeed;
use crate::shard::ShardId;
use crate::turns::TurnTimes;

/// The version that clients gate their features on.
pub const REDIS_VERSION: &str = "8.2.3";
pub const SKERRY_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Per-worker counters: one writer each, relaxed; summed by INFO.
#[derive(Default)]
#[repr(align(128))]
pub struct WorkerStats {
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub clients: AtomicU64,
    /// Clients that wait for a key or a deadline.
    pub blocked_clients: AtomicU64,
    pub error_replies: AtomicU64,
    pub panics: AtomicU64,
    pub lends: AtomicU64,
    pub lend_retries: AtomicU64,
    pub messages_sent: AtomicU64,
    /// Bytes that eviction has freed, and those among which it may choose (0: there is nothing left to evict).
    pub evicted_bytes: AtomicU64,
    pub evictable_bytes: AtomicU64,
    /// The configuration under which that was told.
    pub evictable_generation: AtomicU64,
    /// Keys, and keys times clients, in the table of tracked keys.
    pub tracked_keys: AtomicU64,
    pub tracked_items: AtomicU64,
    /// While `maxmemory-clients` bounds them: bytes of all clients, and of the greatest that may be closed for it.
    pub client_bytes: AtomicU64,
    pub greatest_client_bytes: AtomicU64,
    /// Clients that were closed for it.
    pub evicted_clients: AtomicU64,
    /// Reads and writes of client sockets.
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    /// Memory of Lua, for scripts and for functions.
    pub script_lua_bytes: AtomicU64,
    pub function_lua_bytes: AtomicU64,
    /// Of the last second.
    pub commands_per_s: AtomicU64,
    pub bytes_in_per_s: AtomicU64,
    pub bytes_out_per_s: AtomicU64,
    /// The counters when the rates were last taken.
    last_commands: AtomicU64,
    last_bytes_in: AtomicU64,
    last_bytes_out: AtomicU64,
}

impl WorkerStats {
    /// Adds to a counter of which the caller is the only writer.
    #[inline]
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Called by the worker once a second. A reset in between makes a rate of zero, not a huge one.
    pub fn take_rates(&self, commands: u64) {
        let rate = |now: u64, last: &AtomicU64, rate: &AtomicU64| {
            rate.store(now.saturating_sub(last.load(Ordering::Relaxed)), Ordering::Relaxed);
            last.store(now, Ordering::Relaxed);
        };
        rate(commands, &self.last_commands, &self.commands_per_s);
        rate(self.bytes_in.load(Ordering::Relaxed), &self.last_bytes_in, &self.bytes_in_per_s);
        rate(self.bytes_out.load(Ordering::Relaxed), &self.last_bytes_out, &self.bytes_out_per_s);
    }

    /// CONFIG RESETSTAT: all counters but the number of clients and the rates.
    fn reset(&self) {
        let counters = [
            &self.bytes_in,
            &self.bytes_out,
            &self.error_replies,
            &self.evicted_clients,
            &self.panics,
            &self.lends,
            &self.lend_retries,
            &self.messages_sent,
            &self.reads,
            &self.writes,
        ];
        for counter in counters {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// The server as one thing.
pub struct Server {
    config: Mutex<Arc<Config>>,
    pub config_generation: AtomicU64,
    /// The file that CONFIG REWRITE writes.
    pub config_file: Option<String>,
    pub n_shards: usize,
    pub seed: HashSeed,
    pub run_id: String,
    pub started_ms: i64,
    pub executable: String,
    pub next_client_number: AtomicU64,
    pub n_clients: AtomicU64,
    pub connections_received: AtomicU64,
    pub connections_rejected: AtomicU64,
    pub workers: Vec<WorkerStats>,
    /// Counters per command, of each worker.
    pub command_stats: Vec<Arc<CommandStats>>,
    /// Used memory when the server was made.
    pub startup_memory: u64,
    /// Turn times of each worker, while `turn-trace` is on.
    pub turns: Vec<Mutex<TurnTimes>>,
    pub is_stopping: AtomicBool,
    /// By SHUTDOWN, which raises a signal as well: the log names the true cause.
    pub is_shutdown_asked: AtomicBool,
    /// CLIENT PAUSE: until when, and whether only writes wait.
    pub pause_until_ms: AtomicI64,
    pub pause_writes_only: AtomicBool,
    /// TCP sockets to listen on instead of the present ones, for the worker that listens (CONFIG SET port).
    pub new_listeners: Mutex<Option<Vec<TcpListener>>>,
    /// The present ones once more, for whoever has to close their port before another is opened.
    pub listening: Mutex<Vec<OwnedFd>>,
    /// The active expire cycle is on (DEBUG SET-ACTIVE-EXPIRE).
    pub is_expiring_actively: AtomicBool,
    /// The greatest used memory seen.
    pub peak_memory: AtomicU64,
    /// Bytes by which used memory has to stay below `maxmemory`, so that resident memory does not go far beyond it.
    pub withheld_memory: AtomicU64,
    /// Published vector sets.
    pub vectors: crate::vector::Directory,
    /// Who is connected.
    pub connections: crate::connections::Connections,
    pub command_logs: crate::command_log::CommandLogs,
    pub latency: crate::latency::LatencyMonitor,
    pub hotkeys: crate::hotkeys::Hotkeys,
    /// Who monitors.
    pub monitors: crate::monitors::Monitors,
    /// Who tracks keys by prefix.
    pub prefixes: crate::tracking::Prefixes,
    /// Who listens to which channels.
    pub subscriptions: crate::pubsub::Subscriptions,
    /// The scripts that EVALSHA finds.
    pub scripts: crate::script::Registry,
    /// The libraries whose functions FCALL calls.
    pub functions: crate::script::functions::Functions,
}

impl Server {
    pub fn new(config: Config, config_file: Option<String>, n_shards: usize, now_ms: i64, seed: u64) -> Self {
        let run_id = (0..5u64)
            .map(|i| format!("{:08x}", (seed.wrapping_mul(0x9e37_79b9 + 2 * i) >> 16) as u32))
            .collect();
        Self {
            config: Mutex::new(Arc::new(config)),
            config_generation: AtomicU64::new(0),
            config_file,
            n_shards,
            seed: HashSeed::from_u64(seed),
            run_id,
            started_ms: now_ms,
            executable: std::env::current_exe().map(|p| p.display().to_string()).unwrap_or_default(),
            next_client_number: AtomicU64::new(1),
            n_clients: AtomicU64::new(0),
            connections_received: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            workers: (0..n_shards).map(|_| WorkerStats::default()).collect(),
            command_stats: (0..n_shards).map(|_| Arc::new(CommandStats::new(TABLE.rows().len()))).collect(),
            startup_memory: crate::alloc::used_memory() as u64,
            turns: (0..n_shards).map(|_| Mutex::default()).collect(),
            is_stopping: AtomicBool::new(false),
            is_shutdown_asked: AtomicBool::new(false),
            pause_until_ms: AtomicI64::new(0),
            pause_writes_only: AtomicBool::new(false),
            new_listeners: Mutex::default(),
            listening: Mutex::default(),
            is_expiring_actively: AtomicBool::new(true),
            peak_memory: AtomicU64::new(0),
            withheld_memory: AtomicU64::new(0),
            vectors: crate::vector::Directory::default(),
            connections: crate::connections::Connections::default(),
            command_logs: crate::command_log::CommandLogs::default(),
            latency: crate::latency::LatencyMonitor::default(),
            hotkeys: crate::hotkeys::Hotkeys::new(n_shards),
            monitors: crate::monitors::Monitors::default(),
            prefixes: crate::tracking::Prefixes::default(),
            subscriptions: crate::pubsub::Subscriptions::default(),
            scripts: crate::script::Registry::default(),
            functions: crate::script::functions::Functions::default(),
        }
    }

    /// The configuration now. Takes a lock: once a turn at most, when the generation has moved.
    pub fn config(&self) -> Arc<Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the configuration; `change` sees the present one. Workers take the new one at their next turn.
    pub fn change_config<E>(
        &self,
        change: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<Arc<Config>, E> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = Arc::new(change(&config)?);
        *config = changed.clone();
        self.config_generation.fetch_add(1, Ordering::Release);
        Ok(changed)
    }

    /// Makes every worker look at the configuration and the pause again.
    pub fn touch_config(&self) {
        self.config_generation.fetch_add(1, Ordering::Release);
    }

    /// CONFIG RESETSTAT on one worker, by itself.
    pub fn reset_stats(&self, worker: ShardId) {
        let worker = usize::from(worker.0);
        self.workers[worker].reset();
        self.command_stats[worker].reset();
        if worker == 0 {
            self.connections_received.store(0, Ordering::Relaxed);
            self.connections_rejected.store(0, Ordering::Relaxed);
        }
    }

    /// Notes the memory used now; the greatest ever.
    pub fn note_peak_memory(&self) -> u64 {
        let used = crate::alloc::used_memory() as u64;
        used.max(self.peak_memory.fetch_max(used, Ordering::Relaxed))
    }

    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> u64 {
        self.seed.hash_key(key)
    }

    /// The shard that owns `key`: a function of the Redis Cluster slot of its hash tag, so tagged keys stay together.
    #[inline]
    pub fn shard_of(&self, key: &[u8]) -> ShardId {
        if self.n_shards == 1 {
            return ShardId(0);
        }
        // Ranges of slots, as a cluster has them; and a multiplication instead of a division.
        ShardId(((u32::from(crate::slot::slot_of(key)) * self.n_shards as u32) >> 14) as u8)
    }

    /// Sum of one counter over the workers.
    pub fn sum(&self, counter: impl Fn(&WorkerStats) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|w| counter(w).load(Ordering::Relaxed)).sum()
    }
}
