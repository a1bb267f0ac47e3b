//! Flags that all modes share: servers, data, the set, output.

use crate::truth::Metric;
use clap::Args;
use std::path::PathBuf;

/// Which servers are asked.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Servers")]
pub(super) struct ServerFlags {
    /// Host of the first server, the one that is compared
    #[arg(short = 's', long, alias = "host", default_value = "localhost")]
    pub(super) server: String,
    #[arg(short, long, default_value_t = 6379)]
    pub(super) port: u16,
    /// Unix domain socket, instead of host and port
    #[arg(short = 'S', long)]
    pub(super) unix_socket: Option<PathBuf>,
    /// PASSWORD or USER:PASSWORD, for all servers
    #[arg(short, long)]
    pub(super) authenticate: Option<String>,
    /// Process ids of the first server, for CPU and memory
    #[arg(long, value_delimiter = ',')]
    pub(super) server_pid: Vec<u32>,
    /// Name of the first server in tables (default: what INFO says)
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Another server to ask in turn, [NAME=]HOST:PORT[:PID]; may be given several times
    #[arg(long)]
    pub(super) peer: Vec<String>,
    /// Also a row per server thread that worked
    #[arg(long)]
    pub(super) server_threads: bool,
    /// Pin this program's threads to these cores in turn
    #[arg(long, value_delimiter = ',')]
    pub(super) cpu: Vec<usize>,
}

/// Which vectors are loaded and searched for.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Vectors")]
pub(super) struct DataFlags {
    /// Rows to load: .npy, .fvecs, .bvecs, .fbin or ann-benchmarks .hdf5; without it rows are generated
    #[arg(long)]
    pub(super) base: Option<PathBuf>,
    /// Rows to search for; a .hdf5 --base has its own
    #[arg(long)]
    pub(super) query: Option<PathBuf>,
    /// Exact neighbours of all of --base: .ibin, .ivecs, .npy or .hdf5; without it they are computed
    #[arg(long)]
    pub(super) truth: Option<PathBuf>,
    /// How many rows of --base to load
    #[arg(long, default_value_t = 20_000)]
    pub(super) rows: usize,
    /// How many rows of --query to use
    #[arg(long, default_value_t = 1000)]
    pub(super) queries: usize,
    /// COUNT of the searches
    #[arg(long, default_value_t = 10)]
    pub(super) count: usize,
    /// What nearness means; l2 and ip say VADD ... METRIC, an extension that Redis does not have
    #[arg(long, value_enum, default_value_t = Metric::Cosine)]
    pub(super) metric: Metric,
    /// Dimensions of generated rows
    #[arg(long, default_value_t = 384)]
    pub(super) dim: usize,
    /// Clusters of generated rows
    #[arg(long, default_value_t = 100)]
    pub(super) clusters: usize,
    /// Seed of generated rows and of every random choice
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Where computed exact neighbours are kept (default: skerry-bench-truth in the directory for temporary files)
    #[arg(long)]
    pub(super) cache_dir: Option<PathBuf>,
}

/// How the set is built.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Set")]
pub(super) struct SetFlags {
    /// Name of the vector set; it is deleted first
    #[arg(long, default_value = "bench:vectors")]
    pub(super) key: String,
    /// NOQUANT, Q8 or BIN
    #[arg(long, default_value = "NOQUANT")]
    pub(super) quantization: String,
    #[arg(long, default_value_t = 16)]
    pub(super) m: u32,
    #[arg(long, default_value_t = 200)]
    pub(super) ef_construction: u32,
    /// REDUCE to that many dimensions
    #[arg(long)]
    pub(super) reduce: Option<u32>,
    /// VADD with CAS
    #[arg(long)]
    pub(super) cas: bool,
    /// Words to add to each VADD, for extensions
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(super) vadd_options: String,
    /// Connections that load, a thread each
    #[arg(long, default_value_t = 4)]
    pub(super) load_clients: usize,
    /// VADD in flight on each loading connection
    #[arg(long, default_value_t = 4)]
    pub(super) load_pipeline: usize,
}

/// Where results go.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputFlags {
    /// Writes all figures there
    #[arg(long, alias = "json-out-file")]
    pub(super) json: Option<PathBuf>,
}

/// Everything shared.
#[derive(Clone, Debug, Args)]
pub(super) struct CommonFlags {
    #[command(flatten)]
    pub(super) servers: ServerFlags,
    #[command(flatten)]
    pub(super) data: DataFlags,
    #[command(flatten)]
    pub(super) set: SetFlags,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}
