//! `holdfast-server config`: prints the settings in force as a configuration file that says where each
//! value came from, and how memory is divided.

use std::process::ExitCode;

use super::AllSettings;
use super::fail::Failure;
use super::out;
use crate::memory::Budget;

pub(super) fn run(args: &AllSettings) -> Result<ExitCode, Failure> {
    let resolved = args.resolve()?;
    let lines: Vec<(String, String)> = resolved
        .entries()
        // JSON's strings, numbers and lists of strings are TOML as well.
        .map(|(key, value, origin)| (format!("{key} = {value}"), origin.to_string()))
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    for (line, origin) in lines {
        out::say(format_args!("{line:width$}  # {origin}"));
    }
    match Budget::find(&resolved.settings) {
        Ok(budget) => {
            out::say("\n# memory, as it is divided on this machine:");
            for line in budget.lines() {
                out::say(format_args!("#   {line}"));
            }
        }
        Err(error) => out::say(format_args!("\n# the server does not start like this: {error}")),
    }
    Ok(ExitCode::SUCCESS)
}
