//! CLIENT and its subcommands: what a connection says of itself, and what one may do to others.
//!
//! LIST and KILL look at every worker's connections: each worker answers for its own, the parts are joined.
//! The others concern the connection that asks, or (PAUSE) the server as a whole.
//!
//! Departure: inside EXEC, LIST and KILL see the connections of the worker that runs it and no others, as
//! shards can be lent for a transaction and sockets cannot.

use std::sync::atomic::Ordering;

use skerry_resp::number;
use skerry_resp::reply::Proto;

use super::{client_tracking, part_bulk, part_integer, reply_help};
use crate::args::{Args, is_word};
use crate::blocked::EndOfWait;
use crate::client::{BlockedRequest, BlockedState, Client, Closing, Ending, Parked, ReplyMode};
use crate::command::{Acl, Command, Conn, Ctx, Flags, Handler, Merge, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::Touch;
use crate::pubsub::Subscribed;
use crate::tracking::Mode;

#[rustfmt::skip]
pub const SUBCOMMANDS: &[Command] = &[
    row("client|getname", 2, Handler::Conn(client_getname), "The connection's name").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|getredir", 2, Handler::Conn(client_tracking::client_getredir), "Where invalidation messages of this connection go").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|help", 2, Handler::Conn(client_help), "The subcommands of CLIENT").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|id", 2, Handler::Conn(client_id), "The connection's number").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|info", 2, Handler::Conn(client_info), "What CLIENT LIST says of this connection").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output"]),
    row("client|kill", -3, Handler::Split(client_kill, Merge::Custom(client_kill_merge)), "Closes connections by address, number, age, type or user").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|list", -2, Handler::Split(client_list, Merge::Custom(client_list_merge)), "One line for each connection").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output"]),
    row("client|no-evict", 3, Handler::Conn(client_no_evict), "Keeps the connection out of client eviction").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|no-touch", 3, Handler::Conn(client_no_touch), "Lets the connection's reads leave the keys' clocks alone").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|pause", -3, Handler::Conn(client_pause), "Makes all requests, or all writes, wait for a while").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|reply", 3, Handler::Conn(client_reply), "Turns replies off and on").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|setinfo", 4, Handler::Conn(client_setinfo), "Notes the client library's name or version").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("client|setname", 3, Handler::Conn(client_setname), "Names the connection").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("client|unblock", -3, Handler::Split(client_unblock, Merge::Sum), "Ends the wait of another connection").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|caching", 3, Handler::Conn(client_tracking::client_caching), "Whether what the next request reads is tracked").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|tracking", -3, Handler::Conn(client_tracking::client_tracking), "Tells the connection which keys in its cache have changed").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|trackinginfo", 2, Handler::Conn(client_tracking::client_trackinginfo), "What the connection tracks").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|unpause", 2, Handler::Conn(client_unpause), "Ends a pause").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
];

/// CLIENT GETNAME
fn client_getname(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    match conn.client.name.as_slice() {
        b"" => conn.reply.null(),
        name => conn.reply.bulk(name),
    }
    Ok(())
}

/// CLIENT HELP
fn client_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

/// CLIENT ID
fn client_id(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.integer(conn.client.number as i64);
    Ok(())
}

/// CLIENT INFO
fn client_info(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let mut text = Vec::new();
    describe(conn.client, conn.now_ms, &mut text);
    conn.reply.verbatim(b"txt", &text);
    Ok(())
}

/// CLIENT LIST [TYPE type | ID id [id ...]]
fn client_list(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let mut text = Vec::new();
    match args.len() {
        2 => ctx.clients.of_owner(ctx.shard.id).for_each(|client| describe(client, ctx.now_ms, &mut text)),
        4 if is_word(args.get(2), "TYPE") => {
            let kind = client_type(args.get(3))?;
            let found = ctx.clients.of_owner(ctx.shard.id).filter(|client| kind_of(client) == kind);
            found.for_each(|client| describe(client, ctx.now_ms, &mut text));
        }
        n if n > 3 && is_word(args.get(2), "ID") => {
            let mut ids = Vec::with_capacity(n - 3);
            for arg in args.from(3) {
                ids.push(number::parse_i64(arg).ok_or(CommandError::text("ERR Invalid client ID"))?);
            }
            ids.sort_unstable();
            let is_asked = |client: &&Client| ids.binary_search(&(client.number as i64)).is_ok();
            let found = ctx.clients.of_owner(ctx.shard.id).filter(is_asked);
            found.for_each(|client| describe(client, ctx.now_ms, &mut text));
        }
        _ => return Err(CommandError::Syntax),
    }
    ctx.reply.bulk(&text);
    Ok(())
}

