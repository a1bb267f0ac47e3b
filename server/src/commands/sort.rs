//! SORT and SORT_RO (<https://redis.io/docs/latest/commands/sort/>).
//!
//! ```text
//!   elements ──► weights (own, or looked up BY) ──► order, only what LIMIT shows ──► GET look-ups ──► reply or STORE
//! ```
//!
//! Without look-ups the elements stay where they are, lent. With look-ups they are copied first: what a pattern names may lie in
//! any shard, and all of them are held meanwhile (`Handler::Roaming`).
//!
//! Every order but one is total (weight, then the element's bytes), so that a LIMIT may be cut out before sorting. The one: BY
//! with ALPHA, where equal weights keep the elements' own order; Redis leaves it open.
//! Departure from Redis: ALPHA compares bytes. Redis asks `strcoll`, which says the same in the C locale.
//! Cost: O(n) to cut, O(m log m) to sort m shown elements.

use std::ops::Range;

use skerry_resp::reply::Reply;
use smallvec::SmallVec;

use crate::access::{At, reply_element, text_of};
use crate::args::{Args, is_word};
use crate::command::{Acl, Begin, Command, Ctx, Find, Flags, Handler, KeyFlags, KeySpec, range, row};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{EntryRef, Key, NewValue, Object, Ttl, View};
use crate::server::Server;
use crate::shard::{EventClass, Shard, ShardId};
use crate::types::zset::Direction;
use crate::types::{Digits, Element, Limits, List};

const BY_OR_GET: KeySpec = KeySpec {
    notes: Some(
        "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
    ),
    flags: KeyFlags::RO.with(KeyFlags::ACCESS),
    begin: Begin::Unknown,
    find: Find::Unknown,
};
const STORE: KeySpec = KeySpec {
    notes: Some(
        "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
    ),
    flags: KeyFlags::OW.with(KeyFlags::UPDATE),
    begin: Begin::Unknown,
    find: Find::Unknown,
};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    row("sort", -2, Handler::Roaming(sort, sort_roams), "Sorts a list, set or sorted set").flags(Flags::DENYOOM.with(Flags::MOVABLEKEYS).with(Flags::WRITE)).acl(Acl::DANGEROUS.with(Acl::LIST).with(Acl::SET).with(Acl::SORTEDSET)).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1), BY_OR_GET, STORE]).hidden_key(stored_key),
    row("sort_ro", -2, Handler::Roaming(sort_ro, sort_ro_roams), "As SORT, but without STORE").flags(Flags::MOVABLEKEYS.with(Flags::READONLY)).acl(Acl::DANGEROUS.with(Acl::LIST).with(Acl::SET).with(Acl::SORTEDSET)).keys(&[range(KeyFlags::RO.with(KeyFlags::ACCESS), 1, 0, 1), BY_OR_GET]),
];

fn sort(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    sort_as(ctx, args, Form::MayStore)
}

fn sort_ro(ctx: &mut Ctx<'_>, args: Args<'_>) -> Outcome {
    sort_as(ctx, args, Form::ReadOnly)
}

fn sort_roams(args: Args<'_>) -> bool {
    Options::parse(args, Form::MayStore).is_ok_and(|options| options.looks_up())
}

fn sort_ro_roams(args: Args<'_>) -> bool {
    Options::parse(args, Form::ReadOnly).is_ok_and(|options| options.looks_up())
}

/// Where the key of STORE stands.
fn stored_key(args: Args<'_>) -> Option<(usize, KeyFlags)> {
    Some((Options::parse(args, Form::MayStore).ok()?.store?, STORE.flags))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    MayStore,
    ReadOnly,
}

