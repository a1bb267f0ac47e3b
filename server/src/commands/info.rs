//! INFO: the server's state and counters, in Redis 8.2.3's sections, fields and order.
//!
//! Each worker answers a part, its shard's numbers; the merge adds them up and writes the text. Counters of
//! the workers themselves are atomics of the server and need no part. Features that do not exist here yet
//! show Redis's neutral values, so that what reads the text finds every field. Skerry's own fields begin with
//! `skerry_`.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use super::latency::latencies_of;
use super::{TABLE, command_info, part_integers};
use crate::alloc;
use crate::args::{Args, is_word};
use crate::client::{Client, Parked};
use crate::command::{Conn, Ctx, Handler};
use crate::command_stats::{CommandCounts, ErrorCounts};
use crate::config::Config;
use crate::error::Outcome;
use crate::keysizes::{Bin, FIELDS, bin_name};
use crate::process::{self, Whose};
use crate::pubsub::Kind;
use crate::server::{REDIS_VERSION, SKERRY_VERSION, Server};

/// When a section is shown without being named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// INFO, `default`, `all`, `everything`.
    Always,
    /// `all`, `everything`.
    InAll,
}

struct Section {
    name: &'static str,
    title: &'static str,
    shown: Shown,
    write: fn(&Facts<'_>, &mut String),
}

const fn section(
    name: &'static str,
    title: &'static str,
    shown: Shown,
    write: fn(&Facts<'_>, &mut String),
) -> Section {
    Section { name, title, shown, write }
}

const SECTIONS: &[Section] = &[
    section("server", "Server", Shown::Always, server),
    section("clients", "Clients", Shown::Always, clients),
    section("memory", "Memory", Shown::Always, memory),
    section("persistence", "Persistence", Shown::Always, persistence),
    section("threads", "Threads", Shown::Always, threads),
    section("stats", "Stats", Shown::Always, stats),
    section("replication", "Replication", Shown::Always, replication),
    section("cpu", "CPU", Shown::Always, cpu),
    section("modules", "Modules", Shown::Always, modules),
    section("commandstats", "Commandstats", Shown::InAll, commandstats),
    section("errorstats", "Errorstats", Shown::Always, errorstats),
    section("latencystats", "Latencystats", Shown::InAll, latencystats),
    section("cluster", "Cluster", Shown::Always, |_, out| out.push_str("cluster_enabled:0\r\n")),
    section("keyspace", "Keyspace", Shown::Always, keyspace),
    KEYSIZES,
];

/// Its numbers are looked for only if it is asked for.
const KEYSIZES: Section = section("keysizes", "Keysizes", Shown::Always, keysizes);

/// The numbers of a shard's part, by place; those of each database follow, and those of each bin of key sizes.
#[derive(Clone, Copy)]
enum Part {
    Hits,
    Misses,
    Expired,
    ExpiredSubkeys,
    Evicted,
    Dirty,
    TableBytes,
    ClientBytes,
    WatchedKeys,
    WatchingClients,
    BlockingKeys,
    BlockingKeysOnLoss,
    TimedClients,
    PausedClients,
    MaxInput,
    MaxOutput,
    HasGarbage,
    /// Numbers of key sizes, at the end.
    KeysizeNumbers,
    /// Keys, keys with a deadline, the sum of what they have to live, and hashes that have fields with a deadline.
    Databases,
}

/// Numbers of a database.
const PER_DATABASE: usize = 4;

/// INFO [section [section ...]]: this shard's part.
pub fn info(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let bins = match is_asked(&KEYSIZES, args) {
        true => ctx.shard.look_at_keysizes(ctx.now_ms).to_vec(),
        false => Vec::new(),
    };
    let stats = ctx.shard.stats;
    let (watched_keys, watching_clients) = ctx.shard.n_watched();
    let (blocking_keys, blocking_keys_on_loss) = ctx.shard.blocked.n_keys();
    let is_timed =
        |client: &&Client| client.blocked.as_ref().is_some_and(|blocked| blocked.deadline_ms.is_some());
    let timed_clients = ctx.clients.of_owner(ctx.shard.id).filter(is_timed).count();
    let is_paused = |client: &&Client| client.parked == Parked::Pause;
    let paused_clients = ctx.clients.of_owner(ctx.shard.id).filter(is_paused).count();
    let table_bytes: usize = ctx.shard.keyspaces().iter().map(|keyspace| keyspace.table_bytes()).sum();
    let max_input = ctx.clients.of_owner(ctx.shard.id).map(|client| client.query.len()).max().unwrap_or(0);
    let max_output = ctx.clients.of_owner(ctx.shard.id).map(|client| client.unsent()).max().unwrap_or(0);
    // In the order of `Part`.
    let numbers = [
        stats.keyspace_hits,
        stats.keyspace_misses,
        stats.expired_keys,
        stats.expired_subkeys,
        stats.evicted_keys,
        stats.dirty,
        table_bytes as u64,
        ctx.clients.bytes(ctx.shard.id) as u64,
        watched_keys as u64,
        watching_clients as u64,
        blocking_keys as u64,
        blocking_keys_on_loss as u64,
        timed_clients as u64,
        paused_clients as u64,
        max_input as u64,
        max_output as u64,
        u64::from(ctx.shard.has_garbage()),
        2 * bins.len() as u64,
    ];
    debug_assert_eq!(numbers.len(), Part::Databases as usize);
    let keyspaces = ctx.shard.keyspaces();
    ctx.reply.array(numbers.len() + PER_DATABASE * keyspaces.len() + 2 * bins.len());
    for number in numbers {
        ctx.reply.integer(number as i64);
    }
    for keyspace in keyspaces {
        let n_expires = keyspace.n_expires() as i64;
        ctx.reply.integer(keyspace.len() as i64);
        ctx.reply.integer(n_expires);
        ctx.reply.integer(keyspace.avg_ttl_ms(ctx.now_ms).saturating_mul(n_expires));
        ctx.reply.integer(keyspace.n_timed_hashes() as i64);
    }
    bins.into_iter().flat_map(Bin::to_numbers).for_each(|number| ctx.reply.integer(number));
    Ok(())
}

/// All parts, and where the rest is found.
struct Facts<'a> {
    server: &'a Server,
    config: &'a Config,
    now_ms: i64,
    parts: Vec<Vec<i64>>,
}

impl Facts<'_> {
    fn sum(&self, part: Part) -> i64 {
        self.sum_at(part as usize)
    }

