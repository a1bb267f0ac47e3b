//! Listening sockets: TCP and Unix, with Redis's socket options; accepts in batches and applies maxclients and protected mode.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream, UnixListener};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::config::Config;
use crate::server::Server;
use crate::worker::{Arrival, Stream};

/// Connections accepted at a time; the rest come with the next turn.
const ACCEPTS_PER_TURN: usize = 1000;

const PROTECTED: &str = "-DENIED Skerry is running in protected mode because protected mode is enabled and no password is set for \
the default user. In this mode connections are only accepted from the loopback interface. If you want to connect from external \
computers, you may adopt one of the following solutions: 1) Disable protected mode by sending the command 'CONFIG SET protected-mode \
no' from the loopback interface. 2) Set 'protected-mode no' in the configuration file and restart. 3) Start the server with \
'--protected-mode no'. 4) Set a password for the default user (requirepass). NOTE: You only need to do one of the above things.\r\n";
pub(crate) const TOO_MANY: &str = "-ERR max number of clients reached\r\n";

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What the last accept has left at a socket. An edge-triggered poll tells of a connection once: what is left is asked for unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// More than one turn takes.
    More,
    /// Connections for which there are no open files at present.
    Refused,
}

/// All listening sockets of the server.
pub struct Listeners {
    listeners: Vec<Listener>,
    unix_path: Option<String>,
}

impl Listeners {
    /// Binds every configured address.
    pub fn bind(config: &Config) -> Result<Self, String> {
        let mut listeners: Vec<Listener> = bind_port(config)?.into_iter().map(Listener::Tcp).collect();
        let mut unix_path = None;
        if !config.unixsocket.is_empty() {
            listeners.push(Listener::Unix(bind_unix(config).map_err(|error| {
                format!(
                    "Failed opening Unix socket: bind: {}: {error}",
                    String::from_utf8_lossy(&config.unixsocket)
                )
            })?));
            unix_path = Some(String::from_utf8_lossy(&config.unixsocket).into_owned());
        }
        if listeners.is_empty() {
            return Err("Configured to not listen anywhere, exiting.".to_owned());
        }
        Ok(Self { listeners, unix_path })
    }

    /// Listens on other TCP sockets from here on (CONFIG SET port). What was accepted stays.
    pub fn replace_tcp(&mut self, fresh: Vec<TcpListener>, registry: &Registry, first: usize) {
        let old = std::mem::replace(&mut self.listeners, fresh.into_iter().map(Listener::Tcp).collect());
        for listener in old {
            // A dropped socket leaves the poll by itself; the Unix one stays and is registered again below.
            if let Listener::Unix(mut listener) = listener {
                registry.deregister(&mut listener).expect("it was registered");
                self.listeners.push(Listener::Unix(listener));
            }
        }
        self.register(registry, first);
    }

    /// The TCP sockets once more.
    pub fn share_tcp(&self) -> std::io::Result<Vec<OwnedFd>> {
        let tcp = self.listeners.iter().filter_map(|listener| match listener {
            Listener::Tcp(listener) => Some(listener.as_fd().try_clone_to_owned()),
            Listener::Unix(_) => None,
        });
        tcp.collect()
    }

    pub fn register(&mut self, registry: &Registry, first: usize) {
        for (at, listener) in self.listeners.iter_mut().enumerate() {
            let token = Token(first + at);
            let registered = match listener {
                Listener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
                Listener::Unix(listener) => registry.register(listener, token, Interest::READABLE),
            };
            registered.expect("a fresh socket can be polled");
        }
    }

    pub fn n_sockets(&self) -> usize {
        self.listeners.len()
    }

    /// Accepts what waits at listener `at`.
    pub fn accept(&mut self, at: usize, config: &Config, server: &Server) -> (Vec<Arrival>, Left) {
        let mut arrivals = Vec::new();
        let Some(listener) = self.listeners.get(at) else { return (arrivals, Left::Nothing) };
        while arrivals.len() < ACCEPTS_PER_TURN {
            let accepted = match listener {
                Listener::Tcp(listener) => {
                    listener.accept().map(|(stream, peer)| tcp_arrival(stream, peer, config))
                }
                Listener::Unix(listener) => listener.accept().map(|(stream, _)| Arrival {
                    stream: Stream::Unix(stream),
                    address: format!("{}:0", String::from_utf8_lossy(&config.unixsocket)),
                    local_address: format!("{}:0", String::from_utf8_lossy(&config.unixsocket)),
                    is_refused: None,
                }),
            };
            match accepted {
                Ok(mut arrival) => {
                    server.connections_received.fetch_add(1, Ordering::Relaxed);
                    let n = server.n_clients.fetch_add(1, Ordering::Relaxed) + 1;
                    if n > u64::from(config.maxclients) {
                        server.connections_rejected.fetch_add(1, Ordering::Relaxed);
                        arrival.is_refused = Some(TOO_MANY);
                    }
                    arrivals.push(arrival);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (arrivals, Left::Nothing),
                // Shut down, for another one is bound: that comes with the next tick.
                Err(error) if error.kind() == ErrorKind::InvalidInput => return (arrivals, Left::Nothing),
                // The connection was reset before it was accepted, or the call was interrupted: the next one, please.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    crate::log::warning(&format!("Accepting client connection: {error}"));
                    return (arrivals, Left::Refused);
                }
            }
        }
        (arrivals, Left::More)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        if let Some(path) = &self.unix_path {
            // Gone already: nothing to do.
            let _ = fs::remove_file(path);
        }
    }
}