/// What BY or GET says of an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern<'a> {
    /// `#`: itself.
    Element,
    /// Without a `*`: nothing.
    Constant,
    /// The string at the key `before` + element + `behind`, or the `field` of the hash there.
    Named { before: &'a [u8], behind: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> Pattern<'a> {
    /// As Redis reads it, which looks for `*` and `->` no further than a zero byte.
    fn read(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Pattern::Element;
        }
        let visible = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let Some(star) = text[..visible].iter().position(|byte| *byte == b'*') else {
            return Pattern::Constant;
        };
        let behind = &text[star + 1..];
        let arrow = text[star + 1..visible].windows(2).position(|pair| pair == b"->");
        match arrow.filter(|arrow| star + 1 + arrow + 2 < visible) {
            Some(arrow) => Pattern::Named {
                before: &text[..star],
                behind: &behind[..arrow],
                field: Some(&behind[arrow + 2..]),
            },
            None => Pattern::Named { before: &text[..star], behind, field: None },
        }
    }

    fn looks_up(self) -> bool {
        matches!(self, Pattern::Named { .. })
    }
}

/// The words behind the key.
struct Options<'a> {
    /// The weight of an element; none: itself.
    by: Option<Pattern<'a>>,
    gets: SmallVec<[Pattern<'a>; 4]>,
    is_alpha: bool,
    direction: Direction,
    start: i64,
    /// Negative: all.
    count: i64,
    store: Option<usize>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, form: Form) -> Result<Self, CommandError> {
        let mut options = Self {
            by: None,
            gets: SmallVec::new(),
            is_alpha: false,
            direction: Direction::Ascending,
            start: 0,
            count: -1,
            store: None,
        };
        let mut cursor = args.cursor(2);
        while let Some(word) = cursor.maybe_next() {
            match (word, cursor.left()) {
                (word, _) if is_word(word, "asc") => options.direction = Direction::Ascending,
                (word, _) if is_word(word, "desc") => options.direction = Direction::Descending,
                (word, _) if is_word(word, "alpha") => options.is_alpha = true,
                (word, 2..) if is_word(word, "limit") => {
                    options.start = cursor.next_integer()?;
                    options.count = cursor.next_integer()?;
                }
                (word, 1..) if is_word(word, "store") && form == Form::MayStore => {
                    options.store = Some(cursor.position());
                    cursor.value()?;
                }
                (word, 1..) if is_word(word, "by") => options.by = Some(Pattern::read_by(cursor.value()?)),
                (word, 1..) if is_word(word, "get") => options.gets.push(Pattern::read(cursor.value()?)),
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(options)
    }

    /// Whether keys are named that no argument names.
    fn looks_up(&self) -> bool {
        self.by.is_some_and(Pattern::looks_up) || self.gets.iter().any(|get| get.looks_up())
    }

    /// What LIMIT shows of `len` elements.
    fn shown(&self, len: usize) -> Place {
        let start = usize::try_from(self.start).unwrap_or(0).min(len);
        let n = usize::try_from(self.count).unwrap_or(len);
        Place { start, n: n.min(len - start) }
    }
}

impl<'a> Pattern<'a> {
    /// `#` is no element here, but a pattern without a star.
    fn read_by(text: &'a [u8]) -> Self {
        match Self::read(text) {
            Pattern::Element => Pattern::Constant,
            pattern => pattern,
        }
    }
}

fn sort_as(ctx: &mut Ctx<'_>, args: Args<'_>, form: Form) -> Outcome {
    let mut options = Options::parse(args, form)?;
    let key = ctx.key(args, 1);
    let (at, limits) = (ctx.at(), ctx.limits);
    let shard = owner(&mut *ctx.shard, &mut *ctx.elsewhere, ctx.server, key.bytes);
    let (elements, place) = elements(shard, at, &key, &mut options, limits)?;
    if options.looks_up() {
        let elements = Arena::of(&elements);
        return sort_with_look_ups(ctx, args, &options, &elements, place);
    }
    let shown: Vec<Element<'_>> = match options.by {
        Some(_) => elements.into_iter().skip(place.start).take(place.n).collect(),
        None => in_order(elements, &options, place)?,
    };
    // Nothing is looked up: GET says an element itself, or nothing.
    let said = shown.iter().flat_map(|element| {
        let gets = options.gets.iter().map(|get| (*get == Pattern::Element).then_some(*element));
        gets.chain(options.gets.is_empty().then_some(Some(*element)))
    });
    let n = shown.len() * options.gets.len().max(1);
    match options.store {
        None => {
            ctx.reply.array(n);
            said.for_each(|element| match element {
                Some(element) => reply_element(element, &mut ctx.reply),
                None => ctx.reply.null(),
            });
        }
        Some(index) => {
            let list = List::of(said.map(|element| element.unwrap_or(Element::Bytes(b""))), limits);
            store(ctx, args, index, list);
        }
    }
    Ok(())
}

