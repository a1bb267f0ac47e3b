//! The service manager that waits for the server to be ready, told as `supervised` asks.
//!
//! systemd's protocol is a datagram to the socket that `NOTIFY_SOCKET` names
//! (<https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>); upstart's is a stop of the process by itself.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use signal_hook::consts::SIGSTOP;

use crate::config::Supervised;
use crate::log;

/// Whoever is to be told.
pub enum Supervisor {
    Nobody,
    Systemd(OsString),
    Upstart,
}

impl Supervisor {
    /// The manager that `supervised` names, if it has left its mark in the environment.
    pub fn find(supervised: Supervised) -> Supervisor {
        let socket = || std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let is_upstart = std::env::var_os("UPSTART_JOB").is_some();
        match supervised {
            Supervised::No => Supervisor::Nobody,
            Supervised::Auto if is_upstart => Supervisor::Upstart,
            Supervised::Auto => socket().map_or(Supervisor::Nobody, Supervisor::Systemd),
            Supervised::Upstart if is_upstart => Supervisor::Upstart,
            Supervised::Upstart => {
                log::warning("Upstart supervision requested, but UPSTART_JOB not found!");
                Supervisor::Nobody
            }
            Supervised::Systemd => match socket() {
                Some(socket) => Supervisor::Systemd(socket),
                None => {
                    log::warning("systemd supervision requested, but NOTIFY_SOCKET not found!");
                    Supervisor::Nobody
                }
            },
        }
    }

    /// Tells the state, in lines of sd_notify.
    pub fn tell(&self, state: &str) {
        match self {
            Supervisor::Nobody => {}
            Supervisor::Upstart if state.contains("READY=1") => {
                // Upstart lets it go on.
                if let Err(error) = signal_hook::low_level::raise(SIGSTOP) {
                    log::warning(&format!("Can't stop for upstart: {error}"));
                }
            }
            Supervisor::Upstart => {}
            Supervisor::Systemd(socket) => {
                if let Err(error) = send(socket, state) {
                    log::warning(&format!("Can't notify systemd at {}: {error}", socket.display()));
                }
            }
        }
    }
}

/// One datagram; a name that begins with `@` is abstract.
fn send(socket: &OsString, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
