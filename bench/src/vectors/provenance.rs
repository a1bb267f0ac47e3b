//! Where and when figures came to be: without it they cannot be compared.

use super::server::Server;
use serde_json::{Value as Json, json};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Machine, commit, seed, servers and the command line.
pub(super) fn collect(args: &[String], servers: &[Server], data: &str, seed: u64) -> io::Result<Json> {
    let mut asked = Vec::new();
    for server in servers {
        let info = server.info("server")?;
        let field =
            |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)).map(str::to_owned);
        asked.push(json!({
            "name": server.name,
            "address": server.address.to_string(),
            "redis_version": field("redis_version:"),
            "build": field("redis_git_sha1:"),
        }));
    }
    Ok(json!({
        "machine": machine(),
        "commit": commit(),
        "seed": seed,
        "data": data,
        "unix_time_s": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        "arguments": args,
        "servers": asked,
    }))
}

/// "AMD EPYC, 2 cores, Linux 6.1".
pub(super) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{}, {n_cores} cores, Linux {}",
        model.map_or("unknown processor", |(_, model)| model.trim()),
        kernel.trim()
    )
}

/// The commit checked out around this program or, if it is not in a repository, around where it runs; "-dirty" if
/// files differ.
pub(super) fn commit() -> Option<String> {
    let program = std::env::current_exe().ok();
    let directories = [program.as_deref().and_then(Path::parent), Some(Path::new("."))];
    directories.into_iter().flatten().find_map(described)
}

fn described(directory: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(directory).args(["describe", "--always", "--dirty"]);
    let output = git.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