    fn sum_at(&self, at: usize) -> i64 {
        self.parts.iter().map(|part| part[at]).fold(0, i64::saturating_add)
    }

    fn max(&self, part: Part) -> i64 {
        self.parts.iter().map(|numbers| numbers[part as usize]).max().unwrap_or(0)
    }

    fn uptime_s(&self) -> i64 {
        (self.now_ms - self.server.started_ms).max(0) / 1000
    }
}

/// Writes the sections asked for, in Redis's order.
pub fn info_merge(conn: &mut Conn<'_>, parts: &[&[u8]], args: Args<'_>) -> Outcome {
    let config = conn.server.config();
    let facts = Facts {
        server: conn.server,
        config: &config,
        now_ms: conn.now_ms,
        parts: parts.iter().map(|part| part_integers(part)).collect(),
    };
    let mut out = String::new();
    for section in SECTIONS.iter().filter(|section| is_asked(section, args)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        line(&mut out, format_args!("# {}", section.title));
        (section.write)(&facts, &mut out);
    }
    conn.reply.verbatim(b"txt", out.as_bytes());
    Ok(())
}

fn is_asked(section: &Section, args: Args<'_>) -> bool {
    let is_default = section.shown == Shown::Always;
    (args.len() == 1 && is_default)
        || args.from(1).any(|word| {
            is_word(word, section.name)
                || (is_word(word, "default") && is_default)
                || is_word(word, "all")
                || is_word(word, "everything")
                || (is_word(word, "module_list") && section.name == "modules")
        })
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
    out.push_str("\r\n");
}

