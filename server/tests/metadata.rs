//! COMMAND INFO of every command our server knows equals what Redis 8.2.3 says of it, subcommands included.
//!
//! `golden/redis-8.2.3-commands.jsonl` holds one command a line: arity, flags, key positions, ACL categories, tips,
//! key specifications, subcommands. Lists that have no order are compared sorted. `DEVIATIONS` names what differs
//! on purpose; an entry that no longer differs fails the test.

mod support;

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::reply::Reply;
use support::server::{Kind, Server};

/// Command, field, and why it is not Redis's.
const DEVIATIONS: &[(&str, &str, &str)] = &[];

/// Commands that Redis 8.2.3 does not have, and where they come from.
const EXTENSIONS: &[(&str, &str)] = &[
    ("vrange", "Redis 8.4"),
    ("delex", "Redis 8.4"),
    ("digest", "Redis 8.4"),
    ("msetex", "Redis 8.4"),
    ("increx", "Redis 8.8"),
    ("xcfgset", "Redis 8.6"),
    ("xidmprecord", "Redis 8.8"),
    ("xnack", "Redis 8.8"),
    ("lmovem", "Redis 8.10"),
    ("blmovem", "Redis 8.10"),
    ("sunioncard", "Redis 8.10"),
    ("sdiffcard", "Redis 8.10"),
    ("commandlog", "Valkey 8.1"),
    ("commandlog|get", "Valkey 8.1"),
    ("commandlog|help", "Valkey 8.1"),
    ("commandlog|len", "Valkey 8.1"),
    ("commandlog|reset", "Valkey 8.1"),
    ("hotkeys", "Redis 8.6"),
    ("hotkeys|get", "Redis 8.6"),
    ("hotkeys|help", "Redis 8.6"),
    ("hotkeys|reset", "Redis 8.6"),
    ("hotkeys|start", "Redis 8.6"),
    ("hotkeys|stop", "Redis 8.6"),
    ("vmadd", "VADD of many elements"),
    ("vmrem", "VREM of many elements"),
];

/// The commands that must be there, so that an empty table cannot pass.
const REQUIRED: &str = "auth hello ping echo select quit reset client info command config dbsize flushdb flushall \
    swapdb time role memory debug shutdown module readonly readwrite cluster multi exec discard watch unwatch del \
    unlink exists type touch keys scan randomkey rename renamenx copy move expire pexpire expireat pexpireat ttl pttl \
    expiretime pexpiretime persist object append decr decrby get getdel getex getrange getset incr incrby \
    incrbyfloat mget mset msetnx psetex set setex setnx setrange strlen substr lpush rpush lpushx rpushx lpop rpop \
    lrange lindex ltrim lset llen sadd srem sismember smembers scard spop srandmember sinter sunion sdiff \
    sinterstore sunionstore sdiffstore hset hget hmget hgetall hdel hlen hexists hkeys hvals hincrby hincrbyfloat \
    hsetnx lcs setbit getbit bitcount bitpos bitop bitfield bitfield_ro pfadd pfcount pfmerge pfdebug pfselftest vadd vsim vrem vcard vdim vemb vinfo vismember vgetattr vsetattr \
    vlinks vrandmember";

#[test]
fn command_info_equals_redis() {
    check(Kind::Skerry { threads: 1 });
}

/// The golden file says what a live Redis says.
#[test]
fn golden_file_equals_redis() {
    check(Kind::Redis);
}

