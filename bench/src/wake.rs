//! `skerry-bench wake`: what does a command cost that wakes other clients?
//!
//! ```text
//! publish   m clients, each a pipeline of PUBLISHes to one channel --> n subscribers   an operation: one PUBLISH
//! blpop     two clients a pair, in turn: RPUSH the other's list, BLPOP the own one    an operation: one such turn
//! ```
//!
//! The answers are checked: each PUBLISH must reach all subscribers, whole and in its publisher's order; each BLPOP must bring the
//! pushed element. Publishers wait until their pipelines have arrived everywhere, so that no output buffer grows. Server CPU is over the whole
//! window (`--server-pid`), and the JSON has the shape of the load generator's, so `scripts/compare` reads both.

use crate::connection::{Connection, Handshake, Protocol, ServerAddress};
use crate::flags::FlagError;
use crate::question::{Questioner, value_or_error};
use crate::run::{CpuSample, RunCpu, pin};
use crate::stats::CommandStats;
use crate::target::Target;
use clap::{Args, Parser, Subcommand};
use mio::{Events, Interest, Poll, Token};
use serde_json::json;
use skerry_resp::encode_command;
use skerry_resp::value::Value;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CHANNEL: &str = "skerry-bench-channel";
/// A server that delivers nothing for so long has lost a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the reader of all subscriptions looks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const READ_BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug, Parser)]
#[command(name = "skerry-bench wake", about = "Server CPU of commands that wake other clients.")]
struct Flags {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// PUBLISH to many subscribers
    Publish {
        #[command(flatten)]
        common: Common,
        #[arg(long, default_value_t = 100)]
        subscribers: usize,
        #[arg(short, long, default_value_t = 50)]
        clients: usize,
        #[arg(long, default_value_t = 30)]
        pipeline: usize,
        /// Bytes of a message
        #[arg(short, long, default_value_t = 32)]
        data_size: usize,
    },
    /// BLPOP answered by another client's RPUSH
    Blpop {
        #[command(flatten)]
        common: Common,
        #[arg(long, default_value_t = 1)]
        pairs: usize,
    },
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    target: Target,
    /// Seconds
    #[arg(long, default_value_t = 5.0)]
    test_time: f64,
    /// Cores of the load, by comma
    #[arg(long, value_delimiter = ',')]
    cpu: Vec<usize>,
    #[arg(long)]
    json_out_file: Option<String>,
}

