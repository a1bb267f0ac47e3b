//! Scripts that call commands, convert values, fail half way, and keep to their keys or not.

use super::author::is_key;
use super::rows;
use super::support::rng::Rng;

/// Whether a script is meant to change something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Only,
    AndWriting,
}

#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) text: Vec<u8>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    /// What it calls, as far as it comes.
    pub(crate) commands: Vec<Vec<Vec<u8>>>,
}

impl Script {
    /// Its call by `name`; `which` is its text or its digest.
    pub(crate) fn call(&self, name: &[u8], which: &[u8]) -> Vec<Vec<u8>> {
        let n_keys = self.keys.len().to_string().into_bytes();
        let head = [name.to_vec(), which.to_vec(), n_keys];
        head.iter().chain(&self.keys).chain(&self.args).cloned().collect()
    }
}

/// How a script comes by the names of its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Declared,
    /// Written into the text.
    Literal,
    /// Given as arguments that are no keys.
    Argument,
    Computed,
}

/// Values that a script makes itself.
const VALUES: &[&str] = &[
    "3.7",
    "-3.99",
    "0.1",
    "1e15",
    "-1e15",
    "2^53",
    "-2^53",
    "2^62",
    "true",
    "false",
    "nil",
    "'text'",
    "''",
    "'a\\r\\nb'",
    "{}",
    "{1,2,{3,{4}}}",
    "{1,nil,3}",
    "{1,2,nil}",
    "{true,false,'x'}",
    "{ok='fine'}",
    "{err='My error'}",
    "{err='ERR x y', ok='z'}",
    "{a=1}",
    "{1,2,a=3}",
    "{double=3.5}",
    "{double=1e300}",
    "{double=-0.1}",
    "{double=10}",
    "{map={a=1}}",
    "{map={}}",
    "{map={[1]='x'}}",
    "{set={a=true}}",
    "{set={}}",
    "{big_number='12345678901234567890'}",
    "{verbatim_string={string='some text',format='txt'}}",
    "{map={k={double=0.5}}}",
    "redis.status_reply('FINE')",
    "redis.error_reply('MY own error')",
    "redis.error_reply('plain')",
    "redis.error_reply('-DASH it')",
    "redis.error_reply('')",
    "redis.sha1hex('abc')",
    "redis.sha1hex('')",
    "tostring(1.5)",
    "tostring(1e20)",
    "tostring(100000000000000)",
    "tostring(1/3)",
    "tostring(-0)",
    "tostring(2^53)",
    "tostring(nil)",
    "tonumber('0x10')",
    "tonumber('  12  ')",
    "tonumber('1e3')",
    "tonumber('x')",
    "tonumber('11', 2)",
    "10/3",
    "7 % 3",
    "-7 % 3",
    "2^10",
    "math.floor(-2.5)",
    "math.max(1, 5, 3)",
    "math.fmod(-7, 3)",
    "#'abcd'",
    "('ab'):rep(3)",
    "('hello world'):sub(-5, -2)",
    "('hello'):upper()",
    "('x=1, y=2'):gsub('%w+', '<%0>')",
    "('key:12:x'):match('(%d+)')",
    "('abc'):byte(1, -1)",
    "('a,b,,c'):find(',', 1, true)",
    "string.format('%5.2f|%d|%s|%q|%x', 3.14159, 42, 'z', 'q\"', 255)",
    "string.format('%.17g', 0.1)",
    "string.format('%.14g', 1e15)",
    "string.char(0, 255, 10)",
    "string.reverse('abc')",
    "table.concat({1,2.5,'x'}, ',')",
    "select('#', 1, nil, nil)",
    "{unpack({1,2,3}, 2)}",
    "{type(KEYS), type(ARGV), #KEYS, #ARGV}",
    "type(redis.call)",
    "type(os.clock())",
    "{pcall(error, 'e')}",
    "{pcall(error, {err='MY e'})}",
    "select(2, pcall(error))",
    "(select(2, pcall(function() error('in') end)))",
    "(select(2, pcall(function() local t = nil return t.x end)))",
    "bit.band(0xff, 0x0f)",
    "bit.bor(1, 2^31)",
    "bit.tohex(65535)",
    "bit.lshift(1, 31)",
    "bit.arshift(-8, 1)",
    "bit.bnot(0)",
    "bit.bxor(5, 3, 1)",
    "struct.pack('>I2hB', 258, -2, 7)",
    "{struct.unpack('>I2', '\\1\\2')}",
    "struct.size('i4i8')",
    "cjson.encode({1,2.5,'x',true,{a=cjson.null}})",
    "cjson.encode({a={b={1,{}}}})",
    "cjson.encode(1e20)",
    "cjson.encode({[1]=1,[3]=3})",
    "cjson.encode('\\195\\169/\"\\\\')",
    "cjson.decode('[1, 2.5, \"x\", null, true, {\"k\": [1e2]}]')",
    "cjson.decode('{\"k\": \"\\\\u00e9\"}').k",
    "cjson.decode('[1,]')",
    "cjson.encode(cjson.decode('{\"a\":[1,{\"b\":null}]}'))",
    "cmsgpack.unpack(cmsgpack.pack({1, -1, 300, -300, 70000, 2^40, 0.5, 'x', true, {}}))",
    "cmsgpack.pack({a={1,2}})",
    "cmsgpack.pack(1, 'a', nil, false)",
    "{cmsgpack.unpack(cmsgpack.pack(1, 'a', 2.5))}",
    "cmsgpack.unpack('\\193')",
    "{cmsgpack.unpack_limit('\\1\\2\\3', 2)}",
    "{redis.acl_check_cmd('set', 'k', 'v')}",
    "redis.LOG_WARNING",
    "redis.REDIS_VERSION",
    "ARGV[1]",
    "KEYS[1]",
    "KEYS[100]",
    "ARGV[1] and tonumber(ARGV[1])",
    "_VERSION",
    "next({})",
    "rawget(KEYS, 1)",
    "{ipairs({5,6})(({5,6}), 1)}",
];

