//! Connection commands but CLIENT: AUTH, HELLO, PING, ECHO, SELECT
//! (<https://redis.io/docs/latest/commands/?group=connection>). QUIT and RESET are the dispatcher's own.

use skerry_resp::number;
use skerry_resp::reply::{Proto, Reply};

use super::client;
use crate::args::{Args, is_word};
use crate::command::{Acl, Command, Conn, Flags, Flow, Handler, row};
use crate::error::{CommandError, Outcome};
use crate::server::REDIS_VERSION;
use crate::shard::DbIndex;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("auth", -2, Handler::Conn(auth), "Logs in with a password, or with a user name and a password").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("hello", -1, Handler::Conn(hello), "Chooses the protocol and introduces server and client to each other").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("ping", -1, Handler::Plain(ping), "Answers PONG, or its argument").flags(Flags::FAST).acl(Acl::CONNECTION).tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("echo", 2, Handler::Plain(echo), "Answers its argument").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("select", 2, Handler::Conn(select), "Changes the connection's database").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("quit", -1, Handler::Flow(Flow::Quit), "Closes the connection after its replies").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("reset", 1, Handler::Flow(Flow::Reset), "Brings the connection back to its first state").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client", -2, Handler::Container, "Looks at connections and changes them").subcommands(client::SUBCOMMANDS),
];

const NO_PASSWORD_SET: CommandError = CommandError::text(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
);
const WRONG_PASS: CommandError =
    CommandError::text("WRONGPASS invalid username-password pair or user is disabled.");
const HELLO_NEEDS_AUTH: CommandError = CommandError::text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);

/// AUTH [username] password
fn auth(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if conn.server.config().requirepass.is_empty() => return Err(NO_PASSWORD_SET),
        2 => log_in(conn, b"default", args.get(1))?,
        3 => log_in(conn, args.get(1), args.get(2))?,
        _ => return Err(CommandError::Syntax),
    }
    conn.reply.ok();
    Ok(())
}

/// The only user is `default`; while no password is set it takes any.
fn log_in(conn: &mut Conn<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let config = conn.server.config();
    let is_right = config.requirepass.is_empty() || is_equal(&config.requirepass, password);
    if user != b"default" || !is_right {
        return Err(WRONG_PASS);
    }
    conn.client.is_authenticated = true;
    Ok(())
}

/// Compares without telling by its duration where the texts part.
fn is_equal(secret: &[u8], given: &[u8]) -> bool {
    let mut difference = secret.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        difference |= usize::from(byte ^ secret[at % secret.len()]);
    }
    difference == 0
}

/// HELLO [protover [AUTH username password] [SETNAME clientname]]
fn hello(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let mut proto = None;
    if args.len() > 1 {
        proto = Some(match number::parse_i64(args.get(1)) {
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => return Err(CommandError::text("NOPROTO unsupported protocol version")),
            None => {
                return Err(CommandError::text("ERR Protocol version is not an integer or out of range"));
            }
        });
    }
    let (mut credentials, mut name) = (None, None);
    let mut at = 2;
    while at < args.len() {
        let n_more = args.len() - 1 - at;
        if is_word(args.get(at), "AUTH") && n_more >= 2 {
            credentials = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if is_word(args.get(at), "SETNAME") && n_more >= 1 {
            client::check_name(args.get(at + 1))?;
            name = Some(args.get(at + 1));
            at += 2;
        } else {
            let text = [b"ERR Syntax error in HELLO option '", args.get(at), b"'"].concat();
            return Err(CommandError::Bytes(text));
        }
    }
    if let Some((user, password)) = credentials {
        log_in(conn, user, password)?;
    }
    if !conn.client.is_authenticated {
        return Err(HELLO_NEEDS_AUTH);
    }
    if let Some(name) = name {
        name.clone_into(&mut conn.client.name);
        conn.server.connections.rename(conn.client.id, name);
    }
    conn.client.proto = proto.unwrap_or(conn.client.proto);
    introduce(&mut Reply::new(conn.reply.out(), conn.client.proto), conn.client.number);
    Ok(())
}

/// HELLO's reply, in the protocol just chosen.
fn introduce(reply: &mut Reply<'_>, client_number: u64) {
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if reply.proto() == Proto::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(client_number as i64);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    modules(reply);
}

/// What is built in here and is a module of Redis.
pub fn modules(reply: &mut Reply<'_>) {
    reply.array(1);
    reply.map(4);
    reply.bulk(b"name");
    reply.bulk(b"vectorset");
    reply.bulk(b"ver");
    reply.integer(1);
    reply.bulk(b"path");
    reply.bulk(b"");
    reply.bulk(b"args");
    reply.array(0);
}

/// PING [message]
fn ping(reply: &mut Reply<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => reply.pong(),
        2 => reply.bulk(args.get(1)),
        _ => return Err(CommandError::WrongArity("ping")),
    }
    Ok(())
}

/// ECHO message
fn echo(reply: &mut Reply<'_>, args: Args<'_>) -> Outcome {
    reply.bulk(args.get(1));
    Ok(())
}

/// SELECT index
fn select(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let index = args.integer(1)?;
    if i32::try_from(index).is_err() {
        return Err(CommandError::text(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    conn.client.db = database(conn.config.databases, index)?;
    conn.reply.ok();
    Ok(())
}

/// The database of this number, if there is one.
pub fn database(n_databases: u32, index: i64) -> Result<DbIndex, CommandError> {
    match u16::try_from(index) {
        Ok(index) if u32::from(index) < n_databases => Ok(DbIndex(index)),
        _ => Err(CommandError::DbIndexOutOfRange),
    }
}
