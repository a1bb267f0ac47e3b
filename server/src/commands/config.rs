//! CONFIG and its subcommands: the wire side of `crate::config`.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::net::TcpListener;

use super::reply_help;
use crate::args::Args;
use crate::client::Client;
use crate::command::{Command, Conn, Ctx, Flags, Handler, Merge, row};
use crate::config::{self, Config, ConfigError, Origin};
use crate::error::{CommandError, Outcome};
use crate::listener;
use crate::log;
use crate::process;
use crate::server::Server;
use crate::shard::Stats;

#[rustfmt::skip]
pub const SUBCOMMANDS: &[Command] = &[
    row("config|get", -3, Handler::Conn(config_get), "Directives whose names fit the patterns, with their values").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)),
    row("config|help", 2, Handler::Conn(config_help), "The subcommands of CONFIG").flags(Flags::LOADING.with(Flags::STALE)),
    row("config|resetstat", 2, Handler::Split(config_resetstat, Merge::AllSucceeded), "Sets the counters of INFO to zero").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("config|rewrite", 2, Handler::Conn(config_rewrite), "Writes the directives of now into the configuration file").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("config|set", -4, Handler::Conn(config_set), "Changes directives, all or none").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

/// CONFIG GET parameter [parameter ...]
fn config_get(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let patterns: Vec<&[u8]> = args.from(2).collect();
    // The server's and not this turn's: a pipeline sees its own CONFIG SET.
    let found = config::get(&conn.server.config(), &patterns);
    conn.reply.map(found.len());
    for (name, value) in found {
        conn.reply.bulk(name);
        conn.reply.bulk(&value);
    }
    Ok(())
}

/// CONFIG SET parameter value [parameter value ...]
fn config_set(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> =
        (2..args.len()).step_by(2).map(|at| (args.get(at), args.get(at + 1))).collect();
    let origin = origin_of(conn.client);
    let old = conn.server.config();
    let mut listeners = None;
    let server = conn.server;
    let change = |config: &Config| {
        let next = config::set(config, &pairs, origin)?;
        if next.maxclients > config.maxclients {
            process::make_room_for_clients(next.maxclients, server.n_shards).map_err(|n| {
                refused(
                    "maxclients",
                    format!("The operating system is not able to handle the specified number of clients, try with {n}"),
                )
            })?;
        }
        listeners = listen(server, config, &next)?;
        Ok(next)
    };
    let new =
        conn.server.change_config(change).map_err(|error: ConfigError| CommandError::Bytes(error.text()))?;
    if let Some(listeners) = listeners {
        let shared = listeners.iter().map(|listener| listener.as_fd().try_clone_to_owned());
        // Without a second handle a later `bind` fails if its port is still in use.
        *lock(&conn.server.listening) = shared.collect::<Result<_, _>>().unwrap_or_default();
        *lock(&conn.server.new_listeners) = Some(listeners);
    }
    apply(&old, &new);
    conn.reply.ok();
    Ok(())
}

/// The sockets of another port or of other addresses.
fn listen(server: &Server, old: &Config, new: &Config) -> Result<Option<Vec<TcpListener>>, ConfigError> {
    let (name, bound) = if old.bind.0 != new.bind.0 {
        ("bind", listener::rebind(&lock(&server.listening), new))
    } else if old.port != new.port {
        ("port", listener::bind_port(new))
    } else {
        return Ok(None);
    };
    bound.map(Some).map_err(|error| {
        log::warning(&error);
        refused(
            name,
            match name {
                "bind" => "Failed to bind to specified addresses.".into(),
                _ => "Unable to listen on this port. Check server logs.".into(),
            },
        )
    })
}

fn refused(name: &str, fault: String) -> ConfigError {
    ConfigError::Refused { name: name.into(), fault: fault.into() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acts on what does not take effect by being read.
fn apply(old: &Config, new: &Config) {
    let used = crate::alloc::used_memory() as u64;
    if old.maxmemory != new.maxmemory && new.maxmemory > 0 && new.maxmemory < used {
        log::warning(&format!(
            "WARNING: the new maxmemory value set via CONFIG SET ({}) is smaller than the current memory usage ({used}). This will \
             result in key eviction and/or the inability to accept new write commands depending on the maxmemory-policy.",
            new.maxmemory
        ));
    }
    if old.loglevel != new.loglevel {
        log::set_level(new.loglevel.into());
    }
    if old.dir.0 != new.dir.0
        && let Err(error) = std::env::set_current_dir(&new.dir.0)
    {
        // The directive's check has entered it a moment ago.
        log::warning(&format!("Can't chdir to '{}': {error}", new.dir.0.display()));
    }
}

/// Where a client is, for what `local` allows.
pub fn origin_of(client: &Client) -> Origin {
    let ip = client.address.parse::<std::net::SocketAddr>().map(|address| address.ip().to_canonical());
    match ip {
        _ if client.is_unix => Origin::Local,
        Ok(ip) if ip.is_loopback() => Origin::Local,
        _ => Origin::Remote,
    }
}

/// CONFIG RESETSTAT: every worker resets its own counters, so each keeps its one writer.
fn config_resetstat(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Outcome {
    let dirty = ctx.shard.stats.dirty;
    ctx.shard.stats = Stats { dirty, ..Stats::default() };
    ctx.server.reset_stats(ctx.shard.id);
    ctx.reply.ok();
    Ok(())
}

/// CONFIG REWRITE
fn config_rewrite(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let Some(path) = &conn.server.config_file else {
        return Err(CommandError::text("ERR The server is running without a config file"));
    };
    match config::rewrite_file(&conn.server.config(), Path::new(path)) {
        Ok(()) => {
            log::notice("CONFIG REWRITE executed with success.");
            conn.reply.ok();
            Ok(())
        }
        Err(error) => {
            log::warning(&format!("CONFIG REWRITE failed: {error}"));
            Err(CommandError::format(format!("ERR Rewriting config file: {error}")))
        }
    }
}

/// CONFIG HELP
fn config_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
    "HELP",
    "    Print this help.",
];
