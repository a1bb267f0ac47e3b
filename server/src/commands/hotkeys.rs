//! HOTKEYS of Redis 8.6 (<https://redis.io/docs/latest/commands/hotkeys/>): which keys cost most time and bytes.

use skerry_resp::number;

use super::reply_help;
use crate::args::{Args, is_word};
use crate::command::{Command, Conn, Flags, Handler, row};
use crate::error::{CommandError, Outcome};
use crate::hotkeys::{Cost, KeyCost, Session};

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);
/// Metrics that there are: CPU and NET.
const N_METRICS: i64 = 2;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("hotkeys", -2, Handler::Container, "Finds the keys that cost most").subcommands(&[
        row("hotkeys|get", 2, Handler::Conn(hotkeys_get), "What was found so far").flags(ADMIN),
        row("hotkeys|help", 2, Handler::Conn(hotkeys_help), "The subcommands of HOTKEYS").flags(Flags::LOADING.with(Flags::STALE)),
        row("hotkeys|reset", 2, Handler::Conn(hotkeys_reset), "Forgets what was found").flags(ADMIN),
        row("hotkeys|start", -2, Handler::Conn(hotkeys_start), "Begins to look").flags(ADMIN),
        row("hotkeys|stop", 2, Handler::Conn(hotkeys_stop), "Ends looking; what was found stays").flags(ADMIN),
    ]),
];

fn in_range(arg: &[u8], max: i64, text: &'static str) -> Result<i64, CommandError> {
    number::parse_i64(arg).filter(|value| (1..=max).contains(value)).ok_or(CommandError::text(text))
}

/// HOTKEYS START METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot [slot ...]]
fn hotkeys_start(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    if conn.server.hotkeys.session(conn.now_ms).is_some_and(|session| session.is_active) {
        return Err(CommandError::text("ERR hotkey tracking session already in progress"));
    }
    if args.len() < 4 || !is_word(args.get(2), "metrics") {
        return Err(CommandError::text("ERR METRICS parameter is required"));
    }
    let n_metrics = in_range(args.get(3), N_METRICS, "ERR METRICS count must be > 0 and <= 2")? as usize;
    let mut session = Session::new(conn.now_ms);
    for word in args.from(4).take(n_metrics) {
        let (metric, text) = match word {
            _ if is_word(word, "cpu") => (&mut session.has_cpu, "ERR METRICS CPU defined more than once!"),
            _ if is_word(word, "net") => (&mut session.has_net, "ERR METRICS NET defined more than once!"),
            _ => continue,
        };
        if std::mem::replace(metric, true) {
            return Err(CommandError::text(text));
        }
    }
    if args.len() - 4 < n_metrics {
        return Err(CommandError::text("ERR METRICS count does not match number of metric types provided"));
    }
    if !session.has_cpu && !session.has_net {
        return Err(CommandError::text("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    let mut at = 4 + n_metrics;
    while at < args.len() {
        let Some(value) = args.from(at + 1).next() else { return Err(CommandError::Syntax) };
        match args.get(at) {
            word if is_word(word, "count") => {
                session.count = in_range(value, 64, "ERR COUNT must be between 1 and 64")? as usize;
            }
            word if is_word(word, "duration") => {
                let seconds = in_range(value, 1_000_000, "ERR DURATION must be between 1 and 1000000")?;
                session.ends_ms = Some(conn.now_ms + seconds * 1000);
            }
            word if is_word(word, "sample") => {
                let ratio = in_range(value, i64::from(i32::MAX), "ERR SAMPLE ratio must be positive")?;
                session.sample_ratio = ratio as u32;
            }
            word if is_word(word, "slots") => {
                return Err(CommandError::text("ERR SLOTS parameter cannot be used in non-cluster mode"));
            }
            _ => return Err(CommandError::Syntax),
        }
        at += 2;
    }
    conn.server.hotkeys.start(session);
    conn.server.touch_config();
    conn.reply.ok();
    Ok(())
}

/// HOTKEYS STOP
fn hotkeys_stop(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.server.hotkeys.session(conn.now_ms);
    match conn.server.hotkeys.stop(conn.now_ms) {
        true => {
            conn.server.touch_config();
            conn.reply.ok();
        }
        false => conn.reply.null(),
    }
    Ok(())
}

/// HOTKEYS RESET
fn hotkeys_reset(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    if conn.server.hotkeys.session(conn.now_ms).is_some_and(|session| session.is_active) {
        return Err(CommandError::text("ERR hotkey tracking session in progress, stop tracking first"));
    }
    conn.server.hotkeys.clear();
    conn.reply.ok();
    Ok(())
}

/// HOTKEYS GET: an array of one map.
fn hotkeys_get(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let Some(session) = conn.server.hotkeys.session(conn.now_ms) else {
        conn.reply.null();
        return Ok(());
    };
    let (all, sampled, keys) = conn.server.hotkeys.sums();
    let until_ms = if session.is_active { conn.now_ms } else { session.stopped_ms };
    let mut numbers = vec![
        ("all-commands-all-slots-us", (all.ns / 1000) as i64),
        ("net-bytes-all-commands-all-slots", all.bytes as i64),
        ("collection-start-time-unix-ms", session.started_ms),
        ("collection-duration-ms", until_ms - session.started_ms),
    ];
    if session.has_cpu {
        let (user_ms, system_ms) = session.cpu_ms();
        numbers.extend([("total-cpu-time-user-ms", user_ms), ("total-cpu-time-sys-ms", system_ms)]);
    }
    if session.has_net {
        numbers.push(("total-net-bytes", sampled.bytes as i64));
    }
    conn.reply.array(1);
    let n_lists = usize::from(session.has_cpu) + usize::from(session.has_net);
    conn.reply.map(3 + numbers.len() + n_lists);
    conn.reply.bulk(b"tracking-active");
    conn.reply.integer(i64::from(session.is_active));
    conn.reply.bulk(b"sample-ratio");
    conn.reply.integer(i64::from(session.sample_ratio));
    conn.reply.bulk(b"selected-slots");
    conn.reply.array(0);
    for (name, number) in numbers {
        conn.reply.bulk(name.as_bytes());
        conn.reply.integer(number);
    }
    if session.has_cpu {
        conn.reply.bulk(b"by-cpu-time-us");
        reply_hottest(conn, &keys, session.count, |cost| cost.ns / 1000);
    }
    if session.has_net {
        conn.reply.bulk(b"by-net-bytes");
        reply_hottest(conn, &keys, session.count, |cost| cost.bytes);
    }
    Ok(())
}

/// The keys of the greatest costs, greatest first.
fn reply_hottest(conn: &mut Conn<'_>, keys: &[KeyCost], count: usize, of: fn(&Cost) -> u64) {
    let mut costs: Vec<(u64, &[u8])> = keys.iter().map(|(key, cost)| (of(cost), &**key)).collect();
    costs.retain(|(cost, _)| *cost > 0);
    costs.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    costs.truncate(count);
    conn.reply.array(2 * costs.len());
    for (cost, key) in costs {
        conn.reply.bulk(key);
        conn.reply.integer(cost as i64);
    }
}

/// HOTKEYS HELP
fn hotkeys_help(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    reply_help(conn, HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "HOTKEYS <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "START METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio]",
    "    Begin to look for the keys that cost most.",
    "STOP",
    "    Stop looking; results stay available.",
    "GET",
    "    Return the results.",
    "RESET",
    "    Forget the results, when stopped.",
    "HELP",
    "    Print this help.",
];
