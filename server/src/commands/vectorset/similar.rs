//! VSIM: the elements most similar to a vector or to an element.
//!
//! A search is cut into slices (`work`): what it has begun waits for its client's next slice, under a hold of the epoch.
//!
//! Departures from Redis: 1. EF and COUNT of any size cost what the set has elements, never what they say. 2. NOTHREAD
//! changes nothing: a search runs on the worker that received it anyway. 3. EPSILON with a COUNT above EF is a true
//! radial search: everything within it is found, up to COUNT. Otherwise it cuts, as in Redis. 4. EPSILON of a set with
//! METRIC L2 is the distance itself; with METRIC IP there is no distance, and it is refused. 5. Without FILTER-EF a FILTER
//! finds COUNT elements whenever as many match; Redis looks at 100 x COUNT. 6. A FILTER of more than 256 KiB is refused.

use std::borrow::Cow;

use skerry_resp::number::{parse_f64, parse_i64};
use skerry_resp::reply::Proto;
use skerry_vectorset::epoch::{Guard, Hold};
use skerry_vectorset::{
    All, Filter, FilteredSearch, Hits, Metric, Progress, Query, Search, SearchOptions, SearchScratch,
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
    let resumed = match ctx.work.begun.take() {
        Some(Begun::Search(resumed)) => resumed.downcast::<Running>().ok(),
        Some(Begun::Addition(_)) | None => None,
    };
    if let Some(mut running) = resumed
        && let Ok(Some(handle)) = &found
        && handle.set.uid() == running.set_uid
    {
        match with_reader(|guard, _| running.go_on(ctx, &handle.set, guard)) {
            Progress::Done => ctx.work.give_back(running.into_scratch()),
            Progress::Unfinished => ctx.work.begun = Some(Begun::Search(running)),
        }
        return Ok(());
    }
    if ctx.work.distances(1) == 0 {
        // Nothing is looked at, and nothing counted, before there is time for it.
        ctx.work.is_unfinished = true;
        return Ok(());
    }
    let Some(handle) = present(ctx, args, found)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let set = &handle.set;
    let (target, options_at) = Target::parse(args, handle)?;
    let options = Options::parse(args.cursor(options_at));
    with_reader(|guard, scratch| {
        let query = match &target {
            // The element's absence is told before a mistake in the options.
            Target::Element(element) if !set.contains(element, guard) => {
                if !set.is_empty() {
                    return Err(ELEMENT_NOT_FOUND);
                }
                // Deleted a moment ago: no element, and no key either.
                ctx.reply.array(0);
                return Ok(());
            }
            Target::Element(element) => Query::Element(element),
            Target::Vector(vector) => Query::Vector(vector),
        };
        let mut running = Running::begin(set, query, options?, scratch, guard)?;
        match running.go_on(ctx, set, guard) {
            Progress::Done => *scratch = running.into_scratch(),
            Progress::Unfinished => {
                // It takes its buffers along.
                *scratch = ctx.work.scratch();
                ctx.work.begun = Some(Begun::Search(Box::new(running)));
            }
        }
        Ok(())
    })
}

/// A search under way, and what it needs between its slices.
struct Running {
    set_uid: u64,
    options: Options,
    search: Kind,
    /// What was taken off the budget for it.
    charged: usize,
    /// Keeps what the first slice saw, once there is a second.
    hold: Option<Hold>,
}

enum Kind {
    Plain(Box<Search>),
    Filtered(Box<FilteredSearch>, Filter),
}

impl Running {
    fn begin(
        set: &VectorSet,
        query: Query<'_>,
        mut options: Options,
        scratch: &mut SearchScratch,
        guard: &Guard,
    ) -> Result<Self, CommandError> {
        let wanted = options.wanted(set.params().metric)?;
        let buffers = std::mem::take(scratch);
        let search = match options.filter.take() {
            None => {
                let mut search = Search::new(buffers);
                search.begin(set, query, wanted, guard).map(|()| Kind::Plain(Box::new(search)))
            }
            Some(filter) => {
                let mut search = FilteredSearch::new(buffers);
                search
                    .begin(set, query, wanted, &filter, guard)
                    .map(|()| Kind::Filtered(Box::new(search), filter))
            }
        };
        Ok(Self { set_uid: set.uid(), options, search: search.map_err(error_of)?, charged: 0, hold: None })
    }

    /// Searches as long as the turn has distances left; then replies, or asks for another turn.
    fn go_on(&mut self, ctx: &mut Ctx<'_>, set: &VectorSet, guard: &Guard) -> Progress {
        let dim = set.params().dim;
        loop {
            let budget = ctx.work.distances(dim);
            if budget == 0 {
                self.hold.get_or_insert_with(|| guard.hold());
                ctx.work.is_unfinished = true;
                return Progress::Unfinished;
            }
            let progress = match &mut self.search {
                Kind::Plain(search) => search.step(set, &All, budget, guard),
                Kind::Filtered(search, filter) => search.step(set, filter, budget, guard),
            };
            match progress {
                Progress::Unfinished => {
                    self.charged = self.spent();
                    ctx.work.spend(budget, dim);
                }
                Progress::Done => {
                    ctx.work.spend(self.spent() - self.charged, dim);
                    match &mut self.search {
                        Kind::Plain(search) => self.options.reply(ctx, &search.hits(set, guard)),
                        Kind::Filtered(search, _) => self.options.reply(ctx, &search.hits(set, guard)),
                    }
                    return Progress::Done;
                }
            }
        }
    }

    fn spent(&self) -> usize {
        match &self.search {
            Kind::Plain(search) => search.spent(),
            Kind::Filtered(search, _) => search.spent(),
        }
    }

    fn into_scratch(self) -> SearchScratch {
        match self.search {
            Kind::Plain(search) => search.into_scratch(),
            Kind::Filtered(search, _) => search.into_scratch(),
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
                let text = cursor.maybe_next().ok_or(SYNTAX)?;
                if text.len() > Filter::MAX_SOURCE_BYTES {
                    return Err(CommandError::text("ERR FILTER expression is longer than 256 KiB"));
                }
                let filter = Filter::compile(text);
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
