//! `skerry-bench vectors MODE`: how well, how fast and how dearly servers with V* commands search real vectors.
//!
//! | mode | question |
//! |---|---|
//! | `load` | what does it cost to build the set? |
//! | `sweep` | recall against speed and server CPU, by EF |
//! | `stream` | do inserts hurt the searches beside them, and the set? |
//! | `filter` | what do FILTER expressions of known selectivity cost, and what do they miss? |
//! | `churn` | what is left of recall and memory after deleting and inserting again? |
//! | `storm` | how long does a GET wait beside searches, and beside a DEL of the set? |
//! | `radial` | does EPSILON find all within a radius, and is it faster than TRUTH? |
//! | `transfer` | is a set that was dumped here and restored there the same set? |
//!
//! Every mode takes one server or several (`--peer`), asks them in turn and prints medians over rounds and ratios.
//! Elements are named by their row number.
//!
//! Must never know: which server it asks.

mod churn;
mod data;
mod equal_recall;
mod feed;
mod figures;
mod filter;
mod flags;
mod load;
mod plot;
mod probe;
mod provenance;
mod radial;
mod report;
mod search;
mod server;
mod storm;
mod stream;
mod sweep;
mod transfer;

use crate::flags::FlagError;
use clap::{Parser, Subcommand};
use std::io;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "skerry-bench vectors",
    about = "Measures vector sets (V* commands) of one or several servers.",
    subcommand_required = true
)]
struct Vectors {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// What building the set costs: wall time, server CPU, memory
    Load(load::Flags),
    /// Recall, speed and server CPU of VSIM by EF
    Sweep(sweep::Flags),
    /// Searches beside inserts at a fixed rate
    Stream(stream::Flags),
    /// FILTER at selectivities of 50, 10, 1 and 0.1 %
    Filter(filter::Flags),
    /// Deletes and reinserts, round after round
    Churn(churn::Flags),
    /// The latency of another client's GET beside searches and a DEL
    Storm(storm::Flags),
    /// EPSILON with a known number of matches
    Radial(radial::Flags),
    /// DUMP here, RESTORE there
    Transfer(transfer::Flags),
}

/// Runs the subcommand with the arguments after its name.
pub fn main(args: &[String]) -> Result<ExitCode, FlagError> {
    let argv = std::iter::once("skerry-bench vectors").chain(args.iter().map(String::as_str));
    let vectors = Vectors::try_parse_from(argv).map_err(FlagError::Clap)?;
    let ended = match &vectors.mode {
        Mode::Load(flags) => load::run(flags, args),
        Mode::Sweep(flags) => sweep::run(flags, args),
        Mode::Stream(flags) => stream::run(flags, args),
        Mode::Filter(flags) => filter::run(flags, args),
        Mode::Churn(flags) => churn::run(flags, args),
        Mode::Storm(flags) => storm::run(flags, args),
        Mode::Radial(flags) => radial::run(flags, args),
        Mode::Transfer(flags) => transfer::run(flags, args),
    };
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    })
}

fn wrong(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(text)
}
