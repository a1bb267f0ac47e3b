//! `skerry-server`: starts as redis-server does.

use std::io::Write;
use std::process::ExitCode;

use skerry_server::alloc::Counting;
use skerry_server::config::{Invocation, USAGE, invoke, version_line};
use skerry_server::start::Failure;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let startup = match invoke(&args, &mut std::io::stdin()) {
        Ok(Invocation::Run(startup)) => startup,
        Ok(Invocation::Version) => {
            println!("{}", version_line());
            return ExitCode::SUCCESS;
        }
        Ok(Invocation::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match skerry_server::start::run(*startup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Logged) => ExitCode::FAILURE,
        Err(Failure::Untold(error)) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}
