//! The vocabulary of a command row, and what a handler is given.
//!
//! A command is one const row beside the function it names, in its group's file. Lookup, arity errors, COMMAND and its
//! subcommands, ACL categories, routing, MULTI rules, OOM refusal and commandstats derive from the row; there is no second list.
//!
//! The handler's type is the route:
//!
//! | handler | needs | runs on |
//! |---|---|---|
//! | `Plain` | its own bytes only | the worker that received it, as it is parsed |
//! | `Conn`  | the connection only | the worker that received it |
//! | `Shard` | its keys, all local | the owner; if the keys have several owners they are lent to the receiver |
//! | `Split` | a part of every shard, the parts not atomic together | every worker, then merged |
//! | `Cursor`| the shard that a SCAN cursor names | that shard |
//! | `Roaming` | its keys, and those that their values name | as `Shard`; or where all shards are held, if its arguments say so |
//! | `Whole` | all keys of all shards, atomically | every shard while all of them are held |
//! | `Any`   | one published vector set, read-only | the worker that received it |
//! | `Script`| what the script touches, found out before it runs | as `Shard` on its declared keys, or where all shards are held |
//! | `Flow`  | the dispatcher itself (MULTI, EXEC ...) | the worker that received it |

use std::sync::Arc;

use skerry_resp::reply::Reply;

use crate::access::At;
use crate::args::Args;
use crate::blocked::Awaited;
use crate::client::{Client, ClientId, Clients};
use crate::config::Config;
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Key, Keyspace, Touch};
use crate::message::HoldMode;
use crate::output::Placed;
use crate::pubsub::Delivery;
use crate::server::Server;
use crate::shard::{DbIndex, EventClass, Shard, ShardId};
use crate::types::Limits as TypeLimits;
use crate::vector::VectorHandle;
use crate::work::Work;

/// One command or subcommand.
pub struct Command {
    /// Lower case; a subcommand is `container|name`. Vector commands are registered in capitals, as Redis's module does.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i16,
    pub flags: Flags,
    /// ACL categories beyond those that the flags imply.
    pub acl: Acl,
    pub tips: &'static [&'static str],
    pub keys: &'static [KeySpec],
    pub handler: Handler,
    /// What the worker that received it does before the owner's handler runs.
    pub plan: Option<PlanHandler>,
    /// A key that no specification finds (SORT's STORE).
    pub hidden_key: Option<HiddenKey>,
    /// Whether a request may wait for its keys (`Ctx::wait`); never, without it.
    pub may_wait: Option<MayWait>,
    /// One line for the support table.
    pub doc: &'static str,
    pub subcommands: &'static [Command],
}

