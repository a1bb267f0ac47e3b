//! MONITOR: a line for every command that runs, to the connections that asked.
//!
//! ```text
//!   +1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
//! ```
//!
//! The worker that runs a command writes its line, so lines of one key stand in the order in which its commands ran. Lines of a turn
//! leave together. What is secret is redacted; administrative commands are not shown, as in Redis.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Node;
use super::observed::Call;
use crate::args::Args;
use crate::client::{Client, ClientId};
use crate::command::Flags;
use crate::command_log::REDACTED;
use crate::commands::secrets_of;
use crate::config::words::quote_into;
use crate::message::Told;

/// Lines wait for the end of the turn unless they are so many bytes.
const MAX_TOGETHER_BYTES: usize = 64 << 10;

impl Node {
    /// Writes the line of a call that has run.
    pub(super) fn show_call(&mut self, call: &Call<'_>, args: Args<'_>) {
        if call.row.command.flags.any(Flags::ADMIN | Flags::SKIP_MONITOR) {
            return;
        }
        self.write_line(call, args);
    }

    pub(super) fn write_line(&mut self, call: &Call<'_>, args: Args<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let out = &mut self.shown;
        // Writing to a vector cannot fail.
        let _ = write!(out, "+{}.{:06} [{} ", now.as_secs(), now.subsec_micros(), call.db.0);
        match call.address {
            Some((true, address)) => drop(write!(out, "unix:{address}")),
            Some((false, address)) => out.extend_from_slice(address.as_bytes()),
            None => {
                let card = self.server.connections.card(call.client);
                let scheme = if card.is_unix { "unix:" } else { "" };
                let _ = write!(out, "{scheme}{}", card.address);
            }
        }
        out.push(b']');
        let secrets = secrets_of(call.row, args);
        for (index, arg) in args.iter().enumerate() {
            out.push(b' ');
            quote_into(if secrets.contains(&index) { REDACTED } else { arg }, out);
        }
        out.extend_from_slice(b"\r\n");
        if out.len() > MAX_TOGETHER_BYTES {
            self.send_shown();
        }
    }

    /// Sends the lines that are written.
    #[cold]
    pub(super) fn send_shown(&mut self) {
        let monitors = self.monitors.clone();
        // Only own connections have places here: another worker's id may name a free one.
        let mut own = monitors.iter().filter(|id| id.worker() == self.id);
        if own.any(|id| self.clients.is_out(*id)) && self.shown.len() <= MAX_TOGETHER_BYTES {
            // One of them runs: its lines stand behind its replies.
            return;
        }
        let lines = std::mem::take(&mut self.shown);
        self.tell_clients(Told::Shown { line: &lines }, &monitors, &mut None);
    }

    /// Lines for a connection, if it still monitors.
    pub(super) fn show_line(&mut self, id: ClientId, lines: &[u8]) {
        let Some(mut client) = self.clients.take(id) else { return };
        if client.is_monitor {
            self.push_behind(&mut client, lines);
        }
        self.clients.put_back(client);
    }

    /// Ends a client's MONITOR (RESET, its end).
    pub(super) fn end_monitor(&mut self, client: &mut Client) {
        if std::mem::take(&mut client.is_monitor) {
            self.server.monitors.remove(client.id);
            self.server.touch_config();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quote_into;

    #[test]
    fn arguments_are_quoted_as_redis_quotes_them() {
        let mut out = Vec::new();
        quote_into(b"q\"\\\n\r\t\x07\x08\x00\xff ~\x7f", &mut out);
        assert_eq!(out, br#""q\"\\\n\r\t\a\b\x00\xff ~\x7f""#);
    }
}
