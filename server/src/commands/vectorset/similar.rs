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
use skerry_vectorset::epoch::{Guard, Hold};
use skerry_vectorset::{
    All, Error, Filter, FilteredSearch, Hits, Metric, Progress, Query, Search, SearchOptions, SearchScratch,
    VectorSet, Way,
};

use super::add::projection_mismatch;
use super::input::parse_vector;
use super::{ELEMENT_NOT_FOUND, Found, bulk_or_null, error_of, expect, mismatch, present};
use crate::args::{Args, Cursor, is_word};
use crate::command::Ctx;
use crate::error::{CommandError, Outcome};
use crate::vector::{VectorHandle, with_reader};
use crate::work::Begun;

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
    with_reader(|guard, _| {
        let query = match &target {
            Target::Element(element) if options.is_err() && !set.contains(element, guard) => {
                return Err(ELEMENT_NOT_FOUND);
            }
            Target::Element(element) => Query::Element(element),
            Target::Vector(vector) => Query::Vector(vector),
        };
        let options = options?;
        match options.search(ctx, set, query, guard) {
            Ok(Some(mut search)) => {
                options.reply(ctx, &search.hits(set, guard));
                ctx.work.give_back(search.into_scratch());
            }
            Ok(None) => wait_for_a_slice(ctx),
            // Deleted a moment ago: no element, and no key either.
            Err(error) if error == ELEMENT_NOT_FOUND && set.is_empty() => ctx.reply.array(0),
            Err(error) => return Err(error),
        }
        Ok(())
    })
}

/// The request has not run, nor been counted.
fn wait_for_a_slice(ctx: &mut Ctx<'_>) {
    ctx.work.is_unfinished = true;
    ctx.shard.stats.keyspace_hits -= 1;
}

/// A search that goes on in another slice. It answers for the elements that are there from its beginning to its end.
struct Suspended {
    search: AnySearch,
    set_uid: u64,
    /// Keeps what it has seen.
    hold: Hold,
}

enum AnySearch {
    Plain(Search),
    Filtered(FilteredSearch),
}

impl AnySearch {
    fn hits<'a>(&'a mut self, set: &'a VectorSet, guard: &'a Guard) -> Hits<'a> {
        match self {
            Self::Plain(search) => search.hits(set, guard),
            Self::Filtered(search) => search.hits(set, guard),
        }
    }

    fn into_scratch(self) -> SearchScratch {
        match self {
            Self::Plain(search) => search.into_scratch(),
            Self::Filtered(search) => search.into_scratch(),
        }
    }
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

/// Nodes that a search measures per unit of EF, roughly.
const MEASURED_PER_EF: usize = 16;

impl Options {
    /// Begins or goes on with the search; `None` if the turn has no distances left before it is done.
    fn search(
        &self,
        ctx: &mut Ctx<'_>,
        set: &VectorSet,
        query: Query<'_>,
        guard: &Guard,
    ) -> Result<Option<AnySearch>, CommandError> {
        let wanted = self.wanted(set.params().metric)?;
        let dim = set.params().dim;
        let budget = ctx.work.distances(dim);
        if budget == 0 {
            return Ok(None);
        }
        let before = match ctx.work.begun.take() {
            Some(Begun::Search(before)) => before.downcast::<Suspended>().ok(),
            Some(Begun::Addition(_)) | None => None,
        };
        let (mut search, hold) = match before.filter(|before| before.set_uid == set.uid()) {
            Some(before) => (before.search, Some(before.hold)),
            None => (self.begin(set, query, wanted, ctx.work.scratch(), guard).map_err(error_of)?, None),
        };
        let progress = match (&mut search, &self.filter) {
            (AnySearch::Filtered(search), Some(filter)) => search.step(set, filter, budget, guard),
            (AnySearch::Plain(search), _) => search.step(set, &All, budget, guard),
            (AnySearch::Filtered(_), None) => panic!("a filtered search has a filter"),
        };
        match progress {
            Progress::Done => {
                let measured = match self.way {
                    Way::Graph => wanted.ef.max(wanted.count).saturating_mul(MEASURED_PER_EF),
                    Way::Scan => usize::MAX,
                };
                ctx.work.spend(measured.min(set.len()).min(budget), dim);
                Ok(Some(search))
            }
            Progress::Unfinished => {
                ctx.work.spend(budget, dim);
                let hold = hold.unwrap_or_else(|| guard.hold());
                let suspended = Suspended { search, set_uid: set.uid(), hold };
                ctx.work.begun = Some(Begun::Search(Box::new(suspended)));
                Ok(None)
            }
        }
    }

    fn begin(
        &self,
        set: &VectorSet,
        query: Query<'_>,
        wanted: SearchOptions,
        scratch: SearchScratch,
        guard: &Guard,
    ) -> Result<AnySearch, Error> {
        match &self.filter {
            Some(filter) => {
                let mut search = FilteredSearch::new(scratch);
                search.begin(set, query, wanted, filter, guard)?;
                Ok(AnySearch::Filtered(search))
            }
            None => {
                let mut search = Search::new(scratch);
                search.begin(set, query, wanted, guard)?;
                Ok(AnySearch::Plain(search))
            }
        }
    }

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
