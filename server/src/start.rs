//! Start and stop: reads the machine, builds the mesh, starts one worker per core, waits for a signal.

use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::thread;

use mio::{Poll, Waker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::Startup;
use crate::dispatch::Node;
use crate::door::Door;
use crate::listener::Listeners;
use crate::log;
use crate::mesh;
use crate::server::{REDIS_VERSION, SKERRY_VERSION, Server};
use crate::shard::ShardId;
use crate::supervisor::Supervisor;
use crate::worker::{WAKER, Worker, WorkerParts, unix_ms};

/// More workers than this are refused: a shard mask is 64 bits wide.
pub const MAX_THREADS: usize = 64;

/// Why the server did not start or run on.
#[derive(Debug)]
pub enum Failure {
    /// Nobody has been told yet.
    Untold(String),
    /// The log tells.
    Logged,
}

/// Runs the server until SIGTERM, SIGINT or SHUTDOWN.
pub fn run(startup: Startup) -> Result<(), Failure> {
    let config = &startup.config;
    log::open(config.loglevel.into(), &String::from_utf8_lossy(&config.logfile))
        .map_err(|error| Failure::Untold(format!("Can't open the log file: {error}")))?;
    serve(startup).map_err(|error| {
        log::warning(&error);
        Failure::Logged
    })
}

fn serve(startup: Startup) -> Result<(), String> {
    let Startup { mut config, config_file, notes } = startup;
    let dir = &config.dir.0;
    if !dir.as_os_str().is_empty() {
        std::env::set_current_dir(dir)
            .map_err(|error| format!("Can't chdir to '{}': {error}", dir.display()))?;
    }
    if config.disable_thp {
        disable_huge_pages();
    }
    let cores = Cores::find();
    let n_threads = match config.threads as usize {
        0 => cores.default_threads(),
        n => n,
    };
    let pid = std::process::id();
    log::notice("oO0OoO0OoO0Oo Skerry is starting oO0OoO0OoO0Oo");
    log::notice(&format!(
        "Skerry version={SKERRY_VERSION}, speaking Redis {REDIS_VERSION}, bits=64, pid={pid}, threads={n_threads}, just started"
    ));
    match &config_file {
        Some(path) => log::notice(&format!("Configuration loaded from {}", path.display())),
        None => log::notice("No config file specified, using the default config"),
    }
    for note in notes {
        log::warning(&note);
    }
    let supervisor = Supervisor::find(config.supervised);
    config.maxclients = clients_within_open_files(config.maxclients, n_threads)?;
    let listeners = Listeners::bind(&config)?;
    let listening =
        listeners.share_tcp().map_err(|error| format!("Can't share the listening sockets: {error}"))?;
    let pidfile = PidFile::write(&String::from_utf8_lossy(&config.pidfile), pid);
    // The system's randomness: who knows the seed can write keys that collide.
    let seed = std::collections::hash_map::RandomState::new().hash_one((pid, unix_ms()));
    let port = config.port;
    let unixsocket = String::from_utf8_lossy(&config.unixsocket).into_owned();
    let config_file = config_file.map(|path| path.display().to_string());
    let server = Arc::new(Server::new(config, config_file, n_threads, unix_ms(), seed));
    *server.listening.lock().unwrap_or_else(PoisonError::into_inner) = listening;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| format!("Can't install signal handlers: {error}"))?;

    if n_threads == 1 {
        crate::alloc::keep_full_pages();
    }
    crate::alloc::Purger::start().map_err(|error| format!("Can't start the purger: {error}"))?;
    let mut polls = Vec::new();
    let mut doors = Vec::new();
    for _ in 0..n_threads {
        let poll = Poll::new().map_err(|error| format!("Can't create an epoll instance: {error}"))?;
        let waker =
            Waker::new(poll.registry(), WAKER).map_err(|error| format!("Can't create a waker: {error}"))?;
        doors.push(Door::new(waker));
        polls.push(poll);
    }
    let doors = Arc::new(doors);
    let meshes = mesh::build(doors.clone());
    let (placing, arrivals): (Vec<_>, Vec<_>) = (0..n_threads).map(|_| channel()).unzip();
    let mut listeners = Some(listeners);
    let mut handles = Vec::new();
    for (at, ((poll, mesh), arrivals)) in polls.into_iter().zip(meshes).zip(arrivals).enumerate() {
        let id = ShardId(at as u8);
        let server = server.clone();
        let listeners = if at == 0 { listeners.take() } else { None };
        let placing = placing.clone();
        let core = cores.pin_for(at, n_threads);
        let worker = move || {
            if let Some(core) = core {
                core_affinity::set_for_current(core);
            }
            let node = Node::new(id, server.clone(), seed.rotate_left(at as u32 + 1), unix_ms());
            Worker::new(WorkerParts { poll, node, mesh, server, arrivals, listeners, placing }).run();
        };
        let handle =
            thread::Builder::new().name(format!("worker-{at}")).stack_size(WORKER_STACK_BYTES).spawn(worker);
        handles.push(handle.map_err(|error| format!("Can't start a worker: {error}"))?);
    }
    log::notice(&format!("Server initialized, {n_threads} worker(s)"));
    if port != 0 {
        log::notice(&format!("Ready to accept connections tcp on port {port}"));
    }
    if !unixsocket.is_empty() {
        log::notice(&format!("Ready to accept connections unix at {unixsocket}"));
    }
    supervisor.tell("STATUS=Ready to accept connections\nREADY=1\n");
    wait_for_signal(signals, &server, &doors);
    supervisor.tell("STOPPING=1\n");
    for handle in handles {
        if handle.join().is_err() {
            // A panic outside a command: the state of that shard is unknown.
            log::warning("A worker failed by a bug of the server; stopping");
            std::process::abort();
        }
    }
    drop(pidfile);
    log::warning("Skerry is now ready to exit, bye bye...");
    Ok(())
}

