//! What looks around on the map: GEOSEARCH, GEOSEARCHSTORE, GEORADIUS, GEORADIUSBYMEMBER and the _RO forms.
//!
//! One query, five ways to write it. What Redis checks before it looks at the options, after it, or not at all if there is no
//! such key, is checked at the same place here: clients see it in which error they get.

use skerry_resp::reply::Reply;

use super::{place_at, reply_distance, reply_place, unit_m};
use crate::access::reply_element;
use crate::args::{Args, Cursor};
use crate::command::Ctx;
use crate::commands::zset::store;
use crate::error::{CommandError, Outcome};
use crate::types::geohash::{Outline, Place, Shape};
use crate::types::zset::Direction;
use crate::types::{Digits, Element, Zset};

/// How a command says what it looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS: longitude, latitude, radius, unit; STORE and STOREDIST with a key.
    Around,
    /// GEORADIUSBYMEMBER: member, radius, unit; STORE and STOREDIST with a key.
    AroundMember,
    /// The same without storing.
    AroundReadOnly,
    AroundMemberReadOnly,
    /// GEOSEARCH: by words.
    Search,
    /// GEOSEARCHSTORE: the same behind a destination; STOREDIST without a key.
    SearchStore,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }

    fn may_store(self) -> bool {
        matches!(self, Form::Around | Form::AroundMember)
    }

    fn source_at(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }
}

pub(super) fn georadius(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    run(ctx, args, Form::Around)
}

pub(super) fn georadius_ro(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    run(ctx, args, Form::AroundReadOnly)
}

pub(super) fn georadiusbymember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    run(ctx, args, Form::AroundMember)
}

pub(super) fn georadiusbymember_ro(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    run(ctx, args, Form::AroundMemberReadOnly)
}

pub(super) fn geosearch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    run(ctx, args, Form::Search)
}

pub(super) fn geosearchstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    run(ctx, args, Form::SearchStore)
}

/// What is looked for and how it is answered.
#[derive(Default)]
struct Query {
    center: Option<Place>,
    is_from_member: bool,
    is_from_place: bool,
    /// The center is a member of a key that does not exist.
    is_nowhere: bool,
    outline: Option<Outline>,
    unit_m: f64,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    direction: Option<Direction>,
    /// 0: all.
    count: usize,
    any: bool,
    /// Argument index of the key that the result goes to.
    destination_at: Option<usize>,
    stores_distance: bool,
}

impl Query {
    fn parse(form: Form, zset: Option<&Zset>, args: Args<'_>) -> Result<Self, CommandError> {
        let mut query = Self::default();
        let options_at = match form {
            Form::Around | Form::AroundReadOnly => {
                query.center = Some(place_at(args, 2)?);
                query.circle(args.get(4), args.get(5))?;
                6
            }
            Form::AroundMember | Form::AroundMemberReadOnly => {
                query.member(zset, args.get(2))?;
                // Of a key that does not exist the radius is not looked at.
                if !query.is_nowhere {
                    query.circle(args.get(3), args.get(4))?;
                }
                5
            }
            Form::Search => 2,
            Form::SearchStore => {
                query.destination_at = Some(1);
                3
            }
        };
        let mut cursor = args.cursor(options_at);
        while !cursor.is_done() {
            let is_read = query.common_word(&mut cursor)?
                || form.is_search() && query.search_word(zset, args, &mut cursor)?
                || form.may_store() && query.store_word(&mut cursor);
            if !is_read && form == Form::SearchStore && cursor.word("storedist") {
                query.stores_distance = true;
            } else if !is_read {
                return Err(CommandError::Syntax);
            }
        }
        query.check(form, args)?;
        Ok(query)
    }

    fn circle(&mut self, radius: &[u8], unit: &[u8]) -> Result<(), CommandError> {
        let radius = number(radius, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(CommandError::text("ERR radius cannot be negative"));
        }
        self.outline = Some(Outline::Circle { radius });
        self.unit_m = unit_m(unit)?;
        Ok(())
    }

