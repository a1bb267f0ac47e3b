//! The `skerry-bench` program: `skerry-bench [memtier's flags]`, `skerry-bench trace [flags]`,
//! `skerry-bench wake MODE [flags]` and `skerry-bench vectors MODE [flags]`.

#![forbid(unsafe_code)]

use skerry_bench::flags::{self, FlagError, Workload};
use skerry_bench::{response_file, session, trace, vectors, wake};
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
    let ended = match args.split_first() {
        Some((name, rest)) if name == "trace" => trace::main(rest),
        Some((name, rest)) if name == "wake" => wake::main(rest),
        Some((name, rest)) if name == "vectors" => vectors::main(rest),
        _ => flags::parse(&args).map(|workload| load(&workload)),
    };
    match ended {
        Ok(code) => code,
        Err(FlagError::Clap(error)) => error.exit(),
        Err(FlagError::Text(text)) => {
            eprintln!("{text}");
            ExitCode::from(USAGE)
        }
    }
}

fn load(workload: &Workload) -> ExitCode {
    session::run(workload).unwrap_or_else(|error| {
        eprintln!("error: {}: {error}", workload.address);
        ExitCode::FAILURE
    })
}
