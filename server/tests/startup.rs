//! Starting and stopping as a service manager and a shell see them.

mod support;

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

fn server(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skerry-server"));
    command.args(args).args(["--bind", "127.0.0.1", "--save", "", "--threads", "1"]);
    command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET").env_remove("UPSTART_JOB");
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("the server runs")
}

fn terminate(child: &Child) {
    let killed = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(killed.success());
}

/// systemd's part: it hears READY=1 once clients can connect, and STOPPING=1 at SIGTERM.
fn hears_ready_and_stopping(supervised: &str, name: &str, heard: &UnixDatagram) {
    let free =
        TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().expect("its address").port();
    let port = free.to_string();
    let mut command = server(&["--port", &port, "--supervised", supervised]);
    let mut child =
        command.env("NOTIFY_SOCKET", name).stdout(Stdio::null()).spawn().expect("the server starts");
    heard.set_read_timeout(Some(WAIT)).expect("a timeout");
    let mut line = [0; 200];
    let mut next = || {
        let n = heard.recv(&mut line).expect("a datagram");
        String::from_utf8_lossy(&line[..n]).into_owned()
    };
    let ready = next();
    assert_eq!(ready, "STATUS=Ready to accept connections\nREADY=1\n");
    assert!(std::net::TcpStream::connect(("127.0.0.1", free)).is_ok(), "ready, but nobody listens");
    terminate(&child);
    assert_eq!(next(), "STOPPING=1\n");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn systemd_hears_of_start_and_stop_at_a_path() {
    let dir = std::env::temp_dir().join(format!("skerry-notify-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("notify");
    let heard = UnixDatagram::bind(&path).expect("a socket");
    hears_ready_and_stopping("systemd", path.to_str().expect("a plain path"), &heard);
    std::fs::remove_dir_all(&dir).expect("it goes");
}

#[test]
fn systemd_is_found_by_itself_at_an_abstract_name() {
    let name = format!("skerry-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let heard = UnixDatagram::bind_addr(&address).expect("a socket");
    hears_ready_and_stopping("auto", &format!("@{name}"), &heard);
}

#[test]
fn a_busy_port_is_told_once_and_as_redis_tells_it() {
    let busy = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = busy.local_addr().expect("its address").port().to_string();
    let output = run(server(&["--port", &port]));
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let log = String::from_utf8_lossy(&output.stdout);
    let line = format!(
        "# Warning: Could not create server TCP listening socket 127.0.0.1:{port}: bind: Address already in use\n"
    );
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    assert!(log.ends_with(&format!("# Failed listening on port {port} (tcp), aborting.\n")), "{log}");
}

#[test]
fn too_many_threads_are_refused_as_a_bad_directive() {
    let output = run(server(&["--port", "0", "--threads", "65"]));
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(">>> 'threads \"65\"'\nargument must be between 0 and 64 inclusive\n"), "{told}");
}
