//! `skerry-bench trace`: how many hits does a cache of bounded memory get, and does it keep its bound?
//!
//! Each client asks for keys by a Zipf law and stores what it misses (cache-aside); or it only writes. Which keys come, in which
//! order, and how long each value is follows from the seed alone, so two servers see the same trace. Requests go out in waves of
//! `--pipeline`: the GETs of a wave, then the SETs of its misses. The first part of the trace fills the cache and is not counted.
//!
//! It watches the resident memory (`--server-pid`), INFO's `used_memory` and `evicted_keys`, and errors (OOM is one).

use crate::connection::{Handshake, Protocol, ServerAddress, open_blocking};
use crate::flags::FlagError;
use crate::keys::{KeyGenerator, KeyPattern, KeyRange, KeyShape};
use crate::memory;
use crate::question::Questioner;
use crate::target::Target;
use clap::{Parser, ValueEnum};
use skerry_resp::encode_command;
use skerry_resp::value::{Scan, Value};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Parser)]
#[command(name = "skerry-bench trace", about = "Replays a seeded cache trace and tells hits and memory.")]
struct Flags {
    #[command(flatten)]
    target: Target,
    /// Keys that may be asked for
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Exponent of the Zipf law
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    #[arg(long, value_enum, default_value_t = Sizes::Mixed)]
    sizes: Sizes,
    /// Requests of the whole trace
    #[arg(long, default_value_t = 4_000_000)]
    requests: u64,
    /// End after so long, whatever is left of the trace
    #[arg(long)]
    seconds: Option<f64>,
    /// Part of the trace that only warms up
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    #[arg(short, long, default_value_t = 8)]
    clients: u64,
    #[arg(long, default_value_t = 32)]
    pipeline: u64,
    /// SETs without a GET before
    #[arg(long)]
    writes_only: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Lengths of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sizes {
    /// 256 bytes
    Fixed,
    /// 60 % of 64 to 256 bytes, 30 % to 2 KiB, 9 % to 16 KiB, 1 % to 64 KiB
    Mixed,
}

impl Sizes {
    /// The length of a key's value; always the same for one key.
    fn of(self, key: u64) -> usize {
        let hash = scramble(key ^ 0x5bd1_e995);
        let within = |low: u64, high: u64| (low + (hash >> 16) % (high - low)) as usize;
        match (self, hash % 100) {
            (Sizes::Fixed, _) => 256,
            (Sizes::Mixed, 0..60) => within(64, 256),
            (Sizes::Mixed, 60..90) => within(256, 2048),
            (Sizes::Mixed, 90..99) => within(2048, 16 << 10),
            (Sizes::Mixed, _) => within(16 << 10, 64 << 10),
        }
    }
}

/// The finaliser of splitmix64: ranks of the Zipf law become names without order.
fn scramble(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What all clients have seen.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    gets: AtomicU64,
    hits: AtomicU64,
    errors: AtomicU64,
    is_over: AtomicBool,
}

/// Runs the subcommand with the arguments after its name.
pub fn main(args: &[String]) -> Result<ExitCode, FlagError> {
    let argv = std::iter::once("skerry-bench trace").chain(args.iter().map(String::as_str));
    let flags = Flags::try_parse_from(argv).map_err(FlagError::Clap)?;
    Ok(match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    })
}

fn run(flags: &Flags) -> io::Result<()> {
    if flags.clients == 0 || flags.pipeline == 0 || flags.keys == 0 {
        return Err(io::Error::other("--clients, --pipeline and --keys must be greater than zero"));
    }
    let address = flags.target.address()?;
    let counts = Counts::default();
    let started = Instant::now();
    let (outcome, seen) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(flags, &address, &counts, started));
        let clients: Vec<_> = (0..flags.clients)
            .map(|n| {
                scope.spawn({
                    let (address, counts) = (&address, &counts);
                    move || replay(flags, address, counts, n)
                })
            })
            .collect();
        let outcome: io::Result<Vec<()>> =
            clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect();
        counts.is_over.store(true, Ordering::Relaxed);
        (outcome, watcher.join().expect("the watcher does not panic"))
    });
    outcome?;
    let seconds = started.elapsed().as_secs_f64();
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (requests, gets, hits) = (read(&counts.requests), read(&counts.gets), read(&counts.hits));
    let seen = seen?;
    println!(
        "trace keys={} zipf={} sizes={:?} requests={requests} clients={} pipeline={} seed={}",
        flags.keys, flags.zipf, flags.sizes, flags.clients, flags.pipeline, flags.seed
    );
    println!(
        "seconds={seconds:.1} requests/s={:.0} errors={}",
        requests as f64 / seconds,
        read(&counts.errors)
    );
    println!("hit_rate={:.4} of {gets} GETs after the warm-up", hits as f64 / gets.max(1) as f64);
    println!(
        "max_rss={} max_used_memory={} maxmemory={} evicted_keys={}",
        seen.rss, seen.used, seen.limit, seen.evicted
    );
    if seen.limit > 0 {
        println!(
            "max_rss/maxmemory={:.3} max_used/maxmemory={:.3}",
            seen.rss as f64 / seen.limit as f64,
            seen.used as f64 / seen.limit as f64
        );
    }
    Ok(())
}