fn check(kind: Kind) {
    let server = Server::start(kind, &[]);
    let is_redis = server.kind == Kind::Redis;
    let golden = golden();
    let ours = commands(&server);
    let mut faults = Vec::new();
    let mut deviating = BTreeSet::new();
    for (name, fields) in &ours {
        if EXTENSIONS.iter().any(|(extension, _)| extension == name) {
            continue;
        }
        let Some(expected) = golden.get(name) else {
            faults.push(format!("{name} is no command of Redis 8.2.3"));
            continue;
        };
        let fields_named: BTreeSet<&String> = fields.keys().chain(expected.keys()).collect();
        for field in fields_named {
            let (got, want) = (fields.get(field), expected.get(field));
            if got == want {
                continue;
            }
            match DEVIATIONS.iter().position(|(n, f, _)| n == name && f == field) {
                Some(at) => drop(deviating.insert(at)),
                None => faults.push(format!("{name} {field}:\n  redis {want:?}\n  ours  {got:?}")),
            }
        }
    }
    let missing = REQUIRED.split_whitespace().filter(|name| !ours.contains_key(*name));
    faults.extend(missing.map(|name| format!("{name} is missing")));
    for (at, (name, field, _)) in DEVIATIONS.iter().enumerate() {
        if !deviating.contains(&at) && !is_redis {
            faults.push(format!("{name} {field} no longer deviates: delete the entry"));
        }
    }
    println!("{} commands compared on {kind:?}", ours.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

type Fields = Map<String, Value>;

/// Commands and their subcommands (as `config|get`), by lower-case name.
///
/// A server may lack subcommands of later issues; each it has is compared as a command of its own.
fn golden() -> BTreeMap<String, Fields> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/redis-8.2.3-commands.jsonl");
    let text = std::fs::read_to_string(path).expect("the golden file");
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("a row of JSON");
        add_golden(row, &mut all);
    }
    all
}

fn add_golden(row: Value, all: &mut BTreeMap<String, Fields>) {
    let Value::Object(mut fields) = row else { panic!("a row is an object") };
    if let Some(Value::Array(subcommands)) = fields.remove("subcommands") {
        for subcommand in subcommands {
            add_golden(subcommand, all);
        }
    }
    let name = fields.remove("name").expect("a name");
    let name = name.as_str().expect("text").to_ascii_lowercase();
    for list in ["flags", "acl", "tips", "key_specs"] {
        let value = fields.remove(list).unwrap_or_else(|| json!([]));
        fields.insert(list.to_owned(), sort_flags(value, true));
    }
    all.insert(name, fields);
}

fn commands(server: &Server) -> BTreeMap<String, Fields> {
    let mut all = BTreeMap::new();
    for row in server.connect().call(&["COMMAND", "INFO"]).items().expect("an array") {
        add_row(&row, &mut all);
    }
    all
}

fn add_row(row: &Reply, all: &mut BTreeMap<String, Fields>) {
    let row = row.items().unwrap_or_else(|| panic!("a command is an array: {row:?}"));
    let [name, arity, flags, first, last, step, acl, tips, key_specs, subcommands] = &row[..] else {
        panic!("a command has ten parts: {row:?}");
    };
    let name = String::from_utf8_lossy(name.text().expect("a name")).to_ascii_lowercase();
    let mut fields = Fields::new();
    for (field, value) in [("arity", arity), ("first", first), ("last", last), ("step", step)] {
        fields.insert(field.to_owned(), as_json(value));
    }
    for (field, value) in [("flags", flags), ("acl", acl), ("tips", tips), ("key_specs", key_specs)] {
        fields.insert(field.to_owned(), sort_flags(as_json(value), true));
    }
    all.insert(name, fields);
    for subcommand in subcommands.items().expect("subcommands") {
        add_row(&subcommand, all);
    }
}

/// Integers inside key specifications are text in the golden file.
fn as_json(reply: &Reply) -> Value {
    match reply {
        Reply::Int(n) => json!(n),
        Reply::Array(items) => Value::Array(items.iter().map(as_json).collect()),
        other => json!(String::from_utf8_lossy(other.text().unwrap_or_default())),
    }
}

/// Sorts lists of words (flags have no order), and writes numbers within lists as text.
fn sort_flags(value: Value, is_top: bool) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(|item| sort_flags(item, false)).collect();
            let is_upper = |v: &Value| v.as_str().is_some_and(|t| t.chars().all(|c| c.is_ascii_uppercase()));
            let are_words = items.iter().all(Value::is_string);
            if are_words && (is_top || items.iter().any(is_upper)) {
                items.sort_by_key(Value::to_string);
            }
            Value::Array(items)
        }
        Value::Number(n) if !is_top => json!(n.to_string()),
        other => other,
    }
}