/// What ends a script in the middle.
const ENDS: &[&str] = &[
    "error('boom')",
    "error({err='MY boom'})",
    "error({err='plain'})",
    "error()",
    "error('no place', 0)",
    "error({})",
    "redis.call('NOSUCHCOMMAND')",
    "redis.call('GET')",
    "redis.call()",
    "redis.call('SET', 'k', {})",
    "redis.call('SET', 'k', true)",
    "redis.call(nil)",
    "redis.call('SUBSCRIBE', 'x')",
    "redis.call('MULTI')",
    "redis.call('EVAL', 'return 1', 0)",
    "redis.call('CLIENT', 'UNBLOCK', 1)",
    "redis.call('WATCH', 'k')",
    "redis.setresp(4)",
    "redis.setresp('x')",
    "undefined_function()",
    "x = 1",
    "return undefined_name",
    "local t = nil return t.x",
    "return 1 + {}",
    "return 'a' < 1",
    "return ('x')()",
    "redis.x = 1",
    "do return redis.error_reply('ERR half way') end",
    "do return {err='HALF way'} end",
    "do return {ok='half way'} end",
    "assert(false, 'asserted')",
    "assert(nil)",
    "redis.status_reply()",
    "redis.sha1hex()",
    "table.insert(KEYS)",
    "loadstring('x = = 1')()",
    "setmetatable(_G, {})",
    "return string.rep('x')",
];

/// Texts that are no Lua, or no flags.
const BROKEN: &[&str] =
    &["return 1 1", "end", "return {", "#!lua nosuch\nreturn 1", "#!lua flags=bad\nreturn 1", "#!js\n1", ""];
const SHEBANGS: &[&str] =
    &["#!lua\n", "#!lua flags=no-writes\n", "#!lua flags=allow-oom\n", "#!lua flags=no-writes,allow-stale\n"];

