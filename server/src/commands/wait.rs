//! WAIT and WAITAOF: acknowledgements of replicas and of the append-only file, neither of which is there. So nothing is ever
//! acknowledged, and what asks for more waits until its time is over.

use super::timeout::deadline_of_ms;
use crate::args::Args;
use crate::command::{Acl, Command, Flags, Flow, Handler, row};
use crate::error::CommandError;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("wait", 3, Handler::Flow(Flow::Wait), "Waits until replicas have the connection's writes (there are none: until the timeout)").flags(Flags::BLOCKING).acl(Acl::CONNECTION).tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    row("waitaof", 4, Handler::Flow(Flow::WaitAof), "Waits until the append-only files have the connection's writes (there are none: until the timeout)").flags(Flags::BLOCKING).acl(Acl::CONNECTION).tips(&["request_policy:all_shards", "response_policy:agg_min"]),
];

/// Whether a request for acknowledgements has what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    Enough,
    /// It waits until then; `None`: for ever.
    TooFew(Option<i64>),
}

/// WAIT numreplicas timeout
pub fn parse_wait(args: Args<'_>, now_ms: i64) -> Result<Acknowledged, CommandError> {
    let n_replicas = args.integer(1)?;
    let deadline_ms = deadline_of_ms(args.get(2), now_ms)?;
    Ok(if n_replicas <= 0 { Acknowledged::Enough } else { Acknowledged::TooFew(deadline_ms) })
}

/// WAITAOF numlocal numreplicas timeout
pub fn parse_waitaof(args: Args<'_>, now_ms: i64) -> Result<Acknowledged, CommandError> {
    let n_local = args.integer(1)?;
    if !(0..=1).contains(&n_local) {
        return Err(CommandError::NotBetween(0, 1));
    }
    let n_replicas = args.integer(2).ok().filter(|n| *n >= 0).ok_or(CommandError::NotPositive)?;
    let deadline_ms = deadline_of_ms(args.get(3), now_ms)?;
    if n_local > 0 {
        return Err(CommandError::text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    Ok(if n_replicas == 0 { Acknowledged::Enough } else { Acknowledged::TooFew(deadline_ms) })
}
