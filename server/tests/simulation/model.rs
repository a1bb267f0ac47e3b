//! The plain server that every history is compared with: one map, one thread, no shards. Knows only the commands of the programs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use skerry_resp::Value;

use crate::scripts::{BOOM, Guard, is_script, is_write, steps_of};

pub type Word = Vec<u8>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Text(Word),
    Set(BTreeSet<Word>),
    /// A vector set: its elements.
    Vectors(BTreeSet<Word>),
    List(VecDeque<Word>),
}

/// An operation that is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    /// By index in the history.
    operation: usize,
    client: usize,
    db: usize,
    argv: Vec<Word>,
    /// Its service is not one moment with what filled its key: its keys have several owners.
    is_late: bool,
}

impl Waiting {
    /// The keys that it waits for.
    fn keys(&self) -> &[Word] {
        match &self.argv[0][..] {
            b"BLMOVE" => &self.argv[1..2],
            _ => &self.argv[1..self.argv.len() - 1],
        }
    }
}

/// What one client watches, and whether any of it has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watching {
    keys: BTreeSet<(usize, Word)>,
    is_touched: bool,
}

pub const N_DATABASES: usize = 2;
const WRONG_TYPE: &[u8] = b"WRONGTYPE Operation against a key holding the wrong kind of value";
const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";
const READ_ONLY: &[u8] = b"ERR Write commands are not allowed from read-only scripts.";
const NOT_AN_INTEGER: &[u8] = b"ERR value is not an integer or out of range";

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    pub databases: [BTreeMap<Word, Content>; N_DATABASES],
    watching: Vec<Watching>,
    /// In the order of their arrival.
    waiting: Vec<Waiting>,
    /// Keys that became lists by the operation that runs, in that order.
    filled: Vec<(usize, Word)>,
    has_found_nothing: bool,
}

/// What a step of the model brings.
pub struct Step {
    /// The operation's reply; `None`: it is blocked.
    pub reply: Option<Value>,
    /// Blocked operations that have their reply now.
    pub served: Vec<(usize, Value)>,
}

/// One operation of a history: a command, or a whole transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Command(Vec<Word>),
    /// EXEC with what MULTI queued.
    Transaction(Vec<Vec<Word>>),
}

impl Model {
    pub fn new(n_clients: usize) -> Self {
        Self {
            databases: Default::default(),
            watching: vec![Watching::default(); n_clients],
            waiting: Vec::new(),
            filled: Vec::new(),
            has_found_nothing: false,
        }
    }

    /// Bits of the operations that are blocked.
    pub fn waiting_bits(&self) -> u64 {
        self.waiting.iter().fold(0, |bits, waiting| bits | 1 << waiting.operation)
    }

    /// Begins operation number `operation`. What it fills is served in the same moment, unless it `is_spread` over several shards.
    pub fn begin(
        &mut self,
        operation: usize,
        (client, db): (usize, usize),
        action: &Action,
        is_spread: bool,
    ) -> Step {
        self.filled.clear();
        let mut served = Vec::new();
        if let Action::Command(argv) = action
            && argv[0] == b"CLIENT"
        {
            let reply = Some(self.unblock(argv, &mut served));
            return Step { reply, served };
        }
        self.has_found_nothing = false;
        let reply = self.run(client, db, action);
        if let Action::Command(argv) = action
            && self.has_found_nothing
            && argv[0].starts_with(b"BL")
        {
            let argv = argv.clone();
            let is_late = is_spread || argv[0] == b"BLMOVE";
            self.waiting.push(Waiting { operation, client, db, argv, is_late });
            return Step { reply: None, served };
        }
        if !is_spread {
            self.serve_filled(&mut served);
        }
        self.filled.clear();
        Step { reply: Some(reply), served }
    }

    fn unblock(&mut self, argv: &[Word], served: &mut Vec<(usize, Value)>) -> Value {
        let number = skerry_resp::parse_i64(&argv[2]).expect("programs write numbers");
        let Some(at) = self.waiting.iter().position(|waiting| waiting.client as i64 + 1 == number) else {
            return Value::Integer(0);
        };
        let reply = if argv.len() == 4 { Value::Error(UNBLOCKED.to_vec()) } else { Value::NullArray };
        served.push((self.waiting.remove(at).operation, reply));
        Value::Integer(1)
    }

