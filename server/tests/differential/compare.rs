//! The normalisers: the whole list of ways in which two right servers may answer differently.
//!
//! | name | what may differ |
//! | --- | --- |
//! | Exact | nothing |
//! | AnyOrder | the order of the elements (SMEMBERS, KEYS, ...) |
//! | Pairs | the order of field-value pairs |
//! | Seconds, Milliseconds | positive times by the 1 s or 1000 ms between the two runs of a command |
//! | Idle | times in milliseconds since something happened, which stand among other numbers: by 2000 ms |
//! | Moments | Unix times in milliseconds, which stand among other numbers: by 2000 ms |
//! | Shape | the size that MEMORY USAGE tells: a positive number, or null: Redis tells the size of a dead key that it has not met yet, at random |
//! | Size | DBSIZE: dead keys that a server has not met yet count; compared when none is left |
//! | Hits | VSIM WITHSCORES of all elements: the order of equals, and the last digits of scores |
//! | Nearest | replies of GEO* in order of distance: the order of those that are equally far |
//! | Payload | DUMP's bytes: both are restored on both servers, and what is there then is compared |
//! | Scan | cursors and pages: a whole iteration is compared as a set |
//! | RandomKey, RandomMember, RandomField, RandomScored | the pick: same number of picks, each of them a member |
//! | Pop | the pick; afterwards both are brought to the same remaining set |
//! | Exec | each reply by the normaliser of its queued command |

use super::support::reply::Reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Exact,
    AnyOrder,
    /// As many items, whichever they are.
    HowMany,
    Pairs,
    Seconds,
    Milliseconds,
    Idle,
    Moments,
    Shape,
    Size,
    Hits,
    Nearest,
    Payload,
    Scan,
    RandomKey,
    RandomMember,
    RandomField,
    RandomScored,
    Pop,
    Exec,
}

impl Compare {
    /// Needs further commands around it, so it cannot stand in a pipeline or a transaction.
    pub(crate) fn runs_alone(self) -> bool {
        matches!(
            self,
            Compare::Scan
                | Compare::Payload
                | Compare::Size
                | Compare::RandomKey
                | Compare::RandomMember
                | Compare::RandomField
                | Compare::RandomScored
                | Compare::Pop
        )
    }

    /// Whether two replies count as the same; `queued` are the normalisers of an EXEC's commands.
    pub(crate) fn same(self, ours: &Reply, theirs: &Reply, queued: &[Compare]) -> bool {
        if ours == theirs {
            return true;
        }
        match self {
            Compare::Exact => unordered(ours, 0) == unordered(theirs, 0),
            Compare::AnyOrder => unordered(ours, 1) == unordered(theirs, 1),
            Compare::HowMany => match (ours, theirs) {
                (Reply::Array(ours), Reply::Array(theirs)) => ours.len() == theirs.len(),
                _ => false,
            },
            Compare::Pairs => unordered(ours, 2) == unordered(theirs, 2),
            Compare::Seconds => near(ours, theirs, 1),
            Compare::Milliseconds => near(ours, theirs, 1000),
            Compare::Idle => within(ours, theirs, 0..=i64::MAX),
            Compare::Moments => within(ours, theirs, MOMENT_MS..=i64::MAX),
            Compare::Shape => match (ours, theirs) {
                (Reply::Int(ours), Reply::Int(theirs)) => *ours > 0 && *theirs > 0,
                (Reply::NullBulk | Reply::Null, Reply::Int(theirs)) => *theirs > 0,
                _ => false,
            },
            Compare::Hits => match (scores(ours), scores(theirs)) {
                (Some(ours), Some(theirs)) => {
                    ours.len() == theirs.len()
                        && ours.iter().zip(&theirs).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-4)
                }
                _ => false,
            },
            Compare::Nearest => {
                let sorted = |reply: &Reply| {
                    // Each is a member and its distance: by distance as it stands, by member among equals.
                    let mut hits: Vec<(Vec<u8>, Reply)> = Vec::new();
                    for hit in reply.items()? {
                        let distance = hit.items()?.get(1)?.text()?.to_vec();
                        hits.push((distance, hit));
                    }
                    let distances: Vec<Vec<u8>> = hits.iter().map(|(distance, _)| distance.clone()).collect();
                    hits.sort();
                    Some((distances, hits))
                };
                sorted(ours).is_some() && sorted(ours) == sorted(theirs)
            }
            Compare::Exec => match (ours, theirs) {
                (Reply::Array(a), Reply::Array(b)) if a.len() == b.len() && a.len() == queued.len() => {
                    a.iter().zip(b).zip(queued).all(|((a, b), compare)| compare.same(a, b, &[]))
                }
                _ => false,
            },
            // These are compared where they are run; what is left are errors, equal or not.
            Compare::Scan | Compare::Size | Compare::Payload => false,
            Compare::RandomKey | Compare::RandomMember => false,
            Compare::RandomField | Compare::RandomScored | Compare::Pop => false,
        }
    }
}

