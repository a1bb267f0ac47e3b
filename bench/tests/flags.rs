//! Flags mean what they mean to memtier_benchmark: names, short forms, defaults, relations, refusals.

use skerry_bench::connection::{Protocol, ServerAddress};
use skerry_bench::flags::{self, CommandsKind, FlagError, Length, Workload};
use skerry_bench::keys::{KeyPattern, KeyRange};
use skerry_bench::template::DataContent;
use std::time::Duration;

fn parse(args: &[&str]) -> Result<Workload, FlagError> {
    flags::parse(&args.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
}

fn workload(args: &[&str]) -> Workload {
    parse(args).unwrap_or_else(|e| panic!("{args:?}: {e:?}"))
}

fn refusal(args: &[&str]) -> String {
    match parse(args) {
        Ok(_) => panic!("{args:?} was accepted"),
        Err(FlagError::Clap(error)) => error.to_string(),
        Err(FlagError::Text(text)) => text,
    }
}

#[test]
fn the_defaults_are_memtiers() {
    let w = workload(&[]);
    assert_eq!(w.address.to_string(), "127.0.0.1:6379");
    assert_eq!((w.n_threads, w.n_clients_per_thread, w.pipeline, w.run_count), (4, 50, 1, 1));
    assert_eq!(w.length, Length::RequestsPerClient(10_000));
    assert_eq!((w.data.minimum_bytes, w.data.maximum_bytes), (32, 32));
    assert_eq!(w.key_range, KeyRange { minimum: 0, maximum: 10_000_000 });
    assert_eq!(w.commands_kind, CommandsKind::SetAndGet);
    assert_eq!((w.commands[0].ratio, w.commands[1].ratio), (1, 10));
    assert_eq!(w.commands[0].key_pattern, KeyPattern::Random);
    assert_eq!(w.report.percentiles, [50.0, 99.0, 99.9]);
    assert_eq!((w.seed, w.distinct_client_seed), (0, false));
}

#[test]
fn short_long_and_equals_forms() {
    let short = workload(&[
        "-s",
        "127.0.0.1",
        "-p",
        "7",
        "-t",
        "2",
        "-c",
        "3",
        "-n",
        "5",
        "-d",
        "9",
        "-x",
        "2",
        "-R",
    ]);
    let long = workload(&[
        "--server=127.0.0.1",
        "--port=7",
        "--threads=2",
        "--clients=3",
        "--requests=5",
        "--data-size=9",
        "--run-count=2",
        "--random-data",
    ]);
    for w in [&short, &long] {
        assert_eq!(w.address.to_string(), "127.0.0.1:7");
        assert_eq!((w.n_threads, w.n_clients_per_thread, w.run_count), (2, 3, 2));
        assert_eq!(w.length, Length::RequestsPerClient(5));
        assert_eq!(w.data.maximum_bytes, 9);
        assert_eq!(w.data.content, DataContent::Random);
    }
    assert_eq!(workload(&["-h", "127.0.0.1", "-p7"]).address, short.address);
    assert_eq!(workload(&["--host", "127.0.0.1", "--port", "7"]).address, short.address);
    assert_eq!(workload(&["-S", "/tmp/s"]).address, ServerAddress::Unix("/tmp/s".into()));
}

#[test]
fn the_last_of_a_flag_wins_and_prefixes_are_enough() {
    assert_eq!(workload(&["--pipeline=30", "--pipeline", "1"]).pipeline, 1);
    assert_eq!(workload(&["--pipe=3"]).pipeline, 3);
}

#[test]
fn command_flags_belong_to_the_command_before_them() {
    let w = workload(&[
        "--command=set __key__ __data__",
        "--command-ratio=3",
        "--command-key-pattern=S",
        "--command",
        "get __key__",
        "--command=INCR __key__",
        "--command-key-pattern=G",
    ]);
    assert_eq!(w.commands_kind, CommandsKind::Arbitrary);
    let got: Vec<_> = w.commands.iter().map(|c| (c.name.as_str(), c.ratio, c.key_pattern)).collect();
    use KeyPattern::{Gaussian, Random, Sequential};
    assert_eq!(got, [("SET", 3, Sequential), ("GET", 1, Random), ("INCR", 1, Gaussian)]);
}

#[test]
fn lengths() {
    assert_eq!(workload(&["--test-time=5"]).length, Length::Time(Duration::from_secs(5)));
    let all = ["-n", "allkeys", "--key-minimum=1", "--key-maximum=100", "-t1", "-c3"];
    let everyone = workload(&all);
    assert_eq!((everyone.length, everyone.n_requests()), (Length::AllKeys, Some(300)));
    let together = workload(&[&all[..], &["--key-pattern=P:P"]].concat());
    assert_eq!(together.n_requests(), Some(100));
    assert_eq!(together.length_in_words(), (34, "Requests per client"));
}

#[test]
fn connection_options() {
    let w = workload(&["-a", "me:secret", "-P", "resp3", "--select-db=3", "--rate-limiting=100"]);
    assert_eq!(w.handshake.protocol, Protocol::Resp3);
    assert_eq!(w.handshake.credentials.as_deref(), Some("me:secret"));
    assert_eq!((w.handshake.db, w.requests_per_s), (3, Some(100)));
}

#[test]
fn what_memtier_lacks() {
    let w = workload(&[
        "--server-pid=12,13",
        "--server-threads",
        "--cpu=1,0",
        "--vector-dim=8",
        "--ignore-errors",
    ]);
    assert_eq!(w.server_pids, [12, 13]);
    assert_eq!(w.cpus, [1, 0]);
    assert_eq!(w.vectors.n_dims, 8);
    assert!(w.report.server_threads && w.report.ignore_errors);
}

#[test]
fn expiry_turns_set_into_setex() {
    let w = workload(&["--expiry-range=10-20"]);
    assert_eq!(w.commands[0].name, "SETEX");
    assert_eq!(w.expiry_s, (10, 20));
}

#[test]
fn refusals_say_what_is_wrong() {
    for (args, needle) in [
        (&["--threads=0"][..], "threads must be greater than zero"),
        (&["--pipeline=0"], "pipeline must be greater than zero"),
        (&["--ratio=x"], "ratio must be expressed"),
        (&["--ratio=0:0"], "ratio must be expressed"),
        (&["--key-pattern=R"], "key-pattern"),
        (&["--key-pattern=Q:R"], "none of R, G, Z, S and P"),
        (&["--key-pattern=P:R"], "both SET and GET"),
        (&["--key-minimum=9", "--key-maximum=8"], "key-minimum"),
        (&["-n", "5", "--test-time", "5"], "mutually exclusive"),
        (&["-n", "none"], "requests must be greater than zero"),
        (&["--command=GET __key__", "--ratio=1:1"], "--command-ratio"),
        (&["--command=GET __key__", "--key-pattern=R:R"], "--command-key-pattern"),
        (&["--command-ratio=2", "--command=PING"], "follow a command"),
        (&["--command-ratio=2"], "follow a command"),
        (&["--command=SET \"a"], "unbalanced quotes"),
        (&["--command=GET __key__", "--command-key-pattern=P", "--command=PING"], "all commands"),
        (&["--data-size=0"], "data-size"),
        (&["--data-size-range=5-2"], "data-size-range"),
        (&["--expiry-range=0-2"], "expiry-range"),
        (&["--protocol=memcache_text"], "memcache_text"),
        (&["--cluster-mode"], "cluster mode"),
        (&["--print-percentiles=0"], "percentile"),
        (&["--key-zipf-exp=5"], "zipf"),
        (&["--key-median=5", "--key-minimum=10"], "key-median"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--data-import=x"], "--data-import"),
    ] {
        let text = refusal(args);
        assert!(text.contains(needle), "{args:?}: {text}");
    }
    assert_eq!(workload(&["--cluster-mode=no"]).pipeline, 1);
}
