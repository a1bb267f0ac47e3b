//! One client: a connection, its pipeline, and what it sends next.
//!
//! ```text
//!   fill():  while in flight < pipeline, stamp requests into `out`      one write per refill
//!   read():  scan replies, oldest request first                         one clock reading per read
//! ```
//!
//! Requests sent together share a time stamp, and replies read together are recorded together: the histogram
//! is touched once per (read, batch, command), not once per reply. Latency is still each request's own: from
//! the refill that stamped it to the read that held its reply's last byte, as memtier counts.
//!
//! Invariant: the in-flight queue holds exactly the requests not yet answered. No allocation per request once
//! the buffers have grown to one batch.

use crate::connection::Connection;
use crate::stats::RunStats;
use crate::template::{ArgumentSource, Template};
use skerry_resp::value::Scan;
use std::collections::VecDeque;
use std::io;

/// Requests of one command, sent at one time.
#[derive(Clone, Copy, Debug)]
struct Flight {
    command_index: usize,
    sent_at_ns: u64,
    n_requests: u64,
}

/// Whose turn it is among the commands, by their ratios.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    command_index: usize,
    n_sent: u32,
}

impl Turn {
    #[inline]
    fn next(&mut self, commands: &[Template]) -> usize {
        // At least one ratio is positive (flags hold it), so this ends.
        while self.n_sent >= commands[self.command_index].ratio {
            self.n_sent = 0;
            self.command_index = (self.command_index + 1) % commands.len();
        }
        self.n_sent += 1;
        self.command_index
    }
}

/// Requests a client may still send: a total, and a rate if `--rate-limiting` is given.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub n_requests_left: u64,
    pub rate: Option<Rate>,
}

/// A bucket that fills steadily and holds at most ten milliseconds' worth, so that a stall is not made up by
/// a burst.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    per_ns: f64,
    capacity: f64,
    tokens: f64,
    filled_at_ns: u64,
}

impl Rate {
    pub fn per_second(requests_per_s: u32) -> Self {
        let per_ns = f64::from(requests_per_s) / 1e9;
        Self { per_ns, capacity: (per_ns * 1e7).max(1.0), tokens: 1.0, filled_at_ns: 0 }
    }

    fn fill(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.filled_at_ns) as f64;
        self.tokens = (self.tokens + elapsed_ns * self.per_ns).min(self.capacity);
        self.filled_at_ns = now_ns;
    }
}

/// Whether a client goes on after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    Running,
    /// All requests are sent and answered, or the connection is lost.
    Finished,
}

/// Whether a read left something in the socket: one that filled the buffer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayHoldMore {
    Yes,
    No,
}

#[derive(Debug)]
pub struct Client {
    pub connection: Connection,
    pub state: ClientState,
    scan: Scan,
    /// The head of a reply whose end has not come: it goes in front of the next read.
    carry: Vec<u8>,
    source: ArgumentSource,
    allowance: Allowance,
    turn: Turn,
    pipeline: u64,
    n_in_flight: u64,
    flights: VecDeque<Flight>,
    out: Vec<u8>,
    n_out_written: usize,
}

impl Client {
    pub fn new(connection: Connection, source: ArgumentSource, allowance: Allowance, pipeline: u32) -> Self {
        let state = if allowance.n_requests_left == 0 { ClientState::Finished } else { ClientState::Running };
        Self {
            connection,
            state,
            scan: Scan::new(),
            carry: Vec::new(),
            source,
            allowance,
            turn: Turn::default(),
            pipeline: u64::from(pipeline),
            n_in_flight: 0,
            flights: VecDeque::with_capacity(pipeline as usize + 1),
            out: Vec::new(),
            n_out_written: 0,
        }
    }

    pub fn is_rate_limited(&self) -> bool {
        self.allowance.rate.is_some()
    }

    /// Ends the sending; what is in flight is still awaited.
    pub fn stop_sending(&mut self) {
        self.allowance.n_requests_left = 0;
        self.finish_if_idle();
    }

