//! Which commands the programs are made of, beside the table of the test of single connections.
//!
//! A timeout that is written `zero` lasts for ever, one of 0.001 (or BLOCK 1) a moment.

use super::author::Subject;
use super::compare::Compare::{Exact, Exec};
use super::counts::name_of;
use super::table::{Row, TABLE, row};
use std::collections::BTreeSet;

/// What waits for elements.
pub(crate) static TAKING: &[Row] = &[
    row(6, "BLPOP list* zero", Exact),
    row(3, "BLPOP list zero", Exact),
    row(4, "BRPOP list* zero", Exact),
    row(1, "BLPOP list 0.001", Exact),
    row(1, "BRPOP key* zero", Exact),
    row(2, "BLMOVE list list LEFT RIGHT zero", Exact),
    row(2, "BLMOVE list list RIGHT LEFT zero", Exact),
    row(1, "BLMOVE list list LEFT LEFT zero", Exact),
    row(1, "BLMOVE pair RIGHT RIGHT 0.001", Exact),
    row(3, "BRPOPLPUSH list list zero", Exact),
    row(2, "BLMPOP zero one list LEFT", Exact),
    row(2, "BLMPOP zero two list list RIGHT COUNT count", Exact),
    row(3, "BZPOPMIN zset* zero", Exact),
    row(3, "BZPOPMAX zset* zero", Exact),
    row(1, "BZPOPMIN zset 0.001", Exact),
    row(2, "BZMPOP zero one zset MIN", Exact),
    row(2, "BZMPOP zero two zset zset MAX COUNT count", Exact),
    row(3, "XREAD BLOCK zero STREAMS stream after", Exact),
    row(3, "XREAD COUNT count BLOCK zero STREAMS stream stream id id", Exact),
    row(1, "XREAD BLOCK 1 STREAMS stream id", Exact),
    row(9, "XREADGROUP GROUP group consumer BLOCK zero STREAMS stream fresh", Exact),
    row(1, "XREADGROUP GROUP group consumer BLOCK 1 STREAMS stream fresh", Exact),
    row(1, "BLPOP list index", Exact),
];

/// What puts something into keys that others wait for.
pub(crate) static FILLING: &[Row] = &[
    row(5, "LPUSH list item", Exact),
    row(5, "RPUSH list item*", Exact),
    row(1, "LPUSHX list item", Exact),
    row(3, "LMOVE list list LEFT RIGHT", Exact),
    row(2, "RPOPLPUSH list list", Exact),
    row(8, "RENAME pair", Exact),
    row(4, "RENAMENX pair", Exact),
    row(8, "COPY pair REPLACE", Exact),
    row(3, "COPY pair DB db REPLACE", Exact),
    row(6, "MOVE key db", Exact),
    row(2, "RPUSH num digit*", Exact),
    row(4, "SORT num STORE list", Exact),
    row(2, "SORT list ALPHA STORE list", Exact),
    row(5, "ZADD zset score member", Exact),
    row(1, "ZINCRBY zset int member", Exact),
    row(4, "ZUNIONSTORE zset two source source", Exact),
    row(2, "ZRANGESTORE zset zset 0 1", Exact),
    row(2, "GEOADD zset place member", Exact),
    row(2, "RESTORE list restorettl payload REPLACE", Exact),
    row(2, "RESTORE zset restorettl payload REPLACE", Exact),
    row(5, "XADD stream newid field val", Exact),
    row(6, "XGROUP CREATE stream group after MKSTREAM", Exact),
    row(2, "XGROUP SETID stream group id", Exact),
];