pub type ShardHandler = fn(&mut Ctx<'_>, Args<'_>) -> Outcome;
/// A handler that answers from its arguments alone.
pub type PlainHandler = fn(&mut Reply<'_>, Args<'_>) -> Outcome;
pub type ConnHandler = fn(&mut Conn<'_>, Args<'_>) -> Outcome;
/// A handler that looks at its arguments first and at what its key holds next: the set, nothing, or another type.
pub type AnyHandler = fn(&mut Ctx<'_>, Result<Option<&VectorHandle>, CommandError>, Args<'_>) -> Outcome;
/// Where a key stands among the arguments, and what is done to it.
pub type HiddenKey = fn(Args<'_>) -> Option<(usize, KeyFlags)>;
/// Whether a request with these arguments may have to wait for a key.
pub type MayWait = fn(Args<'_>) -> bool;
/// Whether keys are looked up that no argument names.
pub type Roams = fn(Args<'_>) -> bool;
/// Plans a write on a set that is at hand, and leaves the plans in `Ctx::work`; or leaves nothing.
pub type PlanHandler = fn(&mut Ctx<'_>, &VectorHandle, Args<'_>);

#[derive(Clone, Copy)]
pub enum Handler {
    Plain(PlainHandler),
    Conn(ConnHandler),
    Shard(ShardHandler),
    Split(ShardHandler, Merge),
    Cursor(ShardHandler),
    /// If `Roams` says so, all shards are held while it runs, and the others are `Ctx::elsewhere`.
    Roaming(ShardHandler, Roams),
    Whole(ShardHandler),
    Any(AnyHandler),
    /// Runs Lua, or compiles it: `dispatch::scripts`.
    Script(Script),
    Flow(Flow),
    /// Only its subcommands run.
    Container,
    /// As `Container`, but COMMAND does not show the subcommands (DEBUG).
    Words,
}

/// Commands that need a worker's Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Eval,
    EvalSha,
    /// SCRIPT LOAD
    Load,
    Fcall,
    /// FUNCTION LOAD
    LoadLibrary,
    /// FUNCTION RESTORE
    RestoreLibraries,
}

impl Script {
    /// Whether a script runs that may call commands.
    pub const fn is_run(self) -> bool {
        matches!(self, Self::Eval | Self::EvalSha | Self::Fcall)
    }
}

/// Commands that change how the dispatcher treats their client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Quit,
    Reset,
    Wait,
    WaitAof,
}

/// How the parts of a `Split` become one reply. Parts are complete RESP replies, in shard order.
#[derive(Clone, Copy)]
pub enum Merge {
    /// Integers, added.
    Sum,
    /// The first error, else the first part.
    AllSucceeded,
    /// Arrays (or sets), joined.
    Concat,
    /// Bulk strings, joined into one (or verbatim strings: `txt:` once).
    Text,
    Custom(fn(&mut Conn<'_>, &[&[u8]], Args<'_>) -> Outcome),
}

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident: $($flag:ident = $text:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $name(pub u32);
        #[allow(non_upper_case_globals, reason = "the list is spelled once")]
        impl $name {
            pub const NONE: Self = Self(0);
            bits!(@consts 0; $($flag)+);
            /// Every bit with its wire name, in the order of the declaration.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$flag, $text)),+];
            pub const fn with(self, other: Self) -> Self { Self(self.0 | other.0) }
            pub const fn has(self, other: Self) -> bool { self.0 & other.0 == other.0 }
            pub const fn any(self, other: Self) -> bool { self.0 & other.0 != 0 }
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| *name)
            }
        }
        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self { self.with(other) }
        }
    };
    (@consts $n:expr; $flag:ident $($rest:ident)*) => {
        pub const $flag: Self = Self(1 << ($n));
        bits!(@consts $n + 1; $($rest)*);
    };
    (@consts $n:expr;) => {};
}

bits! {
    /// Command flags, by Redis's names (COMMAND INFO, element 3).
    Flags:
    WRITE = "write", READONLY = "readonly", DENYOOM = "denyoom", MODULE = "module", ADMIN = "admin", PUBSUB = "pubsub",
    NOSCRIPT = "noscript", BLOCKING = "blocking", LOADING = "loading", STALE = "stale", SKIP_MONITOR = "skip_monitor",
    SKIP_SLOWLOG = "skip_slowlog", ASKING = "asking", FAST = "fast", NO_AUTH = "no_auth", MAY_REPLICATE = "may_replicate",
    NO_MANDATORY_KEYS = "no_mandatory_keys", NO_ASYNC_LOADING = "no_async_loading", NO_MULTI = "no_multi",
    ALLOW_BUSY = "allow_busy", MOVABLEKEYS = "movablekeys", TOUCHES_ARBITRARY_KEYS = "touches_arbitrary_keys",
}

