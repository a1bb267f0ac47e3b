//! Configuration: one table of directives, and what follows from it: reading `redis.conf` and the command
//! line, CONFIG GET, SET and REWRITE.
//!
//! ```text
//!   argv, file ──load──▶ Config ──get──▶ CONFIG GET        Config is a value: the server shares it as an
//!                          │ ▲                             Arc; `set` makes the next one, so a worker reads
//!                          │ └──set──── CONFIG SET         its own without a lock and never sees half of
//!                          └──rewrite─▶ redis.conf         a change.
//! ```
//!
//! Invariant: a directive stands in one row of `directives` and nowhere else.
//! Source: redis.conf, the CONFIG pages, and Redis 8.2.3's answers as recorded in `tests/golden`.
//! Departures: 1. nothing is applied here: the caller compares the old and the new `Config` and acts (binds,
//! resizes). 2. A value that asks for a feature that does not exist yet is refused. 3. `save` is empty by
//! default. It must never know sockets, keys or clients.
//! Cost: a linear scan of some 200 rows for each name; this is the control plane.

mod check;
mod directives;
mod load;
mod rewrite;
mod special;
mod table;
mod value;
pub(crate) mod words;

pub use directives::{Config, TABLE, Text};
pub use load::{Invocation, StartError, Startup, USAGE, invoke, version_line};
pub use rewrite::{rewrite, rewrite_file};
pub use special::{
    Bind, Dir, KeyspaceEvents, OomScoreAdjValues, OutputBufferLimit, OutputBufferLimits, Percentiles,
    ReplicaOf, SavePoint, SavePoints, ShutdownFlags, error_text,
};
pub use table::{Arity, Directive, Mutability, Secrecy, Visibility};
pub use value::{
    AclPubsubDefault, AppendFsync, ClusterEndpointType, Fault, Kind, LogLevel, MaxmemoryPolicy,
    MemoryOrPercent, OomScoreAdj, PipelineOrder, PropagationErrorBehavior, ProtectedAction, ReplDisklessLoad,
    SanitizeDumpPayload, Source, Supervised, SyslogFacility, TlsAuthClients, VsetCodeBits,
};

use std::path::PathBuf;

use crate::glob::{Case, glob_match};

/// The Redis that Skerry stands in for: clients gate features on it.
pub const REDIS_VERSION: &str = "8.2.3";

/// The rate of background work stays within these, whatever `hz` says.
const HZ_MIN: u32 = 1;
const HZ_MAX: u32 = 500;

/// A smaller backlog is useless to any replica.
const REPL_BACKLOG_SIZE_MIN: u64 = 16 << 10;

/// Where a client is, which decides what it may do under `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A Unix socket or the loopback interface.
    Local,
    Remote,
}

impl ProtectedAction {
    /// Whether a client of this origin may do it.
    pub fn allows(self, origin: Origin) -> bool {
        match self {
            ProtectedAction::Yes => true,
            ProtectedAction::Local => origin == Origin::Local,
            ProtectedAction::No => false,
        }
    }
}

/// Why CONFIG SET changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    Unknown { name: Vec<u8> },
    Refused { name: Vec<u8>, fault: Fault },
}

impl ConfigError {
    /// The error reply, without its leading dash and line end. A line break in the client's text is a blank.
    pub fn text(&self) -> Vec<u8> {
        let mut text = match self {
            ConfigError::Unknown { name } => {
                [b"ERR Unknown option or number of arguments for CONFIG SET - '" as &[u8], name, b"'"]
                    .concat()
            }
            ConfigError::Refused { name, fault } => {
                let front = b"ERR CONFIG SET failed (possibly related to argument '" as &[u8];
                [front, name, b"') - ", fault.as_bytes()].concat()
            }
        };
        for byte in &mut text {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        text
    }
}

/// The directive of this name or alias, in any case.
pub fn find(name: &[u8]) -> Option<&'static Directive> {
    TABLE.iter().find(|row| row.is_called(name))
}

