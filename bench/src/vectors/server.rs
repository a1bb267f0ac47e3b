//! One server under test: where it is, its name in tables, its processes.

use super::flags::ServerFlags;
use super::wrong;
use crate::connection::{Handshake, Protocol, ServerAddress};
use crate::memory;
use crate::question::Questioner;
use skerry_resp::value::Value;
use std::io;

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) address: ServerAddress,
    /// Empty: its CPU and memory are not measured.
    pub(super) pids: Vec<u32>,
    handshake: Handshake,
}

impl Server {
    /// The first server and its peers, all of them reachable.
    pub(super) fn all(flags: &ServerFlags) -> io::Result<Vec<Self>> {
        let handshake =
            Handshake { protocol: Protocol::Redis, credentials: flags.authenticate.clone(), db: 0 };
        let address = match &flags.unix_socket {
            Some(path) => ServerAddress::Unix(path.clone()),
            None => ServerAddress::resolve(&flags.server, flags.port)?,
        };
        let mut servers =
            vec![Self::reached(flags.name.clone(), address, flags.server_pid.clone(), &handshake)?];
        for text in &flags.peer {
            let peer = Peer::parse(text).ok_or_else(|| {
                wrong(format!("--peer {text}: must be expressed as [NAME=]HOST:PORT[:PID]"))
            })?;
            let address = ServerAddress::resolve(peer.host, peer.port)?;
            servers.push(Self::reached(
                peer.name.map(str::to_owned),
                address,
                peer.pid.into_iter().collect(),
                &handshake,
            )?);
        }
        distinguish(&mut servers);
        Ok(servers)
    }

    fn reached(
        name: Option<String>,
        address: ServerAddress,
        pids: Vec<u32>,
        handshake: &Handshake,
    ) -> io::Result<Self> {
        let mut server = Self { name: String::new(), address, pids, handshake: handshake.clone() };
        server.name = match name {
            Some(name) => name,
            None => name_of_info(&server.info("server")?),
        };
        Ok(server)
    }

    pub(super) fn connect(&self) -> io::Result<Questioner> {
        Questioner::connect(&self.address, &self.handshake)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.address)))
    }

    /// One section of INFO; empty if the server has no INFO.
    pub(super) fn info(&self, section: &str) -> io::Result<String> {
        Ok(match self.connect()?.ask(&["INFO", section]) {
            Ok(Value::Bulk(text) | Value::Verbatim { text, .. }) => {
                String::from_utf8_lossy(&text).into_owned()
            }
            _ => String::new(),
        })
    }

    /// Whether a VADD was seen before: then the memory of an empty server is not known any more.
    pub(super) fn has_seen_vectors(&self) -> io::Result<bool> {
        let info = self.info("commandstats")?.to_lowercase();
        Ok(info.lines().any(|line| line.starts_with("cmdstat_vadd:")))
    }

    /// Resident memory; `None` without process ids.
    pub(super) fn rss_bytes(&self) -> io::Result<Option<u64>> {
        if self.pids.is_empty() { Ok(None) } else { memory::rss_bytes(&self.pids).map(Some) }
    }

    /// What MEMORY USAGE says of `key`; `None` if it says nothing.
    pub(super) fn memory_usage_bytes(&self, key: &str) -> io::Result<Option<u64>> {
        match self.connect()?.ask(&["MEMORY", "USAGE", key, "SAMPLES", "0"]) {
            Ok(Value::Integer(n)) => Ok(u64::try_from(n).ok()),
            _ => Ok(None),
        }
    }
}

/// `[NAME=]HOST:PORT[:PID]`.
#[derive(Debug, PartialEq, Eq)]
struct Peer<'a> {
    name: Option<&'a str>,
    host: &'a str,
    port: u16,
    pid: Option<u32>,
}

impl<'a> Peer<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (Some(name), rest),
            None => (None, text),
        };
        let mut parts = rest.split(':');
        let (host, port) = (parts.next()?, parts.next()?.parse().ok()?);
        let pid = match parts.next() {
            Some(pid) => Some(pid.parse().ok()?),
            None => None,
        };
        if parts.next().is_some() || host.is_empty() {
            return None;
        }
        Some(Self { name, host, port, pid })
    }
}

/// "Skerry 0.1.0", "Valkey 9.1.2", "Redis 8.2.3": the most particular version wins.
fn name_of_info(info: &str) -> String {
    let field = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name));
    [("Skerry", "skerry_version:"), ("Valkey", "valkey_version:"), ("Redis", "redis_version:")]
        .into_iter()
        .find_map(|(name, key)| field(key).map(|version| format!("{name} {version}")))
        .unwrap_or_else(|| "server".to_owned())
}

/// Equal names get the address behind them.
fn distinguish(servers: &mut [Server]) {
    for index in 0..servers.len() {
        let name = servers[index].name.clone();
        if servers.iter().filter(|s| s.name == name).count() > 1 {
            for server in servers.iter_mut().filter(|s| s.name == name) {
                server.name = format!("{name} at {}", server.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers() {
        let peer = |text| Peer::parse(text).map(|p| (p.name, p.host, p.port, p.pid));
        assert_eq!(peer("localhost:6400"), Some((None, "localhost", 6400, None)));
        assert_eq!(peer("old=10.0.0.1:6400:99"), Some((Some("old"), "10.0.0.1", 6400, Some(99))));
        for bad in ["localhost", ":6400", "localhost:x", "localhost:1:x", "localhost:1:2:3", ""] {
            assert_eq!(peer(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_most_particular_version_is_the_name() {
        assert_eq!(name_of_info("redis_version:8.2.3\r\nskerry_version:0.1.0\r\n"), "Skerry 0.1.0");
        assert_eq!(name_of_info("# Server\r\nredis_version:8.2.3\r\n"), "Redis 8.2.3");
        assert_eq!(name_of_info(""), "server");
    }
}