/// The elements to sort, and which of them are shown when they are sorted; if they are not to be sorted, only those.
fn elements<'s>(
    shard: &'s mut Shard,
    at: At,
    key: &Key<'_>,
    options: &mut Options<'_>,
    limits: &Limits,
) -> Result<(Vec<Element<'s>>, Place), CommandError> {
    match shard.read(at, key).map(EntryRef::view) {
        None => return Ok((Vec::new(), Place { start: 0, n: 0 })),
        Some(View::List(_) | View::Set(_)) => {}
        // Redis converts a sorted set that it sorts, and OBJECT ENCODING shows it.
        Some(View::Zset(_)) => {
            if let Some(zset) = shard.zset_mut(at, key)? {
                zset.become_ranked_by_sort(limits.seed);
            }
        }
        Some(_) => return Err(CommandError::WrongType),
    }
    let is_unsorted = options.by == Some(Pattern::Constant);
    let direction = options.direction;
    let elements: Vec<Element<'s>> = match shard.peek(at, key).map(EntryRef::view) {
        Some(View::List(list)) if is_unsorted => {
            let range = options.shown(list.len()).range(list.len(), direction);
            match direction {
                Direction::Ascending => list.range(range).collect(),
                Direction::Descending => list.range_rev(range).collect(),
            }
        }
        Some(View::Zset(zset)) if is_unsorted => {
            let ranks = options.shown(zset.len()).range(zset.len(), direction);
            zset.range(ranks, direction).map(|(member, _)| member).collect()
        }
        Some(View::List(list)) => list.iter().collect(),
        Some(View::Zset(zset)) => zset.iter().map(|(member, _)| member).collect(),
        Some(View::Set(set)) => {
            // What is stored must not hang on the order in which a set lies.
            if is_unsorted && options.store.is_some() {
                (options.by, options.is_alpha) = (None, true);
            }
            let elements: Vec<Element<'s>> = set.iter().collect();
            let place = options.shown(elements.len());
            return Ok((elements, place));
        }
        Some(_) | None => Vec::new(),
    };
    let place = match is_unsorted {
        true => Place { start: 0, n: elements.len() },
        false => options.shown(elements.len()),
    };
    Ok((elements, place))
}

/// The part of the sorted elements that is shown.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    n: usize,
}

impl Place {
    fn end(self) -> usize {
        self.start + self.n
    }

    /// Where these stand among `len` elements that are read in a direction.
    fn range(self, len: usize, direction: Direction) -> Range<usize> {
        match direction {
            Direction::Ascending => self.start..self.end(),
            Direction::Descending => len - self.end()..len - self.start,
        }
    }
}

/// Sorted by themselves.
fn in_order<'e>(
    elements: Vec<Element<'e>>,
    options: &Options<'_>,
    place: Place,
) -> Result<Vec<Element<'e>>, CommandError> {
    let weigh = |element: Element<'e>| {
        let weight = match (options.is_alpha, element) {
            (true, element) => first_bytes(element.as_bytes(&mut Digits::new())),
            (false, Element::Integer(integer)) => ordered(integer as f64),
            (false, Element::Bytes(text)) => ordered(number(text)?),
        };
        Ok(Weighed { weight, element })
    };
    let mut weighed = elements.into_iter().map(weigh).collect::<Result<Vec<_>, CommandError>>()?;
    cut_and_sort(&mut weighed, options.direction, place);
    Ok(weighed.into_iter().map(|weighed| weighed.element).collect())
}

