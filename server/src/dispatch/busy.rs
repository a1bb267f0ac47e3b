//! While a script runs too long: its own worker answers from Lua's hook.
//!
//! The loop stands still, so what is needed is done here, on the sockets themselves: connections are accepted and requests are
//! answered `BUSY`, all but SCRIPT KILL and FUNCTION KILL, which are carried out. A request that Redis allows while it is busy and
//! that is none of these waits for the end of the script, as does everything behind it. Other workers see the registry's flag and
//! answer `BUSY` in their gate. Nothing here touches a key.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use skerry_resp::request::{Limits, Parsed, Parser};

use super::Node;
use crate::args::Args;
use crate::client::{Closing, Parked};
use crate::command::Flags;
use crate::commands::{Found, TABLE};
use crate::error::CommandError;
use crate::script::registry::Kill;

/// How often the sockets are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What is looked at of one connection's input at a time.
const LOOKED_AT_BYTES: usize = 16 << 10;
/// Connections accepted while a script runs; more wait.
const MAX_VISITORS: usize = 128;

pub const BUSY: CommandError = CommandError::text(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);

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
}

impl Node {
    /// Called by the hook of a script that runs too long; true if it is to end.
    pub(super) fn while_busy(&mut self, has_written: bool) -> bool {
        self.server.scripts.set_busy(has_written);
        if self.busy.last_look.is_none_or(|last| last.elapsed() >= LOOK_EVERY) {
            self.busy.last_look = Some(Instant::now());
            self.accept_visitors();
            self.answer_visitors();
            self.answer_waiting();
        }
        self.server.scripts.is_to_end() || self.server.is_stopping.load(Relaxed)
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
            !visitor.is_trusted || self.answer_socket(visitor.stream.as_raw_fd()).is_ok()
        });
        self.busy.visitors = visitors;
    }

    /// Own clients that wait for nothing else.
    fn answer_waiting(&mut self) {
        let idle: Vec<RawFd> = self
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
            .map(|client| client.fd)
            .collect();
        for fd in idle {
            // If it is gone, the loop finds out.
            let _ = self.answer_socket(fd);
        }
    }

    /// Answers the complete requests that wait in a socket, as far as they may be answered now.
    fn answer_socket(&mut self, fd: RawFd) -> std::io::Result<()> {
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
            let Some(reply) = self.answer_while_busy(Args::new(text, &ranges)) else { break };
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
    fn answer_while_busy(&self, args: Args<'_>) -> Option<Vec<u8>> {
        let row = match TABLE.find(args) {
            Found::Row(row) => Some(row),
            _ => None,
        };
        let error = |error: &CommandError| Some([b"-".as_slice(), &error.wire(), b"\r\n"].concat());
        match row.map(|row| row.command.name) {
            Some("script|kill") => match self.server.scripts.kill(Kill::Script) {
                Ok(()) => Some(b"+OK\r\n".to_vec()),
                Err(why) => error(&why),
            },
            _ if row.is_some_and(|row| row.command.flags.has(Flags::ALLOW_BUSY)) => None,
            _ => error(&BUSY),
        }
    }
}
