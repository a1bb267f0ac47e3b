//! Vectors as clients write them: `FP32 blob` and `VALUES n v1 ... vn`, and the words around them.
//!
//! No allocation is sized by a declared number: VALUES is believed only if that many arguments follow.

use skerry_resp::number::{parse_f64, parse_i64};
use skerry_vectorset::MAX_DIM;

use super::INVALID_VECTOR;
use crate::args::{Args, is_word};
use crate::error::CommandError;

/// The vector that begins at argument `at`, which moves past it.
///
/// Departure from Redis: a component that is no finite float32 is refused. Such a row would have no distance to
/// anything.
pub(super) fn parse_vector(args: Args<'_>, at: &mut usize) -> Result<Vec<f32>, CommandError> {
    read_vector(args, at).ok_or(INVALID_VECTOR)
}

fn read_vector(args: Args<'_>, at: &mut usize) -> Option<Vec<f32>> {
    let mut cursor = args.cursor(*at);
    let form = cursor.maybe_next()?;
    let vector: Vec<f32> = if is_word(form, "FP32") {
        let (numbers, rest) = cursor.maybe_next()?.as_chunks();
        if !rest.is_empty() || numbers.len() > MAX_DIM as usize {
            return None;
        }
        numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    } else if is_word(form, "VALUES") {
        let dim = usize::try_from(parse_i64(cursor.maybe_next()?)?).ok()?;
        if dim > cursor.left() || dim > MAX_DIM as usize {
            return None;
        }
        (0..dim).map(|_| Some(parse_f64(cursor.maybe_next()?)? as f32)).collect::<Option<_>>()?
    } else {
        return None;
    };
    *at = cursor.position();
    let is_sound = !vector.is_empty() && are_finite(vector.iter().copied());
    is_sound.then_some(vector)
}

/// Looks at all of them, so that it can look at many at a time.
fn are_finite(components: impl Iterator<Item = f32>) -> bool {
    components.fold(true, |are_finite, x| are_finite & x.is_finite())
}

/// How many components the vector at argument `at` has, if it is sound; `at` moves past it. Nothing is kept of it.
pub(super) fn check_vector(args: Args<'_>, at: &mut usize) -> Result<usize, CommandError> {
    let mut cursor = args.cursor(*at);
    if let (Some(form), Some(blob)) = (cursor.maybe_next(), cursor.maybe_next())
        && is_word(form, "FP32")
    {
        let (numbers, rest) = blob.as_chunks();
        let is_sound = rest.is_empty()
            && (1..=MAX_DIM as usize).contains(&numbers.len())
            && are_finite(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        *at = cursor.position();
        return if is_sound { Ok(numbers.len()) } else { Err(INVALID_VECTOR) };
    }
    parse_vector(args, at).map(|vector| vector.len())
}

/// Whether a vector begins at argument `at`.
pub(super) fn begins_vector(word: &[u8]) -> bool {
    is_word(word, "FP32") || is_word(word, "VALUES")
}

/// `REDUCE dim` at argument `at`, which moves past it. Departure from Redis 8.2.3, as in later ones: more
/// components than a vector can have are refused, and nothing is cut to 32 bits.
pub(super) fn parse_reduce(args: Args<'_>, at: &mut usize) -> Result<Option<u32>, CommandError> {
    if *at + 1 >= args.len() || !is_word(args.get(*at), "REDUCE") {
        return Ok(None);
    }
    let dim = parse_i64(args.get(*at + 1)).and_then(|dim| u32::try_from(dim).ok());
    let dim = dim.filter(|dim| (1..=MAX_DIM).contains(dim)).ok_or(INVALID_VECTOR)?;
    *at += 2;
    Ok(Some(dim))
}
