//! Makes a program that shows a difference short.

/// The shortest program found that still differs, and what it shows. Halves, quarters and so on are left out as long as `differs`, which
/// replays a program, sees a difference; at most `replays` times.
pub fn shrunk<S: Clone>(
    mut steps: Vec<S>,
    mut what: String,
    replays: &mut usize,
    differs: impl Fn(&[S]) -> Option<String>,
) -> (Vec<S>, String) {
    let mut chunk = steps.len() / 2;
    while chunk > 0 && *replays > 0 {
        let mut at = 0;
        while at < steps.len() && *replays > 0 {
            let mut shorter = steps.clone();
            shorter.drain(at..(at + chunk).min(steps.len()));
            *replays -= 1;
            match differs(&shorter) {
                Some(now) => (steps, what) = (shorter, now),
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, what)
}