/// An element and a number in whose order it stands; equals stand in the order of their bytes.
struct Weighed<'e> {
    weight: u64,
    element: Element<'e>,
}

impl Weighed<'_> {
    #[inline]
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.weight.cmp(&other.weight).then_with(|| {
            self.element.as_bytes(&mut Digits::new()).cmp(other.element.as_bytes(&mut Digits::new()))
        })
    }
}

/// Leaves what is shown, sorted. Two elements that are equal here are the same text.
fn cut_and_sort(weighed: &mut Vec<Weighed<'_>>, direction: Direction, place: Place) {
    let order = |a: &Weighed<'_>, b: &Weighed<'_>| match direction {
        Direction::Ascending => a.order(b),
        Direction::Descending => b.order(a),
    };
    if place.n == 0 {
        weighed.clear();
        return;
    }
    if place.end() < weighed.len() {
        weighed.select_nth_unstable_by(place.end() - 1, order);
        weighed.truncate(place.end());
    }
    if place.start > 0 {
        weighed.select_nth_unstable_by(place.start, order);
        weighed.drain(..place.start);
    }
    weighed.sort_unstable_by(order);
}

/// A double as an integer in the same order; -0 is 0.
fn ordered(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits() as i64;
    let sign = (bits >> 63) as u64;
    bits as u64 ^ (sign | 1 << 63)
}

/// The beginning of a text as an integer in the same order.
fn first_bytes(text: &[u8]) -> u64 {
    let mut word = [0; 8];
    let n = text.len().min(8);
    word[..n].copy_from_slice(&text[..n]);
    u64::from_be_bytes(word)
}

/// A weight as Redis reads it: decimal or infinite, too big is infinite, empty is 0, and a zero byte ends it.
fn number(text: &[u8]) -> Result<f64, CommandError> {
    let visible = text.iter().position(|byte| *byte == 0).map_or(text, |end| &text[..end]);
    if visible.is_empty() {
        return Ok(0.0);
    }
    let number = std::str::from_utf8(visible).ok().and_then(|text| text.parse::<f64>().ok());
    number
        .filter(|number| !number.is_nan())
        .ok_or(CommandError::text("ERR One or more scores can't be converted into double"))
}

/// Texts one behind the other in one allocation.
#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    fn of(elements: &[Element<'_>]) -> Self {
        let mut arena = Self { bytes: Vec::new(), ends: Vec::with_capacity(elements.len()) };
        elements.iter().for_each(|element| arena.push(element.as_bytes(&mut Digits::new())));
        arena
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }
}

fn sort_with_look_ups(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    options: &Options<'_>,
    elements: &Arena,
    place: Place,
) -> Outcome {
    let shown: Vec<Element<'_>> = match options.by {
        Some(by @ Pattern::Named { .. }) if options.is_alpha => by_text(ctx, options, by, elements, place),
        Some(by @ Pattern::Named { .. }) => by_number(ctx, options, by, elements, place)?,
        Some(Pattern::Constant | Pattern::Element) => {
            elements.iter().skip(place.start).take(place.n).map(Element::Bytes).collect()
        }
        None => in_order(elements.iter().map(Element::Bytes).collect(), options, place)?,
    };
    finish(ctx, args, options, &shown);
    Ok(())
}

fn by_number<'e>(
    ctx: &mut Ctx<'_>,
    options: &Options<'_>,
    by: Pattern<'_>,
    elements: &'e Arena,
    place: Place,
) -> Result<Vec<Element<'e>>, CommandError> {
    let mut weighed = Vec::with_capacity(elements.len());
    let mut look = Look::default();
    let mut fault = None;
    // What is no number ends nothing here: Redis looks all of them up, and tells of those that it misses.
    for element in elements.iter() {
        match look.up(ctx, by, element, |_, found| found.map_or(Ok(0.0), number)) {
            Ok(weight) => weighed.push(Weighed { weight: ordered(weight), element: Element::Bytes(element) }),
            Err(error) => fault = Some(error),
        }
    }
    if let Some(error) = fault {
        return Err(error);
    }
    cut_and_sort(&mut weighed, options.direction, place);
    Ok(weighed.into_iter().map(|weighed| weighed.element).collect())
}

