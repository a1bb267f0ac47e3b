//! Places on the map, kept in sorted sets (<https://redis.io/docs/latest/commands/?group=geo>).
//!
//! A place is the score that `types::geohash` makes of it, and everything else is a sorted set's; `search` holds the commands
//! that look around.
//!
//! Departures from Redis:
//! 1. Members at exactly the same distance come in the order of their scores, also where COUNT cuts them off; there Redis's
//!    order depends on its partial sort.

mod search;

use skerry_resp::reply::Reply;

use crate::args::{Args, is_word};
use crate::command::{Acl, Begin, Command, Ctx, Find, Flags, Handler, KeyFlags, KeySpec, range, row};
use crate::error::{CommandError, Outcome};
use crate::shard::EventClass;
use crate::types::Zset;
use crate::types::geohash::Place;
use crate::types::zset::Edited;

/// The key behind a word of GEORADIUS and its like.
const fn store(word: &'static str, start_from: i16) -> KeySpec {
    KeySpec {
        notes: None,
        flags: KeyFlags::OW.with(KeyFlags::UPDATE),
        begin: Begin::Keyword { word, start_from },
        find: Find::Range { last: 0, step: 1, limit: 0 },
    }
}

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("geoadd", -5, Handler::Shard(geoadd), "Puts members on the map and tells how many are new").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::GEO).keys(&[range(KeyFlags::RW.with(KeyFlags::UPDATE), 1, 0, 1)]),
    row("geodist", -4, Handler::Shard(geodist), "Tells how far two members are apart").flags(Flags::READONLY).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("geohash", -2, Handler::Shard(geohash), "Shows members' geohash texts").flags(Flags::READONLY).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("geopos", -2, Handler::Shard(geopos), "Shows members' longitudes and latitudes").flags(Flags::READONLY).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("georadius", -6, Handler::Shard(search::georadius), "Finds the members around a place, or stores them").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1), store("STORE", 6), store("STOREDIST", 6)]),
    row("georadius_ro", -6, Handler::Shard(search::georadius_ro), "Finds the members around a place").flags(Flags::READONLY).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("georadiusbymember", -5, Handler::Shard(search::georadiusbymember), "Finds the members around one of them, or stores them").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1), store("STORE", 5), store("STOREDIST", 5)]),
    row("georadiusbymember_ro", -5, Handler::Shard(search::georadiusbymember_ro), "Finds the members around one of them").flags(Flags::READONLY).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("geosearch", -7, Handler::Shard(search::geosearch), "Finds the members in a circle or a rectangle").flags(Flags::READONLY).acl(Acl::GEO).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1)]),
    row("geosearchstore", -8, Handler::Shard(search::geosearchstore), "Stores the members in a circle or a rectangle").flags(Flags::DENYOOM.with(Flags::WRITE)).acl(Acl::GEO).keys(&[range(KeyFlags::OW.with(KeyFlags::UPDATE), 1, 0, 1), range(KeyFlags::RO.with(KeyFlags::ACCESS), 2, 0, 1)]),
];

/// Arguments `index` and the next one as a place on the map.
fn place_at(args: Args<'_>, index: usize) -> Result<Place, CommandError> {
    let place = Place { lon: args.float(index)?, lat: args.float(index + 1)? };
    if place.is_on_map() {
        return Ok(place);
    }
    let Place { lon, lat } = place;
    Err(CommandError::format(format!("ERR invalid longitude,latitude pair {lon:.6},{lat:.6}")))
}