/// What makes keys go.
pub(crate) static EMPTYING: &[Row] = &[
    row(6, "DEL list*", Exact),
    row(4, "DEL zset*", Exact),
    row(3, "DEL key*", Exact),
    row(2, "DEL stream", Exact),
    row(2, "UNLINK key*", Exact),
    row(3, "LPOP list count", Exact),
    row(2, "LTRIM list 1 0", Exact),
    row(3, "ZPOPMIN zset count", Exact),
    row(1, "SET list val", Exact),
    row(1, "SADD zset member", Exact),
    row(1, "PEXPIRE key -1", Exact),
    row(1, "XGROUP DESTROY stream group", Exact),
    row(1, "FLUSHALL", Exact),
];

/// The same for streams; rows of `TABLE` do the rest.
pub(crate) static STREAM_TAKING: &[Row] = &[
    row(4, "XREAD BLOCK zero STREAMS stream after", Exact),
    row(3, "XREAD COUNT count BLOCK zero STREAMS stream stream after after", Exact),
    row(1, "XREAD BLOCK 1 STREAMS stream id", Exact),
    row(8, "XREADGROUP GROUP group consumer BLOCK zero STREAMS stream fresh", Exact),
    row(4, "XREADGROUP GROUP group consumer COUNT count BLOCK zero STREAMS stream fresh", Exact),
    row(3, "XREADGROUP GROUP group consumer BLOCK zero NOACK STREAMS stream fresh", Exact),
    row(3, "XREADGROUP GROUP group consumer BLOCK zero STREAMS stream stream fresh fresh", Exact),
    row(1, "XREADGROUP GROUP group consumer BLOCK zero STREAMS stream id", Exact),
    row(1, "XREADGROUP GROUP group consumer BLOCK 1 STREAMS stream fresh", Exact),
];
pub(crate) static STREAM_FILLING: &[Row] = &[
    row(24, "XADD stream newid field:val*", Exact),
    row(4, "XADD stream MAXLEN maxlen newid field val", Exact),
    row(3, "RENAME stream stream", Exact),
    row(3, "COPY stream stream REPLACE", Exact),
    row(2, "COPY stream stream DB db REPLACE", Exact),
    row(2, "MOVE stream db", Exact),
    row(6, "XGROUP CREATE stream group zero MKSTREAM", Exact),
    row(3, "XGROUP SETID stream group id", Exact),
];
pub(crate) static STREAM_GROUPS: &[Row] = &[row(1, "XGROUP CREATE stream group zero MKSTREAM", Exact)];
pub(crate) static STREAM_ENTRIES: &[Row] = &[row(1, "XADD stream newid field val", Exact)];
pub(crate) static STREAM_EMPTYING: &[Row] = &[
    row(2, "DEL stream", Exact),
    row(1, "SET stream val", Exact),
    row(1, "PEXPIRE stream -1", Exact),
    row(2, "XGROUP DESTROY stream group", Exact),
    row(2, "XTRIM stream MAXLEN 0", Exact),
    row(1, "FLUSHALL", Exact),
    row(12, "XACK stream group id*", Exact),
    row(8, "XREADGROUP GROUP group consumer STREAMS stream fresh", Exact),
    row(8, "XGROUP CREATE stream group zero MKSTREAM", Exact),
];

/// What has no keys, or no sense.
pub(crate) static KEYLESS: &[Row] = &[
    row(3, "PING", Exact),
    row(3, "ECHO val", Exact),
    row(2, "SELECT db", Exact),
    row(6, "SELECT zero", Exact),
    row(2, "CLIENT GETNAME", Exact),
    row(2, "CLIENT SETNAME item", Exact),
    row(1, "PUBLISH CHANNEL val", Exact),
    row(1, "WAIT 0 0", Exact),
    row(1, "OBJECT HELP", Exact),
    row(2, "SCRIPT FLUSH", Exact),
    row(1, "NOSUCHCOMMAND key", Exact),
    row(1, "GET", Exact),
    row(1, "SET str", Exact),
    row(1, "WATCH key", Exact),
    row(1, "MULTI", Exact),
    row(1, "LPUSH str item", Exact),
    row(1, "INCR list", Exact),
    row(1, "FLUSHDB", Exact),
    row(1, "RESET", Exact),
];

