//! Finds the real Redis 8.2.3 that expectations are recorded from and answers are compared with.
//!
//! A missing peer fails the test that needs it, with the way to get it; nothing is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub const REDIS_VERSION: &str = "8.2.3";

/// Path of a `redis-server` of the version we follow: `$SKERRY_REDIS`, else what `scripts/peers` prints.
pub fn redis() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find().unwrap_or_else(|why| panic!("{why}\n{HOW}"))).clone()
}

const HOW: &str = "This test compares with a real Redis 8.2.3: run `scripts/peers` once (it installs one into \
                   ./peers and prints its path), or set SKERRY_REDIS to the path of a redis-server 8.2.3.";

fn find() -> Result<PathBuf, String> {
    let path = match std::env::var_os("SKERRY_REDIS") {
        Some(path) => PathBuf::from(path),
        None => from_script()?,
    };
    let version = version(&path)?;
    if version.contains(&format!("Redis server v={REDIS_VERSION}")) {
        Ok(path)
    } else {
        Err(format!("{} is not Redis {REDIS_VERSION}: {version}", path.display()))
    }
}

fn from_script() -> Result<PathBuf, String> {
    let script = repository().join("scripts/peers");
    let out = Command::new(&script).output().map_err(|e| format!("cannot run {}: {e}", script.display()))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let named = |word: &&str| word.ends_with("/redis-server");
    let found = text.split(|c: char| c.is_whitespace() || c == '=').find(named).map(PathBuf::from);
    found.ok_or_else(|| {
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        format!("{} names no redis-server:\n{text}{errors}", script.display())
    })
}

/// What `--version` prints.
pub fn version(binary: &Path) -> Result<String, String> {
    let out = Command::new(binary).arg("--version").output();
    let out = out.map_err(|e| format!("cannot run {}: {e}", binary.display()))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository")
}
