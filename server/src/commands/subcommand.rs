//! What all containers of subcommands answer alike: their HELP, and the error for a request that fits none of
//! them.

use crate::args::Args;
use crate::command::Conn;
use crate::error::CommandError;

/// A HELP text: one status line each.
pub fn reply_help(conn: &mut Conn<'_>, lines: &[&str]) {
    conn.reply.array(lines.len());
    for line in lines {
        conn.reply.simple(line);
    }
}

/// The error of a subcommand that checks its own number of arguments.
pub fn wrong_subcommand(args: Args<'_>, container: &str) -> CommandError {
    const SHOWN: usize = 128;
    let word = args.get(1);
    let shown = &word[..word.len().min(SHOWN)];
    let front = b"ERR unknown subcommand or wrong number of arguments for '" as &[u8];
    CommandError::Bytes([front, shown, b"'. Try ", container.as_bytes(), b" HELP."].concat())
}
