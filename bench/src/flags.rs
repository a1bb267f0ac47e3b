//! memtier_benchmark's flags, read as memtier reads them, and ours beside them.
//!
//! Reading has two steps: clap knows names and shapes, [`parse`] knows relations (last one wins, a
//! `--command-ratio` belongs to the `--command` before it, what excludes what) and returns a [`Workload`] in
//! which nothing can be wrong. Defaults are memtier's. Flags of memtier that are not here are refused by
//! name, not ignored.

use crate::clustered::VectorShape;
use crate::connection::{Handshake, Protocol, ServerAddress};
use crate::keys::{KeyPattern, KeyRange, KeyShape};
use crate::template::{DataContent, DataShape, Template, TemplateError};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use std::path::PathBuf;
use std::time::Duration;

/// memtier's own limit on keys: 2^64-1 would overflow the gaussian's arithmetic, and no test needs it.
const MAX_KEY: u64 = 1 << 62;

#[derive(Debug, Parser)]
#[command(
    after_help = "Vector sets: skerry-bench vectors --help",
    name = "skerry-bench",
    version,
    about = "Load generator with memtier_benchmark's flags. Arguments may also come from @FILE.",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true
)]
struct Flags {
    /// Server address
    #[arg(short = 's', long = "server", short_alias = 'h', alias = "host", default_value = "localhost")]
    server: String,
    /// Server port
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// Unix domain socket, instead of address and port
    #[arg(short = 'S', long)]
    unix_socket: Option<PathBuf>,
    /// redis, resp2 or resp3
    #[arg(short = 'P', long, default_value = "redis")]
    protocol: String,
    /// PASSWORD or USER:PASSWORD
    #[arg(short, long)]
    authenticate: Option<String>,
    /// Database number
    #[arg(long, default_value_t = 0)]
    select_db: u32,
    /// Number of full runs; best, worst and average are printed
    #[arg(short = 'x', long, default_value_t = 1)]
    run_count: u32,
    /// Requests per client, or "allkeys"
    #[arg(short = 'n', long)]
    requests: Option<String>,
    /// Clients per thread
    #[arg(short, long, default_value_t = 50)]
    clients: u32,
    /// Threads
    #[arg(short, long, default_value_t = 4)]
    threads: u32,
    /// Seconds to run, instead of --requests
    #[arg(long)]
    test_time: Option<u64>,
    /// Set:Get ratio
    #[arg(long)]
    ratio: Option<String>,
    /// Concurrent pipelined requests per client
    #[arg(long, default_value_t = 1)]
    pipeline: u32,
    /// Requests per second and connection
    #[arg(long)]
    rate_limiting: Option<u32>,
    /// Accepted for memtier's sake if "no"; cluster mode is not here
    #[arg(long, num_args = 0..=1, default_missing_value = "yes", require_equals = true)]
    cluster_mode: Option<String>,
    /// Another random seed for each client
    #[arg(long)]
    distinct_client_seed: bool,
    /// Seed from the clock
    #[arg(long)]
    randomize: bool,
    /// A command in quotes, with __key__, __data__ and __vector__; may be given several times
    #[arg(long)]
    command: Vec<String>,
    /// How often the command before it is sent in sequence
    #[arg(long)]
    command_ratio: Vec<u32>,
    /// Key pattern of the command before it: R G Z S P
    #[arg(long)]
    command_key_pattern: Vec<String>,
    /// Value size in bytes
    #[arg(short, long, default_value_t = 32)]
    data_size: usize,
    /// Value sizes, min-max
    #[arg(long)]
    data_size_range: Option<String>,
    /// Random bytes as values
    #[arg(short = 'R', long)]
    random_data: bool,
    /// Random expiry in seconds, min-max: SETEX instead of SET
    #[arg(long)]
    expiry_range: Option<String>,
    #[arg(long, default_value = "memtier-")]
    key_prefix: String,
    #[arg(long, default_value_t = 0)]
    key_minimum: u64,
    #[arg(long, default_value_t = 10_000_000)]
    key_maximum: u64,
    /// Set:Get key pattern, of R G Z S P
    #[arg(long)]
    key_pattern: Option<String>,
    #[arg(long, default_value_t = 0.0)]
    key_stddev: f64,
    #[arg(long, default_value_t = 0.0)]
    key_median: f64,
    #[arg(long, default_value_t = 1.0)]
    key_zipf_exp: f64,
    #[arg(long)]
    hide_histogram: bool,
    /// Percentiles of the result table
    #[arg(long, default_value = "50,99,99.9")]
    print_percentiles: String,
    /// Also print each run of --run-count
    #[arg(long)]
    print_all_runs: bool,
    #[arg(long)]
    json_out_file: Option<PathBuf>,
    /// Where the result table goes, instead of standard output
    #[arg(short, long)]
    out_file: Option<PathBuf>,
    /// Process ids of the server: its CPU time per operation is printed (not in memtier)
    #[arg(long, value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Also a row per server thread (not in memtier)
    #[arg(long)]
    server_threads: bool,
    /// Pin this program's threads to these cores in turn (not in memtier)
    #[arg(long, value_delimiter = ',')]
    cpu: Vec<usize>,
    /// Exit code 0 in spite of error replies (not in memtier)
    #[arg(long)]
    ignore_errors: bool,
    /// Dimensions of __vector__ (not in memtier)
    #[arg(long, default_value_t = 384)]
    vector_dim: usize,
    /// Clusters of __vector__ (not in memtier)
    #[arg(long, default_value_t = 100)]
    vector_clusters: usize,
    /// Seed of __vector__ (not in memtier)
    #[arg(long, default_value_t = 1)]
    vector_seed: u64,
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[arg(short, long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// How long a client goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    RequestsPerClient(u64),
    /// `--requests allkeys`: each client goes once through its keys; under pattern P all of them once
    /// together.
    AllKeys,
    Time(Duration),
}

/// Whether the commands are memtier's default pair or given by `--command`: the result table differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandsKind {
    /// Command 0 is the write, command 1 the read.
    SetAndGet,
    Arbitrary,
}

/// A checked workload and how to report it.
#[derive(Clone, Debug)]
pub struct Workload {
    pub address: ServerAddress,
    pub handshake: Handshake,
    pub n_threads: u32,
    pub n_clients_per_thread: u32,
    pub pipeline: u32,
    pub length: Length,
    pub requests_per_s: Option<u32>,
    pub commands: Vec<Template>,
    pub commands_kind: CommandsKind,
    pub key_range: KeyRange,
    pub key_shape: KeyShape,
    pub data: DataShape,
    pub expiry_s: (u64, u64),
    pub vectors: VectorShape,
    pub seed: u64,
    pub distinct_client_seed: bool,
    pub cpus: Vec<usize>,
    pub run_count: u32,
    pub server_pids: Vec<u32>,
    pub report: ReportOptions,
}

#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    pub percentiles: Vec<f64>,
    pub hide_histogram: bool,
    pub print_all_runs: bool,
    pub server_threads: bool,
    pub ignore_errors: bool,
    pub json_out_file: Option<PathBuf>,
    pub out_file: Option<PathBuf>,
}

