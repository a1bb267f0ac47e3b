//! The directives: every name that Redis 8.2.3 knows, and Skerry's own.
//!
//! Invariant: names, defaults, bounds and mutability are those of Redis 8.2.3 but for the departures listed in
//! `tests/config.rs`. A directive whose feature does not exist yet takes only the value that asks for nothing
//! (`.unbuilt`); when the feature comes, that word goes.

use super::check;
use super::special::{
    Bind, Dir, KeyspaceEvents, OomScoreAdjValues, OutputBufferLimits, Percentiles, ReplicaOf, SavePoints,
    ShutdownFlags,
};
use super::table::{
    Directive, directives, int, memory, memory_or_percent, octal, optional_text, plain_text, special, uint,
    umemory, word, yes_no,
};
use super::value::{
    AclPubsubDefault, AppendFsync, ClusterEndpointType, Field, LogLevel, MaxmemoryPolicy, MemoryOrPercent,
    OomScoreAdj, PipelineOrder, PropagationErrorBehavior, ProtectedAction, ReplDisklessLoad,
    SanitizeDumpPayload, Supervised, SyslogFacility, TlsAuthClients, VsetCodeBits,
};

/// Bytes as the client or the file gave them; they need not be UTF-8.
pub type Text = Vec<u8>;

const INT_MAX: i64 = i32::MAX as i64;
const INT_MIN: i64 = i32::MIN as i64;
const UINT_MAX: i64 = u32::MAX as i64;
const I64_MAX: i64 = i64::MAX;
/// A mask of shards is 64 bits wide.
const THREADS_MAX: i64 = 64;

const NO_SAVE: &str = "Skerry does not persist yet, use save \"\"";
const NO_APPEND: &str = "Skerry does not persist yet, use appendonly no";
const NO_REPLICATION: &str = "Skerry does not replicate yet";
const NO_CLUSTER: &str = "Skerry has no cluster mode yet";
const NO_TLS: &str = "Skerry does not speak TLS yet";
const NO_ACL: &str = "Skerry has no ACL users yet, use requirepass";
const NO_DAEMON: &str = "Skerry does not daemonize, let a service manager start it";
const NO_SYSLOG: &str = "Skerry does not log to syslog, use logfile";
const NO_OOM_SCORE: &str = "Skerry does not adjust its OOM score yet";
const NO_SOCKET_MARK: &str = "Skerry does not mark sockets yet";
const NO_CPU_LIST: &str = "Skerry pins its workers itself, see threads";
const NO_DEFRAG: &str = "Active defragmentation cannot be enabled: it requires a Redis server compiled with a \
                         modified Jemalloc like the one shipped by default with the Redis source distribution";

fn text(value: &str) -> Text {
    value.as_bytes().to_vec()
}