/// The lines of all workers, in the order in which the connections came.
fn client_list_merge(conn: &mut Conn<'_>, parts: &[&[u8]], _args: Args<'_>) -> Outcome {
    let number_of = |line: &[u8]| {
        let digits = line.strip_prefix(b"id=").unwrap_or(line).split(|byte| *byte == b' ').next();
        digits.and_then(number::parse_i64).unwrap_or(0)
    };
    let mut lines: Vec<(i64, &[u8])> = Vec::new();
    for part in parts {
        let text = part_bulk(part);
        lines.extend(text.split_inclusive(|byte| *byte == b'\n').map(|line| (number_of(line), line)));
    }
    lines.sort_unstable();
    let text: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line).copied().collect();
    conn.reply.verbatim(b"txt", &text);
    Ok(())
}

/// One line, in Redis 8.2.3's fields and order. What has no counterpart here (client eviction, tracking, I/O
/// threads) is neutral.
fn describe(client: &Client, now_ms: i64, out: &mut Vec<u8>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut flags = String::new();
    let letters = [
        (client.is_monitor, 'O'),
        (client.subscribed.is_some(), 'P'),
        (client.multi.is_some(), 'x'),
        (client.is_blocked() || client.parked == Parked::Pause, 'b'),
        (client.tracking.is_some(), 't'),
        (client.tracking.as_ref().is_some_and(|tracking| tracking.is_redirect_broken), 'R'),
        (client.tracking.as_ref().is_some_and(|tracking| tracking.mode == Mode::Broadcast), 'B'),
        (client.closing == Closing::AfterReplies, 'c'),
        (client.closing == Closing::Now, 'A'),
        (client.is_unix, 'U'),
        (client.is_no_evict, 'e'),
        (client.touch == Touch::LeavesNoMark, 'T'),
    ];
    flags.extend(letters.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter));
    if flags.is_empty() {
        flags.push('N');
    }
    let subscribed = |count: fn(&Subscribed) -> usize| client.subscribed.as_ref().map_or(0, |all| count(all));
    let unread = client.query.len() - client.query_at;
    let multi_bytes = client.multi.as_ref().map_or(0, |multi| multi.bytes);
    let line = format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} watch={} \
         qbuf={unread} qbuf-free={} argv-mem=0 multi-mem={multi_bytes} rbs={} rbp={} obl={} oll={} omem={} tot-mem={} \
         events={} cmd={} user=default redir={} resp={} lib-name={} lib-ver={} io-thread=0 tot-net-in={} tot-net-out={} \
         tot-cmds={}",
        client.number,
        client.address,
        client.local_address,
        client.fd,
        text(&client.name),
        (now_ms - client.created_ms).max(0) / 1000,
        (now_ms - client.last_active_ms).max(0) / 1000,
        client.db.0,
        subscribed(|all| all.channels.len()),
        subscribed(|all| all.patterns.len()),
        subscribed(|all| all.shard_channels.len()),
        client.multi.as_ref().map_or(-1, |multi| multi.queue.len() as i64),
        client.watched.len(),
        client.query.capacity() - unread.min(client.query.capacity()),
        client.out.capacity(),
        client.out.len(),
        client.out.len() - client.out_at,
        client.pending.len(),
        client.held.len(),
        client.bytes(),
        if client.unsent() > 0 { "rw" } else { "r" },
        client.last_command.map_or("NULL".to_owned(), |command| command.name.to_ascii_lowercase()),
        client_tracking::redirect_of(client.tracking.as_deref()),
        if client.proto == Proto::Resp3 { 3 } else { 2 },
        text(&client.lib_name),
        text(&client.lib_ver),
        client.bytes_in,
        client.bytes_out,
        client.n_commands,
    );
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

/// The kinds of connections that Redis tells apart; there are no replicas and masters yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientType {
    Normal,
    Replica,
    Pubsub,
    Master,
}

fn kind_of(client: &Client) -> ClientType {
    if client.subscribed.is_some() { ClientType::Pubsub } else { ClientType::Normal }
}

fn client_type(word: &[u8]) -> Result<ClientType, CommandError> {
    const TYPES: [(&str, ClientType); 5] = [
        ("normal", ClientType::Normal),
        ("slave", ClientType::Replica),
        ("replica", ClientType::Replica),
        ("pubsub", ClientType::Pubsub),
        ("master", ClientType::Master),
    ];
    let found = TYPES.iter().find(|(name, _)| is_word(word, name));
    found
        .map(|(_, kind)| *kind)
        .ok_or_else(|| CommandError::Bytes([b"ERR Unknown client type '" as &[u8], word, b"'"].concat()))
}