impl Workload {
    pub fn n_clients(&self) -> u64 {
        u64::from(self.n_threads) * u64::from(self.n_clients_per_thread)
    }

    /// All requests of a run, or `None` if time ends it.
    pub fn n_requests(&self) -> Option<u64> {
        match self.length {
            Length::RequestsPerClient(n) => Some(n * self.n_clients()),
            Length::AllKeys if self.commands[0].key_pattern == KeyPattern::Parallel => {
                Some(self.key_range.n_keys())
            }
            Length::AllKeys => Some(self.key_range.n_keys() * self.n_clients()),
            Length::Time(_) => None,
        }
    }

    /// What memtier names after the number of threads and clients: the amount and its unit.
    pub fn length_in_words(&self) -> (u64, &'static str) {
        match (self.length, self.n_requests()) {
            (Length::Time(time), _) => (time.as_secs(), "Seconds"),
            (_, n_requests) => (n_requests.unwrap_or(0).div_ceil(self.n_clients()), "Requests per client"),
        }
    }
}

/// Why the arguments make no workload.
#[derive(Debug)]
pub enum FlagError {
    /// clap's own message, which also carries --help and --version.
    Clap(clap::Error),
    Text(String),
}

impl From<String> for FlagError {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Reads the arguments after the program's name.
pub fn parse(args: &[String]) -> Result<Workload, FlagError> {
    let argv = std::iter::once("skerry-bench").chain(args.iter().map(String::as_str));
    let matches = Flags::command().try_get_matches_from(argv).map_err(FlagError::Clap)?;
    let flags = Flags::from_arg_matches(&matches).map_err(FlagError::Clap)?;
    workload(flags, &matches)
}

fn workload(flags: Flags, matches: &ArgMatches) -> Result<Workload, FlagError> {
    for (value, name) in [
        (flags.threads, "threads"),
        (flags.clients, "clients"),
        (flags.pipeline, "pipeline"),
        (flags.run_count, "run-count"),
        (flags.rate_limiting.unwrap_or(1), "rate-limiting"),
    ] {
        if value == 0 {
            return Err(format!("error: {name} must be greater than zero.").into());
        }
    }
    if flags.cluster_mode.as_deref().is_some_and(|mode| mode != "no") {
        return Err("error: cluster mode is not supported.".to_owned().into());
    }
    if flags.key_maximum < flags.key_minimum || flags.key_maximum > MAX_KEY {
        return Err("error: key-minimum must not be above key-maximum.".to_owned().into());
    }
    if flags.vector_dim == 0 || flags.vector_clusters == 0 {
        return Err("error: vector-dim and vector-clusters must be greater than zero.".to_owned().into());
    }
    let data = data_shape(&flags)?;
    let (commands_kind, commands) = commands(&flags, matches, data)?;
    let address = match &flags.unix_socket {
        Some(path) => ServerAddress::Unix(path.clone()),
        None => ServerAddress::resolve(&flags.server, flags.port)
            .map_err(|e| format!("error: cannot resolve {}: {e}", flags.server))?,
    };
    Ok(Workload {
        address,
        handshake: Handshake {
            protocol: protocol(&flags.protocol)?,
            credentials: flags.authenticate.clone(),
            db: flags.select_db,
        },
        n_threads: flags.threads,
        n_clients_per_thread: flags.clients,
        pipeline: flags.pipeline,
        length: length(&flags)?,
        requests_per_s: flags.rate_limiting,
        commands,
        commands_kind,
        key_range: KeyRange { minimum: flags.key_minimum, maximum: flags.key_maximum },
        key_shape: key_shape(&flags)?,
        data,
        expiry_s: flags.expiry_range.as_deref().map_or(Ok((0, 0)), |text| range("expiry-range", text, 1))?,
        vectors: VectorShape {
            n_dims: flags.vector_dim,
            n_clusters: flags.vector_clusters,
            seed: flags.vector_seed,
        },
        seed: if flags.randomize { seed_from_clock() } else { 0 },
        distinct_client_seed: flags.distinct_client_seed,
        cpus: flags.cpu,
        run_count: flags.run_count,
        server_pids: flags.server_pid,
        report: ReportOptions {
            percentiles: percentiles(&flags.print_percentiles)?,
            hide_histogram: flags.hide_histogram,
            print_all_runs: flags.print_all_runs,
            server_threads: flags.server_threads,
            ignore_errors: flags.ignore_errors,
            json_out_file: flags.json_out_file,
            out_file: flags.out_file,
        },
    })
}

fn commands(
    flags: &Flags,
    matches: &ArgMatches,
    data: DataShape,
) -> Result<(CommandsKind, Vec<Template>), FlagError> {
    if flags.command.is_empty() {
        if !flags.command_ratio.is_empty() || !flags.command_key_pattern.is_empty() {
            return Err("error: command-ratio and command-key-pattern follow a command.".to_owned().into());
        }
        return set_and_get(flags, data);
    }
    if flags.key_pattern.is_some() {
        return Err("error: when using arbitrary command, key pattern is configured with --command-key-pattern option."
            .to_owned()
            .into());
    }
    if flags.ratio.is_some() {
        return Err("error: when using arbitrary command, ratio is configured with --command-ratio option."
            .to_owned()
            .into());
    }
    let ratios = by_command(matches, "command_ratio", &flags.command_ratio)?;
    let patterns = by_command(matches, "command_key_pattern", &flags.command_key_pattern)?;
    let mut templates = Vec::new();
    for (index, line) in flags.command.iter().enumerate() {
        let ratio = ratios[index].copied().unwrap_or(1);
        if ratio == 0 {
            return Err("error: command-ratio must be greater than zero.".to_owned().into());
        }
        let letter = patterns[index].map_or("R", String::as_str);
        let template = Template::parse(line, &flags.key_prefix, data, key_pattern(letter)?, ratio)
            .map_err(|e: TemplateError| format!("error: failed to parse arbitrary command: {e}."))?;
        templates.push(template);
    }
    let n_parallel = templates.iter().filter(|t| t.key_pattern == KeyPattern::Parallel).count();
    if n_parallel != 0 && n_parallel != templates.len() {
        return Err("error: parallel key-pattern must be configured to all commands.".to_owned().into());
    }
    Ok((CommandsKind::Arbitrary, templates))
}

fn set_and_get(flags: &Flags, data: DataShape) -> Result<(CommandsKind, Vec<Template>), FlagError> {
    let (set_ratio, get_ratio) = flags
        .ratio
        .as_deref()
        .unwrap_or("1:10")
        .split_once(':')
        .and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)))
        .filter(|(a, b)| a + b > 0)
        .ok_or_else(|| "error: ratio must be expressed as [0-n]:[0-n].".to_owned())?;
    let text = flags.key_pattern.as_deref().unwrap_or("R:R");
    let (set_letter, get_letter) =
        text.split_once(':').ok_or_else(|| format!("error: key-pattern {text} is not like R:R."))?;
    let (set_pattern, get_pattern) = (key_pattern(set_letter)?, key_pattern(get_letter)?);
    if (set_pattern == KeyPattern::Parallel) != (get_pattern == KeyPattern::Parallel) {
        return Err("error: parallel key-pattern must be configured for both SET and GET commands."
            .to_owned()
            .into());
    }
    let expires = flags.expiry_range.is_some();
    let set = Template::set(&flags.key_prefix, data, expires, set_pattern, set_ratio);
    let get = Template::get(&flags.key_prefix, get_pattern, get_ratio);
    Ok((CommandsKind::SetAndGet, vec![set, get]))
}