    /// Redis's handleClientsBlockedOnKeys, as far as it is one moment with the command before it.
    fn serve_filled(&mut self, served: &mut Vec<(usize, Value)>) {
        let mut at = 0;
        while let Some((db, key)) = self.filled.get(at).cloned() {
            at += 1;
            while self.is_list(db, &key)
                && let Some(first) = self.first_in_line(db, &key)
                && !self.waiting[first].is_late
            {
                self.serve(first, served);
            }
        }
    }

    fn is_list(&self, db: usize, key: &[u8]) -> bool {
        matches!(self.databases[db].get(key), Some(Content::List(_)))
    }

    fn first_in_line(&self, db: usize, key: &Word) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.db == db && waiting.keys().contains(key))
    }

    fn serve(&mut self, at: usize, served: &mut Vec<(usize, Value)>) {
        let Waiting { operation, client, db, argv, .. } = self.waiting.remove(at);
        let reply = self.command(client, db, &argv);
        served.push((operation, reply));
    }

    /// Blocked operations that may be served now: the first in the line of a filled key.
    pub fn servable(&self) -> Vec<usize> {
        let is_servable = |at: &usize| {
            let waiting = &self.waiting[*at];
            waiting
                .keys()
                .iter()
                .any(|key| self.is_list(waiting.db, key) && self.first_in_line(waiting.db, key) == Some(*at))
        };
        (0..self.waiting.len()).filter(is_servable).map(|at| self.waiting[at].operation).collect()
    }

    /// Serves one of them.
    pub fn serve_late(&mut self, operation: usize) -> Vec<(usize, Value)> {
        let mut served = Vec::new();
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.operation == operation) {
            self.serve(at, &mut served);
        }
        self.filled.clear();
        served
    }

    /// A wait ends by itself: its time is over, or its client is gone.
    pub fn end_wait(&mut self, operation: usize) {
        self.waiting.retain(|waiting| waiting.operation != operation);
    }

    /// A number that tells states apart.
    pub fn digest(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            self.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(1) << 64 | half(2)
    }

    /// Runs an operation of `client`, whose selected database is `db`.
    pub fn run(&mut self, client: usize, db: usize, action: &Action) -> Value {
        match action {
            Action::Command(argv) => self.command(client, db, argv),
            Action::Transaction(queue) => {
                let watching = std::mem::take(&mut self.watching[client]);
                if watching.is_touched {
                    return Value::NullArray;
                }
                Value::Array(queue.iter().map(|argv| self.command(client, db, argv)).collect())
            }
        }
    }

    fn touch(&mut self, db: usize, key: &[u8]) {
        for watching in &mut self.watching {
            watching.is_touched |= watching.keys.iter().any(|(d, k)| *d == db && k == key);
        }
    }

    fn put(&mut self, db: usize, key: &[u8], content: Content) {
        if matches!(content, Content::List(_)) && !self.is_list(db, key) {
            self.filled.push((db, key.to_vec()));
        }
        self.databases[db].insert(key.to_vec(), content);
        self.touch(db, key);
    }

    fn take(&mut self, db: usize, key: &[u8]) -> Option<Content> {
        let taken = self.databases[db].remove(key);
        if taken.is_some() {
            self.touch(db, key);
        }
        taken
    }

    /// Runs a script: what it did before an error stays done.
    fn script(&mut self, client: usize, db: usize, argv: &[Word]) -> Result<Value, Value> {
        let is_read_only = argv[0] == b"EVAL_RO";
        let mut replies = Vec::new();
        for step in steps_of(argv) {
            if step.guard == Guard::Error {
                return Err(Value::Error(BOOM.to_vec()));
            }
            let reply = match is_read_only && is_write(&step.argv[0]) {
                true => Value::Error(READ_ONLY.to_vec()),
                false => self.command(client, db, &step.argv),
            };
            match reply {
                Value::Error(_) if step.guard == Guard::Raising => return Err(reply),
                // Lua knows one nothing.
                Value::NullArray => replies.push(Value::NullBulk),
                reply => replies.push(reply),
            }
        }
        Ok(Value::Array(replies))
    }

    fn text(&self, db: usize, key: &[u8]) -> Result<Option<Word>, Value> {
        match self.databases[db].get(key) {
            None => Ok(None),
            Some(Content::Text(text)) => Ok(Some(text.clone())),
            Some(Content::Set(_) | Content::Vectors(_) | Content::List(_)) => {
                Err(Value::Error(WRONG_TYPE.to_vec()))
            }
        }
    }

    fn set(&self, db: usize, key: &[u8]) -> Result<BTreeSet<Word>, Value> {
        match self.databases[db].get(key) {
            None => Ok(BTreeSet::new()),
            Some(Content::Set(set)) => Ok(set.clone()),
            Some(Content::Text(_) | Content::Vectors(_) | Content::List(_)) => {
                Err(Value::Error(WRONG_TYPE.to_vec()))
            }
        }
    }

    fn list(&self, db: usize, key: &[u8]) -> Result<Option<VecDeque<Word>>, Value> {
        match self.databases[db].get(key) {
            None => Ok(None),
            Some(Content::List(list)) => Ok(Some(list.clone())),
            Some(_) => Err(Value::Error(WRONG_TYPE.to_vec())),
        }
    }

    fn put_list(&mut self, db: usize, key: &[u8], list: VecDeque<Word>) {
        match list.is_empty() {
            true => _ = self.take(db, key),
            false => self.put(db, key, Content::List(list)),
        }
    }

    /// LMOVE, from the front of one list to the back of another; `None` if there is nothing to move.
    fn move_element(&mut self, db: usize, from: &[u8], to: &[u8]) -> Result<Option<Word>, Value> {
        let Some(mut source) = self.list(db, from)? else { return Ok(None) };
        let mut destination = self.list(db, to)?.unwrap_or_default();
        let element = source.pop_front().expect("no list is empty");
        if from == to {
            source.push_back(element.clone());
            self.put_list(db, from, source);
            return Ok(Some(element));
        }
        destination.push_back(element.clone());
        self.put_list(db, to, destination);
        self.put_list(db, from, source);
        Ok(Some(element))
    }

    fn vectors(&self, db: usize, key: &[u8]) -> Result<BTreeSet<Word>, Value> {
        match self.databases[db].get(key) {
            None => Ok(BTreeSet::new()),
            Some(Content::Vectors(elements)) => Ok(elements.clone()),
            Some(Content::Text(_) | Content::Set(_) | Content::List(_)) => {
                Err(Value::Error(WRONG_TYPE.to_vec()))
            }
        }
    }

    fn command(&mut self, client: usize, db: usize, argv: &[Word]) -> Value {
        self.try_command(client, db, argv).unwrap_or_else(|error| error)
    }

    fn try_command(&mut self, client: usize, db: usize, argv: &[Word]) -> Result<Value, Value> {
        let name = std::str::from_utf8(&argv[0]).expect("programs write names in ASCII");
        let ok = || Value::Simple(b"OK".to_vec());
        let integer = |n: usize| Value::Integer(n as i64);
        let bulk = |text: Option<Word>| text.map_or(Value::NullBulk, Value::Bulk);
        Ok(match name {
            "EVAL" | "EVAL_RO" => self.script(client, db, argv)?,
            "PING" => Value::Simple(b"PONG".to_vec()),
            "SELECT" => ok(),
            "GET" => bulk(self.text(db, &argv[1])?),
            "SET" => {
                self.put(db, &argv[1], Content::Text(argv[2].clone()));
                ok()
            }
            "GETSET" => {
                let old = self.text(db, &argv[1])?;
                self.put(db, &argv[1], Content::Text(argv[2].clone()));
                bulk(old)
            }
            "APPEND" => {
                let mut text = self.text(db, &argv[1])?.unwrap_or_default();
                text.extend_from_slice(&argv[2]);
                let len = text.len();
                self.put(db, &argv[1], Content::Text(text));
                integer(len)
            }
            "INCR" => {
                let text = self.text(db, &argv[1])?.unwrap_or_else(|| b"0".to_vec());
                let number = skerry_resp::parse_i64(&text).ok_or(Value::Error(NOT_AN_INTEGER.to_vec()))? + 1;
                self.put(db, &argv[1], Content::Text(number.to_string().into_bytes()));
                Value::Integer(number)
            }
            "MGET" => {
                Value::Array(argv[1..].iter().map(|key| bulk(self.text(db, key).ok().flatten())).collect())
            }
            "MSET" => {
                for pair in argv[1..].chunks_exact(2) {
                    self.put(db, &pair[0], Content::Text(pair[1].clone()));
                }
                ok()
            }
            "MSETNX" => {
                if argv[1..].chunks_exact(2).any(|pair| self.databases[db].contains_key(&pair[0])) {
                    integer(0)
                } else {
                    for pair in argv[1..].chunks_exact(2) {
                        self.put(db, &pair[0], Content::Text(pair[1].clone()));
                    }
                    integer(1)
                }
            }
            "DEL" => integer(argv[1..].iter().filter(|key| self.take(db, key).is_some()).count()),
            "EXISTS" => integer(argv[1..].iter().filter(|key| self.databases[db].contains_key(*key)).count()),
            "RENAME" => {
                if argv[1] == argv[2] && self.databases[db].contains_key(&argv[1]) {
                    return Ok(ok());
                }
                let Some(content) = self.take(db, &argv[1]) else {
                    return Err(Value::Error(b"ERR no such key".to_vec()));
                };
                self.put(db, &argv[2], content);
                ok()
            }
            "COPY" => {
                if argv[1] == argv[2] {
                    return Err(Value::Error(b"ERR source and destination objects are the same".to_vec()));
                }
                match self.databases[db].get(&argv[1]).cloned() {
                    Some(Content::Vectors(_)) if !self.databases[db].contains_key(&argv[2]) => {
                        return Err(Value::Error(b"ERR not supported for this module key".to_vec()));
                    }
                    Some(content) if !self.databases[db].contains_key(&argv[2]) => {
                        self.put(db, &argv[2], content);
                        integer(1)
                    }
                    Some(_) | None => integer(0),
                }
            }
            "RPUSH" => {
                let mut list = self.list(db, &argv[1])?.unwrap_or_default();
                list.extend(argv[2..].iter().cloned());
                let len = list.len();
                self.put_list(db, &argv[1], list);
                integer(len)
            }
            "LPOP" => match self.list(db, &argv[1])? {
                None => Value::NullBulk,
                Some(mut list) => {
                    let element = list.pop_front();
                    self.put_list(db, &argv[1], list);
                    bulk(element)
                }
            },
            "LLEN" => integer(self.list(db, &argv[1])?.map_or(0, |list| list.len())),
            "LRANGE" => {
                let list = self.list(db, &argv[1])?.unwrap_or_default();
                Value::Array(list.into_iter().map(Value::Bulk).collect())
            }
            // From the front to the back.
            "LMOVE" => bulk(self.move_element(db, &argv[1], &argv[2])?),
            "BLMOVE" => {
                let moved = self.move_element(db, &argv[1], &argv[2])?;
                self.has_found_nothing |= moved.is_none();
                bulk(moved)
            }
            "BLPOP" => {
                for key in &argv[1..argv.len() - 1] {
                    let Some(mut list) = self.list(db, key)? else { continue };
                    let element = list.pop_front().expect("no list is empty");
                    self.put_list(db, key, list);
                    return Ok(Value::Array(vec![Value::Bulk(key.clone()), Value::Bulk(element)]));
                }
                self.has_found_nothing = true;
                Value::NullArray
            }
            "SADD" => {
                let mut set = self.set(db, &argv[1])?;
                let n_added = argv[2..].iter().filter(|member| set.insert((*member).clone())).count();
                if n_added > 0 {
                    self.put(db, &argv[1], Content::Set(set));
                }
                integer(n_added)
            }
            "SMEMBERS" => Value::Array(self.set(db, &argv[1])?.into_iter().map(Value::Bulk).collect()),
            "SINTERSTORE" => {
                // Redis looks at every source's type before it stores.
                let sets = argv[2..].iter().map(|key| self.set(db, key)).collect::<Result<Vec<_>, _>>()?;
                let common: BTreeSet<Word> = sets[0]
                    .iter()
                    .filter(|member| sets.iter().all(|set| set.contains(*member)))
                    .cloned()
                    .collect();
                let len = common.len();
                if len == 0 {
                    self.take(db, &argv[1]);
                } else {
                    self.put(db, &argv[1], Content::Set(common));
                }
                integer(len)
            }
            // VADD key VALUES 2 x y element ...
            "VADD" => {
                let mut elements = match self.vectors(db, &argv[1]) {
                    Ok(elements) => elements,
                    Err(error) => {
                        self.touch(db, &argv[1]);
                        return Err(error);
                    }
                };
                let is_new = elements.insert(argv[6].clone());
                self.put(db, &argv[1], Content::Vectors(elements));
                integer(usize::from(is_new))
            }
            "VREM" => {
                let elements = self.vectors(db, &argv[1]);
                self.touch(db, &argv[1]);
                let mut elements = elements?;
                let is_removed = elements.remove(&argv[2]);
                match elements.is_empty() {
                    true => _ = self.take(db, &argv[1]),
                    false => self.put(db, &argv[1], Content::Vectors(elements)),
                }
                integer(usize::from(is_removed))
            }
            "VCARD" => integer(self.vectors(db, &argv[1])?.len()),
            "VISMEMBER" => integer(usize::from(self.vectors(db, &argv[1])?.contains(&argv[2]))),
            // With a COUNT above any number of elements: all of them.
            "VSIM" => Value::Array(self.vectors(db, &argv[1])?.into_iter().map(Value::Bulk).collect()),
            "DBSIZE" => integer(self.databases[db].len()),
            "FLUSHALL" => {
                for db in 0..N_DATABASES {
                    let keys: Vec<Word> = self.databases[db].keys().cloned().collect();
                    for key in keys {
                        self.take(db, &key);
                    }
                }
                ok()
            }
            "SWAPDB" => {
                for db in 0..N_DATABASES {
                    let keys: Vec<Word> = self.databases.iter().flat_map(|d| d.keys().cloned()).collect();
                    for key in keys {
                        self.touch(db, &key);
                    }
                }
                self.databases.swap(0, 1);
                ok()
            }
            "WATCH" => {
                self.watching[client].keys.extend(argv[1..].iter().map(|key| (db, key.clone())));
                ok()
            }
            "UNWATCH" => {
                self.watching[client] = Watching::default();
                ok()
            }
            _ => panic!("the model does not know {name}"),
        })
    }
}

