//! A skerry-server process of a test's own, killed when the test ends.

use skerry_bench::connection::{Handshake, Protocol, ServerAddress};
use skerry_bench::question::Questioner;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct SkerryServer {
    child: Child,
    pub(crate) port: u16,
}

impl SkerryServer {
    pub(crate) fn start() -> Self {
        let binary = binary();
        // Another process may take a free port before the server binds it: then try another.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
            let child = Command::new(&binary)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--threads", "1"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|e| panic!("{}: {e}", binary.display()));
            let mut server = Self { child, port };
            if server.answers() {
                return server;
            }
        }
        panic!("{} does not answer", binary.display());
    }

    fn answers(&mut self) -> bool {
        let address = ServerAddress::resolve("127.0.0.1", self.port).expect("loopback");
        let handshake = Handshake { protocol: Protocol::Redis, credentials: None, db: 0 };
        let end = Instant::now() + START_TIMEOUT;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            if Questioner::connect(&address, &handshake).is_ok_and(|mut q| q.ask(&["PING"]).is_ok()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for SkerryServer {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to tell then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server built beside this program; cargo knows only a package's own binaries, so it is built here if a test
/// of this package alone did not.
fn binary() -> PathBuf {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_skerry-bench"));
    let server = bench.with_file_name("skerry-server");
    if !server.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "skerry-server"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if bench.parent().is_some_and(|profile| profile.ends_with("release")) {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success(), "skerry-server cannot be built");
    }
    server
}
