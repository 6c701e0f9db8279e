//! `cargo xtask mutants`: takes each rule of docs/ORDERING.md out of the code and sees that a test fails.
//!
//! `xtask/mutants.toml` lists mutations: a rule, a text of the code that keeps it, what to put there instead, and the
//! test that must notice ([`table`]). Each is made alone, in a copy of the working tree, and must build: what does not
//! compile proves nothing. The command fails when a rule has no mutation, when a mutation no longer fits the code, and
//! when one survives its test. That the list fits the rules and the code is also a quick test (`tests`), so that it
//! cannot grow old between two runs.

mod run;
mod table;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use clap::Args;

use crate::shell;
use table::{Mutation, Table};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the mutations of this rule
    #[arg(long)]
    rule: Option<String>,
    /// Show rules, mutations and tests, and run nothing
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let table = Table::load()?;
    let problems = table.problems()?;
    if !problems.is_empty() {
        bail!("xtask/mutants.toml does not fit the rules and the code:\n{}", problems.join("\n"));
    }
    let wanted = |mutation: &&Mutation| options.rule.as_ref().is_none_or(|rule| mutation.rule == *rule);
    let mutations: Vec<&Mutation> = table.mutations.iter().filter(wanted).collect();
    if mutations.is_empty() {
        bail!("no rule is called {:?}; --list shows them", options.rule.as_deref().unwrap_or_default());
    }
    if options.list {
        mutations.iter().for_each(|mutation| println!("{}", mutation.line()));
        return Ok(());
    }
    let mut failed = Vec::new();
    let workshop = run::Workshop::open()?;
    workshop.check_unchanged(&mutations)?;
    for mutation in &mutations {
        let verdict = workshop.run(mutation)?;
        println!("{} → {}", mutation.line(), shell::bold(&verdict.to_string()));
        if verdict != run::Verdict::Noticed {
            failed.push(format!("{}: {verdict}", mutation.line()));
        }
    }
    println!("\n{} of {} mutations were noticed", mutations.len() - failed.len(), mutations.len());
    if failed.is_empty() { Ok(()) } else { bail!("not noticed as they should be:\n{}", failed.join("\n")) }
}