/// The value given for each command: the last one between it and the next command.
fn by_command<'a, T>(
    matches: &ArgMatches,
    id: &str,
    values: &'a [T],
) -> Result<Vec<Option<&'a T>>, FlagError> {
    let command_positions: Vec<usize> = matches.indices_of("command").into_iter().flatten().collect();
    let mut of_command = vec![None; command_positions.len()];
    for (position, value) in matches.indices_of(id).into_iter().flatten().zip(values) {
        let n_before = command_positions.iter().filter(|&&p| p < position).count();
        if n_before == 0 {
            return Err("error: command-ratio and command-key-pattern follow a command.".to_owned().into());
        }
        of_command[n_before - 1] = Some(value);
    }
    Ok(of_command)
}

fn key_pattern(letter: &str) -> Result<KeyPattern, FlagError> {
    KeyPattern::from_letter(letter)
        .ok_or_else(|| format!("error: key pattern {letter:?} is none of R, G, Z, S and P.").into())
}

fn key_shape(flags: &Flags) -> Result<KeyShape, FlagError> {
    let (minimum, maximum) = (flags.key_minimum as f64, flags.key_maximum as f64);
    if flags.key_stddev < 0.0 || !flags.key_stddev.is_finite() {
        return Err("error: key-stddev must be greater than zero.".to_owned().into());
    }
    if flags.key_median != 0.0 && !(minimum..=maximum).contains(&flags.key_median) {
        return Err("error: key-median must be between key-minimum and key-maximum.".to_owned().into());
    }
    if !(flags.key_zipf_exp > 0.0 && flags.key_zipf_exp < 5.0) {
        return Err("error: key-zipf-exp must be in (0, 5).".to_owned().into());
    }
    Ok(KeyShape { stddev: flags.key_stddev, median: flags.key_median, zipf_exponent: flags.key_zipf_exp })
}