/// CONFIG GET: names and values. An exact name comes back as the client wrote it; no name comes twice.
pub fn get<'a>(config: &Config, patterns: &[&'a [u8]]) -> Vec<(&'a [u8], Vec<u8>)> {
    let mut answer: Vec<(&'a [u8], Vec<u8>)> = Vec::new();
    let is_new = |answer: &[(&[u8], Vec<u8>)], name: &[u8]| {
        !answer.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    for &pattern in patterns {
        if !pattern.iter().any(|byte| b"[*?".contains(byte)) {
            if let Some(row) = find(pattern)
                && is_new(&answer, pattern)
            {
                answer.push((pattern, row.value(config)));
            }
            continue;
        }
        for row in TABLE.iter().filter(|row| row.visibility == Visibility::Listed) {
            for name in row.names().map(str::as_bytes) {
                if glob_match(pattern, name, Case::Insensitive) && is_new(&answer, name) {
                    answer.push((name, row.value(config)));
                }
            }
        }
    }
    answer
}

/// CONFIG SET of several pairs: the configuration with all of them, or the first error.
pub fn set(config: &Config, pairs: &[(&[u8], &[u8])], origin: Origin) -> Result<Config, ConfigError> {
    let mut rows: Vec<(&'static Directive, &'static str)> = Vec::new();
    for &(name, _) in pairs {
        let row = find(name).ok_or_else(|| ConfigError::Unknown { name: name.to_vec() })?;
        let refused = |fault: &'static str| ConfigError::Refused { name: name.to_vec(), fault: fault.into() };
        match row.mutability {
            Mutability::Modifiable => {}
            Mutability::Immutable => return Err(refused("can't set immutable config")),
            Mutability::Protected if config.enable_protected_configs.allows(origin) => {}
            Mutability::Protected => return Err(refused("can't set protected config")),
        }
        // A directive and its alias count as two, as in Redis: the later one wins.
        let own =
            row.names().find(|own| own.as_bytes().eq_ignore_ascii_case(name)).expect("found by this name");
        if rows.iter().any(|&(_, known)| known == own) {
            return Err(refused("duplicate parameter"));
        }
        rows.push((row, own));
    }
    let mut next = config.clone();
    for (&(row, own), &(_, value)) in rows.iter().zip(pairs) {
        let args: Vec<&[u8]> = match row.arity {
            Arity::One => vec![value],
            Arity::Many if value.is_empty() => Vec::new(),
            Arity::Many => value.split(|&byte| byte == b' ').collect(),
        };
        row.set(&mut next, &args, Source::ConfigSet)
            .map_err(|fault| ConfigError::Refused { name: own.as_bytes().to_vec(), fault })?;
    }
    next.clamp();
    Ok(next)
}

/// The directives whose values differ, for the caller to apply.
pub fn changed(old: &Config, new: &Config) -> impl Iterator<Item = &'static Directive> {
    TABLE.iter().filter(|row| row.value(old) != row.value(new))
}

impl Config {
    /// Values that are hints are brought into their range instead of being refused.
    fn clamp(&mut self) {
        self.hz = self.hz.clamp(HZ_MIN, HZ_MAX);
        self.repl_backlog_size = self.repl_backlog_size.max(REPL_BACKLOG_SIZE_MIN);
    }

    /// A path of the configuration, relative to `dir`.
    pub fn resolve(&self, path: &[u8]) -> PathBuf {
        self.dir.0.join(special::path_of(path))
    }
}

/// Names and values, but no secrets: a configuration may end up in a log.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let changed: Vec<&Directive> = changed(&Config::default(), self).collect();
        f.debug_map()
            .entries(changed.iter().map(|row| match row.secrecy {
                Secrecy::Public => (row.name, String::from_utf8_lossy(&row.value(self)).into_owned()),
                Secrecy::Secret => (row.name, "(redacted)".to_owned()),
            }))
            .finish()
    }
}