    /// Tops the pipeline up and writes it, as far as the socket takes it.
    #[inline]
    pub fn fill(&mut self, commands: &[Template], now_ns: u64, stats: &mut RunStats) -> io::Result<()> {
        let mut n_allowed = (self.pipeline - self.n_in_flight).min(self.allowance.n_requests_left);
        if let Some(rate) = &mut self.allowance.rate {
            rate.fill(now_ns);
            n_allowed = n_allowed.min(rate.tokens as u64);
            rate.tokens -= n_allowed as f64;
        }
        self.allowance.n_requests_left -= n_allowed;
        for _ in 0..n_allowed {
            let command_index = self.turn.next(commands);
            let before = self.out.len();
            commands[command_index].append_request(command_index, &mut self.source, &mut self.out);
            stats.commands[command_index].tx_bytes += (self.out.len() - before) as u64;
            self.note_sent(command_index, now_ns);
        }
        self.flush()
    }

    #[inline]
    fn note_sent(&mut self, command_index: usize, now_ns: u64) {
        self.n_in_flight += 1;
        match self.flights.back_mut() {
            Some(last) if last.command_index == command_index && last.sent_at_ns == now_ns => {
                last.n_requests += 1;
            }
            _ => self.flights.push_back(Flight { command_index, sent_at_ns: now_ns, n_requests: 1 }),
        }
    }

    /// Writes what is pending until it is gone or the socket is full.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.n_out_written < self.out.len() {
            match self.connection.write(&self.out[self.n_out_written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.n_out_written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        self.n_out_written = 0;
        Ok(())
    }

    /// Reads once into `buffer`, behind what was carried over. Returns the bytes to scan and whether the
    /// socket may hold more; `None` if it holds nothing.
    #[inline]
    pub fn read<'b>(&mut self, buffer: &'b mut Vec<u8>) -> io::Result<Option<(&'b [u8], MayHoldMore)>> {
        let n_carried = self.carry.len();
        // A reply longer than the buffer doubles it, so its bytes are copied a bounded number of times.
        if buffer.len() < n_carried * 2 {
            buffer.resize(n_carried * 2, 0);
        }
        let n = loop {
            match self.connection.read(&mut buffer[n_carried..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        };
        buffer[..n_carried].copy_from_slice(&self.carry);
        self.carry.clear();
        let n_bytes = n_carried + n;
        let may_hold_more = if n_bytes == buffer.len() { MayHoldMore::Yes } else { MayHoldMore::No };
        Ok(Some((&buffer[..n_bytes], may_hold_more)))
    }

    /// Counts the replies in `bytes`, which a read returned at `now_ns`. Returns their number.
    #[inline]
    pub fn take_replies(&mut self, bytes: &[u8], now_ns: u64, stats: &mut RunStats) -> io::Result<u64> {
        let mut at = 0;
        let mut n_replies = 0;
        while let Some(flight) = self.flights.front_mut() {
            let command = &mut stats.commands[flight.command_index];
            let mut n_of_flight = 0;
            while n_of_flight < flight.n_requests {
                let Some(reply) = self.scan.next(bytes, at).map_err(invalid)? else { break };
                let start = std::mem::replace(&mut at, reply.end);
                if reply.is_push() {
                    continue;
                }
                n_of_flight += 1;
                command.rx_bytes += (reply.end - start) as u64;
                if reply.is_null {
                    command.n_misses += 1;
                } else if reply.is_error() {
                    command.n_errors += 1;
                    if stats.first_error.is_none() {
                        let text = String::from_utf8_lossy(&bytes[start + 1..reply.end]);
                        stats.first_error = Some(text.trim_end().to_owned());
                    }
                }
            }
            if n_of_flight > 0 {
                command.n_ops += n_of_flight;
                command.record_latency(now_ns - flight.sent_at_ns, n_of_flight);
                n_replies += n_of_flight;
                flight.n_requests -= n_of_flight;
            }
            if flight.n_requests > 0 {
                break;
            }
            self.flights.pop_front();
        }
        self.n_in_flight -= n_replies;
        // With nothing in flight a push message may come, a reply may not.
        while self.n_in_flight == 0
            && let Some(extra) = self.scan.next(bytes, at).map_err(invalid)?
        {
            if !extra.is_push() {
                return Err(invalid("a reply that no request asked for"));
            }
            at = extra.end;
        }
        self.carry.extend_from_slice(&bytes[at..]);
        self.finish_if_idle();
        Ok(n_replies)
    }

    fn finish_if_idle(&mut self) {
        if self.n_in_flight == 0 && self.allowance.n_requests_left == 0 {
            self.state = ClientState::Finished;
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
