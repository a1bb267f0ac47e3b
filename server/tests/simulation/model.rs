//! The plain server that every history is compared with: one map, one thread, no shards. Knows only the commands of the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use skerry_resp::Value;

pub type Word = Vec<u8>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Text(Word),
    Set(BTreeSet<Word>),
    /// A vector set: its elements.
    Vectors(BTreeSet<Word>),
}

/// What one client watches, and whether any of it has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watching {
    keys: BTreeSet<(usize, Word)>,
    is_touched: bool,
}

pub const N_DATABASES: usize = 2;
const WRONG_TYPE: &[u8] = b"WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &[u8] = b"ERR value is not an integer or out of range";

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    pub databases: [BTreeMap<Word, Content>; N_DATABASES],
    watching: Vec<Watching>,
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
        Self { databases: Default::default(), watching: vec![Watching::default(); n_clients] }
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

    fn text(&self, db: usize, key: &[u8]) -> Result<Option<Word>, Value> {
        match self.databases[db].get(key) {
            None => Ok(None),
            Some(Content::Text(text)) => Ok(Some(text.clone())),
            Some(Content::Set(_) | Content::Vectors(_)) => Err(Value::Error(WRONG_TYPE.to_vec())),
        }
    }

    fn set(&self, db: usize, key: &[u8]) -> Result<BTreeSet<Word>, Value> {
        match self.databases[db].get(key) {
            None => Ok(BTreeSet::new()),
            Some(Content::Set(set)) => Ok(set.clone()),
            Some(Content::Text(_) | Content::Vectors(_)) => Err(Value::Error(WRONG_TYPE.to_vec())),
        }
    }

    fn vectors(&self, db: usize, key: &[u8]) -> Result<BTreeSet<Word>, Value> {
        match self.databases[db].get(key) {
            None => Ok(BTreeSet::new()),
            Some(Content::Vectors(elements)) => Ok(elements.clone()),
            Some(Content::Text(_) | Content::Set(_)) => Err(Value::Error(WRONG_TYPE.to_vec())),
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

/// Arrays whose order Redis leaves open, in one order.
pub fn normal(action: &Action, reply: Value) -> Value {
    match (action, reply) {
        (Action::Command(argv), Value::Array(members)) => ordered(argv, members),
        (Action::Transaction(queue), Value::Array(replies)) => {
            let each = replies.into_iter().zip(queue).map(|(reply, argv)| match reply {
                Value::Array(members) => ordered(argv, members),
                other => other,
            });
            Value::Array(each.collect())
        }
        (_, reply) => reply,
    }
}

fn ordered(argv: &[Word], mut members: Vec<Value>) -> Value {
    if argv[0] == b"SMEMBERS" || argv[0] == b"VSIM" {
        members.sort_by_key(|member| match member {
            Value::Bulk(text) => text.clone(),
            _ => Vec::new(),
        });
    }
    Value::Array(members)
}
