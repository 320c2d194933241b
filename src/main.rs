//! The one binary; `cli` has its roles.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match localpool::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("localpool: {}", localpool::cli::words(&error));
            ExitCode::FAILURE
        }
    }
}