directives! {
    // Skerry's own.
    /// Workers, each a thread with a shard. 0: one for each core.
    threads: u32 = 0; int("threads", 0, THREADS_MAX).immutable();
    pipeline_order: PipelineOrder = PipelineOrder::Relaxed; word("pipeline-order");
    /// Logs what each turn of a worker did, to find where time goes.
    turn_trace: bool = false; yes_no("turn-trace");

    // Connections.
    protected_mode: bool = true; yes_no("protected-mode");
    unixsocket: Text = text(""); optional_text("unixsocket").immutable();
    requirepass: Text = text(""); optional_text("requirepass").secret();
    port: u16 = 6379; int("port", 0, 65535);
    tcp_keepalive: u32 = 300; int("tcp-keepalive", 0, INT_MAX);
    timeout: u32 = 0; int("timeout", 0, INT_MAX);
    tcp_backlog: u32 = 511; int("tcp-backlog", 0, INT_MAX).immutable();
    maxclients: u32 = 10000; uint("maxclients", 1, UINT_MAX);
    unixsocketperm: u32 = 0; octal("unixsocketperm", 0, 0o777).immutable();
    socket_mark_id: u32 = 0; uint("socket-mark-id", 0, UINT_MAX).immutable().unbuilt(NO_SOCKET_MARK);
    max_new_connections_per_cycle: u32 = 10; uint("max-new-connections-per-cycle", 1, 1000);
    proto_max_bulk_len: u64 = 512 << 20; memory("proto-max-bulk-len", 1 << 20, I64_MAX);
    tracking_table_max_keys: u64 = 1000000; uint("tracking-table-max-keys", 0, I64_MAX);
    client_query_buffer_limit: u64 = 1 << 30; umemory("client-query-buffer-limit", 1 << 20, I64_MAX);
    maxmemory_clients: MemoryOrPercent = MemoryOrPercent::Bytes(0);
        memory_or_percent("maxmemory-clients", 100);
    client_output_buffer_limit: OutputBufferLimits = OutputBufferLimits::DEFAULT;
        special("client-output-buffer-limit").many();
    bind: Bind = Bind::every_address(); special("bind").many();

    // Keyspace, memory, expiry.
    activerehashing: bool = true; yes_no("activerehashing");
    dynamic_hz: bool = true; yes_no("dynamic-hz");
    lazyfree_lazy_eviction: bool = false; yes_no("lazyfree-lazy-eviction");
    lazyfree_lazy_expire: bool = false; yes_no("lazyfree-lazy-expire");
    lazyfree_lazy_server_del: bool = false; yes_no("lazyfree-lazy-server-del");
    lazyfree_lazy_user_del: bool = false; yes_no("lazyfree-lazy-user-del");
    lazyfree_lazy_user_flush: bool = false; yes_no("lazyfree-lazy-user-flush");
    activedefrag: bool = false; yes_no("activedefrag").unbuilt(NO_DEFRAG);
    maxmemory_policy: MaxmemoryPolicy = MaxmemoryPolicy::NoEviction; word("maxmemory-policy");
    databases: u32 = 16; int("databases", 1, INT_MAX).immutable();
    active_defrag_cycle_min: u32 = 1; int("active-defrag-cycle-min", 1, 99);
    active_defrag_cycle_max: u32 = 25; int("active-defrag-cycle-max", 1, 99);
    active_defrag_threshold_lower: u32 = 10; int("active-defrag-threshold-lower", 0, 1000);
    active_defrag_threshold_upper: u32 = 100; int("active-defrag-threshold-upper", 0, 1000);
    lfu_log_factor: u32 = 10; int("lfu-log-factor", 0, INT_MAX);
    lfu_decay_time: u32 = 1; int("lfu-decay-time", 0, INT_MAX);
    maxmemory_samples: u32 = 5; int("maxmemory-samples", 1, 64);
    maxmemory_eviction_tenacity: u32 = 10; int("maxmemory-eviction-tenacity", 0, 100);
    active_expire_effort: u32 = 1; int("active-expire-effort", 1, 10);
    hz: u32 = 10; int("hz", 0, INT_MAX);
    active_defrag_max_scan_fields: u64 = 1000; int("active-defrag-max-scan-fields", 1, I64_MAX);
    maxmemory: u64 = 0; umemory("maxmemory", 0, I64_MAX);
    active_defrag_ignore_bytes: u64 = 100 << 20; umemory("active-defrag-ignore-bytes", 1, I64_MAX);
    notify_keyspace_events: KeyspaceEvents = KeyspaceEvents::default(); special("notify-keyspace-events");
    lazyexpire_nested_arbitrary_keys: bool = true; yes_no("lazyexpire-nested-arbitrary-keys").hidden();

    // Encodings of values.
    list_max_listpack_size: i32 = -2;
        int("list-max-listpack-size", INT_MIN, INT_MAX).alias("list-max-ziplist-size");
    list_compress_depth: u32 = 0; int("list-compress-depth", 0, INT_MAX);
    stream_node_max_entries: u64 = 100; int("stream-node-max-entries", 0, I64_MAX);
    hash_max_listpack_entries: u64 = 512;
        uint("hash-max-listpack-entries", 0, I64_MAX).alias("hash-max-ziplist-entries");
    set_max_intset_entries: u64 = 512; uint("set-max-intset-entries", 0, I64_MAX);
    set_max_listpack_entries: u64 = 128; uint("set-max-listpack-entries", 0, I64_MAX);
    set_max_listpack_value: u64 = 64; uint("set-max-listpack-value", 0, I64_MAX);
    zset_max_listpack_entries: u64 = 128;
        uint("zset-max-listpack-entries", 0, I64_MAX).alias("zset-max-ziplist-entries");
    hash_max_listpack_value: u64 = 64;
        umemory("hash-max-listpack-value", 0, I64_MAX).alias("hash-max-ziplist-value");
    stream_node_max_bytes: u64 = 4 << 10; umemory("stream-node-max-bytes", 0, I64_MAX);
    zset_max_listpack_value: u64 = 64;
        umemory("zset-max-listpack-value", 0, I64_MAX).alias("zset-max-ziplist-value");
    hll_sparse_max_bytes: u64 = 3000; umemory("hll-sparse-max-bytes", 0, I64_MAX);
    vset_force_single_threaded_execution: bool = false; yes_no("vset-force-single-threaded-execution");
    // Skerry's own, for vector sets made from then on: links of a node on level 0 in multiples of M, and the bits
    // a component of the codes that float32 sets are walked by.
    vset_layer0_degree: u64 = 2; int("vset-layer0-degree", 1, 2);
    vset_code_bits: VsetCodeBits = VsetCodeBits::Auto; word("vset-code-bits");

    // Redis 8.6's, for streams that producers send to with idempotent IDs.
    stream_idmp_duration: u32 = 100; int("stream-idmp-duration", 1, 86400);
    stream_idmp_maxsize: u32 = 100; int("stream-idmp-maxsize", 1, 10000);

    // Slow log, latency, scripts, ACL.
    latency_tracking: bool = true; yes_no("latency-tracking");
    aclfile: Text = text(""); plain_text("aclfile").immutable().unbuilt(NO_ACL);
    acl_pubsub_default: AclPubsubDefault = AclPubsubDefault::ResetChannels; word("acl-pubsub-default");
    slowlog_max_len: u64 = 128; int("slowlog-max-len", 0, I64_MAX).alias("commandlog-slow-execution-max-len");
    acllog_max_len: u64 = 128; int("acllog-max-len", 0, I64_MAX);
    busy_reply_threshold: u64 = 5000; int("busy-reply-threshold", 0, I64_MAX).alias("lua-time-limit");
    slowlog_log_slower_than: i64 = 10000;
        int("slowlog-log-slower-than", -1, I64_MAX).alias("commandlog-execution-slower-than");
    // Valkey's logs of large requests and replies, in bytes.
    commandlog_request_larger_than: i64 = 1 << 20; int("commandlog-request-larger-than", -1, I64_MAX);
    commandlog_large_request_max_len: u64 = 128; int("commandlog-large-request-max-len", 0, I64_MAX);
    commandlog_reply_larger_than: i64 = 1 << 20; int("commandlog-reply-larger-than", -1, I64_MAX);
    commandlog_large_reply_max_len: u64 = 128; int("commandlog-large-reply-max-len", 0, I64_MAX);
    latency_monitor_threshold: u64 = 0; int("latency-monitor-threshold", 0, I64_MAX);
    latency_tracking_info_percentiles: Percentiles = Percentiles(vec![50.0, 99.0, 99.9]);
        special("latency-tracking-info-percentiles").many().always_written();
    lua_enable_deprecated_api: bool = false; yes_no("lua-enable-deprecated-api").immutable().hidden();

    // Process.
    daemonize: bool = false; yes_no("daemonize").immutable().unbuilt(NO_DAEMON);
    always_show_logo: bool = false; yes_no("always-show-logo").immutable();
    set_proc_title: bool = true; yes_no("set-proc-title").immutable();
    jemalloc_bg_thread: bool = true; yes_no("jemalloc-bg-thread");
    syslog_enabled: bool = false; yes_no("syslog-enabled").immutable().unbuilt(NO_SYSLOG);
    crash_log_enabled: bool = true; yes_no("crash-log-enabled");
    crash_memcheck_enabled: bool = true; yes_no("crash-memcheck-enabled");
    use_exit_on_panic: bool = false; yes_no("use-exit-on-panic").hidden();
    disable_thp: bool = true; yes_no("disable-thp").immutable();
    hide_user_data_from_log: bool = false; yes_no("hide-user-data-from-log");
    pidfile: Text = text(""); optional_text("pidfile").immutable();
    syslog_ident: Text = text("redis"); plain_text("syslog-ident").immutable();
    server_cpulist: Text = text("");
        optional_text("server-cpulist").alias("server_cpulist").immutable().unbuilt(NO_CPU_LIST);
    bio_cpulist: Text = text(""); optional_text("bio-cpulist").alias("bio_cpulist").immutable();
    ignore_warnings: Text = text(""); plain_text("ignore-warnings");
    proc_title_template: Text = text("{title} {listen-addr} {server-mode}");
        plain_text("proc-title-template").checked(check::proc_title_template);
    logfile: Text = text(""); plain_text("logfile").immutable();
    locale_collate: Text = text(""); plain_text("locale-collate").checked(check::locale);
    supervised: Supervised = Supervised::No; word("supervised").immutable();
    syslog_facility: SyslogFacility = SyslogFacility::Local0; word("syslog-facility").immutable();
    loglevel: LogLevel = LogLevel::Notice; word("loglevel");
    oom_score_adj: OomScoreAdj = OomScoreAdj::No; word("oom-score-adj").unbuilt(NO_OOM_SCORE);
    enable_protected_configs: ProtectedAction = ProtectedAction::No;
        word("enable-protected-configs").immutable();
    enable_debug_command: ProtectedAction = ProtectedAction::No; word("enable-debug-command").immutable();
    enable_module_command: ProtectedAction = ProtectedAction::No; word("enable-module-command").immutable();
    shutdown_on_sigint: ShutdownFlags = ShutdownFlags::default(); special("shutdown-on-sigint").many();
    shutdown_on_sigterm: ShutdownFlags = ShutdownFlags::default(); special("shutdown-on-sigterm").many();
    io_threads: u32 = 1; int("io-threads", 1, 128).immutable();
    watchdog_period: u32 = 0; int("watchdog-period", 0, INT_MAX).hidden();
    shutdown_timeout: u32 = 10; int("shutdown-timeout", 0, INT_MAX);
    dir: Dir = Dir::default(); special("dir").protected().always_written();
    oom_score_adj_values: OomScoreAdjValues = OomScoreAdjValues([0, 200, 800]);
        special("oom-score-adj-values").many();
    prefetch_batch_max_size: u32 = 16; int("prefetch-batch-max-size", 0, 128).hidden();

    // Persistence: not built yet; without save and appendonly the rest has no effect.
    rdbchecksum: bool = true; yes_no("rdbchecksum").immutable();
    rdbcompression: bool = true; yes_no("rdbcompression");
    rdb_del_sync_files: bool = false; yes_no("rdb-del-sync-files");
    stop_writes_on_bgsave_error: bool = true; yes_no("stop-writes-on-bgsave-error");
    aof_rewrite_incremental_fsync: bool = true; yes_no("aof-rewrite-incremental-fsync");
    no_appendfsync_on_rewrite: bool = false; yes_no("no-appendfsync-on-rewrite");
    rdb_save_incremental_fsync: bool = true; yes_no("rdb-save-incremental-fsync");
    aof_load_truncated: bool = true; yes_no("aof-load-truncated");
    aof_use_rdb_preamble: bool = true; yes_no("aof-use-rdb-preamble");
    aof_timestamp_enabled: bool = false; yes_no("aof-timestamp-enabled");
    appendonly: bool = false; yes_no("appendonly").unbuilt(NO_APPEND);
    aof_disable_auto_gc: bool = false; yes_no("aof-disable-auto-gc").hidden();
    dbfilename: Text = text("dump.rdb"); plain_text("dbfilename").protected().checked(check::dbfilename);
    appendfilename: Text = text("appendonly.aof");
        plain_text("appendfilename").immutable().checked(check::appendfilename);
    appenddirname: Text = text("appendonlydir");
        plain_text("appenddirname").immutable().checked(check::appenddirname);
    aof_rewrite_cpulist: Text = text("");
        optional_text("aof-rewrite-cpulist").alias("aof_rewrite_cpulist").immutable();
    bgsave_cpulist: Text = text(""); optional_text("bgsave-cpulist").alias("bgsave_cpulist").immutable();
    appendfsync: AppendFsync = AppendFsync::EverySec; word("appendfsync");
    sanitize_dump_payload: SanitizeDumpPayload = SanitizeDumpPayload::No; word("sanitize-dump-payload");
    auto_aof_rewrite_percentage: u32 = 100; int("auto-aof-rewrite-percentage", 0, INT_MAX);
    rdb_key_save_delay: i32 = 0; int("rdb-key-save-delay", INT_MIN, INT_MAX).hidden();
    key_load_delay: i32 = 0; int("key-load-delay", INT_MIN, INT_MAX).hidden();
    auto_aof_rewrite_min_size: u64 = 64 << 20; memory("auto-aof-rewrite-min-size", 0, I64_MAX);
    loading_process_events_interval_bytes: u32 = 524288;
        int("loading-process-events-interval-bytes", 1024, INT_MAX).hidden();
    save: SavePoints = SavePoints::default();
        special("save").many().always_written().unbuilt(NO_SAVE);

    // Replication: not built yet; without replicaof the rest has no effect.
    repl_disable_tcp_nodelay: bool = false; yes_no("repl-disable-tcp-nodelay");
    repl_diskless_sync: bool = true; yes_no("repl-diskless-sync");
    replica_lazy_flush: bool = false; yes_no("replica-lazy-flush").alias("slave-lazy-flush");
    replica_serve_stale_data: bool = true;
        yes_no("replica-serve-stale-data").alias("slave-serve-stale-data");
    replica_read_only: bool = true; yes_no("replica-read-only").alias("slave-read-only");
    replica_ignore_maxmemory: bool = true;
        yes_no("replica-ignore-maxmemory").alias("slave-ignore-maxmemory");
    replica_announced: bool = true; yes_no("replica-announced");
    replica_ignore_disk_write_errors: bool = false; yes_no("replica-ignore-disk-write-errors");
    replica_announce_ip: Text = text(""); optional_text("replica-announce-ip").alias("slave-announce-ip");
    masteruser: Text = text(""); optional_text("masteruser").secret();
    bind_source_addr: Text = text(""); optional_text("bind-source-addr");
    masterauth: Text = text(""); optional_text("masterauth").secret();
    repl_diskless_load: ReplDisklessLoad = ReplDisklessLoad::Disabled; word("repl-diskless-load");
    propagation_error_behavior: PropagationErrorBehavior = PropagationErrorBehavior::Ignore;
        word("propagation-error-behavior");
    replica_priority: u32 = 100; int("replica-priority", 0, INT_MAX).alias("slave-priority");
    repl_diskless_sync_delay: u32 = 5; int("repl-diskless-sync-delay", 0, INT_MAX);
    replica_announce_port: u16 = 0; int("replica-announce-port", 0, 65535).alias("slave-announce-port");
    repl_timeout: u32 = 60; int("repl-timeout", 1, INT_MAX);
    repl_ping_replica_period: u32 = 10;
        int("repl-ping-replica-period", 1, INT_MAX).alias("repl-ping-slave-period");
    min_replicas_to_write: u32 = 0;
        int("min-replicas-to-write", 0, INT_MAX).alias("min-slaves-to-write").unbuilt(NO_REPLICATION);
    min_replicas_max_lag: u32 = 10; int("min-replicas-max-lag", 0, INT_MAX).alias("min-slaves-max-lag");
    repl_diskless_sync_max_replicas: u32 = 0; int("repl-diskless-sync-max-replicas", 0, INT_MAX);
    repl_backlog_size: u64 = 1 << 20; memory("repl-backlog-size", 1, I64_MAX);
    repl_backlog_ttl: u64 = 3600; int("repl-backlog-ttl", 0, I64_MAX);
    replicaof: ReplicaOf = ReplicaOf::default();
        special("replicaof").alias("slaveof").immutable().many().unbuilt(NO_REPLICATION);
    replica_full_sync_buffer_limit: u64 = 0; memory("replica-full-sync-buffer-limit", 0, I64_MAX);
    repl_rdb_channel: bool = true; yes_no("repl-rdb-channel").hidden();

    // Cluster: not built yet; without cluster-enabled the rest has no effect.
    cluster_require_full_coverage: bool = true; yes_no("cluster-require-full-coverage");
    cluster_replica_no_failover: bool = false;
        yes_no("cluster-replica-no-failover").alias("cluster-slave-no-failover");
    cluster_enabled: bool = false; yes_no("cluster-enabled").immutable().unbuilt(NO_CLUSTER);
    cluster_allow_reads_when_down: bool = false; yes_no("cluster-allow-reads-when-down");
    cluster_allow_pubsubshard_when_down: bool = true; yes_no("cluster-allow-pubsubshard-when-down");
    cluster_allow_replica_migration: bool = true; yes_no("cluster-allow-replica-migration");
    cluster_announce_ip: Text = text(""); optional_text("cluster-announce-ip");
    cluster_config_file: Text = text("nodes.conf"); plain_text("cluster-config-file").immutable();
    cluster_announce_hostname: Text = text("");
        optional_text("cluster-announce-hostname").checked(check::hostname);
    cluster_announce_human_nodename: Text = text("");
        optional_text("cluster-announce-human-nodename").checked(check::nodename);
    cluster_preferred_endpoint_type: ClusterEndpointType = ClusterEndpointType::Ip;
        word("cluster-preferred-endpoint-type");
    cluster_replica_validity_factor: u32 = 10;
        int("cluster-replica-validity-factor", 0, INT_MAX).alias("cluster-slave-validity-factor");
    cluster_migration_barrier: u32 = 1; int("cluster-migration-barrier", 0, INT_MAX);
    cluster_port: u16 = 0; int("cluster-port", 0, 65535).immutable();
    cluster_announce_bus_port: u16 = 0; int("cluster-announce-bus-port", 0, 65535);
    cluster_announce_port: u16 = 0; int("cluster-announce-port", 0, 65535);
    cluster_announce_tls_port: u16 = 0; int("cluster-announce-tls-port", 0, 65535);
    cluster_node_timeout: u64 = 15000; int("cluster-node-timeout", 0, I64_MAX);
    cluster_ping_interval: u64 = 0; int("cluster-ping-interval", 0, I64_MAX).hidden();
    cluster_link_sendbuf_limit: u64 = 0; umemory("cluster-link-sendbuf-limit", 0, I64_MAX);
    cluster_compatibility_sample_ratio: u32 = 0; int("cluster-compatibility-sample-ratio", 0, 100);
    cluster_slot_stats_enabled: bool = false; yes_no("cluster-slot-stats-enabled");

    // TLS: not built yet, so only tls-port 0; the rest is stored and has no effect.
    max_new_tls_connections_per_cycle: u32 = 1; uint("max-new-tls-connections-per-cycle", 1, 1000);
    tls_port: u16 = 0; int("tls-port", 0, 65535).unbuilt(NO_TLS);
    tls_session_cache_size: u32 = 20480; int("tls-session-cache-size", 0, INT_MAX);
    tls_session_cache_timeout: u32 = 300; int("tls-session-cache-timeout", 0, INT_MAX);
    tls_cluster: bool = false; yes_no("tls-cluster").unbuilt(NO_TLS);
    tls_replication: bool = false; yes_no("tls-replication").unbuilt(NO_TLS);
    tls_auth_clients: TlsAuthClients = TlsAuthClients::Yes; word("tls-auth-clients");
    tls_prefer_server_ciphers: bool = false; yes_no("tls-prefer-server-ciphers");
    tls_session_caching: bool = true; yes_no("tls-session-caching");
    tls_cert_file: Text = text(""); optional_text("tls-cert-file");
    tls_key_file: Text = text(""); optional_text("tls-key-file");
    tls_key_file_pass: Text = text(""); optional_text("tls-key-file-pass").secret();
    tls_client_cert_file: Text = text(""); optional_text("tls-client-cert-file");
    tls_client_key_file: Text = text(""); optional_text("tls-client-key-file");
    tls_client_key_file_pass: Text = text(""); optional_text("tls-client-key-file-pass").secret();
    tls_dh_params_file: Text = text(""); optional_text("tls-dh-params-file");
    tls_ca_cert_file: Text = text(""); optional_text("tls-ca-cert-file");
    tls_ca_cert_dir: Text = text(""); optional_text("tls-ca-cert-dir");
    tls_protocols: Text = text(""); optional_text("tls-protocols");
    tls_ciphers: Text = text(""); optional_text("tls-ciphers");
    tls_ciphersuites: Text = text(""); optional_text("tls-ciphersuites");
}

#[cfg(test)]
mod tests {
    use super::super::value::{Kind, Source};
    use super::*;

    /// Sets each number to both its bounds, which panics if the field's type cannot hold them.
    #[test]
    fn bounds_fit_their_fields() {
        for row in TABLE {
            let (Kind::Integer { min, max, .. } | Kind::Memory { min, max, .. } | Kind::Octal { min, max }) =
                row.kind
            else {
                continue;
            };
            for bound in [min, max] {
                let text = match row.kind {
                    Kind::Octal { .. } => format!("{bound:o}"),
                    _ => bound.to_string(),
                };
                let mut config = Config::default();
                (row.assign)(&mut config, row, &[text.as_bytes()], Source::File).expect(row.name);
                assert_eq!(row.value(&config), text.as_bytes(), "{}", row.name);
            }
        }
    }

    #[test]
    fn a_field_has_its_directives_name() {
        let names: Vec<String> = TABLE.iter().map(|row| row.name.replace('-', "_")).collect();
        assert_eq!(names, FIELDS);
    }
}
