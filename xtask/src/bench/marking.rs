//! `cargo xtask bench marking`: finding live chunks, alone, over a repository without payloads.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::shell;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// References from recipes to chunks, about
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    references: u64,
    /// Folder for the repository (some 100 bytes a reference) instead of the system's for temporary files; the
    /// repository is removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let folder = tempfile::Builder::new().prefix("holdfast-marking-").tempdir_in(&parent)?;
    let mut command = Command::new(shell::example("marking_bench")?);
    command.arg(options.references.to_string()).arg(folder.path());
    shell::run(&mut command)
}
