//! A sorted set: one packed buffer of members and scores in turn ("listpack"), or a table of members beside their
//! ranking ("skiplist", as OBJECT ENCODING calls it; the order is a counted B+tree).
//!
//! ```text
//!  table    hash of the member --> Member | member | score (0 to 8 bytes) |
//!                                    ^
//!  ranking  | score, place | score, place | ...     by score, then by the member's bytes
//! ```
//!
//! It grows into the table when there are more members than `zset-max-listpack-entries` or one is longer than
//! `zset-max-listpack-value`; only results that a command stores anew are made small again, as in Redis 8.2.3.
//!
//! Everything that asks for a range asks for ranks first ([`Zset::n_below`]), so there is one way to walk.
//! Invariants: no score is NaN; the ranking holds the place and score of every member of the table, and of no other. A member
//! is changed, which may move it, only while its item is not there. Freeing empties the ranking before the table.
//! Cost: packed O(n) for n up to the limit; else O(1) for a score, O(log n) for a change or a rank.

use std::cmp::Ordering;
use std::ops::Range;

use hashbrown::HashSet;
use skerry_resp::number::{FloatText, format_f64, parse_f64};

use super::element::{Digits, Element, Encoded};
use super::member::{Member, MemberPlace, MemberRef};
use super::packed::{Growth, Packed, Position};
use super::ranking::Ranking;
use super::runs::Runs;
use super::{Limits, OneOf, PACKED_MAX_BYTES, below, choose};
use crate::keyspace::hash::HashSeed;
use crate::keyspace::loose::Loose;
pub use crate::keyspace::table::ScanPosition;
use crate::keyspace::table::{Table, prefetch};

/// Entries of the packed buffer a member takes: itself and its score.
const STRIDE: usize = 2;
/// Drawing distinct members one by one pays when at most one in this many is wanted.
const DRAW_RATIO: usize = 3;
/// Whole scores up to here are stored as integers (Redis's `double2ll`).
const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;

pub struct Zset(Repr);

enum Repr {
    Packed(Packed),
    Ranked(Loose<Ranked>),
}

/// The big encoding.
struct Ranked {
    table: Table<Member>,
    ranking: Ranking<Item>,
    member_bytes: usize,
}

/// Packed: an item more in seven.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Item {
    score: f64,
    place: MemberPlace,
}

/// A member and its score, lent.
pub type Scored<'a> = (Element<'a>, f64);

/// What [`Zset::edit`] did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edited {
    /// The closure wanted no change.
    Left,
    Added,
    /// The member was there; the score may be the same as before.
    Scored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

impl Default for Zset {
    fn default() -> Self {
        Self(Repr::Packed(Packed::new()))
    }
}

impl Zset {
    /// An empty one in the encoding Redis gives it for a command with `n_members` members, the first `n_first` bytes long.
    pub fn for_members(n_members: usize, n_first: usize, limits: &Limits) -> Self {
        if n_members <= limits.zset_max_listpack_entries && n_first <= limits.zset_max_listpack_value {
            Self::default()
        } else {
            Self::new_ranked(limits.seed)
        }
    }

    /// An empty one in the big encoding.
    pub fn new_ranked(seed: HashSeed) -> Self {
        Self(Repr::Ranked(Loose::new(Ranked::new(seed))))
    }

    /// What a command stores: members in the order of a sorted set, each once, in the encoding that Redis gives them
    /// (`zsetConvertToListpackIfNeeded`).
    pub fn of_ascending(scored: &[Scored<'_>], limits: &Limits) -> Self {
        let (n_longest, n_bytes) = scored
            .iter()
            .map(|(member, _)| member.n_bytes())
            .fold((0, 0), |(longest, sum), n| (longest.max(n), sum + n));
        if scored.len() <= limits.zset_max_listpack_entries
            && n_longest <= limits.zset_max_listpack_value
            && n_bytes <= PACKED_MAX_BYTES
        {
            let mut packed = Packed::new();
            for (member, score) in scored {
                packed.push_back(&Encoded::new(member.canonical()), Growth::Tight);
                push_score(*score, |score| packed.push_back(score, Growth::Tight));
            }
            return Self(Repr::Packed(packed));
        }
        let mut ranked =
            Ranked { table: Table::with_room(limits.seed, scored.len()), ..Ranked::new(limits.seed) };
        let file = |(member, score): &Scored<'_>| {
            let member = member_of(member.as_bytes(&mut Digits::new()), *score);
            let hash = ranked.table.hash(member.as_ref().field());
            ranked.file(hash, member, *score)
        };
        let items: Vec<Item> = scored.iter().map(file).collect();
        ranked.ranking = Ranking::of_ascending(&items);
        Self(Repr::Ranked(Loose::new(ranked)))
    }