fn data_shape(flags: &Flags) -> Result<DataShape, FlagError> {
    let (minimum, maximum) = match &flags.data_size_range {
        Some(text) => range("data-size-range", text, 1)?,
        None => (flags.data_size as u64, flags.data_size as u64),
    };
    if minimum == 0 {
        return Err("error: data-size must be greater than zero.".to_owned().into());
    }
    let content = if flags.random_data { DataContent::Random } else { DataContent::OneLetter };
    Ok(DataShape { minimum_bytes: minimum as usize, maximum_bytes: maximum as usize, content })
}

fn length(flags: &Flags) -> Result<Length, FlagError> {
    match (&flags.requests, flags.test_time) {
        (Some(_), Some(_)) => {
            Err("error: --test-time and --requests are mutually exclusive.".to_owned().into())
        }
        (None, Some(0)) => Err("error: test time must be greater than zero.".to_owned().into()),
        (None, Some(seconds)) => Ok(Length::Time(Duration::from_secs(seconds))),
        (None, None) => Ok(Length::RequestsPerClient(10_000)),
        (Some(text), None) if text == "allkeys" => Ok(Length::AllKeys),
        (Some(text), None) => match text.parse() {
            Ok(n) if n > 0 => Ok(Length::RequestsPerClient(n)),
            _ => Err("error: requests must be greater than zero.".to_owned().into()),
        },
    }
}

pub(crate) fn protocol(text: &str) -> Result<Protocol, FlagError> {
    match text {
        "redis" => Ok(Protocol::Redis),
        "resp2" => Ok(Protocol::Resp2),
        "resp3" => Ok(Protocol::Resp3),
        other => Err(format!("error: protocol {other:?} is none of redis, resp2 and resp3.").into()),
    }
}

fn range(name: &str, text: &str, minimum: u64) -> Result<(u64, u64), FlagError> {
    text.split_once('-')
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
        .filter(|(a, b)| *a >= minimum && a <= b)
        .ok_or_else(|| format!("error: {name} must be expressed as [{minimum}-n]-[{minimum}-n].").into())
}

fn percentiles(text: &str) -> Result<Vec<f64>, FlagError> {
    text.split(',')
        .map(|p| match p.trim().parse::<f64>() {
            Ok(p) if p > 0.0 && p <= 100.0 => Ok(p),
            _ => Err(format!("error: percentile {p:?} is not in (0, 100].").into()),
        })
        .collect()
}

fn seed_from_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}