/// Writes a script that calls these commands.
pub(crate) fn write(rng: &mut Rng, commands: Vec<Vec<Vec<u8>>>) -> Script {
    let naming = match rng.below(20) {
        0..11 => Naming::Declared,
        11..15 => Naming::Literal,
        15..18 => Naming::Argument,
        _ => Naming::Computed,
    };
    let mut writer = Writer { rng, naming, text: Vec::new(), keys: Vec::new(), args: Vec::new() };
    if commands.is_empty() && writer.rng.percent(8) {
        let text = writer.rng.pick(BROKEN).as_bytes().to_vec();
        return Script { text, keys: Vec::new(), args: Vec::new(), commands };
    }
    writer.script(&commands);
    let Writer { text, keys, args, .. } = writer;
    Script { text, keys, args, commands }
}

struct Writer<'a> {
    rng: &'a mut Rng,
    naming: Naming,
    text: Vec<u8>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Writer<'_> {
    fn put(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn script(&mut self, commands: &[Vec<Vec<u8>>]) {
        if self.rng.percent(6) {
            let shebang = *self.rng.pick(SHEBANGS);
            self.put(shebang);
        }
        self.put("local r = {} ");
        if self.rng.percent(15) {
            self.put("redis.setresp(3) ");
        }
        for argv in commands {
            self.statement(argv);
            self.aside();
        }
        if commands.is_empty() {
            for _ in 0..3 {
                self.aside();
            }
            let value = *self.rng.pick(VALUES);
            self.put(&format!("r[#r+1] = {value} "));
        }
        let end = match self.rng.below(20) {
            0 | 1 => "return r[1]",
            2 => "return r[#r]",
            3 => "",
            4 => "return #r",
            5 => "return cjson.encode(r)",
            6 => "return cmsgpack.unpack(cmsgpack.pack(r))",
            7 => "return {r, #r}",
            8 => "return unpack(r)",
            _ => "return r",
        };
        self.put(end);
    }

    /// Sometimes something else between two calls.
    fn aside(&mut self) {
        if self.rng.percent(25) {
            let value = *self.rng.pick(VALUES);
            self.put(&format!("r[#r+1] = {value} "));
        }
        if self.rng.percent(5) {
            let end = *self.rng.pick(ENDS);
            // Behind a condition, or nothing could follow a `return`.
            self.put(&format!("if #r >= 0 then {end} end "));
        }
        if self.rng.percent(2) {
            let version = 2 + self.rng.below(2);
            self.put(&format!("redis.setresp({version}) "));
        }
    }

    fn statement(&mut self, argv: &[Vec<u8>]) {
        let (before, name, after) = match self.rng.below(20) {
            0..8 => ("r[#r+1] = ", "redis.call(", ") "),
            8..13 => ("r[#r+1] = ", "redis.pcall(", ") "),
            13 | 14 => (
                "do local v = ",
                "redis.pcall(",
                ") if type(v) == 'table' and v.err then r[#r+1] = v.err else r[#r+1] = v end end ",
            ),
            15 => (
                "do local ok, v = ",
                "pcall(redis.call, ",
                ") r[#r+1] = ok and 'ok' or 'not' if not ok then r[#r+1] = type(v) == 'table' and v.err or tostring(v) end end ",
            ),
            16 => ("r[#r+1] = cjson.encode({", "redis.pcall(", ")}) "),
            17 => ("for i = 1, 2 do r[#r+1] = ", "redis.call(", ") end "),
            18 => ("if ", "redis.pcall(", ") then r[#r+1] = 'yes' else r[#r+1] = 'no' end "),
            _ => ("r[#r+1] = type(", "redis.pcall(", ")) "),
        };
        self.put(before);
        self.put(name);
        for (at, word) in argv.iter().enumerate() {
            if at > 0 {
                self.put(", ");
            }
            let text = if at == 0 { quoted(word) } else { self.expression(word) };
            self.put(&text);
        }
        self.put(after);
    }

    fn expression(&mut self, word: &[u8]) -> String {
        if super::author::is_placed_key(word) || is_key(word) {
            return match self.naming {
                Naming::Declared => format!("KEYS[{}]", number_of(&mut self.keys, word)),
                Naming::Literal => quoted(word),
                Naming::Argument => format!("ARGV[{}]", number_of(&mut self.args, word)),
                Naming::Computed => {
                    let (head, tail) = word.split_at(word.len() - 1);
                    format!("{}..{}", quoted(head), quoted(tail))
                }
            };
        }
        let as_number = std::str::from_utf8(word).ok().filter(|text| {
            let is_plain = text.bytes().all(|byte| b"0123456789.e-".contains(&byte));
            is_plain && text.parse::<f64>().is_ok_and(f64::is_finite)
        });
        match (self.rng.below(10), as_number) {
            (0..3, Some(number)) => number.to_owned(),
            (0..4, _) => format!("ARGV[{}]", number_of(&mut self.args, word)),
            _ => quoted(word),
        }
    }
}

