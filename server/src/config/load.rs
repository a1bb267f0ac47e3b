//! Reading the configuration at start: the command line, the file, what it includes, and stdin.
//!
//! As redis-server: a file, then stdin (`-`), then `--name value ...` are put one behind the other as one text
//! and read line by line, so a later line wins and an error names its line.
//! Departures: 1. `include` nests to `INCLUDE_DEPTH_MAX`, so a file that includes itself is an error. 2. A line
//! that could be a module's directive is an error at once, because there are no modules. 3. `dir` does not
//! change the process's directory while reading: paths are resolved against it, the server changes once.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::special::{error_text, path_of};
use super::table::Arity;
use super::value::{Fault, Source};
use super::{Config, REDIS_VERSION, find, words};
use crate::glob::{Case, glob_match};

/// What `-h` prints.
pub const USAGE: &str = "\
Usage: skerry-server [/path/to/redis.conf] [options] [-]
       skerry-server - (read config from stdin)
       skerry-server -v or --version
       skerry-server -h or --help

Examples:
       skerry-server (run with the default configuration)
       skerry-server /etc/redis/6379.conf
       skerry-server --port 7777 --threads 4
       skerry-server /etc/myredis.conf --loglevel verbose -
";

const INCLUDE_DEPTH_MAX: usize = 16;

/// Directives that older versions of Redis had; with one argument they are skipped.
const DEPRECATED: [&str; 3] =
    ["list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands"];

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    Run(Box<Startup>),
    Version,
    Help,
}

#[derive(Debug)]
pub struct Startup {
    pub config: Config,
    /// Absolute; what CONFIG REWRITE writes to.
    pub config_file: Option<PathBuf>,
    /// What the operator should know, for the log.
    pub notes: Vec<String>,
}

/// Why the server does not start. Its text is Redis's; print it to stderr and exit with 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    Line { number: usize, line: Vec<u8>, fault: Fault },
    LogFile { fault: String },
    CannotOpen { path: PathBuf, fault: String },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEADING: &str = "*** FATAL CONFIG FILE ERROR (Redis";
        match self {
            StartError::Line { number, line, fault } => {
                writeln!(f, "\n{HEADING} {REDIS_VERSION}) ***")?;
                writeln!(f, "Reading the configuration file, at line {number}")?;
                writeln!(f, ">>> '{}'", String::from_utf8_lossy(line))?;
                write!(f, "{fault}")
            }
            StartError::LogFile { fault } => {
                write!(f, "\n{HEADING} {REDIS_VERSION}) ***\nCan't open the log file: {fault}")
            }
            StartError::CannotOpen { path, fault } => {
                write!(f, "Fatal error, can't open config file '{}': {fault}", path.display())
            }
        }
    }
}

impl std::error::Error for StartError {}

/// What `-v` prints: scripts look for `v=` and the version behind it.
pub fn version_line() -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!(
        "Skerry {own}, Redis server v={REDIS_VERSION} sha=00000000:0 malloc=mimalloc bits=64 build=skerry-{own}"
    )
}

/// Reads the arguments behind the program's name, and whatever files they name.
pub fn invoke(args: &[OsString], stdin: &mut dyn Read) -> Result<Invocation, StartError> {
    match args.first().and_then(|arg| arg.to_str()) {
        Some("-v" | "--version") => return Ok(Invocation::Version),
        Some("-h" | "--help") => return Ok(Invocation::Help),
        _ => {}
    }
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.clone().into_vec()).collect();
    let mut text = Vec::new();
    let mut options: &[Vec<u8>] = &args;
    let mut config_file = None;
    if let [file, rest @ ..] = options
        && !file.starts_with(b"-")
    {
        let path = std::path::absolute(path_of(file)).unwrap_or_else(|_| path_of(file).to_owned());
        text = read_files(path_of(file))?;
        config_file = Some(path);
        options = rest;
    }
    let (options, from_stdin) = command_line(options, config_file.is_none());
    if from_stdin {
        let read = stdin.read_to_end(&mut text);
        read.map_err(|error| StartError::CannotOpen { path: "-".into(), fault: error_text(&error) })?;
    }
    text.push(b'\n');
    text.extend(options);
    let mut config = Config::default();
    load_text(&mut config, &text, 0)?;
    check_logfile(&config)?;
    let notes = notes(&config);
    Ok(Invocation::Run(Box::new(Startup { config, config_file, notes })))
}

/// Turns `--name value ...` into lines of a configuration file; and whether `-` asks for stdin.
fn command_line(args: &[Vec<u8>], first_is_free: bool) -> (Vec<u8>, bool) {
    let mut lines: Vec<u8> = Vec::new();
    let mut from_stdin = false;
    // A name's first argument may begin with two dashes, as in `--requirepass --x`.
    let mut may_be_name = true;
    for (at, arg) in args.iter().enumerate() {
        let at_end = at + 1 == args.len();
        if arg == b"-" && ((at == 0 && first_is_free) || at_end) {
            from_stdin = true;
            continue;
        }
        if !(may_be_name && arg.starts_with(b"--")) {
            lines.extend(words::quote(arg));
            lines.push(b' ');
            may_be_name = true;
            continue;
        }
        if !lines.is_empty() {
            lines.push(b'\n');
        }
        lines.extend(&arg[2..]);
        lines.push(b' ');
        // `"--port 6380"` in one argument has its value already.
        may_be_name = words::split(arg).is_none_or(|words| words.len() != 1);
        let followed_by_name = args.get(at + 1).is_some_and(|next| next.starts_with(b"--"));
        if !may_be_name && arg.eq_ignore_ascii_case(b"--save") && (at_end || followed_by_name) {
            // Who builds the command line from an empty list of save points means no save points.
            lines.extend(b"\"\"");
            may_be_name = true;
        }
    }
    (lines, from_stdin)
}

