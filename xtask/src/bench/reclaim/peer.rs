//! The same benchmark with restic.

use anyhow::{Context, Result};

use super::super::Tool as _;
use super::super::corpus::{Corpus, Step};
use super::super::measure::{Usage, measured};
use super::super::peers::Peer;
use crate::shell;

/// Figures of restic.
pub(super) struct Pruned {
    pub(super) usage: Usage,
    pub(super) repository_bytes: u64,
}

/// Backs everything up, then forgets the oldest `deleted` snapshots and prunes, as in its manual.
pub(super) fn measure(restic: &mut Peer, corpus: &Corpus, steps: &[&Step], deleted: usize) -> Result<Pruned> {
    println!("{}", shell::bold(&restic.version()));
    restic.prepare()?;
    for step in steps {
        let disk = corpus.present(step)?;
        restic.backup(step, &disk)?;
    }
    let text = shell::capture(&mut restic.command(&["snapshots", "--json"]))?;
    let snapshots: Vec<serde_json::Value> =
        serde_json::from_str(&text).context("restic snapshots is not JSON")?;
    let mut by_time: Vec<(&str, &str)> = snapshots
        .iter()
        .map(|one| {
            let field = |name: &str| one.get(name).and_then(serde_json::Value::as_str);
            field("time").zip(field("id")).context("a snapshot without time or id")
        })
        .collect::<Result<_>>()?;
    by_time.sort_unstable();
    let mut args = vec!["forget", "--prune", "-q"];
    args.extend(by_time.iter().take(deleted).map(|(_, id)| *id));
    rustix::fs::sync();
    let log = restic.repository().with_extension("prune.log");
    let usage = measured(&mut restic.command(&args), &log)?;
    rustix::fs::sync();
    let repository_bytes = super::bytes_of(restic.repository())?;
    println!("  forget --prune          {}", usage.line(repository_bytes));
    std::fs::remove_dir_all(restic.repository())?;
    Ok(Pruned { usage, repository_bytes })
}