/// `name:value` lines.
macro_rules! fields {
    ($out:expr; $($name:literal => $value:expr),+ $(,)?) => {
        $( line($out, format_args!(concat!($name, ":{}"), $value)); )+
    };
}

/// Fields of features that do not exist here yet.
macro_rules! neutral {
    ($out:expr; $($text:literal)+) => { $( $out.push_str(concat!($text, "\r\n")); )+ };
}

fn server(facts: &Facts<'_>, out: &mut String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (server, config) = (facts.server, facts.config);
    fields! { out;
        "redis_version" => REDIS_VERSION,
        "skerry_version" => SKERRY_VERSION,
        "redis_git_sha1" => "00000000",
        "redis_git_dirty" => 0,
        "redis_build_id" => 0,
        "redis_mode" => "standalone",
        "os" => process::system_name(),
        "arch_bits" => usize::BITS,
        "monotonic_clock" => "POSIX clock_gettime",
        "multiplexing_api" => "epoll",
        "atomicvar_api" => "c11-builtin",
        "gcc_version" => "0.0.0",
        "process_id" => std::process::id(),
        "process_supervised" => "no",
        "run_id" => server.run_id,
        "tcp_port" => config.port,
        "server_time_usec" => now.as_micros(),
        "uptime_in_seconds" => facts.uptime_s(),
        "uptime_in_days" => facts.uptime_s() / 86_400,
        "hz" => config.hz,
        "configured_hz" => config.hz,
        "lru_clock" => now.as_secs() & 0xff_ffff,
        "executable" => server.executable,
        "config_file" => server.config_file.as_deref().unwrap_or_default(),
        "io_threads_active" => 0,
        "skerry_threads" => server.n_shards,
    }
    let mut n_listeners = 0;
    if config.port != 0 {
        let value = |name: &[u8]| crate::config::find(name).map(|row| row.value(config)).unwrap_or_default();
        let bind = String::from_utf8_lossy(&value(b"bind")).into_owned();
        let binds: String = bind.split(' ').map(|address| format!(",bind={address}")).collect();
        line(out, format_args!("listener0:name=tcp{binds},port={}", config.port));
        n_listeners = 1;
    }
    if !config.unixsocket.is_empty() {
        let path = String::from_utf8_lossy(&config.unixsocket);
        line(out, format_args!("listener{n_listeners}:name=unix,bind={path}"));
    }
}

fn clients(facts: &Facts<'_>, out: &mut String) {
    fields! { out;
        "connected_clients" => facts.server.n_clients.load(Relaxed),
        "cluster_connections" => 0,
        "maxclients" => facts.config.maxclients,
        "client_recent_max_input_buffer" => facts.max(Part::MaxInput),
        "client_recent_max_output_buffer" => facts.max(Part::MaxOutput),
        "blocked_clients" => facts.server.sum(|worker| &worker.blocked_clients) as i64 + facts.sum(Part::PausedClients),
        "tracking_clients" => facts.server.prefixes.n_clients.load(Relaxed),
        "pubsub_clients" => facts.server.subscriptions.n_clients(),
        "watching_clients" => facts.sum(Part::WatchingClients),
        "clients_in_timeout_table" => facts.sum(Part::TimedClients),
        "total_watched_keys" => facts.sum(Part::WatchedKeys),
        "total_blocking_keys" => facts.sum(Part::BlockingKeys),
        "total_blocking_keys_on_nokey" => facts.sum(Part::BlockingKeysOnLoss),
    }
}

