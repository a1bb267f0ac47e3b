//! A server process for one test: own port, own directory, killed on drop, its log shown if the test failed.

use super::conn::Conn;
use super::peer;
use super::reply::Reply;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const LOG_TAIL_BYTES: usize = 8000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Our server on that many workers.
    Skerry { threads: usize },
    /// The original.
    Redis,
}

pub struct Server {
    pub kind: Kind,
    pub port: u16,
    child: Child,
    dir: PathBuf,
}

impl Server {
    /// Starts the server of that kind with extra arguments in redis-server's form, and waits until it answers.
    ///
    /// `$SKERRY_TEST_BINARY` takes the place of our binary, so that a whole test can be turned on another server.
    pub fn start(kind: Kind, extra: &[String]) -> Server {
        let (kind, binary) = resolve(kind);
        let mut why = String::new();
        // A free port can be taken by somebody else before the server binds it: then try another.
        for _ in 0..5 {
            let mut server = Server::spawn(kind, &binary, extra);
            match server.wait_until_it_answers() {
                Ok(()) => return server,
                Err(e) => why = format!("{e}; its log:\n{}", server.log_tail()),
            }
        }
        panic!("{} did not start: {why}", binary.display());
    }

    fn spawn(kind: Kind, binary: &Path, extra: &[String]) -> Server {
        let dir = fresh_dir();
        let port = free_port();
        let log = File::create(dir.join("log")).expect("log file");
        let mut command = Command::new(binary);
        command.current_dir(&dir).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("log handle")).stderr(log);
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.args(["--enable-debug-command", "yes"]);
        if let Kind::Skerry { threads } = kind {
            command.args(["--threads", &threads.to_string()]);
        }
        let child = command.args(extra).spawn();
        let child = child.unwrap_or_else(|e| panic!("cannot start {}: {e}", binary.display()));
        Server { kind, port, child, dir }
    }

    pub fn connect(&self) -> Conn {
        Conn::open(self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The names of its commands, those of containers as `container|name`, in lower case.
    pub fn command_names(&self) -> BTreeSet<String> {
        let list = self.connect().call(&["COMMAND", "LIST"]).items().expect("a list");
        list.iter()
            .map(|name| String::from_utf8_lossy(name.text().expect("a name")).to_ascii_lowercase())
            .collect()
    }

    /// A line of the process's status in bytes: VmRSS, resident now; VmHWM, the most that ever was.
    pub fn memory_bytes(&self, name: &str) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find(|l| l.starts_with(name)).expect("the line");
        let kib: usize = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
        kib * 1024
    }

    pub fn rss_bytes(&self) -> usize {
        self.memory_bytes("VmRSS:")
    }

    /// Whether the process is still there; a test says so before it blames the protocol.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
        let start = log.len().saturating_sub(LOG_TAIL_BYTES);
        String::from_utf8_lossy(&log[start..]).into_owned()
    }

    fn wait_until_it_answers(&mut self) -> Result<(), String> {
        let end = Instant::now() + START_TIMEOUT;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it exited with {status}"));
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                let mut conn = Conn::open(self.port);
                match conn.send(&["PING"]).and_then(|()| conn.read()) {
                    // With a password, or while loading, an error is an answer too.
                    Ok(Reply::Simple(_) | Reply::Error(_)) => return Ok(()),
                    Ok(other) => return Err(format!("it answered PING with {other:?}")),
                    Err(_) => {}
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("it did not answer PING within {START_TIMEOUT:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the {:?} on port {}:\n{}", self.kind, self.port, self.log_tail());
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn resolve(kind: Kind) -> (Kind, PathBuf) {
    match kind {
        Kind::Redis => (kind, peer::redis()),
        Kind::Skerry { .. } => match std::env::var_os("SKERRY_TEST_BINARY") {
            None => (kind, PathBuf::from(env!("CARGO_BIN_EXE_skerry-server"))),
            Some(path) => {
                let path = PathBuf::from(path);
                let version = peer::version(&path).unwrap_or_else(|why| panic!("{why}"));
                let is_redis = !version.contains("Skerry")
                    && (version.contains("Redis server") || version.contains("Valkey server"));
                (if is_redis { Kind::Redis } else { kind }, path)
            }
        },
    }
}

fn fresh_dir() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("skerry-test-{}-{n}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the server");
    dir
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
