//! Which arguments of a request are secrets: logs and MONITOR do not show them.

use super::Row;
use crate::args::{Args, is_word};
use crate::config;

/// The places of the secrets among the arguments.
pub fn secrets_of(row: &Row, args: Args<'_>) -> Vec<usize> {
    match row.command.name {
        "auth" | "acl|setuser" | "acl|deluser" | "acl|getuser" => {
            let first = if row.command.name == "auth" { 1 } else { 2 };
            (first..args.len()).collect()
        }
        "hello" => of_hello(args),
        "config|set" => (2..args.len().saturating_sub(1))
            .step_by(2)
            .filter(|at| config::find(args.get(*at)).is_some_and(config::Directive::is_secret))
            .map(|at| at + 1)
            .collect(),
        _ => Vec::new(),
    }
}

/// HELLO version [AUTH user password] ...
fn of_hello(args: Args<'_>) -> Vec<usize> {
    let auth = (2..args.len()).find(|at| is_word(args.get(*at), "auth"));
    auth.map(|at| (at + 1..(at + 3).min(args.len())).collect()).unwrap_or_default()
}