/// Names and scores, by name.
fn scores(reply: &Reply) -> Option<Vec<(Vec<u8>, f64)>> {
    let items = reply.items()?;
    let score = |reply: &Reply| match reply {
        Reply::Bulk(text) | Reply::Double(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    };
    let mut hits: Vec<(Vec<u8>, f64)> = Vec::new();
    for pair in items.chunks(2) {
        hits.push((pair[0].text()?.to_vec(), score(pair.get(1)?)?));
    }
    hits.sort_by(|a, b| a.0.cmp(&b.0));
    Some(hits)
}

/// Sets and maps sorted at the top; an array too, in groups of `width` (0: an array keeps its order).
pub(crate) fn unordered(reply: &Reply, width: usize) -> Reply {
    match reply {
        Reply::Set(items) => {
            let mut items = items.clone();
            items.sort();
            Reply::Set(items)
        }
        Reply::Map(pairs) => {
            let mut pairs = pairs.clone();
            pairs.sort();
            Reply::Map(pairs)
        }
        Reply::Array(items) if width > 0 && items.len() % width == 0 => {
            let mut groups: Vec<&[Reply]> = items.chunks(width).collect();
            groups.sort();
            Reply::Array(groups.concat())
        }
        other => other.clone(),
    }
}

/// A reply that shows the command did its work: not an error, not null, not empty, not zero.
pub(crate) fn is_substantial(reply: &Reply) -> bool {
    match reply {
        Reply::Error(_) | Reply::BlobError(_) | Reply::NullBulk | Reply::NullArray | Reply::Null => false,
        Reply::Int(n) => *n > 0 || *n < -2,
        Reply::Bulk(t) => !t.is_empty(),
        Reply::Array(items) | Reply::Set(items) => !items.iter().all(Reply::is_null),
        Reply::Map(pairs) => !pairs.is_empty(),
        Reply::Simple(t) => t != b"none",
        Reply::Push(_) | Reply::Bool(_) | Reply::Double(_) | Reply::Big(_) | Reply::Verbatim(..) => true,
    }
}

/// Later than this are Unix times in milliseconds, and no counts.
const MOMENT_MS: i64 = 1 << 40;
const RUNS_APART_MS: i64 = 2000;

/// The same but for integers in `times`, which may differ by the time between the two runs of a command.
fn within(ours: &Reply, theirs: &Reply, times: std::ops::RangeInclusive<i64>) -> bool {
    match (ours, theirs) {
        (Reply::Int(a), Reply::Int(b)) if times.contains(a) && times.contains(b) => {
            (a - b).abs() <= RUNS_APART_MS
        }
        (Reply::Array(a), Reply::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| within(a, b, times.clone()))
        }
        (Reply::Map(a), Reply::Map(b)) => {
            let same =
                |(a, b): (&(Reply, Reply), &(Reply, Reply))| a.0 == b.0 && within(&a.1, &b.1, times.clone());
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (ours, theirs) => ours == theirs,
    }
}

fn near(ours: &Reply, theirs: &Reply, tolerance: i64) -> bool {
    match (ours, theirs) {
        (Reply::Int(a), Reply::Int(b)) => a == b || *a > 0 && *b > 0 && (a - b).abs() <= tolerance,
        (Reply::Array(a), Reply::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b, tolerance))
        }
        _ => false,
    }
}
