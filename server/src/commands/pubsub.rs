//! Publish and subscribe (<https://redis.io/docs/latest/commands/?group=pubsub>). The directory is `pubsub`, messages
//! leave by `dispatch::deliveries`.

use super::reply_help;
use crate::args::Args;
use crate::command::{Command, Conn, Flags, Handler, KeyFlags, range, row};
use crate::error::Outcome;
use crate::pubsub::Kind;

const LISTENING: Flags = Flags::LOADING.with(Flags::NOSCRIPT).with(Flags::PUBSUB).with(Flags::STALE);
const PUBLISHING: Flags = Flags::FAST.with(Flags::LOADING).with(Flags::PUBSUB).with(Flags::STALE);
const ASKING: Flags = Flags::LOADING.with(Flags::PUBSUB).with(Flags::STALE);

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("subscribe", -2, Handler::Conn(subscribe), "Listens to channels").flags(LISTENING),
    row("unsubscribe", -1, Handler::Conn(unsubscribe), "Listens to channels, or any, no more").flags(LISTENING),
    row("psubscribe", -2, Handler::Conn(psubscribe), "Listens to the channels that match patterns").flags(LISTENING),
    row("punsubscribe", -1, Handler::Conn(punsubscribe), "Listens to patterns, or any, no more").flags(LISTENING),
    row("ssubscribe", -2, Handler::Conn(ssubscribe), "Listens to shard channels").flags(LISTENING).keys(&[range(KeyFlags::NOT_KEY, 1, -1, 1)]),
    row("sunsubscribe", -1, Handler::Conn(sunsubscribe), "Listens to shard channels, or any, no more").flags(LISTENING).keys(&[range(KeyFlags::NOT_KEY, 1, -1, 1)]),
    row("publish", 3, Handler::Conn(publish), "Sends a message to a channel's listeners and tells how many there are").flags(PUBLISHING),
    row("spublish", 3, Handler::Conn(spublish), "Sends a message to a shard channel's listeners").flags(PUBLISHING).keys(&[range(KeyFlags::NOT_KEY, 1, 0, 1)]),
    row("pubsub", -2, Handler::Container, "Tells who listens to what").subcommands(&[
    row("pubsub|channels", -2, Handler::Conn(channels), "The channels that somebody listens to").flags(ASKING),
    row("pubsub|help", 2, Handler::Conn(help), "The subcommands of PUBSUB").flags(Flags::LOADING.with(Flags::STALE)),
    row("pubsub|numpat", 2, Handler::Conn(numpat), "The number of patterns that somebody listens to").flags(ASKING),
    row("pubsub|numsub", -2, Handler::Conn(numsub), "How many listen to channels").flags(ASKING),
    row("pubsub|shardchannels", -2, Handler::Conn(shardchannels), "The shard channels that somebody listens to").flags(ASKING),
    row("pubsub|shardnumsub", -2, Handler::Conn(shardnumsub), "How many listen to shard channels").flags(ASKING),
    ]),
];

/// SUBSCRIBE channel [channel ...]
fn subscribe(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    begin(conn, args, Kind::Channel, b"subscribe")
}

/// PSUBSCRIBE pattern [pattern ...]
fn psubscribe(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    begin(conn, args, Kind::Pattern, b"psubscribe")
}

/// SSUBSCRIBE shardchannel [shardchannel ...]
fn ssubscribe(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    begin(conn, args, Kind::Shard, b"ssubscribe")
}

/// One confirmation for each name; no other reply.
fn begin(conn: &mut Conn<'_>, args: Args<'_>, kind: Kind, word: &[u8]) -> Outcome {
    for name in args.from(1) {
        let directory = &conn.server.subscriptions;
        if conn.client.subscribed.is_none() {
            directory.client_begins();
        }
        let subscribed = conn.client.subscribed.get_or_insert_default();
        if subscribed.of(kind).insert(Box::from(name)) {
            directory.add(kind, name, conn.client.id);
        }
        let count = subscribed.count(kind);
        confirm(conn, word, Some(name), count);
    }
    Ok(())
}

/// UNSUBSCRIBE [channel [channel ...]]
fn unsubscribe(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    end(conn, args, Kind::Channel, b"unsubscribe")
}

/// PUNSUBSCRIBE [pattern [pattern ...]]
fn punsubscribe(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    end(conn, args, Kind::Pattern, b"punsubscribe")
}

