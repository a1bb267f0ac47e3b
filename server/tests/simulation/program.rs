//! What the clients of a simulation send: random programs from a seed, and the order rule between a client's own operations.

use std::collections::BTreeSet;

use skerry_server::commands::TABLE;
use skerry_server::script::{Reach, Source};
use skerry_server::server::Server;

use crate::model::{Action, Word};
use crate::rng::Rng;
use crate::scripts::{Call, Guard, script_keys, script_of};

/// Which commands a program draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Everything,
    /// String commands on one and several keys: what the planted faults can imitate.
    Strings,
    /// Transactions and WATCH above all.
    Transactions,
    /// Long pipelines of few commands.
    Runs,
    /// Lists, and clients that wait for them.
    Lists,
    /// Scripts on keys of one shard, of several, and on those that they do not declare, among lists and clients that wait.
    Scripts,
    /// Scripts on declared strings, and string commands: what the planted faults can imitate.
    StringScripts,
    /// Vector sets that grow, shrink, go and come back under the plans for them.
    Vectors,
}

/// What a request's reply has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The answer of the operation.
    Operation(usize),
    /// The answer of several operations, up to (not with) the last number: WATCH, a part on each shard.
    Parts(usize, usize),
    Ok,
    Queued,
    /// A number that no order of operations fixes (DBSIZE outside a transaction: its parts are not atomic together).
    Count,
}

pub struct Request {
    pub argv: Vec<Word>,
    pub expect: Expect,
}

/// An operation as the client means it.
pub struct Intent {
    pub db: usize,
    pub action: Action,
    pub facts: Facts,
}

/// One client's program.
#[derive(Default)]
pub struct Program {
    pub requests: Vec<Request>,
    pub intents: Vec<Intent>,
}

/// What the order rule needs to know of an operation.
#[derive(Clone)]
pub struct Facts {
    name: String,
    keys: BTreeSet<Word>,
    /// Shards it touches.
    mask: u64,
    is_write: bool,
    is_lend: bool,
    /// Nothing of its client runs before it has its answer.
    blocks: bool,
}

const KEY_POOL: &[&str] = &["ant", "bee", "cow", "deer", "eel", "fox", "gnu", "hare"];

/// The keys in play: four to six, on at least two shards, two of them bound by a hash tag.
pub fn keys_in_play(random: &mut Rng, server: &Server) -> Vec<Word> {
    loop {
        let mut keys: Vec<Word> = vec![b"{t}x".to_vec(), b"{t}y".to_vec()];
        for _ in 0..2 + random.below(3) {
            keys.push(random.pick(KEY_POOL).as_bytes().to_vec());
        }
        keys.sort();
        keys.dedup();
        let shards: BTreeSet<_> = keys.iter().map(|key| server.shard_of(key)).collect();
        if keys.len() >= 4 && shards.len() >= 2 {
            return keys;
        }
    }
}

/// Writes the program of one client.
pub struct Author<'a> {
    pub random: &'a mut Rng,
    pub server: &'a Server,
    pub keys: &'a [Word],
    pub profile: Profile,
    pub client: usize,
    program: Program,
    db: usize,
    watched: BTreeSet<Word>,
    n_values: usize,
    is_on_one_shard: bool,
}

const MAX_TRIES: usize = 30;

impl<'a> Author<'a> {
    pub fn new(
        random: &'a mut Rng,
        server: &'a Server,
        keys: &'a [Word],
        profile: Profile,
        client: usize,
    ) -> Self {
        let program = Program::default();
        let (watched, n_values, is_on_one_shard) = (BTreeSet::new(), 0, false);
        Self { random, server, keys, profile, client, program, db: 0, watched, n_values, is_on_one_shard }
    }