fn by_text<'e>(
    ctx: &mut Ctx<'_>,
    options: &Options<'_>,
    by: Pattern<'_>,
    elements: &'e Arena,
    place: Place,
) -> Vec<Element<'e>> {
    let mut texts = Arena::default();
    let mut is_there = Vec::with_capacity(elements.len());
    let mut look = Look::default();
    for element in elements.iter() {
        is_there.push(look.up(ctx, by, element, |_, found| {
            texts.push(found.unwrap_or_default());
            found.is_some()
        }));
    }
    let mut places: Vec<usize> = (0..elements.len()).collect();
    let weight = |index: usize| is_there[index].then(|| texts.get(index));
    match options.direction {
        Direction::Ascending => places.sort_by(|a, b| weight(*a).cmp(&weight(*b))),
        Direction::Descending => places.sort_by(|a, b| weight(*b).cmp(&weight(*a))),
    }
    let shown = places.into_iter().skip(place.start).take(place.n);
    shown.map(|index| Element::Bytes(elements.get(index))).collect()
}

/// Looks up what patterns say, with one buffer for the names.
#[derive(Default)]
struct Look {
    name: Vec<u8>,
}

impl Look {
    /// Calls `found` with what `pattern` says of `element`, and with the reply, which is free meanwhile.
    fn up<R>(
        &mut self,
        ctx: &mut Ctx<'_>,
        pattern: Pattern<'_>,
        element: &[u8],
        found: impl FnOnce(&mut Reply<'_>, Option<&[u8]>) -> R,
    ) -> R {
        let at = ctx.at();
        let reply = &mut ctx.reply;
        let (before, behind, field) = match pattern {
            Pattern::Element => return found(reply, Some(element)),
            Pattern::Constant => return found(reply, None),
            Pattern::Named { before, behind, field } => (before, behind, field),
        };
        self.name.clear();
        [before, element, behind].iter().for_each(|part| self.name.extend_from_slice(part));
        let key = Key { bytes: &self.name, hash: ctx.server.hash_key(&self.name) };
        let shard = owner(&mut *ctx.shard, &mut *ctx.elsewhere, ctx.server, &self.name);
        match (shard.read(at, &key).map(EntryRef::view), field) {
            (Some(View::Hash(hash)), Some(field)) => match hash.get(field, at.now_ms) {
                Some(value) => found(reply, Some(value.as_bytes(&mut Digits::new()))),
                None => found(reply, None),
            },
            (None, _) | (Some(_), Some(_)) => found(reply, None),
            (Some(view), None) => match text_of(view) {
                Ok(text) => text.with_bytes(|bytes| found(reply, Some(bytes))),
                Err(_) => found(reply, None),
            },
        }
    }
}

/// The shard at hand that has `key`: its owner's if all shards are here, else the own one, in which lent keys are guests.
fn owner<'s>(
    shard: &'s mut Shard,
    elsewhere: &'s mut [(ShardId, Box<Shard>)],
    server: &Server,
    key: &[u8],
) -> &'s mut Shard {
    if elsewhere.is_empty() {
        return shard;
    }
    let id = server.shard_of(key);
    match elsewhere.iter_mut().find(|(_, other)| other.id == id) {
        Some((_, other)) => other,
        None => shard,
    }
}

/// Shows or stores the elements, or what GET says of them.
fn finish(ctx: &mut Ctx<'_>, args: Args<'_>, options: &Options<'_>, shown: &[Element<'_>]) {
    let gets = match options.gets.is_empty() {
        true => &[Pattern::Element][..],
        false => &options.gets,
    };
    let pairs = shown.iter().flat_map(|element| gets.iter().map(move |get| (*element, *get)));
    let mut look = Look::default();
    if let Some(index) = options.store {
        let mut texts = Arena::default();
        for (element, get) in pairs {
            look.up(ctx, get, element.as_bytes(&mut Digits::new()), |_, found| {
                texts.push(found.unwrap_or_default())
            });
        }
        store(ctx, args, index, List::of(texts.iter().map(Element::Bytes), ctx.limits));
        return;
    }
    ctx.reply.array(shown.len() * gets.len());
    for (element, get) in pairs {
        look.up(ctx, get, element.as_bytes(&mut Digits::new()), |reply, found| match found {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        });
    }
}