/// The words of a transaction, and what everything hangs on.
pub(crate) static WATCH: &[Row] = &[row(1, "WATCH key*", Exact)];
pub(crate) static MULTI: &[Row] = &[row(1, "MULTI", Exact)];
pub(crate) static EXEC: &[Row] = &[row(30, "EXEC", Exec), row(5, "DISCARD", Exact)];
pub(crate) static DISCARD: &[Row] = &[row(1, "DISCARD", Exact)];
pub(crate) static SWAPDB: &[Row] = &[row(3, "SWAPDB 0 1", Exact), row(1, "SWAPDB db db", Exact)];

impl Subject {
    pub(crate) fn taking(self) -> &'static [Row] {
        if self == Subject::Streams { STREAM_TAKING } else { TAKING }
    }

    pub(crate) fn filling(self) -> &'static [Row] {
        if self == Subject::Streams { STREAM_FILLING } else { FILLING }
    }

    pub(crate) fn emptying(self) -> &'static [Row] {
        if self == Subject::Streams { STREAM_EMPTYING } else { EMPTYING }
    }

    /// The rows of `TABLE` that are drawn, too. Vector sets have tests of their own.
    pub(crate) fn ordinary(self, known: &BTreeSet<String>) -> Vec<&'static Row> {
        let is_drawn = |row: &&Row| {
            let is_stream = row.template.starts_with('X');
            let is_one = match self {
                Subject::Streams => is_stream,
                Subject::Queues => !row.template.starts_with('V'),
            };
            is_one && !row.compare.runs_alone() && known.contains(row.command())
        };
        TABLE.iter().filter(is_drawn).collect()
    }
}

/// A row whose reply is the same on both servers to the last byte.
pub(crate) fn is_exact(row: &Row) -> bool {
    row.compare == Exact
}

/// The names that a run is to have met.
pub(crate) fn names(subject: Subject, known: &BTreeSet<String>) -> BTreeSet<String> {
    let words = |row: &Row| row.template.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let tables = [subject.taking(), subject.filling(), subject.emptying(), WATCH, MULTI, EXEC];
    let rows = tables.into_iter().flatten().chain(subject.ordinary(known));
    let mut names: BTreeSet<String> = rows.map(|row| name_of(&words(row))).collect();
    let others = [
        "SWAPDB",
        "EVAL",
        "EVALSHA",
        "EVAL_RO",
        "EVALSHA_RO",
        "SCRIPT LOAD",
        "SCRIPT EXISTS",
        "SCRIPT FLUSH",
    ];
    names.extend(others.map(str::to_owned));
    names
}

/// Whether a command has a row that scripts call.
pub(crate) fn is_for_scripts(name: &str) -> bool {
    TABLE.iter().any(|row| is_exact(row) && row.command() == name && !row.template.starts_with('V'))
}

pub(crate) fn waiting(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Streams => &["XREAD", "XREADGROUP"],
        Subject::Queues => &[
            "BLPOP",
            "BRPOP",
            "BLMOVE",
            "BRPOPLPUSH",
            "BLMPOP",
            "BZPOPMIN",
            "BZPOPMAX",
            "BZMPOP",
            "XREAD",
            "XREADGROUP",
        ],
    }
}

/// What has to have woken somebody.
pub(crate) fn waking(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Streams => &["XADD", "RENAME", "COPY", "MOVE", "EXEC", "EVAL", "EVALSHA", "SWAPDB"],
        Subject::Queues => &[
            "LPUSH",
            "RPUSH",
            "LMOVE",
            "RENAME",
            "RENAMENX",
            "COPY",
            "MOVE",
            "SORT",
            "ZADD",
            "ZUNIONSTORE",
            "ZRANGESTORE",
            "GEOADD",
            "RESTORE",
            "SWAPDB",
            "XADD",
            "EXEC",
            "EVAL",
            "EVALSHA",
        ],
    }
}