bits! {
    /// ACL categories (COMMAND INFO, element 7).
    Acl:
    KEYSPACE = "@keyspace", READ = "@read", WRITE = "@write", SET = "@set", SORTEDSET = "@sortedset", LIST = "@list",
    HASH = "@hash", STRING = "@string", BITMAP = "@bitmap", HYPERLOGLOG = "@hyperloglog", GEO = "@geo", STREAM = "@stream",
    PUBSUB = "@pubsub", ADMIN = "@admin", FAST = "@fast", SLOW = "@slow", BLOCKING = "@blocking",
    DANGEROUS = "@dangerous", CONNECTION = "@connection", TRANSACTION = "@transaction", SCRIPTING = "@scripting",
}

bits! {
    /// What a key specification says of its keys (COMMAND INFO, element 9).
    KeyFlags:
    RO = "RO", RW = "RW", OW = "OW", RM = "RM", ACCESS = "access", UPDATE = "update", INSERT = "insert", DELETE = "delete",
    NOT_KEY = "not_key", INCOMPLETE = "incomplete", VARIABLE_FLAGS = "variable_flags",
}

/// Where a command's keys stand (<https://redis.io/docs/latest/develop/reference/key-specs/>).
pub struct KeySpec {
    pub notes: Option<&'static str>,
    pub flags: KeyFlags,
    pub begin: Begin,
    pub find: Find,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    Index(i16),
    Keyword { word: &'static str, start_from: i16 },
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    Range { last: i16, step: i16, limit: i16 },
    KeyNum { num_index: i16, first: i16, step: i16 },
    Unknown,
}

impl Command {
    /// Whether `argc` arguments satisfy the arity.
    #[inline]
    pub const fn accepts(&self, argc: usize) -> bool {
        if self.arity >= 0 { argc == self.arity as usize } else { argc >= -(self.arity as isize) as usize }
    }

    /// Whether it may change a key. A script may, unless its command is for reading alone.
    pub const fn is_write(&self) -> bool {
        let is_run = self.runs_scripts();
        self.flags.has(Flags::WRITE) || is_run && !self.flags.has(Flags::READONLY)
    }

    /// Whether it runs a script, which may say more of itself than the row does.
    pub const fn runs_scripts(&self) -> bool {
        matches!(self.handler, Handler::Script(script) if script.is_run())
    }

    /// All ACL categories: those of the row and those that the flags imply.
    pub fn acl_categories(&self) -> Acl {
        if self.flags.has(Flags::MODULE) {
            return self.acl;
        }
        let mut acl = self.acl;
        let implied = [
            (Flags::WRITE, Acl::WRITE),
            (Flags::READONLY, Acl::READ),
            (Flags::ADMIN, Acl::ADMIN.with(Acl::DANGEROUS)),
            (Flags::PUBSUB, Acl::PUBSUB),
            (Flags::BLOCKING, Acl::BLOCKING),
            (Flags::FAST, Acl::FAST),
        ];
        for (flag, category) in implied {
            if self.flags.has(flag) && !(flag == Flags::READONLY && self.acl.has(Acl::SCRIPTING)) {
                acl = acl | category;
            }
        }
        if !acl.has(Acl::FAST) {
            acl = acl | Acl::SLOW;
        }
        acl
    }

    /// COMMAND INFO's first key, last key and step (zeros for keyless commands and those whose keys need a number argument).
    pub fn legacy_range(&self) -> (i64, i64, i64) {
        let mut range: Option<(i64, i64, i64)> = None;
        for spec in self.keys {
            let (Begin::Index(first), Find::Range { last, step, .. }) = (spec.begin, spec.find) else {
                continue;
            };
            let (first, last, step) = (i64::from(first), i64::from(last), i64::from(step));
            let last = if last >= 0 { first + last } else { last };
            range = Some(match range {
                None => (first, last, step),
                // Adjoining ranges become one, as in Redis.
                Some((a, b, s)) if s == 1 && step == 1 && b + 1 == first => (a, last, 1),
                Some(kept) => kept,
            });
        }
        range.unwrap_or((0, 0, 0))
    }