/// Reads the lines of a file's text into `config`.
fn load_text(config: &mut Config, text: &[u8], depth: usize) -> Result<(), StartError> {
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let fail = |fault: Fault| StartError::Line { number: at + 1, line: line.to_vec(), fault };
        let argv =
            words::split(line).ok_or_else(|| fail("Unbalanced quotes in configuration line".into()))?;
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let [name, args @ ..] = argv.as_slice() else { continue };
        if name.eq_ignore_ascii_case(b"include") && args.len() == 1 {
            if depth == INCLUDE_DEPTH_MAX {
                return Err(fail("include is nested too deeply".into()));
            }
            let included = read_files(&config.resolve(args[0]))?;
            load_text(config, &included, depth + 1)?;
            continue;
        }
        load_line(config, name, args).map_err(fail)?;
    }
    config.clamp();
    Ok(())
}

fn load_line(config: &mut Config, name: &[u8], args: &[&[u8]]) -> Result<(), Fault> {
    let Some(row) = find(name) else { return load_other(name, args) };
    if row.arity == Arity::Many
        && let [joined] = args
        && !joined.is_empty()
    {
        let split = words::split(joined).ok_or("Unbalanced quotes in configuration line")?;
        let split: Vec<&[u8]> = split.iter().map(Vec::as_slice).collect();
        return row.set(config, &split, Source::File);
    }
    row.set(config, args, Source::File)
}

/// Lines that are no directive of the table.
fn load_other(name: &[u8], args: &[&[u8]]) -> Result<(), Fault> {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if DEPRECATED.into_iter().any(is) && args.len() == 1 {
        return Ok(());
    }
    if is("user") && is_default_user(args) {
        return Ok(());
    }
    Err(match args.len() {
        1.. if is("user") => "Skerry has no ACL users yet, use requirepass".into(),
        1.. if is("loadmodule") => "Skerry loads no modules".into(),
        2 if is("rename-command") => "Skerry does not rename commands yet".into(),
        1.. if is("sentinel") => "sentinel directive while not in sentinel mode".into(),
        _ => "Bad directive or wrong number of arguments".into(),
    })
}

/// The line that a Redis without users and without a password writes for its default user.
fn is_default_user(args: &[&[u8]]) -> bool {
    let words: [&[u8]; 7] = [b"default", b"on", b"nopass", b"sanitize-payload", b"~*", b"&*", b"+@all"];
    args.iter()
        .filter(|&&word| word != b"sanitize-payload")
        .eq(words.iter().filter(|&&word| word != words[3]))
}

/// The text of a file, or of every file that a pattern matches; no match is no text.
fn read_files(path: &Path) -> Result<Vec<u8>, StartError> {
    let mut text = Vec::new();
    for path in expand(path) {
        let read = std::fs::read(&path);
        text.extend(read.map_err(|error| StartError::CannotOpen { path, fault: error_text(&error) })?);
    }
    Ok(text)
}

/// The paths that a pattern matches, in order of their names. A path without wildcards is itself.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let is_pattern = |part: &[u8]| part.iter().any(|byte| b"*?[".contains(byte));
    if !is_pattern(pattern.as_os_str().as_encoded_bytes()) {
        return vec![pattern.to_owned()];
    }
    let mut paths = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        if !is_pattern(part.as_encoded_bytes()) {
            paths.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        paths = paths.iter().flat_map(|path| matches_in(path, part.as_encoded_bytes())).collect();
    }
    paths.retain(|path| path.exists());
    paths
}

/// The entries of a directory that match, sorted; like a shell, hidden ones only if the pattern says so.
fn matches_in(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(entries) = std::fs::read_dir(listed) else { return Vec::new() };
    let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.retain(|name| {
        let name = name.as_encoded_bytes();
        (!name.starts_with(b".") || pattern.starts_with(b".")) && glob_match(pattern, name, Case::Sensitive)
    });
    names.sort();
    names.iter().map(|name| directory.join(name)).collect()
}

/// A log file that cannot be written is found out now, not at the first line to log.
fn check_logfile(config: &Config) -> Result<(), StartError> {
    if config.logfile.is_empty() {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(config.resolve(&config.logfile));
    opened.map(drop).map_err(|error| StartError::LogFile { fault: error_text(&error) })
}

fn notes(config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    if config.io_threads != 1 {
        notes.push("io-threads is ignored: every worker reads and writes itself, see threads".to_owned());
    }
    notes
}