/// Runs the subcommand with the arguments after its name.
pub fn main(args: &[String]) -> Result<ExitCode, FlagError> {
    let argv = std::iter::once("skerry-bench wake").chain(args.iter().map(String::as_str));
    let flags = Flags::try_parse_from(argv).map_err(FlagError::Clap)?;
    let ended = match &flags.mode {
        Mode::Publish { common, subscribers, clients, pipeline, data_size } => {
            publish(common, *subscribers, *clients, *pipeline, *data_size)
        }
        Mode::Blpop { common, pairs } => blpop(common, *pairs),
    };
    Ok(ended.map_or_else(
        |error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

const PLAIN: Handshake = Handshake { protocol: Protocol::Redis, credentials: None, db: 0 };

impl Common {
    fn address(&self) -> io::Result<ServerAddress> {
        if self.test_time.is_nan() || self.test_time <= 0.0 {
            return Err(io::Error::other("--test-time must be greater than zero"));
        }
        self.target.address()
    }

    fn sample(&self) -> io::Result<CpuSample> {
        CpuSample::take(self.target.server_pid.as_slice())
    }

    fn tell(&self, name: &str, stats: &CommandStats, seconds: f64, cpu: &RunCpu) -> io::Result<()> {
        let n = stats.n_ops as f64;
        let [p50, p99] = [50.0, 99.0].map(|p| stats.percentile_ms(p));
        println!("{name}: {n} operations, {:.0} a second, p50 {p50:.3} ms, p99 {p99:.3} ms", n / seconds);
        let mut table = json!({
            "Totals": {
                "Count": stats.n_ops,
                "Ops/sec": n / seconds,
                "Percentile Latencies": { "p50.00": p50, "p99.00": p99 },
            },
            "Generator CPU": { "Total ns/op": cpu.generator.total_ns() as f64 / n },
        });
        if let Some(server) = cpu.server {
            let [user, system] = [server.user_ns, server.system_ns].map(|ns| ns as f64);
            println!("server CPU an operation: user {:.0} ns, system {:.0} ns", user / n, system / n);
            table["Server CPU"] = json!({ "User seconds": user / 1e9, "System seconds": system / 1e9 });
        }
        match &self.json_out_file {
            Some(path) => std::fs::write(path, json!({ "ALL STATS": table }).to_string()),
            None => Ok(()),
        }
    }
}

/// The next reply; an error reply is an error.
fn reply(questioner: &mut Questioner) -> io::Result<Value> {
    value_or_error(questioner.receive()?).map_err(io::Error::other)
}

/// A thread's result, or its panic as this one's.
fn join<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().expect("a thread of the load does not panic")
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros().max(1) as u64
}

fn publish(
    common: &Common,
    n_subscribers: usize,
    n_clients: usize,
    pipeline: usize,
    data_size: usize,
) -> io::Result<()> {
    if n_subscribers == 0 || n_clients == 0 || pipeline == 0 || data_size < HEAD_BYTES {
        return Err(io::Error::other("one subscriber, one client, one message and 12 bytes are the least"));
    }
    if n_clients > MAX_CLIENTS {
        return Err(io::Error::other(format!("{MAX_CLIENTS} clients are the most")));
    }
    let address = common.address()?;
    let mut listener = Listener::subscribe(&address, n_subscribers, n_clients, data_size)?;
    let publishers = (0..n_clients).map(|_| Questioner::connect(&address, &PLAIN));
    let mut publishers = publishers.collect::<io::Result<Vec<_>>>()?;
    let (is_over, n_arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut stats = CommandStats::default();
    pin(&common.cpu, 0);
    let before = common.sample()?;
    let started = Instant::now();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            pin(&common.cpu, 1);
            listener.read_until(&is_over, &n_arrived)
        });
        let arrives = |n_messages: u64| {
            let since = Instant::now();
            while n_arrived.load(Ordering::Acquire) < n_messages * n_subscribers as u64 {
                if since.elapsed() > PATIENCE || reading.is_finished() {
                    return Err(io::Error::other("a message has not reached every subscriber"));
                }
                thread::yield_now();
            }
            Ok(())
        };
        let published = (|| {
            let (mut out, mut serial) = (Vec::new(), 0);
            while started.elapsed().as_secs_f64() < common.test_time {
                let wave = Instant::now();
                for (client, publisher) in publishers.iter_mut().enumerate() {
                    out.clear();
                    for serial in serial..serial + pipeline as u64 {
                        let message = message(client, serial, data_size);
                        encode_command(&[b"PUBLISH", CHANNEL.as_bytes(), &message], &mut out);
                    }
                    publisher.send(&out)?;
                }
                for publisher in &mut publishers {
                    for _ in 0..pipeline {
                        match reply(publisher)? {
                            Value::Integer(n) if n == n_subscribers as i64 => {}
                            other => return Err(io::Error::other(format!("PUBLISH is answered {other:?}"))),
                        }
                    }
                }
                serial += pipeline as u64;
                stats.n_ops = serial * n_clients as u64;
                arrives(stats.n_ops)?;
                stats.latency_us.saturating_record_n(micros(wave), (pipeline * n_clients) as u64);
            }
            Ok(())
        })();
        is_over.store(true, Ordering::Release);
        join(reading).and(published)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = common.sample()?.since(&before);
    common.tell(&format!("PUBLISH of {n_clients} clients to {n_subscribers}"), &stats, seconds, &cpu)
}

/// A message begins with its publisher, 4 digits, and its number, 8; the rest is padding.
const HEAD_BYTES: usize = 12;
const MAX_CLIENTS: usize = 10_000;

fn message(client: usize, serial: u64, data_size: usize) -> Vec<u8> {
    let mut message = format!("{client:04}{:08}", serial % 100_000_000).into_bytes();
    message.resize(data_size, b'x');
    message
}

/// All subscriptions on one thread.
struct Listener {
    poll: Poll,
    subscriptions: Vec<Subscription>,
    /// What stands before and behind the head of a message, on the wire.
    before: Vec<u8>,
    behind: Vec<u8>,
}

/// One connection.
struct Subscription {
    connection: Connection,
    /// The number of the next message of each publisher.
    serials: Vec<u64>,
    /// Bytes that are no whole message yet.
    rest: Vec<u8>,
}

impl Listener {
    fn subscribe(address: &ServerAddress, n: usize, n_clients: usize, data_size: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut subscriptions = Vec::new();
        for index in 0..n {
            let mut connection = Connection::open(address, &PLAIN)?;
            confirm_subscription(&mut connection)?;
            poll.registry().register(connection.source(), Token(index), Interest::READABLE)?;
            subscriptions.push(Subscription { connection, serials: vec![0; n_clients], rest: Vec::new() });
        }
        let mut wire = Vec::new();
        encode_command(&[b"message", CHANNEL.as_bytes(), &message(0, 0, data_size)], &mut wire);
        let behind = wire.split_off(wire.len() - (data_size - HEAD_BYTES) - 2);
        wire.truncate(wire.len() - HEAD_BYTES);
        Ok(Self { poll, subscriptions, before: wire, behind })
    }

    fn read_until(&mut self, is_over: &AtomicBool, n_arrived: &AtomicU64) -> io::Result<()> {
        while !is_over.load(Ordering::Acquire) {
            let n = self.read_ready()?;
            n_arrived.fetch_add(n, Ordering::Release);
        }
        Ok(())
    }

    /// Reads what is there; returns how many messages became whole.
    fn read_ready(&mut self) -> io::Result<u64> {
        let mut events = Events::with_capacity(256);
        match self.poll.poll(&mut events, Some(LOOK_EVERY)) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(0),
            other => other?,
        }
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut n_messages = 0;
        for event in &events {
            let subscription = &mut self.subscriptions[event.token().0];
            loop {
                match subscription.connection.read(&mut buffer) {
                    Ok(0) => return Err(io::Error::other("a subscriber was closed by the server")),
                    Ok(n) => n_messages += subscription.take(&buffer[..n], &self.before, &self.behind)?,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(n_messages)
    }
}

/// Subscribes, so that every PUBLISH after it finds this connection.
fn confirm_subscription(connection: &mut Connection) -> io::Result<()> {
    let mut request = Vec::new();
    encode_command(&["SUBSCRIBE", CHANNEL], &mut request);
    if connection.write(&request)? != request.len() {
        return Err(io::Error::other("SUBSCRIBE does not fit a socket's buffer"));
    }
    let expected = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{CHANNEL}\r\n:1\r\n", CHANNEL.len());
    let (mut answer, mut buffer) = (Vec::new(), [0; 256]);
    let since = Instant::now();
    while answer.len() < expected.len() && since.elapsed() < PATIENCE {
        match connection.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e),
        }
    }
    if answer != expected.as_bytes() {
        let answer = String::from_utf8_lossy(&answer);
        return Err(io::Error::other(format!("SUBSCRIBE is answered {answer:?}")));
    }
    Ok(())
}

impl Subscription {
    fn take(&mut self, bytes: &[u8], before: &[u8], behind: &[u8]) -> io::Result<u64> {
        self.rest.extend_from_slice(bytes);
        let len = before.len() + HEAD_BYTES + behind.len();
        let mut n_messages = 0;
        for message in self.rest.chunks_exact(len) {
            let head = message.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
            let number = head.and_then(|head| std::str::from_utf8(head).ok()?.parse::<u64>().ok());
            let serial = number
                .and_then(|n| self.serials.get_mut((n / 100_000_000) as usize).map(|serial| (n, serial)));
            match serial {
                Some((n, serial)) if n % 100_000_000 == *serial % 100_000_000 => *serial += 1,
                _ => {
                    let text = String::from_utf8_lossy(message);
                    return Err(io::Error::other(format!("a message is {text:?}")));
                }
            }
            n_messages += 1;
        }
        self.rest.drain(..len * n_messages as usize);
        Ok(n_messages)
    }
}

fn blpop(common: &Common, n_pairs: usize) -> io::Result<()> {
    if n_pairs == 0 {
        return Err(io::Error::other("--pairs must be greater than zero"));
    }
    let address = common.address()?;
    let is_over = AtomicBool::new(false);
    let mut stats = CommandStats::default();
    let before = common.sample()?;
    let started = Instant::now();
    thread::scope(|scope| {
        let mut players = Vec::new();
        for pair in 0..n_pairs {
            for side in [Side::First, Side::Second] {
                let (address, is_over) = (&address, &is_over);
                players.push(scope.spawn(move || {
                    pin(&common.cpu, pair);
                    play(address, pair, side, is_over)
                }));
            }
        }
        while started.elapsed().as_secs_f64() < common.test_time && !players.iter().any(|p| p.is_finished()) {
            thread::sleep(LOOK_EVERY);
        }
        is_over.store(true, Ordering::Release);
        for player in players {
            stats.add(&join(player)?);
        }
        Ok::<(), io::Error>(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = common.sample()?.since(&before);
    common.tell(&format!("RPUSH and BLPOP, {n_pairs} pairs"), &stats, seconds, &cpu)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

/// Pushes to the other's list, then waits for the own one; the first side ends the game with a last word.
fn play(address: &ServerAddress, pair: usize, side: Side, is_over: &AtomicBool) -> io::Result<CommandStats> {
    const LAST_WORD: &[u8] = b"over";
    let [ping, pong] = ["ping", "pong"].map(|name| format!("skerry-bench-{name}-{pair}"));
    let (theirs, own) = if side == Side::First { (ping, pong) } else { (pong, ping) };
    let mut questioner = Questioner::connect(address, &PLAIN)?;
    let (mut push, mut last_push, mut pop) = (Vec::new(), Vec::new(), Vec::new());
    encode_command(&["RPUSH", &theirs, "ball"], &mut push);
    encode_command(&[b"RPUSH", theirs.as_bytes(), LAST_WORD], &mut last_push);
    encode_command(&["BLPOP", &own, "10"], &mut pop);
    let mut stats = CommandStats::default();
    let mut is_own_turn = side == Side::First;
    loop {
        let turn = Instant::now();
        if is_own_turn {
            let ends = side == Side::First && is_over.load(Ordering::Acquire);
            questioner.send(if ends { &last_push } else { &push })?;
            if !matches!(reply(&mut questioner)?, Value::Integer(_)) {
                return Err(io::Error::other("RPUSH is not answered by a length"));
            }
            if ends {
                return Ok(stats);
            }
        }
        questioner.send(&pop)?;
        let ball = match reply(&mut questioner)? {
            Value::Array(parts) if parts.len() == 2 => parts.into_iter().nth(1),
            other => return Err(io::Error::other(format!("BLPOP is answered {other:?}"))),
        };
        match ball {
            Some(Value::Bulk(word)) if word == LAST_WORD => return Ok(stats),
            Some(Value::Bulk(word)) if word == b"ball" => {}
            other => return Err(io::Error::other(format!("BLPOP brings {other:?}"))),
        }
        is_own_turn = true;
        stats.latency_us.saturating_record(micros(turn));
        stats.n_ops += 1;
    }
}
