//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: which keys a connection wants to hear of when they change
//! (<https://redis.io/docs/latest/commands/client-tracking/>).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::args::{Args, is_word};
use crate::command::Conn;
use crate::error::{CommandError, Outcome};
use crate::tracking::{Mode, Tracking, flush_clock};

const OTHER_BROADCAST: CommandError = CommandError::text(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
);
const OTHER_OPTION: CommandError = CommandError::text(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
);

/// What CLIENT TRACKING ON asks for.
#[derive(Default)]
struct Options {
    redirect: u64,
    is_broadcast: bool,
    is_optin: bool,
    is_optout: bool,
    is_noloop: bool,
    prefixes: Vec<Box<[u8]>>,
}

impl Options {
    fn parse(conn: &Conn<'_>, args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            match args.get(at) {
                word if is_word(word, "redirect") && has_value => {
                    at += 1;
                    if options.redirect != 0 {
                        return Err(CommandError::text(
                            "ERR A client can only redirect to a single other client",
                        ));
                    }
                    let number = args.integer(at)?;
                    // A connection that is not there is no error of syntax: it may go at any time.
                    let found = u64::try_from(number)
                        .ok()
                        .filter(|number| conn.server.connections.numbered(*number).is_some());
                    options.redirect = found
                        .ok_or(CommandError::text("ERR The client ID you want redirect to does not exist"))?;
                }
                word if is_word(word, "bcast") => options.is_broadcast = true,
                word if is_word(word, "optin") => options.is_optin = true,
                word if is_word(word, "optout") => options.is_optout = true,
                word if is_word(word, "noloop") => options.is_noloop = true,
                word if is_word(word, "prefix") && has_value => {
                    at += 1;
                    options.prefixes.push(args.get(at).into());
                }
                _ => return Err(CommandError::Syntax),
            }
            at += 1;
        }
        Ok(options)
    }

    fn mode(&self) -> Mode {
        match (self.is_broadcast, self.is_optin, self.is_optout) {
            (true, ..) => Mode::Broadcast,
            (_, true, _) => Mode::OptIn,
            (.., true) => Mode::OptOut,
            _ => Mode::All,
        }
    }

    /// Whether the connection may have these options, whatever it has now.
    fn check(&self, now: Option<&Tracking>) -> Outcome {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err(CommandError::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if now.is_some_and(|now| (now.mode == Mode::Broadcast) != self.is_broadcast) {
            return Err(OTHER_BROADCAST);
        }
        if self.is_broadcast && (self.is_optin || self.is_optout) {
            return Err(CommandError::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.is_optin && self.is_optout {
            return Err(CommandError::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        let had = now.map(|now| now.mode);
        if (self.is_optin && had == Some(Mode::OptOut)) || (self.is_optout && had == Some(Mode::OptIn)) {
            return Err(OTHER_OPTION);
        }
        if self.is_broadcast {
            return self.check_prefixes(now);
        }
        Ok(())
    }

    /// Two prefixes of one connection never match the same key.
    fn check_prefixes(&self, now: Option<&Tracking>) -> Outcome {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let error = |new: &[u8], other: &[u8], kind: &[u8]| {
            let rest = b"'. Prefixes for a single client must not overlap." as &[u8];
            let front = b"ERR Prefix '" as &[u8];
            Err(CommandError::Bytes([front, new, b"' overlaps with ", kind, b" '", other, rest].concat()))
        };
        for (nth, new) in self.prefixes.iter().enumerate() {
            for other in now.into_iter().flat_map(|now| &now.prefixes) {
                if overlap(new, other) {
                    return error(new, other, b"an existing prefix");
                }
            }
            for other in &self.prefixes[nth + 1..] {
                if overlap(new, other) {
                    return error(new, other, b"another provided prefix");
                }
            }
        }
        Ok(())
    }
}

/// CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix [PREFIX ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
pub(super) fn client_tracking(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(conn, args)?;
    match args.get(2) {
        word if is_word(word, "on") => {
            options.check(conn.client.tracking.as_deref())?;
            turn_on(conn, options);
        }
        word if is_word(word, "off") => turn_off(conn),
        _ => return Err(CommandError::Syntax),
    }
    conn.reply.ok();
    Ok(())
}

fn turn_on(conn: &mut Conn<'_>, mut options: Options) {
    let mode = options.mode();
    let old = conn.client.tracking.take();
    if old.is_none() {
        conn.server.prefixes.n_clients.fetch_add(1, Ordering::Relaxed);
    }
    let since = old.as_ref().map_or_else(flush_clock, |old| old.since);
    let mut prefixes = old.map(|old| old.prefixes).unwrap_or_default();
    if mode == Mode::Broadcast {
        if options.prefixes.is_empty() {
            // Every key.
            options.prefixes.push(Box::default());
        }
        for prefix in options.prefixes {
            conn.server.prefixes.add(&prefix, conn.client.id);
            prefixes.insert(prefix);
        }
        conn.server.touch_config();
    }
    conn.client.tracking = Some(Box::new(Tracking {
        mode,
        is_noloop: options.is_noloop,
        redirect: options.redirect,
        is_redirect_broken: false,
        is_caching_chosen: false,
        prefixes,
        since,
    }));
}

fn turn_off(conn: &mut Conn<'_>) {
    let Some(tracking) = conn.client.tracking.take() else { return };
    conn.server.prefixes.n_clients.fetch_sub(1, Ordering::Relaxed);
    tracking.prefixes.iter().for_each(|prefix| conn.server.prefixes.remove(prefix, conn.client.id));
    if !tracking.prefixes.is_empty() {
        conn.server.touch_config();
    }
}

/// CLIENT CACHING YES|NO: of the next request.
pub(super) fn client_caching(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    const NOT_HERE: CommandError = CommandError::text(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    );
    let Some(tracking) = &mut conn.client.tracking else { return Err(NOT_HERE) };
    match args.get(2) {
        word if is_word(word, "yes") => {
            if tracking.mode != Mode::OptIn {
                return Err(CommandError::text(
                    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
                ));
            }
        }
        word if is_word(word, "no") => {
            if tracking.mode != Mode::OptOut {
                return Err(CommandError::text(
                    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
                ));
            }
        }
        _ => return Err(CommandError::Syntax),
    }
    tracking.is_caching_chosen = true;
    conn.reply.ok();
    Ok(())
}

/// CLIENT GETREDIR: 0 if messages come here, -1 if there are none.
pub(super) fn client_getredir(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    conn.reply.integer(redirect_of(conn.client.tracking.as_deref()));
    Ok(())
}

/// Where the messages of a connection go, as GETREDIR and CLIENT LIST tell it.
pub(super) fn redirect_of(tracking: Option<&Tracking>) -> i64 {
    tracking.map_or(-1, |tracking| tracking.redirect as i64)
}

/// CLIENT TRACKINGINFO
pub(super) fn client_trackinginfo(conn: &mut Conn<'_>, _args: Args<'_>) -> Outcome {
    let tracking = conn.client.tracking.as_deref();
    let mut flags = vec![if tracking.is_some() { "on" } else { "off" }];
    if let Some(tracking) = tracking {
        match tracking.mode {
            Mode::All => {}
            Mode::Broadcast => flags.push("bcast"),
            Mode::OptIn => flags.push("optin"),
            Mode::OptOut => flags.push("optout"),
        }
        match (tracking.is_caching_chosen, tracking.mode) {
            (true, Mode::OptIn) => flags.push("caching-yes"),
            (true, Mode::OptOut) => flags.push("caching-no"),
            _ => {}
        }
        if tracking.is_noloop {
            flags.push("noloop");
        }
        if tracking.is_redirect_broken {
            flags.push("broken_redirect");
        }
    }
    let nothing = BTreeSet::new();
    let prefixes = tracking.map_or(&nothing, |tracking| &tracking.prefixes);
    conn.reply.map(3);
    conn.reply.bulk(b"flags");
    conn.reply.set(flags.len());
    flags.iter().for_each(|flag| conn.reply.bulk(flag.as_bytes()));
    conn.reply.bulk(b"redirect");
    conn.reply.integer(redirect_of(tracking));
    conn.reply.bulk(b"prefixes");
    conn.reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| conn.reply.bulk(prefix));
    Ok(())
}