    pub fn write(mut self, n_operations: usize) -> Program {
        let run = self.random.below(4);
        while self.program.intents.len() < n_operations {
            match self.profile {
                Profile::Strings => {
                    let argv = self.string_command();
                    self.operation(argv);
                }
                Profile::Runs => {
                    let argv = match run {
                        0 => self.on_many("MSET", true),
                        1 => self.on_many("MGET", false),
                        2 => self.on_one("INCR", 0),
                        _ => self.string_command(),
                    };
                    self.operation(argv);
                    if self.random.chance(4) {
                        let argv = self.string_command();
                        self.operation(argv);
                    }
                }
                Profile::Lists => match self.random.below(24) {
                    0 => self.watch(),
                    1 | 2 => self.transaction(),
                    3 => self.whole(),
                    4 | 5 => {
                        let argv = self.unblock();
                        self.operation(argv);
                    }
                    _ => {
                        let argv = self.any_command();
                        self.operation(argv);
                    }
                },
                Profile::Scripts => match self.random.below(24) {
                    0 => self.watch(),
                    1..4 => self.transaction(),
                    4 => self.whole(),
                    5 => {
                        let argv = self.unblock();
                        self.operation(argv);
                    }
                    _ => {
                        let argv = self.any_command();
                        self.operation(argv);
                    }
                },
                Profile::StringScripts => {
                    let argv = self.any_command();
                    self.operation(argv);
                }
                Profile::Vectors => match self.random.below(20) {
                    0 => self.watch(),
                    1 => self.transaction(),
                    2 => self.whole(),
                    _ => {
                        let argv = self.any_command();
                        self.operation(argv);
                    }
                },
                Profile::Transactions => match self.random.below(6) {
                    0 | 1 => self.watch(),
                    2..4 => self.transaction(),
                    _ => {
                        let argv = self.any_command();
                        self.operation(argv);
                    }
                },
                Profile::Everything => match self.random.below(24) {
                    0 => self.watch(),
                    1 | 2 => self.transaction(),
                    3 => self.whole(),
                    4 => self.aside(),
                    _ => {
                        let argv = self.any_command();
                        self.operation(argv);
                    }
                },
            }
        }
        self.program
    }

    fn request(&mut self, argv: Vec<Word>, expect: Expect) {
        self.program.requests.push(Request { argv, expect });
    }

    fn operation(&mut self, argv: Vec<Word>) {
        let facts = self.facts_of(&argv);
        self.intend(Action::Command(argv.clone()), facts);
        let at = self.program.intents.len() - 1;
        self.request(argv, Expect::Operation(at));
    }

    fn intend(&mut self, action: Action, facts: Facts) {
        self.program.intents.push(Intent { db: self.db, action, facts });
    }

    fn key(&mut self) -> Word {
        for _ in 0..MAX_TRIES {
            let key = self.random.pick(self.keys).clone();
            if self.may_use(&key) {
                return key;
            }
        }
        self.keys[0].clone()
    }

    /// A script of one shard keeps to the shard of the first key.
    fn may_use(&self, key: &[u8]) -> bool {
        !self.is_on_one_shard || self.server.shard_of(key) == self.server.shard_of(&self.keys[0])
    }

    /// Mostly a value that no other operation writes; sometimes a number.
    fn value(&mut self) -> Word {
        self.n_values += 1;
        match self.random.below(4) {
            0 => self.random.below(9).to_string().into_bytes(),
            1 => format!("{}.{}.{}", self.client, self.n_values, "#".repeat(70)).into_bytes(),
            _ => format!("{}.{}", self.client, self.n_values).into_bytes(),
        }
    }

    fn on_one(&mut self, name: &str, n_values: usize) -> Vec<Word> {
        let mut argv = vec![name.as_bytes().to_vec(), self.key()];
        for _ in 0..n_values {
            argv.push(self.value());
        }
        argv
    }

    fn on_many(&mut self, name: &str, with_values: bool) -> Vec<Word> {
        let mut argv = vec![name.as_bytes().to_vec()];
        for _ in 0..1 + self.random.below(4) {
            argv.push(self.key());
            if with_values {
                argv.push(self.value());
            }
        }
        argv
    }

    fn string_command(&mut self) -> Vec<Word> {
        match self.random.below(12) {
            0 | 1 => self.on_one("SET", 1),
            2 | 3 => self.on_one("GET", 0),
            4 => self.on_one("INCR", 0),
            5 => self.on_one("APPEND", 1),
            6 => self.on_one("GETSET", 1),
            7 | 8 => self.on_many("MSET", true),
            9 | 10 => self.on_many("MGET", false),
            _ => self.on_many("MSETNX", true),
        }
    }

