//! Configuration against what Redis 8.2.3 answered, recorded in `tests/golden`: names, defaults, error texts,
//! refusals to start; and what recordings cannot show: rewriting, includes, all or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use skerry_server::config::{
    self, Config, Invocation, Mutability, Origin, ProtectedAction, StartError, Startup, TABLE, Visibility,
};

// ---- Recordings -------------------------------------------------------------------------------------------

/// Defaults that differ from Redis's, and why.
const OTHER_DEFAULTS: &[(&str, &str, &str)] = &[
    ("save", "", "there is no persistence yet, and an empty save says so"),
    ("dir", "", "the recording leaves out the directory the server ran in"),
];

/// Skerry's own directives.
const OWN: [&str; 13] = [
    "threads",
    "pipeline-order",
    "turn-trace",
    "vset-layer0-degree",
    "vset-code-bits",
    "stream-idmp-duration",
    "stream-idmp-maxsize",
    "commandlog-execution-slower-than",
    "commandlog-slow-execution-max-len",
    "commandlog-request-larger-than",
    "commandlog-large-request-max-len",
    "commandlog-reply-larger-than",
    "commandlog-large-reply-max-len",
];

/// 2^64-1 wraps to -1 in Redis, which it then takes for 1%; to Skerry it is out of range.
const WRAPPED: [&[u8]; 2] = [b"maxmemory-clients", b"18446744073709551615"];

/// CONFIG SET that Redis takes and Skerry refuses, because the feature does not exist yet.
const REFUSED: [&str; 4] = ["activedefrag", "min-replicas-to-write", "min-slaves-to-write", "oom-score-adj"];

/// Undoes the recordings' escapes: `\t \n \r \\ \xHH`.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let [code, tail @ ..] = rest else { panic!("{text} ends in an escape") };
        rest = tail;
        out.push(match code {
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'\\' => b'\\',
            b'x' => {
                let hex = str::from_utf8(&rest[..2]).unwrap();
                rest = &rest[2..];
                u8::from_str_radix(hex, 16).unwrap()
            }
            other => panic!("unknown escape {other} in {text}"),
        });
    }
    out
}

fn rows(recording: &str) -> Vec<Vec<Vec<u8>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(recording);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').map(unescape).collect()).collect()
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn value(config: &Config, name: &[u8]) -> Option<Vec<u8>> {
    config::get(config, &[name]).into_iter().next().map(|(_, value)| value)
}

