//! SRANDMEMBER, ZRANDMEMBER and VRANDMEMBER with a negative count: so many draws, the same member again or not.
//!
//! Redis goes on until its memory is gone; here the number of draws, which a client merely declares, and the reply are bounded.

use skerry_resp::reply::Reply;

use crate::error::{CommandError, Outcome};

/// The most members that one command draws with repetition.
pub(super) const DRAWS_MAX: usize = 1 << 20;
/// The longest reply of such a command.
pub(super) const DRAWS_MAX_BYTES: usize = 512 << 20;

/// Writes `header`, then what `draw` writes, `n` times.
pub(super) fn draw_again_and_again(
    reply: &mut Reply<'_>,
    n: usize,
    header: impl FnOnce(&mut Reply<'_>),
    mut draw: impl FnMut(&mut Reply<'_>),
) -> Outcome {
    if n > DRAWS_MAX {
        return Err(CommandError::OutOfRange);
    }
    let start = reply.out().len();
    header(reply);
    for _ in 0..n {
        draw(reply);
        if reply.out().len() - start > DRAWS_MAX_BYTES {
            return Err(CommandError::OutOfRange);
        }
    }
    Ok(())
}