    /// On the first two of the keys, so that the sets grow.
    fn vector_command(&mut self) -> Vec<Word> {
        let key = self.keys[self.random.below(2)].clone();
        let element = format!("e{}", self.random.below(8)).into_bytes();
        let word = |text: &str| text.as_bytes().to_vec();
        match self.random.below(16) {
            0..8 => {
                self.n_values += 1;
                let (x, y) = (self.n_values.to_string(), (1 + self.client).to_string());
                let vector = [&b"VALUES"[..], b"2", x.as_bytes(), y.as_bytes()].map(<[u8]>::to_vec);
                let mut argv = vec![word("VADD"), key];
                argv.extend(vector);
                argv.extend([element, word("NOQUANT"), word("M"), word("4")]);
                argv
            }
            8 | 9 => vec![word("VREM"), key, element],
            10 => vec![word("VISMEMBER"), key, element],
            11 => vec![word("VCARD"), key],
            12 => [&b"VSIM"[..], &key, b"VALUES", b"2", b"1", b"1", b"COUNT", b"100"]
                .map(<[u8]>::to_vec)
                .to_vec(),
            13 => vec![word("DEL"), key],
            14 => vec![word("RENAME"), key, self.keys[self.random.below(2)].clone()],
            _ => self.string_command(),
        }
    }

    /// On the first three of the keys, and mostly on the first: so they meet.
    fn list_key(&mut self) -> Word {
        for _ in 0..MAX_TRIES {
            let at = self.random.below(3).min(self.random.below(3));
            if self.may_use(&self.keys[at]) {
                return self.keys[at].clone();
            }
        }
        self.keys[0].clone()
    }

