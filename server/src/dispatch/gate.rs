//! The gates in front of every command, in Redis's order (processCommand): unknown name, arity, authentication, memory, transaction.
//!
//! `needs_gate` is the one branch that an ordinary request pays; `gate` is the list.

use skerry_resp::reply::{Proto, Reply};

use super::memory::Room;
use super::wave::Unknown;
use super::{Node, PauseScope};
use crate::args::Args;
use crate::client::{Client, Parked, Queued};
use crate::command::{Command, Flags, Flow, Handler};
use crate::commands::Row;
use crate::error::CommandError;
use crate::script::ScriptFlags;

/// What the gates decide.
pub(super) enum Verdict {
    Run,
    /// The reply is written (an error, or QUEUED).
    Answered,
    Parked(Parked),
}

impl Node {
    #[inline]
    pub(super) fn needs_gate(&self, client: &Client, row: &Row, args: Args<'_>) -> bool {
        !row.command.accepts(args.len())
            || client.multi.is_some()
            || client.subscribed.is_some()
            || client.is_monitor
            || !client.is_authenticated
            || self.is_paused.is_some()
            || self.server.scripts.is_busy()
            || row.is_protected
            || (self.memory.is_limited
                && (row.command.flags.has(Flags::DENYOOM) || row.command.runs_scripts())
                && self.is_over_memory())
    }

    /// The gates, one after the other.
    #[cold]
    pub(super) fn gate(&mut self, client: &mut Client, row: &'static Row, args: Args<'_>) -> Verdict {
        let command = row.command;
        if !command.accepts(args.len()) {
            return self.turn_away(client, row, CommandError::WrongArity(command.name));
        }
        if row.is_protected {
            let origin = crate::commands::config::origin_of(client);
            if !self.config.enable_debug_command.allows(origin) {
                return self.turn_away(client, row, DEBUG_NOT_ALLOWED);
            }
        }
        // The password may have been taken away since the client came.
        let needs_auth = !client.is_authenticated && !self.config.requirepass.is_empty();
        if needs_auth && !command.flags.has(Flags::NO_AUTH) {
            return self.turn_away(client, row, CommandError::NoAuth);
        }
        if client.subscribed.is_some()
            && client.proto == Proto::Resp2
            && let Some(verdict) = self.gate_of_subscriber(client, row, args)
        {
            return verdict;
        }
        if self.server.scripts.is_busy() && !command.flags.has(Flags::ALLOW_BUSY) {
            return self.turn_away(client, row, self.server.scripts.busy_error());
        }
        if client.is_monitor && command.flags.any(Flags::WRITE | Flags::READONLY | Flags::MAY_REPLICATE) {
            let text = "ERR Replica can't interact with the keyspace";
            return self.turn_away(client, row, CommandError::text(text));
        }
        if client.multi.is_some() && command.flags.has(Flags::NO_MULTI) {
            return self.turn_away(
                client,
                row,
                CommandError::text("ERR Command not allowed inside a transaction"),
            );
        }
        if self.memory.is_limited && self.may_grow(client, row, args) {
            match self.make_room() {
                Room::Enough => {}
                Room::None => return self.turn_away(client, row, CommandError::OutOfMemory),
                Room::Soon => {
                    self.paused.push(client.id);
                    return Verdict::Parked(Parked::Pause);
                }
            }
        }
        if let Some(scope) = self.is_paused
            && self.stands_still(client, row, args, scope)
        {
            self.paused.push(client.id);
            return Verdict::Parked(Parked::Pause);
        }
        let is_flow = matches!(
            command.handler,
            Handler::Flow(Flow::Multi | Flow::Exec | Flow::Discard | Flow::Watch | Flow::Quit | Flow::Reset)
        );
        if client.multi.is_some() && !is_flow {
            return self.enqueue(client, row, args);
        }
        Verdict::Run
    }

