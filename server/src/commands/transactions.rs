//! Transactions: the rows; the dispatcher runs them (<https://redis.io/docs/latest/commands/?group=transactions>).

use crate::command::{Acl, Command, Flags, Flow, Handler, KeyFlags, range, row};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("multi", 1, Handler::Flow(Flow::Multi), "Starts a transaction: later commands are queued until EXEC.").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::TRANSACTION),
    row("exec", 1, Handler::Flow(Flow::Exec), "Runs the queued commands as one, unless a watched key has changed.").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::SKIP_SLOWLOG).with(Flags::STALE)).acl(Acl::TRANSACTION),
    row("discard", 1, Handler::Flow(Flow::Discard), "Drops the queued commands and the watches.").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::TRANSACTION),
    row("watch", -2, Handler::Flow(Flow::Watch), "Makes the next EXEC depend on these keys staying as they are.").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::TRANSACTION).keys(&[range(KeyFlags::RO, 1, -1, 1)]),
    row("unwatch", 1, Handler::Flow(Flow::Unwatch), "Forgets all watched keys.").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::TRANSACTION),
];