/// Puts `list` in the place of whatever argument `index` names, which is removed if there is nothing to store.
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, index: usize, list: List) {
    ctx.reply.integer(list.len() as i64);
    let (at, key, client) = (ctx.at(), ctx.key(args, index), ctx.caller.client);
    let shard = owner(&mut *ctx.shard, &mut *ctx.elsewhere, ctx.server, key.bytes);
    if !list.is_empty() {
        shard.insert(at, &key, NewValue::Object(Object::List(list)), Ttl::Clear);
        shard.changed_by(client, at.db, key.bytes, EventClass::List, "sortstore");
    } else if shard.remove(at, &key) {
        shard.changed_by(client, at.db, key.bytes, EventClass::Generic, "del");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_read_as_redis_reads_them() {
        let named = |before, behind, field| Pattern::Named { before, behind, field };
        let cases: &[(&[u8], Pattern<'_>)] = &[
            (b"#", Pattern::Element),
            (b"##", Pattern::Constant),
            (b"", Pattern::Constant),
            (b"plain->f", Pattern::Constant),
            (b"\0*", Pattern::Constant),
            (b"*", named(b"", b"", None)),
            (b"w_*", named(b"w_", b"", None)),
            (b"w_*_x*", named(b"w_", b"_x*", None)),
            (b"h_*->f", named(b"h_", b"", Some(b"f"))),
            (b"h_*_x->f->g", named(b"h_", b"_x", Some(b"f->g"))),
            (b"h_*->", named(b"h_", b"->", None)),
            (b"->*", named(b"->", b"", None)),
            (b"h_*->\0f", named(b"h_", b"->\0f", None)),
            (b"h_*\0->f", named(b"h_", b"\0->f", None)),
        ];
        for (text, expected) in cases {
            assert!(Pattern::read(text) == *expected, "{}", text.escape_ascii());
        }
    }

    proptest! {
        /// Doubles keep their order as integers, and a cut before sorting shows what a cut behind it would.
        #[test]
        fn a_limit_is_cut_out_before_sorting(
            numbers in proptest::collection::vec(prop_oneof![Just(-0.0), Just(0.0), -5.0..5.0_f64, any::<f64>()], 0..60),
            start in 0..70_usize,
            n in 0..70_usize,
            is_descending in any::<bool>(),
        ) {
            let numbers: Vec<f64> = numbers.into_iter().filter(|number| !number.is_nan()).collect();
            let texts: Vec<String> = (0..numbers.len()).map(|n| format!("e{n}")).collect();
            let mut weighed: Vec<Weighed<'_>> = numbers
                .iter()
                .zip(&texts)
                .map(|(number, text)| Weighed { weight: ordered(*number), element: Element::Bytes(text.as_bytes()) })
                .collect();
            let mut expected: Vec<(f64, &[u8])> =
                numbers.iter().zip(&texts).map(|(number, text)| (*number, text.as_bytes())).collect();
            expected.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap().then(a.1.cmp(b.1)));
            let direction = if is_descending { Direction::Descending } else { Direction::Ascending };
            if is_descending {
                expected.reverse();
            }
            let start = start.min(numbers.len());
            let place = Place { start, n: n.min(numbers.len() - start) };
            cut_and_sort(&mut weighed, direction, place);
            let shown: Vec<&[u8]> = expected[start..place.end()].iter().map(|(_, text)| *text).collect();
            let got: Vec<Vec<u8>> = weighed.iter().map(|weighed| weighed.element.to_vec()).collect();
            prop_assert_eq!(got, shown.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }
}