    /// One in the big encoding of members in any order; None if one of them is None or there twice, or a score is NaN.
    pub fn of_unordered<M: AsRef<[u8]>>(
        scored: impl Iterator<Item = Option<(M, f64)>>,
        limits: &Limits,
    ) -> Option<Self> {
        let mut ranked = Ranked::new(limits.seed);
        let mut runs = Runs::new();
        for member in scored {
            let (member, score) = member?;
            let hash = ranked.table.hash(member.as_ref());
            if score.is_nan() || ranked.table.find(hash, member.as_ref()).is_some() {
                return None;
            }
            runs.push(ranked.file(hash, member_of(member.as_ref(), score), score), by_rank);
        }
        ranked.ranking = runs.rank(by_rank);
        Some(Self(Repr::Ranked(Loose::new(ranked))))
    }

    /// A sorted set of `n_members` members that are all different, in its order; None if they are not in order or a score is NaN.
    pub fn of_checked<'a>(
        scored: impl Iterator<Item = Scored<'a>>,
        n_members: usize,
        limits: &Limits,
    ) -> Option<Self> {
        let mut zset = Self::default();
        zset.announce(n_members, limits);
        let mut before: Option<Scored<'a>> = None;
        for (element, score) in scored {
            let is_behind = before.is_none_or(|(other, other_score)| {
                let is_named_behind =
                    || other.as_bytes(&mut Digits::new()) < element.as_bytes(&mut Digits::new());
                other_score < score || other_score == score && is_named_behind()
            });
            if !is_behind || score.is_nan() {
                return None;
            }
            match &mut zset.0 {
                Repr::Ranked(ranked) => {
                    let mut digits = Digits::new();
                    ranked.insert(member_of(element.as_bytes(&mut digits), score), score);
                }
                Repr::Packed(packed) => {
                    packed.push_back(&Encoded::new(element.canonical()), Growth::Tight);
                    if score == 0.0 && score.is_sign_negative() {
                        // Where somebody has stored the sign, it stays, as in Redis.
                        packed.push_back(&Encoded::of(b"-0"), Growth::Tight);
                    } else {
                        push_score(score, |score| packed.push_back(score, Growth::Tight));
                    }
                }
            }
            before = Some((element, score));
        }
        Some(zset)
    }

    /// The packed buffer of a sorted set in that encoding.
    pub fn packed(&self) -> Option<&Packed> {
        if let Repr::Packed(packed) = &self.0 { Some(packed) } else { None }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.len() / STRIDE,
            Repr::Ranked(ranked) => ranked.table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_packed(&self) -> bool {
        matches!(self.0, Repr::Packed(_))
    }

    /// The name OBJECT ENCODING answers.
    pub fn encoding(&self) -> &'static str {
        match &self.0 {
            Repr::Packed(_) => "listpack",
            Repr::Ranked(_) => "skiplist",
        }
    }

    /// Asks the cache for what a command on a small sorted set touches; see `Object::prefetch`.
    #[inline]
    pub fn prefetch(&self, wave: usize) -> bool {
        match (&self.0, wave) {
            (Repr::Packed(packed), _) => packed.prefetch(wave),
            (Repr::Ranked(ranked), 0) => {
                let at = std::ptr::from_ref(&**ranked).addr() as u64;
                prefetch(at);
                prefetch(at + 64);
                true
            }
            (Repr::Ranked(ranked), 1) => {
                ranked.table.prefetch_small();
                true
            }
            (Repr::Ranked(ranked), _) => {
                ranked.table.prefetch_first_entry();
                false
            }
        }
    }

    // ---- members

    /// Converts as Redis does when a command brings `n_members` members, before it adds them.
    pub fn announce(&mut self, n_members: usize, limits: &Limits) {
        if matches!(self.0, Repr::Packed(_)) && n_members > limits.zset_max_listpack_entries {
            self.become_ranked(limits.seed);
        }
    }

    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.0 {
            Repr::Packed(packed) => {
                let at = packed.find::<STRIDE>(&Encoded::of(member))?;
                Some(score_of(packed.get(packed.skip(at))))
            }
            Repr::Ranked(ranked) => ranked.find(member).map(score_in),
        }
    }

    /// The same for an element that any collection lends.
    #[inline]
    pub fn score_of_element(&self, element: Element<'_>) -> Option<f64> {
        self.score(element.as_bytes(&mut Digits::new()))
    }

    /// Shows `change` the member's score (none if it is not there), and gives the member the score it answers. One lookup.
    /// The answer must not be NaN.
    #[inline]
    pub fn edit(
        &mut self,
        member: &[u8],
        limits: &Limits,
        change: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Edited {
        match &mut self.0 {
            Repr::Ranked(ranked) => ranked.edit(member, change),
            Repr::Packed(packed) => {
                let encoded = Encoded::of(member);
                if let Some(at) = packed.find::<STRIDE>(&encoded) {
                    let old = score_of(packed.get(packed.skip(at)));
                    let Some(new) = change(Some(old)) else { return Edited::Left };
                    if new != old {
                        packed.remove(at, STRIDE);
                        insert_packed(packed, member, &encoded, new);
                    }
                    return Edited::Scored;
                }
                let Some(new) = change(None) else { return Edited::Left };
                if packed.len() / STRIDE < limits.zset_max_listpack_entries
                    && member.len() <= limits.zset_max_listpack_value
                    && packed.listpack_bytes() + member.len() <= PACKED_MAX_BYTES
                {
                    insert_packed(packed, member, &encoded, new);
                    return Edited::Added;
                }
                self.become_ranked(limits.seed).insert(member_of(member, new), new);
                Edited::Added
            }
        }
    }

    /// Gives a member a score, whether it is there or not.
    pub fn set(&mut self, member: &[u8], score: f64, limits: &Limits) -> Edited {
        self.edit(member, limits, |_| Some(score))
    }

    /// Removes a member; false if it was not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                let found = packed.find::<STRIDE>(&Encoded::of(member));
                found.map(|at| packed.remove(at, STRIDE)).is_some()
            }
            Repr::Ranked(ranked) => ranked.remove(member),
        }
    }

    /// Removes the members of these ranks.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) {
        match &mut self.0 {
            Repr::Packed(packed) => {
                let ranks = ranks.start.min(packed.len() / STRIDE)..ranks.end.min(packed.len() / STRIDE);
                if !ranks.is_empty() {
                    packed.remove(packed.seek(ranks.start * STRIDE), ranks.len() * STRIDE);
                }
            }
            Repr::Ranked(ranked) => {
                for _ in ranks.start..ranks.end.min(ranked.ranking.len()) {
                    let Some(item) = ranked.ranking.get(ranks.start).copied() else { return };
                    ranked.remove_item(item);
                }
            }
        }
    }

    // ---- order

    /// A member's rank and score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.0 {
            Repr::Packed(packed) => {
                let wanted = Element::of(member);
                scored(packed.iter())
                    .enumerate()
                    .find_map(|(rank, (element, score))| (element == wanted).then_some((rank, score)))
            }
            Repr::Ranked(ranked) => {
                let found = ranked.find(member)?;
                let item = Item { score: score_in(found), place: found.place() };
                let rank = ranked.ranking.partition_point(|other| by_rank(other, &item) == Ordering::Less);
                Some((rank, item.score))
            }
        }
    }

    /// Number of members that `is_below` says yes to. It must say yes to a prefix of the order and no to the rest.
    pub fn n_below(&self, is_below: impl Fn(f64, &Element<'_>) -> bool) -> usize {
        match &self.0 {
            Repr::Packed(packed) => {
                scored(packed.iter()).take_while(|(element, score)| is_below(*score, element)).count()
            }
            Repr::Ranked(ranked) => ranked
                .ranking
                .partition_point(|item| is_below(item.score, &Element::Bytes(lend(item).field()))),
        }
    }

    /// The members of these ranks in this direction; ranks past the end are none.
    pub fn range(&self, ranks: Range<usize>, direction: Direction) -> impl Iterator<Item = Scored<'_>> {
        let ranks = ranks.start.min(self.len())..ranks.end.min(self.len());
        let n = ranks.len();
        match (&self.0, direction) {
            (Repr::Packed(packed), Direction::Ascending) => {
                OneOf::First(OneOf::<_, _, std::iter::Empty<_>>::First(
                    scored(packed.iter_from(packed.seek(ranks.start * STRIDE))).take(n),
                ))
            }
            (Repr::Packed(packed), Direction::Descending) => OneOf::First(OneOf::Second(
                scored_backwards(packed.iter_until(packed.seek((ranks.start + n) * STRIDE))).take(n),
            )),
            (Repr::Ranked(ranked), Direction::Ascending) => {
                OneOf::Second(ranked.ranking.ascending(ranks).map(scored_item))
            }
            (Repr::Ranked(ranked), Direction::Descending) => {
                OneOf::Third(ranked.ranking.descending(ranks).map(scored_item))
            }
        }
    }

    /// All members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Scored<'_>> {
        self.range(0..self.len(), Direction::Ascending)
    }

    /// One step of ZSCAN: see `Table::scan`. The packed encoding is walked in one step.
    pub fn scan<'s>(&'s self, at: ScanPosition, mut visit: impl FnMut(Scored<'s>)) -> ScanPosition {
        match &self.0 {
            Repr::Ranked(ranked) => ranked.table.scan(at, |member| visit(scored_member(member))),
            Repr::Packed(packed) => {
                scored(packed.iter()).for_each(visit);
                ScanPosition::default()
            }
        }
    }

    // ---- random members

    /// A random member and its score, each with the same chance; None of an empty sorted set.
    pub fn random(&self, random: &mut impl FnMut() -> u64) -> Option<Scored<'_>> {
        let rank = (!self.is_empty()).then(|| below(self.len(), random))?;
        self.range(rank..rank + 1, Direction::Ascending).next()
    }

    /// `n` different random members with their scores, or all if there are no more.
    pub fn sample<'s>(
        &'s self,
        n: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Scored<'s>),
    ) {
        match &self.0 {
            Repr::Ranked(ranked) if n < ranked.table.len() / DRAW_RATIO => {
                let mut drawn = HashSet::new();
                while drawn.len() < n {
                    let Some(member) = ranked.table.random(&mut *random) else { return };
                    if drawn.insert(member.address()) {
                        visit(scored_member(member));
                    }
                }
            }
            Repr::Ranked(_) | Repr::Packed(_) => choose(self.iter(), self.len(), n, random, visit, drop),
        }
    }

    // ---- whole

    /// Bytes allocated below this value.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Packed(packed) => packed.heap_bytes(),
            Repr::Ranked(ranked) => {
                let index = ranked.table.memory_bytes() + ranked.ranking.memory_bytes();
                size_of::<Ranked>() + index + ranked.member_bytes
            }
        }
    }

    /// Frees about `budget` members; true when nothing is left. Not to be used on but for freeing the rest.
    pub fn free_slice(&mut self, budget: usize) -> bool {
        match &mut self.0 {
            Repr::Packed(packed) => {
                *packed = Packed::new();
                true
            }
            Repr::Ranked(ranked) => {
                if ranked.ranking.len() > 0 {
                    ranked.ranking.free_slice(budget);
                    return false;
                }
                let mut freed = 0;
                let empty = ranked.table.drain(budget, |member| freed += member.allocated_bytes());
                ranked.member_bytes -= freed;
                empty
            }
        }
    }

    /// What SORT does to a small sorted set, as in Redis.
    pub fn become_ranked_by_sort(&mut self, seed: HashSeed) {
        self.become_ranked(seed);
    }

    fn become_ranked(&mut self, seed: HashSeed) -> &mut Ranked {
        if let Repr::Packed(packed) = &self.0 {
            let mut ranked = Ranked::new(seed);
            for (element, score) in scored(packed.iter()) {
                ranked.insert(member_of(element.as_bytes(&mut Digits::new()), score), score);
            }
            self.0 = Repr::Ranked(Loose::new(ranked));
        }
        match &mut self.0 {
            Repr::Ranked(ranked) => ranked,
            Repr::Packed(_) => unreachable!("it was made one"),
        }
    }

    /// Panics unless the invariants hold.
    pub fn check(&self) {
        match &self.0 {
            Repr::Packed(packed) => {
                packed.check_whole();
                assert!(packed.len().is_multiple_of(STRIDE));
                let all: Vec<Scored<'_>> = scored(packed.iter()).collect();
                assert!(all.is_sorted_by(|(a, x), (b, y)| {
                    x < y || x == y && a.as_bytes(&mut Digits::new()) < b.as_bytes(&mut Digits::new())
                }));
            }
            Repr::Ranked(ranked) => {
                let sum = ranked.table.iter().map(|member| member.allocated_bytes()).sum::<usize>();
                assert_eq!(ranked.member_bytes, sum);
                assert_eq!(ranked.ranking.len(), ranked.table.len());
                ranked.ranking.check(by_rank);
                for item in ranked.ranking.ascending(0..ranked.ranking.len()) {
                    let found = ranked.find(lend(item).field()).expect("a ranked member is in the table");
                    assert!(found.address() == lend(item).address() && score_in(found) == item.score);
                }
            }
        }
    }
}