/// The metres of a unit.
fn unit_m(word: &[u8]) -> Result<f64, CommandError> {
    match word {
        word if is_word(word, "m") => Ok(1.0),
        word if is_word(word, "km") => Ok(1000.0),
        word if is_word(word, "ft") => Ok(0.3048),
        word if is_word(word, "mi") => Ok(1609.34),
        _ => Err(CommandError::text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// A distance with four decimals, the last one rounded to even.
fn reply_distance(distance: f64, reply: &mut Reply<'_>) {
    let scaled = (distance * 10_000.0).round_ties_even();
    // What is no number (the arc between two ends of the Earth may be) is written as Redis does.
    let scaled = if scaled.is_nan() { i64::MIN } else { scaled as i64 };
    let (sign, size) = (if scaled < 0 { "-" } else { "" }, scaled.unsigned_abs());
    reply.bulk(format!("{sign}{}.{:04}", size / 10_000, size % 10_000).as_bytes());
}

fn reply_place(place: Place, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.double(place.lon);
    reply.double(place.lat);
}

/// GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]
fn geoadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let (mut nx, mut xx, mut ch, mut first) = (false, false, false, args.len());
    for (index, word) in args.from(2).enumerate() {
        let option = match () {
            () if is_word(word, "nx") => &mut nx,
            () if is_word(word, "xx") => &mut xx,
            () if is_word(word, "ch") => &mut ch,
            () => {
                first = index + 2;
                break;
            }
        };
        *option = true;
    }
    let n_members = (args.len() - first) / 3;
    if n_members == 0 || !(args.len() - first).is_multiple_of(3) || nx && xx {
        return Err(CommandError::Syntax);
    }
    for index in (first..args.len()).step_by(3) {
        place_at(args, index)?;
    }
    let (key, limits) = (ctx.key(args, 1), ctx.limits);
    let zset = if xx {
        let Some(zset) = ctx.shard.zset_mut(ctx.at(), &key)? else {
            ctx.reply.integer(0);
            return Ok(());
        };
        zset
    } else {
        let n_first = args.get(first + 2).len();
        ctx.shard.zset_or_new(ctx.at(), &key, || Zset::for_members(n_members, n_first, limits))?
    };
    zset.announce(n_members, limits);
    let (mut n_added, mut n_moved) = (0, 0);
    for index in (first..args.len()).step_by(3) {
        let score = place_at(args, index)?.score() as f64;
        let mut is_other = false;
        let edited = zset.edit(args.get(index + 2), limits, |old| {
            is_other = old != Some(score);
            let stays = if old.is_some() { nx } else { xx };
            (!stays).then_some(score)
        });
        match edited {
            Edited::Added => n_added += 1,
            Edited::Scored => n_moved += i64::from(is_other),
            Edited::Left => {}
        }
    }
    if n_added + n_moved > 0 {
        ctx.changed(&key, EventClass::SortedSet, "zadd");
    }
    ctx.reply.integer(if ch { n_added + n_moved } else { n_added });
    Ok(())
}

/// GEODIST key member1 member2 [M | KM | FT | MI]
fn geodist(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    let unit_m = match args.len() {
        4 => 1.0,
        5 => unit_m(args.get(4))?,
        _ => return Err(CommandError::Syntax),
    };
    let key = ctx.key(args, 1);
    let zset = ctx.shard.read_zset(ctx.at(), &key)?;
    let place = |member| zset.and_then(|zset| zset.score(member)).map(Place::of_score);
    match (place(args.get(2)), place(args.get(3))) {
        (Some(a), Some(b)) => reply_distance(a.distance_m(b) / unit_m, &mut ctx.reply),
        _ => ctx.reply.null(),
    }
    Ok(())
}

/// GEOHASH key [member ...]
fn geohash(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    for_each_place(ctx, args, |place, reply| match place {
        Some(place) => reply.bulk(&place.text()),
        None => reply.null(),
    })
}

/// GEOPOS key [member ...]
fn geopos(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    for_each_place(ctx, args, |place, reply| match place {
        Some(place) => reply_place(place, reply),
        None => reply.null_array(),
    })
}

/// An array of what `show` makes of each member's place.
fn for_each_place(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    show: impl Fn(Option<Place>, &mut Reply<'_>),
) -> Outcome {
    let key = ctx.key(args, 1);
    let zset = ctx.shard.read_zset(ctx.at(), &key)?;
    ctx.reply.array(args.len() - 2);
    for member in args.from(2) {
        let place = zset.and_then(|zset| zset.score(member)).map(Place::of_score);
        show(place, &mut ctx.reply);
    }
    Ok(())
}