/// Which connections CLIENT KILL means.
#[derive(Default)]
struct KillFilter<'a> {
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    id: Option<i64>,
    max_age_s: Option<i64>,
    kind: Option<ClientType>,
    skips_me: bool,
}

impl<'a> KillFilter<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        if args.len() == 3 {
            return Ok(Self { address: Some(args.get(2)), ..Self::default() });
        }
        let mut filter = Self { skips_me: true, ..Self::default() };
        let mut at = 2;
        while at < args.len() {
            let option = args.get(at);
            if at + 1 == args.len() {
                return Err(CommandError::Syntax);
            }
            let value = args.get(at + 1);
            match option.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number::parse_i64(value).filter(|id| *id > 0);
                    filter.id = Some(id.ok_or(CommandError::text("ERR client-id should be greater than 0"))?);
                }
                b"maxage" => {
                    let age = number::parse_i64(value)
                        .ok_or(CommandError::text("ERR maxage is not an integer or out of range"))?;
                    if age <= 0 {
                        return Err(CommandError::text("ERR maxage should be greater than 0"));
                    }
                    filter.max_age_s = Some(age);
                }
                b"type" => filter.kind = Some(client_type(value)?),
                b"addr" => filter.address = Some(value),
                b"laddr" => filter.local_address = Some(value),
                b"user" if value == b"default" => {}
                b"user" => {
                    return Err(CommandError::Bytes([b"ERR No such user '" as &[u8], value, b"'"].concat()));
                }
                b"skipme" if is_word(value, "yes") => filter.skips_me = true,
                b"skipme" if is_word(value, "no") => filter.skips_me = false,
                _ => return Err(CommandError::Syntax),
            }
            at += 2;
        }
        Ok(filter)
    }

    fn means(&self, client: &Client, now_ms: i64) -> bool {
        let is = |wanted: Option<&[u8]>, has: &str| wanted.is_none_or(|wanted| wanted == has.as_bytes());
        is(self.address, &client.address)
            && is(self.local_address, &client.local_address)
            && self.id.is_none_or(|id| id == client.number as i64)
            && self.kind.is_none_or(|kind| kind == kind_of(client))
            && self.max_age_s.is_none_or(|age| (now_ms - client.created_ms) / 1000 >= age)
    }
}

/// CLIENT KILL ip:port | CLIENT KILL filter value [filter value ...]: the number that this worker closes.
fn client_kill(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let filter = KillFilter::parse(args)?;
    let (caller, now_ms) = (ctx.caller.client, ctx.now_ms);
    let mut killed = Vec::new();
    let own = ctx.shard.id;
    for client in ctx.clients.iter_mut().filter(|client| client.id.worker() == own) {
        let is_caller = client.id == caller;
        if client.closing == Closing::Now || (is_caller && filter.skips_me) || !filter.means(client, now_ms) {
            continue;
        }
        // The caller still gets its reply.
        client.closing = if is_caller { Closing::AfterReplies } else { Closing::Now };
        killed.push(client.id);
    }
    ctx.reply.integer(killed.len() as i64);
    ctx.clients.to_close.extend(killed);
    Ok(())
}

fn client_kill_merge(conn: &mut Conn<'_>, parts: &[&[u8]], args: Args<'_>) -> Outcome {
    let n: i64 = parts.iter().map(|part| part_integer(part)).sum();
    match args.len() {
        3 if n == 0 => return Err(CommandError::text("ERR No such client")),
        3 => conn.reply.ok(),
        _ => conn.reply.integer(n),
    }
    Ok(())
}