impl Ranked {
    fn new(seed: HashSeed) -> Self {
        Self { table: Table::new(seed), ranking: Ranking::new(), member_bytes: 0 }
    }

    #[inline]
    fn find(&self, member: &[u8]) -> Option<MemberRef<'_>> {
        self.table.find(self.table.hash(member), member)
    }

    fn edit(&mut self, member: &[u8], change: impl FnOnce(Option<f64>) -> Option<f64>) -> Edited {
        let hash = self.table.hash(member);
        let Some(mut slot) = self.table.find_mut(hash, member) else {
            let Some(score) = change(None) else { return Edited::Left };
            self.insert(member_of(member, score), score);
            return Edited::Added;
        };
        let found = slot.get();
        let (old, n_before) =
            (Item { score: score_in(found), place: found.place() }, found.allocated_bytes());
        let Some(score) = change(Some(old.score)) else { return Edited::Left };
        // `==`: a score of -0 stays what it is when it becomes 0, as in Redis.
        if score != old.score {
            // Out of the ranking first: the member may move.
            self.ranking.remove(&old, by_rank);
            slot.update(|member| member.set_value(Stored::of(score).bytes()));
            let moved = slot.get();
            let item = Item { score, place: moved.place() };
            self.member_bytes = self.member_bytes - n_before + moved.allocated_bytes();
            self.ranking.insert(item, by_rank);
        }
        Edited::Scored
    }

    /// Files a member that is not there yet.
    fn insert(&mut self, member: Member, score: f64) {
        debug_assert!(!score.is_nan());
        let hash = self.table.hash(member.as_ref().field());
        let item = self.file(hash, member, score);
        self.ranking.insert(item, by_rank);
    }

    /// Files a member that is not there yet in the table; the ranking lacks the item.
    fn file(&mut self, hash: u64, member: Member, score: f64) -> Item {
        self.member_bytes += member.allocated_bytes();
        let place = member.as_ref().place();
        self.table.insert(hash, member);
        Item { score, place }
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        let Some(found) = self.find(member) else { return false };
        let item = Item { score: score_in(found), place: found.place() };
        self.remove_item(item);
        true
    }

    fn remove_item(&mut self, item: Item) {
        self.ranking.remove(&item, by_rank);
        let field = lend(&item).field();
        if let Some(member) = self.table.remove(self.table.hash(field), field) {
            self.member_bytes -= member.allocated_bytes();
        }
    }
}