/// Sockets for other addresses. The port may be the same, so the old sockets stop listening first; if the new ones cannot be bound,
/// they listen again. Connections that nobody has accepted yet are lost, as in Redis.
pub fn rebind(old: &[OwnedFd], config: &Config) -> Result<Vec<TcpListener>, String> {
    for socket in old {
        // A socket that does not listen any more is as good.
        let _ = SockRef::from(socket).shutdown(std::net::Shutdown::Both);
    }
    bind_port(config).inspect_err(|_| {
        for socket in old {
            if let Err(error) = SockRef::from(socket).listen(config.tcp_backlog as i32) {
                crate::log::warning(&format!("A socket cannot listen again: {error}"));
            }
        }
    })
}

/// TCP sockets for every configured address; none if the port is 0. An address written with a leading `-` may be missing.
pub fn bind_port(config: &Config) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    if config.port == 0 || config.bind.0.is_empty() {
        return Ok(listeners);
    }
    for address in &config.bind.0 {
        let address = String::from_utf8_lossy(address);
        let (name, is_optional) = match address.strip_prefix('-') {
            Some(name) => (name, true),
            None => (&*address, false),
        };
        match bind_tcp(name, config.port, config.tcp_backlog as i32) {
            Ok(listener) => listeners.push(listener),
            Err(error) if is_optional && error.kind() != ErrorKind::AddrInUse => {}
            Err(error) => {
                let port = config.port;
                let why = crate::config::error_text(&error);
                crate::log::warning(&format!(
                    "Warning: Could not create server TCP listening socket {name}:{port}: bind: {why}"
                ));
                return Err(format!("Failed listening on port {port} (tcp), aborting."));
            }
        }
    }
    if listeners.is_empty() {
        return Err(format!("Failed listening on port {} (tcp), aborting.", config.port));
    }
    Ok(listeners)
}

fn bind_tcp(name: &str, port: u16, backlog: i32) -> std::io::Result<TcpListener> {
    let ip: IpAddr = match name {
        "*" => IpAddr::from([0, 0, 0, 0]),
        "::*" => IpAddr::from([0u16; 8]),
        name => name.parse().or_else(|_| resolve(name))?,
    };
    let socket =
        Socket::new(Domain::for_address(SocketAddr::new(ip, port)), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if ip.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(ip, port).into())?;
    socket.listen(backlog)?;
    Ok(TcpListener::from_std(socket.into()))
}

fn resolve(name: &str) -> std::io::Result<IpAddr> {
    use std::net::ToSocketAddrs;
    (name, 0u16)
        .to_socket_addrs()?
        .next()
        .map(|address| address.ip())
        .ok_or_else(|| std::io::Error::new(ErrorKind::AddrNotAvailable, "the name has no address"))
}

fn bind_unix(config: &Config) -> std::io::Result<UnixListener> {
    // A socket left by an earlier run.
    let path = String::from_utf8_lossy(&config.unixsocket).into_owned();
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    if config.unixsocketperm != 0 {
        fs::set_permissions(&path, fs::Permissions::from_mode(config.unixsocketperm))?;
    }
    Ok(listener)
}

/// A TCP connection on its way to its worker.
pub(crate) fn tcp_arrival(stream: TcpStream, peer: SocketAddr, config: &Config) -> Arrival {
    let socket = SockRef::from(&stream);
    // Neither failing is a reason to refuse the client.
    let _ = socket.set_tcp_nodelay(true);
    if config.tcp_keepalive > 0 {
        let idle = Duration::from_secs(u64::from(config.tcp_keepalive));
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle / 3).with_retries(3);
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
    let is_loopback = peer.ip().is_loopback()
        || matches!(peer.ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()));
    let is_refused = config.protected_mode && config.requirepass.is_empty() && !is_loopback;
    let local_address = stream.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
    Arrival {
        address: peer.to_string(),
        local_address,
        stream: Stream::Tcp(stream),
        is_refused: is_refused.then_some(PROTECTED),
    }
}
