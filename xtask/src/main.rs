//! `cargo xtask …`: the commands a developer, a visitor and the build machine run.
//!
//! | command | for |
//! |---|---|
//! | `demo` | seeing Holdfast work on this machine in a few minutes ([`demo`]) |
//! | `test` | everything that must pass before a change lands ([`mod@test`]) |
//! | `fix` | repairing formatting and lints ([`fix`]) |
//! | `soak` | more power failures than `test` has time for ([`soak`]) |
//! | `mutants` | checking that a test fails when a rule is removed from the code ([`mutants`]) |
//! | `bench` | figures, beside those of other tools on the same disks ([`mod@bench`]) |
//! | `package` | Debian packages and an archive of the agent ([`package`]) |
//! | `openapi` | writing `web/openapi.json` anew after a change to the REST API ([`web`]) |
//!
//! This crate depends on none of the others, so that it starts quickly and drives only what a user would: the
//! release binaries.
#![expect(clippy::print_stdout, reason = "a command line talks to its user")]

mod bench;
mod bucket;
mod demo;
mod fix;
#[cfg(test)]
mod labels;
mod lanes;
mod mutants;
mod needs;
mod package;
mod programs;
mod scratch;
mod server;
mod shell;
mod soak;
mod sparse;
mod splitmix;
mod steps;
mod suite;
mod tally;
mod test;
mod web;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Holdfast's development commands", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build, start a server, back up three VM disks twice, restore one and show what it all cost
    Demo(demo::Options),
    /// Formatting, lints, documentation, dependencies and every test
    Test(test::Options),
    /// Format the code and apply what the linters suggest
    Fix,
    /// Let power fail a million times on a simulated disk, or as often as --crashes says
    Soak(soak::Options),
    /// Take each rule of docs/ORDERING.md out of the code, and see that a test fails
    Mutants(mutants::Options),
    /// Measure Holdfast and the other tools installed here on the same disks
    Bench(Box<bench::Options>),
    /// Make the Debian packages and an archive of the agent for any Linux
    Package(package::Options),
    /// Write web/openapi.json, from which the web UI's types are generated, after a change to the REST API
    Openapi,
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Test(options) => return test::run(&options),
        Command::Fix => fix::run(),
        Command::Soak(options) => soak::run(&options),
        Command::Mutants(options) => mutants::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Package(options) => package::run(&options),
        Command::Openapi => web::write_openapi(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\n{}", shell::bold(&format!("failed: {error:#}")));
            ExitCode::FAILURE
        }
    }
}
