//! Connection commands: AUTH, HELLO, PING, ECHO, SELECT, CLIENT and the like (<https://redis.io/docs/latest/commands/?group=connection>).

use crate::args::Args;
use crate::command::{Acl, Command, Conn, Ctx, Flags, Flow, Handler, Merge, row};
use crate::error::{CommandError, Outcome};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("auth", -2, Handler::Conn(auth), "").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("hello", -1, Handler::Conn(hello), "").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("ping", -1, Handler::Conn(ping), "").flags(Flags::FAST).acl(Acl::CONNECTION).tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    row("echo", 2, Handler::Conn(echo), "").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("select", 2, Handler::Conn(select), "").flags(Flags::FAST.with(Flags::LOADING).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("quit", -1, Handler::Flow(Flow::Quit), "").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("reset", 1, Handler::Flow(Flow::Reset), "").flags(Flags::ALLOW_BUSY.with(Flags::FAST).with(Flags::LOADING).with(Flags::NO_AUTH).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client", -2, Handler::Container, "").subcommands(&[
    row("client|getname", 2, Handler::Conn(client_getname), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|getredir", 2, Handler::Conn(client_getredir), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|help", 2, Handler::Conn(client_help), "").flags(Flags::LOADING.with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|id", 2, Handler::Conn(client_id), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|info", 2, Handler::Conn(client_info), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output"]),
    row("client|kill", -3, Handler::Split(client_kill, Merge::Custom(client_kill_merge)), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|list", -2, Handler::Split(client_list, Merge::Text), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["nondeterministic_output"]),
    row("client|no-evict", 3, Handler::Conn(client_no_evict), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|no-touch", 3, Handler::Conn(client_no_touch), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|pause", -3, Handler::Conn(client_pause), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|reply", 3, Handler::Conn(client_reply), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
    row("client|setinfo", 4, Handler::Conn(client_setinfo), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("client|setname", 3, Handler::Conn(client_setname), "").flags(Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION).tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    row("client|unpause", 2, Handler::Conn(client_unpause), "").flags(Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE)).acl(Acl::CONNECTION),
]),
];


fn auth(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn hello(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn ping(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => conn.reply.pong(),
        2 => conn.reply.bulk(args.get(1)),
        _ => return Err(CommandError::WrongArity("ping")),
    }
    Ok(())
}

fn echo(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn select(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_getname(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_getredir(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_help(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_id(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_info(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_kill(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_kill_merge(conn: &mut Conn<'_>, parts: &[&[u8]], args: Args<'_>) -> Outcome {
    let _ = (conn, parts, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_list(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let _ = (ctx, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_no_evict(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_no_touch(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_pause(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_reply(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_setinfo(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_setname(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}

fn client_unpause(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let _ = (conn, args);
    Err(CommandError::text("ERR not there yet"))
}