/// Bytes as people read them: `1.50M`.
fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    for unit in ["K", "M", "G", "T"] {
        if value < 1024.0 {
            return format!("{value:.2}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.2}P")
}

fn memory(facts: &Facts<'_>, out: &mut String) {
    let (server, config) = (facts.server, facts.config);
    let used = alloc::used_memory() as u64;
    let peak = server.note_peak_memory();
    let rss = process::resident_bytes();
    let total = process::total_memory_bytes();
    let clients = facts.sum(Part::ClientBytes) as u64;
    let overhead = server.startup_memory + clients + facts.sum(Part::TableBytes) as u64;
    let dataset = used.saturating_sub(overhead);
    let above_startup = used.saturating_sub(server.startup_memory).max(1);
    let ratio = rss as f64 / used.max(1) as f64;
    fields! { out;
        "used_memory" => used,
        "used_memory_human" => human(used),
        "used_memory_rss" => rss,
        "used_memory_rss_human" => human(rss),
        "used_memory_peak" => peak,
        "used_memory_peak_human" => human(peak),
        "used_memory_peak_time" => facts.now_ms / 1000,
        "used_memory_peak_perc" => format_args!("{:.2}%", 100.0 * used as f64 / peak.max(1) as f64),
        "used_memory_overhead" => overhead,
        "used_memory_startup" => server.startup_memory,
        "used_memory_dataset" => dataset,
        "used_memory_dataset_perc" => format_args!("{:.2}%", 100.0 * dataset as f64 / above_startup as f64),
        "allocator_allocated" => used,
        "allocator_active" => rss,
        "allocator_resident" => rss,
        "allocator_muzzy" => 0,
        "total_system_memory" => total,
        "total_system_memory_human" => human(total),
    }
    write_scripts(out, server);
    fields! { out;
        "maxmemory" => config.maxmemory,
        "maxmemory_human" => human(config.maxmemory),
        "maxmemory_policy" => config.maxmemory_policy.as_str(),
        "allocator_frag_ratio" => format_args!("{ratio:.2}"),
        "allocator_frag_bytes" => rss.saturating_sub(used),
        "allocator_rss_ratio" => "1.00",
        "allocator_rss_bytes" => 0,
        "rss_overhead_ratio" => "1.00",
        "rss_overhead_bytes" => 0,
        "mem_fragmentation_ratio" => format_args!("{ratio:.2}"),
        "mem_fragmentation_bytes" => rss as i64 - used as i64,
        "mem_not_counted_for_evict" => 0,
        "mem_replication_backlog" => 0,
        "mem_total_replication_buffers" => 0,
        "mem_replica_full_sync_buffer" => 0,
        "mem_clients_slaves" => 0,
        "mem_clients_normal" => clients,
        "mem_cluster_links" => 0,
        "mem_aof_buffer" => 0,
        "mem_allocator" => "mimalloc",
        "mem_overhead_db_hashtable_rehashing" => 0,
        "active_defrag_running" => 0,
        "lazyfree_pending_objects" => facts.sum(Part::HasGarbage),
        "lazyfreed_objects" => 0,
    }
}

/// Scripts and functions: the states of Lua, and what is kept of texts beside them.
fn write_scripts(out: &mut String, server: &Server) {
    let of_scripts = server.sum(|worker| &worker.script_lua_bytes);
    let of_functions = server.sum(|worker| &worker.function_lua_bytes);
    let (n_scripts, script_bytes) = server.scripts.size();
    let (n_libraries, n_functions, function_bytes) = server.functions.size();
    fields! { out;
        "used_memory_lua" => of_scripts,
        "used_memory_vm_eval" => of_scripts,
        "used_memory_lua_human" => human(of_scripts),
        "used_memory_scripts_eval" => script_bytes,
        "number_of_cached_scripts" => n_scripts,
        "number_of_functions" => n_functions,
        "number_of_libraries" => n_libraries,
        "used_memory_vm_functions" => of_functions,
        "used_memory_vm_total" => of_scripts + of_functions,
        "used_memory_vm_total_human" => human(of_scripts + of_functions),
        "used_memory_functions" => function_bytes,
        "used_memory_scripts" => script_bytes + function_bytes,
        "used_memory_scripts_human" => human((script_bytes + function_bytes) as u64),
    }
}

fn persistence(facts: &Facts<'_>, out: &mut String) {
    neutral! { out;
        "loading:0" "async_loading:0" "current_cow_peak:0" "current_cow_size:0" "current_cow_size_age:0"
        "current_fork_perc:0.00" "current_save_keys_processed:0" "current_save_keys_total:0"
    }
    fields! { out;
        "rdb_changes_since_last_save" => facts.sum(Part::Dirty),
        "rdb_bgsave_in_progress" => 0,
        "rdb_last_save_time" => facts.server.started_ms / 1000,
    }
    neutral! { out;
        "rdb_last_bgsave_status:ok" "rdb_last_bgsave_time_sec:-1" "rdb_current_bgsave_time_sec:-1" "rdb_saves:0"
        "rdb_last_cow_size:0" "rdb_last_load_keys_expired:0" "rdb_last_load_keys_loaded:0" "aof_enabled:0"
        "aof_rewrite_in_progress:0" "aof_rewrite_scheduled:0" "aof_last_rewrite_time_sec:-1"
        "aof_current_rewrite_time_sec:-1" "aof_last_bgrewrite_status:ok" "aof_rewrites:0"
        "aof_rewrites_consecutive_failures:0" "aof_last_write_status:ok" "aof_last_cow_size:0"
        "module_fork_in_progress:0" "module_fork_last_cow_size:0"
    }
}

/// A line for each worker.
fn threads(facts: &Facts<'_>, out: &mut String) {
    for (at, worker) in facts.server.workers.iter().enumerate() {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let (clients, reads, writes) = (read(&worker.clients), read(&worker.reads), read(&worker.writes));
        line(out, format_args!("io_thread_{at}:clients={clients},reads={reads},writes={writes}"));
    }
}

fn stats(facts: &Facts<'_>, out: &mut String) {
    let server = facts.server;
    let kbps = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    let n_commands: u64 = server.command_stats.iter().map(|stats| stats.total_calls()).sum();
    fields! { out;
        "total_connections_received" => server.connections_received.load(Relaxed),
        "total_commands_processed" => n_commands,
        "instantaneous_ops_per_sec" => server.sum(|worker| &worker.commands_per_s),
        "total_net_input_bytes" => server.sum(|worker| &worker.bytes_in),
        "total_net_output_bytes" => server.sum(|worker| &worker.bytes_out),
        "total_net_repl_input_bytes" => 0,
        "total_net_repl_output_bytes" => 0,
        "instantaneous_input_kbps" => kbps(server.sum(|worker| &worker.bytes_in_per_s)),
        "instantaneous_output_kbps" => kbps(server.sum(|worker| &worker.bytes_out_per_s)),
        "instantaneous_input_repl_kbps" => "0.00",
        "instantaneous_output_repl_kbps" => "0.00",
        "rejected_connections" => server.connections_rejected.load(Relaxed),
        "sync_full" => 0,
        "sync_partial_ok" => 0,
        "sync_partial_err" => 0,
        "expired_subkeys" => facts.sum(Part::ExpiredSubkeys),
        "expired_keys" => facts.sum(Part::Expired),
        "expired_stale_perc" => "0.00",
        "expired_time_cap_reached_count" => 0,
        "expire_cycle_cpu_milliseconds" => 0,
        "evicted_keys" => facts.sum(Part::Evicted),
        "evicted_clients" => server.workers.iter().map(|worker| worker.evicted_clients.load(Relaxed)).sum::<u64>(),
        "evicted_scripts" => facts.server.scripts.n_evicted(),
        "total_eviction_exceeded_time" => 0,
        "current_eviction_exceeded_time" => 0,
        "keyspace_hits" => facts.sum(Part::Hits),
        "keyspace_misses" => facts.sum(Part::Misses),
        "pubsub_channels" => facts.server.subscriptions.n_channels(Kind::Channel),
        "pubsub_patterns" => facts.server.subscriptions.n_patterns(),
        "pubsubshard_channels" => facts.server.subscriptions.n_channels(Kind::Shard),
    }
    neutral! { out;
        "latest_fork_usec:0" "total_forks:0"
        "migrate_cached_sockets:0" "slave_expires_tracked_keys:0" "active_defrag_hits:0" "active_defrag_misses:0"
        "active_defrag_key_hits:0" "active_defrag_key_misses:0" "total_active_defrag_time:0"
        "current_active_defrag_time:0"
    }
    fields! { out;
        "tracking_total_keys" => server.sum(|worker| &worker.tracked_keys),
        "tracking_total_items" => server.sum(|worker| &worker.tracked_items),
        "tracking_total_prefixes" => server.prefixes.len(),
        "unexpected_error_replies" => 0,
    }
    fields! { out;
        "total_error_replies" => server.sum(|worker| &worker.error_replies),
        "dump_payload_sanitizations" => 0,
        "total_reads_processed" => server.sum(|worker| &worker.reads),
        "total_writes_processed" => server.sum(|worker| &worker.writes),
    }
    neutral! { out;
        "io_threaded_reads_processed:0" "io_threaded_writes_processed:0" "io_threaded_total_prefetch_batches:0"
        "io_threaded_total_prefetch_entries:0" "client_query_buffer_limit_disconnections:0"
        "client_output_buffer_limit_disconnections:0" "reply_buffer_shrinks:0" "reply_buffer_expands:0"
        "eventloop_cycles:0" "eventloop_duration_sum:0" "eventloop_duration_cmd_sum:0"
        "instantaneous_eventloop_cycles_per_sec:0" "instantaneous_eventloop_duration_usec:0"
        "acl_access_denied_auth:0" "acl_access_denied_cmd:0" "acl_access_denied_key:0" "acl_access_denied_channel:0"
    }
    fields! { out;
        "skerry_panics" => server.sum(|worker| &worker.panics),
        "skerry_lends" => server.sum(|worker| &worker.lends),
        "skerry_lend_retries" => server.sum(|worker| &worker.lend_retries),
        "skerry_messages_sent" => server.sum(|worker| &worker.messages_sent),
    }
}

fn replication(facts: &Facts<'_>, out: &mut String) {
    fields! { out;
        "role" => "master",
        "connected_slaves" => 0,
        "master_failover_state" => "no-failover",
        "master_replid" => facts.server.run_id,
        "master_replid2" => "0000000000000000000000000000000000000000",
        "master_repl_offset" => 0,
        "second_repl_offset" => -1,
        "repl_backlog_active" => 0,
        "repl_backlog_size" => facts.config.repl_backlog_size,
        "repl_backlog_first_byte_offset" => 0,
        "repl_backlog_histlen" => 0,
    }
}

/// Redis's main thread is, here, the worker that writes the text.
fn cpu(_facts: &Facts<'_>, out: &mut String) {
    let seconds = |value: f64| format!("{value:.6}");
    let own = process::cpu_time(Whose::Process);
    let children = process::cpu_time(Whose::Children);
    let thread = process::cpu_time(Whose::ThisThread);
    fields! { out;
        "used_cpu_sys" => seconds(own.system_s),
        "used_cpu_user" => seconds(own.user_s),
        "used_cpu_sys_children" => seconds(children.system_s),
        "used_cpu_user_children" => seconds(children.user_s),
        "used_cpu_sys_main_thread" => seconds(thread.system_s),
        "used_cpu_user_main_thread" => seconds(thread.user_s),
    }
}

fn modules(_facts: &Facts<'_>, out: &mut String) {
    out.push_str(
        "module:name=vectorset,ver=1,api=1,filters=0,usedby=[],using=[],options=[handle-io-errors|handle-repl-async-load]\r\n",
    );
}

fn commandstats(facts: &Facts<'_>, out: &mut String) {
    for row in TABLE.rows().iter().filter(|row| !command_info::is_hidden(row)) {
        let mut sum = CommandCounts::default();
        let mut add = |id| facts.server.command_stats.iter().for_each(|stats| sum.add(stats.counts(id)));
        add(row.id);
        if matches!(row.command.handler, Handler::Words) {
            // To clients, the words are arguments.
            row.subcommands.iter().for_each(|(_, id)| add(*id));
        }
        if sum.calls + sum.rejected + sum.failed == 0 {
            continue;
        }
        let us_per_call = sum.us_per_call();
        let name = row.command.name;
        line(
            out,
            format_args!(
                "cmdstat_{name}:calls={},usec={},usec_per_call={us_per_call:.2},rejected_calls={},failed_calls={}",
                sum.calls,
                (us_per_call * sum.calls as f64).round() as u64,
                sum.rejected,
                sum.failed
            ),
        );
    }
}

fn errorstats(facts: &Facts<'_>, out: &mut String) {
    let mut sums = ErrorCounts::default();
    facts.server.command_stats.iter().for_each(|stats| stats.add_errors(&mut sums));
    for (code, count) in sums.lines() {
        line(out, format_args!("errorstat_{code}:count={count}"));
    }
}

fn latencystats(facts: &Facts<'_>, out: &mut String) {
    if !facts.config.latency_tracking {
        return;
    }
    for row in TABLE.rows().iter().filter(|row| !command_info::is_hidden(row)) {
        let latencies = latencies_of(facts.server, row);
        if latencies.n() == 0 {
            continue;
        }
        let percentile = |percent: &f64| {
            let us = latencies.percentile_ns(*percent) as f64 / 1000.0;
            format!("p{percent}={us:.3}")
        };
        let told: Vec<String> =
            facts.config.latency_tracking_info_percentiles.0.iter().map(percentile).collect();
        line(out, format_args!("latency_percentiles_usec_{}:{}", row.command.name, told.join(",")));
    }
}

fn keyspace(facts: &Facts<'_>, out: &mut String) {
    let first = Part::Databases as usize;
    let n_keysizes = facts.parts[0][Part::KeysizeNumbers as usize] as usize;
    let n_databases = (facts.parts[0].len() - first - n_keysizes) / PER_DATABASE;
    for db in 0..n_databases {
        let [keys, expires, ttl_sum, subexpiry] =
            [0, 1, 2, 3].map(|at| facts.sum_at(first + PER_DATABASE * db + at));
        if keys > 0 {
            let avg_ttl = if expires > 0 { ttl_sum / expires } else { 0 };
            line(
                out,
                format_args!("db{db}:keys={keys},expires={expires},avg_ttl={avg_ttl},subexpiry={subexpiry}"),
            );
        }
    }
}

fn keysizes(facts: &Facts<'_>, out: &mut String) {
    let mut sums = std::collections::BTreeMap::<(u16, u8), std::collections::BTreeMap<u8, u64>>::new();
    for part in &facts.parts {
        let n_numbers = part[Part::KeysizeNumbers as usize] as usize;
        for numbers in part[part.len() - n_numbers..].chunks_exact(2) {
            let bin = Bin::of_numbers([numbers[0], numbers[1]]);
            *sums.entry((bin.db, bin.field)).or_default().entry(bin.bin).or_default() += bin.n_keys;
        }
    }
    for ((db, field), bins) in sums {
        let bins: Vec<String> = bins.into_iter().map(|(bin, n)| format!("{}={n}", bin_name(bin))).collect();
        line(out, format_args!("db{db}_distrib_{}:{}", FIELDS[usize::from(field)], bins.join(",")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_people() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (693_888, "677.62K"),
            (25_276_502_016, "23.54G"),
            (1 << 50, "1.00P"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }
}