    /// In RESP2 a subscribed connection knows few commands, for a reply could not be told from a message.
    fn gate_of_subscriber(
        &mut self,
        client: &mut Client,
        row: &'static Row,
        args: Args<'_>,
    ) -> Option<Verdict> {
        const ALLOWED: [&str; 8] = [
            "subscribe",
            "psubscribe",
            "ssubscribe",
            "unsubscribe",
            "punsubscribe",
            "sunsubscribe",
            "quit",
            "reset",
        ];
        let name = row.command.name;
        if name == "ping" && args.len() <= 2 {
            self.reply_here(client, |reply| pong_to_subscriber(reply, args));
            return Some(Verdict::Answered);
        }
        if name == "ping" || ALLOWED.contains(&name) {
            return None;
        }
        let text = format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        );
        Some(self.turn_away(client, row, CommandError::Bytes(text.into_bytes())))
    }

    fn stands_still(&self, client: &Client, row: &Row, args: Args<'_>, scope: PauseScope) -> bool {
        let may_write = |command: &Command, args| {
            command.is_write() && self.script_flags(command, args).is_none_or(ScriptFlags::may_write)
        };
        let writes = match row.command.handler {
            Handler::Flow(Flow::Exec) => {
                let mut queue = client.multi.iter().flat_map(|multi| &multi.queue);
                queue.any(|queued| may_write(queued.command, queued.args()))
            }
            _ => may_write(row.command, args) || row.command.flags.has(Flags::MAY_REPLICATE),
        };
        match scope {
            PauseScope::All => true,
            PauseScope::Writes => writes,
        }
    }

    /// Whether a request is refused when memory is out: a command that may take more, or a transaction that has one.
    fn may_grow(&self, client: &Client, row: &Row, args: Args<'_>) -> bool {
        let may_grow = |command: &Command, args| {
            command.flags.has(Flags::DENYOOM)
                || command.runs_scripts()
                    && self.script_flags(command, args).is_some_and(ScriptFlags::denies_oom)
        };
        match (row.command.handler, &client.multi) {
            (Handler::Flow(Flow::Exec), Some(multi)) => {
                multi.queue.iter().any(|queued| may_grow(queued.command, queued.args()))
            }
            _ => may_grow(row.command, args),
        }
    }

    fn enqueue(&mut self, client: &mut Client, row: &'static Row, args: Args<'_>) -> Verdict {
        let multi = client.multi.as_mut().expect("the caller has seen it");
        let mut text = Vec::with_capacity(args.iter().map(<[u8]>::len).sum());
        let mut ranges = Vec::with_capacity(args.len());
        copy_args(args, &mut text, &mut ranges);
        multi.bytes += text.len() + ranges.len() * 8;
        multi.queue.push(Queued { command: row.command, row: row.id, text, ranges });
        self.reply_here(client, |reply| reply.queued());
        if client.reply_mode != crate::client::ReplyMode::On {
            self.mute(client);
        }
        Verdict::Answered
    }

    /// Refuses the request. If that is EXEC itself, its transaction ends with it.
    fn turn_away(&mut self, client: &mut Client, row: &Row, mut error: CommandError) -> Verdict {
        if matches!(row.command.handler, Handler::Flow(Flow::Exec)) {
            client.multi = None;
            self.forget_watches(client);
            let text = error.wire();
            let reason = text.strip_prefix(b"ERR ").unwrap_or(&text);
            let front = b"EXECABORT Transaction discarded because of: " as &[u8];
            error = CommandError::Bytes([front, reason].concat());
        }
        self.reject(client, Some(row), error);
        Verdict::Answered
    }
}

/// PING of a RESP2 connection that listens: in the form of a message.
pub(super) fn pong_to_subscriber(reply: &mut Reply<'_>, args: Args<'_>) {
    reply.array(2);
    reply.bulk(b"pong");
    reply.bulk(if args.len() == 2 { args.get(1) } else { b"" });
}

const DEBUG_NOT_ALLOWED: CommandError = CommandError::text(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// Whether a request is a line of HTTP.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Copies arguments into one text with their ranges.
pub(super) fn copy_args(
    args: Args<'_>,
    text: &mut Vec<u8>,
    ranges: &mut Vec<skerry_resp::request::ArgRange>,
) {
    for arg in args.iter() {
        let start = text.len() as u32;
        text.extend_from_slice(arg);
        ranges.push(skerry_resp::request::ArgRange { start, end: text.len() as u32 });
    }
}

/// Redis's words for a name that is not in the table.
pub(super) fn unknown_command(unknown: Unknown, args: Args<'_>) -> CommandError {
    match unknown {
        Unknown::Subcommand(row) => {
            let mut text = b"ERR unknown subcommand '".to_vec();
            text.extend_from_slice(&args.get(1)[..args.get(1).len().min(128)]);
            text.extend_from_slice(b"'. Try ");
            text.extend_from_slice(row.command.name.to_ascii_uppercase().as_bytes());
            text.extend_from_slice(b" HELP.");
            CommandError::Bytes(text)
        }
        Unknown::Command => {
            let mut text = b"ERR unknown command '".to_vec();
            text.extend_from_slice(&args.get(0)[..args.get(0).len().min(128)]);
            text.extend_from_slice(b"', with args beginning with: ");
            let mut room = 128usize;
            for arg in args.from(1) {
                if room == 0 {
                    break;
                }
                let shown = &arg[..arg.len().min(room)];
                text.push(b'\'');
                text.extend_from_slice(shown);
                text.extend_from_slice(b"' ");
                room = room.saturating_sub(shown.len() + 3);
            }
            CommandError::Bytes(text)
        }
    }
}