    /// EVAL or EVAL_RO of one to three commands, some of which may fail; perhaps it ends by an error of its own.
    fn script(&mut self) -> Vec<Word> {
        let is_read_only = self.random.chance(5);
        let is_declared = self.profile == Profile::StringScripts || self.random.below(5) < 3;
        self.is_on_one_shard = is_declared && self.random.chance(2);
        let mut steps = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let argv = match is_read_only && !self.random.chance(10) {
                true => self.reading(),
                false => self.plain_command(),
            };
            let guard = if self.random.chance(3) { Guard::Protected } else { Guard::Raising };
            steps.push(Call { guard, argv });
        }
        self.is_on_one_shard = false;
        if self.random.chance(7) {
            let at = self.random.below(steps.len() + 1);
            steps.insert(at, Call { guard: Guard::Error, argv: Vec::new() });
        }
        let name = if is_read_only { "EVAL_RO" } else { "EVAL" };
        script_of(name, &steps, is_declared, self.keys)
    }

    fn reading(&mut self) -> Vec<Word> {
        match self.random.below(4) {
            0 => self.on_many("MGET", false),
            1 if self.profile == Profile::Scripts => vec![b"LLEN".to_vec(), self.list_key()],
            2 => self.on_many("EXISTS", false),
            _ => self.on_one("GET", 0),
        }
    }

    fn element(&mut self) -> Word {
        self.n_values += 1;
        format!("{}.{}", self.client, self.n_values).into_bytes()
    }

    fn list_command(&mut self) -> Vec<Word> {
        let word = |text: &str| text.as_bytes().to_vec();
        let timeout = match self.random.below(3) {
            0 => word("0"),
            1 => word("0.002"),
            _ => word("0.02"),
        };
        let key = self.list_key();
        match self.random.below(26) {
            0..6 => {
                let mut argv = vec![word("RPUSH"), key];
                for _ in 0..1 + self.random.below(2) {
                    argv.push(self.element());
                }
                argv
            }
            6..12 => {
                let mut argv = vec![word("BLPOP")];
                for _ in 0..1 + self.random.below(3) {
                    argv.push(self.list_key());
                }
                argv.push(timeout);
                argv
            }
            12..15 => vec![word("BLMOVE"), key, self.list_key(), word("LEFT"), word("RIGHT"), timeout],
            15 => vec![word("LMOVE"), key, self.list_key(), word("LEFT"), word("RIGHT")],
            16 | 17 => vec![word("LPOP"), key],
            18 => vec![word("LLEN"), key],
            19 => vec![word("LRANGE"), key, word("0"), word("-1")],
            20 => vec![word("DEL"), key, self.list_key()],
            21 | 22 => vec![word("RENAME"), self.key(), key],
            23 => vec![word("COPY"), self.key(), key],
            24 => {
                let mut argv = vec![word("SET"), key];
                argv.push(self.element());
                argv
            }
            _ => vec![word("SADD"), key, word("m")],
        }
    }

    /// CLIENT UNBLOCK, of any client.
    fn unblock(&mut self) -> Vec<Word> {
        let number = (1 + self.random.below(crate::N_CLIENTS)).to_string().into_bytes();
        let mut argv = vec![b"CLIENT".to_vec(), b"UNBLOCK".to_vec(), number];
        if self.random.chance(2) {
            argv.push(b"ERROR".to_vec());
        }
        argv
    }

    fn any_command(&mut self) -> Vec<Word> {
        let is_about_scripts = matches!(self.profile, Profile::Scripts | Profile::StringScripts);
        if is_about_scripts && self.random.chance(3)
            || self.profile == Profile::Everything && self.random.chance(16)
        {
            return self.script();
        }
        self.plain_command()
    }

    fn plain_command(&mut self) -> Vec<Word> {
        if self.profile == Profile::StringScripts {
            return self.string_command();
        }
        if self.profile == Profile::Scripts && self.random.chance(2) {
            return self.list_command();
        }
        if self.profile == Profile::Lists {
            return self.list_command();
        }
        if self.profile == Profile::Vectors {
            return self.vector_command();
        }
        match self.random.below(22) {
            0 => self.on_many("DEL", false),
            1 => self.on_many("EXISTS", false),
            2 | 3 => vec![b"RENAME".to_vec(), self.key(), self.key()],
            4 => vec![b"COPY".to_vec(), self.key(), self.key()],
            5 | 6 => {
                let (key, member) = (self.key(), self.random.below(4).to_string().into_bytes());
                vec![b"SADD".to_vec(), key, member, b"m".to_vec()]
            }
            7 => self.on_one("SMEMBERS", 0),
            8 => vec![b"SINTERSTORE".to_vec(), self.key(), self.key(), self.key()],
            9 => vec![b"PING".to_vec()],
            _ => self.string_command(),
        }
    }

    fn whole(&mut self) {
        let argv = match self.random.below(3) {
            0 => vec![b"FLUSHALL".to_vec()],
            _ => vec![b"SWAPDB".to_vec(), b"0".to_vec(), b"1".to_vec()],
        };
        self.operation(argv);
    }

    /// What stands beside the operations: another database, a count.
    fn aside(&mut self) {
        if self.random.chance(2) {
            self.request(vec![b"DBSIZE".to_vec()], Expect::Count);
        } else {
            self.db = self.random.below(crate::model::N_DATABASES);
            self.request(vec![b"SELECT".to_vec(), self.db.to_string().into_bytes()], Expect::Ok);
        }
    }

    fn watch(&mut self) {
        if self.random.chance(5) {
            self.operation(vec![b"UNWATCH".to_vec()]);
            self.watched.clear();
            return;
        }
        let mut argv = vec![b"WATCH".to_vec()];
        for _ in 0..1 + self.random.below(2) {
            argv.push(self.key());
        }
        self.watched.extend(argv[1..].iter().cloned());
        let first = self.program.intents.len();
        for shard in 0..self.server.n_shards {
            let here = argv[1..].iter().filter(|key| usize::from(self.server.shard_of(key).0) == shard);
            let part: Vec<Word> = argv[..1].iter().chain(here).cloned().collect();
            if part.len() > 1 {
                let facts = self.facts_of(&part);
                self.intend(Action::Command(part), facts);
            }
        }
        let last = self.program.intents.len();
        self.request(argv, Expect::Parts(first, last));
    }

    fn transaction(&mut self) {
        self.request(vec![b"MULTI".to_vec()], Expect::Ok);
        let mut queue = Vec::new();
        for _ in 0..self.random.below(4) {
            queue.push(self.any_command());
        }
        if self.random.chance(6) {
            queue.push(vec![self.random.pick(&[&b"DBSIZE"[..], b"FLUSHALL"]).to_vec()]);
        }
        for argv in &queue {
            self.request(argv.clone(), Expect::Queued);
        }
        let mut facts = self.facts_of(&[b"EXEC".to_vec()]);
        facts.keys = std::mem::take(&mut self.watched);
        let all = self.all_shards();
        for argv in &queue {
            let queued = self.facts_of(argv);
            facts.keys.extend(queued.keys);
            if queued.mask == all && queued.is_lend {
                facts.mask = all;
            }
        }
        for key in &facts.keys {
            facts.mask |= 1 << self.server.shard_of(key).0;
        }
        facts.is_write = true;
        facts.is_lend = true;
        facts.blocks = false;
        self.intend(Action::Transaction(queue), facts);
        let at = self.program.intents.len() - 1;
        self.request(vec![b"EXEC".to_vec()], Expect::Operation(at));
    }

    fn all_shards(&self) -> u64 {
        (1 << self.server.n_shards) - 1
    }

    fn facts_of(&self, argv: &[Word]) -> Facts {
        let name = String::from_utf8(argv[0].to_ascii_lowercase()).expect("names are ASCII");
        let command = TABLE.full_name(name.as_bytes()).expect("programs use commands of the table").command;
        let keys: BTreeSet<Word> = match name.as_str() {
            "mset" | "msetnx" => argv[1..].iter().step_by(2).cloned().collect(),
            "set" | "append" | "getset" | "sadd" | "vadd" | "vrem" | "vismember" | "vcard" | "vsim" => {
                [argv[1].clone()].into()
            }
            "rpush" | "lpop" | "llen" | "lrange" => [argv[1].clone()].into(),
            "lmove" | "blmove" => argv[1..3].iter().cloned().collect(),
            "blpop" => argv[1..argv.len() - 1].iter().cloned().collect(),
            "eval" | "eval_ro" => script_keys(argv),
            "ping" | "swapdb" | "select" | "client" => BTreeSet::new(),
            _ => argv[1..].iter().cloned().collect(),
        };
        let mut mask = keys.iter().fold(0u64, |mask, key| mask | 1 << self.server.shard_of(key).0);
        let is_script = matches!(name.as_str(), "eval" | "eval_ro");
        let is_whole = matches!(name.as_str(), "flushall" | "swapdb" | "dbsize")
            || is_script && Source::read(&argv[1]).is_ok_and(|source| source.reach == Reach::All);
        if is_whole {
            mask = self.all_shards();
        }
        let is_lend = mask.count_ones() > 1 || is_script;
        let blocks = command.may_wait.is_some();
        Facts { is_write: command.is_write(), is_lend, blocks, name, keys, mask }
    }
}

impl Facts {
    /// Whether it touches several shards.
    pub fn is_spread(&self) -> bool {
        self.mask.count_ones() > 1
    }

    /// Whether `self`, sent earlier by the same client, comes before `later` (the rule stands in `simulation.rs`).
    pub fn comes_before(&self, later: &Facts) -> bool {
        let is_watching = |facts: &Facts| matches!(facts.name.as_str(), "watch" | "unwatch" | "exec");
        if is_watching(self) && is_watching(later) {
            // Watches add up; their order among themselves shows nowhere.
            return !(self.name == "watch" && later.name == "watch");
        }
        if self.blocks {
            return true;
        }
        let is_apart = |facts: &Facts| matches!(facts.name.as_str(), "ping" | "client");
        if is_apart(self) || is_apart(later) {
            return false;
        }
        let is_same = self.name == later.name;
        if self.mask & later.mask != 0 {
            let may_pass = is_same
                && self.is_lend
                && later.is_lend
                && (!self.is_write || self.keys.is_disjoint(&later.keys))
                && self.name != "exec";
            return !may_pass;
        }
        !is_same && (self.is_lend || (self.is_write && later.is_write))
    }
}
