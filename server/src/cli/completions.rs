//! `holdfast-server completions`.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::fail::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut command = super::Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "holdfast-server", &mut script);
    // A reader that went away is not a failure.
    let _ = io::Write::write_all(&mut io::stdout().lock(), &script);
    Ok(ExitCode::SUCCESS)
}