/// By score, then by the member's bytes.
#[inline]
fn by_rank(a: &Item, b: &Item) -> Ordering {
    let (x, y) = (a.score, b.score);
    match x.partial_cmp(&y) {
        Some(Ordering::Equal) | None => lend(a).field().cmp(lend(b).field()),
        Some(order) => order,
    }
}

/// The member of an item. Private to this file: items do not leave it, so they live no longer than the table beside them.
#[inline(always)]
fn lend<'a>(item: &Item) -> MemberRef<'a> {
    // SAFETY: an item stands in the ranking only while its member stands in the table of the same `Ranked` (removed from the
    // ranking first, changed and freed after it), which moves no allocation of a member but where a score is changed, and
    // there the item is made anew. `Runs` compares items of members that its caller has filed and does not change meanwhile.
    // What is lent here is used before the next change of that table, or handed out under a borrow of the `Zset`.
    unsafe { item.place.member() }
}

fn scored_item(item: &Item) -> Scored<'_> {
    (Element::Bytes(lend(item).field()), item.score)
}

fn scored_member(member: MemberRef<'_>) -> Scored<'_> {
    (Element::Bytes(member.field()), score_in(member))
}

/// A score as a member keeps it: its bytes, highest first, without the zeros at their end. Those of a whole number are few.
struct Stored([u8; 8], usize);

impl Stored {
    #[inline]
    fn of(score: f64) -> Self {
        let bits = score.to_bits();
        Self(bits.to_be_bytes(), size_of::<f64>() - bits.trailing_zeros() as usize / 8)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

fn member_of(member: &[u8], score: f64) -> Member {
    Member::with_value(member, Stored::of(score).bytes())
}

#[inline]
fn score_in(member: MemberRef<'_>) -> f64 {
    let stored = member.value();
    // Two reads that may overlap, of as many bytes as there are at least.
    let bits = match stored.len() {
        0 => 0,
        1 => u64::from(stored[0]) << 56,
        n @ 2..4 => ends::<2>(stored, n, |half| u64::from(u16::from_be_bytes(half))),
        n => ends::<4>(stored, n, |half| u64::from(u32::from_be_bytes(half))),
    };
    f64::from_bits(bits)
}

/// The first and the last `N` of `n` bytes, which are the upper ones of a word.
#[inline(always)]
fn ends<const N: usize>(stored: &[u8], n: usize, read: impl Fn([u8; N]) -> u64) -> u64 {
    let (Some(first), Some(last)) = (stored.first_chunk(), stored.last_chunk()) else {
        unreachable!("a score has at least {N} bytes here")
    };
    read(*first) << (64 - 8 * N) | read(*last) << (64 - 8 * n)
}

fn scored<'a>(mut entries: impl Iterator<Item = Element<'a>>) -> impl Iterator<Item = Scored<'a>> {
    std::iter::from_fn(move || Some((entries.next()?, score_of(entries.next()?))))
}

fn scored_backwards<'a>(
    mut entries: impl DoubleEndedIterator<Item = Element<'a>>,
) -> impl Iterator<Item = Scored<'a>> {
    std::iter::from_fn(move || {
        let score = score_of(entries.next_back()?);
        Some((entries.next_back()?, score))
    })
}

fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Integer(integer) => integer as f64,
        Element::Bytes(text) => parse_f64(text).expect("a stored score is a number's text"),
    }
}

/// Hands a score, encoded as Redis does in a listpack, to `push`.
fn push_score<R>(score: f64, push: impl FnOnce(&Encoded<'_>) -> R) -> R {
    let whole = score as i64;
    if score.abs() <= WHOLE_MAX && whole as f64 == score {
        push(&Encoded::new(Element::Integer(whole)))
    } else {
        push(&Encoded::of(format_f64(score, &mut FloatText::new())))
    }
}

fn insert_packed(packed: &mut Packed, member: &[u8], encoded: &Encoded<'_>, score: f64) {
    let at = place_for(packed, member, score);
    packed.insert(at, encoded, Growth::Tight);
    let behind = packed.skip(at);
    push_score(score, |score| packed.insert(behind, score, Growth::Tight));
}

/// The position of the first entry that comes after this member with this score.
fn place_for(packed: &Packed, member: &[u8], score: f64) -> Position {
    let mut at = packed.first();
    while let Some(here) = at {
        let score_at = packed.skip(here);
        let other = score_of(packed.get(score_at));
        if other > score || other == score && packed.get(here).as_bytes(&mut Digits::new()) > member {
            return here;
        }
        at = packed.next(score_at);
    }
    packed.end()
}

/// A copy of the same encoding: COPY.
impl Clone for Zset {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Packed(packed) => Repr::Packed(packed.clone()),
            Repr::Ranked(ranked) => {
                let seed = ranked.table.seed();
                let mut copy =
                    Ranked { table: Table::with_room(seed, ranked.table.len()), ..Ranked::new(seed) };
                for item in ranked.ranking.ascending(0..ranked.ranking.len()) {
                    copy.insert(lend(item).to_owned(), item.score);
                }
                Repr::Ranked(Loose::new(copy))
            }
        })
    }
}

/// Same members with the same scores, whatever the encodings.
impl PartialEq for Zset {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().zip(other.iter()).all(|((a, x), (b, y))| a.canonical() == b.canonical() && x == y)
    }
}

impl std::fmt::Debug for Zset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
