//! Sizes and seeds of tests from the environment.

/// The number in `variable`, or `default` if it is not set. What is no number ends the test: it was meant to change something.
pub fn setting(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text:?}")),
        Err(_) => default,
    }
}