    fn rectangle(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> Result<(), CommandError> {
        let width = number(width, "ERR need numeric width")?;
        let height = number(height, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::text("ERR height or width cannot be negative"));
        }
        self.outline = Some(Outline::Rectangle { width, height });
        self.unit_m = unit_m(unit)?;
        Ok(())
    }

    fn member(&mut self, zset: Option<&Zset>, member: &[u8]) -> Result<(), CommandError> {
        let Some(zset) = zset else {
            self.is_nowhere = true;
            return Ok(());
        };
        let score = zset.score(member);
        let score = score.ok_or(CommandError::text("ERR could not decode requested zset member"))?;
        self.center = Some(Place::of_score(score));
        Ok(())
    }

    /// Reads a word that all forms have; false if the next is none.
    fn common_word(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, CommandError> {
        match () {
            () if cursor.word("withdist") => self.with_distance = true,
            () if cursor.word("withhash") => self.with_hash = true,
            () if cursor.word("withcoord") => self.with_place = true,
            () if cursor.word("any") => self.any = true,
            () if cursor.word("asc") => self.direction = Some(Direction::Ascending),
            () if cursor.word("desc") => self.direction = Some(Direction::Descending),
            () if cursor.left() >= 2 && cursor.word("count") => {
                let count = cursor.next_integer()?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.count = count.ok_or(CommandError::text("ERR COUNT must be > 0"))?;
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    fn store_word(&mut self, cursor: &mut Cursor<'_>) -> bool {
        if cursor.left() < 2 {
            return false;
        }
        let stores_distance = cursor.word("storedist");
        if !stores_distance && !cursor.word("store") {
            return false;
        }
        self.stores_distance = stores_distance;
        self.destination_at = Some(cursor.position());
        cursor.maybe_next();
        true
    }

    /// Reads a word of GEOSEARCH; false if the next is none, or does not go with one before.
    fn search_word<'a>(
        &mut self,
        zset: Option<&Zset>,
        args: Args<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<bool, CommandError> {
        let (at, n_values) = (cursor.position() + 1, cursor.left() - 1);
        let is_rectangle = matches!(self.outline, Some(Outline::Rectangle { .. }));
        let is_circle = matches!(self.outline, Some(Outline::Circle { .. }));
        let n_read = match () {
            () if n_values >= 1 && !self.is_from_place && cursor.word("frommember") => {
                self.member(zset, args.get(at))?;
                self.is_from_member = true;
                1
            }
            () if n_values >= 2 && !self.is_from_member && cursor.word("fromlonlat") => {
                self.center = Some(place_at(args, at)?);
                self.is_from_place = true;
                2
            }
            () if n_values >= 2 && !is_rectangle && cursor.word("byradius") => {
                self.circle(args.get(at), args.get(at + 1))?;
                2
            }
            () if n_values >= 3 && !is_circle && cursor.word("bybox") => {
                self.rectangle(args.get(at), args.get(at + 1), args.get(at + 2))?;
                3
            }
            () => return Ok(false),
        };
        *cursor = args.cursor(at + n_read);
        Ok(true)
    }

    /// What Redis checks when all words are read.
    fn check(&self, form: Form, args: Args<'_>) -> Result<(), CommandError> {
        if self.destination_at.is_some() && (self.with_distance || self.with_hash || self.with_place) {
            let who = if form == Form::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(CommandError::format(format!(
                "ERR {who} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let missing = match () {
            () if form.is_search() && !self.is_from_member && !self.is_from_place => {
                "FROMMEMBER or FROMLONLAT"
            }
            () if form.is_search() && self.outline.is_none() => "BYRADIUS and BYBOX",
            () if self.any && self.count == 0 => {
                return Err(CommandError::text("ERR the ANY argument requires COUNT argument"));
            }
            () => return Ok(()),
        };
        let text = format!("ERR exactly one of {missing} can be specified for ");
        Err(CommandError::Bytes([text.as_bytes(), args.get(0)].concat()))
    }

    /// The shape; none if the key it hangs on does not exist.
    fn shape(&self) -> Option<Shape> {
        Some(Shape { center: self.center?, outline: self.outline?, unit_m: self.unit_m })
    }

    /// In which order they come. The nearest of a number that is wanted can only be told in order.
    fn order(&self) -> Option<Direction> {
        let nearest = (self.count > 0 && !self.any).then_some(Direction::Ascending);
        self.direction.or(nearest)
    }
}

fn number(text: &[u8], otherwise: &'static str) -> Result<f64, CommandError> {
    skerry_resp::parse_f64(text).ok_or(CommandError::text(otherwise))
}

/// A member that was found.
struct Hit<'a> {
    member: Element<'a>,
    score: f64,
    place: Place,
    distance_m: f64,
}

fn run(ctx: &mut Ctx<'_>, args: Args<'_>, form: Form) -> Outcome {
    let source = ctx.key(args, form.source_at());
    let limits = ctx.limits;
    let zset = ctx.shard.read_zset(ctx.at(), &source)?;
    let query = Query::parse(form, zset, args)?;
    let hits = match (zset, query.shape()) {
        (Some(zset), Some(shape)) => find(zset, &shape, &query),
        _ => Vec::new(),
    };
    let Some(destination_at) = query.destination_at else {
        ctx.reply.array(hits.len());
        hits.iter().for_each(|hit| show(hit, &query, &mut ctx.reply));
        return Ok(());
    };
    let mut result = Zset::for_members(hits.len(), 0, limits);
    for hit in &hits {
        let distance = hit.distance_m / query.unit_m;
        let score = if query.stores_distance { distance } else { hit.score };
        // The two ends of the Earth may be no number apart; no score is that.
        let score = if score.is_nan() { 0.0 } else { score };
        result.set(hit.member.as_bytes(&mut Digits::new()), score, limits);
    }
    let destination = ctx.key(args, destination_at);
    store(ctx, &destination, result, if form.is_search() { "geosearchstore" } else { "georadiusstore" });
    Ok(())
}

/// The members in the shape, in the order and number that the query wants.
fn find<'a>(zset: &'a Zset, shape: &Shape, query: &Query) -> Vec<Hit<'a>> {
    let reach = shape.reach();
    let limit = if query.any { query.count } else { usize::MAX };
    let mut hits = Vec::new();
    for scores in shape.ranges() {
        if hits.len() >= limit {
            break;
        }
        let below = |bound: u64| zset.n_below(|score, _| score < bound as f64);
        let ranks = below(scores.start)..below(scores.end);
        for (member, score) in zset.range(ranks, Direction::Ascending) {
            let place = Place::of_score(score);
            let Some(distance_m) = reach.distance_m(place) else { continue };
            hits.push(Hit { member, score, place, distance_m });
            if hits.len() >= limit {
                break;
            }
        }
    }
    let Some(direction) = query.order() else { return hits };
    let by_distance = |a: &Hit<'_>, b: &Hit<'_>| match direction {
        Direction::Ascending => a.distance_m.total_cmp(&b.distance_m),
        Direction::Descending => b.distance_m.total_cmp(&a.distance_m),
    };
    if (1..hits.len()).contains(&query.count) {
        let by_distance_and_score =
            |a: &Hit<'_>, b: &Hit<'_>| by_distance(a, b).then_with(|| a.score.total_cmp(&b.score));
        hits.select_nth_unstable_by(query.count, by_distance_and_score);
        hits.truncate(query.count);
        hits.sort_by(by_distance_and_score);
    } else {
        hits.sort_by(by_distance);
    }
    hits
}

fn show(hit: &Hit<'_>, query: &Query, reply: &mut Reply<'_>) {
    let n_beside =
        [query.with_distance, query.with_hash, query.with_place].iter().filter(|with| **with).count();
    if n_beside > 0 {
        reply.array(1 + n_beside);
    }
    reply_element(hit.member, reply);
    if query.with_distance {
        reply_distance(hit.distance_m / query.unit_m, reply);
    }
    if query.with_hash {
        reply.integer(hit.score as i64);
    }
    if query.with_place {
        reply_place(hit.place, reply);
    }
}