    /// Indices of the keys among the arguments, in order. An argument list that does not fit its own numbers has no keys
    /// (the handler will tell the error).
    pub fn for_each_key(&self, args: Args<'_>, mut visit: impl FnMut(usize, KeyFlags)) {
        for spec in self.keys {
            spec.for_each(args, |index| visit(index, spec.flags));
        }
        if let Some((index, flags)) = self.hidden_key.and_then(|hidden_key| hidden_key(args)) {
            visit(index, flags);
        }
    }

    /// Whether a count of keys in the request cannot be one: no number, none, or more than there are arguments.
    pub fn miscounts_keys(&self, args: Args<'_>) -> bool {
        let mut counted = self.keys.iter().filter(|spec| matches!(spec.find, Find::KeyNum { .. }));
        counted.any(|spec| {
            let mut is_none = true;
            spec.for_each(args, |_| is_none = false);
            is_none
        })
    }
}

impl KeySpec {
    fn for_each(&self, args: Args<'_>, mut visit: impl FnMut(usize)) {
        let argc = args.len();
        let begin = match self.begin {
            Begin::Index(index) => index as usize,
            Begin::Keyword { word, start_from } => {
                let hit = |i: &usize| args.get(*i).eq_ignore_ascii_case(word.as_bytes());
                let found = if start_from >= 0 {
                    (start_from as usize..argc).find(hit)
                } else {
                    (1..argc.saturating_sub(-(start_from as isize) as usize - 1)).rev().find(hit)
                };
                if let (Find::Range { last: 0, .. }, Some(first)) = (self.find, found)
                    && start_from >= 0
                {
                    // An option that names one key may stand there again; the handler takes the last, so all are its keys.
                    (first..argc - 1).filter(hit).for_each(|index| visit(index + 1));
                    return;
                }
                match found {
                    Some(index) => index + 1,
                    None => return,
                }
            }
            Begin::Unknown => return,
        };
        match self.find {
            Find::Range { last, step, limit } => {
                let last = match last {
                    last if last >= 0 => begin + last as usize,
                    last if limit > 1 => {
                        let _ = last;
                        begin + (argc - begin.min(argc)) / limit as usize - 1
                    }
                    last => (argc as isize + last as isize).max(0) as usize,
                };
                let mut index = begin;
                while index <= last && index < argc {
                    visit(index);
                    index += step as usize;
                }
            }
            Find::KeyNum { num_index, first, step } => {
                let at = begin + num_index as usize;
                if at >= argc {
                    return;
                }
                let Some(count) = skerry_resp::number::parse_i64(args.get(at)) else { return };
                let first = begin + first as usize;
                let last = (count.max(1) as usize - 1).saturating_mul(step as usize).saturating_add(first);
                if count <= 0 || last >= argc {
                    return;
                }
                for n in 0..count as usize {
                    visit(first + n * step as usize);
                }
            }
            Find::Unknown => {}
        }
    }
}

/// A row's number in the table; what a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u16);

/// Who asked. Small and copied: it travels with a request to the owning shard.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub client: ClientId,
    pub db: DbIndex,
    pub touch: Touch,
}

/// Keys whose memory is fetched together.
const WAVE: usize = 32;

/// Where a handler puts long strings of its reply, if they need not be copied: (place in the buffer it writes to, string).
pub type Strings<'a> = Option<&'a mut Vec<Placed>>;

