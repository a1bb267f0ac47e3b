//! A connection to the server under test: TCP or Unix socket, opened and authenticated before the clock
//! starts.
//!
//! Must never know: workloads or statistics.

use skerry_resp::encode_command;
use skerry_resp::value::Scan;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long connecting and the handshake may take; a server that is up answers in milliseconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ServerAddress {
    /// Resolves `host`, preferring IPv4 as memtier's default does for localhost.
    pub fn resolve(host: &str, port: u16) -> io::Result<Self> {
        let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        let address = all.iter().find(|a| a.is_ipv4()).or(all.first());
        address
            .map(|a| Self::Tcp(*a))
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")))
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// `--protocol`: `redis` leaves the connection as the server opens it, the others send HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Resp2,
    Resp3,
}

/// What is said on each connection before the first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    pub protocol: Protocol,
    /// `-a`: `password` or `user:password`.
    pub credentials: Option<String>,
    pub db: u32,
}

impl Handshake {
    fn requests(&self) -> Vec<Vec<String>> {
        let mut requests = Vec::new();
        if let Some(credentials) = &self.credentials {
            let mut auth = vec!["AUTH".to_owned()];
            match credentials.split_once(':') {
                // memtier reads ":password" as the default user's.
                Some(("", password)) => auth.push(password.to_owned()),
                Some((user, password)) => auth.extend([user.to_owned(), password.to_owned()]),
                None => auth.push(credentials.clone()),
            }
            requests.push(auth);
        }
        match self.protocol {
            Protocol::Redis => {}
            Protocol::Resp2 => requests.push(vec!["HELLO".to_owned(), "2".to_owned()]),
            Protocol::Resp3 => requests.push(vec!["HELLO".to_owned(), "3".to_owned()]),
        }
        if self.db != 0 {
            requests.push(vec!["SELECT".to_owned(), self.db.to_string()]);
        }
        requests
    }
}

/// A stream that blocks: for callers that ask one question at a time.
pub trait BlockingStream: Read + Write + Send {}
impl<T: Read + Write + Send> BlockingStream for T {}

/// Opens a blocking connection and shakes hands. Replies are awaited without a limit.
pub fn open_blocking(address: &ServerAddress, handshake: &Handshake) -> io::Result<Box<dyn BlockingStream>> {
    match address {
        ServerAddress::Tcp(tcp) => {
            let stream = connect_tcp(tcp, handshake)?;
            stream.set_read_timeout(None)?;
            Ok(Box::new(stream))
        }
        ServerAddress::Unix(path) => {
            let stream = connect_unix(path, handshake)?;
            stream.set_read_timeout(None)?;
            Ok(Box::new(stream))
        }
    }
}

fn connect_tcp(address: &SocketAddr, handshake: &Handshake) -> io::Result<std::net::TcpStream> {
    let stream = std::net::TcpStream::connect_timeout(address, HANDSHAKE_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    shake_hands(&stream, handshake)?;
    Ok(stream)
}

fn connect_unix(path: &Path, handshake: &Handshake) -> io::Result<std::os::unix::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    shake_hands(&stream, handshake)?;
    Ok(stream)
}

/// A non-blocking connection, ready for requests.
#[derive(Debug)]
pub enum Connection {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Connection {
    pub fn open(address: &ServerAddress, handshake: &Handshake) -> io::Result<Self> {
        match address {
            ServerAddress::Tcp(tcp) => {
                let stream = connect_tcp(tcp, handshake)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(mio::net::TcpStream::from_std(stream)))
            }
            ServerAddress::Unix(path) => {
                let stream = connect_unix(path, handshake)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Unix(mio::net::UnixStream::from_std(stream)))
            }
        }
    }

    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }

    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    pub fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}

/// Sends each request and waits for its reply; an error reply ends the connection attempt with its text.
fn shake_hands<S>(stream: &S, handshake: &Handshake) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    for request in handshake.requests() {
        let mut bytes = Vec::new();
        encode_command(&request, &mut bytes);
        let mut stream = stream;
        stream.write_all(&bytes)?;
        bytes.clear();
        let mut scan = Scan::new();
        let reply = loop {
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server"));
            }
            bytes.extend_from_slice(&buffer[..n]);
            if let Some(reply) = scan.next(&bytes, 0).map_err(io::Error::other)? {
                break reply;
            }
        };
        if reply.is_error() {
            let text = String::from_utf8_lossy(&bytes[1..reply.end]);
            return Err(io::Error::other(format!("{}: {}", request[0], text.trim_end())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(credentials: &str) -> Vec<Vec<String>> {
        let credentials = Some(credentials.to_owned());
        Handshake { protocol: Protocol::Resp3, credentials, db: 4 }.requests()
    }

    #[test]
    fn credentials_are_password_or_user_and_password() {
        assert_eq!(words("secret"), [vec!["AUTH", "secret"], vec!["HELLO", "3"], vec!["SELECT", "4"]]);
        assert_eq!(words("me:a:b")[0], ["AUTH", "me", "a:b"]);
        assert_eq!(words(":secret")[0], ["AUTH", "secret"]);
    }

    #[test]
    fn the_default_says_nothing() {
        let quiet = Handshake { protocol: Protocol::Redis, credentials: None, db: 0 };
        assert!(quiet.requests().is_empty());
    }
}
