//! The table: every command row, and the lookup by name. The groups' files hold the rows; this file knows only how to find them.

pub mod bitfield;
pub mod bitmap;
pub mod client;
mod client_tracking;
pub mod cluster;
pub mod command_info;
pub mod config;
pub mod connection;
pub mod debug;
pub mod digest;
pub mod docs;
mod doctor;
mod draw;
pub mod dump;
pub mod functions;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hash_expire;
pub mod hash_reads;
pub mod hotkeys;
pub mod hyperloglog;
pub mod info;
pub mod latency;
pub mod list;
pub mod list_blocking;
pub mod list_moves;
mod lolwut;
pub mod memory;
pub mod object;
mod part;
pub mod pubsub;
mod scan;
pub mod scripting;
mod secrets;
pub mod server;
pub mod set;
pub mod set_cards;
pub mod slowlog;
pub mod sort;
pub mod stream;
pub mod string;
pub mod string_condition;
pub mod string_increx;
pub mod string_lcs;
pub mod string_msetex;
mod subcommand;
mod timeout;
pub mod transactions;
pub mod vectorset;
pub mod wait;
pub mod zset;

use std::sync::LazyLock;

pub use part::{part_bulk, part_integer, part_integers};
pub use secrets::secrets_of;
pub use subcommand::{reply_help, wrong_subcommand};

use crate::args::Args;
use crate::command::{Begin, Command, CommandId, Find, Flags, Handler};

/// Every group's rows.
const GROUPS: &[(&str, &[Command])] = &[
    ("connection", connection::COMMANDS),
    ("server", server::COMMANDS),
    ("server", slowlog::COMMANDS),
    ("server", latency::COMMANDS),
    ("server", hotkeys::COMMANDS),
    ("transactions", transactions::COMMANDS),
    ("generic", generic::COMMANDS),
    ("generic", dump::COMMANDS),
    ("generic", object::COMMANDS),
    ("string", string::COMMANDS),
    ("string", string_condition::COMMANDS),
    ("string", string_increx::COMMANDS),
    ("string", string_lcs::COMMANDS),
    ("string", string_msetex::COMMANDS),
    ("bitmap", bitmap::COMMANDS),
    ("hyperloglog", hyperloglog::COMMANDS),
    ("generic", sort::COMMANDS),
    ("list", list::COMMANDS),
    ("list", list_moves::COMMANDS),
    ("list", list_blocking::COMMANDS),
    ("set", set::COMMANDS),
    ("set", set_cards::COMMANDS),
    ("hash", hash::COMMANDS),
    ("hash", hash_expire::COMMANDS),
    ("hash", hash_reads::COMMANDS),
    ("sorted-set", zset::COMMANDS),
    ("sorted-set", zset::blocking::COMMANDS),
    ("generic", wait::COMMANDS),
    ("geo", geo::COMMANDS),
    ("stream", stream::COMMANDS),
    ("pubsub", pubsub::COMMANDS),
    ("scripting", scripting::COMMANDS),
    ("scripting", functions::COMMANDS),
    ("vectorset", vectorset::COMMANDS),
];

/// How many keys a command's routing has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    None,
    /// Exactly one key, at this argument.
    One(u16),
    Many,
}

/// A row with what routing derives from it.
pub struct Row {
    pub command: &'static Command,
    pub id: CommandId,
    pub shape: KeyShape,
    pub group: &'static str,
    /// It touches more than the first lines of an entry (what lies behind pointers, a string's end): worth fetching ahead.
    pub is_deep: bool,
    /// It may take long, and be cut into slices.
    pub is_vector: bool,
    /// With so many arguments or more each call is timed: it may take long. Below, its work is bounded.
    pub timed_from: u16,
    /// It has no keys of its own and looks at all of them.
    pub is_viewer: bool,
    /// How halves of it, run by two owners, become one reply: it needs no lend then.
    pub halves: Option<Halves>,
    /// Its use depends on `enable-debug-command`.
    pub is_protected: bool,
    /// The rows of its subcommands, by name after the `|`.
    pub subcommands: Vec<(&'static str, CommandId)>,
}

/// How two halves of a command's keys, each answered by its owner, become one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halves {
    /// Array elements, in the order of the keys.
    InKeyOrder,
    /// Integers, added.
    Sum,
    /// Both say OK.
    Ok,
}