/// The number of a word among others, where it is put if it is new.
fn number_of(words: &mut Vec<Vec<u8>>, word: &[u8]) -> usize {
    if let Some(at) = words.iter().position(|other| other == word) {
        return at + 1;
    }
    words.push(word.to_vec());
    words.len()
}

fn quoted(word: &[u8]) -> String {
    let mut text = String::from("'");
    for byte in word {
        match byte {
            b'\'' | b'\\' => text.push_str(&format!("\\{}", *byte as char)),
            32..=126 => text.push(*byte as char),
            _ => text.push_str(&format!("\\{byte:03}")),
        }
    }
    text.push('\'');
    text
}

/// The commands that a command amounts to: those of a script, else itself.
pub(crate) fn commands_of(argv: &[Vec<u8>], loaded: &[(&[u8], &Script)]) -> Vec<Vec<Vec<u8>>> {
    if !argv[0].to_ascii_uppercase().starts_with(b"EVAL") {
        return vec![argv.to_vec()];
    }
    let is_it =
        |(sha, script): &&(&[u8], &Script)| argv[1].eq_ignore_ascii_case(sha) || argv[1] == script.text;
    loaded.iter().find(is_it).map_or_else(|| vec![argv.to_vec()], |(_, script)| script.commands.clone())
}

/// The names of the commands that a script's text calls.
pub(crate) fn calls_in(argv: &[Vec<u8>]) -> Vec<String> {
    if !matches!(&argv[0][..], b"EVAL" | b"EVAL_RO") || argv.len() < 2 {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&argv[1]).into_owned();
    let names = text.split("redis.").skip(1).filter_map(|part| {
        let call = ["call('", "pcall('", "call, '"].into_iter().find_map(|head| part.strip_prefix(head))?;
        Some(call.split('\'').next()?.to_ascii_uppercase())
    });
    names.filter(|name| rows::is_for_scripts(name)).collect()
}

/// Commands that only read.
pub(crate) fn is_read(name: &str) -> bool {
    const READS: &[&str] = &[
        "GET",
        "MGET",
        "EXISTS",
        "TYPE",
        "STRLEN",
        "GETRANGE",
        "SUBSTR",
        "LRANGE",
        "LLEN",
        "LINDEX",
        "LPOS",
        "SCARD",
        "SISMEMBER",
        "SMISMEMBER",
        "HGET",
        "HMGET",
        "HLEN",
        "HEXISTS",
        "HSTRLEN",
        "ZCARD",
        "ZSCORE",
        "ZMSCORE",
        "ZRANK",
        "ZREVRANK",
        "ZCOUNT",
        "ZRANGE",
        "ZREVRANGE",
        "ZRANGEBYSCORE",
        "ZREVRANGEBYSCORE",
        "ZRANGEBYLEX",
        "ZLEXCOUNT",
        "ZUNION",
        "ZINTER",
        "ZDIFF",
        "ZINTERCARD",
        "SINTERCARD",
        "BITCOUNT",
        "BITPOS",
        "GETBIT",
        "BITFIELD_RO",
        "SORT_RO",
        "LCS",
        "GEODIST",
        "GEOHASH",
        "GEOPOS",
        "XLEN",
        "XRANGE",
        "XREVRANGE",
        "XREAD",
        "XPENDING",
        "XINFO STREAM",
        "XINFO GROUPS",
        "TOUCH",
        "OBJECT ENCODING",
        "PFCOUNT",
    ];
    READS.contains(&name)
}
