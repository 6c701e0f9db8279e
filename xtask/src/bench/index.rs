//! `cargo xtask bench index`: the chunk index alone, without server and network.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::shell;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Entries to put into the index
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    entries: u64,
    /// Threads that insert and look up [default: one a core]
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Folder for the index (some 25 bytes an entry) instead of the system's for temporary files; the index is
    /// removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let threads = match options.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().context("cannot count the cores; give --threads")?,
    };
    let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let folder = tempfile::Builder::new().prefix("holdfast-index-").tempdir_in(&parent)?;
    let mut command = Command::new(shell::example("index_bench")?);
    command.arg(options.entries.to_string()).arg(threads.to_string()).arg(folder.path());
    shell::run(&mut command)
}