fn halves_of(command: &Command) -> Option<Halves> {
    match command.name {
        "mget" => Some(Halves::InKeyOrder),
        "mset" => Some(Halves::Ok),
        "del" | "unlink" | "exists" | "touch" => Some(Halves::Sum),
        _ => None,
    }
}

/// From how many arguments on a command may take long: always, for those that Redis does not call fast, but for a few that do as
/// little.
fn timed_from(command: &Command) -> u16 {
    const MANY: u16 = 64;
    match command.name {
        "set" | "mset" | "mget" | "del" | "unlink" | "setex" | "psetex" => MANY,
        // A count says how much.
        "lpop" | "rpop" | "spop" | "zpopmin" | "zpopmax" => 3,
        _ if command.flags.has(Flags::FAST) => MANY,
        _ => 0,
    }
}

/// All rows and the hash table of top-level names.
pub struct Table {
    rows: Vec<Row>,
    slots: Vec<u16>,
}

/// The process's table.
pub static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

const N_SLOTS: usize = 2048;
const EMPTY: u16 = u16::MAX;
/// No command name is longer; longer words are unknown at once.
const MAX_NAME: usize = 32;

/// What a name resolves to.
pub enum Found<'t> {
    Row(&'t Row),
    UnknownCommand,
    /// The container's row.
    UnknownSubcommand(&'t Row),
}

impl Table {
    fn new() -> Self {
        let mut table = Self { rows: Vec::new(), slots: vec![EMPTY; N_SLOTS] };
        for (group, commands) in GROUPS {
            for command in *commands {
                let top = table.push(command, group);
                let mut names = Vec::new();
                for sub in command.subcommands {
                    let id = table.push(sub, group);
                    let name = sub.name.split_once('|').expect("a subcommand's name is container|name").1;
                    names.push((name, id));
                }
                table.rows[top.0 as usize].subcommands = names;
                let mut at = slot_of_name(command.name.as_bytes());
                while table.slots[at] != EMPTY {
                    at = (at + 1) % N_SLOTS;
                }
                table.slots[at] = top.0;
            }
        }
        assert!(table.rows.len() * 4 < N_SLOTS, "the name table stays sparse");
        table
    }

    fn push(&mut self, command: &'static Command, group: &'static str) -> CommandId {
        let id = CommandId(self.rows.len() as u16);
        let is_protected = command.name == "debug" || command.name.starts_with("debug|");
        let is_viewer = match command.handler {
            Handler::Cursor(_) => true,
            Handler::Split(..) => group == "generic" || matches!(command.name, "dbsize" | "debug|digest"),
            _ => false,
        };
        self.rows.push(Row {
            is_viewer,
            halves: halves_of(command),
            timed_from: timed_from(command),
            command,
            id,
            shape: shape_of(command),
            group,
            is_deep: matches!(group, "list" | "set" | "hash" | "sorted-set" | "geo")
                || command.name == "append",
            is_vector: command.plan.is_some() || matches!(command.handler, Handler::Any(_)),
            is_protected,
            subcommands: Vec::new(),
        });
        id
    }

    #[inline]
    pub fn row(&self, id: CommandId) -> &Row {
        &self.rows[id.0 as usize]
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Top-level rows, in the table's order.
    pub fn top_level(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.command.name.contains('|'))
    }

    /// The top-level row named `name`, in any case.
    #[inline]
    pub fn top(&self, name: &[u8]) -> Option<&Row> {
        if name.len() > MAX_NAME {
            return None;
        }
        let mut at = slot_of_name(name);
        loop {
            let id = self.slots[at];
            if id == EMPTY {
                return None;
            }
            let row = &self.rows[id as usize];
            if row.command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(row);
            }
            at = (at + 1) % N_SLOTS;
        }
    }

    /// `find`, with a memory of the last name: pipelines repeat themselves.
    #[inline]
    pub fn find_again<'t>(&'t self, args: Args<'_>, last: &mut LastName<'t>) -> Found<'t> {
        let name = args.get(0);
        if let Some(word) = short_name(name)
            && last.word == word
            && let Some(row) = last.row
        {
            return Found::Row(row);
        }
        let found = self.find(args);
        if let (Found::Row(row), Some(word)) = (&found, short_name(name))
            && row.subcommands.is_empty()
            && !row.command.name.contains('|')
        {
            *last = LastName { word, row: Some(row) };
        }
        found
    }

    /// The row that a request means: the subcommand's if the command has any.
    #[inline]
    pub fn find(&self, args: Args<'_>) -> Found<'_> {
        let Some(row) = self.top(args.get(0)) else { return Found::UnknownCommand };
        if row.command.subcommands.is_empty() || args.len() == 1 {
            return Found::Row(row);
        }
        self.find_subcommand(row, args.get(1))
    }

    fn find_subcommand<'t>(&'t self, row: &'t Row, name: &[u8]) -> Found<'t> {
        match row.subcommands.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(name)) {
            Some((_, id)) => Found::Row(self.row(*id)),
            // The container itself answers for what is no word of it.
            None if matches!(row.command.handler, Handler::Words) => Found::Row(row),
            None => Found::UnknownSubcommand(row),
        }
    }

    /// The row with this full name (`get`, `client|list`), in any case.
    pub fn full_name(&self, name: &[u8]) -> Option<&Row> {
        self.rows.iter().find(|row| row.command.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The last name that was looked up, as it was written.
#[derive(Clone, Copy, Default)]
pub struct LastName<'t> {
    word: u64,
    row: Option<&'t Row>,
}

/// A name of one to seven bytes as one word, its length in the top byte.
#[inline]
fn short_name(name: &[u8]) -> Option<u64> {
    let word = match *name {
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        [a, b, c, d, e] => u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]),
        [a, b, c, d, e, f] => u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        [a, b, c, d, e, f, g] => u64::from_le_bytes([a, b, c, d, e, f, g, 0]),
        _ => return None,
    };
    Some(word | (name.len() as u64) << 56)
}

