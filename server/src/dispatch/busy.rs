//! While a script runs too long: its own worker answers from Lua's hook.
//!
//! The loop stands still, so what is needed is done here, on the sockets themselves: connections are accepted and requests are
//! answered `BUSY`, all but SCRIPT KILL, FUNCTION KILL and FUNCTION STATS, which are carried out. A request that Redis allows while it is busy and
//! that is none of these waits for the end of the script, as does everything behind it. Other workers see the registry's flag and
//! answer `BUSY` in their gate. Nothing here touches a key.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use skerry_resp::reply::{Proto, Reply};
use skerry_resp::request::{Limits, Parsed, Parser};

use super::Node;
use crate::args::Args;
use crate::client::{Closing, Parked};
use crate::command::Flags;
use crate::commands::functions::reply_stats;
use crate::commands::{Found, TABLE};
use crate::script::registry::{Kill, Running};
use crate::server::WorkerStats;

/// How often the sockets are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What is looked at of one connection's input at a time.
const LOOKED_AT_BYTES: usize = 16 << 10;
/// Connections accepted while a script runs; more wait.
const MAX_VISITORS: usize = 128;

/// A connection that came while a script ran, until the loop takes it.
pub struct Visitor {
    pub stream: TcpStream,
    pub address: SocketAddr,
    is_trusted: bool,
}

/// What this worker does while a script keeps it busy.
#[derive(Default)]
pub(super) struct Busy {
    pub(super) last_look: Option<Instant>,
    visitors: Vec<Visitor>,
    /// Hands new connections to a worker that can answer them.
    hand_back: Option<Box<dyn FnMut() + Send>>,
}

impl Node {
    /// Called by the hook of a script that runs too long; true if it is to end. `running` says which function that is, if it is one.
    pub(super) fn while_busy(
        &mut self,
        has_written: bool,
        running: impl FnOnce() -> Option<Running>,
    ) -> bool {
        if self.busy.last_look.is_none() || !self.server.scripts.is_busy() {
            self.server.scripts.begin_busy(running());
        }
        if has_written {
            self.server.scripts.set_writer();
        }
        if self.busy.last_look.is_none_or(|last| last.elapsed() >= LOOK_EVERY) {
            self.busy.last_look = Some(Instant::now());
            if let Some(hand_back) = &mut self.busy.hand_back {
                hand_back();
            }
            self.write_waiting();
            self.accept_visitors();
            self.answer_visitors();
            self.answer_waiting();
        }
        // Of two that run too long, one that has written is not ended with the other.
        self.server.scripts.is_to_end() && !has_written || self.server.is_stopping.load(Relaxed)
    }

    /// What is called now and then while a script keeps this worker busy.
    pub fn while_scripts_run(&mut self, hand_back: Box<dyn FnMut() + Send>) {
        self.busy.hand_back = Some(hand_back);
    }

    /// Connections that came while a script ran: the loop's from here on.
    pub fn take_visitors(&mut self) -> Vec<Visitor> {
        std::mem::take(&mut self.busy.visitors)
    }

    fn accept_visitors(&mut self) {
        if self.id.0 != 0 {
            return;
        }
        let listening = self.server.listening.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in listening.iter() {
            let Ok(socket) = socket.try_clone() else { continue };
            let listener = TcpListener::from(socket);
            while self.busy.visitors.len() < MAX_VISITORS {
                let Ok((stream, address)) = listener.accept() else { break };
                let is_trusted = self.config.requirepass.is_empty()
                    && (!self.config.protected_mode || address.ip().is_loopback());
                if stream.set_nonblocking(true).is_ok() {
                    self.busy.visitors.push(Visitor { stream, address, is_trusted });
                }
            }
        }
    }

    fn answer_visitors(&mut self) {
        let mut visitors = std::mem::take(&mut self.busy.visitors);
        visitors.retain_mut(|visitor| {
            !visitor.is_trusted || self.answer_socket(visitor.stream.as_raw_fd(), Proto::Resp2).is_ok()
        });
        self.busy.visitors = visitors;
    }

