//! The one binary; `cli` has its roles.

use std::process::ExitCode;

fn main() -> ExitCode {
    localpool::cli::main()
}
