//! The `holdfast-server` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_server::cli::main()
}
