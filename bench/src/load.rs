//! One load thread: its clients, one epoll, one read buffer.
//!
//! A socket is read once per event; a read shorter than the buffer has emptied it (epoll(7) says so of
//! streams), so a batch costs one read and one write, and the wait is shared by all clients that became
//! ready.
//!
//! Must never know: other threads, flags, reports.

use crate::client::{Allowance, Client, ClientState, MayHoldMore, Rate};
use crate::clustered::ClusteredVectors;
use crate::connection::Connection;
use crate::flags::{Length, Workload};
use crate::keys::{KeyGenerator, KeyPattern, KeyRange};
use crate::stats::RunStats;
use crate::template::{ArgumentSource, Template};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READ_BUFFER_BYTES: usize = 256 * 1024;
/// How long replies are awaited after the time is up, before the server counts as stuck.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The clock of `--rate-limiting`.
const RATE_TICK: Duration = Duration::from_millis(1);

/// A thread's clients, connected and ready.
#[derive(Debug)]
pub struct LoadThread<'a> {
    poll: Poll,
    clients: Vec<Client>,
    commands: &'a [Template],
    length: Length,
    n_ops_seen: &'a AtomicU64,
    read_buffer: Vec<u8>,
    stats: RunStats,
}

impl<'a> LoadThread<'a> {
    /// Opens all connections of thread `thread_index`. `n_ops_seen` is told the replies as they come.
    pub fn connect(
        workload: &'a Workload,
        vectors: Option<&Arc<ClusteredVectors>>,
        thread_index: u32,
        n_ops_seen: &'a AtomicU64,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut clients = Vec::new();
        for index in 0..workload.n_clients_per_thread {
            let mut connection = Connection::open(&workload.address, &workload.handshake)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(connection.source(), Token(index as usize), interest)?;
            let client_index = u64::from(thread_index * workload.n_clients_per_thread + index);
            let range = key_range(workload, client_index);
            let allowance = Allowance {
                n_requests_left: match (range, workload.length) {
                    (None, _) => 0,
                    (Some(_), Length::RequestsPerClient(n)) => n,
                    (Some(range), Length::AllKeys) => range.n_keys(),
                    (Some(_), Length::Time(_)) => u64::MAX,
                },
                rate: workload.requests_per_s.map(Rate::per_second),
            };
            let range = range.unwrap_or(workload.key_range);
            let source = argument_source(workload, vectors, range, client_index);
            clients.push(Client::new(connection, source, allowance, workload.pipeline));
        }
        Ok(Self {
            poll,
            clients,
            commands: &workload.commands,
            length: workload.length,
            n_ops_seen,
            read_buffer: vec![0; READ_BUFFER_BYTES],
            stats: RunStats::new(workload.commands.len()),
        })
    }

    /// Runs to the end of the workload.
    pub fn run(mut self) -> io::Result<RunStats> {
        let start = Instant::now();
        let deadline = match self.length {
            Length::Time(time) => Some(start + time),
            Length::RequestsPerClient(_) | Length::AllKeys => None,
        };
        let mut events = Events::with_capacity(self.clients.len().clamp(16, 4096));
        let rate_limited = self.clients.iter().any(Client::is_rate_limited);
        let mut drain_until = None;
        self.fill_all(start);
        while self.clients.iter().any(|c| c.state == ClientState::Running) {
            let end = drain_until.or(deadline);
            let mut timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
            if rate_limited && drain_until.is_none() {
                timeout = Some(timeout.unwrap_or(RATE_TICK).min(RATE_TICK));
            }
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                self.serve(event, start);
            }
            if rate_limited {
                self.fill_all(start);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                if drain_until.is_some() {
                    self.give_up_waiting();
                    break;
                }
                self.clients.iter_mut().for_each(Client::stop_sending);
                drain_until = Some(Instant::now() + DRAIN_LIMIT);
            }
        }
        self.stats.duration = start.elapsed();
        Ok(self.stats)
    }

    fn fill_all(&mut self, start: Instant) {
        for index in 0..self.clients.len() {
            if self.clients[index].state == ClientState::Running {
                let now_ns = start.elapsed().as_nanos() as u64;
                let filled = self.clients[index].fill(self.commands, now_ns, &mut self.stats);
                self.end_client_on_error(index, filled);
            }
        }
    }

    #[inline]
    fn serve(&mut self, event: &Event, start: Instant) {
        let index = event.token().0;
        if self.clients[index].state == ClientState::Finished {
            return;
        }
        let served = if event.is_readable() || event.is_read_closed() {
            self.read_and_refill(index, event, start)
        } else {
            self.clients[index].flush()
        };
        self.end_client_on_error(index, served);
    }

    #[inline]
    fn read_and_refill(&mut self, index: usize, event: &Event, start: Instant) -> io::Result<()> {
        let client = &mut self.clients[index];
        while let Some((bytes, may_hold_more)) = client.read(&mut self.read_buffer)? {
            let now_ns = start.elapsed().as_nanos() as u64;
            let n_replies = client.take_replies(bytes, now_ns, &mut self.stats)?;
            if n_replies > 0 {
                note_second(&mut self.stats.ops_per_second, now_ns, n_replies);
                self.n_ops_seen.fetch_add(n_replies, Ordering::Relaxed);
            }
            if client.state == ClientState::Finished {
                return Ok(());
            }
            client.fill(self.commands, now_ns, &mut self.stats)?;
            // A closed socket tells so once: its end must be read now.
            if may_hold_more == MayHoldMore::No && !event.is_read_closed() {
                return Ok(());
            }
        }
        client.flush()
    }

    fn end_client_on_error(&mut self, index: usize, result: io::Result<()>) {
        if let Err(error) = result {
            self.clients[index].state = ClientState::Finished;
            self.stats.n_connection_errors += 1;
            self.stats.note_error(|| format!("connection: {error}"));
        }
    }

    fn give_up_waiting(&mut self) {
        let n_stuck = self.clients.iter().filter(|c| c.state == ClientState::Running).count();
        self.stats.n_connection_errors += n_stuck as u64;
        self.stats.note_error(|| format!("no reply within {DRAIN_LIMIT:?} on {n_stuck} connections"));
    }
}

fn note_second(ops_per_second: &mut Vec<u64>, now_ns: u64, n_replies: u64) {
    let second = (now_ns / 1_000_000_000) as usize;
    if ops_per_second.len() <= second {
        ops_per_second.resize(second + 1, 0);
    }
    ops_per_second[second] += n_replies;
}

fn argument_source(
    workload: &Workload,
    vectors: Option<&Arc<ClusteredVectors>>,
    range: KeyRange,
    client_index: u64,
) -> ArgumentSource {
    let seed = workload.seed.wrapping_add(if workload.distinct_client_seed { client_index } else { 0 });
    let keys = KeyGenerator::new(range, workload.key_shape, workload.commands.len(), seed);
    ArgumentSource::new(keys, workload.data, workload.expiry_s, vectors.cloned(), seed)
}

/// The keys of one client, `None` if it has none. As in memtier, the first command's pattern decides whether
/// the range is cut.
fn key_range(workload: &Workload, client_index: u64) -> Option<KeyRange> {
    match workload.commands[0].key_pattern {
        KeyPattern::Parallel => workload.key_range.slice(client_index, workload.n_clients()),
        KeyPattern::Random | KeyPattern::Gaussian | KeyPattern::Zipf | KeyPattern::Sequential => {
            Some(workload.key_range)
        }
    }
}