#[test]
fn every_directive_of_redis_has_its_default() {
    let recorded: BTreeMap<Vec<u8>, Vec<u8>> =
        rows("config-get-8.2.3.tsv").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    assert!(recorded.len() > 200, "the recording is whole");
    let config = Config::default();
    let mut wrong = Vec::new();
    for (name, expected) in &recorded {
        let other = OTHER_DEFAULTS.iter().find(|(other, ..)| other.as_bytes() == name);
        let expected = other.map_or(expected.as_slice(), |(_, value, _)| value.as_bytes());
        let found = value(&config, name);
        if name != b"dir" && found.as_deref() != Some(expected) {
            wrong.push(format!("{}: {:?}, not {}", show(name), found.as_deref().map(show), show(expected)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn config_get_star_lists_what_redis_lists() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/config-get-8.2.3.tsv");
    let text = std::fs::read_to_string(path).unwrap();
    let listed = text.lines().skip(1).take_while(|line| *line != "# hidden");
    let redis: BTreeSet<&str> = listed.map(|line| line.split('\t').next().unwrap()).collect();
    let config = Config::default();
    let answer = config::get(&config, &[b"*"]);
    let ours: BTreeSet<&str> = answer.iter().map(|(name, _)| str::from_utf8(name).unwrap()).collect();
    assert_eq!(answer.len(), ours.len(), "no name comes twice");
    let surplus: BTreeSet<&str> = ours.difference(&redis).copied().collect();
    assert_eq!(surplus, BTreeSet::from(OWN));
    assert_eq!(redis.difference(&ours).count(), 0, "{:?}", redis.difference(&ours));
}

#[test]
fn config_set_answers_as_redis() {
    let mut wrong = Vec::new();
    let recorded = rows("config-set-8.2.3.tsv");
    assert!(recorded.len() > 1500, "the recording is whole");
    let config = Config { enable_protected_configs: ProtectedAction::Yes, ..Config::default() };
    for row in &recorded {
        let [args @ .., reply, after] = row.as_slice() else { panic!("short row {row:?}") };
        let pairs: Vec<(&[u8], &[u8])> =
            args.as_chunks::<2>().0.iter().map(|[name, value]| (name.as_slice(), value.as_slice())).collect();
        let name = str::from_utf8(&args[0]).unwrap();
        let result = config::set(&config, &pairs, Origin::Remote);
        let found = match &result {
            Ok(_) => b"+OK".to_vec(),
            Err(error) => [b"-", error.text().as_slice()].concat(),
        };
        // The two policies of Redis 8.6 are offered as well.
        let found = match found.strip_suffix(b", volatile-lrm, allkeys-lrm") {
            Some(of_8_2) if name == "maxmemory-policy" => of_8_2.to_vec(),
            _ => found,
        };
        let refused = found != b"+OK" && reply == b"+OK" && (REFUSED.contains(&name) || args == WRAPPED);
        if !refused && found != *reply {
            wrong.push(format!("{}: {}, not {}", show(&args.join(&b' ')), show(&found), show(reply)));
        } else if let Ok(next) = result
            && value(&next, &args[0]).as_ref() != Some(after)
        {
            let found = value(&next, &args[0]).unwrap_or_default();
            wrong.push(format!("{} leaves {}, not {}", show(&args.join(&b' ')), show(&found), show(after)));
        }
    }
    let wrong: Vec<String> = wrong.into_iter().map(|line| line.chars().take(400).collect()).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), recorded.len());
}

/// Starts that Redis goes on with and Skerry refuses with words of its own: the feature does not exist yet, or
/// never will (sentinel).
fn is_other_start(error: &StartError) -> bool {
    match error {
        StartError::Line { fault, .. } => fault.starts_with("Skerry ") || fault.starts_with("sentinel "),
        StartError::LogFile { .. } | StartError::CannotOpen { .. } => false,
    }
}

#[test]
fn refuses_to_start_with_the_words_of_redis() {
    let mut wrong = Vec::new();
    let mut n_compared = 0;
    let directory = Scratch::new();
    for row in rows("config-start-8.2.3.tsv") {
        let [args @ .., stderr] = row.as_slice() else { panic!("short row {row:?}") };
        let args: Vec<Vec<u8>> = match args {
            [file] if file.starts_with(b"F:") => {
                vec![directory.file("t.conf", &file[2..]).into_os_string().into_encoded_bytes()]
            }
            args => args.to_vec(),
        };
        let error = match start(&args, b"") {
            Err(error) => error,
            Ok(_) => panic!("{args:?} starts"),
        };
        if stderr.is_empty() {
            assert!(matches!(error, StartError::CannotOpen { .. }) || is_no_line_of_redis(&args), "{error}");
            continue;
        }
        let found = format!("{error}\n").into_bytes();
        if found != *stderr && !is_other_start(&error) {
            wrong.push(format!("{}: {}, not {}", show(&args.join(&b' ')), show(&found), show(stderr)));
        }
        n_compared += usize::from(found == *stderr);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(n_compared > 150, "only {n_compared} compared");
}

/// Redis reports these in its log, once it has read everything: ACL users, and what may be a module's directive.
fn is_no_line_of_redis(args: &[Vec<u8>]) -> bool {
    args[0] == b"--user" || args[0] == b"--include"
}

// ---- Without recordings -----------------------------------------------------------------------------------

/// A directory of its own that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("skerry-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    fn file(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(args: &[Vec<u8>], stdin: &[u8]) -> Result<Startup, StartError> {
    use std::os::unix::ffi::OsStringExt;
    let args: Vec<OsString> = args.iter().map(|arg| OsString::from_vec(arg.clone())).collect();
    match config::invoke(&args, &mut &*stdin)? {
        Invocation::Run(startup) => Ok(*startup),
        other => panic!("{args:?} gives {other:?}"),
    }
}

fn started(args: &[&str]) -> Startup {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    start(&args, b"").unwrap_or_else(|error| panic!("{error}"))
}

fn fault_of(args: &[&str]) -> String {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    match start(&args, b"").expect_err("refused") {
        StartError::Line { fault, .. } => fault.into_owned(),
        other => other.to_string(),
    }
}

fn set(config: &Config, pairs: &[(&str, &str)]) -> Result<Config, String> {
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
    config::set(config, &pairs, Origin::Remote).map_err(|error| String::from_utf8(error.text()).unwrap())
}

#[test]
fn the_command_line_is_read_as_redis_server_reads_it() {
    let none: Vec<Vec<u8>> = Vec::new();
    assert_eq!(start(&none, b"").unwrap().config, Config::default());
    assert_eq!(started(&["--port", "6380"]).config.port, 6380);
    assert_eq!(started(&["--port 6380", "--timeout", "5"]).config.timeout, 5);
    let bind = started(&["--bind", "127.0.0.1", "::1", "--port", "1"]).config.bind;
    assert_eq!(bind.0, [b"127.0.0.1".to_vec(), b"::1".to_vec()]);
    assert!(started(&["--bind", ""]).config.bind.0.is_empty());
    assert_eq!(started(&["--save", "", "--port", "7"]).config.port, 7);
    assert_eq!(started(&["--save", "--port", "7"]).config.port, 7);
    assert_eq!(started(&["--requirepass", "--secret", "--port", "7"]).config.requirepass, b"--secret");
    assert_eq!(started(&["--requirepass", "a \"b\n", "--port", "7"]).config.requirepass, b"a \"b\n");
    assert_eq!(started(&["--port", "1", "--port", "2"]).config.port, 2);
    let limits = started(&["--client-output-buffer-limit", "pubsub", "1mb", "2kb", "3"]).config;
    let pubsub = limits.client_output_buffer_limit.pubsub;
    assert_eq!((pubsub.hard_bytes, pubsub.soft_bytes, pubsub.soft_seconds), (1 << 20, 2 << 10, 3));
    assert_eq!(started(&["--hz", "10000"]).config.hz, 500);
    assert_eq!(started(&["--io-threads", "4"]).notes.len(), 1);
    let stdin = start(&[b"-".to_vec(), b"--hz".to_vec(), b"20".to_vec()], b"port 9\nhz 30\n").unwrap().config;
    assert_eq!((stdin.port, stdin.hz), (9, 20));
    assert!(matches!(config::invoke(&["-v".into()], &mut &b""[..]), Ok(Invocation::Version)));
    assert!(matches!(config::invoke(&["--help".into()], &mut &b""[..]), Ok(Invocation::Help)));
    assert!(config::version_line().contains(" v=8.2.3 "));
}

#[test]
fn a_file_comes_before_the_options_and_later_lines_win() {
    let scratch = Scratch::new();
    let text = b"# comment\nport 1\r\n\tTIMEOUT \"7\"\nport 2\nmaxmemory 1gb\nslave-priority 3\n";
    let path = scratch.file("redis.conf", text);
    let startup = started(&[path.to_str().unwrap(), "--maxmemory", "2gb"]);
    assert_eq!((startup.config.port, startup.config.timeout), (2, 7));
    assert_eq!((startup.config.maxmemory, startup.config.replica_priority), (2 << 30, 3));
    assert_eq!(startup.config_file.as_deref(), Some(path.as_path()));
    let missing = scratch.0.join("missing.conf");
    let fault = fault_of(&[missing.to_str().unwrap()]);
    assert_eq!(
        fault,
        format!("Fatal error, can't open config file '{}': No such file or directory", missing.display())
    );
}

#[test]
fn include_takes_patterns_and_ends() {
    let scratch = Scratch::new();
    scratch.file("conf.d/b.conf", b"port 2\n");
    scratch.file("conf.d/a.conf", b"port 1\ntimeout 9\n");
    scratch.file("conf.d/.hidden.conf", b"port 3\n");
    let dir = scratch.0.display();
    let main = scratch.file("main.conf", format!("dir {dir}\ninclude conf.d/*.conf\nhz 11\n").as_bytes());
    let config = started(&[main.to_str().unwrap()]).config;
    assert_eq!((config.port, config.timeout, config.hz), (2, 9, 11));
    let none = scratch.file("none.conf", format!("include {dir}/nothing/*.conf\nhz 12\n").as_bytes());
    assert_eq!(started(&[none.to_str().unwrap()]).config.hz, 12);
    let itself = scratch.file("self.conf", format!("include {dir}/self.conf\n").as_bytes());
    assert_eq!(fault_of(&[itself.to_str().unwrap()]), "include is nested too deeply");
    let bad = scratch.file("bad.conf", b"hz 1\nport x\n");
    let outer = scratch.file("outer.conf", format!("\n\n\ninclude {}\n", bad.display()).as_bytes());
    let error = start(&[outer.into_os_string().into_encoded_bytes()], b"").unwrap_err();
    assert!(error.to_string().contains("at line 2\n>>> 'port x'\n"), "{error}");
}

#[test]
fn features_that_do_not_exist_are_refused_unless_nothing_is_asked() {
    for args in [
        ["--save", ""],
        ["--appendonly", "no"],
        ["--cluster-enabled", "no"],
        ["--replicaof", "no one"],
        ["--daemonize", "no"],
        ["--supervised", "systemd"],
        ["--tls-port", "0"],
        ["--list-max-ziplist-value", "64"],
        ["--user", "default on nopass ~* &* +@all"],
    ] {
        let split: Vec<&str> = std::iter::once(args[0])
            .chain(if args[0] == "--user" { args[1].split(' ').collect() } else { vec![args[1]] })
            .collect();
        started(&split);
    }
    for (name, value, fault) in [
        ("--appendonly", "yes", "Skerry does not persist yet, use appendonly no"),
        ("--save", "900 1", "Skerry does not persist yet, use save \"\""),
        ("--cluster-enabled", "yes", "Skerry has no cluster mode yet"),
        ("--replicaof", "127.0.0.1 6379", "Skerry does not replicate yet"),
        ("--slaveof", "127.0.0.1 6379", "Skerry does not replicate yet"),
        ("--loadmodule", "/x.so", "Skerry loads no modules"),
        ("--tls-port", "6380", "Skerry does not speak TLS yet"),
    ] {
        assert_eq!(fault_of(&[name, value]), fault);
    }
    let error = set(&Config::default(), &[("appendonly", "yes")]).unwrap_err();
    assert_eq!(
        error,
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - Skerry does not persist yet, use appendonly no"
    );
}

#[test]
fn config_set_is_all_or_nothing() {
    let config = Config::default();
    let next = set(&config, &[("maxmemory", "1mb"), ("TIMEOUT", "5")]).unwrap();
    assert_eq!((next.maxmemory, next.timeout), (1 << 20, 5));
    let changed: Vec<&str> = config::changed(&config, &next).map(|row| row.name).collect();
    assert_eq!(changed, ["timeout", "maxmemory"]);
    assert!(set(&next, &[("maxmemory", "2mb"), ("timeout", "x")]).is_err());
    assert_eq!((next.maxmemory, next.timeout), (1 << 20, 5));
}

#[test]
fn protected_directives_need_leave() {
    let config = Config::default();
    let dir: [(&[u8], &[u8]); 1] = [(b"dir", b"/")];
    let local = Config { enable_protected_configs: ProtectedAction::Local, ..Config::default() };
    assert_eq!(
        config::set(&config, &dir, Origin::Local).unwrap_err().text(),
        b"ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config"
    );
    assert!(config::set(&local, &dir, Origin::Remote).is_err());
    assert!(config::set(&local, &dir, Origin::Local).is_ok());
}

#[test]
fn config_get_keeps_the_clients_spelling_and_says_nothing_twice() {
    let config = Config::default();
    let names = |patterns: &[&'static str]| -> Vec<String> {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        config::get(&config, &patterns).iter().map(|(name, _)| show(name)).collect()
    };
    assert_eq!(names(&["MAXMEMORY", "maxmemory", "MAXM*Y"])[0], "MAXMEMORY");
    let all = names(&["MAXMEMORY", "maxmemory", "maxm*y"]);
    assert_eq!(all.iter().filter(|name| name.eq_ignore_ascii_case("maxmemory")).count(), 1);
    assert_eq!(
        names(&["lua-time-limit", "nosuch", "busy-reply-*"]),
        ["lua-time-limit", "busy-reply-threshold"]
    );
    assert_eq!(names(&["watchdog-perio?"]).len(), 0);
    assert_eq!(names(&["watchdog-period"]).len(), 1);
}

#[test]
fn errors_carry_no_line_break() {
    let pair: [(&[u8], &[u8]); 1] = [(b"a\r\nb", b"1")];
    let error = config::set(&Config::default(), &pair, Origin::Remote).unwrap_err();
    assert_eq!(error.text(), b"ERR Unknown option or number of arguments for CONFIG SET - 'a  b'");
}

#[test]
fn rewriting_keeps_the_file_and_changes_its_values() {
    let old = b"# hello\n\nport 7401\n\n\ntimeout 5\nTIMEOUT 6\n  slave-priority 7 # no comment here\ninclude x.conf\nbogus line\n# end";
    let config =
        set(&Config::default(), &[("timeout", "9"), ("maxmemory", "100mb"), ("loglevel", "debug")]).unwrap();
    let new = String::from_utf8(config::rewrite(&config, old)).unwrap();
    let dir = std::env::current_dir().unwrap();
    let expected = format!(
        "# hello\n\nport 6379\n\ntimeout 9\n\nreplica-priority 100\ninclude x.conf\n# ??? bogus line\n# end\n\n\
         # Generated by CONFIG REWRITE\nmaxmemory 100mb\nlatency-tracking-info-percentiles 50 99 99.9\n\
         loglevel debug\ndir \"{}\"\nsave \"\"\n",
        dir.display()
    );
    assert_eq!(new, expected);
    let again = config::rewrite(&config, new.as_bytes());
    assert_eq!(String::from_utf8(again).unwrap(), new);
}

#[test]
fn a_rewritten_file_gives_the_same_configuration() {
    let scratch = Scratch::new();
    let path = scratch.file("redis.conf", b"save \"\"\nport 7\nbind 1.2.3.4 5.6.7.8\n");
    let mut config = started(&[path.to_str().unwrap()]).config;
    for (name, value) in [
        ("requirepass", "a\"b\\c\r\nport 1\n\0 '"),
        ("bind", "127.0.0.1\nport -::1"),
        ("client-output-buffer-limit", "replica 3mb 5 6 normal 1 2 3"),
        ("notify-keyspace-events", "AKEn"),
        ("latency-tracking-info-percentiles", ""),
        ("maxmemory-clients", "7%"),
        ("shutdown-on-sigterm", "now force"),
        ("oom-score-adj-values", "1 -2 3"),
        ("slave-announce-ip", "x\ny"),
        ("list-max-listpack-size", "-5"),
        ("maxmemory-policy", "allkeys-lfu"),
    ] {
        config = set(&config, &[(name, value)]).unwrap_or_else(|error| panic!("{error}"));
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    config::rewrite_file(&config, &path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let entries: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(entries, ["redis.conf"], "no temporary file is left");
    let read = started(&[path.to_str().unwrap()]).config;
    let differ: Vec<&str> = config::changed(&config, &read).map(|row| row.name).collect();
    assert!(differ.is_empty(), "{differ:?} in {}", std::fs::read_to_string(&path).unwrap());
}

#[test]
fn names_are_in_one_form() {
    let mut names = BTreeSet::new();
    for row in TABLE {
        for name in [Some(row.name), row.alias].into_iter().flatten() {
            assert!(names.insert(name), "{name} twice");
            assert!(
                name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')),
                "{name}"
            );
        }
    }
    assert!(TABLE.iter().any(|row| row.mutability == Mutability::Protected));
    assert!(TABLE.iter().any(|row| row.visibility == Visibility::Hidden));
}
