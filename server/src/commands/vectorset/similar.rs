//! VSIM: the elements most similar to a vector or to an element.
//!
//! Departures from Redis: 1. EF and COUNT of any size cost what the set has elements, never what they say. 2. NOTHREAD
//! changes nothing: a search runs on the worker that received it anyway. 3. EPSILON with a COUNT above EF is a true
//! radial search: everything within it is found, up to COUNT. Otherwise it cuts, as in Redis. 4. EPSILON of a set with
//! METRIC L2 is the distance itself; with METRIC IP there is no distance, and it is refused. 5. Without FILTER-EF a FILTER
//! finds COUNT elements whenever as many match; Redis looks at 100 x COUNT.

use std::borrow::Cow;

use skerry_resp::number::{parse_f64, parse_i64};
use skerry_resp::reply::Proto;
use skerry_vectorset::{Error, Filter, Hits, Metric, Query, SearchOptions, Way};

use super::add::projection_mismatch;
use super::input::parse_vector;
use super::{ELEMENT_NOT_FOUND, Found, bulk_or_null, error_of, expect, mismatch, present};
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::vector::{VectorHandle, with_reader};

const DEFAULT_EF: usize = 100;
const DEFAULT_COUNT: usize = 10;
const FILTER_SYNTAX: &[u8] = b"ERR syntax error in FILTER expression near: ";
/// Of opposite vectors, with room for rounding.
const MAX_COSINE_DISTANCE: f32 = 2.001;

pub(super) fn vsim(ctx: &mut Ctx<'_>, found: Found<'_>, args: Args<'_>) -> Outcome {
    expect(args.len() >= 4, "VSIM")?;
    let Some(handle) = present(ctx, found)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let set = &handle.set;
    let (target, options_at) = Target::parse(args, handle)?;
    let options = Options::parse(args.cursor(options_at));
    with_reader(|guard, scratch| {
        let query = match &target {
            Target::Element(element) if options.is_err() && !set.contains(element, guard) => {
                return Err(ELEMENT_NOT_FOUND);
            }
            Target::Element(element) => Query::Element(element),
            Target::Vector(vector) => Query::Vector(vector),
        };
        let options = options?;
        let wanted = options.wanted(set.params().metric)?;
        let hits = match &options.filter {
            Some(filter) => set.run_filtered(query, wanted, filter, scratch, guard),
            None => set.run(query, wanted, scratch, guard),
        };
        match hits {
            Ok(hits) => options.reply(ctx, &hits),
            // Deleted a moment ago: no element, and no key either.
            Err(Error::ElementNotFound) if set.is_empty() => ctx.reply.array(0),
            Err(error) => return Err(error_of(error)),
        }
        Ok(())
    })
}

