//! LOLWUT: a skerry in the sea, another one each time, and the version (<https://redis.io/docs/latest/commands/lolwut/>).

use crate::args::{Args, is_word};
use crate::command::Conn;
use crate::error::{CommandError, Outcome};

const WIDTH_DEFAULT: i64 = 64;
const WIDTH_MAX: i64 = 512;
const HEIGHT: usize = 8;

/// LOLWUT [VERSION version] [width]
pub(super) fn lolwut(conn: &mut Conn<'_>, args: Args<'_>) -> Outcome {
    let is_versioned = args.len() >= 3 && is_word(args.get(1), "VERSION");
    if is_versioned {
        integer(args.get(2))?;
    }
    let width_at = if is_versioned { 3 } else { 1 };
    let width = match args.len() > width_at {
        true => integer(args.get(width_at)).unwrap_or(WIDTH_DEFAULT).clamp(1, WIDTH_MAX),
        false => WIDTH_DEFAULT,
    };
    let mut text = picture(width as usize, conn.now_ms as u64);
    text.push_str(&format!("\nSkerry ver. {}\n", env!("CARGO_PKG_VERSION")));
    conn.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn integer(word: &[u8]) -> Result<i64, CommandError> {
    skerry_resp::number::parse_i64(word).ok_or(CommandError::NotInteger)
}

/// A ridge of rock by midpoint displacement, the sea before it, some birds.
fn picture(width: usize, seed: u64) -> String {
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let mut ridge = vec![0usize; width + 1];
    ridge[width / 2] = HEIGHT - 2;
    let mut step = width / 2;
    while step > 1 {
        for left in (0..width - step / 2).step_by(step) {
            let right = (left + step).min(width);
            let middle = usize::midpoint(left, right);
            let between = usize::midpoint(ridge[left], ridge[right]);
            ridge[middle] = (between + random(3)).saturating_sub(1).min(HEIGHT - 2);
        }
        step /= 2;
    }
    let mut text = String::with_capacity((width + 1) * (HEIGHT + 2));
    for level in (0..HEIGHT).rev() {
        for &height in &ridge[..width] {
            text.push(match height {
                height if height > level + 1 => '#',
                height if height > level => '^',
                _ if level > HEIGHT / 2 && random(40) == 0 => 'v',
                _ => ' ',
            });
        }
        text.push('\n');
    }
    for _ in 0..2 {
        (0..width).for_each(|_| text.push(if random(3) == 0 { '-' } else { '~' }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_width_gives_a_picture_of_that_width() {
        for width in 1..200 {
            let text = picture(width, width as u64 * 77);
            assert_eq!(text.lines().count(), HEIGHT + 2);
            assert!(text.lines().all(|line| line.len() == width), "width {width}:\n{text}");
        }
    }
}