/// What a `Shard`, `Split`, `Cursor`, `Roaming`, `Whole` or `Any` handler is given.
pub struct Ctx<'a> {
    pub shard: &'a mut Shard,
    /// The other shards, if the command is `Roaming` and they are all here.
    pub elsewhere: &'a mut [(ShardId, Box<Shard>)],
    /// The connections of this worker (CLIENT LIST and its like; others leave it alone).
    pub clients: &'a mut Clients,
    pub server: &'a Server,
    pub config: &'a Config,
    /// The thresholds of the small encodings.
    pub limits: &'a TypeLimits,
    pub caller: Caller,
    /// Unix time, one value per command.
    pub now_ms: i64,
    pub reply: Reply<'a>,
    /// Takes the long strings that belong into the reply; without it they are copied.
    pub placed: Strings<'a>,
    /// Set by a handler whose work is to be cut into slices; its reply so far is dropped and `Job` writes it instead.
    pub job: Option<Box<dyn Job>>,
    /// Whether the request may wait for its keys; set by the dispatcher.
    pub patience: Patience,
    /// Set by `Ctx::wait`.
    pub wait: Option<Box<Wait>>,
    /// The worker's vector work: what is left of the turn's budget, and what this request had begun.
    pub work: &'a mut Work,
}

/// Whether a handler that finds nothing may have its client wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It answers at once: in a transaction, a script, or a command that never waits.
    None,
    Waits,
}

/// What a client waits for whose command has found nothing: the command runs again, from its start and with all its keys held,
/// whenever one of the keys holds a value of the awaited type, and waits on in its place in line if it finds nothing again.
pub struct Wait {
    /// Unix time at which it is answered with a null array; `None`: it waits for ever.
    pub deadline_ms: Option<i64>,
    pub awaited: Awaited,
    /// Which arguments are the keys that it waits for.
    pub keys: std::ops::Range<usize>,
    /// Arguments whose meaning is fixed when the wait begins, by index (XREAD's `$`): what the command is run again with.
    pub fixed: Vec<(usize, Vec<u8>)>,
}

impl Wait {
    /// For keys alone: the command is run again as it stands.
    pub fn new(awaited: Awaited, keys: std::ops::Range<usize>, deadline_ms: Option<i64>) -> Wait {
        Wait { deadline_ms, awaited, keys, fixed: Vec::new() }
    }
}

impl<'a> Ctx<'a> {
    /// Has the client wait, if it may; else answers a request that finds nothing as `now_or_never` writes it. What the handler
    /// has written to the reply so far is dropped if the client waits. Nothing may have been changed.
    pub fn wait(&mut self, wait: Wait, now_or_never: impl FnOnce(&mut Reply<'a>)) -> Outcome {
        match self.patience {
            Patience::None => now_or_never(&mut self.reply),
            Patience::Waits => self.wait = Some(Box::new(wait)),
        }
        Ok(())
    }

    /// The database of the caller.
    #[inline]
    pub fn keyspace(&mut self) -> &mut Keyspace {
        self.shard.keyspace(self.caller.db)
    }

    /// Where and when to look.
    #[inline]
    pub fn at(&self) -> At {
        At { db: self.caller.db, now_ms: self.now_ms, touch: self.caller.touch }
    }

    /// **The one call by which a write reports itself** (see `Shard::changed`).
    #[inline]
    pub fn changed(&mut self, key: &Key<'_>, class: EventClass, event: &'static str) {
        self.shard.changed_by(self.caller.client, self.caller.db, key.bytes, class, event);
    }

    /// Touches `key` for WATCH: a command that Redis counts as a write has looked at it and changed nothing.
    #[inline]
    pub fn touched(&mut self, key: &Key<'_>) {
        self.shard.touched(self.caller.client, self.caller.db, key.bytes);
    }

    /// Reports `event` on a collection that has lost elements, and removes it if none is left.
    pub fn shrunk(&mut self, key: &Key<'_>, class: EventClass, event: &'static str, is_empty: bool) {
        self.changed(key, class, event);
        if is_empty {
            self.remove_emptied(key);
        }
    }

    /// Removes a key whose collection has lost its last element, and reports it.
    pub fn remove_emptied(&mut self, key: &Key<'_>) {
        self.shard.remove(self.at(), key);
        self.changed(key, EventClass::Generic, "del");
    }

    /// Argument `index` as a key, with its hash.
    #[inline]
    pub fn key<'b>(&self, args: Args<'b>, index: usize) -> Key<'b> {
        let bytes = args.get(index);
        let hash = args.known_hash(index).unwrap_or_else(|| self.server.hash_key(bytes));
        Key { bytes, hash }
    }
}