/// What VSIM looks for.
enum Target<'a> {
    Element(&'a [u8]),
    /// Of the set's own dimension.
    Vector(Cow<'a, [f32]>),
}

impl<'a> Target<'a> {
    /// The target and where the options begin.
    fn parse(args: Args<'a>, handle: &VectorHandle) -> Result<(Self, usize), CommandError> {
        if is_word(args.get(2), "ELE") {
            return Ok((Target::Element(args.get(3)), 4));
        }
        let mut at = 2;
        let vector = parse_vector(args, &mut at)?;
        let dim = handle.set.params().dim as usize;
        let vector = match &handle.projection {
            _ if vector.len() == dim => vector,
            Some(projection) if vector.len() == projection.input_dim() as usize => {
                projection.apply(&vector)?
            }
            Some(projection) => {
                return Err(projection_mismatch(vector.len(), projection.input_dim() as usize));
            }
            None => return Err(mismatch(vector.len(), dim)),
        };
        Ok((Target::Vector(Cow::Owned(vector)), at))
    }
}

/// The options of VSIM.
struct Options {
    count: usize,
    ef: usize,
    way: Way,
    /// Results whose distance, halved, is above it are cut off.
    epsilon: Option<f32>,
    filter: Option<Filter>,
    /// How many elements a filtered search may look at.
    filter_ef: usize,
    withscores: bool,
    withattribs: bool,
}

impl Options {
    fn parse(mut cursor: Cursor<'_>) -> Result<Self, CommandError> {
        const SYNTAX: CommandError = CommandError::text("ERR syntax error in VSIM command");
        let mut options = Self {
            count: DEFAULT_COUNT,
            ef: DEFAULT_EF,
            way: Way::Graph,
            epsilon: None,
            filter: None,
            filter_ef: usize::MAX,
            withscores: false,
            withattribs: false,
        };
        let positive = |text: &[u8], error| {
            let value = parse_i64(text).filter(|value| *value > 0);
            value.map(|value| value as usize).ok_or(CommandError::text(error))
        };
        while let Some(word) = cursor.maybe_next() {
            if is_word(word, "WITHSCORES") {
                options.withscores = true;
            } else if is_word(word, "WITHATTRIBS") {
                options.withattribs = true;
            } else if is_word(word, "TRUTH") {
                options.way = Way::Scan;
            } else if is_word(word, "NOTHREAD") {
                // See departure 2.
            } else if is_word(word, "COUNT") {
                options.count = positive(cursor.maybe_next().ok_or(SYNTAX)?, "ERR invalid COUNT")?;
            } else if is_word(word, "EF") {
                options.ef = positive(cursor.maybe_next().ok_or(SYNTAX)?, "ERR invalid EF")?;
            } else if is_word(word, "EPSILON") {
                let epsilon = parse_f64(cursor.maybe_next().ok_or(SYNTAX)?).filter(|epsilon| *epsilon > 0.0);
                options.epsilon = Some(epsilon.ok_or(CommandError::text("ERR invalid EPSILON"))? as f32);
            } else if is_word(word, "FILTER-EF") {
                options.filter_ef = positive(cursor.maybe_next().ok_or(SYNTAX)?, "ERR invalid FILTER-EF")?;
            } else if is_word(word, "FILTER") {
                let filter = Filter::compile(cursor.maybe_next().ok_or(SYNTAX)?);
                options.filter =
                    Some(filter.map_err(|error| CommandError::Bytes([FILTER_SYNTAX, error.rest].concat()))?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// The search that they ask for.
    fn wanted(&self, metric: Metric) -> Result<SearchOptions, CommandError> {
        let radius = match (self.epsilon, metric) {
            (None, _) => None,
            (Some(epsilon), Metric::Cosine) => Some(2.0 * epsilon),
            (Some(epsilon), Metric::L2) => Some(epsilon * epsilon),
            (Some(_), Metric::Ip) => {
                return Err(CommandError::text("ERR EPSILON has no meaning under METRIC IP"));
            }
        };
        // What leaves nothing out is no radius.
        let radius = radius.filter(|radius| *radius <= MAX_COSINE_DISTANCE || metric == Metric::L2);
        let radius = radius.filter(|radius| radius.is_finite());
        let max_measured = if self.filter.is_some() { self.filter_ef } else { usize::MAX };
        Ok(SearchOptions { way: self.way, radius, max_measured, ..SearchOptions::new(self.count, self.ef) })
    }

    fn reply(&self, ctx: &mut Ctx<'_>, hits: &Hits<'_>) {
        let n_hits = hits.len();
        let is_map = ctx.reply.proto() == Proto::Resp3 && (self.withscores || self.withattribs);
        if is_map {
            ctx.reply.map(n_hits);
        } else {
            ctx.reply.array(n_hits * (1 + usize::from(self.withscores) + usize::from(self.withattribs)));
        }
        for hit in hits.iter() {
            ctx.reply.bulk(hit.name);
            if is_map && self.withscores && self.withattribs {
                ctx.reply.array(2);
            }
            if self.withscores {
                ctx.reply.double(hit.score);
            }
            if self.withattribs {
                bulk_or_null(ctx, hit.attribute());
            }
        }
    }
}