    /// Replies that were ready before the script began, in its turn.
    fn write_waiting(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.fd >= 0 && client.closing == Closing::No)
        {
            while client.out_at < client.out.len() {
                let piece = client.placed.next_piece(&client.out, client.out_at);
                // SAFETY: the piece is of that length; the descriptor is open, for its connection is.
                let n = unsafe {
                    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                    libc::send(client.fd, piece.as_ptr().cast(), piece.len(), flags)
                };
                let Some(n) = usize::try_from(n).ok().filter(|n| *n > 0) else { break };
                client.placed.wrote(&mut client.out_at, n);
                client.bytes_out += n as u64;
            }
        }
    }

    /// Own clients that wait for nothing else.
    fn answer_waiting(&mut self) {
        let idle: Vec<(RawFd, Proto)> = self
            .clients
            .iter()
            .filter(|client| {
                client.fd >= 0
                    && client.pending.is_empty()
                    && client.query.len() == client.query_at
                    && client.out.len() == client.out_at
                    && client.parked == Parked::No
                    && client.closing == Closing::No
                    && client.multi.is_none()
                    && client.subscribed.is_none()
                    && (client.is_authenticated || self.config.requirepass.is_empty())
            })
            .map(|client| (client.fd, client.proto))
            .collect();
        for (fd, proto) in idle {
            // If it is gone, the loop finds out.
            let _ = self.answer_socket(fd, proto);
        }
    }

    /// Answers the complete requests that wait in a socket, as far as they may be answered now.
    fn answer_socket(&mut self, fd: RawFd, proto: Proto) -> std::io::Result<()> {
        let mut bytes = [0u8; LOOKED_AT_BYTES];
        // SAFETY: the buffer is ours, of that size; the descriptor is open, for its connection is.
        let n = unsafe {
            libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        if n == 0 {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let Ok(n) = usize::try_from(n) else { return Ok(()) };
        let (mut parser, mut ranges) = (Parser::default(), Vec::new());
        let mut at = 0;
        let mut replies = Vec::new();
        while at < n {
            ranges.clear();
            let end = match parser.parse(&bytes[..n], at, &mut ranges, &Limits::default()) {
                Ok(Parsed::Request { end, .. } | Parsed::Inline { end, .. }) => end,
                Ok(Parsed::Empty { end }) => {
                    at = end;
                    continue;
                }
                _ => break,
            };
            let is_inline = bytes[at] != b'*';
            let text = if is_inline { parser.inline_text() } else { &bytes[..n] };
            let Some(reply) = self.answer_while_busy(Args::new(text, &ranges), proto) else { break };
            replies.extend_from_slice(&reply);
            at = end;
        }
        // Taken out of the socket, and answered.
        // SAFETY: as above; `at` bytes are there, for they were seen.
        unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), at, libc::MSG_DONTWAIT) };
        // SAFETY: as above.
        unsafe {
            libc::send(fd, replies.as_ptr().cast(), replies.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        };
        Ok(())
    }

    /// The reply of a request while a script runs; nothing if it has to wait.
    fn answer_while_busy(&self, args: Args<'_>, proto: Proto) -> Option<Vec<u8>> {
        let row = match TABLE.find(args) {
            Found::Row(row) => Some(row),
            _ => None,
        };
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, proto);
        let outcome = match row.map(|row| (row.command.name, row.command.accepts(args.len()))) {
            Some(("script|kill", true)) => self.server.scripts.kill(Kill::Script).map(|()| reply.ok()),
            Some(("function|kill", true)) => self.server.scripts.kill(Kill::Function).map(|()| reply.ok()),
            Some(("function|stats", true)) => reply_stats(&mut reply, &self.server),
            _ if row.is_some_and(|row| row.command.flags.has(Flags::ALLOW_BUSY)) => return None,
            _ => Err(self.server.scripts.busy_error()),
        };
        if let Err(error) = outcome {
            let text = error.wire();
            self.stats.reject(row.map(|row| row.id), &text);
            WorkerStats::add(&self.own_stats().error_replies, 1);
            out.clear();
            Reply::new(&mut out, proto).error(text);
        }
        Some(out)
    }
}