impl Ctx<'_> {
    /// Calls `visit` with the index and the key of every `step`th argument from 1 on. The keys' memory is asked for before,
    /// for as many keys at a time as a core can wait for together.
    #[inline]
    pub fn for_each_key<'b>(
        &mut self,
        args: Args<'b>,
        step: usize,
        mut visit: impl FnMut(&mut Self, usize, &Key<'b>),
    ) {
        let mut keys = [Key { bytes: b"".as_slice(), hash: 0 }; WAVE];
        for first in (1..args.len()).step_by(WAVE * step) {
            let mut n_keys = 0;
            for index in (first..args.len()).step_by(step).take(WAVE) {
                keys[n_keys] = self.key(args, index);
                self.keyspace().prefetch_bucket(keys[n_keys].hash);
                n_keys += 1;
            }
            for key in &keys[..n_keys] {
                self.keyspace().prefetch_entry(key.hash);
            }
            for (nth, key) in keys[..n_keys].iter().enumerate() {
                visit(self, first + nth * step, key);
            }
        }
    }
}

/// A long command, run in slices between turns.
pub trait Job: Send {
    /// Does a bounded part of the work; true when the reply is complete. What it has written to the reply before that is dropped.
    fn slice(&mut self, ctx: &mut Ctx<'_>) -> Result<bool, CommandError>;

    /// Whether it is to be done before the jobs behind it go on: it has much in memory.
    fn keeps_its_place(&self) -> bool {
        false
    }

    /// The key that it holds from its start to its end, so that nobody sees half of what it does.
    fn held(&self) -> Option<(HoldMode, Key<'_>)> {
        None
    }
}

/// What a `Conn` handler is given.
pub struct Conn<'a> {
    pub client: &'a mut Client,
    pub server: &'a Arc<Server>,
    pub config: &'a Arc<Config>,
    pub now_ms: i64,
    pub reply: Reply<'a>,
    /// What it publishes: sent when the request has its reply.
    pub deliveries: &'a mut Vec<Delivery>,
}

/// Starts a row; the rest is added by the builder functions below.
pub const fn row(name: &'static str, arity: i16, handler: Handler, doc: &'static str) -> Command {
    Command {
        name,
        arity,
        flags: Flags::NONE,
        acl: Acl::NONE,
        tips: &[],
        keys: &[],
        handler,
        plan: None,
        hidden_key: None,
        may_wait: None,
        doc,
        subcommands: &[],
    }
}

impl Command {
    pub const fn flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    pub const fn planned(mut self, plan: PlanHandler) -> Self {
        self.plan = Some(plan);
        self
    }

    pub const fn hidden_key(mut self, hidden_key: HiddenKey) -> Self {
        self.hidden_key = Some(hidden_key);
        self
    }

    pub const fn waits(mut self, may_wait: MayWait) -> Self {
        self.may_wait = Some(may_wait);
        self
    }

    pub const fn acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.keys = keys;
        self
    }

    pub const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }
}

/// Keys at `first`, to `last` (relative to `first`, or from the end if negative), every `step`.
pub const fn range(flags: KeyFlags, first: i16, last: i16, step: i16) -> KeySpec {
    KeySpec { notes: None, flags, begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 } }
}

/// A count at `index`, then that many keys.
pub const fn counted(flags: KeyFlags, index: i16) -> KeySpec {
    KeySpec {
        notes: None,
        flags,
        begin: Begin::Index(index),
        find: Find::KeyNum { num_index: 0, first: 1, step: 1 },
    }
}

impl KeySpec {
    pub const fn notes(mut self, notes: &'static str) -> Self {
        self.notes = Some(notes);
        self
    }
}