/// One client's part of the trace.
fn replay(flags: &Flags, address: &ServerAddress, counts: &Counts, nth: u64) -> io::Result<()> {
    let handshake = Handshake { protocol: Protocol::Redis, credentials: None, db: 0 };
    let mut stream = open_blocking(address, &handshake)?;
    let range = KeyRange { minimum: 1, maximum: flags.keys };
    let shape = KeyShape { zipf_exponent: flags.zipf, ..KeyShape::default() };
    let mut keys = KeyGenerator::new(range, shape, 1, scramble(flags.seed ^ nth << 32));
    let total = flags.requests / flags.clients;
    let counted_from = (total as f64 * flags.warm_up) as u64;
    let deadline = flags.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let payload: Vec<u8> = (0..64 << 10).map(|at| (scramble(at) >> 8) as u8).collect();
    let (mut out, mut input) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < total && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let wave: Vec<u64> = (0..flags.pipeline.min(total - done))
            .map(|_| scramble(keys.next_key(0, KeyPattern::Zipf)))
            .collect();
        let mut missing = wave.clone();
        if !flags.writes_only {
            out.clear();
            wave.iter().for_each(|key| encode_command(&[b"GET".as_slice(), &name(*key)], &mut out));
            stream.write_all(&out)?;
            missing.clear();
            let mut at = wave.iter();
            read_replies(&mut stream, &mut input, wave.len(), |reply| {
                let key = at.next().expect("a reply a request");
                match reply.first() {
                    Some(b'-') => _ = counts.errors.fetch_add(1, Ordering::Relaxed),
                    _ if reply.starts_with(b"$-1") => missing.push(*key),
                    _ => {}
                }
            })?;
            if done >= counted_from {
                counts.gets.fetch_add(wave.len() as u64, Ordering::Relaxed);
                counts.hits.fetch_add((wave.len() - missing.len()) as u64, Ordering::Relaxed);
            }
        }
        out.clear();
        for key in &missing {
            let value = &payload[..flags.sizes.of(*key)];
            encode_command(&[b"SET".as_slice(), &name(*key), value], &mut out);
        }
        if !missing.is_empty() {
            stream.write_all(&out)?;
            read_replies(&mut stream, &mut input, missing.len(), |reply| {
                if reply.first() == Some(&b'-') {
                    counts.errors.fetch_add(1, Ordering::Relaxed);
                }
            })?;
        }
        done += wave.len() as u64;
        counts.requests.fetch_add(wave.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn name(key: u64) -> Vec<u8> {
    format!("trace:{key:016x}").into_bytes()
}

/// Reads `n` replies and shows the bytes of each.
fn read_replies(
    stream: &mut impl Read,
    input: &mut Vec<u8>,
    n: usize,
    mut show: impl FnMut(&[u8]),
) -> io::Result<()> {
    let (mut scan, mut at, mut n_read) = (Scan::new(), 0, 0);
    let mut buffer = [0; 64 << 10];
    input.clear();
    while n_read < n {
        while n_read < n
            && let Some(reply) = scan.next(input, at).map_err(io::Error::other)?
        {
            show(&input[at..reply.end]);
            (at, n_read) = (reply.end, n_read + 1);
        }
        if n_read < n {
            let got = stream.read(&mut buffer)?;
            if got == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server"));
            }
            input.extend_from_slice(&buffer[..got]);
        }
    }
    Ok(())
}

/// The greatest figures seen.
#[derive(Default)]
struct Seen {
    rss: u64,
    used: u64,
    limit: u64,
    evicted: u64,
}

fn watch(flags: &Flags, address: &ServerAddress, counts: &Counts, started: Instant) -> io::Result<Seen> {
    let handshake = Handshake { protocol: Protocol::Redis, credentials: None, db: 0 };
    let mut questioner = Questioner::connect(address, &handshake)?;
    let (mut seen, mut next_line) = (Seen::default(), Duration::from_secs(5));
    loop {
        let is_over = counts.is_over.load(Ordering::Relaxed);
        let info = match questioner.ask(&["INFO", "memory", "stats"])? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        };
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let (used, rss) = (
            field("used_memory"),
            match flags.target.server_pid {
                Some(pid) => memory::rss_bytes(&[pid])?,
                None => field("used_memory_rss"),
            },
        );
        seen.rss = seen.rss.max(rss);
        seen.used = seen.used.max(used);
        (seen.limit, seen.evicted) = (field("maxmemory"), field("evicted_keys"));
        if started.elapsed() >= next_line {
            next_line += Duration::from_secs(5);
            let requests = counts.requests.load(Ordering::Relaxed);
            eprintln!(
                "{:>4.0} s: {requests} requests, used {used}, rss {rss}, evicted {}",
                started.elapsed().as_secs_f64(),
                seen.evicted
            );
        }
        if is_over {
            return Ok(seen);
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_key_and_the_shares() {
        let lens: Vec<usize> = (0..100_000).map(|key| Sizes::Mixed.of(scramble(key))).collect();
        let share = |low, high| lens.iter().filter(|len| (low..high).contains(*len)).count();
        assert!((59_000..61_000).contains(&share(64, 256)), "{}", share(64, 256));
        assert!((800..1200).contains(&share(16 << 10, 64 << 10)));
        assert_eq!(Sizes::Mixed.of(77), Sizes::Mixed.of(77));
    }

    #[test]
    fn replies_are_counted_across_reads() {
        let wire = b"$3\r\nabc\r\n$-1\r\n-OOM no\r\n+OK\r\n".to_vec();
        let mut shown = Vec::new();
        read_replies(&mut wire.as_slice(), &mut Vec::new(), 4, |reply| shown.push(reply[0]))
            .expect("complete");
        assert_eq!(shown, b"$$-+");
        assert!(read_replies(&mut &wire[..5], &mut Vec::new(), 1, |_| ()).is_err());
    }
}
