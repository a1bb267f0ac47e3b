//! LATENCY (<https://redis.io/docs/latest/commands/?group=server>): the latency monitor's events, and the histograms of commands.

use super::{Row, TABLE, command_info, reply_help};
use crate::args::Args;
use crate::command::{Command, Conn, Flags, Handler, row};
use crate::error::{CommandError, Outcome};
use crate::histogram::Distribution;
use crate::server::Server;

const ADMIN: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::NOSCRIPT).with(Flags::STALE);
const SPECIAL: &[&str] = &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("latency", -2, Handler::Container, "What has taken long").subcommands(&[
        row("latency|doctor", 2, Handler::Conn(latency_doctor), "A report for people").flags(ADMIN).tips(SPECIAL),
        row("latency|graph", 3, Handler::Conn(latency_graph), "A picture of an event's samples").flags(ADMIN).tips(SPECIAL),
        row("latency|help", 2, Handler::Conn(latency_help), "The subcommands of LATENCY").flags(Flags::LOADING.with(Flags::STALE)),
        row("latency|histogram", -2, Handler::Conn(latency_histogram), "How long commands take, by doublings").flags(ADMIN).tips(SPECIAL),
        row("latency|history", 3, Handler::Conn(latency_history), "An event's samples").flags(ADMIN).tips(SPECIAL),
        row("latency|latest", 2, Handler::Conn(latency_latest), "The last sample of each event").flags(ADMIN).tips(SPECIAL),
        row("latency|reset", -2, Handler::Conn(latency_reset), "Forgets the samples of some events, or of all").flags(ADMIN).tips(&["request_policy:all_nodes", "response_policy:agg_sum"]),
    ]),
];

/// LATENCY DOCTOR
fn latency_doctor(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let report = conn.server.latency.report(conn.config, conn.now_ms / 1000);
    conn.reply.verbatim(b"txt", report.as_bytes());
    Ok(())
}

/// LATENCY GRAPH event
fn latency_graph(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let event = args.get(2);
    let events = conn.server.latency.events();
    let found = events.iter().find(|(name, _)| name.as_bytes() == event);
    let Some((name, series)) = found else {
        let front = b"ERR No samples available for event '" as &[u8];
        return Err(CommandError::Bytes([front, event, b"'"].concat()));
    };
    let picture = series.graph(name, conn.now_ms / 1000);
    conn.reply.verbatim(b"txt", &picture);
    Ok(())
}

/// LATENCY HISTORY event
fn latency_history(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let events = conn.server.latency.events();
    let found = events.iter().find(|(name, _)| name.as_bytes() == args.get(2));
    let samples = found.map(|(_, series)| &series.samples);
    conn.reply.array(samples.map_or(0, std::collections::VecDeque::len));
    for sample in samples.into_iter().flatten() {
        conn.reply.array(2);
        conn.reply.integer(sample.at_s);
        conn.reply.integer(sample.latency_ms as i64);
    }
    Ok(())
}

/// LATENCY LATEST
fn latency_latest(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let events = conn.server.latency.events();
    conn.reply.array(events.len());
    for (name, series) in &*events {
        let last = series.samples.back().expect("a series begins with a sample");
        conn.reply.array(4);
        conn.reply.bulk(name.as_bytes());
        conn.reply.integer(last.at_s);
        conn.reply.integer(last.latency_ms as i64);
        conn.reply.integer(series.max_ms as i64);
    }
    Ok(())
}

/// LATENCY RESET [event ...]: how many were forgotten.
fn latency_reset(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let mut events = conn.server.latency.events();
    let before = events.len();
    match args.len() {
        2 => events.clear(),
        _ => events.retain(|name, _| args.from(2).all(|arg| arg != name.as_bytes())),
    }
    conn.reply.integer((before - events.len()) as i64);
    Ok(())
}

/// LATENCY HISTOGRAM [command ...]: a container's name stands for all its subcommands.
fn latency_histogram(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let mut rows: Vec<&Row> = Vec::new();
    if args.len() == 2 {
        rows.extend(TABLE.rows().iter().filter(|row| !command_info::is_hidden(row)));
    }
    for name in args.from(2) {
        let row = TABLE.full_name(name);
        rows.extend(row);
        rows.extend(row.into_iter().flat_map(|row| &row.subcommands).map(|(_, id)| TABLE.row(*id)));
    }
    let told: Vec<_> = rows
        .into_iter()
        .map(|row| (row, latencies_of(conn.server, row)))
        .filter(|(_, latencies)| latencies.n() > 0)
        .collect();
    conn.reply.map(told.len());
    for (row, latencies) in told {
        let n_calls: u64 = conn.server.command_stats.iter().map(|stats| stats.counts(row.id).calls).sum();
        conn.reply.bulk(row.command.name.as_bytes());
        conn.reply.map(2);
        conn.reply.bulk(b"calls");
        conn.reply.integer(n_calls.max(latencies.n()) as i64);
        conn.reply.bulk(b"histogram_usec");
        let steps = latencies.doublings();
        conn.reply.map(steps.len());
        for (us, n) in steps {
            conn.reply.integer(us as i64);
            // What was timed stands for all calls.
            conn.reply.integer(scaled(n, latencies.n(), n_calls.max(latencies.n())));
        }
    }
    Ok(())
}

/// `part` of `whole`, as a part of `all`.
fn scaled(part: u64, whole: u64, all: u64) -> i64 {
    (u128::from(part) * u128::from(all) / u128::from(whole.max(1))) as i64
}

/// The timed calls of a command, on all workers.
pub fn latencies_of(server: &Server, row: &Row) -> Distribution {
    let mut sum = Distribution::default();
    server.command_stats.iter().for_each(|stats| stats.add_latencies(row.id, &mut sum));
    if matches!(row.command.handler, Handler::Words) {
        // To clients, the words are arguments.
        for (_, id) in &row.subcommands {
            server.command_stats.iter().for_each(|stats| stats.add_latencies(*id, &mut sum));
        }
    }
    sum
}

/// LATENCY HELP
fn latency_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
    "    If no commands are specified then all histograms are replied.",
    "HELP",
    "    Print this help.",
];