fn shape_of(command: &Command) -> KeyShape {
    match command.keys {
        [] => KeyShape::None,
        [spec] => match (spec.begin, spec.find) {
            (Begin::Index(index), Find::Range { last: 0, .. }) => KeyShape::One(index as u16),
            _ => KeyShape::Many,
        },
        _ => KeyShape::Many,
    }
}

/// A slot from the name's length and its first and last eight bytes, letters folded to one case.
#[inline]
fn slot_of_name(name: &[u8]) -> usize {
    let mut word = [0u8; 8];
    let (head, tail) = if name.len() >= 8 {
        let tail = &name[name.len() - 8..];
        word.copy_from_slice(&name[..8]);
        (
            u64::from_le_bytes(word),
            u64::from_le_bytes([tail[0], tail[1], tail[2], tail[3], tail[4], tail[5], tail[6], tail[7]]),
        )
    } else {
        for (to, from) in word.iter_mut().zip(name) {
            *to = *from;
        }
        (u64::from_le_bytes(word), 0)
    };
    // Setting bit 5 folds letters; other bytes may collide, which only costs a probe.
    let fold = 0x2020_2020_2020_2020;
    let mixed = ((head | fold) ^ (tail | fold).rotate_left(29) ^ (name.len() as u64) << 56)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 53) as usize % N_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_in_any_case() {
        let table = &*TABLE;
        for row in table.top_level() {
            let name = row.command.name;
            assert_eq!(table.top(name.to_ascii_lowercase().as_bytes()).map(|r| r.id), Some(row.id), "{name}");
            assert_eq!(table.top(name.to_ascii_uppercase().as_bytes()).map(|r| r.id), Some(row.id), "{name}");
        }
        assert!(table.top(b"no-such-command").is_none());
        assert!(table.top(&[b'x'; 100]).is_none());
    }

    #[test]
    fn every_row_is_documented() {
        for row in TABLE.rows() {
            assert!(!row.command.doc.is_empty(), "{} has no doc line", row.command.name);
        }
    }
}
