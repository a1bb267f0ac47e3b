//! Which commands the random programs use: one row per command and option, with its weight and how its replies
//! are compared. Adding a command to the test is adding its rows here.
//!
//! In a template upper case is literal and lower case names a generator of `draw` (`str` is a key that usually
//! holds a string, `member*` one to four members, `field:val*` one to four pairs). The template is also the label
//! under which the row's non-empty replies are counted.

use super::compare::Compare::{self, *};

pub(crate) struct Row {
    pub(crate) template: &'static str,
    pub(crate) weight: u32,
    pub(crate) compare: Compare,
    /// Rows of later issues run as soon as our server knows the command.
    pub(crate) when: When,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    IfKnown,
}

impl Row {
    pub(crate) fn command(&self) -> &'static str {
        self.template.split(' ').next().expect("a name")
    }
}

const fn row(weight: u32, template: &'static str, compare: Compare) -> Row {
    Row { template, weight, compare, when: When::Always }
}

const fn later(weight: u32, template: &'static str, compare: Compare) -> Row {
    Row { template, weight, compare, when: When::IfKnown }
}

pub(crate) static TABLE: &[Row] = &[
    // generic
    row(4, "DEL key", Exact),
    row(2, "DEL key*", Exact),
    row(2, "UNLINK key", Exact),
    row(2, "UNLINK key*", Exact),
    row(3, "EXISTS key*", Exact),
    row(4, "TYPE key", Exact),
    row(2, "TOUCH key*", Exact),
    row(2, "KEYS pattern", AnyOrder),
    row(2, "SCAN 0", Scan),
    row(2, "SCAN 0 MATCH pattern", Scan),
    row(2, "SCAN 0 COUNT scancount", Scan),
    row(2, "SCAN 0 TYPE type", Scan),
    row(4, "SCAN 0 TYPE type MATCH pattern COUNT scancount", Scan),
    row(3, "RANDOMKEY", RandomKey),
    row(3, "RENAME pair", Exact),
    row(6, "RENAMENX pair", Exact),
    row(6, "COPY pair", Exact),
    row(3, "COPY pair REPLACE", Exact),
    row(4, "COPY pair DB db", Exact),
    row(3, "COPY pair DB db REPLACE", Exact),
    row(6, "MOVE key db", Exact),
    row(5, "EXPIRE key sec", Exact),
    row(6, "EXPIRE key sec NX", Exact),
    row(7, "EXPIRE key sec XX", Exact),
    row(14, "EXPIRE key sec GT", Exact),
    row(4, "EXPIRE key sec LT", Exact),
    row(15, "EXPIRE key sec XX GT", Exact),
    row(14, "EXPIRE key sec XX LT", Exact),
    row(2, "PEXPIRE key ms", Exact),
    row(4, "PEXPIRE key ms NX", Exact),
    row(7, "PEXPIRE key ms XX", Exact),
    row(14, "PEXPIRE key ms GT", Exact),
    row(3, "PEXPIRE key ms LT", Exact),
    row(2, "EXPIREAT key at", Exact),
    row(4, "EXPIREAT key at NX", Exact),
    row(6, "EXPIREAT key at XX", Exact),
    row(16, "EXPIREAT key at GT", Exact),
    row(3, "EXPIREAT key at LT", Exact),
    row(2, "PEXPIREAT key at_ms", Exact),
    row(4, "PEXPIREAT key at_ms NX", Exact),
    row(6, "PEXPIREAT key at_ms XX", Exact),
    row(14, "PEXPIREAT key at_ms GT", Exact),
    row(3, "PEXPIREAT key at_ms LT", Exact),
    row(6, "TTL key", Seconds),
    row(6, "PTTL key", Milliseconds),
    row(6, "EXPIRETIME key", Seconds),
    row(6, "PEXPIRETIME key", Milliseconds),
    row(6, "PERSIST key", Exact),
    row(6, "OBJECT ENCODING key", Exact),
    row(2, "MEMORY USAGE key", Shape),
    row(2, "MEMORY USAGE key SAMPLES count", Shape),
    row(1, "DBSIZE", Exact),
    // string
    row(14, "SET str val", Exact),
    row(5, "SET str val NX", Exact),
    row(3, "SET str val XX", Exact),
    row(3, "SET str val GET", Exact),
    row(5, "SET str val NX GET", Exact),
    row(3, "SET str val XX GET", Exact),
    row(3, "SET str val KEEPTTL", Exact),
    row(3, "SET str val XX KEEPTTL GET", Exact),
    row(3, "SET str val EX sec", Exact),
    row(3, "SET str val PX ms", Exact),
    row(3, "SET str val EXAT at", Exact),
    row(3, "SET str val PXAT at_ms", Exact),
    row(5, "SET str val NX EX sec", Exact),
    row(3, "SET str val XX PX ms GET", Exact),
    row(4, "SET str int", Exact),
    row(3, "SET str float", Exact),
    row(6, "GET str", Exact),
    row(4, "GETDEL str", Exact),
    row(3, "GETEX str", Exact),
    row(3, "GETEX str EX sec", Exact),
    row(3, "GETEX str PX ms", Exact),
    row(3, "GETEX str EXAT at", Exact),
    row(3, "GETEX str PXAT at_ms", Exact),
    row(3, "GETEX str PERSIST", Exact),
    row(4, "GETRANGE str index index", Exact),
    row(3, "SUBSTR str index index", Exact),
    row(3, "GETSET str val", Exact),
    row(3, "SETEX str sec val", Exact),
    row(3, "PSETEX str ms val", Exact),
    row(5, "SETNX str val", Exact),
    row(4, "SETRANGE str offset val", Exact),
    row(4, "STRLEN str", Exact),
    row(4, "APPEND str val", Exact),
    row(5, "INCR str", Exact),
    row(5, "DECR str", Exact),
    row(5, "INCRBY str int", Exact),
    row(5, "DECRBY str int", Exact),
    row(6, "INCRBYFLOAT str float", Exact),
    row(4, "MGET str*", Exact),
    row(3, "MGET key*", Exact),
    row(3, "MSET str:val*", Exact),
    row(8, "MSETNX str:val*", Exact),
    // list
    row(8, "LPUSH list val*", Exact),
    row(8, "RPUSH list val*", Exact),
    row(8, "LPUSH list item*", Exact),
    row(8, "RPUSH list item*", Exact),
    row(3, "LPUSHX list val*", Exact),
    row(3, "RPUSHX list val*", Exact),
    row(4, "LPOP list", Exact),
    row(3, "LPOP list count", Exact),
    row(4, "RPOP list", Exact),
    row(3, "RPOP list count", Exact),
    row(6, "LRANGE list index index", Exact),
    row(5, "LINDEX list index", Exact),
    row(5, "LSET list index val", Exact),
    row(3, "LTRIM list index index", Exact),
    row(4, "LLEN list", Exact),
    later(7, "LINSERT list BEFORE item val", Exact),
    later(7, "LINSERT list AFTER item val", Exact),
    later(8, "LREM list index item", Exact),
    later(10, "LPOS list item", Exact),
    later(10, "LPOS list item COUNT count", Exact),
    later(3, "LMOVE list list LEFT RIGHT", Exact),
    later(3, "RPOPLPUSH list list", Exact),
    // set
    row(16, "SADD set member*", Exact),
    row(4, "SADD set int*", Exact),
    row(9, "SREM set member*", Exact),
    row(14, "SISMEMBER set member", Exact),
    row(4, "SMEMBERS set", AnyOrder),
    row(4, "SCARD set", Exact),
    row(4, "SPOP set", Pop),
    row(4, "SPOP set count", Pop),
    row(4, "SRANDMEMBER set", RandomMember),
    row(4, "SRANDMEMBER set pick", RandomMember),
    row(3, "SRANDMEMBER set negative", RandomMember),
    row(8, "SINTER set set", AnyOrder),
    row(12, "SINTER set set set", AnyOrder),
    row(4, "SUNION set set", AnyOrder),
    row(2, "SUNION set set set", AnyOrder),
    row(4, "SDIFF set set", AnyOrder),
    row(6, "SDIFF set set set", AnyOrder),
    row(10, "SINTERSTORE set set set", Exact),
    row(3, "SUNIONSTORE set set set", Exact),
    row(4, "SDIFFSTORE set set set", Exact),
    later(3, "SMISMEMBER set member*", Exact),
    later(14, "SMOVE set set member", Exact),
    later(6, "SINTERCARD 2 set set", Exact),
    // hash
    row(9, "HSET hash field:val*", Exact),
    row(4, "HSET hash field int", Exact),
    row(3, "HSET hash field float", Exact),
    row(8, "HGET hash field", Exact),
    row(5, "HMGET hash field*", Exact),
    row(4, "HGETALL hash", Pairs),
    row(5, "HDEL hash field*", Exact),
    row(4, "HLEN hash", Exact),
    row(7, "HEXISTS hash field", Exact),
    row(4, "HKEYS hash", AnyOrder),
    row(4, "HVALS hash", AnyOrder),
    row(6, "HINCRBY hash field int", Exact),
    row(7, "HINCRBYFLOAT hash field float", Exact),
    row(7, "HSETNX hash field val", Exact),
    later(3, "HMSET hash field:val*", Exact),
    later(7, "HSTRLEN hash field", Exact),
    later(3, "HRANDFIELD hash", RandomField),
    later(3, "HRANDFIELD hash pick", RandomField),
    later(3, "HRANDFIELD hash negative", RandomField),
    later(3, "HRANDFIELD hash pick WITHVALUES", RandomField),
];

/// Commands of the connection and the whole server: drawn seldom, since they turn over everything.
pub(crate) static WIDE: &[Row] = &[
    row(30, "SELECT db", Exact),
    row(8, "SWAPDB db db", Exact),
    row(3, "FLUSHDB", Exact),
    row(3, "FLUSHDB ASYNC", Exact),
    row(3, "FLUSHDB SYNC", Exact),
    row(3, "FLUSHALL", Exact),
    row(3, "FLUSHALL ASYNC", Exact),
    row(3, "FLUSHALL SYNC", Exact),
];

/// The words of a transaction; `draw::transaction` puts them together.
pub(crate) static TRANSACTION: &[Row] = &[
    row(1, "MULTI", Exact),
    row(1, "EXEC", Exec),
    row(1, "DISCARD", Exact),
    row(1, "WATCH key*", Exact),
    row(1, "UNWATCH", Exact),
];