/// SUNSUBSCRIBE [shardchannel [shardchannel ...]]
fn sunsubscribe(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    end(conn, args, Kind::Shard, b"sunsubscribe")
}

fn end(conn: &mut Conn<'_>, args: Args<'_>, kind: Kind, word: &[u8]) -> Outcome {
    let names: Vec<Box<[u8]>> = match args.len() {
        1 => conn.client.subscribed.as_mut().map_or(Vec::new(), |all| all.of(kind).iter().cloned().collect()),
        _ => args.from(1).map(Box::from).collect(),
    };
    if names.is_empty() {
        let count = conn.client.subscribed.as_ref().map_or(0, |all| all.count(kind));
        confirm(conn, word, None, count);
    }
    for name in names {
        let mut count = 0;
        if let Some(subscribed) = &mut conn.client.subscribed {
            if subscribed.of(kind).remove(&name) {
                conn.server.subscriptions.remove(kind, &name, conn.client.id);
            }
            count = subscribed.count(kind);
            if subscribed.is_empty() {
                conn.client.subscribed = None;
                conn.server.subscriptions.client_ends();
            }
        }
        confirm(conn, word, Some(&name), count);
    }
    Ok(())
}

fn confirm(conn: &mut Conn<'_>, word: &[u8], name: Option<&[u8]>, count: usize) {
    conn.reply.push(3);
    conn.reply.bulk(word);
    match name {
        Some(name) => conn.reply.bulk(name),
        None => conn.reply.null(),
    }
    conn.reply.integer(count as i64);
}

/// PUBLISH channel message
fn publish(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    send(conn, args, Kind::Channel)
}

/// SPUBLISH shardchannel message
fn spublish(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    send(conn, args, Kind::Shard)
}

fn send(conn: &mut Conn<'_>, args: Args<'_>, kind: Kind) -> Outcome {
    let directory = &conn.server.subscriptions;
    let n_before = conn.deliveries.len();
    let n = match directory.is_anyone() {
        true => directory.deliveries(kind, args.get(1), args.get(2), conn.deliveries),
        false => 0,
    };
    conn.reply.integer(n as i64);
    let hard_bytes = conn.config.client_output_buffer_limit.pubsub.hard_bytes;
    if hard_bytes > 0 && args.get(2).len() as u64 > hard_bytes {
        // It is the end of each receiver, wherever that is: none of them listens any more.
        for delivery in &conn.deliveries[n_before..] {
            let name =
                if delivery.kind == Kind::Pattern { &delivery.pattern[..] } else { &delivery.channel[..] };
            delivery.clients.iter().for_each(|client| directory.remove(delivery.kind, name, *client));
        }
    }
    Ok(())
}

/// PUBSUB CHANNELS [pattern]
fn channels(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    list(conn, args, Kind::Channel)
}

/// PUBSUB SHARDCHANNELS [pattern]
fn shardchannels(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    list(conn, args, Kind::Shard)
}

fn list(conn: &mut Conn<'_>, args: Args<'_>, kind: Kind) -> Outcome {
    if args.len() > 3 {
        return Err(super::wrong_subcommand(args, "PUBSUB"));
    }
    let pattern = (args.len() == 3).then(|| args.get(2));
    let names = conn.server.subscriptions.channels(kind, pattern);
    conn.reply.array(names.len());
    names.iter().for_each(|name| conn.reply.bulk(name));
    Ok(())
}

/// PUBSUB NUMSUB [channel [channel ...]]
fn numsub(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    count(conn, args, Kind::Channel)
}

/// PUBSUB SHARDNUMSUB [shardchannel [shardchannel ...]]
fn shardnumsub(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    count(conn, args, Kind::Shard)
}

fn count(conn: &mut Conn<'_>, args: Args<'_>, kind: Kind) -> Outcome {
    conn.reply.array(2 * (args.len() - 2));
    for name in args.from(2) {
        conn.reply.bulk(name);
        conn.reply.integer(conn.server.subscriptions.n_listeners(kind, name) as i64);
    }
    Ok(())
}

/// PUBSUB NUMPAT
fn numpat(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.integer(conn.server.subscriptions.n_patterns() as i64);
    Ok(())
}

/// PUBSUB HELP
fn help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Print this help.",
];