/// Arrays whose order Redis leaves open, in one order; errors of scripts without the place where they came about.
pub fn normal(action: &Action, reply: Value) -> Value {
    match (action, reply) {
        (Action::Command(argv), reply) => normal_of(argv, reply),
        (Action::Transaction(queue), Value::Array(replies)) => {
            let each = replies.into_iter().zip(queue).map(|(reply, argv)| normal_of(argv, reply));
            Value::Array(each.collect())
        }
        (_, reply) => reply,
    }
}

fn normal_of(argv: &[Word], reply: Value) -> Value {
    match reply {
        Value::Error(mut text) if is_script(argv) => {
            let place = text.windows(PLACE.len()).position(|part| part == PLACE);
            text.truncate(place.unwrap_or(text.len()));
            Value::Error(text)
        }
        Value::Array(replies) if is_script(argv) => {
            let each = replies.into_iter().zip(steps_of(argv)).map(|(reply, step)| match reply {
                Value::Array(members) => ordered(&step.argv, members),
                other => other,
            });
            Value::Array(each.collect())
        }
        Value::Array(members) => ordered(argv, members),
        other => other,
    }
}

/// Behind an error that has ended a script.
const PLACE: &[u8] = b" script: ";

fn ordered(argv: &[Word], mut members: Vec<Value>) -> Value {
    if argv[0] == b"SMEMBERS" || argv[0] == b"VSIM" {
        members.sort_by_key(|member| match member {
            Value::Bulk(text) => text.clone(),
            _ => Vec::new(),
        });
    }
    Value::Array(members)
}