/// A script may nest calls and patterns as deep as Lua's limits let it; what is not used is not resident.
const WORKER_STACK_BYTES: usize = 16 << 20;

/// As Redis does by default (`disable-thp`): the kernel clears a huge page at its first touch, which stops a turn for milliseconds.
fn disable_huge_pages() {
    // SAFETY: a plain call that sets a flag of this process.
    let failed = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if failed != 0 {
        log::warning(
            "Failed to disable transparent huge pages for this process; turns may take milliseconds longer",
        );
    }
}

/// As many of the wanted clients as the system has open files for; raises the limit if it can.
fn clients_within_open_files(wanted: u32, n_threads: usize) -> Result<u32, String> {
    let own = crate::process::own_files(n_threads);
    let needed = u64::from(wanted) + own;
    let limit = crate::process::raise_open_files(needed);
    if limit >= needed {
        return Ok(wanted);
    }
    if limit <= own {
        return Err(format!(
            "Your current 'ulimit -n' of {limit} is not enough for the server to start. Please increase your open file limit to \
             at least {needed}. Exiting."
        ));
    }
    let reduced = (limit - own) as u32;
    log::warning(&format!(
        "Current maximum open files is {limit}. maxclients has been reduced to {reduced} to compensate for low ulimit. If you \
         need higher maxclients increase 'ulimit -n'."
    ));
    Ok(reduced)
}

/// Waits for a signal or SHUTDOWN (which raises SIGTERM), then wakes every worker to stop. A closed terminal's SIGHUP is passed
/// over, as in Redis: everything is in memory.
fn wait_for_signal(mut signals: Signals, server: &Server, doors: &[Door]) {
    if let Some(signal) = signals.forever().find(|signal| *signal != SIGHUP) {
        if !server.is_shutdown_asked.load(Ordering::SeqCst) {
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            log::warning(&format!("Received {name} scheduling shutdown..."));
        }
        log::warning("User requested shutdown...");
    }
    server.is_stopping.store(true, Ordering::SeqCst);
    for door in doors {
        door.ring();
    }
}

/// The cores this process may use.
struct Cores {
    ids: Vec<core_affinity::CoreId>,
    /// CPUs' worth of time that the cgroup grants, if it limits.
    quota: Option<f64>,
}

impl Cores {
    fn find() -> Self {
        Self { ids: core_affinity::get_core_ids().unwrap_or_default(), quota: cgroup_quota() }
    }

    fn default_threads(&self) -> usize {
        let cores = self.ids.len().clamp(1, MAX_THREADS);
        match self.quota {
            Some(quota) => cores.min((quota.floor() as usize).max(1)),
            None => cores,
        }
    }

    /// Where worker `at` is pinned: nowhere under a quota below the cores, or if workers outnumber cores.
    fn pin_for(&self, at: usize, n_threads: usize) -> Option<core_affinity::CoreId> {
        let is_limited = self.quota.is_some_and(|quota| quota < self.ids.len() as f64);
        if is_limited || n_threads > self.ids.len() {
            return None;
        }
        self.ids.get(at).copied()
    }
}

/// cgroup v2's cpu.max, or v1's cfs quota.
fn cgroup_quota() -> Option<f64> {
    let read = |path: &str| -> io::Result<String> { fs::read_to_string(path) };
    if let Ok(text) = read("/sys/fs/cgroup/cpu.max") {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let quota: f64 = read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").ok()?.trim().parse().ok()?;
    let period: f64 = read("/sys/fs/cgroup/cpu/cpu.cfs_period_us").ok()?.trim().parse().ok()?;
    (quota > 0.0).then_some(quota / period)
}

/// The pid file; removed on drop.
struct PidFile(Option<String>);

impl PidFile {
    fn write(path: &str, pid: u32) -> Self {
        if path.is_empty() {
            return Self(None);
        }
        match fs::write(path, format!("{pid}\n")) {
            Ok(()) => Self(Some(path.to_owned())),
            Err(error) => {
                log::warning(&format!("Failed to write PID file: {error}"));
                Self(None)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Gone already: nothing to do.
            let _ = fs::remove_file(path);
        }
    }
}