/// ON or OFF.
fn switch(word: &[u8]) -> Result<bool, CommandError> {
    match word {
        _ if is_word(word, "on") => Ok(true),
        _ if is_word(word, "off") => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

/// CLIENT NO-EVICT ON|OFF
fn client_no_evict(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    conn.client.is_no_evict = switch(args.get(2))?;
    conn.reply.ok();
    Ok(())
}

/// CLIENT NO-TOUCH ON|OFF
fn client_no_touch(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    conn.client.touch = if switch(args.get(2))? { Touch::LeavesNoMark } else { Touch::Marks };
    conn.reply.ok();
    Ok(())
}

/// CLIENT PAUSE timeout [WRITE|ALL]: a second one may lengthen the pause, never shorten it.
fn client_pause(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let is_writes_only = match args.len() {
        3 => false,
        4 if is_word(args.get(3), "write") => true,
        4 if is_word(args.get(3), "all") => false,
        4 => return Err(CommandError::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(super::wrong_subcommand(args, "CLIENT")),
    };
    let timeout_ms = number::parse_i64(args.get(2))
        .ok_or(CommandError::text("ERR timeout is not an integer or out of range"))?;
    if timeout_ms < 0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    let until_ms =
        conn.now_ms.checked_add(timeout_ms).ok_or(CommandError::text("ERR timeout is out of range"))?;
    // A pause of all requests stays one.
    let is_all_paused = conn.now_ms < conn.server.pause_until_ms.load(Ordering::Relaxed)
        && !conn.server.pause_writes_only.load(Ordering::Relaxed);
    conn.server.pause_writes_only.store(is_writes_only && !is_all_paused, Ordering::Relaxed);
    conn.server.pause_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    conn.server.touch_config();
    conn.reply.ok();
    Ok(())
}

/// CLIENT UNBLOCK client-id [TIMEOUT|ERROR]: whether this worker has the connection, and it was blocked.
fn client_unblock(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let ending = match args.len() {
        3 => Ending::TimedOut,
        4 if is_word(args.get(3), "timeout") => Ending::TimedOut,
        4 if is_word(args.get(3), "error") => Ending::Unblocked,
        4 => return Err(CommandError::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(super::wrong_subcommand(args, "CLIENT")),
    };
    let number = args.integer(2)?;
    let own = ctx.shard.id;
    let is_meant = |client: &&mut Client| client.id.worker() == own && client.number as i64 == number;
    let found = ctx.clients.iter_mut().find(is_meant).and_then(|client| {
        let blocked = client.blocked.as_deref_mut()?;
        Some((client.id, blocked.state, end_wait(blocked, ending)))
    });
    if let Some((id, BlockedState::Waits, EndOfWait::Ended)) = found {
        ctx.clients.to_unblock.push((id, ending));
    }
    let n_unblocked = found.is_some_and(|(_, _, end)| end == EndOfWait::Ended);
    ctx.reply.integer(i64::from(n_unblocked));
    Ok(())
}

fn end_wait(blocked: &mut BlockedRequest, ending: Ending) -> EndOfWait {
    loop {
        match blocked.end(ending) {
            // Its owner tries to serve it at this moment, which takes no longer than one command.
            EndOfWait::Undecided => std::hint::spin_loop(),
            end => return end,
        }
    }
}

/// CLIENT UNPAUSE
fn client_unpause(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.server.pause_until_ms.store(0, Ordering::Relaxed);
    conn.server.touch_config();
    conn.reply.ok();
    Ok(())
}

/// CLIENT REPLY ON|OFF|SKIP: only ON is answered.
fn client_reply(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    match args.get(2) {
        word if is_word(word, "on") => {
            conn.client.reply_mode = ReplyMode::On;
            conn.reply.ok();
        }
        word if is_word(word, "off") => conn.client.reply_mode = ReplyMode::Off,
        word if is_word(word, "skip") => {
            if conn.client.reply_mode != ReplyMode::Off {
                conn.client.reply_mode = ReplyMode::SkipNext;
            }
        }
        _ => return Err(CommandError::Syntax),
    }
    Ok(())
}

/// CLIENT SETINFO LIB-NAME|LIB-VER value
fn client_setinfo(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let (attribute, value) = (args.get(2), args.get(3));
    let place = match attribute {
        word if is_word(word, "lib-name") => &mut conn.client.lib_name,
        word if is_word(word, "lib-ver") => &mut conn.client.lib_ver,
        _ => {
            return Err(CommandError::Bytes(
                [b"ERR Unrecognized option '" as &[u8], attribute, b"'"].concat(),
            ));
        }
    };
    if !is_plain(value) {
        let reason = b" cannot contain spaces, newlines or special characters.";
        return Err(CommandError::Bytes([b"ERR " as &[u8], attribute, reason].concat()));
    }
    value.clone_into(place);
    conn.reply.ok();
    Ok(())
}

/// CLIENT SETNAME connection-name
fn client_setname(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    check_name(args.get(2))?;
    args.get(2).clone_into(&mut conn.client.name);
    conn.server.connections.rename(conn.client.id, args.get(2));
    conn.reply.ok();
    Ok(())
}

/// Names stand in CLIENT LIST's lines, so they hold neither blanks nor line ends.
pub fn check_name(name: &[u8]) -> Outcome {
    const BAD_NAME: CommandError =
        CommandError::text("ERR Client names cannot contain spaces, newlines or special characters.");
    if is_plain(name) { Ok(()) } else { Err(BAD_NAME) }
}

fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "    * ID <client-id>",
    "      Kill connections by client id.",
    "    * MAXAGE <maxage>",
    "      Kill connections older than the specified age.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Will not touch LRU/LFU stats when this mode is on.",
    "HELP",
    "    Print this help.",
];
