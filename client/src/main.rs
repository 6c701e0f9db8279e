//! The `holdfast` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast::cli::main()
}
