//! The `skerry-bench` program: `skerry-bench [memtier's flags]`.

#![forbid(unsafe_code)]

use skerry_bench::flags::{self, FlagError};
use skerry_bench::{response_file, session};
use std::process::ExitCode;

/// Exit code for arguments that make no sense, as memtier's usage exit.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match response_file::expand(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let workload = match flags::parse(&args) {
        Ok(workload) => workload,
        Err(FlagError::Clap(error)) => error.exit(),
        Err(FlagError::Text(text)) => {
            eprintln!("{text}");
            return ExitCode::from(USAGE);
        }
    };
    session::run(&workload).unwrap_or_else(|error| {
        eprintln!("error: {}: {error}", workload.address);
        ExitCode::FAILURE
    })
}
