//! `cargo xtask mutants`: removes each rule of docs/ORDERING.md from the code and checks that a test fails.
//!
//! `xtask/mutants.toml` lists mutations: a rule, a text of the code that keeps it, its replacement, and the test that
//! must fail ([`table`]). Each is made alone, in a copy of the working tree, and must build: code that does not
//! compile proves nothing. The command fails when a rule has no mutation, when a mutation no longer fits the code, and
//! when one survives its test. A quick test (`tests`) also checks that the list fits the rules and the code, so that
//! it cannot become outdated between two runs.
//!
//! A whole run takes hours. Killed mutations are recorded at once ([`record`]), so that an interrupted run resumes
//! where it was, and a run after a change tries only the mutations it affects.

mod record;
mod run;
mod table;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use clap::Args;

use crate::shell;
use record::Record;
use run::{Verdict, Workshop};
use table::{Mutation, Table};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the mutations of this rule
    #[arg(long)]
    rule: Option<String>,
    /// Show rules, mutations and tests, and run nothing
    #[arg(long)]
    list: bool,
    /// Try those again, too, that were killed before and are the same, in a file that is the same
    #[arg(long)]
    fresh: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let table = Table::load()?;
    let uncovered = table.uncovered()?;
    let wanted = |mutation: &&Mutation| options.rule.as_ref().is_none_or(|rule| mutation.rule == *rule);
    let mutations: Vec<&Mutation> = table.mutations.iter().filter(wanted).collect();
    if mutations.is_empty() {
        bail!("no rule is called {:?}; --list shows them", options.rule.as_deref().unwrap_or_default());
    }
    if options.list {
        mutations.iter().for_each(|mutation| println!("{}", mutation.line()));
        return Ok(());
    }
    let mut record = Record::open(options.fresh)?;
    let mut verdicts = Vec::new();
    let (mut open, mut digests) = (Vec::new(), Vec::new());
    for mutation in mutations {
        if let Some(why) = mutation.misfit()? {
            verdicts.push((mutation, Verdict::DoesNotFit(why)));
            continue;
        }
        // Digest of the current file: the working tree may change while the copy is tested.
        let digest = record::digest(mutation, &mutation.text()?);
        if record.has(&digest) {
            verdicts.push((mutation, Verdict::Killed));
        } else {
            digests.push(digest);
            open.push(mutation);
        }
    }
    println!("{} of them were killed before or do not fit; {} are tried now", verdicts.len(), open.len());
    let workshop = Workshop::open()?;
    workshop.check_unchanged(&open)?;
    for (number, (mutation, digest)) in open.iter().copied().zip(&digests).enumerate() {
        let verdict = workshop.run(mutation)?;
        println!("{}/{} {} → {}", number + 1, open.len(), mutation.line(), shell::bold(&verdict.to_string()));
        if verdict == Verdict::Killed {
            record.add(digest, mutation)?;
        }
        verdicts.push((mutation, verdict));
    }
    summarise(&verdicts, uncovered)
}

/// Reports the results of all mutations, and lists those that were not killed, kind by kind.
fn summarise(verdicts: &[(&Mutation, Verdict)], uncovered: Vec<String>) -> Result<()> {
    let mut failed = uncovered;
    let kinds = ["killed", "survived", "not fitting", "not built", "broke the test program"];
    println!();
    for kind in kinds {
        let of_it: Vec<_> = verdicts.iter().filter(|(_, verdict)| verdict.kind() == kind).collect();
        println!("{:>4} {kind}", of_it.len());
        if kind != "killed" {
            failed.extend(of_it.iter().map(|(mutation, verdict)| format!("{}: {verdict}", mutation.line())));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("not killed as they should be:\n{}", failed.join("\n")) }
}
