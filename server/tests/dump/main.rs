//! DUMP and RESTORE: values that travel between our server and a live Redis 8.2.3, both ways, in every encoding and every
//! older form of payload; and payloads that somebody has tampered with.
//!
//! `SKERRY_DUMP_VALUES` (default 150) values of each kind each way; `SKERRY_DUMP_MUTATIONS` (default 60,000) tampered
//! payloads, in this process, where the memory they take is measured. `SKERRY_DUMP_SEED` moves on to others. A release
//! runs 10,000 and 1,000,000.

mod mutated;
mod payload;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod travel;
mod values;

use support::setting::setting;

fn seed() -> u64 {
    let seed = setting("SKERRY_DUMP_SEED", 1);
    println!("SKERRY_DUMP_SEED={seed}");
    seed
}
